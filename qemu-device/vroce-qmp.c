/*
 * vroce RDMA network card: management commands
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "hw/pci/msix.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-vroce.h"
#include "vroce.h"

static VroceState *find_vroce(const char *path, Error **errp)
{
    bool ambiguous = false;
    Object *obj = object_resolve_path_type(path, TYPE_VROCE, &ambiguous);

    if (ambiguous) {
        error_setg(errp, "'%s' names several vroce devices, give the whole "
                   "QOM path", path);
        return NULL;
    }
    if (!obj || !DEVICE(obj)->realized) {
        error_setg(errp, "there is no vroce device '%s'", path);
        return NULL;
    }
    return VROCE(obj);
}

static void not_implemented(const char *what, Error **errp)
{
    error_setg(errp, "%s: not implemented yet", what);
}

static char *format_gid(const uint8_t *gid)
{
    char text[INET6_ADDRSTRLEN];

    return g_strdup(inet_ntop(AF_INET6, gid, text, sizeof(text)));
}

static char *format_mac(const uint8_t *mac)
{
    return g_strdup_printf("%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1],
                           mac[2], mac[3], mac[4], mac[5]);
}

/* ---------------------------------------------------------- x-query-vroce */

static VroceCommandQueue *query_cmdq(VroceState *s)
{
    VroceCommandQueue *info = g_new0(VroceCommandQueue, 1);
    const VroceCmdq *q = &s->cmdq;

    info->size = s->regs.cmdq_log_size ? 1u << s->regs.cmdq_log_size : 0;
    info->has_vector = s->regs.cmdq_vector != VROCE_NO_VECTOR;
    info->vector = s->regs.cmdq_vector;
    info->submission_base = s->regs.cmdq_sq_base;
    info->completion_base = s->regs.cmdq_cq_base;
    info->producer = q->producer;
    info->fetched = q->fetched;
    info->completed = q->completed;
    if (q->running) {
        info->running = g_strdup(vr_command_name(q->cmd.opcode));
    }
    info->has_last_doorbell = q->last_doorbell;
    info->last_doorbell = q->last_doorbell;
    info->has_last_completion = q->last_completion;
    info->last_completion = q->last_completion;
    return info;
}

static VroceVectorList *query_vectors(VroceState *s)
{
    PCIDevice *pdev = PCI_DEVICE(s);
    VroceVectorList *list = NULL, **tail = &list;

    for (uint32_t i = 0; i < s->cfg.num_vectors; i++) {
        VroceVector *info = g_new0(VroceVector, 1);

        info->vector = i;
        info->raised = s->irqs_raised[i];
        info->suppressed = s->irqs_suppressed[i];
        info->masked = msix_is_masked(pdev, i);
        info->pending = pdev->msix_pba[i / 8] & 1 << i % 8;
        info->moderation = s->regs.moderation[i];
        info->has_last_raised = s->irqs_last[i];
        info->last_raised = s->irqs_last[i];
        QAPI_LIST_APPEND(tail, info);
    }
    return list;
}

static VroceLimits *query_limits(VroceState *s)
{
    const struct vr_config *cfg = &s->cfg;
    VroceLimits *info = g_new0(VroceLimits, 1);

    info->qps = cfg->num_qps;
    info->cqs = cfg->num_cqs;
    info->eqs = cfg->num_eqs;
    info->srqs = cfg->num_srqs;
    info->mrs = cfg->num_mrs;
    info->pds = cfg->num_pds;
    info->contexts = cfg->num_contexts;
    info->gids = cfg->num_gids;
    info->pages = cfg->num_pages;
    info->sges = cfg->max_sge;
    return info;
}

static VroceNamedValueList *query_counters(VroceState *s)
{
    const uint64_t *counters = vr_counters(s->engine);
    VroceNamedValueList *list = NULL, **tail = &list;

    for (int i = 0; i < VROCE_CNT_NUM; i++) {
        VroceNamedValue *info = g_new0(VroceNamedValue, 1);

        info->name = g_strdup(vr_counter_name(i));
        info->value = counters[i];
        QAPI_LIST_APPEND(tail, info);
    }
    return list;
}

