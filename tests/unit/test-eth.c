/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The Ethernet side: gather, checksums, filter, scatter, errors. */
#include <endian.h>
#include <string.h>

#include "driver.h"
#include "vr_wire.h"

#define MTU      1500
#define BUF_LEN  2048
#define NUM_BUFS 8
#define SQ_LOG   4

struct bed {
    struct fakehost *h;
    struct drv *d;
    struct drv_cq scq, rcq;
    struct drv_qp qp;
    struct gmem mem;
    struct drv_mr mr;
    uint8_t mac[6];
    uint8_t frame[16384];       /* the last one sent */
    size_t len;
    bool full;                  /* the wire takes the frame and no more */
};

static bool on_frame(void *opaque, const uint8_t *frame, size_t len)
{
    struct bed *b = opaque;

    memcpy(b->frame, frame, len);
    b->len = len;
    return !b->full;
}

static void modify(struct bed *b, uint8_t state, uint32_t mask)
{
    struct vroce_modify_qp_in in = {
        .qpn = htole32(b->qp.qpn),
        .attr_mask = htole32(mask | VROCE_QP_STATE),
        .attr = { .state = state, .port = 1 },
    };

    g_assert_cmpint(fh_command(b->h, VROCE_CMD_MODIFY_QP, &in, sizeof(in),
                               NULL, 0, NULL), ==, VROCE_OK);
}

static int set_netdev(struct bed *b, uint32_t flags)
{
    struct vroce_set_netdev_in in = {
        .qpn = htole32(b->qp.qpn), .flags = htole32(flags),
        .mtu = htole16(MTU),
    };

    memcpy(in.mac, b->mac, 6);
    return fh_command(b->h, VROCE_CMD_SET_NETDEV, &in, sizeof(in), NULL, 0,
                      NULL);
}

static void bed_init(struct bed *b)
{
    struct drv_qp_init init = {
        .type = VROCE_QPT_ETH, .sq_log = SQ_LOG, .rq_log = 3,
        .max_recv_sge = 2, .scq = &b->scq, .rcq = &b->rcq,
    };

    memset(b, 0, sizeof(*b));
    b->h = fh_new(NULL, 1);
    b->h->frame_tx = on_frame;
    b->h->opaque = b;
    b->h->bounce = true;
    b->d = drv_new(b->h, 1);
    drv_mac(1, b->mac);
    drv_cq_create(b->d, &b->scq, 5, NULL);
    drv_cq_create(b->d, &b->rcq, 5, NULL);
    drv_qp_create(b->d, &b->qp, &init);
    gmem_init(&b->mem, b->h, 65536, 1, 12, 100);
    drv_mr_create(b->d, &b->mr, &b->mem, 0, VROCE_ACCESS_LOCAL_WRITE);
    modify(b, VROCE_QPS_INIT, VROCE_QP_PORT);
    modify(b, VROCE_QPS_RTR, 0);
    modify(b, VROCE_QPS_RTS, 0);
    g_assert_cmpint(set_netdev(b, 0), ==, VROCE_OK);
}

static void bed_fini(struct bed *b)
{
    drv_qp_destroy(&b->qp);
    drv_mr_destroy(&b->mr);
    gmem_fini(&b->mem);
    drv_cq_destroy(&b->scq);
    drv_cq_destroy(&b->rcq);
    drv_free(b->d);
    fh_free(b->h);
}

/* Send `len` bytes at offset 0 of the region, in two pieces. */
static void send_frame(struct bed *b, uint32_t len, struct vroce_wqe_eth eth)
{
    uint32_t cut = len / 3, at = b->qp.sq_producer & ((1 << SQ_LOG) - 1);
    struct vroce_sge sge[2] = {
        { .length = htole32(cut), .lkey = htole32(b->mr.key) },
        { .addr = htole64(cut), .length = htole32(len - cut),
          .lkey = htole32(b->mr.key) },
    };
    struct vroce_wqe_ctrl ctrl = {
        .opcode = VROCE_WQE_ETH, .flags = VROCE_WQE_SIGNALED, .units = 2,
        .num_sge = 2, .index = htole16(b->qp.sq_producer),
        .wr_id = htole64(len),
    };
    uint8_t wqe[128] = { 0 };

    memcpy(wqe, &ctrl, sizeof(ctrl));
    memcpy(wqe + 32, &eth, sizeof(eth));
    memcpy(wqe + 48, sge, sizeof(sge));
    gmem_write(&b->qp.mem, b->qp.sq_off + at * 64, wqe, sizeof(wqe));
    b->qp.sq_producer += 2;
    drv_ring(&b->qp);
}

