/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Requester of connections: from send WQEs to request packets, IBA 9.7.3.
 * A cursor (cur, cur_pkt) walks the send queue; going back moves it to the
 * oldest packet that is not acknowledged, in the middle of a message if need
 * be, and the same code sends again from there. On unreliable connections
 * nobody answers: a packet is done when it is sent, IBA 9.8.2.
 */
#include "vr_transport.h"

/* What stops the cursor. */
enum step {
    STEP_ON,
    STEP_WAIT,                  /* for an answer, a timer or a doorbell */
    STEP_NO_ROOM,
};

/* Read the next WQE and give it its PSNs. */
static bool begin_wqe(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_req *req = &qp->req;
    struct vr_wqe *w = &e->wqe;
    struct vr_shadow *sh;
    struct vr_failure f;
    uint32_t npsn;

    /* Else its shadow would be another's; a completion goes on with it. */
    if (req->next - req->consumer >= vr_num_shadows(qp)) {
        return false;
    }
    if (unlikely(!vr_wqe_load(e, qp, req->next, &f))) {
        vr_req_fail(e, qp, &f);
        return false;
    }
    npsn = vr_wqe_psns(w->ctrl.opcode, w->length, qp->mtu);
    if (vr_psn_diff(req->psn, req->una) + npsn >= VR_MAX_PSN_SPAN) {
        return false;
    }

    sh = vr_shadow_at(qp, req->next);
    *sh = (struct vr_shadow) {
        .index = req->next,
        .first_psn = req->psn,
        .npsn = npsn,
        .length = w->length,
        .hash = w->hash,
        .wr_id = le64toh(w->ctrl.wr_id),
        .opcode = w->ctrl.opcode,
        .flags = w->ctrl.flags,
        .units = w->units,
    };
    req->next += w->units;
    req->psn = vr_psn_add(req->psn, npsn);
    return true;
}

/* The WQE cannot be sent: note why. */
static enum step fail_wqe(struct vr_engine *e, struct vr_qp *qp,
                          const struct vr_shadow *sh, uint8_t status,
                          enum vroce_rule rule)
{
    struct vr_failure f = {
        .index = sh->index, .end = sh->index + sh->units, .wr_id = sh->wr_id,
        .opcode = sh->opcode, .status = status, .rule = rule,
    };

    vr_misuse(e, rule, qp->qpn, NULL);
    vr_req_fail(e, qp, &f);
    return STEP_WAIT;
}

/* The WQE at the cursor once more; false: it failed. */
static bool reload(struct vr_engine *e, struct vr_qp *qp,
                   const struct vr_shadow *sh)
{
    struct vr_failure f;

    if (unlikely(!vr_wqe_load(e, qp, sh->index, &f))) {
        f.end = sh->index + sh->units;
        vr_req_fail(e, qp, &f);
        return false;
    }
    if (unlikely(!vr_wqe_is(&e->wqe, sh))) {
        fail_wqe(e, qp, sh, VROCE_WCS_LOC_QP_OP_ERR, VROCE_RULE_WQE_CHANGED);
        return false;
    }
    return true;
}

static void next_wqe(struct vr_req *req, const struct vr_shadow *sh)
{
    req->cur = sh->index + sh->units;
    req->cur_pkt = 0;
}

/* NOP, FAST_REG, LOCAL_INV: executed in order, once. */
static enum step local_step(struct vr_engine *e, struct vr_qp *qp,
                            struct vr_shadow *sh)
{
    struct vr_wqe *w = &e->wqe;
    enum vroce_rule rule = VROCE_RULE_NONE;

    if (!sh->done) {
        /*
         * What came before may be sent again and still needs the key: IBA
         * 10.8.3.3 orders LOCAL_INV behind its completion.
         */
        if (sh->opcode == VROCE_WQE_LOCAL_INV &&
            qp->req.consumer != sh->index) {
            return STEP_WAIT;
        }
        if (!reload(e, qp, sh)) {
            return STEP_WAIT;
        }
        if (sh->opcode == VROCE_WQE_FAST_REG) {
            rule = vr_mr_fast_reg(e, qp->pdn,
                                  (const void *)(w->bytes + w->seg_off));
        } else if (sh->opcode == VROCE_WQE_LOCAL_INV) {
            rule = vr_mr_invalidate(e, qp->pdn, le32toh(w->ctrl.inv_key));
        }
        if (rule) {
            return fail_wqe(e, qp, sh, VROCE_WCS_MW_BIND_ERR, rule);
        }
        sh->done = true;
    }
    next_wqe(&qp->req, sh);
    vr_sq_retire(e, qp);
    return STEP_ON;
}

