// SPDX-License-Identifier: GPL-2.0
//! What a shared queue alone does with its producer: it completes slots in any order, and goes on in
//! another ring.

use super::super::credit::Kind;
use super::super::credit::Slots;
use super::super::index::Depth;
use super::super::index::Index;
use super::super::resize::Stays;
use super::super::storage::BadRing;
use super::super::storage::Storage;
use super::Producer;
use super::Shape;
use crate::abi::entry::BLOCK_WORDS;
use core::mem;

/// A ring in which a producer can go on.
#[derive(Debug)]
pub(in super::super) struct NextRing<S> {
    storage: S,
    shape: Shape,
    capacity: u32,
}

impl Shape {
    /// Where a slot begins, in words, and how many it has.
    fn place(&self, index: Index) -> (usize, usize) {
        let words = BLOCK_WORDS << (self.stride & 3);
        let position = self.depth.position(index) as usize;
        (position.wrapping_mul(words), words)
    }
}

impl<S: Storage, K: Kind> Producer<S, K> {
    /// Slots that the device has.
    #[inline(always)]
    pub(in super::super) const fn flight(&self) -> u32 {
        self.completing.flight.count()
    }

    /// Takes `count` slots out of those in flight, whatever their indices; `None` if there are
    /// fewer.
    #[inline(always)]
    pub(in super::super) fn split_flight(&mut self, count: u32) -> Option<Slots<K>> {
        let slots = self.completing.flight.split(count)?;
        self.completing.done = self.completing.done.plus(count);
        Some(slots)
    }

    /// Frees slots that [`split_flight`](Self::split_flight) gave. Those of another ring are
    /// returned.
    #[inline(always)]
    pub(in super::super) fn give(&mut self, slots: Slots<K>) -> Result<(), Slots<K>> {
        self.posting.pool.give(slots)
    }

    /// Copies what the device may still read to `storage`, a ring of `capacity` slots.
    pub(in super::super) fn copy_to(
        &self,
        storage: S,
        depth: Depth,
        capacity: u32,
    ) -> Result<NextRing<S>, Stays> {
        let shape = Shape::new(&storage, depth, self.shape.stride, capacity);
        let next = NextRing {
            shape: shape.map_err(|BadRing| Stays::BadRing)?,
            storage,
            capacity,
        };
        if self.posting.pool.out() > capacity {
            return Err(Stays::Unread);
        }
        for back in 1..=self.in_flight() {
            let index = self.posting.tail.plus(0u32.wrapping_sub(back));
            let (from, words) = self.shape.place(index);
            let (to, _) = next.shape.place(index);
            for at in 0..words {
                let word = self.storage.load(from.wrapping_add(at));
                next.storage.store(to.wrapping_add(at), word);
            }
        }
        Ok(next)
    }

    /// Goes on in that ring. Returns the memory of the one before.
    pub(in super::super) fn go_on(&mut self, next: NextRing<S>) -> S {
        self.shape = next.shape;
        self.posting.pool.resize(next.capacity);
        mem::replace(&mut self.storage, next.storage)
    }
}
