/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <endian.h>
#include <string.h>

#include "driver.h"

/* ------------------------------------------------------- guest memory */

/* Page entries or pointers, n of them, in one piece of the guest's memory. */
static uint64_t list_write(struct gmem *m, const uint64_t *entries, uint64_t n,
                           uint64_t flags)
{
    uint64_t addr = fh_alloc(m->h, n * 8, FH_PAGE_SIZE);

    for (uint64_t i = 0; i < n; i++) {
        uint64_t entry = htole64(entries[i] | flags);

        memcpy(fh_ptr(m->h, addr + i * 8, 8), &entry, 8);
    }
    g_array_append_val(m->lists, addr);
    return addr;
}

/* Pointers to pages of 512 entries each; returns the pages' addresses. */
static uint64_t *list_level(struct gmem *m, const uint64_t *entries,
                            uint64_t *n, uint64_t flags)
{
    uint64_t num = (*n + VROCE_PTES_PER_PAGE - 1) / VROCE_PTES_PER_PAGE;
    uint64_t *pages = g_new(uint64_t, num);

    for (uint64_t i = 0; i < num; i++) {
        uint64_t first = i * VROCE_PTES_PER_PAGE;

        pages[i] = list_write(m, entries + first,
                              MIN(VROCE_PTES_PER_PAGE, *n - first), flags);
    }
    *n = num;
    return pages;
}

static uint64_t list_build(struct gmem *m)
{
    uint64_t flags = VROCE_PTE_VALID | VROCE_PTE_WRITE;
    uint64_t n = m->npages, addr;
    uint64_t *entries = g_memdup2(m->pages, n * sizeof(*entries));

    for (int level = m->levels; level > 1; level--) {
        uint64_t *above = list_level(m, entries, &n, flags);

        g_free(entries);
        entries = above;
        flags = VROCE_PTE_VALID;
    }
    g_assert_true(m->levels == 1 || n <= VROCE_PTES_PER_PAGE);
    addr = list_write(m, entries, n, flags);
    g_free(entries);
    return addr;
}

void gmem_init(struct gmem *m, struct fakehost *h, uint64_t len,
               uint8_t levels, uint8_t page_shift, uint32_t offset)
{
    uint64_t page = 1ull << page_shift;

    *m = (struct gmem) {
        .h = h, .len = len, .levels = levels, .page_shift = page_shift,
        .offset = levels ? offset : 0,
        .lists = g_array_new(false, false, sizeof(uint64_t)),
    };
    if (!levels) {
        m->npages = 1;
        m->pages = g_new(uint64_t, 1);
        m->pages[0] = fh_alloc(h, len, FH_PAGE_SIZE);
        m->buf.addr = htole64(m->pages[0]);
    } else {
        m->npages = MAX(1, (offset + len + page - 1) / page);
        m->pages = g_new(uint64_t, m->npages);
        /* From the end, so that neighbours in the list are none on the bus. */
        for (uint64_t i = m->npages; i-- > 0;) {
            m->pages[i] = fh_alloc(h, page, page);
        }
        m->buf.addr = htole64(list_build(m));
    }
    m->buf.length = htole64(len);
    m->buf.offset = htole32(m->offset);
    m->buf.page_shift = levels ? page_shift : 0;
    m->buf.levels = levels;
}

void gmem_fini(struct gmem *m)
{
    uint64_t page = m->levels ? 1ull << m->page_shift : m->len;

    for (uint64_t i = 0; i < m->npages; i++) {
        fh_release(m->h, m->pages[i], page);
    }
    for (uint32_t i = 0; i < m->lists->len; i++) {
        fh_release(m->h, g_array_index(m->lists, uint64_t, i), FH_PAGE_SIZE);
    }
    g_array_free(m->lists, true);
    g_free(m->pages);
    m->pages = NULL;
}

void *gmem_at(struct gmem *m, uint64_t off, uint64_t len)
{
    uint64_t at = m->offset + off;

    g_assert_cmpuint(off + len, <=, m->len);
    if (!m->levels) {
        return fh_ptr(m->h, m->pages[0] + off, len);
    }
    return fh_ptr(m->h, m->pages[at >> m->page_shift] +
                  (at & ((1ull << m->page_shift) - 1)), len);
}

