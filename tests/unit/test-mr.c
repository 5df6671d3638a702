/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Keys, rights, ranges and fast registration. */
#include <endian.h>

#include "driver.h"
#include "vr_internal.h"

#define ALL (VROCE_ACCESS_LOCAL_WRITE | VROCE_ACCESS_REMOTE_WRITE | \
             VROCE_ACCESS_REMOTE_READ | VROCE_ACCESS_REMOTE_ATOMIC)
#define BASE 0x123456000ull
#define LEN  10000u

static enum vroce_rule check(struct fakehost *h, uint32_t key, uint32_t pdn,
                             uint64_t va, uint64_t len, uint32_t access)
{
    struct vr_mr *mr;

    return vr_mr_check(h->e, key, pdn, va, len, access, &mr);
}

/* A stale key matches nothing, even where its index is in use again. */
static void test_variants(void)
{
    struct vr_config cfg;
    struct fakehost *h;
    struct drv *d;
    struct gmem mem;
    struct drv_mr mr;
    uint32_t old[255] = { 0 };

    vr_config_init(&cfg);
    cfg.num_mrs = 2;            /* room for one: its index comes again */
    h = fh_new(&cfg, 1);
    d = drv_new(h, 1);
    gmem_init(&mem, h, LEN, 1, 12, 0);
    for (int i = 0; i < 1000; i++) {
        struct drv_mr second;
        uint16_t rule;

        drv_mr_create(d, &mr, &mem, BASE, ALL);
        g_assert_cmpint(drv_try_mr_create(d, &second, &mem, BASE, ALL, &rule),
                        ==, VROCE_ERR_NO_RESOURCES);
        g_assert_cmpint(check(h, mr.key, d->pdn, BASE, LEN, ALL), ==,
                        VROCE_RULE_NONE);
        for (size_t k = 0; k < G_N_ELEMENTS(old); k++) {
            g_assert_cmphex(old[k], !=, mr.key);
            g_assert_cmpint(check(h, old[k], d->pdn, BASE, 1, 0), ==,
                            VROCE_RULE_KEY);
        }
        g_assert_cmpint(drv_number(d, VROCE_CMD_DESTROY_MR, mr.key ^ 1), ==,
                        VROCE_ERR_NUMBER);
        drv_mr_destroy(&mr);
        g_assert_cmpint(check(h, mr.key, d->pdn, BASE, 1, 0), ==,
                        VROCE_RULE_KEY);
        old[i % G_N_ELEMENTS(old)] = mr.key;
    }
    gmem_fini(&mem);
    drv_free(d);
    fh_free(h);
}

static void test_checks(void)
{
    struct fakehost *h = fh_new(NULL, 2);
    struct drv *d = drv_new(h, 1);
    struct gmem mem;
    struct drv_mr mr;
    uint32_t pdn = d->pdn;

    gmem_init(&mem, h, LEN, 1, 12, 100);
    drv_mr_create(d, &mr, &mem, BASE, VROCE_ACCESS_REMOTE_READ);
    g_assert_cmpint(check(h, mr.key, pdn, BASE, LEN, 0), ==, 0);
    g_assert_cmpint(check(h, mr.key, VROCE_NONE, BASE, LEN, 0), ==, 0);
    g_assert_cmpint(check(h, mr.key, pdn, BASE + LEN, 0, 0), ==, 0);
    g_assert_cmpint(check(h, mr.key, pdn, BASE + LEN - 1, 1, 0), ==, 0);
    g_assert_cmpint(check(h, mr.key, pdn, BASE, LEN + 1, 0), ==,
                    VROCE_RULE_KEY_RANGE);
    g_assert_cmpint(check(h, mr.key, pdn, BASE - 1, 1, 0), ==,
                    VROCE_RULE_KEY_RANGE);
    g_assert_cmpint(check(h, mr.key, pdn, BASE - 1, LEN, 0), ==,
                    VROCE_RULE_KEY_RANGE);
    g_assert_cmpint(check(h, mr.key, pdn, BASE + LEN, 1, 0), ==,
                    VROCE_RULE_KEY_RANGE);
    g_assert_cmpint(check(h, mr.key, pdn, BASE + 5, UINT64_MAX - 2, 0), ==,
                    VROCE_RULE_KEY_RANGE);
    g_assert_cmpint(check(h, mr.key, pdn, UINT64_MAX, 2, 0), ==,
                    VROCE_RULE_KEY_RANGE);
    g_assert_cmpint(check(h, mr.key, pdn + 1, BASE, 1, 0), ==,
                    VROCE_RULE_KEY_PD);
    g_assert_cmpint(check(h, mr.key, pdn, BASE, 1, VROCE_ACCESS_REMOTE_READ),
                    ==, 0);
    g_assert_cmpint(check(h, mr.key, pdn, BASE, 1, VROCE_ACCESS_REMOTE_WRITE),
                    ==, VROCE_RULE_KEY_ACCESS);
    g_assert_cmpint(check(h, mr.key, pdn, BASE, 1, VROCE_ACCESS_LOCAL_WRITE),
                    ==, VROCE_RULE_KEY_ACCESS);
    g_assert_cmpint(check(h, 0, pdn, BASE, 1, 0), ==, VROCE_RULE_KEY);
    g_assert_cmpint(check(h, UINT32_MAX, pdn, BASE, 1, 0), ==, VROCE_RULE_KEY);
    drv_mr_destroy(&mr);
    gmem_fini(&mem);
    drv_free(d);
    fh_free(h);
}

