// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Completion queues. */

#include <endian.h>
#include <errno.h>
#include <stdlib.h>

#include <util/compiler.h>
#include <util/mmio.h>
#include <util/util.h>

#include "vroce.h"

static void vroce_lock_cq(struct vroce_cq *cq)
{
	if (!cq->single_threaded)
		pthread_spin_lock(&cq->lock);
}

static void vroce_unlock_cq(struct vroce_cq *cq)
{
	if (!cq->single_threaded)
		pthread_spin_unlock(&cq->lock);
}

/* Locks both CQs of a QP, always in the order of their numbers. */
void vroce_lock_cqs(struct vroce_qp *qp)
{
	struct vroce_cq *send_cq = to_vcq(qp->vqp.qp.send_cq);
	struct vroce_cq *recv_cq = to_vcq(qp->vqp.qp.recv_cq);

	if (send_cq == recv_cq) {
		vroce_lock_cq(send_cq);
	} else if (send_cq->cqn < recv_cq->cqn) {
		vroce_lock_cq(send_cq);
		vroce_lock_cq(recv_cq);
	} else {
		vroce_lock_cq(recv_cq);
		vroce_lock_cq(send_cq);
	}
}

void vroce_unlock_cqs(struct vroce_qp *qp)
{
	struct vroce_cq *send_cq = to_vcq(qp->vqp.qp.send_cq);
	struct vroce_cq *recv_cq = to_vcq(qp->vqp.qp.recv_cq);

	vroce_unlock_cq(send_cq);
	if (recv_cq != send_cq)
		vroce_unlock_cq(recv_cq);
}

/* The CQE at this index if the device has written it, else NULL. */
static struct vroce_cqe *vroce_peek_cqe(struct vroce_cq *cq, uint32_t index)
{
	struct vroce_cqe *cqe = &cq->ring[index & cq->mask];
	bool odd_lap = index & (cq->mask + 1);
	uint32_t phase;

	phase = le32toh((__force __le32)atomic_load_explicit(
		(_Atomic(uint32_t) *)&cqe->phase, memory_order_relaxed));
	if ((phase & 1) == odd_lap)
		return NULL;

	/* The rest of the CQE and the payload were written before the phase. */
	udma_from_device_barrier();
	return cqe;
}

static void vroce_update_record(struct vroce_cq *cq)
{
	/* The device may reuse the entries: they must have been read by now. */
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit((_Atomic(uint32_t) *)&cq->record->index,
			      (__force uint32_t)htole32(cq->ci),
			      memory_order_relaxed);
}

/*
 * Gives the ring space of the completed WQE back to its queue. Release: the
 * poster that sees the new index may overwrite what the CQE told.
 */
static void vroce_free_wqe(struct vroce_qp *qp, const struct vroce_cqe *cqe)
{
	if (cqe->opcode & VROCE_WC_RECV)
		atomic_fetch_add_explicit(&vroce_qp_rq(qp)->ci, 1,
					  memory_order_release);
	else
		atomic_store_explicit(&qp->sq.ci, le32toh(cqe->wqe_end),
				      memory_order_release);
}

/*
 * Marks all CQEs of a QP that goes to RESET or away, so that the poller passes
 * over them. The caller holds the locks of its CQs.
 */
static void vroce_forget_cqes_in(struct vroce_cq *cq, struct vroce_qp *qp)
{
	struct vroce_cqe *cqe;
	uint32_t index;

	for (index = cq->ci; (cqe = vroce_peek_cqe(cq, index)); index++) {
		if (le32toh(cqe->qpn) != qp->vqp.qp.qp_num)
			continue;
		if (qp->vqp.qp.srq && cqe->opcode & VROCE_WC_RECV)
			vroce_free_wqe(qp, cqe);
		cqe->qpn = htole32(VROCE_NONE);
	}
}

void vroce_forget_cqes(struct vroce_qp *qp)
{
	struct vroce_cq *send_cq = to_vcq(qp->vqp.qp.send_cq);
	struct vroce_cq *recv_cq = to_vcq(qp->vqp.qp.recv_cq);

	vroce_forget_cqes_in(recv_cq, qp);
	if (send_cq != recv_cq)
		vroce_forget_cqes_in(send_cq, qp);
}

/*
 * The next CQE of a live QP, or NULL. It stays the consumer's until the record
 * is updated.
 */
static struct vroce_cqe *vroce_take_cqe(struct vroce_cq *cq)
{
	struct vroce_context *ctx = to_vctx(cq->vcq.cq.context);
	struct vroce_cqe *cqe;
	struct vroce_qp *qp;

