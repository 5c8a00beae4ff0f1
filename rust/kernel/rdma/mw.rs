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
    ///
    /// # Errors
    ///
    /// Those of [all operations](super#errors).
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
    /// `mw` is new, `udata` its command.
    unsafe extern "C" fn alloc_mw(
        mw: *mut bindings::ib_mw,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        status(|| {
            // SAFETY: Of a new window the core has set the type, and the domain is live.
            let (kind, pd) = unsafe { ((*mw).type_, CorePd::<T>::get((*mw).pd)) };
            // SAFETY: The device is live, and `udata` a command.
            let caller = unsafe { Caller::<T>::new((*mw).device, udata) }?;
            let kind = match kind {
                bindings::ib_mw_type_IB_MW_TYPE_1 => MwType::One,
                bindings::ib_mw_type_IB_MW_TYPE_2 => MwType::Two,
                _ => return Err(EOPNOTSUPP),
            };
            let (context, udata) = caller.process()?;
            let (part, rkey) = T::Mw::alloc(pd, kind, context, udata)?;
            // SAFETY: `mw` is new.
            unsafe {
                (*mw).rkey = rkey;
                CoreMw::<T>::put(mw, part);
            }
            Ok(())
        })
    }

    /// # Safety
    ///
    /// `mw` is ending.
    unsafe extern "C" fn dealloc_mw(mw: *mut bindings::ib_mw) -> c_int {
        // SAFETY: `mw` is ending.
        let part = unsafe { CoreMw::<T>::take(mw) };
        part.dealloc();
        0
    }
}
