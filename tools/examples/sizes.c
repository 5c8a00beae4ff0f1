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
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define ASKED		10
#define MOST		4096
#define BYTES		4096
/* Seconds until a completion that is missing is an error. */
#define PATIENCE	20

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_port_attr port;
static struct ibv_device_attr limits;
/* What is sent, and where it arrives. */
static uint8_t memory[2 * BYTES];

static void check(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "sizes: %s: %s\n", what, strerror(errno));
	exit(1);
}

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
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = port.active_mtu,
		.dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1,
		.ah_attr = { .dlid = port.lid, .port_num = 1 },
		.timeout = 14,
		.retry_cnt = 7,
		.max_rd_atomic = 1,
	};

	check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			     IBV_QP_ACCESS_FLAGS), "no INIT");
	attr.qp_state = IBV_QPS_RTR;
	check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			     IBV_QP_MIN_RNR_TIMER), "no RTR");
	attr.qp_state = IBV_QPS_RTS;
	check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "no RTS");
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

static enum ibv_wc_status wait_one(void)
{
	time_t begin = time(NULL);
	struct ibv_wc wc;

	while (!ibv_poll_cq(cq, 1, &wc))
		check(time(NULL) - begin < PATIENCE, "a completion is missing");
	return wc.status;
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
			check(error == ENOMEM, "another error of a full queue");
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

	check(!!qp, "no queue pair");
	check(cap.max_send_wr >= ASKED && cap.max_recv_wr >= ASKED, "less than was asked for");
	check(!ibv_query_qp(qp, &attr, IBV_QP_CAP, &init), "no query");
	check(!memcmp(&attr.cap, &cap, sizeof(cap)) && !memcmp(&init.cap, &cap, sizeof(cap)),
	      "a query returns another size than the create");
	connect_own(qp);
	check(cap.max_inline_data >= 16, "a block has no room for inline data");
	check(post_write(qp, cap.max_inline_data + 1, mr, IBV_SEND_INLINE) == EINVAL,
	      "more inline bytes than there is room for");
	for (count = 0; count < MOST; count++)
		if (post_write(qp, cap.max_inline_data, mr, IBV_SEND_INLINE))
			break;
	check(count == cap.max_send_wr, "another number of sends than the queue says");
	while (count--)
		check(wait_one() == IBV_WC_SUCCESS, "a WRITE failed");
	check(!memcmp(memory, memory + BYTES, cap.max_inline_data), "other bytes");
	check(fill(qp, NULL) == cap.max_recv_wr, "another number of receives than the queue says");
	check(!ibv_destroy_qp(qp), "no end of a queue pair");
}

static void shared_queue(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = ASKED, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	struct ibv_srq_attr attr;
	uint32_t held;

	check(!!srq, "no shared receive queue");
	check(!ibv_query_srq(srq, &attr), "no query");
	check(init.attr.max_wr >= ASKED && attr.max_wr == init.attr.max_wr,
	      "a query returns another size than the create");
	held = fill(NULL, srq);
	check(held == attr.max_wr, "another number of receives than the queue says");
	attr.max_wr = held + ASKED;
	check(!ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), "no resize");
	check(!ibv_query_srq(srq, &attr) && attr.max_wr >= held + ASKED, "no larger queue");
	check(held + fill(NULL, srq) == attr.max_wr,
	      "another number of receives than the queue says after a resize");
	check(!ibv_destroy_srq(srq), "no end of a shared receive queue");
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

	check(!!qp, "no queue pair with max_sge");
	check(!ibv_destroy_qp(qp), "no end of a queue pair");
	cap.max_send_sge = most + 1;
	check(!create(type, &cap) && errno == EINVAL, "more SGEs of a send than max_sge");
	cap.max_send_sge = most;
	cap.max_recv_sge = most + 1;
	check(!create(type, &cap) && errno == EINVAL, "more SGEs of a receive than max_sge");
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

	check(!getrlimit(RLIMIT_AS, &before), "no limit");
	none = (struct rlimit) { .rlim_max = before.rlim_max };
	check(!setrlimit(RLIMIT_AS, &none), "no limit to set");
	qp = ibv_create_qp_ex(context, &init);
	check(!setrlimit(RLIMIT_AS, &before), "no limit to restore");
	check(!qp && errno == ENOMEM, "queues without memory");
	check(!memcmp(&init.cap, &asked, sizeof(asked)), "a create that fails changes its request");
	qp = ibv_create_qp_ex(context, &init);
	check(qp && init.cap.max_inline_data >= 16, "no queue pair after one that failed");
	check(!ibv_destroy_qp(qp), "no end of a queue pair");
}

/* A region of no bytes, aligned to pages or not. */
static void no_bytes(void *start)
{
	struct ibv_qp_cap cap = { .max_send_wr = 2, .max_send_sge = 1 };
	struct ibv_mr *empty = ibv_reg_mr(pd, start, 0, IBV_ACCESS_LOCAL_WRITE |
					  IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp *qp = create(IBV_QPT_RC, &cap);

	check(empty && qp, "no region of no bytes, or no queue pair");
	connect_own(qp);
	check(!post_write(qp, 0, empty, 0) && wait_one() == IBV_WC_SUCCESS, "a WRITE of no bytes");
	check(!post_write(qp, 1, empty, 0) && wait_one() == IBV_WC_REM_ACCESS_ERR,
	      "a WRITE into no bytes");
	check(!ibv_destroy_qp(qp) && !ibv_dereg_mr(empty), "no end of a region of no bytes");
}

int main(int argc, char **argv)
{
	struct ibv_device **all = ibv_get_device_list(NULL);
	int i;

	for (i = 0; all && all[i]; i++)
		if (argc < 2 || !strcmp(ibv_get_device_name(all[i]), argv[1]))
			break;
	check(all && all[i], "no such device");
	context = ibv_open_device(all[i]);
	check(!!context, "no context");
	ibv_free_device_list(all);
	check(!ibv_query_port(context, 1, &port) && !ibv_query_device(context, &limits),
	      "no limits");
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	check(pd && cq, "no PD or CQ");
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE |
			IBV_ACCESS_REMOTE_WRITE);
	check(!!mr, "no memory region");
	for (i = 0; i < BYTES; i++)
		memory[i] = 1 + i % 255;
	queue_pair();
	shared_queue();
	pieces(IBV_QPT_RC);
	pieces(IBV_QPT_UC);
	pieces(IBV_QPT_UD);
	refused();
	no_bytes(memory + 1);
	no_bytes((void *)(((uintptr_t)memory + BYTES - 1) & ~(uintptr_t)(BYTES - 1)));
	check(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd), "no end");
	check(!ibv_close_device(context), "no end of the context");
	printf("sizes hold\n");
	return 0;
}
