/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * RoCEv2 headers both ways, ICRC, sequence numbers and super-packets.
 */
#include <errno.h>
#include <string.h>

#include <glib.h>

#include "vr_wire.h"

#define LEN(a) G_N_ELEMENTS(a)

/* A CNP that a ConnectX-4 Lx sent. */
static const uint8_t cnp[] = {
    0xe4, 0x1d, 0x2d, 0xab, 0x2b, 0xc2, 0x7c, 0xfe, 0x90, 0x64, 0x3b, 0x32,
    0x08, 0x00, 0x45, 0xc2, 0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11,
    0x91, 0x61, 0x0a, 0x00, 0x11, 0x01, 0x0a, 0x00, 0x12, 0x01, 0x00, 0x00,
    0x12, 0xb7, 0x00, 0x28, 0x00, 0x00, 0x81, 0x00, 0xff, 0xff, 0x40, 0x00,
    0x01, 0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x82, 0xfd,
    0x00, 0x2a,
};

/* -------------------------------------------------------------- ICRC */

static void test_golden(void)
{
    struct vr_sp sp;

    g_assert_cmphex(vr_icrc(cnp, 14, sizeof(cnp) - 4), ==, 0x2a00fd82);
    g_assert_cmpint(vr_frame_parse(cnp, sizeof(cnp), &sp), ==, 0);
    g_assert_cmpint(sp.op, ==, VR_OP_CNP);
    g_assert_cmphex(sp.dqpn, ==, 0x000118);
    g_assert_cmphex(sp.psn, ==, 0);
    g_assert_cmpint(sp.route.udp_sport, ==, 0);
    g_assert_cmpint(sp.route.traffic_class, ==, 0xc2);
    g_assert_cmpint(sp.route.hop_limit, ==, 64);
    g_assert_cmpmem(sp.route.sgid + 12, 4, "\x0a\x00\x11\x01", 4);
    g_assert_cmpmem(sp.route.dgid + 12, 4, "\x0a\x00\x12\x01", 4);
}

/* Bits that switches and routers may change, and no others, are masked. */
static bool is_masked(size_t bit, bool v6, size_t l3)
{
    size_t byte = bit / 8 - l3, ip = v6 ? 40 : 20;

    if (bit / 8 < l3) {
        return true;
    }
    if (v6 ? (byte == 0 && bit % 8 < 4) || (byte >= 1 && byte <= 3) ||
             byte == 7 :
             byte == 1 || byte == 8 || byte == 10 || byte == 11) {
        return true;
    }
    return byte == ip + 6 || byte == ip + 7 || byte == ip + 8 + 4;
}

static void flip_all_bits(const uint8_t *frame, size_t len, bool v6, size_t l3)
{
    uint32_t icrc = vr_icrc(frame, l3, len - 4);

    for (size_t bit = 0; bit < (len - 4) * 8; bit++) {
        g_autofree uint8_t *copy = g_memdup2(frame, len);

        copy[bit / 8] ^= 1 << bit % 8;
        /* The version nibble says how long the header is. */
        if (bit / 8 == l3 && bit % 8 >= 4) {
            continue;
        }
        if (is_masked(bit, v6, l3)) {
            g_assert_cmphex(vr_icrc(copy, l3, len - 4), ==, icrc);
        } else {
            g_assert_cmphex(vr_icrc(copy, l3, len - 4), !=, icrc);
        }
    }
}

/* ------------------------------------------------------------ headers */

static void random_bytes(GRand *r, void *p, size_t len)
{
    uint8_t *bytes = p;

    for (size_t i = 0; i < len; i++) {
        bytes[i] = g_rand_int(r);
    }
}

static void random_route(GRand *r, struct vr_route *route, bool v6)
{
    random_bytes(r, route, sizeof(*route));
    if (!v6) {
        memset(route->sgid, 0, 16);
        memset(route->sgid + 10, 0xff, 2);
        memcpy(route->dgid, route->sgid, 16);
        random_bytes(r, route->sgid + 12, 4);
        random_bytes(r, route->dgid + 12, 4);
        route->flow_label = 0;
    }
    route->dgid[0] = v6 ? 0xfd : 0;
    route->flow_label &= 0xfffff;
    route->sl = 0;
    route->vlan = VROCE_NO_VLAN;
    if (g_rand_boolean(r)) {
        route->vlan = g_rand_int_range(r, 1, 4096);
        route->sl = g_rand_int_range(r, 0, 8);
    }
}

