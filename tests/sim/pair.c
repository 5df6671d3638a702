/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "pair.h"

static void collect(struct node *n, const struct vroce_cqe *cqe)
{
    struct pair *p = n->opaque;

    g_array_append_vals(p->cqes[n->id], cqe, 1);
}

void pair_init(struct pair *p, struct sim *s, uint8_t type)
{
    *p = (struct pair) { .s = s };
    for (int side = 0; side < 2; side++) {
        struct node *n = &s->node[side];
        const struct drv_qp_init init = {
            .type = type, .sq_log = 7, .rq_log = 6, .max_recv_sge = 2,
            .scq = &n->cq, .rcq = &n->cq,
        };

        n->on_cqe = collect;
        n->opaque = p;
        p->cqes[side] = g_array_new(false, false, sizeof(struct vroce_cqe));
        drv_qp_create(n->d, &p->qp[side], &init);
        gmem_init(&p->mem[side], n->h, PAIR_MEM, 2, 12, 0);
        drv_conn_init(&p->conn[side]);
        drv_mr_create(n->d, &p->mr[side], &p->mem[side], PAIR_IOVA,
                      p->conn[side].access);
    }
    for (int side = 0; side < 2; side++) {
        struct drv_conn *c = &p->conn[side];

        c->dest_qpn = p->qp[!side].qpn;
        c->timeout = s->p.timeout;
        c->retry_cnt = s->p.retry_cnt;
        c->qkey = 0x11111111;
        c->sq_psn = 100 + side;
        c->rq_psn = 100 + !side;
        drv_av(s->node[!side].d, !side + 1, s->p.ipv6, &c->av);
    }
}

void pair_connect(struct pair *p)
{
    for (int side = 0; side < 2; side++) {
        drv_qp_connect(&p->qp[side], &p->conn[side]);
    }
}

void pair_fini(struct pair *p)
{
    for (int side = 0; side < 2; side++) {
        drv_qp_destroy(&p->qp[side]);
        if (!p->mr_gone[side]) {
            drv_mr_destroy(&p->mr[side]);
        }
        gmem_fini(&p->mem[side]);
        g_array_unref(p->cqes[side]);
    }
}

struct drv_wr pair_wr(struct pair *p, int side, uint8_t opcode, uint64_t off,
                      uint32_t len)
{
    return (struct drv_wr) {
        .opcode = opcode, .flags = VROCE_WQE_SIGNALED, .num_sge = 1,
        .sge[0] = { PAIR_IOVA + off, len, p->mr[side].key },
        .remote_addr = PAIR_IOVA + off, .rkey = p->mr[!side].key,
        .qkey = p->conn[!side].qkey, .dest_qpn = p->qp[!side].qpn,
        .av = p->conn[side].av, .imm = 0x01020304,
    };
}

void pair_post(struct pair *p, int side, const struct drv_wr *wr)
{
    sim_check(p->s, drv_post_send(&p->qp[side], wr));
    p->s->node[side].touched = true;
    drv_ring(&p->qp[side]);
}

void pair_recv(struct pair *p, int side, const struct drv_wr *wr)
{
    sim_check(p->s, drv_post_recv(&p->qp[side], wr));
}

const struct vroce_cqe *pair_cqe(struct pair *p, int side, uint32_t k)
{
    sim_check(p->s, k < p->cqes[side]->len);
    return &g_array_index(p->cqes[side], struct vroce_cqe, k);
}

uint64_t pair_digest(struct pair *p)
{
    uint64_t digest = 0;

    for (int side = 0; side < 2; side++) {
        uint8_t *image = g_malloc(PAIR_MEM);

        for (uint32_t k = 0; k < p->cqes[side]->len; k++) {
            const struct vroce_cqe *c = pair_cqe(p, side, k);
            const uint64_t words[] = {
                c->wr_id, c->opcode, c->status, c->rule, c->wqe_end,
                c->status ? 0 : c->byte_len,
            };

            digest = digest_add(digest, words, sizeof(words));
        }
        gmem_read(&p->mem[side], 0, image, PAIR_MEM);
        digest = digest_add(digest, image, PAIR_MEM);
        g_free(image);
    }
    return digest;
}

uint64_t pair_finish(struct pair *p)
{
    uint64_t digest = pair_digest(p);

    pair_fini(p);
    sim_free(p->s);
    return digest;
}
