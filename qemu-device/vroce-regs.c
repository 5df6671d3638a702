/*
 * vroce RDMA network card: the registers of BAR 0
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include <zlib.h>
#include "migration/vmstate.h"
#include "qemu/bswap.h"
#include "vroce.h"
#include "trace.h"

/* Registers that hold what was written, within limits. */
typedef struct PlainReg {
    uint16_t offset;
    uint8_t size;
    bool locked;                /* writable only while not enabled */
    uint32_t min, max;
    size_t field;               /* in VroceRegs */
} PlainReg;

static const PlainReg plain_regs[] = {
    { VROCE_REG_DB_SHIFT, 4, true, 12, 16, offsetof(VroceRegs, db_shift) },
    { VROCE_REG_CMDQ_SQ_BASE, 8, true, .field = offsetof(VroceRegs,
                                                         cmdq_sq_base) },
    { VROCE_REG_CMDQ_CQ_BASE, 8, true, .field = offsetof(VroceRegs,
                                                         cmdq_cq_base) },
    { VROCE_REG_CMDQ_LOG_SIZE, 4, true, 1, VROCE_CMDQ_MAX_LOG,
      offsetof(VroceRegs, cmdq_log_size) },
    { VROCE_REG_CMDQ_VECTOR, 4, true, 0, UINT32_MAX,
      offsetof(VroceRegs, cmdq_vector) },
    { VROCE_REG_SCRATCH, 4, false, 0, UINT32_MAX,
      offsetof(VroceRegs, scratch) },
    { VROCE_REG_DMA_SRC, 8, .field = offsetof(VroceRegs, dma_src) },
    { VROCE_REG_DMA_DST, 8, .field = offsetof(VroceRegs, dma_dst) },
    { VROCE_REG_DMA_LEN, 4, false, 0, UINT32_MAX,
      offsetof(VroceRegs, dma_len) },
    { VROCE_REG_DMA_PATTERN, 4, false, 0, UINT32_MAX,
      offsetof(VroceRegs, dma_pattern) },
};

/* The register that addr lies in; 8-byte ones have two halves. */
static const PlainReg *find_plain(hwaddr addr)
{
    for (int i = 0; i < ARRAY_SIZE(plain_regs); i++) {
        if (addr - plain_regs[i].offset < plain_regs[i].size) {
            return &plain_regs[i];
        }
    }
    return NULL;
}

static uint32_t status_reg(VroceState *s)
{
    uint32_t status = VROCE_STATUS_READY;

    if (vroce_regs_enabled(s)) {
        status |= VROCE_STATUS_ENABLED;
    }
    if (s->regs.fatal) {
        status |= VROCE_STATUS_FATAL;
    }
    if (vr_eq_overrun(s->engine)) {
        status |= VROCE_STATUS_EQ_OVERRUN;
    }
    return status;
}

/* Values of 32-bit registers that are not plain; false: no such register. */
static bool read_special(VroceState *s, hwaddr addr, uint32_t *value)
{
    const uint8_t *mac = s->conf.macaddr.a;

    if (addr >= VROCE_REG_MODERATION(0) &&
        addr < VROCE_REG_MODERATION(s->cfg.num_vectors)) {
        *value = s->regs.moderation[(addr - VROCE_REG_MODERATION(0)) / 4];
        return true;
    }
    switch (addr) {
    case VROCE_REG_ID:
        *value = VROCE_ID_MAGIC;
        return true;
    case VROCE_REG_VERSION:
        *value = VROCE_VERSION;
        return true;
    case VROCE_REG_STATUS:
        *value = status_reg(s);
        return true;
    case VROCE_REG_CTRL:
        *value = s->regs.ctrl;
        return true;
    case VROCE_REG_FATAL:
        *value = s->regs.fatal;
        return true;
    case VROCE_REG_MAC_LO:
        *value = ldl_le_p(mac);
        return true;
    case VROCE_REG_MAC_HI:
        *value = lduw_le_p(mac + 4);
        return true;
    case VROCE_REG_LINK:
        *value = vroce_net_link_up(s) ? VROCE_LINK_SPEED_MBPS << 8 | 1 : 0;
        return true;
    case VROCE_REG_VECTORS:
        *value = s->cfg.num_vectors;
        return true;
    case VROCE_REG_DB_PAGES:
        *value = s->cfg.num_contexts;
        return true;
    case VROCE_REG_CLOCK + 4:
        *value = s->regs.clock_high;
        return true;
    case VROCE_REG_DEVMEM_SIZE:
        *value = s->cfg.devmem_size;
        return true;
    case VROCE_REG_MAX_MTU:
        *value = s->cfg.max_mtu;
        return true;
    case VROCE_REG_DMA_STATUS:
        *value = s->regs.dma_status;
        return true;
    case VROCE_REG_DMA_CRC:
        *value = s->regs.dma_crc;
        return true;
    /* Write-only. */
    case VROCE_REG_RESET:
    case VROCE_REG_CMDQ_DOORBELL:
    case VROCE_REG_TEST_IRQ:
    case VROCE_REG_DMA_CMD:
        *value = 0;
        return true;
    default:
        return false;
    }
}

