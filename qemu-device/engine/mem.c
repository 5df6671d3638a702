/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Guest memory: page lists, and copies between what work requests name.
 *
 * A page list is copied entry by entry and the copy is checked: nothing of it
 * is read twice. No mapping is kept beyond one copy.
 */
#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "vr_internal.h"

#define CHUNK           VROCE_PTES_PER_PAGE
#define SLICE_CHUNKS    8       /* of a page list read before others' turn */
#define MAX_LENGTH      (1ull << 62)
#define LINE            64u     /* bytes of a cache line */
#define MAX_PIECES      16      /* of one mapping */

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* --------------------------------------------------------- page lists */

int vr_pages_reserve(struct vr_engine *e, struct vr_pages *p, uint64_t npages)
{
    if (npages > e->cfg.num_pages - e->pages_used) {
        return VROCE_ERR_NO_RESOURCES;
    }
    p->chunks = calloc((npages + CHUNK - 1) / CHUNK, sizeof(*p->chunks));
    if (!p->chunks) {
        return VROCE_ERR_NO_RESOURCES;
    }
    p->room = npages;
    e->pages_used += npages;
    return VROCE_OK;
}

void vr_pages_free(struct vr_engine *e, struct vr_pages *p)
{
    for (uint64_t c = 0; c * CHUNK < p->room; c++) {
        free(p->chunks[c]);
    }
    free(p->chunks);
    e->pages_used -= p->room;
    memset(p, 0, sizeof(*p));
}

void vr_pages_clear(struct vr_pages *p)
{
    *p = (struct vr_pages) { .room = p->room, .chunks = p->chunks };
}

static int refuse(uint16_t *rule, enum vroce_rule why, enum vroce_status status)
{
    *rule = why;
    return status;
}

/* Check buf and set p up for its entries. */
static int pages_begin(struct vr_engine *e, struct vr_pages *p,
                       const struct vroce_buf *buf, uint16_t *rule)
{
    static const uint64_t most[] = {
        0, MAX_LENGTH, CHUNK * CHUNK, (uint64_t)CHUNK * CHUNK * CHUNK
    };
    uint64_t addr = le64toh(buf->addr), length = le64toh(buf->length);
    uint32_t offset = le32toh(buf->offset);
    uint64_t npages;

    if (buf->levels > 3 || length > MAX_LENGTH) {
        return refuse(rule, VROCE_RULE_CMD_PARAM, VROCE_ERR_PARAM);
    }
    p->length = length;
    if (!buf->levels) {
        if (offset || addr > UINT64_MAX - length) {
            return refuse(rule, VROCE_RULE_CMD_PARAM, VROCE_ERR_PARAM);
        }
        p->base = addr;
        p->contiguous = p->writable = true;
        return VROCE_OK;
    }
    if (buf->page_shift < 12 || buf->page_shift > 31 ||
        offset >> buf->page_shift) {
        return refuse(rule, VROCE_RULE_CMD_PARAM, VROCE_ERR_PARAM);
    }
    npages = length ? ((offset + length - 1) >> buf->page_shift) + 1 : 0;
    if (npages > most[buf->levels]) {
        return refuse(rule, VROCE_RULE_PAGE_LIST, VROCE_ERR_PARAM);
    }
    if (addr & (buf->levels == 1 ? 7 : ~VROCE_PTE_ADDR_MASK)) {
        return refuse(rule, VROCE_RULE_PAGE_LIST, VROCE_ERR_PARAM);
    }
    if (npages > p->room) {
        int status = p->room ? VROCE_ERR_NO_RESOURCES :
                               vr_pages_reserve(e, p, npages);
        if (status) {
            return status;
        }
    }
    if (buf->levels == 1 && addr > UINT64_MAX - npages * 8) {
        return refuse(rule, VROCE_RULE_PAGE_LIST, VROCE_ERR_PARAM);
    }
    p->offset = offset;
    p->shift = buf->page_shift;
    p->npages = npages;
    p->loaded = 0;              /* a fast region's list is loaded again */
    p->writable = true;
    p->loading = true;
    return VROCE_OK;
}

bool vr_pte_ok(uint64_t pte, uint64_t page_size)
{
    uint64_t zero = (page_size - 1) & ~(VROCE_PTE_VALID | VROCE_PTE_WRITE);

    return (pte & VROCE_PTE_VALID) && !(pte & zero);
}

uint64_t *vr_pages_entry_room(struct vr_pages *p, uint64_t index)
{
    uint64_t c = index / CHUNK;

    if (!p->chunks[c]) {
        p->chunks[c] = calloc(min_u64(CHUNK, p->room - c * CHUNK),
                              sizeof(uint64_t));
    }
    return p->chunks[c] ? &p->chunks[c][index % CHUNK] : NULL;
}

