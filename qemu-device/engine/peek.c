/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the guest has written into its queues and not told yet. The device
 * reads doorbell records only when it has to; who asks why nothing moves wants
 * to know them now. Nothing here changes the engine.
 */
#include "vr_transport.h"

/* What is counted behind the last doorbell, at most. */
#define MAX_UNRUNG 1024

static bool peek_record(struct vr_engine *e, const struct vr_pages *ring,
                        uint32_t rec_off, uint32_t *index)
{
    struct vroce_db_record rec;

    if (vr_pages_rw(e, ring, rec_off, &rec, sizeof(rec), false)) {
        return false;
    }
    *index = le32toh(rec.index);
    return true;
}

bool vr_peek_cq(struct vr_engine *e, uint32_t cqn, uint32_t *consumer)
{
    struct vr_cq *cq = vr_cq_get(e, cqn);

    return cq && peek_record(e, &cq->ring, cq->rec_off, consumer);
}

bool vr_peek_rq(struct vr_engine *e, uint32_t qpn, uint32_t *producer)
{
    struct vr_qp *qp = vr_qp_get(e, qpn);

    return qp && qp->has_rq &&
           peek_record(e, &qp->pages, qp->rq.rec_off, producer);
}

bool vr_peek_srq(struct vr_engine *e, uint32_t srqn, uint32_t *producer)
{
    struct vr_srq *srq = vr_srq_get(e, srqn);

    return srq && peek_record(e, &srq->pages, srq->rq.rec_off, producer);
}

bool vr_peek_sq(struct vr_engine *e, uint32_t qpn, uint32_t *unrung)
{
    struct vr_qp *qp = vr_qp_get(e, qpn);
    uint32_t size, at;

    if (!qp || !qp->has_sq) {
        return false;
    }
    size = 1u << qp->sq_log_units;
    *unrung = 0;
    for (at = qp->req.producer;
         at - qp->req.consumer < size && *unrung < MAX_UNRUNG; ++*unrung) {
        uint64_t off = (uint64_t)(at & (size - 1)) * VROCE_SQ_UNIT;
        struct vroce_wqe_ctrl ctrl;

        if (vr_pages_rw(e, &qp->pages, qp->sq_off + off, &ctrl, sizeof(ctrl),
                        false)) {
            return false;
        }
        if (le16toh(ctrl.index) != (uint16_t)at || ctrl.units == 0 ||
            ctrl.units > VROCE_MAX_WQE_UNITS) {
            break;
        }
        at += ctrl.units;
    }
    return true;
}
