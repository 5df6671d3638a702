/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A wire with faults: passes Ethernet frames between two datagram sockets and
 * loses, duplicates, reorders, delays and corrupts some of them on the way.
 *
 *   relay FD1 FD2 CONTROL [SET...]
 *
 * FD1 and FD2 are inherited ends of two socketpairs, whose other ends belong
 * to guest 1 and guest 2. CONTROL is the path of the Unix datagram socket that
 * takes requests; a SET is one request to begin with. Requests, one each
 * datagram, where FROM is 1, 2 or both, the sender of the frames meant:
 *
 *   status
 *   set FROM [KEY=NUMBER]...       see spec_keys; what is not named is 0
 *   blackout FROM NANOSECONDS      from now on; 0 ends it
 *
 * Each is answered by one JSON object: the state of both directions, or an
 * error. A set begins the direction anew: counters and frame numbers at 0.
 *
 * The fate of a direction's frame depends on nothing but its number, the seed
 * and the other settings, so that a run can be repeated. Delays count from the
 * moment that the relay took the frame. When a socket is full the relay
 * stops reading what would go there, as the wire itself would: it loses
 * only what it was asked to.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define FRAME_ROOM 69632        /* the largest frame of QEMU's netdevs */
#define MAX_FRAMES 16384        /* of one direction that wait in the relay */
#define BATCH 64
#define TURNS 64                /* batches before other work has its turn */
#define HOLD_NS 1000000         /* a frame to be overtaken waits no longer */
#define MAX_REQUEST 1024

/* The largest numbers of a request. */
#define ALWAYS UINT64_C(1000000000)
#define MAX_GAP 1000
#define MAX_DELAY_NS UINT64_C(10000000000)
#define MAX_BLACKOUT_NS UINT64_C(3600000000000)

#define ETH_HEADER 14
#define ETH_TYPE_IPV4 0x0800
#define ETH_TYPE_IPV6 0x86dd

/* Probabilities are in parts per billion, times in nanoseconds. */
struct spec {
    uint64_t seed;
    uint64_t loss;
    uint64_t dup;
    uint64_t reorder;
    uint64_t gap;               /* how many frames overtake a reordered one */
    uint64_t corrupt;
    uint64_t delay;
    uint64_t jitter;            /* at most so much more delay, evenly spread */
};

static const struct {
    const char *name;
    size_t offset;
    uint64_t max;
} spec_keys[] = {
    { "seed", offsetof(struct spec, seed), UINT64_MAX },
    { "loss", offsetof(struct spec, loss), ALWAYS },
    { "dup", offsetof(struct spec, dup), ALWAYS },
    { "reorder", offsetof(struct spec, reorder), ALWAYS },
    { "gap", offsetof(struct spec, gap), MAX_GAP },
    { "corrupt", offsetof(struct spec, corrupt), ALWAYS },
    { "delay", offsetof(struct spec, delay), MAX_DELAY_NS },
    { "jitter", offsetof(struct spec, jitter), MAX_DELAY_NS },
};

/* What has become of the frames; a frame may count several times. */
struct counters {
    uint64_t received;
    uint64_t forwarded;         /* duplicates included */
    uint64_t lost;
    uint64_t blackout;
    uint64_t duplicated;
    uint64_t reordered;
    uint64_t delayed;
    uint64_t corrupted;
    uint64_t undeliverable;     /* the receiver is gone */
    uint64_t full;              /* how often the receiver's socket was full */
};

static const struct {
    const char *name;
    size_t offset;
} counter_names[] = {
    { "received", offsetof(struct counters, received) },
    { "forwarded", offsetof(struct counters, forwarded) },
    { "lost", offsetof(struct counters, lost) },
    { "blackout", offsetof(struct counters, blackout) },
    { "duplicated", offsetof(struct counters, duplicated) },
    { "reordered", offsetof(struct counters, reordered) },
    { "delayed", offsetof(struct counters, delayed) },
    { "corrupted", offsetof(struct counters, corrupted) },
    { "undeliverable", offsetof(struct counters, undeliverable) },
    { "full", offsetof(struct counters, full) },
};

struct frame {
    uint8_t *data;
    uint32_t len;
    uint32_t copies;            /* that are still to be sent */
    uint64_t number;
    uint64_t due;               /* ns; when it leaves the hold or the heap */
    uint64_t turn;              /* order among frames due at the same time */
};

/* A ring of frames; the size is a power of two that is never exceeded. */
struct fifo {
    struct frame *ring[2 * MAX_FRAMES];
    uint32_t head, tail;
};

