// SPDX-License-Identifier: GPL-2.0
//! Work requests: those of a connection; [`datagram`](crate::datagram) delivers the others.
//!
//! A request is checked in this order: the WQE by itself, the memory that it sends, the peer, the
//! peer's receive or memory. Then its bytes move, then the peer's completion is written, then the
//! sender's. A request that is refused stays in the SQ: it is tried again as if it had just been
//! posted.
//!
//! | refused because of | sender | peer |
//! |---|---|---|
//! | the WQE | local QP operation, local length | - |
//! | the sender's memory, if it is sent | local protection | - |
//! | a peer gone, not ready, or connected to another | tries again, then retry exceeded | - |
//! | no receive | tries again, then RNR retry exceeded | - |
//! | a receive too short | remote invalid request | local length |
//! | an invalid receive | remote operation | local QP operation |
//! | the receive's memory | remote operation | local protection |
//! | an operation that the peer does not allow | remote invalid request | local access |
//! | the alignment of an atomic, the rights of the peer for a FLUSH | remote invalid request | local access |
//! | the peer's region, window or FRMR | remote access | local access |
//! | the sender's memory, if the peer's answer goes there | local protection | - |
//! | the peer's window or FRMR to invalidate | tries again, then retry exceeded | local access |
//! | a window to bind, an FRMR to register, one of them to invalidate | window bind | - |
//!
//! UC has the faults of the sender; else [`unreliable`](crate::unreliable) drops the message.
//!
//! The status is that of the work request's completion. The queue pair goes to the error state.

use crate::check::bind;
use crate::check::decode;
use crate::check::RC;
use crate::check::UD;
use crate::datapath::DataPath;
use crate::fault_point::Verdict;
use crate::frmr;
use crate::host::Host;
use crate::message::is_misaligned;
use crate::message::last_move;
use crate::message::Kind;
use crate::message::Message;
use crate::message::Sender;
use crate::qp::past;
use crate::qp::NoReceive;
use crate::qp::QueuePair;
use crate::qp::Receive;
use crate::subject::Subject;
use crate::timer;
use crate::transfer::statuses;
use crate::transfer::Fault;
use crate::tries::Step;
use crate::tries::NO_LIMIT;
use qpair_abi::command::qp_state;
use qpair_abi::command::service;
use qpair_abi::counters::Counter;
use qpair_abi::entry::frmr_of;
use qpair_abi::entry::opcode;
use qpair_abi::entry::send_flags;
use qpair_abi::entry::SendWqe;
use qpair_abi::entry::BLOCK_WORDS;
use qpair_abi::entry::MAX_BLOCKS;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_queue::index::Index;

/// Why a message is refused.
enum Refusal {
    /// The sender's own fault.
    Sender(Status, Detail),
    /// The peer is gone, not ready, or connected to another queue pair.
    Retry(Detail),
    /// The peer has no receive.
    NotReady,
    /// The fault is at the peer's end.
    Peer {
        sender: Status,
        peer: Status,
        detail: Detail,
    },
}

impl Refusal {
    /// The refusal of a fault in a step.
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

    /// The refusal of a range of the peer. The peer checks the alignment before it looks up the
    /// key.
    // By value: a reference would keep the caller's message in memory.
    #[cold]
    fn of_range(wqe: SendWqe, detail: Detail) -> Self {
        let first = is_misaligned(&wqe);
        let detail = if first { Detail::Alignment } else { detail };
        Self::of(&Fault::Remote(detail))
    }
}