/* Bytes from off on that lie in the same page. */
static uint64_t gmem_run(const struct gmem *m, uint64_t off, uint64_t len)
{
    uint64_t page = 1ull << m->page_shift;

    return m->levels ? MIN(len, page - ((m->offset + off) & (page - 1))) : len;
}

void gmem_write(struct gmem *m, uint64_t off, const void *data, uint64_t len)
{
    while (len) {
        uint64_t run = gmem_run(m, off, len);

        memcpy(gmem_at(m, off, run), data, run);
        data = (const uint8_t *)data + run;
        off += run;
        len -= run;
    }
}

void gmem_read(struct gmem *m, uint64_t off, void *data, uint64_t len)
{
    while (len) {
        uint64_t run = gmem_run(m, off, len);

        memcpy(data, gmem_at(m, off, run), run);
        data = (uint8_t *)data + run;
        off += run;
        len -= run;
    }
}

/* ------------------------------------------------------------- device */

int drv_try_create(struct drv *d, uint8_t opcode, const void *in,
                   uint32_t in_len, uint32_t *number, uint16_t *rule)
{
    struct vroce_number out = { 0 };
    int status = fh_command(d->h, opcode, in, in_len, &out, sizeof(out), rule);

    *number = status == VROCE_OK ? le32toh(out.number) : VROCE_NONE;
    return status;
}

static uint32_t create(struct drv *d, uint8_t opcode, const void *in,
                       uint32_t in_len)
{
    uint32_t number;
    uint16_t rule;
    int status = drv_try_create(d, opcode, in, in_len, &number, &rule);

    if (status != VROCE_OK) {
        g_error("command %s: status %d, rule %s", vr_command_name(opcode),
                status, vr_rule_name(rule));
    }
    return number;
}

int drv_number(struct drv *d, uint8_t opcode, uint32_t number)
{
    struct vroce_number in = { .number = htole32(number) };

    if (d->gone) {
        return VROCE_OK;
    }
    return fh_command(d->h, opcode, &in, sizeof(in), NULL, 0, NULL);
}

void drv_mac(uint32_t node, uint8_t mac[6])
{
    const uint8_t base[6] = { 0x52, 0x54, 0x00, 0x77, node >> 8, node };

    memcpy(mac, base, 6);
}

static void set_gid(struct drv *d, uint32_t node, uint32_t index)
{
    struct vroce_set_gid_in in = {
        .vlan = htole16(VROCE_NO_VLAN), .index = htole32(index), .valid = 1,
    };

    drv_mac(node, in.mac);
    memcpy(in.gid, d->gid[index], 16);
    g_assert_cmpint(fh_command(d->h, VROCE_CMD_SET_GID, &in, sizeof(in),
                               NULL, 0, NULL), ==, VROCE_OK);
}

struct drv *drv_new(struct fakehost *h, uint32_t node)
{
    struct drv *d = g_new0(struct drv, 1);
    const uint8_t gid4[16] = {
        [10] = 0xff, 0xff, 10, 77, node >> 8, node
    };
    const uint8_t gid6[16] = { 0xfd, 0x77, [14] = node >> 8, node };

    d->h = h;
    d->qps = g_hash_table_new(NULL, NULL);
    d->pdn = create(d, VROCE_CMD_ALLOC_PD, NULL, 0);
    memcpy(d->gid[0], gid4, 16);
    memcpy(d->gid[1], gid6, 16);
    set_gid(d, node, 0);
    set_gid(d, node, 1);
    return d;
}

void drv_free(struct drv *d)
{
    g_assert_cmpuint(g_hash_table_size(d->qps), ==, 0);
    g_assert_cmpint(drv_number(d, VROCE_CMD_FREE_PD, d->pdn), ==, VROCE_OK);
    g_hash_table_unref(d->qps);
    g_free(d);
}