static int create(struct drv *d, const struct vroce_create_mr_in *in,
                  uint32_t *key, uint16_t *rule)
{
    return drv_try_create(d, VROCE_CMD_CREATE_MR, in, sizeof(*in), key, rule);
}

static void test_refusals(void)
{
    struct fakehost *h = fh_new(NULL, 3);
    struct drv *d = drv_new(h, 1);
    struct vroce_create_mr_in good = { .pdn = htole32(d->pdn) }, in;
    struct gmem mem;
    uint32_t key;
    uint16_t rule;

    gmem_init(&mem, h, LEN, 1, 12, 0);
    good.buf = mem.buf;
    good.iova = htole64(BASE);

#define REFUSED(change, want_status, want_rule) \
    do { \
        in = good; \
        change; \
        g_assert_cmpint(create(d, &in, &key, &rule), ==, want_status); \
        g_assert_cmpint(rule, ==, want_rule); \
    } while (0)

    REFUSED(in.pdn = 0, VROCE_ERR_NUMBER, VROCE_RULE_NO_OBJECT);
    REFUSED(in.pdn = htole32(99), VROCE_ERR_NUMBER, VROCE_RULE_NO_OBJECT);
    REFUSED(in.kind = 4, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    REFUSED(in.access = htole32(1 << 6), VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    REFUSED(in.access = htole32(VROCE_ACCESS_REMOTE_WRITE), VROCE_ERR_PARAM,
            VROCE_RULE_CMD_PARAM);
    REFUSED(in.access = htole32(VROCE_ACCESS_REMOTE_ATOMIC), VROCE_ERR_PARAM,
            VROCE_RULE_CMD_PARAM);
    REFUSED(in.iova = htole64(UINT64_MAX - LEN + 1), VROCE_ERR_PARAM,
            VROCE_RULE_CMD_PARAM);
    REFUSED(in.max_pages = htole32(1), VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    REFUSED(in.reserved0[2] = 1, VROCE_ERR_PARAM, VROCE_RULE_RESERVED);
    REFUSED(in.buf.reserved[0] = 1, VROCE_ERR_PARAM, VROCE_RULE_RESERVED);
    REFUSED((in.kind = VROCE_MR_FAST, in.max_pages = 0), VROCE_ERR_PARAM,
            VROCE_RULE_CMD_PARAM);
    REFUSED((in.kind = VROCE_MR_FAST, in.max_pages = htole32(4097)),
            VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    REFUSED((in.kind = VROCE_MR_DEVMEM), VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    REFUSED((in.kind = VROCE_MR_DEVMEM, in.buf.levels = 0,
             in.buf.addr = htole64(h->cfg.devmem_size - LEN + 1)),
            VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    g_assert_cmpint(drv_number(d, VROCE_CMD_DESTROY_MR, 0), ==,
                    VROCE_ERR_NUMBER);
    /* Nothing above holds the PD or memory. */
    g_assert_cmpuint(h->e->pages_used, ==, 0);
    gmem_fini(&mem);
    drv_free(d);
    fh_free(h);
}

/* A region of all bus addresses closes its PD to user contexts. */
static void test_dma(void)
{
    struct fakehost *h = fh_new(NULL, 4);
    struct drv *d = drv_new(h, 1);
    struct vroce_create_mr_in in = {
        .pdn = htole32(d->pdn), .kind = VROCE_MR_DMA,
        .access = htole32(VROCE_ACCESS_LOCAL_WRITE),
    };
    uint32_t key;
    uint16_t rule = 0;

    g_assert_cmpint(create(d, &in, &key, &rule), ==, VROCE_OK);
    g_assert_cmpint(check(h, key, d->pdn, 0, UINT64_MAX, 1), ==, 0);
    g_assert_cmpint(check(h, key, d->pdn, 5, UINT64_MAX, 1), ==,
                    VROCE_RULE_KEY_RANGE);
    g_assert_cmpint(vr_pd_hold(h->e, d->pdn, 1, &rule), ==,
                    VROCE_ERR_PERMISSION);
    g_assert_cmpint(rule, ==, VROCE_RULE_PRIVILEGE);
    g_assert_cmpint(vr_pd_hold(h->e, d->pdn, 0, &rule), ==, VROCE_OK);
    vr_pd_release(h->e, d->pdn, 0);
    g_assert_cmpint(drv_number(d, VROCE_CMD_FREE_PD, d->pdn), ==,
                    VROCE_ERR_BUSY);
    g_assert_cmpint(drv_number(d, VROCE_CMD_DESTROY_MR, key), ==, VROCE_OK);
    g_assert_cmpint(vr_pd_hold(h->e, d->pdn, 1, &rule), ==, VROCE_OK);
    g_assert_cmpint(create(d, &in, &key, &rule), ==, VROCE_ERR_PERMISSION);
    vr_pd_release(h->e, d->pdn, 1);
    drv_free(d);
    fh_free(h);
}

static void test_fast_reg(void)
{
    struct fakehost *h = fh_new(NULL, 5);
    struct drv *d = drv_new(h, 1);
    struct vroce_create_mr_in in = {
        .pdn = htole32(d->pdn), .kind = VROCE_MR_FAST, .max_pages = htole32(3),
    };
    struct vroce_wqe_fast_reg seg = { .iova = htole64(BASE) };
    struct gmem small, large;
    uint32_t key, next;
    uint16_t rule;

    gmem_init(&small, h, 3 * 4096 - 50, 1, 12, 50);
    gmem_init(&large, h, 3 * 4096, 1, 12, 50);
    g_assert_cmpint(create(d, &in, &key, &rule), ==, VROCE_OK);
    g_assert_cmpint(check(h, key, d->pdn, BASE, 1, 0), ==, VROCE_RULE_KEY);
    g_assert_cmpuint(h->e->pages_used, ==, 3);

    h->entered = true;
    next = (key & ~0xffu) | ((key + 77) & 0xff);
    seg.key = htole32(next);
    seg.access = htole32(ALL);
    seg.buf = large.buf;
    g_assert_cmpint(vr_mr_fast_reg(h->e, d->pdn, &seg), ==,
                    VROCE_RULE_PAGE_LIST);
    seg.buf = small.buf;
    g_assert_cmpint(vr_mr_fast_reg(h->e, d->pdn + 1, &seg), ==,
                    VROCE_RULE_KEY_PD);
    seg.access = htole32(VROCE_ACCESS_REMOTE_WRITE);
    g_assert_cmpint(vr_mr_fast_reg(h->e, d->pdn, &seg), ==,
                    VROCE_RULE_KEY_ACCESS);
    seg.access = htole32(ALL);
    g_assert_cmpint(vr_mr_fast_reg(h->e, d->pdn, &seg), ==, VROCE_RULE_NONE);
    g_assert_cmpint(check(h, key, d->pdn, BASE, 1, 0), ==, VROCE_RULE_KEY);
    g_assert_cmpint(check(h, next, d->pdn, BASE, 3 * 4096 - 50, ALL), ==, 0);
    g_assert_cmpint(check(h, next, d->pdn, BASE, 3 * 4096 - 49, ALL), ==,
                    VROCE_RULE_KEY_RANGE);
    /* Not twice without invalidation between. */
    g_assert_cmpint(vr_mr_fast_reg(h->e, d->pdn, &seg), ==,
                    VROCE_RULE_KEY_ACCESS);
    g_assert_cmpint(vr_mr_invalidate(h->e, d->pdn, key), ==, VROCE_RULE_KEY);
    g_assert_cmpint(vr_mr_invalidate(h->e, d->pdn + 1, next), ==,
                    VROCE_RULE_KEY_PD);
    g_assert_cmpint(vr_mr_invalidate(h->e, d->pdn, next), ==, VROCE_RULE_NONE);
    g_assert_cmpint(check(h, next, d->pdn, BASE, 1, 0), ==, VROCE_RULE_KEY);
    g_assert_cmpint(vr_mr_invalidate(h->e, d->pdn, next), ==, VROCE_RULE_KEY);
    for (int i = 0; i < 600; i++) {
        next = (next & ~0xffu) | ((next + 1) & 0xff);
        seg.key = htole32(next);
        g_assert_cmpint(vr_mr_fast_reg(h->e, d->pdn, &seg), ==, 0);
        g_assert_cmpint(vr_mr_invalidate(h->e, d->pdn, next), ==, 0);
    }
    g_assert_cmpuint(h->e->pages_used, ==, 3);
    h->entered = false;
    g_assert_cmpint(drv_number(d, VROCE_CMD_DESTROY_MR, key), ==, VROCE_OK);
    g_assert_cmpuint(h->e->pages_used, ==, 0);
    gmem_fini(&small);
    gmem_fini(&large);
    drv_free(d);
    fh_free(h);
}

static int update(struct drv *d, uint32_t key, uint32_t mask,
                  struct gmem *mem, uint64_t iova, uint32_t access,
                  uint32_t pdn, uint16_t *rule)
{
    struct vroce_update_mr_in in = {
        .mr = { .buf = mem->buf, .iova = htole64(iova), .pdn = htole32(pdn),
                .access = htole32(access) },
        .key = htole32(key), .mask = htole32(mask),
    };

    return fh_command(d->h, VROCE_CMD_UPDATE_MR, &in, sizeof(in), NULL, 0,
                      rule);
}

static void test_update(void)
{
    struct fakehost *h = fh_new(NULL, 6);
    struct drv *d = drv_new(h, 1), *other = drv_new(h, 2);
    struct gmem small, large;
    struct drv_mr mr;
    uint16_t rule;

    gmem_init(&small, h, LEN, 1, 12, 0);
    gmem_init(&large, h, 50 * LEN, 2, 12, 9);
    drv_mr_create(d, &mr, &small, BASE, ALL);
    g_assert_cmpint(update(d, mr.key, 0, &large, BASE, 0, d->pdn, &rule), ==,
                    VROCE_ERR_PARAM);
    g_assert_cmpint(update(d, mr.key, 8, &large, BASE, 0, d->pdn, &rule), ==,
                    VROCE_ERR_PARAM);
    g_assert_cmpint(update(d, mr.key + 1, VROCE_MR_UPDATE_ACCESS, &large, BASE,
                           0, d->pdn, &rule), ==, VROCE_ERR_NUMBER);
    g_assert_cmpint(update(d, mr.key, VROCE_MR_UPDATE_PAGES, &large, 2 * BASE,
                           0, 0, &rule), ==, VROCE_OK);
    g_assert_cmpint(check(h, mr.key, d->pdn, BASE, 1, 0), ==,
                    VROCE_RULE_KEY_RANGE);
    g_assert_cmpint(check(h, mr.key, d->pdn, 2 * BASE, 50 * LEN, ALL), ==, 0);
    g_assert_cmpint(update(d, mr.key, VROCE_MR_UPDATE_ACCESS, &large, 0, 0, 0,
                           &rule), ==, VROCE_OK);
    g_assert_cmpint(check(h, mr.key, d->pdn, 2 * BASE, 1,
                          VROCE_ACCESS_REMOTE_READ), ==, VROCE_RULE_KEY_ACCESS);
    g_assert_cmpint(update(d, mr.key, VROCE_MR_UPDATE_PD, &large, 0, 0, 77,
                           &rule), ==, VROCE_ERR_NUMBER);
    g_assert_cmpint(update(d, mr.key, VROCE_MR_UPDATE_PD, &large, 0, 0,
                           other->pdn, &rule), ==, VROCE_OK);
    g_assert_cmpint(check(h, mr.key, d->pdn, 2 * BASE, 1, 0), ==,
                    VROCE_RULE_KEY_PD);
    g_assert_cmpint(check(h, mr.key, other->pdn, 2 * BASE, 1, 0), ==, 0);
    g_assert_cmpint(drv_number(d, VROCE_CMD_FREE_PD, other->pdn), ==,
                    VROCE_ERR_BUSY);
    drv_mr_destroy(&mr);
    g_assert_cmpuint(h->e->pages_used, ==, 0);
    gmem_fini(&small);
    gmem_fini(&large);
    drv_free(other);
    drv_free(d);
    fh_free(h);
}

static void test_atomic(void)
{
    struct fakehost *h = fh_new(NULL, 7);
    struct drv *d = drv_new(h, 1);
    struct vroce_create_mr_in devmem = {
        .pdn = htole32(d->pdn), .kind = VROCE_MR_DEVMEM,
        .access = htole32(ALL), .buf = { .addr = htole64(64),
                                         .length = htole64(64) },
    };
    struct gmem mem;
    struct drv_mr mr;
    uint64_t old, value = 40;
    uint32_t key;
    uint16_t rule;

    gmem_init(&mem, h, LEN, 1, 12, 0);
    drv_mr_create(d, &mr, &mem, BASE, ALL);
    gmem_write(&mem, 4096, &value, 8);
    h->entered = true;
    g_assert_cmpint(vr_mr_atomic(h->e, mr.key, d->pdn, BASE + 4096, false, 0, 2,
                                 &old), ==, 0);
    g_assert_cmpuint(old, ==, 40);
    g_assert_cmpint(vr_mr_atomic(h->e, mr.key, d->pdn, BASE + 4096, true, 41, 7,
                                 &old), ==, 0);
    g_assert_cmpuint(old, ==, 42);
    g_assert_cmpint(vr_mr_atomic(h->e, mr.key, d->pdn, BASE + 4096, true, 42, 7,
                                 &old), ==, 0);
    g_assert_cmpint(vr_mr_atomic(h->e, mr.key, d->pdn, BASE + 4097, true, 42, 7,
                                 &old), ==, VROCE_RULE_KEY_RANGE);
    g_assert_cmpint(vr_mr_atomic(h->e, mr.key, d->pdn, BASE + LEN - 7, true, 42,
                                 7, &old), ==, VROCE_RULE_KEY_RANGE);
    h->fault_after = 1;
    g_assert_cmpint(vr_mr_atomic(h->e, mr.key, d->pdn, BASE, true, 42, 7, &old),
                    ==, VROCE_RULE_MEM_DMA);
    h->entered = false;
    gmem_read(&mem, 4096, &value, 8);
    g_assert_cmpuint(value, ==, 7);

    g_assert_cmpint(create(d, &devmem, &key, &rule), ==, VROCE_OK);
    h->entered = true;
    g_assert_cmpint(vr_mr_atomic(h->e, key, d->pdn, 8, false, 0, 5, &old), ==,
                    0);
    g_assert_cmpint(vr_mr_atomic(h->e, key, d->pdn, 8, true, 5, 9, &old), ==,
                    0);
    g_assert_cmpuint(old, ==, 5);
    h->entered = false;
    g_assert_cmpuint(h->devmem[72], ==, 9);
    g_assert_cmpint(drv_number(d, VROCE_CMD_DESTROY_MR, key), ==, VROCE_OK);
    drv_mr_destroy(&mr);
    gmem_fini(&mem);
    drv_free(d);
    fh_free(h);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/mr/variants", test_variants);
    g_test_add_func("/mr/checks", test_checks);
    g_test_add_func("/mr/refusals", test_refusals);
    g_test_add_func("/mr/dma", test_dma);
    g_test_add_func("/mr/fast-reg", test_fast_reg);
    g_test_add_func("/mr/update", test_update);
    g_test_add_func("/mr/atomic", test_atomic);
    return g_test_run();
}
