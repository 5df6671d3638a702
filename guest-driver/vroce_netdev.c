// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The card's network interface; its queues are in vroce_eth.c. */
#include <linux/delay.h>
#include <linux/etherdevice.h>

#include "vroce_netdev.h"

/* Under the address lock, so that no receive mode overtakes a newer one. */
static int vroce_netdev_apply_locked(struct vroce_netdev *net)
{
	struct net_device *ndev = net->ndev;
	struct vroce_set_netdev_in in = { };

	in.qpn = cpu_to_le32(net->running ? net->qp.qpn : VROCE_NONE);
	if (ndev->flags & IFF_PROMISC)
		in.flags = cpu_to_le32(VROCE_NETDEV_PROMISC);
	ether_addr_copy(in.mac, ndev->dev_addr);
	in.mtu = cpu_to_le16(ndev->mtu);
	return vroce_cmd_atomic(net->dev, VROCE_CMD_SET_NETDEV, &in, sizeof(in),
				NULL, 0);
}

/**
 * vroce_netdev_apply - tell the device where Ethernet frames go, and which
 * @net: Ethernet side, whose address lock the caller does not hold
 *
 * May sleep.
 *
 * Return: 0 or an error.
 */
int vroce_netdev_apply(struct vroce_netdev *net)
{
	int err;

	might_sleep();
	for (;;) {
		netif_addr_lock_bh(net->ndev);
		err = vroce_netdev_apply_locked(net);
		netif_addr_unlock_bh(net->ndev);
		if (err != -EAGAIN)
			return err;
		/* Each slot of the command queue is in use for a moment. */
		usleep_range(50, 200);
	}
}

static void vroce_apply_work(struct work_struct *work)
{
	struct vroce_netdev *net = container_of(work, struct vroce_netdev,
						apply_work);
	int err = vroce_netdev_apply(net);

	if (err)
		netdev_warn(net->ndev, "receive mode cannot be set: %d\n", err);
}

/* Under the lock, or a state that was read earlier might be set later. */
static void vroce_update_carrier(struct vroce_netdev *net)
{
	struct vroce_dev *dev = net->dev;
	unsigned long flags;

	spin_lock_irqsave(&dev->port_lock, flags);
	if (!vroce_failed(dev) && vroce_read(dev, VROCE_REG_LINK) & 1)
		netif_carrier_on(net->ndev);
	else
		netif_carrier_off(net->ndev);
	spin_unlock_irqrestore(&dev->port_lock, flags);
}

static int vroce_open(struct net_device *ndev)
{
	struct vroce_netdev *net = netdev_priv(ndev);
	int err;

	err = vroce_eth_start(net);
	if (err) {
		netdev_err(ndev, "queues cannot be made: %d\n", err);
		return err;
	}
	vroce_update_carrier(net);
	vroce_ib_port_event(net->dev);
	return 0;
}

static int vroce_close(struct net_device *ndev)
{
	struct vroce_netdev *net = netdev_priv(ndev);

	vroce_eth_stop(net);
	vroce_ib_port_event(net->dev);
	return 0;
}

static void vroce_set_rx_mode(struct net_device *ndev)
{
	struct vroce_netdev *net = netdev_priv(ndev);
	int err = vroce_netdev_apply_locked(net);

	/* This may not sleep until the command queue has a slot. */
	if (err == -EAGAIN)
		schedule_work(&net->apply_work);
	else if (err)
		netdev_warn(ndev, "receive mode cannot be set: %d\n", err);
}

static int vroce_set_mac_address(struct net_device *ndev, void *addr)
{
	struct vroce_netdev *net = netdev_priv(ndev);
	u8 old[ETH_ALEN];
	int err;

	ether_addr_copy(old, ndev->dev_addr);
	err = eth_mac_addr(ndev, addr);
	if (err)
		return err;
	err = vroce_netdev_apply(net);
	if (err)
		eth_hw_addr_set(ndev, old);
	return err;
}

/* Receive buffers depend on the MTU, so the queues are made anew. */
static int vroce_change_mtu(struct net_device *ndev, int mtu)
{
	struct vroce_netdev *net = netdev_priv(ndev);
	int old = ndev->mtu;
	int err;

	if (!net->running) {
		WRITE_ONCE(ndev->mtu, mtu);
		err = vroce_netdev_apply(net);
		if (err)
			WRITE_ONCE(ndev->mtu, old);
		return err;
	}

	vroce_eth_stop(net);
	WRITE_ONCE(ndev->mtu, mtu);
	err = vroce_eth_start(net);
	if (!err)
		return 0;
	WRITE_ONCE(ndev->mtu, old);
	if (vroce_eth_start(net)) {
		netdev_err(ndev, "queues are lost: set the link down and up\n");
		netif_carrier_off(ndev);
	}
	return err;
}

static const struct net_device_ops vroce_netdev_ops = {
	.ndo_open = vroce_open,
	.ndo_stop = vroce_close,
	.ndo_start_xmit = vroce_start_xmit,
	.ndo_tx_timeout = vroce_tx_timeout,
	.ndo_set_rx_mode = vroce_set_rx_mode,
	.ndo_set_mac_address = vroce_set_mac_address,
	.ndo_change_mtu = vroce_change_mtu,
	.ndo_validate_addr = eth_validate_addr,
};

/**
 * vroce_netdev_link_event - follow the link
 * @dev: device
 *
 * Any context.
 */
