// SPDX-License-Identifier: GPL-2.0
/*
 * Shared receive queues: creation, changes and destruction.
 */
#include <errno.h>
#include <stdlib.h>

#include "qpair.h"

DECLARE_DRV_CMD(qpair_cmd_create_srq, IB_USER_VERBS_CMD_CREATE_SRQ, qpair_ureq_create_srq,
		qpair_uresp_create_srq);
DECLARE_DRV_CMD(qpair_cmd_modify_srq, IB_USER_VERBS_CMD_MODIFY_SRQ, qpair_ureq_modify_srq,
		empty);

struct ibv_srq *qpair_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct qpair_context *context = to_context(pd->context);
	struct qpair_cmd_create_srq_resp resp = {};
	struct qpair_cmd_create_srq cmd = {};
	struct qpair_data_srq_parts parts;
	struct qpair_data_shape shape;
	struct qpair_srq *srq;
	int error;

	if (attr->attr.max_sge > context->limits.max_recv_sge ||
	    !qpair_data_srq_shape(attr->attr.max_wr, attr->attr.max_sge,
				  context->limits.max_rq_depth, &shape)) {
		errno = EINVAL;
		return NULL;
	}
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;
	error = qpair_map(&srq->ring, shape.bytes, pd);
	if (error)
		goto err_free;

	cmd.buffer = (uintptr_t)srq->ring.start;
	cmd.buffer_bytes = srq->ring.bytes;
	cmd.depth = shape.entries;
	cmd.stride = shape.stride;
	error = ibv_cmd_create_srq(pd, &srq->vsrq.srq, attr, &cmd.ibv_cmd, sizeof(cmd),
				   &resp.ibv_resp, sizeof(resp));
	if (error)
		goto err_unmap;

	srq->max_sge = attr->attr.max_sge;
	parts = (struct qpair_data_srq_parts) {
		.number = resp.number,
		.ring = srq->ring.start,
		.shape = shape,
		.max_sge = attr->attr.max_sge,
		.doorbells = context->doorbells,
	};
	if (resp.depth == shape.entries)
		srq->data = qpair_data_srq_new(&parts);
	if (!srq->data) {
		verbs_err(&context->vctx, "the kernel made an SRQ of %u entries, %u were asked for\n",
			  resp.depth, shape.entries);
		error = EPROTO;
		goto err_destroy;
	}
	return &srq->vsrq.srq;

err_destroy:
	ibv_cmd_destroy_srq(&srq->vsrq.srq);
err_unmap:
	qpair_unmap(&srq->ring);
err_free:
	free(srq);
	errno = error;
	return NULL;
}

/* A change of the size, while posts wait. */
struct srq_resize {
	struct qpair_srq *srq;
	struct ibv_srq_attr *attr;
	int mask;
	uint32_t depth;
	/* The ring that the device does not have: the new one, then the old one. */
	struct qpair_memory ring;
};

static int switch_ring(void *arg)
{
	struct srq_resize *resize = arg;
	struct qpair_srq *srq = resize->srq;
	struct qpair_memory old = srq->ring;
	struct qpair_cmd_modify_srq cmd = {};
	int error;

	cmd.buffer = (uintptr_t)resize->ring.start;
	cmd.buffer_bytes = resize->ring.bytes;
	cmd.depth = resize->depth;
	error = ibv_cmd_modify_srq(&srq->vsrq.srq, resize->attr, resize->mask, &cmd.ibv_cmd,
				   sizeof(cmd));
	if (error)
		return error;
	srq->ring = resize->ring;
	resize->ring = old;
	return 0;
}

static int resize_srq(struct qpair_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	struct qpair_context *context = to_context(srq->vsrq.srq.context);
	struct srq_resize resize = { .srq = srq, .attr = attr, .mask = mask };
	struct qpair_data_shape shape;
	int error;

	if (!qpair_data_srq_shape(attr->max_wr, srq->max_sge, context->limits.max_rq_depth, &shape))
		return EINVAL;
	resize.depth = shape.entries;
	error = qpair_map(&resize.ring, shape.bytes, srq->vsrq.srq.pd);
	if (error)
		return error;
	error = qpair_data_srq_resize(srq->data, resize.ring.start, &shape, switch_ring, &resize);
	qpair_unmap(&resize.ring);
	return error;
}

int qpair_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	struct ibv_modify_srq cmd;

	if (mask & IBV_SRQ_MAX_WR)
		return resize_srq(to_srq(srq), attr, mask);
	return ibv_cmd_modify_srq(srq, attr, mask, &cmd, sizeof(cmd));
}

int qpair_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct ibv_query_srq cmd;

	return ibv_cmd_query_srq(srq, attr, &cmd, sizeof(cmd));
}

int qpair_destroy_srq(struct ibv_srq *ibv)
{
	struct qpair_srq *srq = to_srq(ibv);
	int error = ibv_cmd_destroy_srq(ibv);

	if (error)
		return error;
	qpair_data_srq_free(srq->data);
	qpair_unmap(&srq->ring);
	free(srq);
	return 0;
}
