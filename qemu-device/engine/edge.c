/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The RoCEv2 edge: cuts super-packets into frames and takes frames in.
 *
 * Payload is gathered from guest memory straight into the frame, and the ICRC
 * is taken of that copy: memory that the guest changes meanwhile makes no bad
 * frame. Of a super-packet that the wire takes only in part the rest is kept,
 * one at a time: vr_link_ready() is false until it is gone.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vr_save.h"
#include "vr_wire.h"

#define MAX_PATH_MTU 4096

struct vr_edge {
    struct vr_sp sp;            /* held back … */
    uint32_t next;              /* … from this packet on */
    bool held;
    uint8_t frame[];
};

bool vr_edge_init(struct vr_engine *e)
{
    size_t longest = e->cfg.max_mtu > MAX_PATH_MTU ? e->cfg.max_mtu :
                     MAX_PATH_MTU;

    e->edge = calloc(1, sizeof(*e->edge) + longest + VR_FRAME_OVERHEAD);
    return e->edge;
}

void vr_edge_reset(struct vr_engine *e)
{
    e->edge->held = false;
}

void vr_edge_free(struct vr_engine *e)
{
    free(e->edge);
    e->edge = NULL;
}

uint8_t *vr_edge_frame(struct vr_engine *e)
{
    return e->edge->frame;
}

void vr_edge_forget(struct vr_engine *e, uint32_t qpn)
{
    if (e->edge->held && e->edge->sp.sqpn == qpn) {
        e->edge->held = false;
    }
}

bool vr_link_ready(const struct vr_engine *e)
{
    return !e->tx_full && !e->edge->held;
}

bool vr_edge_tx(struct vr_engine *e, uint8_t *frame, size_t len)
{
    if (!e->link_up) {
        return true;            /* no carrier: lost, as on a cable */
    }
    if (len < VR_MIN_FRAME) {
        memset(frame + len, 0, VR_MIN_FRAME - len);
        len = VR_MIN_FRAME;
    }
    e->tx_full = !e->ops->frame_tx(e->host, frame, len);
    return !e->tx_full;
}

/* ----------------------------------------------------------- transmit */

static void count_tx(struct vr_engine *e, uint32_t packets, uint32_t bytes)
{
    vr_count(e, VROCE_CNT_RDMA_TX_PACKETS, packets);
    vr_count(e, VROCE_CNT_RDMA_TX_BYTES, bytes);
}

/* Send the packets of sp from number i on, as far as the wire takes them. */
static void edge_cut(struct vr_engine *e, const struct vr_sp *sp, uint32_t i)
{
    struct vr_edge *edge = e->edge;
    enum vroce_rule rule = VROCE_RULE_NONE;
    struct vr_view from, to = { .kind = VR_VIEW_BYTES };
    bool from_failed;

    if (sp->payload.len) {
        rule = vr_payload_view(e, &sp->payload, &from);
    }
    for (; !rule && i < sp->npkt; i++) {
        uint32_t len;
        size_t off = vr_frame_headers(edge->frame, sp, i, &len);

        if (len) {
            to.bytes = edge->frame + off;
            rule = vr_copy(&to, 0, &from, (uint64_t)i * sp->mtu, len,
                           &from_failed);
            if (rule) {
                break;
            }
        }
        count_tx(e, 1, len);
        if (!vr_edge_tx(e, edge->frame, vr_frame_finish(edge->frame))) {
            /* BYTES payloads are of one packet: none is ever held back. */
            edge->held = i + 1 < sp->npkt &&
                         sp->payload.kind != VR_PAYLOAD_BYTES;
            edge->next = i + 1;
            if (edge->held && sp != &edge->sp) {
                edge->sp = *sp;
            }
            return;
        }
    }
    /* A stale name belongs to nobody any more: dropped without a word. */
    if (rule && rule != VROCE_RULE_NO_OBJECT) {
        struct vr_payload failed = sp->payload;

        failed.off += (uint64_t)i * sp->mtu;    /* those before have gone */
        vr_payload_failed(e, &failed, rule);
    }
}

void vr_link_send(struct vr_engine *e, const struct vr_sp *sp)
{
    if (vr_gid_find(e, sp->route.dgid, sp->route.vlan) >= 0) {
        vr_loop_push(e, sp);
    } else if (e->link_ops && e->link_ops->send) {
        count_tx(e, sp->npkt, sp->payload.len);
        e->tx_full = !e->link_ops->send(e->link, sp);
    } else {
        edge_cut(e, sp, 0);
    }
}

void vr_edge_resume(struct vr_engine *e)
{
    struct vr_edge *edge = e->edge;

    if (edge->held && !e->tx_full) {
        edge->held = false;
        edge_cut(e, &edge->sp, edge->next);
    }
}

void vr_io_edge(struct vr_io *io, struct vr_engine *e)
{
    struct vr_edge *edge = e->edge;

    VR_IO(io, edge->held);
    if (edge->held) {
        VR_IO(io, edge->next);
        vr_io_sp(io, &edge->sp);
        /* A super-packet of bytes is sent at once or never: see edge_cut(). */
        io->failed |= !vr_sp_sane(&edge->sp) || edge->next >= edge->sp.npkt ||
                      edge->sp.payload.kind == VR_PAYLOAD_BYTES;
    }
}

/* ------------------------------------------------------------ receive */

bool vr_edge_receive(struct vr_engine *e, const uint8_t *frame, size_t len)
{
    const struct vr_gid *gid;
    struct vr_sp sp;
    int ret = vr_frame_parse(frame, len, &sp), index;

    if (ret == -ENOMSG) {
        return false;
    }
    index = vr_gid_find(e, sp.route.dgid, sp.route.vlan);
    if (index < 0) {
        return false;
    }
    gid = vr_gid_get(e, index);
    if (memcmp(sp.route.dmac, gid->mac, sizeof(gid->mac))) {
        return false;
    }
    if (!e->link_up) {
        return true;
    }
    switch (ret) {
    case -EBADMSG:
        vr_count(e, VROCE_CNT_RX_BAD_ICRC, 1);
        return true;
    case -EACCES:
        vr_count(e, VROCE_CNT_RX_BAD_KEY, 1);
        return true;
    case -EPROTO:
        vr_count(e, VROCE_CNT_RX_MALFORMED, 1);
        return true;
    }
    vr_count(e, VROCE_CNT_RDMA_RX_PACKETS, 1);
    vr_count(e, VROCE_CNT_RDMA_RX_BYTES, sp.payload.len);
    vr_transport_rx(e, e, &sp);
    return true;
}
