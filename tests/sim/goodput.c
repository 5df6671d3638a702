/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What loss costs: the time that a stream of messages takes on a bad fabric,
 * next to the same stream on a good one. The fabric is one like that between
 * two guests: 50 us one way, frames of 4 KiB at 2 us each, queues that hold
 * more than a window. Timeouts are those of programs that choose none: one of
 * them would cost more than the whole stream.
 */
#include <stdio.h>

#include "sim.h"

#define MESSAGE (64u << 10)

struct trouble {
    double loss, dup, reorder;
    /* Of the goodput without any: WRITE and SEND, READ. */
    double least, least_read;
};

static double rate(const struct sim_params *p, uint64_t took)
{
    return (double)p->ops * MESSAGE / (1 << 20) / (took / 1e9);
}

static uint32_t count(struct sim *s, uint32_t node, enum vroce_counter counter)
{
    return vr_counters(s->node[node].h->e)[counter];
}

/* Messages of one kind from node 0 to node 1, or fetched; prints the rate. */
static uint64_t stream(const struct scenario *sc, const struct sim_params *p,
                       enum sim_link link, uint32_t kind, const char *name,
                       uint64_t *took)
{
    static const uint32_t len = MESSAGE;
    struct sim *s = sim_new(p, link, sc->name);
    const struct flow_init init = {
        .a = 0, .b = 1, .type = VROCE_QPT_RC, .kinds = kind, .one_way = true,
        .lens = &len, .num_lens = 1, .max_rd_atomic = 16,
    };

    *took = s->now;
    flow_start(flow_new(s, &init));
    sim_run(s, flows_done, 600 * SEC);
    *took = s->now - *took;
    printf("  %-5s %5.0f MiB/s, %u timeouts, sent again %u, doubles %u, "
           "NAKs %u\n", name, rate(p, *took),
           count(s, 0, VROCE_CNT_ACK_TIMEOUT),
           count(s, 0, VROCE_CNT_RETRANSMITTED),
           count(s, 1, VROCE_CNT_RX_DUPLICATE),
           count(s, 1, VROCE_CNT_TX_PSN_NAK));
    return finish(s);
}

static uint64_t compare(const struct scenario *sc, const struct sim_params *p,
                        enum sim_link link, const struct trouble *t)
{
    static const struct {
        uint32_t kind;
        const char *name;
    } kinds[] = {
        { FLOW_WRITE, "WRITE" }, { FLOW_SEND, "SEND" },
        { FLOW_READ, "READ" },
    };
    uint64_t digest = 0;

    for (uint32_t k = 0; k < G_N_ELEMENTS(kinds); k++) {
        struct sim_params bad = *p;
        uint64_t base, took, d;
        double ratio;

        stream(sc, p, link, kinds[k].kind, kinds[k].name, &base);
        bad.loss = t->loss;
        bad.dup = t->dup;
        bad.reorder = t->reorder;
        d = stream(sc, &bad, link, kinds[k].kind, kinds[k].name,
                   &took);
        digest = digest_add(digest, &d, sizeof(d));
        ratio = (double)base / took;
        fflush(stdout);
        if (ratio < (kinds[k].kind == FLOW_READ ? t->least_read : t->least)) {
            sim_fail(NULL, "%.2f of the goodput of %s is left", ratio,
                     kinds[k].name);
        }
    }
    return digest;
}

static uint64_t run_loss_1(const struct scenario *sc,
                           const struct sim_params *p, enum sim_link link)
{
    static const struct trouble t = {
        .loss = 0.01, .least = 0.85, .least_read = 0.5,
    };

    return compare(sc, p, link, &t);
}

/* A round trip holds about as many packets as there are between two losses. */
static uint64_t run_long(const struct scenario *sc, const struct sim_params *p,
                         enum sim_link link)
{
    static const struct trouble t = {
        .loss = 0.01, .least = 0.7, .least_read = 0.3,
    };

    return compare(sc, p, link, &t);
}

static uint64_t run_loss_5(const struct scenario *sc,
                           const struct sim_params *p, enum sim_link link)
{
    static const struct trouble t = {
        .loss = 0.05, .dup = 0.02, .reorder = 0.02, .least = 0.4,
        .least_read = 0.15,
    };

    return compare(sc, p, link, &t);
}

static void tune_stream(struct sim_params *p)
{
    p->qps = 1;
    p->ops = 600;
    p->max_len = MESSAGE;
    p->path_mtu = 5;
    p->delay = 50 * US;
    p->rate = 16 * SEC;
    p->timeout = 14;
}

static void tune_long(struct sim_params *p)
{
    tune_stream(p);
    p->delay = 200 * US;
    p->rate = 8 * SEC;
}

const struct scenario goodput_scenarios[] = {
    { "goodput-1", "1 % lost: 0.85 of the goodput is left", run_loss_1,
      tune_stream },
    { "goodput-5", "5 % lost, 2 % doubled, 2 % late: 0.4 is left", run_loss_5,
      tune_stream },
    { "goodput-long", "1 % lost, a long way: 0.7 is left", run_long,
      tune_long },
    { 0 }
};
