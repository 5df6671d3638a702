/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Requests that must fail, each with the status that IBA 11.6.2 gives it on
 * both sides, and with everything behind it flushed in order.
 */
#include <string.h>

#include "pair.h"

#define FOLLOWERS 3             /* requests behind the one that fails */
#define ANY 0xff

struct error_case {
    const char *name;
    uint8_t opcode;
    uint32_t len;
    /* of the request's completion; of the receive's, ANY: none is taken */
    uint8_t status, recv_status;
    void (*attrs)(struct pair *p);                      /* before RTS */
    void (*spoil)(struct pair *p, struct drv_wr *wr);   /* the request */
    void (*spoil_recv)(struct pair *p, struct drv_wr *wr);
    uint64_t strike_at;         /* ns after posting: */
    void (*strike)(struct pair *p);
    bool no_recv;
};

static void wrong_rkey(struct pair *p, struct drv_wr *wr)
{
    wr->rkey += 77 << 8;
}

static void wrong_variant(struct pair *p, struct drv_wr *wr)
{
    wr->rkey ^= 1;
}

static void beyond_region(struct pair *p, struct drv_wr *wr)
{
    wr->remote_addr = PAIR_IOVA + PAIR_MEM - wr->sge[0].length + 1;
}

static void before_region(struct pair *p, struct drv_wr *wr)
{
    wr->remote_addr = PAIR_IOVA - 1;
}

static void around_the_end(struct pair *p, struct drv_wr *wr)
{
    wr->remote_addr = UINT64_MAX - 10;
}

static void wrong_lkey(struct pair *p, struct drv_wr *wr)
{
    wr->sge[0].lkey += 77 << 8;
}

static void local_beyond(struct pair *p, struct drv_wr *wr)
{
    wr->sge[0].addr = PAIR_IOVA + PAIR_MEM - 1;
}

static void short_recv(struct pair *p, struct drv_wr *wr)
{
    wr->sge[0].length--;
}

static void bad_opcode(struct pair *p, struct drv_wr *wr)
{
    wr->opcode = 15;
    wr->num_sge = 0;
}

static void too_long(struct pair *p, struct drv_wr *wr)
{
    wr->num_sge = 3;
    wr->sge[1] = wr->sge[2] = wr->sge[0];
    wr->sge[0].length = wr->sge[1].length = wr->sge[2].length = 0x70000000;
}

static void no_right(struct pair *p, int side, uint32_t access)
{
    drv_mr_destroy(&p->mr[side]);
    drv_mr_create(p->s->node[side].d, &p->mr[side], &p->mem[side], PAIR_IOVA,
                  access);
}

static void region_local_only(struct pair *p)
{
    no_right(p, 1, VROCE_ACCESS_LOCAL_WRITE);
}

static void region_read_only_here(struct pair *p)
{
    no_right(p, 0, 0);
}

static void region_read_only_there(struct pair *p)
{
    no_right(p, 1, 0);
}

static void region_of_other_pd(struct pair *p)
{
    struct drv *d = p->s->node[1].d;
    uint32_t pdn = d->pdn;
    struct vroce_number out;

    drv_mr_destroy(&p->mr[1]);
    g_assert_cmpint(fh_command(d->h, VROCE_CMD_ALLOC_PD, NULL, 0, &out,
                               sizeof(out), NULL), ==, VROCE_OK);
    d->pdn = le32toh(out.number);
    drv_mr_create(d, &p->mr[1], &p->mem[1], PAIR_IOVA, p->conn[1].access);
    d->pdn = pdn;
}

static void few_rnr_retries(struct pair *p)
{
    p->conn[0].rnr_retry = 2;
}

static void dereg(struct pair *p, int side)
{
    drv_mr_destroy(&p->mr[side]);
    p->mr_gone[side] = true;
}

static void dereg_here(struct pair *p)
{
    dereg(p, 0);
}

static void dereg_there(struct pair *p)
{
    dereg(p, 1);
}

