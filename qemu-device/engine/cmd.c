/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The command set: one table to read the whole control path by, and the
 * commands on the device, contexts and protection domains.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "vr_internal.h"

/* Only what is implemented from end to end stands here. */
#define FEATURES \
    (VROCE_FEATURE_RC | VROCE_FEATURE_UC | VROCE_FEATURE_UD | \
     VROCE_FEATURE_SRQ | VROCE_FEATURE_ATOMIC | VROCE_FEATURE_FAST_REG | \
     VROCE_FEATURE_RESIZE_CQ | VROCE_FEATURE_ETH_CSUM)
#define FW_VERSION      0x00000001      /* 0.1 */

/* ------------------------------------------------- protection domains */

struct vr_pd *vr_pd_get(struct vr_engine *e, uint32_t pdn)
{
    return vr_table_get(&e->pds, pdn);
}

static int pd_refuse(uint16_t *rule, enum vroce_rule why,
                     enum vroce_status status)
{
    *rule = why;
    return status;
}

int vr_pd_hold(struct vr_engine *e, uint32_t pdn, uint32_t context,
               uint16_t *rule)
{
    struct vr_pd *pd = vr_pd_get(e, pdn);

    if (!pd) {
        return pd_refuse(rule, VROCE_RULE_NO_OBJECT, VROCE_ERR_NUMBER);
    }
    if (context && pd->dma) {
        return pd_refuse(rule, VROCE_RULE_PRIVILEGE, VROCE_ERR_PERMISSION);
    }
    pd->users++;
    pd->user_users += !!context;
    return VROCE_OK;
}

void vr_pd_release(struct vr_engine *e, uint32_t pdn, uint32_t context)
{
    struct vr_pd *pd = vr_pd_get(e, pdn);

    pd->users--;
    pd->user_users -= !!context;
}

int vr_pd_hold_mr(struct vr_engine *e, uint32_t pdn, bool dma, uint16_t *rule)
{
    struct vr_pd *pd = vr_pd_get(e, pdn);

    if (!pd) {
        return pd_refuse(rule, VROCE_RULE_NO_OBJECT, VROCE_ERR_NUMBER);
    }
    if (dma && pd->user_users) {
        return pd_refuse(rule, VROCE_RULE_PRIVILEGE, VROCE_ERR_PERMISSION);
    }
    pd->users++;
    pd->dma += dma;
    return VROCE_OK;
}

void vr_pd_release_mr(struct vr_engine *e, uint32_t pdn, bool dma)
{
    struct vr_pd *pd = vr_pd_get(e, pdn);

    pd->users--;
    pd->dma -= dma;
}

static int cmd_alloc_pd(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    struct vroce_number *out = c->out;
    struct vr_pd *pd = calloc(1, sizeof(*pd));

    if (pd) {
        pd->pdn = vr_table_alloc(&e->pds, pd);
    }
    if (!pd || pd->pdn == VROCE_NONE) {
        free(pd);
        return VROCE_ERR_NO_RESOURCES;
    }
    out->number = htole32(pd->pdn);
    return VROCE_OK;
}

static int cmd_free_pd(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_number *in = c->in;
    struct vr_pd *pd = vr_pd_get(e, le32toh(in->number));

    if (!pd) {
        return vr_refuse(c, VROCE_ERR_NUMBER, VROCE_RULE_NO_OBJECT);
    }
    if (pd->users) {
        return vr_refuse(c, VROCE_ERR_BUSY, VROCE_RULE_IN_USE);
    }
    vr_table_remove(&e->pds, pd->pdn);
    free(pd);
    return VROCE_OK;
}

/* ----------------------------------------------------------- contexts */

struct vr_context *vr_context_get(struct vr_engine *e, uint32_t page)
{
    return vr_table_get(&e->contexts, page);
}

static int cmd_alloc_context(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    struct vroce_number *out = c->out;
    struct vr_context *context = calloc(1, sizeof(*context));

    if (context) {
        context->page = vr_table_alloc(&e->contexts, context);
    }
    if (!context || context->page == VROCE_NONE) {
        free(context);
        return VROCE_ERR_NO_RESOURCES;
    }
    out->number = htole32(context->page);
    return VROCE_OK;
}

