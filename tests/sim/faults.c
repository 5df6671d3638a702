/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Scenarios that aim one fault at a time at a certain packet. */
#include <string.h>

#include "pair.h"

/* The packet that is hit, counted from the run's first. */
struct aim {
    uint64_t seen, nth, count;
    uint32_t fate;
};

static uint32_t hit(struct sim *s, const struct sim_packet *p)
{
    struct aim *aim = s->opaque;
    uint64_t k = aim->seen++;

    return k >= aim->nth && k < aim->nth + aim->count ? aim->fate : 0;
}

/* One connection, few requests, one way; the digest of the outcome. */
static uint64_t run_aimed(const struct scenario *sc, const struct sim_params *p,
                          enum sim_link link, uint32_t kinds,
                          const uint32_t *lens, uint32_t num_lens,
                          struct aim *aim)
{
    struct sim *s = sim_new(p, link, sc->name);
    const struct flow_init init = {
        .a = 0, .b = 1, .type = VROCE_QPT_RC, .kinds = kinds, .one_way = true,
        .ops = num_lens, .lens = lens, .num_lens = num_lens, .path_mtu = 1,
        .max_rd_atomic = 4,
    };

    s->filter = hit;
    s->opaque = aim;
    sim_trace(s, "aim: packets %llu..%llu, fate %u",
              (unsigned long long)aim->nth,
              (unsigned long long)(aim->nth + aim->count - 1), aim->fate);
    flow_start(flow_new(s, &init));
    sim_run(s, flows_done, 60 * SEC);
    return finish(s);
}

/* Each packet of the conversation in turn, then each run of several. */
static uint64_t hit_each(const struct scenario *sc, const struct sim_params *p,
                         enum sim_link link, uint32_t kinds,
                         const uint32_t *lens, uint32_t num_lens, uint32_t fate)
{
    static const uint32_t counts[] = { 1, 2, 5 };
    struct aim aim = { .nth = UINT64_MAX - 8, .count = 1 };
    uint64_t digest = run_aimed(sc, p, link, kinds, lens, num_lens, &aim);
    uint64_t total = aim.seen;

    for (uint32_t c = 0; c < G_N_ELEMENTS(counts); c++) {
        for (uint64_t nth = 0; nth < total; nth += c ? counts[c] : 1) {
            uint64_t d;

            aim = (struct aim) { 0, nth, counts[c], fate };
            d = run_aimed(sc, p, link, kinds, lens, num_lens, &aim);
            if (d != digest) {
                sim_fail(NULL, "fate %u of %u packets from number %llu on "
                         "changes the outcome", fate, counts[c],
                         (unsigned long long)nth);
            }
        }
    }
    return digest;
}

static const uint32_t read_lens[] = { 256 * 7 + 3, 0, 256 * 3, 1 };
static const uint32_t mixed_lens[] = { 256 * 6 + 1, 0, 512, 3, 256 * 4, 255 };

static uint64_t run_read_drop(const struct scenario *sc,
                              const struct sim_params *p, enum sim_link link)
{
    return hit_each(sc, p, link, FLOW_READ, read_lens, G_N_ELEMENTS(read_lens),
                    FATE_LOST);
}

static uint64_t run_drop_each(const struct scenario *sc,
                              const struct sim_params *p, enum sim_link link)
{
    return hit_each(sc, p, link, FLOW_ALL & ~FLOW_ATOMIC, mixed_lens,
                    G_N_ELEMENTS(mixed_lens), FATE_LOST);
}

static uint64_t run_dup_each(const struct scenario *sc,
                             const struct sim_params *p, enum sim_link link)
{
    return hit_each(sc, p, link, FLOW_ALL & ~FLOW_ATOMIC, mixed_lens,
                    G_N_ELEMENTS(mixed_lens), FATE_TWICE);
}

static uint64_t run_late_each(const struct scenario *sc,
                              const struct sim_params *p, enum sim_link link)
{
    return hit_each(sc, p, link, FLOW_ALL & ~FLOW_ATOMIC, mixed_lens,
                    G_N_ELEMENTS(mixed_lens), FATE_LATE | FATE_TWICE);
}

static uint64_t run_atomic_each(const struct scenario *sc,
                                const struct sim_params *p, enum sim_link link)
{
    static const uint32_t lens[] = { 8, 8, 8, 8 };

    return hit_each(sc, p, link, FLOW_ATOMIC, lens, G_N_ELEMENTS(lens),
                    FATE_LOST) ^
           hit_each(sc, p, link, FLOW_ATOMIC, lens, G_N_ELEMENTS(lens),
                    FATE_LATE | FATE_TWICE);
}

