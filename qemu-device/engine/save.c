/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The saved image of an engine: header, limits, state of the device, then one
 * record per live object of each table, users behind what they use.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vr_save.h"

#define MAGIC   0x31766573636f7276ull   /* "vrocsev1" */

/* -------------------------------------------------------------- values */

void vr_io_bytes(struct vr_io *io, void *p, size_t n)
{
    if (!io->loading && !io->failed && n > io->len - io->pos) {
        size_t len = 2 * io->len + n + 4096;
        uint8_t *buf = realloc(io->buf, len);

        if (buf) {
            io->buf = buf;
            io->len = len;
        }
    }
    if (io->failed || n > io->len - io->pos) {
        io->failed = true;
        if (io->loading) {
            memset(p, 0, n);
        }
        return;
    }
    if (io->loading) {
        memcpy(p, io->buf + io->pos, n);
    } else {
        memcpy(io->buf + io->pos, p, n);
    }
    io->pos += n;
}

void vr_io_u8(struct vr_io *io, uint8_t *v)
{
    vr_io_bytes(io, v, 1);
}

void vr_io_bool(struct vr_io *io, bool *v)
{
    uint8_t byte = io->loading ? 0 : *v;

    vr_io_bytes(io, &byte, 1);
    if (io->loading) {
        io->failed |= byte > 1;
        *v = byte == 1;
    }
}

void vr_io_u16(struct vr_io *io, uint16_t *v)
{
    uint16_t le = htole16(*v);

    vr_io_bytes(io, &le, sizeof(le));
    *v = le16toh(le);
}

void vr_io_u32(struct vr_io *io, uint32_t *v)
{
    uint32_t le = htole32(*v);

    vr_io_bytes(io, &le, sizeof(le));
    *v = le32toh(le);
}

void vr_io_u64(struct vr_io *io, uint64_t *v)
{
    uint64_t le = htole64(*v);

    vr_io_bytes(io, &le, sizeof(le));
    *v = le64toh(le);
}

/* --------------------------------------------------------------- parts */

void vr_io_timer(struct vr_io *io, struct vr_timer *t)
{
    VR_IO(io, t->deadline);
}

void vr_timer_attach(struct vr_engine *e, struct vr_timer *t)
{
    vr_timer_set(e, t, t->deadline);
}

static bool pages_sane(const struct vr_pages *p)
{
    if (p->shift > 31) {
        return false;
    }
    if (p->contiguous) {
        return !p->npages && !p->room && !p->offset &&
               p->base <= UINT64_MAX - p->length;
    }
    if (!p->npages) {
        return !p->length;
    }
    return p->shift >= 12 && p->length &&
           !(p->offset >> p->shift) && p->length <= UINT64_MAX / 2 &&
           p->npages == ((p->offset + p->length - 1) >> p->shift) + 1;
}

/* Page entries, chunk by chunk; loading, each is checked. */
static void io_entries(struct vr_io *io, struct vr_pages *p)
{
    for (; p->loaded < p->npages && !io->failed; p->loaded++) {
        uint64_t *entry = vr_pages_entry_room(p, p->loaded);

        if (!entry) {
            io->failed = true;
            return;
        }
        VR_IO(io, *entry);
        io->failed |= !vr_pte_ok(*entry, 1ull << p->shift);
        p->writable &= !!(*entry & VROCE_PTE_WRITE);
    }
}

void vr_io_pages(struct vr_io *io, struct vr_engine *e, struct vr_pages *p)
{
    struct vr_pages copy = *p;      /* shares the chunks */
    uint64_t room = p->room;

    VR_IO(io, copy.base);
    VR_IO(io, copy.length);
    VR_IO(io, copy.npages);
    VR_IO(io, copy.offset);
    VR_IO(io, copy.shift);
    VR_IO(io, copy.contiguous);
    VR_IO(io, room);
    copy.loaded = 0;
    copy.writable = true;
    if (!io->loading) {
        io_entries(io, &copy);
        return;
    }
    if (io->failed || copy.npages > room ||
        (room && vr_pages_reserve(e, &copy, room)) || !pages_sane(&copy)) {
        io->failed = true;
    } else {
        io_entries(io, &copy);
    }
    *p = copy;                      /* freed by its owner, failed or not */
}

