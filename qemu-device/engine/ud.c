/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Unreliable datagrams, QP 1 included: one packet a message, IBA 9.8.3. */
#include <string.h>

#include "vr_transport.h"

#define GRH_BYTES 40

/* Complete the WQE in e->wqe, which begins at req->next. */
static void complete(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_wqe *w = &e->wqe;
    struct vr_failure f = {
        .opcode = w->ctrl.opcode, .status = VROCE_WCS_SUCCESS,
        .index = qp->req.next, .end = qp->req.next + w->units,
        .wr_id = le64toh(w->ctrl.wr_id),
    };

    vr_sq_cqe(e, qp, &f, 0, w->ctrl.flags & VROCE_WQE_SIGNALED);
}

/* A send WQE failed: SQE, IBA 10.3.1.6; what follows is flushed. */
static void fail(struct vr_engine *e, struct vr_qp *qp,
                 const struct vr_failure *f)
{
    vr_sq_cqe(e, qp, f, 0, true);
    if (f->rule == VROCE_RULE_MEM_DMA) {
        vr_qp_error(e, qp, 0, f->rule);
    } else if (qp->state == VROCE_QPS_RTS || qp->state == VROCE_QPS_SQD) {
        vr_qp_set_state(e, qp, VROCE_QPS_SQE);
    }
}

static void fail_wqe(struct vr_engine *e, struct vr_qp *qp, uint8_t status,
                     enum vroce_rule rule)
{
    struct vr_wqe *w = &e->wqe;
    struct vr_failure f = {
        .opcode = w->ctrl.opcode, .status = status, .rule = rule,
        .index = qp->req.next, .end = qp->req.next + w->units,
        .wr_id = le64toh(w->ctrl.wr_id),
    };

    vr_misuse(e, rule, qp->qpn, NULL);
    fail(e, qp, &f);
}

/* Send what e->wqe says; its payload goes along as bytes. */
static bool send_datagram(struct vr_engine *e, struct vr_qp *qp,
                          const struct vr_route *route)
{
    struct vr_wqe *w = &e->wqe;
    const struct vroce_wqe_ud *ud = (const void *)(w->bytes + w->seg_off);
    uint32_t qkey = le32toh(ud->qkey);
    uint8_t buf[VR_MAX_MTU];
    struct vr_view src, dst = { .kind = VR_VIEW_BYTES, .e = e, .bytes = buf };
    enum vroce_rule rule;
    bool src_failed;
    struct vr_sp sp = {
        .route = *route,
        .qp_type = VROCE_QPT_UD,
        .op = VR_OP_SEND,
        .flags = VR_SP_FIRST | VR_SP_LAST,
        .mtu = vr_port_mtu(e),
        .sqpn = qp->qpn,
        .dqpn = le32toh(ud->dest_qpn) & VROCE_DB_NUMBER_MASK,
        .psn = qp->req.psn,
        .npkt = 1,
        /* The high bit asks for the QP's own key, IBA 10.2.5. */
        .qkey = qkey & 1u << 31 ? le32toh(qp->attr.qkey) : qkey,
        .imm = w->ctrl.imm,
    };

    if (w->length) {
        vr_wqe_view(e, qp, &src);
        rule = vr_copy(&dst, 0, &src, 0, w->length, &src_failed);
        if (rule) {
            fail_wqe(e, qp, VROCE_WCS_LOC_PROT_ERR, rule);
            return false;
        }
        sp.payload = (struct vr_payload) {
            .kind = VR_PAYLOAD_BYTES, .len = w->length, .bytes = buf,
        };
    }
    if (w->ctrl.opcode == VROCE_WQE_SEND_IMM) {
        sp.flags |= VR_SP_IMM;
    }
    if (w->ctrl.flags & VROCE_WQE_SOLICITED) {
        sp.flags |= VR_SP_SOLICITED;
    }
    qp->req.psn = vr_psn_add(qp->req.psn, 1);
    vr_report(e, VR_REPORT_TX, qp->qpn, vr_sp_bth_opcode(&sp, 0), sp.psn);
    vr_link_send(e, &sp);
    return true;
}

/*
 * Do what e->wqe says and complete it. False: *turn tells how the QP's turn
 * ends, since it failed or since there is no room on its way.
 */
static bool execute(struct vr_engine *e, struct vr_qp *qp, enum vr_turn *turn)
{
    struct vr_wqe *w = &e->wqe;
    const struct vroce_wqe_ud *ud = (const void *)(w->bytes + w->seg_off);
    struct vr_route route;
    bool loopback;

    *turn = VR_TURN_IDLE;
    if (w->ctrl.opcode == VROCE_WQE_NOP) {
        complete(e, qp);
        return true;
    }
    if (w->length > vr_port_mtu(e)) {
        /* Too long: completes, and nothing is sent; C10-93.1.1. */
        vr_count(e, VROCE_CNT_TX_UD_DROPPED, 1);
        complete(e, qp);
        return true;
    }
    if (!vr_route_from_av(e, &ud->av, qp->qpn,
                          le32toh(ud->dest_qpn) & VROCE_DB_NUMBER_MASK,
                          &route)) {
        fail_wqe(e, qp, VROCE_WCS_LOC_QP_OP_ERR, VROCE_RULE_GID);
        return false;
    }
    loopback = vr_gid_find(e, route.dgid, route.vlan) >= 0;
    if (!vr_tx_room(e, loopback)) {
        *turn = vr_no_room(loopback);
        return false;
    }
    if (!send_datagram(e, qp, &route)) {
        return false;
    }
    complete(e, qp);
    return true;
}

