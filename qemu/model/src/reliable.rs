// SPDX-License-Identifier: GPL-2.0
//! The requester of a reliable connection by frames, and its answers.
//!
//! What was acknowledged completes; then requests begin and packets are sent, as long as the window,
//! the network and the turn have room.

use crate::datapath::DataPath;
use crate::flying::cost;
use crate::flying::kind;
use crate::host::Host;
use crate::link::Flying;
use crate::link::Link;
use crate::link::Transport;
use crate::message::Sender;
use crate::responder::Responder;
use qpair_abi::counters::Counter;
use qpair_abi::entry::send_flags;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_roce::extended::Nak;
use qpair_roce::header::Headers;
use qpair_roce::header::Service;
use qpair_roce::request::Failure;
use qpair_roce::request::Kind;
use qpair_roce::request::Outcome;
use qpair_roce::request::Request;
use qpair_roce::sender::Next;

/// The status of a request that failed.
fn status(failure: Failure, own: (Status, Detail)) -> (Status, Detail) {
    let status = match failure {
        Failure::Local => return own,
        Failure::Retries => Status::RetryExceeded,
        Failure::RnrRetries => Status::RnrRetryExceeded,
        Failure::Remote(Nak::InvalidRequest) => Status::RemoteInvalidRequest,
        Failure::Remote(Nak::RemoteAccess) => Status::RemoteAccess,
        Failure::Remote(Nak::RemoteOperation) => Status::RemoteOperation,
    };
    (status, Detail::None)
}

/// Whether each request that was begun has been sent.
fn has_sent_all(link: &Link) -> bool {
    match &link.transport {
        Transport::Rc(both) => both.sender.has_sent_all(),
        Transport::Uc(_) => false,
    }
}

impl<H: Host> DataPath<H> {
    /// Sends the answers that wait, as far as the turn goes.
    pub(crate) fn send_answers(&mut self, qp: Number, link: &mut Link, budget: &mut u64) {
        let Some(found) = self.qps.get(qp) else {
            return;
        };
        let by = Responder::of(qp, &found.attributes);
        let (route, dest) = (link.route, link.dest);
        let Transport::Rc(both) = &mut link.transport else {
            return;
        };
        while both.receiver.has_answers() {
            if *budget == 0 {
                link.is_due = true;
                return;
            }
            if self.room() == 0 {
                self.wait_for_room(qp);
                return;
            }
            let Some(answer) = both.receiver.answer() else {
                return;
            };
            let headers = Headers {
                service: Service::Rc,
                operation: answer.operation,
                solicited: false,
                ack: false,
                dest,
                psn: answer.psn,
            };
            let bytes = answer.payload.map_or(0, |range| range.bytes);
            let sent = self.transmit(&route, &headers, bytes as usize, |data, payload| {
                // Only an answer to a READ needs the right to read.
                let range = answer.payload;
                range.map_or(Ok(()), |range| data.read_for_peer(by, range, payload))
            });
            *budget = budget.saturating_sub(cost(bytes));
            if let Err((nak, detail)) = sent {
                if !answer.again {
                    self.nak_access(by, nak, detail);
                }
                both.receiver.read_failed(&answer);
            }
        }
    }

    /// A queue pair that has refused a request says so before it is silent.
    pub(crate) fn last_answers(&mut self, qp: Number, budget: &mut u64) {
        let Some(found) = self.qps.get_mut(qp) else {
            return;
        };
        let refuses = |link: &Link| match &link.transport {
            Transport::Rc(both) => both.receiver.has_failed(),
            Transport::Uc(_) => false,
        };
        let Some(mut link) = found.link.take() else {
            return;
        };
        link.is_due = false;
        if refuses(&link) {
            self.send_answers(qp, &mut link, budget);
        }
        if let Some(found) = self.qps.get_mut(qp) {
            found.link = Some(link);
        }
    }

