// SPDX-License-Identifier: GPL-2.0
/*
 * sizes [DEVICE]: what queues hold and requests take is what libibverbs returns.
 *
 * Queue pairs and a shared receive queue take as many requests as they say, and
 * no more; a send takes as many inline bytes, although none were asked for.
 * Queue pairs of each type have as many SGEs as the device says, and no more. A
 * create that fails does not change what was asked for. A region of no bytes can
 * be registered, and no byte of it can be accessed.
 *
 * It runs on a port of InfiniBand: scripts/guest --verbs -- sizes qpair0
 */
#include <infiniband/verbs.h>
#include <sys/resource.h>

#include "example.h"

#define ASKED		10
#define MOST		4096
#define BYTES		4096

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_device_attr limits;
/* What is sent, and where it arrives. */
static uint8_t memory[2 * BYTES];

static struct ibv_qp *create(enum ibv_qp_type type, struct ibv_qp_cap *cap)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = *cap,
		.qp_type = type,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	*cap = init.cap;
	return qp;
}

/* Connects a queue pair to itself. */
static void connect_own(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = attributes(qp->qp_num);

	move_to_rts(qp, &attr);
}

/* Posts a WRITE of so many bytes to the midst of a region; returns an error. */
static int post_write(struct ibv_qp *qp, uint32_t bytes, struct ibv_mr *to, unsigned int flags)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = bytes, .lkey = mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = flags | IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)to->addr + to->length / 2, .rkey = to->rkey },
	};

	return ibv_post_send(qp, &wr, &bad);
}

/* Posts receives until one is refused; returns how many were posted. */
static uint32_t fill(struct ibv_qp *qp, struct ibv_srq *srq)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = 1, .lkey = mr->lkey };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };
	uint32_t count;
	int error;

	for (count = 0; count < MOST; count++) {
		error = srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad);
		if (error) {
			check(error == ENOMEM, "a full queue returns another error than ENOMEM");
			break;
		}
	}
	return count;
}

static void queue_pair(void)
{
	struct ibv_qp_cap cap = {
		.max_send_wr = ASKED,
		.max_recv_wr = ASKED,
		.max_send_sge = 1,
		.max_recv_sge = 1,
	};
	struct ibv_qp *qp = create(IBV_QPT_RC, &cap);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	uint32_t count;

	need(qp, "create it");
	check(cap.max_send_wr >= ASKED && cap.max_recv_wr >= ASKED,
	      "its queues are smaller than was asked for");
	must(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init), "query it");
	check(!memcmp(&attr.cap, &cap, sizeof(cap)) && !memcmp(&init.cap, &cap, sizeof(cap)),
	      "a query returns other sizes than the create");
	connect_own(qp);
	check(cap.max_inline_data >= 16, "a send takes fewer than 16 inline bytes");
	check(post_write(qp, cap.max_inline_data + 1, mr, IBV_SEND_INLINE) == EINVAL,
	      "a send takes more inline bytes than max_inline_data");
	for (count = 0; count < MOST; count++)
		if (post_write(qp, cap.max_inline_data, mr, IBV_SEND_INLINE))
			break;
	check(count == cap.max_send_wr, "it does not take max_send_wr sends");
	while (count--)
		check(wait_one(cq).status == IBV_WC_SUCCESS, "a WRITE fails");
	check(!memcmp(memory, memory + BYTES, cap.max_inline_data), "the bytes differ from those sent");
	check(fill(qp, NULL) == cap.max_recv_wr, "it does not take max_recv_wr receives");
	must(ibv_destroy_qp(qp), "destroy it");
}

static void shared_queue(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = ASKED, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	struct ibv_srq_attr attr;
	uint32_t held;

	need(srq, "create it");
	must(ibv_query_srq(srq, &attr), "query it");
	check(init.attr.max_wr >= ASKED, "it is smaller than was asked for");
	check(attr.max_wr == init.attr.max_wr, "a query returns another size than the create");
	held = fill(NULL, srq);
	check(held == attr.max_wr, "it does not take max_wr receives");
	attr.max_wr = held + ASKED;
	must(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), "resize it");
	must(ibv_query_srq(srq, &attr), "query it");
	check(attr.max_wr >= held + ASKED, "a resize has not made it larger");
	check(held + fill(NULL, srq) == attr.max_wr, "it does not take max_wr receives after a resize");
	must(ibv_destroy_srq(srq), "destroy it");
}