void drv_av(const struct drv *peer, uint32_t node, uint32_t index,
            struct vroce_av *av)
{
    *av = (struct vroce_av) {
        .sgid_index = htole16(index), .hop_limit = 64,
    };
    memcpy(av->dgid, peer->gid[index], 16);
    drv_mac(node, av->dmac);
}

/* ------------------------------------------------------------- events */

void drv_eq_create(struct drv *d, struct drv_eq *eq, uint8_t log_size,
                   uint32_t vector, bool async)
{
    struct vroce_create_eq_in in = {
        .vector = htole32(vector), .log_size = log_size,
        .flags = async ? VROCE_EQ_ASYNC : 0,
    };

    *eq = (struct drv_eq) { .d = d, .log_size = log_size };
    gmem_init(&eq->mem, d->h, sizeof(struct vroce_eqe) << log_size, 1, 12, 0);
    in.buf = eq->mem.buf;
    eq->eqn = create(d, VROCE_CMD_CREATE_EQ, &in, sizeof(in));
}

void drv_eq_destroy(struct drv_eq *eq)
{
    g_assert_cmpint(drv_number(eq->d, VROCE_CMD_DESTROY_EQ, eq->eqn), ==,
                    VROCE_OK);
    gmem_fini(&eq->mem);
}

void drv_eq_arm(struct drv_eq *eq)
{
    fh_doorbell(eq->d->h, 0,
                vroce_doorbell(VROCE_DB_EQ_ARM, eq->eqn, eq->consumer));
}

/* Has the device written entry `index` of a ring of 1 << log_size? */
static bool phase_is(uint32_t phase, uint32_t index, uint8_t log_size)
{
    return (le32toh(phase) & 1) == !(index >> log_size & 1);
}

bool drv_eq_poll(struct drv_eq *eq, struct vroce_eqe *eqe)
{
    uint32_t slot = eq->consumer & ((1u << eq->log_size) - 1);

    gmem_read(&eq->mem, slot * sizeof(*eqe), eqe, sizeof(*eqe));
    if (!phase_is(eqe->phase, eq->consumer, eq->log_size)) {
        return false;
    }
    eq->consumer++;
    return true;
}

/* -------------------------------------------------------- completions */

void drv_cq_create(struct drv *d, struct drv_cq *cq, uint8_t log_size,
                   const struct drv_eq *eq)
{
    struct vroce_create_cq_in in = {
        .context = htole32(d->context),
        .eqn = htole32(eq ? eq->eqn : VROCE_NONE), .log_size = log_size,
    };

    *cq = (struct drv_cq) { .d = d, .log_size = log_size };
    cq->rec_off = sizeof(struct vroce_cqe) << log_size;
    gmem_init(&cq->mem, d->h, cq->rec_off + sizeof(struct vroce_db_record),
              1, 12, 0);
    in.buf = cq->mem.buf;
    in.rec_off = htole32(cq->rec_off);
    cq->cqn = create(d, VROCE_CMD_CREATE_CQ, &in, sizeof(in));
}

void drv_cq_destroy(struct drv_cq *cq)
{
    g_assert_cmpint(drv_number(cq->d, VROCE_CMD_DESTROY_CQ, cq->cqn), ==,
                    VROCE_OK);
    gmem_fini(&cq->mem);
}

void drv_cq_arm(struct drv_cq *cq, bool solicited)
{
    fh_doorbell(cq->d->h, cq->d->context,
                vroce_doorbell(solicited ? VROCE_DB_CQ_ARM_SOLICITED :
                               VROCE_DB_CQ_ARM, cq->cqn, cq->consumer));
}

static void record_write(struct gmem *m, uint32_t off, uint32_t index)
{
    struct vroce_db_record rec = { .index = htole32(index) };

    gmem_write(m, off, &rec, sizeof(rec));
}