void vr_io_rq(struct vr_io *io, struct vr_rq *rq)
{
    VR_IO(io, rq->off);
    VR_IO(io, rq->rec_off);
    VR_IO(io, rq->log_entries);
    VR_IO(io, rq->log_stride);
    VR_IO(io, rq->consumer);
    VR_IO(io, rq->producer_seen);
    VR_IO(io, rq->last_post);
}

bool vr_ring_sane(const struct vr_pages *p, uint64_t off, uint64_t size,
                  uint32_t rec_off)
{
    struct vroce_buf buf = {
        .addr = htole64(p->base), .length = htole64(p->length),
        .offset = htole32(p->offset), .levels = !p->contiguous,
    };

    return vr_ring_fits(&buf, off, size, rec_off);
}

bool vr_rq_sane(const struct vr_rq *rq, const struct vr_pages *p)
{
    return rq->log_entries <= VROCE_MAX_RQ_LOG_ENTRIES &&
           rq->log_stride >= 5 && rq->log_stride <= 9 &&
           rq->producer_seen - rq->consumer <= 1u << rq->log_entries &&
           vr_ring_sane(p, rq->off,
                        1ull << (rq->log_entries + rq->log_stride),
                        rq->rec_off);
}

/* ------------------------------------------------------------- objects */

static void io_nothing(struct vr_io *io, struct vr_engine *e, void *object)
{
}

static void discard_plain(struct vr_engine *e, void *object)
{
    free(object);
}

static bool attach_context(struct vr_engine *e, uint32_t page, void *object)
{
    struct vr_context *context = object;

    context->page = page;
    return vr_table_put(&e->contexts, page, context);
}

static bool attach_pd(struct vr_engine *e, uint32_t pdn, void *object)
{
    struct vr_pd *pd = object;

    pd->pdn = pdn;
    return vr_table_put(&e->pds, pdn, pd);
}

static void io_eq(struct vr_io *io, struct vr_engine *e, void *object)
{
    struct vr_eq *eq = object;

    VR_IO(io, eq->vector);
    VR_IO(io, eq->log_size);
    VR_IO(io, eq->async);
    VR_IO(io, eq->armed);
    VR_IO(io, eq->overrun);
    VR_IO(io, eq->lost);
    VR_IO(io, eq->producer);
    VR_IO(io, eq->consumer);
    vr_io_pages(io, e, &eq->ring);
}

static bool attach_eq(struct vr_engine *e, uint32_t eqn, void *object)
{
    struct vr_eq *eq = object;

    if (eq->vector >= e->cfg.num_vectors || eq->log_size < 1 ||
        eq->log_size > VR_MAX_LOG_EQE ||
        eq->producer - eq->consumer > 1u << eq->log_size ||
        !vr_ring_sane(&eq->ring, 0, sizeof(struct vroce_eqe) << eq->log_size,
                      VR_NO_RECORD) ||
        (eq->async && e->async_eqn != VROCE_NONE) ||
        !vr_table_put(&e->eqs, eqn, eq)) {
        return false;
    }
    eq->eqn = eqn;
    if (eq->async) {
        e->async_eqn = eqn;
    }
    return true;
}

static void discard_eq(struct vr_engine *e, void *object)
{
    struct vr_eq *eq = object;

    vr_pages_free(e, &eq->ring);
    free(eq);
}

