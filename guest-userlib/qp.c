// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Queue pairs: creation, state, destruction. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <util/util.h>

#include "vroce.h"

/* The caller holds qp_table_mutex. Returns 0 or ENOMEM. */
static int vroce_store_qp(struct vroce_context *ctx, struct vroce_qp *qp)
{
	uint32_t qpn = qp->vqp.qp.qp_num;
	struct vroce_qp ***table =
		&ctx->qp_table[(qpn >> VROCE_QP_TABLE_SHIFT) &
			       VROCE_QP_TABLE_MASK];

	if (!*table) {
		*table = calloc(VROCE_QP_TABLE_SIZE, sizeof(**table));
		if (!*table)
			return ENOMEM;
	}

	(*table)[qpn & VROCE_QP_TABLE_MASK] = qp;
	return 0;
}

static void vroce_clear_qp(struct vroce_context *ctx, uint32_t qpn)
{
	ctx->qp_table[(qpn >> VROCE_QP_TABLE_SHIFT) & VROCE_QP_TABLE_MASK]
		     [qpn & VROCE_QP_TABLE_MASK] = NULL;
}

static int vroce_check_qp_attr(const struct ibv_qp_init_attr_ex *attr)
{
	if (!check_comp_mask(attr->comp_mask,
			     IBV_QP_INIT_ATTR_PD |
				     IBV_QP_INIT_ATTR_CREATE_FLAGS |
				     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
		return EOPNOTSUPP;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS &&
	    attr->create_flags)
		return EOPNOTSUPP;

	switch (attr->qp_type) {
	case IBV_QPT_RC:
	case IBV_QPT_UC:
	case IBV_QPT_UD:
		break;
	default:
		return EOPNOTSUPP;
	}

	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->send_cq ||
	    !attr->recv_cq)
		return EINVAL;

	return 0;
}

/*
 * One buffer: send ring, receive ring, record of the receive ring. Fills the
 * request, and the QP's capabilities with what the rings hold.
 */
static int vroce_alloc_queues(struct vroce_context *ctx, struct vroce_qp *qp,
			      const struct ibv_qp_init_attr_ex *attr,
			      struct vroce_create_qp_req *req)
{
	size_t sq_bytes = 0, rq_bytes = 0;
	int err;

	req->sq_log_units = VROCE_NO_QUEUE;
	req->rq_log_entries = VROCE_NO_QUEUE;
	qp->cap = attr->cap;

	if (attr->cap.max_send_wr) {
		err = vroce_sq_layout(ctx, &qp->sq, attr->qp_type, &attr->cap);
		if (err)
			return err;
		sq_bytes = vroce_sq_bytes(&qp->sq);
		req->sq_log_units = ilog32(qp->sq.mask);
		qp->cap.max_send_wr = (qp->sq.mask + 1) / qp->sq.wqe_units;
		qp->cap.max_send_sge = qp->sq.max_sge;
		qp->cap.max_inline_data = qp->sq.max_inline;
	}

	/* With an SRQ the receive capabilities are ignored. */
	if (attr->srq) {
		qp->cap.max_recv_wr = 0;
		qp->cap.max_recv_sge = 0;
	} else if (attr->cap.max_recv_wr) {
		err = vroce_rq_layout(ctx, &qp->rq, attr->cap.max_recv_wr,
				      attr->cap.max_recv_sge);
		if (err)
			return err;
		rq_bytes = align(vroce_rq_bytes(&qp->rq), VROCE_SQ_UNIT);
		req->rq_log_entries = ilog32(qp->rq.mask);
		req->rq_log_stride = qp->rq.log_stride;
		qp->cap.max_recv_wr = qp->rq.mask + 1;
		qp->cap.max_recv_sge = qp->rq.max_sge;
	}

	req->rq_off = sq_bytes;
	req->rec_off = sq_bytes + rq_bytes;
	err = vroce_mem_alloc(&qp->mem,
			      req->rec_off + sizeof(struct vroce_db_record));
	if (err)
		return err;

	req->buf_addr = (uintptr_t)qp->mem.addr;
	req->buf_len = qp->mem.length;
	if (sq_bytes)
		qp->sq.ring = qp->mem.addr;
	if (rq_bytes)
		qp->rq.ring = qp->mem.addr + req->rq_off;
	qp->rq.record = qp->mem.addr + req->rec_off;
	pthread_spin_init(&qp->sq.lock, PTHREAD_PROCESS_PRIVATE);
	pthread_spin_init(&qp->rq.lock, PTHREAD_PROCESS_PRIVATE);
	return 0;
}

static void vroce_free_queues(struct vroce_qp *qp)
{
	pthread_spin_destroy(&qp->sq.lock);
	pthread_spin_destroy(&qp->rq.lock);
	vroce_mem_free(&qp->mem);
}

