/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A driver and provider in a box, for tests: creates objects by commands,
 * writes rings and rings doorbells as a guest would. It knows the engine by
 * vroce_engine.h and vroce_hw.h only. Functions abort the test when a step
 * fails that must not; those named drv_try_* return an enum vroce_status.
 */
#ifndef TEST_DRIVER_H
#define TEST_DRIVER_H

#include "fakehost.h"

/* Guest memory: contiguous for its programs, page by page on the bus. */
struct gmem {
    struct fakehost *h;
    uint64_t len, npages;
    uint32_t offset;            /* of byte 0 in the first page */
    uint8_t page_shift, levels;
    uint64_t *pages;            /* bus addresses; one piece at levels 0 */
    GArray *lists;              /* bus addresses of the page lists' own pages */
    uint64_t list_len;          /* bytes of each of these */
    struct vroce_buf buf;       /* as a command takes it */
};

/* levels and page_shift as in struct vroce_buf; the list fits its levels. */
void gmem_init(struct gmem *m, struct fakehost *h, uint64_t len,
               uint8_t levels, uint8_t page_shift, uint32_t offset);
void gmem_fini(struct gmem *m);
/* Pointer to bytes that do not cross a page. */
void *gmem_at(struct gmem *m, uint64_t off, uint64_t len);
void gmem_write(struct gmem *m, uint64_t off, const void *data, uint64_t len);
void gmem_read(struct gmem *m, uint64_t off, void *data, uint64_t len);

struct drv {
    struct fakehost *h;
    uint32_t context;           /* doorbell page; 0 is the kernel's */
    uint32_t pdn;
    bool gone;                  /* was reset: nothing is left to destroy */
    uint8_t gid[2][16];         /* table entries 0 (IPv4) and 1 (IPv6) */
    GHashTable *qps;            /* number -> struct drv_qp */
};

struct drv_eq {
    struct drv *d;
    struct gmem mem;
    uint32_t eqn, consumer;
    uint8_t log_size;
};

struct drv_cq {
    struct drv *d;
    struct gmem mem;
    uint32_t cqn, consumer, rec_off;
    uint8_t log_size;
};

struct drv_mr {
    struct drv *d;
    struct gmem *mem;
    uint32_t key;
    uint64_t iova;
};

struct drv_srq {
    struct drv *d;
    struct gmem mem;
    uint32_t srqn, rec_off, producer, consumer;
    uint8_t log_entries, log_stride;
};

struct drv_qp {
    struct drv *d;
    struct gmem mem;
    struct drv_cq *scq, *rcq;
    struct drv_srq *srq;
    uint32_t qpn, sq_off, rq_off, rec_off;
    uint32_t sq_producer, sq_consumer;  /* units, free-running */
    uint32_t rq_producer, rq_consumer;  /* entries, free-running */
    uint8_t type, sq_log, rq_log, rq_stride;
};

struct drv_qp_init {
    uint8_t type;
    uint8_t sq_log, rq_log;     /* units and entries; VROCE_NO_QUEUE: none */
    uint8_t max_recv_sge;
    struct drv_cq *scq, *rcq;
    struct drv_srq *srq;
};

/* Attributes of a connection; see struct vroce_qp_attr for units. */
struct drv_conn {
    uint32_t dest_qpn, sq_psn, rq_psn, qkey, access;
    uint8_t path_mtu, timeout, retry_cnt, rnr_retry, min_rnr_timer;
    uint8_t max_rd_atomic, max_dest_rd_atomic;
    struct vroce_av av;
};

/* A work request; unused fields are zero. */
struct drv_wr {
    uint64_t wr_id;
    uint8_t opcode, flags, num_sge;
    struct vroce_sge sge[VROCE_MAX_SGE];    /* in host byte order */
    const void *inline_data;                /* with VROCE_WQE_INLINE */
    uint32_t inline_len;
    uint32_t imm, inv_key, rkey;
    uint64_t remote_addr, swap_add, compare;
    struct vroce_av av;                     /* UD */
    uint32_t dest_qpn, qkey;                /* UD */
};

/* A device with a PD, the IPv4 GID of 10.77.0.node and an IPv6 one. */
struct drv *drv_new(struct fakehost *h, uint32_t node);
void drv_free(struct drv *d);
void drv_mac(uint32_t node, uint8_t mac[6]);
/* Address vector from d's GID `index` to the same one of peer. */
void drv_av(const struct drv *peer, uint32_t node, uint32_t index,
            struct vroce_av *av);

