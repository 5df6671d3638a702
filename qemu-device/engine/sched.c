/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The scheduler: QPs with something to do take turns, round-robin by bytes, so
 * that a bulk QP does not starve a ping-pong. A QP that waits for the wire
 * waits in a list of its own. Lists are doubly linked by QP number; work on
 * them never depends on how many QPs there are.
 */
#include "vr_transport.h"

void vr_sched_append(struct vr_engine *e, enum vr_sched_list list,
                     struct vr_qp *qp)
{
    qp->sched_list = list;
    qp->sched_next = 0;
    qp->sched_prev = e->sched[list].tail;
    if (qp->sched_prev) {
        vr_qp_get(e, qp->sched_prev)->sched_next = qp->qpn;
    } else {
        e->sched[list].head = qp->qpn;
    }
    e->sched[list].tail = qp->qpn;
}

void vr_sched_remove(struct vr_engine *e, struct vr_qp *qp)
{
    enum vr_sched_list list = qp->sched_list;

    if (list == VR_SCHED_NONE) {
        return;
    }
    if (qp->sched_prev) {
        vr_qp_get(e, qp->sched_prev)->sched_next = qp->sched_next;
    } else {
        e->sched[list].head = qp->sched_next;
    }
    if (qp->sched_next) {
        vr_qp_get(e, qp->sched_next)->sched_prev = qp->sched_prev;
    } else {
        e->sched[list].tail = qp->sched_prev;
    }
    qp->sched_list = VR_SCHED_NONE;
}

void vr_sched_add(struct vr_engine *e, struct vr_qp *qp)
{
    if (qp->sched_list == VR_SCHED_NONE) {
        vr_sched_append(e, VR_SCHED_RUN, qp);
    }
}

/* Whose turn is it? Who waited for the wire goes first once it has room. */
static struct vr_qp *next_qp(struct vr_engine *e)
{
    uint32_t blocked = e->sched[VR_SCHED_BLOCKED].head;

    return vr_qp_get(e, blocked && vr_link_ready(e) ? blocked :
                     e->sched[VR_SCHED_RUN].head);
}

static enum vr_turn eth_turn(struct vr_engine *e, struct vr_qp *qp,
                             int64_t *budget)
{
    uint32_t before = qp->req.next;

    if (qp->state != VROCE_QPS_RTS) {
        return VR_TURN_IDLE;
    }
    *budget -= vr_eth_run(e, qp, *budget) +
               (qp->req.next - before) * VR_PACKET_COST;
    if (qp->req.next == qp->req.producer || qp->state != VROCE_QPS_RTS) {
        return VR_TURN_IDLE;
    }
    return vr_link_ready(e) ? VR_TURN_MORE : VR_TURN_BLOCKED;
}

static enum vr_turn turn(struct vr_engine *e, struct vr_qp *qp, int64_t *budget)
{
    enum vr_turn reply, rest;

    if (qp->state == VROCE_QPS_RESET) {
        return VR_TURN_IDLE;
    }
    /* The GID table may have changed since the last turn. */
    qp->loopback = qp->type <= VROCE_QPT_UC &&
                   vr_gid_find(e, qp->route.dgid, qp->route.vlan) >= 0;
    /* A NAK goes out even when the request has put the QP into ERR. */
    reply = vr_reply_run(e, qp, budget);
    if (qp->state == VROCE_QPS_ERR || qp->state == VROCE_QPS_SQE) {
        rest = vr_qp_flush(e, qp, budget);
        return rest == VR_TURN_IDLE ? reply : rest;
    }
    if (reply != VR_TURN_IDLE) {
        return reply;
    }
    return vr_qp_is_ud(qp) ? vr_ud_run(e, qp, budget) :
           qp->type == VROCE_QPT_ETH ? eth_turn(e, qp, budget) :
           vr_req_run(e, qp, budget);
}

bool vr_sched_run(struct vr_engine *e, uint32_t budget)
{
    int64_t left = budget;

    if (!e->enabled) {
        return false;
    }
    e->wqe.valid = false;
    while (left > 0 && !e->fatal) {
        struct vr_qp *qp = next_qp(e);
        int64_t quantum = VR_SP_BYTES;

        if (qp) {
            enum vr_turn t;

            vr_sched_remove(e, qp);
            t = turn(e, qp, &quantum);
            /* Even a turn in vain costs something, or this could last. */
            left -= VR_SP_BYTES - quantum + VR_PACKET_COST;
            if (t != VR_TURN_IDLE && qp->sched_list == VR_SCHED_NONE) {
                vr_sched_append(e, t == VR_TURN_MORE ? VR_SCHED_RUN :
                                VR_SCHED_BLOCKED, qp);
            }
        } else if (vr_loop_empty(e)) {
            break;
        }
        quantum = VR_SP_BYTES;
        vr_loop_run(e, &quantum);
        left -= VR_SP_BYTES - quantum;
    }
    e->wqe.valid = false;
    return !e->fatal && (next_qp(e) || !vr_loop_empty(e));
}
