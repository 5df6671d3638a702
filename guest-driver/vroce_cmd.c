// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Command queue: how the kernel creates, changes and destroys everything.
 *
 * A command takes a slot, which has room for its input and its output in
 * memory that the device can always reach, and waits for the answer: asleep,
 * or polling where it may not sleep. An answer that does not come is fatal:
 * the device may still use the memory that the command named.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/ktime.h>
#include <linux/random.h>

#include "vroce.h"

/*
 * Time for an answer. The device's clock is not ours: its host may be busy,
 * and a large registration reads a long page list.
 */
#define VROCE_CMD_TIMEOUT_S	30
#define VROCE_CMD_CHECK_TIMEOUT	HZ
#define VROCE_CMD_ATOMIC_S	5

#define VROCE_CMD_MBOX_SIZE	512

struct vroce_cmd_mbox {
	u8 in[VROCE_CMD_MBOX_SIZE];
	u8 out[VROCE_CMD_MBOX_SIZE];
};

static_assert(sizeof(__le64) * VROCE_CNT_NUM <= VROCE_CMD_MBOX_SIZE);
static_assert(sizeof(struct vroce_query_device_out) <= VROCE_CMD_MBOX_SIZE);
static_assert(sizeof(struct vroce_modify_qp_in) <= VROCE_CMD_MBOX_SIZE);

static const char *vroce_opcode_name(u8 opcode)
{
	switch (opcode) {
#define NAME(op) case VROCE_CMD_##op: return #op
	NAME(QUERY_DEVICE);
	NAME(QUERY_COUNTERS);
	NAME(ALLOC_CONTEXT);
	NAME(FREE_CONTEXT);
	NAME(ALLOC_PD);
	NAME(FREE_PD);
	NAME(CREATE_EQ);
	NAME(DESTROY_EQ);
	NAME(CREATE_CQ);
	NAME(DESTROY_CQ);
	NAME(RESIZE_CQ);
	NAME(MODIFY_CQ);
	NAME(CREATE_SRQ);
	NAME(DESTROY_SRQ);
	NAME(MODIFY_SRQ);
	NAME(QUERY_SRQ);
	NAME(CREATE_QP);
	NAME(DESTROY_QP);
	NAME(MODIFY_QP);
	NAME(QUERY_QP);
	NAME(CREATE_MR);
	NAME(DESTROY_MR);
	NAME(UPDATE_MR);
	NAME(SET_GID);
	NAME(SET_NETDEV);
	NAME(ATTACH_MCAST);
	NAME(DETACH_MCAST);
#undef NAME
	}
	return "?";
}

static int vroce_status_to_errno(u8 status)
{
	static const int errnos[] = {
		[VROCE_OK]			= 0,
		[VROCE_ERR_OPCODE]		= -EOPNOTSUPP,
		[VROCE_ERR_LENGTH]		= -EINVAL,
		[VROCE_ERR_PARAM]		= -EINVAL,
		[VROCE_ERR_NUMBER]		= -EINVAL,
		[VROCE_ERR_STATE]		= -EINVAL,
		[VROCE_ERR_BUSY]		= -EBUSY,
		[VROCE_ERR_NO_RESOURCES]	= -ENOMEM,
		[VROCE_ERR_DMA]			= -EFAULT,
		[VROCE_ERR_PERMISSION]		= -EPERM,
		[VROCE_ERR_UNSUPPORTED]		= -EOPNOTSUPP,
	};

	return status < ARRAY_SIZE(errnos) ? errnos[status] : -EIO;
}

/* The next answer that the device has written, or NULL. */
static struct vroce_cmd_cpl *vroce_cmdq_next(struct vroce_cmdq *cmdq)
{
	struct vroce_cmd_cpl *cpl = &cmdq->cq[cmdq->ci % VROCE_CMDQ_SIZE];
	u32 lap = cmdq->ci >> VROCE_CMDQ_LOG_SIZE;

