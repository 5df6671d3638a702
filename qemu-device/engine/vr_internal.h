/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Objects of the engine and what its files offer each other.
 *
 * Objects name each other by number; pointers are looked up at each use and
 * kept in no saved state, so that a table can be saved, moved or reset.
 */
#ifndef VR_INTERNAL_H
#define VR_INTERNAL_H

#include "vroce_engine.h"
#include "vr_sp.h"

#define VR_NEVER UINT64_MAX

#define VR_MAX_MSG_SIZE         (1u << 30)
#define VR_MAX_DMA_LEN          (1u << 31)      /* of any message, IBA C9-94 */
#define VR_MAX_RD_ATOMIC        16
#define VR_MIN_MTU              68      /* of the netdev, RFC 791 */
#define VR_MAX_INLINE           432     /* in the largest WQE of a UD QP */
#define VR_MAX_FAST_REG_PAGES   4096

/* ------------------------------------------------------------- timer.c */

enum vr_timer_kind {
    VR_TIMER_RETRY,             /* number: QP */
    VR_TIMER_RNR,               /* number: QP */
    VR_TIMER_MODERATION,        /* number: vector */
    VR_TIMER_CQ,                /* number: CQ, see MODIFY_CQ */
};

struct vr_timer {
    uint64_t deadline;          /* ns; VR_NEVER: idle */
    uint64_t at;                /* its place in the heap: not after deadline */
    uint32_t heap_index;        /* 0: not in the heap */
    uint32_t number;
    uint8_t kind;
};

/* Arm or re-arm; a later deadline of an armed timer costs nothing now. */
void vr_timer_set(struct vr_engine *e, struct vr_timer *t, uint64_t deadline);
/* Make idle; a heap entry may stay behind, so that this is cheap. */
void vr_timer_cancel(struct vr_engine *e, struct vr_timer *t);
/* Make idle and forget the pointer: before its owner is freed. */
void vr_timer_remove(struct vr_engine *e, struct vr_timer *t);
void vr_timer_init(struct vr_timer *t, enum vr_timer_kind kind,
                   uint32_t number);
/* Run all that are due at e->now: each calls its owner's function, by kind. */
void vr_timers_run(struct vr_engine *e);

/* --------------------------------------------------------------- mem.c */

/* A page list read from the guest, or one contiguous piece. */
struct vr_pages {
    uint64_t base;              /* levels 0: bus address */
    uint64_t length;            /* bytes */
    uint64_t npages;            /* entries; 0 at levels 0 */
    uint64_t loaded;            /* entries read so far */
    uint64_t room;              /* entries that the chunks can hold; charged */
    uint64_t **chunks;          /* VROCE_PTES_PER_PAGE entries each, sparse */
    uint32_t offset;
    uint8_t shift;
    bool contiguous;
    bool loading;               /* entries are still to be read */
    bool writable;              /* all entries have VROCE_PTE_WRITE */
};

/* Make room for npages entries, against num_pages; an enum vroce_status. */
int vr_pages_reserve(struct vr_engine *e, struct vr_pages *p, uint64_t npages);
/*
 * Read the list that buf describes into p (zeroed, or with room reserved), in
 * slices: returns VR_CMD_AGAIN until all is read; else an enum vroce_status
 * and the broken rule. A writer needs each entry VALID and WRITE.
 */
int vr_pages_load(struct vr_engine *e, struct vr_pages *p,
                  const struct vroce_buf *buf, bool writable, uint16_t *rule);
/* Is an entry valid, aligned and without stray bits? */
bool vr_pte_ok(uint64_t pte, uint64_t page_size);
/* Place of entry index < room; NULL: no memory. */
uint64_t *vr_pages_entry_room(struct vr_pages *p, uint64_t index);
/* Back to zeroed, and to zeroed with its room kept. */
void vr_pages_free(struct vr_engine *e, struct vr_pages *p);
void vr_pages_clear(struct vr_pages *p);
/*
 * Bus address of byte off, and how many bytes (at most max) follow it without
 * a break. off must lie inside.
 */
uint64_t vr_pages_iova(const struct vr_pages *p, uint64_t off, uint64_t max,
                       uint64_t *run);
