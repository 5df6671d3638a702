/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * RoCEv2 frames: the headers of a super-packet's packets, and back. Layouts
 * are those of IBA chapter 9 (BTH and extension headers) and annex A17.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "vr_wire.h"

/* Extension headers, in the order in which they travel. */
#define EXT_DETH        (1u << 0)
#define EXT_RETH        (1u << 1)
#define EXT_ATOMIC      (1u << 2)
#define EXT_AETH        (1u << 3)
#define EXT_ATOMIC_ACK  (1u << 4)
#define EXT_IMM         (1u << 5)
#define EXT_IETH        (1u << 6)
#define EXT_NUM         7

static const uint8_t ext_len[EXT_NUM] = { 8, 16, 28, 4, 8, 4, 4 };

/* BTH opcode: the class in bits 7:5, the operation in 4:0, IBA table 38. */
#define CLASS_RC        0
#define CLASS_UC        1
#define CLASS_UD        3
#define OPCODE_CNP      0x81
#define CNP_PAYLOAD     16      /* bytes of zero, IBA annex A17.9.4 */

/* BTH byte 8; the second is one of those that IBA 9.2.5 reserves. */
#define BTH_ACKREQ      0x80
#define BTH_NAMES       0x01

#define ONLY    (VR_SP_FIRST | VR_SP_LAST)
#define CAN(c)  (1u << CLASS_##c)

struct operation {
    uint8_t op, flags, ext;
    uint8_t classes;            /* in which it exists */
    bool payload;               /* may carry some */
};

static const struct operation operations[32] = {
    [0x00] = { VR_OP_SEND, VR_SP_FIRST, 0, CAN(RC) | CAN(UC), true },
    [0x01] = { VR_OP_SEND, 0, 0, CAN(RC) | CAN(UC), true },
    [0x02] = { VR_OP_SEND, VR_SP_LAST, 0, CAN(RC) | CAN(UC), true },
    [0x03] = { VR_OP_SEND, VR_SP_LAST | VR_SP_IMM, EXT_IMM,
               CAN(RC) | CAN(UC), true },
    [0x04] = { VR_OP_SEND, ONLY, 0, CAN(RC) | CAN(UC) | CAN(UD), true },
    [0x05] = { VR_OP_SEND, ONLY | VR_SP_IMM, EXT_IMM,
               CAN(RC) | CAN(UC) | CAN(UD), true },
    [0x06] = { VR_OP_WRITE, VR_SP_FIRST, EXT_RETH, CAN(RC) | CAN(UC), true },
    [0x07] = { VR_OP_WRITE, 0, 0, CAN(RC) | CAN(UC), true },
    [0x08] = { VR_OP_WRITE, VR_SP_LAST, 0, CAN(RC) | CAN(UC), true },
    [0x09] = { VR_OP_WRITE, VR_SP_LAST | VR_SP_IMM, EXT_IMM,
               CAN(RC) | CAN(UC), true },
    [0x0a] = { VR_OP_WRITE, ONLY, EXT_RETH, CAN(RC) | CAN(UC), true },
    [0x0b] = { VR_OP_WRITE, ONLY | VR_SP_IMM, EXT_RETH | EXT_IMM,
               CAN(RC) | CAN(UC), true },
    [0x0c] = { VR_OP_READ_REQ, ONLY, EXT_RETH, CAN(RC), false },
    [0x0d] = { VR_OP_READ_RESP, VR_SP_FIRST, EXT_AETH, CAN(RC), true },
    [0x0e] = { VR_OP_READ_RESP, 0, 0, CAN(RC), true },
    [0x0f] = { VR_OP_READ_RESP, VR_SP_LAST, EXT_AETH, CAN(RC), true },
    [0x10] = { VR_OP_READ_RESP, ONLY, EXT_AETH, CAN(RC), true },
    [0x11] = { VR_OP_ACK, ONLY, EXT_AETH, CAN(RC), false },
    [0x12] = { VR_OP_ATOMIC_ACK, ONLY, EXT_AETH | EXT_ATOMIC_ACK, CAN(RC),
               false },
    [0x13] = { VR_OP_CMP_SWAP, ONLY, EXT_ATOMIC, CAN(RC), false },
    [0x14] = { VR_OP_FETCH_ADD, ONLY, EXT_ATOMIC, CAN(RC), false },
    [0x16] = { VR_OP_SEND, VR_SP_LAST | VR_SP_INV, EXT_IETH, CAN(RC), true },
    [0x17] = { VR_OP_SEND, ONLY | VR_SP_INV, EXT_IETH, CAN(RC), true },
};

