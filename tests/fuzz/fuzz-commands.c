/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Commands in any order, with inputs that are half plausible: numbers of
 * objects that may live, buffers that may be in memory. Then a doorbell.
 */
#include <string.h>

#include "world.h"

static const struct {
    uint8_t opcode;
    uint8_t len;                /* of its input */
    bool buf;                   /* begins with a struct vroce_buf */
} commands[] = {
    { VROCE_CMD_QUERY_DEVICE, 0, false },
    { VROCE_CMD_QUERY_COUNTERS, 0, false },
    { VROCE_CMD_ALLOC_CONTEXT, 0, false },
    { VROCE_CMD_FREE_CONTEXT, 8, false },
    { VROCE_CMD_ALLOC_PD, 0, false },
    { VROCE_CMD_FREE_PD, 8, false },
    { VROCE_CMD_CREATE_EQ, sizeof(struct vroce_create_eq_in), true },
    { VROCE_CMD_DESTROY_EQ, 8, false },
    { VROCE_CMD_CREATE_CQ, sizeof(struct vroce_create_cq_in), true },
    { VROCE_CMD_DESTROY_CQ, 8, false },
    { VROCE_CMD_RESIZE_CQ, sizeof(struct vroce_resize_cq_in), true },
    { VROCE_CMD_MODIFY_CQ, 8, false },
    { VROCE_CMD_CREATE_SRQ, sizeof(struct vroce_create_srq_in), true },
    { VROCE_CMD_DESTROY_SRQ, 8, false },
    { VROCE_CMD_MODIFY_SRQ, 8, false },
    { VROCE_CMD_QUERY_SRQ, 8, false },
    { VROCE_CMD_CREATE_QP, sizeof(struct vroce_create_qp_in), true },
    { VROCE_CMD_DESTROY_QP, 8, false },
    { VROCE_CMD_MODIFY_QP, sizeof(struct vroce_modify_qp_in), false },
    { VROCE_CMD_QUERY_QP, 8, false },
    { VROCE_CMD_CREATE_MR, sizeof(struct vroce_create_mr_in), true },
    { VROCE_CMD_DESTROY_MR, 8, false },
    { VROCE_CMD_UPDATE_MR, sizeof(struct vroce_update_mr_in), true },
    { VROCE_CMD_SET_GID, sizeof(struct vroce_set_gid_in), false },
    { VROCE_CMD_SET_NETDEV, sizeof(struct vroce_set_netdev_in), false },
    { VROCE_CMD_ATTACH_MCAST, sizeof(struct vroce_mcast_in), false },
    { VROCE_CMD_DETACH_MCAST, sizeof(struct vroce_mcast_in), false },
};

static void command(struct world *w, struct input *in)
{
    uint32_t k = in_below(in, G_N_ELEMENTS(commands) + 1);
    uint8_t body[128] = { 0 }, out[VR_CMD_MAX_LEN];
    uint8_t opcode = k < G_N_ELEMENTS(commands) ? commands[k].opcode :
                     in_uint(in, 1);
    uint32_t len = k < G_N_ELEMENTS(commands) ? commands[k].len : 8;
    uint8_t how = in_uint(in, 1), patches;

    if (how & 1 && len == 8) {
        const uint32_t number = in_below(in, 4) ? in_below(in, 16) : w->mr.key;

        memcpy(body, &number, sizeof(number));
    } else if (how & 2 && k < G_N_ELEMENTS(commands) && commands[k].buf) {
        in_bytes(in, body, len);
        memcpy(body, &w->mem.buf, sizeof(w->mem.buf));
    } else if (how & 4) {
        in_bytes(in, body, len);
    }
    /* Single bytes on top: most of a plausible input stays zero. */
    patches = in_below(in, 12);
    for (uint32_t i = 0; i < patches && len; i++) {
        uint32_t at = in_below(in, len);

        body[at] = in_uint(in, 1);
    }
    if (!(how & 0x70)) {
        len = in_below(in, sizeof(body));
    }
    fh_command(w->h, opcode, len ? body : NULL, len, out,
               how & 8 ? in_below(in, sizeof(out)) : sizeof(out), NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct input in = { data, len };
    struct world w;

    world_init(&w, true);
    while (in.len) {
        switch (in_below(&in, 6)) {
        case 0:
            world_post(&w, &in);
            break;
        case 1:
            fh_doorbell(w.h, in_below(&in, 3),
                        vroce_doorbell(in_below(&in, 6), in_below(&in, 12),
                                       in_uint(&in, 1)));
            break;
        case 2:
            world_settle(&w, in_uint(&in, 3));
            break;
        default:
            command(&w, &in);
        }
    }
    world_settle(&w, 100000000);
    world_fini(&w);
    return 0;
}
