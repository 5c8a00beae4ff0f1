// SPDX-License-Identifier: GPL-2.0

//! The poll that an interrupt schedules, and the state that it alone owns.
//!
//! ```text
//!   hard interrupt --> schedule --> poll(&mut State) --Done--> until the next interrupt
//!                        ^  ^                |   |
//!   watchdog, debugfs, --'  |`----Again------'   |
//!                           `---- relay, when the scheduler finds it due <--Wait--'
//! ```
//!
//! [`Handler::poll`] never runs twice at the same time, so it gets `&mut State` without a lock,
//! and nothing can deadlock on one. Everybody else asks for the state with [`BhPoller::paused`],
//! which waits for the poll to end and keeps it from starting.
//!
//! In softirq context polls could take all of a CPU, and no scheduler would know. So a poll may
//! [wait](Next::Wait) for the [relay](BhPoller::relay), a work item of no special priority: that runs
//! it in the time that the scheduler has given to its thread, which is a share as any process has
//! it. When that is, says the handler.
//!
//! It runs in BH work: in softirq context, without a switch of context, on the CPU of the interrupt
//! or of the relay. The interrupt's affinity says which CPU that is.
//!
//! A poller outlives its interrupt: it may be scheduled at any time, but only runs while an
//! [`Irq`](super::irq::Irq) is registered for it, hence while its device is bound.

use super::compat::{
    IrqReturn,
    IRQ_HANDLED, //
};
use core::{
    cell::UnsafeCell,
    ptr, //
};
use kernel::{
    bindings,
    container_of,
    device::{
        Bound,
        Device, //
    },
    new_mutex,
    prelude::*,
    static_lock_class,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc,
        LockClassKey,
        Mutex, //
    },
    types::Opaque, //
};

unsafe extern "C" {
    safe fn qpair_bh_disable();
    safe fn qpair_bh_enable();
    safe fn qpair_non_block_start();
    safe fn qpair_non_block_end();

    /// The scheduler's clock, in nanoseconds: cheap, and that of this CPU; those of others may be
    /// ahead of it or behind, by little. It goes on while a host has taken the CPU away. Any context.
    #[link_name = "qpair_clock"]
    pub safe fn clock() -> u64;

    /// Whether nothing else wants this CPU: it was idle when the interrupt came, and no task has been
    /// woken on it since. False in a thread. Any context.
    #[link_name = "qpair_idle"]
    pub safe fn is_idle() -> bool;
}

/// Whether a poll wants to run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// There is nothing to do until the next interrupt.
    Done,
    /// There is more to do.
    Again,
    /// There is more to do, in time that the scheduler gives to the poll.
    Wait,
}

/// What an interrupt and its poll do.
pub trait Handler: Send + Sync + 'static {
    /// The state that the poll alone owns.
    type State: Send + 'static;

    /// The interrupt has come, and the poll is about to be scheduled. Hard interrupt context:
    /// atomics and trace points, nothing else.
    fn interrupt(&self, dev: &Device<Bound>);

    /// Does a bounded amount of work. Context: BH. It must not sleep and must not drop what sleeps
    /// when dropped.
    ///
    /// `given`: the scheduler has given the time, for this and for the polls that follow it at once.
    fn poll(&self, dev: &Device<Bound>, state: &mut Self::State, given: bool) -> Next;
}

/// A [`Handler`] and its state.
///
/// # Invariants
///
/// - `work` and `relay` are enabled only while `claimed`.
/// - `claimed` only while an `Irq` owns the poller; then `dev` is bound.
/// - `state` is accessed by the poll, which excludes itself, and by [`Self::paused`], which holds
///   `pause` and keeps the poll from running.
#[pin_data]
pub struct BhPoller<H: Handler> {
    #[pin]
    work: Opaque<bindings::work_struct>,
    #[pin]
    relay: Opaque<bindings::work_struct>,
    /// The next poll is the relay's.
    given: Atomic<bool>,
    /// Held while the poll is paused.
    #[pin]
    pause: Mutex<()>,
    /// It runs for an interrupt.
    claimed: Atomic<bool>,
    state: UnsafeCell<H::State>,
    handler: H,
    dev: ARef<Device>,
}

