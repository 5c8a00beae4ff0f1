// SPDX-License-Identifier: GPL-2.0
//! Work requests of a reliable connection.
//!
//! A request is checked in the order in which its ends are concerned: the WQE by
//! itself, the sender's memory, the peer, the peer's receive or memory. Then it moves, step by step,
//! then the peer's completion is written, then the sender's. Nothing that was
//! refused has been taken from the SQ: it is tried again as if it had just been posted.
//!
//! | refused by | sender gets | peer gets |
//! |---|---|---|
//! | the WQE | local QP operation, local length | nothing |
//! | the sender's memory | local protection | nothing |
//! | the peer being gone, not ready, or of somebody else | tries again, then retry exceeded | nothing |
//! | no receive | tries again, then RNR retry exceeded | nothing |
//! | a receive too short | remote invalid request | local length |
//! | a receive that makes no sense | remote operation | local QP operation |
//! | the receive's memory | remote operation | local protection |
//! | an operation that the peer does not allow | remote invalid request | local access |
//! | the peer's region | remote access | local access |
//!
//! What either gets is the completion of its work request, if it has one, and the error state.

use crate::host::Host;
use crate::mutant::mutant;
use crate::qp::past;
use crate::qp::NoReceive;
use crate::transfer::statuses;
use crate::transfer::total;
use crate::transfer::Fault;
use crate::transfer::Kind;
use crate::transfer::Message;
use crate::transfer::Paused;
use crate::transfer::Sender;
use crate::transfer::WqeWords;
use crate::Function;
use qpair_abi::command::qp_state;
use qpair_abi::command::service;
use qpair_abi::counters::Counter;
use qpair_abi::entry::cqe_flags;
use qpair_abi::entry::inline_bytes;
use qpair_abi::entry::opcode;
use qpair_abi::entry::send_flags;
use qpair_abi::entry::send_sges;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::RecvWqe;
use qpair_abi::entry::SendWqe;
use qpair_abi::entry::BLOCK_WORDS;
use qpair_abi::entry::MAX_BLOCKS;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_queue::index::Index;

/// `rnr_retry`: for ever.
const FOR_EVER: u8 = 7;
/// The only service.
const _: () = assert!(service::RC == 0);

/// Why a message does not go on.
enum Refusal {
    /// The sender's own fault.
    Sender(Status, Detail),
    /// The peer is not there for it.
    Retry(Detail),
    /// The peer has no receive.
    NotReady,
    /// The peer found something wrong.
    Peer {
        sender: Status,
        peer: Status,
        detail: Detail,
    },
}

impl Refusal {
    /// For a fault of either end.
    fn of(fault: &Fault) -> Self {
        match statuses(fault) {
            (sender, Some(peer), detail) => Self::Peer {
                sender,
                peer,
                detail,
            },
            (sender, None, detail) => Self::Sender(sender, detail),
        }
    }
}

impl<H: Host> Function<H> {
    /// A turn: at most `left` work requests and `budget` bytes, from which it takes what it uses.
    pub(crate) fn send(&mut self, qp: Number, left: &mut u32, budget: &mut u64) {
        let Some(found) = self.qps.get(qp) else {
            return;
        };
        let sender = Sender {
            qp,
            pd: found.pd,
            peer: found.peer,
        };
        let mut goes_on = true;
        if found.sending.is_some() {
            goes_on = self.resume(&sender, budget);
            *left = left.saturating_sub(1);
        }
        if goes_on {
            let mut blocks = core::mem::take(&mut self.blocks);
            self.send_new(&sender, left, budget, &mut blocks);
            self.blocks = blocks;
        }
        self.has_work(qp);
    }

