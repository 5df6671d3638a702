/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Completion and event queues: phases, records, arming, overruns, resizing,
 * moderation.
 */
#include <endian.h>
#include <string.h>

#include "driver.h"
#include "vr_internal.h"

struct bed {
    struct fakehost *h;
    struct drv *d;
    struct drv_eq eq, async;
    struct drv_cq cq;
    uint64_t posted;
};

static void bed_init(struct bed *b, uint8_t log_cq, uint8_t log_eq)
{
    *b = (struct bed) { .h = fh_new(NULL, 1) };
    b->d = drv_new(b->h, 1);
    drv_eq_create(b->d, &b->async, 4, 0, true);
    drv_eq_create(b->d, &b->eq, log_eq, 1, false);
    drv_cq_create(b->d, &b->cq, log_cq, &b->eq);
    drv_eq_arm(&b->async);
    drv_eq_arm(&b->eq);
}

static void bed_fini(struct bed *b)
{
    drv_cq_destroy(&b->cq);
    drv_eq_destroy(&b->eq);
    drv_eq_destroy(&b->async);
    drv_free(b->d);
    fh_free(b->h);
}

static void post_to(struct bed *b, uint32_t cqn, uint8_t status, bool solicited)
{
    struct vroce_cqe cqe = {
        .wr_id = htole64(b->posted++), .status = status,
        .qpn = htole32(0xabcdef),
    };

    b->h->entered = true;
    b->h->e->now = b->h->now;
    vr_cq_post(b->h->e, cqn, &cqe, solicited);
    b->h->entered = false;
}

static void post(struct bed *b, bool solicited)
{
    post_to(b, b->cq.cqn, VROCE_WCS_SUCCESS, solicited);
}

static void expect_event(struct drv_eq *eq, uint16_t type, uint32_t number,
                         uint16_t rule)
{
    struct vroce_eqe eqe;

    g_assert_true(drv_eq_poll(eq, &eqe));
    g_assert_cmpint(le16toh(eqe.type), ==, type);
    g_assert_cmpint(le32toh(eqe.number), ==, number);
    g_assert_cmpint(le16toh(eqe.rule), ==, rule);
}

static void expect_none(struct drv_eq *eq)
{
    struct vroce_eqe eqe;

    g_assert_false(drv_eq_poll(eq, &eqe));
}

/* The CQ's event: then arm the EQ again. */
static void expect_completion(struct bed *b)
{
    expect_event(&b->eq, VROCE_EVENT_COMPLETION, b->cq.cqn, 0);
    drv_eq_arm(&b->eq);
}

/* Many laps; the consumer lags by up to the whole ring. */
static void test_phases(void)
{
    uint64_t taken = 0;
    struct bed b;

    bed_init(&b, 5, 4);
    for (int i = 0; i < 5000; i++) {
        struct vroce_cqe cqe;

        if (b.posted - taken < 32 &&
            (b.posted == taken || g_rand_boolean(b.h->rand))) {
            b.h->now += 7;
            post(&b, false);
            continue;
        }
        g_assert_true(drv_poll(&b.cq, &cqe));
        g_assert_cmpuint(le64toh(cqe.wr_id), ==, taken++);
        g_assert_cmpuint(le64toh(cqe.timestamp), <=, b.h->now);
        if (b.posted == taken) {
            g_assert_false(drv_poll(&b.cq, &cqe));
        }
    }
    g_assert_cmpuint(b.h->e->counters[VROCE_CNT_MISUSE], ==, 0);
    bed_fini(&b);
}

static void make_qp(struct bed *b, struct drv_qp *qp, struct drv_cq *scq)
{
    struct drv_qp_init init = {
        .type = VROCE_QPT_UD, .sq_log = 4, .rq_log = 4, .max_recv_sge = 1,
        .scq = scq, .rcq = &b->cq,
    };

    drv_qp_create(b->d, qp, &init);
}

static uint8_t qp_state(struct bed *b, const struct drv_qp *qp)
{
    struct vr_qp_info info;

    g_assert_true(vr_query_qp(b->h->e, qp->qpn, &info));
    return info.state;
}

