// SPDX-License-Identifier: GPL-2.0

//! Trace points, `events/qpair/` in tracefs; `trace.h` declares them.
//!
//! One that is off costs a no-op instruction: the branch into C is patched in when it is switched
//! on. [`kernel::tracepoint`]'s macro does the same, but expects the trace point to be declared
//! in the kernel's own bindings.
//!
//! All are callable in any context.

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
    /// The driver rings a doorbell: place in the page, object, index.
    fn doorbell(place: u32, number: u32, index: u32);

    /// A hard interrupt.
    fn irq(eq: u32);

    /// A round of an EQ's poll begins.
    fn poll_start(eq: u32, budget: u32);

    /// It ends: what it did of its budget, and whether it runs again.
    fn poll_end(eq: u32, done: u32, again: bool);

    /// An event was taken from an EQ.
    fn eqe(eq: u32, index: u32, kind: u32, number: u32);

    /// A completion was taken from a CQ.
    fn cqe(cq: u32, index: u32, qp: u32, status: u32);

    /// A CQ was armed: an event at the next completion past the index.
    fn arm(cq: u32, index: u32, solicited: bool);

    /// The head of a CQ or EQ was published; for an EQ, whether its interrupt stays masked.
    fn head(eq: bool, number: u32, index: u32, masked: bool);

    /// A work request was written to an SQ or RQ.
    fn post(qp: u32, index: u32, opcode: u32, wr_id: u64);

    /// Something went wrong with an object: an error number, and what explains it.
    fn error(number: u32, error: i32, detail: u64);
}
