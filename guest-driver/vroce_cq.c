// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Completion queues of verbs. */
#include <rdma/ib_umem.h>

#include "vroce-abi.h"
#include "vroce_ib.h"

static void vroce_ib_cq_comp(struct vroce_cq *hw)
{
	struct vroce_ib_cq *cq = container_of(hw, struct vroce_ib_cq, hw);

	if (cq->ibcq.comp_handler)
		cq->ibcq.comp_handler(&cq->ibcq, cq->ibcq.cq_context);
}

static void vroce_ib_cq_event(struct vroce_cq *hw, const struct vroce_eqe *eqe)
{
	struct vroce_ib_cq *cq = container_of(hw, struct vroce_ib_cq, hw);
	struct ib_event event = {
		.device = cq->ibcq.device,
		.event = IB_EVENT_CQ_ERR,
		.element.cq = &cq->ibcq,
	};

	ibdev_warn_ratelimited(cq->ibcq.device, "CQ %u failed, broke rule %u\n",
			       hw->cqn, le16_to_cpu(eqe->rule));
	if (cq->ibcq.event_handler)
		cq->ibcq.event_handler(&event, cq->ibcq.cq_context);
}

static int vroce_get_cq_req(struct vroce_create_cq_req *req,
			    struct ib_udata *udata)
{
	int err = vroce_get_request(udata, req, sizeof(*req));

	if (err)
		return err;
	if (memchr_inv(req->reserved, 0, sizeof(req->reserved)) ||
	    req->log_size > 30)
		return -EINVAL;
	return 0;
}

static int vroce_create_user_cq(struct vroce_dev *dev, struct vroce_ib_cq *cq,
				unsigned int comp_vector,
				struct ib_udata *udata)
{
	struct vroce_create_cq_resp resp = { };
	struct vroce_create_cq_in in = { };
	struct vroce_create_cq_req req;
	struct vroce_page_list list;
	int err;

	err = vroce_get_cq_req(&req, udata);
	if (err)
		return err;
	cq->umem = ib_umem_get(cq->ibcq.device, req.buf_addr, req.buf_len,
			       IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(cq->umem))
		return PTR_ERR(cq->umem);
	err = vroce_page_list_from_umem(dev, &list, cq->umem, req.buf_addr,
					true);
	if (err)
		goto err_umem;
	in.buf = list.buf;
	in.rec_off = cpu_to_le32(req.rec_off);
	in.context = cpu_to_le32(vroce_udata_page(udata));
	in.log_size = req.log_size;
	err = vroce_cq_create(dev, &cq->hw, comp_vector, &in);
	vroce_page_list_free(&list);
	if (err)
		goto err_umem;

	cq->ibcq.cqe = 1 << req.log_size;
	resp.cqn = cq->hw.cqn;
	err = ib_copy_to_udata(udata, &resp, min(sizeof(resp), udata->outlen));
	if (err)
		goto err_cq;
	return 0;

err_cq:
	vroce_cq_destroy_sure(&cq->hw);
err_umem:
	ib_umem_release(cq->umem);
	return err;
}

/*
 * The device moves the completions that were not read to the new ring. Ring
 * and record are the user's, so a kernel's CQ has nobody to ask for this.
 */
int vroce_resize_cq(struct ib_cq *ibcq, int cqe, struct ib_udata *udata)
{
	struct vroce_ib_cq *cq = to_vcq(ibcq);
	struct vroce_dev *dev = cq->hw.dev;
	struct vroce_resize_cq_in in = { };
	struct vroce_create_cq_req req;
	struct vroce_page_list list;
	struct ib_umem *umem;
	int err;

	if (!cq->umem)
		return -EOPNOTSUPP;
	err = vroce_get_cq_req(&req, udata);
	if (err)
		return err;
	umem = ib_umem_get(ibcq->device, req.buf_addr, req.buf_len,
			   IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(umem))
		return PTR_ERR(umem);
	err = vroce_page_list_from_umem(dev, &list, umem, req.buf_addr, true);
	if (err)
		goto err_umem;
	in.buf = list.buf;
	in.cqn = cpu_to_le32(cq->hw.cqn);
	in.rec_off = cpu_to_le32(req.rec_off);
	in.log_size = req.log_size;
	mutex_lock(&cq->resize_lock);
	err = vroce_cmd(dev, VROCE_CMD_RESIZE_CQ, &in, sizeof(in), NULL, 0);
	if (!err) {
		/* The old ring is what is released below. */
		swap(cq->umem, umem);
		ibcq->cqe = 1 << req.log_size;
	}
	mutex_unlock(&cq->resize_lock);
	vroce_page_list_free(&list);
err_umem:
	ib_umem_release(umem);
	return err;
}

