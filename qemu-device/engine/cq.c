/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Completion queues. The device counts what it produces; the guest's record of
 * what it consumed is a hint that is read only when the ring seems full, and
 * is believed only as far as it makes sense.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>

#include "vr_internal.h"

#define CQE_SIZE sizeof(struct vroce_cqe)

struct vr_cq *vr_cq_get(struct vr_engine *e, uint32_t cqn)
{
    return vr_table_get(&e->cqs, cqn);
}

static inline uint32_t cq_size(const struct vr_cq *cq)
{
    return 1u << cq->log_size;
}

/* The phase bit of entry `index` in a ring of 1 << log_size. */
static inline uint32_t cq_phase(uint32_t index, uint8_t log_size)
{
    return htole32(~(index >> log_size) & 1);
}

/* Take the guest's record; the broken rule when it cannot be. */
static enum vroce_rule cq_refresh(struct vr_engine *e, struct vr_cq *cq)
{
    struct vroce_db_record rec;
    uint32_t consumer;

    if (vr_pages_rw(e, &cq->ring, cq->rec_off, &rec, sizeof(rec), false)) {
        return VROCE_RULE_RING_DMA;
    }
    consumer = le32toh(rec.index);
    if (consumer - cq->consumer_seen > cq->producer - cq->consumer_seen) {
        return VROCE_RULE_CQ_RECORD;
    }
    cq->consumer_seen = consumer;
    return VROCE_RULE_NONE;
}

/* IBA 10.5.1.1 and 11.6.3.4: a CQ in error takes its QPs with it. */
static void cq_fail(struct vr_engine *e, struct vr_cq *cq, enum vroce_rule rule)
{
    uint32_t left = cq->users;

    cq->error = rule;
    if (rule == VROCE_RULE_CQ_OVERRUN) {
        vr_count(e, VROCE_CNT_CQ_OVERRUN, 1);
    }
    vr_misuse_of(e, rule, "CQ", cq->cqn, vr_rule_text(rule));
    vr_async_event(e, VROCE_EVENT_CQ_ERR, cq->cqn, rule);
    for (uint32_t i = 0; i < e->qps.size && left; i++) {
        struct vr_qp *qp = vr_qp_get(e, i);

        if (qp && (qp->send_cqn == cq->cqn || qp->recv_cqn == cq->cqn)) {
            left -= (qp->send_cqn == cq->cqn) + (qp->recv_cqn == cq->cqn);
            vr_qp_error(e, qp, VROCE_EVENT_QP_FATAL, rule);
        }
    }
}

/* ------------------------------------------------------------- events */

/* Does a CQE that the arming asked for lie at or after index? */
static bool cq_wants_event(const struct vr_cq *cq, uint8_t armed,
                           uint32_t index)
{
    if (armed == VR_ARMED_SOLICITED) {
        return cq->any_solicited && (int32_t)(cq->last_solicited - index) > 0;
    }
    return armed && cq->producer != index;
}

static void cq_fire(struct vr_engine *e, struct vr_cq *cq)
{
    cq->mod_pending = 0;
    vr_timer_cancel(e, &cq->timer);
    /* If the event is lost the CQ stays armed: see vr_cq_rearm_lost(). */
    if (vr_eq_post(e, cq->eqn, VROCE_EVENT_COMPLETION, cq->cqn,
                   VROCE_RULE_NONE)) {
        cq->last_event = e->now;
        cq->armed = 0;
    }
}

/* An armed CQ got what it waits for: fire, or wait for company. */
static void cq_notify(struct vr_engine *e, struct vr_cq *cq)
{
    if (cq->mod_count > 1 && cq->mod_period_us &&
        ++cq->mod_pending < cq->mod_count) {
        if (cq->timer.deadline == VR_NEVER) {
            vr_timer_set(e, &cq->timer, e->now + cq->mod_period_us * 1000ull);
        }
        return;
    }
    cq_fire(e, cq);
}

void vr_cq_timer(struct vr_engine *e, uint32_t cqn)
{
    struct vr_cq *cq = vr_cq_get(e, cqn);

    if (cq && cq->armed && cq->mod_pending) {
        cq_fire(e, cq);
    }
}

void vr_cq_rearm_lost(struct vr_engine *e, uint32_t eqn)
{
    uint32_t left = e->cqs.used;

    for (uint32_t i = 0; i < e->cqs.size && left; i++) {
        struct vr_cq *cq = vr_cq_get(e, i);

        left -= !!cq;
        if (cq && cq->eqn == eqn &&
            cq_wants_event(cq, cq->armed, cq->armed_at)) {
            cq_fire(e, cq);
        }
    }
}

