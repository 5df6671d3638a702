/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the simulation's random work does not reach: local operations, key
 * invalidation, draining, async events, and send queues that change or are rung
 * too early. Two QPs of one engine, connected to each other.
 */
#include <string.h>

#include "couple.h"

#define ALL_RIGHTS (VROCE_ACCESS_LOCAL_WRITE | VROCE_ACCESS_REMOTE_WRITE | \
                    VROCE_ACCESS_REMOTE_READ | VROCE_ACCESS_REMOTE_ATOMIC)

/* --------------------------------------------------- fast registration */

static uint32_t fast_mr(struct world *w)
{
    return drv_fast_mr_create(w->d, 16);
}

static void post_fast_reg(struct world *w, struct drv_qp *qp, uint32_t key,
                          uint64_t wr_id)
{
    drv_post_fast_reg(qp, key, &w->mem, 0x1000, ALL_RIGHTS, wr_id);
}

/* Registered in queue order, used by the peer, invalidated by its SEND. */
static void test_fast_reg(void)
{
    struct drv_wr recv = { .wr_id = 50 }, wr;
    struct vroce_cqe cqe;
    uint8_t byte = 0xa5;
    struct world w = { 0 };
    uint32_t key;

    world_init(&w, VROCE_QPT_RC, false);
    connect_both(&w);
    key = fast_mr(&w);
    post_fast_reg(&w, &w.b, key, 1);
    drv_ring(&w.b);
    run(&w);
    expect(&w, 1, VROCE_WC_FAST_REG, VROCE_WCS_SUCCESS);

    gmem_write(&w.mem, 5, &byte, 1);
    wr = send_wr(&w, VROCE_WQE_WRITE, 2, 5, 1);
    wr.remote_addr = 0x1000 + 100;
    wr.rkey = key;
    post(&w.a, &wr);
    drv_ring(&w.a);
    run(&w);
    expect(&w, 2, VROCE_WC_WRITE, VROCE_WCS_SUCCESS);
    gmem_read(&w.mem, 100, &byte, 1);
    g_assert_cmphex(byte, ==, 0xa5);

    g_assert_true(drv_post_recv(&w.b, &recv));
    wr = send_wr(&w, VROCE_WQE_SEND_INV, 3, 0, 0);
    wr.num_sge = 0;
    wr.inv_key = key;
    post(&w.a, &wr);
    drv_ring(&w.a);
    run(&w);
    g_assert_true(drv_poll(&w.cq, &cqe));
    g_assert_cmpuint(le64toh(cqe.wr_id), ==, 50);
    g_assert_cmpint(le16toh(cqe.flags), ==, VROCE_CQE_INV);
    g_assert_cmphex(le32toh(cqe.inv_key), ==, key);
    expect(&w, 3, VROCE_WC_SEND, VROCE_WCS_SUCCESS);

    /* The key is dead now, for LOCAL_INV as for the peer. */
    wr = send_wr(&w, VROCE_WQE_WRITE, 4, 5, 1);
    wr.remote_addr = 0x1000;
    wr.rkey = key;
    post(&w.a, &wr);
    drv_ring(&w.a);
    run(&w);
    expect(&w, 4, VROCE_WC_WRITE, VROCE_WCS_REM_ACCESS_ERR);
    expect_event(&w, VROCE_EVENT_QP_ACCESS_ERR, w.b.qpn);
    g_assert_cmpint(state_of(&w, &w.a), ==, VROCE_QPS_ERR);
    g_assert_cmpint(state_of(&w, &w.b), ==, VROCE_QPS_ERR);
    g_assert_cmpint(drv_number(w.d, VROCE_CMD_DESTROY_MR, key), ==, VROCE_OK);
    world_fini(&w);
}

