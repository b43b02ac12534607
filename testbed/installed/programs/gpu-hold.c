/* A GPU program for tests in containers: gpu-hold MIB SECONDS
 *
 * Makes a context on card 0, takes MIB of device memory, says which card it has, and holds both for SECONDS or until a
 * signal ends it. Exit codes: 0 held to the end, 2 wrong arguments, 3 no driver, 4 a driver call failed (which, and its
 * code, are printed).
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef int (*call)();

static call entry(void *driver, const char *name)
{
    call found = (call)dlsym(driver, name);
    if (!found) {
        fprintf(stderr, "gpu-hold: the driver has no %s\n", name);
        exit(3);
    }
    return found;
}

static void check(const char *name, int code)
{
    if (code) {
        fprintf(stderr, "gpu-hold: %s answered %d\n", name, code);
        exit(4);
    }
}

int main(int count, char **arguments)
{
    if (count != 3) {
        fprintf(stderr, "usage: gpu-hold MIB SECONDS\n");
        return 2;
    }
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "gpu-hold: %s\n", dlerror());
        return 3;
    }
    int device = 0;
    void *context = NULL;
    unsigned long long memory = 0;
    unsigned char uuid[16] = {0};
    check("cuInit", entry(driver, "cuInit")(0));
    check("cuDeviceGet", entry(driver, "cuDeviceGet")(&device, 0));
    check("cuDevicePrimaryCtxRetain", entry(driver, "cuDevicePrimaryCtxRetain")(&context, device));
    check("cuCtxSetCurrent", entry(driver, "cuCtxSetCurrent")(context));
    check("cuMemAlloc", entry(driver, "cuMemAlloc_v2")(&memory, (size_t)atol(arguments[1]) << 20));
    check("cuDeviceGetUuid", entry(driver, "cuDeviceGetUuid")(uuid, device));
    printf("holding GPU-");
    for (int i = 0; i < 16; i++)
        printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    printf("\n");
    fflush(stdout);
    for (long left = atol(arguments[2]); left > 0; left--)
        sleep(1);
    return 0;
}
