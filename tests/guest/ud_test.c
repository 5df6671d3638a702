// SPDX-License-Identifier: GPL-2.0-or-later
/* Datagrams: the 40 bytes before the data, addressing, Q_Keys, lengths. */
#include <arpa/inet.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>

#include "kselftest_harness.h"
#include "common.h"

#define GRH	40
#define IMM	0x01020304

FIXTURE(ud)
{
	struct pair p;
	struct ibv_ah *ah;
	uint32_t mtu;		/* bytes */
};

FIXTURE_VARIANT(ud)
{
	enum family family;
};

FIXTURE_VARIANT_ADD(ud, IPv4) { .family = IPV4 };
FIXTURE_VARIANT_ADD(ud, IPv6) { .family = IPV6 };

FIXTURE_SETUP(ud)
{
	struct endpoint_attr attr = {
		.type = IBV_QPT_UD,
		.max_sge = 4,
		.max_inline = 64,
	};
	struct path path = {};
	struct pair *p = &self->p;
	struct ibv_ah_attr ah;

	ASSERT_EQ(0, pair_init(p, &attr, &path, 16384));
	ah = device_route(&p->dev, variant->family);
	self->ah = ibv_create_ah(p->dev.pd, &ah);
	ASSERT_NE(NULL, self->ah);
	self->mtu = mtu_bytes(p->dev.port.active_mtu);
	region_fill(&p->src, 1);
	region_fill(&p->dst, 2);
}

FIXTURE_TEARDOWN(ud)
{
	ibv_destroy_ah(self->ah);
	pair_free(&self->p);
}

static struct ibv_send_wr ud_wr(FIXTURE_DATA(ud) *self, struct ibv_sge *sge,
				uint64_t wr_id)
{
	struct ibv_send_wr wr = send_wr(IBV_WR_SEND, sge, NULL, wr_id);

	wr.wr.ud.ah = self->ah;
	wr.wr.ud.remote_qpn = self->p.b.qp->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	return wr;
}

/* UDP 8, BTH 12, DETH 8, data and padding to 4, ICRC 4. */
static uint32_t ip_payload(uint32_t size)
{
	return 8 + 12 + 8 + ((size + 3) & ~3u) + 4;
}

/* IPv4: 20 bytes that are not used, then the header with a valid checksum. */
static void check_ipv4(struct __test_metadata *_metadata, struct pair *p,
		       uint32_t size)
{
	struct iphdr ip;
	uint32_t sum = 0;
	uint16_t word;
	unsigned int i;

	memcpy(&ip, p->dst.buf + 20, sizeof(ip));
	EXPECT_EQ(0x45, p->dst.buf[20]);	/* version and length */
	EXPECT_EQ(IPPROTO_UDP, ip.protocol);
	EXPECT_EQ(0, memcmp(&ip.daddr, p->dev.gid[IPV4].raw + 12, 4));
	EXPECT_EQ(0, memcmp(&ip.saddr, p->dev.gid[IPV4].raw + 12, 4));
	EXPECT_EQ(20 + ip_payload(size), ntohs(ip.tot_len));
	if (p->dev.soft_roce)
		return;		/* rxe leaves old bytes and no checksum */
	for (i = 0; i < 20; i++)
		EXPECT_EQ(0, p->dst.buf[i]);
	for (i = 0; i < sizeof(ip); i += 2) {
		memcpy(&word, (char *)&ip + i, 2);
		sum += word;
	}
	EXPECT_EQ(0xffff, (sum & 0xffff) + (sum >> 16));
}

static void check_ipv6(struct __test_metadata *_metadata, struct pair *p,
		       uint32_t size)
{
	struct ip6_hdr ip;

	memcpy(&ip, p->dst.buf, sizeof(ip));
	EXPECT_EQ(6, p->dst.buf[0] >> 4);
	EXPECT_EQ(IPPROTO_UDP, ip.ip6_nxt);
	EXPECT_EQ(64, ip.ip6_hlim);
	EXPECT_EQ(0, memcmp(&ip.ip6_src, &p->dev.gid[IPV6], 16));
	EXPECT_EQ(0, memcmp(&ip.ip6_dst, &p->dev.gid[IPV6], 16));
	EXPECT_EQ(ip_payload(size), ntohs(ip.ip6_plen));
}

