// SPDX-License-Identifier: GPL-2.0-or-later
/* The newer interface: ibv_create_qp_ex() with ibv_wr_*(), ibv_create_cq_ex(). */
#include <arpa/inet.h>
#include <errno.h>

#include "kselftest_harness.h"
#include "common.h"

#define LEN	16384
#define IMM	0x55aa1234

FIXTURE(extended)
{
	struct device dev;
	struct endpoint a, b;	/* b is of the plain kind */
	struct ibv_cq_ex *cq;	/* of a */
	struct ibv_qp_ex *qp;
	struct region src, dst;
	bool timestamps;
};

FIXTURE_SETUP(extended)
{
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 64,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM |
			    IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_SRC_QP |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = 16,
			.max_recv_wr = 16,
			.max_send_sge = 4,
			.max_recv_sge = 1,
			.max_inline_data = 100,
		},
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND |
				  IBV_QP_EX_WITH_SEND_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_WRITE |
				  IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_READ,
	};
	struct endpoint_attr attr = {};
	struct path path = {};

	ASSERT_EQ(0, device_open(&self->dev));
	self->timestamps = true;
	self->cq = ibv_create_cq_ex(self->dev.context, &cq_attr);
	if (!self->cq && errno == EOPNOTSUPP) {
		cq_attr.wc_flags &= ~IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
		self->timestamps = false;
		self->cq = ibv_create_cq_ex(self->dev.context, &cq_attr);
	}
	ASSERT_NE(NULL, self->cq);
	self->a.dev = &self->dev;
	self->a.cq = ibv_cq_ex_to_cq(self->cq);
	init.pd = self->dev.pd;
	init.send_cq = self->a.cq;
	init.recv_cq = self->a.cq;
	self->a.qp = ibv_create_qp_ex(self->dev.context, &init);
	ASSERT_NE(NULL, self->a.qp);
	self->a.cap = init.cap;
	self->qp = ibv_qp_to_qp_ex(self->a.qp);
	ASSERT_NE(NULL, self->qp);
	ASSERT_EQ(0, endpoint_init(&self->b, &self->dev, &attr));
	ASSERT_EQ(0, endpoints_connect(&self->a, &self->b, &path));
	ASSERT_EQ(0, region_init(&self->src, self->dev.pd, LEN, ALL_ACCESS));
	ASSERT_EQ(0, region_init(&self->dst, self->dev.pd, LEN, ALL_ACCESS));
	region_fill(&self->src, 1);
	region_fill(&self->dst, 2);
}

FIXTURE_TEARDOWN(extended)
{
	endpoint_free(&self->a);
	endpoint_free(&self->b);
	region_free(&self->src);
	region_free(&self->dst);
	device_close(&self->dev);
}

/* Starts a poll that finds something. */
static int start_poll(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = {};
	int i, err;

	for (i = 0; i < PATIENCE * 1000; i++) {
		err = ibv_start_poll(cq, &attr);
		if (err != ENOENT)
			return err;
		usleep(1000);
	}
	return err;
}

/* Three requests in one batch, of which the middle one is inline. */
TEST_F(extended, batch)
{
	static const enum ibv_wc_opcode opcodes[] = {
		IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE, IBV_WC_SEND };
	uintptr_t to = (uintptr_t)self->dst.buf;
	uint32_t rkey = self->dst.mr->rkey;
	struct ibv_sge sges[2] = {
		region_sge(&self->src, 200, 60),
		region_sge(&self->src, 260, 60),
	};
	uint64_t last = 0, stamp;
	struct ibv_wc wc;
	int i, err;

	ASSERT_EQ(0, post_recv(&self->b, region_sge(&self->dst, 4096, 4096),
			       5));
	ibv_wr_start(self->qp);
	self->qp->wr_flags = IBV_SEND_SIGNALED;
	self->qp->wr_id = 10;
	ibv_wr_rdma_write(self->qp, rkey, to);
	ibv_wr_set_sge(self->qp, self->src.mr->lkey, (uintptr_t)self->src.buf,
		       100);
	self->qp->wr_id = 11;
	self->qp->wr_flags |= IBV_SEND_INLINE;	/* rxe wants it, others not */
	ibv_wr_rdma_write(self->qp, rkey, to + 100);
	ibv_wr_set_inline_data(self->qp, self->src.buf + 100, 100);
	self->qp->wr_id = 12;
	self->qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(self->qp, htonl(IMM));
	ibv_wr_set_sge_list(self->qp, 2, sges);
	ASSERT_EQ(0, ibv_wr_complete(self->qp));

	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, start_poll(self->cq));
		EXPECT_EQ(IBV_WC_SUCCESS, self->cq->status);
		EXPECT_EQ(10 + i, self->cq->wr_id);
		EXPECT_EQ(opcodes[i], ibv_wc_read_opcode(self->cq));
		EXPECT_EQ(self->a.qp->qp_num, ibv_wc_read_qp_num(self->cq));
		if (self->timestamps) {
			stamp = ibv_wc_read_completion_ts(self->cq);
			EXPECT_GE(stamp, last);
			EXPECT_NE(0, stamp);
			last = stamp;
		}
		ibv_end_poll(self->cq);
	}
	err = ibv_start_poll(self->cq, &(struct ibv_poll_cq_attr) {});
	EXPECT_EQ(ENOENT, err);

	ASSERT_EQ(0, endpoint_wait(&self->b, &wc, 1));
	EXPECT_EQ(IMM, ntohl(wc.imm_data));
	EXPECT_EQ(120, wc.byte_len);
	EXPECT_EQ(0, region_check(&self->dst, 0, 200, 1, 0));
	EXPECT_EQ(0, region_check(&self->dst, 200, 3896, 2, 200));
	EXPECT_EQ(0, region_check(&self->dst, 4096, 120, 1, 200));
}

