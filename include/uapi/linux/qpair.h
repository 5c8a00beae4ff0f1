/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Queue pairs: the interface of /dev/qpairN. Generated from rust/abi by
 * tools/uapi; do not edit.
 *
 * Opening the device makes a context: a doorbell page, and everything that is
 * made through this file. Closing it ends them all. mmap at offset 0 gives the
 * doorbell page (4096 bytes, shared, read and write, not inherited by fork).
 * read gives struct qpair_async_events, and poll says when there is one.
 *
 * Sizes. A structure may grow at its end. The size in the ioctl number says
 * how much of it the caller knows: what the caller does not know is taken as
 * zero, what the kernel does not know must be zero (E2BIG), less than the
 * first version is EINVAL. Reserved fields must be zero and unknown flags are
 * refused (EINVAL). Nothing is written back when a call fails.
 *
 * Handles are the device's numbers: they go into doorbells as they are. A
 * handle is good in the context that made it and nowhere else (ENOENT).
 *
 * errno       means
 * ENOTTY      no such ioctl
 * EINVAL      bad size, reserved field, unknown flag, depth or attribute out
 *             of range, unaligned or too small buffer, no such state
 *             transition
 * E2BIG       a field that this kernel does not know is not zero
 * ENOENT      no such handle of this kind in this context
 * EBUSY       others use the object
 * EOVERFLOW   address and length wrap, or the region is larger than the device
 *             allows
 * EFAULT      argument or buffer is not mapped, not writable where it must be,
 *             or device memory
 * ENOMEM      memory, or more than RLIMIT_MEMLOCK allows
 * ENOSPC      the device or the vector has no more of this kind, or the rest
 *             is for privileged tasks
 * EDQUOT      this context or its user has as many of this kind as it may
 * EOPNOTSUPP  memory that cannot be pinned for long, as a file on a DAX
 *             device; for open: the platform gives devices copies of memory
 * EPIPE       a completion queue of the queue pair was overrun: it takes no
 *             completion any more, and can only be destroyed
 * EPERM       a mapping of the doorbell page that may be executed
 * EAGAIN      read would wait, and O_NONBLOCK is set
 * EBADF       the eventfd is none
 * EINTR       a fatal signal came while buffers were pinned; a signal came
 *             while read waited
 * EIO         the device was reset since the file was opened: open it anew
 * ENODEV      the device is gone
 */
#ifndef _UAPI_LINUX_QPAIR_H
#define _UAPI_LINUX_QPAIR_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Version of this interface: another means another set of structures. */
#define QPAIR_UAPI_VERSION			1
/* Type of the ioctl numbers, _IOWR(QPAIR_IOCTL, nr, struct). */
#define QPAIR_IOCTL				'Q'

/**
 * struct qpair_query_device - What the device is and allows.
 *
 * @uapi_version: Out: QPAIR_UAPI_VERSION of the kernel.
 * @device_version: Out: version of the programming model, major in the high 16
 *   bits.
 * @max_qp: Out: queue pairs of the device.
 * @max_cq: Out: completion queues of the device.
 * @max_eq: Out: event queues of the device.
 * @max_mr: Out: memory regions of the device.
 * @max_pd: Out: protection domains of the device.
 * @max_sq_blocks: Out: most 64-byte blocks of an SQ.
 * @max_rq_depth: Out: most work requests of an RQ.
 * @max_cq_depth: Out: most entries of a CQ.
 * @max_send_sge: Out: most SGEs of a send work request.
 * @max_recv_sge: Out: most SGEs of a receive work request.
 * @max_inline: Out: most bytes of inline data.
 * @max_message: Out: bytes of the largest message.
 * @max_mr_bytes: Out: bytes of the largest region.
 * @vectors: Out: vectors that a completion queue may choose from.
 * @link_up: Out: 1 if the link is up.
 * @quota_qp: Out: queue pairs that this context may have.
 * @quota_cq: Out: completion queues that this context may have.
 * @quota_mr: Out: memory regions that this context may have.
 * @quota_pd: Out: protection domains that this context may have.
 * @doorbell_page: Out: this context's doorbell page.
 * @epoch: Out: how often the device was reset since the driver was bound.
 */
