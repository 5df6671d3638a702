// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Every operation of the connected transports, at every path MTU and at the
 * sizes where the number of packets changes; every byte is checked.
 */
#include <arpa/inet.h>

#include "kselftest_harness.h"
#include "common.h"

#define MAX_SIZE	(1u << 20)
#define IMM		0xcafe1234

struct transport {
	struct pair p;
	enum ibv_qp_type type;
	uint32_t mtu;		/* bytes */
	uint64_t seed;
};

static void transport_init(struct __test_metadata *_metadata,
			   struct transport *t, enum ibv_qp_type type,
			   enum ibv_mtu mtu, enum family family)
{
	struct endpoint_attr attr = {
		.type = type,
		.max_sge = 16,
		.max_inline = 128,
	};
	struct path path = { .mtu = mtu, .family = family };
	struct device dev;

	ASSERT_EQ(0, device_open(&dev));
	if (mtu > dev.port.active_mtu)
		SKIP(return, "the port's MTU is smaller");
	device_close(&dev);
	ASSERT_EQ(0, pair_init(&t->p, &attr, &path, MAX_SIZE));
	t->type = type;
	t->mtu = mtu_bytes(mtu);
	t->seed = 1;
}

/* What both connected transports do. */
FIXTURE(connected)
{
	struct transport t;
};

FIXTURE_VARIANT(connected)
{
	enum ibv_qp_type type;
	enum ibv_mtu mtu;
	enum family family;
};

