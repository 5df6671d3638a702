/*
 * QTest of the vroce RDMA network card: bring-up block, command queue,
 * doorbells, properties, and a guest that writes nonsense
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qapi/error.h"
#include "qobject/qdict.h"
#include "qobject/qjson.h"
#include "vroce-card.h"

/* ------------------------------------------------------- bring-up block */

static void test_scratch(void)
{
    Card *c = card_start("");

    card_put(c, VROCE_REG_SCRATCH, 0x12345678);
    g_assert_cmphex(card_get(c, VROCE_REG_SCRATCH), ==, ~0x12345678u);
    card_put(c, VROCE_REG_SCRATCH, 0xffffffff);
    g_assert_cmphex(card_get(c, VROCE_REG_SCRATCH), ==, 0);
    card_stop(c);
}

static void test_irq(void)
{
    Card *c = card_start(",vectors=8");
    uint64_t first = card_catch_irq(c, 0, 0xaa), last;

    last = card_catch_irq(c, 7, 0xbb);
    card_put(c, VROCE_REG_TEST_IRQ, 7);
    g_assert_true(card_irq_came(c, last, 0xbb));
    g_assert_false(card_irq_came(c, first, 0xaa));
    card_put(c, VROCE_REG_TEST_IRQ, 0);
    g_assert_true(card_irq_came(c, first, 0xaa));
    card_put(c, VROCE_REG_TEST_IRQ, 8);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_REGISTER), ==, 1);
    g_assert_false(card_irq_came(c, last, 0xbb));
    card_stop(c);
}

static void test_dma(void)
{
    Card *c = card_start("");
    uint64_t a = card_alloc(c, VROCE_DMA_MAX_LEN);
    uint64_t b = card_alloc(c, VROCE_DMA_MAX_LEN + 4096);
    char text[] = "123456789", back[sizeof(text)];

    qtest_memwrite(c->qts, a + 3, text, sizeof(text));
    g_assert_cmpint(card_dma(c, VROCE_DMA_CHECKSUM, a + 3, 0, 9), ==,
                    VROCE_DMA_OK);
    g_assert_cmphex(card_get(c, VROCE_REG_DMA_CRC), ==, 0xcbf43926);
    g_assert_cmpint(card_dma(c, VROCE_DMA_COPY, a + 3, b + 4095,
                             sizeof(text)), ==, VROCE_DMA_OK);
    qtest_memread(c->qts, b + 4095, back, sizeof(back));
    g_assert_cmpstr(back, ==, text);

    card_put(c, VROCE_REG_DMA_PATTERN, 0x1a5);
    g_assert_cmpint(card_dma(c, VROCE_DMA_FILL, 0, b, VROCE_DMA_MAX_LEN), ==,
                    VROCE_DMA_OK);
    g_assert_cmphex(qtest_readb(c->qts, b), ==, 0xa5);
    g_assert_cmphex(qtest_readb(c->qts, b + VROCE_DMA_MAX_LEN - 1), ==, 0xa5);
    g_assert_cmphex(qtest_readb(c->qts, b + VROCE_DMA_MAX_LEN), ==, 0);
    g_assert_cmpint(card_dma(c, VROCE_DMA_COPY, b, a, VROCE_DMA_MAX_LEN), ==,
                    VROCE_DMA_OK);
    g_assert_cmphex(qtest_readb(c->qts, a + VROCE_DMA_MAX_LEN - 1), ==, 0xa5);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_REGISTER), ==, 0);
    card_stop(c);
}

static void test_dma_refused(void)
{
    Card *c = card_start("");
    uint64_t a = card_alloc(c, 4096);

    g_assert_cmpint(card_dma(c, 0, a, a, 1), ==, VROCE_DMA_BAD_CMD);
    g_assert_cmpint(card_dma(c, 4, a, a, 1), ==, VROCE_DMA_BAD_CMD);
    g_assert_cmpint(card_dma(c, VROCE_DMA_FILL, a, a, 0), ==,
                    VROCE_DMA_BAD_LEN);
    g_assert_cmpint(card_dma(c, VROCE_DMA_FILL, a, a, VROCE_DMA_MAX_LEN + 1),
                    ==, VROCE_DMA_BAD_LEN);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_REGISTER), ==, 4);
    g_assert_cmpint(card_dma(c, VROCE_DMA_CHECKSUM, NOWHERE, a, 8), ==,
                    VROCE_DMA_FAULT);
    g_assert_cmpint(card_dma(c, VROCE_DMA_FILL, a, UINT64_MAX - 3, 8), ==,
                    VROCE_DMA_FAULT);
    /* Device memory, its own registers first of all, is no place for DMA. */
    g_assert_cmpint(card_dma(c, VROCE_DMA_FILL, a, c->regs.addr, 8), ==,
                    VROCE_DMA_FAULT);
    g_assert_cmpint(card_dma(c, VROCE_DMA_COPY, c->regs.addr, a, 8), ==,
                    VROCE_DMA_FAULT);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_MEM_DMA), ==, 4);
    g_assert_cmpint(card_dma(c, VROCE_DMA_FILL, a, a, 1), ==, VROCE_DMA_OK);
    card_stop(c);
}

