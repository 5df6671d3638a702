// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * vroce_xfer - move data by RDMA between two machines and prove that it arrived
 *
 * The server listens on TCP; the client connects there to exchange queue pair
 * numbers and, after each transfer, checksums.  Whichever side is the source
 * fills its buffer from a fresh seed and the other side clears its own, so
 * that data of an earlier transfer cannot pass for this one's.
 *
 * Exit status: 0 if every checksum matched, 1 otherwise, 2 for wrong usage.
 */
#include <endian.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#define DEFAULT_PORT	"18600"
#define DEPTH		16	/* messages in flight */

enum op { OP_SEND, OP_WRITE, OP_READ, OP_COUNT };

static const char *const op_names[OP_COUNT] = { "send", "write", "read" };

struct options {
	const char *server;	/* NULL: be the server */
	const char *port;
	const char *device;
	int gid_index;
	uint64_t size;
	uint32_t message;
	unsigned int ops;	/* bit mask of enum op */
	unsigned long rounds;
	unsigned long loops;
	bool poll;
};

/* What the sides tell each other before the first transfer, big-endian. */
struct hello {
	uint64_t size;
	uint64_t va;
	uint32_t rkey;
	uint32_t qpn;
	uint32_t psn;
	uint32_t message;
	uint32_t ops;
	uint32_t rounds;
	uint32_t loops;
	uint32_t mtu;
	uint8_t gid[16];
} __attribute__((packed));

struct xfer {
	struct options opt;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	void *buf;
	enum ibv_mtu mtu;
	uint32_t psn;
	union ibv_gid gid;
	struct hello peer;	/* host byte order */
	int sock;
	double completed;	/* when the last completion came */
};

static void __attribute__((noreturn, format(printf, 1, 2)))
die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("vroce_xfer: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* ------------------------------------------------------------------ data */

/* xorshift64*: cheap, and no two words of a buffer are alike. */
static void fill(void *buf, uint64_t size, uint64_t seed)
{
	unsigned char *p = buf;
	uint64_t left, value;

	for (left = size; left; ) {
		size_t n = left < sizeof(value) ? left : sizeof(value);

		seed ^= seed >> 12;
		seed ^= seed << 25;
		seed ^= seed >> 27;
		value = seed * UINT64_C(2685821657736338717);
		memcpy(p, &value, n);
		p += n;
		left -= n;
	}
}

/* Depends on every byte and on its place. */
static uint64_t checksum(const void *buf, uint64_t size)
{
	uint64_t sum = UINT64_C(14695981039346656037) ^ size;
	const unsigned char *p = buf;
	uint64_t left, value;

	for (left = size; left; ) {
		size_t n = left < sizeof(value) ? left : sizeof(value);

		value = 0;
		memcpy(&value, p, n);
		sum = (sum ^ value) * UINT64_C(1099511628211);
		sum ^= sum >> 29;
		p += n;
		left -= n;
	}
	return sum;
}

static uint64_t random64(void)
{
	uint64_t value;

	if (getrandom(&value, sizeof(value), 0) != sizeof(value))
		die("getrandom: %s", strerror(errno));
	return value | 1;	/* xorshift stays at 0 forever */
}

/* ------------------------------------------------------------- bootstrap */

static int tcp_connect(const struct options *opt)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *list, *ai;
	int error, fd = -1;

	error = getaddrinfo(opt->server, opt->port, &hints, &list);
	if (error)
		die("%s port %s: %s", opt->server, opt->port,
		    gai_strerror(error));
	for (ai = list; ai; ai = ai->ai_next) {
		fd = socket(ai->ai_family, ai->ai_socktype, ai->ai_protocol);
		if (fd >= 0 && !connect(fd, ai->ai_addr, ai->ai_addrlen))
			break;
		if (fd >= 0)
			close(fd);
		fd = -1;
	}
	freeaddrinfo(list);
	if (fd < 0)
		die("cannot connect to %s port %s: %s", opt->server, opt->port,
		    strerror(errno));
	return fd;
}