static const struct error_case cases[] = {
    { "write-rkey", VROCE_WQE_WRITE, 3000, VROCE_WCS_REM_ACCESS_ERR, ANY,
      .spoil = wrong_rkey },
    { "write-variant", VROCE_WQE_WRITE, 3000, VROCE_WCS_REM_ACCESS_ERR, ANY,
      .spoil = wrong_variant },
    { "write-beyond", VROCE_WQE_WRITE, 3000, VROCE_WCS_REM_ACCESS_ERR, ANY,
      .spoil = beyond_region },
    { "write-before", VROCE_WQE_WRITE, 1, VROCE_WCS_REM_ACCESS_ERR, ANY,
      .spoil = before_region },
    { "write-wraps", VROCE_WQE_WRITE, 3000, VROCE_WCS_REM_ACCESS_ERR, ANY,
      .spoil = around_the_end },
    { "write-right", VROCE_WQE_WRITE, 3000, VROCE_WCS_REM_ACCESS_ERR, ANY,
      .attrs = region_local_only },
    { "write-pd", VROCE_WQE_WRITE, 3000, VROCE_WCS_REM_ACCESS_ERR, ANY,
      .attrs = region_of_other_pd },
    { "write-imm-rkey", VROCE_WQE_WRITE_IMM, 3000, VROCE_WCS_REM_ACCESS_ERR,
      ANY, .spoil = wrong_rkey },
    { "read-rkey", VROCE_WQE_READ, 3000, VROCE_WCS_REM_ACCESS_ERR, ANY,
      .spoil = wrong_rkey },
    { "read-beyond", VROCE_WQE_READ, 3000, VROCE_WCS_REM_ACCESS_ERR, ANY,
      .spoil = beyond_region },
    { "read-right", VROCE_WQE_READ, 3000, VROCE_WCS_REM_ACCESS_ERR, ANY,
      .attrs = region_local_only },
    { "read-pd", VROCE_WQE_READ, 3000, VROCE_WCS_REM_ACCESS_ERR, ANY,
      .attrs = region_of_other_pd },
    { "read-into-read-only", VROCE_WQE_READ, 3000, VROCE_WCS_LOC_PROT_ERR, ANY,
      .attrs = region_read_only_here },
    { "send-lkey", VROCE_WQE_SEND, 3000, VROCE_WCS_LOC_PROT_ERR, ANY,
      .spoil = wrong_lkey },
    { "send-beyond", VROCE_WQE_SEND, 3000, VROCE_WCS_LOC_PROT_ERR, ANY,
      .spoil = local_beyond },
    { "write-lkey", VROCE_WQE_WRITE, 3000, VROCE_WCS_LOC_PROT_ERR, ANY,
      .spoil = wrong_lkey },
    { "read-lkey", VROCE_WQE_READ, 3000, VROCE_WCS_LOC_PROT_ERR, ANY,
      .spoil = wrong_lkey },
    { "opcode", VROCE_WQE_SEND, 10, VROCE_WCS_LOC_QP_OP_ERR, ANY,
      .spoil = bad_opcode },
    { "too-long", VROCE_WQE_SEND, 10, VROCE_WCS_LOC_LEN_ERR, ANY,
      .spoil = too_long },
    { "recv-short", VROCE_WQE_SEND, 3000, VROCE_WCS_REM_INV_REQ_ERR,
      VROCE_WCS_LOC_LEN_ERR, .spoil_recv = short_recv },
    { "recv-short-one", VROCE_WQE_SEND_IMM, 200, VROCE_WCS_REM_INV_REQ_ERR,
      VROCE_WCS_LOC_LEN_ERR, .spoil_recv = short_recv },
    { "recv-lkey", VROCE_WQE_SEND, 3000, VROCE_WCS_REM_OP_ERR,
      VROCE_WCS_LOC_PROT_ERR, .spoil_recv = wrong_lkey },
    { "recv-read-only", VROCE_WQE_SEND, 3000, VROCE_WCS_REM_OP_ERR,
      VROCE_WCS_LOC_PROT_ERR, .attrs = region_read_only_there },
    { "rnr-exceeded", VROCE_WQE_SEND, 3000, VROCE_WCS_RNR_RETRY_EXC_ERR, ANY,
      .attrs = few_rnr_retries, .no_recv = true },
    { "dereg-there", VROCE_WQE_WRITE, PAIR_MEM, VROCE_WCS_REM_ACCESS_ERR, ANY,
      .strike_at = 60 * US, .strike = dereg_there },
    { "dereg-there-read", VROCE_WQE_READ, PAIR_MEM, VROCE_WCS_REM_ACCESS_ERR,
      ANY, .strike_at = 60 * US, .strike = dereg_there },
    { "dereg-here", VROCE_WQE_WRITE, PAIR_MEM, VROCE_WCS_LOC_PROT_ERR, ANY,
      .strike_at = 60 * US, .strike = dereg_here },
    { "dereg-here-read", VROCE_WQE_READ, PAIR_MEM, VROCE_WCS_LOC_PROT_ERR, ANY,
      .strike_at = 60 * US, .strike = dereg_here },
};

