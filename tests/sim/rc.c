/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Scenarios in which every request succeeds, whatever the fabric does. */
#include "sim.h"

/* Bits per second: a window of 64 KiB takes half a millisecond. */
#define SLOW_PORT 1000000000

/*
 * A fabric without faults gives no reason to send anything twice. But where
 * ports are slow, an answer may wait for the data of other QPs until the
 * requester asks once more (recover.c, probe()).
 */
static void check_no_recovery(struct sim *s)
{
    static const enum vroce_counter none[] = {
        VROCE_CNT_RETRANSMITTED, VROCE_CNT_RX_DUPLICATE,
        VROCE_CNT_ACK_TIMEOUT, VROCE_CNT_RX_OUT_OF_SEQUENCE,
        VROCE_CNT_TX_PSN_NAK, VROCE_CNT_TX_RNR_NAK, VROCE_CNT_RX_BAD_ICRC,
        VROCE_CNT_RX_MALFORMED, VROCE_CNT_RX_NO_QP, VROCE_CNT_MISUSE,
    };
    uint64_t probes = s->p.rate <= SLOW_PORT ? s->packets / 1000 : 0;

    for (uint32_t i = 0; i < s->p.nodes; i++) {
        for (uint32_t k = 0; k < G_N_ELEMENTS(none); k++) {
            uint64_t n = vr_counters(s->node[i].h->e)[none[k]];
            uint64_t may = none[k] == VROCE_CNT_RETRANSMITTED ||
                           none[k] == VROCE_CNT_RX_DUPLICATE ? probes : 0;

            if (n > may) {
                sim_fail(s, "node %u: %s is %llu without a reason", i,
                         vr_counter_name(none[k]), (unsigned long long)n);
            }
        }
    }
}

uint64_t finish(struct sim *s)
{
    uint64_t digest = 0;

    if (!s->filter && !s->blackouts && !s->p.recv_delay && s->p.loss == 0 &&
        s->p.dup == 0 && s->p.reorder == 0 && s->p.corrupt == 0) {
        check_no_recovery(s);
    }

    for (uint32_t i = 0; i < s->flows->len; i++) {
        uint64_t d = flow_digest(s->flows->pdata[i]);

        digest = digest_add(digest, &d, sizeof(d));
    }
    sim_free(s);
    return digest;
}

static uint64_t run_once(const struct scenario *sc, const struct sim_params *p,
                         enum sim_link link, uint8_t type, uint32_t kinds,
                         bool loopback)
{
    struct sim *s = sim_new(p, link, sc->name);

    for (uint32_t i = 0; i < p->qps; i++) {
        const struct flow_init init = {
            .a = i % p->nodes, .type = type, .kinds = kinds,
            .srq = p->mixed && i & 1,
            .b = loopback ? i % p->nodes :
                 (i % p->nodes + 1 + i / p->nodes % (p->nodes - 1)) % p->nodes,
        };

        flow_new(s, &init);
    }
    for (uint32_t i = 0; i < p->qps; i++) {
        flow_start(s->flows->pdata[i]);
    }
    disturb(s);
    sim_run(s, flows_done, 600 * SEC);
    return finish(s);
}

uint64_t run_kinds(const struct scenario *sc, const struct sim_params *p,
                   enum sim_link link, uint8_t type, uint32_t kinds,
                   bool loopback)
{
    struct sim_params stay = *p;
    uint64_t stayed, digest;

    if (!p->reload) {
        return run_once(sc, p, link, type, kinds, loopback);
    }
    stay.reload = 0;
    stayed = run_once(sc, &stay, link, type, kinds, loopback);
    digest = run_once(sc, p, link, type, kinds, loopback);
    if (digest != stayed) {
        sim_fail(NULL, "saved and loaded, it comes to %016llx, not %016llx",
                 (unsigned long long)digest, (unsigned long long)stayed);
    }
    return digest;
}

uint64_t run_flows(const struct scenario *sc, const struct sim_params *p,
                   enum sim_link link)
{
    return run_kinds(sc, p, link, VROCE_QPT_RC, FLOW_ALL & ~FLOW_ATOMIC, false);
}

static uint64_t run_atomics(const struct scenario *sc,
                            const struct sim_params *p, enum sim_link link)
{
    return run_kinds(sc, p, link, VROCE_QPT_RC, FLOW_ALL, false);
}