/* Copy; 0 or -EFAULT. off + len must lie inside. */
int vr_pages_rw(struct vr_engine *e, const struct vr_pages *p, uint64_t off,
                void *buf, uint32_t len, bool write);
/*
 * Write an entry of a queue whose last 4 bytes carry the phase: the body, then
 * the phase word as one store. off is a multiple of 16; 0 or -EFAULT.
 */
int vr_pages_publish(struct vr_engine *e, const struct vr_pages *p,
                     uint64_t off, const void *entry, uint32_t len);
/*
 * Do the ring of `size` bytes at off and the record (or VR_NO_RECORD) fit buf,
 * apart from each other and aligned?
 */
#define VR_NO_RECORD VROCE_NONE
bool vr_ring_fits(const struct vroce_buf *buf, uint64_t off, uint64_t size,
                  uint32_t rec_off);

/* A scatter list as a WQE gives it. */
struct vr_sgl {
    uint32_t pdn;
    uint8_t num;
    struct {
        uint64_t addr;
        uint32_t length, lkey;
    } sge[VROCE_MAX_SGE];
};
uint64_t vr_sgl_length(const struct vr_sgl *sgl);

/* Where bytes are copied from or to. */
struct vr_view {
    enum { VR_VIEW_BYTES, VR_VIEW_SGL, VR_VIEW_MR } kind;
    struct vr_engine *e;        /* SGL, MR: whose memory */
    uint64_t off;               /* added to each offset */
    union {
        uint8_t *bytes;
        struct vr_sgl sgl;
        struct {
            uint64_t va;
            uint32_t key, pdn, access;
        } mr;
    };
};

/*
 * Copy len bytes, at most one mapping apart, checking keys, rights, range and
 * PD of both sides anew. In ascending order, the last cache line last. Returns
 * VROCE_RULE_NONE, or the rule that stopped it; *src_failed tells whose.
 */
enum vroce_rule vr_copy(const struct vr_view *dst, uint64_t dst_off,
                        const struct vr_view *src, uint64_t src_off,
                        uint64_t len, bool *src_failed);

/* ---------------------------------------------------------------- mr.c */

struct vr_mr {
    uint32_t key, pdn, access;
    uint64_t iova, length;
    uint32_t max_pages;         /* VROCE_MR_FAST */
    uint8_t kind;
    bool valid;                 /* a FAST region is not until FAST_REG */
    struct vr_pages pages;
};

/*
 * The region that key names, when the access is allowed: live variant, pdn
 * (VROCE_NONE: any), rights, and va..va+len inside. len 0 asks no range.
 */
enum vroce_rule vr_mr_check(struct vr_engine *e, uint32_t key, uint32_t pdn,
                            uint64_t va, uint64_t len, uint32_t access,
                            struct vr_mr **mr);
void vr_mr_destroy(struct vr_engine *e, struct vr_mr *mr);
/* Could mr, which was loaded, have been created by a command? */
bool vr_mr_sane(const struct vr_engine *e, const struct vr_mr *mr);
/* 8-byte atomic on va of region key (VROCE_ACCESS_REMOTE_ATOMIC). */
enum vroce_rule vr_mr_atomic(struct vr_engine *e, uint32_t key, uint32_t pdn,
                             uint64_t va, bool cmp_swap, uint64_t compare,
                             uint64_t swap_add, uint64_t *old);
/* FAST_REG and LOCAL_INV / SEND_INV work requests of a QP of this PD. */
enum vroce_rule vr_mr_fast_reg(struct vr_engine *e, uint32_t pdn,
                               const struct vroce_wqe_fast_reg *seg);
enum vroce_rule vr_mr_invalidate(struct vr_engine *e, uint32_t pdn,
                                 uint32_t key);

/* ---------------------------------------------------------------- cq.c */

struct vr_eq {
    uint32_t eqn, vector;
    uint8_t log_size;
    bool async, armed;
    bool overrun;               /* some event was lost, ever */
    bool lost;                  /* completions are still owed */
    uint32_t producer, consumer;    /* free-running */
    uint32_t users;             /* CQs that report here */
    uint64_t last_event, last_arm;  /* ns; not saved */
    struct vr_pages ring;
};

