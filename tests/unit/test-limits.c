/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The limits that QUERY_DEVICE tells: all that is promised can be had at once,
 * one more is refused, nothing else suffers, and what is given back can be had
 * again.
 */
#include <endian.h>
#include <string.h>

#include "driver.h"

#define IOVA 0x10000
#define MSG_LEN 100

/* A device of which something else runs out each time. */
struct fixture {
    struct fakehost *h;
    struct drv *d;
    struct drv_eq eq;
    struct drv_cq cq;
    struct drv_qp qp[2];        /* connected to each other */
    struct gmem mem;
    struct drv_mr mr;
    struct gmem ring;           /* one for all that is created */
    struct vroce_query_device_out told;
};

/* Different numbers, so that no table passes for another. */
static void few_of_all(struct vr_config *cfg)
{
    fh_small_config(cfg, 16);
    cfg->num_qps = 23;
    cfg->num_cqs = 19;
    cfg->num_mrs = 29;
    cfg->num_pds = 13;
    cfg->num_srqs = 11;
    cfg->num_eqs = 7;
    cfg->num_contexts = 5;
    cfg->num_gids = 9;
    cfg->num_pages = 2048;
}

static void setup(struct fixture *f, const void *unused)
{
    const struct drv_qp_init init = {
        .type = VROCE_QPT_RC, .sq_log = 4, .rq_log = 4, .max_recv_sge = 1,
        .scq = &f->cq, .rcq = &f->cq,
    };
    struct vr_config cfg;

    few_of_all(&cfg);
    f->h = fh_new(&cfg, 1);
    f->d = drv_new(f->h, 1);
    drv_eq_create(f->d, &f->eq, 4, 0, true);
    drv_cq_create(f->d, &f->cq, 6, NULL);
    gmem_init(&f->mem, f->h, 65536, 1, 12, 0);
    drv_mr_create(f->d, &f->mr, &f->mem, IOVA, VROCE_ACCESS_LOCAL_WRITE);
    for (int i = 0; i < 2; i++) {
        drv_qp_create(f->d, &f->qp[i], &init);
    }
    drv_qp_connect_pair(f->qp, 1);
    gmem_init(&f->ring, f->h, 65536, 1, 12, 0);
    g_assert_cmpint(fh_command(f->h, VROCE_CMD_QUERY_DEVICE, NULL, 0, &f->told,
                               sizeof(f->told), NULL), ==, VROCE_OK);
}

static void teardown(struct fixture *f, const void *unused)
{
    gmem_fini(&f->ring);
    drv_qp_destroy(&f->qp[0]);
    drv_qp_destroy(&f->qp[1]);
    drv_mr_destroy(&f->mr);
    gmem_fini(&f->mem);
    drv_cq_destroy(&f->cq);
    drv_eq_destroy(&f->eq);
    drv_free(f->d);
    fh_free(f->h);
}

/* A message goes through. */
static void expect_works(struct fixture *f)
{
    const struct drv_wr recv = {
        .num_sge = 1, .sge[0] = { IOVA + 4096, MSG_LEN, f->mr.key },
    };
    const struct drv_wr send = {
        .opcode = VROCE_WQE_SEND, .flags = VROCE_WQE_SIGNALED, .num_sge = 1,
        .sge[0] = { IOVA, MSG_LEN, f->mr.key },
    };
    static uint8_t count;
    uint8_t out[MSG_LEN], in[MSG_LEN];
    struct vroce_cqe cqe;

    memset(out, ++count, sizeof(out));
    gmem_write(&f->mem, 0, out, sizeof(out));
    g_assert_true(drv_post_recv(&f->qp[1], &recv));
    g_assert_true(drv_post_send(&f->qp[0], &send));
    drv_ring(&f->qp[0]);
    fh_settle(f->h, 1000);
    for (int i = 0; i < 2; i++) {
        g_assert_true(drv_poll(&f->cq, &cqe));
        g_assert_cmpint(cqe.status, ==, VROCE_WCS_SUCCESS);
    }
    gmem_read(&f->mem, 4096, in, sizeof(in));
    g_assert_cmpmem(in, sizeof(in), out, sizeof(out));
}

/* ------------------------------------------------------ numbers of objects */

/* The input of the command that creates one; returns its length. */
typedef uint32_t request_fn(struct fixture *f, void *in);

static uint32_t no_request(struct fixture *f, void *in)
{
    return 0;
}

static uint32_t eq_request(struct fixture *f, void *in)
{
    *(struct vroce_create_eq_in *)in = (struct vroce_create_eq_in) {
        .buf = f->ring.buf, .log_size = 3,
    };
    return sizeof(struct vroce_create_eq_in);
}

