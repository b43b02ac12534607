/* Launches kernels in every way there is: words are done one after the other, each prints its result code.
 *
 *   WAY N         launches N times: kernel, kernel_ptsz, cooperative, cooperative_ptsz, ex, ex_ptsz, graph, graph_ptsz,
 *                 old (cuLaunchGrid)
 *   capture N     records N launches into a graph, which "graph" launches
 *   beside N      records into a graph while another thread launches N times and waits for none of it
 *   wrong         launches that the driver must refuse: no function, no configuration
 *   mode          the thread's capture mode
 *   sync          waits for the card
 *   context       makes another context current
 *   leave         destroys the current context
 *   twin          goes on in a forked child too
 *   pause         waits for a line on standard input
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void *H;
typedef struct { unsigned grid[3], block[3], shared; H stream; void *attributes; unsigned count; } Config;

static const char KERNEL[] =
    ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry nothing()\n{\n ret;\n}\n";
static H library, context, module, function, stream, graph, executable;

static void *find(const char *name) {
    void *found = dlsym(library, name);
    if (!found) { printf("missing %s\n", name); exit(3); }
    return found;
}
#define CALL(name, ...) ((int (*)())find(name))(__VA_ARGS__)
typedef int (*Launch)(H, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, H, void **, void **);
typedef int (*Cooperative)(H, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, H, void **);

static int start(int number) {
    if (number && CALL("cuCtxCreate_v2", &context, 0, 0)) return 1;
    return CALL("cuModuleLoadData", &module, KERNEL) || CALL("cuModuleGetFunction", &function, module, "nothing");
}

static int launch(const char *way) {
    Config config = { { 1, 1, 1 }, { 32, 1, 1 }, 0, NULL, NULL, 0 };
    if (!strcmp(way, "kernel"))
        return ((Launch)find("cuLaunchKernel"))(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    if (!strcmp(way, "kernel_ptsz"))
        return ((Launch)find("cuLaunchKernel_ptsz"))(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    if (!strcmp(way, "cooperative"))
        return ((Cooperative)find("cuLaunchCooperativeKernel"))(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL);
    if (!strcmp(way, "cooperative_ptsz"))
        return ((Cooperative)find("cuLaunchCooperativeKernel_ptsz"))(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL);
    if (!strcmp(way, "ex")) return CALL("cuLaunchKernelEx", &config, function, NULL, NULL);
    if (!strcmp(way, "ex_ptsz")) return CALL("cuLaunchKernelEx_ptsz", &config, function, NULL, NULL);
    if (!strcmp(way, "graph")) return CALL("cuGraphLaunch", executable, NULL);
    if (!strcmp(way, "graph_ptsz")) return CALL("cuGraphLaunch_ptsz", executable, NULL);
    if (!strcmp(way, "old")) return CALL("cuLaunchGrid", function, 1, 1);
    return -1;
}

static int capture(int number) {
    int code = CALL("cuStreamCreate", &stream, 0);
    if (!code) code = CALL("cuStreamBeginCapture_v2", stream, 0);
    for (int i = 0; i < number && !code; i++)
        code = ((Launch)find("cuLaunchKernel"))(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
    if (!code) code = CALL("cuStreamEndCapture", stream, &graph);
    if (!code) code = CALL("cuGraphInstantiateWithFlags", &executable, graph, (uint64_t)0);
    return code;
}

static void *launch_in_thread(void *number) {
    int code = CALL("cuCtxSetCurrent", context);
    for (int i = 0; i < *(int *)number && !code; i++) code = launch("kernel_ptsz");
    return (void *)(intptr_t)code;
}

static int beside(int number) {
    pthread_t thread;
    void *code;
    /* A stream that the default stream does not wait for: only then may others launch there. */
    int own = CALL("cuStreamCreate", &stream, 1);
    if (!own) own = CALL("cuStreamBeginCapture_v2", stream, 0);
    pthread_create(&thread, NULL, launch_in_thread, &number);
    pthread_join(thread, &code);
    if (!own) own = CALL("cuStreamEndCapture", stream, &graph);
    return own * 1000 + (int)(intptr_t)code;
}

static int wrong(void) {
    int no_function = ((Launch)find("cuLaunchKernel"))(NULL, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    int no_configuration = CALL("cuLaunchKernelEx", NULL, function, NULL, NULL);
    return no_function * 1000 + no_configuration;
}

static void run(int count, char **words) {
    while (count > 0) {
        const char *what = words[0];
        int number = count > 1 ? atoi(words[1]) : 0, used = 1, code = 0;
        if (!strcmp(what, "capture")) { code = capture(number); used = 2; }
        else if (!strcmp(what, "beside")) { code = beside(number); used = 2; }
        else if (!strcmp(what, "wrong")) code = wrong();
        else if (!strcmp(what, "mode")) {
            int mode = 0, before = 0;
            CALL("cuThreadExchangeStreamCaptureMode", &mode);
            before = mode;
            CALL("cuThreadExchangeStreamCaptureMode", &mode);
            code = before;
        }
        else if (!strcmp(what, "sync")) code = CALL("cuCtxSynchronize");
        else if (!strcmp(what, "context")) code = start(1);
        else if (!strcmp(what, "leave")) code = CALL("cuCtxDestroy_v2", context);
        else if (!strcmp(what, "twin")) { if (fork() == 0) { CALL("cuInit", 0); run(count - 1, words + 1); _exit(0); } else { run(count - 1, words + 1); wait(NULL); return; } }
        else if (!strcmp(what, "pause")) { char line[8]; printf("paused\n"); fflush(stdout); if (!fgets(line, 8, stdin)) exit(4); }
        else { for (int i = 0; i < number && !code; i++) code = launch(what); used = 2; }
        if (strcmp(what, "pause")) printf("%s=%d\n", what, code);
        fflush(stdout);
        count -= used;
        words += used;
    }
}

int main(int count, char **words) {
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library || CALL("cuInit", 0)) return 2;
    if (CALL("cuDevicePrimaryCtxRetain", &context, 0) || CALL("cuCtxSetCurrent", context) || start(0)) return 2;
    run(count - 1, words + 1);
    return 0;
}
