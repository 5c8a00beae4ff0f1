// SPDX-License-Identifier: GPL-2.0
/*
 * loop [DEVICE [COUNT [BATCH]]]: an ordinary program of libibverbs.
 *
 * Two queue pairs of this process are connected to each other. COUNT WRITEs of
 * 64 bytes go from one to the other, BATCH in a list, each to the next slot of a
 * ring of slots. Then a SEND with immediate data says how many there were; its
 * receiver sleeps until the completion. At the end the slots must have the last
 * round's numbers. Prints a line of JSON.
 *
 * It runs on any RDMA device: scripts/guest --verbs -- loop rxe0
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BYTES		64
#define SLOTS		1024
#define MOST		256
#define PORT		1

struct side {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory;
};

static struct ibv_context *context;
static struct ibv_comp_channel *channel;
static struct side from, to;
static unsigned long count = 10000;
static unsigned int batch = 32;
/* For rxe: a port of Ethernet is addressed by GIDs. */
static int gid_index = -1;
static union ibv_gid gid;
static struct ibv_port_attr port;

static void fail(const char *what, int error)
{
	fprintf(stderr, "loop: cannot %s: %s\n", what, strerror(error));
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
		fprintf(stderr, "loop: there is no RDMA device %s; ibv_devices lists them\n",
			name ? name : "at all");
		exit(1);
	}
	context = need("open the device", ibv_open_device(all[i]));
	ibv_free_device_list(all);
	if (ibv_query_port(context, PORT, &port))
		fail("query the port", errno);
	if (port.link_layer != IBV_LINK_LAYER_ETHERNET)
		return;
	for (i = 0; i < port.gid_tbl_len; i++)
		if (!ibv_query_gid(context, PORT, i, &gid) && gid.global.interface_id)
			gid_index = i;
	if (gid_index < 0)
		fail("find a GID", ENODEV);
	ibv_query_gid(context, PORT, gid_index, &gid);
}

