/* Calls every function whose name it reads with zeros for all arguments, each in a child of its own, and prints what
 * came back. Before the call it initialises the driver if the first argument says "initialised"; if that says "current"
 * it also makes a context current and takes some memory, and if it says "lost" it then waits for work, at which the
 * simulated card may be ordered to be lost: each child has a machine of its own then. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int (*Init)(unsigned);
typedef int (*Any)(long, long, long, long, long, long, long, long, long, long, long, long, long, long);

/* A context and a piece of memory in it. */
static int hold(void *library) {
    void *context;
    unsigned long long piece;
    int answer = ((int (*)(void **, int))dlsym(library, "cuDevicePrimaryCtxRetain"))(&context, 0);
    if (!answer) answer = ((int (*)(void *))dlsym(library, "cuCtxSetCurrent"))(context);
    if (!answer) answer = ((int (*)(unsigned long long *, size_t))dlsym(library, "cuMemAlloc_v2"))(&piece, 1 << 20);
    return answer;
}

int main(int count, char **words) {
    int holds = count > 1 && (!strcmp(words[1], "current") || !strcmp(words[1], "lost"));
    int lost = holds && !strcmp(words[1], "lost");
    int initialised = holds || (count > 1 && !strcmp(words[1], "initialised"));
    char name[128];
    while (scanf("%127s", name) == 1) {
        void *library = dlopen(strncmp(name, "nvml", 4) ? "libcuda.so.1" : "libnvidia-ml.so.1", RTLD_NOW);
        if (!library) { printf("dlopen: %s\n", dlerror()); return 3; }
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            Any function = (Any)dlsym(library, name);
            if (!function) { printf("%s missing\n", name); fflush(stdout); _exit(0); }
            if (lost) {
                char *state;
                if (asprintf(&state, "%s-%s", getenv("SIMGPU_STATE"), name) < 0) _exit(1);
                setenv("SIMGPU_STATE", state, 1);
            }
            if (initialised && !strncmp(name, "cu", 2)) ((Init)dlsym(library, "cuInit"))(0);
            if (initialised && !strncmp(name, "nvml", 4)) ((Init)dlsym(library, "nvmlInit_v2"))(0);
            int held = holds && !strncmp(name, "cu", 2) ? hold(library) : 0;
            if (held) { printf("%s held %d\n", name, held); fflush(stdout); _exit(0); }
            if (lost) ((int (*)(void))dlsym(library, "cuCtxSynchronize"))();
            printf("%s %d\n", name, function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
            fflush(stdout);
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (WIFSIGNALED(status)) printf("%s signal %d\n", name, WTERMSIG(status));
    }
    return 0;
}
