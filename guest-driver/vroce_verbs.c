// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The RDMA device: what it is, its port, its GIDs and its counters. */
#include <linux/etherdevice.h>
#include <linux/module.h>
#include <linux/rtnetlink.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>

#include "vroce-abi.h"
#include "vroce_ib.h"

#define VROCE_PORT	1

static int vroce_query_device(struct ib_device *ibdev,
			      struct ib_device_attr *attr,
			      struct ib_udata *udata)
{
	struct vroce_dev *dev = to_vdev(ibdev);
	struct vroce_query_device_out *caps = &dev->caps;

	if (udata->inlen || udata->outlen)
		return -EINVAL;

	memset(attr, 0, sizeof(*attr));
	attr->fw_ver = le32_to_cpu(caps->fw_version);
	attr->sys_image_guid = ibdev->node_guid;
	attr->max_mr_size = le64_to_cpu(caps->max_mr_size);
	attr->page_size_cap = le64_to_cpu(caps->page_size_cap);
	attr->vendor_id = dev->pdev->vendor;
	attr->vendor_part_id = dev->pdev->device;
	attr->hw_ver = dev->pdev->revision;
	attr->max_qp = le32_to_cpu(caps->max_qp);
	attr->max_qp_wr = vroce_max_qp_wr(dev);
	attr->max_send_sge = le32_to_cpu(caps->max_sge);
	attr->max_recv_sge = le32_to_cpu(caps->max_sge);
	attr->max_sge_rd = le32_to_cpu(caps->max_sge);
	attr->max_cq = le32_to_cpu(caps->max_cq);
	attr->max_cqe = vroce_max_cqe(dev);
	attr->max_mr = le32_to_cpu(caps->max_mr);
	attr->max_pd = le32_to_cpu(caps->max_pd);
	attr->max_ah = INT_MAX;
	attr->max_qp_rd_atom = le32_to_cpu(caps->max_rd_atomic);
	attr->max_qp_init_rd_atom = le32_to_cpu(caps->max_rd_atomic);
	attr->max_res_rd_atom = min_t(u64, INT_MAX, (u64)attr->max_qp *
				      attr->max_qp_rd_atom);
	attr->max_pkeys = 1;
	attr->cq_caps.max_cq_moderation_count = U16_MAX;
	attr->cq_caps.max_cq_moderation_period = U16_MAX;
	attr->timestamp_mask = U64_MAX;
	attr->hca_core_clock = NSEC_PER_SEC / MSEC_PER_SEC;	/* kHz */
	attr->device_cap_flags = IB_DEVICE_SYS_IMAGE_GUID |
		IB_DEVICE_RC_RNR_NAK_GEN | IB_DEVICE_PORT_ACTIVE_EVENT |
		IB_DEVICE_CURR_QP_STATE_MOD;
	if (vroce_has(dev, VROCE_FEATURE_ATOMIC))
		attr->atomic_cap = IB_ATOMIC_HCA;
	if (vroce_has(dev, VROCE_FEATURE_SRQ)) {
		attr->max_srq = le32_to_cpu(caps->max_srq);
		attr->max_srq_wr = le32_to_cpu(caps->max_srq_wr);
		attr->max_srq_sge = le32_to_cpu(caps->max_sge);
	}
	if (vroce_has(dev, VROCE_FEATURE_FAST_REG)) {
		attr->device_cap_flags |= IB_DEVICE_MEM_MGT_EXTENSIONS;
		attr->max_fast_reg_page_list_len =
			le32_to_cpu(caps->max_fast_reg_pages);
	}
	if (vroce_has(dev, VROCE_FEATURE_MCAST)) {
		attr->max_mcast_grp = le32_to_cpu(caps->max_mcast_groups);
		attr->max_mcast_qp_attach = le32_to_cpu(caps->max_mcast_attach);
		attr->max_total_mcast_qp_attach = min_t(u64, INT_MAX,
							(u64)attr->max_mcast_grp *
							attr->max_mcast_qp_attach);
	}
	return 0;
}

static bool vroce_port_active(struct vroce_dev *dev)
{
	struct net_device *ndev = vroce_netdev_get(dev);

	return netif_running(ndev) && netif_carrier_ok(ndev) &&
		!vroce_failed(dev);
}

