/* A library that is linked to the driver and takes device memory through it. */
#include <stddef.h>

extern int cuInit(unsigned);
extern int cuDeviceGet(int *, int);
extern int cuDevicePrimaryCtxRetain(void **, int);
extern int cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(unsigned long long *, size_t);

int take(size_t bytes) {
    int device, code;
    void *context;
    unsigned long long pointer;
    if ((code = cuInit(0)) || (code = cuDeviceGet(&device, 0)) || (code = cuDevicePrimaryCtxRetain(&context, device)) ||
        (code = cuCtxSetCurrent(context)))
        return code;
    return cuMemAlloc_v2(&pointer, bytes);
}
