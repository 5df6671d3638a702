/*
 * QTest of the vroce RDMA network card: event, completion and work queues,
 * Ethernet frames on the wire, and RC within the card
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "vroce-card.h"

#define EQ_LOG 3
#define CQ_LOG 3
#define SQ_LOG 3
#define RQ_LOG 2
#define RQ_LOG_STRIDE 5

#define ASYNC_VECTOR 0
#define COMPLETION_VECTOR 1
#define COMPLETION_DATA 0xc0ffee

static const uint8_t card_mac[6] = CARD_MAC;
static const uint8_t card_gid[16] = {
    [10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1
};

typedef struct Cq {
    uint32_t cqn;
    uint64_t ring, record;
    uint32_t consumer;
} Cq;

typedef struct Qp {
    uint32_t qpn;
    uint64_t sq, rq, record;
    uint32_t posted, received;  /* units, entries */
} Qp;

/* What a driver makes first: PD, key to all memory, event queue, CQ. */
typedef struct Driver {
    Card *c;
    uint32_t pdn, key, eqn, async_eqn;
    uint64_t eq, irq, async;
    Cq cq;
} Driver;

static struct vroce_buf contiguous(uint64_t addr, uint64_t length)
{
    return (struct vroce_buf) {
        .addr = cpu_to_le64(addr), .length = cpu_to_le64(length),
    };
}

static uint32_t create_eq(Card *c, uint32_t vector, uint8_t flags,
                          uint64_t *ring)
{
    uint64_t size = sizeof(struct vroce_eqe) << EQ_LOG;
    struct vroce_create_eq_in in = {
        .vector = cpu_to_le32(vector), .log_size = EQ_LOG, .flags = flags,
    };

    *ring = card_alloc(c, size);
    in.buf = contiguous(*ring, size);
    return card_create(c, VROCE_CMD_CREATE_EQ, &in, sizeof(in));
}

static Cq create_cq(Card *c, uint32_t eqn)
{
    uint64_t ring_size = sizeof(struct vroce_cqe) << CQ_LOG;
    uint64_t size = ring_size + sizeof(struct vroce_db_record);
    struct vroce_create_cq_in in = {
        .rec_off = cpu_to_le32(ring_size), .eqn = cpu_to_le32(eqn),
        .log_size = CQ_LOG,
    };
    Cq cq = { .ring = card_alloc(c, size) };

    cq.record = cq.ring + ring_size;
    in.buf = contiguous(cq.ring, size);
    cq.cqn = card_create(c, VROCE_CMD_CREATE_CQ, &in, sizeof(in));
    return cq;
}

static uint32_t create_dma_mr(Card *c, uint32_t pdn)
{
    struct vroce_create_mr_in in = {
        .pdn = cpu_to_le32(pdn), .kind = VROCE_MR_DMA,
        .access = cpu_to_le32(VROCE_ACCESS_LOCAL_WRITE |
                              VROCE_ACCESS_REMOTE_WRITE |
                              VROCE_ACCESS_REMOTE_READ),
    };

    return card_create(c, VROCE_CMD_CREATE_MR, &in, sizeof(in));
}

static Driver driver_start(const char *props)
{
    Driver d = { .c = card_start(props) };

    card_enable(d.c);
    d.async_eqn = create_eq(d.c, ASYNC_VECTOR, VROCE_EQ_ASYNC, &d.async);
    d.pdn = card_create(d.c, VROCE_CMD_ALLOC_PD, NULL, 0);
    d.key = create_dma_mr(d.c, d.pdn);
    d.irq = card_catch_irq(d.c, COMPLETION_VECTOR, COMPLETION_DATA);
    d.eqn = create_eq(d.c, COMPLETION_VECTOR, 0, &d.eq);
    d.cq = create_cq(d.c, d.eqn);
    return d;
}

static void driver_stop(Driver *d)
{
    card_stop(d->c);
}

static struct vroce_create_qp_in qp_request(Driver *d, Qp *qp, uint8_t type)
{
    uint64_t sq_size = VROCE_SQ_UNIT << SQ_LOG;
    uint64_t rq_size = 1ull << (RQ_LOG + RQ_LOG_STRIDE);
    uint64_t size = sq_size + rq_size + sizeof(struct vroce_db_record);
    struct vroce_create_qp_in in = {
        .rq_off = cpu_to_le32(sq_size),
        .rec_off = cpu_to_le32(sq_size + rq_size),
        .pdn = cpu_to_le32(d->pdn),
        .send_cqn = cpu_to_le32(d->cq.cqn), .recv_cqn = cpu_to_le32(d->cq.cqn),
        .srqn = cpu_to_le32(VROCE_NONE),
        .type = type, .sq_log_units = SQ_LOG, .rq_log_entries = RQ_LOG,
        .rq_log_stride = RQ_LOG_STRIDE,
    };

