/* Asks cuGetProcAddress as the lines of its input say, and prints what it answers: code, status, and which of the
 * functions of that name it gave, known by what the loader finds under the same name. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int (*GetV1)(const char *, void **, int, uint64_t);
typedef int (*Get)(const char *, void **, int, uint64_t, int *);

static const char *const versions[] = {"", "_v2", "_v3", "_v4", "_v5"};
static const char *const streams[] = {"", "_ptds", "_ptsz"};

static const char *which(void *library, const char *base, void *found, char *name) {
    if (!found) return "nothing";
    for (unsigned v = 0; v < 5; v++)
        for (unsigned s = 0; s < 3; s++) {
            snprintf(name, 160, "%s%s%s", base, versions[v], streams[s]);
            if (dlsym(library, name) == found) return name;
        }
    return "another";
}

int main(int count, char **words) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library || count < 2) return 3;
    void *get = dlsym(library, words[1]);
    if (!get) { printf("no %s\n", words[1]); return 0; }
    int old = !strcmp(words[1], "cuGetProcAddress"), version;
    unsigned long long flags;
    char base[128], name[160];
    while (scanf("%127s %d %llu", base, &version, &flags) == 3) {
        void *found = &found;
        int status = -7;
        int code = old ? ((GetV1)get)(base, &found, version, flags) : ((Get)get)(base, &found, version, flags, &status);
        printf("%s %d %llu: %d %d %s\n", base, version, flags, code, status, which(library, base, found, name));
    }
    return 0;
}
