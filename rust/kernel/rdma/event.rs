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
    static_lock_class,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Release, //
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
    fn kind(_event: Self) -> usize {
        0
    }
}

#[pin_data]
struct Shared<T: Target> {
    /// Null once the object is destroyed.
    object: Atomic<*mut T::Raw>,
    /// The handler of a CQ's completions is set.
    is_finished: Atomic<bool>,
    /// Handlers that run, and one more until the object is cut off.
    running: Atomic<u32>,
    /// The object is cut off, and no handler of it runs.
    #[pin]
    idle: Completion,
    #[pin]
    reader: SpinLockIrq<Option<Reader>>,
}

/// The events `T` of a core object. Clones are of the same object.
#[derive(Clone)]
pub struct Events<T: Target>(Arc<Shared<T>>);

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
        // A literal here would be another one in each crate, and a class of locks has one name.
        static NAME: &CStr = c"Events::reader";
        // SAFETY: By the caller's promise; the core creates it now.
        let reader = unsafe { T::reader(object) };
        let shared = pin_init!(Shared {
            object: Atomic::new(object),
            is_finished: Atomic::new(false),
            running: Atomic::new(1),
            idle <- Completion::new(),
            reader <- SpinLockIrq::new(reader, NAME, static_lock_class!()),
        });
        Ok(Self(Arc::pin_init(shared, GFP_KERNEL_ACCOUNT)?))
    }

    /// Reports an event; nothing, once the object is destroyed, nor while its process has an event of
    /// that kind to read. Any context.
    pub fn raise(&self, event: T) {
        self.with(|object| {
            let admits = match &mut *self.0.reader.lock() {
                // SAFETY: The object is there as long as `with` runs.
                Some(reader) => unsafe { reader.admits(T::kind(event)) },
                None => true,
            };
            if admits {
                // SAFETY: As above.
                unsafe { T::notify(object, event) };
            }
        });
    }

    /// Calls `f` with the object, which is not destroyed before `f` returns; does nothing, once it is.
    /// Any context.
    fn with(&self, f: impl FnOnce(*mut T::Raw)) {
        // Before the pointer is read: `cut` clears it before it looks at the count.
        self.0.running.fetch_add(1, Full);
        if let Some(object) = self.address() {
            f(object);
        }
        self.leave();
    }

    /// The address of the object, unless that is destroyed. Any context.
    #[inline]
    pub(super) fn address(&self) -> Option<*mut T::Raw> {
        ptr::NonNull::new(self.0.object.load(Acquire)).map(ptr::NonNull::as_ptr)
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

impl Events<CqEvent> {
    /// The handler of completions is set, and does not change any more: that of a process before the
    /// CQ is created, that of a kernel ULP before a queue pair is created on it. Any context.
    pub(super) fn finish(&self) {
        self.0.is_finished.store(true, Release);
    }

    /// Whether the handler of completions is set: `ib_alloc_cq()` sets it after the create, and arms the
    /// CQ. Any context.
    pub(super) fn is_finished(&self) -> bool {
        self.0.is_finished.load(Acquire)
    }

    /// Reports a completion for which a notification was requested, as [`Self::raise`] does an event;
    /// nothing, before the CQ has its handler.
    pub fn complete(&self) {
        if !self.is_finished() {
            return;
        }
        self.with(|cq| {
            // SAFETY: The object is there as long as `with` runs, and its handler does not change.
            unsafe {
                if let Some(handler) = (*cq).comp_handler {
                    handler(cq, (*cq).cq_context);
                }
            }
        });
    }
}

/// The asynchronous events of the objects that have a handler of them, each with its name in the core.
macro_rules! events {
    ($(
        $(#[$doc:meta])*
        $name:ident of $object:ident, $element:ident, $context:ident {
            $( $(#[$of:meta])* $event:ident = $kind:ident, )*
        }
    )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $( $(#[$of])* $event, )* }

        impl Target for $name {
            type Raw = bindings::$object;

            unsafe fn notify(raw: *mut Self::Raw, event: Self) {
                let event = match event {
                    $( Self::$event => bindings::$kind, )*
                };
                // SAFETY: By the caller's promise. The handler is set before the driver's part is
                // created.
                unsafe {
                    if let Some(handler) = (*raw).event_handler {
                        let device = (*raw).device;
                        let mut event = bindings::ib_event { device, event, ..Default::default() };
                        event.element.$element = raw;
                        handler(&mut event, (*raw).$context);
                    }
                }
            }

            unsafe fn reader(raw: *mut Self::Raw) -> Option<Reader> {
                // SAFETY: By the caller's promise. It begins with that of its asynchronous events.
                unsafe { Reader::of((*raw).uobject) }
            }

            fn kind(event: Self) -> usize {
                // CAST: The discriminant.
                event as usize
            }
        }
    )* };
}

events! {
    /// Events of a completion queue.
    CqEvent of ib_cq, cq, cq_context {
        /// It has overrun, or its memory cannot be accessed.
        Error = ib_event_type_IB_EVENT_CQ_ERR,
    }

    /// Events of a queue pair.
    QpEvent of ib_qp, qp, qp_context {
        /// It went to the error state for a cause that no completion reports.
        Fatal = ib_event_type_IB_EVENT_QP_FATAL,
        /// It went to the error state for a request of its peer to memory that this one may not access.
        Access = ib_event_type_IB_EVENT_QP_ACCESS_ERR,
        /// It went to the error state for an invalid request of its peer.
        Request = ib_event_type_IB_EVENT_QP_REQ_ERR,
        /// It is in the error state, and takes no receive of its SRQ any more.
        LastReceive = ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
        /// Its send queue has drained.
        Drained = ib_event_type_IB_EVENT_SQ_DRAINED,
    }

    /// Events of a shared receive queue.
    SrqEvent of ib_srq, srq, srq_context {
        /// It has fewer receives left than its limit.
        Limit = ib_event_type_IB_EVENT_SRQ_LIMIT_REACHED,
        /// Its memory cannot be accessed.
        Error = ib_event_type_IB_EVENT_SRQ_ERR,
    }
}

/// Events of the link of the device: of the port too, if its network device carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PortEvent {
    /// The link came up.
    Active = bindings::ib_event_type_IB_EVENT_PORT_ACTIVE,
    /// The link went down.
    Down = bindings::ib_event_type_IB_EVENT_PORT_ERR,
}

impl PortEvent {
    /// Reports it. Any context.
    ///
    /// # Safety
    ///
    /// `raw` is registered.
    pub(super) unsafe fn dispatch(self, raw: *mut bindings::ib_device) {
        let mut event = bindings::ib_event {
            device: raw,
            // CAST: The discriminant.
            event: self as u32,
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
