/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What must hold at a guest's, a peer's or a wire's worst moment: a WQE that is
 * replaced while it goes out, a state that changes between two slices, numbers
 * at the edge of what the protocol can say.
 */
#include <string.h>

#include "couple.h"
#include "vr_transport.h"

/* A READ request from a to b, as it comes from the wire. */
static struct vr_sp read_request(struct world *w, uint32_t psn, uint32_t off,
                                 uint32_t len)
{
    const struct vr_qp *a = vr_qp_get(w->h->e, w->a.qpn);

    return (struct vr_sp) {
        .route = a->route, .qp_type = VROCE_QPT_RC, .op = VR_OP_READ_REQ,
        .flags = VR_SP_FIRST | VR_SP_LAST | VR_SP_ACKREQ, .mtu = a->mtu,
        .sqpn = w->a.qpn, .dqpn = w->b.qpn, .psn = psn, .npkt = 1,
        .rkey = w->mr.key, .va = IOVA + off, .dma_len = len,
    };
}

/*
 * A long message becomes one of a few inline bytes between two slices, with the
 * same hash: what lies behind these bytes in this process stays here.
 */
static void test_same_hash(void)
{
    struct world w = { 0 };
    uint64_t old[8], new[8];
    struct vroce_wqe_ctrl *ctrl = (void *)new;
    uint64_t sent;
    struct drv_wr wr;

    world_init(&w, VROCE_QPT_UC, false);
    w.ca.av.dgid[15] ^= 0x40;   /* out to the wire */
    connect_both(&w);
    wr = send_wr(&w, VROCE_WQE_SEND, 7, 0, MEM);
    post(&w.a, &wr);
    drv_ring(&w.a);
    sent = w.h->frames_sent;
    g_assert_cmpuint(sent, <, MEM >> 10);

    gmem_read(&w.a.mem, w.a.sq_off, old, sizeof(old));
    memcpy(new, old, sizeof(new));
    ctrl->flags |= VROCE_WQE_INLINE;
    ctrl->num_sge = 0;
    ctrl->inline_len = htole16(8);
    drv_same_hash(new, old);
    gmem_write(&w.a.mem, w.a.sq_off, new, sizeof(new));
    run(&w);
    g_assert_cmphex(w.h->e->wqe.hash, ==,
                    vr_shadow_at(vr_qp_get(w.h->e, w.a.qpn), 0)->hash);
    g_assert_cmpuint(w.h->frames_sent, ==, sent);
    expect(&w, 7, VROCE_WC_SEND, VROCE_WCS_LOC_QP_OP_ERR);
    g_assert_cmpuint(w.h->rules[VROCE_RULE_WQE_CHANGED], ==, 1);
    world_fini(&w);
}

/* Its head was lost: the last packet is as little there as on a wire. */
static void test_imm_without_head(void)
{
    struct world w = { 0 };
    struct vroce_eqe eqe;
    struct drv_wr wr;

    world_init(&w, VROCE_QPT_RC, false);
    connect_both(&w);
    wr = send_wr(&w, VROCE_WQE_WRITE_IMM, 1, 0, 3000);
    wr.sge[0].lkey ^= 1;
    wr.remote_addr = IOVA + 32768;
    wr.rkey = w.mr.key;
    post(&w.a, &wr);
    drv_ring(&w.a);
    run(&w);
    expect(&w, 1, VROCE_WC_WRITE, VROCE_WCS_LOC_PROT_ERR);
    expect_nothing(&w);
    g_assert_cmpint(state_of(&w, &w.a), ==, VROCE_QPS_ERR);
    g_assert_cmpint(state_of(&w, &w.b), ==, VROCE_QPS_RTS);
    g_assert_false(drv_eq_poll(&w.async, &eqe));
    world_fini(&w);
}

static bool second_is_full(void *opaque, const uint8_t *frame, size_t len)
{
    uint32_t *sent = opaque;

    return ++*sent != 2;
}

