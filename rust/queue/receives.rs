// SPDX-License-Identifier: GPL-2.0
//! The receives of an SRQ that are posted and not completed.
//!
//! [`pending`](super::pending) of receives that complete in any order, at any queue pair of the SRQ.
//! Each has a place, which its WQE has as `wr_id` and its completion returns:
//!
//! - A completion names a receive by its place and the index past it. A place is used again at once,
//!   an index is not for 2^32 receives: a completion that is old or repeated names none.
//! - A place and a slot of the ring are taken and freed together. So there is a place for each
//!   receive that the ring has room for.
//! - A receive that has completed when its queue pair is reset or destroyed, and was not polled, is
//!   gone: its user does not get it back. Its place is free all the same.
//! - Nothing is flushed. What no queue pair has completed is the user's again when the SRQ is
//!   destroyed.

use super::consumer::Seen;
use super::credit::Cq;
use super::credit::RingId;
use super::index::Index;
use super::producer::SrqProducer;
use super::storage::Storage;
use core::ops::DerefMut;

/// A place of a receive.
#[derive(Clone, Copy, Debug)]
pub enum Place<T> {
    /// No receive, and the next place without one.
    Free(u32),
    /// A receive that ends at this index.
    Posted(Index, T),
}

/// The receives of an SRQ, by place.
#[derive(Debug)]
pub struct Receives<S> {
    places: S,
    /// The first place without a receive, past the last if there is none.
    free: u32,
}

impl<T: Copy, S: DerefMut<Target = [Place<T>]>> Receives<S> {
    /// None, and room for as many as there are places, whatever these hold.
    pub fn new(mut places: S) -> Self {
        for (place, next) in places.iter_mut().zip(1..) {
            *place = Place::Free(next);
        }
        Self { places, free: 0 }
    }

    /// The place of the next receive, if there is one.
    pub fn next(&self) -> Option<u32> {
        ((self.free as usize) < self.places.len()).then_some(self.free)
    }

    /// Adds a receive that ends at `past` in the place of [`next`](Self::next).
    pub fn push(&mut self, past: Index, receive: T) {
        let Some(place) = self.places.get_mut(self.free as usize) else {
            return;
        };
        if let Place::Free(next) = *place {
            *place = Place::Posted(past, receive);
            self.free = next;
        }
    }

    /// Takes the receive at `place` that ends at `past`, and frees its slot of `ring`. `None`, and
    /// nothing is taken: there is no such receive.
    pub fn take<M: Storage>(
        &mut self,
        ring: &mut SrqProducer<M>,
        place: u64,
        past: Index,
    ) -> Option<T> {
        let number = u32::try_from(place).ok()?;
        let place = self.places.get_mut(number as usize)?;
        let Place::Posted(end, receive) = *place else {
            return None;
        };
        if end != past {
            return None;
        }
        ring.complete_one()?;
        *place = Place::Free(self.free);
        self.free = number;
        Some(receive)
    }
}

/// A queue pair that completes receives of an SRQ.
#[derive(Debug)]
pub struct Completer {
    cq: RingId,
    /// Completions up to this count of the CQ's entries are from before the last reset.
    old: Option<u64>,
}

impl Completer {
    /// One whose receives complete in `cq`.
    pub const fn new(cq: RingId) -> Self {
        Self { cq, old: None }
    }

    /// It was reset: the completions up to the `old`th entry of its CQ are from before.
    pub fn reset(&mut self, old: Option<u64>) {
        self.old = old;
    }

    /// The `nth` entry of a CQ was read, which completes the receive that `take` takes: the receive,
    /// if its user gets it back. Nothing is taken by an entry of another CQ.
    pub fn complete<T>(
        &mut self,
        seen: Seen<Cq>,
        nth: u64,
        take: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        if seen.ring() != self.cq {
            return None;
        }
        let taken = take();
        if self.old.is_some_and(|old| nth <= old) {
            return None;
        }
        self.old = None;
        taken
    }
}
