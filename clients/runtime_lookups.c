/* runtime_lookups NAMES: starts the driver in the order in which NVIDIA's runtime library does: opens it by its soname,
 * finds cuGetProcAddress_v2 by dlsym and everything else through that, name by name with the versions and flags of
 * NAMES, then asks for the cards and what they are. After that it uses a card through what it found.
 *
 * What the runtime library asks beyond the public functions (its tables) is asked for as well; no driver but NVIDIA's
 * own has them, and this program goes on without. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*Resolve)(const char *, void **, int, uint64_t, int *);

struct Found {
    char name[256];
    int version;
    unsigned long flags;
    void *address;
};

static struct Found found[1024];
static int found_count;

static void stop(const char *what, int code) {
    fprintf(stderr, "%s: %d\n", what, code);
    exit(code ? code : 1);
}

/* Prints how a name was answered: its code, the status word, and whether an address came. */
static void look_up(Resolve resolve, const char *name, int version, unsigned long flags) {
    void *address = &found;
    int status = -1;
    int code = resolve(name, &address, version, flags, &status);
    printf("%s %d %lu: %d, status %d, %s\n", *name ? name : "(empty)", version, flags, code, status,
           address == &found ? "untouched" : address ? "found" : "nothing");
    /* The status may be asked for by nobody. */
    void *again = NULL;
    int other = resolve(name, &again, version, flags, NULL);
    if (other != code || (code == 0 && again != address))
        stop("asked twice, the answers differ", other);
    if (code == 0 && address && found_count < 1024) {
        struct Found *one = &found[found_count++];
        *one = (struct Found){.version = version, .flags = flags, .address = address};
        snprintf(one->name, sizeof one->name, "%s", name);
    }
}

static void look_up_all(Resolve resolve, const char *names) {
    char line[256];
    FILE *file = fopen(names, "r");
    if (!file)
        stop(names, 2);
    while (fgets(line, sizeof line, file)) {
        char *version = strchr(line, '\t');
        char *flags = version ? strchr(version + 1, '\t') : NULL;
        if (!flags || version[1] < '0' || version[1] > '9')
            continue;
        *version = *flags = 0;
        look_up(resolve, line, atoi(version + 1), strtoul(flags + 1, NULL, 10));
    }
    fclose(file);
}

/* The newest variant that was found for calls on the legacy default stream. */
static void *the(const char *name) {
    struct Found *best = NULL;
    for (int i = 0; i < found_count; i++)
        if (!strcmp(found[i].name, name) && found[i].flags == 0 && (!best || found[i].version > best->version))
            best = &found[i];
    if (!best)
        stop(name, 3);
    return best->address;
}

#define CALL(name, types, ...)                                                                                         \
    do {                                                                                                               \
        int (*call) types = (int (*) types)the(name);                                                                  \
        int code = call(__VA_ARGS__);                                                                                  \
        if (code)                                                                                                      \
            stop(name, code);                                                                                          \
    } while (0)

/* Tables that only NVIDIA's own driver has. */
static void ask_for_tables(void) {
    static const unsigned char tables[][16] = {
        {0xf8, 0xcf, 0xf9, 0x51, 0x21, 0x46, 0x8b, 0x4e, 0xb9, 0xe2, 0xfb, 0x46, 0x9e, 0x7c, 0x0d, 0xd9},
        {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9},
    };
    int (*ask)(const void **, const void *) = (int (*)(const void **, const void *))the("cuGetExportTable");
    for (int i = 0; i < 2; i++) {
        const void *table = NULL;
        printf("table %d: %d\n", i, ask(&table, tables[i]));
    }
}

static void describe(int device) {
    char name[256] = "";
    unsigned char uuid[16] = {0};
    size_t total = 0;
    int card;
    CALL("cuDeviceGet", (int *, int), &card, device);
    CALL("cuDeviceGetName", (char *, int, int), name, sizeof name, card);
    CALL("cuDeviceTotalMem", (size_t *, int), &total, card);
    printf("card %d: %s, %zu bytes\n", device, name, total);
    for (int attribute = 1; attribute <= 143; attribute++) {
        int value = 0;
        int (*ask)(int *, int, int) = (int (*)(int *, int, int))the("cuDeviceGetAttribute");
        int code = ask(&value, attribute, card);
        printf("attribute %d: %d, %d\n", attribute, code, value);
    }
    CALL("cuDeviceGetUuid", (unsigned char *, int), uuid, card);
    for (int i = 0; i < 16; i++)
        printf("%02x", uuid[i]);
    printf("\n");
}

static void use(void) {
    enum { SIZE = 1 << 20 };
    static unsigned char there[SIZE], back[SIZE];
    void *context = NULL, *stream = NULL;
    unsigned long long memory = 0, more = 0;
    size_t free = 0, total = 0;
    for (int i = 0; i < SIZE; i++)
        there[i] = (unsigned char)(i * 7);
    CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, 0);
    CALL("cuCtxSetCurrent", (void *), context);
    CALL("cuMemGetInfo", (size_t *, size_t *), &free, &total);
    printf("a context leaves %s of %zu bytes\n", free < total ? "less" : "all", total);
    CALL("cuMemAlloc", (unsigned long long *, size_t), &memory, SIZE);
    CALL("cuMemcpyHtoD", (unsigned long long, const void *, size_t), memory, there, SIZE);
    CALL("cuMemcpyDtoH", (void *, unsigned long long, size_t), back, memory, SIZE);
    printf("there and back: %s\n", memcmp(there, back, SIZE) ? "not the same" : "the same");
    CALL("cuStreamCreate", (void **, unsigned), &stream, 1);
    CALL("cuMemAllocAsync", (unsigned long long *, size_t, void *), &more, SIZE, stream);
    CALL("cuMemFreeAsync", (unsigned long long, void *), more, stream);
    CALL("cuStreamSynchronize", (void *), stream);
    CALL("cuStreamDestroy", (void *), stream);
    int (*allocate)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))the("cuMemAlloc");
    printf("more than there is: %d\n", allocate(&more, total + 1));
    CALL("cuMemFree", (unsigned long long), memory);
    CALL("cuDevicePrimaryCtxRelease", (int), 0);
}

int main(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: runtime_lookups NAMES\n");
        return 64;
    }
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        stop(dlerror(), 2);
    int (*version)(int *) = (int (*)(int *))dlsym(library, "cuDriverGetVersion");
    Resolve resolve = (Resolve)dlsym(library, "cuGetProcAddress_v2");
    int number = 0, cards = 0, mode = 0;
    if (!version || !resolve)
        stop("the driver is too old", 35);
    printf("version: %d, ", version(&number));
    printf("%d\n", number);
    look_up_all(resolve, arguments[1]);
    ask_for_tables();
    CALL("cuInit", (unsigned), 0);
    CALL("cuModuleGetLoadingMode", (int *), &mode);
    CALL("cuDeviceGetCount", (int *), &cards);
    printf("loading mode %d, %d cards\n", mode, cards);
    for (int device = 0; device < cards; device++)
        describe(device);
    use();
    return 0;
}