/* LOCAL_INV waits for what came before; NOP completes in its turn. */
static void test_local_order(void)
{
    struct world w = { 0 };
    struct drv_wr wr;
    uint32_t key;

    world_init(&w, VROCE_QPT_RC, false);
    connect_both(&w);
    key = fast_mr(&w);
    post_fast_reg(&w, &w.a, key, 1);
    wr = send_wr(&w, VROCE_WQE_WRITE, 2, 0, 30000);
    wr.sge[0].addr = 0x1000;
    wr.sge[0].lkey = key;
    wr.remote_addr = IOVA + 32768;
    wr.rkey = w.mr.key;
    post(&w.a, &wr);
    wr = local_wr(VROCE_WQE_LOCAL_INV, 3, key);
    post(&w.a, &wr);
    wr = local_wr(VROCE_WQE_NOP, 4, 0);
    post(&w.a, &wr);
    drv_ring(&w.a);
    run(&w);
    expect(&w, 1, VROCE_WC_FAST_REG, VROCE_WCS_SUCCESS);
    expect(&w, 2, VROCE_WC_WRITE, VROCE_WCS_SUCCESS);
    expect(&w, 3, VROCE_WC_LOCAL_INV, VROCE_WCS_SUCCESS);
    expect(&w, 4, VROCE_WC_NOP, VROCE_WCS_SUCCESS);

    wr = local_wr(VROCE_WQE_LOCAL_INV, 5, key);
    post(&w.a, &wr);
    drv_ring(&w.a);
    run(&w);
    expect(&w, 5, VROCE_WC_LOCAL_INV, VROCE_WCS_MW_BIND_ERR);
    g_assert_cmpuint(w.h->rules[VROCE_RULE_KEY], ==, 1);
    g_assert_cmpint(drv_number(w.d, VROCE_CMD_DESTROY_MR, key), ==, VROCE_OK);
    world_fini(&w);
}

/* ------------------------------------------------------ states, events */

/* SQD lets what was begun finish, tells so once, and holds what comes. */
static void test_drain(void)
{
    struct world w = { 0 };
    struct vroce_eqe eqe;
    struct drv_wr wr;

    world_init(&w, VROCE_QPT_RC, false);
    connect_both(&w);
    wr = send_wr(&w, VROCE_WQE_WRITE, 1, 0, 8);
    wr.remote_addr = IOVA + 4096;
    wr.rkey = w.mr.key;
    post(&w.a, &wr);
    drv_ring(&w.a);
    modify(&w, &w.a, VROCE_QPS_SQD, VROCE_QP_EN_SQD_ASYNC_NOTIFY, true);
    run(&w);
    expect(&w, 1, VROCE_WC_WRITE, VROCE_WCS_SUCCESS);
    expect_event(&w, VROCE_EVENT_SQ_DRAINED, w.a.qpn);

    wr.wr_id = 2;
    post(&w.a, &wr);
    drv_ring(&w.a);
    run(&w);
    expect_nothing(&w);
    g_assert_false(drv_eq_poll(&w.async, &eqe));

    modify(&w, &w.a, VROCE_QPS_RTS, 0, false);
    run(&w);
    expect(&w, 2, VROCE_WC_WRITE, VROCE_WCS_SUCCESS);
    world_fini(&w);
}

/* The first packet in RTR says COMM_EST, once. */
static void test_comm_est(void)
{
    struct drv_wr recv = { .wr_id = 9 }, wr;
    struct world w = { 0 };
    struct vroce_eqe eqe;
    uint16_t rule;

    world_init(&w, VROCE_QPT_RC, false);
    drv_qp_connect(&w.a, &w.ca);
    for (int s = VROCE_QPS_INIT; s <= VROCE_QPS_RTR; s++) {
        g_assert_cmpint(drv_try_modify(&w.b, s, &w.cb, &rule), ==, VROCE_OK);
    }
    for (int i = 0; i < 2; i++) {
        g_assert_true(drv_post_recv(&w.b, &recv));
        wr = send_wr(&w, VROCE_WQE_SEND, i, 0, 0);
        wr.num_sge = 0;
        post(&w.a, &wr);
        drv_ring(&w.a);
        run(&w);
        expect(&w, 9, VROCE_WC_RECV, VROCE_WCS_SUCCESS);
        expect(&w, i, VROCE_WC_SEND, VROCE_WCS_SUCCESS);
    }
    expect_event(&w, VROCE_EVENT_COMM_EST, w.b.qpn);
    g_assert_false(drv_eq_poll(&w.async, &eqe));
    world_fini(&w);
}

