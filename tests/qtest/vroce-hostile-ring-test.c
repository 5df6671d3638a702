/*
 * QTest of the vroce RDMA network card: rings of a hostile guest that lie in
 * each other, or in the card
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "vroce-hostile.h"

static const enum place bars[] = { AT_REGISTERS, AT_DOORBELLS };

static uint8_t state_of(Driver *d, const Qp *qp)
{
    struct vroce_number in = { .number = cpu_to_le32(qp->qpn) };
    struct vroce_qp_attr attr;

    card_cmd(d->c, VROCE_CMD_QUERY_QP, &in, sizeof(in), &attr, sizeof(attr));
    return attr.state;
}

/* A work request that does nothing but complete. */
static void post_nop(Driver *d, Qp *qp)
{
    uint64_t at = qp->sq + (qp->posted & ((1 << SQ_LOG) - 1)) * VROCE_SQ_UNIT;

    post_send(d, qp, VROCE_WQE_NOP, 7, NULL, 0, 0, 0);
    qtest_writeb(d->c->qts, at + offsetof(struct vroce_wqe_ctrl, num_sge), 0);
}

/* ---------------------------------------------------- rings in each other */

/* Answers over commands: those are copied before, or refused as commands. */
static void test_cmdq_of_answers(void)
{
    Card *c = card_start("");
    const uint32_t size = 1 << CMDQ_LOG;
    uint64_t out = card_alloc(c, 4096);

    card_enable(c);
    card_put(c, VROCE_REG_CTRL, 0);
    card_put64(c, VROCE_REG_CMDQ_CQ_BASE, c->sq);
    card_put(c, VROCE_REG_CTRL, VROCE_CTRL_ENABLE);
    c->cq = c->sq;
    for (uint32_t i = 0; i < size; i++) {
        struct vroce_cmd cmd = {
            .opcode = VROCE_CMD_ALLOC_PD, .id = cpu_to_le16(i),
            .out_len = cpu_to_le32(8), .out_addr = cpu_to_le64(out),
        };

        card_queue_cmd(c, &cmd);
    }
    card_ring_cmdq(c);
    for (uint32_t i = 0; i < size; i++) {
        struct vroce_cmd_cpl cpl = card_wait_cpl(c, i);

        g_assert_cmpint(cpl.status, ==, VROCE_OK);
        g_assert_cmpint(le16_to_cpu(cpl.id), ==, i);
    }
    /* In the next lap the first half is answers; the rest are commands yet. */
    c->produced += size;
    card_ring_cmdq(c);
    for (uint32_t i = 0; i < size; i++) {
        g_assert_cmpint(card_wait_cpl(c, size + i).status, ==,
                        i < size / 2 ? VROCE_ERR_PARAM : VROCE_OK);
    }
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_RESERVED), ==, size / 2);
    g_assert_cmpint(card_get(c, VROCE_REG_FATAL), ==, VROCE_FATAL_NONE);
    card_enable(c);
    card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0);
    card_stop(c);
}

static uint64_t bad_wqes(Driver *d)
{
    return card_misuse(d->c, VROCE_RULE_WQE_SIZE) +
           card_misuse(d->c, VROCE_RULE_WQE_INDEX) +
           card_misuse(d->c, VROCE_RULE_WQE_CHANGED);
}

