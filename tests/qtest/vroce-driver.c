/*
 * QTest of the vroce RDMA network card: what a driver does with its queues
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "vroce-driver.h"

const uint8_t card_mac[6] = CARD_MAC;
const uint8_t card_gid[16] = {
    [10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1
};

struct vroce_buf contiguous(uint64_t addr, uint64_t length)
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

Cq create_cq(Card *c, uint32_t eqn)
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

Driver driver_start(const char *props)
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

void driver_stop(Driver *d)
{
    card_stop(d->c);
}

struct vroce_create_qp_in qp_request(Driver *d, Qp *qp, uint8_t type)
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

Qp create_qp(Driver *d, uint8_t type)
{
    Qp qp = { 0 };
    struct vroce_create_qp_in in = qp_request(d, &qp, type);

    qp.qpn = card_create(d->c, VROCE_CMD_CREATE_QP, &in, sizeof(in));
    return qp;
}

void modify_qp(Driver *d, const Qp *qp, uint32_t mask,
               struct vroce_qp_attr attr)
{
    struct vroce_modify_qp_in in = {
        .qpn = cpu_to_le32(qp->qpn), .attr_mask = cpu_to_le32(mask),
        .attr = attr,
    };

    card_cmd(d->c, VROCE_CMD_MODIFY_QP, &in, sizeof(in), NULL, 0);
}

Qp create_eth_qp(Driver *d)
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

void post_send(Driver *d, Qp *qp, uint8_t opcode, uint64_t wr_id,
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

void ring_sq(Driver *d, Qp *qp)
{
    card_doorbell(d->c, 0, VROCE_DB_SQ, qp->qpn, qp->posted);
}

void post_receive(Driver *d, Qp *qp, uint64_t wr_id, uint64_t addr,
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

struct vroce_cqe poll_cq(Driver *d, Cq *cq)
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

void expect_cqe(Driver *d, uint8_t opcode, uint64_t wr_id,
                const Qp *qp)
{
    struct vroce_cqe cqe = poll_cq(d, &d->cq);

    g_assert_cmpint(cqe.status, ==, VROCE_WCS_SUCCESS);
    g_assert_cmpint(le16_to_cpu(cqe.rule), ==, VROCE_RULE_NONE);
    g_assert_cmphex(cqe.opcode, ==, opcode);
    g_assert_cmphex(le64_to_cpu(cqe.wr_id), ==, wr_id);
    g_assert_cmpint(le32_to_cpu(cqe.qpn), ==, qp->qpn);
}

void fill_pattern(Driver *d, uint64_t addr, uint32_t len, uint8_t seed)
{
    g_autofree uint8_t *bytes = g_malloc(len);

    for (uint32_t i = 0; i < len; i++) {
        bytes[i] = i * 7 + (i >> 8) + seed;
    }
    qtest_memwrite(d->c->qts, addr, bytes, len);
}

void expect_same(Driver *d, uint64_t a, uint64_t b, uint32_t len)
{
    g_autofree uint8_t *x = g_malloc(len), *y = g_malloc(len);

    qtest_memread(d->c->qts, a, x, len);
    qtest_memread(d->c->qts, b, y, len);
    g_assert_cmpmem(x, len, y, len);
}

/* ------------------------------------------------------------ connection */

void set_gid(Driver *d)
{
    struct vroce_set_gid_in in = {
        .vlan = cpu_to_le16(VROCE_NO_VLAN), .valid = 1,
    };

    memcpy(in.gid, card_gid, sizeof(in.gid));
    memcpy(in.mac, card_mac, sizeof(in.mac));
    card_cmd(d->c, VROCE_CMD_SET_GID, &in, sizeof(in), NULL, 0);
}

void connect_qp(Driver *d, const Qp *qp, const Qp *peer)
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

void create_pair(Driver *d, Qp *a, Qp *b)
{
    set_gid(d);
    *a = create_qp(d, VROCE_QPT_RC);
    *b = create_qp(d, VROCE_QPT_RC);
    connect_qp(d, a, b);
    connect_qp(d, b, a);
}