/* Count, report and hand over; moves `sent`. */
static void send_request(struct vr_engine *e, struct vr_qp *qp,
                         const struct vr_sp *sp, uint32_t end_psn)
{
    struct vr_req *req = &qp->req;

    vr_recover_sent(e, qp, sp, end_psn);
    if (vr_psn_diff(sp->psn, req->sent) < 0) {
        vr_count(e, VROCE_CNT_RETRANSMITTED, sp->npkt);
    }
    if (vr_psn_diff(end_psn, req->sent) > 0) {
        req->sent = end_psn;
    }
    vr_report(e, VR_REPORT_TX, qp->qpn, vr_sp_bth_opcode(sp, 0), sp->psn);
    if (req->retry_timer.deadline == VR_NEVER) {
        vr_req_arm(e, qp);
    }
    vr_link_send(e, sp);
}

/* Header fields that all requests of the QP share; psn is the cursor's. */
static void request_header(const struct vr_qp *qp, struct vr_sp *sp)
{
    *sp = (struct vr_sp) {
        .route = qp->route,
        .qp_type = qp->type,
        .flags = qp->req.peer_keeps ? VR_SP_NAMES : 0,
        .mtu = qp->mtu,
        .sqpn = qp->qpn,
        .dqpn = le32toh(qp->attr.dest_qpn),
        .psn = vr_req_cur_psn(qp),
        .npkt = 1,
    };
}

static void remote_address(const struct vr_wqe *w, struct vr_sp *sp)
{
    const struct vroce_wqe_rdma *seg = (const void *)(w->bytes + w->seg_off);

    sp->va = le64toh(seg->remote_addr);
    sp->rkey = le32toh(seg->rkey);
}

/* READ or atomic: one request, whose PSNs are those of its answer. */
static enum step read_step(struct vr_engine *e, struct vr_qp *qp,
                           const struct vr_shadow *sh)
{
    struct vr_req *req = &qp->req;
    struct vr_wqe *w = &e->wqe;
    struct vr_sp sp;

    if (unlikely(qp->attr.max_rd_atomic == 0)) {
        return fail_wqe(e, qp, sh, VROCE_WCS_LOC_QP_OP_ERR,
                        VROCE_RULE_WQE_OPCODE);
    }
    if (req->reads >= qp->attr.max_rd_atomic) {
        return STEP_WAIT;
    }
    if (!reload(e, qp, sh)) {
        return STEP_WAIT;
    }
    request_header(qp, &sp);
    sp.flags |= VR_SP_FIRST | VR_SP_LAST | VR_SP_ACKREQ;
    remote_address(w, &sp);
    if (sh->opcode == VROCE_WQE_READ) {
        uint64_t off = (uint64_t)req->cur_pkt * qp->mtu;

        sp.op = VR_OP_READ_REQ;
        sp.va += off;
        sp.dma_len = sh->length - off;
    } else {
        const struct vroce_wqe_atomic *seg =
            (const void *)(w->bytes + w->seg_off);

        sp.op = sh->opcode == VROCE_WQE_CMP_SWAP ? VR_OP_CMP_SWAP :
                VR_OP_FETCH_ADD;
        sp.swap_add = le64toh(seg->swap_add);
        sp.compare = le64toh(seg->compare);
    }
    req->reads++;
    req->unasked = 0;
    next_wqe(req, sh);
    send_request(e, qp, &sp, vr_psn_add(sh->first_psn, sh->npsn));
    return STEP_ON;
}

bool vr_req_reread(struct vr_engine *e, struct vr_qp *qp,
                   const struct vr_shadow *sh, uint32_t psn)
{
    struct vr_sp sp;
    uint64_t off = (uint64_t)vr_psn_diff(psn, sh->first_psn) * qp->mtu;

    if (!vr_tx_room(e, qp->loopback) || !reload(e, qp, sh)) {
        return false;
    }
    request_header(qp, &sp);
    sp.psn = psn;
    sp.op = VR_OP_READ_REQ;
    sp.flags |= VR_SP_FIRST | VR_SP_LAST | VR_SP_ACKREQ;
    remote_address(&e->wqe, &sp);
    sp.va += off;
    sp.dma_len = sh->length - off;
    vr_count(e, VROCE_CNT_RETRANSMITTED, 1);
    vr_report(e, VR_REPORT_TX, qp->qpn, vr_sp_bth_opcode(&sp, 0), sp.psn);
    vr_link_send(e, &sp);
    return true;
}

