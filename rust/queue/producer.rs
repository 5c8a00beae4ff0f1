// SPDX-License-Identifier: GPL-2.0
//! The software side of a ring that software writes: an SQ or an RQ.
//!
//! A slot is a 64-byte block of an SQ, or a work request of an RQ (of one stride).
//! The slots of a ring are in one of three states, and each state is a bundle:
//!
//! ```text
//!           post                  complete                    reclaim
//!   free ---------> in flight ---------------> covered ---------------------> free
//!          entry written           a CQE's index           the CQ head past
//!                                  covers it               that CQE is published
//! ```
//!
//! - A CQE carries the consumer index of its queue *past* the work request that it reports, so it covers
//!   that one and all before it, unsignalled ones too. There is no memory for a work request here.
//! - An index that covers nothing in flight (stale, doubled, garbage), or that comes
//!   from a CQ that is not this queue's, gives nothing and is counted.
//! - A post that would leave the queue without a way to get slots back is signalled, wanted or not: the run of unsignalled
//!   blocks at the tail never grows so long that the largest work request would not fit beside it.
//! - Posting writes memory only. One doorbell hands over a whole batch.

use super::consumer::BadRing;
use super::consumer::Published;
use super::consumer::Seen;
use super::credit::Cq;
use super::credit::Imbalance;
use super::credit::Kind;
use super::credit::Pool;
use super::credit::RingId;
use super::credit::Rq;
use super::credit::Slots;
use super::credit::Sq;
use super::index::Depth;
use super::index::Index;
use super::mutant::mutant;
use super::storage::Storage;
use crate::abi::entry::BLOCK_WORDS;
use crate::abi::entry::MAX_BLOCKS;
use crate::abi::entry::MAX_STRIDE_SHIFT;

/// The producer of a send queue.
pub type SqProducer<S> = Producer<S, Sq>;
/// The producer of a receive queue.
pub type RqProducer<S> = Producer<S, Rq>;

/// Why a post was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Not enough free slots now.
    Full,
    /// It would never fit: no blocks, more than a work request may have, or more than there are slots.
    TooLarge,
}

/// A completion that gives nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    /// Its index covers nothing that is in flight.
    Index,
    /// It came from a CQ that is not this queue's.
    Cq,
}

/// The software side of a ring of work requests.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub struct Producer<S: Storage, K: Kind> {
    storage: S,
    depth: Depth,
    /// Base-two logarithm of the 64-byte blocks of a slot; 0 but for RQs.
    stride: u8,
    /// Most slots that a work request takes.
    largest: u32,
    /// The CQ that its completions come from.
    cq: RingId,
    /// Where the next work request goes.
    tail: Index,
    /// What the device has been told.
    handed: Index,
    /// Past what completions have covered.
    done: Index,
    /// Slots at the tail behind which no signalled work request stands.
    silent: u32,
    pool: Pool<K>,
    flight: Slots<K>,
    covered: Slots<K>,
    /// Past the CQE that covered last.
    covered_at: Index,
    stale: u32,
}

impl<S: Storage> Producer<S, Sq> {
    /// Makes a send queue of `capacity` blocks, at most the depth, whose completions come from `cq`.
    pub fn new_sq(
        ring: RingId,
        cq: RingId,
        storage: S,
        depth: Depth,
        capacity: u32,
    ) -> Result<Self, BadRing> {
        Self::starting_at(ring, cq, storage, depth, 0, capacity, Index::ZERO)
    }
}

impl<S: Storage> Producer<S, Rq> {
    /// Makes a receive queue of `capacity` work requests of `64 << stride` bytes, at most
    /// the depth, whose completions come from `cq`.
    pub fn new_rq(
        ring: RingId,
        cq: RingId,
        storage: S,
        depth: Depth,
        stride: u8,
        capacity: u32,
    ) -> Result<Self, BadRing> {
        Self::starting_at(ring, cq, storage, depth, stride, capacity, Index::ZERO)
    }
}

