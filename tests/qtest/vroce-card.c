/*
 * QTest of the vroce RDMA network card: a card and its driver's basic moves
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qobject/qdict.h"
#include "qobject/qlist.h"
#include "tests/qtest/libqos/pci-pc.h"
#include "hw/pci/pci_regs.h"
#include "vroce-card.h"

#define CARD_SLOT 4
#define FIRST_FREE (1ull << 20)
#define GUEST_RAM (128ull << 20)
#define BIOS_SIZE (64 << 10)

/* No firmware runs here: an empty one lets QEMU start without its blobs. */
static char *make_bios(void)
{
    g_autofree void *zeroes = g_malloc0(BIOS_SIZE);
    char *name = NULL;
    int fd = g_file_open_tmp("vroce-test-XXXXXX", &name, NULL);

    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(write(fd, zeroes, BIOS_SIZE), ==, BIOS_SIZE);
    close(fd);
    return name;
}

static bool migration_active(Card *c)
{
    QDict *reply = qtest_qmp(c->qts, "{ 'execute': 'query-migrate' }");
    QDict *info = qdict_get_qdict(reply, "return");
    const char *status = qdict_get_str(info, "status");
    bool done = g_str_equal(status, "completed");

    g_assert_cmpstr(status, !=, "failed");
    qobject_unref(reply);
    return !done;
}

/* Start a QEMU at the other end of a new wire. */
static void start_qemu(Card *c, const char *more)
{
    g_autofree char *bios = make_bios();
    int fds[2];

    g_assert_cmpint(socketpair(AF_UNIX, SOCK_DGRAM, 0, fds), ==, 0);
    c->qts = qtest_initf("-M q35 -bios %s -m %u -nodefaults "
                         "-global apic-common.vapic=off "
                         "-netdev dgram,id=wire,local.type=fd,local.str=%d "
                         "-device vroce,id=card,bus=pcie.0,addr=%u.0,"
                         "netdev=wire,mac=52:54:00:12:34:56%s %s",
                         bios, (unsigned)(GUEST_RAM >> 20), fds[1],
                         CARD_SLOT, c->props, more);
    unlink(bios);
    close(fds[1]);
    c->wire = fds[0];
    c->bus = qpci_new_pc(c->qts, NULL);
    c->dev = qpci_device_find(c->bus, QPCI_DEVFN(CARD_SLOT, 0));
    g_assert_nonnull(c->dev);
}

static void stop_qemu(Card *c)
{
    g_free(c->dev);
    qpci_free_pc(c->bus);
    qtest_quit(c->qts);
    close(c->wire);
}

Card *card_start(const char *props)
{
    Card *c = g_new0(Card, 1);

    c->next = FIRST_FREE;
    c->props = g_strdup(props);
    start_qemu(c, "");
    qpci_device_enable(c->dev);
    /* Maps the table's BAR, which is the registers' BAR. */
    qpci_msix_enable(c->dev);
    c->regs = c->dev->msix_table_bar;
    c->doorbells = qpci_iomap(c->dev, VROCE_BAR_DOORBELL, NULL);
    return c;
}

void card_stop(Card *c)
{
    stop_qemu(c);
    g_free(c->props);
    g_free(c);
}

void card_migrate(Card *c)
{
    g_autofree char *name = NULL, *uri = NULL;
    int fd = g_file_open_tmp("vroce-test-XXXXXX", &name, NULL);

    g_assert_cmpint(fd, >=, 0);
    close(fd);
    uri = g_strdup_printf("file:%s", name);
    qtest_qmp_assert_success(c->qts, "{ 'execute': 'migrate', 'arguments': "
                             "{ 'uri': %s } }", uri);
    qtest_qmp_eventwait(c->qts, "STOP");
    while (migration_active(c)) {
        g_usleep(10000);
    }
    stop_qemu(c);
    /* Not at once, or the event may be over before the monitor listens. */
    start_qemu(c, "-incoming defer");
    qtest_qmp_assert_success(c->qts, "{ 'execute': 'migrate-incoming', "
                             "'arguments': { 'uri': %s } }", uri);
    qtest_qmp_eventwait(c->qts, "RESUME");
    unlink(name);
}

