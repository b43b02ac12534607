/* Takes device memory through one family of calls, piece by piece until it is refused, and gives it back.
 *
 * families FAMILY BYTES MOST: after "ready" and a line on its input it takes at most MOST pieces of about BYTES each
 * and says "took=N code=C"; after a further line it gives all of them back and says "gave=C"; after a further one it
 * takes a single piece again and says "again=C". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int R;
typedef uint64_t P;
typedef void *H;

#define MOST 4096
#define MIB (1ull << 20)

static H library;

/* Calls a function of the driver by its name. */
#define CALL(name, types, ...) (((R(*) types)find(name)) __VA_ARGS__)

static void *find(const char *name) {
    void *found = dlsym(library, name);
    if (!found) { printf("no %s\n", name); exit(3); }
    return found;
}

static P pieces[MOST];
static P mapped[MOST];
static H stream, pool;
static char *code;

struct array2 { size_t width, height; unsigned format, channels; };
struct array3 { size_t width, height, depth; unsigned format, channels, flags; };
struct location { unsigned kind; int number; };
struct properties { unsigned kind, handles; struct location location; void *security; uint64_t flags; };
struct pool_properties { unsigned kind, handles; struct location location; void *security; size_t most; char rest[56]; };
struct access { struct location location; unsigned flags; };
struct node { struct pool_properties pool; const void *access; size_t accesses, bytes; P address; };

static const struct properties ON_CARD = {1, 0, {1, 0}, NULL, 0};

static R plain(int i, size_t n) { return CALL("cuMemAlloc_v2", (P *, size_t), (&pieces[i], n)); }
static R pitched(int i, size_t n) {
    size_t pitch;
    return CALL("cuMemAllocPitch_v2", (P *, size_t *, size_t, size_t, unsigned), (&pieces[i], &pitch, 500, n / 512, 4));
}
static R managed(int i, size_t n) { return CALL("cuMemAllocManaged", (P *, size_t, unsigned), (&pieces[i], n, 1)); }
static R free_plain(int i) { return CALL("cuMemFree_v2", (P), (pieces[i])); }

static R array(int i, size_t n) {
    struct array2 shape = {1024, n / 4096, 0x20, 1};
    return CALL("cuArrayCreate_v2", (P *, const struct array2 *), (&pieces[i], &shape));
}
static R solid(int i, size_t n) {
    struct array3 shape = {100, 100, n / 40000, 0x03, 1, 0};
    return CALL("cuArray3DCreate_v2", (P *, const struct array3 *), (&pieces[i], &shape));
}
static R free_array(int i) { return CALL("cuArrayDestroy", (P), (pieces[i])); }
static R levels(int i, size_t n) {
    struct array3 shape = {512, n / 4096, 0, 0x10, 4, 0};
    return CALL("cuMipmappedArrayCreate", (P *, const struct array3 *, unsigned), (&pieces[i], &shape, 5));
}
static R free_levels(int i) { return CALL("cuMipmappedArrayDestroy", (P), (pieces[i])); }

static R ordered(int i, size_t n) { return CALL("cuMemAllocAsync", (P *, size_t, H), (&pieces[i], n, stream)); }
static R own_thread(int i, size_t n) { return CALL("cuMemAllocAsync_ptsz", (P *, size_t, H), (&pieces[i], n, NULL)); }
static R pooled(int i, size_t n) {
    if (!pool) {
        struct pool_properties wanted = {1, 0, {1, 0}, NULL, 0, {0}};
        R made = CALL("cuMemPoolCreate", (H *, const struct pool_properties *), (&pool, &wanted));
        if (made) return made;
    }
    return CALL("cuMemAllocFromPoolAsync", (P *, size_t, H, H), (&pieces[i], n, pool, stream));
}
static R free_ordered(int i) { return CALL("cuMemFreeAsync", (P, H), (pieces[i], stream)); }
static R settle_ordered(void) {
    R answer = CALL("cuStreamSynchronize", (H), (stream));
    if (pool && !answer) answer = CALL("cuMemPoolTrimTo", (H, size_t), (pool, 0));
    return answer;
}

