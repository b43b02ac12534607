/* A hostile neighbour: it does to the node's agent, to its own pod's ledger and to the card what its first argument
 * says, for a while, and ends.
 *
 * Built with gcc; it meets the driver as any program does, by dlopen. `WAIT` milliseconds is how long a deed lasts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long long Address;

static const char *socket_path = "/run/gpupool/agent.sock";
static unsigned wait_ms = 5000;

static void rest(void) { usleep(wait_ms * 1000); }

/* ---- the agent's socket ---- */

static int call(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, socket_path, sizeof address.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) { close(fd); fd = -1; }
    return fd;
}

static size_t frame(unsigned char *out, unsigned kind) {
    memset(out, 0, 40);
    memcpy(out, "GPOL\1\0", 6);
    out[6] = (unsigned char)kind;
    if (kind != 1) return kind == 5 ? 40 : 8;
    memset(out + 32, 0xff, 4); /* no slot */
    return 40;
}

/* Sends a frame with `count` descriptors beside it; where the kernel refuses those, the frame alone. */
static void say(int fd, unsigned kind, const int *descriptors, size_t count) {
    unsigned char packet[40];
    struct iovec part = {packet, frame(packet, kind)};
    char space[CMSG_SPACE(253 * sizeof(int))];
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count) {
        memset(space, 0, sizeof space);
        message.msg_control = space;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(rights), descriptors, count * sizeof(int));
    }
    if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && count) say(fd, kind, NULL, 0);
}

/* One end of a TCP connection whose close() takes half a minute: it lingers, and nobody reads what it has sent. */
static int lingering(void) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof here;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 1)) return -1;
    getsockname(listener, (struct sockaddr *)&here, &length);
    if (connect(one, (struct sockaddr *)&here, sizeof here)) return -1;
    int other = accept(listener, NULL, NULL);
    (void)other; /* stays open, and is never read */
    struct linger linger = {1, 30};
    setsockopt(one, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    static char much[1 << 16];
    fcntl(one, F_SETFL, O_NONBLOCK);
    while (send(one, much, sizeof much, MSG_NOSIGNAL) > 0) {}
    fcntl(one, F_SETFL, 0);
    close(listener);
    return one;
}

static void descriptors(int what, size_t count) {
    int list[253];
    for (int turn = 0; turn < 8; turn++) {
        int fd = call();
        if (fd < 0) return;
        for (size_t i = 0; i < count; i++) list[i] = what < 0 ? lingering() : what;
        say(fd, turn % 2 ? 6 : 1, list, count);
        if (what < 0) for (size_t i = 0; i < count; i++) if (list[i] >= 0) close(list[i]);
        /* Some lie unread when the agent hangs up. */
        say(fd, 9, NULL, 0);
        say(fd, 1, NULL, 0);
        if (turn % 2) close(fd);
    }
    rest();
}

static void flood(void) {
    for (unsigned left = wait_ms; left > 0; left--) {
        int fd = call();
        if (fd >= 0) {
            for (unsigned i = 0; i < 50; i++) say(fd, i % 8, NULL, 0);
            close(fd);
        }
        usleep(1000);
    }
}

static void crowd(void) {
    for (int i = 0; i < 64; i++) {
        if (fork() == 0) {
            for (int j = 0; j < 64; j++) { int fd = call(); if (fd >= 0) say(fd, 1, NULL, 0); }
            rest();
            _exit(0);
        }
    }
    while (wait(NULL) > 0) {}
}

/* ---- the card ---- */

static void *driver;

static int take(Address bytes) {
    int (*init)(unsigned) = dlsym(driver, "cuInit");
    int (*retain)(void **, int) = dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*current)(void *) = dlsym(driver, "cuCtxSetCurrent");
    int (*allocate)(Address *, size_t) = dlsym(driver, "cuMemAlloc_v2");
    void *context;
    Address address;
    if (!init || init(0) || retain(&context, 0) || current(context)) return 0;
    return allocate(&address, bytes) == 0;
}

static int through_the_library(Address bytes) {
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    return driver && take(bytes);
}

/* Writes zeros over the pod's ledger wherever it is mapped, its first page aside, whose head must stay. */
static void clear_ledger(void) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char rights[5];
        if (!strstr(line, "memfd:") || sscanf(line, "%lx-%lx %4s", &from, &to, rights) != 3) continue;
        if (strncmp(rights, "rw-s", 4) == 0 && to - from > 8192) memset((void *)(from + 128), 0, 65536);
    }
    if (maps) fclose(maps);
}

static void hang_up(void) { for (int fd = 3; fd < 4096; fd++) close(fd); }

/* Keeps the card and says that it gave it back, in every way that there is. */
static void give_back(Address bytes) {
    if (!through_the_library(bytes)) return;
    clear_ledger();
    hang_up();
    int fd = call();
    say(fd, 1, NULL, 0);
    usleep(200000);
    say(fd, 6, NULL, 0);
    rest();
}

static void *hold(void *bytes) {
    usleep(100000);
    through_the_library(*(Address *)bytes);
    rest();
    _exit(0);
}

/* The first thread ends and the process does not: its state reads as a zombie's. */
static void first_thread_ends(Address bytes) {
    static Address kept;
    pthread_t thread;
    kept = bytes;
    if (pthread_create(&thread, NULL, hold, &kept) == 0) pthread_exit(NULL);
}

/* The driver in a namespace of its own: no preloaded library is in its way. */
static void past_the_library(Address bytes) {
    driver = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
    if (driver) take(bytes);
    rest();
}

/* Many small processes, each with a context, some of them orphans. */
static void many_processes(Address bytes) {
    for (int i = 0; i < 12; i++) {
        if (fork() == 0) { setsid(); through_the_library(bytes / 16); rest(); _exit(0); }
    }
    usleep(500000);
}

int main(int count, char **words) {
    const char *deed = count > 1 ? words[1] : "";
    Address bytes = count > 2 ? strtoull(words[2], NULL, 10) : 1 << 28;
    if (getenv("WAIT")) wait_ms = (unsigned)atoi(getenv("WAIT"));
    if (!strcmp(deed, "linger")) descriptors(-1, 2);
    else if (!strcmp(deed, "many")) descriptors(0, 253);
    else if (!strcmp(deed, "fifo")) {
        unlink("/tmp/fifo");
        if (mkfifo("/tmp/fifo", 0600)) return 3;
        descriptors(open("/tmp/fifo", O_RDWR), 4);
    }
    else if (!strcmp(deed, "flood")) flood();
    else if (!strcmp(deed, "crowd")) crowd();
    else if (!strcmp(deed, "give-back")) give_back(bytes);
    else if (!strcmp(deed, "first-thread")) first_thread_ends(bytes);
    else if (!strcmp(deed, "past")) past_the_library(bytes);
    else if (!strcmp(deed, "processes")) many_processes(bytes);
    else { fprintf(stderr, "no such deed: %s\n", deed); return 2; }
    return 0;
}
