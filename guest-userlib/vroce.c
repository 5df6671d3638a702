// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Provider for the vroce RDMA network card: device, context, queue memory. */

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <util/util.h>

#include "vroce.h"

/*
 * mmap() rather than malloc(): a queue is a whole number of pages of its own,
 * so that madvise(MADV_DONTFORK) on it takes nothing else away from a child.
 * Returns 0 or an errno.
 */
int vroce_mem_alloc(struct vroce_mem *mem, size_t length)
{
	int err;

	mem->length = align(length, sysconf(_SC_PAGESIZE));
	mem->addr = mmap(NULL, mem->length, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem->addr == MAP_FAILED)
		return errno;

	if (ibv_dontfork_range(mem->addr, mem->length)) {
		err = errno;
		munmap(mem->addr, mem->length);
		return err;
	}

	return 0;
}

void vroce_mem_free(struct vroce_mem *mem)
{
	ibv_dofork_range(mem->addr, mem->length);
	munmap(mem->addr, mem->length);
}

static void vroce_free_context(struct ibv_context *ibctx)
{
	struct vroce_context *ctx = to_vctx(ibctx);
	int i;

	for (i = 0; i < VROCE_QP_TABLE_SIZE; i++)
		free(ctx->qp_table[i]);
	pthread_mutex_destroy(&ctx->qp_table_mutex);
	munmap(ctx->db, ctx->db_size);
	verbs_uninit_context(&ctx->vctx);
	free(ctx);
}

static const struct verbs_context_ops vroce_context_ops = {
	.alloc_pd = vroce_alloc_pd,
	.async_event = vroce_async_event,
	.attach_mcast = ibv_cmd_attach_mcast,
	.create_ah = vroce_create_ah,
	.create_cq = vroce_create_cq,
	.create_cq_ex = vroce_create_cq_ex,
	.create_qp = vroce_create_qp,
	.create_qp_ex = vroce_create_qp_ex,
	.create_srq = vroce_create_srq,
	.dealloc_pd = vroce_dealloc_pd,
	.dereg_mr = vroce_dereg_mr,
	.destroy_ah = vroce_destroy_ah,
	.destroy_cq = vroce_destroy_cq,
	.destroy_qp = vroce_destroy_qp,
	.destroy_srq = vroce_destroy_srq,
	.detach_mcast = ibv_cmd_detach_mcast,
	.free_context = vroce_free_context,
	.modify_cq = vroce_modify_cq,
	.modify_qp = vroce_modify_qp,
	.modify_srq = vroce_modify_srq,
	.poll_cq = vroce_poll_cq,
	.post_recv = vroce_post_recv,
	.post_send = vroce_post_send,
	.post_srq_recv = vroce_post_srq_recv,
	.query_device_ex = vroce_query_device,
	.query_port = vroce_query_port,
	.query_qp = vroce_query_qp,
	.query_srq = vroce_query_srq,
	.reg_mr = vroce_reg_mr,
	.req_notify_cq = vroce_req_notify_cq,
	.resize_cq = vroce_resize_cq,
};

static struct verbs_context *vroce_alloc_context(struct ibv_device *ibdev,
						 int cmd_fd, void *private_data)
{
	struct vroce_ucontext_resp resp = {};
	struct ibv_get_context cmd = {};
	struct vroce_context *ctx;

	ctx = verbs_init_and_alloc_context(ibdev, cmd_fd, ctx, vctx,
					   RDMA_DRIVER_UNKNOWN);
	if (!ctx)
		return NULL;

	if (ibv_cmd_get_context(&ctx->vctx, &cmd, sizeof(cmd), &resp.ibv_resp,
				sizeof(resp)))
		goto err_free;

	ctx->max_sge = resp.max_sge;
	ctx->max_inline = resp.max_inline;
	ctx->max_sq_units = resp.max_sq_units;
	ctx->max_rq_entries = resp.max_rq_entries;
	ctx->max_cqe = resp.max_cqe;

	ctx->db_size = resp.db_mmap_size;
	ctx->db = mmap(NULL, ctx->db_size, PROT_WRITE, MAP_SHARED, cmd_fd,
		       resp.db_mmap_key);
	if (ctx->db == MAP_FAILED) {
		verbs_err(&ctx->vctx, "cannot map the doorbell page\n");
		goto err_free;
	}

	pthread_mutex_init(&ctx->qp_table_mutex, NULL);
	verbs_set_ops(&ctx->vctx, &vroce_context_ops);

	return &ctx->vctx;

err_free:
	verbs_uninit_context(&ctx->vctx);
	free(ctx);
	return NULL;
}

static struct verbs_device *vroce_alloc_device(struct verbs_sysfs_dev *sysfs)
{
	struct vroce_device *dev;

	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return NULL;

	return &dev->vdev;
}

static void vroce_uninit_device(struct verbs_device *vdev)
{
	free(container_of(vdev, struct vroce_device, vdev));
}

/*
 * The card has no driver ID of its own, and RDMA_DRIVER_UNKNOWN stands for
 * others as well: only the PCI IDs say what it is.
 */
static const struct verbs_match_ent vroce_match_table[] = {
	VERBS_PCI_MATCH(VROCE_PCI_VENDOR, VROCE_PCI_DEVICE, NULL),
	{},
};

static const struct verbs_device_ops vroce_dev_ops = {
	.name = "vroce",
	.match_min_abi_version = VROCE_ABI_VERSION,
	.match_max_abi_version = VROCE_ABI_VERSION,
	.match_table = vroce_match_table,
	.alloc_device = vroce_alloc_device,
	.uninit_device = vroce_uninit_device,
	.alloc_context = vroce_alloc_context,
};

PROVIDER_DRIVER(vroce, vroce_dev_ops);