static R physical(int i, size_t n) {
    n = n / (2 * MIB) * (2 * MIB);
    return CALL("cuMemCreate", (P *, size_t, const struct properties *, uint64_t), (&pieces[i], n, &ON_CARD, 0));
}
static R free_physical(int i) { return CALL("cuMemRelease", (P), (pieces[i])); }
/* The handle goes at once: the mapping keeps the memory. */
static R virtual(int i, size_t n) {
    n = n / (2 * MIB) * (2 * MIB);
    R answer = physical(i, n);
    if (answer) return answer;
    answer = CALL("cuMemAddressReserve", (P *, size_t, size_t, P, uint64_t), (&mapped[i], n, 0, 0, 0));
    if (!answer) answer = CALL("cuMemMap", (P, size_t, size_t, P, uint64_t), (mapped[i], n, 0, pieces[i], 0));
    if (!answer) answer = free_physical(i);
    pieces[i] = n;
    return answer;
}
/* A handle that is fetched back keeps it too, beyond the mapping. */
static R retained(int i, size_t n) {
    P handle;
    R answer = virtual(i, n);
    if (answer) return answer;
    answer = CALL("cuMemRetainAllocationHandle", (P *, P), (&handle, mapped[i]));
    if (!answer) answer = CALL("cuMemUnmap", (P, size_t), (mapped[i], pieces[i]));
    pieces[i] = handle;
    return answer;
}
static R free_virtual(int i) { return CALL("cuMemUnmap", (P, size_t), (mapped[i], pieces[i])); }

/* A graph with one allocation that stays, launched once. */
static R graph_of(int i, H graph) {
    R answer = CALL("cuGraphInstantiateWithFlags", (P *, H, uint64_t), (&pieces[i], graph, 0));
    if (!answer) {
        answer = CALL("cuGraphLaunch", (P, H), (pieces[i], stream));
        if (answer) CALL("cuGraphExecDestroy", (P), (pieces[i]));
    }
    if (answer) CALL("cuGraphDestroy", (H), (graph));
    return answer;
}
static R graph(int i, size_t n) {
    struct node node = {{1, 0, {1, 0}, NULL, 0, {0}}, NULL, 0, n, 0};
    H made, added;
    R answer = CALL("cuGraphCreate", (H *, unsigned), (&made, 0));
    if (!answer) answer = CALL("cuGraphAddMemAllocNode", (H *, H, const H *, size_t, struct node *), (&added, made, NULL, 0, &node));
    mapped[i] = node.address;
    return answer ? answer : graph_of(i, made);
}
static R recorded(int i, size_t n) {
    H made;
    R answer = CALL("cuStreamBeginCapture_v2", (H, unsigned), (stream, 2));
    if (!answer) answer = CALL("cuMemAllocAsync", (P *, size_t, H), (&mapped[i], n, stream));
    R ended = CALL("cuStreamEndCapture", (H, H *), (stream, &made));
    if (!answer) answer = ended;
    return answer ? answer : graph_of(i, made);
}
static R free_graph(int i) { return CALL("cuMemFree_v2", (P), (mapped[i])); }
static R settle_graphs(void) { return CALL("cuDeviceGraphMemTrim", (int), (0)); }

static R context(int i, size_t n) {
    (void)n;
    return CALL("cuCtxCreate_v2", (P *, unsigned, int), (&pieces[i], 0, 0));
}
static R free_context(int i) { return CALL("cuCtxDestroy_v2", (P), (pieces[i])); }

static R green(int i, size_t n) {
    char resource[256] = {0};
    H wish;
    (void)n;
    R answer = CALL("cuDeviceGetDevResource", (int, void *, unsigned), (0, resource, 1));
    if (!answer) answer = CALL("cuDevResourceGenerateDesc", (H *, void *, unsigned), (&wish, resource, 1));
    return answer ? answer : CALL("cuGreenCtxCreate", (P *, H, int, unsigned), (&pieces[i], wish, 0, 1));
}
static R free_green(int i) { return CALL("cuGreenCtxDestroy", (P), (pieces[i])); }

/* Memory of another API is a file here. */
struct description { unsigned kind, padding; int descriptor[4]; uint64_t size; unsigned flags, reserved[16]; };
static R external(int i, size_t n) {
    int file = memfd_create("other", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)n)) exit(3);
    const struct description wanted = {.kind = 1, .descriptor = {file}, .size = n};
    R answer = CALL("cuImportExternalMemory", (P *, const struct description *), (&pieces[i], &wanted));
    if (answer) close(file);
    return answer;
}
static R free_external(int i) { return CALL("cuDestroyExternalMemory", (P), (pieces[i])); }