static uint32_t cq_request(struct fixture *f, void *in)
{
    *(struct vroce_create_cq_in *)in = (struct vroce_create_cq_in) {
        .buf = f->ring.buf, .rec_off = htole32(4096),
        .eqn = htole32(VROCE_NONE), .log_size = 3,
    };
    return sizeof(struct vroce_create_cq_in);
}

static uint32_t srq_request(struct fixture *f, void *in)
{
    *(struct vroce_create_srq_in *)in = (struct vroce_create_srq_in) {
        .buf = f->ring.buf, .rec_off = htole32(4096),
        .pdn = htole32(f->d->pdn), .log_entries = 3, .log_stride = 5,
    };
    return sizeof(struct vroce_create_srq_in);
}

static uint32_t qp_request(struct fixture *f, void *in)
{
    *(struct vroce_create_qp_in *)in = (struct vroce_create_qp_in) {
        .buf = f->ring.buf, .rq_off = htole32(8192),
        .rec_off = htole32(4096), .pdn = htole32(f->d->pdn),
        .send_cqn = htole32(f->cq.cqn), .recv_cqn = htole32(f->cq.cqn),
        .srqn = htole32(VROCE_NONE), .type = VROCE_QPT_UD,
        .sq_log_units = 3, .rq_log_entries = 3, .rq_log_stride = 5,
    };
    return sizeof(struct vroce_create_qp_in);
}

static uint32_t mr_request(struct fixture *f, void *in)
{
    *(struct vroce_create_mr_in *)in = (struct vroce_create_mr_in) {
        .buf = f->ring.buf, .pdn = htole32(f->d->pdn),
    };
    return sizeof(struct vroce_create_mr_in);
}

/* A region whose page list is as long as a sixteenth of what may be kept. */
static uint32_t pages_request(struct fixture *f, void *in)
{
    struct vroce_create_mr_in *mr = in;

    mr_request(f, in);
    mr->kind = VROCE_MR_FAST;
    mr->buf = (struct vroce_buf) { 0 };
    mr->max_pages = htole32(le64toh(f->told.max_pages) / 16);
    return sizeof(*mr);
}

#define TOLD(field) offsetof(struct vroce_query_device_out, field)

static const struct kind {
    const char *name;
    uint8_t create, destroy;
    request_fn *request;
    size_t told;                /* offset of the limit, 32 bits wide; or 0 */
    uint32_t used;              /* by the fixture */
} kinds[] = {
    { "pd", VROCE_CMD_ALLOC_PD, VROCE_CMD_FREE_PD, no_request,
      TOLD(max_pd), 1 },
    { "context", VROCE_CMD_ALLOC_CONTEXT, VROCE_CMD_FREE_CONTEXT, no_request,
      TOLD(max_contexts), 0 },
    { "eq", VROCE_CMD_CREATE_EQ, VROCE_CMD_DESTROY_EQ, eq_request,
      TOLD(max_eq), 1 },
    { "cq", VROCE_CMD_CREATE_CQ, VROCE_CMD_DESTROY_CQ, cq_request,
      TOLD(max_cq), 1 },
    { "srq", VROCE_CMD_CREATE_SRQ, VROCE_CMD_DESTROY_SRQ, srq_request,
      TOLD(max_srq), 0 },
    { "qp", VROCE_CMD_CREATE_QP, VROCE_CMD_DESTROY_QP, qp_request,
      TOLD(max_qp), 2 },
    { "mr", VROCE_CMD_CREATE_MR, VROCE_CMD_DESTROY_MR, mr_request,
      TOLD(max_mr), 1 },
    { "pages", VROCE_CMD_CREATE_MR, VROCE_CMD_DESTROY_MR, pages_request, 0,
      0 },
};

static int try_one(struct fixture *f, const struct kind *k, uint32_t *number)
{
    uint8_t in[128] = { 0 };
    uint32_t len = k->request(f, in);
    uint16_t rule;
    int status = drv_try_create(f->d, k->create, in, len, number, &rule);

    g_assert_cmpint(rule, ==, VROCE_RULE_NONE);
    return status;
}

/* One of each other kind can still be had. */
static void expect_others(struct fixture *f, const struct kind *but)
{
    for (size_t i = 0; i < G_N_ELEMENTS(kinds); i++) {
        const struct kind *k = &kinds[i];
        uint32_t number;

        /* Page lists run out for all that has one; they are of regions. */
        if (k->create != but->create && !(but->request == pages_request &&
                          k->request != no_request)) {
            g_assert_cmpint(try_one(f, k, &number), ==, VROCE_OK);
            g_assert_cmpint(drv_number(f->d, k->destroy, number), ==, VROCE_OK);
        }
    }
}

