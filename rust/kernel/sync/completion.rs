// SPDX-License-Identifier: GPL-2.0

//! [`kernel::sync::Completion`] with what it lacks: `complete()`, which any context may call (a hard
//! interrupt must not call `complete_all()`), and waits that end at a timeout or a signal.
//!
//! [`kernel::sync::CondVar`] has a timeout only in its interruptible wait, but a killed task must not
//! abandon a command that the device still executes.

use kernel::{
    bindings,
    prelude::*,
    types::Opaque, //
};

/// Counts completions that were not yet waited for.
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
    /// A completion that is not complete.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- Opaque::ffi_init(|slot: *mut bindings::completion| {
                // SAFETY: The slot can be written and is pinned.
                unsafe { bindings::init_completion(slot) };
            }),
        })
    }

    /// Waits for one completion. Ignores signals. Sleeps.
    pub fn wait_for_completion(&self) {
        // SAFETY: Initialised.
        unsafe { bindings::wait_for_completion(self.inner.get()) };
    }
}

// What the type of the kernel crate lacks: `make in-tree` adds it there.
impl Completion {
    /// Completes once: wakes one waiter, or lets the next one return at once. Any context.
    pub fn complete(&self) {
        // SAFETY: Initialised.
        unsafe { bindings::complete(self.inner.get()) };
    }

    /// Waits for one completion. Sleeps.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` when a signal came first.
    pub fn wait_interruptible(&self) -> Result {
        // SAFETY: Initialised.
        kernel::error::to_result(unsafe {
            bindings::wait_for_completion_interruptible(self.inner.get())
        })
    }

    /// Waits for one completion, at most `timeout` milliseconds; returns whether it came. Ignores
    /// signals. Sleeps.
    #[must_use]
    pub fn wait_timeout(&self, timeout: kernel::time::Msecs) -> bool {
        // SAFETY: Initialised.
        unsafe {
            bindings::wait_for_completion_timeout(
                self.inner.get(),
                kernel::time::msecs_to_jiffies(timeout),
            ) != 0
        }
    }
}
