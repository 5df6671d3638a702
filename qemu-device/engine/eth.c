/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The Ethernet side: frames of the netdev, on the queues of an Ethernet QP.
 */
#include <stdlib.h>
#include <string.h>

#include "vr_transport.h"
#include "vr_wire.h"

/* ----------------------------------------------------------- transmit */

/* Fill in the checksum that the segment asks for; false: it lies outside. */
static bool eth_checksum(uint8_t *frame, uint32_t len,
                         const struct vroce_wqe_eth *seg)
{
    uint32_t start = le16toh(seg->csum_start);
    uint32_t field = start + le16toh(seg->csum_offset);
    uint16_t sum;

    if (start > len || field + 2 > len) {
        return false;
    }
    sum = ~vr_csum_fold(vr_csum_add(0, frame + start, len - start));
    vr_put16(frame + field, sum ? sum : 0xffff);    /* RFC 768: 0 means none */
    return true;
}

static bool eth_seg_ok(const struct vroce_wqe_eth *seg)
{
    static const uint8_t zero[sizeof(seg->reserved)];

    /* Segmentation is not offered: see VROCE_FEATURE_ETH_TSO. */
    return !(seg->flags & ~VROCE_ETH_CSUM) && !seg->gso_type &&
           !memcmp(seg->reserved, zero, sizeof(zero));
}

/* Build and send the frame of the WQE in e->wqe; how it ended goes to *f. */
static void eth_send(struct vr_engine *e, struct vr_qp *qp,
                     struct vr_failure *f)
{
    const struct vr_wqe *w = &e->wqe;
    const struct vroce_wqe_eth *seg = (const void *)(w->bytes + w->seg_off);
    uint8_t *frame = vr_edge_frame(e);
    struct vr_view from, to = { .kind = VR_VIEW_BYTES, .bytes = frame };
    bool from_failed;

    if (!eth_seg_ok(seg)) {
        f->rule = VROCE_RULE_RESERVED;
        f->status = VROCE_WCS_LOC_QP_OP_ERR;
        return;
    }
    if (w->length < VR_ETH_LEN ||
        w->length > e->cfg.max_mtu + VR_ETH_LEN + VR_VLAN_LEN) {
        f->rule = VROCE_RULE_WQE_LENGTH;
        f->status = VROCE_WCS_LOC_LEN_ERR;
        return;
    }
    vr_wqe_view(e, qp, &from);
    f->rule = vr_copy(&to, 0, &from, 0, w->length, &from_failed);
    if (f->rule) {
        f->status = VROCE_WCS_LOC_PROT_ERR;
        return;
    }
    if (seg->flags & VROCE_ETH_CSUM && !eth_checksum(frame, w->length, seg)) {
        f->rule = VROCE_RULE_WQE_SIZE;
        f->status = VROCE_WCS_LOC_QP_OP_ERR;
        return;
    }
    vr_count(e, VROCE_CNT_TX_FRAMES, 1);
    vr_count(e, VROCE_CNT_TX_BYTES, w->length);
    vr_edge_tx(e, frame, w->length);
}

uint32_t vr_eth_run(struct vr_engine *e, struct vr_qp *qp, uint32_t budget)
{
    struct vr_req *req = &qp->req;
    struct vr_failure f;
    uint32_t sent = 0;

    while (sent < budget && req->next != req->producer && vr_link_ready(e) &&
           qp->state == VROCE_QPS_RTS) {
        if (vr_wqe_load(e, qp, req->next, &f)) {
            const struct vr_wqe *w = &e->wqe;

            f = (struct vr_failure) {
                .opcode = w->ctrl.opcode, .status = VROCE_WCS_SUCCESS,
                .index = req->next, .end = req->next + w->units,
                .wr_id = le64toh(w->ctrl.wr_id),
            };
            if (w->ctrl.opcode == VROCE_WQE_ETH) {
                eth_send(e, qp, &f);
            }
            if (f.rule) {
                vr_misuse(e, f.rule, qp->qpn, "Ethernet send");
            }
            sent += w->length + VR_MIN_FRAME;
        }
        vr_sq_cqe(e, qp, &f, 0, e->wqe.ctrl.flags & VROCE_WQE_SIGNALED);
        if (f.status != VROCE_WCS_SUCCESS) {
            vr_count(e, VROCE_CNT_TX_ERRORS, 1);
            vr_qp_error(e, qp, 0, f.rule);
            break;
        }
    }
    return sent;
}

/* ------------------------------------------------------------ receive */

static bool eth_is_for_us(const struct vr_engine *e, const uint8_t *frame)
{
    /* A hub between several guests brings back what we sent ourselves. */
    if (!memcmp(frame + 6, e->netdev_mac, 6)) {
        return false;
    }
    return e->netdev_flags & VROCE_NETDEV_PROMISC || frame[0] & 1 ||
           !memcmp(frame, e->netdev_mac, 6);
}