struct qpair_query_device {
	__u32 uapi_version;
	__u32 device_version;
	__u32 max_qp;
	__u32 max_cq;
	__u32 max_eq;
	__u32 max_mr;
	__u32 max_pd;
	__u32 max_sq_blocks;
	__u32 max_rq_depth;
	__u32 max_cq_depth;
	__u32 max_send_sge;
	__u32 max_recv_sge;
	__u32 max_inline;
	__u32 max_message;
	__aligned_u64 max_mr_bytes;
	__u32 vectors;
	__u32 link_up;
	__u32 quota_qp;
	__u32 quota_cq;
	__u32 quota_mr;
	__u32 quota_pd;
	__u32 doorbell_page;
	__u32 epoch;
};

/**
 * struct qpair_query_counters - The device's counters, in the order of the
 * device manual.
 *
 * @counters: In: address of an array of 64-bit counters.
 * @count: In: places in the array. Out: counters that the device has; as many
 *   as fit were written.
 * @reserved: Zero.
 */
struct qpair_query_counters {
	__aligned_u64 counters;
	__u32 count;
	__u32 reserved;
};

/**
 * struct qpair_alloc_pd - Makes a protection domain.
 *
 * @flags: Zero.
 * @handle: Out: its handle.
 */
struct qpair_alloc_pd {
	__u32 flags;
	__u32 handle;
};

/* No eventfd. */
#define QPAIR_NO_EVENTFD			(-1)

/**
 * struct qpair_create_cq - Makes a completion queue in memory of the caller's.
 *
 * @buffer: In: address of its ring, zeroed, aligned to a page.
 * @buffer_bytes: In: bytes of the ring; at least 32 for each entry of the
 *   rounded depth.
 * @depth: In: entries wanted. Out: entries it has, a power of two.
 * @vector: In: the vector that its events come by.
 * @eventfd: In: eventfd to signal at each event, or QPAIR_NO_EVENTFD.
 * @flags: Zero.
 * @handle: Out: its handle.
 * @reserved: Zero.
 */
struct qpair_create_cq {
	__aligned_u64 buffer;
	__aligned_u64 buffer_bytes;
	__u32 depth;
	__u32 vector;
	__s32 eventfd;
	__u32 flags;
	__u32 handle;
	__u32 reserved;
};

/*
 * qpair_query_cq::flags: it had no room once, and its queue pairs were
 * stopped. It can only be destroyed.
 */
#define QPAIR_CQ_OVERRUN			1

/**
 * struct qpair_query_cq - What a completion queue is.
 *
 * @handle: In: the completion queue.
 * @depth: Out: its entries.
 * @producer: Out: entries written.
 * @consumer: Out: head that was published last.
 * @vector: Out: its vector.
 * @flags: Out: QPAIR_CQ_OVERRUN.
 * @levels: Out: levels of its buffer list.
 * @page_shift: Out: base-two logarithm of its page size.
 */
struct qpair_query_cq {
	__u32 handle;
	__u32 depth;
	__u32 producer;
	__u32 consumer;
	__u32 vector;
	__u32 flags;
	__u32 levels;
	__u32 page_shift;
};

/* Service: reliable connected. */
#define QPAIR_RC				0

