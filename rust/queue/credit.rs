// SPDX-License-Identifier: GPL-2.0
//! Free slots as values.
//!
//! Free slots are counted by a value, [`Slots<K>`]: a bundle of `count` slots of one ring. It is
//! neither `Copy` nor `Clone`, and filling a slot consumes it, so no slot is used twice. Slots are
//! *minted* when their ring is created or resized, and after that only split and merged:
//!
//! ```text
//!   mint --> free --> in flight --> free          minted == free + in flight, always
//! ```
//!
//! The ring's *capacity* is the number of slots minted; its depth is a power of two, at least as
//! large. The kind of a bundle is in its type, its ring in a [`RingId`]: a ring rejects the slots
//! of another, and returns them to the caller.
//!
//! Rust's types are affine: a bundle that is dropped is lost without an error. So no local variable
//! holds one across calls; it is stored in the state of what took it, and when the ring ends,
//! [`Pool::retire`] checks that none is missing.
//!
//! The slot of a destroyed queue, whose last entries may still be unread in the ring, is freed with
//! a delay: [`DeferredFree`](super::deferred::DeferredFree) keeps it until the head has passed those
//! entries.

use core::fmt;
use core::marker::PhantomData;
use core::mem;

/// A kind of slot.
pub trait Kind: sealed::Sealed + Copy + fmt::Debug + 'static {
    /// Whether a slot may be more than one 64-byte block.
    const STRIDED: bool = false;
}

mod sealed {
    /// Only this file defines kinds.
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
    /// A work request of a shared receive queue.
    Srq(true),
    /// An entry of a completion queue.
    Cq,
    /// An entry of an event queue.
    Eq,
    /// A descriptor of a chain.
    Chained,
    /// A descriptor of a ring with a head and a tail.
    Ringed,
    /// A data message in flight in our own send queue.
    LocalData,
    /// An acknowledgement in flight in our own send queue.
    LocalAck,
    /// A receive that the peer holds ready for data.
    RemoteData,
    /// A receive that the peer holds ready for an acknowledgement.
    RemoteAck,
    /// A READ in flight in our own send queue.
    LocalRead,
    /// A WRITE in flight in our own send queue.
    LocalWrite,
}

/// Names a ring uniquely for the life of the driver: the number of an object, and the reset epoch
/// in which it was created.
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

    /// No slots, of this ring.
    #[inline(always)]
    pub const fn none(ring: RingId) -> Self {
        Self::some(ring, 0)
    }

    /// The number of slots.
    #[inline(always)]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Whether there are none.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The ring whose slots they are.
    #[inline(always)]
    pub const fn ring(&self) -> RingId {
        self.ring
    }

    /// Takes `count` out; `None`, and nothing changes, if there are fewer.
    #[inline(always)]
    pub fn split(&mut self, count: u32) -> Option<Self> {
        let left = self.count.checked_sub(count)?;
        self.count = left;
        Some(Self::some(self.ring, count))
    }

    /// Takes all, and leaves none.
    #[inline(always)]
    pub fn take(&mut self) -> Self {
        Self::some(self.ring, mem::replace(&mut self.count, 0))
    }

    /// Adds `other`. Slots of another ring are returned.
    #[inline(always)]
    pub fn merge(&mut self, other: Self) -> Result<(), Self> {
        if other.ring != self.ring {
            return Err(other);
        }
        // No overflow: a ring never has more slots than were minted.
        self.count = self.count.wrapping_add(other.count);
        Ok(())
    }

    /// [`merge`](Self::merge) of bundles that are known to be of one ring.
    #[inline(always)]
    pub(super) fn absorb(&mut self, other: Self) {
        self.count = self.count.wrapping_add(other.count);
    }
}

/// The slots found are not as many as were minted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imbalance {
    /// Slots that were minted for the ring.
    pub minted: u32,
    /// Slots that were found at its end.
    pub found: u32,
}

/// The free slots of a ring.
#[derive(Debug)]
pub struct Pool<K: Kind> {
    minted: u32,
    free: Slots<K>,
}

impl<K: Kind> Pool<K> {
    /// Mints `capacity` slots, once, when the ring is created. Only this and
    /// [`resize`](Self::resize) create slots.
    #[inline]
    pub(super) const fn mint(ring: RingId, capacity: u32) -> Self {
        Self {
            minted: capacity,
            free: Slots::some(ring, capacity),
        }
    }

    /// The ring whose slots they are.
    #[inline]
    pub const fn ring(&self) -> RingId {
        self.free.ring
    }

    /// The number of slots that were minted.
    #[inline(always)]
    pub const fn minted(&self) -> u32 {
        self.minted
    }

    /// The number of free slots.
    #[inline(always)]
    pub const fn free(&self) -> u32 {
        self.free.count
    }

    /// The number of slots that are not free.
    #[cfg(not(MODULE))]
    pub(super) const fn out(&self) -> u32 {
        self.minted.wrapping_sub(self.free.count)
    }

    /// The ring has `capacity` slots from now on, at least as many as are [`out`](Self::out).
    #[cfg(not(MODULE))]
    pub(super) fn resize(&mut self, capacity: u32) {
        self.free.count = capacity.saturating_sub(self.out());
        self.minted = capacity;
    }

    /// Takes `count` slots; `None` if there are fewer.
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

    /// [`give`](Self::give) of slots from the ring's own state.
    #[inline(always)]
    pub(super) fn reclaim(&mut self, slots: Slots<K>) {
        self.free.absorb(slots);
    }

    /// Gives slots back. Those of another ring are returned.
    #[inline(always)]
    pub fn give(&mut self, slots: Slots<K>) -> Result<(), Slots<K>> {
        self.free.merge(slots)
    }

    /// Whether every slot is free or among the `out` that are held elsewhere.
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

    /// Ends the ring: every slot must be free or in `rest`.
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
