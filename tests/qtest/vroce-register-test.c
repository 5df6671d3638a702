/*
 * QTest of the vroce RDMA network card: registers, and what resets them
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "hw/pci/pci_regs.h"
#include "vroce-card.h"

/* ------------------------------------------------------------- registers */

#define PROPS ",vectors=5,num-contexts=48,max-mtu=4200"

static void test_identity(void)
{
    Card *c = card_start(PROPS);

    g_assert_cmphex(qpci_config_readw(c->dev, PCI_VENDOR_ID), ==,
                    VROCE_PCI_VENDOR);
    g_assert_cmphex(qpci_config_readw(c->dev, PCI_DEVICE_ID), ==,
                    VROCE_PCI_DEVICE);
    g_assert_cmphex(qpci_config_readb(c->dev, PCI_REVISION_ID), ==,
                    VROCE_PCI_REVISION);
    g_assert_cmphex(qpci_config_readw(c->dev, PCI_CLASS_DEVICE), ==, 0x0200);
    g_assert_cmpint(qpci_msix_table_size(c->dev), ==, 5);
    card_stop(c);
}

#define CLOCK_NS 5000000000ll

enum access { RO, RW, WO };

/* The table of docs/device/registers.md: check_spec.py compares them. */
static const struct reg {
    uint32_t offset;
    uint8_t width;
    enum access access;
    uint64_t initial;
    uint64_t other;             /* a value that it takes, too */
    bool locked;                /* while enabled */
} regs[] = {
    { 0x000, 32, RO, 0x434f5256 },
    { 0x004, 32, RO, 0x10000 },
    { 0x008, 32, RO, 1 },
    { 0x00c, 32, RW, 0, 1 },
    { 0x010, 32, WO },
    { 0x014, 32, RO, 0 },
    { 0x018, 32, RO, 0x12005452 },
    { 0x01c, 32, RO, 0x5634 },
    { 0x020, 32, RO, 100000 << 8 | 1 },
    { 0x024, 32, RO, 5 },
    { 0x028, 32, RW, 12, 13, .locked = true },
    { 0x02c, 32, RO, 48 },
    { 0x030, 64, RO, CLOCK_NS },
    { 0x038, 32, RO, 1 << 20 },
    { 0x03c, 32, RO, 4200 },
    { 0x100, 64, RW, 0, NOWHERE, .locked = true },
    { 0x108, 64, RW, 0, NOWHERE + 0x1000, .locked = true },
    { 0x110, 32, RW, 0, 1, .locked = true },
    { 0x114, 32, RW, 0xffffffff, 4, .locked = true },
    { 0x118, 32, WO },
    { 0x200, 32, RW, 0, 0x12345678 },
    { 0x204, 32, WO },
    { 0x208, 32, WO },
    { 0x20c, 32, RO, 0 },
    { 0x210, 64, RW, 0, 0x1122334455667788 },
    { 0x218, 64, RW, 0, 0x99aabbccddeeff00 },
    { 0x220, 32, RW, 0, 0x100000 },
    { 0x224, 32, RW, 0, 0xa5a5a5a5 },
    { 0x228, 32, RO, 0 },
    { 0x400, 32, RW, 0, 10000 },        /* of vectors 0 and 1 */
    { 0x404, 32, RW, 0, 1 },
};

static uint64_t get_reg(Card *c, const struct reg *reg)
{
    return reg->width == 64 ? card_get64(c, reg->offset) :
           card_get(c, reg->offset);
}

static void put_reg(Card *c, const struct reg *reg, uint64_t value)
{
    /* SCRATCH reads back inverted. */
    if (reg->offset == 0x200) {
        value = ~value;
    }
    if (reg->width == 64) {
        card_put64(c, reg->offset, value);
    } else {
        card_put(c, reg->offset, value);
    }
}

static void expect_reg(Card *c, const struct reg *reg, uint64_t want)
{
    uint64_t value = get_reg(c, reg);

    if (value != want) {
        g_test_message("register 0x%03x is 0x%" PRIx64 ", not 0x%" PRIx64,
                       reg->offset, value, want);
        g_test_fail();
    }
}

static void expect_initial(Card *c)
{
    for (int i = 0; i < ARRAY_SIZE(regs); i++) {
        expect_reg(c, &regs[i], regs[i].initial);
    }
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_REGISTER), ==, 0);
}

