// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The rings of work requests and completions: round and round, full, empty,
 * and with the remains of queue pairs that are gone.
 */
#include <errno.h>

#include "kselftest_harness.h"
#include "common.h"

#define LEN	65536

FIXTURE(ring)
{
	struct pair p;
};

FIXTURE_VARIANT(ring)
{
	uint32_t max_wr;
	uint32_t max_sge;
	uint32_t max_inline;
};

FIXTURE_VARIANT_ADD(ring, one) { .max_wr = 1, .max_sge = 1 };
FIXTURE_VARIANT_ADD(ring, few) { .max_wr = 5, .max_sge = 3 };
FIXTURE_VARIANT_ADD(ring, wide) {
	.max_wr = 16, .max_sge = 16, .max_inline = 256 };
FIXTURE_VARIANT_ADD(ring, many) { .max_wr = 512, .max_sge = 2 };

FIXTURE_SETUP(ring)
{
	struct endpoint_attr attr = {
		.max_wr = variant->max_wr,
		.max_sge = variant->max_sge,
		.max_inline = variant->max_inline,
	};
	struct path path = {};

	ASSERT_EQ(0, pair_init(&self->p, &attr, &path, LEN));
}

FIXTURE_TEARDOWN(ring)
{
	pair_free(&self->p);
}