#define VR_MAX_LOG_EQE 16

enum vr_armed { VR_ARMED_NO, VR_ARMED_ANY, VR_ARMED_SOLICITED };

struct vr_cq {
    uint32_t cqn, eqn, context;
    uint8_t log_size;
    uint8_t armed;              /* enum vr_armed */
    uint16_t error;             /* enum vroce_rule that ended its work, or 0 */
    uint32_t rec_off;
    uint32_t producer, consumer_seen;   /* free-running */
    uint32_t last_solicited;    /* producer after the last solicited CQE */
    bool any_solicited;
    uint32_t armed_at;          /* consumer index of the last arm */
    uint32_t users;             /* queues that complete here */
    uint16_t mod_count, mod_period_us;
    uint32_t mod_pending;
    uint64_t last_completion, last_arm, last_event; /* ns; not saved */
    struct vr_timer timer;
    struct vr_pages ring;
};

struct vr_cq *vr_cq_get(struct vr_engine *e, uint32_t cqn);
void vr_cq_destroy(struct vr_engine *e, struct vr_cq *cq);
void vr_cq_timer(struct vr_engine *e, uint32_t cqn);
/*
 * Write cqe (the phase word and timestamp are filled in here) and raise what
 * is armed. Error completions count as solicited. A full CQ becomes overrun:
 * CQ_ERR event, and every QP that uses it goes to the error state.
 */
void vr_cq_post(struct vr_engine *e, uint32_t cqn, struct vroce_cqe *cqe,
                bool solicited);
void vr_cq_doorbell(struct vr_engine *e, uint32_t page, uint32_t cqn,
                    uint32_t value, bool solicited);
void vr_eq_doorbell(struct vr_engine *e, uint32_t page, uint32_t eqn,
                    uint32_t value);
struct vr_eq *vr_eq_get(struct vr_engine *e, uint32_t eqn);
void vr_eq_destroy(struct vr_engine *e, struct vr_eq *eq);
/* Append an event and raise the vector when armed. False: lost, counted. */
bool vr_eq_post(struct vr_engine *e, uint32_t eqn, enum vroce_event type,
                uint32_t number, enum vroce_rule rule);
/* Raise the event of each armed CQ of this EQ that has completions. */
void vr_cq_rearm_lost(struct vr_engine *e, uint32_t eqn);
/* To the async EQ; also reported to the host. */
void vr_async_event(struct vr_engine *e, enum vroce_event type,
                    uint32_t number, enum vroce_rule rule);

struct vr_qp;

/* ---------------------------------------------------------------- rq.c */

/* Receive ring of a QP, or an SRQ. */
struct vr_rq {
    struct vr_pages *ring;      /* not saved: the owner's */
    uint32_t off, rec_off;      /* of ring and record in it */
    uint8_t log_entries, log_stride;
    uint32_t consumer, producer_seen;   /* free-running */
    uint64_t last_post;         /* when producer_seen last grew, ns */
};

struct vr_srq {
    uint32_t srqn, pdn, limit, users;
    bool error;
    struct vr_rq rq;
    struct vr_pages pages;
};

/* A receive WQE taken from its ring: the QP keeps this copy till completion. */
struct vr_recv {
    bool valid;
    uint64_t wr_id;
    struct vr_sgl sgl;
};

/* Read the record into producer_seen, checked against the ring's size. */
enum vroce_rule vr_rq_refresh(struct vr_engine *e, struct vr_rq *rq);
/*
 * Take the next receive WQE of qp (its own or its SRQ's). Returns
 * VROCE_RULE_NONE with recv->valid false when none is posted.
 */
enum vroce_rule vr_rq_take(struct vr_engine *e, struct vr_qp *qp,
                           struct vr_recv *recv);

/* ------------------------------------------------------- qp.c and friends */

/* Packets of READ answers that may come before their turn, on one QP. */
#define VR_EARLY_PACKETS 1024
/* Gaps that a requester remembers; others wait until they are the oldest. */
#define VR_MAX_GAPS     8