	while ((cqe = vroce_peek_cqe(cq, cq->ci))) {
		cq->ci++;
		qp = vroce_find_qp(ctx, le32toh(cqe->qpn));
		if (likely(qp)) {
			vroce_free_wqe(qp, cqe);
			if (unlikely(cqe->status != VROCE_WCS_SUCCESS))
				vroce_qp_error(qp);
			return cqe;
		}
	}

	return NULL;
}

static enum ibv_wc_opcode vroce_wc_opcode(const struct vroce_cqe *cqe)
{
	switch (cqe->opcode) {
	case VROCE_WC_WRITE:
		return IBV_WC_RDMA_WRITE;
	case VROCE_WC_READ:
		return IBV_WC_RDMA_READ;
	case VROCE_WC_CMP_SWAP:
		return IBV_WC_COMP_SWAP;
	case VROCE_WC_FETCH_ADD:
		return IBV_WC_FETCH_ADD;
	case VROCE_WC_LOCAL_INV:
		return IBV_WC_LOCAL_INV;
	case VROCE_WC_RECV:
		return IBV_WC_RECV;
	case VROCE_WC_RECV_WRITE_IMM:
		return IBV_WC_RECV_RDMA_WITH_IMM;
	default:
		return IBV_WC_SEND;
	}
}

static unsigned int vroce_wc_flags(const struct vroce_cqe *cqe)
{
	uint16_t flags = le16toh(cqe->flags);

	return (flags & VROCE_CQE_IMM ? IBV_WC_WITH_IMM : 0) |
	       (flags & VROCE_CQE_INV ? IBV_WC_WITH_INV : 0) |
	       (flags & VROCE_CQE_GRH ? IBV_WC_GRH : 0);
}

static void vroce_fill_wc(struct ibv_wc *wc, const struct vroce_cqe *cqe)
{
	*wc = (struct ibv_wc) {
		.wr_id = le64toh(cqe->wr_id),
		.status = cqe->status,
		.opcode = vroce_wc_opcode(cqe),
		.vendor_err = le16toh(cqe->rule),
		.byte_len = le32toh(cqe->byte_len),
		.qp_num = le32toh(cqe->qpn),
		.src_qp = le32toh(cqe->src_qpn),
		.wc_flags = vroce_wc_flags(cqe),
	};
	if (wc->wc_flags & IBV_WC_WITH_INV)
		wc->invalidated_rkey = le32toh(cqe->inv_key);
	else
		wc->imm_data = cqe->imm;
}

int vroce_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc)
{
	struct vroce_cq *cq = to_vcq(ibcq);
	struct vroce_cqe *cqe;
	uint32_t first;
	int n;

	vroce_lock_cq(cq);
	first = cq->ci;
	for (n = 0; n < num_entries; n++) {
		cqe = vroce_take_cqe(cq);
		if (!cqe)
			break;
		vroce_fill_wc(&wc[n], cqe);
	}
	if (cq->ci != first)
		vroce_update_record(cq);
	vroce_unlock_cq(cq);

	return n;
}

int vroce_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct vroce_context *ctx = to_vctx(ibcq->context);
	struct vroce_cq *cq = to_vcq(ibcq);
	struct vroce_cqe *cqe;

	vroce_lock_cq(cq);
	/* What nobody will see must not cause an event. */
	while ((cqe = vroce_peek_cqe(cq, cq->ci)) &&
	       cqe->qpn == htole32(VROCE_NONE))
		cq->ci++;
	vroce_update_record(cq);
	udma_to_device_barrier();
	mmio_write64_le(ctx->db, htole64(vroce_doorbell(
		solicited_only ? VROCE_DB_CQ_ARM_SOLICITED : VROCE_DB_CQ_ARM,
		cq->cqn, cq->ci)));
	vroce_unlock_cq(cq);

	return 0;
}

static int vroce_next_poll(struct ibv_cq_ex *ibcq)
{
	struct vroce_cq *cq = to_vcq_ex(ibcq);

	cq->cur = vroce_take_cqe(cq);
	if (!cq->cur)
		return ENOENT;

	ibcq->wr_id = le64toh(cq->cur->wr_id);
	ibcq->status = cq->cur->status;
	return 0;
}

static void vroce_end_poll(struct ibv_cq_ex *ibcq)
{
	struct vroce_cq *cq = to_vcq_ex(ibcq);

	vroce_update_record(cq);
	vroce_unlock_cq(cq);
}

static int vroce_start_poll(struct ibv_cq_ex *ibcq,
			    struct ibv_poll_cq_attr *attr)
{
	int err;

	if (attr->comp_mask)
		return EINVAL;