/* Are the sums of TCP or UDP over ip right? body follows the IP header. */
static bool l4_sums_ok(const uint8_t *ip, const uint8_t *body, size_t len,
                       uint8_t protocol)
{
    if (protocol == VR_PROTO_TCP) {
        if (len < 20) {
            return false;
        }
    } else if (protocol != VR_PROTO_UDP || len < VR_UDP_LEN ||
               vr_get16(body + 4) != len || !vr_get16(body + 6)) {
        return false;
    }
    return vr_csum_fold(vr_csum_add(vr_csum_pseudo(ip, len, protocol), body,
                                    len)) == 0xffff;
}

/*
 * Are all checksums right? What is not looked into (options of IPv6,
 * fragments, other protocols) is not known to be.
 */
static bool eth_sums_ok(const uint8_t *frame, size_t len)
{
    uint16_t ethertype, vlan;
    uint8_t pcp;
    size_t l3 = vr_frame_l3(frame, len, &ethertype, &vlan, &pcp), hdr, total;
    const uint8_t *ip = frame + l3;

    len -= l3;
    if (ethertype == VR_ETHERTYPE_IPV4 && len >= VR_IPV4_LEN) {
        hdr = (ip[0] & 0xf) * 4;
        total = vr_get16(ip + 2);
        if (ip[0] >> 4 != 4 || hdr < VR_IPV4_LEN || total < hdr ||
            total > len || vr_get16(ip + 6) & 0x3fff ||
            vr_csum_fold(vr_csum_add(0, ip, hdr)) != 0xffff) {
            return false;
        }
        return l4_sums_ok(ip, ip + hdr, total - hdr, ip[9]);
    }
    if (ethertype == VR_ETHERTYPE_IPV6 && len >= VR_IPV6_LEN) {
        total = vr_get16(ip + 4);
        return ip[0] >> 4 == 6 && total <= len - VR_IPV6_LEN &&
               l4_sums_ok(ip, ip + VR_IPV6_LEN, total, ip[6]);
    }
    return false;
}

/* Put the frame into the receive WQE at hand and complete it. */
static void eth_deliver(struct vr_engine *e, struct vr_qp *qp,
                        const uint8_t *frame, size_t len)
{
    struct vr_view from = { .kind = VR_VIEW_BYTES, .bytes = (uint8_t *)frame };
    struct vr_view to = {
        .kind = VR_VIEW_SGL, .e = e, .sgl = qp->resp.recv.sgl,
    };
    struct vroce_cqe cqe = { .opcode = VROCE_WC_RECV };
    enum vroce_rule rule;
    bool from_failed;

    rule = vr_copy(&to, 0, &from, 0, len, &from_failed);
    if (rule) {
        vr_misuse(e, rule, qp->qpn, "Ethernet receive");
        cqe.status = VROCE_WCS_LOC_PROT_ERR;
        cqe.rule = htole16(rule);
    } else {
        vr_count(e, VROCE_CNT_RX_FRAMES, 1);
        vr_count(e, VROCE_CNT_RX_BYTES, len);
        cqe.byte_len = htole32(len);
        if (eth_sums_ok(frame, len)) {
            cqe.flags = htole16(VROCE_CQE_CSUM_OK);
        }
    }
    vr_recv_cqe(e, qp, &qp->resp.recv, &cqe, false);
    if (rule) {
        vr_qp_error(e, qp, 0, rule);
    }
}

void vr_eth_receive(struct vr_engine *e, const uint8_t *frame, size_t len)
{
    struct vr_qp *qp = vr_qp_get(e, e->netdev_qpn);
    struct vr_recv *recv;
    enum vroce_rule rule;
    size_t most;

    if (!qp || qp->type != VROCE_QPT_ETH || !vr_qp_can_receive(qp) ||
        !e->link_up || len < VR_ETH_LEN || !eth_is_for_us(e, frame)) {
        return;
    }
    most = VR_ETH_LEN + e->netdev_mtu +
           (vr_get16(frame + 12) == VR_ETHERTYPE_VLAN ? VR_VLAN_LEN : 0);
    recv = &qp->resp.recv;
    qp->marks.heard = e->now;
    if (len <= most && !recv->valid) {
        rule = vr_rq_take(e, qp, recv);
        if (rule) {
            vr_qp_error(e, qp, VROCE_EVENT_QP_FATAL, rule);
            return;
        }
        if (!recv->valid) {
            qp->marks.refused = e->now;
            vr_count(e, VROCE_CNT_RX_NO_BUFFER, 1);
            return;
        }
    }
    /* A WQE that is too small stays at hand for the next frame. */
    if (len > most || len > vr_sgl_length(&recv->sgl)) {
        vr_count(e, VROCE_CNT_RX_TOO_LONG, 1);
        return;
    }
    eth_deliver(e, qp, frame, len);
}