    qp->sq = card_alloc(d->c, size);
    qp->rq = qp->sq + sq_size;
    qp->record = qp->rq + rq_size;
    in.buf = contiguous(qp->sq, size);
    return in;
}

static Qp create_qp(Driver *d, uint8_t type)
{
    Qp qp = { 0 };
    struct vroce_create_qp_in in = qp_request(d, &qp, type);

    qp.qpn = card_create(d->c, VROCE_CMD_CREATE_QP, &in, sizeof(in));
    return qp;
}

static void modify_qp(Driver *d, const Qp *qp, uint32_t mask,
                      struct vroce_qp_attr attr)
{
    struct vroce_modify_qp_in in = {
        .qpn = cpu_to_le32(qp->qpn), .attr_mask = cpu_to_le32(mask),
        .attr = attr,
    };

    card_cmd(d->c, VROCE_CMD_MODIFY_QP, &in, sizeof(in), NULL, 0);
}

static Qp create_eth_qp(Driver *d)
{
    Qp qp = create_qp(d, VROCE_QPT_ETH);
    struct vroce_set_netdev_in in = {
        .qpn = cpu_to_le32(qp.qpn), .mtu = cpu_to_le16(1500),
    };

    modify_qp(d, &qp, VROCE_QP_STATE | VROCE_QP_PORT,
              (struct vroce_qp_attr) { .state = VROCE_QPS_INIT, .port = 1 });
    modify_qp(d, &qp, VROCE_QP_STATE,
              (struct vroce_qp_attr) { .state = VROCE_QPS_RTR });
    modify_qp(d, &qp, VROCE_QP_STATE,
              (struct vroce_qp_attr) { .state = VROCE_QPS_RTS });
    memcpy(in.mac, card_mac, sizeof(in.mac));
    card_cmd(d->c, VROCE_CMD_SET_NETDEV, &in, sizeof(in), NULL, 0);
    return qp;
}

/* ------------------------------------------------------- post and poll */

/* A send work request of one unit: control, segment, one SGE behind it. */
static void post_send(Driver *d, Qp *qp, uint8_t opcode, uint64_t wr_id,
                      const void *segment, uint32_t segment_len,
                      uint64_t addr, uint32_t len)
{
    uint64_t at = qp->sq + (qp->posted & ((1 << SQ_LOG) - 1)) * VROCE_SQ_UNIT;
    struct vroce_wqe_ctrl ctrl = {
        .opcode = opcode, .flags = VROCE_WQE_SIGNALED, .units = 1,
        .num_sge = 1, .index = cpu_to_le16(qp->posted),
        .wr_id = cpu_to_le64(wr_id),
    };
    struct vroce_sge sge = {
        .addr = cpu_to_le64(addr), .length = cpu_to_le32(len),
        .lkey = cpu_to_le32(d->key),
    };

    qtest_memwrite(d->c->qts, at, &ctrl, sizeof(ctrl));
    if (segment_len) {
        qtest_memwrite(d->c->qts, at + sizeof(ctrl), segment, segment_len);
    }
    qtest_memwrite(d->c->qts, at + sizeof(ctrl) + segment_len, &sge,
                   sizeof(sge));
    qp->posted++;
}

static void ring_sq(Driver *d, Qp *qp)
{
    card_doorbell(d->c, 0, VROCE_DB_SQ, qp->qpn, qp->posted);
}

static void post_receive(Driver *d, Qp *qp, uint64_t wr_id, uint64_t addr,
                         uint32_t len)
{
    uint32_t slot = qp->received & ((1 << RQ_LOG) - 1);
    struct {
        struct vroce_rwqe head;
        struct vroce_sge sge;
    } wqe = {
        .head = {
            .wr_id = cpu_to_le64(wr_id), .num_sge = 1,
            .index = cpu_to_le16(qp->received),
        },
        .sge = {
            .addr = cpu_to_le64(addr), .length = cpu_to_le32(len),
            .lkey = cpu_to_le32(d->key),
        },
    };

    qtest_memwrite(d->c->qts, qp->rq + (slot << RQ_LOG_STRIDE), &wqe,
                   sizeof(wqe));
    qp->received++;
    qtest_writel(d->c->qts, qp->record, qp->received);
}

