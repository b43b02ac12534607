/* What a tool does with NVML, one command per argument. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int R;
typedef void *H;
typedef struct { unsigned pid; unsigned long long memory; } InfoV1;
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu, compute; } Info;
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu, compute; unsigned long long secret; } Detail;
typedef struct { unsigned version, mode, count; Detail *list; } Details;
typedef struct { unsigned pid; unsigned long long time; unsigned busy[4]; } Sample;
typedef struct { unsigned long long time; unsigned pid, busy[6]; } SampleInfo;
typedef struct { unsigned version, count; unsigned long long since; SampleInfo *list; } SampleInfos;

/* Prints a list of processes as "what=code pid:bytes pid:bytes", the length asked first as NVML wants it. */
static void processes(H library, const char *name, H device) {
    union { InfoV1 one[64]; Info two[64]; } list;
    R (*get)(H, unsigned *, void *) = dlsym(library, name);
    unsigned n = 0;
    R code = get(device, &n, NULL);
    printf("%s=%d/%u", name + strlen("nvmlDeviceGet"), code, n);
    n = 64;
    code = get(device, &n, &list);
    printf(" %d", code);
    for (unsigned i = 0; i < n && !code; i++) {
        if (name[strlen(name) - 2] != 'v') printf(" %u:%llu", list.one[i].pid, list.one[i].memory);
        else printf(" %u:%llu:%d", list.two[i].pid, list.two[i].memory, (int)list.two[i].gpu);
    }
    printf("\n");
}

static void details(H library, unsigned mode, H device) {
    R (*get)(H, Details *) = dlsym(library, "nvmlDeviceGetRunningProcessDetailList");
    Detail list[64];
    Details all = {sizeof all | 1 << 24, mode, 0, NULL};
    R code = get(device, &all);
    printf("details=%d/%u", code, all.count);
    all.count = 64;
    all.list = list;
    code = get(device, &all);
    printf(" %d", code);
    for (unsigned i = 0; i < all.count && !code; i++) printf(" %u:%llu:%llu", list[i].pid, list[i].memory, list[i].secret);
    printf("\n");
}

/* Prints utilisation: of the card, then of each process by both calls. */
static void busy(H library, H device) {
    R (*rates)(H, unsigned *) = dlsym(library, "nvmlDeviceGetUtilizationRates");
    R (*samples)(H, Sample *, unsigned *, unsigned long long) = dlsym(library, "nvmlDeviceGetProcessUtilization");
    R (*infos)(H, SampleInfos *) = dlsym(library, "nvmlDeviceGetProcessesUtilizationInfo");
    unsigned both[2] = {999, 999}, n = 64;
    R code = rates(device, both);
    printf("busy=%d %u", code, both[0]);
    Sample list[64];
    code = samples(device, list, &n, 1);
    printf(" samples=%d", code);
    for (unsigned i = 0; i < n && !code; i++) printf(" %u:%u", list[i].pid, list[i].busy[0]);
    SampleInfo more[64];
    SampleInfos all = {sizeof all | 1 << 24, 64, 1, more};
    code = infos(device, &all);
    printf(" infos=%d", code);
    for (unsigned i = 0; i < all.count && !code; i++) printf(" %u:%u", more[i].pid, more[i].busy[0]);
    printf("\n");
}

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
        } else if (!strcmp(words[i], "list")) processes(library, words[++i], device);
        else if (!strcmp(words[i], "details")) details(library, (unsigned)atoi(words[++i]), device);
        else if (!strcmp(words[i], "busy")) busy(library, device);
        else if (!strcmp(words[i], "pause")) { char line[8]; printf("paused\n"); fflush(stdout); if (!fgets(line, 8, stdin)) return 4; }
        fflush(stdout);
    }
    return 0;
}
