/*
 * QTest of the vroce RDMA network card: event, completion and work queues,
 * Ethernet frames on the wire, and RC within the card
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "hw/pci/pci_regs.h"
#include "qobject/qdict.h"
#include "qobject/qlist.h"
#include "vroce-driver.h"

/* ------------------------------------------------------------- objects */

static void test_objects(void)
{
    Driver d = driver_start("");
    struct vroce_query_device_out info;
    struct vroce_number number;
    uint16_t rule;
    Qp qp;

    card_cmd(d.c, VROCE_CMD_QUERY_DEVICE, NULL, 0, &info, sizeof(info));
    g_assert_cmpuint(le32_to_cpu(info.max_sge), ==, VROCE_MAX_SGE);
    qp = create_qp(&d, VROCE_QPT_RC);
    g_assert_cmpuint(qp.qpn, >, 1);

    /* In use: not to be destroyed. */
    number.number = cpu_to_le32(d.cq.cqn);
    number.reserved = 0;
    g_assert_cmpint(card_try(d.c, VROCE_CMD_DESTROY_CQ, &number,
                             sizeof(number), NULL, 0, &rule), ==,
                    VROCE_ERR_BUSY);
    g_assert_cmpint(rule, ==, VROCE_RULE_IN_USE);

    card_destroy(d.c, VROCE_CMD_DESTROY_QP, qp.qpn);
    card_destroy(d.c, VROCE_CMD_DESTROY_CQ, d.cq.cqn);
    card_destroy(d.c, VROCE_CMD_DESTROY_EQ, d.eqn);
    card_destroy(d.c, VROCE_CMD_DESTROY_MR, d.key);
    card_destroy(d.c, VROCE_CMD_FREE_PD, d.pdn);

    /* Used after its end. */
    g_assert_cmpint(card_try(d.c, VROCE_CMD_DESTROY_CQ, &number,
                             sizeof(number), NULL, 0, &rule), ==,
                    VROCE_ERR_NUMBER);
    card_doorbell(d.c, 0, VROCE_DB_CQ_ARM, d.cq.cqn, 0);
    g_assert_cmpuint(card_misuse(d.c, VROCE_RULE_DB_NUMBER), ==, 1);
    driver_stop(&d);
}

static enum vroce_status try_create_qp(Driver *d,
                                       const struct vroce_create_qp_in *in)
{
    struct vroce_number out;
    uint16_t rule;

    return card_try(d->c, VROCE_CMD_CREATE_QP, in, sizeof(*in), &out,
                    sizeof(out), &rule);
}

static void test_bad_ring(void)
{
    Driver d = driver_start("");
    Qp qp = { 0 };
    const struct vroce_create_qp_in good = qp_request(&d, &qp, VROCE_QPT_RC);
    struct vroce_create_qp_in in = good;

    in.sq_log_units = VROCE_MAX_SQ_LOG_UNITS + 1;
    g_assert_cmpint(try_create_qp(&d, &in), ==, VROCE_ERR_PARAM);
    in = good;
    in.rec_off = cpu_to_le32(le64_to_cpu(in.buf.length));
    g_assert_cmpint(try_create_qp(&d, &in), ==, VROCE_ERR_PARAM);
    in = good;
    in.buf.levels = 1;
    in.buf.page_shift = 12;
    in.buf.addr = cpu_to_le64(NOWHERE);
    g_assert_cmpint(try_create_qp(&d, &in), ==, VROCE_ERR_DMA);
    driver_stop(&d);
}

/* A queue may be rung only from its own doorbell page. */
static void test_foreign_page(void)
{
    Driver d = driver_start("");
    uint32_t page = card_create(d.c, VROCE_CMD_ALLOC_CONTEXT, NULL, 0);

    g_assert_cmpuint(page, >, 0);
    card_doorbell(d.c, page, VROCE_DB_CQ_ARM, d.cq.cqn, 0);
    g_assert_cmpuint(card_misuse(d.c, VROCE_RULE_DB_PAGE), ==, 1);
    card_doorbell(d.c, 0, VROCE_DB_CQ_ARM, d.cq.cqn, 0);
    g_assert_cmpuint(card_misuse(d.c, VROCE_RULE_DB_PAGE), ==, 1);
    driver_stop(&d);
}