/* The next completion; time goes on while waiting. */
static struct vroce_cqe poll_cq(Driver *d, Cq *cq)
{
    uint32_t index = cq->consumer & ((1 << CQ_LOG) - 1);
    uint32_t phase = !(cq->consumer >> CQ_LOG & 1);
    gint64 until = g_get_monotonic_time() + 10 * G_USEC_PER_SEC;
    struct vroce_cqe cqe;

    for (;;) {
        qtest_memread(d->c->qts, cq->ring + index * sizeof(cqe), &cqe,
                      sizeof(cqe));
        if ((le32_to_cpu(cqe.phase) & 1) == phase) {
            break;
        }
        g_assert_cmpint(g_get_monotonic_time(), <, until);
        qtest_clock_step(d->c->qts, 10000);
    }
    cq->consumer++;
    qtest_writel(d->c->qts, cq->record, cq->consumer);
    return cqe;
}

static void expect_cqe(Driver *d, uint8_t opcode, uint64_t wr_id,
                       const Qp *qp)
{
    struct vroce_cqe cqe = poll_cq(d, &d->cq);

    g_assert_cmpint(cqe.status, ==, VROCE_WCS_SUCCESS);
    g_assert_cmpint(le16_to_cpu(cqe.rule), ==, VROCE_RULE_NONE);
    g_assert_cmphex(cqe.opcode, ==, opcode);
    g_assert_cmphex(le64_to_cpu(cqe.wr_id), ==, wr_id);
    g_assert_cmpint(le32_to_cpu(cqe.qpn), ==, qp->qpn);
}

static void fill_pattern(Driver *d, uint64_t addr, uint32_t len, uint8_t seed)
{
    g_autofree uint8_t *bytes = g_malloc(len);

    for (uint32_t i = 0; i < len; i++) {
        bytes[i] = i * 7 + (i >> 8) + seed;
    }
    qtest_memwrite(d->c->qts, addr, bytes, len);
}

static void expect_same(Driver *d, uint64_t a, uint64_t b, uint32_t len)
{
    g_autofree uint8_t *x = g_malloc(len), *y = g_malloc(len);

    qtest_memread(d->c->qts, a, x, len);
    qtest_memread(d->c->qts, b, y, len);
    g_assert_cmpmem(x, len, y, len);
}

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

