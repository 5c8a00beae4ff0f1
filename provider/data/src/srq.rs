// SPDX-License-Identifier: GPL-2.0
//! Shared receive queues.
//!
//! A completion of a receive frees its slot as soon as it is read: the room of the CQ is kept apart,
//! by its slack. So no slot waits for the head of one of the CQs.

use std::sync::Arc;

use qpair_abi::doorbell;
use qpair_abi::Number;
use qpair_queue::credit::{RingId, Srq as OfSrq};
use qpair_queue::index::Depth;
use qpair_queue::shared::Shared;

use crate::lock::{self, Mutex};
use crate::receive::Receives;
use crate::request::Refusal;
use crate::ring::{Doorbells, Ring};
use crate::shape::Shape;

/// What a shared receive queue is made of.
#[derive(Clone, Copy, Debug)]
pub struct SrqParts {
    /// The number of the device.
    pub number: Number,
    /// The ring of its receives.
    pub ring: Ring,
    /// Receives of the ring, a power of two.
    pub depth: u32,
    /// log2 of the blocks of a receive.
    pub stride: u8,
    /// Most SGEs of a receive.
    pub max_sge: u32,
    /// The doorbells of the process.
    pub doorbells: Doorbells,
}

/// A shared receive queue: a ring that a post locks, and that CQs give slots back to.
#[derive(Debug)]
pub struct Srq {
    number: Number,
    stride: u8,
    max_sge: u32,
    doorbells: Doorbells,
    shared: Mutex<Shared<Ring>>,
}

impl Srq {
    /// A shared receive queue. `None` if the parts do not fit together.
    pub fn new(parts: SrqParts) -> Option<Arc<Self>> {
        let id = RingId::new(parts.number.raw(), 0);
        let depth = Depth::new(parts.depth)?;
        let shared = Shared::new(id, parts.ring, depth, parts.stride, parts.depth).ok()?;
        Some(Arc::new(Self {
            number: parts.number,
            stride: parts.stride,
            max_sge: parts.max_sge,
            doorbells: parts.doorbells,
            shared: lock::shared(shared),
        }))
    }

    /// Goes on in `ring`, which has this shape. Posts wait for `switch`, by which the device goes on
    /// there. On success the ring before is not accessed any more.
    ///
    /// # Errors
    ///
    /// `None`: more receives are in flight, or the parts do not fit together. That of `switch`.
    pub fn resize<E>(
        &self,
        ring: Ring,
        shape: Shape,
        switch: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), Option<E>> {
        if shape.stride != u32::from(self.stride) {
            return Err(None);
        }
        let depth = Depth::new(shape.entries).ok_or(None)?;
        let mut shared = self.shared.lock();
        let resize = shared.resize(ring, depth, shape.entries);
        let resize = resize.map_err(|_| None)?;
        switch()?;
        resize.end();
        Ok(())
    }

    /// Posts the receives that `posts` puts, and rings once, also if `posts` fails.
    ///
    /// # Errors
    ///
    /// Those of `posts`.
    #[inline(always)]
    pub fn post_recv(
        &self,
        posts: impl FnOnce(&mut Receives<'_, OfSrq>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut shared = self.shared.lock();
        let result = posts(&mut Receives::new(
            shared.producer(),
            0,
            self.max_sge,
            self.stride,
        ));
        shared.ring(|tail| self.doorbells.ring(doorbell::SRQ, self.number, tail));
        result
    }

    /// Frees the slots of the receives whose completions `take` reads. `take` gets the number in
    /// flight, and returns how many it has read, at most that number.
    #[inline(always)]
    pub(crate) fn complete(&self, take: impl FnOnce(usize) -> usize) -> usize {
        let mut shared = self.shared.lock();
        let taken = take(shared.handed() as usize);
        // CAST: At most what is in flight.
        match shared.complete_all(taken as u32) {
            Some(slots) => shared.free_slots(slots).map_or(0, |()| taken),
            None => 0,
        }
    }

    /// Frees the slots of `count` receives whose completions were dropped with their queue pair.
    pub(crate) fn dropped(&self, count: u32) {
        self.complete(|most| most.min(count as usize));
    }

    /// Receives that may be posted now.
    pub fn free(&self) -> u32 {
        self.shared.lock().free()
    }
}