struct ibv_qp *vroce_create_qp_ex(struct ibv_context *ibctx,
				  struct ibv_qp_init_attr_ex *attr)
{
	struct vroce_context *ctx = to_vctx(ibctx);
	struct vroce_ucreate_qp_resp resp = {};
	struct vroce_ucreate_qp cmd = {};
	struct ibv_qp_init_attr_ex kattr;
	struct vroce_qp *qp;
	int err;

	err = vroce_check_qp_attr(attr);
	if (err) {
		errno = err;
		return NULL;
	}

	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;

	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		err = vroce_set_send_ops(qp, attr->qp_type,
					 attr->send_ops_flags);
		if (err)
			goto err_free;
	}

	err = vroce_alloc_queues(ctx, qp, attr, &cmd.drv_payload);
	if (err)
		goto err_free;
	/* The kernel judges what was asked for, not what it was rounded to. */
	kattr = *attr;
	kattr.comp_mask = IBV_QP_INIT_ATTR_PD;
	qp->sq_sig_all = attr->sq_sig_all;

	pthread_mutex_lock(&ctx->qp_table_mutex);
	err = ibv_cmd_create_qp_ex(ibctx, &qp->vqp, &kattr, &cmd.ibv_cmd,
				   sizeof(cmd), &resp.ibv_resp, sizeof(resp));
	if (err)
		goto err_queues;

	err = vroce_store_qp(ctx, qp);
	if (err)
		goto err_destroy;
	pthread_mutex_unlock(&ctx->qp_table_mutex);

	attr->cap = qp->cap;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		qp->vqp.comp_mask |= VERBS_QP_EX;

	return &qp->vqp.qp;

err_destroy:
	ibv_cmd_destroy_qp(&qp->vqp.qp);
err_queues:
	pthread_mutex_unlock(&ctx->qp_table_mutex);
	vroce_free_queues(qp);
err_free:
	free(qp);
	errno = err;
	return NULL;
}

struct ibv_qp *vroce_create_qp(struct ibv_pd *ibpd,
			       struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex attr_ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = ibpd,
	};
	struct ibv_qp *ibqp;

	ibqp = vroce_create_qp_ex(ibpd->context, &attr_ex);
	if (ibqp)
		attr->cap = attr_ex.cap;

	return ibqp;
}

int vroce_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int attr_mask,
		   struct ibv_qp_init_attr *init_attr)
{
	struct ibv_query_qp cmd = {};
	int err;

	err = ibv_cmd_query_qp(ibqp, attr, attr_mask, init_attr, &cmd,
			       sizeof(cmd));
	if (err)
		return err;

	attr->cap = to_vqp(ibqp)->cap;
	init_attr->cap = attr->cap;
	return 0;
}

int vroce_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr,
		    int attr_mask)
{
	struct vroce_qp *qp = to_vqp(ibqp);
	struct ibv_modify_qp cmd = {};
	int err;

	err = ibv_cmd_modify_qp(ibqp, attr, attr_mask, &cmd, sizeof(cmd));
	if (err)
		return err;

	if (!(attr_mask & IBV_QP_STATE))
		return 0;

	if (attr->qp_state == IBV_QPS_RESET) {
		vroce_lock_cqs(qp);
		vroce_forget_cqes(qp);
		vroce_unlock_cqs(qp);
		vroce_sq_reset(&qp->sq);
		vroce_rq_reset(&qp->rq);
		qp->error = false;
	} else if (attr->qp_state == IBV_QPS_ERR) {
		vroce_qp_error(qp);
	}

	return 0;
}

/* A QP may go to ERR without a completion: then the event is the only sign. */
void vroce_async_event(struct ibv_context *ibctx, struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		vroce_qp_error(to_vqp(event->element.qp));
		break;
	default:
		break;
	}
}

int vroce_destroy_qp(struct ibv_qp *ibqp)
{
	struct vroce_context *ctx = to_vctx(ibqp->context);
	struct vroce_qp *qp = to_vqp(ibqp);
	int err;

	pthread_mutex_lock(&ctx->qp_table_mutex);
	err = ibv_cmd_destroy_qp(ibqp);
	if (err) {
		pthread_mutex_unlock(&ctx->qp_table_mutex);
		return err;
	}

	vroce_lock_cqs(qp);
	vroce_forget_cqes(qp);
	vroce_clear_qp(ctx, ibqp->qp_num);
	vroce_unlock_cqs(qp);
	pthread_mutex_unlock(&ctx->qp_table_mutex);

	vroce_free_queues(qp);
	free(qp);
	return 0;
}
