// SPDX-License-Identifier: GPL-2.0

//! Waiting for something that a poll reports, but not for ever.
//!
//! [`kernel::sync::Completion`] is for good once it is complete, and waits without end;
//! [`kernel::sync::CondVar`] has a timeout only together with signals, and a task that has been
//! killed must not abandon a command that the device still works on.

use kernel::{
    bindings,
    prelude::*,
    time::{
        msecs_to_jiffies,
        Msecs, //
    },
    types::Opaque, //
};

/// Counts what was done and not yet waited for.
#[pin_data]
pub struct Completion {
    #[pin]
    inner: Opaque<bindings::completion>,
}

// SAFETY: Has a lock of its own, and no ties to a thread.
unsafe impl Send for Completion {}

// SAFETY: As above.
unsafe impl Sync for Completion {}

impl Completion {
    /// One with nothing done.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- Opaque::ffi_init(|slot: *mut bindings::completion| {
                // SAFETY: The slot can be written and is pinned.
                unsafe { bindings::init_completion(slot) };
            }),
        })
    }

    /// One thing is done: wakes one waiter, or spares the next one the wait. Any context.
    pub fn complete(&self) {
        // SAFETY: Initialised.
        unsafe { bindings::complete(self.inner.get()) };
    }

    /// Waits until one thing is done, or for `timeout` milliseconds; says whether it is. Signals
    /// do not end it. Sleeps.
    #[must_use]
    pub fn wait_timeout(&self, timeout: Msecs) -> bool {
        // SAFETY: Initialised.
        unsafe {
            bindings::wait_for_completion_timeout(self.inner.get(), msecs_to_jiffies(timeout)) != 0
        }
    }
}
