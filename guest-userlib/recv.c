// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Receive rings of QPs and SRQs. */

#include <endian.h>
#include <errno.h>
#include <stdlib.h>

#include <ccan/minmax.h>
#include <util/compiler.h>
#include <util/mmio.h>
#include <util/util.h>

#include "vroce.h"

/* Sizes the ring for these capabilities; returns 0 or EINVAL. */
int vroce_rq_layout(struct vroce_context *ctx, struct vroce_rq *rq,
		    uint32_t max_wr, uint32_t max_sge)
{
	if (!max_wr || max_wr > ctx->max_rq_entries || max_sge > ctx->max_sge)
		return EINVAL;

	rq->mask = roundup_pow_of_two(max_wr) - 1;
	rq->max_sge = max_t(uint32_t, max_sge, 1);
	rq->log_stride = ilog32(sizeof(struct vroce_rwqe) - 1 +
				rq->max_sge * sizeof(struct vroce_sge));

	return 0;
}

size_t vroce_rq_bytes(const struct vroce_rq *rq)
{
	return (size_t)(rq->mask + 1) << rq->log_stride;
}

/* To the state of a new ring: nothing posted. */
void vroce_rq_reset(struct vroce_rq *rq)
{
	rq->pi = 0;
	atomic_store(&rq->ci, 0);
	rq->record->index = htole32(0);
}

static void vroce_build_rwqe(struct vroce_rq *rq, const struct ibv_recv_wr *wr)
{
	struct vroce_rwqe *rwqe = (void *)(rq->ring + ((size_t)(rq->pi & rq->mask)
						       << rq->log_stride));
	struct vroce_sge *sge = (void *)(rwqe + 1);
	int i;

	*rwqe = (struct vroce_rwqe) {
		.wr_id = htole64(wr->wr_id),
		.num_sge = wr->num_sge,
		.index = htole16(rq->pi),
	};
	for (i = 0; i < wr->num_sge; i++)
		sge[i] = (struct vroce_sge) {
			.addr = htole64(wr->sg_list[i].addr),
			.length = htole32(wr->sg_list[i].length),
			.lkey = htole32(wr->sg_list[i].lkey),
		};
}

/* The caller holds the lock of the ring. */
static int vroce_rq_post(struct vroce_rq *rq, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad_wr)
{
	int err = 0;

	for (; wr; wr = wr->next) {
		if (wr->num_sge < 0 || wr->num_sge > rq->max_sge) {
			err = EINVAL;
			break;
		}
		/* Pairs with the release by the poller that took the CQE. */
		if (rq->pi - atomic_load_explicit(&rq->ci,
						  memory_order_acquire) >
		    rq->mask) {
			err = ENOMEM;
			break;
		}
		vroce_build_rwqe(rq, wr);
		rq->pi++;
	}
	udma_to_device_barrier();
	rq->record->index = htole32(rq->pi);

	if (err)
		*bad_wr = wr;
	return err;
}

static void vroce_ring_rq(struct vroce_qp *qp)
{
	udma_to_device_barrier();
	mmio_write64_le(to_vctx(qp->vqp.qp.context)->db,
			htole64(vroce_doorbell(VROCE_DB_RQ, qp->vqp.qp.qp_num,
					       qp->rq.pi)));
}

/*
 * Called at every sign that the QP went to ERR. From then on each posted
 * receive rings, since no packet makes the device look for it any more; what
 * was posted between the transition and its sign is announced here.
 */
void vroce_qp_error(struct vroce_qp *qp)
{
	if (!qp->rq.ring)
		return;

	pthread_spin_lock(&qp->rq.lock);
	if (!qp->error) {
		qp->error = true;
		vroce_ring_rq(qp);
	}
	pthread_spin_unlock(&qp->rq.lock);
}

int vroce_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr,
		    struct ibv_recv_wr **bad_wr)
{
	struct vroce_qp *qp = to_vqp(ibqp);
	int err;

	/* IBA C10-97.2.1: no receives in RESET. */
	if (!qp->rq.ring || ibqp->state == IBV_QPS_RESET) {
		*bad_wr = wr;
		return EINVAL;
	}

	pthread_spin_lock(&qp->rq.lock);
	err = vroce_rq_post(&qp->rq, wr, bad_wr);
	if (unlikely(qp->error))
		vroce_ring_rq(qp);
	pthread_spin_unlock(&qp->rq.lock);

	return err;
}

int vroce_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr,
			struct ibv_recv_wr **bad_wr)
{
	struct vroce_rq *rq = &to_vsrq(ibsrq)->rq;
	int err;

	pthread_spin_lock(&rq->lock);
	err = vroce_rq_post(rq, wr, bad_wr);
	pthread_spin_unlock(&rq->lock);

	return err;
}

struct ibv_srq *vroce_create_srq(struct ibv_pd *ibpd,
				 struct ibv_srq_init_attr *attr)
{
	struct vroce_ucreate_srq_resp resp = {};
	struct vroce_ucreate_srq cmd = {};
	struct vroce_srq *srq;
	size_t rec_off;
	int err;

	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;

	err = vroce_rq_layout(to_vctx(ibpd->context), &srq->rq,
			      attr->attr.max_wr, attr->attr.max_sge);
	if (err)
		goto err_free;

	rec_off = vroce_rq_bytes(&srq->rq);
	err = vroce_mem_alloc(&srq->mem,
			      rec_off + sizeof(struct vroce_db_record));
	if (err)
		goto err_free;

	srq->rq.ring = srq->mem.addr;
	srq->rq.record = srq->mem.addr + rec_off;
	pthread_spin_init(&srq->rq.lock, PTHREAD_PROCESS_PRIVATE);
	attr->attr.max_wr = srq->rq.mask + 1;
	attr->attr.max_sge = srq->rq.max_sge;

	cmd.buf_addr = (uintptr_t)srq->mem.addr;
	cmd.buf_len = srq->mem.length;
	cmd.rec_off = rec_off;
	cmd.log_entries = ilog32(srq->rq.mask);
	cmd.log_stride = srq->rq.log_stride;
	err = ibv_cmd_create_srq(ibpd, &srq->vsrq.srq, attr, &cmd.ibv_cmd,
				 sizeof(cmd), &resp.ibv_resp, sizeof(resp));
	if (err)
		goto err_mem;

	srq->vsrq.srq_type = IBV_SRQT_BASIC;
	srq->vsrq.srq_num = resp.srqn;

	return &srq->vsrq.srq;

err_mem:
	pthread_spin_destroy(&srq->rq.lock);
	vroce_mem_free(&srq->mem);
err_free:
	free(srq);
	errno = err;
	return NULL;
}

int vroce_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr,
		     int attr_mask)
{
	struct ibv_modify_srq cmd = {};

	return ibv_cmd_modify_srq(ibsrq, attr, attr_mask, &cmd, sizeof(cmd));
}

int vroce_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr)
{
	struct ibv_query_srq cmd = {};

	return ibv_cmd_query_srq(ibsrq, attr, &cmd, sizeof(cmd));
}

int vroce_destroy_srq(struct ibv_srq *ibsrq)
{
	struct vroce_srq *srq = to_vsrq(ibsrq);
	int err;

	err = ibv_cmd_destroy_srq(ibsrq);
	if (err)
		return err;

	pthread_spin_destroy(&srq->rq.lock);
	vroce_mem_free(&srq->mem);
	free(srq);
	return 0;
}
