/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of the transport offer each other: QPs, send and receive
 * queues, requester, completer, responder and scheduler.
 */
#ifndef VR_TRANSPORT_H
#define VR_TRANSPORT_H

#include <endian.h>

#include "vr_internal.h"

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define VR_MAX_MTU          4096
/* Packets in flight on one QP; what READs ask for counts too. */
#define VR_WINDOW           128
/* The same while packets get lost: what waits in queues delays recovery. */
#define VR_LOSSY_WINDOW     64
/* Packets behind a gap that a responder keeps, on one QP and on all. */
#define VR_HOLD_PACKETS     256
#define VR_HOLD_TOTAL       4096
/* More than this in flight and old could not be told from new, IBA 9.7.2. */
#define VR_MAX_PSN_SPAN     (1 << 23)
/*
 * Units of a send queue that may be begun and not completed: what a window of
 * the longest WQEs has. It bounds what the shadows of a QP cost the host, of
 * however many units the guest says that its ring is.
 */
#define VR_MAX_BEGUN        (VR_WINDOW * VROCE_MAX_WQE_UNITS)
/* An acknowledgement is asked for at least this often. */
#define VR_ACKREQ_PACKETS   32
/* Payload of one super-packet, and of one QP's turn. */
#define VR_SP_BYTES         (64u << 10)
/* What a packet costs besides its payload, in the scheduler's bytes. */
#define VR_PACKET_COST      256

/* AETH syndromes, IBA 9.7.5.2.1 (table 44 and 45) */
#define VR_AETH_TYPE(s)     ((s) >> 5)
#define VR_AETH_ACK         0
#define VR_AETH_RNR         1
#define VR_AETH_NAK         3
#define VR_SYN_ACK          0x1f        /* no credit limit */
#define VR_SYN_RNR          0x20        /* + timer code */
#define VR_SYN_NAK_PSN      0x60
#define VR_SYN_NAK_INVALID  0x61
#define VR_SYN_NAK_ACCESS   0x62
#define VR_SYN_NAK_OP       0x63

/* What a QP's turn left behind. */
enum vr_turn {
    VR_TURN_IDLE,               /* nothing to do until something happens */
    VR_TURN_MORE,
    VR_TURN_BLOCKED,            /* the wire is full */
};

static inline bool vr_qp_is_ud(const struct vr_qp *qp)
{
    return qp->type == VROCE_QPT_UD || qp->type == VROCE_QPT_GSI;
}

/* May the responder work in this state? IBA 10.3.1 */
static inline bool vr_qp_can_receive(const struct vr_qp *qp)
{
    return qp->state >= VROCE_QPS_RTR && qp->state <= VROCE_QPS_SQE;
}

/* How many shadows the send queue has, a power of two. */
static inline uint32_t vr_num_shadows(const struct vr_qp *qp)
{
    uint32_t units = 1u << qp->sq_log_units;

    return units < VR_MAX_BEGUN ? units : VR_MAX_BEGUN;
}

static inline struct vr_shadow *vr_shadow_at(const struct vr_qp *qp,
                                             uint32_t index)
{
    return &qp->req.shadows[index & (vr_num_shadows(qp) - 1)];
}

/* PSN of the packet that the requester sends next. */
static inline uint32_t vr_req_cur_psn(const struct vr_qp *qp)
{
    const struct vr_req *req = &qp->req;

    return req->cur == req->next ? req->psn :
           vr_psn_add(vr_shadow_at(qp, req->cur)->first_psn, req->cur_pkt);
}

static inline bool vr_op_is_read_or_atomic(uint8_t wqe_opcode)
{
    return wqe_opcode >= VROCE_WQE_READ && wqe_opcode <= VROCE_WQE_FETCH_ADD;
}

/* qp.c */
void vr_qp_set_state(struct vr_engine *e, struct vr_qp *qp, uint8_t state);
/* Count qp as user (n: 1), or no longer (-1), of its context, CQs and SRQ. */
void vr_qp_count_users(struct vr_engine *e, const struct vr_qp *qp, int n);
/* Empty both queues and forget all packets, as in RESET. */
void vr_qp_clear(struct vr_engine *e, struct vr_qp *qp);
/* A work request failed; the first one is remembered for people. */
void vr_qp_note_error(struct vr_engine *e, struct vr_qp *qp, uint8_t status,
                      uint64_t wr_id, bool receive);
/* Complete what is left of the queues of a QP in ERR (or SQE: its SQ). */
enum vr_turn vr_qp_flush(struct vr_engine *e, struct vr_qp *qp,
                         int64_t *budget);
/*
 * SQE to RTS, IBA 10.3.1.6: flush what was posted before the command came, but
 * not what is posted while it lasts, or it might last for ever. False: there is
 * more, the command goes on with another slice.
 */
