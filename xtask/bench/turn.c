/*
 * One turn on a card, for `cargo xtask bench`: takes a context, prints when (monotonic nanoseconds) and how long the
 * first call took, keeps it until standard input ends, then exits without giving anything back.
 *
 * With the word "again" it gives its first context back and what it prints is about taking a second one.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int (*any_call)();

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int count, char **words)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver)
        return 1;
    any_call init = (any_call)dlsym(driver, "cuInit");
    any_call retain = (any_call)dlsym(driver, "cuDevicePrimaryCtxRetain");
    void *context = NULL;
    char byte;
    long long start = now();
    if (init(0) || retain(&context, 0))
        return 1;
    long long end = now();
    if (count > 1 && !strcmp(words[1], "again")) {
        any_call release = (any_call)dlsym(driver, "cuDevicePrimaryCtxRelease_v2");
        if (release(0))
            return 1;
        start = now();
        if (retain(&context, 0))
            return 1;
        end = now();
    }
    printf("%lld %lld\n", end, end - start);
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {
    }
    _exit(0);
}