/* The wire fills, and is free again while the device is off. */
static void test_free_while_off(void)
{
    struct world w = { 0 };
    struct drv_wr wr;
    uint32_t sent = 0;

    world_init(&w, VROCE_QPT_RC, false);
    w.ca.av.dgid[15] ^= 0x40;
    connect_both(&w);
    w.h->frame_tx = second_is_full;
    w.h->opaque = &sent;
    wr = send_wr(&w, VROCE_WQE_SEND, 1, 0, 5000);
    post(&w.a, &wr);
    drv_ring(&w.a);
    run(&w);
    g_assert_cmpuint(sent, ==, 2);
    vr_set_enabled(w.h->e, false, w.h->now);
    fh_tx_ready(w.h);
    g_assert_cmpuint(sent, ==, 2);
    w.h->entered = true;
    vr_set_enabled(w.h->e, true, w.h->now);
    w.h->entered = false;
    run(&w);
    g_assert_cmpuint(sent, ==, 5);
    w.h->frame_tx = NULL;
    world_fini(&w);
}

/* What was posted behind a failure is flushed, however soon RTS comes. */
static void test_sqe_in_haste(void)
{
    struct world w = { 0 };
    struct drv_wr wr, nop = local_wr(VROCE_WQE_NOP, 3, 0);
    /* So many packets leave nothing of the doorbell's slice for flushing. */
    uint32_t packets = VR_SP_BYTES / (1024 + VR_PACKET_COST);

    world_init(&w, VROCE_QPT_UC, false);
    w.ca.av.dgid[15] ^= 0x40;
    connect_both(&w);
    wr = send_wr(&w, VROCE_WQE_SEND, 1, 0, packets * 1024);
    post(&w.a, &wr);
    wr = send_wr(&w, VROCE_WQE_SEND, 2, 0, 100);
    wr.sge[0].lkey ^= 1;
    post(&w.a, &wr);
    post(&w.a, &nop);
    drv_ring(&w.a);
    expect(&w, 1, VROCE_WC_SEND, VROCE_WCS_SUCCESS);
    expect(&w, 2, VROCE_WC_SEND, VROCE_WCS_LOC_PROT_ERR);
    expect_nothing(&w);
    g_assert_cmpint(state_of(&w, &w.a), ==, VROCE_QPS_SQE);
    modify(&w, &w.a, VROCE_QPS_RTS, 0, false);
    run(&w);
    expect(&w, 3, VROCE_WC_NOP, VROCE_WCS_WR_FLUSH_ERR);
    expect_nothing(&w);
    world_fini(&w);
}

/* What is posted while RTS is on its way does not hold it up for ever. */
static void test_sqe_refilled(void)
{
    struct vroce_modify_qp_in in = {
        .attr_mask = htole32(VROCE_QP_STATE), .attr.state = VROCE_QPS_RTS,
    };
    struct drv_wr wr, nop = local_wr(VROCE_WQE_NOP, 2, 0);
    struct world w = { 0 };
    uint32_t used, slices = 0;
    struct drv_cq cq;
    uint16_t rule;
    int status;

    world_init(&w, VROCE_QPT_UC, false);
    drv_qp_destroy(&w.a);
    drv_cq_create(w.d, &cq, 13, NULL);
    drv_qp_create(w.d, &w.a, &(struct drv_qp_init) {
        .type = VROCE_QPT_UC, .sq_log = 10, .rq_log = VROCE_NO_QUEUE,
        .max_recv_sge = 1, .scq = &cq, .rcq = &cq,
    });
    connect_both(&w);
    wr = send_wr(&w, VROCE_WQE_SEND, 1, 0, 100);
    wr.sge[0].lkey ^= 1;
    post(&w.a, &wr);
    drv_ring(&w.a);
    run(&w);
    g_assert_cmpint(state_of(&w, &w.a), ==, VROCE_QPS_SQE);
    in.qpn = htole32(w.a.qpn);
    do {
        drv_drain(&cq);
        w.h->entered = true;
        for (int i = 0; i < 1000 && drv_post_send(&w.a, &nop); i++) {
            vr_qp_get(w.h->e, w.a.qpn)->req.producer = w.a.sq_producer;
        }
        status = vr_command(w.h->e, VROCE_CMD_MODIFY_QP, &in, sizeof(in), NULL,
                            0, &used, &rule, w.h->now);
        w.h->entered = false;
        g_assert_cmpuint(++slices, <, 100);
    } while (status == VR_CMD_AGAIN);
    g_assert_cmpint(status, ==, VROCE_OK);
    g_assert_cmpuint(slices, >, 1);
    drv_drain(&cq);
    run(&w);
    drv_drain(&cq);
    drv_qp_destroy(&w.a);
    drv_cq_destroy(&cq);
    drv_qp_create(w.d, &w.a, &(struct drv_qp_init) {
        .type = VROCE_QPT_UC, .sq_log = 5, .rq_log = 4, .max_recv_sge = 1,
        .scq = &w.cq, .rcq = &w.cq,
    });
    world_fini(&w);
}

