// SPDX-License-Identifier: GPL-2.0
//! The answers of a responder: those that wait to be sent, and those that are kept.
//!
//! Answers leave in the order of their requests. Acknowledgements that follow each other are one, as
//! the newest says all, and the same one does not wait twice.
//!
//! The answer to a READ or an atomic is kept, as its request may come again. For a READ the range is
//! kept, and memory is read anew; for an atomic the old value, as it must not act again.

use crate::extended::Aeth;
use crate::extended::Nak;
use crate::extended::Reth;
use crate::extended::Syndrome;
use crate::fifo::Fifo;
use crate::operation::Operation;
use crate::psn::Psn;
use crate::segment::Mtu;

/// What is answered to a request with an answer of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum What {
    /// The bytes of a range.
    Read(Reth),
    /// The old value.
    Atomic(u64),
    /// That a FLUSH or an atomic WRITE was performed.
    Confirmed,
}

/// A reply that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reply {
    pub(crate) first: Psn,
    pub(crate) packets: u32,
    pub(crate) what: What,
    pub(crate) msn: u32,
}

/// An answer that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Waiting {
    Acknowledge {
        psn: Psn,
        aeth: Aeth,
    },
    /// A reply, from this packet on.
    Reply {
        reply: Reply,
        next: u32,
        /// It was asked for again.
        again: bool,
    },
}

/// An answer to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// Its PSN.
    pub psn: Psn,
    /// Its headers.
    pub operation: Operation,
    /// The own memory that is its payload. Its rights are checked anew; if it cannot be read,
    /// `Receiver::read_failed`.
    pub payload: Option<Reth>,
    /// Its request came again.
    pub again: bool,
}

/// The answers of a queue pair that keeps at most `R` replies, and of which at most `W` wait.
#[derive(Debug)]
pub(crate) struct Replies<const R: usize, const W: usize> {
    mtu: Mtu,
    /// How many the peer may await.
    most: usize,
    kept: Fifo<Reply, R>,
    waiting: Fifo<Waiting, W>,
}

impl<const R: usize, const W: usize> Replies<R, W> {
    pub(crate) fn new(mtu: Mtu, most: u8) -> Self {
        Self {
            mtu,
            most: usize::from(most).min(R),
            kept: Fifo::new(),
            waiting: Fifo::new(),
        }
    }

    /// Whether another answer can wait.
    pub(crate) fn has_room(&self) -> bool {
        !self.waiting.is_full()
    }

    /// Whether the peer may ask for replies.
    pub(crate) const fn are_allowed(&self) -> bool {
        self.most != 0
    }

    /// Acknowledges all up to a packet.
    pub(crate) fn acknowledge(&mut self, psn: Psn, msn: u32) {
        if let Some(Waiting::Acknowledge { psn: last, aeth }) = self.waiting.newest_mut() {
            if aeth.syndrome == Syndrome::Ack {
                *last = psn;
                aeth.msn = msn;
                return;
            }
        }
        self.queue(psn, Syndrome::Ack, msn);
    }

    /// Has an acknowledgement wait, unless the newest answer is the same.
    pub(crate) fn queue(&mut self, psn: Psn, syndrome: Syndrome, msn: u32) {
        let aeth = Aeth { syndrome, msn };
        let answer = Waiting::Acknowledge { psn, aeth };
        if self.waiting.newest_mut().copied() != Some(answer) {
            self.waiting.push(answer);
        }
    }

    /// Answers with a reply, which is kept in the place of the oldest: a peer that asks for another
    /// has that one, and if it breaks the rule it loses it. So at most as many replies wait as are
    /// kept.
    pub(crate) fn reply(&mut self, reply: Reply) {
        while self.kept.len() >= self.most.max(1) {
            let Some(oldest) = self.kept.pop() else {
                break;
            };
            self.withdraw(&oldest);
        }
        self.kept.push(reply);
        self.waiting.push(Waiting::Reply {
            reply,
            next: 0,
            again: false,
        });
    }

    /// A reply does not wait any more.
    fn withdraw(&mut self, kept: &Reply) {
        self.waiting.retain(|waiting| match waiting {
            Waiting::Reply { reply, .. } => reply != kept,
            Waiting::Acknowledge { .. } => true,
        });
    }

    /// The newest reply that has this PSN: one that is 2^24 packets old may have it too.
    pub(crate) fn kept(&self, psn: Psn) -> Option<Reply> {
        let has = |reply: &&Reply| {
            let nth = psn.since(reply.first);
            nth >= 0 && nth.unsigned_abs() < reply.packets
        };
        self.kept.iter().filter(has).last().copied()
    }

    /// Answers again, from this PSN on, and not twice if the reply still waits.
    pub(crate) fn reply_again(&mut self, reply: Reply, from: Psn) {
        self.withdraw(&reply);
        let next = from.since(reply.first).unsigned_abs();
        self.waiting.push(Waiting::Reply {
            reply,
            next,
            again: true,
        });
    }

    /// Takes the next answer to send.
    pub(crate) fn next(&mut self) -> Option<Answer> {
        let (reply, next, again) = match *self.waiting.get(0)? {
            Waiting::Acknowledge { psn, aeth } => {
                self.waiting.pop();
                return Some(Answer {
                    psn,
                    operation: Operation::Acknowledge(aeth),
                    payload: None,
                    again: false,
                });
            }
            Waiting::Reply { reply, next, again } => (reply, next, again),
        };
        let after = next.wrapping_add(1);
        match self.waiting.get_mut(0) {
            Some(Waiting::Reply { next, .. }) if after < reply.packets => *next = after,
            _ => {
                self.waiting.pop();
            }
        }
        let aeth = Aeth {
            syndrome: Syndrome::Ack,
            msn: reply.msn,
        };
        let (operation, payload) = match reply.what {
            What::Atomic(old) => (Operation::AtomicReply(aeth, old), None),
            What::Confirmed => (Operation::ReadReplyOnly(aeth), None),
            What::Read(reth) => {
                let piece = self.mtu.piece(reth.bytes, next)?;
                let range = Reth {
                    addr: reth.addr.wrapping_add(u64::from(piece.offset)),
                    bytes: piece.bytes,
                    ..reth
                };
                (Operation::read_reply(piece.position, aeth), Some(range))
            }
        };
        Some(Answer {
            psn: reply.first.plus(next),
            operation,
            payload,
            again,
        })
    }

    /// The only answer left is that this packet cannot be answered.
    pub(crate) fn fail(&mut self, psn: Psn, msn: u32) {
        self.waiting.clear();
        self.queue(psn, Syndrome::Nak(Nak::RemoteAccess), msn);
    }

    /// Refuses an answer that was asked for again, and the rest of its reply.
    pub(crate) fn refuse_again(&mut self, psn: Psn, msn: u32) {
        if let Some(kept) = self.kept(psn) {
            self.withdraw(&kept);
        }
        self.queue(psn, Syndrome::Nak(Nak::RemoteAccess), msn);
    }

    /// Whether an answer waits.
    pub(crate) const fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }
}
