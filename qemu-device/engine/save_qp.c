/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Saving and loading of the transport: QPs, who is scheduled, super-packets. */
#include <stdlib.h>
#include <string.h>

#include "vr_save.h"
#include "vr_transport.h"

/* ------------------------------------------------------- super-packets */

static void io_route(struct vr_io *io, struct vr_route *r)
{
    vr_io_bytes(io, r->sgid, sizeof(r->sgid));
    vr_io_bytes(io, r->dgid, sizeof(r->dgid));
    vr_io_bytes(io, r->smac, sizeof(r->smac));
    vr_io_bytes(io, r->dmac, sizeof(r->dmac));
    VR_IO(io, r->vlan);
    VR_IO(io, r->udp_sport);
    VR_IO(io, r->flow_label);
    VR_IO(io, r->traffic_class);
    VR_IO(io, r->hop_limit);
    VR_IO(io, r->sl);
}

static void io_payload(struct vr_io *io, struct vr_payload *p)
{
    VR_IO(io, p->kind);
    VR_IO(io, p->len);
    VR_IO(io, p->off);
    if (p->kind == VR_PAYLOAD_WQE) {
        VR_IO(io, p->wqe.qpn);
        VR_IO(io, p->wqe.index);
    } else if (p->kind == VR_PAYLOAD_MR) {
        VR_IO(io, p->mr.qpn);
        VR_IO(io, p->mr.key);
        VR_IO(io, p->mr.psn);
        VR_IO(io, p->mr.va);
    }
}

void vr_io_sp(struct vr_io *io, struct vr_sp *sp)
{
    io_route(io, &sp->route);
    VR_IO(io, sp->qp_type);
    VR_IO(io, sp->op);
    VR_IO(io, sp->flags);
    VR_IO(io, sp->syndrome);
    VR_IO(io, sp->mtu);
    VR_IO(io, sp->sqpn);
    VR_IO(io, sp->dqpn);
    VR_IO(io, sp->psn);
    VR_IO(io, sp->npkt);
    VR_IO(io, sp->msn);
    VR_IO(io, sp->qkey);
    VR_IO(io, sp->rkey);
    VR_IO(io, sp->dma_len);
    VR_IO(io, sp->inv_key);
    VR_IO(io, sp->imm);
    VR_IO(io, sp->va);
    VR_IO(io, sp->swap_add);
    VR_IO(io, sp->compare);
    io_payload(io, &sp->payload);
}

static bool mtu_sane(uint32_t mtu)
{
    return mtu >= 256 && mtu <= VR_MAX_MTU && !(mtu & (mtu - 1));
}

bool vr_sp_sane(const struct vr_sp *sp)
{
    uint64_t full = (uint64_t)sp->npkt * sp->mtu;

    return mtu_sane(sp->mtu) && sp->op <= VR_OP_CNP &&
           sp->qp_type <= VROCE_QPT_UD && sp->npkt >= 1 &&
           sp->npkt <= VR_SP_BYTES / 256 && sp->psn <= VR_PSN_MASK &&
           sp->route.flow_label <= 0xfffff &&
           sp->payload.kind <= VR_PAYLOAD_MR &&
           (sp->payload.kind != VR_PAYLOAD_NONE) == (sp->payload.len != 0) &&
           sp->payload.off <= VR_MAX_DMA_LEN && sp->payload.len <= full &&
           (sp->npkt == 1 || sp->payload.len > full - sp->mtu);
}

/* ----------------------------------------------------------- requester */

static void io_shadow(struct vr_io *io, struct vr_shadow *sh)
{
    VR_IO(io, sh->index);
    VR_IO(io, sh->first_psn);
    VR_IO(io, sh->npsn);
    VR_IO(io, sh->length);
    VR_IO(io, sh->hash);
    VR_IO(io, sh->wr_id);
    VR_IO(io, sh->opcode);
    VR_IO(io, sh->flags);
    VR_IO(io, sh->units);
    VR_IO(io, sh->done);
    VR_IO(io, sh->asked_again);
}

