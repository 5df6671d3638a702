// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Queue pairs of verbs: their life and their state. */
#include <rdma/ib_umem.h>

#include "vroce-abi.h"
#include "vroce_ib.h"

/* Attributes go to the device as they come. */
static_assert(VROCE_QP_STATE == IB_QP_STATE);
static_assert(VROCE_QP_ACCESS_FLAGS == IB_QP_ACCESS_FLAGS);
static_assert(VROCE_QP_QKEY == IB_QP_QKEY);
static_assert(VROCE_QP_AV == IB_QP_AV);
static_assert(VROCE_QP_TIMEOUT == IB_QP_TIMEOUT);
static_assert(VROCE_QP_MIN_RNR_TIMER == IB_QP_MIN_RNR_TIMER);
static_assert(VROCE_QP_DEST_QPN == IB_QP_DEST_QPN);
static_assert(VROCE_QPS_RTS == (int)IB_QPS_RTS);
static_assert(VROCE_QPS_ERR == (int)IB_QPS_ERR);

static int vroce_qp_type(struct vroce_dev *dev, enum ib_qp_type type)
{
	switch (type) {
	case IB_QPT_RC:
		return VROCE_QPT_RC;
	case IB_QPT_UC:
		return vroce_has(dev, VROCE_FEATURE_UC) ? VROCE_QPT_UC :
			-EOPNOTSUPP;
	case IB_QPT_UD:
		return VROCE_QPT_UD;
	case IB_QPT_GSI:
		return VROCE_QPT_GSI;
	default:
		return -EOPNOTSUPP;
	}
}

static void vroce_ib_qp_event(struct vroce_qp *hw, const struct vroce_eqe *eqe)
{
	struct vroce_ib_qp *qp = container_of(hw, struct vroce_ib_qp, hw);
	struct ib_event event = {
		.device = qp->ibqp.device,
		.element.qp = &qp->ibqp,
	};

	switch (le16_to_cpu(eqe->type)) {
	case VROCE_EVENT_QP_FATAL:
		event.event = IB_EVENT_QP_FATAL;
		break;
	case VROCE_EVENT_QP_REQ_ERR:
		event.event = IB_EVENT_QP_REQ_ERR;
		break;
	case VROCE_EVENT_QP_ACCESS_ERR:
		event.event = IB_EVENT_QP_ACCESS_ERR;
		break;
	case VROCE_EVENT_COMM_EST:
		event.event = IB_EVENT_COMM_EST;
		break;
	case VROCE_EVENT_SQ_DRAINED:
		event.event = IB_EVENT_SQ_DRAINED;
		break;
	default:
		event.event = IB_EVENT_QP_LAST_WQE_REACHED;
		break;
	}
	if (eqe->rule)
		ibdev_dbg(qp->ibqp.device, "QP %u: %s, broke rule %u\n",
			  hw->qpn, ib_event_msg(event.event),
			  le16_to_cpu(eqe->rule));
	if (hw->mem && event.event <= IB_EVENT_QP_ACCESS_ERR)
		vroce_qp_enter_error(qp);
	if (qp->ibqp.event_handler)
		qp->ibqp.event_handler(&event, qp->ibqp.qp_context);
}

/* IBA 11.2.4.1: what query_device tells is the limit, whoever asks. */
static bool vroce_qp_cap_ok(struct vroce_dev *dev, const struct ib_qp_cap *cap,
			    bool has_srq)
{
	u32 max_sge = le32_to_cpu(dev->caps.max_sge);
	u32 max_wr = vroce_max_qp_wr(dev);

	return cap->max_send_wr <= max_wr && cap->max_send_sge <= max_sge &&
		cap->max_inline_data <= le32_to_cpu(dev->caps.max_inline) &&
		(has_srq ||
		 (cap->max_recv_wr <= max_wr && cap->max_recv_sge <= max_sge));
}

/* The part of the command that does not depend on the owner. */
static void vroce_fill_create_qp(struct vroce_create_qp_in *in,
				 const struct ib_qp *ibqp, int type)
{
	in->pdn = cpu_to_le32(to_vpd(ibqp->pd)->pdn);
	in->send_cqn = cpu_to_le32(to_vcq(ibqp->send_cq)->hw.cqn);
	in->recv_cqn = cpu_to_le32(to_vcq(ibqp->recv_cq)->hw.cqn);
	in->srqn = cpu_to_le32(ibqp->srq ? to_vsrq(ibqp->srq)->hw.srqn :
			       VROCE_NONE);
	in->type = type;
}

