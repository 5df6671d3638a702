/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The vroce transport engine: everything behind the registers of the card.
 *
 * A library in plain C: no QEMU header, no global state, no thread, no clock
 * of its own. It reaches guest memory, interrupts and the wire through
 * struct vr_host_ops, and is told the time at each entry. One process may hold
 * any number of engines. An engine is not thread-safe: its host enters it
 * under one lock. No host operation may enter the engine again.
 *
 * "IBA" is the InfiniBand Architecture Specification, volume 1, release 1.6.
 */
#ifndef VROCE_ENGINE_H
#define VROCE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "../vroce_hw.h"

struct vr_engine;
struct vr_sp;

/*
 * Limits and identity; the host checks each against the VR_LIMITS below before
 * it creates an engine. Counts are of objects, sizes in bytes.
 */
struct vr_config {
    uint32_t num_qps;           /* QP 0 and QP 1 included */
    uint32_t num_cqs;
    uint32_t num_mrs;
    uint32_t num_pds;
    uint32_t num_srqs;
    uint32_t num_eqs;
    uint32_t num_contexts;      /* doorbell pages, the kernel's included */
    uint32_t num_gids;
    uint32_t num_vectors;
    uint32_t max_sge;
    uint32_t max_cqe;
    uint32_t max_mtu;           /* of the netdev, bytes */
    uint64_t num_pages;         /* page entries that a guest may make us keep */
    uint64_t devmem_size;
    uint8_t mac[6];
};

/* What the engine tells its host of single steps, refusals and events. */
enum vr_report_kind {
    VR_REPORT_MISUSE,           /* rule: the guest broke it */
    VR_REPORT_QP_STATE,         /* a: old state, b: new state */
    VR_REPORT_TX,               /* an engine packet: a: BTH opcode, b: PSN */
    VR_REPORT_RX,               /* a: BTH opcode, b: PSN */
    VR_REPORT_RETRY,            /* a: PSN gone back to, b: retries left */
    VR_REPORT_COMPLETION,       /* number: CQ; a: QP, b: status */
    VR_REPORT_EVENT,            /* number: object; a: enum vroce_event */
    VR_REPORT_COMMAND,          /* number: opcode; a: status */
};

struct vr_report {
    enum vr_report_kind kind;
    enum vroce_rule rule;
    uint32_t number;            /* QP unless the kind says otherwise */
    uint64_t a, b;
    /* One line for people, or NULL; valid in the call. */
    const char *text;
};

struct vr_host_ops {
    /*
     * Map up to len bytes of guest memory at bus address iova. Fills at most
     * max pieces and returns their number; it may cover less than len (the
     * caller goes on behind it) but never ends inside an aligned block of 64
     * bytes, and 0 is a fault. Valid until mem_done, never across two entries
     * of the engine. Only RAM is ever mapped.
     */
    int (*mem_map)(void *host, uint64_t iova, uint64_t len, bool write,
                   struct iovec *iov, int max);
    /* Ends mem_map; with write, all of iov was written. */
    void (*mem_done)(void *host, const struct iovec *iov, int n, bool write);
    /*
     * Copy len bytes from or to guest memory; 0 or -EFAULT. Aligned 4- and
     * 8-byte writes are single stores.
     */
    int (*mem_rw)(void *host, uint64_t iova, void *buf, uint32_t len,
                  bool write);
    /* 8-byte atomic on naturally aligned guest memory; 0 or -EFAULT. */
    int (*mem_atomic)(void *host, uint64_t iova, bool cmp_swap,
                      uint64_t compare, uint64_t swap_add, uint64_t *old);
    /* Device memory (BAR 4), devmem_size bytes, or NULL. */
    uint8_t *(*devmem)(void *host);
    /*
     * Give one Ethernet frame (without FCS) to the wire. The frame is consumed
     * in any case. Returns true to go on, false when the wire is full: the
     * engine then sends nothing until vr_tx_ready().
     */
    bool (*frame_tx)(void *host, const uint8_t *frame, size_t len);
    /* Call vr_timer() at this time or soon after; UINT64_MAX: never. */
    void (*deadline)(void *host, uint64_t ns);
    /* Work is left: call vr_run() soon, from a fresh stack. */
    void (*kick)(void *host);
    /* Raise an MSI-X vector. */
    void (*irq)(void *host, uint32_t vector);
    void (*report)(void *host, const struct vr_report *report);
    /* The device is dead until reset. */
    void (*fatal)(void *host, enum vroce_fatal cause);
};