bool vr_qp_leave_sqe(struct vr_engine *e, struct vr_qp *qp);

/* qp_modify.c */
int vr_qp_transition(uint8_t type, uint8_t from, uint8_t to, uint32_t mask);

/* wqe.c */
/*
 * Read and check the WQE at unit index into e->wqe. On failure *f says how it
 * is to be completed.
 */
bool vr_wqe_load(struct vr_engine *e, struct vr_qp *qp, uint32_t index,
                 struct vr_failure *f);
/*
 * Is w what was begun as sh? The hash alone is for programs' mistakes: a guest
 * can give another WQE the same, and what was decided must hold for that too.
 */
bool vr_wqe_is(const struct vr_wqe *w, const struct vr_shadow *sh);
/* PSNs of a message of this length by this opcode; 0: a local operation. */
uint32_t vr_wqe_psns(uint8_t opcode, uint32_t length, uint32_t mtu);
/* Behind the WQE at index, which may be nonsense; its wr_id and opcode. */
uint32_t vr_wqe_end(struct vr_engine *e, struct vr_qp *qp, uint32_t index,
                    uint64_t *wr_id, uint8_t *opcode);
/* View of the scatter list or inline data of e->wqe. */
void vr_wqe_view(struct vr_engine *e, const struct vr_qp *qp,
                 struct vr_view *view);

/* comp.c */
void vr_comp_rx(struct vr_engine *e, struct vr_engine *from, struct vr_qp *qp,
                const struct vr_sp *sp);
/* Complete what is done at the head of the send queue, in order. */
void vr_sq_retire(struct vr_engine *e, struct vr_qp *qp);
/* Post a send completion; it is written when signaled or in error. */
void vr_sq_cqe(struct vr_engine *e, struct vr_qp *qp,
               const struct vr_failure *f, uint32_t byte_len, bool signaled);
/* Note that the WQE of f failed; reported as soon as it is the oldest. */
void vr_req_fail(struct vr_engine *e, struct vr_qp *qp,
                 const struct vr_failure *f);
/* How long an answer may take, ns; VR_NEVER: for ever. */
uint64_t vr_ack_timeout(const struct vr_qp *qp);
/* The peer, or its silence, ends the oldest WQE, and the connection with it. */
void vr_sq_fail_head(struct vr_engine *e, struct vr_qp *qp, uint8_t status,
                     uint16_t rule);

/* req.c */
enum vr_turn vr_req_run(struct vr_engine *e, struct vr_qp *qp, int64_t *budget);
/* Ask for a READ again, from psn on. False: not now, or it has failed. */
bool vr_req_reread(struct vr_engine *e, struct vr_qp *qp,
                   const struct vr_shadow *sh, uint32_t psn);

/* recover.c */
/* Arm the retry timer as what is in flight asks for. */
void vr_req_arm(struct vr_engine *e, struct vr_qp *qp);
/* Send again all from una on, whatever gaps were named. */
void vr_go_back(struct vr_engine *e, struct vr_qp *qp);
/* Packets from una on are missing: at the peer, as nak says, or here (NULL). */
void vr_sequence_error(struct vr_engine *e, struct vr_qp *qp,
                       const struct vr_sp *nak);
/* Something is asked for again: costs a retry, but only one until una moves. */
bool vr_recover_begin(struct vr_engine *e, struct vr_qp *qp);
/* After a time as long as this, ns, an answer is missing. */
uint64_t vr_recover_patience(const struct vr_qp *qp);
/* Packets that may be in flight behind una. */
int32_t vr_req_window(const struct vr_qp *qp);
/*
 * Packets from psn on that may be sent in one go; the last of them asks for an
 * answer. What a NAK told of goes alone.
 */
int32_t vr_recover_packets(const struct vr_qp *qp, uint32_t psn);
/* sp is sent; una has moved; all before psn is acknowledged, not done yet. */
void vr_recover_sent(struct vr_engine *e, struct vr_qp *qp,
                     const struct vr_sp *sp, uint32_t end_psn);
void vr_recover_acked(struct vr_engine *e, struct vr_qp *qp);
void vr_learn_keeping(struct vr_qp *qp, uint32_t psn);
/*
 * With req.skipping: on to what is new, when enough was sent again. Then, if a
 * gap waits to be filled, there.
 */
void vr_recover_skip(struct vr_engine *e, struct vr_qp *qp);

/* gap.c */
/* Take over what a NAK with VR_SP_NAMES says of packets behind una. */
void vr_gap_learn(struct vr_engine *e, struct vr_qp *qp,
                  const struct vr_sp *nak);