/* What is kept of a send WQE from its first packet to its completion. */
struct vr_shadow {
    uint32_t index;             /* free-running unit index of the WQE */
    uint32_t first_psn, npsn;   /* npsn 0: a local operation */
    uint32_t length;            /* bytes of the message */
    uint32_t hash;              /* of the WQE's bytes: VROCE_RULE_WQE_CHANGED */
    uint64_t wr_id;
    uint8_t opcode, flags, units;
    bool done;                  /* local: executed; READ, atomic: answered */
    uint64_t asked_again;       /* READ: for missing packets, ns; 0: never */
};

/* A WQE that failed here: reported when those before it have completed. */
struct vr_failure {
    bool set;
    uint8_t opcode, status;
    uint16_t rule;
    uint32_t index, end;        /* unit index, free-running: WQE, behind it */
    uint64_t wr_id;
};

/* Packets that the peer says it is missing, see gap.c. */
struct vr_gap {
    uint32_t psn, num;
    uint64_t filled_at;         /* they were sent again, ns; 0: not yet */
};

/*
 * Requester half, IBA 9.7.3 and 9.7.5. Send queue indices count units and are
 * free-running: consumer <= cur <= next <= producer.
 */
struct vr_req {
    uint32_t producer;          /* by the doorbell */
    uint32_t next;              /* of the next WQE to begin */
    uint32_t cur;               /* of the WQE in transmission … */
    uint32_t cur_pkt;           /* … and its packet; going back moves both */
    uint32_t consumer;          /* of the oldest WQE not completed */
    uint32_t psn;               /* of the next WQE to begin */
    uint32_t una;               /* oldest PSN not acknowledged */
    uint32_t sent;              /* behind the highest PSN ever sent */
    struct vr_shadow *shadows;  /* [vr_num_shadows()], by unit index */
    uint32_t reads;             /* READs and atomics between consumer and cur */
    uint32_t unasked;           /* packets since the last one with AckReq */
    uint8_t retries_left, rnr_left;
    bool waiting_rnr;
    bool went_back;             /* and nothing was acknowledged since */
    bool by_nak;                /* it went back because of a NAK */
    bool skipping;              /* what is sent again ends at skip */
    bool peer_keeps;            /* peer keeps what arrives behind a gap … */
    bool peer_names;            /* … and says where there are more gaps: */
    bool filling;               /* skipping, because of one of these */
    uint8_t num_gaps;
    struct vr_gap gaps[VR_MAX_GAPS];
    uint32_t skip;
    uint32_t back, again;       /* PSNs sent again: [back, again) … */
    uint64_t back_at, again_at; /* … and when, ns */
    uint32_t gap, spacing;      /* last gap's PSN; usual distance to the next */
    uint32_t arrived;           /* packets that the peer has behind the gap */
    uint32_t asks_every;        /* packets from one AckReq to the next */
    uint32_t rtt_psn;           /* the round trip that is being measured … */
    uint64_t rtt_at;            /* … began at this time, ns; 0: none is */
    uint64_t rtt;               /* smoothed, ns; 0: not known yet */
    uint64_t timeout_at;        /* retry_timer: the answer is overdue, ns … */
    uint64_t probe_after;       /* … or this long without one; 0: no probe */
    uint64_t answered_again;    /* latest asked_again whose answer was seen */
    uint64_t early[VR_EARLY_PACKETS / 64];  /* READ answers after una, by PSN */
    bool drained;               /* SQD: SQ_DRAINED was raised, or none is due */
    struct vr_failure failure;
    struct vr_timer retry_timer, rnr_timer;
    uint64_t last_post;         /* ns */
};

/* A READ or atomic that may be asked for again, IBA 9.7.5.1.4. */
struct vr_replay {
    uint32_t psn, npsn;
    uint8_t op;                 /* VR_OP_READ_REQ or an atomic */
    bool active;                /* the scheduler still serves it */
    bool served;                /* its answer has gone out once */
    uint32_t key, len;
    uint64_t va, result;
    uint32_t start, next, end;  /* READ: packets of the answer under way */
    uint32_t limit;             /* READ: bytes of the region up to its end */
};

