// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The state machine of queue pairs, IBA 10.3.1: which transitions there are,
 * which attributes they need, and what may be posted in which state.
 */
#include <errno.h>

#include "kselftest_harness.h"
#include "common.h"

FIXTURE(qp_state)
{
	struct device dev;
	struct endpoint ep;
	struct path path;
	struct ibv_ah *ah;
};

FIXTURE_VARIANT(qp_state)
{
	enum ibv_qp_type type;
};

FIXTURE_VARIANT_ADD(qp_state, RC) { .type = IBV_QPT_RC };
FIXTURE_VARIANT_ADD(qp_state, UC) { .type = IBV_QPT_UC };
FIXTURE_VARIANT_ADD(qp_state, UD) { .type = IBV_QPT_UD };

FIXTURE_SETUP(qp_state)
{
	struct endpoint_attr attr = { .type = variant->type };
	struct ibv_ah_attr ah;

	ASSERT_EQ(0, device_open(&self->dev));
	ASSERT_EQ(0, endpoint_init(&self->ep, &self->dev, &attr));
	ah = device_route(&self->dev, IPV4);
	self->ah = ibv_create_ah(self->dev.pd, &ah);
	ASSERT_NE(NULL, self->ah);
}

FIXTURE_TEARDOWN(qp_state)
{
	EXPECT_EQ(0, ibv_destroy_ah(self->ah));
	endpoint_free(&self->ep);
	device_close(&self->dev);
}

static int to_rts(struct endpoint *ep, const struct path *path)
{
	return endpoint_to_init(ep) ||
	       endpoint_to_rtr(ep, ep->qp->qp_num, ep->psn, path) ||
	       endpoint_to_rts(ep, path);
}

static int move(struct endpoint *ep, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE);
}

/* A SEND of no bytes to oneself. */
static struct ibv_send_wr empty_send(struct endpoint *ep, struct ibv_ah *ah,
				     uint64_t wr_id)
{
	struct ibv_send_wr wr = send_wr(IBV_WR_SEND, NULL, NULL, wr_id);

	if (ep->qp->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = ep->qp->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	}
	return wr;
}

TEST_F(qp_state, usual_way)
{
	struct endpoint *ep = &self->ep;
	int lap;

	for (lap = 0; lap < 3; lap++) {
		EXPECT_EQ(IBV_QPS_RESET, endpoint_state(ep));
		ASSERT_EQ(0, endpoint_to_init(ep));
		EXPECT_EQ(IBV_QPS_INIT, endpoint_state(ep));
		ASSERT_EQ(0, endpoint_to_rtr(ep, ep->qp->qp_num, ep->psn,
					     &self->path));
		EXPECT_EQ(IBV_QPS_RTR, endpoint_state(ep));
		ASSERT_EQ(0, endpoint_to_rts(ep, &self->path));
		EXPECT_EQ(IBV_QPS_RTS, endpoint_state(ep));
		ASSERT_EQ(0, endpoint_set_state(ep, IBV_QPS_ERR));
		EXPECT_EQ(IBV_QPS_ERR, endpoint_state(ep));
		ASSERT_EQ(0, endpoint_set_state(ep, IBV_QPS_RESET));
	}
}

TEST_F(qp_state, error_and_reset_from_everywhere)
{
	struct endpoint *ep = &self->ep;
	enum ibv_qp_state from, to;

	for (from = IBV_QPS_INIT; from <= IBV_QPS_RTS; from++) {
		for (to = 0; to < 2; to++) {
			ASSERT_EQ(0, endpoint_to_init(ep));
			if (from >= IBV_QPS_RTR)
				ASSERT_EQ(0, endpoint_to_rtr(ep, ep->qp->qp_num,
							     ep->psn,
							     &self->path));
			if (from >= IBV_QPS_RTS)
				ASSERT_EQ(0, endpoint_to_rts(ep, &self->path));
			if (to)
				ASSERT_EQ(0, endpoint_set_state(ep,
								IBV_QPS_ERR));
			ASSERT_EQ(0, endpoint_set_state(ep, IBV_QPS_RESET));
			EXPECT_EQ(IBV_QPS_RESET, endpoint_state(ep));
		}
	}
}

