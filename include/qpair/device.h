/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queue pairs: the numbers of the PCI function, for driver writers. Generated
 * from rust/abi by tools/header; do not edit.
 *
 * What they mean is said in Documentation/device.rst. A field that is not
 * listed, or is called reserved, is zero.
 */
#ifndef _QPAIR_DEVICE_H
#define _QPAIR_DEVICE_H

#include <linux/types.h>

/* The PCI function. */

/* PCI vendor of the function. */
#define QPAIR_HW_PCI_VENDOR			0x1234
/* PCI device of the function. */
#define QPAIR_HW_PCI_DEVICE			0x5150
/* PCI revision of the function. */
#define QPAIR_HW_PCI_REVISION			1
/* BAR of the registers. */
#define QPAIR_HW_BAR_REGS			0
/* BAR of the doorbell pages: page i is at i * PAGE_BYTES. */
#define QPAIR_HW_BAR_DOORBELLS			2
/* BAR of the MSI-X table and its pending bits. */
#define QPAIR_HW_BAR_MSIX			4

/*
 * Registers: offsets in the BAR, and masks of fields. A field of 32 bits has
 * no mask.
 */

/* Always MAGIC_VALUE. */
#define QPAIR_HW_REG_MAGIC			0x00
/* The version of the programming model. Another major is another model. */
#define QPAIR_HW_REG_VERSION			0x04
#define QPAIR_HW_REG_VERSION_MAJOR		0xffff0000
#define QPAIR_HW_REG_VERSION_MINOR		0x0000ffff
/* What software asks of the function. */
#define QPAIR_HW_REG_CTRL			0x08
/* Returns the function to power-on. Reads as 0. */
#define QPAIR_HW_REG_CTRL_RESET			0x00000002
/* Brings up EQ 0 and the admin queue pair. Reads as STATUS.ready. */
#define QPAIR_HW_REG_CTRL_ENABLE		0x00000001
/* State of the function. */
#define QPAIR_HW_REG_STATUS			0x0c
/* Why it is fatal or could not be enabled. */
#define QPAIR_HW_REG_STATUS_CAUSE		0x0000ff00
/* The link is up. */
#define QPAIR_HW_REG_STATUS_LINK_UP		0x00000008
/* It stopped, and wants a reset. */
#define QPAIR_HW_REG_STATUS_FATAL		0x00000002
/* EQ 0 and the admin queue pair are up, and the function works. */
#define QPAIR_HW_REG_STATUS_READY		0x00000001
/* Queue pairs, the admin queue pair included. */
#define QPAIR_HW_REG_LIMIT_QP			0x10
/* Completion queues, the admin one included. */
#define QPAIR_HW_REG_LIMIT_CQ			0x14
/* Event queues, EQ 0 included. EQ i may use any vector below this. */
#define QPAIR_HW_REG_LIMIT_EQ			0x18
/* Memory regions. */
#define QPAIR_HW_REG_LIMIT_MR			0x1c
/* Protection domains. */
#define QPAIR_HW_REG_LIMIT_PD			0x20
/* Shared receive queues. */
#define QPAIR_HW_REG_LIMIT_SRQ			0x24
/* Doorbell pages in BAR 2, page 0 included. */
#define QPAIR_HW_REG_LIMIT_PAGE			0x28
/* What a ring may hold. */
#define QPAIR_HW_REG_LIMIT_RING			0x2c
/* Base-two logarithm of the most entries of an EQ. */
#define QPAIR_HW_REG_LIMIT_RING_LOG_EQ		0x1f000000
/* Base-two logarithm of the most entries of a CQ. */
#define QPAIR_HW_REG_LIMIT_RING_LOG_CQ		0x001f0000
/* Base-two logarithm of the most WQEs of an RQ. */
#define QPAIR_HW_REG_LIMIT_RING_LOG_RQ		0x00001f00
/* Base-two logarithm of the most 64-byte blocks of an SQ. */
#define QPAIR_HW_REG_LIMIT_RING_LOG_SQ		0x0000001f
/* What a work request may hold. */
#define QPAIR_HW_REG_LIMIT_WQE			0x30
/* Bytes of inline data. */
#define QPAIR_HW_REG_LIMIT_WQE_INLINE_BYTES	0xffff0000
/* Scatter entries of a receive. */
#define QPAIR_HW_REG_LIMIT_WQE_RECV_SGES	0x0000ff00
/* Gather or scatter entries of a send, write or read. */
#define QPAIR_HW_REG_LIMIT_WQE_SEND_SGES	0x000000ff
/* Bytes of the largest message. */
#define QPAIR_HW_REG_LIMIT_MESSAGE		0x34
/* What a memory region may be. */
#define QPAIR_HW_REG_LIMIT_REGION		0x38
/* Base-two logarithm of the largest page of a buffer list. */
#define QPAIR_HW_REG_LIMIT_REGION_MAX_PAGE_SHIFT	0x00ff0000
/* Base-two logarithm of the smallest page of a buffer list. */
#define QPAIR_HW_REG_LIMIT_REGION_MIN_PAGE_SHIFT	0x0000ff00
/* Base-two logarithm of the most bytes. */
#define QPAIR_HW_REG_LIMIT_REGION_LOG_BYTES	0x000000ff
/* The most asynchronous events that are in EQ 0 at a time. */
#define QPAIR_HW_REG_LIMIT_ASYNC		0x3c
/* DMA address of EQ 0's ring (one contiguous block), low half. */
#define QPAIR_HW_REG_EQ0_BASE_LO		0x40
/* DMA address of EQ 0's ring, high half. */
#define QPAIR_HW_REG_EQ0_BASE_HI		0x44
/* DMA address of the admin SQ's ring (one contiguous block), low half. */
#define QPAIR_HW_REG_ASQ_BASE_LO		0x48
/* DMA address of the admin SQ's ring, high half. */
#define QPAIR_HW_REG_ASQ_BASE_HI		0x4c
/* DMA address of the admin CQ's ring (one contiguous block), low half. */
#define QPAIR_HW_REG_ACQ_BASE_LO		0x50
/* DMA address of the admin CQ's ring, high half. */
#define QPAIR_HW_REG_ACQ_BASE_HI		0x54
/* Depths of the three, as base-two logarithms. EQ 0 uses vector 0. */
#define QPAIR_HW_REG_ADMIN_DEPTH		0x58
/* Entries of the admin CQ. */
#define QPAIR_HW_REG_ADMIN_DEPTH_LOG_CQ		0x001f0000
/* Blocks of the admin SQ. */
#define QPAIR_HW_REG_ADMIN_DEPTH_LOG_SQ		0x00001f00
/* Entries of EQ 0. */
#define QPAIR_HW_REG_ADMIN_DEPTH_LOG_EQ		0x0000001f
/* Memory windows. */
#define QPAIR_HW_REG_LIMIT_MW			0x5c
/*
 * Address of the network device that the port belongs to, bytes 0 to 3 as in
 * memory. 0, as the other half, if there is none.
 */
#define QPAIR_HW_REG_MAC_LO			0x60
/* The rest of the address. */
#define QPAIR_HW_REG_MAC_HI			0x64
/* The port sends and receives frames on the network of that device. */
#define QPAIR_HW_REG_MAC_HI_WIRED		0x00010000
#define QPAIR_HW_REG_MAC_HI_BYTES		0x0000ffff
/* Multicast groups. */
#define QPAIR_HW_REG_LIMIT_GROUP		0x68
/* Members that a group may have. */
#define QPAIR_HW_REG_LIMIT_GROUP_MEMBERS	0xffff0000
/* Groups that may have members at a time. */
#define QPAIR_HW_REG_LIMIT_GROUP_COUNT		0x0000ffff
/* Fast registration memory regions. */
#define QPAIR_HW_REG_LIMIT_FRMR			0x6c

/* What registers read as. */

