/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Timers against a model: none early, none lost, and the host is asked for
 * nothing but earlier deadlines.
 */
#include "driver.h"
#include "vr_internal.h"

#define NUM 200

/* The moderation timer of a vector that stands for nothing else here. */
static struct vr_timer *moderation(struct fakehost *h)
{
    return &h->e->moderation[0].timer;
}

/* One timer, moved and stopped at random. */
static void test_one(void)
{
    struct fakehost *h = fh_new(NULL, 1);
    uint64_t want = VR_NEVER;

    for (int i = 0; i < 20000; i++) {
        uint32_t before = h->irqs[0];
        uint64_t armed = h->deadline;

        h->entered = true;
        switch (g_rand_int_range(h->rand, 0, 4)) {
        case 0:
            want = h->now + g_rand_int_range(h->rand, 1, 1000);
            vr_timer_set(h->e, moderation(h), want);
            g_assert_cmpuint(h->deadline, <=, want);
            g_assert_true(h->deadline == armed || want < armed);
            h->entered = false;
            break;
        case 1:
            want = VR_NEVER;
            vr_timer_cancel(h->e, moderation(h));
            h->entered = false;
            break;
        default:
            h->entered = false;
            h->now += g_rand_int_range(h->rand, 0, 400);
            fh_timer(h);
            if (want <= h->now) {
                g_assert_cmpuint(h->irqs[0], ==, before + 1);
                want = VR_NEVER;
            } else {
                g_assert_cmpuint(h->irqs[0], ==, before);
            }
            g_assert_true(want == VR_NEVER || h->deadline <= want);
        }
    }
    fh_free(h);
}

/* Many, in a heap: owned by CQs that nobody arms, so that nothing happens. */
static void test_heap(void)
{
    struct fakehost *h = fh_new(NULL, 2);
    struct vr_timer t[NUM];
    uint64_t want[NUM];

    for (int i = 0; i < NUM; i++) {
        vr_timer_init(&t[i], VR_TIMER_CQ, VROCE_NONE);
        want[i] = VR_NEVER;
    }
    h->entered = true;
    for (int n = 0; n < 50000; n++) {
        int i = g_rand_int_range(h->rand, 0, NUM);

        switch (g_rand_int_range(h->rand, 0, 6)) {
        case 0:
        case 1:
            want[i] = h->e->now + g_rand_int_range(h->rand, 1, 100000);
            vr_timer_set(h->e, &t[i], want[i]);
            break;
        case 2:
            want[i] = VR_NEVER;
            vr_timer_cancel(h->e, &t[i]);
            break;
        case 3:
            want[i] = VR_NEVER;
            vr_timer_remove(h->e, &t[i]);
            g_assert_cmpuint(t[i].heap_index, ==, 0);
            break;
        default:
            h->e->now += g_rand_int_range(h->rand, 0, 3000);
            vr_timers_run(h->e);
            for (int k = 0; k < NUM; k++) {
                if (want[k] <= h->e->now) {
                    want[k] = VR_NEVER;
                }
                g_assert_cmpuint(t[k].deadline, ==, want[k]);
            }
        }
        for (uint32_t k = 2; k <= h->e->heap_num; k++) {
            g_assert_cmpuint(h->e->heap[k / 2]->at, <=, h->e->heap[k]->at);
            g_assert_cmpuint(h->e->heap[k]->heap_index, ==, k);
        }
        if (h->e->heap_num) {
            g_assert_cmpuint(h->e->armed_deadline, <=, h->e->heap[1]->at);
        }
    }
    for (int i = 0; i < NUM; i++) {
        vr_timer_remove(h->e, &t[i]);
    }
    h->entered = false;
    fh_free(h);
}

/* What an acknowledgement timer does: moved on with each packet. */
static void test_lazy(void)
{
    struct fakehost *h = fh_new(NULL, 3);
    uint64_t asked = 0, last;

    h->entered = true;
    vr_timer_set(h->e, moderation(h), h->now + 1000);
    last = h->deadline;
    for (int i = 0; i < 100000; i++) {
        h->e->now++;
        vr_timer_set(h->e, moderation(h), h->e->now + 1000);
        if (h->deadline != last) {
            asked++;
            last = h->deadline;
        }
        if (h->e->now >= h->deadline) {
            h->deadline = VR_NEVER;
            vr_timers_run(h->e);
        }
    }
    g_assert_cmpuint(h->irqs[0], ==, 0);
    g_assert_cmpuint(asked, <=, 210);
    h->entered = false;
    fh_free(h);
}

/* At most one interrupt in the time that the register says, none lost. */
static void test_moderation(void)
{
    struct fakehost *h = fh_new(NULL, 4);

    h->now = 1000000;
    fh_timer(h);
    vr_set_moderation(h->e, 3, 50);
    h->entered = true;
    vr_raise(h->e, 3);
    g_assert_cmpuint(h->irqs[3], ==, 1);
    vr_raise(h->e, 3);
    vr_raise(h->e, 3);
    h->entered = false;
    g_assert_cmpuint(h->irqs[3], ==, 1);
    fh_advance(h, 49999);
    g_assert_cmpuint(h->irqs[3], ==, 1);
    fh_advance(h, 1);
    g_assert_cmpuint(h->irqs[3], ==, 2);
    fh_advance(h, 1000000);
    g_assert_cmpuint(h->irqs[3], ==, 2);
    fh_free(h);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/timer/one", test_one);
    g_test_add_func("/timer/heap", test_heap);
    g_test_add_func("/timer/lazy", test_lazy);
    g_test_add_func("/timer/moderation", test_moderation);
    return g_test_run();
}