static int vroce_qp_create(struct vroce_dev *dev, struct vroce_ib_qp *qp,
			   struct vroce_create_qp_in *in)
{
	int err;

	mutex_lock(&dev->qp_lock);
	err = vroce_cmd_create(dev, VROCE_CMD_CREATE_QP, in, sizeof(*in),
			       &qp->hw.qpn);
	if (err)
		goto out;
	err = xa_err(xa_store(&dev->qps, qp->hw.qpn, &qp->hw, GFP_KERNEL));
	if (err && vroce_cmd_destroy(dev, VROCE_CMD_DESTROY_QP, qp->hw.qpn))
		vroce_fail(dev, "queue pair cannot be destroyed");
out:
	mutex_unlock(&dev->qp_lock);
	qp->ibqp.qp_num = qp->hw.qpn;
	return err;
}

/*
 * The number, the way from it to the QP and the completions that bear it must
 * go before a new QP can get it: hence the mutex.
 */
static int vroce_qp_destroy(struct vroce_dev *dev, struct vroce_ib_qp *qp)
{
	int err;

	mutex_lock(&dev->qp_lock);
	err = vroce_cmd_destroy(dev, VROCE_CMD_DESTROY_QP, qp->hw.qpn);
	if (!err) {
		if (qp->ibqp.send_cq)
			vroce_cq_purge(to_vcq(qp->ibqp.send_cq), qp);
		if (qp->ibqp.recv_cq && qp->ibqp.recv_cq != qp->ibqp.send_cq)
			vroce_cq_purge(to_vcq(qp->ibqp.recv_cq), qp);
		xa_erase(&dev->qps, qp->hw.qpn);
	}
	mutex_unlock(&dev->qp_lock);
	if (!err)
		vroce_async_sync(dev);
	return err;
}

static int vroce_create_user_qp(struct vroce_dev *dev, struct vroce_ib_qp *qp,
				struct vroce_create_qp_in *in,
				struct ib_udata *udata)
{
	struct vroce_create_qp_resp resp = { };
	struct vroce_create_qp_req req;
	struct vroce_page_list list;
	int err;

	err = vroce_get_request(udata, &req, sizeof(req));
	if (err)
		return err;
	if (req.reserved)
		return -EINVAL;

	qp->umem = ib_umem_get(qp->ibqp.device, req.buf_addr, req.buf_len,
			       IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(qp->umem))
		return PTR_ERR(qp->umem);
	err = vroce_page_list_from_umem(dev, &list, qp->umem, req.buf_addr,
					true);
	if (err)
		goto err_umem;
	in->buf = list.buf;
	in->sq_off = cpu_to_le32(req.sq_off);
	in->rq_off = cpu_to_le32(req.rq_off);
	in->rec_off = cpu_to_le32(req.rec_off);
	in->context = cpu_to_le32(vroce_udata_page(udata));
	in->sq_log_units = req.sq_log_units;
	in->rq_log_entries = req.rq_log_entries;
	in->rq_log_stride = req.rq_log_stride;
	err = vroce_qp_create(dev, qp, in);
	vroce_page_list_free(&list);
	if (err)
		goto err_umem;

	resp.qpn = qp->hw.qpn;
	err = ib_copy_to_udata(udata, &resp, min(sizeof(resp), udata->outlen));
	if (err)
		goto err_qp;
	return 0;

err_qp:
	if (vroce_qp_destroy(dev, qp)) {
		vroce_fail(dev, "queue pair cannot be destroyed");
		vroce_qp_destroy(dev, qp);
	}
err_umem:
	ib_umem_release(qp->umem);
	return err;
}

static int vroce_create_kernel_qp(struct vroce_dev *dev, struct vroce_ib_qp *qp,
				  struct vroce_create_qp_in *in)
{
	struct ib_qp_cap *cap = &qp->cap;
	u32 units = vroce_wr_units(qp->ibqp.qp_type, cap->max_send_sge,
				   cap->max_inline_data);
	u32 stride = sizeof(struct vroce_rwqe) +
		max(cap->max_recv_sge, 1u) * sizeof(struct vroce_sge);
	int err;

	if (units > VROCE_MAX_WQE_UNITS)
		return -EINVAL;
	in->sq_log_units = VROCE_NO_QUEUE;
	in->rq_log_entries = VROCE_NO_QUEUE;
	in->rq_log_stride = order_base_2(stride);
	if (cap->max_send_wr)
		in->sq_log_units = order_base_2(units * cap->max_send_wr);
	if (cap->max_recv_wr && !qp->ibqp.srq)
		in->rq_log_entries = order_base_2(cap->max_recv_wr);

