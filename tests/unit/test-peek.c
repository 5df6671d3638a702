/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the engine says to whoever asks why nothing moves: what a QP waits for,
 * when things happened, and what guest memory says that was not told yet.
 */
#include <string.h>

#include "couple.h"

static void start(struct world *w)
{
    memset(w, 0, sizeof(*w));
    world_init(w, VROCE_QPT_RC, false);
    w->h->now = 1000;
    connect_both(w);
}

static struct vr_qp_info query(struct world *w, const struct drv_qp *qp)
{
    struct vr_qp_info info;

    g_assert_true(vr_query_qp(w->h->e, qp->qpn, &info));
    return info;
}

static void assert_waits(struct world *w, const struct drv_qp *qp,
                         enum vr_wait wait)
{
    g_assert_cmpint(query(w, qp).wait, ==, wait);
}

/* A peek reads guest memory: an entry into the engine like others. */
static uint32_t peek(struct world *w,
                     bool (*fn)(struct vr_engine *, uint32_t, uint32_t *),
                     uint32_t number)
{
    uint32_t value = 99;

    w->h->entered = true;
    g_assert_true(fn(w->h->e, number, &value));
    w->h->entered = false;
    return value;
}

static void post_send(struct world *w, struct drv_qp *qp, uint32_t lkey)
{
    struct drv_wr wr = send_wr(w, VROCE_WQE_SEND, 7, 0, 64);

    wr.sge[0].lkey = lkey;
    post(qp, &wr);
}

static void post_recv(struct world *w, struct drv_qp *qp)
{
    struct drv_wr wr = {
        .num_sge = 1,
        .sge[0] = { .addr = IOVA, .length = 64, .lkey = w->mr.key },
    };

    g_assert_true(drv_post_recv(qp, &wr));
}

static void send(struct world *w, struct drv_qp *qp)
{
    post_send(w, qp, w->mr.key);
    drv_ring(qp);
    fh_settle(w->h, 1000);
}

static void test_rnr(void)
{
    struct vr_qp_info info;
    struct world w;

    start(&w);
    assert_waits(&w, &w.a, VR_WAIT_NONE);
    send(&w, &w.a);
    assert_waits(&w, &w.a, VR_WAIT_RNR);
    g_assert_cmpuint(query(&w, &w.b).marks.refused, ==, w.h->now);
    g_assert_cmpuint(query(&w, &w.a).marks.answered, ==, 0);

    post_recv(&w, &w.b);
    fh_advance(w.h, 1000000000);
    fh_settle(w.h, 1000);
    assert_waits(&w, &w.a, VR_WAIT_NONE);
    info = query(&w, &w.a);
    g_assert_cmpuint(info.marks.answered, >, 1000);
    g_assert_cmpuint(info.marks.heard, >=, info.marks.answered);
    g_assert_cmpint(info.rnr_retry, ==, 7);
    world_fini(&w);
}

/* Of a peer that does not take the packet there is no answer. */
static void test_ack(void)
{
    struct vr_qp_info info;
    struct world w;

    start(&w);
    g_assert_cmpint(drv_try_modify(&w.b, VROCE_QPS_ERR, &w.cb, NULL), ==,
                    VROCE_OK);
    send(&w, &w.a);
    assert_waits(&w, &w.a, VR_WAIT_ACK);
    info = query(&w, &w.a);
    g_assert_cmpint(info.retry_cnt, ==, 7);
    g_assert_cmpuint(info.retry_deadline, ==, w.h->now + info.ack_timeout);

    vr_set_enabled(w.h->e, false, w.h->now);
    assert_waits(&w, &w.a, VR_WAIT_DEVICE);
    vr_set_enabled(w.h->e, true, w.h->now);
    fh_advance(w.h, 10 * info.ack_timeout);
    info = query(&w, &w.a);
    g_assert_cmpint(info.state, ==, VROCE_QPS_ERR);
    g_assert_cmpint(info.marks.status, ==, VROCE_WCS_RETRY_EXC_ERR);
    g_assert_cmpuint(info.marks.wr_id, ==, 7);
    g_assert_false(info.marks.receive);
    g_assert_cmpuint(info.marks.failed, ==, info.marks.state);
    world_fini(&w);
}