/* A write is taken, or refused and reported. What WO ones do is seen below. */
static void check_write(Card *c, const struct reg *reg, uint64_t value,
                        bool enabled)
{
    bool taken = reg->access == RW && !(reg->locked && enabled);
    uint64_t before = get_reg(c, reg);
    uint64_t misuse = card_misuse(c, VROCE_RULE_REGISTER);

    if (reg->access == WO) {
        return;
    }
    put_reg(c, reg, reg->access == RO ? ~before : value);
    expect_reg(c, reg, taken ? value : before);
    if (reg->width == 64) {
        card_put(c, reg->offset, taken ? value : ~before);
        card_put(c, reg->offset + 4, taken ? value >> 32 : ~before >> 32);
        expect_reg(c, reg, taken ? value : before);
    }
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_REGISTER), ==, misuse +
                     (taken ? 0 : reg->width == 64 ? 3 : 1));
}

/* Where no register is, nothing is read or written. */
static void check_holes(Card *c)
{
    uint64_t misuse = card_misuse(c, VROCE_RULE_REGISTER);
    uint32_t off = 0, holes = 0;

    for (int i = 0; i < ARRAY_SIZE(regs); i++) {
        for (; off < regs[i].offset; off += 4, holes++) {
            g_assert_cmphex(card_get(c, off), ==, 0);
            card_put(c, off, UINT32_MAX);
        }
        off += regs[i].width / 8;
    }
    /* Behind the moderation of vector 4, and at the end. */
    for (off = 0x414; off < 0x8000; off += off < 0x800 ? 4 : 508, holes++) {
        g_assert_cmphex(card_get(c, off), ==, 0);
        card_put(c, off, UINT32_MAX);
    }
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_REGISTER), ==,
                     misuse + 2 * holes);
}

/* Nothing that can differ from the value after power-on is left at it. */
static void change_all(Card *c)
{
    uint64_t a = card_alloc(c, 4096);

    card_dma(c, VROCE_DMA_CHECKSUM, a, 0, 9);
    card_dma(c, 0, 0, 0, 0);
    /* CTRL comes after those that it locks. */
    for (int i = ARRAY_SIZE(regs) - 1; i >= 0; i--) {
        if (regs[i].access == RW) {
            put_reg(c, &regs[i], regs[i].other);
        }
    }
    card_put(c, VROCE_REG_CMDQ_DOORBELL, 1);
    for (int i = 0; i < ARRAY_SIZE(regs); i++) {
        if (regs[i].access == RW) {
            expect_reg(c, &regs[i], regs[i].other);
        }
    }
    g_assert_cmphex(card_get(c, VROCE_REG_STATUS), ==,
                    VROCE_STATUS_READY | VROCE_STATUS_FATAL);
    g_assert_cmpint(card_get(c, VROCE_REG_FATAL), ==, VROCE_FATAL_CMDQ);
    g_assert_cmpint(card_get(c, VROCE_REG_DMA_STATUS), ==, VROCE_DMA_BAD_CMD);
    g_assert_cmphex(card_get(c, VROCE_REG_DMA_CRC), !=, 0);
}

static Card *start_at_clock(void)
{
    Card *c = card_start(PROPS);

    qtest_clock_set(c->qts, CLOCK_NS);
    return c;
}

static void test_table(void)
{
    Card *c = start_at_clock();

    expect_initial(c);
    for (int i = ARRAY_SIZE(regs) - 1; i >= 0; i--) {
        check_write(c, &regs[i], regs[i].other, false);
    }
    for (int i = ARRAY_SIZE(regs) - 1; i >= 0; i--) {
        check_write(c, &regs[i], regs[i].initial, true);
    }
    check_holes(c);
    card_stop(c);
}

