// SPDX-License-Identifier: GPL-2.0-or-later
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

#define GUARD_BYTE	0xa5
#define RXE_VENDOR_ID	0xffffff

/* A diagnostic line of TAP; returns -1. */
static int __attribute__((format(printf, 1, 2))) complain(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	printf("# ");
	vprintf(fmt, args);
	printf("\n");
	va_end(args);
	fflush(stdout);
	return -1;
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

/* ---------------------------------------------------------------- device */

static struct ibv_context *open_by_name(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	int i;

	for (i = 0; list && list[i]; i++) {
		if (name && strcmp(name, ibv_get_device_name(list[i])))
			continue;
		context = ibv_open_device(list[i]);
		break;
	}
	if (list)
		ibv_free_device_list(list);
	return context;
}

static int find_gids(struct device *dev)
{
	static const uint8_t v4_prefix[12] = { [10] = 0xff, [11] = 0xff };
	bool found[2] = {};
	struct ibv_gid_entry entry;
	enum family family;
	int i;

	for (i = 0; i < dev->port.gid_tbl_len; i++) {
		if (ibv_query_gid_ex(dev->context, PORT, i, &entry, 0) ||
		    entry.gid_type != IBV_GID_TYPE_ROCE_V2)
			continue;
		family = memcmp(entry.gid.raw, v4_prefix, sizeof(v4_prefix)) ?
			 IPV6 : IPV4;
		if (found[family])
			continue;
		found[family] = true;
		dev->gid[family] = entry.gid;
		dev->gid_index[family] = i;
	}
	if (!found[IPV4] || !found[IPV6])
		return complain("no RoCEv2 GID of an IPv%d address: give the network interface one",
				found[IPV4] ? 6 : 4);
	return 0;
}

struct ibv_ah_attr device_route(const struct device *dev, enum family family)
{
	return (struct ibv_ah_attr) {
		.is_global = 1,
		.port_num = PORT,
		.grh = {
			.dgid = dev->gid[family],
			.sgid_index = dev->gid_index[family],
			.hop_limit = 64,
		},
	};
}

int device_open(struct device *dev)
{
	const char *name = getenv("RDMA_DEVICE");

	memset(dev, 0, sizeof(*dev));
	dev->context = open_by_name(name);
	if (!dev->context)
		return complain("cannot open RDMA device '%s': is its driver loaded?",
				name ? name : "(the first)");
	if (ibv_query_device(dev->context, &dev->attr) ||
	    ibv_query_port(dev->context, PORT, &dev->port))
		return complain("cannot query the device: %m");
	if (dev->port.state != IBV_PORT_ACTIVE)
		return complain("port %d is not active: is the link up?", PORT);
	if (find_gids(dev))
		return -1;
	dev->pd = ibv_alloc_pd(dev->context);
	if (!dev->pd)
		return complain("ibv_alloc_pd: %m");
	dev->soft_roce = dev->attr.vendor_id == RXE_VENDOR_ID;
	return 0;
}

void device_close(struct device *dev)
{
	if (dev->pd && ibv_dealloc_pd(dev->pd))
		complain("ibv_dealloc_pd: %m");
	if (dev->context && ibv_close_device(dev->context))
		complain("ibv_close_device: %m");
	memset(dev, 0, sizeof(*dev));
}

uint32_t mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

/* ---------------------------------------------------------------- memory */

/* splitmix64 of seed and word number: any part can be checked by itself. */
static uint64_t pattern_word(uint64_t seed, uint64_t index)
{
	uint64_t z = seed * UINT64_C(0xd1342543de82ef95) +
		     index * UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static uint8_t pattern_byte(uint64_t seed, size_t pos)
{
	return pattern_word(seed, pos / 8) >> (pos % 8 * 8);
}

void pattern_fill(uint8_t *buf, size_t len, uint64_t seed)
{
	uint64_t word;
	size_t i;

	/* By words: under an emulator bytes take most of a test's time. */
	for (i = 0; len - i >= sizeof(word); i += sizeof(word)) {
		word = htole64(pattern_word(seed, i / sizeof(word)));
		memcpy(buf + i, &word, sizeof(word));
	}
	for (; i < len; i++)
		buf[i] = pattern_byte(seed, i);
}

/* So many bytes in whole words are right; pos is a multiple of eight. */
static size_t pattern_words(const uint8_t *buf, size_t len, uint64_t seed,
			    size_t pos)
{
	uint64_t word;
	size_t i;

	for (i = 0; len - i >= sizeof(word); i += sizeof(word)) {
		word = htole64(pattern_word(seed, (pos + i) / sizeof(word)));
		if (memcmp(buf + i, &word, sizeof(word)))
			break;
	}
	return i;
}

int region_init(struct region *r, struct ibv_pd *pd, size_t len, int access)
{
	r->len = len;
	r->map_len = len + 2 * GUARD;
	r->map = mmap(NULL, r->map_len, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (r->map == MAP_FAILED) {
		r->map = NULL;
		return complain("mmap of %zu bytes: %m", r->map_len);
	}
	r->buf = r->map + GUARD;
	r->mr = ibv_reg_mr(pd, r->buf, len, access);
	if (!r->mr)
		return complain("ibv_reg_mr of %zu bytes: %m", len);
	region_fill(r, 0);
	return 0;
}

void region_free(struct region *r)
{
	if (r->mr && ibv_dereg_mr(r->mr))
		complain("ibv_dereg_mr: %m");
	if (r->map)
		munmap(r->map, r->map_len);
	memset(r, 0, sizeof(*r));
}

void region_fill(struct region *r, uint64_t seed)
{
	memset(r->map, GUARD_BYTE, GUARD);
	pattern_fill(r->buf, r->len, seed);
	memset(r->buf + r->len, GUARD_BYTE, GUARD);
}

int region_check(const struct region *r, size_t off, size_t len, uint64_t seed,
		 size_t pos)
{
	uint8_t want;
	size_t i;

	for (i = 0; i < len; i++) {
		if ((pos + i) % 8 == 0) {
			i += pattern_words(r->buf + off + i, len - i, seed,
					   pos + i);
			if (i == len)
				break;
		}
		want = pattern_byte(seed, pos + i);
		if (r->buf[off + i] != want)
			return complain("byte %zu of %zu at offset %zu is 0x%02x instead of 0x%02x",
					i, len, off, r->buf[off + i], want);
	}
	return 0;
}

int region_check_guards(const struct region *r)
{
	int i;

	for (i = 0; i < GUARD; i++) {
		if (r->map[i] != GUARD_BYTE)
			return complain("written %d bytes before the buffer",
					GUARD - i);
		if (r->buf[r->len + i] != GUARD_BYTE)
			return complain("written %d bytes after the buffer",
					i + 1);
	}
	return 0;
}

/* ------------------------------------------------------------- endpoints */

int endpoint_init(struct endpoint *ep, struct device *dev,
		  const struct endpoint_attr *attr)
{
	uint32_t max_wr = attr->max_wr ? attr->max_wr : 16;
	uint32_t max_sge = attr->max_sge ? attr->max_sge : 1;
	struct ibv_qp_init_attr init = {
		.qp_type = attr->type ? attr->type : IBV_QPT_RC,
		.sq_sig_all = attr->signal_all,
		.srq = attr->srq,
		.cap = {
			.max_send_wr = max_wr,
			.max_recv_wr = attr->srq ? 0 : max_wr,
			.max_send_sge = max_sge,
			.max_recv_sge = attr->srq ? 0 : max_sge,
			.max_inline_data = attr->max_inline,
		},
	};

	memset(ep, 0, sizeof(*ep));
	ep->dev = dev;
	if (attr->events) {
		ep->channel = ibv_create_comp_channel(dev->context);
		if (!ep->channel)
			return complain("ibv_create_comp_channel: %m");
	}
	ep->cq = ibv_create_cq(dev->context, attr->cqe ? attr->cqe : 2 * max_wr,
			       ep, ep->channel, 0);
	if (!ep->cq)
		return complain("ibv_create_cq: %m");
	init.send_cq = ep->cq;
	init.recv_cq = ep->cq;
	init.qp_context = ep;
	ep->qp = ibv_create_qp(dev->pd, &init);
	if (!ep->qp)
		return complain("ibv_create_qp: %m");
	ep->cap = init.cap;
	ep->psn = 0xfffff0 + (ep->qp->qp_num & 0xf);
	return 0;
}

void endpoint_free(struct endpoint *ep)
{
	if (ep->qp && ibv_destroy_qp(ep->qp))
		complain("ibv_destroy_qp: %m");
	if (ep->cq && ibv_destroy_cq(ep->cq))
		complain("ibv_destroy_cq: %m");
	if (ep->channel && ibv_destroy_comp_channel(ep->channel))
		complain("ibv_destroy_comp_channel: %m");
	memset(ep, 0, sizeof(*ep));
}

static int modify(struct endpoint *ep, struct ibv_qp_attr *attr, int mask)
{
	int err = ibv_modify_qp(ep->qp, attr, mask);

	if (err)
		return complain("ibv_modify_qp to state %d: %s", attr->qp_state,
				strerror(err));
	return 0;
}

int endpoint_to_init(struct endpoint *ep)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	if (ep->qp->qp_type == IBV_QPT_UD) {
		attr.qkey = QKEY;
		mask |= IBV_QP_QKEY;
	} else {
		attr.qp_access_flags = ALL_ACCESS;
		if (ep->qp->qp_type == IBV_QPT_UC)
			attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE |
					       IBV_ACCESS_REMOTE_WRITE;
		mask |= IBV_QP_ACCESS_FLAGS;
	}
	return modify(ep, &attr, mask);
}

int endpoint_to_rtr(struct endpoint *ep, uint32_t peer_qpn, uint32_t peer_psn,
		    const struct path *path)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = path->mtu ? path->mtu : ep->dev->port.active_mtu,
		.dest_qp_num = peer_qpn,
		.rq_psn = peer_psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = RNR_10US,
		.ah_attr = device_route(ep->dev, path->family),
	};
	int mask = IBV_QP_STATE;

	if (ep->qp->qp_type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN;
	if (ep->qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return modify(ep, &attr, mask);
}

int endpoint_to_rts(struct endpoint *ep, const struct path *path)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = ep->psn,
		.timeout = path->timeout ? path->timeout : 17,
		.retry_cnt = path->timeout ? path->retry_cnt : 7,
		.rnr_retry = path->no_rnr_retry ? 0 : 7,
		.max_rd_atomic = 4,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (ep->qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return modify(ep, &attr, mask);
}

int endpoint_set_state(struct endpoint *ep, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return modify(ep, &attr, IBV_QP_STATE);
}

int endpoint_state(struct endpoint *ep)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int err = ibv_query_qp(ep->qp, &attr, IBV_QP_STATE, &init);

	if (err)
		return complain("ibv_query_qp: %s", strerror(err));
	return attr.qp_state;
}

int endpoints_connect(struct endpoint *a, struct endpoint *b,
		      const struct path *path)
{
	if (endpoint_to_init(a) ||
	    endpoint_to_rtr(a, b->qp->qp_num, b->psn, path) ||
	    endpoint_to_rts(a, path))
		return -1;
	if (a == b)
		return 0;
	if (endpoint_to_init(b) ||
	    endpoint_to_rtr(b, a->qp->qp_num, a->psn, path) ||
	    endpoint_to_rts(b, path))
		return -1;
	return 0;
}

int endpoint_wait(struct endpoint *ep, struct ibv_wc *wc, int n)
{
	double end = now() + PATIENCE;
	int got = 0, ret;

	while (got < n) {
		ret = ibv_poll_cq(ep->cq, n - got, wc + got);
		if (ret < 0)
			return complain("ibv_poll_cq: %d", ret);
		got += ret;
		if (ret)
			continue;
		if (now() > end)
			return complain("%d of %d completions came", got, n);
		/* The emulated device may want the processor more than we. */
		usleep(20);
	}
	return 0;
}

int endpoint_wait_status(struct endpoint *ep, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	if (endpoint_wait(ep, &wc, 1))
		return -1;
	if (wc.status != status)
		return complain("completion of request %llu with '%s' instead of '%s'",
				(unsigned long long)wc.wr_id,
				ibv_wc_status_str(wc.status),
				ibv_wc_status_str(status));
	return 0;
}

int pair_init(struct pair *p, const struct endpoint_attr *attr,
	      const struct path *path, size_t len)
{
	memset(p, 0, sizeof(*p));
	if (device_open(&p->dev) || endpoint_init(&p->a, &p->dev, attr) ||
	    endpoint_init(&p->b, &p->dev, attr) ||
	    endpoints_connect(&p->a, &p->b, path) ||
	    region_init(&p->src, p->dev.pd, len, ALL_ACCESS) ||
	    region_init(&p->dst, p->dev.pd, len, ALL_ACCESS))
		return -1;
	return 0;
}

void pair_free(struct pair *p)
{
	endpoint_free(&p->a);
	endpoint_free(&p->b);
	region_free(&p->src);
	region_free(&p->dst);
	device_close(&p->dev);
}

/* -------------------------------------------------------------- requests */

struct ibv_sge region_sge(const struct region *r, size_t off, uint32_t len)
{
	return (struct ibv_sge) {
		.addr = r ? (uintptr_t)r->buf + off : 0,
		.length = r ? len : 0,
		.lkey = r ? r->mr->lkey : 0,
	};
}

int post_recv(struct endpoint *ep, struct ibv_sge sge, uint64_t wr_id)
{
	struct ibv_recv_wr *bad, wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = sge.length ? 1 : 0,
	};
	int err = ibv_post_recv(ep->qp, &wr, &bad);

	if (err)
		return complain("ibv_post_recv: %s", strerror(err));
	return 0;
}

int post_send(struct endpoint *ep, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(ep->qp, wr, &bad);
}

struct ibv_send_wr send_wr(enum ibv_wr_opcode opcode, struct ibv_sge *sge,
			   const struct region *remote, uint64_t wr_id)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = sge,
		.num_sge = sge && sge->length ? 1 : 0,
	};

	if (remote) {
		wr.wr.rdma.remote_addr = (uintptr_t)remote->buf;
		wr.wr.rdma.rkey = remote->mr->rkey;
	}
	return wr;
}

/* ---------------------------------------------------------------- events */

bool readable(int fd, int milliseconds)
{
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };

	return poll(&pollfd, 1, milliseconds) == 1;
}

int wait_async_event(struct device *dev, enum ibv_event_type type,
		     struct ibv_async_event *event)
{
	if (!readable(dev->context->async_fd, PATIENCE * 1000))
		return complain("no async event came");
	if (ibv_get_async_event(dev->context, event))
		return complain("ibv_get_async_event: %m");
	ibv_ack_async_event(event);
	if (event->event_type != type)
		return complain("async event '%s' instead of '%s'",
				ibv_event_type_str(event->event_type),
				ibv_event_type_str(type));
	return 0;
}