/* How many packets of sh, from the cursor on, go into one super-packet? */
static uint32_t packets_now(const struct vr_qp *qp, const struct vr_shadow *sh)
{
    const struct vr_req *req = &qp->req;
    uint32_t psn = vr_req_cur_psn(qp);
    int32_t window = vr_req_window(qp) - vr_psn_diff(psn, req->una);
    int32_t n = sh->npsn - req->cur_pkt;
    int32_t bytes = VR_SP_BYTES / qp->mtu;
    int32_t unasked = VR_ACKREQ_PACKETS - req->unasked;
    int32_t recover = vr_recover_packets(qp, psn);

    if (qp->type == VROCE_QPT_UC) {
        return 1;
    }
    if (unlikely(n > recover)) {
        n = recover;
    }
    n = n < window ? n : window;
    n = n < bytes ? n : bytes;
    n = n < unasked ? n : unasked;
    return n > 0 ? n : 0;
}

/*
 * Gather the payload of sp into buf and let it travel as bytes: a UC WQE is
 * complete once sent, and its name then leads nowhere.
 */
static enum vroce_rule gather(struct vr_engine *e, struct vr_qp *qp,
                              struct vr_sp *sp, uint8_t *buf)
{
    struct vr_view src, dst = { .kind = VR_VIEW_BYTES, .e = e, .bytes = buf };
    uint64_t off = sp->payload.off;
    bool src_failed;

    vr_wqe_view(e, qp, &src);
    sp->payload.kind = VR_PAYLOAD_BYTES;
    sp->payload.off = 0;
    sp->payload.bytes = buf;
    return vr_copy(&dst, 0, &src, off, sp->payload.len, &src_failed);
}

/* Hand over sp, the next packets of sh, as its connection's kind asks for. */
static enum step emit(struct vr_engine *e, struct vr_qp *qp, struct vr_sp *sp,
                      const struct vr_shadow *sh)
{
    struct vr_req *req = &qp->req;
    uint32_t end_psn = vr_psn_add(sp->psn, sp->npkt);
    uint8_t buf[VR_MAX_MTU];
    enum vroce_rule rule;

    if (qp->type == VROCE_QPT_UC && sp->payload.len) {
        rule = gather(e, qp, sp, buf);
        if (rule) {
            return fail_wqe(e, qp, sh, VROCE_WCS_LOC_PROT_ERR, rule);
        }
    }
    if (sp->flags & VR_SP_LAST) {
        next_wqe(req, sh);
    } else {
        req->cur_pkt += sp->npkt;
    }
    send_request(e, qp, sp, end_psn);
    if (qp->type == VROCE_QPT_UC) {
        req->una = end_psn;
        vr_sq_retire(e, qp);
    }
    return STEP_ON;
}

