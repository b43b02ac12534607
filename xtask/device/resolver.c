/* What cuGetProcAddress answers: names, versions, flags. */
#include "probe.h"

static const char *const SUFFIXES[] = {"",      "_v2",      "_v3",      "_v4",      "_ptsz",    "_v2_ptsz",
                                       "_v3_ptsz", "_ptds", "_v2_ptds", "_v3_ptds"};

/* Which exported symbol an answer is; "own" where it is none of them. */
static const char *symbol_of(const char *name, const void *address) {
    static char symbol[300];
    if (!address)
        return "";
    for (size_t i = 0; i < sizeof SUFFIXES / sizeof *SUFFIXES; i++) {
        snprintf(symbol, sizeof symbol, "%s%s", name, SUFFIXES[i]);
        if (driver_function(symbol) == address)
            return symbol;
    }
    return "own";
}

static void ask(const char *name, int version, int flags) {
    char line[512];
    void *address = NULL;
    int status = -1;
    int code = CU(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, int *), name, &address, version, flags,
                  &status);
    snprintf(line, sizeof line, "%d/%d %d %d %s", version, flags, code, status, symbol_of(name, address));
    text(NULL, line);
}

void resolver_section(const char *names) {
    char line[256];
    int driver = 0;
    FILE *file = fopen(names, "r");
    if (!file) {
        fprintf(stderr, "cannot read %s\n", names);
        exit(2);
    }
    MUST(CU(cuDriverGetVersion, (int *), &driver));
    while (fgets(line, sizeof line, file)) {
        char *version = strchr(line, '\t');
        char *flags = version ? strchr(version + 1, '\t') : NULL;
        /* Every line stands for all flags: those for the per-thread stream repeat a name. */
        if (!flags || version[1] < '0' || version[1] > '9' || flags[1] != '0')
            continue;
        *version = 0;
        int asked = atoi(version + 1);
        char key[300];
        snprintf(key, sizeof key, "%s@%d", line, asked);
        list(key);
        for (int flags = 0; flags <= 2; flags++) {
            ask(line, asked, flags);
            ask(line, 0, flags);
            ask(line, asked - 10, flags);
            ask(line, driver, flags);
            ask(line, 99990, flags);
        }
        list_end();
    }
    fclose(file);
}
