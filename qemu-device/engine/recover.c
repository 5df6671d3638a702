/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Going back: what the requester sends again, and when, IBA 9.7.5 and 9.7.6.
 *
 * A requester goes back to the oldest packet that is missing and sends all
 * again from there. Some responders, ours among them (hold.c), keep what
 * arrives behind a gap: an acknowledgement then passes the cursor, which jumps.
 * Once that was seen, only what is likely to be missing is sent again, and then
 * what is new; the window opens wider meanwhile, for nothing can be
 * acknowledged before the gap is closed. Those of ours also say what is
 * missing: gap.c.
 */
#include "vr_transport.h"

/* Taken for the round trip before one was measured, ns. */
#define GUESSED_RTT 1000000
/*
 * Something must follow what is sent again, or nobody would notice its loss:
 * this many units of the send queue that are new, or packets sent again.
 */
#define ENOUGH_NEW  8
#define FOLLOWERS   2
/* Silence before a probe: ns, and round trips on top. */
#define PROBE_MIN   1000000
#define PROBE_RTTS  4
/* So many packets without a gap: the wire is good again. */
#define LOSSY_PACKETS 1024

/* --------------------------------------------------------- round trips */

static void measure(struct vr_req *req, uint32_t psn, uint64_t now)
{
    req->rtt_psn = psn;
    req->rtt_at = now;
}

static void round_trip_done(struct vr_req *req, uint64_t now)
{
    uint64_t t = now - req->rtt_at;

    req->rtt = req->rtt ? req->rtt - req->rtt / 8 + t / 8 : t;
    req->rtt_at = 0;
}

static uint64_t round_trip(const struct vr_req *req)
{
    return req->rtt ? req->rtt : GUESSED_RTT;
}

void vr_recover_sent(struct vr_engine *e, struct vr_qp *qp,
                     const struct vr_sp *sp, uint32_t end_psn)
{
    struct vr_req *req = &qp->req;

    if (req->filling) {
        return;                 /* see vr_recover_skip() */
    }
    if (vr_psn_diff(sp->psn, req->sent) < 0) {
        /* Sent again: see resent_lately(). */
        if (vr_psn_diff(end_psn, req->sent) > 0) {
            end_psn = req->sent;
        }
        if (vr_psn_diff(end_psn, req->again) > 0) {
            req->again = end_psn;
            req->again_at = e->now;
        }
    } else if (sp->flags & VR_SP_ACKREQ && !req->rtt_at) {
        measure(req, vr_psn_add(end_psn, VR_PSN_MASK), e->now);
    }
}

void vr_recover_acked(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_req *req = &qp->req;

    req->went_back = false;
    if (vr_psn_diff(req->una, req->again) >= 0) {
        req->back = req->again = req->una;
    }
    vr_gap_closed(req);
    if (req->rtt_at && vr_psn_diff(req->una, req->rtt_psn) > 0) {
        round_trip_done(req, e->now);
    }
}

/* ---------------------------------------------------------- the cursor */

/* A place in the send queue. */
struct place {
    uint32_t index, pkt;
    uint32_t left;              /* packets at least, from there on */
    uint32_t reads;             /* READs and atomics in flight before it */
};

/* Where the packet psn is sent; behind all that was sent, what comes next. */
static struct place find_place(const struct vr_qp *qp, uint32_t psn)
{
    const struct vr_req *req = &qp->req;
    struct place p = { .index = req->consumer };

    while (p.index != req->next) {
        const struct vr_shadow *sh = vr_shadow_at(qp, p.index);
        int32_t at = vr_psn_diff(psn, sh->first_psn);

        if (sh->npsn ? at < (int32_t)sh->npsn : !sh->done) {
            p.pkt = at > 0 ? at : 0;
            p.left = sh->npsn - p.pkt;
            break;
        }
        p.reads += vr_op_is_read_or_atomic(sh->opcode);
        p.index += sh->units;
    }
    p.left += req->producer - p.index;
    return p;
}

