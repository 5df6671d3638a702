// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The send queue. ibv_post_send() and the ibv_wr_*() functions build their
 * WQEs by the same steps: begin, the opcode's segment, data, end.
 */

#include <endian.h>
#include <errno.h>
#include <string.h>

#include <ccan/array_size.h>
#include <ccan/minmax.h>
#include <util/compiler.h>
#include <util/mmio.h>
#include <util/util.h>

#include "vroce.h"

struct vroce_send_op {
	uint8_t opcode;		/* enum vroce_wqe_opcode */
	uint8_t segment;	/* bytes that follow the control segment */
	uint8_t flags;		/* OP_* */
	uint8_t qp_types;	/* 1 << enum ibv_qp_type */
};

#define OP_INLINE	(1 << 0)	/* may carry inline data */
#define OP_NO_DATA	(1 << 1)	/* has no SGEs */

#define RC	(1 << IBV_QPT_RC)
#define UC	(1 << IBV_QPT_UC)
#define UD	(1 << IBV_QPT_UD)

static const struct vroce_send_op vroce_send_ops[] = {
	[IBV_WR_SEND] = {
		VROCE_WQE_SEND, 0, OP_INLINE, RC | UC | UD },
	[IBV_WR_SEND_WITH_IMM] = {
		VROCE_WQE_SEND_IMM, 0, OP_INLINE, RC | UC | UD },
	[IBV_WR_SEND_WITH_INV] = {
		VROCE_WQE_SEND_INV, 0, OP_INLINE, RC },
	[IBV_WR_RDMA_WRITE] = {
		VROCE_WQE_WRITE, sizeof(struct vroce_wqe_rdma), OP_INLINE,
		RC | UC },
	[IBV_WR_RDMA_WRITE_WITH_IMM] = {
		VROCE_WQE_WRITE_IMM, sizeof(struct vroce_wqe_rdma), OP_INLINE,
		RC | UC },
	[IBV_WR_RDMA_READ] = {
		VROCE_WQE_READ, sizeof(struct vroce_wqe_rdma), 0, RC },
	[IBV_WR_ATOMIC_CMP_AND_SWP] = {
		VROCE_WQE_CMP_SWAP, sizeof(struct vroce_wqe_atomic), 0, RC },
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = {
		VROCE_WQE_FETCH_ADD, sizeof(struct vroce_wqe_atomic), 0, RC },
	[IBV_WR_LOCAL_INV] = {
		VROCE_WQE_LOCAL_INV, 0, OP_NO_DATA, RC | UC },
};

/* Sizes the ring for these capabilities; returns 0 or EINVAL. */
int vroce_sq_layout(struct vroce_context *ctx, struct vroce_sq *sq,
		    enum ibv_qp_type type, const struct ibv_qp_cap *cap)
{
	size_t header = sizeof(struct vroce_wqe_ctrl) +
			(type == IBV_QPT_UD ? sizeof(struct vroce_wqe_ud) :
					      sizeof(struct vroce_wqe_rdma));
	size_t atomic = type == IBV_QPT_RC ?
				sizeof(struct vroce_wqe_ctrl) +
					sizeof(struct vroce_wqe_atomic) +
					sizeof(struct vroce_sge) :
				0;
	uint32_t max_sge = max_t(uint32_t, cap->max_send_sge, 1);
	size_t room = VROCE_MAX_WQE_UNITS * VROCE_SQ_UNIT - header;
	uint64_t units;
	size_t longest;

	if (max_sge > ctx->max_sge || cap->max_send_wr > ctx->max_sq_units ||
	    cap->max_inline_data > min_t(size_t, ctx->max_inline, room))
		return EINVAL;

	longest = header + max_t(size_t, cap->max_inline_data,
				 max_sge * sizeof(struct vroce_sge));
	longest = max(longest, atomic);
	sq->wqe_units = DIV_ROUND_UP(longest, VROCE_SQ_UNIT);

