/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What differs between the kernels that this out-of-tree driver builds for. */
#ifndef VROCE_COMPAT_H
#define VROCE_COMPAT_H

/* Walking a umem by blocks has left rdma/ib_umem.h. */
#if __has_include("rdma/iter.h")
#include <rdma/iter.h>
#endif

#endif /* VROCE_COMPAT_H */
