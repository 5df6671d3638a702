/*
 * QTest of the vroce RDMA network card: what tests of hostile guests share
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "vroce-hostile.h"

static uint64_t make_list(Driver *d, uint64_t first, uint64_t step,
                          uint64_t flags)
{
    uint64_t list = card_alloc(d->c, 4096);

    for (int i = 0; i < VROCE_PTES_PER_PAGE; i++) {
        qtest_writeq(d->c->qts, list + i * 8, (first + i * step) | flags);
    }
    return list;
}

static void make_places(Hostile *h)
{
    const uint64_t all = VROCE_PTE_VALID | VROCE_PTE_WRITE;
    Driver *d = &h->d;
    uint64_t mem = card_alloc(d->c, REGION_PAGES * 4096);
    uint64_t self = make_list(d, 0, 0, 0);

    for (int i = 0; i < VROCE_PTES_PER_PAGE; i++) {
        qtest_writeq(d->c->qts, self + i * 8, self | all);
    }
    h->place[AT_REGISTERS] = d->c->regs.addr;
    h->place[AT_DOORBELLS] = d->c->doorbells.addr;
    h->place[AT_MEM] = mem;
    h->place[AT_LIST] = make_list(d, mem, 4096, all);
    h->place[AT_SELF_POINTER] = self;
    h->place[AT_JUNK_LIST] = make_list(d, mem, 4096, VROCE_PTE_WRITE);
    h->place[AT_UNALIGNED_LIST] = make_list(d, mem, 4096, all | 0x40);
    h->place[AT_READ_ONLY_LIST] = make_list(d, mem, 4096, VROCE_PTE_VALID);
    h->place[AT_REGISTERS_LIST] = make_list(d, d->c->regs.addr, 0, all);
}

Hostile hostile_start(const char *props)
{
    Hostile h = { 0 };
    g_autofree char *all = NULL;
    int fd = g_file_open_tmp("vroce-test-XXXXXX", &h.log, NULL);

    g_assert_cmpint(fd, >=, 0);
    close(fd);
    all = g_strdup_printf(",num-pages=%d%s -d guest_errors -D %s", MAX_PAGES,
                          props, h.log);
    h.d = driver_start(all);
    make_places(&h);
    h.idle = create_cq(h.d.c, VROCE_NONE);
    create_pair(&h.d, &h.qp, &h.peer);
    return h;
}

void expect_well(Hostile *h)
{
    const uint32_t len = 3000;
    uint64_t keep = h->d.c->next;
    uint64_t src = card_alloc(h->d.c, len), dst = card_alloc(h->d.c, len);
    struct vroce_wqe_rdma rdma = {
        .rkey = cpu_to_le32(h->d.key), .remote_addr = cpu_to_le64(dst),
    };

    fill_pattern(&h->d, src, len, h->qp.posted);
    post_send(&h->d, &h->qp, VROCE_WQE_WRITE, 99, &rdma, sizeof(rdma), src,
              len);
    ring_sq(&h->d, &h->qp);
    expect_cqe(&h->d, VROCE_WC_WRITE, 99, &h->qp);
    expect_same(&h->d, src, dst, len);
    h->d.c->next = keep;
}

void hostile_stop(Hostile *h)
{
    expect_well(h);
    driver_stop(&h->d);
    unlink(h->log);
    g_free(h->log);
}

void apply(const Hostile *h, uint8_t *request, const Poke *poke)
{
    for (; poke->size; poke++) {
        uint64_t value = cpu_to_le64(poke->value + h->place[poke->place]);

        memcpy(request + poke->off, &value, poke->size);
    }
}

/* Lines of the guest-error log that speak of the rule. */
static unsigned int log_lines(const Hostile *h, uint16_t rule)
{
    g_autofree char *text = NULL, *want = g_strdup_printf(": rule %u ", rule);
    unsigned int n = 0;

    g_assert_true(g_file_get_contents(h->log, &text, NULL, NULL));
    for (const char *at = text; (at = strstr(at, want)); at++) {
        n++;
    }
    return n;
}

