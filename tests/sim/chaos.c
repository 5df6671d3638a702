/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Everything at once: many nodes whose fabric loses, doubles, delays, reorders
 * and corrupts, that are saved and loaded in between, and dark at times. And
 * what unreliable connections and invalidated keys make of a bad fabric.
 */
#include <string.h>

#include "pair.h"

/* ------------------------------------------------------- disturbances */

/* A time around mean, from the generator of disturbances. */
static uint64_t some_time(struct sim *s, uint64_t mean)
{
    return 1 + mean * g_rand_double_range(s->disturbance, 0.2, 1.8);
}

static struct node *some_node(struct sim *s)
{
    return &s->node[g_rand_int_range(s->disturbance, 0, s->p.nodes)];
}

/* A guest moves to another host, and notices nothing. */
static void reload(struct sim *s, void *opaque)
{
    struct node *n = some_node(s);

    if (!s->flows_open) {
        return;
    }
    sim_trace(s, "     n%u  is saved and loaded", n->id);
    fh_migrate(n->h);
    fabric_attach(n);
    n->touched = true;
    if (!n->full) {
        fh_tx_ready(n->h);
    }
    sim_at(s, s->now + some_time(s, s->p.reload), reload, NULL, NULL);
}

static void light(struct sim *s, void *opaque)
{
    struct node *n = opaque;

    sim_trace(s, "     n%u  is back", n->id);
    n->dead = false;
}

/* Dark for less than a quarter of what the retries endure. */
static void darken(struct sim *s, void *opaque)
{
    struct node *n = some_node(s);
    uint64_t endured = (4096ull << s->p.timeout) * (s->p.retry_cnt + 1);

    if (!s->flows_open) {
        return;
    }
    if (!n->dead) {
        sim_trace(s, "     n%u  is dark", n->id);
        n->dead = s->blackouts = true;
        sim_at(s, s->now + some_time(s, endured / 8), light, n, NULL);
    }
    sim_at(s, s->now + some_time(s, s->p.blackout), darken, NULL, NULL);
}

void disturb(struct sim *s)
{
    if (s->p.reload) {
        sim_at(s, s->now + some_time(s, s->p.reload), reload, NULL, NULL);
    }
    if (s->p.blackout) {
        sim_at(s, s->now + some_time(s, s->p.blackout), darken, NULL, NULL);
    }
}

static uint64_t run_chaos(const struct scenario *sc, const struct sim_params *p,
                          enum sim_link link)
{
    return run_kinds(sc, p, link, VROCE_QPT_RC, FLOW_ALL, false);
}

static void tune_chaos(struct sim_params *p)
{
    p->nodes = 16;
    p->qps = 24;
    p->ops = 24;
    p->max_len = 30000;
    p->loss = 0.03;
    p->dup = 0.02;
    p->reorder = 0.03;
    p->corrupt = 0.01;
    p->jitter = 100 * US;
    p->recv_delay = 500 * US;
    p->timeout = 10;
    p->mixed = true;
    p->reload = 100 * US;
    p->blackout = 5 * MS;
}

static void tune_chaos_100(struct sim_params *p)
{
    tune_chaos(p);
    p->nodes = 100;
    p->qps = 200;
}

/* ----------------------------------------------- unreliable connections */

#define UC_MESSAGES 60
#define UC_ROOM 16384

static uint32_t uc_len(uint32_t k)
{
    return 1 + k * 7919 % (UC_ROOM - 100);
}

static bool uc_sent(struct sim *s)
{
    struct pair *p = s->opaque;

    return p->cqes[0]->len == UC_MESSAGES;
}

/* What arrived is whole; only packets that come late or twice break order. */
static void uc_check(struct pair *p, bool in_order)
{
    uint8_t *want = g_malloc(UC_ROOM), *have = g_malloc(UC_ROOM);
    int64_t last = -1;

    for (uint32_t k = 0; k < p->cqes[1]->len; k++) {
        const struct vroce_cqe *cqe = pair_cqe(p, 1, k);
        uint32_t sent = cqe->imm, len = le32toh(cqe->byte_len);

        sim_check(p->s, cqe->status == VROCE_WCS_SUCCESS);
        sim_check(p->s, le64toh(cqe->wr_id) == k);
        sim_check(p->s, sent < UC_MESSAGES && len == uc_len(sent));
        fill_pattern(want, len, sent);
        gmem_read(&p->mem[1], (uint64_t)UC_ROOM * k, have, len);
        sim_check(p->s, !memcmp(want, have, len));
        sim_check(p->s, !in_order || sent > last);
        last = sent;
    }
    g_free(want);
    g_free(have);
}

/* Messages of several packets: lost as a whole or not at all, IBA 9.8.2. */
static uint64_t run_uc_lossy(const struct scenario *sc,
                             const struct sim_params *p, enum sim_link link)
{
    struct sim *s = sim_new(p, link, sc->name);
    uint8_t *data = g_malloc(UC_ROOM);
    struct pair pair;

    pair_init(&pair, s, VROCE_QPT_UC);
    s->opaque = &pair;
    pair_connect(&pair);
    for (uint32_t k = 0; k < UC_MESSAGES; k++) {
        struct drv_wr wr = pair_wr(&pair, 1, 0, (uint64_t)UC_ROOM * k, UC_ROOM);

        wr.wr_id = k;
        pair_recv(&pair, 1, &wr);
        fill_pattern(data, uc_len(k), k);
        gmem_write(&pair.mem[0], (uint64_t)UC_ROOM * k, data, uc_len(k));
        wr = pair_wr(&pair, 0, VROCE_WQE_SEND_IMM, (uint64_t)UC_ROOM * k,
                     uc_len(k));
        wr.imm = k;
        pair_post(&pair, 0, &wr);
        sim_pass(s, 20 * US);
    }
    sim_run(s, uc_sent, SEC);
    sim_pass(s, SEC);
    for (uint32_t k = 0; k < UC_MESSAGES; k++) {
        sim_check(s, pair_cqe(&pair, 0, k)->status == VROCE_WCS_SUCCESS);
    }
    uc_check(&pair, p->dup == 0 && p->reorder == 0);
    sim_check(s, pair.cqes[1]->len < UC_MESSAGES);
    sim_check(s, pair.cqes[1]->len > 5);
    g_free(data);
    pair_fini(&pair);
    sim_free(s);
    return 0;                   /* which are lost is chance of the link */
}

