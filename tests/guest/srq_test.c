// SPDX-License-Identifier: GPL-2.0-or-later
/* Shared receive queues, IBA 10.2.9. */
#include <errno.h>

#include "kselftest_harness.h"
#include "common.h"

#define QPS	4
#define LEN	4096
#define DEPTH	32

FIXTURE(srq)
{
	struct device dev;
	struct ibv_srq *srq;
	struct endpoint from[QPS], to[QPS];
	struct region src, dst;
};

FIXTURE_SETUP(srq)
{
	struct ibv_srq_init_attr init = {
		.attr = { .max_wr = DEPTH, .max_sge = 2 },
	};
	struct endpoint_attr plain = {}, shared = {};
	struct path path = {};
	int i;

	ASSERT_EQ(0, device_open(&self->dev));
	if (!self->dev.attr.max_srq)
		SKIP(return, "the device has no SRQs");
	self->srq = ibv_create_srq(self->dev.pd, &init);
	ASSERT_NE(NULL, self->srq);
	EXPECT_GE(init.attr.max_wr, DEPTH);
	EXPECT_GE(init.attr.max_sge, 2);
	shared.srq = self->srq;
	for (i = 0; i < QPS; i++) {
		ASSERT_EQ(0, endpoint_init(&self->from[i], &self->dev, &plain));
		ASSERT_EQ(0, endpoint_init(&self->to[i], &self->dev, &shared));
		ASSERT_EQ(0, endpoints_connect(&self->from[i], &self->to[i],
					       &path));
	}
	ASSERT_EQ(0, region_init(&self->src, self->dev.pd, LEN, ALL_ACCESS));
	ASSERT_EQ(0, region_init(&self->dst, self->dev.pd, LEN * DEPTH,
				 ALL_ACCESS));
}

FIXTURE_TEARDOWN(srq)
{
	int i;

	for (i = 0; i < QPS; i++) {
		endpoint_free(&self->from[i]);
		endpoint_free(&self->to[i]);
	}
	EXPECT_EQ(0, ibv_destroy_srq(self->srq));
	region_free(&self->src);
	region_free(&self->dst);
	device_close(&self->dev);
}

static int post(FIXTURE_DATA(srq) *self, uint64_t slot)
{
	struct ibv_sge sge = region_sge(&self->dst, slot * LEN, LEN);
	struct ibv_recv_wr *bad, wr = {
		.wr_id = slot,
		.sg_list = &sge,
		.num_sge = 1,
	};

	return ibv_post_srq_recv(self->srq, &wr, &bad);
}

/* One message to each QP by turns; each slot goes back when it was used. */
TEST_F_TIMEOUT(srq, many_laps, 120)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;
	int i, k;

	for (i = 0; i < DEPTH; i++)
		ASSERT_EQ(0, post(self, i));
	for (i = 0; i < 10 * DEPTH; i++) {
		k = i % QPS;
		region_fill(&self->src, i);
		sge = region_sge(&self->src, 0, LEN - i);
		wr = send_wr(IBV_WR_SEND, &sge, NULL, i);
		ASSERT_EQ(0, post_send(&self->from[k], &wr));
		ASSERT_EQ(0, endpoint_wait_status(&self->from[k],
						  IBV_WC_SUCCESS));
		ASSERT_EQ(0, endpoint_wait(&self->to[k], &wc, 1));
		ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
		EXPECT_EQ(self->to[k].qp->qp_num, wc.qp_num);
		EXPECT_EQ(i % DEPTH, wc.wr_id);
		EXPECT_EQ(LEN - i, wc.byte_len);
		EXPECT_EQ(0, region_check(&self->dst, wc.wr_id * LEN, LEN - i,
					  i, 0));
		ASSERT_EQ(0, post(self, wc.wr_id));
	}
	EXPECT_EQ(0, region_check_guards(&self->dst));
}

TEST_F(srq, full)
{
	uint32_t n = 0;
	int err;

	while (!(err = post(self, 0)))
		ASSERT_LT(n++, 100000);
	EXPECT_EQ(ENOMEM, err);
	EXPECT_GE(n, DEPTH);
}

/* The limit gives one event, and is disarmed by it. */
TEST_F(srq, limit)
{
	struct ibv_srq_attr attr = { .srq_limit = 3 };
	struct ibv_async_event event;
	struct ibv_send_wr wr = send_wr(IBV_WR_SEND, NULL, NULL, 0);
	int i;

	for (i = 0; i < 5; i++)
		ASSERT_EQ(0, post(self, i));
	ASSERT_EQ(0, ibv_modify_srq(self->srq, &attr, IBV_SRQ_LIMIT));
	ASSERT_EQ(0, ibv_query_srq(self->srq, &attr));
	EXPECT_EQ(3, attr.srq_limit);
	for (i = 0; i < 5; i++) {
		ASSERT_EQ(0, post_send(&self->from[0], &wr));
		ASSERT_EQ(0, endpoint_wait_status(&self->from[0],
						  IBV_WC_SUCCESS));
	}
	ASSERT_EQ(0, wait_async_event(&self->dev, IBV_EVENT_SRQ_LIMIT_REACHED,
				      &event));
	EXPECT_EQ(self->srq, event.element.srq);
	EXPECT_FALSE(readable(self->dev.context->async_fd, 200));
	ASSERT_EQ(0, ibv_query_srq(self->srq, &attr));
	EXPECT_EQ(0, attr.srq_limit);
}

TEST_F(srq, busy_and_misused)
{
	struct ibv_recv_wr wr = {}, *bad = NULL;

	EXPECT_EQ(EBUSY, ibv_destroy_srq(self->srq));
	/* A QP with an SRQ has no receive queue of its own. */
	EXPECT_NE(0, ibv_post_recv(self->to[0].qp, &wr, &bad));
	wr.num_sge = 100;
	EXPECT_EQ(EINVAL, ibv_post_srq_recv(self->srq, &wr, &bad));
	EXPECT_EQ(&wr, bad);
}

/* Receives belong to no QP until a message takes them: they are not flushed. */
TEST_F(srq, qp_in_error)
{
	struct ibv_async_event event;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;

	ASSERT_EQ(0, post(self, 7));
	ASSERT_EQ(0, endpoint_set_state(&self->to[0], IBV_QPS_ERR));
	ASSERT_EQ(0, wait_async_event(&self->dev, IBV_EVENT_QP_LAST_WQE_REACHED,
				      &event));
	EXPECT_EQ(self->to[0].qp, event.element.qp);
	EXPECT_EQ(0, ibv_poll_cq(self->to[0].cq, 1, &wc));
	region_fill(&self->src, 3);
	sge = region_sge(&self->src, 0, LEN);
	wr = send_wr(IBV_WR_SEND, &sge, NULL, 0);
	ASSERT_EQ(0, post_send(&self->from[1], &wr));
	ASSERT_EQ(0, endpoint_wait(&self->to[1], &wc, 1));
	EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(7, wc.wr_id);
	EXPECT_EQ(0, region_check(&self->dst, 7 * LEN, LEN, 3, 0));
}

TEST_HARNESS_MAIN
