// SPDX-License-Identifier: GPL-2.0
/*
 * failures [DEVICE]: a verb that fails returns the error, leaves no memory, and works
 * when it is called again.
 *
 * The calloc(), mmap(), madvise() and ioctl() of libibverbs and the provider are
 * those of this program. Of each verb the first such call fails, then the second,
 * until the verb makes fewer: each time no memory and no mapping is left. The
 * driver's part of an answer may also be zeros, as by a module of another version.
 * Last come requests that a verb refuses.
 *
 * It runs on a port of InfiniBand: scripts/guest --verbs -- failures qpair0
 */
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "example.h"

#define PAGE	4096
/* Most allocations at a time. */
#define MOST	1024

static struct ibv_device *device;
static struct ibv_pd *pd, *parent;
static struct ibv_td *td;
static struct ibv_mr *mr;
static struct ibv_mw *mw;
static struct ibv_ah *ah;
static struct ibv_cq *cq;
static struct ibv_cq_ex *cq_ex;
static struct ibv_srq *srq;
static struct ibv_qp *qp, *qp_ex;
static struct ibv_device_attr limits;
static uint8_t memory[PAGE];

/* The number of the call that fails, 0 for none, and how many there were. */
static unsigned int failing, calls;
/* Whether the driver's part of each answer is zeros. */
static bool zeroed;
/* What calloc() has returned, and bytes that are mapped. */
static void *live[MOST];
static size_t mapped;

/* The kinds of call, and how many of each have failed. */
enum kind { CALLOC, MMAP, MADVISE, IOCTL, KINDS };
static const char *const kinds[] = { "calloc()", "mmap()", "madvise()", "ioctl()" };
static unsigned int injected[KINDS];

static bool fails(enum kind kind)
{
	if (++calls != failing)
		return false;
	injected[kind]++;
	return true;
}

void *__libc_calloc(size_t count, size_t size);
void __libc_free(void *start);

void *calloc(size_t count, size_t size)
{
	void *start = fails(CALLOC) ? NULL : __libc_calloc(count, size);
	size_t i = 0;

	if (!start) {
		errno = ENOMEM;
		return NULL;
	}
	while (live[i])
		if (++i == MOST)
			abort();
	live[i] = start;
	return start;
}

void free(void *start)
{
	size_t i;

	for (i = 0; start && i < MOST; i++)
		if (live[i] == start)
			live[i] = NULL;
	__libc_free(start);
}

void *mmap(void *start, size_t bytes, int rights, int flags, int file, off_t offset)
{
	if (fails(MMAP)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	start = (void *)syscall(SYS_mmap, start, bytes, rights, flags, file, offset);
	if (start != MAP_FAILED)
		mapped += bytes;
	return start;
}

int munmap(void *start, size_t bytes)
{
	mapped -= bytes;
	return syscall(SYS_munmap, start, bytes);
}

int madvise(void *start, size_t bytes, int advice)
{
	if (fails(MADVISE)) {
		errno = ENOMEM;
		return -1;
	}
	return syscall(SYS_madvise, start, bytes, advice);
}

int ioctl(int file, unsigned long request, ...)
{
	struct ib_uverbs_ioctl_hdr *command;
	va_list list;
	int i, status;

	va_start(list, request);
	command = va_arg(list, void *);
	va_end(list);
	if (fails(IOCTL)) {
		errno = ENOMEM;
		return -1;
	}
	status = syscall(SYS_ioctl, file, request, command);
	if (status || !zeroed || request != RDMA_VERBS_IOCTL)
		return status;
	for (i = 0; i < command->num_attrs; i++)
		if (command->attrs[i].attr_id == UVERBS_ATTR_UHW_OUT)
			memset((void *)(uintptr_t)command->attrs[i].data, 0, command->attrs[i].len);
	return 0;
}

static unsigned int allocations(void)
{
	unsigned int count = 0;
	size_t i;

	for (i = 0; i < MOST; i++)
		count += !!live[i];
	return count;
}

/* Creates an object; returns 0, or an error. */
#define MADE(object, made) ((object) = (made), (object) ? 0 : errno)

static int open_device(void)
{
	return MADE(context, ibv_open_device(device));
}

static int alloc_pd(void)
{
	return MADE(pd, ibv_alloc_pd(context));
}

static int alloc_td(void)
{
	struct ibv_td_init_attr attr = {};

	return MADE(td, ibv_alloc_td(context, &attr));
}

static int alloc_parent(void)
{
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = td };

	return MADE(parent, ibv_alloc_parent_domain(context, &attr));
}