/**
 * struct qpair_create_qp - Makes a queue pair in memory of the caller's; it is
 * in RESET.
 *
 * @sq_buffer: In: address of its SQ, aligned to a page.
 * @sq_buffer_bytes: In: bytes of the SQ; at least 64 for each block of the
 *   rounded depth.
 * @rq_buffer: In: address of its RQ, zeroed, aligned to a page.
 * @rq_buffer_bytes: In: bytes of the RQ; at least 64 << rq_stride for each
 *   work request of the rounded depth.
 * @sq_blocks: In: 64-byte blocks wanted. Out: blocks it has, a power of two.
 * @rq_depth: In: receives wanted. Out: receives it has, a power of two.
 * @rq_stride: In: a receive takes 64 << rq_stride bytes; 0, 1 or 2.
 * @service: In: QPAIR_RC.
 * @pd: In: its protection domain.
 * @send_cq: In: completion queue of its SQ.
 * @recv_cq: In: completion queue of its RQ.
 * @flags: Zero.
 * @handle: Out: its handle, which is its number.
 * @reserved: Zero.
 */
struct qpair_create_qp {
	__aligned_u64 sq_buffer;
	__aligned_u64 sq_buffer_bytes;
	__aligned_u64 rq_buffer;
	__aligned_u64 rq_buffer_bytes;
	__u32 sq_blocks;
	__u32 rq_depth;
	__u32 rq_stride;
	__u32 service;
	__u32 pd;
	__u32 send_cq;
	__u32 recv_cq;
	__u32 flags;
	__u32 handle;
	__u32 reserved;
};

/* State: made, or made new. */
#define QPAIR_QPS_RESET				0
/* State: receives may be posted. */
#define QPAIR_QPS_INIT				1
/* State: ready to receive. */
#define QPAIR_QPS_RTR				2
/* State: ready to send. */
#define QPAIR_QPS_RTS				3
/* State: drained. */
#define QPAIR_QPS_SQD				4
/* State: error. */
#define QPAIR_QPS_ERROR				5
/* qpair_modify_qp::mask: state. */
#define QPAIR_QP_STATE				1
/* qpair_modify_qp::mask: peer. */
#define QPAIR_QP_PEER				2
/* qpair_modify_qp::mask: access. */
#define QPAIR_QP_ACCESS				4
/* qpair_modify_qp::mask: retry and rnr_retry. */
#define QPAIR_QP_RETRY				8

/**
 * struct qpair_modify_qp - Changes a queue pair.
 *
 * @handle: In: the queue pair.
 * @mask: In: what to change, QPAIR_QP_*.
 * @state: In: QPAIR_QPS_*.
 * @peer: In: number of the only queue pair that it talks to.
 * @access: In: what the peer may do, QPAIR_ACCESS_REMOTE_*.
 * @retry: In: retries when the peer does not answer, 0 to 7.
 * @rnr_retry: In: retries when the peer has no receive, 0 to 7.
 * @reserved: Zero.
 * @send_cq_index: Out, when made new: producer index of its send CQ; entries
 *   of it are before this.
 * @recv_cq_index: Out, when made new: producer index of its receive CQ;
 *   entries of it are before this.
 */
struct qpair_modify_qp {
	__u32 handle;
	__u32 mask;
	__u32 state;
	__u32 peer;
	__u32 access;
	__u32 retry;
	__u32 rnr_retry;
	__u32 reserved;
	__u32 send_cq_index;
	__u32 recv_cq_index;
};

/**
 * struct qpair_query_qp - What a queue pair is.
 *
 * @handle: In: the queue pair.
 * @state: Out: QPAIR_QPS_*.
 * @peer: Out: number of its peer.
 * @access: Out: what the peer may do.
 * @retry: Out: retries when the peer does not answer.
 * @rnr_retry: Out: retries when the peer has no receive.
 * @sq_producer: Out: SQ blocks handed over.
 * @sq_consumer: Out: SQ blocks done.
 * @rq_producer: Out: receives handed over.
 * @rq_consumer: Out: receives taken.
 * @sq_levels: Out: levels of its SQ's buffer list.
 * @sq_page_shift: Out: base-two logarithm of its SQ's page size.
 */
