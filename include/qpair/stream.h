/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Channels of descriptors: the numbers of the PCI function qpair-stream, for
 * driver writers. Generated from rust/abi/stream by tools/header; do not edit.
 *
 * What they mean is said in Documentation/stream.rst. A field that is not
 * listed, or is called reserved, is zero.
 */
#ifndef _QPAIR_STREAM_H
#define _QPAIR_STREAM_H

#include <linux/types.h>

/* The PCI function. */

/* PCI vendor of the function, as of the other one. */
#define QPAIR_STREAM_PCI_VENDOR			0x1234
/* PCI device of the function. */
#define QPAIR_STREAM_PCI_DEVICE			0x5151
/* PCI revision of the function. */
#define QPAIR_STREAM_PCI_REVISION		1
/* BAR of the registers. */
#define QPAIR_STREAM_BAR_REGS			0
/* BAR of the MSI-X table and its pending bits. */
#define QPAIR_STREAM_BAR_MSIX			4

/* Registers of the function: offsets in the BAR, and masks of fields. */

/* Always MAGIC_VALUE. */
#define QPAIR_STREAM_REG_MAGIC			0x00
/* The version of the programming model. Another major is another model. */
#define QPAIR_STREAM_REG_VERSION		0x04
#define QPAIR_STREAM_REG_VERSION_MAJOR		0xffff0000
#define QPAIR_STREAM_REG_VERSION_MINOR		0x0000ffff
/* What software asks of the function. */
#define QPAIR_STREAM_REG_CTRL			0x08
/* Returns the function to power-on. Reads as 0. */
#define QPAIR_STREAM_REG_CTRL_RESET		0x00000002
/* Pairs of channels. */
#define QPAIR_STREAM_REG_PAIRS			0x0c
/* Bytes of the largest frame. */
#define QPAIR_STREAM_REG_LIMIT_FRAME		0x10
/* Descriptors of the largest ring with a head and a tail. */
#define QPAIR_STREAM_REG_LIMIT_RING		0x14

/* What registers read as. */

/* What `MAGIC` reads as: "QPS1". */
#define QPAIR_STREAM_MAGIC_VALUE		0x31535051
/* The major version of the programming model that this source describes. */
#define QPAIR_STREAM_MAJOR			1
/* The minor version: additions that software of a lower one need not know. */
#define QPAIR_STREAM_MINOR			0
/* Bytes of BAR 0. */
#define QPAIR_STREAM_REG_BYTES			0x4000

/* Blocks of registers, one for each channel. */

/* Where the blocks of channels begin in BAR 0. */
#define QPAIR_STREAM_BLOCKS			0x1000
/* Bytes of a channel's block. */
#define QPAIR_STREAM_BLOCK_BYTES		64
/* Most pairs of channels of a function. */
#define QPAIR_STREAM_MAX_PAIRS			64

/* KIND: how a channel shares its ring. */

/* Descriptors that are linked; the tail is an address, and inclusive. */
#define QPAIR_STREAM_KIND_CHAIN			1
/* A ring with a head and a tail; the tail is an index, and exclusive. */
#define QPAIR_STREAM_KIND_HEADTAIL		2

/* SR.cause: why a channel halted. */

/* It did not, or software stopped it. */
#define QPAIR_STREAM_CAUSE_NONE			0
/*
 * The ring makes no sense: its address is not a multiple of 128, its bytes are
 * none or not a multiple of 128, it has too many descriptors, or HEAD is
 * outside of it.
 */
#define QPAIR_STREAM_CAUSE_RING			1
/* TAIL is outside of the ring, or TAILDESC is not a multiple of 64. */
#define QPAIR_STREAM_CAUSE_TAIL			2
/*
 * The address of a descriptor, from CURDESC or from the descriptor before it,
 * is not a multiple of 64.
 */
#define QPAIR_STREAM_CAUSE_NEXT			3
/* The system refused to read a descriptor. */
#define QPAIR_STREAM_CAUSE_DESCRIPTOR		4
/* The system refused to write to a descriptor. */
#define QPAIR_STREAM_CAUSE_STATUS		5
/* The system refused to read or write the bytes of a frame. */
#define QPAIR_STREAM_CAUSE_DATA			6
/*
 * The descriptor is complete already: software did not clear its status, or
 * the chain has a loop that does not meet the tail.
 */