/* The frames that one guest sends, on their way to the other. */
struct direction {
    int from, to;
    bool blocked;               /* the receiver's socket was full */
    struct spec spec;
    struct counters count;
    uint64_t blackout_end;      /* ns */
    uint64_t turn;
    struct frame frames[MAX_FRAMES];
    struct frame *idle[MAX_FRAMES];
    uint32_t num_idle;
    struct fifo hold;           /* waiting to be overtaken */
    struct frame *heap[MAX_FRAMES];     /* delayed, the earliest first */
    uint32_t num_heap;
    struct fifo out;            /* ready to be sent */
};

/* The arguments of one system call for up to BATCH frames. */
struct batch {
    struct mmsghdr msgs[BATCH];
    struct iovec iov[BATCH];
};

/* Which throw of the dice a number is for. */
enum die { DIE_LOSS, DIE_DUP, DIE_REORDER, DIE_CORRUPT, DIE_PLACE, DIE_JITTER };

static struct direction directions[2];
static struct batch rx_batch, tx_batch;

static void __attribute__((noreturn, format(printf, 1, 2)))
die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fputs("relay: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * UINT64_C(1000000000) + ts.tv_nsec;
}

/* ------------------------------------------------------------------ queues */

static void fifo_push(struct fifo *q, struct frame *f)
{
    q->ring[q->tail++ % (2 * MAX_FRAMES)] = f;
}

static bool fifo_empty(const struct fifo *q)
{
    return q->head == q->tail;
}

static struct frame *fifo_first(const struct fifo *q)
{
    return q->ring[q->head % (2 * MAX_FRAMES)];
}

static bool earlier(const struct frame *a, const struct frame *b)
{
    return a->due != b->due ? a->due < b->due : a->turn < b->turn;
}

static void heap_push(struct direction *d, struct frame *f)
{
    uint32_t i = d->num_heap++, parent;

    for (; i; i = parent) {
        parent = (i - 1) / 2;
        if (!earlier(f, d->heap[parent])) {
            break;
        }
        d->heap[i] = d->heap[parent];
    }
    d->heap[i] = f;
}

static struct frame *heap_pop(struct direction *d)
{
    struct frame *first = d->heap[0], *last = d->heap[--d->num_heap];
    uint32_t i = 0, child;

    while ((child = 2 * i + 1) < d->num_heap) {
        if (child + 1 < d->num_heap &&
            earlier(d->heap[child + 1], d->heap[child])) {
            child++;
        }
        if (!earlier(d->heap[child], last)) {
            break;
        }
        d->heap[i] = d->heap[child];
        i = child;
    }
    d->heap[i] = last;
    return first;
}

static void frame_free(struct direction *d, struct frame *f)
{
    d->idle[d->num_idle++] = f;
}

/* ------------------------------------------------------------------- fates */

/* The output function of splitmix64: every bit depends on every bit of x. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t throw(const struct direction *d, const struct frame *f,
                      enum die which)
{
    uint64_t way = d - directions;

    return mix(mix(mix(d->spec.seed * 2 + way) + f->number) + which);
}

static bool happens(const struct direction *d, const struct frame *f,
                    enum die which, uint64_t chance)
{
    return chance && throw(d, f, which) % ALWAYS < chance;
}

/*
 * One bit of the packet; whether there was one to take. A real Ethernet
 * would discard the frame, which checksums of its own cover whole. Here those
 * of the packet must notice, so frames of protocols without any (ARP) and
 * the Ethernet header are spared.
 */
static bool corrupt(const struct direction *d, struct frame *f)
{
    uint64_t bit;
    int type;

    if (f->len <= ETH_HEADER) {
        return false;
    }
    type = f->data[12] << 8 | f->data[13];
    if (type != ETH_TYPE_IPV4 && type != ETH_TYPE_IPV6) {
        return false;
    }
    bit = throw(d, f, DIE_PLACE) % ((f->len - ETH_HEADER) * 8);
    f->data[ETH_HEADER + bit / 8] ^= 1 << bit % 8;
    return true;
}

static void emit(struct direction *d, struct frame *f)
{
    uint32_t i;

    for (i = 0; i < f->copies; i++) {
        fifo_push(&d->out, f);
    }
}

/* Past the hold: into the delay, or out at once. */
static void delay(struct direction *d, struct frame *f, uint64_t now)
{
    uint64_t time = d->spec.delay;

    if (d->spec.jitter) {
        time += throw(d, f, DIE_JITTER) % (d->spec.jitter + 1);
    }
    if (!time) {
        emit(d, f);
        return;
    }
    d->count.delayed++;
    f->due = now + time;
    f->turn = d->turn++;
    heap_push(d, f);
}