static void test_bus_master(void)
{
    Card *c = card_start("");
    uint64_t a = card_alloc(c, 4096);

    g_assert_cmpint(card_dma(c, VROCE_DMA_CHECKSUM, a, 0, 8), ==, VROCE_DMA_OK);
    card_bus_master(c, false);
    g_assert_cmpint(card_dma(c, VROCE_DMA_CHECKSUM, a, 0, 8), ==,
                    VROCE_DMA_FAULT);
    card_bus_master(c, true);
    g_assert_cmpint(card_dma(c, VROCE_DMA_CHECKSUM, a, 0, 8), ==, VROCE_DMA_OK);
    card_stop(c);
}

/* --------------------------------------------------------- command queue */

static void test_cmdq_polled(void)
{
    Card *c = card_start("");
    uint32_t pdn;

    card_enable(c);
    pdn = card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0);
    card_destroy(c, VROCE_CMD_FREE_PD, pdn);
    card_stop(c);
}

static void test_cmdq_irq(void)
{
    Card *c = card_start("");
    uint64_t word = card_catch_irq(c, 2, 0xc0de);

    card_put(c, VROCE_REG_CMDQ_VECTOR, 2);
    card_enable(c);
    card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0);
    g_assert_true(card_irq_came(c, word, 0xc0de));
    card_stop(c);
}

static void test_cmdq_wrap(void)
{
    Card *c = card_start("");
    struct vroce_number out;

    card_enable_log(c, 1);
    for (int i = 0; i < 9; i++) {
        card_destroy(c, VROCE_CMD_FREE_PD,
                     card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0));
    }

    /* A full ring at once, from an odd index on. */
    card_cmd(c, VROCE_CMD_ALLOC_PD, NULL, 0, &out, sizeof(out));
    for (int i = 0; i < 2; i++) {
        struct vroce_cmd cmd = {
            .opcode = VROCE_CMD_ALLOC_PD,
            .id = cpu_to_le16(i),
            .out_len = cpu_to_le32(sizeof(out)),
            .out_addr = cpu_to_le64(card_alloc(c, sizeof(out))),
        };

        card_queue_cmd(c, &cmd);
    }
    card_ring_cmdq(c);
    for (int i = 0; i < 2; i++) {
        struct vroce_cmd_cpl cpl = card_wait_cpl(c, c->produced - 2 + i);

        g_assert_cmpint(cpl.status, ==, VROCE_OK);
        g_assert_cmpint(le16_to_cpu(cpl.id), ==, i);
    }
    card_stop(c);
}

static void test_cmdq_bad(void)
{
    Card *c = card_start("");
    uint8_t big[VROCE_SQ_UNIT * 16] = { 0 };
    struct vroce_number number = { 0 };
    uint16_t rule;

    card_enable(c);
    g_assert_cmpint(card_try(c, 0xee, NULL, 0, NULL, 0, &rule), ==,
                    VROCE_ERR_OPCODE);
    g_assert_cmpint(rule, ==, VROCE_RULE_CMD_OPCODE);
    g_assert_cmpint(card_try(c, VROCE_CMD_ALLOC_PD, &number, sizeof(number),
                             &number, sizeof(number), &rule), ==,
                    VROCE_ERR_LENGTH);
    g_assert_cmpint(rule, ==, VROCE_RULE_CMD_LENGTH);
    g_assert_cmpint(card_try(c, VROCE_CMD_ALLOC_PD, NULL, 0, &number, 4,
                             &rule), ==, VROCE_ERR_LENGTH);
    g_assert_cmpint(rule, ==, VROCE_RULE_CMD_LENGTH);
    g_assert_cmpint(card_try(c, VROCE_CMD_CREATE_QP, big, sizeof(big), &number,
                             sizeof(number), &rule), ==, VROCE_ERR_LENGTH);
    g_assert_cmpint(rule, ==, VROCE_RULE_CMD_LENGTH);
    number.number = cpu_to_le32(0xdead);
    g_assert_cmpint(card_try(c, VROCE_CMD_FREE_PD, &number, sizeof(number),
                             NULL, 0, &rule), ==, VROCE_ERR_NUMBER);
    g_assert_cmpint(rule, ==, VROCE_RULE_NO_OBJECT);
    card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0);
    card_stop(c);
}