static VroceMisuseCountList *query_misuse(VroceState *s)
{
    VroceMisuseCountList *list = NULL, **tail = &list;

    for (int i = 1; i < VROCE_RULE_NUM; i++) {
        VroceMisuseCount *info;

        if (!s->misuse[i].count) {
            continue;
        }
        info = g_new0(VroceMisuseCount, 1);
        info->rule = i;
        info->name = g_strdup(vr_rule_name(i));
        info->text = g_strdup(vr_rule_text(i));
        info->count = s->misuse[i].count;
        info->last = s->misuse[i].last;
        QAPI_LIST_APPEND(tail, info);
    }
    return list;
}

static VroceInfo *query_device(VroceState *s)
{
    uint8_t command = PCI_DEVICE(s)->config[PCI_COMMAND];
    NetClientState *nc = qemu_get_queue(s->nic);
    VroceInfo *info = g_new0(VroceInfo, 1);

    info->qom_path = object_get_canonical_path(OBJECT(s));
    info->id = g_strdup(DEVICE(s)->id);
    info->netdev = nc->peer ? g_strdup(nc->peer->name) : NULL;
    info->mac = format_mac(s->conf.macaddr.a);
    info->clock = vroce_now();
    info->enabled = vroce_regs_enabled(s);
    info->bus_master = command & PCI_COMMAND_MASTER;
    info->iommu = s->dma.iommus;
    info->fatal = s->regs.fatal;
    info->eq_overrun = vr_eq_overrun(s->engine);
    info->link_up = vroce_net_link_up(s);
    info->tx_blocked = s->tx_blocked;
    info->doorbell_stride = 1u << s->regs.db_shift;
    info->command_queue = query_cmdq(s);
    info->vectors = query_vectors(s);
    info->limits = query_limits(s);
    info->counters = query_counters(s);
    info->misuse = query_misuse(s);
    info->misuse_policy = s->misuse_policy;
    info->has_msix_enabled = true;
    info->msix_enabled = msix_enabled(PCI_DEVICE(s));
    info->has_tx_blocked_since = s->tx_blocked;
    info->tx_blocked_since = s->tx_blocked_since;
    info->has_last_frame_sent = s->last_frame_sent;
    info->last_frame_sent = s->last_frame_sent;
    info->has_last_frame_received = s->last_frame_received;
    info->last_frame_received = s->last_frame_received;
    return info;
}

static int query_if_vroce(Object *obj, void *opaque)
{
    VroceInfoList ***tail = opaque;
    VroceState *s = (VroceState *)object_dynamic_cast(obj, TYPE_VROCE);

    if (s && DEVICE(s)->realized) {
        QAPI_LIST_APPEND(*tail, query_device(s));
    }
    return 0;
}

VroceInfoList *qmp_x_query_vroce(const char *path, Error **errp)
{
    VroceInfoList *list = NULL, **tail = &list;
    VroceState *s;

    if (!path) {
        object_child_foreach_recursive(object_get_root(), query_if_vroce,
                                       &tail);
        return list;
    }
    s = find_vroce(path, errp);
    if (s) {
        QAPI_LIST_APPEND(tail, query_device(s));
    }
    return list;
}

/* ---------------------------------------------------- lists of the objects */

static const char *qp_type_name(uint8_t type)
{
    static const char *const names[] = {
        [VROCE_QPT_RC] = "RC",
        [VROCE_QPT_UC] = "UC",
        [VROCE_QPT_UD] = "UD",
        [VROCE_QPT_GSI] = "GSI",
        [VROCE_QPT_ETH] = "ETH",
    };

    return type < ARRAY_SIZE(names) ? names[type] : "unknown";
}

/* Name and meaning of a rule; NULL when it is none. */
static char *format_rule(uint16_t rule)
{
    if (rule == VROCE_RULE_NONE || !vr_rule_name(rule)) {
        return NULL;
    }
    return g_strdup_printf("%s: %s", vr_rule_name(rule), vr_rule_text(rule));
}

