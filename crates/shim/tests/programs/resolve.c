/* Finds functions in every way there is and prints what the resolvers answer, not where the functions lie: so the
 * output must be the same with and without the shim. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int (*Get)(const char *, void **, int, uint64_t, int *);

static void look(const char *how, void *found) { printf("%s %s %s\n", how, found ? "found" : "missing", dlerror() ? "error" : "fine"); }

int main(void) {
    dlerror();
    look("default before loading", dlsym(RTLD_DEFAULT, "cuInit"));
    look("default nvml before loading", dlsym(RTLD_DEFAULT, "nvmlDeviceGetCount_v2"));
    look("program before loading", dlsym(dlopen(NULL, RTLD_NOW), "cuMemAlloc_v2"));
    look("default puts", dlsym(RTLD_DEFAULT, "puts"));
    look("next puts", dlsym(RTLD_NEXT, "puts"));
    look("next cuInit before loading", dlsym(RTLD_NEXT, "cuInit"));
    look("next nonsense", dlsym(RTLD_NEXT, "cu_no_such_function"));
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    void *math = dlopen("libm.so.6", RTLD_NOW);
    look("default", dlsym(RTLD_DEFAULT, "cuInit"));
    look("next", dlsym(RTLD_NEXT, "cuInit"));
    look("handle", dlsym(library, "cuInit"));
    look("wrong handle", dlsym(math, "cuInit"));
    look("unknown", dlsym(library, "cuNoSuchThing"));
    look("version of no library", dlvsym(library, "cuInit", "NOPE_1.0"));
    look("libc version", dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.2.5"));
    look("next libc version", dlvsym(RTLD_NEXT, "memcpy", "GLIBC_2.14"));
    look("libc no version", dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_9.9"));
    look("old plain", dlsym(library, "cuDevicePrimaryCtxRelease"));
    printf("same by both ways %d\n", dlsym(library, "cuMemAlloc_v2") == dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    printf("not hooked %d\n", dlsym(library, "cuDriverGetVersion") == dlsym(RTLD_DEFAULT, "cuDriverGetVersion"));

    Get get = (Get)dlsym(library, "cuGetProcAddress_v2");
    static const struct { const char *name; int version; uint64_t flags; const char *symbol; } asked[] = {
        {"", 0, 0, NULL}, {"cuInit", 2000, 0, "cuInit"}, {"cuNoSuchThing", 12000, 0, NULL},
        {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"}, {"cuMemAlloc", 2000, 0, "cuMemAlloc"}, {"cuMemAlloc", 13000, 0, "cuMemAlloc_v2"},
        {"cuCtxCreate", 3020, 0, "cuCtxCreate_v2"}, {"cuCtxCreate", 11040, 0, "cuCtxCreate_v3"},
        {"cuCtxCreate", 12050, 0, "cuCtxCreate_v4"}, {"cuLaunchKernel", 4000, 0, "cuLaunchKernel"},
        {"cuLaunchKernel", 7000, 2, "cuLaunchKernel_ptsz"}, {"cuLaunchKernel", 7000, 1, "cuLaunchKernel"},
        {"cuMemFreeAsync", 11020, 2, "cuMemFreeAsync_ptsz"}, {"cuMemFreeAsync", 11020, 0, "cuMemFreeAsync"},
        {"cuMemAllocAsync", 11000, 0, NULL}, {"cuMemFree", 3020, 2, "cuMemFree_v2"},
        {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"}, {"cuGetProcAddress", 11030, 0, "cuGetProcAddress"},
        {"cuDeviceGetUuid", 11040, 0, "cuDeviceGetUuid_v2"}, {"cuDriverGetVersion", 2020, 0, "cuDriverGetVersion"},
        {"cuStreamSynchronize", 7000, 2, "cuStreamSynchronize_ptsz"}, {"cuGraphLaunch", 10000, 2, "cuGraphLaunch_ptsz"},
    };
    for (unsigned i = 0; i < sizeof asked / sizeof *asked; i++) {
        void *found = &found;
        int status = -7;
        int code = get(asked[i].name, &found, asked[i].version, asked[i].flags, &status);
        void *symbol = asked[i].symbol ? dlsym(library, asked[i].symbol) : NULL;
        printf("%s %d %d: code %d status %d, %s\n", asked[i].name, asked[i].version, (int)asked[i].flags, code, status,
               !found ? "nothing" : found == symbol ? "as by name" : "another");
    }
    void *found = NULL;
    printf("no status %d\n", get("cuInit", &found, 12000, 0, NULL));
    printf("no place %d\n", get("cuInit", NULL, 12000, 0, NULL));
    return 0;
}
