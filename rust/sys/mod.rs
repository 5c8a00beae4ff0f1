// SPDX-License-Identifier: GPL-2.0

//! What this driver needs of the kernel and upstream has no abstraction for.
//!
//! This folder is the only place that names `bindings` or says `unsafe`. Nothing in it but
//! the trace points knows queue pairs: each file is about one topic of the kernel and is shaped to
//! be sent upstream.
//!
//! | file | gives |
//! |---|---|
//! | [`gate`] | proof that the device is bound, for code that outlives the binding |
//! | [`pci`] | reset and shutdown callbacks, bus mastering that goes off again |
//! | [`mmio`] | a BAR reachable from code that outlives the binding, doorbell writes |
//! | [`dma`] | coherent memory as an array of 64-bit words |
//! | [`barrier`] | the order between memory and the device |
//! | [`umem`] | user memory: pinned, accounted, mapped |
//! | [`irq`], [`poller`] | N vectors, and the poll that an interrupt schedules |
//! | [`hotplug`] | word of CPUs that come and go |
//! | [`wait`] | sleeping until a softirq says so |
//! | [`watchdog`] | something that is done again and again |
//! | [`completion`] | waiting with a timeout that signals do not cut short |
//! | [`chardev`], [`door`] | a character device whose files and mappings the device may leave behind |
//! | [`eventfd`] | signalling a process from any context |
//! | [`current`] | what the calling task may do |
//! | [`trace`] | trace points |
//! | [`compat`] | the differences between the supported kernels, all of them |
//!
//! `shim.c` holds what only exists as a C macro or inline function.
//!
//! # The device goes, the rest stays
//!
//! Open files, their memory and their mappings outlive the binding between device and driver. So
//! nothing that a file owns can borrow from the bound device. What it owns names a
//! [`gate::Gate`] instead: as long as the gate is open, entering it gives a `&Device<Bound>`, and
//! unbind waits until everybody has left. What was mapped for DMA through the gate is unmapped
//! when it is dropped, or, should the device be gone by then, is leaked with a report rather than
//! given back while something may still reach it.
//!
//! # Values that are forgotten
//!
//! A value of this folder that is forgotten, not dropped, is leaked, and no more than that: what
//! runs while the device is bound belongs to the device core, and what C code has a pointer to
//! stays allocated. One condition is left, as for all registrations of the kernel crate: what C
//! code calls, such as a [`watchdog`], is dropped before the module is unloaded.

pub mod barrier;
pub mod chardev;
pub mod compat;
pub mod completion;
pub mod current;
pub mod debugroot;
pub mod dma;
pub mod door;
pub mod eventfd;
pub mod gate;
pub mod hotplug;
pub mod irq;
pub mod mmio;
pub mod pci;
pub mod poller;
pub mod trace;
pub mod umem;
pub mod wait;
pub mod watchdog;

use core::ptr;
use kernel::{
    bindings,
    device, //
};

/// The C side of a device.
fn raw_device<Ctx: device::DeviceContext>(dev: &device::Device<Ctx>) -> *mut bindings::device {
    // CAST: `Device` is a transparent wrapper of an `Opaque<struct device>`.
    ptr::from_ref(dev).cast_mut().cast()
}

/// The C side of a PCI device.
fn raw_pci<Ctx: device::DeviceContext>(dev: &kernel::pci::Device<Ctx>) -> *mut bindings::pci_dev {
    // CAST: `pci::Device` is a transparent wrapper of an `Opaque<struct pci_dev>`.
    ptr::from_ref(dev).cast_mut().cast()
}