/* A sparse array takes nothing; what is mapped into it stays until it is destroyed, though its handle goes at once. */
struct tile {
    unsigned kind;
    P array;
    unsigned part, padding;
    struct { unsigned level, layer, offset[3], extent[3]; } box;
    unsigned operation, handle_kind;
    P memory;
    uint64_t offset;
    unsigned devices, flags, reserved[2];
};
static R sparse(int i, size_t n) {
    const struct array3 shape = {4096, n / (2 * MIB) * 128, 0, 0x03, 1, 0x40};
    P memory;
    R answer = CALL("cuArray3DCreate_v2", (P *, const struct array3 *), (&pieces[i], &shape));
    if (answer) return answer;
    n = n / (2 * MIB) * (2 * MIB);
    answer = CALL("cuMemCreate", (P *, size_t, const struct properties *, uint64_t), (&memory, n, &ON_CARD, 0));
    if (!answer) {
        struct tile tile = {0, pieces[i], 0, 0, {0, 0, {0, 0, 0}, {4096, (unsigned)(n / (2 * MIB) * 128), 1}}, 1, 0, memory, 0, 1, 0, {0, 0}};
        answer = CALL("cuMemMapArrayAsync", (struct tile *, unsigned, H), (&tile, 1, stream));
        R released = CALL("cuMemRelease", (P), (memory));
        if (!answer) answer = released;
    }
    if (answer) CALL("cuArrayDestroy", (P), (pieces[i]));
    return answer;
}

/* The heap of kernels, piece by piece larger. */
static R heap(int i, size_t n) { return CALL("cuCtxSetLimit", (int, size_t), (2, 8 * MIB + (i + 1) * n)); }
static R free_heap(int i) { (void)i; return CALL("cuCtxSetLimit", (int, size_t), (2, 8 * MIB)); }

/* Code with a variable of that size. */
static const char *ptx(size_t n) {
    if (!code && asprintf(&code, ".version 7.0\n.target sm_52\n.address_size 64\n.visible .global .align 4 .b8 room[%zu];\n"
        ".visible .entry nothing()\n{\n ret;\n}\n", n) < 0) exit(3);
    return code;
}
static R module(int i, size_t n) { return CALL("cuModuleLoadData", (P *, const char *), (&pieces[i], ptx(n))); }
static R free_module(int i) { return CALL("cuModuleUnload", (P), (pieces[i])); }

static const struct family {
    const char *name;
    R (*take)(int, size_t);
    R (*give)(int);
    R (*settle)(void);
} FAMILIES[] = {
    {"plain", plain, free_plain, NULL},
    {"pitched", pitched, free_plain, NULL},
    {"managed", managed, free_plain, NULL},
    {"array", array, free_array, NULL},
    {"array-3d", solid, free_array, NULL},
    {"mipmapped", levels, free_levels, NULL},
    {"stream-ordered", ordered, free_ordered, settle_ordered},
    {"stream-ordered-ptsz", own_thread, free_ordered, settle_ordered},
    {"pool", pooled, free_ordered, settle_ordered},
    {"physical", physical, free_physical, NULL},
    {"mapped", virtual, free_virtual, NULL},
    {"retained", retained, free_physical, NULL},
    {"graph", graph, free_graph, settle_graphs},
    {"captured-graph", recorded, free_graph, settle_graphs},
    {"context", context, free_context, NULL},
    {"external", external, free_external, NULL},
    {"sparse-array", sparse, free_array, NULL},
    {"green-context", green, free_green, NULL},
    {"heap", heap, free_heap, NULL},
    {"module", module, free_module, NULL},
};

static void wait_for_line(void) {
    char line[8];
    if (!fgets(line, sizeof line, stdin)) exit(4);
}

static void say(const char *what, R answer) { printf("%s=%d\n", what, answer); fflush(stdout); }

int main(int count, char **words) {
    H made;
    if (count != 4) return 2;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    const struct family *family = FAMILIES;
    const struct family *end = FAMILIES + sizeof FAMILIES / sizeof *FAMILIES;
    while (family < end && strcmp(family->name, words[1])) family++;
    size_t bytes = strtoull(words[2], NULL, 10);
    int most = atoi(words[3]), taken = 0;
    if (!library || family == end || most > MOST) return 2;
    R answer = CALL("cuInit", (unsigned), (0));
    if (!answer) answer = CALL("cuDevicePrimaryCtxRetain", (H *, int), (&made, 0));
    if (!answer) answer = CALL("cuCtxSetCurrent", (H), (made));
    if (!answer) answer = CALL("cuStreamCreate", (H *, unsigned), (&stream, 1));
    say("ready", answer);
    wait_for_line();
    answer = 0;
    while (taken < most && !(answer = family->take(taken, bytes))) taken++;
    printf("took=%d code=%d\n", taken, answer);
    fflush(stdout);
    wait_for_line();
    answer = 0;
    for (int i = 0; i < taken && !answer; i++) answer = family->give(i);
    if (!answer && family->settle) answer = family->settle();
    say("gave", answer);
    wait_for_line();
    say("again", family->take(0, bytes));
    wait_for_line();
    return 0;
}
