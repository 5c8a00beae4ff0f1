// SPDX-License-Identifier: GPL-2.0
/*
 * loop [DEVICE [COUNT [BATCH [KIND]]]]: an ordinary program of libibverbs.
 *
 * Two queue pairs of this process are connected to each other. COUNT requests
 * of 64 bytes go from one to the other, BATCH in a list, each with the next slot
 * of a ring of slots. KIND is
 *
 *   write   WRITEs, the default. Then a SEND with immediate data says how many
 *           there were; its receiver sleeps until the completion
 *   send    SENDs into receives, which are posted in lists too
 *   srq     the same, into receives of a shared receive queue
 *   uc, ud  the same, of queue pairs of that type
 *   atomic  fetch and add to one word, of 8 bytes
 *
 * At the end the slots must have the last round's numbers. Prints a line of
 * JSON.
 *
 * It runs on any RDMA device: scripts/guest --verbs -- loop rxe0
 */
#include <infiniband/verbs.h>

#include "example.h"

#define BYTES		64
#define SLOTS		1024
#define MOST		256
/* A datagram has a header before it. */
#define ROOM		(GRH + BYTES)

enum kind { WRITE, SEND, SRQ, UC, UD, ATOMIC, KINDS };

static const char *const kinds[KINDS] = { "write", "send", "srq", "uc", "ud", "atomic" };

struct side {
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory;
};

static struct ibv_comp_channel *channel;
static struct side from, to;
static unsigned long count = 10000;
static unsigned int batch = 32;
static enum kind kind;
/* Of UD: the address of the own port. */
static struct ibv_ah *ah;

static void make(struct side *side, struct ibv_pd *pd, struct ibv_comp_channel *events)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = MOST, .max_recv_wr = MOST, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = kind == UD ? IBV_QPT_UD : kind == UC ? IBV_QPT_UC : IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = MOST, .max_sge = 1 } };
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	/* What the kind does not need, a device may not have. */
	if (kind == ATOMIC)
		rights |= IBV_ACCESS_REMOTE_ATOMIC;
	side->memory = need(aligned_alloc(4096, SLOTS * ROOM), "get memory");
	memset(side->memory, 0, SLOTS * ROOM);
	side->mr = need(ibv_reg_mr(pd, side->memory, SLOTS * ROOM, rights), "register memory");
	side->cq = need(ibv_create_cq(context, 2 * MOST, NULL, events, 0), "create a CQ");
	init.send_cq = side->cq;
	init.recv_cq = side->cq;
	if (kind == SRQ)
		side->srq = need(ibv_create_srq(pd, &shared), "create an SRQ");
	init.srq = side->srq;
	side->qp = need(ibv_create_qp(pd, &init), "create a queue pair");
}

static void connect_to(struct side *side, const struct side *peer)
{
	struct ibv_qp_attr attr = attributes(peer->qp->qp_num);

	if (kind == ATOMIC)
		attr.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
	move_to_rts(side->qp, &attr);
}

static void succeeded(const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS)
		errx(1, "request %llu failed: %s", (unsigned long long)wc->wr_id,
		     ibv_wc_status_str(wc->status));
}

/* A request for each slot. They are prepared once, and posted again and again. */
static struct ibv_send_wr wr[SLOTS];
static struct ibv_sge sge[SLOTS];
/* The same of receives. */
static struct ibv_recv_wr recv_wr[SLOTS];
static struct ibv_sge recv_sge[SLOTS];