	units = roundup_pow_of_two((uint64_t)cap->max_send_wr * sq->wqe_units);
	if (units > ctx->max_sq_units)
		return EINVAL;

	sq->mask = units - 1;
	sq->max_sge = max_sge;
	sq->max_inline = min_t(size_t, ctx->max_inline,
			       sq->wqe_units * VROCE_SQ_UNIT - header);
	return 0;
}

size_t vroce_sq_bytes(const struct vroce_sq *sq)
{
	return (size_t)(sq->mask + 1) * VROCE_SQ_UNIT;
}

/* To the state of a new ring: nothing posted. */
void vroce_sq_reset(struct vroce_sq *sq)
{
	sq->pi = 0;
	sq->next = 0;
	atomic_store(&sq->ci, 0);
}

/*
 * Starts a WQE and returns the segment of its opcode. NULL with the errno in
 * sq->err if it is not for this QP or the ring is full. The ring always keeps
 * room for the longest WQE, so that the length need not be known here.
 */
static void *vroce_begin_wqe(struct vroce_qp *qp, enum ibv_wr_opcode opcode,
			     uint64_t wr_id, unsigned int flags)
{
	struct vroce_sq *sq = &qp->sq;
	uint32_t units = sq->mask + 1;
	uint32_t first = sq->next & sq->mask;
	const struct vroce_send_op *op;

	if (unlikely(opcode >= ARRAY_SIZE(vroce_send_ops) ||
		     !(vroce_send_ops[opcode].qp_types &
		       1 << qp->vqp.qp.qp_type))) {
		sq->err = EINVAL;
		return NULL;
	}
	/* Pairs with the release by the poller that took the CQE. */
	if (unlikely(sq->next -
		     atomic_load_explicit(&sq->ci, memory_order_acquire) +
		     sq->wqe_units > units)) {
		sq->err = ENOMEM;
		return NULL;
	}

	op = &vroce_send_ops[opcode];
	sq->wqe = likely(first + sq->wqe_units <= units) ?
			  (void *)(sq->ring + (size_t)first * VROCE_SQ_UNIT) :
			  (void *)sq->bounce;
	*sq->wqe = (struct vroce_wqe_ctrl) {
		.opcode = op->opcode,
		.flags = (flags & IBV_SEND_SIGNALED || qp->sq_sig_all ?
				  VROCE_WQE_SIGNALED : 0) |
			 (flags & IBV_SEND_SOLICITED ?
				  VROCE_WQE_SOLICITED : 0) |
			 (flags & IBV_SEND_FENCE ? VROCE_WQE_FENCE : 0),
		.index = htole16(sq->next),
		.wr_id = htole64(wr_id),
	};
	sq->data_off = sizeof(*sq->wqe) +
		       (qp->vqp.qp.qp_type == IBV_QPT_UD ?
				sizeof(struct vroce_wqe_ud) : op->segment);
	sq->wqe_len = sq->data_off;

	return sq->wqe + 1;
}

/* Ends the WQE that is being built, if any: it lies in the ring after this. */
static void vroce_end_wqe(struct vroce_sq *sq)
{
	uint32_t first, units, head;

	if (!sq->wqe)
		return;

	first = sq->next & sq->mask;
	units = DIV_ROUND_UP(sq->wqe_len, VROCE_SQ_UNIT);
	sq->wqe->units = units;
	if (unlikely((void *)sq->wqe == sq->bounce)) {
		head = min(units, sq->mask + 1 - first);
		memcpy(sq->ring + (size_t)first * VROCE_SQ_UNIT, sq->bounce,
		       head * VROCE_SQ_UNIT);
		memcpy(sq->ring, (void *)sq->bounce + head * VROCE_SQ_UNIT,
		       (units - head) * VROCE_SQ_UNIT);
	}
	sq->next += units;
	sq->wqe = NULL;
}

static void vroce_fail_wqe(struct vroce_sq *sq, int err)
{
	sq->err = err;
	sq->wqe = NULL;
}