/* How long until then, for people. */
static char *format_until(uint64_t deadline)
{
    uint64_t now = vroce_now();

    if (deadline == UINT64_MAX) {
        return g_strdup("never");
    }
    return g_strdup_printf("in %.1f ms",
                           deadline > now ? (deadline - now) / 1e6 : 0.0);
}

/* Why a QP does not go on, in a line for people; NULL when it has no work. */
static char *format_wait(VroceState *s, const struct vr_qp_info *qp)
{
    g_autofree char *until = NULL;

    switch (qp->wait) {
    case VR_WAIT_NONE:
        return NULL;
    case VR_WAIT_DEVICE:
        return g_strdup(s->regs.fatal ? "a reset: the device is fatal" :
                        vroce_regs_enabled(s) ? "Bus Master" :
                        "the driver to enable the device");
    case VR_WAIT_WIRE:
        return g_strdup("the wire, which is full");
    case VR_WAIT_TURN:
        return g_strdup("its turn");
    case VR_WAIT_RNR:
        until = format_until(qp->rnr_deadline);
        if (qp->rnr_retry == 7) {
            return g_strdup_printf("the peer to post a receive (RNR), tries "
                                   "again %s, without end", until);
        }
        return g_strdup_printf("the peer to post a receive (RNR), tries again "
                               "%s, retry %d of %d", until,
                               qp->rnr_retry - (int)qp->rnr_retries_left,
                               qp->rnr_retry);
    case VR_WAIT_ACK:
        until = format_until(qp->retry_deadline);
        return g_strdup_printf("the acknowledgement of PSN %u, tries again "
                               "%s, %d of %d retries used", qp->unacked_psn,
                               until, qp->retry_cnt - (int)qp->retries_left,
                               qp->retry_cnt);
    case VR_WAIT_SQD:
        return g_strdup("RTS: in SQD nothing new is begun");
    default:
        return g_strdup("nothing that the device knows: this is a fault of it");
    }
}

static VroceQpError *query_qp_error(const struct vr_qp_marks *marks)
{
    VroceQpError *info;

    if (!marks->status && !marks->event) {
        return NULL;
    }
    info = g_new0(VroceQpError, 1);
    info->event = g_strdup(vr_event_name(marks->event));
    if (marks->status) {
        info->has_time = info->has_receive = info->has_wr_id = true;
        info->time = marks->failed;
        info->receive = marks->receive;
        info->wr_id = marks->wr_id;
        info->status = g_strdup(vr_status_name(marks->status));
    }
    return info;
}

/*
 * Work requests that one command counts in the send queues of all QPs. They
 * are the guest's to write, as many as it likes, and QEMU stands meanwhile.
 */
#define MAX_UNRUNG_OF_ALL 65536

/* What helps to see why a QP does not go on. */
static void query_qp_progress(VroceState *s, const struct vr_qp_info *qp,
                              VroceQp *info, uint32_t *counted)
{
    const struct vr_qp_marks *marks = &qp->marks;

    info->waits_for = format_wait(s, qp);
    /* The enumerations have the same members in the same order. */
    QEMU_BUILD_BUG_ON((int)VROCE_QP_WAIT__MAX != VR_WAIT_UNKNOWN + 1);
    info->has_wait = true;
    info->wait = (VroceQpWait)qp->wait;
    info->has_state_since = true;
    info->state_since = marks->state;
    info->has_sq_next = true;
    info->sq_next = qp->sq_next;
    info->has_sq_unrung = *counted < MAX_UNRUNG_OF_ALL &&
        vr_peek_sq(s->engine, qp->qpn, &info->sq_unrung);
    *counted += info->sq_unrung;
    info->has_rq_posted = vr_peek_rq(s->engine, qp->qpn, &info->rq_posted);
    info->has_retry_count = info->has_rnr_retry_count = true;
    info->retry_count = qp->retry_cnt;
    info->rnr_retry_count = qp->rnr_retry;
    info->has_ack_timeout = qp->ack_timeout != UINT64_MAX;
    info->ack_timeout = qp->ack_timeout;
    info->has_last_heard = marks->heard;
    info->last_heard = marks->heard;
    info->has_last_answer = marks->answered;
    info->last_answer = marks->answered;
    info->has_last_refused = marks->refused;
    info->last_refused = marks->refused;
    info->error = query_qp_error(marks);
}