int vroce_modify_cq(struct ib_cq *ibcq, u16 count, u16 period)
{
	struct vroce_ib_cq *cq = to_vcq(ibcq);
	struct vroce_modify_cq_in in = {
		.cqn = cpu_to_le32(cq->hw.cqn),
		.count = cpu_to_le16(count),
		.period_us = cpu_to_le16(period),
	};

	return vroce_cmd(cq->hw.dev, VROCE_CMD_MODIFY_CQ, &in, sizeof(in), NULL,
			 0);
}

static int vroce_create_kernel_cq(struct vroce_dev *dev, struct vroce_ib_cq *cq,
				  const struct ib_cq_init_attr *attr)
{
	struct vroce_create_cq_in in = { };
	int err;

	err = vroce_cq_alloc_ring(dev, &cq->hw, attr->cqe, &in);
	if (err)
		return err;
	err = vroce_cq_create(dev, &cq->hw, attr->comp_vector, &in);
	if (err) {
		vroce_cq_free_ring(&cq->hw);
		return err;
	}
	cq->ibcq.cqe = 1 << cq->hw.log_size;
	return 0;
}

int vroce_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		    struct uverbs_attr_bundle *attrs)
{
	struct vroce_dev *dev = to_vdev(ibcq->device);
	struct vroce_ib_cq *cq = to_vcq(ibcq);

	if (attr->flags & ~IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION)
		return -EOPNOTSUPP;
	if (!attr->cqe || attr->cqe > vroce_max_cqe(dev))
		return -EINVAL;

	spin_lock_init(&cq->lock);
	mutex_init(&cq->resize_lock);
	cq->hw.comp = vroce_ib_cq_comp;
	cq->hw.event = vroce_ib_cq_event;
	if (rdma_is_kernel_res(&ibcq->res))
		return vroce_create_kernel_cq(dev, cq, attr);
	return vroce_create_user_cq(dev, cq, attr->comp_vector,
				    &attrs->driver_udata);
}

int vroce_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct vroce_ib_cq *cq = to_vcq(ibcq);
	int err;

	err = vroce_cq_destroy(&cq->hw);
	if (err)
		return err;
	vroce_cq_free_ring(&cq->hw);
	ib_umem_release(cq->umem);
	return 0;
}

static enum ib_wc_opcode vroce_wc_opcode(u8 opcode)
{
	switch (opcode) {
	case VROCE_WC_WRITE:
		return IB_WC_RDMA_WRITE;
	case VROCE_WC_READ:
		return IB_WC_RDMA_READ;
	case VROCE_WC_CMP_SWAP:
		return IB_WC_COMP_SWAP;
	case VROCE_WC_FETCH_ADD:
		return IB_WC_FETCH_ADD;
	case VROCE_WC_FAST_REG:
		return IB_WC_REG_MR;
	case VROCE_WC_LOCAL_INV:
		return IB_WC_LOCAL_INV;
	case VROCE_WC_RECV:
		return IB_WC_RECV;
	case VROCE_WC_RECV_WRITE_IMM:
		return IB_WC_RECV_RDMA_WITH_IMM;
	default:
		return IB_WC_SEND;
	}
}

static void vroce_fill_recv_wc(struct ib_wc *wc, const struct vroce_cqe *cqe)
{
	u16 flags = le16_to_cpu(cqe->flags);

	if (flags & VROCE_CQE_IMM) {
		wc->wc_flags |= IB_WC_WITH_IMM;
		wc->ex.imm_data = cqe->imm;
	} else if (flags & VROCE_CQE_INV) {
		wc->wc_flags |= IB_WC_WITH_INVALIDATE;
		wc->ex.invalidate_rkey = le32_to_cpu(cqe->inv_key);
	}
	if (flags & VROCE_CQE_GRH) {
		wc->wc_flags |= IB_WC_GRH | IB_WC_WITH_SMAC |
			IB_WC_WITH_NETWORK_HDR_TYPE;
		memcpy(wc->smac, cqe->smac, sizeof(wc->smac));
		wc->network_hdr_type = cqe->network == 4 ? RDMA_NETWORK_IPV4 :
			RDMA_NETWORK_IPV6;
	}
	if (flags & VROCE_CQE_VLAN) {
		wc->wc_flags |= IB_WC_WITH_VLAN;
		wc->vlan_id = le16_to_cpu(cqe->vlan) & 0xfff;
		wc->sl = le16_to_cpu(cqe->vlan) >> 13;
	}
}

