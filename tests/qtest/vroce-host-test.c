/*
 * QTest of the vroce RDMA network card: what surrounds it in QEMU: virtual
 * IOMMU, unplugging, the wire's backend, management commands and events
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qapi/error.h"
#include "qobject/qdict.h"
#include "qobject/qjson.h"
#include "qobject/qlist.h"
#include "hw/net/e1000_regs.h"
#include "hw/pci/pci_regs.h"
#include "vroce-driver.h"

/* ----------------------------------------------------------------- IOMMU */

/* Intel VT-d: registers and entries used here, by its specification. */
#define VTD_BASE 0xfed90000ull
#define VTD_GCMD 0x18
#define VTD_GCMD_SRTP (1u << 30)
#define VTD_GCMD_TE (1u << 31)
#define VTD_RTADDR 0x20
#define VTD_PRESENT 1
#define VTD_READ 1
#define VTD_WRITE 2
#define VTD_CONTEXT_39_BITS 1

/* Where the card sees its pages. */
#define IOVA 0x40000000ull

/* Turn the IOMMU on, nothing mapped at IOVA; returns the last level's table. */
static uint64_t iommu_start(Card *c)
{
    uint64_t root = card_alloc(c, 4096), context = card_alloc(c, 4096);
    uint64_t level3 = card_alloc(c, 4096), level2 = card_alloc(c, 4096);
    uint64_t level1 = card_alloc(c, 4096);
    uint64_t entry = context + c->dev->devfn * 16;

    qtest_writeq(c->qts, root, context | VTD_PRESENT);
    qtest_writeq(c->qts, entry, level3 | VTD_PRESENT);
    qtest_writeq(c->qts, entry + 8, VTD_CONTEXT_39_BITS | 1 << 8);
    qtest_writeq(c->qts, level3 + 8, level2 | VTD_READ | VTD_WRITE);
    qtest_writeq(c->qts, level2, level1 | VTD_READ | VTD_WRITE);
    qtest_writeq(c->qts, VTD_BASE + VTD_RTADDR, root);
    qtest_writel(c->qts, VTD_BASE + VTD_GCMD, VTD_GCMD_SRTP);
    qtest_writel(c->qts, VTD_BASE + VTD_GCMD, VTD_GCMD_TE);
    return level1;
}

static void test_iommu(void)
{
    Card *c = card_start(" -device intel-iommu");
    uint64_t a = card_alloc(c, 4096), b = card_alloc(c, 4096), table;
    QDict *info;

    g_assert_cmpint(card_dma(c, VROCE_DMA_FILL, 0, a, 16), ==, VROCE_DMA_OK);
    table = iommu_start(c);
    info = card_query(c);
    g_assert_true(qdict_get_bool(info, "iommu"));
    qobject_unref(info);

    /* Neighbours in the card's view are apart in memory, in the other order. */
    qtest_writeq(c->qts, table, b | VTD_READ | VTD_WRITE);
    qtest_writeq(c->qts, table + 8, a | VTD_READ | VTD_WRITE);
    qtest_writeq(c->qts, table + 16, a | VTD_READ);
    card_put(c, VROCE_REG_DMA_PATTERN, 0x5a);
    g_assert_cmpint(card_dma(c, VROCE_DMA_FILL, 0, a, 16), ==,
                    VROCE_DMA_FAULT);
    g_assert_cmpint(card_dma(c, VROCE_DMA_FILL, 0, IOVA + 4094, 4), ==,
                    VROCE_DMA_OK);
    g_assert_cmphex(qtest_readl(c->qts, b + 4092), ==, 0x5a5a0000);
    g_assert_cmphex(qtest_readl(c->qts, a), ==, 0x5a5a);

    qtest_writel(c->qts, a, 0x34333231);
    qtest_writel(c->qts, a + 4, 0x38373635);
    qtest_writeb(c->qts, a + 8, 0x39);
    g_assert_cmpint(card_dma(c, VROCE_DMA_CHECKSUM, IOVA + 8192, 0, 9), ==,
                    VROCE_DMA_OK);
    g_assert_cmphex(card_get(c, VROCE_REG_DMA_CRC), ==, 0xcbf43926);
    g_assert_cmpint(card_dma(c, VROCE_DMA_FILL, 0, IOVA + 8192, 1), ==,
                    VROCE_DMA_FAULT);
    g_assert_cmpint(card_dma(c, VROCE_DMA_FILL, 0, IOVA + 3 * 4096, 1), ==,
                    VROCE_DMA_FAULT);

    /* Off again: the mappings of before are back. */
    qtest_writel(c->qts, VTD_BASE + VTD_GCMD, 0);
    g_assert_cmpint(card_dma(c, VROCE_DMA_FILL, 0, b, 16), ==, VROCE_DMA_OK);
    g_assert_cmphex(qtest_readl(c->qts, b), ==, 0x5a5a5a5a);
    card_stop(c);
}