/* Put a command with these addresses in the ring and wait for its answer. */
static struct vroce_cmd_cpl run_raw(Card *c, struct vroce_cmd *cmd)
{
    card_queue_cmd(c, cmd);
    card_ring_cmdq(c);
    return card_wait_cpl(c, c->produced - 1);
}

static void test_cmdq_dma(void)
{
    Card *c = card_start("");
    struct vroce_cmd cmd = {
        .opcode = VROCE_CMD_ALLOC_PD,
        .out_len = cpu_to_le32(8),
        .out_addr = cpu_to_le64(NOWHERE),
    };
    struct vroce_cmd_cpl cpl;

    card_enable(c);
    cpl = run_raw(c, &cmd);
    g_assert_cmpint(cpl.status, ==, VROCE_ERR_DMA);
    g_assert_cmpint(le16_to_cpu(cpl.rule), ==, VROCE_RULE_CMD_DMA);
    cmd = (struct vroce_cmd) {
        .opcode = VROCE_CMD_FREE_PD,
        .in_len = cpu_to_le32(8),
        .in_addr = cpu_to_le64(NOWHERE),
    };
    cpl = run_raw(c, &cmd);
    g_assert_cmpint(cpl.status, ==, VROCE_ERR_DMA);
    cmd.reserved1 = cpu_to_le32(1);
    cpl = run_raw(c, &cmd);
    g_assert_cmpint(cpl.status, ==, VROCE_ERR_PARAM);
    g_assert_cmpint(le16_to_cpu(cpl.rule), ==, VROCE_RULE_RESERVED);
    card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0);
    card_stop(c);
}

/* A ring that cannot be reached is the end, until a reset. */
static void test_cmdq_fatal(void)
{
    Card *c = card_start("");

    card_put64(c, VROCE_REG_CMDQ_SQ_BASE, NOWHERE);
    card_put64(c, VROCE_REG_CMDQ_CQ_BASE, NOWHERE);
    card_put(c, VROCE_REG_CMDQ_LOG_SIZE, 1);
    card_put(c, VROCE_REG_CTRL, VROCE_CTRL_ENABLE);
    card_put(c, VROCE_REG_CMDQ_DOORBELL, 1);
    g_assert_cmphex(card_get(c, VROCE_REG_STATUS), ==,
                    VROCE_STATUS_READY | VROCE_STATUS_FATAL);
    g_assert_cmpint(card_get(c, VROCE_REG_FATAL), ==, VROCE_FATAL_CMDQ);
    card_put(c, VROCE_REG_CMDQ_DOORBELL, 2);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_DB_STATE), ==, 1);

    card_put(c, VROCE_REG_RESET, VROCE_RESET_MAGIC);
    g_assert_cmphex(card_get(c, VROCE_REG_STATUS), ==, VROCE_STATUS_READY);
    card_enable(c);
    card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0);
    card_stop(c);
}

static void test_cmdq_doorbell(void)
{
    Card *c = card_start("");

    card_put(c, VROCE_REG_CMDQ_DOORBELL, 1);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_DB_STATE), ==, 1);
    card_enable(c);
    card_put(c, VROCE_REG_CMDQ_DOORBELL, (1 << CMDQ_LOG) + 1);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_CMD_DOORBELL), ==, 1);
    card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0);
    card_put(c, VROCE_REG_CMDQ_DOORBELL, 0);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_CMD_DOORBELL), ==, 2);
    card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0);
    card_stop(c);
}

/* ------------------------------------------------------------- doorbells */

static void test_doorbells(void)
{
    Card *c = card_start("");

    card_doorbell(c, 0, VROCE_DB_CQ_ARM, 1, 0);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_DB_STATE), ==, 1);
    card_enable(c);
    qpci_io_writel(c->dev, c->doorbells, 0, 1);
    qpci_io_writel(c->dev, c->doorbells, 4, 1);
    qpci_io_writeq(c->dev, c->doorbells, 8, 1);
    qpci_io_readq(c->dev, c->doorbells, 0);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_DB_ACCESS), ==, 4);
    card_doorbell(c, 0, VROCE_DB_SQ, 0xabcdef, 0);
    card_doorbell(c, 0, VROCE_DB_CQ_ARM, 0xabcdef, 0);
    card_doorbell(c, 0, VROCE_DB_EQ_ARM, 0xabcdef, 0);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_DB_NUMBER), ==, 3);
    card_stop(c);
}