Before take_before(Hostile *h, uint16_t rule)
{
    return (Before) { card_misuse(h->d.c, rule), log_lines(h, rule) };
}

void expect_told(Hostile *h, const char *name, uint16_t rule, Before b)
{
    if (card_misuse(h->d.c, rule) <= b.misuse ||
        log_lines(h, rule) <= b.lines) {
        g_test_message("%s: rule %u is not counted or not logged", name, rule);
        g_test_fail();
    }
}

uint32_t make_request(Hostile *h, uint8_t opcode, void *request)
{
    const struct vroce_buf list = {
        .addr = cpu_to_le64(h->place[AT_LIST]),
        .length = cpu_to_le64(REGION_PAGES * 4096),
        .page_shift = 12, .levels = 1,
    };
    const struct vroce_create_mr_in mr = {
        .buf = list, .iova = cpu_to_le64(0x10000000),
        .pdn = cpu_to_le32(h->d.pdn),
        .access = cpu_to_le32(VROCE_ACCESS_LOCAL_WRITE |
                              VROCE_ACCESS_REMOTE_WRITE),
    };

    switch (opcode) {
    case VROCE_CMD_CREATE_EQ:
        *(struct vroce_create_eq_in *)request = (struct vroce_create_eq_in) {
            .buf = list, .log_size = 4,
        };
        return sizeof(struct vroce_create_eq_in);
    case VROCE_CMD_CREATE_CQ:
        *(struct vroce_create_cq_in *)request = (struct vroce_create_cq_in) {
            .buf = list, .rec_off = cpu_to_le32(4096),
            .eqn = cpu_to_le32(h->d.eqn), .log_size = 4,
        };
        return sizeof(struct vroce_create_cq_in);
    case VROCE_CMD_RESIZE_CQ:
        *(struct vroce_resize_cq_in *)request = (struct vroce_resize_cq_in) {
            .buf = list, .cqn = cpu_to_le32(h->idle.cqn),
            .rec_off = cpu_to_le32(4096), .log_size = 4,
        };
        return sizeof(struct vroce_resize_cq_in);
    case VROCE_CMD_CREATE_SRQ:
        *(struct vroce_create_srq_in *)request = (struct vroce_create_srq_in) {
            .buf = list, .rec_off = cpu_to_le32(4096),
            .pdn = cpu_to_le32(h->d.pdn), .log_entries = 4, .log_stride = 5,
        };
        return sizeof(struct vroce_create_srq_in);
    case VROCE_CMD_CREATE_QP:
        *(struct vroce_create_qp_in *)request = (struct vroce_create_qp_in) {
            .buf = list, .rq_off = cpu_to_le32(8192),
            .rec_off = cpu_to_le32(16384), .pdn = cpu_to_le32(h->d.pdn),
            .send_cqn = cpu_to_le32(h->d.cq.cqn),
            .recv_cqn = cpu_to_le32(h->d.cq.cqn),
            .srqn = cpu_to_le32(VROCE_NONE), .type = VROCE_QPT_RC,
            .sq_log_units = 4, .rq_log_entries = 4, .rq_log_stride = 5,
        };
        return sizeof(struct vroce_create_qp_in);
    case VROCE_CMD_CREATE_MR:
        *(struct vroce_create_mr_in *)request = mr;
        return sizeof(struct vroce_create_mr_in);
    case VROCE_CMD_UPDATE_MR:
        *(struct vroce_update_mr_in *)request = (struct vroce_update_mr_in) {
            .mr = mr, .key = cpu_to_le32(h->d.key),
            .mask = cpu_to_le32(VROCE_MR_UPDATE_PAGES),
        };
        return sizeof(struct vroce_update_mr_in);
    default:
        g_assert_not_reached();
    }
}
