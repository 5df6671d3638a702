/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names of what the engine reports, as the management interface, the traces
 * and the specification spell them.
 */
#include "vr_internal.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *const counter_names[VROCE_CNT_NUM] = {
    [VROCE_CNT_TX_FRAMES] = "tx-frames",
    [VROCE_CNT_TX_BYTES] = "tx-bytes",
    [VROCE_CNT_TX_ERRORS] = "tx-errors",
    [VROCE_CNT_RX_FRAMES] = "rx-frames",
    [VROCE_CNT_RX_BYTES] = "rx-bytes",
    [VROCE_CNT_RX_NO_BUFFER] = "rx-no-buffer",
    [VROCE_CNT_RX_TOO_LONG] = "rx-too-long",
    [VROCE_CNT_RDMA_TX_PACKETS] = "rdma-tx-packets",
    [VROCE_CNT_RDMA_TX_BYTES] = "rdma-tx-bytes",
    [VROCE_CNT_RDMA_RX_PACKETS] = "rdma-rx-packets",
    [VROCE_CNT_RDMA_RX_BYTES] = "rdma-rx-bytes",
    [VROCE_CNT_RX_BAD_ICRC] = "rx-bad-icrc",
    [VROCE_CNT_RX_MALFORMED] = "rx-malformed",
    [VROCE_CNT_RX_NO_QP] = "rx-no-qp",
    [VROCE_CNT_RX_BAD_KEY] = "rx-bad-key",
    [VROCE_CNT_RX_DUPLICATE] = "rx-duplicate",
    [VROCE_CNT_RX_OUT_OF_SEQUENCE] = "rx-out-of-sequence",
    [VROCE_CNT_TX_PSN_NAK] = "tx-psn-nak",
    [VROCE_CNT_RX_PSN_NAK] = "rx-psn-nak",
    [VROCE_CNT_TX_RNR_NAK] = "tx-rnr-nak",
    [VROCE_CNT_RX_RNR_NAK] = "rx-rnr-nak",
    [VROCE_CNT_TX_ERROR_NAK] = "tx-error-nak",
    [VROCE_CNT_RX_ERROR_NAK] = "rx-error-nak",
    [VROCE_CNT_ACK_TIMEOUT] = "ack-timeout",
    [VROCE_CNT_RETRY_EXCEEDED] = "retry-exceeded",
    [VROCE_CNT_RNR_RETRY_EXCEEDED] = "rnr-retry-exceeded",
    [VROCE_CNT_RETRANSMITTED] = "retransmitted",
    [VROCE_CNT_TX_UD_DROPPED] = "tx-ud-dropped",
    [VROCE_CNT_RX_UD_NO_BUFFER] = "rx-ud-no-buffer",
    [VROCE_CNT_COMMANDS] = "commands",
    [VROCE_CNT_COMMAND_ERRORS] = "command-errors",
    [VROCE_CNT_MISUSE] = "misuse",
    [VROCE_CNT_CQ_OVERRUN] = "cq-overrun",
    [VROCE_CNT_LOOPBACK_PACKETS] = "loopback-packets",
};

static const struct {
    const char *name, *text;
} rules[VROCE_RULE_NUM] = {
    [VROCE_RULE_NONE] = { "none", "no rule was broken" },
    [VROCE_RULE_DB_PAGE] = {
        "db-page",
        "a queue was rung from a doorbell page that does not own it" },
    [VROCE_RULE_DB_NUMBER] = {
        "db-number", "a doorbell names a queue that does not exist" },
    [VROCE_RULE_DB_INDEX] = {
        "db-index", "a doorbell's index lies beyond the ring" },
    [VROCE_RULE_DB_ACCESS] = {
        "db-access",
        "a doorbell is not one aligned 8-byte write of a known kind" },
    [VROCE_RULE_DB_STATE] = {
        "db-state",
        "a doorbell was rung while the queue's state takes no work" },
    [VROCE_RULE_WQE_OPCODE] = {
        "wqe-opcode", "a WQE's opcode is unknown or not for this type of QP" },
    [VROCE_RULE_WQE_SIZE] = {
        "wqe-size", "a WQE's units do not hold what it says it holds" },
    [VROCE_RULE_WQE_INDEX] = {
        "wqe-index", "a doorbell was rung before the WQE was written" },
    [VROCE_RULE_WQE_CHANGED] = {
        "wqe-changed", "a WQE changed while the device owned it" },
    [VROCE_RULE_WQE_LENGTH] = {
        "wqe-length", "a message is longer than allowed" },
    [VROCE_RULE_RING_DMA] = {
        "ring-dma", "the memory of a ring cannot be reached" },
    [VROCE_RULE_KEY] = { "key", "no region has this key" },
    [VROCE_RULE_KEY_PD] = {
        "key-pd", "the region of this key belongs to another PD" },
    [VROCE_RULE_KEY_ACCESS] = {
        "key-access", "the region of this key does not allow the access" },
    [VROCE_RULE_KEY_RANGE] = {
        "key-range", "the access reaches beyond the region of this key" },
    [VROCE_RULE_MEM_DMA] = {
        "mem-dma", "the memory of a region cannot be reached" },
    [VROCE_RULE_CQ_OVERRUN] = {
        "cq-overrun", "more completions than the CQ holds" },
    [VROCE_RULE_CQ_RECORD] = {
        "cq-record", "a CQ's record is beyond what was produced" },
    [VROCE_RULE_RQ_RECORD] = {
        "rq-record", "a receive queue's record is beyond its ring" },
    [VROCE_RULE_QP_TRANSITION] = {
        "qp-transition", "a QP has no such state transition" },
    [VROCE_RULE_QP_ATTR] = {
        "qp-attr", "a QP attribute is missing, not allowed or out of range" },
    [VROCE_RULE_IN_USE] = {
        "in-use", "an object was destroyed while something uses it" },
    [VROCE_RULE_NO_OBJECT] = {
        "no-object", "a command names an object that does not exist" },
    [VROCE_RULE_PRIVILEGE] = {
        "privilege", "only the kernel's context may do this" },
    [VROCE_RULE_CMD_OPCODE] = { "cmd-opcode", "there is no such command" },
    [VROCE_RULE_CMD_LENGTH] = {
        "cmd-length", "a command's input or output has the wrong length" },
    [VROCE_RULE_CMD_PARAM] = {
        "cmd-param", "a command's field is out of range" },
    [VROCE_RULE_CMD_DMA] = {
        "cmd-dma", "memory that a command names cannot be reached" },
    [VROCE_RULE_CMD_DOORBELL] = {
        "cmd-doorbell", "more commands than the command ring holds" },
    [VROCE_RULE_PAGE_LIST] = {
        "page-list", "an entry of a page list is not valid or not aligned" },
    [VROCE_RULE_REGISTER] = {
        "register", "a write to a read-only register, or to none" },
    [VROCE_RULE_GID] = { "gid", "a source GID index names no entry" },
    [VROCE_RULE_EQ_OVERRUN] = {
        "eq-overrun", "more events than the EQ holds" },
    [VROCE_RULE_RESERVED] = { "reserved", "a reserved field is not zero" },
};