/* Responder half, IBA 9.7.4. */
struct vr_resp {
    uint32_t psn;               /* expected */
    uint32_t msn;
    bool in_message;
    bool nak_sent;              /* silent about what is behind the gap … */
    bool rnr_sent;              /* … whose first packet found no receive */
    bool dup_acked;             /* silent about further duplicates */
    uint32_t behind;            /* the last PSN that came behind the gap */
    uint64_t nak_at;            /* the last NAK of it, ns … */
    uint32_t nak_since;         /* … packets behind it that came since … */
    uint32_t nak_after;         /* … so many allow the next; 0: none sent */
    struct vr_hold *hold;       /* what came behind the gap, or NULL */
    bool names_gaps;            /* the requester understands VR_SP_NAMES */
    bool established;           /* COMM_EST was raised */
    bool flush_srq;             /* ERR: LAST_WQE_REACHED is still due */
    bool have_ack;              /* to be sent by the scheduler: */
    uint8_t ack_syndrome;
    uint32_t ack_psn;
    uint8_t op;                 /* of the message in progress */
    uint32_t received;          /* its bytes so far */
    uint32_t rkey, dma_len;     /* WRITE */
    uint64_t va;
    struct vr_recv recv;        /* SEND, WRITE with immediate */
    struct vr_replay replay[VR_MAX_RD_ATOMIC];  /* ring */
    uint32_t replay_next, replay_num, replay_active;
};

enum vr_sched_list { VR_SCHED_NONE, VR_SCHED_RUN, VR_SCHED_BLOCKED };

struct vr_qp {
    uint32_t qpn, pdn, send_cqn, recv_cqn, srqn, context;
    uint8_t type;               /* enum vroce_qp_type */
    uint8_t state;              /* enum vroce_qp_state */
    struct vroce_qp_attr attr;  /* as last modified, little-endian */
    uint32_t mtu;               /* bytes */
    struct vr_route route;      /* of a connected QP */
    bool loopback;              /* route leads to one of our own GIDs */
    bool has_sq, has_rq;
    uint32_t sq_off;
    uint8_t sq_log_units;
    uint16_t last_rule;
    struct vr_pages pages;
    struct vr_rq rq;
    struct vr_req req;
    struct vr_resp resp;
    uint8_t sched_list;         /* enum vr_sched_list */
    uint32_t sched_prev, sched_next;    /* QP numbers, 0: none */
    struct vr_qp_marks marks;   /* not saved */
};

struct vr_qp *vr_qp_get(struct vr_engine *e, uint32_t qpn);
/*
 * To the error state: raises event unless it is 0; both queues are flushed in
 * order by the scheduler. May be called at any depth.
 */
void vr_qp_error(struct vr_engine *e, struct vr_qp *qp, enum vroce_event event,
                 enum vroce_rule rule);
/* Free qp and all it holds, timers, list places and users included. */
void vr_qp_destroy(struct vr_engine *e, struct vr_qp *qp);
void vr_sq_doorbell(struct vr_engine *e, uint32_t page, uint32_t qpn,
                    uint32_t value);
void vr_rq_doorbell(struct vr_engine *e, uint32_t page, uint32_t qpn,
                    uint32_t value);
/* Largest path MTU in bytes that fits the netdev's MTU, 256..4096. */
uint32_t vr_port_mtu(const struct vr_engine *e);

/*
 * Put qp at the end of the list that vr_sched_run() serves. Wakes nobody: each
 * entry into the engine ends with vr_sched_run(), and a kick if work is left.
 */
void vr_sched_add(struct vr_engine *e, struct vr_qp *qp);
/* Serve QPs and queued loopback packets; true when work is left. */
bool vr_sched_run(struct vr_engine *e, uint32_t budget);
void vr_qp_retry_timer(struct vr_engine *e, uint32_t qpn);
void vr_qp_rnr_timer(struct vr_engine *e, uint32_t qpn);

/*
 * Read the WQE at unit index into buf (8 units of room), with the checks that
 * need no QP type: units, index, num_sge, inline_len. Returns the broken rule.
 */