uint32_t card_get(Card *c, uint32_t reg)
{
    return qpci_io_readl(c->dev, c->regs, reg);
}

void card_put(Card *c, uint32_t reg, uint32_t value)
{
    qpci_io_writel(c->dev, c->regs, reg, value);
}

uint64_t card_get64(Card *c, uint32_t reg)
{
    return qpci_io_readq(c->dev, c->regs, reg);
}

void card_put64(Card *c, uint32_t reg, uint64_t value)
{
    qpci_io_writeq(c->dev, c->regs, reg, value);
}

void card_bus_master(Card *c, bool on)
{
    uint16_t command = qpci_config_readw(c->dev, PCI_COMMAND);

    command &= ~PCI_COMMAND_MASTER;
    qpci_config_writew(c->dev, PCI_COMMAND,
                       command | (on ? PCI_COMMAND_MASTER : 0));
}

void card_doorbell(Card *c, uint32_t page, enum vroce_db_kind kind,
                   uint32_t number, uint32_t value)
{
    uint32_t shift = card_get(c, VROCE_REG_DB_SHIFT);

    qpci_io_writeq(c->dev, c->doorbells, (uint64_t)page << shift,
                   vroce_doorbell(kind, number, value));
}

uint64_t card_alloc(Card *c, uint64_t size)
{
    uint64_t addr = c->next;

    size = ROUND_UP(size, 4096);
    c->next += size;
    g_assert_cmpuint(c->next, <=, GUEST_RAM);
    qtest_memset(c->qts, addr, 0, size);
    return addr;
}

uint32_t card_dma(Card *c, enum vroce_dma_cmd cmd, uint64_t src, uint64_t dst,
                  uint32_t len)
{
    card_put64(c, VROCE_REG_DMA_SRC, src);
    card_put64(c, VROCE_REG_DMA_DST, dst);
    card_put(c, VROCE_REG_DMA_LEN, len);
    card_put(c, VROCE_REG_DMA_CMD, cmd);
    return card_get(c, VROCE_REG_DMA_STATUS);
}

QDict *card_query(Card *c)
{
    QDict *reply = qtest_qmp(c->qts, "{ 'execute': 'x-query-vroce', "
                             "'arguments': { 'path': 'card' } }");
    QList *cards = qdict_get_qlist(reply, "return");
    QDict *card = qobject_to(QDict, qlist_peek(cards));

    qobject_ref(card);
    qobject_unref(reply);
    return card;
}

uint64_t card_misuse(Card *c, enum vroce_rule rule)
{
    QDict *card = card_query(c);
    const QListEntry *entry;
    uint64_t count = 0;

    QLIST_FOREACH_ENTRY(qdict_get_qlist(card, "misuse"), entry) {
        QDict *misuse = qobject_to(QDict, qlist_entry_obj(entry));

        if (qdict_get_int(misuse, "rule") == rule) {
            count = qdict_get_int(misuse, "count");
        }
    }
    qobject_unref(card);
    return count;
}

uint64_t card_catch_irq(Card *c, unsigned int vector, uint32_t data)
{
    uint64_t where = card_alloc(c, 4);
    uint64_t entry = VROCE_MSIX_TABLE_OFFSET + vector * PCI_MSIX_ENTRY_SIZE;

    card_put(c, entry + PCI_MSIX_ENTRY_LOWER_ADDR, where);
    card_put(c, entry + PCI_MSIX_ENTRY_UPPER_ADDR, 0);
    card_put(c, entry + PCI_MSIX_ENTRY_DATA, data);
    card_put(c, entry + PCI_MSIX_ENTRY_VECTOR_CTRL, 0);
    return where;
}

bool card_irq_came(Card *c, uint64_t where, uint32_t data)
{
    bool came = qtest_readl(c->qts, where) == data;

    qtest_writel(c->qts, where, 0);
    return came;
}

/* --------------------------------------------------------- command queue */

