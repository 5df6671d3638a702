// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Posting of work requests by the kernel. */
#include "vroce_ib.h"

/* What lies between the control segment and the scatter list. */
static u32 vroce_header_bytes(enum ib_qp_type type)
{
	return sizeof(struct vroce_wqe_ctrl) +
		(type == IB_QPT_RC || type == IB_QPT_UC ?
		 sizeof(struct vroce_wqe_rdma) : sizeof(struct vroce_wqe_ud));
}

/**
 * vroce_wr_units - room that the largest send of a queue takes
 * @type: of the queue pair
 * @max_sge: scatter-gather entries
 * @max_inline: bytes of inline data
 *
 * Return: units of the ring, possibly more than a WQE may have.
 */
u32 vroce_wr_units(enum ib_qp_type type, u32 max_sge, u32 max_inline)
{
	u32 payload = max_t(u32, max_sge * sizeof(struct vroce_sge), max_inline);
	u32 bytes = vroce_header_bytes(type) + payload;

	/* Registrations and atomics have larger headers and short payloads. */
	if (type == IB_QPT_RC)
		bytes = max_t(u32, bytes, sizeof(struct vroce_wqe_ctrl) +
			      max(sizeof(struct vroce_wqe_fast_reg),
				  sizeof(struct vroce_wqe_atomic) +
				  sizeof(struct vroce_sge)));
	return vroce_wqe_units(bytes);
}

static void vroce_put_sge(struct vroce_sge *to, const struct ib_sge *from,
			  int n)
{
	int i;

	for (i = 0; i < n; i++) {
		to[i].addr = cpu_to_le64(from[i].addr);
		to[i].length = cpu_to_le32(from[i].length);
		to[i].lkey = cpu_to_le32(from[i].lkey);
	}
}

/* Payload of a send at @to; its bytes in the WQE, or an errno. */
static int vroce_put_payload(struct vroce_ib_qp *qp, union vroce_wqe *wqe,
			     void *to, const struct ib_send_wr *wr)
{
	u32 len = 0;
	int i;

	if (wr->num_sge > qp->cap.max_send_sge)
		return -EINVAL;
	if (!(wr->send_flags & IB_SEND_INLINE)) {
		vroce_put_sge(to, wr->sg_list, wr->num_sge);
		wqe->ctrl.num_sge = wr->num_sge;
		return wr->num_sge * sizeof(struct vroce_sge);
	}
	for (i = 0; i < wr->num_sge; i++) {
		const struct ib_sge *sge = &wr->sg_list[i];

		if (sge->length > qp->cap.max_inline_data - len)
			return -EINVAL;
		memcpy(to + len, (void *)(uintptr_t)sge->addr, sge->length);
		len += sge->length;
	}
	wqe->ctrl.flags |= VROCE_WQE_INLINE;
	wqe->ctrl.inline_len = cpu_to_le16(len);
	return len;
}

/* The SENDs that every queue takes. */
static bool vroce_put_send(struct vroce_wqe_ctrl *ctrl,
			   const struct ib_send_wr *wr)
{
	switch (wr->opcode) {
	case IB_WR_SEND:
		ctrl->opcode = VROCE_WQE_SEND;
		return true;
	case IB_WR_SEND_WITH_IMM:
		ctrl->opcode = VROCE_WQE_SEND_IMM;
		ctrl->imm = wr->ex.imm_data;
		return true;
	default:
		return false;
	}
}

static void vroce_put_rdma(void *seg, const struct ib_send_wr *wr)
{
	struct vroce_wqe_rdma *rdma = seg;

	rdma->remote_addr = cpu_to_le64(rdma_wr(wr)->remote_addr);
	rdma->rkey = cpu_to_le32(rdma_wr(wr)->rkey);
}

static void vroce_put_ud(void *seg, const struct ib_send_wr *wr)
{
	struct vroce_wqe_ud *ud = seg;

	ud->av = to_vah(ud_wr(wr)->ah)->av;
	ud->dest_qpn = cpu_to_le32(ud_wr(wr)->remote_qpn);
	ud->qkey = cpu_to_le32(ud_wr(wr)->remote_qkey);
}

static void vroce_put_atomic(void *seg, const struct ib_send_wr *wr)
{
	const struct ib_atomic_wr *from = atomic_wr(wr);
	struct vroce_wqe_atomic *atomic = seg;

	atomic->remote_addr = cpu_to_le64(from->remote_addr);
	atomic->rkey = cpu_to_le32(from->rkey);
	if (wr->opcode == IB_WR_ATOMIC_CMP_AND_SWP) {
		atomic->swap_add = cpu_to_le64(from->swap);
		atomic->compare = cpu_to_le64(from->compare_add);
	} else {
		atomic->swap_add = cpu_to_le64(from->compare_add);
	}
}

