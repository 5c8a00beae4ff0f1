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
    qp::Kept,
    work::Side,
    Driver,
    Gid, //
};
use kernel::prelude::*;

impl<T: Driver> Ops<T> {
    /// The parts of a queue pair, and the group.
    ///
    /// # Safety
    ///
    /// A queue pair of this driver that is not destroyed for as long as the result is used, and a GID.
    unsafe fn member<'a>(
        qp: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
    ) -> (&'a Kept, &'a Side<T::Qp, T::KernelQp>, Gid) {
        // SAFETY: By the caller's promise. A GID is bytes.
        unsafe {
            let (_, kept, part) = Qp::<T>::get(qp);
            (kept, part, Gid(*(*gid).raw.as_ref()))
        }
    }

    /// # Safety
    ///
    /// Called by the core.
    pub(super) unsafe extern "C" fn attach_mcast(
        qp: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        _lid: u16,
    ) -> c_int {
        // SAFETY: Called by the core, with a queue pair of this driver and a GID.
        let (kept, part, group) = unsafe { Self::member(qp, gid) };
        errno(kept.attach(group, |group| match part {
            Side::Process(part) => T::attach(part, group),
            Side::Kernel(part) => T::kernel_attach(part, group),
        }))
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
        let (kept, part, group) = unsafe { Self::member(qp, gid) };
        errno(kept.detach(group, |group| match part {
            Side::Process(part) => T::detach(part, group),
            Side::Kernel(part) => T::kernel_detach(part, group),
        }))
    }
}