enum vroce_rule vr_sq_fetch(struct vr_engine *e, struct vr_qp *qp,
                            uint32_t index, void *buf);

/* The WQE that was read last, checked and with its places found. */
struct vr_wqe {
    bool valid;
    uint8_t units;
    uint32_t qpn, index;
    uint32_t seg_off, data_off; /* in bytes[]: segment; SGEs or inline data */
    uint32_t length;            /* bytes of the message */
    uint32_t hash;
    union {
        struct vroce_wqe_ctrl ctrl;
        uint8_t bytes[VROCE_MAX_WQE_UNITS * VROCE_SQ_UNIT];
        uint64_t words[VROCE_MAX_WQE_UNITS * VROCE_SQ_UNIT / 8];
    };
};

/* A packet or super-packet has arrived; payload names are `from`'s. */
void vr_transport_rx(struct vr_engine *e, struct vr_engine *from,
                     const struct vr_sp *sp);
/*
 * View of what p names in engine owner; the broken rule when there is none.
 * NO_OBJECT: the name is stale, drop the packet without a word. The bytes of an
 * inline WQE stay where they are until the next view of this engine.
 */
enum vroce_rule vr_payload_view(struct vr_engine *owner,
                                const struct vr_payload *p,
                                struct vr_view *view);
/*
 * The sender's own memory behind p could not be read when the packet was made:
 * completes the WQE in error, or turns the READ response into a NAK. Only
 * notes it: the scheduler acts.
 */
void vr_payload_failed(struct vr_engine *owner, const struct vr_payload *p,
                       enum vroce_rule rule);

/* -------------------------------------------------------------- loop.c */

/*
 * Queue a copy of sp, BYTES payload included, for delivery to ourselves by
 * vr_sched_run(). Dropped when the queue is full, which it tells before.
 */
void vr_loop_push(struct vr_engine *e, const struct vr_sp *sp);
bool vr_loop_full(const struct vr_engine *e);
void vr_loop_reset(struct vr_engine *e);
/* Packets of this QP lead nowhere: what they name is gone. */
void vr_loop_forget(struct vr_engine *e, uint32_t qpn);

/* --------------------------------------------------------------- srq.c */

struct vr_srq *vr_srq_get(struct vr_engine *e, uint32_t srqn);
void vr_srq_destroy(struct vr_engine *e, struct vr_srq *srq);
/* Raise SRQ_LIMIT and disarm if fewer WQEs wait than the limit, IBA 10.2.9. */
void vr_srq_check_limit(struct vr_engine *e, struct vr_srq *srq);

/* --------------------------------------------------------------- cmd.c */

/* Protection domain. */
struct vr_pd {
    uint32_t pdn, users;
    uint32_t user_users;        /* of them, queues of user contexts */
    uint32_t dma;               /* of them, regions of all bus addresses */
};
/*
 * Use a PD; an enum vroce_status and the broken rule. A PD with a DMA region
 * is closed to queues of user contexts (context != 0), and the reverse.
 */
int vr_pd_hold(struct vr_engine *e, uint32_t pdn, uint32_t context,
               uint16_t *rule);
void vr_pd_release(struct vr_engine *e, uint32_t pdn, uint32_t context);
/* The same for a region; dma: of all bus addresses. */
int vr_pd_hold_mr(struct vr_engine *e, uint32_t pdn, bool dma, uint16_t *rule);
void vr_pd_release_mr(struct vr_engine *e, uint32_t pdn, bool dma);
struct vr_pd *vr_pd_get(struct vr_engine *e, uint32_t pdn);

/* User context: a doorbell page. Page 0 is the kernel's and always there. */
struct vr_context {
    uint32_t page, users;
};
struct vr_context *vr_context_get(struct vr_engine *e, uint32_t page);

/* A command in execution: in and out have the lengths of its table entry. */
struct vr_cmd_ctx {
    const void *in;
    void *out;
    uint16_t rule;
    uint32_t qpn;               /* that broke it, or VROCE_NONE */
    char text[96];              /* more than the rule says, or empty */
};
/*
 * Read the command's page list. A handler checks all else, calls this, and
 * returns what it returns unless that is VROCE_OK; it is run again from its
 * top for each further slice. Only then it makes its object and takes the list.
 */
