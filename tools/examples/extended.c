// SPDX-License-Identifier: GPL-2.0
/*
 * extended [DEVICE]: the builders of ibv_wr_start(), and the parts of completions of
 * ibv_start_poll().
 *
 * A queue pair of RC, its own peer, sends by each way to give data; one of UD sends a
 * datagram. The completion of the receive has what was sent. Builders also bind and
 * invalidate a window. An aborted list is not posted, and too much inline data is refused.
 *
 * It runs on a port of InfiniBand: scripts/guest --verbs -- extended qpair0
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BYTES		256
/* A datagram has a header before it, and a flag for that. */
#define GRH		40
#define KEY		0x11111111
#define IMM		7
#define SEND_ID		1
#define RECV_ID		2
#define RIGHTS		(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND)
#define UD_OPS		(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define RC_OPS		(UD_OPS | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND_WITH_INV |	\
			 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW)
/* Seconds until a completion that is missing is an error. */
#define PATIENCE	20

/* The parts of a completion. */
struct parts {
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	uint32_t bytes, qpn, src_qp, slid, vendor;
	__be32 imm;
	unsigned int flags;
	uint8_t sl, path_bits;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq_ex *cq;
static struct ibv_mr *mr;
static struct ibv_port_attr port;
/* What is sent, and where it arrives. */
static uint8_t memory[2 * BYTES], *const from = memory, *const to = memory + BYTES;
static struct parts sent, received;
static const char *doing = "begin";

static void check(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "extended: %s: %s: %s\n", doing, what, strerror(errno));
	exit(1);
}

static struct ibv_qp *create(enum ibv_qp_type type, uint64_t ops)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = ibv_cq_ex_to_cq(cq),
		.recv_cq = ibv_cq_ex_to_cq(cq),
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 3, .max_recv_sge = 1 },
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = ops,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = KEY,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
	int is_ud = type == IBV_QPT_UD;

	check(!!qp, "no queue pair");
	check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			     (is_ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)), "no INIT");
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = port.active_mtu;
	attr.dest_qp_num = qp->qp_num;
	attr.ah_attr = (struct ibv_ah_attr) { .dlid = port.lid, .port_num = 1 };
	check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | (is_ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU |
			     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			     IBV_QP_MIN_RNR_TIMER)), "no RTR");
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | (is_ud ? 0 : IBV_QP_TIMEOUT |
			     IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)), "no RTS");
	return qp;
}

/* Begins a list of one request. */
static struct ibv_qp_ex *start(struct ibv_qp *qp, const char *what)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);

	doing = what;
	ibv_wr_start(ex);
	ex->wr_id = SEND_ID;
	ex->wr_flags = IBV_SEND_SIGNALED;
	return ex;
}

static void post_recv(struct ibv_qp *qp)
{
	struct ibv_sge sge = { .addr = (uintptr_t)to, .length = BYTES, .lkey = mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = RECV_ID, .sg_list = &sge, .num_sge = 1 };

	memset(to, 0, BYTES);
	check(!ibv_post_recv(qp, &wr, &bad), "no receive");
}

/* Polls so many completions. */
static void poll(unsigned int count)
{
	struct ibv_poll_cq_attr attr = {};
	time_t begin = time(NULL);
	struct parts *parts;

	memset(&sent, 0xff, sizeof(sent));
	memset(&received, 0xff, sizeof(received));
	for (; count; count--) {
		while (ibv_start_poll(cq, &attr))
			check(time(NULL) - begin < PATIENCE, "a completion is missing");
		check(cq->wr_id == RECV_ID || cq->wr_id == SEND_ID, "another wr_id");
		parts = cq->wr_id == RECV_ID ? &received : &sent;
		*parts = (struct parts) {
			.status = cq->status,
			.opcode = ibv_wc_read_opcode(cq),
			.bytes = ibv_wc_read_byte_len(cq),
			.qpn = ibv_wc_read_qp_num(cq),
			.src_qp = ibv_wc_read_src_qp(cq),
			.slid = ibv_wc_read_slid(cq),
			.vendor = ibv_wc_read_vendor_err(cq),
			.imm = ibv_wc_read_imm_data(cq),
			.flags = ibv_wc_read_wc_flags(cq),
			.sl = ibv_wc_read_sl(cq),
			.path_bits = ibv_wc_read_dlid_path_bits(cq),
		};
		ibv_end_poll(cq);
	}
	check(ibv_start_poll(cq, &attr) == ENOENT, "a completion too many");
}

