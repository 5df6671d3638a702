/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Queue pairs: life, states, doorbells, flushing and inspection. */
#include <stdlib.h>
#include <string.h>

#include "vr_transport.h"

struct vr_qp *vr_qp_get(struct vr_engine *e, uint32_t qpn)
{
    return vr_table_get(&e->qps, qpn);
}

/* ------------------------------------------------------------- states */

void vr_qp_set_state(struct vr_engine *e, struct vr_qp *qp, uint8_t state)
{
    uint8_t old = qp->state;

    qp->state = state;
    if (state != old) {
        qp->marks.state = e->now;
        vr_report(e, VR_REPORT_QP_STATE, qp->qpn, old, state);
    }
    if (state >= VROCE_QPS_SQE || state == VROCE_QPS_RESET) {
        vr_timer_cancel(e, &qp->req.retry_timer);
        vr_timer_cancel(e, &qp->req.rnr_timer);
        qp->req.failure.set = false;
        qp->req.waiting_rnr = false;
        if (state != VROCE_QPS_SQE) {
            vr_hold_clear(e, qp);
        }
        /* It may wait for the wire, which flushing does not need. */
        vr_sched_remove(e, qp);
        if (state != VROCE_QPS_RESET) {
            vr_sched_add(e, qp);
        }
    }
}

void vr_qp_note_error(struct vr_engine *e, struct vr_qp *qp, uint8_t status,
                      uint64_t wr_id, bool receive)
{
    struct vr_qp_marks *marks = &qp->marks;

    if (!marks->status && status != VROCE_WCS_WR_FLUSH_ERR) {
        marks->failed = e->now;
        marks->status = status;
        marks->wr_id = wr_id;
        marks->receive = receive;
    }
}

void vr_qp_error(struct vr_engine *e, struct vr_qp *qp, enum vroce_event event,
                 enum vroce_rule rule)
{
    if (rule) {
        qp->last_rule = rule;
    }
    if (rule == VROCE_RULE_MEM_DMA && !event) {
        /* No fault of who posted the work: the driver is to hear of it. */
        event = VROCE_EVENT_QP_FATAL;
    }
    if (qp->state == VROCE_QPS_ERR || qp->state == VROCE_QPS_RESET) {
        return;
    }
    vr_qp_set_state(e, qp, VROCE_QPS_ERR);
    if (event) {
        qp->marks.event = event;
        vr_async_event(e, event, qp->qpn, rule);
    }
    qp->resp.flush_srq = qp->srqn != VROCE_NONE;
}

/* Complete one send WQE with a flush error; its number may be nonsense. */
static void flush_send(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_req *req = &qp->req;
    struct vr_failure f = {
        .index = req->consumer, .status = VROCE_WCS_WR_FLUSH_ERR,
        .rule = qp->last_rule,
    };

    if (req->consumer != req->next) {
        const struct vr_shadow *sh = vr_shadow_at(qp, req->consumer);

        f.end = sh->index + sh->units;
        f.wr_id = sh->wr_id;
        f.opcode = sh->opcode;
    } else {
        f.end = vr_wqe_end(e, qp, req->consumer, &f.wr_id, &f.opcode);
    }
    vr_sq_cqe(e, qp, &f, 0, true);
}

/* Flush the send queue up to `end`; false: the budget ended before. */
static bool flush_sends(struct vr_engine *e, struct vr_qp *qp, uint32_t end,
                        int64_t *budget)
{
    while ((int32_t)(end - qp->req.consumer) > 0) {
        if (*budget <= 0) {
            return false;
        }
        flush_send(e, qp);
        *budget -= VR_PACKET_COST;
    }
    return true;
}

enum vr_turn vr_qp_flush(struct vr_engine *e, struct vr_qp *qp, int64_t *budget)
{
    struct vr_req *req = &qp->req;

