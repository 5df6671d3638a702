/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Responder of connections, IBA 9.7.4. A request is checked in the order of
 * figure 79: sequence, opcode, resources, rights, length. The answer is left as
 * a value for reply.c; nothing here calls the requester. On unreliable
 * connections there is no answer: a message that is not right is dropped, and
 * its receive WQE serves the next one, IBA 9.8.2.
 */
#include <string.h>

#include "vr_transport.h"

void vr_resp_fail(struct vr_engine *e, struct vr_qp *qp, uint8_t syndrome,
                  enum vroce_wc_status status, enum vroce_rule rule)
{
    struct vr_resp *resp = &qp->resp;
    struct vroce_cqe cqe;

    if (qp->type == VROCE_QPT_RC) {
        vr_count(e, VROCE_CNT_TX_ERROR_NAK, 1);
        vr_reply_ack(e, qp, syndrome, resp->psn);
    } else if (syndrome != VR_SYN_NAK_OP) {
        resp->in_message = false;
        return;
    }
    if (resp->recv.valid) {
        memset(&cqe, 0, sizeof(cqe));
        cqe.status = status;
        cqe.rule = htole16(rule);
        vr_recv_cqe(e, qp, &resp->recv, &cqe, true);
    }
    vr_qp_error(e, qp,
                syndrome == VR_SYN_NAK_ACCESS ? VROCE_EVENT_QP_ACCESS_ERR :
                syndrome == VR_SYN_NAK_INVALID ? VROCE_EVENT_QP_REQ_ERR :
                VROCE_EVENT_QP_FATAL, rule);
}

static bool invalid_request(struct vr_engine *e, struct vr_qp *qp)
{
    vr_resp_fail(e, qp, VR_SYN_NAK_INVALID, VROCE_WCS_REM_INV_REQ_ERR, 0);
    return false;
}

static bool access_error(struct vr_engine *e, struct vr_qp *qp,
                         enum vroce_rule rule)
{
    vr_misuse(e, rule, qp->qpn, NULL);
    vr_resp_fail(e, qp, rule == VROCE_RULE_MEM_DMA ? VR_SYN_NAK_OP :
                 VR_SYN_NAK_ACCESS, VROCE_WCS_LOC_ACCESS_ERR, rule);
    return false;
}

static bool qp_allows(const struct vr_qp *qp, uint32_t access)
{
    return le32toh(qp->attr.access_flags) & access;
}

/*
 * Make sure that a receive WQE is at hand. False: there is none (RNR NAK for
 * the packet psn, IBA 9.7.5.2.8), or the queue is broken.
 */
static bool take_receive(struct vr_engine *e, struct vr_qp *qp, uint32_t psn)
{
    struct vr_resp *resp = &qp->resp;
    enum vroce_rule rule = vr_rq_take(e, qp, &resp->recv);

    if (unlikely(rule)) {
        vr_resp_fail(e, qp, VR_SYN_NAK_OP, VROCE_WCS_LOC_QP_OP_ERR, rule);
        return false;
    }
    if (unlikely(!resp->recv.valid)) {
        qp->marks.refused = e->now;
        if (qp->type == VROCE_QPT_UC) {
            resp->in_message = false;
            return false;
        }
        vr_count(e, VROCE_CNT_TX_RNR_NAK, 1);
        vr_reply_ack(e, qp, VR_SYN_RNR | qp->attr.min_rnr_timer, psn);
        /* What follows in flight gets no answer, IBA 9.7.5.2.8. */
        resp->nak_sent = resp->rnr_sent = true;
        resp->nak_at = e->now;
        resp->behind = psn;
        return false;
    }
    return true;
}

/* Copy the payload of sp; false: failed, and dealt with. */
static bool take_payload(struct vr_engine *e, struct vr_engine *from,
                         struct vr_qp *qp, const struct vr_sp *sp)
{
    struct vr_resp *resp = &qp->resp;
    struct vr_view src, dst;
    bool src_failed = false;
    enum vroce_rule rule;