static void io_cq(struct vr_io *io, struct vr_engine *e, void *object)
{
    struct vr_cq *cq = object;

    VR_IO(io, cq->eqn);
    VR_IO(io, cq->context);
    VR_IO(io, cq->log_size);
    VR_IO(io, cq->armed);
    VR_IO(io, cq->error);
    VR_IO(io, cq->rec_off);
    VR_IO(io, cq->producer);
    VR_IO(io, cq->consumer_seen);
    VR_IO(io, cq->last_solicited);
    VR_IO(io, cq->any_solicited);
    VR_IO(io, cq->armed_at);
    VR_IO(io, cq->mod_count);
    VR_IO(io, cq->mod_period_us);
    VR_IO(io, cq->mod_pending);
    vr_io_timer(io, &cq->timer);
    vr_io_pages(io, e, &cq->ring);
}

static bool attach_cq(struct vr_engine *e, uint32_t cqn, void *object)
{
    struct vr_cq *cq = object;
    struct vr_context *context = vr_context_get(e, cq->context);
    struct vr_eq *eq = vr_eq_get(e, cq->eqn);
    uint64_t deadline = cq->timer.deadline;

    if (!context || (!eq && cq->eqn != VROCE_NONE) ||
        cq->armed > VR_ARMED_SOLICITED || cq->error >= VROCE_RULE_NUM ||
        cq->log_size < 1 || cq->log_size > 31 ||
        1u << cq->log_size > e->cfg.max_cqe ||
        cq->producer - cq->consumer_seen > 1u << cq->log_size ||
        !vr_ring_sane(&cq->ring, 0, sizeof(struct vroce_cqe) << cq->log_size,
                      cq->rec_off) ||
        !vr_table_put(&e->cqs, cqn, cq)) {
        return false;
    }
    cq->cqn = cqn;
    context->users++;
    if (eq) {
        eq->users++;
    }
    vr_timer_init(&cq->timer, VR_TIMER_CQ, cqn);
    cq->timer.deadline = deadline;
    vr_timer_attach(e, &cq->timer);
    return true;
}

static void discard_cq(struct vr_engine *e, void *object)
{
    struct vr_cq *cq = object;

    vr_pages_free(e, &cq->ring);
    free(cq);
}

static void io_srq(struct vr_io *io, struct vr_engine *e, void *object)
{
    struct vr_srq *srq = object;

    VR_IO(io, srq->pdn);
    VR_IO(io, srq->limit);
    VR_IO(io, srq->error);
    vr_io_rq(io, &srq->rq);
    vr_io_pages(io, e, &srq->pages);
}

static bool attach_srq(struct vr_engine *e, uint32_t srqn, void *object)
{
    struct vr_srq *srq = object;
    uint16_t rule;

    if (!vr_rq_sane(&srq->rq, &srq->pages) ||
        srq->limit > 1u << srq->rq.log_entries ||
        vr_pd_hold(e, srq->pdn, 0, &rule)) {
        return false;
    }
    if (!vr_table_put(&e->srqs, srqn, srq)) {
        vr_pd_release(e, srq->pdn, 0);
        return false;
    }
    srq->srqn = srqn;
    srq->rq.ring = &srq->pages;
    return true;
}

static void discard_srq(struct vr_engine *e, void *object)
{
    struct vr_srq *srq = object;

    vr_pages_free(e, &srq->pages);
    free(srq);
}

static void io_mr(struct vr_io *io, struct vr_engine *e, void *object)
{
    struct vr_mr *mr = object;

    VR_IO(io, mr->key);
    VR_IO(io, mr->pdn);
    VR_IO(io, mr->access);
    VR_IO(io, mr->iova);
    VR_IO(io, mr->length);
    VR_IO(io, mr->max_pages);
    VR_IO(io, mr->kind);
    VR_IO(io, mr->valid);
    vr_io_pages(io, e, &mr->pages);
}