/* Decide what becomes of a frame that has just arrived. */
static void decide(struct direction *d, struct frame *f, uint64_t now)
{
    const struct spec *s = &d->spec;

    f->number = d->count.received++;
    f->copies = 1;
    if (now < d->blackout_end) {
        d->count.blackout++;
        frame_free(d, f);
    } else if (happens(d, f, DIE_LOSS, s->loss)) {
        d->count.lost++;
        frame_free(d, f);
    } else {
        if (happens(d, f, DIE_DUP, s->dup)) {
            d->count.duplicated++;
            f->copies = 2;
        }
        if (happens(d, f, DIE_CORRUPT, s->corrupt) && corrupt(d, f)) {
            d->count.corrupted++;
        }
        if (happens(d, f, DIE_REORDER, s->reorder)) {
            d->count.reordered++;
            f->due = now + HOLD_NS;
            fifo_push(&d->hold, f);
        } else {
            delay(d, f, now);
        }
    }
    /* Lost frames count among those that overtake: numbers alone decide. */
    while (!fifo_empty(&d->hold)) {
        f = fifo_first(&d->hold);
        if (f->number + s->gap > d->count.received - 1) {
            break;
        }
        d->hold.head++;
        delay(d, f, now);
    }
}

/* Let go what has waited long enough. */
static void expire(struct direction *d, uint64_t now)
{
    struct frame *f;

    while (!fifo_empty(&d->hold) && (f = fifo_first(&d->hold))->due <= now) {
        d->hold.head++;
        delay(d, f, now);
    }
    while (d->num_heap && d->heap[0]->due <= now) {
        emit(d, heap_pop(d));
    }
}

/* When something of a direction becomes due; UINT64_MAX: nothing waits. */
static uint64_t deadline(const struct direction *d)
{
    uint64_t when = UINT64_MAX;

    if (!fifo_empty(&d->hold)) {
        when = fifo_first(&d->hold)->due;
    }
    if (d->num_heap && d->heap[0]->due < when) {
        when = d->heap[0]->due;
    }
    return when;
}

/* --------------------------------------------------------------- the wire */

/* The first n frames of the queue are done with. */
static void sent(struct direction *d, int n)
{
    struct frame *f;

    for (; n; n--) {
        f = fifo_first(&d->out);
        d->out.head++;
        if (!--f->copies) {
            frame_free(d, f);
        }
    }
}

static void flush(struct direction *d)
{
    struct batch *b = &tx_batch;
    struct frame *f;
    int i, n;

    while (!d->blocked && !fifo_empty(&d->out)) {
        for (i = 0; i < BATCH && d->out.head + i != d->out.tail; i++) {
            f = d->out.ring[(d->out.head + i) % (2 * MAX_FRAMES)];
            b->iov[i] = (struct iovec) { f->data, f->len };
        }
        n = sendmmsg(d->to, b->msgs, i, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            d->count.forwarded += n;
            sent(d, n);
        } else if (errno == EAGAIN) {
            d->count.full++;
            d->blocked = true;
        } else if (errno != EINTR) {
            d->count.undeliverable++;
            sent(d, 1);
        }
    }
}

static bool wants_frames(const struct direction *d)
{
    return fifo_empty(&d->out) && d->num_idle;
}

/* Take one batch and pass on what is ready; whether more may be there. */
static bool turn(struct direction *d)
{
    struct batch *b = &rx_batch;
    struct frame *taken[BATCH];
    uint64_t now = now_ns();
    int i, n, room = 0;

    expire(d, now);
    flush(d);
    if (!wants_frames(d)) {
        return false;
    }
    for (; room < BATCH && d->num_idle; room++) {
        taken[room] = d->idle[--d->num_idle];
        b->iov[room] = (struct iovec) { taken[room]->data, FRAME_ROOM };
    }
    n = recvmmsg(d->from, b->msgs, room, MSG_DONTWAIT, NULL);
    /* In this order the next batch finds the buffers in the cache. */
    for (i = room; i > (n > 0 ? n : 0); i--) {
        frame_free(d, taken[i - 1]);
    }
    for (i = 0; i < n; i++) {
        taken[i]->len = b->msgs[i].msg_len;
        decide(d, taken[i], now);
    }
    flush(d);
    return n == room;
}

static void batch_init(struct batch *b)
{
    int i;

    for (i = 0; i < BATCH; i++) {
        b->msgs[i].msg_hdr.msg_iov = &b->iov[i];
        b->msgs[i].msg_hdr.msg_iovlen = 1;
    }
}