/* The table's entry for a BTH opcode, NULL for one that we do not speak. */
static const struct operation *find_operation(uint8_t opcode, uint8_t *ext)
{
    const struct operation *op = &operations[opcode & 0x1f];
    uint8_t class = opcode >> 5;

    if (!(op->classes & 1u << class)) {
        return NULL;
    }
    *ext = op->ext | (class == CLASS_UD ? EXT_DETH : 0);
    return op;
}

/* ------------------------------------------------------------- encode */

static uint8_t *put_eth(uint8_t *p, const struct vr_route *r, bool v4)
{
    memcpy(p, r->dmac, 6);
    memcpy(p + 6, r->smac, 6);
    p += 12;
    if (r->vlan != VROCE_NO_VLAN) {
        vr_put16(p, VR_ETHERTYPE_VLAN);
        vr_put16(p + 2, (r->sl & 7) << 13 | r->vlan);
        p += VR_VLAN_LEN;
    }
    vr_put16(p, v4 ? VR_ETHERTYPE_IPV4 : VR_ETHERTYPE_IPV6);
    return p + 2;
}

static void put_ipv4(uint8_t *p, const struct vr_route *r, uint16_t udp_len)
{
    memset(p, 0, VR_IPV4_LEN);
    p[0] = 0x45;
    p[1] = r->traffic_class;
    vr_put16(p + 2, VR_IPV4_LEN + udp_len);
    p[6] = 0x40;                /* don't fragment: needs no identification */
    p[8] = r->hop_limit;
    p[9] = VR_PROTO_UDP;
    memcpy(p + 12, r->sgid + 12, 4);
    memcpy(p + 16, r->dgid + 12, 4);
    vr_put16(p + 10, ~vr_csum_fold(vr_csum_add(0, p, VR_IPV4_LEN)));
}

static void put_ipv6(uint8_t *p, const struct vr_route *r, uint16_t udp_len)
{
    vr_put32(p, 6u << 28 | (uint32_t)r->traffic_class << 20 | r->flow_label);
    vr_put16(p + 4, udp_len);
    p[6] = VR_PROTO_UDP;
    p[7] = r->hop_limit;
    memcpy(p + 8, r->sgid, 16);
    memcpy(p + 24, r->dgid, 16);
}

static void put_bth(uint8_t *p, const struct vr_sp *sp, uint32_t i,
                    uint8_t opcode, uint8_t pad)
{
    bool last = i == sp->npkt - 1;

    p[0] = opcode;
    p[1] = (last && sp->flags & VR_SP_SOLICITED ? 0x80 : 0) |
           0x40 /* MigReq */ | pad << 4;
    vr_put16(p + 2, VR_PKEY);
    p[4] = sp->op == VR_OP_CNP ? 0x40 /* BECN */ : 0;
    vr_put24(p + 5, sp->dqpn);
    p[8] = (last && sp->flags & VR_SP_ACKREQ ? BTH_ACKREQ : 0) |
           (sp->flags & VR_SP_NAMES ? BTH_NAMES : 0);
    vr_put24(p + 9, vr_psn_add(sp->psn, i));
}

static uint8_t *put_ext(uint8_t *p, const struct vr_sp *sp, uint8_t ext)
{
    if (ext & EXT_DETH) {
        vr_put32(p, sp->qkey);
        vr_put32(p + 4, sp->sqpn & 0xffffff);
        p += 8;
    }
    if (ext & EXT_RETH) {
        vr_put64(p, sp->va);
        vr_put32(p + 8, sp->rkey);
        vr_put32(p + 12, sp->dma_len);
        p += 16;
    }
    if (ext & EXT_ATOMIC) {
        vr_put64(p, sp->va);
        vr_put32(p + 8, sp->rkey);
        vr_put64(p + 12, sp->swap_add);
        vr_put64(p + 20, sp->compare);
        p += 28;
    }
    if (ext & EXT_AETH) {
        p[0] = sp->syndrome;
        vr_put24(p + 1, sp->msn);
        p += 4;
    }
    if (ext & EXT_ATOMIC_ACK) {
        vr_put64(p, sp->swap_add);
        p += 8;
    }
    if (ext & EXT_IMM) {
        memcpy(p, &sp->imm, 4);
        p += 4;
    }
    if (ext & EXT_IETH) {
        vr_put32(p, sp->inv_key);
        p += 4;
    }
    return p;
}

