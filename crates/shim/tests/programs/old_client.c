/* What a program does with that driver, found in every way that an old glibc has. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <stdint.h>
#include <stdio.h>

typedef int R;

int main(void) {
    printf("glibc %s\n", gnu_get_libc_version());
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) { printf("%s\n", dlerror()); return 3; }
    R (*init)(unsigned) = dlsym(library, "cuInit");
    R (*count)(int *) = dlsym(library, "cuDeviceGetCount");
    R (*retain)(void **, int) = dlsym(library, "cuDevicePrimaryCtxRetain");
    R (*get)(const char *, void **, int, uint64_t) = dlsym(library, "cuGetProcAddress");
    R (*alloc)(uint64_t *, size_t) = NULL, (*info)(size_t *, size_t *) = dlsym(library, "cuMemGetInfo_v2");
    void *context = NULL;
    uint64_t address = 0;
    size_t left = 0, total = 0;
    int n = 0;
    printf("init=%d\n", init(0));
    printf("count=%d", count(&n));
    printf(" %d\n", n);
    printf("retain=%d\n", retain(&context, 0));
    printf("get=%d\n", get("cuMemAlloc", (void **)&alloc, 12000, 0));
    printf("alloc=%d\n", alloc(&address, 1000));
    printf("too much=%d\n", alloc(&address, (size_t)6 << 30));
    printf("info=%d", info(&left, &total));
    printf(" %zu %zu\n", left, total);
    printf("next puts=%d\n", dlsym(RTLD_NEXT, "puts") != NULL);
    printf("default puts=%d\n", dlsym(RTLD_DEFAULT, "puts") == (void *)puts);
    printf("version=%d\n", dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.14") != NULL);
    printf("nothing=%d\n", dlsym(library, "cuNoSuchThing") != NULL);
    return 0;
}
