/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* The objects of the RDMA side. */
#ifndef VROCE_IB_H
#define VROCE_IB_H

#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

#include "vroce_buf.h"
#include "vroce_queue.h"

/*
 * struct vroce_ib - RDMA side of a card
 * @port_active: state of the port that was reported last, under port_lock
 */
struct vroce_ib {
	struct ib_device ibdev;
	struct vroce_dev *dev;
	bool port_active;
};

/* A page of the doorbell BAR, which a user context maps. */
struct vroce_mmap_entry {
	struct rdma_user_mmap_entry rdma_entry;
	phys_addr_t addr;
};

/*
 * struct vroce_ucontext - user context
 * @page: number of its doorbell page
 */
struct vroce_ucontext {
	struct ib_ucontext ibucontext;
	struct rdma_user_mmap_entry *db_entry;
	u32 page;
};

struct vroce_pd {
	struct ib_pd ibpd;
	u32 pdn;
};

struct vroce_ah {
	struct ib_ah ibah;
	struct vroce_av av;
};

/*
 * struct vroce_ib_cq - CQ of verbs
 * @lock: serialises polling and arming by the kernel
 * @resize_lock: the core lets a user's resizes run at once
 * @umem: ring of a user's CQ, under @resize_lock
 */
struct vroce_ib_cq {
	struct ib_cq ibcq;
	struct vroce_cq hw;
	spinlock_t lock;	/* irq-safe */
	struct mutex resize_lock;	/* ring of a user's CQ */
	struct ib_umem *umem;
};

/*
 * struct vroce_ib_srq - SRQ of verbs
 * @lock: protects the indices of the kernel's ring; inside a CQ's lock
 * @umem: ring of a user's SRQ
 * @max_wr: receives that it holds
 * @max_sge: of one receive
 */
struct vroce_ib_srq {
	struct ib_srq ibsrq;
	struct vroce_srq hw;
	spinlock_t lock;	/* irq-safe */
	struct ib_umem *umem;
	u32 max_wr;
	u32 max_sge;
};

/*
 * struct vroce_ib_qp - QP of verbs
 * @sq_lock: serialises posting of sends by the kernel
 * @rq_lock: serialises posting of receives by the kernel
 * @umem: rings of a user's QP
 * @cap: sizes that it was created with; 0 requests: it has no such queue
 * @signal_all: each send completes
 * @in_error: known to be in ERR, where receives need a doorbell
 */
struct vroce_ib_qp {
	struct ib_qp ibqp;
	struct vroce_qp hw;
	spinlock_t sq_lock;	/* irq-safe */
	spinlock_t rq_lock;	/* irq-safe, inside a CQ's lock */
	struct ib_umem *umem;
	struct ib_qp_cap cap;
	bool signal_all;
	bool in_error;
};

/*
 * struct vroce_mr - memory region
 * @umem: its memory, if a user's
 * @list: its pages, if for fast registration
 * @num_pages: entries of @list that ib_map_mr_sg() has set
 */
struct vroce_mr {
	struct ib_mr ibmr;
	struct ib_umem *umem;
	struct vroce_page_list list;
	u32 num_pages;
};

static inline struct vroce_dev *to_vdev(struct ib_device *ibdev)
{
	return container_of(ibdev, struct vroce_ib, ibdev)->dev;
}

static inline struct vroce_ucontext *to_vucontext(struct ib_ucontext *ibuc)
{
	return container_of(ibuc, struct vroce_ucontext, ibucontext);
}

static inline struct vroce_pd *to_vpd(struct ib_pd *ibpd)
{
	return container_of(ibpd, struct vroce_pd, ibpd);
}

static inline struct vroce_ah *to_vah(struct ib_ah *ibah)
{
	return container_of(ibah, struct vroce_ah, ibah);
}

static inline struct vroce_ib_cq *to_vcq(struct ib_cq *ibcq)
{
	return container_of(ibcq, struct vroce_ib_cq, ibcq);
}

static inline struct vroce_ib_srq *to_vsrq(struct ib_srq *ibsrq)
{
	return container_of(ibsrq, struct vroce_ib_srq, ibsrq);
}

static inline struct vroce_ib_qp *to_vqp(struct ib_qp *ibqp)
{
	return container_of(ibqp, struct vroce_ib_qp, ibqp);
}

static inline struct vroce_mr *to_vmr(struct ib_mr *ibmr)
{
	return container_of(ibmr, struct vroce_mr, ibmr);
}

