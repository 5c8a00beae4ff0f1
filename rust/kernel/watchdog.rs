// SPDX-License-Identifier: GPL-2.0

//! Periodic work in process context, until it is dropped.
//!
//! The delayed work of [`kernel::workqueue`] cannot be cancelled.

use kernel::{
    bindings,
    container_of,
    prelude::*,
    sync::atomic::{
        Atomic,
        Full, //
    },
    time::{
        msecs_to_jiffies,
        Msecs, //
    },
    types::Opaque,
    workqueue, //
};

/// The work of a [`Watchdog`].
pub trait Check: Send + Sync + 'static {
    /// Does the work, and returns the pause until the next call. Process context; may sleep, but
    /// must not wait for the watchdog's own drop.
    fn check(&self) -> Msecs;
}

/// Calls a [`Check`] periodically, with the pauses that it returns.
///
/// # Invariants
///
/// `work` is initialised, runs `run`, is queued on one workqueue only, and is disabled once for a
/// `stopped` that is set.
#[pin_data(PinnedDrop)]
pub struct Watchdog<C: Check> {
    #[pin]
    work: Opaque<bindings::delayed_work>,
    stopped: Atomic<bool>,
    check: C,
}

// SAFETY: The work item may be cancelled by any thread, the rest is `Send`.
unsafe impl<C: Check> Send for Watchdog<C> {}

// SAFETY: The work item has its own synchronization, the rest is `Sync`.
unsafe impl<C: Check> Sync for Watchdog<C> {}

impl<C: Check> Watchdog<C> {
    /// Calls `check` in `pause` milliseconds, and then after each pause it returns. The drop stops
    /// it.
    pub fn new(pause: Msecs, check: C) -> impl PinInit<Self, Error> {
        pin_init!(Self {
            // INVARIANT: Initialised here.
            work <- Opaque::ffi_init(|slot: *mut bindings::delayed_work| {
                // SAFETY: The slot can be written and is pinned. The timer's function is the one
                // that belongs to delayed work, with the flag that it wants.
                unsafe {
                    bindings::init_work_with_key(
                        &raw mut (*slot).work,
                        Some(Self::run),
                        false,
                        c"Watchdog::work".as_char_ptr(),
                        kernel::static_lock_class!().as_ptr(),
                    );
                    bindings::timer_init_key(
                        &raw mut (*slot).timer,
                        Some(bindings::delayed_work_timer_fn),
                        bindings::TIMER_IRQSAFE,
                        c"Watchdog::timer".as_char_ptr(),
                        kernel::static_lock_class!().as_ptr(),
                    );
                }
            }),
            stopped: Atomic::new(false),
            check,
        }? Error)
        .pin_chain(move |this| {
            this.queue(pause);
            Ok(())
        })
    }

    /// On return no call is running, and none starts before [`Self::start`]. Idempotent. Process
    /// context, not from a [`Check`]; sleeps.
    pub fn stop(&self) {
        if !self.stopped.xchg(true, Full) {
            // SAFETY: Initialised, by the type invariant.
            unsafe { bindings::disable_delayed_work_sync(self.work.get()) };
        }
    }

    /// Continues after [`Self::stop`], in `pause` milliseconds. Does nothing if it was not stopped.
    /// Process context, not concurrently with [`Self::stop`].
    pub fn start(&self, pause: Msecs) {
        if self.stopped.xchg(false, Full) {
            // SAFETY: Initialised, by the type invariant, and disabled by `stop`.
            unsafe { bindings::enable_delayed_work(self.work.get()) };
            self.queue(pause);
        }
    }

    fn queue(&self, pause: Msecs) {
        // CAST: `Queue` is a transparent wrapper of an `Opaque<struct workqueue_struct>`.
        let queue = core::ptr::from_ref(workqueue::system_power_efficient())
            .cast_mut()
            .cast();
        // SAFETY: Initialised, by the type invariant, and disabled before it is freed.
        unsafe {
            bindings::queue_delayed_work_on(
                bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int,
                queue,
                self.work.get(),
                msecs_to_jiffies(pause),
            )
        };
    }

    /// # Safety
    ///
    /// Called by the workqueue, for the work item of a watchdog.
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        // SAFETY: The work item is embedded in a watchdog, and is disabled before that is freed.
        let this = unsafe {
            let work = container_of!(work, bindings::delayed_work, work);
            &*container_of!(Opaque::cast_from(work), Self, work)
        };
        let pause = this.check.check();
        this.queue(pause);
    }
}

#[pinned_drop]
impl<C: Check> PinnedDrop for Watchdog<C> {
    /// Waits for a running call to end. Sleeps.
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Initialised, by the type invariant.
        unsafe { bindings::disable_delayed_work_sync(self.work.get()) };
    }
}
