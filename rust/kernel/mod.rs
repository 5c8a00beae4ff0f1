// SPDX-License-Identifier: GPL-2.0

//! Kernel APIs without an upstream abstraction.
//!
//! Only this folder uses `bindings` and `unsafe`. Except for the trace points it does not depend on
//! the rest of the driver: each file covers one kernel API, in a form that could go upstream.
//!
//! | file | gives |
//! |---|---|
//! | [`gate`] | proof that the device is bound, for code that outlives the binding |
//! | [`pci`] | callbacks for reset, suspend, error recovery and shutdown, control of bus mastering |
//! | [`mmio`] | a BAR for code that outlives the binding, doorbell writes |
//! | [`dma`] | coherent memory as an array of 64-bit words |
//! | [`umem`] | user memory: pinned, accounted, mapped |
//! | [`irq`], [`poller`] | N vectors, and the poll that an interrupt schedules |
//! | [`watchdog`] | periodic work in process context |
//! | [`debugfs`] | the debugfs directory that all devices share |
//! | [`eventfd`] | signaling a process from any context |
//! | [`sync`] | completions with a timeout |
//! | [`task`] | privileges and limits of the calling task |
//! | [`rdma`] | RDMA devices |
//! | [`trace`] | trace points |
//! | [`compat`] | what differs from one series of the kernel to the next |
//!
//! `shim.c` and `common.c` wrap C macros and inline functions.
//!
//! # The device goes, the rest stays
//!
//! The memory of a process may outlive the binding between device and driver. So an object of a
//! process cannot borrow from the bound device. It refers to a [`gate::Gate`] instead:
//! entering an open gate gives a `&Device<Bound>`, and unbind waits for all passes. A DMA mapping
//! is released when it is dropped. If the device is gone by then, the mapping is leaked with a
//! message, since the device may still access the memory.
//!
//! # Values that are forgotten
//!
//! Forgetting a value of this folder only leaks it: devres owns what runs while the device is
//! bound, and memory that C code points to stays allocated. One condition remains, as for all
//! registrations of the kernel crate: values with C callbacks, such as a [`watchdog`], must be
//! dropped before the module is unloaded.

pub mod compat;
pub mod debugfs;
pub mod dma;
pub mod eventfd;
pub mod gate;
pub mod irq;
pub mod mmio;
pub mod pci;
pub mod poller;
mod raw;
pub mod rdma;
pub mod sync;
pub mod task;
pub mod trace;
pub mod umem;
pub mod watchdog;

use raw::{
    raw_device,
    raw_pci, //
};

// SAFETY: Only of a BAR.
unsafe impl rdma::context::Frame for mmio::Frame {
    fn number(&self) -> u64 {
        mmio::Frame::number(*self)
    }
}