bool drv_poll(struct drv_cq *cq, struct vroce_cqe *cqe)
{
    uint32_t slot = cq->consumer & ((1u << cq->log_size) - 1);
    struct drv_qp *qp;

    gmem_read(&cq->mem, slot * sizeof(*cqe), cqe, sizeof(*cqe));
    if (!phase_is(cqe->phase, cq->consumer, cq->log_size)) {
        return false;
    }
    cq->consumer++;
    record_write(&cq->mem, cq->rec_off, cq->consumer);
    qp = g_hash_table_lookup(cq->d->qps,
                             GUINT_TO_POINTER(le32toh(cqe->qpn)));
    if (qp && cqe->opcode < VROCE_WC_RECV) {
        uint32_t done = le32toh(cqe->wqe_end) - qp->sq_consumer;

        g_assert_cmpuint(done, <=, qp->sq_producer - qp->sq_consumer);
        qp->sq_consumer += done;
    } else if (qp) {
        uint32_t *consumer = qp->srq ? &qp->srq->consumer : &qp->rq_consumer;
        uint32_t producer = qp->srq ? qp->srq->producer : qp->rq_producer;

        g_assert_cmpuint(*consumer, !=, producer);
        (*consumer)++;
    }
    return true;
}

void drv_drain(struct drv_cq *cq)
{
    struct vroce_cqe cqe;

    while (drv_poll(cq, &cqe)) {
        continue;
    }
}

/* ------------------------------------------------------------ regions */

int drv_try_mr_create(struct drv *d, struct drv_mr *mr, struct gmem *mem,
                      uint64_t iova, uint32_t access, uint16_t *rule)
{
    struct vroce_create_mr_in in = {
        .buf = mem->buf, .iova = htole64(iova), .pdn = htole32(d->pdn),
        .access = htole32(access), .kind = VROCE_MR_MEM,
    };

    *mr = (struct drv_mr) { .d = d, .mem = mem, .iova = iova };
    return drv_try_create(d, VROCE_CMD_CREATE_MR, &in, sizeof(in), &mr->key,
                          rule);
}

void drv_mr_create(struct drv *d, struct drv_mr *mr, struct gmem *mem,
                   uint64_t iova, uint32_t access)
{
    uint16_t rule;
    int status = drv_try_mr_create(d, mr, mem, iova, access, &rule);

    if (status != VROCE_OK) {
        g_error("CREATE_MR: status %d, rule %s", status, vr_rule_name(rule));
    }
}

void drv_mr_destroy(struct drv_mr *mr)
{
    g_assert_cmpint(drv_number(mr->d, VROCE_CMD_DESTROY_MR, mr->key), ==,
                    VROCE_OK);
}

/* ----------------------------------------------------- receive queues */

/* The smallest stride that holds max_sge entries. */
static uint8_t stride_for(uint8_t max_sge)
{
    uint8_t log = 5;

    while (sizeof(struct vroce_rwqe) + max_sge * sizeof(struct vroce_sge) >
           1u << log) {
        log++;
    }
    return log;
}

static void sges_write(struct gmem *m, uint64_t off, const struct drv_wr *wr)
{
    for (int i = 0; i < wr->num_sge; i++) {
        struct vroce_sge sge = {
            .addr = htole64(wr->sge[i].addr),
            .length = htole32(wr->sge[i].length),
            .lkey = htole32(wr->sge[i].lkey),
        };

        gmem_write(m, off + i * sizeof(sge), &sge, sizeof(sge));
    }
}

static void rwqe_write(struct gmem *m, uint64_t off, uint32_t index,
                       const struct drv_wr *wr)
{
    struct vroce_rwqe rwqe = {
        .wr_id = htole64(wr->wr_id), .num_sge = wr->num_sge,
        .index = htole16(index),
    };

    gmem_write(m, off, &rwqe, sizeof(rwqe));
    sges_write(m, off + sizeof(rwqe), wr);
}

void drv_srq_create(struct drv *d, struct drv_srq *srq, uint8_t log_entries,
                    uint8_t max_sge, uint32_t limit)
{
    struct vroce_create_srq_in in = {
        .pdn = htole32(d->pdn), .log_entries = log_entries,
        .log_stride = stride_for(max_sge), .limit = htole32(limit),
    };

    *srq = (struct drv_srq) {
        .d = d, .log_entries = log_entries, .log_stride = in.log_stride,
        .rec_off = 1u << (log_entries + in.log_stride),
    };
    gmem_init(&srq->mem, d->h, srq->rec_off + sizeof(struct vroce_db_record),
              1, 12, 0);
    in.buf = srq->mem.buf;
    in.rec_off = htole32(srq->rec_off);
    srq->srqn = create(d, VROCE_CMD_CREATE_SRQ, &in, sizeof(in));
}

