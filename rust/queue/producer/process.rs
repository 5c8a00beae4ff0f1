// SPDX-License-Identifier: GPL-2.0
//! What queues of processes, and of tests, need besides.

use super::super::consumer::Flushed;
use super::super::credit::Cq;
use super::super::credit::Imbalance;
use super::super::credit::Kind;
use super::super::credit::Slots;
use super::super::credit::Sq;
use super::super::index::Depth;
use super::super::storage::Storage;
use super::Batch;
use super::Posting;
use super::Producer;
use super::Refused;
use super::Room;
use super::Rows;
use super::Shape;
use crate::abi::entry::BLOCK_WORDS;

impl<S: Storage, K: Kind> Producer<S, K> {
    /// Places in the ring.
    #[inline(always)]
    pub const fn depth(&self) -> Depth {
        self.shape.depth
    }

    /// Slots that requests may take, at most the depth.
    #[inline(always)]
    pub const fn capacity(&self) -> u32 {
        self.posting.pool.minted()
    }

    /// The memory of the ring.
    #[inline(always)]
    pub const fn storage(&self) -> &S {
        &self.storage
    }

    /// Finds room for a single work request, as [`Batch::room`].
    #[inline(always)]
    pub fn room(
        &mut self,
        slots: u32,
        signal: bool,
    ) -> Result<Room<Batch<'_, &S, K>, &S, K>, Refused> {
        Room::new(self.batch(|storage| storage), slots, signal)
    }

    /// Slots that the device has.
    #[inline(always)]
    pub(in super::super) const fn flight(&self) -> u32 {
        self.completing.flight.count()
    }

    /// As [`batch`](Self::batch), of a queue of which `slack` slots are for completed work requests:
    /// those in flight take at most the others.
    #[inline(always)]
    pub fn batch_beside<'a, V: Storage>(
        &'a mut self,
        slack: u32,
        view: impl FnOnce(&'a S) -> V,
    ) -> Batch<'a, V, K> {
        let unused = slack.saturating_sub(self.completed());
        let mut batch = self.batch(view);
        batch.free = batch.free.saturating_sub(unused);
        batch
    }

    /// Takes back everything posted since the last [`ring`](Self::ring): the slots are free again,
    /// and the device will not read them.
    #[inline]
    pub fn withdraw(&mut self) {
        let Posting { pool, posted, .. } = &mut self.posting;
        pool.reclaim(posted.take());
        self.posting.tail = self.handed;
        self.posting.unsignaled = self.handed_unsignaled;
    }

    /// Frees completed slots, however long ago they completed; returns how many. Their CQE was
    /// read, and `flushed` proves that everything read has been published.
    #[inline(always)]
    pub fn reclaim_all(&mut self, flushed: &Flushed<'_, Cq>) -> u32 {
        if flushed.ring() != self.completing.cq {
            return 0;
        }
        self.free_completed()
    }

    /// As [`audit`](Self::audit), with `held` slots that a shared queue has taken out.
    #[inline]
    pub(in super::super) const fn audit_with(&self, held: u32) -> Result<(), Imbalance> {
        let out = self.in_flight().wrapping_add(self.completed());
        self.posting.pool.audit(out.wrapping_add(held))
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
}

impl<'a, V: Rows + 'a> Batch<'a, V, Sq> {
    /// Posts work requests of one block in a row; returns how many. `next` gives whether the caller
    /// wants the next one signaled, and what writes it, given whether it must be. The row
    /// ends where `next` gives none, where no slot is free, or where the ring's memory ends.
    #[inline(always)]
    pub fn post_row<W>(&mut self, mut next: impl FnMut() -> Option<(bool, W)>) -> u32
    where
        W: FnOnce(bool) -> [u64; BLOCK_WORDS],
    {
        let Shape { depth, .. } = self.shape;
        let position = depth.position(self.tail);
        let to_end = depth.entries().wrapping_sub(position);
        // As in `Room::new`.
        let minted = self.posting.pool.minted();
        let most = minted.saturating_sub(self.shape.largest);
        let mut unsignaled = self.unsignaled;
        let posted = self.storage.store_row(
            (position as usize).wrapping_mul(BLOCK_WORDS),
            self.free.min(to_end),
            || {
                let (signal, words) = next()?;
                unsignaled = unsignaled.wrapping_add(1);
                if signal || unsignaled > most {
                    unsignaled = 0;
                }
                Some(words(unsignaled == 0))
            },
        );
        self.unsignaled = unsignaled;
        self.free = self.free.wrapping_sub(posted);
        self.tail = self.tail.plus(posted);
        posted
    }
}
