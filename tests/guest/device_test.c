// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Attributes of the device, its port and its GIDs; life cycles of protection
 * domains, memory regions, completion queues and queue pairs, and what they
 * refuse.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <rdma/ib_user_verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "common.h"

FIXTURE(device)
{
	struct device dev;
};

FIXTURE_SETUP(device)
{
	ASSERT_EQ(0, device_open(&self->dev));
}

FIXTURE_TEARDOWN(device)
{
	device_close(&self->dev);
}

TEST_F(device, attributes)
{
	struct ibv_device_attr *attr = &self->dev.attr;

	EXPECT_NE(0, attr->node_guid);
	EXPECT_EQ(attr->node_guid,
		  ibv_get_device_guid(self->dev.context->device));
	EXPECT_NE('\0', attr->fw_ver[0]);
	EXPECT_EQ(1, attr->phys_port_cnt);
	EXPECT_GE(attr->max_qp, 64);
	EXPECT_GE(attr->max_qp_wr, 1024);
	EXPECT_GE(attr->max_sge, 16);
	EXPECT_GE(attr->max_cq, 64);
	EXPECT_GE(attr->max_cqe, 4096);
	EXPECT_GE(attr->max_mr, 64);
	EXPECT_GE(attr->max_mr_size, 1ull << 30);
	EXPECT_GE(attr->max_pd, 16);
	EXPECT_GE(attr->max_qp_rd_atom, 4);
	EXPECT_GE(attr->max_qp_init_rd_atom, 4);
	EXPECT_NE(0, attr->page_size_cap & 4096);
	EXPECT_EQ(IBV_NODE_CA, self->dev.context->device->node_type);
	EXPECT_EQ(IBV_TRANSPORT_IB, self->dev.context->device->transport_type);
}

TEST_F(device, port)
{
	struct ibv_port_attr *port = &self->dev.port, other;

	EXPECT_EQ(IBV_PORT_ACTIVE, port->state);
	EXPECT_EQ(5, port->phys_state);		/* LinkUp, IBA 14.2.5.6 */
	EXPECT_EQ(IBV_LINK_LAYER_ETHERNET, port->link_layer);
	EXPECT_GE(port->max_mtu, port->active_mtu);
	EXPECT_GE(port->active_mtu, IBV_MTU_1024);
	EXPECT_LE(port->active_mtu, IBV_MTU_4096);
	EXPECT_GE(port->gid_tbl_len, 2);
	EXPECT_GE(port->pkey_tbl_len, 1);
	EXPECT_GE(port->max_msg_sz, 1u << 30);

	EXPECT_NE(0, ibv_query_port(self->dev.context, 0, &other));
	EXPECT_NE(0, ibv_query_port(self->dev.context, PORT + 1, &other));
}

TEST_F(device, pkey)
{
	__be16 pkey;

	ASSERT_EQ(0, ibv_query_pkey(self->dev.context, PORT, 0, &pkey));
	EXPECT_EQ(0xffff, ntohs(pkey));
}

/* RoCEv2 only, and each IPv4 one is an address of this machine. */
TEST_F(device, gids)
{
	struct ibv_gid_entry entries[64];
	struct ifaddrs *addrs, *a;
	ssize_t n, i;

	n = ibv_query_gid_table(self->dev.context, entries, 64, 0);
	ASSERT_GT(n, 0);
	ASSERT_EQ(0, getifaddrs(&addrs));
	for (i = 0; i < n; i++) {
		bool found = false;

		EXPECT_EQ(IBV_GID_TYPE_ROCE_V2, entries[i].gid_type);
		EXPECT_EQ(PORT, entries[i].port_num);
		EXPECT_NE(0, entries[i].ndev_ifindex);
		if (memcmp(entries[i].gid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff",
			   12))
			continue;
		for (a = addrs; a; a = a->ifa_next) {
			struct sockaddr_in *in = (void *)a->ifa_addr;

			if (in && in->sin_family == AF_INET &&
			    !memcmp(&in->sin_addr, entries[i].gid.raw + 12, 4))
				found = true;
		}
		EXPECT_TRUE(found);
	}
	freeifaddrs(addrs);
}

TEST_F(device, many_pds)
{
	struct ibv_pd *pds[16];
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(pds); i++) {
		pds[i] = ibv_alloc_pd(self->dev.context);
		ASSERT_NE(NULL, pds[i]);
	}
	for (i = 0; i < ARRAY_SIZE(pds); i++)
		EXPECT_EQ(0, ibv_dealloc_pd(pds[i]));
}

/*
 * Destroys an object behind the library's back: the library frees its own
 * part only when the kernel agrees, so that asking again is safe.
 */