static void pieces(enum ibv_qp_type type)
{
	uint32_t most = limits.max_sge;
	struct ibv_qp_cap cap = {
		.max_send_wr = 1,
		.max_recv_wr = 1,
		.max_send_sge = most,
		.max_recv_sge = most,
	};
	struct ibv_qp *qp = create(type, &cap);

	need(qp, "create a queue pair with max_sge");
	must(ibv_destroy_qp(qp), "destroy it");
	cap.max_send_sge = most + 1;
	check(!create(type, &cap) && errno == EINVAL,
	      "more than max_sge of a send are not refused with EINVAL");
	cap.max_send_sge = most;
	cap.max_recv_sge = most + 1;
	check(!create(type, &cap) && errno == EINVAL,
	      "more than max_sge of a receive are not refused with EINVAL");
}

/* Without memory for the queues. */
static void refused(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = ASKED, .max_recv_wr = ASKED,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp_cap asked = init.cap;
	struct rlimit before, none;
	struct ibv_qp *qp;
	int error;

	must(getrlimit(RLIMIT_AS, &before), "get the limit");
	none = (struct rlimit) { .rlim_max = before.rlim_max };
	must(setrlimit(RLIMIT_AS, &none), "set the limit");
	qp = ibv_create_qp_ex(context, &init);
	error = errno;
	must(setrlimit(RLIMIT_AS, &before), "restore the limit");
	check(!qp && error == ENOMEM, "its create does not fail with ENOMEM");
	check(!memcmp(&init.cap, &asked, sizeof(asked)), "a create that fails changes its request");
	qp = need(ibv_create_qp_ex(context, &init), "create one when there is memory");
	check(init.cap.max_inline_data >= 16, "a send takes fewer than 16 inline bytes");
	must(ibv_destroy_qp(qp), "destroy it");
}

/* A region of no bytes, aligned to pages or not. */
static void no_bytes(void *start)
{
	struct ibv_qp_cap cap = { .max_send_wr = 2, .max_send_sge = 1 };
	struct ibv_mr *empty = ibv_reg_mr(pd, start, 0, IBV_ACCESS_LOCAL_WRITE |
					  IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp *qp = create(IBV_QPT_RC, &cap);

	need(empty, "register it");
	need(qp, "create a queue pair");
	connect_own(qp);
	must(post_write(qp, 0, empty, 0), "post a WRITE of no bytes");
	check(wait_one(cq).status == IBV_WC_SUCCESS, "a WRITE of no bytes fails");
	must(post_write(qp, 1, empty, 0), "post a WRITE of a byte");
	check(wait_one(cq).status == IBV_WC_REM_ACCESS_ERR,
	      "a WRITE of a byte is not a remote access error");
	must(ibv_destroy_qp(qp) ?: ibv_dereg_mr(empty), "destroy it");
}

int main(int argc, char **argv)
{
	int i;

	open_port(argc > 1 ? argv[1] : NULL);
	must(ibv_query_device(context, &limits), "query the device");
	pd = need(ibv_alloc_pd(context), "allocate a PD");
	cq = need(ibv_create_cq(context, 64, NULL, NULL, 0), "create a CQ");
	mr = need(ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE |
			     IBV_ACCESS_REMOTE_WRITE), "register memory");
	for (i = 0; i < BYTES; i++)
		memory[i] = 1 + i % 255;
	now("a queue pair");
	queue_pair();
	now("an SRQ");
	shared_queue();
	now("SGEs");
	pieces(IBV_QPT_RC);
	pieces(IBV_QPT_UC);
	pieces(IBV_QPT_UD);
	now("a queue pair without memory");
	refused();
	now("a region of no bytes");
	no_bytes(memory + 1);
	no_bytes((void *)(((uintptr_t)memory + BYTES - 1) & ~(uintptr_t)(BYTES - 1)));
	now("end");
	must(ibv_dereg_mr(mr) ?: ibv_destroy_cq(cq) ?: ibv_dealloc_pd(pd) ?: ibv_close_device(context),
	     "destroy what is left");
	printf("sizes hold\n");
	return 0;
}
