/* Bad calls, and the code that the driver answers each with. A call that crashes or hangs is noted as such. */
#include "probe.h"

#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

static sigjmp_buf back;

static void caught(int signal) { siglongjmp(back, signal); }

/* The code, or the signal below zero. */
#define BAD(label, call)                                                                                               \
    do {                                                                                                               \
        volatile int code_ = sigsetjmp(back, 1);                                                                       \
        if (code_) {                                                                                                   \
            code_ = -code_;                                                                                            \
        } else {                                                                                                       \
            alarm(10);                                                                                                 \
            code_ = call;                                                                                              \
        }                                                                                                              \
        alarm(0);                                                                                                      \
        number(label, code_);                                                                                          \
    } while (0)

static Pointer pointer;
static Handle handle;
static size_t size, total;
static int integer;
static unsigned char bytes[256];

static void before_init(void) {
    BAD("init with flags", CU(cuInit, (unsigned), 1));
    BAD("count before init", CU(cuDeviceGetCount, (int *), &integer));
    BAD("device before init", CU(cuDeviceGet, (int *, int), &integer, 0));
    BAD("memory before init", CU(cuMemAlloc_v2, (Pointer *, size_t), &pointer, 4096));
    BAD("current before init", CU(cuCtxGetCurrent, (Handle *), &handle));
    BAD("error name before init", CU(cuGetErrorName, (int, const char **), 2, (const char **)&handle));
}

static void without_context(void) {
    MUST(CU(cuInit, (unsigned), 0));
    BAD("device 99", CU(cuDeviceGet, (int *, int), &integer, 99));
    BAD("device -1", CU(cuDeviceGet, (int *, int), &integer, -1));
    BAD("device into nothing", CU(cuDeviceGet, (int *, int), NULL, 0));
    BAD("count into nothing", CU(cuDeviceGetCount, (int *), NULL));
    BAD("name of device 99", CU(cuDeviceGetName, (char *, int, int), (char *)bytes, 256, 99));
    BAD("name of no length", CU(cuDeviceGetName, (char *, int, int), (char *)bytes, 0, 0));
    BAD("attribute 0", CU(cuDeviceGetAttribute, (int *, int, int), &integer, 0, 0));
    BAD("attribute 9999", CU(cuDeviceGetAttribute, (int *, int, int), &integer, 9999, 0));
    BAD("memory without a context", CU(cuMemAlloc_v2, (Pointer *, size_t), &pointer, 4096));
    BAD("info without a context", CU(cuMemGetInfo_v2, (size_t *, size_t *), &size, &total));
    BAD("free without a context", CU(cuMemFree_v2, (Pointer), 0x1000));
    BAD("synchronise without a context", CU(cuCtxSynchronize, (void)));
    BAD("device of no context", CU(cuCtxGetDevice, (int *), &integer));
    BAD("stream without a context", CU(cuStreamCreate, (Handle *, unsigned), &handle, 0));
    BAD("module without a context", CU(cuModuleLoadData, (Handle *, const void *), &handle, PTX));
    BAD("pop without a context", CU(cuCtxPopCurrent_v2, (Handle *), &handle));
    BAD("release what was not retained", CU(cuDevicePrimaryCtxRelease_v2, (int), 0));
    BAD("retain device 99", CU(cuDevicePrimaryCtxRetain, (Handle *, int), &handle, 99));
    BAD("name of error 9999", CU(cuGetErrorName, (int, const char **), 9999, (const char **)&handle));
}

