// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs: creation, states and destruction.
 */
#include <errno.h>
#include <stdlib.h>

#include "qpair.h"

DECLARE_DRV_CMD(qpair_cmd_create_qp, IB_USER_VERBS_EX_CMD_CREATE_QP, qpair_ureq_create_qp,
		qpair_uresp_create_qp);
DECLARE_DRV_CMD(qpair_cmd_modify_qp, IB_USER_VERBS_EX_CMD_MODIFY_QP, empty, qpair_uresp_modify_qp);

#define UD_SEND_OPS (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define UC_SEND_OPS (UD_SEND_OPS | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)
#define RC_SEND_OPS                                                                                \
	(UC_SEND_OPS | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |              \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_FLUSH |                              \
	 IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_SEND_WITH_INV |                              \
	 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW)

static uint64_t send_ops(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_UD:
		return UD_SEND_OPS;
	case IBV_QPT_UC:
		return UC_SEND_OPS;
	default:
		return RC_SEND_OPS;
	}
}

static bool is_known(enum ibv_qp_type type)
{
	return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD;
}

/* What a queue pair is asked to be: 0, or an error. */
static int check(const struct qpair_context *context, const struct ibv_qp_init_attr_ex *attr)
{
	const struct qpair_uresp_alloc_ucontext *limits = &context->limits;

	if (attr->comp_mask & ~(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
				IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
		return EOPNOTSUPP;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS &&
	    attr->create_flags & ~(uint32_t)IBV_QP_CREATE_BLOCK_SELF_MCAST_LB)
		return EOPNOTSUPP;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS &&
	    attr->send_ops_flags & ~send_ops(attr->qp_type))
		return EOPNOTSUPP;
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->send_cq || !attr->recv_cq)
		return EINVAL;
	if (attr->cap.max_send_sge > limits->max_send_sge ||
	    (!attr->srq && attr->cap.max_recv_sge > limits->max_recv_sge) ||
	    attr->cap.max_inline_data > limits->max_inline)
		return EINVAL;
	return 0;
}

static struct qpair_qp *create(struct ibv_context *ibv, struct ibv_qp_init_attr_ex *attr)
{
	struct qpair_context *context = to_context(ibv);
	struct qpair_cmd_create_qp_resp resp = {};
	struct qpair_cmd_create_qp cmd = {};
	bool is_ud = attr->qp_type == IBV_QPT_UD;
	struct ibv_qp_cap cap = attr->cap;
	struct qpair_data_qp_parts parts;
	struct qpair_data_shape sq, rq = {};
	struct qpair_qp *qp;
	int error;