#define CONNECTED(type_, bytes, family_)				\
	FIXTURE_VARIANT_ADD(connected, type_##_##bytes##_##family_)	\
	{								\
		.type = IBV_QPT_##type_,				\
		.mtu = IBV_MTU_##bytes,					\
		.family = family_,					\
	}
CONNECTED(RC, 256, IPV4);
CONNECTED(RC, 512, IPV4);
CONNECTED(RC, 1024, IPV4);
CONNECTED(RC, 1024, IPV6);
CONNECTED(RC, 2048, IPV4);
CONNECTED(RC, 4096, IPV4);
CONNECTED(UC, 256, IPV4);
CONNECTED(UC, 1024, IPV6);
CONNECTED(UC, 4096, IPV4);

FIXTURE_SETUP(connected)
{
	transport_init(_metadata, &self->t, variant->type, variant->mtu,
		       variant->family);
}

FIXTURE_TEARDOWN(connected)
{
	pair_free(&self->t.p);
}

/* What only the reliable one does. */
FIXTURE(reliable)
{
	struct transport t;
};

FIXTURE_VARIANT(reliable)
{
	enum ibv_mtu mtu;
};

#define RELIABLE(bytes)							\
	FIXTURE_VARIANT_ADD(reliable, RC_##bytes)			\
	{								\
		.mtu = IBV_MTU_##bytes,					\
	}
RELIABLE(256);
RELIABLE(512);
RELIABLE(1024);
RELIABLE(2048);
RELIABLE(4096);

FIXTURE_SETUP(reliable)
{
	transport_init(_metadata, &self->t, IBV_QPT_RC, variant->mtu, IPV4);
}

FIXTURE_TEARDOWN(reliable)
{
	pair_free(&self->t.p);
}

struct op {
	enum ibv_wr_opcode opcode;
	enum ibv_wc_opcode send_wc;
	enum ibv_wc_opcode recv_wc;
	bool takes_recv;	/* completes a receive */
	bool to_recv_buffer;	/* data goes where the receive says */
	bool imm;
};

static const struct op op_send = {
	IBV_WR_SEND, IBV_WC_SEND, IBV_WC_RECV, true, true, false };
static const struct op op_send_imm = {
	IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, IBV_WC_RECV, true, true, true };
static const struct op op_write = {
	IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, 0, false, false, false };
static const struct op op_write_imm = {
	IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE,
	IBV_WC_RECV_RDMA_WITH_IMM, true, false, true };

/* Moves num_sge pieces of src, in order, to the start of dst. */
static void transfer(struct __test_metadata *_metadata,
		     struct transport *t, const struct op *op,
		     struct ibv_sge *sges, int num_sge, unsigned int flags,
		     uint32_t size)
{
	struct pair *p = &t->p;
	struct ibv_send_wr wr = send_wr(op->opcode, sges, &p->dst, size);
	struct ibv_wc wc;

	wr.num_sge = num_sge;
	wr.send_flags |= flags;
	wr.imm_data = htonl(IMM);
	if (op->takes_recv)
		ASSERT_EQ(0, post_recv(&p->b, op->to_recv_buffer ?
				       region_sge(&p->dst, 0, size) :
				       region_sge(NULL, 0, 0), ~0ull - size));
	ASSERT_EQ(0, post_send(&p->a, &wr));

	ASSERT_EQ(0, endpoint_wait(&p->a, &wc, 1));
	ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(size, wc.wr_id);
	EXPECT_EQ(op->send_wc, wc.opcode);
	EXPECT_EQ(p->a.qp->qp_num, wc.qp_num);

	if (!op->takes_recv)
		return;
	ASSERT_EQ(0, endpoint_wait(&p->b, &wc, 1));
	ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(~0ull - size, wc.wr_id);
	EXPECT_EQ(op->recv_wc, wc.opcode);
	EXPECT_EQ(p->b.qp->qp_num, wc.qp_num);
	EXPECT_EQ(size, wc.byte_len);
	EXPECT_EQ(op->imm ? IBV_WC_WITH_IMM : 0,
		  wc.wc_flags & IBV_WC_WITH_IMM);
	if (op->imm)
		EXPECT_EQ(IMM, ntohl(wc.imm_data));
}

/*
 * An unreliable WRITE leaves no trace at the responder: a message behind it
 * that does tells when it has arrived.
 */
static void settle(struct __test_metadata *_metadata, struct transport *t)
{
	struct ibv_sge none = region_sge(NULL, 0, 0);

	if (t->type == IBV_QPT_UC)
		transfer(_metadata, t, &op_send, &none, 0, 0, 0);
}

static void renew(struct transport *t)
{
	t->seed += 2;
	region_fill(&t->p.src, t->seed);
	region_fill(&t->p.dst, t->seed + 1);
}

/* dst begins with size bytes of src; nothing else was written. */
static void check(struct __test_metadata *_metadata,
		  struct transport *t, uint32_t size)
{
	struct pair *p = &t->p;

	EXPECT_EQ(0, region_check(&p->dst, 0, size, t->seed, 0));
	EXPECT_EQ(0, region_check(&p->dst, size, p->dst.len - size,
				  t->seed + 1, size));
	EXPECT_EQ(0, region_check(&p->src, 0, p->src.len, t->seed, 0));
	EXPECT_EQ(0, region_check_guards(&p->dst));
	EXPECT_EQ(0, region_check_guards(&p->src));
}

static void all_sizes(struct __test_metadata *_metadata,
		      struct transport *t,
		      const struct op *op)
{
	uint32_t sizes[] = { 0, 1, t->mtu - 1, t->mtu, t->mtu + 1,
			     2 * t->mtu, 64 << 10, MAX_SIZE };
	struct ibv_sge sge;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		TH_LOG("%u bytes", sizes[i]);
		renew(t);
		sge = region_sge(&t->p.src, 0, sizes[i]);
		transfer(_metadata, t, op, &sge, sizes[i] ? 1 : 0, 0,
			 sizes[i]);
		settle(_metadata, t);
		check(_metadata, t, sizes[i]);
	}
}

TEST_F_TIMEOUT(connected, send, 120)
{
	all_sizes(_metadata, &self->t, &op_send);
}

TEST_F_TIMEOUT(connected, send_imm, 120)
{
	all_sizes(_metadata, &self->t, &op_send_imm);
}

TEST_F_TIMEOUT(connected, write, 120)
{
	all_sizes(_metadata, &self->t, &op_write);
}

TEST_F_TIMEOUT(connected, write_imm, 120)
{
	all_sizes(_metadata, &self->t, &op_write_imm);
}

TEST_F_TIMEOUT(reliable, read, 120)
{
	struct transport *t = &self->t;
	struct pair *p = &t->p;
	uint32_t sizes[] = { 0, 1, t->mtu - 1, t->mtu, t->mtu + 1,
			     2 * t->mtu, 64 << 10, MAX_SIZE };
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;
	unsigned int i;


	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		TH_LOG("%u bytes", sizes[i]);
		renew(t);
		sge = region_sge(&p->dst, 0, sizes[i]);
		wr = send_wr(IBV_WR_RDMA_READ, &sge, &p->src, i);
		ASSERT_EQ(0, post_send(&p->a, &wr));
		ASSERT_EQ(0, endpoint_wait(&p->a, &wc, 1));
		ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
		EXPECT_EQ(IBV_WC_RDMA_READ, wc.opcode);
		EXPECT_EQ(i, wc.wr_id);
		check(_metadata, t, sizes[i]);
	}
}

