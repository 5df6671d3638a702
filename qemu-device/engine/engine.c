/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine's life cycle, its entries, and what it tells its host.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vr_internal.h"

#define LIMIT(name, field, min, max, dflt) \
    { name, offsetof(struct vr_config, field), \
      sizeof(((struct vr_config *)0)->field), min, max, dflt }

/* Numbers below a table's first are never given out: see vr_engine_new(). */
const struct vr_limit vr_limits[] = {
    LIMIT("num-qps", num_qps, 3, 1 << 22, 16384),
    LIMIT("num-cqs", num_cqs, 2, 1 << 22, 32768),
    LIMIT("num-mrs", num_mrs, 2, 1 << 24, 131072),
    LIMIT("num-pds", num_pds, 2, 1 << 22, 16384),
    LIMIT("num-srqs", num_srqs, 2, 1 << 22, 8192),
    LIMIT("num-eqs", num_eqs, 2, 1024, 128),
    LIMIT("num-contexts", num_contexts, 1, 65536, 1024),
    LIMIT("num-gids", num_gids, 1, 1024, 128),
    LIMIT("vectors", num_vectors, 1, VROCE_MAX_VECTORS, 16),
    LIMIT("max-sge", max_sge, 1, VROCE_MAX_SGE, VROCE_MAX_SGE),
    LIMIT("max-cqe", max_cqe, 16, 1 << 20, 65536),
    LIMIT("max-mtu", max_mtu, 576, 9216, 9000),
    LIMIT("num-pages", num_pages, 1024, 1ull << 32, 16 << 20),
    LIMIT("devmem-size", devmem_size, 0, 1ull << 31, 1 << 20),
};
const size_t vr_num_limits = sizeof(vr_limits) / sizeof(vr_limits[0]);

/* A slice that runs inside another entry, bytes of payload. */
#define ENTRY_BUDGET (64u << 10)

uint64_t vr_config_get(const struct vr_config *cfg, const struct vr_limit *l)
{
    const char *field = (const char *)cfg + l->offset;

    return l->size == 8 ? *(const uint64_t *)field : *(const uint32_t *)field;
}

void vr_config_init(struct vr_config *cfg)
{
    memset(cfg, 0, sizeof(*cfg));
    for (size_t i = 0; i < vr_num_limits; i++) {
        const struct vr_limit *l = &vr_limits[i];
        char *field = (char *)cfg + l->offset;

        if (l->size == 8) {
            *(uint64_t *)field = l->dflt;
        } else {
            *(uint32_t *)field = l->dflt;
        }
    }
}

static bool table_init(struct vr_table *t, const char *name, uint32_t size,
                       uint32_t first)
{
    *t = (struct vr_table) {
        .name = name, .size = size, .first = first, .hint = first,
        .slot = calloc(size, sizeof(void *)),
    };
    return t->slot;
}

/* The state after creation and after reset, tables being empty. */
static void engine_init_state(struct vr_engine *e)
{
    e->async_eqn = VROCE_NONE;
    e->netdev_qpn = VROCE_NONE;
    memset(e->sched, 0, sizeof(e->sched));
    e->wqe.valid = false;
    e->netdev_flags = 0;
    e->netdev_mtu = e->cfg.max_mtu;
    memcpy(e->netdev_mac, e->cfg.mac, sizeof(e->netdev_mac));
    e->armed_deadline = VR_NEVER;
    e->eq_overrun = false;
    e->enabled = e->tx_full = e->kicked = e->fatal = e->burst = false;
    e->cmd_flushes = false;
    memset(e->counters, 0, sizeof(e->counters));
    e->gid_hint = e->gids_end = 0;
    memset(e->gids, 0, e->cfg.num_gids * sizeof(*e->gids));
    memset(e->mr_variants, 0, e->cfg.num_mrs);
    memset(e->moderation, 0, sizeof(e->moderation));
    for (uint32_t v = 0; v < VROCE_MAX_VECTORS; v++) {
        vr_timer_init(&e->moderation[v].timer, VR_TIMER_MODERATION, v);
    }
    vr_table_put(&e->contexts, 0, &e->kernel_context);
    e->kernel_context = (struct vr_context) { .page = 0 };
}

