/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The hardware interface of the vroce RDMA network card.
 *
 * The device model, the Linux driver, the rdma-core provider and the tests all
 * include this file; nothing else restates an offset, a size or a number.
 * Everything in guest memory and in registers is little-endian, except the
 * fields of type __be32, which travel unchanged from the wire to the user.
 * "IBA" is the InfiniBand Architecture Specification, volume 1, release 1.6.
 */
#ifndef VROCE_HW_H
#define VROCE_HW_H

#include <linux/types.h>

#if defined(__cplusplus)
#define VROCE_ASSERT_SIZE(type, size) \
	static_assert(sizeof(type) == (size), "layout of " #type)
#else
#define VROCE_ASSERT_SIZE(type, size) \
	_Static_assert(sizeof(type) == (size), "layout of " #type)
#endif

/* ---------------------------------------------------------------- PCI */

#define VROCE_PCI_VENDOR		0x1234
#define VROCE_PCI_DEVICE		0x20ce
/* Revision ID of the function: grows with every incompatible change. */
#define VROCE_PCI_REVISION		1

#define VROCE_BAR_REGS			0
#define VROCE_BAR_DOORBELL		2
#define VROCE_BAR_DEVMEM		4

#define VROCE_REGS_SIZE			0x10000
#define VROCE_MSIX_TABLE_OFFSET		0x8000
#define VROCE_MSIX_PBA_OFFSET		0xc000
#define VROCE_MAX_VECTORS		64

/* ---------------------------------------------------------- registers
 *
 * 32-bit accesses; those marked 64 are 8 bytes wide and may be written as one
 * 8-byte access or as two 4-byte ones, low half first.
 */
#define VROCE_REG_ID			0x000	/* RO, VROCE_ID_MAGIC */
#define VROCE_REG_VERSION		0x004	/* RO, major << 16 | minor */
#define VROCE_REG_STATUS		0x008	/* RO, VROCE_STATUS_* */
#define VROCE_REG_CTRL			0x00c	/* RW, VROCE_CTRL_* */
#define VROCE_REG_RESET			0x010	/* WO, VROCE_RESET_MAGIC resets all */
#define VROCE_REG_FATAL			0x014	/* RO, enum vroce_fatal */
#define VROCE_REG_MAC_LO		0x018	/* RO, bytes 0..3 of the MAC */
#define VROCE_REG_MAC_HI		0x01c	/* RO, bytes 4..5 of the MAC */
#define VROCE_REG_LINK			0x020	/* RO, bit 0 up, 31:8 speed in Mb/s */
#define VROCE_REG_VECTORS		0x024	/* RO, MSI-X vectors there are */
#define VROCE_REG_DB_SHIFT		0x028	/* RW while not enabled, 12..16 */
#define VROCE_REG_DB_PAGES		0x02c	/* RO, doorbell pages of that size */
#define VROCE_REG_CLOCK			0x030	/* RO, 64, device clock in ns */
#define VROCE_REG_DEVMEM_SIZE		0x038	/* RO, bytes of device memory */
#define VROCE_REG_MAX_MTU		0x03c	/* RO, largest netdev MTU */

/* Command queue: see struct vroce_cmd. Writable while not enabled. */
#define VROCE_REG_CMDQ_SQ_BASE		0x100	/* RW, 64 */
#define VROCE_REG_CMDQ_CQ_BASE		0x108	/* RW, 64 */
#define VROCE_REG_CMDQ_LOG_SIZE		0x110	/* RW, 1..VROCE_CMDQ_MAX_LOG */
#define VROCE_REG_CMDQ_VECTOR		0x114	/* RW, or VROCE_NO_VECTOR to poll */
#define VROCE_REG_CMDQ_DOORBELL		0x118	/* WO, free-running producer index */

/* Bring-up block: proves MMIO, interrupts and DMA before any queue exists. */
#define VROCE_REG_SCRATCH		0x200	/* RW, reads back inverted */
#define VROCE_REG_TEST_IRQ		0x204	/* WO, raises this vector */
#define VROCE_REG_DMA_CMD		0x208	/* WO, enum vroce_dma_cmd */
#define VROCE_REG_DMA_STATUS		0x20c	/* RO, enum vroce_dma_status */
#define VROCE_REG_DMA_SRC		0x210	/* RW, 64 */
#define VROCE_REG_DMA_DST		0x218	/* RW, 64 */
#define VROCE_REG_DMA_LEN		0x220	/* RW, 1..VROCE_DMA_MAX_LEN */
#define VROCE_REG_DMA_PATTERN		0x224	/* RW, low byte fills */
#define VROCE_REG_DMA_CRC		0x228	/* RO, CRC-32 of the last checksum */

/* One register a vector: the least time between two interrupts, in us. */
#define VROCE_REG_MODERATION(v)		(0x400 + 4 * (v))
#define VROCE_MODERATION_MAX_US		10000

#define VROCE_ID_MAGIC			0x434f5256	/* "VROC" */
#define VROCE_VERSION			0x00010000
#define VROCE_RESET_MAGIC		0x52534554	/* "RSET" */

#define VROCE_STATUS_READY		(1u << 0) /* registers may be used */
#define VROCE_STATUS_ENABLED		(1u << 1)
#define VROCE_STATUS_FATAL		(1u << 2) /* only a reset helps */
#define VROCE_STATUS_EQ_OVERRUN		(1u << 3)

#define VROCE_CTRL_ENABLE		(1u << 0)

#define VROCE_NO_VECTOR			0xffffffffu
#define VROCE_CMDQ_MAX_LOG		8
#define VROCE_DMA_MAX_LEN		(1u << 20)

enum vroce_fatal {
	VROCE_FATAL_NONE		= 0,
	VROCE_FATAL_CMDQ		= 1,	/* the command queue cannot be read or written */
	VROCE_FATAL_ASYNC_EQ		= 2,	/* the async event queue cannot be written */
	VROCE_FATAL_INJECTED		= 3,	/* not used for now */
};

enum vroce_dma_cmd {
	VROCE_DMA_FILL			= 1,	/* LEN bytes of PATTERN to DST */
	VROCE_DMA_COPY			= 2,	/* LEN bytes from SRC to DST */
	VROCE_DMA_CHECKSUM		= 3,	/* CRC-32 (IEEE 802.3) of LEN bytes at SRC */
};

enum vroce_dma_status {
	VROCE_DMA_OK			= 0,
	VROCE_DMA_BAD_CMD		= 1,
	VROCE_DMA_BAD_LEN		= 2,
	VROCE_DMA_FAULT			= 3,
};

/* ---------------------------------------------------------- doorbells
 *
 * One aligned 8-byte write to offset 0 of a doorbell page (BAR 2, page p at
 * p << DB_SHIFT). Page 0 is the kernel's. A queue may be rung only from the
 * page that it was created with. 4-byte writes are refused.
 */
#define VROCE_DB_KIND_SHIFT		56
#define VROCE_DB_NUMBER_SHIFT		32
#define VROCE_DB_NUMBER_MASK		0xffffffu

enum vroce_db_kind {
	/* value: free-running producer index of the send queue, in units */
	VROCE_DB_SQ			= 1,
	/* value: consumer index; fires at once if a CQE lies at or after it */
	VROCE_DB_CQ_ARM			= 2,
	VROCE_DB_CQ_ARM_SOLICITED	= 3,
	/* value: consumer index; arms, fires at once if an EQE lies at or after it */
	VROCE_DB_EQ_ARM			= 4,
	/*
	 * value: free-running producer index of a QP's receive queue. Needed only
	 * once the QP is in ERR, where no packet makes the device look at the
	 * record: it flushes what was posted since. Harmless in other states.
	 */
	VROCE_DB_RQ			= 5,
};

static inline __u64 vroce_doorbell(enum vroce_db_kind kind, __u32 number,
				   __u32 value)
{
	return (__u64)kind << VROCE_DB_KIND_SHIFT |
	       (__u64)(number & VROCE_DB_NUMBER_MASK) << VROCE_DB_NUMBER_SHIFT |
	       value;
}

/* ------------------------------------------------------ memory layout */

/*
 * A piece of guest memory: a queue's buffer or a memory region.
 *
 * levels 0: addr is the bus address of the one contiguous piece.
 * levels 1: addr is the bus address of an array of page entries.
 * levels 2, 3: addr is the bus address of a 4 KiB page of 512 pointers to the
 * pages of the level below; only the last of each may be partly filled.
 * A page entry or pointer is a bus address with VROCE_PTE_* in its low bits.
 * The device reads the list once, when the object is created.
 */
struct vroce_buf {
	__le64 addr;
	__le64 length;		/* bytes, from offset on */
	__le32 offset;		/* of byte 0 in the first page; 0 at levels 0 */
	__u8 page_shift;	/* 12..31; ignored at levels 0 */
	__u8 levels;		/* 0..3 */
	__u8 reserved[2];
};
VROCE_ASSERT_SIZE(struct vroce_buf, 24);

#define VROCE_PTE_VALID			(1ull << 0)
#define VROCE_PTE_WRITE			(1ull << 1)
#define VROCE_PTE_ADDR_MASK		(~0xfffull)
#define VROCE_PTES_PER_PAGE		512

/*
 * Doorbell record: 8 bytes of a queue's buffer that the driver keeps up to
 * date and that the device reads only when it believes the queue full (CQ) or
 * empty (RQ, SRQ). A QP in ERR is told of later receives by VROCE_DB_RQ.
 */
struct vroce_db_record {
	__le32 index;		/* CQ: consumer, RQ and SRQ: producer; free-running */
	__le32 reserved;
};
VROCE_ASSERT_SIZE(struct vroce_db_record, 8);

/* ------------------------------------------------------- command queue
 *
 * The driver writes a struct vroce_cmd at index (producer mod size), then the
 * doorbell. The device answers in any order with a struct vroce_cmd_cpl whose
 * phase bit is 1 in the first lap and toggles in each further one. At most
 * "size" commands may be in flight.
 */
struct vroce_cmd {
	__u8 opcode;		/* enum vroce_opcode */
	__u8 reserved0;
	__le16 id;		/* returned in the completion */
	__le32 in_len;		/* bytes; exactly the opcode's input */
	__le64 in_addr;		/* bus address of the input, contiguous */
	__le32 out_len;		/* bytes of room; at least the opcode's output */
	__le32 reserved1;
	__le64 out_addr;	/* bus address for the output, contiguous */
};
VROCE_ASSERT_SIZE(struct vroce_cmd, 32);

struct vroce_cmd_cpl {
	__le16 id;
	__u8 status;		/* enum vroce_status */
	__u8 reserved0;
	__le16 rule;		/* enum vroce_rule that was broken, or 0 */
	__le16 sq_head;		/* commands that the device has fetched */
	__le32 reserved1;
	__le32 phase;		/* bit 0, written last */
};
VROCE_ASSERT_SIZE(struct vroce_cmd_cpl, 16);

enum vroce_status {
	VROCE_OK			= 0,
	VROCE_ERR_OPCODE		= 1,	/* no such command */
	VROCE_ERR_LENGTH		= 2,	/* in_len or out_len */
	VROCE_ERR_PARAM			= 3,	/* a field is out of range */
	VROCE_ERR_NUMBER		= 4,	/* names no live object */
	VROCE_ERR_STATE			= 5,	/* not legal in this state */
	VROCE_ERR_BUSY			= 6,	/* the object is still in use */
	VROCE_ERR_NO_RESOURCES		= 7,	/* a limit is reached */
	VROCE_ERR_DMA			= 8,	/* memory cannot be reached */
	VROCE_ERR_PERMISSION		= 9,	/* needs the kernel's page, another PD … */
	VROCE_ERR_UNSUPPORTED		= 10,
};

enum vroce_opcode {
	VROCE_CMD_QUERY_DEVICE		= 0x01,
	VROCE_CMD_QUERY_COUNTERS	= 0x02,
	VROCE_CMD_ALLOC_CONTEXT		= 0x08,
	VROCE_CMD_FREE_CONTEXT		= 0x09,
	VROCE_CMD_ALLOC_PD		= 0x0a,
	VROCE_CMD_FREE_PD		= 0x0b,
	VROCE_CMD_CREATE_EQ		= 0x10,
	VROCE_CMD_DESTROY_EQ		= 0x11,
	VROCE_CMD_CREATE_CQ		= 0x18,
	VROCE_CMD_DESTROY_CQ		= 0x19,
	VROCE_CMD_RESIZE_CQ		= 0x1a,
	VROCE_CMD_MODIFY_CQ		= 0x1b,
	VROCE_CMD_CREATE_SRQ		= 0x20,
	VROCE_CMD_DESTROY_SRQ		= 0x21,
	VROCE_CMD_MODIFY_SRQ		= 0x22,
	VROCE_CMD_QUERY_SRQ		= 0x23,
	VROCE_CMD_CREATE_QP		= 0x28,
	VROCE_CMD_DESTROY_QP		= 0x29,
	VROCE_CMD_MODIFY_QP		= 0x2a,
	VROCE_CMD_QUERY_QP		= 0x2b,
	VROCE_CMD_CREATE_MR		= 0x30,
	VROCE_CMD_DESTROY_MR		= 0x31,
	VROCE_CMD_UPDATE_MR		= 0x32,
	VROCE_CMD_SET_GID		= 0x38,
	VROCE_CMD_SET_NETDEV		= 0x39,
	VROCE_CMD_ATTACH_MCAST		= 0x3a,
	VROCE_CMD_DETACH_MCAST		= 0x3b,
};

/* QUERY_DEVICE: no input. */
struct vroce_query_device_out {
	__le64 features;	/* VROCE_FEATURE_* */
	__le64 max_mr_size;	/* bytes */
	__le64 page_size_cap;	/* bit n: pages of 1 << n bytes */
	__le64 node_guid;	/* EUI-64 of the MAC, in wire order */
	__le64 max_pages;	/* page entries of all regions and queues together */
	__le32 max_qp;
	__le32 max_qp_wr;	/* send queue units, receive queue entries */
	__le32 max_cq;
	__le32 max_cqe;
	__le32 max_mr;
	__le32 max_pd;
	__le32 max_srq;
	__le32 max_srq_wr;
	__le32 max_eq;
	__le32 max_eqe;
	__le32 max_contexts;
	__le32 max_gids;
	__le32 max_sge;		/* scatter-gather entries of one WQE */
	__le32 max_inline;	/* bytes in one send WQE */
	__le32 max_rd_atomic;	/* READs and atomics in flight, either direction */
	__le32 max_msg_size;	/* bytes */
	__le32 max_fast_reg_pages;
	__le32 max_mcast_groups;
	__le32 max_mcast_attach;	/* QPs in one group */
	__le32 fw_version;	/* major << 16 | minor */
	__le32 reserved[4];
};
VROCE_ASSERT_SIZE(struct vroce_query_device_out, 136);

#define VROCE_FEATURE_RC		(1ull << 0)
#define VROCE_FEATURE_UC		(1ull << 1)
#define VROCE_FEATURE_UD		(1ull << 2)
#define VROCE_FEATURE_XRC		(1ull << 3)
#define VROCE_FEATURE_SRQ		(1ull << 4)
#define VROCE_FEATURE_ATOMIC		(1ull << 5)
#define VROCE_FEATURE_MCAST		(1ull << 6)
#define VROCE_FEATURE_FAST_REG		(1ull << 7)
#define VROCE_FEATURE_MW		(1ull << 8)
#define VROCE_FEATURE_RESIZE_CQ		(1ull << 9)
#define VROCE_FEATURE_ETH_CSUM		(1ull << 10)
#define VROCE_FEATURE_ETH_TSO		(1ull << 11)

/* QUERY_COUNTERS: no input; output is an array of VROCE_CNT_NUM __le64. */
enum vroce_counter {
	VROCE_CNT_TX_FRAMES,		/* Ethernet side */
	VROCE_CNT_TX_BYTES,
	VROCE_CNT_TX_ERRORS,
	VROCE_CNT_RX_FRAMES,
	VROCE_CNT_RX_BYTES,
	VROCE_CNT_RX_NO_BUFFER,
	VROCE_CNT_RX_TOO_LONG,
	VROCE_CNT_RDMA_TX_PACKETS,	/* RDMA side */
	VROCE_CNT_RDMA_TX_BYTES,
	VROCE_CNT_RDMA_RX_PACKETS,
	VROCE_CNT_RDMA_RX_BYTES,
	VROCE_CNT_RX_BAD_ICRC,
	VROCE_CNT_RX_MALFORMED,
	VROCE_CNT_RX_NO_QP,
	VROCE_CNT_RX_BAD_KEY,		/* P_Key or Q_Key */
	VROCE_CNT_RX_DUPLICATE,
	VROCE_CNT_RX_OUT_OF_SEQUENCE,
	VROCE_CNT_TX_PSN_NAK,
	VROCE_CNT_RX_PSN_NAK,
	VROCE_CNT_TX_RNR_NAK,
	VROCE_CNT_RX_RNR_NAK,
	VROCE_CNT_TX_ERROR_NAK,
	VROCE_CNT_RX_ERROR_NAK,
	VROCE_CNT_ACK_TIMEOUT,
	VROCE_CNT_RETRY_EXCEEDED,
	VROCE_CNT_RNR_RETRY_EXCEEDED,
	VROCE_CNT_RETRANSMITTED,	/* packets sent again */
	VROCE_CNT_TX_UD_DROPPED,
	VROCE_CNT_RX_UD_NO_BUFFER,
	VROCE_CNT_COMMANDS,
	VROCE_CNT_COMMAND_ERRORS,
	VROCE_CNT_MISUSE,		/* rules broken by the driver or a program */
	VROCE_CNT_CQ_OVERRUN,
	VROCE_CNT_LOOPBACK_PACKETS,
	VROCE_CNT_NUM
};

/* ALLOC_CONTEXT: no input. FREE_CONTEXT: struct vroce_number. */
struct vroce_number {
	__le32 number;		/* of the object: page, PD, EQ, CQ, SRQ, QP or key */
	__le32 reserved;
};
VROCE_ASSERT_SIZE(struct vroce_number, 8);
/* ALLOC_PD: no input. Every ALLOC and CREATE answers with a struct vroce_number. */

struct vroce_create_eq_in {
	struct vroce_buf buf;	/* 1 << log_size struct vroce_eqe, zeroed */
	__le32 vector;
	__u8 log_size;
	__u8 flags;		/* VROCE_EQ_* */
	__u8 reserved[2];
};
VROCE_ASSERT_SIZE(struct vroce_create_eq_in, 32);
#define VROCE_EQ_ASYNC			(1u << 0) /* takes the async events; one at a time */

struct vroce_create_cq_in {
	struct vroce_buf buf;	/* 1 << log_size struct vroce_cqe, zeroed, and the record */
	__le32 rec_off;		/* of the struct vroce_db_record in buf, multiple of 8 */
	__le32 context;		/* doorbell page */
	__le32 eqn;		/* or VROCE_NONE: no completion events */
	__u8 log_size;		/* at least 1 */
	__u8 reserved[3];
};
VROCE_ASSERT_SIZE(struct vroce_create_cq_in, 40);

/*
 * RESIZE_CQ: unread CQEs are copied to the new ring, at the indices they have,
 * and the phase words of all other entries are set to "not written", whatever
 * the lap. buf, rec_off and log_size as for CREATE_CQ.
 */
struct vroce_resize_cq_in {
	struct vroce_buf buf;
	__le32 cqn;
	__le32 rec_off;
	__u8 log_size;
	__u8 reserved[7];
};
VROCE_ASSERT_SIZE(struct vroce_resize_cq_in, 40);

struct vroce_modify_cq_in {
	__le32 cqn;
	__le16 count;		/* completions before an event, 0: each */
	__le16 period_us;	/* or this long after the first */
};
VROCE_ASSERT_SIZE(struct vroce_modify_cq_in, 8);

struct vroce_create_srq_in {
	struct vroce_buf buf;	/* 1 << log_entries receive WQEs, and the record */
	__le32 rec_off;
	__le32 pdn;
	__u8 log_entries;
	__u8 log_stride;	/* 5..9 */
	__u8 reserved[2];
	__le32 limit;		/* 0: no limit event */
};
VROCE_ASSERT_SIZE(struct vroce_create_srq_in, 40);

struct vroce_modify_srq_in {
	__le32 srqn;
	__le32 limit;
};
VROCE_ASSERT_SIZE(struct vroce_modify_srq_in, 8);

struct vroce_query_srq_out {
	__le32 limit;
	__le32 posted;		/* receive WQEs waiting */
};
VROCE_ASSERT_SIZE(struct vroce_query_srq_out, 8);

enum vroce_qp_type {
	VROCE_QPT_RC			= 0,
	VROCE_QPT_UC			= 1,
	VROCE_QPT_UD			= 2,
	VROCE_QPT_GSI			= 3,	/* QP 1; kernel only */
	VROCE_QPT_ETH			= 4,	/* Ethernet frames; kernel only */
};

#define VROCE_NONE			0xffffffffu

struct vroce_create_qp_in {
	struct vroce_buf buf;	/* send ring, receive ring, record */
	__le32 sq_off;		/* in buf, multiple of 64 */
	__le32 rq_off;		/* in buf, multiple of 64 */
	__le32 rec_off;		/* struct vroce_db_record of the receive queue */
	__le32 context;		/* doorbell page */
	__le32 pdn;
	__le32 send_cqn;
	__le32 recv_cqn;
	__le32 srqn;		/* or VROCE_NONE */
	__u8 type;		/* enum vroce_qp_type */
	__u8 sq_log_units;	/* 0xff: no send queue */
	__u8 rq_log_entries;	/* 0xff: no receive queue */
	__u8 rq_log_stride;	/* 5..9 */
	__le32 reserved;
};
VROCE_ASSERT_SIZE(struct vroce_create_qp_in, 64);
#define VROCE_NO_QUEUE			0xff
#define VROCE_MAX_SQ_LOG_UNITS		15
#define VROCE_MAX_RQ_LOG_ENTRIES	15

/*
 * Address vector: how to reach a peer. Source MAC and VLAN come from the GID
 * table entry; the destination MAC is resolved by the driver.
 */
struct vroce_av {
	__u8 dgid[16];
	__u8 dmac[6];
	__le16 sgid_index;
	__le32 flow_label;	/* 20 bits */
	__u8 traffic_class;
	__u8 hop_limit;
	__u8 sl;		/* PCP of a VLAN */
	__u8 reserved0;
	__le16 udp_sport;	/* 0: from flow label or QP numbers */
	__u8 reserved1[6];
};
VROCE_ASSERT_SIZE(struct vroce_av, 40);

/* Values are those of IBA 11.2.5.2; the numbers are those of the Linux verbs. */
enum vroce_qp_state {
	VROCE_QPS_RESET			= 0,
	VROCE_QPS_INIT			= 1,
	VROCE_QPS_RTR			= 2,
	VROCE_QPS_RTS			= 3,
	VROCE_QPS_SQD			= 4,
	VROCE_QPS_SQE			= 5,
	VROCE_QPS_ERR			= 6,
};

/* Bits of attr_mask; the numbers are those of the Linux verbs (IB_QP_*). */
#define VROCE_QP_STATE			(1u << 0)
#define VROCE_QP_CUR_STATE		(1u << 1)
#define VROCE_QP_EN_SQD_ASYNC_NOTIFY	(1u << 2)
#define VROCE_QP_ACCESS_FLAGS		(1u << 3)
#define VROCE_QP_PKEY_INDEX		(1u << 4)
#define VROCE_QP_PORT			(1u << 5)
#define VROCE_QP_QKEY			(1u << 6)
#define VROCE_QP_AV			(1u << 7)
#define VROCE_QP_PATH_MTU		(1u << 8)
#define VROCE_QP_TIMEOUT		(1u << 9)
#define VROCE_QP_RETRY_CNT		(1u << 10)
#define VROCE_QP_RNR_RETRY		(1u << 11)
#define VROCE_QP_RQ_PSN			(1u << 12)
#define VROCE_QP_MAX_RD_ATOMIC		(1u << 13)
#define VROCE_QP_ALT_PATH		(1u << 14)
#define VROCE_QP_MIN_RNR_TIMER		(1u << 15)
#define VROCE_QP_SQ_PSN			(1u << 16)
#define VROCE_QP_MAX_DEST_RD_ATOMIC	(1u << 17)
#define VROCE_QP_PATH_MIG_STATE		(1u << 18)
#define VROCE_QP_CAP			(1u << 19)
#define VROCE_QP_DEST_QPN		(1u << 20)

/* Access rights; the numbers are those of the Linux verbs (IB_ACCESS_*). */
#define VROCE_ACCESS_LOCAL_WRITE	(1u << 0)
#define VROCE_ACCESS_REMOTE_WRITE	(1u << 1)
#define VROCE_ACCESS_REMOTE_READ	(1u << 2)
#define VROCE_ACCESS_REMOTE_ATOMIC	(1u << 3)
#define VROCE_ACCESS_MW_BIND		(1u << 4)
#define VROCE_ACCESS_ZERO_BASED		(1u << 5)

struct vroce_qp_attr {
	__u8 state;		/* enum vroce_qp_state */
	__u8 cur_state;
	__u8 path_mtu;		/* 1..5: 256, 512, 1024, 2048, 4096 bytes */
	__u8 port;		/* 1 */
	__u8 timeout;		/* 4.096 us << n; 0: for ever */
	__u8 retry_cnt;		/* 0..7 */
	__u8 rnr_retry;		/* 0..6; 7: for ever */
	__u8 min_rnr_timer;	/* 0..31, IBA table 46 */
	__u8 max_rd_atomic;	/* as requester */
	__u8 max_dest_rd_atomic;	/* as responder */
	__u8 sqd_async_notify;
	__u8 sq_draining;	/* QUERY_QP only */
	__le32 access_flags;
	__le32 qkey;
	__le32 rq_psn;
	__le32 sq_psn;
	__le32 dest_qpn;
	__le16 pkey_index;	/* 0 */
	__le16 reserved0;
	struct vroce_av av;
	__le32 reserved1[3];
};
VROCE_ASSERT_SIZE(struct vroce_qp_attr, 88);

struct vroce_modify_qp_in {
	__le32 qpn;
	__le32 attr_mask;	/* VROCE_QP_* */
	struct vroce_qp_attr attr;
};
VROCE_ASSERT_SIZE(struct vroce_modify_qp_in, 96);
/* QUERY_QP: struct vroce_number in, struct vroce_qp_attr out. */

enum vroce_mr_kind {
	VROCE_MR_MEM			= 0,	/* buf says which memory */
	VROCE_MR_DMA			= 1,	/* all bus addresses; kernel only */
	VROCE_MR_FAST			= 2,	/* room for max_pages, see FAST_REG */
	VROCE_MR_DEVMEM			= 3,	/* buf.addr is an offset in BAR 4 */
};

struct vroce_create_mr_in {
	struct vroce_buf buf;
	__le64 iova;		/* virtual address of byte 0 */
	__le32 pdn;
	__le32 access;		/* VROCE_ACCESS_* */
	__u8 kind;		/* enum vroce_mr_kind */
	__u8 reserved0[3];
	__le32 max_pages;	/* VROCE_MR_FAST */
};
VROCE_ASSERT_SIZE(struct vroce_create_mr_in, 48);
/*
 * Answers with the key, the same as L_Key and R_Key: index << 8 | variant.
 * A key whose variant is not the live one matches nothing. DESTROY_MR takes a
 * struct vroce_number. UPDATE_MR replaces buf, iova, access or PD of a live
 * region; its key stays.
 */
struct vroce_update_mr_in {
	struct vroce_create_mr_in mr;
	__le32 key;
	__le32 mask;		/* VROCE_MR_UPDATE_* */
};
VROCE_ASSERT_SIZE(struct vroce_update_mr_in, 56);
#define VROCE_MR_UPDATE_PAGES		(1u << 0)	/* buf and iova */
#define VROCE_MR_UPDATE_PD		(1u << 1)
#define VROCE_MR_UPDATE_ACCESS		(1u << 2)

struct vroce_set_gid_in {
	__u8 gid[16];
	__u8 mac[6];		/* source MAC of what is sent from it */
	__le16 vlan;		/* 0..4095, or VROCE_NO_VLAN */
	__le32 index;
	__u8 valid;		/* 0 clears the entry */
	__u8 reserved[3];
};
VROCE_ASSERT_SIZE(struct vroce_set_gid_in, 32);
#define VROCE_NO_VLAN			0xffff

/* Which Ethernet QP receives what is not RoCE, and how it is filtered. */
struct vroce_set_netdev_in {
	__le32 qpn;		/* or VROCE_NONE: drop all */
	__le32 flags;		/* VROCE_NETDEV_* */
	__u8 mac[6];		/* station address */
	__le16 mtu;		/* longer frames are dropped; 68..VROCE_REG_MAX_MTU */
};
VROCE_ASSERT_SIZE(struct vroce_set_netdev_in, 16);
#define VROCE_NETDEV_PROMISC		(1u << 0)

/* ATTACH_MCAST, DETACH_MCAST */
struct vroce_mcast_in {
	__u8 gid[16];
	__le32 qpn;
	__le32 reserved;
};
VROCE_ASSERT_SIZE(struct vroce_mcast_in, 24);

/* ---------------------------------------------------------- send queue
 *
 * A ring of 64-byte units. A WQE takes 1..VROCE_MAX_WQE_UNITS of them, one
 * after the other modulo the ring's size: a struct vroce_wqe_ctrl, the segment
 * that its opcode and QP type ask for, then num_sge struct vroce_sge, or
 * inline_len bytes of payload with VROCE_WQE_INLINE. Producer index, doorbell
 * and wqe_end count units and are free-running.
 */
#define VROCE_SQ_UNIT			64
#define VROCE_MAX_WQE_UNITS		8
#define VROCE_MAX_SGE			16

enum vroce_wqe_opcode {
	VROCE_WQE_NOP			= 0,
	VROCE_WQE_SEND			= 1,
	VROCE_WQE_SEND_IMM		= 2,
	VROCE_WQE_SEND_INV		= 3,
	VROCE_WQE_WRITE			= 4,	/* + struct vroce_wqe_rdma */
	VROCE_WQE_WRITE_IMM		= 5,	/* + struct vroce_wqe_rdma */
	VROCE_WQE_READ			= 6,	/* + struct vroce_wqe_rdma */
	VROCE_WQE_CMP_SWAP		= 7,	/* + struct vroce_wqe_atomic */
	VROCE_WQE_FETCH_ADD		= 8,	/* + struct vroce_wqe_atomic */
	VROCE_WQE_FAST_REG		= 9,	/* + struct vroce_wqe_fast_reg */
	VROCE_WQE_LOCAL_INV		= 10,
	VROCE_WQE_ETH			= 16,	/* + struct vroce_wqe_eth, ETH QP only */
	/* SEND and SEND_IMM of UD and GSI QPs: + struct vroce_wqe_ud */
};

struct vroce_wqe_ctrl {
	__u8 opcode;		/* enum vroce_wqe_opcode */
	__u8 flags;		/* VROCE_WQE_* */
	__u8 units;		/* 1..8 */
	__u8 num_sge;		/* 0..16; 0 with VROCE_WQE_INLINE */
	__le16 index;		/* low 16 bits of this WQE's own unit index */
	__le16 inline_len;	/* bytes */
	__be32 imm;		/* immediate data, as it travels */
	__le32 inv_key;		/* SEND_INV, LOCAL_INV: key to invalidate */
	__le64 wr_id;		/* returned in the CQE */
	__le64 reserved;
};
VROCE_ASSERT_SIZE(struct vroce_wqe_ctrl, 32);

#define VROCE_WQE_SIGNALED		(1u << 0)
#define VROCE_WQE_SOLICITED		(1u << 1)
#define VROCE_WQE_FENCE			(1u << 2)
#define VROCE_WQE_INLINE		(1u << 3)

struct vroce_wqe_rdma {
	__le64 remote_addr;
	__le32 rkey;
	__le32 reserved;
};
VROCE_ASSERT_SIZE(struct vroce_wqe_rdma, 16);

struct vroce_wqe_atomic {
	__le64 remote_addr;
	__le32 rkey;
	__le32 reserved;
	__le64 swap_add;
	__le64 compare;
};
VROCE_ASSERT_SIZE(struct vroce_wqe_atomic, 32);

struct vroce_wqe_ud {
	struct vroce_av av;
	__le32 dest_qpn;
	__le32 qkey;		/* bit 31 set: the QP's own instead, IBA 10.2.5 */
};
VROCE_ASSERT_SIZE(struct vroce_wqe_ud, 48);

struct vroce_wqe_fast_reg {
	struct vroce_buf buf;
	__le64 iova;
	__le32 key;		/* with the new variant in its low 8 bits */
	__le32 access;
	__le64 reserved;
};
VROCE_ASSERT_SIZE(struct vroce_wqe_fast_reg, 48);

/* Checksum offload: as virtio's, the pseudo header's sum is already there. */
struct vroce_wqe_eth {
	__le16 csum_start;	/* bytes from the start of the frame */
	__le16 csum_offset;	/* from csum_start */
	__u8 flags;		/* VROCE_ETH_* */
	__u8 gso_type;		/* 0: none */
	__le16 gso_size;	/* payload bytes a segment */
	__le16 hdr_len;		/* bytes of headers to repeat */
	__u8 reserved[6];
};
VROCE_ASSERT_SIZE(struct vroce_wqe_eth, 16);
#define VROCE_ETH_CSUM			(1u << 0)

struct vroce_sge {
	__le64 addr;
	__le32 length;		/* bytes */
	__le32 lkey;
};
VROCE_ASSERT_SIZE(struct vroce_sge, 16);

/* ------------------------------------------------- receive queue, SRQ
 *
 * A ring of 1 << log_stride bytes an entry: this header and num_sge entries.
 * A slot may be written again once the completion of its WQE was taken; an SRQ
 * is consumed in ring order, so that the number of completions is the number
 * of slots free again.
 */
struct vroce_rwqe {
	__le64 wr_id;
	__u8 num_sge;		/* 0..16 */
	__u8 reserved0;
	__le16 index;		/* low 16 bits of this WQE's own index */
	__le32 reserved1;
	/* struct vroce_sge sge[num_sge] */
};
VROCE_ASSERT_SIZE(struct vroce_rwqe, 16);

/* ---------------------------------------------------- completion queue
 *
 * The device writes the last word, with the phase bit, after the rest. The
 * phase is 1 in the first lap of the ring and toggles in each further one.
 */
struct vroce_cqe {
	__le64 wr_id;
	__le64 timestamp;	/* device clock, ns */
	__le32 qpn;
	__le32 src_qpn;		/* UD */
	__le32 byte_len;	/* received, or read, or 8 for an atomic */
	__be32 imm;		/* with VROCE_CQE_IMM, as it travelled */
	__le32 inv_key;		/* with VROCE_CQE_INV */
	__le32 wqe_end;		/* send: unit index after the WQE */
	__u8 opcode;		/* enum vroce_wc_opcode */
	__u8 status;		/* enum vroce_wc_status */
	__le16 rule;		/* vendor error: enum vroce_rule, or 0 */
	__le16 flags;		/* VROCE_CQE_* */
	__le16 vlan;		/* with VROCE_CQE_VLAN */
	__le32 rss_hash;
	__u8 smac[6];		/* UD: source MAC of the frame */
	__u8 network;		/* UD: 4 or 6, the IP version */
	__u8 reserved;
	__le32 phase;		/* bit 0 */
};
VROCE_ASSERT_SIZE(struct vroce_cqe, 64);

#define VROCE_CQE_IMM			(1u << 0)
#define VROCE_CQE_INV			(1u << 1)
#define VROCE_CQE_GRH			(1u << 2)
#define VROCE_CQE_SOLICITED		(1u << 3)
#define VROCE_CQE_VLAN			(1u << 4)
#define VROCE_CQE_CSUM_OK		(1u << 5) /* Ethernet: IP and TCP or UDP sums are right */

enum vroce_wc_opcode {
	VROCE_WC_SEND			= 0,
	VROCE_WC_WRITE			= 1,
	VROCE_WC_READ			= 2,
	VROCE_WC_CMP_SWAP		= 3,
	VROCE_WC_FETCH_ADD		= 4,
	VROCE_WC_FAST_REG		= 5,
	VROCE_WC_LOCAL_INV		= 6,
	VROCE_WC_NOP			= 7,
	VROCE_WC_RECV			= 0x80, /* all from here on are receives */
	VROCE_WC_RECV_WRITE_IMM		= 0x81,
};

/* The numbers are those of the Linux verbs (IB_WC_*); IBA 11.6.2. */
enum vroce_wc_status {
	VROCE_WCS_SUCCESS		= 0,
	VROCE_WCS_LOC_LEN_ERR		= 1,
	VROCE_WCS_LOC_QP_OP_ERR		= 2,
	VROCE_WCS_LOC_PROT_ERR		= 4,
	VROCE_WCS_WR_FLUSH_ERR		= 5,
	VROCE_WCS_MW_BIND_ERR		= 6,
	VROCE_WCS_BAD_RESP_ERR		= 7,
	VROCE_WCS_LOC_ACCESS_ERR	= 8,
	VROCE_WCS_REM_INV_REQ_ERR	= 9,
	VROCE_WCS_REM_ACCESS_ERR	= 10,
	VROCE_WCS_REM_OP_ERR		= 11,
	VROCE_WCS_RETRY_EXC_ERR		= 12,
	VROCE_WCS_RNR_RETRY_EXC_ERR	= 13,
	VROCE_WCS_FATAL_ERR		= 19,
	VROCE_WCS_GENERAL_ERR		= 21,
};

/* --------------------------------------------------------- event queue
 *
 * As a CQ: the last word carries the phase bit and is written last. An EQ that
 * is armed raises its vector at the next event.
 */
struct vroce_eqe {
	__le32 number;		/* CQ, QP, SRQ or port it speaks of */
	__le16 type;		/* enum vroce_event */
	__le16 rule;		/* enum vroce_rule, or 0 */
	__le32 reserved;
	__le32 phase;		/* bit 0 */
};
VROCE_ASSERT_SIZE(struct vroce_eqe, 16);

enum vroce_event {
	VROCE_EVENT_COMPLETION		= 1,	/* CQ */
	VROCE_EVENT_CQ_ERR		= 2,	/* CQ */
	VROCE_EVENT_QP_FATAL		= 3,	/* QP */
	VROCE_EVENT_QP_REQ_ERR		= 4,	/* QP */
	VROCE_EVENT_QP_ACCESS_ERR	= 5,	/* QP */
	VROCE_EVENT_COMM_EST		= 6,	/* QP */
	VROCE_EVENT_SQ_DRAINED		= 7,	/* QP */
	VROCE_EVENT_LAST_WQE_REACHED	= 8,	/* QP */
	VROCE_EVENT_SRQ_ERR		= 9,	/* SRQ */
	VROCE_EVENT_SRQ_LIMIT		= 10,	/* SRQ */
	VROCE_EVENT_PORT_UP		= 11,	/* port 1 */
	VROCE_EVENT_PORT_DOWN		= 12,	/* port 1 */
	VROCE_EVENT_DEVICE_FATAL	= 13,
};

/* --------------------------------------------------------- misuse rules
 *
 * What a driver or a program must not do. The number of the broken rule comes
 * back in a CQE, EQE or command completion, in the log and in the counters.
 */
enum vroce_rule {
	VROCE_RULE_NONE			= 0,
	VROCE_RULE_DB_PAGE		= 1,	/* this page does not own the queue */
	VROCE_RULE_DB_NUMBER		= 2,	/* no such queue */
	VROCE_RULE_DB_INDEX		= 3,	/* index beyond the ring */
	VROCE_RULE_DB_ACCESS		= 4,	/* not an aligned 8-byte write, or unknown kind */
	VROCE_RULE_DB_STATE		= 5,	/* the queue's state takes no work */
	VROCE_RULE_WQE_OPCODE		= 6,	/* unknown, or not for this QP type */
	VROCE_RULE_WQE_SIZE		= 7,	/* units do not hold what the WQE says */
	VROCE_RULE_WQE_INDEX		= 8,	/* doorbell rung before the WQE was written */
	VROCE_RULE_WQE_CHANGED		= 9,	/* changed while the device owned it */
	VROCE_RULE_WQE_LENGTH		= 10,	/* message longer than allowed */
	VROCE_RULE_RING_DMA		= 11,	/* a ring's memory cannot be reached */
	VROCE_RULE_KEY			= 12,	/* no region has this key */
	VROCE_RULE_KEY_PD		= 13,	/* the region is in another PD */
	VROCE_RULE_KEY_ACCESS		= 14,	/* the region does not allow it */
	VROCE_RULE_KEY_RANGE		= 15,	/* beyond the region */
	VROCE_RULE_MEM_DMA		= 16,	/* a region's memory cannot be reached */
	VROCE_RULE_CQ_OVERRUN		= 17,	/* more completions than the CQ holds */
	VROCE_RULE_CQ_RECORD		= 18,	/* consumer index beyond what was produced */
	VROCE_RULE_RQ_RECORD		= 19,	/* producer index beyond the ring */
	VROCE_RULE_QP_TRANSITION	= 20,	/* no such transition, IBA 10.3.1 */
	VROCE_RULE_QP_ATTR		= 21,	/* attribute missing, not allowed or out of range */
	VROCE_RULE_IN_USE		= 22,	/* destroyed while something uses it */
	VROCE_RULE_NO_OBJECT		= 23,	/* names an object that does not exist */
	VROCE_RULE_PRIVILEGE		= 24,	/* only the kernel's context may */
	VROCE_RULE_CMD_OPCODE		= 25,
	VROCE_RULE_CMD_LENGTH		= 26,
	VROCE_RULE_CMD_PARAM		= 27,
	VROCE_RULE_CMD_DMA		= 28,
	VROCE_RULE_CMD_DOORBELL		= 29,	/* more commands than the ring holds */
	VROCE_RULE_PAGE_LIST		= 30,	/* an entry is not valid or not aligned */
	VROCE_RULE_REGISTER		= 31,	/* write to a read-only register, or to none */
	VROCE_RULE_GID			= 32,	/* source GID index names no entry */
	VROCE_RULE_EQ_OVERRUN		= 33,	/* more events than the EQ holds */
	VROCE_RULE_RESERVED		= 34,	/* a reserved field is not zero */
	VROCE_RULE_NUM
};

#endif /* VROCE_HW_H */
