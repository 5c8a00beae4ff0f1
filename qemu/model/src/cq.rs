// SPDX-License-Identifier: GPL-2.0
//! Completion queues.
//!
//! The rules (`rules::channel`) decide when a CQ writes an event. The completion is in memory
//! before the producer index that covers it is published, and that before the event that reports it.

use crate::event::Events;
use crate::faults::Written;
use crate::host::Host;
use crate::host::Mapping;
use crate::host::Trace;
use crate::producers::Producer;
use crate::producers::Producers;
use crate::ring::Ring;
use crate::rules::channel::Channel;
use crate::rules::channel::Fire;
use crate::rules::channel::Kept;
use crate::rules::channel::Violation;
use crate::rules::channel::Wants;
use crate::schedule::Core;
use crate::subject::Source;
use crate::subject::Subject;
use crate::table::Until;
use qpair_abi::command::cq_flags;
use qpair_abi::command::CqContext;
use qpair_abi::counters::Counter;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::Eqe;
use qpair_abi::entry::OWNER;
use qpair_abi::status::EnableError;
use qpair_abi::status::Event;
use qpair_abi::Number;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::resize::Switch;

/// Why a completion was not written.
pub(crate) enum PutError {
    /// The CQ was overrun before.
    Dead,
    /// The CQ is full, or its memory cannot be written.
    Overrun,
}

/// A completion queue.
pub(crate) struct CompletionQueue<M> {
    pub(crate) number: Number,
    pub(crate) eq: Number,
    pub(crate) page: u16,
    log_depth: u8,
    user: bool,
    /// It takes no completion any more.
    overrun: bool,
    pub(crate) ring: Ring<M>,
    channel: Channel,
    producer: Producer,
    /// Work queues that complete here.
    pub(crate) users: u32,
    /// Indices passed since the beginning.
    passed: u64,
}

impl<M: Mapping> CompletionQueue<M> {
    pub(crate) fn new(
        number: Number,
        context: &CqContext,
        depth: Depth,
        ring: Ring<M>,
        first: Index,
        producers: &Producers,
    ) -> Self {
        let user = context.flags & cq_flags::USER != 0;
        Self {
            number,
            eq: context.eq,
            page: context.page,
            log_depth: context.log_depth,
            user,
            overrun: false,
            ring,
            channel: Channel::starting_at(depth, user, first),
            producer: producers.begin(number.index(), first),
            users: 0,
            passed: 0,
        }
    }

    /// The context for QUERY.
    pub(crate) fn context(&self) -> CqContext {
        CqContext {
            eq: self.eq,
            page: self.page,
            log_depth: self.log_depth,
            flags: if self.user { cq_flags::USER } else { 0 }
                | if self.overrun { cq_flags::OVERRUN } else { 0 },
            producer: self.channel.window().tail().get(),
            consumer: self.channel.published().get(),
            buffer: *self.ring.described(),
        }
    }

    /// Whether it takes no completion any more.
    pub(crate) fn is_dead(&self) -> bool {
        self.overrun
    }

