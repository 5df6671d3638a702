/*
 * vroce RDMA network card: access to guest memory
 *
 * A listener on the function's own address space keeps a cached mapping of
 * each piece of guest RAM, so that the hot path is a range check and an
 * addition, and so that a cleared Bus Master bit, which empties the address
 * space, stops all DMA. Behind a virtual IOMMU nothing is cached: each access
 * is translated. Only RAM is ever accessed, so the device cannot be made to
 * write to its own registers or to another device's.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/atomic.h"
#include "qemu/bswap.h"
#include "qemu/rcu.h"
#include "exec/memory.h"
#include "vroce.h"
#include "trace.h"

static VroceState *vroce_of(MemoryListener *listener)
{
    return container_of(listener, VroceState, dma.listener);
}

static bool section_is_ram(MemoryRegionSection *section)
{
    return memory_region_is_ram(section->mr) && !section->readonly &&
           !memory_region_is_rom(section->mr) &&
           !memory_region_is_ram_device(section->mr);
}

static void vroce_ram_uncache(VroceRam *ram)
{
    address_space_cache_destroy(&ram->cache);
    ram->cache.ptr = NULL;
}

static void vroce_dma_region_add(MemoryListener *listener,
                                 MemoryRegionSection *section)
{
    VroceDma *dma = &vroce_of(listener)->dma;
    VroceRam ram = {
        .start = section->offset_within_address_space,
        .mr = section->mr,
    };
    unsigned int i = 0;

    if (memory_region_is_iommu(section->mr)) {
        dma->iommus++;
        dma->stale = true;
    } else if (section_is_ram(section)) {
        while (i < dma->ram->len &&
               g_array_index(dma->ram, VroceRam, i).start < ram.start) {
            i++;
        }
        ram.size = int128_get64(section->size);
        g_array_insert_val(dma->ram, i, ram);
        dma->stale = true;
    }
}

static void vroce_dma_region_del(MemoryListener *listener,
                                 MemoryRegionSection *section)
{
    VroceDma *dma = &vroce_of(listener)->dma;

    if (memory_region_is_iommu(section->mr)) {
        dma->iommus--;
        dma->stale = true;
        return;
    }
    for (unsigned int i = 0; i < dma->ram->len; i++) {
        VroceRam *ram = &g_array_index(dma->ram, VroceRam, i);

        if (ram->start == section->offset_within_address_space &&
            ram->mr == section->mr) {
            vroce_ram_uncache(ram);
            g_array_remove_index(dma->ram, i);
            dma->stale = true;
            return;
        }
    }
}

/* The new memory map is in force: address_space_cache_init() looks there. */
static void vroce_dma_commit(MemoryListener *listener)
{
    VroceState *s = vroce_of(listener);
    VroceDma *dma = &s->dma;

    if (!dma->stale) {
        return;
    }
    dma->stale = false;
    dma->last = 0;
    trace_vroce_dma_iommu(vroce_name(s), dma->iommus);
    for (unsigned int i = 0; i < dma->ram->len; i++) {
        VroceRam *ram = &g_array_index(dma->ram, VroceRam, i);

        vroce_ram_uncache(ram);
        if (dma->iommus) {
            continue;
        }
        trace_vroce_dma_region(vroce_name(s), ram->start, ram->size);
        if (address_space_cache_init(&ram->cache, dma->as, ram->start,
                                     ram->size, true) < ram->size) {
            vroce_ram_uncache(ram);
        }
    }
    if (s->engine) {
        vr_memory_changed(s->engine);
    }
}

/* The RAM that holds bus address iova, when it is cached. */
static VroceRam *vroce_dma_find(VroceDma *dma, uint64_t iova)
{
    VroceRam *ram;
    unsigned int i = dma->last;

    if (likely(i < dma->ram->len)) {
        ram = &g_array_index(dma->ram, VroceRam, i);
        if (likely(iova - ram->start < ram->size)) {
            return ram->cache.ptr ? ram : NULL;
        }
    }
    for (i = 0; i < dma->ram->len; i++) {
        ram = &g_array_index(dma->ram, VroceRam, i);
        if (iova - ram->start < ram->size) {
            dma->last = i;
            return ram->cache.ptr ? ram : NULL;
        }
    }
    return NULL;
}

/* One access behind an IOMMU: *len shrinks to what one mapping holds. */
static void *vroce_dma_translate(VroceDma *dma, uint64_t iova, uint64_t *len,
                                 bool write)
{
    const MemTxAttrs attrs = { .memory = true };
    hwaddr offset, run = *len;
    MemoryRegion *mr;
    void *ptr;

    WITH_RCU_READ_LOCK_GUARD() {
        mr = address_space_translate(dma->as, iova, &offset, &run, write,
                                     attrs);
        /* Anything else would be given a bounce buffer. */
        if (!memory_access_is_direct(mr, write, attrs)) {
            return NULL;
        }
    }
    ptr = address_space_map(dma->as, iova, &run, write, attrs);
    *len = run;
    return ptr;
}

int vroce_mem_map(void *opaque, uint64_t iova, uint64_t len, bool write,
                  struct iovec *iov, int max)
{
    VroceState *s = opaque;
    VroceDma *dma = &s->dma;
    int n = 0;

    while (len && n < max) {
        VroceRam *ram = vroce_dma_find(dma, iova);
        uint64_t run = len;
        void *ptr;

        if (likely(ram)) {
            run = MIN(run, ram->size - (iova - ram->start));
            if (!write) {
                fuzz_dma_read_cb(iova, run, ram->mr);
            }
            ptr = ram->cache.ptr + (iova - ram->start);
        } else if (dma->iommus) {
            ptr = vroce_dma_translate(dma, iova, &run, write);
        } else {
            ptr = NULL;
        }
        if (!ptr) {
            trace_vroce_dma_fault(vroce_name(s), iova, len, write);
            break;
        }
        iov[n].iov_base = ptr;
        iov[n].iov_len = run;
        n++;
        iova += run;
        len -= run;
    }
    return n;
}