/* The first error counts; flushes are none. */
static void test_error(void)
{
    struct vr_qp_marks marks;
    struct world w;

    start(&w);
    post_recv(&w, &w.b);
    post_send(&w, &w.a, 0xdeadbe00);
    send(&w, &w.a);
    marks = query(&w, &w.a).marks;
    g_assert_cmpint(marks.status, ==, VROCE_WCS_LOC_PROT_ERR);
    g_assert_cmpint(marks.event, ==, 0);
    g_assert_cmpint(drv_try_modify(&w.a, VROCE_QPS_RESET, &w.ca, NULL), ==,
                    VROCE_OK);
    g_assert_cmpint(query(&w, &w.a).marks.status, ==, 0);
    world_fini(&w);
}

static void test_sqd(void)
{
    struct world w;

    start(&w);
    g_assert_cmpint(drv_try_modify(&w.a, VROCE_QPS_SQD, &w.ca, NULL), ==,
                    VROCE_OK);
    send(&w, &w.a);
    assert_waits(&w, &w.a, VR_WAIT_SQD);
    world_fini(&w);
}

static void test_unrung(void)
{
    struct world w;
    uint32_t n;

    start(&w);
    g_assert_cmpuint(peek(&w, vr_peek_sq, w.a.qpn), ==, 0);
    /* Twice around the ring of 16 units: old work requests do not count. */
    for (int i = 0; i < 33; i++) {
        struct vroce_cqe cqe;

        post_recv(&w, &w.b);
        post_send(&w, &w.a, w.mr.key);
        g_assert_cmpuint(peek(&w, vr_peek_sq, w.a.qpn), ==, 1);
        drv_ring(&w.a);
        fh_settle(w.h, 1000);
        g_assert_cmpuint(peek(&w, vr_peek_sq, w.a.qpn), ==, 0);
        while (drv_poll(&w.cq, &cqe)) {
            g_assert_cmpint(cqe.status, ==, VROCE_WCS_SUCCESS);
        }
    }
    post_send(&w, &w.a, w.mr.key);
    post_send(&w, &w.a, w.mr.key);
    g_assert_cmpuint(peek(&w, vr_peek_sq, w.a.qpn), ==, 2);
    g_assert_false(vr_peek_sq(w.h->e, 77, &n));
    world_fini(&w);
}

static void test_records(void)
{
    struct vroce_cqe cqe;
    struct vr_cq_info cq;
    struct world w;
    uint32_t n;

    start(&w);
    post_recv(&w, &w.b);
    post_recv(&w, &w.b);
    g_assert_cmpuint(peek(&w, vr_peek_rq, w.b.qpn), ==, 2);
    g_assert_cmpuint(query(&w, &w.b).rq_producer, ==, 0);

    send(&w, &w.a);
    g_assert_cmpuint(peek(&w, vr_peek_cq, w.cq.cqn), ==, 0);
    g_assert_true(drv_poll(&w.cq, &cqe));
    g_assert_cmpuint(peek(&w, vr_peek_cq, w.cq.cqn), ==, 1);
    g_assert_true(vr_query_cq(w.h->e, w.cq.cqn, &cq));
    g_assert_cmpuint(cq.producer, ==, 2);
    g_assert_cmpuint(cq.consumer_seen, ==, 0);
    g_assert_cmpuint(cq.last_completion, ==, w.h->now);
    g_assert_false(vr_peek_cq(w.h->e, 77, &n));
    g_assert_false(vr_peek_srq(w.h->e, 77, &n));
    world_fini(&w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/peek/rnr", test_rnr);
    g_test_add_func("/peek/ack", test_ack);
    g_test_add_func("/peek/error", test_error);
    g_test_add_func("/peek/sqd", test_sqd);
    g_test_add_func("/peek/unrung", test_unrung);
    g_test_add_func("/peek/records", test_records);
    return g_test_run();
}
