/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Connections that check themselves.
 *
 * Each direction has a plan of work requests, drawn from the seed before the
 * first packet. Request i uses slot i modulo the number of slots, in the
 * requester's memory and in the responder's; its bytes are a pattern of its
 * own between guard bytes, so that anything lost, doubled, out of order or
 * written beside its place is seen at the completion.
 */
#include <string.h>

#include "sim.h"

#define GUARD 64u
#define SQ_LOG 8
#define RQ_LOG 6
#define MAX_RECV_SGE 4
#define IOVA_SKEW 0x7f0000000000ull     /* regions are not at their addresses */
#define ATOMIC_BASE 1000

struct op {
    uint8_t opcode, flags, num_sge;
    uint32_t len, skew;         /* skew: of the data in its slot */
    uint32_t imm;
    uint64_t seed;
    uint64_t add, old;          /* atomics: added, expected before */
    uint32_t recv;              /* the receive that it takes, or VROCE_NONE */
    uint32_t recv_room;         /* bytes of that receive beyond len */
};

struct region {
    struct gmem mem;
    struct drv_mr mr;
};

/* One direction; requester is the side of the same number. */
struct dir {
    struct flow *f;
    int side;
    struct op *ops;
    uint32_t num_ops, num_recvs;
    uint32_t *recv_ops;         /* op of each receive */
    struct region src, dst;     /* requester's, responder's */
    uint32_t prepared, posted, acked, recv_due, recv_posted, received;
};

struct flow {
    struct sim *s;
    struct flow_init init;
    uint32_t id, refs;
    bool open, closed, errors;
    struct node *node[2];
    struct drv_qp qp[2];
    struct drv_srq srq[2];
    struct dir dir[2];
    uint32_t mtu, slots;
    uint64_t slot_size;
    uint64_t cqe_digest[2][2];  /* of each side's send and receive queue */
    uint32_t statuses[2][VROCE_WCS_GENERAL_ERR + 1];
    uint64_t first_error[2];
};

/* ----------------------------------------------------------------- plan */

static const uint8_t kind_opcodes[][2] = {
    { VROCE_WQE_SEND, VROCE_WQE_SEND_IMM },
    { VROCE_WQE_WRITE, VROCE_WQE_WRITE },
    { VROCE_WQE_WRITE_IMM, VROCE_WQE_WRITE_IMM },
    { VROCE_WQE_READ, VROCE_WQE_READ },
    { VROCE_WQE_FETCH_ADD, VROCE_WQE_CMP_SWAP },
};

static bool is_atomic(uint8_t opcode)
{
    return opcode == VROCE_WQE_FETCH_ADD || opcode == VROCE_WQE_CMP_SWAP;
}

static bool takes_recv(uint8_t opcode)
{
    return opcode == VROCE_WQE_SEND || opcode == VROCE_WQE_SEND_IMM ||
           opcode == VROCE_WQE_WRITE_IMM;
}

static bool has_imm(uint8_t opcode)
{
    return opcode == VROCE_WQE_SEND_IMM || opcode == VROCE_WQE_WRITE_IMM;
}

static uint32_t draw_len(struct flow *f, GRand *r, uint32_t i)
{
    uint32_t max = f->s->p.max_len, len;

    if (f->init.lens) {
        return f->init.lens[i % f->init.num_lens];
    }
    switch (g_rand_int_range(r, 0, 4)) {
    case 0:
        len = g_rand_int_range(r, 0, 9);
        break;
    case 1:
        len = f->mtu * g_rand_int_range(r, 1, 4);
        len += g_rand_int_range(r, -1, 2);
        break;
    default:
        /* As many small ones as large ones. */
        len = g_rand_int(r);
        len >>= g_rand_int_range(r, 12, 30);
    }
    return MIN(len, max);
}

