// SPDX-License-Identifier: GPL-2.0
/*
 * resize [DEVICE [ROUNDS [srq]]]: a CQ that is resized under load, by
 * libibverbs; with srq the receives are in an SRQ, which is resized too.
 *
 * A queue pair sends to itself, and both its queues complete in one CQ. A thread
 * resizes that CQ up and down; this one posts and polls, with ibv_poll_cq() or
 * ibv_start_poll(), asks for events and sleeps in turn. Each message has two
 * completions, in the order of the messages: none is lost, doubled or late.
 *
 * It runs on a port of InfiniBand: scripts/guest --verbs -- resize qpair0
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Messages in flight, and their completions. */
#define FLIGHT		32
#define LEAST		(2 * FLIGHT)
#define MOST		2000
#define MESSAGES	400
/* Milliseconds to wait for an event or a completion. */
#define PATIENCE	20000

static struct ibv_context *context;
static struct ibv_comp_channel *channel;
static struct ibv_cq_ex *cq;
static struct ibv_qp *qp;
static struct ibv_srq *srq;
static atomic_ulong round_now;
static _Atomic bool over;

static void check(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "resize: round %lu: %s: %s\n", round_now, what, strerror(errno));
	exit(1);
}

static void step(enum ibv_qp_state state, const struct ibv_port_attr *port)
{
	struct ibv_qp_attr attr = {
		.qp_state = state,
		.port_num = 1,
		.path_mtu = port->active_mtu,
		.dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .dlid = port->lid, .port_num = 1 },
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	int mask[] = {
		[IBV_QPS_INIT] = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		[IBV_QPS_RTR] = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		[IBV_QPS_RTS] = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
	};

	check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask[state]), "no change of the state");
}

static int resize_srq(unsigned int receives)
{
	struct ibv_srq_attr attr = { .max_wr = receives };

	return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
}

/* Resizes, as fast as the device can, until the load has ended. */
static void *resizer(void *unused)
{
	unsigned int seed = 1, done = 0;
	struct ibv_cq *plain = ibv_cq_ex_to_cq(cq);

	while (!over) {
		int cqe = LEAST + rand_r(&seed) % (MOST - LEAST);

		check(!ibv_resize_cq(plain, cqe), "no resize");
		check(plain->cqe >= cqe, "fewer entries than asked");
		if (srq)
			check(!resize_srq(FLIGHT + rand_r(&seed) % MOST), "no resize of the SRQ");
		done++;
	}
	check(done != 0, "no resize under load");
	return unused;
}

static void post(uint64_t id)
{
	struct ibv_recv_wr *bad_recv, recv = { .wr_id = id };
	struct ibv_send_wr *bad_send, send = { .wr_id = id, .opcode = IBV_WR_SEND };

	check(!(srq ? ibv_post_srq_recv(srq, &recv, &bad_recv)
		    : ibv_post_recv(qp, &recv, &bad_recv)), "no receive");
	check(!ibv_post_send(qp, &send, &bad_send), "no send");
}

/* The next identifiers of sends and receives. */
static uint64_t sent, received;

static void complete(uint64_t id, enum ibv_wc_status status, enum ibv_wc_opcode opcode)
{
	uint64_t *next = opcode == IBV_WC_RECV ? &received : &sent;

	check(status == IBV_WC_SUCCESS, ibv_wc_status_str(status));
	check(id == *next, "a completion is lost, doubled or out of order");
	++*next;
}

/* Polls at most so many; returns how many. */
static int poll_some(int most)
{
	struct ibv_wc wc[7];
	int i, count = ibv_poll_cq(ibv_cq_ex_to_cq(cq), most, wc);

	check(count >= 0, "no poll");
	for (i = 0; i < count; i++)
		complete(wc[i].wr_id, wc[i].status, wc[i].opcode);
	return count;
}

/* Polls all that is there; returns how many. */
static int poll_all(int extended)
{
	struct ibv_poll_cq_attr attr = {};
	int count, all = 0;

	if (extended) {
		if (ibv_start_poll(cq, &attr))
			return 0;
		do {
			complete(cq->wr_id, cq->status, ibv_wc_read_opcode(cq));
			all++;
		} while (!ibv_next_poll(cq));
		ibv_end_poll(cq);
		return all;
	}
	while ((count = poll_some(7)))
		all += count;
	return all;
}

