// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues: creation, resize and destruction.
 */
#include <errno.h>
#include <stdlib.h>

#include "qpair.h"

DECLARE_DRV_CMD(qpair_cmd_create_cq, IB_USER_VERBS_EX_CMD_CREATE_CQ, qpair_ureq_create_cq,
		qpair_uresp_create_cq);
DECLARE_DRV_CMD(qpair_cmd_resize_cq, IB_USER_VERBS_CMD_RESIZE_CQ, qpair_ureq_resize_cq,
		qpair_uresp_resize_cq);

static struct qpair_cq *create(struct ibv_context *ibv, struct ibv_cq_init_attr_ex *attr)
{
	struct qpair_context *context = to_context(ibv);
	struct qpair_cmd_create_cq_resp resp = {};
	struct qpair_cmd_create_cq cmd = {};
	struct qpair_data_cq_parts parts;
	struct qpair_data_shape shape;
	struct qpair_cq *cq;
	uint32_t flags;
	int error;

	flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	if (!qpair_data_cq_shape(attr->cqe, context->limits.max_cq_depth, &shape)) {
		errno = EINVAL;
		return NULL;
	}
	/* No flag of the command: the kernel's part is the same for each. */
	if (attr->comp_mask & ~(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) ||
	    flags & ~IBV_CREATE_CQ_ATTR_SINGLE_THREADED) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;
	error = qpair_map(&cq->ring, shape.bytes,
			  attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD ? attr->parent_domain : NULL);
	if (error)
		goto err_free;

	attr->cqe = shape.entries;
	cmd.buffer = (uintptr_t)cq->ring.start;
	cmd.buffer_bytes = cq->ring.bytes;
	cmd.eventfd = QPAIR_NO_COMPLETION_FD;
	error = ibv_cmd_create_cq_ex(ibv, attr, &cq->vcq, &cmd.ibv_cmd, sizeof(cmd), &resp.ibv_resp,
				     sizeof(resp), 0);
	if (error)
		goto err_unmap;

	parts = (struct qpair_data_cq_parts) {
		.number = resp.number,
		.depth = resp.depth,
		.usable = shape.usable,
		.single = flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
		.ring = cq->ring.start,
		.doorbells = context->doorbells,
	};
	if (resp.depth == shape.entries)
		cq->data = qpair_data_cq_new(&parts);
	if (!cq->data) {
		verbs_err(&context->vctx, "the kernel made a CQ of %u entries, %u were asked for\n",
			  resp.depth, shape.entries);
		error = EPROTO;
		goto err_destroy;
	}
	/* The others are the provider's. */
	cq->vcq.cq.cqe = shape.usable;
	return cq;

err_destroy:
	ibv_cmd_destroy_cq(&cq->vcq.cq);
err_unmap:
	qpair_unmap(&cq->ring);
err_free:
	free(cq);
	errno = error;
	return NULL;
}

struct ibv_cq *qpair_create_cq(struct ibv_context *context, int cqe,
			       struct ibv_comp_channel *channel, int vector)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe,
		.channel = channel,
		.comp_vector = vector,
	};
	struct qpair_cq *cq;

	if (cqe <= 0) {
		errno = EINVAL;
		return NULL;
	}
	cq = create(context, &attr);
	return cq ? &cq->vcq.cq : NULL;
}

struct ibv_cq_ex *qpair_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct ibv_cq_init_attr_ex wanted = *attr;
	struct qpair_cq *cq;

	if (attr->wc_flags & ~(uint64_t)IBV_WC_STANDARD_FLAGS) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	cq = create(context, &wanted);
	if (!cq)
		return NULL;
	qpair_data_cq_extend(&cq->vcq.cq_ex, attr->wc_flags);
	return &cq->vcq.cq_ex;
}

/* Unmaps all old rings but the newest `read`, which have entries to be polled. */
static void unmap_old(struct qpair_cq *cq, size_t read)
{
	struct qpair_old_ring **link = &cq->old, *old;

	for (; *link && read; read--)
		link = &(*link)->next;
	while ((old = *link)) {
		*link = old->next;
		qpair_unmap(&old->ring);
		free(old);
	}
}

int qpair_resize_cq(struct ibv_cq *ibv, int cqe)
{
	struct qpair_context *context = to_context(ibv->context);
	struct qpair_cmd_resize_cq_resp resp = {};
	struct qpair_cmd_resize_cq cmd = {};
	struct qpair_cq *cq = to_cq(ibv);
	struct qpair_data_cq_next next;
	struct qpair_data_shape shape;
	struct qpair_old_ring *old;
	struct qpair_pd *pd;
	struct qpair_memory ring = {};
	ssize_t read;
	int error;

	if (cqe <= 0 || !qpair_data_cq_shape(cqe, context->limits.max_cq_depth, &shape))
		return EINVAL;
	old = calloc(1, sizeof(*old));
	if (!old)
		return ENOMEM;
	/* Held until the polls know of the ring: resizes exclude each other. */
	if (qpair_data_cq_hold(cq->data) > shape.usable) {
		error = EINVAL;
		goto err_release;
	}
	pd = cq->ring.pd;
	error = qpair_map(&ring, shape.bytes, pd ? &pd->ibv_pd : NULL);
	if (error)
		goto err_release;
	cmd.buffer = (uintptr_t)ring.start;
	cmd.buffer_bytes = ring.bytes;
	error = ibv_cmd_resize_cq(ibv, shape.entries, &cmd.ibv_cmd, sizeof(cmd), &resp.ibv_resp,
				  sizeof(resp));
	if (error)
		goto err_release;

	ibv->cqe = shape.usable;
	old->ring = cq->ring;
	old->next = cq->old;
	cq->old = old;
	cq->ring = ring;
	next = (struct qpair_data_cq_next) {
		.end = resp.end,
		.begin = resp.begin,
		.depth = resp.depth,
		.usable = shape.usable,
		.ring = ring.start,
	};
	read = resp.depth == shape.entries ? qpair_data_cq_resized(cq->data, &next) : -1;
	if (read >= 0)
		unmap_old(cq, read);
	qpair_data_cq_release(cq->data);
	if (read >= 0)
		return 0;
	/* The device has the memory: it stays mapped. */
	verbs_err(&context->vctx, "the kernel resized a CQ to %u entries, %u were asked for\n",
		  resp.depth, shape.entries);
	return EPROTO;

err_release:
	qpair_data_cq_release(cq->data);
	qpair_unmap(&ring);
	free(old);
	return error;
}

int qpair_destroy_cq(struct ibv_cq *ibv)
{
	struct qpair_cq *cq = to_cq(ibv);
	int error = ibv_cmd_destroy_cq(ibv);

	if (error)
		return error;
	qpair_data_cq_free(cq->data);
	unmap_old(cq, 0);
	qpair_unmap(&cq->ring);
	free(cq);
	return 0;
}