/* Several completions in one poll. */
TEST_F(extended, next_poll)
{
	int i;

	ibv_wr_start(self->qp);
	for (i = 0; i < 5; i++) {
		self->qp->wr_id = i;
		self->qp->wr_flags = i % 2 ? 0 : IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(self->qp, self->dst.mr->rkey,
				  (uintptr_t)self->dst.buf + 8 * i);
		ibv_wr_set_sge(self->qp, self->src.mr->lkey,
			       (uintptr_t)self->src.buf + 8 * i, 8);
	}
	ASSERT_EQ(0, ibv_wr_complete(self->qp));
	for (i = 0; i < 5; i += 2) {
		if (i == 0 || ibv_next_poll(self->cq)) {
			if (i)
				ibv_end_poll(self->cq);
			ASSERT_EQ(0, start_poll(self->cq));
		}
		EXPECT_EQ(i, self->cq->wr_id);
		EXPECT_EQ(IBV_WC_SUCCESS, self->cq->status);
	}
	EXPECT_EQ(ENOENT, ibv_next_poll(self->cq));
	ibv_end_poll(self->cq);
	EXPECT_EQ(0, region_check(&self->dst, 0, 40, 1, 0));
}

/* A batch with a mistake, or one that is aborted, posts nothing. */
TEST_F(extended, nothing_of_a_bad_batch)
{
	struct ibv_sge sges[64];
	struct ibv_wc wc;
	int i;

	for (i = 0; i < 64; i++)
		sges[i] = region_sge(&self->src, i, 1);
	self->qp->wr_flags = IBV_SEND_SIGNALED;

	ibv_wr_start(self->qp);
	ibv_wr_rdma_write(self->qp, self->dst.mr->rkey,
			  (uintptr_t)self->dst.buf);
	ibv_wr_set_sge(self->qp, self->src.mr->lkey, (uintptr_t)self->src.buf,
		       100);
	ibv_wr_rdma_write(self->qp, self->dst.mr->rkey,
			  (uintptr_t)self->dst.buf);
	ibv_wr_set_sge_list(self->qp, 64, sges);
	EXPECT_NE(0, ibv_wr_complete(self->qp));

	ibv_wr_start(self->qp);
	ibv_wr_rdma_write(self->qp, self->dst.mr->rkey,
			  (uintptr_t)self->dst.buf);
	ibv_wr_set_sge(self->qp, self->src.mr->lkey, (uintptr_t)self->src.buf,
		       100);
	ibv_wr_abort(self->qp);

	/* A READ of dst must see it untouched, and be the only completion. */
	ibv_wr_start(self->qp);
	self->qp->wr_id = 3;
	ibv_wr_rdma_read(self->qp, self->dst.mr->rkey,
			 (uintptr_t)self->dst.buf);
	ibv_wr_set_sge(self->qp, self->src.mr->lkey,
		       (uintptr_t)self->src.buf + 4096, 100);
	ASSERT_EQ(0, ibv_wr_complete(self->qp));
	ASSERT_EQ(0, endpoint_wait(&self->a, &wc, 1));
	EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(3, wc.wr_id);
	EXPECT_EQ(0, region_check(&self->src, 4096, 100, 2, 0));
}

TEST_F(extended, refusals)
{
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 16,
		.wc_flags = 1ull << 40,
	};
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_UD,
		.send_cq = self->a.cq,
		.recv_cq = self->a.cq,
		.pd = self->dev.pd,
		.cap = { .max_send_wr = 1, .max_send_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ,
	};

	EXPECT_EQ(NULL, ibv_create_cq_ex(self->dev.context, &cq_attr));
	EXPECT_EQ(EOPNOTSUPP, errno);
	/* UD has no READ. */
	EXPECT_EQ(NULL, ibv_create_qp_ex(self->dev.context, &init));
	EXPECT_EQ(EOPNOTSUPP, errno);
}

TEST_HARNESS_MAIN