static void draw_op(struct dir *d, GRand *r, uint32_t i)
{
    struct flow *f = d->f;
    struct op *op = &d->ops[i];
    uint32_t kind;

    do {
        kind = g_rand_int_range(r, 0, G_N_ELEMENTS(kind_opcodes));
    } while (!(f->init.kinds & 1u << kind));
    *op = (struct op) {
        .seed = (uint64_t)f->s->p.seed << 32 | f->id << 20 | d->side << 19 | i,
        .recv = VROCE_NONE,
    };
    /* One by one: compilers differ in which draw of an expression is first. */
    op->opcode = kind_opcodes[kind][g_rand_boolean(r)];
    op->len = draw_len(f, r, i);
    op->skew = g_rand_int_range(r, 0, 64);
    op->imm = g_rand_int(r);
    op->recv_room = g_rand_boolean(r) ? 0 : g_rand_int_range(r, 1, 64);
    op->num_sge = g_rand_int_range(r, 1, VROCE_MAX_SGE + 1);
    if (i + 1 == d->num_ops || i % 3 == 2 || g_rand_boolean(r)) {
        op->flags |= VROCE_WQE_SIGNALED;
    }
    if (g_rand_int_range(r, 0, 8) == 0) {
        op->flags |= VROCE_WQE_FENCE;
    }
    if (takes_recv(op->opcode)) {
        op->recv = d->num_recvs;
        d->recv_ops[d->num_recvs++] = i;
        op->flags |= g_rand_boolean(r) ? VROCE_WQE_SOLICITED : 0;
    }
    if (is_atomic(op->opcode)) {
        op->len = 8;
        op->num_sge = 1;
        op->add = g_rand_int(r);
    } else if (op->opcode != VROCE_WQE_READ && op->len <= 128 &&
               g_rand_boolean(r)) {
        op->flags |= VROCE_WQE_INLINE;
    } else if (op->len == 0 && g_rand_boolean(r)) {
        op->num_sge = 0;
    }
}

static void plan(struct dir *d, uint32_t num_ops)
{
    GRand *r = g_rand_new_with_seed(d->f->s->p.seed * 31 + d->f->id * 2 +
                                    d->side);
    uint64_t value = ATOMIC_BASE;

    d->num_ops = num_ops;
    d->ops = g_new0(struct op, num_ops);
    d->recv_ops = g_new0(uint32_t, num_ops);
    for (uint32_t i = 0; i < num_ops; i++) {
        struct op *op = &d->ops[i];

        draw_op(d, r, i);
        if (is_atomic(op->opcode)) {
            op->old = value;
            value = op->opcode == VROCE_WQE_FETCH_ADD ? value + op->add :
                    op->add;
        }
    }
    g_rand_free(r);
}

/* --------------------------------------------------------------- memory */

static uint64_t slot_at(const struct flow *f, uint32_t i)
{
    /* The first page holds the word that atomics work on. */
    return FH_PAGE_SIZE + (i % f->slots) * f->slot_size;
}

static uint64_t data_at(const struct flow *f, const struct dir *d, uint32_t i)
{
    return slot_at(f, i) + GUARD + d->ops[i].skew;
}

static void region_init(struct flow *f, struct region *r, struct node *n,
                        uint32_t access, GRand *rand)
{
    uint64_t len = FH_PAGE_SIZE + f->slots * f->slot_size;
    uint8_t shift = 12 + g_rand_int_range(rand, 0, 5);
    uint8_t levels = g_rand_int_range(rand, 0, 4);
    uint64_t value = htole64(ATOMIC_BASE);

    gmem_init(&r->mem, n->h, len, levels, shift,
              g_rand_int_range(rand, 0, 512) * 8);
    gmem_write(&r->mem, 0, &value, 8);
    drv_mr_create(n->d, &r->mr, &r->mem,
                  IOVA_SKEW + ((uint64_t)f->id << 32) + r->mem.offset, access);
}

static void region_fini(struct region *r)
{
    drv_mr_destroy(&r->mr);
    gmem_fini(&r->mem);
}

/* Expected bytes of a slot around and in the data of op i, in s->want. */
static uint8_t *expected(const struct dir *d, uint32_t i, uint64_t *len)
{
    const struct op *op = &d->ops[i];
    uint8_t *image;

    *len = op->len + 2 * GUARD;
    g_byte_array_set_size(d->f->s->want, *len);
    image = d->f->s->want->data;
    memset(image, 0xee, *len);
    if (is_atomic(op->opcode)) {
        uint64_t old = htole64(op->old);

        memcpy(image + GUARD, &old, 8);
    } else {
        fill_pattern(image + GUARD, op->len, op->seed);
    }
    return image;
}

