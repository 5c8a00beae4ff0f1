// SPDX-License-Identifier: GPL-2.0

//! The driver of the qpair device.
//!
//! The modules, in reading order from the bottom up:
//!
//! | file | is |
//! |---|---|
//! | [`abi`] | the facts: registers, doorbells, entries, commands |
//! | [`queue`] | the rules: indices, credits, arming, the poll; `core` only |
//! | [`policy`] | decisions by numbers: moderation, quotas, recovery; `core` only |
//! | [`kernel`] | kernel APIs without an upstream abstraction; the only unsafe code |
//! | [`report`] | the texts of debugfs files |
//! | [`hw`] | the device by numbers and memory: registers, rings, polls, commands |
//! | [`life`] | bring-up and shutdown, recovery, the device's clients |
//! | [`object`] | the RDMA device and its objects, of processes and of kernel ULPs |
//! | [`loopback`] | the kernel's own client |
//! | [`debugfs`] | tables, tunables, and the loopback client's file |
//! | [`driver`] | probe and unbind |

#![deny(unsafe_code)]

pub mod abi;
pub mod policy;
pub mod queue;
// Private, so that rustc reports unused items; these are `pub`, as they would be upstream.
#[allow(unreachable_pub, unsafe_code)]
mod kernel;

mod debugfs;
mod driver;
mod hw;
#[cfg(CONFIG_KUNIT = "y")]
mod kunit;
mod life;
mod loopback;
mod object;
mod report;

// A doorbell page is a kernel page, and memory is pinned in kernel pages.
const _: () = assert!(
    ::kernel::page::PAGE_SIZE == abi::doorbell::PAGE_BYTES as usize,
    "qpair needs a kernel with pages of 4 KiB"
);

::kernel::prelude::module! {
    type: driver::Module,
    name: "qpair",
    authors: ["The qpair authors"],
    description: "Queue pairs",
    license: "GPL v2",
}
