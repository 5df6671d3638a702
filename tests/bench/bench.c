/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Two engines, nothing else: how fast the transport itself is, over frames and
 * over super-packets by reference. Figures are of one host thread that plays
 * both sides, and both guests.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "vr_sp.h"

#define FRAME_ROOM 4400
#define QUEUE 1024              /* frames or super-packets on the way */
#define DEPTH 16                /* requests in flight, at least one a QP */
#define MAX_FLIGHT (256u << 20) /* bytes of them; no longer messages */
#define STUCK_NS 5000000000ull
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
static double min_seconds = 0.5;

static uint64_t now_ns(void)
{
    return g_get_monotonic_time() * 1000;
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

/* Send for ns, and at least one request a QP; returns how many completed. */
static uint64_t run(uint8_t opcode, uint32_t len, bool ref, uint64_t ns)
{
    uint64_t done = 0, end = now_ns() + ns;
    uint32_t depth = MAX(1, DEPTH / num_qps);
    struct vroce_cqe cqe;

    for (uint32_t k = 0; k < depth * num_qps; k++) {
        sides[0].h->now = now_ns();
        post(opcode, k % num_qps, len);
    }
    for (uint64_t open = depth * num_qps; open;) {
        bool moved = side_step(&sides[0], ref);

        moved |= side_step(&sides[1], ref);
        if (!moved && now_ns() > end + STUCK_NS) {
            g_error("requests of %u bytes: nothing moves", len);
        }
        while (drv_poll(&sides[1].cq, &cqe)) {
            g_assert_cmpint(cqe.status, ==, VROCE_WCS_SUCCESS);
        }
        while (drv_poll(&sides[0].cq, &cqe)) {
            g_assert_cmpint(cqe.status, ==, VROCE_WCS_SUCCESS);
            done++;
            if (now_ns() < end) {
                post(opcode, le64toh(cqe.wr_id), len);
            } else {
                open--;
            }
        }
    }
    return done;
}

static void measure(uint8_t opcode, const char *name, uint32_t len, bool ref)
{
    uint64_t start, done, frames;
    double seconds;

    /* Once in vain: memory is touched for the first time, caches fill. */
    run(opcode, len, ref, 0);
    frames = frames_total;
    start = now_ns();
    done = run(opcode, len, ref, min_seconds * 1e9);
    seconds = (now_ns() - start) / 1e9;
    printf("%-5s %-5s %7u QPs %8u B %10.0f msg/s %8.3f GiB/s", ref ? "ref" :
           "wire", name, num_qps, len, done / seconds,
           done * (double)len / seconds / (1 << 30));
    if (!ref) {
        printf(" %10.0f frames/s", (frames_total - frames) / seconds);
    }
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const uint32_t lens[] = { 8, 4096, 65536, 1 << 20 };
    static const uint32_t qps[] = { 1, 100, 10000 };
    static const struct {
        uint8_t opcode;
        const char *name;
    } kinds[] = {
        { VROCE_WQE_WRITE, "WRITE" }, { VROCE_WQE_SEND, "SEND" },
        { VROCE_WQE_READ, "READ" },
    };

    if (argc > 2 || (argc == 2 && (min_seconds = atof(argv[1])) <= 0)) {
        fprintf(stderr, "usage: %s [SECONDS-PER-FIGURE]\n", argv[0]);
        return 2;
    }
    for (int ref = 0; ref < 2; ref++) {
        for (uint32_t q = 0; q < G_N_ELEMENTS(qps); q++) {
            num_qps = qps[q];
            side_init(&sides[0], 0, ref);
            side_init(&sides[1], 1, ref);
            side_connect(&sides[0], 0);
            side_connect(&sides[1], 1);
            for (uint32_t k = 0; k < G_N_ELEMENTS(kinds); k++) {
                for (uint32_t i = 0; i < G_N_ELEMENTS(lens) &&
                     (uint64_t)lens[i] * num_qps <= MAX_FLIGHT; i++) {
                    measure(kinds[k].opcode, kinds[k].name, lens[i], ref);
                }
            }
            side_fini(&sides[0]);
            side_fini(&sides[1]);
        }
    }
    return 0;
}