    if (qp->has_sq && !flush_sends(e, qp, req->producer, budget)) {
        return VR_TURN_MORE;
    }
    if (qp->state != VROCE_QPS_ERR) {
        /* SQE: nothing is in flight, and the PSNs go on. */
        req->una = req->sent = req->psn;
        return VR_TURN_IDLE;
    }
    while (vr_rq_flush(e, qp)) {
        *budget -= VR_PACKET_COST;
        if (*budget <= 0) {
            return VR_TURN_MORE;
        }
    }
    if (qp->resp.flush_srq) {
        qp->resp.flush_srq = false;
        vr_async_event(e, VROCE_EVENT_LAST_WQE_REACHED, qp->qpn, 0);
    }
    return VR_TURN_IDLE;
}

bool vr_qp_leave_sqe(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_req *req = &qp->req;
    int64_t budget = VR_SP_BYTES;

    if (!e->cmd_flushes) {
        e->cmd_flushes = true;
        e->cmd_flush_end = req->producer;
    }
    if (!flush_sends(e, qp, e->cmd_flush_end, &budget)) {
        return false;
    }
    req->una = req->sent = req->psn;
    return true;
}

void vr_qp_clear(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_req *req = &qp->req;
    struct vr_shadow *shadows = req->shadows;

    vr_sched_remove(e, qp);
    vr_edge_forget(e, qp->qpn);
    vr_loop_forget(e, qp->qpn);
    vr_timer_remove(e, &req->retry_timer);
    vr_timer_remove(e, &req->rnr_timer);
    vr_hold_clear(e, qp);
    memset(req, 0, sizeof(*req));
    memset(&qp->resp, 0, sizeof(qp->resp));
    memset(&qp->attr, 0, sizeof(qp->attr));
    memset(&qp->route, 0, sizeof(qp->route));
    memset(&qp->marks, 0, sizeof(qp->marks));
    qp->marks.state = e->now;
    req->shadows = shadows;
    vr_timer_init(&req->retry_timer, VR_TIMER_RETRY, qp->qpn);
    vr_timer_init(&req->rnr_timer, VR_TIMER_RNR, qp->qpn);
    qp->rq.consumer = qp->rq.producer_seen = 0;
    qp->loopback = false;
    qp->last_rule = 0;
    qp->mtu = vr_port_mtu(e);
    e->wqe.valid = false;
}

/* ---------------------------------------------------------- doorbells */

/* The QP that page may ring, or NULL. */
static struct vr_qp *doorbell_qp(struct vr_engine *e, uint32_t page,
                                 uint32_t qpn)
{
    struct vr_qp *qp = vr_qp_get(e, qpn);

    if (unlikely(!qp)) {
        vr_misuse(e, VROCE_RULE_DB_NUMBER, VROCE_NONE, NULL);
        return NULL;
    }
    if (unlikely(qp->context != page)) {
        /* Not noted at the QP, whose owner has not done it. */
        vr_misuse_of(e, VROCE_RULE_DB_PAGE, "QP", qpn,
                     vr_rule_text(VROCE_RULE_DB_PAGE));
        return NULL;
    }
    return qp;
}

void vr_sq_doorbell(struct vr_engine *e, uint32_t page, uint32_t qpn,
                    uint32_t value)
{
    struct vr_qp *qp = doorbell_qp(e, page, qpn);
    struct vr_req *req;

    if (unlikely(!qp)) {
        return;
    }
    req = &qp->req;
    if (unlikely(qp->state < VROCE_QPS_RTS)) {
        vr_misuse(e, VROCE_RULE_DB_STATE, qpn, NULL);
        return;
    }
    if (unlikely(!qp->has_sq ||
                 value - req->consumer > 1u << qp->sq_log_units ||
                 value - req->consumer < req->producer - req->consumer)) {
        vr_misuse(e, VROCE_RULE_DB_INDEX, qpn, NULL);
        return;
    }
    req->producer = value;
    req->last_post = e->now;
    vr_sched_add(e, qp);
}

