/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Completer: what the responder's answers do to the send queue, IBA 9.7.5, and
 * how long they may take, IBA 9.7.6.
 *
 * Work completes strictly in order. An acknowledgement covers all before it,
 * but never steps over a READ or atomic whose answer has not come: that answer
 * was lost, and the requester asks for it again (implied NAK, IBA 9.7.5.1.1).
 */
#include <string.h>

#include "vr_transport.h"

/* RNR timer codes in units of 10 us, IBA table 46. */
static const uint32_t rnr_timer[32] = {
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384,
    512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576,
    32768, 49152
};

/* Shorter local ACK timeouts than this are not kept: hosts stall for longer. */
#define MIN_ACK_TIMEOUT_NS 1000000

uint64_t vr_ack_timeout(const struct vr_qp *qp)
{
    uint64_t ns;

    if (qp->attr.timeout == 0) {
        return VR_NEVER;
    }
    /* IBA 9.7.6.1.3 allows one to four times this; two forgives a stall. */
    ns = 2 * (4096ull << qp->attr.timeout);
    return ns < MIN_ACK_TIMEOUT_NS ? MIN_ACK_TIMEOUT_NS : ns;
}

static uint8_t wc_opcode(uint8_t wqe_opcode)
{
    switch (wqe_opcode) {
    case VROCE_WQE_WRITE:
    case VROCE_WQE_WRITE_IMM:
        return VROCE_WC_WRITE;
    case VROCE_WQE_READ:
        return VROCE_WC_READ;
    case VROCE_WQE_CMP_SWAP:
        return VROCE_WC_CMP_SWAP;
    case VROCE_WQE_FETCH_ADD:
        return VROCE_WC_FETCH_ADD;
    case VROCE_WQE_FAST_REG:
        return VROCE_WC_FAST_REG;
    case VROCE_WQE_LOCAL_INV:
        return VROCE_WC_LOCAL_INV;
    case VROCE_WQE_NOP:
        return VROCE_WC_NOP;
    default:
        return VROCE_WC_SEND;
    }
}

void vr_sq_cqe(struct vr_engine *e, struct vr_qp *qp,
               const struct vr_failure *f, uint32_t byte_len, bool signaled)
{
    struct vr_req *req = &qp->req;
    struct vroce_cqe cqe;

    req->consumer = f->end;
    if ((int32_t)(f->end - req->next) > 0) {
        req->next = f->end;     /* it was never begun */
    }
    if ((int32_t)(f->end - req->cur) > 0) {
        req->cur = f->end;
        req->cur_pkt = 0;
    }
    if (f->rule) {
        qp->last_rule = f->rule;
    }
    if (!signaled && f->status == VROCE_WCS_SUCCESS) {
        return;
    }
    if (unlikely(f->status)) {
        vr_qp_note_error(e, qp, f->status, f->wr_id, false);
    }
    memset(&cqe, 0, sizeof(cqe));
    cqe.wr_id = htole64(f->wr_id);
    cqe.qpn = htole32(qp->qpn);
    cqe.byte_len = htole32(byte_len);
    cqe.wqe_end = htole32(f->end);
    cqe.opcode = wc_opcode(f->opcode);
    cqe.status = f->status;
    cqe.rule = htole16(f->rule);
    vr_cq_post(e, qp->send_cqn, &cqe, false);
}

/* Complete the oldest WQE, which was begun. */
static void complete_head(struct vr_engine *e, struct vr_qp *qp, uint8_t status,
                          uint16_t rule)
{
    struct vr_req *req = &qp->req;
    const struct vr_shadow *sh = vr_shadow_at(qp, req->consumer);
    struct vr_failure f = {
        .opcode = sh->opcode, .status = status, .rule = rule,
        .index = sh->index, .end = sh->index + sh->units, .wr_id = sh->wr_id,
    };
    bool answered = vr_op_is_read_or_atomic(sh->opcode);

    if (req->cur == sh->index) {
        /* Acknowledged before it was sent again. */
        req->cur = f.end;
        req->cur_pkt = 0;
    } else if (answered) {
        req->reads--;
    }
    vr_sq_cqe(e, qp, &f, answered ? sh->length : 0,
              sh->flags & VROCE_WQE_SIGNALED);
}