/* ------------------------------------------------------------ Ethernet */

static void test_eth_tx(void)
{
    Driver d = driver_start("");
    Qp qp = create_eth_qp(&d);
    uint64_t data = card_alloc(d.c, 4096);
    struct vroce_wqe_eth eth = { 0 };
    uint8_t frame[2048], sent[1514];

    fill_pattern(&d, data, sizeof(sent), 1);
    qtest_memread(d.c->qts, data, sent, sizeof(sent));
    /* More than two laps of the rings. */
    for (uint32_t i = 0; i < 20; i++) {
        uint32_t len = 60 + i * 64;

        post_send(&d, &qp, VROCE_WQE_ETH, 1000 + i, &eth, sizeof(eth), data,
                  len);
        ring_sq(&d, &qp);
        g_assert_cmpint(recv(d.c->wire, frame, sizeof(frame), 0), ==, len);
        g_assert_cmpmem(frame, len, sent, len);
        expect_cqe(&d, VROCE_WC_SEND, 1000 + i, &qp);
    }
    driver_stop(&d);
}

static void test_eth_rx(void)
{
    Driver d = driver_start("");
    Qp qp = create_eth_qp(&d);
    uint64_t data = card_alloc(d.c, 4096);
    uint8_t frame[600] = { 0 };
    struct vroce_cqe cqe;

    for (int i = 0; i < sizeof(frame); i++) {
        frame[i] = i * 3;
    }
    memcpy(frame, card_mac, 6);
    frame[6] = 2;
    for (uint32_t i = 0; i < 10; i++) {
        uint8_t got[sizeof(frame)];

        post_receive(&d, &qp, 77 + i, data, 2048);
        qtest_memset(d.c->qts, data, 0, 4096);
        frame[100] = i;
        g_assert_cmpint(send(d.c->wire, frame, sizeof(frame), 0), ==,
                        sizeof(frame));
        cqe = poll_cq(&d, &d.cq);
        g_assert_cmpint(cqe.status, ==, VROCE_WCS_SUCCESS);
        g_assert_cmphex(cqe.opcode, ==, VROCE_WC_RECV);
        g_assert_cmphex(le64_to_cpu(cqe.wr_id), ==, 77 + i);
        g_assert_cmpuint(le32_to_cpu(cqe.byte_len), ==, sizeof(frame));
        qtest_memread(d.c->qts, data, got, sizeof(got));
        g_assert_cmpmem(got, sizeof(got), frame, sizeof(frame));
    }
    driver_stop(&d);
}

/* An armed CQ raises its vector once; arming late misses nothing. */
static void test_events(void)
{
    Driver d = driver_start("");
    Qp qp = create_eth_qp(&d);
    uint64_t data = card_alloc(d.c, 4096);
    struct vroce_wqe_eth eth = { 0 };
    struct vroce_eqe eqe;
    uint8_t frame[64];

    for (uint32_t i = 0; i < 2; i++) {
        bool early = i == 0;

        card_doorbell(d.c, 0, VROCE_DB_EQ_ARM, d.eqn, i);
        if (early) {
            card_doorbell(d.c, 0, VROCE_DB_CQ_ARM, d.cq.cqn, i);
        }
        post_send(&d, &qp, VROCE_WQE_ETH, i, &eth, sizeof(eth), data, 60);
        ring_sq(&d, &qp);
        g_assert_cmpint(recv(d.c->wire, frame, sizeof(frame), 0), ==, 60);
        if (!early) {
            g_assert_false(card_irq_came(d.c, d.irq, COMPLETION_DATA));
            card_doorbell(d.c, 0, VROCE_DB_CQ_ARM, d.cq.cqn, i);
        }
        expect_cqe(&d, VROCE_WC_SEND, i, &qp);
        g_assert_true(card_irq_came(d.c, d.irq, COMPLETION_DATA));
        qtest_memread(d.c->qts, d.eq + i * sizeof(eqe), &eqe, sizeof(eqe));
        g_assert_cmpint(le32_to_cpu(eqe.phase) & 1, ==, 1);
        g_assert_cmpint(le16_to_cpu(eqe.type), ==, VROCE_EVENT_COMPLETION);
        g_assert_cmpint(le32_to_cpu(eqe.number), ==, d.cq.cqn);
    }
    driver_stop(&d);
}

