// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* What "rdma resource show -dd" tells of the device's side of an object. */
#include <net/netlink.h>
#include <rdma/rdma_netlink.h>
#include <rdma/restrack.h>

#include "vroce_ib.h"

struct vroce_res_value {
	const char *name;
	u32 value;
};

static int vroce_fill_res(struct sk_buff *msg,
			  const struct vroce_res_value *values, int n)
{
	struct nlattr *table;
	int i;

	table = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	if (!table)
		return -EMSGSIZE;
	for (i = 0; i < n; i++) {
		if (rdma_nl_put_driver_u32(msg, values[i].name,
					   values[i].value)) {
			nla_nest_cancel(msg, table);
			return -EMSGSIZE;
		}
	}
	nla_nest_end(msg, table);
	return 0;
}

int vroce_fill_res_qp(struct sk_buff *msg, struct ib_qp *ibqp)
{
	struct vroce_ib_qp *qp = to_vqp(ibqp);
	struct vroce_res_value values[] = {
		{ "qpn", qp->hw.qpn },
		{ "sq_pi", qp->hw.sq.pi },
		{ "sq_ci", READ_ONCE(qp->hw.sq.ci) },
		{ "rq_pi", qp->hw.rq.pi },
		{ "rq_ci", READ_ONCE(qp->hw.rq.ci) },
	};

	/* Indices of a user's rings are the user's. */
	return vroce_fill_res(msg, values, qp->hw.mem ? ARRAY_SIZE(values) : 1);
}

int vroce_fill_res_cq(struct sk_buff *msg, struct ib_cq *ibcq)
{
	struct vroce_ib_cq *cq = to_vcq(ibcq);
	struct vroce_res_value values[] = {
		{ "cqn", cq->hw.cqn },
		{ "eqn", cq->hw.eq->eqn },
		{ "vector", cq->hw.eq->vector },
		{ "ci", cq->hw.ci },
	};

	return vroce_fill_res(msg, values, ARRAY_SIZE(values) - !cq->hw.ring);
}

int vroce_fill_res_mr(struct sk_buff *msg, struct ib_mr *ibmr)
{
	struct vroce_mr *mr = to_vmr(ibmr);
	struct vroce_res_value values[] = {
		{ "key", ibmr->lkey },
		{ "fast_reg_pages", mr->list.capacity },
		{ "mapped_pages", mr->num_pages },
	};

	return vroce_fill_res(msg, values,
			      mr->list.capacity ? ARRAY_SIZE(values) : 1);
}

int vroce_fill_res_srq(struct sk_buff *msg, struct ib_srq *ibsrq)
{
	struct vroce_ib_srq *srq = to_vsrq(ibsrq);
	struct vroce_res_value values[] = {
		{ "srqn", srq->hw.srqn },
		{ "pi", srq->hw.rq.pi },
		{ "ci", srq->hw.rq.ci },
	};

	return vroce_fill_res(msg, values, srq->hw.mem ? ARRAY_SIZE(values) : 1);
}
