// SPDX-License-Identifier: GPL-2.0

//! Kernel APIs without an upstream abstraction, from `rust/kernel`.
//!
//! The module `qpair` reports what none of the two uses. It has not `dma_stream` (buffers that CPU and
//! device own in turn) and `mmio_block` (a block of registers in a BAR).

#[path = "../rust/kernel/compat.rs"]
pub mod compat;
#[path = "../rust/kernel/debugfs.rs"]
pub mod debugfs;
#[path = "../rust/kernel/dma.rs"]
pub mod dma;
#[path = "../rust/kernel/dma_stream.rs"]
pub mod dma_stream;
#[path = "../rust/kernel/gate.rs"]
pub mod gate;
#[path = "../rust/kernel/irq.rs"]
pub mod irq;
#[path = "../rust/kernel/mmio.rs"]
pub mod mmio;
#[path = "../rust/kernel/mmio_block.rs"]
pub mod mmio_block;
#[path = "../rust/kernel/pci.rs"]
pub mod pci;
#[path = "../rust/kernel/poller.rs"]
pub mod poller;
#[path = "../rust/kernel/raw.rs"]
mod raw;
#[path = "../rust/kernel/sync/mod.rs"]
pub mod sync;
#[path = "../rust/kernel/task.rs"]
pub mod task;
#[path = "../rust/kernel/watchdog.rs"]
pub mod watchdog;

use raw::{
    raw_device,
    raw_pci, //
};