static void test_objects(struct fixture *f, const void *data)
{
    const struct kind *k = data;
    uint32_t most = UINT32_MAX, numbers[64], more, n = 0;

    if (k->told) {
        memcpy(&most, (const char *)&f->told + k->told, sizeof(most));
        most = le32toh(most) - k->used;
    }
    /* Twice: what was given back is whole again. */
    for (int lap = 0; lap < 2; lap++) {
        for (n = 0; try_one(f, k, &numbers[n]) == VROCE_OK; n++) {
            g_assert_cmpuint(n + 1, <, G_N_ELEMENTS(numbers));
        }
        if (k->told) {
            g_assert_cmpuint(n, ==, most);
        } else {
            /* The fixture has lists as well. */
            g_assert_cmpuint(n, ==, 15);
        }
        g_assert_cmpint(try_one(f, k, &more), ==, VROCE_ERR_NO_RESOURCES);
        expect_works(f);
        if (k->request != pages_request) {
            expect_others(f, k);
        }

        g_assert_cmpint(drv_number(f->d, k->destroy, numbers[n / 2]), ==,
                        VROCE_OK);
        if (k->request == pages_request) {
            expect_others(f, k);
        }
        g_assert_cmpint(try_one(f, k, &numbers[n / 2]), ==, VROCE_OK);
        g_assert_cmpint(try_one(f, k, &more), ==, VROCE_ERR_NO_RESOURCES);
        while (n) {
            g_assert_cmpint(drv_number(f->d, k->destroy, numbers[--n]), ==,
                            VROCE_OK);
        }
    }
    expect_works(f);
}

/* -------------------------------------------------------- sizes of objects */

static int try_sizes(struct fixture *f, uint8_t opcode, const void *in,
                     uint32_t len, uint8_t destroy, uint16_t *rule)
{
    uint32_t number;
    int status = drv_try_create(f->d, opcode, in, len, &number, rule);

    if (status == VROCE_OK) {
        g_assert_cmpint(drv_number(f->d, destroy, number), ==, VROCE_OK);
    }
    return status;
}

/* The largest ring of each kind, and one twice as large. */
static void test_rings(struct fixture *f, const void *unused)
{
    struct vroce_buf huge = {
        .addr = htole64(FH_MEM_BASE), .length = htole64(1ull << 32),
    };

    for (uint8_t more = 0; more < 2; more++) {
        struct vroce_create_eq_in eq;
        struct vroce_create_cq_in cq;
        struct vroce_create_srq_in srq;
        struct vroce_create_qp_in qp;
        int want = more ? VROCE_ERR_PARAM : VROCE_OK;
        uint16_t rule;

        eq_request(f, &eq);
        eq.buf = huge;
        eq.log_size = g_bit_storage(le32toh(f->told.max_eqe)) - 1 + more;
        g_assert_cmpint(try_sizes(f, VROCE_CMD_CREATE_EQ, &eq, sizeof(eq),
                                  VROCE_CMD_DESTROY_EQ, &rule), ==, want);

        cq_request(f, &cq);
        cq.buf = huge;
        cq.rec_off = htole32(1u << 31);
        cq.log_size = g_bit_storage(le32toh(f->told.max_cqe)) - 1 + more;
        g_assert_cmpint(try_sizes(f, VROCE_CMD_CREATE_CQ, &cq, sizeof(cq),
                                  VROCE_CMD_DESTROY_CQ, &rule), ==, want);

        srq_request(f, &srq);
        srq.buf = huge;
        srq.rec_off = htole32(1u << 31);
        srq.log_entries = g_bit_storage(le32toh(f->told.max_srq_wr)) - 1 +
                          more;
        g_assert_cmpint(try_sizes(f, VROCE_CMD_CREATE_SRQ, &srq, sizeof(srq),
                                  VROCE_CMD_DESTROY_SRQ, &rule), ==, want);

        for (int send = 0; send < 2; send++) {
            uint8_t log = g_bit_storage(le32toh(f->told.max_qp_wr)) - 1 + more;

            qp_request(f, &qp);
            qp.buf = huge;
            qp.rq_off = htole32(1u << 30);
            qp.rec_off = htole32(1u << 31);
            *(send ? &qp.sq_log_units : &qp.rq_log_entries) = log;
            g_assert_cmpint(try_sizes(f, VROCE_CMD_CREATE_QP, &qp, sizeof(qp),
                                      VROCE_CMD_DESTROY_QP, &rule), ==, want);
        }
        g_assert_cmpint(rule, ==, more ? VROCE_RULE_CMD_PARAM :
                        VROCE_RULE_NONE);
    }
    expect_works(f);
}