enum vr_turn vr_ud_run(struct vr_engine *e, struct vr_qp *qp, int64_t *budget)
{
    struct vr_req *req = &qp->req;
    struct vr_failure f;
    enum vr_turn turn;

    while (qp->state == VROCE_QPS_RTS && req->next != req->producer) {
        if (*budget <= 0) {
            return VR_TURN_MORE;
        }
        if (!vr_wqe_load(e, qp, req->next, &f)) {
            fail(e, qp, &f);
            break;
        }
        *budget -= VR_PACKET_COST + e->wqe.length;
        if (!execute(e, qp, &turn)) {
            return turn;
        }
    }
    if (qp->state == VROCE_QPS_SQD && !req->drained) {
        req->drained = true;
        if (qp->attr.sqd_async_notify) {
            vr_async_event(e, VROCE_EVENT_SQ_DRAINED, qp->qpn, 0);
        }
    }
    return VR_TURN_IDLE;
}

/* GRH area, then payload, into the receive WQE at hand. */
static enum vroce_rule scatter(struct vr_engine *e, struct vr_engine *from,
                               struct vr_qp *qp, const struct vr_sp *sp)
{
    struct vr_view grh, src, dst = {
        .kind = VR_VIEW_SGL, .e = e, .sgl = qp->resp.recv.sgl,
    };
    uint8_t bytes[GRH_BYTES];
    enum vroce_rule rule;
    bool src_failed;

    vr_frame_grh(sp, bytes);
    grh.kind = VR_VIEW_BYTES;
    grh.e = e;
    grh.off = 0;
    grh.bytes = bytes;
    rule = vr_copy(&dst, 0, &grh, 0, GRH_BYTES, &src_failed);
    if (rule || sp->payload.len == 0) {
        return rule;
    }
    rule = vr_payload_view(from, &sp->payload, &src);
    return rule ? rule : vr_copy(&dst, GRH_BYTES, &src, 0, sp->payload.len,
                                 &src_failed);
}

static void complete_receive(struct vr_engine *e, struct vr_qp *qp,
                             const struct vr_sp *sp)
{
    uint16_t flags = VROCE_CQE_GRH;
    struct vroce_cqe cqe;

    memset(&cqe, 0, sizeof(cqe));
    cqe.src_qpn = htole32(sp->sqpn);
    cqe.byte_len = htole32(sp->payload.len + GRH_BYTES);
    cqe.opcode = VROCE_WC_RECV;
    if (sp->flags & VR_SP_IMM) {
        flags |= VROCE_CQE_IMM;
        cqe.imm = sp->imm;
    }
    if (sp->flags & VR_SP_SOLICITED) {
        flags |= VROCE_CQE_SOLICITED;
    }
    if (sp->route.vlan != VROCE_NO_VLAN) {
        flags |= VROCE_CQE_VLAN;
        cqe.vlan = htole16(sp->route.vlan);
    }
    memcpy(cqe.smac, sp->route.smac, sizeof(cqe.smac));
    cqe.network = vr_gid_is_ipv4(sp->route.dgid) ? 4 : 6;
    cqe.flags = htole16(flags);
    vr_recv_cqe(e, qp, &qp->resp.recv, &cqe, sp->flags & VR_SP_SOLICITED);
}

/* The receive queue or WQE is at fault: the QP stops, IBA 9.9.3 class A, B. */
static void fail_receive(struct vr_engine *e, struct vr_qp *qp, uint8_t status,
                         enum vroce_rule rule)
{
    struct vroce_cqe cqe;

    if (qp->resp.recv.valid) {
        memset(&cqe, 0, sizeof(cqe));
        cqe.status = status;
        cqe.rule = htole16(rule);
        vr_recv_cqe(e, qp, &qp->resp.recv, &cqe, true);
        vr_qp_error(e, qp, 0, rule);
    } else {
        vr_qp_error(e, qp, VROCE_EVENT_QP_FATAL, rule);
    }
}

void vr_ud_rx(struct vr_engine *e, struct vr_engine *from, struct vr_qp *qp,
              const struct vr_sp *sp)
{
    struct vr_recv *recv = &qp->resp.recv;
    enum vroce_rule rule;

    if (!vr_qp_can_receive(qp) || sp->op != VR_OP_SEND ||
        sp->payload.len > VR_MAX_MTU) {
        return;
    }
    if (sp->qkey != le32toh(qp->attr.qkey)) {
        vr_count(e, VROCE_CNT_RX_BAD_KEY, 1);
        return;
    }
    rule = recv->valid ? VROCE_RULE_NONE : vr_rq_take(e, qp, recv);
    if (unlikely(rule)) {
        fail_receive(e, qp, VROCE_WCS_LOC_QP_OP_ERR, rule);
        return;
    }
    if (unlikely(!recv->valid)) {
        qp->marks.refused = e->now;
        vr_count(e, VROCE_CNT_RX_UD_NO_BUFFER, 1);
        return;
    }
    /*
     * Dropped in silence, and the WQE serves the next datagram: nobody's
     * packet may stop a QP that anybody can send to; IBA 9.9.3, class D.
     */
    if (sp->payload.len + GRH_BYTES > vr_sgl_length(&recv->sgl)) {
        vr_count(e, VROCE_CNT_RX_UD_NO_BUFFER, 1);
        return;
    }
    rule = scatter(e, from, qp, sp);
    if (unlikely(rule)) {
        vr_misuse(e, rule, qp->qpn, NULL);
        fail_receive(e, qp, VROCE_WCS_LOC_PROT_ERR, rule);
        return;
    }
    complete_receive(e, qp, sp);
}
