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
#include <infiniband/verbs.h>

#include "example.h"

#define BYTES		256
#define IMM		7
#define SEND_ID		1
#define RECV_ID		2
#define RIGHTS		(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND)
#define UD_OPS		(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define RC_OPS		(UD_OPS | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND_WITH_INV |	\
			 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW)

/* The parts of a completion. */
struct parts {
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	uint32_t bytes, qpn, src_qp, slid, vendor, rkey;
	__be32 imm;
	unsigned int flags;
	uint8_t sl, path_bits;
};

static struct ibv_pd *pd;
static struct ibv_cq_ex *cq;
static struct ibv_mr *mr;
/* What is sent, and where it arrives. */
static uint8_t memory[2 * BYTES], *const from = memory, *const to = memory + BYTES;
static struct parts sent, received;

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
	struct ibv_qp *qp = need(ibv_create_qp_ex(context, &init), "create a queue pair");
	struct ibv_qp_attr attr = attributes(qp->qp_num);

	move_to_rts(qp, &attr);
	return qp;
}

/* Begins a list of one request. */
static struct ibv_qp_ex *start(struct ibv_qp *qp, const char *what)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);

	now("%s", what);
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
	must(ibv_post_recv(qp, &wr, &bad), "post a receive");
}

/* Posts the list that was begun, and waits for so many completions. */
static void complete(struct ibv_qp *qp, unsigned int count)
{
	struct ibv_poll_cq_attr attr = {};
	time_t begin = seconds();
	struct parts *parts;

	must(ibv_wr_complete(ibv_qp_to_qp_ex(qp)), "post it");
	memset(&sent, 0xff, sizeof(sent));
	memset(&received, 0xff, sizeof(received));
	for (; count; count--) {
		while (ibv_start_poll(cq, &attr))
			check(seconds() - begin <= PATIENCE, "a completion is missing");
		check(cq->wr_id == RECV_ID || cq->wr_id == SEND_ID, "a completion has an unknown wr_id");
		parts = cq->wr_id == RECV_ID ? &received : &sent;
		*parts = (struct parts) {
			.status = cq->status,
			.opcode = ibv_wc_read_opcode(cq),
			.bytes = ibv_wc_read_byte_len(cq),
			.qpn = ibv_wc_read_qp_num(cq),
			.src_qp = ibv_wc_read_src_qp(cq),
			.slid = ibv_wc_read_slid(cq),
			.vendor = ibv_wc_read_vendor_err(cq),
			.rkey = ibv_wc_read_invalidated_rkey(cq),
			.imm = ibv_wc_read_imm_data(cq),
			.flags = ibv_wc_read_wc_flags(cq),
			.sl = ibv_wc_read_sl(cq),
			.path_bits = ibv_wc_read_dlid_path_bits(cq),
		};
		ibv_end_poll(cq);
	}
	check(ibv_start_poll(cq, &attr) == ENOENT, "there are more completions than requests");
}

/* Posts a SEND that was begun, and checks both completions. A flag says what comes with it. */
static void arrives(struct ibv_qp *qp, uint32_t bytes, unsigned int flag, uint32_t value)
{
	bool is_ud = qp->qp_type == IBV_QPT_UD;
	uint32_t header = is_ud ? GRH : 0;

	complete(qp, 2);
	check(sent.status == IBV_WC_SUCCESS, "the send fails");
	check(sent.opcode == IBV_WC_SEND && sent.qpn == qp->qp_num && !sent.vendor,
	      "the completion of the send has a wrong opcode, queue pair or vendor_err");
	check(received.status == IBV_WC_SUCCESS, "the receive fails");
	check(received.opcode == IBV_WC_RECV && received.qpn == qp->qp_num && !received.vendor,
	      "the completion of the receive has a wrong opcode, queue pair or vendor_err");
	check(received.bytes == header + bytes, "the length of the receive is wrong");
	check(received.flags == (flag | (is_ud ? IBV_WC_GRH : 0)), "the flags of the receive are wrong");
	check(!received.sl && !received.path_bits, "the SL or the path bits of the receive are not 0");
	check(flag != IBV_WC_WITH_IMM || received.imm == htonl(value), "the immediate data are wrong");
	check(flag != IBV_WC_WITH_INV || received.rkey == value, "the invalidated rkey is wrong");
	check(!is_ud || (received.src_qp == qp->qp_num && received.slid == port.lid),
	      "the source of the datagram is wrong");
	check(!memcmp(to + header, from, bytes), "the bytes differ from those sent");
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
	check(ibv_wr_complete(ex) == EINVAL, "it is not refused with EINVAL");
	ex = start(qp, "a list of too much inline data");
	ibv_wr_send(ex);
	ibv_wr_set_inline_data_list(ex, 2, large);
	check(ibv_wr_complete(ex) == EINVAL, "it is not refused with EINVAL");
	post_recv(qp);
	ex = start(qp, "a SEND after lists that were not posted");
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)from, 5);
	arrives(qp, 5, 0, 0);
}