/* One too many: CQ_ERR, and the QPs that use it are in the error state. */
static void test_overrun(void)
{
    struct vr_cq_info info;
    struct drv_conn conn;
    struct drv_qp user;
    struct drv_cq other;
    struct vroce_cqe cqe;
    struct bed b;

    bed_init(&b, 3, 4);
    drv_cq_create(b.d, &other, 3, NULL);
    make_qp(&b, &user, &other);
    drv_conn_init(&conn);
    drv_qp_connect(&user, &conn);
    for (int i = 0; i < 8; i++) {
        post(&b, false);
    }
    g_assert_cmpuint(b.h->e->counters[VROCE_CNT_CQ_OVERRUN], ==, 0);
    /* A consumer that merely polls, and never arms, is no overrun. */
    g_assert_true(drv_poll(&b.cq, &cqe));
    post(&b, false);
    g_assert_cmpint(qp_state(&b, &user), ==, VROCE_QPS_RTS);
    post(&b, false);
    g_assert_cmpuint(b.h->e->counters[VROCE_CNT_CQ_OVERRUN], ==, 1);
    g_assert_cmpuint(b.h->rules[VROCE_RULE_CQ_OVERRUN], >=, 1);
    g_assert_cmpint(qp_state(&b, &user), ==, VROCE_QPS_ERR);
    expect_event(&b.async, VROCE_EVENT_CQ_ERR, b.cq.cqn,
                 VROCE_RULE_CQ_OVERRUN);
    expect_event(&b.async, VROCE_EVENT_QP_FATAL, user.qpn,
                 VROCE_RULE_CQ_OVERRUN);
    g_assert_true(vr_query_cq(b.h->e, b.cq.cqn, &info));
    g_assert_true(info.overrun);
    /* What was there stays readable; nothing more comes. */
    for (int i = 1; i < 9; i++) {
        g_assert_true(drv_poll(&b.cq, &cqe));
        g_assert_cmpuint(le64toh(cqe.wr_id), ==, i);
    }
    post(&b, false);
    g_assert_false(drv_poll(&b.cq, &cqe));
    g_assert_cmpuint(b.h->e->counters[VROCE_CNT_CQ_OVERRUN], ==, 1);

    g_assert_cmpint(drv_number(b.d, VROCE_CMD_DESTROY_CQ, b.cq.cqn), ==,
                    VROCE_ERR_BUSY);
    drv_qp_destroy(&user);
    drv_cq_destroy(&other);
    bed_fini(&b);
}

/* A record that claims more than was produced, or goes back. */
static void test_bad_record(const void *index)
{
    struct vroce_db_record rec = {
        .index = htole32(GPOINTER_TO_UINT(index)),
    };
    struct bed b;

    bed_init(&b, 3, 4);
    for (int i = 0; i < 8; i++) {
        post(&b, false);
    }
    gmem_write(&b.cq.mem, b.cq.rec_off, &rec, sizeof(rec));
    post(&b, false);
    expect_event(&b.async, VROCE_EVENT_CQ_ERR, b.cq.cqn, VROCE_RULE_CQ_RECORD);
    bed_fini(&b);
}

static void test_ring_fault(void)
{
    struct bed b;

    bed_init(&b, 3, 4);
    b.h->fault_after = 1;
    post(&b, false);
    expect_event(&b.async, VROCE_EVENT_CQ_ERR, b.cq.cqn, VROCE_RULE_RING_DMA);
    bed_fini(&b);

    /* An async EQ that cannot be written is the end. */
    bed_init(&b, 3, 4);
    b.h->fault_after = 1;
    b.h->entered = true;
    vr_async_event(b.h->e, VROCE_EVENT_PORT_UP, 1, 0);
    b.h->entered = false;
    g_assert_cmpint(b.h->fatal, ==, VROCE_FATAL_ASYNC_EQ);
    g_assert_cmpint(drv_number(b.d, VROCE_CMD_DESTROY_CQ, b.cq.cqn), ==,
                    VROCE_ERR_STATE);
    fh_reset(b.h);
    g_hash_table_unref(b.d->qps);
    g_free(b.d);
    gmem_fini(&b.cq.mem);
    gmem_fini(&b.eq.mem);
    gmem_fini(&b.async.mem);
    fh_free(b.h);
}

