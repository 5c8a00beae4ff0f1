// SPDX-License-Identifier: GPL-2.0
/*
 * statuses [DEVICE]: each status of a completion that this kind of device has,
 * by libibverbs.
 *
 * Each case connects two queue pairs of this process, posts requests, and checks
 * the completions of both. The port is one of InfiniBand. Prints a line of JSON
 * with the statuses.
 *
 * scripts/guest --verbs -- statuses qpair0
 */
#include <infiniband/verbs.h>

#include "example.h"

#define BYTES		4096
#define RIGHTS		(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

struct side {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t memory[BYTES] __attribute__((aligned(8)));
};

/* A queue pair, and its peer: each has a protection domain of its own. */
static struct side near, far;
static unsigned int seen;

static void make(struct side *side, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = type,
		.sq_sig_all = 1,
	};

	side->pd = need(ibv_alloc_pd(context), "allocate a PD");
	side->mr = need(ibv_reg_mr(side->pd, side->memory, BYTES, RIGHTS), "register memory");
	side->cq = need(ibv_create_cq(context, 16, NULL, NULL, 0), "create a CQ");
	init.send_cq = side->cq;
	init.recv_cq = side->cq;
	side->qp = need(ibv_create_qp(side->pd, &init), "create a queue pair");
}

static void connect_to(struct side *side, const struct side *peer)
{
	struct ibv_qp_attr attr = attributes(peer->qp->qp_num);

	attr.qp_access_flags = RIGHTS;
	attr.min_rnr_timer = 1;
	attr.timeout = 10;
	attr.retry_cnt = 1;
	attr.rnr_retry = 1;
	move_to_rts(side->qp, &attr);
}

static void destroy(struct side *side)
{
	if (side->qp)
		must(ibv_destroy_qp(side->qp), "destroy a queue pair");
	must(ibv_destroy_cq(side->cq), "destroy a CQ");
	must(ibv_dereg_mr(side->mr), "deregister memory");
	must(ibv_dealloc_pd(side->pd), "free a PD");
}

static void post_recv(struct side *side, uint32_t bytes, uint32_t lkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)side->memory, .length = bytes, .lkey = lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	must(ibv_post_recv(side->qp, &wr, &bad), "post a receive");
}

/* Posts a request of 8 bytes from the near side. */
static void post(enum ibv_wr_opcode opcode, uint32_t lkey, uint64_t remote, uint32_t rkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)near.memory, .length = 8, .lkey = lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	must(ibv_post_send(near.qp, &wr, &bad), "post a send");
}

/* Checks the status of the next completion of a side. */
static void ends(struct side *side, enum ibv_wc_status status)
{
	struct ibv_wc wc = wait_one(side->cq);

	if (wc.status != status)
		errx(1, "%s: %s instead of %s", doing, ibv_wc_status_str(wc.status),
		     ibv_wc_status_str(status));
	seen |= 1U << status;
}

static uint64_t remote(void)
{
	return (uintptr_t)far.memory;
}

static void a_write(void)
{
	post(IBV_WR_RDMA_WRITE, near.mr->lkey, remote(), far.mr->rkey);
	ends(&near, IBV_WC_SUCCESS);
}

static void a_short_receive(void)
{
	post_recv(&far, 4, far.mr->lkey);
	post(IBV_WR_SEND, near.mr->lkey, 0, 0);
	ends(&far, IBV_WC_LOC_LEN_ERR);
	ends(&near, IBV_WC_REM_INV_REQ_ERR);
}

static void a_read_of_uc(void)
{
	post(IBV_WR_RDMA_READ, near.mr->lkey, remote(), far.mr->rkey);
	ends(&near, IBV_WC_LOC_QP_OP_ERR);
}

static void memory_of_another_domain(void)
{
	post(IBV_WR_RDMA_WRITE, far.mr->lkey, remote(), far.mr->rkey);
	ends(&near, IBV_WC_LOC_PROT_ERR);
}

static void what_is_behind_an_error(void)
{
	post_recv(&near, 8, near.mr->lkey);
	post(IBV_WR_RDMA_WRITE, far.mr->lkey, remote(), far.mr->rkey);
	post(IBV_WR_RDMA_WRITE, near.mr->lkey, remote(), far.mr->rkey);
	ends(&near, IBV_WC_LOC_PROT_ERR);
	ends(&near, IBV_WC_WR_FLUSH_ERR);
	ends(&near, IBV_WC_WR_FLUSH_ERR);
}

