// SPDX-License-Identifier: GPL-2.0-or-later
/* Many queue pairs at once, in one thread and in several. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kselftest_harness.h"
#include "common.h"

#define PAIRS	32	/* of QPs */
#define DEPTH	4	/* operations in flight of each */
#define SLOT	20000	/* bytes of one */
#define ROUNDS	12

/* One direction of one pair; a slot is in use by one operation at a time. */
struct stream {
	struct endpoint a, b;
	struct region src, dst;
	unsigned int state;	/* of the random numbers */
	struct {
		enum ibv_wr_opcode opcode;
		uint64_t seed;
		uint32_t len;
		int open;	/* completions that are missing */
	} slots[DEPTH];
};

FIXTURE(stress)
{
	struct device dev;
	struct stream *streams;
};

FIXTURE_SETUP(stress)
{
	struct endpoint_attr attr = { .max_wr = DEPTH, .max_sge = 2 };
	struct path path = {};
	int i;

	ASSERT_EQ(0, device_open(&self->dev));
	self->streams = calloc(PAIRS, sizeof(*self->streams));
	ASSERT_NE(NULL, self->streams);
	for (i = 0; i < PAIRS; i++) {
		struct stream *s = &self->streams[i];

		path.mtu = IBV_MTU_256 + i % self->dev.port.active_mtu;
		s->state = i + 1;
		ASSERT_EQ(0, endpoint_init(&s->a, &self->dev, &attr));
		ASSERT_EQ(0, endpoint_init(&s->b, &self->dev, &attr));
		ASSERT_EQ(0, endpoints_connect(&s->a, &s->b, &path));
		ASSERT_EQ(0, region_init(&s->src, self->dev.pd, DEPTH * SLOT,
					 ALL_ACCESS));
		ASSERT_EQ(0, region_init(&s->dst, self->dev.pd, DEPTH * SLOT,
					 ALL_ACCESS));
	}
}

FIXTURE_TEARDOWN(stress)
{
	int i;

	for (i = 0; i < PAIRS; i++) {
		endpoint_free(&self->streams[i].a);
		endpoint_free(&self->streams[i].b);
		region_free(&self->streams[i].src);
		region_free(&self->streams[i].dst);
	}
	free(self->streams);
	device_close(&self->dev);
}

static unsigned int draw(struct stream *s)
{
	s->state ^= s->state << 13;
	s->state ^= s->state >> 17;
	s->state ^= s->state << 5;
	return s->state;
}

/* A random operation of random length in a slot. */
static int start(struct stream *s, unsigned int slot)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
		IBV_WR_RDMA_WRITE_WITH_IMM };
	enum ibv_wr_opcode opcode = opcodes[draw(s) % 4];
	bool read = opcode == IBV_WR_RDMA_READ;
	struct region *local = read ? &s->dst : &s->src;
	struct region *remote = read ? &s->src : &s->dst;
	uint32_t len = draw(s) % 8 ? draw(s) % 2000 : draw(s) % SLOT;
	size_t off = slot * SLOT;
	struct ibv_sge sges[2] = {
		region_sge(local, off, len / 3),
		region_sge(local, off + len / 3, len - len / 3),
	};
	struct ibv_send_wr wr = send_wr(opcode, sges, remote, slot);

	wr.num_sge = 2;
	wr.wr.rdma.remote_addr += off;
	s->slots[slot].opcode = opcode;
	s->slots[slot].seed = draw(s);
	s->slots[slot].len = len;
	s->slots[slot].open = 1;
	pattern_fill(s->src.buf + off, len, s->slots[slot].seed);
	pattern_fill(s->dst.buf + off, len, s->slots[slot].seed + 1);
	if (opcode == IBV_WR_SEND || opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		s->slots[slot].open = 2;
		if (post_recv(&s->b, opcode == IBV_WR_SEND ?
			      region_sge(&s->dst, off, len) :
			      region_sge(NULL, 0, 0), slot))
			return -1;
	}
	return post_send(&s->a, &wr);
}

/* Takes what is there; returns how many operations have ended, or -1. */
static int reap(struct stream *s)
{
	struct endpoint *eps[] = { &s->a, &s->b };
	struct ibv_wc wc;
	int ended = 0, i;

	for (i = 0; i < 2; i++) {
		while (ibv_poll_cq(eps[i]->cq, 1, &wc) == 1) {
			if (wc.status != IBV_WC_SUCCESS || wc.wr_id >= DEPTH) {
				printf("# completion %llu: %s\n",
				       (unsigned long long)wc.wr_id,
				       ibv_wc_status_str(wc.status));
				return -1;
			}
			if (--s->slots[wc.wr_id].open)
				continue;
			if (region_check(&s->dst, wc.wr_id * SLOT,
					 s->slots[wc.wr_id].len,
					 s->slots[wc.wr_id].seed, 0)) {
				printf("# after operation %d\n",
				       s->slots[wc.wr_id].opcode);
				return -1;
			}
			ended++;
		}
	}
	return ended;
}

