// SPDX-License-Identifier: GPL-2.0

//! The driver's details of objects, for `rdma resource`.

use super::prelude::*;
use core::marker::PhantomData;
use kernel::bindings::sk_buff;

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
    /// Adds a table of details to a message, written by `f`. Returns 0, or the errno: `EMSGSIZE`, the
    /// message is full, or that of `f`; the table is then removed.
    ///
    /// # Safety
    ///
    /// `message` is valid, and only the caller uses it.
    pub(super) unsafe fn write(
        message: *mut sk_buff,
        f: impl FnOnce(&mut Details<'_>) -> Result,
    ) -> c_int {
        // SAFETY: By the caller's promise.
        let begin = unsafe { bindings::rdma_details_begin(message) };
        if begin.is_null() {
            return EMSGSIZE.to_errno();
        }
        let written = f(&mut Details {
            message,
            _message: PhantomData,
        });
        // SAFETY: The table that was begun above.
        unsafe { bindings::rdma_details_end(message, begin, written.is_ok()) };
        status(|| written)
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