/* Who rings on a page that is not his leaves nothing at the QP he named. */
static void test_foreign_ring(void)
{
    struct world w = { 0 };

    world_init(&w, VROCE_QPT_RC, false);
    w.b.d->context = 0;
    vr_qp_get(w.h->e, w.a.qpn)->context = 1;
    fh_doorbell(w.h, 0, vroce_doorbell(VROCE_DB_SQ, w.a.qpn, 1));
    g_assert_cmpuint(w.h->rules[VROCE_RULE_DB_PAGE], ==, 1);
    g_assert_cmpuint(vr_qp_get(w.h->e, w.a.qpn)->last_rule, ==, 0);
    vr_qp_get(w.h->e, w.a.qpn)->context = 0;
    world_fini(&w);
}

/* No message has more than 2^31 bytes, however much its receive takes. */
static void test_send_too_long(void)
{
    struct drv_wr recv = {
        .num_sge = 1, .sge[0] = { .addr = IOVA, .length = UINT32_MAX },
    };
    struct world w = { 0 };
    struct vr_sp sp;

    world_init(&w, VROCE_QPT_RC, false);
    connect_both(&w);
    recv.sge[0].lkey = w.mr.key;
    g_assert_true(drv_post_recv(&w.b, &recv));
    sp = read_request(&w, 0, 0, 0);
    sp.op = VR_OP_SEND;
    sp.flags = VR_SP_FIRST;
    sp.payload = (struct vr_payload) {
        .kind = VR_PAYLOAD_BYTES, .len = sp.mtu,
        .bytes = gmem_at(&w.mem, 0, sp.mtu),
    };
    fh_deliver(w.h, w.h, &sp);
    vr_qp_get(w.h->e, w.b.qpn)->resp.received = VR_MAX_DMA_LEN - sp.mtu + 1;
    sp.flags = 0;
    sp.psn++;
    fh_deliver(w.h, w.h, &sp);
    run(&w);
    expect_event(&w, VROCE_EVENT_QP_REQ_ERR, w.b.qpn);
    world_fini(&w);
}

/* SQD stops only the own sends: a READ of the peer is answered to its end. */
static void test_resize_replay(void)
{
    struct vroce_modify_qp_in in = {
        .attr_mask = htole32(VROCE_QP_MAX_DEST_RD_ATOMIC),
        .attr = { .max_dest_rd_atomic = 2 },
    };
    struct world w = { 0 };
    struct drv_wr wr;

    world_init(&w, VROCE_QPT_RC, false);
    connect_both(&w);
    modify(&w, &w.b, VROCE_QPS_SQD, 0, false);
    for (uint32_t i = 1; i <= 3; i++) {
        wr = send_wr(&w, VROCE_WQE_READ, i, 0, MEM / 2);
        wr.remote_addr = IOVA + MEM / 2;
        wr.rkey = w.mr.key;
        post(&w.a, &wr);
    }
    drv_ring(&w.a);
    g_assert_cmpuint(vr_qp_get(w.h->e, w.b.qpn)->resp.replay_active, >, 0);
    in.qpn = htole32(w.b.qpn);
    g_assert_cmpint(fh_command(w.h, VROCE_CMD_MODIFY_QP, &in, sizeof(in), NULL,
                               0, NULL), ==, VROCE_OK);
    run(&w);
    for (uint32_t i = 1; i <= 3; i++) {
        expect(&w, i, VROCE_WC_READ, VROCE_WCS_SUCCESS);
    }
    g_assert_cmpuint(w.h->e->counters[VROCE_CNT_RETRANSMITTED], ==, 0);
    world_fini(&w);
}

/* Half of all PSNs: old could not be told from new, IBA 9.7.2. */
static void test_read_too_long(void)
{
    struct world w = { 0 };
    struct vr_sp sp;

    world_init(&w, VROCE_QPT_RC, false);
    w.ca.path_mtu = w.cb.path_mtu = 1;
    connect_both(&w);
    sp = read_request(&w, 0, 0, VR_MAX_DMA_LEN);
    fh_deliver(w.h, w.h, &sp);
    run(&w);
    expect_event(&w, VROCE_EVENT_QP_REQ_ERR, w.b.qpn);
    world_fini(&w);
}

