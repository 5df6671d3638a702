/*
 * vroce RDMA network card: the host that the engine runs on
 *
 * A doorbell runs one bounded slice of work in the vCPU's thread; what is left
 * goes on in a bottom half, slice by slice, so that the main loop gets its
 * turn. One timer wakes the engine; it is armed anew only for an earlier
 * deadline, since each arming wakes the main loop.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/log.h"
#include "qemu/main-loop.h"
#include "hw/pci/msix.h"
#include "qapi/qapi-events-vroce.h"
#include "system/runstate.h"
#include "vroce.h"
#include "trace.h"

/* The least real time between two events of one rule. */
#define MISUSE_EVENT_MS 1000
/* Lines of one rule in a second's log: a program in a loop fills no disk. */
#define MISUSE_LOG_LINES 200

void vroce_enter(VroceState *s)
{
    MemReentrancyGuard *guard = &DEVICE(s)->mem_reentrancy_guard;

    if (s->entered++ == 0) {
        /* Accesses and bottom halves have it already; timers do not. */
        s->guard_is_ours = !guard->engaged_in_io;
        guard->engaged_in_io = true;
    }
}

void vroce_leave(VroceState *s)
{
    if (--s->entered) {
        return;
    }
    vroce_net_end_burst(s);
    if (s->guard_is_ours) {
        DEVICE(s)->mem_reentrancy_guard.engaged_in_io = false;
    }
    if (s->reset_due) {
        vroce_reset(s);
    }
    if (s->rx_refused) {
        qemu_bh_schedule(s->bh);
    }
    /* It went fatal, or Bus Master changed while the engine ran. */
    vroce_update_enabled(s);
}

static void vroce_bh(void *opaque)
{
    VroceState *s = opaque;
    bool again = false;

    /* A stopped guest's memory stands still; vroce_vm_state() goes on. */
    if (!runstate_is_running()) {
        return;
    }
    vroce_enter(s);
    if (s->tx_ready) {
        s->tx_ready = false;
        vr_tx_ready(s->engine, vroce_now());
    }
    if (s->cmdq.running || s->cmdq.fetched != s->cmdq.producer) {
        again |= vroce_cmdq_run(s);
    }
    if (s->run_engine) {
        s->run_engine = vr_run(s->engine, VR_RUN_BUDGET, vroce_now());
        again |= s->run_engine;
    }
    vroce_leave(s);

    if (s->rx_refused) {
        s->rx_refused = false;
        qemu_flush_queued_packets(qemu_get_queue(s->nic));
    }
    if (again) {
        qemu_bh_schedule(s->bh);
    }
}

static void vroce_vm_state(void *opaque, bool running, RunState state)
{
    VroceState *s = opaque;

    if (running) {
        /* Another host's wire may have another carrier. */
        vroce_net_update_link(s);
        qemu_bh_schedule(s->bh);
    } else if (s->cfg.devmem_size) {
        /* The engine writes there without saying so: let migration copy it. */
        memory_region_set_dirty(&s->devmem, 0, s->cfg.devmem_size);
    }
}

static void vroce_timer(void *opaque)
{
    VroceState *s = opaque;
    uint64_t now = vroce_now();

    s->armed = UINT64_MAX;
    if (now >= s->deadline) {
        s->deadline = UINT64_MAX;
        vroce_enter(s);
        vr_timer(s->engine, now);
        vroce_leave(s);
    }
    if (s->deadline < s->armed) {
        s->armed = s->deadline;
        timer_mod_ns(s->timer, s->armed);
    }
}

static void vroce_deadline(void *opaque, uint64_t ns)
{
    VroceState *s = opaque;

    /* The timer takes a signed time; 292 years are enough. */
    s->deadline = MIN(ns, INT64_MAX);
    if (s->deadline < s->armed && ns != UINT64_MAX) {
        s->armed = s->deadline;
        timer_mod_ns(s->timer, s->armed);
    }
}

static void vroce_kick(void *opaque)
{
    VroceState *s = opaque;

    s->run_engine = true;
    qemu_bh_schedule(s->bh);
}