static int reg_mr(void)
{
	return MADE(mr, ibv_reg_mr(pd, memory, PAGE, IBV_ACCESS_LOCAL_WRITE));
}

static int rereg_mr(void)
{
	return ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) ? errno : 0;
}

static int alloc_mw(void)
{
	return MADE(mw, ibv_alloc_mw(pd, IBV_MW_TYPE_1));
}

static int create_ah(void)
{
	struct ibv_ah_attr attr = own_address(false);

	return MADE(ah, ibv_create_ah(pd, &attr));
}

static int create_cq(void)
{
	return MADE(cq, ibv_create_cq(context, 16, NULL, NULL, 0));
}

static int create_cq_ex(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 16,
		.wc_flags = IBV_WC_STANDARD_FLAGS,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
		.parent_domain = parent,
	};

	return MADE(cq_ex, ibv_create_cq_ex(context, &attr));
}

static int resize_cq(void)
{
	return ibv_resize_cq(cq, 100);
}

static int create_srq(void)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 8, .max_sge = 1 } };

	return MADE(srq, ibv_create_srq(pd, &attr));
}

static int resize_srq(void)
{
	struct ibv_srq_attr attr = { .max_wr = 64 };

	return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
}

static int query_srq(void)
{
	struct ibv_srq_attr attr;

	return ibv_query_srq(srq, &attr);
}

static struct ibv_qp_init_attr_ex wanted(void)
{
	return (struct ibv_qp_init_attr_ex) {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
}

static int create_qp(void)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .cap = wanted().cap, .qp_type = IBV_QPT_RC
	};

	return MADE(qp, ibv_create_qp(pd, &attr));
}

static int create_qp_ex(void)
{
	struct ibv_qp_init_attr_ex attr = wanted();

	return MADE(qp_ex, ibv_create_qp_ex(context, &attr));
}

static int modify_qp(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = PORT };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			     IBV_QP_ACCESS_FLAGS);
}

static int query_qp(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	return ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
}

static int query_device(void)
{
	return ibv_query_device(context, &limits);
}

static int query_port(void)
{
	return ibv_query_port(context, PORT, &port);
}

static int destroy_qp(void)
{
	return ibv_destroy_qp(qp);
}

static int destroy_qp_ex(void)
{
	return ibv_destroy_qp(qp_ex);
}

static int destroy_srq(void)
{
	return ibv_destroy_srq(srq);
}

static int destroy_cq(void)
{
	return ibv_destroy_cq(cq);
}

static int destroy_cq_ex(void)
{
	return ibv_destroy_cq(ibv_cq_ex_to_cq(cq_ex));
}

static int destroy_ah(void)
{
	return ibv_destroy_ah(ah);
}

static int dealloc_mw(void)
{
	return ibv_dealloc_mw(mw);
}

static int dereg_mr(void)
{
	return ibv_dereg_mr(mr);
}

static int dealloc_parent(void)
{
	return ibv_dealloc_pd(parent);
}

static int dealloc_td(void)
{
	return ibv_dealloc_td(td);
}

static int dealloc_pd(void)
{
	return ibv_dealloc_pd(pd);
}

struct verb {
	const char *name;
	int (*call)(void);
	/* Whether it compares the driver's part of the answer with the request. */
	bool compares;
};

#define VERB(verb, compares) { #verb, verb, compares }

/* In an order in which each has the objects that it needs. */
static const struct verb verbs[] = {
	VERB(open_device, true),
	VERB(query_device, false),
	VERB(query_port, false),
	VERB(alloc_pd, false),
	VERB(alloc_td, false),
	VERB(alloc_parent, false),
	VERB(reg_mr, false),
	VERB(rereg_mr, false),
	VERB(alloc_mw, false),
	VERB(create_ah, false),
	VERB(create_cq, true),
	VERB(create_cq_ex, true),
	VERB(resize_cq, false),
	VERB(create_srq, true),
	VERB(resize_srq, false),
	VERB(query_srq, false),
	VERB(create_qp, true),
	VERB(create_qp_ex, true),
	VERB(modify_qp, false),
	VERB(query_qp, false),
	VERB(destroy_qp, false),
	VERB(destroy_qp_ex, false),
	VERB(destroy_srq, false),
	VERB(destroy_cq, false),
	VERB(destroy_cq_ex, false),
	VERB(destroy_ah, false),
	VERB(dealloc_mw, false),
	VERB(dereg_mr, false),
	VERB(dealloc_parent, false),
	VERB(dealloc_td, false),
	VERB(dealloc_pd, false),
};

