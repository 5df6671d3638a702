/*
 * vroce RDMA network card: the state of the PCI function, and what its files
 * offer each other
 *
 * The transport lives in engine/, a library without QEMU in it; here is what
 * connects it to a guest: registers, command queue, DMA, interrupts, NIC. All
 * of it runs under the big lock. The engine must not be entered while it is
 * running (it calls the host, the host calls a backend, and the backend may
 * call back at once): see vroce_enter().
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef HW_NET_VROCE_H
#define HW_NET_VROCE_H

#include "hw/pci/pci_device.h"
#include "net/net.h"
#include "qapi/qapi-types-vroce.h"
#include "qemu/timer.h"
#include "engine/vroce_engine.h"

#define TYPE_VROCE "vroce"
OBJECT_DECLARE_SIMPLE_TYPE(VroceState, VROCE)

/* What VROCE_REG_LINK says of a link that is up. */
#define VROCE_LINK_SPEED_MBPS 100000

/* A piece of guest RAM as the device sees it at bus address start. */
typedef struct VroceRam {
    hwaddr start, size;
    MemoryRegion *mr;
    MemoryRegionCache cache;    /* its ptr is NULL when it is not cached */
} VroceRam;

typedef struct VroceDma {
    AddressSpace *as;           /* of the function: empty without Bus Master */
    MemoryListener listener;
    GArray *ram;                /* of VroceRam, by start */
    unsigned int last;          /* index of the last hit */
    unsigned int iommus;        /* sections behind an IOMMU */
    bool stale;                 /* sections changed: build the caches anew */
} VroceDma;

typedef struct VroceRegs {
    uint64_t cmdq_sq_base;
    uint64_t cmdq_cq_base;
    uint32_t cmdq_log_size;
    uint32_t cmdq_vector;
    uint64_t dma_src;
    uint64_t dma_dst;
    uint32_t dma_len;
    uint32_t dma_pattern;
    uint32_t dma_status;
    uint32_t dma_crc;
    uint32_t scratch;
    uint32_t ctrl;
    uint32_t fatal;             /* enum vroce_fatal */
    uint32_t db_shift;
    uint32_t clock_high;        /* latched by a read of the low half */
    uint32_t moderation[VROCE_MAX_VECTORS];
} VroceRegs;

/* Command queue. Indices are free-running. */
typedef struct VroceCmdq {
    uint32_t producer;          /* as the driver's doorbell said */
    uint32_t fetched;
    uint32_t completed;
    bool running;               /* cmd waits for another slice */
    uint64_t last_doorbell, last_completion;    /* ns; not migrated */
    struct vroce_cmd cmd;
    uint8_t in[VR_CMD_MAX_LEN];
} VroceCmdq;

typedef struct VroceMisuse {
    uint64_t count;
    uint64_t last;              /* ns, virtual clock */
    int64_t reported;           /* ms, real time of the last event; 0: none */
    uint64_t unreported;        /* since then */
    int64_t logged_since;       /* ms, real time: the second that … */
    uint32_t logged;            /* … had so many lines in the log */
    uint64_t unlogged;          /* for which there was no line */
} VroceMisuse;

struct VroceState {
    PCIDevice parent_obj;

    NICConf conf;
    NICState *nic;

    MemoryRegion bar0;          /* container of registers and MSI-X */
    MemoryRegion mmio;
    MemoryRegion doorbells;
    MemoryRegion devmem;

    struct vr_config cfg;       /* set by properties */
    struct vr_engine *engine;
    unsigned int entered;       /* depth of vroce_enter() */
    bool guard_is_ours;         /* vroce_enter() took the re-entrancy guard */
    bool reset_due;             /* asked for while the engine ran */
    bool enabled;               /* as the engine was told */

    VroceDma dma;
    VroceRegs regs;
    VroceCmdq cmdq;

    QEMUBH *bh;                 /* slices of engine and command queue */
    bool run_engine;            /* for bh: vr_run() is wanted */
    bool tx_ready;              /* for bh: tell the engine so */
    bool tx_blocked;            /* the backend took a frame and said stop */
    bool tx_burst;              /* the backend was told of a burst */
    bool rx_burst;              /* the engine was told of one */
    uint64_t tx_blocked_since;  /* ns; these three are not migrated */
    uint64_t last_frame_sent, last_frame_received;
    bool rx_refused;            /* for bh: take the queued frames */

