/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The fabric between the nodes: each port has a rate and a queue, each packet
 * may be lost, doubled, delayed, overtaken or corrupted. Super-packets are cut
 * where their packets meet different fates, so that both links know the same
 * faults.
 */
#include <stdio.h>
#include <string.h>

#include "sim.h"

#define ETH_LEN 14
#define OVERHEAD 70             /* of a packet whose payload alone is known */

/* ------------------------------------------------------- for the trace */

const char *packet_name(uint8_t opcode)
{
    static const char *const names[32] = {
        "SEND FIRST", "SEND MIDDLE", "SEND LAST", "SEND LAST IMM", "SEND ONLY",
        "SEND ONLY IMM", "WRITE FIRST", "WRITE MIDDLE", "WRITE LAST",
        "WRITE LAST IMM", "WRITE ONLY", "WRITE ONLY IMM", "READ REQUEST",
        "RESPONSE FIRST", "RESPONSE MIDDLE", "RESPONSE LAST", "RESPONSE ONLY",
        "ACK", "ATOMIC ACK", "CMP SWAP", "FETCH ADD", "?", "SEND LAST INV",
        "SEND ONLY INV",
    };

    return names[opcode & 31] ? names[opcode & 31] : "?";
}

const char *syndrome_name(int16_t syndrome, char buf[24])
{
    static const char *const naks[] = {
        " NAK sequence", " NAK invalid", " NAK access", " NAK operation",
    };

    if (syndrome < 0) {
        return "";
    }
    if (syndrome >= 0x60 && syndrome < 0x64) {
        return naks[syndrome - 0x60];
    }
    snprintf(buf, 24, syndrome >> 5 == 1 ? " RNR %u" :
             syndrome >> 5 ? " AETH %u" : " ack", syndrome & 31);
    return buf;
}

/* The gap that a NAK names, and the last packet that is there: engine/gap.c. */
static const char *named_gap(const struct sim_packet *p, char buf[40])
{
    if (p->syndrome != 0x60 || !p->names) {
        return "";
    }
    snprintf(buf, 40, p->msn & 0xff ? ", up to +%u but %u at +%u" :
             ", up to +%u", p->msn >> 16, p->msn & 0xff, p->msn >> 8 & 0xff);
    return buf;
}

/* ------------------------------------------------------------ arrivals */

/* Something on its way to a node. */
struct arrival {
    struct node *to, *from;
    uint8_t *frame;
    size_t len;
    struct vr_sp sp;
    uint8_t *bytes;             /* of sp, when it carries its own */
};

static void arrival_free(void *opaque)
{
    struct arrival *a = opaque;

    g_free(a->frame);
    g_free(a->bytes);
    g_free(a);
}

static void arrive(struct sim *s, void *opaque)
{
    struct arrival *a = opaque;

    a->to->touched = a->from->touched = true;
    if (a->frame) {
        fh_receive(a->to->h, a->frame, a->len);
    } else {
        fh_deliver(a->to->h, a->from->h, &a->sp);
    }
}

/* ------------------------------------------------------------- ports */

static void run_node(struct sim *s, void *opaque)
{
    struct node *n = opaque;

    n->run_pending = false;
    n->touched = true;
    if (fh_run(n->h)) {
        n->run_pending = true;
        sim_at(s, s->now + 1 * US, run_node, n, NULL);
    }
}

static void on_kick(void *opaque)
{
    struct node *n = opaque;

    if (!n->run_pending) {
        n->run_pending = true;
        sim_at(n->s, n->s->now + 1 * US, run_node, n, NULL);
    }
}

static void timer(struct sim *s, void *opaque)
{
    struct node *n = opaque;

    if (n->h->deadline <= s->now) {
        n->touched = true;
        fh_timer(n->h);
    }
}

static void on_deadline(void *opaque, uint64_t ns)
{
    struct node *n = opaque;

    if (ns != UINT64_MAX) {
        sim_at(n->s, ns, timer, n, NULL);
    }
}

/* What leaves a port at one time. */
struct departure {
    struct node *n;
    uint32_t packets;
};

static void departed(struct sim *s, void *opaque)
{
    struct departure *d = opaque;
    struct node *n = d->n;

    n->queued -= d->packets;
    if (n->full && n->queued <= s->p.queue / 2) {
        n->full = false;
        n->touched = true;
        fh_tx_ready(n->h);
    }
}

/* Queue packets of len bytes in all at the port; returns when they left. */
static uint64_t depart(struct node *n, uint64_t len, uint32_t packets)
{
    struct departure *d = g_new(struct departure, 1);
    struct sim *s = n->s;

    *d = (struct departure) { n, packets };

    n->busy_until = MAX(n->busy_until, s->now) +
                    len * 8 * SEC / s->p.rate;
    n->queued += packets;
    sim_at(s, n->busy_until, departed, d, g_free);
    return n->busy_until;
}

/* -------------------------------------------------------------- fates */

static bool chance(struct sim *s, double p)
{
    return p > 0 && g_rand_double(s->rand) < p;
}