/* What MAGIC reads as: "QPR1". */
#define QPAIR_HW_MAGIC_VALUE			0x31525051
/* The major version of the programming model that this source describes. */
#define QPAIR_HW_MAJOR				2
/* The minor version: additions that software of a lower one need not know. */
#define QPAIR_HW_MINOR				0
/* Bytes of BAR 0 that are registers. */
#define QPAIR_HW_REG_BYTES			0x1000

/* STATUS.cause. */

/* The function works, or is not enabled. */
#define QPAIR_HW_CAUSE_NONE			0
/*
 * A ring of ADMIN_DEPTH is deeper than the limit, EQ 0 is too small for the
 * asynchronous events, or a reserved bit is not zero.
 */
#define QPAIR_HW_CAUSE_DEPTH			1
/* A ring is not aligned to 64 bytes. */
#define QPAIR_HW_CAUSE_ALIGNMENT		2
/* Bus mastering is off, or was taken away from a function that was ready. */
#define QPAIR_HW_CAUSE_BUS_MASTER		3
/* EQ 0 had no room: the driver broke the rules. */
#define QPAIR_HW_CAUSE_EQ_OVERRUN		4
/* CQ 0 had no room, or its memory could not be written. */
#define QPAIR_HW_CAUSE_ADMIN_CQ_OVERRUN		5
/* An EQ, CQ 0 or the admin SQ could not be read or written. */
#define QPAIR_HW_CAUSE_DMA			6
/* It stopped because a test asked for it. */
#define QPAIR_HW_CAUSE_INJECTED			7

/*
 * The doorbell page. A doorbell is one aligned 64-bit write of
 * QPAIR_HW_DOORBELL(number, index) to one of these offsets.
 */

/* Bytes of a doorbell page. */
#define QPAIR_HW_DB_PAGE_BYTES			4096
/* SQ, producer index in blocks: hands the blocks before it to the device. */
#define QPAIR_HW_DB_SQ				0x00
/* RQ, producer index in WQEs. */
#define QPAIR_HW_DB_RQ				0x08
/* SRQ, producer index in WQEs. */
#define QPAIR_HW_DB_SRQ				0x10
/* CQ, consumer index: frees the slots before it. */
#define QPAIR_HW_DB_CQ_HEAD			0x18
/*
 * CQ, consumer index: as QPAIR_HW_DB_CQ_HEAD, and asks for an event at the
 * next completion past it.
 */
#define QPAIR_HW_DB_CQ_ARM_NEXT			0x20
/*
 * CQ, consumer index: as QPAIR_HW_DB_CQ_HEAD, and asks for an event at the
 * next solicited or failed completion past it.
 */
#define QPAIR_HW_DB_CQ_ARM_SOLICITED		0x28
/*
 * EQ, consumer index: frees the slots before it and unmasks the EQ's
 * interrupt. Page 0 only.
 */
#define QPAIR_HW_DB_EQ_HEAD			0x30
/*
 * EQ, consumer index: frees the slots before it, and leaves the interrupt as
 * it is. Page 0 only.
 */
#define QPAIR_HW_DB_EQ_HEAD_MASKED		0x38
/*
 * CQ, index 0: asks for an event at the next completion that is written after
 * this doorbell. Frees no slots.
 */
#define QPAIR_HW_DB_CQ_NOTIFY			0x40
/*
 * CQ, index 0: as QPAIR_HW_DB_CQ_NOTIFY, at the next solicited or failed
 * completion.
 */
#define QPAIR_HW_DB_CQ_NOTIFY_SOLICITED		0x48

/*
 * The rings. An SQ is an array of 64-byte blocks, an RQ of WQEs of one stride;
 * CQs and EQs are arrays of entries. All is little-endian.
 */

/* Most payload bytes of a datagram. */
#define QPAIR_HW_DATAGRAM_BYTES			4096
/*
 * The bit of a struct qpair_hw_ud_wqe's Q_Key that selects the sender's own.
 */
#define QPAIR_HW_OWN_Q_KEY			0x80000000
/*
 * Bytes of the global route header (GRH) that a datagram has in front of its
 * payload.
 */
#define QPAIR_HW_GRH_BYTES			40
/* Bytes of an operand of an atomic, which is aligned to as many. */
#define QPAIR_HW_ATOMIC_BYTES			8
/* Bytes of an SQ block. */
#define QPAIR_HW_BLOCK_BYTES			64
/* Most blocks of a WQE. */
#define QPAIR_HW_MAX_BLOCKS			4
/* Most memory windows of a function. */
#define QPAIR_HW_MAX_WINDOWS			(1 << 12)
/* Largest shift of an RQ's stride, 64 << shift bytes. */
#define QPAIR_HW_MAX_STRIDE_SHIFT		2
/*
 * The bit that the keys of memory windows have, and those of regions have not.
 */
#define QPAIR_HW_WINDOW_KEY			0x80000000
/*
 * The bit that the keys of FRMRs have, without QPAIR_HW_WINDOW_KEY; those of
 * regions have neither.
 */
#define QPAIR_HW_FRMR_KEY			0x40000000
/*
 * The owner bit of the last word of a CQE or EQE: 1 in the ring's first pass,
 * then 0, and so on.
 */
#define QPAIR_HW_OWNER				(1ULL << 63)

/**
 * struct qpair_hw_buffer_list - Where a ring or region lies: its bytes are
 * bytes bytes of a list of pages, from byte offset of the first.
 *
 * levels      root is the DMA address of
 * 0           the block itself, contiguous; offset and page_shift are 0
 * 1           a contiguous table of the pages' DMA addresses, 8 bytes each
 * 2           a contiguous table of the DMA addresses of leaf tables, each 4
 *             KiB with 512 pages' addresses
 *
 * @root: DMA address; aligned to 8 bytes if a table, to 64 if a ring.
 * @bytes: Length in bytes.
 * @offset: First byte in the first page; less than a page.
 * @page_shift: Base-two logarithm of the page size.
 * @levels: Levels of tables above the pages, 0 to 2.
 * @reserved5: Zero.
 */
struct qpair_hw_buffer_list {
	__le64 root;
	__le64 bytes;
	__le32 offset;
	__u8 page_shift;
	__u8 levels;
	__u8 reserved5[2];
};

/**
 * struct qpair_hw_send_wqe - The head of a send work queue entry.
 *
 * @opcode: What to do: one of QPAIR_HW_OP_*.
 * @flags: QPAIR_HW_SEND_*; one that is unknown makes the request fail.
 * @blocks: Blocks that it takes, 1 to QPAIR_HW_MAX_BLOCKS.
 * @sges: SGEs that follow; 0 with inline data.
 * @imm: Immediate data, given to the peer as it is; of a SEND_INV the key to
 *   invalidate there.
 * @wr_id: The poster's own, given back in the CQE.
 * @remote_addr: Address in the peer's region (WRITE, READ, atomics).
 * @rkey: Key of the peer's region, window or FRMR; of a LOCAL_INV that of its
 *   own window or FRMR.
 * @inline_bytes: Bytes of inline data that follow.
 */
struct qpair_hw_send_wqe {
	__u8 opcode;
	__u8 flags;
	__u8 blocks;
	__u8 sges;
	__le32 imm;
	__le64 wr_id;
	__le64 remote_addr;
	__le32 rkey;
	__le32 inline_bytes;
};

