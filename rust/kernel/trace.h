/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The trace points of qpair; trace.rs calls them. An object is given by its whole number; dev is
 * the N of /dev/qpairN. Events without dev occur in the poll that runs on their CPU, or in a task.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM qpair

#if !defined(_QPAIR_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _QPAIR_TRACE_H

#include <linux/tracepoint.h>

/* A doorbell of the driver: place in the page, object, index. */
TRACE_EVENT(qpair_doorbell,
	TP_PROTO(u32 dev, u32 place, u32 number, u32 index),
	TP_ARGS(dev, place, number, index),
	TP_STRUCT__entry(
		__field(u32, dev)
		__field(u32, place)
		__field(u32, number)
		__field(u32, index)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->place = place;
		__entry->number = number;
		__entry->index = index;
	),
	TP_printk("dev=%u place=0x%02x number=0x%08x index=%u",
		  __entry->dev, __entry->place, __entry->number, __entry->index)
);

/* A hard interrupt. */
TRACE_EVENT(qpair_irq,
	TP_PROTO(u32 dev, u32 eq),
	TP_ARGS(dev, eq),
	TP_STRUCT__entry(
		__field(u32, dev)
		__field(u32, eq)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->eq = eq;
	),
	TP_printk("dev=%u eq=0x%08x", __entry->dev, __entry->eq)
);

/* A round of an EQ's poll begins. */
TRACE_EVENT(qpair_poll_start,
	TP_PROTO(u32 dev, u32 eq, u32 budget),
	TP_ARGS(dev, eq, budget),
	TP_STRUCT__entry(
		__field(u32, dev)
		__field(u32, eq)
		__field(u32, budget)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->eq = eq;
		__entry->budget = budget;
	),
	TP_printk("dev=%u eq=0x%08x budget=%u", __entry->dev, __entry->eq, __entry->budget)
);

/* A round of an EQ's poll ends: the work done, and whether it runs again. */
TRACE_EVENT(qpair_poll_end,
	TP_PROTO(u32 dev, u32 eq, u32 done, bool again),
	TP_ARGS(dev, eq, done, again),
	TP_STRUCT__entry(
		__field(u32, dev)
		__field(u32, eq)
		__field(u32, done)
		__field(bool, again)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->eq = eq;
		__entry->done = done;
		__entry->again = again;
	),
	TP_printk("dev=%u eq=0x%08x done=%u again=%d", __entry->dev, __entry->eq, __entry->done,
		  __entry->again)
);

/* An event was taken from an EQ. */
TRACE_EVENT(qpair_eqe,
	TP_PROTO(u32 eq, u32 index, u32 kind, u32 number),
	TP_ARGS(eq, index, kind, number),
	TP_STRUCT__entry(
		__field(u32, eq)
		__field(u32, index)
		__field(u32, kind)
		__field(u32, number)
	),
	TP_fast_assign(
		__entry->eq = eq;
		__entry->index = index;
		__entry->kind = kind;
		__entry->number = number;
	),
	TP_printk("eq=0x%08x index=%u kind=%u number=0x%08x",
		  __entry->eq, __entry->index, __entry->kind, __entry->number)
);

/* A completion was taken from a CQ. */
TRACE_EVENT(qpair_cqe,
	TP_PROTO(u32 cq, u32 index, u32 qp, u32 status),
	TP_ARGS(cq, index, qp, status),
	TP_STRUCT__entry(
		__field(u32, cq)
		__field(u32, index)
		__field(u32, qp)
		__field(u32, status)
	),
	TP_fast_assign(
		__entry->cq = cq;
		__entry->index = index;
		__entry->qp = qp;
		__entry->status = status;
	),
	TP_printk("cq=0x%08x index=%u qp=0x%08x status=%u",
		  __entry->cq, __entry->index, __entry->qp, __entry->status)
);

/*
 * A CQ was armed: an event at the next completion past the index; or a notify was requested of one
 * that is read up to the index.
 */
TRACE_EVENT(qpair_arm,
	TP_PROTO(u32 cq, u32 index, bool solicited),
	TP_ARGS(cq, index, solicited),
	TP_STRUCT__entry(
		__field(u32, cq)
		__field(u32, index)
		__field(bool, solicited)
	),
	TP_fast_assign(
		__entry->cq = cq;
		__entry->index = index;
		__entry->solicited = solicited;
	),
	TP_printk("cq=0x%08x index=%u solicited=%d",
		  __entry->cq, __entry->index, __entry->solicited)
);

/* The head of a CQ or EQ was published; for an EQ, whether its interrupt stays masked. */
TRACE_EVENT(qpair_head,
	TP_PROTO(bool eq, u32 number, u32 index, bool masked),
	TP_ARGS(eq, number, index, masked),
	TP_STRUCT__entry(
		__field(bool, eq)
		__field(u32, number)
		__field(u32, index)
		__field(bool, masked)
	),
	TP_fast_assign(
		__entry->eq = eq;
		__entry->number = number;
		__entry->index = index;
		__entry->masked = masked;
	),
	TP_printk("%s=0x%08x index=%u masked=%d", __entry->eq ? "eq" : "cq",
		  __entry->number, __entry->index, __entry->masked)
);

/*
 * A work request was written to an SQ, an RQ, or an SRQ, whose number is in qp. The opcode of a
 * receive is that of its completion.
 */
TRACE_EVENT(qpair_post,
	TP_PROTO(u32 qp, u32 index, u32 opcode, u64 wr_id),
	TP_ARGS(qp, index, opcode, wr_id),
	TP_STRUCT__entry(
		__field(u32, qp)
		__field(u32, index)
		__field(u32, opcode)
		__field(u64, wr_id)
	),
	TP_fast_assign(
		__entry->qp = qp;
		__entry->index = index;
		__entry->opcode = opcode;
		__entry->wr_id = wr_id;
	),
	TP_printk("qp=0x%08x index=%u opcode=%u wr_id=0x%llx",
		  __entry->qp, __entry->index, __entry->opcode, __entry->wr_id)
);

/*
 * Something went wrong: a completion with an error (queue pair, status), one that made no sense
 * (CQ, index; the qpair_cqe before it has the queue pair), a command that failed (object, 0 of
 * a create; errno), an asynchronous event (object, code), device fatal (0, cause). The kinds are those
 * of trace.rs.
 */
TRACE_EVENT(qpair_error,
	TP_PROTO(u32 kind, u32 number, u32 detail),
	TP_ARGS(kind, number, detail),
	TP_STRUCT__entry(
		__field(u32, kind)
		__field(u32, number)
		__field(u32, detail)
	),
	TP_fast_assign(
		__entry->kind = kind;
		__entry->number = number;
		__entry->detail = detail;
	),
	TP_printk("what=%s number=0x%08x detail=%u",
		  __print_symbolic(__entry->kind,
				   { 0, "completion" },
				   { 1, "stale" },
				   { 2, "command" },
				   { 3, "asynchronous" },
				   { 4, "fatal" }),
		  __entry->number, __entry->detail)
);

#endif /* _QPAIR_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