/* Mark memory dirty, and drop what was translated from code in it. */
static void vroce_dma_written(VroceDma *dma, uint8_t *ptr, uint64_t len)
{
    unsigned int k = dma->last;

    for (unsigned int i = 0; i < dma->ram->len; i++, k++) {
        VroceRam *ram = &g_array_index(dma->ram, VroceRam,
                                       k % dma->ram->len);

        if (ram->cache.ptr && ptr >= ram->cache.ptr &&
            ptr - ram->cache.ptr < ram->size) {
            address_space_cache_invalidate(&ram->cache, ptr - ram->cache.ptr,
                                           len);
            return;
        }
    }
}

void vroce_mem_done(void *opaque, const struct iovec *iov, int n, bool write)
{
    VroceState *s = opaque;
    VroceDma *dma = &s->dma;

    for (int i = 0; i < n; i++) {
        if (dma->iommus) {
            address_space_unmap(dma->as, iov[i].iov_base, iov[i].iov_len,
                                write, iov[i].iov_len);
        } else if (write) {
            vroce_dma_written(dma, iov[i].iov_base, iov[i].iov_len);
        }
    }
}

/*
 * The guest polls for what is written here. An aligned word is one store, so
 * that a phase bit or an index speaks for what it stands for.
 */
static void copy_to_guest(void *ptr, const void *buf, size_t len)
{
    /* All that was written before is visible before this word. */
    smp_wmb();
    if (len == 4 && QEMU_PTR_IS_ALIGNED(ptr, 4)) {
        qatomic_set((uint32_t *)ptr, (uint32_t)ldl_he_p(buf));
    } else if (len == 8 && QEMU_PTR_IS_ALIGNED(ptr, 8)) {
        qatomic_set((uint64_t *)ptr, ldq_he_p(buf));
    } else {
        memcpy(ptr, buf, len);
    }
}

static void copy_from_guest(void *buf, const void *ptr, size_t len)
{
    if (len == 4 && QEMU_PTR_IS_ALIGNED(ptr, 4)) {
        stl_he_p(buf, qatomic_read((const uint32_t *)ptr));
    } else if (len == 8 && QEMU_PTR_IS_ALIGNED(ptr, 8)) {
        stq_he_p(buf, qatomic_read((const uint64_t *)ptr));
    } else {
        memcpy(buf, ptr, len);
    }
    /* What an index or a phase bit announces is read after it. */
    smp_rmb();
}

int vroce_mem_rw(void *opaque, uint64_t iova, void *buf, uint32_t len,
                 bool write)
{
    uint8_t *bytes = buf;
    struct iovec iov;

    while (len) {
        if (!vroce_mem_map(opaque, iova, len, write, &iov, 1)) {
            return -EFAULT;
        }
        if (write) {
            copy_to_guest(iov.iov_base, bytes, iov.iov_len);
        } else {
            copy_from_guest(bytes, iov.iov_base, iov.iov_len);
        }
        vroce_mem_done(opaque, &iov, 1, write);
        bytes += iov.iov_len;
        iova += iov.iov_len;
        len -= iov.iov_len;
    }
    return 0;
}

int vroce_mem_atomic(void *opaque, uint64_t iova, bool cmp_swap,
                     uint64_t compare, uint64_t swap_add, uint64_t *old)
{
    struct iovec iov;
    uint64_t *ptr, seen, found, wanted;

    if (!vroce_mem_map(opaque, iova, 8, true, &iov, 1)) {
        return -EFAULT;
    }
    ptr = iov.iov_base;
    if (iov.iov_len < 8 || !QEMU_PTR_IS_ALIGNED(ptr, 8)) {
        vroce_mem_done(opaque, &iov, 1, false);
        return -EFAULT;
    }
    found = qatomic_read(ptr);
    do {
        seen = found;
        wanted = cmp_swap ? swap_add : le64_to_cpu(seen) + swap_add;
        if (cmp_swap && le64_to_cpu(seen) != compare) {
            break;
        }
        found = qatomic_cmpxchg(ptr, seen, cpu_to_le64(wanted));
    } while (found != seen);
    vroce_mem_done(opaque, &iov, 1, true);
    *old = le64_to_cpu(seen);
    return 0;
}

bool vroce_mem_writable(VroceState *s, uint64_t iova, uint64_t len)
{
    struct iovec iov;

    while (len) {
        if (!vroce_mem_map(s, iova, len, true, &iov, 1)) {
            return false;
        }
        vroce_mem_done(s, &iov, 1, false);
        iova += iov.iov_len;
        len -= iov.iov_len;
    }
    return true;
}

void vroce_dma_init(VroceState *s)
{
    VroceDma *dma = &s->dma;

    dma->as = pci_get_address_space(PCI_DEVICE(s));
    dma->ram = g_array_new(false, false, sizeof(VroceRam));
    dma->listener = (MemoryListener) {
        .name = "vroce",
        .region_add = vroce_dma_region_add,
        .region_del = vroce_dma_region_del,
        .commit = vroce_dma_commit,
    };
    memory_listener_register(&dma->listener, dma->as);
}

void vroce_dma_exit(VroceState *s)
{
    VroceDma *dma = &s->dma;

    if (!dma->ram) {
        return;
    }
    memory_listener_unregister(&dma->listener);
    g_array_free(dma->ram, true);
    dma->ram = NULL;
}