static void prepare(void)
{
	static const enum ibv_wr_opcode opcodes[KINDS] = {
		IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_SEND, IBV_WR_SEND, IBV_WR_SEND,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	unsigned int i;

	for (i = 0; i < SLOTS; i++) {
		sge[i].addr = (uintptr_t)from.memory + i * BYTES;
		sge[i].length = kind == ATOMIC ? sizeof(uint64_t) : BYTES;
		sge[i].lkey = from.mr->lkey;
		wr[i].wr_id = i;
		wr[i].next = &wr[(i + 1) % SLOTS];
		wr[i].sg_list = &sge[i];
		wr[i].num_sge = 1;
		wr[i].opcode = opcodes[kind];
		if (kind == UD) {
			wr[i].wr.ud.ah = ah;
			wr[i].wr.ud.remote_qpn = to.qp->qp_num;
			wr[i].wr.ud.remote_qkey = Q_KEY;
		} else if (kind == ATOMIC) {
			wr[i].wr.atomic.remote_addr = (uintptr_t)to.memory;
			wr[i].wr.atomic.rkey = to.mr->rkey;
			wr[i].wr.atomic.compare_add = 1;
		} else {
			wr[i].wr.rdma.remote_addr = (uintptr_t)to.memory + i * BYTES;
			wr[i].wr.rdma.rkey = to.mr->rkey;
		}
		recv_sge[i].addr = (uintptr_t)to.memory + i * ROOM;
		recv_sge[i].length = ROOM;
		recv_sge[i].lkey = to.mr->lkey;
		recv_wr[i].wr_id = i;
		recv_wr[i].next = &recv_wr[(i + 1) % SLOTS];
		recv_wr[i].sg_list = &recv_sge[i];
		recv_wr[i].num_sge = 1;
	}
}

/* Posts one list of n requests, the first of number first. */
static void post(unsigned long first, unsigned int n)
{
	struct ibv_send_wr *last = &wr[(first + n - 1) % SLOTS], *after = last->next, *bad;

	last->next = NULL;
	must(ibv_post_send(from.qp, &wr[first % SLOTS], &bad), "post requests");
	last->next = after;
}

/* The same of receives. */
static void post_receives(unsigned long first, unsigned int n)
{
	struct ibv_recv_wr *last = &recv_wr[(first + n - 1) % SLOTS], *after = last->next, *bad;
	int error;

	last->next = NULL;
	if (to.srq)
		error = ibv_post_srq_recv(to.srq, &recv_wr[first % SLOTS], &bad);
	else
		error = ibv_post_recv(to.qp, &recv_wr[first % SLOTS], &bad);
	must(error, "post receives");
	last->next = after;
}

/* Polls some completions of a side that come in the order of posting; returns how many. */
static unsigned int poll_in_order(struct side *side, unsigned long done)
{
	struct ibv_wc wc[MOST];
	int i, polled = poll_cq(side->cq, MOST, wc);

	for (i = 0; i < polled; i++) {
		succeeded(&wc[i]);
		check(wc[i].wr_id == (done + i) % SLOTS, "completions are out of order");
	}
	return polled;
}

/* Sends all, into receives that are posted before. */
static void send_all(void)
{
	unsigned long posted = 0, sent = 0, received = 0;

	while (sent < count || received < count) {
		unsigned int n = count - posted < batch ? count - posted : batch;

		if (n && posted - sent + n <= MOST && posted - received + n <= MOST) {
			post_receives(posted, n);
			post(posted, n);
			posted += n;
		}
		sent += poll_in_order(&from, sent);
		received += poll_in_order(&to, received);
	}
}

static void write_all(void)
{
	unsigned long posted = 0, done = 0;

	while (done < count) {
		unsigned int n = count - posted < batch ? count - posted : batch;

		if (n && posted - done + n <= MOST) {
			post(posted, n);
			posted += n;
		}
		done += poll_in_order(&from, done);
	}
}

/* Tells the other side how many there were; it sleeps until then. */
static void tell(void)
{
	struct ibv_recv_wr recv = { .wr_id = 1 }, *bad_recv;
	struct ibv_send_wr send = {
		.wr_id = 2,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_SOLICITED,
		.imm_data = (uint32_t)count,
	}, *bad_send;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *ignored;

	must(ibv_post_recv(to.qp, &recv, &bad_recv), "post a receive");
	must(ibv_req_notify_cq(to.cq, 1), "ask for an event");
	must(ibv_post_send(from.qp, &send, &bad_send), "post a SEND");
	while (!poll_cq(to.cq, 1, &wc)) {
		must(ibv_get_cq_event(channel, &cq, &ignored), "wait for an event");
		ibv_ack_cq_events(cq, 1);
	}
	succeeded(&wc);
	check(wc.wc_flags & IBV_WC_WITH_IMM && wc.imm_data == (uint32_t)count,
	      "the immediate data are wrong");
	while (!poll_cq(from.cq, 1, &wc))
		;
	succeeded(&wc);
}

static void compare(void)
{
	size_t used = count < SLOTS ? count : SLOTS, i;
	int same = 1;

	if (kind == ATOMIC) {
		same = *(uint64_t *)to.memory == count;
	} else if (kind == WRITE) {
		same = !memcmp(from.memory, to.memory, used * BYTES);
	} else {
		for (i = 0; i < used; i++)
			same &= !memcmp(from.memory + i * BYTES,
					to.memory + i * ROOM + (kind == UD ? GRH : 0), BYTES);
	}
	check(same, "the memory is wrong");
}

int main(int argc, char **argv)
{
	struct timespec begin, end;
	struct ibv_pd *pd;
	double seconds;
	size_t i;

	if (argc > 2)
		count = strtoul(argv[2], NULL, 0);
	if (argc > 3)
		batch = strtoul(argv[3], NULL, 0);
	while (argc > 4 && kind < KINDS && strcmp(argv[4], kinds[kind]))
		kind++;
	if (argc > 5 || !count || !batch || batch > MOST || kind == KINDS) {
		fprintf(stderr, "usage: loop [DEVICE [COUNT [BATCH [KIND]]]], BATCH from 1 to %d,\n"
			"KIND of write, send, srq, uc, ud, atomic\n", MOST);
		return 2;
	}
	now("%s", kinds[kind]);
	open_port(argc > 1 ? argv[1] : NULL);
	pd = need(ibv_alloc_pd(context), "allocate a PD");
	channel = need(ibv_create_comp_channel(context), "create a completion channel");
	make(&from, pd, NULL);
	make(&to, pd, channel);
	if (kind == UD) {
		struct ibv_ah_attr attr = attributes(0).ah_attr;

		ah = need(ibv_create_ah(pd, &attr), "create an address handle");
	}
	connect_to(&from, &to);
	connect_to(&to, &from);
	for (i = 0; kind != ATOMIC && i < SLOTS * BYTES; i++)
		from.memory[i] = i * 7 + i / 256;

	prepare();
	clock_gettime(CLOCK_MONOTONIC, &begin);
	if (kind == WRITE || kind == ATOMIC)
		write_all();
	else
		send_all();
	clock_gettime(CLOCK_MONOTONIC, &end);
	if (kind == WRITE)
		tell();
	compare();
	seconds = end.tv_sec - begin.tv_sec + (end.tv_nsec - begin.tv_nsec) / 1e9;
	printf("{\"device\": \"%s\", \"messages\": %lu, \"batch\": %u, \"seconds\": %.9f}\n",
	       ibv_get_device_name(context->device), count, batch, seconds);

	ibv_destroy_qp(from.qp);
	ibv_destroy_qp(to.qp);
	if (ah)
		ibv_destroy_ah(ah);
	if (kind == SRQ) {
		ibv_destroy_srq(from.srq);
		ibv_destroy_srq(to.srq);
	}
	ibv_destroy_cq(from.cq);
	ibv_destroy_cq(to.cq);
	ibv_destroy_comp_channel(channel);
	ibv_dereg_mr(from.mr);
	ibv_dereg_mr(to.mr);
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
	free(from.memory);
	free(to.memory);
	return 0;
}
