// SPDX-License-Identifier: GPL-2.0

//! From the poll to the handlers of the core's objects.

use crate::{
    abi::{
        status::Event,
        Number, //
    },
    data::cq::EventHandler,
    sys::{
        eventfd::EventFd,
        rdma::{
            CqEvent,
            Events,
            QpEvent, //
        },
    },
};

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

impl EventHandler for CqHandler {
    fn completion(&self, _cq: Number) {
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
    fn completion(&self, _cq: Number) {}

    fn reported(&self, event: Event) {
        self.0.raise(match event {
            Event::LastReceive => QpEvent::LastReceive,
            Event::SqDrained => QpEvent::Drained,
            _ => QpEvent::Fatal,
        });
    }
}
