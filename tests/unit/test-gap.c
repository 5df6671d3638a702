/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Gaps by name (engine/gap.c): what one QP says of the gaps that it sees, and
 * what it sends again when it is told of some. The peer is played by hand.
 */
#include "driver.h"
#include "vr_transport.h"

#define MEM   65536u
#define IOVA  0x7f0000000000ull
#define US    1000ull
#define PEER_QPN 0x77
#define PSN   0xfffff0u         /* wraps around on the way */
#define MAX_SENT 64

struct world {
    struct drv_end end;
    struct vr_qp *vq;
    struct vr_sp sent[MAX_SENT];    /* in answer to the last thing done */
    uint32_t num_sent;
};

static bool note_sp(void *opaque, const struct vr_sp *sp)
{
    struct world *w = opaque;

    g_assert_cmpuint(w->num_sent, <, MAX_SENT);
    w->sent[w->num_sent++] = *sp;
    return true;
}

static const struct vr_link_ops note_ops = { .send = note_sp };

static void world_init(struct world *w)
{
    memset(w, 0, sizeof(*w));
    drv_end_init(&w->end, 1, IOVA, MEM);
    drv_end_connect_out(&w->end, PEER_QPN, PSN, 14);
    w->vq = vr_qp_get(w->end.h->e, w->end.qp.qpn);
    vr_set_link_ops(w->end.h->e, &note_ops, w);
}

static void receive(struct world *w, const struct vr_sp *sp)
{
    w->num_sent = 0;
    fh_deliver(w->end.h, w->end.h, sp);
    fh_settle(w->end.h, 1000);
}

static struct vr_sp packet(const struct world *w, uint8_t op, uint32_t n)
{
    struct vr_sp sp = {
        .route = w->vq->route, .qp_type = VROCE_QPT_RC, .op = op, .mtu = 1024,
        .npkt = 1, .flags = VR_SP_FIRST | VR_SP_LAST,
        .dqpn = w->end.qp.qpn, .psn = vr_psn_add(PSN, n),
    };

    memcpy(sp.route.sgid, w->vq->route.dgid, 16);
    memcpy(sp.route.dgid, w->vq->route.sgid, 16);
    return sp;
}

/* The peer's n-th request, a SEND of no bytes or a READ of some. */
static void rx_request(struct world *w, uint32_t n, uint32_t read, bool names)
{
    struct vr_sp sp = packet(w, read ? VR_OP_READ_REQ : VR_OP_SEND, n);

    sp.flags |= names ? VR_SP_NAMES : 0;
    sp.dma_len = read;
    sp.va = IOVA;
    sp.rkey = w->end.mr.key;
    receive(w, &sp);
}

/* Our answer is a NAK of the n-th packet that says no more than that. */
static void assert_plain_nak(const struct world *w, uint32_t n)
{
    g_assert_cmpuint(w->num_sent, ==, 1);
    g_assert_cmpuint(w->sent[0].syndrome, ==, VR_SYN_NAK_PSN);
    g_assert_cmphex(w->sent[0].psn, ==, vr_psn_add(PSN, n));
    g_assert_false(w->sent[0].flags & VR_SP_NAMES);
}

/* The i-th answer: the n-th packet is missing, then `num` from start on. */
static void assert_named(const struct world *w, uint32_t i, uint32_t n,
                         uint32_t last, uint32_t start, uint32_t num)
{
    g_assert_cmpuint(i, <, w->num_sent);
    g_assert_cmpuint(w->sent[i].syndrome, ==, VR_SYN_NAK_PSN);
    g_assert_cmphex(w->sent[i].psn, ==, vr_psn_add(PSN, n));
    g_assert_true(w->sent[i].flags & VR_SP_NAMES);
    g_assert_cmphex(w->sent[i].msn, ==, last << 16 | start << 8 | num);
}

/* Only who says that it understands is told; each gap once, at once. */
static void test_responder(void)
{
    struct world w;

    world_init(&w);
    rx_request(&w, 2, 0, false);
    assert_plain_nak(&w, 0);
    rx_request(&w, 4, 0, false);
    g_assert_cmpuint(w.num_sent, ==, 0);

    /* Both gaps that it was not told of, and the new one. */
    rx_request(&w, 8, 0, true);
    g_assert_cmpuint(w.num_sent, ==, 3);
    assert_named(&w, 0, 0, 8, 0, 2);
    assert_named(&w, 1, 0, 8, 3, 1);
    assert_named(&w, 2, 0, 8, 5, 3);
    rx_request(&w, 9, 0, true);
    g_assert_cmpuint(w.num_sent, ==, 0);

    /* A READ takes the PSNs of its answer, which are no gap. */
    rx_request(&w, 10, 3 * 1024, true);
    g_assert_cmpuint(w.num_sent, ==, 0);
    rx_request(&w, 14, 0, true);
    g_assert_cmpuint(w.num_sent, ==, 1);
    assert_named(&w, 0, 0, 14, 13, 1);
    drv_end_fini(&w.end);
}

