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

/* ------------------------------------------------------------- timer.c */

enum vr_timer_kind {
    VR_TIMER_RETRY,             /* number: QP */
    VR_TIMER_RNR,               /* number: QP */
    VR_TIMER_MODERATION,        /* number: vector */
    VR_TIMER_CQ,                /* number: CQ, see MODIFY_CQ */
};

struct vr_timer {
    uint64_t deadline;          /* ns; VR_NEVER: idle */
    uint32_t heap_index;        /* 0: not in the heap */
    uint32_t number;
    uint8_t kind;
};

/* Arm or re-arm; a later deadline of an armed timer costs nothing now. */
void vr_timer_set(struct vr_engine *e, struct vr_timer *t, uint64_t deadline);
void vr_timer_cancel(struct vr_engine *e, struct vr_timer *t);
/* Run all that are due at e->now; each calls the owner's function by its kind. */
void vr_timers_run(struct vr_engine *e);

/* --------------------------------------------------------------- mem.c */

/* A page list read from the guest, or one contiguous piece. */
struct vr_pages {
    uint64_t base;              /* levels 0: bus address */
    uint64_t length;            /* bytes */
    uint64_t npages;
    uint64_t **chunks;          /* 512 page entries each */
    uint32_t offset;
    uint8_t shift;
    bool contiguous;
};

/*
 * Read the list that buf describes, in slices: returns VR_CMD_AGAIN until all
 * is read, with *cursor (0 at first) as the place; else an enum vroce_status
 * and the broken rule. A page that a writer needs must be VALID and WRITE.
 */
int vr_pages_load(struct vr_engine *e, struct vr_pages *p,
                  const struct vroce_buf *buf, bool writable,
                  uint64_t *cursor, uint16_t *rule);
void vr_pages_free(struct vr_engine *e, struct vr_pages *p);
/* Bus address of byte off, and how many bytes follow it without a break. */
uint64_t vr_pages_iova(const struct vr_pages *p, uint64_t off, uint64_t *run);
/* Copy; 0 or -EFAULT. off + len must lie inside. */
int vr_pages_rw(struct vr_engine *e, const struct vr_pages *p, uint64_t off,
                void *buf, uint32_t len, bool write);

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
/* FAST_REG and LOCAL_INV / SEND_INV work requests of a QP of this PD. */
enum vroce_rule vr_mr_fast_reg(struct vr_engine *e, uint32_t pdn,
                               const struct vroce_wqe_fast_reg *seg);
enum vroce_rule vr_mr_invalidate(struct vr_engine *e, uint32_t pdn, uint32_t key);

/* ---------------------------------------------------------------- cq.c */

struct vr_eq {
    uint32_t eqn, vector;
    uint8_t log_size;
    bool async, armed, overrun;
    uint32_t producer, consumer;    /* free-running */
    uint32_t users;
    struct vr_pages ring;
};

struct vr_cq {
    uint32_t cqn, eqn, context;
    uint8_t log_size;
    uint8_t armed;              /* 0 no, 1 any, 2 solicited only */
    bool overrun;
    uint32_t rec_off;
    uint32_t producer, consumer_seen;   /* free-running */
    uint32_t last_solicited;    /* producer after the last solicited CQE */
    bool any_solicited;
    uint32_t armed_at;          /* consumer index of the last arm */
    uint32_t users;             /* queues that complete here */
    uint16_t mod_count, mod_period_us;
    uint32_t mod_pending;
    struct vr_timer timer;
    struct vr_pages ring;
};

struct vr_cq *vr_cq_get(struct vr_engine *e, uint32_t cqn);
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

/*
 * Take the next receive WQE of qp (its own or its SRQ's). Returns
 * VROCE_RULE_NONE with recv->valid false when none is posted.
 */
enum vroce_rule vr_rq_take(struct vr_engine *e, struct vr_qp *qp,
                           struct vr_recv *recv);

/* ------------------------------------------------------- qp.c and friends */

/* What is kept of a send WQE from its first packet to its completion. */
struct vr_shadow {
    uint32_t index;             /* free-running unit index of the WQE */
    uint32_t first_psn, npsn;
    uint32_t length;            /* bytes of the message */
    uint32_t hash;              /* of the WQE's bytes: VROCE_RULE_WQE_CHANGED */
    uint64_t wr_id;
    uint8_t opcode, flags, units;
    bool done;                  /* acknowledged, not yet completed in order */
};