static unsigned int xorshift(unsigned int *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

/*
 * Many laps of requests of every length that the QP may post, so that each of
 * them runs over the end of the ring sooner or later.
 */
TEST_F_TIMEOUT(ring, wrap_around, 240)
{
	struct pair *p = &self->p;
	unsigned int state = 12345, i, laps = variant->max_wr == 1 ? 300 : 40;
	unsigned int total = laps * variant->max_wr;
	struct ibv_sge sges[16];
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	if (total > 3000)
		total = 3000;
	for (i = 0; i < total; i++) {
		uint32_t size = 0, num = xorshift(&state) %
					 (variant->max_sge + 1), k, len;
		bool in_line = variant->max_inline && xorshift(&state) % 3 == 0;

		/* Only a window of the buffers, to keep the pace. */
		pattern_fill(p->src.buf, 2048, i);
		for (k = 0; k < num; k++) {
			len = xorshift(&state) % (in_line ? 17 : 120);
			sges[k] = region_sge(&p->src, size, len);
			size += len;
		}
		wr = send_wr(i % 2 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, sges,
			     &p->dst, i);
		wr.num_sge = num;
		if (in_line)
			wr.send_flags |= IBV_SEND_INLINE;
		if (i % 2)
			ASSERT_EQ(0, post_recv(&p->b, region_sge(&p->dst, 0,
								 2048), i));
		ASSERT_EQ(0, post_send(&p->a, &wr));
		ASSERT_EQ(0, endpoint_wait(&p->a, &wc, 1));
		ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
		ASSERT_EQ(i, wc.wr_id);
		if (i % 2) {
			ASSERT_EQ(0, endpoint_wait(&p->b, &wc, 1));
			ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
			ASSERT_EQ(i, wc.wr_id);
			ASSERT_EQ(size, wc.byte_len);
		}
		ASSERT_EQ(0, region_check(&p->dst, 0, size, i, 0));
	}
}

/* Full bursts, of which only the last is signaled. */
TEST_F_TIMEOUT(ring, unsignaled_bursts, 240)
{
	struct pair *p = &self->p;
	uint32_t depth = variant->max_wr;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_wc wc;
	uint32_t lap, i;

	for (lap = 0; lap < 20; lap++) {
		region_fill(&p->src, lap);
		region_fill(&p->dst, lap + 1000);
		for (i = 0; i < depth; i++) {
			sge = region_sge(&p->src, i * 64, 64);
			wr = send_wr(IBV_WR_RDMA_WRITE, &sge, &p->dst, i);
			wr.wr.rdma.remote_addr += i * 64;
			if (i + 1 < depth)
				wr.send_flags = 0;
			ASSERT_EQ(0, post_send(&p->a, &wr));
		}
		ASSERT_EQ(0, endpoint_wait(&p->a, &wc, 1));
		ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
		EXPECT_EQ(depth - 1, wc.wr_id);
		EXPECT_EQ(0, ibv_poll_cq(p->a.cq, 1, &wc));
		EXPECT_EQ(0, region_check(&p->dst, 0, depth * 64, lap, 0));
	}
}

/* A full queue says ENOMEM and which request did not fit; all others count. */
TEST_F_TIMEOUT(ring, full_send_queue, 120)
{
	struct pair *p = &self->p;
	struct ibv_send_wr *bad, wrs[2];
	uint32_t posted = 0;
	struct ibv_wc wc;
	uint32_t i;
	int err;

	/* The peer has no receive: the requests stay in the queue. */
	wrs[0] = send_wr(IBV_WR_SEND, NULL, NULL, 0);
	wrs[1] = wrs[0];
	wrs[0].next = &wrs[1];
	for (;;) {
		wrs[0].wr_id = posted;
		wrs[1].wr_id = posted + 1;
		bad = NULL;
		err = ibv_post_send(p->a.qp, wrs, &bad);
		if (err)
			break;
		posted += 2;
		ASSERT_LT(posted, 100000);
	}
	EXPECT_EQ(ENOMEM, err);
	ASSERT_TRUE(bad == &wrs[0] || bad == &wrs[1]);
	posted += bad == &wrs[1];
	EXPECT_GE(posted, variant->max_wr);

	for (i = 0; i < posted; i++) {
		ASSERT_EQ(0, post_recv(&p->b, region_sge(NULL, 0, 0), i));
		ASSERT_EQ(0, endpoint_wait(&p->b, &wc, 1));
		ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
		/* Take them one by one: the CQ is as small as the queue. */
		ASSERT_EQ(0, endpoint_wait(&p->a, &wc, 1));
		ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
		ASSERT_EQ(i, wc.wr_id);
	}
	/* And there is room again. */
	wrs[0].next = NULL;
	EXPECT_EQ(0, post_send(&p->a, &wrs[0]));
}

TEST_F(ring, full_receive_queue)
{
	struct pair *p = &self->p;
	struct ibv_recv_wr wr = {}, *bad;
	uint32_t posted = 0;
	struct ibv_wc wc;
	uint32_t i;
	int err;

	for (;;) {
		wr.wr_id = posted;
		bad = NULL;
		err = ibv_post_recv(p->b.qp, &wr, &bad);
		if (err)
			break;
		posted++;
		ASSERT_LT(posted, 100000);
	}
	EXPECT_EQ(ENOMEM, err);
	EXPECT_EQ(&wr, bad);
	EXPECT_GE(posted, variant->max_wr);

	for (i = 0; i < 3; i++) {
		struct ibv_send_wr send = send_wr(IBV_WR_SEND, NULL, NULL, 0);

		ASSERT_EQ(0, post_send(&p->a, &send));
		ASSERT_EQ(0, endpoint_wait_status(&p->a, IBV_WC_SUCCESS));
		ASSERT_EQ(0, endpoint_wait(&p->b, &wc, 1));
		EXPECT_EQ(i, wc.wr_id);
		wr.wr_id = posted++;
		EXPECT_EQ(0, ibv_post_recv(p->b.qp, &wr, &bad));
		EXPECT_EQ(ENOMEM, ibv_post_recv(p->b.qp, &wr, &bad));
	}
}

TEST_F(ring, too_many_sges)
{
	struct pair *p = &self->p;
	uint32_t num = p->a.cap.max_send_sge + 1, i;
	struct ibv_sge sges[64];
	struct ibv_send_wr wr;
	struct ibv_recv_wr recv = { .sg_list = sges }, *bad;
	struct ibv_wc wc;

	ASSERT_LE(num, 64);
	for (i = 0; i < 64; i++)
		sges[i] = region_sge(&p->src, i, 1);
	wr = send_wr(IBV_WR_RDMA_WRITE, sges, &p->dst, 0);
	wr.num_sge = num;
	EXPECT_EQ(EINVAL, post_send(&p->a, &wr));
	recv.num_sge = p->b.cap.max_recv_sge + 1;
	EXPECT_EQ(EINVAL, ibv_post_recv(p->b.qp, &recv, &bad));
	EXPECT_EQ(&recv, bad);
	EXPECT_EQ(IBV_QPS_RTS, endpoint_state(&p->a));
	EXPECT_EQ(0, ibv_poll_cq(p->a.cq, 1, &wc));
}

TEST_F(ring, too_much_inline)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0,
					p->a.cap.max_inline_data + 1);
	struct ibv_send_wr wr = send_wr(IBV_WR_RDMA_WRITE, &sge, &p->dst, 0);

	wr.send_flags |= IBV_SEND_INLINE;
	EXPECT_EQ(EINVAL, post_send(&p->a, &wr));
	if (p->a.cap.max_inline_data) {
		sge.length--;
		EXPECT_EQ(0, post_send(&p->a, &wr));
		ASSERT_EQ(0, endpoint_wait_status(&p->a, IBV_WC_SUCCESS));
	}
}

/* Completions of a QP that is gone are not seen; those of others are. */
FIXTURE(shared_cq)
{
	struct device dev;
	struct ibv_cq *cq;
	struct ibv_qp *qp[2];
};

FIXTURE_SETUP(shared_cq)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = 1,
			.max_recv_wr = 64,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};
	int i;

	ASSERT_EQ(0, device_open(&self->dev));
	self->cq = ibv_create_cq(self->dev.context, 128, NULL, NULL, 0);
	ASSERT_NE(NULL, self->cq);
	init.send_cq = self->cq;
	init.recv_cq = self->cq;
	for (i = 0; i < 2; i++) {
		self->qp[i] = ibv_create_qp(self->dev.pd, &init);
		ASSERT_NE(NULL, self->qp[i]);
	}
}

