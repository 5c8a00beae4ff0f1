// SPDX-License-Identifier: GPL-2.0

//! Extends [`kernel::pci`]: callbacks for reset, suspend, error recovery and shutdown, and control
//! of bus mastering.
//!
//! C headers: [`include/linux/pci.h`](srctree/include/linux/pci.h),
//! [`include/linux/pm.h`](srctree/include/linux/pm.h)
//!
//! [`Adapter`] registers a driver as [`kernel::pci::Adapter`] does, and also sets `err_handler`,
//! `driver.pm` and `shutdown`. All callbacks run under the device lock, so they exclude probe,
//! unbind and each other: the PCI core takes it for resets (`pci_dev_lock()`) and for error
//! recovery (`drivers/pci/pcie/err.c`), the PM core for suspend and resume
//! (`drivers/base/power/main.c`). The lock is released between two callbacks, so a device may be
//! unbound, and bound again, between an error and the reset of its slot.

use kernel::{
    bindings,
    container_of,
    device::{
        Bound,
        Core,
        CoreInternal,
        Device, //
    },
    driver::{
        DriverLayout,
        RegistrationOps, //
    },
    error::to_result,
    pci,
    prelude::*,
    types::Opaque, //
};

/// The ID that matches a vendor and a device, whatever the subsystem.
///
/// [`pci::DeviceId::from_id`] takes a [`pci::Vendor`], which is a closed list.
pub const fn device_id(vendor: u32, device: u32) -> pci::DeviceId {
    const ANY: u32 = !0;
    let raw = bindings::pci_device_id {
        vendor,
        device,
        subvendor: ANY,
        subdevice: ANY,
        class: 0,
        class_mask: 0,
        driver_data: 0,
        override_only: 0,
    };
    // SAFETY: `DeviceId` is a transparent wrapper of `pci_device_id` without further invariants.
    unsafe { core::mem::transmute::<bindings::pci_device_id, pci::DeviceId>(raw) }
}

/// The state of the channel to a device: `pci_channel_state_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// I/O works. A transaction was lost.
    Normal,
    /// I/O is blocked until the slot is reset.
    Frozen,
    /// Recovery has failed. The device is inaccessible.
    Failed,
}

impl Channel {
    fn from_raw(state: bindings::pci_channel_state_t) -> Self {
        match state {
            bindings::pci_channel_io_normal => Self::Normal,
            bindings::pci_channel_io_frozen => Self::Frozen,
            _ => Self::Failed,
        }
    }
}

/// A driver's answer to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Verdict {
    /// The device continues without a reset.
    CanRecover = bindings::pci_ers_result_PCI_ERS_RESULT_CAN_RECOVER,
    /// The slot needs a reset.
    NeedReset = bindings::pci_ers_result_PCI_ERS_RESULT_NEED_RESET,
    /// The slot was reset, and the device answers.
    Recovered = bindings::pci_ers_result_PCI_ERS_RESULT_RECOVERED,
    /// The device is lost.
    Disconnect = bindings::pci_ers_result_PCI_ERS_RESULT_DISCONNECT,
}

/// A PCI driver with callbacks for reset, suspend, error recovery and shutdown.
///
/// All callbacks are in process context, may sleep, and hold the device lock.
pub trait Callbacks: pci::Driver {
    /// The PCI core is about to reset the function (sysfs, VFIO). On return the driver must not
    /// access the device, and the device must not access memory.
    fn reset_prepare<'a>(pdev: &'a pci::Device<Bound>, data: Pin<&Self::Data<'a>>);

    /// The reset is over and the configuration space restored.
    fn reset_done<'a>(pdev: &'a pci::Device<Bound>, data: Pin<&Self::Data<'a>>);

    /// The system is suspended (suspend), or a hibernation image is about to be created (freeze) or
    /// was written (poweroff). On return the driver must not access the device, and the device must
    /// not access memory. The PCI core saves the configuration space.
    ///
    /// # Errors
    ///
    /// The DMA of the device cannot be stopped. The system is not suspended, and no
    /// [`Self::resume`] follows.
    fn suspend<'a>(pdev: &'a pci::Device<Bound>, data: Pin<&Self::Data<'a>>) -> Result;

    /// The system resumes, with the configuration space restored (resume, thaw, restore). The
    /// device may have lost power, or have been used by another kernel.
    fn resume<'a>(pdev: &'a pci::Device<Bound>, data: Pin<&Self::Data<'a>>);

