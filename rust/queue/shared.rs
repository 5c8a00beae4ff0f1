// SPDX-License-Identifier: GPL-2.0
//! Receives that queue pairs share: a shared receive queue (SRQ).
//!
//! The device takes the receives of an SRQ in the order in which they were posted, each for the
//! queue pair that needs one. It reads a WQE as a whole when it takes it. The queue pairs complete
//! their receives in any order:
//!
//! ```text
//!   software                 device                                            software
//!   post ---> in the ring --take--> at a queue pair --complete--> in a CQ ---> slot is free
//!                ^                     |
//!                +----- given back ----+   the queue pair was reset or destroyed
//! ```
//!
//! - **A completion frees one slot**, that of its receive, unlike one of an RQ, which frees all
//!   before it: a receive that was posted earlier may still be at a queue pair.
//! - The ring needs no list of free slots. At most `depth` receives are posted and not completed,
//!   and each that is completed was taken before. So at most `depth` are posted and not taken, and
//!   the place at the tail is always one that the device has read.
//! - A receive whose queue pair is gone goes back, and is the next to be taken. So none is lost,
//!   and software that counts completions counts right.
//! - A CQ must have room for all receives of an SRQ, since any queue pair may get all of them. The
//!   slot of a completion may be used again when the CQ has room for one more, or after its head
//!   past the completion is published.
//!
//! - An SRQ is resized in three steps, without a post between them: software copies the receives in
//!   flight to the new ring, the device switches by a command, software goes on in the new ring.
//!   An index stays what it is; its place in the new ring follows from the new depth. The device
//!   may take receives meanwhile: those that it has not taken are among those in flight, and are in
//!   both rings. With the command it ends its last read of the old ring.
//!
//! [`Shared`] is the side of a process. That of the device is in its model, and that of the kernel is a
//! [`Producer`] with [`receives`](super::receives).

use super::credit::Imbalance;
use super::credit::RingId;
use super::credit::Slots;
use super::credit::Srq;
use super::index::Depth;
use super::index::Index;
use super::producer::Batch;
use super::producer::Producer;
use super::storage::BadRing;
use super::storage::Storage;

mod next;

pub use next::Resize;

/// The software side of an SRQ: its slots.
#[derive(Debug)]
pub struct Shared<S: Storage> {
    producer: Producer<S, Srq>,
}

impl<S: Storage> Shared<S> {
    /// Creates an SRQ of `capacity` work requests of `64 << stride` bytes, at most the depth.
    pub fn new(
        ring: RingId,
        storage: S,
        depth: Depth,
        stride: u8,
        capacity: u32,
    ) -> Result<Self, BadRing> {
        Self::starting_at(ring, storage, depth, stride, capacity, Index::ZERO)
    }

    /// The same for tests of the wrap: the ring starts at `first`.
    pub fn starting_at(
        ring: RingId,
        storage: S,
        depth: Depth,
        stride: u8,
        capacity: u32,
        first: Index,
    ) -> Result<Self, BadRing> {
        // Its completions come from the CQs of its queue pairs, so no CQ has its name.
        let producer = Producer::starting_at(ring, ring, storage, depth, stride, capacity, first)?;
        Ok(Self { producer })
    }

    /// Slots that a post may take now.
    #[inline(always)]
    pub const fn free(&self) -> u32 {
        self.producer.free()
    }

    /// Receives that are posted and not completed.
    #[inline(always)]
    pub const fn in_flight(&self) -> u32 {
        self.producer.in_flight()
    }

    /// Its producer, for posts. It completes nothing: no CQ has the ring's name.
    #[inline(always)]
    pub fn producer(&mut self) -> &mut Producer<S, Srq> {
        &mut self.producer
    }

    /// Begins a batch of posts, as [`Producer::batch`].
    #[inline(always)]
    pub fn batch<'a, V: Storage>(&'a mut self, view: impl FnOnce(&'a S) -> V) -> Batch<'a, V, Srq> {
        self.producer.batch(view)
    }

    /// Hands over everything posted, as [`Producer::ring`].
    #[inline(always)]
    pub fn ring(&mut self, doorbell: impl FnOnce(Index)) -> bool {
        self.producer.ring(doorbell)
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

    /// The completion of one receive was read: its slot, which [`free_slots`](Self::free_slots)
    /// takes. `None` if no receive is in flight.
    #[inline(always)]
    pub fn complete(&mut self) -> Option<Slots<Srq>> {
        self.complete_all(1)
    }

    /// As [`complete`](Self::complete), of `count` receives. `None`, and no slot is taken, if fewer
    /// are in flight.
    #[inline(always)]
    pub fn complete_all(&mut self, count: u32) -> Option<Slots<Srq>> {
        self.producer.split_flight(count)
    }

    /// Frees slots of completed receives. Those of another SRQ are returned.
    #[inline(always)]
    pub fn free_slots(&mut self, slots: Slots<Srq>) -> Result<(), Slots<Srq>> {
        self.producer.give(slots)
    }

    /// Whether every slot is free, in flight, or among the `held` ones of completed receives.
    pub const fn audit(&self, held: u32) -> Result<(), Imbalance> {
        self.producer.audit_with(held)
    }

    /// The memory of the ring.
    pub const fn storage(&self) -> &S {
        self.producer.storage()
    }
}