    /// Begins work requests from the SQ, in runs of blocks that are fetched at once.
    fn send_new(&mut self, sender: &Sender, left: &mut u32, budget: &mut u64, blocks: &mut [u64]) {
        let qp = sender.qp;
        while *left != 0 {
            let ready = |found: &&crate::qp::Qp<H::Map>| {
                found.state == qp_state::RTS && !found.waiting && !found.sq.window.is_empty()
            };
            let Some(found) = self.qps.get(qp).filter(ready) else {
                return;
            };
            let (mut head, mut posted) = (found.sq.window.head(), found.sq.window.used());
            let most = left.saturating_mul(MAX_BLOCKS as u32);
            let Some(count) = self.fetch(qp, most, blocks) else {
                self.stop(qp, Status::LocalQpOperation);
                return;
            };
            let fetched = blocks.get(..count as usize * BLOCK_WORDS);
            let mut rest = fetched.unwrap_or(&[]);
            while *left != 0 && !rest.is_empty() {
                let wqe = decode(rest);
                let Some(past) = past(&wqe, head, posted) else {
                    // Where the next one would begin is unknown, so this one is all that is posted.
                    self.bus.count(Counter::SendWqes);
                    let tail = head.plus(posted);
                    let refusal = Refusal::Sender(Status::LocalQpOperation, Detail::Blocks);
                    self.refuse(sender, rest, tail, refusal);
                    return;
                };
                let words = usize::from(wqe.blocks) * BLOCK_WORDS;
                let Some((whole, others)) = rest.split_at_checked(words) else {
                    break;
                };
                rest = others;
                *left -= 1;
                posted = posted.saturating_sub(past.since(head));
                head = past;
                self.bus.count(Counter::SendWqes);
                let mut message = Message::new(wqe, past);
                let goes_on = match self.check(sender, &mut message, whole) {
                    Ok(()) => self.perform(sender, message, whole, budget),
                    Err((status, detail)) => {
                        let refusal = Refusal::Sender(status, detail);
                        self.refuse(sender, whole, past, refusal)
                    }
                };
                if !goes_on {
                    return;
                }
            }
        }
    }

    /// Checks a WQE by itself, and the sender's memory.
    #[inline(always)]
    fn check(
        &mut self,
        sender: &Sender,
        message: &mut Message,
        words: &[u64],
    ) -> Result<(), (Status, Detail)> {
        let refuse = |detail| Err((Status::LocalQpOperation, detail));
        let Some(kind) = Kind::of(message.wqe.opcode) else {
            return refuse(Detail::Opcode);
        };
        message.kind = kind;
        let wqe = &message.wqe;
        let blocks = usize::from(wqe.blocks);
        if wqe.flags & !kind.flags != 0 {
            return refuse(Detail::Flags);
        }
        let inline = message.is_inline();
        let (most_sges, most_inline) = if inline {
            let most = usize::from(self.config.inline_bytes);
            (0, inline_bytes(blocks).min(most))
        } else {
            let most = usize::from(self.config.send_sges);
            (send_sges(blocks).min(most), 0)
        };
        if usize::from(wqe.sges) > most_sges && wqe.opcode != opcode::NOP {
            return refuse(Detail::Sges);
        }
        if wqe.inline_bytes as usize > most_inline {
            return refuse(Detail::Inline);
        }
        if wqe.opcode == opcode::NOP {
            return Ok(());
        }
        let (bytes, wrong) = if inline {
            (u64::from(wqe.inline_bytes), None)
        } else {
            self.check_local(sender, message, words)
        };
        if bytes > u64::from(self.config.message_bytes) {
            return Err((Status::LocalLength, Detail::Message));
        }
        message.bytes = bytes as u32;
        match wrong {
            None => Ok(()),
            Some(detail) => Err((Status::LocalProtection, detail)),
        }
    }

    /// Carries on with a message that took longer than its turn: whether the turn goes on after it.
    #[cold]
    fn resume(&mut self, sender: &Sender, budget: &mut u64) -> bool {
        let found = self.qps.get_mut(sender.qp);
        let Some(paused) = found.and_then(|found| found.sending.take()) else {
            return true;
        };
        self.perform(sender, paused.message, &paused.words, budget)
    }

    /// Carries a message as far as the turn goes: whether the turn goes on after it.
    #[inline(always)]
    fn perform(
        &mut self,
        sender: &Sender,
        mut message: Message,
        words: &[u64],
        budget: &mut u64,
    ) -> bool {
        if message.wqe.opcode == opcode::NOP {
            let done = self.complete_send(sender.qp, &message.wqe, message.past, 0, Ok(()));
            return done && *budget != 0;
        }
        if let Err(refusal) = self.admit(sender, &mut message) {
            return self.refuse(sender, words, message.past, refusal);
        }
        let left = budget.checked_sub(u64::from(message.bytes));
        let left = left.filter(|_| !mutant!(CompletionBeforeData));
        let (Some(left), true) = (left, left.is_some() && self.move_at_once(&message)) else {
            return self.step_by_step(sender, message, words, budget);
        };
        *budget = left;
        self.finish(sender, &message) && left != 0
    }

