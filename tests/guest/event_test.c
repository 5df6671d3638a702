// SPDX-License-Identifier: GPL-2.0-or-later
/* Completion channels, solicited events, and asynchronous events. */
#include "kselftest_harness.h"
#include "common.h"

/* Long enough for an event that should not come to show up nevertheless. */
#define QUIET_MS	200

FIXTURE(event)
{
	struct pair p;
};

FIXTURE_SETUP(event)
{
	struct endpoint_attr attr = { .events = true };
	struct path path = {};

	ASSERT_EQ(0, pair_init(&self->p, &attr, &path, 4096));
}

FIXTURE_TEARDOWN(event)
{
	pair_free(&self->p);
}

static void get_event(struct __test_metadata *_metadata, struct endpoint *ep)
{
	struct ibv_cq *cq;
	void *context;

	ASSERT_TRUE(readable(ep->channel->fd, PATIENCE * 1000));
	ASSERT_EQ(0, ibv_get_cq_event(ep->channel, &cq, &context));
	EXPECT_EQ(ep->cq, cq);
	EXPECT_EQ((void *)ep, context);
	ibv_ack_cq_events(cq, 1);
}

/* Sends 8 bytes from a to b and takes a's completion, not b's. */
static void send_one(struct __test_metadata *_metadata, struct pair *p,
		     unsigned int flags)
{
	struct ibv_sge sge = region_sge(&p->src, 0, 8);
	struct ibv_send_wr wr = send_wr(IBV_WR_SEND, &sge, NULL, 0);

	wr.send_flags |= flags;
	ASSERT_EQ(0, post_recv(&p->b, region_sge(&p->dst, 0, 8), 0));
	ASSERT_EQ(0, post_send(&p->a, &wr));
	ASSERT_EQ(0, endpoint_wait_status(&p->a, IBV_WC_SUCCESS));
}

TEST_F_TIMEOUT(event, each_arm_gives_one, 120)
{
	struct pair *p = &self->p;
	int i;

	for (i = 0; i < 5; i++) {
		ASSERT_EQ(0, ibv_req_notify_cq(p->b.cq, 0));
		send_one(_metadata, p, 0);
		get_event(_metadata, &p->b);
		ASSERT_EQ(0, endpoint_wait_status(&p->b, IBV_WC_SUCCESS));

		/* Not armed any more. */
		send_one(_metadata, p, 0);
		ASSERT_EQ(0, endpoint_wait_status(&p->b, IBV_WC_SUCCESS));
		EXPECT_FALSE(readable(p->b.channel->fd, QUIET_MS));
	}
}

TEST_F(event, not_armed)
{
	send_one(_metadata, &self->p, IBV_SEND_SOLICITED);
	ASSERT_EQ(0, endpoint_wait_status(&self->p.b, IBV_WC_SUCCESS));
	EXPECT_FALSE(readable(self->p.b.channel->fd, QUIET_MS));
	EXPECT_FALSE(readable(self->p.a.channel->fd, 0));
}

/* The pattern of all event-driven programs: arm, poll once more, sleep. */
TEST_F_TIMEOUT(event, none_is_lost, 120)
{
	struct pair *p = &self->p;
	struct ibv_wc wc;
	int sent, got = 0, n;

	ASSERT_EQ(0, ibv_req_notify_cq(p->b.cq, 0));
	for (sent = 0; sent < 100; sent++) {
		send_one(_metadata, p, 0);
		get_event(_metadata, &p->b);
		ASSERT_EQ(0, ibv_req_notify_cq(p->b.cq, 0));
		while ((n = ibv_poll_cq(p->b.cq, 1, &wc)) == 1)
			got++;
		ASSERT_EQ(0, n);
		/* Arming with a completion in the CQ may give one event more. */
		while (readable(p->b.channel->fd, 0)) {
			get_event(_metadata, &p->b);
			ASSERT_EQ(0, ibv_req_notify_cq(p->b.cq, 0));
		}
	}
	EXPECT_EQ(sent, got);
}

TEST_F(event, solicited_only)
{
	struct pair *p = &self->p;

	ASSERT_EQ(0, ibv_req_notify_cq(p->b.cq, 1));
	send_one(_metadata, p, 0);
	ASSERT_EQ(0, endpoint_wait_status(&p->b, IBV_WC_SUCCESS));
	EXPECT_FALSE(readable(p->b.channel->fd, QUIET_MS));

	/* Still armed. */
	send_one(_metadata, p, IBV_SEND_SOLICITED);
	get_event(_metadata, &p->b);
	ASSERT_EQ(0, endpoint_wait_status(&p->b, IBV_WC_SUCCESS));
}

/* IBA 11.4.2.2: a completion in error counts as solicited. */
TEST_F(event, error_is_solicited)
{
	struct pair *p = &self->p;

	RXE_DIFFERS(&p->dev, "a flushed receive is not solicited");
	ASSERT_EQ(0, ibv_req_notify_cq(p->b.cq, 1));
	ASSERT_EQ(0, post_recv(&p->b, region_sge(&p->dst, 0, 8), 0));
	ASSERT_EQ(0, endpoint_set_state(&p->b, IBV_QPS_ERR));
	get_event(_metadata, &p->b);
	ASSERT_EQ(0, endpoint_wait_status(&p->b, IBV_WC_WR_FLUSH_ERR));
}

