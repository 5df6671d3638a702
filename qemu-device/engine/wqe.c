/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Send WQEs: fetched by one copy, checked in that copy, and found again for a
 * retransmission by their number, with a hash against changes.
 */
#include <string.h>

#include "vr_transport.h"

#define RC  (1u << VROCE_QPT_RC)
#define UC  (1u << VROCE_QPT_UC)
#define UD  (1u << VROCE_QPT_UD | 1u << VROCE_QPT_GSI)
#define ETH (1u << VROCE_QPT_ETH)

#define TAKES_INLINE (1u << 0)
#define LOCAL        (1u << 1)  /* has no data */
#define ATOMIC       (1u << 2)  /* 8 bytes of data */

/* What each opcode asks for. */
static const struct {
    uint8_t types;              /* of QPs, a bit each */
    uint8_t seg;                /* size of its segment, bytes */
    uint8_t flags;
} wqe_kinds[] = {
    [VROCE_WQE_NOP]       = { RC | UC | UD | ETH, 0, LOCAL },
    [VROCE_WQE_SEND]      = { RC | UC | UD, 0, TAKES_INLINE },
    [VROCE_WQE_SEND_IMM]  = { RC | UC | UD, 0, TAKES_INLINE },
    [VROCE_WQE_SEND_INV]  = { RC, 0, TAKES_INLINE },
    [VROCE_WQE_WRITE]     = { RC | UC, sizeof(struct vroce_wqe_rdma),
                              TAKES_INLINE },
    [VROCE_WQE_WRITE_IMM] = { RC | UC, sizeof(struct vroce_wqe_rdma),
                              TAKES_INLINE },
    [VROCE_WQE_READ]      = { RC, sizeof(struct vroce_wqe_rdma), 0 },
    [VROCE_WQE_CMP_SWAP]  = { RC, sizeof(struct vroce_wqe_atomic), ATOMIC },
    [VROCE_WQE_FETCH_ADD] = { RC, sizeof(struct vroce_wqe_atomic), ATOMIC },
    [VROCE_WQE_FAST_REG]  = { RC | UC, sizeof(struct vroce_wqe_fast_reg),
                              LOCAL },
    [VROCE_WQE_LOCAL_INV] = { RC | UC, 0, LOCAL },
    [VROCE_WQE_ETH]       = { ETH, sizeof(struct vroce_wqe_eth), TAKES_INLINE },
};

static uint64_t sq_offset(const struct vr_qp *qp, uint32_t index)
{
    uint32_t mask = (1u << qp->sq_log_units) - 1;

    return qp->sq_off + (uint64_t)(index & mask) * VROCE_SQ_UNIT;
}

/* Copy n units from the ring, which may wrap in between. */
static int read_units(struct vr_engine *e, struct vr_qp *qp, uint32_t index,
                      void *buf, uint32_t n)
{
    uint32_t size = 1u << qp->sq_log_units;
    uint32_t run = size - (index & (size - 1));

    if (run > n) {
        run = n;
    }
    if (vr_pages_rw(e, &qp->pages, sq_offset(qp, index), buf,
                    run * VROCE_SQ_UNIT, false)) {
        return -1;
    }
    if (run == n) {
        return 0;
    }
    return vr_pages_rw(e, &qp->pages, qp->sq_off,
                       (uint8_t *)buf + run * VROCE_SQ_UNIT,
                       (n - run) * VROCE_SQ_UNIT, false);
}