/* ------------------------------------------------------------ properties */

static void test_properties(void)
{
    static const struct {
        const char *setting, *want;
    } bad[] = {
        { "'num-qps': 2", "property 'num-qps' of vroce is 2, it must be 3.." },
        { "'vectors': 65", "property 'vectors' of vroce is 65, it must be 1" },
        { "'max-sge': 17", "property 'max-sge' of vroce is 17" },
        { "'devmem-size': 3145728", "'devmem-size' is 3145728, it must be a" },
        { "'mac': '01:00:5e:00:00:01'", "'mac' is a multicast address" },
        { "'num-unicorns': 1", "num-unicorns" },
    };
    Card *c = card_start(" -device pcie-root-port,id=slot0");

    for (int i = 0; i < ARRAY_SIZE(bad); i++) {
        g_autofree char *command = g_strdup_printf(
            "{ 'execute': 'device_add', 'arguments': { 'driver': 'vroce', "
            "'id': 'bad', 'bus': 'slot0', %s } }", bad[i].setting);
        QDict *reply = qtest_qmp(c->qts, "%p", qobject_from_json(command,
                                                              &error_abort));
        const char *text;

        text = qdict_get_str(qdict_get_qdict(reply, "error"), "desc");
        if (!strstr(text, bad[i].want)) {
            g_test_message("%s: %s", bad[i].setting, text);
            g_test_fail();
        }
        qobject_unref(reply);
    }
    card_stop(c);
}

/* -------------------------------------------------------------- nonsense */

static void write_junk(Card *c, QPCIBar bar, uint64_t off)
{
    uint64_t value = (uint64_t)g_test_rand_int() << 32 |
                     (uint32_t)g_test_rand_int();

    /* Small numbers are likelier to mean something. */
    if (g_test_rand_bit()) {
        value &= 0xf;
    }
    switch (g_test_rand_int_range(0, 4)) {
    case 0:
        qpci_io_writeb(c->dev, bar, off, value);
        break;
    case 1:
        qpci_io_writew(c->dev, bar, off, value);
        break;
    case 2:
        qpci_io_writel(c->dev, bar, off, value);
        break;
    default:
        qpci_io_writeq(c->dev, bar, off, value);
        break;
    }
}

/* Whatever the guest writes, QEMU lives and a reset makes all well. */
static void test_nonsense(void)
{
    Card *c = card_start("");

    for (int round = 0; round < 3; round++) {
        card_enable(c);
        for (uint64_t off = 0; off < 0x600; off++) {
            write_junk(c, c->regs, off);
        }
        for (uint64_t off = 0x600; off < VROCE_MSIX_TABLE_OFFSET; off += 37) {
            write_junk(c, c->regs, off);
        }
        for (uint64_t off = 0; off < 0x20000; off += 509) {
            write_junk(c, c->doorbells, off);
            write_junk(c, c->doorbells, off & ~0xfffull);
        }
        card_put(c, VROCE_REG_RESET, VROCE_RESET_MAGIC);
    }
    card_enable(c);
    card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0);
    card_stop(c);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);

    add_register_tests();
    qtest_add_func("/vroce/bring-up/scratch", test_scratch);
    qtest_add_func("/vroce/bring-up/irq", test_irq);
    qtest_add_func("/vroce/bring-up/dma", test_dma);
    qtest_add_func("/vroce/bring-up/dma-refused", test_dma_refused);
    qtest_add_func("/vroce/bring-up/bus-master", test_bus_master);
    qtest_add_func("/vroce/cmdq/polled", test_cmdq_polled);
    qtest_add_func("/vroce/cmdq/irq", test_cmdq_irq);
    qtest_add_func("/vroce/cmdq/wrap", test_cmdq_wrap);
    qtest_add_func("/vroce/cmdq/bad", test_cmdq_bad);
    qtest_add_func("/vroce/cmdq/dma", test_cmdq_dma);
    qtest_add_func("/vroce/cmdq/fatal", test_cmdq_fatal);
    qtest_add_func("/vroce/cmdq/doorbell", test_cmdq_doorbell);
    qtest_add_func("/vroce/doorbells", test_doorbells);
    qtest_add_func("/vroce/properties", test_properties);
    qtest_add_func("/vroce/nonsense", test_nonsense);
    add_queue_tests();
    add_host_tests();
    add_hostile_command_tests();
    add_hostile_ring_tests();
    add_hostile_tests();
    return g_test_run();
}
