/*
 * QTest of the vroce RDMA network card: what a driver does with its queues
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef TESTS_QTEST_VROCE_DRIVER_H
#define TESTS_QTEST_VROCE_DRIVER_H

#include "vroce-card.h"

#define EQ_LOG 3
#define CQ_LOG 3
#define SQ_LOG 3
#define RQ_LOG 2
#define RQ_LOG_STRIDE 5

#define ASYNC_VECTOR 0
#define COMPLETION_VECTOR 1
#define COMPLETION_DATA 0xc0ffee

typedef struct Cq {
    uint32_t cqn;
    uint64_t ring, record;
    uint32_t consumer;
} Cq;

typedef struct Qp {
    uint32_t qpn;
    uint64_t sq, rq, record;
    uint32_t posted, received;  /* units, entries */
} Qp;

/* What a driver makes first: PD, key to all memory, event queue, CQ. */
typedef struct Driver {
    Card *c;
    uint32_t pdn, key, eqn, async_eqn;
    uint64_t eq, irq, async;
    Cq cq;
} Driver;

extern const uint8_t card_mac[6];
extern const uint8_t card_gid[16];

/* Start QEMU with a card and make what Driver holds; props as card_start(). */
Driver driver_start(const char *props);
void driver_stop(Driver *d);

/* One piece of guest memory, without a page list. */
struct vroce_buf contiguous(uint64_t addr, uint64_t length);
Cq create_cq(Card *c, uint32_t eqn);
/* The input of CREATE_QP; fills in *qp but for its number. */
struct vroce_create_qp_in qp_request(Driver *d, Qp *qp, uint8_t type);
Qp create_qp(Driver *d, uint8_t type);
void modify_qp(Driver *d, const Qp *qp, uint32_t mask,
               struct vroce_qp_attr attr);
/* An Ethernet QP that sends and is the netdev's. */
Qp create_eth_qp(Driver *d);
/* Entry 0 of the GID table becomes card_gid. */
void set_gid(Driver *d);
/* Bring qp to RTS, its peer being a QP of this card, which has its GID. */
void connect_qp(Driver *d, const Qp *qp, const Qp *peer);
/* Two RC QPs in RTS, connected with each other; sets up the card's GID. */
void create_pair(Driver *d, Qp *a, Qp *b);

/* A send work request of one unit: control, segment, one SGE behind it. */
void post_send(Driver *d, Qp *qp, uint8_t opcode, uint64_t wr_id,
               const void *segment, uint32_t segment_len, uint64_t addr,
               uint32_t len);
void ring_sq(Driver *d, Qp *qp);
void post_receive(Driver *d, Qp *qp, uint64_t wr_id, uint64_t addr,
                  uint32_t len);
/* The next completion; time goes on while waiting. */
struct vroce_cqe poll_cq(Driver *d, Cq *cq);
/* The next completion is a success of this kind. */
void expect_cqe(Driver *d, uint8_t opcode, uint64_t wr_id, const Qp *qp);

void fill_pattern(Driver *d, uint64_t addr, uint32_t len, uint8_t seed);
void expect_same(Driver *d, uint64_t a, uint64_t b, uint32_t len);

#endif /* TESTS_QTEST_VROCE_DRIVER_H */