static uint32_t ext_length(uint8_t ext)
{
    uint32_t len = 0;

    for (int i = 0; i < EXT_NUM; i++) {
        len += ext & 1u << i ? ext_len[i] : 0;
    }
    return len;
}

/* Bytes of payload in packet i. */
static uint32_t packet_payload(const struct vr_sp *sp, uint32_t i)
{
    return i == sp->npkt - 1 ? sp->payload.len - i * sp->mtu : sp->mtu;
}

size_t vr_frame_headers(uint8_t *frame, const struct vr_sp *sp, uint32_t i,
                        uint32_t *payload_len)
{
    bool v4 = vr_gid_is_ipv4(sp->route.dgid);
    uint8_t opcode = vr_sp_bth_opcode(sp, i), ext = 0, *p;
    uint32_t udp_len, pad;

    if (opcode == OPCODE_CNP) {
        *payload_len = 0;
        pad = CNP_PAYLOAD;      /* zeroes behind BTH, not counted as pad */
    } else {
        find_operation(opcode, &ext);
        *payload_len = packet_payload(sp, i);
        pad = -*payload_len & 3;
    }
    udp_len = VR_UDP_LEN + VR_BTH_LEN + ext_length(ext) + *payload_len + pad +
              VR_ICRC_LEN;

    p = put_eth(frame, &sp->route, v4);
    if (v4) {
        put_ipv4(p, &sp->route, udp_len);
        p += VR_IPV4_LEN;
    } else {
        put_ipv6(p, &sp->route, udp_len);
        p += VR_IPV6_LEN;
    }
    vr_put16(p, sp->route.udp_sport);
    vr_put16(p + 2, VR_ROCE_PORT);
    vr_put16(p + 4, udp_len);
    vr_put16(p + 6, 0);         /* no checksum: IBA annex A17.4.5.2 */
    p += VR_UDP_LEN;
    put_bth(p, sp, i, opcode, pad & 3);
    p += VR_BTH_LEN;
    p = put_ext(p, sp, ext);
    memset(p + *payload_len, 0, pad);
    return p - frame;
}

size_t vr_frame_finish(uint8_t *frame)
{
    uint16_t ethertype, vlan;
    uint8_t pcp;
    size_t l3 = vr_frame_l3(frame, VR_ETH_LEN + VR_VLAN_LEN, &ethertype, &vlan,
                            &pcp);
    size_t end = l3 + (ethertype == VR_ETHERTYPE_IPV4 ?
                       vr_get16(frame + l3 + 2) :
                       VR_IPV6_LEN + vr_get16(frame + l3 + 4));
    uint32_t icrc = htole32(vr_icrc(frame, l3, end - VR_ICRC_LEN));

    memcpy(frame + end - VR_ICRC_LEN, &icrc, sizeof(icrc));
    return end;
}

void vr_frame_grh(const struct vr_sp *sp, uint8_t grh[40])
{
    uint8_t ext = 0;
    uint32_t udp_len;

    find_operation(vr_sp_bth_opcode(sp, 0), &ext);
    udp_len = VR_UDP_LEN + VR_BTH_LEN + ext_length(ext) + sp->payload.len +
              (-sp->payload.len & 3) + VR_ICRC_LEN;
    memset(grh, 0, 40);
    if (vr_gid_is_ipv4(sp->route.dgid)) {
        put_ipv4(grh + 20, &sp->route, udp_len);
    } else {
        put_ipv6(grh, &sp->route, udp_len);
    }
}

/* ------------------------------------------------------------- decode */