impl<S: Storage, K: Kind> Producer<S, K> {
    /// Either, for tests of the wrap: the ring stands at `first`.
    pub fn starting_at(
        ring: RingId,
        cq: RingId,
        storage: S,
        depth: Depth,
        stride: u8,
        capacity: u32,
        first: Index,
    ) -> Result<Self, BadRing> {
        if stride > MAX_STRIDE_SHIFT || capacity > depth.entries() || capacity == 0 {
            return Err(BadRing);
        }
        let words = (depth.entries() as usize)
            .checked_mul(BLOCK_WORDS << stride)
            .ok_or(BadRing)?;
        if words > storage.words() {
            return Err(BadRing);
        }
        Ok(Self {
            storage,
            depth,
            stride,
            largest: capacity.min(MAX_BLOCKS as u32),
            cq,
            tail: first,
            handed: first,
            done: first,
            silent: 0,
            pool: Pool::mint(ring, capacity),
            flight: Slots::none(ring),
            covered: Slots::none(ring),
            covered_at: Index::ZERO,
            stale: 0,
        })
    }

    /// Places in the ring.
    #[inline(always)]
    pub const fn depth(&self) -> Depth {
        self.depth
    }

    /// Slots that a post may take now.
    #[inline(always)]
    pub const fn free(&self) -> u32 {
        self.pool.free()
    }

    /// Slots that are posted and not covered by a completion.
    #[inline(always)]
    pub const fn in_flight(&self) -> u32 {
        self.flight.count()
    }

    /// Slots that are covered, and wait for the CQ head to be published.
    #[inline(always)]
    pub const fn covered(&self) -> u32 {
        self.covered.count()
    }

    /// Slots in all.
    #[inline(always)]
    pub const fn capacity(&self) -> u32 {
        self.pool.minted()
    }

    /// Completions that gave nothing.
    #[inline]
    pub const fn stale(&self) -> u32 {
        self.stale
    }

    /// Where the next work request goes.
    #[inline(always)]
    pub const fn tail(&self) -> Index {
        self.tail
    }

    /// The ring's memory.
    #[inline(always)]
    pub const fn storage(&self) -> &S {
        &self.storage
    }

