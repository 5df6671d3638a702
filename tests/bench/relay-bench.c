/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the impairing relay costs: frames a second from one process to another
 * over a socketpair, as between two QEMUs, and the same through the relay.
 *
 *   relay-bench RELAY [FRAMES [BYTES]]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FRAME_ROOM 69632
#define SOCKET_BYTES (4 << 20)  /* as wire.py has it */
#define RUNS 3                  /* the best of them: others only slow it down */

/* Of one run, in nanoseconds a frame. */
struct result {
    double time;
    double cpu[3];              /* sender, receiver, relay */
};

static const char *relay_path;
static unsigned long frames = 300000;
static size_t frame_bytes = 4096 + 58 + 2;      /* a full RoCEv2 packet */

static void check(bool good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1e9 + ts.tv_nsec;
}

static void make_pair(int fds[2])
{
    int size = SOCKET_BYTES, i;

    check(!socketpair(AF_UNIX, SOCK_DGRAM, 0, fds), "socketpair");
    for (i = 0; i < 2; i++) {
        if (setsockopt(fds[i], SOL_SOCKET, SO_SNDBUFFORCE, &size,
                       sizeof(size))) {
            check(!setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &size,
                              sizeof(size)), "SO_SNDBUF");
        }
    }
}

static void wait_for(int fd, short event)
{
    struct pollfd p = { fd, event, 0 };

    check(poll(&p, 1, -1) == 1, "poll");
}

static void send_all(int fd)
{
    static char frame[FRAME_ROOM];
    unsigned long i;

    for (i = 0; i < frames; ) {
        if (send(fd, frame, frame_bytes, MSG_DONTWAIT) >= 0) {
            i++;
        } else {
            check(errno == EAGAIN, "send");
            wait_for(fd, POLLOUT);
        }
    }
}

static void receive_all(int fd)
{
    static char frame[FRAME_ROOM];
    unsigned long i;

    for (i = 0; i < frames; ) {
        if (recv(fd, frame, sizeof(frame), MSG_DONTWAIT) >= 0) {
            i++;
        } else {
            check(errno == EAGAIN, "recv");
            wait_for(fd, POLLIN);
        }
    }
}

static pid_t run(void (*function)(int fd), int fd)
{
    pid_t pid = fork();

    check(pid >= 0, "fork");
    if (!pid) {
        function(fd);
        _exit(0);
    }
    return pid;
}

/* Waits for a process; returns the processor time it took. */
static double reap(pid_t pid, bool killed)
{
    struct rusage usage;
    int status;

    check(wait4(pid, &status, 0, &usage) == pid, "wait4");
    if (killed ? !WIFSIGNALED(status) : status != 0) {
        fprintf(stderr, "relay-bench: a process failed\n");
        exit(1);
    }
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e9 +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e3;
}

static pid_t start_relay(int a, int b, const char *control, const char *set)
{
    char words[2][16];
    pid_t pid;

    snprintf(words[0], sizeof(words[0]), "%d", a);
    snprintf(words[1], sizeof(words[1]), "%d", b);
    pid = fork();
    check(pid >= 0, "fork");
    if (!pid) {
        execl(relay_path, relay_path, words[0], words[1], control, set, NULL);
        perror(relay_path);
        _exit(1);
    }
    return pid;
}

/* set: a request for the relay, NULL: no relay. */
static struct result measure(const char *set)
{
    char folder[] = "/tmp/relay-bench-XXXXXX", control[64];
    struct result r = { 0 };
    pid_t relay = 0, sender, receiver;
    int near[2], far[2], i;
    double began;

    make_pair(near);
    make_pair(far);
    if (set) {
        check(mkdtemp(folder) != NULL, folder);
        snprintf(control, sizeof(control), "%s/control", folder);
        relay = start_relay(near[1], far[1], control, set);
    }
    began = now();
    receiver = run(receive_all, set ? far[0] : near[1]);
    sender = run(send_all, near[0]);
    r.cpu[0] = reap(sender, false);
    r.cpu[1] = reap(receiver, false);
    r.time = now() - began;
    if (set) {
        kill(relay, SIGTERM);
        r.cpu[2] = reap(relay, true);
        unlink(control);
        rmdir(folder);
    }
    for (i = 0; i < 2; i++) {
        close(near[i]);
        close(far[i]);
    }
    r.time /= frames;
    for (i = 0; i < 3; i++) {
        r.cpu[i] /= frames;
    }
    return r;
}

static struct result best(const char *name, const char *set)
{
    struct result r = measure(set), other;
    int i;

    for (i = 1; i < RUNS; i++) {
        other = measure(set);
        if (other.time < r.time) {
            r = other;
        }
    }
    printf("%-28s %9.0f %8.0f %8.0f %8.0f %8.0f\n", name, 1e9 / r.time, r.time,
           r.cpu[0], r.cpu[1], r.cpu[2]);
    return r;
}

int main(int argc, char **argv)
{
    struct result wire, relay;

    if (argc < 2) {
        fputs("usage: relay-bench RELAY [FRAMES [BYTES]]\n", stderr);
        return 2;
    }
    relay_path = argv[1];
    frames = argc > 2 ? strtoul(argv[2], NULL, 0) : frames;
    frame_bytes = argc > 3 ? strtoul(argv[3], NULL, 0) : frame_bytes;
    check(frames > 0 && frame_bytes > 0 && frame_bytes <= FRAME_ROOM,
          "arguments");
    printf("%zu-byte frames              frames/s ns/frame      processor "
           "time, ns/frame\n%63s\n", frame_bytes, "sender receiver    relay");
    wire = best("the wire", NULL);
    relay = best("through the relay", "set both");
    /* Nothing is lost, so that as many frames arrive. */
    best("with reordering and delay",
         "set both reorder=20000000 delay=100000 seed=1");
    printf("added: %.2f us a frame, %.2f us of processor time\n",
           (relay.time - wire.time) / 1e3,
           (relay.cpu[0] + relay.cpu[1] + relay.cpu[2] - wire.cpu[0] -
            wire.cpu[1]) / 1e3);
    return 0;
}
