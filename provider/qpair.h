/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The objects of the provider: those of libibverbs, with what the data path
 * has of each.
 */
#ifndef QPAIR_PROVIDER_H
#define QPAIR_PROVIDER_H

#include <stdatomic.h>

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

/* A thread domain; `users` are its parent domains. */
struct qpair_td {
	struct ibv_td ibv_td;
	atomic_uint users;
};

/*
 * A protection domain, or a parent domain `of` one. `users` are its parent
 * domains, and the queues with memory of its allocator.
 */
struct qpair_pd {
	struct ibv_pd ibv_pd;
	atomic_uint users;
	struct qpair_pd *of;
	struct qpair_td *td;
	/* What allocates the memory of its queues, if that is not the provider. */
	void *(*alloc)(struct ibv_pd *pd, void *pd_context, size_t size, size_t alignment,
		       uint64_t resource_type);
	void (*free)(struct ibv_pd *pd, void *pd_context, void *ptr, uint64_t resource_type);
	void *pd_context;
};

/* Memory that the process shares with the device. */
struct qpair_memory {
	void *start;
	size_t bytes;
	/* Whose allocator it is of, or NULL. */
	struct qpair_pd *pd;
};

/* A ring that a completion queue had; some are still read. */
struct qpair_old_ring {
	struct qpair_memory ring;
	struct qpair_old_ring *next;
};

/* The data path finds `data` in these three: `vcq`, `vqp` and `vsrq` come first. */
struct qpair_cq {
	struct verbs_cq vcq;
	const struct qpair_data_cq *data;
	struct qpair_memory ring;
	/* Rings from before a resize, the newest first. */
	struct qpair_old_ring *old;
};

struct qpair_qp {
	struct verbs_qp vqp;
	const struct qpair_data_qp *data;
	struct qpair_memory sq, rq;
};

struct qpair_srq {
	struct verbs_srq vsrq;
	const struct qpair_data_srq *data;
	struct qpair_memory ring;
	uint32_t max_sge;
};

/* The data path finds the address in this one: `ibv_ah` comes first. */
struct qpair_ah {
	struct ibv_ah ibv_ah;
	/* The address, as send work requests have it. */
	uint64_t gid[2];
	uint64_t route;
	uint64_t mac;
};

static inline struct qpair_context *to_context(struct ibv_context *context)
{
	return container_of(context, struct qpair_context, vctx.context);
}

static inline struct qpair_ah *to_ah(struct ibv_ah *ah)
{
	return container_of(ah, struct qpair_ah, ibv_ah);
}

static inline struct qpair_td *to_td(struct ibv_td *td)
{
	return container_of(td, struct qpair_td, ibv_td);
}

static inline struct qpair_pd *to_pd(struct ibv_pd *pd)
{
	return container_of(pd, struct qpair_pd, ibv_pd);
}

static inline struct qpair_cq *to_cq(struct ibv_cq *cq)
{
	return container_of(cq, struct qpair_cq, vcq.cq);
}

static inline struct qpair_qp *to_qp(struct ibv_qp *qp)
{
	return container_of(qp, struct qpair_qp, vqp.qp);
}

static inline struct qpair_srq *to_srq(struct ibv_srq *srq)
{
	return container_of(srq, struct qpair_srq, vsrq.srq);
}

struct ibv_pd *qpair_alloc_pd(struct ibv_context *context);
struct ibv_pd *qpair_alloc_parent_domain(struct ibv_context *context,
					 struct ibv_parent_domain_init_attr *attr);
int qpair_dealloc_pd(struct ibv_pd *pd);
struct ibv_td *qpair_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int qpair_dealloc_td(struct ibv_td *td);

int qpair_map(struct qpair_memory *memory, size_t bytes, struct ibv_pd *pd);
void qpair_unmap(struct qpair_memory *memory);

struct ibv_cq *qpair_create_cq(struct ibv_context *context, int cqe,
			       struct ibv_comp_channel *channel, int vector);
struct ibv_cq_ex *qpair_create_cq_ex(struct ibv_context *context,
				     struct ibv_cq_init_attr_ex *attr);
int qpair_resize_cq(struct ibv_cq *cq, int cqe);
int qpair_destroy_cq(struct ibv_cq *cq);

struct ibv_srq *qpair_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
int qpair_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int qpair_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int qpair_destroy_srq(struct ibv_srq *srq);

struct ibv_qp *qpair_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *qpair_create_qp_ex(struct ibv_context *context,
				  struct ibv_qp_init_attr_ex *attr);
int qpair_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int qpair_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		   struct ibv_qp_init_attr *init);
int qpair_destroy_qp(struct ibv_qp *qp);

#endif