/*
 * Calls a verb and fails its call number `call`, or none if it is 0. Returns the verb's error, and
 * checks that an error leaves no memory.
 */
static int attempt(const struct verb *verb, unsigned int call)
{
	unsigned int had = allocations();
	size_t bytes = mapped;
	int error;

	calls = 0;
	failing = call;
	error = verb->call();
	failing = 0;
	check(!error || (allocations() == had && mapped == bytes), "the verb fails, and leaves memory");
	return error;
}

/* Compares the error of a verb, 0 if there is none, with the right one. */
static void expect(const char *what, int error, int right)
{
	if (error != right)
		errx(1, "%s: %s instead of %s", what, error ? strerror(error) : "no error", strerror(right));
}

/* Fails each call of a verb once, then none. Returns how many there are. */
static unsigned int call_each(const struct verb *verb)
{
	unsigned int call;
	int error;

	if (verb->compares) {
		now("%s with an answer of zeros", verb->name);
		zeroed = true;
		expect(doing, attempt(verb, 0), EPROTO);
		zeroed = false;
	}
	for (call = 1;; call++) {
		now("%s, failing call %u", verb->name, call);
		error = attempt(verb, call);
		if (!error && calls < call)
			return calls;
		check(calls >= call, "the verb fails, and no call of it did");
		/* libibverbs ignores the error of one call of ibv_open_device(). */
		if (!error && verb->call == open_device)
			ibv_close_device(context);
		else
			expect(doing, error, ENOMEM);
	}
}

static void refused_domains(void)
{
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .comp_mask = 1U << 31 };
	struct ibv_td_init_attr unknown = { .comp_mask = 1 };
	struct ibv_pd *none;

	expect("an unknown comp_mask of a thread domain",
	       MADE(td, ibv_alloc_td(context, &unknown)), EOPNOTSUPP);
	expect("an unknown comp_mask of a parent domain",
	       MADE(none, ibv_alloc_parent_domain(context, &attr)), EOPNOTSUPP);
	attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	expect("a parent domain without its allocator",
	       MADE(none, ibv_alloc_parent_domain(context, &attr)), EINVAL);
	attr.comp_mask = 0;
	attr.pd = NULL;
	expect("a parent domain without a PD",
	       MADE(none, ibv_alloc_parent_domain(context, &attr)), EINVAL);
	must(alloc_td() ?: alloc_parent(), "allocate domains");
	expect("the end of a thread domain in use", dealloc_td(), EBUSY);
	expect("the end of a PD in use", dealloc_pd(), EBUSY);
	must(dealloc_parent() ?: dealloc_td(), "free domains");
}

/* What the allocator of a parent domain returns. */
static void *given;

static void *give(struct ibv_pd *of, void *arg, size_t bytes, size_t alignment, uint64_t type)
{
	check(of == parent && !arg && bytes >= PAGE && alignment == PAGE && !type,
	      "an allocator is called with wrong arguments");
	return given;
}

static void take(struct ibv_pd *of, void *arg, void *start, uint64_t type)
{
	check(of == parent && !arg && start == given && !type,
	      "other memory than that of the allocator is freed");
}

static void refused_memory(void)
{
	struct ibv_parent_domain_init_attr attr = {
		.pd = pd,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS,
		.alloc = give,
		.free = take,
	};
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1 } };

	parent = need(ibv_alloc_parent_domain(context, &attr), "allocate a parent domain");
	expect("an SRQ whose allocator returns NULL", MADE(srq, ibv_create_srq(parent, &init)), ENOMEM);
	given = memory + 1;
	expect("an SRQ whose allocator returns unaligned memory",
	       MADE(srq, ibv_create_srq(parent, &init)), EINVAL);
	must(dealloc_parent(), "free a parent domain");
}

