// SPDX-License-Identifier: GPL-2.0

//! Waiting for something that is said from a context that takes no lock.
//!
//! C header: [`include/linux/wait.h`](srctree/include/linux/wait.h)
//!
//! [`kernel::sync::CondVar`] goes with a lock that who changes the condition must hold as well, or
//! a notification between the look and the sleep is lost. A softirq cannot take a mutex. So here the
//! look comes after queueing, as `wait_event()` has it: no lock is needed.

use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    types::Opaque, //
};

/// Tasks that wait for a condition.
#[pin_data]
pub struct Waiters {
    #[pin]
    head: Opaque<bindings::wait_queue_head>,
}

// SAFETY: A wait queue may be freed by any thread.
unsafe impl Send for Waiters {}

// SAFETY: A wait queue has its own lock.
unsafe impl Sync for Waiters {}

/// Leaves the queue when dropped.
struct Entry<'a> {
    waiters: &'a Waiters,
    entry: Opaque<bindings::wait_queue_entry>,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        // SAFETY: Both are valid; an entry that is not queued is fine.
        unsafe { bindings::finish_wait(self.waiters.head.get(), self.entry.get()) };
    }
}

impl Waiters {
    /// Nobody waits.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            head <- Opaque::ffi_init(|slot| {
                // SAFETY: The slot is valid and stays where it is; name and key are static.
                unsafe {
                    bindings::__init_waitqueue_head(
                        slot,
                        c"qpair_waiters".as_char_ptr(),
                        kernel::static_lock_class!().as_ptr(),
                    )
                }
            }),
        })
    }

    /// Sleeps until `condition` holds. It is looked at when the task is already queued, so a
    /// [`Self::wake_all`] after a change is never missed. Process context.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` when a signal came first.
    pub fn wait(&self, mut condition: impl FnMut() -> bool) -> Result {
        // A condition may itself sleep for a mutex: not while the task is marked as sleeping.
        if condition() {
            return Ok(());
        }
        let entry = Entry {
            waiters: self,
            entry: Opaque::uninit(),
        };
        // SAFETY: The entry is ours, and does not move before it has left the queue: it is only
        // ever borrowed from here on.
        unsafe { bindings::init_wait_entry(entry.entry.get(), 0) };
        loop {
            // SAFETY: Both are valid.
            to_result(unsafe {
                bindings::prepare_to_wait_event(
                    self.head.get(),
                    entry.entry.get(),
                    bindings::TASK_INTERRUPTIBLE as c_int,
                )
            } as c_int)?;
            if condition() {
                return Ok(());
            }
            // SAFETY: Process context, nothing is held.
            unsafe { bindings::schedule_timeout(kernel::task::MAX_SCHEDULE_TIMEOUT) };
        }
    }

    /// Lets all look at their condition again. Any context.
    pub fn wake_all(&self) {
        // SAFETY: Valid. As `wake_up_all()` does.
        unsafe {
            bindings::__wake_up(
                self.head.get(),
                bindings::TASK_NORMAL,
                0,
                core::ptr::null_mut(),
            )
        };
    }
}