impl<H: Host> DataPath<H> {
    /// A turn of at most `left` work requests and `budget` bytes, from which it subtracts what it
    /// uses.
    pub(crate) fn send(&mut self, qp: Number, left: &mut u32, budget: &mut u64) {
        let Some(found) = self.qps.get(qp) else {
            return;
        };
        let sender = Sender {
            qp,
            pd: found.pd,
            peer: found.path.here().unwrap_or_default(),
            service: found.service,
            last: last_move(found.service),
        };
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
                self.core.bus.count(Counter::SendWqes);
                let mut message = Message::new(wqe, past);
                let goes_on = match self.check::<HEAD>(sender, &mut message, whole) {
                    Ok(()) if self.core.faults.are_set() => {
                        self.perform_with_faults::<HEAD>(sender, message, whole, budget)
                    }
                    Ok(()) if HEAD == UD => self.send_datagram(sender, message, whole, budget),
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
        if let Err(refusal) = self.admit(sender, &mut message) {
            return self.refuse(sender, words, message.past, refusal);
        }
        let left = budget.checked_sub(u64::from(message.bytes));
        let (Some(left), true) = (left, left.is_some() && self.move_at_once(&message)) else {
            return self.step_by_step(sender, message, words, budget);
        };
        *budget = left;
        self.finish(sender, &message) && left != 0
    }

    /// Performs a request that needs no peer: whether the turn goes on after it.
    // By value: a reference would keep the caller's message in memory.
    #[inline(never)]
    fn perform_local(&mut self, sender: &Sender, message: Message, words: &[u64]) -> bool {
        let (by, wqe) = ((sender.qp, sender.pd), &message.wqe);
        let regions = &mut self.regions;
        let (done, counter) = match wqe.opcode {
            opcode::BIND => (self.windows.bind(regions, by, &bind(words)), None),
            opcode::LOCAL_INV => {
                let done = match frmr_of(wqe.rkey) {
                    Some(_) => regions.frmrs.invalidate(sender.pd, wqe.rkey),
                    None => self.windows.invalidate(regions, by, wqe.rkey),
                };
                (done, Some(Counter::Invalidations))
            }
            opcode::REG_MR => {
                let wqe = frmr::decode(words);
                let done = regions.frmrs.register(&self.core.config, sender.pd, &wqe);
                (done, Some(Counter::Registrations))
            }
            _ => (Ok(()), None),
        };
        match done {
            Ok(()) => {
                if let Some(counter) = counter {
                    self.core.bus.count(counter);
                }
                self.complete_send(sender.qp, wqe, message.past, 0, Ok(()))
            }
            Err(detail) => {
                let refusal = Refusal::Sender(Status::WindowBind, detail);
                self.refuse(sender, words, message.past, refusal)
            }
        }
    }

    /// Invalidates the peer's window or FRMR that a message names. If it cannot be invalidated, the
    /// peer fails, and does not answer.
    fn invalidate_at_peer(&mut self, sender: &Sender, wqe: &SendWqe) -> Result<(), Refusal> {
        let no_peer = Refusal::Retry(Detail::NoPeer);
        let peer = self.qps.get(sender.peer).ok_or(no_peer)?;
        let (pd, regions) = (peer.pd, &mut self.regions);
        let done = match frmr_of(wqe.imm) {
            Some(_) => regions.frmrs.invalidate_by_peer(pd, wqe.imm),
            None => (self.windows).invalidate(regions, (sender.peer, pd), wqe.imm),
        };
        let Err(detail) = done else {
            self.core.bus.count(Counter::Invalidations);
            return Ok(());
        };
        self.count_stale(detail, wqe);
        self.fail_receive(sender.peer, Status::LocalAccess, detail);
        Err(Refusal::Retry(Detail::NotReady))
    }

    /// [`perform`](Self::perform) for what has one step, a message that invalidates, or one that is
    /// not mapped as one piece at both ends, or is longer than what is left of the turn.
    #[cold]
    fn step_by_step(
        &mut self,
        sender: &Sender,
        mut message: Message,
        words: &[u64],
        budget: &mut u64,
    ) -> bool {
        if let Some(done) = self.single_step(sender, &message, words) {
            *budget = budget.saturating_sub(u64::from(message.bytes));
            return match done {
                Ok(()) => self.finish(sender, &message) && *budget != 0,
                Err(fault) => self.refuse(sender, words, message.past, Refusal::of(&fault)),
            };
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
                    return self.refuse(sender, words, message.past, refusal) && *budget != 0;
                }
            }
        }
        if message.wqe.opcode == opcode::SEND_INV {
            if let Err(refusal) = self.invalidate_at_peer(sender, &message.wqe) {
                // It may be its own peer: then its request is flushed.
                return self.may_send(sender.qp)
                    && self.refuse(sender, words, message.past, refusal);
            }
        }
        self.finish(sender, &message) && *budget != 0
    }

    /// Performs an operation of one step, which is not split and moves no bytes as messages do.
    fn single_step(
        &mut self,
        sender: &Sender,
        message: &Message,
        words: &[u64],
    ) -> Option<Result<(), Fault>> {
        match message.wqe.opcode {
            opcode::COMPARE_SWAP | opcode::FETCH_ADD => Some(self.atomic(sender, message, words)),
            opcode::ATOMIC_WRITE => Some(self.atomic_write(sender, message, words)),
            opcode::FLUSH => Some(self.flush_remote(sender, words)),
            _ => None,
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
                let refusal = Refusal::Sender(status, detail);
                self.refuse(sender, words, message.past, refusal)
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
        let refusal = match self.fault_point(sender, &message) {
            Verdict::Perform if HEAD == UD => {
                return self.send_datagram(sender, message, words, budget)
            }
            Verdict::Perform => return self.perform(sender, message, words, budget),
            Verdict::PerformUnanswered => {
                // It stays in the SQ, without a completion.
                let found = self.qps.get(sender.qp);
                message.past = found.map_or(past, |found| found.sq.window.head());
                message.wqe.flags &= !send_flags::SIGNALED;
                self.perform(sender, message, words, budget);
                return false;
            }
            Verdict::Wait => return false,
            Verdict::Unanswered => Refusal::Retry(Detail::Injected),
            Verdict::Fail(status) => Refusal::Sender(status, Detail::Injected),
            Verdict::FailReceive(peer) => match self.admit(sender, &mut message) {
                Ok(()) => Refusal::Peer {
                    sender: Status::RemoteOperation,
                    peer,
                    detail: Detail::Injected,
                },
                Err(refusal) => refusal,
            },
        };
        self.refuse(sender, words, past, refusal)
    }

    /// The peer, if it is connected to the sender and ready.
    #[inline(always)]
    fn peer(&self, sender: &Sender) -> Result<&QueuePair<H::Map>, Detail> {
        let found = self.qps.get(sender.peer).ok_or(Detail::NoPeer)?;
        if sender.peer == Number::ADMIN {
            return Err(Detail::NoPeer);
        }
        if !found.path.leads_to(sender.qp) {
            return Err(Detail::NotNamed);
        }
        if found.service != sender.service {
            return Err(Detail::NotNamed);
        }
        match found.state {
            qp_state::RTR | qp_state::RTS | qp_state::SQD => Ok(found),
            _ => Err(Detail::NotReady),
        }
    }

    /// Checks the peer's end, in each turn of a message. A receive that was taken for the message
    /// in an earlier turn is still there.
    #[inline(always)]
    fn admit(&mut self, sender: &Sender, message: &mut Message) -> Result<(), Refusal> {
        let peer = self.peer(sender);
        let peer = peer.map(|peer| (peer.pd, peer.access, peer.receiving.is_some()));
        let (pd, allowed, filling) = match peer {
            Ok(peer) => peer,
            // The number outlived its object. The refusal counts it.
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
            if allowed & right == 0 {
                return Err(Refusal::Peer {
                    sender: Status::RemoteInvalidRequest,
                    peer: Status::LocalAccess,
                    detail: Detail::Rights,
                });
            }
            let range = message.remote_range();
            if range.bytes != 0 {
                let found = self.find_remote(sender.peer, pd, right, range);
                let wqe = message.wqe;
                let found = found.map_err(|detail| Refusal::of_range(wqe, detail))?;
                message.remote = Some(found);
            }
        }
        message.admitted = true;
        Ok(())
    }

    /// Takes the peer's next receive, and checks that the message fits into it.
    fn admit_to_receive(&mut self, peer: Number, kind: &Kind, bytes: u32) -> Result<(), Refusal> {
        let broken = |detail| Refusal::Peer {
            sender: Status::RemoteOperation,
            peer: Status::LocalQpOperation,
            detail,
        };
        self.take_receive(peer, 0).map_err(|none| match none {
            NoReceive::Empty | NoReceive::Short => Refusal::NotReady,
            NoReceive::Dma => broken(Detail::Dma),
            NoReceive::Bad(detail) => broken(detail),
        })?;
        let found = self.qps.get(peer);
        let receive = found.and_then(|found| found.receiving.as_ref());
        let room = receive.map_or(0, Receive::room);
        if kind.remote == 0 && room < u64::from(bytes) {
            return Err(Refusal::Peer {
                sender: Status::RemoteInvalidRequest,
                peer: Status::LocalLength,
                detail: Detail::ShortReceive,
            });
        }
        Ok(())
    }

    /// Ends a message: completes the peer's receive, then the work request. False if the turn must
    /// end.
    #[inline(always)]
    fn finish(&mut self, sender: &Sender, message: &Message) -> bool {
        let wqe = &message.wqe;
        let goes_on =
            !message.kind.receives || self.complete_receive(sender.peer, *wqe, message.bytes);
        let bytes = match wqe.opcode {
            opcode::READ..=opcode::FETCH_ADD => message.bytes,
            _ => 0,
        };
        self.complete_send(sender.qp, wqe, message.past, bytes, Ok(())) && goes_on
    }

    /// Refuses a message. Returns whether the turn goes on: only if the message was dropped.
    #[cold]
    fn refuse(&mut self, sender: &Sender, words: &[u64], past: Index, refusal: Refusal) -> bool {
        let (qp, peer, wqe) = (sender.qp, sender.peer, decode(words));
        let Some(found) = self.qps.get_mut(qp) else {
            return false;
        };
        // A request whose answer is dropped has the index of the head.
        let past = found.hold.map_or(past, |hold| hold.past);
        let unreliable = sender.service == service::UC;
        let drops = unreliable && !matches!(refusal, Refusal::Sender(..));
        let (timeout, own_timer) = (found.timeout, found.min_rnr_timer);
        let (status, detail) = match refusal {
            Refusal::Sender(status, detail) => (status, detail),
            Refusal::Retry(detail) => {
                if self.qps.is_stale(peer) {
                    self.core.bus.count(Counter::Stale);
                }
                let wait = timer::answer(&self.core.config, timeout);
                let step = Step::Answer;
                if self.qps.retry_later(&mut self.core, qp, step, wait) {
                    return false;
                }
                (Status::RetryExceeded, detail)
            }
            Refusal::NotReady => {
                // Without a limit a receive, or the end of the peer, wakes it.
                let limited = found.rnr_retry != NO_LIMIT;
                let of_peer = self.qps.get(peer).map(|peer| peer.min_rnr_timer);
                let code = of_peer.unwrap_or(own_timer);
                let wait = limited.then(|| timer::receive(&self.core.config, code));
                let step = Step::Receive;
                if self.qps.retry_later(&mut self.core, qp, step, wait) {
                    return false;
                }
                (Status::RnrRetryExceeded, Detail::None)
            }
            Refusal::Peer {
                sender,
                peer: status,
                detail,
            } => {
                let of_receive =
                    matches!(status, Status::LocalQpOperation | Status::LocalProtection);
                if !unreliable || of_receive {
                    self.fail_peer(peer, (status, detail), at_peer(peer, sender));
                }
                (sender, detail)
            }
        };
        self.count_stale(detail, &wqe);
        if drops {
            return self.drop_message(qp, &wqe, past);
        }
        self.complete_send(qp, &wqe, past, 0, Err((status, detail)));
        self.stop_sender(qp);
        false
    }
}

/// The event of a peer that no receive reports, by the status of the sender.
fn at_peer(peer: Number, sender: Status) -> Subject {
    match sender {
        Status::RemoteAccess => Subject::Access(peer),
        Status::RemoteInvalidRequest => Subject::Request(peer),
        _ => Subject::Fatal(peer),
    }
}
