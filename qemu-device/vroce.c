/*
 * vroce RDMA network card: the PCI function
 *
 * A RoCEv2 network card that exists only here: registers in BAR 0, doorbells
 * in BAR 2, device memory in BAR 4. The interface is in vroce_hw.h, the
 * transport in engine/.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "hw/pci/msix.h"
#include "hw/pci/pci.h"
#include "hw/qdev-properties.h"
#include "migration/vmstate.h"
#include "net/eth.h"
#include "qapi/error.h"
#include "qapi/visitor.h"
#include "qemu/error-report.h"
#include "qemu/module.h"
#include "vroce.h"

#define VROCE_CAP_PM        0x40
#define VROCE_CAP_MSIX      0x50
#define VROCE_CAP_EXPRESS   0x70
#define VROCE_CAP_AER       0x100

static uint64_t vroce_doorbell_read(void *opaque, hwaddr addr, unsigned size)
{
    VroceState *s = opaque;

    vroce_guest_error(s, VROCE_RULE_DB_ACCESS, "%u-byte read at 0x%"
                      HWADDR_PRIx " of the doorbells: they are write-only",
                      size, addr);
    return 0;
}

static const MemoryRegionOps vroce_doorbell_ops = {
    .read = vroce_doorbell_read,
    .write = vroce_doorbell_write,
    .endianness = DEVICE_LITTLE_ENDIAN,
    /* All sizes come here, so that a wrong one can be reported. */
    .valid = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
    .impl = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
};

/* --------------------------------------------------------------- realize */

static bool vroce_init_bars(VroceState *s, Error **errp)
{
    const uint8_t wide = PCI_BASE_ADDRESS_SPACE_MEMORY |
                         PCI_BASE_ADDRESS_MEM_TYPE_64 |
                         PCI_BASE_ADDRESS_MEM_PREFETCH;
    PCIDevice *pdev = PCI_DEVICE(s);
    Object *obj = OBJECT(s);
    /* Room for any stride that VROCE_REG_DB_SHIFT takes. */
    uint64_t doorbells = pow2ceil((uint64_t)s->cfg.num_contexts << 16);

    if (s->cfg.devmem_size & (s->cfg.devmem_size - 1)) {
        error_setg(errp, "property 'devmem-size' is %" PRIu64 ", it must be a "
                   "power of two, as a BAR is", s->cfg.devmem_size);
        return false;
    }
    memory_region_init(&s->bar0, obj, "vroce-bar0", VROCE_REGS_SIZE);
    memory_region_init_io(&s->mmio, obj, &vroce_regs_ops, s, "vroce-registers",
                          VROCE_MSIX_TABLE_OFFSET);
    memory_region_add_subregion(&s->bar0, 0, &s->mmio);
    memory_region_init_io(&s->doorbells, obj, &vroce_doorbell_ops, s,
                          "vroce-doorbells", doorbells);
    pci_register_bar(pdev, VROCE_BAR_REGS, PCI_BASE_ADDRESS_SPACE_MEMORY,
                     &s->bar0);
    pci_register_bar(pdev, VROCE_BAR_DOORBELL, wide, &s->doorbells);
    if (s->cfg.devmem_size) {
        if (!memory_region_init_ram(&s->devmem, obj, "vroce-devmem",
                                    s->cfg.devmem_size, errp)) {
            memory_region_del_subregion(&s->bar0, &s->mmio);
            return false;
        }
        pci_register_bar(pdev, VROCE_BAR_DEVMEM, wide, &s->devmem);
    }
    return true;
}

static bool vroce_init_pm(PCIDevice *pdev, Error **errp)
{
    int cap = pci_pm_init(pdev, VROCE_CAP_PM, errp);

    if (cap < 0) {
        return false;
    }
    pci_set_word(pdev->config + cap + PCI_PM_PMC, PCI_PM_CAP_VER_1_1);
    pci_set_word(pdev->config + cap + PCI_PM_CTRL, PCI_PM_CTRL_NO_SOFT_RESET);
    pci_set_word(pdev->wmask + cap + PCI_PM_CTRL, PCI_PM_CTRL_STATE_MASK);
    return true;
}