void vroce_raise_vector(VroceState *s, uint32_t vector)
{
    PCIDevice *pdev = PCI_DEVICE(s);
    bool sent = vector < s->cfg.num_vectors && msix_enabled(pdev);

    trace_vroce_irq(vroce_name(s), vector, sent);
    if (sent) {
        s->irqs_raised[vector]++;
        s->irqs_last[vector] = vroce_now();
        msix_notify(pdev, vector);
    } else if (vector < VROCE_MAX_VECTORS) {
        s->irqs_suppressed[vector]++;
    }
}

static void vroce_irq(void *opaque, uint32_t vector)
{
    vroce_raise_vector(opaque, vector);
}

static uint8_t *vroce_devmem(void *opaque)
{
    VroceState *s = opaque;

    return s->cfg.devmem_size ? memory_region_get_ram_ptr(&s->devmem) : NULL;
}

static void vroce_fatal(void *opaque, enum vroce_fatal cause)
{
    VroceState *s = opaque;

    trace_vroce_fatal(vroce_name(s), cause);
    s->regs.fatal = cause;
}

/* ------------------------------------------------------------- reports */

void vroce_guest_error(VroceState *s, enum vroce_rule rule,
                       const char *fmt, ...)
{
    g_autofree char *text = NULL;
    va_list args;

    va_start(args, fmt);
    text = g_strdup_vprintf(fmt, args);
    va_end(args);
    vr_misuse(s->engine, rule, VROCE_NONE, text);
}

static void vroce_misuse_event(VroceState *s, enum vroce_rule rule,
                               uint32_t number, const char *text)
{
    VroceMisuse *misuse = &s->misuse[rule];
    int64_t now = qemu_clock_get_ms(QEMU_CLOCK_REALTIME);
    g_autofree char *path = NULL;

    misuse->unreported++;
    if (misuse->reported && now - misuse->reported < MISUSE_EVENT_MS) {
        return;
    }
    path = object_get_canonical_path(OBJECT(s));
    qapi_event_send_vroce_misuse(path, DEVICE(s)->id, rule,
                                 vr_rule_name(rule), number, text,
                                 misuse->unreported);
    misuse->reported = now;
    misuse->unreported = 0;
}

static void vroce_misuse_log(VroceState *s, enum vroce_rule rule,
                             const char *object, const char *text)
{
    VroceMisuse *misuse = &s->misuse[rule];
    int64_t now = qemu_clock_get_ms(QEMU_CLOCK_REALTIME);

    if (now - misuse->logged_since >= 1000) {
        misuse->logged_since = now;
        misuse->logged = 0;
    }
    if (misuse->logged == MISUSE_LOG_LINES) {
        misuse->unlogged++;
        return;
    }
    if (misuse->unlogged) {
        qemu_log_mask(LOG_GUEST_ERROR, "vroce %s: rule %d %s: %" PRIu64
                      " more had no line\n", vroce_name(s), rule,
                      vr_rule_name(rule), misuse->unlogged);
        misuse->unlogged = 0;
    }
    qemu_log_mask(LOG_GUEST_ERROR, "vroce %s: rule %d %s%s: %s\n",
                  vroce_name(s), rule, vr_rule_name(rule), object, text);
    misuse->logged++;
}

static void vroce_report_misuse(VroceState *s, const struct vr_report *r)
{
    const char *text = r->text ?: vr_rule_text(r->rule) ?: "";
    const char *name = vr_rule_name(r->rule) ?: "unknown";
    char object[32] = "";

    if (r->rule >= VROCE_RULE_NUM) {
        return;
    }
    s->misuse[r->rule].count++;
    s->misuse[r->rule].last = vroce_now();
    if (r->number != VROCE_NONE) {
        snprintf(object, sizeof(object), " (number 0x%x)", r->number);
    }
    trace_vroce_misuse(vroce_name(s), name, r->number, text);
    vroce_misuse_log(s, r->rule, object, text);
    vroce_misuse_event(s, r->rule, r->number, text);
    if (s->misuse_policy == VROCE_MISUSE_POLICY_STOP) {
        qemu_system_vmstop_request_prepare();
        qemu_system_vmstop_request(RUN_STATE_PAUSED);
    }
}

