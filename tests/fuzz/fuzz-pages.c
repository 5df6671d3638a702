/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Page lists that the input wrote, of every kind of region, and accesses to
 * what they describe.
 */
#include <string.h>

#include "world.h"

#define LIST_PAGES 6

/* Entries that point at each other, at memory, or nowhere. */
static void write_list(struct world *w, struct input *in, uint64_t list)
{
    uint32_t n = in_below(in, 48);

    for (uint32_t i = 0; i < n; i++) {
        uint64_t at = in_below(in, LIST_PAGES * 512), entry;

        switch (in_below(in, 4)) {
        case 0:
            entry = in_uint(in, 8);
            break;
        case 1:
            entry = w->mem.pages[in_below(in, w->mem.npages)] | 3;
            break;
        default:
            entry = list + in_below(in, LIST_PAGES) * 4096 + 1;
        }
        entry = htole64(entry);
        memcpy(fh_ptr(w->h, list + at * 8, 8), &entry, 8);
    }
}

static void use(struct world *w, struct input *in, uint32_t key, uint64_t iova)
{
    const struct drv_wr wr = {
        .opcode = in_below(in, 9), .flags = VROCE_WQE_SIGNALED, .num_sge = 1,
        .rkey = key, .remote_addr = iova + in_uint(in, 2),
        .sge[0] = { iova + in_uint(in, 3), in_uint(in, 2), key },
    };

    if (drv_post_send(&w->qp[WORLD_RC], &wr)) {
        drv_ring(&w->qp[WORLD_RC]);
    }
    world_settle(w, 1000);
}

static void region(struct world *w, struct input *in, uint64_t list)
{
    struct vroce_create_mr_in mr = {
        .buf = {
            .addr = htole64(list + in_below(in, LIST_PAGES * 512) * 8),
            .length = htole64(in_uint(in, 1 + in_below(in, 5))),
            .offset = htole32(in_uint(in, 2)),
            .page_shift = in_below(in, 8) ? 12 + in_below(in, 20) :
                          in_uint(in, 1),
            .levels = in_below(in, 5),
        },
        .iova = htole64(in_uint(in, 1 + in_below(in, 8))),
        .pdn = htole32(w->d->pdn), .access = htole32(in_uint(in, 1)),
        .kind = in_below(in, 5), .max_pages = htole32(in_uint(in, 2)),
    };
    uint32_t key;

    if (drv_try_create(w->d, VROCE_CMD_CREATE_MR, &mr, sizeof(mr), &key,
                       NULL) != VROCE_OK) {
        return;
    }
    for (uint32_t i = in_below(in, 4); i; i--) {
        use(w, in, key, le64toh(mr.iova));
    }
    if (in_uint(in, 1) & 1) {
        drv_number(w->d, VROCE_CMD_DESTROY_MR, key);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct input in = { data, len };
    struct world w;
    uint64_t list;

    world_init(&w, true);
    list = fh_alloc(w.h, LIST_PAGES * FH_PAGE_SIZE, FH_PAGE_SIZE);
    while (in.len) {
        write_list(&w, &in, list);
        region(&w, &in, list);
    }
    world_settle(&w, 100000000);
    world_fini(&w);
    return 0;
}