struct qpair_query_qp {
	__u32 handle;
	__u32 state;
	__u32 peer;
	__u32 access;
	__u32 retry;
	__u32 rnr_retry;
	__u32 sq_producer;
	__u32 sq_consumer;
	__u32 rq_producer;
	__u32 rq_consumer;
	__u32 sq_levels;
	__u32 sq_page_shift;
};

/* Right: receives and READs of the owner may fill the region. */
#define QPAIR_ACCESS_LOCAL_WRITE		1
/* Right: the peer may write. */
#define QPAIR_ACCESS_REMOTE_WRITE		2
/* Right: the peer may read. */
#define QPAIR_ACCESS_REMOTE_READ		4

/**
 * struct qpair_reg_mr - Registers memory of the caller's.
 *
 * @addr: In: address; also the address in the region's own address space.
 * @bytes: In: bytes, not 0.
 * @pd: In: its protection domain.
 * @access: In: rights, QPAIR_ACCESS_*. With any right to write the memory must
 *   be writable.
 * @handle: Out: its handle.
 * @lkey: Out: key for the owner's SGEs.
 * @rkey: Out: key to give to a peer.
 * @reserved: Zero.
 */
struct qpair_reg_mr {
	__aligned_u64 addr;
	__aligned_u64 bytes;
	__u32 pd;
	__u32 access;
	__u32 handle;
	__u32 lkey;
	__u32 rkey;
	__u32 reserved;
};

/**
 * struct qpair_query_mr - What a memory region is.
 *
 * @handle: In: the region.
 * @access: Out: its rights.
 * @addr: Out: its address.
 * @bytes: Out: its bytes.
 * @levels: Out: levels of its buffer list.
 * @page_shift: Out: base-two logarithm of its page size.
 */
struct qpair_query_mr {
	__u32 handle;
	__u32 access;
	__aligned_u64 addr;
	__aligned_u64 bytes;
	__u32 levels;
	__u32 page_shift;
};

/**
 * struct qpair_destroy - Ends an object.
 *
 * @handle: In: the object.
 * @reserved: Zero.
 * @send_cq_index: Out, of a queue pair: producer index of its send CQ; entries
 *   of it are before this.
 * @recv_cq_index: Out, of a queue pair: producer index of its receive CQ;
 *   entries of it are before this.
 */
struct qpair_destroy {
	__u32 handle;
	__u32 reserved;
	__u32 send_cq_index;
	__u32 recv_cq_index;
};

/*
 * Event: a completion queue had no room; its queue pairs are in the error
 * state.
 */
#define QPAIR_EVENT_CQ_OVERRUN			2
/* Event: a queue pair went to the error state. */
#define QPAIR_EVENT_QP_FATAL			3
/* Event: this context wrote doorbells that make no sense. */
#define QPAIR_EVENT_DOORBELL_VIOLATION		4
/*
 * Event: the device was reset, by itself or by request; this context is dead.
 * The last event that read gives, once.
 */
#define QPAIR_EVENT_DEVICE_FATAL		5

/**
 * struct qpair_async_event - What read gives: as many as fit, whole ones only.
 *
 * @kind: QPAIR_EVENT_*.
 * @handle: The object, or the doorbell page.
 * @code: Of a fatal queue pair: the status.
 * @count: How often it happened.
 */
struct qpair_async_event {
	__u32 kind;
	__u32 handle;
	__u32 code;
	__u32 count;
};

/* The ioctls. */

#define QPAIR_IOC_QUERY_DEVICE \
	_IOWR(QPAIR_IOCTL, 0x00, struct qpair_query_device)
#define QPAIR_IOC_QUERY_COUNTERS \
	_IOWR(QPAIR_IOCTL, 0x01, struct qpair_query_counters)
#define QPAIR_IOC_ALLOC_PD \
	_IOWR(QPAIR_IOCTL, 0x10, struct qpair_alloc_pd)
/* struct qpair_destroy of a protection domain. */
#define QPAIR_IOC_DEALLOC_PD \
	_IOWR(QPAIR_IOCTL, 0x11, struct qpair_destroy)
