/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The command set as a whole: lengths, reserved fields, numbers, limits. */
#include <endian.h>
#include <string.h>

#include "driver.h"
#include "vr_internal.h"

static const struct {
    uint8_t opcode;
    uint16_t in_len, out_len;
} commands[] = {
    { VROCE_CMD_QUERY_DEVICE, 0, 136 },
    { VROCE_CMD_QUERY_COUNTERS, 0, 8 * VROCE_CNT_NUM },
    { VROCE_CMD_ALLOC_CONTEXT, 0, 8 },
    { VROCE_CMD_FREE_CONTEXT, 8, 0 },
    { VROCE_CMD_ALLOC_PD, 0, 8 },
    { VROCE_CMD_FREE_PD, 8, 0 },
    { VROCE_CMD_CREATE_EQ, 32, 8 },
    { VROCE_CMD_DESTROY_EQ, 8, 0 },
    { VROCE_CMD_CREATE_CQ, 40, 8 },
    { VROCE_CMD_DESTROY_CQ, 8, 0 },
    { VROCE_CMD_RESIZE_CQ, 40, 0 },
    { VROCE_CMD_MODIFY_CQ, 8, 0 },
    { VROCE_CMD_CREATE_SRQ, 40, 8 },
    { VROCE_CMD_DESTROY_SRQ, 8, 0 },
    { VROCE_CMD_MODIFY_SRQ, 8, 0 },
    { VROCE_CMD_QUERY_SRQ, 8, 8 },
    { VROCE_CMD_CREATE_QP, 64, 8 },
    { VROCE_CMD_DESTROY_QP, 8, 0 },
    { VROCE_CMD_MODIFY_QP, 96, 0 },
    { VROCE_CMD_QUERY_QP, 8, 88 },
    { VROCE_CMD_CREATE_MR, 48, 8 },
    { VROCE_CMD_DESTROY_MR, 8, 0 },
    { VROCE_CMD_UPDATE_MR, 56, 0 },
    { VROCE_CMD_SET_GID, 32, 0 },
    { VROCE_CMD_SET_NETDEV, 16, 0 },
    { VROCE_CMD_ATTACH_MCAST, 24, 0 },
    { VROCE_CMD_DETACH_MCAST, 24, 0 },
};

static bool is_command(uint8_t opcode)
{
    for (size_t i = 0; i < G_N_ELEMENTS(commands); i++) {
        if (commands[i].opcode == opcode) {
            return true;
        }
    }
    return false;
}

/* Every opcode: its length is checked, and a refusal changes nothing. */
static void test_lengths(void)
{
    struct fakehost *h = fh_new(NULL, 1);
    uint8_t in[VR_CMD_MAX_LEN + 8] = { 0 }, out[VR_CMD_MAX_LEN];
    uint16_t rule;

    for (size_t i = 0; i < G_N_ELEMENTS(commands); i++) {
        uint8_t op = commands[i].opcode;
        uint32_t len = commands[i].in_len, room = commands[i].out_len;

        g_assert_nonnull(vr_command_name(op));
        g_assert_cmpuint(MAX(len, room), <=, VR_CMD_MAX_LEN);
        g_assert_cmpint(fh_command(h, op, in, len + 1, out, room, &rule), ==,
                        VROCE_ERR_LENGTH);
        g_assert_cmpint(rule, ==, VROCE_RULE_CMD_LENGTH);
        if (len) {
            g_assert_cmpint(fh_command(h, op, in, len - 1, out, room, &rule),
                            ==, VROCE_ERR_LENGTH);
            g_assert_cmpint(fh_command(h, op, NULL, 0, out, room, &rule), ==,
                            VROCE_ERR_LENGTH);
        }
        if (room) {
            g_assert_cmpint(fh_command(h, op, in, len, out, room - 1, &rule),
                            ==, VROCE_ERR_LENGTH);
        }
        /* Zeroes name no object. */
        if (len) {
            g_assert_cmpint(fh_command(h, op, in, len, out, room, &rule), !=,
                            VROCE_ERR_LENGTH);
        }
    }
    for (int op = 0; op < 256; op++) {
        if (is_command(op)) {
            continue;
        }
        g_assert_null(vr_command_name(op));
        g_assert_cmpint(fh_command(h, op, NULL, 0, NULL, 0, &rule), ==,
                        VROCE_ERR_OPCODE);
        g_assert_cmpint(rule, ==, VROCE_RULE_CMD_OPCODE);
    }
    g_assert_cmpuint(h->e->qps.used + h->e->cqs.used + h->e->eqs.used +
                     h->e->mrs.used + h->e->srqs.used + h->e->pds.used, ==, 0);
    fh_free(h);
}

