// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* User contexts, protection domains and address handles. */
#include <linux/module.h>

#include "vroce-abi.h"
#include "vroce_ib.h"

/**
 * vroce_get_request - read the provider's part of a request
 * @udata: from the core
 * @req: gets it
 * @size: bytes of @req
 *
 * Return: 0, -EINVAL if it is too short, -EOPNOTSUPP if it has more to say than
 * this driver knows, or -EFAULT.
 */
int vroce_get_request(struct ib_udata *udata, void *req, size_t size)
{
	if (udata->inlen < size)
		return -EINVAL;
	if (udata->inlen > size &&
	    !ib_is_udata_cleared(udata, size, udata->inlen - size))
		return -EOPNOTSUPP;
	return ib_copy_from_udata(req, udata, size);
}

static int vroce_insert_doorbell_page(struct vroce_dev *dev,
				      struct vroce_ucontext *uc)
{
	struct vroce_mmap_entry *entry;
	int err;

	/* Whatever the device says, user space gets no other memory. */
	if (uc->page >= pci_resource_len(dev->pdev, VROCE_BAR_DOORBELL) >>
	    PAGE_SHIFT)
		return -EIO;
	entry = kzalloc(sizeof(*entry), GFP_KERNEL);
	if (!entry)
		return -ENOMEM;
	entry->addr = dev->db_phys + ((phys_addr_t)uc->page << PAGE_SHIFT);
	err = rdma_user_mmap_entry_insert(&uc->ibucontext, &entry->rdma_entry,
					  PAGE_SIZE);
	if (err) {
		kfree(entry);
		return err;
	}
	uc->db_entry = &entry->rdma_entry;
	return 0;
}

int vroce_alloc_ucontext(struct ib_ucontext *ibuc, struct ib_udata *udata)
{
	struct vroce_dev *dev = to_vdev(ibuc->device);
	struct vroce_ucontext *uc = to_vucontext(ibuc);
	struct vroce_alloc_ucontext_resp resp = { };
	int err;

	/*
	 * The core pins no module whose contexts can be disassociated. That is
	 * for unplugging a card: unloading its driver must wait for programs.
	 */
	if (!try_module_get(THIS_MODULE))
		return -ENODEV;
	err = vroce_cmd_create(dev, VROCE_CMD_ALLOC_CONTEXT, NULL, 0, &uc->page);
	if (err)
		goto err_module;
	err = vroce_insert_doorbell_page(dev, uc);
	if (err)
		goto err_context;

	resp.db_mmap_key = rdma_user_mmap_get_offset(uc->db_entry);
	resp.db_mmap_size = PAGE_SIZE;
	resp.max_sge = le32_to_cpu(dev->caps.max_sge);
	resp.max_inline = le32_to_cpu(dev->caps.max_inline);
	resp.max_sq_units = min(le32_to_cpu(dev->caps.max_qp_wr),
				1u << VROCE_MAX_SQ_LOG_UNITS);
	resp.max_rq_entries = min(le32_to_cpu(dev->caps.max_qp_wr),
				  1u << VROCE_MAX_RQ_LOG_ENTRIES);
	resp.max_cqe = vroce_max_cqe(dev);
	resp.features = le64_to_cpu(dev->caps.features);
	err = ib_copy_to_udata(udata, &resp, min(sizeof(resp), udata->outlen));
	if (err)
		goto err_mmap;
	return 0;

err_mmap:
	rdma_user_mmap_entry_remove(uc->db_entry);
err_context:
	vroce_cmd_destroy(dev, VROCE_CMD_FREE_CONTEXT, uc->page);
err_module:
	module_put(THIS_MODULE);
	return err;
}

void vroce_dealloc_ucontext(struct ib_ucontext *ibuc)
{
	struct vroce_ucontext *uc = to_vucontext(ibuc);

	rdma_user_mmap_entry_remove(uc->db_entry);
	vroce_cmd_destroy(to_vdev(ibuc->device), VROCE_CMD_FREE_CONTEXT,
			  uc->page);
	module_put(THIS_MODULE);
}

/* The core takes the mappings away; there is nothing else to give up. */
void vroce_disassociate_ucontext(struct ib_ucontext *ibuc)
{
}