/* Range of each struct vr_config field, for the host's checks and the tests. */
struct vr_limit {
    const char *name;           /* as the device property is spelled */
    size_t offset;              /* of the field in struct vr_config */
    uint8_t size;               /* of the field, 4 or 8 */
    uint64_t min, max, dflt;
};
extern const struct vr_limit vr_limits[];
extern const size_t vr_num_limits;

/* Fill cfg with the defaults. */
void vr_config_init(struct vr_config *cfg);

/*
 * Create an engine. Returns NULL and sets *err to a static string when a field
 * of cfg is out of range or memory is short. ops must outlive the engine.
 */
struct vr_engine *vr_engine_new(const struct vr_config *cfg,
                                const struct vr_host_ops *ops, void *host,
                                const char **err);
void vr_engine_free(struct vr_engine *e);

/* Back to the state after vr_engine_new(): without object, timer or packet. */
void vr_engine_reset(struct vr_engine *e);

/*
 * May the engine send and receive? Follows VROCE_CTRL_ENABLE and Bus Master.
 * Disabling ends a command that waits for another slice: call it anew or never.
 */
void vr_set_enabled(struct vr_engine *e, bool enabled, uint64_t now);

/*
 * Carrier of the wire; raises PORT_UP and PORT_DOWN events while enabled. What
 * is sent without carrier is lost, so that a full wire holds nobody up then.
 */
void vr_set_link(struct vr_engine *e, bool up, uint64_t now);

/*
 * Execute one command (the entry of the command queue is the host's matter).
 * in and out are copies in host memory. Returns an enum vroce_status, or
 * VR_CMD_AGAIN when the command needs another slice: call it again with the
 * same arguments after other work had its turn. *rule tells the broken rule,
 * *out_used the bytes of out that are valid.
 */
#define VR_CMD_AGAIN 0x100
int vr_command(struct vr_engine *e, uint8_t opcode, const void *in,
               uint32_t in_len, void *out, uint32_t out_len,
               uint32_t *out_used, uint16_t *rule, uint64_t now);
/* Largest input and output of any command, for the host's buffers. */
#define VR_CMD_MAX_LEN 512

/* A write of value to doorbell page `page`. Runs at most one bounded slice. */
void vr_doorbell(struct vr_engine *e, uint32_t page, uint64_t value,
                 uint64_t now);

/*
 * A frame from the wire. It is either consumed or dropped and counted; the
 * engine keeps no reference to it.
 */
void vr_receive(struct vr_engine *e, const uint8_t *frame, size_t len,
                uint64_t now);

/*
 * Frames follow one upon the other (more), and the last of them was given to
 * vr_receive() (!more): what they ask for, acknowledgements above all, is done
 * once at the end, in a bounded slice. No other entry comes in between.
 */
void vr_burst(struct vr_engine *e, bool more, uint64_t now);

/* The wire takes frames again. */
void vr_tx_ready(struct vr_engine *e, uint64_t now);

/*
 * One slice of work, about budget bytes of payload. Returns true when work is
 * left (the host calls again; kick() is not called then).
 */
bool vr_run(struct vr_engine *e, uint32_t budget, uint64_t now);
#define VR_RUN_BUDGET (256u << 10)

/* The deadline has come (calling early or in vain is harmless). */
void vr_timer(struct vr_engine *e, uint64_t now);

/* Memory was invalidated in the IOMMU, or the guest's memory map changed. */
void vr_memory_changed(struct vr_engine *e);

/* Interrupt moderation of one vector, in us (VROCE_REG_MODERATION). */
void vr_set_moderation(struct vr_engine *e, uint32_t vector, uint32_t us);