    /// Indices passed since the beginning; does not wrap.
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }

    /// The indices written so far, and the one past them.
    pub(crate) fn written(&self) -> (Until, Index) {
        let tail = self.channel.window().tail();
        let unread = tail.since(self.channel.published());
        let written = self.passed.wrapping_add(u64::from(unread));
        (Until::Cq(self.number, written), tail)
    }

    /// Goes on in another ring; the one before is not accessed any more.
    pub(crate) fn resize(
        &mut self,
        ring: Ring<M>,
        depth: Depth,
        log_depth: u8,
    ) -> Result<Switch, Kept> {
        let before = self.channel.published();
        let switch = self.channel.resize(depth)?;
        self.pass(before);
        self.ring = ring;
        self.log_depth = log_depth;
        self.producer.publish(switch.begin);
        Ok(switch)
    }

    /// Counts what the head has passed since it was `before`.
    fn pass(&mut self, before: Index) {
        let after = self.channel.published();
        self.passed = self.passed.wrapping_add(u64::from(after.since(before)));
    }

    /// Publishes a head, with an arm or without.
    pub(crate) fn head<H: Host<Map = M>>(
        &mut self,
        core: &mut Core<H>,
        events: &mut Events<M>,
        head: Index,
        wants: Option<Wants>,
    ) -> Result<(), Violation> {
        let before = self.channel.published();
        let fire = match wants {
            Some(wants) => self.channel.arm(wants, head),
            None => self.channel.head(head).map(|()| Fire::No),
        };
        self.pass(before);
        self.fire(core, events, fire?);
        Ok(())
    }

    /// Opens the channel for what was written since the sample.
    pub(crate) fn notify<H: Host<Map = M>>(
        &mut self,
        core: &mut Core<H>,
        events: &mut Events<M>,
        wants: Wants,
        sample: Option<Index>,
    ) {
        let sample = sample.unwrap_or(self.channel.window().tail());
        let fire = self.channel.notify(wants, sample);
        self.fire(core, events, fire);
    }

    /// The head of the EQ has passed the event of this CQ: writes the next one if it is due.
    pub(crate) fn event_passed<H: Host<Map = M>>(
        &mut self,
        core: &mut Core<H>,
        events: &mut Events<M>,
    ) {
        let fire = self.channel.passed();
        self.fire(core, events, fire);
    }

    /// Writes a completion, and the event that it causes.
    #[inline(always)]
    pub(crate) fn put<H: Host<Map = M>>(
        &mut self,
        core: &mut Core<H>,
        events: &mut Events<M>,
        mut words: [u64; Cqe::WORDS],
        wakes: bool,
    ) -> Result<(), PutError> {
        if self.overrun {
            return Err(PutError::Dead);
        }
        let (index, fire) = self.channel.push(wakes).ok_or(PutError::Overrun)?;
        let depth = self.channel.window().depth();
        let [_, _, _, last] = &mut words;
        *last = (*last & !OWNER) | if depth.owner(index) { OWNER } else { 0 };
        core.garble(Written::Cqe, Cqe::decode(&words).qp, &mut words);
        let at = u64::from(depth.position(index)) * Cqe::BYTES as u64;
        let stored = self.ring.store(&mut core.bus, at, words);
        stored.map_err(|_| PutError::Overrun)?;
        self.producer.publish(self.channel.window().tail());
        core.bus.count(Counter::Cqes);
        let cqe = Cqe::decode(&words);
        core.bus.host.trace(Trace::Completion {
            cq: self.number,
            index: index.get(),
            qp: cqe.qp,
            opcode: cqe.opcode,
            status: cqe.status,
            vendor: cqe.vendor,
        });
        self.fire(core, events, fire);
        Ok(())
    }

    /// Writes an event if the channel says so.
    #[inline]
    fn fire<H: Host<Map = M>>(&self, core: &mut Core<H>, events: &mut Events<M>, fire: Fire) {
        if fire == Fire::Now {
            self.write_event(core, events);
        }
    }

    /// A function that has stopped writes none.
    #[inline(never)]
    fn write_event<H: Host<Map = M>>(&self, core: &mut Core<H>, events: &mut Events<M>) {
        if !core.is_ready() {
            return;
        }
        let eqe = Eqe {
            number: self.number,
            count: 1,
            kind: Event::Completion.code(),
            code: 0,
        };
        events.write(core, self.eq, Source::Cq(self.number), eqe);
    }

    /// Notes that a completion is lost, and reports it. Without CQ 0 the function cannot go on:
    /// it stops. False if there is nothing left to do.
    #[cold]
    pub(crate) fn overrun<H: Host<Map = M>>(
        &mut self,
        core: &mut Core<H>,
        events: &mut Events<M>,
    ) -> bool {
        if self.number == Number::ADMIN {
            events.fatal(core, EnableError::AdminCqOverrun);
            return false;
        }
        self.overrun = true;
        core.bus.count(Counter::CqOverruns);
        events.report(core, Subject::Overrun(self.number), 0);
        true
    }
}