	if ((le32_to_cpu(READ_ONCE(cpl->phase)) & 1) == (lap & 1))
		return NULL;
	/* The phase bit is written last: read the rest after it. */
	dma_rmb();
	return cpl;
}

/* Takes all answers there are. Under the lock. */
static void vroce_cmdq_process(struct vroce_dev *dev)
{
	struct vroce_cmdq *cmdq = &dev->cmdq;
	struct vroce_cmd_cpl *cpl;

	while ((cpl = vroce_cmdq_next(cmdq))) {
		u16 id = le16_to_cpu(cpl->id);
		u32 index = id % VROCE_CMDQ_SIZE;
		struct vroce_cmd_slot *slot = &cmdq->slots[index];

		cmdq->ci++;
		cmdq->fetched += (u16)(le16_to_cpu(cpl->sq_head) -
				       (u16)cmdq->fetched);
		if (!test_bit(index, cmdq->used) || slot->id != id ||
		    slot->answered) {
			dev_warn_ratelimited(&dev->pdev->dev,
					     "answer to command %#x, which is not in flight\n",
					     id);
			continue;
		}
		slot->status = cpl->status;
		slot->rule = le16_to_cpu(cpl->rule);
		slot->answered = true;
		complete(&slot->done);
	}
}

/**
 * vroce_cmdq_irq - take the answers of the command queue
 * @dev: device
 */
void vroce_cmdq_irq(struct vroce_dev *dev)
{
	unsigned long flags;

	spin_lock_irqsave(&dev->cmdq.lock, flags);
	if (dev->cmdq.up)
		vroce_cmdq_process(dev);
	spin_unlock_irqrestore(&dev->cmdq.lock, flags);
}

/**
 * vroce_cmdq_abort - fail the commands in flight and all later ones
 * @dev: device, which does no more DMA
 */
void vroce_cmdq_abort(struct vroce_dev *dev)
{
	struct vroce_cmdq *cmdq = &dev->cmdq;
	unsigned long flags;
	int i;

	spin_lock_irqsave(&cmdq->lock, flags);
	cmdq->up = false;
	for_each_set_bit(i, cmdq->used, VROCE_CMDQ_SIZE)
		complete(&cmdq->slots[i].done);
	spin_unlock_irqrestore(&cmdq->lock, flags);
	wake_up_all(&cmdq->wait);
}

/* A free slot, or NULL if there is none or the queue is closed. */
static struct vroce_cmd_slot *vroce_cmd_get_slot(struct vroce_cmdq *cmdq)
{
	struct vroce_cmd_slot *slot = NULL;
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&cmdq->lock, flags);
	i = find_first_zero_bit(cmdq->used, VROCE_CMDQ_SIZE);
	if (cmdq->up && i < VROCE_CMDQ_SIZE) {
		__set_bit(i, cmdq->used);
		slot = &cmdq->slots[i];
		slot->id = cmdq->generation++ << VROCE_CMDQ_LOG_SIZE | i;
		slot->answered = false;
		reinit_completion(&slot->done);
	}
	spin_unlock_irqrestore(&cmdq->lock, flags);
	return slot;
}

static void vroce_cmd_put_slot(struct vroce_cmdq *cmdq,
			       struct vroce_cmd_slot *slot)
{
	unsigned long flags;

	spin_lock_irqsave(&cmdq->lock, flags);
	__clear_bit(slot - cmdq->slots, cmdq->used);
	spin_unlock_irqrestore(&cmdq->lock, flags);
	wake_up(&cmdq->wait);
}

