// SPDX-License-Identifier: GPL-2.0
/*
 * answer [DEVICE [COUNT]]: datagrams by libibverbs.
 *
 * A queue pair of UD sends COUNT questions to another one of this process: by
 * LID and by GID in turn, on a port of Ethernet by GID alone. The other one
 * knows nothing of the first. It answers each question by the address handle
 * that ibv_create_ah_from_wc() makes of the completion and of the header in front
 * of the payload. The first checks each answer and its source. Both queue pairs
 * are made with as many SGEs as the device says, which holds for all types.
 *
 * It runs on any RDMA device: scripts/guest --verbs -- answer rxe0
 */
#include <endian.h>
#include <infiniband/verbs.h>

#include "example.h"

/* Where the received header and number are, and the number that is sent. */
#define SENT		256
#define BYTES		512

struct side {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory;
};

static struct ibv_pd *pd;
static struct ibv_device_attr limits;

static void make(struct side *side)
{
	struct ibv_qp_init_attr init = {
		.cap = {
			.max_send_wr = 1,
			.max_recv_wr = 1,
			.max_send_sge = limits.max_sge,
			.max_recv_sge = limits.max_sge,
		},
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
	};
	struct ibv_qp_attr attr = attributes(0);

	side->memory = need(calloc(1, BYTES), "get memory");
	side->mr = need(ibv_reg_mr(pd, side->memory, BYTES, IBV_ACCESS_LOCAL_WRITE),
			"register memory");
	side->cq = need(ibv_create_cq(context, 2, NULL, NULL, 0), "create a CQ");
	init.send_cq = side->cq;
	init.recv_cq = side->cq;
	side->qp = need(ibv_create_qp(pd, &init), "create a queue pair of UD");
	move_to_rts(side->qp, &attr);
}

static void post_recv(struct side *side)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)side->memory,
		.length = GRH + sizeof(uint64_t),
		.lkey = side->mr->lkey,
	};
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	must(ibv_post_recv(side->qp, &wr, &bad), "post a receive");
}

static void post_send(struct side *side, struct ibv_ah *ah, uint32_t qpn, uint64_t number)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)side->memory + SENT,
		.length = sizeof(number),
		.lkey = side->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = Q_KEY },
	}, *bad;

	memcpy(side->memory + SENT, &number, sizeof(number));
	must(ibv_post_send(side->qp, &wr, &bad), "post a send");
}

/* Waits for a completion of this kind; those of sends are only checked. */
static struct ibv_wc wait_for(struct side *side, enum ibv_wc_opcode kind)
{
	struct ibv_wc wc;

	do {
		wc = wait_one(side->cq);
		check(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
	} while (wc.opcode != kind);
	return wc;
}

static struct ibv_ah *create_ah(bool by_gid)
{
	struct ibv_ah_attr attr = own_address(by_gid);

	return need(ibv_create_ah(pd, &attr), "create an address handle");
}

/* A question, and its answer. */
static void round_trip(struct side *asks, struct side *answers, struct ibv_ah *ah,
		       unsigned long round)
{
	struct ibv_grh *header = (struct ibv_grh *)answers->memory;
	struct ibv_ah *back;
	uint64_t number;
	struct ibv_wc wc;

	now("round %lu", round);
	post_recv(asks);
	post_recv(answers);
	post_send(asks, ah, answers->qp->qp_num, round);

	wc = wait_for(answers, IBV_WC_RECV);
	check(wc.wc_flags & IBV_WC_GRH && wc.byte_len == GRH + sizeof(number),
	      "the question has no GRH, or a wrong length");
	memcpy(&number, answers->memory + GRH, sizeof(number));
	check(number == round, "the question is not the one that was sent");
	check(port.link_layer == IBV_LINK_LAYER_ETHERNET ||
	      (be32toh(header->version_tclass_flow) >> 28 == 6 && header->next_hdr == 0x1b &&
	       be16toh(header->paylen) == 12 + 8 + sizeof(number) + 4 &&
	       !memcmp(&header->sgid, &gid, sizeof(gid)) &&
	       !memcmp(&header->dgid, &gid, sizeof(gid))),
	      "the GRH of the question is wrong");
	back = need(ibv_create_ah_from_wc(pd, &wc, header, PORT),
		    "create an address handle from a completion");
	post_send(answers, back, wc.src_qp, ~number);
	wait_for(answers, IBV_WC_SEND);
	ibv_destroy_ah(back);

	wc = wait_for(asks, IBV_WC_RECV);
	memcpy(&number, asks->memory + GRH, sizeof(number));
	check(number == ~(uint64_t)round && wc.src_qp == answers->qp->qp_num,
	      "the answer, or the queue pair that sent it, is wrong");
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 2 ? strtoul(argv[2], NULL, 10) : 100, round;
	struct side asks, answers;
	struct ibv_ah *by_gid, *by_lid = NULL;

	open_port(argc > 1 ? argv[1] : NULL);
	must(ibv_query_device(context, &limits), "query the device");
	pd = need(ibv_alloc_pd(context), "allocate a PD");
	make(&asks);
	make(&answers);
	by_gid = create_ah(true);
	if (port.link_layer != IBV_LINK_LAYER_ETHERNET)
		by_lid = create_ah(false);
	for (round = 0; round < count; round++)
		round_trip(&asks, &answers, by_lid && round % 2 ? by_lid : by_gid, round);
	printf("{ \"device\": \"%s\", \"answers\": %lu }\n",
	       ibv_get_device_name(context->device), count);

	if (by_lid)
		ibv_destroy_ah(by_lid);
	ibv_destroy_ah(by_gid);
	ibv_destroy_qp(asks.qp);
	ibv_destroy_qp(answers.qp);
	ibv_close_device(context);
	return 0;
}
