/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Page lists of every depth and page size, and copies between what work
 * requests name, against plain models.
 */
#include <endian.h>
#include <string.h>

#include "driver.h"
#include "vr_internal.h"

#define RW (VROCE_ACCESS_LOCAL_WRITE | VROCE_ACCESS_REMOTE_WRITE | \
            VROCE_ACCESS_REMOTE_READ)

/* -------------------------------------------------------- page lists */

/* A list of entries that lead nowhere: enough to translate by. */
struct list {
    uint64_t *entry;            /* page addresses, as the model */
    uint64_t n;
    struct vroce_buf buf;
};

static uint64_t write_entries(struct fakehost *h, const uint64_t *entries,
                              uint64_t n, uint64_t flags)
{
    uint64_t addr = fh_alloc(h, n * 8, FH_PAGE_SIZE);
    uint64_t *at = fh_ptr(h, addr, n * 8);

    for (uint64_t i = 0; i < n; i++) {
        at[i] = htole64(entries[i] | flags);
    }
    return addr;
}

static void list_init(struct list *l, struct fakehost *h, uint64_t len,
                      uint8_t levels, uint8_t shift, uint32_t offset)
{
    uint64_t n = ((offset + len - 1) >> shift) + 1, *entries;
    uint64_t flags = VROCE_PTE_VALID | VROCE_PTE_WRITE;

    l->entry = g_new(uint64_t, n);
    l->n = n;
    for (uint64_t i = 0; i < n; i++) {
        /* Runs of neighbours, and jumps. */
        l->entry[i] = i && g_rand_int(h->rand) & 3 ?
                      l->entry[i - 1] + (1ull << shift) :
                      (uint64_t)(g_rand_int(h->rand) & 0xffffff) << shift;
    }
    l->buf = (struct vroce_buf) {
        .length = htole64(len), .offset = htole32(offset),
        .page_shift = shift, .levels = levels,
    };
    entries = g_memdup2(l->entry, n * 8);
    for (; levels > 1; levels--) {
        uint64_t up = (n + 511) / 512, *above = g_new(uint64_t, up);

        for (uint64_t i = 0; i < up; i++) {
            above[i] = write_entries(h, entries + i * 512,
                                     MIN(512, n - i * 512), flags);
        }
        g_free(entries);
        entries = above;
        n = up;
        flags = VROCE_PTE_VALID;
    }
    l->buf.addr = htole64(write_entries(h, entries, n, flags));
    g_free(entries);
}

static int load(struct fakehost *h, struct vr_pages *p,
                const struct vroce_buf *buf, bool writable, uint16_t *rule,
                uint32_t *slices)
{
    int status;

    *slices = 0;
    *rule = 0;
    h->entered = true;
    do {
        status = vr_pages_load(h->e, p, buf, writable, rule);
        ++*slices;
    } while (status == VR_CMD_AGAIN);
    h->entered = false;
    return status;
}

static void check_translation(struct fakehost *h, const struct list *l,
                              const struct vr_pages *p, uint64_t off)
{
    uint64_t size = 1ull << l->buf.page_shift;
    uint64_t at = off + le32toh(l->buf.offset), page = at / size;
    uint64_t max = g_rand_int(h->rand) & 1 ? UINT64_MAX :
                   1 + g_rand_int(h->rand) % (4 * size);
    uint64_t iova, run, want = size - at % size;

    iova = vr_pages_iova(p, off, max, &run);
    g_assert_cmphex(iova, ==, l->entry[page] + at % size);
    while (page + 1 < l->n && l->entry[page + 1] == l->entry[page] + size) {
        page++;
        want += size;
    }
    g_assert_cmpuint(run, ==, MIN(MIN(want, max), p->length - off));
}