static int vroce_cmd_submit(struct vroce_dev *dev, struct vroce_cmd_slot *slot,
			    enum vroce_opcode opcode, const void *in,
			    size_t in_len, size_t out_len)
{
	struct vroce_cmdq *cmdq = &dev->cmdq;
	int i = slot - cmdq->slots;
	dma_addr_t mbox = cmdq->mbox_dma + i * sizeof(*cmdq->mbox);
	struct vroce_cmd cmd = {
		.opcode = opcode,
		.id = cpu_to_le16(slot->id),
		.in_len = cpu_to_le32(in_len),
		.in_addr = cpu_to_le64(mbox + offsetof(struct vroce_cmd_mbox, in)),
		.out_len = cpu_to_le32(out_len),
		.out_addr = cpu_to_le64(mbox + offsetof(struct vroce_cmd_mbox, out)),
	};
	unsigned long flags;
	int err = -EIO;

	if (in_len)
		memcpy(cmdq->mbox[i].in, in, in_len);
	memset(cmdq->mbox[i].out, 0, out_len);
	slot->opcode = opcode;

	spin_lock_irqsave(&cmdq->lock, flags);
	if (cmdq->up) {
		slot->seq = cmdq->pi;
		cmdq->sq[cmdq->pi % VROCE_CMDQ_SIZE] = cmd;
		cmdq->pi++;
		/* Orders the command's memory before the doorbell. */
		vroce_write(dev, VROCE_REG_CMDQ_DOORBELL, cmdq->pi);
		err = 0;
	}
	spin_unlock_irqrestore(&cmdq->lock, flags);
	return err;
}

/* Looks for the answer without an interrupt; true if the wait is over. */
static bool vroce_cmd_poll(struct vroce_dev *dev, struct vroce_cmd_slot *slot)
{
	struct vroce_cmdq *cmdq = &dev->cmdq;
	unsigned long flags;
	bool over;

	spin_lock_irqsave(&cmdq->lock, flags);
	if (cmdq->up)
		vroce_cmdq_process(dev);
	over = slot->answered || !cmdq->up;
	spin_unlock_irqrestore(&cmdq->lock, flags);
	return over;
}

static void vroce_cmd_timeout(struct vroce_dev *dev,
			      struct vroce_cmd_slot *slot, int seconds)
{
	struct vroce_cmdq *cmdq = &dev->cmdq;
	bool fetched = (s32)(cmdq->fetched - slot->seq) > 0;

	dev_err(&dev->pdev->dev,
		"command %s (id %#x) has no answer after %d s: the device has %s; %u submitted, %u answered, %llu interrupts lost\n",
		vroce_opcode_name(slot->opcode), slot->id, seconds,
		fetched ? "fetched it and did not complete it" :
		"not been seen to fetch it", cmdq->pi, cmdq->ci,
		cmdq->lost_irqs);
	vroce_fail(dev, "command timed out");
}

static void vroce_cmd_wait(struct vroce_dev *dev, struct vroce_cmd_slot *slot)
{
	int s;

	for (s = 0; s < VROCE_CMD_TIMEOUT_S; s++) {
		if (wait_for_completion_timeout(&slot->done,
						VROCE_CMD_CHECK_TIMEOUT))
			return;
		if (vroce_cmd_poll(dev, slot)) {
			if (vroce_failed(dev))
				return;
			dev->cmdq.lost_irqs++;
			dev_warn_ratelimited(&dev->pdev->dev,
					     "command %s (id %#x) was answered without an interrupt: vector %d lost it\n",
					     vroce_opcode_name(slot->opcode),
					     slot->id, VROCE_MGMT_VECTOR);
			return;
		}
		if (vroce_read(dev, VROCE_REG_STATUS) & VROCE_STATUS_FATAL) {
			vroce_fail(dev, "device reports a fatal error");
			return;
		}
	}
	vroce_cmd_timeout(dev, slot, VROCE_CMD_TIMEOUT_S);
}

/* Time by ktime, since jiffies stand still where interrupts are off. */
static void vroce_cmd_spin(struct vroce_dev *dev, struct vroce_cmd_slot *slot)
{
	ktime_t end = ktime_add_ms(ktime_get(),
				   VROCE_CMD_ATOMIC_S * MSEC_PER_SEC);

	while (!vroce_cmd_poll(dev, slot)) {
		if (ktime_after(ktime_get(), end)) {
			vroce_cmd_timeout(dev, slot, VROCE_CMD_ATOMIC_S);
			return;
		}
		udelay(1);
	}
}

