/* Starts other programs in every way there is, from the middle of its own use of the card if it has one. Prints what
 * each of them ended with. With a number as its only argument: starts that many of /bin/true, one after the other. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static char *const quiet[] = {"true", NULL};

static int ended(pid_t child) {
    int status = -1;
    if (child <= 0 || waitpid(child, &status, __WALL) != child) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int become(void *nothing) {
    (void)nothing;
    execve("/bin/true", quiet, environ);
    _exit(99);
}

static int by_vfork(void) {
    pid_t child = vfork();
    if (child == 0) become(NULL);
    return ended(child);
}

static int by_clone(int flags) {
    static char stack[65536] __attribute__((aligned(16)));
    return ended(clone(become, stack + sizeof stack, flags | SIGCHLD, NULL));
}

static int by_spawn(void) {
    pid_t child = 0;
    if (posix_spawn(&child, "/bin/true", NULL, NULL, quiet, environ)) return -1;
    return ended(child);
}

static void *in_thread(void *sum) {
    *(int *)sum = by_spawn() + by_vfork() + by_clone(CLONE_VM | CLONE_VFORK);
    return NULL;
}

int main(int count, char **words) {
    if (count == 2 && atoi(words[1]) > 0) {
        struct timespec start, end;
        clock_gettime(CLOCK_MONOTONIC, &start);
        int failed = 0;
        for (int i = 0; i < atoi(words[1]); i++) failed += by_spawn() != 0;
        clock_gettime(CLOCK_MONOTONIC, &end);
        long each = ((end.tv_sec - start.tv_sec) * 1000000000L + end.tv_nsec - start.tv_nsec) / atoi(words[1]);
        printf("failed=%d\n", failed);
        fprintf(stderr, "%ld ns each\n", each);
        return failed != 0;
    }
    int (*init)(unsigned) = NULL, (*retain)(void **, int) = NULL, (*alloc)(uint64_t *, size_t) = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
    if (library) {
        init = dlsym(library, "cuInit");
        retain = dlsym(library, "cuDevicePrimaryCtxRetain");
        alloc = dlsym(library, "cuMemAlloc_v2");
        int (*current)(void *) = dlsym(library, "cuCtxSetCurrent");
        printf("init=%d\n", init(0));
        printf("retain=%d\n", retain(&context, 0));
        printf("current=%d\n", current(context));
    }
    printf("fork=%d\n", ({ fflush(stdout); pid_t child = fork(); if (!child) become(NULL); ended(child); }));
    printf("vfork=%d\n", by_vfork());
    printf("clone=%d\n", by_clone(0));
    printf("clone vm=%d\n", by_clone(CLONE_VM));
    printf("clone vfork=%d\n", by_clone(CLONE_VM | CLONE_VFORK));
    printf("spawn=%d\n", by_spawn());
    printf("system=%d\n", system("exit 7"));
    pthread_t threads[4];
    int sums[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, in_thread, &sums[i]);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("threads=%d\n", sums[0] + sums[1] + sums[2] + sums[3]);
    for (int i = 0; library && i < 3; i++) {
        uint64_t address = 0;
        printf("alloc=%d\n", alloc(&address, 1000));
    }
    fflush(stdout);
    execl("/bin/echo", "echo", "exec", NULL);
    return 98;
}