static void expect_sent(struct bed *b, uint8_t status, uint16_t rule)
{
    struct vroce_cqe cqe;

    g_assert_true(drv_poll(&b->scq, &cqe));
    g_assert_cmpint(cqe.status, ==, status);
    g_assert_cmpint(le16toh(cqe.rule), ==, rule);
}

static void fill(struct bed *b, uint8_t *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        data[i] = g_rand_int(b->h->rand);
    }
    gmem_write(&b->mem, 0, data, len);
}

static void test_send(void)
{
    static const struct vroce_wqe_eth none;
    static const uint8_t zero[60];
    uint8_t data[9018];
    struct bed b;

    bed_init(&b);
    for (uint32_t len = 14; len <= 9018; len += len < 80 ? 1 : 271) {
        fill(&b, data, len);
        send_frame(&b, len, none);
        expect_sent(&b, VROCE_WCS_SUCCESS, 0);
        g_assert_cmpuint(b.len, ==, MAX(len, 60));
        g_assert_cmpmem(b.frame, len, data, len);
        if (len < 60) {
            g_assert_cmpmem(b.frame + len, 60 - len, zero, 60 - len);
        }
    }
    g_assert_cmpuint(b.h->e->counters[VROCE_CNT_TX_FRAMES], ==,
                     b.h->frames_sent);
    bed_fini(&b);
}

/* A frame of protocol proto (TCP or UDP) over IP, without its checksum. */
static size_t build(struct bed *b, uint8_t *f, bool v6, bool vlan,
                    uint8_t proto, size_t body, size_t *l4, size_t *field)
{
    size_t l3 = vlan ? 18 : 14;

    for (size_t i = 0; i < l3 + 60 + body; i++) {
        f[i] = g_rand_int(b->h->rand);
    }
    memcpy(f, b->mac, 6);
    f[6] &= ~1;
    if (vlan) {
        vr_put16(f + 12, VR_ETHERTYPE_VLAN);
    }
    vr_put16(f + l3 - 2, v6 ? VR_ETHERTYPE_IPV6 : VR_ETHERTYPE_IPV4);
    *l4 = l3 + (v6 ? 40 : 20);
    *field = *l4 + (proto == VR_PROTO_TCP ? 16 : 6);
    if (v6) {
        f[l3] = 0x60;
        vr_put16(f + l3 + 4, body);
        f[l3 + 6] = proto;
    } else {
        f[l3] = 0x45;
        vr_put16(f + l3 + 2, 20 + body);
        vr_put16(f + l3 + 6, 0x4000);
        f[l3 + 9] = proto;
        vr_put16(f + l3 + 10, 0);
        vr_put16(f + l3 + 10, ~vr_csum_fold(vr_csum_add(0, f + l3, 20)));
    }
    if (proto == VR_PROTO_UDP) {
        vr_put16(f + *l4 + 2, 53);
        vr_put16(f + *l4 + 4, body);
    }
    vr_put16(f + *field, vr_csum_fold(vr_csum_pseudo(f + l3, body, proto)));
    return *l4 + body;
}

static void post_buffers(struct bed *b, uint32_t len)
{
    for (int i = 0; i < NUM_BUFS; i++) {
        struct drv_wr wr = {
            .wr_id = i, .num_sge = 2,
            .sge = { { .addr = 8192 + i * BUF_LEN, .length = 10,
                       .lkey = b->mr.key },
                     { .addr = 8192 + i * BUF_LEN + 10, .length = len - 10,
                       .lkey = b->mr.key } },
        };

        if (!drv_post_recv(&b->qp, &wr)) {
            break;
        }
    }
}

