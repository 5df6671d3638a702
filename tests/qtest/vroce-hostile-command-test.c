/*
 * QTest of the vroce RDMA network card: commands of a hostile guest, modelled
 * on the causes of the published faults of pvrdma, the RDMA device that QEMU
 * had before
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "vroce-hostile.h"

#define BUF_CASES(OPCODE, type, buf)                                          \
    { #type ": page list that is not there", OPCODE,                          \
      { POKE(type, buf.addr, NOWHERE) }, VROCE_ERR_DMA, VROCE_RULE_CMD_DMA }, \
    { #type ": page list in the card's registers", OPCODE,                    \
      { POKE_AT(type, buf.addr, AT_REGISTERS) }, VROCE_ERR_DMA,               \
      VROCE_RULE_CMD_DMA },                                                   \
    { #type ": page list in the card's doorbells", OPCODE,                    \
      { POKE_AT(type, buf.addr, AT_DOORBELLS) }, VROCE_ERR_DMA,               \
      VROCE_RULE_CMD_DMA },                                                   \
    { #type ": page list at the end of all addresses", OPCODE,                \
      { POKE(type, buf.addr, UINT64_MAX - 7) }, VROCE_ERR_PARAM,              \
      VROCE_RULE_PAGE_LIST },                                                 \
    { #type ": page list at an odd address", OPCODE,                          \
      { POKE(type, buf.addr, 0x100001) }, VROCE_ERR_PARAM,                    \
      VROCE_RULE_PAGE_LIST },                                                 \
    { #type ": entries without VALID", OPCODE,                                \
      { POKE_AT(type, buf.addr, AT_JUNK_LIST) }, VROCE_ERR_PARAM,             \
      VROCE_RULE_PAGE_LIST },                                                 \
    { #type ": entries with address bits set below the page", OPCODE,         \
      { POKE_AT(type, buf.addr, AT_UNALIGNED_LIST) }, VROCE_ERR_PARAM,        \
      VROCE_RULE_PAGE_LIST },                                                 \
    /* 1 << 22 entries of 2 GiB: CVE-2021-3607, CVE-2023-1544 */              \
    { #type ": as many page entries as can be", OPCODE,                       \
      { POKE(type, buf.length, 1ull << 53), POKE(type, buf.page_shift, 31) }, \
      VROCE_ERR_NO_RESOURCES, VROCE_RULE_NONE },                              \
    { #type ": more page entries than may be kept", OPCODE,                   \
      { POKE(type, buf.length, (MAX_PAGES + 1) * 4096ull) },                  \
      VROCE_ERR_NO_RESOURCES, VROCE_RULE_NONE },                              \
    /* The page count of one field, the length of another: CVE-2021-3582 */   \
    { #type ": more pages than the levels hold", OPCODE,                      \
      { POKE(type, buf.levels, 2),                                            \
        POKE(type, buf.length, ((512ull * 512) << 12) + 1) },                 \
      VROCE_ERR_PARAM, VROCE_RULE_PAGE_LIST },                                \
    { #type ": length of all there is", OPCODE,                               \
      { POKE(type, buf.length, UINT64_MAX) }, VROCE_ERR_PARAM,                \
      VROCE_RULE_CMD_PARAM },                                                 \
    { #type ": offset beyond the first page", OPCODE,                         \
      { POKE(type, buf.offset, 4096) }, VROCE_ERR_PARAM,                      \
      VROCE_RULE_CMD_PARAM },                                                 \
    { #type ": more levels than there are", OPCODE,                           \
      { POKE(type, buf.levels, 4) }, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM }, \
    { #type ": pages of a byte", OPCODE,                                      \
      { POKE(type, buf.page_shift, 0) }, VROCE_ERR_PARAM,                     \
      VROCE_RULE_CMD_PARAM },                                                 \
    { #type ": pages of more than all memory", OPCODE,                        \
      { POKE(type, buf.page_shift, 255) }, VROCE_ERR_PARAM,                   \
      VROCE_RULE_CMD_PARAM },                                                 \
    /* A chain without end: the levels end it; its entries name RAM. */       \
    { #type ": a list of pointers to itself", OPCODE,                         \
      { POKE(type, buf.levels, 3),                                            \
        POKE_AT(type, buf.addr, AT_SELF_POINTER) }, VROCE_OK }

