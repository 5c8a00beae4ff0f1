// SPDX-License-Identifier: GPL-2.0
//! Completion queues.
//!
//! When a CQ writes an event is decided by the rules (`queue::channel`). Here
//! the completion is in memory before the event that speaks of it.
//!
//! A CQ without room is overrun: completions are lost, which can be mended by nobody. So
//! its queue pairs are stopped and its owner is told, once; nobody else is concerned.

use crate::eq::Source;
use crate::eq::Subject;
use crate::host::Host;
use crate::host::Trace;
use crate::mutant::mutant;
use crate::ring::Ring;
use crate::Function;
use crate::State;
use qpair_abi::counters::Counter;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::Eqe;
use qpair_abi::entry::OWNER;
use qpair_abi::status::EnableError;
use qpair_abi::status::Event;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_queue::channel::Channel;
use qpair_queue::channel::Fire;
use qpair_queue::channel::Violation;
use qpair_queue::channel::Wants;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::mask::Notice;

/// A completion queue.
pub(crate) struct Cq<M> {
    pub(crate) number: Number,
    pub(crate) eq: Number,
    pub(crate) page: u16,
    pub(crate) log_depth: u8,
    pub(crate) user: bool,
    /// It had no room once, or its memory is gone.
    pub(crate) overrun: bool,
    pub(crate) ring: Ring<M>,
    pub(crate) channel: Channel,
    /// Work queues that complete here.
    pub(crate) users: u32,
    pub(crate) overrun_notice: Notice,
    /// Entries passed since the beginning.
    passed: u64,
}

impl<M> Cq<M> {
    pub(crate) fn new(
        number: Number,
        eq: Number,
        log_depth: u8,
        depth: Depth,
        user: bool,
        ring: Ring<M>,
        first: Index,
    ) -> Self {
        Self {
            number,
            eq,
            page: 0,
            log_depth,
            user,
            overrun: false,
            ring,
            channel: Channel::starting_at(depth, user, first),
            users: 0,
            overrun_notice: Notice::default(),
            passed: 0,
        }
    }

    /// Entries passed since the beginning; does not wrap.
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }

    /// Entries written since the beginning; does not wrap.
    pub(crate) fn written(&self) -> u64 {
        self.passed
            .wrapping_add(u64::from(self.channel.window().used()))
    }

    /// Publishes a head, with an arm or without.
    pub(crate) fn head(&mut self, head: Index, wants: Option<Wants>) -> Result<Fire, Violation> {
        let before = self.channel.window().head();
        let fire = match wants {
            Some(wants) => self.channel.arm(wants, head),
            None => self.channel.head(head).map(|()| Fire::No),
        };
        let after = self.channel.window().head();
        self.passed = self.passed.wrapping_add(u64::from(after.since(before)));
        fire
    }
}

impl<H: Host> Function<H> {
    /// Writes a completion, and the event that it causes. False if the turn of the queue pair must end: the CQ is
    /// overrun, or the function stopped.
    #[inline(always)]
    pub(crate) fn complete(&mut self, cq: Number, cqe: &Cqe, solicited: bool) -> bool {
        if self.state != State::Ready {
            return false;
        }
        let failed = cqe.status != Status::Success.code();
        if failed {
            self.bus.count(Counter::Errors);
        }
        let wakes = (solicited && !mutant!(SolicitedForgotten)) || failed;
        self.put_completion(cq, cqe.encode(), wakes)
    }

    /// Puts an entry into the ring, and writes the event that it causes. False as [`complete`](Self::complete).
    #[inline(always)]
    pub(crate) fn put_completion(
        &mut self,
        cq: Number,
        mut words: [u64; Cqe::WORDS],
        wakes: bool,
    ) -> bool {
        let Some(found) = self.cqs.get_mut(cq) else {
            return false;
        };
        if found.overrun {
            return mutant!(OverrunGoesOn);
        }
        let Some((index, fire)) = found.channel.push(wakes) else {
            self.overrun(cq);
            return mutant!(OverrunGoesOn);
        };
        let depth = found.channel.window().depth();
        let [_, _, _, last] = &mut words;
        *last = (*last & !OWNER) | if depth.owner(index) { OWNER } else { 0 };
        let at = u64::from(depth.position(index)) * Cqe::BYTES as u64;
        let found = if mutant!(EventBeforeCompletion) {
            self.fire(cq, fire);
            self.cqs.get_mut(cq)
        } else {
            Some(found)
        };
        let Some(found) = found else {
            return false;
        };
        if mutant!(OwnerFirst) {
            // The words in the wrong order: the owner bit with nothing behind it.
            let [_, _, _, last] = words;
            let _ = found.ring.store(&mut self.bus, at, [0, 0, 0, last]);
        }
        let stored = found.ring.store(&mut self.bus, at, words);
        if stored.is_err() {
            self.overrun(cq);
            return mutant!(OverrunGoesOn);
        }
        self.bus.count(Counter::Cqes);
        let cqe = Cqe::decode(&words);
        self.bus.host.trace(Trace::Completion {
            cq,
            index: index.get(),
            qp: cqe.qp,
            opcode: cqe.opcode,
            status: cqe.status,
            vendor: cqe.vendor,
        });
        if !mutant!(EventBeforeCompletion) {
            self.fire(cq, fire);
        }
        self.state == State::Ready
    }

    /// Writes the event of a CQ if its channel says so.
    #[inline]
    pub(crate) fn fire(&mut self, cq: Number, fire: Fire) {
        if fire == Fire::No || self.state != State::Ready {
            return;
        }
        self.write_completion_event(cq);
    }

    #[inline(never)]
    fn write_completion_event(&mut self, cq: Number) {
        if let Some(eq) = self.cqs.get(cq).map(|cq| cq.eq) {
            self.write_event(eq, Source::Cq(cq), completion_event(cq));
        }
    }

    /// The CQ had no room, or its memory could not be written.
    #[cold]
    fn overrun(&mut self, cq: Number) {
        if cq == Number::ADMIN {
            self.fatal(EnableError::AdminCqOverrun);
            return;
        }
        let Some(found) = self.cqs.get_mut(cq) else {
            return;
        };
        found.overrun = true;
        self.bus.count(Counter::CqOverruns);
        self.happened(Subject::Overrun(cq));
        if mutant!(OverrunIgnored) {
            return;
        }
        // A search, but once in the life of a CQ.
        for index in 0..self.qps.indices() {
            let Some(qp) = self.qps.at(index) else {
                continue;
            };
            let uses = |found: &crate::qp::Qp<H::Map>| found.send_cq == cq || found.recv_cq == cq;
            if self.qps.get(qp).is_some_and(uses) {
                self.stop(qp, Status::General);
            }
        }
    }
}

fn completion_event(cq: Number) -> Eqe {
    Eqe {
        number: cq,
        count: 1,
        kind: Event::Completion.code(),
        code: 0,
    }
}