static void vroce_report(void *opaque, const struct vr_report *r)
{
    VroceState *s = opaque;
    const char *name = vroce_name(s);

    switch (r->kind) {
    case VR_REPORT_MISUSE:
        vroce_report_misuse(s, r);
        break;
    case VR_REPORT_QP_STATE:
        trace_vroce_qp_state(name, r->number, vr_qp_state_name(r->a),
                             vr_qp_state_name(r->b));
        break;
    case VR_REPORT_TX:
        trace_vroce_packet_tx(name, r->number, r->a, r->b);
        break;
    case VR_REPORT_RX:
        trace_vroce_packet_rx(name, r->number, r->a, r->b);
        break;
    case VR_REPORT_RETRY:
        trace_vroce_retry(name, r->number, r->a, r->b);
        break;
    case VR_REPORT_COMPLETION:
        trace_vroce_completion(name, r->number, r->a, r->b);
        break;
    case VR_REPORT_EVENT:
        trace_vroce_event(name, r->number, r->a);
        break;
    case VR_REPORT_COMMAND:
        /* The command queue traces it with its index. */
        break;
    }
}

/* ----------------------------------------------------------- doorbells */

void vroce_doorbell_write(void *opaque, hwaddr addr, uint64_t value,
                          unsigned size)
{
    VroceState *s = opaque;
    uint32_t page = addr >> s->regs.db_shift;

    if (size != 8 || addr & ((1u << s->regs.db_shift) - 1)) {
        vroce_guest_error(s, VROCE_RULE_DB_ACCESS,
                          "%u-byte write at 0x%" HWADDR_PRIx " of the "
                          "doorbells: a doorbell is 8 bytes at the start of "
                          "its page", size, addr);
        return;
    }
    trace_vroce_doorbell(vroce_name(s), page, value >> VROCE_DB_KIND_SHIFT,
                         value >> VROCE_DB_NUMBER_SHIFT & VROCE_DB_NUMBER_MASK,
                         value);
    if (!s->enabled) {
        vroce_guest_error(s, VROCE_RULE_DB_STATE,
                          "doorbell of page %u while the device is %s", page,
                          vroce_regs_enabled(s) ? "no bus master"
                                                : "not enabled");
        return;
    }
    vroce_enter(s);
    vr_doorbell(s->engine, page, value, vroce_now());
    vroce_leave(s);
}

/* ----------------------------------------------------------- life cycle */

const struct vr_host_ops vroce_host_ops = {
    .mem_map = vroce_mem_map,
    .mem_done = vroce_mem_done,
    .mem_rw = vroce_mem_rw,
    .mem_atomic = vroce_mem_atomic,
    .devmem = vroce_devmem,
    .frame_tx = vroce_frame_tx,
    .deadline = vroce_deadline,
    .kick = vroce_kick,
    .irq = vroce_irq,
    .report = vroce_report,
    .fatal = vroce_fatal,
};

void vroce_host_init(VroceState *s)
{
    s->deadline = s->armed = UINT64_MAX;
    s->bh = qemu_bh_new_guarded(vroce_bh, s, &DEVICE(s)->mem_reentrancy_guard);
    s->timer = timer_new_ns(QEMU_CLOCK_VIRTUAL, vroce_timer, s);
    s->vmstate = qemu_add_vm_change_state_handler(vroce_vm_state, s);
}

void vroce_host_exit(VroceState *s)
{
    if (s->bh) {
        qemu_del_vm_change_state_handler(s->vmstate);
        timer_free(s->timer);
        qemu_bh_delete(s->bh);
        s->bh = NULL;
    }
}

void vroce_host_reset(VroceState *s)
{
    timer_del(s->timer);
    qemu_bh_cancel(s->bh);
    s->deadline = s->armed = UINT64_MAX;
    s->run_engine = s->tx_ready = false;
    if (s->rx_refused) {
        /* The backend waits for it, before and after a reset. */
        qemu_bh_schedule(s->bh);
    }
    memset(s->irqs_raised, 0, sizeof(s->irqs_raised));
    memset(s->irqs_suppressed, 0, sizeof(s->irqs_suppressed));
    memset(s->irqs_last, 0, sizeof(s->irqs_last));
    for (int i = 0; i < VROCE_RULE_NUM; i++) {
        s->misuse[i].count = 0;
        s->misuse[i].last = 0;
    }
}

void vroce_host_resume(VroceState *s)
{
    /* The wire that was full is another host's; this one has room. */
    s->run_engine = s->tx_ready = true;
    qemu_bh_schedule(s->bh);
}