/* ------------------------------------------------------------ RC loopback */

static void test_rc_loopback(void)
{
    const uint32_t len = 5000;
    Driver d = driver_start("");
    Qp a, b;
    uint64_t src = card_alloc(d.c, len), dst = card_alloc(d.c, len);
    struct vroce_wqe_rdma rdma = { .rkey = cpu_to_le32(d.key) };
    struct vroce_cqe cqe;

    create_pair(&d, &a, &b);

    fill_pattern(&d, src, len, 1);
    post_receive(&d, &b, 20, dst, len);
    post_send(&d, &a, VROCE_WQE_SEND, 10, NULL, 0, src, len);
    ring_sq(&d, &a);
    for (int i = 0; i < 2; i++) {
        cqe = poll_cq(&d, &d.cq);
        g_assert_cmpint(cqe.status, ==, VROCE_WCS_SUCCESS);
        if (cqe.opcode == VROCE_WC_RECV) {
            g_assert_cmpuint(le64_to_cpu(cqe.wr_id), ==, 20);
            g_assert_cmpuint(le32_to_cpu(cqe.byte_len), ==, len);
        } else {
            g_assert_cmpuint(le64_to_cpu(cqe.wr_id), ==, 10);
        }
    }
    expect_same(&d, src, dst, len);

    fill_pattern(&d, src, len, 2);
    rdma.remote_addr = cpu_to_le64(dst);
    post_send(&d, &a, VROCE_WQE_WRITE, 11, &rdma, sizeof(rdma), src, len);
    ring_sq(&d, &a);
    expect_cqe(&d, VROCE_WC_WRITE, 11, &a);
    expect_same(&d, src, dst, len);

    fill_pattern(&d, src, len, 3);
    rdma.remote_addr = cpu_to_le64(src);
    post_send(&d, &b, VROCE_WQE_READ, 12, &rdma, sizeof(rdma), dst, len);
    ring_sq(&d, &b);
    expect_cqe(&d, VROCE_WC_READ, 12, &b);
    expect_same(&d, src, dst, len);
    driver_stop(&d);
}

/* Everything goes on in another QEMU: objects, rings, connection. */
static void test_migration(void)
{
    const uint32_t len = 3000;
    Driver d = driver_start("");
    Qp a, b;
    Qp eth = create_eth_qp(&d);
    uint64_t src = card_alloc(d.c, len), dst = card_alloc(d.c, len);
    struct vroce_wqe_rdma rdma = {
        .rkey = cpu_to_le32(d.key), .remote_addr = cpu_to_le64(dst),
    };
    struct vroce_wqe_eth segment = { 0 };
    uint8_t frame[64];
    ssize_t got;

    create_pair(&d, &a, &b);
    for (uint32_t i = 0; i < 3; i++) {
        fill_pattern(&d, src, len, i);
        post_send(&d, &a, VROCE_WQE_WRITE, i, &rdma, sizeof(rdma), src, len);
        ring_sq(&d, &a);
        expect_cqe(&d, VROCE_WC_WRITE, i, &a);
        expect_same(&d, src, dst, len);

        card_put(d.c, VROCE_REG_SCRATCH, i);
        card_migrate(d.c);
        g_assert_cmphex(card_get(d.c, VROCE_REG_SCRATCH), ==, ~i);
        g_assert_cmphex(card_get(d.c, VROCE_REG_STATUS), ==,
                        VROCE_STATUS_READY | VROCE_STATUS_ENABLED);
        card_create(d.c, VROCE_CMD_ALLOC_PD, NULL, 0);
        post_send(&d, &eth, VROCE_WQE_ETH, 50 + i, &segment, sizeof(segment),
                  src, sizeof(frame));
        ring_sq(&d, &eth);
        /* QEMU announces its guest's new place with shorter frames. */
        do {
            got = recv(d.c->wire, frame, sizeof(frame), 0);
            g_assert_cmpint(got, >, 0);
        } while (got != sizeof(frame));
        expect_cqe(&d, VROCE_WC_SEND, 50 + i, &eth);
    }
    driver_stop(&d);
}

