/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Two QPs of one engine, connected to each other, for tests. */
#ifndef TEST_COUPLE_H
#define TEST_COUPLE_H

#include "driver.h"
#include "vr_internal.h"

#define MEM   65536u
#define IOVA  0x7f0000000000ull

struct world {
    struct fakehost *h;
    struct drv *d;
    struct drv_eq async;
    struct drv_cq cq;           /* of both QPs */
    struct drv_srq srq;
    struct gmem mem;
    struct drv_mr mr;
    struct drv_qp a, b;
    struct drv_conn ca, cb;
};

/* type is of both; srq: b receives from an SRQ. ca, cb: of connect_both(). */
void world_init(struct world *w, uint8_t type, bool srq);
void world_fini(struct world *w);
void connect_both(struct world *w);
void post(struct drv_qp *qp, const struct drv_wr *wr);
/* Until nothing is left to do now. */
void run(struct world *w);
/* The next completion, and that there is none. */
void expect(struct world *w, uint64_t wr_id, uint8_t opcode, uint8_t status);
void expect_nothing(struct world *w);
void expect_event(struct world *w, uint16_t type, uint32_t number);
/* Signaled; of len bytes at off of mem. */
struct drv_wr send_wr(struct world *w, uint8_t opcode, uint64_t wr_id,
                      uint32_t off, uint32_t len);
struct drv_wr local_wr(uint8_t opcode, uint64_t wr_id, uint32_t key);
/* An enum vroce_qp_state. */
int state_of(struct world *w, const struct drv_qp *qp);
void modify(struct world *w, struct drv_qp *qp, uint8_t state, uint32_t mask,
            bool notify);

#endif
