// SPDX-License-Identifier: GPL-2.0

//! Memory regions.

use super::{
    bindings,
    context::Caller,
    details::Details,
    missing::is_undone,
    object::{
        errno,
        when,
        CoreObject,
        Ops, //
    },
    pd::CorePd,
    udata::Udata,
    Driver, //
};
use core::{
    mem::MaybeUninit,
    ptr, //
};
use kernel::{
    error::VTABLE_DEFAULT_ERROR,
    prelude::*, //
};

/// The attributes of a memory region that is registered.
#[derive(Clone, Copy, Debug)]
pub struct MrRequest {
    /// The address of its first byte in the process.
    pub start: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The address by which the device is given it.
    pub iova: u64,
    /// Rights of the owner and of peers: `IB_ACCESS_*`.
    pub access: u32,
}

/// A change of a memory region.
#[derive(Clone, Copy, Debug, Default)]
pub struct MrChange {
    /// Other memory: where it is in the process, its length in bytes, and the address by which the
    /// device is given it.
    pub memory: Option<(u64, u64, u64)>,
    /// Other rights of the owner and of peers: `IB_ACCESS_*`.
    pub access: Option<u32>,
}

/// A memory region of a process, or all memory for a kernel ULP.
#[vtable]
pub trait Operations<T: Driver>: Sized + Send + Sync {
    /// Registers memory of a process. Returns also its local and remote key.
    fn register(
        pd: &T::Pd,
        request: MrRequest,
        context: &T::Context,
        udata: Udata<'_>,
    ) -> Result<(Self, u32, u32)>;

