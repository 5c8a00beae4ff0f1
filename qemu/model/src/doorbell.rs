// SPDX-License-Identifier: GPL-2.0
//! Doorbells.
//!
//! An invalid doorbell has no effect. It is counted, and an event reports its page, at most once
//! until software has read the count.

use crate::cq::CompletionQueue;
use crate::event::Events;
use crate::function::Function;
use crate::host::Host;
use crate::host::Trace;
use crate::producers::Doorbell;
use crate::producers::Producers;
use crate::qp::QueuePair;
use crate::rules::channel::Violation;
use crate::rules::channel::Wants;
use crate::run_queue::Budget;
use crate::schedule::Core;
use crate::subject::Subject;
use qpair_abi::command::qp_state;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::Number;
use qpair_queue::index::Index;

impl<H: Host> Function<H> {
    /// A write of `bytes` bytes to BAR 2, which is executed at once.
    pub fn doorbell(&mut self, offset: u64, value: u64, bytes: u32) {
        let mut spare = self.spare();
        self.act_on(offset, value, bytes, None, &mut spare);
    }

    /// The work that a thread may do inside the doorbells of one call.
    pub fn spare(&self) -> Budget {
        let config = self.config();
        Budget {
            wqes: config.doorbell_wqes,
            bytes: u64::from(config.doorbell_bytes),
        }
    }

    /// What writers of doorbells need, if these are executed later.
    pub fn producers(&self) -> Producers {
        self.data.producers.clone()
    }

    /// Executes a doorbell that was written earlier. If the core was idle, the work is done at
    /// once as far as `spare` goes, and subtracted from it.
    pub fn execute(&mut self, written: Doorbell, spare: &mut Budget) {
        let sample = Some(written.sample);
        self.act_on(written.offset, written.value, written.bytes, sample, spare);
    }

    fn act_on(
        &mut self,
        offset: u64,
        value: u64,
        bytes: u32,
        sample: Option<Index>,
        spare: &mut Budget,
    ) {
        if self.data.core.is_dead() {
            return;
        }
        let (page, place) = (offset / doorbell::PAGE_BYTES, offset % doorbell::PAGE_BYTES);
        let Ok(page) = u16::try_from(page) else {
            self.data.core.bus.count(Counter::Violations);
            return;
        };
        self.data.core.bus.host.trace(Trace::Doorbell {
            page: u32::from(page),
            place: place as u32,
            value,
        });
        let was_idle = self.data.core.run_queue.is_empty();
        self.data.core.busy = true;
        let done = if bytes == 8 {
            self.ring(page, place, value, sample)
        } else {
            Err(Violation)
        };
        if done.is_err() {
            self.violation(page, value);
        }
        self.data.core.busy = false;
        self.after_doorbell(was_idle, spare);
    }

    fn ring(
        &mut self,
        page: u16,
        place: u64,
        value: u64,
        sample: Option<Index>,
    ) -> Result<(), Violation> {
        let (number, index) = doorbell::parts(value);
        let index = Index::new(index);
        // The EQs of a function that stopped by itself still have its last events.
        let ready = self.data.core.is_ready();
        match place {
            doorbell::EQ_HEAD | doorbell::EQ_HEAD_MASKED => {
                let unmask = place == doorbell::EQ_HEAD;
                self.data.core.bus.count(if unmask {
                    Counter::EqHeadDoorbells
                } else {
                    Counter::EqMaskedDoorbells
                });
                if page != 0 {
                    return Err(Violation);
                }
                if self.data.events.eqs.is_stale(number) {
                    self.data.core.bus.count(Counter::Stale);
                }
                self.event_head(number, index, unmask)
            }
            doorbell::SQ => {
                self.data.core.bus.count(Counter::SqDoorbells);
                if ready {
                    self.send_tail(page, number, index)?;
                }
                Ok(())
            }
            doorbell::RQ => {
                self.data.core.bus.count(Counter::RqDoorbells);
                if ready {
                    self.receive_tail(page, number, index)?;
                }
                Ok(())
            }
            doorbell::SRQ => {
                self.data.core.bus.count(Counter::RqDoorbells);
                if ready {
                    self.shared_tail(page, number, index)?;
                }
                Ok(())
            }
            doorbell::CQ_HEAD => {
                self.data.core.bus.count(Counter::CqHeadDoorbells);
                self.completions(page, number, |cq, core, events| {
                    cq.head(core, events, index, None)
                })
            }
            doorbell::CQ_ARM_NEXT | doorbell::CQ_ARM_SOLICITED => {
                self.data.core.bus.count(Counter::CqArmDoorbells);
                let wants = if place == doorbell::CQ_ARM_NEXT {
                    Wants::Next
                } else {
                    Wants::Solicited
                };
                self.completions(page, number, |cq, core, events| {
                    cq.head(core, events, index, Some(wants))
                })
            }
            doorbell::CQ_NOTIFY | doorbell::CQ_NOTIFY_SOLICITED => {
                self.data.core.bus.count(Counter::CqArmDoorbells);
                let wants = if place == doorbell::CQ_NOTIFY {
                    Wants::Next
                } else {
                    Wants::Solicited
                };
                self.completions(page, number, |cq, core, events| {
                    if index != Index::ZERO {
                        return Err(Violation);
                    }
                    cq.notify(core, events, wants, sample);
                    Ok(())
                })
            }
            _ => Err(Violation),
        }
    }