static void test_wide(void)
{
    Card *c = card_start("");
    uint64_t clock;
    uint32_t low, high;

    card_put64(c, VROCE_REG_CMDQ_SQ_BASE, 0x1122334455667788ull);
    g_assert_cmphex(card_get(c, VROCE_REG_CMDQ_SQ_BASE), ==, 0x55667788);
    g_assert_cmphex(card_get(c, VROCE_REG_CMDQ_SQ_BASE + 4), ==, 0x11223344);
    card_put(c, VROCE_REG_CMDQ_CQ_BASE, 0xaabbccdd);
    card_put(c, VROCE_REG_CMDQ_CQ_BASE + 4, 0x99);
    g_assert_cmphex(card_get64(c, VROCE_REG_CMDQ_CQ_BASE), ==,
                    0x99aabbccddull);
    g_assert_cmphex(card_get64(c, VROCE_REG_CMDQ_SQ_BASE), ==,
                    0x1122334455667788ull);

    qtest_clock_step(c->qts, 5000000000ll);
    clock = card_get64(c, VROCE_REG_CLOCK);
    g_assert_cmpuint(clock, >=, 5000000000ull);
    low = card_get(c, VROCE_REG_CLOCK);
    qtest_clock_step(c->qts, 5000000000ll);
    high = card_get(c, VROCE_REG_CLOCK + 4);
    g_assert_cmpuint((uint64_t)high << 32 | low, ==, clock);
    g_assert_cmpuint(card_get64(c, VROCE_REG_CLOCK), ==,
                     clock + 5000000000ull);

    /* An 8-byte access needs an 8-byte register. */
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_REGISTER), ==, 0);
    card_get64(c, VROCE_REG_ID);
    card_put64(c, VROCE_REG_SCRATCH, 0);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_REGISTER), ==, 2);
    card_stop(c);
}

static void test_ranges(void)
{
    Card *c = card_start("");

    card_put(c, VROCE_REG_DB_SHIFT, 16);
    g_assert_cmpuint(card_get(c, VROCE_REG_DB_SHIFT), ==, 16);
    card_put(c, VROCE_REG_DB_SHIFT, 17);
    card_put(c, VROCE_REG_DB_SHIFT, 11);
    g_assert_cmpuint(card_get(c, VROCE_REG_DB_SHIFT), ==, 16);
    card_put(c, VROCE_REG_CMDQ_LOG_SIZE, VROCE_CMDQ_MAX_LOG + 1);
    g_assert_cmpuint(card_get(c, VROCE_REG_CMDQ_LOG_SIZE), ==, 0);
    card_put(c, VROCE_REG_MODERATION(3), 250);
    g_assert_cmpuint(card_get(c, VROCE_REG_MODERATION(3)), ==, 250);
    card_put(c, VROCE_REG_MODERATION(3), VROCE_MODERATION_MAX_US + 1);
    g_assert_cmpuint(card_get(c, VROCE_REG_MODERATION(3)), ==, 250);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_REGISTER), ==, 4);

    card_put(c, VROCE_REG_RESET, 0x1234);
    g_assert_cmpuint(card_get(c, VROCE_REG_DB_SHIFT), ==, 16);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_REGISTER), ==, 5);

    /* Reserved bits of CTRL: nothing of it is taken. */
    card_put(c, VROCE_REG_CTRL, VROCE_CTRL_ENABLE | 2);
    g_assert_cmphex(card_get(c, VROCE_REG_CTRL), ==, 0);
    card_enable(c);
    card_put(c, VROCE_REG_CTRL, 1u << 31);
    g_assert_cmphex(card_get(c, VROCE_REG_CTRL), ==, VROCE_CTRL_ENABLE);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_RESERVED), ==, 2);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_REGISTER), ==, 5);

    /* Locked while enabled. */
    card_put(c, VROCE_REG_DB_SHIFT, 12);
    card_put64(c, VROCE_REG_CMDQ_SQ_BASE, 0);
    g_assert_cmpuint(card_get(c, VROCE_REG_DB_SHIFT), ==, 16);
    g_assert_cmphex(card_get64(c, VROCE_REG_CMDQ_SQ_BASE), ==, c->sq);
    g_assert_cmpuint(card_misuse(c, VROCE_RULE_REGISTER), ==, 7);
    card_stop(c);
}

/* ---------------------------------------------------------------- resets */

static void reset_register(Card *c)
{
    card_put(c, VROCE_REG_RESET, VROCE_RESET_MAGIC);
}

static void reset_function(Card *c)
{
    uint8_t express = qpci_find_capability(c->dev, PCI_CAP_ID_EXP, 0);

    g_assert_cmphex(qpci_config_readl(c->dev, express + PCI_EXP_DEVCAP) &
                    PCI_EXP_DEVCAP_FLR, !=, 0);
    qpci_config_writew(c->dev, express + PCI_EXP_DEVCTL,
                       PCI_EXP_DEVCTL_BCR_FLR);
}

