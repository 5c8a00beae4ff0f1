// SPDX-License-Identifier: GPL-2.0
//! Event queues, interrupts, and asynchronous events.
//!
//! When an event is written, when the interrupt is raised and how asynchronous events
//! wait is decided by the rules (`queue::mask`); here they are done: the entry in
//! memory first, the interrupt afterwards. The device remembers of each entry whose it is,
//! to know who has been passed when the head moves.

use crate::host::Host;
use crate::host::Trace;
use crate::mutant::mutant;
use crate::ring::Ring;
use crate::Function;
use crate::State;
use qpair_abi::counters::Counter;
use qpair_abi::entry::Eqe;
use qpair_abi::entry::OWNER;
use qpair_abi::status::EnableError;
use qpair_abi::status::Event;
use qpair_abi::Number;
use qpair_queue::channel::Fire;
use qpair_queue::channel::Violation;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::mask::EventQueue;
use qpair_queue::mask::Line;
use qpair_queue::mask::Moderation;
use qpair_queue::mask::Notice;

/// Whose an entry is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// Nobody's: a test asked for it, or it is the function's last.
    Nobody,
    Cq(Number),
    Async(Subject),
}

/// What an asynchronous event is about. Of each subject there is one notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Overrun(Number),
    Fatal(Number),
    Page(u16),
}

/// An event queue.
pub(crate) struct Eq<M> {
    pub(crate) vector: u16,
    pub(crate) log_depth: u8,
    pub(crate) moderation_count: u16,
    pub(crate) moderation_usecs: u16,
    pub(crate) ring: Ring<M>,
    pub(crate) queue: EventQueue,
    /// CQs that report here.
    pub(crate) users: u32,
    /// Entries passed since the beginning.
    passed: u64,
    /// Whose each entry is.
    sources: Vec<Source>,
    /// When the interrupt is to be looked at again.
    look_at: u64,
}

impl<M> Eq<M> {
    pub(crate) fn new(
        vector: u16,
        log_depth: u8,
        depth: Depth,
        ring: Ring<M>,
        first: Index,
    ) -> Self {
        Self {
            vector,
            log_depth,
            moderation_count: 0,
            moderation_usecs: 0,
            ring,
            queue: EventQueue::starting_at(depth, Moderation::default(), first),
            users: 0,
            passed: 0,
            sources: vec![Source::Nobody; depth.entries() as usize],
            look_at: u64::MAX,
        }
    }

    /// Entries passed since the beginning; does not wrap.
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }

    /// Entries written since the beginning; does not wrap.
    pub(crate) fn written(&self) -> u64 {
        self.passed
            .wrapping_add(u64::from(self.queue.window().used()))
    }

    /// Sets moderation.
    pub(crate) fn moderate(&mut self, count: u16, usecs: u16) {
        self.moderation_count = count;
        self.moderation_usecs = usecs;
        self.queue.moderate(Moderation {
            count: u32::from(count),
            nanos: u64::from(usecs).saturating_mul(1000),
        });
    }
}

impl<H: Host> Function<H> {
    /// Writes an event and looks at the interrupt.
    pub(crate) fn write_event(&mut self, eq: Number, source: Source, eqe: Eqe) {
        if mutant!(InterruptBeforeEvent) {
            if let Some(found) = self.eqs.get(eq) {
                let vector = found.vector;
                self.raise(eq, vector);
            }
        }
        let words = eqe.encode();
        match self.put_event(eq, source, words) {
            Ok(()) => self.look_at_line(eq),
            Err(cause) => self.fatal(cause),
        }
    }

    /// Puts an entry into the ring.
    pub(crate) fn put_event(
        &mut self,
        eq: Number,
        source: Source,
        mut words: [u64; Eqe::WORDS],
    ) -> Result<(), EnableError> {
        let now = self.bus.host.now();
        let Some(found) = self.eqs.get_mut(eq) else {
            return Ok(());
        };
        let index = found.queue.push(now).ok_or(EnableError::EqOverrun)?;
        let depth = found.queue.window().depth();
        let position = depth.position(index) as usize;
        if let Some(place) = found.sources.get_mut(position) {
            *place = source;
        }
        let [_, last] = &mut words;
        *last = (*last & !OWNER) | if depth.owner(index) { OWNER } else { 0 };
        let at = position as u64 * Eqe::BYTES as u64;
        let stored = found.ring.store(&mut self.bus, at, words);
        stored.map_err(|_| EnableError::Dma)?;
        self.bus.count(Counter::Eqes);
        let eqe = Eqe::decode(&words);
        self.bus.host.trace(Trace::Event {
            eq,
            index: index.get(),
            kind: eqe.kind,
            number: eqe.number,
        });
        Ok(())
    }

    /// Raises the EQ's interrupt if it is time to.
    pub(crate) fn look_at_line(&mut self, eq: Number) {
        let now = self.bus.host.now();
        let Some(found) = self.eqs.get_mut(eq) else {
            return;
        };
        let line = found.queue.line(now);
        found.look_at = match line {
            Line::At(when) => when,
            Line::Raise | Line::Quiet => u64::MAX,
        };
        let vector = found.vector;
        match line {
            Line::Quiet => {}
            Line::Raise => self.raise(eq, vector),
            Line::At(when) => {
                self.timers.moderation = self.timers.moderation.min(when);
                self.set_timer();
            }
        }
    }

    fn raise(&mut self, eq: Number, vector: u16) {
        if self.knobs.drop_interrupts != 0 {
            self.knobs.drop_interrupts -= 1;
            return;
        }
        if self.knobs.delay_interrupts != 0 {
            let due = self
                .bus
                .host
                .now()
                .saturating_add(self.knobs.delay_interrupts);
            self.timers.delayed.push_back((due, eq, vector));
            self.set_timer();
            return;
        }
        self.raise_now(eq, vector);
    }

