// SPDX-License-Identifier: GPL-2.0
//! The point at which the rules of [`Faults`](crate::Faults) meet a work request: after the checks
//! of the WQE and of the sender's memory, before those of the peer.
//!
//! A request that has to wait stays at the head of its SQ, and its queue pair has a
//! [hold](crate::faults::Hold). A change of the peer ends the wait of a queue pair early, as any
//! other wait: so the point looks at the hold first.

use crate::datapath::DataPath;
use crate::faults::Action;
use crate::faults::Hold;
use crate::faults::Occasion;
use crate::faults::Then;
use crate::host::Host;
use crate::host::Trace;
use crate::message::Message;
use crate::message::Sender;
use crate::subject::Subject;
use crate::timer;
use crate::tries::Step;
use crate::tries::NO_LIMIT;
use qpair_abi::command::qp_state;
use qpair_abi::command::service;
use qpair_abi::status::Detail;
use qpair_abi::status::EnableError;
use qpair_abi::status::Event;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_queue::index::Index;

/// What becomes of a request.
pub(crate) enum Verdict {
    /// It is performed.
    Perform,
    /// It is performed, and the hold decides how it completes.
    PerformUnanswered,
    /// The turn ends: the request waits, or its queue pair stopped.
    Wait,
    /// The peer does not answer. The request is tried again.
    Unanswered,
    /// It fails.
    Fail(Status),
    /// The receive that it takes fails.
    FailReceive(Status),
}

impl<H: Host> DataPath<H> {
    /// Decides about a request.
    pub(crate) fn fault_point(&mut self, sender: &Sender, message: &Message) -> Verdict {
        let now = self.core.bus.host.now();
        let Some(found) = self.qps.get_mut(sender.qp) else {
            return Verdict::Wait;
        };
        if let Some(hold) = found.hold {
            if now < hold.due {
                found.waiting = true;
                return Verdict::Wait;
            }
            match hold.then {
                // The receive may not be posted yet.
                Then::FailReceive(status) => return Verdict::FailReceive(status),
                Then::Fail(status) => return Verdict::Fail(status),
                Then::Perform => found.hold = None,
            }
        }
        if found.met != Some(message.past) {
            found.met = Some(message.past);
            let is_rc = found.service == service::RC;
            let occasion = Occasion {
                qp: sender.qp,
                receiver: sender.peer.filter(|_| is_rc && message.kind.receives),
                opcode: message.wqe.opcode,
                is_answered: is_rc && !message.kind.is_local,
            };
            let verdict = self.meet(sender, message, &occasion, now);
            if !matches!(verdict, Verdict::Perform) {
                return verdict;
            }
        }
        let peer = sender.peer.and_then(|peer| self.qps.get(peer));
        if !message.kind.is_local && peer.is_some_and(|peer| peer.is_frozen()) {
            return Verdict::Unanswered;
        }
        Verdict::Perform
    }

    /// Lets each rule meet a request that begins. Events are in addition to another fault; of the
    /// others the first rule's is injected.
    fn meet(
        &mut self,
        sender: &Sender,
        message: &Message,
        occasion: &Occasion,
        now: u64,
    ) -> Verdict {
        let mut chosen = None;
        for place in 0..self.core.faults.count() {
            let Some(action) = self.core.faults.meets(place, occasion) else {
                continue;
            };
            match action {
                Action::Event(event) => {
                    self.inject(place, sender.qp, message);
                    self.raise(event, sender.qp);
                }
                other => chosen = chosen.or(Some((place, other))),
            }
        }
        // An event may have stopped the function.
        if !self.core.is_ready() {
            return Verdict::Wait;
        }
        let Some((place, action)) = chosen else {
            return Verdict::Perform;
        };
        self.inject(place, sender.qp, message);
        self.carry_out(action, sender, message.past, now)
    }

    /// Counts and traces a fault.
    fn inject(&mut self, place: usize, qp: Number, message: &Message) {
        self.core.faults.injected(place);
        self.core.bus.host.trace(Trace::Fault {
            rule: place as u32 + 1,
            qp,
            opcode: message.wqe.opcode,
            past: message.past.get(),
        });
    }

