/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Work requests and doorbells in any order, over rings and records that the
 * input writes whatever it likes into. All QPs are connected in the device.
 */
#include <string.h>

#include "world.h"

static struct gmem *any_ring(struct world *w, struct input *in)
{
    struct gmem *rings[] = {
        &w->qp[0].mem, &w->qp[1].mem, &w->qp[2].mem, &w->qp[3].mem,
        &w->qp[4].mem, &w->qp[5].mem, &w->cq.mem, &w->eq.mem,
        &w->async_eq.mem, &w->srq.mem,
    };

    return rings[in_below(in, G_N_ELEMENTS(rings))];
}

static void scribble(struct world *w, struct input *in)
{
    struct gmem *ring = any_ring(w, in);
    uint32_t off = in_below(in, ring->len);
    uint32_t len = in_below(in, 64);
    uint8_t data[64];

    len = MIN(len, ring->len - off);
    in_bytes(in, data, len);
    gmem_write(ring, off, data, len);
}

/* Another WQE where one may be under way, which the engine takes for it. */
static void replace(struct world *w, struct input *in)
{
    struct drv_qp *qp = &w->qp[in_below(in, WORLD_QPS)];
    uint32_t index = qp->sq_producer - 1 - in_below(in, 4);
    uint32_t off = qp->sq_off +
                   index % (1u << qp->sq_log) * VROCE_SQ_UNIT;
    uint64_t old[8], new[8];
    struct vroce_wqe_ctrl *ctrl = (void *)new;

    gmem_read(&qp->mem, off, old, sizeof(old));
    memcpy(new, old, sizeof(new));
    if (in_below(in, 2)) {
        ctrl->flags |= VROCE_WQE_INLINE;
        ctrl->num_sge = 0;
        ctrl->inline_len = htole16(in_below(in, 17));
    } else {
        ((uint8_t *)new)[in_below(in, 56)] = in_uint(in, 1);
    }
    drv_same_hash(new, old);
    gmem_write(&qp->mem, off, new, sizeof(new));
}

static void ring(struct world *w, struct input *in)
{
    struct drv_qp *qp = &w->qp[in_below(in, WORLD_QPS)];
    uint32_t number = in_below(in, 4) ? qp->qpn : in_below(in, 16);

    fh_doorbell(w->h, in_below(in, 8) ? 0 : in_uint(in, 2),
                vroce_doorbell(in_below(in, 7), number,
                               qp->sq_producer + (int8_t)in_uint(in, 1)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct input in = { data, len };
    struct vroce_cqe cqe;
    struct world w;

    world_init(&w, true);
    while (in.len) {
        switch (in_below(&in, 9)) {
        case 0:
        case 1:
        case 2:
            world_post(&w, &in);
            break;
        case 3:
            scribble(&w, &in);
            break;
        case 4:
            ring(&w, &in);
            break;
        case 5:
            gmem_read(&w.cq.mem, (w.cq.consumer & 63) * sizeof(cqe), &cqe,
                      sizeof(cqe));
            w.cq.consumer++;
            break;
        case 6:
            fh_doorbell(w.h, 0, in_uint(&in, 8));
            break;
        case 7:
            replace(&w, &in);
            break;
        default:
            world_settle(&w, in_uint(&in, 3));
        }
    }
    world_settle(&w, 100000000);
    world_fini(&w);
    return 0;
}
