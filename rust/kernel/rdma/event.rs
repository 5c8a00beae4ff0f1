// SPDX-License-Identifier: GPL-2.0

//! From the poll of a driver to the handlers of the core's objects.

use super::{
    super::sync::Completion,
    missing::Reader,
    netdev,
    prelude::*, //
};
use core::ptr;
use kernel::{
    new_spinlock_irq,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc,
        SpinLockIrq, //
    }, //
};

/// An event of an object of the core.
pub trait Target: Copy + 'static {
    /// The object's structure of the core.
    #[doc(hidden)]
    type Raw;

    /// Calls the object's handler. Any context.
    ///
    /// # Safety
    ///
    /// `raw` is an object that was created and not yet destroyed.
    #[doc(hidden)]
    unsafe fn notify(raw: *mut Self::Raw, event: Self);

    /// The reader of the object's asynchronous events, if it is a process. A device has none: the core
    /// tells all readers of a device.
    ///
    /// # Safety
    ///
    /// `raw` is an object that is being created.
    #[doc(hidden)]
    unsafe fn reader(_raw: *mut Self::Raw) -> Option<Reader> {
        None
    }

    /// The kind of an asynchronous event of an object, below [`KINDS`](super::unread::KINDS).
    #[doc(hidden)]
    fn kind(_event: Self) -> Option<usize> {
        None
    }
}

#[pin_data]
struct Shared<T: Target> {
    /// Null once the object is destroyed.
    object: Atomic<*mut T::Raw>,
    /// Handlers that run, and one more until the object is cut off.
    running: Atomic<u32>,
    /// The object is cut off, and no handler of it runs.
    #[pin]
    idle: Completion,
    #[pin]
    reader: SpinLockIrq<Option<Reader>>,
}

/// The events `T` of a core object. Clones are of the same object.
pub struct Events<T: Target>(Arc<Shared<T>>);

impl<T: Target> Clone for Events<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

// SAFETY: The object is only handed to its handler, which may be called in any context.
unsafe impl<T: Target> Send for Events<T> {}

// SAFETY: As above; the rest is atomic.
unsafe impl<T: Target> Sync for Events<T> {}

impl<T: Target> Events<T> {
    /// Those of `object`. Sleeps.
    ///
    /// # Safety
    ///
    /// `object` stays valid until [`Self::cut`] returns.
    pub(super) unsafe fn new(object: *mut T::Raw) -> Result<Self> {
        // SAFETY: By the caller's promise; the core creates it now.
        let reader = unsafe { T::reader(object) };
        let shared = pin_init!(Shared {
            object: Atomic::new(object),
            running: Atomic::new(1),
            idle <- Completion::new(),
            reader <- new_spinlock_irq!(reader, "Events::reader"),
        });
        Ok(Self(Arc::pin_init(shared, GFP_KERNEL_ACCOUNT)?))
    }

    /// Reports an event; nothing, once the object is destroyed, nor while its process has an event of
    /// that kind to read. Any context, also a hard interrupt: a kernel ULP may post in one, and
    /// hears of a lost device then.
    pub fn raise(&self, event: T) {
        self.with(|object| {
            let admits = T::kind(event).is_none_or(|kind| match &mut *self.0.reader.lock() {
                // SAFETY: The object is there as long as `with` runs.
                Some(reader) => unsafe { reader.admits(kind) },
                None => true,
            });
            if admits {
                // SAFETY: As above.
                unsafe { T::notify(object, event) };
            }
        });
    }

    /// Calls `f` with the object, which is not destroyed before `f` returns; does nothing, once it is.
    /// Returns whether it was. Any context.
    pub(super) fn with(&self, f: impl FnOnce(*mut T::Raw)) -> bool {
        // Before the pointer is read: `cut` clears it before it looks at the count.
        self.0.running.fetch_add(1, Full);
        let object = self.0.object.load(Acquire);
        let is_there = !object.is_null();
        if is_there {
            f(object);
        }
        self.leave();
        is_there
    }

