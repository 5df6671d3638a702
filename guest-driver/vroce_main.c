// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Driver of the vroce RDMA network card: the life cycle of its PCI function.
 *
 * vroce_probe() claims the function's resources; vroce_start() brings the
 * device up from reset and registers both of its sides, vroce_stop() undoes
 * that. Reset and error recovery stop and start.
 */
#include <linux/delay.h>
#include <linux/iopoll.h>
#include <linux/module.h>

#include "vroce.h"

#define VROCE_RESET_TIMEOUT_US	(2 * USEC_PER_SEC)

static void vroce_fail_work(struct work_struct *work)
{
	struct vroce_dev *dev = container_of(work, struct vroce_dev, fail_work);

	mutex_lock(&dev->life_lock);
	if (vroce_failed(dev)) {
		vroce_netdev_fail(dev);
		vroce_ib_fail(dev);
	}
	mutex_unlock(&dev->life_lock);
}

/**
 * vroce_fail - give the device up
 * @dev: device
 * @why: for the log
 *
 * Takes the device off the bus, so that it does no more DMA and memory that it
 * was told of may be freed, and fails all commands. Its state stays as it is
 * for whoever debugs it, until it is started again. Any context.
 */
void vroce_fail(struct vroce_dev *dev, const char *why)
{
	if (test_and_set_bit(VROCE_DEV_FAILED, &dev->flags))
		return;

	dev_err(&dev->pdev->dev,
		"%s; status %#x, fatal cause %u: device given up, reset it or bind it again\n",
		why, vroce_read(dev, VROCE_REG_STATUS),
		vroce_read(dev, VROCE_REG_FATAL));
	pci_clear_master(dev->pdev);
	vroce_cmdq_abort(dev);
	schedule_work(&dev->fail_work);
}

static int vroce_identify(struct vroce_dev *dev)
{
	u32 id = vroce_read(dev, VROCE_REG_ID);
	u32 version = vroce_read(dev, VROCE_REG_VERSION);

	if (id != VROCE_ID_MAGIC) {
		dev_err(&dev->pdev->dev,
			"identity register reads %#x, not %#x: not a vroce card, or its BARs cannot be reached\n",
			id, VROCE_ID_MAGIC);
		return -ENODEV;
	}
	if (version >> 16 != VROCE_VERSION >> 16) {
		dev_err(&dev->pdev->dev,
			"device has interface version %u.%u, this driver knows %u.x\n",
			version >> 16, version & 0xffff, VROCE_VERSION >> 16);
		return -ENODEV;
	}
	return 0;
}

static int vroce_reset(struct vroce_dev *dev)
{
	u32 val;
	int err;

	vroce_write(dev, VROCE_REG_RESET, VROCE_RESET_MAGIC);
	err = readl_poll_timeout(dev->regs + VROCE_REG_STATUS, val,
				 val != ~0u && (val & VROCE_STATUS_READY) &&
				 !(val & VROCE_STATUS_ENABLED),
				 1000, VROCE_RESET_TIMEOUT_US);
	if (err)
		dev_err(&dev->pdev->dev,
			"device is not ready %lu ms after reset, status %#x\n",
			VROCE_RESET_TIMEOUT_US / USEC_PER_MSEC, val);
	return err;
}

static int vroce_alloc_vectors(struct vroce_dev *dev)
{
	u32 have = vroce_read(dev, VROCE_REG_VECTORS);
	u32 want = min_t(u32, have, num_online_cpus() + VROCE_FIRST_COMP_VECTOR);
	int n;

	if (have <= VROCE_FIRST_COMP_VECTOR || have > VROCE_MAX_VECTORS) {
		dev_err(&dev->pdev->dev,
			"device has %u interrupt vectors, %d..%d are needed\n",
			have, VROCE_FIRST_COMP_VECTOR + 1, VROCE_MAX_VECTORS);
		return -EINVAL;
	}
	n = pci_alloc_irq_vectors(dev->pdev, VROCE_FIRST_COMP_VECTOR + 1, want,
				  PCI_IRQ_MSIX);
	if (n < 0) {
		dev_err(&dev->pdev->dev, "no MSI-X vectors: %d\n", n);
		return n;
	}
	dev->num_vectors = n;
	dev->num_comp_eqs = n - VROCE_FIRST_COMP_VECTOR;
	return 0;
}