/* Tells the device of all WQEs that are built. */
static void vroce_ring_sq(struct vroce_qp *qp)
{
	struct vroce_sq *sq = &qp->sq;

	if (sq->next == sq->pi)
		return;

	sq->pi = sq->next;
	udma_to_device_barrier();
	mmio_write64_le(to_vctx(qp->vqp.qp.context)->db,
			htole64(vroce_doorbell(VROCE_DB_SQ, qp->vqp.qp.qp_num,
					       sq->pi)));
}

static void vroce_put_rdma(struct vroce_wqe_rdma *seg, uint64_t remote_addr,
			   uint32_t rkey)
{
	*seg = (struct vroce_wqe_rdma) {
		.remote_addr = htole64(remote_addr),
		.rkey = htole32(rkey),
	};
}

static void vroce_put_atomic(struct vroce_wqe_atomic *seg, uint64_t remote_addr,
			     uint32_t rkey, uint64_t swap_add, uint64_t compare)
{
	*seg = (struct vroce_wqe_atomic) {
		.remote_addr = htole64(remote_addr),
		.rkey = htole32(rkey),
		.swap_add = htole64(swap_add),
		.compare = htole64(compare),
	};
}

static void vroce_put_ud(struct vroce_wqe_ud *seg, struct ibv_ah *ibah,
			 uint32_t qpn, uint32_t qkey)
{
	seg->av = to_vah(ibah)->av;
	seg->dest_qpn = htole32(qpn);
	seg->qkey = htole32(qkey);
}

/* Bytes of SGEs or inline data that the WQE being built has room for. */
static size_t vroce_wqe_room(const struct vroce_sq *sq)
{
	return sq->wqe_units * VROCE_SQ_UNIT - sq->data_off;
}

static void vroce_put_sges(struct vroce_sq *sq, size_t num_sge,
			   const struct ibv_sge *sg_list)
{
	struct vroce_sge *sge = (void *)sq->wqe + sq->data_off;
	size_t i;

	if (unlikely(num_sge > sq->max_sge ||
		     num_sge * sizeof(*sge) > vroce_wqe_room(sq))) {
		vroce_fail_wqe(sq, EINVAL);
		return;
	}

	for (i = 0; i < num_sge; i++)
		sge[i] = (struct vroce_sge) {
			.addr = htole64(sg_list[i].addr),
			.length = htole32(sg_list[i].length),
			.lkey = htole32(sg_list[i].lkey),
		};
	sq->wqe->num_sge = num_sge;
	sq->wqe_len = sq->data_off + num_sge * sizeof(*sge);
}

/* Appends to the inline data that the WQE has so far. */
static void vroce_put_inline(struct vroce_sq *sq, const void *data,
			     size_t length)
{
	size_t used = sq->wqe_len - sq->data_off;
	size_t room = min_t(size_t, sq->max_inline, vroce_wqe_room(sq));

	if (unlikely(used > room || length > room - used)) {
		vroce_fail_wqe(sq, EINVAL);
		return;
	}

	memcpy((void *)sq->wqe + sq->wqe_len, data, length);
	sq->wqe_len += length;
	sq->wqe->inline_len = htole16(used + length);
	sq->wqe->flags |= VROCE_WQE_INLINE;
}

static void vroce_put_wr_data(struct vroce_sq *sq, const struct ibv_send_wr *wr)
{
	const struct vroce_send_op *op = &vroce_send_ops[wr->opcode];
	int i;

	if (unlikely(wr->num_sge < 0 ||
		     (op->flags & OP_NO_DATA && wr->num_sge) ||
		     (wr->send_flags & IBV_SEND_INLINE &&
		      !(op->flags & OP_INLINE)))) {
		vroce_fail_wqe(sq, EINVAL);
		return;
	}

	if (!(wr->send_flags & IBV_SEND_INLINE)) {
		vroce_put_sges(sq, wr->num_sge, wr->sg_list);
		return;
	}

	sq->wqe->flags |= VROCE_WQE_INLINE;
	for (i = 0; i < wr->num_sge && sq->wqe; i++)
		vroce_put_inline(sq, (void *)(uintptr_t)wr->sg_list[i].addr,
				 wr->sg_list[i].length);
}

