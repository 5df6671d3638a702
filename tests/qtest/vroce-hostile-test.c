/*
 * QTest of the vroce RDMA network card: work requests, registers and
 * interrupts of a hostile guest, modelled on the causes of the published
 * faults of pvrdma, the RDMA device that QEMU had before
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "hw/pci/pci_regs.h"
#include "vroce-hostile.h"

/* --------------------------------------------------------- work requests */

/* Offsets in the unit that post_send() makes of a WRITE. */
#define CTRL(field, value) POKE(vroce_wqe_ctrl, field, value)
#define RDMA(field, value) \
    { sizeof(struct vroce_wqe_ctrl) + offsetof(struct vroce_wqe_rdma, field), \
      sizeof(((struct vroce_wqe_rdma *)0)->field), value }
#define RDMA_AT(field, place) \
    { sizeof(struct vroce_wqe_ctrl) + offsetof(struct vroce_wqe_rdma, field), \
      sizeof(((struct vroce_wqe_rdma *)0)->field), 0, place }
#define SGE_OFF (sizeof(struct vroce_wqe_ctrl) + sizeof(struct vroce_wqe_rdma))
#define SGE(field, value) \
    { SGE_OFF + offsetof(struct vroce_sge, field), \
      sizeof(((struct vroce_sge *)0)->field), value }
#define SGE_AT(field, place) \
    { SGE_OFF + offsetof(struct vroce_sge, field), \
      sizeof(((struct vroce_sge *)0)->field), 0, place }

static const struct work_case {
    const char *name;
    Poke poke[4];
    enum vroce_wc_status status;
    enum vroce_rule rule;
    bool peer;                  /* it is the peer's side that refuses */
} work_cases[] = {
    { "a request that works", { }, VROCE_WCS_SUCCESS },
    /* CVE-2018-20124 */
    { "255 entries", { CTRL(num_sge, 255) }, VROCE_WCS_LOC_QP_OP_ERR,
      VROCE_RULE_WQE_SIZE },
    { "one entry more than may be", { CTRL(num_sge, VROCE_MAX_SGE + 1) },
      VROCE_WCS_LOC_QP_OP_ERR, VROCE_RULE_WQE_SIZE },
    { "more entries than the units hold", { CTRL(num_sge, 2) },
      VROCE_WCS_LOC_QP_OP_ERR, VROCE_RULE_WQE_SIZE },
    { "inline data longer than the units",
      { CTRL(flags, VROCE_WQE_SIGNALED | VROCE_WQE_INLINE), CTRL(num_sge, 0),
        CTRL(inline_len, 0xffff) }, VROCE_WCS_LOC_QP_OP_ERR,
      VROCE_RULE_WQE_SIZE },
    { "inline data and entries",
      { CTRL(flags, VROCE_WQE_SIGNALED | VROCE_WQE_INLINE),
        CTRL(inline_len, 8) }, VROCE_WCS_LOC_QP_OP_ERR, VROCE_RULE_WQE_SIZE },
    /* Each of these would be a chain without end: CVE-2018-20216 */
    { "no unit", { CTRL(units, 0) }, VROCE_WCS_LOC_QP_OP_ERR,
      VROCE_RULE_WQE_SIZE },
    { "more units than a request may have",
      { CTRL(units, VROCE_MAX_WQE_UNITS + 1) }, VROCE_WCS_LOC_QP_OP_ERR,
      VROCE_RULE_WQE_SIZE },
    { "more units than were rung for", { CTRL(units, 8) },
      VROCE_WCS_LOC_QP_OP_ERR, VROCE_RULE_WQE_SIZE },
    { "a request of another lap", { CTRL(index, 1 << SQ_LOG) },
      VROCE_WCS_LOC_QP_OP_ERR, VROCE_RULE_WQE_INDEX },
    { "an unknown opcode", { CTRL(opcode, 255) }, VROCE_WCS_LOC_QP_OP_ERR,
      VROCE_RULE_WQE_OPCODE },
    { "an Ethernet frame on an RC QP", { CTRL(opcode, VROCE_WQE_ETH) },
      VROCE_WCS_LOC_QP_OP_ERR, VROCE_RULE_WQE_OPCODE },
    { "an atomic of 64 bytes", { CTRL(opcode, VROCE_WQE_CMP_SWAP),
      CTRL(num_sge, 0) }, VROCE_WCS_LOC_LEN_ERR, VROCE_RULE_WQE_LENGTH },
    { "a message of 4 GiB", { SGE(length, UINT32_MAX) },
      VROCE_WCS_LOC_LEN_ERR, VROCE_RULE_WQE_LENGTH },
    { "a key that is not there", { SGE(lkey, UINT32_MAX) },
      VROCE_WCS_LOC_PROT_ERR, VROCE_RULE_KEY },
    { "an address that wraps around", { SGE(addr, UINT64_MAX - 8) },
      VROCE_WCS_LOC_PROT_ERR, VROCE_RULE_KEY_RANGE },
    { "memory that is not there", { SGE(addr, NOWHERE) },
      VROCE_WCS_LOC_PROT_ERR, VROCE_RULE_MEM_DMA },
    { "from the card's registers", { SGE_AT(addr, AT_REGISTERS) },
      VROCE_WCS_LOC_PROT_ERR, VROCE_RULE_MEM_DMA },
    { "from the card's doorbells", { SGE_AT(addr, AT_DOORBELLS) },
      VROCE_WCS_LOC_PROT_ERR, VROCE_RULE_MEM_DMA },
    { "read into the card's registers",
      { CTRL(opcode, VROCE_WQE_READ), SGE_AT(addr, AT_REGISTERS) },
      VROCE_WCS_LOC_PROT_ERR, VROCE_RULE_MEM_DMA },
    { "a remote key that is not there", { RDMA(rkey, UINT32_MAX) },
      VROCE_WCS_REM_ACCESS_ERR, VROCE_RULE_KEY, true },
    { "a remote address that wraps around",
      { RDMA(remote_addr, UINT64_MAX - 8) }, VROCE_WCS_REM_ACCESS_ERR,
      VROCE_RULE_KEY_RANGE, true },
    { "to the card's registers", { RDMA_AT(remote_addr, AT_REGISTERS) },
      VROCE_WCS_REM_OP_ERR, VROCE_RULE_MEM_DMA, true },
    { "to the card's doorbells", { RDMA_AT(remote_addr, AT_DOORBELLS) },
      VROCE_WCS_REM_OP_ERR, VROCE_RULE_MEM_DMA, true },
    { "read from the card's registers",
      { CTRL(opcode, VROCE_WQE_READ), RDMA_AT(remote_addr, AT_REGISTERS) },
      VROCE_WCS_REM_OP_ERR, VROCE_RULE_MEM_DMA, true },
};