/* What is begun and not completed: consumer … next, without a gap. */
static void io_shadows(struct vr_io *io, struct vr_qp *qp)
{
    const struct vr_req *req = &qp->req;
    uint32_t i = req->consumer;

    while (i != req->next && !io->failed) {
        struct vr_shadow *sh = vr_shadow_at(qp, i), copy = *sh;

        io_shadow(io, &copy);
        if (copy.index != i || i - req->consumer >= vr_num_shadows(qp) ||
            copy.units < 1 || copy.units > VROCE_MAX_WQE_UNITS ||
            copy.units > req->next - i) {
            io->failed = true;
            return;
        }
        *sh = copy;
        i += copy.units;
    }
}

static void io_failure(struct vr_io *io, struct vr_failure *f)
{
    VR_IO(io, f->set);
    VR_IO(io, f->opcode);
    VR_IO(io, f->status);
    VR_IO(io, f->rule);
    VR_IO(io, f->index);
    VR_IO(io, f->end);
    VR_IO(io, f->wr_id);
}

/* consumer <= cur <= next <= producer, in a ring of this size? */
static bool indices_sane(const struct vr_qp *qp)
{
    const struct vr_req *req = &qp->req;
    uint32_t producer = req->producer - req->consumer;
    uint32_t next = req->next - req->consumer;
    uint32_t cur = req->cur - req->consumer;

    return producer <= (qp->has_sq ? 1u << qp->sq_log_units : 0) &&
           next <= producer && cur <= next;
}

static void io_gaps(struct vr_io *io, struct vr_req *req)
{
    VR_IO(io, req->num_gaps);
    io->failed |= req->num_gaps > VR_MAX_GAPS;
    for (uint32_t i = 0; i < req->num_gaps && !io->failed; i++) {
        VR_IO(io, req->gaps[i].psn);
        VR_IO(io, req->gaps[i].num);
        VR_IO(io, req->gaps[i].filled_at);
    }
}

static void io_req(struct vr_io *io, struct vr_qp *qp)
{
    struct vr_req *req = &qp->req;

    VR_IO(io, req->producer);
    VR_IO(io, req->next);
    VR_IO(io, req->cur);
    VR_IO(io, req->cur_pkt);
    VR_IO(io, req->consumer);
    VR_IO(io, req->psn);
    VR_IO(io, req->una);
    VR_IO(io, req->sent);
    VR_IO(io, req->reads);
    VR_IO(io, req->unasked);
    VR_IO(io, req->retries_left);
    VR_IO(io, req->rnr_left);
    VR_IO(io, req->waiting_rnr);
    VR_IO(io, req->went_back);
    VR_IO(io, req->by_nak);
    VR_IO(io, req->skipping);
    VR_IO(io, req->peer_keeps);
    VR_IO(io, req->peer_names);
    VR_IO(io, req->filling);
    io_gaps(io, req);
    VR_IO(io, req->skip);
    VR_IO(io, req->back);
    VR_IO(io, req->again);
    VR_IO(io, req->back_at);
    VR_IO(io, req->again_at);
    VR_IO(io, req->gap);
    VR_IO(io, req->spacing);
    VR_IO(io, req->arrived);
    VR_IO(io, req->asks_every);
    VR_IO(io, req->rtt_psn);
    VR_IO(io, req->rtt_at);
    VR_IO(io, req->rtt);
    VR_IO(io, req->timeout_at);
    VR_IO(io, req->probe_after);
    VR_IO(io, req->answered_again);
    for (int i = 0; i < VR_EARLY_PACKETS / 64; i++) {
        VR_IO(io, req->early[i]);
    }
    VR_IO(io, req->drained);
    io_failure(io, &req->failure);
    vr_io_timer(io, &req->retry_timer);
    vr_io_timer(io, &req->rnr_timer);
    VR_IO(io, req->last_post);
    io->failed |= !indices_sane(qp);
    if (!io->failed && qp->has_sq) {
        io_shadows(io, qp);
    }
}

/* A queue that is flushed has no order of PSNs; datagrams need none. */
static bool has_order(const struct vr_qp *qp)
{
    return qp->type <= VROCE_QPT_UC && qp->state != VROCE_QPS_SQE &&
           qp->state != VROCE_QPS_ERR;
}

