/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The wire edge alone: super-packets into frames, with payload gathered from
 * guest memory and the ICRC, and frames checked and parsed. No transport.
 *
 * Each line of the output is a figure: direction, payload of a frame in bytes,
 * frames, seconds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver.h"
#include "vr_internal.h"
#include "vr_wire.h"

#define IOVA 0x100000000ull
#define MEM (1u << 20)
#define SP_BYTES (64u << 10)    /* of payload in a super-packet */
#define MAX_FRAME 4400

struct sink {
    uint64_t frames;
    uint8_t last[MAX_FRAME];
    size_t len;
};

static bool frame_tx(void *opaque, const uint8_t *frame, size_t len)
{
    struct sink *sink = opaque;

    g_assert_cmpuint(len, <=, MAX_FRAME);
    sink->frames++;
    if (sink->len != len) {
        memcpy(sink->last, frame, len);
        sink->len = len;
    }
    return true;
}

/* Of this processor: what else the host does takes no part in it. */
static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* A middle part of a READ's answer, whose payload names a region. */
static void make_sp(struct vr_sp *sp, struct fakehost *h,
                    const struct drv_qp *qp, uint32_t key, uint16_t mtu)
{
    *sp = (struct vr_sp) {
        .route = vr_qp_get(h->e, qp->qpn)->route, .qp_type = VROCE_QPT_RC,
        .op = VR_OP_READ_RESP, .mtu = mtu, .sqpn = qp->qpn, .dqpn = qp->qpn,
        .npkt = SP_BYTES / mtu,
        .payload = {
            .kind = VR_PAYLOAD_MR, .len = SP_BYTES,
            .mr = { .qpn = qp->qpn, .key = key, .va = IOVA },
        },
    };
}

static void transmit(struct fakehost *h, struct sink *sink,
                     const struct vr_sp *sp, double seconds)
{
    double start = now();

    sink->frames = 0;
    h->entered = true;          /* as fakehost's own entries would say */
    while (now() < start + seconds) {
        vr_link_send(h->e, sp);
    }
    h->entered = false;
    printf("tx %u %" G_GUINT64_FORMAT " %f\n", sp->mtu, sink->frames,
           now() - start);
}

static void receive(const struct sink *sink, uint16_t mtu, double seconds)
{
    double start = now();
    uint64_t frames = 0;
    struct vr_sp sp;

    while (now() < start + seconds) {
        for (int i = 0; i < 16; i++, frames++) {
            g_assert_cmpint(vr_frame_parse(sink->last, sink->len, &sp), ==, 0);
        }
    }
    printf("rx %u %" G_GUINT64_FORMAT " %f\n", mtu, frames, now() - start);
}

int main(int argc, char **argv)
{
    static const uint16_t mtus[] = { 256, 1024, 4096 };
    struct sink sink = { 0 };
    struct drv_end end;
    struct drv_conn c;
    double seconds = argc == 2 ? g_ascii_strtod(argv[1], NULL) : 0;

    if (seconds <= 0) {
        fprintf(stderr, "usage: %s SECONDS\n", argv[0]);
        return 2;
    }
    drv_end_init(&end, 1, IOVA, MEM);
    end.h->opaque = &sink;
    end.h->frame_tx = frame_tx;
    drv_conn_init(&c);
    c.dest_qpn = end.qp.qpn;
    drv_av(end.d, 2, 0, &c.av);
    c.av.dgid[15] ^= 0x80;      /* nobody's: by way of the wire */
    drv_qp_connect(&end.qp, &c);
    for (uint32_t i = 0; i < G_N_ELEMENTS(mtus); i++) {
        struct vr_sp sp;

        make_sp(&sp, end.h, &end.qp, end.mr.key, mtus[i]);
        transmit(end.h, &sink, &sp, seconds);
        receive(&sink, mtus[i], seconds);
    }
    drv_end_fini(&end);
    return 0;
}
