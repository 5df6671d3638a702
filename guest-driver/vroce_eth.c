// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Queues of the card's Ethernet side: one queue pair of type ETH with a CQ for
 * each direction, served by one NAPI instance.
 */
#include <linux/dma-mapping.h>
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <net/netdev_queues.h>
#include <net/page_pool/helpers.h>

#include "vroce_netdev.h"

#define VROCE_TX_LOG_UNITS	9
#define VROCE_RX_LOG_ENTRIES	8
#define VROCE_RX_LOG_STRIDE	5	/* header and one scatter-gather entry */

#define VROCE_ETH_WQE_HEADER	(sizeof(struct vroce_wqe_ctrl) + \
				 sizeof(struct vroce_wqe_eth))
#define VROCE_MAPS_PER_UNIT	(VROCE_SQ_UNIT / sizeof(struct vroce_sge))
/* Free units below which the stack is asked to wait. */
#define VROCE_TX_STOP		VROCE_MAX_WQE_UNITS
#define VROCE_TX_WAKE		(BIT(VROCE_TX_LOG_UNITS) / 4)

#define VROCE_RX_HEADROOM	(NET_SKB_PAD + NET_IP_ALIGN)
#define VROCE_RX_TAILROOM	SKB_DATA_ALIGN(sizeof(struct skb_shared_info))

static u32 vroce_max_frags(struct vroce_netdev *net)
{
	return min_t(u32, le32_to_cpu(net->dev->caps.max_sge), VROCE_MAX_SGE);
}

/* ---------------------------------------------------------- transmit */

static struct vroce_tx_map *vroce_tx_map(struct vroce_netdev *net, u32 unit,
					 u32 i)
{
	u32 first = VROCE_ETH_WQE_HEADER / sizeof(struct vroce_sge);
	u32 mask = BIT(VROCE_TX_LOG_UNITS) * VROCE_MAPS_PER_UNIT - 1;

	return &net->tx_maps[(unit * VROCE_MAPS_PER_UNIT + first + i) & mask];
}

static struct vroce_tx_frame *vroce_tx_frame(struct vroce_netdev *net, u32 unit)
{
	return &net->tx_frames[unit & (BIT(VROCE_TX_LOG_UNITS) - 1)];
}

static void vroce_tx_unmap(struct vroce_netdev *net, u32 unit, u32 num_maps)
{
	struct device *d = &net->dev->pdev->dev;
	u32 i;

	for (i = 0; i < num_maps; i++) {
		struct vroce_tx_map *map = vroce_tx_map(net, unit, i);

		if (i)
			dma_unmap_page(d, map->addr, map->len, DMA_TO_DEVICE);
		else
			dma_unmap_single(d, map->addr, map->len, DMA_TO_DEVICE);
	}
}

/* Maps a frame for the WQE that begins at the producer index. */
static int vroce_tx_map_skb(struct vroce_netdev *net, struct sk_buff *skb)
{
	struct device *d = &net->dev->pdev->dev;
	u32 unit = net->qp.sq.pi;
	u32 i, n = skb_shinfo(skb)->nr_frags + 1;

	for (i = 0; i < n; i++) {
		struct vroce_tx_map *map = vroce_tx_map(net, unit, i);

		if (i) {
			skb_frag_t *frag = &skb_shinfo(skb)->frags[i - 1];

			map->len = skb_frag_size(frag);
			map->addr = skb_frag_dma_map(d, frag, 0, map->len,
						     DMA_TO_DEVICE);
		} else {
			map->len = skb_headlen(skb);
			map->addr = dma_map_single(d, skb->data, map->len,
						   DMA_TO_DEVICE);
		}
		if (dma_mapping_error(d, map->addr)) {
			vroce_tx_unmap(net, unit, i);
			return -ENOMEM;
		}
	}
	return 0;
}

