// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * vroce_limits - take all that an RDMA device has, of each kind of object
 *
 * Each kind is created until the device refuses with ENOMEM.  Then one is given
 * back, which must make room for exactly one.  What was taken stays taken until
 * the end, so that in the end the device has nothing left of any kind.
 *
 * Exit status: 0 if all was as it should be, 1 otherwise, 2 for wrong usage.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#define BIG		(16u << 20)	/* bytes of a region of many pages */
#define SMALL		4096u

struct device {
	struct ibv_device *device;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	void *memory;			/* BIG bytes, no two pages adjacent */
};

/* create() returns NULL with errno, destroy() an errno. */
struct kind {
	const char *name;
	void *(*create)(struct device *dev);
	int (*destroy)(void *object);
	void **objects;
	size_t count;
};

static void *create_context(struct device *dev)
{
	return ibv_open_device(dev->device);
}

static int destroy_context(void *object)
{
	return ibv_close_device(object);
}

static void *create_pd(struct device *dev)
{
	return ibv_alloc_pd(dev->context);
}

static int destroy_pd(void *object)
{
	return ibv_dealloc_pd(object);
}

static void *create_cq(struct device *dev)
{
	return ibv_create_cq(dev->context, 1, NULL, NULL, 0);
}

static int destroy_cq(void *object)
{
	return ibv_destroy_cq(object);
}

static void *create_srq(struct device *dev)
{
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = 1, .max_sge = 1 },
	};

	return ibv_create_srq(dev->pd, &attr);
}

static int destroy_srq(void *object)
{
	return ibv_destroy_srq(object);
}

static void *create_qp(struct device *dev)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = dev->cq,
		.recv_cq = dev->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = 1,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};

	return ibv_create_qp(dev->pd, &attr);
}

static int destroy_qp(void *object)
{
	return ibv_destroy_qp(object);
}

/* What the device must keep of a region grows with its pages. */
static void *create_big_mr(struct device *dev)
{
	return ibv_reg_mr(dev->pd, dev->memory, BIG, IBV_ACCESS_LOCAL_WRITE);
}

static void *create_mr(struct device *dev)
{
	return ibv_reg_mr(dev->pd, dev->memory, SMALL, IBV_ACCESS_LOCAL_WRITE);
}

static int destroy_mr(void *object)
{
	return ibv_dereg_mr(object);
}

/* In an order in which each kind finds what it is made from. */
static struct kind kinds[] = {
	{ "MR of many pages", create_big_mr, destroy_mr },
	{ "SRQ", create_srq, destroy_srq },
	{ "QP", create_qp, destroy_qp },
	{ "CQ", create_cq, destroy_cq },
	{ "MR", create_mr, destroy_mr },
	{ "PD", create_pd, destroy_pd },
	{ "context", create_context, destroy_context },
};

#define NUM_KINDS	(sizeof(kinds) / sizeof(kinds[0]))

/* One more; false, with errno, when there is none. */
static bool take(struct kind *kind, struct device *dev)
{
	void *object, **objects;

	errno = 0;
	object = kind->create(dev);
	if (!object)
		return false;
	objects = reallocarray(kind->objects, kind->count + 1,
			       sizeof(*objects));
	if (!objects) {
		perror("vroce_limits");
		exit(1);
	}
	kind->objects = objects;
	objects[kind->count++] = object;
	return true;
}

static bool give_back(struct kind *kind)
{
	int error = kind->destroy(kind->objects[kind->count - 1]);

	if (error)
		printf("%s %zu cannot be destroyed: %s\n", kind->name,
		       kind->count, strerror(error));
	else
		kind->count--;
	return !error;
}

/* Returns whether the limit is one. */
static bool exhaust(struct kind *kind, struct device *dev)
{
	size_t limit;

	while (take(kind, dev))
		;
	limit = kind->count;
	printf("%s: %zu, then %s\n", kind->name, limit, strerror(errno));
	if (errno != ENOMEM || !limit)
		return false;
	if (!give_back(kind) || !take(kind, dev)) {
		printf("%s: no new one in the place of the last\n", kind->name);
		return false;
	}
	if (take(kind, dev) || errno != ENOMEM) {
		printf("%s: the limit is another the second time\n",
		       kind->name);
		return false;
	}
	return true;
}

