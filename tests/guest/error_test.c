// SPDX-License-Identifier: GPL-2.0-or-later
/* What goes wrong, and that it is reported as IBA 11.6.2 says. */
#include <errno.h>

#include "kselftest_harness.h"
#include "common.h"

#define LEN	8192

FIXTURE(error)
{
	struct pair p;
};

static void setup(struct __test_metadata *_metadata, struct pair *p,
		  const struct path *path)
{
	struct endpoint_attr attr = { .max_wr = 32, .max_sge = 2 };

	ASSERT_EQ(0, pair_init(p, &attr, path, LEN));
	region_fill(&p->src, 1);
	region_fill(&p->dst, 2);
}

FIXTURE_SETUP(error)
{
	/* 4.1 ms, three times: enough to give up soon. */
	struct path path = {
		.timeout = 10,
		.retry_cnt = 3,
		.no_rnr_retry = true,
	};

	setup(_metadata, &self->p, &path);
}

FIXTURE_TEARDOWN(error)
{
	pair_free(&self->p);
}

/* The request fails with that status, and the requester is in error. */
static void expect_failure(struct __test_metadata *_metadata, struct pair *p,
			   struct ibv_send_wr *wr, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	wr->wr_id = 4711;
	ASSERT_EQ(0, post_send(&p->a, wr));
	ASSERT_EQ(0, endpoint_wait(&p->a, &wc, 1));
	EXPECT_EQ(status, wc.status)
		TH_LOG("status is '%s'", ibv_wc_status_str(wc.status));
	EXPECT_EQ(4711, wc.wr_id);
	EXPECT_EQ(p->a.qp->qp_num, wc.qp_num);
	EXPECT_EQ(IBV_QPS_ERR, endpoint_state(&p->a));
	/* Nothing of the target was touched. */
	EXPECT_EQ(0, region_check(&p->dst, 0, LEN, 2, 0));
	EXPECT_EQ(0, region_check_guards(&p->dst));
}

/* After RESET both work again. */
static void recover(struct __test_metadata *_metadata, struct pair *p)
{
	struct ibv_sge sge = region_sge(&p->src, 0, LEN);
	struct ibv_send_wr wr = send_wr(IBV_WR_SEND, &sge, NULL, 1);
	struct path path = {};
	struct ibv_wc wc;

	ASSERT_EQ(0, endpoint_set_state(&p->a, IBV_QPS_RESET));
	ASSERT_EQ(0, endpoint_set_state(&p->b, IBV_QPS_RESET));
	while (ibv_poll_cq(p->a.cq, 1, &wc) > 0)
		;
	while (ibv_poll_cq(p->b.cq, 1, &wc) > 0)
		;
	ASSERT_EQ(0, endpoints_connect(&p->a, &p->b, &path));
	ASSERT_EQ(0, post_recv(&p->b, region_sge(&p->dst, 0, LEN), 2));
	ASSERT_EQ(0, post_send(&p->a, &wr));
	ASSERT_EQ(0, endpoint_wait(&p->a, &wc, 1));
	EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(1, wc.wr_id);
	ASSERT_EQ(0, endpoint_wait(&p->b, &wc, 1));
	EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(2, wc.wr_id);
	EXPECT_EQ(0, region_check(&p->dst, 0, LEN, 1, 0));
}

TEST_F(error, bad_lkey)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 100);
	struct ibv_send_wr wr = send_wr(IBV_WR_RDMA_WRITE, &sge, &p->dst, 0);

	RXE_DIFFERS(&p->dev, "the failed request itself is flushed");
	sge.lkey ^= 0x55500;
	expect_failure(_metadata, p, &wr, IBV_WC_LOC_PROT_ERR);
	recover(_metadata, p);
}

/* The low byte of a key is its variant: an old one is another key. */
TEST_F(error, stale_lkey)
{
	struct pair *p = &self->p;
	struct region old = {};
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	RXE_DIFFERS(&p->dev, "the failed request itself is flushed");
	ASSERT_EQ(0, region_init(&old, p->dev.pd, 100, ALL_ACCESS));
	sge = region_sge(&old, 0, 100);
	ASSERT_EQ(0, ibv_dereg_mr(old.mr));
	old.mr = NULL;
	wr = send_wr(IBV_WR_RDMA_WRITE, &sge, &p->dst, 0);
	expect_failure(_metadata, p, &wr, IBV_WC_LOC_PROT_ERR);
	region_free(&old);
}