static void vroce_tx_post(struct vroce_netdev *net, struct sk_buff *skb,
			  u32 num_maps, u32 units)
{
	u32 i, unit = net->qp.sq.pi;
	struct vroce_wqe_eth *eth;
	struct vroce_sge *sge;
	union vroce_wqe wqe;

	memset(&wqe, 0, units * VROCE_SQ_UNIT);
	wqe.ctrl.opcode = VROCE_WQE_ETH;
	wqe.ctrl.flags = VROCE_WQE_SIGNALED;
	wqe.ctrl.num_sge = num_maps;
	wqe.ctrl.wr_id = cpu_to_le64(unit);
	eth = (void *)(wqe.bytes + sizeof(wqe.ctrl));
	if (skb->ip_summed == CHECKSUM_PARTIAL) {
		eth->flags = VROCE_ETH_CSUM;
		eth->csum_start = cpu_to_le16(skb_checksum_start_offset(skb));
		eth->csum_offset = cpu_to_le16(skb->csum_offset);
	}
	sge = (void *)(wqe.bytes + VROCE_ETH_WQE_HEADER);
	for (i = 0; i < num_maps; i++) {
		struct vroce_tx_map *map = vroce_tx_map(net, unit, i);

		sge[i].addr = cpu_to_le64(map->addr);
		sge[i].length = cpu_to_le32(map->len);
		sge[i].lkey = cpu_to_le32(net->lkey);
	}
	*vroce_tx_frame(net, unit) = (struct vroce_tx_frame) {
		.skb = skb,
		.units = units,
		.num_maps = num_maps,
	};
	vroce_sq_push(&net->qp.sq, &wqe, units);
}

netdev_tx_t vroce_start_xmit(struct sk_buff *skb, struct net_device *ndev)
{
	struct vroce_netdev *net = netdev_priv(ndev);
	struct netdev_queue *txq = netdev_get_tx_queue(ndev, 0);
	struct vroce_sq *sq = &net->qp.sq;
	u32 num_maps, units;

	/* A wake may come late, when the ring is full again. */
	if (unlikely(!netif_txq_maybe_stop(txq, vroce_sq_room(sq),
					   VROCE_TX_STOP, VROCE_TX_WAKE)))
		return NETDEV_TX_BUSY;
	if (unlikely(eth_skb_pad(skb))) {
		skb = NULL;
		goto drop;
	}
	if (skb_shinfo(skb)->nr_frags + 1 > vroce_max_frags(net)) {
		net->stats.tx_linearized++;
		if (skb_linearize(skb))
			goto drop;
	}
	if (vroce_tx_map_skb(net, skb))
		goto drop;

	num_maps = skb_shinfo(skb)->nr_frags + 1;
	units = vroce_wqe_units(VROCE_ETH_WQE_HEADER +
				num_maps * sizeof(struct vroce_sge));
	skb_tx_timestamp(skb);
	vroce_tx_post(net, skb, num_maps, units);
	netif_txq_maybe_stop(txq, vroce_sq_room(sq), VROCE_TX_STOP,
			     VROCE_TX_WAKE);
	if (__netdev_tx_sent_queue(txq, skb->len, netdev_xmit_more()))
		vroce_sq_ring(&net->qp);
	return NETDEV_TX_OK;

drop:
	dev_kfree_skb_any(skb);
	net->stats.tx_dropped++;
	/* Frames before this one may have left the doorbell to it. */
	if (!netdev_xmit_more())
		vroce_sq_ring(&net->qp);
	return NETDEV_TX_OK;
}

/* Ends the frame at the consumer index; its length in bytes. */
static u32 vroce_tx_release(struct vroce_netdev *net, int budget)
{
	struct vroce_sq *sq = &net->qp.sq;
	struct vroce_tx_frame *frame = vroce_tx_frame(net, sq->ci);
	u32 len = frame->skb->len;

	vroce_tx_unmap(net, sq->ci, frame->num_maps);
	napi_consume_skb(frame->skb, budget);
	frame->skb = NULL;
	WRITE_ONCE(sq->ci, sq->ci + frame->units);
	return len;
}