static uint64_t run_loopback(const struct scenario *sc,
                             const struct sim_params *p, enum sim_link link)
{
    return run_kinds(sc, p, link, VROCE_QPT_RC, FLOW_ALL & ~FLOW_ATOMIC, true);
}

static uint64_t run_uc(const struct scenario *sc, const struct sim_params *p,
                       enum sim_link link)
{
    return run_kinds(sc, p, link, VROCE_QPT_UC, FLOW_SEND | FLOW_WRITE_IMM,
                     false);
}

static void tune_none(struct sim_params *p)
{
}

static void tune_big(struct sim_params *p)
{
    p->max_len = 1 << 20;
    p->ops = 12;
}

static void tune_lossy(struct sim_params *p)
{
    p->nodes = 3;
    p->qps = 6;
    p->loss = 0.02;
    p->dup = 0.02;
    p->reorder = 0.03;
    p->corrupt = 0.01;
    p->jitter = 50 * US;
}

static void tune_lossy_big(struct sim_params *p)
{
    tune_lossy(p);
    tune_big(p);
    p->loss = 0.005;
    p->qps = 3;
}

static void tune_storm(struct sim_params *p)
{
    tune_lossy(p);
    p->loss = 0.10;
    p->dup = 0.10;
    p->reorder = 0.20;
    p->max_len = 20000;
}

static void tune_reorder(struct sim_params *p)
{
    p->reorder = 0.3;
    p->jitter = 100 * US;
}

static void tune_dup(struct sim_params *p)
{
    p->dup = 0.5;
}

static void tune_queue(struct sim_params *p)
{
    p->queue = 3;
    p->rate = SLOW_PORT;
}

static void tune_rnr(struct sim_params *p)
{
    p->recv_delay = 20 * MS;
    p->loss = 0.01;
}

/* Hardly ever a receive when one is needed, on a bad wire. */
static void tune_rnr_storm(struct sim_params *p)
{
    tune_lossy(p);
    p->loss = 0.05;
    p->recv_delay = 5 * MS;
    p->mixed = true;
    p->timeout = 10;
    p->max_len = 20000;
}

static void tune_wrap(struct sim_params *p)
{
    p->psn = VR_PSN_MASK - 40;
    p->loss = 0.02;
    p->path_mtu = 1;
}

static void tune_short(struct sim_params *p)
{
    p->short_maps = true;
    p->loss = 0.01;
}

static void tune_many(struct sim_params *p)
{
    p->nodes = 24;
    p->qps = 96;
    p->ops = 10;
    p->max_len = 6000;
    p->loss = 0.01;
}

static void tune_srq(struct sim_params *p)
{
    tune_lossy(p);
    p->srq = true;
    p->recv_delay = MS;
}

static void tune_migrate(struct sim_params *p)
{
    tune_lossy(p);
    p->reload = 10 * US;
}

static void tune_ipv6(struct sim_params *p)
{
    p->ipv6 = true;
    p->loss = 0.01;
}

const struct scenario rc_scenarios[] = {
    { "clean", "a fabric without faults", run_flows, tune_none },
    { "big", "messages up to 1 MiB", run_flows, tune_big },
    { "lossy", "loss, duplicates, reordering, corruption", run_flows,
      tune_lossy },
    { "lossy-big", "the same with messages up to 1 MiB", run_flows,
      tune_lossy_big },
    { "storm", "a tenth of the packets lost, another doubled", run_flows,
      tune_storm },
    { "reorder", "every third packet is overtaken", run_flows, tune_reorder },
    { "duplicates", "every other packet comes twice", run_flows, tune_dup },
    { "queue", "slow ports that hold three frames", run_flows, tune_queue },
    { "rnr", "receives posted late", run_flows, tune_rnr },
    { "rnr-storm", "… on a bad wire, with SRQs", run_flows, tune_rnr_storm },
    { "psn-wrap", "sequence numbers pass 2^24", run_flows, tune_wrap },
    { "short-maps", "guest memory in small pieces", run_flows, tune_short },
    { "many", "24 nodes, 96 connections", run_flows, tune_many },
    { "ipv6", "IPv6 addresses", run_flows, tune_ipv6 },
    { "atomics", "each atomic is executed once", run_atomics, tune_lossy },
    { "loopback", "QPs of one node", run_loopback, tune_none },
    { "srq", "receives from shared receive queues", run_flows, tune_srq },
    { "uc", "unreliable connections", run_uc, tune_none },
    { "migrate", "engines saved and loaded all the while", run_atomics,
      tune_migrate },
    { 0 }
};
