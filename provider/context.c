// SPDX-License-Identifier: GPL-2.0
/*
 * Devices, contexts, memory regions, memory windows and address handles.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "qpair.h"

DECLARE_DRV_CMD(qpair_cmd_get_context, IB_USER_VERBS_CMD_GET_CONTEXT, empty,
		qpair_uresp_alloc_ucontext);
DECLARE_DRV_CMD(qpair_cmd_create_ah, IB_USER_VERBS_CMD_CREATE_AH, empty, qpair_uresp_create_ah);

static int query_device_ex(struct ibv_context *context,
			   const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct ib_uverbs_ex_query_device_resp resp;
	size_t resp_size = sizeof(resp);
	int error = ibv_cmd_query_device_any(context, input, attr, attr_size, &resp, &resp_size);

	if (error)
		return error;
	snprintf(attr->orig_attr.fw_ver, sizeof(attr->orig_attr.fw_ver), "%u.%u",
		 (unsigned int)(resp.base.fw_ver >> 16), (unsigned int)(resp.base.fw_ver & 0xffff));
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	struct ibv_query_port cmd;

	return ibv_cmd_query_port(context, port, attr, &cmd, sizeof(cmd));
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			     int access)
{
	struct ib_uverbs_reg_mr_resp resp;
	struct ibv_reg_mr cmd;
	struct verbs_mr *mr;

	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;
	if (ibv_cmd_reg_mr(pd, addr, length, iova, access, mr, &cmd, sizeof(cmd), &resp,
			   sizeof(resp))) {
		free(mr);
		return NULL;
	}
	return &mr->ibv_mr;
}

static int dereg_mr(struct verbs_mr *mr)
{
	int error = ibv_cmd_dereg_mr(mr);

	if (!error)
		free(mr);
	return error;
}

static int rereg_mr(struct verbs_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		    int access)
{
	struct ib_uverbs_rereg_mr_resp resp;
	struct ibv_rereg_mr cmd;

	return ibv_cmd_rereg_mr(mr, flags, addr, length, (uintptr_t)addr, access, pd, &cmd,
				sizeof(cmd), &resp, sizeof(resp));
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ib_uverbs_alloc_mw_resp resp;
	struct ibv_alloc_mw cmd;
	struct ibv_mw *mw;
	int error;

	mw = calloc(1, sizeof(*mw));
	if (!mw)
		return NULL;
	error = ibv_cmd_alloc_mw(pd, type, mw, &cmd, sizeof(cmd), &resp, sizeof(resp));
	if (error) {
		free(mw);
		errno = error;
		return NULL;
	}
	return mw;
}

static int dealloc_mw(struct ibv_mw *mw)
{
	int error = ibv_cmd_dealloc_mw(mw);

	if (!error)
		free(mw);
	return error;
}

static int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr wr = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
		.bind_mw = {
			.mw = mw,
			.rkey = ibv_inc_rkey(mw->rkey),
			.bind_info = bind->bind_info,
		},
	}, *bad;
	int error;

	/* Only windows of type 2 can be zero based. */
	if (bind->bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED)
		return EINVAL;
	error = qpair_data_post_send(qp, &wr, &bad);
	if (!error)
		mw->rkey = wr.bind_mw.rkey;
	return error;
}

static struct ibv_ah *create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct qpair_cmd_create_ah_resp resp = {};
	struct ibv_global_route grh = {};
	struct qpair_ah *ah;

	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;
	if (ibv_cmd_create_ah(pd, &ah->ibv_ah, attr, &resp.ibv_resp, sizeof(resp))) {
		free(ah);
		return NULL;
	}
	memcpy(ah->gid, resp.gid, sizeof(ah->gid));
	if (attr->is_global)
		grh = attr->grh;
	ah->route = qpair_data_route(resp.source, grh.hop_limit, grh.traffic_class,
				     grh.flow_label);
	memcpy(&ah->mac, resp.mac, sizeof(resp.mac));
	ah->mac = le64toh(ah->mac);
	return &ah->ibv_ah;
}

static int destroy_ah(struct ibv_ah *ah)
{
	int error = ibv_cmd_destroy_ah(ah);

	if (!error)
		free(to_ah(ah));
	return error;
}