/* Each kind of packet: what an sp of it is called, and its header bytes. */
static const struct kind {
    const char *name;
    uint8_t qp_type, op, flags, opcode;
    uint8_t ext;                /* bytes of extension headers */
    bool payload;
} kinds[] = {
    { "send first", VROCE_QPT_RC, VR_OP_SEND, VR_SP_FIRST, 0x00, 0, true },
    { "send middle", VROCE_QPT_RC, VR_OP_SEND, 0, 0x01, 0, true },
    { "send last", VROCE_QPT_RC, VR_OP_SEND, VR_SP_LAST, 0x02, 0, true },
    { "send last imm", VROCE_QPT_RC, VR_OP_SEND, VR_SP_LAST | VR_SP_IMM, 0x03,
      4, true },
    { "send only", VROCE_QPT_RC, VR_OP_SEND, VR_SP_FIRST | VR_SP_LAST, 0x04,
      0, true },
    { "send only imm", VROCE_QPT_RC, VR_OP_SEND,
      VR_SP_FIRST | VR_SP_LAST | VR_SP_IMM, 0x05, 4, true },
    { "write first", VROCE_QPT_RC, VR_OP_WRITE, VR_SP_FIRST, 0x06, 16, true },
    { "write middle", VROCE_QPT_RC, VR_OP_WRITE, 0, 0x07, 0, true },
    { "write last", VROCE_QPT_RC, VR_OP_WRITE, VR_SP_LAST, 0x08, 0, true },
    { "write last imm", VROCE_QPT_RC, VR_OP_WRITE, VR_SP_LAST | VR_SP_IMM,
      0x09, 4, true },
    { "write only", VROCE_QPT_RC, VR_OP_WRITE, VR_SP_FIRST | VR_SP_LAST, 0x0a,
      16, true },
    { "write only imm", VROCE_QPT_RC, VR_OP_WRITE,
      VR_SP_FIRST | VR_SP_LAST | VR_SP_IMM, 0x0b, 20, true },
    { "read request", VROCE_QPT_RC, VR_OP_READ_REQ, VR_SP_FIRST | VR_SP_LAST,
      0x0c, 16, false },
    { "read first", VROCE_QPT_RC, VR_OP_READ_RESP, VR_SP_FIRST, 0x0d, 4, true },
    { "read middle", VROCE_QPT_RC, VR_OP_READ_RESP, 0, 0x0e, 0, true },
    { "read last", VROCE_QPT_RC, VR_OP_READ_RESP, VR_SP_LAST, 0x0f, 4, true },
    { "read only", VROCE_QPT_RC, VR_OP_READ_RESP, VR_SP_FIRST | VR_SP_LAST,
      0x10, 4, true },
    { "ack", VROCE_QPT_RC, VR_OP_ACK, VR_SP_FIRST | VR_SP_LAST, 0x11, 4,
      false },
    { "atomic ack", VROCE_QPT_RC, VR_OP_ATOMIC_ACK, VR_SP_FIRST | VR_SP_LAST,
      0x12, 12, false },
    { "compare swap", VROCE_QPT_RC, VR_OP_CMP_SWAP, VR_SP_FIRST | VR_SP_LAST,
      0x13, 28, false },
    { "fetch add", VROCE_QPT_RC, VR_OP_FETCH_ADD, VR_SP_FIRST | VR_SP_LAST,
      0x14, 28, false },
    { "send last inv", VROCE_QPT_RC, VR_OP_SEND, VR_SP_LAST | VR_SP_INV, 0x16,
      4, true },
    { "send only inv", VROCE_QPT_RC, VR_OP_SEND,
      VR_SP_FIRST | VR_SP_LAST | VR_SP_INV, 0x17, 4, true },
    { "uc send only", VROCE_QPT_UC, VR_OP_SEND, VR_SP_FIRST | VR_SP_LAST,
      0x24, 0, true },
    { "uc write only imm", VROCE_QPT_UC, VR_OP_WRITE,
      VR_SP_FIRST | VR_SP_LAST | VR_SP_IMM, 0x2b, 20, true },
    { "ud send", VROCE_QPT_UD, VR_OP_SEND, VR_SP_FIRST | VR_SP_LAST, 0x64, 8,
      true },
    { "ud send imm", VROCE_QPT_UD, VR_OP_SEND,
      VR_SP_FIRST | VR_SP_LAST | VR_SP_IMM, 0x65, 12, true },
    { "cnp", VROCE_QPT_RC, VR_OP_CNP, 0, 0x81, 16, false },
};

