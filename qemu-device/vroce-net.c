/*
 * vroce RDMA network card: the NIC, its side of a network backend
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "system/runstate.h"
#include "vroce.h"
#include "trace.h"

static void vroce_frame_sent(NetClientState *nc, ssize_t len)
{
    VroceState *s = qemu_get_nic_opaque(nc);

    s->tx_blocked = false;
    s->tx_ready = true;
    qemu_bh_schedule(s->bh);
}

bool vroce_frame_tx(void *opaque, const uint8_t *frame, size_t len)
{
    VroceState *s = opaque;

    if (!s->tx_burst) {
        s->tx_burst = true;
        qemu_net_burst(qemu_get_queue(s->nic), true);
    }
    s->tx_blocked = !qemu_send_packet_async(qemu_get_queue(s->nic), frame, len,
                                            vroce_frame_sent);
    s->last_frame_sent = vroce_now();
    if (s->tx_blocked) {
        s->tx_blocked_since = s->last_frame_sent;
    }
    trace_vroce_frame_tx(vroce_name(s), len, s->tx_blocked);
    return !s->tx_blocked;
}

/*
 * A backend may answer a frame while it takes it, when the engine that sent it
 * is still running; the answer then waits for the bottom half. A lack of
 * buffers is no reason to wait: the engine drops and counts.
 */
static bool vroce_can_receive(NetClientState *nc)
{
    VroceState *s = qemu_get_nic_opaque(nc);

    if (s->entered) {
        s->rx_refused = true;
        return false;
    }
    return true;
}

static ssize_t vroce_receive(NetClientState *nc, const uint8_t *frame,
                             size_t len)
{
    VroceState *s = qemu_get_nic_opaque(nc);

    trace_vroce_frame_rx(vroce_name(s), len);
    s->last_frame_received = vroce_now();
    vroce_enter(s);
    vr_receive(s->engine, frame, len, vroce_now());
    vroce_leave(s);
    return len;
}

/* Once for all frames of a burst, the engine does what they ask for. */
static void vroce_burst(NetClientState *nc, bool more)
{
    VroceState *s = qemu_get_nic_opaque(nc);

    /*
     * A stopped guest is given no frames, and its memory stands still. But a
     * burst that began ends: the engine waits for that.
     */
    if (!runstate_is_running() && !s->rx_burst) {
        return;
    }
    s->rx_burst = more;
    vroce_enter(s);
    vr_burst(s->engine, more, vroce_now());
    vroce_leave(s);
}

void vroce_net_end_burst(VroceState *s)
{
    if (s->tx_burst) {
        s->tx_burst = false;
        qemu_net_burst(qemu_get_queue(s->nic), false);
    }
}

bool vroce_net_link_up(VroceState *s)
{
    NetClientState *nc = qemu_get_queue(s->nic);

    return nc->peer && !nc->link_down;
}

void vroce_net_update_link(VroceState *s)
{
    bool up = vroce_net_link_up(s);

    trace_vroce_link(vroce_name(s), up);
    if (!up) {
        /* A backend that goes away forgets to say that it sent the frame. */
        s->tx_blocked = false;
    }
    vroce_enter(s);
    vr_set_link(s->engine, up, vroce_now());
    vroce_leave(s);
}

static void vroce_link_status_changed(NetClientState *nc)
{
    vroce_net_update_link(qemu_get_nic_opaque(nc));
}

static NetClientInfo vroce_net_info = {
    .type = NET_CLIENT_DRIVER_NIC,
    .size = sizeof(NICState),
    .can_receive = vroce_can_receive,
    .receive = vroce_receive,
    .burst = vroce_burst,
    .link_status_changed = vroce_link_status_changed,
};

void vroce_net_init(VroceState *s)
{
    DeviceState *dev = DEVICE(s);

    s->nic = qemu_new_nic(&vroce_net_info, &s->conf, TYPE_VROCE, dev->id,
                          &dev->mem_reentrancy_guard, s);
    qemu_format_nic_info_str(qemu_get_queue(s->nic), s->conf.macaddr.a);
}

void vroce_net_exit(VroceState *s)
{
    if (s->nic) {
        qemu_del_nic(s->nic);
        s->nic = NULL;
    }
}

void vroce_net_reset(VroceState *s)
{
    NetClientState *nc = qemu_get_queue(s->nic);

    if (nc->peer) {
        qemu_purge_queued_packets(nc);
    }
    s->tx_blocked = s->tx_ready = false;
    vr_set_link(s->engine, vroce_net_link_up(s), vroce_now());
}