/* The oldest WQE, begun or not, is the one that failed: report it and stop. */
static void report_failure(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_failure f = qp->req.failure;

    qp->req.failure.set = false;
    vr_sq_cqe(e, qp, &f, 0, true);
    if (qp->type == VROCE_QPT_UC && qp->state != VROCE_QPS_ERR &&
        f.rule != VROCE_RULE_MEM_DMA) {
        vr_qp_set_state(e, qp, VROCE_QPS_SQE);      /* IBA 10.3.1.6 */
    } else {
        vr_qp_error(e, qp, 0, f.rule);
    }
}

void vr_sq_retire(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_req *req = &qp->req;

    while (req->consumer != req->next) {
        const struct vr_shadow *sh = vr_shadow_at(qp, req->consumer);
        uint32_t end = vr_psn_add(sh->first_psn, sh->npsn);

        if (sh->npsn == 0 || vr_op_is_read_or_atomic(sh->opcode) ?
            !sh->done : vr_psn_diff(req->una, end) < 0) {
            break;
        }
        complete_head(e, qp, VROCE_WCS_SUCCESS, 0);
    }
    if (unlikely(req->failure.set && req->failure.index == req->consumer &&
                 (qp->state == VROCE_QPS_RTS || qp->state == VROCE_QPS_SQD))) {
        report_failure(e, qp);
    }
}

void vr_req_fail(struct vr_engine *e, struct vr_qp *qp,
                 const struct vr_failure *f)
{
    struct vr_failure *old = &qp->req.failure;

    if (!old->set || (int32_t)(f->index - old->index) < 0) {
        *old = *f;
        old->set = true;
    }
    vr_sched_add(e, qp);
}

void vr_sq_fail_head(struct vr_engine *e, struct vr_qp *qp, uint8_t status,
                     uint16_t rule)
{
    if (qp->req.consumer != qp->req.next) {
        complete_head(e, qp, status, rule);
    }
    vr_qp_error(e, qp, 0, rule);
}

/* Something was acknowledged: the counters start anew. */
static void progress(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_req *req = &qp->req;

    qp->marks.answered = e->now;
    vr_recover_acked(e, qp);
    req->retries_left = qp->attr.retry_cnt;
    req->rnr_left = qp->attr.rnr_retry;
    vr_req_arm(e, qp);
    if (req->cur != req->producer || qp->state == VROCE_QPS_SQD) {
        vr_sched_add(e, qp);
    }
}

/* Move una to psn, which lies inside or at the end of the oldest WQE. */
static void advance(struct vr_qp *qp, uint32_t psn)
{
    struct vr_req *req = &qp->req;
    uint32_t n = vr_psn_diff(psn, req->una);

    req->arrived -= n < req->arrived ? n : req->arrived;
    if (vr_psn_diff(psn, vr_req_cur_psn(qp)) > 0 && req->cur == req->consumer) {
        req->cur_pkt = vr_psn_diff(psn, vr_shadow_at(qp, req->cur)->first_psn);
    }
    req->una = psn;
}

/*
 * Everything before psn is acknowledged. False: a READ or atomic before it has
 * no answer yet.
 */
static bool ack_before(struct vr_engine *e, struct vr_qp *qp, uint32_t psn)
{
    struct vr_req *req = &qp->req;
    bool moved = false, complete = true;

    vr_learn_keeping(qp, psn);
    while (req->consumer != req->next && qp->state != VROCE_QPS_ERR) {
        const struct vr_shadow *sh = vr_shadow_at(qp, req->consumer);
        uint32_t end = vr_psn_add(sh->first_psn, sh->npsn);

        if (sh->npsn == 0) {
            if (!sh->done) {
                break;
            }
        } else if (vr_psn_diff(psn, req->una) <= 0) {
            break;
        } else if (vr_op_is_read_or_atomic(sh->opcode)) {
            complete = false;
            break;
        } else {
            bool all = vr_psn_diff(psn, end) >= 0;

            advance(qp, all ? end : psn);
            moved = true;
            if (!all) {
                break;
            }
        }
        complete_head(e, qp, VROCE_WCS_SUCCESS, 0);
    }
    if (moved) {
        progress(e, qp);
        vr_sq_retire(e, qp);
    }
    return complete;
}

