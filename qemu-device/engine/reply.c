/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the responder sends: answers to READs and atomics from the replay table
 * and one acknowledgement, coalesced. Served by the scheduler in the order of
 * the requests, so that an acknowledgement never overtakes an answer.
 */
#include <string.h>

#include "vr_transport.h"

/*
 * A requester may charge each NAK to its retry counter, and does not know
 * before a round trip what became of what it sent again. How long that takes
 * is unknown here: another NAK of the same packet waits for so many packets
 * behind the gap, twice as many each time, or for this long.
 */
#define NAK_AGAIN_PACKETS   32
#define NAK_AGAIN_NS        1000000

void vr_reply_ack(struct vr_engine *e, struct vr_qp *qp, uint8_t syndrome,
                  uint32_t psn)
{
    struct vr_resp *resp = &qp->resp;

    resp->have_ack = true;
    resp->ack_syndrome = syndrome;
    resp->ack_psn = psn;
    vr_sched_add(e, qp);
}

bool vr_reply_nak_due(struct vr_engine *e, struct vr_qp *qp,
                      const struct vr_sp *sp)
{
    struct vr_resp *resp = &qp->resp;
    bool gone_back = vr_psn_diff(sp->psn, resp->behind) <= 0;
    bool late = e->now - resp->nak_at >= NAK_AGAIN_NS;

    resp->behind = vr_psn_add(sp->psn, sp->npkt - 1);
    resp->nak_since += sp->npkt;
    if (resp->rnr_sent) {
        /* What was in flight with it is ignored, and may be out of order. */
        return gone_back && late && !resp->have_ack;
    }
    return !resp->nak_sent || gone_back ||
           (sp->flags & VR_SP_ACKREQ &&
            (late || resp->nak_since >= resp->nak_after));
}

void vr_reply_nak(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_resp *resp = &qp->resp;

    if (resp->nak_after == 0) {
        resp->nak_after = NAK_AGAIN_PACKETS;
    } else if (resp->nak_after <= VR_PSN_MASK) {
        resp->nak_after *= 2;
    }
    resp->nak_since = 0;
    resp->nak_at = e->now;
    resp->nak_sent = true;
    vr_reply_ack(e, qp, VR_SYN_NAK_PSN, qp->resp.psn);
}

struct vr_replay *vr_replay_add(struct vr_qp *qp, const struct vr_sp *sp,
                                uint32_t npsn)
{
    struct vr_resp *resp = &qp->resp;
    uint32_t size = qp->attr.max_dest_rd_atomic;
    struct vr_replay *r = &resp->replay[resp->replay_next];

    if (size == 0) {
        return NULL;
    }
    if (resp->replay_num == size) {
        if (r->active && !r->served) {
            return NULL;
        }
        if (r->active) {
            /* A repetition that the requester no longer waits for. */
            resp->replay_active--;
        }
    } else {
        resp->replay_num++;
    }
    *r = (struct vr_replay) {
        .psn = sp->psn, .npsn = npsn, .op = sp->op, .key = sp->rkey,
        .len = sp->dma_len, .limit = sp->dma_len, .va = sp->va, .end = npsn,
        .active = true,
    };
    resp->replay_next = (resp->replay_next + 1) % size;
    resp->replay_active++;
    return r;
}

void vr_replay_resize(struct vr_qp *qp, uint32_t old_size)
{
    struct vr_resp *resp = &qp->resp;
    struct vr_replay kept[VR_MAX_RD_ATOMIC];
    uint32_t size = qp->attr.max_dest_rd_atomic;
    uint32_t n = resp->replay_num < size ? resp->replay_num : size;

    resp->replay_active = 0;
    for (uint32_t i = 0; i < n; i++) {
        kept[i] = resp->replay[(resp->replay_next + old_size - n + i) %
                               old_size];
        resp->replay_active += kept[i].active;
    }
    memcpy(resp->replay, kept, n * sizeof(kept[0]));
    resp->replay_num = n;
    resp->replay_next = size ? n % size : 0;
}

/* The entry before the i latest ones, of those that there are. */
static struct vr_replay *nth_latest(struct vr_qp *qp, uint32_t i)
{
    uint32_t size = qp->attr.max_dest_rd_atomic;