struct vr_engine *vr_engine_new(const struct vr_config *cfg,
                                const struct vr_host_ops *ops, void *host,
                                const char **err)
{
    struct vr_engine *e;

    for (size_t i = 0; i < vr_num_limits; i++) {
        uint64_t value = vr_config_get(cfg, &vr_limits[i]);

        if (value < vr_limits[i].min || value > vr_limits[i].max) {
            *err = vr_limits[i].name;
            return NULL;
        }
    }
    e = calloc(1, sizeof(*e));
    if (!e) {
        *err = "out of memory";
        return NULL;
    }
    e->cfg = *cfg;
    e->ops = ops;
    e->host = host;
    e->gids = calloc(cfg->num_gids, sizeof(*e->gids));
    e->mr_variants = calloc(cfg->num_mrs, 1);
    /* Number 0 stays free: a zeroed field names nothing. QP 1 is GSI. */
    if (!e->gids || !e->mr_variants || !vr_edge_init(e) ||
        !table_init(&e->qps, "QP", cfg->num_qps, 2) ||
        !table_init(&e->cqs, "CQ", cfg->num_cqs, 1) ||
        !table_init(&e->eqs, "EQ", cfg->num_eqs, 1) ||
        !table_init(&e->mrs, "MR", cfg->num_mrs, 1) ||
        !table_init(&e->pds, "PD", cfg->num_pds, 1) ||
        !table_init(&e->srqs, "SRQ", cfg->num_srqs, 1) ||
        !table_init(&e->contexts, "context", cfg->num_contexts, 1)) {
        vr_engine_free(e);
        *err = "out of memory";
        return NULL;
    }
    engine_init_state(e);
    return e;
}

/* Destroy all objects, users before what they use. */
static void engine_clear(struct vr_engine *e)
{
    uint32_t i;

    vr_loop_reset(e);
    if (e->edge) {
        vr_edge_reset(e);
    }
    for (i = 0; i < e->qps.size && e->qps.used; i++) {
        if (e->qps.slot[i]) {
            vr_qp_destroy(e, e->qps.slot[i]);
        }
    }
    for (i = 0; i < e->srqs.size && e->srqs.used; i++) {
        if (e->srqs.slot[i]) {
            vr_srq_destroy(e, e->srqs.slot[i]);
        }
    }
    for (i = 0; i < e->cqs.size && e->cqs.used; i++) {
        if (e->cqs.slot[i]) {
            vr_cq_destroy(e, e->cqs.slot[i]);
        }
    }
    for (i = 0; i < e->eqs.size && e->eqs.used; i++) {
        if (e->eqs.slot[i]) {
            vr_eq_destroy(e, e->eqs.slot[i]);
        }
    }
    for (i = 0; i < e->mrs.size && e->mrs.used; i++) {
        if (e->mrs.slot[i]) {
            vr_mr_destroy(e, e->mrs.slot[i]);
        }
    }
    for (i = 0; i < e->pds.size && e->pds.used; i++) {
        free(e->pds.slot[i]);
        vr_table_remove(&e->pds, i);
    }
    vr_table_remove(&e->contexts, 0);
    for (i = 1; i < e->contexts.size && e->contexts.used; i++) {
        free(e->contexts.slot[i]);
        vr_table_remove(&e->contexts, i);
    }
    vr_pages_free(e, &e->cmd_pages);
    for (i = 0; i < VROCE_MAX_VECTORS; i++) {
        vr_timer_remove(e, &e->moderation[i].timer);
    }
}

void vr_engine_free(struct vr_engine *e)
{
    if (!e) {
        return;
    }
    engine_clear(e);
    vr_edge_free(e);
    free(e->qps.slot);
    free(e->cqs.slot);
    free(e->eqs.slot);
    free(e->mrs.slot);
    free(e->pds.slot);
    free(e->srqs.slot);
    free(e->contexts.slot);
    free(e->gids);
    free(e->mr_variants);
    free(e->heap);
    free(e);
}