static void free_context(struct ibv_context *ibv)
{
	struct qpair_context *context = to_context(ibv);

	munmap(context->doorbells, QPAIR_PAGE);
	verbs_uninit_context(&context->vctx);
	free(context);
}

static const struct verbs_context_ops context_ops = {
	.alloc_parent_domain = qpair_alloc_parent_domain,
	.alloc_mw = alloc_mw,
	.alloc_pd = qpair_alloc_pd,
	.alloc_td = qpair_alloc_td,
	.attach_mcast = ibv_cmd_attach_mcast,
	.bind_mw = bind_mw,
	.create_ah = create_ah,
	.create_cq = qpair_create_cq,
	.create_cq_ex = qpair_create_cq_ex,
	.create_qp = qpair_create_qp,
	.create_qp_ex = qpair_create_qp_ex,
	.create_srq = qpair_create_srq,
	.dealloc_mw = dealloc_mw,
	.dealloc_pd = qpair_dealloc_pd,
	.dealloc_td = qpair_dealloc_td,
	.dereg_mr = dereg_mr,
	.destroy_ah = destroy_ah,
	.destroy_cq = qpair_destroy_cq,
	.destroy_qp = qpair_destroy_qp,
	.destroy_srq = qpair_destroy_srq,
	.detach_mcast = ibv_cmd_detach_mcast,
	.free_context = free_context,
	.modify_qp = qpair_modify_qp,
	.modify_srq = qpair_modify_srq,
	.poll_cq = qpair_data_poll_cq,
	.post_recv = qpair_data_post_recv,
	.post_send = qpair_data_post_send,
	.post_srq_recv = qpair_data_post_srq_recv,
	.query_device_ex = query_device_ex,
	.query_port = query_port,
	.query_qp = qpair_query_qp,
	.query_srq = qpair_query_srq,
	.reg_mr = reg_mr,
	.req_notify_cq = qpair_data_req_notify_cq,
	.resize_cq = qpair_resize_cq,
	.rereg_mr = rereg_mr,
};

static struct verbs_context *alloc_context(struct ibv_device *device, int cmd_fd, void *private)
{
	struct qpair_cmd_get_context_resp resp = {};
	struct ibv_get_context cmd;
	struct qpair_context *context;

	context = verbs_init_and_alloc_context(device, cmd_fd, context, vctx, RDMA_DRIVER_UNKNOWN);
	if (!context)
		return NULL;
	if (ibv_cmd_get_context(&context->vctx, &cmd, sizeof(cmd), &resp.ibv_resp, sizeof(resp)))
		goto err_context;
	context->limits = resp.drv_payload;
	if (!context->limits.max_cq_depth || !context->limits.max_sq_blocks) {
		verbs_err(&context->vctx, "the kernel's module reports no limits: it is of another version\n");
		errno = EPROTO;
		goto err_context;
	}
	context->doorbells = mmap(NULL, QPAIR_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, cmd_fd, 0);
	if (context->doorbells == MAP_FAILED) {
		verbs_err(&context->vctx, "no doorbell page: %m\n");
		goto err_context;
	}
	verbs_set_ops(&context->vctx, &context_ops);
	return &context->vctx;

err_context:
	verbs_uninit_context(&context->vctx);
	free(context);
	return NULL;
}

static struct verbs_device *alloc_device(struct verbs_sysfs_dev *sysfs)
{
	return calloc(1, sizeof(struct verbs_device));
}

static void uninit_device(struct verbs_device *device)
{
	free(device);
}

/* The kernel's list of drivers, which the other way to match needs, lacks it. */
static const struct verbs_match_ent match_table[] = {
	VERBS_PCI_MATCH(QPAIR_PCI_VENDOR, QPAIR_PCI_DEVICE, NULL),
	{},
};

static const struct verbs_device_ops device_ops = {
	.name = "qpair",
	.match_min_abi_version = QPAIR_UVERBS_ABI_VERSION,
	.match_max_abi_version = QPAIR_UVERBS_ABI_VERSION,
	.match_table = match_table,
	.alloc_device = alloc_device,
	.uninit_device = uninit_device,
	.alloc_context = alloc_context,
};
PROVIDER_DRIVER(qpair, device_ops);
