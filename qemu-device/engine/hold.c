/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Request packets that arrived behind a gap. They wait here, as copies, until
 * what was lost has come, and are then taken as if they came now: nothing of
 * them is seen earlier. A requester that goes back sends them again in vain;
 * one of ours notices that it need not (recover.c). What is not kept was as
 * good as lost, so there may be little room, for one connection and for all.
 *
 * A requester of ours is told of each gap as soon as it is seen (gap.c), or it
 * could close only one in a round trip.
 */
#include <stdlib.h>
#include <string.h>

#include "vr_save.h"
#include "vr_transport.h"

struct vr_held {
    struct vr_sp sp;            /* one packet; payload NONE or BYTES */
    uint8_t bytes[];
};

struct vr_hold {
    uint32_t base;              /* no packet before this PSN is held */
    uint32_t end;               /* behind the highest that is */
    uint32_t told;              /* the requester knows the gaps before this */
    uint32_t num;
    struct vr_held *slot[VR_HOLD_PACKETS];      /* by PSN modulo this */
};

static struct vr_held **slot_of(struct vr_hold *hold, uint32_t psn)
{
    return &hold->slot[psn % VR_HOLD_PACKETS];
}

/*
 * How many PSNs a request takes: those of its answer, if it is a READ. What is
 * further away than this cannot be named: a peer may say any length.
 */
static uint32_t span(const struct vr_sp *sp)
{
    uint32_t n = 1;

    if (sp->op == VR_OP_READ_REQ) {
        n = vr_num_packets(sp->dma_len, sp->mtu);
    }
    return n < VR_HOLD_PACKETS ? n : VR_HOLD_PACKETS;
}

static void drop(struct vr_engine *e, struct vr_hold *hold, uint32_t psn)
{
    struct vr_held **slot = slot_of(hold, psn);

    if (*slot) {
        free(*slot);
        *slot = NULL;
        hold->num--;
        e->held--;
    }
}

void vr_hold_clear(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_hold *hold = qp->resp.hold;

    for (uint32_t i = 0; hold && i < VR_HOLD_PACKETS; i++) {
        drop(e, hold, i);
    }
    free(hold);
    qp->resp.hold = NULL;
}

static void limit_told(struct vr_hold *hold)
{
    if (vr_psn_diff(hold->told, hold->end) > 0) {
        hold->told = hold->end;
    }
    if (vr_psn_diff(hold->told, hold->base) < 0) {
        hold->told = hold->base;
    }
}

/* Forget what lies before the expected PSN; nothing left: free all. */
static void advance(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_hold *hold = qp->resp.hold;
    uint32_t psn = qp->resp.psn;
    int32_t n = vr_psn_diff(psn, hold->base);

    for (int32_t i = 0; i < n && i < VR_HOLD_PACKETS; i++) {
        drop(e, hold, vr_psn_add(hold->base, i));
    }
    hold->base = psn;
    limit_told(hold);
    if (!hold->num) {
        vr_hold_clear(e, qp);
    }
}

static struct vr_held *new_held(struct vr_engine *e, struct vr_hold *hold,
                                const struct vr_sp *sp)
{
    struct vr_held *h = malloc(sizeof(*h) + sp->payload.len);
    uint32_t end = vr_psn_add(sp->psn, span(sp));

    if (h) {
        h->sp = *sp;
        if (sp->payload.len) {
            h->sp.payload.kind = VR_PAYLOAD_BYTES;
            h->sp.payload.off = 0;
            h->sp.payload.bytes = h->bytes;
        }
        *slot_of(hold, sp->psn) = h;
        hold->num++;
        e->held++;
        if (vr_psn_diff(end, hold->end) > 0) {
            hold->end = end;
        }
    }
    return h;
}

static struct vr_hold *new_hold(uint32_t psn)
{
    struct vr_hold *hold = calloc(1, sizeof(*hold));

    if (hold) {
        hold->base = hold->end = hold->told = psn;
    }
    return hold;
}

static void add_packet(struct vr_engine *e, struct vr_engine *from,
                       struct vr_qp *qp, const struct vr_sp *sp)
{
    struct vr_hold *hold = qp->resp.hold;
    struct vr_view src, dst = { .kind = VR_VIEW_BYTES };
    struct vr_held *h;
    bool src_failed;

    if (vr_psn_diff(sp->psn, qp->resp.psn) >= VR_HOLD_PACKETS ||
        *slot_of(hold, sp->psn) || e->held >= VR_HOLD_TOTAL ||
        (sp->payload.len && vr_payload_view(from, &sp->payload, &src))) {
        return;
    }
    h = new_held(e, hold, sp);
    dst.bytes = h ? h->bytes : NULL;
    if (h && sp->payload.len &&
        vr_copy(&dst, 0, &src, 0, sp->payload.len, &src_failed)) {
        drop(e, hold, sp->psn);
    }
}