enum vroce_rule vr_sq_fetch(struct vr_engine *e, struct vr_qp *qp,
                            uint32_t index, void *buf)
{
    struct vroce_wqe_ctrl *ctrl = buf;

    if (unlikely(read_units(e, qp, index, buf, 1))) {
        return VROCE_RULE_RING_DMA;
    }
    if (unlikely(le16toh(ctrl->index) != (uint16_t)index)) {
        return VROCE_RULE_WQE_INDEX;
    }
    if (unlikely(ctrl->units == 0 || ctrl->units > VROCE_MAX_WQE_UNITS ||
                 ctrl->units > qp->req.producer - index ||
                 ctrl->num_sge > e->cfg.max_sge)) {
        return VROCE_RULE_WQE_SIZE;
    }
    if (ctrl->flags & VROCE_WQE_INLINE ? ctrl->num_sge : ctrl->inline_len) {
        return VROCE_RULE_WQE_SIZE;
    }
    if (ctrl->units > 1 &&
        unlikely(read_units(e, qp, index + 1,
                            (uint8_t *)buf + VROCE_SQ_UNIT,
                            ctrl->units - 1))) {
        return VROCE_RULE_RING_DMA;
    }
    return VROCE_RULE_NONE;
}

/* Not cryptographic: it is to catch programs that reuse a slot too early. */
static uint32_t hash_words(const uint64_t *w, uint32_t n)
{
    uint64_t h = n;

    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ w[i]) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 29;
    }
    return h ^ h >> 32;
}

/* Add up the lengths of the scatter list. */
static uint64_t sum_sges(const struct vr_wqe *w)
{
    const struct vroce_sge *sge = (const void *)(w->bytes + w->data_off);
    uint64_t sum = 0;

    for (uint32_t i = 0; i < w->ctrl.num_sge; i++) {
        sum += le32toh(sge[i].length);
    }
    return sum;
}

/* The checks that know the QP type; fills in the places of w. */
static enum vroce_rule check_wqe(const struct vr_qp *qp, struct vr_wqe *w)
{
    const struct vroce_wqe_ctrl *c = &w->ctrl;
    uint32_t data, kind_flags;
    uint64_t length;

    if (c->opcode >= sizeof(wqe_kinds) / sizeof(wqe_kinds[0]) ||
        !(wqe_kinds[c->opcode].types & 1u << qp->type)) {
        return VROCE_RULE_WQE_OPCODE;
    }
    /* Its page list holds bus addresses: for the kernel only, IBA 10.6.4.3. */
    if (c->opcode == VROCE_WQE_FAST_REG && qp->context) {
        return VROCE_RULE_PRIVILEGE;
    }
    kind_flags = wqe_kinds[c->opcode].flags;
    if ((c->flags & VROCE_WQE_INLINE && !(kind_flags & TAKES_INLINE)) ||
        (c->num_sge && kind_flags & LOCAL)) {
        return VROCE_RULE_WQE_SIZE;
    }

    w->seg_off = sizeof(*c);
    w->data_off = w->seg_off + wqe_kinds[c->opcode].seg;
    if (vr_qp_is_ud(qp) && !(kind_flags & LOCAL)) {
        w->data_off += sizeof(struct vroce_wqe_ud);
    }
    data = c->flags & VROCE_WQE_INLINE ? le16toh(c->inline_len) :
           c->num_sge * (uint32_t)sizeof(struct vroce_sge);
    if (w->data_off + data > c->units * (uint32_t)VROCE_SQ_UNIT) {
        return VROCE_RULE_WQE_SIZE;
    }

    length = c->flags & VROCE_WQE_INLINE ? data : sum_sges(w);
    if (length > VR_MAX_MSG_SIZE || (kind_flags & ATOMIC && length != 8)) {
        return VROCE_RULE_WQE_LENGTH;
    }
    w->length = length;
    return VROCE_RULE_NONE;
}

static enum vroce_rule load(struct vr_engine *e, struct vr_qp *qp,
                            uint32_t index)
{
    struct vr_wqe *w = &e->wqe;
    enum vroce_rule rule;

    if (w->valid && w->qpn == qp->qpn && w->index == index) {
        return VROCE_RULE_NONE;
    }
    w->valid = false;
    rule = vr_sq_fetch(e, qp, index, w->bytes);
    if (likely(!rule)) {
        rule = check_wqe(qp, w);
    }
    if (unlikely(rule)) {
        return rule;
    }
    w->qpn = qp->qpn;
    w->index = index;
    w->units = w->ctrl.units;
    w->hash = hash_words(w->words, w->units * (VROCE_SQ_UNIT / 8));
    w->valid = true;
    return VROCE_RULE_NONE;
}

