// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Memory regions. */
#include <linux/dma-mapping.h>
#include <rdma/ib_umem.h>

#include "vroce_ib.h"

static_assert(VROCE_ACCESS_LOCAL_WRITE == IB_ACCESS_LOCAL_WRITE);
static_assert(VROCE_ACCESS_REMOTE_WRITE == IB_ACCESS_REMOTE_WRITE);
static_assert(VROCE_ACCESS_REMOTE_READ == IB_ACCESS_REMOTE_READ);
static_assert(VROCE_ACCESS_REMOTE_ATOMIC == IB_ACCESS_REMOTE_ATOMIC);
static_assert(VROCE_ACCESS_ZERO_BASED == IB_ZERO_BASED);

/* Rights with which the device writes to a region. */
#define VROCE_ACCESS_ANY_WRITE	(VROCE_ACCESS_LOCAL_WRITE |	\
				 VROCE_ACCESS_REMOTE_WRITE |	\
				 VROCE_ACCESS_REMOTE_ATOMIC)

static int vroce_mr_create(struct vroce_mr *mr, struct ib_pd *ibpd,
			   struct vroce_create_mr_in *in)
{
	struct vroce_dev *dev = to_vdev(ibpd->device);
	u32 key;
	int err;

	in->pdn = cpu_to_le32(to_vpd(ibpd)->pdn);
	err = vroce_cmd_create(dev, VROCE_CMD_CREATE_MR, in, sizeof(*in), &key);
	if (err)
		return err;
	mr->ibmr.lkey = key;
	mr->ibmr.rkey = key;
	return 0;
}

struct ib_mr *vroce_get_dma_mr(struct ib_pd *ibpd, int access)
{
	struct vroce_create_mr_in in = {
		.access = cpu_to_le32(access & VROCE_ACCESS_SUPPORTED),
		.kind = VROCE_MR_DMA,
	};
	struct vroce_mr *mr;
	int err;

	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	err = vroce_mr_create(mr, ibpd, &in);
	if (err) {
		kfree(mr);
		return ERR_PTR(err);
	}
	return &mr->ibmr;
}

struct ib_mr *vroce_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
				u64 virt_addr, int access,
				struct ib_udata *udata)
{
	struct vroce_dev *dev = to_vdev(ibpd->device);
	struct vroce_create_mr_in in = { };
	struct vroce_page_list list;
	struct vroce_mr *mr;
	int err;

	access &= ~IB_ACCESS_OPTIONAL;
	if (access & ~(VROCE_ACCESS_SUPPORTED | IB_ACCESS_HUGETLB))
		return ERR_PTR(-EOPNOTSUPP);
	if (length > le64_to_cpu(dev->caps.max_mr_size))
		return ERR_PTR(-EINVAL);

	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->umem = ib_umem_get(ibpd->device, start, length, access);
	if (IS_ERR(mr->umem)) {
		err = PTR_ERR(mr->umem);
		goto err_free;
	}
	err = vroce_page_list_from_umem(dev, &list, mr->umem, virt_addr,
					access & VROCE_ACCESS_ANY_WRITE);
	if (err)
		goto err_umem;
	in.buf = list.buf;
	in.iova = cpu_to_le64(virt_addr);
	in.access = cpu_to_le32(access & VROCE_ACCESS_SUPPORTED);
	in.kind = VROCE_MR_MEM;
	err = vroce_mr_create(mr, ibpd, &in);
	vroce_page_list_free(&list);
	if (err)
		goto err_umem;

	mr->ibmr.iova = virt_addr;
	mr->ibmr.length = length;
	return &mr->ibmr;

err_umem:
	ib_umem_release(mr->umem);
err_free:
	kfree(mr);
	return ERR_PTR(err);
}

struct ib_mr *vroce_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type,
			     u32 max_num_sg)
{
	struct vroce_dev *dev = to_vdev(ibpd->device);
	struct vroce_create_mr_in in = {
		.kind = VROCE_MR_FAST,
		.max_pages = cpu_to_le32(max_num_sg),
	};
	struct vroce_mr *mr;
	int err;

	if (type != IB_MR_TYPE_MEM_REG)
		return ERR_PTR(-EOPNOTSUPP);
	if (!max_num_sg ||
	    max_num_sg > le32_to_cpu(dev->caps.max_fast_reg_pages))
		return ERR_PTR(-EINVAL);

	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	err = vroce_page_list_alloc(dev, &mr->list, max_num_sg);
	if (err)
		goto err_free;
	err = vroce_mr_create(mr, ibpd, &in);
	if (err)
		goto err_list;
	return &mr->ibmr;

err_list:
	vroce_page_list_free(&mr->list);
err_free:
	kfree(mr);
	return ERR_PTR(err);
}

static int vroce_set_page(struct ib_mr *ibmr, u64 addr)
{
	struct vroce_mr *mr = to_vmr(ibmr);

	if (mr->num_pages == mr->list.capacity)
		return -ENOMEM;
	vroce_page_list_set(&mr->list, mr->num_pages++, addr, true);
	return 0;
}

int vroce_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int nents,
		    unsigned int *offset)
{
	struct vroce_mr *mr = to_vmr(ibmr);
	int n;

	mr->num_pages = 0;
	vroce_page_list_begin(&mr->list);
	n = ib_sg_to_pages(ibmr, sg, nents, offset, vroce_set_page);
	vroce_page_list_end(&mr->list, ibmr->iova, ibmr->length,
			    ilog2(ibmr->page_size));
	return n;
}

int vroce_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct vroce_mr *mr = to_vmr(ibmr);
	int err;

	err = vroce_cmd_destroy(to_vdev(ibmr->device), VROCE_CMD_DESTROY_MR,
				ibmr->lkey);
	if (err)
		return err;
	vroce_page_list_free(&mr->list);
	ib_umem_release(mr->umem);
	kfree(mr);
	return 0;
}