    /// An uncorrectable error was reported for the device or its link. Unless `channel` is
    /// [`Channel::Normal`], on return the driver must not access the device.
    fn error_detected<'a>(
        pdev: &'a pci::Device<Bound>,
        data: Pin<&Self::Data<'a>>,
        channel: Channel,
    ) -> Verdict;

    /// The slot was reset after an error, and the configuration space restored. The driver may
    /// access the device; it restarts the device in [`Self::error_resume`].
    fn slot_reset<'a>(pdev: &'a pci::Device<Bound>, data: Pin<&Self::Data<'a>>) -> Verdict;

    /// Recovery from an error is over, with a reset of the slot or without.
    fn error_resume<'a>(pdev: &'a pci::Device<Bound>, data: Pin<&Self::Data<'a>>);

    /// The system shuts down, or kexec starts another kernel. On return the device must not access
    /// memory.
    fn shutdown<'a>(pdev: &'a pci::Device<Bound>, data: Pin<&Self::Data<'a>>);
}

/// The adapter of a driver with [`Callbacks`], for [`kernel::driver::Registration`].
pub struct Adapter<T: Callbacks>(T);

// SAFETY: All three items are those of `pci::Adapter`, which vouches for them.
unsafe impl<T: Callbacks> DriverLayout for Adapter<T> {
    type DriverType = <pci::Adapter<T> as DriverLayout>::DriverType;
    type DriverData<'bound> = <pci::Adapter<T> as DriverLayout>::DriverData<'bound>;
    const DEVICE_DRIVER_OFFSET: usize = <pci::Adapter<T> as DriverLayout>::DEVICE_DRIVER_OFFSET;
}

// SAFETY: Registers and unregisters through `pci::Adapter`, whose implementation keeps the
// contract.
unsafe impl<T: Callbacks> RegistrationOps for Adapter<T> {
    unsafe fn register(
        reg: &Opaque<Self::DriverType>,
        name: &'static CStr,
        module: &'static ThisModule,
    ) -> Result {
        // SAFETY: The structure is not registered yet, so it may be written. `pci::Adapter` sets
        // other fields.
        unsafe {
            (*reg.get()).err_handler = &Self::ERROR_HANDLERS;
            (*reg.get()).driver.pm = &Self::PM_OPS;
            (*reg.get()).shutdown = Some(Self::shutdown_callback);
        }
        // SAFETY: The caller's promises are passed on.
        unsafe { <pci::Adapter<T> as RegistrationOps>::register(reg, name, module) }
    }

    unsafe fn unregister(reg: &Opaque<Self::DriverType>) {
        // SAFETY: The caller's promises are passed on.
        unsafe { <pci::Adapter<T> as RegistrationOps>::unregister(reg) }
    }
}

impl<T: Callbacks> Adapter<T> {
    const ERROR_HANDLERS: bindings::pci_error_handlers = bindings::pci_error_handlers {
        error_detected: Some(Self::error_detected_callback),
        slot_reset: Some(Self::slot_reset_callback),
        resume: Some(Self::error_resume_callback),
        reset_prepare: Some(Self::reset_prepare_callback),
        reset_done: Some(Self::reset_done_callback),
        ..pin_init::zeroed()
    };