/* A NAK waits for the end of a burst, and the oldest gap becomes shorter. */
static void test_burst(void)
{
    static const uint32_t come[] = { 2, 0 };
    struct world w;

    world_init(&w);
    fh_burst(w.end.h, true);
    for (size_t i = 0; i < G_N_ELEMENTS(come); i++) {
        struct vr_sp sp = packet(&w, VR_OP_WRITE, come[i]);

        sp.flags |= VR_SP_NAMES;
        fh_deliver(w.end.h, w.end.h, &sp);
    }
    fh_burst(w.end.h, false);
    fh_settle(w.end.h, 1000);
    g_assert_cmphex(w.vq->resp.psn, ==, vr_psn_add(PSN, 1));
    g_assert_cmpuint(w.num_sent, ==, 1);
    assert_named(&w, 0, 0, 2, 1, 1);
    drv_end_fini(&w.end);
}

/* What lies further away than a NAK can say is left out; nothing else is. */
static void test_far(void)
{
    struct world w;

    world_init(&w);
    rx_request(&w, 1, 300 * 1024, true);
    g_assert_cmpuint(w.num_sent, ==, 1);
    assert_named(&w, 0, 0, VR_HOLD_PACKETS - 1, 0, 1);
    rx_request(&w, 5000, 0, true);      /* not kept: as good as lost */
    g_assert_cmpuint(w.num_sent, ==, 0);
    drv_end_fini(&w.end);
}

/*
 * READs that overlap, and of more packets than there are PSNs: what is named of
 * them matters little, but the device comes to rest.
 */
static void test_hostile_reads(void)
{
    static const uint32_t lens[] = {
        300 * 1024, 1000 * 1024, 0x80000000, 0x80000400, 0xffffffff,
    };
    struct world w;

    for (size_t i = 0; i < G_N_ELEMENTS(lens); i++) {
        for (size_t k = 0; k < G_N_ELEMENTS(lens); k++) {
            world_init(&w);
            rx_request(&w, 1, lens[i], true);
            rx_request(&w, 2, lens[k], true);
            rx_request(&w, 9, 0, true);
            rx_request(&w, 200, lens[i], true);
            rx_request(&w, 3, 0, true);
            g_assert_cmphex(w.vq->resp.psn, ==, PSN);
            drv_end_fini(&w.end);
        }
    }
}

/* Nothing is held any more, since there was no receive for it. */
static void test_all_refused(void)
{
    struct drv_wr wr = { 0 };
    struct vr_sp bad;
    struct world w;

    world_init(&w);
    g_assert_true(drv_post_recv(&w.end.qp, &wr));
    rx_request(&w, 1, 0, false);
    rx_request(&w, 0, 0, false);
    g_assert_cmpuint(vr_counters(w.end.h->e)[VROCE_CNT_TX_RNR_NAK], ==, 1);
    fh_advance(w.end.h, 2000 * US);
    for (uint32_t n = 5; n >= 3; n -= 2) {      /* longer than what they say */
        bad = packet(&w, VR_OP_WRITE, n);
        bad.flags = VR_SP_FIRST | VR_SP_NAMES;
        receive(&w, &bad);
    }
    g_assert_cmphex(w.vq->resp.psn, ==, vr_psn_add(PSN, 1));
    drv_end_fini(&w.end);
}

static void post_sends(struct world *w, uint32_t num)
{
    const struct drv_wr wr = { .opcode = VROCE_WQE_SEND };

    w->num_sent = 0;
    while (num--) {
        g_assert_true(drv_post_send(&w->end.qp, &wr));
    }
    drv_ring(&w->end.qp);
    fh_settle(w->end.h, 1000);
}

static void rx_answer(struct world *w, uint8_t syndrome, uint32_t n,
                      uint32_t flags, uint32_t msn)
{
    struct vr_sp sp = packet(w, VR_OP_ACK, n);

    sp.syndrome = syndrome;
    sp.flags |= flags;
    sp.msn = msn;
    receive(w, &sp);
}

