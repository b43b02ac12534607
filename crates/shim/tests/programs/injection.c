/* A profiler, as CUDA_INJECTION64_PATH brings one into a program: it calls the driver from inside cuInit. With
 * INJECTION_THREAD in the environment it does so from a thread that it waits for. What each call answered is printed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef int (*Function)();

static Function driver(const char *name) {
    static void *library;
    if (!library) library = dlopen("libcuda.so.1", RTLD_LAZY);
    return (Function)dlsym(library, name);
}

static void *look(void *unused) {
    (void)unused;
    static const unsigned char table[16] = {0x6b, 0xd5, 0xfb, 0x6c};
    const void *functions = NULL;
    void *context = NULL;
    unsigned long long address = 0;
    int count = -1;
    printf("table %d\n", driver("cuGetExportTable")(&functions, table));
    printf("init %d\n", driver("cuInit")(0));
    int code = driver("cuDeviceGetCount")(&count);
    printf("count %d %d\n", code, count);
    printf("retain %d\n", driver("cuDevicePrimaryCtxRetain")(&context, 0));
    printf("current %d\n", driver("cuCtxSetCurrent")(context));
    printf("alloc %d\n", driver("cuMemAlloc_v2")(&address, (size_t)1 << 20));
    printf("free %d\n", driver("cuMemFree_v2")(address));
    driver("cuCtxSetCurrent")(NULL);
    printf("release %d\n", driver("cuDevicePrimaryCtxRelease_v2")(0));
    fflush(stdout);
    return NULL;
}

int InitializeInjection(void) {
    pthread_t thread;
    printf("injected\n");
    if (!getenv("INJECTION_THREAD")) {
        look(NULL);
    } else if (pthread_create(&thread, NULL, look, NULL) == 0) {
        pthread_join(thread, NULL);
    }
    printf("went on\n");
    fflush(stdout);
    return 1;
}