static void run_work_case(Hostile *h, const struct work_case *k)
{
    const uint32_t len = 64;
    Driver *d = &h->d;
    Qp a, b;
    struct vroce_wqe_rdma rdma = {
        .rkey = cpu_to_le32(d->key),
        .remote_addr = cpu_to_le64(h->place[AT_MEM]),
    };
    Before before = take_before(h, k->rule);
    uint8_t unit[VROCE_SQ_UNIT];
    struct vroce_cqe cqe;

    create_pair(d, &a, &b);
    post_send(d, &a, VROCE_WQE_WRITE, 5, &rdma, sizeof(rdma),
              h->place[AT_MEM] + 4096, len);
    qtest_memread(d->c->qts, a.sq, unit, sizeof(unit));
    apply(h, unit, k->poke);
    qtest_memwrite(d->c->qts, a.sq, unit, sizeof(unit));
    ring_sq(d, &a);

    cqe = poll_cq(d, &d->cq);
    if (cqe.status != k->status || le64_to_cpu(cqe.wr_id) != 5 ||
        le32_to_cpu(cqe.qpn) != a.qpn ||
        le16_to_cpu(cqe.rule) != (k->peer ? 0 : k->rule)) {
        g_test_message("%s: status %d, rule %u", k->name, cqe.status,
                       le16_to_cpu(cqe.rule));
        g_test_fail();
    }
    if (k->rule) {
        expect_told(h, k->name, k->rule, before);
    }
    card_destroy(d->c, VROCE_CMD_DESTROY_QP, a.qpn);
    card_destroy(d->c, VROCE_CMD_DESTROY_QP, b.qpn);
}

static void test_work(void)
{
    Hostile h = hostile_start("");

    for (int i = 0; i < ARRAY_SIZE(work_cases); i++) {
        uint64_t keep = h.d.c->next;

        run_work_case(&h, &work_cases[i]);
        h.d.c->next = keep;
        expect_well(&h);
    }
    hostile_stop(&h);
}

