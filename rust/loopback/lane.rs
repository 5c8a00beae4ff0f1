// SPDX-License-Identifier: GPL-2.0

//! The lanes of a group: what the poll does with completions.
//!
//! Operation n of a lane uses slot n modulo the depth of the source and of the target, filled with
//! a pattern unique to this operation. A slot is free when the slot of its work request in the SQ
//! is: there are as many slots as the SQ has blocks.

use super::{
    plan::{
        Op,
        Plan, //
    },
    Progress, //
};
use crate::{
    abi::{
        entry::{
            opcode,
            SendWqe,
            Sge, //
        },
        status::Status,
        Number, //
    },
    hw::{
        batch::Done,
        cq::{
            CqClient,
            Queues, //
        },
        function::Doorbells,
        qp::{
            Sends,
            Tag, //
        },
        ring::Ring, //
    },
    queue::{
        account::{
            Account,
            Bogus, //
        },
        credit::{
            RemoteData,
            RingId, //
        },
        index::Index,
        storage::Storage, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Full,
            Relaxed, //
        },
        Arc, //
    },
};

/// One queue pair's part in a run.
pub(super) struct Lane {
    key: Number,
    memory: Ring,
    /// The index in the run.
    index: u64,
    /// Operations posted.
    posted: u64,
    /// Operations completed.
    done: u64,
    /// Receives completed.
    received: u64,
    /// Receives of the peer.
    receives: Account<RemoteData>,
    failed: bool,
    /// It has finished and was counted.
    over: bool,
    /// It is in `pending`.
    is_pending: bool,
}

impl Lane {
    /// Number `index` of the run, with `memory` that has `key`.
    pub(super) fn new(key: Number, memory: Ring, index: usize) -> Self {
        Self {
            key,
            memory,
            index: index as u64,
            posted: 0,
            done: 0,
            received: 0,
            receives: Self::receives(index as u64, 0),
            failed: false,
            over: false,
            is_pending: false,
        }
    }

    fn sge(&self, offset: u64, bytes: u32) -> Sge {
        Sge {
            addr: offset,
            bytes,
            lkey: self.key.raw(),
        }
    }

    /// The account of `count` receives of the peer of lane `index`. No slot leaves it, so the index
    /// names it.
    fn receives(index: u64, count: u32) -> Account<RemoteData> {
        // CAST: There are fewer lanes.
        Account::new(RingId::new(index as u32, 0), count)
    }
}

/// A group of lanes: the client of a CQ. Lane i is the queue pair at place i, and its peer is
/// [in the group](Plan::peer).
pub(super) struct Lanes {
    plan: Plan,
    lanes: KVec<Lane>,
    progress: Arc<Progress>,
    /// Lanes that are not done.
    left: usize,
    /// Places of lanes that may have something to post, each once. There is room for all.
    pending: KVec<u16>,
    /// Operations done in this turn.
    sent: u64,
    /// The end of the group was reported.
    is_reported: bool,
}

/// Word `word` of operation `n` of lane `lane`.
#[inline]
fn pattern(lane: u64, n: u64, word: u64) -> u64 {
    // Odd constants, so that each of the three affects the whole word.
    (lane << 48 ^ n)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(word.wrapping_mul(0xd134_2543_de82_ef95))
}

