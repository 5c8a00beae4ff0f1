// SPDX-License-Identifier: GPL-2.0
//! The requester: performs the work requests of an SQ.
//!
//! A request is checked in this order: the WQE by itself, the memory that it sends, the peer, the
//! peer's receive or memory. Then its bytes move, then the peer's completion is written, then the
//! sender's. A request that is refused stays in the SQ: it is tried again as if it had just been
//! posted.

use crate::answer::Failure;
use crate::answer::Refusal;
use crate::check::decode;
use crate::check::RC;
use crate::check::UD;
use crate::datapath::DataPath;
use crate::fault_point::Verdict;
use crate::host::Host;
use crate::message::Message;
use crate::message::Sender;
use crate::qp::past;
use crate::subject::Subject;
use qpair_abi::command::qp_state;
use qpair_abi::command::service;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::entry::send_flags;
use qpair_abi::entry::BLOCK_WORDS;
use qpair_abi::entry::MAX_BLOCKS;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;

impl<H: Host> DataPath<H> {
    /// A turn of at most `left` work requests and `budget` bytes, from which it subtracts what it
    /// uses.
    pub(crate) fn send(&mut self, qp: Number, left: &mut u32, budget: &mut u64) {
        let Some(found) = self.qps.get(qp) else {
            return;
        };
        let sender = Sender::of(qp, &found.attributes);
        let is_ud = found.service == service::UD;
        let mut goes_on = true;
        if found.sending.is_some() {
            goes_on = self.resume(&sender, budget);
            *left = left.saturating_sub(1);
            self.drained(qp);
        }
        if goes_on {
            let mut blocks = core::mem::take(&mut self.blocks);
            if is_ud {
                self.send_new::<UD>(&sender, left, budget, &mut blocks);
            } else {
                self.send_new::<RC>(&sender, left, budget, &mut blocks);
            }
            self.blocks = blocks;
        }
        self.qps.enqueue(&mut self.core, qp);
    }

