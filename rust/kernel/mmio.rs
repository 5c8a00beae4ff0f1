// SPDX-License-Identifier: GPL-2.0

//! A BAR for code that outlives the binding.
//!
//! [`Bar`] is shared by the driver and processes. An access needs a `&Device<Bound>`, from a
//! [`Pass`](super::gate::Pass) or as the argument of an interrupt handler, and costs a comparison:
//! no RCU section, no reference count. It is unmapped at unbind.
//!
//! All reads of an unplugged device return ones: [`is_gone`].

use super::{
    compat::DevresBar,
    gate::Gate, //
};
use kernel::{
    device::{
        Bound,
        Device, //
    },
    io::Io,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    pci,
    prelude::*,
    sync::Arc, //
};

/// The number of a page frame of a BAR.
///
/// Only [`Bar::frame`] makes one, so a process can map device memory alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame(u64);

impl Frame {
    /// The physical address in pages.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A BAR of at least `SIZE` bytes, mapped until the device unbinds.
pub struct Bar<const SIZE: usize> {
    bar: DevresBar<SIZE>,
    /// The physical address of the first byte.
    start: u64,
    bytes: u64,
}

impl<const SIZE: usize> Bar<SIZE> {
    /// Requests BAR `index` as `name`, and maps it. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is in use, `ENOMEM` if it does not exist, is smaller than `SIZE` or cannot be
    /// mapped.
    pub fn new<'a>(
        pdev: &'a pci::Device<Bound>,
        gate: &Arc<Gate>,
        index: u32,
        name: &'static CStr,
    ) -> Result<Self> {
        let start = pdev.resource_start(index)?;
        let bytes = pdev.resource_len(index)?;
        let bar = pdev
            .iomap_region_sized::<SIZE>(index, name)?
            .into_devres()?;
        gate.seal_before_release(pdev.as_ref())?;
        Ok(Self { bar, start, bytes })
    }

    /// The registers. Any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `dev` is another device.
    #[inline]
    pub fn access<'a>(&'a self, dev: &'a Device<Bound>) -> Result<&'a pci::Bar<'a, SIZE>> {
        self.bar.access(dev)
    }

    /// One 64-bit write at `offset`, ordered after all earlier writes to coherent memory. Any
    /// context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `dev` is another device, or the offset lies outside or is not a multiple of 8.
    #[inline]
    pub fn doorbell(&self, dev: &Device<Bound>, offset: usize, value: u64) -> Result {
        self.bar.access(dev)?.try_write64(value, offset)
    }

    /// The page frame of the page at `offset`, for mapping it into a process.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the BAR does not contain the whole page.
    pub fn frame(&self, offset: u64) -> Result<Frame> {
        let page = PAGE_SIZE as u64;
        let end = offset.checked_add(page).ok_or(EINVAL)?;
        if end > self.bytes || (self.start | offset) & (page - 1) != 0 {
            return Err(EINVAL);
        }
        Ok(Frame((self.start + offset) >> PAGE_SHIFT))
    }
}

/// Whether a register reads as all ones, as without a device. For registers with a bit that is
/// always zero.
#[inline]
pub const fn is_gone(value: u32) -> bool {
    value == u32::MAX
}