static void vroce_put_fast_reg(void *seg, const struct ib_send_wr *wr)
{
	struct vroce_mr *mr = to_vmr(reg_wr(wr)->mr);
	struct vroce_wqe_fast_reg *reg = seg;

	reg->buf = mr->list.buf;
	reg->iova = cpu_to_le64(mr->ibmr.iova);
	reg->key = cpu_to_le32(reg_wr(wr)->key);
	reg->access = cpu_to_le32(reg_wr(wr)->access & VROCE_ACCESS_SUPPORTED);
}

static u8 vroce_wqe_flags(struct vroce_ib_qp *qp, const struct ib_send_wr *wr)
{
	u8 flags = 0;

	if (qp->signal_all || wr->send_flags & IB_SEND_SIGNALED)
		flags |= VROCE_WQE_SIGNALED;
	if (wr->send_flags & IB_SEND_SOLICITED)
		flags |= VROCE_WQE_SOLICITED;
	if (wr->send_flags & IB_SEND_FENCE)
		flags |= VROCE_WQE_FENCE;
	return flags;
}

/* A send of a datagram queue; its bytes, or an errno. */
static int vroce_build_ud(struct vroce_ib_qp *qp, union vroce_wqe *wqe,
			  const struct ib_send_wr *wr)
{
	void *seg = wqe->bytes + sizeof(wqe->ctrl);
	int payload, header = vroce_header_bytes(IB_QPT_UD);

	if (!vroce_put_send(&wqe->ctrl, wr))
		return -EINVAL;
	vroce_put_ud(seg, wr);
	payload = vroce_put_payload(qp, wqe, wqe->bytes + header, wr);
	return payload < 0 ? payload : header + payload;
}

/* A send of a connected queue; its bytes, or an errno. */
static int vroce_build_rc(struct vroce_ib_qp *qp, union vroce_wqe *wqe,
			  const struct ib_send_wr *wr)
{
	void *seg = wqe->bytes + sizeof(wqe->ctrl);
	int payload, header = sizeof(wqe->ctrl);

	switch (wr->opcode) {
	case IB_WR_SEND:
	case IB_WR_SEND_WITH_IMM:
		vroce_put_send(&wqe->ctrl, wr);
		break;
	case IB_WR_SEND_WITH_INV:
		wqe->ctrl.opcode = VROCE_WQE_SEND_INV;
		wqe->ctrl.inv_key = cpu_to_le32(wr->ex.invalidate_rkey);
		break;
	case IB_WR_RDMA_WRITE:
		wqe->ctrl.opcode = VROCE_WQE_WRITE;
		vroce_put_rdma(seg, wr);
		header += sizeof(struct vroce_wqe_rdma);
		break;
	case IB_WR_RDMA_WRITE_WITH_IMM:
		wqe->ctrl.opcode = VROCE_WQE_WRITE_IMM;
		wqe->ctrl.imm = wr->ex.imm_data;
		vroce_put_rdma(seg, wr);
		header += sizeof(struct vroce_wqe_rdma);
		break;
	case IB_WR_RDMA_READ:
		wqe->ctrl.opcode = VROCE_WQE_READ;
		vroce_put_rdma(seg, wr);
		header += sizeof(struct vroce_wqe_rdma);
		break;
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		if (wr->num_sge > 1 || wr->send_flags & IB_SEND_INLINE)
			return -EINVAL;
		wqe->ctrl.opcode = wr->opcode == IB_WR_ATOMIC_CMP_AND_SWP ?
			VROCE_WQE_CMP_SWAP : VROCE_WQE_FETCH_ADD;
		vroce_put_atomic(seg, wr);
		header += sizeof(struct vroce_wqe_atomic);
		break;
	case IB_WR_REG_MR:
		wqe->ctrl.opcode = VROCE_WQE_FAST_REG;
		vroce_put_fast_reg(seg, wr);
		return header + sizeof(struct vroce_wqe_fast_reg);
	case IB_WR_LOCAL_INV:
		wqe->ctrl.opcode = VROCE_WQE_LOCAL_INV;
		wqe->ctrl.inv_key = cpu_to_le32(wr->ex.invalidate_rkey);
		return header;
	default:
		return -EINVAL;
	}
	payload = vroce_put_payload(qp, wqe, wqe->bytes + header, wr);
	return payload < 0 ? payload : header + payload;
}