static int vroce_query_port(struct ib_device *ibdev, u32 port,
			    struct ib_port_attr *attr)
{
	struct vroce_dev *dev = to_vdev(ibdev);
	struct net_device *ndev = vroce_netdev_get(dev);

	attr->state = IB_PORT_DOWN;
	attr->phys_state = IB_PORT_PHYS_STATE_DISABLED;
	if (vroce_port_active(dev)) {
		attr->state = IB_PORT_ACTIVE;
		attr->phys_state = IB_PORT_PHYS_STATE_LINK_UP;
	} else if (netif_running(ndev)) {
		attr->phys_state = IB_PORT_PHYS_STATE_POLLING;
	}
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = iboe_get_mtu(READ_ONCE(ndev->mtu));
	attr->gid_tbl_len = le32_to_cpu(dev->caps.max_gids);
	attr->pkey_tbl_len = 1;
	attr->ip_gids = true;
	attr->port_cap_flags = IB_PORT_CM_SUP | IB_PORT_DEVICE_MGMT_SUP;
	attr->max_msg_sz = le32_to_cpu(dev->caps.max_msg_size);
	attr->max_vl_num = 1;
	return ib_get_eth_speed(ibdev, port, &attr->active_speed,
				&attr->active_width);
}

static int vroce_get_port_immutable(struct ib_device *ibdev, u32 port,
				    struct ib_port_immutable *immutable)
{
	struct vroce_dev *dev = to_vdev(ibdev);

	immutable->pkey_tbl_len = 1;
	immutable->gid_tbl_len = le32_to_cpu(dev->caps.max_gids);
	immutable->core_cap_flags = RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
	immutable->max_mad_size = IB_MGMT_MAD_SIZE;
	return 0;
}