TEST_F_TIMEOUT(ud, sizes, 120)
{
	uint32_t sizes[] = { 0, 1, 2, 3, 4, 63, 64, 65, 1000,
			     self->mtu - 1, self->mtu };
	struct pair *p = &self->p;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		TH_LOG("%u bytes", sizes[i]);
		region_fill(&p->dst, 2);
		ASSERT_EQ(0, post_recv(&p->b, region_sge(&p->dst, 0,
							 GRH + sizes[i]), i));
		sge = region_sge(&p->src, 0, sizes[i]);
		wr = ud_wr(self, &sge, 100 + i);
		ASSERT_EQ(0, post_send(&p->a, &wr));
		ASSERT_EQ(0, endpoint_wait(&p->a, &wc, 1));
		ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
		EXPECT_EQ(IBV_WC_SEND, wc.opcode);
		EXPECT_EQ(100 + i, wc.wr_id);

		ASSERT_EQ(0, endpoint_wait(&p->b, &wc, 1));
		ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
		EXPECT_EQ(IBV_WC_RECV, wc.opcode);
		EXPECT_EQ(i, wc.wr_id);
		EXPECT_EQ(GRH + sizes[i], wc.byte_len);
		EXPECT_EQ(p->a.qp->qp_num, wc.src_qp);
		EXPECT_EQ(p->b.qp->qp_num, wc.qp_num);
		EXPECT_NE(0, wc.wc_flags & IBV_WC_GRH);
		EXPECT_EQ(0, wc.wc_flags & IBV_WC_WITH_IMM);
		if (variant->family == IPV4)
			check_ipv4(_metadata, p, sizes[i]);
		else
			check_ipv6(_metadata, p, sizes[i]);
		EXPECT_EQ(0, region_check(&p->dst, GRH, sizes[i], 1, 0));
		EXPECT_EQ(0, region_check(&p->dst, GRH + sizes[i], 1000, 2,
					  GRH + sizes[i]));
		EXPECT_EQ(0, region_check_guards(&p->dst));
	}
}

TEST_F(ud, immediate)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 10);
	struct ibv_send_wr wr = ud_wr(self, &sge, 0);
	struct ibv_wc wc;

	wr.opcode = IBV_WR_SEND_WITH_IMM;
	wr.imm_data = htonl(IMM);
	ASSERT_EQ(0, post_recv(&p->b, region_sge(&p->dst, 0, 100), 0));
	ASSERT_EQ(0, post_send(&p->a, &wr));
	ASSERT_EQ(0, endpoint_wait(&p->b, &wc, 1));
	ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_NE(0, wc.wc_flags & IBV_WC_WITH_IMM);
	EXPECT_EQ(IMM, ntohl(wc.imm_data));
	EXPECT_EQ(GRH + 10, wc.byte_len);
	EXPECT_EQ(0, region_check(&p->dst, GRH, 10, 1, 0));
}

TEST_F(ud, inline_data)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 3, 61);
	struct ibv_send_wr wr = ud_wr(self, &sge, 0);

	sge.lkey = 0;
	wr.send_flags |= IBV_SEND_INLINE;
	ASSERT_EQ(0, post_recv(&p->b, region_sge(&p->dst, 0, 200), 0));
	ASSERT_EQ(0, post_send(&p->a, &wr));
	memset(p->src.buf, 0, 64);
	ASSERT_EQ(0, endpoint_wait_status(&p->b, IBV_WC_SUCCESS));
	EXPECT_EQ(0, region_check(&p->dst, GRH, 61, 1, 3));
}

TEST_F(ud, gather)
{
	struct pair *p = &self->p;
	struct ibv_sge sges[4] = {
		region_sge(&p->src, 0, 7), region_sge(&p->src, 7, 100),
		region_sge(&p->src, 107, 1), region_sge(&p->src, 108, 300),
	};
	struct ibv_send_wr wr = ud_wr(self, sges, 0);

	wr.num_sge = 4;
	ASSERT_EQ(0, post_recv(&p->b, region_sge(&p->dst, 0, 1000), 0));
	ASSERT_EQ(0, post_send(&p->a, &wr));
	ASSERT_EQ(0, endpoint_wait_status(&p->b, IBV_WC_SUCCESS));
	EXPECT_EQ(0, region_check(&p->dst, GRH, 408, 1, 0));
}

/* Sends a message that cannot arrive, then a good one that must be the first. */
static void send_then_good(struct __test_metadata *_metadata,
			   FIXTURE_DATA(ud) *self, struct ibv_send_wr *lost)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 20);
	struct ibv_send_wr good = ud_wr(self, &sge, 9);
	struct ibv_wc wc;

	ASSERT_EQ(0, post_recv(&p->b, region_sge(&p->dst, 0, p->dst.len), 5));
	ASSERT_EQ(0, post_send(&p->a, lost));
	ASSERT_EQ(0, endpoint_wait_status(&p->a, IBV_WC_SUCCESS));
	ASSERT_EQ(0, post_send(&p->a, &good));
	ASSERT_EQ(0, endpoint_wait_status(&p->a, IBV_WC_SUCCESS));
	ASSERT_EQ(0, endpoint_wait(&p->b, &wc, 1));
	EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(GRH + 20, wc.byte_len);
	EXPECT_EQ(0, region_check(&p->dst, GRH, 20, 1, 0));
}