#define QPAIR_STREAM_CAUSE_COMPLETE		7
/* The length of a descriptor is 0, or more than a frame may have. */
#define QPAIR_STREAM_CAUSE_LENGTH		8
/* The descriptors of a frame have more bytes than a frame may have. */
#define QPAIR_STREAM_CAUSE_FRAME		9
/* The first descriptor of a frame does not start it. */
#define QPAIR_STREAM_CAUSE_NO_START		10
/* A descriptor starts a frame before the one before it has ended. */
#define QPAIR_STREAM_CAUSE_NO_END		11
/*
 * A register that describes the ring was written while the channel was
 * running.
 */
#define QPAIR_STREAM_CAUSE_RUNNING		12
/* PEER names no pair. */
#define QPAIR_STREAM_CAUSE_PEER			13

/*
 * Channels of linked descriptors: offsets of registers in the block, and masks
 * of fields.
 */

/* What software asks of the channel. */
#define QPAIR_STREAM_CH_CR			0x00
/*
 * Age of a completion at which SR.delay is set, in units of 8 microseconds; 0
 * is never.
 */
#define QPAIR_STREAM_CH_CR_DELAY		0xff000000
/* Completed descriptors for SR.done; 0 is as 1. */
#define QPAIR_STREAM_CH_CR_THRESHOLD		0x00ff0000
/* SR.error interrupts. */
#define QPAIR_STREAM_CH_CR_ERROR_ENABLE		0x00004000
/* SR.delay interrupts. */
#define QPAIR_STREAM_CH_CR_DELAY_ENABLE		0x00002000
/* SR.done interrupts. */
#define QPAIR_STREAM_CH_CR_DONE_ENABLE		0x00001000
/* Returns the channel to power-on. Reads as 0. */
#define QPAIR_STREAM_CH_CR_RESET		0x00000004
/* The channel runs. The channel clears it when it halts by itself. */
#define QPAIR_STREAM_CH_CR_RUN			0x00000001
/* State of the channel. */
#define QPAIR_STREAM_CH_SR			0x04
/* Completions that are left until SR.done. */
#define QPAIR_STREAM_CH_SR_LEFT			0x00ff0000
/* It halted by itself. Writing 1 clears it. */
#define QPAIR_STREAM_CH_SR_ERROR		0x00004000
/* A completion is as old as CR.delay. Writing 1 clears it. */
#define QPAIR_STREAM_CH_SR_DELAY		0x00002000
/* As many descriptors were completed as CR.threshold. Writing 1 clears it. */
#define QPAIR_STREAM_CH_SR_DONE			0x00001000
/* Why it halted by itself; kept until it runs again. */
#define QPAIR_STREAM_CH_SR_CAUSE		0x00000ff0
/* It has met the tail. */
#define QPAIR_STREAM_CH_SR_IDLE			0x00000002
/* It does not run. */
#define QPAIR_STREAM_CH_SR_HALTED		0x00000001
/*
 * Address of the descriptor that the channel reads next or works on, low half.
 * Writable while halted.
 */
#define QPAIR_STREAM_CH_CURDESC			0x08
/* The high half of that address. */
#define QPAIR_STREAM_CH_CURDESC_MSB		0x0c
/*
 * Address of the last descriptor that the channel owns, low half. A write
 * hands descriptors over; it is ignored while the channel is halted.
 */
#define QPAIR_STREAM_CH_TAILDESC		0x10
/* The same, high half. To be written before the low half. */
#define QPAIR_STREAM_CH_TAILDESC_MSB		0x14
/* Frames that were dropped, modulo 2^32. */
#define QPAIR_STREAM_CH_DROPS			0x34
/*
 * The pair whose receive channel gets the frames of this transmit channel; of
 * a receive channel its own pair.
 */
#define QPAIR_STREAM_CH_PEER			0x38
/* The kind of this channel: 1. */
#define QPAIR_STREAM_CH_KIND			0x3c
#define QPAIR_STREAM_CH_KIND_KIND		0x000000ff
/* What addresses of descriptors are multiples of. */
#define QPAIR_STREAM_CH_ALIGN			64
/* The unit of CR.delay, in nanoseconds. */
#define QPAIR_STREAM_CH_DELAY_NS		8000