/* A full ring of requests that each name the next of another lap: one turn. */
static void test_endless_chain(void)
{
    Hostile h = hostile_start("");
    Driver *d = &h.d;
    Qp a = create_qp(d, VROCE_QPT_RC);
    uint32_t before = d->cq.consumer;

    connect_qp(d, &a, &h.qp);
    for (uint32_t i = 0; i < 1 << SQ_LOG; i++) {
        struct vroce_wqe_ctrl ctrl = {
            .opcode = VROCE_WQE_NOP, .units = 1, .index = cpu_to_le16(i),
        };

        qtest_memwrite(d->c->qts, a.sq + i * VROCE_SQ_UNIT, &ctrl,
                       sizeof(ctrl));
    }
    /* Nothing is signaled: what is rung again and again costs no completion. */
    for (uint32_t i = 0; i < 100; i++) {
        card_doorbell(d->c, 0, VROCE_DB_SQ, a.qpn, 1 << SQ_LOG);
    }
    /* The second lap holds the first one's requests. */
    card_doorbell(d->c, 0, VROCE_DB_SQ, a.qpn, 2 << SQ_LOG);
    g_assert_cmpint(poll_cq(d, &d->cq).status, ==, VROCE_WCS_LOC_QP_OP_ERR);
    g_assert_cmpuint(card_misuse(d->c, VROCE_RULE_WQE_INDEX), ==, 1);
    g_assert_cmpuint(d->cq.consumer, ==, before + 1);
    hostile_stop(&h);
}

/* ------------------------------------------- before the rings, and without */

/* Commands and doorbells before anything was set up: CVE-2022-1050 */
static void test_before_rings(void)
{
    Card *c = card_start("");

    /* The addresses of 0 are RAM, but no queue. */
    card_put(c, VROCE_REG_CMDQ_DOORBELL, 1);
    card_doorbell(c, 0, VROCE_DB_SQ, 2, 1);
    card_doorbell(c, 0, VROCE_DB_RQ, 2, 1);
    card_doorbell(c, 0, VROCE_DB_CQ_ARM, 1, 1);
    card_doorbell(c, 0, VROCE_DB_EQ_ARM, 1, 1);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_DB_STATE), ==, 5);
    card_put(c, VROCE_REG_CTRL, VROCE_CTRL_ENABLE);
    card_put(c, VROCE_REG_CMDQ_DOORBELL, 1);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_DB_STATE), ==, 6);
    card_doorbell(c, 0, VROCE_DB_SQ, 2, 1);
    card_doorbell(c, 0, VROCE_DB_RQ, 2, 1);
    card_doorbell(c, 0, VROCE_DB_CQ_ARM, 1, 1);
    card_doorbell(c, 0, VROCE_DB_CQ_ARM_SOLICITED, 1, 1);
    card_doorbell(c, 0, VROCE_DB_EQ_ARM, 1, 1);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_DB_NUMBER), ==, 5);
    card_enable(c);
    card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0);
    card_stop(c);
}

/* The command queue moves, or goes, while it is in use: CVE-2021-3608 */
static void test_rings_moved(void)
{
    Card *c = card_start("");
    uint64_t sq;

    card_enable(c);
    sq = card_get64(c, VROCE_REG_CMDQ_SQ_BASE);
    card_put64(c, VROCE_REG_CMDQ_SQ_BASE, NOWHERE);
    card_put64(c, VROCE_REG_CMDQ_CQ_BASE, c->regs.addr);
    card_put(c, VROCE_REG_CMDQ_LOG_SIZE, VROCE_CMDQ_MAX_LOG);
    card_put(c, VROCE_REG_CMDQ_VECTOR, 1000);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_REGISTER), ==, 4);
    g_assert_cmphex(card_get64(c, VROCE_REG_CMDQ_SQ_BASE), ==, sq);
    card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0);
    /* A vector that is not there must not be taken along into the queue. */
    card_put(c, VROCE_REG_CTRL, 0);
    card_put(c, VROCE_REG_CMDQ_VECTOR, 1000);
    card_put(c, VROCE_REG_CTRL, VROCE_CTRL_ENABLE);
    g_assert_cmphex(card_get(c, VROCE_REG_CTRL), ==, 0);
    card_put(c, VROCE_REG_CMDQ_VECTOR, VROCE_NO_VECTOR);
    card_enable(c);
    card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0);
    card_stop(c);
}