void drv_srq_destroy(struct drv_srq *srq)
{
    g_assert_cmpint(drv_number(srq->d, VROCE_CMD_DESTROY_SRQ, srq->srqn), ==,
                    VROCE_OK);
    gmem_fini(&srq->mem);
}

bool drv_srq_post(struct drv_srq *srq, const struct drv_wr *wr)
{
    uint32_t slot = srq->producer & ((1u << srq->log_entries) - 1);

    if (srq->producer - srq->consumer == 1u << srq->log_entries) {
        return false;
    }
    rwqe_write(&srq->mem, (uint64_t)slot << srq->log_stride, srq->producer, wr);
    record_write(&srq->mem, srq->rec_off, ++srq->producer);
    return true;
}

bool drv_post_recv(struct drv_qp *qp, const struct drv_wr *wr)
{
    uint32_t slot = qp->rq_producer & ((1u << qp->rq_log) - 1);

    if (qp->rq_producer - qp->rq_consumer == 1u << qp->rq_log) {
        return false;
    }
    rwqe_write(&qp->mem, qp->rq_off + ((uint64_t)slot << qp->rq_stride),
               qp->rq_producer, wr);
    record_write(&qp->mem, qp->rec_off, ++qp->rq_producer);
    return true;
}

/* -------------------------------------------------------- queue pairs */

void drv_qp_create(struct drv *d, struct drv_qp *qp,
                   const struct drv_qp_init *init)
{
    bool has_rq = init->rq_log != VROCE_NO_QUEUE && !init->srq;
    struct vroce_create_qp_in in = {
        .context = htole32(d->context), .pdn = htole32(d->pdn),
        .send_cqn = htole32(init->scq->cqn),
        .recv_cqn = htole32(init->rcq->cqn),
        .srqn = htole32(init->srq ? init->srq->srqn : VROCE_NONE),
        .type = init->type, .sq_log_units = init->sq_log,
        .rq_log_entries = has_rq ? init->rq_log : VROCE_NO_QUEUE,
        .rq_log_stride = stride_for(init->max_recv_sge),
    };
    uint32_t end = 0;

    *qp = (struct drv_qp) {
        .d = d, .scq = init->scq, .rcq = init->rcq, .srq = init->srq,
        .type = init->type, .sq_log = init->sq_log, .rq_log = init->rq_log,
        .rq_stride = in.rq_log_stride,
    };
    if (init->sq_log != VROCE_NO_QUEUE) {
        end += VROCE_SQ_UNIT << init->sq_log;
    }
    qp->rq_off = end;
    if (has_rq) {
        end += 1u << (init->rq_log + qp->rq_stride);
    }
    qp->rec_off = end;
    gmem_init(&qp->mem, d->h, end + sizeof(struct vroce_db_record), 1, 12, 0);
    in.buf = qp->mem.buf;
    in.rq_off = htole32(qp->rq_off);
    in.rec_off = htole32(qp->rec_off);
    qp->qpn = create(d, VROCE_CMD_CREATE_QP, &in, sizeof(in));
    g_hash_table_insert(d->qps, GUINT_TO_POINTER(qp->qpn), qp);
}

void drv_qp_destroy(struct drv_qp *qp)
{
    g_assert_cmpint(drv_number(qp->d, VROCE_CMD_DESTROY_QP, qp->qpn), ==,
                    VROCE_OK);
    g_hash_table_remove(qp->d->qps, GUINT_TO_POINTER(qp->qpn));
    gmem_fini(&qp->mem);
}

void drv_conn_init(struct drv_conn *c)
{
    *c = (struct drv_conn) {
        .path_mtu = 3, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
        .min_rnr_timer = 12, .max_rd_atomic = 16, .max_dest_rd_atomic = 16,
        .access = VROCE_ACCESS_LOCAL_WRITE | VROCE_ACCESS_REMOTE_WRITE |
                  VROCE_ACCESS_REMOTE_READ | VROCE_ACCESS_REMOTE_ATOMIC,
    };
}

