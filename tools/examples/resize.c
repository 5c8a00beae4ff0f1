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
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>

#include "example.h"

/* Messages in flight, and their completions. */
#define FLIGHT		32
#define LEAST		(2 * FLIGHT)
#define MOST		2000
#define MESSAGES	400

static struct ibv_comp_channel *channel;
static struct ibv_cq_ex *cq;
static struct ibv_qp *qp;
static struct ibv_srq *srq;
static _Atomic bool over;

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

	now("resizes under load");
	while (!over) {
		int cqe = LEAST + rand_r(&seed) % (MOST - LEAST);

		must(ibv_resize_cq(plain, cqe), "resize the CQ");
		check(plain->cqe >= cqe, "the CQ has fewer entries than were asked for");
		if (srq)
			must(resize_srq(FLIGHT + rand_r(&seed) % MOST), "resize the SRQ");
		done++;
	}
	check(done, "none is done before the load ends");
	return unused;
}

static void post(uint64_t id)
{
	struct ibv_recv_wr *bad_recv, recv = { .wr_id = id };
	struct ibv_send_wr *bad_send, send = { .wr_id = id, .opcode = IBV_WR_SEND };

	must(srq ? ibv_post_srq_recv(srq, &recv, &bad_recv) : ibv_post_recv(qp, &recv, &bad_recv),
	     "post a receive");
	must(ibv_post_send(qp, &send, &bad_send), "post a send");
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
	int i, count = poll_cq(ibv_cq_ex_to_cq(cq), most, wc);

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
	struct ibv_cq *which;
	void *unused;

	must(ibv_req_notify_cq(ibv_cq_ex_to_cq(cq), 0), "ask for an event");
	if (poll_all(extended))
		return;
	wait_for_file(channel->fd);
	must(ibv_get_cq_event(channel, &which, &unused), "get an event");
	ibv_ack_cq_events(which, 1);
}

/* Polls one at a time, until so many sends and receives have completed. */
static void poll_until(uint64_t completions)
{
	time_t begin = seconds();

	while (sent + received < completions)
		check(poll_some(1) || seconds() - begin <= PATIENCE, "a completion is missing");
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
	unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 0) : 20, round;
	struct ibv_cq_init_attr_ex cq_init = { .cqe = LEAST };
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = FLIGHT, .max_recv_wr = FLIGHT },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = FLIGHT, .max_sge = 1 } };
	struct ibv_srq_attr srq_attr;
	struct ibv_qp_attr attr;
	struct ibv_recv_wr *bad;
	struct ibv_cq *plain;
	struct ibv_pd *pd;
	pthread_t thread;
	time_t begin;
	int i, error;

	open_port(argc > 1 ? argv[1] : NULL);
	pd = need(ibv_alloc_pd(context), "allocate a PD");
	channel = need(ibv_create_comp_channel(context), "create a completion channel");
	cq_init.channel = channel;
	cq = need(ibv_create_cq_ex(context, &cq_init), "create a CQ");
	plain = ibv_cq_ex_to_cq(cq);
	init.send_cq = init.recv_cq = plain;
	if (argc > 3 && !strcmp(argv[3], "srq"))
		init.srq = srq = need(ibv_create_srq(pd, &srq_init), "create an SRQ");
	qp = need(ibv_create_qp(pd, &init), "create a queue pair");
	attr = attributes(qp->qp_num);
	move_to_rts(qp, &attr);

	must(pthread_create(&thread, NULL, resizer, NULL), "start a thread");
	for (round = 0; round < rounds; round++) {
		now("round %lu", round);
		load(round % 2);
	}
	over = true;
	must(pthread_join(thread, NULL), "wait for the thread");

	now("resizes at rest");
	/* The last message has two completions; one of them does not fit. */
	must(ibv_resize_cq(plain, LEAST), "resize the CQ");
	for (i = 0; i < FLIGHT; i++)
		post(rounds * MESSAGES + i);
	poll_until(2 * (rounds * MESSAGES + FLIGHT) - 2);
	for (begin = seconds(); (error = ibv_resize_cq(plain, 1)) == 0;)
		check(seconds() - begin <= PATIENCE, "the CQ can have fewer entries than are unread");
	check(error == EINVAL, "fewer entries than are unread are not refused with EINVAL");
	poll_until(2 * (rounds * MESSAGES + FLIGHT));
	check(ibv_resize_cq(plain, 0) == EINVAL, "a CQ of no entries is not refused with EINVAL");
	check(ibv_resize_cq(plain, 1 << 30) == EINVAL,
	      "a CQ of 2^30 entries is not refused with EINVAL");

	if (srq) {
		for (i = 0; i < FLIGHT; i++)
			must(ibv_post_srq_recv(srq, &(struct ibv_recv_wr){}, &bad), "post a receive");
		check(resize_srq(2) == EINVAL,
		      "an SRQ of fewer entries than are posted is not refused with EINVAL");
		check(resize_srq(0) == EINVAL, "an SRQ of no entries is not refused with EINVAL");
		check(resize_srq(1 << 30) == EINVAL,
		      "an SRQ of 2^30 entries is not refused with EINVAL");
		must(resize_srq(100), "resize the SRQ");
		must(ibv_query_srq(srq, &srq_attr), "query the SRQ");
		check(srq_attr.max_wr == 128, "a resize of the SRQ to 100 does not give 128 entries");
	}
	now("end");
	must(ibv_destroy_qp(qp) ?: ibv_destroy_cq(plain) ?: (srq ? ibv_destroy_srq(srq) : 0),
	     "destroy the queues");
	must(ibv_destroy_comp_channel(channel) ?: ibv_dealloc_pd(pd) ?: ibv_close_device(context),
	     "destroy what is left");
	printf("%lu messages\n", (unsigned long)sent);
	return 0;
}
