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
use crate::transfer::Cursor;
use crate::transfer::Message;
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

/// How far a message came.
enum Outcome {
    /// To its end.
    Done,
    /// As far as the turn goes.
    Paused,
    /// The turn ends: it is tried again, it failed, or its completion found no room.
    Over,
}

impl Outcome {
    /// Of a message that was completed, and whether the turn may go on.
    fn of(goes_on: bool) -> Self {
        if goes_on {
            Self::Done
        } else {
            Self::Over
        }
    }
}

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

impl<H: Host> Function<H> {
    /// A turn: at most `left` work requests and `budget` bytes, from which it takes what it uses.
    pub(crate) fn send(&mut self, qp: Number, left: &mut u32, budget: &mut u64) {
        let paused = self.qps.get_mut(qp).and_then(|found| found.sending.take());
        let mut goes_on = true;
        if let Some(mut message) = paused {
            goes_on = self.perform(qp, &mut message, budget);
            *left = left.saturating_sub(1);
        }
        if goes_on {
            let mut blocks = core::mem::take(&mut self.blocks);
            self.send_new(qp, left, budget, &mut blocks);
            self.blocks = blocks;
        }
        self.has_work(qp);
    }

    /// Begins work requests from the SQ, in runs of blocks that are fetched at once.
    fn send_new(&mut self, qp: Number, left: &mut u32, budget: &mut u64, blocks: &mut [u64]) {
        while *left != 0 {
            let ready = |found: &crate::qp::Qp<H::Map>| {
                found.state == qp_state::RTS && !found.waiting && !found.sq.window.is_empty()
            };
            if !self.qps.get(qp).is_some_and(ready) {
                return;
            }
            let most = left.saturating_mul(MAX_BLOCKS as u32);
            let Some(count) = self.fetch(qp, most, blocks) else {
                self.stop(qp, Status::LocalQpOperation);
                return;
            };
            let fetched = blocks.get(..count as usize * BLOCK_WORDS);
            let mut rest = fetched.unwrap_or(&[]);
            while *left != 0 && !rest.is_empty() {
                let Some((head, posted)) = self.qps.get(qp).map(|found| {
                    let window = &found.sq.window;
                    (window.head(), window.used())
                }) else {
                    return;
                };
                let Some(wqe) = rest.first_chunk().map(SendWqe::decode) else {
                    return;
                };
                let words = usize::from(wqe.blocks) * BLOCK_WORDS;
                let Some(past) = past(&wqe, head, posted) else {
                    // Where the next one would begin nobody knows, so this one is all that is posted.
                    self.bus.count(Counter::SendWqes);
                    let tail = head.plus(posted);
                    let refusal = Refusal::Sender(Status::LocalQpOperation, Detail::Blocks);
                    self.refuse(qp, Number::ADMIN, &wqe, tail, refusal);
                    return;
                };
                let Some((whole, others)) = rest.split_at_checked(words) else {
                    break;
                };
                rest = others;
                *left -= 1;
                self.bus.count(Counter::SendWqes);
                let mut message = message(&wqe, whole, past);
                let goes_on = match self.check(qp, &mut message) {
                    Ok(()) => self.perform(qp, &mut message, budget),
                    Err(refusal) => {
                        self.refuse(qp, Number::ADMIN, &wqe, past, refusal);
                        mutant!(ErrorGoesOn)
                    }
                };
                if !goes_on {
                    return;
                }
            }
        }
    }

