// SPDX-License-Identifier: GPL-2.0

//! The C side of devices.

use core::ptr;
use kernel::{
    bindings,
    device, //
};

/// The C side of a device.
pub(super) fn raw_device<Ctx: device::DeviceContext>(
    dev: &device::Device<Ctx>,
) -> *mut bindings::device {
    // CAST: `Device` is a transparent wrapper of an `Opaque<struct device>`.
    ptr::from_ref(dev).cast_mut().cast()
}

/// The C side of a PCI device.
pub(super) fn raw_pci<Ctx: device::DeviceContext>(
    dev: &kernel::pci::Device<Ctx>,
) -> *mut bindings::pci_dev {
    // CAST: `pci::Device` is a transparent wrapper of an `Opaque<struct pci_dev>`.
    ptr::from_ref(dev).cast_mut().cast()
}