/* Completions over the QP's own requests, receives and record. */
static void test_cq_over_qp(void)
{
    enum { FIRST_UNIT, NEXT_UNIT, RQ, RECORD };
    static const uint32_t offsets[] = {
        [NEXT_UNIT] = VROCE_SQ_UNIT, [RQ] = VROCE_SQ_UNIT << SQ_LOG,
        [RECORD] = (VROCE_SQ_UNIT << SQ_LOG) +
                   (1 << (RQ_LOG + RQ_LOG_STRIDE)),
    };
    const uint64_t ring = sizeof(struct vroce_cqe) << CQ_LOG;
    Hostile h = hostile_start("");
    Driver *d = &h.d;

    for (int i = 0; i < ARRAY_SIZE(offsets); i++) {
        uint64_t keep = d->c->next, before = bad_wqes(d);
        Driver other = *d;
        Qp a = { 0 }, b;
        struct vroce_create_qp_in in = qp_request(d, &a, VROCE_QPT_RC);
        struct vroce_create_cq_in cq = {
            .buf = contiguous(a.sq + offsets[i], ring + 8),
            .rec_off = cpu_to_le32(ring), .eqn = cpu_to_le32(VROCE_NONE),
            .log_size = CQ_LOG,
        };
        uint32_t cqn = card_create(d->c, VROCE_CMD_CREATE_CQ, &cq, sizeof(cq));

        in.send_cqn = in.recv_cqn = cpu_to_le32(cqn);
        a.qpn = card_create(d->c, VROCE_CMD_CREATE_QP, &in, sizeof(in));
        other.cq = create_cq(d->c, VROCE_NONE);
        b = create_qp(&other, VROCE_QPT_RC);
        connect_qp(d, &a, &b);
        connect_qp(d, &b, &a);
        for (int k = 0; k < 1 << RQ_LOG; k++) {
            post_receive(d, &a, k, h.place[AT_MEM], 64);
            post_receive(d, &b, k, h.place[AT_MEM], 64);
        }
        for (int k = 0; k < 1 << RQ_LOG; k++) {
            post_send(d, &a, VROCE_WQE_SEND, k, NULL, 0, h.place[AT_MEM], 64);
            post_send(d, &b, VROCE_WQE_SEND, k, NULL, 0, h.place[AT_MEM], 64);
        }
        ring_sq(d, &b);
        ring_sq(d, &a);
        qtest_clock_step(d->c->qts, 100000000);
        /* A record that was read before may be anything. */
        if (i < RECORD) {
            g_assert_cmpuint(bad_wqes(d), >, before);
            g_assert_cmpint(state_of(d, &a), ==, VROCE_QPS_ERR);
        }
        g_assert_cmpint(card_get(d->c, VROCE_REG_FATAL), ==, VROCE_FATAL_NONE);
        card_destroy(d->c, VROCE_CMD_DESTROY_QP, a.qpn);
        card_destroy(d->c, VROCE_CMD_DESTROY_QP, b.qpn);
        card_destroy(d->c, VROCE_CMD_DESTROY_CQ, cqn);
        card_destroy(d->c, VROCE_CMD_DESTROY_CQ, other.cq.cqn);
        d->c->next = keep;
        expect_well(&h);
    }
    hostile_stop(&h);
}

/* Each of two CQs in one ring counts for itself, and fails for itself. */
static void test_cqs_in_one_ring(void)
{
    Hostile h = hostile_start("");
    Driver *d = &h.d, x = *d, y = *d;
    const uint64_t ring = sizeof(struct vroce_cqe) << CQ_LOG;
    struct vroce_create_cq_in in = {
        .rec_off = cpu_to_le32(ring), .eqn = cpu_to_le32(VROCE_NONE),
        .log_size = CQ_LOG,
    };
    uint64_t mem = h.place[AT_MEM];
    Qp a, b;

    x.cq = create_cq(d->c, VROCE_NONE);
    y.cq = x.cq;
    in.buf = contiguous(x.cq.ring, ring + sizeof(struct vroce_db_record));
    y.cq.cqn = card_create(d->c, VROCE_CMD_CREATE_CQ, &in, sizeof(in));
    a = create_qp(&x, VROCE_QPT_RC);
    b = create_qp(&y, VROCE_QPT_RC);
    connect_qp(d, &a, &b);
    connect_qp(d, &b, &a);
    for (int i = 0; i < 2; i++) {
        uint64_t next = x.cq.ring + (i + 1) * sizeof(struct vroce_cqe);

        post_receive(d, &b, i, mem, 64);
        post_send(d, &a, VROCE_WQE_SEND, i, NULL, 0, mem + 4096, 64);
        ring_sq(d, &a);
        qtest_clock_step(d->c->qts, 1000000);
        g_assert_cmpint(poll_cq(d, &x.cq).status, ==, VROCE_WCS_SUCCESS);
        g_assert_cmphex(qtest_readl(d->c->qts, next +
                                    offsetof(struct vroce_cqe, phase)), ==, 0);
    }
    /* One more than there is room for in the first one. */
    for (int i = 0; i <= 1 << CQ_LOG; i++) {
        post_nop(d, &a);
        ring_sq(d, &a);
    }
    g_assert_cmpuint(card_misuse(d->c, VROCE_RULE_CQ_OVERRUN), ==, 1);
    g_assert_cmpint(state_of(d, &a), ==, VROCE_QPS_ERR);
    g_assert_cmpint(state_of(d, &b), ==, VROCE_QPS_RTS);
    hostile_stop(&h);
}

