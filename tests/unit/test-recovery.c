/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What one QP answers, and how often, to a peer that is played by hand: packets
 * are handed to it one by one, in an order that a simulated fabric seldom has.
 */
#include "driver.h"
#include "vr_transport.h"

#define MEM   65536u
#define IOVA  0x7f0000000000ull
#define MS    1000000ull
#define PEER_QPN 0x77
/* Its PSNs and ours. */
#define PSN   0xfffff0u

struct world {
    struct drv_end end;
    struct vr_qp *vq;
};

static void world_init(struct world *w, uint8_t timeout)
{
    drv_end_init(&w->end, 1, IOVA, MEM);
    drv_end_connect_out(&w->end, PEER_QPN, PSN, timeout);
    w->vq = vr_qp_get(w->end.h->e, w->end.qp.qpn);
    fh_advance(w->end.h, 10 * MS);
}

static uint32_t count(const struct world *w, enum vroce_counter counter)
{
    return vr_counters(w->end.h->e)[counter];
}

static struct vr_sp packet(uint8_t op, uint32_t off)
{
    return (struct vr_sp) {
        .qp_type = VROCE_QPT_RC, .op = op, .mtu = 1024, .npkt = 1,
        .flags = VR_SP_FIRST | VR_SP_LAST, .psn = vr_psn_add(PSN, off),
    };
}

/* The n-th request of the peer, a SEND of no bytes that wants an answer. */
static void rx_send(struct world *w, uint32_t n)
{
    struct vr_sp sp = packet(VR_OP_SEND, n);

    sp.flags |= VR_SP_ACKREQ;
    w->end.h->entered = true;
    w->end.h->e->now = w->end.h->now;
    vr_resp_rx(w->end.h->e, w->end.h->e, w->vq, &sp);
    vr_run(w->end.h->e, VR_RUN_BUDGET, w->end.h->now);
    w->end.h->entered = false;
}

static void rx_answer(struct world *w, const struct vr_sp *sp)
{
    w->end.h->entered = true;
    w->end.h->e->now = w->end.h->now;
    vr_comp_rx(w->end.h->e, w->end.h->e, w->vq, sp);
    vr_run(w->end.h->e, VR_RUN_BUDGET, w->end.h->now);
    w->end.h->entered = false;
}

/* A NAK: the n-th of our packets is missing. */
static void rx_nak(struct world *w, uint32_t n)
{
    struct vr_sp sp = packet(VR_OP_ACK, n);

    sp.syndrome = VR_SYN_NAK_PSN;
    rx_answer(w, &sp);
}

static void recv(struct world *w, uint32_t n)
{
    struct drv_wr wr = { 0 };

    while (n--) {
        g_assert_true(drv_post_recv(&w->end.qp, &wr));
    }
}

/* One lost packet before many small messages: few NAKs, and never none. */
static void test_few_naks(void)
{
    struct world w = { 0 };
    uint32_t sent, psn;

    world_init(&w, 14);
    recv(&w, 4);
    rx_send(&w, 0);
    rx_send(&w, 1);
    for (psn = 3; psn < 131; psn++) {
        rx_send(&w, psn);
    }
    /* The 1st behind the gap, the 33rd and the 97th. */
    g_assert_cmpuint(count(&w, VROCE_CNT_TX_PSN_NAK), ==, 3);

    fh_advance(w.end.h, MS);    /* its answer may be lost, or it again */
    rx_send(&w, psn++);
    g_assert_cmpuint(count(&w, VROCE_CNT_TX_PSN_NAK), ==, 4);
    rx_send(&w, psn);
    g_assert_cmpuint(count(&w, VROCE_CNT_TX_PSN_NAK), ==, 4);

    /* It has gone back, and the packet was lost again. */
    rx_send(&w, 3);
    g_assert_cmpuint(count(&w, VROCE_CNT_TX_PSN_NAK), ==, 5);
    rx_send(&w, 4);
    g_assert_cmpuint(count(&w, VROCE_CNT_TX_PSN_NAK), ==, 5);

    /* It has gone back further: a NAK, and an answer to each that asks. */
    sent = w.end.h->frames_sent;
    rx_send(&w, 0);
    rx_send(&w, 1);
    g_assert_cmpuint(count(&w, VROCE_CNT_TX_PSN_NAK), ==, 6);
    g_assert_cmpuint(w.end.h->frames_sent, ==, sent + 2);
    drv_end_fini(&w.end);
}

/* Behind an RNR NAK all is ignored, in whatever order it comes. */
static void test_rnr_behind(void)
{
    struct world w = { 0 };
    uint32_t sent;

    world_init(&w, 14);
    rx_send(&w, 0);
    g_assert_cmpuint(count(&w, VROCE_CNT_TX_RNR_NAK), ==, 1);
    sent = w.end.h->frames_sent;
    rx_send(&w, 3);
    rx_send(&w, 1);
    rx_send(&w, 2);
    g_assert_cmpuint(count(&w, VROCE_CNT_TX_PSN_NAK), ==, 0);
    g_assert_cmpuint(w.end.h->frames_sent, ==, sent);

    /* Its timer has run out, and what it sent again was lost in part. */
    fh_advance(w.end.h, 2 * MS);
    rx_send(&w, 1);
    g_assert_cmpuint(count(&w, VROCE_CNT_TX_PSN_NAK), ==, 1);
    recv(&w, 4);
    rx_send(&w, 0);
    g_assert_cmpuint(w.vq->resp.psn, ==, vr_psn_add(PSN, 4));
    drv_end_fini(&w.end);
}