static void reset_machine(Card *c)
{
    qtest_system_reset(c->qts);
}

/* Configuration space is gone too: restore it, as a system does. */
static void restore_config(Card *c)
{
    g_assert_cmphex(qpci_config_readw(c->dev, PCI_COMMAND), ==, 0);
    g_assert_cmphex(qpci_config_readl(c->dev, PCI_BASE_ADDRESS_0), ==, 0);
    qpci_config_writel(c->dev, PCI_BASE_ADDRESS_0, c->regs.addr);
    qpci_device_enable(c->dev);
}

static void check_reset(void (*reset)(Card *c), bool config)
{
    Card *c = start_at_clock();
    struct vroce_number pd = { 0 };
    uint16_t rule;

    card_catch_irq(c, 1, 0xaa);
    card_enable(c);
    pd.number = cpu_to_le32(card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0));
    card_put(c, VROCE_REG_CTRL, 0);
    change_all(c);
    reset(c);
    if (config) {
        restore_config(c);
    }
    expect_initial(c);
    g_assert_cmphex(card_get(c, VROCE_MSIX_TABLE_OFFSET + PCI_MSIX_ENTRY_SIZE +
                             PCI_MSIX_ENTRY_DATA), ==, config ? 0 : 0xaa);
    card_enable(c);
    g_assert_cmpint(card_try(c, VROCE_CMD_FREE_PD, &pd, sizeof(pd), NULL, 0,
                             &rule), ==, VROCE_ERR_NUMBER);
    card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0);
    card_stop(c);
}

static void test_reset(void)
{
    check_reset(reset_register, false);
}

static void test_flr(void)
{
    check_reset(reset_function, true);
}

static void test_machine_reset(void)
{
    check_reset(reset_machine, true);
}

/* A card behind a port, whose bus is reset; the card beside it goes on. */
static void test_bus_reset(void)
{
    Card *c = card_start(" -device pcie-root-port,id=slot0,addr=5.0"
                         " -device vroce,id=second,bus=slot0");
    QPCIDevice *port = qpci_device_find(c->bus, QPCI_DEVFN(5, 0));
    Card second = *c;
    uint16_t window;

    qpci_device_enable(port);
    qpci_config_writeb(port, PCI_SECONDARY_BUS, 1);
    qpci_config_writeb(port, PCI_SUBORDINATE_BUS, 1);
    second.dev = qpci_device_find(c->bus, 1 << 8);
    g_assert_nonnull(second.dev);
    second.regs = qpci_iomap(second.dev, VROCE_BAR_REGS, NULL);
    window = second.regs.addr >> 16 & 0xfff0;
    qpci_config_writew(port, PCI_MEMORY_BASE, window);
    qpci_config_writew(port, PCI_MEMORY_LIMIT, window);
    qpci_device_enable(second.dev);
    g_assert_cmphex(card_get(&second, VROCE_REG_ID), ==, VROCE_ID_MAGIC);
    card_put(&second, VROCE_REG_SCRATCH, 1);
    card_put(c, VROCE_REG_SCRATCH, 2);

    qpci_config_writew(port, PCI_BRIDGE_CONTROL, PCI_BRIDGE_CTL_BUS_RESET);
    qpci_config_writew(port, PCI_BRIDGE_CONTROL, 0);
    restore_config(&second);
    g_assert_cmphex(card_get(&second, VROCE_REG_SCRATCH), ==, 0);
    g_assert_cmphex(card_get(c, VROCE_REG_SCRATCH), ==, ~2u);
    g_free(second.dev);
    g_free(port);
    card_stop(c);
}

void add_register_tests(void)
{
    qtest_add_func("/vroce/registers/identity", test_identity);
    qtest_add_func("/vroce/registers/table", test_table);
    qtest_add_func("/vroce/registers/64-bit", test_wide);
    qtest_add_func("/vroce/registers/ranges", test_ranges);
    qtest_add_func("/vroce/reset/register", test_reset);
    qtest_add_func("/vroce/reset/flr", test_flr);
    qtest_add_func("/vroce/reset/machine", test_machine_reset);
    qtest_add_func("/vroce/reset/bus", test_bus_reset);
}