/* The PSNs have wrapped: a repeated READ is that of today. */
static void test_stale_replay(void)
{
    struct world w = { 0 };
    struct vr_qp *b;
    struct vr_sp sp;
    uint64_t answers;

    world_init(&w, VROCE_QPT_RC, false);
    connect_both(&w);
    b = vr_qp_get(w.h->e, w.b.qpn);
    sp = read_request(&w, 0, 0, 8);
    fh_deliver(w.h, w.h, &sp);
    run(&w);
    b->resp.psn = 0;            /* 2^24 packets later */
    sp = read_request(&w, 0, 64, 8);
    fh_deliver(w.h, w.h, &sp);
    run(&w);
    answers = w.h->e->counters[VROCE_CNT_LOOPBACK_PACKETS];
    g_assert_cmpuint(answers, ==, 2);
    fh_deliver(w.h, w.h, &sp);
    run(&w);
    g_assert_cmpuint(w.h->e->counters[VROCE_CNT_LOOPBACK_PACKETS], ==,
                     answers + 1);
    world_fini(&w);
}

/* What a QP had under way to itself does not outlive its reset. */
static void test_reset_loop(void)
{
    struct world w = { 0 };
    struct vr_sp sp;

    world_init(&w, VROCE_QPT_RC, false);
    connect_both(&w);
    sp = read_request(&w, 0, 0, 8);
    vr_loop_push(w.h->e, &sp);
    modify(&w, &w.a, VROCE_QPS_RESET, 0, false);
    run(&w);
    g_assert_cmpuint(w.h->e->counters[VROCE_CNT_RX_NO_QP], ==, 1);
    g_assert_cmpuint(vr_qp_get(w.h->e, w.b.qpn)->resp.psn, ==, 0);
    world_fini(&w);
}

/* A long queue is not flushed in one go: others have their turn between. */
static void test_flush_slices(void)
{
    struct drv_wr nop = local_wr(VROCE_WQE_NOP, 0, 0);
    struct world w = { 0 };
    struct drv_qp long_qp;
    struct drv_cq cq;
    struct drv_qp_init init = {
        .type = VROCE_QPT_RC, .sq_log = 12, .rq_log = VROCE_NO_QUEUE,
        .max_recv_sge = 1, .scq = &cq, .rcq = &cq,
    };
    struct vroce_cqe cqe;
    uint32_t posted = 0, flushed = 0;

    world_init(&w, VROCE_QPT_RC, false);
    drv_cq_create(w.d, &cq, 13, NULL);
    drv_qp_create(w.d, &long_qp, &init);
    drv_qp_connect(&long_qp, &w.ca);
    modify(&w, &long_qp, VROCE_QPS_ERR, 0, false);
    while (drv_post_send(&long_qp, &nop)) {
        posted++;
    }
    drv_ring(&long_qp);
    while (drv_poll(&cq, &cqe)) {
        flushed++;
    }
    g_assert_cmpuint(flushed, <=, VR_SP_BYTES / VR_PACKET_COST);
    run(&w);
    while (drv_poll(&cq, &cqe)) {
        g_assert_cmpint(cqe.status, ==, VROCE_WCS_WR_FLUSH_ERR);
        flushed++;
    }
    g_assert_cmpuint(flushed, ==, posted);
    drv_qp_destroy(&long_qp);
    drv_cq_destroy(&cq);
    world_fini(&w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/hostile/same-hash", test_same_hash);
    g_test_add_func("/hostile/imm-without-head", test_imm_without_head);
    g_test_add_func("/hostile/free-while-off", test_free_while_off);
    g_test_add_func("/hostile/sqe-in-haste", test_sqe_in_haste);
    g_test_add_func("/hostile/sqe-refilled", test_sqe_refilled);
    g_test_add_func("/hostile/foreign-ring", test_foreign_ring);
    g_test_add_func("/hostile/send-too-long", test_send_too_long);
    g_test_add_func("/hostile/resize-replay", test_resize_replay);
    g_test_add_func("/hostile/read-too-long", test_read_too_long);
    g_test_add_func("/hostile/stale-replay", test_stale_replay);
    g_test_add_func("/hostile/reset-loop", test_reset_loop);
    g_test_add_func("/hostile/flush-slices", test_flush_slices);
    return g_test_run();
}