/* --------------------------------------------------------- rings in BARs */

/* Completions come, but their events are lost, and said to be. */
static void test_eq_in_bars(void)
{
    Hostile h = hostile_start("");
    Driver *d = &h.d;

    for (int i = 0; i < ARRAY_SIZE(bars); i++) {
        struct vroce_create_eq_in in = {
            .buf = contiguous(h.place[bars[i]], 4096), .log_size = EQ_LOG,
            .vector = cpu_to_le32(COMPLETION_VECTOR),
        };
        Before before = take_before(&h, VROCE_RULE_RING_DMA);
        Driver other = *d;
        uint32_t eqn;
        Qp a;

        eqn = card_create(d->c, VROCE_CMD_CREATE_EQ, &in, sizeof(in));
        other.cq = create_cq(d->c, eqn);
        a = create_qp(&other, VROCE_QPT_RC);
        connect_qp(d, &a, &h.qp);
        card_doorbell(d->c, 0, VROCE_DB_EQ_ARM, eqn, 0);
        card_doorbell(d->c, 0, VROCE_DB_CQ_ARM, other.cq.cqn, 0);
        post_nop(d, &a);
        ring_sq(d, &a);
        g_assert_cmpint(poll_cq(d, &other.cq).status, ==, VROCE_WCS_SUCCESS);
        expect_told(&h, "EQ", VROCE_RULE_RING_DMA, before);
        g_assert_false(card_irq_came(d->c, d->irq, COMPLETION_DATA));
        g_assert_cmphex(card_get(d->c, VROCE_REG_STATUS), ==,
                        VROCE_STATUS_READY | VROCE_STATUS_ENABLED |
                        VROCE_STATUS_EQ_OVERRUN);
        card_destroy(d->c, VROCE_CMD_DESTROY_QP, a.qpn);
        card_destroy(d->c, VROCE_CMD_DESTROY_CQ, other.cq.cqn);
        card_destroy(d->c, VROCE_CMD_DESTROY_EQ, eqn);
        expect_well(&h);
    }
    hostile_stop(&h);
}

/* Who cannot be told of errors has to reset. */
static void test_async_eq_in_bars(void)
{
    Card *c = card_start("");
    const uint64_t places[] = { c->regs.addr, c->doorbells.addr };

    for (int i = 0; i < ARRAY_SIZE(places); i++) {
        struct vroce_create_eq_in in = {
            .buf = contiguous(places[i], 4096), .log_size = EQ_LOG,
            .flags = VROCE_EQ_ASYNC,
        };

        card_enable(c);
        card_create(c, VROCE_CMD_CREATE_EQ, &in, sizeof(in));
        for (int up = 0; up < 2; up++) {
            qtest_qmp_assert_success(c->qts, "{ 'execute': 'set_link', "
                                     "'arguments': { 'name': 'card', "
                                     "'up': %i } }", up);
        }
        g_assert_cmpint(card_get(c, VROCE_REG_FATAL), ==,
                        VROCE_FATAL_ASYNC_EQ);
        g_assert_cmpuint(card_misuse(c, VROCE_RULE_RING_DMA), ==, 1);
        card_put(c, VROCE_REG_RESET, VROCE_RESET_MAGIC);
        g_assert_cmphex(card_get(c, VROCE_REG_STATUS), ==, VROCE_STATUS_READY);
    }
    card_enable(c);
    card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0);
    card_stop(c);
}

enum page { SQ_PAGE, SRQ_PAGE = SQ_PAGE, RQ_PAGE, RECORD_PAGE, NUM_PAGES };

/* Pages of RAM, one of which is said to be the card's. */
static struct vroce_buf buf_in_bar(Driver *d, uint64_t ram, enum page bad,
                                   uint64_t bar)
{
    uint64_t list = card_alloc(d->c, NUM_PAGES * sizeof(uint64_t));

    for (int i = 0; i < NUM_PAGES; i++) {
        qtest_writeq(d->c->qts, list + i * sizeof(uint64_t),
                     (i == bad ? bar : ram + i * 4096) | VROCE_PTE_VALID |
                     VROCE_PTE_WRITE);
    }
    return (struct vroce_buf) {
        .addr = cpu_to_le64(list), .length = cpu_to_le64(NUM_PAGES * 4096),
        .page_shift = 12, .levels = 1,
    };
}

