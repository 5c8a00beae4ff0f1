// SPDX-License-Identifier: GPL-2.0

//! The handlers of events, and the way of an asynchronous event to its object.

use super::{
    function::{
        Function,
        Limits, //
    },
    prelude::*,
    table::Table, //
};
use crate::{
    abi::{
        entry::Eqe,
        status::Event, //
    },
    kernel::rdma::{
        CqEvent,
        Events,
        PortEvent,
        QpEvent,
        SrqEvent,
        Target, //
    }, //
};

/// The completion handler of a CQ that the poll does not read: of a process or of a kernel ULP.
pub(crate) trait CompletionHandler: Send + Sync {
    /// The CQ was armed and has completions. Poll context: it may use atomics, signal an eventfd and
    /// wake tasks; it must not take a sleeping lock or drop a last reference.
    fn completion(&self);
}

/// Events of a kind of object that has asynchronous ones.
pub(crate) trait AsyncEvent: Target {
    /// The objects of this kind.
    fn table(handlers: &mut Handlers) -> &mut Table<Events<Self>>;
}

macro_rules! async_events {
    ($($event:ident: $table:ident),* $(,)?) => { $(
        impl AsyncEvent for $event {
            fn table(handlers: &mut Handlers) -> &mut Table<Events<Self>> {
                &mut handlers.$table
            }
        }
    )* };
}
async_events!(CqEvent: cqs, QpEvent: qps, SrqEvent: srqs);

/// The objects that the asynchronous events of an EQ are of.
pub(crate) struct Handlers {
    cqs: Table<Events<CqEvent>>,
    pub(super) qps: Table<Events<QpEvent>>,
    pub(super) srqs: Table<Events<SrqEvent>>,
    pub(super) link: Option<Events<PortEvent>>,
    /// Events without an object, or of an unknown kind.
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

    /// Raises an event of an EQ of `epoch` at its object.
    pub(super) fn report(&mut self, function: &Function, epoch: u32, eqe: &Eqe) {
        let number = eqe.number;
        trace::wrong(
            trace::Wrong::Asynchronous,
            number.raw(),
            u32::from(eqe.code),
        );
        let is_claimed = match Event::from_code(eqe.kind) {
            Some(Event::CqOverrun) => self.raise(number, CqEvent::Error),
            Some(Event::QpFatal) => self.raise(number, QpEvent::Fatal),
            Some(Event::QpAccess) => self.raise(number, QpEvent::Access),
            Some(Event::QpRequest) => self.raise(number, QpEvent::Request),
            Some(Event::LastReceive) => self.raise(number, QpEvent::LastReceive),
            Some(Event::SqDrained) => self.raise(number, QpEvent::Drained),
            Some(Event::SrqLimit) => self.raise(number, SrqEvent::Limit),
            Some(Event::SrqFatal) => self.raise(number, SrqEvent::Error),
            Some(Event::LinkUp) => self.raise_link(PortEvent::Active),
            Some(Event::LinkDown) => self.raise_link(PortEvent::Down),
            Some(Event::DeviceFatal) => {
                return function
                    .supervisor
                    .fail_in(epoch, Failure::Stopped(eqe.code));
            }
            // The device's counter has all violations.
            Some(Event::DoorbellViolation | Event::Completion) | None => false,
        };
        if !is_claimed {
            self.unclaimed += 1;
        }
    }

    fn raise<E: AsyncEvent>(&mut self, number: Number, event: E) -> bool {
        let object = E::table(self).get_mut(number);
        object.map(|object| object.raise(event)).is_some()
    }

    fn raise_link(&self, event: PortEvent) -> bool {
        self.link.as_ref().map(|link| link.raise(event)).is_some()
    }
}