static void verify(struct dir *d, struct region *r, uint32_t i, const char *who)
{
    uint64_t len, at = data_at(d->f, d, i) - GUARD;
    uint8_t *want = expected(d, i, &len), *have;

    g_byte_array_set_size(d->f->s->have, len);
    have = d->f->s->have->data;
    gmem_read(&r->mem, at, have, len);
    for (uint64_t k = 0; memcmp(want, have, len); k++) {
        if (want[k] != have[k]) {
            sim_fail(d->f->s, "flow %u side %d, request %u (opcode %u, %u "
                     "bytes): byte %lld of the %s's memory is 0x%02x, not "
                     "0x%02x", d->f->id, d->side, i, d->ops[i].opcode,
                     d->ops[i].len, (long long)k - GUARD, who, have[k],
                     want[k]);
        }
    }
}

/* Put the data on the side that it leaves from, and guards on the other. */
static void prepare_memory(struct dir *d, uint32_t i)
{
    const struct op *op = &d->ops[i];
    bool pulls = op->opcode == VROCE_WQE_READ || is_atomic(op->opcode);
    struct region *from = pulls ? &d->dst : &d->src;
    struct region *to = pulls ? &d->src : &d->dst;
    uint64_t len, at = data_at(d->f, d, i) - GUARD;
    uint8_t *image = expected(d, i, &len);

    if (!is_atomic(op->opcode)) {
        gmem_write(&from->mem, at, image, len);
    }
    memset(image, 0xee, len);
    gmem_write(&to->mem, at, image, len);
}

/* ----------------------------------------------------------------- posts */

/* The range as num_sge entries, cut at random but repeatable places. */
static void scatter(struct drv_wr *wr, const struct drv_mr *mr, uint64_t off,
                    uint32_t len, uint32_t num_sge, uint64_t seed)
{
    uint32_t left = len;

    wr->num_sge = num_sge;
    for (uint32_t k = 0; k < num_sge; k++) {
        uint32_t part = left;

        if (k + 1 < num_sge) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            part = left ? (seed >> 33) % (left + 1) / 2 : 0;
        }
        wr->sge[k] = (struct vroce_sge) {
            .addr = mr->iova + off + (len - left), .length = part,
            .lkey = mr->key,
        };
        left -= part;
    }
}

static void post_recv(struct dir *d)
{
    uint32_t i = d->recv_ops[d->recv_posted];
    const struct op *op = &d->ops[i];
    struct drv_qp *qp = &d->f->qp[!d->side];
    struct drv_wr wr = { .wr_id = d->recv_posted };

    if (op->opcode != VROCE_WQE_WRITE_IMM) {
        scatter(&wr, &d->dst.mr, data_at(d->f, d, i), op->len + op->recv_room,
                1 + i % MAX_RECV_SGE, op->seed);
    }
    if (!(qp->srq ? drv_srq_post(qp->srq, &wr) : drv_post_recv(qp, &wr))) {
        sim_fail(d->f->s, "flow %u: the receive queue is full", d->f->id);
    }
    d->recv_posted++;
}

static void flow_unref(void *opaque)
{
    struct flow *f = opaque;

    if (--f->refs == 0) {
        g_free(f);
    }
}

static void late_recv(struct sim *s, void *opaque)
{
    struct dir *d = opaque;

    if (!d->f->closed && d->recv_due > d->recv_posted) {
        post_recv(d);
    }
}

static void late_recv_done(void *opaque)
{
    flow_unref(((struct dir *)opaque)->f);
}

static void prepare(struct dir *d)
{
    struct sim *s = d->f->s;
    const struct op *op = &d->ops[d->prepared];

    prepare_memory(d, d->prepared++);
    if (op->recv == VROCE_NONE) {
        return;
    }
    d->recv_due++;
    if (s->p.recv_delay) {
        d->f->refs++;
        sim_at(s, s->now + s->p.recv_delay * (op->seed % 16) / 16, late_recv, d,
               late_recv_done);
    } else {
        post_recv(d);
    }
}

static bool slot_free(const struct dir *d, uint32_t i)
{
    const struct op *before;

    if (i < d->f->slots) {
        return true;
    }
    before = &d->ops[i - d->f->slots];
    return d->acked > i - d->f->slots &&
           (before->recv == VROCE_NONE || d->received > before->recv);
}