bool vr_wqe_is(const struct vr_wqe *w, const struct vr_shadow *sh)
{
    return w->hash == sh->hash && w->length == sh->length &&
           w->units == sh->units && w->ctrl.opcode == sh->opcode;
}

uint32_t vr_wqe_psns(uint8_t opcode, uint32_t length, uint32_t mtu)
{
    switch (opcode) {
    case VROCE_WQE_NOP:
    case VROCE_WQE_FAST_REG:
    case VROCE_WQE_LOCAL_INV:
        return 0;
    case VROCE_WQE_CMP_SWAP:
    case VROCE_WQE_FETCH_ADD:
        return 1;
    default:
        return vr_num_packets(length, mtu);
    }
}

uint32_t vr_wqe_end(struct vr_engine *e, struct vr_qp *qp, uint32_t index,
                    uint64_t *wr_id, uint8_t *opcode)
{
    struct vroce_wqe_ctrl c;
    uint32_t left = qp->req.producer - index;

    if (vr_pages_rw(e, &qp->pages, sq_offset(qp, index), &c, sizeof(c),
                    false)) {
        memset(&c, 0, sizeof(c));
    }
    *wr_id = le64toh(c.wr_id);
    *opcode = c.opcode;
    /* Where one WQE is nonsense, nobody knows where the next begins. */
    if (le16toh(c.index) != (uint16_t)index || c.units == 0 ||
        c.units > VROCE_MAX_WQE_UNITS || c.units > left) {
        return qp->req.producer;
    }
    return index + c.units;
}

bool vr_wqe_load(struct vr_engine *e, struct vr_qp *qp, uint32_t index,
                 struct vr_failure *f)
{
    enum vroce_rule rule = load(e, qp, index);

    if (likely(!rule)) {
        return true;
    }
    vr_misuse(e, rule, qp->qpn, NULL);
    *f = (struct vr_failure) {
        .index = index,
        .rule = rule,
        .status = rule == VROCE_RULE_WQE_LENGTH ? VROCE_WCS_LOC_LEN_ERR :
                  VROCE_WCS_LOC_QP_OP_ERR,
    };
    f->end = vr_wqe_end(e, qp, index, &f->wr_id, &f->opcode);
    return false;
}

void vr_wqe_view(struct vr_engine *e, const struct vr_qp *qp,
                 struct vr_view *view)
{
    struct vr_wqe *w = &e->wqe;
    const struct vroce_sge *sge = (const void *)(w->bytes + w->data_off);

    view->e = e;
    view->off = 0;
    if (w->ctrl.flags & VROCE_WQE_INLINE) {
        view->kind = VR_VIEW_BYTES;
        view->bytes = w->bytes + w->data_off;
        return;
    }
    view->kind = VR_VIEW_SGL;
    view->sgl.pdn = qp->pdn;
    view->sgl.num = w->ctrl.num_sge;
    for (uint32_t i = 0; i < w->ctrl.num_sge; i++) {
        view->sgl.sge[i].addr = le64toh(sge[i].addr);
        view->sgl.sge[i].length = le32toh(sge[i].length);
        view->sgl.sge[i].lkey = le32toh(sge[i].lkey);
    }
}

/* Is the WQE at this index under way? */
static bool wqe_is_live(const struct vr_qp *qp, uint32_t index)
{
    const struct vr_req *req = &qp->req;

    return qp->has_sq &&
           (qp->state == VROCE_QPS_RTS || qp->state == VROCE_QPS_SQD) &&
           index - req->consumer < req->next - req->consumer &&
           vr_shadow_at(qp, index)->index == index;
}

static enum vroce_rule view_wqe(struct vr_engine *e, const struct vr_payload *p,
                                struct vr_view *view)
{
    struct vr_qp *qp = vr_qp_get(e, p->wqe.qpn);
    uint32_t index = p->wqe.index;
    enum vroce_rule rule;

