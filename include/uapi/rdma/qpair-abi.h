/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Queue pairs: the driver's part of uverbs commands, for a provider.
 *
 * mmap at offset 0 of an open file gives its doorbell page (4096 bytes,
 * shared, not executable, not inherited by fork).
 *
 * A structure may grow at its end. Fields that one side does not know are
 * zero. Reserved fields must be zero.
 */
#ifndef QPAIR_ABI_USER_H
#define QPAIR_ABI_USER_H

#include <linux/types.h>

#define QPAIR_UVERBS_ABI_VERSION 2

struct qpair_uresp_alloc_ucontext {
	__u32 max_sq_blocks;
	__u32 max_rq_depth;
	__u32 max_cq_depth;
	__u32 max_send_sge;
	__u32 max_recv_sge;
	__u32 max_inline;
	/* How often the device was reset. */
	__u32 epoch;
	/* The index of the doorbell page. */
	__u32 page;
};

#define QPAIR_NO_COMPLETION_FD (-1)

struct qpair_ureq_create_cq {
	/* The ring, of page-aligned memory. */
	__aligned_u64 buffer;
	__aligned_u64 buffer_bytes;
	/* An eventfd for completions, or QPAIR_NO_COMPLETION_FD. */
	__s32 eventfd;
	__u32 reserved;
};

struct qpair_uresp_create_cq {
	/* The device's number, for doorbells. */
	__u32 number;
	/* Entries of the ring. */
	__u32 depth;
};

/* The ring with which a completion queue goes on. */
struct qpair_ureq_resize_cq {
	/* The ring, of page-aligned and zeroed memory. */
	__aligned_u64 buffer;
	__aligned_u64 buffer_bytes;
};

/*
 * The completions at and past begin are in the new ring, those before end in
 * the old one; there are none between.
 */
struct qpair_uresp_resize_cq {
	/* Entries of the ring. */
	__u32 depth;
	__u32 end;
	__u32 begin;
	__u32 reserved;
};

/* On a shared receive queue the fields of the receive queue are 0. */
struct qpair_ureq_create_qp {
	/* The rings, of page-aligned memory. */
	__aligned_u64 sq_buffer;
	__aligned_u64 sq_buffer_bytes;
	__aligned_u64 rq_buffer;
	__aligned_u64 rq_buffer_bytes;
	/* Blocks of 64 bytes. */
	__u32 sq_blocks;
	__u32 rq_depth;
	/* log2 of the blocks of a receive. */
	__u32 rq_stride;
	__u32 reserved;
};

struct qpair_uresp_create_qp {
	/* The device's number, for doorbells. */
	__u32 number;
	__u32 sq_blocks;
	__u32 rq_depth;
	__u32 reserved;
};

struct qpair_ureq_create_srq {
	/* The ring, of page-aligned memory. */
	__aligned_u64 buffer;
	__aligned_u64 buffer_bytes;
	__u32 depth;
	/* log2 of the blocks of a receive. */
	__u32 stride;
};

struct qpair_uresp_create_srq {
	/* The device's number, for doorbells. */
	__u32 number;
	/* Entries of the ring. */
	__u32 depth;
};

/* The memory in which a shared receive queue goes on. */
struct qpair_ureq_modify_srq {
	/* The ring, of page-aligned memory, with the receives in flight. */
	__aligned_u64 buffer;
	__aligned_u64 buffer_bytes;
	/* Entries of the ring. */
	__u32 depth;
	__u32 reserved;
};

/* The address, as send work requests have it. */
struct qpair_uresp_create_ah {
	/* GID of the destination's port. */
	__u8 gid[16];
	/* Where the table of the port has the GID that is sent from. */
	__u32 source;
	/*
	 * Address of the network device that leads to the destination; 0 of a
	 * port that is not of RoCE.
	 */
	__u8 mac[6];
	__u16 reserved;
};

struct qpair_uresp_modify_qp {
	/*
	 * After a change to RESET: the CQs have no entry of the queue pair at
	 * or past these indices.
	 */
	__u32 send_cq_index;
	__u32 recv_cq_index;
};

#endif