	vroce_lock_cq(to_vcq_ex(ibcq));
	err = vroce_next_poll(ibcq);
	if (err)
		/* There may have been CQEs of dead QPs: free their entries. */
		vroce_end_poll(ibcq);

	return err;
}

static enum ibv_wc_opcode vroce_read_opcode(struct ibv_cq_ex *ibcq)
{
	return vroce_wc_opcode(to_vcq_ex(ibcq)->cur);
}

static uint32_t vroce_read_vendor_err(struct ibv_cq_ex *ibcq)
{
	return le16toh(to_vcq_ex(ibcq)->cur->rule);
}

static unsigned int vroce_read_wc_flags(struct ibv_cq_ex *ibcq)
{
	return vroce_wc_flags(to_vcq_ex(ibcq)->cur);
}

static uint32_t vroce_read_byte_len(struct ibv_cq_ex *ibcq)
{
	return le32toh(to_vcq_ex(ibcq)->cur->byte_len);
}

/* The invalidated rkey takes the place of the immediate, see verbs.h. */
static __be32 vroce_read_imm_data(struct ibv_cq_ex *ibcq)
{
	struct vroce_cqe *cqe = to_vcq_ex(ibcq)->cur;

	if (vroce_wc_flags(cqe) & IBV_WC_WITH_INV)
		return (__force __be32)le32toh(cqe->inv_key);
	return cqe->imm;
}

static uint32_t vroce_read_qp_num(struct ibv_cq_ex *ibcq)
{
	return le32toh(to_vcq_ex(ibcq)->cur->qpn);
}

static uint32_t vroce_read_src_qp(struct ibv_cq_ex *ibcq)
{
	return le32toh(to_vcq_ex(ibcq)->cur->src_qpn);
}

/* RoCE has no local identifiers, and the card reports no service level. */
static uint32_t vroce_read_slid(struct ibv_cq_ex *ibcq)
{
	return 0;
}

static uint8_t vroce_read_sl(struct ibv_cq_ex *ibcq)
{
	return 0;
}

static uint8_t vroce_read_dlid_path_bits(struct ibv_cq_ex *ibcq)
{
	return 0;
}

static uint64_t vroce_read_completion_ts(struct ibv_cq_ex *ibcq)
{
	return le64toh(to_vcq_ex(ibcq)->cur->timestamp);
}

static void vroce_set_poll_ops(struct ibv_cq_ex *ibcq, uint64_t wc_flags)
{
	ibcq->start_poll = vroce_start_poll;
	ibcq->next_poll = vroce_next_poll;
	ibcq->end_poll = vroce_end_poll;
	ibcq->read_opcode = vroce_read_opcode;
	ibcq->read_vendor_err = vroce_read_vendor_err;
	ibcq->read_wc_flags = vroce_read_wc_flags;

	if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		ibcq->read_byte_len = vroce_read_byte_len;
	if (wc_flags & IBV_WC_EX_WITH_IMM)
		ibcq->read_imm_data = vroce_read_imm_data;
	if (wc_flags & IBV_WC_EX_WITH_QP_NUM)
		ibcq->read_qp_num = vroce_read_qp_num;
	if (wc_flags & IBV_WC_EX_WITH_SRC_QP)
		ibcq->read_src_qp = vroce_read_src_qp;
	if (wc_flags & IBV_WC_EX_WITH_SLID)
		ibcq->read_slid = vroce_read_slid;
	if (wc_flags & IBV_WC_EX_WITH_SL)
		ibcq->read_sl = vroce_read_sl;
	if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		ibcq->read_dlid_path_bits = vroce_read_dlid_path_bits;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		ibcq->read_completion_ts = vroce_read_completion_ts;
}

/* The device knows no ring of less than two entries. */
static uint32_t vroce_ring_entries(uint32_t cqe)
{
	return cqe > 2 ? roundup_pow_of_two(cqe) : 2;
}

/* A ring of so many entries and the record behind it, described for uverbs. */
static int vroce_alloc_ring(struct vroce_mem *mem, uint32_t entries,
			    struct vroce_create_cq_req *req)
{
	size_t bytes = entries * sizeof(struct vroce_cqe);
	int err;

	err = vroce_mem_alloc(mem, bytes + sizeof(struct vroce_db_record));
	if (err)
		return err;

	req->buf_addr = (uintptr_t)mem->addr;
	req->buf_len = mem->length;
	req->rec_off = bytes;
	req->log_size = ilog32(entries - 1);
	return 0;
}

