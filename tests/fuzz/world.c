/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <string.h>

#include "vr_internal.h"
#include "world.h"

#define SENT_KEPT 16
#define MAX_SLICES 4096
#define MAX_BUSY 512

uint64_t in_uint(struct input *in, int bytes)
{
    uint64_t v = 0;

    for (int i = 0; i < bytes && in->len; i++, in->p++, in->len--) {
        v |= (uint64_t)*in->p << 8 * i;
    }
    return v;
}

uint32_t in_below(struct input *in, uint32_t n)
{
    return in_uint(in, n > 256 ? 4 : 1) % n;
}

void in_bytes(struct input *in, void *buf, size_t len)
{
    size_t have = MIN(len, in->len);

    memset(buf, 0, len);
    if (have) {
        memcpy(buf, in->p, have);
    }
    in->p += have;
    in->len -= have;
}

static bool keep_frame(void *opaque, const uint8_t *frame, size_t len)
{
    struct world *w = opaque;

    if (w->sent->len == SENT_KEPT) {
        g_ptr_array_remove_index(w->sent, 0);
    }
    g_ptr_array_add(w->sent, g_bytes_new(frame, len));
    return true;
}

static void post_recvs(struct world *w, struct drv_qp *qp, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct drv_wr wr = {
            .num_sge = 1, .wr_id = i,
            .sge[0] = { WORLD_IOVA + 4096 * (i % 8), 4096 + 40, w->mr.key },
        };

        drv_post_recv(qp, &wr);
    }
}

static void connect_qps(struct world *w, bool loopback)
{
    struct drv_conn c;

    drv_conn_init(&c);
    c.timeout = 8;
    c.qkey = 0x11111111;
    c.sq_psn = c.rq_psn = WORLD_PSN;
    drv_av(w->d, 1, 0, &c.av);
    if (!loopback) {
        memcpy(c.av.dgid, w->peer_gid, 16);
        drv_mac(2, c.av.dmac);
    }
    for (int i = 0; i < WORLD_QPS; i++) {
        c.dest_qpn = !loopback ? WORLD_PEER_QPN + (uint32_t)i :
                     i <= WORLD_RC_PEER ? w->qp[!i].qpn : w->qp[i].qpn;
        drv_qp_connect(&w->qp[i], &c);
    }
}

void world_init(struct world *w, bool loopback)
{
    static const uint8_t types[WORLD_QPS] = {
        VROCE_QPT_RC, VROCE_QPT_RC, VROCE_QPT_RC, VROCE_QPT_UD, VROCE_QPT_ETH,
        VROCE_QPT_UC,
    };
    const uint8_t peer[16] = { [10] = 0xff, 0xff, 10, 77, 0, 2 };
    struct vroce_set_netdev_in netdev = { .mtu = htole16(1500) };
    struct vr_config cfg;

    memset(w, 0, sizeof(*w));
    memcpy(w->peer_gid, peer, 16);
    w->sent = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
    fh_small_config(&cfg, 64);
    w->h = fh_new(&cfg, 1);
    w->h->bounce = true;
    w->h->opaque = w;
    w->h->frame_tx = keep_frame;
    w->d = drv_new(w->h, 1);
    drv_eq_create(w->d, &w->async_eq, 4, 0, true);
    drv_eq_create(w->d, &w->eq, 4, 1, false);
    drv_cq_create(w->d, &w->cq, 6, &w->eq);
    drv_srq_create(w->d, &w->srq, 4, 1, 2);
    gmem_init(&w->mem, w->h, WORLD_MEM, 2, 12, 0);
    drv_mr_create(w->d, &w->mr, &w->mem, WORLD_IOVA,
                  VROCE_ACCESS_LOCAL_WRITE | VROCE_ACCESS_REMOTE_WRITE |
                  VROCE_ACCESS_REMOTE_READ | VROCE_ACCESS_REMOTE_ATOMIC);
    for (int i = 0; i < WORLD_QPS; i++) {
        const struct drv_qp_init init = {
            .type = types[i], .sq_log = 5, .rq_log = 4, .max_recv_sge = 2,
            .scq = &w->cq, .rcq = &w->cq,
        };

        drv_qp_create(w->d, &w->qp[i], &init);
        post_recvs(w, &w->qp[i], 8);
    }
    connect_qps(w, loopback);
    netdev.qpn = htole32(w->qp[WORLD_ETH].qpn);
    drv_mac(1, netdev.mac);
    g_assert_cmpint(fh_command(w->h, VROCE_CMD_SET_NETDEV, &netdev,
                               sizeof(netdev), NULL, 0, NULL), ==, VROCE_OK);
}

void world_fini(struct world *w)
{
    fh_reset(w->h);
    g_assert_cmpuint(w->h->e->heap_num, ==, 0);
    g_assert_cmpuint(w->h->e->pages_used, ==, 0);
    g_assert_cmpuint(w->h->e->qps.used, ==, 0);
    g_assert_cmpuint(w->h->e->mrs.used, ==, 0);
    gmem_fini(&w->mem);
    gmem_fini(&w->srq.mem);
    gmem_fini(&w->cq.mem);
    gmem_fini(&w->eq.mem);
    gmem_fini(&w->async_eq.mem);
    for (int i = 0; i < WORLD_QPS; i++) {
        gmem_fini(&w->qp[i].mem);
        g_hash_table_remove(w->d->qps, GUINT_TO_POINTER(w->qp[i].qpn));
    }
    w->d->gone = true;
    drv_free(w->d);
    fh_free(w->h);
    g_ptr_array_unref(w->sent);
}

void world_settle(struct world *w, uint64_t ns)
{
    uint64_t end = w->h->now + ns;
    uint32_t busy = 0;

    for (uint32_t i = 0; i < MAX_SLICES; i++) {
        if (w->h->kicked) {
            w->h->kicked = fh_run(w->h) || w->h->kicked;
            /* As little as there is to do here is done long before that. */
            if (++busy > MAX_BUSY) {
                g_error("the engine finds something to do for ever");
            }
        } else if (w->h->deadline <= end) {
            busy = 0;
            w->h->now = MAX(w->h->now, w->h->deadline);
            fh_timer(w->h);
        } else {
            break;
        }
    }
    w->h->now = MAX(w->h->now, end);
}

void world_post(struct world *w, struct input *in)
{
    struct drv_qp *qp = &w->qp[in_below(in, WORLD_QPS)];
    uint8_t data[256];
    struct drv_wr wr = {
        .opcode = in_below(in, 18), .flags = in_uint(in, 1),
        .num_sge = in_below(in, 5), .rkey = w->mr.key,
        .remote_addr = WORLD_IOVA + in_uint(in, 2),
        .swap_add = in_uint(in, 2), .compare = in_uint(in, 2),
        .qkey = 0x11111111, .dest_qpn = w->qp[WORLD_UD].qpn,
        .inv_key = w->mr.key, .inline_data = data,
        .inline_len = in_below(in, sizeof(data)),
    };

    in_bytes(in, data, wr.inline_len);
    for (int i = 0; i < wr.num_sge; i++) {
        wr.sge[i] = (struct vroce_sge) {
            WORLD_IOVA + in_uint(in, 2), in_uint(in, 2), w->mr.key,
        };
    }
    if (in_uint(in, 1) & 1) {
        wr.rkey ^= in_uint(in, 4);
        wr.sge[0].lkey ^= in_uint(in, 4);
        wr.sge[0].length ^= in_uint(in, 4);
    }
    drv_av(w->d, 1, 0, &wr.av);
    if (drv_post_send(qp, &wr)) {
        drv_ring(qp);
    }
}