    /// The same for a message that is not mapped as one piece at both ends, or is longer than what is left of the turn.
    #[cold]
    fn step_by_step(
        &mut self,
        sender: &Sender,
        mut message: Message,
        words: &[u64],
        budget: &mut u64,
    ) -> bool {
        let too_early = mutant!(CompletionBeforeData) && message.wqe.opcode == opcode::WRITE;
        if too_early {
            self.finish(sender, &message);
        }
        while message.done < message.bytes {
            if *budget == 0 {
                self.pause(sender.qp, &message, words);
                return false;
            }
            match self.step(sender, &mut message, words, *budget) {
                Ok(count) => *budget = budget.saturating_sub(u64::from(count)),
                Err(fault) => {
                    let refusal = Refusal::of(&fault);
                    return self.refuse(sender, words, message.past, refusal);
                }
            }
        }
        (too_early || self.finish(sender, &message)) && *budget != 0
    }

    /// The turn is over before the message is.
    fn pause(&mut self, qp: Number, message: &Message, whole: &[u64]) {
        let mut words: WqeWords = [0; MAX_BLOCKS * BLOCK_WORDS];
        for (word, from) in words.iter_mut().zip(whole) {
            *word = *from;
        }
        if let Some(found) = self.qps.get_mut(qp) {
            found.tries = 0;
            found.sending = Some(Paused {
                message: Message {
                    local: None,
                    remote: None,
                    ..*message
                },
                words,
            });
        }
    }

    /// Asks whether the peer is there for a queue pair: only if it names it.
    #[inline(always)]
    fn ask_peer(&self, sender: &Sender) -> Result<&crate::qp::Qp<H::Map>, Detail> {
        let found = self.qps.get(sender.peer).ok_or(Detail::NoPeer)?;
        if sender.peer == Number::ADMIN {
            return Err(Detail::NoPeer);
        }
        if !mutant!(PeerNotAsked) && found.peer != sender.qp {
            return Err(Detail::NotNamed);
        }
        match found.state {
            qp_state::RTR | qp_state::RTS | qp_state::SQD => Ok(found),
            _ => Err(Detail::NotReady),
        }
    }

    /// Asks the peer to let a message in. It is asked again at each turn, and what it took for it is still there.
    #[inline(always)]
    fn admit(&mut self, sender: &Sender, message: &mut Message) -> Result<(), Refusal> {
        let peer = self.ask_peer(sender);
        let peer = peer.map(|peer| (peer.pd, peer.access, peer.receiving.is_some()));
        let (pd, allowed, filling) = match peer {
            Ok(peer) => peer,
            // A reference that outlived its object. The refusal counts it.
            Err(_) if self.qps.is_stale(sender.peer) => {
                return Err(Refusal::Retry(Detail::NoPeer));
            }
            Err(detail) => return Err(Refusal::Retry(detail)),
        };
        if message.admitted {
            if filling || !message.kind.receives {
                return Ok(());
            }
            message.restart();
        }
        if message.kind.receives {
            self.admit_to_receive(sender.peer, message.kind, message.bytes)?;
        }
        let right = message.kind.remote;
        if right != 0 {
            if allowed & right == 0 && !mutant!(PeerRightsNotChecked) {
                return Err(Refusal::Peer {
                    sender: Status::RemoteInvalidRequest,
                    peer: Status::LocalAccess,
                    detail: Detail::Rights,
                });
            }
            let range = message.remote_range();
            if range.bytes != 0 {
                let found = self.regions.find(pd, right, range);
                let found = found.map_err(|detail| Refusal::Peer {
                    sender: Status::RemoteAccess,
                    peer: Status::LocalAccess,
                    detail,
                })?;
                message.remote = Some(found);
            }
        }
        message.admitted = true;
        Ok(())
    }