static void vroce_set_ring(struct vroce_cq *cq, const struct vroce_mem *mem,
			   uint32_t entries)
{
	cq->mem = *mem;
	cq->ring = mem->addr;
	cq->record = (void *)(cq->ring + entries);
	cq->mask = entries - 1;
}

static struct ibv_cq_ex *create_cq(struct ibv_context *ibctx,
				   const struct ibv_cq_init_attr_ex *user_attr)
{
	struct ibv_cq_init_attr_ex attr = *user_attr;
	struct vroce_ucreate_cq_resp resp = {};
	struct vroce_ucreate_cq cmd = {};
	struct vroce_mem mem;
	struct vroce_cq *cq;
	int err;

	if (!attr.cqe || attr.cqe > to_vctx(ibctx)->max_cqe) {
		errno = EINVAL;
		return NULL;
	}

	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;

	attr.cqe = vroce_ring_entries(attr.cqe);
	err = vroce_alloc_ring(&mem, attr.cqe, &cmd.drv_payload);
	if (err)
		goto err_free;

	/* Each CQE carries a timestamp: nothing that the kernel must set up. */
	attr.wc_flags &= ~IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	vroce_set_ring(cq, &mem, attr.cqe);
	err = ibv_cmd_create_cq_ex(ibctx, &attr, &cq->vcq, &cmd.ibv_cmd,
				   sizeof(cmd), &resp.ibv_resp, sizeof(resp),
				   0);
	if (err)
		goto err_mem;

	cq->cqn = resp.cqn;
	cq->single_threaded = attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS &&
			      attr.flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	pthread_spin_init(&cq->lock, PTHREAD_PROCESS_PRIVATE);
	vroce_set_poll_ops(&cq->vcq.cq_ex, user_attr->wc_flags);

	return &cq->vcq.cq_ex;

err_mem:
	vroce_mem_free(&mem);
err_free:
	free(cq);
	errno = err;
	return NULL;
}

struct ibv_cq *vroce_create_cq(struct ibv_context *ibctx, int cqe,
			       struct ibv_comp_channel *channel, int vector)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe,
		.channel = channel,
		.comp_vector = vector,
	};
	struct ibv_cq_ex *ibcq;

	ibcq = create_cq(ibctx, &attr);
	return ibcq ? ibv_cq_ex_to_cq(ibcq) : NULL;
}

struct ibv_cq_ex *vroce_create_cq_ex(struct ibv_context *ibctx,
				     struct ibv_cq_init_attr_ex *attr)
{
	if (!check_comp_mask(attr->comp_mask, IBV_CQ_INIT_ATTR_MASK_FLAGS) ||
	    !check_comp_mask(attr->wc_flags,
			     IBV_WC_STANDARD_FLAGS |
				     IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) ||
	    (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS &&
	     !check_comp_mask(attr->flags,
			      IBV_CREATE_CQ_ATTR_SINGLE_THREADED))) {
		errno = EOPNOTSUPP;
		return NULL;
	}

	return create_cq(ibctx, attr);
}

int vroce_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	struct ib_uverbs_resize_cq_resp resp = {};
	struct vroce_cq *cq = to_vcq(ibcq);
	struct vroce_uresize_cq cmd = {};
	struct vroce_mem mem, old;
	uint32_t entries;
	int err;

	if (cqe < 1 || cqe > to_vctx(ibcq->context)->max_cqe)
		return EINVAL;

	entries = vroce_ring_entries(cqe);
	err = vroce_alloc_ring(&mem, entries, &cmd.drv_payload);
	if (err)
		return err;

	/* The device moves to the new ring at once: nobody may poll the old. */
	vroce_lock_cq(cq);
	old = cq->mem;
	*(__le32 *)(mem.addr + cmd.rec_off) = htole32(cq->ci);
	err = ibv_cmd_resize_cq(ibcq, entries, &cmd.ibv_cmd, sizeof(cmd),
				&resp, sizeof(resp));
	if (!err)
		vroce_set_ring(cq, &mem, entries);
	vroce_unlock_cq(cq);

	vroce_mem_free(err ? &mem : &old);
	return err;
}

int vroce_modify_cq(struct ibv_cq *ibcq, struct ibv_modify_cq_attr *attr)
{
	struct ibv_modify_cq cmd = {};

	return ibv_cmd_modify_cq(ibcq, attr, &cmd, sizeof(cmd));
}

int vroce_destroy_cq(struct ibv_cq *ibcq)
{
	struct vroce_cq *cq = to_vcq(ibcq);
	int err;

	err = ibv_cmd_destroy_cq(ibcq);
	if (err)
		return err;

	pthread_spin_destroy(&cq->lock);
	vroce_mem_free(&cq->mem);
	free(cq);
	return 0;
}