static void test_reserved(void)
{
#define AT(type, field) offsetof(struct type, field), sizeof(struct type)
    static const struct {
        uint8_t opcode;
        size_t off, len;
    } cases[] = {
        { VROCE_CMD_FREE_PD, AT(vroce_number, reserved) },
        { VROCE_CMD_DESTROY_MR, AT(vroce_number, reserved) },
        { VROCE_CMD_QUERY_QP, AT(vroce_number, reserved) },
        { VROCE_CMD_CREATE_EQ, AT(vroce_create_eq_in, reserved[1]) },
        { VROCE_CMD_CREATE_EQ, AT(vroce_create_eq_in, buf.reserved[1]) },
        { VROCE_CMD_CREATE_CQ, AT(vroce_create_cq_in, reserved[2]) },
        { VROCE_CMD_RESIZE_CQ, AT(vroce_resize_cq_in, reserved[6]) },
        { VROCE_CMD_CREATE_SRQ, AT(vroce_create_srq_in, reserved[0]) },
        { VROCE_CMD_CREATE_QP, AT(vroce_create_qp_in, reserved) },
        { VROCE_CMD_MODIFY_QP, AT(vroce_modify_qp_in, attr.reserved0) },
        { VROCE_CMD_MODIFY_QP, AT(vroce_modify_qp_in, attr.reserved1[2]) },
        { VROCE_CMD_MODIFY_QP, AT(vroce_modify_qp_in, attr.av.reserved0) },
        { VROCE_CMD_MODIFY_QP, AT(vroce_modify_qp_in, attr.av.reserved1[5]) },
        { VROCE_CMD_CREATE_MR, AT(vroce_create_mr_in, reserved0[0]) },
        { VROCE_CMD_UPDATE_MR, AT(vroce_update_mr_in, mr.reserved0[2]) },
        { VROCE_CMD_SET_GID, AT(vroce_set_gid_in, reserved[2]) },
        { VROCE_CMD_ATTACH_MCAST, AT(vroce_mcast_in, reserved) },
    };
    struct fakehost *h = fh_new(NULL, 2);
    uint8_t out[VR_CMD_MAX_LEN];
    uint16_t rule;

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        uint8_t in[VR_CMD_MAX_LEN] = { 0 };

        in[cases[i].off] = 0x40;
        g_assert_cmpint(fh_command(h, cases[i].opcode, in, cases[i].len, out,
                                   sizeof(out), &rule), ==, VROCE_ERR_PARAM);
        g_assert_cmpint(rule, ==, VROCE_RULE_RESERVED);
    }
    g_assert_cmpuint(h->e->counters[VROCE_CNT_COMMAND_ERRORS], ==,
                     G_N_ELEMENTS(cases));
    fh_free(h);
}