static int vroce_bring_up(struct vroce_dev *dev)
{
	int err;

	clear_bit(VROCE_DEV_FAILED, &dev->flags);
	pci_set_master(dev->pdev);
	err = vroce_identify(dev);
	if (err)
		goto err_master;
	err = vroce_reset(dev);
	if (err)
		goto err_master;
	vroce_write(dev, VROCE_REG_DB_SHIFT, PAGE_SHIFT);
	if (vroce_read(dev, VROCE_REG_DB_SHIFT) != PAGE_SHIFT) {
		dev_err(&dev->pdev->dev, "device has no doorbell pages of %lu bytes\n",
			PAGE_SIZE);
		err = -EOPNOTSUPP;
		goto err_reset;
	}

	err = vroce_alloc_vectors(dev);
	if (err)
		goto err_reset;
	err = vroce_selftest(dev);
	if (err)
		goto err_vectors;
	err = vroce_cmdq_init(dev);
	if (err)
		goto err_vectors;
	err = vroce_mgmt_irq_init(dev);
	if (err)
		goto err_cmdq;
	err = vroce_cmd(dev, VROCE_CMD_QUERY_DEVICE, NULL, 0, &dev->caps,
			sizeof(dev->caps));
	if (err)
		goto err_mgmt_irq;
	err = vroce_eqs_init(dev);
	if (err)
		goto err_mgmt_irq;
	err = vroce_netdev_init(dev);
	if (err)
		goto err_eqs;
	err = vroce_ib_init(dev);
	if (err)
		goto err_netdev;
	return 0;

err_netdev:
	vroce_netdev_exit(dev);
err_eqs:
	vroce_eqs_exit(dev);
err_mgmt_irq:
	vroce_mgmt_irq_exit(dev);
err_cmdq:
	vroce_cmdq_exit(dev);
err_vectors:
	pci_free_irq_vectors(dev->pdev);
err_reset:
	vroce_write(dev, VROCE_REG_RESET, VROCE_RESET_MAGIC);
err_master:
	pci_clear_master(dev->pdev);
	return err;
}

static int vroce_start(struct vroce_dev *dev)
{
	int err;

	mutex_lock(&dev->life_lock);
	err = vroce_bring_up(dev);
	dev->started = !err;
	mutex_unlock(&dev->life_lock);
	return err;
}

static void vroce_tear_down(struct vroce_dev *dev)
{
	if (!pci_device_is_present(dev->pdev))
		vroce_fail(dev, "device is gone");

	vroce_ib_exit(dev);
	vroce_netdev_exit(dev);
	vroce_eqs_exit(dev);
	vroce_mgmt_irq_exit(dev);
	vroce_cmdq_exit(dev);
	pci_free_irq_vectors(dev->pdev);
	vroce_write(dev, VROCE_REG_RESET, VROCE_RESET_MAGIC);
	pci_clear_master(dev->pdev);
}

/* Does nothing to a device whose last start has failed. */
static void vroce_stop(struct vroce_dev *dev)
{
	mutex_lock(&dev->life_lock);
	if (dev->started)
		vroce_tear_down(dev);
	dev->started = false;
	mutex_unlock(&dev->life_lock);
	cancel_work_sync(&dev->fail_work);
}

static int vroce_map(struct vroce_dev *dev)
{
	struct pci_dev *pdev = dev->pdev;

	if (pci_resource_len(pdev, VROCE_BAR_REGS) < VROCE_REGS_SIZE ||
	    pci_resource_len(pdev, VROCE_BAR_DOORBELL) < PAGE_SIZE) {
		dev_err(&pdev->dev, "BAR %d or %d is too small or has no address\n",
			VROCE_BAR_REGS, VROCE_BAR_DOORBELL);
		return -ENODEV;
	}
	dev->db_phys = pci_resource_start(pdev, VROCE_BAR_DOORBELL);
	dev->regs = pci_ioremap_bar(pdev, VROCE_BAR_REGS);
	if (!dev->regs)
		return -ENOMEM;
	dev->db = ioremap(dev->db_phys, PAGE_SIZE);
	if (!dev->db) {
		iounmap(dev->regs);
		return -ENOMEM;
	}
	return 0;
}

