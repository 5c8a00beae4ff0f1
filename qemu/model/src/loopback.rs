// SPDX-License-Identifier: GPL-2.0
//! Loopback: the transport of messages within the function.
//!
//! The responder is called in the sender's turn. A message goes from one end to the other in steps,
//! each of which is contiguous at both ends. Either end may have changed since the last turn, so each
//! step looks its regions up anew. Most messages need one step, in the turn in which their ends were
//! checked: those move at once.

use crate::answer::Answer;
use crate::answer::Failure;
use crate::answer::Nak;
use crate::answer::Refusal;
use crate::atomic::operands;
use crate::datapath::DataPath;
use crate::datapath::BOUNCE_BYTES;
use crate::flush;
use crate::host::Host;
use crate::message::copy_inline;
use crate::message::Message;
use crate::message::Sender;
use crate::qp::QueuePair;
use crate::responder::serves;
use crate::responder::Responder;
use crate::transfer::End;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::entry::SendWqe;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;

/// Whether a queue pair names the sender as its peer, and is of its service.
#[inline(always)]
fn is_connected<M>(found: &QueuePair<M>, sender: &Sender) -> bool {
    found.path.leads_to(sender.qp) && found.service == sender.service
}

impl<H: Host> DataPath<H> {
    /// Carries a message to a queue pair of this function, as far as the turn goes: whether the turn
    /// goes on after it.
    #[inline(always)]
    pub(crate) fn loop_back(
        &mut self,
        sender: &Sender,
        peer: Number,
        message: &mut Message,
        words: &[u64],
        budget: &mut u64,
    ) -> bool {
        if let Err(refusal) = self.deliver_to(sender, peer, message) {
            return self.refuse(sender, words, message.past, Failure::Peer(refusal));
        }
        let left = budget.checked_sub(u64::from(message.bytes));
        let (Some(left), true) = (left, left.is_some() && self.move_at_once(message)) else {
            return self.step_by_step(sender, peer, *message, words, budget);
        };
        *budget = left;
        self.finish(sender, peer, message) && left != 0
    }

    /// Ends a message whose bytes are there: completes the receive, then the work request. False if
    /// the turn must end.
    #[inline(always)]
    fn finish(&mut self, sender: &Sender, peer: Number, message: &Message) -> bool {
        let goes_on = !message.kind.receives || self.complete_receive(peer, message.piece());
        self.arrived(sender, message) && goes_on
    }

    /// The peer, if it is connected to the sender and ready.
    #[inline(always)]
    fn responder(&mut self, sender: &Sender, peer: Number) -> Answer<Responder> {
        match self.qps.get(peer) {
            Some(found) if is_connected(found, sender) && serves(found.state) => {
                Ok(Responder::of(peer, &found.attributes))
            }
            _ => Err(self.silence(sender, peer)),
        }
    }

    /// Why a peer does not answer.
    #[cold]
    fn silence(&mut self, sender: &Sender, peer: Number) -> Refusal {
        Refusal::Silent(match self.qps.get(peer) {
            Some(found) if is_connected(found, sender) => Detail::NotReady,
            Some(_) => Detail::NotNamed,
            None => {
                if self.qps.is_stale(peer) {
                    self.core.bus.count(Counter::Stale);
                }
                Detail::NoPeer
            }
        })
    }

    /// Has the peer admit a message, in each turn of it. A receive that was taken for it in an
    /// earlier turn may be gone: then it begins again.
    #[inline(always)]
    fn deliver_to(&mut self, sender: &Sender, peer: Number, message: &mut Message) -> Answer<()> {
        let by = self.responder(sender, peer)?;
        if message.admitted {
            if !message.kind.receives || self.is_receiving(peer) {
                return Ok(());
            }
            message.restart();
        }
        let piece = message.piece();
        self.admit(by, &piece)?;
        if piece.kind.remote != 0 && piece.range.bytes != 0 {
            message.remote = Some(self.find(by, &piece)?);
        }
        message.admitted = true;
        Ok(())
    }

    /// Has the peer admit a message, and fail with this status.
    pub(crate) fn fail_at_peer(
        &mut self,
        sender: &Sender,
        peer: Number,
        message: &mut Message,
        status: Status,
    ) -> Refusal {
        let admitted = self.deliver_to(sender, peer, message);
        match admitted.and_then(|()| self.responder(sender, peer)) {
            Ok(by) => self.nak(by, Nak::RemoteOperation, status, Detail::Injected),
            Err(refusal) => refusal,
        }
    }

    /// Moves all of a message if it is mapped as one piece at both ends. Else moves nothing:
    /// false.
    #[inline(always)]
    fn move_at_once(&mut self, message: &Message) -> bool {
        let (Some(local), Some(remote)) = (message.local, message.remote) else {
            return false;
        };
        let (regions, bus) = (&self.regions, &mut self.core.bus);
        let bytes = u64::from(message.bytes);
        let copied = match message.wqe.opcode {
            opcode::READ => regions.copy(bus, remote, local, bytes),
            _ => regions.copy(bus, local, remote, bytes),
        };
        if copied.is_some() {
            bus.add(message.kind.counter, bytes);
        }
        copied.is_some()
    }

