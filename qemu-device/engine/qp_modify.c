/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * MODIFY_QP: the table of legal transitions with the attributes that each
 * requires and allows, IBA 10.3.1 and 11.2.5.2 (table 91), and what they do.
 */
#include <stdio.h>
#include <string.h>

#include "vr_transport.h"

#define MTU_OVERHEAD 96 /* GRH, UDP, BTH, largest extension headers, ICRC */

/* Attribute masks as short as the table needs them. */
#define CUR     VROCE_QP_CUR_STATE
#define ACCESS  VROCE_QP_ACCESS_FLAGS
#define PKEY    VROCE_QP_PKEY_INDEX
#define PORT    VROCE_QP_PORT
#define QKEY    VROCE_QP_QKEY
#define AV      VROCE_QP_AV
#define MTU     VROCE_QP_PATH_MTU
#define TIMEOUT VROCE_QP_TIMEOUT
#define RETRY   VROCE_QP_RETRY_CNT
#define RNR     VROCE_QP_RNR_RETRY
#define RQ_PSN  VROCE_QP_RQ_PSN
#define SQ_PSN  VROCE_QP_SQ_PSN
#define RD      VROCE_QP_MAX_RD_ATOMIC
#define DEST_RD VROCE_QP_MAX_DEST_RD_ATOMIC
#define MIN_RNR VROCE_QP_MIN_RNR_TIMER
#define DEST    VROCE_QP_DEST_QPN
#define NOTIFY  VROCE_QP_EN_SQD_ASYNC_NOTIFY

#define S(name) VROCE_QPS_##name
#define T(name) (1u << VROCE_QPT_##name)
#define DATAGRAM (T(UD) | T(GSI))
#define ALL      (T(RC) | T(UC) | DATAGRAM | T(ETH))

/* Any state goes to RESET, and all but RESET to ERR, with no attribute more. */
static const struct {
    uint8_t from, to;
    uint8_t types;              /* of QPs, a bit each */
    uint32_t required, optional;
} transitions[] = {
    { S(RESET), S(INIT), T(RC) | T(UC), PKEY | PORT | ACCESS, 0 },
    { S(RESET), S(INIT), T(UD), PKEY | PORT | QKEY, 0 },
    { S(RESET), S(INIT), T(GSI), PKEY | QKEY, PORT },
    { S(RESET), S(INIT), T(ETH), PORT, 0 },

    { S(INIT), S(INIT), T(RC) | T(UC), 0, PKEY | PORT | ACCESS },
    { S(INIT), S(INIT), T(UD), 0, PKEY | PORT | QKEY },
    { S(INIT), S(INIT), T(GSI), 0, PKEY | QKEY },

    { S(INIT), S(RTR), T(RC), AV | MTU | DEST | RQ_PSN | DEST_RD | MIN_RNR,
      ACCESS | PKEY },
    { S(INIT), S(RTR), T(UC), AV | MTU | DEST | RQ_PSN, ACCESS | PKEY },
    { S(INIT), S(RTR), DATAGRAM, 0, PKEY | QKEY },
    { S(INIT), S(RTR), T(ETH), 0, 0 },

    { S(RTR), S(RTS), T(RC), TIMEOUT | RETRY | RNR | SQ_PSN | RD,
      CUR | ACCESS | MIN_RNR },
    { S(RTR), S(RTS), T(UC), SQ_PSN, CUR | ACCESS },
    { S(RTR), S(RTS), DATAGRAM, SQ_PSN, CUR | QKEY },
    { S(RTR), S(RTS), T(ETH), 0, 0 },

    { S(RTS), S(RTS), T(RC), 0, CUR | ACCESS | MIN_RNR },
    { S(RTS), S(RTS), T(UC), 0, CUR | ACCESS },
    { S(RTS), S(RTS), DATAGRAM, 0, CUR | QKEY },

    { S(RTS), S(SQD), T(RC) | T(UC) | DATAGRAM, 0, NOTIFY },

    { S(SQD), S(RTS), T(RC), 0, CUR | ACCESS | MIN_RNR },
    { S(SQD), S(RTS), T(UC), 0, CUR | ACCESS },
    { S(SQD), S(RTS), DATAGRAM, 0, CUR | QKEY },

    { S(SQD), S(SQD), T(RC), 0, PORT | AV | TIMEOUT | RETRY | RNR | RD |
      DEST_RD | ACCESS | PKEY | MIN_RNR },
    { S(SQD), S(SQD), T(UC), 0, AV | ACCESS | PKEY },
    { S(SQD), S(SQD), DATAGRAM, 0, PKEY | QKEY },

    { S(SQE), S(RTS), T(UC), 0, CUR | ACCESS },
    { S(SQE), S(RTS), DATAGRAM, 0, CUR | QKEY },
};