/* One super-packet of a SEND or WRITE. */
static enum step send_step(struct vr_engine *e, struct vr_qp *qp,
                           const struct vr_shadow *sh, int64_t *budget)
{
    struct vr_req *req = &qp->req;
    struct vr_wqe *w = &e->wqe;
    uint32_t n = packets_now(qp, sh);
    uint64_t off = (uint64_t)req->cur_pkt * qp->mtu;
    uint64_t len = (uint64_t)n * qp->mtu;
    struct vr_sp sp;
    bool last, full;

    if (n == 0 || !reload(e, qp, sh)) {
        return STEP_WAIT;
    }
    last = req->cur_pkt + n == sh->npsn;
    if (last) {
        len = sh->length - off;
    }
    request_header(qp, &sp);
    sp.npkt = n;
    sp.op = sh->opcode >= VROCE_WQE_WRITE ? VR_OP_WRITE : VR_OP_SEND;
    if (req->cur_pkt == 0) {
        sp.flags |= VR_SP_FIRST;
    }
    if (sp.op == VR_OP_WRITE) {
        remote_address(w, &sp);
        sp.dma_len = sh->length;
    }
    if (last) {
        sp.flags |= VR_SP_LAST;
        sp.imm = w->ctrl.imm;
        sp.inv_key = le32toh(w->ctrl.inv_key);
        if (sh->opcode == VROCE_WQE_SEND_IMM ||
            sh->opcode == VROCE_WQE_WRITE_IMM) {
            sp.flags |= VR_SP_IMM;
        }
        if (sh->opcode == VROCE_WQE_SEND_INV) {
            sp.flags |= VR_SP_INV;
        }
        if (sh->flags & VROCE_WQE_SOLICITED && sh->opcode != VROCE_WQE_WRITE) {
            sp.flags |= VR_SP_SOLICITED;
        }
    }

    *budget -= len + n * VR_PACKET_COST;
    req->unasked += n;
    full = vr_psn_diff(sp.psn, req->una) + (int32_t)n >= vr_req_window(qp) ||
           (int32_t)n == vr_recover_packets(qp, sp.psn);
    if (last || full || req->unasked >= VR_ACKREQ_PACKETS) {
        sp.flags |= qp->type == VROCE_QPT_RC ? VR_SP_ACKREQ : 0;
        req->asks_every = req->unasked;
        req->unasked = 0;
    }
    if (len) {
        sp.payload = (struct vr_payload) {
            .kind = VR_PAYLOAD_WQE, .off = off, .len = len,
            .wqe = { .qpn = qp->qpn, .index = sh->index },
        };
    }
    return emit(e, qp, &sp, sh);
}

/* One step of the cursor. */
static enum step req_step(struct vr_engine *e, struct vr_qp *qp,
                          int64_t *budget)
{
    struct vr_req *req = &qp->req;
    struct vr_shadow *sh;

    /* Nothing goes out behind a WQE that failed, even if it failed late. */
    if (req->waiting_rnr ||
        (req->failure.set && (int32_t)(req->cur - req->failure.index) >= 0)) {
        return STEP_WAIT;
    }
    if (unlikely(req->skipping || req->num_gaps)) {
        vr_recover_skip(e, qp);
    }
    if (req->cur == req->next) {
        /* SQD finishes what it began and begins nothing, IBA 10.3.1.5. */
        if (req->next == req->producer || qp->state != VROCE_QPS_RTS ||
            !begin_wqe(e, qp)) {
            return STEP_WAIT;
        }
    }
    sh = vr_shadow_at(qp, req->cur);
    if (req->cur_pkt == 0 && sh->flags & VROCE_WQE_FENCE && req->reads) {
        return STEP_WAIT;
    }
    if (sh->npsn == 0) {
        *budget -= VR_PACKET_COST;
        return local_step(e, qp, sh);
    }
    if (!vr_tx_room(e, qp->loopback)) {
        return STEP_NO_ROOM;
    }
    if (vr_op_is_read_or_atomic(sh->opcode)) {
        *budget -= VR_PACKET_COST;
        return read_step(e, qp, sh);
    }
    return send_step(e, qp, sh, budget);
}

/* SQD: all that was begun has completed, IBA 10.3.1.5. */
static void check_drained(struct vr_engine *e, struct vr_qp *qp)
{
    if (qp->req.consumer == qp->req.next && !qp->req.drained) {
        qp->req.drained = true;
        if (qp->attr.sqd_async_notify) {
            vr_async_event(e, VROCE_EVENT_SQ_DRAINED, qp->qpn, 0);
        }
    }
}

enum vr_turn vr_req_run(struct vr_engine *e, struct vr_qp *qp, int64_t *budget)
{
    enum step step = STEP_ON;

    if (qp->state != VROCE_QPS_RTS && qp->state != VROCE_QPS_SQD) {
        return VR_TURN_IDLE;
    }
    while (step == STEP_ON && *budget > 0 &&
           (qp->state == VROCE_QPS_RTS || qp->state == VROCE_QPS_SQD)) {
        step = req_step(e, qp, budget);
    }
    if (unlikely(qp->req.failure.set)) {
        vr_sq_retire(e, qp);
    }
    if (unlikely(qp->state == VROCE_QPS_SQD)) {
        check_drained(e, qp);
    }
    if (step == STEP_NO_ROOM) {
        return vr_no_room(qp->loopback);
    }
    return step == STEP_ON ? VR_TURN_MORE : VR_TURN_IDLE;
}