static int tcp_accept(const struct options *opt)
{
	struct addrinfo hints = {
		.ai_family = AF_INET6,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE,
	};
	struct addrinfo *ai;
	int error, listener, fd, one = 1;

	error = getaddrinfo(NULL, opt->port, &hints, &ai);
	if (error)
		die("port %s: %s", opt->port, gai_strerror(error));
	listener = socket(ai->ai_family, ai->ai_socktype, ai->ai_protocol);
	if (listener < 0)
		die("socket: %s", strerror(errno));
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, ai->ai_addr, ai->ai_addrlen) || listen(listener, 1))
		die("cannot listen on port %s: %s", opt->port,
		    strerror(errno));
	freeaddrinfo(ai);
	fd = accept(listener, NULL, NULL);
	if (fd < 0)
		die("accept: %s", strerror(errno));
	close(listener);
	return fd;
}

/*
 * Until the other side says something.  When the device is taken away, its
 * network interface goes too, and nothing would ever come from there.
 */
static void wait_for_peer(struct xfer *x)
{
	struct pollfd fds[] = {
		{ .fd = x->sock, .events = POLLIN },
		{ .fd = x->context->async_fd, .events = POLLIN },
	};
	struct ibv_async_event event;

	while (!fds[0].revents) {
		if (poll(fds, 2, -1) < 0)
			die("poll: %s", strerror(errno));
		if (!fds[1].revents)
			continue;
		if (ibv_get_async_event(x->context, &event))
			die("the device is gone");
		if (event.event_type == IBV_EVENT_DEVICE_FATAL)
			die("the device failed or is gone");
		printf("event: %s\n", ibv_event_type_str(event.event_type));
		ibv_ack_async_event(&event);
	}
}

static void tell(struct xfer *x, const void *buf, size_t len)
{
	if (send(x->sock, buf, len, MSG_NOSIGNAL) != (ssize_t)len)
		die("the other side is gone: %s", strerror(errno));
}

static void hear(struct xfer *x, void *buf, size_t len)
{
	ssize_t n;

	wait_for_peer(x);
	n = recv(x->sock, buf, len, MSG_WAITALL);
	if (n != (ssize_t)len)
		die("the other side is gone%s%s", n < 0 ? ": " : "",
		    n < 0 ? strerror(errno) : "");
}

static uint64_t swap64(struct xfer *x, uint64_t mine)
{
	uint64_t value = htobe64(mine);

	tell(x, &value, sizeof(value));
	hear(x, &value, sizeof(value));
	return be64toh(value);
}

/* Both sides wait until both are here. */
static void barrier(struct xfer *x)
{
	swap64(x, 0);
}

static void exchange_hello(struct xfer *x)
{
	struct hello mine = {
		.size = htobe64(x->opt.size),
		.va = htobe64((uintptr_t)x->buf),
		.rkey = htobe32(x->mr->rkey),
		.qpn = htobe32(x->qp->qp_num),
		.psn = htobe32(x->psn),
		.message = htobe32(x->opt.message),
		.ops = htobe32(x->opt.ops),
		.rounds = htobe32(x->opt.rounds),
		.loops = htobe32(x->opt.loops),
		.mtu = htobe32(x->mtu),
	};
	struct hello *peer = &x->peer;

	memcpy(mine.gid, &x->gid, sizeof(mine.gid));
	tell(x, &mine, sizeof(mine));
	hear(x, peer, sizeof(*peer));
	peer->size = be64toh(peer->size);
	peer->va = be64toh(peer->va);
	peer->rkey = be32toh(peer->rkey);
	peer->qpn = be32toh(peer->qpn);
	peer->psn = be32toh(peer->psn);
	peer->message = be32toh(peer->message);
	peer->ops = be32toh(peer->ops);
	peer->rounds = be32toh(peer->rounds);
	peer->loops = be32toh(peer->loops);
	peer->mtu = be32toh(peer->mtu);
	if (peer->size != x->opt.size || peer->message != x->opt.message ||
	    peer->ops != x->opt.ops || peer->rounds != x->opt.rounds ||
	    peer->loops != x->opt.loops)
		die("both sides need the same -s, -m, -o, -n and -l");
	if (peer->mtu < x->mtu)
		x->mtu = peer->mtu;
}

/* ----------------------------------------------------------------- verbs */

