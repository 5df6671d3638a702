/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Frames that come in a burst are answered once, at its end. */
#include <string.h>

#include "driver.h"

#define IOVA 0x100000000ull
#define MEM 65536u
#define MESSAGES 8

struct node {
    struct drv_end end;
    GPtrArray *sent;            /* frames, as GBytes */
};

static bool frame_tx(void *opaque, const uint8_t *frame, size_t len)
{
    g_ptr_array_add(((struct node *)opaque)->sent, g_bytes_new(frame, len));
    return true;
}

static void node_init(struct node *n, uint32_t number)
{
    n->sent = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
    drv_end_init(&n->end, number, IOVA, MEM);
    n->end.h->opaque = n;
    n->end.h->frame_tx = frame_tx;
}

static void node_connect(struct node *n, const struct node *peer,
                         uint32_t peer_number)
{
    struct drv_conn c;

    drv_conn_init(&c);
    c.dest_qpn = peer->end.qp.qpn;
    drv_av(peer->end.d, peer_number, 0, &c.av);
    drv_qp_connect(&n->end.qp, &c);
}

static void node_fini(struct node *n)
{
    drv_end_fini(&n->end);
    g_ptr_array_unref(n->sent);
}

/* Give all that `from` has sent to `to`. */
static void deliver(struct node *from, struct node *to)
{
    for (guint i = 0; i < from->sent->len; i++) {
        gsize len;
        const uint8_t *frame = g_bytes_get_data(from->sent->pdata[i], &len);

        fh_receive(to->end.h, frame, len);
    }
    g_ptr_array_set_size(from->sent, 0);
}

static uint32_t completions(struct node *n)
{
    struct vroce_cqe cqe;
    uint32_t num = 0;

    while (drv_poll(&n->end.cq, &cqe)) {
        g_assert_cmpint(cqe.status, ==, VROCE_WCS_SUCCESS);
        num++;
    }
    return num;
}

static void post(struct node *a, struct node *b, uint8_t opcode)
{
    const struct drv_wr wr = {
        .opcode = opcode, .flags = VROCE_WQE_SIGNALED, .num_sge = 1,
        .sge[0] = { IOVA, 64, a->end.mr.key }, .remote_addr = IOVA,
        .rkey = b->end.mr.key,
    };

    for (uint32_t i = 0; i < MESSAGES; i++) {
        g_assert_true(drv_post_send(&a->end.qp, &wr));
        drv_ring(&a->end.qp);
    }
}

/* Returns how many frames b answers MESSAGES requests of a with. */
static uint32_t answers(uint8_t opcode, bool burst)
{
    struct node a, b;
    uint32_t frames;

    node_init(&a, 1);
    node_init(&b, 2);
    node_connect(&a, &b, 2);
    node_connect(&b, &a, 1);
    post(&a, &b, opcode);
    g_assert_cmpuint(a.sent->len, ==, MESSAGES);

    if (burst) {
        fh_burst(b.end.h, true);
        deliver(&a, &b);
        g_assert_cmpuint(b.sent->len, ==, 0);
        fh_burst(b.end.h, false);
    } else {
        deliver(&a, &b);
    }
    frames = b.sent->len;
    deliver(&b, &a);
    g_assert_cmpuint(completions(&a), ==, MESSAGES);
    node_fini(&a);
    node_fini(&b);
    return frames;
}

static void test_one_ack(void)
{
    g_assert_cmpuint(answers(VROCE_WQE_WRITE, false), ==, MESSAGES);
    g_assert_cmpuint(answers(VROCE_WQE_WRITE, true), ==, 1);
}

static void test_every_read(void)
{
    g_assert_cmpuint(answers(VROCE_WQE_READ, false), ==, MESSAGES);
    g_assert_cmpuint(answers(VROCE_WQE_READ, true), ==, MESSAGES);
}

/* A reset in the middle of a burst ends it. */
static void test_reset(void)
{
    struct node n;

    node_init(&n, 1);
    fh_burst(n.end.h, true);
    fh_reset(n.end.h);
    n.end.d->gone = true;
    fh_burst(n.end.h, false);
    g_assert_cmpuint(n.sent->len, ==, 0);
    node_fini(&n);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/burst/one-ack", test_one_ack);
    g_test_add_func("/burst/every-read", test_every_read);
    g_test_add_func("/burst/reset", test_reset);
    return g_test_run();
}