/* The wire was full where the card comes from: it goes on where it arrives. */
static void test_migration_full_wire(void)
{
    Driver d = driver_start("");
    Qp eth = create_eth_qp(&d);
    uint64_t src = card_alloc(d.c, 4096);
    struct vroce_wqe_eth segment = { 0 };
    uint32_t n = 0, end;
    bool full;

    do {
        QDict *info;

        post_send(&d, &eth, VROCE_WQE_ETH, n, &segment, sizeof(segment), src,
                  1500);
        ring_sq(&d, &eth);
        expect_cqe(&d, VROCE_WC_SEND, n, &eth);
        info = card_query(d.c);
        full = qdict_get_bool(info, "tx-blocked");
        qobject_unref(info);
        g_assert_cmpuint(++n, <, 10000);
    } while (!full);
    for (end = n + 2; n < end; n++) {
        post_send(&d, &eth, VROCE_WQE_ETH, n, &segment, sizeof(segment), src,
                  100);
        ring_sq(&d, &eth);
    }
    card_migrate(d.c);
    expect_cqe(&d, VROCE_WC_SEND, end - 2, &eth);
    expect_cqe(&d, VROCE_WC_SEND, end - 1, &eth);
    driver_stop(&d);
}

/*
 * A guest aims a vector at the card's own reset register: the reset would free
 * what the engine stands on when it raises the vector.
 */
static void test_self_interrupt(void)
{
    const uint64_t entry = VROCE_MSIX_TABLE_OFFSET + ASYNC_VECTOR * 16;
    Driver d = driver_start("");
    struct vroce_eqe eqe;

    card_put(d.c, entry, d.c->regs.addr + VROCE_REG_RESET);
    card_put(d.c, entry + 4, 0);
    card_put(d.c, entry + 8, VROCE_RESET_MAGIC);
    card_put(d.c, entry + 12, 0);
    card_doorbell(d.c, 0, VROCE_DB_EQ_ARM, d.async_eqn, 0);
    qtest_qmp_assert_success(d.c->qts, "{ 'execute': 'set_link', 'arguments': "
                             "{ 'name': 'card', 'up': false } }");
    qtest_memread(d.c->qts, d.async, &eqe, sizeof(eqe));
    g_assert_cmpint(le16_to_cpu(eqe.type), ==, VROCE_EVENT_PORT_DOWN);
    g_assert_cmphex(card_get(d.c, VROCE_REG_STATUS), ==,
                    VROCE_STATUS_READY | VROCE_STATUS_ENABLED);
    card_create(d.c, VROCE_CMD_ALLOC_PD, NULL, 0);
    driver_stop(&d);
}

/* A work request that is wrong ends in an error completion with its rule. */
static void test_bad_wqe(void)
{
    Driver d = driver_start("");
    Qp a, b;
    uint64_t src = card_alloc(d.c, 4096);
    struct vroce_cqe cqe;

    create_pair(&d, &a, &b);

    /* Beyond the ring: refused, the QP lives on. */
    card_doorbell(d.c, 0, VROCE_DB_SQ, a.qpn, (1 << SQ_LOG) + 1);
    g_assert_cmpuint(card_misuse(d.c, VROCE_RULE_DB_INDEX), ==, 1);

    post_send(&d, &a, 0x77, 1, NULL, 0, src, 8);
    ring_sq(&d, &a);
    cqe = poll_cq(&d, &d.cq);
    g_assert_cmpint(cqe.status, ==, VROCE_WCS_LOC_QP_OP_ERR);
    g_assert_cmpint(le16_to_cpu(cqe.rule), ==, VROCE_RULE_WQE_OPCODE);

    /* Rung before it was written. */
    b.posted++;
    ring_sq(&d, &b);
    cqe = poll_cq(&d, &d.cq);
    g_assert_cmpint(cqe.status, !=, VROCE_WCS_SUCCESS);
    g_assert_cmpint(le16_to_cpu(cqe.rule), !=, VROCE_RULE_NONE);
    driver_stop(&d);
}