static void vroce_fill_wc(struct ib_wc *wc, const struct vroce_cqe *cqe,
			  struct vroce_ib_qp *qp)
{
	memset(wc, 0, sizeof(*wc));
	wc->wr_id = le64_to_cpu(cqe->wr_id);
	wc->status = cqe->status;
	wc->opcode = vroce_wc_opcode(cqe->opcode);
	wc->vendor_err = le16_to_cpu(cqe->rule);
	wc->byte_len = le32_to_cpu(cqe->byte_len);
	wc->qp = &qp->ibqp;
	wc->src_qp = le32_to_cpu(cqe->src_qpn);
	wc->port_num = 1;
	if (cqe->opcode >= VROCE_WC_RECV)
		vroce_fill_recv_wc(wc, cqe);
}

/* Gives back the room in the queue of which this is a completion. */
static void vroce_release_wqe(struct vroce_ib_qp *qp,
			      const struct vroce_cqe *cqe)
{
	struct vroce_ib_srq *srq;

	if (cqe->opcode < VROCE_WC_RECV) {
		WRITE_ONCE(qp->hw.sq.ci, le32_to_cpu(cqe->wqe_end));
	} else if (qp->ibqp.srq) {
		srq = to_vsrq(qp->ibqp.srq);
		spin_lock(&srq->lock);
		srq->hw.rq.ci++;
		spin_unlock(&srq->lock);
	} else {
		WRITE_ONCE(qp->hw.rq.ci, qp->hw.rq.ci + 1);
	}
}

/**
 * vroce_cq_purge - forget the completions of a queue pair
 * @cq: completion queue of the kernel
 * @qp: queue pair that the device has destroyed
 *
 * They stay in the ring for no queue pair, and polling skips them.
 */
void vroce_cq_purge(struct vroce_ib_cq *cq, struct vroce_ib_qp *qp)
{
	struct vroce_cqe *cqe;
	unsigned long flags;
	u32 ci;

	if (!cq->hw.ring)
		return;
	spin_lock_irqsave(&cq->lock, flags);
	ci = cq->hw.ci;
	while ((cqe = vroce_cq_next(&cq->hw))) {
		if (le32_to_cpu(cqe->qpn) == qp->hw.qpn) {
			vroce_release_wqe(qp, cqe);
			cqe->qpn = cpu_to_le32(VROCE_NONE);
		}
		cq->hw.ci++;
	}
	cq->hw.ci = ci;
	spin_unlock_irqrestore(&cq->lock, flags);
}

static struct vroce_ib_qp *vroce_find_qp(struct vroce_dev *dev,
					 const struct vroce_cqe *cqe)
{
	struct vroce_qp *hw = xa_load(&dev->qps, le32_to_cpu(cqe->qpn));

	return hw ? container_of(hw, struct vroce_ib_qp, hw) : NULL;
}

int vroce_poll_cq(struct ib_cq *ibcq, int num_entries, struct ib_wc *wc)
{
	struct vroce_ib_cq *cq = to_vcq(ibcq);
	struct vroce_dev *dev = cq->hw.dev;
	struct vroce_cqe *cqe;
	unsigned long flags;
	u32 first;
	int n = 0;

	spin_lock_irqsave(&cq->lock, flags);
	first = cq->hw.ci;
	while (n < num_entries && (cqe = vroce_cq_next(&cq->hw))) {
		struct vroce_ib_qp *qp = vroce_find_qp(dev, cqe);

		cq->hw.ci++;
		/* Its queue pair is gone: see vroce_cq_purge(). */
		if (!qp)
			continue;
		vroce_release_wqe(qp, cqe);
		vroce_fill_wc(&wc[n], cqe, qp);
		if (wc[n].status != IB_WC_SUCCESS)
			vroce_qp_enter_error(qp);
		n++;
	}
	if (cq->hw.ci != first)
		vroce_cq_publish(&cq->hw);
	spin_unlock_irqrestore(&cq->lock, flags);
	return n;
}

/*
 * The device raises the event at once if a completion lies there already, so
 * none is ever missed and there is nothing to report.
 */
int vroce_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	struct vroce_ib_cq *cq = to_vcq(ibcq);
	unsigned long irq_flags;

	spin_lock_irqsave(&cq->lock, irq_flags);
	vroce_cq_arm(&cq->hw, (flags & IB_CQ_SOLICITED_MASK) == IB_CQ_SOLICITED ?
		     VROCE_DB_CQ_ARM_SOLICITED : VROCE_DB_CQ_ARM);
	spin_unlock_irqrestore(&cq->lock, irq_flags);
	return 0;
}
