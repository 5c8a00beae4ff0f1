// SPDX-License-Identifier: GPL-2.0

//! DMA memory barriers.
//!
//! The device and the CPU share rings in coherent memory. Coherence makes each write visible, but
//! does not order two writes. The barriers do:
//!
//! - reading an entry that the device wrote: owner word, [`dma_rmb`], body;
//! - handing an entry to the device: body, [`dma_wmb`], then the word that publishes it. An MMIO
//!   write through [`super::mmio`] is such a publication by itself: the kernel's `writeq` orders
//!   it after all earlier writes to coherent memory;
//! - [`dma_mb`] where a write must be seen before a later read is done.
//!
//! All are callable in any context.

use super::compat;

/// Orders earlier reads of device-written memory before later ones.
#[inline(always)]
pub fn dma_rmb() {
    compat::dma_rmb();
}

/// Orders earlier writes, as the device sees them, before later ones.
#[inline(always)]
pub fn dma_wmb() {
    compat::dma_wmb();
}

/// Both, and earlier writes before later reads.
#[inline(always)]
pub fn dma_mb() {
    compat::dma_mb();
}