/* A QP of an SRQ takes no more from it: its owner learns when to destroy it. */
static void test_last_wqe(void)
{
    struct drv_wr recv = { .wr_id = 1 };
    struct world w = { 0 };
    struct vroce_eqe eqe;

    world_init(&w, VROCE_QPT_RC, true);
    connect_both(&w);
    g_assert_true(drv_srq_post(&w.srq, &recv));
    modify(&w, &w.b, VROCE_QPS_ERR, 0, false);
    run(&w);
    expect_event(&w, VROCE_EVENT_LAST_WQE_REACHED, w.b.qpn);
    g_assert_false(drv_eq_poll(&w.async, &eqe));
    expect_nothing(&w);
    world_fini(&w);
}

/* ------------------------------------------------ unreliable connections */

/* Messages of several packets arrive; one that does not fit is just lost. */
static void test_uc(void)
{
    static const uint32_t len[] = { 0, 1, 1024, 1025, 30000 };
    struct drv_wr recv = {
        .num_sge = 1, .sge[0] = { .addr = IOVA + 32768, .length = 30000 },
    };
    struct world w = { 0 };
    struct drv_wr wr;
    uint8_t out[30000], in[30000];

    world_init(&w, VROCE_QPT_UC, false);
    connect_both(&w);
    recv.sge[0].lkey = w.mr.key;
    for (size_t i = 0; i < G_N_ELEMENTS(len); i++) {
        memset(out, i + 1, sizeof(out));
        gmem_write(&w.mem, 0, out, sizeof(out));
        wr = send_wr(&w, VROCE_WQE_SEND, 3, 0, 30001);
        post(&w.a, &wr);        /* nobody has room for it */
        wr = send_wr(&w, i % 2 ? VROCE_WQE_WRITE_IMM : VROCE_WQE_SEND, 2, 0,
                     len[i]);
        wr.remote_addr = IOVA + 32768;
        wr.rkey = w.mr.key;
        post(&w.a, &wr);
        recv.wr_id = i;
        g_assert_true(drv_post_recv(&w.b, &recv));
        drv_ring(&w.a);
        run(&w);
        /* A send completes when it was sent, so before it arrives. */
        expect(&w, 3, VROCE_WC_SEND, VROCE_WCS_SUCCESS);
        expect(&w, 2, i % 2 ? VROCE_WC_WRITE : VROCE_WC_SEND,
               VROCE_WCS_SUCCESS);
        expect(&w, i, i % 2 ? VROCE_WC_RECV_WRITE_IMM : VROCE_WC_RECV,
               VROCE_WCS_SUCCESS);
        gmem_read(&w.mem, 32768, in, sizeof(in));
        g_assert_cmpmem(in, len[i], out, len[i]);
    }
    expect_nothing(&w);
    world_fini(&w);
}

/* A local error stops only the send queue; RTS starts it anew, IBA 10.3.1.6. */
static void test_uc_sqe(void)
{
    struct world w = { 0 };
    struct drv_wr wr, nop = local_wr(VROCE_WQE_NOP, 2, 0);

    world_init(&w, VROCE_QPT_UC, false);
    connect_both(&w);
    wr = send_wr(&w, VROCE_WQE_SEND, 1, 0, 5000);
    wr.sge[0].lkey ^= 1;
    post(&w.a, &wr);
    post(&w.a, &nop);
    drv_ring(&w.a);
    run(&w);
    expect(&w, 1, VROCE_WC_SEND, VROCE_WCS_LOC_PROT_ERR);
    expect(&w, 2, VROCE_WC_NOP, VROCE_WCS_WR_FLUSH_ERR);
    g_assert_cmpint(state_of(&w, &w.a), ==, VROCE_QPS_SQE);
    modify(&w, &w.a, VROCE_QPS_RTS, 0, false);
    post(&w.a, &nop);
    drv_ring(&w.a);
    run(&w);
    expect(&w, 2, VROCE_WC_NOP, VROCE_WCS_SUCCESS);
    world_fini(&w);
}

/* ----------------------------------------------------- misused queues */

