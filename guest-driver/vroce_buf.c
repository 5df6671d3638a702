// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Page lists: how the device is told of memory that is not contiguous. One
 * builder serves the queues of user space, memory regions and fast
 * registration. The device keeps a copy of a list once a command that names
 * it has completed, so only lists for fast registration live on.
 */
#include <linux/dma-mapping.h>
#include <rdma/ib_umem.h>

#include "vroce_buf.h"
#include "vroce_compat.h"

#define VROCE_TABLE_SIZE	(VROCE_PTES_PER_PAGE * sizeof(__le64))
#define VROCE_MAX_LEVELS	3

static void vroce_table_free(struct vroce_dev *dev, struct vroce_table *table)
{
	if (!table->entries)
		return;
	dma_unmap_single(&dev->pdev->dev, table->dma, VROCE_TABLE_SIZE,
			 DMA_TO_DEVICE);
	kfree(table->entries);
}

/* A table of this size is aligned to it, as kmalloc() promises. */
static int vroce_table_alloc(struct vroce_dev *dev, struct vroce_table *table)
{
	__le64 *entries = kzalloc(VROCE_TABLE_SIZE, GFP_KERNEL);

	if (!entries)
		return -ENOMEM;
	table->dma = dma_map_single(&dev->pdev->dev, entries, VROCE_TABLE_SIZE,
				    DMA_TO_DEVICE);
	if (dma_mapping_error(&dev->pdev->dev, table->dma)) {
		kfree(entries);
		return -ENOMEM;
	}
	table->entries = entries;
	return 0;
}

static void vroce_table_sync(struct vroce_dev *dev, struct vroce_table *table)
{
	dma_sync_single_for_device(&dev->pdev->dev, table->dma,
				   VROCE_TABLE_SIZE, DMA_TO_DEVICE);
}

/* Makes the @n tables from @above on point to the @below tables before. */
static void vroce_link_tables(struct vroce_page_list *list, u32 first,
			      u32 below, u32 above)
{
	u32 i;

	for (i = 0; i < below; i++) {
		struct vroce_table *up =
			&list->tables[above + i / VROCE_PTES_PER_PAGE];

		up->entries[i % VROCE_PTES_PER_PAGE] =
			cpu_to_le64(list->tables[first + i].dma |
				    VROCE_PTE_VALID);
		if (i % VROCE_PTES_PER_PAGE == VROCE_PTES_PER_PAGE - 1 ||
		    i == below - 1)
			vroce_table_sync(list->dev, up);
	}
}

/**
 * vroce_page_list_alloc - make an empty list
 * @dev: device
 * @list: list to be initialised
 * @capacity: page entries, at least one
 *
 * Return: 0, -ENOMEM, or -EINVAL if no list is that long.
 */
int vroce_page_list_alloc(struct vroce_dev *dev, struct vroce_page_list *list,
			  u64 capacity)
{
	u32 count[VROCE_MAX_LEVELS], first, i;
	int levels = 0, level, err;
	u64 n = capacity;

	memset(list, 0, sizeof(*list));
	if (!capacity || capacity > U32_MAX)
		return -EINVAL;
	do {
		if (levels == VROCE_MAX_LEVELS)
			return -EINVAL;
		n = DIV_ROUND_UP_ULL(n, VROCE_PTES_PER_PAGE);
		count[levels++] = n;
		list->num_tables += n;
	} while (n > 1);

	list->dev = dev;
	list->capacity = capacity;
	list->tables = kvcalloc(list->num_tables, sizeof(*list->tables),
				GFP_KERNEL);
	if (!list->tables)
		return -ENOMEM;
	for (i = 0; i < list->num_tables; i++) {
		err = vroce_table_alloc(dev, &list->tables[i]);
		if (err) {
			vroce_page_list_free(list);
			return err;
		}
		cond_resched();
	}
	for (level = 0, first = 0; level < levels - 1; level++) {
		vroce_link_tables(list, first, count[level],
				  first + count[level]);
		first += count[level];
	}
	list->buf.addr = cpu_to_le64(list->tables[list->num_tables - 1].dma);
	list->buf.levels = levels;
	return 0;
}

/**
 * vroce_page_list_free - free a list
 * @list: list that was allocated, or is all zero
 */
void vroce_page_list_free(struct vroce_page_list *list)
{
	u32 i;

	if (!list->tables)
		return;
	for (i = 0; i < list->num_tables; i++)
		vroce_table_free(list->dev, &list->tables[i]);
	kvfree(list->tables);
	list->tables = NULL;
}

/**
 * vroce_page_list_begin - take the page entries back from the device
 * @list: list whose entries are about to be set
 */
void vroce_page_list_begin(struct vroce_page_list *list)
{
	u32 i, n = DIV_ROUND_UP(list->capacity, VROCE_PTES_PER_PAGE);

	for (i = 0; i < n; i++)
		dma_sync_single_for_cpu(&list->dev->pdev->dev,
					list->tables[i].dma, VROCE_TABLE_SIZE,
					DMA_TO_DEVICE);
}

/**
 * vroce_page_list_set - set a page entry
 * @list: list between begin and end
 * @index: of the entry, below the list's capacity
 * @addr: bus address of the page
 * @write: the device may write to it
 */
void vroce_page_list_set(struct vroce_page_list *list, u32 index, u64 addr,
			 bool write)
{
	list->tables[index / VROCE_PTES_PER_PAGE]
		.entries[index % VROCE_PTES_PER_PAGE] =
		cpu_to_le64(addr | VROCE_PTE_VALID |
			    (write ? VROCE_PTE_WRITE : 0));
}

/**
 * vroce_page_list_end - give the page entries to the device
 * @list: list whose entries are set
 * @start: address at which the memory begins; its low bits say where in the
 *	first page
 * @length: bytes
 * @page_shift: log2 of the size of each page
 */
void vroce_page_list_end(struct vroce_page_list *list, u64 start, u64 length,
			 unsigned int page_shift)
{
	u32 i, n = DIV_ROUND_UP(list->capacity, VROCE_PTES_PER_PAGE);

	for (i = 0; i < n; i++)
		vroce_table_sync(list->dev, &list->tables[i]);
	list->buf.offset = cpu_to_le32(start & (BIT_ULL(page_shift) - 1));
	list->buf.length = cpu_to_le64(length);
	list->buf.page_shift = page_shift;
}

/**
 * vroce_page_list_from_umem - make the list of pinned user memory
 * @dev: device
 * @list: list to be initialised
 * @umem: the memory
 * @start: address at which the consumer sees it
 * @write: the device may write to it
 *
 * Return: 0, -ENOMEM, or -EINVAL if the device knows no page size that fits.
 */
int vroce_page_list_from_umem(struct vroce_dev *dev,
			      struct vroce_page_list *list,
			      struct ib_umem *umem, u64 start, bool write)
{
	unsigned long page_size;
	struct ib_block_iter block;
	u32 i = 0;
	int err;

	page_size = ib_umem_find_best_pgsz(umem,
					   le64_to_cpu(dev->caps.page_size_cap),
					   start);
	if (!page_size)
		return -EINVAL;
	err = vroce_page_list_alloc(dev, list,
				    ib_umem_num_dma_blocks(umem, page_size));
	if (err)
		return err;

	vroce_page_list_begin(list);
	rdma_umem_for_each_dma_block(umem, &block, page_size) {
		vroce_page_list_set(list, i++,
				    rdma_block_iter_dma_address(&block), write);
		if (i % VROCE_PTES_PER_PAGE == 0)
			cond_resched();
	}
	vroce_page_list_end(list, start, umem->length, ilog2(page_size));
	return 0;
}
