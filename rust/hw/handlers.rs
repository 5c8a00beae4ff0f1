// SPDX-License-Identifier: GPL-2.0

//! The handlers of events, and the way of an asynchronous event to its handler.

use super::{
    function::{
        Failure,
        Function,
        Limits, //
    },
    table::Table, //
};
use crate::{
    abi::{
        entry::Eqe,
        status::Event, //
    },
    kernel::trace, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The event handler of an object of a process, or of the link.
///
/// Both methods are called in poll context. They may use atomics, signal an eventfd and wake tasks;
/// they must not take a sleeping lock or drop a last reference.
pub(crate) trait EventHandler: Send + Sync {
    /// An armed CQ has completions.
    fn completion(&self) {}
    /// An asynchronous event of the object.
    fn reported(&self, event: Event);
}

/// A kind of object whose asynchronous events have a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owned {
    /// A CQ.
    Cq,
    /// A queue pair.
    Qp,
    /// A shared receive queue.
    Srq,
}

/// The handlers of the asynchronous events of an EQ.
pub(super) struct Handlers {
    cqs: Table<Arc<dyn EventHandler>>,
    pub(super) qps: Table<Arc<dyn EventHandler>>,
    srqs: Table<Arc<dyn EventHandler>>,
    pub(super) link: Option<Arc<dyn EventHandler>>,
    /// Events without a handler, or of an unknown kind.
    pub(super) unclaimed: u64,
}

impl Handlers {
    /// None, and room for those of EQ 0, which has all asynchronous events, if `vector` is 0. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(vector: u32, limits: &Limits) -> Result<Self> {
        let handled = |limit| if vector == 0 { limit } else { 0 };
        Ok(Self {
            cqs: Table::new(handled(limits.cq))?,
            qps: Table::new(handled(limits.qp))?,
            srqs: Table::new(handled(limits.srq))?,
            link: None,
            unclaimed: 0,
        })
    }

    /// The handlers of objects of this kind.
    pub(super) fn of(&mut self, what: Owned) -> &mut Table<Arc<dyn EventHandler>> {
        match what {
            Owned::Cq => &mut self.cqs,
            Owned::Qp => &mut self.qps,
            Owned::Srq => &mut self.srqs,
        }
    }

    /// Passes an event of an EQ of `epoch` to its handler.
    pub(super) fn report(&mut self, function: &Function, epoch: u32, eqe: &Eqe) {
        trace::wrong(
            trace::Wrong::Asynchronous,
            eqe.number.raw(),
            u32::from(eqe.code),
        );
        let event = Event::from_code(eqe.kind);
        let handler = match event {
            Some(Event::CqOverrun) => self.cqs.get_mut(eqe.number),
            Some(
                Event::QpFatal
                | Event::QpAccess
                | Event::QpRequest
                | Event::LastReceive
                | Event::SqDrained,
            ) => self.qps.get_mut(eqe.number),
            Some(Event::SrqLimit | Event::SrqFatal) => self.srqs.get_mut(eqe.number),
            Some(Event::LinkUp | Event::LinkDown) => self.link.as_mut(),
            Some(Event::DeviceFatal) => {
                return function.fail_in(epoch, Failure::Stopped(eqe.code));
            }
            // The device's counter has all violations.
            Some(Event::DoorbellViolation | Event::Completion) | None => None,
        };
        match (handler, event) {
            (Some(handler), Some(event)) => handler.reported(event),
            _ => self.unclaimed += 1,
        }
    }
}
