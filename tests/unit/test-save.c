/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Saving and loading: nothing is lost, nothing broken is taken. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "vr_transport.h"

#define BASE 0x200000000ull
#define LEN  300000u

/* A device with one of everything, and work in each stage. */
struct bed {
    struct fakehost *h;
    struct drv *d;
    struct drv_eq eq, async;
    struct drv_cq cq;
    struct drv_srq srq;
    struct drv_qp qp[2];
    struct gmem mem;
    struct drv_mr mr;
    uint32_t fast;
};

static void connect_to(struct bed *b, struct drv_qp *qp, uint32_t dest)
{
    struct drv_conn conn;

    drv_conn_init(&conn);
    conn.dest_qpn = dest;
    conn.sq_psn = conn.rq_psn = 0xfffffa;
    drv_av(b->d, 1, 0, &conn.av);
    drv_qp_connect(qp, &conn);
}

static void bed_init(struct bed *b)
{
    struct drv_qp_init init = {
        .type = VROCE_QPT_RC, .sq_log = 6, .rq_log = 4, .max_recv_sge = 2,
        .scq = &b->cq, .rcq = &b->cq,
    };
    struct vroce_create_mr_in fast = {
        .kind = VROCE_MR_FAST, .max_pages = htole32(1000),
    };
    uint16_t rule;

    b->h = fh_new(NULL, 1);
    b->d = drv_new(b->h, 1);
    drv_eq_create(b->d, &b->async, 4, 0, true);
    drv_eq_create(b->d, &b->eq, 4, 1, false);
    drv_cq_create(b->d, &b->cq, 8, &b->eq);
    drv_srq_create(b->d, &b->srq, 4, 2, 0);
    drv_qp_create(b->d, &b->qp[0], &init);
    init.srq = &b->srq;
    init.rq_log = VROCE_NO_QUEUE;
    drv_qp_create(b->d, &b->qp[1], &init);
    gmem_init(&b->mem, b->h, 2 * LEN, 2, 12, 500);
    drv_mr_create(b->d, &b->mr, &b->mem, BASE,
                  VROCE_ACCESS_LOCAL_WRITE | VROCE_ACCESS_REMOTE_WRITE |
                  VROCE_ACCESS_REMOTE_READ | VROCE_ACCESS_REMOTE_ATOMIC);
    fast.pdn = htole32(b->d->pdn);
    g_assert_cmpint(drv_try_create(b->d, VROCE_CMD_CREATE_MR, &fast,
                                   sizeof(fast), &b->fast, &rule), ==, 0);
    connect_to(b, &b->qp[0], b->qp[1].qpn);
    connect_to(b, &b->qp[1], b->qp[0].qpn);
    drv_eq_arm(&b->eq);
    drv_eq_arm(&b->async);
}

static void bed_fini(struct bed *b)
{
    drv_qp_destroy(&b->qp[0]);
    drv_qp_destroy(&b->qp[1]);
    drv_srq_destroy(&b->srq);
    drv_number(b->d, VROCE_CMD_DESTROY_MR, b->fast);
    drv_mr_destroy(&b->mr);
    gmem_fini(&b->mem);
    drv_cq_destroy(&b->cq);
    drv_eq_destroy(&b->eq);
    drv_eq_destroy(&b->async);
    drv_free(b->d);
    fh_free(b->h);
}

static void post(struct bed *b, uint8_t opcode, uint64_t wr_id)
{
    struct drv_wr wr = {
        .wr_id = wr_id, .opcode = opcode, .flags = VROCE_WQE_SIGNALED,
        .num_sge = 1,
        .sge = { { .addr = BASE, .length = LEN, .lkey = b->mr.key } },
        .rkey = b->mr.key, .remote_addr = BASE + LEN,
    };

    g_assert_true(drv_post_send(&b->qp[0], &wr));
    drv_ring(&b->qp[0]);
}

