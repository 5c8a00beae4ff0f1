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
#include <infiniband/verbs.h>

#include "example.h"

#define PAIRS		2
#define RECEIVES	8
#define LIMIT		6
#define BYTES		64

/* A queue pair that sends, and one that shares receives; each with its CQ. */
struct lane {
	struct ibv_cq *sent, *received;
	struct ibv_qp *from, *to;
};

static struct ibv_pd *pd;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static uint8_t memory[(RECEIVES + 1) * BYTES];

static void start(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = attributes(peer);

	move_to_rts(qp, &attr);
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

	return need(ibv_create_qp(pd, &init), "create a queue pair");
}

static void begin(struct lane *lane)
{
	lane->sent = need(ibv_create_cq(context, RECEIVES, NULL, NULL, 0), "create a CQ");
	lane->received = need(ibv_create_cq(context, RECEIVES, NULL, NULL, 0), "create a CQ");
	lane->from = create(lane->sent, NULL);
	lane->to = create(lane->received, srq);
	start(lane->to, lane->from->qp_num);
	start(lane->from, lane->to->qp_num);
}

static void end(struct lane *lane)
{
	must(ibv_destroy_qp(lane->from) ?: ibv_destroy_qp(lane->to), "destroy queue pairs");
	must(ibv_destroy_cq(lane->sent) ?: ibv_destroy_cq(lane->received), "destroy CQs");
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

/* Waits for the success of a request. */
static struct ibv_wc succeeds(struct ibv_cq *cq)
{
	struct ibv_wc wc = wait_one(cq);

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
	must(ibv_post_send(lane->from, &wr, &bad), "post a send");
	succeeds(lane->sent);
}

/* The receives in the order in which they are taken; the last ones are not posted. */
static uint64_t order[RECEIVES];

static void round_of(struct lane *lanes, int posted)
{
	struct ibv_srq_attr attr = { .srq_limit = LIMIT };
	uint64_t taken[] = { order[0], order[1], order[2], order[3] };
	struct ibv_qp_attr to_error = {};
	struct ibv_async_event event;
	struct ibv_wc wc;
	int i;

	for (i = posted; i < RECEIVES; i++)
		must(post_receive(order[i]), "post a receive");
	check(post_receive(0) == ENOMEM, "the queue takes more receives than it has");
	must(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), "set the limit");
	/* Six are left, then five. */
	send_byte(&lanes[0], 1);
	send_byte(&lanes[1], 2);
	must(ibv_query_srq(srq, &attr), "query an SRQ");
	check(attr.srq_limit == LIMIT, "the event comes at the limit instead of below it");
	send_byte(&lanes[0], 3);
	event = wait_event();
	check(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq,
	      "the event is not that of the limit");
	must(ibv_query_srq(srq, &attr), "query an SRQ");
	check(attr.srq_limit == 0 && attr.max_wr >= RECEIVES, "the limit is left after its event");
	/* A second event would be found in the place of the next. */
	send_byte(&lanes[1], 4);

	/* The completions of the first are polled, those of the second are not. */
	for (i = 0; i < 2; i++) {
		wc = succeeds(lanes[0].received);
		check(wc.qp_num == lanes[0].to->qp_num && wc.byte_len == 1 &&
		      wc.wr_id == taken[2 * i], "the completion is not that of the next receive");
		check(memory[wc.wr_id * BYTES] == 1 + 2 * i, "the byte is not the one that was sent");
		must(post_receive(wc.wr_id), "post a receive in the place of a completed one");
	}
	modify(lanes[0].to, &to_error, IBV_QPS_ERR);
	event = wait_event();
	check(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED &&
	      event.element.qp == lanes[0].to, "the event is not that of the last receive");
	check(!poll_cq(lanes[0].received, 1, &wc), "a queue pair that had taken no receive completes one");
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
	unsigned long count = argc > 2 ? strtoul(argv[2], NULL, 0) : 20, round;
	struct ibv_srq_init_attr init = { .attr = { .max_wr = RECEIVES, .max_sge = 1 } };
	struct lane lanes[PAIRS];
	int i;

	open_port(argc > 1 ? argv[1] : NULL);
	pd = need(ibv_alloc_pd(context), "allocate a PD");
	mr = need(ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE), "register memory");
	srq = need(ibv_create_srq(pd, &init), "create an SRQ");
	for (i = 0; i < RECEIVES; i++)
		order[i] = i;
	for (round = 0; round < count; round++) {
		now("round %lu", round);
		for (i = 0; i < PAIRS; i++)
			begin(&lanes[i]);
		/* Two that were not polled are free again. */
		round_of(lanes, round ? RECEIVES - 2 : 0);
	}
	now("end");
	must(ibv_destroy_srq(srq) ?: ibv_dereg_mr(mr) ?: ibv_dealloc_pd(pd) ?: ibv_close_device(context),
	     "destroy what is left");
	printf("%lu rounds\n", round);
	return 0;
}
