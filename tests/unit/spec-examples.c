/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The worked sequences of docs/device/sequences.md, carried out: prints what
 * the driver and the device write, one line each, for check_spec.py to compare
 * with the page:
 *
 *   NAME TYPE[,TYPE...] ADDRESS BYTES
 *
 * With the argument "transitions" it answers instead, for each line TYPE FROM
 * TO MASK of its input, with the rule that such a MODIFY_QP breaks.
 *
 * A type is a struct of vroce_hw.h, a word that check_spec.py can draw, or
 * "bytes". Address 0: it is not in memory. Everything is printed from where it
 * was put for the other side to read.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fakehost.h"
#include "vr_transport.h"

#define LOG_CQ      4u      /* entries of each CQ */
#define LOG_EQ      4u
#define LOG_SQ      4u      /* units of each send ring */
#define LOG_RQ      4u      /* entries of each receive ring, */
#define LOG_STRIDE  6u      /* of 64 bytes: up to 3 scatter-gather entries */
#define SIZE(log)   (1u << (log))

#define RQ_OFF      (VROCE_SQ_UNIT << LOG_SQ)
#define QP_REC_OFF  (RQ_OFF + SIZE(LOG_RQ + LOG_STRIDE))
#define CQ_REC_OFF  (sizeof(struct vroce_cqe) << LOG_CQ)

#define SEND_OFF    0x000u  /* in the data buffer */
#define RECV_OFF    0x800u
#define RECV_LEN    0x400u
#define DATA_IOVA   0x7f5500000000ull
#define PSN         0x123456u
#define BAD_KEY     0xbad00u

static const uint8_t mac[6] = { 0x52, 0x54, 0x00, 0x77, 0x00, 0x01 };
static const uint8_t gid[16] = { [10] = 0xff, 0xff, 10, 77, 0, 1 };
static const char text[] = "hello, world";

struct queue_pair {
    uint64_t ring;
    uint32_t qpn, sq_producer, rq_producer;
};

struct cq {
    uint64_t ring;
    uint32_t cqn, consumer;
};

static struct fakehost *h;
static uint64_t cmd_ring, cpl_ring, cmd_in, cmd_out;
static uint32_t commands;
static uint64_t data;           /* bus address of what DATA_IOVA stands for */
static uint32_t data_key, pdn;
static struct cq cq, eth_cq;
static uint64_t eq_ring[2];     /* async events, completion events */
static uint32_t eqn[2], eq_consumer[2];

/* ------------------------------------------------------------ printing */

static void print(const char *name, const char *types, uint64_t addr,
                  const void *bytes, uint32_t len)
{
    if (!name) {
        return;
    }
    printf("%s %s 0x%" PRIx64 " ", name, types, addr);
    for (uint32_t i = 0; i < len; i++) {
        printf("%02x", ((const uint8_t *)bytes)[i]);
    }
    putchar('\n');
}

static void print_mem(const char *name, const char *types, uint64_t addr,
                      uint32_t len)
{
    print(name, types, addr, fh_ptr(h, addr, len), len);
}

static void put(uint64_t addr, const void *bytes, uint32_t len)
{
    memcpy(fh_ptr(h, addr, len), bytes, len);
}

static void ring_doorbell(const char *name, enum vroce_db_kind kind,
                          uint32_t number, uint32_t index)
{
    uint64_t value = vroce_doorbell(kind, number, index);
    uint64_t wire = htole64(value);

    print(name, "doorbell", 0, &wire, sizeof(wire));
    fh_doorbell(h, 0, value);
    fh_settle(h, 1000);
}

/* ------------------------------------------------------------ commands */

/*
 * A command, by way of its ring: what the device's PCI half does is done here.
 * Prints NAME.command and NAME.completion of the first, and of all NAME.input
 * and NAME.output.
 */