void card_enable_log(Card *c, uint32_t log)
{
    c->log = log;
    c->produced = 0;
    c->sq = card_alloc(c, sizeof(struct vroce_cmd) << log);
    c->cq = card_alloc(c, sizeof(struct vroce_cmd_cpl) << log);
    card_put(c, VROCE_REG_CTRL, 0);
    card_put64(c, VROCE_REG_CMDQ_SQ_BASE, c->sq);
    card_put64(c, VROCE_REG_CMDQ_CQ_BASE, c->cq);
    card_put(c, VROCE_REG_CMDQ_LOG_SIZE, log);
    card_put(c, VROCE_REG_CTRL, VROCE_CTRL_ENABLE);
    g_assert_cmphex(card_get(c, VROCE_REG_STATUS) & VROCE_STATUS_ENABLED, !=,
                    0);
}

void card_enable(Card *c)
{
    card_enable_log(c, CMDQ_LOG);
}

void card_queue_cmd(Card *c, const struct vroce_cmd *cmd)
{
    uint32_t index = c->produced++ & ((1u << c->log) - 1);

    qtest_memwrite(c->qts, c->sq + index * sizeof(*cmd), cmd, sizeof(*cmd));
}

void card_ring_cmdq(Card *c)
{
    card_put(c, VROCE_REG_CMDQ_DOORBELL, c->produced);
}

struct vroce_cmd_cpl card_wait_cpl(Card *c, uint32_t n)
{
    uint64_t where = c->cq + (n & ((1u << c->log) - 1)) *
                     sizeof(struct vroce_cmd_cpl);
    uint32_t phase = !(n >> c->log & 1);
    gint64 until = g_get_monotonic_time() + 10 * G_USEC_PER_SEC;
    struct vroce_cmd_cpl cpl;

    do {
        qtest_memread(c->qts, where, &cpl, sizeof(cpl));
        g_assert_cmpint(g_get_monotonic_time(), <, until);
    } while ((le32_to_cpu(cpl.phase) & 1) != phase);
    return cpl;
}

enum vroce_status card_try(Card *c, uint8_t opcode, const void *in,
                           uint32_t in_len, void *out, uint32_t out_len,
                           uint16_t *rule)
{
    uint64_t keep = c->next;
    uint64_t in_addr = card_alloc(c, MAX(in_len, 1));
    uint64_t out_addr = card_alloc(c, MAX(out_len, 1));
    uint32_t n = c->produced;
    struct vroce_cmd cmd = {
        .opcode = opcode,
        .id = cpu_to_le16(0x5a00 ^ n),
        .in_len = cpu_to_le32(in_len),
        .in_addr = cpu_to_le64(in_addr),
        .out_len = cpu_to_le32(out_len),
        .out_addr = cpu_to_le64(out_addr),
    };
    struct vroce_cmd_cpl cpl;

    if (in_len) {
        qtest_memwrite(c->qts, in_addr, in, in_len);
    }
    card_queue_cmd(c, &cmd);
    card_ring_cmdq(c);
    cpl = card_wait_cpl(c, n);
    g_assert_cmphex(cpl.id, ==, cmd.id);
    g_assert_cmpuint(le16_to_cpu(cpl.sq_head), ==, (uint16_t)c->produced);
    if (out_len) {
        qtest_memread(c->qts, out_addr, out, out_len);
    }
    *rule = le16_to_cpu(cpl.rule);
    c->next = keep;
    return cpl.status;
}

void card_cmd(Card *c, uint8_t opcode, const void *in, uint32_t in_len,
              void *out, uint32_t out_len)
{
    uint16_t rule;
    enum vroce_status status = card_try(c, opcode, in, in_len, out, out_len,
                                        &rule);

    if (status != VROCE_OK) {
        g_test_message("command 0x%02x: status %d rule %d", opcode, status,
                       rule);
    }
    g_assert_cmpint(status, ==, VROCE_OK);
    g_assert_cmpint(rule, ==, VROCE_RULE_NONE);
}

uint32_t card_create(Card *c, uint8_t opcode, const void *in, uint32_t in_len)
{
    struct vroce_number out;

    card_cmd(c, opcode, in, in_len, &out, sizeof(out));
    return le32_to_cpu(out.number);
}

void card_destroy(Card *c, uint8_t opcode, uint32_t number)
{
    struct vroce_number in = { .number = cpu_to_le32(number) };

    card_cmd(c, opcode, &in, sizeof(in), NULL, 0);
}