/* Follow one pointer of a list of several levels. */
static int pages_pointer(struct vr_engine *e, uint64_t *addr, uint64_t index,
                         uint16_t *rule)
{
    uint64_t ptr;

    if (e->ops->mem_rw(e->host, *addr + 8 * index, &ptr, sizeof(ptr), false)) {
        return refuse(rule, VROCE_RULE_CMD_DMA, VROCE_ERR_DMA);
    }
    ptr = le64toh(ptr);
    if (!vr_pte_ok(ptr, ~VROCE_PTE_ADDR_MASK + 1)) {
        return refuse(rule, VROCE_RULE_PAGE_LIST, VROCE_ERR_PARAM);
    }
    *addr = ptr & VROCE_PTE_ADDR_MASK;
    return VROCE_OK;
}

/* Read the next chunk of entries; p->loaded is a multiple of CHUNK. */
static int pages_load_chunk(struct vr_engine *e, struct vr_pages *p,
                            const struct vroce_buf *buf, bool writable,
                            uint16_t *rule)
{
    uint64_t c = p->loaded / CHUNK, addr = le64toh(buf->addr);
    uint32_t num = min_u64(CHUNK, p->npages - p->loaded);
    int status = VROCE_OK;
    uint64_t *pte;

    if (buf->levels == 1) {
        addr += 8 * p->loaded;
    } else if (buf->levels == 2) {
        status = pages_pointer(e, &addr, c, rule);
    } else {
        status = pages_pointer(e, &addr, c / CHUNK, rule);
        if (!status) {
            status = pages_pointer(e, &addr, c % CHUNK, rule);
        }
    }
    if (status) {
        return status;
    }
    pte = vr_pages_entry_room(p, p->loaded);
    if (!pte) {
        return VROCE_ERR_NO_RESOURCES;
    }
    if (e->ops->mem_rw(e->host, addr, pte, num * 8, false)) {
        return refuse(rule, VROCE_RULE_CMD_DMA, VROCE_ERR_DMA);
    }
    for (uint32_t i = 0; i < num; i++) {
        pte[i] = le64toh(pte[i]);
        p->writable &= !!(pte[i] & VROCE_PTE_WRITE);
        if (!vr_pte_ok(pte[i], 1ull << p->shift) ||
            (writable && !p->writable)) {
            return refuse(rule, VROCE_RULE_PAGE_LIST, VROCE_ERR_PARAM);
        }
    }
    p->loaded += num;
    return VROCE_OK;
}

int vr_pages_load(struct vr_engine *e, struct vr_pages *p,
                  const struct vroce_buf *buf, bool writable, uint16_t *rule)
{
    int status = VROCE_OK;

    if (!p->loading) {
        status = pages_begin(e, p, buf, rule);
    }
    for (int i = 0; !status && p->loaded < p->npages; i++) {
        if (i == SLICE_CHUNKS) {
            return VR_CMD_AGAIN;
        }
        status = pages_load_chunk(e, p, buf, writable, rule);
    }
    p->loading = false;
    if (status) {
        vr_pages_clear(p);
    }
    return status;
}

static inline uint64_t pages_entry(const struct vr_pages *p, uint64_t page)
{
    return p->chunks[page / CHUNK][page % CHUNK] & VROCE_PTE_ADDR_MASK;
}

uint64_t vr_pages_iova(const struct vr_pages *p, uint64_t off, uint64_t max,
                       uint64_t *run)
{
    uint64_t size, page, addr, end, n;

    max = min_u64(max, p->length - off);
    if (p->contiguous) {
        *run = max;
        return p->base + off;
    }
    size = 1ull << p->shift;
    page = (off + p->offset) >> p->shift;
    addr = pages_entry(p, page) + ((off + p->offset) & (size - 1));
    end = pages_entry(p, page) + size;
    n = end - addr;
    while (n < max && pages_entry(p, ++page) == end) {
        end += size;
        n += size;
    }
    *run = min_u64(n, max);
    return addr;
}

int vr_pages_rw(struct vr_engine *e, const struct vr_pages *p, uint64_t off,
                void *buf, uint32_t len, bool write)
{
    uint8_t *bytes = buf;

    while (len) {
        uint64_t run, iova = vr_pages_iova(p, off, len, &run);

        if (e->ops->mem_rw(e->host, iova, bytes, run, write)) {
            return -EFAULT;
        }
        off += run;
        bytes += run;
        len -= run;
    }
    return 0;
}