static void check_list(struct fakehost *h, uint64_t len, uint8_t levels,
                       uint8_t shift, uint32_t offset)
{
    struct vr_pages p = { 0 };
    struct list l;
    uint32_t slices;
    uint16_t rule;

    list_init(&l, h, len, levels, shift, offset);
    g_assert_cmpint(load(h, &p, &l.buf, true, &rule, &slices), ==, VROCE_OK);
    /* Others had their turn in between. */
    g_assert_cmpuint(slices, ==, MAX(1, (l.n + 4095) / 4096));
    g_assert_cmpuint(h->e->pages_used, ==, l.n);
    g_assert_cmpuint(p.length, ==, len);
    check_translation(h, &l, &p, 0);
    check_translation(h, &l, &p, len - 1);
    check_translation(h, &l, &p, len / 2);
    for (int i = 0; i < 2000; i++) {
        uint64_t any = (uint64_t)g_rand_int(h->rand) << 32 |
                       g_rand_int(h->rand);

        check_translation(h, &l, &p, any % len);
    }
    vr_pages_free(h->e, &p);
    g_assert_cmpuint(h->e->pages_used, ==, 0);
    g_free(l.entry);
}

static void test_translation(void)
{
    static const uint64_t lengths[] = {
        1, 63, 4095, 4096, 4097, 1 << 16, (1 << 21) - 1, 1 << 21, 50 << 20,
        1ull << 30, (1ull << 30) + 1, 8ull << 30,
    };

    for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++) {
        /* A host a length: lists are never given back to it. */
        struct fakehost *h = fh_new(NULL, i);

        for (uint8_t levels = 1; levels <= 3; levels++) {
            for (uint8_t shift = 12; shift <= 31; shift++) {
                uint64_t n = (lengths[i] >> shift) + 2;
                uint32_t mask = (1u << shift) - 1;

                if (n > (levels == 2 ? 512 * 512 : 1ull << 22)) {
                    continue;
                }
                check_list(h, lengths[i], levels, shift, 0);
                check_list(h, lengths[i], levels, shift,
                           g_rand_int(h->rand) & mask);
            }
        }
        fh_free(h);
    }
}

static void test_contiguous(void)
{
    struct fakehost *h = fh_new(NULL, 1);
    struct vroce_buf buf = {
        .addr = htole64(0x123456789), .length = htole64(1000),
    };
    struct vr_pages p = { 0 };
    uint32_t slices;
    uint16_t rule;
    uint64_t run;

    g_assert_cmpint(load(h, &p, &buf, true, &rule, &slices), ==, VROCE_OK);
    g_assert_cmphex(vr_pages_iova(&p, 999, 5000, &run), ==, 0x123456789 + 999);
    g_assert_cmpuint(run, ==, 1);
    g_assert_cmpuint(h->e->pages_used, ==, 0);
    vr_pages_free(h->e, &p);
    fh_free(h);
}

struct refusal {
    int status;
    uint16_t rule;
};

static const struct refusal
    param = { VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM },
    list = { VROCE_ERR_PARAM, VROCE_RULE_PAGE_LIST },
    dma = { VROCE_ERR_DMA, VROCE_RULE_CMD_DMA },
    none_left = { VROCE_ERR_NO_RESOURCES, VROCE_RULE_NONE };

static void check_refused(struct fakehost *h, const struct vroce_buf *buf,
                          struct refusal how)
{
    struct vr_pages p = { 0 };
    uint32_t slices;
    uint16_t rule;

    g_assert_cmpint(load(h, &p, buf, true, &rule, &slices), ==, how.status);
    g_assert_cmpint(rule, ==, how.rule);
    vr_pages_free(h->e, &p);
    g_assert_cmpuint(h->e->pages_used, ==, 0);
}

