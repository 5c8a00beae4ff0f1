// SPDX-License-Identifier: GPL-2.0

//! From the poll to the handlers of the core's objects.

use crate::{
    abi::status::Event,
    data::{
        handlers::EventHandler,
        ulp::Armed, //
    },
    kernel::{
        eventfd::EventFd,
        rdma::{
            CqEvent,
            Events,
            QpEvent, //
        },
    },
};
use kernel::sync::Arc;

/// What the poll reports a CQ's events to.
pub(super) struct CqHandler {
    eventfd: Option<EventFd>,
    events: Events<CqEvent>,
}

impl CqHandler {
    /// Also signals `eventfd`, if there is one.
    pub(super) fn new(eventfd: Option<EventFd>, events: Events<CqEvent>) -> Self {
        Self { eventfd, events }
    }
}

/// The same of a user in the kernel: it gets an event only for an arm of its own, whatever the device
/// writes.
pub(super) struct UlpHandler(pub(super) Arc<Armed>);

impl EventHandler for UlpHandler {
    fn completion(&self) {
        self.0.raise();
    }

    fn reported(&self, _event: Event) {
        self.0.fail();
    }
}

impl EventHandler for CqHandler {
    fn completion(&self) {
        if let Some(eventfd) = &self.eventfd {
            eventfd.signal();
        }
        self.events.raise(CqEvent::Completion);
    }

    fn reported(&self, _event: Event) {
        self.events.raise(CqEvent::Error);
    }
}

/// What the poll reports a queue pair's events to.
pub(super) struct QpHandler(pub(super) Events<QpEvent>);

impl EventHandler for QpHandler {
    fn reported(&self, event: Event) {
        self.0.raise(match event {
            Event::LastReceive => QpEvent::LastReceive,
            Event::SqDrained => QpEvent::Drained,
            Event::QpAccess => QpEvent::Access,
            Event::QpRequest => QpEvent::Request,
            _ => QpEvent::Fatal,
        });
    }
}
