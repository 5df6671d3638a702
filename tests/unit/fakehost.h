/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A host for one engine in a test: sparse guest memory, interrupts, deadline,
 * kick and wire as plain data that the test looks at.
 *
 * The guest's bus addresses run from FH_MEM_BASE on; a page is reachable only
 * while fh_alloc() has given it out, so that DMA to what was freed is a fault.
 */
#ifndef FAKEHOST_H
#define FAKEHOST_H

#include <glib.h>

#include "vroce_engine.h"

#define FH_PAGE_SIZE    4096u
#define FH_MEM_BASE     0x100000000ull
#define FH_MEM_SIZE     (16ull << 30)       /* sparse */

struct fakehost {
    struct vr_engine *e;
    struct vr_config cfg;
    uint64_t now;               /* ns, passed to the engine at each entry */

    uint8_t *mem;               /* FH_MEM_SIZE bytes, backed when touched */
    uint64_t *page_valid;       /* a bit a page, sparse as well */
    uint64_t next_page;         /* where the allocator goes on */
    bool second_lap;            /* it has been everywhere once */
    GRand *rand;
    uint8_t *devmem;

    /*
     * How hard mem_map is to use. bounce: pieces are copies in the heap, so
     * that a sanitizer sees each byte too many and the guest never sees a byte
     * that was promised but not written. max_piece: bytes in a piece, 0 for no
     * limit. max_map: bytes in one call. jitter: both are drawn at random.
     */
    bool bounce, jitter;
    uint32_t max_piece, max_map;
    /* The nth mapping or copy from now on faults; 0: none does. */
    uint32_t fault_after;

    bool entered;               /* inside the engine */
    uint32_t maps;              /* pieces that mem_done has not ended */
    GHashTable *bounces;        /* piece -> struct fh_bounce */

    uint32_t irqs[VROCE_MAX_VECTORS];
    uint64_t deadline;          /* UINT64_MAX: none */
    bool kicked;
    enum vroce_fatal fatal;
    uint64_t reports[VR_REPORT_COMMAND + 1];
    uint64_t rules[VROCE_RULE_NUM];     /* how often each was reported */

    /* Optional; without frame_tx, frames are counted and dropped. */
    bool (*frame_tx)(void *opaque, const uint8_t *frame, size_t len);
    void (*on_deadline)(void *opaque, uint64_t ns);
    void (*on_kick)(void *opaque);
    void (*on_report)(void *opaque, const struct vr_report *report);
    void *opaque;
    uint64_t frames_sent;
};

/* Defaults with room for few objects: made and reset in no time. */
void fh_small_config(struct vr_config *cfg, uint32_t objects);

/*
 * A host with an engine of configuration cfg (NULL: the defaults), enabled and
 * with carrier. Aborts the test when the engine cannot be made.
 */
struct fakehost *fh_new(const struct vr_config *cfg, uint32_t seed);
void fh_free(struct fakehost *h);

/*
 * Guest memory. fh_alloc() returns the bus address of len contiguous bytes,
 * page-aligned and zeroed (align: a power of two, at least a page); pages that
 * were freed come back only when memory runs out.
 */
uint64_t fh_alloc(struct fakehost *h, uint64_t len, uint64_t align);
void fh_release(struct fakehost *h, uint64_t addr, uint64_t len);
/* Pointer to allocated memory; aborts the test when addr is not. */
void *fh_ptr(struct fakehost *h, uint64_t addr, uint64_t len);

/* Entries into the engine, at h->now, that check what must hold at each. */
int fh_command(struct fakehost *h, uint8_t opcode, const void *in,
               uint32_t in_len, void *out, uint32_t out_len, uint16_t *rule);
void fh_doorbell(struct fakehost *h, uint32_t page, uint64_t value);
void fh_burst(struct fakehost *h, bool more);
void fh_receive(struct fakehost *h, const uint8_t *frame, size_t len);
bool fh_run(struct fakehost *h);
void fh_timer(struct fakehost *h);
void fh_tx_ready(struct fakehost *h);
void fh_reset(struct fakehost *h);
/* Save, and go on with a new engine that has loaded it (link_ops are gone). */
void fh_migrate(struct fakehost *h);
void fh_deliver(struct fakehost *to, struct fakehost *from,
                const struct vr_sp *sp);

/* Run slices and due timers until the engine rests; aborts after `slices`. */
void fh_settle(struct fakehost *h, uint32_t slices);
/* Let ns pass, with every deadline on the way. */
void fh_advance(struct fakehost *h, uint64_t ns);

#endif /* FAKEHOST_H */