static bool attach_mr(struct vr_engine *e, uint32_t index, void *object)
{
    struct vr_mr *mr = object;
    bool dma = mr->kind == VROCE_MR_DMA;
    uint16_t rule;

    if (mr->key >> 8 != index || !vr_mr_sane(e, mr) ||
        vr_pd_hold_mr(e, mr->pdn, dma, &rule)) {
        return false;
    }
    if (!vr_table_put(&e->mrs, index, mr)) {
        vr_pd_release_mr(e, mr->pdn, dma);
        return false;
    }
    return true;
}

static void discard_mr(struct vr_engine *e, void *object)
{
    struct vr_mr *mr = object;

    vr_pages_free(e, &mr->pages);
    free(mr);
}

/* What there is of each kind of object, in an order that users come last. */
static const struct kind {
    size_t table;               /* in struct vr_engine */
    size_t size;
    void (*io)(struct vr_io *io, struct vr_engine *e, void *object);
    bool (*attach)(struct vr_engine *e, uint32_t number, void *object);
    void (*discard)(struct vr_engine *e, void *object);
} kinds[] = {
    { offsetof(struct vr_engine, contexts), sizeof(struct vr_context),
      io_nothing, attach_context, discard_plain },
    { offsetof(struct vr_engine, pds), sizeof(struct vr_pd), io_nothing,
      attach_pd, discard_plain },
    { offsetof(struct vr_engine, eqs), sizeof(struct vr_eq), io_eq, attach_eq,
      discard_eq },
    { offsetof(struct vr_engine, cqs), sizeof(struct vr_cq), io_cq, attach_cq,
      discard_cq },
    { offsetof(struct vr_engine, srqs), sizeof(struct vr_srq), io_srq,
      attach_srq, discard_srq },
    { offsetof(struct vr_engine, mrs), sizeof(struct vr_mr), io_mr, attach_mr,
      discard_mr },
    { offsetof(struct vr_engine, qps), sizeof(struct vr_qp), vr_io_qp,
      vr_qp_attach, vr_qp_discard },
};

static struct vr_table *kind_table(struct vr_engine *e, const struct kind *k)
{
    return (struct vr_table *)((char *)e + k->table);
}

/* The kernel's context is part of the engine, not of the image. */
static bool in_image(const struct vr_engine *e, const void *object)
{
    return object && object != &e->kernel_context;
}

static void save_table(struct vr_io *io, struct vr_engine *e,
                       const struct kind *k)
{
    struct vr_table *t = kind_table(e, k);
    uint32_t count = t->used - (t == &e->contexts);

    VR_IO(io, t->hint);
    VR_IO(io, count);
    for (uint32_t i = 0; i < t->size && count; i++) {
        if (in_image(e, t->slot[i])) {
            VR_IO(io, i);
            k->io(io, e, t->slot[i]);
            count--;
        }
    }
}

static void load_table(struct vr_io *io, struct vr_engine *e,
                       const struct kind *k)
{
    struct vr_table *t = kind_table(e, k);
    uint32_t count = 0, number = 0;

    VR_IO(io, t->hint);
    VR_IO(io, count);
    io->failed |= t->hint > t->size;
    while (count-- && !io->failed) {
        void *object = calloc(1, k->size);

        if (!object) {
            io->failed = true;
            return;
        }
        VR_IO(io, number);
        k->io(io, e, object);
        if (io->failed || !number || !k->attach(e, number, object)) {
            io->failed = true;
            k->discard(e, object);
        }
    }
}

/* -------------------------------------------------------------- engine */