#define QPAIR_IOC_CREATE_CQ \
	_IOWR(QPAIR_IOCTL, 0x20, struct qpair_create_cq)
#define QPAIR_IOC_QUERY_CQ \
	_IOWR(QPAIR_IOCTL, 0x21, struct qpair_query_cq)
/* struct qpair_destroy of a completion queue. */
#define QPAIR_IOC_DESTROY_CQ \
	_IOWR(QPAIR_IOCTL, 0x22, struct qpair_destroy)
#define QPAIR_IOC_CREATE_QP \
	_IOWR(QPAIR_IOCTL, 0x30, struct qpair_create_qp)
#define QPAIR_IOC_MODIFY_QP \
	_IOWR(QPAIR_IOCTL, 0x31, struct qpair_modify_qp)
#define QPAIR_IOC_QUERY_QP \
	_IOWR(QPAIR_IOCTL, 0x32, struct qpair_query_qp)
/* struct qpair_destroy of a queue pair. */
#define QPAIR_IOC_DESTROY_QP \
	_IOWR(QPAIR_IOCTL, 0x33, struct qpair_destroy)
#define QPAIR_IOC_REG_MR \
	_IOWR(QPAIR_IOCTL, 0x40, struct qpair_reg_mr)
#define QPAIR_IOC_QUERY_MR \
	_IOWR(QPAIR_IOCTL, 0x41, struct qpair_query_mr)
/* struct qpair_destroy of a memory region. */
#define QPAIR_IOC_DEREG_MR \
	_IOWR(QPAIR_IOCTL, 0x42, struct qpair_destroy)

/*
 * The doorbell page: mmap at offset 0. A doorbell is one aligned 64-bit write
 * of QPAIR_DOORBELL(number, index) to one of these offsets. Entries must be in
 * memory before it: a release fence, or whatever orders stores before a store
 * to the device.
 */

/* Bytes of a doorbell page. */
#define QPAIR_DB_PAGE_BYTES			4096
/* SQ, producer index in blocks: hands the blocks before it to the device. */
#define QPAIR_DB_SQ				0x00
/* RQ, producer index in WQEs. */
#define QPAIR_DB_RQ				0x08
/* CQ, consumer index: frees the slots before it. */
#define QPAIR_DB_CQ_HEAD			0x18
/*
 * CQ, consumer index: as QPAIR_DB_CQ_HEAD, and asks for an event at the next
 * completion past it.
 */
#define QPAIR_DB_CQ_ARM_NEXT			0x20
/*
 * CQ, consumer index: as QPAIR_DB_CQ_HEAD, and asks for an event at the next
 * solicited or failed completion past it.
 */
#define QPAIR_DB_CQ_ARM_SOLICITED		0x28
/*
 * CQ, index 0: asks for an event at the next completion that is written after
 * this doorbell. Frees no slots.
 */
#define QPAIR_DB_CQ_NOTIFY			0x40
/*
 * CQ, index 0: as QPAIR_DB_CQ_NOTIFY, at the next solicited or failed
 * completion.
 */
#define QPAIR_DB_CQ_NOTIFY_SOLICITED		0x48

/*
 * The rings. An SQ is an array of 64-byte blocks; a WQE takes 1 to
 * QPAIR_MAX_BLOCKS of them and may wrap: struct qpair_send_wqe, then struct
 * qpair_sge, or with QPAIR_SEND_INLINE the bytes themselves. An RQ is an array
 * of WQEs of one stride: struct qpair_recv_wqe, then struct qpair_sge. Indices
 * have 32 bits and run free; the low bits are the place in the ring. All is
 * little-endian.
 */

/* Bytes of an SQ block. */
#define QPAIR_BLOCK_BYTES			64
/* Most blocks of a WQE. */
#define QPAIR_MAX_BLOCKS			4
/* Largest shift of an RQ's stride, 64 << shift bytes. */
#define QPAIR_MAX_STRIDE_SHIFT			2

