/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Nodes, their guests' polling, the checks at the end, what a failure says. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim.h"
#include "vr_internal.h"

#define CQ_LOG 12
#define EQ_LOG 10

struct sim_call sim_call;
/* The last one; its trace outlives it, for what fails when it is over. */
static struct sim *current;

/* ------------------------------------------------------------- failure */

void sim_trace(struct sim *s, const char *fmt, ...)
{
    char *line = s->trace[s->trace_num++ % TRACE_LINES];
    va_list ap;
    int n = snprintf(line, TRACE_WIDTH, "%12.3f us  ", s->now / 1e3);

    va_start(ap, fmt);
    vsnprintf(line + n, TRACE_WIDTH - n, fmt, ap);
    va_end(ap);
    if (s->p.verbose) {
        puts(line);
    }
}

static void print_qp(struct node *n, uint32_t qpn)
{
    struct vr_qp_info q;

    if (!n->h || !vr_query_qp(n->h->e, qpn, &q)) {
        return;
    }
    fprintf(stderr, "  n%u qp %u %s to %u: sq %u..%u rq %u..%u "
            "psn next 0x%06x unacked 0x%06x expected 0x%06x msn %u "
            "outstanding %u retries %u rnr %u retry-at %.3f us rule %s\n",
            n->id, qpn, vr_qp_state_name(q.state), q.dest_qpn, q.sq_consumer,
            q.sq_producer, q.rq_consumer, q.rq_producer, q.send_psn,
            q.unacked_psn, q.expected_psn, q.msn, q.outstanding,
            q.retries_left, q.rnr_retries_left,
            q.retry_deadline == UINT64_MAX ? -1 : q.retry_deadline / 1e3,
            vr_rule_name(q.last_rule));
}

/* The command that does the same again, and shows all of it. */
static const char *repeat(const struct sim *s)
{
    const struct sim_params *p = &sim_call.p;
    GString *text = g_string_new(sim_call.program);

    g_string_append_printf(text, " --scenario %s --link %s --seed %u "
                           "--nodes %u --qps %u --ops %u --max-len %u "
                           "--queue %u", s->scenario, sim_call.link,
                           p->seed, p->nodes, p->qps, p->ops, p->max_len,
                           p->queue);
    g_string_append_printf(text, " --loss %.15g --dup %.15g --reorder %.15g "
                           "--corrupt %.15g --rate %.15g --reload %.15g "
                           "--blackout %.15g",
                           p->loss, p->dup, p->reorder, p->corrupt,
                           p->rate / 1e9, p->reload / 1e3, p->blackout / 1e3);
    if (p->path_mtu) {
        g_string_append_printf(text, " --mtu %u", 128 << p->path_mtu);
    }
    if (p->limit) {
        g_string_append_printf(text, " --limit %.15g", p->limit / 1e3);
    }
    g_string_append(text, " --trace");
    return g_string_free(text, FALSE);
}

/* Everything that one needs to see what went wrong, and to see it again. */
static void explain(void)
{
    struct sim *s = current;

    if (!s) {
        return;
    }
    current = NULL;
    fprintf(stderr, "last steps:\n");
    for (uint64_t i = 0; i < TRACE_LINES && i < s->trace_num; i++) {
        uint64_t first = s->trace_num > TRACE_LINES ?
                         s->trace_num - TRACE_LINES : 0;

        fprintf(stderr, "%s\n", s->trace[(first + i) % TRACE_LINES]);
    }
    for (uint32_t i = 0; i < s->p.nodes; i++) {
        for (uint32_t qpn = 0; qpn < 64; qpn++) {
            print_qp(&s->node[i], qpn);
        }
    }
    fprintf(stderr, "%llu packets, %llu lost, %llu events, %.3f us\n",
            (unsigned long long)s->packets, (unsigned long long)s->dropped,
            (unsigned long long)s->steps, s->now / 1e3);
    fprintf(stderr, "failed: scenario %s, link %s, seed %u\nrepeat: %s\n",
            s->scenario, sim_call.link, sim_call.p.seed, repeat(s));
}

void sim_fail(struct sim *s, const char *fmt, ...)
{
    char *text;
    va_list ap;

    va_start(ap, fmt);
    text = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    explain();
    fprintf(stderr, "reason: %s\n", text);
    exit(1);
}