/* Numbers that name nothing: 0, too large, destroyed. */
static void test_numbers(void)
{
    static const uint8_t opcodes[] = {
        VROCE_CMD_FREE_CONTEXT, VROCE_CMD_FREE_PD, VROCE_CMD_DESTROY_EQ,
        VROCE_CMD_DESTROY_CQ, VROCE_CMD_DESTROY_SRQ, VROCE_CMD_QUERY_SRQ,
        VROCE_CMD_DESTROY_QP, VROCE_CMD_QUERY_QP, VROCE_CMD_DESTROY_MR,
    };
    static const uint32_t numbers[] = {
        0, 1, 2, 77, 0xffffff, 0x1000000, UINT32_MAX - 1, UINT32_MAX
    };
    struct fakehost *h = fh_new(NULL, 3);
    uint8_t out[VR_CMD_MAX_LEN];
    uint16_t rule;

    for (size_t i = 0; i < G_N_ELEMENTS(opcodes); i++) {
        for (size_t k = 0; k < G_N_ELEMENTS(numbers); k++) {
            struct vroce_number in = { .number = htole32(numbers[k]) };
            int status = fh_command(h, opcodes[i], &in, sizeof(in), out,
                                    sizeof(out), &rule);

            if (opcodes[i] == VROCE_CMD_FREE_CONTEXT && !numbers[k]) {
                g_assert_cmpint(status, ==, VROCE_ERR_PERMISSION);
                g_assert_cmpint(rule, ==, VROCE_RULE_PRIVILEGE);
            } else {
                g_assert_cmpint(status, ==, VROCE_ERR_NUMBER);
                g_assert_cmpint(rule, ==, VROCE_RULE_NO_OBJECT);
            }
        }
    }
    fh_free(h);
}

/* Each table fills up to what QUERY_DEVICE says, and empties again. */
static void test_limits(void)
{
    struct vroce_query_device_out dev;
    struct vr_config cfg;
    struct fakehost *h;
    struct drv *d;
    uint32_t pds[10], pages[10], n, c;
    uint16_t rule;

    vr_config_init(&cfg);
    cfg.num_pds = 6;
    cfg.num_contexts = 4;
    memcpy(cfg.mac, "\x52\x54\x00\x77\x00\x01", 6);
    h = fh_new(&cfg, 4);
    d = drv_new(h, 1);
    g_assert_cmpint(fh_command(h, VROCE_CMD_QUERY_DEVICE, NULL, 0, &dev,
                               sizeof(dev), &rule), ==, VROCE_OK);
    g_assert_cmpmem(&dev.node_guid, 8, "\x50\x54\x00\xff\xfe\x77\x00\x01", 8);
    g_assert_cmpuint(le32toh(dev.max_sge), ==, 16);
    g_assert_cmpuint(le32toh(dev.max_pd), ==, 5);
    g_assert_cmpuint(le32toh(dev.max_contexts), ==, 3);
    for (n = 0; drv_try_create(d, VROCE_CMD_ALLOC_PD, NULL, 0, &pds[n],
                               &rule) == VROCE_OK; n++) {
        g_assert_cmpuint(pds[n], !=, 0);
    }
    g_assert_cmpuint(n, ==, 4);         /* and the one of drv_new() */
    for (c = 0; drv_try_create(d, VROCE_CMD_ALLOC_CONTEXT, NULL, 0, &pages[c],
                               &rule) == VROCE_OK; c++) {
        g_assert_cmpuint(pages[c], !=, 0);
    }
    g_assert_cmpuint(c, ==, 3);
    while (n) {
        g_assert_cmpint(drv_number(d, VROCE_CMD_FREE_PD, pds[--n]), ==, 0);
    }
    while (c) {
        g_assert_cmpint(drv_number(d, VROCE_CMD_FREE_CONTEXT, pages[--c]), ==,
                        0);
    }
    drv_free(d);
    fh_free(h);
}

/* Numbers are not given out again at once. */
static void test_reuse(void)
{
    struct fakehost *h = fh_new(NULL, 5);
    struct drv *d = drv_new(h, 1);
    uint32_t last = 0, pdn;
    uint16_t rule;

    for (int i = 0; i < 1000; i++) {
        g_assert_cmpint(drv_try_create(d, VROCE_CMD_ALLOC_PD, NULL, 0, &pdn,
                                       &rule), ==, 0);
        g_assert_cmpuint(pdn, >, last);
        last = pdn;
        g_assert_cmpint(drv_number(d, VROCE_CMD_FREE_PD, pdn), ==, 0);
    }
    drv_free(d);
    fh_free(h);
}