/**
 * struct qpair_send_wqe - The head of a send work queue entry.
 *
 * @opcode: What to do: one of QPAIR_OP_*.
 * @flags: How: QPAIR_SEND_*.
 * @blocks: Blocks that it takes, 1 to QPAIR_MAX_BLOCKS.
 * @sges: SGEs that follow; 0 with inline data.
 * @imm: Immediate data, given to the peer as it is.
 * @wr_id: The poster's own, given back in the CQE.
 * @remote_addr: Address in the peer's region (WRITE, READ, atomics); for UD
 *   the peer's QP number, and its Q_Key in the high half.
 * @rkey: Key of the peer's region.
 * @inline_bytes: Bytes of inline data that follow.
 */
struct qpair_send_wqe {
	__u8 opcode;
	__u8 flags;
	__u8 blocks;
	__u8 sges;
	__u32 imm;
	__aligned_u64 wr_id;
	__aligned_u64 remote_addr;
	__u32 rkey;
	__u32 inline_bytes;
};

/**
 * struct qpair_recv_wqe - The head of a receive work queue entry.
 *
 * @sges: SGEs that follow.
 * @reserved1: Zero.
 * @wr_id: The poster's own, given back in the CQE.
 */
struct qpair_recv_wqe {
	__u8 sges;
	__u8 reserved1[7];
	__aligned_u64 wr_id;
};

/**
 * struct qpair_sge - A piece of a memory region.
 *
 * @addr: First byte, an address of the region's own address space.
 * @bytes: Bytes; 0 is nothing, and its key is not looked at.
 * @lkey: Key of the region.
 */
struct qpair_sge {
	__aligned_u64 addr;
	__u32 bytes;
	__u32 lkey;
};

/**
 * struct qpair_cqe - A completion queue entry; QPAIR_CQE_OWNER is the top bit
 * of its last word.
 *
 * @wr_id: The work request's own.
 * @qp: The queue pair.
 * @bytes: Bytes received or read; for an admin command the first result.
 * @imm: Immediate data; for an admin command the second result.
 * @index: Consumer index of the work queue past this work request: it and all
 *   before it, unsignalled ones included, are done.
 * @src: The peer's QP number (UD); for an admin command the third result.
 * @opcode: What was done: one of QPAIR_OP_*.
 * @status: How it went: a QPAIR_STATUS_*.
 * @vendor: Detail: a QPAIR_DETAIL_*, or an admin error.
 * @flags: QPAIR_CQE_*.
 */
struct qpair_cqe {
	__aligned_u64 wr_id;
	__u32 qp;
	__u32 bytes;
	__u32 imm;
	__u32 index;
	__u32 src;
	__u8 opcode;
	__u8 status;
	__u8 vendor;
	__u8 flags;
};

/* What a send work request does. */

/* Nothing, and completes. */
#define QPAIR_OP_NOP				0
/* Fills the peer's next receive. */
#define QPAIR_OP_SEND				1
/* As QPAIR_OP_SEND, and its CQE carries 32 bits of immediate data. */
#define QPAIR_OP_SEND_IMM			2
/* Writes the peer's memory. */
#define QPAIR_OP_WRITE				3
/*
 * As QPAIR_OP_WRITE, and takes the peer's next receive for a CQE with
 * immediate data.
 */
#define QPAIR_OP_WRITE_IMM			4
/* Reads the peer's memory. */
#define QPAIR_OP_READ				5
/* Compares and swaps 8 bytes of the peer's memory. */
#define QPAIR_OP_COMPARE_SWAP			6
/* Adds to 8 bytes of the peer's memory. */
#define QPAIR_OP_FETCH_ADD			7
/* In CQEs only: a receive that a SEND filled. */
#define QPAIR_OP_RECV				0x80
/* In CQEs only: a receive that a WRITE with immediate took. */
#define QPAIR_OP_RECV_WRITE_IMM			0x81