/**
 * struct qpair_hw_ud_wqe - The head of a send work queue entry of a UD queue
 * pair: a struct qpair_hw_send_wqe with an address.
 *
 * @opcode: As of a struct qpair_hw_send_wqe: NOP, SEND or SEND_IMM.
 * @flags: As of a struct qpair_hw_send_wqe.
 * @blocks: As of a struct qpair_hw_send_wqe.
 * @sges: As of a struct qpair_hw_send_wqe.
 * @imm: As of a struct qpair_hw_send_wqe.
 * @wr_id: As of a struct qpair_hw_send_wqe.
 * @dest: The queue pair of the destination.
 * @q_key: What the destination must have as its Q_Key. With QPAIR_HW_OWN_Q_KEY
 *   set, that of the sender counts instead.
 * @source: Where the port's table has the GID that it is sent from, of a queue
 *   pair without one.
 * @hop_limit: Hop limit of the GRH; 0 stands for 1.
 * @traffic_class: Traffic class of the GRH.
 * @inline_bytes: As of a struct qpair_hw_send_wqe, whose field is longer.
 * @flow_high: Flow label of the GRH, bits 16 to 19; the others are zero.
 * @flow_low: Flow label of the GRH, bits 0 to 15.
 * @gid: GID of the destination's port, bytes 0 to 7 as in memory.
 * @gid_high: GID of the destination's port, bytes 8 to 15.
 * @mac_low: The network device that leads to the destination, bytes 0 to 3 of
 *   the address as in memory; ignored within the function.
 * @mac_high: Bytes 4 and 5 of that address.
 * @reserved18: Zero.
 */
struct qpair_hw_ud_wqe {
	__u8 opcode;
	__u8 flags;
	__u8 blocks;
	__u8 sges;
	__le32 imm;
	__le64 wr_id;
	__le32 dest;
	__le32 q_key;
	__le16 source;
	__u8 hop_limit;
	__u8 traffic_class;
	__u8 inline_bytes;
	__u8 flow_high;
	__le16 flow_low;
	__le64 gid;
	__le64 gid_high;
	__le32 mac_low;
	__le16 mac_high;
	__u8 reserved18[10];
};

/**
 * struct qpair_hw_atomic_wqe - The head of an atomic in a send queue: a struct
 * qpair_hw_send_wqe with operands. One SGE follows.
 *
 * @opcode: As of a struct qpair_hw_send_wqe: COMPARE_SWAP or FETCH_ADD.
 * @flags: As of a struct qpair_hw_send_wqe.
 * @blocks: As of a struct qpair_hw_send_wqe.
 * @sges: 1: where the old value goes.
 * @reserved4: Zero.
 * @wr_id: As of a struct qpair_hw_send_wqe.
 * @remote_addr: Address in the peer's region, aligned to
 *   QPAIR_HW_ATOMIC_BYTES.
 * @rkey: Key of the peer's region.
 * @inline_bytes: Must be 0: it has no inline data.
 * @compare_add: FETCH_ADD: what to add. COMPARE_SWAP: the value that is
 *   replaced.
 * @swap: COMPARE_SWAP: its new value.
 */
struct qpair_hw_atomic_wqe {
	__u8 opcode;
	__u8 flags;
	__u8 blocks;
	__u8 sges;
	__u8 reserved4[4];
	__le64 wr_id;
	__le64 remote_addr;
	__le32 rkey;
	__le32 inline_bytes;
	__le64 compare_add;
	__le64 swap;
};

/**
 * struct qpair_hw_reg_wqe - The registration of an FRMR, in the send queue of
 * a queue pair that registers. No SGE follows.
 *
 * @opcode: As of a struct qpair_hw_send_wqe: REG_MR.
 * @flags: As of a struct qpair_hw_send_wqe.
 * @blocks: As of a struct qpair_hw_send_wqe.
 * @sges: Must be 0: it has no SGEs.
 * @access: Rights of the FRMR: LOCAL_WRITE and REMOTE_* of QPAIR_HW_ACCESS_*.
 * @wr_id: As of a struct qpair_hw_send_wqe.
 * @addr: Address of its first byte in its own address space.
 * @key: Key that the FRMR gets: any of its own, with the new tag.
 * @inline_bytes: Must be 0: it has no inline data.
 * @buffer: Its memory; bytes is its length.
 * @reserved10: Zero.
 */
struct qpair_hw_reg_wqe {
	__u8 opcode;
	__u8 flags;
	__u8 blocks;
	__u8 sges;
	__le32 access;
	__le64 wr_id;
	__le64 addr;
	__le32 key;
	__le32 inline_bytes;
	struct qpair_hw_buffer_list buffer;
	__u8 reserved10[8];
};

/**
 * struct qpair_hw_recv_wqe - The head of a receive work queue entry.
 *
 * @sges: SGEs that follow.
 * @reserved1: Zero.
 * @wr_id: The poster's own, given back in the CQE.
 */
struct qpair_hw_recv_wqe {
	__u8 sges;
	__u8 reserved1[7];
	__le64 wr_id;
};

/**
 * struct qpair_hw_sge - A piece of a memory region: struct ibv_sge of
 * libibverbs.
 *
 * @addr: First byte, an address of the region's own address space.
 * @bytes: Bytes; 0 is nothing, and its key is not looked at.
 * @lkey: Key of the region.
 */
struct qpair_hw_sge {
	__le64 addr;
	__le32 bytes;
	__le32 lkey;
};

/**
 * struct qpair_hw_cqe - A completion queue entry; QPAIR_HW_OWNER is the top
 * bit of its last word.
 *
 * @wr_id: wr_id of the work request.
 * @qp: The queue pair of the request.
 * @bytes: Bytes received or read; for an admin command the first result.
 * @imm: Immediate data, or the key that was invalidated; for an admin command
 *   the second result.
 * @index: Consumer index of the work queue past this work request: it and all
 *   before it, unsignaled ones included, are done. Of a receive of an SRQ, the
 *   index past this one alone.
 * @src: The peer's QP number (UD); for an admin command the third result.
 * @opcode: What was done: one of QPAIR_HW_OP_*.
 * @status: How it went: a QPAIR_HW_STATUS_*.
 * @vendor: Detail: a QPAIR_HW_DETAIL_*, or an QPAIR_HW_ADMIN_*.
 * @flags: QPAIR_HW_CQE_*.
 */
struct qpair_hw_cqe {
	__le64 wr_id;
	__le32 qp;
	__le32 bytes;
	__le32 imm;
	__le32 index;
	__le32 src;
	__u8 opcode;
	__u8 status;
	__u8 vendor;
	__u8 flags;
};

/**
 * struct qpair_hw_eqe - An event queue entry; QPAIR_HW_OWNER is the top bit of
 * its last word.
 *
 * @number: The CQ, QP or SRQ that it is about; for a doorbell violation the
 *   page.
 * @count: How often it happened since the last event of this object and kind.
 * @kind: What happened: an QPAIR_HW_EVENT_*.
 * @code: Detail: of a QP in the error state the status, of a fatal device the
 *   cause.
 * @reserved4: Zero.
 */
struct qpair_hw_eqe {
	__le32 number;
	__le32 count;
	__u8 kind;
	__u8 code;
	__u8 reserved4[6];
};

/**
 * struct qpair_hw_flush_wqe - A FLUSH in a send queue: a struct
 * qpair_hw_send_wqe of which other fields are used.
 *
 * @opcode: As of a struct qpair_hw_send_wqe: FLUSH.
 * @flags: As of a struct qpair_hw_send_wqe.
 * @blocks: As of a struct qpair_hw_send_wqe.
 * @sges: Must be 0: it has no SGEs.
 * @kinds: QPAIR_HW_FLUSH_*: at least one kind.
 * @whole: 0: the range; 1: the whole region, whatever the range.
 * @reserved6: Zero.
 * @wr_id: As of a struct qpair_hw_send_wqe.
 * @remote_addr: Address in the peer's region.
 * @rkey: Key of the peer's region.
 * @inline_bytes: Must be 0: it has no inline data.
 * @bytes: Bytes of the range.
 * @reserved12: Zero.
 */