/* Doorbell page of the context that a verb is called for. */
static inline u32 vroce_udata_page(struct ib_udata *udata)
{
	struct vroce_ucontext *uc =
		rdma_udata_to_drv_context(udata, struct vroce_ucontext,
					  ibucontext);

	return uc ? uc->page : VROCE_KERNEL_CONTEXT;
}

/* Sends of the largest size fill the send queue first. */
static inline u32 vroce_max_qp_wr(struct vroce_dev *dev)
{
	return min(le32_to_cpu(dev->caps.max_qp_wr),
		   1u << VROCE_MAX_SQ_LOG_UNITS) / VROCE_MAX_WQE_UNITS;
}

/* Rings are powers of two, so that a limit which is none cannot be reached. */
static inline u32 vroce_max_cqe(struct vroce_dev *dev)
{
	return rounddown_pow_of_two(le32_to_cpu(dev->caps.max_cqe));
}

/* Verbs access flags are the device's, but for those that are only hints. */
#define VROCE_ACCESS_SUPPORTED	(VROCE_ACCESS_LOCAL_WRITE |	\
				 VROCE_ACCESS_REMOTE_WRITE |	\
				 VROCE_ACCESS_REMOTE_READ |	\
				 VROCE_ACCESS_REMOTE_ATOMIC |	\
				 VROCE_ACCESS_ZERO_BASED)

/* vroce_ucontext.c */
int vroce_get_request(struct ib_udata *udata, void *req, size_t size);
int vroce_alloc_ucontext(struct ib_ucontext *ibuc, struct ib_udata *udata);
void vroce_dealloc_ucontext(struct ib_ucontext *ibuc);
void vroce_disassociate_ucontext(struct ib_ucontext *ibuc);
int vroce_mmap(struct ib_ucontext *ibuc, struct vm_area_struct *vma);
void vroce_mmap_free(struct rdma_user_mmap_entry *rdma_entry);
int vroce_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int vroce_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
void vroce_fill_av(struct vroce_av *av, const struct rdma_ah_attr *attr);
void vroce_read_av(const struct vroce_av *av, struct rdma_ah_attr *attr);
int vroce_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init,
		    struct ib_udata *udata);
int vroce_query_ah(struct ib_ah *ibah, struct rdma_ah_attr *attr);
int vroce_destroy_ah(struct ib_ah *ibah, u32 flags);

/* vroce_cq.c */
int vroce_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		    struct uverbs_attr_bundle *attrs);
int vroce_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
int vroce_resize_cq(struct ib_cq *ibcq, int cqe, struct ib_udata *udata);
int vroce_modify_cq(struct ib_cq *ibcq, u16 count, u16 period);
int vroce_poll_cq(struct ib_cq *ibcq, int num_entries, struct ib_wc *wc);
int vroce_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);
void vroce_cq_purge(struct vroce_ib_cq *cq, struct vroce_ib_qp *qp);

/* vroce_qp.c */
int vroce_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr,
		    struct ib_udata *udata);
int vroce_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		    struct ib_udata *udata);
int vroce_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		   struct ib_qp_init_attr *init);
int vroce_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);
int vroce_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
int vroce_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);

/* vroce_wr.c */
u32 vroce_wr_units(enum ib_qp_type type, u32 max_sge, u32 max_inline);
int vroce_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		    const struct ib_send_wr **bad_wr);
int vroce_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		    const struct ib_recv_wr **bad_wr);
int vroce_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
			const struct ib_recv_wr **bad_wr);
void vroce_qp_enter_error(struct vroce_ib_qp *qp);

/* vroce_srq.c */
int vroce_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *attr,
		     struct ib_udata *udata);
int vroce_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		     enum ib_srq_attr_mask mask, struct ib_udata *udata);
int vroce_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr);
int vroce_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata);

/* vroce_mr.c */
struct ib_mr *vroce_get_dma_mr(struct ib_pd *ibpd, int access);
struct ib_mr *vroce_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
				u64 virt_addr, int access,
				struct ib_udata *udata);
struct ib_mr *vroce_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type,
			     u32 max_num_sg);
int vroce_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int nents,
		    unsigned int *offset);
int vroce_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata);

/* vroce_restrack.c */
int vroce_fill_res_qp(struct sk_buff *msg, struct ib_qp *ibqp);
int vroce_fill_res_cq(struct sk_buff *msg, struct ib_cq *ibcq);
int vroce_fill_res_mr(struct sk_buff *msg, struct ib_mr *ibmr);
int vroce_fill_res_srq(struct sk_buff *msg, struct ib_srq *ibsrq);

#endif /* VROCE_IB_H */
