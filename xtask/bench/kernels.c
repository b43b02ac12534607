/*
 * Kernels without end, for `cargo xtask bench core`: launches one after the other and waits for them now and then, as
 * programs do that read results. Prints a line when the first launch has been made; ends with standard input.
 *
 *   kernels BLOCKS LAUNCHES-BETWEEN-WAITS
 */
#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef void *H;

static const char KERNEL[] =
    ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry nothing()\n{\n ret;\n}\n";

int main(int count, char **words)
{
    H library = dlopen("libcuda.so.1", RTLD_NOW), context, module, function;
    int (*init)(unsigned), (*retain)(H *, int), (*current)(H), (*load)(H *, const void *),
        (*find)(H *, H, const char *), (*synchronize)(void),
        (*launch)(H, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, H, void **, void **);
    if (count < 3 || !library)
        return 2;
#define FIND(variable, name) if (!(*(void **)&variable = dlsym(library, name))) return 2
    FIND(init, "cuInit");
    FIND(retain, "cuDevicePrimaryCtxRetain");
    FIND(current, "cuCtxSetCurrent");
    FIND(load, "cuModuleLoadData");
    FIND(find, "cuModuleGetFunction");
    FIND(synchronize, "cuCtxSynchronize");
    FIND(launch, "cuLaunchKernel");
    if (init(0) || retain(&context, 0) || current(context) || load(&module, KERNEL) || find(&function, module, "nothing"))
        return 1;
    unsigned blocks = (unsigned)atoi(words[1]);
    int between = atoi(words[2]);
    struct pollfd input = { 0, POLLIN, 0 };
    for (long number = 1;; number++) {
        if (launch(function, blocks, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL))
            return 1;
        if (number == 1) {
            puts("launching");
            fflush(stdout);
        }
        if (number % between == 0) {
            if (synchronize())
                return 1;
            if (poll(&input, 1, 0) > 0)
                return 0;
        }
    }
}