/* VROCE_RULE_NONE, QP_TRANSITION or QP_ATTR; mask without VROCE_QP_STATE. */
int vr_qp_transition(uint8_t type, uint8_t from, uint8_t to, uint32_t mask)
{
    if (to == VROCE_QPS_RESET ||
        (to == VROCE_QPS_ERR && from != VROCE_QPS_RESET)) {
        return mask ? VROCE_RULE_QP_ATTR : VROCE_RULE_NONE;
    }
    for (size_t i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
        uint32_t required = transitions[i].required;

        if (transitions[i].from == from && transitions[i].to == to &&
            transitions[i].types & 1u << type) {
            return (mask & required) == required &&
                   !(mask & ~(required | transitions[i].optional)) ?
                   VROCE_RULE_NONE : VROCE_RULE_QP_ATTR;
        }
    }
    return VROCE_RULE_QP_TRANSITION;
}

uint32_t vr_port_mtu(const struct vr_engine *e)
{
    uint32_t room = e->netdev_mtu ? e->netdev_mtu : e->cfg.max_mtu;
    uint32_t mtu = VR_MAX_MTU;

    while (mtu > 256 && mtu + MTU_OVERHEAD > room) {
        mtu /= 2;
    }
    return mtu;
}

/* The first attribute that is out of range, or NULL. */
static const char *out_of_range(struct vr_engine *e,
                                const struct vroce_qp_attr *a, uint32_t mask)
{
    static const uint32_t rights =
        VROCE_ACCESS_LOCAL_WRITE | VROCE_ACCESS_REMOTE_WRITE |
        VROCE_ACCESS_REMOTE_READ | VROCE_ACCESS_REMOTE_ATOMIC |
        VROCE_ACCESS_MW_BIND;
    const struct {
        uint32_t attr;
        bool bad;
        const char *name;
    } checks[] = {
        { ACCESS, le32toh(a->access_flags) & ~rights, "access_flags" },
        { PKEY, le16toh(a->pkey_index) != 0, "pkey_index" },
        { PORT, a->port != 1, "port" },
        { MTU, a->path_mtu < 1 || a->path_mtu > 5 ||
               (128u << a->path_mtu) + MTU_OVERHEAD > e->cfg.max_mtu,
          "path_mtu" },
        { TIMEOUT, a->timeout > 31, "timeout" },
        { RETRY, a->retry_cnt > 7, "retry_cnt" },
        { RNR, a->rnr_retry > 7, "rnr_retry" },
        { MIN_RNR, a->min_rnr_timer > 31, "min_rnr_timer" },
        { RQ_PSN, le32toh(a->rq_psn) > VR_PSN_MASK, "rq_psn" },
        { SQ_PSN, le32toh(a->sq_psn) > VR_PSN_MASK, "sq_psn" },
        { DEST, le32toh(a->dest_qpn) > VROCE_DB_NUMBER_MASK, "dest_qpn" },
        { RD, a->max_rd_atomic > VR_MAX_RD_ATOMIC, "max_rd_atomic" },
        { DEST_RD, a->max_dest_rd_atomic > VR_MAX_RD_ATOMIC,
          "max_dest_rd_atomic" },
        { NOTIFY, a->sqd_async_notify > 1, "sqd_async_notify" },
    };

    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        if (mask & checks[i].attr && checks[i].bad) {
            return checks[i].name;
        }
    }
    return NULL;
}

/* Take over what mask names. */
static void take_attributes(struct vr_qp *qp, const struct vroce_qp_attr *a,
                            uint32_t mask)
{
    struct vroce_qp_attr *to = &qp->attr;

#define TAKE(bit, field) do { \
        if (mask & (bit)) { \
            to->field = a->field; \
        } \
    } while (0)

    TAKE(ACCESS, access_flags);
    TAKE(PKEY, pkey_index);
    TAKE(PORT, port);
    TAKE(QKEY, qkey);
    TAKE(AV, av);
    TAKE(MTU, path_mtu);
    TAKE(TIMEOUT, timeout);
    TAKE(RETRY, retry_cnt);
    TAKE(RNR, rnr_retry);
    TAKE(MIN_RNR, min_rnr_timer);
    TAKE(RQ_PSN, rq_psn);
    TAKE(SQ_PSN, sq_psn);
    TAKE(DEST, dest_qpn);
    TAKE(RD, max_rd_atomic);
    TAKE(DEST_RD, max_dest_rd_atomic);
    TAKE(NOTIFY, sqd_async_notify);
#undef TAKE
}

