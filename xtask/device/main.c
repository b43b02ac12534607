/* The probe's sections by name, and what they share: finding functions, printing JSON, looking at memory. */
#include "probe.h"

#include <time.h>
#include <unistd.h>

static void *open_once(void **library, const char *name) {
    if (!*library)
        *library = dlopen(name, RTLD_NOW);
    if (!*library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return *library;
}

void *driver_function(const char *name) {
    static void *library;
    return dlsym(open_once(&library, "libcuda.so.1"), name);
}

void *nvml_function(const char *name) {
    static void *library;
    return dlsym(open_once(&library, "libnvidia-ml.so.1"), name);
}

void must(const char *what, int code) {
    if (!code)
        return;
    fflush(stdout);
    fprintf(stderr, "%s: %d\n", what, code);
    exit(3);
}

long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int first = 1;

static void key_of(const char *key) {
    printf("%s", first ? "" : ",");
    if (key)
        printf("\"%s\":", key);
    first = 0;
}

static void opened(const char *key, char bracket) {
    key_of(key);
    putchar(bracket);
    first = 1;
}

static void closed(char bracket) {
    putchar(bracket);
    first = 0;
}

void object(const char *key) { opened(key, '{'); }
void object_end(void) { closed('}'); }
void list(const char *key) { opened(key, '['); }
void list_end(void) { closed(']'); }

void number(const char *key, long long value) {
    key_of(key);
    printf("%lld", value);
}

void text(const char *key, const char *value) {
    key_of(key);
    putchar('"');
    for (; *value; value++)
        if (*value == '"' || *value == '\\')
            printf("\\%c", *value);
        else if ((unsigned char)*value < 32)
            printf("\\u%04x", *value);
        else
            putchar(*value);
    putchar('"');
}

Handle nvml_card(void) {
    static Handle card;
    unsigned char uuid[16];
    char name[64] = "GPU-";
    int device;
    if (card)
        return card;
    MUST(NVML(nvmlInit_v2, (void)));
    MUST(CU(cuDeviceGet, (int *, int), &device, 0));
    MUST(CU(cuDeviceGetUuid, (unsigned char *, int), uuid, device));
    for (int i = 0; i < 16; i++)
        sprintf(name + strlen(name), "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    MUST(NVML(nvmlDeviceGetHandleByUUID, (const char *, Handle *), name, &card));
    return card;
}

static long long process_memory(void) {
    struct {
        unsigned pid;
        unsigned long long used;
        unsigned gi, ci;
    } list[64];
    unsigned count = 64;
    if (NVML(nvmlDeviceGetComputeRunningProcesses_v3, (Handle, unsigned *, void *), nvml_card(), &count, list))
        return -1;
    for (unsigned i = 0; i < count; i++)
        if (list[i].pid == (unsigned)getpid())
            return list[i].used == ~0ULL ? -1 : (long long)list[i].used;
    return -1;
}

struct Moment moment(void) {
    struct Moment now = {-1, -1, -1};
    size_t free, total;
    unsigned long long memory[3];
    if (!CU(cuMemGetInfo_v2, (size_t *, size_t *), &free, &total))
        now.free = free;
    if (!NVML(nvmlDeviceGetMemoryInfo, (Handle, void *), nvml_card(), memory))
        now.device = memory[2];
    now.process = process_memory();
    return now;
}

void taken_since(const char *key, struct Moment before) {
    struct Moment now = moment();
    object(key);
    if (before.free >= 0 && now.free >= 0)
        number("info", before.free - now.free);
    number("device", now.device - before.device);
    if (now.process >= 0)
        number("process", now.process - (before.process < 0 ? 0 : before.process));
    object_end();
}

void begin(void) {
    Handle context;
    int device;
    MUST(CU(cuInit, (unsigned), 0));
    MUST(CU(cuDeviceGet, (int *, int), &device, 0));
    MUST(CU(cuDevicePrimaryCtxRetain, (Handle *, int), &context, device));
    MUST(CU(cuCtxSetCurrent, (Handle), context));
}

const char PTX[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                   ".visible .entry nothing() { ret; }\n"
                   ".visible .entry spin(.param .u64 cycles)\n{\n"
                   ".reg .pred %more;\n.reg .u64 %start, %now, %gone, %limit;\n"
                   "ld.param.u64 %limit, [cycles];\nmov.u64 %start, %clock64;\nagain:\n"
                   "mov.u64 %now, %clock64;\nsub.u64 %gone, %now, %start;\n"
                   "setp.lt.u64 %more, %gone, %limit;\n@%more bra again;\nret;\n}\n";

Handle load_ptx(const char *source) {
    Handle module = NULL;
    MUST(CU(cuModuleLoadData, (Handle *, const void *), &module, source));
    return module;
}

int main(int count, char **arguments) {
    const char *section = count > 1 ? arguments[1] : "";
    static const struct {
        const char *name;
        void (*run)(void);
    } sections[] = {{"driver", driver_section}, {"bytes", bytes_section},   {"errors", errors_section},
                    {"pools", pools_section},   {"contexts", contexts_section}, {"graphs", graphs_section},
                    {"nvml", nvml_section},     {"timing", timing_section}};
    object(NULL);
    if (!strcmp(section, "resolver") && count == 3) {
        resolver_section(arguments[2]);
    } else if (!strcmp(section, "limit") && count == 5) {
        limit_section(arguments[2], strtoull(arguments[3], NULL, 10), strtoull(arguments[4], NULL, 10));
    } else {
        size_t i = 0, known = sizeof sections / sizeof *sections;
        while (i < known && strcmp(section, sections[i].name))
            i++;
        if (i == known) {
            fprintf(stderr, "usage: probe SECTION | probe resolver NAMES | probe limit FAMILY STEP MOST\n");
            return 64;
        }
        sections[i].run();
    }
    object_end();
    putchar('\n');
    return 0;
}