/*
 * The guest broke rule: counted, reported, remembered at the QP number names
 * (or VROCE_NONE). The host calls it for what it sees itself: registers and
 * command queue. text: one line for people, or NULL.
 */
void vr_misuse(struct vr_engine *e, enum vroce_rule rule, uint32_t number,
               const char *text);

/*
 * The device is dead until reset: nothing is sent, received or executed any
 * more. Raises DEVICE_FATAL while the async EQ can be written, then calls
 * fatal(). The host calls it when its command queue fails.
 */
void vr_fatal(struct vr_engine *e, enum vroce_fatal cause);

/* Was an event lost since reset (VROCE_STATUS_EQ_OVERRUN)? */
bool vr_eq_overrun(const struct vr_engine *e);

/* Snapshot of the counters, VROCE_CNT_NUM values. */
const uint64_t *vr_counters(const struct vr_engine *e);
/* Name of a counter, misuse rule or QP state; NULL when there is none. */
const char *vr_counter_name(enum vroce_counter cnt);
const char *vr_rule_name(enum vroce_rule rule);
const char *vr_rule_text(enum vroce_rule rule);
const char *vr_qp_state_name(unsigned int state);
const char *vr_command_name(uint8_t opcode);
/* Name of an enum vroce_wc_status or enum vroce_event; NULL: there is none. */
const char *vr_status_name(uint8_t status);
const char *vr_event_name(uint16_t event);

/*
 * The by-reference link: super-packets handed over whole, payload left where
 * it lies and copied once by the receiver. The engine uses it for traffic to
 * its own GIDs; a simulation may use it between engines. Towards GIDs that are
 * not the engine's own, send() is asked when set; otherwise frames are cut for
 * frame_tx(). send() must queue: it may not call vr_link_deliver() at once.
 */
struct vr_link_ops {
    /* Takes a copy of *sp. Returns false when full: see vr_tx_ready(). */
    bool (*send)(void *link, const struct vr_sp *sp);
};
void vr_set_link_ops(struct vr_engine *e, const struct vr_link_ops *ops,
                     void *link);
/* Hand a super-packet that `from` sent to `to`. The engines may be the same. */
void vr_link_deliver(struct vr_engine *to, struct vr_engine *from,
                     const struct vr_sp *sp, uint64_t now);

/*
 * Inspection, for the management interface and the tests. Each fills out and
 * returns true, or returns false when no live object has this number. Iterate
 * with number = 0, 1, … below the limit of the table.
 */

/*
 * When things happened to a QP last, and what ended its work: for people, the
 * engine itself does not look at it. Times in ns, 0: never. Not saved.
 */
struct vr_qp_marks {
    uint64_t state;             /* it came into its state */
    uint64_t heard;             /* a packet of its peer arrived */
    uint64_t answered;          /* its peer acknowledged something new */
    uint64_t refused;           /* a message came, and no receive was posted */
    uint64_t failed;            /* the first error since RESET; of it: */
    uint64_t wr_id;             /* the work request that failed … */
    uint8_t status;             /* … with this vroce_wc_status, 0: none */
    bool receive;               /* … which was a receive */
    uint8_t event;              /* the first enum vroce_event, 0: none */
};

/* What keeps a QP from going on; the first that applies. */
enum vr_wait {
    VR_WAIT_NONE,               /* nothing is to be done */
    VR_WAIT_DEVICE,             /* the device is not enabled, or is fatal */
    VR_WAIT_WIRE,               /* the wire is full */
    VR_WAIT_TURN,               /* other QPs, or the next slice */
    VR_WAIT_RNR,                /* the peer had no receive posted */
    VR_WAIT_ACK,                /* the peer's acknowledgement or answer */
    VR_WAIT_SQD,                /* SQD begins no work request */
    VR_WAIT_UNKNOWN,            /* none of these: a fault of the engine */
};

