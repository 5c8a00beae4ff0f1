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
#include <infiniband/verbs.h>

#include "example.h"

#define WRITES		8
#define BYTES		(1 << 20)
/* 4.096 us * 2^14 for an answer, 61.44 ms for a receive; two retries of each. */
#define TIMEOUT		14
#define RNR_TIMER	25
#define RETRIES		2
#define TIMEOUT_MS	67
#define RNR_MS		61

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static uint8_t memory[2 * BYTES];

static struct ibv_qp *create(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = WRITES, .max_recv_wr = 1, .max_send_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	return need(ibv_create_qp(pd, &init), "create a queue pair");
}

static void start(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = attributes(peer);

	attr.min_rnr_timer = RNR_TIMER;
	attr.timeout = TIMEOUT;
	attr.retry_cnt = RETRIES;
	attr.rnr_retry = RETRIES;
	move_to_rts(qp, &attr);
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

	must(ibv_post_send(qp, &wr, &bad), "post a request");
}

/* Polls the completions that are there; returns their number. */
static int poll_all(void)
{
	struct ibv_wc wc;
	int count = 0;

	for (; poll_cq(cq, 1, &wc); count++)
		check(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
	return count;
}

static void wait_drained(struct ibv_qp *qp)
{
	struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event event = wait_event();
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	check(event.event_type == IBV_EVENT_SQ_DRAINED && event.element.qp == qp,
	      "the event is not that of the drained queue");
	check(!poll(&fd, 1, 0), "a second event follows");
	must(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), "query a queue pair");
	check(attr.qp_state == IBV_QPS_SQD && !attr.sq_draining,
	      "the queue is draining after its event");
}

static void drain(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct ibv_wc wc;
	int i, done;

	for (i = 0; i < WRITES - 1; i++)
		post(qp, IBV_WR_RDMA_WRITE);
	must(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), "drain a queue pair");
	wait_drained(qp);
	done = poll_all();
	/* What is posted now waits. */
	post(qp, IBV_WR_RDMA_WRITE);
	poll(NULL, 0, 5);
	check(!poll_all(), "a request completes after the queue has drained");
	attr.qp_state = IBV_QPS_RTS;
	must(ibv_modify_qp(qp, &attr, IBV_QP_STATE), "move a queue pair from SQD to RTS");
	for (; done < WRITES; done++) {
		wc = wait_one(cq);
		check(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
	}
}

/* Sends, and returns the milliseconds until this status. */
static long fails_after(struct ibv_qp *qp, enum ibv_wc_status status)
{
	struct timespec begin, end;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	post(qp, IBV_WR_SEND);
	check(wait_one(cq).status == status, "the send completes with another status");
	clock_gettime(CLOCK_MONOTONIC, &end);
	return (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000;
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 2 ? strtoul(argv[2], NULL, 0) : 20, round;
	struct ibv_qp *qp, *peer;
	int i;

	open_port(argc > 1 ? argv[1] : NULL);
	pd = need(ibv_alloc_pd(context), "allocate a PD");
	cq = need(ibv_create_cq(context, 4 * WRITES, NULL, NULL, 0), "create a CQ");
	mr = need(ibv_reg_mr(pd, memory, sizeof(memory),
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE), "register memory");
	qp = create();
	start(qp, qp->qp_num);
	for (round = 0; round < count; round++) {
		now("round %lu", round);
		drain(qp);
	}
	must(ibv_destroy_qp(qp), "destroy a queue pair");

	/* No receive, then no peer. */
	for (i = 0; i < 2; i++) {
		now(i ? "a SEND without a peer" : "a SEND without a receive");
		qp = create();
		peer = create();
		start(qp, peer->qp_num);
		if (i == 0) {
			start(peer, qp->qp_num);
			check(fails_after(qp, IBV_WC_RNR_RETRY_EXC_ERR) >= RETRIES * RNR_MS,
			      "it fails before its RNR timers are over");
		} else {
			check(fails_after(qp, IBV_WC_RETRY_EXC_ERR) >= RETRIES * TIMEOUT_MS,
			      "it fails before its timeouts are over");
		}
		must(ibv_destroy_qp(qp) ?: ibv_destroy_qp(peer), "destroy queue pairs");
	}
	now("end");
	must(ibv_destroy_cq(cq) ?: ibv_dereg_mr(mr) ?: ibv_dealloc_pd(pd) ?: ibv_close_device(context),
	     "destroy what is left");
	printf("%lu rounds\n", round);
	return 0;
}