/* Requester half, IBA 9.7.3 and 9.7.5. */
struct vr_req {
    uint32_t producer;          /* units, free-running, by the doorbell */
    uint32_t next;              /* unit index of the next WQE to begin */
    uint32_t consumer;          /* unit index of the oldest WQE not completed */
    uint32_t psn;               /* of the next new packet */
    uint32_t una;               /* oldest PSN not acknowledged */
    uint32_t send_shadow;       /* cursor: shadow in transmission … */
    uint32_t send_off;          /* … and its packet number; go-back-N moves it */
    uint32_t shadow_head, shadow_num, shadow_cap;
    struct vr_shadow *shadows;  /* ring of shadow_cap, oldest at head */
    uint32_t reads_inflight;
    uint32_t read_psn;          /* next READ response expected */
    uint32_t pkts_since_ackreq;
    uint8_t retries_left, rnr_left;
    bool waiting_rnr, fenced, drain_pending;
    struct vr_timer retry_timer, rnr_timer;
    uint64_t last_post;
};

/* A READ or atomic that may be asked for again, IBA 9.7.5.1.3 (replay). */
struct vr_replay {
    uint32_t psn, npsn;
    uint8_t op;                 /* VR_OP_READ_REQ or an atomic */
    uint32_t key, len;
    uint64_t va, result;
    uint32_t msn;
    uint32_t sent;              /* READ: packets of the answer handed out */
    bool active;                /* READ: the scheduler still serves it */
};

/* Responder half, IBA 9.7.4. */
struct vr_resp {
    uint32_t psn;               /* expected */
    uint32_t msn;
    bool in_message, nak_sent, have_ack;
    uint8_t op;                 /* of the message in progress */
    uint8_t ack_syndrome;
    uint32_t ack_psn;           /* acknowledgement waiting to be sent */
    uint32_t received;          /* bytes of the message in progress */
    uint32_t rkey, dma_len;     /* WRITE in progress */
    uint64_t va;
    struct vr_recv recv;
    uint32_t replay_head, replay_num;
    struct vr_replay *replay;   /* ring of max_dest_rd_atomic */
};

struct vr_qp {
    uint32_t qpn, pdn, send_cqn, recv_cqn, srqn, context;
    uint8_t type;               /* enum vroce_qp_type */
    uint8_t state;              /* enum vroce_qp_state */
    struct vroce_qp_attr attr;  /* as last modified, little-endian */
    uint32_t mtu;               /* bytes */
    struct vr_route route;      /* of a connected QP */
    bool has_sq, has_rq, loopback, scheduled;
    uint32_t sq_off;
    uint8_t sq_log_units;
    uint16_t last_rule;
    struct vr_pages pages;
    struct vr_rq rq;
    struct vr_req req;
    struct vr_resp resp;
    uint32_t sched_next;        /* QP number; VROCE_NONE: last */
};

struct vr_qp *vr_qp_get(struct vr_engine *e, uint32_t qpn);
/* Error state: flushes both queues in order, raises event unless it is 0. */
void vr_qp_error(struct vr_engine *e, struct vr_qp *qp, enum vroce_event event,
                 enum vroce_rule rule);
/* A send queue doorbell. */
void vr_sq_doorbell(struct vr_engine *e, uint32_t page, uint32_t qpn,
                    uint32_t value);
/* Put qp at the end of the list that vr_sched_run() serves, and kick. */
void vr_sched_add(struct vr_engine *e, struct vr_qp *qp);
/* Serve QPs and queued loopback packets; true when work is left. */
bool vr_sched_run(struct vr_engine *e, uint32_t budget);
void vr_qp_retry_timer(struct vr_engine *e, uint32_t qpn);
void vr_qp_rnr_timer(struct vr_engine *e, uint32_t qpn);

/*
 * Read the WQE at unit index into buf (8 units of room), with the checks that
 * need no QP type: units, index, num_sge, size. Returns the broken rule.
 */
enum vroce_rule vr_sq_fetch(struct vr_engine *e, struct vr_qp *qp,
                            uint32_t index, void *buf);

/* A packet or super-packet has arrived; payload names are `from`'s. */
void vr_transport_rx(struct vr_engine *e, struct vr_engine *from,
                     const struct vr_sp *sp);
