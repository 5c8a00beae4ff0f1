// SPDX-License-Identifier: GPL-2.0

//! The state of a poll, and the effect of each step of its loop.
//!
//! The loop is [`queue::poll`](crate::queue::poll): pure logic, tested on the host. Its effects:
//!
//! | step of the loop | here |
//! |---|---|
//! | consume, publish a kernel CQ | [`KernelCq`](super::cq::KernelCq) |
//! | signal a CQ of a process | its [`EventHandler`] |
//! | an asynchronous event (EQ 0) | the [`EventHandler`] of the object, or [`Function::fail_in`] |
//! | head of the EQ | doorbell |

use super::{
    batch::Batch,
    cq::{
        Body,
        Entry,
        EventHandler,
        LinkHandler, //
    },
    function::{
        Doorbells,
        Failure,
        Function,
        Limits, //
    },
    ring::Ring,
    table::Table, //
};
use crate::{
    abi::{
        doorbell,
        entry::Eqe,
        status::Event,
        Number, //
    },
    kernel::trace, //
    queue::{
        index::Index,
        poll::{
            Consumed,
            CqEffects,
            Effects,
            Node,
            Poller, //
        },
        share::Share, //
    },
};
use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*,
    sync::Arc, //
};

/// An EQ that is up.
pub(crate) struct Live {
    pub(super) poll: Poller<Ring>,
    pub(super) world: World,
    /// The EQ's share of its CPU.
    pub(super) share: Share,
}

impl Live {
    /// Checks that all slots are back. The device is quiet, and the poll does not run.
    pub(crate) fn retire(self) {
        let Self {
            poll, mut world, ..
        } = self;
        let mut held = 0;
        world.cqs.drain(|_, entry| {
            held += entry.node.held();
            if let Body::Kernel(kernel) = entry.body {
                KBox::into_inner(kernel).retire();
            }
        });
        kernel::warn_on!(poll.audit(held).is_err());
    }
}

/// The state that the poll acts on.
pub(super) struct World {
    pub(super) number: Number,
    epoch: u32,
    pub(super) cqs: Table<Entry>,
    /// Of EQ 0: the handlers of asynchronous events.
    pub(super) handlers: EventHandlers,
    batch: Batch,
    /// Asynchronous events without a handler, or of an unknown kind.
    pub(super) unclaimed: u64,
}

impl World {
    /// The state of EQ `number` of vector `vector` in `epoch`, without CQs. Sleeps.
    pub(super) fn new(number: Number, vector: u32, epoch: u32, limits: &Limits) -> Result<Self> {
        // Asynchronous events go to EQ 0.
        let handled = |limit| if vector == 0 { limit } else { 0 };
        Ok(Self {
            number,
            epoch,
            cqs: Table::new(limits.cq)?,
            handlers: EventHandlers {
                cqs: Table::new(handled(limits.cq))?,
                qps: Table::new(handled(limits.qp))?,
                srqs: Table::new(handled(limits.srq))?,
                link: None,
            },
            batch: Batch::new()?,
            unclaimed: 0,
        })
    }
}

/// The handlers of asynchronous events.
pub(super) struct EventHandlers {
    cqs: Table<Arc<dyn EventHandler>>,
    pub(super) qps: Table<Arc<dyn EventHandler>>,
    srqs: Table<Arc<dyn EventHandler>>,
    pub(super) link: Option<Arc<dyn LinkHandler>>,
}

/// The kind of object that a number in [`EventHandlers`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owned {
    /// A CQ.
    Cq,
    /// A queue pair.
    Qp,
    /// A shared receive queue.
    Srq,
}

impl EventHandlers {
    pub(super) fn of(&mut self, what: Owned) -> &mut Table<Arc<dyn EventHandler>> {
        match what {
            Owned::Cq => &mut self.cqs,
            Owned::Qp => &mut self.qps,
            Owned::Srq => &mut self.srqs,
        }
    }
}

