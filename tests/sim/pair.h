/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Two QPs, a region each, and all completions kept: for scenarios by hand. */
#ifndef SIM_PAIR_H
#define SIM_PAIR_H

#include "sim.h"

#define PAIR_MEM (2u << 20)
#define PAIR_IOVA 0x10000000ull

struct pair {
    struct sim *s;
    struct drv_qp qp[2];
    struct gmem mem[2];
    struct drv_mr mr[2];
    bool mr_gone[2];
    struct drv_conn conn[2];
    GArray *cqes[2];            /* struct vroce_cqe */
    uint32_t round;             /* for the scenario */
};

/* Created and, for RC, with conn[] filled in; pair_connect() goes on to RTS. */
void pair_init(struct pair *p, struct sim *s, uint8_t type);
void pair_connect(struct pair *p);
void pair_fini(struct pair *p);
/* A request over `len` bytes at off of both regions. */
struct drv_wr pair_wr(struct pair *p, int side, uint8_t opcode, uint64_t off,
                      uint32_t len);
void pair_post(struct pair *p, int side, const struct drv_wr *wr);
void pair_recv(struct pair *p, int side, const struct drv_wr *wr);
/* Completion k of a side; fails the run when there is none. */
const struct vroce_cqe *pair_cqe(struct pair *p, int side, uint32_t k);
uint64_t pair_digest(struct pair *p);
/* The run is over: ends the pair and the simulation, returns the digest. */
uint64_t pair_finish(struct pair *p);

#endif /* SIM_PAIR_H */