static void rnr_nak(struct vr_engine *e, struct vr_qp *qp, uint8_t code)
{
    struct vr_req *req = &qp->req;

    vr_count(e, VROCE_CNT_RX_RNR_NAK, 1);
    if (req->waiting_rnr) {
        return;
    }
    if (req->rnr_left == 0) {
        vr_count(e, VROCE_CNT_RNR_RETRY_EXCEEDED, 1);
        vr_sq_fail_head(e, qp, VROCE_WCS_RNR_RETRY_EXC_ERR, 0);
        return;
    }
    if (req->rnr_left != 7) {
        req->rnr_left--;
    }
    req->waiting_rnr = true;
    vr_go_back(e, qp);
    vr_timer_cancel(e, &req->retry_timer);
    vr_timer_set(e, &req->rnr_timer, e->now + rnr_timer[code] * 10000ull);
}

static void rx_nak(struct vr_engine *e, struct vr_qp *qp,
                   const struct vr_sp *sp)
{
    static const uint8_t status[] = {
        [VR_SYN_NAK_INVALID - VR_SYN_NAK_PSN] = VROCE_WCS_REM_INV_REQ_ERR,
        [VR_SYN_NAK_ACCESS - VR_SYN_NAK_PSN] = VROCE_WCS_REM_ACCESS_ERR,
        [VR_SYN_NAK_OP - VR_SYN_NAK_PSN] = VROCE_WCS_REM_OP_ERR,
    };
    uint8_t code = sp->syndrome - VR_SYN_NAK_PSN;

    if (sp->syndrome == VR_SYN_NAK_PSN) {
        vr_count(e, VROCE_CNT_RX_PSN_NAK, 1);
        vr_sequence_error(e, qp, sp);
        return;
    }
    vr_count(e, VROCE_CNT_RX_ERROR_NAK, 1);
    vr_sq_fail_head(e, qp, code < sizeof(status) ? status[code] :
                    VROCE_WCS_BAD_RESP_ERR, 0);
}

static void rx_ack(struct vr_engine *e, struct vr_qp *qp,
                   const struct vr_sp *sp)
{
    uint32_t last = vr_psn_add(sp->psn,
                               VR_AETH_TYPE(sp->syndrome) == VR_AETH_ACK);
    bool complete = ack_before(e, qp, last);

    if (unlikely(qp->state == VROCE_QPS_ERR)) {
        return;
    }
    switch (VR_AETH_TYPE(sp->syndrome)) {
    case VR_AETH_ACK:
        if (!complete) {
            vr_sequence_error(e, qp, NULL);
        }
        break;
    case VR_AETH_RNR:
        if (!complete) {
            vr_sequence_error(e, qp, NULL);
        } else if (qp->req.una == sp->psn) {
            rnr_nak(e, qp, sp->syndrome & 0x1f);
        }
        break;
    case VR_AETH_NAK:
        rx_nak(e, qp, sp);
        break;
    default:
        vr_sq_fail_head(e, qp, VROCE_WCS_BAD_RESP_ERR, 0);
        break;
    }
}

/* Bytes from guest memory of `from`, or of the frame, to where sh says. */
static bool place(struct vr_engine *e, struct vr_engine *from, struct vr_qp *qp,
                  const struct vr_shadow *sh, const struct vr_payload *payload,
                  uint64_t off)
{
    struct vr_payload name = {
        .kind = VR_PAYLOAD_WQE, .off = off,
        .wqe = { .qpn = qp->qpn, .index = sh->index },
    };
    struct vr_view dst, src;
    enum vroce_rule rule;
    bool src_failed = false;

    rule = vr_payload_view(from, payload, &src);
    if (unlikely(rule)) {
        if (rule != VROCE_RULE_NO_OBJECT) {
            vr_payload_failed(from, payload, rule);
        }
        return false;
    }
    rule = vr_payload_view(e, &name, &dst);
    if (likely(!rule)) {
        rule = vr_copy(&dst, 0, &src, 0, payload->len, &src_failed);
    }
    if (likely(!rule)) {
        return true;
    }
    if (src_failed) {
        vr_payload_failed(from, payload, rule);
    } else {
        vr_payload_failed(e, &name, rule);
    }
    return false;
}

/* ------------------------------------------- answers of READs, in any order */

static uint64_t *early_word(struct vr_req *req, uint32_t psn)
{
    return &req->early[psn % VR_EARLY_PACKETS / 64];
}

static void set_early(struct vr_req *req, uint32_t psn, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++, psn = vr_psn_add(psn, 1)) {
        *early_word(req, psn) |= 1ull << psn % 64;
    }
}

static bool is_early(struct vr_req *req, uint32_t psn)
{
    return *early_word(req, psn) >> psn % 64 & 1;
}

