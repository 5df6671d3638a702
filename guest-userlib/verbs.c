// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Device and port attributes, protection domains, memory, address handles. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vroce.h"

int vroce_query_device(struct ibv_context *ibctx,
		       const struct ibv_query_device_ex_input *input,
		       struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct ib_uverbs_ex_query_device_resp resp;
	size_t resp_size = sizeof(resp);
	uint64_t fw_ver;
	int err;

	err = ibv_cmd_query_device_any(ibctx, input, attr, attr_size, &resp,
				       &resp_size);
	if (err)
		return err;

	/* As in struct vroce_query_device_out. */
	fw_ver = resp.base.fw_ver;
	snprintf(attr->orig_attr.fw_ver, sizeof(attr->orig_attr.fw_ver),
		 "%u.%u", (unsigned int)(fw_ver >> 16) & 0xffff,
		 (unsigned int)fw_ver & 0xffff);

	return 0;
}

int vroce_query_port(struct ibv_context *ibctx, uint8_t port,
		     struct ibv_port_attr *attr)
{
	struct ibv_query_port cmd = {};

	return ibv_cmd_query_port(ibctx, port, attr, &cmd, sizeof(cmd));
}

struct ibv_pd *vroce_alloc_pd(struct ibv_context *ibctx)
{
	struct vroce_ualloc_pd_resp resp = {};
	struct ibv_alloc_pd cmd = {};
	struct ibv_pd *ibpd;
	int err;

	ibpd = calloc(1, sizeof(*ibpd));
	if (!ibpd)
		return NULL;

	err = ibv_cmd_alloc_pd(ibctx, ibpd, &cmd, sizeof(cmd), &resp.ibv_resp,
			       sizeof(resp));
	if (err) {
		free(ibpd);
		errno = err;
		return NULL;
	}

	return ibpd;
}

int vroce_dealloc_pd(struct ibv_pd *ibpd)
{
	int err;

	err = ibv_cmd_dealloc_pd(ibpd);
	if (err)
		return err;

	free(ibpd);
	return 0;
}

struct ibv_mr *vroce_reg_mr(struct ibv_pd *ibpd, void *addr, size_t length,
			    uint64_t hca_va, int access)
{
	struct ib_uverbs_reg_mr_resp resp = {};
	struct ibv_reg_mr cmd = {};
	struct verbs_mr *vmr;
	int err;

	vmr = calloc(1, sizeof(*vmr));
	if (!vmr)
		return NULL;

	err = ibv_cmd_reg_mr(ibpd, addr, length, hca_va, access, vmr, &cmd,
			     sizeof(cmd), &resp, sizeof(resp));
	if (err) {
		free(vmr);
		errno = err;
		return NULL;
	}

	return &vmr->ibv_mr;
}

int vroce_dereg_mr(struct verbs_mr *vmr)
{
	int err;

	err = ibv_cmd_dereg_mr(vmr);
	if (err)
		return err;

	free(vmr);
	return 0;
}

struct ibv_ah *vroce_create_ah(struct ibv_pd *ibpd, struct ibv_ah_attr *attr)
{
	struct vroce_ucreate_ah_resp resp = {};
	struct vroce_ah *ah;
	int err;

	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;

	/* The kernel resolves the destination MAC. */
	err = ibv_cmd_create_ah(ibpd, &ah->ibv_ah, attr, &resp.ibv_resp,
				sizeof(resp));
	if (err) {
		free(ah);
		errno = err;
		return NULL;
	}

	static_assert(sizeof(ah->av) == sizeof(resp.av), "layout of the AV");
	memcpy(&ah->av, resp.av, sizeof(ah->av));

	return &ah->ibv_ah;
}

int vroce_destroy_ah(struct ibv_ah *ibah)
{
	int err;

	err = ibv_cmd_destroy_ah(ibah);
	if (err)
		return err;

	free(to_vah(ibah));
	return 0;
}