size_t vr_frame_l3(const uint8_t *frame, size_t len, uint16_t *ethertype,
                   uint16_t *vlan, uint8_t *pcp)
{
    size_t l3 = VR_ETH_LEN;

    *vlan = VROCE_NO_VLAN;
    *pcp = 0;
    *ethertype = vr_get16(frame + 12);
    if (*ethertype == VR_ETHERTYPE_VLAN && len >= VR_ETH_LEN + VR_VLAN_LEN) {
        uint16_t tci = vr_get16(frame + 14);

        /* VLAN 0 is a priority tag: no VLAN. */
        if (tci & 0xfff) {
            *vlan = tci & 0xfff;
        }
        *pcp = tci >> 13;
        *ethertype = vr_get16(frame + 16);
        l3 += VR_VLAN_LEN;
    }
    return l3;
}

static void map_ipv4(uint8_t gid[16], const uint8_t *addr)
{
    memset(gid, 0, 10);
    memset(gid + 10, 0xff, 2);
    memcpy(gid + 12, addr, 4);
}

/*
 * Parse the IP header of len bytes at most. Returns the length of header and
 * of what follows it; *broken when it is not as RoCEv2 wants it.
 */
static int parse_ipv4(const uint8_t *p, size_t len, struct vr_route *r,
                      size_t *hdr_len, size_t *body_len, bool *broken)
{
    uint32_t total, fragment;

    if (len < VR_IPV4_LEN || p[0] >> 4 != 4 || p[9] != VR_PROTO_UDP) {
        return -ENOMSG;
    }
    *hdr_len = (p[0] & 0xf) * 4;
    total = vr_get16(p + 2);
    fragment = vr_get16(p + 6) & 0x3fff;
    if (*hdr_len < VR_IPV4_LEN || total < *hdr_len || total > len ||
        fragment & 0x1fff) {
        return -ENOMSG;
    }
    *body_len = total - *hdr_len;
    /* Options, a first fragment, a wrong sum: dropped if it is for us. */
    *broken = *hdr_len != VR_IPV4_LEN || fragment ||
              vr_csum_fold(vr_csum_add(0, p, *hdr_len)) != 0xffff;
    r->traffic_class = p[1];
    r->hop_limit = p[8];
    map_ipv4(r->sgid, p + 12);
    map_ipv4(r->dgid, p + 16);
    return 0;
}

static int parse_ipv6(const uint8_t *p, size_t len, struct vr_route *r,
                      size_t *hdr_len, size_t *body_len, bool *broken)
{
    if (len < VR_IPV6_LEN || p[0] >> 4 != 6 || p[6] != VR_PROTO_UDP) {
        return -ENOMSG;
    }
    *hdr_len = VR_IPV6_LEN;
    *body_len = vr_get16(p + 4);
    if (*body_len > len - VR_IPV6_LEN) {
        return -ENOMSG;
    }
    *broken = false;
    r->traffic_class = vr_get16(p) >> 4;
    r->flow_label = vr_get32(p) & 0xfffff;
    r->hop_limit = p[7];
    memcpy(r->sgid, p + 8, 16);
    memcpy(r->dgid, p + 24, 16);
    return 0;
}

/*
 * From the Ethernet header to the UDP header: fills route, finds BTH and ICRC.
 * -ENOMSG: not RoCEv2; -EPROTO: it is, but not as it should be.
 */
static int parse_lower(const uint8_t *frame, size_t len, struct vr_route *r,
                       size_t *l3, size_t *bth, size_t *icrc)
{
    size_t hdr_len, body_len;
    const uint8_t *udp;
    uint16_t ethertype;
    bool broken;
    int ret;

    if (len < VR_ETH_LEN) {
        return -ENOMSG;
    }
    *l3 = vr_frame_l3(frame, len, &ethertype, &r->vlan, &r->sl);
    if (ethertype == VR_ETHERTYPE_IPV4) {
        ret = parse_ipv4(frame + *l3, len - *l3, r, &hdr_len, &body_len,
                         &broken);
    } else if (ethertype == VR_ETHERTYPE_IPV6) {
        ret = parse_ipv6(frame + *l3, len - *l3, r, &hdr_len, &body_len,
                         &broken);
    } else {
        return -ENOMSG;
    }
    if (ret) {
        return ret;
    }
    udp = frame + *l3 + hdr_len;
    if (body_len < VR_UDP_LEN || vr_get16(udp + 2) != VR_ROCE_PORT) {
        return -ENOMSG;
    }
    memcpy(r->dmac, frame, 6);
    memcpy(r->smac, frame + 6, 6);
    r->udp_sport = vr_get16(udp);
    if (broken || vr_get16(udp + 4) != body_len ||
        body_len < VR_UDP_LEN + VR_BTH_LEN + VR_ICRC_LEN) {
        return -EPROTO;
    }
    *bth = *l3 + hdr_len + VR_UDP_LEN;
    *icrc = *l3 + hdr_len + body_len - VR_ICRC_LEN;
    return 0;
}