static void reload(struct bed *b)
{
    size_t len, again_len;
    g_autofree uint8_t *copy = NULL;
    void *image = vr_save(b->h->e, &len), *again;

    g_assert_nonnull(image);
    copy = g_memdup2(image, len);
    b->h->kicked = false;
    b->h->entered = true;
    g_assert_cmpint(vr_load(b->h->e, copy, len, b->h->now), ==, 0);
    b->h->entered = false;
    g_assert_true(b->h->kicked);
    again = vr_save(b->h->e, &again_len);
    g_assert_cmpmem(image, len, again, again_len);
    free(image);
    free(again);
}

/* Reloaded between any two slices, the same work ends the same way. */
static void test_midway(void)
{
    static uint8_t data[LEN], got[LEN];
    struct vroce_cqe cqe;
    struct bed b;
    int slices = 0, done = 0;

    bed_init(&b);
    for (uint32_t i = 0; i < LEN; i++) {
        data[i] = g_rand_int(b.h->rand);
    }
    gmem_write(&b.mem, 0, data, LEN);
    post(&b, VROCE_WQE_WRITE, 1);
    post(&b, VROCE_WQE_READ, 2);
    post(&b, VROCE_WQE_WRITE, 3);
    while (done < 3) {
        if (slices % 3) {
            reload(&b);
        }
        g_assert_cmpint(++slices, <, 1000);
        b.h->entered = true;
        vr_run(b.h->e, 5000, b.h->now);
        b.h->entered = false;
        while (drv_poll(&b.cq, &cqe)) {
            g_assert_cmpint(cqe.status, ==, VROCE_WCS_SUCCESS);
            g_assert_cmpuint(le64toh(cqe.wr_id), ==, ++done);
        }
    }
    g_assert_cmpint(slices, >, 3);
    gmem_read(&b.mem, LEN, got, LEN);
    g_assert_cmpmem(got, LEN, data, LEN);
    g_assert_cmpuint(b.h->e->counters[VROCE_CNT_RETRANSMITTED], ==, 0);
    bed_fini(&b);
}

/* Armed CQs, timers, keys and receive queues are as they were. */
static void test_objects(void)
{
    struct vroce_modify_cq_in moderate = {
        .count = htole16(10), .period_us = htole16(100),
    };
    struct vroce_cqe cqe = { .wr_id = htole64(7) };
    struct vr_mr *mr;
    struct drv_wr recv = { .num_sge = 0 };
    struct vroce_eqe eqe;
    struct bed b;
    uint32_t stale;

    bed_init(&b);
    moderate.cqn = htole32(b.cq.cqn);
    g_assert_cmpint(fh_command(b.h, VROCE_CMD_MODIFY_CQ, &moderate,
                               sizeof(moderate), NULL, 0, NULL), ==, 0);
    drv_cq_arm(&b.cq, false);
    b.h->entered = true;
    vr_cq_post(b.h->e, b.cq.cqn, &cqe, false);
    b.h->entered = false;
    g_assert_true(drv_post_recv(&b.qp[0], &recv));
    g_assert_true(drv_srq_post(&b.srq, &recv));
    stale = b.fast;
    drv_number(b.d, VROCE_CMD_DESTROY_MR, b.fast);
    reload(&b);

    fh_advance(b.h, 99999);
    g_assert_false(drv_eq_poll(&b.eq, &eqe));
    fh_advance(b.h, 1);
    g_assert_true(drv_eq_poll(&b.eq, &eqe));
    g_assert_cmpuint(b.h->irqs[1], ==, 1);
    g_assert_cmpint(vr_mr_check(b.h->e, stale, b.d->pdn, 0, 1, 0, &mr), ==,
                    VROCE_RULE_KEY);
    g_assert_cmpint(vr_mr_check(b.h->e, b.mr.key, b.d->pdn, BASE, 2 * LEN,
                                VROCE_ACCESS_REMOTE_WRITE, &mr), ==, 0);
    g_assert_cmpint(drv_number(b.d, VROCE_CMD_FREE_PD, b.d->pdn), ==,
                    VROCE_ERR_BUSY);
    bed_fini(&b);
}