static uint64_t read_plain(VroceState *s, const PlainReg *reg, hwaddr addr,
                           unsigned size)
{
    const void *field = (const uint8_t *)&s->regs + reg->field;
    uint64_t value;

    if (reg->size == 4) {
        value = *(const uint32_t *)field;
        return reg->offset == VROCE_REG_SCRATCH ? (uint32_t)~value : value;
    }
    value = *(const uint64_t *)field;
    if (size == 8) {
        return value;
    }
    return (uint32_t)(value >> (addr == reg->offset ? 0 : 32));
}

static uint64_t vroce_regs_read(void *opaque, hwaddr addr, unsigned size)
{
    VroceState *s = opaque;
    const PlainReg *reg = find_plain(addr);
    uint64_t value = 0;
    uint32_t word;

    if ((size != 4 && size != 8) || addr % size) {
        vroce_guest_error(s, VROCE_RULE_REGISTER, "%u-byte read at 0x%"
                          HWADDR_PRIx ": registers are read as aligned words",
                          size, addr);
    } else if (addr == VROCE_REG_CLOCK) {
        value = vroce_now();
        s->regs.clock_high = value >> 32;
        value = size == 8 ? value : (uint32_t)value;
    } else if (reg && size <= reg->size) {
        value = read_plain(s, reg, addr, size);
    } else if (size == 4 && read_special(s, addr, &word)) {
        value = word;
    } else {
        vroce_guest_error(s, VROCE_RULE_REGISTER, "%u-byte read at 0x%"
                          HWADDR_PRIx ": no such register", size, addr);
    }
    trace_vroce_reg_read(vroce_name(s), size, addr, value);
    return value;
}

static void write_plain(VroceState *s, const PlainReg *reg, hwaddr addr,
                        uint64_t value, unsigned size)
{
    void *field = (uint8_t *)&s->regs + reg->field;

    if (reg->locked && s->regs.ctrl & VROCE_CTRL_ENABLE) {
        vroce_guest_error(s, VROCE_RULE_REGISTER, "write to 0x%" HWADDR_PRIx
                          ": it is locked while the device is enabled", addr);
    } else if (reg->size == 8) {
        uint64_t *wide = field;

        *wide = size == 8 ? value :
                deposit64(*wide, addr == reg->offset ? 0 : 32, 32, value);
    } else if (value < reg->min || value > reg->max) {
        vroce_guest_error(s, VROCE_RULE_REGISTER, "%" PRIu64 " written to 0x%"
                          HWADDR_PRIx ": it takes %u..%u", value, addr,
                          reg->min, reg->max);
    } else {
        *(uint32_t *)field = value;
    }
}

/* ------------------------------------------------------- bring-up block */

/* All of LEN, which is bounded, so that the status is there at once. */
static enum vroce_dma_status run_test_dma(VroceState *s, uint32_t command)
{
    VroceRegs *r = &s->regs;
    uint8_t piece[4096];
    uint32_t crc = crc32(0, NULL, 0);