static enum rdma_link_layer vroce_get_link_layer(struct ib_device *ibdev,
						 u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

static int vroce_query_pkey(struct ib_device *ibdev, u32 port, u16 index,
			    u16 *pkey)
{
	if (index)
		return -EINVAL;
	*pkey = IB_DEFAULT_PKEY_FULL;
	return 0;
}

static void vroce_get_dev_fw_str(struct ib_device *ibdev, char *str)
{
	u32 fw = le32_to_cpu(to_vdev(ibdev)->caps.fw_version);

	snprintf(str, IB_FW_VERSION_NAME_MAX, "%u.%u", fw >> 16, fw & 0xffff);
}

static int vroce_add_gid(const struct ib_gid_attr *attr, void **context)
{
	struct vroce_set_gid_in in = {
		.index = cpu_to_le32(attr->index),
		.valid = 1,
	};
	u16 vlan;
	int err;

	err = rdma_read_gid_l2_fields(attr, &vlan, in.mac);
	if (err)
		return err;
	static_assert(VROCE_NO_VLAN == 0xffff);
	in.vlan = cpu_to_le16(vlan);
	memcpy(in.gid, attr->gid.raw, sizeof(in.gid));
	return vroce_cmd(to_vdev(attr->device), VROCE_CMD_SET_GID, &in,
			 sizeof(in), NULL, 0);
}

static int vroce_del_gid(const struct ib_gid_attr *attr, void **context)
{
	struct vroce_dev *dev = to_vdev(attr->device);
	struct vroce_set_gid_in in = {
		.index = cpu_to_le32(attr->index),
		.vlan = cpu_to_le16(VROCE_NO_VLAN),
	};
	int err;

	err = vroce_cmd(dev, VROCE_CMD_SET_GID, &in, sizeof(in), NULL, 0);
	return vroce_failed(dev) ? 0 : err;
}

static struct rdma_stat_desc vroce_stat_descs[VROCE_CNT_NUM];

static struct rdma_hw_stats *vroce_alloc_hw_port_stats(struct ib_device *ibdev,
						       u32 port)
{
	return rdma_alloc_hw_stats_struct(vroce_stat_descs, VROCE_CNT_NUM,
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

static int vroce_get_hw_stats(struct ib_device *ibdev,
			      struct rdma_hw_stats *stats, u32 port, int index)
{
	int err = vroce_read_counters(to_vdev(ibdev), stats->value);

	return err ? err : stats->num_counters;
}

static const struct ib_device_ops vroce_ib_ops = {
	.owner = THIS_MODULE,
	/* Has no number of its own; the provider matches the PCI function. */
	.driver_id = RDMA_DRIVER_UNKNOWN,
	.uverbs_abi_ver = VROCE_ABI_VERSION,

	.query_device = vroce_query_device,
	.query_port = vroce_query_port,
	.get_port_immutable = vroce_get_port_immutable,
	.get_link_layer = vroce_get_link_layer,
	.query_pkey = vroce_query_pkey,
	.get_dev_fw_str = vroce_get_dev_fw_str,
	.add_gid = vroce_add_gid,
	.del_gid = vroce_del_gid,
	.alloc_hw_port_stats = vroce_alloc_hw_port_stats,
	.get_hw_stats = vroce_get_hw_stats,

	.alloc_ucontext = vroce_alloc_ucontext,
	.dealloc_ucontext = vroce_dealloc_ucontext,
	.disassociate_ucontext = vroce_disassociate_ucontext,
	.mmap = vroce_mmap,
	.mmap_free = vroce_mmap_free,
	.alloc_pd = vroce_alloc_pd,
	.dealloc_pd = vroce_dealloc_pd,
	.create_ah = vroce_create_ah,
	.create_user_ah = vroce_create_ah,
	.query_ah = vroce_query_ah,
	.destroy_ah = vroce_destroy_ah,

	.create_cq = vroce_create_cq,
	.destroy_cq = vroce_destroy_cq,
	.modify_cq = vroce_modify_cq,
	.poll_cq = vroce_poll_cq,
	.req_notify_cq = vroce_req_notify_cq,

	.create_qp = vroce_create_qp,
	.modify_qp = vroce_modify_qp,
	.query_qp = vroce_query_qp,
	.destroy_qp = vroce_destroy_qp,
	.post_send = vroce_post_send,
	.post_recv = vroce_post_recv,

	.get_dma_mr = vroce_get_dma_mr,
	.reg_user_mr = vroce_reg_user_mr,
	.dereg_mr = vroce_dereg_mr,

	.fill_res_qp_entry = vroce_fill_res_qp,
	.fill_res_cq_entry = vroce_fill_res_cq,
	.fill_res_mr_entry = vroce_fill_res_mr,

	INIT_RDMA_OBJ_SIZE(ib_ah, vroce_ah, ibah),
	INIT_RDMA_OBJ_SIZE(ib_cq, vroce_ib_cq, ibcq),
	INIT_RDMA_OBJ_SIZE(ib_pd, vroce_pd, ibpd),
	INIT_RDMA_OBJ_SIZE(ib_qp, vroce_ib_qp, ibqp),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, vroce_ucontext, ibucontext),
};

static const struct ib_device_ops vroce_ib_srq_ops = {
	.create_srq = vroce_create_srq,
	.modify_srq = vroce_modify_srq,
	.query_srq = vroce_query_srq,
	.destroy_srq = vroce_destroy_srq,
	.post_srq_recv = vroce_post_srq_recv,
	.fill_res_srq_entry = vroce_fill_res_srq,

	INIT_RDMA_OBJ_SIZE(ib_srq, vroce_ib_srq, ibsrq),
};

static const struct ib_device_ops vroce_ib_resize_ops = {
	.resize_cq = vroce_resize_cq,
};

static const struct ib_device_ops vroce_ib_fast_reg_ops = {
	.alloc_mr = vroce_alloc_mr,
	.map_mr_sg = vroce_map_mr_sg,
};

static const struct ib_device_ops vroce_ib_mcast_ops = {
	.attach_mcast = vroce_attach_mcast,
	.detach_mcast = vroce_detach_mcast,
};

static void vroce_set_ops(struct vroce_dev *dev, struct ib_device *ibdev)
{
	ib_set_device_ops(ibdev, &vroce_ib_ops);
	if (vroce_has(dev, VROCE_FEATURE_SRQ))
		ib_set_device_ops(ibdev, &vroce_ib_srq_ops);
	if (vroce_has(dev, VROCE_FEATURE_RESIZE_CQ))
		ib_set_device_ops(ibdev, &vroce_ib_resize_ops);
	if (vroce_has(dev, VROCE_FEATURE_FAST_REG))
		ib_set_device_ops(ibdev, &vroce_ib_fast_reg_ops);
	if (vroce_has(dev, VROCE_FEATURE_MCAST))
		ib_set_device_ops(ibdev, &vroce_ib_mcast_ops);
}

/**
 * vroce_ib_port_event - report a change of the port's state
 * @dev: device whose interface or link may have changed
 *
 * Any context.
 */
void vroce_ib_port_event(struct vroce_dev *dev)
{
	struct vroce_ib *ib = READ_ONCE(dev->ib);
	struct ib_event event = { };
	unsigned long flags;
	bool active;

	if (!ib)
		return;
	event.device = &ib->ibdev;
	event.element.port_num = VROCE_PORT;
	/* The last event tells of the last state. */
	spin_lock_irqsave(&dev->port_lock, flags);
	active = vroce_port_active(dev);
	if (active != ib->port_active) {
		ib->port_active = active;
		event.event = active ? IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR;
		ib_dispatch_event(&event);
	}
	spin_unlock_irqrestore(&dev->port_lock, flags);
}

/**
 * vroce_ib_fail - tell consumers that the device has failed
 * @dev: device
 */
void vroce_ib_fail(struct vroce_dev *dev)
{
	struct ib_event event = { };

	if (!dev->ib)
		return;
	event.device = &dev->ib->ibdev;
	event.event = IB_EVENT_DEVICE_FATAL;
	event.element.port_num = VROCE_PORT;
	ib_dispatch_event(&event);
	vroce_ib_port_event(dev);
}

/**
 * vroce_ib_init - make and register the RDMA side
 * @dev: device with its Ethernet side
 *
 * Return: 0 or an error.
 */
int vroce_ib_init(struct vroce_dev *dev)
{
	struct ib_device *ibdev;
	struct vroce_ib *ib;
	int err, i;

	ib = ib_alloc_device(vroce_ib, ibdev);
	if (!ib)
		return -ENOMEM;
	ib->dev = dev;
	ibdev = &ib->ibdev;
	for (i = 0; i < VROCE_CNT_NUM; i++)
		vroce_stat_descs[i].name = vroce_counter_names[i];

	ibdev->node_type = RDMA_NODE_IB_CA;
	/* Bytes in wire order, not a number. */
	ibdev->node_guid = (__force __be64)dev->caps.node_guid;
	strscpy(ibdev->node_desc, VROCE_DRV_NAME, sizeof(ibdev->node_desc));
	ibdev->phys_port_cnt = 1;
	ibdev->num_comp_vectors = dev->num_comp_eqs;
	ibdev->dev.parent = &dev->pdev->dev;
	vroce_set_ops(dev, ibdev);

	err = ib_device_set_netdev(ibdev, vroce_netdev_get(dev), VROCE_PORT);
	if (err)
		goto err_dealloc;
	err = ib_register_device(ibdev, VROCE_DRV_NAME "%d", &dev->pdev->dev);
	if (err)
		goto err_dealloc;
	/* Shows the device to event handlers once it is complete. */
	smp_store_release(&dev->ib, ib);
	/* The interface may be up already. */
	vroce_ib_port_event(dev);
	return 0;

err_dealloc:
	dev_err(&dev->pdev->dev, "no RDMA device: %d\n", err);
	ib_dealloc_device(ibdev);
	return err;
}

/**
 * vroce_ib_exit - undo vroce_ib_init()
 * @dev: device
 *
 * Takes the device away from all its users, those of user space included.
 */
void vroce_ib_exit(struct vroce_dev *dev)
{
	struct vroce_ib *ib = dev->ib;

	/* No port event comes from the interface or the device after this. */
	rtnl_lock();
	WRITE_ONCE(dev->ib, NULL);
	rtnl_unlock();
	vroce_async_sync(dev);
	ib_unregister_device(&ib->ibdev);
	ib_dealloc_device(&ib->ibdev);
}