	err = vroce_qp_alloc_rings(dev, &qp->hw, in);
	if (err)
		return err;
	err = vroce_qp_create(dev, qp, in);
	if (err)
		vroce_qp_free_rings(&qp->hw);
	return err;
}

int vroce_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr,
		    struct ib_udata *udata)
{
	struct vroce_dev *dev = to_vdev(ibqp->device);
	struct vroce_ib_qp *qp = to_vqp(ibqp);
	struct vroce_create_qp_in in = { };
	int type;

	type = vroce_qp_type(dev, attr->qp_type);
	if (type < 0)
		return type;
	if (attr->create_flags)
		return -EOPNOTSUPP;
	if (!attr->send_cq || !attr->recv_cq ||
	    !vroce_qp_cap_ok(dev, &attr->cap, attr->srq))
		return -EINVAL;

	spin_lock_init(&qp->sq_lock);
	spin_lock_init(&qp->rq_lock);
	qp->hw.dev = dev;
	qp->hw.event = vroce_ib_qp_event;
	qp->signal_all = attr->sq_sig_type == IB_SIGNAL_ALL_WR;
	qp->cap = attr->cap;
	if (attr->srq) {
		qp->cap.max_recv_wr = 0;
		qp->cap.max_recv_sge = 0;
	}
	vroce_fill_create_qp(&in, ibqp, type);
	if (udata)
		return vroce_create_user_qp(dev, qp, &in, udata);
	return vroce_create_kernel_qp(dev, qp, &in);
}

int vroce_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct vroce_ib_qp *qp = to_vqp(ibqp);
	int err;

	err = vroce_qp_destroy(qp->hw.dev, qp);
	if (err)
		return err;
	vroce_qp_free_rings(&qp->hw);
	ib_umem_release(qp->umem);
	return 0;
}

static void vroce_put_qp_attr(struct vroce_qp_attr *to,
			      const struct ib_qp_attr *from, int mask)
{
	if (mask & IB_QP_STATE)
		to->state = from->qp_state;
	if (mask & IB_QP_CUR_STATE)
		to->cur_state = from->cur_qp_state;
	if (mask & IB_QP_EN_SQD_ASYNC_NOTIFY)
		to->sqd_async_notify = from->en_sqd_async_notify;
	if (mask & IB_QP_ACCESS_FLAGS)
		to->access_flags = cpu_to_le32(from->qp_access_flags &
					       VROCE_ACCESS_SUPPORTED);
	if (mask & IB_QP_PKEY_INDEX)
		to->pkey_index = cpu_to_le16(from->pkey_index);
	if (mask & IB_QP_PORT)
		to->port = from->port_num;
	if (mask & IB_QP_QKEY)
		to->qkey = cpu_to_le32(from->qkey);
	if (mask & IB_QP_AV)
		vroce_fill_av(&to->av, &from->ah_attr);
	if (mask & IB_QP_PATH_MTU)
		to->path_mtu = from->path_mtu;
	if (mask & IB_QP_TIMEOUT)
		to->timeout = from->timeout;
	if (mask & IB_QP_RETRY_CNT)
		to->retry_cnt = from->retry_cnt;
	if (mask & IB_QP_RNR_RETRY)
		to->rnr_retry = from->rnr_retry;
	if (mask & IB_QP_RQ_PSN)
		to->rq_psn = cpu_to_le32(from->rq_psn & 0xffffff);
	if (mask & IB_QP_MAX_QP_RD_ATOMIC)
		to->max_rd_atomic = from->max_rd_atomic;
	if (mask & IB_QP_MIN_RNR_TIMER)
		to->min_rnr_timer = from->min_rnr_timer;
	if (mask & IB_QP_SQ_PSN)
		to->sq_psn = cpu_to_le32(from->sq_psn & 0xffffff);
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC)
		to->max_dest_rd_atomic = from->max_dest_rd_atomic;
	if (mask & IB_QP_DEST_QPN)
		to->dest_qpn = cpu_to_le32(from->dest_qp_num);
}

/* What a kernel's queues remember of their past ends with RESET. */
static void vroce_reset_rings(struct vroce_ib_qp *qp)
{
	vroce_cq_purge(to_vcq(qp->ibqp.send_cq), qp);
	if (qp->ibqp.recv_cq != qp->ibqp.send_cq)
		vroce_cq_purge(to_vcq(qp->ibqp.recv_cq), qp);

	spin_lock_irq(&qp->sq_lock);
	qp->hw.sq.pi = 0;
	qp->hw.sq.ci = 0;
	spin_unlock_irq(&qp->sq_lock);
	spin_lock_irq(&qp->rq_lock);
	qp->hw.rq.pi = 0;
	qp->hw.rq.ci = 0;
	vroce_rq_publish(&qp->hw.rq);
	qp->in_error = false;
	spin_unlock_irq(&qp->rq_lock);
}