/* A refused transition leaves the state as it was. */
TEST_F(qp_state, no_short_cuts)
{
	struct endpoint *ep = &self->ep;

	EXPECT_EQ(EINVAL, move(ep, IBV_QPS_RTR));
	EXPECT_EQ(EINVAL, move(ep, IBV_QPS_RTS));
	EXPECT_EQ(EINVAL, move(ep, IBV_QPS_SQD));
	EXPECT_EQ(EINVAL, move(ep, IBV_QPS_SQE));
	EXPECT_EQ(IBV_QPS_RESET, endpoint_state(ep));

	ASSERT_EQ(0, endpoint_to_init(ep));
	EXPECT_EQ(EINVAL, move(ep, IBV_QPS_RTS));
	EXPECT_EQ(EINVAL, move(ep, IBV_QPS_SQD));
	EXPECT_EQ(IBV_QPS_INIT, endpoint_state(ep));

	ASSERT_EQ(0, endpoint_to_rtr(ep, ep->qp->qp_num, ep->psn,
				     &self->path));
	EXPECT_EQ(EINVAL, move(ep, IBV_QPS_INIT));
	EXPECT_EQ(EINVAL, move(ep, IBV_QPS_SQD));
	EXPECT_EQ(IBV_QPS_RTR, endpoint_state(ep));

	ASSERT_EQ(0, endpoint_to_rts(ep, &self->path));
	EXPECT_EQ(EINVAL, move(ep, IBV_QPS_INIT));
	EXPECT_EQ(EINVAL, move(ep, IBV_QPS_RTR));
	EXPECT_EQ(IBV_QPS_RTS, endpoint_state(ep));

	ASSERT_EQ(0, endpoint_set_state(ep, IBV_QPS_ERR));
	EXPECT_EQ(EINVAL, move(ep, IBV_QPS_INIT));
	EXPECT_EQ(EINVAL, move(ep, IBV_QPS_RTS));
	EXPECT_EQ(IBV_QPS_ERR, endpoint_state(ep));
}

TEST_F(qp_state, missing_attributes)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qkey = QKEY,
	};
	struct endpoint *ep = &self->ep;
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		   (variant->type == IBV_QPT_UD ? IBV_QP_QKEY :
						  IBV_QP_ACCESS_FLAGS);
	int bit;

	for (bit = 1; bit <= IBV_QP_QKEY; bit <<= 1)
		if (mask & bit && bit != IBV_QP_STATE)
			EXPECT_EQ(EINVAL, ibv_modify_qp(ep->qp, &attr,
							mask & ~bit));
	/* And one too many. */
	EXPECT_EQ(EINVAL, ibv_modify_qp(ep->qp, &attr, mask | IBV_QP_SQ_PSN));
	EXPECT_EQ(IBV_QPS_RESET, endpoint_state(ep));

	attr.port_num = PORT + 1;
	EXPECT_EQ(EINVAL, ibv_modify_qp(ep->qp, &attr, mask));
	attr.port_num = PORT;
	EXPECT_EQ(0, ibv_modify_qp(ep->qp, &attr, mask));
}

/* C10-97.2.1: no receives in RESET; C10-96: no sends before RTS. */
TEST_F(qp_state, posting)
{
	struct ibv_recv_wr recv = {}, *bad_recv;
	struct endpoint *ep = &self->ep;
	struct ibv_send_wr send = empty_send(ep, self->ah, 0), *bad_send;

	EXPECT_EQ(EINVAL, ibv_post_recv(ep->qp, &recv, &bad_recv));
	EXPECT_EQ(EINVAL, ibv_post_send(ep->qp, &send, &bad_send));

	ASSERT_EQ(0, endpoint_to_init(ep));
	EXPECT_EQ(0, ibv_post_recv(ep->qp, &recv, &bad_recv));
	EXPECT_EQ(EINVAL, ibv_post_send(ep->qp, &send, &bad_send));

	ASSERT_EQ(0, endpoint_to_rtr(ep, ep->qp->qp_num, ep->psn,
				     &self->path));
	EXPECT_EQ(EINVAL, ibv_post_send(ep->qp, &send, &bad_send));
}

TEST_F(qp_state, attributes_read_back)
{
	struct path path = { .mtu = IBV_MTU_512 };
	struct endpoint *ep = &self->ep;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	ASSERT_EQ(0, endpoint_to_init(ep));
	ASSERT_EQ(0, endpoint_to_rtr(ep, 0x12345, 0xabcdef, &path));
	ASSERT_EQ(0, endpoint_to_rts(ep, &path));
	ASSERT_EQ(0, ibv_query_qp(ep->qp, &attr, (IBV_QP_DEST_QPN << 1) - 1,
				  &init));
	EXPECT_EQ(IBV_QPS_RTS, attr.qp_state);
	EXPECT_EQ(ep->psn, attr.sq_psn);
	EXPECT_EQ(PORT, attr.port_num);
	if (variant->type == IBV_QPT_UD) {
		EXPECT_EQ(QKEY, attr.qkey);
		return;
	}
	EXPECT_EQ(IBV_MTU_512, attr.path_mtu);
	EXPECT_EQ(0x12345, attr.dest_qp_num);
	EXPECT_EQ(0xabcdef, attr.rq_psn);
	EXPECT_EQ(1, attr.ah_attr.is_global);
	EXPECT_EQ(0, memcmp(&self->dev.gid[IPV4], &attr.ah_attr.grh.dgid, 16));
	EXPECT_EQ(self->dev.gid_index[IPV4], attr.ah_attr.grh.sgid_index);
	EXPECT_EQ(64, attr.ah_attr.grh.hop_limit);
	if (variant->type == IBV_QPT_UC)
		return;
	EXPECT_EQ(17, attr.timeout);
	EXPECT_EQ(7, attr.retry_cnt);
	EXPECT_EQ(7, attr.rnr_retry);
	EXPECT_EQ(RNR_10US, attr.min_rnr_timer);
	EXPECT_EQ(4, attr.max_rd_atomic);
	EXPECT_EQ(4, attr.max_dest_rd_atomic);
	EXPECT_EQ(ALL_ACCESS & ~IBV_ACCESS_LOCAL_WRITE,
		  attr.qp_access_flags & ~IBV_ACCESS_LOCAL_WRITE);
}