struct qpair_hw_flush_wqe {
	__u8 opcode;
	__u8 flags;
	__u8 blocks;
	__u8 sges;
	__u8 kinds;
	__u8 whole;
	__u8 reserved6[2];
	__le64 wr_id;
	__le64 remote_addr;
	__le32 rkey;
	__le32 inline_bytes;
	__le64 bytes;
	__u8 reserved12[8];
};

/**
 * struct qpair_hw_bind_wqe - The bind of a memory window, in a send queue. No
 * SGE follows.
 *
 * @opcode: As of a struct qpair_hw_send_wqe: BIND.
 * @flags: As of a struct qpair_hw_send_wqe.
 * @blocks: As of a struct qpair_hw_send_wqe.
 * @sges: Must be 0: it has no SGEs.
 * @access: Rights of the window: REMOTE_* and ZERO_BASED of QPAIR_HW_ACCESS_*.
 * @wr_id: As of a struct qpair_hw_send_wqe.
 * @addr: First byte of the window, an address of the region.
 * @window: A key of the window, with any tag.
 * @inline_bytes: Must be 0: it has no inline data.
 * @bytes: Length of the window in bytes; 0 unbinds one of type 1.
 * @region: Key of the region.
 * @new_key: Key that the window gets: window with the new tag.
 */
struct qpair_hw_bind_wqe {
	__u8 opcode;
	__u8 flags;
	__u8 blocks;
	__u8 sges;
	__le32 access;
	__le64 wr_id;
	__le64 addr;
	__le32 window;
	__le32 inline_bytes;
	__le64 bytes;
	__le32 region;
	__le32 new_key;
};

/* What a send work request does. */

/* Does nothing, and completes. */
#define QPAIR_HW_OP_NOP				0
/* Fills the peer's next receive. */
#define QPAIR_HW_OP_SEND			1
/* As QPAIR_HW_OP_SEND, and its CQE carries 32 bits of immediate data. */
#define QPAIR_HW_OP_SEND_IMM			2
/* Writes the peer's memory. */
#define QPAIR_HW_OP_WRITE			3
/*
 * As QPAIR_HW_OP_WRITE, and takes the peer's next receive for a CQE with
 * immediate data.
 */
#define QPAIR_HW_OP_WRITE_IMM			4
/* Reads the peer's memory. */
#define QPAIR_HW_OP_READ			5
/* Compares and swaps 8 bytes of the peer's memory. */
#define QPAIR_HW_OP_COMPARE_SWAP		6
/* Adds to 8 bytes of the peer's memory. */
#define QPAIR_HW_OP_FETCH_ADD			7
/* Completes when what was written before it is where it has to be. */
#define QPAIR_HW_OP_FLUSH			11
/* Writes 8 bytes of the peer's memory at once. */
#define QPAIR_HW_OP_ATOMIC_WRITE		12
/* Binds a memory window. */
#define QPAIR_HW_OP_BIND			8
/* Invalidates a memory window or an FRMR of its own. */
#define QPAIR_HW_OP_LOCAL_INV			9
/*
 * As QPAIR_HW_OP_SEND, and invalidates a memory window or an FRMR of the peer.
 */
#define QPAIR_HW_OP_SEND_INV			10
/* Registers an FRMR. */
#define QPAIR_HW_OP_REG_MR			13
/* In CQEs only: a receive that a SEND filled. */
#define QPAIR_HW_OP_RECV			0x80
/* In CQEs only: a receive that a WRITE with immediate took. */
#define QPAIR_HW_OP_RECV_WRITE_IMM		0x81

/* How a send work request is done. */

/* Writes a CQE when done. One that fails always does. */
#define QPAIR_HW_SEND_SIGNALED			(1 << 0)
/* The peer's CQE is solicited. */
#define QPAIR_HW_SEND_SOLICITED			(1 << 1)
/* Starts when all READs and atomics before it are done. */
#define QPAIR_HW_SEND_FENCE			(1 << 2)
/* The data follow in the WQE. */
#define QPAIR_HW_SEND_INLINE			(1 << 3)

/* What else a CQE says. The top bit of this byte is QPAIR_HW_OWNER. */

/* It is of the receive queue; index counts there. */
#define QPAIR_HW_CQE_RECV			(1 << 0)
/* imm is valid. */
#define QPAIR_HW_CQE_IMM			(1 << 1)
/* The sender asked for a solicited event. */
#define QPAIR_HW_CQE_SOLICITED			(1 << 2)
/* The receive begins with a GRH (UD). */
#define QPAIR_HW_CQE_GRH			(1 << 3)
/* The GRH is a header of IPv4, in its last 20 bytes (UD). */
#define QPAIR_HW_CQE_IPV4			(1 << 4)
/*
 * imm is the key of the memory window or FRMR that the sender has invalidated.
 */
#define QPAIR_HW_CQE_INV			(1 << 6)

/* What a FLUSH waits for. */

/* All see what was written. */
#define QPAIR_HW_FLUSH_GLOBAL			(1 << 0)
/* What was written outlives a loss of power, if the memory does. */
#define QPAIR_HW_FLUSH_PERSISTENT		(1 << 1)

/* Statuses of completions, with the numbers of enum ibv_wc_status. */

/* The request was executed. */
#define QPAIR_HW_STATUS_SUCCESS			0
/*
 * The receive's buffers are shorter than the message, a message is longer than
 * the limit, or the SGE of an atomic is not 8 bytes long.
 */
#define QPAIR_HW_STATUS_LOCAL_LENGTH		1
/*
 * The work request makes no sense: opcode, flags, number of blocks or SGEs,
 * inline length; of a receive also reserved bits.
 */
#define QPAIR_HW_STATUS_LOCAL_QP_OPERATION	2
/*
 * An SGE's key or range is not a region of this PD, or not with these rights.
 */
#define QPAIR_HW_STATUS_LOCAL_PROTECTION	4
/* The queue went to the error state before this was done. */
#define QPAIR_HW_STATUS_FLUSH			5
/*
 * A memory window could not be bound, an FRMR not be registered, or one of
 * them not be invalidated.
 */
#define QPAIR_HW_STATUS_WINDOW_BIND		6
/*
 * A WRITE with immediate of the peer that is not permitted took this receive,
 * or a SEND whose window or FRMR cannot be invalidated.
 */
#define QPAIR_HW_STATUS_LOCAL_ACCESS		8
/*
 * The peer found the request invalid: its receive is too short, it allows no
 * such operation, or the address of an atomic is not aligned.
 */
#define QPAIR_HW_STATUS_REMOTE_INVALID_REQUEST	9
/*
 * The remote key or range is not a region of the peer's PD, or not with these
 * rights.
 */
#define QPAIR_HW_STATUS_REMOTE_ACCESS		10
/* The peer could not finish for a reason of its own. */
#define QPAIR_HW_STATUS_REMOTE_OPERATION	11
/*
 * The peer is gone, not ready, or does not name this queue pair as its peer.
 */
#define QPAIR_HW_STATUS_RETRY_EXCEEDED		12
/*
 * The peer had no receive posted for as long as the sender was willing to
 * retry.
 */
#define QPAIR_HW_STATUS_RNR_RETRY_EXCEEDED	13
/* Not given by the device; for software that flushes after a reset. */
#define QPAIR_HW_STATUS_FATAL			19
/*
 * Of an admin command: it was refused, see the vendor detail. Of a queue
 * pair's event: a CQ of it was overrun.
 */
#define QPAIR_HW_STATUS_GENERAL			21

/* Vendor details of completions: which check refused. */

/* The status has no detail. */
#define QPAIR_HW_DETAIL_NONE			0
/* Unknown opcode, or one that this service does not have. */
#define QPAIR_HW_DETAIL_OPCODE			1
/*
 * Unknown flag, or one that does not go with the opcode; undefined bits of a
 * receive, of a send of a UD queue pair, of a REG_MR, and of word 0 of a
 * FLUSH; unknown rights of a BIND or a REG_MR; no kind of a FLUSH, or an
 * unknown one.
 */