TEST_F(ud, wrong_qkey)
{
	struct ibv_sge sge = region_sge(&self->p.src, 50, 33);
	struct ibv_send_wr wr = ud_wr(self, &sge, 0);

	wr.wr.ud.remote_qkey = QKEY + 1;
	send_then_good(_metadata, self, &wr);
}

TEST_F(ud, no_such_qp)
{
	struct ibv_sge sge = region_sge(&self->p.src, 50, 33);
	struct ibv_send_wr wr = ud_wr(self, &sge, 0);

	wr.wr.ud.remote_qpn = 0xfffffe;
	send_then_good(_metadata, self, &wr);
}

/* C10-93.1.1: it completes, and nothing is sent. */
TEST_F(ud, longer_than_mtu)
{
	struct ibv_sge sge = region_sge(&self->p.src, 50, self->mtu + 1);
	struct ibv_send_wr wr = ud_wr(self, &sge, 0);

	send_then_good(_metadata, self, &wr);
}

/* Without a receive a datagram is lost, and the QP lives on. */
TEST_F(ud, no_receive)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 50, 33);
	struct ibv_send_wr wr = ud_wr(self, &sge, 0);

	ASSERT_EQ(0, post_send(&p->a, &wr));
	ASSERT_EQ(0, endpoint_wait_status(&p->a, IBV_WC_SUCCESS));
	/* A datagram to oneself comes behind the lost one on the same path. */
	ASSERT_EQ(0, post_recv(&p->a, region_sge(&p->dst, 0, 100), 0));
	wr.wr.ud.remote_qpn = p->a.qp->qp_num;
	ASSERT_EQ(0, post_send(&p->a, &wr));
	ASSERT_EQ(0, endpoint_wait_status(&p->a, IBV_WC_SUCCESS));
	ASSERT_EQ(0, endpoint_wait_status(&p->a, IBV_WC_SUCCESS));
	send_then_good(_metadata, self, &wr);
}

/* The receiver answers with an address that it makes from what it received. */
TEST_F(ud, answer)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 50);
	struct ibv_send_wr wr = ud_wr(self, &sge, 0);
	struct ibv_ah *ah;
	struct ibv_wc wc;

	if (variant->family == IPV4)
		RXE_DIFFERS(&p->dev, "the header's checksum is not set");
	ASSERT_EQ(0, post_recv(&p->b, region_sge(&p->dst, 0, 100), 0));
	ASSERT_EQ(0, post_recv(&p->a, region_sge(&p->dst, 4096, 100), 0));
	ASSERT_EQ(0, post_send(&p->a, &wr));
	ASSERT_EQ(0, endpoint_wait_status(&p->a, IBV_WC_SUCCESS));
	ASSERT_EQ(0, endpoint_wait(&p->b, &wc, 1));
	ah = ibv_create_ah_from_wc(p->dev.pd, &wc,
				   (struct ibv_grh *)p->dst.buf, PORT);
	ASSERT_NE(NULL, ah);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = wc.src_qp;
	ASSERT_EQ(0, post_send(&p->b, &wr));
	ASSERT_EQ(0, endpoint_wait_status(&p->b, IBV_WC_SUCCESS));
	ASSERT_EQ(0, endpoint_wait_status(&p->a, IBV_WC_SUCCESS));
	EXPECT_EQ(0, region_check(&p->dst, 4096 + GRH, 50, 1, 0));
	EXPECT_EQ(0, ibv_destroy_ah(ah));
}

/* Connected operations are refused when posted. */
TEST_F(ud, not_for_ud)
{
	struct pair *p = &self->p;
	struct ibv_sge sge = region_sge(&p->src, 0, 8);
	struct ibv_send_wr wr = ud_wr(self, &sge, 0);

	RXE_DIFFERS(&p->dev, "it is found out later");
	wr.opcode = IBV_WR_RDMA_WRITE;
	EXPECT_NE(0, post_send(&p->a, &wr));
	wr.opcode = IBV_WR_RDMA_READ;
	EXPECT_NE(0, post_send(&p->a, &wr));
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	EXPECT_NE(0, post_send(&p->a, &wr));
	EXPECT_EQ(IBV_QPS_RTS, endpoint_state(&p->a));
}

TEST_HARNESS_MAIN