    /// Registers all memory that the device can access, by DMA addresses, for a kernel ULP. Returns
    /// also its key.
    fn all_memory(_pd: &T::Pd, _access: u32) -> Result<(Self, u32)> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Changes it, to another domain too if `pd` is one. Not called concurrently for one region.
    fn rereg(&self, _change: MrChange, _pd: Option<&T::Pd>, _udata: Udata<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Undoes it; or fails, and gives it back: windows are bound to it. What is given back and
    /// dropped, after a register that is undone, goes with its domain. On success the device no longer
    /// accesses its memory, or the driver keeps that.
    fn deregister(self) -> Result<(), (Self, Error)>;

    /// Adds the driver's details for `rdma resource`. Not concurrently with a destroy.
    fn details(&self, _details: &mut Details<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

type CoreMr<T> = CoreObject<bindings::ib_mr, <T as Driver>::Mr>;

impl<T: Driver> Ops<T> {
    pub(super) const MR: bindings::ib_device_ops = bindings::ib_device_ops {
        get_dma_mr: when(T::Mr::HAS_ALL_MEMORY, Self::get_dma_mr),
        reg_user_mr: Some(Self::reg_user_mr),
        rereg_user_mr: when(T::Mr::HAS_REREG, Self::rereg_user_mr),
        dereg_mr: Some(Self::dereg_mr),
        fill_res_mr_entry: when(T::Mr::HAS_DETAILS, Self::fill_res_mr_entry),
        ..Self::NONE
    };

    /// The core's structure of a region that `register` makes, with its keys; the core has it until it
    /// calls `dereg_mr`.
    fn region(
        register: impl FnOnce() -> Result<(T::Mr, u32, u32)>,
        flags: kernel::alloc::Flags,
    ) -> *mut bindings::ib_mr {
        let made = KBox::<CoreMr<T>>::new_uninit(flags).map_err(Error::from);
        let made = made.and_then(|mut mr| {
            let (part, lkey, rkey) = register()?;
            let raw: *mut bindings::ib_mr = mr.as_mut_ptr().cast();
            // SAFETY: The structure that was just allocated begins with the core's.
            unsafe {
                raw.write(Default::default());
                (*raw).lkey = lkey;
                (*raw).rkey = rkey;
                CoreMr::<T>::put(raw, part);
            }
            Ok(KBox::into_raw(mr).cast())
        });
        made.unwrap_or_else(|error| error.to_ptr())
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn reg_user_mr(
        pd: *mut bindings::ib_pd,
        start: u64,
        bytes: u64,
        iova: u64,
        access: c_int,
        dmah: *mut bindings::ib_dmah,
        udata: *mut bindings::ib_udata,
    ) -> *mut bindings::ib_mr {
        if !dmah.is_null() {
            return EOPNOTSUPP.to_ptr();
        }
        let request = MrRequest {
            start,
            bytes,
            iova,
            // CAST: A set of bits.
            access: access as u32,
        };
        let register = || {
            // SAFETY: Called by the core, with a domain of this device and the command that runs.
            let (pd, caller) =
                unsafe { (CorePd::<T>::get(pd), Caller::<T>::new((*pd).device, udata)?) };
            let (context, udata) = caller.process()?;
            T::Mr::register(pd, request, context, udata)
        };
        Self::region(register, GFP_KERNEL_ACCOUNT)
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn get_dma_mr(
        pd: *mut bindings::ib_pd,
        access: c_int,
    ) -> *mut bindings::ib_mr {
        // SAFETY: Called by the core, with a domain of the kernel.
        let pd = unsafe { CorePd::<T>::get(pd) };
        let register = || {
            // CAST: A set of bits.
            let (part, key) = T::Mr::all_memory(pd, access as u32)?;
            Ok((part, key, key))
        };
        Self::region(register, GFP_KERNEL)
    }

    /// Changes a region, which stays the same object.
    ///
    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn rereg_user_mr(
        mr: *mut bindings::ib_mr,
        flags: c_int,
        start: u64,
        bytes: u64,
        iova: u64,
        access: c_int,
        pd: *mut bindings::ib_pd,
        udata: *mut bindings::ib_udata,
    ) -> *mut bindings::ib_mr {
        if udata.is_null() {
            return EOPNOTSUPP.to_ptr();
        }
        // CAST: A set of bits, here and below.
        let wants = |flag: bindings::ib_mr_rereg_flags| flags as u32 & flag != 0;
        let change = MrChange {
            memory: wants(bindings::ib_mr_rereg_flags_IB_MR_REREG_TRANS)
                .then_some((start, bytes, iova)),
            access: wants(bindings::ib_mr_rereg_flags_IB_MR_REREG_ACCESS).then_some(access as u32),
        };
        // SAFETY: Called by the core, with a region of this driver that is not destroyed meanwhile,
        // the domain that it shall have, and the command that runs.
        let changed = unsafe {
            let pd =
                wants(bindings::ib_mr_rereg_flags_IB_MR_REREG_PD).then(|| CorePd::<T>::get(pd));
            CoreMr::<T>::get(mr).rereg(change, pd, Udata::new(udata))
        };
        match changed {
            // No other object.
            Ok(()) => ptr::null_mut(),
            Err(error) => error.to_ptr(),
        }
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn dereg_mr(
        mr: *mut bindings::ib_mr,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: Called by the core, with what `region` has returned; again if it fails.
        unsafe {
            match CoreMr::<T>::take(mr).deregister() {
                Err((part, error)) if !is_undone(mr) => {
                    CoreMr::<T>::put(mr, part);
                    return error.to_errno();
                }
                Err((part, _)) => drop(part),
                Ok(()) => {}
            }
            drop(KBox::from_raw(mr.cast::<MaybeUninit<CoreMr<T>>>()));
        }
        0
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn fill_res_mr_entry(
        message: *mut kernel::bindings::sk_buff,
        mr: *mut bindings::ib_mr,
    ) -> c_int {
        // SAFETY: Called by the core, with a region of this driver that is not destroyed meanwhile.
        errno(unsafe { Details::write(message, |details| CoreMr::<T>::get(mr).details(details)) })
    }
}