static void test_bad_ring(void)
{
    Driver d = driver_start("");
    Qp qp = { 0 };
    struct vroce_create_qp_in in = qp_request(&d, &qp, VROCE_QPT_RC);
    struct vroce_number out;
    uint16_t rule;

    in.sq_log_units = VROCE_MAX_SQ_LOG_UNITS + 1;
    g_assert_cmpint(card_try(d.c, VROCE_CMD_CREATE_QP, &in, sizeof(in), &out,
                             sizeof(out), &rule), !=, VROCE_OK);
    in = qp_request(&d, &qp, VROCE_QPT_RC);
    in.rec_off = cpu_to_le32(le64_to_cpu(in.buf.length));
    g_assert_cmpint(card_try(d.c, VROCE_CMD_CREATE_QP, &in, sizeof(in), &out,
                             sizeof(out), &rule), !=, VROCE_OK);
    in = qp_request(&d, &qp, VROCE_QPT_RC);
    in.buf.levels = 1;
    in.buf.page_shift = 12;
    in.buf.addr = cpu_to_le64(NOWHERE);
    g_assert_cmpint(card_try(d.c, VROCE_CMD_CREATE_QP, &in, sizeof(in), &out,
                             sizeof(out), &rule), ==, VROCE_ERR_DMA);
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

static void set_gid(Driver *d)
{
    struct vroce_set_gid_in in = {
        .vlan = cpu_to_le16(VROCE_NO_VLAN), .valid = 1,
    };

    memcpy(in.gid, card_gid, sizeof(in.gid));
    memcpy(in.mac, card_mac, sizeof(in.mac));
    card_cmd(d->c, VROCE_CMD_SET_GID, &in, sizeof(in), NULL, 0);
}

static void connect_qp(Driver *d, const Qp *qp, const Qp *peer)
{
    struct vroce_qp_attr attr = {
        .state = VROCE_QPS_INIT, .port = 1,
        .access_flags = cpu_to_le32(VROCE_ACCESS_REMOTE_WRITE |
                                    VROCE_ACCESS_REMOTE_READ),
        .path_mtu = 3, .max_dest_rd_atomic = 1, .max_rd_atomic = 1,
        .min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
        .dest_qpn = cpu_to_le32(peer->qpn),
        .rq_psn = cpu_to_le32(0xfffffe), .sq_psn = cpu_to_le32(0xfffffe),
        .av = { .hop_limit = 64 },
    };

    memcpy(attr.av.dgid, card_gid, sizeof(attr.av.dgid));
    memcpy(attr.av.dmac, card_mac, sizeof(attr.av.dmac));
    modify_qp(d, qp, VROCE_QP_STATE | VROCE_QP_PKEY_INDEX | VROCE_QP_PORT |
              VROCE_QP_ACCESS_FLAGS, attr);
    attr.state = VROCE_QPS_RTR;
    modify_qp(d, qp, VROCE_QP_STATE | VROCE_QP_AV | VROCE_QP_PATH_MTU |
              VROCE_QP_DEST_QPN | VROCE_QP_RQ_PSN |
              VROCE_QP_MAX_DEST_RD_ATOMIC | VROCE_QP_MIN_RNR_TIMER, attr);
    attr.state = VROCE_QPS_RTS;
    modify_qp(d, qp, VROCE_QP_STATE | VROCE_QP_TIMEOUT | VROCE_QP_RETRY_CNT |
              VROCE_QP_RNR_RETRY | VROCE_QP_SQ_PSN | VROCE_QP_MAX_RD_ATOMIC,
              attr);
}

static void test_rc_loopback(void)
{
    const uint32_t len = 5000;
    Driver d = driver_start("");
    Qp a = create_qp(&d, VROCE_QPT_RC), b = create_qp(&d, VROCE_QPT_RC);
    uint64_t src = card_alloc(d.c, len), dst = card_alloc(d.c, len);
    struct vroce_wqe_rdma rdma = { .rkey = cpu_to_le32(d.key) };
    struct vroce_cqe cqe;

    set_gid(&d);
    connect_qp(&d, &a, &b);
    connect_qp(&d, &b, &a);

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
    Qp a = create_qp(&d, VROCE_QPT_RC), b = create_qp(&d, VROCE_QPT_RC);
    Qp eth = create_eth_qp(&d);
    uint64_t src = card_alloc(d.c, len), dst = card_alloc(d.c, len);
    struct vroce_wqe_rdma rdma = {
        .rkey = cpu_to_le32(d.key), .remote_addr = cpu_to_le64(dst),
    };
    struct vroce_wqe_eth segment = { 0 };
    uint8_t frame[64];
    ssize_t got;

    set_gid(&d);
    connect_qp(&d, &a, &b);
    connect_qp(&d, &b, &a);
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
    Qp a = create_qp(&d, VROCE_QPT_RC), b = create_qp(&d, VROCE_QPT_RC);
    uint64_t src = card_alloc(d.c, 4096);
    struct vroce_cqe cqe;

    set_gid(&d);
    connect_qp(&d, &a, &b);
    connect_qp(&d, &b, &a);

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

/* Nothing that lies in a ring, and no doorbell, harms QEMU. */
static void test_nonsense(void)
{
    Driver d = driver_start("");
    Qp a = create_qp(&d, VROCE_QPT_RC), b = create_qp(&d, VROCE_QPT_RC);
    Qp eth = create_eth_qp(&d);
    const Qp *qps[] = { &a, &b, &eth };

    set_gid(&d);
    connect_qp(&d, &a, &b);
    connect_qp(&d, &b, &a);
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
    qtest_add_func("/vroce/queues/nonsense", test_nonsense);
    qtest_add_func("/vroce/ethernet/tx", test_eth_tx);
    qtest_add_func("/vroce/ethernet/rx", test_eth_rx);
    qtest_add_func("/vroce/rc-loopback", test_rc_loopback);
    qtest_add_func("/vroce/migration", test_migration);
    qtest_add_func("/vroce/migration-full-wire", test_migration_full_wire);
    qtest_add_func("/vroce/self-interrupt", test_self_interrupt);
}