static int kernel_destroy(struct device *dev, uint32_t command, uint32_t handle)
{
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		uint32_t handle;
	} __attribute__((packed)) cmd = {
		.hdr = {
			.command = command,
			.in_words = sizeof(cmd) / 4,
		},
		.handle = handle,
	};

	return write(dev->context->cmd_fd, &cmd, sizeof(cmd)) == sizeof(cmd) ?
	       0 : errno;
}

TEST_F(device, double_destroy)
{
	struct ibv_pd *pd = ibv_alloc_pd(self->dev.context);
	struct region r = {};

	ASSERT_NE(NULL, pd);
	ASSERT_EQ(0, region_init(&r, pd, 4096, IBV_ACCESS_LOCAL_WRITE));
	ASSERT_EQ(0, kernel_destroy(&self->dev, IB_USER_VERBS_CMD_DEREG_MR,
				    r.mr->handle));
	EXPECT_NE(0, ibv_dereg_mr(r.mr));
	ASSERT_EQ(0, kernel_destroy(&self->dev, IB_USER_VERBS_CMD_DEALLOC_PD,
				    pd->handle));
	EXPECT_NE(0, ibv_dealloc_pd(pd));
}

TEST_F(device, mr_sizes)
{
	static const size_t sizes[] = {
		1, 4095, 4096, 4097, 1 << 20, (16 << 20) + 12345, 64 << 20 };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct region r = {};

		ASSERT_EQ(0, region_init(&r, self->dev.pd, sizes[i],
					 ALL_ACCESS));
		EXPECT_EQ(sizes[i], r.mr->length);
		EXPECT_EQ((void *)r.buf, r.mr->addr);
		region_free(&r);
	}
}

TEST_F(device, mr_keys_differ)
{
	enum { N = 64 };
	struct ibv_mr *mrs[N];
	char buf[64];
	int i, k;

	for (i = 0; i < N; i++) {
		mrs[i] = ibv_reg_mr(self->dev.pd, buf, sizeof(buf),
				    IBV_ACCESS_LOCAL_WRITE);
		ASSERT_NE(NULL, mrs[i]);
		for (k = 0; k < i; k++)
			ASSERT_NE(mrs[k]->lkey, mrs[i]->lkey);
	}
	for (i = 0; i < N; i++)
		EXPECT_EQ(0, ibv_dereg_mr(mrs[i]));
}

/* A key does not come back at once: an old one must not match new memory. */
TEST_F(device, mr_key_is_not_reused_at_once)
{
	struct ibv_mr *mr;
	uint32_t old;
	char buf[64];

	mr = ibv_reg_mr(self->dev.pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
	ASSERT_NE(NULL, mr);
	old = mr->lkey;
	ASSERT_EQ(0, ibv_dereg_mr(mr));
	mr = ibv_reg_mr(self->dev.pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
	ASSERT_NE(NULL, mr);
	EXPECT_NE(old, mr->lkey);
	EXPECT_EQ(0, ibv_dereg_mr(mr));
}

TEST_F(device, mr_refusals)
{
	char buf[64];
	void *hole, *ro;

	/* Remote writes need local write, IBA 10.6.3.1. */
	EXPECT_EQ(NULL, ibv_reg_mr(self->dev.pd, buf, sizeof(buf),
				   IBV_ACCESS_REMOTE_WRITE));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(NULL, ibv_reg_mr(self->dev.pd, buf, sizeof(buf),
				   IBV_ACCESS_REMOTE_ATOMIC));
	EXPECT_EQ(EINVAL, errno);

	hole = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, hole);
	ASSERT_EQ(0, munmap(hole, 8192));
	EXPECT_EQ(NULL, ibv_reg_mr(self->dev.pd, hole, 8192,
				   IBV_ACCESS_LOCAL_WRITE));
	EXPECT_EQ(EFAULT, errno);

	ro = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, ro);
	EXPECT_EQ(NULL, ibv_reg_mr(self->dev.pd, ro, 4096,
				   IBV_ACCESS_LOCAL_WRITE));
	EXPECT_EQ(EFAULT, errno);
	munmap(ro, 4096);
}

TEST_F(device, cq_sizes)
{
	int sizes[] = { 1, 2, 3, 100, 4096, self->dev.attr.max_cqe };
	struct ibv_cq *cq;
	struct ibv_wc wc;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		cq = ibv_create_cq(self->dev.context, sizes[i], NULL, NULL, 0);
		ASSERT_NE(NULL, cq);
		EXPECT_GE(cq->cqe, sizes[i]);
		EXPECT_EQ(0, ibv_poll_cq(cq, 1, &wc));
		EXPECT_EQ(0, ibv_destroy_cq(cq));
	}
}

