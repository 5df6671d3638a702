/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Saving and loading: one function per object names its fields once and serves
 * both ways, so that what is written is what is read. Little-endian, packed.
 *
 * An image is not to be trusted: each object is checked before it joins its
 * table, as strictly as the command that would have created it.
 */
#ifndef VR_SAVE_H
#define VR_SAVE_H

#include "vr_internal.h"

struct vr_io {
    uint8_t *buf;               /* saving: grows */
    size_t pos, len;            /* len: saving, room; loading, length */
    bool loading;
    bool failed;                /* no memory, or the image ends here */
};

/* Each moves n bytes or one value; after a failure, loads give zeroes. */
void vr_io_bytes(struct vr_io *io, void *p, size_t n);
void vr_io_bool(struct vr_io *io, bool *v);
void vr_io_u8(struct vr_io *io, uint8_t *v);
void vr_io_u16(struct vr_io *io, uint16_t *v);
void vr_io_u32(struct vr_io *io, uint32_t *v);
void vr_io_u64(struct vr_io *io, uint64_t *v);

#define VR_IO(io, field) \
    _Generic((field), bool: vr_io_bool, uint8_t: vr_io_u8, \
             uint16_t: vr_io_u16, uint32_t: vr_io_u32, \
             uint64_t: vr_io_u64)((io), &(field))

/* save.c */
void vr_io_pages(struct vr_io *io, struct vr_engine *e, struct vr_pages *p);
void vr_io_rq(struct vr_io *io, struct vr_rq *rq);
/* Only the deadline: a loaded timer is armed when its owner is attached. */
void vr_io_timer(struct vr_io *io, struct vr_timer *t);
void vr_timer_attach(struct vr_engine *e, struct vr_timer *t);
/* Does a ring of `size` bytes at off, and its record, lie in p, aligned? */
bool vr_ring_sane(const struct vr_pages *p, uint64_t off, uint64_t size,
                  uint32_t rec_off);
bool vr_rq_sane(const struct vr_rq *rq, const struct vr_pages *p);

/* save_qp.c */
void vr_io_qp(struct vr_io *io, struct vr_engine *e, void *object);
bool vr_qp_attach(struct vr_engine *e, uint32_t qpn, void *object);
void vr_qp_discard(struct vr_engine *e, void *object);
void vr_io_sched(struct vr_io *io, struct vr_engine *e);
void vr_io_sp(struct vr_io *io, struct vr_sp *sp);
/* Could the transport have made sp? */
bool vr_sp_sane(const struct vr_sp *sp);

/* hold.c: behind the rest of the QP */
void vr_io_hold(struct vr_io *io, struct vr_engine *e, struct vr_qp *qp);

/* loop.c, edge.c */
void vr_io_loop(struct vr_io *io, struct vr_engine *e);
void vr_io_edge(struct vr_io *io, struct vr_engine *e);

#endif /* VR_SAVE_H */