// SAFETY: The work item may be freed by any thread, the rest is `Send`.
unsafe impl<H: Handler> Send for BhPoller<H> {}

// SAFETY: `state` is `Send` and accessed exclusively, by the type invariant. The work item has its
// own synchronization, the rest is `Sync`.
unsafe impl<H: Handler> Sync for BhPoller<H> {}

impl<H: Handler> BhPoller<H> {
    /// Makes a poller that nothing runs yet. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(dev: &Device<Bound>, handler: H, state: H::State) -> Result<Arc<Self>> {
        let dev: &Device = dev;
        // INVARIANT: Disabled, and no interrupt.
        Arc::pin_init(
            pin_init!(Self {
                work <- Self::item(Self::run, c"BhPoller::work", static_lock_class!()),
                relay <- Self::item(Self::relay, c"BhPoller::relay", static_lock_class!()),
                given: Atomic::new(false),
                pause <- new_mutex!((), "BhPoller::pause"),
                claimed: Atomic::new(false),
                state: UnsafeCell::new(state),
                handler,
                dev: dev.into(),
            }),
            GFP_KERNEL,
        )
    }

    /// A work item that is disabled.
    fn item(
        run: unsafe extern "C" fn(*mut bindings::work_struct),
        name: &'static CStr,
        class: Pin<&'static LockClassKey>,
    ) -> impl PinInit<Opaque<bindings::work_struct>> {
        Opaque::ffi_init(move |slot: *mut bindings::work_struct| {
            // SAFETY: The slot can be written and is pinned. `run` is for this work item in a
            // `Self`.
            unsafe {
                bindings::init_work_with_key(
                    slot,
                    Some(run),
                    false,
                    name.as_char_ptr(),
                    class.as_ptr(),
                );
                bindings::disable_work(slot);
            }
        })
    }

    /// The handler, which all contexts share.
    #[inline]
    pub fn handler(&self) -> &H {
        &self.handler
    }

    /// Makes the poll run soon; once, however often it is called before it does. Any context.
    /// Does nothing while no interrupt is registered.
    #[inline]
    pub fn schedule(&self) {
        // SAFETY: The work item is initialised, and is disabled before it is freed: a disabled one
        // is not queued. It is never queued elsewhere.
        unsafe {
            bindings::queue_work_on(
                bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int,
                bindings::system_bh_wq,
                self.work.get(),
            )
        };
    }

    /// Gives `f` the state, while the poll does not run; then schedules the poll. Process
    /// context, sleeps. Not from within the poll.
    ///
    /// All users of the poll wait for `f`, so it must not sleep, nor allocate: an allocation may
    /// wait for memory of one cgroup. A debug kernel warns if it does.
    pub fn paused<R>(&self, f: impl FnOnce(&H, &mut H::State) -> R) -> R {
        let pause = self.pause.lock();
        // SAFETY: Initialised in `new`.
        unsafe { bindings::disable_work_sync(self.work.get()) };
        // SAFETY: The poll is disabled and has ended, and `pause` is held: by the type invariant
        // nothing else accesses the state.
        let state = unsafe { &mut *self.state.get() };
        qpair_non_block_start();
        let result = f(&self.handler, state);
        qpair_non_block_end();
        // SAFETY: Disabled above.
        // INVARIANT: One level of disabling less than before; the one from `new` or `release`
        // stays if there is no interrupt.
        unsafe { bindings::enable_work(self.work.get()) };
        drop(pause);
        // Disabling took away what had been scheduled.
        self.schedule();
        result
    }

    /// Makes the poller run for an interrupt.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it has one.
    ///
    /// # Safety
    ///
    /// `dev` stays bound until [`Self::release`].
    pub(super) unsafe fn claim(&self) -> Result {
        if self.claimed.cmpxchg(false, true, Full).is_err() {
            return Err(EBUSY);
        }
        // The relay first, as the poll may ask for it.
        //
        // SAFETY: Disabled in `new` or `release`.
        unsafe {
            bindings::enable_work(self.relay.get());
            bindings::enable_work(self.work.get());
        }
        Ok(())
    }

    /// Ends what [`Self::claim`] began, and waits for a running poll to end. Process context,
    /// sleeps.
    ///
    /// # Safety
    ///
    /// After a successful `claim`, once. The interrupt's handler does not run any more.
    pub(super) unsafe fn release(&self) {
        // Each may queue the other, which does nothing when that is disabled.
        //
        // SAFETY: Initialised in `new`.
        unsafe {
            bindings::disable_work_sync(self.relay.get());
            bindings::disable_work_sync(self.work.get());
        }
        self.claimed.store(false, Release);
    }

    /// Whether the poller is for `dev`.
    pub(super) fn is_of(&self, dev: &Device<Bound>) -> bool {
        ptr::eq(super::raw_device(&self.dev), super::raw_device(dev))
    }

    /// What the interrupt's handler is registered with.
    pub(super) fn cookie(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// # Safety
    ///
    /// An `Irq` owns the poller, for as long as the result is used.
    unsafe fn bound(&self) -> &Device<Bound> {
        // SAFETY: By the type invariant.
        unsafe { self.dev.as_bound() }
    }

    /// The hard interrupt.
    ///
    /// # Safety
    ///
    /// `cookie` is that of a poller, and an `Irq` owns it.
    pub(super) unsafe extern "C" fn hard(_irq: c_int, cookie: *mut c_void) -> IrqReturn {
        // SAFETY: By the caller's promise.
        let this = unsafe { &*cookie.cast::<Self>() };
        // SAFETY: As above.
        this.handler.interrupt(unsafe { this.bound() });
        this.schedule();
        IRQ_HANDLED
    }

    /// The work item.
    ///
    /// # Safety
    ///
    /// Called by the workqueue, for the work item of a poller.
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        // SAFETY: The work item is embedded in a poller, and is disabled before that is freed.
        let this = unsafe { &*container_of!(Opaque::cast_from(work), Self, work) };
        // SAFETY: The work item was enabled when this run began, and the caller that disables
        // it waits for the run to end. So by the type invariant an `Irq` owns the poller, and `paused` does not
        // access the state. A work item does not run twice at the same time.
        let next = unsafe {
            let given = this.given.xchg(false, Relaxed);
            this.handler
                .poll(this.bound(), &mut *this.state.get(), given)
        };
        match next {
            Next::Done => (),
            Next::Again => this.schedule(),
            Next::Wait => this.ask(),
        }
    }

    /// Queues the relay, which the scheduler runs when its turn comes.
    fn ask(&self) {
        // The kernel crate has no function for this queue, which takes the place of `system_unbound`.
        //
        // SAFETY: The work item is initialised, and is disabled before it is freed. It is never
        // queued elsewhere.
        unsafe {
            bindings::queue_work_on(
                bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int,
                bindings::system_dfl_wq,
                self.relay.get(),
            )
        };
    }

    /// The work item that lets others run: polls in the time of its own thread.
    ///
    /// # Safety
    ///
    /// Called by the workqueue, for the relay of a poller.
    unsafe extern "C" fn relay(work: *mut bindings::work_struct) {
        // SAFETY: The work item is embedded in a poller, and is disabled before that is freed.
        let this = unsafe { &*container_of!(Opaque::cast_from(work), Self, relay) };
        qpair_bh_disable();
        this.given.store(true, Relaxed);
        this.schedule();
        // Here it runs, if it does not on another CPU.
        qpair_bh_enable();
    }
}