/* How a send work request is done. */

/* Writes a CQE when done. One that fails always does. */
#define QPAIR_SEND_SIGNALED			(1 << 0)
/* The peer's CQE is solicited. */
#define QPAIR_SEND_SOLICITED			(1 << 1)
/* Starts when all READs and atomics before it are done. */
#define QPAIR_SEND_FENCE			(1 << 2)
/* The data follow in the WQE. */
#define QPAIR_SEND_INLINE			(1 << 3)

/* What else a CQE says. The top bit of this byte is QPAIR_CQE_OWNER. */

/* It is of the receive queue; index counts there. */
#define QPAIR_CQE_RECV				(1 << 0)
/* imm is valid. */
#define QPAIR_CQE_IMM				(1 << 1)
/* The sender asked for a solicited event. */
#define QPAIR_CQE_SOLICITED			(1 << 2)
/*
 * Whose it is: a CQE is there when this bit is !((index / depth) & 1), index
 * being the consumer's free-running one and depth the ring's. Load these flags
 * first, with acquire order, then the rest.
 */
#define QPAIR_CQE_OWNER				(1 << 7)

/* Statuses of completions, with the numbers of enum ibv_wc_status. */

/* Done. */
#define QPAIR_STATUS_SUCCESS			0
/*
 * The receive's buffers are shorter than the message, or a message is longer
 * than the limit.
 */
#define QPAIR_STATUS_LOCAL_LENGTH		1
/*
 * The work request makes no sense: opcode, flags, number of blocks or SGEs,
 * inline length; of a receive also reserved bits.
 */
#define QPAIR_STATUS_LOCAL_QP_OPERATION		2
/*
 * An SGE's key or range is not a region of this PD, or not with these rights.
 */
#define QPAIR_STATUS_LOCAL_PROTECTION		4
/* The queue went to the error state before this was done. */
#define QPAIR_STATUS_FLUSH			5
/* The peer wrote with immediate, and what it wrote may not be written. */
#define QPAIR_STATUS_LOCAL_ACCESS		8
/*
 * The peer found the request invalid: its receive is too short, or it allows
 * no such operation.
 */
#define QPAIR_STATUS_REMOTE_INVALID_REQUEST	9
/*
 * The remote key or range is not a region of the peer's PD, or not with these
 * rights.
 */
#define QPAIR_STATUS_REMOTE_ACCESS		10
/* The peer could not finish for a reason of its own. */
#define QPAIR_STATUS_REMOTE_OPERATION		11
/*
 * The peer is gone, not ready, or does not name this queue pair as its peer.
 */
#define QPAIR_STATUS_RETRY_EXCEEDED		12
/*
 * The peer had no receive posted for as long as the sender was willing to
 * retry.
 */
#define QPAIR_STATUS_RNR_RETRY_EXCEEDED		13
/* Not given by the device; for software that flushes after a reset. */
#define QPAIR_STATUS_FATAL			19
/*
 * Of an admin command: it was refused, see the vendor detail. Of a queue
 * pair's event: a CQ of it was overrun.
 */
#define QPAIR_STATUS_GENERAL			21

/* Vendor details of completions: which check refused. */

/* No more to say. */
#define QPAIR_DETAIL_NONE			0
/* Unknown opcode, or one that this service does not have. */
#define QPAIR_DETAIL_OPCODE			1
/*
 * Unknown flag, or one that does not go with the opcode; of a receive, a
 * reserved bit that is not zero.
 */
#define QPAIR_DETAIL_FLAGS			2
/* Number of blocks is 0, above the limit, or past the producer index. */
#define QPAIR_DETAIL_BLOCKS			3
/*
 * Number of SGEs above the limit or what the blocks hold, or SGEs besides
 * inline data.
 */
#define QPAIR_DETAIL_SGES			4
/*
 * More inline bytes than the limit or what the blocks hold, or inline bytes
 * without the flag.
 */