static void test_arm(void)
{
    struct vroce_cqe cqe;
    struct bed b;

    bed_init(&b, 5, 4);
    post(&b, true);
    expect_none(&b.eq);
    /* Armed behind what is there: the next one. */
    drv_poll(&b.cq, &cqe);
    drv_cq_arm(&b.cq, false);
    expect_none(&b.eq);
    post(&b, false);
    g_assert_cmpuint(b.h->irqs[1], ==, 1);
    expect_completion(&b);
    post(&b, false);
    expect_none(&b.eq);
    /* Something not taken yet: at once. */
    drv_poll(&b.cq, &cqe);
    drv_cq_arm(&b.cq, false);
    expect_completion(&b);
    drv_poll(&b.cq, &cqe);

    /* Solicited only. */
    drv_cq_arm(&b.cq, true);
    post(&b, false);
    expect_none(&b.eq);
    post(&b, true);
    expect_completion(&b);
    drv_drain(&b.cq);
    drv_cq_arm(&b.cq, true);
    expect_none(&b.eq);
    post_to(&b, b.cq.cqn, VROCE_WCS_WR_FLUSH_ERR, false);
    expect_completion(&b);
    /* Not taken yet, solicited. */
    drv_cq_arm(&b.cq, true);
    expect_completion(&b);
    drv_drain(&b.cq);
    /* Asking for solicited ones takes nothing back. */
    drv_cq_arm(&b.cq, false);
    drv_cq_arm(&b.cq, true);
    post(&b, false);
    expect_completion(&b);
    bed_fini(&b);
}

static void test_doorbells(void)
{
    struct vroce_cqe cqe;
    struct bed b;
    uint64_t *rules;

    bed_init(&b, 3, 4);
    rules = b.h->rules;
    for (int i = 0; i < 20; i++) {
        post(&b, false);
        drv_poll(&b.cq, &cqe);
    }
    fh_doorbell(b.h, 0, vroce_doorbell(VROCE_DB_CQ_ARM, b.cq.cqn, 21));
    fh_doorbell(b.h, 0, vroce_doorbell(VROCE_DB_CQ_ARM, b.cq.cqn, 11));
    g_assert_cmpuint(rules[VROCE_RULE_DB_INDEX], ==, 2);
    expect_none(&b.eq);
    /* Late, from a thread that was overtaken by another: in the ring still. */
    fh_doorbell(b.h, 0, vroce_doorbell(VROCE_DB_CQ_ARM, b.cq.cqn, 12));
    g_assert_cmpuint(rules[VROCE_RULE_DB_INDEX], ==, 2);
    expect_completion(&b);
    fh_doorbell(b.h, 0, vroce_doorbell(VROCE_DB_CQ_ARM, b.cq.cqn + 1, 0));
    fh_doorbell(b.h, 0, vroce_doorbell(VROCE_DB_EQ_ARM, 99, 0));
    g_assert_cmpuint(rules[VROCE_RULE_DB_NUMBER], ==, 2);
    fh_doorbell(b.h, 0, vroce_doorbell(99, b.cq.cqn, 0));
    g_assert_cmpuint(rules[VROCE_RULE_DB_ACCESS], ==, 1);
    /* A page without a context, and one that owns something else. */
    fh_doorbell(b.h, 1, vroce_doorbell(VROCE_DB_CQ_ARM, b.cq.cqn, 20));
    g_assert_cmpuint(rules[VROCE_RULE_DB_PAGE], ==, 1);
    g_assert_cmpint(fh_command(b.h, VROCE_CMD_ALLOC_CONTEXT, NULL, 0,
                               &(struct vroce_number) { 0 }, 8, NULL), ==, 0);
    fh_doorbell(b.h, 1, vroce_doorbell(VROCE_DB_CQ_ARM, b.cq.cqn, 20));
    fh_doorbell(b.h, 1, vroce_doorbell(VROCE_DB_EQ_ARM, b.eq.eqn, 0));
    g_assert_cmpuint(rules[VROCE_RULE_DB_PAGE], ==, 3);
    fh_doorbell(b.h, 0, vroce_doorbell(VROCE_DB_EQ_ARM, b.eq.eqn, 2));
    g_assert_cmpuint(rules[VROCE_RULE_DB_INDEX], ==, 3);
    bed_fini(&b);
}