void vr_rq_doorbell(struct vr_engine *e, uint32_t page, uint32_t qpn,
                    uint32_t value)
{
    struct vr_qp *qp = doorbell_qp(e, page, qpn);

    /* The record says the rest; value is for those who read traces. */
    if (qp && qp->state == VROCE_QPS_ERR) {
        vr_sched_add(e, qp);
    }
}

/* ----------------------------------------------------------- commands */

/* Are type, context and sizes possible? */
static int check_create(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_create_qp_in *in = c->in;
    bool privileged = in->type == VROCE_QPT_GSI || in->type == VROCE_QPT_ETH;
    uint64_t sq_size = 0, rq_size = 0;
    uint32_t rec_off;

    if (in->type > VROCE_QPT_ETH) {
        return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    }
    if (in->reserved) {
        return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_RESERVED);
    }
    if (privileged && in->context) {
        return vr_refuse(c, VROCE_ERR_PERMISSION, VROCE_RULE_PRIVILEGE);
    }
    if (in->sq_log_units != VROCE_NO_QUEUE) {
        if (in->sq_log_units > VROCE_MAX_SQ_LOG_UNITS) {
            return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
        }
        sq_size = (uint64_t)VROCE_SQ_UNIT << in->sq_log_units;
    }
    if (in->rq_log_entries != VROCE_NO_QUEUE) {
        if (in->rq_log_entries > VROCE_MAX_RQ_LOG_ENTRIES ||
            in->rq_log_stride < 5 || in->rq_log_stride > 9 ||
            le32toh(in->srqn) != VROCE_NONE) {
            return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
        }
        rq_size = 1ull << (in->rq_log_entries + in->rq_log_stride);
    }
    rec_off = rq_size ? le32toh(in->rec_off) : VR_NO_RECORD;
    if ((sq_size && !vr_ring_fits(&in->buf, le32toh(in->sq_off), sq_size,
                                  rec_off)) ||
        (rq_size && !vr_ring_fits(&in->buf, le32toh(in->rq_off), rq_size,
                                  rec_off))) {
        return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    }
    if (sq_size && rq_size &&
        le32toh(in->sq_off) < le32toh(in->rq_off) + rq_size &&
        le32toh(in->rq_off) < le32toh(in->sq_off) + sq_size) {
        /* One ring inside the other: each would change the other's WQEs. */
        return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    }
    return VROCE_OK;
}

/* Do the objects exist that the QP is to use? */
static int check_uses(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_create_qp_in *in = c->in;
    uint32_t srqn = le32toh(in->srqn);

    if (!vr_context_get(e, le32toh(in->context)) ||
        !vr_pd_get(e, le32toh(in->pdn)) ||
        !vr_cq_get(e, le32toh(in->send_cqn)) ||
        !vr_cq_get(e, le32toh(in->recv_cqn)) ||
        (srqn != VROCE_NONE && !vr_srq_get(e, srqn))) {
        return vr_refuse(c, VROCE_ERR_NUMBER, VROCE_RULE_NO_OBJECT);
    }
    if (srqn == VROCE_NONE) {
        return VROCE_OK;
    }
    if (in->type != VROCE_QPT_RC && in->type != VROCE_QPT_UD) {
        return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    }
    /* Receives of an SRQ use its own PD: see vr_pd_hold(). */
    if (in->context && vr_pd_get(e, vr_srq_get(e, srqn)->pdn)->dma) {
        return vr_refuse(c, VROCE_ERR_PERMISSION, VROCE_RULE_PRIVILEGE);
    }
    return VROCE_OK;
}

static struct vr_qp *new_qp(const struct vroce_create_qp_in *in)
{
    struct vr_qp *qp = calloc(1, sizeof(*qp));

