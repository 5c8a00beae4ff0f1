// SPDX-License-Identifier: GPL-2.0

//! Memory windows.

use super::{
    context::Caller,
    pd::CorePd,
    prelude::*, //
};

/// The type of a memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MwType {
    /// Type 1: bound by `ibv_bind_mw()`.
    One,
    /// Bound by a work request, and of the queue pair that binds it: 2B.
    Two,
}

/// A memory window of a process.
pub trait Operations<T: Driver>: Sized + Send + Sync {
    /// Creates it; it is not bound. Also returns its key.
    fn alloc(
        pd: &T::Pd,
        kind: MwType,
        context: &T::Context,
        udata: Udata<'_>,
    ) -> Result<(Self, u32)>;

    /// Destroys it, bound or not.
    fn dealloc(self);
}

type CoreMw<T> = CoreObject<bindings::ib_mw, <T as Driver>::Mw>;

impl<T: Driver> Ops<T> {
    pub(super) const MW: bindings::ib_device_ops = bindings::ib_device_ops {
        alloc_mw: Some(Self::alloc_mw),
        dealloc_mw: Some(Self::dealloc_mw),
        size_ib_mw: CoreMw::<T>::SIZE,
        ..Self::NONE
    };

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn alloc_mw(
        mw: *mut bindings::ib_mw,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: Called by the core, with a window of this driver's size, its type, and a domain
        // of this device that outlives it.
        from_result(|| unsafe {
            let kind = match (*mw).type_ {
                bindings::ib_mw_type_IB_MW_TYPE_1 => MwType::One,
                bindings::ib_mw_type_IB_MW_TYPE_2 => MwType::Two,
                _ => return Err(EOPNOTSUPP),
            };
            let (context, udata) = Caller::<T>::new((*mw).device, udata)?.process()?;
            let (part, rkey) = T::Mw::alloc(CorePd::<T>::get((*mw).pd), kind, context, udata)?;
            (*mw).rkey = rkey;
            CoreMw::<T>::put(mw, part);
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn dealloc_mw(mw: *mut bindings::ib_mw) -> c_int {
        // SAFETY: Called by the core once.
        unsafe { CoreMw::<T>::take(mw) }.dealloc();
        0
    }
}