/**
 * struct qpair_stream_chain_descriptor - A descriptor of a chain.
 *
 * @next: Address of the next descriptor, a multiple of 64.
 * @addr: Address of the buffer.
 * @reserved2: Zero.
 * @control: The buffer's bytes and, for transmit, QPAIR_STREAM_CH_CONTROL_*.
 * @status: QPAIR_STREAM_CH_STATUS_*; software writes 0, the channel completes.
 * @app0: User word, carried from the first descriptor of the frame to its last
 *   one.
 * @app1: User word, as app0.
 * @app2: User word, as app0.
 * @app3: User word, as app0.
 * @app4: User word, as app0.
 * @reserved10: Zero.
 */
struct qpair_stream_chain_descriptor {
	__le64 next;
	__le64 addr;
	__u8 reserved2[8];
	__le32 control;
	__le32 status;
	__le32 app0;
	__le32 app1;
	__le32 app2;
	__le32 app3;
	__le32 app4;
	__u8 reserved10[12];
};

/* What software says of a descriptor's buffer. */

/* Bytes of the buffer. */
#define QPAIR_STREAM_CH_CONTROL_LENGTH		0x3ffffff
/* Transmit: the frame ends with this buffer. */
#define QPAIR_STREAM_CH_CONTROL_EOF		(1 << 26)
/* Transmit: the frame starts with this buffer. */
#define QPAIR_STREAM_CH_CONTROL_SOF		(1 << 27)

/* What the channel says of a descriptor. */

/* Bytes that were read from the buffer or written to it. */
#define QPAIR_STREAM_CH_STATUS_LENGTH		0x3ffffff
/* Receive: the frame ends with this buffer. */
#define QPAIR_STREAM_CH_STATUS_EOF		(1 << 26)
/* Receive: the frame starts with this buffer. */
#define QPAIR_STREAM_CH_STATUS_SOF		(1 << 27)
/* The channel is done with the descriptor and its buffer. */
#define QPAIR_STREAM_CH_STATUS_COMPLETE		0x80000000

/*
 * Channels with a head and a tail: offsets of registers in the block, and
 * masks of fields.
 */

/*
 * Address of the ring, low half; a multiple of 128. Writable while disabled.
 */
#define QPAIR_STREAM_HT_BAL			0x00
/* The high half of that address. */
#define QPAIR_STREAM_HT_BAH			0x04
/* Bytes of the ring; a multiple of 128. Writable while disabled. */
#define QPAIR_STREAM_HT_LEN			0x08
/* State of the channel. */
#define QPAIR_STREAM_HT_SR			0x0c
/* Why it halted by itself; kept until it is enabled again. */
#define QPAIR_STREAM_HT_SR_CAUSE		0x00000ff0
/* HEAD is equal to TAIL. */
#define QPAIR_STREAM_HT_SR_IDLE			0x00000002
/* It is disabled, or it halted by itself. */
#define QPAIR_STREAM_HT_SR_HALTED		0x00000001
/*
 * Index of the descriptor that the channel reads next. Writable while
 * disabled.
 */
#define QPAIR_STREAM_HT_HEAD			0x10
/* Receive: how frames are put into buffers. */
#define QPAIR_STREAM_HT_SRRCTL			0x14
/*
 * A frame is dropped if the ring has not enough buffers for it. Otherwise its
 * transmitter waits.
 */
#define QPAIR_STREAM_HT_SRRCTL_DROP_ENABLE	0x10000000
/* Bytes of each buffer in units of 1024, 1 to 16; 0 is as 2. */
#define QPAIR_STREAM_HT_SRRCTL_BUFFER		0x0000001f
/*
 * Index past the last descriptor that the channel owns. A write hands
 * descriptors over.
 */
#define QPAIR_STREAM_HT_TAIL			0x18
/* The least time from one interrupt message to the next. */
#define QPAIR_STREAM_HT_ITR			0x1c
/* In microseconds; 0 is any. */
#define QPAIR_STREAM_HT_ITR_INTERVAL		0x0000ffff
/*
 * Causes of the interrupt. Writing 1 clears a cause, and so does the message.
 */