#define QPAIR_HW_DETAIL_FLAGS			2
/* Number of blocks is 0, above the limit, or past the producer index. */
#define QPAIR_HW_DETAIL_BLOCKS			3
/*
 * Number of SGEs above the limit or what the blocks hold; SGEs besides inline
 * data, of a BIND, a LOCAL_INV, a REG_MR, a FLUSH or an atomic WRITE; an
 * atomic without one SGE.
 */
#define QPAIR_HW_DETAIL_SGES			4
/*
 * More inline bytes than the limit or what the blocks hold, or inline bytes
 * without the flag.
 */
#define QPAIR_HW_DETAIL_INLINE			5
/*
 * Message longer than the limit, or an SGE of an atomic that is not 8 bytes
 * long.
 */
#define QPAIR_HW_DETAIL_MESSAGE			6
/* No region, window or registered FRMR has this key. */
#define QPAIR_HW_DETAIL_KEY			7
/*
 * The region, window or FRMR belongs to another PD, or the window to another
 * queue pair.
 */
#define QPAIR_HW_DETAIL_DOMAIN			8
/*
 * The range is not inside the region, window or FRMR, or the memory of an FRMR
 * is not valid.
 */
#define QPAIR_HW_DETAIL_RANGE			9
/* The region, window or FRMR, or the peer's queue pair, lacks the right. */
#define QPAIR_HW_DETAIL_RIGHTS			10
/* The queue pair's peer is not there. */
#define QPAIR_HW_DETAIL_NO_PEER			11
/* The peer does not name this queue pair, or is of another service. */
#define QPAIR_HW_DETAIL_NOT_NAMED		12
/* The peer is not ready to receive. */
#define QPAIR_HW_DETAIL_NOT_READY		13
/* The receive is too short for the message. */
#define QPAIR_HW_DETAIL_SHORT_RECEIVE		14
/* A page table, ring or page of the object could not be read or written. */
#define QPAIR_HW_DETAIL_DMA			15
/* The state of the queue, or of the window or FRMR, does not allow it. */
#define QPAIR_HW_DETAIL_STATE			16
/* The address of an atomic is not aligned. */
#define QPAIR_HW_DETAIL_ALIGNMENT		17
/* Failed because a test asked for it. */
#define QPAIR_HW_DETAIL_INJECTED		255

/* Kinds of events. */

/* The CQ has completions that were asked for. */
#define QPAIR_HW_EVENT_COMPLETION		1
/*
 * The CQ had no room, or its memory could not be written; its queue pairs are
 * in the error state.
 */
#define QPAIR_HW_EVENT_CQ_OVERRUN		2
/*
 * The queue pair went to the error state for a cause that no completion
 * reports; code has the status.
 */
#define QPAIR_HW_EVENT_QP_FATAL			3
/* Doorbells were written to this page that make no sense. */
#define QPAIR_HW_EVENT_DOORBELL_VIOLATION	4
/* The function stopped; code has the cause. */
#define QPAIR_HW_EVENT_DEVICE_FATAL		5
/* The shared receive queue has fewer receives left than its limit. */
#define QPAIR_HW_EVENT_SRQ_LIMIT		6
/* The link came up. */
#define QPAIR_HW_EVENT_LINK_UP			7
/* The link went down. */
#define QPAIR_HW_EVENT_LINK_DOWN		8
/*
 * The queue pair is in the error state, and takes no receive of its SRQ any
 * more; the one that it had is flushed.
 */
#define QPAIR_HW_EVENT_LAST_RECEIVE		9
/* The memory of the shared receive queue could not be read. */
#define QPAIR_HW_EVENT_SRQ_FATAL		10
/* The SQ of the queue pair, which is in SQD, has drained. */
#define QPAIR_HW_EVENT_SQ_DRAINED		11
/*
 * The queue pair went to the error state for a request of its peer to memory
 * that this one may not access; code has the status.
 */
#define QPAIR_HW_EVENT_QP_ACCESS		12
/*
 * The queue pair went to the error state for a request of its peer that is
 * invalid; code has the status.
 */
#define QPAIR_HW_EVENT_QP_REQUEST		13

/* Admin commands, and the contexts that they name. */

/*
 * The most bytes of a context. One that is shorter than its type ends early:
 * the words that it lacks are zero when read, and not written. One that is
 * longer has words that the device does not know: they must be zero when read,
 * and are written as zero.
 */
#define QPAIR_HW_MAX_CONTEXT_BYTES		4096

/**
 * struct qpair_hw_command - An admin command, laid out as a struct
 * qpair_hw_send_wqe.
 *
 * @opcode: QPAIR_HW_COMMAND() of QPAIR_HW_KIND_* and QPAIR_HW_VERB_*.
 * @flags: QPAIR_HW_SEND_SIGNALED; a command always completes.
 * @blocks: The length of a command is 1 block.
 * @reserved3: Zero.
 * @number: The object; for a page or a GID its index; 0 for CREATE and for the
 *   device.
 * @wr_id: The driver's own, given back in the CQE.
 * @context: DMA address of the context, aligned to 64 bytes.
 * @mask: Attributes that a MODIFY changes: of a QP QPAIR_HW_QP_MASK_*, of an
 *   MR QPAIR_HW_MR_MASK_*, of an SRQ QPAIR_HW_SRQ_MASK_*; else 0.
 * @context_bytes: Bytes of the context: a multiple of 8, at most
 *   QPAIR_HW_MAX_CONTEXT_BYTES; 0 where there is none.
 */
struct qpair_hw_command {
	__u8 opcode;
	__u8 flags;
	__u8 blocks;
	__u8 reserved3[1];
	__le32 number;
	__le64 wr_id;
	__le64 context;
	__le32 mask;
	__le32 context_bytes;
};

/**
 * struct qpair_hw_eq_context - The context of an EQ: input of CREATE and
 * MODIFY, output of QUERY.
 *
 * @vector: The MSI-X vector of its interrupt.
 * @log_depth: Base-two logarithm of its entries.
 * @reserved2: Zero.
 * @moderation_count: Moderation: raise when this many events wait ...
 * @moderation_usecs: ... or the oldest has waited this many microseconds. Both
 *   or neither are 0.
 * @producer: Entries that the device has written (queried).
 * @consumer: Head that was published last (queried).
 * @buffer: The buffer list of its ring.
 * @reserved8: Zero.
 */
struct qpair_hw_eq_context {
	__le16 vector;
	__u8 log_depth;
	__u8 reserved2[1];
	__le16 moderation_count;
	__le16 moderation_usecs;
	__le32 producer;
	__le32 consumer;
	struct qpair_hw_buffer_list buffer;
	__u8 reserved8[24];
};

/**
 * struct qpair_hw_cq_context - The context of a CQ: input of CREATE and
 * MODIFY, output of QUERY.
 *
 * @eq: The EQ that it reports to.
 * @page: The doorbell page that it answers to.
 * @log_depth: Base-two logarithm of its entries.
 * @flags: QPAIR_HW_CQ_*.
 * @producer: Entries that the device has written (queried).
 * @consumer: Head that was published last (queried).
 * @buffer: The buffer list of its ring.
 * @reserved7: Zero.
 */
struct qpair_hw_cq_context {
	__le32 eq;
	__le16 page;
	__u8 log_depth;
	__u8 flags;
	__le32 producer;
	__le32 consumer;
	struct qpair_hw_buffer_list buffer;
	__u8 reserved7[24];
};