/* Each size of read, everywhere: CVE-2018-20191 */
static void test_reads(void)
{
    Card *c = card_start("");
    QPCIBar bars[] = {
        c->regs, c->doorbells, qpci_iomap(c->dev, VROCE_BAR_DEVMEM, NULL),
    };

    for (int bar = 0; bar < ARRAY_SIZE(bars); bar++) {
        for (uint64_t off = 0; off < VROCE_REGS_SIZE - 8; off += 61) {
            qpci_io_readb(c->dev, bars[bar], off);
            qpci_io_readw(c->dev, bars[bar], off);
            qpci_io_readl(c->dev, bars[bar], off);
            qpci_io_readq(c->dev, bars[bar], off);
        }
    }
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_DB_ACCESS), >, 0);
    card_enable(c);
    card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0);
    card_stop(c);
}

/* ---------------------------------------- DMA to the card's own registers */

/* The command queue lies in the card: what it does to itself is fatal only. */
static void test_cmdq_in_bars(void)
{
    Card *c = card_start("");
    uint64_t good = card_alloc(c, 4096);
    const uint64_t rings[][2] = {
        { c->regs.addr, c->regs.addr }, { c->doorbells.addr, good },
        { good, c->regs.addr + VROCE_REG_RESET },
        { good, c->doorbells.addr },
        { good, c->regs.addr + VROCE_MSIX_TABLE_OFFSET },
    };

    for (int i = 0; i < ARRAY_SIZE(rings); i++) {
        card_put64(c, VROCE_REG_CMDQ_SQ_BASE, rings[i][0]);
        card_put64(c, VROCE_REG_CMDQ_CQ_BASE, rings[i][1]);
        card_put(c, VROCE_REG_CMDQ_LOG_SIZE, 1);
        card_put(c, VROCE_REG_CTRL, VROCE_CTRL_ENABLE);
        card_put(c, VROCE_REG_CMDQ_DOORBELL, 2);
        g_assert_cmpuint(card_misuse(c, VROCE_RULE_CMD_DMA), ==, 1);
        g_assert_cmpint(card_get(c, VROCE_REG_FATAL), ==, VROCE_FATAL_CMDQ);
        card_put(c, VROCE_REG_RESET, VROCE_RESET_MAGIC);
    }
    card_enable(c);
    card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0);
    card_stop(c);
}

/* A CQ whose ring or record lies in the card fails, and its QPs with it. */
static void test_cq_in_bars(void)
{
    static const enum place places[] = { AT_REGISTERS, AT_DOORBELLS };
    Hostile h = hostile_start("");
    Driver *d = &h.d;

    for (int i = 0; i < ARRAY_SIZE(places); i++) {
        struct vroce_create_cq_in in = {
            .buf = contiguous(h.place[places[i]], 4096),
            .rec_off = cpu_to_le32(2048), .eqn = cpu_to_le32(VROCE_NONE),
            .log_size = 1,
        };
        Driver other = *d;
        struct vroce_qp_attr attr;
        struct vroce_number number;
        Qp a;

        other.cq.cqn = card_create(d->c, VROCE_CMD_CREATE_CQ, &in, sizeof(in));
        a = create_qp(&other, VROCE_QPT_RC);
        connect_qp(d, &a, &h.qp);
        post_send(d, &a, VROCE_WQE_NOP, 1, NULL, 0, 0, 0);
        qtest_writeb(d->c->qts,
                     a.sq + offsetof(struct vroce_wqe_ctrl, num_sge), 0);
        ring_sq(d, &a);
        g_assert_cmpuint(card_misuse(d->c, VROCE_RULE_RING_DMA), ==, i + 1);
        number = (struct vroce_number) { .number = cpu_to_le32(a.qpn) };
        card_cmd(d->c, VROCE_CMD_QUERY_QP, &number, sizeof(number), &attr,
                 sizeof(attr));
        g_assert_cmpint(attr.state, ==, VROCE_QPS_ERR);
        card_destroy(d->c, VROCE_CMD_DESTROY_QP, a.qpn);
        card_destroy(d->c, VROCE_CMD_DESTROY_CQ, other.cq.cqn);
        expect_well(&h);
    }
    hostile_stop(&h);
}