    fn leave(&self) {
        // The last one, and the object is cut off.
        if self.0.running.fetch_sub(1, Full) == 1 {
            self.0.idle.complete();
        }
    }

    /// Cuts the object off, if it is not yet. On return nothing uses it, nor will. Not called
    /// concurrently. Process context; sleeps while a handler runs on another CPU.
    pub(super) fn cut(&self) {
        // Fully ordered: what is not waited for below reads the null.
        if !self.0.object.xchg(ptr::null_mut(), Full).is_null() {
            self.leave();
            self.0.idle.wait_for_completion();
        }
    }
}

/// Calls the handler of `raw`'s asynchronous events, in an unsafe block, for an object as
/// [`Target::notify`] has it.
macro_rules! report {
    ($raw:ident, $kind:expr, $element:ident, $context:ident) => {
        if let Some(handler) = (*$raw).event_handler {
            let mut event = bindings::ib_event {
                device: (*$raw).device,
                event: $kind,
                ..Default::default()
            };
            event.element.$element = $raw;
            handler(&mut event, (*$raw).$context);
        }
    };
}

/// Events of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqEvent {
    /// A completion for which a notification was requested.
    Completion,
    /// It has overrun, or its memory cannot be accessed.
    Error,
}

impl Target for CqEvent {
    type Raw = bindings::ib_cq;

    unsafe fn notify(raw: *mut Self::Raw, event: Self) {
        // SAFETY: By the caller's promise. The handlers of a process's CQ are set before the driver's
        // part is created. A kernel ULP sets its own before it arms, and the driver raises no
        // completion of a CQ that is not armed.
        unsafe {
            match event {
                Self::Completion => {
                    if let Some(handler) = (*raw).comp_handler {
                        handler(raw, (*raw).cq_context);
                    }
                }
                Self::Error => {
                    report!(raw, bindings::ib_event_type_IB_EVENT_CQ_ERR, cq, cq_context);
                }
            }
        }
    }

    unsafe fn reader(raw: *mut Self::Raw) -> Option<Reader> {
        // SAFETY: By the caller's promise. It begins with that of its asynchronous events.
        unsafe { Reader::of((*raw).uobject) }
    }

    fn kind(event: Self) -> Option<usize> {
        (event == Self::Error).then_some(0)
    }
}

/// Events of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpEvent {
    /// It went to the error state for a cause that no completion reports.
    Fatal,
    /// It went to the error state for a request of its peer to memory that this one may not access.
    Access,
    /// It went to the error state for an invalid request of its peer.
    Request,
    /// It is in the error state, and takes no receive of its SRQ any more.
    LastReceive,
    /// Its send queue has drained.
    Drained,
}

impl Target for QpEvent {
    type Raw = bindings::ib_qp;

    unsafe fn notify(raw: *mut Self::Raw, event: Self) {
        let kind = match event {
            Self::Fatal => bindings::ib_event_type_IB_EVENT_QP_FATAL,
            Self::Access => bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
            Self::Request => bindings::ib_event_type_IB_EVENT_QP_REQ_ERR,
            Self::LastReceive => bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
            Self::Drained => bindings::ib_event_type_IB_EVENT_SQ_DRAINED,
        };
        // SAFETY: As in `CqEvent`.
        unsafe { report!(raw, kind, qp, qp_context) };
    }

    unsafe fn reader(raw: *mut Self::Raw) -> Option<Reader> {
        // SAFETY: As in `CqEvent`.
        unsafe { Reader::of((*raw).uobject) }
    }

    fn kind(event: Self) -> Option<usize> {
        // CAST: The discriminant.
        Some(event as usize)
    }
}

/// Events of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SrqEvent {
    /// It has fewer receives left than its limit.
    Limit,
    /// Its memory cannot be accessed.
    Error,
}

impl Target for SrqEvent {
    type Raw = bindings::ib_srq;

