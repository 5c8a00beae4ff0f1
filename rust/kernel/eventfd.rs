// SPDX-License-Identifier: GPL-2.0

//! Signaling a process from any context.
//!
//! C header: [`include/linux/eventfd.h`](srctree/include/linux/eventfd.h)

use core::ptr::NonNull;
use kernel::{
    bindings,
    error::from_err_ptr,
    prelude::*, //
};

/// A reference to the eventfd behind a file descriptor.
///
/// It stays valid when the process closes the descriptor or exits.
///
/// # Invariants
///
/// The pointer owns one reference.
pub struct EventFd(NonNull<bindings::eventfd_ctx>);

// SAFETY: A reference-counted object with its own lock.
unsafe impl Send for EventFd {}

// SAFETY: As above: signaling is safe from any number of contexts at once.
unsafe impl Sync for EventFd {}

impl EventFd {
    /// The eventfd behind descriptor `fd` of the calling process. Process context; does not sleep.
    ///
    /// # Errors
    ///
    /// `EBADF` if nothing is open there, `EINVAL` if it is no eventfd.
    pub fn from_fd(fd: i32) -> Result<Self> {
        // SAFETY: Takes any number.
        let ctx = from_err_ptr(unsafe { bindings::eventfd_ctx_fdget(fd) })?;
        // INVARIANT: `eventfd_ctx_fdget` took the reference.
        Ok(Self(NonNull::new(ctx).ok_or(EBADF)?))
    }

    /// Adds one to the counter and wakes all waiters. Any context, hard interrupts included.
    pub fn signal(&self) {
        // SAFETY: We have a reference.
        unsafe { bindings::eventfd_signal_mask(self.0.as_ptr(), 0) };
    }
}

impl Drop for EventFd {
    /// Any context: the last reference is freed by RCU or in place, neither sleeps.
    fn drop(&mut self) {
        // SAFETY: The reference is ours, and is not used after this.
        unsafe { bindings::eventfd_ctx_put(self.0.as_ptr()) };
    }
}
