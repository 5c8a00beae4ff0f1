// SPDX-License-Identifier: GPL-2.0

//! Memberships of queue pairs in groups of multicast.
//!
//! The core checks that the queue pair is of UD and the GID one of multicast.

use super::{
    bindings,
    ops::{
        errno,
        Ops,
        Qp, //
    },
    work::Side,
    Driver,
    Gid, //
};
use kernel::prelude::*;

impl<T: Driver> Ops<T> {
    /// # Safety
    ///
    /// Called by the core.
    pub(super) unsafe extern "C" fn attach_mcast(
        qp: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        _lid: u16,
    ) -> c_int {
        // SAFETY: Called by the core, with a queue pair of this driver, and a GID, which is bytes.
        errno(unsafe {
            let (_, kept, part) = Qp::<T>::get(qp);
            kept.attach(Gid(*(*gid).raw.as_ref()), |group| match part {
                Side::Process(part) => T::attach(part, group),
                Side::Kernel(part) => T::kernel_attach(part, group),
            })
        })
    }

    /// # Safety
    ///
    /// Called by the core.
    pub(super) unsafe extern "C" fn detach_mcast(
        qp: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        _lid: u16,
    ) -> c_int {
        // SAFETY: As above.
        errno(unsafe {
            let (_, kept, part) = Qp::<T>::get(qp);
            kept.detach(Gid(*(*gid).raw.as_ref()), |group| match part {
                Side::Process(part) => T::detach(part, group),
                Side::Kernel(part) => T::kernel_detach(part, group),
            })
        })
    }
}