/* The last entry of the GID table, and the one behind it. */
static void test_gids(struct fixture *f, const void *unused)
{
    uint32_t num = le32toh(f->told.max_gids);
    uint16_t rule;

    for (uint32_t i = 2; i <= num; i++) {
        struct vroce_set_gid_in in = {
            .gid = { 0xfd, [15] = i }, .index = htole32(i), .valid = 1,
            .vlan = htole16(VROCE_NO_VLAN),
        };
        int status = fh_command(f->h, VROCE_CMD_SET_GID, &in, sizeof(in), NULL,
                                0, &rule);

        g_assert_cmpint(status, ==, i < num ? VROCE_OK : VROCE_ERR_PARAM);
        g_assert_cmpint(rule, ==, i < num ? VROCE_RULE_NONE :
                        VROCE_RULE_CMD_PARAM);
    }
    expect_works(f);
}

/* ---------------------------------------------- room in one send queue */

#define MANY 5000

/*
 * However long the queue and however slow the peer, what the device keeps of
 * WQEs that are under way is bounded; the rest waits and completes in order.
 */
static void test_long_queue(struct fixture *f, const void *silent)
{
    const struct drv_qp_init init = {
        .type = VROCE_QPT_RC, .sq_log = VROCE_MAX_SQ_LOG_UNITS, .rq_log = 0,
        .max_recv_sge = 1, .scq = &f->cq, .rcq = &f->cq,
    };
    struct drv_wr wr = {
        .opcode = VROCE_WQE_WRITE, .flags = VROCE_WQE_SIGNALED,
        .remote_addr = IOVA, .rkey = f->mr.key,
    };
    struct drv_qp qp;
    struct drv_conn c;
    struct vr_qp_info info;
    struct vroce_cqe cqe;

    drv_qp_create(f->d, &qp, &init);
    drv_conn_init(&c);
    drv_av(f->d, 1, 0, &c.av);
    /* A QP of another number takes no packet of ours. */
    c.dest_qpn = silent ? 0xffff : f->qp[1].qpn;
    drv_qp_connect(&qp, &c);
    if (!silent) {
        c.dest_qpn = qp.qpn;
        g_assert_cmpint(drv_try_modify(&f->qp[1], VROCE_QPS_RESET, &c, NULL),
                        ==, VROCE_OK);
        drv_qp_connect(&f->qp[1], &c);
    }

    g_assert_true(drv_post_send(&qp, &wr));
    wr.opcode = VROCE_WQE_NOP;
    for (uint32_t i = 1; i < MANY; i++) {
        wr.wr_id = i;
        wr.flags = i % 1000 == 999 ? VROCE_WQE_SIGNALED : 0;
        g_assert_true(drv_post_send(&qp, &wr));
    }
    drv_ring(&qp);
    fh_settle(f->h, 10000);
    g_assert_true(vr_query_qp(f->h->e, qp.qpn, &info));
    if (silent) {
        g_assert_cmpuint(info.outstanding, ==, 1024);
        g_assert_cmpint(drv_try_modify(&qp, VROCE_QPS_RESET, &c, NULL), ==,
                        VROCE_OK);
    } else {
        g_assert_cmpuint(info.outstanding, ==, 0);
        g_assert_cmpuint(info.sq_consumer, ==, MANY);
        for (uint32_t i = 0; i < 6; i++) {
            g_assert_true(drv_poll(&f->cq, &cqe));
            g_assert_cmpint(cqe.status, ==, VROCE_WCS_SUCCESS);
            g_assert_cmpuint(le64toh(cqe.wr_id), ==, i ? i * 1000 - 1 : 0);
        }
        g_assert_cmpint(drv_try_modify(&f->qp[1], VROCE_QPS_RESET, &c, NULL),
                        ==, VROCE_OK);
        c.dest_qpn = f->qp[0].qpn;
        drv_qp_connect(&f->qp[1], &c);
    }
    drv_qp_destroy(&qp);
    if (silent) {
        expect_works(f);
    }
}

#define ADD(path, data, test) \
    g_test_add("/limits/" path, struct fixture, data, setup, test, teardown)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(kinds); i++) {
        char *path = g_strconcat("/limits/number/", kinds[i].name, NULL);

        g_test_add(path, struct fixture, &kinds[i], setup, test_objects,
                   teardown);
        g_free(path);
    }
    ADD("rings", NULL, test_rings);
    ADD("gids", NULL, test_gids);
    ADD("long-queue/answered", NULL, test_long_queue);
    ADD("long-queue/silent", GINT_TO_POINTER(1), test_long_queue);
    return g_test_run();
}
