/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A deterministic simulation of several engines on a faulty fabric.
 *
 * Time is a queue of events; all chance comes from generators seeded by the
 * run's seed, so that the same command line gives the same run. Guests poll
 * after every event that touched their engine.
 */
#ifndef SIM_H
#define SIM_H

#include "driver.h"
#include "vr_sp.h"

#define US 1000ull
#define MS 1000000ull
#define SEC 1000000000ull

#define TRACE_LINES 120
#define TRACE_WIDTH 200

enum sim_link {
    SIM_WIRE,                   /* frames */
    SIM_REF,                    /* super-packets by reference */
};

struct sim_params {
    uint32_t seed;
    uint32_t nodes, qps;        /* QP pairs in all */
    uint32_t ops;               /* work requests a QP and direction */
    uint32_t max_len;           /* bytes */
    double loss, dup, reorder, corrupt;     /* probability a packet */
    uint64_t delay, jitter;     /* ns */
    uint64_t rate;              /* bits per second of a node's port */
    uint32_t queue;             /* frames that a port holds */
    uint8_t path_mtu;           /* 1..5; 0: any */
    uint8_t timeout, retry_cnt;
    uint32_t psn;               /* VROCE_NONE: any */
    uint64_t recv_delay;        /* receives are posted up to this late, ns */
    bool short_maps;            /* memory in small pieces, as copies */
    bool srq;                   /* receives are posted to an SRQ a QP */
    bool mixed;                 /* … every other connection's */
    uint64_t reload;            /* an engine is saved and loaded so often … */
    uint64_t blackout;          /* … and a node dead a while, ns; 0: never */
    uint64_t limit;             /* it fails after so long, ns; 0: as it is */
    bool ipv6, verbose;
    const char *pcap;           /* file for what the wire carries, or NULL */
};

/* What the fabric sees of one packet, on either link. */
struct sim_packet {
    uint32_t from, to;          /* node; to: VROCE_NONE when it leads nowhere */
    uint8_t opcode;             /* BTH */
    int16_t syndrome;           /* AETH; -1: it has none */
    bool names;                 /* VR_SP_NAMES; a NAK says where a gap is: */
    uint32_t msn;               /* AETH */
    uint32_t psn, dqpn;
    uint32_t len;               /* bytes of the frame, about */
};

#define FATE_LOST       (1u << 0)
#define FATE_CORRUPT    (1u << 1)   /* by reference: lost */
#define FATE_TWICE      (1u << 2)
#define FATE_LATE       (1u << 3)

/* What was called, set before a scenario runs: how a failure is repeated. */
struct sim_call {
    const char *program, *link; /* link: as --link takes it */
    struct sim_params p;        /* a scenario may run with others */
};
extern struct sim_call sim_call;

struct sim;
struct flow;

struct node {
    struct sim *s;
    uint32_t id;
    struct fakehost *h;
    struct drv *d;
    struct drv_eq eq, async_eq;
    struct drv_cq cq;
    uint32_t irqs_seen;
    bool event_driven;          /* polls when interrupted, not always */
    GPtrArray *flows;           /* that send or receive here */
    uint32_t async_events[VROCE_EVENT_DEVICE_FATAL + 1];
    /* its port */
    uint64_t busy_until;
    uint32_t queued;
    bool full, run_pending, dead;   /* dead: whatever it sends is lost */
    bool touched;               /* to be polled after this event */
    /* Completions of no flow; NULL: they are a failure. */
    void (*on_cqe)(struct node *n, const struct vroce_cqe *cqe);
    void *opaque;
};

struct sim {
    struct sim_params p;
    enum sim_link link;
    const char *scenario;
    uint64_t now, seq, steps;
    GPtrArray *events;          /* heap by time, then sequence */
    GRand *rand;                /* the fabric's */
    GRand *disturbance;
    struct node *node;
    GPtrArray *flows;
    uint32_t flows_open;
    uint64_t packets, dropped;
    bool blackouts;             /* nodes are dead at times */
    /* FATE_* of a packet; chance adds to it. */
    uint32_t (*filter)(struct sim *s, const struct sim_packet *p);
    void *opaque;
    char (*trace)[TRACE_WIDTH]; /* the last TRACE_LINES of it, a ring */
    uint64_t trace_num;
    GByteArray *want, *have;    /* scratch: bytes to compare */
    void *pcap;
};

/* ------------------------------------------------------------ clock.c */

typedef void (*sim_fn)(struct sim *s, void *opaque);
void sim_at(struct sim *s, uint64_t when, sim_fn fn, void *opaque,
            GDestroyNotify destroy);
/* Run events until done() or nothing is left; fails the run at the limit. */
void sim_run(struct sim *s, bool (*done)(struct sim *s), uint64_t limit);
/* Run the events of the next ns. */
void sim_pass(struct sim *s, uint64_t ns);