FIXTURE_TEARDOWN(shared_cq)
{
	int i;

	for (i = 0; i < 2; i++)
		if (self->qp[i])
			ibv_destroy_qp(self->qp[i]);
	EXPECT_EQ(0, ibv_destroy_cq(self->cq));
	device_close(&self->dev);
}

/* Puts flushed completions into the CQ, EACH of the one QP, then of the other. */
#define EACH	32

static void fill_cq(struct __test_metadata *_metadata,
		    FIXTURE_DATA(shared_cq) *self)
{
	struct ibv_qp_attr attr = { .port_num = PORT };
	struct ibv_recv_wr wr = {}, *bad;
	int i, k;

	for (i = 0; i < 2; i++) {
		attr.qp_state = IBV_QPS_INIT;
		ASSERT_EQ(0, ibv_modify_qp(self->qp[i], &attr,
					   IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					   IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
		for (k = 0; k < EACH; k++) {
			wr.wr_id = i * EACH + k;
			ASSERT_EQ(0, ibv_post_recv(self->qp[i], &wr, &bad));
		}
		attr.qp_state = IBV_QPS_ERR;
		ASSERT_EQ(0, ibv_modify_qp(self->qp[i], &attr, IBV_QP_STATE));
	}
}

/* The next completion of the CQ, or -1 if there is none for long. */
static int poll_one(struct ibv_cq *cq, struct ibv_wc *wc)
{
	int i;

	for (i = 0; i < PATIENCE * 1000; i++) {
		if (ibv_poll_cq(cq, 1, wc) == 1)
			return 0;
		usleep(1000);
	}
	return -1;
}

TEST_F(shared_cq, destroyed_qp)
{
	uint32_t qpn = self->qp[1]->qp_num;
	struct ibv_wc wc;
	int i;

	RXE_DIFFERS(&self->dev, "completions of QPs that are gone stay");
	fill_cq(_metadata, self);
	ASSERT_EQ(0, ibv_destroy_qp(self->qp[0]));
	self->qp[0] = NULL;
	for (i = 0; i < EACH; i++) {
		ASSERT_EQ(0, poll_one(self->cq, &wc));
		EXPECT_EQ(qpn, wc.qp_num);
		EXPECT_EQ(EACH + i, wc.wr_id);
		EXPECT_EQ(IBV_WC_WR_FLUSH_ERR, wc.status);
	}
	EXPECT_EQ(0, ibv_poll_cq(self->cq, 1, &wc));
}

TEST_F(shared_cq, reset_qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct ibv_wc wc;
	int i;

	RXE_DIFFERS(&self->dev, "completions of QPs in RESET stay");
	fill_cq(_metadata, self);
	ASSERT_EQ(0, ibv_modify_qp(self->qp[1], &attr, IBV_QP_STATE));
	for (i = 0; i < EACH; i++) {
		ASSERT_EQ(0, poll_one(self->cq, &wc));
		EXPECT_EQ(i, wc.wr_id);
	}
	EXPECT_EQ(0, ibv_poll_cq(self->cq, 1, &wc));
}

TEST_F(shared_cq, all_destroyed)
{
	struct ibv_wc wc;
	int i;

	RXE_DIFFERS(&self->dev, "completions of QPs that are gone stay");
	fill_cq(_metadata, self);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, ibv_destroy_qp(self->qp[i]));
		self->qp[i] = NULL;
	}
	EXPECT_EQ(0, ibv_poll_cq(self->cq, 1, &wc));
	EXPECT_EQ(0, ibv_req_notify_cq(self->cq, 0));
}

/* Unread completions survive that the CQ grows and shrinks. */
TEST_F(shared_cq, resize)
{
	static const int sizes[] = { 1000, 64, 4096, 70 };
	struct ibv_wc wc;
	unsigned int i;
	int err;

	fill_cq(_metadata, self);
	for (i = 0; i < 2 * EACH; i++) {
		if (i < ARRAY_SIZE(sizes)) {
			err = ibv_resize_cq(self->cq, sizes[i]);
			if (err == EOPNOTSUPP)
				SKIP(return, "the device cannot resize CQs");
			ASSERT_EQ(0, err);
			EXPECT_GE(self->cq->cqe, sizes[i]);
		}
		ASSERT_EQ(0, poll_one(self->cq, &wc));
		EXPECT_EQ(i, wc.wr_id);
		EXPECT_EQ(IBV_WC_WR_FLUSH_ERR, wc.status);
	}
	EXPECT_EQ(0, ibv_poll_cq(self->cq, 1, &wc));
	/* Fewer than are unread do not fit. */
	EXPECT_NE(0, ibv_resize_cq(self->cq, 0));
}

TEST_HARNESS_MAIN