void vr_engine_reset(struct vr_engine *e)
{
    engine_clear(e);
    engine_init_state(e);
    e->ops->deadline(e->host, VR_NEVER);
}

/* ------------------------------------------------------------ entries */

static bool engine_runs(struct vr_engine *e, uint64_t now)
{
    e->now = now;
    return e->enabled && !e->fatal;
}

void vr_entry_end(struct vr_engine *e)
{
    if (e->enabled && !e->fatal && !e->burst &&
        vr_sched_run(e, ENTRY_BUDGET)) {
        vr_kick(e);
    }
}

void vr_set_enabled(struct vr_engine *e, bool enabled, uint64_t now)
{
    e->now = now;
    if (e->enabled == enabled) {
        return;
    }
    e->enabled = enabled;
    if (!enabled) {
        /* The command that was reading it is not called again. */
        vr_pages_free(e, &e->cmd_pages);
        e->cmd_flushes = false;
    } else if (!e->fatal) {
        /* The wire may have become free meanwhile. */
        vr_edge_resume(e);
        vr_timers_run(e);
        vr_entry_end(e);
    }
}

void vr_set_link(struct vr_engine *e, bool up, uint64_t now)
{
    e->now = now;
    if (e->link_up == up) {
        return;
    }
    e->link_up = up;
    if (!up) {
        e->tx_full = false;
    }
    if (engine_runs(e, now)) {
        vr_async_event(e, up ? VROCE_EVENT_PORT_UP : VROCE_EVENT_PORT_DOWN, 1,
                       VROCE_RULE_NONE);
        vr_edge_resume(e);
        vr_entry_end(e);
    }
}

void vr_set_link_ops(struct vr_engine *e, const struct vr_link_ops *ops,
                     void *link)
{
    e->link_ops = ops;
    e->link = link;
}

void vr_doorbell(struct vr_engine *e, uint32_t page, uint64_t value,
                 uint64_t now)
{
    uint32_t number = value >> VROCE_DB_NUMBER_SHIFT & VROCE_DB_NUMBER_MASK;
    uint32_t index = value;

    if (!engine_runs(e, now)) {
        return;
    }
    if (!vr_context_get(e, page)) {
        vr_misuse_of(e, VROCE_RULE_DB_PAGE, "doorbell page", page,
                     "belongs to no context");
        return;
    }
    switch (value >> VROCE_DB_KIND_SHIFT) {
    case VROCE_DB_SQ:
        vr_sq_doorbell(e, page, number, index);
        vr_entry_end(e);
        break;
    case VROCE_DB_RQ:
        vr_rq_doorbell(e, page, number, index);
        vr_entry_end(e);
        break;
    case VROCE_DB_CQ_ARM:
        vr_cq_doorbell(e, page, number, index, false);
        break;
    case VROCE_DB_CQ_ARM_SOLICITED:
        vr_cq_doorbell(e, page, number, index, true);
        break;
    case VROCE_DB_EQ_ARM:
        vr_eq_doorbell(e, page, number, index);
        break;
    default:
        vr_misuse_of(e, VROCE_RULE_DB_ACCESS, "doorbell page", page,
                     "unknown kind of doorbell");
    }
}

void vr_receive(struct vr_engine *e, const uint8_t *frame, size_t len,
                uint64_t now)
{
    if (!engine_runs(e, now)) {
        return;
    }
    if (!vr_edge_receive(e, frame, len)) {
        vr_eth_receive(e, frame, len);
    }
    vr_entry_end(e);
}

void vr_burst(struct vr_engine *e, bool more, uint64_t now)
{
    e->now = now;
    e->burst = more;
    vr_entry_end(e);
}

void vr_link_deliver(struct vr_engine *to, struct vr_engine *from,
                     const struct vr_sp *sp, uint64_t now)
{
    if (engine_runs(to, now)) {
        if (to != from) {
            vr_count(to, VROCE_CNT_RDMA_RX_PACKETS, sp->npkt);
            vr_count(to, VROCE_CNT_RDMA_RX_BYTES, sp->payload.len);
        }
        vr_transport_rx(to, from, sp);
        if (to != from && from->sched[VR_SCHED_RUN].head) {
            vr_kick(from);      /* its payload could not be read: it must act */
        }
        vr_entry_end(to);
    }
}