int vroce_mmap(struct ib_ucontext *ibuc, struct vm_area_struct *vma)
{
	struct rdma_user_mmap_entry *rdma_entry;
	struct vroce_mmap_entry *entry;
	int err;

	rdma_entry = rdma_user_mmap_entry_get(ibuc, vma);
	if (!rdma_entry)
		return -EINVAL;
	entry = container_of(rdma_entry, struct vroce_mmap_entry, rdma_entry);
	err = rdma_user_mmap_io(ibuc, vma, PHYS_PFN(entry->addr), PAGE_SIZE,
				pgprot_noncached(vma->vm_page_prot), rdma_entry);
	rdma_user_mmap_entry_put(rdma_entry);
	return err;
}

void vroce_mmap_free(struct rdma_user_mmap_entry *rdma_entry)
{
	kfree(container_of(rdma_entry, struct vroce_mmap_entry, rdma_entry));
}

int vroce_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct vroce_dev *dev = to_vdev(ibpd->device);
	struct vroce_pd *pd = to_vpd(ibpd);
	struct vroce_alloc_pd_resp resp = { };
	int err;

	err = vroce_cmd_create(dev, VROCE_CMD_ALLOC_PD, NULL, 0, &pd->pdn);
	if (err || !udata)
		return err;
	resp.pdn = pd->pdn;
	err = ib_copy_to_udata(udata, &resp, min(sizeof(resp), udata->outlen));
	if (err)
		vroce_cmd_destroy(dev, VROCE_CMD_FREE_PD, pd->pdn);
	return err;
}

int vroce_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	return vroce_cmd_destroy(to_vdev(ibpd->device), VROCE_CMD_FREE_PD,
				 to_vpd(ibpd)->pdn);
}

/**
 * vroce_fill_av - make the device's address vector
 * @av: gets it
 * @attr: RoCE address whose destination MAC the core has resolved
 */
void vroce_fill_av(struct vroce_av *av, const struct rdma_ah_attr *attr)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(attr);

	memset(av, 0, sizeof(*av));
	memcpy(av->dgid, grh->dgid.raw, sizeof(av->dgid));
	memcpy(av->dmac, attr->roce.dmac, sizeof(av->dmac));
	av->sgid_index = cpu_to_le16(grh->sgid_index);
	av->flow_label = cpu_to_le32(grh->flow_label & 0xfffff);
	av->traffic_class = grh->traffic_class;
	av->hop_limit = grh->hop_limit;
	av->sl = rdma_ah_get_sl(attr);
}

/**
 * vroce_read_av - undo vroce_fill_av()
 * @av: address vector
 * @attr: gets it
 */
void vroce_read_av(const struct vroce_av *av, struct rdma_ah_attr *attr)
{
	union ib_gid dgid;

	memset(attr, 0, sizeof(*attr));
	attr->type = RDMA_AH_ATTR_TYPE_ROCE;
	memcpy(dgid.raw, av->dgid, sizeof(dgid.raw));
	rdma_ah_set_grh(attr, &dgid, le32_to_cpu(av->flow_label),
			le16_to_cpu(av->sgid_index), av->hop_limit,
			av->traffic_class);
	rdma_ah_set_port_num(attr, 1);
	rdma_ah_set_sl(attr, av->sl);
	memcpy(attr->roce.dmac, av->dmac, sizeof(av->dmac));
}

/* The address travels in each WQE, so this needs no command and may not sleep. */
int vroce_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init,
		    struct ib_udata *udata)
{
	struct vroce_create_ah_resp resp;
	struct vroce_ah *ah = to_vah(ibah);

	if (!(rdma_ah_get_ah_flags(init->ah_attr) & IB_AH_GRH))
		return -EINVAL;
	vroce_fill_av(&ah->av, init->ah_attr);
	if (!udata)
		return 0;
	static_assert(sizeof(resp.av) == sizeof(ah->av));
	memcpy(resp.av, &ah->av, sizeof(resp.av));
	return ib_copy_to_udata(udata, &resp, min(sizeof(resp), udata->outlen));
}

int vroce_query_ah(struct ib_ah *ibah, struct rdma_ah_attr *attr)
{
	vroce_read_av(&to_vah(ibah)->av, attr);
	return 0;
}

int vroce_destroy_ah(struct ib_ah *ibah, u32 flags)
{
	return 0;
}