static uint32_t command(const char *name, uint8_t opcode, const char *in_type,
                        const void *in, uint32_t in_len, const char *out_type,
                        uint32_t out_len)
{
    const uint64_t at = cmd_ring + commands * sizeof(struct vroce_cmd);
    const uint64_t answer = cpl_ring + commands * sizeof(struct vroce_cmd_cpl);
    const struct vroce_cmd cmd = {
        .opcode = opcode, .id = htole16(0x4200 + commands),
        .in_len = htole32(in_len), .in_addr = htole64(in_len ? cmd_in : 0),
        .out_len = htole32(out_len), .out_addr = htole64(out_len ? cmd_out : 0),
    };
    struct vroce_cmd_cpl cpl = {
        .id = cmd.id, .sq_head = htole16(commands + 1), .phase = htole32(1),
    };
    const bool first = commands++ == 0;
    uint8_t out[VR_CMD_MAX_LEN];
    char line[64];
    uint16_t rule;

    put(at, &cmd, sizeof(cmd));
    if (in_len) {
        put(cmd_in, in, in_len);
    }
    cpl.status = fh_command(h, opcode, in, in_len, out, out_len, &rule);
    cpl.rule = htole16(rule);
    g_assert_cmpint(cpl.status, ==, VROCE_OK);
    if (out_len) {
        put(cmd_out, out, out_len);
    }
    put(answer, &cpl, sizeof(cpl));
    if (name && first) {
        snprintf(line, sizeof(line), "%s.command", name);
        print_mem(line, "vroce_cmd", at, sizeof(cmd));
        snprintf(line, sizeof(line), "%s.completion", name);
        print_mem(line, "vroce_cmd_cpl", answer, sizeof(cpl));
    }
    if (name && in_len) {
        snprintf(line, sizeof(line), "%s.input", name);
        print_mem(line, in_type, cmd_in, in_len);
    }
    if (name && out_len) {
        snprintf(line, sizeof(line), "%s.output", name);
        print_mem(line, out_type, cmd_out, out_len);
    }
    return out_len == sizeof(struct vroce_number) ?
           le32toh(((struct vroce_number *)out)->number) : 0;
}

#define CREATE(name, opcode, type, in) \
    command(name, opcode, #type, in, sizeof(struct type), "vroce_number", \
            sizeof(struct vroce_number))