impl Lanes {
    /// The lanes of a group.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(plan: Plan, lanes: KVec<Lane>, progress: Arc<Progress>) -> Result<Self> {
        Ok(Self {
            left: lanes.len(),
            pending: KVec::with_capacity(lanes.len(), GFP_KERNEL)?,
            sent: 0,
            is_reported: false,
            plan,
            lanes,
            progress,
        })
    }

    /// First word of the source slot of operation `n`.
    #[inline]
    fn source(&self, n: u64) -> usize {
        // CAST: The low bits select the slot.
        let slot = self.plan.depth.position(Index::new(n as u32));
        slot as usize * self.plan.slot_words()
    }

    /// First word of its target slot.
    #[inline]
    fn target(&self, n: u64) -> usize {
        self.source(n) + self.plan.slot_words() * self.plan.depth.entries() as usize
    }

    /// The bits of word `word` that an operation moves.
    #[inline]
    fn moved(&self, word: usize) -> u64 {
        match (self.plan.size as usize).saturating_sub(word * 8) {
            left @ 1..8 => u64::MAX >> (64 - left * 8),
            0 => 0,
            _ => u64::MAX,
        }
    }

    /// Fills the source of operation `n` of `lane`, in the memory of the lane at `place`.
    fn fill(&self, place: usize, lane: u64, n: u64) {
        if !self.plan.verify {
            return;
        }
        let base = self.source(n);
        if let Some(holder) = self.lanes.get(place) {
            for word in 0..self.plan.slot_words() {
                holder
                    .memory
                    .store(base + word, pattern(lane, n, word as u64));
            }
        }
    }

    /// Verifies the data that operation `n` of `lane` has moved to the lane at `place`.
    fn check(&self, place: usize, lane: u64, n: u64) {
        if !self.plan.verify {
            return;
        }
        let base = self.target(n);
        let Some(holder) = self.lanes.get(place) else {
            return;
        };
        let right = (0..self.plan.slot_words()).all(|word| {
            let mask = self.moved(word);
            holder.memory.load(base + word) & mask == pattern(lane, n, word as u64) & mask
        });
        if !right {
            self.progress.mismatches.fetch_add(1, Relaxed);
        }
    }

    /// Posts receive `n` of the lane at `place`. Returns whether it was posted: there is room for
    /// the first ones, and for one in the place of each that completed.
    fn receive(&self, queues: &mut Queues, place: usize, n: u64) -> bool {
        let offset = self.target(n) as u64 * 8;
        let sge = self
            .lanes
            .get(place)
            .map(|lane| lane.sge(offset, self.plan.size));
        sge.is_some_and(|sge| queues.post_recv(place, Tag::new(n), &[sge]).is_ok())
    }

    /// Marks the lane at `place` for posting at the end of the turn.
    #[inline]
    fn mark_pending(&mut self, place: usize) {
        if let Some(lane) = self.lanes.get_mut(place) {
            if !lane.is_pending {
                lane.is_pending = true;
                // CAST: There are fewer places. There is room: each is there once.
                let _: Result<_, _> = self.pending.push_within_capacity(place as u16);
            }
        }
    }

    /// Posts what can be posted of the lane at `place`.
    fn post_ready(&mut self, queues: &mut Queues, place: usize) {
        let free = queues.free(place);
        let Self {
            plan,
            lanes,
            progress,
            ..
        } = self;
        let peer = plan.peer(place);
        let Some(rkey) = lanes.get(peer).map(|peer| peer.key.raw()) else {
            return;
        };
        let Some(lane) = lanes.get_mut(place) else {
            return;
        };
        lane.is_pending = false;
        if lane.failed || progress.cancelled.load(Acquire) {
            return;
        }
        let (first, index, key) = (lane.posted, lane.index, lane.key);
        let ready = plan.count.saturating_sub(first).min(free.into());
        let ready = match plan.op {
            Op::Send => ready.min(lane.receives.free().into()),
            Op::Write | Op::Read => ready,
        };
        if ready == 0 {
            return;
        }
        // The lane whose memory is the source.
        let filled = match plan.op {
            Op::Send | Op::Write => place,
            Op::Read => peer,
        };
        if self.plan.verify {
            for n in first..first.saturating_add(ready) {
                self.fill(filled, index, n);
            }
        }
        let posted = match queues.sends(place) {
            Ok(mut sends) => self.post(&mut sends, first, ready, rkey, key),
            Err(_) => 0,
        };
        if let Some(lane) = self.lanes.get_mut(place) {
            lane.posted = first.saturating_add(posted);
            if self.plan.op == Op::Send {
                // CAST: Not more than were free.
                lane.receives.pay(posted as u32);
            }
        }
    }

    /// Posts `count` operations from `first` on, of a lane with `key` to a peer with `rkey`.
    /// Returns how many were posted.
    #[inline]
    fn post(&self, sends: &mut Sends<'_>, first: u64, count: u64, rkey: u32, key: Number) -> u64 {
        // Local copies, so that stores to the ring do not force reloads.
        let Plan {
            size, op, depth, ..
        } = self.plan;
        let (signal, all) = (u64::from(self.plan.signal), self.plan.count);
        let slot = self.plan.slot_words() as u64 * 8;
        let targets = slot * u64::from(depth.entries());
        let mut posted = 0;
        while posted < count {
            let n = first.wrapping_add(posted);
            // CAST: The low bits select the slot.
            let source = u64::from(depth.position(Index::new(n as u32))) * slot;
            let target = source + targets;
            // The remote and the local address.
            let (opcode, remote_addr, rkey, local) = match op {
                Op::Send => (opcode::SEND, 0, 0, source),
                Op::Write => (opcode::WRITE, target, rkey, source),
                Op::Read => (opcode::READ, source, rkey, target),
            };
            let request = SendWqe {
                opcode,
                remote_addr,
                rkey,
                ..SendWqe::default()
            };
            let sge = Sge {
                addr: local,
                bytes: size,
                lkey: key.raw(),
            };
            posted += 1;
            let past = n.wrapping_add(1);
            let signal = signal == 1 || past.checked_rem(signal) == Some(0) || past == all;
            // Cannot fail: there was room, and only the poll posts.
            if sends.post(Tag::new(n), request, &[sge], signal).is_err() {
                return posted - 1;
            }
        }
        posted
    }

    /// Counts the lane at `place` if it has finished. The group is done when all lanes are, or one
    /// has failed, since its peer may then never finish.
    #[cold]
    fn settle(&mut self, place: usize) {
        let Some(lane) = self.lanes.get_mut(place) else {
            return;
        };
        let receives = match self.plan.op {
            Op::Send => self.plan.count,
            Op::Write | Op::Read => 0,
        };
        let done = lane.done >= self.plan.count && lane.received >= receives;
        if lane.over || !(done || lane.failed) {
            return;
        }
        lane.over = true;
        self.left = if lane.failed {
            0
        } else {
            self.left.saturating_sub(1)
        };
    }

    #[cold]
    fn failed(&mut self, done: &Done) {
        if let Some(lane) = self.lanes.get_mut(done.place()) {
            lane.failed = true;
        }
        let first = u32::from(done.cqe().status) | u32::from(done.cqe().vendor) << 8;
        // Only the first: those after it are flushes.
        let _: Result<u32, u32> = self.progress.first.cmpxchg(0, first, Full);
        self.progress.errors.fetch_add(1, Relaxed);
        self.settle(done.place());
    }

    fn received(&mut self, queues: &mut Queues, done: &Done) {
        let Some(lane) = self.lanes.get_mut(done.place()) else {
            return;
        };
        let n = lane.received;
        lane.received += 1;
        self.progress.receives.fetch_add(1, Relaxed);
        if done.cqe().bytes != self.plan.size || done.tag().get() != n {
            self.progress.mismatches.fetch_add(1, Relaxed);
        }
        let sender = self
            .lanes
            .get(self.plan.peer(done.place()))
            .map(|peer| peer.index);
        if let Some(sender) = sender {
            self.check(done.place(), sender, n);
        }
        if n + 1 >= self.plan.count {
            self.settle(done.place());
        }
        let next = n + u64::from(self.plan.depth.entries());
        if next < self.plan.count && self.receive(queues, done.place(), next) {
            let peer = self.plan.peer(done.place());
            let repaid = self.lanes.get_mut(peer).map(|peer| peer.receives.repay(1));
            if let Some(Err(Bogus)) = repaid {
                self.progress.mismatches.fetch_add(1, Relaxed);
            }
            self.mark_pending(peer);
        }
    }

    /// Handles the completions of sends of one lane at the start of `done`. Returns their number.
    #[inline]
    fn sent(&mut self, place: usize, row: &[Done]) -> usize {
        let Some(lane) = self.lanes.get(place) else {
            return 1;
        };
        let (index, first) = (lane.index, lane.done);
        let (mut past, mut count, mut mismatches) = (first, 0, 0);
        for done in row {
            let after = past.wrapping_add(done.covers.into());
            let tag = Tag::new(after.wrapping_sub(1));
            if !done.is_sent() {
                break;
            }
            if !done.is_request(place, tag) {
                if done.place() != place {
                    break;
                }
                mismatches += 1;
            }
            past = after;
            count += 1;
        }
        if let Some(lane) = self.lanes.get_mut(place) {
            lane.done = past;
        }
        self.sent = self.sent.wrapping_add(past.wrapping_sub(first));
        self.mark_pending(place);
        if mismatches != 0 {
            self.progress.mismatches.fetch_add(mismatches, Relaxed);
        }
        let holder = match self.plan.op {
            // Verified when the peer's receive completes.
            Op::Send => None,
            Op::Write => Some(self.plan.peer(place)),
            Op::Read => Some(place),
        };
        if let (true, Some(holder)) = (self.plan.verify, holder) {
            for n in first..past {
                self.check(holder, index, n);
            }
        }
        if past >= self.plan.count {
            self.settle(place);
        }
        count
    }
}

