/* What a command spends.
 *
 *   spent FILE COMMAND [ARGUMENT…]
 *
 * Runs the command, then writes one line to FILE: nanoseconds from its start to its end, and its peak resident memory
 * in bytes. Exits as the command did. A small program of its own, because the kernel counts the memory of the process
 * that started a command into the command's peak.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void fail(const char *what) { perror(what); exit(125); }

int main(int count, char **words) {
    struct rusage usage;
    int status;
    if (count < 3) { fputs("spent FILE COMMAND [ARGUMENT...]\n", stderr); return 125; }
    long long begin = now();
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
        execvp(words[2], words + 2);
        perror(words[2]);
        _exit(125);
    }
    if (wait4(child, &status, 0, &usage) != child) fail("wait4");
    long long spent = now() - begin;
    FILE *file = fopen(words[1], "w");
    if (!file) fail(words[1]);
    fprintf(file, "%lld %lld\n", spent, usage.ru_maxrss * 1024LL);
    if (fclose(file)) fail(words[1]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
