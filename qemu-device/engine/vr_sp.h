/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Super-packets: the unit that moves between the state machines and a link.
 *
 * A super-packet stands for npkt consecutive packets of one message, MTU-sized
 * but for the message's last. Its payload is a name that the receiver of the
 * reference resolves, never an address, so that a retransmission is the same
 * name at another offset and an invalidation works at any moment.
 */
#ifndef VR_SP_H
#define VR_SP_H

#include <stdbool.h>
#include <stdint.h>

#include "../vroce_hw.h"

#define VR_PSN_MASK 0xffffffu

static inline uint32_t vr_psn_add(uint32_t psn, uint32_t n)
{
    return (psn + n) & VR_PSN_MASK;
}

/* Signed distance a - b of 24-bit sequence numbers, IBA 9.7.2. */
static inline int32_t vr_psn_diff(uint32_t a, uint32_t b)
{
    return (int32_t)((a - b) << 8) >> 8;
}

/* Packets of a message or READ: one at least, IBA 9.7.2. */
static inline uint32_t vr_num_packets(uint64_t len, uint32_t mtu)
{
    return len ? (len + mtu - 1) / mtu : 1;
}

/* Everything below BTH that a packet needs to travel; fixed for an RC QP. */
struct vr_route {
    uint8_t sgid[16], dgid[16];
    uint8_t smac[6], dmac[6];
    uint16_t vlan;              /* VROCE_NO_VLAN: untagged */
    uint16_t udp_sport;
    uint32_t flow_label;
    uint8_t traffic_class, hop_limit, sl;
};

enum vr_op {
    VR_OP_SEND,
    VR_OP_WRITE,
    VR_OP_READ_REQ,
    VR_OP_READ_RESP,
    VR_OP_ACK,                  /* and every NAK: see aeth */
    VR_OP_CMP_SWAP,
    VR_OP_FETCH_ADD,
    VR_OP_ATOMIC_ACK,
    VR_OP_CNP,
};

#define VR_SP_FIRST     (1u << 0)   /* first packet: the message's first */
#define VR_SP_LAST      (1u << 1)   /* last packet: the message's last */
#define VR_SP_IMM       (1u << 2)   /* last packet: carries imm */
#define VR_SP_INV       (1u << 3)   /* last packet: carries inv_key */
#define VR_SP_SOLICITED (1u << 4)   /* last packet */
#define VR_SP_ACKREQ    (1u << 5)   /* last packet */
#define VR_SP_NAMES     (1u << 6)   /* NAK: names gaps; request: understands */

enum vr_payload_kind {
    VR_PAYLOAD_NONE,
    VR_PAYLOAD_BYTES,           /* memory of this process, valid in the call */
    VR_PAYLOAD_WQE,             /* scatter list or inline data of a send WQE */
    VR_PAYLOAD_MR,              /* a range of a region, checked at each copy */
};

struct vr_payload {
    uint8_t kind;               /* enum vr_payload_kind */
    uint32_t len;               /* bytes */
    uint64_t off;               /* of the first byte in what is named */
    union {
        const uint8_t *bytes;
        struct {
            uint32_t qpn, index;    /* free-running unit index of the WQE */
        } wqe;
        struct {
            uint32_t qpn;           /* responder that serves it */
            uint32_t key;
            uint32_t psn;           /* of the answer's first packet */
            uint64_t va;
        } mr;
    };
};

struct vr_sp {
    struct vr_route route;
    uint8_t qp_type;            /* enum vroce_qp_type: RC, UC, UD (GSI is UD) */
    uint8_t op;                 /* enum vr_op */
    uint8_t flags;              /* VR_SP_* */
    uint8_t syndrome;           /* AETH of ACK, ATOMIC_ACK, READ_RESP */
    uint16_t mtu;               /* bytes */
    uint32_t sqpn;              /* sender's QP; on the wire only in UD's DETH */
    uint32_t dqpn;
    uint32_t psn;               /* of the first packet */
    uint32_t npkt;
    uint32_t msn;               /* AETH; NAK with VR_SP_NAMES: see gap.c */
    uint32_t qkey;              /* DETH */
    uint32_t rkey;              /* RETH, AtomicETH */
    uint32_t dma_len;           /* RETH */
    uint32_t inv_key;
    uint32_t imm;               /* __be32, as it travels */
    uint64_t va;                /* RETH, AtomicETH */
    uint64_t swap_add;          /* AtomicETH; in AtomicAckETH the old value */
    uint64_t compare;           /* AtomicETH */
    struct vr_payload payload;
};

/*
 * Cut sp after its first k packets, 0 < k < npkt: sp keeps them, rest gets the
 * others. Flags and offsets of both are those that the packets would have had.
 */
void vr_sp_split(struct vr_sp *sp, uint32_t k, struct vr_sp *rest);

/* BTH opcode of packet i of sp, 0 ≤ i < npkt, IBA table 38. */
uint8_t vr_sp_bth_opcode(const struct vr_sp *sp, uint32_t i);

#endif /* VR_SP_H */
