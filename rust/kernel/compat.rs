// SPDX-License-Identifier: GPL-2.0

//! What differs from one series of the kernel to the next.
//!
//! `Kbuild` has the range of series. It is Linux 7.3 alone; these are the items that were another
//! thing in 7.2. No other file is to look at the kernel's version: what a next series changes gets
//! its name here, with one definition for each series.

use kernel::{
    bindings,
    pci, //
};

/// The matching entry of the ID table, as probe gets it.
pub type IdInfo<'a, T> = Option<&'a T>;

/// A BAR that is taken away when the device unbinds.
pub type DevresBar<const SIZE: usize> = pci::DevresBar<SIZE>;

/// What an interrupt handler returns.
pub(super) type IrqReturn = bindings::irqreturn;
/// The interrupt was ours and is dealt with.
pub(super) const IRQ_HANDLED: IrqReturn = bindings::irqreturn::IRQ_HANDLED;

/// Declares the ID table of a PCI driver: `pci_table!(TABLE, Info, [(id, info), ..])`.
macro_rules! pci_table {
    ($table:ident, $info:ty, [$($entry:tt),* $(,)?]) => {
        ::kernel::pci_device_table!($table, $info, [$($entry),*]);
    };
}
pub(crate) use pci_table;