void vr_cq_doorbell(struct vr_engine *e, uint32_t page, uint32_t cqn,
                    uint32_t value, bool solicited)
{
    struct vr_cq *cq = vr_cq_get(e, cqn);

    if (!cq) {
        vr_misuse_of(e, VROCE_RULE_DB_NUMBER, "CQ", cqn, "does not exist");
        return;
    }
    if (cq->context != page) {
        vr_misuse_of(e, VROCE_RULE_DB_PAGE, "CQ", cqn,
                     "armed from a page that does not own it");
        return;
    }
    /* Another thread may have polled since: older than the record is fine. */
    if (cq->producer - value > cq_size(cq)) {
        vr_misuse_of(e, VROCE_RULE_DB_INDEX, "CQ", cqn,
                     "armed at an index that is not in the ring");
        return;
    }
    if ((int32_t)(value - cq->consumer_seen) > 0) {
        cq->consumer_seen = value;
    }
    /* IBA 11.4.2.2: asking for solicited ones takes nothing back. */
    if (cq->armed != VR_ARMED_ANY) {
        cq->armed = solicited ? VR_ARMED_SOLICITED : VR_ARMED_ANY;
    }
    cq->armed_at = value;
    cq->last_arm = e->now;
    if (cq_wants_event(cq, cq->armed, value)) {
        cq_notify(e, cq);
    }
}

void vr_cq_post(struct vr_engine *e, uint32_t cqn, struct vroce_cqe *cqe,
                bool solicited)
{
    struct vr_cq *cq = vr_cq_get(e, cqn);
    enum vroce_rule rule = VROCE_RULE_NONE;
    uint32_t index;

    if (!cq || cq->error) {
        return;
    }
    if (cq->producer - cq->consumer_seen == cq_size(cq)) {
        rule = cq_refresh(e, cq);
        if (!rule && cq->producer - cq->consumer_seen == cq_size(cq)) {
            rule = VROCE_RULE_CQ_OVERRUN;
        }
    }
    if (rule) {
        cq_fail(e, cq, rule);
        return;
    }
    index = cq->producer & (cq_size(cq) - 1);
    cqe->timestamp = htole64(e->now);
    cqe->phase = cq_phase(cq->producer, cq->log_size);
    if (vr_pages_publish(e, &cq->ring, index * CQE_SIZE, cqe, CQE_SIZE)) {
        cq_fail(e, cq, VROCE_RULE_RING_DMA);
        return;
    }
    cq->producer++;
    cq->last_completion = e->now;
    solicited |= cqe->status != VROCE_WCS_SUCCESS;
    if (solicited) {
        cq->last_solicited = cq->producer;
        cq->any_solicited = true;
    }
    vr_report(e, VR_REPORT_COMPLETION, cqn, le32toh(cqe->qpn), cqe->status);
    if (cq->armed == VR_ARMED_ANY ||
        (cq->armed == VR_ARMED_SOLICITED && solicited)) {
        cq_notify(e, cq);
    }
}

/* ----------------------------------------------------------- commands */

static bool cq_ring_ok(const struct vr_engine *e, const struct vroce_buf *buf,
                       uint8_t log_size, uint32_t rec_off)
{
    return log_size >= 1 && log_size < 32 &&
           1u << log_size <= e->cfg.max_cqe &&
           vr_ring_fits(buf, 0, CQE_SIZE << log_size, rec_off);
}

int vr_cmd_create_cq(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_create_cq_in *in = c->in;
    struct vroce_number *out = c->out;
    struct vr_context *context = vr_context_get(e, le32toh(in->context));
    struct vr_eq *eq = vr_eq_get(e, le32toh(in->eqn));
    struct vr_cq *cq;
    int status;

    if (!context || (!eq && le32toh(in->eqn) != VROCE_NONE)) {
        return vr_refuse(c, VROCE_ERR_NUMBER, VROCE_RULE_NO_OBJECT);
    }
    if (!cq_ring_ok(e, &in->buf, in->log_size, le32toh(in->rec_off))) {
        return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    }
    status = vr_cmd_pages(e, c, &in->buf, true);
    if (status) {
        return status;
    }
    cq = calloc(1, sizeof(*cq));
    if (cq) {
        cq->cqn = vr_table_alloc(&e->cqs, cq);
    }
    if (!cq || cq->cqn == VROCE_NONE) {
        free(cq);
        return VROCE_ERR_NO_RESOURCES;
    }
    cq->eqn = le32toh(in->eqn);
    cq->context = le32toh(in->context);
    cq->log_size = in->log_size;
    cq->rec_off = le32toh(in->rec_off);
    vr_timer_init(&cq->timer, VR_TIMER_CQ, cq->cqn);
    vr_pages_take(e, &cq->ring);
    context->users++;
    if (eq) {
        eq->users++;
    }
    out->number = htole32(cq->cqn);
    return VROCE_OK;
}