static int cmd_free_context(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_number *in = c->in;
    struct vr_context *context = vr_context_get(e, le32toh(in->number));

    if (!context) {
        return vr_refuse(c, VROCE_ERR_NUMBER, VROCE_RULE_NO_OBJECT);
    }
    if (!context->page) {
        return vr_refuse(c, VROCE_ERR_PERMISSION, VROCE_RULE_PRIVILEGE);
    }
    if (context->users) {
        return vr_refuse(c, VROCE_ERR_BUSY, VROCE_RULE_IN_USE);
    }
    vr_table_remove(&e->contexts, context->page);
    free(context);
    return VROCE_OK;
}

/* ------------------------------------------------------------- device */

/* EUI-64 of a MAC address, RFC 4291 appendix A. */
static void device_guid(const uint8_t mac[6], void *guid)
{
    uint8_t eui[8] = {
        mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]
    };

    memcpy(guid, eui, sizeof(eui));
}

static int cmd_query_device(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vr_config *cfg = &e->cfg;
    struct vroce_query_device_out *out = c->out;

    out->features = htole64(FEATURES);
    out->max_mr_size = htole64(1ull << 40);
    out->page_size_cap = htole64(0xfffff000u);      /* 4 KiB … 2 GiB */
    device_guid(cfg->mac, &out->node_guid);
    out->max_pages = htole64(cfg->num_pages);
    out->max_qp = htole32(cfg->num_qps - e->qps.first);
    out->max_qp_wr = htole32(1u << VROCE_MAX_RQ_LOG_ENTRIES);
    out->max_cq = htole32(cfg->num_cqs - e->cqs.first);
    out->max_cqe = htole32(cfg->max_cqe);
    out->max_mr = htole32(cfg->num_mrs - e->mrs.first);
    out->max_pd = htole32(cfg->num_pds - e->pds.first);
    out->max_srq = htole32(cfg->num_srqs - e->srqs.first);
    out->max_srq_wr = htole32(1u << VROCE_MAX_RQ_LOG_ENTRIES);
    out->max_eq = htole32(cfg->num_eqs - e->eqs.first);
    out->max_eqe = htole32(1u << VR_MAX_LOG_EQE);
    out->max_contexts = htole32(cfg->num_contexts - e->contexts.first);
    out->max_gids = htole32(cfg->num_gids);
    out->max_sge = htole32(cfg->max_sge);
    out->max_inline = htole32(VR_MAX_INLINE);
    out->max_rd_atomic = htole32(VR_MAX_RD_ATOMIC);
    out->max_msg_size = htole32(VR_MAX_MSG_SIZE);
    out->max_fast_reg_pages = htole32(VR_MAX_FAST_REG_PAGES);
    out->fw_version = htole32(FW_VERSION);
    return VROCE_OK;
}

static int cmd_query_counters(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    uint64_t *out = c->out;

    for (int i = 0; i < VROCE_CNT_NUM; i++) {
        out[i] = htole64(e->counters[i]);
    }
    return VROCE_OK;
}

static int cmd_set_netdev(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_set_netdev_in *in = c->in;
    uint32_t qpn = le32toh(in->qpn), flags = le32toh(in->flags);
    const struct vr_qp *qp = vr_qp_get(e, qpn);

    if (qpn != VROCE_NONE && (!qp || qp->type != VROCE_QPT_ETH)) {
        return vr_refuse(c, VROCE_ERR_NUMBER, VROCE_RULE_NO_OBJECT);
    }
    if (flags & ~VROCE_NETDEV_PROMISC || in->mac[0] & 1 ||
        le16toh(in->mtu) < VR_MIN_MTU || le16toh(in->mtu) > e->cfg.max_mtu) {
        return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    }
    e->netdev_qpn = qpn;
    e->netdev_flags = flags;
    memcpy(e->netdev_mac, in->mac, sizeof(e->netdev_mac));
    e->netdev_mtu = le16toh(in->mtu);
    return VROCE_OK;
}

static int cmd_unsupported(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    return VROCE_ERR_UNSUPPORTED;
}

/* -------------------------------------------------------------- table */

struct span {
    uint16_t off, len;
};

/* Of each command: how long input and output are, what must be zero. */
struct command {
    uint8_t opcode;
    const char *name;
    vr_cmd_fn *handler;
    uint16_t in_len, out_len;
    struct span reserved[4];
};

#define SPAN(type, field) \
    { offsetof(struct type, field), sizeof(((struct type *)0)->field) }
#define NUMBER      sizeof(struct vroce_number)
#define ONE_NUMBER  NUMBER, 0, { SPAN(vroce_number, reserved) }
#define NO_RESERVED { { 0, 0 } }

