// SPDX-License-Identifier: GPL-2.0
//! The software side of a ring that software writes: an SQ, an RQ or an SRQ.
//!
//! A slot is a 64-byte block of an SQ, or a work request of an RQ (of one stride). Each slot is in
//! one of four states, and each state is a bundle:
//!
//! ```text
//!         post             ring                complete                    reclaim
//!   free ------> posted ---------> in flight -----------> completed -------------------> free
//!         entry           doorbell           a CQE's index             the CQ head past
//!         written         written            passes it                 that CQE is published
//! ```
//!
//! - A CQE carries the consumer index of its queue *past* the work request that it reports, so it
//!   completes that one and all before it, unsignaled ones too. No state is kept for each work
//!   request.
//! - A completion moves the slots before its index from in flight to completed. One whose index is
//!   not in flight (stale, duplicate or garbage), or that comes from a CQ that is not this queue's,
//!   moves none. The caller gets it back.
//! - A post is signaled, even if the caller did not ask for it, where the queue could otherwise
//!   never free slots: the run of unsignaled blocks at the tail always leaves room for the largest
//!   work request. Not so [as its user asks](Batch::room_as_asked).
//! - Posting only writes memory. One doorbell hands over a whole batch. What is not handed over yet
//!   can be withdrawn.
//!
//! A [`Batch`] of posts or a [`Row`] of completions holds copies of the queue's indices, which the
//! compiler can keep in registers across stores to the ring and barriers. When it ends, the slots
//! of all its posts or completions are moved at once. A single one is a batch or row of one.

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
use super::credit::Srq;
use super::index::Depth;
use super::index::Index;
use super::storage::BadRing;
use super::storage::Storage;
use crate::abi::entry::BLOCK_WORDS;
use crate::abi::entry::MAX_BLOCKS;
use crate::abi::entry::MAX_STRIDE_SHIFT;
use core::borrow::BorrowMut;
use core::marker::PhantomData;

#[cfg(not(MODULE))]
mod next;
#[cfg(not(MODULE))]
mod process;
#[cfg(not(MODULE))]
mod rows;

#[cfg(not(MODULE))]
pub(super) use next::NextRing;
#[cfg(not(MODULE))]
pub use rows::Rows;

/// The producer of a send queue.
pub type SqProducer<S> = Producer<S, Sq>;
/// The producer of a receive queue.
pub type RqProducer<S> = Producer<S, Rq>;
/// The producer of a shared receive queue.
pub type SrqProducer<S> = Producer<S, Srq>;

/// Why a post was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Not enough free slots now.
    Full,
    /// It can never fit: no blocks, more than a work request may have, or more than the queue's
    /// capacity.
    TooLarge,
}

/// A completion that completes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    /// Its index is not in flight.
    Index,
    /// It came from a CQ that is not this queue's.
    Cq,
}

/// Constant for the life of the queue.
#[derive(Clone, Copy, Debug)]
struct Shape {
    depth: Depth,
    /// Base-two logarithm of the 64-byte blocks of a slot; 0 for SQs.
    stride: u8,
    /// Most slots that a work request takes.
    largest: u32,
}

impl Shape {
    /// Of a ring of `capacity` slots in `storage`.
    fn new<S: Storage>(
        storage: &S,
        depth: Depth,
        stride: u8,
        capacity: u32,
    ) -> Result<Self, BadRing> {
        if stride > MAX_STRIDE_SHIFT || capacity > depth.entries() || capacity == 0 {
            return Err(BadRing);
        }
        let words = (depth.entries() as usize).checked_mul(BLOCK_WORDS << stride);
        if words.is_none_or(|words| words > storage.words()) {
            return Err(BadRing);
        }
        Ok(Self {
            depth,
            stride,
            largest: capacity.min(MAX_BLOCKS as u32),
        })
    }
}

/// The state that a post changes.
#[derive(Debug)]
struct Posting<K: Kind> {
    /// The index of the next work request.
    tail: Index,
    /// Slots at the tail since the last signaled work request.
    unsignaled: u32,
    pool: Pool<K>,
    /// Posted, but not handed over yet.
    posted: Slots<K>,
}

/// The state that a completion changes.
#[derive(Debug)]
struct Completing<K: Kind> {
    /// The CQ that completions come from.
    cq: RingId,
    /// Past the last completed work request.
    done: Index,
    flight: Slots<K>,
    completed: Slots<K>,
    /// Past the last CQE of this queue.
    completed_at: Index,
}