impl CqClient for Lanes {
    fn begin(&mut self, queues: &mut Queues, doorbells: &Doorbells<'_>) {
        if self.plan.op == Op::Send {
            let receives = self.plan.count.min(self.plan.depth.entries().into());
            for place in 0..self.lanes.len() {
                let posted = (0..receives).take_while(|n| self.receive(queues, place, *n));
                let posted = posted.count() as u32;
                if let Some(peer) = self.lanes.get_mut(self.plan.peer(place)) {
                    peer.receives = Lane::receives(peer.index, posted);
                }
            }
            queues.ring(doorbells);
        }
        for place in 0..self.lanes.len() {
            self.post_ready(queues, place);
        }
    }

    fn completed(&mut self, queues: &mut Queues, done: &[Done]) {
        let mut rest = done;
        while let Some(done) = rest.first() {
            let mut taken = 1;
            if done.cqe().status != Status::Success.code() {
                self.failed(done);
            } else if done.is_recv() {
                self.received(queues, done);
            } else {
                taken = self.sent(done.place(), rest);
            }
            rest = rest.get(taken..).unwrap_or_default();
        }
        while let Some(place) = self.pending.pop() {
            self.post_ready(queues, place.into());
        }
        // Before the end is reported.
        self.progress.sends.fetch_add(self.sent, Relaxed);
        self.sent = 0;
        if self.left == 0 && !self.is_reported {
            self.is_reported = true;
            if self.progress.left.fetch_sub(1, Full) == 1 {
                self.progress.over.complete();
            }
        }
    }
}