/* All streams by turns, each with several operations in flight. */
TEST_F_TIMEOUT(stress, all_at_once, 300)
{
	int left[PAIRS], flying = 0, idle = 0, i, n;
	struct stream *s;
	unsigned int k;

	for (i = 0; i < PAIRS; i++)
		left[i] = ROUNDS * DEPTH;
	for (;;) {
		bool quiet = true;

		for (i = 0; i < PAIRS; i++) {
			s = &self->streams[i];
			for (k = 0; k < DEPTH && left[i]; k++) {
				if (s->slots[k].open)
					continue;
				ASSERT_EQ(0, start(s, k));
				left[i]--;
				flying++;
			}
			n = reap(s);
			ASSERT_GE(n, 0);
			flying -= n;
			quiet &= !n;
		}
		if (!flying)
			break;
		idle = quiet ? idle + 1 : 0;
		ASSERT_LT(idle, PATIENCE * 1000);
		if (quiet)
			usleep(1000);
	}
	for (i = 0; i < PAIRS; i++) {
		EXPECT_EQ(0, region_check_guards(&self->streams[i].src));
		EXPECT_EQ(0, region_check_guards(&self->streams[i].dst));
	}
}

static void *run_stream(void *arg)
{
	struct stream *s = arg;
	int round, n, ended, idle;
	unsigned int k;

	for (round = 0; round < ROUNDS; round++) {
		for (k = 0; k < DEPTH; k++)
			if (start(s, k))
				return "post";
		for (ended = 0, idle = 0; ended < DEPTH; ended += n) {
			n = reap(s);
			if (n < 0)
				return "completion";
			if (!n && ++idle > PATIENCE * 1000)
				return "lost";
			if (!n)
				usleep(1000);
		}
	}
	return NULL;
}

TEST_F_TIMEOUT(stress, threads, 300)
{
	pthread_t threads[8];
	void *why;
	int i;

	for (i = 0; i < 8; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, run_stream,
					    &self->streams[i]));
	for (i = 0; i < 8; i++) {
		ASSERT_EQ(0, pthread_join(threads[i], &why));
		EXPECT_EQ(NULL, why) TH_LOG("stream %d: %s", i, (char *)why);
	}
}

struct posters {
	struct pair p;
	pthread_mutex_t mutex;
	int next;
};

/* Posts into the one QP whatever its turn is. */
static void *run_poster(void *arg)
{
	struct posters *posters = arg;
	struct pair *p = &posters->p;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	int i;

	for (;;) {
		pthread_mutex_lock(&posters->mutex);
		i = posters->next++;
		pthread_mutex_unlock(&posters->mutex);
		if (i >= 256)
			return NULL;
		sge = region_sge(&p->src, i * 16, 16);
		wr = send_wr(IBV_WR_RDMA_WRITE, &sge, &p->dst, i);
		wr.wr.rdma.remote_addr += i * 16;
		if (post_send(&p->a, &wr))
			return "post";
	}
}

/* Threads that share a QP: its lock must keep their requests whole. */
TEST_F_TIMEOUT(stress, one_qp_many_threads, 120)
{
	struct endpoint_attr attr = { .max_wr = 256 };
	struct posters posters = { .mutex = PTHREAD_MUTEX_INITIALIZER };
	struct path path = {};
	pthread_t threads[4];
	bool seen[256] = {};
	struct ibv_wc wc;
	void *why;
	int i;

	ASSERT_EQ(0, pair_init(&posters.p, &attr, &path, 4096));
	region_fill(&posters.p.src, 9);
	for (i = 0; i < 4; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, run_poster,
					    &posters));
	for (i = 0; i < 256; i++) {
		ASSERT_EQ(0, endpoint_wait(&posters.p.a, &wc, 1));
		ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
		ASSERT_LT(wc.wr_id, 256);
		EXPECT_FALSE(seen[wc.wr_id]);
		seen[wc.wr_id] = true;
	}
	for (i = 0; i < 4; i++) {
		ASSERT_EQ(0, pthread_join(threads[i], &why));
		EXPECT_EQ(NULL, why);
	}
	EXPECT_EQ(0, region_check(&posters.p.dst, 0, 4096, 9, 0));
	pair_free(&posters.p);
}

TEST_HARNESS_MAIN