    /// Checks a WQE by itself, and the sender's memory.
    fn check(&mut self, qp: Number, message: &mut Message) -> Result<(), Refusal> {
        let wqe = message.wqe;
        let blocks = usize::from(wqe.blocks);
        let refuse = |detail| Err(Refusal::Sender(Status::LocalQpOperation, detail));
        let (sends, writes) = match wqe.opcode {
            opcode::NOP => (false, false),
            opcode::SEND | opcode::SEND_IMM => (true, false),
            opcode::WRITE => (false, true),
            opcode::WRITE_IMM => (true, true),
            opcode::READ => (false, false),
            _ => return refuse(Detail::Opcode),
        };
        let mut known = send_flags::SIGNALED | send_flags::FENCE;
        if sends {
            known |= send_flags::SOLICITED;
        }
        if sends || writes {
            known |= send_flags::INLINE;
        }
        if wqe.flags & !known != 0 {
            return refuse(Detail::Flags);
        }
        let most_sges = send_sges(blocks).min(usize::from(self.config.send_sges));
        let most_inline = inline_bytes(blocks).min(usize::from(self.config.inline_bytes));
        let inline = wqe.flags & send_flags::INLINE != 0;
        if usize::from(wqe.sges) > if inline { 0 } else { most_sges } {
            return refuse(Detail::Sges);
        }
        if wqe.inline_bytes as usize > if inline { most_inline } else { 0 } {
            return refuse(Detail::Inline);
        }
        if wqe.opcode == opcode::NOP {
            return Ok(());
        }
        let bytes = if inline {
            u64::from(wqe.inline_bytes)
        } else {
            total(&message.words, SendWqe::WORDS, wqe.sges)
        };
        if bytes > u64::from(self.config.message_bytes) {
            return Err(Refusal::Sender(Status::LocalLength, Detail::Message));
        }
        message.bytes = bytes as u32;
        let local = self.check_local(qp, message);
        local.map_err(|detail| Refusal::Sender(Status::LocalProtection, detail))
    }

    /// Carries a message on: whether the turn goes on after it.
    fn perform(&mut self, qp: Number, message: &mut Message, budget: &mut u64) -> bool {
        match self.carry_on(qp, message, budget) {
            Outcome::Done => *budget != 0,
            Outcome::Over => mutant!(ErrorGoesOn),
            Outcome::Paused => {
                if let Some(found) = self.qps.get_mut(qp) {
                    found.sending = Some(message.clone());
                }
                false
            }
        }
    }

    fn carry_on(&mut self, qp: Number, message: &mut Message, budget: &mut u64) -> Outcome {
        let wqe = message.wqe;
        if wqe.opcode == opcode::NOP {
            return Outcome::of(self.complete_send(qp, &wqe, message.past, 0, Ok(())));
        }
        let peer = self.qps.get(qp).map_or(Number::ADMIN, |found| found.peer);
        if let Err(refusal) = self.admit(qp, peer, message) {
            return self.refuse(qp, peer, &wqe, message.past, refusal);
        }
        if mutant!(CompletionBeforeData) && wqe.opcode == opcode::WRITE {
            self.finish(qp, peer, message);
        }
        while message.done < message.bytes {
            if *budget == 0 {
                return Outcome::Paused;
            }
            match self.step(qp, peer, message, *budget) {
                Ok(count) => *budget = budget.saturating_sub(u64::from(count)),
                Err(fault) => {
                    let refusal = match statuses(&fault) {
                        (sender, Some(peer), detail) => Refusal::Peer {
                            sender,
                            peer,
                            detail,
                        },
                        (sender, None, detail) => Refusal::Sender(sender, detail),
                    };
                    return self.refuse(qp, peer, &wqe, message.past, refusal);
                }
            }
        }
        if mutant!(CompletionBeforeData) && wqe.opcode == opcode::WRITE {
            return Outcome::Done;
        }
        Outcome::of(self.finish(qp, peer, message))
    }

    /// Asks whether the peer is there for a queue pair: only if it names it.
    fn ask_peer(&self, qp: Number, peer: Number) -> Result<(), Detail> {
        let own_function = self.qps.get(qp).map(|found| found.peer_function);
        let found = self.qps.get(peer).ok_or(Detail::NoPeer)?;
        if peer == Number::ADMIN || own_function != Some(0) {
            return Err(Detail::NoPeer);
        }
        if !mutant!(PeerNotAsked) && (found.peer != qp || found.peer_function != 0) {
            return Err(Detail::NotNamed);
        }
        match found.state {
            qp_state::RTR | qp_state::RTS | qp_state::SQD => Ok(()),
            _ => Err(Detail::NotReady),
        }
    }