static void make(struct side *side, struct ibv_pd *pd, struct ibv_comp_channel *events)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = MOST, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	int error;

	side->memory = need("get memory", aligned_alloc(4096, SLOTS * BYTES));
	memset(side->memory, 0, SLOTS * BYTES);
	side->mr = need("register memory",
			ibv_reg_mr(pd, side->memory, SLOTS * BYTES,
				   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	side->cq = need("create a CQ", ibv_create_cq(context, MOST + 1, NULL, events, 0));
	init.send_cq = side->cq;
	init.recv_cq = side->cq;
	side->qp = need("create a queue pair", ibv_create_qp(pd, &init));
	error = ibv_modify_qp(side->qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (error)
		fail("bring a queue pair to INIT", error);
}

static void connect_to(struct side *side, const struct side *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = port.active_mtu,
		.dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .dlid = port.lid, .port_num = PORT },
	};
	int error;

	if (gid_index >= 0) {
		attr.ah_attr.is_global = 1;
		attr.ah_attr.grh.dgid = gid;
		attr.ah_attr.grh.sgid_index = gid_index;
		attr.ah_attr.grh.hop_limit = 1;
	}
	error = ibv_modify_qp(side->qp, &attr,
			      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (error)
		fail("bring a queue pair to RTR", error);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	error = ibv_modify_qp(side->qp, &attr,
			      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	if (error)
		fail("bring a queue pair to RTS", error);
}

static void succeeded(const struct ibv_wc *wc)
{
	if (wc->status == IBV_WC_SUCCESS)
		return;
	fprintf(stderr, "loop: request %llu failed: %s\n", (unsigned long long)wc->wr_id,
		ibv_wc_status_str(wc->status));
	exit(1);
}

/* Polls at most most completions; returns how many there were. */
static int poll(struct side *side, int most, struct ibv_wc *wc)
{
	int polled = ibv_poll_cq(side->cq, most, wc);

	if (polled < 0)
		fail("poll a CQ", -polled);
	return polled;
}

/* A WRITE for each slot. They are prepared once, and posted again and again. */
static struct ibv_send_wr wr[SLOTS];
static struct ibv_sge sge[SLOTS];

static void prepare(void)
{
	unsigned int i;

	for (i = 0; i < SLOTS; i++) {
		sge[i].addr = (uintptr_t)from.memory + i * BYTES;
		sge[i].length = BYTES;
		sge[i].lkey = from.mr->lkey;
		wr[i].wr_id = i;
		wr[i].next = &wr[(i + 1) % SLOTS];
		wr[i].sg_list = &sge[i];
		wr[i].num_sge = 1;
		wr[i].opcode = IBV_WR_RDMA_WRITE;
		wr[i].wr.rdma.remote_addr = (uintptr_t)to.memory + i * BYTES;
		wr[i].wr.rdma.rkey = to.mr->rkey;
	}
}

/* Posts one list of n WRITEs, the first of number first. */
static void post(unsigned long first, unsigned int n)
{
	struct ibv_send_wr *last = &wr[(first + n - 1) % SLOTS], *after = last->next, *bad;
	int error;

	last->next = NULL;
	error = ibv_post_send(from.qp, &wr[first % SLOTS], &bad);
	if (error)
		fail("post WRITEs", error);
	last->next = after;
}

static void write_all(void)
{
	unsigned long posted = 0, done = 0;
	struct ibv_wc wc[MOST];
	int i, polled;

	while (done < count) {
		unsigned int n = count - posted < batch ? count - posted : batch;

		if (n && posted - done + n <= MOST) {
			post(posted, n);
			posted += n;
		}
		polled = poll(&from, MOST, wc);
		for (i = 0; i < polled; i++) {
			succeeded(&wc[i]);
			if (wc[i].wr_id != done++ % SLOTS) {
				fprintf(stderr, "loop: completions are out of order\n");
				exit(1);
			}
		}
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
	int error;

	error = ibv_post_recv(to.qp, &recv, &bad_recv);
	if (error)
		fail("post a receive", error);
	error = ibv_req_notify_cq(to.cq, 1);
	if (error)
		fail("ask for an event", error);
	error = ibv_post_send(from.qp, &send, &bad_send);
	if (error)
		fail("post a SEND", error);
	while (!poll(&to, 1, &wc)) {
		if (ibv_get_cq_event(channel, &cq, &ignored))
			fail("wait for an event", errno);
		ibv_ack_cq_events(cq, 1);
	}
	succeeded(&wc);
	if (!(wc.wc_flags & IBV_WC_WITH_IMM) || wc.imm_data != (uint32_t)count) {
		fprintf(stderr, "loop: the immediate data are wrong\n");
		exit(1);
	}
	while (!poll(&from, 1, &wc))
		;
	succeeded(&wc);
}

static void check(void)
{
	size_t used = count < SLOTS ? count * BYTES : SLOTS * BYTES;

	if (memcmp(from.memory, to.memory, used)) {
		fprintf(stderr, "loop: the memory is wrong\n");
		exit(1);
	}
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
	if (argc > 4 || !count || !batch || batch > MOST) {
		fprintf(stderr, "usage: loop [DEVICE [COUNT [BATCH]]], BATCH from 1 to %d\n", MOST);
		return 2;
	}
	open_device(argc > 1 ? argv[1] : NULL);
	pd = need("allocate a PD", ibv_alloc_pd(context));
	channel = need("create a completion channel", ibv_create_comp_channel(context));
	make(&from, pd, NULL);
	make(&to, pd, channel);
	connect_to(&from, &to);
	connect_to(&to, &from);
	for (i = 0; i < SLOTS * BYTES; i++)
		from.memory[i] = i * 7 + i / 256;

	prepare();
	clock_gettime(CLOCK_MONOTONIC, &begin);
	write_all();
	clock_gettime(CLOCK_MONOTONIC, &end);
	tell();
	check();
	seconds = end.tv_sec - begin.tv_sec + (end.tv_nsec - begin.tv_nsec) / 1e9;
	printf("{\"device\": \"%s\", \"messages\": %lu, \"batch\": %u, \"seconds\": %.9f}\n",
	       ibv_get_device_name(context->device), count, batch, seconds);

	ibv_destroy_qp(from.qp);
	ibv_destroy_qp(to.qp);
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
