// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Event queues: one for the completion events of each vector but the first,
 * and one for the async events, which shares the first with commands.
 */
#include <linux/dma-mapping.h>
#include <linux/interrupt.h>

#include "vroce_queue.h"

#define VROCE_EQ_MIN_ENTRIES	256
#define VROCE_EQ_MAX_ENTRIES	32768

static struct vroce_eqe *vroce_eq_next(struct vroce_eq *eq)
{
	struct vroce_eqe *eqe = &eq->ring[eq->ci & (BIT(eq->log_size) - 1)];
	u32 lap = eq->ci >> eq->log_size;

	if ((le32_to_cpu(READ_ONCE(eqe->phase)) & 1) == (lap & 1))
		return NULL;
	/* The phase bit is written last: read the rest after it. */
	dma_rmb();
	return eqe;
}

/*
 * Events of objects that are being destroyed find nothing here: an object
 * leaves its table, then waits for this handler to end.
 */
static void vroce_eq_dispatch(struct vroce_dev *dev, const struct vroce_eqe *eqe)
{
	u32 number = le32_to_cpu(eqe->number);
	u16 type = le16_to_cpu(eqe->type);
	struct vroce_srq *srq;
	struct vroce_cq *cq;
	struct vroce_qp *qp;

	switch (type) {
	case VROCE_EVENT_COMPLETION:
		cq = xa_load(&dev->cqs, number);
		if (cq)
			cq->comp(cq);
		break;
	case VROCE_EVENT_CQ_ERR:
		cq = xa_load(&dev->cqs, number);
		if (cq)
			cq->event(cq, eqe);
		break;
	case VROCE_EVENT_QP_FATAL:
	case VROCE_EVENT_QP_REQ_ERR:
	case VROCE_EVENT_QP_ACCESS_ERR:
	case VROCE_EVENT_COMM_EST:
	case VROCE_EVENT_SQ_DRAINED:
	case VROCE_EVENT_LAST_WQE_REACHED:
		qp = xa_load(&dev->qps, number);
		if (qp)
			qp->event(qp, eqe);
		break;
	case VROCE_EVENT_SRQ_ERR:
	case VROCE_EVENT_SRQ_LIMIT:
		srq = xa_load(&dev->srqs, number);
		if (srq)
			srq->event(srq, eqe);
		break;
	case VROCE_EVENT_PORT_UP:
	case VROCE_EVENT_PORT_DOWN:
		vroce_netdev_link_event(dev);
		break;
	case VROCE_EVENT_DEVICE_FATAL:
		vroce_fail(dev, "device reports a fatal error");
		break;
	default:
		dev_warn_ratelimited(&dev->pdev->dev,
				     "event of unknown type %u\n", type);
	}
}

static void vroce_eq_process(struct vroce_eq *eq)
{
	struct vroce_eqe *eqe;

	while ((eqe = vroce_eq_next(eq))) {
		vroce_eq_dispatch(eq->dev, eqe);
		eq->ci++;
	}
	vroce_ring(eq->dev, VROCE_DB_EQ_ARM, eq->eqn, eq->ci);
}

static irqreturn_t vroce_comp_irq(int irq, void *data)
{
	vroce_eq_process(data);
	return IRQ_HANDLED;
}

static irqreturn_t vroce_mgmt_irq(int irq, void *data)
{
	struct vroce_dev *dev = data;

	vroce_cmdq_irq(dev);
	/* Pairs with the release that shows the queue. */
	if (smp_load_acquire(&dev->async_eq.ring))
		vroce_eq_process(&dev->async_eq);
	return IRQ_HANDLED;
}

/**
 * vroce_async_sync - wait until no handler of an async event runs
 * @dev: device
 */
void vroce_async_sync(struct vroce_dev *dev)
{
	synchronize_irq(pci_irq_vector(dev->pdev, VROCE_MGMT_VECTOR));
}

/**
 * vroce_mgmt_irq_init - take interrupts of commands and async events
 * @dev: device
 *
 * Return: 0 or the error of request_irq().
 */
int vroce_mgmt_irq_init(struct vroce_dev *dev)
{
	snprintf(dev->mgmt_name, sizeof(dev->mgmt_name), "vroce-mgmt@%s",
		 pci_name(dev->pdev));
	return request_irq(pci_irq_vector(dev->pdev, VROCE_MGMT_VECTOR),
			   vroce_mgmt_irq, 0, dev->mgmt_name, dev);
}

/**
 * vroce_mgmt_irq_exit - undo vroce_mgmt_irq_init()
 * @dev: device
 */
void vroce_mgmt_irq_exit(struct vroce_dev *dev)
{
	free_irq(pci_irq_vector(dev->pdev, VROCE_MGMT_VECTOR), dev);
}

static size_t vroce_eq_bytes(const struct vroce_eq *eq)
{
	return sizeof(struct vroce_eqe) << eq->log_size;
}

/*
 * A queue is armed once for each event that it raises, so twice as many
 * entries as queues lets none be lost while a handler is late.
 */
