// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <linux/ethtool.h>

#include "vroce_netdev.h"

#define SOFT_STAT(name) { #name, offsetof(struct vroce_netdev_stats, name) }

static const struct {
	const char *name;
	size_t offset;
} vroce_soft_stats[] = {
	SOFT_STAT(tx_linearized),
	SOFT_STAT(tx_dropped),
	SOFT_STAT(tx_failed),
	SOFT_STAT(rx_failed),
	SOFT_STAT(rx_alloc_failed),
};

static void vroce_get_drvinfo(struct net_device *ndev,
			      struct ethtool_drvinfo *info)
{
	struct vroce_netdev *net = netdev_priv(ndev);
	u32 fw = le32_to_cpu(net->dev->caps.fw_version);

	strscpy(info->driver, VROCE_DRV_NAME, sizeof(info->driver));
	strscpy(info->bus_info, pci_name(net->dev->pdev),
		sizeof(info->bus_info));
	snprintf(info->fw_version, sizeof(info->fw_version), "%u.%u", fw >> 16,
		 fw & 0xffff);
}

static int vroce_get_link_ksettings(struct net_device *ndev,
				    struct ethtool_link_ksettings *settings)
{
	struct vroce_netdev *net = netdev_priv(ndev);
	bool up = netif_carrier_ok(ndev);

	ethtool_link_ksettings_zero_link_mode(settings, supported);
	ethtool_link_ksettings_zero_link_mode(settings, advertising);
	settings->base.speed = up ? vroce_link_speed(net->dev) : SPEED_UNKNOWN;
	settings->base.duplex = up ? DUPLEX_FULL : DUPLEX_UNKNOWN;
	settings->base.autoneg = AUTONEG_DISABLE;
	settings->base.port = PORT_OTHER;
	return 0;
}

static int vroce_get_sset_count(struct net_device *ndev, int set)
{
	return set == ETH_SS_STATS ?
		VROCE_CNT_NUM + ARRAY_SIZE(vroce_soft_stats) : -EOPNOTSUPP;
}

static void vroce_get_strings(struct net_device *ndev, u32 set, u8 *data)
{
	char name[ETH_GSTRING_LEN];
	int i;

	if (set != ETH_SS_STATS)
		return;
	for (i = 0; i < VROCE_CNT_NUM; i++)
		ethtool_puts(&data, vroce_counter_names[i]);
	for (i = 0; i < ARRAY_SIZE(vroce_soft_stats); i++) {
		snprintf(name, sizeof(name), "driver_%s",
			 vroce_soft_stats[i].name);
		ethtool_puts(&data, name);
	}
}

static void vroce_get_ethtool_stats(struct net_device *ndev,
				    struct ethtool_stats *stats, u64 *data)
{
	struct vroce_netdev *net = netdev_priv(ndev);
	int err, i;

	err = vroce_read_counters(net->dev, data);
	if (err)
		netdev_warn(ndev, "counters cannot be read: %d\n", err);
	data += VROCE_CNT_NUM;
	for (i = 0; i < ARRAY_SIZE(vroce_soft_stats); i++)
		data[i] = *(u64 *)((u8 *)&net->stats +
				   vroce_soft_stats[i].offset);
}

const struct ethtool_ops vroce_ethtool_ops = {
	.get_drvinfo = vroce_get_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_link_ksettings = vroce_get_link_ksettings,
	.get_ts_info = ethtool_op_get_ts_info,
	.get_sset_count = vroce_get_sset_count,
	.get_strings = vroce_get_strings,
	.get_ethtool_stats = vroce_get_ethtool_stats,
};