/* ---------------------------------------------------------------- unplug */

/* The guest switches the slot off while the card in it is alive. */
static void test_unplug(void)
{
    Card *c = card_start(" -device pcie-root-port,id=slot0,addr=5.0"
                         " -global ICH9-LPC.acpi-pci-hotplug-with-bridge-"
                         "support=off -device vroce,id=second,bus=slot0");
    QPCIDevice *port = qpci_device_find(c->bus, QPCI_DEVFN(5, 0));
    uint8_t express = qpci_find_capability(port, PCI_CAP_ID_EXP, 0);
    QDict *error;

    qtest_qmp_assert_success(c->qts, "{ 'execute': 'x-query-vroce', "
                             "'arguments': { 'path': 'second' } }");
    qpci_config_writew(port, express + PCI_EXP_SLTCTL,
                       PCI_EXP_SLTCTL_PWR_IND_OFF | PCI_EXP_SLTCTL_PWR_OFF);
    error = qtest_qmp_assert_failure_ref(c->qts, "{ 'execute': "
                                         "'x-query-vroce', 'arguments': "
                                         "{ 'path': 'second' } }");
    qobject_unref(error);
    /* Nothing of the card is left: another one may come. */
    qtest_qmp_eventwait(c->qts, "DEVICE_DELETED");
    qpci_config_writew(port, express + PCI_EXP_SLTCTL,
                       PCI_EXP_SLTCTL_PWR_IND_ON | PCI_EXP_SLTCTL_PWR_ON);
    qtest_qmp_assert_success(c->qts, "{ 'execute': 'device_add', 'arguments': "
                             "{ 'driver': 'vroce', 'id': 'second', "
                             "'bus': 'slot0' } }");
    g_free(port);
    card_stop(c);
}

/* ------------------------------------------------------------ management */

static void test_query(void)
{
    Card *c = card_start(",vectors=3");
    QDict *info = card_query(c), *queue;

    g_assert_cmpstr(qdict_get_str(info, "id"), ==, "card");
    g_assert_cmpstr(qdict_get_str(info, "netdev"), ==, "wire");
    g_assert_cmpstr(qdict_get_str(info, "mac"), ==, "52:54:00:12:34:56");
    g_assert_false(qdict_get_bool(info, "enabled"));
    g_assert_true(qdict_get_bool(info, "bus-master"));
    g_assert_false(qdict_get_bool(info, "iommu"));
    g_assert_true(qdict_get_bool(info, "link-up"));
    g_assert_cmpuint(qlist_size(qdict_get_qlist(info, "vectors")), ==, 3);
    g_assert_cmpuint(qlist_size(qdict_get_qlist(info, "counters")), ==,
                     VROCE_CNT_NUM);
    g_assert_true(qlist_empty(qdict_get_qlist(info, "misuse")));
    qobject_unref(info);

    card_enable(c);
    card_create(c, VROCE_CMD_ALLOC_PD, NULL, 0);
    info = card_query(c);
    g_assert_true(qdict_get_bool(info, "enabled"));
    queue = qdict_get_qdict(info, "command-queue");
    g_assert_cmpint(qdict_get_int(queue, "size"), ==, 1 << CMDQ_LOG);
    g_assert_cmpint(qdict_get_int(queue, "producer"), ==, 1);
    g_assert_cmpint(qdict_get_int(queue, "completed"), ==, 1);
    g_assert_false(qdict_haskey(queue, "vector"));
    qobject_unref(info);
    card_stop(c);
}

