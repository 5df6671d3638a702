/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Receive queues and SRQs: taking WQEs, and their completions. */
#include <string.h>

#include "vr_transport.h"

#define MAX_STRIDE 512

enum vroce_rule vr_rq_refresh(struct vr_engine *e, struct vr_rq *rq)
{
    struct vroce_db_record rec;
    uint32_t producer;

    if (vr_pages_rw(e, rq->ring, rq->rec_off, &rec, sizeof(rec), false)) {
        return VROCE_RULE_RING_DMA;
    }
    producer = le32toh(rec.index);
    if (unlikely(producer - rq->consumer > 1u << rq->log_entries ||
                 producer - rq->consumer < rq->producer_seen - rq->consumer)) {
        return VROCE_RULE_RQ_RECORD;
    }
    if (producer != rq->producer_seen) {
        rq->producer_seen = producer;
        rq->last_post = e->now;
    }
    return VROCE_RULE_NONE;
}

/* Copy the WQE at the consumer index, once, and check it. */
static enum vroce_rule fetch(struct vr_engine *e, struct vr_rq *rq,
                             struct vr_recv *recv)
{
    union {
        struct vroce_rwqe wqe;
        uint8_t bytes[MAX_STRIDE];
    } buf;
    const struct vroce_sge *sge = (const void *)(&buf.wqe + 1);
    uint32_t mask = (1u << rq->log_entries) - 1;
    uint32_t stride = 1u << rq->log_stride;
    uint64_t off = rq->off + (uint64_t)(rq->consumer & mask) * stride;

    if (vr_pages_rw(e, rq->ring, off, &buf, stride, false)) {
        return VROCE_RULE_RING_DMA;
    }
    if (le16toh(buf.wqe.index) != (uint16_t)rq->consumer) {
        return VROCE_RULE_WQE_INDEX;
    }
    if (buf.wqe.num_sge > e->cfg.max_sge ||
        sizeof(buf.wqe) + buf.wqe.num_sge * sizeof(*sge) > stride) {
        return VROCE_RULE_WQE_SIZE;
    }
    recv->wr_id = le64toh(buf.wqe.wr_id);
    recv->sgl.num = buf.wqe.num_sge;
    for (uint32_t i = 0; i < buf.wqe.num_sge; i++) {
        recv->sgl.sge[i].addr = le64toh(sge[i].addr);
        recv->sgl.sge[i].length = le32toh(sge[i].length);
        recv->sgl.sge[i].lkey = le32toh(sge[i].lkey);
    }
    return VROCE_RULE_NONE;
}

static enum vroce_rule take(struct vr_engine *e, struct vr_rq *rq,
                            struct vr_recv *recv)
{
    enum vroce_rule rule;

    recv->valid = false;
    if (rq->consumer == rq->producer_seen) {
        rule = vr_rq_refresh(e, rq);
        if (rule || rq->consumer == rq->producer_seen) {
            return rule;
        }
    }
    rule = fetch(e, rq, recv);
    if (!rule) {
        rq->consumer++;
        recv->valid = true;
    }
    return rule;
}

static enum vroce_rule take_from_srq(struct vr_engine *e, struct vr_srq *srq,
                                     struct vr_recv *recv)
{
    enum vroce_rule rule;

    recv->valid = false;
    if (srq->error) {
        return VROCE_RULE_RQ_RECORD;
    }
    recv->sgl.pdn = srq->pdn;
    rule = take(e, &srq->rq, recv);
    if (unlikely(rule)) {
        srq->error = true;
        vr_misuse(e, rule, VROCE_NONE, "shared receive queue");
        vr_async_event(e, VROCE_EVENT_SRQ_ERR, srq->srqn, rule);
    } else if (recv->valid) {
        vr_srq_check_limit(e, srq);
    }
    return rule;
}

enum vroce_rule vr_rq_take(struct vr_engine *e, struct vr_qp *qp,
                           struct vr_recv *recv)
{
    enum vroce_rule rule;

    if (qp->srqn != VROCE_NONE) {
        struct vr_srq *srq = vr_srq_get(e, qp->srqn);

        return srq ? take_from_srq(e, srq, recv) : VROCE_RULE_NO_OBJECT;
    }
    recv->valid = false;
    if (!qp->has_rq) {
        return VROCE_RULE_NONE;
    }
    recv->sgl.pdn = qp->pdn;
    rule = take(e, &qp->rq, recv);
    if (unlikely(rule)) {
        vr_misuse(e, rule, qp->qpn, NULL);
    }
    return rule;
}

void vr_recv_cqe(struct vr_engine *e, struct vr_qp *qp, struct vr_recv *recv,
                 struct vroce_cqe *cqe, bool solicited)
{
    recv->valid = false;
    if (unlikely(cqe->status)) {
        vr_qp_note_error(e, qp, cqe->status, recv->wr_id, true);
    }
    cqe->wr_id = htole64(recv->wr_id);
    cqe->qpn = htole32(qp->qpn);
    if (cqe->opcode < VROCE_WC_RECV) {
        cqe->opcode = VROCE_WC_RECV;
    }
    vr_cq_post(e, qp->recv_cqn, cqe, solicited);
}

bool vr_rq_flush(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_recv *recv = &qp->resp.recv;
    struct vroce_cqe cqe;

    if (!recv->valid) {
        if (qp->srqn != VROCE_NONE || vr_rq_take(e, qp, recv) || !recv->valid) {
            return false;
        }
    }
    memset(&cqe, 0, sizeof(cqe));
    cqe.status = VROCE_WCS_WR_FLUSH_ERR;
    cqe.rule = htole16(qp->last_rule);
    vr_recv_cqe(e, qp, recv, &cqe, true);
    return true;
}