static VroceQp *query_qp(VroceState *s, const struct vr_qp_info *qp,
                         uint32_t *counted)
{
    VroceQp *info = g_new0(VroceQp, 1);

    info->qpn = qp->qpn;
    info->type = g_strdup(qp_type_name(qp->type));
    info->state = g_strdup(vr_qp_state_name(qp->state));
    info->pdn = qp->pdn;
    info->send_cqn = qp->send_cqn;
    info->recv_cqn = qp->recv_cqn;
    info->has_srqn = qp->srqn != VROCE_NONE;
    info->srqn = qp->srqn;
    info->dest_qpn = qp->dest_qpn;
    if (qp->path_mtu) {
        info->dgid = format_gid(qp->dgid);
        info->has_sgid_index = info->has_path_mtu = true;
        info->sgid_index = qp->sgid_index;
        info->path_mtu = qp->path_mtu;
    }
    info->sq_producer = qp->sq_producer;
    info->sq_consumer = qp->sq_consumer;
    info->sq_units = qp->sq_units;
    info->rq_producer = qp->rq_producer;
    info->rq_consumer = qp->rq_consumer;
    info->rq_entries = qp->rq_entries;
    info->send_psn = qp->send_psn;
    info->unacked_psn = qp->unacked_psn;
    info->expected_psn = qp->expected_psn;
    info->msn = qp->msn;
    info->outstanding = qp->outstanding;
    info->retries_left = qp->retries_left;
    info->rnr_retries_left = qp->rnr_retries_left;
    info->has_retry_deadline = qp->retry_deadline != UINT64_MAX;
    info->retry_deadline = qp->retry_deadline;
    info->has_rnr_deadline = qp->rnr_deadline != UINT64_MAX;
    info->rnr_deadline = qp->rnr_deadline;
    info->last_post = qp->last_post;
    info->last_receive_post = qp->last_receive_post;
    info->has_last_rule = qp->last_rule != VROCE_RULE_NONE;
    info->last_rule = qp->last_rule;
    info->last_rule_text = format_rule(qp->last_rule);
    query_qp_progress(s, qp, info, counted);
    return info;
}

VroceQpList *qmp_x_query_vroce_qp(const char *path, bool has_qpn, uint32_t qpn,
                                  Error **errp)
{
    VroceState *s = find_vroce(path, errp);
    VroceQpList *list = NULL, **tail = &list;
    struct vr_qp_info qp;
    uint32_t counted = 0;

    if (!s) {
        return NULL;
    }
    for (uint32_t i = 0; i < s->cfg.num_qps; i++) {
        if ((!has_qpn || i == qpn) && vr_query_qp(s->engine, i, &qp)) {
            QAPI_LIST_APPEND(tail, query_qp(s, &qp, &counted));
        }
    }
    if (has_qpn && !list) {
        error_setg(errp, "there is no QP %u", qpn);
    }
    return list;
}

static VroceCq *query_cq(VroceState *s, const struct vr_cq_info *cq)
{
    VroceCq *info = g_new0(VroceCq, 1);

    info->cqn = cq->cqn;
    info->eqn = cq->eqn;
    info->size = cq->size;
    info->producer = cq->producer;
    info->consumer_seen = cq->consumer_seen;
    info->armed = cq->armed == 0 ? VROCE_ARMED_NO :
                  cq->armed == 1 ? VROCE_ARMED_ANY : VROCE_ARMED_SOLICITED;
    info->armed_at = cq->armed_at;
    info->users = cq->users;
    info->overrun = cq->overrun;
    info->has_consumer = vr_peek_cq(s->engine, cq->cqn, &info->consumer);
    info->has_error = cq->error != VROCE_RULE_NONE;
    info->error = cq->error;
    info->error_text = format_rule(cq->error);
    info->has_held_back = true;
    info->held_back = cq->held_back;
    info->has_last_completion = cq->last_completion;
    info->last_completion = cq->last_completion;
    info->has_last_arm = cq->last_arm;
    info->last_arm = cq->last_arm;
    info->has_last_event = cq->last_event;
    info->last_event = cq->last_event;
    return info;
}