static void test_query_errors(void)
{
    static const struct {
        const char *command, *want;
    } bad[] = {
        { "{ 'execute': 'x-query-vroce-qp', 'arguments': "
          "{ 'path': 'nobody' } }", "no vroce device 'nobody'" },
        { "{ 'execute': 'x-query-vroce', 'arguments': "
          "{ 'path': '/machine' } }", "no vroce device '/machine'" },
        { "{ 'execute': 'x-query-vroce-qp', 'arguments': "
          "{ 'path': 'card', 'qpn': 99 } }", "no QP 99" },
        { "{ 'execute': 'x-query-vroce-gid', 'arguments': "
          "{ 'path': 'card', 'index': 0 } }", "entry 0" },
    };
    Card *c = card_start("");

    for (int i = 0; i < ARRAY_SIZE(bad); i++) {
        QObject *command = qobject_from_json(bad[i].command, &error_abort);
        QDict *error = qtest_qmp_assert_failure_ref(c->qts, "%p", command);

        g_assert_nonnull(strstr(qdict_get_str(error, "desc"), bad[i].want));
        qobject_unref(error);
    }
    card_stop(c);
}

/* However much the guest has written, a command ends: it reads so much. */
static void test_query_unrung(void)
{
    const uint32_t log = 10, units = 1 << log, all = 65536;
    Driver d = driver_start("");
    uint64_t ring = card_alloc(d.c, units * VROCE_SQ_UNIT);
    uint32_t counted = 0, absent = 0;
    const QListEntry *entry;
    QDict *reply;
    Qp unused;
    struct vroce_create_qp_in in = qp_request(&d, &unused, VROCE_QPT_RC);

    in.buf = contiguous(ring, units * VROCE_SQ_UNIT);
    in.sq_log_units = log;
    in.rq_log_entries = VROCE_NO_QUEUE;
    for (uint32_t i = 0; i < units; i++) {
        struct vroce_wqe_ctrl ctrl = { .units = 1, .index = cpu_to_le16(i) };

        qtest_memwrite(d.c->qts, ring + i * VROCE_SQ_UNIT, &ctrl,
                       sizeof(ctrl));
    }
    /* They share the ring. */
    for (uint32_t i = 0; i < all / units + 1; i++) {
        card_create(d.c, VROCE_CMD_CREATE_QP, &in, sizeof(in));
    }
    reply = qtest_qmp(d.c->qts, "{ 'execute': 'x-query-vroce-qp', "
                      "'arguments': { 'path': 'card' } }");
    QLIST_FOREACH_ENTRY(qdict_get_qlist(reply, "return"), entry) {
        QDict *qp = qobject_to(QDict, qlist_entry_obj(entry));

        if (qdict_haskey(qp, "sq-unrung")) {
            counted += qdict_get_int(qp, "sq-unrung");
        } else {
            absent++;
        }
    }
    g_assert_cmpuint(counted, ==, all);
    g_assert_cmpuint(absent, ==, 1);
    qobject_unref(reply);
    driver_stop(&d);
}

/* Each rule has its event, with what a person needs to find the mistake. */
static void test_misuse_event(void)
{
    Card *c = card_start("");
    QDict *event, *data;

    card_put(c, VROCE_REG_ID, 0);
    event = qtest_qmp_eventwait_ref(c->qts, "VROCE_MISUSE");
    data = qdict_get_qdict(event, "data");
    g_assert_cmpstr(qdict_get_str(data, "device"), ==, "card");
    g_assert_cmpint(qdict_get_int(data, "rule"), ==, VROCE_RULE_REGISTER);
    g_assert_cmpstr(qdict_get_str(data, "name"), ==, "register");
    g_assert_cmpint(qdict_get_int(data, "count"), ==, 1);
    g_assert_nonnull(strstr(qdict_get_str(data, "text"), "0x0"));
    qobject_unref(event);
    card_stop(c);
}

static void test_misuse_stop(void)
{
    Card *c = card_start("");

    qtest_qmp_assert_success(c->qts, "{ 'execute': "
                             "'x-vroce-set-misuse-policy', 'arguments': "
                             "{ 'path': 'card', 'policy': 'stop' } }");
    card_put(c, VROCE_REG_ID, 0);
    qtest_qmp_eventwait(c->qts, "STOP");
    qtest_qmp_assert_success(c->qts, "{ 'execute': 'cont' }");
    qtest_qmp_eventwait(c->qts, "RESUME");
    g_assert_cmphex(card_get(c, VROCE_REG_ID), ==, VROCE_ID_MAGIC);
    card_stop(c);
}

static void test_link(void)
{
    Card *c = card_start("");

    qtest_qmp_assert_success(c->qts, "{ 'execute': 'set_link', 'arguments': "
                             "{ 'name': 'card', 'up': false } }");
    g_assert_cmphex(card_get(c, VROCE_REG_LINK), ==, 0);
    qtest_qmp_assert_success(c->qts, "{ 'execute': 'set_link', 'arguments': "
                             "{ 'name': 'card', 'up': true } }");
    g_assert_cmphex(card_get(c, VROCE_REG_LINK) & 1, ==, 1);
    card_stop(c);
}