/// The software side of a ring of work requests.
#[derive(Debug)]
pub struct Producer<S: Storage, K: Kind> {
    storage: S,
    shape: Shape,
    posting: Posting<K>,
    completing: Completing<K>,
    /// The producer index that the device has.
    handed: Index,
    /// The unsignaled run before it.
    handed_unsignaled: u32,
}

impl<S: Storage> Producer<S, Sq> {
    /// Creates a send queue of `capacity` blocks, at most the depth, whose completions come from
    /// `cq`.
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
    /// Creates a receive queue of `capacity` work requests of `64 << stride` bytes, at most the
    /// depth, whose completions come from `cq`.
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

impl<S: Storage> Producer<S, Srq> {
    /// Creates a shared receive queue of `capacity` work requests of `64 << stride` bytes, at most the
    /// depth.
    pub fn new_srq(
        ring: RingId,
        storage: S,
        depth: Depth,
        stride: u8,
        capacity: u32,
    ) -> Result<Self, BadRing> {
        // Its completions come from the CQs of its queue pairs, so no CQ has its name.
        Self::starting_at(ring, ring, storage, depth, stride, capacity, Index::ZERO)
    }

    /// The completion of a receive was read, whichever it is: frees its slot. `None` if no receive is
    /// in flight.
    #[inline]
    pub fn complete_one(&mut self) -> Option<()> {
        let slot = self.completing.flight.split(1)?;
        self.completing.done = self.completing.done.plus(1);
        self.posting.pool.reclaim(slot);
        Some(())
    }
}

impl<S: Storage, K: Kind> Producer<S, K> {
    /// Creates any, for tests of the wrap: the ring starts at `first`.
    pub fn starting_at(
        ring: RingId,
        cq: RingId,
        storage: S,
        depth: Depth,
        stride: u8,
        capacity: u32,
        first: Index,
    ) -> Result<Self, BadRing> {
        Ok(Self {
            shape: Shape::new(&storage, depth, stride, capacity)?,
            storage,
            posting: Posting {
                tail: first,
                unsignaled: 0,
                pool: Pool::mint(ring, capacity),
                posted: Slots::none(ring),
            },
            completing: Completing {
                cq,
                done: first,
                flight: Slots::none(ring),
                completed: Slots::none(ring),
                completed_at: Index::ZERO,
            },
            handed: first,
            handed_unsignaled: 0,
        })
    }

    /// Slots that a post may take now.
    #[inline(always)]
    pub const fn free(&self) -> u32 {
        self.posting.pool.free()
    }

    /// Slots that are posted and not completed.
    #[inline(always)]
    pub const fn in_flight(&self) -> u32 {
        let posted = self.posting.posted.count();
        self.completing.flight.count().wrapping_add(posted)
    }

    /// Slots that are completed, and wait for the CQ head to be published.
    #[inline(always)]
    pub const fn completed(&self) -> u32 {
        self.completing.completed.count()
    }

    /// The index of the next work request.
    #[inline(always)]
    pub const fn tail(&self) -> Index {
        self.posting.tail
    }

    /// Begins a batch of posts, through the `view` of the ring's memory.
    #[inline(always)]
    pub fn batch<'a, V: Storage>(&'a mut self, view: impl FnOnce(&'a S) -> V) -> Batch<'a, V, K> {
        Batch {
            storage: view(&self.storage),
            shape: self.shape,
            tail: self.posting.tail,
            free: self.posting.pool.free(),
            unsignaled: self.posting.unsignaled,
            posting: &mut self.posting,
        }
    }

    /// Hands over everything posted since the last call: `doorbell` writes the tail to the device.
    /// Does nothing and returns false if nothing was posted.
    #[inline(always)]
    pub fn ring(&mut self, doorbell: impl FnOnce(Index)) -> bool {
        let tail = self.posting.tail;
        if self.handed == tail {
            return false;
        }
        self.storage.before_tail();
        doorbell(tail);
        self.handed = tail;
        self.handed_unsignaled = self.posting.unsignaled;
        let posted = self.posting.posted.take();
        self.completing.flight.absorb(posted);
        true
    }

    /// Whether `seen` is of the CQ that this queue's completions come from.
    #[inline]
    pub fn completes_in(&self, seen: Seen<Cq>) -> bool {
        self.completing.is_of(seen)
    }

    /// A CQE of this queue was read; returns how many slots it completes. They are not free yet.
    #[inline(always)]
    pub fn complete(&mut self, index: Index, seen: Seen<Cq>) -> Result<u32, Stale> {
        let completing = &mut self.completing;
        if !completing.is_of(seen) {
            return Err(Stale::Cq);
        }
        let flight = self.handed.since(completing.done);
        let left = left(self.handed, flight, index).ok_or(Stale::Index)?;
        let count = flight.wrapping_sub(left);
        completing.advance(count, seen);
        Ok(count)
    }

    /// Begins a row of completions.
    #[inline(always)]
    pub fn row(&mut self) -> Row<'_, K> {
        Row {
            handed: self.handed,
            left: self.handed.since(self.completing.done),
            completing: &mut self.completing,
        }
    }

