// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * vroce_dma_fault - a driver whose buffers are not mapped for DMA
 *
 * Loading it runs RC transfers from a device to itself, each with a buffer that
 * an IOMMU keeps from the device: one that was unmapped, one that the device may
 * only read, one of which only a part is mapped. Each must end with an
 * error completion and an event, and spoil nothing else. What came out is in
 * the kernel's log, in lines of KTAP; with any "not ok" loading fails.
 *
 *	insmod vroce_dma_fault.ko device=NAME gid=INDEX
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#define PORT		1
#define LEN		(2 * PAGE_SIZE)
#define PATIENCE_MS	20000

static char *device = "";
module_param(device, charp, 0);
MODULE_PARM_DESC(device, "name of the RDMA device");

static int gid = 1;
module_param(gid, int, 0);
MODULE_PARM_DESC(gid, "index of the GID to use");

/* How a buffer is mapped for DMA. */
enum mapping {
	MAPPED,
	UNMAPPED,		/* it was, before */
	OTHER_WAY,		/* the device may only read it */
	HALF,			/* its second page was unmapped */
};

struct buffer {
	void *pages;
	dma_addr_t dma;
};

struct end {
	struct ib_cq *cq;
	struct ib_qp *qp;
	struct buffer buf;
	/* The QP's async events, as bits. */
	unsigned long events;
};

struct world {
	struct ib_device *dev;
	struct iommu_domain *domain;
	struct ib_pd *pd;
	struct end a, b;	/* requester, responder */
	u8 dmac[ETH_ALEN];
};

struct fault {
	const char *name;
	enum ib_wr_opcode opcode;
	enum mapping local, remote;
	enum ib_wc_status status;	/* of the request */
	bool a_event, b_event;		/* who is told of a fault */
};

static const struct fault faults[] = {
	{ "nothing wrong", IB_WR_RDMA_WRITE, MAPPED, MAPPED, IB_WC_SUCCESS },
	{ "WRITE from unmapped memory", IB_WR_RDMA_WRITE,
	  UNMAPPED, MAPPED, IB_WC_LOC_PROT_ERR, true, false },
	{ "WRITE to unmapped memory", IB_WR_RDMA_WRITE,
	  MAPPED, UNMAPPED, IB_WC_REM_OP_ERR, false, true },
	{ "READ into unmapped memory", IB_WR_RDMA_READ,
	  UNMAPPED, MAPPED, IB_WC_LOC_PROT_ERR, true, false },
	{ "READ from unmapped memory", IB_WR_RDMA_READ,
	  MAPPED, UNMAPPED, IB_WC_REM_OP_ERR, false, true },
	{ "SEND from unmapped memory", IB_WR_SEND,
	  UNMAPPED, MAPPED, IB_WC_LOC_PROT_ERR, true, false },
	{ "SEND into unmapped memory", IB_WR_SEND,
	  MAPPED, UNMAPPED, IB_WC_REM_OP_ERR, false, true },
	{ "WRITE to memory that may only be read", IB_WR_RDMA_WRITE,
	  MAPPED, OTHER_WAY, IB_WC_REM_OP_ERR, false, true },
	{ "READ into memory that may only be read", IB_WR_RDMA_READ,
	  OTHER_WAY, MAPPED, IB_WC_LOC_PROT_ERR, true, false },
	{ "WRITE from memory that ends half-way", IB_WR_RDMA_WRITE,
	  HALF, MAPPED, IB_WC_LOC_PROT_ERR, true, false },
	{ "WRITE to memory that ends half-way", IB_WR_RDMA_WRITE,
	  MAPPED, HALF, IB_WC_REM_OP_ERR, false, true },
	{ "nothing wrong afterwards", IB_WR_RDMA_READ, MAPPED, MAPPED,
	  IB_WC_SUCCESS },
};

/* ---------------------------------------------------------------- buffers */

static enum dma_data_direction direction(enum mapping how)
{
	return how == OTHER_WAY ? DMA_TO_DEVICE : DMA_BIDIRECTIONAL;
}

static int buffer_map(struct world *w, struct buffer *buf, enum mapping how)
{
	buf->dma = ib_dma_map_single(w->dev, buf->pages, LEN, direction(how));
	return ib_dma_mapping_error(w->dev, buf->dma) ? -ENOMEM : 0;
}

/* With all mapped, so that nothing else gets the address. */
static void buffer_spoil(struct world *w, struct buffer *buf, enum mapping how)
{
	if (how == UNMAPPED)
		ib_dma_unmap_single(w->dev, buf->dma, LEN, direction(how));
	else if (how == HALF)
		iommu_unmap(w->domain, buf->dma + PAGE_SIZE, PAGE_SIZE);
}

