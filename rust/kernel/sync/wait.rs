// SPDX-License-Identifier: GPL-2.0

//! Wait queues, for wakeups from a context that takes no lock.
//!
//! C header: [`include/linux/wait.h`](srctree/include/linux/wait.h)
//!
//! With [`kernel::sync::CondVar`] the waker must change the condition under a lock, or a wakeup
//! between the check and the sleep is lost. A softirq cannot take a mutex. Here the condition is
//! evaluated after queueing, as in `wait_event()`, so no lock is needed.

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

// SAFETY: A wait queue has no ties to a thread. Entries of this file borrow it, so it is empty when
// it moves to another thread or is freed.
unsafe impl Send for Waiters {}

// SAFETY: A wait queue has its own lock.
unsafe impl Sync for Waiters {}

/// Leaves the queue when dropped.
///
/// # Invariants
///
/// `entry` is initialised for the current task, and does not move: [`Waiters::wait`] has it in a
/// local variable.
struct Entry<'a> {
    waiters: &'a Waiters,
    entry: Opaque<bindings::wait_queue_entry>,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        // SAFETY: The queue is borrowed, the entry initialised by the type invariant, and this is
        // the task that it is for. An entry that is not queued, or no longer, is fine.
        unsafe { bindings::finish_wait(self.waiters.head.get(), self.entry.get()) };
    }
}

impl Waiters {
    /// An empty wait queue.
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

    /// Sleeps until `condition` holds. It is evaluated again when the task is queued, so a
    /// [`Self::wake_all`] after a change is never missed. The task is then marked as sleeping:
    /// `condition` must not sleep. Process context, with no spinlock held.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` when a signal came first.
    pub fn wait(&self, mut condition: impl FnMut() -> bool) -> Result {
        if condition() {
            return Ok(());
        }
        let entry = Entry {
            waiters: self,
            entry: Opaque::uninit(),
        };
        // SAFETY: The entry can be written and is not queued.
        // INVARIANT: Initialised here, before anything can fail, and only borrowed from here on.
        unsafe { bindings::init_wait_entry(entry.entry.get(), 0) };
        loop {
            // SAFETY: The queue is initialised, and so is the entry, which stays where it is until
            // its drop takes it out of the queue.
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
            // SAFETY: Any task may call it, and the caller may sleep. A wakeup since the entry was
            // queued makes it return at once.
            unsafe { bindings::schedule_timeout(kernel::task::MAX_SCHEDULE_TIMEOUT) };
        }
    }

    /// Wakes all waiters to check their conditions again. Any context.
    pub fn wake_all(&self) {
        // SAFETY: The queue is initialised; these are the arguments of `wake_up_all()`.
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