static void vroce_tx_clean(struct vroce_netdev *net, int budget)
{
	struct netdev_queue *txq = netdev_get_tx_queue(net->ndev, 0);
	struct vroce_sq *sq = &net->qp.sq;
	u32 frames = 0, bytes = 0;
	struct vroce_cqe *cqe;

	while ((cqe = vroce_cq_next(&net->tx_cq))) {
		u32 end = le32_to_cpu(cqe->wqe_end);

		net->tx_cq.ci++;
		if (cqe->status != VROCE_WCS_SUCCESS)
			net->stats.tx_failed++;
		if (end - sq->ci > READ_ONCE(sq->pi) - sq->ci) {
			netdev_err_once(net->ndev,
					"completion of a frame that was not sent\n");
			continue;
		}
		while ((s32)(end - sq->ci) > 0) {
			bytes += vroce_tx_release(net, budget);
			frames++;
		}
	}
	if (!frames)
		return;
	vroce_cq_publish(&net->tx_cq);
	dev_sw_netstats_tx_add(net->ndev, frames, bytes);
	netif_txq_completed_wake(txq, frames, bytes, vroce_sq_room(sq),
				 VROCE_TX_WAKE);
}

void vroce_tx_timeout(struct net_device *ndev, unsigned int txqueue)
{
	struct vroce_netdev *net = netdev_priv(ndev);

	netdev_warn(ndev, "units %u..%u of the send queue have no completion\n",
		    READ_ONCE(net->qp.sq.ci), READ_ONCE(net->qp.sq.pi));
	/* If it is there and only its interrupt was lost, this takes it. */
	napi_schedule(&net->napi);
}

/* ----------------------------------------------------------- receive */

/* Posts receives until the queue is full; false if memory ran out. */
static bool vroce_rx_refill(struct vroce_netdev *net)
{
	struct vroce_rq *rq = &net->qp.rq;
	u32 first = rq->pi;

	while (!vroce_rq_full(rq)) {
		u32 slot = rq->pi & (BIT(VROCE_RX_LOG_ENTRIES) - 1);
		struct page *page = page_pool_dev_alloc_pages(net->pool);
		struct vroce_rwqe *rwqe = vroce_rq_next(rq);
		struct vroce_sge *sge = (void *)(rwqe + 1);

		if (!page) {
			net->stats.rx_alloc_failed++;
			break;
		}
		net->rx_pages[slot] = page;
		sge->addr = cpu_to_le64(page_pool_get_dma_addr(page) +
					VROCE_RX_HEADROOM);
		sge->length = cpu_to_le32(net->rx_len);
		sge->lkey = cpu_to_le32(net->lkey);
		*rwqe = (struct vroce_rwqe) {
			.wr_id = cpu_to_le64(slot),
			.num_sge = 1,
			.index = cpu_to_le16(rq->pi),
		};
		rq->pi++;
	}
	if (rq->pi != first)
		vroce_rq_publish(rq);
	return vroce_rq_full(rq);
}

static void vroce_rx_frame(struct vroce_netdev *net, struct page *page,
			   u32 len, bool csum_ok)
{
	struct sk_buff *skb;

	page_pool_dma_sync_for_cpu(net->pool, page, 0, len);
	skb = napi_build_skb(page_address(page), PAGE_SIZE << net->rx_order);
	if (!skb) {
		net->stats.rx_alloc_failed++;
		page_pool_put_full_page(net->pool, page, true);
		return;
	}
	skb_mark_for_recycle(skb);
	skb_reserve(skb, VROCE_RX_HEADROOM);
	skb_put(skb, len);
	skb->protocol = eth_type_trans(skb, net->ndev);
	if (csum_ok && net->ndev->features & NETIF_F_RXCSUM)
		skb->ip_summed = CHECKSUM_UNNECESSARY;
	dev_sw_netstats_rx_add(net->ndev, len);
	napi_gro_receive(&net->napi, skb);
}

