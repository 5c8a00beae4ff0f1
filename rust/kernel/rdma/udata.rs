// SPDX-License-Identifier: GPL-2.0

//! The driver's part of a command: a request of the process, and the answer to it.

use super::bindings;
use core::marker::PhantomData;
use kernel::{
    error::to_result,
    prelude::*, //
};
use zerocopy::Immutable;

/// The driver's part of a command, in the memory of the process.
///
/// # Invariants
///
/// `raw` is valid for `'a`.
pub struct Udata<'a> {
    raw: *mut bindings::ib_udata,
    _command: PhantomData<&'a mut bindings::ib_udata>,
}

impl<'a> Udata<'a> {
    /// `None`: of a kernel ULP, or of a call of the core itself.
    ///
    /// # Safety
    ///
    /// `raw` is null, or valid for `'a`.
    pub(super) unsafe fn of(raw: *mut bindings::ib_udata) -> Option<Self> {
        // INVARIANT: By the caller's promise.
        (!raw.is_null()).then_some(Self {
            raw,
            _command: PhantomData,
        })
    }

    /// Copies the request in, once. A shorter one is extended with zeros from `least` bytes on; in
    /// a longer one the rest has to be zero. May sleep for as long as the process likes.
    ///
    /// # Errors
    ///
    /// `EINVAL`: shorter than `least`. `EOPNOTSUPP`: the rest is not zero. `EFAULT`.
    pub fn read<T: FromBytes + IntoBytes>(self, least: usize) -> Result<(T, Reply<'a>)> {
        let mut value = T::new_zeroed();
        let bytes = value.as_mut_bytes();
        // SAFETY: Valid, by the type invariant; `bytes` has that length, and any bytes are a `T`.
        to_result(unsafe {
            bindings::_ib_copy_validate_udata_in(
                self.raw,
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                least.min(bytes.len()),
            )
        })?;
        Ok((value, Reply(self)))
    }

    /// For a command without a request of the driver: what there is has to be zero.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn without_request(self) -> Result<Reply<'a>> {
        // SAFETY: Valid, by the type invariant.
        if unsafe { (*self.raw).inlen } != 0 {
            // SAFETY: As above; copies nothing.
            to_result(unsafe {
                bindings::_ib_copy_validate_udata_in(self.raw, core::ptr::null_mut(), 0, 0)
            })?;
        }
        Ok(Reply(self))
    }
}

/// The way back to the process.
pub struct Reply<'a>(Udata<'a>);

impl Reply<'_> {
    /// Copies the answer out, as much of it as the process has room for; clears the rest of the
    /// room. May sleep for as long as the process likes.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    pub fn write<T: IntoBytes + Immutable>(self, value: &T) -> Result {
        let bytes = value.as_bytes();
        // SAFETY: Valid, by the type invariant; `bytes` has that length.
        to_result(unsafe {
            bindings::_ib_respond_udata(self.0.raw, bytes.as_ptr().cast(), bytes.len())
        })
    }
}
