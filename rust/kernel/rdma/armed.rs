// SPDX-License-Identifier: GPL-2.0

//! Completion events of a kernel ULP's completion queue.

use super::event::{
    CqEvent,
    Events, //
};
use kernel::{
    bindings::flush_work,
    impl_has_work,
    new_spinlock_irq,
    new_work,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc,
        SpinLockIrq, //
    },
    workqueue::{
        system_bh,
        Work,
        WorkItem, //
    }, //
};

/// Whether a ULP has asked for an event of its CQ: it gets one for each time, whatever the device
/// writes, and one at a time.
#[pin_data]
pub struct Armed {
    armed: Atomic<bool>,
    events: Events<CqEvent>,
    /// Locked while the ULP's handler runs.
    #[pin]
    handler: SpinLockIrq<()>,
    #[pin]
    work: Work<Self>,
}

impl Armed {
    /// That of a CQ which its ULP has not armed. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(events: Events<CqEvent>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                armed: Atomic::new(false),
                events,
                handler <- new_spinlock_irq!((), "Armed::handler"),
                work <- new_work!("Armed::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// The ULP asks for an event. Any context.
    pub fn arm(&self) {
        self.armed.xchg(true, Full);
    }

    /// Reports a completion, if that was asked for, and there may be one. Any context, but not from an
    /// operation that the ULP calls: it may hold a lock that its handler takes.
    pub fn raise(&self) {
        // What `ib_alloc_cq()` asks for is not lost.
        if self.events.is_finished() && self.armed.xchg(false, Full) {
            let _handler = self.handler.lock();
            self.events.complete();
        }
    }

    /// As [`Self::raise`], soon, in BH. Any context.
    pub fn defer(self: &Arc<Self>) {
        // One that is queued already reports this one too.
        let _: Result<_, _> = system_bh().enqueue(self.clone());
    }

    /// Waits for an event that is deferred. None is deferred any more. Process context; sleeps.
    pub fn flush(&self) {
        // SAFETY: Initialised in `new`.
        unsafe { flush_work(Work::raw_get(&raw const self.work)) };
    }
}

impl_has_work! {
    impl HasWork<Self> for Armed { self.work }
}

impl WorkItem for Armed {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.raise();
    }
}

#[kernel::macros::kunit_tests(qpair_armed)]
mod tests {
    use super::{
        super::bindings,
        *, //
    };
    use core::ptr;
    use kernel::sync::atomic::Relaxed;

    /// Counts the calls of a CQ's handler.
    ///
    /// # Safety
    ///
    /// `calls` is an `Atomic<u32>`.
    unsafe extern "C" fn count(_cq: *mut bindings::ib_cq, calls: *mut c_void) {
        // SAFETY: By the caller's promise.
        unsafe { &*calls.cast::<Atomic<u32>>() }.fetch_add(1, Relaxed);
    }

    #[test]
    fn a_caller_runs_no_handler_of_its_own() -> Result {
        let calls = Atomic::new(0_u32);
        let mut cq = KBox::new(bindings::ib_cq::default(), GFP_KERNEL)?;
        cq.comp_handler = Some(count);
        cq.cq_context = ptr::from_ref(&calls).cast_mut().cast();
        // SAFETY: It is there until the end of this function, where nothing is deferred.
        let events = unsafe { Events::new(&raw mut *cq) }?;
        let armed = Armed::new(events.clone())?;
        // The CQ is not finished.
        events.complete();
        assert_eq!(calls.load(Relaxed), 0);
        armed.arm();
        // Interrupts are off: the CPU runs no BH.
        let lock = Arc::pin_init(new_spinlock_irq!((), "a ULP's"), GFP_KERNEL)?;
        for (finished, asked, expected) in [
            (false, false, 0),
            (true, false, 1),
            (true, false, 1),
            (true, true, 2),
        ] {
            if finished {
                events.finish();
            }
            if asked {
                armed.arm();
            }
            let (held, before) = (lock.lock(), calls.load(Relaxed));
            armed.defer();
            assert_eq!(calls.load(Relaxed), before);
            drop(held);
            armed.flush();
            assert_eq!(calls.load(Relaxed), expected);
        }
        events.cut();
        Ok(())
    }
}