/* Writes a byte to what a key names. */
static void write_by(struct ibv_qp *qp, uint32_t key, const char *what)
{
	struct ibv_qp_ex *ex = start(qp, what);

	to[0] = 0;
	ibv_wr_rdma_write(ex, key, (uintptr_t)to);
	ibv_wr_set_inline_data(ex, from, 1);
	complete(qp, 1);
}

static void bind_window(struct ibv_qp *qp, struct ibv_mw *mw)
{
	struct ibv_mw_bind_info info = {
		.mr = mr, .addr = (uintptr_t)to, .length = BYTES, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE
	};
	struct ibv_qp_ex *ex = start(qp, "a bind");

	mw->rkey = ibv_inc_rkey(mw->rkey);
	ibv_wr_bind_mw(ex, mw, mw->rkey, &info);
	complete(qp, 1);
	check(sent.status == IBV_WC_SUCCESS && sent.opcode == IBV_WC_BIND_MW,
	      "the status or the opcode of its completion is wrong");
	write_by(qp, mw->rkey, "a WRITE to a window");
	check(sent.status == IBV_WC_SUCCESS && to[0] == from[0], "it fails, or writes another byte");
}

static void windows(struct ibv_qp *qp)
{
	struct ibv_mw *mw = need(ibv_alloc_mw(pd, IBV_MW_TYPE_2), "allocate a window");
	struct ibv_qp_ex *ex;

	bind_window(qp, mw);
	post_recv(qp);
	ex = start(qp, "a SEND that invalidates");
	ibv_wr_send_inv(ex, mw->rkey);
	ibv_wr_set_inline_data(ex, from, 5);
	arrives(qp, 5, IBV_WC_WITH_INV, mw->rkey);
	bind_window(qp, mw);
	ex = start(qp, "a local invalidation");
	ibv_wr_local_inv(ex, mw->rkey);
	complete(qp, 1);
	check(sent.status == IBV_WC_SUCCESS && sent.opcode == IBV_WC_LOCAL_INV,
	      "the status or the opcode of its completion is wrong");
	write_by(qp, mw->rkey, "a WRITE to an invalidated window");
	check(sent.status == IBV_WC_REM_ACCESS_ERR && !to[0], "it is not a remote access error");
	must(ibv_dealloc_mw(mw), "free the window");
}

int main(int argc, char **argv)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_ah_attr attr;
	struct ibv_poll_cq_attr unknown = { .comp_mask = 1 };
	struct ibv_qp *rc, *ud;
	struct ibv_qp_ex *ex;
	struct ibv_ah *ah;
	int i;

	open_port(argc > 1 ? argv[1] : NULL);
	pd = need(ibv_alloc_pd(context), "allocate a PD");
	cq = need(ibv_create_cq_ex(context, &init), "create a CQ");
	for (i = 0; i < BYTES; i++)
		from[i] = 1 + i % 255;
	mr = need(ibv_reg_mr(pd, memory, sizeof(memory), RIGHTS), "register memory");
	check(ibv_start_poll(cq, &unknown) == EINVAL,
	      "a poll with an unknown comp_mask is not refused with EINVAL");

	rc = create(IBV_QPT_RC, RC_OPS);
	ways_to_give_data(rc);
	windows(rc);
	ud = create(IBV_QPT_UD, UD_OPS);
	attr = own_address(false);
	ah = need(ibv_create_ah(pd, &attr), "create an address handle");
	post_recv(ud);
	ex = start(ud, "a datagram");
	ibv_wr_send_imm(ex, htonl(IMM));
	ibv_wr_set_ud_addr(ex, ah, ud->qp_num, Q_KEY);
	ibv_wr_set_inline_data(ex, from, 9);
	arrives(ud, 9, IBV_WC_WITH_IMM, IMM);

	now("end");
	must(ibv_destroy_qp(rc) ?: ibv_destroy_qp(ud) ?: ibv_destroy_ah(ah) ?: ibv_dereg_mr(mr) ?:
	     ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) ?: ibv_dealloc_pd(pd) ?: ibv_close_device(context),
	     "destroy what is left");
	printf("builders and parts hold\n");
	return 0;
}
