// SPDX-License-Identifier: GPL-2.0
/*
 * drain [DEVICE [ROUNDS]]: a send queue that drains, and timers of retries, by
 * libibverbs.
 *
 * In each round a queue pair with long WRITEs to itself goes to SQD, and has its
 * event when the request that was begun is done; nothing more completes until it
 * is in RTS again. Then a peer without a receive, and one that is gone, take as
 * long as the timers of the queue pairs say.
 *
 * It runs on a port of InfiniBand: scripts/guest --verbs -- drain qpair0
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WRITES		8
#define BYTES		(1 << 20)
/* Milliseconds to wait for an event or a completion. */
#define PATIENCE	20000
/* 4.096 us * 2^14 for an answer, 61.44 ms for a receive; two retries of each. */
#define TIMEOUT		14
#define RNR_TIMER	25
#define RETRIES		2
#define TIMEOUT_MS	67
#define RNR_MS		61

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_port_attr port;
static uint8_t memory[2 * BYTES];
static unsigned long rounds;

static void check(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "drain: round %lu: %s: %s\n", rounds, what, strerror(errno));
	exit(1);
}

static struct ibv_qp *create(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = WRITES, .max_recv_wr = 1, .max_send_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	check(!!qp, "no queue pair");
	return qp;
}

static void step(struct ibv_qp *qp, enum ibv_qp_state state, uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = state,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = port.active_mtu,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = RNR_TIMER,
		.ah_attr = { .dlid = port.lid, .port_num = 1 },
		.timeout = TIMEOUT,
		.retry_cnt = RETRIES,
		.rnr_retry = RETRIES,
		.max_rd_atomic = 1,
		.en_sqd_async_notify = 1,
	};
	int mask[] = {
		[IBV_QPS_INIT] = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		[IBV_QPS_RTR] = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		[IBV_QPS_RTS] = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
		[IBV_QPS_SQD] = IBV_QP_EN_SQD_ASYNC_NOTIFY,
	};

	/* Back from SQD, which has no peer to name. */
	if (state == IBV_QPS_RTS && !peer)
		mask[state] = 0;
	check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask[state]), "no change of the state");
}

static void start(struct ibv_qp *qp, uint32_t peer)
{
	step(qp, IBV_QPS_INIT, peer);
	step(qp, IBV_QPS_RTR, peer);
	step(qp, IBV_QPS_RTS, peer);
}

static void post(struct ibv_qp *qp, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = BYTES, .lkey = mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge,
		.num_sge = opcode == IBV_WR_RDMA_WRITE,
		.opcode = opcode,
		.wr.rdma = { .remote_addr = (uintptr_t)memory + BYTES, .rkey = mr->rkey },
	};

	check(!ibv_post_send(qp, &wr, &bad), "no post");
}

static enum ibv_wc_status wait_one(void)
{
	time_t begin = time(NULL);
	struct ibv_wc wc;

	while (!ibv_poll_cq(cq, 1, &wc))
		check(time(NULL) - begin < PATIENCE / 1000, "a completion is missing");
	return wc.status;
}

/* Takes the completions that are there; returns how many. */
static int take(void)
{
	struct ibv_wc wc;
	int count = 0;

	for (; ibv_poll_cq(cq, 1, &wc); count++)
		check(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
	return count;
}

static void wait_drained(struct ibv_qp *qp)
{
	struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_qp_init_attr init;
	struct ibv_async_event event;
	struct ibv_qp_attr attr;

	check(poll(&fd, 1, PATIENCE) == 1, "the event is missing");
	check(!ibv_get_async_event(context, &event), "no event");
	check(event.event_type == IBV_EVENT_SQ_DRAINED && event.element.qp == qp, "another event");
	ibv_ack_async_event(&event);
	check(!poll(&fd, 1, 0), "a second event");
	check(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), "no query");
	check(attr.qp_state == IBV_QPS_SQD && !attr.sq_draining, "it drains after the event");
}

static void drain(struct ibv_qp *qp)
{
	int i, done;

	for (i = 0; i < WRITES - 1; i++)
		post(qp, IBV_WR_RDMA_WRITE);
	step(qp, IBV_QPS_SQD, 0);
	wait_drained(qp);
	done = take();
	/* What is posted now waits. */
	post(qp, IBV_WR_RDMA_WRITE);
	poll(NULL, 0, 5);
	check(!take(), "a completion of a queue that has drained");
	step(qp, IBV_QPS_RTS, 0);
	for (; done < WRITES; done++)
		check(wait_one() == IBV_WC_SUCCESS, "a request that was to wait");
}

/* Sends, and returns the milliseconds until this status. */
static long fails_after(struct ibv_qp *qp, enum ibv_wc_status status)
{
	struct timespec begin, end;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	post(qp, IBV_WR_SEND);
	check(wait_one() == status, "another status");
	clock_gettime(CLOCK_MONOTONIC, &end);
	return (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000;
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 2 ? strtoul(argv[2], NULL, 0) : 20;
	struct ibv_device **all = ibv_get_device_list(NULL);
	struct ibv_qp *qp, *peer;
	int i;

	for (i = 0; all && all[i]; i++)
		if (argc < 2 || !strcmp(ibv_get_device_name(all[i]), argv[1]))
			break;
	check(all && all[i], "no such device");
	context = ibv_open_device(all[i]);
	check(!!context, "no context");
	ibv_free_device_list(all);
	check(!ibv_query_port(context, 1, &port), "no port");
	pd = ibv_alloc_pd(context);
	check(!!pd, "no PD");
	cq = ibv_create_cq(context, 4 * WRITES, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, memory, sizeof(memory),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	check(cq && mr, "no CQ or memory region");
	qp = create();
	start(qp, qp->qp_num);
	for (; rounds < count; rounds++)
		drain(qp);
	check(!ibv_destroy_qp(qp), "no end of a queue pair");

	/* No receive, then no peer. */
	for (i = 0; i < 2; i++) {
		qp = create();
		peer = create();
		start(qp, peer->qp_num);
		if (i == 0) {
			start(peer, qp->qp_num);
			check(fails_after(qp, IBV_WC_RNR_RETRY_EXC_ERR) >= RETRIES * RNR_MS,
			      "too soon for a receive");
		} else {
			check(fails_after(qp, IBV_WC_RETRY_EXC_ERR) >= RETRIES * TIMEOUT_MS,
			      "too soon for an answer");
		}
		check(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peer), "no end of queue pairs");
	}
	check(!ibv_destroy_cq(cq) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd), "no end");
	check(!ibv_close_device(context), "no end of the context");
	printf("%lu rounds\n", rounds);
	return 0;
}