/* The frame has come, whole; its checksums are known to be right, or not. */
static void expect_received(struct bed *b, const uint8_t *frame, size_t len,
                            bool sums_ok)
{
    uint8_t got[BUF_LEN];
    struct vroce_cqe cqe;

    g_assert_true(drv_poll(&b->rcq, &cqe));
    g_assert_cmpint(cqe.status, ==, VROCE_WCS_SUCCESS);
    g_assert_cmpint(cqe.opcode, ==, VROCE_WC_RECV);
    g_assert_cmpuint(le32toh(cqe.byte_len), ==, len);
    g_assert_cmpint(!!(le16toh(cqe.flags) & VROCE_CQE_CSUM_OK), ==, sums_ok);
    gmem_read(&b->mem, 8192 + le64toh(cqe.wr_id) * BUF_LEN, got, len);
    g_assert_cmpmem(got, len, frame, len);
}

static void expect_dropped(struct bed *b)
{
    struct vroce_cqe cqe;

    g_assert_false(drv_poll(&b->rcq, &cqe));
}

/* Sent with the checksum left to the card, received and found right. */
static void test_checksums(void)
{
    uint8_t f[BUF_LEN];
    struct bed b;

    bed_init(&b);
    for (int i = 0; i < 400; i++) {
        bool v6 = i & 1, vlan = i & 2;
        uint8_t proto = i & 4 ? VR_PROTO_TCP : VR_PROTO_UDP;
        size_t body = g_rand_int_range(b.h->rand, 20, 1400), l4, field;
        size_t len = build(&b, f, v6, vlan, proto, body, &l4, &field), bad;
        struct vroce_wqe_eth eth = {
            .csum_start = htole16(l4), .csum_offset = htole16(field - l4),
            .flags = VROCE_ETH_CSUM,
        };

        gmem_write(&b.mem, 0, f, len);
        send_frame(&b, len, eth);
        expect_sent(&b, VROCE_WCS_SUCCESS, 0);
        g_assert_cmpmem(b.frame, field, f, field);
        g_assert_cmpmem(b.frame + field + 2, len - field - 2, f + field + 2,
                        len - field - 2);

        post_buffers(&b, BUF_LEN);
        fh_receive(b.h, b.frame, len);
        expect_received(&b, b.frame, len, true);
        /* Padding of the link does not matter, a flipped bit does. */
        post_buffers(&b, BUF_LEN);
        fh_receive(b.h, b.frame, len + 7);
        expect_received(&b, b.frame, len + 7, true);
        bad = g_rand_int_range(b.h->rand, l4, len);
        b.frame[bad] ^= 1 << g_rand_int_range(b.h->rand, 0, 8);
        post_buffers(&b, BUF_LEN);
        fh_receive(b.h, b.frame, len);
        expect_received(&b, b.frame, len, false);
    }
    bed_fini(&b);
}

/* What is not looked into comes without the flag. */
static void test_no_sums(void)
{
    struct bed b;
    uint8_t f[BUF_LEN];
    size_t len, l4, field;

    bed_init(&b);
    post_buffers(&b, BUF_LEN);
    len = build(&b, f, false, false, VR_PROTO_UDP, 100, &l4, &field);
    vr_put16(f + field, 0);             /* none */
    fh_receive(b.h, f, len);
    expect_received(&b, f, len, false);
    f[14 + 9] = 1;                      /* ICMP */
    fh_receive(b.h, f, len);
    expect_received(&b, f, len, false);
    for (size_t cut = 14; cut < 60; cut++) {
        post_buffers(&b, BUF_LEN);
        fh_receive(b.h, f, cut);
        expect_received(&b, f, cut, false);
    }
    bed_fini(&b);
}