    QEMUTimer *timer;
    uint64_t deadline;          /* ns, as the engine wants it */
    uint64_t armed;             /* ns, as timer has it; never later */

    VMChangeStateEntry *vmstate;
    uint64_t irqs_raised[VROCE_MAX_VECTORS];
    uint64_t irqs_suppressed[VROCE_MAX_VECTORS];
    uint64_t irqs_last[VROCE_MAX_VECTORS];      /* ns; not migrated */
    VroceMisuse misuse[VROCE_RULE_NUM];
    VroceMisusePolicy misuse_policy;

    uint8_t *image;             /* of the engine, while it migrates */
    uint32_t image_len;
};

extern const struct vr_host_ops vroce_host_ops;

/* The device's name in traces and messages. */
static inline const char *vroce_name(VroceState *s)
{
    return DEVICE(s)->id ?: TYPE_VROCE;
}

/* The device's clock, ns. */
static inline uint64_t vroce_now(void)
{
    return qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL);
}

/* ------------------------------------------------------ vroce-host.c */

/*
 * Around each call of the engine that may move data: while it runs, frames
 * from the backend wait in its queue, the device's own regions refuse access
 * (an MSI-X message may be aimed at them), and a reset waits for the end.
 */
void vroce_enter(VroceState *s);
void vroce_leave(VroceState *s);

void vroce_host_init(VroceState *s);
void vroce_host_exit(VroceState *s);
/* Forget timer, bottom half and counts. */
void vroce_host_reset(VroceState *s);
/* Let bottom half and timer find what a load of the engine's state asks for. */
void vroce_host_resume(VroceState *s);
void vroce_doorbell_write(void *opaque, hwaddr addr, uint64_t value,
                          unsigned size);

void vroce_raise_vector(VroceState *s, uint32_t vector);
/* Report what the guest did wrong, in a sentence that fmt makes. */
void G_GNUC_PRINTF(3, 4) vroce_guest_error(VroceState *s, enum vroce_rule rule,
                                           const char *fmt, ...);

/* ------------------------------------------------------ vroce-regs.c */

extern const MemoryRegionOps vroce_regs_ops;
extern const VMStateDescription vmstate_vroce_regs;

void vroce_regs_reset(VroceState *s);
/* Is the device enabled and alive, as its registers say? */
bool vroce_regs_enabled(VroceState *s);
/* Tell the engine whether it may work: registers and Bus Master decide. */
void vroce_update_enabled(VroceState *s);
/* Back to the state after power-on, except for configuration space. */
void vroce_reset(VroceState *s);

/* ------------------------------------------------------ vroce-cmdq.c */

extern const VMStateDescription vmstate_vroce_cmdq;

void vroce_cmdq_reset(VroceState *s);
void vroce_cmdq_doorbell(VroceState *s, uint32_t producer);
/* One slice; true when work is left. */
bool vroce_cmdq_run(VroceState *s);
/* Could doorbells and answers have led to these indices? */
bool vroce_cmdq_sane(VroceState *s);

/* ------------------------------------------------------- vroce-dma.c */

void vroce_dma_init(VroceState *s);
void vroce_dma_exit(VroceState *s);
/* See struct vr_host_ops, which these are part of. */
int vroce_mem_map(void *opaque, uint64_t iova, uint64_t len, bool write,
                  struct iovec *iov, int max);
void vroce_mem_done(void *opaque, const struct iovec *iov, int n, bool write);
int vroce_mem_rw(void *opaque, uint64_t iova, void *buf, uint32_t len,
                 bool write);
int vroce_mem_atomic(void *opaque, uint64_t iova, bool cmp_swap,
                     uint64_t compare, uint64_t swap_add, uint64_t *old);
/* Could len bytes at iova be written? */
bool vroce_mem_writable(VroceState *s, uint64_t iova, uint64_t len);

/* ------------------------------------------------------- vroce-net.c */

void vroce_net_init(VroceState *s);
void vroce_net_exit(VroceState *s);
/* Drop what waits for the backend, and tell the engine of the carrier. */
void vroce_net_reset(VroceState *s);
bool vroce_net_link_up(VroceState *s);
/* Tell the engine of the carrier; nothing happens when it knows. */
void vroce_net_update_link(VroceState *s);
/* The engine has sent all that it has to send now. */
void vroce_net_end_burst(VroceState *s);
/* See struct vr_host_ops. */
bool vroce_frame_tx(void *opaque, const uint8_t *frame, size_t len);

#endif /* HW_NET_VROCE_H */
