// SPDX-License-Identifier: GPL-2.0

//! Trace points, `events/qpair/` in tracefs; `trace.h` declares them.
//!
//! A disabled trace point costs one no-op instruction (a static branch). [`kernel::tracepoint`]'s
//! macro does the same, but needs the trace point to be declared in the kernel's own bindings.
//!
//! All are callable in any context. A process posts, polls and arms without the kernel, so only its
//! events are traced, not its work requests, completions and doorbells.

#[cfg(CONFIG_TRACEPOINTS)]
use kernel::bindings;

/// Declares functions that hit the trace points of the same names, with `qpair_` before them.
macro_rules! trace_points {
    ($(
        $(#[$meta:meta])*
        fn $name:ident($($arg:ident: $type:ty),* $(,)?);
    )*) => {
        ::kernel::macros::paste! {
            #[cfg(CONFIG_TRACEPOINTS)]
            #[allow(improper_ctypes)]
            unsafe extern "C" {
                $(
                    static [<__tracepoint_qpair_ $name>]: bindings::tracepoint;
                    fn [<rust_do_trace_qpair_ $name>]($($arg: $type),*);
                )*
            }

            $(
                $(#[$meta])*
                #[inline(always)]
                pub fn $name($($arg: $type),*) {
                    #[cfg(CONFIG_TRACEPOINTS)]
                    // SAFETY: The trace point is a static of the module, and takes any values.
                    unsafe {
                        if ::kernel::jump_label::static_branch_unlikely!(
                            [<__tracepoint_qpair_ $name>],
                            bindings::tracepoint,
                            key
                        ) {
                            [<rust_do_trace_qpair_ $name>]($($arg),*);
                        }
                    }
                    #[cfg(not(CONFIG_TRACEPOINTS))]
                    let _ = ($($arg,)*);
                }
            )*
        }
    };
}

trace_points! {
    /// The driver rings a doorbell: device, place in the page, object, index.
    fn doorbell(dev: u32, place: u32, number: u32, index: u32);

    /// A hard interrupt of a device: the EQ.
    fn irq(dev: u32, eq: u32);

    /// A round of an EQ's poll begins.
    fn poll_start(dev: u32, eq: u32, budget: u32);

    /// A round of an EQ's poll ends: the work done, and whether it runs again.
    fn poll_end(dev: u32, eq: u32, done: u32, again: bool);

    /// An event was taken from an EQ.
    fn eqe(eq: u32, index: u32, kind: u32, number: u32);

    /// A completion was taken from a CQ.
    fn cqe(cq: u32, index: u32, qp: u32, status: u32);

    /// A CQ was armed: an event at the next completion past the index; or a notify was requested of
    /// one that is read up to the index.
    fn arm(cq: u32, index: u32, solicited: bool);

    /// The head of a CQ or EQ was published; for an EQ, whether its interrupt stays masked.
    fn head(eq: bool, number: u32, index: u32, masked: bool);

    /// A work request was written to an SQ, an RQ, or an SRQ, whose number is in `qp`. The opcode of a
    /// receive is that of its completion.
    fn post(qp: u32, index: u32, opcode: u32, wr_id: u64);

    /// Something went wrong; number and detail are as [`Wrong`] says.
    fn error(kind: u32, number: u32, detail: u32);
}

/// What went wrong; as `trace.h` names them.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Wrong {
    /// A completion has an error: the queue pair, and the status.
    Completion = 0,
    /// A stale completion: the CQ, and its place there. The [`cqe`] before it has the queue pair.
    Stale = 1,
    /// A command failed: the object, 0 of a create, and the errno.
    Command = 2,
    /// An asynchronous event: the object, and its code.
    Asynchronous = 3,
    /// Device fatal: 0, and the cause.
    Fatal = 4,
}

/// Traces an [`error`].
#[inline(always)]
pub fn wrong(what: Wrong, number: u32, detail: u32) {
    // CAST: The discriminant.
    error(what as u32, number, detail);
}