/* Unaligned on both sides, so that pieces, packets and pages end apart. */
TEST_F_TIMEOUT(connected, unaligned, 120)
{
	struct transport *t = &self->t;
	struct pair *p = &t->p;
	uint32_t size = 3 * t->mtu + 5;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	unsigned int off;

	for (off = 1; off <= 9; off += 2) {
		renew(t);
		sge = region_sge(&p->src, off, size);
		wr = send_wr(IBV_WR_RDMA_WRITE, &sge, &p->dst, off);
		wr.wr.rdma.remote_addr += 4096 - 3;
		ASSERT_EQ(0, post_send(&p->a, &wr));
		ASSERT_EQ(0, endpoint_wait_status(&p->a, IBV_WC_SUCCESS));
		settle(_metadata, t);
		EXPECT_EQ(0, region_check(&p->dst, 0, 4096 - 3,
					  t->seed + 1, 0));
		EXPECT_EQ(0, region_check(&p->dst, 4096 - 3, size,
					  t->seed, off));
		EXPECT_EQ(0, region_check(&p->dst, 4096 - 3 + size,
					  p->dst.len - size - 4096 + 3,
					  t->seed + 1, 4096 - 3 + size));
	}
}

/* Sixteen pieces of different lengths, one of them empty. */
TEST_F_TIMEOUT(connected, gather, 120)
{
	static const struct op *const ops[] = {
		&op_send, &op_write, &op_write_imm };
	struct transport *t = &self->t;
	struct pair *p = &t->p;
	struct ibv_sge sges[16];
	unsigned int op, i;
	uint32_t size;

	for (op = 0; op < ARRAY_SIZE(ops); op++) {
		renew(t);
		size = 0;
		for (i = 0; i < 16; i++) {
			uint32_t len = i == 5 ? 0 : i * t->mtu / 3 + i + 1;

			sges[i] = region_sge(&p->src, size, len);
			size += len;
		}
		transfer(_metadata, t, ops[op], sges, 16, 0, size);
		settle(_metadata, t);
		check(_metadata, t, size);
	}
}

TEST_F_TIMEOUT(connected, scatter, 120)
{
	struct transport *t = &self->t;
	struct pair *p = &t->p;
	struct ibv_recv_wr *bad, recv = { .num_sge = 16 };
	struct ibv_sge sge, sges[16];
	struct ibv_send_wr wr;
	uint32_t size = 0;
	unsigned int i;

	renew(t);
	for (i = 0; i < 16; i++) {
		uint32_t len = i * t->mtu / 5 + i + 1;

		/* The pieces lie in the opposite order, with gaps. */
		sges[i] = region_sge(&p->dst, (15 - i) * 16384, len);
		size += len;
	}
	recv.sg_list = sges;
	ASSERT_EQ(0, ibv_post_recv(p->b.qp, &recv, &bad));
	sge = region_sge(&p->src, 0, size);
	wr = send_wr(IBV_WR_SEND, &sge, NULL, 0);
	ASSERT_EQ(0, post_send(&p->a, &wr));
	ASSERT_EQ(0, endpoint_wait_status(&p->a, IBV_WC_SUCCESS));
	ASSERT_EQ(0, endpoint_wait_status(&p->b, IBV_WC_SUCCESS));

	for (i = 0, size = 0; i < 16; i++) {
		size_t off = (15 - i) * 16384;

		EXPECT_EQ(0, region_check(&p->dst, off, sges[i].length,
					  t->seed, size));
		EXPECT_EQ(0, region_check(&p->dst, off + sges[i].length,
					  16384 - sges[i].length,
					  t->seed + 1,
					  off + sges[i].length));
		size += sges[i].length;
	}
	EXPECT_EQ(0, region_check_guards(&p->dst));
}

