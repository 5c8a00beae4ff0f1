// SPDX-License-Identifier: GPL-2.0

//! The differences between Linux 7.2 and 7.3.
//!
//! No other file looks at the kernel's version. What is the same in both is not here.

#[cfg(kernel_7_3)]
pub use self::v7_3::*;

#[cfg(not(kernel_7_3))]
pub use self::v7_2::*;

#[cfg(kernel_7_3)]
mod v7_3 {
    use kernel::{
        bindings,
        module,
        pci,
        sync::barrier, //
    };

    /// What probe is told about the matching entry of the ID table.
    pub type IdInfo<'a, T> = Option<&'a T>;

    /// A BAR that is taken away when the device unbinds.
    pub type DevresBar<const SIZE: usize> = pci::DevresBar<SIZE>;

    /// This module, for the `owner` of file operations.
    pub(in super::super) const OWNER: *mut bindings::module =
        module::this_module::<crate::LocalModule>().as_ptr();

    /// What an interrupt handler returns.
    pub(in super::super) type IrqReturn = bindings::irqreturn;
    /// The interrupt was ours and is dealt with.
    pub(in super::super) const IRQ_HANDLED: IrqReturn = bindings::irqreturn::IRQ_HANDLED;

    /// Orders reads of memory that a device writes.
    #[inline(always)]
    pub(in super::super) fn dma_rmb() {
        barrier::dma_mb(barrier::Read);
    }

    /// Orders writes to memory that a device reads.
    #[inline(always)]
    pub(in super::super) fn dma_wmb() {
        barrier::dma_mb(barrier::Write);
    }

    /// Orders both.
    #[inline(always)]
    pub(in super::super) fn dma_mb() {
        barrier::dma_mb(barrier::Full);
    }

    /// Declares the ID table of a PCI driver: `pci_table!(TABLE, Info, [(id, info), ..])`.
    macro_rules! pci_table {
        ($table:ident, $info:ty, [$($entry:tt),* $(,)?]) => {
            ::kernel::pci_device_table!($table, $info, [$($entry),*]);
        };
    }
    pub(crate) use pci_table;
}

#[cfg(not(kernel_7_3))]
mod v7_2 {
    use kernel::{
        bindings,
        devres::Devres,
        pci, //
    };

    /// What probe is told about the matching entry of the ID table.
    pub type IdInfo<'a, T> = &'a T;

    /// A BAR that is taken away when the device unbinds.
    pub type DevresBar<const SIZE: usize> = Devres<pci::Bar<'static, SIZE>>;

    /// This module, for the `owner` of file operations.
    pub(in super::super) const OWNER: *mut bindings::module = crate::THIS_MODULE.as_ptr();

    /// What an interrupt handler returns.
    pub(in super::super) type IrqReturn = bindings::irqreturn_t;
    /// The interrupt was ours and is dealt with.
    pub(in super::super) const IRQ_HANDLED: IrqReturn = bindings::irqreturn_IRQ_HANDLED;

    unsafe extern "C" {
        safe fn qpair_dma_rmb();
        safe fn qpair_dma_wmb();
        safe fn qpair_dma_mb();
    }

    /// Orders reads of memory that a device writes.
    #[inline(always)]
    pub(in super::super) fn dma_rmb() {
        qpair_dma_rmb();
    }

    /// Orders writes to memory that a device reads.
    #[inline(always)]
    pub(in super::super) fn dma_wmb() {
        qpair_dma_wmb();
    }

    /// Orders both.
    #[inline(always)]
    pub(in super::super) fn dma_mb() {
        qpair_dma_mb();
    }

    /// Declares the ID table of a PCI driver: `pci_table!(TABLE, Info, [(id, info), ..])`.
    macro_rules! pci_table {
        ($table:ident, $info:ty, [$($entry:tt),* $(,)?]) => {
            ::kernel::macros::paste! {
                ::kernel::pci_device_table!($table, [<MODULE_ $table>], $info, [$($entry),*]);
            }
        };
    }
    pub(crate) use pci_table;
}

/// A quota is used up: a code that only the newer kernel names.
pub fn edquot() -> kernel::error::Error {
    kernel::error::Error::from_errno(-(kernel::bindings::EDQUOT as kernel::ffi::c_int))
}