static const char *const status_names[] = {
    [VROCE_WCS_SUCCESS] = "success",
    [VROCE_WCS_LOC_LEN_ERR] = "local length error",
    [VROCE_WCS_LOC_QP_OP_ERR] = "local QP operation error",
    [VROCE_WCS_LOC_PROT_ERR] = "local protection error",
    [VROCE_WCS_WR_FLUSH_ERR] = "flushed",
    [VROCE_WCS_MW_BIND_ERR] = "memory window bind error",
    [VROCE_WCS_BAD_RESP_ERR] = "bad response",
    [VROCE_WCS_LOC_ACCESS_ERR] = "local access error",
    [VROCE_WCS_REM_INV_REQ_ERR] = "remote invalid request error",
    [VROCE_WCS_REM_ACCESS_ERR] = "remote access error",
    [VROCE_WCS_REM_OP_ERR] = "remote operation error",
    [VROCE_WCS_RETRY_EXC_ERR] = "transport retry counter exceeded",
    [VROCE_WCS_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
    [VROCE_WCS_FATAL_ERR] = "fatal error",
    [VROCE_WCS_GENERAL_ERR] = "general error",
};

static const char *const event_names[] = {
    [VROCE_EVENT_COMPLETION] = "completion",
    [VROCE_EVENT_CQ_ERR] = "CQ error",
    [VROCE_EVENT_QP_FATAL] = "local catastrophic error of the QP",
    [VROCE_EVENT_QP_REQ_ERR] = "invalid request from the peer",
    [VROCE_EVENT_QP_ACCESS_ERR] = "access violation by the peer",
    [VROCE_EVENT_COMM_EST] = "communication established",
    [VROCE_EVENT_SQ_DRAINED] = "send queue drained",
    [VROCE_EVENT_LAST_WQE_REACHED] = "last WQE reached",
    [VROCE_EVENT_SRQ_ERR] = "SRQ error",
    [VROCE_EVENT_SRQ_LIMIT] = "SRQ limit reached",
    [VROCE_EVENT_PORT_UP] = "port up",
    [VROCE_EVENT_PORT_DOWN] = "port down",
    [VROCE_EVENT_DEVICE_FATAL] = "device fatal",
};

static const char *const qp_state_names[] = {
    [VROCE_QPS_RESET] = "reset",
    [VROCE_QPS_INIT] = "init",
    [VROCE_QPS_RTR] = "rtr",
    [VROCE_QPS_RTS] = "rts",
    [VROCE_QPS_SQD] = "sqd",
    [VROCE_QPS_SQE] = "sqe",
    [VROCE_QPS_ERR] = "err",
};

const char *vr_counter_name(enum vroce_counter cnt)
{
    return (unsigned int)cnt < VROCE_CNT_NUM ? counter_names[cnt] : NULL;
}

const char *vr_rule_name(enum vroce_rule rule)
{
    return (unsigned int)rule < VROCE_RULE_NUM ? rules[rule].name : NULL;
}

const char *vr_rule_text(enum vroce_rule rule)
{
    return (unsigned int)rule < VROCE_RULE_NUM ? rules[rule].text : NULL;
}

const char *vr_status_name(uint8_t status)
{
    return status < COUNT(status_names) ? status_names[status] : NULL;
}

const char *vr_event_name(uint16_t event)
{
    return event < COUNT(event_names) ? event_names[event] : NULL;
}

const char *vr_qp_state_name(unsigned int state)
{
    return state < COUNT(qp_state_names) ? qp_state_names[state] : NULL;
}