/* What was sent is the n-th packet; it offers to be told of gaps, or not. */
static void assert_sent(const struct world *w, uint32_t i, uint32_t n,
                        bool names)
{
    g_assert_cmpuint(i, <, w->num_sent);
    g_assert_cmphex(w->sent[i].psn, ==, vr_psn_add(PSN, n));
    g_assert_cmpint(!!(w->sent[i].flags & VR_SP_NAMES), ==, names);
}

/* A requester with 24 packets in flight and a peer that keeps, from 4 on. */
static void learn(struct world *w)
{
    post_sends(w, 8);
    for (uint32_t i = 0; i < w->num_sent; i++) {
        assert_sent(w, i, i, false);
    }
    fh_advance(w->end.h, 100 * US);
    rx_answer(w, VR_SYN_NAK_PSN, 2, 0, 0);
    assert_sent(w, 0, 2, false);
    rx_answer(w, VR_SYN_ACK, 3, 0, 0);
    g_assert_true(w->vq->req.peer_keeps);
    post_sends(w, 20);
    for (uint32_t i = 0; i < w->num_sent; i++) {
        assert_sent(w, i, 8 + i, true);
    }
    fh_advance(w->end.h, 100 * US);
}

/* What is named is sent again, once; then what is new. */
static void test_requester(void)
{
    struct world w;

    world_init(&w);
    learn(&w);
    rx_answer(&w, VR_SYN_NAK_PSN, 4, VR_SP_NAMES, 1 << 16 | 0 << 8 | 1);
    g_assert_cmpuint(w.num_sent, ==, 3);        /* with two that follow */
    assert_sent(&w, 0, 4, true);
    rx_answer(&w, VR_SYN_NAK_PSN, 4, VR_SP_NAMES, 9 << 16 | 6 << 8 | 3);
    g_assert_cmpuint(w.num_sent, ==, 3);
    assert_sent(&w, 0, 10, true);
    assert_sent(&w, 2, 12, true);
    g_assert_cmpuint(w.vq->req.arrived, ==, 10 - 4);
    rx_answer(&w, VR_SYN_NAK_PSN, 4, VR_SP_NAMES, 12 << 16 | 6 << 8 | 3);
    g_assert_cmpuint(w.num_sent, ==, 0);
    post_sends(&w, 1);
    assert_sent(&w, 0, 28, true);

    /* The second gap is the oldest now; it was filled lately. */
    rx_answer(&w, VR_SYN_NAK_PSN, 10, VR_SP_NAMES, 6 << 16);
    g_assert_cmpuint(w.num_sent, ==, 0);
    /* Still missing a round trip later. */
    fh_advance(w.end.h, 300 * US);
    rx_answer(&w, VR_SYN_NAK_PSN, 10, VR_SP_NAMES, 6 << 16);
    assert_sent(&w, 0, 10, true);
    assert_sent(&w, 2, 12, true);
    rx_answer(&w, VR_SYN_ACK, 28, 0, 0);
    g_assert_cmpuint(w.vq->req.num_gaps, ==, 0);
    g_assert_cmpuint(w.vq->req.consumer, ==, w.vq->req.producer);
    drv_end_fini(&w.end);
}

/* What has arrived behind the gap makes room for what is new, at once. */
static void test_room(void)
{
    struct drv_wr wr = {
        .opcode = VROCE_WQE_SEND, .num_sge = 1, .sge[0] = { IOVA, MEM, 0 },
    };
    struct world w;
    uint32_t sent;

    world_init(&w);
    learn(&w);
    rx_answer(&w, VR_SYN_NAK_PSN, 4, VR_SP_NAMES, 1 << 16 | 0 << 8 | 1);
    wr.sge[0].lkey = w.end.mr.key;
    for (int i = 0; i < 3; i++) {
        g_assert_true(drv_post_send(&w.end.qp, &wr));
    }
    drv_ring(&w.end.qp);
    fh_settle(w.end.h, 1000);
    sent = w.vq->req.sent;
    rx_answer(&w, VR_SYN_NAK_PSN, 4, VR_SP_NAMES, 9 << 16);
    g_assert_cmpuint(w.num_sent, ==, 1);
    g_assert_cmphex(w.sent[0].psn, ==, sent);
    g_assert_cmpuint(w.sent[0].npkt, ==, 8);
    drv_end_fini(&w.end);
}

