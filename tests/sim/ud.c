/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Datagrams: what arrives, what is dropped in silence, and what is an error. */
#include <string.h>

#include "pair.h"

#define UD_MESSAGES 48
#define GRH 40

static bool ud_sent(struct sim *s)
{
    struct pair *p = s->opaque;

    return p->cqes[0]->len == UD_MESSAGES;
}

static void ud_post(struct pair *p, uint32_t k)
{
    struct drv_wr wr = pair_wr(p, 1, 0, 8192ull * k, 8192);
    uint8_t data[4096];
    uint32_t len = k * 4096 / UD_MESSAGES;

    wr.wr_id = k;
    pair_recv(p, 1, &wr);
    fill_pattern(data, len, k);
    gmem_write(&p->mem[0], 8192 * k, data, len);
    wr = pair_wr(p, 0, k & 1 ? VROCE_WQE_SEND : VROCE_WQE_SEND_IMM, 8192 * k,
                 len);
    wr.wr_id = k;
    wr.imm = k;
    pair_post(p, 0, &wr);
}

/* Whatever arrived is one of those sent, whole, behind 40 bytes. */
static void ud_check(struct pair *p, uint32_t k)
{
    const struct vroce_cqe *cqe = pair_cqe(p, 1, k);
    uint32_t len = le32toh(cqe->byte_len), sent;
    uint8_t want[4096], have[4096];

    sim_check(p->s, cqe->status == VROCE_WCS_SUCCESS && len >= GRH &&
              len <= 4096 + GRH);
    sim_check(p->s, le64toh(cqe->wr_id) == k);
    sim_check(p->s, le32toh(cqe->src_qpn) == p->qp[0].qpn);
    sim_check(p->s, le16toh(cqe->flags) & VROCE_CQE_GRH);
    len -= GRH;
    for (sent = 0; sent < UD_MESSAGES; sent++) {
        if (sent * 4096 / UD_MESSAGES == len) {
            break;
        }
    }
    sim_check(p->s, sent < UD_MESSAGES);
    fill_pattern(want, len, sent);
    gmem_read(&p->mem[1], 8192ull * k + GRH, have, len);
    sim_check(p->s, !memcmp(want, have, len));
    sim_check(p->s, sent & 1 || cqe->imm == sent);
}

static uint64_t run_ud(const struct scenario *sc, const struct sim_params *p,
                       enum sim_link link)
{
    struct sim *s = sim_new(p, link, sc->name);
    struct pair pair;
    uint64_t digest;

    pair_init(&pair, s, VROCE_QPT_UD);
    s->opaque = &pair;
    pair_connect(&pair);
    for (uint32_t k = 0; k < UD_MESSAGES; k++) {
        ud_post(&pair, k);
        sim_pass(s, 10 * US);
    }
    sim_run(s, ud_sent, SEC);
    sim_pass(s, SEC);
    for (uint32_t k = 0; k < UD_MESSAGES; k++) {
        sim_check(s, pair_cqe(&pair, 0, k)->status == VROCE_WCS_SUCCESS);
    }
    for (uint32_t k = 0; k < pair.cqes[1]->len; k++) {
        ud_check(&pair, k);
    }
    if (p->loss == 0) {
        sim_check(s, pair.cqes[1]->len == UD_MESSAGES);
    } else {
        sim_check(s, pair.cqes[1]->len < UD_MESSAGES);
    }
    /* Which are lost is chance of the link; the header's MACs are the same. */
    digest = p->loss == 0 ? pair_digest(&pair) : 0;
    pair_fini(&pair);
    sim_free(s);
    return digest;
}

static void tune_ud_lossy(struct sim_params *p)
{
    p->loss = 0.3;
}

static void tune_ud_ipv6(struct sim_params *p)
{
    p->ipv6 = true;
}

static void tune_plain(struct sim_params *p)
{
}

/* ------------------------------------------------------------- errors */

struct ud_case {
    const char *name;
    uint32_t len;               /* of the datagram */
    uint32_t room;              /* of the receive, VROCE_NONE: none is posted */
    uint8_t status;             /* of the send */
    uint8_t sender, receiver;   /* states of the QPs afterwards */
    uint8_t recv_status;        /* ANY: no completion */
    enum vroce_counter counter; /* of the receiver, grows by one */
    void (*spoil)(struct pair *p, struct drv_wr *wr);
    void (*spoil_recv)(struct pair *p, struct drv_wr *wr);
};

#define ANY 0xff
/* No counter of the receiver is asked for. */
#define NO_COUNTER VROCE_CNT_COMMANDS

static void wrong_qkey(struct pair *p, struct drv_wr *wr)
{
    wr->qkey++;
}

static void wrong_qpn(struct pair *p, struct drv_wr *wr)
{
    wr->dest_qpn += 1000;
}

static void zero_qpn(struct pair *p, struct drv_wr *wr)
{
    wr->dest_qpn = 0;
}

static void wrong_gid_index(struct pair *p, struct drv_wr *wr)
{
    wr->av.sgid_index = htole16(5);
}

static void wrong_lkey(struct pair *p, struct drv_wr *wr)
{
    wr->sge[0].lkey += 77 << 8;
}