static void memory(void) {
    Pointer twice = 0;
    BAD("nothing", CU(cuMemAlloc_v2, (Pointer *, size_t), &pointer, 0));
    BAD("into nothing", CU(cuMemAlloc_v2, (Pointer *, size_t), NULL, 4096));
    BAD("2^50 bytes", CU(cuMemAlloc_v2, (Pointer *, size_t), &pointer, 1ULL << 50));
    BAD("2^64-1 bytes", CU(cuMemAlloc_v2, (Pointer *, size_t), &pointer, ~0ULL));
    BAD("info into nothing", CU(cuMemGetInfo_v2, (size_t *, size_t *), NULL, NULL));
    BAD("free of 0", CU(cuMemFree_v2, (Pointer), 0));
    BAD("free of rubbish", CU(cuMemFree_v2, (Pointer), 0x1234));
    MUST(CU(cuMemAlloc_v2, (Pointer *, size_t), &twice, 4096));
    BAD("free inside", CU(cuMemFree_v2, (Pointer), twice + 256));
    BAD("free", CU(cuMemFree_v2, (Pointer), twice));
    BAD("free twice", CU(cuMemFree_v2, (Pointer), twice));
    BAD("pitch of element 3", CU(cuMemAllocPitch_v2, (Pointer *, size_t *, size_t, size_t, unsigned), &pointer, &size,
                                 100, 10, 3));
    BAD("pitch of no rows", CU(cuMemAllocPitch_v2, (Pointer *, size_t *, size_t, size_t, unsigned), &pointer, &size, 100,
                               0, 4));
    BAD("managed for nobody", CU(cuMemAllocManaged, (Pointer *, size_t, unsigned), &pointer, 4096, 0));
    BAD("managed for 7", CU(cuMemAllocManaged, (Pointer *, size_t, unsigned), &pointer, 4096, 7));
    BAD("managed nothing", CU(cuMemAllocManaged, (Pointer *, size_t, unsigned), &pointer, 0, 1));
    BAD("ordered nothing", CU(cuMemAllocAsync, (Pointer *, size_t, Handle), &pointer, 0, NULL));
    BAD("ordered 2^50 bytes", CU(cuMemAllocAsync, (Pointer *, size_t, Handle), &pointer, 1ULL << 50, NULL));
    BAD("ordered free of rubbish", CU(cuMemFreeAsync, (Pointer, Handle), 0x1234, NULL));
    BAD("array of nothing", CU(cuArray3DCreate_v2, (Handle *, size_t *), &handle, (size_t[5]){0, 0, 0, 1, 1}));
    BAD("host nothing", CU(cuMemHostAlloc, (Handle *, size_t, unsigned), &handle, 0, 0));
    BAD("host free of rubbish", CU(cuMemFreeHost, (Handle), (Handle)bytes));
    BAD("range of rubbish", CU(cuMemGetAddressRange_v2, (Pointer *, size_t *, Pointer), &pointer, &size, 0x1234));
    BAD("attribute of rubbish", CU(cuPointerGetAttribute, (void *, int, Pointer), bytes, 1, 0x1234));
    BAD("copy beyond", CU(cuMemcpyHtoD_v2, (Pointer, const void *, size_t), 0x1234, bytes, 16));
    BAD("handle of rubbish for others", CU(cuIpcGetMemHandle, (void *, Pointer), bytes, 0x1234));
    BAD("reserve nothing", CU(cuMemAddressReserve, (Pointer *, size_t, size_t, Pointer, Pointer), &pointer, 0, 0, 0, 0));
    BAD("reserve an odd size", CU(cuMemAddressReserve, (Pointer *, size_t, size_t, Pointer, Pointer), &pointer, 4097, 0,
                                  0, 0));
    BAD("release of rubbish", CU(cuMemRelease, (Pointer), 0x1234));
    BAD("unmap of rubbish", CU(cuMemUnmap, (Pointer, size_t), 0x200000, 0x200000));
    int property[8] = {1, 0, 1, 0, 0, 0, 0, 0};
    BAD("physical of an odd size", CU(cuMemCreate, (Pointer *, size_t, void *, Pointer), &pointer, 4097, property, 0));
    BAD("physical nothing", CU(cuMemCreate, (Pointer *, size_t, void *, Pointer), &pointer, 0, property, 0));
    property[3] = 99;
    BAD("physical on card 99", CU(cuMemCreate, (Pointer *, size_t, void *, Pointer), &pointer, 2 << 20, property, 0));
    property[0] = 77, property[3] = 0;
    BAD("physical of kind 77", CU(cuMemCreate, (Pointer *, size_t, void *, Pointer), &pointer, 2 << 20, property, 0));
}