/* Rings: their sizes against the buffer's and against each other's. */
#define RING_CASES(OPCODE, type)                                              \
    { #type ": ring longer than its buffer", OPCODE,                          \
      { POKE(type, buf.length, 32) }, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM }, \
    { #type ": ring at an odd address", OPCODE,                               \
      { POKE(type, buf.offset, 8) }, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM }

#define RECORD_CASES(OPCODE, type)                                            \
    { #type ": record inside the ring", OPCODE,                               \
      { POKE(type, rec_off, 64) }, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM },   \
    { #type ": record behind the buffer", OPCODE,                             \
      { POKE(type, rec_off, REGION_PAGES * 4096) }, VROCE_ERR_PARAM,          \
      VROCE_RULE_CMD_PARAM },                                                 \
    { #type ": record that wraps around", OPCODE,                             \
      { POKE(type, rec_off, UINT32_MAX - 7) }, VROCE_ERR_PARAM,               \
      VROCE_RULE_CMD_PARAM },                                                 \
    { #type ": record at an odd offset", OPCODE,                              \
      { POKE(type, rec_off, 4100) }, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM }

/* Destroys what a case made; 0: the opcode makes nothing. */
static const uint8_t destroyer[256] = {
    [VROCE_CMD_CREATE_EQ] = VROCE_CMD_DESTROY_EQ,
    [VROCE_CMD_CREATE_CQ] = VROCE_CMD_DESTROY_CQ,
    [VROCE_CMD_CREATE_SRQ] = VROCE_CMD_DESTROY_SRQ,
    [VROCE_CMD_CREATE_QP] = VROCE_CMD_DESTROY_QP,
    [VROCE_CMD_CREATE_MR] = VROCE_CMD_DESTROY_MR,
};