    if (sp->payload.len == 0) {
        return true;
    }
    rule = vr_payload_view(from, &sp->payload, &src);
    if (unlikely(rule)) {
        if (rule != VROCE_RULE_NO_OBJECT) {
            vr_payload_failed(from, &sp->payload, rule);
        }
        return false;
    }
    dst.e = e;
    dst.off = resp->received;
    if (sp->op == VR_OP_SEND) {
        dst.kind = VR_VIEW_SGL;
        dst.sgl = resp->recv.sgl;
    } else {
        dst.kind = VR_VIEW_MR;
        dst.mr.va = resp->va;
        dst.mr.key = resp->rkey;
        dst.mr.pdn = qp->pdn;
        dst.mr.access = VROCE_ACCESS_REMOTE_WRITE;
    }
    rule = vr_copy(&dst, 0, &src, 0, sp->payload.len, &src_failed);
    if (likely(!rule)) {
        return true;
    }
    if (src_failed) {
        vr_payload_failed(from, &sp->payload, rule);
    } else if (sp->op == VR_OP_SEND) {
        vr_misuse(e, rule, qp->qpn, NULL);
        vr_resp_fail(e, qp, VR_SYN_NAK_OP, VROCE_WCS_LOC_PROT_ERR, rule);
    } else {
        access_error(e, qp, rule);
    }
    return false;
}

/* The last packet of a SEND or WRITE with immediate is in place. */
static void complete_receive(struct vr_engine *e, struct vr_qp *qp,
                             const struct vr_sp *sp)
{
    struct vr_resp *resp = &qp->resp;
    struct vroce_cqe cqe;
    uint16_t flags = 0;

    memset(&cqe, 0, sizeof(cqe));
    cqe.byte_len = htole32(resp->received);
    cqe.src_qpn = qp->attr.dest_qpn;
    cqe.opcode = sp->op == VR_OP_SEND ? VROCE_WC_RECV : VROCE_WC_RECV_WRITE_IMM;
    if (sp->flags & VR_SP_IMM) {
        flags |= VROCE_CQE_IMM;
        cqe.imm = sp->imm;
    }
    if (sp->flags & VR_SP_INV) {
        flags |= VROCE_CQE_INV;
        cqe.inv_key = htole32(sp->inv_key);
    }
    if (sp->flags & VR_SP_SOLICITED) {
        flags |= VROCE_CQE_SOLICITED;
    }
    cqe.flags = htole16(flags);
    vr_recv_cqe(e, qp, &resp->recv, &cqe, sp->flags & VR_SP_SOLICITED);
}

/* All packets but the last carry the MTU, the last 1..MTU, IBA 9.7.4.1.6. */
static bool length_fits(const struct vr_qp *qp, const struct vr_sp *sp)
{
    uint64_t full = (uint64_t)sp->npkt * qp->mtu;
    bool only = sp->npkt == 1 && sp->flags & VR_SP_FIRST;

    if (!(sp->flags & VR_SP_LAST)) {
        return sp->payload.len == full;
    }
    return sp->payload.len <= full &&
           (only || sp->payload.len > full - qp->mtu);
}

/* First packet of a WRITE: rights of QP and region; IBA 9.7.4.1.5, C9-88. */
static bool begin_write(struct vr_engine *e, struct vr_qp *qp,
                        const struct vr_sp *sp)
{
    struct vr_resp *resp = &qp->resp;
    enum vroce_rule rule;
    struct vr_mr *mr;

    if (!qp_allows(qp, VROCE_ACCESS_REMOTE_WRITE) ||
        sp->dma_len > VR_MAX_DMA_LEN) {
        return invalid_request(e, qp);
    }
    resp->va = sp->va;
    resp->rkey = sp->rkey;
    resp->dma_len = sp->dma_len;
    if (sp->dma_len) {
        rule = vr_mr_check(e, sp->rkey, qp->pdn, sp->va, sp->dma_len,
                           VROCE_ACCESS_REMOTE_WRITE, &mr);
        if (rule) {
            return access_error(e, qp, rule);
        }
    }
    return true;
}

static bool check_write_length(struct vr_engine *e, struct vr_qp *qp,
                               const struct vr_sp *sp)
{
    struct vr_resp *resp = &qp->resp;
    uint64_t total = (uint64_t)resp->received + sp->payload.len;

    if (sp->flags & VR_SP_LAST ? total != resp->dma_len :
        total >= resp->dma_len) {
        return invalid_request(e, qp);
    }
    return true;
}