TEST_F(error, local_range)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 1, LEN);
	struct ibv_send_wr wr = send_wr(IBV_WR_RDMA_WRITE, &sge, &p->dst, 0);

	RXE_DIFFERS(&p->dev, "the failed request itself is flushed");
	expect_failure(_metadata, p, &wr, IBV_WC_LOC_PROT_ERR);
}

/* The second piece is bad: what the first says is not sent either. */
TEST_F(error, second_sge)
{
	struct pair *p = &self->p;
	struct ibv_sge sges[2] = {
		region_sge(&p->src, 0, 100), region_sge(&p->src, 100, 100) };
	struct ibv_send_wr wr = send_wr(IBV_WR_RDMA_WRITE, sges, &p->dst, 0);

	RXE_DIFFERS(&p->dev, "the failed request itself is flushed");
	sges[1].lkey ^= 0x55500;
	wr.num_sge = 2;
	expect_failure(_metadata, p, &wr, IBV_WC_LOC_PROT_ERR);
}

TEST_F(error, lkey_of_other_pd)
{
	struct pair *p = &self->p;
	struct ibv_pd *pd = ibv_alloc_pd(p->dev.context);
	struct region r = {};
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	RXE_DIFFERS(&p->dev, "the failed request itself is flushed");
	ASSERT_NE(NULL, pd);
	ASSERT_EQ(0, region_init(&r, pd, 100, ALL_ACCESS));
	sge = region_sge(&r, 0, 100);
	wr = send_wr(IBV_WR_RDMA_WRITE, &sge, &p->dst, 0);
	expect_failure(_metadata, p, &wr, IBV_WC_LOC_PROT_ERR);
	region_free(&r);
	EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

/* A READ must be able to write its result. */
TEST_F(error, read_into_read_only)
{
	struct pair *p = &self->p;
	struct region r = {};
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	ASSERT_EQ(0, region_init(&r, p->dev.pd, 100, 0));
	sge = region_sge(&r, 0, 100);
	wr = send_wr(IBV_WR_RDMA_READ, &sge, &p->dst, 0);
	expect_failure(_metadata, p, &wr, IBV_WC_LOC_PROT_ERR);
	EXPECT_EQ(0, region_check(&r, 0, 100, 0, 0));
	region_free(&r);
}

TEST_F(error, bad_rkey)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 100);
	struct ibv_send_wr wr;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(opcodes); i++) {
		region_fill(&p->dst, 2);
		wr = send_wr(opcodes[i], &sge, &p->dst, 0);
		wr.wr.rdma.rkey ^= 0x55500;
		expect_failure(_metadata, p, &wr, IBV_WC_REM_ACCESS_ERR);
		EXPECT_EQ(0, region_check(&p->src, 0, LEN, 1, 0));
		recover(_metadata, p);
	}
}

TEST_F(error, stale_rkey)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 100);
	struct ibv_send_wr wr;
	struct region old = {};

	ASSERT_EQ(0, region_init(&old, p->dev.pd, 100, ALL_ACCESS));
	wr = send_wr(IBV_WR_RDMA_WRITE, &sge, &old, 0);
	ASSERT_EQ(0, ibv_dereg_mr(old.mr));
	old.mr = NULL;
	expect_failure(_metadata, p, &wr, IBV_WC_REM_ACCESS_ERR);
	EXPECT_EQ(0, region_check(&old, 0, 100, 0, 0));
	region_free(&old);
}

TEST_F(error, remote_range)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 100);
	struct ibv_send_wr wr = send_wr(IBV_WR_RDMA_WRITE, &sge, &p->dst, 0);

	wr.wr.rdma.remote_addr += LEN - 99;
	expect_failure(_metadata, p, &wr, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(error, remote_range_before)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 100);
	struct ibv_send_wr wr = send_wr(IBV_WR_RDMA_READ, &sge, &p->dst, 0);

	wr.wr.rdma.remote_addr -= 1;
	expect_failure(_metadata, p, &wr, IBV_WC_REM_ACCESS_ERR);
}