static bool post(struct dir *d, uint32_t i)
{
    struct flow *f = d->f;
    const struct op *op = &d->ops[i];
    uint64_t off = data_at(f, d, i);
    uint8_t data[128];
    struct drv_wr wr = {
        .wr_id = (uint64_t)f->id << 32 | i, .opcode = op->opcode,
        .flags = op->flags, .imm = op->imm, .rkey = d->dst.mr.key,
        .remote_addr = d->dst.mr.iova + off,
    };

    if (op->flags & VROCE_WQE_INLINE) {
        fill_pattern(data, op->len, op->seed);
        wr.inline_data = data;
        wr.inline_len = op->len;
    } else {
        scatter(&wr, &d->src.mr, off, op->len, op->num_sge, op->seed);
    }
    if (is_atomic(op->opcode)) {
        wr.remote_addr = d->dst.mr.iova;
        wr.swap_add = op->add;
        wr.compare = op->old;
    }
    return drv_post_send(&f->qp[d->side], &wr);
}

static void pump(struct dir *d)
{
    struct flow *f = d->f;
    uint32_t before = d->posted;

    while (d->prepared < d->num_ops && slot_free(d, d->prepared)) {
        prepare(d);
    }
    while (d->posted < d->prepared && post(d, d->posted)) {
        d->posted++;
    }
    if (d->posted != before) {
        f->node[d->side]->touched = true;
        drv_ring(&f->qp[d->side]);
    }
}

/* ----------------------------------------------------------- completions */

static void check_cqe(struct flow *f, bool ok, const char *what,
                      const struct vroce_cqe *cqe)
{
    if (!ok) {
        sim_fail(f->s, "flow %u, QP %u: completion with wrong %s (status %u, "
                 "opcode %u, length %u, wr_id 0x%llx)", f->id,
                 le32toh(cqe->qpn), what, cqe->status, cqe->opcode,
                 le32toh(cqe->byte_len),
                 (unsigned long long)le64toh(cqe->wr_id));
    }
}

static uint8_t wc_opcode(uint8_t opcode)
{
    switch (opcode) {
    case VROCE_WQE_WRITE:
    case VROCE_WQE_WRITE_IMM:
        return VROCE_WC_WRITE;
    case VROCE_WQE_READ:
        return VROCE_WC_READ;
    case VROCE_WQE_CMP_SWAP:
        return VROCE_WC_CMP_SWAP;
    case VROCE_WQE_FETCH_ADD:
        return VROCE_WC_FETCH_ADD;
    default:
        return VROCE_WC_SEND;
    }
}

static void verify_acked(struct dir *d, uint32_t i)
{
    switch (d->ops[i].opcode) {
    case VROCE_WQE_WRITE:
    case VROCE_WQE_WRITE_IMM:
        if (d->f->init.type == VROCE_QPT_RC) {
            verify(d, &d->dst, i, "responder");
        }
        break;
    case VROCE_WQE_READ:
    case VROCE_WQE_CMP_SWAP:
    case VROCE_WQE_FETCH_ADD:
        verify(d, &d->src, i, "requester");
        break;
    }
}

static void send_done(struct dir *d, const struct vroce_cqe *cqe)
{
    struct flow *f = d->f;
    uint32_t i = (uint32_t)le64toh(cqe->wr_id);
    const struct op *op;

    check_cqe(f, le64toh(cqe->wr_id) >> 32 == f->id && i >= d->acked &&
              i < d->posted, "order", cqe);
    op = &d->ops[i];
    for (uint32_t k = d->acked; k < i; k++) {
        check_cqe(f, !(d->ops[k].flags & VROCE_WQE_SIGNALED), "predecessor",
                  cqe);
    }
    check_cqe(f, op->flags & VROCE_WQE_SIGNALED, "request", cqe);
    check_cqe(f, cqe->opcode == wc_opcode(op->opcode), "opcode", cqe);
    if (op->opcode == VROCE_WQE_READ || is_atomic(op->opcode)) {
        check_cqe(f, le32toh(cqe->byte_len) == op->len, "length", cqe);
    }
    while (d->acked <= i) {
        verify_acked(d, d->acked++);
    }
}