int vroce_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		    struct ib_udata *udata)
{
	struct vroce_ib_qp *qp = to_vqp(ibqp);
	struct vroce_modify_qp_in in = {
		.qpn = cpu_to_le32(qp->hw.qpn),
		.attr_mask = cpu_to_le32(mask),
	};
	int err;

	/* No alternate path, no other port to migrate to, no rate limit. */
	if (mask & ~IB_QP_ATTR_STANDARD_BITS ||
	    mask & (IB_QP_ALT_PATH | IB_QP_PATH_MIG_STATE | IB_QP_CAP))
		return -EOPNOTSUPP;
	if (mask & IB_QP_AV &&
	    !(rdma_ah_get_ah_flags(&attr->ah_attr) & IB_AH_GRH))
		return -EINVAL;

	vroce_put_qp_attr(&in.attr, attr, mask);
	err = vroce_cmd(qp->hw.dev, VROCE_CMD_MODIFY_QP, &in, sizeof(in), NULL,
			0);
	if (err || !(mask & IB_QP_STATE) || !qp->hw.mem)
		return err;
	if (attr->qp_state == IB_QPS_RESET)
		vroce_reset_rings(qp);
	else if (attr->qp_state == IB_QPS_ERR)
		vroce_qp_enter_error(qp);
	return 0;
}

int vroce_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		   struct ib_qp_init_attr *init)
{
	struct vroce_ib_qp *qp = to_vqp(ibqp);
	struct vroce_number in = { .number = cpu_to_le32(qp->hw.qpn) };
	struct vroce_qp_attr out;
	int err;

	err = vroce_cmd(qp->hw.dev, VROCE_CMD_QUERY_QP, &in, sizeof(in), &out,
			sizeof(out));
	if (err)
		return err;

	memset(attr, 0, sizeof(*attr));
	attr->qp_state = out.state;
	attr->cur_qp_state = out.state;
	attr->path_mtu = out.path_mtu;
	attr->path_mig_state = IB_MIG_MIGRATED;
	attr->qkey = le32_to_cpu(out.qkey);
	attr->rq_psn = le32_to_cpu(out.rq_psn);
	attr->sq_psn = le32_to_cpu(out.sq_psn);
	attr->dest_qp_num = le32_to_cpu(out.dest_qpn);
	attr->qp_access_flags = le32_to_cpu(out.access_flags);
	attr->cap = qp->cap;
	vroce_read_av(&out.av, &attr->ah_attr);
	attr->pkey_index = le16_to_cpu(out.pkey_index);
	attr->en_sqd_async_notify = out.sqd_async_notify;
	attr->sq_draining = out.sq_draining;
	attr->max_rd_atomic = out.max_rd_atomic;
	attr->max_dest_rd_atomic = out.max_dest_rd_atomic;
	attr->min_rnr_timer = out.min_rnr_timer;
	attr->port_num = out.port;
	attr->timeout = out.timeout;
	attr->retry_cnt = out.retry_cnt;
	attr->rnr_retry = out.rnr_retry;

	init->event_handler = ibqp->event_handler;
	init->qp_context = ibqp->qp_context;
	init->send_cq = ibqp->send_cq;
	init->recv_cq = ibqp->recv_cq;
	init->srq = ibqp->srq;
	init->cap = qp->cap;
	init->sq_sig_type = qp->signal_all ? IB_SIGNAL_ALL_WR :
		IB_SIGNAL_REQ_WR;
	init->qp_type = ibqp->qp_type;
	return 0;
}

static int vroce_mcast(struct ib_qp *ibqp, enum vroce_opcode opcode,
		       const union ib_gid *gid)
{
	struct vroce_ib_qp *qp = to_vqp(ibqp);
	struct vroce_mcast_in in = { .qpn = cpu_to_le32(qp->hw.qpn) };

	memcpy(in.gid, gid->raw, sizeof(in.gid));
	return vroce_cmd(qp->hw.dev, opcode, &in, sizeof(in), NULL, 0);
}

int vroce_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	return vroce_mcast(ibqp, VROCE_CMD_ATTACH_MCAST, gid);
}

int vroce_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	int err = vroce_mcast(ibqp, VROCE_CMD_DETACH_MCAST, gid);

	/* A device that has failed has no groups. */
	return vroce_failed(to_vdev(ibqp->device)) ? 0 : err;
}
