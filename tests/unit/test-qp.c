/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QP states: every transition of every type against IBA 10.3.1 (table 91), with
 * and without each attribute; ranges of attributes; what each state refuses.
 */
#include <string.h>

#include "driver.h"

#define LEN(a) G_N_ELEMENTS(a)
#define NUM_STATES (VROCE_QPS_ERR + 1)

static const char *const type_names[] = { "RC", "UC", "UD", "GSI", "ETH" };

/*
 * The specification once more, as one reads it there: for each type a line a
 * transition, "from-to: required / optional". Attributes by letter: a access
 * flags, k P_Key index, p port, q Q_Key, v address vector, m path MTU, t
 * timeout, r retry count, n RNR retry, R RQ PSN, S SQ PSN, x max_rd_atomic,
 * d max_dest_rd_atomic, i min RNR timer, D destination QP, c current state,
 * e SQD notification.
 */
static const char *const legal[][16] = {
    [VROCE_QPT_RC] = {
        "0-1 akp /", "1-1 / akp", "1-2 vmDRdi / ak", "2-3 trnSx / cai",
        "3-3 / cai", "3-4 / e", "4-3 / cai", "4-4 / pvtrnxdaki",
    },
    [VROCE_QPT_UC] = {
        "0-1 akp /", "1-1 / akp", "1-2 vmDR / ak", "2-3 S / ca", "3-3 / ca",
        "3-4 / e", "4-3 / ca", "4-4 / vak", "5-3 / ca",
    },
    [VROCE_QPT_UD] = {
        "0-1 kpq /", "1-1 / kpq", "1-2 / kq", "2-3 S / cq", "3-3 / cq",
        "3-4 / e", "4-3 / cq", "4-4 / kq", "5-3 / cq",
    },
    [VROCE_QPT_GSI] = {
        "0-1 kq / p", "1-1 / kq", "1-2 / kq", "2-3 S / cq", "3-3 / cq",
        "3-4 / e", "4-3 / cq", "4-4 / kq", "5-3 / cq",
    },
    [VROCE_QPT_ETH] = { "0-1 p /", "1-2 /", "2-3 /" },
};

static const struct {
    char letter;
    uint32_t bit;
} letters[] = {
    { 'a', VROCE_QP_ACCESS_FLAGS }, { 'k', VROCE_QP_PKEY_INDEX },
    { 'p', VROCE_QP_PORT }, { 'q', VROCE_QP_QKEY }, { 'v', VROCE_QP_AV },
    { 'm', VROCE_QP_PATH_MTU }, { 't', VROCE_QP_TIMEOUT },
    { 'r', VROCE_QP_RETRY_CNT }, { 'n', VROCE_QP_RNR_RETRY },
    { 'R', VROCE_QP_RQ_PSN }, { 'S', VROCE_QP_SQ_PSN },
    { 'x', VROCE_QP_MAX_RD_ATOMIC }, { 'd', VROCE_QP_MAX_DEST_RD_ATOMIC },
    { 'i', VROCE_QP_MIN_RNR_TIMER }, { 'D', VROCE_QP_DEST_QPN },
    { 'c', VROCE_QP_CUR_STATE }, { 'e', VROCE_QP_EN_SQD_ASYNC_NOTIFY },
};

static uint32_t bit_of(char letter)
{
    for (size_t i = 0; i < LEN(letters); i++) {
        if (letters[i].letter == letter) {
            return letters[i].bit;
        }
    }
    g_assert_not_reached();
}

/* False: there is no such transition. */
static bool expected(uint8_t type, int from, int to, uint32_t *required,
                     uint32_t *optional)
{
    uint32_t *mask = required;

    *required = *optional = 0;
    if (to == VROCE_QPS_RESET || (to == VROCE_QPS_ERR && from)) {
        return true;
    }
    for (size_t i = 0; i < LEN(legal[type]) && legal[type][i]; i++) {
        const char *line = legal[type][i];

        if (line[0] != '0' + from || line[2] != '0' + to) {
            continue;
        }
        for (line += 3; *line; line++) {
            if (*line == '/') {
                mask = optional;
            } else if (*line != ' ') {
                *mask |= bit_of(*line);
            }
        }
        return true;
    }
    return false;
}

