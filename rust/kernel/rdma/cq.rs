// SPDX-License-Identifier: GPL-2.0

//! Operations on completion queues that exist.

use super::{
    bindings,
    ops::{
        errno,
        Cq,
        Ops, //
    },
    udata::Udata,
    Driver, //
};
use kernel::prelude::*;

impl<T: Driver> Ops<T> {
    /// # Safety
    ///
    /// Called by the core.
    pub(super) unsafe extern "C" fn resize_user_cq(
        cq: *mut bindings::ib_cq,
        entries: c_uint,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        if udata.is_null() {
            return EOPNOTSUPP.to_errno();
        }
        // SAFETY: Called by the core, with a queue of this driver and the command that runs. Two
        // commands may write the number at a time, each a whole one, as in other drivers.
        errno(unsafe {
            let (_, part) = Cq::<T>::get(cq);
            let part = part.process();
            let entries = part.and_then(|part| T::resize_cq(part, entries, Udata::new(udata)));
            entries.map(|entries| {
                (*cq).cqe = c_int::try_from(entries).unwrap_or(c_int::MAX);
            })
        })
    }

    /// `ib_free_cq()` cancels the work of the queue's events, and then destroys the queue. So no event
    /// may come in between.
    ///
    /// # Safety
    ///
    /// Called by the core.
    pub(super) unsafe extern "C" fn pre_destroy_cq(cq: *mut bindings::ib_cq) -> c_int {
        // SAFETY: Called by the core, before it destroys a queue of this driver.
        let (events, _) = unsafe { Cq::<T>::get(cq) };
        events.cut();
        0
    }
}