/* Set the halves to work from what was taken over; old was before that. */
static void apply_attributes(struct vr_qp *qp, uint32_t mask,
                             const struct vroce_qp_attr *old)
{
    struct vr_req *req = &qp->req;

    if (mask & MTU) {
        qp->mtu = 128u << qp->attr.path_mtu;
    }
    if (mask & RQ_PSN) {
        qp->resp.psn = le32toh(qp->attr.rq_psn);
    }
    if (mask & SQ_PSN) {
        req->psn = req->una = req->sent = le32toh(qp->attr.sq_psn);
    }
    if (mask & RETRY) {
        req->retries_left = qp->attr.retry_cnt;
    }
    if (mask & RNR) {
        req->rnr_left = qp->attr.rnr_retry;
    }
    if (mask & DEST_RD) {
        vr_replay_resize(qp, old->max_dest_rd_atomic);
    }
}

static int bad_attr(struct vr_qp *qp, struct vr_cmd_ctx *c,
                    enum vroce_rule rule, uint8_t to, const char *what)
{
    c->qpn = qp->qpn;
    snprintf(c->text, sizeof(c->text), "QP %u: %s to %s: %s", qp->qpn,
             vr_qp_state_name(qp->state), vr_qp_state_name(to), what);
    return vr_refuse(c, rule == VROCE_RULE_QP_TRANSITION ? VROCE_ERR_STATE :
                     VROCE_ERR_PARAM, rule);
}

static int check_modify(struct vr_engine *e, struct vr_qp *qp,
                        struct vr_cmd_ctx *c, uint32_t mask, uint8_t to)
{
    const struct vroce_modify_qp_in *in = c->in;
    const char *name;
    int rule;

    if (mask & VROCE_QP_STATE && in->attr.state > VROCE_QPS_ERR) {
        return bad_attr(qp, c, VROCE_RULE_QP_ATTR, qp->state,
                        "no such state");
    }
    if (mask & CUR && in->attr.cur_state != qp->state) {
        return bad_attr(qp, c, VROCE_RULE_QP_TRANSITION, to,
                        "cur_state is not the current state");
    }
    if (mask & (VROCE_QP_ALT_PATH | VROCE_QP_PATH_MIG_STATE | VROCE_QP_CAP)) {
        return vr_refuse(c, VROCE_ERR_UNSUPPORTED, VROCE_RULE_QP_ATTR);
    }
    rule = vr_qp_transition(qp->type, qp->state, to, mask & ~VROCE_QP_STATE);
    if (rule) {
        return bad_attr(qp, c, rule, to, rule == VROCE_RULE_QP_TRANSITION ?
                        "no such transition" :
                        "an attribute is missing or not allowed");
    }
    name = out_of_range(e, &in->attr, mask);
    if (name) {
        return bad_attr(qp, c, VROCE_RULE_QP_ATTR, to, name);
    }
    return VROCE_OK;
}

static void change_state(struct vr_engine *e, struct vr_qp *qp, uint8_t to)
{
    if (to == VROCE_QPS_RESET) {
        vr_qp_clear(e, qp);
        vr_qp_set_state(e, qp, to);
    } else if (to == VROCE_QPS_ERR) {
        qp->resp.have_ack = false;
        qp->resp.replay_active = 0;
        for (uint32_t i = 0; i < VR_MAX_RD_ATOMIC; i++) {
            qp->resp.replay[i].active = false;
        }
        vr_edge_forget(e, qp->qpn);
        vr_qp_error(e, qp, 0, 0);
        vr_sched_add(e, qp);
    } else {
        qp->req.drained = false;
        vr_qp_set_state(e, qp, to);
        vr_sched_add(e, qp);
    }
}

int vr_cmd_modify_qp(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    const struct vroce_modify_qp_in *in = c->in;
    struct vr_qp *qp = vr_qp_get(e, le32toh(in->qpn));
    uint32_t mask = le32toh(in->attr_mask);
    struct vroce_qp_attr old;
    struct vr_route route;
    uint8_t to;
    int status;

    if (!qp) {
        return vr_refuse(c, VROCE_ERR_NUMBER, VROCE_RULE_NO_OBJECT);
    }
    to = mask & VROCE_QP_STATE ? in->attr.state : qp->state;
    if (qp->state == VROCE_QPS_SQE && to == VROCE_QPS_RTS &&
        !vr_qp_leave_sqe(e, qp)) {
        return VR_CMD_AGAIN;
    }
    status = check_modify(e, qp, c, mask, to);
    if (status) {
        return status;
    }
    if (mask & AV) {
        uint32_t dest = mask & DEST ? le32toh(in->attr.dest_qpn) :
                        le32toh(qp->attr.dest_qpn);

        if (!vr_route_from_av(e, &in->attr.av, qp->qpn, dest, &route)) {
            return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_GID);
        }
        qp->route = route;
    }
    old = qp->attr;
    take_attributes(qp, &in->attr, mask);
    apply_attributes(qp, mask, &old);
    if (to != qp->state) {
        change_state(e, qp, to);
    } else if (to == VROCE_QPS_RESET) {
        vr_qp_clear(e, qp);
    }
    return VROCE_OK;
}