/* The end of a command: its status, its output, and its slot. */
static int vroce_cmd_finish(struct vroce_dev *dev, struct vroce_cmd_slot *slot,
			    void *out, size_t out_len)
{
	struct vroce_cmdq *cmdq = &dev->cmdq;
	int err = -EIO;

	/* Pairs with the lock under which the answer was taken. */
	if (vroce_cmd_poll(dev, slot) && slot->answered) {
		err = vroce_status_to_errno(slot->status);
		if (err)
			dev_dbg(&dev->pdev->dev,
				"command %s: status %u, broke rule %u\n",
				vroce_opcode_name(slot->opcode), slot->status,
				slot->rule);
		else if (out_len)
			memcpy(out, cmdq->mbox[slot - cmdq->slots].out, out_len);
	}
	vroce_cmd_put_slot(cmdq, slot);
	return err;
}

/**
 * vroce_cmd - execute a command
 * @dev: device
 * @opcode: what to do
 * @in: the opcode's input, or NULL
 * @in_len: bytes of @in
 * @out: room for the opcode's output, or NULL; written on success only
 * @out_len: bytes of @out
 *
 * Sleeps. The memory that the command names is the caller's again when this
 * returns, even with an error.
 *
 * Return: 0, -EIO if the device has failed, or the errno of the status that
 * the device answered with.
 */
int vroce_cmd(struct vroce_dev *dev, enum vroce_opcode opcode,
	      const void *in, size_t in_len, void *out, size_t out_len)
{
	struct vroce_cmdq *cmdq = &dev->cmdq;
	struct vroce_cmd_slot *slot = NULL;

	might_sleep();
	wait_event(cmdq->wait, (slot = vroce_cmd_get_slot(cmdq)) ||
		   !READ_ONCE(cmdq->up));
	if (!slot)
		return -EIO;
	if (!vroce_cmd_submit(dev, slot, opcode, in, in_len, out_len))
		vroce_cmd_wait(dev, slot);
	return vroce_cmd_finish(dev, slot, out, out_len);
}

/**
 * vroce_cmd_atomic - execute a command where one may not sleep
 * @dev: device
 * @opcode: what to do
 * @in: as for vroce_cmd()
 * @in_len: as for vroce_cmd()
 * @out: as for vroce_cmd()
 * @out_len: as for vroce_cmd()
 *
 * Return: as vroce_cmd(), or -EAGAIN if all slots are in use.
 */
int vroce_cmd_atomic(struct vroce_dev *dev, enum vroce_opcode opcode,
		     const void *in, size_t in_len, void *out, size_t out_len)
{
	struct vroce_cmd_slot *slot = vroce_cmd_get_slot(&dev->cmdq);

	if (!slot)
		return vroce_failed(dev) ? -EIO : -EAGAIN;
	if (!vroce_cmd_submit(dev, slot, opcode, in, in_len, out_len))
		vroce_cmd_spin(dev, slot);
	return vroce_cmd_finish(dev, slot, out, out_len);
}

/**
 * vroce_cmd_create - execute a command that makes an object
 * @dev: device
 * @opcode: an ALLOC or CREATE command
 * @in: as for vroce_cmd()
 * @in_len: as for vroce_cmd()
 * @number: the object's number or key
 *
 * Return: as vroce_cmd().
 */
int vroce_cmd_create(struct vroce_dev *dev, enum vroce_opcode opcode,
		     const void *in, size_t in_len, u32 *number)
{
	struct vroce_number out;
	int err;

	err = vroce_cmd(dev, opcode, in, in_len, &out, sizeof(out));
	if (!err)
		*number = le32_to_cpu(out.number);
	return err;
}

/**
 * vroce_cmd_destroy - execute a command that ends an object
 * @dev: device
 * @opcode: a FREE or DESTROY command
 * @number: the object's number or key
 *
 * Return: 0 also if the device has failed, since it no longer uses any object;
 * else as vroce_cmd().
 */