/* ------------------------------------------------------------ the backend */

#define NIC_SLOT 5
#define NIC_RING 256            /* descriptors */
#define NIC_DESC 16             /* bytes; the buffer's address comes first */
#define NIC_TAKES 100           /* frames, one after the other */
#define BACKEND_BURST 32        /* frames that net/dgram.c reads at once */
#define FRAME_LEN 1000
#define FRAME_NUMBER 16         /* offset, in the frame */

/*
 * Send numbered frames from *next on, until the wire stays full. Each register
 * read is a turn of QEMU's main loop, in which it may take some off the wire.
 */
static void fill_wire(QPCIDevice *nic, QPCIBar bar, int wire, uint32_t *next)
{
    uint8_t frame[FRAME_LEN] = { [0 ... 5] = 0xff, [12] = 0x88, [13] = 0xb5 };
    int full = 0;

    while (full < 20) {
        stl_le_p(frame + FRAME_NUMBER, *next);
        if (send(wire, frame, sizeof(frame), MSG_DONTWAIT) > 0) {
            ++*next;
            full = 0;
        } else {
            qpci_io_readl(nic, bar, E1000_RDH);
            full++;
        }
    }
}

/*
 * A NIC with room for one frame at a time (vroce itself drops, and never makes
 * the wire wait): frames come in order, what does not fit stays on the wire.
 */
static void test_backpressure(void)
{
    g_autofree char *more = NULL;
    uint32_t sent = 0, first;
    uint64_t ring, buf;
    QPCIDevice *nic;
    QPCIBar bar;
    int fds[2];
    Card *c;

    g_assert_cmpint(socketpair(AF_UNIX, SOCK_DGRAM, 0, fds), ==, 0);
    more = g_strdup_printf(" -netdev dgram,id=other,local.type=fd,"
                           "local.str=%d -device e1000e,netdev=other,"
                           "bus=pcie.0,addr=%u.0,romfile=", fds[1], NIC_SLOT);
    c = card_start(more);
    close(fds[1]);
    nic = qpci_device_find(c->bus, QPCI_DEVFN(NIC_SLOT, 0));
    g_assert_nonnull(nic);
    qpci_device_enable(nic);
    bar = qpci_iomap(nic, 0, NULL);
    ring = card_alloc(c, NIC_RING * NIC_DESC);
    buf = card_alloc(c, NIC_TAKES * 4096);
    for (int i = 0; i < NIC_TAKES; i++) {
        qtest_writeq(c->qts, ring + i * NIC_DESC, buf + i * 4096);
    }
    qpci_io_writel(nic, bar, E1000_RDBAL, ring);
    qpci_io_writel(nic, bar, E1000_RDLEN, NIC_RING * NIC_DESC);
    qpci_io_writel(nic, bar, E1000_RCTL, E1000_RCTL_EN | E1000_RCTL_UPE |
                   E1000_RCTL_MPE | E1000_RCTL_BAM);

    fill_wire(nic, bar, fds[0], &sent);
    first = sent;
    for (int i = 0; i < NIC_TAKES; i++) {
        qpci_io_writel(nic, bar, E1000_RDT, i + 1);
        fill_wire(nic, bar, fds[0], &sent);
        g_assert_cmpuint(qpci_io_readl(nic, bar, E1000_RDH), ==, i + 1);
        g_assert_cmpuint(qtest_readl(c->qts, buf + i * 4096 + FRAME_NUMBER),
                         ==, i);
    }
    g_assert_cmpuint(sent, <=, first + NIC_TAKES + BACKEND_BURST);
    g_free(nic);
    close(fds[0]);
    card_stop(c);
}

void add_host_tests(void)
{
    qtest_add_func("/vroce/host/iommu", test_iommu);
    qtest_add_func("/vroce/host/unplug", test_unplug);
    qtest_add_func("/vroce/host/link", test_link);
    qtest_add_func("/vroce/host/backpressure", test_backpressure);
    qtest_add_func("/vroce/management/query", test_query);
    qtest_add_func("/vroce/management/query-errors", test_query_errors);
    qtest_add_func("/vroce/management/query-unrung", test_query_unrung);
    qtest_add_func("/vroce/management/misuse-event", test_misuse_event);
    qtest_add_func("/vroce/management/misuse-stop", test_misuse_stop);
}
