// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Shared receive queues. */
#include <rdma/ib_umem.h>

#include "vroce-abi.h"
#include "vroce_ib.h"

static void vroce_ib_srq_event(struct vroce_srq *hw,
			       const struct vroce_eqe *eqe)
{
	struct vroce_ib_srq *srq = container_of(hw, struct vroce_ib_srq, hw);
	struct ib_event event = {
		.device = srq->ibsrq.device,
		.element.srq = &srq->ibsrq,
		.event = le16_to_cpu(eqe->type) == VROCE_EVENT_SRQ_LIMIT ?
			IB_EVENT_SRQ_LIMIT_REACHED : IB_EVENT_SRQ_ERR,
	};

	if (srq->ibsrq.event_handler)
		srq->ibsrq.event_handler(&event, srq->ibsrq.srq_context);
}

static int vroce_srq_create(struct vroce_dev *dev, struct vroce_ib_srq *srq,
			    struct vroce_create_srq_in *in)
{
	int err;

	err = vroce_cmd_create(dev, VROCE_CMD_CREATE_SRQ, in, sizeof(*in),
			       &srq->hw.srqn);
	if (err)
		return err;
	err = xa_err(xa_store(&dev->srqs, srq->hw.srqn, &srq->hw, GFP_KERNEL));
	if (err && vroce_cmd_destroy(dev, VROCE_CMD_DESTROY_SRQ, srq->hw.srqn))
		vroce_fail(dev, "shared receive queue cannot be destroyed");
	return err;
}

static int vroce_srq_destroy(struct vroce_dev *dev, struct vroce_ib_srq *srq)
{
	int err;

	err = vroce_cmd_destroy(dev, VROCE_CMD_DESTROY_SRQ, srq->hw.srqn);
	if (err)
		return err;
	/* The number may have a new owner already. */
	xa_cmpxchg(&dev->srqs, srq->hw.srqn, &srq->hw, NULL, 0);
	vroce_async_sync(dev);
	return 0;
}

static int vroce_create_user_srq(struct vroce_dev *dev,
				 struct vroce_ib_srq *srq,
				 struct vroce_create_srq_in *in,
				 struct ib_udata *udata)
{
	struct vroce_create_srq_resp resp = { };
	struct vroce_create_srq_req req;
	struct vroce_page_list list;
	int err;

	err = vroce_get_request(udata, &req, sizeof(req));
	if (err)
		return err;
	if (memchr_inv(req.reserved, 0, sizeof(req.reserved)))
		return -EINVAL;

	srq->umem = ib_umem_get(srq->ibsrq.device, req.buf_addr, req.buf_len,
				IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(srq->umem))
		return PTR_ERR(srq->umem);
	err = vroce_page_list_from_umem(dev, &list, srq->umem, req.buf_addr,
					true);
	if (err)
		goto err_umem;
	in->buf = list.buf;
	in->rec_off = cpu_to_le32(req.rec_off);
	in->log_entries = req.log_entries;
	in->log_stride = req.log_stride;
	err = vroce_srq_create(dev, srq, in);
	vroce_page_list_free(&list);
	if (err)
		goto err_umem;

	resp.srqn = srq->hw.srqn;
	err = ib_copy_to_udata(udata, &resp, min(sizeof(resp), udata->outlen));
	if (err)
		goto err_srq;
	return 0;

err_srq:
	if (vroce_srq_destroy(dev, srq)) {
		vroce_fail(dev, "shared receive queue cannot be destroyed");
		vroce_srq_destroy(dev, srq);
	}
err_umem:
	ib_umem_release(srq->umem);
	return err;
}

static int vroce_create_kernel_srq(struct vroce_dev *dev,
				   struct vroce_ib_srq *srq,
				   struct vroce_create_srq_in *in)
{
	u32 stride = sizeof(struct vroce_rwqe) +
		max(srq->max_sge, 1u) * sizeof(struct vroce_sge);
	int err;

	in->log_entries = order_base_2(srq->max_wr);
	in->log_stride = order_base_2(stride);
	err = vroce_srq_alloc_ring(dev, &srq->hw, in);
	if (err)
		return err;
	err = vroce_srq_create(dev, srq, in);
	if (err)
		vroce_srq_free_ring(&srq->hw);
	return err;
}

int vroce_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init,
		     struct ib_udata *udata)
{
	struct vroce_dev *dev = to_vdev(ibsrq->device);
	struct vroce_ib_srq *srq = to_vsrq(ibsrq);
	struct vroce_create_srq_in in = {
		.pdn = cpu_to_le32(to_vpd(ibsrq->pd)->pdn),
		.limit = cpu_to_le32(init->attr.srq_limit),
	};

	if (init->srq_type != IB_SRQT_BASIC)
		return -EOPNOTSUPP;
	if (!init->attr.max_wr ||
	    init->attr.max_wr > le32_to_cpu(dev->caps.max_srq_wr) ||
	    init->attr.max_sge > le32_to_cpu(dev->caps.max_sge))
		return -EINVAL;

	spin_lock_init(&srq->lock);
	srq->hw.dev = dev;
	srq->hw.event = vroce_ib_srq_event;
	srq->max_wr = init->attr.max_wr;
	srq->max_sge = init->attr.max_sge;
	if (udata)
		return vroce_create_user_srq(dev, srq, &in, udata);
	return vroce_create_kernel_srq(dev, srq, &in);
}

int vroce_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		     enum ib_srq_attr_mask mask, struct ib_udata *udata)
{
	struct vroce_ib_srq *srq = to_vsrq(ibsrq);
	struct vroce_modify_srq_in in = {
		.srqn = cpu_to_le32(srq->hw.srqn),
		.limit = cpu_to_le32(attr->srq_limit),
	};

	if (mask & IB_SRQ_MAX_WR)
		return -EOPNOTSUPP;
	if (!(mask & IB_SRQ_LIMIT))
		return 0;
	return vroce_cmd(srq->hw.dev, VROCE_CMD_MODIFY_SRQ, &in, sizeof(in),
			 NULL, 0);
}

int vroce_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr)
{
	struct vroce_ib_srq *srq = to_vsrq(ibsrq);
	struct vroce_number in = { .number = cpu_to_le32(srq->hw.srqn) };
	struct vroce_query_srq_out out;
	int err;

	err = vroce_cmd(srq->hw.dev, VROCE_CMD_QUERY_SRQ, &in, sizeof(in), &out,
			sizeof(out));
	if (err)
		return err;
	attr->max_wr = srq->max_wr;
	attr->max_sge = srq->max_sge;
	attr->srq_limit = le32_to_cpu(out.limit);
	return 0;
}

int vroce_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata)
{
	struct vroce_ib_srq *srq = to_vsrq(ibsrq);
	int err;

	err = vroce_srq_destroy(srq->hw.dev, srq);
	if (err)
		return err;
	vroce_srq_free_ring(&srq->hw);
	ib_umem_release(srq->umem);
	return 0;
}