static void move_cursor(struct vr_qp *qp, uint32_t psn)
{
    struct place p = find_place(qp, psn);

    qp->req.cur = p.index;
    qp->req.cur_pkt = p.pkt;
    qp->req.reads = p.reads;
}

/* Is psn what a NAK told of, and has it not been acknowledged since? */
static bool is_missing(const struct vr_req *req, uint32_t psn)
{
    return req->went_back && req->by_nak && psn == req->back;
}

int32_t vr_recover_packets(const struct vr_qp *qp, uint32_t psn)
{
    const struct vr_req *req = &qp->req;

    return is_missing(req, psn) ? 1 :
           req->skipping ? vr_psn_diff(req->skip, psn) : INT32_MAX;
}

/* Has not all been acknowledged yet that was sent again last? */
static bool in_pass(const struct vr_qp *qp)
{
    return vr_psn_diff(qp->req.again, qp->req.una) > 0;
}

int32_t vr_req_window(const struct vr_qp *qp)
{
    const struct vr_req *req = &qp->req;
    int32_t since = vr_psn_diff(req->una, req->gap), window;

    if (req->peer_names) {
        window = VR_WINDOW + req->arrived;
        return window < VR_HOLD_PACKETS ? window : VR_HOLD_PACKETS;
    }
    window = req->spacing && since >= 0 && since < LOSSY_PACKETS ?
             VR_LOSSY_WINDOW : VR_WINDOW;
    if (req->peer_keeps && in_pass(qp)) {
        window += req->arrived;
        window = window > VR_WINDOW ? window : VR_WINDOW;
    }
    return window < VR_HOLD_PACKETS ? window : VR_HOLD_PACKETS;
}

void vr_recover_skip(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_req *req = &qp->req;
    uint32_t psn;

    if (req->skipping) {
        struct vr_gap *gap = vr_gap_at(req, vr_psn_add(req->skip, VR_PSN_MASK));

        if (vr_psn_diff(vr_req_cur_psn(qp), req->skip) < 0) {
            return;
        }
        if (req->filling && gap) {
            gap->filled_at = e->now;
        }
        req->skipping = req->filling = false;
        move_cursor(qp, req->sent);
    }
    if (vr_psn_diff(vr_req_cur_psn(qp), req->sent) >= 0 &&
        vr_gap_next(qp, &psn, &req->skip)) {
        move_cursor(qp, psn);
        req->skipping = req->filling = true;
    }
}

/*
 * How much of what is in flight is sent again. One packet, where losses are
 * further apart than a round trip. Where they are closer, more is missing than
 * the NAK tells of, and each of that would cost a round trip of its own: so
 * what follows is sent again too, half of what is in flight beyond the usual
 * distance of two losses. The other half of the room is for what is new.
 */
static void choose_pass(struct vr_engine *e, struct vr_qp *qp, bool first)
{
    struct vr_req *req = &qp->req;
    struct vr_gap *gap = vr_gap_at(req, req->una);
    int32_t flight = vr_psn_diff(req->sent, req->una), n = 1;
    int32_t widest = req->peer_names ? VR_HOLD_PACKETS : vr_req_window(qp);

    /* The packet behind what was sent again is missing too: not kept? */
    if (req->skip == req->una && !gap) {
        vr_gap_forget(req);
    }
    req->skipping = req->peer_keeps;
    if (!req->skipping) {
        req->num_gaps = 0;
        return;
    }
    if (gap) {
        n = vr_psn_diff(gap->psn, req->una) + gap->num;
        gap->filled_at = e->now;
    }
    if (find_place(qp, req->sent).left < ENOUGH_NEW ||
        qp->state != VROCE_QPS_RTS || flight + VR_ACKREQ_PACKETS > widest) {
        n += FOLLOWERS;
    }
    flight -= req->arrived;
    if (!req->peer_names && first && flight > (int32_t)req->spacing) {
        n += (flight - req->spacing) / 2;
    }
    req->skip = vr_psn_add(req->una, n);
}