/* ------------------------------------------------------------ go back */

/* How long one message takes, and how many packets. */
static uint64_t one_message(const struct scenario *sc,
                            const struct sim_params *p, enum sim_link link,
                            uint32_t kind, struct aim *aim, uint64_t *took)
{
    static const uint32_t len = 1 << 20;
    struct sim *s = sim_new(p, link, sc->name);
    const struct flow_init init = {
        .a = 0, .b = 1, .type = VROCE_QPT_RC, .kinds = kind, .one_way = true,
        .ops = 1, .lens = &len, .num_lens = 1, .path_mtu = 3,
        .max_rd_atomic = 1,
    };

    s->filter = hit;
    s->opaque = aim;
    *took = s->now;
    flow_start(flow_new(s, &init));
    sim_run(s, flows_done, 60 * SEC);
    *took = s->now - *took;
    return finish(s);
}

/*
 * A packet lost in the middle costs what was in flight behind it and a round
 * trip: neither the message's beginning again nor a timeout.
 */
static uint64_t run_go_back(const struct scenario *sc,
                            const struct sim_params *p, enum sim_link link)
{
    static const uint32_t kinds[] = { FLOW_SEND, FLOW_WRITE, FLOW_READ };
    uint64_t digest = 0;

    for (uint32_t k = 0; k < G_N_ELEMENTS(kinds); k++) {
        struct aim aim = { .nth = UINT64_MAX - 8, .count = 1 };
        uint64_t base, total, took, d;

        d = one_message(sc, p, link, kinds[k], &aim, &base);
        digest = digest_add(digest, &d, sizeof(d));
        total = aim.seen;
        for (uint32_t part = 1; part < 4; part++) {
            uint64_t nth = total * part / 4;

            aim = (struct aim) { 0, nth, 1, FATE_LOST };
            d = one_message(sc, p, link, kinds[k], &aim, &took);
            digest = digest_add(digest, &d, sizeof(d));
            if (aim.seen > total + 400 || took > base + 200 * US) {
                sim_fail(NULL, "kind %u, packet %llu of %llu lost: %llu "
                         "packets, %llu us instead of %llu us", kinds[k],
                         (unsigned long long)nth, (unsigned long long)total,
                         (unsigned long long)aim.seen,
                         (unsigned long long)took / US,
                         (unsigned long long)base / US);
            }
        }
    }
    return digest;
}

static void tune_aimed(struct sim_params *p)
{
    p->qps = 1;
    p->max_len = 4096;
    p->timeout = 10;
    p->jitter = 40 * US;
}

/* ------------------------------------------------------------ dead wire */

static bool first_side_failed(struct sim *s)
{
    return flow_first_error(s->flows->pdata[0], 0) != 0;
}

static bool some_completion(struct sim *s)
{
    struct pair *p = s->opaque;

    return p->cqes[0]->len;
}

/* Counts how often the first packet of all is sent. */
static uint32_t count_first(struct sim *s, const struct sim_packet *p)
{
    struct aim *firsts = s->opaque;

    if (firsts->nth == VROCE_NONE) {
        firsts->nth = p->psn;
    }
    firsts->seen += p->psn == firsts->nth;
    return 0;
}

/*
 * The peer dies; the oldest request ends in RETRY_EXC_ERR after retry_cnt + 1
 * timeouts, each between T and 4 T (IBA 9.7.6.1.3), the others are flushed.
 */
static uint64_t dead_wire(const struct scenario *sc, const struct sim_params *p,
                          enum sim_link link, uint8_t timeout, uint8_t retries)
{
    static const uint32_t lens[] = { 4000, 4000, 4000, 4000, 4000 };
    struct sim_params q = *p;
    const struct flow_init init = {
        .a = 0, .b = 1, .type = VROCE_QPT_RC, .kinds = FLOW_ALL & ~FLOW_ATOMIC,
        .ops = 5, .lens = lens, .num_lens = 5, .one_way = true,
    };
    struct aim firsts = { .nth = VROCE_NONE };
    uint64_t unit = 4096ull << timeout, least = unit * (retries + 1), took;
    struct sim *s;
    struct flow *f;