    const PM_OPS: bindings::dev_pm_ops = bindings::dev_pm_ops {
        suspend: Some(Self::suspend_callback),
        resume: Some(Self::resume_callback),
        freeze: Some(Self::suspend_callback),
        thaw: Some(Self::resume_callback),
        poweroff: Some(Self::suspend_callback),
        restore: Some(Self::resume_callback),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// Called by the PCI core in a callback of a registered driver for a device that is bound to
    /// it, with the device lock held.
    unsafe fn with<R>(
        pdev: *mut bindings::pci_dev,
        f: impl for<'a> FnOnce(&'a pci::Device<Bound>, Pin<&T::Data<'a>>) -> R,
    ) -> R {
        // SAFETY: The PCI core passes a valid device, which cannot unbind while the lock is held.
        let pdev = unsafe { &*pdev.cast::<pci::Device<CoreInternal<'_>>>() };
        // SAFETY: Probe and unbind run under the same lock. After a probe that failed, and after
        // unbind, the core does not call a driver. So probe has succeeded and has stored its data,
        // which are of this type and have not been taken yet.
        let data = unsafe { pdev.as_ref().drvdata_borrow::<T::Data<'_>>() };
        f(pdev, data)
    }

    /// # Safety
    ///
    /// Called by the PM core, for the `struct device` of a PCI device, as [`Self::with`] wants it.
    unsafe fn with_device(
        dev: *mut bindings::device,
        f: for<'a> fn(&'a pci::Device<Bound>, Pin<&T::Data<'a>>) -> Result,
    ) -> c_int {
        // SAFETY: Only PCI devices are bound to a PCI driver, so `dev` is embedded in a `pci_dev`.
        let pdev = unsafe { container_of!(dev, bindings::pci_dev, dev) };
        // SAFETY: The caller's promises are passed on.
        match unsafe { Self::with(pdev, f) } {
            Ok(()) => 0,
            Err(error) => error.to_errno(),
        }
    }

    /// # Safety
    ///
    /// Called by the PCI core, as [`Self::with`] wants it.
    unsafe extern "C" fn reset_prepare_callback(pdev: *mut bindings::pci_dev) {
        // SAFETY: Called by the PCI core under the device lock.
        unsafe { Self::with(pdev, T::reset_prepare) };
    }

    /// # Safety
    ///
    /// Called by the PCI core, as [`Self::with`] wants it.
    unsafe extern "C" fn reset_done_callback(pdev: *mut bindings::pci_dev) {
        // SAFETY: Called by the PCI core under the device lock.
        unsafe { Self::with(pdev, T::reset_done) };
    }

    /// # Safety
    ///
    /// Called by the PM core, as [`Self::with_device`] wants it.
    unsafe extern "C" fn suspend_callback(dev: *mut bindings::device) -> c_int {
        // SAFETY: Called by the PM core under the device lock.
        unsafe { Self::with_device(dev, T::suspend) }
    }

    /// # Safety
    ///
    /// Called by the PM core, as [`Self::with_device`] wants it.
    unsafe extern "C" fn resume_callback(dev: *mut bindings::device) -> c_int {
        // SAFETY: Called by the PM core under the device lock.
        unsafe {
            Self::with_device(dev, |pdev, data| {
                T::resume(pdev, data);
                Ok(())
            })
        }
    }

    /// # Safety
    ///
    /// Called by the PCI core, as [`Self::with`] wants it.
    unsafe extern "C" fn error_detected_callback(
        pdev: *mut bindings::pci_dev,
        state: bindings::pci_channel_state_t,
    ) -> bindings::pci_ers_result_t {
        let channel = Channel::from_raw(state);
        // SAFETY: Called by the PCI core under the device lock.
        // CAST: The discriminant.
        unsafe { Self::with(pdev, |pdev, data| T::error_detected(pdev, data, channel)) as u32 }
    }

    /// # Safety
    ///
    /// Called by the PCI core, as [`Self::with`] wants it.
    unsafe extern "C" fn slot_reset_callback(
        pdev: *mut bindings::pci_dev,
    ) -> bindings::pci_ers_result_t {
        // The core leaves this to drivers. It restores the command register before the MSI-X table,
        // which is in a BAR and needs memory decoding.
        //
        // SAFETY: The device is valid, and was saved in `Enabled::new`.
        unsafe { bindings::pci_restore_state(pdev) };
        // SAFETY: Called by the PCI core under the device lock.
        // CAST: The discriminant.
        unsafe { Self::with(pdev, T::slot_reset) as u32 }
    }

    /// # Safety
    ///
    /// Called by the PCI core, as [`Self::with`] wants it.
    unsafe extern "C" fn error_resume_callback(pdev: *mut bindings::pci_dev) {
        // SAFETY: Called by the PCI core under the device lock.
        unsafe { Self::with(pdev, T::error_resume) };
    }

    /// # Safety
    ///
    /// Called by the driver core, as [`Self::with`] wants it.
    unsafe extern "C" fn shutdown_callback(pdev: *mut bindings::pci_dev) {
        // SAFETY: Called by the driver core under the device lock.
        unsafe { Self::with(pdev, T::shutdown) };
    }
}

/// An enabled device. Its drop clears bus mastering and disables the device.
///
/// It is created first and dropped last: everything else needs an enabled device.
pub struct Enabled<'a> {
    pdev: &'a pci::Device<Bound>,
}

impl<'a> Enabled<'a> {
    /// Enables the device, and saves its configuration space, which is restored after a reset of
    /// the slot. Does not enable bus mastering, see [`set_master`]. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of `pci_enable_device_mem()`.
    pub fn new(pdev: &'a pci::Device<Core<'_>>) -> Result<Self> {
        pdev.enable_device_mem()?;
        let enabled = Self { pdev };
        // SAFETY: The device is bound. In probe, so the device lock is held, and no reset is under
        // way that has saved another state.
        to_result(unsafe { bindings::pci_save_state(super::raw_pci(pdev)) })?;
        Ok(enabled)
    }
}

impl Drop for Enabled<'_> {
    fn drop(&mut self) {
        // SAFETY: The device is bound, and `new` has enabled it once.
        unsafe {
            bindings::pci_clear_master(super::raw_pci(self.pdev));
            bindings::pci_disable_device(super::raw_pci(self.pdev));
        }
    }
}

/// The state of bus mastering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Mastering {
    /// The device may access memory.
    On,
    /// The device may access no memory, and sends no interrupt.
    Off,
    /// The device does not answer: all reads return ones. It is unplugged or broken.
    Gone,
}