/* View of what p names in engine owner; the broken rule when it cannot be. */
enum vroce_rule vr_payload_view(struct vr_engine *owner,
                                const struct vr_payload *p,
                                struct vr_view *view);
/*
 * The sender's own memory behind p could not be read when the packet was made:
 * completes the WQE in error, or turns the READ response into a NAK.
 */
void vr_payload_failed(struct vr_engine *owner, const struct vr_payload *p,
                       enum vroce_rule rule);

/* Command handlers of qp.c, in the table of cmd.c. */
struct vr_cmd_ctx {
    const void *in;
    void *out;
    uint16_t rule;
    uint64_t *cursor;           /* of a command that works in slices; 0 at first */
    void **scratch;             /* kept between slices; NULL at first */
};
int vr_cmd_create_qp(struct vr_engine *e, struct vr_cmd_ctx *c);
int vr_cmd_destroy_qp(struct vr_engine *e, struct vr_cmd_ctx *c);
int vr_cmd_modify_qp(struct vr_engine *e, struct vr_cmd_ctx *c);
int vr_cmd_query_qp(struct vr_engine *e, struct vr_cmd_ctx *c);

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
/* Go on with a super-packet that the wire could take only in part. */
void vr_edge_resume(struct vr_engine *e);
/* A frame from the wire: RoCEv2 for one of our GIDs; false: not RoCE for us. */
bool vr_edge_receive(struct vr_engine *e, const uint8_t *frame, size_t len);

/*
 * Build packet i of sp in frame, without its payload: writes all headers with
 * room for the payload, returns its offset. vr_frame_finish() adds pad and
 * ICRC after the payload is in place and returns the frame's length.
 */
size_t vr_frame_headers(uint8_t *frame, const struct vr_sp *sp, uint32_t i,
                        uint32_t *payload_len);
size_t vr_frame_finish(uint8_t *frame, size_t payload_off, uint32_t payload_len);
/*
 * Parse and check a RoCEv2 frame into sp, one packet, payload as BYTES in the
 * frame. Returns 0, -ENOMSG (not RoCEv2), -EBADMSG (bad ICRC) or -EPROTO
 * (malformed).
 */
int vr_frame_parse(const uint8_t *frame, size_t len, struct vr_sp *sp);

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
/* Index of gid in the table, or -1. */
int vr_gid_find(const struct vr_engine *e, const uint8_t gid[16]);
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
    uint32_t size, used, hint;  /* hint: where the search for a free one begins */
    void **slot;
};
/* Free index of t, beginning behind the last one given out; VROCE_NONE: full. */
uint32_t vr_table_alloc(struct vr_table *t, void *object);
void *vr_table_get(const struct vr_table *t, uint32_t index);
void vr_table_remove(struct vr_table *t, uint32_t index);

struct vr_engine {
    struct vr_config cfg;
    const struct vr_host_ops *ops;
    void *host;
    uint64_t now;               /* ns, as last told */
    bool enabled, link_up, tx_full, kicked, fatal;

    struct vr_table qps, cqs, eqs, mrs, pds, srqs, contexts;
    struct vr_gid *gids;
    uint64_t pages_used;        /* against cfg.num_pages */
    uint32_t async_eqn;
    uint8_t *mr_variants;       /* next variant of each index */

    uint32_t netdev_qpn, netdev_flags;
    uint8_t netdev_mac[6];
    uint16_t netdev_mtu;

    uint32_t sched_head, sched_tail;    /* QP numbers */
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

    /* A command that needs another slice. */
    uint8_t cmd_opcode;
    bool cmd_active;
    uint64_t cmd_cursor;
    void *cmd_scratch;

    uint64_t counters[VROCE_CNT_NUM];
};

static inline void vr_count(struct vr_engine *e, enum vroce_counter c, uint64_t n)
{
    e->counters[c] += n;
}

void vr_report(struct vr_engine *e, enum vr_report_kind kind, uint32_t number,
               uint64_t a, uint64_t b);
/* Ask the host for vr_run(), once until it comes. */
void vr_kick(struct vr_engine *e);
/* Raise vector, or do so when its moderation allows. */
void vr_raise(struct vr_engine *e, uint32_t vector);

#endif /* VR_INTERNAL_H */