static const struct ud_case cases[] = {
    { "qkey", 100, 200, 0, VROCE_QPS_RTS, VROCE_QPS_RTS, ANY,
      VROCE_CNT_RX_BAD_KEY, .spoil = wrong_qkey },
    { "qpn", 100, 200, 0, VROCE_QPS_RTS, VROCE_QPS_RTS, ANY,
      VROCE_CNT_RX_NO_QP, .spoil = wrong_qpn },
    { "qpn-0", 100, 200, 0, VROCE_QPS_RTS, VROCE_QPS_RTS, ANY,
      VROCE_CNT_RX_NO_QP, .spoil = zero_qpn },
    { "no-receive", 100, VROCE_NONE, 0, VROCE_QPS_RTS, VROCE_QPS_RTS, ANY,
      VROCE_CNT_RX_UD_NO_BUFFER, NULL, NULL },
    { "short-receive", 100, 139, 0, VROCE_QPS_RTS, VROCE_QPS_RTS, ANY,
      VROCE_CNT_RX_UD_NO_BUFFER, NULL, NULL },
    { "fitting-receive", 100, 140, 0, VROCE_QPS_RTS, VROCE_QPS_RTS,
      VROCE_WCS_SUCCESS, NO_COUNTER, NULL, NULL },
    { "too-long", 4097, 5000, 0, VROCE_QPS_RTS, VROCE_QPS_RTS, ANY,
      NO_COUNTER, NULL, NULL },
    { "gid-index", 100, 200, VROCE_WCS_LOC_QP_OP_ERR, VROCE_QPS_SQE,
      VROCE_QPS_RTS, ANY, NO_COUNTER, .spoil = wrong_gid_index },
    { "send-lkey", 100, 200, VROCE_WCS_LOC_PROT_ERR, VROCE_QPS_SQE,
      VROCE_QPS_RTS, ANY, NO_COUNTER, .spoil = wrong_lkey },
    { "recv-lkey", 100, 200, 0, VROCE_QPS_RTS, VROCE_QPS_ERR,
      VROCE_WCS_LOC_PROT_ERR, NO_COUNTER, .spoil_recv = wrong_lkey },
};

static void check_state(struct pair *p, const struct ud_case *c, int side,
                        uint8_t state)
{
    struct vr_qp_info q;

    sim_check(p->s, vr_query_qp(p->s->node[side].h->e, p->qp[side].qpn, &q));
    if (q.state != state) {
        sim_fail(p->s, "%s: side %d is in state %s, not %s", c->name, side,
                 vr_qp_state_name(q.state), vr_qp_state_name(state));
    }
}

static void check_ud_case(struct pair *p, const struct ud_case *c)
{
    struct sim *s = p->s;

    /* The second send is flushed when the first one stops the queue. */
    sim_check(s, p->cqes[0]->len == 2);
    if (pair_cqe(p, 0, 0)->status != c->status) {
        sim_fail(s, "%s: the send's status is %u, not %u", c->name,
                 pair_cqe(p, 0, 0)->status, c->status);
    }
    sim_check(s, pair_cqe(p, 0, 1)->status ==
              (c->status ? VROCE_WCS_WR_FLUSH_ERR : VROCE_WCS_SUCCESS));
    if (c->recv_status == ANY) {
        sim_check(s, p->cqes[1]->len == 0);
    } else {
        sim_check(s, pair_cqe(p, 1, 0)->status == c->recv_status);
    }
    check_state(p, c, 0, c->sender);
    check_state(p, c, 1, c->receiver);
    if (c->counter != NO_COUNTER) {
        sim_check(s, vr_counters(s->node[1].h->e)[c->counter] == 2);
    }
}

static uint64_t run_ud_case(const struct scenario *sc,
                            const struct sim_params *p, enum sim_link link,
                            const struct ud_case *c)
{
    struct sim *s = sim_new(p, link, sc->name);
    struct pair pair;
    struct drv_wr wr;
    uint16_t rule;

    sim_trace(s, "case %s", c->name);
    pair_init(&pair, s, VROCE_QPT_UD);
    pair_connect(&pair);
    if (c->room != VROCE_NONE) {
        wr = pair_wr(&pair, 1, 0, 0, c->room);
        if (c->spoil_recv) {
            c->spoil_recv(&pair, &wr);
        }
        pair_recv(&pair, 1, &wr);
    }
    wr = pair_wr(&pair, 0, VROCE_WQE_SEND, 0, c->len);
    if (c->spoil) {
        c->spoil(&pair, &wr);
    }
    sim_check(s, drv_post_send(&pair.qp[0], &wr));
    pair_post(&pair, 0, &wr);
    sim_pass(s, SEC);
    check_ud_case(&pair, c);
    if (c->sender == VROCE_QPS_SQE) {
        /* IBA 10.3.1: the send queue can be taken up again. */
        sim_check(s, drv_try_modify(&pair.qp[0], VROCE_QPS_RTS,
                                    &pair.conn[0], &rule) != VROCE_OK);
        sim_check(s, drv_try_restart(&pair.qp[0]) == VROCE_OK);
        wr = pair_wr(&pair, 0, VROCE_WQE_SEND, 0, c->len);
        pair_post(&pair, 0, &wr);
        sim_pass(s, SEC);
        sim_check(s, pair_cqe(&pair, 0, 2)->status == VROCE_WCS_SUCCESS);
        sim_check(s, pair_cqe(&pair, 1, 0)->status == VROCE_WCS_SUCCESS);
    }
    return pair_finish(&pair);
}

static uint64_t run_ud_errors(const struct scenario *sc,
                              const struct sim_params *p, enum sim_link link)
{
    uint64_t digest = 0;

    for (uint32_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        uint64_t d = run_ud_case(sc, p, link, &cases[i]);

        digest = digest_add(digest, &d, sizeof(d));
    }
    return digest;
}

const struct scenario ud_scenarios[] = {
    { "ud", "datagrams", run_ud, tune_plain },
    { "ud-ipv6", "datagrams over IPv6", run_ud, tune_ud_ipv6 },
    { "ud-lossy", "datagrams, a third of them lost", run_ud, tune_ud_lossy },
    { "ud-errors", "datagrams that are dropped or refused", run_ud_errors,
      tune_plain },
    { 0 }
};