/**
 * struct qpair_hw_qp_context - The context of a queue pair: input of CREATE
 * and MODIFY, output of QUERY.
 *
 * @pd: The domain whose regions it may name.
 * @page: The doorbell page that it answers to.
 * @service: QPAIR_HW_SERVICE_*.
 * @state: QPAIR_HW_QPS_*; created in RESET.
 * @send_cq: The CQ of its SQ.
 * @recv_cq: The CQ of its RQ.
 * @srq: The SRQ in place of an RQ, or 0. With one, the fields of the RQ are 0.
 * @log_sq: Base-two logarithm of its SQ's blocks.
 * @log_rq: Base-two logarithm of its RQ's WQEs.
 * @rq_stride: Its RQ's stride is 64 << rq_stride bytes.
 * @port_qp: 1: it is queue pair 1 of the port as well (UD); else 0.
 * @peer: The only queue pair that it talks to (RC, UC).
 * @peer_function: Function of the peer: 0, which is this one.
 * @q_key: What a UD sender must know (UD).
 * @access: What its peer may do: REMOTE_* of QPAIR_HW_ACCESS_*.
 * @retry: Retries when the peer does not answer, 0 to 7.
 * @rnr_retry: Retries when the peer has no receive posted, 0 to 6; 7 is for
 *   ever.
 * @draining: 1 in SQD while a request that was begun is not finished, else 0
 *   (queried).
 * @sq_producer: SQ blocks handed over (queried).
 * @sq_consumer: SQ blocks done (queried).
 * @rq_producer: RQ WQEs handed over (queried).
 * @rq_consumer: RQ WQEs taken (queried).
 * @timeout: How long it waits for an answer before a retry (RC): 0 is the
 *   device's interval, 1 to 31 are 4.096 us << timeout, 32 is without end.
 * @min_rnr_timer: How long its peer waits before it retries a message for
 *   which this queue pair had no receive (RC): 0 is the device's interval, 1
 *   to 31 are the codes of verbs, 32 is code 0 of verbs.
 * @flags: QPAIR_HW_QP_*.
 * @log_mtu: Base-two logarithm of the most payload of a packet, 8 to 12 (RC,
 *   UC; with path).
 * @source: Where the port's table has the GID that it sends from (RC, UC; with
 *   path).
 * @reads: READs and atomics of its own that may be in flight, at most READS
 *   (RC; with sq_psn).
 * @peer_reads: The same of its peer (RC; with path).
 * @sq: The buffer list of the SQ.
 * @rq: The buffer list of the RQ.
 * @gid: GID of its port, bytes 0 to 7 as in memory (UD); of the peer's port
 *   (RC, UC; with peer). 0 of UD: the port's table has it. 0 of a peer: its
 *   port is this one.
 * @gid_high: Bytes 8 to 15 of that GID.
 * @mac_low: The network device that leads to its peer, bytes 0 to 3 of the
 *   address as in memory (RC, UC; with path).
 * @mac_high: Bytes 4 and 5 of that address.
 * @traffic_class: Traffic class of the packets (RC, UC; with path).
 * @hop_limit: Hop limit of the packets; 0 stands for 64 (RC, UC; with path).
 * @sq_psn: PSN of the first packet that it sends, 24 bits (RC, UC).
 * @rq_psn: PSN of the first packet that it expects, 24 bits (RC, UC; with
 *   path).
 * @flow_label: Flow label of the packets, 20 bits (RC, UC; with path).
 * @acked_psn: PSN of the oldest packet that has no acknowledgement; sq_psn if
 *   each has one (RC by frames; queried, as all that follow).
 * @in_flight: Requests that were begun and are not completed.
 * @room: Packets that may be in flight.
 * @repeats: How often what is in flight was sent again without progress.
 * @waits_for: QPAIR_HW_WAITS_FOR_*.
 * @reserved45: Zero.
 */
struct qpair_hw_qp_context {
	__le32 pd;
	__le16 page;
	__u8 service;
	__u8 state;
	__le32 send_cq;
	__le32 recv_cq;
	__le32 srq;
	__u8 log_sq;
	__u8 log_rq;
	__u8 rq_stride;
	__u8 port_qp;
	__le32 peer;
	__le32 peer_function;
	__le32 q_key;
	__u8 access;
	__u8 retry;
	__u8 rnr_retry;
	__u8 draining;
	__le32 sq_producer;
	__le32 sq_consumer;
	__le32 rq_producer;
	__le32 rq_consumer;
	__u8 timeout;
	__u8 min_rnr_timer;
	__u8 flags;
	__u8 log_mtu;
	__le16 source;
	__u8 reads;
	__u8 peer_reads;
	struct qpair_hw_buffer_list sq;
	struct qpair_hw_buffer_list rq;
	__le64 gid;
	__le64 gid_high;
	__le32 mac_low;
	__le16 mac_high;
	__u8 traffic_class;
	__u8 hop_limit;
	__le32 sq_psn;
	__le32 rq_psn;
	__le32 flow_label;
	__le32 acked_psn;
	__u8 in_flight;
	__u8 room;
	__u8 repeats;
	__u8 waits_for;
	__u8 reserved45[4];
};

/**
 * struct qpair_hw_mr_context - A memory region's context. Its number is its
 * key, local and remote.
 *
 * @pd: The domain that it belongs to.
 * @access: Rights: QPAIR_HW_ACCESS_*.
 * @reserved2: Zero.
 * @flags: mr_flags.
 * @reserved4: Zero.
 * @addr: Address of its first byte in its own address space (a process: the
 *   virtual address).
 * @buffer: Its memory; bytes is the region's length.
 * @reserved7: Zero.
 */
struct qpair_hw_mr_context {
	__le32 pd;
	__u8 access;
	__u8 reserved2[1];
	__u8 flags;
	__u8 reserved4[1];
	__le64 addr;
	struct qpair_hw_buffer_list buffer;
	__u8 reserved7[24];
};

/**
 * struct qpair_hw_mw_context - The domain and the type of a memory window that
 * is created.
 *
 * @pd: The domain that it belongs to.
 * @kind: QPAIR_HW_MW_TYPE_*.
 * @access: Rights: REMOTE_* and ZERO_BASED of QPAIR_HW_ACCESS_* (queried).
 * @tag: The tag of its key as it is now (queried).
 * @reserved4: Zero.
 * @region: The region that it is bound to, or 0 (queried).
 * @qp: Of a bound window of type 2 the queue pair that bound it (queried).
 * @addr: Its first byte, an address of the region (queried).
 * @bytes: Its length in bytes (queried).
 * @reserved9: Zero.
 */
struct qpair_hw_mw_context {
	__le32 pd;
	__u8 kind;
	__u8 access;
	__u8 tag;
	__u8 reserved4[1];
	__le32 region;
	__le32 qp;
	__le64 addr;
	__le64 bytes;
	__u8 reserved9[32];
};

/**
 * struct qpair_hw_frmr_context - The context of an FRMR, a fast registration
 * memory region.
 *
 * @pd: The domain that it belongs to.
 * @access: Rights: LOCAL_WRITE and REMOTE_* of QPAIR_HW_ACCESS_* (queried).
 * @tag: The tag of its key as it is now (queried).
 * @valid: 1: it is registered; else 0 (queried).
 * @reserved4: Zero.
 * @addr: Address of its first byte in its own address space (queried).
 * @buffer: Its memory (queried).
 * @reserved7: Zero.
 */
struct qpair_hw_frmr_context {
	__le32 pd;
	__u8 access;
	__u8 tag;
	__u8 valid;
	__u8 reserved4[1];
	__le64 addr;
	struct qpair_hw_buffer_list buffer;
	__u8 reserved7[24];
};

/**
 * struct qpair_hw_gid_context - An entry of the port's table of GIDs, or the
 * GID of a group.
 *
 * @gid: Bytes 0 to 7 as in memory.
 * @gid_high: Bytes 8 to 15. All 0: the entry of the table is empty.
 */
struct qpair_hw_gid_context {
	__le64 gid;
	__le64 gid_high;
};