static int set_gid(struct fakehost *h, struct vroce_set_gid_in in,
                   uint16_t *rule)
{
    return fh_command(h, VROCE_CMD_SET_GID, &in, sizeof(in), NULL, 0, rule);
}

static void test_gids(void)
{
    struct fakehost *h = fh_new(NULL, 6);
    struct vroce_set_gid_in good = {
        .gid = { 0xfd, [15] = 1 }, .mac = { 0x52 }, .valid = 1,
        .vlan = htole16(VROCE_NO_VLAN),
    }, in;
    struct vr_gid_info info;
    struct vroce_av av = { .dgid = { 0xfd, [15] = 9 } };
    struct vr_route route;
    uint16_t rule;

#define REFUSED(change) \
    do { \
        in = good; \
        change; \
        g_assert_cmpint(set_gid(h, in, &rule), ==, VROCE_ERR_PARAM); \
        g_assert_cmpint(rule, ==, VROCE_RULE_CMD_PARAM); \
    } while (0)

    REFUSED(in.index = htole32(h->cfg.num_gids));
    REFUSED(in.index = htole32(UINT32_MAX));
    REFUSED(in.valid = 2);
    REFUSED(memset(in.gid, 0, 16));
    REFUSED(in.mac[0] = 1);
    REFUSED(in.vlan = htole16(4096));

    g_assert_cmpint(vr_gid_find(h->e, good.gid, VROCE_NO_VLAN), ==, -1);
    good.index = htole32(5);
    g_assert_cmpint(set_gid(h, good, &rule), ==, VROCE_OK);
    g_assert_cmpint(vr_gid_find(h->e, good.gid, VROCE_NO_VLAN), ==, 5);
    g_assert_cmpint(vr_gid_find(h->e, good.gid, 7), ==, -1);
    good.vlan = htole16(7);
    good.index = htole32(2);
    g_assert_cmpint(set_gid(h, good, &rule), ==, VROCE_OK);
    g_assert_cmpint(vr_gid_find(h->e, good.gid, 7), ==, 2);
    g_assert_true(vr_query_gid(h->e, 2, &info));
    g_assert_cmpuint(info.vlan, ==, 7);

    g_assert_true(vr_route_from_av(h->e, &av, 1, 2, &route) == false);
    av.sgid_index = htole16(2);
    g_assert_true(vr_route_from_av(h->e, &av, 17, 0x4321, &route));
    g_assert_cmpuint(route.vlan, ==, 7);
    g_assert_cmpuint(route.udp_sport, >=, 0xc000);
    av.udp_sport = htole16(0x1234);
    g_assert_true(vr_route_from_av(h->e, &av, 17, 0x4321, &route));
    g_assert_cmphex(route.udp_sport, ==, 0x1234);
    /* An IPv4 destination from an IPv6 address is no packet. */
    memset(av.dgid, 0, 10);
    memset(av.dgid + 10, 0xff, 2);
    g_assert_false(vr_route_from_av(h->e, &av, 17, 2, &route));

    good.valid = 0;
    g_assert_cmpint(set_gid(h, good, &rule), ==, VROCE_OK);
    g_assert_cmpint(vr_gid_find(h->e, good.gid, 7), ==, -1);
    g_assert_cmpint(vr_gid_find(h->e, good.gid, VROCE_NO_VLAN), ==, 5);
    fh_free(h);
}

static void test_netdev(void)
{
    struct fakehost *h = fh_new(NULL, 7);
    struct vroce_set_netdev_in good = {
        .qpn = htole32(VROCE_NONE), .mac = { 0x52 }, .mtu = htole16(1500),
    }, in;
    uint16_t rule;

#undef REFUSED
#define REFUSED(change, want) \
    do { \
        in = good; \
        change; \
        g_assert_cmpint(fh_command(h, VROCE_CMD_SET_NETDEV, &in, sizeof(in), \
                                   NULL, 0, &rule), ==, want); \
    } while (0)

    REFUSED((void)0, VROCE_OK);
    REFUSED(in.qpn = htole32(2), VROCE_ERR_NUMBER);
    REFUSED(in.flags = htole32(2), VROCE_ERR_PARAM);
    REFUSED(in.mac[0] |= 1, VROCE_ERR_PARAM);
    REFUSED(in.mtu = htole16(67), VROCE_ERR_PARAM);
    REFUSED(in.mtu = htole16(h->cfg.max_mtu + 1), VROCE_ERR_PARAM);
    fh_free(h);
}

