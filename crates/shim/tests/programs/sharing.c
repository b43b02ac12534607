/* Memory that processes share: "sharing owner KIND PATH" makes 100 MiB and hands it to whoever connects to PATH,
 * "sharing taker KIND PATH" takes and uses it. KIND is "physical" (a descriptor) or "ipc" (a handle).
 *
 * Both say "ready=C" when they have the memory and wait for a line: "give" gives it back, "take N" takes N bytes of
 * memory of their own (they say "took=C"), "serve" hands it to one more taker, anything else ends them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

typedef int R;
typedef uint64_t P;
typedef void *H;

#define SIZE (100ull << 20)
#define CALL(name, types, ...) (((R(*) types)find(name)) __VA_ARGS__)

static H library;

static void *find(const char *name) {
    void *found = dlsym(library, name);
    if (!found) { printf("no %s\n", name); exit(3); }
    return found;
}

struct location { unsigned kind; int number; };
struct properties { unsigned kind, handles; struct location location; void *security; uint64_t flags; };
struct handle { char bytes[64]; };

static int physical;
static P memory, mapped;
static int descriptor = -1;
static struct handle handle;

static R map(void) {
    R answer = CALL("cuMemAddressReserve", (P *, size_t, size_t, P, uint64_t), (&mapped, SIZE, 0, 0, 0));
    return answer ? answer : CALL("cuMemMap", (P, size_t, size_t, P, uint64_t), (mapped, SIZE, 0, memory, 0));
}

static R make(void) {
    if (!physical) {
        R answer = CALL("cuMemAlloc_v2", (P *, size_t), (&memory, SIZE));
        return answer ? answer : CALL("cuIpcGetMemHandle", (struct handle *, P), (&handle, memory));
    }
    const struct properties wanted = {1, 1, {1, 0}, NULL, 0};
    R answer = CALL("cuMemCreate", (P *, size_t, const struct properties *, uint64_t), (&memory, SIZE, &wanted, 0));
    if (!answer) answer = CALL("cuMemExportToShareableHandle", (int *, P, unsigned, uint64_t), (&descriptor, memory, 1, 0));
    return answer ? answer : map();
}

static R take(void) {
    if (!physical)
        return CALL("cuIpcOpenMemHandle_v2", (P *, struct handle, unsigned), (&memory, handle, 1));
    R answer = CALL("cuMemImportFromShareableHandle", (P *, H, unsigned), (&memory, (H)(intptr_t)descriptor, 1));
    close(descriptor);
    return answer ? answer : map();
}

static R give(int owner) {
    if (!physical)
        return owner ? CALL("cuMemFree_v2", (P), (memory)) : CALL("cuIpcCloseMemHandle", (P), (memory));
    if (descriptor >= 0) close(descriptor);
    R answer = CALL("cuMemUnmap", (P, size_t), (mapped, SIZE));
    return answer ? answer : CALL("cuMemRelease", (P), (memory));
}

/* One packet: the handle, and beside it the descriptor where there is one. */
static void pass(int socket, int sends) {
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&handle, sizeof handle};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (physical) { message.msg_control = control; message.msg_controllen = sizeof control; }
    if (sends && physical) {
        struct cmsghdr *beside = CMSG_FIRSTHDR(&message);
        beside->cmsg_level = SOL_SOCKET;
        beside->cmsg_type = SCM_RIGHTS;
        beside->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(beside), &descriptor, sizeof descriptor);
    }
    ssize_t length = sends ? sendmsg(socket, &message, 0) : recvmsg(socket, &message, 0);
    if (length != sizeof handle) { perror("packet"); exit(5); }
    if (!sends && physical) memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
}

static void say(const char *what, R answer) { printf("%s=%d\n", what, answer); fflush(stdout); }

int main(int count, char **words) {
    H context;
    P own;
    char line[64];
    if (count != 4) return 2;
    int owner = !strcmp(words[1], "owner");
    physical = !strcmp(words[2], "physical");
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return 2;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, words[3], sizeof address.sun_path - 1);
    int meeting = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    R answer = CALL("cuInit", (unsigned), (0));
    if (!answer) answer = CALL("cuDevicePrimaryCtxRetain", (H *, int), (&context, 0));
    if (!answer) answer = CALL("cuCtxSetCurrent", (H), (context));
    if (owner) {
        if (!answer) answer = make();
        if (bind(meeting, (struct sockaddr *)&address, sizeof address) || listen(meeting, 8)) return 5;
    } else {
        if (connect(meeting, (struct sockaddr *)&address, sizeof address)) return 5;
        pass(meeting, 0);
        if (!answer) answer = take();
    }
    say("ready", answer);
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "give", 4)) say("gave", give(owner));
        else if (!strncmp(line, "take", 4)) say("took", CALL("cuMemAlloc_v2", (P *, size_t), (&own, strtoull(line + 5, NULL, 10))));
        else if (!strncmp(line, "serve", 5)) { int one = accept(meeting, NULL, NULL); pass(one, 1); close(one); say("served", 0); }
        else break;
    }
    return 0;
}