/* Rung before the WQE was written: it fails, and so does what follows. */
static void test_rung_early(void)
{
    struct world w = { 0 };
    struct drv_wr wr;

    world_init(&w, VROCE_QPT_RC, false);
    connect_both(&w);
    w.a.sq_producer++;          /* a unit that nobody wrote */
    wr = local_wr(VROCE_WQE_NOP, 2, 0);
    post(&w.a, &wr);
    /* The unit is zero, and index 0 is what it should say: spoil that. */
    gmem_write(&w.a.mem, offsetof(struct vroce_wqe_ctrl, index), "\x55\xaa", 2);
    drv_ring(&w.a);
    run(&w);
    expect(&w, 0, VROCE_WC_NOP, VROCE_WCS_LOC_QP_OP_ERR);
    expect_nothing(&w);         /* where the next begins nobody knows */
    g_assert_cmpuint(w.h->rules[VROCE_RULE_WQE_INDEX], ==, 1);
    g_assert_cmpint(state_of(&w, &w.a), ==, VROCE_QPS_ERR);
    world_fini(&w);
}

/* Changed between two transmissions: found by the hash, named by its rule. */
static void test_changed(void)
{
    struct world w = { 0 };
    struct vroce_cqe cqe;
    struct drv_wr wr;
    uint64_t addr = htole64(IOVA + 8);

    world_init(&w, VROCE_QPT_RC, false);
    w.ca.av.dgid[15] ^= 0x40;   /* out to the wire, where nobody answers */
    w.ca.timeout = 10;
    connect_both(&w);
    wr = send_wr(&w, VROCE_WQE_SEND, 7, 0, 100);
    post(&w.a, &wr);
    drv_ring(&w.a);
    run(&w);
    g_assert_cmpuint(w.h->frames_sent, ==, 1);
    expect_nothing(&w);
    gmem_write(&w.a.mem, sizeof(struct vroce_wqe_ctrl), &addr, sizeof(addr));
    fh_advance(w.h, 40000000);
    g_assert_true(drv_poll(&w.cq, &cqe));
    g_assert_cmpint(cqe.status, ==, VROCE_WCS_LOC_QP_OP_ERR);
    g_assert_cmpint(le16toh(cqe.rule), ==, VROCE_RULE_WQE_CHANGED);
    g_assert_cmpuint(w.h->frames_sent, ==, 1);
    world_fini(&w);
}

/* A page that does not own the queue changes nothing. */
static void test_foreign_page(void)
{
    struct world w = { 0 };
    struct drv_wr wr = local_wr(VROCE_WQE_NOP, 1, 0);
    uint32_t page;
    uint16_t rule;

    world_init(&w, VROCE_QPT_RC, false);
    connect_both(&w);
    g_assert_cmpint(drv_try_create(w.d, VROCE_CMD_ALLOC_CONTEXT, NULL, 0, &page,
                                   &rule), ==, VROCE_OK);
    post(&w.a, &wr);
    fh_doorbell(w.h, page, vroce_doorbell(VROCE_DB_SQ, w.a.qpn,
                                          w.a.sq_producer));
    run(&w);
    expect_nothing(&w);
    g_assert_cmpuint(w.h->rules[VROCE_RULE_DB_PAGE], ==, 1);
    drv_ring(&w.a);
    run(&w);
    expect(&w, 1, VROCE_WC_NOP, VROCE_WCS_SUCCESS);
    g_assert_cmpint(drv_number(w.d, VROCE_CMD_FREE_CONTEXT, page), ==,
                    VROCE_OK);
    world_fini(&w);
}

static struct drv_wr datagram(struct world *w, uint64_t wr_id, uint32_t len)
{
    struct drv_wr wr = send_wr(w, VROCE_WQE_SEND, wr_id, 0, len);

    wr.av = w->ca.av;
    wr.dest_qpn = w->b.qpn;
    wr.qkey = w->cb.qkey;
    return wr;
}

/* A datagram to ourselves does not wait for a wire that is full. */
static void test_ud_loopback(void)
{
    struct drv_wr wr, recv;
    struct world w = { 0 };

    world_init(&w, VROCE_QPT_UD, false);
    connect_both(&w);
    recv = send_wr(&w, 0, 1, 4096, 140);
    g_assert_true(drv_post_recv(&w.b, &recv));
    w.h->e->tx_full = true;
    wr = datagram(&w, 2, 100);
    post(&w.a, &wr);
    drv_ring(&w.a);
    run(&w);
    expect(&w, 2, VROCE_WC_SEND, VROCE_WCS_SUCCESS);
    expect(&w, 1, VROCE_WC_RECV, VROCE_WCS_SUCCESS);
    world_fini(&w);
}