static void random_sp(GRand *r, const struct kind *k, bool v6, struct vr_sp *sp)
{
    memset(sp, 0, sizeof(*sp));
    random_route(r, &sp->route, v6);
    sp->qp_type = k->qp_type;
    sp->op = k->op;
    sp->flags = k->flags;
    if (k->op != VR_OP_CNP) {
        sp->flags |= g_rand_int(r) & (VR_SP_SOLICITED | VR_SP_ACKREQ |
                                      VR_SP_NAMES);
    }
    sp->syndrome = g_rand_int(r);
    sp->mtu = 1024;
    sp->sqpn = g_rand_int(r) & 0xffffff;
    sp->dqpn = g_rand_int(r) & 0xffffff;
    sp->psn = g_rand_int(r) & 0xffffff;
    sp->npkt = 1;
    sp->msn = g_rand_int(r) & 0xffffff;
    sp->qkey = g_rand_int(r);
    sp->rkey = g_rand_int(r);
    sp->dma_len = g_rand_int(r);
    sp->inv_key = g_rand_int(r);
    sp->imm = g_rand_int(r);
    random_bytes(r, &sp->va, 24);
    if (k->payload) {
        sp->payload.kind = VR_PAYLOAD_BYTES;
        sp->payload.len = g_rand_int_range(r, 0, 1025);
    }
}

static size_t build(const struct vr_sp *sp, uint32_t i, const uint8_t *data,
                    uint8_t *frame)
{
    uint32_t len;
    size_t off = vr_frame_headers(frame, sp, i, &len);

    memcpy(frame + off, data + i * sp->mtu, len);
    return vr_frame_finish(frame);
}

static void check_same(const struct kind *k, const struct vr_sp *a,
                       const struct vr_sp *b, const uint8_t *data)
{
    static const char *const no_reth[] = { "write middle", "write last",
                                           "write last imm" };
    bool reth = a->op == VR_OP_WRITE || a->op == VR_OP_READ_REQ;
    bool aeth = a->op == VR_OP_ACK || a->op == VR_OP_ATOMIC_ACK ||
                (a->op == VR_OP_READ_RESP && a->flags & 3);
    bool atomic = a->op == VR_OP_CMP_SWAP || a->op == VR_OP_FETCH_ADD;
    /* Up to the padding. */
    size_t len = offsetof(struct vr_route, sl) + sizeof(a->route.sl);

    for (size_t i = 0; i < LEN(no_reth); i++) {
        reth &= strcmp(k->name, no_reth[i]) != 0;
    }
    g_assert_cmpmem(&a->route, len, &b->route, len);
    g_assert_cmpint(a->op, ==, b->op);
    g_assert_cmphex(a->dqpn, ==, b->dqpn);
    g_assert_cmphex(a->psn, ==, b->psn);
    if (a->op == VR_OP_CNP) {
        return;
    }
    g_assert_cmpint(a->qp_type, ==, b->qp_type);
    g_assert_cmphex(a->flags, ==, b->flags);
    g_assert_cmphex(a->imm * !!(a->flags & VR_SP_IMM), ==, b->imm);
    g_assert_cmphex(a->inv_key * !!(a->flags & VR_SP_INV), ==, b->inv_key);
    g_assert_cmphex(reth || atomic ? a->va : 0, ==, b->va);
    g_assert_cmphex(reth || atomic ? a->rkey : 0, ==, b->rkey);
    g_assert_cmphex(reth ? a->dma_len : 0, ==, b->dma_len);
    g_assert_cmphex(atomic || a->op == VR_OP_ATOMIC_ACK ? a->swap_add : 0, ==,
                    b->swap_add);
    g_assert_cmphex(atomic ? a->compare : 0, ==, b->compare);
    g_assert_cmphex(aeth ? a->syndrome : 0, ==, b->syndrome);
    g_assert_cmphex(aeth ? a->msn : 0, ==, b->msn);
    g_assert_cmphex(a->qp_type == VROCE_QPT_UD ? a->qkey : 0, ==, b->qkey);
    g_assert_cmphex(a->qp_type == VROCE_QPT_UD ? a->sqpn : 0, ==, b->sqpn);
    g_assert_cmpmem(data, a->payload.len, b->payload.bytes, b->payload.len);
}

