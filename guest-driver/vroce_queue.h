/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Queues as the kernel's own code sees them: the Ethernet side and the kernel
 * verbs post to and poll the same rings. A queue of user space is only a number
 * and its callbacks here.
 */
#ifndef VROCE_QUEUE_H
#define VROCE_QUEUE_H

#include "vroce.h"

/*
 * struct vroce_cq - completion queue
 * @eq: where its completion events go
 * @comp: called at a completion event, in hard interrupt context
 * @event: called at an async event, in hard interrupt context
 * @ring: CQEs, NULL for a queue of user space
 * @rec: doorbell record
 * @ci: CQEs taken; free-running
 */
struct vroce_cq {
	struct vroce_dev *dev;
	struct vroce_eq *eq;
	u32 cqn;
	void (*comp)(struct vroce_cq *cq);
	void (*event)(struct vroce_cq *cq, const struct vroce_eqe *eqe);
	struct vroce_cqe *ring;
	struct vroce_db_record *rec;
	dma_addr_t dma;
	u32 ci;
	u8 log_size;
};

/* Send queue; indices count units and are free-running. */
struct vroce_sq {
	void *base;
	u32 pi;
	u32 ci;
	u8 log_units;
};

/* Receive queue of a QP, or an SRQ; indices count entries. */
struct vroce_rq {
	void *base;
	struct vroce_db_record *rec;
	u32 pi;
	u32 ci;
	u8 log_entries;
	u8 log_stride;
};

/*
 * struct vroce_qp - queue pair
 * @event: called at an async event, in hard interrupt context
 * @mem: memory of the rings, NULL for a queue pair of user space
 * @size: bytes of @mem
 */
struct vroce_qp {
	struct vroce_dev *dev;
	u32 qpn;
	void (*event)(struct vroce_qp *qp, const struct vroce_eqe *eqe);
	void *mem;
	dma_addr_t dma;
	size_t size;
	struct vroce_sq sq;
	struct vroce_rq rq;
};

/* Shared receive queue; members as in struct vroce_qp. */
struct vroce_srq {
	struct vroce_dev *dev;
	u32 srqn;
	void (*event)(struct vroce_srq *srq, const struct vroce_eqe *eqe);
	void *mem;
	dma_addr_t dma;
	size_t size;
	struct vroce_rq rq;
};

/* A WQE under construction: rings wrap within one, this does not. */
union vroce_wqe {
	struct vroce_wqe_ctrl ctrl;
	u8 bytes[VROCE_MAX_WQE_UNITS * VROCE_SQ_UNIT];
};

/* Units that a WQE of so many bytes takes. */
static inline u32 vroce_wqe_units(u32 bytes)
{
	return DIV_ROUND_UP(bytes, VROCE_SQ_UNIT);
}

static inline u32 vroce_sq_room(const struct vroce_sq *sq)
{
	return BIT(sq->log_units) - (sq->pi - READ_ONCE(sq->ci));
}

static inline void *vroce_sq_unit(const struct vroce_sq *sq, u32 index)
{
	return sq->base +
	       (index & (BIT(sq->log_units) - 1)) * VROCE_SQ_UNIT;
}

/* Appends a WQE for which there is room; the doorbell is rung apart. */
static inline void vroce_sq_push(struct vroce_sq *sq, union vroce_wqe *wqe,
				 u32 units)
{
	u32 i;

	wqe->ctrl.units = units;
	wqe->ctrl.index = cpu_to_le16(sq->pi);
	for (i = 0; i < units; i++)
		memcpy(vroce_sq_unit(sq, sq->pi + i),
		       wqe->bytes + i * VROCE_SQ_UNIT, VROCE_SQ_UNIT);
	sq->pi += units;
}

static inline void vroce_sq_ring(struct vroce_qp *qp)
{
	vroce_ring(qp->dev, VROCE_DB_SQ, qp->qpn, qp->sq.pi);
}

static inline bool vroce_rq_full(const struct vroce_rq *rq)
{
	return rq->pi - READ_ONCE(rq->ci) >= BIT(rq->log_entries);
}

static inline u32 vroce_rq_max_sge(const struct vroce_rq *rq)
{
	return min_t(u32, VROCE_MAX_SGE,
		     (BIT(rq->log_stride) - sizeof(struct vroce_rwqe)) /
		     sizeof(struct vroce_sge));
}

/* The next entry to write; its scatter list follows the header. */
static inline struct vroce_rwqe *vroce_rq_next(struct vroce_rq *rq)
{
	return rq->base +
	       ((rq->pi & (BIT(rq->log_entries) - 1)) << rq->log_stride);
}

/* Gives the device the entries before the producer index. */
static inline void vroce_rq_publish(struct vroce_rq *rq)
{
	dma_wmb();
	WRITE_ONCE(rq->rec->index, cpu_to_le32(rq->pi));
}

/* The next CQE that the device has written, or NULL. */
static inline struct vroce_cqe *vroce_cq_next(struct vroce_cq *cq)
{
	struct vroce_cqe *cqe = &cq->ring[cq->ci & (BIT(cq->log_size) - 1)];
	u32 lap = cq->ci >> cq->log_size;

	if ((le32_to_cpu(READ_ONCE(cqe->phase)) & 1) == (lap & 1))
		return NULL;
	/* The phase bit is written last: read the rest after it. */
	dma_rmb();
	return cqe;
}

/* Gives CQEs that were taken back to the device. */
static inline void vroce_cq_publish(struct vroce_cq *cq)
{
	/* Not before they have been read. */
	smp_store_release(&cq->rec->index, cpu_to_le32(cq->ci));
}

static inline void vroce_cq_arm(struct vroce_cq *cq, enum vroce_db_kind kind)
{
	vroce_ring(cq->dev, kind, cq->cqn, cq->ci);
}

int vroce_cq_alloc_ring(struct vroce_dev *dev, struct vroce_cq *cq,
			u32 entries, struct vroce_create_cq_in *in);
void vroce_cq_free_ring(struct vroce_cq *cq);
int vroce_cq_create(struct vroce_dev *dev, struct vroce_cq *cq,
		    unsigned int comp_vector, struct vroce_create_cq_in *in);
int vroce_cq_destroy(struct vroce_cq *cq);
void vroce_cq_destroy_sure(struct vroce_cq *cq);

int vroce_qp_alloc_rings(struct vroce_dev *dev, struct vroce_qp *qp,
			 struct vroce_create_qp_in *in);
void vroce_qp_free_rings(struct vroce_qp *qp);

int vroce_srq_alloc_ring(struct vroce_dev *dev, struct vroce_srq *srq,
			 struct vroce_create_srq_in *in);
void vroce_srq_free_ring(struct vroce_srq *srq);

#endif /* VROCE_QUEUE_H */
