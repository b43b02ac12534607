/* What grows step by step: pools, contexts, modules, limits, the memory of graphs. */
#include "probe.h"

enum { MIB = 1 << 20 };

static Handle pool;

static long long pool_attribute(int which) {
    unsigned long long value = 0;
    return CU(cuMemPoolGetAttribute, (Handle, int, void *), pool, which, &value) ? -1 : (long long)value;
}

/* One step: what was done, its code, and how things stand after it. */
static void pool_step(const char *what, int code, struct Moment start) {
    object(NULL);
    text("step", what);
    number("code", code);
    number("reserved", pool_attribute(5));
    number("used", pool_attribute(7));
    taken_since("taken", start);
    object_end();
}

static int ordered(Pointer *pointer, size_t size) {
    return CU(cuMemAllocAsync, (Pointer *, size_t, Handle), pointer, size, NULL);
}

static int ordered_free(Pointer pointer) { return CU(cuMemFreeAsync, (Pointer, Handle), pointer, NULL); }

void pools_section(void) {
    static const size_t sizes[] = {1, MIB, 10 * MIB, 33 * MIB, 100 * MIB};
    Pointer blocks[5];
    unsigned long long all = ~0ULL;
    begin();
    struct Moment start = moment();
    MUST(CU(cuDeviceGetDefaultMemPool, (Handle *, int), &pool, 0));
    list("steps");
    pool_step("begin", 0, start);
    for (int i = 0; i < 5; i++)
        pool_step("allocate", ordered(&blocks[i], sizes[i]), start);
    for (int i = 0; i < 5; i++)
        pool_step("free", ordered_free(blocks[i]), start);
    pool_step("synchronise", CU(cuCtxSynchronize, (void)), start);
    pool_step("keep all", CU(cuMemPoolSetAttribute, (Handle, int, void *), pool, 4, &all), start);
    for (int i = 0; i < 5; i++)
        pool_step("allocate", ordered(&blocks[i], sizes[i]), start);
    for (int i = 0; i < 5; i++)
        pool_step("free", ordered_free(blocks[i]), start);
    pool_step("synchronise", CU(cuCtxSynchronize, (void)), start);
    pool_step("allocate again", ordered(&blocks[0], 50 * MIB), start);
    pool_step("trim to 0", CU(cuMemPoolTrimTo, (Handle, size_t), pool, 0), start);
    pool_step("free", ordered_free(blocks[0]), start);
    pool_step("synchronise", CU(cuCtxSynchronize, (void)), start);
    pool_step("trim to 0", CU(cuMemPoolTrimTo, (Handle, size_t), pool, 0), start);
    list_end();
}

static void step(const char *what, int code, struct Moment start) {
    object(NULL);
    text("step", what);
    number("code", code);
    taken_since("taken", start);
    object_end();
}

void contexts_section(void) {
    static const char LARGE[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                                ".visible .global .align 4 .b8 large[67108864];\n"
                                ".visible .entry touch() { ret; }\n";
    Handle contexts[3] = {0}, primary = NULL, module = NULL;
    MUST(CU(cuInit, (unsigned), 0));
    struct Moment start = moment();
    list("steps");
    step("init", 0, start);
    step("primary context", CU(cuDevicePrimaryCtxRetain, (Handle *, int), &primary, 0), start);
    MUST(CU(cuCtxSetCurrent, (Handle), primary));
    /* cuMemGetInfo answers from here on. */
    start = moment();
    for (int i = 0; i < 3; i++)
        step("another context", CU(cuCtxCreate_v2, (Handle *, unsigned, int), &contexts[i], 0, 0), start);
    for (int i = 2; i >= 0; i--)
        step("destroy it", CU(cuCtxDestroy_v2, (Handle), contexts[i]), start);
    MUST(CU(cuCtxSetCurrent, (Handle), primary));
    step("a small module", CU(cuModuleLoadData, (Handle *, const void *), &module, PTX), start);
    step("unload", CU(cuModuleUnload, (Handle), module), start);
    step("a module with 64 MiB", CU(cuModuleLoadData, (Handle *, const void *), &module, LARGE), start);
    step("unload", CU(cuModuleUnload, (Handle), module), start);
    step("stack of 64 KiB", CU(cuCtxSetLimit, (int, size_t), 0, 64 << 10), start);
    step("printf buffer of 64 MiB", CU(cuCtxSetLimit, (int, size_t), 1, 64 * MIB), start);
    step("heap of 256 MiB", CU(cuCtxSetLimit, (int, size_t), 2, 256 * MIB), start);
    step("release", CU(cuDevicePrimaryCtxRelease_v2, (int), 0), start);
    list_end();
}

static void graph_step(const char *what, int code, struct Moment start) {
    long long values[4];
    for (int i = 0; i < 4; i++) {
        unsigned long long value = 0;
        values[i] = CU(cuDeviceGetGraphMemAttribute, (int, int, void *), 0, i, &value) ? -1 : (long long)value;
    }
    object(NULL);
    text("step", what);
    number("code", code);
    number("used", values[0]);
    number("reserved", values[2]);
    taken_since("taken", start);
    object_end();
}

void graphs_section(void) {
    Handle stream = NULL, graph = NULL, instance = NULL;
    Pointer block = 0;
    begin();
    struct Moment start = moment();
    MUST(CU(cuStreamCreate, (Handle *, unsigned), &stream, 1));
    list("steps");
    graph_step("begin", CU(cuStreamBeginCapture_v2, (Handle, int), stream, 0), start);
    graph_step("allocate", CU(cuMemAllocAsync, (Pointer *, size_t, Handle), &block, 100 * MIB, stream), start);
    graph_step("free", CU(cuMemFreeAsync, (Pointer, Handle), block, stream), start);
    graph_step("end", CU(cuStreamEndCapture, (Handle, Handle *), stream, &graph), start);
    graph_step("instance", CU(cuGraphInstantiateWithFlags, (Handle *, Handle, Pointer), &instance, graph, 0), start);
    for (int i = 0; i < 2; i++) {
        graph_step("launch", CU(cuGraphLaunch, (Handle, Handle), instance, stream), start);
        graph_step("synchronise", CU(cuStreamSynchronize, (Handle), stream), start);
    }
    graph_step("destroy the instance", CU(cuGraphExecDestroy, (Handle), instance), start);
    graph_step("trim", CU(cuDeviceGraphMemTrim, (int), 0), start);
    graph_step("destroy the graph", CU(cuGraphDestroy, (Handle), graph), start);
    list_end();
}