static int vroce_post_one_send(struct vroce_ib_qp *qp,
			       const struct ib_send_wr *wr)
{
	union vroce_wqe wqe = { };
	int bytes;

	wqe.ctrl.flags = vroce_wqe_flags(qp, wr);
	wqe.ctrl.wr_id = cpu_to_le64(wr->wr_id);
	if (qp->ibqp.qp_type == IB_QPT_RC || qp->ibqp.qp_type == IB_QPT_UC)
		bytes = vroce_build_rc(qp, &wqe, wr);
	else
		bytes = vroce_build_ud(qp, &wqe, wr);
	if (bytes < 0)
		return bytes;
	if (vroce_sq_room(&qp->hw.sq) < vroce_wqe_units(bytes))
		return -ENOMEM;
	vroce_sq_push(&qp->hw.sq, &wqe, vroce_wqe_units(bytes));
	return 0;
}

int vroce_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		    const struct ib_send_wr **bad_wr)
{
	struct vroce_ib_qp *qp = to_vqp(ibqp);
	unsigned long flags;
	int err = 0;
	u32 first;

	if (!qp->cap.max_send_wr) {
		*bad_wr = wr;
		return -EINVAL;
	}
	spin_lock_irqsave(&qp->sq_lock, flags);
	first = qp->hw.sq.pi;
	for (; wr; wr = wr->next) {
		err = vroce_post_one_send(qp, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}
	if (qp->hw.sq.pi != first)
		vroce_sq_ring(&qp->hw);
	spin_unlock_irqrestore(&qp->sq_lock, flags);
	return err;
}

/* Posts receives up to the first that does not fit. Under the queue's lock. */
static int vroce_post_recvs(struct vroce_rq *rq, u32 max_sge,
			    const struct ib_recv_wr *wr,
			    const struct ib_recv_wr **bad_wr)
{
	u32 first = rq->pi;
	int err = 0;

	for (; wr; wr = wr->next) {
		struct vroce_rwqe *rwqe = vroce_rq_next(rq);

		if (wr->num_sge > max_sge)
			err = -EINVAL;
		else if (vroce_rq_full(rq))
			err = -ENOMEM;
		if (err) {
			*bad_wr = wr;
			break;
		}
		*rwqe = (struct vroce_rwqe) {
			.wr_id = cpu_to_le64(wr->wr_id),
			.num_sge = wr->num_sge,
			.index = cpu_to_le16(rq->pi),
		};
		vroce_put_sge((void *)(rwqe + 1), wr->sg_list, wr->num_sge);
		rq->pi++;
	}
	if (rq->pi != first)
		vroce_rq_publish(rq);
	return err;
}

static void vroce_ring_rq(struct vroce_ib_qp *qp)
{
	vroce_ring(qp->hw.dev, VROCE_DB_RQ, qp->hw.qpn, qp->hw.rq.pi);
}

int vroce_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		    const struct ib_recv_wr **bad_wr)
{
	struct vroce_ib_qp *qp = to_vqp(ibqp);
	unsigned long flags;
	int err;

	if (!qp->cap.max_recv_wr) {
		*bad_wr = wr;
		return -EINVAL;
	}
	spin_lock_irqsave(&qp->rq_lock, flags);
	err = vroce_post_recvs(&qp->hw.rq, qp->cap.max_recv_sge, wr, bad_wr);
	if (qp->in_error)
		vroce_ring_rq(qp);
	spin_unlock_irqrestore(&qp->rq_lock, flags);
	return err;
}

/**
 * vroce_qp_enter_error - note that a queue pair may be in error
 * @qp: queue pair of the kernel
 *
 * In ERR the device looks for receives only when told, so it is told of those
 * that were posted before the driver knew.
 */
void vroce_qp_enter_error(struct vroce_ib_qp *qp)
{
	unsigned long flags;

	if (READ_ONCE(qp->in_error) || !qp->cap.max_recv_wr)
		return;
	spin_lock_irqsave(&qp->rq_lock, flags);
	if (!qp->in_error) {
		qp->in_error = true;
		vroce_ring_rq(qp);
	}
	spin_unlock_irqrestore(&qp->rq_lock, flags);
}

int vroce_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
			const struct ib_recv_wr **bad_wr)
{
	struct vroce_ib_srq *srq = to_vsrq(ibsrq);
	unsigned long flags;
	int err;

	spin_lock_irqsave(&srq->lock, flags);
	err = vroce_post_recvs(&srq->hw.rq, srq->max_sge, wr, bad_wr);
	spin_unlock_irqrestore(&srq->lock, flags);
	return err;
}