static bool open_device(struct device *dev, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int i;

	for (i = 0; list && list[i]; i++)
		if (!name || !strcmp(name, ibv_get_device_name(list[i])))
			break;
	if (!list || !list[i]) {
		fprintf(stderr, "vroce_limits: there is no RDMA device %s\n",
			name ? name : "");
		return false;
	}
	/* The list is not freed: contexts are opened from it. */
	dev->device = list[i];
	dev->context = ibv_open_device(dev->device);
	dev->pd = dev->context ? ibv_alloc_pd(dev->context) : NULL;
	dev->cq = dev->pd ? ibv_create_cq(dev->context, 16, NULL, NULL, 0) :
			    NULL;
	if (!dev->cq) {
		perror("vroce_limits: cannot open the device");
		return false;
	}
	return true;
}

/*
 * Every other page of a mapping twice as large, moved together: no two pages
 * are neighbours in memory, as of a program that has run for long.
 */
static bool make_memory(struct device *dev)
{
	uint8_t *wide = mmap(NULL, 2 * BIG, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *area = mmap(NULL, BIG, PROT_NONE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t off;

	if (wide == MAP_FAILED || area == MAP_FAILED)
		goto fail;
	madvise(wide, 2 * BIG, MADV_NOHUGEPAGE);
	memset(wide, 1, 2 * BIG);
	for (off = 0; off < BIG; off += SMALL)
		if (mremap(wide + 2 * off, SMALL, SMALL,
			   MREMAP_MAYMOVE | MREMAP_FIXED,
			   area + off) == MAP_FAILED)
			goto fail;
	dev->memory = area;
	return true;
fail:
	perror("vroce_limits: no memory");
	return false;
}

static void raise_file_limit(void)
{
	struct rlimit limit;

	if (!getrlimit(RLIMIT_NOFILE, &limit)) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static void usage(FILE *to)
{
	fputs("usage: vroce_limits [OPTION]...\n"
	      "  -d DEVICE   RDMA device (default: the first)\n"
	      "  -p COUNT    give so many regions of many pages back: the page\n"
	      "              entries that all other objects need\n"
	      "  -w          with everything taken, wait for a line of standard input\n"
	      "  -x          exit without giving anything back\n", to);
}

int main(int argc, char **argv)
{
	struct device dev = {};
	bool good = true, wait = false, leave = false;
	const char *name = NULL;
	size_t i, room = 0;
	int c;

	while ((c = getopt(argc, argv, "d:p:wxh")) != -1) {
		switch (c) {
		case 'd':
			name = optarg;
			break;
		case 'p':
			room = strtoul(optarg, NULL, 0);
			break;
		case 'w':
			wait = true;
			break;
		case 'x':
			leave = true;
			break;
		case 'h':
			usage(stdout);
			return 0;
		default:
			usage(stderr);
			return 2;
		}
	}
	raise_file_limit();
	if (!open_device(&dev, name) || !make_memory(&dev))
		return 1;
	for (i = 0; i < NUM_KINDS; i++) {
		good &= exhaust(&kinds[i], &dev);
		fflush(stdout);
		for (; room && kinds[i].count && good; room--)
			good &= give_back(&kinds[i]);
	}
	if (wait) {
		puts("all is taken");
		fflush(stdout);
		while ((c = getchar()) != EOF && c != '\n')
			;
	}
	if (leave)
		return good ? 0 : 1;
	while (i--)
		while (kinds[i].count && give_back(&kinds[i]))
			;
	if (ibv_destroy_cq(dev.cq) || ibv_dealloc_pd(dev.pd) ||
	    ibv_close_device(dev.context)) {
		perror("vroce_limits: the device's own objects");
		good = false;
	}
	return good ? 0 : 1;
}