/*
 * una <= sent <= psn; and una inside the oldest WQE, so that going back leads
 * into it, or at the end of all.
 */
static bool una_sane(const struct vr_qp *qp)
{
    const struct vr_req *req = &qp->req;
    const struct vr_shadow *sh;
    int32_t done;

    if (!has_order(qp)) {
        return true;
    }
    if (req->consumer == req->next) {
        return req->una == req->psn && req->sent == req->psn;
    }
    sh = vr_shadow_at(qp, req->consumer);
    done = vr_psn_diff(req->una, sh->first_psn);
    return done >= 0 && (sh->npsn ? done < (int32_t)sh->npsn : !done) &&
           vr_psn_diff(req->sent, req->una) >= 0 &&
           vr_psn_diff(req->psn, req->sent) >= 0;
}

/* Do the shadows continue each other, and does the cursor stand on one? */
static bool shadows_sane(const struct vr_qp *qp)
{
    const struct vr_req *req = &qp->req;
    bool cur_seen = req->cur == req->next;
    uint32_t psn = req->psn, i;

    if (req->consumer != req->next) {
        psn = vr_shadow_at(qp, req->consumer)->first_psn;
    }
    for (i = req->consumer; i != req->next;) {
        const struct vr_shadow *sh = vr_shadow_at(qp, i);

        if (sh->opcode > VROCE_WQE_LOCAL_INV || sh->length > VR_MAX_MSG_SIZE ||
            sh->npsn != vr_wqe_psns(sh->opcode, sh->length, qp->mtu) ||
            sh->first_psn != psn) {
            return false;
        }
        if (i == req->cur) {
            cur_seen = true;
            if (req->cur_pkt && req->cur_pkt >= sh->npsn) {
                return false;
            }
        }
        psn = vr_psn_add(psn, sh->npsn);
        i += sh->units;
    }
    return cur_seen && psn == req->psn && req->reads <= VR_MAX_RD_ATOMIC &&
           (req->cur != req->next || !req->cur_pkt);
}

/*
 * Packets that are said to have come early must be those of READs in flight:
 * else a READ would complete without its data.
 */
static bool early_sane(const struct vr_qp *qp)
{
    const struct vr_req *req = &qp->req;
    uint64_t may[VR_EARLY_PACKETS / 64] = { 0 };
    uint32_t i;

    if (!has_order(qp)) {
        return true;
    }
    for (i = req->consumer; i != req->next;) {
        const struct vr_shadow *sh = vr_shadow_at(qp, i);
        int32_t from = vr_psn_diff(sh->first_psn, req->una);
        int32_t to = from + (int32_t)sh->npsn;

        i += sh->units;
        if (sh->opcode != VROCE_WQE_READ || sh->done) {
            continue;
        }
        to = to < VR_EARLY_PACKETS ? to : VR_EARLY_PACKETS;
        for (int32_t k = from > 0 ? from : 0; k < to; k++) {
            uint32_t bit = (req->una + k) % VR_EARLY_PACKETS;

            may[bit / 64] |= 1ull << bit % 64;
        }
    }
    for (i = 0; i < VR_EARLY_PACKETS / 64; i++) {
        if (req->early[i] & ~may[i]) {
            return false;
        }
    }
    return true;
}

/* Gaps that a peer can have named: between una and sent, each its own. */
static bool gaps_sane(const struct vr_qp *qp)
{
    const struct vr_req *req = &qp->req;
    uint32_t flight = vr_psn_diff(req->sent, req->una);

    if (!has_order(qp)) {
        return true;
    }
    for (uint32_t i = 0; i < req->num_gaps; i++) {
        const struct vr_gap *gap = &req->gaps[i];
        int32_t off = vr_psn_diff(gap->psn, req->una);

        if (gap->psn > VR_PSN_MASK || !gap->num ||
            gap->num >= VR_HOLD_PACKETS || off < 0 ||
            off + gap->num > flight) {
            return false;
        }
        for (uint32_t k = 0; k < i; k++) {
            if (vr_gap_overlap(gap, &req->gaps[k])) {
                return false;
            }
        }
    }
    return req->arrived <= flight;
}