#define DO(name, opcode, type, in) \
    command(name, opcode, #type, in, sizeof(struct type), NULL, 0)

static struct vroce_buf piece(uint64_t addr, uint64_t length)
{
    return (struct vroce_buf) {
        .addr = htole64(addr), .length = htole64(length),
    };
}

/* ------------------------------------------------------------- objects */

static void create_eqs(void)
{
    static const char *const names[] = { "create-eq", "create-eq-2" };

    for (int i = 0; i < 2; i++) {
        const uint32_t size = sizeof(struct vroce_eqe) << LOG_EQ;
        struct vroce_create_eq_in in = {
            .vector = htole32(i), .log_size = LOG_EQ,
            .flags = i ? 0 : VROCE_EQ_ASYNC,
        };

        eq_ring[i] = fh_alloc(h, size, FH_PAGE_SIZE);
        in.buf = piece(eq_ring[i], size);
        eqn[i] = CREATE(names[i], VROCE_CMD_CREATE_EQ, vroce_create_eq_in, &in);
    }
}

static void create_cq(const char *name, struct cq *c, uint32_t eq)
{
    const uint32_t size = CQ_REC_OFF + sizeof(struct vroce_db_record);
    struct vroce_create_cq_in in = {
        .rec_off = htole32(CQ_REC_OFF), .eqn = htole32(eq), .log_size = LOG_CQ,
    };

    c->ring = fh_alloc(h, size, FH_PAGE_SIZE);
    in.buf = piece(c->ring, size);
    c->cqn = CREATE(name, VROCE_CMD_CREATE_CQ, vroce_create_cq_in, &in);
}

static void create_qp(const char *name, struct queue_pair *qp, uint8_t type,
                      const struct cq *c)
{
    const uint32_t size = QP_REC_OFF + sizeof(struct vroce_db_record);
    struct vroce_create_qp_in in = {
        .rq_off = htole32(RQ_OFF), .rec_off = htole32(QP_REC_OFF),
        .pdn = htole32(pdn), .send_cqn = htole32(c->cqn),
        .recv_cqn = htole32(c->cqn), .srqn = htole32(VROCE_NONE),
        .type = type, .sq_log_units = LOG_SQ, .rq_log_entries = LOG_RQ,
        .rq_log_stride = LOG_STRIDE,
    };

    *qp = (struct queue_pair) { .ring = fh_alloc(h, size, FH_PAGE_SIZE) };
    in.buf = piece(qp->ring, size);
    qp->qpn = CREATE(name, VROCE_CMD_CREATE_QP, vroce_create_qp_in, &in);
}

static void modify(const char *name, const struct queue_pair *qp,
                   uint32_t mask, const struct vroce_qp_attr *attr)
{
    const struct vroce_modify_qp_in in = {
        .qpn = htole32(qp->qpn), .attr_mask = htole32(VROCE_QP_STATE | mask),
        .attr = *attr,
    };

    DO(name, VROCE_CMD_MODIFY_QP, vroce_modify_qp_in, &in);
}

/* RESET to RTS, connected to itself; prints when it is the first time. */
static void connect(const struct queue_pair *qp, bool first)
{
    const struct vroce_qp_attr init = {
        .state = VROCE_QPS_INIT, .port = 1,
        .access_flags = htole32(VROCE_ACCESS_REMOTE_WRITE |
                                VROCE_ACCESS_REMOTE_READ),
    };
    struct vroce_qp_attr rtr = {
        .state = VROCE_QPS_RTR, .path_mtu = 3, .min_rnr_timer = 12,
        .max_dest_rd_atomic = 16, .rq_psn = htole32(PSN),
        .dest_qpn = htole32(qp->qpn), .av = { .hop_limit = 64 },
    };
    const struct vroce_qp_attr rts = {
        .state = VROCE_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
        .max_rd_atomic = 16, .sq_psn = htole32(PSN),
    };

    memcpy(rtr.av.dgid, gid, sizeof(gid));
    memcpy(rtr.av.dmac, mac, sizeof(mac));
    modify(first ? "modify-init" : NULL, qp, VROCE_QP_PKEY_INDEX |
           VROCE_QP_PORT | VROCE_QP_ACCESS_FLAGS, &init);
    modify(first ? "modify-rtr" : NULL, qp, VROCE_QP_AV | VROCE_QP_PATH_MTU |
           VROCE_QP_DEST_QPN | VROCE_QP_RQ_PSN | VROCE_QP_MAX_DEST_RD_ATOMIC |
           VROCE_QP_MIN_RNR_TIMER, &rtr);
    modify(first ? "modify-rts" : NULL, qp, VROCE_QP_TIMEOUT |
           VROCE_QP_RETRY_CNT | VROCE_QP_RNR_RETRY | VROCE_QP_SQ_PSN |
           VROCE_QP_MAX_RD_ATOMIC, &rts);
}

/* ---------------------------------------------------------------- work */

static void set_record(const char *name, uint64_t at, uint32_t index)
{
    const struct vroce_db_record rec = { .index = htole32(index) };

    put(at, &rec, sizeof(rec));
    print_mem(name, "vroce_db_record", at, sizeof(rec));
}

static void post_recv(const char *name, const char *record,
                      struct queue_pair *qp, uint64_t wr_id)
{
    const struct {
        struct vroce_rwqe wqe;
        struct vroce_sge sge;
    } w = {
        .wqe = {
            .wr_id = htole64(wr_id), .num_sge = 1,
            .index = htole16(qp->rq_producer),
        },
        .sge = {
            .addr = htole64(DATA_IOVA + RECV_OFF), .length = htole32(RECV_LEN),
            .lkey = htole32(data_key),
        },
    };
    const uint64_t at = qp->ring + RQ_OFF +
                        (qp->rq_producer % SIZE(LOG_RQ) << LOG_STRIDE);

    put(at, &w, sizeof(w));
    print_mem(name, "vroce_rwqe,vroce_sge", at, sizeof(w));
    set_record(record, qp->ring + QP_REC_OFF, ++qp->rq_producer);
}

/* Write a WQE of one unit: ctrl, then rest; the doorbell is another step. */
static void post_send(const char *name, const char *types,
                      struct queue_pair *qp, struct vroce_wqe_ctrl ctrl,
                      const void *rest, uint32_t len)
{
    const uint64_t at = qp->ring +
                        qp->sq_producer % SIZE(LOG_SQ) * VROCE_SQ_UNIT;

    ctrl.units = 1;
    ctrl.index = htole16(qp->sq_producer++);
    put(at, &ctrl, sizeof(ctrl));
    put(at + sizeof(ctrl), rest, len);
    print_mem(name, types, at, sizeof(ctrl) + len);
}

static void send_text(const char *name, struct queue_pair *qp, uint64_t wr_id,
                      uint32_t key)
{
    const struct vroce_wqe_ctrl ctrl = {
        .opcode = VROCE_WQE_SEND, .flags = VROCE_WQE_SIGNALED, .num_sge = 1,
        .wr_id = htole64(wr_id),
    };
    const struct vroce_sge sge = {
        .addr = htole64(DATA_IOVA + SEND_OFF), .length = htole32(sizeof(text)),
        .lkey = htole32(key),
    };

    post_send(name, "vroce_wqe_ctrl,vroce_sge", qp, ctrl, &sge, sizeof(sge));
}

/* The next completion, which must be there, of work wr_id and with status. */
static void take_cqe(const char *name, struct cq *c, uint64_t wr_id,
                     uint8_t status)
{
    const uint64_t at = c->ring +
                        c->consumer % SIZE(LOG_CQ) * sizeof(struct vroce_cqe);
    const struct vroce_cqe *cqe = fh_ptr(h, at, sizeof(*cqe));

    g_assert_cmpuint(le32toh(cqe->phase), ==, !(c->consumer >> LOG_CQ & 1));
    g_assert_cmpuint(le64toh(cqe->wr_id), ==, wr_id);
    g_assert_cmpuint(cqe->status, ==, status);
    print_mem(name, "vroce_cqe", at, sizeof(*cqe));
    c->consumer++;
}

static void take_eqe(const char *name, int which, uint16_t type)
{
    const uint64_t at = eq_ring[which] + eq_consumer[which] % SIZE(LOG_EQ) *
                        sizeof(struct vroce_eqe);
    const struct vroce_eqe *eqe = fh_ptr(h, at, sizeof(*eqe));

    g_assert_cmpuint(le32toh(eqe->phase), ==, 1);
    g_assert_cmpuint(le16toh(eqe->type), ==, type);
    print_mem(name, "vroce_eqe", at, sizeof(*eqe));
    eq_consumer[which]++;
}

/* ----------------------------------------------------------- sequences */

static void bring_up(void)
{
    cmd_ring = fh_alloc(h, FH_PAGE_SIZE, FH_PAGE_SIZE);
    cpl_ring = fh_alloc(h, FH_PAGE_SIZE, FH_PAGE_SIZE);
    cmd_in = fh_alloc(h, FH_PAGE_SIZE, FH_PAGE_SIZE);
    cmd_out = fh_alloc(h, FH_PAGE_SIZE, FH_PAGE_SIZE);
    command("query-device", VROCE_CMD_QUERY_DEVICE, NULL, NULL, 0,
            "vroce_query_device_out", sizeof(struct vroce_query_device_out));
}

static void first_send(struct queue_pair *qp)
{
    struct vroce_create_mr_in mr = {
        .iova = htole64(DATA_IOVA), .kind = VROCE_MR_MEM,
        .access = htole32(VROCE_ACCESS_LOCAL_WRITE),
    };
    struct vroce_set_gid_in entry = {
        .vlan = htole16(VROCE_NO_VLAN), .valid = 1,
    };

    pdn = command("alloc-pd", VROCE_CMD_ALLOC_PD, NULL, NULL, 0,
                  "vroce_number", sizeof(struct vroce_number));
    create_eqs();
    create_cq("create-cq", &cq, eqn[1]);

    data = fh_alloc(h, FH_PAGE_SIZE, FH_PAGE_SIZE);
    mr.buf = piece(data, FH_PAGE_SIZE);
    mr.pdn = htole32(pdn);
    data_key = CREATE("create-mr", VROCE_CMD_CREATE_MR, vroce_create_mr_in,
                      &mr);
    memcpy(entry.gid, gid, sizeof(gid));
    memcpy(entry.mac, mac, sizeof(mac));
    DO("set-gid", VROCE_CMD_SET_GID, vroce_set_gid_in, &entry);

    create_qp("create-qp", qp, VROCE_QPT_RC, &cq);
    connect(qp, true);

    post_recv("first-receive.wqe", "first-receive.record", qp, 0x1111);
    put(data + SEND_OFF, text, sizeof(text));
    h->now = 1000000;
    send_text("first-send.wqe", qp, 0x2222, data_key);
    ring_doorbell("first-send.doorbell", VROCE_DB_SQ, qp->qpn,
                  qp->sq_producer);
    g_assert_cmpmem(fh_ptr(h, data + RECV_OFF, sizeof(text)), sizeof(text),
                    text, sizeof(text));
    take_cqe("first-receive.cqe", &cq, 0x1111, VROCE_WCS_SUCCESS);
    take_cqe("first-send.cqe", &cq, 0x2222, VROCE_WCS_SUCCESS);
    set_record("first-send.consumed", cq.ring + CQ_REC_OFF, cq.consumer);
}

/* Bus addresses of the pages of a list, from the last on, so none follows. */
static uint64_t page_list(uint64_t *list, uint32_t n, bool pages)
{
    uint64_t entries[600], at;

    g_assert_cmpuint(n, <=, G_N_ELEMENTS(entries));
    for (uint32_t i = n; i-- > 0;) {
        uint64_t page = pages ? fh_alloc(h, FH_PAGE_SIZE, FH_PAGE_SIZE) :
                                list[i];

        entries[i] = htole64(page | VROCE_PTE_VALID |
                             (pages ? VROCE_PTE_WRITE : 0));
    }
    at = fh_alloc(h, n * sizeof(*entries), FH_PAGE_SIZE);
    put(at, entries, n * sizeof(*entries));
    return at;
}

static void register_list(const char *name, uint64_t list, uint8_t levels,
                          uint32_t offset, uint64_t length, uint64_t iova)
{
    const struct vroce_create_mr_in in = {
        .buf = {
            .addr = htole64(list), .length = htole64(length),
            .offset = htole32(offset), .page_shift = 12, .levels = levels,
        },
        .iova = htole64(iova), .pdn = htole32(pdn), .kind = VROCE_MR_MEM,
        .access = htole32(VROCE_ACCESS_LOCAL_WRITE | VROCE_ACCESS_REMOTE_WRITE |
                          VROCE_ACCESS_REMOTE_READ),
    };

    CREATE(name, VROCE_CMD_CREATE_MR, vroce_create_mr_in, &in);
}

static void register_memory(void)
{
    uint64_t list = page_list(NULL, 3, true), halves[2], top;

    print_mem("page-list", "page_entry,page_entry,page_entry", list, 24);
    register_list("register-list", list, 1, 0x234, 10000, 0x7f5510000234);

    halves[0] = page_list(NULL, VROCE_PTES_PER_PAGE, true);
    halves[1] = page_list(NULL, 88, true);
    top = page_list(halves, 2, false);
    print_mem("pointers", "page_entry,page_entry", top, 16);
    register_list("register-levels", top, 2, 0, 600 * FH_PAGE_SIZE,
                  0x7f5520000000);
}

static void take_event(struct queue_pair *qp)
{
    const struct vroce_modify_cq_in moderation = {
        .cqn = htole32(cq.cqn), .count = htole16(8), .period_us = htole16(50),
    };

    ring_doorbell("arm-eq.doorbell", VROCE_DB_EQ_ARM, eqn[1], eq_consumer[1]);
    ring_doorbell("arm-cq.doorbell", VROCE_DB_CQ_ARM, cq.cqn, cq.consumer);
    g_assert_cmpuint(h->irqs[1], ==, 0);
    post_recv(NULL, NULL, qp, 0x3333);
    send_text(NULL, qp, 0x4444, data_key);
    ring_doorbell(NULL, VROCE_DB_SQ, qp->qpn, qp->sq_producer);
    g_assert_cmpuint(h->irqs[1], ==, 1);
    take_eqe("completion.eqe", 1, VROCE_EVENT_COMPLETION);
    take_cqe(NULL, &cq, 0x3333, VROCE_WCS_SUCCESS);
    take_cqe(NULL, &cq, 0x4444, VROCE_WCS_SUCCESS);
    ring_doorbell("rearm-cq.doorbell", VROCE_DB_CQ_ARM, cq.cqn, cq.consumer);
    ring_doorbell("rearm-eq.doorbell", VROCE_DB_EQ_ARM, eqn[1],
                  eq_consumer[1]);
    g_assert_cmpuint(h->irqs[1], ==, 1);
    DO("modify-cq", VROCE_CMD_MODIFY_CQ, vroce_modify_cq_in, &moderation);
}

static void drain(const struct queue_pair *qp)
{
    const struct vroce_qp_attr sqd = {
        .state = VROCE_QPS_SQD, .sqd_async_notify = 1,
    };
    const struct vroce_qp_attr rts = { .state = VROCE_QPS_RTS };

    ring_doorbell(NULL, VROCE_DB_EQ_ARM, eqn[0], eq_consumer[0]);
    modify("modify-sqd", qp, VROCE_QP_EN_SQD_ASYNC_NOTIFY, &sqd);
    fh_settle(h, 1000);
    take_eqe("drained.eqe", 0, VROCE_EVENT_SQ_DRAINED);
    modify(NULL, qp, 0, &rts);
}

static void fail_and_recover(struct queue_pair *qp)
{
    const struct vroce_qp_attr reset = { .state = VROCE_QPS_RESET };

    post_recv(NULL, NULL, qp, 0x5555);
    send_text("bad-send.wqe", qp, 0x6666, BAD_KEY);
    send_text(NULL, qp, 0x7777, data_key);
    ring_doorbell(NULL, VROCE_DB_SQ, qp->qpn, qp->sq_producer);
    take_cqe("bad-send.cqe", &cq, 0x6666, VROCE_WCS_LOC_PROT_ERR);
    take_cqe("flushed-send.cqe", &cq, 0x7777, VROCE_WCS_WR_FLUSH_ERR);
    take_cqe("flushed-receive.cqe", &cq, 0x5555, VROCE_WCS_WR_FLUSH_ERR);

    post_recv(NULL, NULL, qp, 0x8888);
    ring_doorbell("late-receive.doorbell", VROCE_DB_RQ, qp->qpn,
                  qp->rq_producer);
    take_cqe(NULL, &cq, 0x8888, VROCE_WCS_WR_FLUSH_ERR);

    modify("modify-reset", qp, 0, &reset);
    qp->sq_producer = qp->rq_producer = 0;
    set_record(NULL, qp->ring + QP_REC_OFF, 0);
    connect(qp, false);
    post_recv(NULL, NULL, qp, 0x9999);
    send_text(NULL, qp, 0xaaaa, data_key);
    ring_doorbell(NULL, VROCE_DB_SQ, qp->qpn, qp->sq_producer);
    take_cqe(NULL, &cq, 0x9999, VROCE_WCS_SUCCESS);
    take_cqe(NULL, &cq, 0xaaaa, VROCE_WCS_SUCCESS);
}

/* ------------------------------------------------------------ Ethernet */

static bool on_frame(void *opaque, const uint8_t *frame, size_t len)
{
    print("ethernet-send.frame", "bytes", 0, frame, len);
    return true;
}

/* UDP over IPv4 from 10.77.0.1:4096 to 10.77.0.2:4097, 4 bytes of payload. */
static const uint8_t udp_frame[46] = {
    0x52, 0x54, 0x00, 0x77, 0x00, 0x02, 0x52, 0x54, 0x00, 0x77, 0x00, 0x01,
    0x08, 0x00,
    0x45, 0x00, 0x00, 0x20, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x26, 0x31,
    10, 77, 0, 1, 10, 77, 0, 2,
    0x10, 0x00, 0x10, 0x01, 0x00, 0x0c,
    0x14, 0xba,                 /* sum of the pseudo header */
    'p', 'i', 'n', 'g',
};

static void ethernet(void)
{
    struct queue_pair qp;
    struct vroce_set_netdev_in netdev = { .mtu = htole16(1500) };
    const struct vroce_qp_attr init = { .state = VROCE_QPS_INIT, .port = 1 };
    const struct vroce_qp_attr rtr = { .state = VROCE_QPS_RTR };
    const struct vroce_qp_attr rts = { .state = VROCE_QPS_RTS };
    const struct vroce_wqe_ctrl ctrl = {
        .opcode = VROCE_WQE_ETH, .flags = VROCE_WQE_SIGNALED, .num_sge = 1,
        .wr_id = htole64(0xe1),
    };
    const struct {
        struct vroce_wqe_eth eth;
        struct vroce_sge sge;
    } rest = {
        .eth = {
            .csum_start = htole16(34), .csum_offset = htole16(6),
            .flags = VROCE_ETH_CSUM,
        },
        .sge = {
            .addr = htole64(DATA_IOVA + SEND_OFF),
            .length = htole32(sizeof(udp_frame)), .lkey = htole32(data_key),
        },
    };
    uint8_t back[60] = { 0 };

    create_cq(NULL, &eth_cq, eqn[1]);
    create_qp("create-eth-qp", &qp, VROCE_QPT_ETH, &eth_cq);
    modify(NULL, &qp, VROCE_QP_PORT, &init);
    modify(NULL, &qp, 0, &rtr);
    modify(NULL, &qp, 0, &rts);
    netdev.qpn = htole32(qp.qpn);
    memcpy(netdev.mac, mac, sizeof(mac));
    DO("set-netdev", VROCE_CMD_SET_NETDEV, vroce_set_netdev_in, &netdev);

    h->frame_tx = on_frame;
    put(data + SEND_OFF, udp_frame, sizeof(udp_frame));
    print_mem("ethernet-send.data", "bytes", data + SEND_OFF,
              sizeof(udp_frame));
    post_send("ethernet-send.wqe", "vroce_wqe_ctrl,vroce_wqe_eth,vroce_sge",
              &qp, ctrl, &rest, sizeof(rest));
    ring_doorbell(NULL, VROCE_DB_SQ, qp.qpn, qp.sq_producer);
    take_cqe("ethernet-send.cqe", &eth_cq, 0xe1, VROCE_WCS_SUCCESS);

    /* The answer: addresses and ports swapped, which changes no sum. */
    memcpy(back, udp_frame, sizeof(udp_frame));
    memcpy(back, udp_frame + 6, 6);
    memcpy(back + 6, udp_frame, 6);
    memcpy(back + 26, udp_frame + 30, 4);
    memcpy(back + 30, udp_frame + 26, 4);
    memcpy(back + 34, udp_frame + 36, 2);
    memcpy(back + 36, udp_frame + 34, 2);
    back[40] = 0xec;
    back[41] = 0x67;
    post_recv(NULL, NULL, &qp, 0xe2);
    fh_receive(h, back, sizeof(back));
    take_cqe("ethernet-receive.cqe", &eth_cq, 0xe2, VROCE_WCS_SUCCESS);
}

static void answer_transitions(void)
{
    unsigned int type, from, to, mask;

    while (scanf("%u %u %u %u", &type, &from, &to, &mask) == 4) {
        printf("%d\n", vr_qp_transition(type, from, to, mask));
    }
}

int main(int argc, char **argv)
{
    struct vr_config cfg;
    struct queue_pair qp;

    if (argc > 1 && !strcmp(argv[1], "transitions")) {
        answer_transitions();
        return 0;
    }
    vr_config_init(&cfg);
    memcpy(cfg.mac, mac, sizeof(mac));
    h = fh_new(&cfg, 1);
    bring_up();
    first_send(&qp);
    register_memory();
    take_event(&qp);
    drain(&qp);
    fail_and_recover(&qp);
    ethernet();
    fh_free(h);
    return 0;
}