/* Check the packets of sp against their READ, and put the bytes in place. */
static bool take_packets(struct vr_engine *e, struct vr_engine *from,
                         struct vr_qp *qp, const struct vr_shadow *sh,
                         const struct vr_sp *sp)
{
    uint32_t first = vr_psn_diff(sp->psn, sh->first_psn);
    uint64_t off = (uint64_t)first * qp->mtu;
    uint64_t end = off + (uint64_t)sp->npkt * qp->mtu;
    bool last = first + sp->npkt == sh->npsn;

    if (end > sh->length) {
        end = sh->length;
    }
    if (first + sp->npkt > sh->npsn || sp->payload.len != end - off ||
        last != !!(sp->flags & VR_SP_LAST)) {
        vr_sq_fail_head(e, qp, VROCE_WCS_BAD_RESP_ERR, 0);
        return false;
    }
    return !sp->payload.len || place(e, from, qp, sh, &sp->payload, off);
}

/* Move una over the packets that are in place; READs complete in order. */
static void advance_over_early(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_req *req = &qp->req;

    while (req->consumer != req->next) {
        struct vr_shadow *sh = vr_shadow_at(qp, req->consumer);
        uint32_t end = vr_psn_add(sh->first_psn, sh->npsn);

        if (sh->opcode != VROCE_WQE_READ) {
            break;
        }
        while (req->una != end && is_early(req, req->una)) {
            *early_word(req, req->una) &= ~(1ull << req->una % 64);
            advance(qp, vr_psn_add(req->una, 1));
        }
        if (req->una != end) {
            break;
        }
        sh->done = true;
        vr_sq_retire(e, qp);
    }
}

/* The packets of sp are the next that the oldest READ waits for. */
static void take_read_response(struct vr_engine *e, struct vr_engine *from,
                               struct vr_qp *qp, const struct vr_sp *sp)
{
    struct vr_req *req = &qp->req;

    if (take_packets(e, from, qp, vr_shadow_at(qp, req->consumer), sp)) {
        set_early(req, sp->psn, sp->npkt);
        advance_over_early(e, qp);
        if (qp->state != VROCE_QPS_ERR) {
            progress(e, qp);
        }
    }
}

/* The WQE in flight that psn belongs to, or NULL. */
static struct vr_shadow *shadow_of(const struct vr_qp *qp, uint32_t psn)
{
    const struct vr_req *req = &qp->req;

    for (uint32_t i = req->consumer; i != req->next;) {
        struct vr_shadow *sh = vr_shadow_at(qp, i);
        int32_t d = vr_psn_diff(psn, sh->first_psn);

        if (d >= 0 && d < (int32_t)sh->npsn) {
            return sh;
        }
        i += sh->units;
    }
    return NULL;
}

/* First packet of sh before psn `end` that has not come; end: there is none. */
static uint32_t first_missing(struct vr_req *req, const struct vr_shadow *sh,
                              uint32_t end)
{
    uint32_t psn = sh->first_psn, behind = vr_psn_add(psn, sh->npsn);

    if (vr_psn_diff(req->una, psn) > 0) {
        psn = req->una;
    }
    if (vr_psn_diff(end, behind) < 0) {
        behind = end;
    }
    while (vr_psn_diff(psn, behind) < 0) {
        if (!is_early(req, psn)) {
            return psn;
        }
        psn = vr_psn_add(psn, 1);
    }
    return end;
}

/*
 * An answer at psn has come: what is missing of READs before it is lost. Asks
 * for each of them again, from its first missing packet on; not twice in a
 * round trip, unless the answer to a later question was seen: they come in the
 * order of the questions. False: something else is missing, too.
 */
static bool ask_for_missing(struct vr_engine *e, struct vr_qp *qp, uint32_t psn)
{
    struct vr_req *req = &qp->req;

    for (uint32_t i = req->consumer; i != req->next;) {
        struct vr_shadow *sh = vr_shadow_at(qp, i);
        uint32_t missing;

        i += sh->units;
        if (vr_psn_diff(sh->first_psn, psn) >= 0) {
            break;
        }
        if (!vr_op_is_read_or_atomic(sh->opcode)) {
            continue;
        }
        if (sh->opcode != VROCE_WQE_READ) {
            return false;
        }
        missing = first_missing(req, sh, psn);
        if (missing == psn || (sh->asked_again &&
            sh->asked_again >= req->answered_again &&
            e->now - sh->asked_again < vr_recover_patience(qp))) {
            continue;
        }
        if (!vr_recover_begin(e, qp) || !vr_req_reread(e, qp, sh, missing)) {
            break;
        }
        sh->asked_again = e->now;
    }
    return true;
}