    /// Takes the peer's next receive, which has room for what is to fill it.
    fn admit_to_receive(&mut self, peer: Number, kind: &Kind, bytes: u32) -> Result<(), Refusal> {
        let broken = |detail| Refusal::Peer {
            sender: Status::RemoteOperation,
            peer: Status::LocalQpOperation,
            detail,
        };
        self.take_receive(peer).map_err(|none| match none {
            NoReceive::Empty => Refusal::NotReady,
            NoReceive::Dma => broken(Detail::Dma),
            NoReceive::Bad(detail) => broken(detail),
        })?;
        let found = self.qps.get(peer);
        let room = found.and_then(|found| found.receiving.as_ref());
        let room = room.map_or(0, |receive| {
            let [head, second, ..] = receive.words;
            let sges = RecvWqe::decode(&[head, second]).sges;
            total(&receive.words, RecvWqe::WORDS, sges)
        });
        if kind.remote == 0 && room < u64::from(bytes) {
            return Err(Refusal::Peer {
                sender: Status::RemoteInvalidRequest,
                peer: Status::LocalLength,
                detail: Detail::ShortReceive,
            });
        }
        Ok(())
    }

    /// All bytes are there: completes the peer's receive, then the work request. False if the turn must end.
    #[inline(always)]
    fn finish(&mut self, sender: &Sender, message: &Message) -> bool {
        let wqe = &message.wqe;
        let goes_on =
            !message.kind.receives || self.finish_receive(sender.peer, *wqe, message.bytes);
        let bytes = match wqe.opcode {
            opcode::READ => message.bytes,
            _ => 0,
        };
        self.complete_send(sender.qp, wqe, message.past, bytes, Ok(())) && goes_on
    }

    /// Completes the receive that a message has filled or taken.
    fn finish_receive(&mut self, peer: Number, wqe: SendWqe, bytes: u32) -> bool {
        let found = self.qps.get_mut(peer);
        let taken = found.and_then(|found| {
            let receive = found.receiving.take()?;
            Some((found.recv_cq, receive.wr_id, receive.past))
        });
        let Some((cq, wr_id, past)) = taken else {
            return true;
        };
        let imm = wqe.opcode != opcode::SEND;
        let solicited = wqe.flags & send_flags::SOLICITED != 0;
        let cqe = Cqe {
            wr_id,
            qp: peer,
            bytes,
            imm: if imm { wqe.imm } else { 0 },
            index: past.get(),
            opcode: match wqe.opcode {
                opcode::WRITE_IMM => opcode::RECV_WRITE_IMM,
                _ => opcode::RECV,
            },
            flags: cqe_flags::RECV
                | if imm { cqe_flags::IMM } else { 0 }
                | if solicited { cqe_flags::SOLICITED } else { 0 },
            ..Cqe::default()
        };
        self.complete(cq, &cqe, solicited)
    }

    /// A message does not go on, and neither does the turn, which is what is returned.
    #[cold]
    fn refuse(&mut self, sender: &Sender, words: &[u64], past: Index, refusal: Refusal) -> bool {
        let goes_on = mutant!(ErrorGoesOn);
        let (qp, peer, wqe) = (sender.qp, sender.peer, decode(words));
        let Some(found) = self.qps.get_mut(qp) else {
            return goes_on;
        };
        let (status, detail) = match refusal {
            Refusal::Sender(status, detail) => (status, detail),
            Refusal::Retry(detail) => {
                if self.qps.is_stale(peer) {
                    self.bus.count(Counter::Stale);
                }
                let again = self
                    .qps
                    .get(qp)
                    .is_some_and(|found| found.tries < found.retry);
                if again || mutant!(RetryForEver) {
                    self.retry_later(qp);
                    return goes_on;
                }
                (Status::RetryExceeded, detail)
            }
            Refusal::NotReady => {
                if found.rnr_retry == FOR_EVER {
                    // A receive, or the peer's end, wakes it.
                    found.waiting = true;
                    return goes_on;
                }
                if found.tries < found.rnr_retry || mutant!(RnrIgnoresRetries) {
                    self.retry_later(qp);
                    return goes_on;
                }
                (Status::RnrRetryExceeded, Detail::None)
            }
            Refusal::Peer {
                sender,
                peer: status,
                detail,
            } => {
                self.fail_receive(peer, status, detail);
                (sender, detail)
            }
        };
        if matches!(detail, Detail::Key) && self.regions.is_stale(Number::from_raw(wqe.rkey)) {
            self.bus.count(Counter::Stale);
        }
        self.complete_send(qp, &wqe, past, 0, Err((status, detail)));
        self.stop(qp, status);
        goes_on
    }
}

/// The head of a WQE.
#[inline]
fn decode(words: &[u64]) -> SendWqe {
    words.first_chunk().map(SendWqe::decode).unwrap_or_default()
}