static int vroce_rx(struct vroce_netdev *net, int budget)
{
	struct vroce_rq *rq = &net->qp.rq;
	struct vroce_cqe *cqe;
	int done = 0;

	while (done < budget && (cqe = vroce_cq_next(&net->rx_cq))) {
		u32 slot = rq->ci & (BIT(VROCE_RX_LOG_ENTRIES) - 1);
		struct page *page = net->rx_pages[slot];
		u32 len = le32_to_cpu(cqe->byte_len);
		bool csum_ok = le16_to_cpu(cqe->flags) & VROCE_CQE_CSUM_OK;

		net->rx_cq.ci++;
		done++;
		if (!page || le64_to_cpu(cqe->wr_id) != slot) {
			netdev_err_once(net->ndev,
					"completion of a receive that was not posted\n");
			continue;
		}
		net->rx_pages[slot] = NULL;
		rq->ci++;
		if (cqe->status != VROCE_WCS_SUCCESS || len < ETH_HLEN ||
		    len > net->rx_len) {
			net->stats.rx_failed++;
			page_pool_put_full_page(net->pool, page, true);
			continue;
		}
		vroce_rx_frame(net, page, len, csum_ok);
	}
	if (done)
		vroce_cq_publish(&net->rx_cq);
	return done;
}

int vroce_napi_poll(struct napi_struct *napi, int budget)
{
	struct vroce_netdev *net = container_of(napi, struct vroce_netdev, napi);
	int done = 0;

	vroce_tx_clean(net, budget);
	if (budget) {
		done = vroce_rx(net, budget);
		/* With nothing posted there would be no interrupt to try again. */
		if (!vroce_rx_refill(net))
			return budget;
	}
	if (done < budget && napi_complete_done(napi, done)) {
		vroce_cq_arm(&net->tx_cq, VROCE_DB_CQ_ARM);
		vroce_cq_arm(&net->rx_cq, VROCE_DB_CQ_ARM);
	}
	return done;
}

static void vroce_tx_comp(struct vroce_cq *cq)
{
	napi_schedule(&container_of(cq, struct vroce_netdev, tx_cq)->napi);
}

static void vroce_rx_comp(struct vroce_cq *cq)
{
	napi_schedule(&container_of(cq, struct vroce_netdev, rx_cq)->napi);
}

static void vroce_eth_cq_event(struct vroce_cq *cq, const struct vroce_eqe *eqe)
{
	dev_err(&cq->dev->pdev->dev,
		"CQ %u of the netdev failed, broke rule %u: set the link down and up\n",
		cq->cqn, le16_to_cpu(eqe->rule));
}

static void vroce_eth_qp_event(struct vroce_qp *qp, const struct vroce_eqe *eqe)
{
	dev_err(&qp->dev->pdev->dev,
		"QP %u of the netdev has event %u, broke rule %u: set the link down and up\n",
		qp->qpn, le16_to_cpu(eqe->type), le16_to_cpu(eqe->rule));
}

/* ------------------------------------------------------ start and stop */