static void post_send(struct world *w, uint64_t wr_id)
{
    struct drv_wr wr = {
        .wr_id = wr_id, .opcode = VROCE_WQE_SEND,
        .flags = VROCE_WQE_SIGNALED,
    };

    g_assert_true(drv_post_send(&w->end.qp, &wr));
    drv_ring(&w->end.qp);
    fh_settle(w->end.h, 1000);
}

/* A peer that misses the same packet for ever, and no timeout that ends it. */
static void test_endless_naks(void)
{
    struct world w = { 0 };
    struct vroce_cqe cqe;
    uint32_t naks;

    world_init(&w, 0);
    for (int i = 0; i < 4; i++) {
        post_send(&w, i);
    }
    /* Of one round: they cost one retry of the seven. */
    for (naks = 0; naks < 100; naks++) {
        rx_nak(&w, 0);
    }
    g_assert_cmpuint(w.vq->req.retries_left, ==, 6);
    /* They cannot mean more packets than there are. */
    g_assert_cmpuint(w.vq->req.arrived, <=, 4);
    g_assert_false(drv_poll(&w.end.cq, &cqe));
    for (naks = 0; !drv_poll(&w.end.cq, &cqe); naks++) {
        g_assert_cmpuint(naks, <, 20);
        fh_advance(w.end.h, 10 * MS);
        rx_nak(&w, 0);
    }
    g_assert_cmpuint(naks, >=, 7);
    g_assert_cmpint(cqe.status, ==, VROCE_WCS_RETRY_EXC_ERR);
    g_assert_cmpuint(count(&w, VROCE_CNT_RETRY_EXCEEDED), ==, 1);
    g_assert_cmpuint(count(&w, VROCE_CNT_RETRANSMITTED), >=, 7);
    drv_end_fini(&w.end);
}

/* An acknowledgement in between gives all retries back. */
static void test_nak_progress(void)
{
    struct world w = { 0 };
    struct vroce_cqe cqe;
    uint32_t n;

    world_init(&w, 0);
    for (n = 0; n < 12; n++) {
        post_send(&w, n);
    }
    for (n = 0; n < 12; n++) {
        for (int again = 0; again < 3; again++) {
            fh_advance(w.end.h, 10 * MS);
            rx_nak(&w, n);
        }
    }
    for (n = 0; n < 11; n++) {
        g_assert_true(drv_poll(&w.end.cq, &cqe));
        g_assert_cmpint(cqe.status, ==, VROCE_WCS_SUCCESS);
    }
    g_assert_false(drv_poll(&w.end.cq, &cqe));
    drv_end_fini(&w.end);
}

/*
 * Behind a message whose bytes cannot be read is a WQE that cannot be read,
 * and the peer does not answer: the card waits, instead of trying for ever.
 */
static void test_two_failures(void)
{
    static const uint8_t status[] = {
        VROCE_WCS_SUCCESS, VROCE_WCS_LOC_PROT_ERR, VROCE_WCS_WR_FLUSH_ERR,
    };
    struct world w = { 0 };
    struct drv_wr wr = { .opcode = VROCE_WQE_SEND, .wr_id = 1 };
    struct vr_sp ack = packet(VR_OP_ACK, 0);
    struct vroce_cqe cqe;

    world_init(&w, 0);
    post_send(&w, 0);
    wr.num_sge = 1;
    wr.sge[0].length = 5000;    /* by a key that is none */
    g_assert_true(drv_post_send(&w.end.qp, &wr));
    wr.opcode = 0x7f;           /* there is none */
    wr.wr_id = 2;
    g_assert_true(drv_post_send(&w.end.qp, &wr));
    drv_ring(&w.end.qp);
    fh_settle(w.end.h, 10);
    g_assert_false(drv_poll(&w.end.cq, &cqe));

    ack.syndrome = VR_SYN_ACK;
    rx_answer(&w, &ack);
    for (uint32_t i = 0; i < G_N_ELEMENTS(status); i++) {
        g_assert_true(drv_poll(&w.end.cq, &cqe));
        g_assert_cmpuint(le64toh(cqe.wr_id), ==, i);
        g_assert_cmpint(cqe.status, ==, status[i]);
    }
    drv_end_fini(&w.end);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/recovery/few-naks", test_few_naks);
    g_test_add_func("/recovery/rnr-behind", test_rnr_behind);
    g_test_add_func("/recovery/endless-naks", test_endless_naks);
    g_test_add_func("/recovery/nak-progress", test_nak_progress);
    g_test_add_func("/recovery/two-failures", test_two_failures);
    return g_test_run();
}