/* What a guest may get wrong, on purpose or not. */
static void test_refusals(void)
{
    struct fakehost *h = fh_new(NULL, 2);
    struct list l1, l2, l3;
    struct vroce_buf good1, good2, good3;
    uint64_t *entry, nowhere = FH_MEM_BASE + FH_MEM_SIZE;

    list_init(&l1, h, 8 << 20, 1, 12, 5);
    list_init(&l2, h, 8 << 20, 2, 12, 5);
    list_init(&l3, h, 8 << 20, 3, 12, 5);
    good1 = l1.buf;
    good2 = l2.buf;
    good3 = l3.buf;

#define REFUSED(change, good, how) \
    do { \
        struct vroce_buf b = good; \
        change; \
        check_refused(h, &b, how); \
    } while (0)

    REFUSED(b.levels = 4, good1, param);
    REFUSED(b.levels = 255, good1, param);
    REFUSED(b.page_shift = 11, good1, param);
    REFUSED(b.page_shift = 32, good1, param);
    REFUSED(b.page_shift = 255, good1, param);
    REFUSED(b.offset = htole32(4096), good1, param);
    REFUSED(b.offset = htole32(UINT32_MAX), good1, param);
    REFUSED(b.length = htole64(UINT64_MAX), good1, param);
    REFUSED(b.length = htole64(UINT64_MAX - 4), good1, param);
    REFUSED(b.length = htole64(1ull << 62), good1, none_left);
    REFUSED(b.length = htole64(1ull << 40), good2, list);
    REFUSED(b.length = htole64(1ull << 50), good3, list);
    REFUSED(b.addr = htole64(le64toh(b.addr) + 4), good1, list);
    REFUSED(b.addr = htole64(le64toh(b.addr) + 8), good2, list);
    REFUSED(b.addr = htole64(UINT64_MAX - 7), good1, list);
    REFUSED(b.addr = htole64(nowhere), good1, dma);
    REFUSED(b.addr = htole64(nowhere), good2, dma);
    REFUSED(b.addr = htole64(nowhere), good3, dma);
    REFUSED((b.levels = 0, b.offset = htole32(1)), good1, param);
    REFUSED((b.levels = 0, b.offset = 0, b.addr = htole64(UINT64_MAX - 100)),
            good1, param);

    /* Entries: not valid, not writable, not aligned, stray bits. */
    entry = fh_ptr(h, le64toh(good1.addr), 8 * 2048);
    for (int i = 0; i < 2048; i += 2047) {
        uint64_t was = entry[i];

        entry[i] = was & ~htole64(VROCE_PTE_VALID);
        REFUSED((void)0, good1, list);
        entry[i] = was & ~htole64(VROCE_PTE_WRITE);
        REFUSED((void)0, good1, list);
        entry[i] = was | htole64(4);
        REFUSED((void)0, good1, list);
        entry[i] = was;
    }
    entry[1] |= htole64(4096);
    entry[0] &= ~htole64(4096);
    REFUSED((b.page_shift = 13, b.length = htole64(16384), b.offset = 0),
            good1, list);
    /* Pointers of the upper levels. */
    entry = fh_ptr(h, le64toh(good2.addr), 8 * 4);
    entry[3] ^= htole64(VROCE_PTE_VALID);
    REFUSED((void)0, good2, list);
    entry[3] ^= htole64(VROCE_PTE_VALID | 8);
    REFUSED((void)0, good2, list);
    entry[3] = htole64(nowhere | VROCE_PTE_VALID);
    REFUSED((void)0, good2, dma);
    entry = fh_ptr(h, le64toh(good3.addr), 8);
    entry[0] = htole64(nowhere | VROCE_PTE_VALID);
    REFUSED((void)0, good3, dma);

    g_free(l1.entry);
    g_free(l2.entry);
    g_free(l3.entry);
    fh_free(h);
}

/* A region that nobody writes needs no writable pages. */
static void test_read_only(void)
{
    struct fakehost *h = fh_new(NULL, 3);
    struct vr_pages p = { 0 };
    struct list l;
    uint64_t *entry;
    uint32_t slices;
    uint16_t rule;

    list_init(&l, h, 3 * 4096, 1, 12, 0);
    entry = fh_ptr(h, le64toh(l.buf.addr), 24);
    entry[2] &= ~htole64(VROCE_PTE_WRITE);
    g_assert_cmpint(load(h, &p, &l.buf, false, &rule, &slices), ==, VROCE_OK);
    g_assert_false(p.writable);
    vr_pages_free(h->e, &p);
    g_free(l.entry);
    fh_free(h);
}

