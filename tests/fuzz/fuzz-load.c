/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Saved state that the input has changed: it is refused, or taken and then
 * worked with. Also: what is saved and loaded unchanged is saved alike again.
 */
#include <stdlib.h>
#include <string.h>

#include "world.h"

static void check_same(struct world *w, const uint8_t *image, size_t len)
{
    size_t again_len;
    uint8_t *again = vr_save(w->h->e, &again_len);

    g_assert_cmpmem(image, len, again, again_len);
    free(again);
}

/* Another state, and another MTU where that may be. */
static void modify(struct world *w, struct input *in)
{
    struct drv_qp *qp = &w->qp[in_below(in, WORLD_QPS)];
    struct drv_conn c;
    uint16_t rule;

    drv_conn_init(&c);
    c.path_mtu = in_below(in, 6);
    c.dest_qpn = qp->qpn;
    c.sq_psn = c.rq_psn = in_uint(in, 3);
    c.timeout = in_below(in, 9);
    drv_av(w->d, 1, 0, &c.av);
    drv_try_modify(qp, in_below(in, VROCE_QPS_ERR + 1), &c, &rule);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct input in = { data, len };
    uint32_t n = in_below(&in, 8);
    struct world w;
    uint8_t *image;
    size_t image_len;

    world_init(&w, n & 1);
    for (uint32_t i = 0; i < n; i++) {
        world_post(&w, &in);
    }
    image = vr_save(w.h->e, &image_len);
    g_assert_cmpint(vr_load(w.h->e, image, image_len, w.h->now), ==, 0);
    check_same(&w, image, image_len);
    for (n = in_below(&in, 16); n; n--) {
        image[in_below(&in, image_len)] = in_uint(&in, 1);
    }
    if (in_below(&in, 4) == 0) {
        image_len = in_below(&in, image_len);
    }
    if (vr_load(w.h->e, image, image_len, w.h->now) == 0) {
        while (in.len) {
            if (in_below(&in, 4) == 0) {
                modify(&w, &in);
            } else {
                world_post(&w, &in);
            }
            world_settle(&w, in_uint(&in, 2));
        }
    }
    free(image);
    world_settle(&w, 100000000);
    world_fini(&w);
    return 0;
}