    /// Asks the peer to let a message in. It is asked again at each turn, and what it took for it is still there.
    fn admit(&mut self, qp: Number, peer: Number, message: &mut Message) -> Result<(), Refusal> {
        self.ask_peer(qp, peer).map_err(|detail| {
            if self.qps.is_stale(peer) {
                // Counted below: a reference that outlived its object.
                return Refusal::Retry(Detail::NoPeer);
            }
            Refusal::Retry(detail)
        })?;
        if message.admitted && message.takes_receive() {
            let filling = self
                .qps
                .get(peer)
                .is_some_and(|peer| peer.receiving.is_some());
            if !filling {
                message.restart();
            }
        }
        if message.admitted {
            return Ok(());
        }
        if message.takes_receive() {
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
        }
        let right = message.remote_right();
        if right == 0 {
            let room = self.qps.get(peer).map_or(0, |found| {
                let receive = found.receiving.as_ref();
                receive.map_or(0, |receive| {
                    let [head, second, ..] = receive.words;
                    let sges = RecvWqe::decode(&[head, second]).sges;
                    total(&receive.words, RecvWqe::WORDS, sges)
                })
            });
            if room < u64::from(message.bytes) {
                return Err(Refusal::Peer {
                    sender: Status::RemoteInvalidRequest,
                    peer: Status::LocalLength,
                    detail: Detail::ShortReceive,
                });
            }
        } else {
            let allowed = self.qps.get(peer).map_or(0, |found| found.access);
            if allowed & right == 0 && !mutant!(PeerRightsNotChecked) {
                return Err(Refusal::Peer {
                    sender: Status::RemoteInvalidRequest,
                    peer: Status::LocalAccess,
                    detail: Detail::Rights,
                });
            }
            self.check_remote(peer, message)
                .map_err(|detail| Refusal::Peer {
                    sender: Status::RemoteAccess,
                    peer: Status::LocalAccess,
                    detail,
                })?;
        }
        message.admitted = true;
        if let Some(found) = self.qps.get_mut(qp) {
            found.tries = 0;
        }
        Ok(())
    }

    /// All bytes are there: completes the peer's receive, then the work request. False if the turn must end.
    fn finish(&mut self, qp: Number, peer: Number, message: &Message) -> bool {
        let wqe = &message.wqe;
        let mut goes_on = true;
        if message.takes_receive() {
            let found = self.qps.get_mut(peer);
            let taken = found.and_then(|found| {
                let receive = found.receiving.take()?;
                Some((found.recv_cq, receive.wr_id, receive.past))
            });
            if let Some((cq, wr_id, past)) = taken {
                let imm = wqe.opcode != opcode::SEND;
                let solicited = wqe.flags & send_flags::SOLICITED != 0;
                let cqe = Cqe {
                    wr_id,
                    qp: peer,
                    bytes: message.bytes,
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
                goes_on = self.complete(cq, &cqe, solicited);
            }
        }
        let bytes = match wqe.opcode {
            opcode::READ => message.bytes,
            _ => 0,
        };
        self.complete_send(qp, wqe, message.past, bytes, Ok(())) && goes_on
    }

    /// A message does not go on.
    fn refuse(
        &mut self,
        qp: Number,
        peer: Number,
        wqe: &SendWqe,
        past: Index,
        refusal: Refusal,
    ) -> Outcome {
        let Some(found) = self.qps.get_mut(qp) else {
            return Outcome::Over;
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
                    return Outcome::Over;
                }
                (Status::RetryExceeded, detail)
            }
            Refusal::NotReady => {
                if found.rnr_retry == FOR_EVER {
                    // A receive, or the peer's end, wakes it.
                    found.waiting = true;
                    return Outcome::Over;
                }
                if found.tries < found.rnr_retry || mutant!(RnrIgnoresRetries) {
                    self.retry_later(qp);
                    return Outcome::Over;
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
        self.complete_send(qp, wqe, past, 0, Err((status, detail)));
        self.stop(qp, status);
        Outcome::Over
    }
}

fn message(wqe: &SendWqe, whole: &[u64], past: Index) -> Message {
    let mut words: WqeWords = [0; MAX_BLOCKS * BLOCK_WORDS];
    for (word, from) in words.iter_mut().zip(whole) {
        *word = *from;
    }
    Message {
        wqe: *wqe,
        words,
        past,
        bytes: 0,
        done: 0,
        cursor: Cursor::default(),
        admitted: false,
    }
}
