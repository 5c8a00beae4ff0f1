// SPDX-License-Identifier: GPL-2.0
//! What answers do at the requester.
//!
//! An answer counts if its PSN is in flight. It acknowledges all packets before it, but none of a
//! request that has an answer of its own: if one of those is passed, its answer was lost, and the
//! request is sent again, a READ from the packet on that is missing.
//!
//! A READ's answers are judged by their PSN, not by *first* and *last*: after a repeat from the
//! midst soft-RoCE goes on with *middle*, and hardware begins anew with *first*.

use crate::extended::Syndrome;
use crate::operation::Operation;
use crate::psn::Psn;
use crate::request::Failure;
use crate::request::Flying;
use crate::request::Kind;
use crate::sender::Sender;
use crate::tries::Verdict;

/// Data of an answer, which the caller puts into the memory of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Data {
    /// The request.
    pub id: u32,
    /// Bytes of the answer before these.
    pub offset: u32,
}

impl<const N: usize> Sender<N> {
    /// An answer with so many bytes of payload. Returns where its data go, if it has some that are
    /// awaited. `rnr` is the time of a code, in ticks.
    pub fn answer(
        &mut self,
        now: u64,
        psn: Psn,
        operation: &Operation,
        bytes: usize,
        rnr: impl FnOnce(u8) -> u64,
    ) -> Option<Data> {
        let is_awaited = !psn.is_before(self.acked) && psn.is_before(self.sent);
        if !self.works() || !is_awaited {
            return None;
        }
        match operation {
            Operation::Acknowledge(aeth) => {
                self.acknowledgement(now, psn, aeth.syndrome, rnr);
                None
            }
            Operation::AtomicReply(..) => self.data(now, psn, |kind, _| kind == Kind::Atomic),
            Operation::ReadReplyFirst(_)
            | Operation::ReadReplyMiddle
            | Operation::ReadReplyLast(_)
            | Operation::ReadReplyOnly(_) => self.data(now, psn, |kind, awaited| {
                matches!(kind, Kind::Read | Kind::Confirmed) && bytes == awaited as usize
            }),
            _ => None,
        }
    }

    fn acknowledgement(
        &mut self,
        now: u64,
        psn: Psn,
        syndrome: Syndrome,
        rnr: impl FnOnce(u8) -> u64,
    ) {
        let before = match syndrome {
            Syndrome::Ack => psn.plus(1),
            Syndrome::NotReady(_) | Syndrome::Sequence | Syndrome::Nak(_) => psn,
        };
        let passes = self.acknowledge(now, before);
        match syndrome {
            _ if passes => self.repeat(now),
            Syndrome::Ack => {}
            Syndrome::Sequence => self.repeat(now),
            Syndrome::Nak(nak) => self.fail(Failure::Remote(nak)),
            Syndrome::NotReady(_) if self.tries.waits_for_receiver() => {}
            Syndrome::NotReady(code) => match self.tries.not_ready(now, &self.limits, rnr(code)) {
                Verdict::Again => {}
                Verdict::Exhausted => self.fail(Failure::RnrRetries),
            },
        }
    }

    /// The oldest request whose own answer is awaited.
    fn oldest_unanswered(&self) -> Option<Flying> {
        let waits = |it: &&Flying| it.request.kind.is_answered() && self.acked.is_before(it.end());
        self.window.iter().find(waits).copied()
    }

    /// All before this PSN were executed: whether it passes a request whose answer was lost.
    fn acknowledge(&mut self, now: u64, before: Psn) -> bool {
        let reach = match self.oldest_unanswered() {
            Some(flying) if self.acked.is_before(flying.first) => flying.first,
            // A part of its answer came.
            Some(_) => self.acked,
            None => before,
        };
        let passes = reach.is_before(before);
        self.advance(now, if passes { reach } else { before });
        passes
    }

    /// An answer of a request's own, if the request `is` one that has such an answer, of so many
    /// bytes.
    fn data(&mut self, now: u64, psn: Psn, is: impl FnOnce(Kind, u32) -> bool) -> Option<Data> {
        let flying = self.oldest_unanswered()?;
        if psn.is_before(flying.first) {
            return None;
        }
        if !psn.is_before(flying.end()) {
            self.advance(now, flying.first);
            self.repeat(now);
            return None;
        }
        let nth = psn.since(flying.first).unsigned_abs();
        let request = flying.request;
        let (offset, awaited) = match request.kind {
            Kind::Read => {
                let piece = self.mtu().piece(request.bytes, nth)?;
                (piece.offset, piece.bytes)
            }
            _ => (0, 0),
        };
        if !is(request.kind, awaited) {
            return None;
        }
        self.advance(now, flying.first);
        if psn != self.acked {
            // Packets of the answer are missing.
            self.repeat(now);
            return None;
        }
        self.advance(now, psn.plus(1));
        let id = request.id;
        Some(Data { id, offset })
    }
}
