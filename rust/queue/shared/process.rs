// SPDX-License-Identifier: GPL-2.0
//! What SRQs of processes, and of tests, need besides.

use super::super::credit::RingId;
use super::super::credit::Slots;
use super::super::credit::Srq;
use super::super::index::Depth;
use super::super::index::Index;
use super::super::producer::Batch;
use super::super::producer::Producer;
use super::super::storage::BadRing;
use super::super::storage::Storage;
use super::Shared;

impl<S: Storage> Shared<S> {
    /// [`new`](Self::new) for tests of the wrap: the ring starts at `first`.
    pub fn starting_at(
        ring: RingId,
        storage: S,
        depth: Depth,
        stride: u8,
        capacity: u32,
        first: Index,
    ) -> Result<Self, BadRing> {
        let producer = Producer::starting_at(ring, ring, storage, depth, stride, capacity, first)?;
        Ok(Self { producer })
    }

    /// Slots that a post may take now.
    #[inline(always)]
    pub const fn free(&self) -> u32 {
        self.producer.free()
    }

    /// Begins a batch of posts, as [`Producer::batch`].
    #[inline(always)]
    pub fn batch<'a, V: Storage>(&'a mut self, view: impl FnOnce(&'a S) -> V) -> Batch<'a, V, Srq> {
        self.producer.batch(view)
    }

    /// Takes back everything that was not handed over, as [`Producer::withdraw`].
    #[inline(always)]
    pub fn withdraw(&mut self) {
        self.producer.withdraw();
    }

    /// Receives that the device has and that are not completed.
    #[inline(always)]
    pub const fn handed(&self) -> u32 {
        self.producer.flight()
    }

    /// As [`complete`](Self::complete), of `count` receives. `None`, and no slot is taken, if fewer
    /// are in flight.
    #[inline(always)]
    pub fn complete_all(&mut self, count: u32) -> Option<Slots<Srq>> {
        self.producer.split_flight(count)
    }

    /// The memory of the ring.
    pub const fn storage(&self) -> &S {
        self.producer.storage()
    }
}