/* Sleeps until there is an event of a completion that was not polled. */
static void sleep_until_one(int extended)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *which;
	void *unused;

	check(!ibv_req_notify_cq(ibv_cq_ex_to_cq(cq), 0), "no notification");
	if (poll_all(extended))
		return;
	check(poll(&fd, 1, PATIENCE) == 1, "an event is missing");
	check(!ibv_get_cq_event(channel, &which, &unused), "no event");
	ibv_ack_cq_events(which, 1);
}

static void load(int extended)
{
	uint64_t end = sent + MESSAGES, posted = sent;

	while (sent < end || received < end) {
		while (posted < end && posted - received < FLIGHT && posted - sent < FLIGHT)
			post(posted++);
		if (!poll_all(extended))
			sleep_until_one(extended);
	}
}

int main(int argc, char **argv)
{
	unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 0) : 20;
	struct ibv_device **all = ibv_get_device_list(NULL);
	struct ibv_cq_init_attr_ex cq_init = { .cqe = LEAST };
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = FLIGHT, .max_recv_wr = FLIGHT },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = FLIGHT, .max_sge = 1 } };
	struct ibv_srq_attr srq_attr;
	struct ibv_recv_wr *bad;
	struct ibv_port_attr port;
	struct ibv_cq *plain;
	struct ibv_pd *pd;
	pthread_t thread;
	time_t begin;
	int i, error;

	for (i = 0; all && all[i]; i++)
		if (argc < 2 || !strcmp(ibv_get_device_name(all[i]), argv[1]))
			break;
	check(all && all[i], "no such device");
	context = ibv_open_device(all[i]);
	check(!!context, "no context");
	ibv_free_device_list(all);
	check(!ibv_query_port(context, 1, &port), "no port");
	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	check(pd && channel, "no PD or channel");
	cq_init.channel = channel;
	cq = ibv_create_cq_ex(context, &cq_init);
	check(!!cq, "no CQ");
	plain = ibv_cq_ex_to_cq(cq);
	init.send_cq = init.recv_cq = plain;
	if (argc > 3 && !strcmp(argv[3], "srq")) {
		init.srq = srq = ibv_create_srq(pd, &srq_init);
		check(!!srq, "no SRQ");
	}
	qp = ibv_create_qp(pd, &init);
	check(!!qp, "no queue pair");
	step(IBV_QPS_INIT, &port);
	step(IBV_QPS_RTR, &port);
	step(IBV_QPS_RTS, &port);

	check(!pthread_create(&thread, NULL, resizer, NULL), "no thread");
	for (; round_now < rounds; round_now++)
		load(round_now % 2);
	over = true;
	check(!pthread_join(thread, NULL), "no end of the thread");

	/* The last message has two completions; one of them does not fit. */
	check(!ibv_resize_cq(plain, LEAST), "no resize at rest");
	for (i = 0; i < FLIGHT; i++)
		post(rounds * MESSAGES + i);
	while (sent + received < 2 * (rounds * MESSAGES + FLIGHT) - 2)
		poll_some(1);
	for (begin = time(NULL); (error = ibv_resize_cq(plain, 1)) == 0;)
		check(time(NULL) - begin < PATIENCE / 1000, "a CQ with fewer entries than unread");
	check(error == EINVAL, "another error");
	while (sent + received < 2 * (rounds * MESSAGES + FLIGHT))
		poll_some(1);
	check(ibv_resize_cq(plain, 0) == EINVAL, "a CQ without entries");
	check(ibv_resize_cq(plain, 1 << 30) == EINVAL, "a CQ of 2^30 entries");

	if (srq) {
		for (i = 0; i < FLIGHT; i++)
			check(!ibv_post_srq_recv(srq, &(struct ibv_recv_wr){}, &bad), "no receive");
		check(resize_srq(2) == EINVAL, "an SRQ with fewer entries than are in flight");
		check(resize_srq(0) == EINVAL, "an SRQ without entries");
		check(resize_srq(1 << 30) == EINVAL, "an SRQ of 2^30 entries");
		check(!resize_srq(100), "no resize of the SRQ at rest");
		check(!ibv_query_srq(srq, &srq_attr) && srq_attr.max_wr == 128, "another size");
	}
	check(!ibv_destroy_qp(qp) && !ibv_destroy_cq(plain), "no end of the queues");
	check(!srq || !ibv_destroy_srq(srq), "no end of the SRQ");
	check(!ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd), "no end");
	check(!ibv_close_device(context), "no end of the context");
	printf("%lu messages\n", (unsigned long)sent);
	return 0;
}
