/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fakehost.h"

#define NUM_PAGES (FH_MEM_SIZE / FH_PAGE_SIZE)
/* More slices than any command of a test needs. */
#define MAX_COMMAND_SLICES 1000000

/*
 * A sanitizer keeps freed memory aside; with its 256 MiB each copy of a frame
 * lies in memory that was never touched, which is slow.
 */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "quarantine_size_mb=16";
}

struct fh_bounce {
    uint64_t addr;
    uint8_t *before;            /* what it held when it was mapped */
    bool write;
};

static void page_set(struct fakehost *h, uint64_t page, bool valid)
{
    if (valid) {
        h->page_valid[page / 64] |= 1ull << page % 64;
    } else {
        h->page_valid[page / 64] &= ~(1ull << page % 64);
    }
}

static bool page_get(const struct fakehost *h, uint64_t page)
{
    return h->page_valid[page / 64] >> page % 64 & 1;
}

/* Bytes from addr on, at most len, that the guest owns. */
static uint64_t reachable(const struct fakehost *h, uint64_t addr, uint64_t len)
{
    uint64_t off = addr - FH_MEM_BASE, end = off;

    if (addr < FH_MEM_BASE || off >= FH_MEM_SIZE) {
        return 0;
    }
    len = MIN(len, FH_MEM_SIZE - off);
    while (end - off < len && page_get(h, end / FH_PAGE_SIZE)) {
        end = (end / FH_PAGE_SIZE + 1) * FH_PAGE_SIZE;
    }
    return MIN(end - off, len);
}

static bool fault_now(struct fakehost *h)
{
    return h->fault_after && --h->fault_after == 0;
}

/*
 * A limit on bytes from addr on: max, or up to it at random; 0 is none. As a
 * host may, it cuts at multiples of 64 bytes only.
 */
static uint64_t limit(struct fakehost *h, uint64_t addr, uint64_t len,
                      uint32_t max)
{
    if (!max) {
        return len;
    }
    if (h->jitter) {
        max = g_rand_int_range(h->rand, 1, MIN(max, G_MAXINT32 - 1) + 1);
    }
    return MIN(len, ((addr + max + 63) & ~63ull) - addr);
}

static void bounce(struct fakehost *h, struct iovec *iov, uint64_t addr,
                   bool write)
{
    struct fh_bounce *b = g_new0(struct fh_bounce, 1);
    uint8_t *piece = g_malloc(iov->iov_len);

    b->addr = addr;
    b->write = write;
    if (write) {
        memset(piece, 0xa5, iov->iov_len);
    } else {
        memcpy(piece, iov->iov_base, iov->iov_len);
    }
    b->before = g_memdup2(piece, iov->iov_len);
    iov->iov_base = piece;
    g_assert_true(g_hash_table_insert(h->bounces, piece, b));
}

static int op_mem_map(void *host, uint64_t iova, uint64_t len, bool write,
                      struct iovec *iov, int max)
{
    struct fakehost *h = host;
    int n = 0;

    g_assert_true(h->entered);
    g_assert_cmpint(max, >, 0);
    if (fault_now(h)) {
        return 0;
    }
    len = limit(h, iova, reachable(h, iova, len), h->max_map);
    while (len && n < max) {
        uint64_t piece = limit(h, iova, len, h->max_piece);

        iov[n].iov_base = h->mem + (iova - FH_MEM_BASE);
        iov[n].iov_len = piece;
        if (h->bounce) {
            bounce(h, &iov[n], iova, write);
        }
        iova += piece;
        len -= piece;
        n++;
    }
    h->maps += n;
    return n;
}

