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
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PORT		1
#define Q_KEY		0x11111111
#define HEADER		sizeof(struct ibv_grh)
/* Where the received header and number are, and the number that is sent. */
#define SENT		256
#define BYTES		512
/* Seconds until a completion that is missing is an error. */
#define PATIENCE	20

struct side {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_port_attr port;
static struct ibv_device_attr limits;
/* The GID of a port of Ethernet is of an IP address; its index may be any. */
static int gid_index;
static union ibv_gid gid;

static void fail(const char *what, int error)
{
	fprintf(stderr, "answer: cannot %s: %s\n", what, strerror(error));
	exit(1);
}

static void wrong(const char *what, unsigned long round)
{
	fprintf(stderr, "answer: round %lu: %s\n", round, what);
	exit(1);
}

static void *need(const char *what, void *made)
{
	if (!made)
		fail(what, errno);
	return made;
}

static void open_device(const char *name)
{
	struct ibv_device **all = need("list RDMA devices", ibv_get_device_list(NULL));
	int i;

	for (i = 0; all[i]; i++)
		if (!name || !strcmp(ibv_get_device_name(all[i]), name))
			break;
	if (!all[i]) {
		fprintf(stderr, "answer: there is no RDMA device %s; ibv_devices lists them\n",
			name ? name : "at all");
		exit(1);
	}
	context = need("open the device", ibv_open_device(all[i]));
	ibv_free_device_list(all);
	if (ibv_query_port(context, PORT, &port))
		fail("query the port", errno);
	if (ibv_query_device(context, &limits))
		fail("query the device", errno);
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET)
		for (i = 0; i < port.gid_tbl_len; i++)
			if (!ibv_query_gid(context, PORT, i, &gid) && gid.global.interface_id)
				gid_index = i;
	if (ibv_query_gid(context, PORT, gid_index, &gid))
		fail("find a GID", errno);
}

static void modify(struct side *side, struct ibv_qp_attr *attr, int mask)
{
	int error = ibv_modify_qp(side->qp, attr, IBV_QP_STATE | mask);

	if (error)
		fail("change the state of a queue pair", error);
}

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
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = PORT, .qkey = Q_KEY };

	side->memory = need("get memory", calloc(1, BYTES));
	side->mr = need("register memory",
			ibv_reg_mr(pd, side->memory, BYTES, IBV_ACCESS_LOCAL_WRITE));
	side->cq = need("create a CQ", ibv_create_cq(context, 2, NULL, NULL, 0));
	init.send_cq = side->cq;
	init.recv_cq = side->cq;
	side->qp = need("create a queue pair of UD", ibv_create_qp(pd, &init));
	modify(side, &attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	attr.qp_state = IBV_QPS_RTR;
	modify(side, &attr, 0);
	attr.qp_state = IBV_QPS_RTS;
	modify(side, &attr, IBV_QP_SQ_PSN);
}

static void post_recv(struct side *side)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)side->memory,
		.length = HEADER + sizeof(uint64_t),
		.lkey = side->mr->lkey,
	};
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	int error = ibv_post_recv(side->qp, &wr, &bad);

	if (error)
		fail("post a receive", error);
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
	int error;

	memcpy(side->memory + SENT, &number, sizeof(number));
	error = ibv_post_send(side->qp, &wr, &bad);
	if (error)
		fail("post a send", error);
}

/* Polls until a completion of this kind; those of sends are only checked. */
static struct ibv_wc wait_for(struct side *side, enum ibv_wc_opcode kind)
{
	time_t end = time(NULL) + PATIENCE;
	struct ibv_wc wc;
	int found;

	do {
		found = ibv_poll_cq(side->cq, 1, &wc);
		if (found < 0)
			fail("poll a CQ", EIO);
		if (found && wc.status) {
			fprintf(stderr, "answer: a request failed: %s\n",
				ibv_wc_status_str(wc.status));
			exit(1);
		}
		if (found && wc.opcode == kind)
			return wc;
	} while (time(NULL) < end);
	fail("get a completion", ETIMEDOUT);
	return wc;
}

static struct ibv_ah *address(int is_global)
{
	struct ibv_ah_attr attr = { .dlid = port.lid, .port_num = PORT, .is_global = is_global };

	attr.grh.dgid = gid;
	attr.grh.sgid_index = gid_index;
	attr.grh.hop_limit = 1;
	return need("create an address handle", ibv_create_ah(pd, &attr));
}

/* A question, and its answer. */
static void round_trip(struct side *asks, struct side *answers, struct ibv_ah *ah,
		       unsigned long round)
{
	struct ibv_grh *header = (struct ibv_grh *)answers->memory;
	struct ibv_ah *back;
	uint64_t number;
	struct ibv_wc wc;

	post_recv(asks);
	post_recv(answers);
	post_send(asks, ah, answers->qp->qp_num, round);

	wc = wait_for(answers, IBV_WC_RECV);
	if (!(wc.wc_flags & IBV_WC_GRH) || wc.byte_len != HEADER + sizeof(number))
		wrong("the question has no header, or another length", round);
	memcpy(&number, answers->memory + HEADER, sizeof(number));
	if (number != round)
		wrong("another question", round);
	if (port.link_layer != IBV_LINK_LAYER_ETHERNET &&
	    (be32toh(header->version_tclass_flow) >> 28 != 6 || header->next_hdr != 0x1b ||
	     be16toh(header->paylen) != 12 + 8 + sizeof(number) + 4 ||
	     memcmp(&header->sgid, &gid, sizeof(gid)) || memcmp(&header->dgid, &gid, sizeof(gid))))
		wrong("the question's header is not valid", round);
	back = need("create an address handle of a completion",
		    ibv_create_ah_from_wc(pd, &wc, header, PORT));
	post_send(answers, back, wc.src_qp, ~number);
	wait_for(answers, IBV_WC_SEND);
	ibv_destroy_ah(back);

	wc = wait_for(asks, IBV_WC_RECV);
	memcpy(&number, asks->memory + HEADER, sizeof(number));
	if (number != ~(uint64_t)round || wc.src_qp != answers->qp->qp_num)
		wrong("another answer, or of another queue pair", round);
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 2 ? strtoul(argv[2], NULL, 10) : 100, round;
	struct side asks, answers;
	struct ibv_ah *by_gid, *by_lid = NULL;

	open_device(argc > 1 ? argv[1] : NULL);
	pd = need("allocate a protection domain", ibv_alloc_pd(context));
	make(&asks);
	make(&answers);
	by_gid = address(1);
	if (port.link_layer != IBV_LINK_LAYER_ETHERNET)
		by_lid = address(0);
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