/* A device with one QP, and attributes that are all in range. */
struct world {
    struct fakehost *h;
    struct drv *d;
    struct drv_cq cq;
    struct drv_qp qp;
    struct drv_conn conn;
    struct vroce_qp_attr attr;
};

static void world_init(struct world *w, uint8_t type)
{
    struct drv_qp_init init = {
        .type = type, .sq_log = 4, .rq_log = 4, .max_recv_sge = 1,
        .scq = &w->cq, .rcq = &w->cq,
    };

    w->h = fh_new(NULL, 1);
    w->d = drv_new(w->h, 1);
    drv_cq_create(w->d, &w->cq, 8, NULL);
    drv_qp_create(w->d, &w->qp, &init);
    drv_conn_init(&w->conn);
    w->conn.dest_qpn = w->qp.qpn;
    w->conn.qkey = 0x1234;
    drv_av(w->d, 1, 0, &w->conn.av);
    w->attr = (struct vroce_qp_attr) {
        .path_mtu = 3, .port = 1, .timeout = 14, .retry_cnt = 7,
        .rnr_retry = 7, .min_rnr_timer = 12, .max_rd_atomic = 1,
        .max_dest_rd_atomic = 1, .access_flags = htole32(1),
        .qkey = htole32(0x1234), .dest_qpn = htole32(w->qp.qpn),
        .av = w->conn.av,
    };
}

static void world_fini(struct world *w)
{
    drv_qp_destroy(&w->qp);
    drv_cq_destroy(&w->cq);
    drv_free(w->d);
    fh_free(w->h);
}

static int modify(struct world *w, int to, uint32_t mask, uint16_t *rule)
{
    struct vroce_modify_qp_in in = {
        .qpn = htole32(w->qp.qpn),
        .attr_mask = htole32(mask | VROCE_QP_STATE),
        .attr = w->attr,
    };

    in.attr.state = to;
    *rule = 0;
    return fh_command(w->h, VROCE_CMD_MODIFY_QP, &in, sizeof(in), NULL, 0,
                      rule);
}

static int state_of(struct world *w)
{
    struct vr_qp_info info;

    g_assert_true(vr_query_qp(w->h->e, w->qp.qpn, &info));
    return info.state;
}

/* A send WQE that names no GID brings a datagram QP into SQE. */
static void break_send_queue(struct world *w)
{
    struct drv_wr wr = { .opcode = VROCE_WQE_SEND, .num_sge = 1 };
    struct vroce_cqe cqe;

    wr.av.sgid_index = htole16(7);
    wr.sge[0].length = 1;       /* no region has key 0 */
    g_assert_true(drv_post_send(&w->qp, &wr));
    drv_ring(&w->qp);
    fh_settle(w->h, 10);
    g_assert_true(drv_poll(&w->cq, &cqe));
    g_assert_cmpint(cqe.status, !=, VROCE_WCS_SUCCESS);
    g_assert_cmpint(cqe.status, !=, VROCE_WCS_WR_FLUSH_ERR);
}

