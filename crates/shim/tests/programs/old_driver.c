/* A driver of a few functions, for roots in which no other one runs. It counts, and has memory without end. */
#include <stdint.h>
#include <string.h>

typedef int R;
static uint64_t next = 0x700000000;

R cuInit(unsigned flags) { return flags ? 1 : 0; }
R cuDriverGetVersion(int *version) { *version = 12000; return 0; }
R cuDeviceGetCount(int *count) { *count = 1; return 0; }
R cuDevicePrimaryCtxRetain(void **context, int device) { *context = &next; return device ? 101 : 0; }
R cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0; *active = 1; return device ? 101 : 0; }
R cuMemAlloc_v2(uint64_t *address, size_t bytes) { *address = next; next += bytes + 4096; return 0; }
R cuMemFree_v2(uint64_t address) { return address ? 0 : 1; }
R cuMemGetInfo_v2(size_t *bytes_free, size_t *total) { *bytes_free = *total = (size_t)8 << 30; return 0; }

R cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    (void)version, (void)flags;
    *function = strcmp(name, "cuMemAlloc") ? 0 : (void *)cuMemAlloc_v2;
    return *function ? 0 : 500;
}