static void open_device(struct xfer *x)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_port_attr port;
	int i;

	if (!list || !list[0])
		die("there is no RDMA device");
	for (i = 0; list[i]; i++)
		if (!x->opt.device ||
		    !strcmp(x->opt.device, ibv_get_device_name(list[i])))
			break;
	if (!list[i])
		die("there is no RDMA device %s: see ibv_devices",
		    x->opt.device);
	x->context = ibv_open_device(list[i]);
	if (!x->context)
		die("cannot open %s: %s", ibv_get_device_name(list[i]),
		    strerror(errno));
	ibv_free_device_list(list);
	if (ibv_query_port(x->context, 1, &port))
		die("cannot query port 1: %s", strerror(errno));
	x->mtu = port.active_mtu;
	if (ibv_query_gid(x->context, 1, x->opt.gid_index, &x->gid))
		die("there is no GID %d", x->opt.gid_index);
}

static void create_resources(struct xfer *x)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};

	x->buf = aligned_alloc(4096, (x->opt.size + 4095) & ~UINT64_C(4095));
	if (!x->buf)
		die("no memory for %" PRIu64 " bytes", x->opt.size);
	x->pd = ibv_alloc_pd(x->context);
	if (!x->pd)
		die("ibv_alloc_pd: %s", strerror(errno));
	x->mr = ibv_reg_mr(x->pd, x->buf, x->opt.size,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_READ);
	if (!x->mr)
		die("ibv_reg_mr of %" PRIu64 " bytes: %s", x->opt.size,
		    strerror(errno));
	x->channel = ibv_create_comp_channel(x->context);
	if (!x->channel)
		die("ibv_create_comp_channel: %s", strerror(errno));
	x->cq = ibv_create_cq(x->context, 2 * DEPTH, NULL, x->channel, 0);
	if (!x->cq)
		die("ibv_create_cq: %s", strerror(errno));
	attr.send_cq = x->cq;
	attr.recv_cq = x->cq;
	x->qp = ibv_create_qp(x->pd, &attr);
	if (!x->qp)
		die("ibv_create_qp: %s", strerror(errno));
	x->psn = random64() & 0xffffff;
}

static void modify(struct xfer *x, struct ibv_qp_attr *attr, int mask,
		   const char *state)
{
	int error = ibv_modify_qp(x->qp, attr, mask);

	if (error)
		die("ibv_modify_qp to %s: %s", state, strerror(error));
}

static void connect_qp(struct xfer *x)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ,
	};
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = x->mtu,
		.dest_qp_num = x->peer.qpn,
		.rq_psn = x->peer.psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = {
				.sgid_index = x->opt.gid_index,
				.hop_limit = 64,
			},
		},
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = x->psn,
		.max_rd_atomic = 4,
		.timeout = 17,		/* 0.54 s: guests share a few cores */
		.retry_cnt = 7,
		.rnr_retry = 7,
	};

	memcpy(&rtr.ah_attr.grh.dgid, x->peer.gid, sizeof(x->peer.gid));
	modify(x, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
	       IBV_QP_ACCESS_FLAGS, "INIT");
	modify(x, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
	       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
	       IBV_QP_MIN_RNR_TIMER, "RTR");
	modify(x, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
	       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
	       "RTS");
}

/* Sleep until the completion queue has something, unless told to poll. */
static void wait_for_event(struct xfer *x)
{
	struct ibv_cq *cq;
	void *context;

	if (x->opt.poll)
		return;
	if (ibv_get_cq_event(x->channel, &cq, &context))
		die("ibv_get_cq_event: %s", strerror(errno));
	ibv_ack_cq_events(cq, 1);
}

/* Returns the number of completions taken, at least 1. */
static int take_completions(struct xfer *x)
{
	struct ibv_wc wc[DEPTH];
	bool armed = false;
	int i, n;

	for (;;) {
		n = ibv_poll_cq(x->cq, DEPTH, wc);
		if (n)
			break;
		if (armed) {
			wait_for_event(x);
			armed = false;
		} else {
			/* What came before arming raises no event: look again. */
			if (!x->opt.poll && ibv_req_notify_cq(x->cq, 0))
				die("ibv_req_notify_cq failed");
			armed = true;
		}
	}
	if (n < 0)
		die("ibv_poll_cq failed");
	for (i = 0; i < n; i++)
		if (wc[i].status != IBV_WC_SUCCESS)
			die("completion of message %" PRIu64
			    ": %s (vendor error 0x%x), %.1f s after the last one",
			    wc[i].wr_id, ibv_wc_status_str(wc[i].status),
			    wc[i].vendor_err, now() - x->completed);
	x->completed = now();
	return n;
}