TEST_F(event, send_completion)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 8);
	struct ibv_send_wr wr = send_wr(IBV_WR_RDMA_WRITE, &sge, &p->dst, 0);

	ASSERT_EQ(0, ibv_req_notify_cq(p->a.cq, 0));
	ASSERT_EQ(0, post_send(&p->a, &wr));
	get_event(_metadata, &p->a);
	ASSERT_EQ(0, endpoint_wait_status(&p->a, IBV_WC_SUCCESS));
}

TEST_F(event, shared_channel)
{
	struct pair *p = &self->p;
	struct ibv_cq *cqs[4], *cq;
	void *context;
	int i;

	for (i = 0; i < 4; i++) {
		cqs[i] = ibv_create_cq(p->dev.context, 4, &cqs[i],
				       p->a.channel, 0);
		ASSERT_NE(NULL, cqs[i]);
		ASSERT_EQ(0, ibv_req_notify_cq(cqs[i], 0));
	}
	/* The armed and empty CQs stay silent beside the one that is not. */
	ASSERT_EQ(0, ibv_req_notify_cq(p->a.cq, 0));
	send_one(_metadata, p, 0);
	ASSERT_TRUE(readable(p->a.channel->fd, PATIENCE * 1000));
	ASSERT_EQ(0, ibv_get_cq_event(p->a.channel, &cq, &context));
	EXPECT_EQ(p->a.cq, cq);
	EXPECT_EQ((void *)&p->a, context);
	ibv_ack_cq_events(cq, 1);
	EXPECT_FALSE(readable(p->a.channel->fd, QUIET_MS));
	for (i = 0; i < 4; i++)
		EXPECT_EQ(0, ibv_destroy_cq(cqs[i]));
	ASSERT_EQ(0, endpoint_wait_status(&p->b, IBV_WC_SUCCESS));
}

/* More completions than the CQ holds: an event, and the CQ is lost. */
TEST_F(event, cq_overrun)
{
	struct endpoint_attr attr = { .max_wr = 64, .cqe = 4 };
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 8);
	struct ibv_async_event event;
	struct path path = {};
	struct endpoint small;
	struct ibv_send_wr wr;
	int i;

	ASSERT_EQ(0, endpoint_init(&small, &p->dev, &attr));
	ASSERT_EQ(0, endpoints_connect(&small, &small, &path));
	ASSERT_LT(small.cq->cqe, 64);
	for (i = 0; i <= small.cq->cqe; i++) {
		wr = send_wr(IBV_WR_RDMA_WRITE, &sge, &p->dst, i);
		ASSERT_EQ(0, post_send(&small, &wr));
	}
	ASSERT_EQ(0, wait_async_event(&p->dev, IBV_EVENT_CQ_ERR, &event));
	EXPECT_EQ(small.cq, event.element.cq);
	endpoint_free(&small);

	/* Its neighbours live on. */
	send_one(_metadata, p, 0);
	ASSERT_EQ(0, endpoint_wait_status(&p->b, IBV_WC_SUCCESS));
}

/* IBA 11.6.3.2: the responder of a forbidden request is told so. */
TEST_F(event, qp_access_error)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 8);
	struct ibv_send_wr wr = send_wr(IBV_WR_RDMA_WRITE, &sge, &p->dst, 0);
	struct ibv_async_event event;

	RXE_DIFFERS(&p->dev, "no events of QP errors");
	wr.wr.rdma.rkey ^= 0x100;
	ASSERT_EQ(0, post_send(&p->a, &wr));
	ASSERT_EQ(0, endpoint_wait_status(&p->a, IBV_WC_REM_ACCESS_ERR));
	ASSERT_EQ(0, wait_async_event(&p->dev, IBV_EVENT_QP_ACCESS_ERR,
				      &event));
	EXPECT_EQ(p->b.qp, event.element.qp);
	EXPECT_EQ(IBV_QPS_ERR, endpoint_state(&p->b));
}

TEST_F(event, communication_established)
{
	struct endpoint_attr attr = {};
	struct pair *p = &self->p;
	struct ibv_async_event event;
	struct endpoint a, b;
	struct path path = {};
	struct ibv_send_wr wr;

	RXE_DIFFERS(&p->dev, "no such event");
	ASSERT_EQ(0, endpoint_init(&a, &p->dev, &attr));
	ASSERT_EQ(0, endpoint_init(&b, &p->dev, &attr));
	ASSERT_EQ(0, endpoint_to_init(&b));
	ASSERT_EQ(0, endpoint_to_rtr(&b, a.qp->qp_num, a.psn, &path));
	ASSERT_EQ(0, endpoint_to_init(&a));
	ASSERT_EQ(0, endpoint_to_rtr(&a, b.qp->qp_num, b.psn, &path));
	ASSERT_EQ(0, endpoint_to_rts(&a, &path));
	ASSERT_EQ(0, post_recv(&b, region_sge(NULL, 0, 0), 0));
	wr = send_wr(IBV_WR_SEND, NULL, NULL, 0);
	ASSERT_EQ(0, post_send(&a, &wr));
	ASSERT_EQ(0, wait_async_event(&p->dev, IBV_EVENT_COMM_EST, &event));
	EXPECT_EQ(b.qp, event.element.qp);
	endpoint_free(&a);
	endpoint_free(&b);
}

TEST_HARNESS_MAIN