    pub(crate) fn raise_now(&mut self, eq: Number, vector: u16) {
        self.bus.count(Counter::Interrupts);
        self.bus.host.trace(Trace::Interrupt { eq, vector });
        self.bus.host.raise(vector);
    }

    /// The time has come to look at moderated interrupts again.
    pub(crate) fn moderation_due(&mut self, now: u64) {
        self.timers.moderation = u64::MAX;
        for index in 0..self.eqs.indices() {
            let Some(eq) = self.eqs.at(index) else {
                continue;
            };
            match self.eqs.get(eq).map(|found| found.look_at) {
                Some(when) if when <= now => self.look_at_line(eq),
                Some(when) => self.timers.moderation = self.timers.moderation.min(when),
                None => {}
            }
        }
    }

    /// A head doorbell.
    pub(crate) fn event_head(
        &mut self,
        eq: Number,
        head: Index,
        unmask: bool,
    ) -> Result<(), Violation> {
        let found = self.eqs.get_mut(eq).ok_or(Violation)?;
        let (from, to) = found.queue.head(head, unmask)?;
        let passed = to.since(from);
        found.passed = found.passed.wrapping_add(u64::from(passed));
        let depth = found.queue.window().depth();
        let position = |index| depth.position(index) as usize;
        // An event that is written in here takes a place that has been looked at already: each
        // passed entry makes room for one before it lets one be written.
        for step in 0..passed {
            let source = self
                .eqs
                .get_mut(eq)
                .and_then(|found| found.sources.get_mut(position(from.plus(step))))
                .map(|place| core::mem::replace(place, Source::Nobody));
            match source {
                Some(Source::Cq(cq)) => {
                    let fire = self
                        .cqs
                        .get_mut(cq)
                        .map_or(Fire::No, |cq| cq.channel.passed());
                    self.fire(cq, fire);
                }
                Some(Source::Async(subject)) => {
                    let notice = notice(&mut self.cqs, &mut self.qps, &mut self.pages, subject);
                    if self.asyncs.gate.passed(notice) {
                        self.asyncs.line.push_back(subject);
                    }
                }
                Some(Source::Nobody) | None => {}
            }
        }
        self.write_asyncs();
        self.look_at_line(eq);
        Ok(())
    }

    /// Something happened that nobody asked for.
    pub(crate) fn happened(&mut self, subject: Subject) {
        self.bus.count(Counter::AsyncEvents);
        let notice = notice(&mut self.cqs, &mut self.qps, &mut self.pages, subject);
        if notice.is_some_and(Notice::happened) {
            self.asyncs.line.push_back(subject);
            self.write_asyncs();
        }
    }

    /// Writes what waits, as far as EQ 0 may hold it.
    fn write_asyncs(&mut self) {
        while self.state == State::Ready && self.asyncs.gate.is_open() {
            let Some(subject) = self.asyncs.line.pop_front() else {
                return;
            };
            let (kind, number, code) = match subject {
                Subject::Overrun(cq) => (Event::CqOverrun, cq, 0),
                Subject::Fatal(qp) => {
                    let code = self.qps.get(qp).map_or(0, |qp| qp.fatal_status);
                    (Event::QpFatal, qp, code)
                }
                Subject::Page(page) => (Event::DoorbellViolation, Number::new(page, 0), 0),
            };
            let notice = notice(&mut self.cqs, &mut self.qps, &mut self.pages, subject);
            let count = match notice {
                Some(notice) => self.asyncs.gate.write(notice),
                None if mutant!(EventsOfTheDead) => Some(1),
                None => None,
            };
            if let Some(count) = count {
                let eqe = Eqe {
                    number,
                    count,
                    kind: kind.code(),
                    code,
                };
                self.write_event(Number::ADMIN, Source::Async(subject), eqe);
            }
        }
    }

    /// An object is gone, or what it had to tell was asked for: what waits is dropped.
    pub(crate) fn forget(&mut self, subject: Subject) {
        if mutant!(EventsOfTheDead) {
            return;
        }
        if let Some(notice) = notice(&mut self.cqs, &mut self.qps, &mut self.pages, subject) {
            notice.cancel();
        }
        self.asyncs.line.retain(|waiting| *waiting != subject);
    }

    /// The last event: the function stopped. It has a place in EQ 0 of its own.
    pub(crate) fn write_fatal_event(&mut self, cause: EnableError) {
        if mutant!(FatalUnseen) {
            return;
        }
        let eqe = Eqe {
            number: Number::ADMIN,
            count: 1,
            kind: Event::DeviceFatal.code(),
            code: cause.code(),
        };
        if self
            .put_event(Number::ADMIN, Source::Nobody, eqe.encode())
            .is_ok()
        {
            self.look_at_line(Number::ADMIN);
        }
    }
}

/// The notice of a subject, if the subject is still there.
fn notice<'a, M>(
    cqs: &'a mut crate::table::Table<crate::cq::Cq<M>>,
    qps: &'a mut crate::table::Table<crate::qp::Qp<M>>,
    pages: &'a mut [crate::doorbell::Page],
    subject: Subject,
) -> Option<&'a mut Notice> {
    match subject {
        Subject::Overrun(cq) => cqs.get_mut(cq).map(|cq| &mut cq.overrun_notice),
        Subject::Fatal(qp) => qps.get_mut(qp).map(|qp| &mut qp.fatal_notice),
        Subject::Page(page) => pages.get_mut(page as usize).map(|page| &mut page.notice),
    }
}
