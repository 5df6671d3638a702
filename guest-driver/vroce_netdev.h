/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef VROCE_NETDEV_H
#define VROCE_NETDEV_H

#include <linux/netdevice.h>

#include "vroce_queue.h"

struct page_pool;

/* One mapped piece of a frame; unused for a WQE's header. */
struct vroce_tx_map {
	dma_addr_t addr;
	u32 len;
};

/* What a WQE that begins at this unit of the ring sends. */
struct vroce_tx_frame {
	struct sk_buff *skb;
	u8 units;
	u8 num_maps;
};

/* Kept under the transmit lock or in NAPI, shown by ethtool. */
struct vroce_netdev_stats {
	u64 tx_linearized;
	u64 tx_dropped;
	u64 tx_failed;
	u64 rx_failed;
	u64 rx_alloc_failed;
};

/*
 * struct vroce_netdev - Ethernet side of a card
 * @pdn: protection domain
 * @lkey: key of all memory
 * @running: the queues exist
 * @apply_work: sets a receive mode that found the command queue full
 * @tx_frames: one a unit of the send ring
 * @tx_maps: one for each 16 bytes of the send ring, where its SGE would be
 * @rx_pages: one a receive WQE
 * @rx_order: of the allocations in @pool
 * @rx_len: bytes of a frame that one of them holds
 */
struct vroce_netdev {
	struct vroce_dev *dev;
	struct net_device *ndev;
	u32 pdn;
	u32 lkey;
	bool running;
	struct work_struct apply_work;
	struct napi_struct napi;
	struct vroce_cq tx_cq;
	struct vroce_cq rx_cq;
	struct vroce_qp qp;
	struct vroce_tx_frame *tx_frames;
	struct vroce_tx_map *tx_maps;
	struct page_pool *pool;
	struct page **rx_pages;
	unsigned int rx_order;
	u32 rx_len;
	struct vroce_netdev_stats stats;
};

/* Speed of the link in Mb/s. */
static inline u32 vroce_link_speed(struct vroce_dev *dev)
{
	return vroce_read(dev, VROCE_REG_LINK) >> 8;
}

/* vroce_eth.c */
int vroce_eth_start(struct vroce_netdev *net);
void vroce_eth_stop(struct vroce_netdev *net);
netdev_tx_t vroce_start_xmit(struct sk_buff *skb, struct net_device *ndev);
void vroce_tx_timeout(struct net_device *ndev, unsigned int txqueue);
int vroce_napi_poll(struct napi_struct *napi, int budget);

/* vroce_netdev.c */
int vroce_netdev_apply(struct vroce_netdev *net);

/* vroce_ethtool.c */
extern const struct ethtool_ops vroce_ethtool_ops;

#endif /* VROCE_NETDEV_H */
