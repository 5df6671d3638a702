/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Two engines, nothing else: how fast the transport itself is, over frames and
 * over super-packets by reference. Figures are of one host thread that plays
 * both sides, and both guests.
 *
 * Frames come one by one, not in bursts as in QEMU: what one acknowledgement
 * for several messages saves would hide what a message costs.
 *
 * Each line of the output is a figure: link, operation, QPs, bytes, messages,
 * seconds, frames. The engines' clock is a count of steps, so that each run of
 * a fixed number of messages executes the same instructions: measured() is what
 * callgrind is told to look at.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver.h"
#include "vr_sp.h"

#define FRAME_ROOM 4400
#define QUEUE 1024              /* frames or super-packets on the way */
#define DEPTH 16                /* requests in flight; better one a QP … */
#define MAX_FLIGHT (64u << 20)  /* … but not more bytes than this */
#define STUCK_STEPS 5000000
#define CLOCK_EVERY 32
#define MEM (4u << 20)
#define IOVA 0x100000000ull

struct frame {
    size_t len;
    uint8_t data[FRAME_ROOM];
};

struct side {
    struct fakehost *h;
    struct drv *d;
    struct drv_cq cq;
    struct gmem mem;
    struct drv_mr mr;
    struct drv_qp *qp;
    struct side *peer;
    struct frame *frames;       /* to this side */
    struct vr_sp *sps;
    uint32_t head, num;
    bool full;
};

static struct side sides[2];
static uint32_t num_qps;
static uint64_t frames_total;
static uint64_t steps;          /* the engines' clock, us */

/* Of this processor: what else the host does takes no part in it. */
static uint64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t now_ns(void)
{
    return ++steps * 1000;
}

static bool frame_tx(void *opaque, const uint8_t *frame, size_t len)
{
    struct side *to = ((struct side *)opaque)->peer;
    struct frame *f;

    g_assert_cmpuint(to->num, <, QUEUE);
    g_assert_cmpuint(len, <=, FRAME_ROOM);
    f = &to->frames[(to->head + to->num++) % QUEUE];
    f->len = len;
    memcpy(f->data, frame, len);
    frames_total++;
    to->peer->full = to->num >= QUEUE - 1;
    return !to->peer->full;
}

static bool sp_send(void *opaque, const struct vr_sp *sp)
{
    struct side *to = ((struct side *)opaque)->peer;

    g_assert_cmpuint(to->num, <, QUEUE);
    to->sps[(to->head + to->num++) % QUEUE] = *sp;
    to->peer->full = to->num >= QUEUE - 1;
    return !to->peer->full;
}

static const struct vr_link_ops ref_ops = { .send = sp_send };

static void side_init(struct side *s, uint32_t id, bool ref)
{
    struct vr_config cfg;

    vr_config_init(&cfg);
    s->peer = &sides[!id];
    s->h = fh_new(&cfg, id);
    s->h->opaque = s;
    s->h->frame_tx = frame_tx;
    s->frames = g_new(struct frame, QUEUE);
    s->sps = g_new(struct vr_sp, QUEUE);
    /* Touched now: page faults are no part of the figures. */
    memset(s->frames, 0, QUEUE * sizeof(*s->frames));
    memset(s->sps, 0, QUEUE * sizeof(*s->sps));
    s->d = drv_new(s->h, id + 1);
    drv_cq_create(s->d, &s->cq, 16, NULL);
    gmem_init(&s->mem, s->h, MEM, 1, 21, 0);
    drv_mr_create(s->d, &s->mr, &s->mem, IOVA,
                  VROCE_ACCESS_LOCAL_WRITE | VROCE_ACCESS_REMOTE_WRITE |
                  VROCE_ACCESS_REMOTE_READ);
    s->qp = g_new0(struct drv_qp, num_qps);
    for (uint32_t i = 0; i < num_qps; i++) {
        const struct drv_qp_init init = {
            .type = VROCE_QPT_RC, .sq_log = 5, .rq_log = 5, .max_recv_sge = 1,
            .scq = &s->cq, .rcq = &s->cq,
        };

        drv_qp_create(s->d, &s->qp[i], &init);
    }
    if (ref) {
        vr_set_link_ops(s->h->e, &ref_ops, s);
    }
}

