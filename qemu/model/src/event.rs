// SPDX-License-Identifier: GPL-2.0
//! Events: completion events, asynchronous events, and the last one of a function that stops.
//!
//! The rules (`rules::eq_irq`) decide when an asynchronous event is written and when it waits.
//! A subject has one notice, which counts repeats while its event waits or is in EQ 0.

use crate::config::Config;
use crate::eq::EventQueue;
use crate::host::Host;
use crate::host::Mapping;
use crate::rules::eq_irq::Gate;
use crate::rules::eq_irq::Notice;
use crate::schedule::Core;
use crate::subject::Source;
use crate::subject::Subject;
use crate::table::Table;
use crate::table::Until;
use qpair_abi::counters::Counter;
use qpair_abi::entry::Eqe;
use qpair_abi::status::EnableError;
use qpair_abi::status::Event;
use qpair_abi::Number;
use qpair_queue::index::Index;
use std::collections::BTreeMap;
use std::collections::VecDeque;

/// The pending report of a subject.
#[derive(Default)]
struct Report {
    notice: Notice,
    /// The event's `code`.
    code: u8,
}

/// The event queues, and the asynchronous events that wait.
pub(crate) struct Events<M> {
    pub(crate) eqs: Table<EventQueue<M>>,
    /// Of subjects whose object exists.
    reports: BTreeMap<Subject, Report>,
    /// Subjects whose event waits, in order.
    waiting: VecDeque<Subject>,
    gate: Gate,
}