/* A WQE that was begun, all of it; or the next, of which nothing is known. */
static bool failure_sane(const struct vr_qp *qp)
{
    const struct vr_req *req = &qp->req;
    const struct vr_failure *f = &req->failure;
    const struct vr_shadow *sh;

    if (!f->set) {
        return true;
    }
    if (f->index == req->next) {
        return f->end != f->index &&
               f->end - req->next <= req->producer - req->next;
    }
    if (f->index - req->consumer >= req->next - req->consumer) {
        return false;
    }
    sh = vr_shadow_at(qp, f->index);
    return sh->units && sh->index == f->index && f->end == f->index + sh->units;
}

/* Only reliable connections recover, and none works before RTS, IBA 10.3.1. */
static bool recovery_sane(const struct vr_qp *qp)
{
    const struct vr_req *req = &qp->req;
    bool recovers = req->num_gaps || req->skipping || req->filling ||
                    req->waiting_rnr || req->retry_timer.deadline != VR_NEVER ||
                    req->rnr_timer.deadline != VR_NEVER;

    if (qp->state < VROCE_QPS_RTS && req->consumer != req->producer) {
        return false;
    }
    return !recovers ||
           (qp->type == VROCE_QPT_RC && qp->state >= VROCE_QPS_RTS);
}

static bool req_sane(const struct vr_qp *qp)
{
    const struct vr_req *req = &qp->req;
    uint32_t psns = req->psn | req->una | req->sent | req->skip | req->back |
                    req->again | req->gap | req->rtt_psn;

    if (psns > VR_PSN_MASK || req->retries_left > 7 || req->rnr_left > 7 ||
        req->failure.rule >= VROCE_RULE_NUM) {
        return false;
    }
    return failure_sane(qp) && recovery_sane(qp) && shadows_sane(qp) &&
           una_sane(qp) && early_sane(qp) && gaps_sane(qp);
}

/* ----------------------------------------------------------- responder */

static void io_replay(struct vr_io *io, struct vr_replay *r)
{
    VR_IO(io, r->psn);
    VR_IO(io, r->npsn);
    VR_IO(io, r->op);
    VR_IO(io, r->active);
    VR_IO(io, r->served);
    VR_IO(io, r->key);
    VR_IO(io, r->len);
    VR_IO(io, r->va);
    VR_IO(io, r->result);
    VR_IO(io, r->start);
    VR_IO(io, r->next);
    VR_IO(io, r->end);
    VR_IO(io, r->limit);
}

static void io_recv(struct vr_io *io, struct vr_recv *recv)
{
    VR_IO(io, recv->valid);
    if (!recv->valid) {
        return;
    }
    VR_IO(io, recv->wr_id);
    VR_IO(io, recv->sgl.pdn);
    VR_IO(io, recv->sgl.num);
    io->failed |= recv->sgl.num > VROCE_MAX_SGE;
    for (int i = 0; i < recv->sgl.num && !io->failed; i++) {
        VR_IO(io, recv->sgl.sge[i].addr);
        VR_IO(io, recv->sgl.sge[i].length);
        VR_IO(io, recv->sgl.sge[i].lkey);
    }
}

static void io_resp(struct vr_io *io, struct vr_resp *resp)
{
    VR_IO(io, resp->psn);
    VR_IO(io, resp->msn);
    VR_IO(io, resp->in_message);
    VR_IO(io, resp->nak_sent);
    VR_IO(io, resp->rnr_sent);
    VR_IO(io, resp->dup_acked);
    VR_IO(io, resp->behind);
    VR_IO(io, resp->nak_at);
    VR_IO(io, resp->nak_since);
    VR_IO(io, resp->nak_after);
    VR_IO(io, resp->names_gaps);
    VR_IO(io, resp->established);
    VR_IO(io, resp->flush_srq);
    VR_IO(io, resp->have_ack);
    VR_IO(io, resp->ack_syndrome);
    VR_IO(io, resp->ack_psn);
    VR_IO(io, resp->op);
    VR_IO(io, resp->received);
    VR_IO(io, resp->rkey);
    VR_IO(io, resp->dma_len);
    VR_IO(io, resp->va);
    io_recv(io, &resp->recv);
    VR_IO(io, resp->replay_next);
    VR_IO(io, resp->replay_num);
    VR_IO(io, resp->replay_active);
    for (int i = 0; i < VR_MAX_RD_ATOMIC; i++) {
        io_replay(io, &resp->replay[i]);
    }
}