    return &qp->resp.replay[(qp->resp.replay_next + size - 1 - i) % size];
}

/*
 * The entry whose PSNs contain psn, and that is for this operation: the latest,
 * for one that is old enough has the PSNs of those that follow 2^24 later.
 */
static struct vr_replay *find_replay(struct vr_qp *qp, uint8_t op,
                                     uint32_t psn)
{
    struct vr_resp *resp = &qp->resp;

    for (uint32_t i = 0; i < resp->replay_num; i++) {
        struct vr_replay *r = nth_latest(qp, i);
        int32_t d = vr_psn_diff(psn, r->psn);

        if (d >= 0 && d < (int32_t)r->npsn) {
            return r->op == op ? r : NULL;
        }
    }
    return NULL;
}

/* A READ again, perhaps from its middle on. */
static bool reread(struct vr_qp *qp, struct vr_replay *r,
                   const struct vr_sp *sp)
{
    uint32_t start = vr_psn_diff(sp->psn, r->psn);
    uint64_t off = (uint64_t)start * qp->mtu;
    uint32_t npsn = vr_num_packets(sp->dma_len, qp->mtu);

    /* Only what the first request named, IBA 9.7.5.1.4 (C9-109). */
    if (sp->rkey != r->key || sp->va != r->va + off ||
        sp->dma_len > r->len - off || start + npsn > r->npsn) {
        return false;
    }
    r->start = r->next = start;
    r->end = start + npsn;
    r->limit = off + sp->dma_len;
    return true;
}

/* One answer for all duplicates, and one for each that asks (C9-105). */
static void acknowledge_again(struct vr_engine *e, struct vr_qp *qp,
                              const struct vr_sp *sp)
{
    struct vr_resp *resp = &qp->resp;
    bool silent = resp->dup_acked && !(sp->flags & VR_SP_ACKREQ);

    resp->dup_acked = true;
    if (silent || (resp->have_ack &&
                   VR_AETH_TYPE(resp->ack_syndrome) != VR_AETH_ACK)) {
        return;
    }
    if (resp->hold && !resp->rnr_sent && vr_reply_nak_due(e, qp, sp)) {
        vr_reply_nak(e, qp);    /* the same, and the first NAK may be lost */
    } else {
        vr_reply_ack(e, qp, VR_SYN_ACK, vr_psn_add(resp->psn, VR_PSN_MASK));
    }
}

void vr_replay_again(struct vr_engine *e, struct vr_qp *qp,
                     const struct vr_sp *sp)
{
    struct vr_resp *resp = &qp->resp;
    struct vr_replay *r;

    vr_count(e, VROCE_CNT_RX_DUPLICATE, sp->npkt);
    if (sp->op == VR_OP_SEND || sp->op == VR_OP_WRITE) {
        acknowledge_again(e, qp, sp);
        return;
    }
    r = find_replay(qp, sp->op, sp->psn);
    if (!r || (sp->op == VR_OP_READ_REQ && !reread(qp, r, sp))) {
        return;
    }
    if (!r->active) {
        r->active = true;
        resp->replay_active++;
    }
    vr_sched_add(e, qp);
}

static void answer_header(const struct vr_qp *qp, struct vr_sp *sp, uint8_t op,
                          uint8_t syndrome, uint32_t psn)
{
    *sp = (struct vr_sp) {
        .route = qp->route,
        .qp_type = VROCE_QPT_RC,
        .op = op,
        .syndrome = syndrome,
        .mtu = qp->mtu,
        .sqpn = qp->qpn,
        .dqpn = le32toh(qp->attr.dest_qpn),
        .psn = psn,
        .npkt = 1,
        .msn = qp->resp.msn,
    };
}

static void send_answer(struct vr_engine *e, struct vr_qp *qp,
                        const struct vr_sp *sp)
{
    vr_report(e, VR_REPORT_TX, qp->qpn, vr_sp_bth_opcode(sp, 0), sp->psn);
    vr_link_send(e, sp);
}