static uint32_t draw_fate(struct sim *s, const struct sim_packet *p)
{
    uint32_t fate = s->filter ? s->filter(s, p) : 0;
    char buf[24], gap[40];

    s->packets++;
    if (p->to == VROCE_NONE || s->node[p->from].dead || s->node[p->to].dead ||
        chance(s, s->p.loss)) {
        fate |= FATE_LOST;
    }
    fate |= chance(s, s->p.corrupt) ? FATE_CORRUPT : 0;
    fate |= chance(s, s->p.dup) ? FATE_TWICE : 0;
    fate |= chance(s, s->p.reorder) ? FATE_LATE : 0;
    s->dropped += fate & FATE_LOST ? 1 : 0;
    sim_trace(s, "n%u > n%d  %-15s qp %u psn 0x%06x%s%s%s%s%s%s", p->from,
              (int)p->to, packet_name(p->opcode), p->dqpn, p->psn,
              syndrome_name(p->syndrome, buf), named_gap(p, gap),
              fate & FATE_LOST ? ", lost" : "",
              fate & FATE_CORRUPT ? ", corrupted" : "",
              fate & FATE_TWICE ? ", twice" : "",
              fate & FATE_LATE ? ", late" : "");
    return fate;
}

static int copies(uint32_t fate)
{
    return fate & FATE_TWICE ? 2 : 1;
}

static uint64_t travel_time(struct sim *s, uint32_t fate)
{
    uint64_t t = s->p.delay;

    if (fate & FATE_LATE) {
        /* Long enough to be overtaken by several packets. */
        t += 1 + (uint64_t)(g_rand_double(s->rand) *
                            MAX(s->p.jitter, 4 * s->p.delay));
    }
    return t;
}

/* --------------------------------------------------------- wire frames */

/* ACK, atomic ACK, all but the middle ones of a READ's answer. */
static bool has_aeth(uint8_t opcode)
{
    return opcode >= 0x0d && opcode <= 0x12 && opcode != 0x0e;
}

static bool look(struct node *n, const uint8_t *frame, size_t len,
                 struct sim_packet *p)
{
    struct sim *s = n->s;
    uint16_t type = frame[12] << 8 | frame[13];
    size_t bth = ETH_LEN + (type == 0x0800 ? 20 : 40) + 8;

    *p = (struct sim_packet) { .from = n->id, .to = VROCE_NONE, .len = len,
                               .syndrome = -1 };
    for (uint32_t i = 0; i < s->p.nodes; i++) {
        uint8_t mac[6];

        drv_mac(i + 1, mac);
        if (!memcmp(frame, mac, 6)) {
            p->to = i;
        }
    }
    if (len < bth + 12) {
        return false;
    }
    p->opcode = frame[bth];
    if (has_aeth(p->opcode)) {
        p->syndrome = frame[bth + 12];
        p->names = frame[bth + 8] & 1;
        p->msn = frame[bth + 13] << 16 | frame[bth + 14] << 8 |
                 frame[bth + 15];
    }
    p->dqpn = frame[bth + 5] << 16 | frame[bth + 6] << 8 | frame[bth + 7];
    p->psn = frame[bth + 9] << 16 | frame[bth + 10] << 8 | frame[bth + 11];
    return true;
}

static void send_copy(struct node *n, uint32_t to, const uint8_t *frame,
                      size_t len, uint64_t when, bool corrupt)
{
    struct arrival *a = g_new0(struct arrival, 1);
    struct sim *s = n->s;

    a->to = &s->node[to];
    a->from = n;
    a->frame = g_memdup2(frame, len);
    a->len = len;
    if (corrupt) {
        /* Ethernet's own check is not ours: flip a bit behind its header. */
        uint32_t bit = g_rand_int_range(s->rand, ETH_LEN * 8, len * 8);

        a->frame[bit / 8] ^= 1u << bit % 8;
    }
    sim_at(s, when, arrive, a, arrival_free);
}

static void pcap_write(FILE *f, uint64_t now, const uint8_t *frame, size_t len)
{
    const uint32_t header[4] = { now / SEC, now % SEC, len, len };

    fwrite(header, sizeof(header), 1, f);
    fwrite(frame, len, 1, f);
}

static bool frame_tx(void *opaque, const uint8_t *frame, size_t len)
{
    struct node *n = opaque;
    struct sim *s = n->s;
    struct sim_packet p;
    uint64_t left = depart(n, len, 1);
    uint32_t fate;

    if (s->pcap) {
        pcap_write(s->pcap, s->now, frame, len);
    }
    if (!look(n, frame, len, &p)) {
        sim_fail(s, "node %u sends a frame of %zu bytes that is no packet",
                 n->id, len);
    }
    fate = draw_fate(s, &p);
    for (int k = 0; !(fate & FATE_LOST) && k < copies(fate); k++) {
        send_copy(n, p.to, frame, len, left + travel_time(s, fate),
                  fate & FATE_CORRUPT);
    }
    n->full = n->queued >= s->p.queue;
    return !n->full;
}