    if (command < VROCE_DMA_FILL || command > VROCE_DMA_CHECKSUM) {
        return VROCE_DMA_BAD_CMD;
    }
    if (!r->dma_len || r->dma_len > VROCE_DMA_MAX_LEN) {
        return VROCE_DMA_BAD_LEN;
    }
    memset(piece, r->dma_pattern, sizeof(piece));
    for (uint32_t off = 0; off < r->dma_len; off += sizeof(piece)) {
        uint32_t len = MIN(sizeof(piece), r->dma_len - off);

        if (command != VROCE_DMA_FILL &&
            vroce_mem_rw(s, r->dma_src + off, piece, len, false)) {
            return VROCE_DMA_FAULT;
        }
        if (command != VROCE_DMA_CHECKSUM &&
            vroce_mem_rw(s, r->dma_dst + off, piece, len, true)) {
            return VROCE_DMA_FAULT;
        }
        crc = crc32(crc, piece, len);
    }
    if (command == VROCE_DMA_CHECKSUM) {
        r->dma_crc = crc;
    }
    return VROCE_DMA_OK;
}

static void write_dma_command(VroceState *s, uint32_t command)
{
    VroceRegs *r = &s->regs;

    r->dma_status = run_test_dma(s, command);
    trace_vroce_test_dma(vroce_name(s), command, r->dma_src, r->dma_dst,
                         r->dma_len, r->dma_status);
    if (r->dma_status == VROCE_DMA_FAULT) {
        vroce_guest_error(s, VROCE_RULE_MEM_DMA, "test DMA of %u bytes from "
                          "0x%" PRIx64 " to 0x%" PRIx64 " failed", r->dma_len,
                          r->dma_src, r->dma_dst);
    } else if (r->dma_status != VROCE_DMA_OK) {
        vroce_guest_error(s, VROCE_RULE_REGISTER, "test DMA command %u with "
                          "length %u: there is no such command, or the length "
                          "is not 1..%u", command, r->dma_len,
                          VROCE_DMA_MAX_LEN);
    }
}

static void write_test_irq(VroceState *s, uint32_t vector)
{
    if (vector >= s->cfg.num_vectors) {
        vroce_guest_error(s, VROCE_RULE_REGISTER, "test interrupt %u: the "
                          "device has vectors 0..%u", vector,
                          s->cfg.num_vectors - 1);
        return;
    }
    vroce_raise_vector(s, vector);
}

/* --------------------------------------------------------- life and death */

bool vroce_regs_enabled(VroceState *s)
{
    return s->regs.ctrl & VROCE_CTRL_ENABLE && !s->regs.fatal;
}

/* May the function do DMA? In D0 only, PCI Express Base 4.0, 5.3.1. */
static bool may_master(const PCIDevice *pdev)
{
    return pci_get_word(pdev->config + PCI_COMMAND) & PCI_COMMAND_MASTER &&
           !(pci_get_word(pdev->config + pdev->pm_cap + PCI_PM_CTRL) &
             PCI_PM_CTRL_STATE_MASK);
}

void vroce_update_enabled(VroceState *s)
{
    bool master = may_master(PCI_DEVICE(s));
    bool enabled = master && vroce_regs_enabled(s);

    if (s->enabled == enabled || s->entered) {
        return;         /* while the engine runs: see vroce_leave() */
    }
    trace_vroce_enabled(vroce_name(s), enabled, master);
    s->enabled = enabled;
    vroce_enter(s);
    vr_set_enabled(s->engine, enabled, vroce_now());
    vroce_leave(s);
}

static void write_ctrl(VroceState *s, uint32_t value)
{
    VroceRegs *r = &s->regs;

    if (value & ~VROCE_CTRL_ENABLE) {
        vroce_guest_error(s, VROCE_RULE_RESERVED, "0x%x written to the "
                          "control register: reserved bits are set", value);
        return;
    }
    if (value & ~r->ctrl & VROCE_CTRL_ENABLE &&
        r->cmdq_vector != VROCE_NO_VECTOR &&
        r->cmdq_vector >= s->cfg.num_vectors) {
        vroce_guest_error(s, VROCE_RULE_REGISTER, "enabled with command "
                          "vector %u: the device has vectors 0..%u",
                          r->cmdq_vector, s->cfg.num_vectors - 1);
        return;
    }
    if (value != r->ctrl) {
        vroce_cmdq_reset(s);
    }
    r->ctrl = value;
    vroce_update_enabled(s);
}

void vroce_regs_reset(VroceState *s)
{
    s->regs = (VroceRegs) {
        .db_shift = 12,
        .cmdq_vector = VROCE_NO_VECTOR,
        .scratch = UINT32_MAX,
    };
}

