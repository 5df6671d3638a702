// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory and numbers of the rings that the kernel itself fills and reads, and
 * what a CQ of any owner needs to get its events.
 */
#include <linux/dma-mapping.h>
#include <linux/interrupt.h>

#include "vroce_queue.h"

static size_t vroce_cq_bytes(const struct vroce_cq *cq)
{
	return (sizeof(struct vroce_cqe) << cq->log_size) +
	       sizeof(struct vroce_db_record);
}

/**
 * vroce_cq_alloc_ring - make the memory of a completion queue
 * @dev: device
 * @cq: queue
 * @entries: CQEs that it holds at least
 * @in: gets the description of the memory
 *
 * Return: 0 or -ENOMEM.
 */
int vroce_cq_alloc_ring(struct vroce_dev *dev, struct vroce_cq *cq,
			u32 entries, struct vroce_create_cq_in *in)
{
	size_t rec_off;

	cq->dev = dev;
	cq->ci = 0;
	cq->log_size = order_base_2(max(entries, 2u));
	cq->ring = dma_alloc_coherent(&dev->pdev->dev, vroce_cq_bytes(cq),
				      &cq->dma, GFP_KERNEL);
	if (!cq->ring)
		return -ENOMEM;

	rec_off = sizeof(struct vroce_cqe) << cq->log_size;
	cq->rec = (void *)cq->ring + rec_off;
	in->buf.addr = cpu_to_le64(cq->dma);
	in->buf.length = cpu_to_le64(vroce_cq_bytes(cq));
	in->rec_off = cpu_to_le32(rec_off);
	in->context = cpu_to_le32(VROCE_KERNEL_CONTEXT);
	in->log_size = cq->log_size;
	return 0;
}

/**
 * vroce_cq_free_ring - undo vroce_cq_alloc_ring()
 * @cq: queue, which may have no ring
 */
void vroce_cq_free_ring(struct vroce_cq *cq)
{
	if (!cq->ring)
		return;
	dma_free_coherent(&cq->dev->pdev->dev, vroce_cq_bytes(cq), cq->ring,
			  cq->dma);
	cq->ring = NULL;
}

/**
 * vroce_cq_create - make a completion queue whose memory is described
 * @dev: device
 * @cq: queue, with its callbacks set
 * @comp_vector: completion vector, counted from 0
 * @in: description of the memory
 *
 * Return: 0 or an error.
 */
int vroce_cq_create(struct vroce_dev *dev, struct vroce_cq *cq,
		    unsigned int comp_vector, struct vroce_create_cq_in *in)
{
	int err;

	cq->dev = dev;
	cq->eq = &dev->comp_eqs[comp_vector % dev->num_comp_eqs];
	in->eqn = cpu_to_le32(cq->eq->eqn);
	err = vroce_cmd_create(dev, VROCE_CMD_CREATE_CQ, in, sizeof(*in),
			       &cq->cqn);
	if (err)
		return err;
	err = xa_err(xa_store(&dev->cqs, cq->cqn, cq, GFP_KERNEL));
	if (err && vroce_cmd_destroy(dev, VROCE_CMD_DESTROY_CQ, cq->cqn))
		vroce_fail(dev, "completion queue cannot be destroyed");
	return err;
}

/**
 * vroce_cq_destroy - end a completion queue
 * @cq: queue that no QP uses
 *
 * No callback runs or will run when this returns 0.
 *
 * Return: 0 or an error, with which the queue lives on.
 */
int vroce_cq_destroy(struct vroce_cq *cq)
{
	struct vroce_dev *dev = cq->dev;
	int err;

	err = vroce_cmd_destroy(dev, VROCE_CMD_DESTROY_CQ, cq->cqn);
	if (err)
		return err;
	/* The number may have a new owner already. */
	xa_cmpxchg(&dev->cqs, cq->cqn, cq, NULL, 0);
	synchronize_irq(pci_irq_vector(dev->pdev, cq->eq->vector));
	vroce_async_sync(dev);
	return 0;
}