	error = check(context, attr);
	if (!error && (!qpair_data_sq_shape(cap.max_send_wr, cap.max_send_sge, cap.max_inline_data,
					    is_ud, context->limits.max_sq_blocks, &sq) ||
		       (!attr->srq && !qpair_data_rq_shape(cap.max_recv_wr, cap.max_recv_sge,
					    context->limits.max_rq_depth, &rq))))
		error = EINVAL;
	/* Limits first: they are those of all types. */
	if (!error && (!is_known(attr->qp_type) || (attr->srq && attr->qp_type == IBV_QPT_UC)))
		error = EOPNOTSUPP;
	if (error) {
		errno = error;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	if (attr->srq)
		attr->cap.max_recv_wr = attr->cap.max_recv_sge = 0;
	/* A block has room for inline data that the program did not ask for. */
	if (sq.inline_bytes > context->limits.max_inline)
		sq.inline_bytes = context->limits.max_inline;
	attr->cap.max_inline_data = sq.inline_bytes;
	error = qpair_map(&qp->sq, sq.bytes, attr->pd);
	if (!error && !attr->srq)
		error = qpair_map(&qp->rq, rq.bytes, attr->pd);
	if (error)
		goto err_unmap;

	cmd.sq_buffer = (uintptr_t)qp->sq.start;
	cmd.sq_buffer_bytes = qp->sq.bytes;
	cmd.rq_buffer = (uintptr_t)qp->rq.start;
	cmd.rq_buffer_bytes = qp->rq.bytes;
	cmd.sq_blocks = sq.entries;
	cmd.rq_depth = rq.entries;
	cmd.rq_stride = rq.stride;
	error = ibv_cmd_create_qp_ex2(ibv, &qp->vqp, attr, &cmd.ibv_cmd, sizeof(cmd),
				      &resp.ibv_resp, sizeof(resp));
	if (error)
		goto err_unmap;

	parts = (struct qpair_data_qp_parts) {
		.number = resp.number,
		.qpn = qp->vqp.qp.qp_num,
		.sq = qp->sq.start,
		.rq = qp->rq.start,
		.sq_shape = sq,
		.rq_shape = rq,
		.max_send_sge = cap.max_send_sge,
		.max_recv_sge = cap.max_recv_sge,
		.max_inline_data = sq.inline_bytes,
		.sq_sig_all = attr->sq_sig_all,
		.is_ud = is_ud,
		.doorbells = context->doorbells,
		.send_cq = to_cq(attr->send_cq)->data,
		.recv_cq = to_cq(attr->recv_cq)->data,
		.srq = attr->srq ? to_srq(attr->srq)->data : NULL,
	};
	if (resp.sq_blocks == sq.entries && resp.rq_depth == rq.entries)
		qp->data = qpair_data_qp_new(&parts);
	if (!qp->data) {
		verbs_err(&context->vctx, "the kernel made queues of %u blocks and %u receives, %u and %u were asked for\n",
			  resp.sq_blocks, resp.rq_depth, sq.entries, rq.entries);
		error = EPROTO;
		goto err_destroy;
	}
	return qp;

err_destroy:
	ibv_cmd_destroy_qp(&qp->vqp.qp);
err_unmap:
	qpair_unmap(&qp->rq);
	qpair_unmap(&qp->sq);
	free(qp);
	attr->cap = cap;
	errno = error;
	return NULL;
}

struct ibv_qp *qpair_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex wanted = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct qpair_qp *qp = create(pd->context, &wanted);

	if (!qp)
		return NULL;
	attr->cap = wanted.cap;
	return &qp->vqp.qp;
}

struct ibv_qp *qpair_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct qpair_qp *qp = create(context, attr);

	if (!qp)
		return NULL;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		qpair_data_qp_extend(&qp->vqp.qp_ex, attr->send_ops_flags);
		qp->vqp.comp_mask |= VERBS_QP_EX;
	}
	return &qp->vqp.qp;
}

int qpair_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	struct qpair_cmd_modify_qp_resp resp = {};
	struct ibv_modify_qp_ex cmd = {};
	struct qpair_qp *qp = to_qp(ibv);
	int error;

	error = ibv_cmd_modify_qp_ex(ibv, attr, mask, &cmd, sizeof(cmd), &resp.ibv_resp,
				     sizeof(resp));
	if (error || !(mask & IBV_QP_STATE))
		return error;
	if (attr->qp_state == IBV_QPS_RESET)
		qpair_data_qp_reset(qp->data, resp.send_cq_index, resp.recv_cq_index);
	else
		qpair_data_qp_permit(qp->data, attr->qp_state);
	return 0;
}

int qpair_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		   struct ibv_qp_init_attr *init)
{
	struct ibv_query_qp cmd;

	return ibv_cmd_query_qp(qp, attr, mask, init, &cmd, sizeof(cmd));
}

int qpair_destroy_qp(struct ibv_qp *ibv)
{
	struct qpair_qp *qp = to_qp(ibv);
	int error = ibv_cmd_destroy_qp(ibv);

	if (error)
		return error;
	qpair_data_qp_free(qp->data);
	qpair_unmap(&qp->rq);
	qpair_unmap(&qp->sq);
	free(qp);
	return 0;
}
