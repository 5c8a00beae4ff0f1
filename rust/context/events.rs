// SPDX-License-Identifier: GPL-2.0

//! From the event poll to a process.
//!
//! The poll runs in softirq context and takes no lock. So each object has the place for what can
//! happen to it, an [`Alarm`], and the poll only adds to that and wakes. `read` collects, in
//! process context. Nothing is allocated for an event, and none is lost: what happens again before
//! it was read is counted.

use crate::{
    abi::{
        status::Event,
        uapi::qpair_async_event,
        Number, //
    },
    data::cq::{
        AsyncEvent,
        EventHandler, //
    },
    sys::{
        eventfd::EventFd,
        wait::Waiters, //
    },
};
use kernel::{
    fs::File,
    prelude::*,
    static_lock_class,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed, //
        },
        poll::{
            PollCondVarBox,
            PollTable, //
        },
        Arc, //
    }, //
};

/// What a context's sleepers listen to. The poll's side of the objects refers to this, and not to
/// the context: nothing of what the poll holds keeps a file alive.
#[pin_data]
pub(super) struct Bell {
    /// Alarms that were raised and not yet taken.
    raised: Atomic<u32>,
    #[pin]
    waiters: Waiters,
    // Its memory is freed after a grace period of RCU, for which a close does not wait.
    pollers: PollCondVarBox,
}

impl Bell {
    /// Silent. Sleeps.
    pub(super) fn new() -> Result<Arc<Self>> {
        let pollers = PollCondVarBox::new(c"Bell::pollers", static_lock_class!())?;
        Arc::pin_init(
            pin_init!(Self {
                raised: Atomic::new(0),
                waiters <- Waiters::new(),
                pollers,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Whether there is an alarm to take.
    pub(super) fn is_raised(&self) -> bool {
        self.raised.load(Acquire) != 0
    }

    /// Everybody look. Any context.
    pub(super) fn wake(&self) {
        self.waiters.wake_all();
        self.pollers.notify_all();
    }

    /// Whoever waits for a turn to read: look. Process context.
    pub(super) fn next_turn(&self) {
        self.waiters.wake_all();
    }

    /// Sleeps until `condition` holds, or a signal comes.
    pub(super) fn wait(&self, condition: impl FnMut() -> bool) -> Result {
        self.waiters.wait(condition)
    }

    /// Has a `poll` of `file` look again at every [`Self::wake`].
    pub(super) fn listen(&self, file: &File, table: &PollTable<'_>) {
        table.register_wait(file, &self.pollers);
    }
}

/// What happened to an object, and was not yet read: how often, and the last code.
pub(super) struct Alarm {
    bell: Arc<Bell>,
    count: Atomic<u32>,
    code: Atomic<u32>,
}

impl Alarm {
    /// Nothing happened.
    fn new(bell: &Arc<Bell>) -> Self {
        Self {
            bell: bell.clone(),
            count: Atomic::new(0),
            code: Atomic::new(0),
        }
    }

    /// It happened. Any context.
    fn raise(&self, event: &AsyncEvent) {
        self.code.store(u32::from(event.code), Relaxed);
        // Fully ordered: who sees the count sees the code.
        if self.count.fetch_add(event.count.max(1), Full) == 0 {
            self.bell.raised.fetch_add(1, Full);
        }
        self.bell.wake();
    }

    /// Takes how often it happened, and the last code.
    pub(super) fn take(&self) -> Option<(u32, u32)> {
        let count = self.count.xchg(0, Full);
        if count == 0 {
            return None;
        }
        self.bell.raised.fetch_sub(1, Full);
        Some((count, self.code.load(Relaxed)))
    }

    /// Takes it in the form that `read` gives.
    pub(super) fn collect(&self, kind: Event, number: Number) -> Option<qpair_async_event> {
        let (count, code) = self.take()?;
        Some(qpair_async_event {
            kind: u32::from(kind.code()),
            handle: number.raw(),
            code,
            count,
        })
    }
}

impl Drop for Alarm {
    /// What was not read goes with its object.
    fn drop(&mut self) {
        let _unread = self.take();
    }
}

/// An object as the poll sees it.
pub(super) struct Watch {
    eventfd: Option<EventFd>,
    /// Overrun of a completion queue, end of a queue pair, violation of a page.
    pub(super) alarm: Alarm,
}

impl Watch {
    /// Of an object whose completions signal `eventfd`, if any.
    pub(super) fn new(bell: &Arc<Bell>, eventfd: Option<EventFd>) -> Result<Arc<Self>> {
        let watch = Self {
            eventfd,
            alarm: Alarm::new(bell),
        };
        Ok(Arc::new(watch, GFP_KERNEL_ACCOUNT)?)
    }
}

impl EventHandler for Watch {
    fn completion(&self, _cq: Number) {
        if let Some(eventfd) = &self.eventfd {
            eventfd.signal();
        }
    }

    fn event(&self, event: &AsyncEvent) {
        self.alarm.raise(event);
    }
}