/* Inline data is taken at once: the buffer may change right after posting. */
TEST_F_TIMEOUT(connected, inline_data, 120)
{
	static const struct op *const ops[] = {
		&op_send, &op_send_imm, &op_write, &op_write_imm };
	static const uint32_t lengths[] = { 0, 1, 15, 16, 17, 63, 64, 100 };
	struct transport *t = &self->t;
	struct pair *p = &t->p;
	struct ibv_sge sges[2];
	unsigned int op, i;

	ASSERT_GE(p->a.cap.max_inline_data, 128);
	for (op = 0; op < ARRAY_SIZE(ops); op++) {
		for (i = 0; i < ARRAY_SIZE(lengths); i++) {
			uint32_t len = lengths[i];

			renew(t);
			/* Unregistered memory: the lkey is not looked at. */
			sges[0] = region_sge(&p->src, 0, len);
			sges[1] = region_sge(&p->src, len, 28);
			sges[0].lkey = 0;
			sges[1].lkey = 0;
			transfer(_metadata, t, ops[op], sges, 2,
				 IBV_SEND_INLINE, len + 28);
			settle(_metadata, t);
			check(_metadata, t, len + 28);
		}
	}
}

TEST_F_TIMEOUT(connected, inline_is_copied, 120)
{
	struct transport *t = &self->t;
	struct pair *p = &t->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 64);
	struct ibv_send_wr wr = send_wr(IBV_WR_SEND, &sge, NULL, 0);

	renew(t);
	wr.send_flags |= IBV_SEND_INLINE;
	ASSERT_EQ(0, post_recv(&p->b, region_sge(&p->dst, 0, 64), 0));
	ASSERT_EQ(0, post_send(&p->a, &wr));
	memset(p->src.buf, 0, 64);
	ASSERT_EQ(0, endpoint_wait_status(&p->b, IBV_WC_SUCCESS));
	EXPECT_EQ(0, region_check(&p->dst, 0, 64, t->seed, 0));
}

TEST_F_TIMEOUT(reliable, atomics, 120)
{
	struct transport *t = &self->t;
	struct pair *p = &t->p;
	uint64_t *target = (uint64_t *)(p->dst.buf + 64);
	uint64_t *result = (uint64_t *)p->src.buf;
	struct ibv_sge sge = region_sge(&p->src, 0, 8);
	struct ibv_send_wr wr;
	struct ibv_wc wc;
	uint64_t sum;
	int i;

	if (p->dev.attr.atomic_cap == IBV_ATOMIC_NONE)
		SKIP(return, "the device has no atomics");

	renew(t);
	*target = sum = UINT64_C(0xfffffffffffffff0);
	for (i = 1; i <= 20; i++) {
		wr = send_wr(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, NULL, i);
		wr.wr.atomic.remote_addr = (uintptr_t)target;
		wr.wr.atomic.rkey = p->dst.mr->rkey;
		wr.wr.atomic.compare_add = i;
		ASSERT_EQ(0, post_send(&p->a, &wr));
		ASSERT_EQ(0, endpoint_wait(&p->a, &wc, 1));
		ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
		EXPECT_EQ(IBV_WC_FETCH_ADD, wc.opcode);
		EXPECT_EQ(8, wc.byte_len);
		EXPECT_EQ(sum, *result);
		sum += i;
		EXPECT_EQ(sum, *target);
	}

	wr = send_wr(IBV_WR_ATOMIC_CMP_AND_SWP, &sge, NULL, 0);
	wr.wr.atomic.remote_addr = (uintptr_t)target;
	wr.wr.atomic.rkey = p->dst.mr->rkey;
	wr.wr.atomic.compare_add = sum;
	wr.wr.atomic.swap = 42;
	/* The first matches and the second does not. */
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, post_send(&p->a, &wr));
		ASSERT_EQ(0, endpoint_wait(&p->a, &wc, 1));
		ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
		EXPECT_EQ(IBV_WC_COMP_SWAP, wc.opcode);
		EXPECT_EQ(i ? 42 : sum, *result);
		EXPECT_EQ(42, *target);
	}
	EXPECT_EQ(0, region_check(&p->dst, 0, 64, t->seed + 1, 0));
	EXPECT_EQ(0, region_check(&p->dst, 72, 64, t->seed + 1, 72));
}