static void io_device(struct vr_io *io, struct vr_engine *e)
{
    VR_IO(io, e->enabled);
    VR_IO(io, e->link_up);
    VR_IO(io, e->tx_full);
    VR_IO(io, e->fatal);
    VR_IO(io, e->eq_overrun);
    VR_IO(io, e->netdev_qpn);
    VR_IO(io, e->netdev_flags);
    vr_io_bytes(io, e->netdev_mac, sizeof(e->netdev_mac));
    VR_IO(io, e->netdev_mtu);
    io->failed |= e->netdev_mtu < VR_MIN_MTU || e->netdev_mtu > e->cfg.max_mtu;
    for (uint32_t v = 0; v < VROCE_MAX_VECTORS; v++) {
        VR_IO(io, e->moderation[v].us);
        VR_IO(io, e->moderation[v].last);
        VR_IO(io, e->moderation[v].pending);
        vr_io_timer(io, &e->moderation[v].timer);
        io->failed |= e->moderation[v].pending && v >= e->cfg.num_vectors;
    }
    for (int i = 0; i < VROCE_CNT_NUM; i++) {
        VR_IO(io, e->counters[i]);
    }
}

static void io_gids(struct vr_io *io, struct vr_engine *e)
{
    VR_IO(io, e->gids_end);
    io->failed |= e->gids_end > e->cfg.num_gids;
    for (uint32_t i = 0; i < e->gids_end && !io->failed; i++) {
        VR_IO(io, e->gids[i].valid);
        vr_io_bytes(io, e->gids[i].gid, sizeof(e->gids[i].gid));
        vr_io_bytes(io, e->gids[i].mac, sizeof(e->gids[i].mac));
        VR_IO(io, e->gids[i].vlan);
    }
}

/* Those that are not zero: index and value, ended by index 0. */
static void io_variants(struct vr_io *io, struct vr_engine *e)
{
    uint32_t index = 0;

    for (uint32_t i = 1; !io->loading && i < e->cfg.num_mrs; i++) {
        if (e->mr_variants[i]) {
            VR_IO(io, i);
            VR_IO(io, e->mr_variants[i]);
        }
    }
    do {
        VR_IO(io, index);
        if (index >= e->cfg.num_mrs) {
            io->failed = true;
        } else if (index) {
            VR_IO(io, e->mr_variants[index]);
        }
    } while (index && !io->failed);
}

/* The image begins with what must agree; false: it does not. */
static bool io_header(struct vr_io *io, const struct vr_engine *e)
{
    uint64_t magic = MAGIC;
    bool same;

    VR_IO(io, magic);
    same = magic == MAGIC;
    for (size_t i = 0; i < vr_num_limits; i++) {
        uint64_t mine = vr_config_get(&e->cfg, &vr_limits[i]), value = mine;

        VR_IO(io, value);
        same &= value == mine;
    }
    return same && !io->failed;
}

static void io_rest(struct vr_io *io, struct vr_engine *e)
{
    io_device(io, e);
    io_gids(io, e);
    io_variants(io, e);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (io->failed) {
            return;
        }
        if (io->loading) {
            load_table(io, e, &kinds[i]);
        } else {
            save_table(io, e, &kinds[i]);
        }
    }
    vr_io_sched(io, e);
    vr_io_loop(io, e);
    vr_io_edge(io, e);
}

void *vr_save(const struct vr_engine *e, size_t *len)
{
    struct vr_io io = { .loading = false };

    /* The functions serve both ways; saving, they only read. */
    if (io_header(&io, e)) {
        io_rest(&io, (struct vr_engine *)e);
    }
    if (io.failed) {
        free(io.buf);
        return NULL;
    }
    *len = io.pos;
    return io.buf;
}

int vr_load(struct vr_engine *e, const void *image, size_t len, uint64_t now)
{
    struct vr_io io = {
        .buf = (uint8_t *)image, .len = len, .loading = true,
    };

    vr_engine_reset(e);
    e->now = now;
    if (io_header(&io, e)) {
        io_rest(&io, e);
    } else {
        io.failed = true;
    }
    if (io.failed || io.pos != len) {
        vr_engine_reset(e);
        return -EINVAL;
    }
    for (uint32_t v = 0; v < VROCE_MAX_VECTORS; v++) {
        vr_timer_attach(e, &e->moderation[v].timer);
    }
    if (e->enabled) {
        vr_kick(e);             /* there may be work */
    }
    return 0;
}
