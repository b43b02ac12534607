/* Prints what the driver says of every card, for the table of the tests' agent. Run without the shim. */
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); return 3; }
    int (*init)(unsigned) = dlsym(library, "cuInit");
    int (*version)(int *) = dlsym(library, "cuDriverGetVersion");
    int (*count)(int *) = dlsym(library, "cuDeviceGetCount");
    int (*name)(char *, int, int) = dlsym(library, "cuDeviceGetName");
    int (*uuid)(unsigned char *, int) = dlsym(library, "cuDeviceGetUuid");
    int (*total)(size_t *, int) = dlsym(library, "cuDeviceTotalMem_v2");
    int (*attribute)(int *, int, int) = dlsym(library, "cuDeviceGetAttribute");
    int cards = 0, driver = 0;
    if (init(0) || version(&driver) || count(&cards)) return 1;
    printf("driver %d\n", driver);
    for (int card = 0; card < cards; card++) {
        char text[96] = "";
        unsigned char id[16];
        size_t bytes = 0;
        name(text, 96, card);
        uuid(id, card);
        total(&bytes, card);
        printf("name %s\nuuid ", text);
        for (int i = 0; i < 16; i++) printf("%02x", id[i]);
        printf("\ntotal %zu\nattributes", bytes);
        for (int i = 0; i < 192; i++) {
            int value = 0;
            if (attribute(&value, i, card)) printf(" x"); else printf(" %d", value);
        }
        printf("\n");
    }
    return 0;
}
