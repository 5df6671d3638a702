/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where the peer's NAK or answer tells of a loss, no timer is waited for: with
 * timeouts of seconds, what is lost in the middle of a stream costs round
 * trips. At its end, where nothing follows that could tell, it costs a probe.
 */
#include "sim.h"

#define MESSAGE 8192u           /* 8 packets */
#define MESSAGES 24
#define ROUND_TRIP (2 * 5 * US)
/* Round trips, and a resend or two, that a loss may cost. */
#define FAST (20 * ROUND_TRIP)
/* … when only silence tells of it. */
#define PROBED (5 * MS)

/* Loses the n-th request packet of the run, and its next times-1 repeats. */
struct loss {
    uint32_t nth, times;
    uint32_t naks;              /* so many NAKs are lost besides */
    uint32_t acks_from;         /* node 1's packets from this one on … */
    uint32_t acks;              /* … so many, are lost */
    uint32_t requests, answers; /* seen */
    uint32_t psn;               /* of the packet, once it was seen */
};

static uint32_t lose(struct sim *s, const struct sim_packet *p)
{
    struct loss *l = s->opaque;

    if (p->from == 1) {
        uint32_t k = l->answers++;

        if (p->syndrome == 0x60 && l->naks) {
            l->naks--;
            return FATE_LOST;
        }
        return k >= l->acks_from && k < l->acks_from + l->acks ? FATE_LOST : 0;
    }
    if (l->requests++ == l->nth) {
        l->psn = p->psn;
    }
    if (p->psn == l->psn && l->times) {
        l->times--;
        return FATE_LOST;
    }
    return 0;
}

/* A stream of messages of one kind; how long it took. */
static uint64_t stream(const struct scenario *sc, const struct sim_params *p,
                       enum sim_link link, uint32_t kind, struct loss loss,
                       uint64_t *digest, uint32_t *requests)
{
    static const uint32_t len = MESSAGE;
    struct sim *s = sim_new(p, link, sc->name);
    const struct flow_init init = {
        .a = 0, .b = 1, .type = VROCE_QPT_RC, .kinds = kind, .one_way = true,
        .ops = MESSAGES, .lens = &len, .num_lens = 1, .path_mtu = 3,
        .max_rd_atomic = 4,
    };
    uint64_t took = s->now, d;

    sim_trace(s, "request packet %u is lost %u times, and %u NAKs, and answers "
              "%u..%u", loss.nth, loss.times, loss.naks, loss.acks_from,
              loss.acks_from + loss.acks);
    loss.psn = VROCE_NONE;
    s->filter = lose;
    s->opaque = &loss;
    flow_start(flow_new(s, &init));
    sim_run(s, flows_done, 600 * SEC);
    took = s->now - took;
    sim_check(s, vr_counters(s->node[0].h->e)[VROCE_CNT_ACK_TIMEOUT] == 0);
    if (requests) {
        *requests = loss.requests;
    }
    s->filter = NULL;
    s->blackouts = true;        /* there was a reason to send things again */
    d = finish(s);
    *digest = digest_add(*digest, &d, sizeof(d));
    return took;
}

static void check_time(const char *what, uint32_t at, uint64_t took,
                       uint64_t most)
{
    if (took > most) {
        sim_fail(NULL, "%s lost at packet %u: %.1f us instead of %.1f us at "
                 "most", what, at, took / 1e3, most / 1e3);
    }
}

