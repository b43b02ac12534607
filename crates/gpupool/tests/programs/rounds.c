/*
 * A GPU program for the chaos test: so many rounds of context, memory, work, release, with pauses between them.
 *
 *   rounds ROUNDS HOLD_MS THINK_MS BYTES PROGRESS_FILE [fork|exec]
 *
 * Each round checks that the bytes written to the card come back. A byte is appended to PROGRESS_FILE for each round
 * done. Exit status 0: all rounds done; 1: the driver answered with an error (named on standard error); 2: wrong data.
 * "fork" does the rounds in a child, "exec" starts anew before the first one.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef int (*any_call)();

static void *driver;

static any_call entry(const char *name)
{
    any_call call = (any_call)dlsym(driver, name);
    if (!call) {
        fprintf(stderr, "rounds: the driver has no %s\n", name);
        exit(1);
    }
    return call;
}

static void check(const char *what, int result)
{
    if (result) {
        fprintf(stderr, "rounds: %s answered %d\n", what, result);
        exit(1);
    }
}

static void pause_ms(long ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left)) {
    }
}

static void one_round(long hold_ms, size_t bytes)
{
    void *context = NULL;
    unsigned long long memory = 0;
    unsigned char sample[4096];
    size_t length = bytes < sizeof sample ? bytes : sizeof sample;
    int device = 0;

    check("cuDeviceGet", entry("cuDeviceGet")(&device, 0));
    check("cuDevicePrimaryCtxRetain", entry("cuDevicePrimaryCtxRetain")(&context, device));
    check("cuCtxSetCurrent", entry("cuCtxSetCurrent")(context));
    check("cuMemAlloc", entry("cuMemAlloc_v2")(&memory, bytes));
    check("cuMemsetD8", entry("cuMemsetD8_v2")(memory, (unsigned char)getpid(), length));
    pause_ms(hold_ms);
    check("cuMemcpyDtoH", entry("cuMemcpyDtoH_v2")(sample, memory, length));
    for (size_t i = 0; i < length; i++) {
        if (sample[i] != (unsigned char)getpid()) {
            fprintf(stderr, "rounds: byte %zu of the card's memory changed\n", i);
            exit(2);
        }
    }
    check("cuMemFree", entry("cuMemFree_v2")(memory));
    check("cuCtxSetCurrent", entry("cuCtxSetCurrent")(NULL));
    check("cuDevicePrimaryCtxRelease", entry("cuDevicePrimaryCtxRelease_v2")(device));
}

int main(int count, char **words)
{
    if (count < 6) {
        fprintf(stderr, "usage: rounds ROUNDS HOLD_MS THINK_MS BYTES PROGRESS_FILE [fork|exec]\n");
        return 64;
    }
    if (count > 6 && !strcmp(words[6], "exec")) {
        words[6] = NULL;
        execv("/proc/self/exe", words);
        return 71;
    }
    if (count > 6 && !strcmp(words[6], "fork")) {
        int status = 0;
        pid_t child = fork();
        if (child) {
            if (child < 0 || waitpid(child, &status, 0) < 0)
                return 71;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
    }

    long rounds = atol(words[1]), hold_ms = atol(words[2]), think_ms = atol(words[3]);
    size_t bytes = strtoull(words[4], NULL, 10);
    int progress = open(words[5], O_WRONLY | O_CREAT | O_APPEND, 0600);
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver || progress < 0) {
        fprintf(stderr, "rounds: %s\n", driver ? "cannot open the progress file" : dlerror());
        return 1;
    }
    check("cuInit", entry("cuInit")(0));
    for (long i = 0; i < rounds; i++) {
        one_round(hold_ms, bytes);
        if (write(progress, "r", 1) != 1)
            return 71;
        pause_ms(think_ms);
    }
    return 0;
}