void vr_tx_ready(struct vr_engine *e, uint64_t now)
{
    e->tx_full = false;
    if (engine_runs(e, now)) {
        vr_edge_resume(e);
        vr_entry_end(e);
    }
}

bool vr_run(struct vr_engine *e, uint32_t budget, uint64_t now)
{
    e->kicked = false;
    if (!engine_runs(e, now)) {
        return false;
    }
    vr_edge_resume(e);
    e->kicked = vr_sched_run(e, budget);
    return e->kicked;   /* the host calls again */
}

void vr_timer(struct vr_engine *e, uint64_t now)
{
    if (!engine_runs(e, now)) {
        if (e->armed_deadline <= now) {
            e->armed_deadline = VR_NEVER;   /* vr_set_enabled() arms again */
        }
        return;
    }
    vr_timers_run(e);
    vr_entry_end(e);
}

void vr_memory_changed(struct vr_engine *e)
{
    /* No mapping outlives an entry: there is nothing to forget. */
}

/* --------------------------------------------------------- interrupts */

void vr_set_moderation(struct vr_engine *e, uint32_t vector, uint32_t us)
{
    if (vector < VROCE_MAX_VECTORS) {
        e->moderation[vector].us = us;
    }
}

void vr_raise(struct vr_engine *e, uint32_t vector)
{
    uint64_t next = e->moderation[vector].last +
                    e->moderation[vector].us * 1000ull;

    if (!e->moderation[vector].us || e->now >= next) {
        e->moderation[vector].last = e->now;
        e->ops->irq(e->host, vector);
    } else if (!e->moderation[vector].pending) {
        e->moderation[vector].pending = true;
        vr_timer_set(e, &e->moderation[vector].timer, next);
    }
}

void vr_moderation_timer(struct vr_engine *e, uint32_t vector)
{
    e->moderation[vector].pending = false;
    e->moderation[vector].last = e->now;
    e->ops->irq(e->host, vector);
}

/* ------------------------------------------------------------ reports */

void vr_report(struct vr_engine *e, enum vr_report_kind kind, uint32_t number,
               uint64_t a, uint64_t b)
{
    struct vr_report report = {
        .kind = kind, .number = number, .a = a, .b = b,
    };

    if (e->ops->report) {
        e->ops->report(e->host, &report);
    }
}

void vr_misuse(struct vr_engine *e, enum vroce_rule rule, uint32_t number,
               const char *text)
{
    struct vr_report report = {
        .kind = VR_REPORT_MISUSE, .rule = rule, .number = number, .text = text,
    };

    struct vr_qp *qp = vr_qp_get(e, number);

    if (qp) {
        qp->last_rule = rule;
    }
    vr_count(e, VROCE_CNT_MISUSE, 1);
    if (e->ops->report) {
        e->ops->report(e->host, &report);
    }
}

void vr_misuse_of(struct vr_engine *e, enum vroce_rule rule, const char *what,
                  uint32_t number, const char *text)
{
    char line[128];

    snprintf(line, sizeof(line), "%s %u: %s", what, number, text);
    vr_misuse(e, rule, VROCE_NONE, line);
}

void vr_kick(struct vr_engine *e)
{
    if (!e->kicked) {
        e->kicked = true;
        e->ops->kick(e->host);
    }
}

void vr_fatal(struct vr_engine *e, enum vroce_fatal cause)
{
    if (e->fatal) {
        return;
    }
    e->fatal = true;
    if (cause != VROCE_FATAL_ASYNC_EQ) {
        vr_async_event(e, VROCE_EVENT_DEVICE_FATAL, 0, VROCE_RULE_NONE);
    }
    /* No timer will run: what moderation held back goes out now. */
    for (uint32_t v = 0; v < e->cfg.num_vectors; v++) {
        if (e->moderation[v].pending) {
            vr_moderation_timer(e, v);
        }
    }
    e->ops->fatal(e->host, cause);
}

const uint64_t *vr_counters(const struct vr_engine *e)
{
    return e->counters;
}