    if (!qp) {
        return NULL;
    }
    qp->type = in->type;
    qp->state = VROCE_QPS_RESET;
    qp->context = le32toh(in->context);
    qp->pdn = le32toh(in->pdn);
    qp->send_cqn = le32toh(in->send_cqn);
    qp->recv_cqn = le32toh(in->recv_cqn);
    qp->srqn = le32toh(in->srqn);
    qp->has_sq = in->sq_log_units != VROCE_NO_QUEUE;
    qp->has_rq = in->rq_log_entries != VROCE_NO_QUEUE;
    if (qp->has_sq) {
        qp->sq_off = le32toh(in->sq_off);
        qp->sq_log_units = in->sq_log_units;
        qp->req.shadows = calloc(vr_num_shadows(qp),
                                 sizeof(*qp->req.shadows));
        if (!qp->req.shadows) {
            free(qp);
            return NULL;
        }
    }
    if (qp->has_rq) {
        qp->rq.off = le32toh(in->rq_off);
        qp->rq.rec_off = le32toh(in->rec_off);
        qp->rq.log_entries = in->rq_log_entries;
        qp->rq.log_stride = in->rq_log_stride;
    }
    qp->rq.ring = &qp->pages;
    return qp;
}

/* Give qp its number: 1 for the GSI, else any. */
static bool number_qp(struct vr_engine *e, struct vr_qp *qp)
{
    if (qp->type == VROCE_QPT_GSI) {
        qp->qpn = 1;
        return vr_table_put(&e->qps, 1, qp);
    }
    qp->qpn = vr_table_alloc(&e->qps, qp);
    return qp->qpn != VROCE_NONE;
}

void vr_qp_count_users(struct vr_engine *e, const struct vr_qp *qp, int n)
{
    vr_context_get(e, qp->context)->users += n;
    vr_cq_get(e, qp->send_cqn)->users += n;
    vr_cq_get(e, qp->recv_cqn)->users += n;
    if (qp->srqn != VROCE_NONE) {
        struct vr_srq *srq = vr_srq_get(e, qp->srqn);

        srq->users += n;
        if (qp->context) {
            /* Its receives use the SRQ's PD: see vr_pd_hold_mr(). */
            vr_pd_get(e, srq->pdn)->user_users += n;
        }
    }
}

int vr_cmd_create_qp(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_create_qp_in *in = c->in;
    struct vroce_number *out = c->out;
    struct vr_qp *qp;
    int status;

    status = check_create(e, c);
    if (!status) {
        status = check_uses(e, c);
    }
    if (!status && (in->sq_log_units != VROCE_NO_QUEUE ||
                    in->rq_log_entries != VROCE_NO_QUEUE)) {
        status = vr_cmd_pages(e, c, &in->buf, false);
    }
    if (status) {
        return status;
    }
    qp = new_qp(in);
    if (!qp) {
        return vr_refuse(c, VROCE_ERR_NO_RESOURCES, 0);
    }
    status = vr_pd_hold(e, qp->pdn, qp->context, &c->rule);
    if (!status && !number_qp(e, qp)) {
        vr_pd_release(e, qp->pdn, qp->context);
        status = qp->type == VROCE_QPT_GSI ?
                 vr_refuse(c, VROCE_ERR_BUSY, VROCE_RULE_IN_USE) :
                 vr_refuse(c, VROCE_ERR_NO_RESOURCES, 0);
    }
    if (status) {
        free(qp->req.shadows);
        free(qp);
        return status;
    }
    if (qp->has_sq || qp->has_rq) {
        vr_pages_take(e, &qp->pages);
    }
    vr_qp_count_users(e, qp, 1);
    vr_qp_clear(e, qp);
    out->number = htole32(qp->qpn);
    return VROCE_OK;
}

void vr_qp_destroy(struct vr_engine *e, struct vr_qp *qp)
{
    vr_qp_clear(e, qp);
    vr_qp_count_users(e, qp, -1);
    vr_pd_release(e, qp->pdn, qp->context);
    vr_table_remove(&e->qps, qp->qpn);
    vr_pages_free(e, &qp->pages);
    free(qp->req.shadows);
    free(qp);
}

int vr_cmd_destroy_qp(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_number *in = c->in;
    struct vr_qp *qp = vr_qp_get(e, le32toh(in->number));

    if (!qp) {
        return vr_refuse(c, VROCE_ERR_NUMBER, VROCE_RULE_NO_OBJECT);
    }
    vr_qp_destroy(e, qp);
    return VROCE_OK;
}