/* ----------------------------------------------------------- fabric.c */

/* "WRITE MIDDLE", "ACK"; what an AETH says, "" for -1. */
const char *packet_name(uint8_t opcode);
const char *syndrome_name(int16_t syndrome, char buf[24]);
void fabric_attach(struct node *n);

/* -------------------------------------------------------------- sim.c */

struct sim *sim_new(const struct sim_params *p, enum sim_link link,
                    const char *scenario);
/* Destroys all objects by commands and checks that nothing is left. */
void sim_free(struct sim *s);
/*
 * Ends the program: says why, how to repeat the run, and what led to it. s is
 * NULL when the run itself is over, and its outcome is what is wrong.
 */
void sim_fail(struct sim *s, const char *fmt, ...)
    G_GNUC_PRINTF(2, 3) G_GNUC_NORETURN;
void sim_trace(struct sim *s, const char *fmt, ...) G_GNUC_PRINTF(2, 3);
#define sim_check(s, cond) do { \
        if (!(cond)) { \
            sim_fail(s, "%s:%d: %s", __FILE__, __LINE__, #cond); \
        } \
    } while (0)
/* Poll the nodes that the last event touched. */
void sim_poll(struct sim *s);
void node_idle_check(struct node *n);

/* Deterministic bytes. */
void fill_pattern(uint8_t *p, uint64_t len, uint64_t seed);
uint64_t digest_add(uint64_t digest, const void *data, uint64_t len);

/* ------------------------------------------------------------- flow.c */

/* What a flow may do, a bit each. */
#define FLOW_SEND       (1u << 0)   /* SEND and SEND_IMM */
#define FLOW_WRITE      (1u << 1)
#define FLOW_WRITE_IMM  (1u << 2)
#define FLOW_READ       (1u << 3)
#define FLOW_ATOMIC     (1u << 4)
#define FLOW_ALL        0x1f

/*
 * A connection: QPs of two nodes (or of one), each sending its own sequence of
 * work requests and checking every byte of what arrives.
 */
struct flow_init {
    uint32_t a, b;              /* nodes */
    uint32_t kinds;             /* FLOW_* */
    uint32_t ops;               /* each way; 0: the parameters' */
    bool one_way;               /* only a sends */
    bool srq;                   /* both sides receive through an SRQ */
    uint8_t type;               /* VROCE_QPT_RC or UC */
    const uint32_t *lens;       /* num_lens lengths to cycle through, or NULL */
    uint32_t num_lens;
    uint8_t path_mtu;           /* 0: the parameters' */
    uint8_t max_rd_atomic;      /* 0: 1..16 at random */
};
struct flow *flow_new(struct sim *s, const struct flow_init *init);
void flow_start(struct flow *f);
void flow_free(struct flow *f);
bool flows_done(struct sim *s);
/* Handle a completion; false when the flow has no such QP. */
bool flow_cqe(struct flow *f, struct node *n, const struct vroce_cqe *cqe);
/* Of all completions in their order and of all memory, whatever the link. */
uint64_t flow_digest(struct flow *f);
/* side 0: a, 1: b */
struct drv_qp *flow_qp(struct flow *f, int side);
/* Flow may end in errors: completions of failed requests are counted only. */
void flow_expect_errors(struct flow *f);
uint32_t flow_status_count(struct flow *f, int side, uint8_t status);
uint64_t flow_first_error(struct flow *f, int side);    /* its time, ns */

/* ------------------------------------------------------------ scenarios */

struct scenario {
    const char *name, *help;
    /* Runs on one link; returns a digest that must not depend on the link. */
    uint64_t (*run)(const struct scenario *sc, const struct sim_params *p,
                    enum sim_link link);
    /* Sets what the scenario is about; options of the user come on top. */
    void (*tune)(struct sim_params *p);
};
/* Each ends with an entry without a name. */
extern const struct scenario rc_scenarios[], fault_scenarios[],
                             error_scenarios[], ud_scenarios[],
                             goodput_scenarios[], chaos_scenarios[],
                             recovery_scenarios[];
/* These run only when they are named. */
extern const struct scenario slow_scenarios[];

/* Flows between all nodes in turn, until each is done; the usual run. */
uint64_t run_flows(const struct scenario *sc, const struct sim_params *p,
                   enum sim_link link);
/*
 * The same with QPs of a type, doing kinds (FLOW_*), perhaps within a node. If
 * engines are saved and loaded, it runs without that first, to compare.
 */
uint64_t run_kinds(const struct scenario *sc, const struct sim_params *p,
                   enum sim_link link, uint8_t type, uint32_t kinds,
                   bool loopback);
/* Begin to save and load engines and to darken nodes, as the parameters say. */
void disturb(struct sim *s);
/* The end of a run: the digest of all flows, everything destroyed. */
uint64_t finish(struct sim *s);

#endif /* SIM_H */