    fn carry_out(&mut self, action: Action, sender: &Sender, past: Index, now: u64) -> Verdict {
        let peer = sender.peer.and_then(|peer| self.qps.get(peer));
        let of_peer = peer.map(|peer| peer.min_rnr_timer);
        let Some(found) = self.qps.get_mut(sender.qp) else {
            return Verdict::Wait;
        };
        let config = &self.core.config;
        let answer = timer::answer(config, found.timeout).unwrap_or(u64::MAX);
        let receive = timer::receive(config, of_peer.unwrap_or(0));
        let after =
            |tries: u8, nanos: u64| now.saturating_add(u64::from(tries).saturating_mul(nanos));
        let (verdict, due, then) = match action {
            Action::Event(_) => return Verdict::Perform,
            Action::Fail(status) => return Verdict::Fail(status),
            Action::Overrun => {
                let cq = found.send_cq;
                self.overrun(cq);
                return Verdict::Wait;
            }
            Action::OverrunReceive => {
                if let Some(peer) = sender.peer.and_then(|peer| self.qps.get(peer)) {
                    let cq = peer.recv_cq;
                    self.overrun(cq);
                }
                // The CQ may be the sender's as well.
                return Verdict::Wait;
            }
            Action::FailReceive(status) => {
                (Verdict::FailReceive(status), now, Then::FailReceive(status))
            }
            Action::Delay(nanos) => (Verdict::Wait, now.saturating_add(nanos), Then::Perform),
            Action::Freeze => (Verdict::Wait, u64::MAX, Then::Perform),
            Action::DropAck => (
                Verdict::PerformUnanswered,
                after(
                    found.tries.left(Step::Answer, found.attributes.retry),
                    answer,
                ),
                Then::Fail(Status::RetryExceeded),
            ),
            Action::Rnr(count) => {
                let limit = found.rnr_retry;
                let left = found.tries.left(Step::Receive, limit);
                if count > left && limit != NO_LIMIT {
                    let then = Then::Fail(Status::RnrRetryExceeded);
                    (Verdict::Wait, after(left, receive), then)
                } else {
                    found.tries.spend(Step::Receive, count);
                    (Verdict::Wait, after(count, receive), Then::Perform)
                }
            }
        };
        found.hold = Some(Hold { past, due, then });
        found.waiting = matches!(verdict, Verdict::Wait);
        self.core.hold_until(sender.qp.index(), due);
        verdict
    }

    /// Raises an event without its cause, but for the link and the function: these change.
    fn raise(&mut self, event: Event, qp: Number) {
        let Some(found) = self.qps.get(qp) else {
            return;
        };
        let (core, events) = (&mut self.core, &mut self.events);
        match event {
            Event::CqOverrun => events.report(core, Subject::Overrun(found.send_cq), 0),
            Event::QpFatal => events.report(core, Subject::Fatal(qp), Status::General.code()),
            Event::QpAccess => events.report(core, Subject::Access(qp), Status::LocalAccess.code()),
            Event::QpRequest => {
                events.report(core, Subject::Request(qp), Status::LocalAccess.code());
            }
            Event::DoorbellViolation => events.report(core, Subject::Page(found.page), 0),
            Event::DeviceFatal => events.fatal(core, EnableError::Injected),
            Event::LinkUp | Event::LinkDown => {
                core.knobs.link_down = event == Event::LinkDown;
                events.report(core, Subject::Link, 0);
            }
            // The events of an SRQ are those of a queue pair that has one.
            Event::LastReceive if found.shares() => {
                events.report(core, Subject::LastReceive(qp), 0);
            }
            Event::SrqLimit if found.shares() => events.report(core, Subject::Limit(found.srq), 0),
            Event::SrqFatal if found.shares() => {
                events.report(core, Subject::Unreadable(found.srq), Status::General.code());
            }
            // The rules have no completions.
            Event::SqDrained => events.report(core, Subject::Drained(qp), 0),
            Event::LastReceive | Event::SrqLimit | Event::SrqFatal | Event::Completion => {}
        }
    }

    /// A queue pair is reset or destroyed: the request that was held is gone, and the time with it.
    pub(crate) fn end_hold(&mut self, qp: Number) {
        let hold = self.qps.get(qp).and_then(|found| found.hold);
        if let Some(hold) = hold {
            self.core.release(qp.index(), hold.due);
        }
    }

    /// Ends the holds that are due.
    pub(crate) fn holds_due(&mut self, now: u64) {
        while let Some(index) = self.core.hold_due(now) {
            let held = self.qps.at(index).and_then(|qp| self.qps.get(qp));
            let is_due = |hold: Hold| hold.due <= now;
            if let Some(found) = held.filter(|found| found.hold.is_some_and(is_due)) {
                let qp = found.number;
                self.qps.wake(&mut self.core, qp);
            }
        }
    }

    /// Ends all holds: the rules have changed. A request whose answer was dropped fails now.
    pub(crate) fn end_holds(&mut self) {
        for index in 0..self.qps.indices() {
            let Some(qp) = self.qps.at(index) else {
                continue;
            };
            let Some(found) = self.qps.get_mut(qp) else {
                continue;
            };
            let runs = matches!(found.state, qp_state::RTS | qp_state::SQD);
            match found.hold.take() {
                Some(Hold {
                    then: Then::Fail(status),
                    ..
                }) if runs => {
                    if let Ok(Some((wqe, past))) = found.first_send(&mut self.core.bus) {
                        let failed = Err((status, Detail::Injected));
                        self.complete_send(qp, &wqe, past, 0, failed);
                    }
                    self.stop_sender(qp);
                }
                Some(_) => {
                    self.qps.wake(&mut self.core, qp);
                    // A sender without a timer waits until this one answers.
                    self.qps.wake_peer(&mut self.core, qp);
                }
                None => {}
            }
        }
    }
}