/* One page of entries, named again and again, is counted each time. */
static void test_bound(void)
{
    struct vr_config cfg;
    struct fakehost *h;
    struct drv *d;
    struct vroce_create_mr_in in = { .kind = VROCE_MR_MEM };
    uint64_t page, leaf, mid, top, *e;
    uint32_t keys[8], n = 0;
    uint16_t rule;

    vr_config_init(&cfg);
    cfg.num_pages = 1 << 20;
    h = fh_new(&cfg, 4);
    d = drv_new(h, 1);
    page = fh_alloc(h, 4096, 4096);
    leaf = fh_alloc(h, 4096, 4096);
    mid = fh_alloc(h, 4096, 4096);
    top = fh_alloc(h, 4096, 4096);
    for (int i = 0; i < 512; i++) {
        e = fh_ptr(h, leaf, 4096);
        e[i] = htole64(page | VROCE_PTE_VALID | VROCE_PTE_WRITE);
        e = fh_ptr(h, mid, 4096);
        e[i] = htole64(leaf | VROCE_PTE_VALID);
        e = fh_ptr(h, top, 4096);
        e[i] = htole64(mid | VROCE_PTE_VALID);
    }
    in.buf.addr = htole64(top);
    in.buf.levels = 3;
    in.buf.page_shift = 12;
    in.pdn = htole32(d->pdn);
    in.buf.length = htole64((1ull << 32) + 1);
    g_assert_cmpint(drv_try_create(d, VROCE_CMD_CREATE_MR, &in, sizeof(in),
                                   &keys[0], &rule), ==,
                    VROCE_ERR_NO_RESOURCES);
    in.buf.length = htole64(1ull << 30);
    while (drv_try_create(d, VROCE_CMD_CREATE_MR, &in, sizeof(in), &keys[n],
                          &rule) == VROCE_OK) {
        n++;
    }
    g_assert_cmpuint(n, ==, 4);
    while (n) {
        g_assert_cmpint(drv_number(d, VROCE_CMD_DESTROY_MR, keys[--n]), ==,
                        VROCE_OK);
    }
    g_assert_cmpuint(h->e->pages_used, ==, 0);
    drv_free(d);
    fh_free(h);
}

/* A reset in the middle of a list leaves nothing behind. */
static void test_reset_midway(void)
{
    struct fakehost *h = fh_new(NULL, 5);
    struct drv *d = drv_new(h, 1);
    struct vroce_create_mr_in in = { .pdn = htole32(d->pdn) };
    struct vroce_number out;
    struct list l;
    uint32_t used;
    uint16_t rule;

    list_init(&l, h, 256 << 20, 2, 12, 0);
    in.buf = l.buf;
    h->entered = true;
    g_assert_cmpint(vr_command(h->e, VROCE_CMD_CREATE_MR, &in, sizeof(in),
                               &out, sizeof(out), &used, &rule, h->now), ==,
                    VR_CMD_AGAIN);
    h->entered = false;
    g_assert_cmpuint(h->e->pages_used, ==, 65536);
    fh_reset(h);
    g_assert_cmpuint(h->e->pages_used, ==, 0);
    g_free(l.entry);
    g_hash_table_unref(d->qps);
    g_free(d);
    fh_free(h);
}

/* Nor does disabling: the next command reads its own list, not the rest. */
static void test_disable_midway(void)
{
    struct fakehost *h = fh_new(NULL, 5);
    struct drv *d = drv_new(h, 1);
    struct vroce_create_mr_in in = { .pdn = htole32(d->pdn) };
    struct vr_mr_info info;
    struct vroce_number out;
    struct list big, small;
    uint32_t used;
    uint16_t rule;

    list_init(&big, h, 256 << 20, 2, 12, 0);
    list_init(&small, h, 3 * 4096, 1, 12, 0);
    in.buf = big.buf;
    h->entered = true;
    g_assert_cmpint(vr_command(h->e, VROCE_CMD_CREATE_MR, &in, sizeof(in),
                               &out, sizeof(out), &used, &rule, h->now), ==,
                    VR_CMD_AGAIN);
    vr_set_enabled(h->e, false, h->now);
    g_assert_cmpuint(h->e->pages_used, ==, 0);
    vr_set_enabled(h->e, true, h->now);
    h->entered = false;
    in.buf = small.buf;
    g_assert_cmpint(fh_command(h, VROCE_CMD_CREATE_MR, &in, sizeof(in), &out,
                               sizeof(out), &rule), ==, VROCE_OK);
    g_assert_true(vr_query_mr(h->e, le32toh(out.number) >> 8, &info));
    g_assert_cmpuint(info.pages, ==, 3);
    g_assert_cmpuint(info.length, ==, 3 * 4096);
    fh_reset(h);
    g_free(big.entry);
    g_free(small.entry);
    g_hash_table_unref(d->qps);
    g_free(d);
    fh_free(h);
}

/* ------------------------------------------------------------- copies */