/* Messages that the buffer holds. */
static uint64_t buffer_count(const struct xfer *x)
{
	return (x->opt.size + x->opt.message - 1) / x->opt.message;
}

static uint64_t message_count(const struct xfer *x)
{
	return buffer_count(x) * x->opt.loops;
}

static uint64_t message_offset(const struct xfer *x, uint64_t index)
{
	return index % buffer_count(x) * x->opt.message;
}

static struct ibv_sge message_sge(const struct xfer *x, uint64_t index)
{
	uint64_t offset = message_offset(x, index);
	uint64_t left = x->opt.size - offset;

	return (struct ibv_sge) {
		.addr = (uintptr_t)x->buf + offset,
		.length = left < x->opt.message ? left : x->opt.message,
		.lkey = x->mr->lkey,
	};
}

static void post_recv(struct xfer *x, uint64_t index)
{
	struct ibv_sge sge = message_sge(x, index);
	struct ibv_recv_wr *bad, wr = {
		.wr_id = index,
		.sg_list = &sge,
		.num_sge = 1,
	};
	int error = ibv_post_recv(x->qp, &wr, &bad);

	if (error)
		die("ibv_post_recv: %s", strerror(error));
}

static void post_send(struct xfer *x, enum op op, uint64_t index)
{
	static const enum ibv_wr_opcode opcodes[OP_COUNT] = {
		[OP_SEND] = IBV_WR_SEND,
		[OP_WRITE] = IBV_WR_RDMA_WRITE,
		[OP_READ] = IBV_WR_RDMA_READ,
	};
	struct ibv_sge sge = message_sge(x, index);
	struct ibv_send_wr *bad, wr = {
		.wr_id = index,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcodes[op],
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {
			.remote_addr = x->peer.va + message_offset(x, index),
			.rkey = x->peer.rkey,
		},
	};
	int error = ibv_post_send(x->qp, &wr, &bad);

	if (error)
		die("ibv_post_send: %s", strerror(error));
}

/* ------------------------------------------------------------- transfers */

/* Keep DEPTH requests in flight until all have completed. */
static void request_all(struct xfer *x, enum op op)
{
	uint64_t count = message_count(x), posted = 0, done = 0;

	while (done < count) {
		while (posted < count && posted - done < DEPTH)
			post_send(x, op, posted++);
		done += take_completions(x);
	}
}

static uint64_t post_first_receives(struct xfer *x)
{
	uint64_t count = message_count(x), posted = 0;

	while (posted < count && posted < DEPTH)
		post_recv(x, posted++);
	return posted;
}

static void receive_all(struct xfer *x, uint64_t posted)
{
	uint64_t count = message_count(x), done = 0;

	while (done < count) {
		done += take_completions(x);
		while (posted < count && posted - done < DEPTH)
			post_recv(x, posted++);
	}
}

/* Returns whether the data arrived. */
static bool transfer(struct xfer *x, enum op op)
{
	bool client = x->opt.server, source = client == (op != OP_READ);
	uint64_t moved = x->opt.size * x->opt.loops;
	uint64_t mine, theirs, posted = 0;
	double began, seconds;

	if (source)
		fill(x->buf, x->opt.size, random64());
	else
		memset(x->buf, 0, x->opt.size);
	if (op == OP_SEND && !client)
		posted = post_first_receives(x);
	barrier(x);

	began = now();
	x->completed = began;
	if (client)
		request_all(x, op);
	else if (op == OP_SEND)
		receive_all(x, posted);
	barrier(x);
	seconds = now() - began;

	mine = checksum(x->buf, x->opt.size);
	theirs = swap64(x, mine);
	printf("%-5s %" PRIu64 " bytes in %.3f s, %.1f MiB/s, checksum here %016"
	       PRIx64 " there %016" PRIx64 " %s\n", op_names[op], moved, seconds,
	       moved / seconds / (1 << 20), mine, theirs,
	       mine == theirs ? "match" : "DIFFER");
	fflush(stdout);
	return mine == theirs;
}

/* --------------------------------------------------------------- options */