static void op_mem_done(void *host, const struct iovec *iov, int n, bool write)
{
    struct fakehost *h = host;

    g_assert_true(h->entered);
    g_assert_cmpuint(h->maps, >=, n);
    h->maps -= n;
    for (int i = 0; h->bounce && i < n; i++) {
        struct fh_bounce *b = g_hash_table_lookup(h->bounces, iov[i].iov_base);

        g_assert_nonnull(b);
        if (write) {
            g_assert_true(b->write);
            memcpy(h->mem + (b->addr - FH_MEM_BASE), iov[i].iov_base,
                   iov[i].iov_len);
        } else {
            g_assert_true(!memcmp(b->before, iov[i].iov_base, iov[i].iov_len));
        }
        g_hash_table_remove(h->bounces, iov[i].iov_base);
    }
}

static void bounce_free(void *data)
{
    struct fh_bounce *b = data;

    g_free(b->before);
    g_free(b);
}

static int op_mem_rw(void *host, uint64_t iova, void *buf, uint32_t len,
                     bool write)
{
    struct fakehost *h = host;
    void *at;

    g_assert_true(h->entered);
    if (fault_now(h) || reachable(h, iova, len) != len) {
        return -EFAULT;
    }
    at = h->mem + (iova - FH_MEM_BASE);
    if (write) {
        memcpy(at, buf, len);
    } else {
        memcpy(buf, at, len);
    }
    return 0;
}

static int op_mem_atomic(void *host, uint64_t iova, bool cmp_swap,
                         uint64_t compare, uint64_t swap_add, uint64_t *old)
{
    struct fakehost *h = host;
    uint64_t value;

    g_assert_true(h->entered);
    g_assert_cmpuint(iova % 8, ==, 0);
    if (fault_now(h) || reachable(h, iova, 8) != 8) {
        return -EFAULT;
    }
    memcpy(&value, h->mem + (iova - FH_MEM_BASE), 8);
    *old = value;
    if (!cmp_swap) {
        value += swap_add;
    } else if (value == compare) {
        value = swap_add;
    }
    memcpy(h->mem + (iova - FH_MEM_BASE), &value, 8);
    return 0;
}

static uint8_t *op_devmem(void *host)
{
    struct fakehost *h = host;

    return h->devmem;
}

static bool op_frame_tx(void *host, const uint8_t *frame, size_t len)
{
    struct fakehost *h = host;

    g_assert_true(h->entered);
    g_assert_cmpuint(len, >=, 14);
    h->frames_sent++;
    return h->frame_tx ? h->frame_tx(h->opaque, frame, len) : true;
}

static void op_deadline(void *host, uint64_t ns)
{
    struct fakehost *h = host;

    h->deadline = ns;
    if (h->on_deadline) {
        h->on_deadline(h->opaque, ns);
    }
}

static void op_kick(void *host)
{
    struct fakehost *h = host;

    h->kicked = true;
    if (h->on_kick) {
        h->on_kick(h->opaque);
    }
}

static void op_irq(void *host, uint32_t vector)
{
    struct fakehost *h = host;

    g_assert_cmpuint(vector, <, h->cfg.num_vectors);
    h->irqs[vector]++;
}

static void op_report(void *host, const struct vr_report *report)
{
    struct fakehost *h = host;

    g_assert_cmpuint(report->kind, <, G_N_ELEMENTS(h->reports));
    g_assert_cmpuint(report->rule, <, VROCE_RULE_NUM);
    h->reports[report->kind]++;
    h->rules[report->rule]++;
    if (h->on_report) {
        h->on_report(h->opaque, report);
    }
}

static void op_fatal(void *host, enum vroce_fatal cause)
{
    struct fakehost *h = host;

    h->fatal = cause;
}

static const struct vr_host_ops host_ops = {
    .mem_map = op_mem_map,
    .mem_done = op_mem_done,
    .mem_rw = op_mem_rw,
    .mem_atomic = op_mem_atomic,
    .devmem = op_devmem,
    .frame_tx = op_frame_tx,
    .deadline = op_deadline,
    .kick = op_kick,
    .irq = op_irq,
    .report = op_report,
    .fatal = op_fatal,
};

