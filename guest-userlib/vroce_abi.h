/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef __VROCE_ABI_H__
#define __VROCE_ABI_H__

#include <infiniband/kern-abi.h>
#include <rdma/vroce-abi.h>
#include <kernel-abi/vroce-abi.h>

DECLARE_DRV_CMD(vroce_ucontext, IB_USER_VERBS_CMD_GET_CONTEXT, empty,
		vroce_alloc_ucontext_resp);
DECLARE_DRV_CMD(vroce_ualloc_pd, IB_USER_VERBS_CMD_ALLOC_PD, empty,
		vroce_alloc_pd_resp);
DECLARE_DRV_CMD(vroce_ucreate_cq, IB_USER_VERBS_EX_CMD_CREATE_CQ,
		vroce_create_cq_req, vroce_create_cq_resp);
DECLARE_DRV_CMD(vroce_uresize_cq, IB_USER_VERBS_CMD_RESIZE_CQ,
		vroce_create_cq_req, empty);
DECLARE_DRV_CMD(vroce_ucreate_srq, IB_USER_VERBS_CMD_CREATE_SRQ,
		vroce_create_srq_req, vroce_create_srq_resp);
DECLARE_DRV_CMD(vroce_ucreate_qp, IB_USER_VERBS_CMD_CREATE_QP,
		vroce_create_qp_req, vroce_create_qp_resp);
DECLARE_DRV_CMD(vroce_ucreate_ah, IB_USER_VERBS_CMD_CREATE_AH, empty,
		vroce_create_ah_resp);

#endif /* __VROCE_ABI_H__ */
