/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared receive queues: two QPs feed from one, its limit, its life. */
#include <endian.h>
#include <string.h>

#include "driver.h"

#define IOVA 0x10000

struct fixture {
    struct fakehost *h;
    struct drv *d;
    struct drv_eq async_eq;
    struct drv_cq cq;
    struct drv_srq srq;
    struct drv_qp qp[2];        /* connected to each other */
    struct gmem mem;
    struct drv_mr mr;
};

static void setup(struct fixture *f, const void *limit)
{
    f->h = fh_new(NULL, 1);
    f->d = drv_new(f->h, 1);
    drv_eq_create(f->d, &f->async_eq, 4, 0, true);
    drv_cq_create(f->d, &f->cq, 6, NULL);
    drv_srq_create(f->d, &f->srq, 3, 1, GPOINTER_TO_UINT(limit));
    gmem_init(&f->mem, f->h, 65536, 1, 12, 0);
    drv_mr_create(f->d, &f->mr, &f->mem, IOVA, VROCE_ACCESS_LOCAL_WRITE);
    for (int i = 0; i < 2; i++) {
        const struct drv_qp_init init = {
            .type = VROCE_QPT_RC, .sq_log = 4, .rq_log = VROCE_NO_QUEUE,
            .scq = &f->cq, .rcq = &f->cq, .srq = &f->srq,
        };

        drv_qp_create(f->d, &f->qp[i], &init);
    }
    drv_qp_connect_pair(f->qp, 1);
}

static void teardown(struct fixture *f, const void *limit)
{
    drv_qp_destroy(&f->qp[0]);
    drv_qp_destroy(&f->qp[1]);
    drv_srq_destroy(&f->srq);
    drv_mr_destroy(&f->mr);
    gmem_fini(&f->mem);
    drv_cq_destroy(&f->cq);
    drv_eq_destroy(&f->async_eq);
    drv_free(f->d);
    fh_free(f->h);
}

static bool post(struct fixture *f, uint64_t wr_id)
{
    const struct drv_wr wr = {
        .wr_id = wr_id, .num_sge = 1,
        .sge[0] = { IOVA + 4096 * wr_id, 4096, f->mr.key },
    };

    return drv_srq_post(&f->srq, &wr);
}

static void send(struct fixture *f, int side, const char *text)
{
    const struct drv_wr wr = {
        .opcode = VROCE_WQE_SEND, .flags = VROCE_WQE_INLINE,
        .inline_data = text, .inline_len = strlen(text),
    };

    g_assert_true(drv_post_send(&f->qp[side], &wr));
    drv_ring(&f->qp[side]);
    fh_settle(f->h, 1000);
}

/* The next message, of a peer's send, must be text in receive wr_id. */
static void expect(struct fixture *f, int side, uint64_t wr_id,
                   const char *text)
{
    char have[16] = { 0 };
    struct vroce_cqe cqe;

    g_assert_true(drv_poll(&f->cq, &cqe));
    g_assert_cmpint(cqe.status, ==, VROCE_WCS_SUCCESS);
    g_assert_cmpint(cqe.opcode, ==, VROCE_WC_RECV);
    g_assert_cmpuint(le64toh(cqe.wr_id), ==, wr_id);
    g_assert_cmpuint(le32toh(cqe.qpn), ==, f->qp[side].qpn);
    gmem_read(&f->mem, 4096 * wr_id, have, le32toh(cqe.byte_len));
    g_assert_cmpstr(have, ==, text);
}

static uint32_t limit_events(struct fixture *f)
{
    struct vroce_eqe eqe;
    uint32_t n = 0;

    while (drv_eq_poll(&f->async_eq, &eqe)) {
        if (le16toh(eqe.type) == VROCE_EVENT_SRQ_LIMIT) {
            g_assert_cmpuint(le32toh(eqe.number), ==, f->srq.srqn);
            n++;
        }
    }
    return n;
}