static bool settled(struct sim *s)
{
    struct pair *p = s->opaque;

    return p->cqes[0]->len == 1 + FOLLOWERS;
}

/* Statuses and order at the requester. */
static void check_requester(struct pair *p, const struct error_case *c)
{
    const struct vroce_cqe *cqe = pair_cqe(p, 0, 0);

    if (cqe->status != c->status || le64toh(cqe->wr_id) != 1000) {
        sim_fail(p->s, "%s: status %u (rule %s), wr_id %u; expected status %u",
                 c->name, cqe->status, vr_rule_name(le16toh(cqe->rule)),
                 (uint32_t)le64toh(cqe->wr_id), c->status);
    }
    for (uint32_t k = 1; k <= FOLLOWERS; k++) {
        cqe = pair_cqe(p, 0, k);
        if (cqe->status != VROCE_WCS_WR_FLUSH_ERR ||
            le64toh(cqe->wr_id) != 1000 + k) {
            sim_fail(p->s, "%s: request %u behind it: status %u, wr_id %u",
                     c->name, k, cqe->status, (uint32_t)le64toh(cqe->wr_id));
        }
    }
}

static void check_responder(struct pair *p, const struct error_case *c)
{
    struct vr_qp_info q;

    if (c->recv_status == ANY) {
        return;
    }
    if (pair_cqe(p, 1, 0)->status != c->recv_status) {
        sim_fail(p->s, "%s: the receive's status is %u, not %u", c->name,
                 pair_cqe(p, 1, 0)->status, c->recv_status);
    }
    sim_check(p->s, vr_query_qp(p->s->node[1].h->e, p->qp[1].qpn, &q));
    sim_check(p->s, q.state == VROCE_QPS_ERR);
}

static void post_case(struct pair *p, const struct error_case *c)
{
    struct drv_wr wr;

    for (int k = 0; k < 2 && !c->no_recv; k++) {
        wr = pair_wr(p, 1, 0, 0, c->len);
        wr.wr_id = 2000 + k;
        if (c->spoil_recv) {
            c->spoil_recv(p, &wr);
        }
        pair_recv(p, 1, &wr);
    }
    wr = pair_wr(p, 0, c->opcode, 0, c->len);
    wr.wr_id = 1000;
    if (c->spoil) {
        c->spoil(p, &wr);
    }
    /* An error completes even what asked for no completion. */
    wr.flags = 0;
    sim_check(p->s, drv_post_send(&p->qp[0], &wr));
    for (uint32_t k = 1; k <= FOLLOWERS; k++) {
        wr = pair_wr(p, 0, VROCE_WQE_WRITE, 0, 0);
        wr.wr_id = 1000 + k;
        sim_check(p->s, drv_post_send(&p->qp[0], &wr));
    }
    p->s->node[0].touched = true;
    drv_ring(&p->qp[0]);
}

static uint64_t run_case(const struct scenario *sc, const struct sim_params *p,
                         enum sim_link link, const struct error_case *c)
{
    struct sim *s = sim_new(p, link, sc->name);
    struct vr_qp_info q;
    struct pair pair;
    uint64_t digest;

    sim_trace(s, "case %s", c->name);
    pair_init(&pair, s, VROCE_QPT_RC);
    s->opaque = &pair;
    if (c->attrs) {
        c->attrs(&pair);
    }
    pair_connect(&pair);
    post_case(&pair, c);
    if (c->strike) {
        sim_pass(s, c->strike_at);
        c->strike(&pair);
    }
    sim_run(s, settled, 60 * SEC);
    sim_pass(s, SEC);
    check_requester(&pair, c);
    check_responder(&pair, c);
    sim_check(s, vr_query_qp(s->node[0].h->e, pair.qp[0].qpn, &q));
    sim_check(s, q.state == VROCE_QPS_ERR);
    sim_check(s, s->node[0].h->deadline == UINT64_MAX);
    sim_check(s, s->node[1].h->deadline == UINT64_MAX);
    /* How far a strike lets a message get depends on the link. */
    digest = c->strike ? 0 : pair_digest(&pair);
    pair_fini(&pair);
    if (c->attrs == region_of_other_pd) {
        drv_number(s->node[1].d, VROCE_CMD_FREE_PD, s->node[1].d->pdn + 1);
    }
    sim_free(s);
    return digest;
}