TEST_F(device, cq_refusals)
{
	struct ibv_context *context = self->dev.context;

	EXPECT_EQ(NULL, ibv_create_cq(context, 0, NULL, NULL, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(NULL, ibv_create_cq(context, self->dev.attr.max_cqe + 1,
				      NULL, NULL, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(NULL, ibv_create_cq(context, 16, NULL, NULL,
				      context->num_comp_vectors));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(NULL, ibv_create_cq(context, 16, NULL, NULL, -1));
	EXPECT_EQ(EINVAL, errno);
}

TEST_F(device, every_completion_vector)
{
	struct ibv_context *context = self->dev.context;
	struct ibv_cq *cq;
	int i;

	ASSERT_GE(context->num_comp_vectors, 1);
	for (i = 0; i < context->num_comp_vectors; i++) {
		cq = ibv_create_cq(context, 16, NULL, NULL, i);
		ASSERT_NE(NULL, cq);
		EXPECT_EQ(0, ibv_destroy_cq(cq));
	}
}

TEST_F(device, qp_capabilities)
{
	static const enum ibv_qp_type types[] = {
		IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	struct endpoint_attr attr = {
		.max_wr = 100,
		.max_sge = 5,
		.max_inline = 60,
	};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr qp_attr;
	struct endpoint ep;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(types); i++) {
		attr.type = types[i];
		ASSERT_EQ(0, endpoint_init(&ep, &self->dev, &attr));
		EXPECT_GE(ep.cap.max_send_wr, 100);
		EXPECT_GE(ep.cap.max_recv_wr, 100);
		EXPECT_GE(ep.cap.max_send_sge, 5);
		EXPECT_GE(ep.cap.max_recv_sge, 5);
		EXPECT_GE(ep.cap.max_inline_data, 60);
		EXPECT_GT(ep.qp->qp_num, 1);	/* 0 and 1 are special */
		EXPECT_LE(ep.qp->qp_num, 0xffffff);

		ASSERT_EQ(0, ibv_query_qp(ep.qp, &qp_attr, IBV_QP_CAP, &init));
		EXPECT_EQ(ep.cap.max_send_wr, qp_attr.cap.max_send_wr);
		EXPECT_EQ(ep.cap.max_recv_wr, qp_attr.cap.max_recv_wr);
		EXPECT_EQ(ep.cap.max_send_sge, qp_attr.cap.max_send_sge);
		EXPECT_EQ(types[i], init.qp_type);
		EXPECT_EQ(ep.cq, init.send_cq);
		endpoint_free(&ep);
	}
}

TEST_F(device, qp_refusals)
{
	struct ibv_device_attr *attr = &self->dev.attr;
	struct ibv_qp_init_attr good = {
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = 1,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	}, init;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	cq = ibv_create_cq(self->dev.context, 4, NULL, NULL, 0);
	ASSERT_NE(NULL, cq);
	good.send_cq = cq;
	good.recv_cq = cq;

	/* So many that their bytes do not fit 32 bits. */
	init = good;
	init.cap.max_send_wr = 1u << 27;
	EXPECT_EQ(NULL, ibv_create_qp(self->dev.pd, &init));
	init = good;
	init.cap.max_recv_wr = 1u << 27;
	EXPECT_EQ(NULL, ibv_create_qp(self->dev.pd, &init));
	/* Short requests, of which the rings could hold one more. */
	init = good;
	init.cap.max_send_wr = attr->max_qp_wr + 1;
	EXPECT_EQ(NULL, ibv_create_qp(self->dev.pd, &init));
	init = good;
	init.cap.max_recv_wr = attr->max_qp_wr + 1;
	EXPECT_EQ(NULL, ibv_create_qp(self->dev.pd, &init));
	init = good;
	init.cap.max_send_sge = attr->max_sge + 1;
	EXPECT_EQ(NULL, ibv_create_qp(self->dev.pd, &init));
	init = good;
	init.cap.max_recv_sge = attr->max_sge + 1;
	EXPECT_EQ(NULL, ibv_create_qp(self->dev.pd, &init));
	init = good;
	init.cap.max_inline_data = 1 << 20;
	EXPECT_EQ(NULL, ibv_create_qp(self->dev.pd, &init));
	init = good;
	init.qp_type = 77;
	EXPECT_EQ(NULL, ibv_create_qp(self->dev.pd, &init));

	/* What was refused left nothing behind. */
	init = good;
	qp = ibv_create_qp(self->dev.pd, &init);
	ASSERT_NE(NULL, qp);
	EXPECT_EQ(0, ibv_destroy_qp(qp));
	EXPECT_EQ(0, ibv_destroy_cq(cq));
}

/* What the device says it can, it can all at once. */
TEST_F(device, largest_qp)
{
	struct endpoint_attr attr = {
		.max_wr = self->dev.attr.max_qp_wr,
		.max_sge = self->dev.attr.max_sge,
		.cqe = 1,
	};
	struct endpoint ep;

	RXE_DIFFERS(&self->dev, "its limits are beyond its memory");
	ASSERT_EQ(0, endpoint_init(&ep, &self->dev, &attr));
	EXPECT_GE(ep.cap.max_send_wr, attr.max_wr);
	EXPECT_GE(ep.cap.max_recv_wr, attr.max_wr);
	endpoint_free(&ep);
}

TEST_F(device, qp_numbers_differ)
{
	enum { N = 48 };
	struct endpoint_attr attr = {};
	struct endpoint eps[N];
	int i, k;

	for (i = 0; i < N; i++) {
		ASSERT_EQ(0, endpoint_init(&eps[i], &self->dev, &attr));
		for (k = 0; k < i; k++)
			ASSERT_NE(eps[k].qp->qp_num, eps[i].qp->qp_num);
	}
	for (i = 0; i < N; i++)
		endpoint_free(&eps[i]);
}

/* What another object uses cannot go, and goes once it is free. */
TEST_F(device, busy)
{
	struct endpoint_attr attr = {};
	struct endpoint ep;
	struct ibv_pd *pd;
	struct region r = {};

	ASSERT_EQ(0, endpoint_init(&ep, &self->dev, &attr));
	EXPECT_EQ(EBUSY, ibv_destroy_cq(ep.cq));
	EXPECT_EQ(EBUSY, ibv_dealloc_pd(self->dev.pd));
	endpoint_free(&ep);
	EXPECT_EQ(NULL, ep.cq);

	pd = ibv_alloc_pd(self->dev.context);
	ASSERT_NE(NULL, pd);
	ASSERT_EQ(0, region_init(&r, pd, 4096, IBV_ACCESS_LOCAL_WRITE));
	EXPECT_EQ(EBUSY, ibv_dealloc_pd(pd));
	region_free(&r);
	EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

TEST_F(device, channel_is_busy)
{
	struct ibv_comp_channel *channel =
		ibv_create_comp_channel(self->dev.context);
	struct ibv_cq *cq;

	ASSERT_NE(NULL, channel);
	cq = ibv_create_cq(self->dev.context, 16, NULL, channel, 0);
	ASSERT_NE(NULL, cq);
	EXPECT_EQ(EBUSY, ibv_destroy_comp_channel(channel));
	EXPECT_EQ(0, ibv_destroy_cq(cq));
	EXPECT_EQ(0, ibv_destroy_comp_channel(channel));
}

TEST_F(device, address_handle)
{
	struct ibv_ah_attr attr = device_route(&self->dev, IPV6);
	struct ibv_ah *ah = ibv_create_ah(self->dev.pd, &attr);

	ASSERT_NE(NULL, ah);
	EXPECT_EQ(0, ibv_destroy_ah(ah));

	/* RoCE needs a global route, and a source that exists. */
	attr.is_global = 0;
	EXPECT_EQ(NULL, ibv_create_ah(self->dev.pd, &attr));
	attr.is_global = 1;
	attr.grh.sgid_index = self->dev.port.gid_tbl_len - 1;
	EXPECT_EQ(NULL, ibv_create_ah(self->dev.pd, &attr));
	attr.grh.sgid_index = self->dev.gid_index[IPV6];
	attr.port_num = PORT + 1;
	EXPECT_EQ(NULL, ibv_create_ah(self->dev.pd, &attr));
}

/* A process that dies leaves its objects to the kernel. */
TEST_F(device, exit_without_cleanup)
{
	struct endpoint_attr attr = { .events = true };
	struct region r = {};
	struct endpoint ep;
	int i, status;
	pid_t child;

	for (i = 0; i < 8; i++) {
		child = fork();
		ASSERT_GE(child, 0);
		if (!child) {
			struct device dev;

			if (device_open(&dev) ||
			    endpoint_init(&ep, &dev, &attr) ||
			    region_init(&r, dev.pd, 1 << 20, ALL_ACCESS))
				_exit(1);
			_exit(0);
		}
		ASSERT_EQ(child, waitpid(child, &status, 0));
		EXPECT_EQ(0, status);
	}
}

TEST_HARNESS_MAIN
