/* A GPU program that does what its arguments say, one after the other, and prints each result code.
 *
 * Built with -DDIRECT it is linked to the driver; otherwise GPU_RESOLVE says how it finds functions:
 * "dlsym" (default) or "proc" (cuGetProcAddress). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <pthread.h>
#include <unistd.h>

typedef int R;
typedef unsigned long long P;
typedef void *H;

/* exported name, name and version for cuGetProcAddress, result, arguments */
#define LIST(X) \
    X(cuInit, "cuInit", 2000, (unsigned)) \
    X(cuDriverGetVersion, "cuDriverGetVersion", 2020, (int *)) \
    X(cuDeviceGetCount, "cuDeviceGetCount", 2000, (int *)) \
    X(cuDeviceGet, "cuDeviceGet", 2000, (int *, int)) \
    X(cuDeviceGetName, "cuDeviceGetName", 2000, (char *, int, int)) \
    X(cuDeviceGetUuid_v2, "cuDeviceGetUuid", 11040, (unsigned char *, int)) \
    X(cuDeviceGetAttribute, "cuDeviceGetAttribute", 2000, (int *, int, int)) \
    X(cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020, (size_t *, int)) \
    X(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", 4010, (char *, int, int)) \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, (H *, int)) \
    X(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, (int)) \
    X(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, (int)) \
    X(cuCtxCreate_v2, "cuCtxCreate", 3020, (H *, unsigned, int)) \
    X(cuCtxDestroy_v2, "cuCtxDestroy", 4000, (H)) \
    X(cuCtxGetCurrent, "cuCtxGetCurrent", 4000, (H *)) \
    X(cuCtxSetCurrent, "cuCtxSetCurrent", 4000, (H)) \
    X(cuCtxGetDevice, "cuCtxGetDevice", 2000, (int *)) \
    X(cuCtxSynchronize, "cuCtxSynchronize", 2000, (void)) \
    X(cuGetExportTable, "cuGetExportTable", 3000, (const void **, const void *)) \
    X(cuMemGetInfo_v2, "cuMemGetInfo", 3020, (size_t *, size_t *)) \
    X(cuMemAlloc_v2, "cuMemAlloc", 3020, (P *, size_t)) \
    X(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, (P *, size_t *, size_t, size_t, unsigned)) \
    X(cuMemAllocManaged, "cuMemAllocManaged", 6000, (P *, size_t, unsigned)) \
    X(cuMemFree_v2, "cuMemFree", 3020, (P)) \
    X(cuMemAllocAsync, "cuMemAllocAsync", 11020, (P *, size_t, H)) \
    X(cuMemFreeAsync, "cuMemFreeAsync", 11020, (P, H)) \
    X(cuMemPoolTrimTo, "cuMemPoolTrimTo", 11020, (H, size_t)) \
    X(cuDeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", 11020, (H *, int)) \
    X(cuModuleLoadData, "cuModuleLoadData", 2000, (H *, const void *)) \
    X(cuModuleGetFunction, "cuModuleGetFunction", 2000, (H *, H, const char *)) \
    X(cuStreamCreate, "cuStreamCreate", 2000, (H *, unsigned)) \
    X(cuLaunchKernel, "cuLaunchKernel", 4000, \
      (H, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, H, void **, void **))

#ifdef DIRECT
#define DECLARE(name, base, version, arguments) extern R name arguments;
LIST(DECLARE)
static void resolve(void) {}
#else
#define DECLARE(name, base, version, arguments) static R (*name) arguments;
LIST(DECLARE)
static void resolve(void) {
    H library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) { printf("dlopen: %s\n", dlerror()); exit(3); }
    const char *how = getenv("GPU_RESOLVE");
    if (how && strcmp(how, "proc") == 0) {
        R (*get)(const char *, void **, int, uint64_t, int *) = dlsym(library, "cuGetProcAddress_v2");
        int status;
#define BY_PROC(name, base, version, arguments) \
    if (get(base, (void **)&name, version, 0, &status)) printf("missing %s %d\n", base, status);
        LIST(BY_PROC)
    } else {
#define BY_NAME(name, base, version, arguments) name = dlsym(library, #name);
        LIST(BY_NAME)
    }
}
#endif

static const char KERNEL[] =
    ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry nothing()\n{\n ret;\n}\n";
static P memory[4096];
static int memories;
static H contexts[64], function;
static int context_count;

static void say(const char *what, R code) { printf("%s=%d\n", what, code); fflush(stdout); }

