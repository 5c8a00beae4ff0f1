// SPDX-License-Identifier: GPL-2.0
//! The responder of a reliable connection.
//!
//! A packet whose PSN is the expected one is the caller's to execute: a [`Step::Execute`] says what it
//! may do, and the caller says what came of it. The packet counts as received only then. All others
//! change nothing but answers: one from before is answered again, and one that is too early says that
//! packets are missing, once until the gap is closed.

use crate::extended::Nak;
use crate::extended::Reth;
use crate::extended::Syndrome;
use crate::extended::BITS24;
use crate::operation::Operation;
use crate::psn::Psn;
use crate::replies::Answer;
use crate::replies::Replies;
use crate::replies::Reply;
use crate::replies::What;
use crate::segment::Mtu;
use crate::segment::Partial;
use crate::segment::Piece;
use crate::segment::MESSAGE_BYTES;

/// What a packet of the peer does.
#[must_use]
#[derive(Debug)]
pub enum Step<'a, const R: usize, const W: usize> {
    /// It is the next, and to be executed.
    Execute(Packet<'a, R, W>),
    /// It breaks the rules of requests; the queue pair fails when the answers are sent.
    Invalid,
    /// It came before.
    Duplicate,
    /// Packets before it are missing.
    Early,
    /// The queue pair has failed, or has no room for an answer.
    Dropped,
}

/// What a packet is allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// A part of a message.
    Piece(Piece),
    /// A READ: its rights are checked, and nothing is read.
    Read(Reth),
    /// An atomic.
    Atomic,
    /// FLUSH or atomic WRITE.
    Confirmed,
}

/// Why a packet is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// There is no receive: the sender waits for the time of this code.
    NotReady(u8),
    /// For good; the queue pair fails when the answers are sent.
    Nak(Nak),
}

/// The responder of a queue pair that keeps at most `R` replies, and of which at most `W` answers
/// wait: `2 * R + 2` are enough.
#[derive(Debug)]
pub struct Receiver<const R: usize, const W: usize> {
    mtu: Mtu,
    expected: Psn,
    /// Messages that were completed.
    msn: u32,
    /// The message of which packets have come.
    partial: Option<Partial>,
    /// A NAK has asked for the expected packet: it is asked for once.
    nak_sent: bool,
    failed: bool,
    replies: Replies<R, W>,
}

impl<const R: usize, const W: usize> Receiver<R, W> {
    /// One that expects this PSN first, of a peer that may await `reads` answers to READs and
    /// atomics.
    pub fn new(mtu: Mtu, reads: u8, first: Psn) -> Self {
        Self {
            mtu,
            expected: first,
            msn: 0,
            partial: None,
            nak_sent: false,
            failed: false,
            replies: Replies::new(mtu, reads),
        }
    }

    /// The PSN that is expected.
    pub const fn expected(&self) -> Psn {
        self.expected
    }