int vr_cmd_query_qp(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_number *in = c->in;
    struct vroce_qp_attr *out = c->out;
    struct vr_qp *qp = vr_qp_get(e, le32toh(in->number));

    if (!qp) {
        return vr_refuse(c, VROCE_ERR_NUMBER, VROCE_RULE_NO_OBJECT);
    }
    *out = qp->attr;
    out->state = out->cur_state = qp->state;
    out->sq_psn = htole32(qp->req.psn);
    out->rq_psn = htole32(qp->resp.psn);
    out->sq_draining = qp->state == VROCE_QPS_SQD && !qp->req.drained;
    return VROCE_OK;
}

/* --------------------------------------------------------- inspection */

static enum vr_wait qp_wait(const struct vr_engine *e, const struct vr_qp *qp)
{
    const struct vr_req *req = &qp->req;

    if (req->consumer == req->producer && !qp->resp.have_ack &&
        !qp->resp.replay_active) {
        return VR_WAIT_NONE;
    }
    if (!e->enabled || e->fatal) {
        return VR_WAIT_DEVICE;
    }
    if (qp->sched_list != VR_SCHED_NONE) {
        return qp->sched_list == VR_SCHED_RUN ? VR_WAIT_TURN : VR_WAIT_WIRE;
    }
    if (req->waiting_rnr) {
        return VR_WAIT_RNR;
    }
    if (req->una != req->sent) {
        return VR_WAIT_ACK;
    }
    return qp->state == VROCE_QPS_SQD ? VR_WAIT_SQD : VR_WAIT_UNKNOWN;
}

bool vr_query_qp(const struct vr_engine *e, uint32_t qpn,
                 struct vr_qp_info *out)
{
    struct vr_qp *qp = vr_table_get(&e->qps, qpn);
    const struct vr_req *req;

    if (!qp) {
        return false;
    }
    req = &qp->req;
    *out = (struct vr_qp_info) {
        .qpn = qpn, .pdn = qp->pdn, .send_cqn = qp->send_cqn,
        .recv_cqn = qp->recv_cqn, .srqn = qp->srqn,
        .dest_qpn = le32toh(qp->attr.dest_qpn),
        .type = qp->type, .state = qp->state,
        .sq_producer = req->producer, .sq_consumer = req->consumer,
        .sq_units = qp->has_sq ? 1u << qp->sq_log_units : 0,
        .rq_producer = qp->rq.producer_seen, .rq_consumer = qp->rq.consumer,
        .rq_entries = qp->has_rq ? 1u << qp->rq.log_entries : 0,
        .send_psn = qp->has_sq ? vr_req_cur_psn(qp) : req->psn,
        .unacked_psn = req->una, .expected_psn = qp->resp.psn,
        .msn = qp->resp.msn,
        .retries_left = req->retries_left, .rnr_retries_left = req->rnr_left,
        .retry_deadline = req->retry_timer.deadline == VR_NEVER ? VR_NEVER :
                          req->timeout_at,
        .rnr_deadline = req->rnr_timer.deadline,
        .last_post = req->last_post, .last_receive_post = qp->rq.last_post,
        .last_rule = qp->last_rule,
        .path_mtu = qp->attr.path_mtu ? qp->mtu : 0,
        .sgid_index = le16toh(qp->attr.av.sgid_index),
        .sq_next = req->next, .retry_cnt = qp->attr.retry_cnt,
        .rnr_retry = qp->attr.rnr_retry, .ack_timeout = vr_ack_timeout(qp),
        .wait = qp_wait(e, qp), .marks = qp->marks,
    };
    memcpy(out->dgid, qp->attr.av.dgid, sizeof(out->dgid));
    for (uint32_t i = req->consumer; qp->has_sq && i != req->next;
         i += vr_shadow_at(qp, i)->units) {
        out->outstanding++;
    }
    return true;
}
