// SPDX-License-Identifier: GPL-2.0
//! Slots that a message takes, and another one gives back.

use super::credit::Kind;
use super::credit::Pool;
use super::credit::RingId;
use super::credit::Slots;

/// An acknowledgement or completion of more than is in flight; no slot was returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bogus;

/// Slots of one kind: the free ones, and those that messages took.
///
/// A sender that shares memory with its peer needs one alone, of
/// [`RemoteData`](super::credit::RemoteData): the peer repays a slot when it posts a receive again,
/// without a message.
#[derive(Debug)]
pub struct Account<K: Kind> {
    here: Pool<K>,
    out: Slots<K>,
}

impl<K: Kind> Account<K> {
    /// For the queue pair `ring`; `count` slots, all free.
    pub const fn new(ring: RingId, count: u32) -> Self {
        Self {
            here: Pool::mint(ring, count),
            out: Slots::none(ring),
        }
    }

    /// The number of free slots.
    #[inline(always)]
    pub const fn free(&self) -> u32 {
        self.here.free()
    }

    /// The number of slots that are taken.
    #[inline(always)]
    pub const fn taken(&self) -> u32 {
        self.out.count()
    }

    /// Takes `count` slots; `false`, and takes none, if fewer are free.
    #[inline]
    pub fn pay(&mut self, count: u32) -> bool {
        let slots = self.here.take(count);
        slots.map(|slots| self.out.absorb(slots)).is_some()
    }

    /// Frees `count` slots.
    ///
    /// # Errors
    ///
    /// [`Bogus`] if fewer are taken; none is freed.
    #[inline]
    pub fn repay(&mut self, count: u32) -> Result<(), Bogus> {
        self.here.reclaim(self.out.split(count).ok_or(Bogus)?);
        Ok(())
    }

    /// Whether every slot is free or taken.
    pub const fn is_whole(&self) -> bool {
        self.here.audit(self.out.count()).is_ok()
    }
}