/* Nonsense is believed as little as it can harm. */
static void test_nonsense(void)
{
    static const uint32_t words[] = {
        0xffffff, 0x00ff01, 0x01ffff, 0x050403, 0xff0101, 0x180101, 0x000001,
    };
    struct world w;

    world_init(&w);
    learn(&w);
    for (size_t i = 0; i < G_N_ELEMENTS(words); i++) {
        rx_answer(&w, VR_SYN_NAK_PSN, 4, VR_SP_NAMES, words[i]);
        g_assert_cmpuint(w.vq->req.num_gaps, ==, 0);
        g_assert_false(w.vq->req.peer_names);
    }
    /* More gaps than are remembered. */
    for (uint32_t i = 1; i < 20; i += 2) {
        rx_answer(&w, VR_SYN_NAK_PSN, 4, VR_SP_NAMES, 22 << 16 | i << 8 | 1);
    }
    g_assert_cmpuint(w.vq->req.num_gaps, ==, VR_MAX_GAPS);
    rx_answer(&w, VR_SYN_ACK, 27, 0, 0);
    g_assert_cmpuint(w.vq->req.consumer, ==, w.vq->req.producer);
    drv_end_fini(&w.end);
}

/* Gaps that overlap: each packet is sent again once. */
static void test_overlap(void)
{
    struct world w;

    world_init(&w);
    learn(&w);
    rx_answer(&w, VR_SYN_NAK_PSN, 4, VR_SP_NAMES, 20 << 16 | 10 << 8 | 5);
    for (uint32_t start = 1; start < 20; start++) {
        rx_answer(&w, VR_SYN_NAK_PSN, 4, VR_SP_NAMES,
                  20 << 16 | start << 8 | (20 - start));
    }
    for (uint32_t i = 0; i < w.vq->req.num_gaps; i++) {
        for (uint32_t k = 0; k < i; k++) {
            g_assert_false(vr_gap_overlap(&w.vq->req.gaps[i],
                                          &w.vq->req.gaps[k]));
        }
    }
    drv_end_fini(&w.end);
}

/* What was not asked for is not learned; what una has passed is cut off. */
static void test_limits(void)
{
    struct world w;

    world_init(&w);
    post_sends(&w, 20);
    rx_answer(&w, VR_SYN_NAK_PSN, 0, VR_SP_NAMES, 9 << 16 | 6 << 8 | 2);
    g_assert_false(w.vq->req.peer_names);
    g_assert_cmpuint(w.vq->req.num_gaps, ==, 0);
    drv_end_fini(&w.end);

    world_init(&w);
    learn(&w);
    rx_answer(&w, VR_SYN_NAK_PSN, 4, VR_SP_NAMES, 12 << 16 | 6 << 8 | 4);
    rx_answer(&w, VR_SYN_ACK, 11, 0, 0);
    g_assert_cmpuint(w.vq->req.num_gaps, ==, 1);
    g_assert_cmphex(w.vq->req.gaps[0].psn, ==, vr_psn_add(PSN, 12));
    g_assert_cmpuint(w.vq->req.gaps[0].num, ==, 2);
    drv_end_fini(&w.end);
}

/* A peer that does not keep after all is not asked any more. */
static void test_unlearn(void)
{
    struct world w;

    world_init(&w);
    learn(&w);
    rx_answer(&w, VR_SYN_NAK_PSN, 4, 0, 0);
    assert_sent(&w, 0, 4, true);
    rx_answer(&w, VR_SYN_NAK_PSN, vr_psn_diff(w.vq->req.skip, PSN), 0, 0);
    g_assert_false(w.vq->req.peer_keeps);
    assert_sent(&w, 0, vr_psn_diff(w.vq->req.una, PSN), false);
    drv_end_fini(&w.end);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/gap/responder", test_responder);
    g_test_add_func("/gap/burst", test_burst);
    g_test_add_func("/gap/far", test_far);
    g_test_add_func("/gap/hostile-reads", test_hostile_reads);
    g_test_add_func("/gap/all-refused", test_all_refused);
    g_test_add_func("/gap/requester", test_requester);
    g_test_add_func("/gap/overlap", test_overlap);
    g_test_add_func("/gap/limits", test_limits);
    g_test_add_func("/gap/room", test_room);
    g_test_add_func("/gap/nonsense", test_nonsense);
    g_test_add_func("/gap/unlearn", test_unlearn);
    return g_test_run();
}