static bool vroce_init_caps(VroceState *s, Error **errp)
{
    PCIDevice *pdev = PCI_DEVICE(s);
    unsigned int vectors = s->cfg.num_vectors;
    int ret;

    if (!vroce_init_pm(pdev, errp)) {
        return false;
    }
    if (msix_init(pdev, vectors, &s->bar0, VROCE_BAR_REGS,
                  VROCE_MSIX_TABLE_OFFSET, &s->bar0, VROCE_BAR_REGS,
                  VROCE_MSIX_PBA_OFFSET, VROCE_CAP_MSIX, errp) < 0) {
        return false;
    }
    for (unsigned int i = 0; i < vectors; i++) {
        msix_vector_use(pdev, i);
    }
    ret = pcie_endpoint_cap_init(pdev, VROCE_CAP_EXPRESS);
    if (ret < 0) {
        error_setg_errno(errp, -ret, "cannot add the PCI Express capability");
        return false;
    }
    pcie_cap_fill_link_ep_usp(pdev, QEMU_PCI_EXP_LNK_X16,
                              QEMU_PCI_EXP_LNK_16GT);
    pcie_cap_deverr_init(pdev);
    pcie_cap_flr_init(pdev);
    return pcie_aer_init(pdev, PCI_ERR_VER, VROCE_CAP_AER, PCI_ERR_SIZEOF,
                         errp) >= 0;
}

static bool vroce_init_engine(VroceState *s, Error **errp)
{
    const char *err = NULL;

    qemu_macaddr_default_if_unset(&s->conf.macaddr);
    if (is_multicast_ether_addr(s->conf.macaddr.a)) {
        error_setg(errp, "property 'mac' is a multicast address, a card needs "
                   "a unicast one");
        return false;
    }
    memcpy(s->cfg.mac, s->conf.macaddr.a, sizeof(s->cfg.mac));
    s->engine = vr_engine_new(&s->cfg, &vroce_host_ops, s, &err);
    if (!s->engine) {
        error_setg(errp, "cannot create the transport engine: %s", err);
        return false;
    }
    return true;
}

static void vroce_exit(PCIDevice *pdev)
{
    VroceState *s = VROCE(pdev);

    vroce_dma_exit(s);
    vroce_net_exit(s);
    vroce_host_exit(s);
    if (s->engine) {
        vr_engine_free(s->engine);
        s->engine = NULL;
    }
    pcie_aer_exit(pdev);
    pcie_cap_exit(pdev);
    if (msix_present(pdev)) {
        msix_uninit(pdev, &s->bar0, &s->bar0);
    }
    /* A region in another of the same owner keeps its owner alive. */
    memory_region_del_subregion(&s->bar0, &s->mmio);
}

static void vroce_realize(PCIDevice *pdev, Error **errp)
{
    VroceState *s = VROCE(pdev);

    if (!vroce_init_bars(s, errp)) {
        return;
    }
    if (!vroce_init_caps(s, errp) || !vroce_init_engine(s, errp)) {
        vroce_exit(pdev);
        return;
    }
    vroce_host_init(s);
    vroce_net_init(s);
    vroce_dma_init(s);
}

static void vroce_reset_hold(Object *obj, ResetType type)
{
    vroce_reset(VROCE(obj));
}

static void vroce_write_config(PCIDevice *pdev, uint32_t addr, uint32_t value,
                               int len)
{
    VroceState *s = VROCE(pdev);

    pci_default_write_config(pdev, addr, value, len);
    pcie_cap_flr_write_config(pdev, addr, value, len);
    pcie_aer_write_config(pdev, addr, value, len);
    vroce_update_enabled(s);    /* Bus Master or the power state */
}

/* ------------------------------------------------------------- migration */

static int vroce_post_save(void *opaque)
{
    VroceState *s = opaque;

    free(s->image);
    s->image = NULL;
    return 0;
}

static int vroce_pre_save(void *opaque)
{
    VroceState *s = opaque;
    size_t len = 0;

    s->image = vr_save(s->engine, &len);
    if (len > UINT32_MAX) {
        error_report("vroce %s: %zu MiB of page lists are more than migration "
                     "takes, use fewer 'num-pages'", vroce_name(s), len >> 20);
        vroce_post_save(s);
        return -E2BIG;
    }
    s->image_len = len;
    return s->image ? 0 : -ENOMEM;
}

static int vroce_post_load(void *opaque, int version_id)
{
    VroceState *s = opaque;
    g_autofree uint8_t *image = g_steal_pointer(&s->image);
    int ret;

    if (s->regs.db_shift < 12 || s->regs.db_shift > 16 ||
        s->regs.cmdq_log_size > VROCE_CMDQ_MAX_LOG || !vroce_cmdq_sane(s)) {
        return -EINVAL;
    }
    ret = vr_load(s->engine, image, s->image_len, vroce_now());
    vroce_host_resume(s);
    return ret;
}