static u8 vroce_eq_log_size(struct vroce_dev *dev)
{
	u32 want = clamp_t(u32, 2 * le32_to_cpu(dev->caps.max_cq),
			   VROCE_EQ_MIN_ENTRIES, VROCE_EQ_MAX_ENTRIES);

	want = min(roundup_pow_of_two(want),
		   rounddown_pow_of_two(le32_to_cpu(dev->caps.max_eqe) | 1));
	return ilog2(want);
}

static int vroce_eq_create(struct vroce_dev *dev, struct vroce_eq *eq,
			   u32 vector, bool async)
{
	struct vroce_create_eq_in in = { };
	struct vroce_eqe *ring;
	int err;

	eq->dev = dev;
	eq->vector = vector;
	eq->async = async;
	eq->ci = 0;
	eq->log_size = vroce_eq_log_size(dev);
	ring = dma_alloc_coherent(&dev->pdev->dev, vroce_eq_bytes(eq), &eq->dma,
				  GFP_KERNEL);
	if (!ring)
		return -ENOMEM;

	in.buf.addr = cpu_to_le64(eq->dma);
	in.buf.length = cpu_to_le64(vroce_eq_bytes(eq));
	in.vector = cpu_to_le32(vector);
	in.log_size = eq->log_size;
	in.flags = async ? VROCE_EQ_ASYNC : 0;
	err = vroce_cmd_create(dev, VROCE_CMD_CREATE_EQ, &in, sizeof(in),
			       &eq->eqn);
	if (err) {
		dev_err(&dev->pdev->dev, "no event queue for vector %u: %d\n",
			vector, err);
		dma_free_coherent(&dev->pdev->dev, vroce_eq_bytes(eq), ring,
				  eq->dma);
		return err;
	}
	/* Shows the rest of the queue to the handler. */
	smp_store_release(&eq->ring, ring);
	return 0;
}

/* No interrupt handler may look at the queue any more. */
static void vroce_eq_destroy(struct vroce_eq *eq)
{
	struct vroce_dev *dev = eq->dev;
	int err;

	err = vroce_cmd_destroy(dev, VROCE_CMD_DESTROY_EQ, eq->eqn);
	if (err)
		vroce_fail(dev, "event queue cannot be destroyed");
	dma_free_coherent(&dev->pdev->dev, vroce_eq_bytes(eq), eq->ring,
			  eq->dma);
	eq->ring = NULL;
}

static int vroce_comp_eq_init(struct vroce_dev *dev, int i)
{
	u32 vector = VROCE_FIRST_COMP_VECTOR + i;
	struct vroce_eq *eq = &dev->comp_eqs[i];
	int err;

	err = vroce_eq_create(dev, eq, vector, false);
	if (err)
		return err;
	snprintf(eq->name, sizeof(eq->name), "vroce-comp%d@%s", i,
		 pci_name(dev->pdev));
	err = request_irq(pci_irq_vector(dev->pdev, vector), vroce_comp_irq, 0,
			  eq->name, eq);
	if (err) {
		vroce_eq_destroy(eq);
		return err;
	}
	vroce_ring(dev, VROCE_DB_EQ_ARM, eq->eqn, eq->ci);
	return 0;
}

static void vroce_comp_eqs_exit(struct vroce_dev *dev, int n)
{
	while (n--) {
		struct vroce_eq *eq = &dev->comp_eqs[n];

		free_irq(pci_irq_vector(dev->pdev, eq->vector), eq);
		vroce_eq_destroy(eq);
	}
	kfree(dev->comp_eqs);
	dev->comp_eqs = NULL;
}

static void vroce_async_eq_exit(struct vroce_dev *dev)
{
	struct vroce_eq eq = dev->async_eq;

	WRITE_ONCE(dev->async_eq.ring, NULL);
	vroce_async_sync(dev);
	vroce_eq_destroy(&eq);
}

/**
 * vroce_eqs_init - make and arm all event queues
 * @dev: device
 *
 * Return: 0 or an error.
 */
int vroce_eqs_init(struct vroce_dev *dev)
{
	int irq = pci_irq_vector(dev->pdev, VROCE_MGMT_VECTOR);
	int err, i;

	err = vroce_eq_create(dev, &dev->async_eq, VROCE_MGMT_VECTOR, true);
	if (err)
		return err;
	dev->comp_eqs = kcalloc(dev->num_comp_eqs, sizeof(*dev->comp_eqs),
				GFP_KERNEL);
	if (!dev->comp_eqs) {
		err = -ENOMEM;
		goto err_async;
	}
	for (i = 0; i < dev->num_comp_eqs; i++) {
		err = vroce_comp_eq_init(dev, i);
		if (err)
			goto err_comp;
	}
	/* Arms it, with the handler kept away from its index. */
	disable_irq(irq);
	vroce_eq_process(&dev->async_eq);
	enable_irq(irq);
	return 0;

err_comp:
	vroce_comp_eqs_exit(dev, i);
err_async:
	vroce_async_eq_exit(dev);
	return err;
}

/**
 * vroce_eqs_exit - undo vroce_eqs_init()
 * @dev: device on which no CQ is left
 */
void vroce_eqs_exit(struct vroce_dev *dev)
{
	vroce_comp_eqs_exit(dev, dev->num_comp_eqs);
	vroce_async_eq_exit(dev);
}
