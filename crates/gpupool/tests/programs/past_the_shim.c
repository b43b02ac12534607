/* past_the_shim HOW LIBRARY MEBIBYTES [stubborn]: loads a library that is linked to the driver, has it take memory,
 * says "taken" and its own pid, and keeps it until standard input closes.
 *
 * HOW is plain (a preload is in the way), deepbind or dlmopen (it is not). A stubborn one ignores SIGTERM. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *load(const char *how, const char *library) {
    if (!strcmp(how, "deepbind"))
        return dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (!strcmp(how, "dlmopen"))
        return dlmopen(LM_ID_NEWLM, library, RTLD_NOW | RTLD_LOCAL);
    return dlopen(library, RTLD_NOW | RTLD_LOCAL);
}

int main(int count, char **arguments) {
    int (*take)(size_t);
    void *library;
    char byte;
    if (count < 4)
        return 2;
    if (count > 4)
        signal(SIGTERM, SIG_IGN);
    library = load(arguments[1], arguments[2]);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    *(void **)&take = dlsym(library, "take");
    int code = take(strtoull(arguments[3], NULL, 10) << 20);
    if (code) {
        fprintf(stderr, "code %d\n", code);
        return 4;
    }
    printf("taken by %d\n", getpid());
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    /* No destructors: what is under test is how it is seen, not how it ends. */
    _exit(0);
}
