// SPDX-License-Identifier: GPL-2.0

//! Operations on memory regions and memory windows.

use super::{
    bindings,
    object::Object,
    ops::{
        errno,
        Ops,
        Pd, //
    },
    udata::Udata,
    work::Side,
    Driver,
    MrChange,
    MrRequest,
    MwType, //
};
use core::{
    mem::MaybeUninit,
    ptr, //
};
use kernel::prelude::*;

pub(super) type Mr<T> = Object<bindings::ib_mr, Side<<T as Driver>::Mr, <T as Driver>::KernelMr>>;
pub(super) type Mw<T> = Object<bindings::ib_mw, <T as Driver>::Mw>;

/// Whether a region of a process is destroyed because the answer to its create could not be written.
/// The core warns if that fails (`rdma_alloc_abort_uobject()`).
///
/// # Safety
///
/// Called by the core's destroy of the region.
unsafe fn is_undone(mr: *mut bindings::ib_mr) -> bool {
    // SAFETY: The core has set the handle of a region of a process, and holds it exclusively. It adds
    // the handle to the list of the file once the answer is written, and removes it after the destroy.
    // Neighbours on the list may write to the entry meanwhile, but never make it empty.
    unsafe {
        let uobject = *(*mr).__bindgen_anon_1.uobject.as_ref();
        let list = &raw mut (*uobject).list;
        (&raw const (*list).next).read_volatile() == list
    }
}

impl<T: Driver> Ops<T> {
    /// # Safety
    ///
    /// Called by the core.
    pub(super) unsafe extern "C" fn reg_user_mr(
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
        // SAFETY: Called by the core, with a domain of this device.
        let made = unsafe {
            Self::for_process(udata, |context, udata| {
                let mut mr = KBox::<Mr<T>>::new_uninit(GFP_KERNEL_ACCOUNT)?;
                let (part, lkey, rkey) =
                    T::reg_mr(context, Pd::<T>::get(pd).process()?, request, udata)?;
                let raw: *mut bindings::ib_mr = mr.as_mut_ptr().cast();
                raw.write(Default::default());
                (*raw).lkey = lkey;
                (*raw).rkey = rkey;
                Mr::<T>::put(raw, Side::Process(part));
                // The core has it until it calls `dereg_mr`.
                Ok(KBox::into_raw(mr).cast())
            })
        };
        match made {
            Ok(mr) => mr,
            Err(error) => error.to_ptr(),
        }
    }

    /// Changes a region, which stays the same object.
    ///
    /// # Safety
    ///
    /// Called by the core.
    pub(super) unsafe extern "C" fn rereg_user_mr(
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
            let pd = wants(bindings::ib_mr_rereg_flags_IB_MR_REREG_PD).then(|| Pd::<T>::get(pd));
            let pd = pd.map(Side::process).transpose();
            let mr = Mr::<T>::get(mr).process();
            pd.and_then(|pd| T::rereg_mr(mr?, change, pd, Udata::new(udata)))
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
    pub(super) unsafe extern "C" fn dereg_mr(
        mr: *mut bindings::ib_mr,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: Called by the core, with what `reg_user_mr` has returned; again if it fails.
        unsafe {
            match Mr::<T>::take(mr) {
                Side::Kernel(part) => T::kernel_dereg_mr(part),
                Side::Process(part) => match T::dereg_mr(part) {
                    Err((part, error)) if !is_undone(mr) => {
                        Mr::<T>::put(mr, Side::Process(part));
                        return error.to_errno();
                    }
                    Err((part, _)) => drop(part),
                    Ok(()) => {}
                },
            }
            drop(KBox::from_raw(mr.cast::<MaybeUninit<Mr<T>>>()));
        }
        0
    }

    /// # Safety
    ///
    /// Called by the core.
    pub(super) unsafe extern "C" fn alloc_mw(
        mw: *mut bindings::ib_mw,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: Called by the core, with a window of this driver's size, its type, and a domain
        // of this device that outlives it.
        errno(unsafe {
            let kind = match (*mw).type_ {
                bindings::ib_mw_type_IB_MW_TYPE_1 => MwType::One,
                bindings::ib_mw_type_IB_MW_TYPE_2 => MwType::Two,
                _ => return EOPNOTSUPP.to_errno(),
            };
            Self::for_process(udata, |context, udata| {
                let pd = Pd::<T>::get((*mw).pd).process()?;
                let (part, rkey) = T::alloc_mw(context, pd, kind, udata)?;
                (*mw).rkey = rkey;
                Mw::<T>::put(mw, part);
                Ok(())
            })
        })
    }

    /// # Safety
    ///
    /// Called by the core.
    pub(super) unsafe extern "C" fn dealloc_mw(mw: *mut bindings::ib_mw) -> c_int {
        // SAFETY: Called by the core once.
        T::dealloc_mw(unsafe { Mw::<T>::take(mw) });
        0
    }
}