/* From wherever it is to `state`; false: this type never gets there. */
static bool bring_to(struct world *w, int state)
{
    int type = w->qp.type;
    uint16_t rule;

    if ((state == VROCE_QPS_SQD && type == VROCE_QPT_ETH) ||
        (state == VROCE_QPS_SQE &&
         (type == VROCE_QPT_RC || type == VROCE_QPT_ETH))) {
        return false;
    }
    g_assert_cmpint(drv_try_modify(&w->qp, VROCE_QPS_RESET, &w->conn, &rule),
                    ==, VROCE_OK);
    for (int s = VROCE_QPS_INIT; s <= MIN(state, VROCE_QPS_RTS); s++) {
        uint32_t required, optional;

        g_assert_true(expected(type, s - 1, s, &required, &optional));
        g_assert_cmpint(modify(w, s, required, &rule), ==, VROCE_OK);
    }
    if (state == VROCE_QPS_SQE) {
        break_send_queue(w);
    } else if (state > VROCE_QPS_RTS) {
        g_assert_cmpint(modify(w, state, 0, &rule), ==, VROCE_OK);
    }
    fh_settle(w->h, 10);
    g_assert_cmpint(state_of(w), ==, state);
    return true;
}

static void check_refused(struct world *w, int from, int to, uint32_t mask,
                          enum vroce_rule want)
{
    uint16_t rule;
    int status = modify(w, to, mask, &rule);

    if (status == VROCE_OK || rule != want) {
        g_error("%s QP, %s to %s, mask 0x%x: status %d, rule %s",
                type_names[w->qp.type], vr_qp_state_name(from),
                vr_qp_state_name(to), mask, status, vr_rule_name(rule));
    }
    g_assert_cmpint(state_of(w), ==, from);
}

static void check_accepted(struct world *w, int from, int to, uint32_t mask)
{
    uint16_t rule;
    int status = modify(w, to, mask, &rule);

    if (status != VROCE_OK) {
        g_error("%s QP, %s to %s, mask 0x%x: status %d, rule %s",
                type_names[w->qp.type], vr_qp_state_name(from),
                vr_qp_state_name(to), mask, status, vr_rule_name(rule));
    }
    fh_settle(w->h, 10);
    g_assert_cmpint(state_of(w), ==, to);
    g_assert_true(bring_to(w, from));
}

static void check_pair(struct world *w, int from, int to)
{
    uint32_t required, optional;

    w->attr.cur_state = from;
    if (!expected(w->qp.type, from, to, &required, &optional)) {
        check_refused(w, from, to, 0, VROCE_RULE_QP_TRANSITION);
        return;
    }
    check_accepted(w, from, to, required);
    check_accepted(w, from, to, required | optional);
    for (size_t i = 0; i < LEN(letters); i++) {
        uint32_t bit = letters[i].bit;

        if (required & bit) {
            check_refused(w, from, to, required & ~bit, VROCE_RULE_QP_ATTR);
        } else if (optional & bit) {
            check_accepted(w, from, to, required | bit);
        } else {
            check_refused(w, from, to, required | bit,
                          VROCE_RULE_QP_ATTR);
        }
    }
}

static void test_transitions(gconstpointer data)
{
    struct world w;

    world_init(&w, GPOINTER_TO_INT(data));
    for (int from = 0; from < NUM_STATES; from++) {
        if (!bring_to(&w, from)) {
            continue;
        }
        for (int to = 0; to < NUM_STATES; to++) {
            check_pair(&w, from, to);
        }
    }
    world_fini(&w);
}

/* ------------------------------------------------------------- ranges */

