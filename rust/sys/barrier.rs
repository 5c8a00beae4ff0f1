// SPDX-License-Identifier: GPL-2.0

//! The order between memory and a bus-mastering device.
//!
//! The device and the CPU share rings in coherent memory. Coherence makes a write visible, it
//! does not make two writes visible in order; that is what these are for:
//!
//! - reading an entry that the device wrote: owner word, [`dma_rmb`], body;
//! - handing an entry to the device: body, [`dma_wmb`], then the word that publishes it. An MMIO
//!   write through [`super::mmio`] is such a publication by itself: the kernel's `writeq` orders
//!   it after all earlier writes to coherent memory;
//! - [`dma_mb`] where a write must be seen before a later read is done.
//!
//! All are callable in any context.

use super::compat;

/// Reads of device-written memory after this see at least what the ones before it saw.
#[inline(always)]
pub fn dma_rmb() {
    compat::dma_rmb();
}

/// The device sees the writes before this no later than those after it.
#[inline(always)]
pub fn dma_wmb() {
    compat::dma_wmb();
}

/// Both, and writes before reads.
#[inline(always)]
pub fn dma_mb() {
    compat::dma_mb();
}
