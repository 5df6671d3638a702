/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * RoCEv2 frames: lengths, and what the files of the wire offer each other.
 */
#ifndef VR_WIRE_H
#define VR_WIRE_H

#include "vr_internal.h"

#define VR_ETH_LEN          14
#define VR_VLAN_LEN         4
#define VR_IPV4_LEN         20
#define VR_IPV6_LEN         40
#define VR_UDP_LEN          8
#define VR_BTH_LEN          12
#define VR_ICRC_LEN         4
#define VR_MIN_FRAME        60      /* IEEE 802.3, without FCS */

#define VR_ETHERTYPE_IPV4   0x0800
#define VR_ETHERTYPE_VLAN   0x8100
#define VR_ETHERTYPE_IPV6   0x86dd
#define VR_PROTO_TCP        6
#define VR_PROTO_UDP        17
#define VR_ROCE_PORT        4791    /* IBA annex A17.9 */
#define VR_PKEY             0xffff  /* the default partition, full member */

/* Big-endian fields of frames, at any alignment. */
static inline uint16_t vr_get16(const uint8_t *p)
{
    return p[0] << 8 | p[1];
}

static inline uint32_t vr_get24(const uint8_t *p)
{
    return p[0] << 16 | p[1] << 8 | p[2];
}

static inline uint32_t vr_get32(const uint8_t *p)
{
    return (uint32_t)vr_get16(p) << 16 | vr_get16(p + 2);
}

static inline uint64_t vr_get64(const uint8_t *p)
{
    return (uint64_t)vr_get32(p) << 32 | vr_get32(p + 4);
}

static inline void vr_put16(uint8_t *p, uint16_t v)
{
    p[0] = v >> 8;
    p[1] = v;
}

static inline void vr_put24(uint8_t *p, uint32_t v)
{
    p[0] = v >> 16;
    vr_put16(p + 1, v);
}

static inline void vr_put32(uint8_t *p, uint32_t v)
{
    vr_put16(p, v >> 16);
    vr_put16(p + 2, v);
}

static inline void vr_put64(uint8_t *p, uint64_t v)
{
    vr_put32(p, v >> 32);
    vr_put32(p + 4, v);
}

/*
 * Build packet i of sp in frame, without its payload: writes all headers and
 * the pad with room for payload_len bytes between, and returns their offset.
 */
size_t vr_frame_headers(uint8_t *frame, const struct vr_sp *sp, uint32_t i,
                        uint32_t *payload_len);
/* Add the ICRC when the payload is in place; returns the frame's length. */
size_t vr_frame_finish(uint8_t *frame);
/*
 * Parse and check a RoCEv2 frame into sp: one packet, payload as BYTES in the
 * frame. Returns 0, -ENOMSG (not RoCEv2), -EBADMSG (bad ICRC), -EACCES (P_Key)
 * or -EPROTO (malformed); sp->route is filled in unless -ENOMSG.
 */
int vr_frame_parse(const uint8_t *frame, size_t len, struct vr_sp *sp);

/* ICRC of a frame; l3 is the offset of its IP header, end that of the ICRC. */
uint32_t vr_icrc(const uint8_t *frame, size_t l3, size_t end);

/* Add a buffer to an Internet checksum; only the last one may be odd. */
uint64_t vr_csum_add(uint64_t sum, const uint8_t *p, size_t len);
/* Fold to 16 bits; over data with a right checksum in it this is 0xffff. */
uint16_t vr_csum_fold(uint64_t sum);
/* Sum of the pseudo header of TCP or UDP under an IPv4 or IPv6 header. */
uint64_t vr_csum_pseudo(const uint8_t *ip, uint32_t len, uint8_t protocol);

/*
 * Find the layer-3 header of a frame of at least VR_ETH_LEN bytes: returns its
 * offset and the EtherType and VLAN (or VROCE_NO_VLAN) before it.
 */
size_t vr_frame_l3(const uint8_t *frame, size_t len, uint16_t *ethertype,
                   uint16_t *vlan, uint8_t *pcp);

#endif /* VR_WIRE_H */