    unsafe fn notify(raw: *mut Self::Raw, event: Self) {
        let kind = match event {
            Self::Limit => bindings::ib_event_type_IB_EVENT_SRQ_LIMIT_REACHED,
            Self::Error => bindings::ib_event_type_IB_EVENT_SRQ_ERR,
        };
        // SAFETY: As in `CqEvent`.
        unsafe { report!(raw, kind, srq, srq_context) };
    }

    unsafe fn reader(raw: *mut Self::Raw) -> Option<Reader> {
        // SAFETY: As in `CqEvent`.
        unsafe { Reader::of((*raw).uobject) }
    }

    fn kind(event: Self) -> Option<usize> {
        // CAST: The discriminant.
        Some(event as usize)
    }
}

/// Events of the link of the device: of the port too, if its network device carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortEvent {
    /// The link came up: `IB_EVENT_PORT_ACTIVE`.
    Active,
    /// The link went down: `IB_EVENT_PORT_ERR`.
    Down,
}

impl PortEvent {
    /// Reports it. Any context.
    ///
    /// # Safety
    ///
    /// `raw` is registered.
    pub(super) unsafe fn dispatch(self, raw: *mut bindings::ib_device) {
        let kind = match self {
            Self::Active => bindings::ib_event_type_IB_EVENT_PORT_ACTIVE,
            Self::Down => bindings::ib_event_type_IB_EVENT_PORT_ERR,
        };
        let mut event = bindings::ib_event {
            device: raw,
            event: kind,
            ..Default::default()
        };
        // SAFETY: By the caller's promise. The core copies the event, and waits for its own work before
        // the device goes.
        unsafe {
            event.element.port_num = PORT;
            bindings::ib_dispatch_event(&event);
        }
    }
}

impl Target for PortEvent {
    type Raw = bindings::ib_device;

    unsafe fn notify(raw: *mut Self::Raw, event: Self) {
        // SAFETY: A registered device, by the caller's promise.
        unsafe {
            // Else the port is down, and stays so.
            if netdev::carries(raw) {
                event.dispatch(raw);
            }
        }
    }
}

#[kernel::macros::kunit_tests(rdma_events)]
mod tests {
    use super::*;
    use kernel::{
        sync::{
            atomic::Relaxed,
            Completion, //
        },
        time::{
            delay::fsleep,
            Delta, //
        },
        workqueue, //
    };

    /// An object whose handler lasts.
    #[pin_data]
    struct Object {
        #[pin]
        begun: Completion,
        ended: Atomic<u32>,
    }

    #[derive(Clone, Copy)]
    struct Slow;

    impl Target for Slow {
        type Raw = Object;

        unsafe fn notify(raw: *mut Object, _event: Self) {
            // SAFETY: By the caller's promise.
            let this = unsafe { &*raw };
            this.begun.complete_all();
            fsleep(Delta::from_millis(50));
            this.ended.fetch_add(1, Full);
        }

        unsafe fn reader(_raw: *mut Object) -> Option<Reader> {
            None
        }

        fn kind(_event: Self) -> Option<usize> {
            None
        }
    }

    #[test]
    fn cut_waits_for_handlers() -> Result {
        let slow = pin_init!(Object {
            begun <- Completion::new(),
            ended: Atomic::new(0),
        });
        let slow = Arc::pin_init(slow, GFP_KERNEL)?;
        // SAFETY: It is there until the end of this function.
        let events = unsafe { Events::<Slow>::new(Arc::as_ptr(&slow).cast_mut()) }?;
        let raiser = events.clone();
        workqueue::system_unbound().try_spawn(GFP_KERNEL, move || raiser.raise(Slow))?;
        slow.begun.wait_for_completion();
        events.cut();
        assert_eq!(slow.ended.load(Relaxed), 1);
        // The object is gone.
        events.raise(Slow);
        events.cut();
        assert_eq!(slow.ended.load(Relaxed), 1);
        Ok(())
    }
}