static void test_ranges(void)
{
    static const struct {
        size_t offset;
        uint8_t size;
        uint32_t bad, last_good;
        int from, to;
    } cases[] = {
#define CASE(field, bad, good, from, to) \
        { offsetof(struct vroce_qp_attr, field), \
          sizeof(((struct vroce_qp_attr *)0)->field), bad, good, from, to }
        CASE(port, 0, 1, 0, 1),
        CASE(port, 2, 1, 0, 1),
        CASE(pkey_index, 1, 0, 0, 1),
        CASE(access_flags, 1u << 5, 0x1f, 0, 1),
        CASE(access_flags, 1u << 31, 0, 0, 1),
        CASE(path_mtu, 0, 1, 1, 2),
        CASE(path_mtu, 6, 5, 1, 2),
        CASE(path_mtu, 255, 5, 1, 2),
        CASE(rq_psn, 1u << 24, 0xffffff, 1, 2),
        CASE(dest_qpn, 1u << 24, 0xffffff, 1, 2),
        CASE(max_dest_rd_atomic, 17, 16, 1, 2),
        CASE(min_rnr_timer, 32, 31, 1, 2),
        CASE(timeout, 32, 31, 2, 3),
        CASE(retry_cnt, 8, 7, 2, 3),
        CASE(rnr_retry, 8, 7, 2, 3),
        CASE(sq_psn, 1u << 24, 0xffffff, 2, 3),
        CASE(max_rd_atomic, 17, 16, 2, 3),
#undef CASE
    };
    struct world w;

    world_init(&w, VROCE_QPT_RC);
    for (size_t i = 0; i < LEN(cases); i++) {
        struct vroce_qp_attr good = w.attr;
        uint8_t *field = (uint8_t *)&w.attr + cases[i].offset;
        uint32_t bad = htole32(cases[i].bad);
        uint32_t last = htole32(cases[i].last_good);
        uint32_t required, optional;

        g_assert_true(bring_to(&w, cases[i].from));
        expected(VROCE_QPT_RC, cases[i].from, cases[i].to, &required,
                 &optional);
        memcpy(field, &bad, cases[i].size);
        check_refused(&w, cases[i].from, cases[i].to, required,
                      VROCE_RULE_QP_ATTR);
        memcpy(field, &last, cases[i].size);
        check_accepted(&w, cases[i].from, cases[i].to, required);
        w.attr = good;
    }
    world_fini(&w);
}

static void test_source_gid(void)
{
    uint32_t required, optional;
    struct world w;

    world_init(&w, VROCE_QPT_RC);
    g_assert_true(bring_to(&w, VROCE_QPS_INIT));
    expected(VROCE_QPT_RC, VROCE_QPS_INIT, VROCE_QPS_RTR, &required, &optional);
    w.attr.av.sgid_index = htole16(9);
    check_refused(&w, VROCE_QPS_INIT, VROCE_QPS_RTR, required, VROCE_RULE_GID);
    world_fini(&w);
}

/* cur_state must be the state that the QP is in. */
static void test_current_state(void)
{
    struct world w;
    uint16_t rule;

    world_init(&w, VROCE_QPT_RC);
    g_assert_true(bring_to(&w, VROCE_QPS_RTS));
    w.attr.cur_state = VROCE_QPS_SQD;
    g_assert_cmpint(modify(&w, VROCE_QPS_RTS, VROCE_QP_CUR_STATE, &rule), ==,
                    VROCE_ERR_STATE);
    g_assert_cmpint(rule, ==, VROCE_RULE_QP_TRANSITION);
    g_assert_cmpint(state_of(&w), ==, VROCE_QPS_RTS);
    world_fini(&w);
}

/* What the device does not have, and bits that mean nothing, in any state. */
static void test_unsupported(void)
{
    static const struct {
        uint32_t bit;
        enum vroce_status status;
    } cases[] = {
        { 1u << 14, VROCE_ERR_UNSUPPORTED },    /* ALT_PATH */
        { 1u << 18, VROCE_ERR_UNSUPPORTED },    /* PATH_MIG_STATE */
        { 1u << 19, VROCE_ERR_UNSUPPORTED },    /* CAP */
        { 1u << 21, VROCE_ERR_PARAM },
        { 1u << 31, VROCE_ERR_PARAM },
    };
    struct world w;
    uint16_t rule;

    world_init(&w, VROCE_QPT_RC);
    for (int from = VROCE_QPS_RESET; from <= VROCE_QPS_SQD; from++) {
        for (size_t i = 0; i < LEN(cases); i++) {
            int to = MIN(from + 1, VROCE_QPS_SQD);
            uint32_t required, optional;

            g_assert_true(bring_to(&w, from));
            g_assert_true(expected(VROCE_QPT_RC, from, to, &required,
                                   &optional));
            g_assert_cmpint(modify(&w, to, required | cases[i].bit, &rule), ==,
                            cases[i].status);
            g_assert_cmpint(rule, ==, VROCE_RULE_QP_ATTR);
            g_assert_cmpint(state_of(&w), ==, from);
        }
    }
    world_fini(&w);
}