static void direction_init(struct direction *d, int from, int to)
{
    uint8_t *room;
    int i;

    /* Only what frames really fill takes memory. */
    room = mmap(NULL, (size_t)MAX_FRAMES * FRAME_ROOM, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) {
        die("no memory for frames: %s", strerror(errno));
    }
    d->from = from;
    d->to = to;
    for (i = 0; i < MAX_FRAMES; i++) {
        d->frames[i].data = room + (size_t)i * FRAME_ROOM;
        frame_free(d, &d->frames[i]);
    }
}

/* ----------------------------------------------------------------- control */

static void put_direction(FILE *out, const struct direction *d, uint64_t now)
{
    size_t i;

    fprintf(out, "{\"from\": %d, \"spec\": {", (int)(d - directions) + 1);
    for (i = 0; i < sizeof(spec_keys) / sizeof(*spec_keys); i++) {
        fprintf(out, "%s\"%s\": %" PRIu64, i ? ", " : "", spec_keys[i].name,
                *(uint64_t *)((char *)&d->spec + spec_keys[i].offset));
    }
    fprintf(out, "}, \"blackout_ns\": %" PRIu64 ", \"counters\": {",
            d->blackout_end > now ? d->blackout_end - now : 0);
    for (i = 0; i < sizeof(counter_names) / sizeof(*counter_names); i++) {
        fprintf(out, "%s\"%s\": %" PRIu64, i ? ", " : "", counter_names[i].name,
                *(uint64_t *)((char *)&d->count + counter_names[i].offset));
    }
    fprintf(out, "}, \"waiting\": %" PRIu32 "}", MAX_FRAMES - d->num_idle);
}

/* A JSON string, of text that anybody may have sent. */
static void put_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') {
            fputc('\\', out);
        }
        fputc(*text >= ' ' && *text <= '~' ? *text : '?', out);
    }
    fputc('"', out);
}

/* What is wrong with a request; good until the next one. */
__attribute__((format(printf, 1, 2)))
static const char *wrong(const char *format, ...)
{
    static char text[MAX_REQUEST + 128];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return text;
}

static bool parse_number(const char *text, uint64_t max, uint64_t *value)
{
    char *end;

    errno = 0;
    *value = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && *value <= max;
}

/* KEY=NUMBER into a spec; returns what was wrong. */
static const char *parse_setting(char *word, struct spec *spec)
{
    char *number = strchr(word, '=');
    size_t i;

    if (!number) {
        return wrong("'%s' is not KEY=NUMBER", word);
    }
    *number++ = '\0';
    for (i = 0; i < sizeof(spec_keys) / sizeof(*spec_keys); i++) {
        if (strcmp(word, spec_keys[i].name)) {
            continue;
        }
        if (!parse_number(number, spec_keys[i].max, (uint64_t *)
                          ((char *)spec + spec_keys[i].offset))) {
            return wrong("%s '%s' is not a number from 0 to %" PRIu64, word,
                         number, spec_keys[i].max);
        }
        return NULL;
    }
    return wrong("there is no setting '%s'", word);
}

/* Which directions a word means: a bit for each, 0 for none. */
static int parse_from(const char *word)
{
    return !word ? 0 : !strcmp(word, "1") ? 1 : !strcmp(word, "2") ? 2 :
           !strcmp(word, "both") ? 3 : 0;
}

/* Carry out a request, which is cut into words; returns what was wrong. */
static const char *obey(char *request, uint64_t now)
{
    char *verb = strtok(request, " "), *word;
    struct spec spec = { 0 };
    const char *error;
    uint64_t time;
    int from, i;

    if (verb && !strcmp(verb, "status")) {
        return NULL;
    }
    from = parse_from(strtok(NULL, " "));
    if (!verb || !from) {
        return "a request is status, set FROM ... or blackout FROM TIME";
    }
    word = strtok(NULL, " ");
    if (!strcmp(verb, "blackout")) {
        if (!word || !parse_number(word, MAX_BLACKOUT_NS, &time)) {
            return wrong("blackout '%s' is not a number from 0 to %" PRIu64,
                         word ? word : "", MAX_BLACKOUT_NS);
        }
        for (i = 0; i < 2; i++) {
            if (from & 1 << i) {
                directions[i].blackout_end = now + time;
            }
        }
        return NULL;
    }
    if (strcmp(verb, "set")) {
        return wrong("there is no request '%s'", verb);
    }
    for (; word; word = strtok(NULL, " ")) {
        error = parse_setting(word, &spec);
        if (error) {
            return error;
        }
    }
    for (i = 0; i < 2; i++) {
        if (from & 1 << i) {
            directions[i].spec = spec;
            directions[i].count = (struct counters) { 0 };
            /* Held frames have numbers of before: let them go now. */
            while (!fifo_empty(&directions[i].hold)) {
                delay(&directions[i], fifo_first(&directions[i].hold), now);
                directions[i].hold.head++;
            }
        }
    }
    return NULL;
}