static uint64_t run_errors(const struct scenario *sc,
                           const struct sim_params *p, enum sim_link link)
{
    uint64_t digest = 0;

    for (uint32_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        uint64_t d = run_case(sc, p, link, &cases[i]);

        digest = digest_add(digest, &d, sizeof(d));
    }
    return digest;
}

static void tune_errors(struct sim_params *p)
{
    p->timeout = 12;
}

/* Zero bytes ask for no right to any memory (IBA C9-88). */
static bool four_done(struct sim *s)
{
    struct pair *p = s->opaque;

    return p->cqes[0]->len == 4;
}

static uint64_t run_zero(const struct scenario *sc, const struct sim_params *p,
                         enum sim_link link)
{
    static const uint8_t opcodes[] = {
        VROCE_WQE_WRITE, VROCE_WQE_READ, VROCE_WQE_WRITE, VROCE_WQE_READ,
    };
    struct sim *s = sim_new(p, link, sc->name);
    struct pair pair;

    pair_init(&pair, s, VROCE_QPT_RC);
    s->opaque = &pair;
    pair_connect(&pair);
    for (uint32_t k = 0; k < 4; k++) {
        struct drv_wr wr = pair_wr(&pair, 0, opcodes[k], 0, 0);

        wr.num_sge = 0;
        wr.rkey = 0xdead00 + k;
        wr.remote_addr = UINT64_MAX;
        pair_post(&pair, 0, &wr);
    }
    sim_run(s, four_done, 10 * SEC);
    for (uint32_t k = 0; k < 4; k++) {
        sim_check(s, pair_cqe(&pair, 0, k)->status == VROCE_WCS_SUCCESS);
    }
    return pair_finish(&pair);
}

/* ------------------------------------------------------------- fence */

#define FENCE_LEN 60000
#define FENCE_ROUNDS 16

static bool fenced_done(struct sim *s)
{
    struct pair *p = s->opaque;

    return p->cqes[1]->len == FENCE_ROUNDS;
}

/* A fenced SEND sends what the READs before it have brought. */
static uint64_t run_fence(const struct scenario *sc, const struct sim_params *p,
                          enum sim_link link)
{
    struct sim *s = sim_new(p, link, sc->name);
    uint8_t want[FENCE_LEN], have[FENCE_LEN];
    struct pair pair;

    pair_init(&pair, s, VROCE_QPT_RC);
    s->opaque = &pair;
    pair_connect(&pair);
    for (uint32_t k = 0; k < FENCE_ROUNDS; k++) {
        struct drv_wr wr = pair_wr(&pair, 1, 0, (k + 16ull) * 65536, FENCE_LEN);

        pair_recv(&pair, 1, &wr);
        fill_pattern(want, FENCE_LEN, k);
        gmem_write(&pair.mem[1], k * 65536, want, FENCE_LEN);
        wr = pair_wr(&pair, 0, VROCE_WQE_READ, k * 65536, FENCE_LEN);
        wr.flags = 0;
        pair_post(&pair, 0, &wr);
        wr = pair_wr(&pair, 0, VROCE_WQE_SEND, k * 65536, FENCE_LEN);
        wr.flags |= VROCE_WQE_FENCE;
        pair_post(&pair, 0, &wr);
    }
    sim_run(s, fenced_done, 10 * SEC);
    sim_pass(s, SEC);
    for (uint32_t k = 0; k < FENCE_ROUNDS; k++) {
        sim_check(s, pair_cqe(&pair, 1, k)->status == VROCE_WCS_SUCCESS);
        fill_pattern(want, FENCE_LEN, k);
        gmem_read(&pair.mem[1], (k + 16) * 65536, have, FENCE_LEN);
        sim_check(s, !memcmp(want, have, FENCE_LEN));
    }
    return pair_finish(&pair);
}

static void tune_fence(struct sim_params *p)
{
    p->loss = 0.01;
    p->reorder = 0.02;
}

static void tune_plain(struct sim_params *p)
{
}

const struct scenario error_scenarios[] = {
    { "errors", "requests that must fail, and how", run_errors, tune_errors },
    { "zero", "messages of no bytes need no key", run_zero, tune_plain },
    { "fence", "what follows READs waits for them", run_fence, tune_fence },
    { 0 }
};