/**
 * struct qpair_hw_srq_context - A shared receive queue's context.
 *
 * @pd: The domain of the regions that its receives name.
 * @page: The doorbell page that it answers to.
 * @log_depth: Base-two logarithm of its WQEs.
 * @stride: Its stride is 64 << stride bytes.
 * @producer: WQEs handed over (queried).
 * @consumer: WQEs that the device has read (queried).
 * @buffer: The buffer list of its ring.
 * @limit: An event is written once fewer receives than this are left; 0 is
 *   never. 0 in CREATE, and after the event.
 * @left: Receives that are left (queried).
 * @flags: QPAIR_HW_SRQ_*.
 * @reserved10: Zero.
 */
struct qpair_hw_srq_context {
	__le32 pd;
	__le16 page;
	__u8 log_depth;
	__u8 stride;
	__le32 producer;
	__le32 consumer;
	struct qpair_hw_buffer_list buffer;
	__le32 limit;
	__le32 left;
	__u8 flags;
	__u8 reserved10[15];
};

/* Kinds of object, the high half of a command's opcode. */

/* Event queue. */
#define QPAIR_HW_KIND_EQ			1
/* Completion queue. */
#define QPAIR_HW_KIND_CQ			2
/* Queue pair. */
#define QPAIR_HW_KIND_QP			3
/* Memory region. */
#define QPAIR_HW_KIND_MR			4
/* Protection domain. */
#define QPAIR_HW_KIND_PD			5
/* Shared receive queue. */
#define QPAIR_HW_KIND_SRQ			6
/* Doorbell page; there from the start. */
#define QPAIR_HW_KIND_PAGE			7
/* The function itself: its counters. */
#define QPAIR_HW_KIND_DEVICE			8
/* Memory window. */
#define QPAIR_HW_KIND_MW			9
/* Entry of the port's table of GIDs; there from the start. */
#define QPAIR_HW_KIND_GID			10
/* Fast registration memory region. */
#define QPAIR_HW_KIND_FRMR			11

/* What to do with one, the low half of a command's opcode. */

/* Creates an object; the completion has its number. */
#define QPAIR_HW_VERB_CREATE			1
/* Changes the attributes that the mask names. */
#define QPAIR_HW_VERB_MODIFY			2
/* Writes the context of an object to memory. */
#define QPAIR_HW_VERB_QUERY			3
/* Destroys an object, whose number may be used again at once. */
#define QPAIR_HW_VERB_DESTROY			4
/* Make it a member of a group (a queue pair). */
#define QPAIR_HW_VERB_ATTACH			5
/* Ends the membership of a queue pair in a group. */
#define QPAIR_HW_VERB_DETACH			6

/* Flags of a CQ. */

/*
 * A process arms it: at most one event of it is in the EQ at a time, and an
 * arm that comes while one is there is remembered until the EQ's head passes
 * it.
 */
#define QPAIR_HW_CQ_USER			(1 << 0)
/*
 * It had no room once, its queue pairs were stopped, and it can only be
 * destroyed (queried).
 */
#define QPAIR_HW_CQ_OVERRUN			(1 << 1)

/* Flags of an SRQ. */

/*
 * Its memory could not be read: no queue pair gets a receive of it any more
 * (queried).
 */
#define QPAIR_HW_SRQ_FAILED			(1 << 0)

/* Services of a queue pair. */

/* Reliable connected, in order and acknowledged. */
#define QPAIR_HW_SERVICE_RC			0
/* Unreliable datagram. */
#define QPAIR_HW_SERVICE_UD			1
/* Unreliable connected. */
#define QPAIR_HW_SERVICE_UC			2

/* States of a queue pair. */

/* Made, or made new: nothing is posted, nothing happens. */
#define QPAIR_HW_QPS_RESET			0
/* Receives may be posted. */
#define QPAIR_HW_QPS_INIT			1
/* Ready to receive: takes what its peer sends. */
#define QPAIR_HW_QPS_RTR			2
/* Ready to send: works its SQ as well. */
#define QPAIR_HW_QPS_RTS			3
/* Drained: starts nothing new from its SQ. */
#define QPAIR_HW_QPS_SQD			4
/* Error: flushes what is posted. */
#define QPAIR_HW_QPS_ERROR			5

/* What the requester of a reliable connection by frames waits for, as bits. */

/* An acknowledgement, until its timeout. */
#define QPAIR_HW_WAITS_FOR_ANSWER		(1 << 0)
/* A receive of its peer, which was not ready. */
#define QPAIR_HW_WAITS_FOR_RECEIVER		(1 << 1)
/* Room, or an answer, before it begins another request. */
#define QPAIR_HW_WAITS_FOR_ROOM			(1 << 2)

/* Flags of a queue pair, from its creation on. */

/* A datagram that it sends to a group is not copied to itself (UD). */
#define QPAIR_HW_QP_NO_OWN_COPY			(1 << 0)
/*
 * Its SQ registers FRMRs, by DMA addresses (RC). A driver gives no process
 * such a queue pair.
 */
#define QPAIR_HW_QP_REGISTERS			(1 << 1)

/* Attributes that a MODIFY of a queue pair changes. */

/*
 * state; every way to RESET and to ERROR, else RESET, INIT, RTR, RTS in order,
 * RTS to SQD and back.
 */
#define QPAIR_HW_QP_MASK_STATE			(1 << 0)
/*
 * peer, peer_function and the GID of its port; in INIT, or together with the
 * step to RTR.
 */
#define QPAIR_HW_QP_MASK_PEER			(1 << 1)
/* access. */
#define QPAIR_HW_QP_MASK_ACCESS			(1 << 2)
/* retry and rnr_retry. */
#define QPAIR_HW_QP_MASK_RETRY			(1 << 3)
/* q_key. */
#define QPAIR_HW_QP_MASK_Q_KEY			(1 << 4)
/* timeout and min_rnr_timer. */
#define QPAIR_HW_QP_MASK_TIMERS			(1 << 6)
/*
 * No attribute: with the step to SQD it asks for an event when the SQ has
 * drained.
 */
#define QPAIR_HW_QP_MASK_NOTIFY			(1 << 5)
/*
 * The way of frames to a peer at another port: mac_low, mac_high, source,
 * log_mtu, traffic_class, hop_limit, flow_label, rq_psn and peer_reads;
 * together with PEER (RC, UC).
 */
#define QPAIR_HW_QP_MASK_PATH			(1 << 7)
/* sq_psn and reads; together with the step from RTR to RTS (RC, UC). */
#define QPAIR_HW_QP_MASK_SQ_PSN			(1 << 8)

/* Access rights of a region, and of a peer. */

/* Receives and READs of the owner may fill it. */
#define QPAIR_HW_ACCESS_LOCAL_WRITE		(1 << 0)
/* The peer may write it. */
#define QPAIR_HW_ACCESS_REMOTE_WRITE		(1 << 1)
/* The peer may read it. */
#define QPAIR_HW_ACCESS_REMOTE_READ		(1 << 2)
/* The peer may do atomics on it. */
#define QPAIR_HW_ACCESS_REMOTE_ATOMIC		(1 << 3)
/* Windows may be bound to it (of a region). */
#define QPAIR_HW_ACCESS_BIND			(1 << 4)
/* The peer's addresses are offsets in it (of a window of type 2). */
#define QPAIR_HW_ACCESS_ZERO_BASED		(1 << 5)
/* The peer may flush it so that all see what was written. */
#define QPAIR_HW_ACCESS_FLUSH_GLOBAL		(1 << 6)
/* The peer may flush it so that what was written outlives a loss of power. */
#define QPAIR_HW_ACCESS_FLUSH_PERSISTENT	(1 << 7)

/* Attributes that a MODIFY of a memory region changes. */

/* addr and buffer. */
#define QPAIR_HW_MR_MASK_MEMORY			(1 << 0)
/* pd. */
#define QPAIR_HW_MR_MASK_PD			(1 << 1)
/* access. */
#define QPAIR_HW_MR_MASK_ACCESS			(1 << 2)