VroceCqList *qmp_x_query_vroce_cq(const char *path, bool has_cqn, uint32_t cqn,
                                  Error **errp)
{
    VroceState *s = find_vroce(path, errp);
    VroceCqList *list = NULL, **tail = &list;
    struct vr_cq_info cq;

    if (!s) {
        return NULL;
    }
    for (uint32_t i = 0; i < s->cfg.num_cqs; i++) {
        if ((!has_cqn || i == cqn) && vr_query_cq(s->engine, i, &cq)) {
            QAPI_LIST_APPEND(tail, query_cq(s, &cq));
        }
    }
    if (has_cqn && !list) {
        error_setg(errp, "there is no CQ %u", cqn);
    }
    return list;
}

static VroceSrq *query_srq(VroceState *s, const struct vr_srq_info *srq)
{
    VroceSrq *info = g_new0(VroceSrq, 1);

    info->srqn = srq->srqn;
    info->pdn = srq->pdn;
    info->entries = srq->entries;
    info->producer = srq->producer;
    info->consumer = srq->consumer;
    info->limit = srq->limit;
    info->users = srq->users;
    info->has_posted = vr_peek_srq(s->engine, srq->srqn, &info->posted);
    info->has_error = true;
    info->error = srq->error;
    info->has_last_post = srq->last_post;
    info->last_post = srq->last_post;
    return info;
}

VroceSrqList *qmp_x_query_vroce_srq(const char *path, bool has_srqn,
                                    uint32_t srqn, Error **errp)
{
    VroceState *s = find_vroce(path, errp);
    VroceSrqList *list = NULL, **tail = &list;
    struct vr_srq_info srq;

    if (!s) {
        return NULL;
    }
    for (uint32_t i = 0; i < s->cfg.num_srqs; i++) {
        if ((!has_srqn || i == srqn) && vr_query_srq(s->engine, i, &srq)) {
            QAPI_LIST_APPEND(tail, query_srq(s, &srq));
        }
    }
    if (has_srqn && !list) {
        error_setg(errp, "there is no SRQ %u", srqn);
    }
    return list;
}

static VroceEq *query_eq(const struct vr_eq_info *eq)
{
    VroceEq *info = g_new0(VroceEq, 1);

    info->eqn = eq->eqn;
    info->vector = eq->vector;
    info->size = eq->size;
    info->producer = eq->producer;
    info->consumer = eq->consumer;
    info->armed = eq->armed;
    info->async = eq->async;
    info->overrun = eq->overrun;
    info->has_lost = true;
    info->lost = eq->lost;
    info->has_last_event = eq->last_event;
    info->last_event = eq->last_event;
    info->has_last_arm = eq->last_arm;
    info->last_arm = eq->last_arm;
    return info;
}

VroceEqList *qmp_x_query_vroce_eq(const char *path, bool has_eqn, uint32_t eqn,
                                  Error **errp)
{
    VroceState *s = find_vroce(path, errp);
    VroceEqList *list = NULL, **tail = &list;
    struct vr_eq_info eq;

    if (!s) {
        return NULL;
    }
    for (uint32_t i = 0; i < s->cfg.num_eqs; i++) {
        if ((!has_eqn || i == eqn) && vr_query_eq(s->engine, i, &eq)) {
            QAPI_LIST_APPEND(tail, query_eq(&eq));
        }
    }
    if (has_eqn && !list) {
        error_setg(errp, "there is no EQ %u", eqn);
    }
    return list;
}