static bool replay_sane(const struct vr_qp *qp, const struct vr_replay *r)
{
    bool read = r->op == VR_OP_READ_REQ;

    return (read || r->op == VR_OP_CMP_SWAP || r->op == VR_OP_FETCH_ADD) &&
           r->psn <= VR_PSN_MASK && r->len <= VR_MAX_DMA_LEN &&
           r->limit <= r->len && r->limit <= (uint64_t)r->end * qp->mtu &&
           r->limit + (uint64_t)qp->mtu >= (uint64_t)r->end * qp->mtu &&
           r->npsn == (read ? vr_num_packets(r->len, qp->mtu) : 1) &&
           r->npsn < VR_MAX_PSN_SPAN && r->start <= r->next &&
           r->next <= r->end && r->end <= r->npsn;
}

/* A receive WQE was taken with the rights of its queue's PD: see rq.c. */
static bool recv_sane(struct vr_engine *e, const struct vr_qp *qp)
{
    const struct vr_recv *recv = &qp->resp.recv;

    return !recv->valid ||
           (recv->sgl.num <= e->cfg.max_sge &&
            recv->sgl.pdn == (qp->srqn == VROCE_NONE ? qp->pdn :
                              vr_srq_get(e, qp->srqn)->pdn));
}

static bool resp_sane(const struct vr_qp *qp)
{
    const struct vr_resp *resp = &qp->resp;
    uint32_t size = qp->attr.max_dest_rd_atomic, active = 0;

    if ((resp->psn | resp->msn | resp->ack_psn | resp->behind) > VR_PSN_MASK ||
        resp->op > VR_OP_CNP || resp->replay_num > size ||
        (resp->replay_next && resp->replay_next >= size)) {
        return false;
    }
    for (uint32_t i = 0; i < resp->replay_num; i++) {
        if (!replay_sane(qp, &resp->replay[i])) {
            return false;
        }
        active += resp->replay[i].active;
    }
    return active == resp->replay_active;
}

/* ------------------------------------------------------------------ QP */

static bool attr_sane(const struct vroce_qp_attr *a)
{
    return a->timeout <= 31 && a->retry_cnt <= 7 && a->rnr_retry <= 7 &&
           a->min_rnr_timer <= 31 && a->max_rd_atomic <= VR_MAX_RD_ATOMIC &&
           a->max_dest_rd_atomic <= VR_MAX_RD_ATOMIC &&
           le32toh(a->dest_qpn) <= VROCE_DB_NUMBER_MASK;
}

void vr_io_qp(struct vr_io *io, struct vr_engine *e, void *object)
{
    struct vr_qp *qp = object;

    VR_IO(io, qp->pdn);
    VR_IO(io, qp->send_cqn);
    VR_IO(io, qp->recv_cqn);
    VR_IO(io, qp->srqn);
    VR_IO(io, qp->context);
    VR_IO(io, qp->type);
    VR_IO(io, qp->state);
    vr_io_bytes(io, &qp->attr, sizeof(qp->attr));   /* little-endian as it is */
    VR_IO(io, qp->mtu);
    io_route(io, &qp->route);
    VR_IO(io, qp->loopback);
    VR_IO(io, qp->has_sq);
    VR_IO(io, qp->has_rq);
    VR_IO(io, qp->sq_off);
    VR_IO(io, qp->sq_log_units);
    VR_IO(io, qp->last_rule);
    io->failed |= qp->sq_log_units > VROCE_MAX_SQ_LOG_UNITS ||
                  !mtu_sane(qp->mtu);
    vr_io_pages(io, e, &qp->pages);
    vr_io_rq(io, &qp->rq);
    if (io->loading && qp->has_sq && !io->failed) {
        qp->req.shadows = calloc(vr_num_shadows(qp),
                                 sizeof(*qp->req.shadows));
        io->failed |= !qp->req.shadows;
    }
    if (!io->failed) {
        io_req(io, qp);
    }
    io_resp(io, &qp->resp);
    if (!io->failed) {
        vr_io_hold(io, e, qp);
    }
}