static void tune_uc_lossy(struct sim_params *p)
{
    p->loss = 0.08;
    p->corrupt = 0.02;
}

static void tune_uc_bad(struct sim_params *p)
{
    tune_uc_lossy(p);
    p->dup = 0.03;
    p->reorder = 0.05;
}

/* ------------------------------------------------- SEND with invalidate */

#define INV_ROUNDS 24
#define INV_LEN 6000
#define INV_IOVA 0x55000000ull

static bool inv_round_done(struct sim *s)
{
    struct pair *p = s->opaque;

    return p->cqes[0]->len == 2 * p->round && p->cqes[1]->len == 2 * p->round;
}

static bool registered(struct sim *s)
{
    struct pair *p = s->opaque;

    return p->cqes[1]->len == 2 * p->round - 1;
}

/* Side 1 lends a region, side 0 writes to it and gives it back by its SEND. */
static void inv_round(struct pair *p, uint32_t key)
{
    struct sim *s = p->s;
    const struct vroce_cqe *cqe;
    uint8_t want[INV_LEN], have[INV_LEN];
    struct drv_wr wr = pair_wr(p, 1, 0, 0, 0);

    p->round++;
    pair_recv(p, 1, &wr);
    drv_post_fast_reg(&p->qp[1], key, &p->mem[1], INV_IOVA,
                      VROCE_ACCESS_LOCAL_WRITE | VROCE_ACCESS_REMOTE_WRITE, 7);
    s->node[1].touched = true;
    drv_ring(&p->qp[1]);
    sim_run(s, registered, SEC);
    cqe = pair_cqe(p, 1, 2 * p->round - 2);
    sim_check(s, cqe->opcode == VROCE_WC_FAST_REG && !cqe->status);

    fill_pattern(want, INV_LEN, p->round);
    gmem_write(&p->mem[0], 0, want, INV_LEN);
    wr = pair_wr(p, 0, VROCE_WQE_WRITE, 0, INV_LEN);
    wr.remote_addr = INV_IOVA;
    wr.rkey = key;
    pair_post(p, 0, &wr);
    wr = pair_wr(p, 0, VROCE_WQE_SEND_INV, 0, 0);
    wr.num_sge = 0;
    wr.inv_key = key;
    pair_post(p, 0, &wr);
    sim_run(s, inv_round_done, 10 * SEC);

    cqe = pair_cqe(p, 1, 2 * p->round - 1);
    sim_check(s, cqe->opcode == VROCE_WC_RECV && !cqe->status);
    sim_check(s, le16toh(cqe->flags) & VROCE_CQE_INV);
    sim_check(s, le32toh(cqe->inv_key) == key);
    gmem_read(&p->mem[1], 0, have, INV_LEN);
    sim_check(s, !memcmp(want, have, INV_LEN));
}

static uint64_t run_invalidate(const struct scenario *sc,
                               const struct sim_params *p, enum sim_link link)
{
    struct sim *s = sim_new(p, link, sc->name);
    struct drv_mr mr;
    struct pair pair;
    struct drv_wr wr;

    pair_init(&pair, s, VROCE_QPT_RC);
    s->opaque = &pair;
    pair_connect(&pair);
    mr = (struct drv_mr) {
        .d = s->node[1].d,
        .key = drv_fast_mr_create(s->node[1].d, PAIR_MEM / FH_PAGE_SIZE),
    };
    for (uint32_t k = 0; k < INV_ROUNDS; k++) {
        inv_round(&pair, mr.key);
    }
    /*
     * The last one was given back: nobody may write there any more. A lost NAK
     * would be a timeout, so nothing is lost now.
     */
    s->p.loss = s->p.dup = s->p.reorder = 0;
    s->blackouts = true;
    wr = pair_wr(&pair, 0, VROCE_WQE_WRITE, 0, 8);
    wr.remote_addr = INV_IOVA;
    wr.rkey = mr.key;
    pair_post(&pair, 0, &wr);
    sim_pass(s, SEC);
    sim_check(s, pair_cqe(&pair, 0, 2 * INV_ROUNDS)->status ==
              VROCE_WCS_REM_ACCESS_ERR);
    drv_mr_destroy(&mr);
    return pair_finish(&pair);
}

static void tune_invalidate(struct sim_params *p)
{
    p->loss = 0.05;
    p->dup = 0.05;
    p->reorder = 0.05;
    p->timeout = 10;
}

const struct scenario chaos_scenarios[] = {
    { "chaos", "all faults at 16 nodes, saved, loaded and dark at times",
      run_chaos, tune_chaos },
    { "uc-lossy", "unreliable messages arrive whole and in order", run_uc_lossy,
      tune_uc_lossy },
    { "uc-bad", "… or at least whole, when packets come twice or late",
      run_uc_lossy, tune_uc_bad },
    { "invalidate", "keys are invalidated once, whatever is lost",
      run_invalidate, tune_invalidate },
    { 0 }
};

const struct scenario slow_scenarios[] = {
    { "chaos-100", "the same with 100 nodes and 200 connections", run_chaos,
      tune_chaos_100 },
    { 0 }
};
