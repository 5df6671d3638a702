/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The driver of the vroce RDMA network card: what its files share.
 *
 * vroce_main.c      PCI life cycle
 * vroce_selftest.c  bring-up block
 * vroce_cmd.c       command queue
 * vroce_eq.c        event queues and their interrupts
 * vroce_buf.c       page lists
 * vroce_queue.c     rings that the kernel itself fills and reads
 * vroce_netdev.c    Ethernet interface; vroce_eth.c has its queues
 * vroce_verbs.c     RDMA device; the objects are in a file each
 */
#ifndef VROCE_H
#define VROCE_H

#include <linux/completion.h>
#include <linux/io.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "vroce_hw.h"

#define VROCE_DRV_NAME		"vroce"

/* The first vector is that of commands and async events. */
#define VROCE_MGMT_VECTOR	0
#define VROCE_FIRST_COMP_VECTOR	1

/* Doorbell page of the kernel's own queues. */
#define VROCE_KERNEL_CONTEXT	0

#define VROCE_CMDQ_LOG_SIZE	5
#define VROCE_CMDQ_SIZE		BIT(VROCE_CMDQ_LOG_SIZE)

/*
 * struct vroce_cmd_slot - a command in flight
 * @done: completed by the device's answer, or when the device has failed
 * @id: identifier that the answer must carry
 * @opcode: enum vroce_opcode
 * @answered: @status and @rule are valid
 * @status: enum vroce_status
 * @rule: enum vroce_rule that the command broke
 * @seq: producer index at which the command was submitted
 */
struct vroce_cmd_slot {
	struct completion done;
	u16 id;
	u8 opcode;
	bool answered;
	u8 status;
	u16 rule;
	u32 seq;
};

/*
 * struct vroce_cmdq - command queue
 * @lock: protects everything below; taken in hard interrupts
 * @sq: submission ring
 * @cq: completion ring
 * @mbox: input and output of each slot
 * @pi: commands submitted
 * @ci: completions taken
 * @fetched: commands that the device says it has read
 * @generation: makes the identifiers of a slot's successive commands differ
 * @up: commands are accepted
 * @used: bitmap of the slots in flight
 * @wait: of those who found no free slot
 * @lost_irqs: answers that were found without an interrupt
 */
struct vroce_cmdq {
	spinlock_t lock;	/* irq-safe */
	struct vroce_cmd *sq;
	struct vroce_cmd_cpl *cq;
	struct vroce_cmd_mbox *mbox;
	dma_addr_t sq_dma;
	dma_addr_t cq_dma;
	dma_addr_t mbox_dma;
	u32 pi;
	u32 ci;
	u32 fetched;
	u16 generation;
	bool up;
	DECLARE_BITMAP(used, VROCE_CMDQ_SIZE);
	struct vroce_cmd_slot slots[VROCE_CMDQ_SIZE];
	wait_queue_head_t wait;
	u64 lost_irqs;
};

/*
 * struct vroce_eq - event queue; one vector each
 * @ring: memory of the queue, NULL if it does not exist
 * @ci: events taken
 */
struct vroce_eq {
	struct vroce_dev *dev;
	struct vroce_eqe *ring;
	dma_addr_t dma;
	u32 eqn;
	u32 ci;
	u32 vector;
	u8 log_size;
	bool async;
	char name[32];
};

/* Bits of vroce_dev.flags */
#define VROCE_DEV_FAILED	0	/* the device does no more DMA; only a restart helps */

/*
 * struct vroce_dev - one card
 * @regs: BAR 0
 * @db: doorbell page of the kernel
 * @db_phys: bus address of BAR 2, whose pages user contexts map
 * @flags: VROCE_DEV_*
 * @caps: answer to QUERY_DEVICE
 * @num_comp_eqs: completion event queues in @comp_eqs
 * @async_eq: takes the async events
 * @cqs: struct vroce_cq by number
 * @qps: struct vroce_qp by number
 * @srqs: struct vroce_srq by number
 * @qp_lock: makes number and lookup of a QP appear and vanish together
 * @netdev: Ethernet side, or NULL
 * @ib: RDMA side, or NULL
 * @port_lock: what is read of link and interface against what is told of it
 * @started: vroce_start() has succeeded
 * @life_lock: start and stop against @fail_work
 * @fail_work: tells both sides that the device has failed
 */