bool vr_gap_overlap(const struct vr_gap *a, const struct vr_gap *b);
/* The gap that psn lies in, or NULL. */
struct vr_gap *vr_gap_at(struct vr_req *req, uint32_t psn);
/* The next gap to be filled: its first packet, and behind its last. */
bool vr_gap_next(const struct vr_qp *qp, uint32_t *psn, uint32_t *end);
/* una has moved: forget the gaps before it. */
void vr_gap_closed(struct vr_req *req);
/* The peer does not keep what arrives behind a gap after all. */
void vr_gap_forget(struct vr_req *req);

/* resp.c */
void vr_resp_rx(struct vr_engine *e, struct vr_engine *from, struct vr_qp *qp,
                const struct vr_sp *sp);
/* NAK, complete the receive in progress in error, and to the error state. */
void vr_resp_fail(struct vr_engine *e, struct vr_qp *qp, uint8_t syndrome,
                  enum vroce_wc_status status, enum vroce_rule rule);

/* reply.c */
void vr_reply_ack(struct vr_engine *e, struct vr_qp *qp, uint8_t syndrome,
                  uint32_t psn);
/* The expected packet is missing, but not what comes behind it. */
void vr_reply_nak(struct vr_engine *e, struct vr_qp *qp);
/*
 * Does sp, behind that gap or a duplicate, call for a NAK? For the first one,
 * or if the requester evidently has gone back and what is missing was lost
 * again; else only if it asks for an answer, and the last NAK is a while ago.
 */
bool vr_reply_nak_due(struct vr_engine *e, struct vr_qp *qp,
                      const struct vr_sp *sp);
/* Serve READ and atomic answers, then the acknowledgement, in this order. */
enum vr_turn vr_reply_run(struct vr_engine *e, struct vr_qp *qp,
                          int64_t *budget);
/* A new READ or atomic; NULL: more than max_dest_rd_atomic are under way. */
struct vr_replay *vr_replay_add(struct vr_qp *qp, const struct vr_sp *sp,
                                uint32_t npsn);
/*
 * max_dest_rd_atomic was changed: the ring gets this size, and the latest
 * entries that fit stay, for the peer may ask for them again.
 */
void vr_replay_resize(struct vr_qp *qp, uint32_t old_size);
/* A request whose PSN was seen before, IBA 9.7.5.1.4. */
void vr_replay_again(struct vr_engine *e, struct vr_qp *qp,
                     const struct vr_sp *sp);

/* hold.c */
typedef void vr_hold_fn(struct vr_engine *e, struct vr_engine *from,
                        struct vr_qp *qp, const struct vr_sp *sp);
/* Keep copies of the packets of sp, which lie behind the expected PSN. */
void vr_hold_add(struct vr_engine *e, struct vr_engine *from, struct vr_qp *qp,
                 const struct vr_sp *sp);
/*
 * The expected PSN has moved, and something is held: hand what comes next, in
 * order, to take(). True when that moved the expected PSN again.
 */
bool vr_hold_drain(struct vr_engine *e, struct vr_qp *qp, vr_hold_fn *take);
void vr_hold_clear(struct vr_engine *e, struct vr_qp *qp);
/* Is there a gap before what is held that was not named yet? */
bool vr_hold_gap(struct vr_qp *qp);
/* The MSN field of a NAK of psn that names it, if there is one: see gap.c. */
uint32_t vr_hold_name_gap(struct vr_qp *qp, uint32_t psn);

/* rq.c */
void vr_recv_cqe(struct vr_engine *e, struct vr_qp *qp, struct vr_recv *recv,
                 struct vroce_cqe *cqe, bool solicited);
/* Flush one receive; false when none is left. */
bool vr_rq_flush(struct vr_engine *e, struct vr_qp *qp);

/* ud.c */
enum vr_turn vr_ud_run(struct vr_engine *e, struct vr_qp *qp, int64_t *budget);
void vr_ud_rx(struct vr_engine *e, struct vr_engine *from, struct vr_qp *qp,
              const struct vr_sp *sp);

/* sched.c */
void vr_sched_append(struct vr_engine *e, enum vr_sched_list list,
                     struct vr_qp *qp);
void vr_sched_remove(struct vr_engine *e, struct vr_qp *qp);
/* Is there room for a super-packet on this way? */
static inline bool vr_tx_room(struct vr_engine *e, bool loopback)
{
    return loopback ? !vr_loop_full(e) : vr_link_ready(e);
}
/* The turn that ends when there is no room. */
static inline enum vr_turn vr_no_room(bool loopback)
{
    return loopback ? VR_TURN_MORE : VR_TURN_BLOCKED;
}

/* loop.c: deliver what is queued, about budget bytes. */
void vr_loop_run(struct vr_engine *e, int64_t *budget);
bool vr_loop_empty(const struct vr_engine *e);

#endif /* VR_TRANSPORT_H */