/* The end of the range must not wrap around the address space. */
TEST_F(error, remote_range_wraps)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 100);
	struct ibv_send_wr wr = send_wr(IBV_WR_RDMA_WRITE, &sge, &p->dst, 0);

	wr.wr.rdma.remote_addr = UINT64_MAX - 49;
	expect_failure(_metadata, p, &wr, IBV_WC_REM_ACCESS_ERR);
}

static void remote_rights(struct __test_metadata *_metadata, struct pair *p,
			  enum ibv_wr_opcode opcode, int access)
{
	struct ibv_sge sge = region_sge(&p->src, 0, 8);
	struct ibv_send_wr wr;
	struct region r = {};

	ASSERT_EQ(0, region_init(&r, p->dev.pd, 4096, access));
	wr = send_wr(opcode, &sge, &r, 0);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)r.buf;
		wr.wr.atomic.rkey = r.mr->rkey;
	}
	expect_failure(_metadata, p, &wr, IBV_WC_REM_ACCESS_ERR);
	EXPECT_EQ(0, region_check(&r, 0, 4096, 0, 0));
	region_free(&r);
}

TEST_F(error, no_right_to_write)
{
	remote_rights(_metadata, &self->p, IBV_WR_RDMA_WRITE,
		      ALL_ACCESS & ~IBV_ACCESS_REMOTE_WRITE);
}

TEST_F(error, no_right_to_read)
{
	remote_rights(_metadata, &self->p, IBV_WR_RDMA_READ,
		      ALL_ACCESS & ~IBV_ACCESS_REMOTE_READ);
}

TEST_F(error, no_right_to_atomics)
{
	if (self->p.dev.attr.atomic_cap == IBV_ATOMIC_NONE)
		SKIP(return, "the device has no atomics");
	remote_rights(_metadata, &self->p, IBV_WR_ATOMIC_FETCH_AND_ADD,
		      ALL_ACCESS & ~IBV_ACCESS_REMOTE_ATOMIC);
}

TEST_F(error, rkey_of_other_pd)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 100);
	struct ibv_pd *pd = ibv_alloc_pd(p->dev.context);
	struct region r = {};
	struct ibv_send_wr wr;

	ASSERT_NE(NULL, pd);
	ASSERT_EQ(0, region_init(&r, pd, 100, ALL_ACCESS));
	wr = send_wr(IBV_WR_RDMA_WRITE, &sge, &r, 0);
	expect_failure(_metadata, p, &wr, IBV_WC_REM_ACCESS_ERR);
	EXPECT_EQ(0, region_check(&r, 0, 100, 0, 0));
	region_free(&r);
	EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

/* C9-88: of no bytes, nothing is checked. */
TEST_F(error, zero_length_needs_no_key)
{
	struct pair *p = &self->p;
	struct ibv_send_wr wr = send_wr(IBV_WR_RDMA_WRITE, NULL, NULL, 0);

	wr.wr.rdma.rkey = 0xdead00;
	wr.wr.rdma.remote_addr = 0x123456;
	ASSERT_EQ(0, post_send(&p->a, &wr));
	ASSERT_EQ(0, endpoint_wait_status(&p->a, IBV_WC_SUCCESS));
	wr.opcode = IBV_WR_RDMA_READ;
	ASSERT_EQ(0, post_send(&p->a, &wr));
	ASSERT_EQ(0, endpoint_wait_status(&p->a, IBV_WC_SUCCESS));
}

TEST_F(error, rnr_retry_exceeded)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 100);
	struct ibv_send_wr wr = send_wr(IBV_WR_SEND, &sge, NULL, 0);

	expect_failure(_metadata, p, &wr, IBV_WC_RNR_RETRY_EXC_ERR);
	/* The responder has done nothing wrong. */
	EXPECT_EQ(IBV_QPS_RTS, endpoint_state(&p->b));
	recover(_metadata, p);
}

TEST_F(error, no_peer)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 100);
	struct ibv_send_wr wr = send_wr(IBV_WR_RDMA_WRITE, &sge, &p->dst, 0);

	ASSERT_EQ(0, ibv_destroy_qp(p->b.qp));
	p->b.qp = NULL;
	expect_failure(_metadata, p, &wr, IBV_WC_RETRY_EXC_ERR);
}