TEST_F(qp_state, bad_values)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = 2,
		.ah_attr = device_route(&self->dev, IPV4),
	}, bad;
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
		   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	struct endpoint *ep = &self->ep;

	if (variant->type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	ASSERT_EQ(0, endpoint_to_init(ep));
	if (variant->type == IBV_QPT_UD) {
		/* None of these is an attribute of UD. */
		EXPECT_EQ(EINVAL, ibv_modify_qp(ep->qp, &attr, mask));
		return;
	}

	bad = attr;
	bad.path_mtu = 6;
	EXPECT_NE(0, ibv_modify_qp(ep->qp, &bad, mask));
	if (!self->dev.soft_roce) {
		bad.path_mtu = 0;
		EXPECT_NE(0, ibv_modify_qp(ep->qp, &bad, mask));
	}
	bad = attr;
	bad.ah_attr.grh.sgid_index = self->dev.port.gid_tbl_len - 1;
	EXPECT_NE(0, ibv_modify_qp(ep->qp, &bad, mask));
	bad = attr;
	bad.ah_attr.is_global = 0;
	EXPECT_NE(0, ibv_modify_qp(ep->qp, &bad, mask));
	if (variant->type == IBV_QPT_RC && !self->dev.soft_roce) {
		bad = attr;
		bad.max_dest_rd_atomic = 255;
		EXPECT_NE(0, ibv_modify_qp(ep->qp, &bad, mask));
	}
	EXPECT_EQ(IBV_QPS_INIT, endpoint_state(ep));
	EXPECT_EQ(0, ibv_modify_qp(ep->qp, &attr, mask));
}

/* IBA 10.3.1.5: to SQD, an event when the queue is drained, and on again. */
TEST_F(qp_state, drain)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_SQD,
		.en_sqd_async_notify = 1,
	};
	struct endpoint *ep = &self->ep;
	struct ibv_async_event event;
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	RXE_DIFFERS(&self->dev, "an idle queue is never drained");
	ASSERT_EQ(0, to_rts(ep, &self->path));
	ASSERT_EQ(0, ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE |
				   IBV_QP_EN_SQD_ASYNC_NOTIFY));
	ASSERT_EQ(0, wait_async_event(&self->dev, IBV_EVENT_SQ_DRAINED,
				      &event));
	EXPECT_EQ(ep->qp, event.element.qp);
	EXPECT_EQ(IBV_QPS_SQD, endpoint_state(ep));
	EXPECT_EQ(EINVAL, move(ep, IBV_QPS_INIT));

	/* What is posted now waits for RTS. */
	ASSERT_EQ(0, post_recv(ep, region_sge(NULL, 0, 0), 5));
	wr = empty_send(ep, self->ah, 5);
	ASSERT_EQ(0, post_send(ep, &wr));
	usleep(100000);
	EXPECT_EQ(0, ibv_poll_cq(ep->cq, 1, &wc));
	ASSERT_EQ(0, endpoint_set_state(ep, IBV_QPS_RTS));
	ASSERT_EQ(0, endpoint_wait(ep, &wc, 1));
	EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(5, wc.wr_id);
}

/* RESET forgets what was posted and what was completed. */
TEST_F(qp_state, reset_forgets)
{
	struct endpoint *ep = &self->ep;
	struct ibv_wc wc;
	int i;

	ASSERT_EQ(0, to_rts(ep, &self->path));
	for (i = 0; i < 4; i++)
		ASSERT_EQ(0, post_recv(ep, region_sge(NULL, 0, 0), i));
	ASSERT_EQ(0, endpoint_set_state(ep, IBV_QPS_RESET));
	ASSERT_EQ(0, to_rts(ep, &self->path));
	ASSERT_EQ(0, post_recv(ep, region_sge(NULL, 0, 0), 77));
	ASSERT_EQ(0, endpoint_set_state(ep, IBV_QPS_ERR));
	ASSERT_EQ(0, endpoint_wait(ep, &wc, 1));
	EXPECT_EQ(77, wc.wr_id);
	EXPECT_EQ(IBV_WC_WR_FLUSH_ERR, wc.status);
	EXPECT_EQ(0, ibv_poll_cq(ep->cq, 1, &wc));
}

TEST_HARNESS_MAIN