    /// Frees completed slots, if `published` reaches past the CQE that completed them; returns how
    /// many.
    ///
    /// This compares indices. If the queue has not been reclaimed for 2^31 entries of its CQ, it
    /// may free nothing although it could. A process has another way, `reclaim_all`.
    #[inline(always)]
    pub fn reclaim(&mut self, published: Published<Cq>) -> u32 {
        let Completing {
            cq, completed_at, ..
        } = self.completing;
        let reaches = published.ring() == cq && published.head().reaches(completed_at);
        if !reaches {
            return 0;
        }
        self.free_completed()
    }

    #[inline(always)]
    fn free_completed(&mut self) -> u32 {
        let completed = self.completing.completed.take();
        let freed = completed.count();
        self.posting.pool.reclaim(completed);
        freed
    }

    /// Whether every slot is free, posted, in flight or completed.
    #[inline]
    pub const fn audit(&self) -> Result<(), Imbalance> {
        let out = self.in_flight().wrapping_add(self.completed());
        self.posting.pool.audit(out)
    }

    /// The queue was destroyed or reset: checks that every slot is accounted for, and returns its
    /// memory.
    pub fn retire(mut self) -> Result<S, (S, Imbalance)> {
        let mut rest = self.posting.posted.take();
        rest.absorb(self.completing.flight.take());
        rest.absorb(self.completing.completed.take());
        match self.posting.pool.retire(rest) {
            Ok(()) => Ok(self.storage),
            Err(imbalance) => Err((self.storage, imbalance)),
        }
    }
}

impl<K: Kind> Completing<K> {
    #[inline(always)]
    fn is_of(&self, seen: Seen<Cq>) -> bool {
        seen.ring() == self.cq
    }

    /// Moves slots from in flight to completed.
    #[inline(always)]
    fn advance(&mut self, count: u32, seen: Seen<Cq>) {
        if let Some(slots) = self.flight.split(count) {
            self.completed.absorb(slots);
        }
        self.done = self.done.plus(count);
        self.completed_at = seen.past();
    }
}

/// How many of the `flight` slots before `handed` are left after a completion of this index. `None`
/// if the index is not in flight.
#[inline(always)]
fn left(handed: Index, flight: u32, index: Index) -> Option<u32> {
    let left = handed.since(index);
    (left < flight).then_some(left)
}

/// A row of completions. They take effect at its [`end`](Row::end).
#[derive(Debug)]
#[must_use = "a row has no effect before its end"]
pub struct Row<'a, K: Kind> {
    /// The producer index that the device has.
    handed: Index,
    /// Slots that are still in flight.
    left: u32,
    completing: &'a mut Completing<K>,
}

impl<K: Kind> Row<'_, K> {
    /// A CQE of this queue was read; returns how many slots it completes. `None` if its index is
    /// not in flight.
    #[inline(always)]
    pub fn complete(&mut self, index: Index) -> Option<u32> {
        let left = left(self.handed, self.left, index)?;
        let count = self.left.wrapping_sub(left);
        self.left = left;
        Some(count)
    }

    /// Whether `seen` is of the CQ that this queue's completions come from.
    #[inline(always)]
    pub fn is_of(&self, seen: Seen<Cq>) -> bool {
        self.completing.is_of(seen)
    }

    /// Ends the row: moves the slots of all its completions to completed. `seen` includes all their
    /// CQEs and must be [of](Self::is_of) this queue's CQ.
    #[inline(always)]
    pub fn end(self, seen: Seen<Cq>) -> Result<(), Stale> {
        if !self.is_of(seen) {
            return Err(Stale::Cq);
        }
        let flight = self.handed.since(self.completing.done);
        let count = flight.wrapping_sub(self.left);
        if count != 0 {
            self.completing.advance(count, seen);
        }
        Ok(())
    }
}

/// A batch of posts. Dropping it posts them; they are not handed over yet.
#[derive(Debug)]
#[must_use = "a batch without posts does nothing"]
pub struct Batch<'a, V: Storage, K: Kind> {
    storage: V,
    shape: Shape,
    /// The index of the next work request.
    tail: Index,
    /// Slots that the batch may still take.
    free: u32,
    unsignaled: u32,
    posting: &'a mut Posting<K>,
}