/* Builds one WQE; returns 0 or an errno, and then nothing is built. */
static int vroce_build_wr(struct vroce_qp *qp, const struct ibv_send_wr *wr)
{
	struct vroce_sq *sq = &qp->sq;
	void *seg;

	sq->err = 0;
	seg = vroce_begin_wqe(qp, wr->opcode, wr->wr_id, wr->send_flags);
	if (!seg)
		return sq->err;

	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		sq->wqe->imm = wr->imm_data;
		SWITCH_FALLTHROUGH;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_READ:
		vroce_put_rdma(seg, wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		vroce_put_atomic(seg, wr->wr.atomic.remote_addr,
				 wr->wr.atomic.rkey, wr->wr.atomic.swap,
				 wr->wr.atomic.compare_add);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		vroce_put_atomic(seg, wr->wr.atomic.remote_addr,
				 wr->wr.atomic.rkey, wr->wr.atomic.compare_add,
				 0);
		break;
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		sq->wqe->inv_key = htole32(wr->invalidate_rkey);
		break;
	case IBV_WR_SEND_WITH_IMM:
		sq->wqe->imm = wr->imm_data;
		SWITCH_FALLTHROUGH;
	default:
		if (qp->vqp.qp.qp_type == IBV_QPT_UD)
			vroce_put_ud(seg, wr->wr.ud.ah, wr->wr.ud.remote_qpn,
				     wr->wr.ud.remote_qkey);
	}

	vroce_put_wr_data(sq, wr);
	vroce_end_wqe(sq);
	return sq->err;
}

/* IBA C10-96: the send queue takes work from RTS on. */
static bool vroce_sq_usable(struct vroce_qp *qp)
{
	switch (qp->vqp.qp.state) {
	case IBV_QPS_RESET:
	case IBV_QPS_INIT:
	case IBV_QPS_RTR:
		return false;
	default:
		return qp->sq.ring;
	}
}

int vroce_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr,
		    struct ibv_send_wr **bad_wr)
{
	struct vroce_qp *qp = to_vqp(ibqp);
	int err = 0;

	if (unlikely(!vroce_sq_usable(qp))) {
		*bad_wr = wr;
		return EINVAL;
	}

	pthread_spin_lock(&qp->sq.lock);
	for (; wr; wr = wr->next) {
		err = vroce_build_wr(qp, wr);
		if (unlikely(err)) {
			*bad_wr = wr;
			break;
		}
	}
	/* What precedes a bad request is posted. */
	vroce_ring_sq(qp);
	pthread_spin_unlock(&qp->sq.lock);

	return err;
}

/* ------------------------------------------------------------- ibv_wr_* */

static void vroce_wr_start(struct ibv_qp_ex *ibqp)
{
	struct vroce_qp *qp = to_vqp_ex(ibqp);

	pthread_spin_lock(&qp->sq.lock);
	qp->sq.err = vroce_sq_usable(qp) ? 0 : EINVAL;
}

/* All or nothing: an error drops the whole batch. */
static void vroce_wr_drop(struct vroce_sq *sq)
{
	sq->wqe = NULL;
	sq->next = sq->pi;
}

static int vroce_wr_complete(struct ibv_qp_ex *ibqp)
{
	struct vroce_qp *qp = to_vqp_ex(ibqp);
	int err = qp->sq.err;

	if (err) {
		vroce_wr_drop(&qp->sq);
	} else {
		vroce_end_wqe(&qp->sq);
		vroce_ring_sq(qp);
	}
	pthread_spin_unlock(&qp->sq.lock);

	return err;
}