/* A command with a struct vroce_number as its input or output. */
int drv_number(struct drv *d, uint8_t opcode, uint32_t number);
int drv_try_create(struct drv *d, uint8_t opcode, const void *in,
                   uint32_t in_len, uint32_t *number, uint16_t *rule);

void drv_eq_create(struct drv *d, struct drv_eq *eq, uint8_t log_size,
                   uint32_t vector, bool async);
void drv_eq_destroy(struct drv_eq *eq);
void drv_eq_arm(struct drv_eq *eq);
bool drv_eq_poll(struct drv_eq *eq, struct vroce_eqe *eqe);

/* eq may be NULL: polled only. */
void drv_cq_create(struct drv *d, struct drv_cq *cq, uint8_t log_size,
                   const struct drv_eq *eq);
void drv_cq_destroy(struct drv_cq *cq);
void drv_cq_arm(struct drv_cq *cq, bool solicited);
/* Take the next completion and give its ring entries back to its QP. */
bool drv_poll(struct drv_cq *cq, struct vroce_cqe *cqe);
/* Take all that are there, whatever they say. */
void drv_drain(struct drv_cq *cq);

int drv_try_mr_create(struct drv *d, struct drv_mr *mr, struct gmem *mem,
                      uint64_t iova, uint32_t access, uint16_t *rule);
void drv_mr_create(struct drv *d, struct drv_mr *mr, struct gmem *mem,
                   uint64_t iova, uint32_t access);
void drv_mr_destroy(struct drv_mr *mr);

void drv_srq_create(struct drv *d, struct drv_srq *srq, uint8_t log_entries,
                    uint8_t max_sge, uint32_t limit);
void drv_srq_destroy(struct drv_srq *srq);
bool drv_srq_post(struct drv_srq *srq, const struct drv_wr *wr);

void drv_qp_create(struct drv *d, struct drv_qp *qp,
                   const struct drv_qp_init *init);
void drv_qp_destroy(struct drv_qp *qp);
/* Defaults: 1024 bytes, 14, 7, 7, 12, 16 READs, all remote rights. */
void drv_conn_init(struct drv_conn *c);
/* One transition, with the attributes that IBA 11.2.5.2 requires of it. */
int drv_try_modify(struct drv_qp *qp, uint8_t state, const struct drv_conn *c,
                   uint16_t *rule);
/* SQE back to RTS, where nothing but the state is given. */
int drv_try_restart(struct drv_qp *qp);
/* RESET to RTS. */
void drv_qp_connect(struct drv_qp *qp, const struct drv_conn *c);
/* Two QPs of the device of that node, with each other, by the defaults. */
/*
 * Change the last word of WQE unit `to` so that the engine's hash of it is that
 * of `from`: what a guest program can do that knows the engine.
 */
void drv_same_hash(uint64_t to[8], const uint64_t from[8]);
void drv_qp_connect_pair(struct drv_qp qp[2], uint32_t node);

/* One end of a connection: a device with a CQ, a region, an RC QP in RESET. */
struct drv_end {
    struct fakehost *h;
    struct drv *d;
    struct drv_cq cq;
    struct gmem mem;
    struct drv_mr mr;
    struct drv_qp qp;
};

/* The region begins at iova and has all rights. */
void drv_end_init(struct drv_end *end, uint32_t node, uint64_t iova,
                  uint64_t len);
/*
 * Connect it to the QP peer_qpn out on the wire, whom the test plays: both
 * sides begin at psn; timeout as in struct drv_conn.
 */
void drv_end_connect_out(struct drv_end *end, uint32_t peer_qpn, uint32_t psn,
                         uint8_t timeout);
void drv_end_fini(struct drv_end *end);

/* Write a WQE; false when the ring is full. Rung by drv_ring(). */
bool drv_post_send(struct drv_qp *qp, const struct drv_wr *wr);
void drv_ring(struct drv_qp *qp);
bool drv_post_recv(struct drv_qp *qp, const struct drv_wr *wr);

/* A region that FAST_REG work requests fill in; its key. */
uint32_t drv_fast_mr_create(struct drv *d, uint32_t max_pages);
/* Post FAST_REG of mem: units of the queue are assumed to be free. */
void drv_post_fast_reg(struct drv_qp *qp, uint32_t key, const struct gmem *mem,
                       uint64_t iova, uint32_t access, uint64_t wr_id);

#endif /* TEST_DRIVER_H */