/* An event that found no room is made up for when the EQ has some again. */
static void test_eq_overrun(void)
{
    struct drv_cq cqs[8];
    struct vroce_eqe eqe;
    struct vr_eq_info info;
    bool seen[8] = { false };
    struct bed b;
    int n = 0;

    bed_init(&b, 3, 1);
    for (int i = 0; i < 8; i++) {
        drv_cq_create(b.d, &cqs[i], 3, &b.eq);
        drv_cq_arm(&cqs[i], i & 1);
        post_to(&b, cqs[i].cqn, VROCE_WCS_SUCCESS, true);
    }
    g_assert_true(vr_eq_overrun(b.h->e));
    g_assert_cmpuint(b.h->rules[VROCE_RULE_EQ_OVERRUN], ==, 1);
    g_assert_true(vr_query_eq(b.h->e, b.eq.eqn, &info));
    g_assert_true(info.overrun);
    g_assert_cmpuint(b.h->irqs[1], ==, 1);
    for (int turn = 0; turn < 8; turn++) {
        while (drv_eq_poll(&b.eq, &eqe)) {
            for (int i = 0; i < 8; i++) {
                if (cqs[i].cqn == le32toh(eqe.number)) {
                    g_assert_false(seen[i]);
                    seen[i] = true;
                    n++;
                }
            }
        }
        drv_eq_arm(&b.eq);
    }
    g_assert_cmpint(n, ==, 8);
    expect_none(&b.eq);
    for (int i = 0; i < 8; i++) {
        drv_cq_destroy(&cqs[i]);
    }
    bed_fini(&b);
}

static int resize(struct bed *b, struct drv_cq *cq, uint8_t log_size,
                  uint16_t *rule)
{
    struct vroce_db_record rec = { .index = htole32(cq->consumer) };
    struct vroce_resize_cq_in in = {
        .cqn = htole32(cq->cqn), .log_size = log_size,
        .rec_off = htole32(64 << log_size),
    };
    struct gmem mem;
    int status;

    gmem_init(&mem, b->h, (64 << log_size) + 8, 1, 12, 64);
    gmem_write(&mem, 64 << log_size, &rec, sizeof(rec));
    in.buf = mem.buf;
    status = fh_command(b->h, VROCE_CMD_RESIZE_CQ, &in, sizeof(in), NULL, 0,
                        rule);
    if (status != VROCE_OK) {
        gmem_fini(&mem);
        return status;
    }
    gmem_fini(&cq->mem);
    cq->mem = mem;
    cq->log_size = log_size;
    cq->rec_off = 64 << log_size;
    return VROCE_OK;
}

static void test_resize(void)
{
    uint64_t taken = 0;
    struct bed b;

    bed_init(&b, 5, 4);
    for (int i = 0; i < 400; i++) {
        uint8_t log = g_rand_int_range(b.h->rand, 1, 9);
        uint32_t unread = b.posted - taken;
        struct vroce_cqe cqe;
        uint16_t rule;
        int status = resize(&b, &b.cq, log, &rule);

        if (unread > 1u << log) {
            g_assert_cmpint(status, ==, VROCE_ERR_PARAM);
            g_assert_cmpint(rule, ==, VROCE_RULE_CQ_OVERRUN);
        } else {
            g_assert_cmpint(status, ==, VROCE_OK);
        }
        for (uint32_t k = unread; k < 1u << b.cq.log_size; k++) {
            post(&b, false);
            if (g_rand_int(b.h->rand) % 16 == 0) {
                break;
            }
        }
        for (int k = g_rand_int_range(b.h->rand, 0, 40); k; k--) {
            bool got = drv_poll(&b.cq, &cqe);

            g_assert_true(got == (taken != b.posted));
            if (!got) {
                break;
            }
            g_assert_cmpuint(le64toh(cqe.wr_id), ==, taken++);
        }
    }
    g_assert_cmpuint(b.h->e->counters[VROCE_CNT_CQ_OVERRUN], ==, 0);
    g_assert_cmpuint(taken, >, 500);
    bed_fini(&b);
}

static void modify(struct bed *b, uint16_t count, uint16_t period)
{
    struct vroce_modify_cq_in in = {
        .cqn = htole32(b->cq.cqn), .count = htole16(count),
        .period_us = htole16(period),
    };

    g_assert_cmpint(fh_command(b->h, VROCE_CMD_MODIFY_CQ, &in, sizeof(in),
                               NULL, 0, NULL), ==, VROCE_OK);
}

static void test_moderation(void)
{
    struct bed b;

    bed_init(&b, 6, 4);
    modify(&b, 4, 100);
    drv_cq_arm(&b.cq, false);
    for (int i = 0; i < 3; i++) {
        post(&b, false);
        expect_none(&b.eq);
    }
    post(&b, false);
    expect_completion(&b);
    drv_drain(&b.cq);
    drv_cq_arm(&b.cq, false);
    post(&b, false);
    fh_advance(b.h, 60000);
    post(&b, false);
    fh_advance(b.h, 39999);
    expect_none(&b.eq);
    fh_advance(b.h, 1);
    expect_completion(&b);
    fh_advance(b.h, 1000000);
    expect_none(&b.eq);
    /* What waits under the old rules is not forgotten under new ones. */
    drv_drain(&b.cq);
    drv_cq_arm(&b.cq, false);
    post(&b, false);
    expect_none(&b.eq);
    modify(&b, 0, 0);
    expect_completion(&b);
    bed_fini(&b);
}

