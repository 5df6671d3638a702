/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shared receive queues: creation, destruction and the limit event. Taking
 * WQEs from them is rq.c's.
 */
#include <endian.h>
#include <stdlib.h>

#include "vr_internal.h"

struct vr_srq *vr_srq_get(struct vr_engine *e, uint32_t srqn)
{
    return vr_table_get(&e->srqs, srqn);
}

static uint32_t srq_posted(const struct vr_srq *srq)
{
    return srq->rq.producer_seen - srq->rq.consumer;
}

void vr_srq_check_limit(struct vr_engine *e, struct vr_srq *srq)
{
    if (!srq->limit || srq_posted(srq) >= srq->limit) {
        return;
    }
    if (vr_rq_refresh(e, &srq->rq) || srq_posted(srq) >= srq->limit) {
        return;     /* a bad record is reported where WQEs are taken */
    }
    srq->limit = 0;
    vr_async_event(e, VROCE_EVENT_SRQ_LIMIT, srq->srqn, VROCE_RULE_NONE);
}

int vr_cmd_create_srq(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_create_srq_in *in = c->in;
    struct vroce_number *out = c->out;
    uint32_t pdn = le32toh(in->pdn);
    struct vr_srq *srq;
    int status;

    if (in->log_entries > VROCE_MAX_RQ_LOG_ENTRIES ||
        in->log_stride < 5 || in->log_stride > 9 ||
        le32toh(in->limit) > 1u << in->log_entries ||
        !vr_ring_fits(&in->buf, 0, 1ull << (in->log_entries + in->log_stride),
                      le32toh(in->rec_off))) {
        return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    }
    status = vr_cmd_pages(e, c, &in->buf, true);
    if (!status) {
        status = vr_pd_hold(e, pdn, 0, &c->rule);
    }
    if (status) {
        return status;
    }
    srq = calloc(1, sizeof(*srq));
    if (srq) {
        srq->srqn = vr_table_alloc(&e->srqs, srq);
    }
    if (!srq || srq->srqn == VROCE_NONE) {
        free(srq);
        vr_pd_release(e, pdn, 0);
        return VROCE_ERR_NO_RESOURCES;
    }
    srq->pdn = pdn;
    srq->limit = le32toh(in->limit);
    vr_pages_take(e, &srq->pages);
    srq->rq = (struct vr_rq) {
        .ring = &srq->pages, .rec_off = le32toh(in->rec_off),
        .log_entries = in->log_entries, .log_stride = in->log_stride,
    };
    out->number = htole32(srq->srqn);
    return VROCE_OK;
}

void vr_srq_destroy(struct vr_engine *e, struct vr_srq *srq)
{
    vr_pd_release(e, srq->pdn, 0);
    vr_table_remove(&e->srqs, srq->srqn);
    vr_pages_free(e, &srq->pages);
    free(srq);
}

int vr_cmd_destroy_srq(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_number *in = c->in;
    struct vr_srq *srq = vr_srq_get(e, le32toh(in->number));

    if (!srq) {
        return vr_refuse(c, VROCE_ERR_NUMBER, VROCE_RULE_NO_OBJECT);
    }
    if (srq->users) {
        return vr_refuse(c, VROCE_ERR_BUSY, VROCE_RULE_IN_USE);
    }
    vr_srq_destroy(e, srq);
    return VROCE_OK;
}

int vr_cmd_modify_srq(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_modify_srq_in *in = c->in;
    struct vr_srq *srq = vr_srq_get(e, le32toh(in->srqn));

    if (!srq) {
        return vr_refuse(c, VROCE_ERR_NUMBER, VROCE_RULE_NO_OBJECT);
    }
    if (le32toh(in->limit) > 1u << srq->rq.log_entries) {
        return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    }
    srq->limit = le32toh(in->limit);
    return VROCE_OK;
}

int vr_cmd_query_srq(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_number *in = c->in;
    struct vroce_query_srq_out *out = c->out;
    struct vr_srq *srq = vr_srq_get(e, le32toh(in->number));

    if (!srq) {
        return vr_refuse(c, VROCE_ERR_NUMBER, VROCE_RULE_NO_OBJECT);
    }
    c->rule = vr_rq_refresh(e, &srq->rq);
    if (c->rule) {
        return c->rule == VROCE_RULE_RING_DMA ? VROCE_ERR_DMA : VROCE_ERR_STATE;
    }
    out->limit = htole32(srq->limit);
    out->posted = htole32(srq_posted(srq));
    return VROCE_OK;
}

bool vr_query_srq(const struct vr_engine *e, uint32_t srqn,
                  struct vr_srq_info *out)
{
    const struct vr_srq *srq = vr_table_get(&e->srqs, srqn);

    if (!srq) {
        return false;
    }
    *out = (struct vr_srq_info) {
        .srqn = srqn, .pdn = srq->pdn, .entries = 1u << srq->rq.log_entries,
        .producer = srq->rq.producer_seen, .consumer = srq->rq.consumer,
        .limit = srq->limit, .users = srq->users, .error = srq->error,
        .last_post = srq->rq.last_post,
    };
    return true;
}
