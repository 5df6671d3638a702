/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Timers: a binary heap with one host timer. They are lazy: a deadline that
 * moves later, or goes away, leaves the heap as it is; the entry is put right
 * when it comes up. An acknowledgement timer that moves with every packet
 * then costs nothing, and wakes the host once per timeout at most.
 *
 * heap[0] is unused, so that heap_index 0 means "not in the heap".
 */
#include <stdlib.h>

#include "vr_internal.h"

static void heap_place(struct vr_engine *e, uint32_t i, struct vr_timer *t)
{
    e->heap[i] = t;
    t->heap_index = i;
}

static void heap_up(struct vr_engine *e, uint32_t i, struct vr_timer *t)
{
    while (i > 1 && e->heap[i / 2]->at > t->at) {
        heap_place(e, i, e->heap[i / 2]);
        i /= 2;
    }
    heap_place(e, i, t);
}

static void heap_down(struct vr_engine *e, uint32_t i, struct vr_timer *t)
{
    uint32_t child;

    while ((child = 2 * i) <= e->heap_num) {
        if (child < e->heap_num &&
            e->heap[child + 1]->at < e->heap[child]->at) {
            child++;
        }
        if (e->heap[child]->at >= t->at) {
            break;
        }
        heap_place(e, i, e->heap[child]);
        i = child;
    }
    heap_place(e, i, t);
}

static void heap_remove(struct vr_engine *e, struct vr_timer *t)
{
    uint32_t i = t->heap_index;
    struct vr_timer *last = e->heap[e->heap_num--];

    t->heap_index = 0;
    if (last == t) {
        return;
    }
    if (i > 1 && e->heap[i / 2]->at > last->at) {
        heap_up(e, i, last);
    } else {
        heap_down(e, i, last);
    }
}

static void heap_insert(struct vr_engine *e, struct vr_timer *t)
{
    if (e->heap_num + 2 > e->heap_cap) {
        uint32_t cap = e->heap_cap ? 2 * e->heap_cap : 64;
        struct vr_timer **heap = realloc(e->heap, cap * sizeof(*heap));

        if (!heap) {
            abort();    /* a few bytes per QP: nothing a guest can provoke */
        }
        e->heap = heap;
        e->heap_cap = cap;
    }
    t->at = t->deadline;
    heap_up(e, ++e->heap_num, t);
}

static void tell_host(struct vr_engine *e)
{
    if (e->heap_num && e->heap[1]->at < e->armed_deadline) {
        e->armed_deadline = e->heap[1]->at;
        e->ops->deadline(e->host, e->armed_deadline);
    }
}

void vr_timer_init(struct vr_timer *t, enum vr_timer_kind kind, uint32_t number)
{
    *t = (struct vr_timer) {
        .deadline = VR_NEVER, .kind = kind, .number = number,
    };
}

void vr_timer_set(struct vr_engine *e, struct vr_timer *t, uint64_t deadline)
{
    t->deadline = deadline;
    if (deadline == VR_NEVER) {
        return;
    }
    if (!t->heap_index) {
        heap_insert(e, t);
    } else if (deadline < t->at) {
        t->at = deadline;
        heap_up(e, t->heap_index, t);
    } else {
        return;
    }
    tell_host(e);
}

void vr_timer_cancel(struct vr_engine *e, struct vr_timer *t)
{
    t->deadline = VR_NEVER;
}

void vr_timer_remove(struct vr_engine *e, struct vr_timer *t)
{
    t->deadline = VR_NEVER;
    if (t->heap_index) {
        heap_remove(e, t);
    }
}

static void timer_expired(struct vr_engine *e, enum vr_timer_kind kind,
                          uint32_t number)
{
    switch (kind) {
    case VR_TIMER_RETRY:
        vr_qp_retry_timer(e, number);
        break;
    case VR_TIMER_RNR:
        vr_qp_rnr_timer(e, number);
        break;
    case VR_TIMER_MODERATION:
        vr_moderation_timer(e, number);
        break;
    case VR_TIMER_CQ:
        vr_cq_timer(e, number);
        break;
    }
}

void vr_timers_run(struct vr_engine *e)
{
    /* A timer that arms itself again for now is served in the next call. */
    uint32_t left = e->heap_num;

    while (e->heap_num && e->heap[1]->at <= e->now && left--) {
        struct vr_timer *t = e->heap[1];

        heap_remove(e, t);
        if (t->deadline <= e->now) {
            t->deadline = VR_NEVER;
            timer_expired(e, t->kind, t->number);
        } else if (t->deadline != VR_NEVER) {
            heap_insert(e, t);
        }
    }
    if (e->armed_deadline <= e->now) {
        e->armed_deadline = VR_NEVER;   /* the host's timer has fired */
    }
    tell_host(e);
}