static uint32_t attr_mask(uint8_t type, uint8_t state)
{
    bool connected = type == VROCE_QPT_RC || type == VROCE_QPT_UC;
    bool rc = type == VROCE_QPT_RC;

    switch (state) {
    case VROCE_QPS_INIT:
        if (type == VROCE_QPT_ETH) {
            return VROCE_QP_STATE | VROCE_QP_PORT;
        }
        return VROCE_QP_STATE | VROCE_QP_PKEY_INDEX | VROCE_QP_PORT |
               (connected ? VROCE_QP_ACCESS_FLAGS : VROCE_QP_QKEY);
    case VROCE_QPS_RTR:
        return VROCE_QP_STATE |
               (connected ? VROCE_QP_AV | VROCE_QP_PATH_MTU |
                            VROCE_QP_DEST_QPN | VROCE_QP_RQ_PSN : 0) |
               (rc ? VROCE_QP_MAX_DEST_RD_ATOMIC | VROCE_QP_MIN_RNR_TIMER : 0);
    case VROCE_QPS_RTS:
        return VROCE_QP_STATE |
               (type != VROCE_QPT_ETH ? VROCE_QP_SQ_PSN : 0) |
               (rc ? VROCE_QP_TIMEOUT | VROCE_QP_RETRY_CNT |
                     VROCE_QP_RNR_RETRY | VROCE_QP_MAX_RD_ATOMIC : 0);
    default:
        return VROCE_QP_STATE;
    }
}

int drv_try_modify(struct drv_qp *qp, uint8_t state, const struct drv_conn *c,
                   uint16_t *rule)
{
    struct vroce_modify_qp_in in = {
        .qpn = htole32(qp->qpn),
        .attr_mask = htole32(attr_mask(qp->type, state)),
        .attr = {
            .state = state, .path_mtu = c->path_mtu, .port = 1,
            .timeout = c->timeout, .retry_cnt = c->retry_cnt,
            .rnr_retry = c->rnr_retry, .min_rnr_timer = c->min_rnr_timer,
            .max_rd_atomic = c->max_rd_atomic,
            .max_dest_rd_atomic = c->max_dest_rd_atomic,
            .access_flags = htole32(c->access), .qkey = htole32(c->qkey),
            .rq_psn = htole32(c->rq_psn), .sq_psn = htole32(c->sq_psn),
            .dest_qpn = htole32(c->dest_qpn), .av = c->av,
        },
    };
    int status = fh_command(qp->d->h, VROCE_CMD_MODIFY_QP, &in, sizeof(in),
                            NULL, 0, rule);

    if (status == VROCE_OK && state == VROCE_QPS_RESET) {
        qp->sq_producer = qp->sq_consumer = 0;
        qp->rq_producer = qp->rq_consumer = 0;
        if (!qp->srq) {
            record_write(&qp->mem, qp->rec_off, 0);
        }
    }
    return status;
}

int drv_try_restart(struct drv_qp *qp)
{
    const struct vroce_modify_qp_in in = {
        .qpn = htole32(qp->qpn), .attr_mask = htole32(VROCE_QP_STATE),
        .attr.state = VROCE_QPS_RTS,
    };

    return fh_command(qp->d->h, VROCE_CMD_MODIFY_QP, &in, sizeof(in), NULL, 0,
                      NULL);
}

void drv_qp_connect(struct drv_qp *qp, const struct drv_conn *c)
{
    for (int state = VROCE_QPS_INIT; state <= VROCE_QPS_RTS; state++) {
        uint16_t rule;
        int status = drv_try_modify(qp, state, c, &rule);

        if (status != VROCE_OK) {
            g_error("MODIFY_QP to %s: status %d, rule %s",
                    vr_qp_state_name(state), status, vr_rule_name(rule));
        }
    }
}