static void test_filter(void)
{
    static const uint8_t broadcast[6] = { 255, 255, 255, 255, 255, 255 };
    static const uint8_t multicast[6] = { 1, 0, 0x5e, 0, 0, 1 };
    static const uint8_t other[6] = { 0x52, 0x54, 0, 0x77, 0, 9 };
    struct bed b;
    uint8_t f[1600] = { 0 };

    bed_init(&b);
    vr_put16(f + 12, 0x88b5);
    memcpy(f + 6, other, 6);
    post_buffers(&b, BUF_LEN);
    memcpy(f, b.mac, 6);
    fh_receive(b.h, f, 100);
    expect_received(&b, f, 100, false);
    memcpy(f, broadcast, 6);
    fh_receive(b.h, f, 100);
    expect_received(&b, f, 100, false);
    memcpy(f, multicast, 6);
    fh_receive(b.h, f, 100);
    expect_received(&b, f, 100, false);
    memcpy(f, other, 6);
    fh_receive(b.h, f, 100);
    expect_dropped(&b);
    g_assert_cmpint(set_netdev(&b, VROCE_NETDEV_PROMISC), ==, VROCE_OK);
    fh_receive(b.h, f, 100);
    expect_received(&b, f, 100, false);
    /* Our own, back from a hub. */
    memcpy(f, broadcast, 6);
    memcpy(f + 6, b.mac, 6);
    fh_receive(b.h, f, 100);
    expect_dropped(&b);
    memcpy(f + 6, other, 6);

    /* Lengths: the MTU, and a tag on top of it. */
    fh_receive(b.h, f, MTU + 14);
    expect_received(&b, f, MTU + 14, false);
    fh_receive(b.h, f, MTU + 15);
    expect_dropped(&b);
    g_assert_cmpuint(b.h->e->counters[VROCE_CNT_RX_TOO_LONG], ==, 1);
    vr_put16(f + 12, VR_ETHERTYPE_VLAN);
    fh_receive(b.h, f, MTU + 18);
    expect_received(&b, f, MTU + 18, false);
    fh_receive(b.h, f, 13);
    expect_dropped(&b);

    vr_set_link(b.h->e, false, b.h->now);
    fh_receive(b.h, f, 100);
    expect_dropped(&b);
    bed_fini(&b);
}

static void test_buffers(void)
{
    struct bed b;
    struct vroce_cqe cqe;
    uint8_t f[1000] = { 0 };

    bed_init(&b);
    memcpy(f, b.mac, 6);
    fh_receive(b.h, f, 100);
    g_assert_cmpuint(b.h->e->counters[VROCE_CNT_RX_NO_BUFFER], ==, 1);
    /* Too small a buffer is kept for a frame that fits. */
    post_buffers(&b, 200);
    fh_receive(b.h, f, 201);
    expect_dropped(&b);
    g_assert_cmpuint(b.h->e->counters[VROCE_CNT_RX_TOO_LONG], ==, 1);
    for (int i = 0; i < NUM_BUFS; i++) {
        fh_receive(b.h, f, 200);
        expect_received(&b, f, 200, false);
    }
    fh_receive(b.h, f, 100);
    expect_dropped(&b);
    g_assert_cmpuint(b.h->e->counters[VROCE_CNT_RX_NO_BUFFER], ==, 2);
    /* Memory that cannot be reached ends the QP, with a word. */
    post_buffers(&b, BUF_LEN);
    gmem_fini(&b.mem);
    fh_receive(b.h, f, 100);
    g_assert_true(drv_poll(&b.rcq, &cqe));
    g_assert_cmpint(cqe.status, ==, VROCE_WCS_LOC_PROT_ERR);
    g_assert_cmpint(le16toh(cqe.rule), ==, VROCE_RULE_MEM_DMA);
    for (int i = 1; i < NUM_BUFS; i++) {
        g_assert_true(drv_poll(&b.rcq, &cqe));
        g_assert_cmpint(cqe.status, ==, VROCE_WCS_WR_FLUSH_ERR);
    }
    gmem_init(&b.mem, b.h, 65536, 1, 12, 100);
    bed_fini(&b);
}

static const struct {
    uint32_t len;
    struct vroce_wqe_eth eth;
    uint8_t status;
    uint16_t rule;
} bad_sends[] = {
    { 13, { 0 }, VROCE_WCS_LOC_LEN_ERR, VROCE_RULE_WQE_LENGTH },
    { 9019, { 0 }, VROCE_WCS_LOC_LEN_ERR, VROCE_RULE_WQE_LENGTH },
    { 60, { .flags = 2 }, VROCE_WCS_LOC_QP_OP_ERR, VROCE_RULE_RESERVED },
    { 60, { .gso_type = 1 }, VROCE_WCS_LOC_QP_OP_ERR,
      VROCE_RULE_RESERVED },
    { 60, { .reserved[5] = 1 }, VROCE_WCS_LOC_QP_OP_ERR,
      VROCE_RULE_RESERVED },
    { 60, { .flags = VROCE_ETH_CSUM, .csum_start = 61 },
      VROCE_WCS_LOC_QP_OP_ERR, VROCE_RULE_WQE_SIZE },
    { 60, { .flags = VROCE_ETH_CSUM, .csum_start = 50, .csum_offset = 9 },
      VROCE_WCS_LOC_QP_OP_ERR, VROCE_RULE_WQE_SIZE },
    { 60, { .flags = VROCE_ETH_CSUM, .csum_start = 1,
            .csum_offset = 0xffff },
      VROCE_WCS_LOC_QP_OP_ERR, VROCE_RULE_WQE_SIZE },
};