int vr_cmd_pages(struct vr_engine *e, struct vr_cmd_ctx *c,
                 const struct vroce_buf *buf, bool writable);
void vr_pages_take(struct vr_engine *e, struct vr_pages *to);
/* Refuse: note the rule, return the status. */
static inline int vr_refuse(struct vr_cmd_ctx *c, enum vroce_status status,
                            enum vroce_rule rule)
{
    c->rule = rule;
    return status;
}

typedef int vr_cmd_fn(struct vr_engine *e, struct vr_cmd_ctx *c);
vr_cmd_fn vr_cmd_create_qp, vr_cmd_destroy_qp;
vr_cmd_fn vr_cmd_modify_qp, vr_cmd_query_qp;
vr_cmd_fn vr_cmd_create_eq, vr_cmd_destroy_eq;
vr_cmd_fn vr_cmd_create_cq, vr_cmd_destroy_cq;
vr_cmd_fn vr_cmd_resize_cq, vr_cmd_modify_cq;
vr_cmd_fn vr_cmd_create_srq, vr_cmd_destroy_srq;
vr_cmd_fn vr_cmd_modify_srq, vr_cmd_query_srq;
vr_cmd_fn vr_cmd_create_mr, vr_cmd_destroy_mr, vr_cmd_update_mr;
vr_cmd_fn vr_cmd_set_gid;

/* -------------------------------------------------------- edge.c, wire.c */

/* Upper bound of what stands before and behind a packet's payload. */
#define VR_FRAME_OVERHEAD 128

/* Is the wire ready for another super-packet? */
bool vr_link_ready(const struct vr_engine *e);
/*
 * Send sp: into the loopback queue when the route leads to one of our GIDs, to
 * the link otherwise. Takes a copy of *sp; BYTES payloads are copied too.
 * Call only when vr_link_ready(); an ACK or CNP may be sent at any time.
 */
void vr_link_send(struct vr_engine *e, const struct vr_sp *sp);
/* Go on with what the wire could take only in part. */
void vr_edge_resume(struct vr_engine *e);
/* Drop what is held of this QP: it was reset, destroyed or is in error. */
void vr_edge_forget(struct vr_engine *e, uint32_t qpn);
bool vr_edge_init(struct vr_engine *e);
void vr_edge_reset(struct vr_engine *e);
void vr_edge_free(struct vr_engine *e);
/* Room for one frame of ours, of the largest MTU and VR_FRAME_OVERHEAD. */
uint8_t *vr_edge_frame(struct vr_engine *e);
/* Give a frame, in the buffer above, to the wire. False: full from now on. */
bool vr_edge_tx(struct vr_engine *e, uint8_t *frame, size_t len);
/* A frame from the wire: RoCEv2 for one of our GIDs; false: not RoCE for us. */
bool vr_edge_receive(struct vr_engine *e, const uint8_t *frame, size_t len);

/*
 * The 40 bytes before the payload of a UD receive: the IPv6 header, or 20 zero
 * bytes and the IPv4 header, as they were on the wire.
 */
void vr_frame_grh(const struct vr_sp *sp, uint8_t grh[40]);

/* ----------------------------------------------------------- eth.c, gid.c */

/* One slice of the Ethernet QP's send queue; returns the bytes sent. */
uint32_t vr_eth_run(struct vr_engine *e, struct vr_qp *qp, uint32_t budget);
void vr_eth_receive(struct vr_engine *e, const uint8_t *frame, size_t len);

struct vr_gid {
    bool valid;
    uint8_t gid[16], mac[6];
    uint16_t vlan;
};
struct vr_gid *vr_gid_get(struct vr_engine *e, uint32_t index);
/* Index of gid on this VLAN (or VROCE_NO_VLAN) in the table, or -1. */
int vr_gid_find(struct vr_engine *e, const uint8_t gid[16], uint16_t vlan);
/* An IPv4 address in its mapped form, ::ffff:a.b.c.d? */
bool vr_gid_is_ipv4(const uint8_t gid[16]);
/*
 * Route to where av leads. The source port follows from flow label or QP
 * numbers (0xc000..0xffff) unless av names one. False: no such source GID.
 */
