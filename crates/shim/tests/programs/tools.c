/* What a tool does with NVML, one command per argument. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int R;
typedef void *H;

int main(int count, char **words) {
    H library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) { printf("dlopen: %s\n", dlerror()); return 3; }
    R (*init)(void) = dlsym(library, "nvmlInit_v2");
    R (*get_count)(unsigned *) = dlsym(library, "nvmlDeviceGetCount_v2");
    R (*by_index)(unsigned, H *) = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    R (*by_uuid)(const char *, H *) = dlsym(library, "nvmlDeviceGetHandleByUUID");
    R (*get_index)(H, unsigned *) = dlsym(library, "nvmlDeviceGetIndex");
    R (*get_uuid)(H, char *, unsigned) = dlsym(library, "nvmlDeviceGetUUID");
    R (*memory)(H, unsigned long long *) = dlsym(library, "nvmlDeviceGetMemoryInfo");
    R (*memory_v2)(H, void *) = dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
    H device = NULL;
    for (int i = 1; i < count; i++) {
        if (!strcmp(words[i], "init")) printf("init=%d\n", init());
        else if (!strcmp(words[i], "count")) { unsigned n = 99; R c = get_count(&n); printf("count=%d %u\n", c, n); }
        else if (!strcmp(words[i], "at")) { R c = by_index((unsigned)atoi(words[++i]), &device); printf("at=%d\n", c); }
        else if (!strcmp(words[i], "of")) { R c = by_uuid(words[++i], &device); printf("of=%d\n", c); }
        else if (!strcmp(words[i], "index")) { unsigned n = 99; R c = get_index(device, &n); printf("index=%d %u\n", c, n); }
        else if (!strcmp(words[i], "uuid")) { char t[96] = ""; R c = get_uuid(device, t, 96); printf("uuid=%d %s\n", c, t); }
        else if (!strcmp(words[i], "memory")) {
            unsigned long long m[3] = {0};
            R c = memory(device, m);
            printf("memory=%d %llu %llu %llu\n", c, m[0], m[1], m[2]);
        } else if (!strcmp(words[i], "memory2")) {
            struct { unsigned version; unsigned long long total, reserved, free, used; } m = {0x02000028, 0, 0, 0, 0};
            R c = memory_v2(device, &m);
            printf("memory2=%d %llu %llu %llu %llu\n", c, m.total, m.reserved, m.free, m.used);
        } else if (!strcmp(words[i], "pause")) { char line[8]; printf("paused\n"); fflush(stdout); if (!fgets(line, 8, stdin)) return 4; }
        fflush(stdout);
    }
    return 0;
}