/* Posts a SEND that was begun, and checks both completions. */
static void arrives(struct ibv_qp *qp, uint32_t bytes, unsigned int flags, uint32_t imm)
{
	uint32_t header = qp->qp_type == IBV_QPT_UD ? GRH : 0;

	check(!ibv_wr_complete(ibv_qp_to_qp_ex(qp)), "no post");
	poll(2);
	check(sent.status == IBV_WC_SUCCESS && sent.opcode == IBV_WC_SEND && sent.qpn == qp->qp_num &&
	      !sent.vendor, "another completion of the send");
	check(received.status == IBV_WC_SUCCESS && received.opcode == IBV_WC_RECV &&
	      received.qpn == qp->qp_num && !received.vendor && received.bytes == header + bytes &&
	      received.flags == (flags | (header ? IBV_WC_GRH : 0)) && !received.sl &&
	      !received.path_bits,
	      "another completion of the receive");
	check(!flags || received.imm == (flags & IBV_WC_WITH_IMM ? htonl(imm) : imm),
	      "other immediate data, or another key");
	check(!header || (received.src_qp == qp->qp_num && received.slid == port.lid),
	      "another sender of a datagram");
	check(!memcmp(to + header, from, bytes), "other bytes");
}

static void ways_to_give_data(struct ibv_qp *qp)
{
	const struct ibv_data_buf buffers[] = { { from, 3 }, { NULL, 0 }, { from + 3, 4 } };
	const struct ibv_data_buf large[] = { { from, 8 }, { from, SIZE_MAX } };
	const struct ibv_sge list[] = {
		{ (uintptr_t)from, 100, mr->lkey },
		{ (uintptr_t)from + 100, 50, mr->lkey },
		{ (uintptr_t)from + 150, 25, mr->lkey },
	};
	struct ibv_qp_ex *ex;

	post_recv(qp);
	ex = start(qp, "inline data");
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, from, 9);
	arrives(qp, 9, 0, 0);
	post_recv(qp);
	ex = start(qp, "a list of inline data");
	ibv_wr_send_imm(ex, htonl(IMM));
	ibv_wr_set_inline_data_list(ex, 3, buffers);
	arrives(qp, 7, IBV_WC_WITH_IMM, IMM);
	post_recv(qp);
	ex = start(qp, "a list of two SGEs");
	ibv_wr_send(ex);
	ibv_wr_set_sge_list(ex, 2, list);
	arrives(qp, 150, 0, 0);
	post_recv(qp);
	ex = start(qp, "a list of three SGEs");
	ibv_wr_send(ex);
	ibv_wr_set_sge_list(ex, 3, list);
	arrives(qp, 175, 0, 0);

	ex = start(qp, "an aborted list");
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)from, 1);
	ibv_wr_abort(ex);
	ex = start(qp, "too much inline data");
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, from, 1ULL << 40);
	check(ibv_wr_complete(ex) == EINVAL, "not refused");
	ex = start(qp, "too long a list of inline data");
	ibv_wr_send(ex);
	ibv_wr_set_inline_data_list(ex, 2, large);
	check(ibv_wr_complete(ex) == EINVAL, "not refused");
	post_recv(qp);
	ex = start(qp, "a SEND after lists that are not posted");
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)from, 5);
	arrives(qp, 5, 0, 0);
}

/* Writes a byte by a key. */
static void write_by(struct ibv_qp *qp, uint32_t key, const char *what)
{
	struct ibv_qp_ex *ex = start(qp, what);

	to[0] = 0;
	ibv_wr_rdma_write(ex, key, (uintptr_t)to);
	ibv_wr_set_inline_data(ex, from, 1);
	check(!ibv_wr_complete(ex), "no post");
	poll(1);
}