/* ------------------------------------------ super-packets by reference */

static uint32_t node_of_gid(struct sim *s, const uint8_t gid[16])
{
    for (uint32_t i = 0; i < s->p.nodes; i++) {
        if (!memcmp(s->node[i].d->gid[0], gid, 16) ||
            !memcmp(s->node[i].d->gid[1], gid, 16)) {
            return i;
        }
    }
    return VROCE_NONE;
}

static void send_piece(struct node *n, uint32_t to, const struct vr_sp *sp,
                       uint32_t fate, uint64_t left)
{
    struct sim *s = n->s;

    if (fate & (FATE_LOST | FATE_CORRUPT)) {
        return;
    }
    for (int k = 0; k < copies(fate); k++) {
        struct arrival *a = g_new0(struct arrival, 1);

        a->to = &s->node[to];
        a->from = n;
        a->sp = *sp;
        if (sp->payload.kind == VR_PAYLOAD_BYTES) {
            a->bytes = g_memdup2(sp->payload.bytes + sp->payload.off,
                                 sp->payload.len);
            a->sp.payload.bytes = a->bytes;
            a->sp.payload.off = 0;
        }
        sim_at(s, left + travel_time(s, fate), arrive, a, arrival_free);
    }
}

static bool sp_send(void *opaque, const struct vr_sp *sp)
{
    struct node *n = opaque;
    struct sim *s = n->s;
    uint64_t left = depart(n, sp->payload.len + (uint64_t)sp->npkt * OVERHEAD,
                           sp->npkt);
    uint32_t to = node_of_gid(s, sp->route.dgid);
    struct vr_sp piece = *sp;
    uint32_t plain = 0;         /* first packets of piece without a fate */

    for (uint32_t i = 0; i < sp->npkt; i++) {
        struct sim_packet p = {
            .from = n->id, .to = to, .opcode = vr_sp_bth_opcode(sp, i),
            .psn = vr_psn_add(sp->psn, i), .dqpn = sp->dqpn, .len = sp->mtu,
            .syndrome = -1,
        };
        struct vr_sp rest = piece;
        uint32_t left_over = sp->npkt - i - 1, fate;

        if (has_aeth(p.opcode)) {
            p.syndrome = sp->syndrome;
            p.names = sp->flags & VR_SP_NAMES;
            p.msn = sp->msn;
        }
        fate = draw_fate(s, &p);

        if (!fate) {
            plain++;
            continue;
        }
        if (plain) {
            vr_sp_split(&piece, plain, &rest);
            send_piece(n, to, &piece, 0, left);
            piece = rest;
            plain = 0;
        }
        if (left_over) {
            vr_sp_split(&piece, 1, &rest);
        }
        send_piece(n, to, &piece, fate, left);
        piece = rest;
    }
    if (plain) {
        send_piece(n, to, &piece, 0, left);
    }
    n->full = n->queued >= s->p.queue;
    return !n->full;
}

static const struct vr_link_ops ref_ops = { .send = sp_send };

static void on_report(void *opaque, const struct vr_report *r)
{
    struct node *n = opaque;

    switch (r->kind) {
    case VR_REPORT_TX:          /* the fabric says more */
    case VR_REPORT_COMPLETION:  /* as does its consumer */
        break;
    case VR_REPORT_RX:
        sim_trace(n->s, "     n%u  %-15s qp %u psn 0x%06llx arrives", n->id,
                  packet_name(r->a), r->number, (unsigned long long)r->b);
        break;
    case VR_REPORT_QP_STATE:
        sim_trace(n->s, "     n%u  qp %u: %s, was %s", n->id, r->number,
                  vr_qp_state_name(r->b), vr_qp_state_name(r->a));
        break;
    case VR_REPORT_RETRY:
        sim_trace(n->s, "     n%u  qp %u goes back to psn 0x%06llx, "
                  "%llu retries left", n->id, r->number,
                  (unsigned long long)r->a, (unsigned long long)r->b);
        break;
    case VR_REPORT_EVENT:
        sim_trace(n->s, "     n%u  event %s of %u", n->id,
                  vr_event_name(r->a), r->number);
        break;
    case VR_REPORT_COMMAND:
        sim_trace(n->s, "     n%u  command %s: status %llu", n->id,
                  vr_command_name(r->number), (unsigned long long)r->a);
        break;
    case VR_REPORT_MISUSE:
        sim_trace(n->s, "     n%u  misuse of %u: %s %s", n->id, r->number,
                  vr_rule_name(r->rule), r->text ? r->text : "");
        break;
    }
}

void fabric_attach(struct node *n)
{
    n->h->opaque = n;
    n->h->frame_tx = frame_tx;
    n->h->on_kick = on_kick;
    n->h->on_deadline = on_deadline;
    n->h->on_report = on_report;
    if (n->s->link == SIM_REF) {
        vr_set_link_ops(n->h->e, &ref_ops, n);
    }
}