void vroce_reset(VroceState *s)
{
    s->reset_due = s->entered;
    if (s->reset_due) {
        return;
    }
    trace_vroce_reset(vroce_name(s));
    vroce_regs_reset(s);
    vroce_cmdq_reset(s);
    s->enabled = false;
    vr_engine_reset(s->engine);
    vroce_host_reset(s);
    vroce_net_reset(s);
}

static void write_moderation(VroceState *s, uint32_t vector, uint32_t us)
{
    if (us > VROCE_MODERATION_MAX_US) {
        vroce_guest_error(s, VROCE_RULE_REGISTER, "moderation of %u us: at "
                          "most %u", us, VROCE_MODERATION_MAX_US);
        return;
    }
    s->regs.moderation[vector] = us;
    vr_set_moderation(s->engine, vector, us);
}

/* Writes to 32-bit registers that do something; false: cannot be written. */
static bool write_special(VroceState *s, hwaddr addr, uint32_t value)
{
    if (addr >= VROCE_REG_MODERATION(0) &&
        addr < VROCE_REG_MODERATION(s->cfg.num_vectors)) {
        write_moderation(s, (addr - VROCE_REG_MODERATION(0)) / 4, value);
        return true;
    }
    switch (addr) {
    case VROCE_REG_CTRL:
        write_ctrl(s, value);
        return true;
    case VROCE_REG_RESET:
        if (value != VROCE_RESET_MAGIC) {
            return false;
        }
        vroce_reset(s);
        return true;
    case VROCE_REG_CMDQ_DOORBELL:
        vroce_cmdq_doorbell(s, value);
        return true;
    case VROCE_REG_TEST_IRQ:
        write_test_irq(s, value);
        return true;
    case VROCE_REG_DMA_CMD:
        write_dma_command(s, value);
        return true;
    default:
        return false;
    }
}

static void vroce_regs_write(void *opaque, hwaddr addr, uint64_t value,
                             unsigned size)
{
    VroceState *s = opaque;
    const PlainReg *reg = find_plain(addr);

    trace_vroce_reg_write(vroce_name(s), size, addr, value);
    if ((size != 4 && size != 8) || addr % size) {
        vroce_guest_error(s, VROCE_RULE_REGISTER, "%u-byte write at 0x%"
                          HWADDR_PRIx ": registers are written as aligned "
                          "words", size, addr);
    } else if (reg && size <= reg->size) {
        write_plain(s, reg, addr, value, size);
    } else if (size != 4 || !write_special(s, addr, value)) {
        vroce_guest_error(s, VROCE_RULE_REGISTER, "%u-byte write of 0x%"
                          PRIx64 " at 0x%" HWADDR_PRIx ": no register there "
                          "takes it", size, value, addr);
    }
}

const MemoryRegionOps vroce_regs_ops = {
    .read = vroce_regs_read,
    .write = vroce_regs_write,
    .endianness = DEVICE_LITTLE_ENDIAN,
    /* All sizes come here, so that a wrong one can be reported. */
    .valid = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
    .impl = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
};

const VMStateDescription vmstate_vroce_regs = {
    .name = "vroce/regs",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64(cmdq_sq_base, VroceRegs),
        VMSTATE_UINT64(cmdq_cq_base, VroceRegs),
        VMSTATE_UINT32(cmdq_log_size, VroceRegs),
        VMSTATE_UINT32(cmdq_vector, VroceRegs),
        VMSTATE_UINT64(dma_src, VroceRegs),
        VMSTATE_UINT64(dma_dst, VroceRegs),
        VMSTATE_UINT32(dma_len, VroceRegs),
        VMSTATE_UINT32(dma_pattern, VroceRegs),
        VMSTATE_UINT32(dma_status, VroceRegs),
        VMSTATE_UINT32(dma_crc, VroceRegs),
        VMSTATE_UINT32(scratch, VroceRegs),
        VMSTATE_UINT32(ctrl, VroceRegs),
        VMSTATE_UINT32(fatal, VroceRegs),
        VMSTATE_UINT32(db_shift, VroceRegs),
        VMSTATE_UINT32(clock_high, VroceRegs),
        VMSTATE_UINT32_ARRAY(moderation, VroceRegs, VROCE_MAX_VECTORS),
        VMSTATE_END_OF_LIST()
    }
};