    /// Begins work requests from the SQ, in runs of blocks that are fetched at once.
    // Apart, the loops of RC and UD do not share registers: 20 instructions of a WRITE.
    #[inline(never)]
    fn send_new<const HEAD: usize>(
        &mut self,
        sender: &Sender,
        left: &mut u32,
        budget: &mut u64,
        blocks: &mut [u64],
    ) {
        let qp = sender.qp;
        while *left != 0 {
            let Some(found) = self.qps.get_mut(qp) else {
                return;
            };
            let (mut head, mut posted) = (found.sq.window.head(), found.sq.window.used());
            if found.state != qp_state::RTS || found.waiting || posted == 0 {
                return;
            }
            let most = left.saturating_mul(MAX_BLOCKS as u32);
            let Some(count) = found.fetch(&mut self.core.bus, most, blocks) else {
                let event = (Subject::Fatal(qp), Status::LocalQpOperation);
                self.stop(qp, Some(event));
                return;
            };
            let fetched = blocks.get(..count as usize * BLOCK_WORDS);
            let mut rest = fetched.unwrap_or(&[]);
            while *left != 0 && !rest.is_empty() {
                let wqe = decode(rest);
                let Some(past) = past(&wqe, head, posted) else {
                    // The index of the next one is unknown, so this one ends all that is posted.
                    self.core.bus.count(Counter::SendWqes);
                    let tail = head.plus(posted);
                    let failure = Failure::Own(Status::LocalQpOperation, Detail::Blocks);
                    self.refuse(sender, rest, tail, failure);
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
                self.core.bus.count(Counter::SendWqes);
                let mut message = Message::new(wqe, past);
                let goes_on = match self.check::<HEAD>(sender, &mut message, whole) {
                    Ok(()) if self.core.faults.are_set() => {
                        self.perform_with_faults::<HEAD>(sender, message, whole, budget)
                    }
                    Ok(()) if HEAD == UD => self.send_datagram(sender, message, whole, budget),
                    Ok(()) => self.perform(sender, message, whole, budget),
                    Err((status, detail)) => {
                        let failure = Failure::Own(status, detail);
                        self.refuse(sender, whole, past, failure)
                    }
                };
                if !goes_on {
                    return;
                }
            }
        }
    }

    /// Resumes a message that took longer than its turn: whether the turn goes on after it.
    #[cold]
    fn resume(&mut self, sender: &Sender, budget: &mut u64) -> bool {
        let found = self.qps.get_mut(sender.qp);
        let Some(paused) = found.and_then(|found| found.sending.take()) else {
            return true;
        };
        if sender.service == service::UD {
            return self.send_datagram(sender, paused.message, &paused.words, budget);
        }
        self.perform(sender, paused.message, &paused.words, budget)
    }

    /// Moves a message as far as the turn goes: whether the turn goes on after it.
    #[inline(always)]
    fn perform(
        &mut self,
        sender: &Sender,
        mut message: Message,
        words: &[u64],
        budget: &mut u64,
    ) -> bool {
        // It has no bytes, which others know at once.
        if message.bytes == 0 && message.kind.is_local {
            return self.perform_local(sender, message, words) && *budget != 0;
        }
        match sender.peer {
            Some(peer) => self.loop_back(sender, peer, &mut message, words, budget),
            None => self.refuse(sender, words, message.past, Failure::NO_PEER),
        }
    }

    /// Performs a request that needs no peer: whether the turn goes on after it.
    // By value: a reference would keep the caller's message in memory.
    #[inline(never)]
    fn perform_local(&mut self, sender: &Sender, message: Message, words: &[u64]) -> bool {
        let wqe = &message.wqe;
        match self.local(sender, wqe, words) {
            Ok(()) => self.complete_send(sender.qp, wqe, message.past, 0, Ok(())),
            Err(detail) => {
                let failure = Failure::Own(Status::WindowBind, detail);
                self.refuse(sender, words, message.past, failure)
            }
        }
    }

    /// Sends a datagram, or performs a NOP: whether the turn goes on after it.
    fn send_datagram(
        &mut self,
        sender: &Sender,
        message: Message,
        words: &[u64],
        budget: &mut u64,
    ) -> bool {
        if message.wqe.opcode == opcode::NOP {
            return self.perform(sender, message, words, budget);
        }
        match self.datagram(sender, &message, words, budget) {
            Ok(goes_on) => goes_on,
            Err((status, detail)) => {
                let failure = Failure::Own(status, detail);
                self.refuse(sender, words, message.past, failure)
            }
        }
    }

    /// Performs a request that the rules of faults may meet: whether the turn goes on after it.
    #[cold]
    fn perform_with_faults<const HEAD: usize>(
        &mut self,
        sender: &Sender,
        mut message: Message,
        words: &[u64],
        budget: &mut u64,
    ) -> bool {
        let past = message.past;
        let failure = match (self.fault_point(sender, &message), sender.peer) {
            (Verdict::Perform, _) if HEAD == UD => {
                return self.send_datagram(sender, message, words, budget)
            }
            (Verdict::Perform, _) => return self.perform(sender, message, words, budget),
            (Verdict::PerformUnanswered, _) => {
                // It stays in the SQ, without a completion.
                let found = self.qps.get(sender.qp);
                message.past = found.map_or(past, |found| found.sq.window.head());
                message.wqe.flags &= !send_flags::SIGNALED;
                self.perform(sender, message, words, budget);
                return false;
            }
            (Verdict::Wait, _) => return false,
            (Verdict::Unanswered, _) => Failure::Peer(Refusal::Silent(Detail::Injected)),
            (Verdict::Fail(status), _) => Failure::Own(status, Detail::Injected),
            (Verdict::FailReceive(status), Some(peer)) => {
                Failure::Peer(self.fail_at_peer(sender, peer, &mut message, status))
            }
            (Verdict::FailReceive(_), None) => Failure::NO_PEER,
        };
        self.refuse(sender, words, past, failure)
    }
}