typedef int (*Launch)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **,
                      void **);

static void work(void) {
    Handle module = load_ptx(PTX), function = NULL, stream = NULL, first = NULL, second = NULL, graph = NULL;
    Launch launch = (Launch)driver_function("cuLaunchKernel");
    float elapsed;
    BAD("rubbish for a module", CU(cuModuleLoadData, (Handle *, const void *), &handle, "this is no module"));
    BAD("bad PTX", CU(cuModuleLoadData, (Handle *, const void *), &handle, ".version 7.0\n.target sm_52\nrubbish\n"));
    BAD("no such kernel", CU(cuModuleGetFunction, (Handle *, Handle, const char *), &handle, module, "missing"));
    BAD("no such variable", CU(cuModuleGetGlobal_v2, (Pointer *, size_t *, Handle, const char *), &pointer, &size, module,
                               "missing"));
    MUST(CU(cuModuleGetFunction, (Handle *, Handle, const char *), &function, module, "nothing"));
    BAD("an empty grid", launch(function, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    BAD("an empty block", launch(function, 1, 1, 1, 0, 1, 1, 0, NULL, NULL, NULL));
    BAD("too many threads", launch(function, 1, 1, 1, 2048, 1, 1, 0, NULL, NULL, NULL));
    BAD("too high a grid", launch(function, 1, 70000, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    BAD("too much shared memory", launch(function, 1, 1, 1, 1, 1, 1, 1 << 30, NULL, NULL, NULL));
    BAD("no kernel", launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    BAD("stream flags 99", CU(cuStreamCreate, (Handle *, unsigned), &handle, 99));
    BAD("event flags 99", CU(cuEventCreate, (Handle *, unsigned), &handle, 99));
    MUST(CU(cuEventCreate, (Handle *, unsigned), &first, 0));
    MUST(CU(cuEventCreate, (Handle *, unsigned), &second, 0));
    BAD("time of events not recorded", CU(cuEventElapsedTime, (float *, Handle, Handle), &elapsed, first, second));
    MUST(CU(cuStreamCreate, (Handle *, unsigned), &stream, 1));
    BAD("end without a capture", CU(cuStreamEndCapture, (Handle, Handle *), stream, &graph));
    MUST(CU(cuStreamBeginCapture_v2, (Handle, int), stream, 0));
    BAD("synchronise in a capture", CU(cuStreamSynchronize, (Handle), stream));
    BAD("end of a broken capture", CU(cuStreamEndCapture, (Handle, Handle *), stream, &graph));
    MUST(CU(cuStreamBeginCapture_v2, (Handle, int), stream, 0));
    BAD("memory in a capture", CU(cuMemAlloc_v2, (Pointer *, size_t), &pointer, 4096));
    BAD("end of that capture", CU(cuStreamEndCapture, (Handle, Handle *), stream, &graph));
    BAD("capture of the default stream", CU(cuStreamBeginCapture_v2, (Handle, int), NULL, 0));
    BAD("instance of no graph", CU(cuGraphInstantiateWithFlags, (Handle *, Handle, Pointer), &handle, NULL, 0));
    BAD("limit 99", CU(cuCtxSetLimit, (int, size_t), 99, 1));
    BAD("limit 99 read", CU(cuCtxGetLimit, (size_t *, int), &size, 99));
    BAD("unload", CU(cuModuleUnload, (Handle), module));
}

void errors_section(void) {
    struct sigaction action = {.sa_handler = caught, .sa_flags = SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
    before_init();
    without_context();
    begin();
    memory();
    work();
}