static void test_send_errors(const void *which)
{
    size_t i = GPOINTER_TO_UINT(which);
    struct bed b;

    bed_init(&b);
    send_frame(&b, bad_sends[i].len, bad_sends[i].eth);
    expect_sent(&b, bad_sends[i].status, bad_sends[i].rule);
    g_assert_cmpuint(b.h->frames_sent, ==, 0);
    g_assert_cmpuint(b.h->e->counters[VROCE_CNT_TX_ERRORS], ==, 1);
    g_assert_cmpuint(b.h->rules[bad_sends[i].rule], ==, 1);
    bed_fini(&b);
}

/* A wire that is full keeps the rest waiting, in order. */
static void test_full(void)
{
    static const struct vroce_wqe_eth none;
    uint8_t data[100];
    struct vroce_cqe cqe;
    struct bed b;

    bed_init(&b);
    b.full = true;
    fill(&b, data, sizeof(data));
    for (uint32_t len = 60; len < 65; len++) {
        send_frame(&b, len, none);
    }
    g_assert_cmpuint(b.h->frames_sent, ==, 1);
    for (uint32_t n = 2; n <= 5; n++) {
        fh_settle(b.h, 100);
        g_assert_cmpuint(b.h->frames_sent, ==, n - 1);
        fh_tx_ready(b.h);
        g_assert_cmpuint(b.h->frames_sent, ==, n);
        g_assert_cmpuint(b.len, ==, 59 + n);
    }
    for (int n = 0; n < 5; n++) {
        g_assert_true(drv_poll(&b.scq, &cqe));
        g_assert_cmpuint(le64toh(cqe.wr_id), ==, 60 + n);
    }
    bed_fini(&b);
}

/* A QP in error sends nothing more, not even what was rung together. */
static void test_overrun(void)
{
    static const struct vroce_wqe_eth none;
    struct drv_cq small;
    struct drv_qp_init init = {
        .type = VROCE_QPT_ETH, .sq_log = SQ_LOG, .rq_log = VROCE_NO_QUEUE,
    };
    struct bed b;

    bed_init(&b);
    drv_qp_destroy(&b.qp);
    drv_cq_create(b.d, &small, 1, NULL);
    init.scq = &small;
    init.rcq = &b.rcq;
    drv_qp_create(b.d, &b.qp, &init);
    modify(&b, VROCE_QPS_INIT, VROCE_QP_PORT);
    modify(&b, VROCE_QPS_RTR, 0);
    modify(&b, VROCE_QPS_RTS, 0);
    b.h->e->tx_full = true;     /* so that all six are there when it begins */
    for (int i = 0; i < 6; i++) {
        send_frame(&b, 100, none);
    }
    fh_tx_ready(b.h);
    fh_settle(b.h, 100);
    g_assert_cmpuint(b.h->e->counters[VROCE_CNT_CQ_OVERRUN], ==, 1);
    g_assert_cmpuint(b.h->e->counters[VROCE_CNT_TX_FRAMES], ==, 3);
    drv_qp_destroy(&b.qp);
    drv_cq_destroy(&small);
    init.scq = &b.scq;
    drv_qp_create(b.d, &b.qp, &init);
    bed_fini(&b);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/eth/send", test_send);
    g_test_add_func("/eth/checksums", test_checksums);
    g_test_add_func("/eth/no-sums", test_no_sums);
    g_test_add_func("/eth/filter", test_filter);
    g_test_add_func("/eth/buffers", test_buffers);
    g_test_add_func("/eth/full", test_full);
    g_test_add_func("/eth/overrun", test_overrun);
    for (unsigned int i = 0; i < G_N_ELEMENTS(bad_sends); i++) {
        g_autofree char *path = g_strdup_printf("/eth/send-errors/%u", i);

        g_test_add_data_func(path, GUINT_TO_POINTER(i), test_send_errors);
    }
    return g_test_run();
}
