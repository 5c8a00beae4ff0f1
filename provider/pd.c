// SPDX-License-Identifier: GPL-2.0
/*
 * Protection domains, thread domains, parent domains, and the memory of queues,
 * which a parent domain may allocate.
 *
 * A parent domain has the handle of its protection domain: to the kernel they
 * are one. Queues of a thread domain keep their locks: a CQ that another thread
 * polls reports to the queues of all its queue pairs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "qpair.h"

static struct qpair_pd *alloc_domain(void)
{
	struct qpair_pd *pd = calloc(1, sizeof(*pd));

	if (pd)
		atomic_init(&pd->users, 0);
	return pd;
}

struct ibv_pd *qpair_alloc_pd(struct ibv_context *context)
{
	struct ib_uverbs_alloc_pd_resp resp;
	struct ibv_alloc_pd cmd;
	struct qpair_pd *pd;

	pd = alloc_domain();
	if (!pd)
		return NULL;
	if (ibv_cmd_alloc_pd(context, &pd->ibv_pd, &cmd, sizeof(cmd), &resp, sizeof(resp))) {
		free(pd);
		return NULL;
	}
	return &pd->ibv_pd;
}

struct ibv_td *qpair_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct qpair_td *td;

	if (attr->comp_mask) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	td = calloc(1, sizeof(*td));
	if (!td)
		return NULL;
	atomic_init(&td->users, 0);
	td->ibv_td.context = context;
	return &td->ibv_td;
}

int qpair_dealloc_td(struct ibv_td *ibv)
{
	struct qpair_td *td = to_td(ibv);

	if (atomic_load(&td->users))
		return EBUSY;
	free(td);
	return 0;
}

struct ibv_pd *qpair_alloc_parent_domain(struct ibv_context *context,
					 struct ibv_parent_domain_init_attr *attr)
{
	const uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			       IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	struct qpair_pd *pd;

	if (ibv_check_alloc_parent_domain(attr))
		return NULL;
	if (attr->comp_mask & ~known) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS &&
	    (!attr->alloc || !attr->free)) {
		errno = EINVAL;
		return NULL;
	}
	pd = alloc_domain();
	if (!pd)
		return NULL;
	ibv_initialize_parent_domain(&pd->ibv_pd, attr->pd);
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
		pd->alloc = attr->alloc;
		pd->free = attr->free;
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		pd->pd_context = attr->pd_context;
	pd->of = to_pd(attr->pd);
	atomic_fetch_add(&pd->of->users, 1);
	if (attr->td) {
		pd->td = to_td(attr->td);
		atomic_fetch_add(&pd->td->users, 1);
	}
	return &pd->ibv_pd;
}

int qpair_dealloc_pd(struct ibv_pd *ibv)
{
	struct qpair_pd *pd = to_pd(ibv);
	int error;

	if (atomic_load(&pd->users))
		return EBUSY;
	if (pd->of) {
		atomic_fetch_sub(&pd->of->users, 1);
		if (pd->td)
			atomic_fetch_sub(&pd->td->users, 1);
	} else {
		error = ibv_cmd_dealloc_pd(ibv);
		if (error)
			return error;
	}
	free(pd);
	return 0;
}

/* Memory of the allocator: 0, an error, or -1 if the provider has to allocate. */
static int allocate(struct qpair_memory *memory, size_t bytes, struct qpair_pd *pd)
{
	void *start;

	if (!pd || !pd->alloc)
		return -1;
	start = pd->alloc(&pd->ibv_pd, pd->pd_context, bytes, QPAIR_PAGE, 0);
	if (start == IBV_ALLOCATOR_USE_DEFAULT)
		return -1;
	if (!start)
		return ENOMEM;
	memory->start = start;
	memory->pd = pd;
	atomic_fetch_add(&pd->users, 1);
	if ((uintptr_t)start % QPAIR_PAGE)
		return EINVAL;
	memset(start, 0, bytes);
	return 0;
}

static int map(struct qpair_memory *memory, size_t bytes)
{
	memory->start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
	if (memory->start == MAP_FAILED) {
		memory->start = NULL;
		return errno;
	}
	return 0;
}

/*
 * Zeroed pages, for a queue of the domain `ibv`, if that is not NULL. A child
 * has none of the provider's: the device would not use the child's copy. Memory
 * of an allocator is the program's, which keeps it from a child itself.
 */
int qpair_map(struct qpair_memory *memory, size_t bytes, struct ibv_pd *ibv)
{
	int error;

	bytes = (bytes + QPAIR_PAGE - 1) & ~(size_t)(QPAIR_PAGE - 1);
	memory->bytes = bytes;
	error = allocate(memory, bytes, ibv ? to_pd(ibv) : NULL);
	if (error == -1)
		error = map(memory, bytes);
	if (!error && !memory->pd && madvise(memory->start, bytes, MADV_DONTFORK))
		error = errno;
	if (error)
		qpair_unmap(memory);
	return error;
}

void qpair_unmap(struct qpair_memory *memory)
{
	struct qpair_pd *pd = memory->pd;

	if (memory->start && pd) {
		pd->free(&pd->ibv_pd, pd->pd_context, memory->start, 0);
		atomic_fetch_sub(&pd->users, 1);
	} else if (memory->start) {
		munmap(memory->start, memory->bytes);
	}
	*memory = (struct qpair_memory) {};
}