impl<'a, V: Storage + 'a, K: Kind> Batch<'a, V, K> {
    /// Finds room for a work request of `slots` slots, `signal` if the caller wants it signaled.
    /// Takes no slots until [`Room::post`].
    #[inline(always)]
    pub fn room(&mut self, slots: u32, signal: bool) -> Result<Room<&mut Self, V, K>, Refused> {
        Room::new(self, slots, signal)
    }

    /// As [`room`](Self::room), of a queue whose user answers for its signals: none but those that it
    /// wants. A user that counts the completions in its CQ has no place for another one. In turn it
    /// signals a work request before the queue is full, or no slot becomes free.
    #[inline]
    pub fn room_as_asked(
        &mut self,
        slots: u32,
        signal: bool,
    ) -> Result<Room<&mut Self, V, K>, Refused> {
        let mut room = self.room(slots, signal)?;
        if !signal {
            room.unsignaled = room.batch.unsignaled.wrapping_add(slots);
        }
        Ok(room)
    }
}

impl<V: Storage, K: Kind> Drop for Batch<'_, V, K> {
    #[inline(always)]
    fn drop(&mut self) {
        let posting = &mut *self.posting;
        let posted = self.tail.since(posting.tail);
        if let Some(slots) = posting.pool.take(posted) {
            posting.posted.absorb(slots);
        }
        posting.unsignaled = self.unsignaled;
        posting.tail = self.tail;
    }
}

/// Room for one work request in a batch `B`. Dropping it posts nothing.
#[derive(Debug)]
pub struct Room<B, V: Storage, K: Kind> {
    batch: B,
    slots: u32,
    /// The unsignaled run after this post; 0 means that it must be signaled.
    unsignaled: u32,
    kind: PhantomData<fn() -> (V, K)>,
}

impl<'a, B, V, K> Room<B, V, K>
where
    B: BorrowMut<Batch<'a, V, K>>,
    V: Storage + 'a,
    K: Kind,
{
    #[inline(always)]
    fn new(batch: B, slots: u32, signal: bool) -> Result<Self, Refused> {
        let at: &Batch<'a, V, K> = batch.borrow();
        let Shape { largest, .. } = at.shape;
        if slots > at.free {
            return Err(if slots > largest {
                Refused::TooLarge
            } else {
                Refused::Full
            });
        }
        // The slots are free, so only the limit for all queues matters here, not this queue's
        // capacity.
        if slots == 0 || slots > MAX_BLOCKS as u32 {
            return Err(Refused::TooLarge);
        }
        // No run leaves less than the largest request beside it.
        let unsignaled = at.unsignaled.wrapping_add(slots);
        let beside = at.posting.pool.minted().saturating_sub(unsignaled);
        let signal = signal || beside < largest;
        Ok(Room {
            batch,
            slots,
            unsignaled: if signal { 0 } else { unsignaled },
            kind: PhantomData,
        })
    }

    /// Whether it must be signaled: because the caller asked for it, or to keep the unsignaled
    /// run short enough.
    #[inline(always)]
    pub const fn signaled(&self) -> bool {
        self.unsignaled == 0
    }

    /// The index of its first slot.
    #[inline(always)]
    pub fn index(&self) -> Index {
        self.batch.borrow().tail
    }

    /// Writes 64-byte block `block` of the work request, or its first words. A slot of an RQ has one
    /// block for each 64 bytes of the stride. Blocks past the end are not written.
    #[inline(always)]
    pub fn write<const N: usize>(&mut self, block: u32, words: &[u64; N]) {
        const { assert!(N <= BLOCK_WORDS) }
        let batch: &Batch<'a, V, K> = self.batch.borrow();
        let Shape { depth, stride, .. } = batch.shape;
        let stride = if K::STRIDED { stride & 3 } else { 0 };
        if block >= self.slots << stride {
            return;
        }
        let slot = batch.tail.plus(block >> stride);
        let position = depth.position(slot);
        let inside = block & (1u32 << stride).wrapping_sub(1);
        let at = ((position as usize) << stride).wrapping_add(inside as usize);
        batch.storage.store_all(at.wrapping_mul(BLOCK_WORDS), words);
    }

    /// Posts it: takes the slots. Returns the index past it, which its CQE will carry.
    #[inline(always)]
    pub fn post(mut self) -> Index {
        let batch: &mut Batch<'a, V, K> = self.batch.borrow_mut();
        batch.free = batch.free.wrapping_sub(self.slots);
        batch.unsignaled = self.unsignaled;
        batch.tail = batch.tail.plus(self.slots);
        batch.tail
    }
}