static void buffer_unmap(struct world *w, struct buffer *buf, enum mapping how)
{
	if (how == UNMAPPED)
		return;
	/* What is unmapped as a whole must be mapped as a whole. */
	if (how == HALF)
		iommu_map(w->domain, buf->dma + PAGE_SIZE,
			  virt_to_phys(buf->pages + PAGE_SIZE), PAGE_SIZE,
			  IOMMU_READ | IOMMU_WRITE, GFP_KERNEL);
	ib_dma_unmap_single(w->dev, buf->dma, LEN, direction(how));
}

/* ------------------------------------------------------------------- ends */

static void qp_event(struct ib_event *event, void *context)
{
	struct end *end = context;

	set_bit(event->event, &end->events);
}

static int end_init(struct world *w, struct end *end)
{
	struct ib_qp_init_attr init = {
		.event_handler = qp_event,
		.qp_context = end,
		.qp_type = IB_QPT_RC,
		.sq_sig_type = IB_SIGNAL_ALL_WR,
		.cap = {
			.max_send_wr = 4,
			.max_recv_wr = 4,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};

	end->events = 0;
	end->cq = ib_alloc_cq_any(w->dev, NULL, 16, IB_POLL_DIRECT);
	if (IS_ERR(end->cq))
		return PTR_ERR(end->cq);
	init.send_cq = end->cq;
	init.recv_cq = end->cq;
	end->qp = ib_create_qp(w->pd, &init);
	if (IS_ERR(end->qp)) {
		ib_free_cq(end->cq);
		return PTR_ERR(end->qp);
	}
	return 0;
}

static void end_exit(struct end *end)
{
	ib_destroy_qp(end->qp);
	ib_free_cq(end->cq);
}

static int end_connect(struct world *w, struct end *end, struct end *peer)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags = IB_ACCESS_REMOTE_WRITE |
				   IB_ACCESS_REMOTE_READ,
	};
	const struct ib_gid_attr *source;
	int err;

	err = ib_modify_qp(end->qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX |
			   IB_QP_PORT | IB_QP_ACCESS_FLAGS);
	if (err)
		return err;

	source = rdma_get_gid_attr(w->dev, PORT, gid);
	if (IS_ERR(source))
		return PTR_ERR(source);
	attr.qp_state = IB_QPS_RTR;
	attr.path_mtu = IB_MTU_1024;
	attr.dest_qp_num = peer->qp->qp_num;
	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = 12;
	attr.ah_attr.type = RDMA_AH_ATTR_TYPE_ROCE;
	rdma_ah_set_port_num(&attr.ah_attr, PORT);
	rdma_ah_set_grh(&attr.ah_attr, (union ib_gid *)&source->gid, 0, gid, 64,
			0);
	memcpy(attr.ah_attr.roce.dmac, w->dmac, ETH_ALEN);
	rdma_put_gid_attr(source);
	err = ib_modify_qp(end->qp, &attr, IB_QP_STATE | IB_QP_AV |
			   IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN |
			   IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER);
	if (err)
		return err;

	attr.qp_state = IB_QPS_RTS;
	attr.timeout = 17;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	return ib_modify_qp(end->qp, &attr, IB_QP_STATE | IB_QP_TIMEOUT |
			    IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_SQ_PSN |
			    IB_QP_MAX_QP_RD_ATOMIC);
}

/* The status of the next completion, or -ETIMEDOUT. */
static int end_wait(struct end *end)
{
	struct ib_wc wc;
	int i;

	for (i = 0; i < PATIENCE_MS; i++) {
		if (ib_poll_cq(end->cq, 1, &wc) == 1)
			return wc.status;
		usleep_range(900, 1100);
	}
	return -ETIMEDOUT;
}

/* --------------------------------------------------------------- transfers */

static int post(struct world *w, enum ib_wr_opcode opcode)
{
	struct ib_sge from = {
		.addr = w->a.buf.dma,
		.length = LEN,
		.lkey = w->pd->local_dma_lkey,
	};
	struct ib_sge to = {
		.addr = w->b.buf.dma,
		.length = LEN,
		.lkey = w->pd->local_dma_lkey,
	};
	struct ib_recv_wr recv = { .sg_list = &to, .num_sge = 1 };
	struct ib_rdma_wr send = {
		.wr = { .opcode = opcode, .sg_list = &from, .num_sge = 1 },
		.remote_addr = w->b.buf.dma,
		.rkey = w->pd->unsafe_global_rkey,
	};
	int err;

	if (opcode == IB_WR_SEND) {
		err = ib_post_recv(w->b.qp, &recv, NULL);
		if (err)
			return err;
	}
	return ib_post_send(w->a.qp, &send.wr, NULL);
}

static bool told(struct end *end, bool expected)
{
	unsigned long fatal = BIT(IB_EVENT_QP_FATAL);
	int i;

	for (i = 0; expected && i < PATIENCE_MS && !(end->events & fatal); i++)
		usleep_range(900, 1100);
	return !!(end->events & fatal) == expected;
}