static void test_headers(const void *opaque)
{
    const struct kind *k = opaque;
    g_autoptr(GRand) r = g_rand_new_with_seed(k->opcode);
    uint8_t frame[2048], data[1024];

    random_bytes(r, data, sizeof(data));
    for (int n = 0; n < 400; n++) {
        bool v6 = n & 1;
        struct vr_sp sp, back;
        size_t len, l3, bth;

        random_sp(r, k, v6, &sp);
        memset(frame, 0xee, sizeof(frame));
        len = build(&sp, 0, data, frame);
        l3 = sp.route.vlan == VROCE_NO_VLAN ? 14 : 18;
        bth = l3 + (v6 ? 40 : 20) + 8;
        g_assert_cmphex(frame[bth], ==, k->opcode);
        g_assert_cmpuint(len, ==, bth + 12 + k->ext + sp.payload.len +
                         (-sp.payload.len & 3) + 4);
        g_assert_cmphex(frame[len], ==, 0xee);

        g_assert_cmpint(vr_frame_parse(frame, len, &back), ==, 0);
        check_same(k, &sp, &back, data);
        /* Padding of the link changes nothing. */
        g_assert_cmpint(vr_frame_parse(frame, len + 30, &back), ==, 0);
        check_same(k, &sp, &back, data);
        if (n < 4) {
            flip_all_bits(frame, len, v6, l3);
        }
    }
}

/* A frame whose bytes stand here, so that both ways cannot err alike. */
static void test_layout(void)
{
    static const uint8_t expected[] = {
        0x52, 0x54, 0x00, 0x77, 0x00, 0x02, 0x52, 0x54, 0x00, 0x77, 0x00, 0x01,
        0x08, 0x00,
        /* IPv4: 64 bytes, don't fragment, TTL 64, UDP */
        0x45, 0x00, 0x00, 0x40, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x26, 0x11,
        0x0a, 0x4d, 0x00, 0x01, 0x0a, 0x4d, 0x00, 0x02,
        /* UDP */
        0xc1, 0x23, 0x12, 0xb7, 0x00, 0x2c, 0x00, 0x00,
        /* BTH: WRITE only, MigReq, 1 byte of pad, QP 0x12, AckReq, PSN 0x345 */
        0x0a, 0x50, 0xff, 0xff, 0x00, 0x00, 0x00, 0x12, 0x80, 0x00, 0x03, 0x45,
        /* RETH */
        0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x00, 0x00, 0x09, 0x01,
        0x00, 0x00, 0x00, 0x03,
        'a', 'b', 'c', 0,
    };
    struct vr_sp sp = {
        .route = {
            .sgid = { [10] = 0xff, 0xff, 10, 77, 0, 1 },
            .dgid = { [10] = 0xff, 0xff, 10, 77, 0, 2 },
            .smac = { 0x52, 0x54, 0, 0x77, 0, 1 },
            .dmac = { 0x52, 0x54, 0, 0x77, 0, 2 },
            .vlan = VROCE_NO_VLAN, .udp_sport = 0xc123, .hop_limit = 64,
        },
        .qp_type = VROCE_QPT_RC, .op = VR_OP_WRITE,
        .flags = VR_SP_FIRST | VR_SP_LAST | VR_SP_ACKREQ, .mtu = 1024,
        .dqpn = 0x12, .psn = 0x345, .npkt = 1, .rkey = 0x901, .dma_len = 3,
        .va = 0x1122334455667788, .payload = { .len = 3 },
    };
    uint8_t frame[256] = { 0 };
    size_t len = build(&sp, 0, (const uint8_t *)"abc", frame);

    g_assert_cmpmem(frame, len - 4, expected, sizeof(expected));
}