void vroce_netdev_link_event(struct vroce_dev *dev)
{
	struct vroce_netdev *net = READ_ONCE(dev->netdev);

	if (!net)
		return;
	vroce_update_carrier(net);
	vroce_ib_port_event(dev);
}

/**
 * vroce_netdev_fail - take the carrier down for good
 * @dev: device that has failed
 */
void vroce_netdev_fail(struct vroce_dev *dev)
{
	if (dev->netdev)
		vroce_update_carrier(dev->netdev);
}

/**
 * vroce_netdev_get - the card's network interface
 * @dev: device whose Ethernet side exists
 *
 * Return: the interface, without a reference.
 */
struct net_device *vroce_netdev_get(struct vroce_dev *dev)
{
	return dev->netdev->ndev;
}

static int vroce_eth_pd_init(struct vroce_netdev *net)
{
	struct vroce_create_mr_in in = {
		.access = cpu_to_le32(VROCE_ACCESS_LOCAL_WRITE),
		.kind = VROCE_MR_DMA,
	};
	int err;

	err = vroce_cmd_create(net->dev, VROCE_CMD_ALLOC_PD, NULL, 0, &net->pdn);
	if (err)
		return err;
	in.pdn = cpu_to_le32(net->pdn);
	err = vroce_cmd_create(net->dev, VROCE_CMD_CREATE_MR, &in, sizeof(in),
			       &net->lkey);
	if (err)
		vroce_cmd_destroy(net->dev, VROCE_CMD_FREE_PD, net->pdn);
	return err;
}

static void vroce_eth_pd_exit(struct vroce_netdev *net)
{
	vroce_cmd_destroy(net->dev, VROCE_CMD_DESTROY_MR, net->lkey);
	vroce_cmd_destroy(net->dev, VROCE_CMD_FREE_PD, net->pdn);
}

static void vroce_read_mac(struct vroce_dev *dev, struct net_device *ndev)
{
	u32 lo = vroce_read(dev, VROCE_REG_MAC_LO);
	u32 hi = vroce_read(dev, VROCE_REG_MAC_HI);
	u8 mac[ETH_ALEN] = { lo, lo >> 8, lo >> 16, lo >> 24, hi, hi >> 8 };

	if (is_valid_ether_addr(mac)) {
		eth_hw_addr_set(ndev, mac);
		return;
	}
	eth_hw_addr_random(ndev);
	dev_warn(&dev->pdev->dev, "device has no valid MAC address (%pM), using %pM\n",
		 mac, ndev->dev_addr);
}

/**
 * vroce_netdev_init - make and register the Ethernet side
 * @dev: device with its queues of commands and events
 *
 * Return: 0 or an error.
 */
int vroce_netdev_init(struct vroce_dev *dev)
{
	struct vroce_netdev *net;
	struct net_device *ndev;
	int err;

	ndev = alloc_etherdev(sizeof(*net));
	if (!ndev)
		return -ENOMEM;
	SET_NETDEV_DEV(ndev, &dev->pdev->dev);
	net = netdev_priv(ndev);
	net->dev = dev;
	net->ndev = ndev;
	INIT_WORK(&net->apply_work, vroce_apply_work);
	vroce_read_mac(dev, ndev);
	ndev->netdev_ops = &vroce_netdev_ops;
	ndev->ethtool_ops = &vroce_ethtool_ops;
	ndev->pcpu_stat_type = NETDEV_PCPU_STAT_TSTATS;
	ndev->min_mtu = ETH_MIN_MTU;
	ndev->max_mtu = vroce_read(dev, VROCE_REG_MAX_MTU);
	ndev->hw_features = NETIF_F_SG;
	if (vroce_has(dev, VROCE_FEATURE_ETH_CSUM))
		ndev->hw_features |= NETIF_F_HW_CSUM | NETIF_F_RXCSUM;
	ndev->features = ndev->hw_features | NETIF_F_HIGHDMA;
	ndev->priv_flags |= IFF_LIVE_ADDR_CHANGE;
	ndev->vlan_features = ndev->features;
	netif_napi_add(ndev, &net->napi, vroce_napi_poll);

	err = vroce_eth_pd_init(net);
	if (err)
		goto err_free;
	/* Nobody else knows it, and the address lock does not exist yet. */
	err = vroce_netdev_apply_locked(net);
	if (err)
		goto err_pd;
	netif_carrier_off(ndev);
	WRITE_ONCE(dev->netdev, net);
	err = register_netdev(ndev);
	if (err)
		goto err_hide;
	return 0;

err_hide:
	cancel_work_sync(&net->apply_work);
	WRITE_ONCE(dev->netdev, NULL);
	vroce_async_sync(dev);
err_pd:
	vroce_eth_pd_exit(net);
err_free:
	dev_err(&dev->pdev->dev, "no network interface: %d\n", err);
	free_netdev(ndev);
	return err;
}

/**
 * vroce_netdev_exit - undo vroce_netdev_init()
 * @dev: device whose RDMA side is gone
 */
void vroce_netdev_exit(struct vroce_dev *dev)
{
	struct vroce_netdev *net = dev->netdev;

	WRITE_ONCE(dev->netdev, NULL);
	vroce_async_sync(dev);
	unregister_netdev(net->ndev);
	cancel_work_sync(&net->apply_work);
	vroce_eth_pd_exit(net);
	free_netdev(net->ndev);
}