static void check_refused(struct fakehost *h, const void *image, size_t len)
{
    g_autofree uint8_t *copy = g_memdup2(image, MAX(len, 1));

    h->entered = true;
    g_assert_cmpint(vr_load(h->e, copy, len, h->now), ==, -EINVAL);
    h->entered = false;
    g_assert_cmpuint(h->e->pages_used, ==, 0);
    g_assert_cmpuint(h->e->qps.used + h->e->cqs.used + h->e->pds.used, ==, 0);
    g_assert_cmpuint(h->deadline, ==, UINT64_MAX);
}

/* Cut off anywhere, too long, or of a device with other limits. */
static void test_broken(void)
{
    struct vr_config cfg;
    struct fakehost *other;
    struct bed b;
    size_t len;
    uint8_t *image;

    bed_init(&b);
    post(&b, VROCE_WQE_WRITE, 1);
    image = vr_save(b.h->e, &len);
    for (size_t cut = 0; cut < len; cut += cut < 4000 ? 1 : 97) {
        check_refused(b.h, image, cut);
    }
    image = realloc(image, len + 1);
    image[len] = 0;
    check_refused(b.h, image, len + 1);

    vr_config_init(&cfg);
    cfg.num_cqs++;
    other = fh_new(&cfg, 2);
    check_refused(other, image, len);
    fh_free(other);

    b.h->entered = true;
    g_assert_cmpint(vr_load(b.h->e, image, len, b.h->now), ==, 0);
    b.h->entered = false;
    free(image);
    bed_fini(&b);
}

/*
 * Well-formed, but names bytes outside of what it names: the peer or the guest
 * would be given what lies behind them in this process.
 */
static void test_outside(void)
{
    const uint8_t bytes[8] = { 0 };
    struct vr_sp sp = {
        .qp_type = VROCE_QPT_UD, .op = VR_OP_SEND, .mtu = 1024, .npkt = 1,
        .flags = VR_SP_FIRST | VR_SP_LAST,
        .payload = { .kind = VR_PAYLOAD_BYTES, .len = 8, .bytes = bytes },
    };
    uint8_t *image;
    size_t len;
    struct bed b;

    bed_init(&b);
    post(&b, VROCE_WQE_WRITE, 1);
    vr_loop_push(b.h->e, &sp);
    image = vr_save(b.h->e, &len);

    /* The offset of the queued datagram: before its bytes and the edge. */
    image[len - 17] ^= 0x10;
    check_refused(b.h, image, len);
    image[len - 17] ^= 0x10;

    b.h->entered = true;
    g_assert_cmpint(vr_load(b.h->e, image, len, b.h->now), ==, 0);
    b.h->entered = false;
    free(image);
    bed_fini(&b);
}

static struct vr_shadow *oldest(struct vr_qp *qp)
{
    return vr_shadow_at(qp, qp->req.consumer);
}

/* Acknowledged up to a place before the oldest request … */
static void una_before(struct vr_qp *qp)
{
    qp->req.una = vr_psn_add(oldest(qp)->first_psn, VR_PSN_MASK);
}

/* … and to its end, though it is not complete. */
static void una_behind(struct vr_qp *qp)
{
    qp->req.una = vr_psn_add(oldest(qp)->first_psn, oldest(qp)->npsn);
}

static void una_not_sent(struct vr_qp *qp)
{
    qp->req.una = vr_psn_add(oldest(qp)->first_psn, 1);
    qp->req.sent = oldest(qp)->first_psn;
}

static void sent_not_begun(struct vr_qp *qp)
{
    qp->req.sent = vr_psn_add(qp->req.psn, 1);
}

/* Bytes of a READ that has not come; the oldest request is a WRITE. */
static void early_unasked(struct vr_qp *qp)
{
    uint32_t psn = oldest(qp)->first_psn;

    qp->req.early[psn % VR_EARLY_PACKETS / 64] |= 1ull << psn % 64;
}

static void skip_beyond(struct vr_qp *qp)
{
    qp->req.skip = VR_PSN_MASK + 1;
}