/* A QP in RESET does not hear, as if it were not there. */
TEST_F(error, peer_in_reset)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 100);
	struct ibv_send_wr wr = send_wr(IBV_WR_RDMA_READ, &sge, &p->dst, 0);

	ASSERT_EQ(0, endpoint_set_state(&p->b, IBV_QPS_RESET));
	expect_failure(_metadata, p, &wr, IBV_WC_RETRY_EXC_ERR);
	recover(_metadata, p);
}

TEST_F(error, receive_too_small)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 101);
	struct ibv_send_wr wr = send_wr(IBV_WR_SEND, &sge, NULL, 0);
	struct ibv_wc wc;

	RXE_DIFFERS(&p->dev, "remote operation error");
	ASSERT_EQ(0, post_recv(&p->b, region_sge(&p->dst, 0, 100), 99));
	ASSERT_EQ(0, post_send(&p->a, &wr));
	ASSERT_EQ(0, endpoint_wait_status(&p->a, IBV_WC_REM_INV_REQ_ERR));
	ASSERT_EQ(0, endpoint_wait(&p->b, &wc, 1));
	EXPECT_EQ(IBV_WC_LOC_LEN_ERR, wc.status);
	EXPECT_EQ(99, wc.wr_id);
	EXPECT_EQ(0, region_check(&p->dst, 100, LEN - 100, 2, 100));
	recover(_metadata, p);
}

TEST_F(error, receive_without_key)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 100);
	struct ibv_sge bad = region_sge(&p->dst, 0, 100);
	struct ibv_send_wr wr = send_wr(IBV_WR_SEND, &sge, NULL, 0);
	struct ibv_wc wc;

	RXE_DIFFERS(&p->dev, "local QP operation error");
	bad.lkey ^= 0x55500;
	ASSERT_EQ(0, post_recv(&p->b, bad, 99));
	ASSERT_EQ(0, post_send(&p->a, &wr));
	ASSERT_EQ(0, endpoint_wait_status(&p->a, IBV_WC_REM_OP_ERR));
	ASSERT_EQ(0, endpoint_wait(&p->b, &wc, 1));
	EXPECT_EQ(IBV_WC_LOC_PROT_ERR, wc.status);
	EXPECT_EQ(99, wc.wr_id);
	EXPECT_EQ(0, region_check(&p->dst, 0, LEN, 2, 0));
	recover(_metadata, p);
}

/* What was posted behind a failure is flushed, in order. */
TEST_F(error, flush_behind_failure)
{
	enum { N = 10 };
	struct pair *p = &self->p;
	struct ibv_sge good = region_sge(&p->src, 0, 16), bad = good;
	struct ibv_send_wr wrs[N], *bad_wr;
	struct ibv_wc wc[N];
	int i;

	RXE_DIFFERS(&p->dev, "the failed request itself is flushed");
	bad.lkey ^= 0x55500;
	for (i = 0; i < N; i++) {
		wrs[i] = send_wr(IBV_WR_RDMA_WRITE, i == 3 ? &bad : &good,
				 &p->dst, i);
		/* Flushed requests complete whether signaled or not. */
		if (i > 3 && i % 2)
			wrs[i].send_flags = 0;
		wrs[i].next = i + 1 < N ? &wrs[i + 1] : NULL;
	}
	ASSERT_EQ(0, ibv_post_send(p->a.qp, wrs, &bad_wr));
	ASSERT_EQ(0, endpoint_wait(&p->a, wc, N));
	for (i = 0; i < N; i++) {
		EXPECT_EQ(i, wc[i].wr_id);
		EXPECT_EQ(i < 3 ? IBV_WC_SUCCESS :
			  i == 3 ? IBV_WC_LOC_PROT_ERR : IBV_WC_WR_FLUSH_ERR,
			  wc[i].status);
	}
}

