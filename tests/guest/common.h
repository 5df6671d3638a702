/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the tests share: an open device, memory with guard bytes, and queue
 * pairs of one machine that are connected to each other.
 *
 * Functions that return int return 0, or -1 after a diagnostic line.
 */
#ifndef VROCE_TESTS_COMMON_H
#define VROCE_TESTS_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

/* Seconds that anything may take before it counts as lost: emulation is slow. */
#define PATIENCE	30

#define GUARD		64	/* bytes before and after each buffer */
#define PORT		1
#define QKEY		0x11223344

/* IBA 9.7.5.2.8: code of the shortest RNR timer, 10 us. */
#define RNR_10US	1

#define ALL_ACCESS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
			 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

enum family { IPV4, IPV6 };

struct device {
	struct ibv_context *context;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct ibv_pd *pd;
	/* The first RoCEv2 GID of each family, by enum family. */
	union ibv_gid gid[2];
	int gid_index[2];
	bool soft_roce;		/* the kernel's rxe, the reference */
};

/*
 * soft-RoCE is the reference for the tests, not the measure of the device:
 * where it departs from the specification a test says how, and is skipped.
 */
#define RXE_DIFFERS(dev, how)						\
	do {								\
		if ((dev)->soft_roce)					\
			SKIP(return, "rxe differs: " how);		\
	} while (0)

/* Opens the device that RDMA_DEVICE names, or else the first. */
int device_open(struct device *dev);
void device_close(struct device *dev);
/* A way from the device to itself. */
struct ibv_ah_attr device_route(const struct device *dev, enum family family);
/* The path MTU in bytes. */
uint32_t mtu_bytes(enum ibv_mtu mtu);

/* A registered buffer that knows when something wrote past its ends. */
struct region {
	uint8_t *buf;
	size_t len;		/* bytes */
	struct ibv_mr *mr;
	uint8_t *map;
	size_t map_len;		/* bytes */
};

int region_init(struct region *r, struct ibv_pd *pd, size_t len, int access);
void region_free(struct region *r);
/* Fills the buffer with the pattern of that seed, and the guards. */
void region_fill(struct region *r, uint64_t seed);
/* len bytes at off hold the pattern of that seed from its byte pos on. */
int region_check(const struct region *r, size_t off, size_t len, uint64_t seed,
		 size_t pos);
int region_check_guards(const struct region *r);
/* The pattern in any memory. */
void pattern_fill(uint8_t *buf, size_t len, uint64_t seed);

struct endpoint_attr {
	enum ibv_qp_type type;	/* 0: RC */
	uint32_t max_wr;	/* of both queues; 0: 16 */
	uint32_t max_sge;	/* 0: 1 */
	uint32_t max_inline;	/* bytes */
	int cqe;		/* 0: enough for both queues */
	bool events;		/* with a completion channel */
	bool signal_all;
	struct ibv_srq *srq;
};

/* A QP with a CQ of its own. */
struct endpoint {
	struct device *dev;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_qp_cap cap;
	uint32_t psn;		/* its first, close to the wrap-around */
};

struct path {
	enum family family;
	enum ibv_mtu mtu;	/* 0: the port's active MTU */
	uint8_t timeout;	/* 0: 0.5 s, IBA 9.9.2.1.1 */
	uint8_t retry_cnt;	/* used only with a timeout; else 7 */
	bool no_rnr_retry;	/* else for ever */
};

int endpoint_init(struct endpoint *ep, struct device *dev,
		  const struct endpoint_attr *attr);
void endpoint_free(struct endpoint *ep);
int endpoint_to_init(struct endpoint *ep);
int endpoint_to_rtr(struct endpoint *ep, uint32_t peer_qpn, uint32_t peer_psn,
		    const struct path *path);
int endpoint_to_rts(struct endpoint *ep, const struct path *path);
int endpoint_set_state(struct endpoint *ep, enum ibv_qp_state state);
/* The state that the device reports, or -1. */
int endpoint_state(struct endpoint *ep);
/* From RESET to RTS, each the other's peer; a and b may be the same UD QP. */
int endpoints_connect(struct endpoint *a, struct endpoint *b,
		      const struct path *path);

/* Exactly n completions, in order; with fewer it fails after PATIENCE. */
int endpoint_wait(struct endpoint *ep, struct ibv_wc *wc, int n);
int endpoint_wait_status(struct endpoint *ep, enum ibv_wc_status status);

/* Two QPs connected to each other and a buffer for each. */
struct pair {
	struct device dev;
	struct endpoint a, b;
	struct region src, dst;	/* by name only: both allow all access */
};

int pair_init(struct pair *p, const struct endpoint_attr *attr,
	      const struct path *path, size_t len);
void pair_free(struct pair *p);

/* An SGE for len bytes of a region, or of none at all for NULL. */
struct ibv_sge region_sge(const struct region *r, size_t off, uint32_t len);
int post_recv(struct endpoint *ep, struct ibv_sge sge, uint64_t wr_id);
/* Posts one request; returns what ibv_post_send() says. */
int post_send(struct endpoint *ep, struct ibv_send_wr *wr);
/* A signaled request with the one SGE, not for UD. */
struct ibv_send_wr send_wr(enum ibv_wr_opcode opcode, struct ibv_sge *sge,
			   const struct region *remote, uint64_t wr_id);

/* The next async event of that type; other events are an error. */
int wait_async_event(struct device *dev, enum ibv_event_type type,
		     struct ibv_async_event *event);
/* Whether the descriptor becomes readable within that time. */
bool readable(int fd, int milliseconds);

#endif /* VROCE_TESTS_COMMON_H */