    if (unlikely(!qp || !wqe_is_live(qp, index))) {
        return VROCE_RULE_NO_OBJECT;
    }
    rule = load(e, qp, index);
    if (unlikely(rule == VROCE_RULE_RING_DMA)) {
        return rule;
    }
    if (unlikely(rule || !vr_wqe_is(&e->wqe, vr_shadow_at(qp, index)))) {
        return VROCE_RULE_WQE_CHANGED;
    }
    /* A name that was loaded may say anything; inline data ends there. */
    if (unlikely(p->off + p->len > e->wqe.length)) {
        return VROCE_RULE_WQE_LENGTH;
    }
    vr_wqe_view(e, qp, view);
    return VROCE_RULE_NONE;
}

enum vroce_rule vr_payload_view(struct vr_engine *owner,
                                const struct vr_payload *p,
                                struct vr_view *view)
{
    enum vroce_rule rule = VROCE_RULE_NONE;
    struct vr_qp *qp;

    switch (p->kind) {
    case VR_PAYLOAD_WQE:
        rule = view_wqe(owner, p, view);
        break;
    case VR_PAYLOAD_MR:
        qp = vr_qp_get(owner, p->mr.qpn);
        if (!qp || qp->state < VROCE_QPS_RTR) {
            return VROCE_RULE_NO_OBJECT;
        }
        view->kind = VR_VIEW_MR;
        view->e = owner;
        view->mr.va = p->mr.va;
        view->mr.key = p->mr.key;
        view->mr.pdn = qp->pdn;
        view->mr.access = VROCE_ACCESS_REMOTE_READ;
        break;
    default:
        view->kind = VR_VIEW_BYTES;
        view->e = owner;
        view->bytes = (uint8_t *)p->bytes;
        break;
    }
    view->off = p->off;
    return rule;
}

static void answer_failed(struct vr_engine *e, struct vr_qp *qp,
                          const struct vr_payload *p, enum vroce_rule rule)
{
    struct vr_resp *resp = &qp->resp;

    /* The answers before this one are out, those behind it are not to come. */
    for (uint32_t i = 0; i < resp->replay_num; i++) {
        resp->replay[i].active = false;
    }
    resp->replay_active = 0;
    vr_misuse(e, rule, qp->qpn, NULL);
    vr_resp_fail(e, qp, rule == VROCE_RULE_MEM_DMA ? VR_SYN_NAK_OP :
                 VR_SYN_NAK_ACCESS, VROCE_WCS_LOC_ACCESS_ERR, rule);
    resp->ack_psn = vr_psn_add(p->mr.psn, p->off / qp->mtu);
}

void vr_payload_failed(struct vr_engine *owner, const struct vr_payload *p,
                       enum vroce_rule rule)
{
    struct vr_qp *qp;
    struct vr_failure f;

    if (p->kind == VR_PAYLOAD_MR) {
        qp = vr_qp_get(owner, p->mr.qpn);
        if (qp && vr_qp_can_receive(qp)) {
            answer_failed(owner, qp, p, rule);
        }
        return;
    }
    qp = p->kind == VR_PAYLOAD_WQE ? vr_qp_get(owner, p->wqe.qpn) : NULL;
    if (!qp || !wqe_is_live(qp, p->wqe.index) ||
        (qp->req.failure.set && qp->req.failure.index == p->wqe.index)) {
        return;
    }
    vr_misuse(owner, rule, qp->qpn, NULL);
    f = (struct vr_failure) {
        .index = p->wqe.index,
        .end = p->wqe.index + vr_shadow_at(qp, p->wqe.index)->units,
        .opcode = vr_shadow_at(qp, p->wqe.index)->opcode,
        .wr_id = vr_shadow_at(qp, p->wqe.index)->wr_id,
        .rule = rule,
        .status = rule == VROCE_RULE_WQE_CHANGED ||
                  rule == VROCE_RULE_RING_DMA ? VROCE_WCS_LOC_QP_OP_ERR :
                  VROCE_WCS_LOC_PROT_ERR,
    };
    vr_req_fail(owner, qp, &f);
}