int vroce_cmd_destroy(struct vroce_dev *dev, enum vroce_opcode opcode,
		      u32 number)
{
	struct vroce_number in = { .number = cpu_to_le32(number) };
	int err;

	err = vroce_cmd(dev, opcode, &in, sizeof(in), NULL, 0);
	return vroce_failed(dev) ? 0 : err;
}

/**
 * vroce_cmdq_setup - what a command queue needs once in its life
 * @cmdq: command queue
 */
void vroce_cmdq_setup(struct vroce_cmdq *cmdq)
{
	int i;

	spin_lock_init(&cmdq->lock);
	init_waitqueue_head(&cmdq->wait);
	for (i = 0; i < VROCE_CMDQ_SIZE; i++)
		init_completion(&cmdq->slots[i].done);
}

/**
 * vroce_cmdq_init - make the command queue and enable the device
 * @dev: device after reset
 *
 * Return: 0 or -ENOMEM.
 */
int vroce_cmdq_init(struct vroce_dev *dev)
{
	struct vroce_cmdq *cmdq = &dev->cmdq;
	struct device *d = &dev->pdev->dev;

	cmdq->pi = 0;
	cmdq->ci = 0;
	cmdq->fetched = 0;
	cmdq->lost_irqs = 0;
	cmdq->generation = get_random_u16();
	bitmap_zero(cmdq->used, VROCE_CMDQ_SIZE);

	cmdq->sq = dma_alloc_coherent(d, VROCE_CMDQ_SIZE * sizeof(*cmdq->sq),
				      &cmdq->sq_dma, GFP_KERNEL);
	cmdq->cq = dma_alloc_coherent(d, VROCE_CMDQ_SIZE * sizeof(*cmdq->cq),
				      &cmdq->cq_dma, GFP_KERNEL);
	cmdq->mbox = dma_alloc_coherent(d, VROCE_CMDQ_SIZE * sizeof(*cmdq->mbox),
					&cmdq->mbox_dma, GFP_KERNEL);
	if (!cmdq->sq || !cmdq->cq || !cmdq->mbox) {
		vroce_cmdq_exit(dev);
		return -ENOMEM;
	}

	vroce_write64(dev, VROCE_REG_CMDQ_SQ_BASE, cmdq->sq_dma);
	vroce_write64(dev, VROCE_REG_CMDQ_CQ_BASE, cmdq->cq_dma);
	vroce_write(dev, VROCE_REG_CMDQ_LOG_SIZE, VROCE_CMDQ_LOG_SIZE);
	vroce_write(dev, VROCE_REG_CMDQ_VECTOR, VROCE_MGMT_VECTOR);
	cmdq->up = true;
	vroce_write(dev, VROCE_REG_CTRL, VROCE_CTRL_ENABLE);
	return 0;
}

/**
 * vroce_cmdq_exit - disable the device and free the command queue
 * @dev: device with no command in flight
 */
void vroce_cmdq_exit(struct vroce_dev *dev)
{
	struct vroce_cmdq *cmdq = &dev->cmdq;
	struct device *d = &dev->pdev->dev;
	unsigned long flags;

	vroce_write(dev, VROCE_REG_CTRL, 0);
	spin_lock_irqsave(&cmdq->lock, flags);
	cmdq->up = false;
	spin_unlock_irqrestore(&cmdq->lock, flags);

	if (cmdq->mbox)
		dma_free_coherent(d, VROCE_CMDQ_SIZE * sizeof(*cmdq->mbox),
				  cmdq->mbox, cmdq->mbox_dma);
	if (cmdq->cq)
		dma_free_coherent(d, VROCE_CMDQ_SIZE * sizeof(*cmdq->cq),
				  cmdq->cq, cmdq->cq_dma);
	if (cmdq->sq)
		dma_free_coherent(d, VROCE_CMDQ_SIZE * sizeof(*cmdq->sq),
				  cmdq->sq, cmdq->sq_dma);
}