int vr_pages_publish(struct vr_engine *e, const struct vr_pages *p,
                     uint64_t off, const void *entry, uint32_t len)
{
    uint32_t body = len - sizeof(uint32_t), phase;
    uint64_t run, iova = vr_pages_iova(p, off, len, &run);
    struct iovec iov;

    if (e->ops->mem_map(e->host, iova, len, true, &iov, 1) != 1) {
        return -EFAULT;
    }
    if (iov.iov_len < len) {    /* an entry crosses no page */
        e->ops->mem_done(e->host, &iov, 1, false);
        return -EFAULT;
    }
    memcpy(iov.iov_base, entry, body);
    memcpy(&phase, (const uint8_t *)entry + body, sizeof(phase));
    __atomic_store_n((uint32_t *)((uint8_t *)iov.iov_base + body), phase,
                     __ATOMIC_RELEASE);
    e->ops->mem_done(e->host, &iov, 1, true);
    return 0;
}

bool vr_ring_fits(const struct vroce_buf *buf, uint64_t off, uint64_t size,
                  uint32_t rec_off)
{
    uint64_t length = le64toh(buf->length);
    uint64_t start = buf->levels ? le32toh(buf->offset) : le64toh(buf->addr);

    /* Entries may cross no page, and their stores must be aligned. */
    if ((start | off) & 63 || size > length || off > length - size) {
        return false;
    }
    if (rec_off == VR_NO_RECORD) {
        return true;
    }
    return !(rec_off & 7) &&
           rec_off + (uint64_t)sizeof(struct vroce_db_record) <= length &&
           (rec_off >= off + size ||
            rec_off + sizeof(struct vroce_db_record) <= off);
}

/* ------------------------------------------------------------- copies */

uint64_t vr_sgl_length(const struct vr_sgl *sgl)
{
    uint64_t length = 0;

    for (int i = 0; i < sgl->num; i++) {
        length += sgl->sge[i].length;
    }
    return length;
}

/* A walk through the bytes of a view, one mapping at a time. */
struct walk {
    const struct vr_view *view;
    uint64_t off;               /* of the first byte not mapped yet */
    uint64_t mapped;            /* bytes mapped and not taken yet */
    bool write, done_due;
    int num, next;
    size_t pos;                 /* in iov[next] */
    struct iovec iov[MAX_PIECES];
};

static void walk_unmap(struct walk *w)
{
    const struct vr_engine *e = w->view->e;

    if (w->done_due) {
        e->ops->mem_done(e->host, w->iov, w->num, w->write);
        w->done_due = false;
    }
}

static enum vroce_rule walk_map_mr(struct walk *w, const struct vr_mr *mr,
                                   uint64_t va, uint64_t len)
{
    const struct vr_engine *e = w->view->e;
    uint64_t run, iova = vr_pages_iova(&mr->pages, va - mr->iova, len, &run);

    if (mr->kind == VROCE_MR_DEVMEM) {
        w->iov[0].iov_base = e->ops->devmem(e->host) + iova;
        w->iov[0].iov_len = run;
        w->num = 1;
        return VROCE_RULE_NONE;
    }
    w->num = e->ops->mem_map(e->host, iova, run, w->write, w->iov, MAX_PIECES);
    w->done_due = w->num > 0;
    return w->done_due ? VROCE_RULE_NONE : VROCE_RULE_MEM_DMA;
}

static enum vroce_rule walk_map_sgl(struct walk *w, uint64_t len)
{
    const struct vr_sgl *sgl = &w->view->sgl;
    uint64_t off = w->off;
    enum vroce_rule rule;
    struct vr_mr *mr;
    int i = 0;

    while (i < sgl->num && off >= sgl->sge[i].length) {
        off -= sgl->sge[i++].length;
    }
    if (i == sgl->num) {
        return VROCE_RULE_WQE_LENGTH;
    }
    len = min_u64(len, sgl->sge[i].length - off);
    rule = vr_mr_check(w->view->e, sgl->sge[i].lkey, sgl->pdn,
                       sgl->sge[i].addr + off, len,
                       w->write ? VROCE_ACCESS_LOCAL_WRITE : 0, &mr);
    return rule ? rule : walk_map_mr(w, mr, sgl->sge[i].addr + off, len);
}

/* Map up to len more bytes; what was mapped before is used up. */
static enum vroce_rule walk_map(struct walk *w, uint64_t len)
{
    const struct vr_view *view = w->view;
    enum vroce_rule rule = VROCE_RULE_NONE;
    struct vr_mr *mr;

