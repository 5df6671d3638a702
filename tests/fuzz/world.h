/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the fuzz targets share: an input that is read field by field, and a
 * device with one object of each kind for the input to work on.
 */
#ifndef FUZZ_WORLD_H
#define FUZZ_WORLD_H

#include "driver.h"

/* The rest of the input; reads beyond its end give zeros. */
struct input {
    const uint8_t *p;
    size_t len;
};
uint64_t in_uint(struct input *in, int bytes);
/* 0..n-1 */
uint32_t in_below(struct input *in, uint32_t n);
void in_bytes(struct input *in, void *buf, size_t len);

#define WORLD_MEM (64u << 10)
#define WORLD_IOVA 0x40000000ull

enum { WORLD_RC, WORLD_RC_PEER, WORLD_SELF, WORLD_UD, WORLD_ETH, WORLD_UC,
       WORLD_QPS };

struct world {
    struct fakehost *h;
    struct drv *d;
    struct drv_eq eq, async_eq;
    struct drv_cq cq;
    struct drv_srq srq;
    struct gmem mem;
    struct drv_mr mr;
    struct drv_qp qp[WORLD_QPS];
    uint8_t peer_gid[16];       /* where the RC QPs lead */
    GPtrArray *sent;            /* GBytes of the last frames */
};

#define WORLD_PEER_QPN 0x123
#define WORLD_PSN 0x10

/*
 * loopback: WORLD_RC is connected to WORLD_RC_PEER of the same device instead
 * of to a peer that the input plays. Receives are posted, nothing else.
 */
void world_init(struct world *w, bool loopback);
/* Resets, destroying nothing by command, and checks that nothing is left. */
void world_fini(struct world *w);
/* Slices, due timers and completions, for a bounded while. */
void world_settle(struct world *w, uint64_t ns);
/* A request on one of the QPs, plausible but for what the input says. */
void world_post(struct world *w, struct input *in);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#endif /* FUZZ_WORLD_H */
