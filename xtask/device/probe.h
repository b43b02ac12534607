/* What a driver does, asked call by call, printed as JSON. One section a process: a clean state for each, and a section
 * that ends badly takes no other with it.
 *
 * Every function is found by dlsym in the libraries' sonames, as programs find it, so the same probe runs on the bare
 * driver and under a preload. */
#ifndef PROBE_H
#define PROBE_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long Pointer;
typedef void *Handle;

/* The code that stands for a function that the driver does not have. */
enum { MISSING = -1 };

/* Calls a function of the driver by its exported name, with these types of arguments. */
#define CU(name, types, ...)                                                                                           \
    ({                                                                                                                 \
        int (*call_) types = (int (*) types)driver_function(#name);                                                    \
        call_ ? call_(__VA_ARGS__) : MISSING;                                                                          \
    })

/* The same with NVML. */
#define NVML(name, types, ...)                                                                                         \
    ({                                                                                                                 \
        int (*call_) types = (int (*) types)nvml_function(#name);                                                      \
        call_ ? call_(__VA_ARGS__) : MISSING;                                                                          \
    })

/* Calls and ends the program where the call fails: nothing after it would mean anything. */
#define MUST(call) must(#call, call)

void *driver_function(const char *name);
void *nvml_function(const char *name);
void must(const char *what, int code);
long long now_ns(void);

/* JSON on standard output; a key of NULL is an item of a list. */
void object(const char *key);
void object_end(void);
void list(const char *key);
void list_end(void);
void number(const char *key, long long value);
void text(const char *key, const char *value);

/* What is free and taken at one moment, in bytes; -1 where nobody says. */
struct Moment {
    long long free;    /* cuMemGetInfo */
    long long device;  /* NVML, the whole card */
    long long process; /* NVML, this process */
};
struct Moment moment(void);
/* Prints how much more is taken than at an earlier moment. */
void taken_since(const char *key, struct Moment before);

/* cuInit, the first card's primary context, made current. */
void begin(void);
Handle nvml_card(void);
/* A module with an empty kernel and one that spins for as many clock cycles as its parameter says. */
extern const char PTX[];
Handle load_ptx(const char *source);

void driver_section(void);
void bytes_section(void);
void errors_section(void);
void resolver_section(const char *names);
void pools_section(void);
void contexts_section(void);
void graphs_section(void);
void nvml_section(void);
void timing_section(void);
/* Takes steps until it is refused or has the most, says how much it got, keeps it until standard input closes. */
void limit_section(const char *family, size_t step, size_t most);

#endif