static const struct command commands[] = {
    { VROCE_CMD_QUERY_DEVICE, "query-device", cmd_query_device,
      0, sizeof(struct vroce_query_device_out), NO_RESERVED },
    { VROCE_CMD_QUERY_COUNTERS, "query-counters", cmd_query_counters,
      0, VROCE_CNT_NUM * sizeof(uint64_t), NO_RESERVED },
    { VROCE_CMD_ALLOC_CONTEXT, "alloc-context", cmd_alloc_context,
      0, NUMBER, NO_RESERVED },
    { VROCE_CMD_FREE_CONTEXT, "free-context", cmd_free_context, ONE_NUMBER },
    { VROCE_CMD_ALLOC_PD, "alloc-pd", cmd_alloc_pd, 0, NUMBER, NO_RESERVED },
    { VROCE_CMD_FREE_PD, "free-pd", cmd_free_pd, ONE_NUMBER },
    { VROCE_CMD_CREATE_EQ, "create-eq", vr_cmd_create_eq,
      sizeof(struct vroce_create_eq_in), NUMBER,
      { SPAN(vroce_create_eq_in, buf.reserved),
        SPAN(vroce_create_eq_in, reserved) } },
    { VROCE_CMD_DESTROY_EQ, "destroy-eq", vr_cmd_destroy_eq, ONE_NUMBER },
    { VROCE_CMD_CREATE_CQ, "create-cq", vr_cmd_create_cq,
      sizeof(struct vroce_create_cq_in), NUMBER,
      { SPAN(vroce_create_cq_in, buf.reserved),
        SPAN(vroce_create_cq_in, reserved) } },
    { VROCE_CMD_DESTROY_CQ, "destroy-cq", vr_cmd_destroy_cq, ONE_NUMBER },
    { VROCE_CMD_RESIZE_CQ, "resize-cq", vr_cmd_resize_cq,
      sizeof(struct vroce_resize_cq_in), 0,
      { SPAN(vroce_resize_cq_in, buf.reserved),
        SPAN(vroce_resize_cq_in, reserved) } },
    { VROCE_CMD_MODIFY_CQ, "modify-cq", vr_cmd_modify_cq,
      sizeof(struct vroce_modify_cq_in), 0, NO_RESERVED },
    { VROCE_CMD_CREATE_SRQ, "create-srq", vr_cmd_create_srq,
      sizeof(struct vroce_create_srq_in), NUMBER,
      { SPAN(vroce_create_srq_in, buf.reserved),
        SPAN(vroce_create_srq_in, reserved) } },
    { VROCE_CMD_DESTROY_SRQ, "destroy-srq", vr_cmd_destroy_srq, ONE_NUMBER },
    { VROCE_CMD_MODIFY_SRQ, "modify-srq", vr_cmd_modify_srq,
      sizeof(struct vroce_modify_srq_in), 0, NO_RESERVED },
    { VROCE_CMD_QUERY_SRQ, "query-srq", vr_cmd_query_srq,
      NUMBER, sizeof(struct vroce_query_srq_out),
      { SPAN(vroce_number, reserved) } },
    { VROCE_CMD_CREATE_QP, "create-qp", vr_cmd_create_qp,
      sizeof(struct vroce_create_qp_in), NUMBER,
      { SPAN(vroce_create_qp_in, buf.reserved),
        SPAN(vroce_create_qp_in, reserved) } },
    { VROCE_CMD_DESTROY_QP, "destroy-qp", vr_cmd_destroy_qp, ONE_NUMBER },
    { VROCE_CMD_MODIFY_QP, "modify-qp", vr_cmd_modify_qp,
      sizeof(struct vroce_modify_qp_in), 0,
      { SPAN(vroce_modify_qp_in, attr.reserved0),
        SPAN(vroce_modify_qp_in, attr.reserved1),
        SPAN(vroce_modify_qp_in, attr.av.reserved0),
        SPAN(vroce_modify_qp_in, attr.av.reserved1) } },
    { VROCE_CMD_QUERY_QP, "query-qp", vr_cmd_query_qp,
      NUMBER, sizeof(struct vroce_qp_attr), { SPAN(vroce_number, reserved) } },
    { VROCE_CMD_CREATE_MR, "create-mr", vr_cmd_create_mr,
      sizeof(struct vroce_create_mr_in), NUMBER,
      { SPAN(vroce_create_mr_in, buf.reserved),
        SPAN(vroce_create_mr_in, reserved0) } },
    { VROCE_CMD_DESTROY_MR, "destroy-mr", vr_cmd_destroy_mr, ONE_NUMBER },
    { VROCE_CMD_UPDATE_MR, "update-mr", vr_cmd_update_mr,
      sizeof(struct vroce_update_mr_in), 0,
      { SPAN(vroce_update_mr_in, mr.buf.reserved),
        SPAN(vroce_update_mr_in, mr.reserved0) } },
    { VROCE_CMD_SET_GID, "set-gid", vr_cmd_set_gid,
      sizeof(struct vroce_set_gid_in), 0,
      { SPAN(vroce_set_gid_in, reserved) } },
    { VROCE_CMD_SET_NETDEV, "set-netdev", cmd_set_netdev,
      sizeof(struct vroce_set_netdev_in), 0, NO_RESERVED },
    { VROCE_CMD_ATTACH_MCAST, "attach-mcast", cmd_unsupported,
      sizeof(struct vroce_mcast_in), 0, { SPAN(vroce_mcast_in, reserved) } },
    { VROCE_CMD_DETACH_MCAST, "detach-mcast", cmd_unsupported,
      sizeof(struct vroce_mcast_in), 0, { SPAN(vroce_mcast_in, reserved) } },
};