struct vr_qp_info {
    uint32_t qpn, pdn, send_cqn, recv_cqn, srqn, dest_qpn;
    uint8_t type, state;
    uint32_t sq_producer, sq_consumer, sq_units;    /* units, free-running */
    uint32_t rq_producer, rq_consumer, rq_entries;  /* entries, free-running */
    uint32_t send_psn, unacked_psn, expected_psn, msn;
    uint32_t outstanding;       /* WQEs sent, not completed */
    uint32_t retries_left, rnr_retries_left;
    uint64_t retry_deadline, rnr_deadline;          /* ns; UINT64_MAX: none */
    uint64_t last_post, last_receive_post;          /* ns */
    uint16_t last_rule;
    uint32_t path_mtu;          /* bytes; 0: never connected, no path below */
    uint16_t sgid_index;
    uint8_t dgid[16];
    uint32_t sq_next;           /* unit index of the next WQE to begin */
    uint8_t retry_cnt, rnr_retry;                   /* as the QP was modified */
    uint64_t ack_timeout;       /* ns, UINT64_MAX: for ever */
    uint8_t wait;               /* enum vr_wait */
    struct vr_qp_marks marks;
};
bool vr_query_qp(const struct vr_engine *e, uint32_t qpn,
                 struct vr_qp_info *out);

struct vr_cq_info {
    uint32_t cqn, eqn, size, producer, consumer_seen, armed_at, users;
    uint8_t armed;              /* 0 no, 1 any, 2 solicited */
    bool overrun;
    uint16_t error;             /* enum vroce_rule that ended its work, or 0 */
    uint32_t held_back;         /* completions that wait, see MODIFY_CQ */
    uint64_t last_completion, last_arm, last_event; /* ns, 0: never */
};
bool vr_query_cq(const struct vr_engine *e, uint32_t cqn,
                 struct vr_cq_info *out);

struct vr_srq_info {
    uint32_t srqn, pdn, entries, producer, consumer, limit, users;
    bool error;
    uint64_t last_post;         /* ns, 0: never */
};
bool vr_query_srq(const struct vr_engine *e, uint32_t srqn,
                  struct vr_srq_info *out);

struct vr_eq_info {
    uint32_t eqn, vector, size, producer, consumer;
    bool armed, async, overrun;
    bool lost;                  /* completion events are still owed */
    uint64_t last_event, last_arm;                  /* ns, 0: never */
};
bool vr_query_eq(const struct vr_engine *e, uint32_t eqn,
                 struct vr_eq_info *out);

struct vr_mr_info {
    uint32_t key, pdn, access;
    uint64_t iova, length, pages;
    uint8_t page_shift, kind;
    bool valid;
};
bool vr_query_mr(const struct vr_engine *e, uint32_t index,
                 struct vr_mr_info *out);

struct vr_gid_info {
    uint8_t gid[16], mac[6];
    uint16_t vlan;
};
bool vr_query_gid(const struct vr_engine *e, uint32_t index,
                  struct vr_gid_info *out);

/*
 * What the guest's memory says now, which the engine itself reads only when it
 * has to; nothing changes. False: no such queue, or its memory cannot be read.
 * As to guest memory these are entries into the engine like any other.
 */
/* Completions that the program has taken. */
bool vr_peek_cq(struct vr_engine *e, uint32_t cqn, uint32_t *consumer);
/* Index behind the last receive posted to a QP, or to an SRQ. */
bool vr_peek_rq(struct vr_engine *e, uint32_t qpn, uint32_t *producer);
bool vr_peek_srq(struct vr_engine *e, uint32_t srqn, uint32_t *producer);
/* Send WQEs, up to 1024, that are written but no doorbell was rung for. */
bool vr_peek_sq(struct vr_engine *e, uint32_t qpn, uint32_t *unrung);

/*
 * Save and load: one packed little-endian record per live object. vr_save()
 * returns a malloc()ed image and its length; vr_load() replaces all state of an
 * engine of the same configuration, or returns -EINVAL and leaves it reset.
 * Images are not trusted. Behind a load the host calls vr_tx_ready() when its
 * wire takes frames, and begins a command that was in execution again.
 */
void *vr_save(const struct vr_engine *e, size_t *len);
int vr_load(struct vr_engine *e, const void *image, size_t len, uint64_t now);

#endif /* VROCE_ENGINE_H */