/* To una; gaps that were named may stay where not all is sent again. */
static void go_back(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_req *req = &qp->req;

    if (req->consumer == req->next) {
        return;
    }
    req->cur = req->consumer;
    req->cur_pkt = vr_psn_diff(req->una,
                               vr_shadow_at(qp, req->cur)->first_psn);
    if (vr_shadow_at(qp, req->cur)->npsn == 0) {
        req->cur_pkt = 0;
    }
    req->reads = 0;
    req->unasked = 0;
    req->by_nak = req->skipping = req->filling = false;
    req->rtt_at = 0;
    req->back = req->una;
    req->again = vr_psn_add(req->una, 1);
    req->back_at = req->again_at = e->now;
    vr_sched_add(e, qp);
}

void vr_go_back(struct vr_engine *e, struct vr_qp *qp)
{
    qp->req.num_gaps = 0;
    go_back(e, qp);
}

/* -------------------------------------------------------------- timers */

/* Until the answer is overdue or, before that, it is time to probe. */
static void arm_next(struct vr_engine *e, struct vr_req *req)
{
    uint64_t when = req->timeout_at;

    if (req->probe_after && req->probe_after < when - e->now) {
        when = e->now + req->probe_after;
    }
    vr_timer_set(e, &req->retry_timer, when);
}

void vr_req_arm(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_req *req = &qp->req;
    uint64_t t = vr_ack_timeout(qp);

    if (req->una == req->sent || req->waiting_rnr || t == VR_NEVER) {
        vr_timer_cancel(e, &req->retry_timer);
        return;
    }
    req->timeout_at = e->now + t;
    req->probe_after = PROBE_MIN + PROBE_RTTS * round_trip(req);
    arm_next(e, req);
}

/*
 * Silence for several round trips: the last packets are lost, or what told of
 * it. A duplicate of the oldest is answered in any case, and costs less than a
 * timeout. Timeout and retries are counted as if there were none.
 *
 * A round trip is measured from the probe on: rather too short, but round trips
 * that became longer than the silence would else never be measured at all.
 */
static void probe(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_req *req = &qp->req;

    go_back(e, qp);
    req->skipping = true;
    req->skip = vr_psn_add(req->una, 1);
    req->probe_after *= 2;
    measure(req, req->una, e->now);
    arm_next(e, req);
}

/* -------------------------------------------------------------- causes */

/* One retry is used up, IBA 9.7.5.1.1 (7 means seven); false: none was left. */
static bool use_retry(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_req *req = &qp->req;

    if (req->retries_left == 0) {
        vr_count(e, VROCE_CNT_RETRY_EXCEEDED, 1);
        vr_sq_fail_head(e, qp, VROCE_WCS_RETRY_EXC_ERR, 0);
        return false;
    }
    req->retries_left--;
    vr_report(e, VR_REPORT_RETRY, qp->qpn, req->una, req->retries_left);
    return true;
}

/*
 * Was the oldest packet sent again within the last `percent` of a round trip,
 * so that what tells of its loss does not know? What was sent again went out
 * evenly between two known times.
 */
static bool resent_lately(struct vr_engine *e, struct vr_req *req,
                          uint32_t percent)
{
    const struct vr_gap *gap = vr_gap_at(req, req->una);
    int32_t off = vr_psn_diff(req->una, req->back);
    int32_t n = vr_psn_diff(req->again, req->back);

    if (gap) {
        return gap->filled_at &&
               e->now - gap->filled_at < round_trip(req) * percent / 100;
    }
    return off >= 0 && off < n &&
           e->now - req->back_at - (req->again_at - req->back_at) * off / n <
           round_trip(req) * percent / 100;
}

uint64_t vr_recover_patience(const struct vr_qp *qp)
{
    return round_trip(&qp->req) * 3 / 2;
}

/*
 * Something from una on is missing: uses up a retry, but one only until una
 * moves. Without a timeout nothing else would end it if una never moved, so
 * then there is another one for what is still missing this much later.
 */