static void expect_srq(Driver *d, uint32_t srqn, bool error, uint32_t posted)
{
    QDict *reply = qtest_qmp(d->c->qts, "{ 'execute': 'x-query-vroce-srq', "
                             "'arguments': { 'path': 'card', 'srqn': %u } }",
                             srqn);
    QList *srqs = qdict_get_qlist(reply, "return");
    QDict *srq = qobject_to(QDict, qlist_peek(srqs));

    g_assert_true(qdict_get_bool(srq, "error") == error);
    g_assert_cmpint(qdict_get_int(srq, "posted"), ==, posted);
    qobject_unref(reply);
}

/* A shared receive queue with a wrong record is in error, and shown so. */
static void test_bad_srq(void)
{
    Driver d = driver_start("");
    uint64_t size = 1ull << (RQ_LOG + RQ_LOG_STRIDE);
    uint64_t ring = card_alloc(d.c, size + sizeof(struct vroce_db_record));
    struct vroce_create_srq_in srq = {
        .buf = contiguous(ring, size + sizeof(struct vroce_db_record)),
        .rec_off = cpu_to_le32(size), .pdn = cpu_to_le32(d.pdn),
        .log_entries = RQ_LOG, .log_stride = RQ_LOG_STRIDE,
    };
    uint32_t srqn = card_create(d.c, VROCE_CMD_CREATE_SRQ, &srq, sizeof(srq));
    Qp a = create_qp(&d, VROCE_QPT_RC), b;
    struct vroce_create_qp_in in = qp_request(&d, &b, VROCE_QPT_RC);

    in.srqn = cpu_to_le32(srqn);
    in.rq_log_entries = VROCE_NO_QUEUE;
    b.qpn = card_create(d.c, VROCE_CMD_CREATE_QP, &in, sizeof(in));
    set_gid(&d);
    connect_qp(&d, &a, &b);
    connect_qp(&d, &b, &a);
    expect_srq(&d, srqn, false, 0);

    /* One more than it holds. */
    qtest_writel(d.c->qts, ring + size, (1 << RQ_LOG) + 1);
    expect_srq(&d, srqn, false, (1 << RQ_LOG) + 1);
    post_send(&d, &a, VROCE_WQE_SEND, 1, NULL, 0, ring, 8);
    ring_sq(&d, &a);
    g_assert_cmpint(poll_cq(&d, &d.cq).status, ==, VROCE_WCS_REM_OP_ERR);
    expect_srq(&d, srqn, true, (1 << RQ_LOG) + 1);
    g_assert_cmpuint(card_misuse(d.c, VROCE_RULE_RQ_RECORD), ==, 1);
    driver_stop(&d);
}

/* --------------------------------------------- stopped, and set going again */

static void set_enable(Card *c, bool on)
{
    if (on) {
        card_enable(c);
    } else {
        card_put(c, VROCE_REG_CTRL, 0);
    }
}

static void set_power(Card *c, bool on)
{
    uint8_t pm = qpci_find_capability(c->dev, PCI_CAP_ID_PM, 0);

    /* D3hot, in which the registers do not answer. */
    qpci_config_writew(c->dev, pm + PCI_PM_CTRL, on ? 0 : 3);
    g_assert_cmpint(card_get(c, VROCE_REG_ID) == VROCE_ID_MAGIC, ==, on);
}