    q.timeout = timeout;
    q.retry_cnt = retries;
    s = sim_new(&q, link, sc->name);
    f = flow_new(s, &init);
    flow_expect_errors(f);
    s->node[1].dead = s->blackouts = true;
    s->filter = count_first;
    s->opaque = &firsts;
    took = s->now;
    flow_start(f);
    sim_run(s, first_side_failed, 4 * least + SEC);
    took = s->now - took;
    sim_trace(s, "failed after %.3f us, timeout %.3f us, %u retries",
              took / 1e3, unit / 1e3, retries);
    sim_check(s, vr_counters(s->node[0].h->e)[VROCE_CNT_ACK_TIMEOUT] ==
              retries + 1u);
    /* Probes besides, each after twice the silence of the last one. */
    sim_check(s, firsts.seen >= retries + 1u);
    sim_check(s, firsts.seen <= 6 * (retries + 1u));
    sim_check(s, took >= least);
    sim_check(s, took <= 4 * least + MS);
    sim_pass(s, SEC);
    sim_check(s, flow_status_count(f, 0, VROCE_WCS_RETRY_EXC_ERR) == 1);
    sim_check(s, flow_status_count(f, 0, VROCE_WCS_WR_FLUSH_ERR) == 4);
    sim_check(s, s->node[0].h->deadline == UINT64_MAX);
    return finish(s);
}

static uint64_t run_dead_wire(const struct scenario *sc,
                              const struct sim_params *p, enum sim_link link)
{
    uint64_t digest = 0;

    for (uint32_t retries = 0; retries <= 7; retries++) {
        uint64_t d = dead_wire(sc, p, link, 8 + retries, retries);

        digest = digest_add(digest, &d, sizeof(d));
    }
    return digest;
}

/*
 * No receive is ever posted: the oldest request ends in RNR_RETRY_EXC_ERR after
 * rnr_retry waits, each of the responder's timer at least (IBA 9.7.5.2.8).
 */
static uint64_t rnr_exceeded(const struct scenario *sc,
                             const struct sim_params *p, enum sim_link link,
                             uint8_t retries, uint8_t code, uint64_t wait)
{
    struct sim *s = sim_new(p, link, sc->name);
    struct pair pair;
    struct drv_wr wr;
    uint64_t took;

    pair_init(&pair, s, VROCE_QPT_RC);
    s->opaque = &pair;
    pair.conn[0].rnr_retry = retries;
    pair.conn[1].min_rnr_timer = code;
    pair_connect(&pair);
    wr = pair_wr(&pair, 0, VROCE_WQE_SEND, 0, 3000);
    took = s->now;
    pair_post(&pair, 0, &wr);
    sim_run(s, some_completion, 600 * SEC);
    took = s->now - took;
    sim_trace(s, "failed after %.3f us, %u waits of %.3f us", took / 1e3,
              retries, wait / 1e3);
    sim_check(s, pair_cqe(&pair, 0, 0)->status == VROCE_WCS_RNR_RETRY_EXC_ERR);
    sim_check(s, took >= retries * wait);
    sim_check(s, took <= retries * (wait + 100 * US) + 100 * US);
    sim_check(s, vr_counters(s->node[1].h->e)[VROCE_CNT_TX_RNR_NAK] ==
              retries + 1u);
    return pair_finish(&pair);
}

static uint64_t run_rnr_exceeded(const struct scenario *sc,
                                 const struct sim_params *p, enum sim_link link)
{
    /* Codes and times of IBA table 46. */
    static const struct {
        uint8_t code;
        uint64_t wait;
    } timers[] = {
        { 1, 10 * US }, { 12, 640 * US },
        { 31, 491520 * US }, { 0, 655360 * US },
    };
    uint64_t digest = 0;

    for (uint32_t i = 0; i < G_N_ELEMENTS(timers); i++) {
        for (uint8_t retries = 0; retries < 7; retries += 3) {
            uint64_t d = rnr_exceeded(sc, p, link, retries, timers[i].code,
                                      timers[i].wait);

            digest = digest_add(digest, &d, sizeof(d));
        }
    }
    return digest;
}

/* The wire is dead for a while that the retries outlast. */
static void revive(struct sim *s, void *opaque)
{
    struct node *n = opaque;

    n->dead = false;
}

static void kill_node(struct sim *s, void *opaque)
{
    struct node *n = opaque;

    n->dead = s->blackouts = true;
    sim_at(s, s->now + 3 * (4096ull << s->p.timeout), revive, n, NULL);
}