static void enter(struct fakehost *h)
{
    g_assert_false(h->entered);
    h->entered = true;
}

static void leave(struct fakehost *h)
{
    g_assert_cmpuint(h->maps, ==, 0);
    h->entered = false;
}

static void *reserve(uint64_t len)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED) {
        g_error("cannot reserve %llu KiB of address space for a guest: %s",
                (unsigned long long)len >> 10, g_strerror(errno));
    }
    return p;
}

void fh_small_config(struct vr_config *cfg, uint32_t objects)
{
    vr_config_init(cfg);
    cfg->num_qps = cfg->num_cqs = cfg->num_mrs = objects;
    cfg->num_pds = cfg->num_srqs = cfg->num_contexts = 16;
    cfg->num_eqs = cfg->num_gids = 8;
    cfg->num_vectors = 4;
    cfg->devmem_size = 64 << 10;
}

struct fakehost *fh_new(const struct vr_config *cfg, uint32_t seed)
{
    struct fakehost *h = g_new0(struct fakehost, 1);
    const char *err = NULL;

    h->mem = reserve(FH_MEM_SIZE);
    h->page_valid = reserve(NUM_PAGES / 8);
    h->rand = g_rand_new_with_seed(seed);
    h->bounces = g_hash_table_new_full(NULL, NULL, g_free, bounce_free);
    h->deadline = UINT64_MAX;
    h->now = 1000;
    if (cfg) {
        h->cfg = *cfg;
    } else {
        vr_config_init(&h->cfg);
    }
    h->devmem = g_malloc0(h->cfg.devmem_size);
    h->e = vr_engine_new(&h->cfg, &host_ops, h, &err);
    if (!h->e) {
        g_error("vr_engine_new: %s", err);
    }
    enter(h);
    vr_set_enabled(h->e, true, h->now);
    vr_set_link(h->e, true, h->now);
    leave(h);
    return h;
}

void fh_free(struct fakehost *h)
{
    vr_engine_free(h->e);
    g_hash_table_unref(h->bounces);
    g_rand_free(h->rand);
    munmap(h->mem, FH_MEM_SIZE);
    munmap(h->page_valid, NUM_PAGES / 8);
    g_free(h->devmem);
    g_free(h);
}

static bool range_free(const struct fakehost *h, uint64_t page, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (page_get(h, page + i)) {
            return false;
        }
    }
    return true;
}

uint64_t fh_alloc(struct fakehost *h, uint64_t len, uint64_t align)
{
    uint64_t n = MAX(1, (len + FH_PAGE_SIZE - 1) / FH_PAGE_SIZE);
    uint64_t step = align / FH_PAGE_SIZE;
    uint64_t page = (h->next_page + step - 1) / step * step;

    for (uint64_t tries = 0; tries < 2 * NUM_PAGES; tries++) {
        if (page + n > NUM_PAGES) {
            page = 0;
            h->second_lap = true;
        }
        if (range_free(h, page, n)) {
            for (uint64_t i = 0; i < n; i++) {
                page_set(h, page + i, true);
            }
            h->next_page = page + n;
            if (h->second_lap) {
                memset(h->mem + page * FH_PAGE_SIZE, 0, n * FH_PAGE_SIZE);
            }
            return FH_MEM_BASE + page * FH_PAGE_SIZE;
        }
        page += step;
    }
    g_error("the fake guest is out of memory");
}

void fh_release(struct fakehost *h, uint64_t addr, uint64_t len)
{
    uint64_t page = (addr - FH_MEM_BASE) / FH_PAGE_SIZE;
    uint64_t n = MAX(1, (len + FH_PAGE_SIZE - 1) / FH_PAGE_SIZE);

    g_assert_cmpuint(reachable(h, addr, len), ==, len);
    for (uint64_t i = 0; i < n; i++) {
        page_set(h, page + i, false);
    }
}

