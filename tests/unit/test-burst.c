/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Frames that come in a burst are answered once, at its end. */
#include <string.h>

#include "driver.h"

#define IOVA 0x100000000ull
#define MEM 65536u
#define MESSAGES 8

struct node {
    struct fakehost *h;
    struct drv *d;
    struct drv_cq cq;
    struct gmem mem;
    struct drv_mr mr;
    struct drv_qp qp;
    GPtrArray *sent;            /* frames, as GBytes */
};

static bool frame_tx(void *opaque, const uint8_t *frame, size_t len)
{
    g_ptr_array_add(((struct node *)opaque)->sent, g_bytes_new(frame, len));
    return true;
}

static void node_init(struct node *n, uint32_t number)
{
    const struct drv_qp_init init = {
        .type = VROCE_QPT_RC, .sq_log = 5, .rq_log = 5, .max_recv_sge = 1,
        .scq = &n->cq, .rcq = &n->cq,
    };

    n->sent = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
    n->h = fh_new(NULL, number);
    n->h->opaque = n;
    n->h->frame_tx = frame_tx;
    n->d = drv_new(n->h, number);
    drv_cq_create(n->d, &n->cq, 6, NULL);
    gmem_init(&n->mem, n->h, MEM, 1, 12, 0);
    drv_mr_create(n->d, &n->mr, &n->mem, IOVA,
                  VROCE_ACCESS_LOCAL_WRITE | VROCE_ACCESS_REMOTE_WRITE |
                  VROCE_ACCESS_REMOTE_READ);
    drv_qp_create(n->d, &n->qp, &init);
}

static void node_connect(struct node *n, const struct node *peer,
                         uint32_t peer_number)
{
    struct drv_conn c;

    drv_conn_init(&c);
    c.dest_qpn = peer->qp.qpn;
    drv_av(peer->d, peer_number, 0, &c.av);
    drv_qp_connect(&n->qp, &c);
}

static void node_fini(struct node *n)
{
    drv_qp_destroy(&n->qp);
    drv_mr_destroy(&n->mr);
    gmem_fini(&n->mem);
    drv_cq_destroy(&n->cq);
    drv_free(n->d);
    fh_free(n->h);
    g_ptr_array_unref(n->sent);
}

/* Give all that `from` has sent to `to`. */
static void deliver(struct node *from, struct node *to)
{
    for (guint i = 0; i < from->sent->len; i++) {
        gsize len;
        const uint8_t *frame = g_bytes_get_data(from->sent->pdata[i], &len);

        fh_receive(to->h, frame, len);
    }
    g_ptr_array_set_size(from->sent, 0);
}

static uint32_t completions(struct node *n)
{
    struct vroce_cqe cqe;
    uint32_t num = 0;

    while (drv_poll(&n->cq, &cqe)) {
        g_assert_cmpint(cqe.status, ==, VROCE_WCS_SUCCESS);
        num++;
    }
    return num;
}

static void post(struct node *a, struct node *b, uint8_t opcode)
{
    const struct drv_wr wr = {
        .opcode = opcode, .flags = VROCE_WQE_SIGNALED, .num_sge = 1,
        .sge[0] = { IOVA, 64, a->mr.key }, .remote_addr = IOVA,
        .rkey = b->mr.key,
    };

    for (uint32_t i = 0; i < MESSAGES; i++) {
        g_assert_true(drv_post_send(&a->qp, &wr));
        drv_ring(&a->qp);
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
        fh_burst(b.h, true);
        deliver(&a, &b);
        g_assert_cmpuint(b.sent->len, ==, 0);
        fh_burst(b.h, false);
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
    fh_burst(n.h, true);
    fh_reset(n.h);
    n.d->gone = true;
    fh_burst(n.h, false);
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