/* A SEND that does not fit its receive WQE: IBA 9.7.4.1.7 and class C. */
static bool check_send_length(struct vr_engine *e, struct vr_qp *qp,
                              const struct vr_sp *sp)
{
    struct vr_resp *resp = &qp->resp;
    uint64_t total = (uint64_t)resp->received + sp->payload.len;

    if (total > VR_MAX_DMA_LEN) {
        return invalid_request(e, qp);
    }
    if (total > vr_sgl_length(&resp->recv.sgl)) {
        vr_resp_fail(e, qp, VR_SYN_NAK_INVALID, VROCE_WCS_LOC_LEN_ERR, 0);
        return false;
    }
    return true;
}

/* SEND with invalidate: the peer may name only what it could access. */
static bool invalidate(struct vr_engine *e, struct vr_qp *qp,
                       const struct vr_sp *sp)
{
    enum vroce_rule rule = vr_mr_invalidate(e, qp->pdn, sp->inv_key);

    if (rule) {
        vr_misuse(e, rule, qp->qpn, NULL);
        vr_resp_fail(e, qp, VR_SYN_NAK_ACCESS, VROCE_WCS_LOC_ACCESS_ERR, rule);
    }
    return !rule;
}

static void accept_message(struct vr_engine *e, struct vr_engine *from,
                           struct vr_qp *qp, const struct vr_sp *sp);

/*
 * A receive is needed for the last packet only, and there is none: take what
 * comes before it all the same.
 */
static void accept_without_last(struct vr_engine *e, struct vr_engine *from,
                                struct vr_qp *qp, const struct vr_sp *sp)
{
    struct vr_sp head = *sp, last;

    head.mtu = qp->mtu;
    vr_sp_split(&head, sp->npkt - 1, &last);
    accept_message(e, from, qp, &head);
    if (vr_qp_can_receive(qp) && qp->resp.psn == last.psn) {
        accept_message(e, from, qp, &last);
    }
}

/* The next n expected packets have come. */
static void moved_on(struct vr_resp *resp, uint32_t n)
{
    resp->psn = vr_psn_add(resp->psn, n);
    resp->nak_sent = resp->rnr_sent = resp->dup_acked = false;
    resp->nak_after = 0;
}

/* SEND or WRITE packets that are the next expected. */
static void accept_message(struct vr_engine *e, struct vr_engine *from,
                           struct vr_qp *qp, const struct vr_sp *sp)
{
    struct vr_resp *resp = &qp->resp;
    bool first = sp->flags & VR_SP_FIRST, last = sp->flags & VR_SP_LAST;
    bool send = sp->op == VR_OP_SEND;
    bool wants_recv = send ? first : last && sp->flags & VR_SP_IMM;

    if (first == resp->in_message || (!first && sp->op != resp->op) ||
        !length_fits(qp, sp)) {
        invalid_request(e, qp);
        return;
    }
    if (wants_recv && !send && sp->npkt > 1 && !resp->recv.valid) {
        accept_without_last(e, from, qp, sp);
        return;
    }
    if (wants_recv && !resp->recv.valid && !take_receive(e, qp, sp->psn)) {
        return;
    }
    if (first) {
        resp->received = 0;
        if (!send && !begin_write(e, qp, sp)) {
            return;
        }
    }
    if (!(send ? check_send_length(e, qp, sp) :
                 check_write_length(e, qp, sp)) ||
        !take_payload(e, from, qp, sp) ||
        (last && sp->flags & VR_SP_INV && !invalidate(e, qp, sp))) {
        return;
    }

    resp->received += sp->payload.len;
    moved_on(resp, sp->npkt);
    resp->op = sp->op;
    resp->in_message = !last;
    if (last) {
        resp->msn = vr_psn_add(resp->msn, 1);
    }
    if (sp->flags & VR_SP_ACKREQ) {
        vr_reply_ack(e, qp, VR_SYN_ACK, vr_psn_add(resp->psn, VR_PSN_MASK));
    }
    if (last && (send || sp->flags & VR_SP_IMM)) {
        complete_receive(e, qp, sp);
    }
}