/* The sender fails, or the receiver with its queue or the shared one. */
static void check_queue_in_bar(Hostile *h, enum page bad, bool shared,
                               uint64_t bar)
{
    Before before = take_before(h, VROCE_RULE_RING_DMA);
    Driver *d = &h->d, other = *d;
    uint64_t ram = card_alloc(d->c, NUM_PAGES * 4096);
    struct vroce_buf buf = buf_in_bar(d, ram, bad, bar);
    struct vroce_create_srq_in srq = {
        .buf = buf, .rec_off = cpu_to_le32(RECORD_PAGE * 4096),
        .pdn = cpu_to_le32(d->pdn), .log_entries = RQ_LOG,
        .log_stride = RQ_LOG_STRIDE,
    };
    bool sends = !shared && bad == SQ_PAGE;
    uint32_t srqn = VROCE_NONE;
    struct vroce_create_qp_in in;
    struct vroce_cqe cqe;
    Qp odd, good;

    other.cq = create_cq(d->c, VROCE_NONE);
    in = qp_request(&other, &odd, VROCE_QPT_RC);
    if (shared) {
        srqn = card_create(d->c, VROCE_CMD_CREATE_SRQ, &srq, sizeof(srq));
        in.srqn = cpu_to_le32(srqn);
        in.rq_log_entries = VROCE_NO_QUEUE;
    } else {
        in.buf = buf;
        in.rq_off = cpu_to_le32(RQ_PAGE * 4096);
        in.rec_off = cpu_to_le32(RECORD_PAGE * 4096);
        odd.sq = ram;
    }
    odd.rq = ram + (shared ? SRQ_PAGE : RQ_PAGE) * 4096;
    odd.record = ram + RECORD_PAGE * 4096;
    odd.posted = odd.received = 0;
    odd.qpn = card_create(d->c, VROCE_CMD_CREATE_QP, &in, sizeof(in));
    good = create_qp(&other, VROCE_QPT_RC);
    connect_qp(d, &odd, &good);
    connect_qp(d, &good, &odd);

    if (sends) {
        post_nop(d, &odd);
        ring_sq(d, &odd);
    } else {
        post_receive(d, &odd, 1, ram, 64);
        post_send(d, &good, VROCE_WQE_SEND, 2, NULL, 0, ram, 64);
        ring_sq(d, &good);
    }
    cqe = poll_cq(d, &other.cq);
    g_assert_cmpint(cqe.status, ==, sends ? VROCE_WCS_LOC_QP_OP_ERR :
                    VROCE_WCS_REM_OP_ERR);
    g_assert_cmpint(le16_to_cpu(cqe.rule), ==, sends ?
                    VROCE_RULE_RING_DMA : VROCE_RULE_NONE);
    g_assert_cmpint(state_of(d, &odd), ==, VROCE_QPS_ERR);
    expect_told(h, "ring in a BAR", VROCE_RULE_RING_DMA, before);
    card_destroy(d->c, VROCE_CMD_DESTROY_QP, odd.qpn);
    card_destroy(d->c, VROCE_CMD_DESTROY_QP, good.qpn);
    card_destroy(d->c, VROCE_CMD_DESTROY_CQ, other.cq.cqn);
    if (shared) {
        card_destroy(d->c, VROCE_CMD_DESTROY_SRQ, srqn);
    }
    expect_well(h);
}

static void test_queues_in_bars(void)
{
    Hostile h = hostile_start("");

    for (int i = 0; i < ARRAY_SIZE(bars); i++) {
        for (enum page bad = SQ_PAGE; bad < NUM_PAGES; bad++) {
            check_queue_in_bar(&h, bad, false, h.place[bars[i]]);
        }
        check_queue_in_bar(&h, SRQ_PAGE, true, h.place[bars[i]]);
        check_queue_in_bar(&h, RECORD_PAGE, true, h.place[bars[i]]);
    }
    hostile_stop(&h);
}

void add_hostile_ring_tests(void)
{
    qtest_add_func("/vroce/hostile/cmdq-of-answers", test_cmdq_of_answers);
    qtest_add_func("/vroce/hostile/cq-over-qp", test_cq_over_qp);
    qtest_add_func("/vroce/hostile/cqs-in-one-ring", test_cqs_in_one_ring);
    qtest_add_func("/vroce/hostile/eq-in-bars", test_eq_in_bars);
    qtest_add_func("/vroce/hostile/async-eq-in-bars", test_async_eq_in_bars);
    qtest_add_func("/vroce/hostile/queues-in-bars", test_queues_in_bars);
}