static void refused_queues(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 16, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = limits.max_srq_sge + 1 } };
	struct ibv_srq_attr large = { .max_wr = UINT32_MAX };

	expect("a CQ of no entries", MADE(cq, ibv_create_cq(context, 0, NULL, NULL, 0)), EINVAL);
	expect("a CQ of too many entries",
	       MADE(cq, ibv_create_cq(context, INT32_MAX, NULL, NULL, 0)), EINVAL);
	expect("a CQ with timestamps", MADE(cq_ex, ibv_create_cq_ex(context, &attr)), EOPNOTSUPP);
	attr.wc_flags = 0;
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	attr.flags = 1U << 31;
	expect("an unknown flag of a CQ", MADE(cq_ex, ibv_create_cq_ex(context, &attr)), EOPNOTSUPP);
	expect("an SRQ of too many SGEs", MADE(srq, ibv_create_srq(pd, &init)), EINVAL);
	must(create_srq() ?: create_cq(), "create queues");
	expect("a resize of an SRQ to too many receives",
	       ibv_modify_srq(srq, &large, IBV_SRQ_MAX_WR), EINVAL);
	expect("a resize of a CQ to no entries", ibv_resize_cq(cq, 0), EINVAL);
	zeroed = true;
	expect("a resize of a CQ with an answer of zeros", resize_cq(), EPROTO);
	zeroed = false;
	must(destroy_srq() ?: destroy_cq(), "destroy queues");
}

static void refused_bind(void)
{
	struct ibv_mw_bind bind = { .bind_info = { .mw_access_flags = IBV_ACCESS_ZERO_BASED } };

	must(create_cq() ?: create_qp() ?: alloc_mw(), "create a queue pair and a window");
	expect("the bind of a zero-based window of type 1", ibv_bind_mw(qp, mw, &bind), EINVAL);
	must(dealloc_mw() ?: destroy_qp() ?: destroy_cq(), "destroy a queue pair and a window");
}

static void refused_queue_pairs(void)
{
	const struct {
		const char *what;
		int error;
		enum ibv_qp_type type;
		uint32_t mask, sges, flags;
		uint64_t ops;
		bool no_cq, shared;
	} cases[] = {
		{ "an unknown comp_mask of a queue pair", EOPNOTSUPP, .mask = IBV_QP_INIT_ATTR_MAX_TSO_HEADER },
		{ "an unknown flag of a queue pair", EOPNOTSUPP,
		  .mask = IBV_QP_INIT_ATTR_CREATE_FLAGS, .flags = IBV_QP_CREATE_SCATTER_FCS },
		{ "a READ on UC", EOPNOTSUPP, .type = IBV_QPT_UC, .ops = IBV_QP_EX_WITH_RDMA_READ },
		{ "a WRITE on UD", EOPNOTSUPP, .type = IBV_QPT_UD, .ops = IBV_QP_EX_WITH_RDMA_WRITE },
		{ "a queue pair without CQs", EINVAL, .no_cq = true },
		{ "a queue pair of too many SGEs", EINVAL, .sges = 1000 },
		{ "a raw packet queue pair", EOPNOTSUPP, .type = IBV_QPT_RAW_PACKET },
		{ "a queue pair of UC with an SRQ", EOPNOTSUPP, .type = IBV_QPT_UC, .shared = true },
	};
	struct ibv_qp_init_attr_ex attr;
	size_t i;

	must(create_srq() ?: create_cq(), "create queues");
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		attr = wanted();
		attr.comp_mask |= cases[i].mask;
		attr.create_flags = cases[i].flags;
		attr.qp_type = cases[i].type ? cases[i].type : IBV_QPT_RC;
		attr.send_ops_flags = cases[i].ops;
		attr.cap.max_send_sge += cases[i].sges;
		attr.send_cq = cases[i].no_cq ? NULL : cq;
		attr.srq = cases[i].shared ? srq : NULL;
		expect(cases[i].what, MADE(qp_ex, ibv_create_qp_ex(context, &attr)), cases[i].error);
	}
	must(destroy_srq() ?: destroy_cq(), "destroy queues");
}

int main(int argc, char **argv)
{
	struct ibv_device **all = need(ibv_get_device_list(NULL), "list RDMA devices");
	unsigned int failed = 0, had;
	size_t i, bytes;

	device = find_device(all, argc > 1 ? argv[1] : NULL);
	had = allocations();
	bytes = mapped;
	for (i = 0; i < sizeof(verbs) / sizeof(*verbs); i++)
		failed += call_each(&verbs[i]);
	now("requests that are refused");
	must(alloc_pd(), "allocate a PD");
	refused_domains();
	refused_memory();
	refused_queues();
	refused_bind();
	refused_queue_pairs();
	must(dealloc_pd() ?: ibv_close_device(context), "close the device");
	check(allocations() == had && mapped == bytes, "memory is left");
	for (i = 0; i < KINDS; i++) {
		now("%s", kinds[i]);
		check(injected[i], "no such call was made to fail");
	}
	ibv_free_device_list(all);
	printf("%u calls have failed\n", failed);
	return 0;
}
