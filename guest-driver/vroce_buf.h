/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef VROCE_BUF_H
#define VROCE_BUF_H

#include "vroce.h"

struct ib_umem;

/* A 4 KiB page of entries, or of pointers to such pages. */
struct vroce_table {
	__le64 *entries;
	dma_addr_t dma;
};

/*
 * struct vroce_page_list - list of pages in memory that the device reads
 * @buf: how commands and WQEs name it
 * @capacity: page entries it has room for
 * @num_tables: tables of all levels, those with page entries first
 */
struct vroce_page_list {
	struct vroce_dev *dev;
	struct vroce_buf buf;
	u32 capacity;
	u32 num_tables;
	struct vroce_table *tables;
};

int vroce_page_list_alloc(struct vroce_dev *dev, struct vroce_page_list *list,
			  u64 capacity);
void vroce_page_list_free(struct vroce_page_list *list);
void vroce_page_list_begin(struct vroce_page_list *list);
void vroce_page_list_set(struct vroce_page_list *list, u32 index, u64 addr,
			 bool write);
void vroce_page_list_end(struct vroce_page_list *list, u64 start, u64 length,
			 unsigned int page_shift);
int vroce_page_list_from_umem(struct vroce_dev *dev,
			      struct vroce_page_list *list,
			      struct ib_umem *umem, u64 start, bool write);

#endif /* VROCE_BUF_H */
