/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Super-packets: splitting, and what their packets are called on the wire. */
#include "vr_sp.h"

#define ENDS_WITH (VR_SP_LAST | VR_SP_IMM | VR_SP_INV | VR_SP_SOLICITED | \
                   VR_SP_ACKREQ)

void vr_sp_split(struct vr_sp *sp, uint32_t k, struct vr_sp *rest)
{
    uint32_t bytes = k * sp->mtu;

    *rest = *sp;
    rest->psn = vr_psn_add(sp->psn, k);
    rest->npkt -= k;
    rest->flags &= ~VR_SP_FIRST;
    rest->payload.off += bytes;
    rest->payload.len -= bytes;

    sp->npkt = k;
    sp->flags &= ~ENDS_WITH;
    sp->payload.len = bytes;
}

/* Opcode numbers of one operation, IBA table 38. */
struct vr_op_numbers {
    uint8_t first, middle, last, last_imm, last_inv;
    uint8_t only, only_imm, only_inv;
};

static const struct vr_op_numbers send_numbers = {
    0x00, 0x01, 0x02, 0x03, 0x16, 0x04, 0x05, 0x17
};
static const struct vr_op_numbers write_numbers = {
    0x06, 0x07, 0x08, 0x09, 0x08, 0x0a, 0x0b, 0x0a
};
static const struct vr_op_numbers read_resp_numbers = {
    0x0d, 0x0e, 0x0f, 0x0f, 0x0f, 0x10, 0x10, 0x10
};

static uint8_t number_of(const struct vr_op_numbers *n, const struct vr_sp *sp,
                         uint32_t i)
{
    bool first = i == 0 && sp->flags & VR_SP_FIRST;
    bool last = i == sp->npkt - 1 && sp->flags & VR_SP_LAST;

    if (!last) {
        return first ? n->first : n->middle;
    }
    if (sp->flags & VR_SP_IMM) {
        return first ? n->only_imm : n->last_imm;
    }
    if (sp->flags & VR_SP_INV) {
        return first ? n->only_inv : n->last_inv;
    }
    return first ? n->only : n->last;
}

uint8_t vr_sp_bth_opcode(const struct vr_sp *sp, uint32_t i)
{
    uint8_t class = sp->qp_type == VROCE_QPT_RC ? 0x00 :
                    sp->qp_type == VROCE_QPT_UC ? 0x20 : 0x60;

    switch (sp->op) {
    case VR_OP_SEND:
        return class | number_of(&send_numbers, sp, i);
    case VR_OP_WRITE:
        return class | number_of(&write_numbers, sp, i);
    case VR_OP_READ_REQ:
        return 0x0c;
    case VR_OP_READ_RESP:
        return number_of(&read_resp_numbers, sp, i);
    case VR_OP_ACK:
        return 0x11;
    case VR_OP_ATOMIC_ACK:
        return 0x12;
    case VR_OP_CMP_SWAP:
        return 0x13;
    case VR_OP_FETCH_ADD:
        return 0x14;
    default:
        return 0x81;            /* CNP */
    }
}
