/* Takes a card and says what CUDA_VISIBLE_DEVICES is afterwards. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = dlsym(library, "cuInit");
    int (*retain)(void **, int) = dlsym(library, "cuDevicePrimaryCtxRetain");
    void *context;
    init(0);
    int code = retain(&context, 0);
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    printf("retain=%d %s\n", code, list ? list : "unset");
    return 0;
}