/// The effects of a poll.
pub(super) struct Act<'a> {
    world: &'a mut World,
    function: &'a Function,
    doorbells: Doorbells<'a>,
}

impl<'a> Act<'a> {
    #[inline]
    pub(super) fn new(
        world: &'a mut World,
        function: &'a Function,
        dev: &'a Device<Bound>,
    ) -> Self {
        Self {
            world,
            function,
            doorbells: function.doorbells(dev),
        }
    }
}

impl Effects for Act<'_> {
    type Cq<'a>
        = OnCq<'a>
    where
        Self: 'a;

    #[inline]
    fn event(&mut self, index: Index, event: &Eqe) {
        trace::eqe(
            self.world.number.raw(),
            index.get(),
            u32::from(event.kind),
            event.number.raw(),
        );
    }

    #[inline]
    fn cq(&mut self, number: Number) -> Option<OnCq<'_>> {
        Some(OnCq {
            number,
            entry: self.world.cqs.get_mut(number)?,
            batch: &mut self.world.batch,
            doorbells: &self.doorbells,
        })
    }

    #[inline]
    fn node(&mut self, cq: Number) -> Option<&mut Node> {
        Some(&mut self.world.cqs.get_mut(cq)?.node)
    }

    fn asynchronous(&mut self, eqe: Eqe) {
        let (number, code) = (eqe.number.raw(), u32::from(eqe.code));
        trace::wrong(trace::Wrong::Asynchronous, number, code);
        let (what, event) = match Event::from_code(eqe.kind) {
            Some(event @ Event::CqOverrun) => (Owned::Cq, event),
            Some(
                event @ (Event::QpFatal
                | Event::QpAccess
                | Event::QpRequest
                | Event::LastReceive
                | Event::SqDrained),
            ) => (Owned::Qp, event),
            Some(event @ (Event::SrqLimit | Event::SrqFatal)) => (Owned::Srq, event),
            Some(Event::DeviceFatal) => {
                let failure = Failure::Stopped(eqe.code);
                return self.function.fail_in(self.world.epoch, failure);
            }
            Some(change @ (Event::LinkUp | Event::LinkDown)) => {
                match &self.world.handlers.link {
                    Some(link) => link.changed(change == Event::LinkUp),
                    None => self.world.unclaimed += 1,
                }
                return;
            }
            // The device's counter has all violations.
            _ => {
                self.world.unclaimed += 1;
                return;
            }
        };
        match self.world.handlers.of(what).get_mut(eqe.number) {
            Some(handler) => handler.reported(event),
            None => self.world.unclaimed += 1,
        }
    }

    #[inline]
    fn doorbell(&mut self, head: Index, unmask: bool) {
        let place = if unmask {
            doorbell::EQ_HEAD
        } else {
            doorbell::EQ_HEAD_MASKED
        };
        trace::head(true, self.world.number.raw(), head.get(), !unmask);
        self.doorbells.ring(place, self.world.number, head.get());
    }
}

/// A CQ that the poll has looked up in the table.
pub(super) struct OnCq<'a> {
    number: Number,
    entry: &'a mut Entry,
    batch: &'a mut Batch,
    doorbells: &'a Doorbells<'a>,
}

impl CqEffects for OnCq<'_> {
    #[inline]
    fn node(&mut self) -> &mut Node {
        &mut self.entry.node
    }

    #[inline]
    fn consume(&mut self, max: u32) -> Consumed {
        match &mut self.entry.body {
            Body::Kernel(kernel) => kernel.consume(max, self.batch),
            Body::Process(_) | Body::Ending => Consumed::NOTHING,
        }
    }

    #[inline]
    fn publish(&mut self, arm: bool) {
        if let Body::Kernel(kernel) = &mut self.entry.body {
            kernel.publish(arm, self.batch, self.doorbells);
        }
    }

    #[inline]
    fn signal(&mut self) {
        if let Body::Process(handler) = &self.entry.body {
            handler.completion(self.number);
        }
    }
}