/// Enables bus mastering. The device must have been reset, so that it has no addresses of earlier
/// use. Process context.
pub fn set_master(pdev: &pci::Device<Bound>) {
    // SAFETY: The device is bound.
    unsafe { bindings::pci_set_master(super::raw_pci(pdev)) };
}

/// Disables bus mastering, and reads the result back. The read also flushes earlier posted writes
/// of the device. A device that does not answer is not written to. Process context.
pub fn clear_master(pdev: &pci::Device<Bound>) -> Mastering {
    let before = mastering(pdev);
    if before != Mastering::On {
        return before;
    }
    // SAFETY: The device is bound.
    unsafe { bindings::pci_clear_master(super::raw_pci(pdev)) };
    mastering(pdev)
}

/// Reads the state of bus mastering from the device. Process context.
pub fn mastering(pdev: &pci::Device<Bound>) -> Mastering {
    const ALL_ONES: u16 = !0;
    let mut command = ALL_ONES;
    // SAFETY: The device is bound, and `command` can be written.
    let error = unsafe {
        bindings::pci_read_config_word(
            super::raw_pci(pdev),
            bindings::PCI_COMMAND as c_int,
            &mut command,
        )
    };
    if error != 0 || command == ALL_ONES {
        Mastering::Gone
    } else if u32::from(command) & bindings::PCI_COMMAND_MASTER != 0 {
        Mastering::On
    } else {
        Mastering::Off
    }
}

/// The channel state of `dev`, as far as the PCI core knows. Any context.
///
/// # Errors
///
/// `EINVAL` if it is no PCI device.
pub fn channel(dev: &Device<Bound>) -> Result<Channel> {
    let pdev: &pci::Device<Bound> = dev.try_into()?;
    // SAFETY: A valid device. The PCI core changes the field at any time, and as a whole.
    let state = unsafe { (&raw const (*super::raw_pci(pdev)).error_state).read_volatile() };
    Ok(Channel::from_raw(state))
}

/// Resets the function of `dev`, as sysfs does, with the reset callbacks of its driver. Takes the
/// device lock and calls `is_wanted`, since the device may have been reset meanwhile; if that
/// returns false, does nothing. After an attempt it calls `tried`, with the lock still held.
/// Process context; sleeps.
///
/// # Errors
///
/// `EAGAIN` if another task, which may be unbinding the driver, holds the device lock; `EINVAL` if
/// it is not a PCI device; those of the reset, `ENOTTY` if no reset method is supported.
pub fn try_reset(dev: &Device, is_wanted: impl FnOnce() -> bool, tried: impl FnOnce()) -> Result {
    let pdev: &pci::Device = dev.try_into()?;
    let pdev = super::raw_pci(pdev);
    // SAFETY: A valid device.
    if unsafe { bindings::pci_dev_trylock(pdev) } == 0 {
        return Err(EAGAIN);
    }
    let result = if is_wanted() {
        // SAFETY: A valid device, whose lock is held.
        let result = to_result(unsafe { bindings::pci_reset_function_locked(pdev) });
        tried();
        result
    } else {
        Ok(())
    };
    // SAFETY: Locked above.
    unsafe { bindings::pci_dev_unlock(pdev) };
    result
}