static const struct command *command_find(uint8_t opcode)
{
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (commands[i].opcode == opcode) {
            return &commands[i];
        }
    }
    return NULL;
}

const char *vr_command_name(uint8_t opcode)
{
    const struct command *cmd = command_find(opcode);

    return cmd ? cmd->name : NULL;
}

static bool reserved_zero(const struct command *cmd, const uint8_t *in)
{
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < cmd->reserved[i].len; k++) {
            if (in[cmd->reserved[i].off + k]) {
                return false;
            }
        }
    }
    return true;
}

int vr_cmd_pages(struct vr_engine *e, struct vr_cmd_ctx *c,
                 const struct vroce_buf *buf, bool writable)
{
    return vr_pages_load(e, &e->cmd_pages, buf, writable, &c->rule);
}

void vr_pages_take(struct vr_engine *e, struct vr_pages *to)
{
    *to = e->cmd_pages;
    memset(&e->cmd_pages, 0, sizeof(e->cmd_pages));
}

static int command_run(struct vr_engine *e, const struct command *cmd,
                       struct vr_cmd_ctx *c, uint32_t in_len, uint32_t out_len)
{
    if (!cmd) {
        return vr_refuse(c, VROCE_ERR_OPCODE, VROCE_RULE_CMD_OPCODE);
    }
    if (in_len != cmd->in_len || out_len < cmd->out_len) {
        return vr_refuse(c, VROCE_ERR_LENGTH, VROCE_RULE_CMD_LENGTH);
    }
    if (!reserved_zero(cmd, c->in)) {
        return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_RESERVED);
    }
    if (!e->enabled || e->fatal) {
        return VROCE_ERR_STATE;
    }
    if (cmd->out_len) {
        memset(c->out, 0, cmd->out_len);
    }
    return cmd->handler(e, c);
}

int vr_command(struct vr_engine *e, uint8_t opcode, const void *in,
               uint32_t in_len, void *out, uint32_t out_len,
               uint32_t *out_used, uint16_t *rule, uint64_t now)
{
    const struct command *cmd = command_find(opcode);
    struct vr_cmd_ctx c = { .in = in, .out = out, .qpn = VROCE_NONE };
    int status;

    e->now = now;
    *out_used = 0;
    status = command_run(e, cmd, &c, in_len, out_len);
    *rule = c.rule;
    if (status == VR_CMD_AGAIN) {
        return status;
    }
    vr_pages_free(e, &e->cmd_pages);    /* whatever no object took */
    e->cmd_flushes = false;
    vr_count(e, VROCE_CNT_COMMANDS, 1);
    if (status == VROCE_OK) {
        *out_used = cmd->out_len;
    } else {
        vr_count(e, VROCE_CNT_COMMAND_ERRORS, 1);
    }
    if (c.rule && *c.text) {
        vr_misuse(e, c.rule, c.qpn, c.text);
    } else if (c.rule) {
        vr_misuse_of(e, c.rule, "command", opcode, vr_rule_text(c.rule));
    }
    vr_report(e, VR_REPORT_COMMAND, opcode, status, c.rule);
    vr_entry_end(e);
    return status;
}
