// SPDX-License-Identifier: GPL-2.0
//! Free slots as values.
//!
//! May I write there? is answered by a count of free slots that somebody gave
//! back, and here that count is a value, [`Slots<K>`]: a bundle of `count` slots
//! of one ring. It is neither `Copy` nor `Clone`, so what fills a slot takes one, and it cannot be used twice.
//! Slots are *minted* once, when their ring is made, and after that only split and merged:
//!
//! ```text
//!   mint --> free --> in flight --> free          minted == free + in flight, always
//! ```
//!
//! How many are minted is the ring's *capacity*; its depth is a power of two that is at least as
//! large. A bundle knows its kind by type and its ring by [`RingId`]: a slot that
//! comes back to a ring of which it is not is refused, and handed back to who brought it.
//!
//! Rust's types are affine: a bundle that is dropped is lost in silence. So nobody
//! holds one in a local variable for longer than a call; it is stored in the state
//! of whoever took it, and when the ring ends, [`Pool::retire`] asks for all of them.
//!
//! A ring whose entries must still be *passed* before a slot is free (that of a
//! destroyed queue, whose last entries may lie unread) keeps it in a [`Limbo`]
//! until the head has passed.

use super::consumer::Published;
use super::index::Index;
use super::mutant::mutant;
use core::fmt;
use core::marker::PhantomData;
use core::mem;

/// A kind of slot.
pub trait Kind: sealed::Sealed + Copy + fmt::Debug + 'static {
    /// Whether a slot may be more than one 64-byte block.
    const STRIDED: bool = false;
}

mod sealed {
    /// Kinds are those of this file.
    pub trait Sealed {}
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident $(($strided:literal))?),* $(,)?) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {}
        impl sealed::Sealed for $name {}
        impl Kind for $name {
            $( const STRIDED: bool = $strided; )?
        }
    )* };
}

kinds! {
    /// A 64-byte block of a send queue.
    Sq,
    /// A work request of a receive queue.
    Rq(true),
    /// An entry of a completion queue.
    Cq,
    /// An entry of an event queue.
    Eq,
    /// A data message that may be under way in our own send queue.
    LocalData,
    /// An acknowledgement that may be under way in our own send queue.
    LocalAck,
    /// A receive that the peer holds ready for data.
    RemoteData,
    /// A receive that the peer holds ready for an acknowledgement.
    RemoteAck,
}

/// Which ring, for as long as the driver lives: an object's number, and the epoch
/// of the reset that it was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingId(u64);

impl RingId {
    /// Names the ring of object `number` in reset epoch `epoch`.
    #[inline]
    pub const fn new(number: u32, epoch: u32) -> Self {
        Self((epoch as u64) << 32 | number as u64)
    }
}

/// A bundle of free slots of one ring.
#[must_use = "slots that are dropped are lost to their ring"]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub struct Slots<K: Kind> {
    count: u32,
    ring: RingId,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> fmt::Debug for Slots<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.count)
    }
}

impl<K: Kind> Slots<K> {
    #[inline(always)]
    const fn some(ring: RingId, count: u32) -> Self {
        Self {
            count,
            ring,
            kind: PhantomData,
        }
    }

    /// None, of this ring: what a holder begins with.
    #[inline(always)]
    pub const fn none(ring: RingId) -> Self {
        Self::some(ring, 0)
    }

    /// How many.
    #[inline(always)]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Whether there are none.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Of which ring.
    #[inline(always)]
    pub const fn ring(&self) -> RingId {
        self.ring
    }

    /// Takes `count` out; `None`, and nothing moves, if there are not so many.
    #[inline(always)]
    pub fn split(&mut self, count: u32) -> Option<Self> {
        let left = self.count.checked_sub(count)?;
        if !mutant!(SlotSplitTwice) {
            self.count = left;
        }
        Some(Self::some(self.ring, count))
    }

    /// Takes all.
    #[inline(always)]
    pub fn take(&mut self) -> Self {
        Self::some(self.ring, mem::replace(&mut self.count, 0))
    }

    /// Puts `other` in. Slots of another ring come back.
    #[inline(always)]
    pub fn merge(&mut self, other: Self) -> Result<(), Self> {
        if other.ring != self.ring && !mutant!(SlotOfAnotherRing) {
            return Err(other);
        }
        // No overflow: of one ring there are never more than were minted.
        self.count = self.count.wrapping_add(other.count);
        Ok(())
    }

    /// [`merge`](Self::merge) where both come out of one holder, and so are of one ring.
    #[inline(always)]
    pub(super) fn absorb(&mut self, other: Self) {
        self.count = self.count.wrapping_add(other.count);
    }
}

