// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use super::{
    context::Caller,
    prelude::*, //
};

/// A protection domain of a process or of a kernel ULP.
pub trait Operations<T: Driver>: Sized + Send + Sync {
    /// Creates it, without objects on it.
    ///
    /// # Errors
    ///
    /// Those of [all operations](super#errors).
    fn alloc(caller: Caller<'_, T>) -> Result<Self>;

    /// Destroys it. All objects on it are destroyed.
    fn dealloc(self);
}

pub(super) type CorePd<T> = CoreObject<bindings::ib_pd, <T as Driver>::Pd>;

impl<T: Driver> Ops<T> {
    pub(super) const PD: bindings::ib_device_ops = bindings::ib_device_ops {
        alloc_pd: Some(Self::alloc_pd),
        dealloc_pd: Some(Self::dealloc_pd),
        size_ib_pd: CorePd::<T>::SIZE,
        ..Self::NONE
    };

    /// # Safety
    ///
    /// `pd` is new, `udata` its command.
    unsafe extern "C" fn alloc_pd(
        pd: *mut bindings::ib_pd,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        status(|| {
            // SAFETY: The device of `pd` is live, and `udata` a command.
            let part = T::Pd::alloc(unsafe { Caller::new((*pd).device, udata) }?)?;
            // SAFETY: `pd` is new.
            unsafe { CorePd::<T>::put(pd, part) };
            Ok(())
        })
    }

    /// # Safety
    ///
    /// `pd` is ending.
    unsafe extern "C" fn dealloc_pd(
        pd: *mut bindings::ib_pd,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `pd` is ending.
        let part = unsafe { CorePd::<T>::take(pd) };
        part.dealloc();
        0
    }
}