/*
 * Packets of a READ's answer behind a gap: in their place nobody looks at them
 * before the READ completes, so they may be there early.
 */
static bool take_early(struct vr_engine *e, struct vr_engine *from,
                       struct vr_qp *qp, const struct vr_sp *sp)
{
    const struct vr_shadow *sh = shadow_of(qp, sp->psn);
    uint32_t ahead = vr_psn_diff(sp->psn, qp->req.una);

    if (!sh || sh->opcode != VROCE_WQE_READ || sp->op != VR_OP_READ_RESP ||
        VR_AETH_TYPE(sp->syndrome) != VR_AETH_ACK ||
        ahead + sp->npkt > VR_EARLY_PACKETS) {
        return false;
    }
    if (!take_packets(e, from, qp, sh, sp)) {
        return true;
    }
    /* Came before, or begins in mid-message: the answer to a repetition. */
    if (sh->asked_again > qp->req.answered_again &&
        (is_early(&qp->req, sp->psn) ||
         (sp->flags & VR_SP_FIRST && sp->psn != sh->first_psn))) {
        qp->req.answered_again = sh->asked_again;
    }
    set_early(&qp->req, sp->psn, sp->npkt);
    return ask_for_missing(e, qp, sp->psn);
}

static void take_atomic_ack(struct vr_engine *e, struct vr_qp *qp,
                            const struct vr_sp *sp)
{
    struct vr_shadow *sh = vr_shadow_at(qp, qp->req.consumer);
    uint64_t old = sp->swap_add;
    struct vr_payload payload = {
        .kind = VR_PAYLOAD_BYTES, .len = 8, .bytes = (const uint8_t *)&old,
    };

    old = htole64(old);
    if (!place(e, e, qp, sh, &payload, 0)) {
        return;
    }
    advance(qp, vr_psn_add(sp->psn, 1));
    sh->done = true;
    progress(e, qp);
    vr_sq_retire(e, qp);
}

/* The answer of a READ or atomic. It acknowledges all before that request. */
static void rx_answer(struct vr_engine *e, struct vr_engine *from,
                      struct vr_qp *qp, struct vr_sp *sp)
{
    struct vr_req *req = &qp->req;
    const struct vr_shadow *sh;

    if (!ack_before(e, qp, sp->psn) || qp->state == VROCE_QPS_ERR ||
        req->una != sp->psn || req->consumer == req->next) {
        if (qp->state != VROCE_QPS_ERR && !take_early(e, from, qp, sp)) {
            vr_sequence_error(e, qp, NULL);
        }
        return;
    }
    sh = vr_shadow_at(qp, req->consumer);
    if (VR_AETH_TYPE(sp->syndrome) != VR_AETH_ACK ||
        (sp->op == VR_OP_READ_RESP) != (sh->opcode == VROCE_WQE_READ) ||
        !vr_op_is_read_or_atomic(sh->opcode)) {
        vr_sq_fail_head(e, qp, VROCE_WCS_BAD_RESP_ERR, 0);
    } else if (sp->op == VR_OP_READ_RESP) {
        take_read_response(e, from, qp, sp);
    } else {
        take_atomic_ack(e, qp, sp);
    }
}

void vr_comp_rx(struct vr_engine *e, struct vr_engine *from, struct vr_qp *qp,
                const struct vr_sp *sp)
{
    struct vr_req *req = &qp->req;
    struct vr_sp copy, rest;
    int32_t old;

    if (qp->state != VROCE_QPS_RTS && qp->state != VROCE_QPS_SQD) {
        return;
    }
    old = -vr_psn_diff(sp->psn, req->una);
    /* Stale, or of a packet that was never sent: ghosts, IBA 9.7.5.1.2. */
    if (old >= (int32_t)sp->npkt ||
        vr_psn_diff(vr_psn_add(sp->psn, sp->npkt), req->sent) > 0) {
        return;
    }
    if (sp->op == VR_OP_ACK) {
        rx_ack(e, qp, sp);
        return;
    }
    copy = *sp;
    copy.mtu = qp->mtu;
    if (old > 0) {
        if (sp->payload.len <= (uint64_t)old * qp->mtu) {
            return;
        }
        vr_sp_split(&copy, old, &rest);
        copy = rest;
    }
    rx_answer(e, from, qp, &copy);
}