void vr_cq_destroy(struct vr_engine *e, struct vr_cq *cq)
{
    struct vr_eq *eq = vr_eq_get(e, cq->eqn);

    if (eq) {
        eq->users--;
    }
    vr_context_get(e, cq->context)->users--;
    vr_timer_remove(e, &cq->timer);
    vr_table_remove(&e->cqs, cq->cqn);
    vr_pages_free(e, &cq->ring);
    free(cq);
}

int vr_cmd_destroy_cq(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_number *in = c->in;
    struct vr_cq *cq = vr_cq_get(e, le32toh(in->number));

    if (!cq) {
        return vr_refuse(c, VROCE_ERR_NUMBER, VROCE_RULE_NO_OBJECT);
    }
    if (cq->users) {
        return vr_refuse(c, VROCE_ERR_BUSY, VROCE_RULE_IN_USE);
    }
    vr_cq_destroy(e, cq);
    return VROCE_OK;
}

/*
 * Copy the CQEs that were not consumed to a ring of another size, and mark its
 * other entries: what counts as not written depends on the lap.
 */
static int cq_copy(struct vr_engine *e, const struct vr_cq *cq,
                   const struct vr_pages *ring, uint8_t log_size)
{
    uint32_t mask = (1u << log_size) - 1, i;

    for (i = cq->consumer_seen; i != cq->producer; i++) {
        struct vroce_cqe cqe;
        uint64_t from = (i & (cq_size(cq) - 1)) * CQE_SIZE;

        if (vr_pages_rw(e, &cq->ring, from, &cqe, CQE_SIZE, false)) {
            return -EFAULT;
        }
        cqe.phase = cq_phase(i, log_size);
        if (vr_pages_publish(e, ring, (i & mask) * CQE_SIZE, &cqe, CQE_SIZE)) {
            return -EFAULT;
        }
    }
    for (; i != cq->consumer_seen + mask + 1; i++) {
        uint32_t phase = cq_phase(i, log_size) ^ htole32(1);
        uint64_t at = (i & mask) * CQE_SIZE + offsetof(struct vroce_cqe, phase);

        if (vr_pages_rw(e, ring, at, &phase, sizeof(phase), true)) {
            return -EFAULT;
        }
    }
    return 0;
}

int vr_cmd_resize_cq(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_resize_cq_in *in = c->in;
    struct vr_cq *cq = vr_cq_get(e, le32toh(in->cqn));
    int status;

    if (!cq) {
        return vr_refuse(c, VROCE_ERR_NUMBER, VROCE_RULE_NO_OBJECT);
    }
    if (cq->error) {
        return vr_refuse(c, VROCE_ERR_STATE, cq->error);
    }
    if (!cq_ring_ok(e, &in->buf, in->log_size, le32toh(in->rec_off))) {
        return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    }
    status = vr_cmd_pages(e, c, &in->buf, true);
    if (status) {
        return status;
    }
    c->rule = cq_refresh(e, cq);
    if (c->rule) {
        return VROCE_ERR_PARAM;
    }
    if (cq->producer - cq->consumer_seen > 1u << in->log_size) {
        return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_CQ_OVERRUN);
    }
    if (cq_copy(e, cq, &e->cmd_pages, in->log_size)) {
        return vr_refuse(c, VROCE_ERR_DMA, VROCE_RULE_RING_DMA);
    }
    vr_pages_free(e, &cq->ring);
    vr_pages_take(e, &cq->ring);
    cq->log_size = in->log_size;
    cq->rec_off = le32toh(in->rec_off);
    return VROCE_OK;
}

int vr_cmd_modify_cq(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_modify_cq_in *in = c->in;
    struct vr_cq *cq = vr_cq_get(e, le32toh(in->cqn));

    if (!cq) {
        return vr_refuse(c, VROCE_ERR_NUMBER, VROCE_RULE_NO_OBJECT);
    }
    cq->mod_count = le16toh(in->count);
    cq->mod_period_us = le16toh(in->period_us);
    if (cq->armed && cq->mod_pending) {
        cq_fire(e, cq);     /* what waited under the old rules */
    }
    return VROCE_OK;
}

bool vr_query_cq(const struct vr_engine *e, uint32_t cqn,
                 struct vr_cq_info *out)
{
    const struct vr_cq *cq = vr_table_get(&e->cqs, cqn);

    if (!cq) {
        return false;
    }
    *out = (struct vr_cq_info) {
        .cqn = cqn, .eqn = cq->eqn, .size = cq_size(cq),
        .producer = cq->producer, .consumer_seen = cq->consumer_seen,
        .armed_at = cq->armed_at, .users = cq->users, .armed = cq->armed,
        .overrun = cq->error == VROCE_RULE_CQ_OVERRUN, .error = cq->error,
        .held_back = cq->armed ? cq->mod_pending : 0,
        .last_completion = cq->last_completion, .last_arm = cq->last_arm,
        .last_event = cq->last_event,
    };
    return true;
}
