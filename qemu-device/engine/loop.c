/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The by-reference link to oneself: a bounded queue of super-packets, served by
 * the scheduler, so that sender and receiver never stand on one stack.
 */
#include <stdlib.h>
#include <string.h>

#include "vr_save.h"
#include "vr_transport.h"

#define LOOP_ENTRIES 64
#define LOOP_BYTES   4096       /* of a datagram, the only bytes that travel */

struct vr_loop_entry {
    struct vr_sp sp;
    uint8_t bytes[LOOP_BYTES];
};

struct vr_loop_queue {
    uint32_t head, num;
    struct vr_loop_entry entry[LOOP_ENTRIES];
};

bool vr_loop_full(const struct vr_engine *e)
{
    return e->loop && e->loop->num == LOOP_ENTRIES;
}

bool vr_loop_empty(const struct vr_engine *e)
{
    return !e->loop || e->loop->num == 0;
}

void vr_loop_push(struct vr_engine *e, const struct vr_sp *sp)
{
    struct vr_loop_queue *q = e->loop;
    struct vr_loop_entry *le;

    if (unlikely(!q)) {
        /* Only who talks to himself pays for the queue. */
        q = e->loop = calloc(1, sizeof(*q));
    }
    if (!q || q->num == LOOP_ENTRIES) {
        return;
    }
    le = &q->entry[(q->head + q->num) % LOOP_ENTRIES];
    le->sp = *sp;
    if (sp->payload.kind == VR_PAYLOAD_BYTES) {
        if (sp->payload.len > LOOP_BYTES) {
            return;
        }
        memcpy(le->bytes, sp->payload.bytes + sp->payload.off, sp->payload.len);
        le->sp.payload.off = 0;
        le->sp.payload.bytes = NULL;    /* le->bytes, set when delivered */
    }
    q->num++;
}

void vr_loop_run(struct vr_engine *e, int64_t *budget)
{
    struct vr_loop_queue *q = e->loop;

    while (*budget > 0 && !vr_loop_empty(e)) {
        struct vr_loop_entry *le = &q->entry[q->head];

        if (le->sp.payload.kind == VR_PAYLOAD_BYTES) {
            le->sp.payload.bytes = le->bytes;
        }
        *budget -= le->sp.payload.len + le->sp.npkt * VR_PACKET_COST;
        vr_count(e, VROCE_CNT_LOOPBACK_PACKETS, le->sp.npkt);
        vr_transport_rx(e, e, &le->sp);
        q->head = (q->head + 1) % LOOP_ENTRIES;
        q->num--;
    }
}

void vr_loop_forget(struct vr_engine *e, uint32_t qpn)
{
    struct vr_loop_queue *q = e->loop;

    for (uint32_t i = 0; q && i < q->num; i++) {
        struct vr_sp *sp = &q->entry[(q->head + i) % LOOP_ENTRIES].sp;

        if (sp->sqpn == qpn && sp->payload.kind != VR_PAYLOAD_BYTES) {
            sp->dqpn = VROCE_NONE;
        }
    }
}

void vr_loop_reset(struct vr_engine *e)
{
    free(e->loop);
    e->loop = NULL;
}

void vr_io_loop(struct vr_io *io, struct vr_engine *e)
{
    struct vr_loop_queue *q = e->loop;
    uint32_t num = q ? q->num : 0;

    VR_IO(io, num);
    if (io->loading && num) {
        q = e->loop = calloc(1, sizeof(*q));
        io->failed |= !q || num > LOOP_ENTRIES;
    }
    for (uint32_t i = 0; i < num && !io->failed; i++) {
        struct vr_loop_entry *le = &q->entry[(q->head + i) % LOOP_ENTRIES];

        vr_io_sp(io, &le->sp);
        if (le->sp.payload.kind == VR_PAYLOAD_BYTES) {
            io->failed |= le->sp.payload.len > LOOP_BYTES ||
                          le->sp.payload.off;
            if (!io->failed) {
                vr_io_bytes(io, le->bytes, le->sp.payload.len);
            }
        }
        io->failed |= !vr_sp_sane(&le->sp);
        q->num = i + 1;
    }
}