/* READ or atomic that is the next expected. */
static void accept_read(struct vr_engine *e, struct vr_qp *qp,
                        const struct vr_sp *sp)
{
    struct vr_resp *resp = &qp->resp;
    bool read = sp->op == VR_OP_READ_REQ;
    uint32_t access = read ? VROCE_ACCESS_REMOTE_READ :
                      VROCE_ACCESS_REMOTE_ATOMIC;
    uint32_t npsn = read ? vr_num_packets(sp->dma_len, qp->mtu) : 1;
    struct vr_replay *r;
    struct vr_mr *mr;
    enum vroce_rule rule = VROCE_RULE_NONE;
    uint64_t old = 0;

    if (resp->in_message || !qp_allows(qp, access) ||
        (read ? sp->dma_len > VR_MAX_DMA_LEN || npsn >= VR_MAX_PSN_SPAN :
                sp->va & 7)) {
        invalid_request(e, qp);
        return;
    }
    if (!read) {
        rule = vr_mr_check(e, sp->rkey, qp->pdn, sp->va, 8, access, &mr);
    } else if (sp->dma_len) {
        rule = vr_mr_check(e, sp->rkey, qp->pdn, sp->va, sp->dma_len, access,
                           &mr);
    }
    if (rule) {
        access_error(e, qp, rule);
        return;
    }
    r = vr_replay_add(qp, sp, npsn);
    if (!r) {
        invalid_request(e, qp);
        return;
    }
    if (!read) {
        rule = vr_mr_atomic(e, sp->rkey, qp->pdn, sp->va,
                            sp->op == VR_OP_CMP_SWAP, sp->compare,
                            sp->swap_add, &old);
        if (rule) {
            r->active = false;
            resp->replay_active--;
            access_error(e, qp, rule);
            return;
        }
        r->result = old;
    }
    moved_on(resp, npsn);
    resp->msn = vr_psn_add(resp->msn, 1);
    /* The answer acknowledges what came before it. */
    resp->have_ack = false;
    vr_sched_add(e, qp);
}

static void accept(struct vr_engine *e, struct vr_engine *from,
                   struct vr_qp *qp, const struct vr_sp *sp)
{
    if (unlikely(qp->state == VROCE_QPS_RTR && !qp->resp.established)) {
        qp->resp.established = true;
        vr_async_event(e, VROCE_EVENT_COMM_EST, qp->qpn, 0);
    }
    if (sp->op == VR_OP_SEND || sp->op == VR_OP_WRITE) {
        accept_message(e, from, qp, sp);
    } else {
        accept_read(e, qp, sp);
    }
}

/*
 * Packets behind a gap: kept, and answered by a NAK. IBA 9.7.5.1.3 has one for
 * each gap; were it lost, or what it asks for, only a timeout would help, so
 * that there may be others: see vr_reply_nak_due(). Whoever understands it is
 * told of further gaps at once.
 */
static void out_of_order(struct vr_engine *e, struct vr_engine *from,
                         struct vr_qp *qp, const struct vr_sp *sp)
{
    struct vr_resp *resp = &qp->resp;
    bool due = vr_reply_nak_due(e, qp, sp);

    vr_count(e, VROCE_CNT_RX_OUT_OF_SEQUENCE, sp->npkt);
    if (length_fits(qp, sp)) {
        vr_hold_add(e, from, qp, sp);
    }
    if (due) {
        vr_reply_nak(e, qp);
    } else if (resp->names_gaps && !resp->rnr_sent && vr_hold_gap(qp)) {
        vr_reply_ack(e, qp, VR_SYN_NAK_PSN, resp->psn);
    }
}

/* Packets that are the next expected, and those that waited for them. */
static void accept_next(struct vr_engine *e, struct vr_engine *from,
                        struct vr_qp *qp, const struct vr_sp *sp)
{
    struct vr_resp *resp = &qp->resp;
    uint32_t psn = resp->psn;