/* One round of the hash that the engine takes of a WQE: no secret. */
static uint64_t hash_round(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15ull;
    return h ^ h >> 29;
}

void drv_same_hash(uint64_t to[8], const uint64_t from[8])
{
    uint64_t a = 8, b = 8;      /* words in it */

    for (int i = 0; i < 7; i++) {
        a = hash_round(a, from[i]);
        b = hash_round(b, to[i]);
    }
    to[7] = from[7] ^ a ^ b;
}

void drv_qp_connect_pair(struct drv_qp qp[2], uint32_t node)
{
    struct drv_conn c;

    drv_conn_init(&c);
    drv_av(qp->d, node, 0, &c.av);
    for (int i = 0; i < 2; i++) {
        c.dest_qpn = qp[!i].qpn;
        drv_qp_connect(&qp[i], &c);
    }
}

void drv_end_init(struct drv_end *end, uint32_t node, uint64_t iova,
                  uint64_t len)
{
    const struct drv_qp_init init = {
        .type = VROCE_QPT_RC, .sq_log = 5, .rq_log = 5, .max_recv_sge = 1,
        .scq = &end->cq, .rcq = &end->cq,
    };

    end->h = fh_new(NULL, node);
    end->d = drv_new(end->h, node);
    drv_cq_create(end->d, &end->cq, 8, NULL);
    gmem_init(&end->mem, end->h, len, 1, 12, 0);
    drv_mr_create(end->d, &end->mr, &end->mem, iova,
                  VROCE_ACCESS_LOCAL_WRITE | VROCE_ACCESS_REMOTE_WRITE |
                  VROCE_ACCESS_REMOTE_READ | VROCE_ACCESS_REMOTE_ATOMIC);
    drv_qp_create(end->d, &end->qp, &init);
}

void drv_end_connect_out(struct drv_end *end, uint32_t peer_qpn, uint32_t psn,
                         uint8_t timeout)
{
    struct drv_conn c;

    drv_conn_init(&c);
    drv_av(end->d, 1, 0, &c.av);
    c.av.dgid[15] ^= 0x40;      /* no node of ours */
    c.dest_qpn = peer_qpn;
    c.sq_psn = c.rq_psn = psn;
    c.timeout = timeout;
    drv_qp_connect(&end->qp, &c);
}

void drv_end_fini(struct drv_end *end)
{
    drv_qp_destroy(&end->qp);
    drv_mr_destroy(&end->mr);
    gmem_fini(&end->mem);
    drv_cq_destroy(&end->cq);
    drv_free(end->d);
    fh_free(end->h);
}

/* The segment behind the control segment; returns its length. */
static uint32_t segment(const struct drv_qp *qp, const struct drv_wr *wr,
                        uint8_t *to)
{
    const struct vroce_wqe_rdma rdma = {
        .remote_addr = htole64(wr->remote_addr), .rkey = htole32(wr->rkey),
    };
    const struct vroce_wqe_atomic atomic = {
        .remote_addr = htole64(wr->remote_addr), .rkey = htole32(wr->rkey),
        .swap_add = htole64(wr->swap_add), .compare = htole64(wr->compare),
    };
    const struct vroce_wqe_ud ud = {
        .av = wr->av, .dest_qpn = htole32(wr->dest_qpn),
        .qkey = htole32(wr->qkey),
    };

    switch (wr->opcode) {
    case VROCE_WQE_WRITE:
    case VROCE_WQE_WRITE_IMM:
    case VROCE_WQE_READ:
        memcpy(to, &rdma, sizeof(rdma));
        return sizeof(rdma);
    case VROCE_WQE_CMP_SWAP:
    case VROCE_WQE_FETCH_ADD:
        memcpy(to, &atomic, sizeof(atomic));
        return sizeof(atomic);
    case VROCE_WQE_SEND:
    case VROCE_WQE_SEND_IMM:
        if (qp->type == VROCE_QPT_UD || qp->type == VROCE_QPT_GSI) {
            memcpy(to, &ud, sizeof(ud));
            return sizeof(ud);
        }
        return 0;
    default:
        return 0;
    }
}