/* Attributes that a MODIFY of a shared receive queue changes. */

/* limit: the event is armed. */
#define QPAIR_HW_SRQ_MASK_LIMIT			(1 << 0)
/* log_depth and buffer. */
#define QPAIR_HW_SRQ_MASK_RING			(1 << 1)

/* Types of memory windows. */

/*
 * Any queue pair of its domain may bind it, again and again, and its peer use
 * it.
 */
#define QPAIR_HW_MW_TYPE_ONE			1
/*
 * It belongs to the queue pair that binds it (type 2B), and is invalidated
 * before it is bound again.
 */
#define QPAIR_HW_MW_TYPE_TWO			2

/*
 * Vendor details of commands that are refused, with status
 * QPAIR_HW_STATUS_GENERAL.
 */

/*
 * No such command, or its number of blocks is not 1, or something in its WQE
 * that it does not use is not zero.
 */
#define QPAIR_HW_ADMIN_COMMAND			1
/* No object has this number. */
#define QPAIR_HW_ADMIN_NUMBER			2
/* All objects of this kind are in use. */
#define QPAIR_HW_ADMIN_FULL			3
/* Other objects use it. */
#define QPAIR_HW_ADMIN_BUSY			4
/*
 * The context could not be read or written, is not aligned, or its length is
 * wrong.
 */
#define QPAIR_HW_ADMIN_CONTEXT			5
/*
 * A reserved bit of the context is not zero, or a flag, an access right or a
 * bit of the mask is unknown.
 */
#define QPAIR_HW_ADMIN_RESERVED			6
/* Depth or stride out of range. */
#define QPAIR_HW_ADMIN_DEPTH			7
/*
 * The buffer list makes no sense, cannot be read, is too short for the ring,
 * or is longer than a region may be.
 */
#define QPAIR_HW_ADMIN_BUFFER			8
/*
 * An EQ, CQ, PD, page or vector that the context names is not there, or a
 * queue pair names CQ 0.
 */
#define QPAIR_HW_ADMIN_REFERENCE		9
/* No way from this state to that, or the peer may not be given here. */
#define QPAIR_HW_ADMIN_TRANSITION		10
/* Another attribute out of range. */
#define QPAIR_HW_ADMIN_ATTRIBUTE		11
/* Failed because a test asked for it. */
#define QPAIR_HW_ADMIN_INJECTED			12
/*
 * A CQ that the queue pair completes in was overrun, and can only be
 * destroyed.
 */
#define QPAIR_HW_ADMIN_OVERRUN			13

/* Places in the array that QUERY DEVICE writes. */

/* SQ doorbells */
#define QPAIR_HW_COUNTER_SQ_DOORBELLS		0
/* RQ and SRQ doorbells */
#define QPAIR_HW_COUNTER_RQ_DOORBELLS		1
/* CQ head doorbells */
#define QPAIR_HW_COUNTER_CQ_HEAD_DOORBELLS	2
/* CQ arm and notify doorbells */
#define QPAIR_HW_COUNTER_CQ_ARM_DOORBELLS	3
/* EQ head doorbells that unmask */
#define QPAIR_HW_COUNTER_EQ_HEAD_DOORBELLS	4
/* EQ head doorbells that keep the mask */
#define QPAIR_HW_COUNTER_EQ_MASKED_DOORBELLS	5
/* doorbells that make no sense */
#define QPAIR_HW_COUNTER_VIOLATIONS		6
/* send WQEs fetched */
#define QPAIR_HW_COUNTER_SEND_WQES		7
/* receive WQEs fetched */
#define QPAIR_HW_COUNTER_RECV_WQES		8
/* admin commands done */
#define QPAIR_HW_COUNTER_COMMANDS		9
/* CQEs written */
#define QPAIR_HW_COUNTER_CQES			10
/* EQEs written */
#define QPAIR_HW_COUNTER_EQES			11
/* asynchronous events, repeats included */
#define QPAIR_HW_COUNTER_ASYNC_EVENTS		12
/* interrupts raised */
#define QPAIR_HW_COUNTER_INTERRUPTS		13
/* DMA reads */
#define QPAIR_HW_COUNTER_DMA_READS		14
/* DMA writes */
#define QPAIR_HW_COUNTER_DMA_WRITES		15
/* DMA that the system refused */
#define QPAIR_HW_COUNTER_DMA_FAULTS		16
/* payload bytes moved by SENDs */
#define QPAIR_HW_COUNTER_SEND_BYTES		17
/* payload bytes moved by RDMA WRITEs */
#define QPAIR_HW_COUNTER_WRITE_BYTES		18
/* payload bytes moved by RDMA READs */
#define QPAIR_HW_COUNTER_READ_BYTES		19
/* completions with an error */
#define QPAIR_HW_COUNTER_ERRORS			20
/* work requests flushed */
#define QPAIR_HW_COUNTER_FLUSHES		21
/* CQs that had no room */
#define QPAIR_HW_COUNTER_CQ_OVERRUNS		22
/* doorbells and references with the generation of an object that is gone */
#define QPAIR_HW_COUNTER_STALE			23
/* turns of queue pairs in the core */
#define QPAIR_HW_COUNTER_TURNS			24
/* messages of UD and UC that were dropped */
#define QPAIR_HW_COUNTER_DROPPED		25
/* atomics performed */
#define QPAIR_HW_COUNTER_ATOMICS		26
/* waits for a peer that did not answer */
#define QPAIR_HW_COUNTER_RETRIES		27
/* waits for a receive of a peer */
#define QPAIR_HW_COUNTER_RNR_RETRIES		28
/* FRMRs registered */
#define QPAIR_HW_COUNTER_REGISTRATIONS		29
/* FRMRs and windows invalidated by a request */
#define QPAIR_HW_COUNTER_INVALIDATIONS		30
/* frames received */
#define QPAIR_HW_COUNTER_FRAMES_IN		31
/* frames sent */
#define QPAIR_HW_COUNTER_FRAMES_OUT		32
/* frames for no queue pair that receives */
#define QPAIR_HW_COUNTER_FRAMES_FOREIGN		33
/* frames with wrong lengths or headers */
#define QPAIR_HW_COUNTER_FRAMES_MALFORMED	34
/* frames with a wrong ICRC */
#define QPAIR_HW_COUNTER_FRAMES_CORRUPT		35
/* frames received for which there was no room */
#define QPAIR_HW_COUNTER_FRAMES_OVERFLOWED	36
/* packets received before another that is missing */
#define QPAIR_HW_COUNTER_OUT_OF_SEQUENCE	37
/* packets received again */
#define QPAIR_HW_COUNTER_DUPLICATES		38
/* How many there are. */
#define QPAIR_HW_COUNTERS			39

/* What is written to a doorbell. */
#define QPAIR_HW_DOORBELL(number, index) \
	((__u64)(__u32)(index) << 32 | (__u32)(number))
/* The opcode of a command. */
#define QPAIR_HW_COMMAND(kind, verb)		((kind) << 4 | (verb))
/* The index and the generation of an object's number. */
#define QPAIR_HW_INDEX(number)			((number) & 0xffff)
#define QPAIR_HW_GENERATION(number)		((number) >> 16)
/* The key of a memory window. */
#define QPAIR_HW_KEY_OF_WINDOW(number, tag) \
	(QPAIR_HW_WINDOW_KEY | ((number) >> 16 & 0x7ff) << 20 | ((number) & 0xfff) << 8 | (tag))
/* The key of an FRMR. */
#define QPAIR_HW_KEY_OF_FRMR(number, tag) \
	(QPAIR_HW_FRMR_KEY | ((number) >> 16 & 0x3f) << 24 | ((number) & 0xffff) << 8 | (tag))

#endif /* _QPAIR_DEVICE_H */