#define QPAIR_STREAM_HT_ICR			0x20
/* It halted by itself. */
#define QPAIR_STREAM_HT_ICR_ERROR		0x00000002
/* It wrote a descriptor back. */
#define QPAIR_STREAM_HT_ICR_DONE		0x00000001
/* Writing 1 enables the interrupt. Reads as 1 if it is enabled. */
#define QPAIR_STREAM_HT_IMS			0x24
#define QPAIR_STREAM_HT_IMS_ENABLE		0x00000001
/* What software asks of the channel. */
#define QPAIR_STREAM_HT_DCTL			0x28
/* Returns the channel to power-on. Reads as 0. */
#define QPAIR_STREAM_HT_DCTL_FLUSH		0x04000000
/* The channel works. The channel clears it when it halts by itself. */
#define QPAIR_STREAM_HT_DCTL_ENABLE		0x02000000
/* Writing 1 disables the interrupt. */
#define QPAIR_STREAM_HT_IMC			0x2c
#define QPAIR_STREAM_HT_IMC_DISABLE		0x00000001
/* Frames that were dropped, modulo 2^32. */
#define QPAIR_STREAM_HT_DROPS			0x34
/*
 * The pair whose receive channel gets the frames of this transmit channel; of
 * a receive channel its own pair.
 */
#define QPAIR_STREAM_HT_PEER			0x38
/* The kind of this channel: 2. */
#define QPAIR_STREAM_HT_KIND			0x3c
#define QPAIR_STREAM_HT_KIND_KIND		0x000000ff
/* What the address and the bytes of a ring are multiples of. */
#define QPAIR_STREAM_HT_ALIGN			128
/* The unit of SRRCTL.buffer, in bytes. */
#define QPAIR_STREAM_HT_BUFFER_UNIT		1024
/* The bytes of a buffer if SRRCTL.buffer is 0. */
#define QPAIR_STREAM_HT_BUFFER_DEFAULT		2048
/* The most bytes of a buffer. */
#define QPAIR_STREAM_HT_BUFFER_MAX		16384
/* The unit of ITR.interval, in nanoseconds. */
#define QPAIR_STREAM_HT_INTERVAL_NS		1000

/**
 * struct qpair_stream_ring_descriptor - A descriptor of a ring with a head and
 * a tail.
 *
 * @addr: Address of the buffer.
 * @length: Transmit: bytes of the buffer. Receive: the channel writes the
 *   bytes of the frame in the buffer.
 * @reserved2: Zero.
 * @cmd: Transmit: QPAIR_STREAM_HT_CMD_*.
 * @sta: QPAIR_STREAM_HT_STA_*; software writes 0, the channel writes back.
 * @reserved5: Zero.
 */
struct qpair_stream_ring_descriptor {
	__le64 addr;
	__le16 length;
	__u8 reserved2[1];
	__u8 cmd;
	__u8 sta;
	__u8 reserved5[3];
};

/* What software says of a descriptor's buffer. */

/* End of packet: the frame ends with this buffer. */
#define QPAIR_STREAM_HT_CMD_EOP			(1 << 0)
/* Report status: the channel writes the descriptor back. */
#define QPAIR_STREAM_HT_CMD_RS			(1 << 3)

/* What the channel says of a descriptor. */

/* Descriptor done: the channel is done with it and its buffer. */
#define QPAIR_STREAM_HT_STA_DD			(1 << 0)
/* End of packet: the received frame ends with this buffer. */
#define QPAIR_STREAM_HT_STA_EOP			(1 << 1)

/* The MSI-X vector of a channel; side is 0 for transmit, 1 for receive. */
#define QPAIR_STREAM_VECTOR(pair, side)		(2 * (pair) + (side))
/* The offset in the BAR of a channel's block. */
#define QPAIR_STREAM_BLOCK(pair, side) \
	(QPAIR_STREAM_BLOCKS + \
	 QPAIR_STREAM_BLOCK_BYTES * QPAIR_STREAM_VECTOR(pair, side))

#endif /* _QPAIR_STREAM_H */