#define QPAIR_DETAIL_INLINE			5
/* Message longer than the limit. */
#define QPAIR_DETAIL_MESSAGE			6
/* No region has this key. */
#define QPAIR_DETAIL_KEY			7
/* The region belongs to another PD. */
#define QPAIR_DETAIL_DOMAIN			8
/* The range is not inside the region. */
#define QPAIR_DETAIL_RANGE			9
/* The region, or the peer's queue pair, lacks the right. */
#define QPAIR_DETAIL_RIGHTS			10
/* The queue pair's peer is not there. */
#define QPAIR_DETAIL_NO_PEER			11
/* The peer does not name this queue pair. */
#define QPAIR_DETAIL_NOT_NAMED			12
/* The peer is not ready to receive. */
#define QPAIR_DETAIL_NOT_READY			13
/* The receive is too short for the message. */
#define QPAIR_DETAIL_SHORT_RECEIVE		14
/* A page table, ring or page of the object could not be read or written. */
#define QPAIR_DETAIL_DMA			15
/* The queue's state does not allow it. */
#define QPAIR_DETAIL_STATE			16

/* Places in the array of struct qpair_query_counters. */

/* SQ doorbells */
#define QPAIR_COUNTER_SQ_DOORBELLS		0
/* RQ doorbells */
#define QPAIR_COUNTER_RQ_DOORBELLS		1
/* CQ head doorbells */
#define QPAIR_COUNTER_CQ_HEAD_DOORBELLS		2
/* CQ arm and notify doorbells */
#define QPAIR_COUNTER_CQ_ARM_DOORBELLS		3
/* EQ head doorbells that unmask */
#define QPAIR_COUNTER_EQ_HEAD_DOORBELLS		4
/* EQ head doorbells that keep the mask */
#define QPAIR_COUNTER_EQ_MASKED_DOORBELLS	5
/* doorbells that make no sense */
#define QPAIR_COUNTER_VIOLATIONS		6
/* send WQEs fetched */
#define QPAIR_COUNTER_SEND_WQES			7
/* receive WQEs fetched */
#define QPAIR_COUNTER_RECV_WQES			8
/* admin commands done */
#define QPAIR_COUNTER_COMMANDS			9
/* CQEs written */
#define QPAIR_COUNTER_CQES			10
/* EQEs written */
#define QPAIR_COUNTER_EQES			11
/* asynchronous events, repeats included */
#define QPAIR_COUNTER_ASYNC_EVENTS		12
/* interrupts raised */
#define QPAIR_COUNTER_INTERRUPTS		13
/* DMA reads */
#define QPAIR_COUNTER_DMA_READS			14
/* DMA writes */
#define QPAIR_COUNTER_DMA_WRITES		15
/* DMA that the system refused */
#define QPAIR_COUNTER_DMA_FAULTS		16
/* payload bytes moved by SENDs */
#define QPAIR_COUNTER_SEND_BYTES		17
/* payload bytes moved by RDMA WRITEs */
#define QPAIR_COUNTER_WRITE_BYTES		18
/* payload bytes moved by RDMA READs */
#define QPAIR_COUNTER_READ_BYTES		19
/* completions with an error */
#define QPAIR_COUNTER_ERRORS			20
/* work requests flushed */
#define QPAIR_COUNTER_FLUSHES			21
/* CQs that had no room */
#define QPAIR_COUNTER_CQ_OVERRUNS		22
/* doorbells and references with the generation of an object that is gone */
#define QPAIR_COUNTER_STALE			23
/* turns of queue pairs in the core */
#define QPAIR_COUNTER_TURNS			24
/* How many there are. */
#define QPAIR_COUNTERS				25

/* What is written to a doorbell. */
#define QPAIR_DOORBELL(number, index) \
	((__u64)(__u32)(index) << 32 | (__u32)(number))

#endif /* _UAPI_LINUX_QPAIR_H */