static const struct command_case {
    const char *name;
    uint8_t opcode;
    Poke poke[5];
    enum vroce_status status;
    enum vroce_rule rule;
} command_cases[] = {
    /* Rings and counts: CVE-2018-20125, CVE-2023-1544 */
    BUF_CASES(VROCE_CMD_CREATE_EQ, vroce_create_eq_in, buf),
    RING_CASES(VROCE_CMD_CREATE_EQ, vroce_create_eq_in),
    { "EQ of 1 entry", VROCE_CMD_CREATE_EQ,
      { POKE(vroce_create_eq_in, log_size, 0) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "EQ of 1 << 255 entries", VROCE_CMD_CREATE_EQ,
      { POKE(vroce_create_eq_in, log_size, 255) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "EQ of a vector that is not there", VROCE_CMD_CREATE_EQ,
      { POKE(vroce_create_eq_in, vector, VROCE_MAX_VECTORS) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "EQ without WRITE", VROCE_CMD_CREATE_EQ,
      { POKE_AT(vroce_create_eq_in, buf.addr, AT_READ_ONLY_LIST) },
      VROCE_ERR_PARAM, VROCE_RULE_PAGE_LIST },
    { "a second async EQ", VROCE_CMD_CREATE_EQ,
      { POKE(vroce_create_eq_in, flags, VROCE_EQ_ASYNC) }, VROCE_ERR_BUSY,
      VROCE_RULE_IN_USE },
    { "EQ with unknown flags", VROCE_CMD_CREATE_EQ,
      { POKE(vroce_create_eq_in, flags, 0xfe) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },

    BUF_CASES(VROCE_CMD_CREATE_CQ, vroce_create_cq_in, buf),
    RING_CASES(VROCE_CMD_CREATE_CQ, vroce_create_cq_in),
    RECORD_CASES(VROCE_CMD_CREATE_CQ, vroce_create_cq_in),
    { "CQ of 1 entry", VROCE_CMD_CREATE_CQ,
      { POKE(vroce_create_cq_in, log_size, 0) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "CQ of 1 << 31 entries", VROCE_CMD_CREATE_CQ,
      { POKE(vroce_create_cq_in, log_size, 31) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "CQ of 1 << 32 entries", VROCE_CMD_CREATE_CQ,
      { POKE(vroce_create_cq_in, log_size, 32) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "CQ without WRITE", VROCE_CMD_CREATE_CQ,
      { POKE_AT(vroce_create_cq_in, buf.addr, AT_READ_ONLY_LIST) },
      VROCE_ERR_PARAM, VROCE_RULE_PAGE_LIST },
    { "CQ of an EQ that is not there", VROCE_CMD_CREATE_CQ,
      { POKE(vroce_create_cq_in, eqn, NO_SUCH) }, VROCE_ERR_NUMBER,
      VROCE_RULE_NO_OBJECT },
    { "CQ of a page that is not there", VROCE_CMD_CREATE_CQ,
      { POKE(vroce_create_cq_in, context, NO_SUCH) }, VROCE_ERR_NUMBER,
      VROCE_RULE_NO_OBJECT },
    { "CQ at no multiple of 64 without a list", VROCE_CMD_CREATE_CQ,
      { POKE(vroce_create_cq_in, buf.levels, 0),
        POKE(vroce_create_cq_in, buf.addr, 0x100008) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "CQ that wraps around all addresses", VROCE_CMD_CREATE_CQ,
      { POKE(vroce_create_cq_in, buf.levels, 0),
        POKE(vroce_create_cq_in, buf.addr, UINT64_MAX - 63) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },

    RING_CASES(VROCE_CMD_RESIZE_CQ, vroce_resize_cq_in),
    RECORD_CASES(VROCE_CMD_RESIZE_CQ, vroce_resize_cq_in),
    { "resize to 1 << 31 entries", VROCE_CMD_RESIZE_CQ,
      { POKE(vroce_resize_cq_in, log_size, 31) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "resize of a CQ that is not there", VROCE_CMD_RESIZE_CQ,
      { POKE(vroce_resize_cq_in, cqn, NO_SUCH) }, VROCE_ERR_NUMBER,
      VROCE_RULE_NO_OBJECT },
    { "resize into the card's registers", VROCE_CMD_RESIZE_CQ,
      { POKE_AT(vroce_resize_cq_in, buf.addr, AT_REGISTERS_LIST) },
      VROCE_ERR_DMA, VROCE_RULE_RING_DMA },

    BUF_CASES(VROCE_CMD_CREATE_SRQ, vroce_create_srq_in, buf),
    RING_CASES(VROCE_CMD_CREATE_SRQ, vroce_create_srq_in),
    RECORD_CASES(VROCE_CMD_CREATE_SRQ, vroce_create_srq_in),
    { "SRQ of 1 << 255 entries", VROCE_CMD_CREATE_SRQ,
      { POKE(vroce_create_srq_in, log_entries, 255) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "SRQ of entries of 1 << 255 bytes", VROCE_CMD_CREATE_SRQ,
      { POKE(vroce_create_srq_in, log_stride, 255) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "SRQ of entries of 1 byte", VROCE_CMD_CREATE_SRQ,
      { POKE(vroce_create_srq_in, log_stride, 0) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "SRQ limit beyond the SRQ", VROCE_CMD_CREATE_SRQ,
      { POKE(vroce_create_srq_in, limit, 17) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "SRQ of a PD that is not there", VROCE_CMD_CREATE_SRQ,
      { POKE(vroce_create_srq_in, pdn, NO_SUCH) }, VROCE_ERR_NUMBER,
      VROCE_RULE_NO_OBJECT },

    BUF_CASES(VROCE_CMD_CREATE_QP, vroce_create_qp_in, buf),
    RING_CASES(VROCE_CMD_CREATE_QP, vroce_create_qp_in),
    RECORD_CASES(VROCE_CMD_CREATE_QP, vroce_create_qp_in),
    { "a QP's rings are one", VROCE_CMD_CREATE_QP,
      { POKE(vroce_create_qp_in, rq_off, 0) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "a QP's receive ring inside the send ring", VROCE_CMD_CREATE_QP,
      { POKE(vroce_create_qp_in, rq_off, 256) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "a QP's send ring inside the receive ring", VROCE_CMD_CREATE_QP,
      { POKE(vroce_create_qp_in, sq_log_units, 0),
        POKE(vroce_create_qp_in, sq_off, 8192 + 64) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "a QP's send ring ends in the receive ring", VROCE_CMD_CREATE_QP,
      { POKE(vroce_create_qp_in, sq_off, 8192 - 64) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "a QP's record inside the receive ring", VROCE_CMD_CREATE_QP,
      { POKE(vroce_create_qp_in, rec_off, 8192 + 8) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "send ring that wraps around", VROCE_CMD_CREATE_QP,
      { POKE(vroce_create_qp_in, sq_off, UINT32_MAX - 63) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "receive ring that wraps around", VROCE_CMD_CREATE_QP,
      { POKE(vroce_create_qp_in, rq_off, UINT32_MAX - 63) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "send queue of 1 << 254 units", VROCE_CMD_CREATE_QP,
      { POKE(vroce_create_qp_in, sq_log_units, 254) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "receive queue of 1 << 254 entries", VROCE_CMD_CREATE_QP,
      { POKE(vroce_create_qp_in, rq_log_entries, 254) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "receive queue of entries of 1 << 255 bytes", VROCE_CMD_CREATE_QP,
      { POKE(vroce_create_qp_in, rq_log_stride, 255) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "QP of an unknown type", VROCE_CMD_CREATE_QP,
      { POKE(vroce_create_qp_in, type, 255) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "QP of a PD that is not there", VROCE_CMD_CREATE_QP,
      { POKE(vroce_create_qp_in, pdn, NO_SUCH) }, VROCE_ERR_NUMBER,
      VROCE_RULE_NO_OBJECT },
    { "QP of a send CQ that is not there", VROCE_CMD_CREATE_QP,
      { POKE(vroce_create_qp_in, send_cqn, NO_SUCH) }, VROCE_ERR_NUMBER,
      VROCE_RULE_NO_OBJECT },
    { "QP of a receive CQ that is not there", VROCE_CMD_CREATE_QP,
      { POKE(vroce_create_qp_in, recv_cqn, VROCE_NONE) }, VROCE_ERR_NUMBER,
      VROCE_RULE_NO_OBJECT },
    { "QP of an SRQ that is not there", VROCE_CMD_CREATE_QP,
      { POKE(vroce_create_qp_in, srqn, NO_SUCH),
        POKE(vroce_create_qp_in, rq_log_entries, VROCE_NO_QUEUE) },
      VROCE_ERR_NUMBER, VROCE_RULE_NO_OBJECT },
    { "QP of an SRQ and a ring of its own", VROCE_CMD_CREATE_QP,
      { POKE(vroce_create_qp_in, srqn, 1) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "QP of a page that is not there", VROCE_CMD_CREATE_QP,
      { POKE(vroce_create_qp_in, context, NO_SUCH) }, VROCE_ERR_NUMBER,
      VROCE_RULE_NO_OBJECT },
    { "QP with a reserved field set", VROCE_CMD_CREATE_QP,
      { POKE(vroce_create_qp_in, reserved, 1) }, VROCE_ERR_PARAM,
      VROCE_RULE_RESERVED },

    /* Regions: CVE-2021-3582 */
    BUF_CASES(VROCE_CMD_CREATE_MR, vroce_create_mr_in, buf),
    { "region that wraps around all addresses", VROCE_CMD_CREATE_MR,
      { POKE(vroce_create_mr_in, iova, UINT64_MAX - 4095) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "region of unknown rights", VROCE_CMD_CREATE_MR,
      { POKE(vroce_create_mr_in, access, UINT32_MAX) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "region that only the peer may write", VROCE_CMD_CREATE_MR,
      { POKE(vroce_create_mr_in, access, VROCE_ACCESS_REMOTE_WRITE) },
      VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM },
    { "region to write without WRITE", VROCE_CMD_CREATE_MR,
      { POKE_AT(vroce_create_mr_in, buf.addr, AT_READ_ONLY_LIST) },
      VROCE_ERR_PARAM, VROCE_RULE_PAGE_LIST },
    { "region of an unknown kind", VROCE_CMD_CREATE_MR,
      { POKE(vroce_create_mr_in, kind, 255) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "region of a PD that is not there", VROCE_CMD_CREATE_MR,
      { POKE(vroce_create_mr_in, pdn, NO_SUCH) }, VROCE_ERR_NUMBER,
      VROCE_RULE_NO_OBJECT },
    { "fast region of no pages", VROCE_CMD_CREATE_MR,
      { POKE(vroce_create_mr_in, kind, VROCE_MR_FAST) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "fast region of all pages", VROCE_CMD_CREATE_MR,
      { POKE(vroce_create_mr_in, kind, VROCE_MR_FAST),
        POKE(vroce_create_mr_in, max_pages, UINT32_MAX) }, VROCE_ERR_PARAM,
      VROCE_RULE_CMD_PARAM },
    { "fast region of more pages than are left", VROCE_CMD_CREATE_MR,
      { POKE(vroce_create_mr_in, kind, VROCE_MR_FAST),
        POKE(vroce_create_mr_in, max_pages, MAX_PAGES + 1) },
      VROCE_ERR_NO_RESOURCES, VROCE_RULE_NONE },
    { "device memory beyond its end", VROCE_CMD_CREATE_MR,
      { POKE(vroce_create_mr_in, kind, VROCE_MR_DEVMEM),
        POKE(vroce_create_mr_in, buf.levels, 0),
        POKE(vroce_create_mr_in, buf.addr, (1 << 20) - 4096) },
      VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM },
    { "device memory that wraps around", VROCE_CMD_CREATE_MR,
      { POKE(vroce_create_mr_in, kind, VROCE_MR_DEVMEM),
        POKE(vroce_create_mr_in, buf.levels, 0),
        POKE(vroce_create_mr_in, buf.addr, UINT64_MAX - 4095) },
      VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM },
    { "update of a region that is not there", VROCE_CMD_UPDATE_MR,
      { POKE(vroce_update_mr_in, key, NO_SUCH) }, VROCE_ERR_NUMBER,
      VROCE_RULE_NO_OBJECT },
    { "update of the region of all addresses", VROCE_CMD_UPDATE_MR, { },
      VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM },
};

static void run_command_case(Hostile *h, const struct command_case *k)
{
    uint8_t request[VROCE_SQ_UNIT * 2] = { 0 };
    uint32_t len = make_request(h, k->opcode, request);
    bool makes = destroyer[k->opcode];
    struct vroce_number number = { 0 };
    uint16_t rule = 0;
    Before before = take_before(h, k->rule);
    enum vroce_status status;

    apply(h, request, k->poke);
    status = card_try(h->d.c, k->opcode, request, len, &number,
                      makes ? sizeof(number) : 0, &rule);
    if (status != k->status || rule != k->rule) {
        g_test_message("%s: status %d, rule %u", k->name, status, rule);
        g_test_fail();
    }
    if (k->rule) {
        expect_told(h, k->name, k->rule, before);
    }
    if (status == VROCE_OK && makes) {
        card_destroy(h->d.c, destroyer[k->opcode],
                     le32_to_cpu(number.number));
    }
}

static void test_commands(void)
{
    static const uint8_t opcodes[] = {
        VROCE_CMD_CREATE_EQ, VROCE_CMD_CREATE_CQ, VROCE_CMD_RESIZE_CQ,
        VROCE_CMD_CREATE_SRQ, VROCE_CMD_CREATE_QP, VROCE_CMD_CREATE_MR,
    };
    Hostile h = hostile_start("");

    for (int i = 0; i < ARRAY_SIZE(command_cases); i++) {
        run_command_case(&h, &command_cases[i]);
    }
    /* What was changed above is all that was wrong; and nothing has leaked. */
    for (int i = 0; i < ARRAY_SIZE(opcodes); i++) {
        struct command_case good = {
            .name = "a request that works", .opcode = opcodes[i],
        };

        run_command_case(&h, &good);
    }
    hostile_stop(&h);
}

void add_hostile_command_tests(void)
{
    qtest_add_func("/vroce/hostile/commands", test_commands);
}