/* All stays as it is, and nothing is done until it is set again. */
static void check_pause(void (*set)(Card *c, bool on), bool answers)
{
    Driver d = driver_start("");
    uint64_t mem = card_alloc(d.c, 4096);
    Qp a, b;

    create_pair(&d, &a, &b);
    card_put(d.c, VROCE_REG_SCRATCH, ~0x1234);
    /* The peer is not ready: the card will try again. */
    post_send(&d, &a, VROCE_WQE_SEND, 1, NULL, 0, mem, 64);
    ring_sq(&d, &a);
    set(d.c, false);
    post_receive(&d, &b, 2, mem + 2048, 64);
    qpci_io_writeq(d.c->dev, d.c->doorbells, 0,
                   vroce_doorbell(VROCE_DB_SQ, a.qpn, a.posted));
    g_assert_cmpuint(card_misuse(d.c, VROCE_RULE_DB_STATE), ==, answers);
    qtest_clock_step(d.c->qts, 1000000000);
    g_assert_cmphex(qtest_readl(d.c->qts, d.cq.ring +
                                offsetof(struct vroce_cqe, phase)), ==, 0);

    set(d.c, true);
    g_assert_cmphex(card_get(d.c, VROCE_REG_SCRATCH), ==, 0x1234);
    expect_cqe(&d, VROCE_WC_RECV, 2, &b);
    expect_cqe(&d, VROCE_WC_SEND, 1, &a);
    card_destroy(d.c, VROCE_CMD_DESTROY_QP, a.qpn);
    driver_stop(&d);
}

static void test_pause_enable(void)
{
    check_pause(set_enable, true);
}

static void test_pause_bus_master(void)
{
    check_pause(card_bus_master, true);
}

static void test_pause_power(void)
{
    check_pause(set_power, false);
}

/* Nothing that lies in a ring, and no doorbell, harms QEMU. */
static void test_nonsense(void)
{
    Driver d = driver_start("");
    Qp a, b;
    Qp eth = create_eth_qp(&d);
    const Qp *qps[] = { &a, &b, &eth };

    create_pair(&d, &a, &b);
    for (int round = 0; round < 300; round++) {
        const Qp *qp = qps[g_test_rand_int_range(0, 3)];
        uint8_t junk[VROCE_SQ_UNIT << SQ_LOG];

        for (int i = 0; i < sizeof(junk); i++) {
            junk[i] = g_test_rand_bit() ? 0 : g_test_rand_int_range(0, 256);
        }
        for (int i = 0; i < sizeof(junk); i += VROCE_SQ_UNIT) {
            junk[i] = g_test_rand_int_range(0, 20);
            junk[i + 2] = g_test_rand_int_range(0, 9);
            junk[i + 3] = g_test_rand_int_range(0, 4);
        }
        qtest_memwrite(d.c->qts, qp->sq, junk, sizeof(junk));
        qtest_memwrite(d.c->qts, qp->rq, junk, 1 << (RQ_LOG + RQ_LOG_STRIDE));
        qtest_writel(d.c->qts, qp->record, g_test_rand_int());
        qtest_writel(d.c->qts, d.cq.record, g_test_rand_int());
        card_doorbell(d.c, 0, g_test_rand_int_range(0, 8), qp->qpn,
                      g_test_rand_int_range(0, 40));
        qtest_clock_step(d.c->qts, 100000);
    }
    card_put(d.c, VROCE_REG_RESET, VROCE_RESET_MAGIC);
    card_enable(d.c);
    card_create(d.c, VROCE_CMD_ALLOC_PD, NULL, 0);
    driver_stop(&d);
}

void add_queue_tests(void)
{
    qtest_add_func("/vroce/queues/objects", test_objects);
    qtest_add_func("/vroce/queues/bad-ring", test_bad_ring);
    qtest_add_func("/vroce/queues/foreign-page", test_foreign_page);
    qtest_add_func("/vroce/queues/events", test_events);
    qtest_add_func("/vroce/queues/bad-wqe", test_bad_wqe);
    qtest_add_func("/vroce/queues/bad-srq", test_bad_srq);
    qtest_add_func("/vroce/queues/nonsense", test_nonsense);
    qtest_add_func("/vroce/ethernet/tx", test_eth_tx);
    qtest_add_func("/vroce/ethernet/rx", test_eth_rx);
    qtest_add_func("/vroce/rc-loopback", test_rc_loopback);
    qtest_add_func("/vroce/pause/enable", test_pause_enable);
    qtest_add_func("/vroce/pause/bus-master", test_pause_bus_master);
    qtest_add_func("/vroce/pause/d3hot", test_pause_power);
    qtest_add_func("/vroce/migration", test_migration);
    qtest_add_func("/vroce/migration-full-wire", test_migration_full_wire);
    qtest_add_func("/vroce/self-interrupt", test_self_interrupt);
}