static int try_cq(struct bed *b, struct vroce_create_cq_in in, uint16_t *rule)
{
    uint32_t number;

    return drv_try_create(b->d, VROCE_CMD_CREATE_CQ, &in, sizeof(in), &number,
                          rule);
}

static void test_refusals(void)
{
    struct vroce_create_cq_in good = { .log_size = 4 }, in;
    struct vroce_create_eq_in eq = { .log_size = 4 };
    struct gmem mem;
    struct bed b;
    uint32_t number;
    uint16_t rule;

    bed_init(&b, 3, 4);
    gmem_init(&mem, b.h, 64 * 16 + 8, 1, 12, 0);
    good.buf = mem.buf;
    good.rec_off = htole32(1024);
    good.eqn = htole32(b.eq.eqn);

#define REFUSED(change, want) \
    do { \
        in = good; \
        change; \
        g_assert_cmpint(try_cq(&b, in, &rule), ==, want); \
    } while (0)

    REFUSED(in.eqn = 0, VROCE_ERR_NUMBER);
    REFUSED(in.context = htole32(3), VROCE_ERR_NUMBER);
    REFUSED(in.log_size = 0, VROCE_ERR_PARAM);
    REFUSED(in.log_size = 5, VROCE_ERR_PARAM);
    REFUSED(in.log_size = 31, VROCE_ERR_PARAM);
    REFUSED(in.log_size = 32, VROCE_ERR_PARAM);
    REFUSED(in.log_size = 255, VROCE_ERR_PARAM);
    REFUSED(in.rec_off = htole32(1020), VROCE_ERR_PARAM);
    REFUSED(in.rec_off = htole32(1016), VROCE_ERR_PARAM);
    REFUSED(in.rec_off = htole32(1028), VROCE_ERR_PARAM);
    REFUSED(in.rec_off = htole32(1032), VROCE_ERR_PARAM);
    REFUSED(in.rec_off = htole32(UINT32_MAX - 7), VROCE_ERR_PARAM);
    REFUSED(in.buf.offset = htole32(32), VROCE_ERR_PARAM);
    REFUSED(in.buf.length = 0, VROCE_ERR_PARAM);
    REFUSED(in.reserved[1] = 1, VROCE_ERR_PARAM);

    eq.buf = mem.buf;
    eq.vector = htole32(b.h->cfg.num_vectors);
    g_assert_cmpint(drv_try_create(b.d, VROCE_CMD_CREATE_EQ, &eq, sizeof(eq),
                                   &number, &rule), ==, VROCE_ERR_PARAM);
    eq.vector = 0;
    eq.flags = 2;
    g_assert_cmpint(drv_try_create(b.d, VROCE_CMD_CREATE_EQ, &eq, sizeof(eq),
                                   &number, &rule), ==, VROCE_ERR_PARAM);
    eq.flags = VROCE_EQ_ASYNC;
    g_assert_cmpint(drv_try_create(b.d, VROCE_CMD_CREATE_EQ, &eq, sizeof(eq),
                                   &number, &rule), ==, VROCE_ERR_BUSY);
    g_assert_cmpint(drv_number(b.d, VROCE_CMD_DESTROY_EQ, b.eq.eqn), ==,
                    VROCE_ERR_BUSY);
    gmem_fini(&mem);
    bed_fini(&b);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/cq/phases", test_phases);
    g_test_add_func("/cq/overrun", test_overrun);
    g_test_add_data_func("/cq/record-ahead", GUINT_TO_POINTER(9),
                         test_bad_record);
    g_test_add_data_func("/cq/record-behind", GUINT_TO_POINTER(UINT32_MAX),
                         test_bad_record);
    g_test_add_func("/cq/ring-fault", test_ring_fault);
    g_test_add_func("/cq/arm", test_arm);
    g_test_add_func("/cq/doorbells", test_doorbells);
    g_test_add_func("/cq/eq-overrun", test_eq_overrun);
    g_test_add_func("/cq/resize", test_resize);
    g_test_add_func("/cq/moderation", test_moderation);
    g_test_add_func("/cq/refusals", test_refusals);
    return g_test_run();
}
