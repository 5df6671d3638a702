/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "couple.h"

void world_init(struct world *w, uint8_t type, bool srq)
{
    struct drv_qp_init init = {
        .type = type, .sq_log = 5, .rq_log = 4, .max_recv_sge = 1,
        .scq = &w->cq, .rcq = &w->cq,
    };

    w->h = fh_new(NULL, 1);
    w->d = drv_new(w->h, 1);
    drv_eq_create(w->d, &w->async, 6, 0, true);
    drv_cq_create(w->d, &w->cq, 8, NULL);
    gmem_init(&w->mem, w->h, MEM, 1, 12, 0);
    drv_mr_create(w->d, &w->mr, &w->mem, IOVA,
                  VROCE_ACCESS_LOCAL_WRITE | VROCE_ACCESS_REMOTE_WRITE |
                  VROCE_ACCESS_REMOTE_READ | VROCE_ACCESS_REMOTE_ATOMIC);
    drv_qp_create(w->d, &w->a, &init);
    if (srq) {
        drv_srq_create(w->d, &w->srq, 4, 1, 0);
        init.srq = &w->srq;
        init.rq_log = VROCE_NO_QUEUE;
    }
    drv_qp_create(w->d, &w->b, &init);
    drv_conn_init(&w->ca);
    drv_av(w->d, 1, 0, &w->ca.av);
    w->cb = w->ca;
    w->ca.dest_qpn = w->b.qpn;
    w->cb.dest_qpn = w->a.qpn;
}

void world_fini(struct world *w)
{
    drv_qp_destroy(&w->a);
    drv_qp_destroy(&w->b);
    if (w->srq.srqn) {
        drv_srq_destroy(&w->srq);
    }
    drv_mr_destroy(&w->mr);
    gmem_fini(&w->mem);
    drv_cq_destroy(&w->cq);
    drv_eq_destroy(&w->async);
    drv_free(w->d);
    fh_free(w->h);
}

void connect_both(struct world *w)
{
    drv_qp_connect(&w->a, &w->ca);
    drv_qp_connect(&w->b, &w->cb);
}

void post(struct drv_qp *qp, const struct drv_wr *wr)
{
    g_assert_true(drv_post_send(qp, wr));
}

void run(struct world *w)
{
    fh_settle(w->h, 1000);
}

void expect(struct world *w, uint64_t wr_id, uint8_t opcode, uint8_t status)
{
    struct vroce_cqe cqe;

    g_assert_true(drv_poll(&w->cq, &cqe));
    g_assert_cmpint(cqe.status, ==, status);
    g_assert_cmpint(cqe.opcode, ==, opcode);
    g_assert_cmpuint(le64toh(cqe.wr_id), ==, wr_id);
}

void expect_nothing(struct world *w)
{
    struct vroce_cqe cqe;

    g_assert_false(drv_poll(&w->cq, &cqe));
}

void expect_event(struct world *w, uint16_t type, uint32_t number)
{
    struct vroce_eqe eqe;

    g_assert_true(drv_eq_poll(&w->async, &eqe));
    g_assert_cmpint(le16toh(eqe.type), ==, type);
    g_assert_cmpuint(le32toh(eqe.number), ==, number);
}

struct drv_wr send_wr(struct world *w, uint8_t opcode, uint64_t wr_id,
                      uint32_t off, uint32_t len)
{
    return (struct drv_wr) {
        .wr_id = wr_id, .opcode = opcode, .flags = VROCE_WQE_SIGNALED,
        .num_sge = 1,
        .sge[0] = { .addr = IOVA + off, .length = len, .lkey = w->mr.key },
    };
}

struct drv_wr local_wr(uint8_t opcode, uint64_t wr_id, uint32_t key)
{
    return (struct drv_wr) {
        .wr_id = wr_id, .opcode = opcode, .flags = VROCE_WQE_SIGNALED,
        .inv_key = key,
    };
}

int state_of(struct world *w, const struct drv_qp *qp)
{
    struct vr_qp_info info;

    g_assert_true(vr_query_qp(w->h->e, qp->qpn, &info));
    return info.state;
}

void modify(struct world *w, struct drv_qp *qp, uint8_t state, uint32_t mask,
            bool notify)
{
    struct vroce_modify_qp_in in = {
        .qpn = htole32(qp->qpn), .attr_mask = htole32(mask | VROCE_QP_STATE),
        .attr = { .state = state, .sqd_async_notify = notify },
    };
    uint16_t rule;

    g_assert_cmpint(fh_command(w->h, VROCE_CMD_MODIFY_QP, &in, sizeof(in), NULL,
                               0, &rule), ==, VROCE_OK);
}
