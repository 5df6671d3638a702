/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Simulated time: a heap of events. */
#include "sim.h"

struct event {
    uint64_t when, seq;
    sim_fn fn;
    void *opaque;
    GDestroyNotify destroy;
};

static bool before(const struct event *a, const struct event *b)
{
    return a->when < b->when || (a->when == b->when && a->seq < b->seq);
}

static void swap(gpointer *at, uint32_t i, uint32_t j)
{
    gpointer tmp = at[i];

    at[i] = at[j];
    at[j] = tmp;
}

void sim_at(struct sim *s, uint64_t when, sim_fn fn, void *opaque,
            GDestroyNotify destroy)
{
    struct event *ev = g_new(struct event, 1);
    gpointer *at;
    uint32_t i;

    *ev = (struct event) { MAX(when, s->now), s->seq++, fn, opaque, destroy };
    g_ptr_array_add(s->events, ev);
    at = s->events->pdata;
    for (i = s->events->len - 1; i && before(at[i], at[(i - 1) / 2]);
         i = (i - 1) / 2) {
        swap(at, i, (i - 1) / 2);
    }
}

static struct event *pop(struct sim *s)
{
    gpointer *at = s->events->pdata;
    struct event *ev = at[0];
    uint32_t n = s->events->len - 1, i = 0;

    swap(at, 0, n);
    g_ptr_array_set_size(s->events, n);
    for (;;) {
        uint32_t least = i;

        for (uint32_t c = 2 * i + 1; c <= 2 * i + 2 && c < n; c++) {
            if (before(at[c], at[least])) {
                least = c;
            }
        }
        if (least == i) {
            return ev;
        }
        swap(at, i, least);
        i = least;
    }
}

static void step(struct sim *s)
{
    struct event *ev = pop(s);

    s->now = ev->when;
    s->steps++;
    for (uint32_t i = 0; i < s->p.nodes; i++) {
        s->node[i].h->now = s->now;
    }
    ev->fn(s, ev->opaque);
    if (ev->destroy) {
        ev->destroy(ev->opaque);
    }
    g_free(ev);
    sim_poll(s);
}

void sim_run(struct sim *s, bool (*done)(struct sim *s), uint64_t limit)
{
    uint64_t end;

    if (s->p.limit && s->p.limit < limit) {
        limit = s->p.limit;
    }
    end = s->now + limit;
    sim_poll(s);
    while (!done(s)) {
        if (!s->events->len) {
            sim_fail(s, "nothing is left to happen, but the run is not done");
        }
        if (s->now > end) {
            sim_fail(s, "not done after %.3f ms", limit / 1e6);
        }
        step(s);
    }
}

void sim_pass(struct sim *s, uint64_t ns)
{
    uint64_t end = s->now + ns;

    sim_poll(s);
    while (s->events->len &&
           ((struct event *)s->events->pdata[0])->when <= end) {
        step(s);
    }
    s->now = end;
}
