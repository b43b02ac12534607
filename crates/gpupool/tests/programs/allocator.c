/* Takes 1 GiB of its card, and then a little more again and again, until its standard input closes. Exit status 0: no call
 * has failed. */
#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

typedef int (*Function)();

static void *driver;

static int failed(const char *name, int code) {
    if (code) fprintf(stderr, "allocator: %s answers %d\n", name, code);
    return code;
}

#define CALL(name, ...) failed(name, ((Function)dlsym(driver, name))(__VA_ARGS__))

int main(void) {
    void *context;
    unsigned long long kept, little;
    struct pollfd input = {.fd = 0, .events = POLLIN};
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver || CALL("cuInit", 0) || CALL("cuCtxCreate_v2", &context, 0, 0)) return 1;
    if (CALL("cuMemAlloc_v2", &kept, (size_t)1 << 30)) return 1;
    while (poll(&input, 1, 10) == 0)
        if (CALL("cuMemAlloc_v2", &little, (size_t)4096) || CALL("cuMemFree_v2", little)) return 1;
    return CALL("cuMemFree_v2", kept) || CALL("cuCtxDestroy_v2", context) ? 1 : 0;
}
