/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Event queues. The consumer index comes with the arm doorbell only. An event
 * that finds no room is reported, never lost silently; a completion event is
 * even made up for, since its CQ stays armed until the event was written.
 */
#include <endian.h>
#include <stdlib.h>

#include "vr_internal.h"

struct vr_eq *vr_eq_get(struct vr_engine *e, uint32_t eqn)
{
    return vr_table_get(&e->eqs, eqn);
}

static void eq_lost(struct vr_engine *e, struct vr_eq *eq, enum vroce_rule rule)
{
    /* Completions are made up for, so one word until then is enough. */
    if (!eq->lost || eq->async) {
        vr_misuse_of(e, rule, "EQ", eq->eqn, vr_rule_text(rule));
    }
    eq->overrun = eq->lost = e->eq_overrun = true;
}

bool vr_eq_post(struct vr_engine *e, uint32_t eqn, enum vroce_event type,
                uint32_t number, enum vroce_rule rule)
{
    struct vr_eq *eq = vr_eq_get(e, eqn);
    uint32_t mask;
    struct vroce_eqe eqe;

    if (!eq) {
        return false;
    }
    mask = (1u << eq->log_size) - 1;
    if (eq->producer - eq->consumer > mask) {
        eq_lost(e, eq, VROCE_RULE_EQ_OVERRUN);
        return false;
    }
    eqe = (struct vroce_eqe) {
        .number = htole32(number), .type = htole16(type), .rule = htole16(rule),
        .phase = htole32(~(eq->producer >> eq->log_size) & 1),
    };
    if (vr_pages_publish(e, &eq->ring, (eq->producer & mask) * sizeof(eqe),
                         &eqe, sizeof(eqe))) {
        eq_lost(e, eq, VROCE_RULE_RING_DMA);
        if (eq->async) {
            vr_fatal(e, VROCE_FATAL_ASYNC_EQ);
        }
        return false;
    }
    eq->producer++;
    eq->last_event = e->now;
    if (eq->armed) {
        eq->armed = false;
        vr_raise(e, eq->vector);
    }
    return true;
}

void vr_async_event(struct vr_engine *e, enum vroce_event type,
                    uint32_t number, enum vroce_rule rule)
{
    vr_report(e, VR_REPORT_EVENT, number, type, rule);
    vr_eq_post(e, e->async_eqn, type, number, rule);
}

void vr_eq_doorbell(struct vr_engine *e, uint32_t page, uint32_t eqn,
                    uint32_t value)
{
    struct vr_eq *eq = vr_eq_get(e, eqn);

    if (!eq) {
        vr_misuse_of(e, VROCE_RULE_DB_NUMBER, "EQ", eqn, "does not exist");
        return;
    }
    if (page) {
        vr_misuse_of(e, VROCE_RULE_DB_PAGE, "EQ", eqn,
                     "may be armed from the kernel's page only");
        return;
    }
    if (value - eq->consumer > eq->producer - eq->consumer) {
        vr_misuse_of(e, VROCE_RULE_DB_INDEX, "EQ", eqn,
                     "consumer index is beyond what was produced");
        return;
    }
    eq->consumer = value;
    eq->last_arm = e->now;
    if (eq->lost) {
        eq->lost = false;
        vr_cq_rearm_lost(e, eqn);
    }
    eq->armed = eq->producer == eq->consumer;
    if (!eq->armed) {
        vr_raise(e, eq->vector);
    }
}

bool vr_eq_overrun(const struct vr_engine *e)
{
    return e->eq_overrun;
}

/* ----------------------------------------------------------- commands */

int vr_cmd_create_eq(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_create_eq_in *in = c->in;
    struct vroce_number *out = c->out;
    bool async = in->flags & VROCE_EQ_ASYNC;
    struct vr_eq *eq;
    int status;

    if (in->log_size < 1 || in->log_size > VR_MAX_LOG_EQE ||
        in->flags & ~VROCE_EQ_ASYNC ||
        le32toh(in->vector) >= e->cfg.num_vectors ||
        !vr_ring_fits(&in->buf, 0, sizeof(struct vroce_eqe) << in->log_size,
                      VR_NO_RECORD)) {
        return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    }
    if (async && e->async_eqn != VROCE_NONE) {
        return vr_refuse(c, VROCE_ERR_BUSY, VROCE_RULE_IN_USE);
    }
    status = vr_cmd_pages(e, c, &in->buf, true);
    if (status) {
        return status;
    }
    eq = calloc(1, sizeof(*eq));
    if (eq) {
        eq->eqn = vr_table_alloc(&e->eqs, eq);
    }
    if (!eq || eq->eqn == VROCE_NONE) {
        free(eq);
        return VROCE_ERR_NO_RESOURCES;
    }
    eq->vector = le32toh(in->vector);
    eq->log_size = in->log_size;
    eq->async = async;
    vr_pages_take(e, &eq->ring);
    if (async) {
        e->async_eqn = eq->eqn;
    }
    out->number = htole32(eq->eqn);
    return VROCE_OK;
}

void vr_eq_destroy(struct vr_engine *e, struct vr_eq *eq)
{
    if (e->async_eqn == eq->eqn) {
        e->async_eqn = VROCE_NONE;
    }
    vr_table_remove(&e->eqs, eq->eqn);
    vr_pages_free(e, &eq->ring);
    free(eq);
}

int vr_cmd_destroy_eq(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_number *in = c->in;
    struct vr_eq *eq = vr_eq_get(e, le32toh(in->number));

    if (!eq) {
        return vr_refuse(c, VROCE_ERR_NUMBER, VROCE_RULE_NO_OBJECT);
    }
    if (eq->users) {
        return vr_refuse(c, VROCE_ERR_BUSY, VROCE_RULE_IN_USE);
    }
    vr_eq_destroy(e, eq);
    return VROCE_OK;
}

bool vr_query_eq(const struct vr_engine *e, uint32_t eqn,
                 struct vr_eq_info *out)
{
    const struct vr_eq *eq = vr_table_get(&e->eqs, eqn);

    if (!eq) {
        return false;
    }
    *out = (struct vr_eq_info) {
        .eqn = eqn, .vector = eq->vector, .size = 1u << eq->log_size,
        .producer = eq->producer, .consumer = eq->consumer,
        .armed = eq->armed, .async = eq->async, .overrun = eq->overrun,
        .lost = eq->lost, .last_event = eq->last_event,
        .last_arm = eq->last_arm,
    };
    return true;
}