void *fh_ptr(struct fakehost *h, uint64_t addr, uint64_t len)
{
    g_assert_cmpuint(reachable(h, addr, len), ==, len);
    return h->mem + (addr - FH_MEM_BASE);
}

int fh_command(struct fakehost *h, uint8_t opcode, const void *in,
               uint32_t in_len, void *out, uint32_t out_len, uint16_t *rule)
{
    uint32_t used = 0, slices = 0;
    uint16_t broken = 0;
    int status;

    do {
        enter(h);
        status = vr_command(h->e, opcode, in, in_len, out, out_len, &used,
                            &broken, h->now);
        leave(h);
        g_assert_cmpuint(++slices, <, MAX_COMMAND_SLICES);
        if (status == VR_CMD_AGAIN) {
            fh_run(h);
        }
    } while (status == VR_CMD_AGAIN);
    g_assert_cmpuint(used, <=, out_len);
    if (rule) {
        *rule = broken;
    }
    return status;
}

void fh_doorbell(struct fakehost *h, uint32_t page, uint64_t value)
{
    enter(h);
    vr_doorbell(h->e, page, value, h->now);
    leave(h);
}

void fh_burst(struct fakehost *h, bool more)
{
    enter(h);
    vr_burst(h->e, more, h->now);
    leave(h);
}

void fh_receive(struct fakehost *h, const uint8_t *frame, size_t len)
{
    /* A copy of exactly this size, for the sanitizer's sake. */
    uint8_t *copy = g_memdup2(frame, len);

    enter(h);
    vr_receive(h->e, copy, len, h->now);
    leave(h);
    g_free(copy);
}

bool fh_run(struct fakehost *h)
{
    bool more;

    enter(h);
    h->kicked = false;
    more = vr_run(h->e, VR_RUN_BUDGET, h->now);
    leave(h);
    return more;
}

void fh_timer(struct fakehost *h)
{
    enter(h);
    if (h->now >= h->deadline) {
        h->deadline = UINT64_MAX;
    }
    vr_timer(h->e, h->now);
    leave(h);
}

void fh_tx_ready(struct fakehost *h)
{
    enter(h);
    vr_tx_ready(h->e, h->now);
    leave(h);
}

void fh_reset(struct fakehost *h)
{
    enter(h);
    vr_engine_reset(h->e);
    leave(h);
    h->kicked = false;
    h->fatal = VROCE_FATAL_NONE;
}

void fh_migrate(struct fakehost *h)
{
    const char *err;
    size_t len;
    void *image;

    enter(h);
    image = vr_save(h->e, &len);
    g_assert_nonnull(image);
    vr_engine_free(h->e);
    h->deadline = UINT64_MAX;
    h->kicked = false;
    h->e = vr_engine_new(&h->cfg, &host_ops, h, &err);
    g_assert_nonnull(h->e);
    g_assert_cmpint(vr_load(h->e, image, len, h->now), ==, 0);
    leave(h);
    free(image);
}

void fh_deliver(struct fakehost *to, struct fakehost *from,
                const struct vr_sp *sp)
{
    enter(to);
    if (from != to) {
        enter(from);
    }
    vr_link_deliver(to->e, from->e, sp, to->now);
    if (from != to) {
        leave(from);
    }
    leave(to);
}

void fh_settle(struct fakehost *h, uint32_t slices)
{
    while (h->kicked || h->deadline <= h->now) {
        g_assert_cmpuint(slices--, >, 0);
        if (h->deadline <= h->now) {
            fh_timer(h);
        }
        while (h->kicked && fh_run(h)) {
            h->kicked = true;
            g_assert_cmpuint(slices--, >, 0);
        }
    }
}

void fh_advance(struct fakehost *h, uint64_t ns)
{
    uint64_t end = h->now + ns;

    fh_settle(h, 1000000);
    while (h->deadline <= end) {
        h->now = MAX(h->now, h->deadline);
        fh_settle(h, 1000000);
    }
    h->now = end;
}