static const VMStateDescription vmstate_vroce = {
    .name = TYPE_VROCE,
    .version_id = 1,
    .minimum_version_id = 1,
    .pre_save = vroce_pre_save,
    .post_save = vroce_post_save,
    .post_load = vroce_post_load,
    .fields = (const VMStateField[]) {
        VMSTATE_PCI_DEVICE(parent_obj, VroceState),
        VMSTATE_MSIX(parent_obj, VroceState),
        VMSTATE_STRUCT(regs, VroceState, 1, vmstate_vroce_regs, VroceRegs),
        VMSTATE_STRUCT(cmdq, VroceState, 1, vmstate_vroce_cmdq, VroceCmdq),
        VMSTATE_BOOL(enabled, VroceState),
        VMSTATE_UINT32(image_len, VroceState),
        VMSTATE_VBUFFER_ALLOC_UINT32(image, VroceState, 1, NULL, image_len),
        VMSTATE_END_OF_LIST()
    }
};

/* ------------------------------------------------------------ properties */

/* One property for each limit of the engine, which knows the ranges. */
static void *vroce_limit_field(Object *obj, const struct vr_limit *limit)
{
    return (uint8_t *)&VROCE(obj)->cfg + limit->offset;
}

static void vroce_get_limit(Object *obj, Visitor *v, const char *name,
                            void *opaque, Error **errp)
{
    const struct vr_limit *limit = opaque;
    void *field = vroce_limit_field(obj, limit);
    uint64_t value = limit->size == 8 ? *(uint64_t *)field
                                      : *(uint32_t *)field;

    visit_type_size(v, name, &value, errp);
}

static void vroce_set_limit(Object *obj, Visitor *v, const char *name,
                            void *opaque, Error **errp)
{
    const struct vr_limit *limit = opaque;
    void *field = vroce_limit_field(obj, limit);
    uint64_t value;

    if (DEVICE(obj)->realized) {
        error_setg(errp, "property '%s' of vroce cannot change once the device "
                   "exists", name);
        return;
    }
    if (!visit_type_size(v, name, &value, errp)) {
        return;
    }
    if (value < limit->min || value > limit->max) {
        error_setg(errp, "property '%s' of vroce is %" PRIu64 ", it must be "
                   "%" PRIu64 "..%" PRIu64, name, value, limit->min,
                   limit->max);
        return;
    }
    if (limit->size == 8) {
        *(uint64_t *)field = value;
    } else {
        *(uint32_t *)field = value;
    }
}

static int vroce_get_misuse_policy(Object *obj, Error **errp)
{
    return VROCE(obj)->misuse_policy;
}

static void vroce_set_misuse_policy(Object *obj, int value, Error **errp)
{
    VROCE(obj)->misuse_policy = value;
}

static const Property vroce_properties[] = {
    DEFINE_NIC_PROPERTIES(VroceState, conf),
};

static void vroce_class_init(ObjectClass *klass, void *data)
{
    DeviceClass *dc = DEVICE_CLASS(klass);
    PCIDeviceClass *pc = PCI_DEVICE_CLASS(klass);
    ResettableClass *rc = RESETTABLE_CLASS(klass);

    pc->realize = vroce_realize;
    pc->exit = vroce_exit;
    pc->config_write = vroce_write_config;
    pc->vendor_id = VROCE_PCI_VENDOR;
    pc->device_id = VROCE_PCI_DEVICE;
    pc->revision = VROCE_PCI_REVISION;
    pc->class_id = PCI_CLASS_NETWORK_ETHERNET;
    rc->phases.hold = vroce_reset_hold;
    dc->desc = "vroce RDMA network card";
    dc->vmsd = &vmstate_vroce;
    device_class_set_props(dc, vroce_properties);
    set_bit(DEVICE_CATEGORY_NETWORK, dc->categories);
    object_class_property_add_enum(klass, "misuse-policy", "VroceMisusePolicy",
                                   &VroceMisusePolicy_lookup,
                                   vroce_get_misuse_policy,
                                   vroce_set_misuse_policy);
    object_class_property_set_description(klass, "misuse-policy",
                                          "when the guest breaks a rule: log, "
                                          "or stop the virtual machine");

    for (size_t i = 0; i < vr_num_limits; i++) {
        const struct vr_limit *limit = &vr_limits[i];
        g_autofree char *range = g_strdup_printf("%" PRIu64 "..%" PRIu64,
                                                 limit->min, limit->max);
        ObjectProperty *prop;

        prop = object_class_property_add(klass, limit->name, "size",
                                         vroce_get_limit, vroce_set_limit,
                                         NULL, (void *)limit);
        object_property_set_default_uint(prop, limit->dflt);
        object_class_property_set_description(klass, limit->name, range);
    }
}

static const TypeInfo vroce_info = {
    .name = TYPE_VROCE,
    .parent = TYPE_PCI_DEVICE,
    .instance_size = sizeof(VroceState),
    .class_init = vroce_class_init,
    .interfaces = (InterfaceInfo[]) {
        { INTERFACE_PCIE_DEVICE },
        { }
    },
};

static void vroce_register_types(void)
{
    type_register_static(&vroce_info);
}
type_init(vroce_register_types)
