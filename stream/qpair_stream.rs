// SPDX-License-Identifier: GPL-2.0

//! The driver of the function of channels, `qpair-stream`: frames through memory, by three ways to
//! share a ring. `Documentation/ladder.rst` describes the three.
//!
//! It is a module of its own, `qpair-stream.ko`. The first five rows are files of `rust/`, which are
//! compiled for the module `qpair` too. From the bottom up:
//!
//! | file | is |
//! |---|---|
//! | [`abi`] | the facts of the function |
//! | [`queue`] | the rules of its rings |
//! | [`kernel`] | kernel APIs without an upstream abstraction |
//! | [`ring`] | the memory of rings |
//! | [`report`] | the texts of debugfs files |
//! | [`function`] | the registers of the function, and its reset |
//! | [`frames`] | frames, and the buffers that they are in |
//! | [`plan`] | the parameters of a run |
//! | [`chain`] | linked descriptors; the tail is an address; a status register |
//! | [`polled`] | one descriptor, no interrupt |
//! | [`headtail`] | an array; head and tail are indices; write-backs |
//! | [`client`] | the client, which moves frames and checks them |
//! | [`driver`] | probe and unbind |
//! | [`kunit`] | the rules of the rings, with the kernel's compiler and flags |

#![deny(unsafe_code)]

pub mod abi;
pub mod queue;
// Public: rustc would report what the module `qpair` alone uses.
#[allow(unsafe_code)]
pub mod kernel;

mod chain;
mod client;
mod driver;
mod frames;
mod function;
mod headtail;
#[cfg(CONFIG_KUNIT = "y")]
mod kunit;
mod plan;
mod polled;
#[path = "../rust/report.rs"]
mod report;
#[path = "../rust/hw/ring.rs"]
mod ring;

::kernel::prelude::module! {
    type: driver::Module,
    name: "qpair_stream",
    authors: ["The qpair authors"],
    description: "Channels of descriptors",
    license: "GPL v2",
}