/* The card's own memory is memory, by its bus address too. */
static void test_dma_to_own_memory(void)
{
    Card *c = card_start("");
    QPCIBar devmem = qpci_iomap(c->dev, VROCE_BAR_DEVMEM, NULL);

    card_put(c, VROCE_REG_DMA_PATTERN, 0x77);
    g_assert_cmpint(card_dma(c, VROCE_DMA_FILL, 0, devmem.addr + 4, 8), ==,
                    VROCE_DMA_OK);
    g_assert_cmphex(qpci_io_readl(c->dev, devmem, 0), ==, 0);
    g_assert_cmphex(qpci_io_readq(c->dev, devmem, 4), ==,
                    0x7777777777777777ull);
    g_assert_cmphex(qpci_io_readl(c->dev, devmem, 12), ==, 0);
    /* Beyond its end nothing is. */
    g_assert_cmpint(card_dma(c, VROCE_DMA_FILL, 0,
                             devmem.addr + (1 << 20) - 4, 8), ==,
                    VROCE_DMA_FAULT);
    card_stop(c);
}

/* Each vector is a write to an address of the guest's choice. */
static void test_vectors_in_bars(void)
{
    static const uint32_t targets[] = {
        VROCE_REG_RESET, VROCE_REG_CTRL, VROCE_REG_CMDQ_DOORBELL,
        VROCE_REG_TEST_IRQ, VROCE_REG_DMA_CMD, VROCE_MSIX_TABLE_OFFSET,
    };
    Hostile h = hostile_start("");
    Card *c = h.d.c;

    for (int i = 0; i < ARRAY_SIZE(targets); i++) {
        for (uint32_t vector = 2; vector < 4; vector++) {
            uint64_t entry = VROCE_MSIX_TABLE_OFFSET + vector * 16;

            card_put(c, entry, vector == 2 ? c->regs.addr + targets[i] :
                     c->doorbells.addr);
            card_put(c, entry + 8, vector == 2 && i == 0 ? VROCE_RESET_MAGIC :
                     vector);
            card_put(c, entry + 12, 0);
            card_put(c, VROCE_REG_TEST_IRQ, vector);
        }
    }
    g_assert_cmphex(card_get(c, VROCE_REG_STATUS), ==,
                    VROCE_STATUS_READY | VROCE_STATUS_ENABLED);
    hostile_stop(&h);
}

/* ------------------------------------------------------- destroyed in use */

/* What others use stays; whoever asks is told: CVE-2022-1050 */
static void test_destroy_in_use(void)
{
    Hostile h = hostile_start("");
    Driver *d = &h.d;
    struct vroce_create_srq_in srq;
    struct vroce_create_qp_in qp;
    uint32_t srqn, page, qpn, len;
    Qp unused;

    page = card_create(d->c, VROCE_CMD_ALLOC_CONTEXT, NULL, 0);
    len = make_request(&h, VROCE_CMD_CREATE_SRQ, &srq);
    srqn = card_create(d->c, VROCE_CMD_CREATE_SRQ, &srq, len);
    qp = qp_request(d, &unused, VROCE_QPT_RC);
    qp.srqn = cpu_to_le32(srqn);
    qp.rq_log_entries = VROCE_NO_QUEUE;
    qpn = card_create(d->c, VROCE_CMD_CREATE_QP, &qp, sizeof(qp));
    {
        struct vroce_create_cq_in cq;

        len = make_request(&h, VROCE_CMD_CREATE_CQ, &cq);
        cq.context = cpu_to_le32(page);
        card_create(d->c, VROCE_CMD_CREATE_CQ, &cq, len);
    }
    {
        const struct {
            uint8_t opcode;
            uint32_t number;
        } used[] = {
            { VROCE_CMD_FREE_PD, d->pdn }, { VROCE_CMD_DESTROY_EQ, d->eqn },
            { VROCE_CMD_DESTROY_CQ, d->cq.cqn },
            { VROCE_CMD_DESTROY_SRQ, srqn }, { VROCE_CMD_FREE_CONTEXT, page },
        };

        for (int i = 0; i < ARRAY_SIZE(used); i++) {
            struct vroce_number in = { .number = cpu_to_le32(used[i].number) };
            Before before = take_before(&h, VROCE_RULE_IN_USE);
            uint16_t rule;

            g_assert_cmpint(card_try(d->c, used[i].opcode, &in, sizeof(in),
                                     NULL, 0, &rule), ==, VROCE_ERR_BUSY);
            g_assert_cmpint(rule, ==, VROCE_RULE_IN_USE);
            expect_told(&h, "destroyed in use", VROCE_RULE_IN_USE, before);
        }
    }
    card_destroy(d->c, VROCE_CMD_DESTROY_QP, qpn);
    card_destroy(d->c, VROCE_CMD_DESTROY_SRQ, srqn);
    hostile_stop(&h);
}