static void recv_done(struct dir *d, const struct vroce_cqe *cqe)
{
    struct flow *f = d->f;
    const struct op *op;
    uint16_t flags = le16toh(cqe->flags);
    uint32_t i;

    check_cqe(f, le64toh(cqe->wr_id) == d->received &&
              d->received < d->recv_posted, "order", cqe);
    i = d->recv_ops[d->received];
    op = &d->ops[i];
    check_cqe(f, cqe->opcode == (op->opcode == VROCE_WQE_WRITE_IMM ?
                                 VROCE_WC_RECV_WRITE_IMM : VROCE_WC_RECV),
              "opcode", cqe);
    check_cqe(f, le32toh(cqe->byte_len) == op->len, "length", cqe);
    check_cqe(f, !(flags & VROCE_CQE_IMM) == !has_imm(op->opcode), "flags",
              cqe);
    check_cqe(f, !(flags & VROCE_CQE_SOLICITED) ==
              !(op->flags & VROCE_WQE_SOLICITED), "flags", cqe);
    check_cqe(f, !has_imm(op->opcode) || cqe->imm == op->imm, "immediate", cqe);
    verify(d, &d->dst, i, "receiver");
    d->received++;
}

static bool dir_done(const struct dir *d)
{
    return d->acked == d->num_ops && d->received == d->num_recvs;
}

static void digest_cqe(uint64_t *digest, const struct vroce_cqe *cqe)
{
    const uint64_t words[] = {
        cqe->wr_id, cqe->byte_len, cqe->opcode, cqe->status, cqe->rule,
        cqe->flags & VROCE_CQE_IMM ? cqe->imm : 0, cqe->flags, cqe->wqe_end,
    };

    *digest = digest_add(*digest, words, sizeof(words));
}

bool flow_cqe(struct flow *f, struct node *n, const struct vroce_cqe *cqe)
{
    uint32_t qpn = le32toh(cqe->qpn);
    bool recv = cqe->opcode >= VROCE_WC_RECV;
    int side = n == f->node[0] && qpn == f->qp[0].qpn ? 0 : 1;
    struct dir *d = &f->dir[recv ? !side : side];

    if (f->closed || n != f->node[side] || qpn != f->qp[side].qpn) {
        return false;
    }
    g_assert_cmpuint(cqe->status, <, G_N_ELEMENTS(f->statuses[0]));
    f->statuses[side][cqe->status]++;
    digest_cqe(&f->cqe_digest[side][recv], cqe);
    if (cqe->status != VROCE_WCS_SUCCESS) {
        if (!f->first_error[side]) {
            f->first_error[side] = f->s->now;
        }
        check_cqe(f, f->errors, "status", cqe);
        return true;
    }
    if (recv) {
        recv_done(d, cqe);
    } else {
        send_done(d, cqe);
    }
    if (f->open && dir_done(&f->dir[0]) && dir_done(&f->dir[1])) {
        f->open = false;
        f->s->flows_open--;
    } else if (!f->errors || !f->first_error[d->side]) {
        pump(d);
    }
    return true;
}

/* ------------------------------------------------------------------ life */

static void connect_side(struct flow *f, int side, uint32_t gid_index,
                         const uint32_t psn[2])
{
    struct node *peer = f->node[!side];
    struct drv_conn c;

    drv_conn_init(&c);
    c.path_mtu = f->init.path_mtu;
    c.dest_qpn = f->qp[!side].qpn;
    c.sq_psn = psn[side];
    c.rq_psn = psn[!side];
    c.timeout = f->s->p.timeout;
    c.retry_cnt = f->s->p.retry_cnt;
    c.max_rd_atomic = f->init.max_rd_atomic;
    c.max_dest_rd_atomic = f->init.max_rd_atomic;
    drv_av(peer->d, peer->id + 1, gid_index, &c.av);
    drv_qp_connect(&f->qp[side], &c);
}

static void side_init(struct flow *f, int side, GRand *r)
{
    struct node *n = f->node[side];
    const struct drv_qp_init init = {
        .type = f->init.type, .sq_log = SQ_LOG, .rq_log = RQ_LOG,
        .max_recv_sge = MAX_RECV_SGE, .scq = &n->cq, .rcq = &n->cq,
        .srq = f->init.srq ? &f->srq[side] : NULL,
    };
    struct dir *d = &f->dir[side];

    d->f = f;
    d->side = side;
    if (init.srq) {
        drv_srq_create(n->d, &f->srq[side], RQ_LOG, MAX_RECV_SGE, 0);
    }
    drv_qp_create(n->d, &f->qp[side], &init);
    region_init(f, &d->src, n, VROCE_ACCESS_LOCAL_WRITE, r);
    region_init(f, &d->dst, f->node[!side],
                VROCE_ACCESS_LOCAL_WRITE | VROCE_ACCESS_REMOTE_WRITE |
                VROCE_ACCESS_REMOTE_READ | VROCE_ACCESS_REMOTE_ATOMIC, r);
}