static void answer(int control)
{
    struct sockaddr_un peer;
    socklen_t peer_len = sizeof(peer);
    char request[MAX_REQUEST + 1], *reply = NULL;
    uint64_t now = now_ns();
    const char *error;
    size_t len;
    ssize_t n;
    FILE *out;

    n = recvfrom(control, request, MAX_REQUEST, MSG_DONTWAIT,
                 (struct sockaddr *)&peer, &peer_len);
    if (n < 0) {
        return;
    }
    request[n] = '\0';
    error = obey(request, now);
    out = open_memstream(&reply, &len);
    if (!out) {
        die("no memory for an answer");
    }
    if (error) {
        fputs("{\"error\": ", out);
        put_string(out, error);
        fputc('}', out);
    } else {
        fputs("{\"directions\": [", out);
        put_direction(out, &directions[0], now);
        fputs(", ", out);
        put_direction(out, &directions[1], now);
        fputs("]}", out);
    }
    fclose(out);
    /* Who did not wait for the answer does not get it. */
    sendto(control, reply, len, MSG_DONTWAIT, (struct sockaddr *)&peer,
           peer_len);
    free(reply);
}

static int control_open(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (strlen(path) >= sizeof(address.sun_path)) {
        die("%s is too long for the name of a socket", path);
    }
    strcpy(address.sun_path, path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address))) {
        die("%s: %s", path, strerror(errno));
    }
    return fd;
}

/* -------------------------------------------------------------------- main */

static void wait_for_work(int control)
{
    struct pollfd fds[3] = {
        { directions[0].from, 0, 0 },
        { directions[1].from, 0, 0 },
        { control, POLLIN, 0 },
    };
    uint64_t when = UINT64_MAX, now, due;
    struct timespec left = { 0 };
    int i;

    for (i = 0; i < 2; i++) {
        struct direction *d = &directions[i];

        fds[i].events |= wants_frames(d) ? POLLIN : 0;
        fds[1 - i].events |= d->blocked ? POLLOUT : 0;
        due = deadline(d);
        when = due < when ? due : when;
    }
    now = now_ns();
    if (when > now && when != UINT64_MAX) {
        left.tv_sec = (when - now) / 1000000000;
        left.tv_nsec = (when - now) % 1000000000;
    }
    if (ppoll(fds, 3, when == UINT64_MAX ? NULL : &left, NULL) < 0) {
        if (errno != EINTR) {
            die("poll: %s", strerror(errno));
        }
        return;
    }
    for (i = 0; i < 2; i++) {
        /* A receiver that is gone is no longer full: sending will tell. */
        if (fds[1 - i].revents & (POLLOUT | POLLERR | POLLHUP)) {
            directions[i].blocked = false;
        }
    }
    if (fds[2].revents) {
        answer(control);
    }
}

static int parse_fd(const char *text)
{
    uint64_t fd;
    int type;
    socklen_t len = sizeof(type);

    if (!parse_number(text, INT32_MAX, &fd) ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) ||
        type != SOCK_DGRAM) {
        die("%s is no descriptor of a datagram socket", text);
    }
    return fd;
}

int main(int argc, char **argv)
{
    int ends[2], control, i, turns;
    const char *error;
    bool more;

    if (argc < 4) {
        fputs("usage: relay FD1 FD2 CONTROL [SET...]\n", stderr);
        return 2;
    }
    for (i = 0; i < 2; i++) {
        ends[i] = parse_fd(argv[1 + i]);
    }
    for (i = 0; i < 2; i++) {
        direction_init(&directions[i], ends[i], ends[1 - i]);
    }
    batch_init(&rx_batch);
    batch_init(&tx_batch);
    for (i = 4; i < argc; i++) {
        error = obey(argv[i], now_ns());
        if (error) {
            die("%s", error);
        }
    }
    control = control_open(argv[3]);
    for (;;) {
        turns = 0;
        do {
            more = turn(&directions[0]);
            more |= turn(&directions[1]);
        } while (more && ++turns < TURNS);
        wait_for_work(control);
    }
}