static R launch(void) {
    if (!function) {
        H module;
        R code = cuModuleLoadData(&module, KERNEL);
        if (code) return code;
        code = cuModuleGetFunction(&function, module, "nothing");
        if (code) return code;
    }
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static void *retain_in_thread(void *nothing) {
    H context;
    (void)nothing;
    return (void *)(intptr_t)cuDevicePrimaryCtxRetain(&context, 0);
}

/* Allocates and frees as fast as it can, keeping a few pieces. */
static void *storm_in_thread(void *seed) {
    unsigned long long state = (uintptr_t)seed * 7919 + 1;
    P kept[16] = {0};
    H context;
    intptr_t bad = cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
    for (int i = 0; i < 4000; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        int place = (int)(state >> 60);
        if (kept[place]) { bad += cuMemFree_v2(kept[place]) != 0; kept[place] = 0; continue; }
        R code = cuMemAlloc_v2(&kept[place], 1 + (state >> 33) % 20000000);
        if (code) { kept[place] = 0; bad += code != 2; }
    }
    for (int i = 0; i < 16; i++) if (kept[i]) bad += cuMemFree_v2(kept[i]) != 0;
    bad += cuDevicePrimaryCtxRelease_v2(0) != 0;
    return (void *)bad;
}

/* Makes and destroys contexts as fast as it can. */
static void *contexts_in_thread(void *seed) {
    intptr_t bad = 0;
    (void)seed;
    for (int i = 0; i < 150; i++) {
        H context;
        P piece;
        R code = cuCtxCreate_v2(&context, 0, 0);
        if (code) { bad++; continue; }
        bad += cuMemAlloc_v2(&piece, 1000) != 0;
        bad += cuCtxDestroy_v2(context) != 0;
    }
    return (void *)bad;
}

static long in_threads(void *(*body)(void *)) {
    pthread_t thread[6];
    long bad = 0;
    for (intptr_t i = 0; i < 6; i++) pthread_create(&thread[i], NULL, body, (void *)i);
    for (int i = 0; i < 6; i++) { void *result; pthread_join(thread[i], &result); bad += (intptr_t)result; }
    return bad;
}

static void run(int count, char **words);

static int step(int left, char **word) {
    const char *what = word[0];
    size_t number = left > 1 ? strtoull(word[1], NULL, 10) : 0;
    if (!strcmp(what, "init")) { say(what, cuInit(0)); return 1; }
    if (!strcmp(what, "version")) { int v = 0; R c = cuDriverGetVersion(&v); printf("version=%d %d\n", c, v); return 1; }
    if (!strcmp(what, "count")) { int n = -1; R c = cuDeviceGetCount(&n); printf("count=%d %d\n", c, n); return 1; }
    if (!strcmp(what, "get")) { int d = -1; R c = cuDeviceGet(&d, (int)number); printf("get=%d %d\n", c, d); return 2; }
    if (!strcmp(what, "name")) { char t[96] = ""; R c = cuDeviceGetName(t, 96, 0); printf("name=%d %s\n", c, t); return 1; }
    if (!strcmp(what, "bus")) { char t[32] = ""; R c = cuDeviceGetPCIBusId(t, 32, 0); printf("bus=%d %s\n", c, t); return 1; }
    if (!strcmp(what, "uuid")) {
        unsigned char u[16] = {0};
        printf("uuid=%d ", cuDeviceGetUuid_v2(u, 0));
        for (int i = 0; i < 16; i++) printf("%02x", u[i]);
        printf("\n");
        return 1;
    }
    if (!strcmp(what, "attribute")) { int v = 0; R c = cuDeviceGetAttribute(&v, (int)number, 0); printf("attribute=%d %d\n", c, v); return 2; }
    if (!strcmp(what, "total")) { size_t t = 0; R c = cuDeviceTotalMem_v2(&t, 0); printf("total=%d %zu\n", c, t); return 1; }
    if (!strcmp(what, "info")) { size_t f = 0, t = 0; R c = cuMemGetInfo_v2(&f, &t); printf("info=%d %zu %zu\n", c, f, t); return 1; }
    if (!strcmp(what, "current")) { H x = (H)1; R c = cuCtxGetCurrent(&x); printf("current=%d %s\n", c, x ? "one" : "none"); return 1; }
    if (!strcmp(what, "device")) { int d = -1; R c = cuCtxGetDevice(&d); printf("device=%d\n", c); return 1; }
    if (!strcmp(what, "retain")) { H x = NULL; R c = cuDevicePrimaryCtxRetain(&x, 0); if (!c) cuCtxSetCurrent(x); say(what, c); return 1; }
    if (!strcmp(what, "release")) { say(what, cuDevicePrimaryCtxRelease_v2(0)); return 1; }
    if (!strcmp(what, "reset")) { say(what, cuDevicePrimaryCtxReset_v2(0)); return 1; }
    if (!strcmp(what, "create")) { R c = cuCtxCreate_v2(&contexts[context_count], 0, 0); if (!c) context_count++; say(what, c); return 1; }
    if (!strcmp(what, "destroy")) { say(what, cuCtxDestroy_v2(contexts[--context_count])); return 1; }
    if (!strcmp(what, "table")) { const void *t; static const char id[16]; say(what, cuGetExportTable(&t, id)); return 1; }
    if (!strcmp(what, "alloc")) { R c = cuMemAlloc_v2(&memory[memories], number); if (!c) memories++; say(what, c); return 2; }
    if (!strcmp(what, "managed")) { R c = cuMemAllocManaged(&memory[memories], number, 1); if (!c) memories++; say(what, c); return 2; }
    if (!strcmp(what, "pitch")) {
        size_t pitch = 0;
        R c = cuMemAllocPitch_v2(&memory[memories], &pitch, number, strtoull(word[2], NULL, 10), 4);
        if (!c) memories++;
        printf("pitch=%d %zu\n", c, pitch);
        return 3;
    }
    if (!strcmp(what, "async")) { R c = cuMemAllocAsync(&memory[memories], number, NULL); if (!c) memories++; say(what, c); return 2; }
    if (!strcmp(what, "fill")) {
        size_t n = 0;
        while (memories < 4096 && !cuMemAlloc_v2(&memory[memories], number)) { memories++; n++; }
        printf("fill=%zu\n", n);
        return 2;
    }
    if (!strcmp(what, "free")) { say(what, cuMemFree_v2(memory[--memories])); return 1; }
    if (!strcmp(what, "freeasync")) { say(what, cuMemFreeAsync(memory[--memories], NULL)); return 1; }
    if (!strcmp(what, "freewrong")) { say(what, cuMemFree_v2(memory[0] + 13)); return 1; }
    if (!strcmp(what, "trim")) { H pool = NULL; cuDeviceGetDefaultMemPool(&pool, 0); say(what, cuMemPoolTrimTo(pool, 0)); return 1; }
    if (!strcmp(what, "stream")) { H s; say(what, cuStreamCreate(&s, 0)); return 1; }
    if (!strcmp(what, "launch")) { say(what, launch()); return 1; }
    if (!strcmp(what, "sync")) { say(what, cuCtxSynchronize()); return 1; }
    if (!strcmp(what, "threads")) { printf("threads=%ld\n", in_threads(retain_in_thread)); return 1; }
    if (!strcmp(what, "storm")) {
        printf("storm=%ld\n", in_threads(storm_in_thread));
        return 1;
    }
    if (!strcmp(what, "contexts")) { printf("contexts=%ld\n", in_threads(contexts_in_thread)); return 1; }
    if (!strcmp(what, "pause")) { char line[8]; printf("paused\n"); fflush(stdout); if (!fgets(line, 8, stdin)) exit(4); return 1; }
    if (!strcmp(what, "sleep")) { usleep((unsigned)number * 1000); return 2; }
    if (!strcmp(what, "closeall")) { for (int fd = 3; fd < 1024; fd++) close(fd); printf("closed\n"); return 1; }
    if (!strcmp(what, "reuse")) {
        /* Every number that was closed is now a file of the program's own. */
        FILE *f = tmpfile();
        for (int fd = 3; fd < 1024; fd++) if (fd != fileno(f)) dup2(fileno(f), fd);
        fputs("mine", f);
        fflush(f);
        printf("reused\n");
        return 1;
    }
    if (!strcmp(what, "mine")) {
        /* What the program wrote into its own file is all that is in it. */
        char text[64] = "";
        ssize_t n = pread(600, text, 63, 0);
        printf("mine=%zd %s\n", n, text);
        return 1;
    }
    if (!strcmp(what, "closestderr")) { close(2); return 1; }
    if (!strcmp(what, "exhaust")) { while (dup(0) >= 0) {} printf("exhausted\n"); return 1; }
    if (!strcmp(what, "tight")) {
        /* No more address space than there is in use. */
        long pages = 0;
        FILE *file = fopen("/proc/self/statm", "r");
        if (!file || fscanf(file, "%ld", &pages) != 1) exit(4);
        fclose(file);
        struct rlimit all = {(rlim_t)pages * 4096, (rlim_t)pages * 4096};
        printf("tight=%d\n", setrlimit(RLIMIT_AS, &all));
        return 1;
    }
    if (!strcmp(what, "errno")) { errno = 77; R c = cuMemAlloc_v2(&memory[memories], number); if (!c) memories++; printf("errno=%d %d\n", c, errno); return 2; }
    if (!strcmp(what, "fds")) { int n = 0; for (int fd = 0; fd < 2048; fd++) n += lseek(fd, 0, SEEK_CUR) != -1 || errno != EBADF; printf("fds=%d\n", n); return 1; }
    if (!strcmp(what, "fork")) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) { run(left - 1, word + 1); fflush(stdout); _exit(0); }
        int status = 0;
        waitpid(child, &status, 0);
        printf("child=%d\n", status);
        return left;
    }
    if (!strcmp(what, "twin")) {
        /* A child that goes on with the rest, beside its parent that does the same. */
        fflush(stdout);
        if (fork() == 0) { run(left - 1, word + 1); fflush(stdout); _exit(0); }
        run(left - 1, word + 1);
        wait(NULL);
        return left;
    }
    printf("unknown %s\n", what);
    exit(2);
}

static void run(int count, char **words) {
    while (count > 0) {
        int used = step(count, words);
        fflush(stdout);
        count -= used;
        words += used;
    }
}

int main(int count, char **words) {
    resolve();
    run(count - 1, words + 1);
    return 0;
}