/* NULL, or what was wrong. */
static const char *check(struct world *w, const struct fault *f, int status)
{
	const void *from = f->opcode == IB_WR_RDMA_READ ? w->b.buf.pages :
							  w->a.buf.pages;
	const void *to = f->opcode == IB_WR_RDMA_READ ? w->a.buf.pages :
							w->b.buf.pages;

	if (status != f->status)
		return status < 0 ? "no completion" : ib_wc_status_msg(status);
	if (status == IB_WC_SUCCESS && memcmp(from, to, LEN))
		return "the data did not arrive";
	if (f->opcode == IB_WR_SEND && f->b_event &&
	    end_wait(&w->b) != IB_WC_LOC_PROT_ERR)
		return "no error completion of the receive request";
	if (!told(&w->a, f->a_event))
		return "requester's event missing or unexpected";
	if (!told(&w->b, f->b_event))
		return "responder's event missing or unexpected";
	return NULL;
}

static int transfer(struct world *w, const struct fault *f, const char **why)
{
	int err = end_init(w, &w->a);

	if (err)
		return err;
	err = end_init(w, &w->b);
	if (err)
		goto err_a;
	err = end_connect(w, &w->a, &w->b);
	if (!err)
		err = end_connect(w, &w->b, &w->a);
	if (err)
		goto err_b;
	get_random_bytes(w->a.buf.pages, LEN);
	get_random_bytes(w->b.buf.pages, LEN);
	err = buffer_map(w, &w->a.buf, f->local);
	if (err)
		goto err_b;
	err = buffer_map(w, &w->b.buf, f->remote);
	if (err)
		goto err_map;
	buffer_spoil(w, &w->a.buf, f->local);
	buffer_spoil(w, &w->b.buf, f->remote);
	err = post(w, f->opcode);
	if (!err)
		*why = check(w, f, end_wait(&w->a));
	buffer_unmap(w, &w->b.buf, f->remote);
err_map:
	buffer_unmap(w, &w->a.buf, f->local);
err_b:
	end_exit(&w->b);
err_a:
	end_exit(&w->a);
	return err;
}

static int run_all(struct world *w)
{
	int i, bad = 0;

	pr_info("KTAP version 1\n");
	pr_info("1..%zu\n", ARRAY_SIZE(faults));
	for (i = 0; i < ARRAY_SIZE(faults); i++) {
		const char *why = NULL;
		int err = transfer(w, &faults[i], &why);

		if (err || why) {
			pr_info("# %s: %d\n", why ? why : "cannot run", err);
			bad++;
		}
		pr_info("%sok %d %s\n", err || why ? "not " : "", i + 1,
			faults[i].name);
	}
	return bad ? -EIO : 0;
}

static int world_init(struct world *w)
{
	struct net_device *netdev;

	w->dev = ib_device_get_by_name(device, RDMA_DRIVER_UNKNOWN);
	if (!w->dev)
		return -ENODEV;
	netdev = ib_device_get_netdev(w->dev, PORT);
	if (netdev) {
		memcpy(w->dmac, netdev->dev_addr, ETH_ALEN);
		dev_put(netdev);
	}
	w->domain = iommu_get_domain_for_dev(w->dev->dma_device);
	if (!w->domain || !(w->domain->type & __IOMMU_DOMAIN_PAGING)) {
		pr_err("%s is not behind an IOMMU\n", device);
		ib_device_put(w->dev);
		return -EOPNOTSUPP;
	}
	w->pd = ib_alloc_pd(w->dev, IB_PD_UNSAFE_GLOBAL_RKEY);
	if (IS_ERR(w->pd)) {
		ib_device_put(w->dev);
		return PTR_ERR(w->pd);
	}
	w->a.buf.pages = kmalloc(LEN, GFP_KERNEL);
	w->b.buf.pages = kmalloc(LEN, GFP_KERNEL);
	return w->a.buf.pages && w->b.buf.pages ? 0 : -ENOMEM;
}

static void world_exit(struct world *w)
{
	kfree(w->a.buf.pages);
	kfree(w->b.buf.pages);
	ib_dealloc_pd(w->pd);
	ib_device_put(w->dev);
}

static int __init dma_fault_init(void)
{
	struct world *w = kzalloc(sizeof(*w), GFP_KERNEL);
	int err;

	if (!w)
		return -ENOMEM;
	err = world_init(w);
	if (!err)
		err = run_all(w);
	if (!IS_ERR_OR_NULL(w->pd))
		world_exit(w);
	kfree(w);
	return err;
}
module_init(dma_fault_init);

static void __exit dma_fault_exit(void)
{
}
module_exit(dma_fault_exit);

MODULE_DESCRIPTION("Transfers with memory that is not mapped for DMA");
MODULE_LICENSE("GPL");
