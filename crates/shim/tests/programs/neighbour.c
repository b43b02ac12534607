/* Another preload, as tracers are: it replaces functions of libc and of the driver, counts, and goes on to whatever
 * comes next. With -DDLSYM-like behaviour it also replaces dlsym, as such libraries do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *(*Dlsym)(void *, const char *);

static int allocations, lookups;

int cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
    int (*next)(unsigned long long *, size_t) = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    if (!next) return 999;
    allocations++;
    return next(address, bytes);
}

int puts(const char *text) {
    int (*next)(const char *) = dlsym(RTLD_NEXT, "puts");
    return next(text);
}

void *dlsym(void *handle, const char *name) {
    static Dlsym real;
    if (!real) real = (Dlsym)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    lookups++;
    return real(handle, name);
}

__attribute__((destructor)) static void report(void) {
    if (getenv("NEIGHBOUR_REPORT")) fprintf(stderr, "neighbour: %d allocations, %s lookups\n", allocations, lookups ? "some" : "no");
}
