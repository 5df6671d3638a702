/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Memory regions: the protection table. A key is index << 8 | variant. Each
 * allocation of an index takes the next variant, and a fast registration
 * brings its own, so that a stale key matches nothing.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "vr_internal.h"

#define ACCESS_ALL \
    (VROCE_ACCESS_LOCAL_WRITE | VROCE_ACCESS_REMOTE_WRITE | \
     VROCE_ACCESS_REMOTE_READ | VROCE_ACCESS_REMOTE_ATOMIC | \
     VROCE_ACCESS_MW_BIND | VROCE_ACCESS_ZERO_BASED)
#define ACCESS_WRITERS \
    (VROCE_ACCESS_LOCAL_WRITE | VROCE_ACCESS_REMOTE_WRITE | \
     VROCE_ACCESS_REMOTE_ATOMIC)

static struct vr_mr *mr_get(const struct vr_engine *e, uint32_t key)
{
    struct vr_mr *mr = vr_table_get(&e->mrs, key >> 8);

    return mr && mr->key == key ? mr : NULL;
}

/* IBA 10.6.3.1: remote write and atomics need local write. */
static bool access_ok(uint32_t access)
{
    return !(access & ~ACCESS_ALL) &&
           (!(access & ACCESS_WRITERS) || (access & VROCE_ACCESS_LOCAL_WRITE));
}

/* Do iova..iova+length and the pages agree? */
static bool range_ok(uint64_t iova, uint64_t length)
{
    return iova <= UINT64_MAX - length;
}

enum vroce_rule vr_mr_check(struct vr_engine *e, uint32_t key, uint32_t pdn,
                            uint64_t va, uint64_t len, uint32_t access,
                            struct vr_mr **out)
{
    struct vr_mr *mr = mr_get(e, key);

    if (!mr || !mr->valid) {
        return VROCE_RULE_KEY;
    }
    if (pdn != VROCE_NONE && mr->pdn != pdn) {
        return VROCE_RULE_KEY_PD;
    }
    if (access & ~mr->access) {
        return VROCE_RULE_KEY_ACCESS;
    }
    if (len && (va < mr->iova || va - mr->iova > mr->length ||
                len > mr->length - (va - mr->iova))) {
        return VROCE_RULE_KEY_RANGE;
    }
    *out = mr;
    return VROCE_RULE_NONE;
}