TEST_F(error, flush_by_modify)
{
	enum { N = 20 };
	struct pair *p = &self->p;
	struct ibv_wc wc[N];
	int i;

	for (i = 0; i < N; i++)
		ASSERT_EQ(0, post_recv(&p->b, region_sge(&p->dst, i * 8, 8),
				       i));
	ASSERT_EQ(0, endpoint_set_state(&p->b, IBV_QPS_ERR));
	ASSERT_EQ(0, endpoint_wait(&p->b, wc, N));
	for (i = 0; i < N; i++) {
		EXPECT_EQ(IBV_WC_WR_FLUSH_ERR, wc[i].status);
		EXPECT_EQ(i, wc[i].wr_id);
	}
}

/* In error, work is taken and flushed: here more of it than the rings hold. */
TEST_F(error, send_in_error)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 16);
	struct ibv_send_wr wr = send_wr(IBV_WR_RDMA_WRITE, &sge, &p->dst, 0);
	struct ibv_wc wc;
	int i;

	ASSERT_EQ(0, endpoint_set_state(&p->a, IBV_QPS_ERR));
	for (i = 0; i < 200; i++) {
		wr.wr_id = i;
		ASSERT_EQ(0, post_send(&p->a, &wr));
		ASSERT_EQ(0, endpoint_wait(&p->a, &wc, 1));
		EXPECT_EQ(IBV_WC_WR_FLUSH_ERR, wc.status);
		EXPECT_EQ(i, wc.wr_id);
	}
	EXPECT_EQ(0, region_check(&p->dst, 0, LEN, 2, 0));
}

TEST_F(error, receive_in_error)
{
	struct pair *p = &self->p;
	struct ibv_wc wc;
	int i;

	RXE_DIFFERS(&p->dev, "receives are not flushed");
	ASSERT_EQ(0, endpoint_set_state(&p->a, IBV_QPS_ERR));
	for (i = 0; i < 200; i++) {
		ASSERT_EQ(0, post_recv(&p->a, region_sge(NULL, 0, 0), i));
		ASSERT_EQ(0, endpoint_wait(&p->a, &wc, 1));
		EXPECT_EQ(IBV_WC_WR_FLUSH_ERR, wc.status);
		EXPECT_EQ(i, wc.wr_id);
	}
}

/* Receives posted to a responder that failed by itself are flushed as well. */
TEST_F(error, post_receive_after_failure)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 101);
	struct ibv_send_wr wr = send_wr(IBV_WR_SEND, &sge, NULL, 0);
	struct ibv_wc wc;
	int i;

	RXE_DIFFERS(&p->dev, "receives are not flushed");
	ASSERT_EQ(0, post_recv(&p->b, region_sge(&p->dst, 0, 1), 0));
	ASSERT_EQ(0, post_send(&p->a, &wr));
	ASSERT_EQ(0, endpoint_wait_status(&p->a, IBV_WC_REM_INV_REQ_ERR));
	/* The first without having seen the failure. */
	for (i = 1; i < 5; i++) {
		ASSERT_EQ(0, post_recv(&p->b, region_sge(NULL, 0, 0), i));
		ASSERT_EQ(0, endpoint_wait(&p->b, &wc, 1));
		EXPECT_EQ(i - 1, wc.wr_id);
		EXPECT_EQ(i == 1 ? IBV_WC_LOC_LEN_ERR : IBV_WC_WR_FLUSH_ERR,
			  wc.status);
	}
}

/* The neighbours of a QP in error notice nothing. */
TEST_F(error, others_go_on)
{
	struct endpoint_attr attr = {};
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 100);
	struct ibv_send_wr bad = send_wr(IBV_WR_RDMA_WRITE, &sge, &p->dst, 0);
	struct ibv_send_wr wr = bad;
	struct path path = {};
	struct endpoint ep;

	ASSERT_EQ(0, endpoint_init(&ep, &p->dev, &attr));
	ASSERT_EQ(0, endpoints_connect(&ep, &ep, &path));
	bad.wr.rdma.rkey ^= 0x55500;
	expect_failure(_metadata, p, &bad, IBV_WC_REM_ACCESS_ERR);
	ASSERT_EQ(0, post_send(&ep, &wr));
	ASSERT_EQ(0, endpoint_wait_status(&ep, IBV_WC_SUCCESS));
	EXPECT_EQ(0, region_check(&p->dst, 0, 100, 1, 0));
	endpoint_free(&ep);
}

TEST_HARNESS_MAIN