static uint64_t run_blackout(const struct scenario *sc,
                             const struct sim_params *p, enum sim_link link)
{
    struct sim *s = sim_new(p, link, sc->name);

    for (uint32_t i = 0; i < p->qps; i++) {
        const struct flow_init init = {
            .a = 0, .b = 1, .type = VROCE_QPT_RC,
            .kinds = FLOW_ALL & ~FLOW_ATOMIC,
        };

        flow_new(s, &init);
    }
    for (uint32_t k = 0; k < 10; k++) {
        sim_at(s, s->now + (30 + 10 * k * k) * US, kill_node, &s->node[k & 1],
               NULL);
    }
    for (uint32_t i = 0; i < p->qps; i++) {
        flow_start(s->flows->pdata[i]);
    }
    sim_run(s, flows_done, 60 * SEC);
    return finish(s);
}

static void tune_blackout(struct sim_params *p)
{
    p->timeout = 10;
    p->loss = 0.01;
}

/* ------------------------------------------------ destroyed while at work */

/* Counts, not order: when a request is caught in flight depends on the link. */
static uint64_t run_destroy(const struct scenario *sc,
                            const struct sim_params *p, enum sim_link link)
{
    GRand *r = g_rand_new_with_seed(p->seed);

    for (uint32_t round = 0; round < 12; round++) {
        struct sim *s = sim_new(p, link, sc->name);

        for (uint32_t i = 0; i < p->qps; i++) {
            const struct flow_init init = {
                .a = i % p->nodes, .b = (i + 1 + i / p->nodes) % p->nodes,
                .type = VROCE_QPT_RC, .kinds = FLOW_ALL & ~FLOW_ATOMIC,
            };

            flow_expect_errors(flow_new(s, &init));
        }
        for (uint32_t i = 0; i < p->qps; i++) {
            flow_start(s->flows->pdata[i]);
        }
        sim_pass(s, g_rand_int_range(r, 1, 400 * US));
        /* sim_free() destroys in flight and looks at what is left. */
        sim_free(s);
    }
    g_rand_free(r);
    return 0;
}

static void reset_check(struct node *n)
{
    uint64_t frames = n->h->frames_sent;
    uint32_t irqs = 0;

    fh_reset(n->h);
    for (int v = 0; v < VROCE_MAX_VECTORS; v++) {
        irqs += n->h->irqs[v];
    }
    node_idle_check(n);
    sim_pass(n->s, 10 * SEC);
    for (int v = 0; v < VROCE_MAX_VECTORS; v++) {
        irqs -= n->h->irqs[v];
    }
    sim_check(n->s, irqs == 0);
    sim_check(n->s, n->h->frames_sent == frames);
}

static uint64_t run_reset(const struct scenario *sc, const struct sim_params *p,
                          enum sim_link link)
{
    GRand *r = g_rand_new_with_seed(p->seed);

    for (uint32_t round = 0; round < 8; round++) {
        struct sim *s = sim_new(p, link, sc->name);

        for (uint32_t i = 0; i < p->qps; i++) {
            const struct flow_init init = {
                .a = 0, .b = i & 1, .type = VROCE_QPT_RC,
                .kinds = FLOW_ALL & ~FLOW_ATOMIC,
            };

            flow_expect_errors(flow_new(s, &init));
        }
        for (uint32_t i = 0; i < p->qps; i++) {
            flow_start(s->flows->pdata[i]);
        }
        sim_pass(s, g_rand_int_range(r, 1, 400 * US));
        reset_check(&s->node[0]);
        s->node[0].d->gone = true;
        sim_free(s);
    }
    g_rand_free(r);
    return 0;
}

static void tune_none(struct sim_params *p)
{
    p->loss = 0.01;
    p->dup = 0.01;
}

const struct scenario fault_scenarios[] = {
    { "read-drop", "each packet of READs lost in turn", run_read_drop,
      tune_aimed },
    { "drop-each", "each packet of a conversation lost in turn", run_drop_each,
      tune_aimed },
    { "dup-each", "each packet of a conversation comes twice", run_dup_each,
      tune_aimed },
    { "late-each", "each packet comes twice, and late", run_late_each,
      tune_aimed },
    { "atomic-each", "each packet of atomics lost, doubled or late",
      run_atomic_each, tune_aimed },
    { "go-back", "a packet lost in mid-message costs little", run_go_back,
      tune_aimed },
    { "dead-wire", "RETRY_EXC_ERR comes when it must", run_dead_wire,
      tune_aimed },
    { "rnr-exceeded", "RNR_RETRY_EXC_ERR comes when it must", run_rnr_exceeded,
      tune_aimed },
    { "blackout", "the wire is dead for shorter than that", run_blackout,
      tune_blackout },
    { "destroy", "objects destroyed while at work", run_destroy, tune_none },
    { "reset", "the device reset while at work", run_reset, tune_none },
    { 0 }
};