#define NUM_MEM 4
#define MEM_LEN 70000

struct world {
    struct fakehost *h;
    struct drv *d;
    struct gmem mem[NUM_MEM];
    struct drv_mr mr[NUM_MEM];
};

static void world_init(struct world *w, uint32_t seed)
{
    static const struct {
        uint8_t levels, shift;
    } shape[NUM_MEM] = { { 0, 0 }, { 1, 12 }, { 2, 14 }, { 3, 13 } };

    w->h = fh_new(NULL, seed);
    w->d = drv_new(w->h, 1);
    w->h->bounce = seed & 1;
    w->h->jitter = seed & 2;
    w->h->max_piece = seed & 4 ? 700 : 0;
    w->h->max_map = seed & 8 ? 3000 : 0;
    for (int i = 0; i < NUM_MEM; i++) {
        gmem_init(&w->mem[i], w->h, MEM_LEN, shape[i].levels, shape[i].shift,
                  77);
        drv_mr_create(w->d, &w->mr[i], &w->mem[i], 0x7000000000 + i * 0x111111,
                      RW);
    }
}

static void world_fini(struct world *w)
{
    for (int i = 0; i < NUM_MEM; i++) {
        drv_mr_destroy(&w->mr[i]);
        gmem_fini(&w->mem[i]);
    }
    drv_free(w->d);
    fh_free(w->h);
}

/* A random list over the regions, and where each of its bytes lies. */
struct span {
    int mem;
    uint64_t off;
};

static uint64_t random_sgl(struct world *w, struct vr_view *v, struct span *at)
{
    uint64_t total = 0;

    *v = (struct vr_view) { .kind = VR_VIEW_SGL, .e = w->h->e };
    v->sgl.pdn = w->d->pdn;
    v->sgl.num = g_rand_int_range(w->h->rand, 1, 17);
    for (int i = 0; i < v->sgl.num; i++) {
        int mem = g_rand_int_range(w->h->rand, 0, NUM_MEM);
        uint32_t len = g_rand_int(w->h->rand) & 1 ? 0 :
                       g_rand_int_range(w->h->rand, 0, 9000);
        uint64_t off = g_rand_int_range(w->h->rand, 0, MEM_LEN - len + 1);

        v->sgl.sge[i].addr = w->mr[mem].iova + off;
        v->sgl.sge[i].length = len;
        v->sgl.sge[i].lkey = w->mr[mem].key;
        for (uint32_t b = 0; b < len; b++) {
            at[total + b] = (struct span) { mem, off + b };
        }
        total += len;
    }
    g_assert_cmpuint(vr_sgl_length(&v->sgl), ==, total);
    return total;
}

static enum vroce_rule copy(struct world *w, const struct vr_view *dst,
                            uint64_t dst_off, const struct vr_view *src,
                            uint64_t src_off, uint64_t len, bool *src_failed)
{
    enum vroce_rule rule;

    w->h->entered = true;
    rule = vr_copy(dst, dst_off, src, src_off, len, src_failed);
    g_assert_cmpuint(w->h->maps, ==, 0);
    w->h->entered = false;
    return rule;
}

static void test_copy(const void *seed)
{
    static uint8_t data[16 * 9000], image[NUM_MEM][MEM_LEN], now[MEM_LEN];
    static struct span at[16 * 9000];
    struct world w;

    world_init(&w, GPOINTER_TO_UINT(seed));
    for (int i = 0; i < NUM_MEM; i++) {
        gmem_read(&w.mem[i], 0, image[i], MEM_LEN);
    }
    for (int n = 0; n < 200; n++) {
        struct vr_view sgl, bytes = { .kind = VR_VIEW_BYTES, .bytes = data };
        uint64_t total = random_sgl(&w, &sgl, at), off, len;
        bool src_failed;

        off = total ? g_rand_int_range(w.h->rand, 0, total) : 0;
        len = g_rand_int_range(w.h->rand, 0, total - off + 1);
        sgl.off = off / 2;
        for (uint64_t i = 0; i < len; i++) {
            data[i] = g_rand_int(w.h->rand);
        }
        g_assert_cmpint(copy(&w, &sgl, off - sgl.off, &bytes, 0, len,
                             &src_failed), ==, VROCE_RULE_NONE);
        /* Ascending: where entries overlap, the later byte stays. */
        for (uint64_t i = 0; i < len; i++) {
            image[at[off + i].mem][at[off + i].off] = data[i];
        }
        for (int i = 0; i < NUM_MEM; i++) {
            gmem_read(&w.mem[i], 0, now, MEM_LEN);
            g_assert_cmpmem(now, MEM_LEN, image[i], MEM_LEN);
        }
        memset(data, 0, len);
        g_assert_cmpint(copy(&w, &bytes, 0, &sgl, off - sgl.off, len,
                             &src_failed), ==, VROCE_RULE_NONE);
        for (uint64_t i = 0; i < len; i++) {
            g_assert_cmphex(data[i], ==,
                            image[at[off + i].mem][at[off + i].off]);
        }
    }
    world_fini(&w);
}

