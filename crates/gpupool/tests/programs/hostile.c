/*
 * hostile STEP...: does what programs do that mean no good, or know no better.
 *
 *   take MIB     makes a context and takes that much device memory in one piece; prints "took" or the driver's code
 *   fill         takes pieces of 64 MiB until the driver gives no more; prints "filled MIB"
 *   close FROM   closes all descriptors from this number on
 *   alone        the rest is done by another thread, and the first one ends
 *   child        starts a child that waits for ever
 *   deaf         SIGTERM does nothing any more
 *   ready FILE   makes the file, with this process's id and its child's
 *   churn        takes and gives back 1 MiB again and again until standard input closes
 *   wait         waits until standard input closes
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

extern int cuInit(unsigned);
extern int cuDeviceGet(int *, int);
extern int cuDevicePrimaryCtxRetain(void **, int);
extern int cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(unsigned long long *, size_t);
extern int cuMemFree_v2(unsigned long long);

#define MIB ((size_t)1 << 20)

static char **step;
static pid_t child;

static int take(size_t bytes, unsigned long long *pointer)
{
    static int ready;
    int device, code;
    void *context;
    if (!ready &&
        ((code = cuInit(0)) || (code = cuDeviceGet(&device, 0)) || (code = cuDevicePrimaryCtxRetain(&context, device))
         || (code = cuCtxSetCurrent(context))))
        return code;
    ready = 1;
    return cuMemAlloc_v2(pointer, bytes);
}

/* Whether standard input is still open after so many milliseconds. */
static int open_after(int milliseconds)
{
    struct pollfd input = { .fd = 0, .events = POLLIN };
    char byte;
    return poll(&input, 1, milliseconds) == 0 || read(0, &byte, 1) > 0;
}

static void *steps(void *nothing);

static void one(void)
{
    unsigned long long pointer;
    const char *what = *step++;
    if (!strcmp(what, "take")) {
        int code = take(strtoull(*step++, NULL, 10) * MIB, &pointer);
        if (code)
            printf("code %d\n", code);
        else
            printf("took\n");
    } else if (!strcmp(what, "fill")) {
        unsigned long pieces = 0;
        while (take(64 * MIB, &pointer) == 0)
            pieces++;
        printf("filled %lu\n", pieces * 64);
    } else if (!strcmp(what, "close")) {
        close_range(strtoul(*step++, NULL, 10), ~0U, 0);
    } else if (!strcmp(what, "alone")) {
        pthread_t other;
        pthread_create(&other, NULL, steps, NULL);
        pthread_exit(NULL);
    } else if (!strcmp(what, "child")) {
        child = fork();
        while (child == 0)
            pause();
    } else if (!strcmp(what, "deaf")) {
        signal(SIGTERM, SIG_IGN);
    } else if (!strcmp(what, "ready")) {
        char next[4096];
        snprintf(next, sizeof next, "%s.next", *step);
        FILE *file = fopen(next, "w");
        fprintf(file, "%d %d", getpid(), child);
        fclose(file);
        rename(next, *step++);
    } else if (!strcmp(what, "churn")) {
        while (open_after(10))
            if (take(MIB, &pointer) == 0)
                cuMemFree_v2(pointer);
    } else if (!strcmp(what, "wait")) {
        while (open_after(-1))
            ;
    } else {
        fprintf(stderr, "no such step: %s\n", what);
        exit(2);
    }
    fflush(stdout);
}

static void *steps(void *nothing)
{
    (void)nothing;
    while (*step)
        one();
    exit(0);
}

int main(int count, char **arguments)
{
    (void)count;
    step = arguments + 1;
    steps(NULL);
}
