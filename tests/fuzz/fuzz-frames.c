/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Frames from a peer that plays by no rules: packets with any headers and a
 * right ICRC, headers changed before the ICRC is taken, echoes of what the
 * device sent, plain noise. Requests are outstanding, so that answers count.
 */
#include <string.h>

#include "vr_wire.h"
#include "world.h"

#define MAX_FRAME (VR_FRAME_OVERHEAD + 4096 + 64)

/*
 * Receive a frame that ends at `end`, with the right ICRC behind it; what says
 * that its IP header is longer than it can be has none.
 */
static void receive(struct world *w, uint8_t *frame, size_t end)
{
    size_t headers = VR_ETH_LEN + VR_IPV6_LEN + VR_UDP_LEN + VR_BTH_LEN;
    uint32_t icrc = 0;

    if (frame[VR_ETH_LEN] >> 4 != 6 || end >= headers) {
        icrc = htole32(vr_icrc(frame, VR_ETH_LEN, end));
    }
    memcpy(frame + end, &icrc, sizeof(icrc));
    fh_receive(w->h, frame, end + sizeof(icrc));
}

static void noise(struct world *w, struct input *in)
{
    uint8_t frame[256];
    uint32_t len = in_below(in, sizeof(frame));

    in_bytes(in, frame, len);
    fh_receive(w->h, frame, len);
}

static void packet_fields(struct world *w, struct input *in, struct vr_sp *sp)
{
    struct drv_qp *qp = &w->qp[in_below(in, WORLD_QPS)];

    memcpy(sp->route.sgid, w->peer_gid, 16);
    memcpy(sp->route.dgid, w->d->gid[0], 16);
    drv_mac(2, sp->route.smac);
    drv_mac(1, sp->route.dmac);
    sp->route.vlan = VROCE_NO_VLAN;
    sp->route.udp_sport = 0xc000;
    sp->route.hop_limit = 64;
    sp->qp_type = in_below(in, 8) ? qp->type : in_below(in, 3);
    sp->qp_type = MIN(sp->qp_type, VROCE_QPT_UD);
    sp->op = in_below(in, VR_OP_CNP + 1);
    sp->flags = in_uint(in, 1);
    sp->mtu = 128u << (1 + in_below(in, 5));
    sp->dqpn = in_below(in, 16) ? qp->qpn : in_uint(in, 3);
    sp->sqpn = WORLD_PEER_QPN;
    sp->psn = vr_psn_add(WORLD_PSN, (int8_t)in_uint(in, 1));
    sp->npkt = 1;
    sp->qkey = 0x11111111;
    sp->syndrome = in_uint(in, 1);
    sp->msn = in_uint(in, 1);
    sp->rkey = in_below(in, 16) ? w->mr.key : in_uint(in, 4);
    sp->va = WORLD_IOVA + in_uint(in, 2);
    sp->dma_len = in_below(in, 16) ? in_uint(in, 2) : in_uint(in, 4);
    sp->inv_key = w->mr.key;
    sp->swap_add = in_uint(in, 4);
    sp->compare = in_uint(in, 4);
}

/* A well-formed packet; then, perhaps, headers that are not. */
static void packet(struct world *w, struct input *in)
{
    uint8_t frame[MAX_FRAME] = { 0 };
    struct vr_sp sp = { 0 };
    uint32_t len, patches;
    size_t off;

    packet_fields(w, in, &sp);
    len = in_below(in, 4) ? sp.mtu : in_below(in, 4097);
    sp.payload = (struct vr_payload) {
        .kind = VR_PAYLOAD_BYTES, .len = MIN(len, sp.mtu),
        .bytes = frame,
    };
    off = vr_frame_headers(frame, &sp, 0, &len);
    g_assert_cmpuint(off + len + 64, <=, sizeof(frame));
    patches = in_below(in, 16);
    for (uint32_t i = 0; i < patches && patches < 8; i++) {
        uint32_t at = in_below(in, off);

        frame[at] = in_uint(in, 1);
    }
    receive(w, frame, off + ((len + 3) & ~3u));
}

/* Send a frame of the device back, as if the peer had said the same. */
static void echo(struct world *w, struct input *in)
{
    uint8_t frame[MAX_FRAME], tmp[16];
    gsize len;
    const uint8_t *sent;

    if (!w->sent->len) {
        return;
    }
    sent = g_bytes_get_data(w->sent->pdata[in_below(in, w->sent->len)], &len);
    if (len > sizeof(frame) || len < 58) {
        return;
    }
    memcpy(frame, sent, len);
    memcpy(tmp, frame, 6);
    memcpy(frame, frame + 6, 6);
    memcpy(frame + 6, tmp, 6);
    memcpy(tmp, frame + 26, 4);
    memcpy(frame + 26, frame + 30, 4);
    memcpy(frame + 30, tmp, 4);
    /* The destination QP is a peer's number: name one of ours. */
    frame[14 + 28 + 7] = w->qp[in_below(in, WORLD_QPS)].qpn;
    receive(w, frame, len - VR_ICRC_LEN);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct input in = { data, len };
    struct world w;

    world_init(&w, false);
    while (in.len) {
        switch (in_below(&in, 8)) {
        case 0:
            noise(&w, &in);
            break;
        case 1:
            world_post(&w, &in);
            break;
        case 2:
            world_settle(&w, in_uint(&in, 3));
            break;
        case 3:
            echo(&w, &in);
            break;
        default:
            packet(&w, &in);
        }
    }
    world_settle(&w, 100000000);
    world_fini(&w);
    return 0;
}
