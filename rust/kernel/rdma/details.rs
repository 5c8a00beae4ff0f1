// SPDX-License-Identifier: GPL-2.0

//! The driver's details of objects, for `rdma resource`.

use super::{
    bindings,
    mr::Mr,
    ops::{
        errno,
        Cq,
        Ops,
        Qp, //
    },
    work::Side,
    Driver, //
};
use core::marker::PhantomData;
use kernel::{
    bindings::{
        nlattr,
        sk_buff, //
    },
    error::to_result,
    prelude::*,
    str::CStr, //
};

#[allow(improper_ctypes)]
unsafe extern "C" {
    fn qpair_details_begin(message: *mut sk_buff) -> *mut nlattr;
    fn qpair_details_end(message: *mut sk_buff, begin: *mut nlattr, whole: bool);
}

/// The driver's details of an object, in a netlink message.
///
/// # Invariants
///
/// `message` is valid for `'a`.
pub struct Details<'a> {
    message: *mut sk_buff,
    _message: PhantomData<&'a mut sk_buff>,
}

impl Details<'_> {
    /// Adds a table of details to a message, written by `f`.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE`: the message is full. Those of `f`; the table is then removed.
    ///
    /// # Safety
    ///
    /// `message` is valid.
    pub(super) unsafe fn write(
        message: *mut sk_buff,
        f: impl FnOnce(&mut Details<'_>) -> Result,
    ) -> Result {
        // SAFETY: By the caller's promise.
        let begin = unsafe { qpair_details_begin(message) };
        if begin.is_null() {
            return Err(EMSGSIZE);
        }
        let written = f(&mut Details {
            message,
            _message: PhantomData,
        });
        // SAFETY: The table that was begun above.
        unsafe { qpair_details_end(message, begin, written.is_ok()) };
        written
    }

    /// Adds a number.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE`: the message is full.
    pub fn number(&mut self, name: &CStr, value: u32) -> Result {
        // SAFETY: Valid, by the type invariant; the core copies the name.
        to_result(unsafe {
            bindings::rdma_nl_put_driver_u32(self.message, name.as_char_ptr(), value)
        })
    }
}

/// Objects of the kernel have no details.
impl<T: Driver> Ops<T> {
    /// # Safety
    ///
    /// Called by the core.
    pub(super) unsafe extern "C" fn fill_res_cq_entry(
        message: *mut kernel::bindings::sk_buff,
        cq: *mut bindings::ib_cq,
    ) -> c_int {
        // SAFETY: Called by the core, with a queue of this driver that is not destroyed meanwhile.
        errno(unsafe {
            let (_, part) = Cq::<T>::get(cq);
            Details::write(message, |details| match part {
                Side::Process(part) => T::cq_details(part, details),
                Side::Kernel(_) => Ok(()),
            })
        })
    }

    /// # Safety
    ///
    /// Called by the core.
    pub(super) unsafe extern "C" fn fill_res_qp_entry(
        message: *mut kernel::bindings::sk_buff,
        qp: *mut bindings::ib_qp,
    ) -> c_int {
        // SAFETY: As above.
        errno(unsafe {
            let (_, _, part) = Qp::<T>::get(qp);
            Details::write(message, |details| match part {
                Side::Process(part) => T::qp_details(part, details),
                Side::Kernel(_) => Ok(()),
            })
        })
    }

    /// # Safety
    ///
    /// Called by the core.
    pub(super) unsafe extern "C" fn fill_res_mr_entry(
        message: *mut kernel::bindings::sk_buff,
        mr: *mut bindings::ib_mr,
    ) -> c_int {
        // SAFETY: As above.
        errno(unsafe {
            Details::write(message, |details| match Mr::<T>::get(mr) {
                Side::Process(part) => T::mr_details(part, details),
                Side::Kernel(_) => Ok(()),
            })
        })
    }
}