static void usage(FILE *to)
{
	fputs("usage: vroce_xfer [OPTION]... [SERVER]\n"
	      "Without SERVER: wait for a client.  With it: request the transfers.\n"
	      "  -d DEVICE   RDMA device (default: the first)\n"
	      "  -g INDEX    GID index (default: 1)\n"
	      "  -o OP,...   of send, write and read (default: all three)\n"
	      "  -s BYTES    size of a transfer, with K, M or G (default: 64M)\n"
	      "  -m BYTES    size of a message (default: 1M)\n"
	      "  -n ROUNDS   do all of it so many times (default: 1)\n"
	      "  -l LOOPS    move the data so many times before it is checked (default: 1)\n"
	      "  -P          poll for completions instead of waiting for events\n"
	      "  -p PORT     TCP port (default: " DEFAULT_PORT ")\n", to);
}

/* A number, with K, M or G for powers of 1024. */
static uint64_t parse_number(const char *text, uint64_t min, uint64_t max)
{
	static const char units[] = "KMG";
	const char *unit;
	char *end;
	uint64_t value;

	errno = 0;
	value = strtoull(text, &end, 0);
	unit = *end ? strchr(units, *end) : NULL;
	if (unit) {
		value <<= 10 * (unit - units + 1);
		end++;
	}
	if (errno || end == text || *end || *text == '-' || value < min ||
	    value > max) {
		fprintf(stderr, "vroce_xfer: '%s' is not a number from %" PRIu64
			" to %" PRIu64 "\n", text, min, max);
		exit(2);
	}
	return value;
}

static unsigned int parse_ops(char *text)
{
	unsigned int ops = 0;
	char *word;
	int op;

	for (word = strtok(text, ","); word; word = strtok(NULL, ",")) {
		for (op = 0; op < OP_COUNT; op++)
			if (!strcmp(word, op_names[op]))
				break;
		if (op == OP_COUNT) {
			fprintf(stderr, "vroce_xfer: '%s' is not one of send, write and read\n",
				word);
			exit(2);
		}
		ops |= 1u << op;
	}
	return ops;
}

static void parse_options(struct options *opt, int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "d:g:o:s:m:n:l:p:Ph")) != -1) {
		switch (c) {
		case 'd':
			opt->device = optarg;
			break;
		case 'g':
			opt->gid_index = parse_number(optarg, 0, 65535);
			break;
		case 'o':
			opt->ops = parse_ops(optarg);
			break;
		case 's':
			opt->size = parse_number(optarg, 1, UINT64_C(1) << 40);
			break;
		case 'm':
			opt->message = parse_number(optarg, 1, 1u << 30);
			break;
		case 'n':
			opt->rounds = parse_number(optarg, 1, UINT32_MAX);
			break;
		case 'l':
			opt->loops = parse_number(optarg, 1, UINT32_MAX);
			break;
		case 'p':
			opt->port = optarg;
			break;
		case 'P':
			opt->poll = true;
			break;
		case 'h':
			usage(stdout);
			exit(0);
		default:
			usage(stderr);
			exit(2);
		}
	}
	if (argc - optind > 1 || !opt->ops) {
		usage(stderr);
		exit(2);
	}
	opt->server = argv[optind];
}

int main(int argc, char **argv)
{
	struct xfer x = {
		.opt = {
			.port = DEFAULT_PORT,
			.gid_index = 1,
			.size = 64 << 20,
			.message = 1 << 20,
			.ops = (1u << OP_COUNT) - 1,
			.rounds = 1,
			.loops = 1,
		},
	};
	bool good = true;
	unsigned long round;
	int op;

	parse_options(&x.opt, argc, argv);
	open_device(&x);
	create_resources(&x);
	x.sock = x.opt.server ? tcp_connect(&x.opt) : tcp_accept(&x.opt);
	exchange_hello(&x);
	connect_qp(&x);
	barrier(&x);
	for (round = 0; round < x.opt.rounds; round++)
		for (op = 0; op < OP_COUNT; op++)
			if (x.opt.ops & (1u << op))
				good &= transfer(&x, op);
	barrier(&x);

	if (ibv_destroy_qp(x.qp) || ibv_destroy_cq(x.cq) ||
	    ibv_destroy_comp_channel(x.channel) || ibv_dereg_mr(x.mr) ||
	    ibv_dealloc_pd(x.pd) || ibv_close_device(x.context))
		die("the device did not let its objects go: %s",
		    strerror(errno));
	free(x.buf);
	close(x.sock);
	return good ? 0 : 1;
}