/* From region to region: by name, as a READ's answer or a loopback WRITE. */
static void test_copy_regions(const void *seed)
{
    static uint8_t from[MEM_LEN], to[MEM_LEN], now[MEM_LEN];
    struct world w;

    world_init(&w, GPOINTER_TO_UINT(seed));
    for (int n = 0; n < 300; n++) {
        int a = n % NUM_MEM, b = (a + 1 + n / NUM_MEM % 3) % NUM_MEM;
        uint64_t len = g_rand_int_range(w.h->rand, 0, 20000);
        uint64_t src = g_rand_int_range(w.h->rand, 0, MEM_LEN - len);
        uint64_t dst = g_rand_int_range(w.h->rand, 0, MEM_LEN - len);
        struct vr_view s = {
            .kind = VR_VIEW_MR, .e = w.h->e, .off = src / 3,
            .mr = { w.mr[a].iova, w.mr[a].key, w.d->pdn,
                    VROCE_ACCESS_REMOTE_READ },
        };
        struct vr_view d = {
            .kind = VR_VIEW_MR, .e = w.h->e,
            .mr = { w.mr[b].iova, w.mr[b].key, w.d->pdn,
                    VROCE_ACCESS_REMOTE_WRITE },
        };
        bool src_failed;

        for (int i = 0; i < MEM_LEN; i++) {
            from[i] = g_rand_int(w.h->rand);
        }
        gmem_write(&w.mem[a], 0, from, MEM_LEN);
        gmem_read(&w.mem[b], 0, to, MEM_LEN);
        g_assert_cmpint(copy(&w, &d, dst, &s, src - s.off, len, &src_failed),
                        ==, VROCE_RULE_NONE);
        memcpy(to + dst, from + src, len);
        gmem_read(&w.mem[b], 0, now, MEM_LEN);
        g_assert_cmpmem(now, MEM_LEN, to, MEM_LEN);
    }
    world_fini(&w);
}