static VroceMr *query_mr(const struct vr_mr_info *mr)
{
    static const char *const kinds[] = {
        [VROCE_MR_MEM] = "mem",
        [VROCE_MR_DMA] = "dma",
        [VROCE_MR_FAST] = "fast",
        [VROCE_MR_DEVMEM] = "devmem",
    };
    VroceMr *info = g_new0(VroceMr, 1);

    info->key = mr->key;
    info->kind = g_strdup(mr->kind < ARRAY_SIZE(kinds) ? kinds[mr->kind]
                                                       : "unknown");
    info->pdn = mr->pdn;
    info->access = mr->access;
    info->iova = mr->iova;
    info->length = mr->length;
    info->pages = mr->pages;
    info->has_page_size = mr->pages && mr->page_shift;
    info->page_size = 1ull << mr->page_shift;
    info->valid = mr->valid;
    return info;
}

VroceMrList *qmp_x_query_vroce_mr(const char *path, bool has_key, uint32_t key,
                                  Error **errp)
{
    VroceState *s = find_vroce(path, errp);
    VroceMrList *list = NULL, **tail = &list;
    struct vr_mr_info mr;

    if (!s) {
        return NULL;
    }
    for (uint32_t i = 0; i < s->cfg.num_mrs; i++) {
        if (vr_query_mr(s->engine, i, &mr) && (!has_key || mr.key == key)) {
            QAPI_LIST_APPEND(tail, query_mr(&mr));
        }
    }
    if (has_key && !list) {
        error_setg(errp, "there is no MR with key 0x%x", key);
    }
    return list;
}

static VroceGid *query_gid(uint32_t index, const struct vr_gid_info *gid)
{
    VroceGid *info = g_new0(VroceGid, 1);

    info->index = index;
    info->gid = format_gid(gid->gid);
    info->mac = format_mac(gid->mac);
    info->has_vlan = gid->vlan != VROCE_NO_VLAN;
    info->vlan = gid->vlan;
    return info;
}

VroceGidList *qmp_x_query_vroce_gid(const char *path, bool has_index,
                                    uint32_t index, Error **errp)
{
    VroceState *s = find_vroce(path, errp);
    VroceGidList *list = NULL, **tail = &list;
    struct vr_gid_info gid;

    if (!s) {
        return NULL;
    }
    for (uint32_t i = 0; i < s->cfg.num_gids; i++) {
        if ((!has_index || i == index) && vr_query_gid(s->engine, i, &gid)) {
            QAPI_LIST_APPEND(tail, query_gid(i, &gid));
        }
    }
    if (has_index && !list) {
        error_setg(errp, "entry %u of the GID table is not valid", index);
    }
    return list;
}

/* ----------------------------------------------------------------- policy */

void qmp_x_vroce_set_misuse_policy(const char *path, VroceMisusePolicy policy,
                                   Error **errp)
{
    VroceState *s = find_vroce(path, errp);

    if (s) {
        s->misuse_policy = policy;
    }
}

/* ------------------------------------- what the engine does not offer yet */

VroceRingEntryList *qmp_x_query_vroce_ring(const char *path, VroceRing ring,
                                           bool has_number, uint32_t number,
                                           bool has_first, uint32_t first,
                                           bool has_count, uint32_t count,
                                           Error **errp)
{
    if (find_vroce(path, errp)) {
        not_implemented("x-query-vroce-ring", errp);
    }
    return NULL;
}

VroceStepList *qmp_x_query_vroce_history(const char *path, bool has_qpn,
                                         uint32_t qpn, Error **errp)
{
    if (find_vroce(path, errp)) {
        not_implemented("x-query-vroce-history", errp);
    }
    return NULL;
}

VroceFault *qmp_x_vroce_fault_add(const char *path, VroceFaultRule *rule,
                                  Error **errp)
{
    if (find_vroce(path, errp)) {
        not_implemented("x-vroce-fault-add", errp);
    }
    return NULL;
}

void qmp_x_vroce_fault_remove(const char *path, bool has_id, uint32_t id,
                              Error **errp)
{
    if (find_vroce(path, errp)) {
        not_implemented("x-vroce-fault-remove", errp);
    }
}

VroceFaultList *qmp_x_vroce_fault_query(const char *path, Error **errp)
{
    if (find_vroce(path, errp)) {
        not_implemented("x-vroce-fault-query", errp);
    }
    return NULL;
}
