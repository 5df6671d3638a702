/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Gaps that the peer names.
 *
 * A NAK of IBA 9.7.5.1.3 tells of the oldest missing packet only: a requester
 * that does not want to send everything again closes one gap in a round trip.
 * Responders of ours tell of each gap when they see it (hold.c), if the
 * requester says that it understands: VR_SP_NAMES, a reserved bit of BTH, is
 * set in requests to a peer that has shown to keep what arrives behind a gap,
 * and in the NAKs that name one. PSN and syndrome of these are as ever. Their
 * MSN field is:
 *   23:16  the last packet that is there, as a distance from the NAK's PSN
 *   15:8   the first packet of the gap, likewise
 *   7:0    packets of the gap; 0: none is named
 */
#include "vr_transport.h"

struct vr_gap *vr_gap_at(struct vr_req *req, uint32_t psn)
{
    for (uint32_t i = 0; i < req->num_gaps; i++) {
        int32_t off = vr_psn_diff(psn, req->gaps[i].psn);

        if (off >= 0 && off < (int32_t)req->gaps[i].num) {
            return &req->gaps[i];
        }
    }
    return NULL;
}

bool vr_gap_overlap(const struct vr_gap *a, const struct vr_gap *b)
{
    return vr_psn_diff(a->psn, vr_psn_add(b->psn, b->num)) < 0 &&
           vr_psn_diff(b->psn, vr_psn_add(a->psn, a->num)) < 0;
}

/* Is psn among what is being sent again, and not sent yet? */
static bool is_coming(const struct vr_qp *qp, uint32_t psn)
{
    const struct vr_req *req = &qp->req;

    return vr_psn_diff(psn, vr_req_cur_psn(qp)) >= 0 &&
           vr_psn_diff(psn, req->skipping ? req->skip : req->sent) < 0;
}

static void add_gap(struct vr_engine *e, struct vr_qp *qp, uint32_t psn,
                    uint32_t num)
{
    struct vr_req *req = &qp->req;
    struct vr_gap gap = { .psn = psn, .num = num };

    for (uint32_t i = 0; i < req->num_gaps; i++) {
        if (vr_gap_overlap(&gap, &req->gaps[i])) {
            return;
        }
    }
    if (num && req->num_gaps < VR_MAX_GAPS && !is_coming(qp, psn)) {
        req->gaps[req->num_gaps++] = gap;
        vr_sched_add(e, qp);
    }
}

/* Packets that the peer lacks, as far as it said so. */
static uint32_t missing(struct vr_req *req)
{
    uint32_t n = !vr_gap_at(req, req->una);

    for (uint32_t i = 0; i < req->num_gaps; i++) {
        n += req->gaps[i].num;
    }
    return n;
}

void vr_gap_learn(struct vr_engine *e, struct vr_qp *qp,
                  const struct vr_sp *nak)
{
    struct vr_req *req = &qp->req;
    uint32_t last = nak->msn >> 16, start = nak->msn >> 8 & 0xff;
    uint32_t num = nak->msn & 0xff, lacks;

    if (!req->peer_keeps || req->waiting_rnr || nak->psn != req->una ||
        start + num > last ||
        (int32_t)last >= vr_psn_diff(req->sent, req->una)) {
        return;
    }
    req->peer_names = true;
    add_gap(e, qp, vr_psn_add(nak->psn, start), num);
    lacks = missing(req);
    req->arrived = last + 1 > lacks ? last + 1 - lacks : 0;
}

void vr_gap_closed(struct vr_req *req)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < req->num_gaps; i++) {
        struct vr_gap gap = req->gaps[i];
        int32_t over = vr_psn_diff(req->una, gap.psn);

        if (over > 0) {
            gap.psn = req->una;
            gap.num -= over < (int32_t)gap.num ? over : (int32_t)gap.num;
        }
        if (gap.num) {
            req->gaps[n++] = gap;
        }
    }
    req->num_gaps = n;
}

void vr_gap_forget(struct vr_req *req)
{
    req->num_gaps = 0;
    req->peer_keeps = req->peer_names = false;
}

bool vr_gap_next(const struct vr_qp *qp, uint32_t *psn, uint32_t *end)
{
    const struct vr_req *req = &qp->req;

    for (uint32_t i = 0; i < req->num_gaps; i++) {
        const struct vr_gap *gap = &req->gaps[i];

        if (!gap->filled_at) {
            *psn = gap->psn;
            *end = vr_psn_add(gap->psn, gap->num);
            return true;
        }
    }
    return false;
}
