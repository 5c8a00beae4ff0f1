/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The objects of the provider: those of libibverbs, with what the data path
 * has of each.
 */
#ifndef QPAIR_PROVIDER_H
#define QPAIR_PROVIDER_H

#include <infiniband/driver.h>
#include <infiniband/kern-abi.h>
#include <rdma/qpair-abi.h>
#include <kernel-abi/qpair-abi.h>

#include "data.h"

/* PCI vendor and device of the function. */
#define QPAIR_PCI_VENDOR 0x1234
#define QPAIR_PCI_DEVICE 0x5150

#define QPAIR_PAGE 4096

struct qpair_context {
	struct verbs_context vctx;
	/* The page of doorbells. */
	void *doorbells;
	struct qpair_uresp_alloc_ucontext limits;
};

/* Memory that the process shares with the device. */
struct qpair_memory {
	void *start;
	size_t bytes;
};

/* The data path finds `data` in these two: `vcq` and `vqp` come first. */
struct qpair_cq {
	struct verbs_cq vcq;
	const struct qpair_data_cq *data;
	struct qpair_memory ring;
};

struct qpair_qp {
	struct verbs_qp vqp;
	const struct qpair_data_qp *data;
	struct qpair_memory sq, rq;
};

/* The data path finds `gid` in this one: `ibv_ah` comes first. */
struct qpair_ah {
	struct ibv_ah ibv_ah;
	/* The address, as send work requests have it. */
	uint64_t gid[2];
};

static inline struct qpair_context *to_context(struct ibv_context *context)
{
	return container_of(context, struct qpair_context, vctx.context);
}

static inline struct qpair_ah *to_ah(struct ibv_ah *ah)
{
	return container_of(ah, struct qpair_ah, ibv_ah);
}

static inline struct qpair_cq *to_cq(struct ibv_cq *cq)
{
	return container_of(cq, struct qpair_cq, vcq.cq);
}

static inline struct qpair_qp *to_qp(struct ibv_qp *qp)
{
	return container_of(qp, struct qpair_qp, vqp.qp);
}

int qpair_map(struct qpair_memory *memory, size_t bytes);
void qpair_unmap(struct qpair_memory *memory);

struct ibv_cq *qpair_create_cq(struct ibv_context *context, int cqe,
			       struct ibv_comp_channel *channel, int vector);
struct ibv_cq_ex *qpair_create_cq_ex(struct ibv_context *context,
				     struct ibv_cq_init_attr_ex *attr);
int qpair_destroy_cq(struct ibv_cq *cq);

struct ibv_qp *qpair_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *qpair_create_qp_ex(struct ibv_context *context,
				  struct ibv_qp_init_attr_ex *attr);
int qpair_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int qpair_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		   struct ibv_qp_init_attr *init);
int qpair_destroy_qp(struct ibv_qp *qp);

#endif
