// SPDX-License-Identifier: GPL-2.0
//! The facts: what device, driver and user space must agree on, and nothing else.
//!
//! One source, compiled three times: into the module (`pub mod abi;`), into the
//! device model and into user space (the crate `qpair-abi`). It depends on `core`
//! alone, holds no state and decides nothing; what follows from the facts is in
//! [`queue`](../queue).
//!
//! | file | fixes |
//! |---|---|
//! | [`regs`] | the registers of BAR 0 |
//! | [`doorbell`] | the doorbell page, and the BARs |
//! | [`entry`] | what lies in the rings: WQE, CQE, EQE |
//! | [`command`] | admin commands and the contexts that they name |
//! | [`status`] | completion statuses, admin errors, events |
//! | [`counters`] | the device's counters |
//! | [`uverbs`] | the driver's part of uverbs commands |
//! | [`stream`] | the other function: registers and descriptors of its channels |
//!
//! Everything in memory that the device reads or writes is an array of 64-bit little-endian
//! *words*. An entry type has a `decode` from words and an `encode` into words, both total: any bit
//! pattern decodes, and the code that acts on the values checks them. So nothing here is
//! transmuted, nothing has padding, and a snapshot of shared memory is taken one whole word at a
//! time.

#![cfg_attr(not(MODULE), no_std)]
#![cfg_attr(not(MODULE), forbid(unsafe_code))]

#[cfg(not(target_endian = "little"))]
compile_error!("qpair's rings are little-endian and so are all hosts that it supports");

#[cfg(not(MODULE))]
#[macro_use]
mod described;
#[macro_use]
mod layout;
#[cfg(not(MODULE))]
#[macro_use]
mod offsets;
#[macro_use]
mod tables;
#[macro_use]
pub mod counters;
pub mod command;
pub mod doorbell;
pub mod entry;
mod number;
pub mod regs;
pub mod status;
#[cfg(not(MODULE))]
pub mod stream;
pub mod uverbs;

pub use self::layout::Field;
pub use self::number::Number;

/// PCI vendor of the function.
pub const PCI_VENDOR: u32 = 0x1234;
/// PCI device of the function.
pub const PCI_DEVICE: u32 = 0x5150;
/// PCI revision of the function.
pub const PCI_REVISION: u8 = 1;