static bool begin_round(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_req *req = &qp->req;
    bool endless = vr_ack_timeout(qp) == VR_NEVER;

    if (req->went_back && !(endless && e->now >= req->timeout_at)) {
        return true;
    }
    if (endless) {
        req->timeout_at = e->now + GUESSED_RTT + vr_recover_patience(qp);
    }
    return use_retry(e, qp);
}

bool vr_recover_begin(struct vr_engine *e, struct vr_qp *qp)
{
    struct vr_req *req = &qp->req;

    if (req->waiting_rnr || !begin_round(e, qp)) {
        return false;
    }
    if (!req->went_back) {
        req->went_back = true;
        vr_req_arm(e, qp);
    }
    return true;
}

void vr_learn_keeping(struct vr_qp *qp, uint32_t psn)
{
    struct vr_req *req = &qp->req;

    /* What was missing was sent alone and asked for an answer: this is it. */
    if (is_missing(req, req->una) && vr_psn_diff(psn, req->una) > 1) {
        req->peer_keeps = true;
    }
}

static void note_gap(struct vr_req *req)
{
    int32_t distance = vr_psn_diff(req->una, req->gap);

    if (!req->spacing || distance > VR_HOLD_PACKETS || distance < 0) {
        distance = VR_HOLD_PACKETS;
    }
    if (!req->spacing) {
        req->spacing = distance;
    } else if (distance) {
        req->spacing = (3 * req->spacing + distance) / 4;
    }
    req->gap = req->una;
}

void vr_sequence_error(struct vr_engine *e, struct vr_qp *qp,
                       const struct vr_sp *nak)
{
    struct vr_req *req = &qp->req;
    uint32_t in_flight = vr_psn_diff(req->sent, req->una);
    uint32_t arrived = req->arrived;
    bool first = !req->went_back, lately;
    uint64_t measured;

    lately = resent_lately(e, req, nak ? 75 : 150);
    if (nak && nak->flags & VR_SP_NAMES) {
        vr_gap_learn(e, qp, nak);
    } else if (nak && in_pass(qp)) {
        /* An answer to the next packet that asked for one. */
        req->arrived += req->asks_every;
        if (req->arrived > in_flight) {
            req->arrived = in_flight;
        }
    }
    if (req->arrived > arrived) {
        vr_sched_add(e, qp);    /* the window is wider now */
    }
    /*
     * What else was in flight says the same for a round trip. A NAK that comes
     * late in it is believed, for there may be no other; that costs little.
     */
    if (req->waiting_rnr || lately || !begin_round(e, qp)) {
        return;
    }
    if (!req->rtt && req->rtt_at) {
        round_trip_done(req, e->now);
    }
    measured = req->rtt_at;
    go_back(e, qp);
    if (nak) {
        req->by_nak = true;
        note_gap(req);
        choose_pass(e, qp, first);
    }
    if (first) {
        req->went_back = true;
        measure(req, req->una, e->now);
        vr_req_arm(e, qp);
    } else {
        req->rtt_at = measured; /* from the first time on: rather too long */
    }
}

void vr_qp_retry_timer(struct vr_engine *e, uint32_t qpn)
{
    struct vr_qp *qp = vr_qp_get(e, qpn);

    if (!qp || (qp->state != VROCE_QPS_RTS && qp->state != VROCE_QPS_SQD) ||
        qp->req.una == qp->req.sent || qp->req.waiting_rnr) {
        return;
    }
    if (e->now < qp->req.timeout_at) {
        probe(e, qp);
        return;
    }
    vr_count(e, VROCE_CNT_ACK_TIMEOUT, 1);
    if (use_retry(e, qp)) {
        qp->req.went_back = false;
        vr_go_back(e, qp);
        vr_req_arm(e, qp);
    }
}

void vr_qp_rnr_timer(struct vr_engine *e, uint32_t qpn)
{
    struct vr_qp *qp = vr_qp_get(e, qpn);

    if (qp && qp->req.waiting_rnr) {
        qp->req.waiting_rnr = false;
        vr_go_back(e, qp);
        vr_req_arm(e, qp);
    }
}
