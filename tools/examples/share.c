// SPDX-License-Identifier: GPL-2.0
/*
 * share [DEVICE [ROUNDS]]: shared receives by libibverbs.
 *
 * Two queue pairs share the receives of one queue. In each round the limit of
 * that has its event, once; one queue pair goes to ERROR and has its last event;
 * the other is destroyed with completions that are not polled. After the round
 * all receives can be posted again: none is lost.
 *
 * It runs on a port of InfiniBand: scripts/guest --verbs -- share qpair0
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAIRS		2
#define RECEIVES	8
#define LIMIT		6
#define BYTES		64
/* Milliseconds until something that is missing is an error. */
#define PATIENCE	20000

/* A queue pair that sends, and one that shares receives; each with its CQ. */
struct lane {
	struct ibv_cq *sent, *received;
	struct ibv_qp *from, *to;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static uint8_t memory[(RECEIVES + 1) * BYTES];
static struct ibv_port_attr port;
static unsigned long rounds;

static void check(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "share: round %lu: %s: %s\n", rounds, what, strerror(errno));
	exit(1);
}

static void step(struct ibv_qp *qp, enum ibv_qp_state state, uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = state,
		.port_num = 1,
		.path_mtu = port.active_mtu,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .dlid = port.lid, .port_num = 1 },
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	int mask = IBV_QP_STATE;

	if (state == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	if (state == IBV_QPS_RTR)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (state == IBV_QPS_RTS)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC;
	check(!ibv_modify_qp(qp, &attr, mask), "no change of the state");
}

static void start(struct ibv_qp *qp, uint32_t peer)
{
	step(qp, IBV_QPS_INIT, peer);
	step(qp, IBV_QPS_RTR, peer);
	step(qp, IBV_QPS_RTS, peer);
}

static struct ibv_qp *create(struct ibv_cq *cq, struct ibv_srq *shared)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.srq = shared,
		.cap = { .max_send_wr = RECEIVES, .max_send_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	check(!!qp, "no queue pair");
	return qp;
}

static void begin(struct lane *lane)
{
	lane->sent = ibv_create_cq(context, RECEIVES, NULL, NULL, 0);
	lane->received = ibv_create_cq(context, RECEIVES, NULL, NULL, 0);
	check(lane->sent && lane->received, "no CQ");
	lane->from = create(lane->sent, NULL);
	lane->to = create(lane->received, srq);
	start(lane->to, lane->from->qp_num);
	start(lane->from, lane->to->qp_num);
}

static void end(struct lane *lane)
{
	check(!ibv_destroy_qp(lane->from) && !ibv_destroy_qp(lane->to), "no end of queue pairs");
	check(!ibv_destroy_cq(lane->sent) && !ibv_destroy_cq(lane->received), "no end of CQs");
}

/* Posts a receive; its identifier is its place. Returns an error. */
static int post_receive(uint64_t id)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)memory + id * BYTES,
		.length = BYTES,
		.lkey = mr->lkey,
	};
	struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	return ibv_post_srq_recv(srq, &wr, &bad);
}

static struct ibv_wc wait_one(struct ibv_cq *cq)
{
	struct ibv_wc wc = {};
	time_t begin = time(NULL);

	while (!ibv_poll_cq(cq, 1, &wc))
		check(time(NULL) - begin < PATIENCE / 1000, "a completion is missing");
	check(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
	return wc;
}

/* Sends a byte, and waits until it has arrived. */
static void send_byte(struct lane *lane, uint8_t byte)
{
	uint8_t *from = memory + RECEIVES * BYTES;
	struct ibv_sge sge = { .addr = (uintptr_t)from, .length = 1, .lkey = mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

	*from = byte;
	check(!ibv_post_send(lane->from, &wr, &bad), "no send");
	wait_one(lane->sent);
}

static struct ibv_async_event next_event(void)
{
	struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	check(poll(&fd, 1, PATIENCE) == 1, "an event is missing");
	check(!ibv_get_async_event(context, &event), "no event");
	ibv_ack_async_event(&event);
	return event;
}

/* The receives in the order in which they are taken; the last ones are not posted. */
static uint64_t order[RECEIVES];

static void round_of(struct lane *lanes, int posted)
{
	struct ibv_srq_attr attr = { .srq_limit = LIMIT };
	uint64_t taken[] = { order[0], order[1], order[2], order[3] };
	struct ibv_async_event event;
	struct ibv_wc wc;
	int i;

	for (i = posted; i < RECEIVES; i++)
		check(!post_receive(order[i]), "no receive");
	check(post_receive(0) == ENOMEM, "more receives than there are");
	check(!ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), "no limit");
	/* Six are left, then five. */
	send_byte(&lanes[0], 1);
	send_byte(&lanes[1], 2);
	check(!ibv_query_srq(srq, &attr) && attr.srq_limit == LIMIT, "an event at the limit");
	send_byte(&lanes[0], 3);
	event = next_event();
	check(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq,
	      "another event than that of the limit");
	check(!ibv_query_srq(srq, &attr) && attr.srq_limit == 0 && attr.max_wr >= RECEIVES,
	      "the limit is still there");
	/* A second event would be found in the place of the next. */
	send_byte(&lanes[1], 4);

	/* The completions of the first are polled, those of the second are not. */
	for (i = 0; i < 2; i++) {
		wc = wait_one(lanes[0].received);
		check(wc.qp_num == lanes[0].to->qp_num && wc.byte_len == 1 &&
		      wc.wr_id == taken[2 * i], "another receive");
		check(memory[wc.wr_id * BYTES] == 1 + 2 * i, "another byte");
		check(!post_receive(wc.wr_id), "no slot for a receive");
	}
	step(lanes[0].to, IBV_QPS_ERR, 0);
	event = next_event();
	check(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED &&
	      event.element.qp == lanes[0].to, "another event than that of the last receive");
	check(!ibv_poll_cq(lanes[0].received, 1, &wc), "a receive of a queue pair that had none");
	for (i = 0; i < PAIRS; i++)
		end(&lanes[i]);
	memmove(order, order + 4, 4 * sizeof(*order));
	order[4] = taken[0];
	order[5] = taken[2];
	order[6] = taken[1];
	order[7] = taken[3];
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 2 ? strtoul(argv[2], NULL, 0) : 20;
	struct ibv_srq_init_attr init = { .attr = { .max_wr = RECEIVES, .max_sge = 1 } };
	struct ibv_device **all = ibv_get_device_list(NULL);
	struct lane lanes[PAIRS];
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
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	srq = ibv_create_srq(pd, &init);
	check(mr && srq, "no memory region or shared receive queue");
	for (i = 0; i < RECEIVES; i++)
		order[i] = i;
	for (rounds = 0; rounds < count; rounds++) {
		for (i = 0; i < PAIRS; i++)
			begin(&lanes[i]);
		/* Two that were not polled are free again. */
		round_of(lanes, rounds ? RECEIVES - 2 : 0);
	}
	check(!ibv_destroy_srq(srq) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd), "no end");
	check(!ibv_close_device(context), "no end of the context");
	printf("%lu rounds\n", rounds);
	return 0;
}