/* The packets of one super-packet, and of its halves, are the same frames. */
static void test_cut(void)
{
    g_autoptr(GRand) r = g_rand_new_with_seed(1);

    for (int n = 0; n < 300; n++) {
        const struct kind *k = &kinds[n % 12];
        uint32_t npkt = g_rand_int_range(r, 2, 9), cut;
        uint8_t data[9 * 1024], one[2048], two[2048];
        struct vr_sp sp, head, tail;

        random_sp(r, k, n & 1, &sp);
        random_bytes(r, data, sizeof(data));
        sp.npkt = npkt;
        sp.payload.len = (npkt - 1) * 1024 + g_rand_int_range(r, 1, 1025);
        if (!(sp.flags & VR_SP_LAST)) {
            sp.payload.len = npkt * 1024;
        }
        cut = g_rand_int_range(r, 1, npkt);
        head = sp;
        vr_sp_split(&head, cut, &tail);
        g_assert_cmpuint(head.npkt + tail.npkt, ==, npkt);
        g_assert_cmpuint(head.payload.len + tail.payload.len, ==,
                         sp.payload.len);
        g_assert_cmpuint(tail.payload.off, ==, cut * 1024);
        for (uint32_t i = 0; i < npkt; i++) {
            bool in_head = i < cut;
            size_t a = build(&sp, i, data, one);
            size_t b = build(in_head ? &head : &tail, in_head ? i : i - cut,
                             in_head ? data : data + cut * 1024, two);

            g_assert_cmpmem(one, a, two, b);
        }
    }
}

/* ---------------------------------------------------------- malformed */

static void fix_icrc(uint8_t *frame, size_t len)
{
    uint32_t icrc = GUINT32_TO_LE(vr_icrc(frame, 14, len - 4));

    memcpy(frame + len - 4, &icrc, 4);
}

static void fix_ipv4(uint8_t *frame)
{
    vr_put16(frame + 24, 0);
    vr_put16(frame + 24, ~vr_csum_fold(vr_csum_add(0, frame + 14, 20)));
}