/* QPs, region and async EQ go while a transfer between them is under way. */
static void test_destroy_under_way(void)
{
    const uint32_t len = 1 << 20;
    Hostile h = hostile_start("");
    Driver *d = &h.d;
    uint64_t mem = card_alloc(d->c, 2 * len);

    for (int i = 0; i < 6; i++) {
        Driver other = *d;
        uint64_t keep = d->c->next;
        Qp a, b;

        /* A region of its own, so that the others stay well. */
        struct vroce_create_mr_in mr = {
            .buf = contiguous(mem, 2 * len), .iova = cpu_to_le64(mem),
            .pdn = cpu_to_le32(d->pdn),
            .access = cpu_to_le32(VROCE_ACCESS_LOCAL_WRITE |
                                  VROCE_ACCESS_REMOTE_WRITE |
                                  VROCE_ACCESS_REMOTE_READ),
        };
        struct vroce_wqe_rdma rdma = {
            .remote_addr = cpu_to_le64(mem + len),
        };

        other.key = card_create(d->c, VROCE_CMD_CREATE_MR, &mr, sizeof(mr));
        other.cq = create_cq(d->c, VROCE_NONE);
        rdma.rkey = cpu_to_le32(other.key);
        create_pair(&other, &a, &b);
        for (int k = 0; k < 2; k++) {
            post_send(&other, &a, i & 1 ? VROCE_WQE_READ : VROCE_WQE_WRITE, k,
                      &rdma, sizeof(rdma), mem, len);
        }
        ring_sq(d, &a);
        if (i >= 4) {
            uint8_t status;

            card_destroy(d->c, VROCE_CMD_DESTROY_MR, other.key);
            /* It may have been done before. */
            for (int k = 0; k < 2; k++) {
                status = poll_cq(d, &other.cq).status;
                g_assert_true(status == VROCE_WCS_SUCCESS ||
                              status == VROCE_WCS_LOC_PROT_ERR ||
                              status == VROCE_WCS_REM_ACCESS_ERR ||
                              status == VROCE_WCS_WR_FLUSH_ERR);
            }
        }
        card_destroy(d->c, VROCE_CMD_DESTROY_QP, i & 2 ? a.qpn : b.qpn);
        card_destroy(d->c, VROCE_CMD_DESTROY_QP, i & 2 ? b.qpn : a.qpn);
        card_destroy(d->c, VROCE_CMD_DESTROY_CQ, other.cq.cqn);
        if (i < 4) {
            card_destroy(d->c, VROCE_CMD_DESTROY_MR, other.key);
        }
        d->c->next = keep;
        expect_well(&h);
    }
    hostile_stop(&h);
}

/* ---------------------------------------------- ended in mid-command */

#define LONG_LIST (1u << 18)    /* entries: many slices of reading */

static void end_by_reset(Card *c)
{
    card_put(c, VROCE_REG_RESET, VROCE_RESET_MAGIC);
}

static void end_by_flr(Card *c)
{
    uint8_t express = qpci_find_capability(c->dev, PCI_CAP_ID_EXP, 0);
    uint32_t regs = qpci_config_readl(c->dev, PCI_BASE_ADDRESS_0);

    qpci_config_writew(c->dev, express + PCI_EXP_DEVCTL,
                       PCI_EXP_DEVCTL_BCR_FLR);
    qpci_config_writel(c->dev, PCI_BASE_ADDRESS_0, regs);
    qpci_device_enable(c->dev);
}

static void end_by_disable(Card *c)
{
    card_put(c, VROCE_REG_CTRL, 0);
}

static void end_by_bus_master(Card *c)
{
    card_bus_master(c, false);
    card_bus_master(c, true);
    card_put(c, VROCE_REG_RESET, VROCE_RESET_MAGIC);
}

