/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef __VROCE_H__
#define __VROCE_H__

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/driver.h>
#include <util/udma_barrier.h>

#include "vroce_abi.h"
#include "vroce_hw.h"

/* QP numbers have 24 bits: two levels of tables, the second made on demand. */
#define VROCE_QP_TABLE_SHIFT	12
#define VROCE_QP_TABLE_SIZE	(1 << VROCE_QP_TABLE_SHIFT)
#define VROCE_QP_TABLE_MASK	(VROCE_QP_TABLE_SIZE - 1)

struct vroce_device {
	struct verbs_device vdev;
};

struct vroce_context {
	struct verbs_context vctx;
	/* Doorbell page of this process, uncached, shared by all its queues. */
	void *db;
	size_t db_size;		/* bytes */
	uint32_t max_sge;
	uint32_t max_inline;	/* bytes */
	uint32_t max_sq_units;
	uint32_t max_rq_entries;
	uint32_t max_cqe;

	/*
	 * Serialises creation and destruction of QPs, so that a QP number that
	 * the kernel gives out again is not in the table any more. Pollers
	 * read the table without it, see vroce_find_qp().
	 */
	pthread_mutex_t qp_table_mutex;
	struct vroce_qp **qp_table[VROCE_QP_TABLE_SIZE];
};

/* Memory of a queue: page-aligned, zeroed, not inherited by fork(). */
struct vroce_mem {
	void *addr;
	size_t length;		/* bytes */
};

struct vroce_ah {
	struct ibv_ah ibv_ah;
	struct vroce_av av;	/* as it goes into a UD WQE */
};

struct vroce_cq {
	struct verbs_cq vcq;
	pthread_spinlock_t lock;
	bool single_threaded;	/* the user promised: no lock */
	uint32_t cqn;
	struct vroce_mem mem;
	struct vroce_cqe *ring;
	struct vroce_db_record *record;
	uint32_t mask;		/* entries - 1 */
	uint32_t ci;		/* free-running consumer index */
	struct vroce_cqe *cur;	/* between ibv_start_poll and ibv_end_poll */
};

/* A ring of receive WQEs, of a QP or of an SRQ. */
struct vroce_rq {
	pthread_spinlock_t lock;
	uint8_t *ring;		/* NULL: the QP has none */
	struct vroce_db_record *record;
	uint32_t mask;		/* entries - 1 */
	uint32_t log_stride;
	uint32_t max_sge;
	uint32_t pi;		/* WQEs posted, free-running */
	atomic_uint ci;		/* WQEs whose completion was taken */
};

struct vroce_srq {
	struct verbs_srq vsrq;
	struct vroce_mem mem;
	struct vroce_rq rq;
};

struct vroce_sq {
	pthread_spinlock_t lock;
	uint8_t *ring;		/* NULL: the QP has none */
	uint32_t mask;		/* units - 1 */
	uint32_t wqe_units;	/* of the longest WQE that the QP may post */
	uint32_t max_sge;
	uint32_t max_inline;	/* bytes */
	uint32_t pi;		/* units that the device knows, free-running */
	uint32_t next;		/* units that are built; pi between two posts */
	atomic_uint ci;		/* units whose completion was taken */

	/* The WQE that is being built, or NULL. */
	struct vroce_wqe_ctrl *wqe;
	uint32_t data_off;	/* bytes before its SGEs or inline data */
	uint32_t wqe_len;	/* bytes */
	int err;		/* first error since ibv_wr_start */
	/* Where a WQE is built that could run over the end of the ring. */
	uint64_t bounce[VROCE_MAX_WQE_UNITS * VROCE_SQ_UNIT / sizeof(uint64_t)];
};

struct vroce_qp {
	struct verbs_qp vqp;
	bool sq_sig_all;
	bool error;		/* may be in ERR; under rq.lock, see vroce_qp_error() */
	struct vroce_mem mem;
	struct ibv_qp_cap cap;	/* what the rings hold */
	struct vroce_sq sq;
	struct vroce_rq rq;
};

static inline struct vroce_context *to_vctx(struct ibv_context *ibctx)
{
	return container_of(ibctx, struct vroce_context, vctx.context);
}

static inline struct vroce_ah *to_vah(struct ibv_ah *ibah)
{
	return container_of(ibah, struct vroce_ah, ibv_ah);
}

static inline struct vroce_cq *to_vcq(struct ibv_cq *ibcq)
{
	return container_of(ibcq, struct vroce_cq, vcq.cq);
}

static inline struct vroce_cq *to_vcq_ex(struct ibv_cq_ex *ibcq)
{
	return container_of(ibcq, struct vroce_cq, vcq.cq_ex);
}

static inline struct vroce_srq *to_vsrq(struct ibv_srq *ibsrq)
{
	return container_of(ibsrq, struct vroce_srq, vsrq.srq);
}

static inline struct vroce_qp *to_vqp(struct ibv_qp *ibqp)
{
	return container_of(ibqp, struct vroce_qp, vqp.qp);
}