    walk_unmap(w);
    switch (view->kind) {
    case VR_VIEW_BYTES:
        w->iov[0].iov_base = view->bytes + w->off;
        w->iov[0].iov_len = len;
        w->num = 1;
        break;
    case VR_VIEW_SGL:
        rule = walk_map_sgl(w, len);
        break;
    case VR_VIEW_MR:
        rule = vr_mr_check(view->e, view->mr.key, view->mr.pdn,
                           view->mr.va + w->off, len, view->mr.access, &mr);
        if (!rule) {
            rule = walk_map_mr(w, mr, view->mr.va + w->off, len);
        }
        break;
    }
    if (rule) {
        return rule;
    }
    w->next = 0;
    w->pos = 0;
    for (int i = 0; i < w->num; i++) {
        w->mapped += w->iov[i].iov_len;
    }
    w->off += w->mapped;
    return w->mapped ? VROCE_RULE_NONE : VROCE_RULE_MEM_DMA;
}

static inline uint8_t *walk_ptr(const struct walk *w)
{
    return (uint8_t *)w->iov[w->next].iov_base + w->pos;
}

static inline void walk_advance(struct walk *w, size_t n)
{
    w->mapped -= n;
    w->pos += n;
    if (w->pos == w->iov[w->next].iov_len) {
        w->next++;
        w->pos = 0;
    }
}

/*
 * The end of a copy into guest memory: programs poll the last byte of a WRITE
 * and take all before it for written, but memmove() promises no order. So the
 * last cache line goes last, word by word in ascending order.
 */
static void copy_last(uint8_t *dst, const uint8_t *src, size_t len)
{
    uintptr_t end = (uintptr_t)dst + len;
    size_t head = len > LINE ? ((end - 1) & ~(uintptr_t)(LINE - 1)) -
                               (uintptr_t)dst : 0;

    memmove(dst, src, head);
    while (head < len) {
        if (!((uintptr_t)(dst + head) & 7) && len - head >= 8) {
            uint64_t word;

            memcpy(&word, src + head, sizeof(word));
            __atomic_store_n((uint64_t *)(dst + head), word, __ATOMIC_RELEASE);
            head += 8;
        } else {
            __atomic_store_n(dst + head, src[head], __ATOMIC_RELEASE);
            head++;
        }
    }
}

/* May every entry that holds one of these bytes be read? */
static enum vroce_rule check_source(const struct vr_view *view, uint64_t off,
                                    uint64_t len)
{
    const struct vr_sgl *sgl = &view->sgl;
    enum vroce_rule rule = VROCE_RULE_NONE;
    struct vr_mr *mr;

    for (int i = 0; len && !rule && i < sgl->num; i++) {
        uint64_t n = sgl->sge[i].length;

        if (off >= n) {
            off -= n;
            continue;
        }
        n = min_u64(len, n - off);
        rule = vr_mr_check(view->e, sgl->sge[i].lkey, sgl->pdn,
                           sgl->sge[i].addr + off, n, 0, &mr);
        off = 0;
        len -= n;
    }
    return rule;
}

enum vroce_rule vr_copy(const struct vr_view *dst, uint64_t dst_off,
                        const struct vr_view *src, uint64_t src_off,
                        uint64_t len, bool *src_failed)
{
    struct walk to, from;
    enum vroce_rule rule = VROCE_RULE_NONE;

    to = (struct walk) {
        .view = dst, .off = dst->off + dst_off, .write = true,
    };
    from = (struct walk) { .view = src, .off = src->off + src_off };
    *src_failed = false;
    /*
     * A packet that cannot be formed reaches nobody: by reference, too, no
     * byte of it may arrive before its last entry is found wanting.
     */
    if (src->kind == VR_VIEW_SGL && src->sgl.num > 1 &&
        dst->kind != VR_VIEW_BYTES) {
        rule = check_source(src, src->off + src_off, len);
        *src_failed = rule != VROCE_RULE_NONE;
        len = rule ? 0 : len;
    }
    while (len) {
        size_t n;

        if (!from.mapped) {
            rule = walk_map(&from, len);
            if (rule) {
                *src_failed = true;
                break;
            }
        }
        /* Never more than can be filled: all that is mapped gets written. */
        if (!to.mapped) {
            rule = walk_map(&to, from.mapped);
            if (rule) {
                break;
            }
        }
        n = min_u64(to.iov[to.next].iov_len - to.pos,
                    from.iov[from.next].iov_len - from.pos);
        if (n == len && dst->kind != VR_VIEW_BYTES) {
            copy_last(walk_ptr(&to), walk_ptr(&from), n);
        } else {
            memmove(walk_ptr(&to), walk_ptr(&from), n);
        }
        walk_advance(&to, n);
        walk_advance(&from, n);
        len -= n;
    }
    walk_unmap(&to);
    walk_unmap(&from);
    return rule;
}