struct flow *flow_new(struct sim *s, const struct flow_init *init)
{
    struct flow *f = g_new0(struct flow, 1);
    GRand *r = g_rand_new_with_seed(s->p.seed * 7919 + s->flows->len);
    uint32_t psn[2], max = s->p.max_len;
    uint32_t gid_index = s->p.ipv6 || g_rand_boolean(r);

    f->s = s;
    f->init = *init;
    f->init.srq |= s->p.srq;
    f->id = s->flows->len;
    f->refs = 1;
    f->node[0] = &s->node[init->a];
    f->node[1] = &s->node[init->b];
    if (!f->init.path_mtu) {
        f->init.path_mtu = s->p.path_mtu ? s->p.path_mtu :
                           g_rand_int_range(r, 1, 6);
    }
    if (!f->init.max_rd_atomic) {
        f->init.max_rd_atomic = g_rand_int_range(r, 1, 17);
    }
    f->mtu = 128u << f->init.path_mtu;
    for (uint32_t i = 0; i < init->num_lens; i++) {
        max = MAX(max, init->lens[i]);
    }
    f->slots = MIN(max > 65536 ? 8 : 32, init->ops ? init->ops : s->p.ops);
    f->slot_size = (max + 4 * GUARD + 63) & ~63ull;
    for (int side = 0; side < 2; side++) {
        psn[side] = s->p.psn == VROCE_NONE ? g_rand_int(r) & VR_PSN_MASK :
                    s->p.psn;
        side_init(f, side, r);
    }
    for (int side = 0; side < 2; side++) {
        connect_side(f, side, gid_index, psn);
        plan(&f->dir[side], side && init->one_way ? 0 :
             init->ops ? init->ops : s->p.ops);
    }
    g_rand_free(r);
    g_ptr_array_add(s->flows, f);
    g_ptr_array_add(f->node[0]->flows, f);
    if (init->a != init->b) {
        g_ptr_array_add(f->node[1]->flows, f);
    }
    return f;
}

void flow_start(struct flow *f)
{
    f->open = true;
    f->s->flows_open++;
    /* Receives of both sides first: a peer may be quick. */
    pump(&f->dir[0]);
    pump(&f->dir[1]);
}

void flow_free(struct flow *f)
{
    for (int side = 0; side < 2; side++) {
        drv_qp_destroy(&f->qp[side]);
        if (f->init.srq) {
            drv_srq_destroy(&f->srq[side]);
        }
    }
    for (int side = 0; side < 2; side++) {
        struct dir *d = &f->dir[side];

        region_fini(&d->src);
        region_fini(&d->dst);
        g_free(d->ops);
        g_free(d->recv_ops);
    }
    f->closed = true;
    flow_unref(f);
}

bool flows_done(struct sim *s)
{
    return !s->flows_open;
}

static uint64_t region_digest(uint64_t digest, struct region *r)
{
    uint8_t part[4096];

    for (uint64_t off = 0; off < r->mem.len; off += sizeof(part)) {
        uint64_t len = MIN(sizeof(part), r->mem.len - off);

        gmem_read(&r->mem, off, part, len);
        digest = digest_add(digest, part, len);
    }
    return digest;
}

uint64_t flow_digest(struct flow *f)
{
    uint64_t digest = digest_add(f->id, f->cqe_digest, sizeof(f->cqe_digest));

    for (int side = 0; side < 2; side++) {
        digest = region_digest(digest, &f->dir[side].src);
        digest = region_digest(digest, &f->dir[side].dst);
    }
    return digest;
}

struct drv_qp *flow_qp(struct flow *f, int side)
{
    return &f->qp[side];
}

void flow_expect_errors(struct flow *f)
{
    f->errors = true;
}

uint32_t flow_status_count(struct flow *f, int side, uint8_t status)
{
    return f->statuses[side][status];
}

uint64_t flow_first_error(struct flow *f, int side)
{
    return f->first_error[side];
}
