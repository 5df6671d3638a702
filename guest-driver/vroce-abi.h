/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the vroce driver and its rdma-core provider tell each other through
 * uverbs. Queues are described by user space: one buffer holds the rings and
 * the doorbell record, at offsets and sizes as in vroce_hw.h.
 */
#ifndef VROCE_ABI_USER_H
#define VROCE_ABI_USER_H

#include <linux/types.h>

#define VROCE_ABI_VERSION	1

struct vroce_alloc_ucontext_resp {
	__aligned_u64 db_mmap_key;	/* offset for mmap() of the doorbell page */
	__u32 db_mmap_size;		/* bytes */
	__u32 max_sge;
	__u32 max_inline;		/* bytes */
	__u32 max_sq_units;
	__u32 max_rq_entries;
	__u32 max_cqe;
	__aligned_u64 features;		/* VROCE_FEATURE_* */
};

struct vroce_alloc_pd_resp {
	__u32 pdn;
	__u32 reserved;
};

struct vroce_create_cq_req {
	__aligned_u64 buf_addr;		/* page-aligned */
	__aligned_u64 buf_len;		/* bytes */
	__u32 rec_off;
	__u8 log_size;
	__u8 reserved[3];
};

struct vroce_create_cq_resp {
	__u32 cqn;
	__u32 reserved;
};

/* The same struct asks for a resize; rec_off and log_size are the new ones. */

struct vroce_create_srq_req {
	__aligned_u64 buf_addr;
	__aligned_u64 buf_len;
	__u32 rec_off;
	__u8 log_entries;
	__u8 log_stride;
	__u8 reserved[2];
};

struct vroce_create_srq_resp {
	__u32 srqn;
	__u32 reserved;
};

struct vroce_create_qp_req {
	__aligned_u64 buf_addr;
	__aligned_u64 buf_len;
	__u32 sq_off;
	__u32 rq_off;
	__u32 rec_off;
	__u8 sq_log_units;
	__u8 rq_log_entries;
	__u8 rq_log_stride;
	__u8 reserved;
};

struct vroce_create_qp_resp {
	__u32 qpn;
	__u32 reserved;
};

/* A struct vroce_av, ready to be copied into a UD WQE. */
struct vroce_create_ah_resp {
	__u8 av[40];
};

#endif /* VROCE_ABI_USER_H */