bool vr_route_from_av(struct vr_engine *e, const struct vroce_av *av,
                      uint32_t sqpn, uint32_t dqpn, struct vr_route *route);

/* ------------------------------------------------------------ engine.c */

/* A table of objects that are named by index; entries are malloc()ed. */
struct vr_table {
    const char *name;
    uint32_t size, used;
    uint32_t first;             /* lowest index that vr_table_alloc() gives */
    uint32_t hint;              /* where its search for a free one begins */
    void **slot;
};
/* Free index of t, searched behind the last one given; VROCE_NONE: full. */
uint32_t vr_table_alloc(struct vr_table *t, void *object);
/* Put object at a free index of the caller's choice; false: it is taken. */
bool vr_table_put(struct vr_table *t, uint32_t index, void *object);
void *vr_table_get(const struct vr_table *t, uint32_t index);
void vr_table_remove(struct vr_table *t, uint32_t index);

/* Value of the field that a limit is about. */
uint64_t vr_config_get(const struct vr_config *cfg,
                       const struct vr_limit *limit);

struct vr_engine {
    struct vr_config cfg;
    const struct vr_host_ops *ops;
    void *host;
    uint64_t now;               /* ns, as last told */
    bool enabled, link_up, tx_full, kicked, fatal;
    bool burst;                 /* more frames follow at once; not saved */

    struct vr_table qps, cqs, eqs, mrs, pds, srqs, contexts;
    struct vr_context kernel_context;
    struct vr_gid *gids;
    uint32_t gid_hint;          /* last one found */
    uint32_t gids_end;          /* behind the last valid one */
    uint64_t pages_used;        /* against cfg.num_pages */
    uint32_t held;              /* packets in all vr_hold */
    uint32_t async_eqn;
    bool eq_overrun;            /* some event was lost since reset */
    uint8_t *mr_variants;       /* next variant of each index */

    uint32_t netdev_qpn, netdev_flags;
    uint8_t netdev_mac[6];
    uint16_t netdev_mtu;

    struct {
        uint32_t head, tail;    /* QP numbers, 0: none */
    } sched[VR_SCHED_BLOCKED + 1];
    struct vr_wqe wqe;          /* not saved */
    struct vr_loop_queue *loop; /* queued loopback super-packets */
    struct vr_edge *edge;       /* what the wire could not take yet */
    const struct vr_link_ops *link_ops;
    void *link;

    struct vr_timer **heap;
    uint32_t heap_num, heap_cap;
    uint64_t armed_deadline;    /* as last told to the host */

    struct {
        uint32_t us;
        uint64_t last;          /* of the last interrupt, ns */
        bool pending;
        struct vr_timer timer;
    } moderation[VROCE_MAX_VECTORS];

    struct vr_pages cmd_pages;  /* page list of the command in execution */
    bool cmd_flushes;           /* it flushes a send queue … */
    uint32_t cmd_flush_end;     /* … up to here */

    uint64_t counters[VROCE_CNT_NUM];
};

static inline void vr_count(struct vr_engine *e, enum vroce_counter c,
                            uint64_t n)
{
    e->counters[c] += n;
}

void vr_report(struct vr_engine *e, enum vr_report_kind kind, uint32_t number,
               uint64_t a, uint64_t b);
/* Misuse of an object that is no QP: text is put behind its kind and number. */
void vr_misuse_of(struct vr_engine *e, enum vroce_rule rule, const char *what,
                  uint32_t number, const char *text);
/* Ask the host for vr_run(), once until it comes. */
void vr_kick(struct vr_engine *e);
/*
 * The end of each entry: a bounded slice of work. What is left waits for
 * vr_run(); a kick wakes the host's main loop, so only then.
 */
void vr_entry_end(struct vr_engine *e);
void vr_moderation_timer(struct vr_engine *e, uint32_t vector);
/* Raise vector, or do so when its moderation allows. */
void vr_raise(struct vr_engine *e, uint32_t vector);

#endif /* VR_INTERNAL_H */