static void vroce_wr_abort(struct ibv_qp_ex *ibqp)
{
	struct vroce_qp *qp = to_vqp_ex(ibqp);

	vroce_wr_drop(&qp->sq);
	pthread_spin_unlock(&qp->sq.lock);
}

/* Ends the previous WQE and starts the next; NULL once there was an error. */
static void *vroce_wr_begin(struct ibv_qp_ex *ibqp, enum ibv_wr_opcode opcode)
{
	struct vroce_qp *qp = to_vqp_ex(ibqp);

	if (unlikely(qp->sq.err))
		return NULL;

	vroce_end_wqe(&qp->sq);
	return vroce_begin_wqe(qp, opcode, ibqp->wr_id, ibqp->wr_flags);
}

static void vroce_wr_send(struct ibv_qp_ex *ibqp)
{
	vroce_wr_begin(ibqp, IBV_WR_SEND);
}

static void vroce_wr_send_imm(struct ibv_qp_ex *ibqp, __be32 imm_data)
{
	if (vroce_wr_begin(ibqp, IBV_WR_SEND_WITH_IMM))
		to_vqp_ex(ibqp)->sq.wqe->imm = imm_data;
}

static void vroce_wr_send_inv(struct ibv_qp_ex *ibqp, uint32_t rkey)
{
	if (vroce_wr_begin(ibqp, IBV_WR_SEND_WITH_INV))
		to_vqp_ex(ibqp)->sq.wqe->inv_key = htole32(rkey);
}

static void vroce_wr_local_inv(struct ibv_qp_ex *ibqp, uint32_t rkey)
{
	if (vroce_wr_begin(ibqp, IBV_WR_LOCAL_INV))
		to_vqp_ex(ibqp)->sq.wqe->inv_key = htole32(rkey);
}

static void vroce_wr_rdma(struct ibv_qp_ex *ibqp, enum ibv_wr_opcode opcode,
			  uint32_t rkey, uint64_t remote_addr)
{
	struct vroce_wqe_rdma *seg = vroce_wr_begin(ibqp, opcode);

	if (seg)
		vroce_put_rdma(seg, remote_addr, rkey);
}

static void vroce_wr_rdma_write(struct ibv_qp_ex *ibqp, uint32_t rkey,
				uint64_t remote_addr)
{
	vroce_wr_rdma(ibqp, IBV_WR_RDMA_WRITE, rkey, remote_addr);
}

static void vroce_wr_rdma_write_imm(struct ibv_qp_ex *ibqp, uint32_t rkey,
				    uint64_t remote_addr, __be32 imm_data)
{
	struct vroce_wqe_rdma *seg =
		vroce_wr_begin(ibqp, IBV_WR_RDMA_WRITE_WITH_IMM);

	if (!seg)
		return;
	vroce_put_rdma(seg, remote_addr, rkey);
	to_vqp_ex(ibqp)->sq.wqe->imm = imm_data;
}

static void vroce_wr_rdma_read(struct ibv_qp_ex *ibqp, uint32_t rkey,
			       uint64_t remote_addr)
{
	vroce_wr_rdma(ibqp, IBV_WR_RDMA_READ, rkey, remote_addr);
}

static void vroce_wr_atomic_cmp_swp(struct ibv_qp_ex *ibqp, uint32_t rkey,
				    uint64_t remote_addr, uint64_t compare,
				    uint64_t swap)
{
	struct vroce_wqe_atomic *seg =
		vroce_wr_begin(ibqp, IBV_WR_ATOMIC_CMP_AND_SWP);

	if (seg)
		vroce_put_atomic(seg, remote_addr, rkey, swap, compare);
}

static void vroce_wr_atomic_fetch_add(struct ibv_qp_ex *ibqp, uint32_t rkey,
				      uint64_t remote_addr, uint64_t add)
{
	struct vroce_wqe_atomic *seg =
		vroce_wr_begin(ibqp, IBV_WR_ATOMIC_FETCH_AND_ADD);

	if (seg)
		vroce_put_atomic(seg, remote_addr, rkey, add, 0);
}

