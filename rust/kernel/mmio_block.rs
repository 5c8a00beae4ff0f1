// SPDX-License-Identifier: GPL-2.0

//! A block of registers in a BAR, as a channel of a device has one.

use super::mmio::Bar;
use kernel::{
    device::{
        Bound,
        Device, //
    },
    io::{
        IoBackend,
        IoBase,
        Mmio,
        MmioBackend,
        MmioRaw,
        Region, //
    },
    prelude::*, //
};

/// The `BYTES` bytes of registers of `bar` from `offset` on. Any context.
///
/// # Errors
///
/// `EINVAL` if `dev` is another device, or the block lies outside or is not aligned.
#[inline]
pub fn block<'a, const SIZE: usize, const BYTES: usize>(
    bar: &'a Bar<SIZE>,
    dev: &'a Device<Bound>,
    offset: usize,
) -> Result<Mmio<'a, Region<BYTES>>> {
    let whole = MmioBackend::as_ptr(bar.access(dev)?.as_view());
    let end = offset.checked_add(BYTES).ok_or(EINVAL)?;
    if end > SIZE {
        return Err(EINVAL);
    }
    let block = MmioRaw::new_region(whole.addr() + offset, BYTES)?;
    // SAFETY: Within the BAR, which is mapped while the device is bound.
    Ok(unsafe { Mmio::from_raw(block) })
}