/* ---------------------------------------------------------- doorbells */

/* Send work is refused before RTS, and flushed in ERR. */
static void test_doorbell_states(void)
{
    struct drv_wr wr = { .opcode = VROCE_WQE_SEND, .wr_id = 77 };
    struct vroce_cqe cqe;
    struct world w;

    world_init(&w, VROCE_QPT_RC);
    for (int state = VROCE_QPS_RESET; state < VROCE_QPS_RTS; state++) {
        uint64_t before = w.h->rules[VROCE_RULE_DB_STATE];

        g_assert_true(bring_to(&w, state));
        g_assert_true(drv_post_send(&w.qp, &wr));
        drv_ring(&w.qp);
        fh_settle(w.h, 10);
        g_assert_cmpuint(w.h->rules[VROCE_RULE_DB_STATE], ==, before + 1);
        g_assert_false(drv_poll(&w.cq, &cqe));
    }

    g_assert_true(bring_to(&w, VROCE_QPS_ERR));
    g_assert_true(drv_post_send(&w.qp, &wr));
    drv_ring(&w.qp);
    fh_settle(w.h, 10);
    g_assert_true(drv_poll(&w.cq, &cqe));
    g_assert_cmpint(cqe.status, ==, VROCE_WCS_WR_FLUSH_ERR);
    g_assert_cmpuint(le64toh(cqe.wr_id), ==, 77);
    world_fini(&w);
}

/* Receives are flushed: those posted before ERR, and later ones when rung. */
static void test_receive_flush(void)
{
    struct drv_wr wr = { .wr_id = 1 };
    struct vroce_cqe cqe;
    struct world w;
    uint16_t rule;

    world_init(&w, VROCE_QPT_RC);
    g_assert_true(bring_to(&w, VROCE_QPS_RTR));
    g_assert_true(drv_post_recv(&w.qp, &wr));
    g_assert_cmpint(modify(&w, VROCE_QPS_ERR, 0, &rule), ==, VROCE_OK);
    fh_settle(w.h, 10);
    g_assert_true(drv_poll(&w.cq, &cqe));
    g_assert_cmpint(cqe.status, ==, VROCE_WCS_WR_FLUSH_ERR);
    g_assert_cmpint(cqe.opcode, ==, VROCE_WC_RECV);
    g_assert_cmpuint(le64toh(cqe.wr_id), ==, 1);

    wr.wr_id = 2;
    g_assert_true(drv_post_recv(&w.qp, &wr));
    fh_doorbell(w.h, 0, vroce_doorbell(VROCE_DB_RQ, w.qp.qpn,
                                       w.qp.rq_producer));
    fh_settle(w.h, 10);
    g_assert_true(drv_poll(&w.cq, &cqe));
    g_assert_cmpuint(le64toh(cqe.wr_id), ==, 2);
    g_assert_false(drv_poll(&w.cq, &cqe));
    world_fini(&w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (int type = 0; type < (int)LEN(type_names); type++) {
        g_autofree char *path = g_strdup_printf("/qp/transitions/%s",
                                                type_names[type]);

        g_test_add_data_func(path, GINT_TO_POINTER(type), test_transitions);
    }
    g_test_add_func("/qp/ranges", test_ranges);
    g_test_add_func("/qp/source-gid", test_source_gid);
    g_test_add_func("/qp/current-state", test_current_state);
    g_test_add_func("/qp/unsupported", test_unsupported);
    g_test_add_func("/qp/doorbell-states", test_doorbell_states);
    g_test_add_func("/qp/receive-flush", test_receive_flush);
    return g_test_run();
}
