/* Takes memory through several families, says what the driver and NVML show of it, and waits for its input to end. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint64_t P;
typedef void *H;
#define CALL(library, name, types, ...) (((int (*) types)dlsym(library, name)) __VA_ARGS__)
#define MIB (1ull << 20)

struct location { unsigned kind; int number; };
struct properties { unsigned kind, handles; struct location location; void *security; uint64_t flags; };
struct shape { size_t width, height; unsigned format, channels; };
struct memory { uint64_t total, free, used; };
struct memory_v2 { unsigned version; uint64_t total, reserved, free, used; };
struct process { unsigned pid; uint64_t used; unsigned instances[2]; };

int main(void) {
    H driver = dlopen("libcuda.so.1", RTLD_NOW), nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW), context, device;
    P piece;
    size_t free, total, whole;
    const struct properties on_card = {1, 0, {1, 0}, NULL, 0};
    const struct shape shape = {1024, 4096, 0x20, 1};
    int code = CALL(driver, "cuInit", (unsigned), (0));
    code |= CALL(driver, "cuDevicePrimaryCtxRetain", (H *, int), (&context, 0));
    code |= CALL(driver, "cuCtxSetCurrent", (H), (context));
    code |= CALL(driver, "cuMemAlloc_v2", (P *, size_t), (&piece, 100 * MIB));
    code |= CALL(driver, "cuMemAllocManaged", (P *, size_t, unsigned), (&piece, 7 * MIB, 1));
    code |= CALL(driver, "cuArrayCreate_v2", (P *, const struct shape *), (&piece, &shape));
    code |= CALL(driver, "cuMemAllocAsync", (P *, size_t, H), (&piece, 50 * MIB, NULL));
    code |= CALL(driver, "cuMemCreate", (P *, size_t, const struct properties *, uint64_t), (&piece, 30 * MIB, &on_card, 0));
    code |= CALL(driver, "cuCtxSynchronize", (void), ());
    code |= CALL(driver, "cuMemGetInfo_v2", (size_t *, size_t *), (&free, &total));
    code |= CALL(driver, "cuDeviceTotalMem_v2", (size_t *, int), (&whole, 0));
    struct memory memory;
    struct memory_v2 second = {.version = (2 << 24) | sizeof second};
    struct process list[8];
    unsigned count = 8;
    code |= CALL(nvml, "nvmlInit_v2", (void), ());
    code |= CALL(nvml, "nvmlDeviceGetHandleByIndex_v2", (unsigned, H *), (0, &device));
    code |= CALL(nvml, "nvmlDeviceGetMemoryInfo", (H, struct memory *), (device, &memory));
    code |= CALL(nvml, "nvmlDeviceGetMemoryInfo_v2", (H, struct memory_v2 *), (device, &second));
    code |= CALL(nvml, "nvmlDeviceGetComputeRunningProcesses_v3", (H, unsigned *, struct process *), (device, &count, list));
    if (code || count != 1) { printf("code %d, %u processes\n", code, count); return 1; }
    printf("%zu %zu %zu %zu %zu %zu %zu\n", total, total - free, whole, (size_t)memory.total, (size_t)memory.used,
           (size_t)second.used, (size_t)list[0].used);
    printf("%zu %zu\n", (size_t)(memory.total - memory.free), (size_t)(second.total - second.free));
    fflush(stdout);
    return getchar() == EOF ? 0 : 1;
}
