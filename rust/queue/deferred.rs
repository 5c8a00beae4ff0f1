// SPDX-License-Identifier: GPL-2.0
//! Slots of destroyed queues, which are free once the head has passed their last entries.

use super::consumer::Published;
use super::credit::Kind;
use super::credit::RingId;
use super::credit::Slots;
use super::index::Index;

/// Slots whose last entries may still be unread in the ring.
///
/// Each comes with the producer index that the destroy reported, and is free once the published
/// head reaches that index. Two buckets serve any number of them without memory for each. The first
/// waits for a fixed index. Slots that come meanwhile go into the second, which waits for their
/// highest index and becomes the first when that one is freed. So a steady stream of destroys
/// delays a slot by at most one bucket.
#[derive(Debug)]
pub struct DeferredFree<K: Kind> {
    first: Slots<K>,
    first_until: Index,
    later: Slots<K>,
    later_until: Index,
}

impl<K: Kind> DeferredFree<K> {
    /// Without slots, for those of one ring.
    #[inline]
    pub const fn new(ring: RingId) -> Self {
        Self {
            first: Slots::none(ring),
            first_until: Index::ZERO,
            later: Slots::none(ring),
            later_until: Index::ZERO,
        }
    }

    /// The number of slots that are not free yet.
    #[inline]
    pub const fn count(&self) -> u32 {
        self.first.count().wrapping_add(self.later.count())
    }

    /// Keeps `slots` until the head reaches `until`. Slots of another ring are returned.
    #[inline]
    pub fn admit(&mut self, slots: Slots<K>, until: Index) -> Result<(), Slots<K>> {
        if self.first.is_empty() {
            self.first.merge(slots)?;
            self.first_until = until;
        } else {
            let was_empty = self.later.is_empty();
            self.later.merge(slots)?;
            if was_empty || until.reaches(self.later_until) {
                self.later_until = until;
            }
        }
        Ok(())
    }

    /// Returns the slots that the published head frees.
    #[inline]
    pub fn release(&mut self, published: Published<K>) -> Slots<K> {
        let mut freed = Slots::none(self.first.ring());
        // If the first bucket is empty, so is the second.
        if self.first.is_empty() || published.ring() != freed.ring() {
            return freed;
        }
        while !self.first.is_empty() {
            if !published.head().reaches(self.first_until) {
                break;
            }
            freed.absorb(self.first.take());
            self.first = self.later.take();
            self.first_until = self.later_until;
        }
        freed
    }
}