static void side_connect(struct side *s, uint32_t id)
{
    struct drv_conn c;

    drv_conn_init(&c);
    c.path_mtu = 5;
    drv_av(s->peer->d, !id + 1, 0, &c.av);
    for (uint32_t i = 0; i < num_qps; i++) {
        c.dest_qpn = s->peer->qp[i].qpn;
        drv_qp_connect(&s->qp[i], &c);
    }
}

static void side_fini(struct side *s)
{
    for (uint32_t i = 0; i < num_qps; i++) {
        drv_qp_destroy(&s->qp[i]);
    }
    drv_mr_destroy(&s->mr);
    gmem_fini(&s->mem);
    drv_cq_destroy(&s->cq);
    drv_free(s->d);
    fh_free(s->h);
    g_free(s->qp);
    g_free(s->frames);
    g_free(s->sps);
    memset(s, 0, sizeof(*s));
}

/* One thing that has to be done on this side; false: there is none. */
static bool side_step(struct side *s, bool ref)
{
    bool any = false;

    s->h->now = now_ns();
    if (s->h->kicked) {
        s->h->kicked = fh_run(s->h) || s->h->kicked;
        any = true;
    }
    for (uint32_t n = MIN(s->num, 64); n; n--) {
        uint32_t at = s->head;

        s->head = (s->head + 1) % QUEUE;
        s->num--;
        if (ref) {
            struct vr_sp sp = s->sps[at];

            fh_deliver(s->h, s->peer->h, &sp);
        } else {
            fh_receive(s->h, s->frames[at].data, s->frames[at].len);
        }
        any = true;
    }
    if (s->peer->full && s->num < QUEUE / 2) {
        s->peer->full = false;
        fh_tx_ready(s->peer->h);
    }
    return any;
}

static void post(uint8_t opcode, uint32_t qp, uint32_t len)
{
    const struct drv_wr wr = {
        .opcode = opcode, .flags = VROCE_WQE_SIGNALED, .num_sge = 1,
        .wr_id = qp, .sge[0] = { IOVA, len, sides[0].mr.key },
        .remote_addr = IOVA + (MEM / 2), .rkey = sides[1].mr.key,
    };
    const struct drv_wr recv = {
        .num_sge = 1, .sge[0] = { IOVA, len, sides[1].mr.key },
    };

    if (opcode == VROCE_WQE_SEND) {
        drv_post_recv(&sides[1].qp[qp], &recv);
    }
    if (!drv_post_send(&sides[0].qp[qp], &wr)) {
        g_error("send queue is full");
    }
    drv_ring(&sides[0].qp[qp]);
}

/* Requests go to the QPs in turn. */
static uint32_t next_qp;

/*
 * Send for ns, or that many messages, but no fewer than are in flight at a
 * time; returns how many.
 */
static uint64_t run(uint8_t opcode, uint32_t len, bool ref, uint64_t ns,
                    uint64_t messages)
{
    uint64_t posted = 0, done = 0, idle = 0, end = cpu_ns() + ns;
    uint64_t flight = MIN(MAX(DEPTH, num_qps), MAX(DEPTH, MAX_FLIGHT / len));
    bool more = true;
    struct vroce_cqe cqe;

    while (posted < flight) {
        sides[0].h->now = now_ns();
        post(opcode, next_qp++ % num_qps, len);
        posted++;
    }
    while (done < posted) {
        bool moved = side_step(&sides[0], ref);

        moved |= side_step(&sides[1], ref);
        idle = moved ? 0 : idle + 1;
        if (idle > STUCK_STEPS) {
            g_error("requests of %u bytes: nothing moves", len);
        }
        while (drv_poll(&sides[1].cq, &cqe)) {
            g_assert_cmpint(cqe.status, ==, VROCE_WCS_SUCCESS);
        }
        while (drv_poll(&sides[0].cq, &cqe)) {
            g_assert_cmpint(cqe.status, ==, VROCE_WCS_SUCCESS);
            /* A look at the clock is a system call. */
            if (messages || done % CLOCK_EVERY == 0) {
                more = messages ? posted < messages : cpu_ns() < end;
            }
            done++;
            if (more) {
                post(opcode, next_qp++ % num_qps, len);
                posted++;
            }
        }
    }
    return done;
}