/* The region may not have windows. */
static void a_bind_without_the_right(void)
{
	struct ibv_mw *mw = need(ibv_alloc_mw(near.pd, IBV_MW_TYPE_2), "allocate a window");
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_BIND_MW,
		.bind_mw = {
			.mw = mw,
			.rkey = ibv_inc_rkey(mw->rkey),
			.bind_info = {
				.mr = near.mr,
				.addr = (uintptr_t)near.memory,
				.length = 8,
				.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
			},
		},
	}, *bad;

	must(ibv_post_send(near.qp, &wr, &bad), "post a bind");
	ends(&near, IBV_WC_MW_BIND_ERR);
	must(ibv_dealloc_mw(mw), "free a window");
}

static void a_write_with_immediate_data(void)
{
	post_recv(&far, 8, far.mr->lkey);
	post(IBV_WR_RDMA_WRITE_WITH_IMM, near.mr->lkey, remote(), near.mr->rkey);
	ends(&far, IBV_WC_LOC_ACCESS_ERR);
	ends(&near, IBV_WC_REM_ACCESS_ERR);
}

static void an_atomic_that_is_not_aligned(void)
{
	post(IBV_WR_ATOMIC_FETCH_AND_ADD, near.mr->lkey, remote() + 4, far.mr->rkey);
	ends(&near, IBV_WC_REM_INV_REQ_ERR);
}

static void memory_that_is_not_the_peers(void)
{
	post(IBV_WR_RDMA_WRITE, near.mr->lkey, remote() + BYTES, far.mr->rkey);
	ends(&near, IBV_WC_REM_ACCESS_ERR);
}

static void a_receive_into_memory_of_another_domain(void)
{
	post_recv(&far, 8, near.mr->lkey);
	post(IBV_WR_SEND, near.mr->lkey, 0, 0);
	ends(&far, IBV_WC_LOC_PROT_ERR);
	ends(&near, IBV_WC_REM_OP_ERR);
}

static void a_peer_that_is_gone(void)
{
	must(ibv_destroy_qp(far.qp), "destroy the peer");
	far.qp = NULL;
	post(IBV_WR_SEND, near.mr->lkey, 0, 0);
	ends(&near, IBV_WC_RETRY_EXC_ERR);
}

static void no_receive(void)
{
	post(IBV_WR_SEND, near.mr->lkey, 0, 0);
	ends(&near, IBV_WC_RNR_RETRY_EXC_ERR);
}

#define CASE(type, name) { IBV_QPT_##type, #name, name }

static const struct {
	enum ibv_qp_type type;
	const char *name;
	void (*run)(void);
} cases[] = {
	CASE(RC, a_write),
	CASE(RC, a_short_receive),
	CASE(UC, a_read_of_uc),
	CASE(RC, memory_of_another_domain),
	CASE(RC, what_is_behind_an_error),
	CASE(RC, a_bind_without_the_right),
	CASE(RC, a_write_with_immediate_data),
	CASE(RC, an_atomic_that_is_not_aligned),
	CASE(RC, memory_that_is_not_the_peers),
	CASE(RC, a_receive_into_memory_of_another_domain),
	CASE(RC, a_peer_that_is_gone),
	CASE(RC, no_receive),
};

int main(int argc, char **argv)
{
	const char *between = "";
	unsigned int i;

	open_port(argc > 1 ? argv[1] : NULL);
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		now("%s", cases[i].name);
		make(&near, cases[i].type);
		make(&far, cases[i].type);
		connect_to(&near, &far);
		connect_to(&far, &near);
		cases[i].run();
		destroy(&near);
		destroy(&far);
	}
	printf("{ \"device\": \"%s\", \"statuses\": [", ibv_get_device_name(context->device));
	for (i = 0; i < 32; i++) {
		if (!(seen & 1U << i))
			continue;
		printf("%s\"%s\"", between, ibv_wc_status_str(i));
		between = ", ";
	}
	printf("] }\n");
	ibv_close_device(context);
	return 0;
}
