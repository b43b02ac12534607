/* Cost of driver calls, in nanoseconds: the same program bare and under the shim tells what the shim adds.
 *
 *   calls [ROUNDS [launch]]        default 41; with the word, launches only
 *
 * One line per measurement on standard output: a name, a blank, the median of ROUNDS batches. Batches are short, so
 * that a batch without interruption exists even on a busy machine; the smallest of them comes as a third word.
 * Finds the driver by dlopen("libcuda.so.1"), as most programs do.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef unsigned long long P;
typedef void *H;

static int (*init)(unsigned), (*retain)(H *, int), (*set_current)(H), (*load)(H *, const void *),
    (*get_function)(H *, H, const char *), (*alloc)(P *, size_t), (*release)(P), (*synchronize)(void),
    (*alloc_async)(P *, size_t, H), (*free_async)(P, H), (*info)(size_t *, size_t *), (*current)(H *),
    (*get)(const char *, void **, int, uint64_t, int *),
    (*launch)(H, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, H, void **, void **);

static const char KERNEL[] =
    ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry nothing()\n{\n ret;\n}\n";
static H function;
static P live[100000];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void do_launch(void) { launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL); }
static void do_pair(void) { P p; alloc(&p, 4096); release(p); }
static void do_async_pair(void) { P p; alloc_async(&p, 4096, NULL); free_async(p, NULL); }
static void do_info(void) { size_t f, t; info(&f, &t); }
static void do_current(void) { H context; current(&context); }
static void do_get_hooked(void) { void *f; int s; get("cuMemAlloc", &f, 3020, 0, &s); }
static void do_get_launch(void) { void *f; int s; get("cuLaunchKernel", &f, 4000, 0, &s); }
static void do_get_plain(void) { void *f; int s; get("cuMemcpyHtoD", &f, 3020, 0, &s); }

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *name, void (*call)(void), int batch, int rounds) {
    double *times = malloc((size_t)rounds * sizeof *times);
    for (int i = 0; i < batch; i++) call();
    for (int round = 0; round < rounds; round++) {
        double begin = now();
        for (int i = 0; i < batch; i++) call();
        times[round] = (now() - begin) / batch;
    }
    qsort(times, (size_t)rounds, sizeof *times, by_size);
    printf("%s %.1f %.1f\n", name, times[rounds / 2], times[0]);
    fflush(stdout);
    free(times);
}

struct work { void (*call)(void); int batch, rounds; double *times; };
static H context;
static pthread_barrier_t together;

static void *in_thread(void *argument) {
    struct work *work = argument;
    set_current(context);
    for (int i = 0; i < work->batch; i++) work->call();
    pthread_barrier_wait(&together);
    for (int round = 0; round < work->rounds; round++) {
        double begin = now();
        for (int i = 0; i < work->batch; i++) work->call();
        work->times[round] = (now() - begin) / work->batch;
    }
    return NULL;
}

/* The same call in THREADS threads at once. */
static void measure_together(const char *name, void (*call)(void), int batch, int rounds) {
    enum { THREADS = 8 };
    double *times = malloc((size_t)rounds * THREADS * sizeof *times);
    struct work work[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        work[i] = (struct work){ call, batch, rounds, times + i * rounds };
        pthread_create(&threads[i], NULL, in_thread, &work[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    qsort(times, (size_t)rounds * THREADS, sizeof *times, by_size);
    printf("%s-8-threads %.1f %.1f\n", name, times[rounds * THREADS / 2], times[0]);
    fflush(stdout);
    free(times);
}

static void fail(const char *what, int code) { fprintf(stderr, "%s: %d\n", what, code); exit(1); }

int main(int count, char **words) {
    int rounds = count > 1 ? atoi(words[1]) : 41, code;
    H library = dlopen("libcuda.so.1", RTLD_NOW), module;
    if (!library) fail(dlerror(), 0);
#define FIND(variable, name) if (!(*(void **)&variable = dlsym(library, name))) fail(name, 0)
    FIND(init, "cuInit"); FIND(retain, "cuDevicePrimaryCtxRetain"); FIND(set_current, "cuCtxSetCurrent");
    FIND(load, "cuModuleLoadData"); FIND(get_function, "cuModuleGetFunction"); FIND(launch, "cuLaunchKernel");
    FIND(alloc, "cuMemAlloc_v2"); FIND(release, "cuMemFree_v2"); FIND(synchronize, "cuCtxSynchronize");
    FIND(alloc_async, "cuMemAllocAsync"); FIND(free_async, "cuMemFreeAsync"); FIND(info, "cuMemGetInfo_v2");
    FIND(get, "cuGetProcAddress_v2"); FIND(current, "cuCtxGetCurrent");
    if ((code = init(0)) || (code = retain(&context, 0)) || (code = set_current(context))) fail("context", code);
    if ((code = load(&module, KERNEL)) || (code = get_function(&function, module, "nothing"))) fail("kernel", code);
    measure("launch", do_launch, 2000, rounds);
    synchronize();
    measure_together("launch", do_launch, 500, rounds);
    synchronize();
    if (count > 2) return 0;
    measure("alloc+free", do_pair, 500, rounds);
    measure_together("alloc+free", do_pair, 200, rounds);
    measure("allocasync+freeasync", do_async_pair, 500, rounds);
    measure("memgetinfo", do_info, 500, rounds);
    measure("ctxgetcurrent", do_current, 2000, rounds);
    measure("getprocaddress-memalloc", do_get_hooked, 1000, rounds);
    measure_together("getprocaddress-memalloc", do_get_hooked, 500, rounds);
    measure("getprocaddress-launch", do_get_launch, 1000, rounds);
    measure("getprocaddress-unhooked", do_get_plain, 1000, rounds);
    for (int i = 0; i < 100000; i++) if ((code = alloc(&live[i], 512))) fail("100,000 allocations", code);
    measure("alloc+free-100000-live", do_pair, 500, rounds);
    for (int i = 0; i < 100000; i++) if ((code = release(live[i]))) fail("free", code);
    return 0;
}