struct vroce_dev {
	struct pci_dev *pdev;
	void __iomem *regs;
	void __iomem *db;
	phys_addr_t db_phys;
	unsigned long flags;
	struct vroce_cmdq cmdq;
	struct vroce_query_device_out caps;
	int num_vectors;
	int num_comp_eqs;
	struct vroce_eq *comp_eqs;
	struct vroce_eq async_eq;
	char mgmt_name[32];
	struct xarray cqs;
	struct xarray qps;
	struct xarray srqs;
	struct mutex qp_lock;	/* create and destroy of QPs */
	struct vroce_netdev *netdev;
	struct vroce_ib *ib;
	spinlock_t port_lock;	/* irq-safe */
	bool started;
	struct mutex life_lock;	/* start and stop */
	struct work_struct fail_work;
};

static inline u32 vroce_read(struct vroce_dev *dev, u32 reg)
{
	return readl(dev->regs + reg);
}

static inline void vroce_write(struct vroce_dev *dev, u32 reg, u32 value)
{
	writel(value, dev->regs + reg);
}

static inline void vroce_write64(struct vroce_dev *dev, u32 reg, u64 value)
{
	writeq(value, dev->regs + reg);
}

static inline bool vroce_failed(struct vroce_dev *dev)
{
	return test_bit(VROCE_DEV_FAILED, &dev->flags);
}

static inline bool vroce_has(struct vroce_dev *dev, u64 feature)
{
	return le64_to_cpu(dev->caps.features) & feature;
}

/* Rings the kernel's doorbell page: orders earlier writes to memory first. */
static inline void vroce_ring(struct vroce_dev *dev, enum vroce_db_kind kind,
			      u32 number, u32 value)
{
	writeq(vroce_doorbell(kind, number, value), dev->db);
}

/* vroce_main.c */
void vroce_fail(struct vroce_dev *dev, const char *why);

/* vroce_selftest.c */
int vroce_selftest(struct vroce_dev *dev);

/* vroce_cmd.c */
void vroce_cmdq_setup(struct vroce_cmdq *cmdq);
int vroce_cmdq_init(struct vroce_dev *dev);
void vroce_cmdq_exit(struct vroce_dev *dev);
void vroce_cmdq_abort(struct vroce_dev *dev);
void vroce_cmdq_irq(struct vroce_dev *dev);
int vroce_cmd(struct vroce_dev *dev, enum vroce_opcode opcode,
	      const void *in, size_t in_len, void *out, size_t out_len);
int vroce_cmd_atomic(struct vroce_dev *dev, enum vroce_opcode opcode,
		     const void *in, size_t in_len, void *out, size_t out_len);
int vroce_cmd_create(struct vroce_dev *dev, enum vroce_opcode opcode,
		     const void *in, size_t in_len, u32 *number);
int vroce_cmd_destroy(struct vroce_dev *dev, enum vroce_opcode opcode,
		      u32 number);

/* vroce_eq.c */
int vroce_mgmt_irq_init(struct vroce_dev *dev);
void vroce_mgmt_irq_exit(struct vroce_dev *dev);
int vroce_eqs_init(struct vroce_dev *dev);
void vroce_eqs_exit(struct vroce_dev *dev);
void vroce_async_sync(struct vroce_dev *dev);

/* vroce_counters.c */
extern const char * const vroce_counter_names[VROCE_CNT_NUM];
int vroce_read_counters(struct vroce_dev *dev, u64 *values);

/* vroce_netdev.c */
int vroce_netdev_init(struct vroce_dev *dev);
void vroce_netdev_exit(struct vroce_dev *dev);
void vroce_netdev_link_event(struct vroce_dev *dev);
void vroce_netdev_fail(struct vroce_dev *dev);
struct net_device *vroce_netdev_get(struct vroce_dev *dev);

/* vroce_verbs.c */
int vroce_ib_init(struct vroce_dev *dev);
void vroce_ib_exit(struct vroce_dev *dev);
void vroce_ib_port_event(struct vroce_dev *dev);
void vroce_ib_fail(struct vroce_dev *dev);

#endif /* VROCE_H */