    /// Calls `act` with the CQ, if its doorbells are on this page.
    fn completions(
        &mut self,
        page: u16,
        cq: Number,
        act: impl FnOnce(
            &mut CompletionQueue<H::Map>,
            &mut Core<H>,
            &mut Events<H::Map>,
        ) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        if !self.data.core.is_ready() {
            return Ok(());
        }
        if self.data.cqs.is_stale(cq) {
            self.data.core.bus.count(Counter::Stale);
        }
        let data = &mut self.data;
        let found = data.cqs.get_mut(cq).ok_or(Violation)?;
        if found.page != page {
            return Err(Violation);
        }
        act(found, &mut data.core, &mut data.events)
    }

    fn event_head(&mut self, eq: Number, index: Index, unmask: bool) -> Result<(), Violation> {
        let data = &mut self.data;
        let (core, events) = (&mut data.core, &mut data.events);
        let found = events.eqs.get_mut(eq).ok_or(Violation)?;
        let (first, passed) = found.head(index, unmask)?;
        // An event that is written in here takes a slot whose source has been taken already: each
        // passed entry makes room for one before it lets one be written.
        for step in 0..passed {
            let cq = events.entry_passed(eq, first.plus(step));
            if let Some(cq) = cq.and_then(|cq| data.cqs.get_mut(cq)) {
                cq.event_passed(core, events);
            }
        }
        events.head_moved(core, eq);
        Ok(())
    }

    /// The queue pair, if its doorbells are on this page and work requests may be posted to it.
    fn postable(&mut self, page: u16, qp: Number) -> Result<&mut QueuePair<H::Map>, Violation> {
        if self.data.qps.is_stale(qp) {
            self.data.core.bus.count(Counter::Stale);
        }
        let found = self.data.qps.get_mut(qp).ok_or(Violation)?;
        if found.page != page {
            return Err(Violation);
        }
        if found.state == qp_state::RESET {
            return Err(Violation);
        }
        Ok(found)
    }

    fn send_tail(&mut self, page: u16, qp: Number, index: Index) -> Result<(), Violation> {
        let found = self.postable(page, qp)?;
        let number = found.number;
        let came = found.sq.window.advance_tail(index).ok_or(Violation)?;
        if came != 0 {
            self.data.qps.enqueue(&mut self.data.core, number);
        }
        Ok(())
    }

    fn receive_tail(&mut self, page: u16, qp: Number, index: Index) -> Result<(), Violation> {
        if qp == Number::ADMIN {
            return Err(Violation);
        }
        let found = self.postable(page, qp)?;
        if found.shares() {
            return Err(Violation);
        }
        let number = found.number;
        let came = found.rq.window.advance_tail(index).ok_or(Violation)?;
        if came != 0 {
            self.data.qps.wake_peer(&mut self.data.core, number);
            self.data.qps.enqueue(&mut self.data.core, number);
        }
        Ok(())
    }

    fn shared_tail(&mut self, page: u16, srq: Number, index: Index) -> Result<(), Violation> {
        if self.data.srqs.is_stale(srq) {
            self.data.core.bus.count(Counter::Stale);
        }
        let found = self.data.srqs.get_mut(srq).ok_or(Violation)?;
        if found.page != page {
            return Err(Violation);
        }
        if found.post(index).ok_or(Violation)? != 0 {
            self.data.feed(srq);
        }
        Ok(())
    }

    /// Counts an invalid doorbell, and reports its page.
    fn violation(&mut self, page: u16, value: u64) {
        self.data.core.bus.count(Counter::Violations);
        self.data.core.bus.host.trace(Trace::Violation {
            page: u32::from(page),
            value,
        });
        let Some(found) = self.pages.get_mut(page as usize) else {
            return;
        };
        found.violations = found.violations.saturating_add(1);
        let (core, events) = (&mut self.data.core, &mut self.data.events);
        let subject = Subject::Page(page);
        // A report that still waits takes repeats along.
        let report = !found.reported || events.is_waiting(subject);
        found.reported = true;
        if report {
            events.report(core, subject, 0);
        }
    }
}