static inline struct vroce_qp *to_vqp_ex(struct ibv_qp_ex *ibqp)
{
	return container_of(ibqp, struct vroce_qp, vqp.qp_ex);
}

/*
 * The live QP of that number, or NULL. The caller holds the lock of a CQ that
 * the QP completes to: vroce_destroy_qp() takes it before it frees the QP.
 */
static inline struct vroce_qp *vroce_find_qp(struct vroce_context *ctx,
					     uint32_t qpn)
{
	struct vroce_qp **table = ctx->qp_table[(qpn >> VROCE_QP_TABLE_SHIFT) &
						VROCE_QP_TABLE_MASK];

	return table ? table[qpn & VROCE_QP_TABLE_MASK] : NULL;
}

/* The receive ring that this QP consumes: its own or its SRQ's. */
static inline struct vroce_rq *vroce_qp_rq(struct vroce_qp *qp)
{
	return qp->vqp.qp.srq ? &to_vsrq(qp->vqp.qp.srq)->rq : &qp->rq;
}

int vroce_mem_alloc(struct vroce_mem *mem, size_t length);
void vroce_mem_free(struct vroce_mem *mem);

/* verbs.c */
int vroce_query_device(struct ibv_context *ibctx,
		       const struct ibv_query_device_ex_input *input,
		       struct ibv_device_attr_ex *attr, size_t attr_size);
int vroce_query_port(struct ibv_context *ibctx, uint8_t port,
		     struct ibv_port_attr *attr);
struct ibv_pd *vroce_alloc_pd(struct ibv_context *ibctx);
int vroce_dealloc_pd(struct ibv_pd *ibpd);
struct ibv_mr *vroce_reg_mr(struct ibv_pd *ibpd, void *addr, size_t length,
			    uint64_t hca_va, int access);
int vroce_dereg_mr(struct verbs_mr *vmr);
struct ibv_ah *vroce_create_ah(struct ibv_pd *ibpd, struct ibv_ah_attr *attr);
int vroce_destroy_ah(struct ibv_ah *ibah);

/* cq.c */
struct ibv_cq *vroce_create_cq(struct ibv_context *ibctx, int cqe,
			       struct ibv_comp_channel *channel, int vector);
struct ibv_cq_ex *vroce_create_cq_ex(struct ibv_context *ibctx,
				     struct ibv_cq_init_attr_ex *attr);
int vroce_resize_cq(struct ibv_cq *ibcq, int cqe);
int vroce_modify_cq(struct ibv_cq *ibcq, struct ibv_modify_cq_attr *attr);
int vroce_destroy_cq(struct ibv_cq *ibcq);
int vroce_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc);
int vroce_req_notify_cq(struct ibv_cq *ibcq, int solicited_only);
void vroce_lock_cqs(struct vroce_qp *qp);
void vroce_unlock_cqs(struct vroce_qp *qp);
void vroce_forget_cqes(struct vroce_qp *qp);

/* recv.c */
int vroce_rq_layout(struct vroce_context *ctx, struct vroce_rq *rq,
		    uint32_t max_wr, uint32_t max_sge);
size_t vroce_rq_bytes(const struct vroce_rq *rq);
void vroce_rq_reset(struct vroce_rq *rq);
void vroce_qp_error(struct vroce_qp *qp);
struct ibv_srq *vroce_create_srq(struct ibv_pd *ibpd,
				 struct ibv_srq_init_attr *attr);
int vroce_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr,
		     int attr_mask);
int vroce_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr);
int vroce_destroy_srq(struct ibv_srq *ibsrq);
int vroce_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr,
			struct ibv_recv_wr **bad_wr);
int vroce_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr,
		    struct ibv_recv_wr **bad_wr);

/* qp.c */
struct ibv_qp *vroce_create_qp(struct ibv_pd *ibpd,
			       struct ibv_qp_init_attr *attr);
struct ibv_qp *vroce_create_qp_ex(struct ibv_context *ibctx,
				  struct ibv_qp_init_attr_ex *attr);
int vroce_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int attr_mask,
		   struct ibv_qp_init_attr *init_attr);
int vroce_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr,
		    int attr_mask);
void vroce_async_event(struct ibv_context *ibctx,
		       struct ibv_async_event *event);
int vroce_destroy_qp(struct ibv_qp *ibqp);

/* send.c */
int vroce_sq_layout(struct vroce_context *ctx, struct vroce_sq *sq,
		    enum ibv_qp_type type, const struct ibv_qp_cap *cap);
size_t vroce_sq_bytes(const struct vroce_sq *sq);
void vroce_sq_reset(struct vroce_sq *sq);
int vroce_set_send_ops(struct vroce_qp *qp, enum ibv_qp_type type,
		       uint64_t ops);
int vroce_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr,
		    struct ibv_send_wr **bad_wr);

#endif /* __VROCE_H__ */