static int vroce_eth_alloc(struct vroce_netdev *net)
{
	u32 frame = ETH_HLEN + VLAN_HLEN + net->ndev->mtu;
	struct page_pool_params params = {
		.flags = PP_FLAG_DMA_MAP | PP_FLAG_DMA_SYNC_DEV,
		.pool_size = BIT(VROCE_RX_LOG_ENTRIES),
		.nid = NUMA_NO_NODE,
		.dev = &net->dev->pdev->dev,
		.napi = &net->napi,
		.netdev = net->ndev,
		.dma_dir = DMA_FROM_DEVICE,
		.offset = VROCE_RX_HEADROOM,
	};

	net->rx_order = get_order(VROCE_RX_HEADROOM + frame + VROCE_RX_TAILROOM);
	net->rx_len = (PAGE_SIZE << net->rx_order) - VROCE_RX_HEADROOM -
		VROCE_RX_TAILROOM;
	params.order = net->rx_order;
	params.max_len = net->rx_len;
	net->pool = page_pool_create(&params);
	if (IS_ERR(net->pool))
		return PTR_ERR(net->pool);

	net->rx_pages = kvcalloc(BIT(VROCE_RX_LOG_ENTRIES),
				 sizeof(*net->rx_pages), GFP_KERNEL);
	net->tx_frames = kvcalloc(BIT(VROCE_TX_LOG_UNITS),
				  sizeof(*net->tx_frames), GFP_KERNEL);
	net->tx_maps = kvcalloc(BIT(VROCE_TX_LOG_UNITS) * VROCE_MAPS_PER_UNIT,
				sizeof(*net->tx_maps), GFP_KERNEL);
	if (net->rx_pages && net->tx_frames && net->tx_maps)
		return 0;

	kvfree(net->tx_maps);
	kvfree(net->tx_frames);
	kvfree(net->rx_pages);
	page_pool_destroy(net->pool);
	return -ENOMEM;
}

/* The device no longer uses any of it. */
static void vroce_eth_free(struct vroce_netdev *net)
{
	u32 i;

	while (net->qp.sq.ci != net->qp.sq.pi)
		vroce_tx_release(net, 0);
	for (i = 0; i < BIT(VROCE_RX_LOG_ENTRIES); i++)
		if (net->rx_pages[i])
			page_pool_put_full_page(net->pool, net->rx_pages[i],
						false);
	kvfree(net->tx_maps);
	kvfree(net->tx_frames);
	kvfree(net->rx_pages);
	page_pool_destroy(net->pool);
}

static int vroce_eth_create_cq(struct vroce_netdev *net, struct vroce_cq *cq,
			       u32 entries, void (*comp)(struct vroce_cq *cq))
{
	struct vroce_create_cq_in in = { };
	int err;

	cq->comp = comp;
	cq->event = vroce_eth_cq_event;
	err = vroce_cq_alloc_ring(net->dev, cq, entries, &in);
	if (err)
		return err;
	err = vroce_cq_create(net->dev, cq, 0, &in);
	if (err)
		vroce_cq_free_ring(cq);
	return err;
}

static void vroce_eth_destroy_cq(struct vroce_cq *cq)
{
	vroce_cq_destroy_sure(cq);
	vroce_cq_free_ring(cq);
}

static int vroce_eth_qp_state(struct vroce_netdev *net, enum vroce_qp_state state)
{
	struct vroce_modify_qp_in in = {
		.qpn = cpu_to_le32(net->qp.qpn),
		.attr_mask = cpu_to_le32(VROCE_QP_STATE),
		.attr.state = state,
	};

	if (state == VROCE_QPS_INIT) {
		in.attr_mask |= cpu_to_le32(VROCE_QP_PORT);
		in.attr.port = 1;
	}
	return vroce_cmd(net->dev, VROCE_CMD_MODIFY_QP, &in, sizeof(in), NULL, 0);
}

static void vroce_eth_destroy_qp(struct vroce_netdev *net)
{
	struct vroce_dev *dev = net->dev;

	mutex_lock(&dev->qp_lock);
	if (vroce_cmd_destroy(dev, VROCE_CMD_DESTROY_QP, net->qp.qpn))
		vroce_fail(dev, "netdev's QP cannot be destroyed");
	xa_erase(&dev->qps, net->qp.qpn);
	mutex_unlock(&dev->qp_lock);
	vroce_async_sync(dev);
}