/* What callgrind looks at; it finds the function by its name. */
uint64_t measured(uint8_t opcode, uint32_t len, bool ref, uint64_t ns,
                  uint64_t messages);
uint64_t __attribute__((noinline)) measured(uint8_t opcode, uint32_t len,
                                            bool ref, uint64_t ns,
                                            uint64_t messages)
{
    return run(opcode, len, ref, ns, messages);
}

static void measure(uint8_t opcode, const char *name, uint32_t len, bool ref,
                    double seconds, uint64_t messages)
{
    uint64_t start, done, frames;

    /* Once in vain: memory is touched for the first time, caches fill. */
    run(opcode, len, ref, 0, 1);
    frames = frames_total;
    start = cpu_ns();
    done = measured(opcode, len, ref, seconds * 1e9, messages);
    printf("%s %s %u %u %" G_GUINT64_FORMAT " %f %" G_GUINT64_FORMAT "\n",
           ref ? "ref" : "wire", name, num_qps, len, done,
           (cpu_ns() - start) / 1e9, frames_total - frames);
    fflush(stdout);
}

static const struct {
    uint8_t opcode;
    const char *name;
} ops[] = {
    { VROCE_WQE_WRITE, "WRITE" }, { VROCE_WQE_SEND, "SEND" },
    { VROCE_WQE_READ, "READ" },
};

static G_GNUC_NORETURN void usage(const char *program)
{
    fprintf(stderr, "usage: %s wire|ref QPS OP[,OP…] BYTES:AMOUNT[,…]\n"
            "OP is WRITE, SEND or READ; AMOUNT is of messages or, with a "
            "point, of seconds\n", program);
    exit(2);
}

static void measure_sizes(const char *program, uint32_t op, char **sizes,
                          bool ref)
{
    for (; *sizes; sizes++) {
        uint64_t len = g_ascii_strtoull(*sizes, NULL, 10);
        const char *amount = strchr(*sizes, ':');
        double seconds;         /* or messages */

        seconds = amount ? g_ascii_strtod(++amount, NULL) : 0;
        if (len < 1 || len > MEM / 2 || seconds <= 0) {
            usage(program);
        }
        if (strchr(amount, '.')) {
            measure(ops[op].opcode, ops[op].name, len, ref, seconds, 0);
        } else {
            measure(ops[op].opcode, ops[op].name, len, ref, 0, seconds);
        }
    }
}

int main(int argc, char **argv)
{
    g_auto(GStrv) names = NULL;
    g_auto(GStrv) sizes = NULL;
    bool ref;

    if (argc != 5 || (strcmp(argv[1], "wire") && strcmp(argv[1], "ref"))) {
        usage(argv[0]);
    }
    ref = !strcmp(argv[1], "ref");
    num_qps = g_ascii_strtoull(argv[2], NULL, 10);
    names = g_strsplit(argv[3], ",", -1);
    sizes = g_strsplit(argv[4], ",", -1);
    if (num_qps < 1 || num_qps > 10000) {
        fprintf(stderr, "'%s' is not a number of QPs from 1 to 10000\n",
                argv[2]);
        return 2;
    }
    side_init(&sides[0], 0, ref);
    side_init(&sides[1], 1, ref);
    side_connect(&sides[0], 0);
    side_connect(&sides[1], 1);
    for (char **name = names; *name; name++) {
        uint32_t op = 0;

        while (op < G_N_ELEMENTS(ops) && strcmp(ops[op].name, *name)) {
            op++;
        }
        if (op == G_N_ELEMENTS(ops)) {
            usage(argv[0]);
        }
        measure_sizes(argv[0], op, sizes, ref);
    }
    side_fini(&sides[0]);
    side_fini(&sides[1]);
    return 0;
}