static void vroce_wr_set_ud_addr(struct ibv_qp_ex *ibqp, struct ibv_ah *ibah,
				 uint32_t remote_qpn, uint32_t remote_qkey)
{
	struct vroce_sq *sq = &to_vqp_ex(ibqp)->sq;

	if (sq->wqe)
		vroce_put_ud((void *)(sq->wqe + 1), ibah, remote_qpn,
			     remote_qkey);
}

static void vroce_wr_set_sge_list(struct ibv_qp_ex *ibqp, size_t num_sge,
				  const struct ibv_sge *sg_list)
{
	struct vroce_sq *sq = &to_vqp_ex(ibqp)->sq;

	if (sq->wqe)
		vroce_put_sges(sq, num_sge, sg_list);
}

static void vroce_wr_set_sge(struct ibv_qp_ex *ibqp, uint32_t lkey,
			     uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = {
		.addr = addr,
		.length = length,
		.lkey = lkey,
	};

	vroce_wr_set_sge_list(ibqp, 1, &sge);
}

static void vroce_wr_set_inline_data_list(struct ibv_qp_ex *ibqp,
					  size_t num_buf,
					  const struct ibv_data_buf *buf_list)
{
	struct vroce_sq *sq = &to_vqp_ex(ibqp)->sq;
	size_t i;

	for (i = 0; i < num_buf && sq->wqe; i++)
		vroce_put_inline(sq, buf_list[i].addr, buf_list[i].length);
}

static void vroce_wr_set_inline_data(struct ibv_qp_ex *ibqp, void *addr,
				     size_t length)
{
	struct ibv_data_buf buf = {
		.addr = addr,
		.length = length,
	};

	vroce_wr_set_inline_data_list(ibqp, 1, &buf);
}

/* Returns 0, or EOPNOTSUPP if this type of QP lacks one of the operations. */
int vroce_set_send_ops(struct vroce_qp *qp, enum ibv_qp_type type, uint64_t ops)
{
	struct ibv_qp_ex *qp_ex = &qp->vqp.qp_ex;
	uint64_t supported = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

	if (type != IBV_QPT_UD)
		supported |= IBV_QP_EX_WITH_RDMA_WRITE |
			     IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
			     IBV_QP_EX_WITH_LOCAL_INV;
	if (type == IBV_QPT_RC)
		supported |= IBV_QP_EX_WITH_SEND_WITH_INV |
			     IBV_QP_EX_WITH_RDMA_READ |
			     IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
			     IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	if (!check_comp_mask(ops, supported))
		return EOPNOTSUPP;

	qp_ex->wr_start = vroce_wr_start;
	qp_ex->wr_complete = vroce_wr_complete;
	qp_ex->wr_abort = vroce_wr_abort;
	qp_ex->wr_send = vroce_wr_send;
	qp_ex->wr_send_imm = vroce_wr_send_imm;
	qp_ex->wr_send_inv = vroce_wr_send_inv;
	qp_ex->wr_local_inv = vroce_wr_local_inv;
	qp_ex->wr_rdma_write = vroce_wr_rdma_write;
	qp_ex->wr_rdma_write_imm = vroce_wr_rdma_write_imm;
	qp_ex->wr_rdma_read = vroce_wr_rdma_read;
	qp_ex->wr_atomic_cmp_swp = vroce_wr_atomic_cmp_swp;
	qp_ex->wr_atomic_fetch_add = vroce_wr_atomic_fetch_add;
	qp_ex->wr_set_ud_addr = vroce_wr_set_ud_addr;
	qp_ex->wr_set_sge = vroce_wr_set_sge;
	qp_ex->wr_set_sge_list = vroce_wr_set_sge_list;
	qp_ex->wr_set_inline_data = vroce_wr_set_inline_data;
	qp_ex->wr_set_inline_data_list = vroce_wr_set_inline_data_list;

	return 0;
}