static void test_malformed(void)
{
    /* Offsets in an IPv4 frame: IP 14, UDP 34, BTH 42. */
    static const struct {
        const char *what;
        uint8_t off, mask, value;
        int result;
    } cases[] = {
        { "not IP", 12, 0xff, 0x88, -ENOMSG },
        { "IP version", 14, 0xf0, 0x50, -ENOMSG },
        { "IP options", 14, 0x0f, 0x06, -ENOMSG },
        { "IP header too short", 14, 0x0f, 0x04, -ENOMSG },
        { "IP longer than the frame", 16, 0xff, 0x7f, -ENOMSG },
        { "later fragment", 21, 0xff, 0x01, -ENOMSG },
        { "first fragment", 20, 0xff, 0x20, -EPROTO },
        { "TCP", 23, 0xff, 6, -ENOMSG },
        { "UDP port", 37, 0xff, 0, -ENOMSG },
        { "UDP length", 39, 0xff, 12, -EPROTO },
        { "transport version", 43, 0x0f, 1, -EPROTO },
        { "P_Key", 44, 0xff, 0x12, -EACCES },
        { "limited P_Key", 44, 0x80, 0, 0 },
        { "opcode of nothing", 42, 0xff, 0x15, -EPROTO },
        { "opcode of RD", 42, 0xff, 0x44, -EPROTO },
        { "opcode of XRC", 42, 0xff, 0xa4, -EPROTO },
        { "READ request with payload", 42, 0xff, 0x0c, -EPROTO },
        { "UC has no READ", 42, 0xff, 0x2c, -EPROTO },
        { "UD has no WRITE", 42, 0xff, 0x6a, -EPROTO },
        { "MigReq", 43, 0x40, 0, 0 },
        { "FECN", 46, 0xff, 0x80, 0 },
    };
    g_autoptr(GRand) r = g_rand_new_with_seed(7);
    const struct kind *k = &kinds[4];
    uint8_t frame[2048], data[1024];
    struct vr_sp sp, back;
    size_t len;

    random_bytes(r, data, sizeof(data));
    random_sp(r, k, false, &sp);
    sp.route.vlan = VROCE_NO_VLAN;
    sp.payload.len = 64;
    len = build(&sp, 0, data, frame);
    for (size_t i = 0; i < LEN(cases); i++) {
        uint8_t bad[2048];

        memcpy(bad, frame, len);
        bad[cases[i].off] &= ~cases[i].mask;
        bad[cases[i].off] |= cases[i].value;
        fix_ipv4(bad);
        fix_icrc(bad, len);
        g_test_message("%s", cases[i].what);
        g_assert_cmpint(vr_frame_parse(bad, len, &back), ==, cases[i].result);
    }

    /* IP header checksum, ICRC. */
    frame[24] ^= 1;
    g_assert_cmpint(vr_frame_parse(frame, len, &back), ==, -EPROTO);
    frame[24] ^= 1;
    frame[len - 1] ^= 1;
    g_assert_cmpint(vr_frame_parse(frame, len, &back), ==, -EBADMSG);
}

/* A pad count that exceeds what is there. */
static void test_pad(void)
{
    struct vr_sp sp = {
        .route = { .sgid = { [0] = 0xfd }, .dgid = { [0] = 0xfd },
                   .vlan = VROCE_NO_VLAN },
        .qp_type = VROCE_QPT_RC, .op = VR_OP_SEND,
        .flags = VR_SP_FIRST | VR_SP_LAST, .mtu = 256, .npkt = 1,
    }, back;
    uint8_t frame[256] = { 0 };
    size_t len = build(&sp, 0, frame, frame);

    g_assert_cmpint(vr_frame_parse(frame, len, &back), ==, 0);
    g_assert_cmpuint(back.payload.len, ==, 0);
    frame[14 + 40 + 8 + 1] |= 0x30;
    fix_icrc(frame, len);
    g_assert_cmpint(vr_frame_parse(frame, len, &back), ==, -EPROTO);
}

/* Any prefix and any noise is refused without a look behind its end. */
static void test_noise(void)
{
    g_autoptr(GRand) r = g_rand_new_with_seed(3);
    uint8_t frame[2048], data[1024];

    random_bytes(r, data, sizeof(data));
    for (size_t i = 0; i < LEN(kinds); i++) {
        struct vr_sp sp, back;
        size_t len;

        random_sp(r, &kinds[i], i & 1, &sp);
        sp.payload.len = MIN(sp.payload.len, 40);
        len = build(&sp, 0, data, frame);
        for (size_t cut = 0; cut < len; cut++) {
            g_autofree uint8_t *part = g_memdup2(frame, MAX(cut, 1));

            g_assert_cmpint(vr_frame_parse(part, cut, &back), !=, 0);
        }
        for (int n = 0; n < 2000; n++) {
            g_autofree uint8_t *bad = g_memdup2(frame, len);

            for (int k = g_rand_int_range(r, 1, 6); k; k--) {
                bad[g_rand_int_range(r, 12, len)] = g_rand_int(r);
            }
            vr_frame_parse(bad, len, &back);
        }
    }
}

/* ------------------------------------------------------- GRH, numbers */