static void on_abort(int sig)
{
    explain();
    raise(sig);
}

/* Sanitizers end the program without abort(). */
extern void __sanitizer_set_death_callback(void (*callback)(void))
    __attribute__((weak));

static void catch_failures(void)
{
    static bool done;
    struct sigaction once = {
        .sa_handler = on_abort, .sa_flags = SA_RESETHAND,
    };

    if (done) {
        return;
    }
    done = true;
    sigaction(SIGABRT, &once, NULL);
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(explain);
    }
}

/* ------------------------------------------------------------- patterns */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

void fill_pattern(uint8_t *p, uint64_t len, uint64_t seed)
{
    uint64_t x = mix(seed + 1);

    for (uint64_t i = 0; i < len; i += 8) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        memcpy(p + i, &(uint64_t) { mix(x) }, MIN(8, len - i));
    }
}

uint64_t digest_add(uint64_t digest, const void *data, uint64_t len)
{
    const uint8_t *p = data;

    for (uint64_t i = 0; i < len; i += 8) {
        uint64_t word = 0;

        memcpy(&word, p + i, MIN(8, len - i));
        digest = mix(digest ^ word) + len;
    }
    return digest;
}

/* ---------------------------------------------------------------- nodes */

static void node_init(struct sim *s, uint32_t id)
{
    struct node *n = &s->node[id];
    struct vr_config cfg;

    fh_small_config(&cfg, 8 * s->p.qps + 16);
    *n = (struct node) {
        .s = s, .id = id, .flows = g_ptr_array_new(),
        .event_driven = id & 1,
    };
    n->h = fh_new(&cfg, s->p.seed + id);
    if (s->p.short_maps) {
        n->h->bounce = n->h->jitter = true;
        n->h->max_piece = 3000;
        n->h->max_map = 9000;
    }
    fabric_attach(n);
    n->d = drv_new(n->h, id + 1);
    drv_eq_create(n->d, &n->async_eq, EQ_LOG, 0, true);
    drv_eq_create(n->d, &n->eq, EQ_LOG, 1, false);
    drv_cq_create(n->d, &n->cq, CQ_LOG, &n->eq);
    if (n->event_driven) {
        drv_cq_arm(&n->cq, false);
        drv_eq_arm(&n->eq);
    }
}

static void node_poll_events(struct node *n)
{
    struct vroce_eqe eqe;

    while (drv_eq_poll(&n->async_eq, &eqe)) {
        uint16_t type = le16toh(eqe.type);

        sim_check(n->s, type && type < G_N_ELEMENTS(n->async_events));
        n->async_events[type]++;
        drv_eq_arm(&n->async_eq);
    }
}

static void node_dispatch(struct node *n, const struct vroce_cqe *cqe)
{
    sim_trace(n->s, "n%u CQE qp %u opcode %u status %u rule %s len %u "
              "wr_id 0x%llx", n->id, le32toh(cqe->qpn), cqe->opcode,
              cqe->status, vr_rule_name(le16toh(cqe->rule)),
              le32toh(cqe->byte_len), (unsigned long long)le64toh(cqe->wr_id));
    for (uint32_t i = 0; i < n->flows->len; i++) {
        if (flow_cqe(n->flows->pdata[i], n, cqe)) {
            return;
        }
    }
    if (n->on_cqe) {
        n->on_cqe(n, cqe);
        return;
    }
    sim_fail(n->s, "node %u: a completion of QP %u that has none to expect",
             n->id, le32toh(cqe->qpn));
}

static bool node_poll_cq(struct node *n)
{
    struct vroce_cqe cqe;
    bool any = false;

    while (drv_poll(&n->cq, &cqe)) {
        any = true;
        node_dispatch(n, &cqe);
    }
    return any;
}

/* As a program with a completion channel does: arm, then look once more. */
static void node_poll_armed(struct node *n)
{
    struct vroce_eqe eqe;

    while (n->h->irqs[1] != n->irqs_seen) {
        n->irqs_seen = n->h->irqs[1];
        while (drv_eq_poll(&n->eq, &eqe)) {
            sim_check(n->s, le16toh(eqe.type) == VROCE_EVENT_COMPLETION);
            sim_check(n->s, le32toh(eqe.number) == n->cq.cqn);
            node_poll_cq(n);
            drv_cq_arm(&n->cq, false);
            node_poll_cq(n);
        }
        drv_eq_arm(&n->eq);
    }
}