    /// Asks for a turn when an answer is missed. Progress moves that time, and the core is asked anew
    /// when the former one has come.
    pub(crate) fn set_deadline(&mut self, qp: Number, link: &mut Link) {
        let Transport::Rc(both) = &link.transport else {
            return;
        };
        let due = both.sender.deadline().unwrap_or(u64::MAX);
        if due < link.armed && self.may_send(qp) {
            link.armed = due;
            self.core.retry_at(qp.index(), due);
        }
    }

    /// Begins requests, sends packets and completes.
    pub(crate) fn send_reliable(
        &mut self,
        by: &Sender,
        link: &mut Link,
        (left, budget): (&mut u32, &mut u64),
        now: u64,
    ) {
        if let Transport::Rc(both) = &mut link.transport {
            let is_missed = both.sender.expire(now);
            self.core.bus.add(Counter::Retries, is_missed.into());
        }
        // The end of a request may be known: an answer has come, or it needs none.
        let mut ends = true;
        loop {
            if ends && !(self.complete_flying(by, link) && self.may_send(by.qp)) {
                return;
            }
            if !self.may_transmit(by.qp, link, *budget) {
                return;
            }
            if has_sent_all(link) {
                if *left == 0 {
                    return;
                }
                let Some(is_valid) = self.begin(by, link, left) else {
                    return;
                };
                ends = !is_valid;
                if ends {
                    continue;
                }
            }
            let Transport::Rc(both) = &mut link.transport else {
                return;
            };
            ends = match both.sender.next(now) {
                None => {
                    link.is_blocked = true;
                    return;
                }
                Some(Next::Perform { id }) => {
                    self.perform_flying(by, link, id);
                    true
                }
                Some(Next::Packet {
                    id,
                    psn,
                    piece,
                    ack,
                }) => {
                    *budget = budget.saturating_sub(cost(piece.bytes));
                    let sent = self.send_packet(by, link, id, (psn, ack), &piece);
                    self.refuse_flying(link, id, sent)
                }
            };
        }
    }

    /// Begins the next request of the SQ: whether it can be sent. `None` if there is none, or it cannot
    /// begin.
    fn begin(&mut self, by: &Sender, link: &mut Link, left: &mut u32) -> Option<bool> {
        let id = self.take_flying(by, link, left)?;
        let Flying {
            message, failed, ..
        } = link.flying(id)?;
        let is_valid = failed.0 == Status::Success;
        let mut request = Request {
            id,
            kind: if is_valid { kind(message) } else { Kind::Local },
            bytes: message.bytes,
            fence: message.wqe.flags & send_flags::FENCE != 0,
        };
        let Transport::Rc(both) = &mut link.transport else {
            return None;
        };
        let fits = both.sender.begin(request);
        if fits && is_valid {
            return Some(true);
        }
        if !fits {
            request.kind = Kind::Local;
            both.sender.begin(request);
        }
        both.sender.refuse(id);
        if let Some(flying) = link.flying(id).filter(|_| !fits) {
            flying.failed = (Status::LocalLength, Detail::Message);
        }
        Some(false)
    }

    /// Completes the requests whose end is known. False if the turn must end.
    fn complete_flying(&mut self, by: &Sender, link: &mut Link) -> bool {
        loop {
            let Transport::Rc(both) = &mut link.transport else {
                return false;
            };
            let Some((_, outcome)) = both.sender.complete() else {
                return true;
            };
            let Some((message, failed)) = link.pop() else {
                return true;
            };
            match outcome {
                Outcome::Done => {
                    self.count_moved(&message);
                    if !self.arrived(by, &message) {
                        return false;
                    }
                }
                Outcome::Failed(failure) => {
                    let failed = status(failure, failed);
                    let (wqe, past) = (&message.wqe, message.past);
                    self.count_stale(failed.1, wqe.rkey);
                    self.complete_send(by.qp, wqe, past, 0, Err(failed));
                    self.stop_sender(by.qp);
                    return false;
                }
            }
        }
    }
}