/* A long command is under way, and its device goes from under it. */
static void test_end_in_command(void)
{
    static void (*const ends[])(Card *) = {
        end_by_reset, end_by_flr, end_by_disable, end_by_bus_master,
    };
    Card *c = card_start("");
    uint64_t list = card_alloc(c, LONG_LIST * 8ull);
    g_autofree uint64_t *entries = g_new(uint64_t, LONG_LIST);

    for (uint32_t i = 0; i < LONG_LIST; i++) {
        entries[i] = cpu_to_le64(list | VROCE_PTE_VALID | VROCE_PTE_WRITE);
    }
    qtest_memwrite(c->qts, list, entries, LONG_LIST * 8ull);
    for (int i = 0; i < ARRAY_SIZE(ends); i++) {
        uint64_t keep = c->next, in_addr = card_alloc(c, 4096), old_cq;
        struct vroce_create_mr_in in = {
            .buf = {
                .addr = cpu_to_le64(list), .page_shift = 12, .levels = 1,
                .length = cpu_to_le64(LONG_LIST * 4096ull),
            },
        };
        struct vroce_cmd cmd = {
            .opcode = VROCE_CMD_CREATE_MR, .id = cpu_to_le16(0xbad),
            .in_len = cpu_to_le32(sizeof(in)), .in_addr = cpu_to_le64(in_addr),
            .out_len = cpu_to_le32(8), .out_addr = cpu_to_le64(in_addr + 2048),
        };
        struct vroce_cmd_cpl before, after;

        card_enable(c);
        in.pdn = cpu_to_le32(card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0));
        qtest_memwrite(c->qts, in_addr, &in, sizeof(in));
        old_cq = c->cq + sizeof(before);
        card_queue_cmd(c, &cmd);
        card_ring_cmdq(c);
        ends[i](c);
        /* It may have been answered before, but is not any more. */
        qtest_memread(c->qts, old_cq, &before, sizeof(before));
        card_enable(c);
        card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0);
        qtest_clock_step(c->qts, 1000000);
        qtest_memread(c->qts, old_cq, &after, sizeof(after));
        g_assert_cmpmem(&before, sizeof(before), &after, sizeof(after));
        card_put(c, VROCE_REG_RESET, VROCE_RESET_MAGIC);
        c->next = keep;
    }
    card_stop(c);
}

/* A program in a loop costs the host no disk, and no misuse goes uncounted. */
static void test_log_flood(void)
{
    const unsigned int times = 3000;
    Hostile h = hostile_start("");
    gint64 began = g_get_monotonic_time();
    g_autofree char *text = NULL;
    unsigned int lines = 0, told = 0, n;

    for (unsigned int i = 0; i < times; i++) {
        card_put(h.d.c, VROCE_REG_ID, i);
    }
    g_usleep(1100000);
    card_put(h.d.c, VROCE_REG_ID, 0);
    g_assert_cmpuint(card_misuse(h.d.c, VROCE_RULE_REGISTER), ==, times + 1);

    g_assert_true(g_file_get_contents(h.log, &text, NULL, NULL));
    for (char *at = text; (at = strstr(at, ": rule 31 ")); at++, lines++) {
        char e;

        told += sscanf(at, ": rule 31 register: %u more had no lin%c", &n,
                       &e) == 2 ? n : 1;
    }
    g_assert_cmpuint(told, ==, times + 1);
    g_assert_cmpuint(lines, <=, 201 * (2 + (g_get_monotonic_time() - began) /
                                       G_USEC_PER_SEC));
    hostile_stop(&h);
}

void add_hostile_tests(void)
{
    qtest_add_func("/vroce/hostile/work-requests", test_work);
    qtest_add_func("/vroce/hostile/endless-chain", test_endless_chain);
    qtest_add_func("/vroce/hostile/before-rings", test_before_rings);
    qtest_add_func("/vroce/hostile/rings-moved", test_rings_moved);
    qtest_add_func("/vroce/hostile/reads", test_reads);
    qtest_add_func("/vroce/hostile/cmdq-in-bars", test_cmdq_in_bars);
    qtest_add_func("/vroce/hostile/cq-in-bars", test_cq_in_bars);
    qtest_add_func("/vroce/hostile/dma-to-own-memory", test_dma_to_own_memory);
    qtest_add_func("/vroce/hostile/vectors-in-bars", test_vectors_in_bars);
    qtest_add_func("/vroce/hostile/destroy-in-use", test_destroy_in_use);
    qtest_add_func("/vroce/hostile/destroy-under-way", test_destroy_under_way);
    qtest_add_func("/vroce/hostile/end-in-command", test_end_in_command);
    qtest_add_func("/vroce/hostile/log-flood", test_log_flood);
}