void sim_poll(struct sim *s)
{
    bool again = true;

    while (again) {
        again = false;
        for (uint32_t i = 0; i < s->p.nodes; i++) {
            struct node *n = &s->node[i];

            if (!n->touched) {
                continue;
            }
            n->touched = false;
            node_poll_events(n);
            if (n->event_driven) {
                node_poll_armed(n);
            } else {
                node_poll_cq(n);
            }
            again = true;
        }
    }
}

/* Nothing that belongs to a destroyed object may be left in the engine. */
void node_idle_check(struct node *n)
{
    const struct vr_engine *e = n->h->e;
    struct sim *s = n->s;

    sim_check(s, !e->qps.used && !e->cqs.used && !e->eqs.used);
    sim_check(s, !e->mrs.used && !e->pds.used && !e->srqs.used);
    sim_check(s, e->pages_used == 0);
    sim_check(s, e->heap_num == 0);
    sim_check(s, e->held == 0);
    sim_check(s, !e->sched[VR_SCHED_RUN].head);
    sim_check(s, !e->sched[VR_SCHED_BLOCKED].head);
}

static void node_fini(struct node *n)
{
    drv_cq_destroy(&n->cq);
    drv_eq_destroy(&n->eq);
    drv_eq_destroy(&n->async_eq);
    drv_free(n->d);
    node_idle_check(n);
    fh_free(n->h);
    n->h = NULL;
    g_ptr_array_unref(n->flows);
}

/* ------------------------------------------------------------ simulation */

static void *pcap_open(const char *name)
{
    const struct {
        uint32_t magic;
        uint16_t major, minor;
        uint32_t zone, sigfigs, snaplen, network;
    } header = { 0xa1b23c4d, 2, 4, 0, 0, 65536, 1 };
    FILE *f = fopen(name, "wb");

    if (!f) {
        fprintf(stderr, "sim: cannot write %s: %m\n", name);
        exit(2);
    }
    fwrite(&header, sizeof(header), 1, f);
    return f;
}

struct sim *sim_new(const struct sim_params *p, enum sim_link link,
                    const char *scenario)
{
    struct sim *s = g_new0(struct sim, 1);

    s->p = *p;
    s->link = link;
    s->scenario = scenario;
    s->now = 1000;
    s->events = g_ptr_array_new();
    s->flows = g_ptr_array_new();
    s->trace = g_malloc0(TRACE_LINES * TRACE_WIDTH);
    s->want = g_byte_array_new();
    s->have = g_byte_array_new();
    s->rand = g_rand_new_with_seed(p->seed ^ 0x5eed);
    s->disturbance = g_rand_new_with_seed(p->seed ^ 0xd15);
    s->node = g_new0(struct node, p->nodes);
    if (current) {
        g_free(current->node);
        g_free(current->trace);
        g_free(current);
    }
    if (p->pcap && link == SIM_WIRE) {
        s->pcap = pcap_open(p->pcap);
    }
    current = s;
    catch_failures();
    for (uint32_t i = 0; i < p->nodes; i++) {
        node_init(s, i);
    }
    return s;
}

static bool no_events(struct sim *s)
{
    return !s->events->len;
}

/* All but what explain() shows of it. */
void sim_free(struct sim *s)
{
    for (uint32_t i = 0; i < s->flows->len; i++) {
        flow_free(s->flows->pdata[i]);
    }
    g_ptr_array_set_size(s->flows, 0);
    for (uint32_t i = 0; i < s->p.nodes; i++) {
        g_ptr_array_set_size(s->node[i].flows, 0);
    }
    /* Completions from before are of no interest; there must be none behind. */
    for (uint32_t i = 0; i < s->p.nodes; i++) {
        drv_drain(&s->node[i].cq);
    }
    /* What is still on its way finds nobody. */
    sim_run(s, no_events, 10000 * SEC);
    for (uint32_t i = 0; i < s->p.nodes; i++) {
        node_fini(&s->node[i]);
    }
    if (s->pcap) {
        fclose(s->pcap);
    }
    g_ptr_array_unref(s->events);
    g_ptr_array_unref(s->flows);
    g_byte_array_unref(s->want);
    g_byte_array_unref(s->have);
    g_rand_free(s->rand);
    g_rand_free(s->disturbance);
}