    accept(e, from, qp, sp);
    if (likely(!resp->hold) || resp->psn == psn ||
        !vr_hold_drain(e, qp, accept) || !vr_qp_can_receive(qp) ||
        resp->nak_sent) {
        return;
    }
    if (resp->hold) {
        vr_reply_nak(e, qp);        /* there is another gap */
    } else {
        vr_reply_ack(e, qp, VR_SYN_ACK, vr_psn_add(resp->psn, VR_PSN_MASK));
    }
}

/* A lost packet costs UC its message; the next first packet is in order. */
static bool uc_in_order(struct vr_qp *qp, const struct vr_sp *sp)
{
    struct vr_resp *resp = &qp->resp;

    if (sp->flags & VR_SP_FIRST) {
        resp->psn = sp->psn;
        resp->in_message = false;
    } else if (sp->psn != resp->psn || sp->op != resp->op) {
        resp->in_message = false;
    }
    return sp->flags & VR_SP_FIRST || resp->in_message;
}

void vr_resp_rx(struct vr_engine *e, struct vr_engine *from, struct vr_qp *qp,
                const struct vr_sp *sp)
{
    struct vr_resp *resp = &qp->resp;
    int32_t d = vr_psn_diff(sp->psn, resp->psn);
    struct vr_sp old, fresh;

    if (!vr_qp_can_receive(qp)) {
        return;
    }
    if (qp->type == VROCE_QPT_UC) {
        if (uc_in_order(qp, sp)) {
            accept(e, from, qp, sp);
        }
        return;
    }
    resp->names_gaps = sp->flags & VR_SP_NAMES;
    if (likely(d == 0)) {
        accept_next(e, from, qp, sp);
        return;
    }
    if (d > 0) {
        out_of_order(e, from, qp, sp);
        return;
    }
    if (-d >= (int32_t)sp->npkt) {
        vr_replay_again(e, qp, sp);
        return;
    }
    if (!length_fits(qp, sp)) {
        invalid_request(e, qp);
        return;
    }
    old = *sp;
    old.mtu = qp->mtu;
    vr_sp_split(&old, -d, &fresh);
    vr_count(e, VROCE_CNT_RX_DUPLICATE, old.npkt);
    accept_next(e, from, qp, &fresh);
}

/* Is sp from the peer that qp is connected to? */
static bool from_peer(const struct vr_qp *qp, const struct vr_sp *sp)
{
    return !memcmp(sp->route.sgid, qp->route.dgid, sizeof(sp->route.sgid)) &&
           !memcmp(sp->route.dgid, qp->route.sgid, sizeof(sp->route.dgid));
}

void vr_transport_rx(struct vr_engine *e, struct vr_engine *from,
                     const struct vr_sp *sp)
{
    struct vr_qp *qp = vr_qp_get(e, sp->dqpn);

    if (unlikely(!qp || qp->state < VROCE_QPS_RTR)) {
        vr_count(e, VROCE_CNT_RX_NO_QP, sp->npkt);
        return;
    }
    qp->marks.heard = e->now;
    vr_report(e, VR_REPORT_RX, qp->qpn, vr_sp_bth_opcode(sp, 0), sp->psn);
    if (vr_qp_is_ud(qp) && sp->qp_type == VROCE_QPT_UD) {
        vr_ud_rx(e, from, qp, sp);
        return;
    }
    if (unlikely(qp->type != sp->qp_type || qp->type > VROCE_QPT_UC ||
                 !from_peer(qp, sp))) {
        vr_count(e, VROCE_CNT_RX_NO_QP, sp->npkt);
        return;
    }
    if (qp->type == VROCE_QPT_UC && sp->op > VR_OP_WRITE) {
        return;
    }
    switch (sp->op) {
    case VR_OP_SEND:
    case VR_OP_WRITE:
    case VR_OP_READ_REQ:
    case VR_OP_CMP_SWAP:
    case VR_OP_FETCH_ADD:
        vr_resp_rx(e, from, qp, sp);
        break;
    case VR_OP_ACK:
    case VR_OP_READ_RESP:
    case VR_OP_ATOMIC_ACK:
        vr_comp_rx(e, from, qp, sp);
        break;
    default:                    /* CNP: no rate to lower */
        break;
    }
}