static int vroce_eth_create_qp(struct vroce_netdev *net)
{
	struct vroce_dev *dev = net->dev;
	struct vroce_create_qp_in in = {
		.pdn = cpu_to_le32(net->pdn),
		.send_cqn = cpu_to_le32(net->tx_cq.cqn),
		.recv_cqn = cpu_to_le32(net->rx_cq.cqn),
		.srqn = cpu_to_le32(VROCE_NONE),
		.type = VROCE_QPT_ETH,
		.sq_log_units = VROCE_TX_LOG_UNITS,
		.rq_log_entries = VROCE_RX_LOG_ENTRIES,
		.rq_log_stride = VROCE_RX_LOG_STRIDE,
	};
	enum vroce_qp_state state;
	int err;

	net->qp.event = vroce_eth_qp_event;
	err = vroce_qp_alloc_rings(dev, &net->qp, &in);
	if (err)
		return err;
	mutex_lock(&dev->qp_lock);
	err = vroce_cmd_create(dev, VROCE_CMD_CREATE_QP, &in, sizeof(in),
			       &net->qp.qpn);
	if (err) {
		mutex_unlock(&dev->qp_lock);
		goto err_free;
	}
	err = xa_err(xa_store(&dev->qps, net->qp.qpn, &net->qp, GFP_KERNEL));
	mutex_unlock(&dev->qp_lock);
	if (err)
		goto err_destroy;
	for (state = VROCE_QPS_INIT; state <= VROCE_QPS_RTS; state++) {
		err = vroce_eth_qp_state(net, state);
		if (err)
			goto err_destroy;
	}
	return 0;

err_destroy:
	vroce_eth_destroy_qp(net);
err_free:
	vroce_qp_free_rings(&net->qp);
	return err;
}

/**
 * vroce_eth_start - make the queues for the MTU there is, and use them
 * @net: Ethernet side without queues
 *
 * Under RTNL.
 *
 * Return: 0 or an error.
 */
int vroce_eth_start(struct vroce_netdev *net)
{
	int err;

	err = vroce_eth_alloc(net);
	if (err)
		return err;
	err = vroce_eth_create_cq(net, &net->tx_cq, BIT(VROCE_TX_LOG_UNITS),
				  vroce_tx_comp);
	if (err)
		goto err_free;
	err = vroce_eth_create_cq(net, &net->rx_cq, BIT(VROCE_RX_LOG_ENTRIES),
				  vroce_rx_comp);
	if (err)
		goto err_tx_cq;
	err = vroce_eth_create_qp(net);
	if (err)
		goto err_rx_cq;

	net->running = true;
	err = vroce_netdev_apply(net);
	if (err)
		goto err_qp;
	napi_enable(&net->napi);
	/* The first poll posts receives and arms. */
	local_bh_disable();
	napi_schedule(&net->napi);
	local_bh_enable();
	netdev_reset_queue(net->ndev);
	/* Frames may wait since the stop for a new MTU. */
	netif_wake_queue(net->ndev);
	return 0;

err_qp:
	net->running = false;
	vroce_eth_destroy_qp(net);
	vroce_qp_free_rings(&net->qp);
err_rx_cq:
	vroce_eth_destroy_cq(&net->rx_cq);
err_tx_cq:
	vroce_eth_destroy_cq(&net->tx_cq);
err_free:
	vroce_eth_free(net);
	return err;
}

/**
 * vroce_eth_stop - undo vroce_eth_start()
 * @net: Ethernet side, which may have no queues
 */
void vroce_eth_stop(struct vroce_netdev *net)
{
	if (!net->running)
		return;
	/* In this order: polling may wake the transmit queue. */
	napi_disable(&net->napi);
	netif_tx_disable(net->ndev);
	net->running = false;
	/* On failure the device loses its target when the QP goes. */
	vroce_netdev_apply(net);
	vroce_eth_destroy_qp(net);
	vroce_eth_destroy_cq(&net->rx_cq);
	vroce_eth_destroy_cq(&net->tx_cq);
	vroce_eth_free(net);
	vroce_qp_free_rings(&net->qp);
}

