/* What the driver and NVML say of the card, and how long things take. */
#include "probe.h"

void driver_section(void) {
    char name[256] = "", words[256] = "";
    size_t total = 0;
    int version = 0, device = 0;
    MUST(CU(cuInit, (unsigned), 0));
    MUST(CU(cuDriverGetVersion, (int *), &version));
    MUST(CU(cuDeviceGet, (int *, int), &device, 0));
    MUST(CU(cuDeviceGetName, (char *, int, int), name, 256, device));
    MUST(CU(cuDeviceTotalMem_v2, (size_t *, int), &total, device));
    number("version", version);
    text("card", name);
    number("totalMemory", total);
    nvml_card();
    if (!NVML(nvmlSystemGetDriverVersion, (char *, unsigned), words, 256))
        text("driver", words);
    if (!NVML(nvmlSystemGetNVMLVersion, (char *, unsigned), words, 256))
        text("nvml", words);
    list("attributes");
    for (int attribute = 1; attribute <= 161; attribute++) {
        int value = 0, code = CU(cuDeviceGetAttribute, (int *, int, int), &value, attribute, device);
        list(NULL);
        number(NULL, attribute);
        number(NULL, code);
        number(NULL, code ? 0 : value);
        list_end();
    }
    list_end();
}

static void words(const char *name, unsigned count) {
    unsigned long long answer[64] = {0};
    int (*call)(Handle, void *) = (int (*)(Handle, void *))nvml_function(name);
    object(name);
    number("code", call ? call(nvml_card(), answer) : MISSING);
    list("words");
    for (unsigned i = 0; i < count; i++)
        number(NULL, ((unsigned *)answer)[i]);
    list_end();
    object_end();
}

void nvml_section(void) {
    static const char *const plain[] = {
        "nvmlDeviceGetIndex",          "nvmlDeviceGetMinorNumber",        "nvmlDeviceGetPersistenceMode",
        "nvmlDeviceGetComputeMode",    "nvmlDeviceGetDisplayMode",        "nvmlDeviceGetDisplayActive",
        "nvmlDeviceGetPowerUsage",     "nvmlDeviceGetPerformanceState",   "nvmlDeviceGetFanSpeed",
        "nvmlDeviceGetBrand",          "nvmlDeviceGetArchitecture",       "nvmlDeviceGetNumGpuCores",
        "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"};
    unsigned count = 0;
    begin();
    object("calls");
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        words(plain[i], 1);
    words("nvmlDeviceGetUtilizationRates", 2);
    object("processes");
    number("code with no room", NVML(nvmlDeviceGetComputeRunningProcesses_v3, (Handle, unsigned *, void *), nvml_card(),
                                     &count, NULL));
    number("count", count);
    object_end();
    object("sampled");
    count = 0;
    number("code with no room", NVML(nvmlDeviceGetProcessUtilization, (Handle, void *, unsigned *, Pointer), nvml_card(),
                                     NULL, &count, 0));
    object_end();
    object("card 99");
    Handle card = NULL;
    number("code", NVML(nvmlDeviceGetHandleByIndex_v2, (unsigned, Handle *), 99, &card));
    object_end();
    unsigned long long memory[4] = {0}, second[8] = {0};
    object("memory");
    number("code", NVML(nvmlDeviceGetMemoryInfo, (Handle, void *), nvml_card(), memory));
    number("total", memory[0]);
    *(unsigned *)second = 0x02000028;
    number("code2", NVML(nvmlDeviceGetMemoryInfo_v2, (Handle, void *), nvml_card(), second));
    number("total2", second[1]);
    number("reserved2", second[2]);
    object_end();
    object_end();
}

typedef int (*Launch)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **,
                      void **);

/* Device time of one kernel that spins for so many cycles, in ns, the median of nine. */
static long long spin_time(Launch launch, Handle spin, long long cycles) {
    long long times[9];
    Handle first = NULL, last = NULL;
    void *arguments[] = {&cycles};
    MUST(CU(cuEventCreate, (Handle *, unsigned), &first, 0));
    MUST(CU(cuEventCreate, (Handle *, unsigned), &last, 0));
    for (int i = 0; i < 9; i++) {
        float milliseconds = 0;
        MUST(CU(cuEventRecord, (Handle, Handle), first, NULL));
        MUST(launch(spin, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
        MUST(CU(cuEventRecord, (Handle, Handle), last, NULL));
        MUST(CU(cuEventSynchronize, (Handle), last));
        MUST(CU(cuEventElapsedTime, (float *, Handle, Handle), &milliseconds, first, last));
        times[i] = (long long)(milliseconds * 1e6);
    }
    for (int i = 1; i < 9; i++)
        for (int j = i; j > 0 && times[j - 1] > times[j]; j--) {
            long long other = times[j];
            times[j] = times[j - 1], times[j - 1] = other;
        }
    return times[4];
}

void timing_section(void) {
    enum { ROUNDS = 2000 };
    Handle module, nothing = NULL, spin = NULL;
    Launch launch = (Launch)driver_function("cuLaunchKernel");
    long long start = now_ns();
    begin();
    number("first context ns", now_ns() - start);
    module = load_ptx(PTX);
    MUST(CU(cuModuleGetFunction, (Handle *, Handle, const char *), &nothing, module, "nothing"));
    MUST(CU(cuModuleGetFunction, (Handle *, Handle, const char *), &spin, module, "spin"));
    list("spin ns");
    for (long long cycles = 1000; cycles <= 100000000; cycles *= 10)
        number(NULL, spin_time(launch, spin, cycles));
    list_end();
    start = now_ns();
    for (int i = 0; i < ROUNDS; i++)
        MUST(launch(nothing, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    number("launch ns", (now_ns() - start) / ROUNDS);
    MUST(CU(cuCtxSynchronize, (void)));
    start = now_ns();
    for (int i = 0; i < ROUNDS; i++) {
        Pointer block = 0;
        MUST(CU(cuMemAlloc_v2, (Pointer *, size_t), &block, 4096));
        MUST(CU(cuMemFree_v2, (Pointer), block));
    }
    number("allocation and free ns", (now_ns() - start) / ROUNDS);
    start = now_ns();
    for (int i = 0; i < ROUNDS; i++) {
        void *address = NULL;
        MUST(CU(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, int *), "cuMemAlloc", &address, 3020, 0,
                NULL));
    }
    number("look-up ns", (now_ns() - start) / ROUNDS);
}