bool drv_post_send(struct drv_qp *qp, const struct drv_wr *wr)
{
    uint8_t wqe[VROCE_MAX_WQE_UNITS * VROCE_SQ_UNIT] = { 0 };
    bool is_inline = wr->flags & VROCE_WQE_INLINE;
    uint32_t mask = (1u << qp->sq_log) - 1, units;
    uint32_t len = sizeof(struct vroce_wqe_ctrl);
    struct vroce_wqe_ctrl ctrl = {
        .opcode = wr->opcode, .flags = wr->flags,
        .num_sge = is_inline ? 0 : wr->num_sge,
        .index = htole16(qp->sq_producer),
        .inline_len = htole16(is_inline ? wr->inline_len : 0),
        .imm = wr->imm, .inv_key = htole32(wr->inv_key),
        .wr_id = htole64(wr->wr_id),
    };

    len += segment(qp, wr, wqe + len);
    if (is_inline) {
        g_assert_cmpuint(len + wr->inline_len, <=, sizeof(wqe));
        if (wr->inline_len) {
            memcpy(wqe + len, wr->inline_data, wr->inline_len);
        }
        len += wr->inline_len;
    } else {
        for (int i = 0; i < wr->num_sge; i++) {
            struct vroce_sge sge = {
                .addr = htole64(wr->sge[i].addr),
                .length = htole32(wr->sge[i].length),
                .lkey = htole32(wr->sge[i].lkey),
            };

            memcpy(wqe + len, &sge, sizeof(sge));
            len += sizeof(sge);
        }
    }
    units = (len + VROCE_SQ_UNIT - 1) / VROCE_SQ_UNIT;
    if (qp->sq_producer + units - qp->sq_consumer > mask + 1) {
        return false;
    }
    ctrl.units = units;
    memcpy(wqe, &ctrl, sizeof(ctrl));
    for (uint32_t i = 0; i < units; i++) {
        gmem_write(&qp->mem, (uint64_t)(qp->sq_producer++ & mask) *
                   VROCE_SQ_UNIT, wqe + i * VROCE_SQ_UNIT, VROCE_SQ_UNIT);
    }
    return true;
}

void drv_ring(struct drv_qp *qp)
{
    fh_doorbell(qp->d->h, qp->d->context,
                vroce_doorbell(VROCE_DB_SQ, qp->qpn, qp->sq_producer));
}

/* --------------------------------------------------- fast registration */

uint32_t drv_fast_mr_create(struct drv *d, uint32_t max_pages)
{
    struct vroce_create_mr_in in = {
        .pdn = htole32(d->pdn), .kind = VROCE_MR_FAST,
        .max_pages = htole32(max_pages),
    };
    uint32_t key;
    uint16_t rule;

    g_assert_cmpint(drv_try_create(d, VROCE_CMD_CREATE_MR, &in, sizeof(in),
                                   &key, &rule), ==, VROCE_OK);
    return key;
}

void drv_post_fast_reg(struct drv_qp *qp, uint32_t key, const struct gmem *mem,
                       uint64_t iova, uint32_t access, uint64_t wr_id)
{
    struct {
        struct vroce_wqe_ctrl ctrl;
        struct vroce_wqe_fast_reg seg;
        uint8_t pad[48];
    } wqe = {
        .ctrl = {
            .opcode = VROCE_WQE_FAST_REG, .flags = VROCE_WQE_SIGNALED,
            .units = 2, .index = htole16(qp->sq_producer),
            .wr_id = htole64(wr_id),
        },
        .seg = {
            .buf = mem->buf, .iova = htole64(iova), .key = htole32(key),
            .access = htole32(access),
        },
    };

    g_assert_cmpuint(sizeof(wqe), ==, 2 * VROCE_SQ_UNIT);
    for (int i = 0; i < 2; i++) {
        uint32_t at = qp->sq_producer++ & ((1u << qp->sq_log) - 1);

        gmem_write(&qp->mem, (uint64_t)at * VROCE_SQ_UNIT,
                   (uint8_t *)&wqe + i * VROCE_SQ_UNIT, VROCE_SQ_UNIT);
    }
}