/* One that is too long for the receive is dropped; the next one fits it. */
static void test_ud_too_long(void)
{
    struct vr_qp_info info;
    struct drv_wr wr, recv;
    struct world w = { 0 };

    world_init(&w, VROCE_QPT_UD, true);
    connect_both(&w);
    recv = send_wr(&w, 0, 1, 4096, 140);
    g_assert_true(drv_srq_post(&w.srq, &recv));
    wr = datagram(&w, 2, 101);
    post(&w.a, &wr);
    wr = datagram(&w, 3, 100);
    post(&w.a, &wr);
    drv_ring(&w.a);
    run(&w);
    expect(&w, 2, VROCE_WC_SEND, VROCE_WCS_SUCCESS);
    expect(&w, 3, VROCE_WC_SEND, VROCE_WCS_SUCCESS);
    expect(&w, 1, VROCE_WC_RECV, VROCE_WCS_SUCCESS);
    expect_nothing(&w);
    g_assert_true(vr_query_qp(w.h->e, w.b.qpn, &info));
    g_assert_cmpint(info.state, ==, VROCE_QPS_RTS);
    g_assert_cmpuint(vr_counters(w.h->e)[VROCE_CNT_RX_UD_NO_BUFFER], ==, 1);
    world_fini(&w);
}

/* A dead device says so once, moderation or not, and does nothing more. */
static void test_fatal(void)
{
    struct drv_wr wr;
    struct world w = { 0 };

    world_init(&w, VROCE_QPT_RC, false);
    connect_both(&w);
    drv_eq_arm(&w.async);
    vr_set_moderation(w.h->e, 0, 10000);
    w.h->e->moderation[0].last = w.h->now;
    w.h->entered = true;
    vr_fatal(w.h->e, VROCE_FATAL_CMDQ);
    vr_fatal(w.h->e, VROCE_FATAL_INJECTED);
    w.h->entered = false;
    g_assert_cmpint(w.h->fatal, ==, VROCE_FATAL_CMDQ);
    g_assert_cmpuint(w.h->irqs[0], ==, 1);
    expect_event(&w, VROCE_EVENT_DEVICE_FATAL, 0);
    wr = send_wr(&w, VROCE_WQE_WRITE, 1, 0, 100);
    post(&w.a, &wr);
    drv_ring(&w.a);
    run(&w);
    expect_nothing(&w);
    fh_reset(w.h);
    w.d->gone = true;
    world_fini(&w);
}

/* No event is written to a guest that has taken the memory away. */
static void test_link_disabled(void)
{
    struct world w = { 0 };
    struct vroce_eqe eqe;

    world_init(&w, VROCE_QPT_RC, false);
    w.h->e->tx_full = true;
    w.h->entered = true;
    vr_set_link(w.h->e, false, w.h->now);
    w.h->entered = false;
    expect_event(&w, VROCE_EVENT_PORT_DOWN, 1);
    g_assert_false(w.h->e->tx_full);
    vr_set_enabled(w.h->e, false, w.h->now);
    vr_set_link(w.h->e, true, w.h->now);
    w.h->entered = true;
    vr_set_enabled(w.h->e, true, w.h->now);
    w.h->entered = false;
    g_assert_false(drv_eq_poll(&w.async, &eqe));
    world_fini(&w);
}

/* What the management interface shows of a path and of an SRQ. */
static void test_inspection(void)
{
    struct vr_qp_info info;
    struct vr_srq_info srq;
    struct world w = { 0 };

    world_init(&w, VROCE_QPT_RC, true);
    g_assert_true(vr_query_qp(w.h->e, w.a.qpn, &info));
    g_assert_cmpuint(info.path_mtu, ==, 0);
    connect_both(&w);
    g_assert_true(vr_query_qp(w.h->e, w.a.qpn, &info));
    g_assert_cmpuint(info.path_mtu, ==, 128u << w.ca.path_mtu);
    g_assert_cmpuint(info.sgid_index, ==, 0);
    g_assert_cmpmem(info.dgid, 16, w.d->gid[0], 16);

    g_assert_true(vr_query_srq(w.h->e, w.srq.srqn, &srq));
    g_assert_cmpuint(srq.entries, ==, 16);
    g_assert_cmpuint(srq.users, ==, 1);
    g_assert_cmpuint(srq.pdn, ==, w.d->pdn);
    g_assert_false(vr_query_srq(w.h->e, w.srq.srqn + 1, &srq));
    world_fini(&w);
}