/// Slots were lost, or made of nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imbalance {
    /// What the ring began with.
    pub minted: u32,
    /// What there is.
    pub found: u32,
}

/// The slots of a ring that nobody holds.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub struct Pool<K: Kind> {
    minted: u32,
    free: Slots<K>,
}

impl<K: Kind> Pool<K> {
    /// The one place where slots are made: `capacity` of them. Called by whoever makes the ring, once.
    #[inline]
    pub(super) const fn mint(ring: RingId, capacity: u32) -> Self {
        Self {
            minted: capacity,
            free: Slots::some(ring, capacity),
        }
    }

    /// Of which ring.
    #[inline]
    pub const fn ring(&self) -> RingId {
        self.free.ring
    }

    /// How many there were.
    #[inline(always)]
    pub const fn minted(&self) -> u32 {
        self.minted
    }

    /// How many are here.
    #[inline(always)]
    pub const fn free(&self) -> u32 {
        self.free.count
    }

    /// Takes `count`, or nothing.
    #[inline(always)]
    pub fn take(&mut self, count: u32) -> Option<Slots<K>> {
        self.free.split(count)
    }

    /// Takes `count`, or as many as there are.
    #[inline]
    pub fn take_up_to(&mut self, count: u32) -> Slots<K> {
        let count = count.min(self.free.count);
        self.free
            .split(count)
            .unwrap_or(Slots::none(self.free.ring))
    }

    /// [`give`](Self::give) where the ring's own state held them.
    #[inline(always)]
    pub(super) fn reclaim(&mut self, slots: Slots<K>) {
        self.free.absorb(slots);
    }

    /// Gives slots back. Those of another ring are refused.
    #[inline(always)]
    pub fn give(&mut self, slots: Slots<K>) -> Result<(), Slots<K>> {
        self.free.merge(slots)
    }

    /// Whether every slot is here or among the `out` that their holders report.
    #[inline]
    pub const fn audit(&self, out: u32) -> Result<(), Imbalance> {
        let found = self.free.count.wrapping_add(out);
        if found != self.minted {
            return Err(Imbalance {
                minted: self.minted,
                found,
            });
        }
        Ok(())
    }

    /// The ring ends: every slot must have come back, but those in `rest`.
    #[inline]
    pub fn retire(self, rest: Slots<K>) -> Result<(), Imbalance> {
        let out = if rest.ring == self.free.ring {
            rest.count
        } else {
            0
        };
        self.audit(out)
    }
}

/// Slots whose last entries may still lie unread in the ring.
///
/// Each comes with the producer index that the destroy reported, and is free once a
/// head has been published that reaches it. Two buckets are enough for any number of them, without
/// memory for each: those that wait for a fixed index, and those that came since, which
/// wait for the farthest of theirs and become the first bucket when that one is
/// let go. So a steady stream of destroys delays nobody by more than one bucket.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub struct Limbo<K: Kind> {
    first: Slots<K>,
    first_until: Index,
    later: Slots<K>,
    later_until: Index,
}

impl<K: Kind> Limbo<K> {
    /// Empty.
    #[inline]
    pub const fn new(ring: RingId) -> Self {
        Self {
            first: Slots::none(ring),
            first_until: Index::ZERO,
            later: Slots::none(ring),
            later_until: Index::ZERO,
        }
    }

    /// How many wait.
    #[inline]
    pub const fn count(&self) -> u32 {
        self.first.count.wrapping_add(self.later.count)
    }

    /// Takes in `slots` until the head reaches `until`. Slots of another ring come back.
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

    /// Moves it as a whole; see [`Poller::rotate`](super::poll::Poller::rotate).
    #[cfg(feature = "explore")]
    pub fn rotate(&mut self, by: u32) {
        let moved = |slots: &Slots<K>, until: Index| match slots.is_empty() {
            true => Index::ZERO,
            false => until.plus(by),
        };
        self.first_until = moved(&self.first, self.first_until);
        self.later_until = moved(&self.later, self.later_until);
    }

    /// What the publication of a head sets free.
    #[inline]
    pub fn release(&mut self, published: Published<K>) -> Slots<K> {
        let mut freed = Slots::none(self.first.ring);
        // Where the first bucket is empty, so is the other.
        if self.first.is_empty() || published.ring() != freed.ring {
            return freed;
        }
        while !self.first.is_empty() {
            let mut until = self.first_until;
            if mutant!(LimboTooLate) {
                until = until.plus(1);
            }
            if !published.head().reaches(until) && !mutant!(LimboTooEarly) {
                break;
            }
            freed.absorb(self.first.take());
            self.first = self.later.take();
            self.first_until = self.later_until;
        }
        freed
    }
}