static const uint8_t *parse_ext(const uint8_t *p, struct vr_sp *sp, uint8_t ext)
{
    if (ext & EXT_DETH) {
        sp->qkey = vr_get32(p);
        sp->sqpn = vr_get24(p + 5);
        p += 8;
    }
    if (ext & EXT_RETH) {
        sp->va = vr_get64(p);
        sp->rkey = vr_get32(p + 8);
        sp->dma_len = vr_get32(p + 12);
        p += 16;
    }
    if (ext & EXT_ATOMIC) {
        sp->va = vr_get64(p);
        sp->rkey = vr_get32(p + 8);
        sp->swap_add = vr_get64(p + 12);
        sp->compare = vr_get64(p + 20);
        p += 28;
    }
    if (ext & EXT_AETH) {
        sp->syndrome = p[0];
        sp->msn = vr_get24(p + 1);
        p += 4;
    }
    if (ext & EXT_ATOMIC_ACK) {
        sp->swap_add = vr_get64(p);
        p += 8;
    }
    if (ext & EXT_IMM) {
        memcpy(&sp->imm, p, 4);
        p += 4;
    }
    if (ext & EXT_IETH) {
        sp->inv_key = vr_get32(p);
        p += 4;
    }
    return p;
}

/* BTH and all behind it, in len bytes without the ICRC. */
static int parse_transport(const uint8_t *bth, size_t len, struct vr_sp *sp)
{
    const struct operation *op;
    uint8_t ext = 0, pad = bth[1] >> 4 & 3;
    size_t hdr_len;

    if (bth[1] & 0xf) {         /* transport version */
        return -EPROTO;
    }
    if ((vr_get16(bth + 2) & 0x7fff) != (VR_PKEY & 0x7fff)) {
        return -EACCES;
    }
    sp->npkt = 1;
    sp->dqpn = vr_get24(bth + 5);
    sp->psn = vr_get24(bth + 9);
    if (bth[0] == OPCODE_CNP) {
        sp->op = VR_OP_CNP;
        return len == VR_BTH_LEN + CNP_PAYLOAD ? 0 : -EPROTO;
    }
    op = find_operation(bth[0], &ext);
    if (!op) {
        return -EPROTO;
    }
    hdr_len = VR_BTH_LEN + ext_length(ext);
    if (len < hdr_len + pad || (!op->payload && len != hdr_len)) {
        return -EPROTO;
    }
    sp->qp_type = bth[0] >> 5 == CLASS_RC ? VROCE_QPT_RC :
                  bth[0] >> 5 == CLASS_UC ? VROCE_QPT_UC : VROCE_QPT_UD;
    sp->op = op->op;
    sp->flags = op->flags | (bth[1] & 0x80 ? VR_SP_SOLICITED : 0) |
                (bth[8] & BTH_ACKREQ ? VR_SP_ACKREQ : 0) |
                (bth[8] & BTH_NAMES ? VR_SP_NAMES : 0);
    sp->payload.bytes = parse_ext(bth + VR_BTH_LEN, sp, ext);
    sp->payload.len = len - hdr_len - pad;
    sp->payload.kind = sp->payload.len ? VR_PAYLOAD_BYTES : VR_PAYLOAD_NONE;
    sp->mtu = sp->payload.len;
    return 0;
}

int vr_frame_parse(const uint8_t *frame, size_t len, struct vr_sp *sp)
{
    size_t l3, bth, icrc;
    uint32_t stored;
    int ret;

    memset(sp, 0, sizeof(*sp));
    ret = parse_lower(frame, len, &sp->route, &l3, &bth, &icrc);
    if (ret) {
        return ret;
    }
    memcpy(&stored, frame + icrc, sizeof(stored));
    if (vr_icrc(frame, l3, icrc) != le32toh(stored)) {
        return -EBADMSG;
    }
    return parse_transport(frame + bth, icrc - bth, sp);
}