static void test_grh(void)
{
    g_autoptr(GRand) r = g_rand_new_with_seed(11);
    static const uint8_t zero[20];
    uint8_t frame[2048], data[1024] = { 0 }, grh[40];

    for (int n = 0; n < 100; n++) {
        bool v6 = n & 1;
        struct vr_sp sp, back;
        size_t l3, len;

        random_sp(r, &kinds[25 + n / 2 % 2], v6, &sp);
        len = build(&sp, 0, data, frame);
        g_assert_cmpint(vr_frame_parse(frame, len, &back), ==, 0);
        l3 = sp.route.vlan == VROCE_NO_VLAN ? 14 : 18;
        vr_frame_grh(&back, grh);
        if (v6) {
            g_assert_cmpmem(grh, 40, frame + l3, 40);
        } else {
            g_assert_cmpmem(grh, 20, zero, 20);
            g_assert_cmpmem(grh + 20, 20, frame + l3, 20);
            g_assert_cmphex(vr_csum_fold(vr_csum_add(0, grh + 20, 20)), ==,
                            0xffff);
        }
    }
}

static void test_psn(void)
{
    g_assert_cmphex(vr_psn_add(0xffffff, 1), ==, 0);
    g_assert_cmphex(vr_psn_add(5, VR_PSN_MASK), ==, 4);
    g_assert_cmpint(vr_psn_diff(0, 0xffffff), ==, 1);
    g_assert_cmpint(vr_psn_diff(0xffffff, 0), ==, -1);
    g_assert_cmpint(vr_psn_diff(0x7fffff, 0), ==, 0x7fffff);
    g_assert_cmpint(vr_psn_diff(0x800000, 0), ==, -0x800000);
    for (uint32_t base = 0; base <= VR_PSN_MASK; base += 0x10101) {
        for (int32_t d = -300; d <= 300; d += 7) {
            g_assert_cmpint(vr_psn_diff(vr_psn_add(base, d), base), ==, d);
        }
    }
    g_assert_cmpuint(vr_num_packets(0, 1024), ==, 1);
    g_assert_cmpuint(vr_num_packets(1, 1024), ==, 1);
    g_assert_cmpuint(vr_num_packets(1024, 1024), ==, 1);
    g_assert_cmpuint(vr_num_packets(1025, 1024), ==, 2);
    g_assert_cmpuint(vr_num_packets(1ull << 31, 256), ==, 1u << 23);
}

static void test_csum(void)
{
    /* The example of RFC 1071, section 3. */
    static const uint8_t rfc[] = { 0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6,
                                   0xf7 };
    g_autoptr(GRand) r = g_rand_new_with_seed(5);
    uint8_t data[4096];

    g_assert_cmphex(vr_csum_fold(vr_csum_add(0, rfc, sizeof(rfc))), ==, 0xddf2);
    random_bytes(r, data, sizeof(data));
    for (size_t len = 0; len < 600; len++) {
        uint32_t sum = 0;

        for (size_t i = 0; i < len; i++) {
            sum += i & 1 ? data[i] : data[i] << 8;
            sum = (sum & 0xffff) + (sum >> 16);
        }
        g_assert_cmphex(vr_csum_fold(vr_csum_add(0, data, len)), ==, sum);
    }
    memset(data, 0xff, sizeof(data));
    g_assert_cmphex(vr_csum_fold(vr_csum_add(0, data, sizeof(data))), ==,
                    0xffff);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/wire/icrc-golden", test_golden);
    for (size_t i = 0; i < LEN(kinds); i++) {
        g_autofree char *path = g_strdup_printf("/wire/headers/%s",
                                                kinds[i].name);

        g_test_add_data_func(g_strdelimit(path, " ", '-'), &kinds[i],
                             test_headers);
    }
    g_test_add_func("/wire/layout", test_layout);
    g_test_add_func("/wire/cut", test_cut);
    g_test_add_func("/wire/malformed", test_malformed);
    g_test_add_func("/wire/pad", test_pad);
    g_test_add_func("/wire/noise", test_noise);
    g_test_add_func("/wire/grh", test_grh);
    g_test_add_func("/wire/psn", test_psn);
    g_test_add_func("/wire/csum", test_csum);
    return g_test_run();
}