/* Who is to blame, and that nothing is written beyond what was copied. */
static void test_copy_faults(void)
{
    struct world w;
    uint8_t data[8192];
    struct vr_view bytes = { .kind = VR_VIEW_BYTES, .bytes = data };
    struct vr_view s, d;
    bool src_failed;

    world_init(&w, 1);
    s = (struct vr_view) {
        .kind = VR_VIEW_MR, .e = w.h->e,
        .mr = { w.mr[0].iova, w.mr[0].key, w.d->pdn, VROCE_ACCESS_REMOTE_READ },
    };
    d = s;
    d.mr.va = w.mr[1].iova;
    d.mr.key = w.mr[1].key;
    d.mr.access = VROCE_ACCESS_REMOTE_WRITE;

    g_assert_cmpint(copy(&w, &d, 0, &s, 0, MEM_LEN + 1, &src_failed), ==,
                    VROCE_RULE_KEY_RANGE);
    g_assert_true(src_failed);
    g_assert_cmpint(copy(&w, &d, MEM_LEN - 10, &s, 0, 11, &src_failed), ==,
                    VROCE_RULE_KEY_RANGE);
    g_assert_false(src_failed);
    g_assert_cmpint(copy(&w, &bytes, 0, &s, UINT64_MAX - 5, 11, &src_failed),
                    ==, VROCE_RULE_KEY_RANGE);
    s.mr.key ^= 1;
    g_assert_cmpint(copy(&w, &d, 0, &s, 0, 8, &src_failed), ==, VROCE_RULE_KEY);
    g_assert_true(src_failed);
    s.mr.key ^= 1;
    s.mr.pdn++;
    g_assert_cmpint(copy(&w, &d, 0, &s, 0, 8, &src_failed), ==,
                    VROCE_RULE_KEY_PD);
    s.mr.pdn--;
    d.mr.access = VROCE_ACCESS_REMOTE_ATOMIC;
    g_assert_cmpint(copy(&w, &d, 0, &s, 0, 8, &src_failed), ==,
                    VROCE_RULE_KEY_ACCESS);
    g_assert_false(src_failed);
    d.mr.access = VROCE_ACCESS_REMOTE_WRITE;

    for (uint32_t n = 1; n <= 3; n++) {
        w.h->fault_after = n;
        g_assert_cmpint(copy(&w, &d, 0, &s, 0, 8000, &src_failed), ==,
                        VROCE_RULE_MEM_DMA);
        g_assert_true(src_failed == (n == 1));
        w.h->fault_after = 0;
    }
    /* Nothing to copy needs no key. */
    s.mr.key = 0;
    g_assert_cmpint(copy(&w, &d, 0, &s, 0, 0, &src_failed), ==,
                    VROCE_RULE_NONE);
    /* Beyond the list. */
    d = (struct vr_view) { .kind = VR_VIEW_SGL, .e = w.h->e };
    d.sgl.pdn = w.d->pdn;
    g_assert_cmpint(copy(&w, &d, 0, &bytes, 0, 1, &src_failed), ==,
                    VROCE_RULE_WQE_LENGTH);
    world_fini(&w);
}

/* By reference, too, a packet with a bad entry brings not one byte. */
static void test_copy_whole_or_not(void)
{
    static uint8_t before[MEM_LEN], after[MEM_LEN];
    struct world w;
    struct vr_view s, d;
    bool src_failed;

    world_init(&w, 2);
    s = (struct vr_view) { .kind = VR_VIEW_SGL, .e = w.h->e };
    s.sgl.pdn = w.d->pdn;
    s.sgl.num = 2;
    for (int i = 0; i < 2; i++) {
        s.sgl.sge[i].addr = w.mr[0].iova + 512 * i;
        s.sgl.sge[i].length = 256;
        s.sgl.sge[i].lkey = w.mr[0].key ^ i;
    }
    d = (struct vr_view) {
        .kind = VR_VIEW_MR, .e = w.h->e,
        .mr = { w.mr[1].iova, w.mr[1].key, w.d->pdn,
                VROCE_ACCESS_REMOTE_WRITE },
    };
    gmem_read(&w.mem[1], 0, before, MEM_LEN);
    g_assert_cmpint(copy(&w, &d, 0, &s, 0, 512, &src_failed), ==,
                    VROCE_RULE_KEY);
    g_assert_true(src_failed);
    gmem_read(&w.mem[1], 0, after, MEM_LEN);
    g_assert_cmpmem(after, MEM_LEN, before, MEM_LEN);
    /* The good entry alone is another packet. */
    g_assert_cmpint(copy(&w, &d, 0, &s, 0, 256, &src_failed), ==,
                    VROCE_RULE_NONE);
    world_fini(&w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/mem/translation", test_translation);
    g_test_add_func("/mem/contiguous", test_contiguous);
    g_test_add_func("/mem/refusals", test_refusals);
    g_test_add_func("/mem/read-only", test_read_only);
    g_test_add_func("/mem/bound", test_bound);
    g_test_add_func("/mem/reset-midway", test_reset_midway);
    g_test_add_func("/mem/disable-midway", test_disable_midway);
    for (unsigned int seed = 0; seed < 16; seed++) {
        g_autofree char *a = g_strdup_printf("/mem/copy/%u", seed);
        g_autofree char *b = g_strdup_printf("/mem/copy-regions/%u", seed);

        g_test_add_data_func(a, GUINT_TO_POINTER(seed), test_copy);
        g_test_add_data_func(b, GUINT_TO_POINTER(seed), test_copy_regions);
    }
    g_test_add_func("/mem/copy-faults", test_copy_faults);
    g_test_add_func("/mem/copy-whole-or-not", test_copy_whole_or_not);
    return g_test_run();
}