static void send_atomic_ack(struct vr_engine *e, struct vr_qp *qp,
                            const struct vr_replay *r)
{
    struct vr_sp sp;

    answer_header(qp, &sp, VR_OP_ATOMIC_ACK, VR_SYN_ACK, r->psn);
    sp.flags = VR_SP_FIRST | VR_SP_LAST;
    sp.swap_add = r->result;
    send_answer(e, qp, &sp);
}

/* The next super-packet of a READ response; true when it was the last. */
static bool send_read_response(struct vr_engine *e, struct vr_qp *qp,
                               struct vr_replay *r, int64_t *budget)
{
    uint32_t n = r->end - r->next, max = VR_SP_BYTES / qp->mtu;
    uint64_t off = (uint64_t)r->next * qp->mtu, len;
    struct vr_sp sp;

    n = n < max ? n : max;
    len = (uint64_t)n * qp->mtu;
    if (len > r->limit - off) {
        len = r->limit - off;
    }
    answer_header(qp, &sp, VR_OP_READ_RESP, VR_SYN_ACK,
                  vr_psn_add(r->psn, r->next));
    sp.npkt = n;
    if (r->next == r->start) {
        sp.flags |= VR_SP_FIRST;
    }
    if (r->next + n == r->end) {
        sp.flags |= VR_SP_LAST;
    }
    if (len) {
        sp.payload = (struct vr_payload) {
            .kind = VR_PAYLOAD_MR, .off = off, .len = len,
            .mr = { .qpn = qp->qpn, .key = r->key, .psn = r->psn, .va = r->va },
        };
    }
    r->next += n;
    *budget -= len + n * VR_PACKET_COST;
    send_answer(e, qp, &sp);
    return r->next == r->end;
}

/* The oldest request that still waits for its answer. */
static struct vr_replay *first_active(struct vr_qp *qp)
{
    for (uint32_t i = qp->resp.replay_num; i-- > 0;) {
        struct vr_replay *r = nth_latest(qp, i);

        if (r->active) {
            return r;
        }
    }
    return NULL;
}

static enum vr_turn serve_answers(struct vr_engine *e, struct vr_qp *qp,
                                  int64_t *budget)
{
    struct vr_resp *resp = &qp->resp;

    while (resp->replay_active) {
        struct vr_replay *r = first_active(qp);
        bool done = true;

        if (*budget <= 0) {
            return VR_TURN_MORE;
        }
        if (!vr_tx_room(e, qp->loopback)) {
            return vr_no_room(qp->loopback);
        }
        if (r->op == VR_OP_READ_REQ) {
            done = send_read_response(e, qp, r, budget);
        } else {
            send_atomic_ack(e, qp, r);
            *budget -= VR_PACKET_COST;
        }
        if (done && r->active) {
            r->active = false;
            r->served = true;
            resp->replay_active--;
        }
    }
    return VR_TURN_IDLE;
}

/* One acknowledgement; have_ack stays set while there are gaps to be named. */
static void send_ack(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_resp *resp = &qp->resp;
    struct vr_sp sp;

    answer_header(qp, &sp, VR_OP_ACK, resp->ack_syndrome, resp->ack_psn);
    sp.flags = VR_SP_FIRST | VR_SP_LAST;
    resp->have_ack = false;
    if (resp->ack_syndrome == VR_SYN_NAK_PSN) {
        vr_count(e, VROCE_CNT_TX_PSN_NAK, 1);
        if (resp->names_gaps) {
            sp.flags |= VR_SP_NAMES;
            sp.msn = vr_hold_name_gap(qp, resp->ack_psn);
            resp->have_ack = vr_hold_gap(qp);
        }
    }
    send_answer(e, qp, &sp);
}

enum vr_turn vr_reply_run(struct vr_engine *e, struct vr_qp *qp,
                          int64_t *budget)
{
    enum vr_turn turn = serve_answers(e, qp, budget);

    while (turn == VR_TURN_IDLE && qp->resp.have_ack) {
        if (*budget <= 0) {
            return VR_TURN_MORE;
        }
        if (!vr_tx_room(e, qp->loopback)) {
            return vr_no_room(qp->loopback);
        }
        *budget -= VR_PACKET_COST;
        send_ack(e, qp);
    }
    return turn;
}
