// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Proves MMIO, DMA and interrupts by the device's bring-up block, before any
 * queue depends on them: what fails here is named, what fails later is not.
 */
#include <linux/crc32.h>
#include <linux/dma-mapping.h>
#include <linux/interrupt.h>

#include "vroce.h"

#define VROCE_TEST_IRQ_TIMEOUT	(2 * HZ)
#define VROCE_TEST_PATTERN	0xa5

static int vroce_test_mmio(struct vroce_dev *dev)
{
	static const u32 values[] = { 0, ~0u, 0x12345678, 0x80000001 };
	int i;

	for (i = 0; i < ARRAY_SIZE(values); i++) {
		u32 got;

		vroce_write(dev, VROCE_REG_SCRATCH, values[i]);
		got = vroce_read(dev, VROCE_REG_SCRATCH);
		if (got != ~values[i]) {
			dev_err(&dev->pdev->dev,
				"self-test: scratch register reads %#x after writing %#x, not its inverse\n",
				got, values[i]);
			return -EIO;
		}
	}
	return 0;
}

static int vroce_test_dma_cmd(struct vroce_dev *dev, enum vroce_dma_cmd cmd,
			      const char *name)
{
	u32 status;

	vroce_write(dev, VROCE_REG_DMA_CMD, cmd);
	status = vroce_read(dev, VROCE_REG_DMA_STATUS);
	if (status != VROCE_DMA_OK) {
		dev_err(&dev->pdev->dev, "self-test: DMA %s ends in status %u\n",
			name, status);
		return -EIO;
	}
	return 0;
}

/* Half a page is filled, copied to the other half, and summed there. */
static int vroce_test_dma(struct vroce_dev *dev)
{
	struct device *d = &dev->pdev->dev;
	size_t half = PAGE_SIZE / 2;
	dma_addr_t dma;
	u32 want, got;
	u8 *mem;
	int err;

	mem = dma_alloc_coherent(d, PAGE_SIZE, &dma, GFP_KERNEL);
	if (!mem)
		return -ENOMEM;

	vroce_write(dev, VROCE_REG_DMA_LEN, half);
	vroce_write(dev, VROCE_REG_DMA_PATTERN, VROCE_TEST_PATTERN);
	vroce_write64(dev, VROCE_REG_DMA_DST, dma);
	err = vroce_test_dma_cmd(dev, VROCE_DMA_FILL, "fill");
	if (err)
		goto out;
	err = -EIO;
	if (memchr_inv(mem, VROCE_TEST_PATTERN, half) ||
	    memchr_inv(mem + half, 0, half)) {
		dev_err(d, "self-test: DMA fill did not write what and where it should\n");
		goto out;
	}

	/* Equal bytes would not show if some changed places. */
	for (size_t i = 0; i < half; i++)
		mem[i] = i ^ i >> 8;
	vroce_write64(dev, VROCE_REG_DMA_SRC, dma);
	vroce_write64(dev, VROCE_REG_DMA_DST, dma + half);
	err = vroce_test_dma_cmd(dev, VROCE_DMA_COPY, "copy");
	if (err)
		goto out;
	err = -EIO;
	if (memcmp(mem, mem + half, half)) {
		dev_err(d, "self-test: DMA copy differs from its source\n");
		goto out;
	}

	vroce_write64(dev, VROCE_REG_DMA_SRC, dma + half);
	err = vroce_test_dma_cmd(dev, VROCE_DMA_CHECKSUM, "checksum");
	if (err)
		goto out;
	got = vroce_read(dev, VROCE_REG_DMA_CRC);
	want = ~crc32_le(~0u, mem + half, half);
	if (got != want) {
		dev_err(d, "self-test: DMA checksum is %#x, not %#x\n", got, want);
		err = -EIO;
	}
out:
	dma_free_coherent(d, PAGE_SIZE, mem, dma);
	return err;
}

static irqreturn_t vroce_test_irq_handler(int irq, void *done)
{
	complete(done);
	return IRQ_HANDLED;
}

static int vroce_test_irq(struct vroce_dev *dev, int vector)
{
	DECLARE_COMPLETION_ONSTACK(done);
	int irq = pci_irq_vector(dev->pdev, vector);
	int err;

	err = request_irq(irq, vroce_test_irq_handler, 0, "vroce-selftest",
			  &done);
	if (err)
		return err;
	vroce_write(dev, VROCE_REG_TEST_IRQ, vector);
	if (!wait_for_completion_timeout(&done, VROCE_TEST_IRQ_TIMEOUT)) {
		dev_err(&dev->pdev->dev,
			"self-test: interrupt vector %d was raised and did not arrive\n",
			vector);
		err = -EIO;
	}
	free_irq(irq, &done);
	return err;
}

/**
 * vroce_selftest - run the bring-up block
 * @dev: device after reset, with its vectors allocated and not yet requested
 *
 * Return: 0, or an error after a message that says what does not work.
 */
int vroce_selftest(struct vroce_dev *dev)
{
	int err, i;

	err = vroce_test_mmio(dev);
	if (err)
		return err;
	err = vroce_test_dma(dev);
	if (err)
		return err;
	for (i = 0; i < dev->num_vectors; i++) {
		err = vroce_test_irq(dev, i);
		if (err)
			return err;
	}
	return 0;
}