/* Queues lie in the buffer, and what is used exists. */
static bool qp_sane(struct vr_engine *e, const struct vr_qp *qp, uint32_t qpn)
{
    bool privileged = qp->type == VROCE_QPT_GSI || qp->type == VROCE_QPT_ETH;
    uint32_t rec_off = qp->has_rq ? qp->rq.rec_off : VR_NO_RECORD;

    if (qp->type > VROCE_QPT_ETH || qp->state > VROCE_QPS_ERR ||
        (qp->type == VROCE_QPT_GSI) != (qpn == 1) ||
        (privileged && qp->context) || qp->last_rule >= VROCE_RULE_NUM ||
        qp->route.flow_label > 0xfffff ||
        !vr_context_get(e, qp->context) || !vr_cq_get(e, qp->send_cqn) ||
        !vr_cq_get(e, qp->recv_cqn)) {
        return false;
    }
    if (qp->srqn != VROCE_NONE) {
        struct vr_srq *srq = vr_srq_get(e, qp->srqn);

        if (!srq || qp->has_rq ||
            (qp->type != VROCE_QPT_RC && qp->type != VROCE_QPT_UD) ||
            (qp->context && vr_pd_get(e, srq->pdn)->dma)) {
            return false;
        }
    }
    if (qp->has_rq && !vr_rq_sane(&qp->rq, &qp->pages)) {
        return false;
    }
    if (qp->has_sq && !vr_ring_sane(&qp->pages, qp->sq_off,
                                    (uint64_t)VROCE_SQ_UNIT << qp->sq_log_units,
                                    rec_off)) {
        return false;
    }
    return attr_sane(&qp->attr) && req_sane(qp) && resp_sane(qp) &&
           recv_sane(e, qp);
}

static void attach_timer(struct vr_engine *e, struct vr_timer *t,
                         enum vr_timer_kind kind, uint32_t qpn)
{
    uint64_t deadline = t->deadline;

    vr_timer_init(t, kind, qpn);
    t->deadline = deadline;
    vr_timer_attach(e, t);
}

bool vr_qp_attach(struct vr_engine *e, uint32_t qpn, void *object)
{
    struct vr_qp *qp = object;
    uint16_t rule;

    if (!qp_sane(e, qp, qpn) || vr_pd_hold(e, qp->pdn, qp->context, &rule)) {
        return false;
    }
    if (!vr_table_put(&e->qps, qpn, qp)) {
        vr_pd_release(e, qp->pdn, qp->context);
        return false;
    }
    qp->qpn = qpn;
    qp->rq.ring = &qp->pages;
    vr_qp_count_users(e, qp, 1);
    attach_timer(e, &qp->req.retry_timer, VR_TIMER_RETRY, qpn);
    attach_timer(e, &qp->req.rnr_timer, VR_TIMER_RNR, qpn);
    return true;
}

void vr_qp_discard(struct vr_engine *e, void *object)
{
    struct vr_qp *qp = object;

    vr_pages_free(e, &qp->pages);
    vr_hold_clear(e, qp);
    free(qp->req.shadows);
    free(qp);
}

/* Who is in which list, in order; each list ends with QP 0. */
void vr_io_sched(struct vr_io *io, struct vr_engine *e)
{
    for (int list = VR_SCHED_RUN; list <= VR_SCHED_BLOCKED; list++) {
        uint32_t qpn = e->sched[list].head;

        for (;;) {
            struct vr_qp *qp;

            VR_IO(io, qpn);
            if (io->failed || !qpn) {
                break;
            }
            qp = vr_qp_get(e, qpn);
            if (!io->loading) {
                qpn = qp->sched_next;
            } else if (!qp || qp->sched_list != VR_SCHED_NONE) {
                io->failed = true;
            } else {
                vr_sched_append(e, list, qp);
            }
        }
    }
}
