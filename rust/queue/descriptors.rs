// SPDX-License-Identifier: GPL-2.0
//! The account of a ring of descriptors that complete in order: of a chain, and of a ring with a
//! head and a tail.
//!
//! A descriptor is free, filled or in flight, and each state is a bundle of slots. They are filled
//! in order and complete in order, so two indices are enough: `tail` is filled next, `done` is the
//! oldest in flight.

use super::credit::Imbalance;
use super::credit::Kind;
use super::credit::Pool;
use super::credit::RingId;
use super::credit::Slots;
use super::index::Depth;
use super::index::Index;
use super::storage::BadRing;
use super::storage::Storage;

/// Descriptors in a ring's memory.
#[derive(Debug)]
pub struct Descriptors<S: Storage, K: Kind> {
    storage: S,
    depth: Depth,
    pool: Pool<K>,
    filled: Slots<K>,
    flight: Slots<K>,
    tail: Index,
    done: Index,
}

impl<S: Storage, K: Kind> Descriptors<S, K> {
    /// `capacity` free descriptors of `words` words in a ring of `depth`, which starts at `first`.
    pub(super) fn new(
        ring: RingId,
        storage: S,
        depth: Depth,
        words: usize,
        capacity: u32,
        first: Index,
    ) -> Result<Self, BadRing> {
        let needed = (depth.entries() as usize)
            .checked_mul(words)
            .ok_or(BadRing)?;
        if needed > storage.words() {
            return Err(BadRing);
        }
        Ok(Self {
            storage,
            depth,
            pool: Pool::mint(ring, capacity),
            filled: Slots::none(ring),
            flight: Slots::none(ring),
            tail: first,
            done: first,
        })
    }

    /// Places in the ring.
    #[inline(always)]
    pub const fn depth(&self) -> Depth {
        self.depth
    }

    /// Descriptors that may be filled now.
    #[inline(always)]
    pub const fn free(&self) -> u32 {
        self.pool.free()
    }

    /// Descriptors that are filled and not handed over.
    #[inline(always)]
    pub const fn filled(&self) -> u32 {
        self.filled.count()
    }

    /// Descriptors that the channel owns, or has completed unseen.
    #[inline(always)]
    pub const fn in_flight(&self) -> u32 {
        self.flight.count()
    }

    /// Descriptors of the ring that may be filled.
    #[inline(always)]
    pub const fn capacity(&self) -> u32 {
        self.pool.minted()
    }

    /// The memory of the ring.
    #[inline(always)]
    pub const fn storage(&self) -> &S {
        &self.storage
    }

    /// The place of the oldest descriptor that is not free.
    #[inline]
    pub const fn oldest(&self) -> u32 {
        self.depth.position(self.done)
    }

    /// Whether every descriptor is free, filled or in flight.
    #[inline]
    pub const fn audit(&self) -> Result<(), Imbalance> {
        let out = self.filled.count().wrapping_add(self.flight.count());
        self.pool.audit(out)
    }

    /// The place of the descriptor that is filled next.
    #[inline(always)]
    pub(super) const fn place(&self) -> u32 {
        self.depth.position(self.tail)
    }

    /// The descriptor that is filled next.
    #[inline(always)]
    pub(super) const fn tail(&self) -> Index {
        self.tail
    }

    /// The descriptor that was filled last.
    #[inline(always)]
    pub(super) const fn last(&self) -> Index {
        Index::new(self.tail.get().wrapping_sub(1))
    }

    /// The oldest descriptor in flight.
    #[inline(always)]
    pub(super) const fn done(&self) -> Index {
        self.done
    }

    /// The descriptor at the tail was filled.
    #[inline(always)]
    pub(super) fn fill(&mut self) {
        let slot = self.pool.take_up_to(1);
        self.filled.absorb(slot);
        self.tail = self.tail.plus(1);
    }

    /// All that is filled was handed over.
    #[inline(always)]
    pub(super) fn hand_over(&mut self) {
        let filled = self.filled.take();
        self.flight.absorb(filled);
    }

    /// The oldest descriptor in flight has completed: it is free. `None` if there is none.
    #[inline(always)]
    pub(super) fn complete(&mut self) -> Option<()> {
        let slot = self.flight.split(1)?;
        self.pool.reclaim(slot);
        self.done = self.done.plus(1);
        Some(())
    }

    /// All descriptors are free; returns how many were filled or in flight.
    pub(super) fn reset(&mut self) -> u32 {
        let lost = self.flight.take();
        let count = lost.count().wrapping_add(self.filled.count());
        self.pool.reclaim(lost);
        self.pool.reclaim(self.filled.take());
        self.tail = self.done;
        count
    }

    /// The channel ended: checks that every descriptor is accounted for, and returns the memory.
    pub fn retire(mut self) -> Result<S, (S, Imbalance)> {
        let mut rest = self.filled.take();
        rest.absorb(self.flight.take());
        match self.pool.retire(rest) {
            Ok(()) => Ok(self.storage),
            Err(imbalance) => Err((self.storage, imbalance)),
        }
    }
}