void vr_hold_add(struct vr_engine *e, struct vr_engine *from, struct vr_qp *qp,
                 const struct vr_sp *sp)
{
    struct vr_resp *resp = &qp->resp;
    struct vr_sp piece = *sp, rest;

    if (!resp->hold) {
        resp->hold = new_hold(resp->psn);
        if (!resp->hold) {
            return;
        }
    }
    piece.mtu = qp->mtu;
    while (piece.npkt > 1) {
        vr_sp_split(&piece, 1, &rest);
        add_packet(e, from, qp, &piece);
        piece = rest;
    }
    add_packet(e, from, qp, &piece);
    advance(e, qp);
}

bool vr_hold_drain(struct vr_engine *e, struct vr_qp *qp, vr_hold_fn *take)
{
    uint32_t first = qp->resp.psn, psn = first;
    struct vr_held *h;

    for (;;) {
        advance(e, qp);
        h = qp->resp.hold ? *slot_of(qp->resp.hold, psn) : NULL;
        if (!h) {
            break;
        }
        *slot_of(qp->resp.hold, psn) = NULL;
        qp->resp.hold->num--;
        e->held--;
        take(e, e, qp, &h->sp);
        free(h);
        if (!qp->resp.hold) {
            break;
        }
        if (qp->resp.psn == psn) {
            advance(e, qp);     /* that may have been the last one */
            break;
        }
        psn = qp->resp.psn;
    }
    return qp->resp.psn != first;
}

/* ----------------------------------------------------------------- gaps */

/* The packet psn if it is held: a slot is for all PSNs of one remainder. */
static const struct vr_held *held_at(struct vr_hold *hold, uint32_t psn)
{
    const struct vr_held *h = *slot_of(hold, psn);

    return h && h->sp.psn == psn ? h : NULL;
}

bool vr_hold_gap(struct vr_qp *qp)
{
    struct vr_hold *hold = qp->resp.hold;
    const struct vr_held *h;

    if (!hold) {
        return false;
    }
    /* Over what is there: to the next gap, or to the end. */
    while (vr_psn_diff(hold->told, hold->end) < 0 &&
           (h = held_at(hold, hold->told))) {
        hold->told = vr_psn_add(hold->told, span(&h->sp));
    }
    limit_told(hold);
    return vr_psn_diff(hold->told, hold->end) < 0;
}

/* The first packet held from psn on, or the end. */
static uint32_t next_held(struct vr_hold *hold, uint32_t psn)
{
    while (psn != hold->end && !held_at(hold, psn)) {
        psn = vr_psn_add(psn, 1);
    }
    return psn;
}

uint32_t vr_hold_name_gap(struct vr_qp *qp, uint32_t psn)
{
    struct vr_hold *hold = qp->resp.hold;
    uint32_t start = 0, num = 0, last;

    if (vr_hold_gap(qp)) {
        start = vr_psn_diff(hold->told, psn);
        hold->told = next_held(hold, hold->told);
        num = vr_psn_diff(hold->told, psn) - start;
    }
    /* What lies that far behind a READ cannot be named, and need not be. */
    if (start + num >= VR_HOLD_PACKETS) {
        start = num = 0;
    }
    last = hold ? vr_psn_diff(hold->end, psn) - 1 : 0;
    return (last < VR_HOLD_PACKETS ? last : VR_HOLD_PACKETS - 1) << 16 |
           start << 8 | num;
}

/* --------------------------------------------------------------- saving */

static bool held_sane(const struct vr_qp *qp, const struct vr_sp *sp)
{
    int32_t d = vr_psn_diff(sp->psn, qp->resp.psn);

    return sp->npkt == 1 && vr_sp_sane(sp) && sp->mtu == qp->mtu &&
           sp->payload.kind <= VR_PAYLOAD_BYTES && !sp->payload.off &&
           d > 0 && d < VR_HOLD_PACKETS;
}

static void load_packet(struct vr_io *io, struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_sp sp;
    struct vr_held *h;

    memset(&sp, 0, sizeof(sp));
    vr_io_sp(io, &sp);
    if (io->failed || !held_sane(qp, &sp) ||
        *slot_of(qp->resp.hold, sp.psn) || e->held >= VR_HOLD_TOTAL) {
        io->failed = true;
        return;
    }
    h = new_held(e, qp->resp.hold, &sp);
    if (!h) {
        io->failed = true;
        return;
    }
    vr_io_bytes(io, h->bytes, sp.payload.len);
}

void vr_io_hold(struct vr_io *io, struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_hold *hold = qp->resp.hold;
    uint32_t num = hold ? hold->num : 0;

    VR_IO(io, num);
    if (!num || io->failed) {
        return;
    }
    if (io->loading) {
        hold = qp->resp.hold = new_hold(qp->resp.psn);
        io->failed |= !hold || num >= VR_HOLD_PACKETS;
        for (uint32_t i = 0; i < num && !io->failed; i++) {
            load_packet(io, e, qp);
        }
        if (!io->failed) {
            VR_IO(io, hold->told);
            io->failed |= hold->told > VR_PSN_MASK;
            limit_told(hold);
        }
        return;
    }
    for (uint32_t i = 0; i < VR_HOLD_PACKETS; i++) {
        struct vr_held *h = hold->slot[i];

        if (h) {
            vr_io_sp(io, &h->sp);
            vr_io_bytes(io, h->bytes, h->sp.payload.len);
        }
    }
    VR_IO(io, hold->told);
}
