// SPDX-License-Identifier: GPL-2.0
//! A shared queue goes on in another ring.

use super::super::credit::Kind;
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