static uint64_t run_no_timer(const struct scenario *sc,
                             const struct sim_params *p, enum sim_link link)
{
    static const uint32_t kinds[] = { FLOW_SEND, FLOW_WRITE };
    const struct loss none = { .nth = VROCE_NONE };
    uint64_t digest = 0;

    for (uint32_t k = 0; k < G_N_ELEMENTS(kinds); k++) {
        uint32_t total;
        uint64_t base = stream(sc, p, link, kinds[k], none, &digest, &total);

        for (uint32_t at = 0; at + 64 < total; at += 19) {
            for (uint32_t times = 1; times <= 3; times++) {
                struct loss l = { .nth = at, .times = times };

                check_time("packet and its repetitions", at,
                           stream(sc, p, link, kinds[k], l, &digest, NULL),
                           base + times * FAST);
            }
        }
        for (uint32_t at = 0; at + 64 < total; at += 31) {
            struct loss l = { .nth = at, .times = 1, .naks = 1 };

            check_time("packet and the NAK", at,
                       stream(sc, p, link, kinds[k], l, &digest, NULL),
                       base + 2 * FAST);
        }
        for (uint32_t at = 0; at + 6 < MESSAGES; at += 3) {
            struct loss l = { .nth = VROCE_NONE, .acks_from = at, .acks = 5 };

            check_time("five acknowledgements", at,
                       stream(sc, p, link, kinds[k], l, &digest, NULL),
                       base + FAST);
        }
    }
    return digest;
}

/* Each packet of the last message, then each of the last answers. */
static uint64_t run_tail(const struct scenario *sc, const struct sim_params *p,
                         enum sim_link link)
{
    static const uint32_t kinds[] = { FLOW_SEND, FLOW_WRITE, FLOW_READ };
    const struct loss none = { .nth = VROCE_NONE };
    uint64_t digest = 0;

    for (uint32_t k = 0; k < G_N_ELEMENTS(kinds); k++) {
        uint32_t total;
        uint64_t base = stream(sc, p, link, kinds[k], none, &digest, &total);

        for (uint32_t at = total - 8; at < total; at++) {
            struct loss l = { .nth = at, .times = 2 };

            check_time("packet of the end", at,
                       stream(sc, p, link, kinds[k], l, &digest, NULL),
                       base + 2 * PROBED);
        }
        for (uint32_t at = 1; at <= 4; at++) {
            struct loss l = {
                .nth = VROCE_NONE, .acks_from = MESSAGES - at, .acks = at,
            };

            check_time("answer of the end", at,
                       stream(sc, p, link, kinds[k], l, &digest, NULL),
                       base + PROBED);
        }
    }
    return digest;
}

#define FAR (20 * MS)           /* from one node to the other, in run_far() */
#define NEAR_REQUESTS 64
#define FAR_REQUESTS 640

static uint32_t move_away(struct sim *s, const struct sim_packet *p)
{
    uint32_t *requests = s->opaque;

    if (p->from == 0 && ++*requests == NEAR_REQUESTS) {
        s->p.delay = FAR;
    }
    return 0;
}

/* Round trips grow far, and no packet is lost: few probes in each of them. */
static uint64_t run_far(const struct scenario *sc, const struct sim_params *p,
                        enum sim_link link)
{
    static const uint32_t len = 64, total = NEAR_REQUESTS + FAR_REQUESTS;
    struct sim *s = sim_new(p, link, sc->name);
    const struct flow_init init = {
        .a = 0, .b = 1, .type = VROCE_QPT_RC, .kinds = FLOW_WRITE,
        .one_way = true, .ops = total, .lens = &len, .num_lens = 1,
        .path_mtu = 3,
    };
    uint32_t requests = 0;

    s->filter = move_away;
    s->opaque = &requests;
    flow_start(flow_new(s, &init));
    sim_run(s, flows_done, 600 * SEC);
    if (requests > total + 80) {
        sim_fail(s, "%u requests sent for %u", requests, total);
    }
    s->filter = NULL;
    s->blackouts = true;        /* there was a reason to send things again */
    return finish(s);
}

/* 2 x 4.096 us x 2^20: a timeout would be 8.6 s. */
static void tune_patient(struct sim_params *p)
{
    p->qps = 1;
    p->max_len = MESSAGE;
    p->timeout = 20;
}

const struct scenario recovery_scenarios[] = {
    { "no-timer", "in mid-stream a loss costs round trips, not a timeout",
      run_no_timer, tune_patient },
    { "tail", "at the end of a stream it costs a probe", run_tail,
      tune_patient },
    { "far", "round trips that become long are soon known to be", run_far,
      tune_patient },
    { 0 }
};
