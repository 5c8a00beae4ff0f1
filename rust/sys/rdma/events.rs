// SPDX-License-Identifier: GPL-2.0

//! From the poll of a driver to the handlers of the core's objects.

use super::{
    super::current::cond_resched,
    bindings,
    netdev,
    registration::PORT, //
};
use core::{
    hint,
    ptr, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Release, //
        },
        Arc, //
    }, //
};

/// An object of the core that has events.
pub trait Target: 'static {
    /// What happens to it.
    type Event: Copy;

    /// Its structure.
    #[doc(hidden)]
    type Raw;

    /// Calls its handler. Any context.
    ///
    /// # Safety
    ///
    /// `raw` is an object that was created and not yet destroyed.
    #[doc(hidden)]
    unsafe fn notify(raw: *mut Self::Raw, event: Self::Event);
}

struct Shared<T: Target> {
    /// Null once the object is destroyed.
    object: Atomic<*mut T::Raw>,
    /// Handlers that run.
    running: Atomic<u32>,
}

/// The events of a core object of kind `T`. Clones are of the same object.
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
        let shared = Shared {
            object: Atomic::new(object),
            running: Atomic::new(0),
        };
        Ok(Self(Arc::new(shared, GFP_KERNEL_ACCOUNT)?))
    }

    /// Reports an event; nothing, once the object is destroyed. Any context, also a hard interrupt: a
    /// user in the kernel may post in one, and hears of a lost device then.
    pub fn raise(&self, event: T::Event) {
        // Before the pointer is read: `cut` clears it before it looks at the count.
        self.0.running.fetch_add(1, Full);
        let object = self.0.object.load(Acquire);
        if !object.is_null() {
            // SAFETY: `cut` waits until the count is zero before the object goes.
            unsafe { T::notify(object, event) };
        }
        self.0.running.fetch_sub(1, Release);
    }

    /// Cuts the object off. On return no handler of it runs, nor will one. Process context; waits
    /// for a handler that runs on another CPU.
    pub(super) fn cut(&self) {
        // Fully ordered: a handler that is not counted below reads the null.
        self.0.object.xchg(ptr::null_mut(), Full);
        while self.0.running.load(Acquire) != 0 {
            hint::spin_loop();
            cond_resched();
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
            *event.element.$element.as_mut() = $raw;
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
    type Event = Self;
    type Raw = bindings::ib_cq;

    unsafe fn notify(raw: *mut Self::Raw, event: Self) {
        // SAFETY: By the caller's promise. The handlers of a process's CQ are set before the driver's
        // part is created. A user in the kernel sets its own before it arms, and the driver raises no
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
    type Event = Self;
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
    type Event = Self;
    type Raw = bindings::ib_srq;

    unsafe fn notify(raw: *mut Self::Raw, event: Self) {
        let kind = match event {
            Self::Limit => bindings::ib_event_type_IB_EVENT_SRQ_LIMIT_REACHED,
            Self::Error => bindings::ib_event_type_IB_EVENT_SRQ_ERR,
        };
        // SAFETY: As in `CqEvent`.
        unsafe { report!(raw, kind, srq, srq_context) };
    }
}

/// Events of the link of the device: of the port too, if its network device carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortEvent {
    /// It became active.
    Active,
    /// It is down.
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
            *event.element.port_num.as_mut() = PORT;
            bindings::ib_dispatch_event(&event);
        }
    }
}

impl Target for PortEvent {
    type Event = Self;
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