enum vroce_rule vr_mr_atomic(struct vr_engine *e, uint32_t key, uint32_t pdn,
                             uint64_t va, bool cmp_swap, uint64_t compare,
                             uint64_t swap_add, uint64_t *old)
{
    enum vroce_rule rule;
    struct vr_mr *mr;
    uint64_t run, iova;

    rule = vr_mr_check(e, key, pdn, va, 8, VROCE_ACCESS_REMOTE_ATOMIC, &mr);
    if (rule) {
        return rule;
    }
    iova = vr_pages_iova(&mr->pages, va - mr->iova, 8, &run);
    if (run < 8 || iova & 7) {
        return VROCE_RULE_KEY_RANGE;
    }
    if (mr->kind == VROCE_MR_DEVMEM) {
        uint64_t *p = (uint64_t *)(e->ops->devmem(e->host) + iova);

        *old = compare;
        if (!cmp_swap) {
            *old = __atomic_fetch_add(p, swap_add, __ATOMIC_SEQ_CST);
        } else {
            __atomic_compare_exchange_n(p, old, swap_add, false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        }
        return VROCE_RULE_NONE;
    }
    if (e->ops->mem_atomic(e->host, iova, cmp_swap, compare, swap_add, old)) {
        return VROCE_RULE_MEM_DMA;
    }
    return VROCE_RULE_NONE;
}

enum vroce_rule vr_mr_fast_reg(struct vr_engine *e, uint32_t pdn,
                               const struct vroce_wqe_fast_reg *seg)
{
    uint32_t key = le32toh(seg->key), access = le32toh(seg->access);
    struct vr_mr *mr = vr_table_get(&e->mrs, key >> 8);
    uint16_t rule = VROCE_RULE_NONE;

    if (!mr || mr->kind != VROCE_MR_FAST) {
        return VROCE_RULE_KEY;
    }
    if (mr->pdn != pdn) {
        return VROCE_RULE_KEY_PD;
    }
    /* IBA 10.6.4.3: the region must be free, that is, invalidated. */
    if (mr->valid || !access_ok(access)) {
        return VROCE_RULE_KEY_ACCESS;
    }
    if (!range_ok(le64toh(seg->iova), le64toh(seg->buf.length)) ||
        !seg->buf.levels) {
        return VROCE_RULE_KEY_RANGE;
    }
    /* max_pages fit one slice, so that AGAIN cannot come. */
    if (vr_pages_load(e, &mr->pages, &seg->buf, access & ACCESS_WRITERS,
                      &rule)) {
        return rule ? rule : VROCE_RULE_PAGE_LIST;
    }
    mr->key = key;
    mr->access = access;
    mr->iova = le64toh(seg->iova);
    mr->length = mr->pages.length;
    mr->valid = true;
    return VROCE_RULE_NONE;
}

enum vroce_rule vr_mr_invalidate(struct vr_engine *e, uint32_t pdn,
                                 uint32_t key)
{
    struct vr_mr *mr = mr_get(e, key);

    if (!mr || !mr->valid) {
        return VROCE_RULE_KEY;
    }
    if (mr->pdn != pdn) {
        return VROCE_RULE_KEY_PD;
    }
    /* IBA 10.6.5: only what a work request registered. */
    if (mr->kind != VROCE_MR_FAST) {
        return VROCE_RULE_KEY_ACCESS;
    }
    mr->valid = false;
    return VROCE_RULE_NONE;
}

bool vr_mr_sane(const struct vr_engine *e, const struct vr_mr *mr)
{
    const struct vr_pages *p = &mr->pages;
    bool in_use = mr->valid && mr->kind != VROCE_MR_DMA;

    if (!access_ok(mr->access) || !range_ok(mr->iova, mr->length) ||
        (in_use && (p->length != mr->length ||
                    (mr->access & ACCESS_WRITERS && !p->writable)))) {
        return false;
    }
    switch (mr->kind) {
    case VROCE_MR_MEM:
        return mr->valid;
    case VROCE_MR_DMA:
        return mr->valid && p->contiguous && !p->base && !mr->iova &&
               p->length == UINT64_MAX && mr->length == UINT64_MAX;
    case VROCE_MR_FAST:
        return mr->max_pages && mr->max_pages <= VR_MAX_FAST_REG_PAGES &&
               p->room == mr->max_pages && !p->contiguous;
    case VROCE_MR_DEVMEM:
        return mr->valid && e->ops->devmem && p->contiguous &&
               p->base <= e->cfg.devmem_size &&
               p->length <= e->cfg.devmem_size - p->base;
    default:
        return false;
    }
}

/* ----------------------------------------------------------- commands */

/* What kind, buf and access of a new or updated region must obey. */
static int mr_check_in(struct vr_engine *e, struct vr_cmd_ctx *c,
                       const struct vroce_create_mr_in *in)
{
    uint64_t addr = le64toh(in->buf.addr), length = le64toh(in->buf.length);

    if (!access_ok(le32toh(in->access)) || in->kind > VROCE_MR_DEVMEM ||
        !range_ok(le64toh(in->iova), length)) {
        return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    }
    if (in->kind == VROCE_MR_FAST) {
        uint32_t max = le32toh(in->max_pages);

        if (!max || max > VR_MAX_FAST_REG_PAGES) {
            return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
        }
    } else if (in->max_pages) {
        return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    }
    if (in->kind == VROCE_MR_DEVMEM) {
        if (!e->cfg.devmem_size || !e->ops->devmem) {
            return VROCE_ERR_UNSUPPORTED;
        }
        if (in->buf.levels || addr > e->cfg.devmem_size ||
            length > e->cfg.devmem_size - addr) {
            return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
        }
    }
    return VROCE_OK;
}

/* Read the page list of a region of kind MEM or DEVMEM. */
static int mr_load(struct vr_engine *e, struct vr_cmd_ctx *c,
                   const struct vroce_create_mr_in *in)
{
    return vr_cmd_pages(e, c, &in->buf, le32toh(in->access) & ACCESS_WRITERS);
}

static int mr_fill(struct vr_engine *e, struct vr_mr *mr,
                   const struct vroce_create_mr_in *in)
{
    mr->kind = in->kind;
    mr->access = le32toh(in->access);
    mr->iova = le64toh(in->iova);
    mr->valid = in->kind != VROCE_MR_FAST;
    switch (in->kind) {
    case VROCE_MR_DMA:
        mr->iova = 0;
        mr->length = UINT64_MAX;
        mr->pages = (struct vr_pages) {
            .length = UINT64_MAX, .contiguous = true, .writable = true,
        };
        return VROCE_OK;
    case VROCE_MR_FAST:
        mr->max_pages = le32toh(in->max_pages);
        return vr_pages_reserve(e, &mr->pages, mr->max_pages);
    default:
        vr_pages_take(e, &mr->pages);
        mr->length = mr->pages.length;
        return VROCE_OK;
    }
}

int vr_cmd_create_mr(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_create_mr_in *in = c->in;
    struct vroce_number *out = c->out;
    uint32_t pdn = le32toh(in->pdn), index;
    struct vr_mr *mr;
    int status;

    status = mr_check_in(e, c, in);
    if (!status) {
        status = vr_pd_hold_mr(e, pdn, in->kind == VROCE_MR_DMA, &c->rule);
    }
    if (status) {
        return status;
    }
    if (in->kind == VROCE_MR_MEM || in->kind == VROCE_MR_DEVMEM) {
        status = mr_load(e, c, in);
    }
    mr = status ? NULL : calloc(1, sizeof(*mr));
    index = mr ? vr_table_alloc(&e->mrs, mr) : VROCE_NONE;
    if (index == VROCE_NONE) {
        free(mr);
        vr_pd_release_mr(e, pdn, in->kind == VROCE_MR_DMA);
        return status ? status : VROCE_ERR_NO_RESOURCES;
    }
    mr->key = index << 8 | ++e->mr_variants[index];
    mr->pdn = pdn;
    status = mr_fill(e, mr, in);
    if (status) {
        vr_mr_destroy(e, mr);
        return status;
    }
    out->number = htole32(mr->key);
    return VROCE_OK;
}

void vr_mr_destroy(struct vr_engine *e, struct vr_mr *mr)
{
    vr_pd_release_mr(e, mr->pdn, mr->kind == VROCE_MR_DMA);
    vr_table_remove(&e->mrs, mr->key >> 8);
    e->mr_variants[mr->key >> 8] = mr->key;     /* a fast region's is its own */
    vr_pages_free(e, &mr->pages);
    free(mr);
}

int vr_cmd_destroy_mr(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_number *in = c->in;
    uint32_t key = le32toh(in->number);
    struct vr_mr *mr = vr_table_get(&e->mrs, key >> 8);

    /* Who owns a fast region may not know the variant that is on it now. */
    if (!mr || (mr->key != key && mr->kind != VROCE_MR_FAST)) {
        return vr_refuse(c, VROCE_ERR_NUMBER, VROCE_RULE_NO_OBJECT);
    }
    vr_mr_destroy(e, mr);
    return VROCE_OK;
}

#define UPDATE_ALL \
    (VROCE_MR_UPDATE_PAGES | VROCE_MR_UPDATE_PD | VROCE_MR_UPDATE_ACCESS)

int vr_cmd_update_mr(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_update_mr_in *in = c->in;
    struct vr_mr *mr = mr_get(e, le32toh(in->key));
    uint32_t mask = le32toh(in->mask), pdn = le32toh(in->mr.pdn);
    struct vroce_create_mr_in want = in->mr;
    int status;

    if (!mr) {
        return vr_refuse(c, VROCE_ERR_NUMBER, VROCE_RULE_NO_OBJECT);
    }
    if (mr->kind != VROCE_MR_MEM || in->mr.kind != VROCE_MR_MEM ||
        !mask || mask & ~UPDATE_ALL) {
        return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    }
    if (!(mask & VROCE_MR_UPDATE_ACCESS)) {
        want.access = htole32(mr->access);
    }
    status = mr_check_in(e, c, &want);
    if (status) {
        return status;
    }
    if (mask & VROCE_MR_UPDATE_PAGES) {
        status = mr_load(e, c, &want);
    } else if (le32toh(want.access) & ACCESS_WRITERS && !mr->pages.writable) {
        status = vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_PAGE_LIST);
    }
    if (!status && mask & VROCE_MR_UPDATE_PD) {
        status = vr_pd_hold_mr(e, pdn, false, &c->rule);
    }
    if (status) {
        return status;
    }
    if (mask & VROCE_MR_UPDATE_PD) {
        vr_pd_release_mr(e, mr->pdn, false);
        mr->pdn = pdn;
    }
    if (mask & VROCE_MR_UPDATE_PAGES) {
        vr_pages_free(e, &mr->pages);
        vr_pages_take(e, &mr->pages);
        mr->iova = le64toh(want.iova);
        mr->length = mr->pages.length;
    }
    mr->access = le32toh(want.access);
    return VROCE_OK;
}

bool vr_query_mr(const struct vr_engine *e, uint32_t index,
                 struct vr_mr_info *out)
{
    const struct vr_mr *mr = vr_table_get(&e->mrs, index);

    if (!mr) {
        return false;
    }
    *out = (struct vr_mr_info) {
        .key = mr->key, .pdn = mr->pdn, .access = mr->access,
        .iova = mr->iova, .length = mr->length, .pages = mr->pages.npages,
        .page_shift = mr->pages.shift, .kind = mr->kind, .valid = mr->valid,
    };
    return true;
}