static void bind_window(struct ibv_qp *qp, struct ibv_mw *mw)
{
	struct ibv_mw_bind_info info = {
		.mr = mr, .addr = (uintptr_t)to, .length = BYTES, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE
	};
	struct ibv_qp_ex *ex = start(qp, "a bind");

	mw->rkey = ibv_inc_rkey(mw->rkey);
	ibv_wr_bind_mw(ex, mw, mw->rkey, &info);
	check(!ibv_wr_complete(ex), "no post");
	poll(1);
	check(sent.status == IBV_WC_SUCCESS && sent.opcode == IBV_WC_BIND_MW, "another completion");
	write_by(qp, mw->rkey, "a WRITE by a window");
	check(sent.status == IBV_WC_SUCCESS && to[0] == from[0], "it has failed");
}

static void windows(struct ibv_qp *qp)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_qp_ex *ex;

	check(!!mw, "no window");
	bind_window(qp, mw);
	post_recv(qp);
	ex = start(qp, "a SEND that invalidates");
	ibv_wr_send_inv(ex, mw->rkey);
	ibv_wr_set_inline_data(ex, from, 5);
	arrives(qp, 5, IBV_WC_WITH_INV, mw->rkey);
	bind_window(qp, mw);
	ex = start(qp, "a local invalidation");
	ibv_wr_local_inv(ex, mw->rkey);
	check(!ibv_wr_complete(ex), "no post");
	poll(1);
	check(sent.status == IBV_WC_SUCCESS && sent.opcode == IBV_WC_LOCAL_INV, "another completion");
	write_by(qp, mw->rkey, "a WRITE by an invalid window");
	check(sent.status == IBV_WC_REM_ACCESS_ERR && !to[0], "it has another status");
	check(!ibv_dealloc_mw(mw), "no end of the window");
}

int main(int argc, char **argv)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_device **all = ibv_get_device_list(NULL);
	struct ibv_ah_attr attr = { .port_num = 1 };
	struct ibv_poll_cq_attr unknown = { .comp_mask = 1 };
	struct ibv_qp *rc, *ud;
	struct ibv_qp_ex *ex;
	struct ibv_ah *ah;
	int i;

	for (i = 0; all && all[i]; i++)
		if (argc < 2 || !strcmp(ibv_get_device_name(all[i]), argv[1]))
			break;
	check(all && all[i], "no such device");
	context = ibv_open_device(all[i]);
	check(context && !ibv_query_port(context, 1, &port), "no context");
	ibv_free_device_list(all);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq_ex(context, &init);
	check(pd && cq, "no PD or CQ");
	for (i = 0; i < BYTES; i++)
		from[i] = 1 + i % 255;
	mr = ibv_reg_mr(pd, memory, sizeof(memory), RIGHTS);
	check(!!mr, "no memory region");
	check(ibv_start_poll(cq, &unknown) == EINVAL, "an unknown field of a poll");

	rc = create(IBV_QPT_RC, RC_OPS);
	ways_to_give_data(rc);
	windows(rc);
	ud = create(IBV_QPT_UD, UD_OPS);
	attr.dlid = port.lid;
	ah = ibv_create_ah(pd, &attr);
	check(!!ah, "no address handle");
	post_recv(ud);
	ex = start(ud, "a datagram");
	ibv_wr_send_imm(ex, htonl(IMM));
	ibv_wr_set_ud_addr(ex, ah, ud->qp_num, KEY);
	ibv_wr_set_inline_data(ex, from, 9);
	arrives(ud, 9, IBV_WC_WITH_IMM, IMM);

	doing = "the end";
	check(!ibv_destroy_qp(rc) && !ibv_destroy_qp(ud) && !ibv_destroy_ah(ah) && !ibv_dereg_mr(mr) &&
	      !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) && !ibv_dealloc_pd(pd) &&
	      !ibv_close_device(context), "an error");
	printf("builders and parts hold\n");
	return 0;
}