/* Many requests in flight, all directions at once, in the order of posting. */
TEST_F_TIMEOUT(connected, pipeline, 120)
{
	enum { N = 16 };
	struct transport *t = &self->t;
	struct pair *p = &t->p;
	uint32_t chunk = 2 * t->mtu + 3;
	struct ibv_sge sges[N];
	struct ibv_send_wr wrs[N], *bad;
	struct ibv_wc wc[N];
	int i;

	renew(t);
	for (i = 0; i < N; i++)
		ASSERT_EQ(0, post_recv(&p->b, region_sge(&p->dst, i * chunk,
							 chunk), i));
	for (i = 0; i < N; i++) {
		sges[i] = region_sge(&p->src, i * chunk, chunk);
		wrs[i] = send_wr(IBV_WR_SEND, &sges[i], NULL, 100 + i);
		wrs[i].next = i + 1 < N ? &wrs[i + 1] : NULL;
	}
	ASSERT_EQ(0, ibv_post_send(p->a.qp, wrs, &bad));
	ASSERT_EQ(0, endpoint_wait(&p->a, wc, N));
	for (i = 0; i < N; i++) {
		ASSERT_EQ(IBV_WC_SUCCESS, wc[i].status);
		EXPECT_EQ(100 + i, wc[i].wr_id);
	}
	ASSERT_EQ(0, endpoint_wait(&p->b, wc, N));
	for (i = 0; i < N; i++) {
		ASSERT_EQ(IBV_WC_SUCCESS, wc[i].status);
		EXPECT_EQ(i, wc[i].wr_id);
		EXPECT_EQ(chunk, wc[i].byte_len);
	}
	check(_metadata, t, N * chunk);
}

/* A READ fetches what the WRITE before it wrote, and a fenced SEND waits. */
TEST_F_TIMEOUT(reliable, order, 120)
{
	struct transport *t = &self->t;
	struct pair *p = &t->p;
	uint32_t size = 4 * t->mtu;
	struct ibv_sge out = region_sge(&p->src, 0, size);
	struct ibv_sge back = region_sge(&p->src, size, size);
	struct ibv_send_wr write, read, send;
	struct ibv_wc wc[3];


	renew(t);
	ASSERT_EQ(0, post_recv(&p->b, region_sge(&p->dst, size, size), 0));
	write = send_wr(IBV_WR_RDMA_WRITE, &out, &p->dst, 1);
	read = send_wr(IBV_WR_RDMA_READ, &back, &p->dst, 2);
	send = send_wr(IBV_WR_SEND, &back, NULL, 3);
	send.send_flags |= IBV_SEND_FENCE;
	write.next = &read;
	read.next = &send;
	ASSERT_EQ(0, post_send(&p->a, &write));
	ASSERT_EQ(0, endpoint_wait(&p->a, wc, 3));
	EXPECT_EQ(IBV_WC_SUCCESS, wc[2].status);
	ASSERT_EQ(0, endpoint_wait_status(&p->b, IBV_WC_SUCCESS));
	/* Written, read back, and sent on: the same bytes three times. */
	EXPECT_EQ(0, region_check(&p->dst, 0, size, t->seed, 0));
	EXPECT_EQ(0, region_check(&p->src, size, size, t->seed, 0));
	EXPECT_EQ(0, region_check(&p->dst, size, size, t->seed, 0));
}

TEST_HARNESS_MAIN