static void again_beyond(struct vr_qp *qp)
{
    qp->req.again = UINT32_MAX;
}

static void gap_beyond(struct vr_qp *qp)
{
    qp->req.gap = VR_PSN_MASK + 1;
}

static void retries_beyond(struct vr_qp *qp)
{
    qp->req.retries_left = 8;
}

/* Begun while the guest may still choose another MTU. */
static void begun_too_early(struct vr_qp *qp)
{
    qp->state = VROCE_QPS_INIT;
}

/* The WQE that failed ends elsewhere than where it was begun. */
static void failure_midway(struct vr_qp *qp)
{
    qp->req.failure = (struct vr_failure) {
        .set = true, .index = qp->req.consumer,
        .end = qp->req.consumer + oldest(qp)->units + 1,
    };
}

static void failure_without_end(struct vr_qp *qp)
{
    qp->req.failure = (struct vr_failure) {
        .set = true, .index = qp->req.next, .end = qp->req.next,
    };
}

/* Nobody answers it, and it waits for an answer. */
static void unreliable_waits(struct vr_qp *qp)
{
    qp->type = VROCE_QPT_UC;
}

/* A receive whose keys any PD may have made. */
static void receive_of_any(struct vr_qp *qp)
{
    qp->resp.recv = (struct vr_recv) {
        .valid = true, .sgl = { .pdn = VROCE_NONE, .num = 1 },
    };
}

/* An answer that ends before its last packet begins. */
static void answer_too_short(struct vr_qp *qp)
{
    qp->resp.replay[0] = (struct vr_replay) {
        .op = VR_OP_READ_REQ, .npsn = 3, .end = 3, .len = 3 * qp->mtu,
        .limit = qp->mtu,
    };
    qp->resp.replay_num = 1;
}

static void pages_too_large(struct vr_qp *qp)
{
    qp->pages.shift = 64;
}

/* Of a queue that is empty. */
static void una_of_none(struct vr_qp *qp)
{
    qp->req.una = vr_psn_add(qp->req.una, 1);
}

static void sent_of_none(struct vr_qp *qp)
{
    qp->req.sent = vr_psn_add(qp->req.sent, 1);
}

/* A requester that the device cannot have come to: see also test_outside(). */
static void test_requester(void)
{
    static const struct {
        void (*spoil)(struct vr_qp *qp);
        bool idle;              /* of the QP that has sent nothing */
    } cases[] = {
        { una_before, false }, { una_behind, false }, { una_not_sent, false },
        { sent_not_begun, false }, { early_unasked, false },
        { skip_beyond, false }, { again_beyond, false }, { gap_beyond, false },
        { retries_beyond, false }, { begun_too_early, false },
        { failure_midway, false }, { failure_without_end, false },
        { unreliable_waits, false }, { una_of_none, true },
        { sent_of_none, true }, { receive_of_any, true },
        { answer_too_short, true }, { pages_too_large, true },
    };
    uint8_t *image, *bad;
    size_t len, bad_len;
    struct bed b;

    bed_init(&b);
    post(&b, VROCE_WQE_WRITE, 1);
    post(&b, VROCE_WQE_READ, 2);
    image = vr_save(b.h->e, &len);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        struct vr_qp *qp = vr_qp_get(b.h->e, b.qp[cases[i].idle].qpn);

        g_assert_cmpint(qp->req.consumer == qp->req.next, ==, cases[i].idle);
        cases[i].spoil(qp);
        bad = vr_save(b.h->e, &bad_len);
        check_refused(b.h, bad, bad_len);
        free(bad);
        b.h->entered = true;
        g_assert_cmpint(vr_load(b.h->e, image, len, b.h->now), ==, 0);
        b.h->entered = false;
    }
    free(image);
    bed_fini(&b);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/save/midway", test_midway);
    g_test_add_func("/save/objects", test_objects);
    g_test_add_func("/save/broken", test_broken);
    g_test_add_func("/save/outside", test_outside);
    g_test_add_func("/save/requester", test_requester);
    return g_test_run();
}