/* A transition that is refused is one mistake, of this QP. */
static void test_refused_once(void)
{
    struct vr_qp_info info;
    struct world w = { 0 };
    uint16_t rule;

    world_init(&w, VROCE_QPT_RC, false);
    g_assert_cmpint(drv_try_modify(&w.a, VROCE_QPS_RTS, &w.ca, &rule), ==,
                    VROCE_ERR_STATE);
    g_assert_cmpint(rule, ==, VROCE_RULE_QP_TRANSITION);
    g_assert_cmpuint(w.h->rules[rule], ==, 1);
    g_assert_cmpuint(vr_counters(w.h->e)[VROCE_CNT_MISUSE], ==, 1);
    g_assert_true(vr_query_qp(w.h->e, w.a.qpn, &info));
    g_assert_cmpint(info.last_rule, ==, rule);
    world_fini(&w);
}

/* What user space receives into by an SRQ is not opened to all memory. */
static void test_srq_privilege(void)
{
    struct vroce_create_mr_in dma = {
        .kind = VROCE_MR_DMA, .access = htole32(VROCE_ACCESS_LOCAL_WRITE),
    };
    struct drv_qp_init init = {
        .type = VROCE_QPT_RC, .sq_log = 5, .rq_log = VROCE_NO_QUEUE,
    };
    struct world w = { 0 };
    struct drv_qp user;
    uint32_t key, page, pdn, kernel_pdn;
    uint16_t rule;

    world_init(&w, VROCE_QPT_RC, true);
    drv_try_create(w.d, VROCE_CMD_ALLOC_CONTEXT, NULL, 0, &page, &rule);
    drv_try_create(w.d, VROCE_CMD_ALLOC_PD, NULL, 0, &pdn, &rule);
    kernel_pdn = w.d->pdn;
    init.scq = init.rcq = &w.cq;
    init.srq = &w.srq;
    w.d->context = page;
    w.d->pdn = pdn;
    drv_qp_create(w.d, &user, &init);
    w.d->context = 0;
    w.d->pdn = kernel_pdn;

    dma.pdn = htole32(kernel_pdn);
    g_assert_cmpint(drv_try_create(w.d, VROCE_CMD_CREATE_MR, &dma, sizeof(dma),
                                   &key, &rule), ==, VROCE_ERR_PERMISSION);
    drv_qp_destroy(&user);
    g_assert_cmpint(drv_try_create(w.d, VROCE_CMD_CREATE_MR, &dma, sizeof(dma),
                                   &key, &rule), ==, VROCE_OK);
    drv_number(w.d, VROCE_CMD_DESTROY_MR, key);
    drv_number(w.d, VROCE_CMD_FREE_PD, pdn);
    drv_number(w.d, VROCE_CMD_FREE_CONTEXT, page);
    world_fini(&w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/transport/fast-reg", test_fast_reg);
    g_test_add_func("/transport/local-order", test_local_order);
    g_test_add_func("/transport/drain", test_drain);
    g_test_add_func("/transport/comm-est", test_comm_est);
    g_test_add_func("/transport/last-wqe", test_last_wqe);
    g_test_add_func("/transport/uc", test_uc);
    g_test_add_func("/transport/uc-sqe", test_uc_sqe);
    g_test_add_func("/transport/rung-early", test_rung_early);
    g_test_add_func("/transport/changed", test_changed);
    g_test_add_func("/transport/foreign-page", test_foreign_page);
    g_test_add_func("/transport/ud-loopback", test_ud_loopback);
    g_test_add_func("/transport/ud-too-long", test_ud_too_long);
    g_test_add_func("/transport/fatal", test_fatal);
    g_test_add_func("/transport/link-disabled", test_link_disabled);
    g_test_add_func("/transport/inspection", test_inspection);
    g_test_add_func("/transport/refused-once", test_refused_once);
    g_test_add_func("/transport/srq-privilege", test_srq_privilege);
    return g_test_run();
}