/**
 * vroce_cq_destroy_sure - end a completion queue that must not live on
 * @cq: queue that no QP uses
 *
 * A device that does not end it is given up: it might write to the ring, or
 * its events might find @cq.
 */
void vroce_cq_destroy_sure(struct vroce_cq *cq)
{
	if (vroce_cq_destroy(cq)) {
		vroce_fail(cq->dev, "completion queue cannot be destroyed");
		vroce_cq_destroy(cq);
	}
}

/**
 * vroce_qp_alloc_rings - make the memory of a queue pair
 * @dev: device
 * @qp: queue pair
 * @in: has sizes of the queues, gets the description of the memory
 *
 * Return: 0 or -ENOMEM.
 */
int vroce_qp_alloc_rings(struct vroce_dev *dev, struct vroce_qp *qp,
			 struct vroce_create_qp_in *in)
{
	size_t sq_size = 0, rq_size = 0;

	if (in->sq_log_units != VROCE_NO_QUEUE)
		sq_size = (size_t)VROCE_SQ_UNIT << in->sq_log_units;
	if (in->rq_log_entries != VROCE_NO_QUEUE)
		rq_size = ALIGN(1ul << (in->rq_log_entries + in->rq_log_stride),
				VROCE_SQ_UNIT);

	qp->dev = dev;
	qp->size = sq_size + rq_size + sizeof(struct vroce_db_record);
	qp->mem = dma_alloc_coherent(&dev->pdev->dev, qp->size, &qp->dma,
				     GFP_KERNEL);
	if (!qp->mem)
		return -ENOMEM;
	qp->sq = (struct vroce_sq) {
		.base = qp->mem,
		.log_units = in->sq_log_units,
	};
	qp->rq = (struct vroce_rq) {
		.base = qp->mem + sq_size,
		.rec = qp->mem + sq_size + rq_size,
		.log_entries = in->rq_log_entries,
		.log_stride = in->rq_log_stride,
	};

	in->buf.addr = cpu_to_le64(qp->dma);
	in->buf.length = cpu_to_le64(qp->size);
	in->rq_off = cpu_to_le32(sq_size);
	in->rec_off = cpu_to_le32(sq_size + rq_size);
	in->context = cpu_to_le32(VROCE_KERNEL_CONTEXT);
	return 0;
}

/**
 * vroce_qp_free_rings - undo vroce_qp_alloc_rings()
 * @qp: queue pair, which may have no rings
 */
void vroce_qp_free_rings(struct vroce_qp *qp)
{
	if (!qp->mem)
		return;
	dma_free_coherent(&qp->dev->pdev->dev, qp->size, qp->mem, qp->dma);
	qp->mem = NULL;
}

/**
 * vroce_srq_alloc_ring - make the memory of a shared receive queue
 * @dev: device
 * @srq: queue
 * @in: has the size of the queue, gets the description of the memory
 *
 * Return: 0 or -ENOMEM.
 */
int vroce_srq_alloc_ring(struct vroce_dev *dev, struct vroce_srq *srq,
			 struct vroce_create_srq_in *in)
{
	size_t size = 1ul << (in->log_entries + in->log_stride);

	srq->dev = dev;
	srq->size = size + sizeof(struct vroce_db_record);
	srq->mem = dma_alloc_coherent(&dev->pdev->dev, srq->size, &srq->dma,
				      GFP_KERNEL);
	if (!srq->mem)
		return -ENOMEM;
	srq->rq = (struct vroce_rq) {
		.base = srq->mem,
		.rec = srq->mem + size,
		.log_entries = in->log_entries,
		.log_stride = in->log_stride,
	};

	in->buf.addr = cpu_to_le64(srq->dma);
	in->buf.length = cpu_to_le64(srq->size);
	in->rec_off = cpu_to_le32(size);
	return 0;
}

/**
 * vroce_srq_free_ring - undo vroce_srq_alloc_ring()
 * @srq: queue, which may have no ring
 */
void vroce_srq_free_ring(struct vroce_srq *srq)
{
	if (!srq->mem)
		return;
	dma_free_coherent(&srq->dev->pdev->dev, srq->size, srq->mem, srq->dma);
	srq->mem = NULL;
}