/* Not enabled, or dead: nothing but a reset helps. */
static void test_states(void)
{
    struct fakehost *h = fh_new(NULL, 8);
    struct vroce_number out;

    g_assert_cmpint(fh_command(h, VROCE_CMD_ALLOC_PD, NULL, 0, &out, 8, NULL),
                    ==, VROCE_OK);
    vr_set_enabled(h->e, false, h->now);
    g_assert_cmpint(fh_command(h, VROCE_CMD_ALLOC_PD, NULL, 0, &out, 8, NULL),
                    ==, VROCE_ERR_STATE);
    fh_doorbell(h, 0, vroce_doorbell(VROCE_DB_SQ, 2, 1));
    g_assert_cmpuint(h->e->counters[VROCE_CNT_MISUSE], ==, 0);
    fh_reset(h);
    g_assert_cmpint(fh_command(h, VROCE_CMD_ALLOC_PD, NULL, 0, &out, 8, NULL),
                    ==, VROCE_ERR_STATE);
    vr_set_enabled(h->e, true, h->now);
    g_assert_cmpint(fh_command(h, VROCE_CMD_ALLOC_PD, NULL, 0, &out, 8, NULL),
                    ==, VROCE_OK);
    g_assert_cmpint(fh_command(h, VROCE_CMD_ATTACH_MCAST,
                               &(struct vroce_mcast_in) { 0 },
                               sizeof(struct vroce_mcast_in), NULL, 0, NULL),
                    ==, VROCE_ERR_UNSUPPORTED);
    fh_free(h);
}

/* What the host checks device properties against. */
static void test_config(void)
{
    for (size_t i = 0; i < vr_num_limits; i++) {
        const struct vr_limit *l = &vr_limits[i];
        static const struct vr_host_ops no_ops;
        const char *err = NULL;

        g_assert_cmpuint(l->min, <=, l->dflt);
        g_assert_cmpuint(l->dflt, <=, l->max);
        for (int low = 0; low < 2; low++) {
            struct vr_config cfg;
            uint64_t value = low ? l->min - 1 : l->max + 1;

            if (low && !l->min) {
                continue;
            }
            vr_config_init(&cfg);
            memcpy((char *)&cfg + l->offset, &value, l->size);
            g_assert_null(vr_engine_new(&cfg, &no_ops, NULL, &err));
            g_assert_nonnull(strstr(err, l->name));
        }
    }
}

static void test_names(void)
{
    for (int i = 0; i < VROCE_CNT_NUM; i++) {
        g_assert_nonnull(vr_counter_name(i));
    }
    for (int i = 0; i < VROCE_RULE_NUM; i++) {
        g_assert_nonnull(vr_rule_name(i));
        g_assert_nonnull(vr_rule_text(i));
    }
    g_assert_null(vr_counter_name(VROCE_CNT_NUM));
    g_assert_null(vr_rule_name(VROCE_RULE_NUM));
    g_assert_cmpstr(vr_qp_state_name(VROCE_QPS_SQE), ==, "sqe");
    g_assert_null(vr_qp_state_name(7));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/cmd/lengths", test_lengths);
    g_test_add_func("/cmd/reserved", test_reserved);
    g_test_add_func("/cmd/numbers", test_numbers);
    g_test_add_func("/cmd/limits", test_limits);
    g_test_add_func("/cmd/reuse", test_reuse);
    g_test_add_func("/cmd/gids", test_gids);
    g_test_add_func("/cmd/netdev", test_netdev);
    g_test_add_func("/cmd/states", test_states);
    g_test_add_func("/cmd/config", test_config);
    g_test_add_func("/cmd/names", test_names);
    return g_test_run();
}
