/* What each family of device memory takes: by cuMemGetInfo, by NVML for the card and for this process. */
#include "probe.h"

#include <unistd.h>

enum { BYTE = 1, PINNED = 1, DEVICE = 1 };

struct Array {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};

struct Property {
    int type, handles, location, card;
    void *win32;
    unsigned char rest[8];
};

struct Block {
    Handle handle;
    Pointer pointer;
};

static int take_array(Handle *array, struct Array shape, unsigned levels) {
    shape.format = BYTE;
    shape.channels = 1;
    return levels ? CU(cuMipmappedArrayCreate, (Handle *, struct Array *, unsigned), array, &shape, levels)
                  : CU(cuArray3DCreate_v2, (Handle *, struct Array *), array, &shape);
}

static int take(const char *family, size_t size, struct Block *block) {
    size_t pitch;
    if (!strcmp(family, "plain"))
        return CU(cuMemAlloc_v2, (Pointer *, size_t), &block->pointer, size);
    if (!strcmp(family, "pitched"))
        return CU(cuMemAllocPitch_v2, (Pointer *, size_t *, size_t, size_t, unsigned), &block->pointer, &pitch, 100,
                  size / 100 + 1, 4);
    if (!strcmp(family, "managed"))
        return CU(cuMemAllocManaged, (Pointer *, size_t, unsigned), &block->pointer, size, 1);
    if (!strcmp(family, "ordered")) {
        int code = CU(cuMemAllocAsync, (Pointer *, size_t, Handle), &block->pointer, size, NULL);
        return code ? code : CU(cuCtxSynchronize, (void));
    }
    if (!strcmp(family, "array-1d"))
        return take_array(&block->handle, (struct Array){.width = size}, 0);
    if (!strcmp(family, "array-2d"))
        return take_array(&block->handle, (struct Array){.width = 4096, .height = size / 4096 + 1}, 0);
    if (!strcmp(family, "array-3d"))
        return take_array(&block->handle, (struct Array){.width = 256, .height = 256, .depth = size / 65536 + 1}, 0);
    if (!strcmp(family, "mipmapped"))
        return take_array(&block->handle, (struct Array){.width = 4096, .height = size / 4096 + 1}, 4);
    if (!strcmp(family, "physical")) {
        struct Property property = {.type = PINNED, .location = DEVICE};
        return CU(cuMemCreate, (Pointer *, size_t, struct Property *, Pointer), &block->pointer, size, &property, 0);
    }
    if (!strcmp(family, "host"))
        return CU(cuMemHostAlloc, (Handle *, size_t, unsigned), &block->handle, size, 0);
    return MISSING;
}

static int give(const char *family, struct Block *block) {
    if (!strcmp(family, "ordered")) {
        int code = CU(cuMemFreeAsync, (Pointer, Handle), block->pointer, NULL);
        return code ? code : CU(cuCtxSynchronize, (void));
    }
    if (!strcmp(family, "mipmapped"))
        return CU(cuMipmappedArrayDestroy, (Handle), block->handle);
    if (!strncmp(family, "array", 5))
        return CU(cuArrayDestroy, (Handle), block->handle);
    if (!strcmp(family, "physical"))
        return CU(cuMemRelease, (Pointer), block->pointer);
    if (!strcmp(family, "host"))
        return CU(cuMemFreeHost, (Handle), block->handle);
    return CU(cuMemFree_v2, (Pointer), block->pointer);
}

static const char *const FAMILIES[] = {"plain",    "pitched",  "managed",   "ordered",  "array-1d",
                                       "array-2d", "array-3d", "mipmapped", "physical", "host"};

static void one(const char *family, size_t size) {
    struct Block block = {0};
    struct Moment before = moment();
    int code = take(family, size, &block);
    object(NULL);
    text("family", family);
    number("size", size);
    number("code", code);
    if (!code) {
        taken_since("taken", before);
        number("freed", give(family, &block));
        taken_since("left", before);
    }
    object_end();
}

/* A thousand small blocks: how many share one that the driver takes. */
static void many(const char *family, size_t size) {
    static struct Block blocks[1000];
    struct Moment before = moment();
    int count = 0;
    while (count < 1000 && !take(family, size, &blocks[count]))
        count++;
    object(NULL);
    text("family", family);
    number("size", size);
    number("count", count);
    taken_since("taken", before);
    while (count > 0)
        give(family, &blocks[--count]);
    taken_since("left", before);
    object_end();
}

static void granularity(void) {
    struct Property property = {.type = PINNED, .location = DEVICE};
    size_t least = 0, best = 0;
    object("granularity");
    number("code", CU(cuMemGetAllocationGranularity, (size_t *, struct Property *, int), &least, &property, 0));
    number("minimum", least);
    number("code2", CU(cuMemGetAllocationGranularity, (size_t *, struct Property *, int), &best, &property, 1));
    number("recommended", best);
    object_end();
}

void bytes_section(void) {
    static const size_t sizes[] = {1,           4096,        65536,        1 << 20,          2 << 20,
                                   (2 << 20) + 1, 3 << 20, 16 << 20, (100 << 20) + 1, 512 << 20};
    begin();
    granularity();
    list("blocks");
    for (size_t family = 0; family < sizeof FAMILIES / sizeof *FAMILIES; family++)
        for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++)
            one(FAMILIES[family], sizes[size]);
    list_end();
    list("many");
    many("plain", 256);
    many("plain", 100 << 10);
    many("ordered", 100 << 10);
    many("array-2d", 4096);
    list_end();
}

void limit_section(const char *family, size_t step, size_t most) {
    struct Moment before;
    struct Block block;
    size_t got = 0;
    int code = 0;
    char byte;
    begin();
    before = moment();
    while (got < most && !(code = take(family, step, &block)))
        got += step;
    text("family", family);
    number("code", code);
    number("got", got);
    taken_since("taken", before);
    object_end();
    putchar('\n');
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    _exit(0);
}