impl<M: Mapping> Events<M> {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            eqs: Table::new(config.eqs),
            reports: BTreeMap::new(),
            waiting: VecDeque::new(),
            // One place is reserved for the event that the function stopped.
            gate: Gate::new(config.async_events.saturating_sub(1).max(1)),
        }
    }

    /// The entries of an EQ written so far, and the index past them.
    pub(crate) fn written(&self, eq: Number) -> (Until, Index) {
        let written = self.eqs.get(eq).map(EventQueue::written);
        written.unwrap_or((Until::Now, Index::ZERO))
    }

    /// Writes an event, and raises the interrupt if it is due.
    pub(crate) fn write<H: Host<Map = M>>(
        &mut self,
        core: &mut Core<H>,
        eq: Number,
        source: Source,
        eqe: Eqe,
    ) {
        self.write_words(core, eq, source, eqe.encode());
    }

    /// Writes an entry whose content a test chose.
    pub(crate) fn inject<H: Host<Map = M>>(
        &mut self,
        core: &mut Core<H>,
        eq: Number,
        words: [u64; Eqe::WORDS],
    ) {
        self.write_words(core, eq, Source::Untracked, words);
    }

    fn write_words<H: Host<Map = M>>(
        &mut self,
        core: &mut Core<H>,
        eq: Number,
        source: Source,
        words: [u64; Eqe::WORDS],
    ) {
        let Some(found) = self.eqs.get_mut(eq) else {
            return;
        };
        match found.put(core, source, words) {
            Ok(()) => found.look_at_interrupt(core),
            Err(cause) => self.fatal(core, cause),
        }
    }

    /// Stops the function, which needs a reset then. The event that reports it has a place in
    /// EQ 0 of its own.
    pub(crate) fn fatal<H: Host<Map = M>>(&mut self, core: &mut Core<H>, cause: EnableError) {
        let Some(cause) = core.enter_fatal(cause) else {
            return;
        };
        let eqe = Eqe {
            number: Number::ADMIN,
            count: 1,
            kind: Event::DeviceFatal.code(),
            code: cause.code(),
        };
        if let Some(found) = self.eqs.get_mut(Number::ADMIN) {
            let put = found.put(core, Source::Untracked, eqe.encode());
            if put.is_ok() {
                found.look_at_interrupt(core);
            }
        }
    }

    /// The machine continues: writes the events that became due while it was stopped.
    pub(crate) fn resume<H: Host<Map = M>>(&mut self, core: &mut Core<H>) {
        let mut done = Ok(());
        for eq in self.eqs.iter_mut() {
            done = done.and(eq.resume(core));
        }
        if let Err(cause) = done {
            self.fatal(core, cause);
        }
    }

    /// Raises the moderated interrupts that are due.
    pub(crate) fn moderation_due<H: Host<Map = M>>(&mut self, core: &mut Core<H>, now: u64) {
        if core.timers.moderation > now {
            return;
        }
        core.timers.moderation = u64::MAX;
        for eq in self.eqs.iter_mut() {
            eq.moderation_due(core, now);
        }
    }

    /// Takes the source of an entry that the head of an EQ has passed: the CQ whose next event may
    /// be written. The caller writes it, and calls [`head_moved`](Self::head_moved) after the last
    /// entry.
    pub(crate) fn entry_passed(&mut self, eq: Number, index: Index) -> Option<Number> {
        match self.eqs.get_mut(eq)?.take_source(index) {
            Source::Cq(cq) => return Some(cq),
            Source::Async(subject) => {
                let report = self.reports.get_mut(&subject);
                if self.gate.passed(report.map(|report| &mut report.notice)) {
                    self.waiting.push_back(subject);
                }
            }
            Source::Untracked => {}
        }
        None
    }

    /// Writes what waited for the head of an EQ, and raises its interrupt if it is due.
    pub(crate) fn head_moved<H: Host<Map = M>>(&mut self, core: &mut Core<H>, eq: Number) {
        self.write_waiting(core);
        if let Some(found) = self.eqs.get_mut(eq) {
            found.look_at_interrupt(core);
        }
    }

    /// Reports an asynchronous event.
    pub(crate) fn report<H: Host<Map = M>>(
        &mut self,
        core: &mut Core<H>,
        subject: Subject,
        code: u8,
    ) {
        core.bus.count(Counter::AsyncEvents);
        let report = self.reports.entry(subject).or_default();
        report.code = code;
        if report.notice.happened() {
            self.waiting.push_back(subject);
            self.write_waiting(core);
        }
    }

    /// Whether an event of this subject waits.
    pub(crate) fn is_waiting(&self, subject: Subject) -> bool {
        let report = self.reports.get(&subject);
        report.is_some_and(|report| report.notice.is_waiting())
    }

    /// Writes the events that wait, as far as EQ 0 may hold them.
    fn write_waiting<H: Host<Map = M>>(&mut self, core: &mut Core<H>) {
        while core.is_ready() && self.gate.is_open() {
            let Some(subject) = self.waiting.pop_front() else {
                return;
            };
            let (kind, number) = match subject {
                Subject::Overrun(cq) => (Event::CqOverrun, cq),
                Subject::Fatal(qp) => (Event::QpFatal, qp),
                Subject::Access(qp) => (Event::QpAccess, qp),
                Subject::Request(qp) => (Event::QpRequest, qp),
                Subject::LastReceive(qp) => (Event::LastReceive, qp),
                Subject::Drained(qp) => (Event::SqDrained, qp),
                Subject::Limit(srq) => (Event::SrqLimit, srq),
                Subject::Unreadable(srq) => (Event::SrqFatal, srq),
                Subject::Page(page) => (Event::DoorbellViolation, Number::new(page, 0)),
                // What it is now: it may have changed more than once.
                Subject::Link if core.knobs.link_down => (Event::LinkDown, Number::ADMIN),
                Subject::Link => (Event::LinkUp, Number::ADMIN),
            };
            let (count, code) = match self.reports.get_mut(&subject) {
                Some(report) => (self.gate.write(&mut report.notice), report.code),
                None => (None, 0),
            };
            if let Some(count) = count {
                let eqe = Eqe {
                    number,
                    count,
                    kind: kind.code(),
                    code,
                };
                self.write(core, Number::ADMIN, Source::Async(subject), eqe);
            }
        }
    }

    /// Drops the event of a subject if it waits.
    pub(crate) fn cancel(&mut self, subject: Subject) {
        if let Some(report) = self.reports.get_mut(&subject) {
            report.notice.cancel();
        }
        self.waiting.retain(|waiting| *waiting != subject);
    }

    /// Drops a subject whose object is destroyed.
    pub(crate) fn forget(&mut self, subject: Subject) {
        self.cancel(subject);
        self.reports.remove(&subject);
    }
}