    /// Makes room for a work request of `slots` slots that the caller wants signalled
    /// or not. Nothing is taken until [`Room::post`].
    #[inline(always)]
    pub fn room(&mut self, slots: u32, signal: bool) -> Result<Room<'_, S, K>, Refused> {
        if slots > self.pool.free() && !mutant!(CapacityPlusOne) {
            return Err(if slots > self.largest {
                Refused::TooLarge
            } else {
                Refused::Full
            });
        }
        // There are as many, so it is the largest of all that counts here, not this queue's own.
        if slots == 0 || slots > MAX_BLOCKS as u32 {
            return Err(Refused::TooLarge);
        }
        let silent = self.silent.wrapping_add(slots);
        let beside = self.pool.minted().saturating_sub(silent);
        let signal = signal || (beside < self.largest && !mutant!(NeverSignal));
        Ok(Room {
            producer: self,
            slots,
            silent: if signal { 0 } else { silent },
        })
    }

    /// Hands over what was posted since the last time: `doorbell` writes the tail to
    /// the device. Once for a batch, and not at all if there is nothing new.
    #[inline(always)]
    pub fn ring(&mut self, doorbell: impl FnOnce(Index)) -> bool {
        if self.handed == self.tail && !mutant!(RingWithoutNews) {
            return false;
        }
        self.storage.before_tail();
        doorbell(self.tail);
        self.handed = self.tail;
        true
    }

    /// A CQE of this queue was read: how many slots it covers. They are not free yet.
    #[inline(always)]
    pub fn complete(&mut self, index: Index, seen: Seen<Cq>) -> Result<u32, Stale> {
        if seen.ring() != self.cq && !mutant!(ForeignCq) {
            self.stale = self.stale.wrapping_add(1);
            return Err(Stale::Cq);
        }
        let mut covers = index.since(self.done);
        if mutant!(StaleIndex) {
            covers = covers.min(self.handed.since(self.done));
        }
        // Nothing, or more than the device was ever given.
        if covers.wrapping_sub(1) >= self.handed.since(self.done) {
            self.stale = self.stale.wrapping_add(1);
            return Err(Stale::Index);
        }
        let mut slots = covers;
        if mutant!(CoversOne) {
            slots = 1;
        }
        if mutant!(CoversAll) {
            slots = self.flight.count();
        }
        if let Some(slots) = self.flight.split(slots) {
            self.covered.absorb(slots);
        }
        self.done = index;
        self.covered_at = seen.past();
        Ok(covers)
    }

    /// Frees what is covered, if `published` reaches past the CQE that covered it: how many slots.
    #[inline(always)]
    pub fn reclaim(&mut self, published: Published<Cq>) -> u32 {
        let reaches = published.ring() == self.cq && published.head().reaches(self.covered_at);
        if !reaches && !mutant!(FreeBeforePublish) {
            return 0;
        }
        let freed = self.covered.count();
        self.pool.reclaim(self.covered.take());
        freed
    }

    /// Moves it as a whole, on a CQ that is moved by `cq`; see [`Poller::rotate`](super::poll::Poller::rotate).
    #[cfg(feature = "explore")]
    pub fn rotate(&mut self, by: u32, cq: u32) {
        self.tail = self.tail.plus(by);
        self.handed = self.handed.plus(by);
        self.done = self.done.plus(by);
        self.covered_at = if self.covered.is_empty() {
            Index::ZERO
        } else {
            self.covered_at.plus(cq)
        };
        self.stale = 0;
    }

    /// Whether every slot is free, in flight or covered.
    #[inline]
    pub const fn audit(&self) -> Result<(), Imbalance> {
        self.pool
            .audit(self.flight.count().wrapping_add(self.covered.count()))
    }

    /// The queue was destroyed or reset: it ends with all its slots accounted for, and hands its memory back.
    pub fn retire(mut self) -> Result<S, (S, Imbalance)> {
        let mut rest = self.flight.take();
        if mutant!(FlightForgotten) {
            rest = Slots::none(rest.ring());
        }
        rest.absorb(self.covered.take());
        match self.pool.retire(rest) {
            Ok(()) => Ok(self.storage),
            Err(imbalance) => Err((self.storage, imbalance)),
        }
    }
}

/// Room for one work request. Dropped, it was never there.
#[derive(Debug)]
pub struct Room<'a, S: Storage, K: Kind> {
    producer: &'a mut Producer<S, K>,
    slots: u32,
    /// The silent run that posting leaves; 0 says that it must be signalled.
    silent: u32,
}

impl<S: Storage, K: Kind> Room<'_, S, K> {
    /// Whether it has to be signalled: because it was asked for, or because nothing would ever come back.
    #[inline(always)]
    pub const fn signalled(&self) -> bool {
        self.silent == 0
    }

    /// Where it lies.
    #[inline(always)]
    pub const fn index(&self) -> Index {
        self.producer.tail
    }

    /// Writes 64-byte block `block` of the work request. Of an RQ's slot a block is one
    /// of those of the stride. Blocks that it does not have are not written.
    #[inline(always)]
    pub fn write(&mut self, block: u32, words: &[u64; BLOCK_WORDS]) {
        let producer = &*self.producer;
        let stride = if K::STRIDED { producer.stride & 3 } else { 0 };
        if block >= self.slots << stride {
            return;
        }
        let slot = producer.tail.plus(block >> stride);
        let mut position = producer.depth.position(slot);
        if mutant!(TailNotWrapped) {
            let first = producer.depth.position(producer.tail);
            position = first.wrapping_add(block >> stride);
        }
        let inside = block & (1u32 << stride).wrapping_sub(1);
        let at = ((position as usize) << stride).wrapping_add(inside as usize);
        producer
            .storage
            .store_all(at.wrapping_mul(BLOCK_WORDS), words);
    }

    /// Posts it: takes the slots. It returns the index past it, which is what its CQE will carry.
    #[inline(always)]
    pub fn post(self) -> Index {
        let producer = self.producer;
        if let Some(slots) = producer.pool.take(self.slots) {
            producer.flight.absorb(slots);
        }
        producer.silent = self.silent;
        producer.tail = producer.tail.plus(self.slots);
        producer.tail
    }
}
