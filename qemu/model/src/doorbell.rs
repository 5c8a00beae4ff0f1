// SPDX-License-Identifier: GPL-2.0
//! Doorbells.
//!
//! What makes no sense changes nothing. It is counted, and the owner of the page is
//! told, once until he has taken the count: a storm of doorbells is no storm of events.

use crate::eq::Subject;
use crate::host::Host;
use crate::host::Trace;
use crate::mutant::mutant;
use crate::Function;
use crate::State;
use qpair_abi::command::qp_state;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::Number;
use qpair_queue::channel::Violation;
use qpair_queue::channel::Wants;
use qpair_queue::index::Index;
use qpair_queue::mask::Notice;

/// A doorbell page, as far as its owner misuses it.
#[derive(Clone, Default)]
pub(crate) struct Page {
    /// Since the owner took the count.
    pub(crate) violations: u32,
    /// An event was made since then.
    pub(crate) reported: bool,
    pub(crate) notice: Notice,
}

impl<H: Host> Function<H> {
    /// A write of `bytes` bytes to BAR 2.
    pub fn doorbell(&mut self, offset: u64, value: u64, bytes: u32) {
        if self.is_dead() {
            return;
        }
        let (page, place) = (offset / doorbell::PAGE_BYTES, offset % doorbell::PAGE_BYTES);
        let Ok(page) = u16::try_from(page) else {
            self.bus.count(Counter::Violations);
            return;
        };
        self.bus.host.trace(Trace::Doorbell {
            page: u32::from(page),
            place: place as u32,
            value,
        });
        let (number, index) = doorbell::parts(value);
        let done = if bytes == 8 {
            self.ring(page, place, number, Index::new(index))
        } else {
            Err(Violation)
        };
        if done.is_err() {
            self.violation(page, value);
        }
        self.after_doorbell();
    }

    fn ring(
        &mut self,
        page: u16,
        place: u64,
        number: Number,
        index: Index,
    ) -> Result<(), Violation> {
        // A function that stopped by itself still has its last events to give.
        let ready = self.state == State::Ready;
        match place {
            doorbell::EQ_HEAD | doorbell::EQ_HEAD_MASKED => {
                let unmask = place == doorbell::EQ_HEAD;
                self.bus.count(if unmask {
                    Counter::EqHeadDoorbells
                } else {
                    Counter::EqMaskedDoorbells
                });
                if page != 0 && !mutant!(EventDoorbellAnywhere) {
                    return Err(Violation);
                }
                if self.eqs.is_stale(number) {
                    self.bus.count(Counter::Stale);
                }
                self.event_head(number, index, unmask)
            }
            doorbell::SQ => {
                self.bus.count(Counter::SqDoorbells);
                if ready {
                    self.send_tail(page, number, index)?;
                }
                Ok(())
            }
            doorbell::RQ => {
                self.bus.count(Counter::RqDoorbells);
                if ready {
                    self.receive_tail(page, number, index)?;
                }
                Ok(())
            }
            doorbell::CQ_HEAD => {
                self.bus.count(Counter::CqHeadDoorbells);
                self.completion_head(page, number, index, None)
            }
            doorbell::CQ_ARM_NEXT | doorbell::CQ_ARM_SOLICITED => {
                self.bus.count(Counter::CqArmDoorbells);
                let wants = if place == doorbell::CQ_ARM_NEXT {
                    Wants::Next
                } else {
                    Wants::Solicited
                };
                self.completion_head(page, number, index, Some(wants))
            }
            _ => Err(Violation),
        }
    }

    fn completion_head(
        &mut self,
        page: u16,
        cq: Number,
        index: Index,
        wants: Option<Wants>,
    ) -> Result<(), Violation> {
        if self.state != State::Ready {
            return Ok(());
        }
        if self.cqs.is_stale(cq) {
            self.bus.count(Counter::Stale);
        }
        let found = self.cqs.get_mut(cq).ok_or(Violation)?;
        if found.page != page && !mutant!(PageNotChecked) {
            return Err(Violation);
        }
        let number = found.number;
        let fire = found.head(index, wants)?;
        self.fire(number, fire);
        Ok(())
    }

    /// The queue pair, if it is there, has a state to be posted to, and answers to this page.
    fn postable(&mut self, page: u16, qp: Number) -> Result<&mut crate::qp::Qp<H::Map>, Violation> {
        if self.qps.is_stale(qp) {
            self.bus.count(Counter::Stale);
        }
        let found = self.qps.get_mut(qp).ok_or(Violation)?;
        if found.page != page && !mutant!(PageNotChecked) {
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
            self.has_work(number);
        }
        Ok(())
    }

    fn receive_tail(&mut self, page: u16, qp: Number, index: Index) -> Result<(), Violation> {
        if qp == Number::ADMIN {
            return Err(Violation);
        }
        let found = self.postable(page, qp)?;
        let number = found.number;
        let came = found.rq.window.advance_tail(index).ok_or(Violation)?;
        if came != 0 {
            if !mutant!(WakeForgotten) {
                self.wake_peer(number);
            }
            self.has_work(number);
        }
        Ok(())
    }

    /// A doorbell made no sense.
    fn violation(&mut self, page: u16, value: u64) {
        self.bus.count(Counter::Violations);
        self.bus.host.trace(Trace::Violation {
            page: u32::from(page),
            value,
        });
        let Some(found) = self.pages.get_mut(page as usize) else {
            return;
        };
        found.violations = found.violations.saturating_add(1);
        // Repeats go with the first as long as it has not been written.
        let tell = !found.reported || found.notice.is_waiting() || mutant!(ViolationStorm);
        found.reported = true;
        if tell {
            self.happened(Subject::Page(page));
        }
    }
}