    /// [`loop_back`](Self::loop_back) for what has one step, a message that invalidates, or one that
    /// is not mapped as one piece at both ends, or is longer than what is left of the turn.
    #[cold]
    fn step_by_step(
        &mut self,
        sender: &Sender,
        peer: Number,
        mut message: Message,
        words: &[u64],
        budget: &mut u64,
    ) -> bool {
        let by = self.responder(sender, peer).map_err(Failure::Peer);
        let done = by.and_then(|by| self.steps(sender, by, &mut message, words, budget));
        let goes_on = match done {
            Ok(true) => self.finish(sender, peer, &message),
            Ok(false) => {
                self.pause(sender.qp, &message, words);
                false
            }
            Err(failure) => self.refuse(sender, words, message.past, failure),
        };
        goes_on && *budget != 0
    }

    /// Performs the steps of a message, as far as the turn goes: whether all are done.
    fn steps(
        &mut self,
        sender: &Sender,
        by: Responder,
        message: &mut Message,
        words: &[u64],
        budget: &mut u64,
    ) -> Result<bool, Failure> {
        if let Some(done) = self.single_step(sender, by, message, words) {
            *budget = budget.saturating_sub(u64::from(message.bytes));
            return done.map(|()| true);
        }
        while message.done < message.bytes {
            if *budget == 0 {
                return Ok(false);
            }
            let count = self.step(sender, by, message, words, *budget)?;
            *budget = budget.saturating_sub(u64::from(count));
        }
        if message.wqe.opcode == opcode::SEND_INV {
            self.invalidate(by, message.wqe.imm)?;
        }
        Ok(true)
    }

    /// Performs an operation of one step, which is not split and moves no bytes as messages do.
    fn single_step(
        &mut self,
        sender: &Sender,
        by: Responder,
        message: &Message,
        words: &[u64],
    ) -> Option<Result<(), Failure>> {
        let piece = message.piece();
        let answer = match message.wqe.opcode {
            opcode::COMPARE_SWAP | opcode::FETCH_ADD => {
                return Some(self.fetch_remote(sender, by, message, words));
            }
            opcode::ATOMIC_WRITE => {
                let value = words.get(SendWqe::WORDS).copied().unwrap_or(0);
                self.atomic_write(by, &piece, value)
            }
            opcode::FLUSH => self.flush_remote(by, &flush::decode(words)),
            _ => return None,
        };
        Some(answer.map_err(Failure::Peer))
    }

    /// Performs an atomic at the peer, and writes the old value into the sender's memory.
    fn fetch_remote(
        &mut self,
        sender: &Sender,
        by: Responder,
        message: &Message,
        words: &[u64],
    ) -> Result<(), Failure> {
        let old = self.atomic(by, &message.piece(), &operands(words))?;
        self.write_old(sender.pd, message, words, old)
            .map_err(Failure::memory)?;
        self.core.bus.count(message.kind.counter);
        Ok(())
    }

    /// Moves at most `most` bytes: how many.
    fn step(
        &mut self,
        sender: &Sender,
        by: Responder,
        message: &mut Message,
        words: &[u64],
        most: u64,
    ) -> Result<u32, Failure> {
        let left = u64::from(message.bytes.saturating_sub(message.done));
        let most = most.min(left).min(BOUNCE_BYTES as u64);
        let local = self.local_end(sender, message, words)?;
        let piece = message.piece();
        let (remote, far) = self.place(by, &piece, most)?;
        let near = match &local {
            End::Memory(_, bytes) => *bytes,
            End::Inline(_) => most,
        };
        let count = most.min(near).min(far);
        let (regions, bus) = (&mut self.regions, &mut self.core.bus);
        let bounce = self.bounce.get_mut(..count as usize);
        let bounce = bounce.ok_or(Failure::memory(Detail::Dma))?;
        let wrong = |_| Failure::memory(Detail::Dma);
        let moved = if message.wqe.opcode == opcode::READ {
            let read = regions.read(bus, remote, bounce);
            if let (Ok(()), End::Memory(place, _)) = (&read, local) {
                regions.write(bus, place, bounce).map_err(wrong)?;
            }
            read
        } else {
            match local {
                End::Memory(place, _) => regions.read(bus, place, bounce).map_err(wrong)?,
                End::Inline(from) => copy_inline(words, from, bounce),
            }
            regions.write(bus, remote, bounce)
        };
        moved.map_err(|_| self.nak_dma(by, piece))?;
        let count = count as u32;
        message.done = message.done.wrapping_add(count);
        message.cursor.done = message.cursor.done.wrapping_add(count);
        if piece.kind.remote == 0 {
            self.filled(by.qp, count);
        }
        self.core.bus.add(message.kind.counter, u64::from(count));
        Ok(count)
    }
}