static int vroce_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct vroce_dev *dev;
	int err;

	dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	if (!dev)
		return -ENOMEM;
	dev->pdev = pdev;
	xa_init(&dev->cqs);
	xa_init(&dev->qps);
	xa_init(&dev->srqs);
	mutex_init(&dev->qp_lock);
	mutex_init(&dev->life_lock);
	spin_lock_init(&dev->port_lock);
	vroce_cmdq_setup(&dev->cmdq);
	INIT_WORK(&dev->fail_work, vroce_fail_work);
	pci_set_drvdata(pdev, dev);

	err = pci_enable_device_mem(pdev);
	if (err)
		goto err_free;
	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (err) {
		dev_err(&pdev->dev, "no 64-bit DMA: %d\n", err);
		goto err_disable;
	}
	dma_set_max_seg_size(&pdev->dev, UINT_MAX);
	err = pci_request_mem_regions(pdev, VROCE_DRV_NAME);
	if (err)
		goto err_disable;
	err = vroce_map(dev);
	if (err)
		goto err_regions;
	err = vroce_start(dev);
	if (err)
		goto err_unmap;
	pci_save_state(pdev);
	return 0;

err_unmap:
	iounmap(dev->db);
	iounmap(dev->regs);
err_regions:
	pci_release_mem_regions(pdev);
err_disable:
	pci_disable_device(pdev);
err_free:
	cancel_work_sync(&dev->fail_work);
	mutex_destroy(&dev->life_lock);
	mutex_destroy(&dev->qp_lock);
	kfree(dev);
	return err;
}

static void vroce_remove(struct pci_dev *pdev)
{
	struct vroce_dev *dev = pci_get_drvdata(pdev);

	vroce_stop(dev);
	iounmap(dev->db);
	iounmap(dev->regs);
	pci_release_mem_regions(pdev);
	pci_disable_device(pdev);
	WARN_ON(!xa_empty(&dev->cqs) || !xa_empty(&dev->qps) ||
		!xa_empty(&dev->srqs));
	mutex_destroy(&dev->life_lock);
	mutex_destroy(&dev->qp_lock);
	kfree(dev);
}

/* The next kernel must not be written to by the last one's queues. */
static void vroce_shutdown(struct pci_dev *pdev)
{
	struct vroce_dev *dev = pci_get_drvdata(pdev);

	vroce_stop(dev);
}

static pci_ers_result_t vroce_error_detected(struct pci_dev *pdev,
					     pci_channel_state_t state)
{
	struct vroce_dev *dev = pci_get_drvdata(pdev);

	if (state == pci_channel_io_normal)
		return PCI_ERS_RESULT_CAN_RECOVER;

	vroce_fail(dev, "PCI error");
	vroce_stop(dev);
	return state == pci_channel_io_perm_failure ?
		PCI_ERS_RESULT_DISCONNECT : PCI_ERS_RESULT_NEED_RESET;
}

static pci_ers_result_t vroce_slot_reset(struct pci_dev *pdev)
{
	struct vroce_dev *dev = pci_get_drvdata(pdev);

	pci_restore_state(pdev);
	pci_save_state(pdev);
	return vroce_start(dev) ? PCI_ERS_RESULT_DISCONNECT :
		PCI_ERS_RESULT_RECOVERED;
}

static void vroce_reset_prepare(struct pci_dev *pdev)
{
	struct vroce_dev *dev = pci_get_drvdata(pdev);

	vroce_stop(dev);
}

static void vroce_reset_done(struct pci_dev *pdev)
{
	struct vroce_dev *dev = pci_get_drvdata(pdev);
	int err;

	err = vroce_start(dev);
	if (err)
		dev_err(&pdev->dev, "no restart after reset: %d\n", err);
}

static const struct pci_error_handlers vroce_err_handlers = {
	.error_detected = vroce_error_detected,
	.slot_reset = vroce_slot_reset,
	.reset_prepare = vroce_reset_prepare,
	.reset_done = vroce_reset_done,
};

static const struct pci_device_id vroce_ids[] = {
	{ PCI_DEVICE(VROCE_PCI_VENDOR, VROCE_PCI_DEVICE) },
	{ }
};
MODULE_DEVICE_TABLE(pci, vroce_ids);

static struct pci_driver vroce_driver = {
	.name = VROCE_DRV_NAME,
	.id_table = vroce_ids,
	.probe = vroce_probe,
	.remove = vroce_remove,
	.shutdown = vroce_shutdown,
	.err_handler = &vroce_err_handlers,
};
module_pci_driver(vroce_driver);

MODULE_DESCRIPTION("vroce RDMA network card");
MODULE_LICENSE("Dual BSD/GPL");
