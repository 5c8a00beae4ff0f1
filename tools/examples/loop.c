// SPDX-License-Identifier: GPL-2.0
/*
 * The smallest whole program on a queue pair device: two queue pairs of one
 * process, connected to each other. One receives, the other sends, and the
 * bytes are compared. It uses <linux/qpair.h> and libc alone.
 *
 *   loop [/dev/qpair0 [COUNT]]
 *
 * Read main() first: the order of its steps is the life of a queue pair.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <linux/qpair.h>

#define DEPTH	 16	/* entries of each ring: a power of two */
#define BYTES	 4096	/* of a message */
#define DEADLINE 30	/* seconds that anything may take */

struct queue_pair {
	__u32 number;
	__u32 sq_tail;
	__u32 rq_tail;
	unsigned char *sq;
	unsigned char *rq;
};

static int fd;
static volatile __u64 *doorbells;
static struct qpair_cqe *cq;
static __u32 cq_number, cq_head;

static void die(const char *what)
{
	fprintf(stderr, "loop: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void call(unsigned long request, void *argument, const char *what)
{
	if (ioctl(fd, request, argument))
		die(what);
}

/* Zeroed, page-aligned, and not inherited by a child, whose copy the device would not know. */
static void *memory(size_t bytes)
{
	void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (start == MAP_FAILED)
		die("mmap");
	if (madvise(start, bytes, MADV_DONTFORK))
		die("madvise");
	return start;
}

/* Everything that was written to memory is there before the device hears of it. */
static void doorbell(unsigned int offset, __u32 number, __u32 index)
{
	atomic_thread_fence(memory_order_release);
	doorbells[offset / 8] = QPAIR_DOORBELL(number, index);
}

static void modify(__u32 number, __u32 mask, __u32 state, __u32 peer)
{
	struct qpair_modify_qp modify = {
		.handle = number,
		.mask = mask,
		.state = state,
		.peer = peer,
	};

	call(QPAIR_IOC_MODIFY_QP, &modify, "modify queue pair");
}

static void create(struct queue_pair *qp, __u32 pd)
{
	struct qpair_create_qp create = {
		.sq_buffer_bytes = DEPTH * QPAIR_BLOCK_BYTES,
		.rq_buffer_bytes = DEPTH * QPAIR_BLOCK_BYTES,
		.sq_blocks = DEPTH,
		.rq_depth = DEPTH,
		.service = QPAIR_RC,
		.pd = pd,
		.send_cq = cq_number,
		.recv_cq = cq_number,
	};

	memset(qp, 0, sizeof(*qp));
	qp->sq = memory(create.sq_buffer_bytes);
	qp->rq = memory(create.rq_buffer_bytes);
	create.sq_buffer = (uintptr_t)qp->sq;
	create.rq_buffer = (uintptr_t)qp->rq;
	call(QPAIR_IOC_CREATE_QP, &create, "create queue pair");
	qp->number = create.handle;
}

static void post_recv(struct queue_pair *qp, __u64 id, void *to, __u32 lkey)
{
	unsigned char *at = qp->rq + qp->rq_tail % DEPTH * QPAIR_BLOCK_BYTES;
	struct qpair_recv_wqe wqe = { .sges = 1, .wr_id = id };
	struct qpair_sge sge = { (uintptr_t)to, BYTES, lkey };

	memcpy(at, &wqe, sizeof(wqe));
	memcpy(at + sizeof(wqe), &sge, sizeof(sge));
	doorbell(QPAIR_DB_RQ, qp->number, ++qp->rq_tail);
}

static void post_send(struct queue_pair *qp, __u64 id, void *from, __u32 lkey)
{
	unsigned char *at = qp->sq + qp->sq_tail % DEPTH * QPAIR_BLOCK_BYTES;
	struct qpair_send_wqe wqe = {
		.opcode = QPAIR_OP_SEND,
		.flags = QPAIR_SEND_SIGNALED,
		.blocks = 1,
		.sges = 1,
		.wr_id = id,
	};
	struct qpair_sge sge = { (uintptr_t)from, BYTES, lkey };

	memcpy(at, &wqe, sizeof(wqe));
	memcpy(at + sizeof(wqe), &sge, sizeof(sge));
	doorbell(QPAIR_DB_SQ, qp->number, ++qp->sq_tail);
}

/* Waits for the next completion. It is there when its owner bit, the top one, is not the lowest bit of the pass. */
static struct qpair_cqe poll_cq(void)
{
	struct qpair_cqe *at = &cq[cq_head % (2 * DEPTH)];
	unsigned char pass = cq_head / (2 * DEPTH) & 1;
	time_t end = time(NULL) + DEADLINE;
	struct qpair_cqe cqe;

	for (;;) {
		unsigned char owner = *(volatile __u8 *)&at->flags >> 7;

		if (owner != pass)
			break;
		if (time(NULL) > end) {
			errno = ETIMEDOUT;
			die("no completion");
		}
	}
	atomic_thread_fence(memory_order_acquire);
	cqe = *at;
	doorbell(QPAIR_DB_CQ_HEAD, cq_number, ++cq_head);
	if (cqe.status != QPAIR_STATUS_SUCCESS) {
		fprintf(stderr, "loop: work request %llu: status %u, detail %u\n",
			(unsigned long long)cqe.wr_id, cqe.status, cqe.vendor);
		exit(1);
	}
	return cqe;
}

static void destroy(unsigned long request, __u32 handle, const char *what)
{
	struct qpair_destroy destroy = { .handle = handle };

	call(request, &destroy, what);
}

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : "/dev/qpair0";
	unsigned long count = argc > 2 ? strtoul(argv[2], NULL, 0) : 100;
	struct qpair_query_device device = { 0 };
	struct qpair_alloc_pd pd = { 0 };
	struct qpair_create_cq create_cq = { 0 };
	struct qpair_reg_mr mr = { 0 };
	struct queue_pair a, b;
	unsigned char *data;
	unsigned long i;

	/* A context: an open file, and its page of doorbells. */
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		die(path);
	call(QPAIR_IOC_QUERY_DEVICE, &device, "query device");
	if (device.uapi_version != QPAIR_UAPI_VERSION) {
		fprintf(stderr, "loop: the driver has version %u of the interface, this program %u\n",
			device.uapi_version, QPAIR_UAPI_VERSION);
		return 1;
	}
	doorbells = mmap(NULL, QPAIR_DB_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (doorbells == MAP_FAILED)
		die("mmap doorbells");

	/* A protection domain, and memory in it: a half to send, a half to receive. */
	call(QPAIR_IOC_ALLOC_PD, &pd, "allocate protection domain");
	data = memory(2 * BYTES);
	mr.addr = (uintptr_t)data;
	mr.bytes = 2 * BYTES;
	mr.pd = pd.handle;
	mr.access = QPAIR_ACCESS_LOCAL_WRITE;
	call(QPAIR_IOC_REG_MR, &mr, "register memory");

	/* A completion queue with room for all that two queue pairs can have posted here. */
	cq = memory(2 * DEPTH * sizeof(*cq));
	create_cq.buffer = (uintptr_t)cq;
	create_cq.buffer_bytes = 2 * DEPTH * sizeof(*cq);
	create_cq.depth = 2 * DEPTH;
	create_cq.eventfd = QPAIR_NO_EVENTFD;
	call(QPAIR_IOC_CREATE_CQ, &create_cq, "create completion queue");
	cq_number = create_cq.handle;

	/* Two queue pairs that name each other, step by step: the receiver must be ready before the sender sends. */
	create(&a, pd.handle);
	create(&b, pd.handle);
	modify(a.number, QPAIR_QP_STATE, QPAIR_QPS_INIT, 0);
	modify(b.number, QPAIR_QP_STATE, QPAIR_QPS_INIT, 0);
	modify(a.number, QPAIR_QP_STATE | QPAIR_QP_PEER, QPAIR_QPS_RTR, b.number);
	modify(b.number, QPAIR_QP_STATE | QPAIR_QP_PEER, QPAIR_QPS_RTR, a.number);
	modify(a.number, QPAIR_QP_STATE, QPAIR_QPS_RTS, 0);
	modify(b.number, QPAIR_QP_STATE, QPAIR_QPS_RTS, 0);

	for (i = 0; i < count; i++) {
		int sent = 0, received = 0, k;

		for (k = 0; k < BYTES; k++)
			data[k] = (unsigned char)(i * 31 + k * 7 + k / 256);
		memset(data + BYTES, 0, BYTES);

		post_recv(&b, 2 * i, data + BYTES, mr.lkey);
		post_send(&a, 2 * i + 1, data, mr.lkey);
		while (!sent || !received) {
			struct qpair_cqe cqe = poll_cq();

			if (cqe.flags & QPAIR_CQE_RECV)
				received = cqe.wr_id == 2 * i && cqe.qp == b.number && cqe.bytes == BYTES;
			else
				sent = cqe.wr_id == 2 * i + 1 && cqe.qp == a.number;
		}
		if (memcmp(data, data + BYTES, BYTES)) {
			fprintf(stderr, "loop: message %lu arrived changed\n", i);
			return 1;
		}
	}

	/* In reverse: what others use goes last. Closing the file would do it too. */
	destroy(QPAIR_IOC_DESTROY_QP, a.number, "destroy queue pair");
	destroy(QPAIR_IOC_DESTROY_QP, b.number, "destroy queue pair");
	destroy(QPAIR_IOC_DEREG_MR, mr.handle, "deregister memory");
	destroy(QPAIR_IOC_DESTROY_CQ, cq_number, "destroy completion queue");
	destroy(QPAIR_IOC_DEALLOC_PD, pd.handle, "deallocate protection domain");
	close(fd);
	printf("%lu messages of %d bytes sent, received and compared\n", count, BYTES);
	return 0;
}