static int set_limit(struct fixture *f, uint32_t limit)
{
    const struct vroce_modify_srq_in in = {
        .srqn = htole32(f->srq.srqn), .limit = htole32(limit),
    };

    return fh_command(f->h, VROCE_CMD_MODIFY_SRQ, &in, sizeof(in), NULL, 0,
                      NULL);
}

static struct vroce_query_srq_out query(struct fixture *f)
{
    const struct vroce_number in = { .number = htole32(f->srq.srqn) };
    struct vroce_query_srq_out out;

    g_assert_cmpint(fh_command(f->h, VROCE_CMD_QUERY_SRQ, &in, sizeof(in),
                               &out, sizeof(out), NULL), ==, VROCE_OK);
    return out;
}

/* Receives go to whichever QP needs one, in ring order, around the ring. */
static void test_shared(struct fixture *f, const void *limit)
{
    for (uint32_t i = 0; i < 8; i++) {
        g_assert_true(post(f, i));
    }
    g_assert_false(post(f, 8));
    g_assert_cmpuint(le32toh(query(f).posted), ==, 8);
    for (uint32_t i = 0; i < 20; i++) {
        char text[8];

        g_snprintf(text, sizeof(text), "m%u", i);
        send(f, i & 1, text);
        expect(f, !(i & 1), i % 8, text);
        g_assert_true(post(f, i % 8));
    }
}

/* The limit event comes once, and again only when it is set again. */
static void test_limit(struct fixture *f, const void *limit)
{
    for (uint32_t i = 0; i < 6; i++) {
        g_assert_true(post(f, i));
    }
    g_assert_cmpuint(le32toh(query(f).limit), ==, GPOINTER_TO_UINT(limit));
    for (uint32_t i = 0; i < 3; i++) {
        send(f, 0, "x");
    }
    g_assert_cmpuint(limit_events(f), ==, 0);       /* 3 are left */
    send(f, 0, "x");
    g_assert_cmpuint(limit_events(f), ==, 1);       /* 2 are left */
    send(f, 0, "x");
    g_assert_cmpuint(limit_events(f), ==, 0);
    g_assert_cmpuint(le32toh(query(f).limit), ==, 0);
    g_assert_cmpint(set_limit(f, 9), ==, VROCE_ERR_PARAM);
    g_assert_true(post(f, 6));
    g_assert_true(post(f, 7));
    g_assert_cmpint(set_limit(f, 3), ==, VROCE_OK);
    send(f, 0, "x");
    g_assert_cmpuint(limit_events(f), ==, 1);
}

static void test_in_use(struct fixture *f, const void *limit)
{
    g_assert_cmpint(drv_number(f->d, VROCE_CMD_DESTROY_SRQ, f->srq.srqn), ==,
                    VROCE_ERR_BUSY);
    g_assert_cmpint(drv_number(f->d, VROCE_CMD_DESTROY_SRQ,
                               f->srq.srqn + 100), ==, VROCE_ERR_NUMBER);
}

/* A producer index that the ring cannot hold stops the SRQ, not the process. */
static void test_bad_record(struct fixture *f, const void *limit)
{
    const struct vroce_db_record rec = { .index = htole32(1000) };
    struct vroce_eqe eqe;
    bool found = false;

    gmem_write(&f->srq.mem, f->srq.rec_off, &rec, sizeof(rec));
    send(f, 0, "x");
    while (drv_eq_poll(&f->async_eq, &eqe)) {
        found |= le16toh(eqe.type) == VROCE_EVENT_SRQ_ERR &&
                 le16toh(eqe.rule) == VROCE_RULE_RQ_RECORD;
    }
    g_assert_true(found);
    g_assert_cmpuint(f->h->rules[VROCE_RULE_RQ_RECORD], >, 0);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add("/srq/shared", struct fixture, NULL, setup, test_shared,
               teardown);
    g_test_add("/srq/limit", struct fixture, GUINT_TO_POINTER(3), setup,
               test_limit, teardown);
    g_test_add("/srq/in-use", struct fixture, NULL, setup, test_in_use,
               teardown);
    g_test_add("/srq/bad-record", struct fixture, NULL, setup, test_bad_record,
               teardown);
    return g_test_run();
}
