// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The device's counters, which ethtool and "rdma statistic" both show. */
#include "vroce.h"

const char * const vroce_counter_names[VROCE_CNT_NUM] = {
	[VROCE_CNT_TX_FRAMES]		= "tx_frames",
	[VROCE_CNT_TX_BYTES]		= "tx_bytes",
	[VROCE_CNT_TX_ERRORS]		= "tx_errors",
	[VROCE_CNT_RX_FRAMES]		= "rx_frames",
	[VROCE_CNT_RX_BYTES]		= "rx_bytes",
	[VROCE_CNT_RX_NO_BUFFER]	= "rx_no_buffer",
	[VROCE_CNT_RX_TOO_LONG]		= "rx_too_long",
	[VROCE_CNT_RDMA_TX_PACKETS]	= "rdma_tx_packets",
	[VROCE_CNT_RDMA_TX_BYTES]	= "rdma_tx_bytes",
	[VROCE_CNT_RDMA_RX_PACKETS]	= "rdma_rx_packets",
	[VROCE_CNT_RDMA_RX_BYTES]	= "rdma_rx_bytes",
	[VROCE_CNT_RX_BAD_ICRC]		= "rx_bad_icrc",
	[VROCE_CNT_RX_MALFORMED]	= "rx_malformed",
	[VROCE_CNT_RX_NO_QP]		= "rx_no_qp",
	[VROCE_CNT_RX_BAD_KEY]		= "rx_bad_key",
	[VROCE_CNT_RX_DUPLICATE]	= "rx_duplicate",
	[VROCE_CNT_RX_OUT_OF_SEQUENCE]	= "rx_out_of_sequence",
	[VROCE_CNT_TX_PSN_NAK]		= "tx_psn_nak",
	[VROCE_CNT_RX_PSN_NAK]		= "rx_psn_nak",
	[VROCE_CNT_TX_RNR_NAK]		= "tx_rnr_nak",
	[VROCE_CNT_RX_RNR_NAK]		= "rx_rnr_nak",
	[VROCE_CNT_TX_ERROR_NAK]	= "tx_error_nak",
	[VROCE_CNT_RX_ERROR_NAK]	= "rx_error_nak",
	[VROCE_CNT_ACK_TIMEOUT]		= "ack_timeout",
	[VROCE_CNT_RETRY_EXCEEDED]	= "retry_exceeded",
	[VROCE_CNT_RNR_RETRY_EXCEEDED]	= "rnr_retry_exceeded",
	[VROCE_CNT_RETRANSMITTED]	= "retransmitted",
	[VROCE_CNT_TX_UD_DROPPED]	= "tx_ud_dropped",
	[VROCE_CNT_RX_UD_NO_BUFFER]	= "rx_ud_no_buffer",
	[VROCE_CNT_COMMANDS]		= "commands",
	[VROCE_CNT_COMMAND_ERRORS]	= "command_errors",
	[VROCE_CNT_MISUSE]		= "misuse",
	[VROCE_CNT_CQ_OVERRUN]		= "cq_overrun",
	[VROCE_CNT_LOOPBACK_PACKETS]	= "loopback_packets",
};

/**
 * vroce_read_counters - read all counters
 * @dev: device
 * @values: gets VROCE_CNT_NUM values; unchanged with an error
 *
 * Sleeps.
 *
 * Return: 0 or an error.
 */
int vroce_read_counters(struct vroce_dev *dev, u64 *values)
{
	__le64 raw[VROCE_CNT_NUM];
	int err, i;

	err = vroce_cmd(dev, VROCE_CMD_QUERY_COUNTERS, NULL, 0, raw,
			sizeof(raw));
	if (err)
		return err;
	for (i = 0; i < VROCE_CNT_NUM; i++)
		values[i] = le64_to_cpu(raw[i]);
	return 0;
}