    /// A packet with so many bytes of payload; `ack` says whether it asks for an acknowledgement.
    pub fn receive(
        &mut self,
        psn: Psn,
        ack: bool,
        operation: &Operation,
        bytes: usize,
    ) -> Step<'_, R, W> {
        if self.failed || !self.replies.has_room() {
            return Step::Dropped;
        }
        match psn.since(self.expected) {
            0 => {}
            1.. => {
                self.early();
                return Step::Early;
            }
            _ => {
                self.duplicate(psn, operation);
                return Step::Duplicate;
            }
        }
        let Some((effect, partial)) = self.judge(operation, bytes) else {
            self.refuse(Nak::InvalidRequest);
            return Step::Invalid;
        };
        Step::Execute(Packet {
            receiver: self,
            effect,
            partial,
            ack,
        })
    }

    /// What the expected packet may do, and the message after it; `None` if it may not come now.
    fn judge(&self, operation: &Operation, bytes: usize) -> Option<(Effect, Option<Partial>)> {
        if let Some((form, position)) = operation.part() {
            let bytes = u32::try_from(bytes).ok()?;
            let joined = Partial::join(self.partial, form, position, bytes, self.mtu);
            let (piece, partial) = joined.ok()?;
            return Some((Effect::Piece(piece), partial));
        }
        let effect = match *operation {
            Operation::Read(reth) if reth.bytes <= MESSAGE_BYTES => Effect::Read(reth),
            Operation::CompareSwap(_) | Operation::FetchAdd(_) => Effect::Atomic,
            Operation::Flush(..) | Operation::AtomicWrite(_) => Effect::Confirmed,
            _ => return None,
        };
        if self.partial.is_some() || !self.replies.are_allowed() {
            return None;
        }
        Some((effect, None))
    }

    /// Packets are missing.
    fn early(&mut self) {
        if !self.nak_sent {
            self.nak_sent = true;
            self.replies
                .queue(self.expected, Syndrome::Sequence, self.msn);
        }
    }

    /// A packet that came before. One that is acknowledged is acknowledged again, with all that has
    /// come since; one with a reply is answered with that.
    fn duplicate(&mut self, psn: Psn, operation: &Operation) {
        if operation.part().is_some() {
            self.replies.acknowledge(self.expected.previous(), self.msn);
            return;
        }
        let Some(reply) = self.replies.kept(psn) else {
            return;
        };
        let same = match (reply.what, operation) {
            (What::Read(whole), Operation::Read(rest)) => self.is_rest(psn, &reply, whole, *rest),
            (What::Atomic(_), Operation::CompareSwap(_) | Operation::FetchAdd(_)) => true,
            (What::Confirmed, Operation::Flush(..) | Operation::AtomicWrite(_)) => true,
            _ => false,
        };
        if same {
            self.replies.reply_again(reply, psn);
        }
    }

    /// Whether a READ asks for what is left of an earlier one from this PSN on.
    fn is_rest(&self, psn: Psn, reply: &Reply, whole: Reth, rest: Reth) -> bool {
        let nth = psn.since(reply.first).unsigned_abs();
        let offset = u64::from(nth).saturating_mul(u64::from(self.mtu.bytes()));
        let left = u64::from(whole.bytes).checked_sub(offset);
        rest.key == whole.key
            && rest.addr == whole.addr.wrapping_add(offset)
            && left == Some(u64::from(rest.bytes))
    }

    fn refuse(&mut self, nak: Nak) {
        self.failed = true;
        self.replies
            .queue(self.expected, Syndrome::Nak(nak), self.msn);
    }

    /// Takes the next answer to send.
    pub fn answer(&mut self) -> Option<Answer> {
        self.replies.next()
    }

    /// Whether an answer waits.
    pub const fn has_answers(&self) -> bool {
        self.replies.waits()
    }

    /// Whether a packet was refused for good: the queue pair fails when the answers are sent.
    pub const fn has_failed(&self) -> bool {
        self.failed
    }

    /// The memory of an answer to a READ cannot be read. If its request came again, the peer may have
    /// had the answer and given the memory up: the answer is refused, and nothing else.
    pub fn read_failed(&mut self, answer: &Answer) {
        if answer.again {
            self.replies.refuse_again(answer.psn, self.msn);
            return;
        }
        self.failed = true;
        self.replies.fail(answer.psn, self.msn);
    }
}

/// The expected packet. If it is dropped, nothing has come.
#[must_use = "it is executed or refused"]
#[derive(Debug)]
pub struct Packet<'a, const R: usize, const W: usize> {
    receiver: &'a mut Receiver<R, W>,
    effect: Effect,
    partial: Option<Partial>,
    ack: bool,
}

impl<const R: usize, const W: usize> Packet<'_, R, W> {
    /// What it may do.
    pub const fn effect(&self) -> Effect {
        self.effect
    }

    /// It was executed; of an atomic `old` is the old value.
    pub fn executed(self, old: u64) {
        let receiver = self.receiver;
        let (psn, msn) = (receiver.expected, receiver.msn.wrapping_add(1) & BITS24);
        let (packets, what) = match self.effect {
            Effect::Piece(_) => (1, None),
            Effect::Read(reth) => (receiver.mtu.packets(reth.bytes), Some(What::Read(reth))),
            Effect::Atomic => (1, Some(What::Atomic(old))),
            Effect::Confirmed => (1, Some(What::Confirmed)),
        };
        receiver.expected = psn.plus(packets);
        receiver.partial = self.partial;
        receiver.nak_sent = false;
        if self.partial.is_none() {
            receiver.msn = msn;
        }
        if let Some(what) = what {
            receiver.replies.reply(Reply {
                first: psn,
                packets,
                what,
                msn,
            });
        } else if self.ack {
            receiver.replies.acknowledge(psn, receiver.msn);
        }
    }

    /// It was not executed.
    pub fn refuse(self, refusal: Refusal) {
        let receiver = self.receiver;
        match refusal {
            Refusal::NotReady(timer) => {
                // The packets after it are early, and this asks for it already.
                receiver.nak_sent = true;
                let syndrome = Syndrome::NotReady(timer);
                receiver
                    .replies
                    .queue(receiver.expected, syndrome, receiver.msn);
            }
            Refusal::Nak(nak) => receiver.refuse(nak),
        }
    }
}
