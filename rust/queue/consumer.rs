// SPDX-License-Identifier: GPL-2.0
//! The software side of a ring that hardware writes: a CQ or an EQ.
//!
//! Software never writes an entry. It reads the owner word first. If the owner bit says that the
//! entry is valid, a barrier follows, and then the rest is read:
//!
//! ```text
//!   owner word --after_owner--> body --> ... --before_head--> head doorbell
//! ```
//!
//! Only a consumer can construct these three facts, which other rules require as arguments. The
//! first two are plain values, since they stay true for ever:
//!
//! - [`Seen`]: this entry was read from that ring;
//! - [`Published`]: the head doorbell has released everything before this index to the device;
//! - [`Flushed`]: everything that was read has been published. That holds only until the next read,
//!   so it borrows the consumer.
//!
//! `Published` permits slots to be freed. A CQ cannot be overrun if its head is published before
//! the SQ slots that its entries complete are free again. So
//! [`Producer::reclaim`](super::producer::Producer::reclaim) requires a `Published` that reaches
//! what was `Seen`.

use super::credit::Cq;
use super::credit::Eq;
use super::credit::Kind;
use super::credit::Pool;
use super::credit::RingId;
use super::index::Depth;
use super::index::Index;
use super::storage::BadRing;
use super::storage::Storage;
use core::marker::PhantomData;

#[cfg(not(MODULE))]
mod process;

#[cfg(not(MODULE))]
pub use process::Flushed;

/// The consumer of a CQ.
pub type CqConsumer<S> = Consumer<S, Cq, 4>;
/// The consumer of an EQ.
pub type EqConsumer<S> = Consumer<S, Eq, 2>;

const OWNER: u64 = crate::abi::entry::OWNER;

/// Entries of this ring were read; holds the index past the last.
#[derive(Clone, Copy, Debug)]
pub struct Seen<K: Kind> {
    ring: RingId,
    past: Index,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Seen<K> {
    /// The ring that it is of.
    #[inline(always)]
    pub const fn ring(self) -> RingId {
        self.ring
    }

    /// The index past them.
    #[inline(always)]
    pub const fn past(self) -> Index {
        self.past
    }
}

/// This head of this ring has been published.
#[derive(Clone, Copy, Debug)]
pub struct Published<K: Kind> {
    ring: RingId,
    head: Index,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Published<K> {
    /// The ring that it is of.
    #[inline(always)]
    pub const fn ring(self) -> RingId {
        self.ring
    }

    /// Everything before it may be written again by the device.
    #[inline(always)]
    pub const fn head(self) -> Index {
        self.head
    }
}

/// A snapshot of an entry.
#[derive(Clone, Copy, Debug)]
pub struct Entry<K: Kind, const N: usize> {
    /// The words of the entry.
    pub words: [u64; N],
    /// Evidence that it was read.
    pub seen: Seen<K>,
}

/// Whether the entry at `index` is valid. Reads one word, and does not need the consumer: the check
/// for lost interrupts uses it.
#[inline]
pub fn is_there<const N: usize, S: Storage>(storage: &S, depth: Depth, index: Index) -> bool {
    let at = depth.position(index) as usize;
    let owner = storage.load(at.wrapping_mul(N).wrapping_add(N - 1));
    depth.is_valid(owner & OWNER != 0, index)
}

/// The software side of a ring of entries of `N` words.
#[derive(Debug)]
pub struct Consumer<S: Storage, K: Kind, const N: usize> {
    storage: S,
    depth: Depth,
    ring: RingId,
    head: Index,
    published: Index,
    kind: PhantomData<fn() -> K>,
}

impl<S: Storage, K: Kind, const N: usize> Consumer<S, K, N> {
    /// Creates the consumer of a ring and its `capacity` slots, at most the depth. `storage` must
    /// be zeroed.
    pub fn new(
        ring: RingId,
        storage: S,
        depth: Depth,
        capacity: u32,
    ) -> Result<(Self, Pool<K>), BadRing> {
        Self::starting_at(ring, storage, depth, capacity, Index::ZERO)
    }

    /// [`new`](Self::new) for tests of the wrap: the ring starts at `first`, and every owner bit in
    /// `storage` is that of the pass before.
    pub fn starting_at(
        ring: RingId,
        storage: S,
        depth: Depth,
        capacity: u32,
        first: Index,
    ) -> Result<(Self, Pool<K>), BadRing> {
        let words = (depth.entries() as usize).checked_mul(N).ok_or(BadRing)?;
        if N == 0 || words > storage.words() || capacity > depth.entries() || capacity == 0 {
            return Err(BadRing);
        }
        let consumer = Self {
            storage,
            depth,
            ring,
            head: first,
            published: first,
            kind: PhantomData,
        };
        Ok((consumer, Pool::mint(ring, capacity)))
    }

    /// The ring that it is of.
    #[inline(always)]
    pub const fn ring(&self) -> RingId {
        self.ring
    }

    /// Places in the ring.
    #[inline(always)]
    pub const fn depth(&self) -> Depth {
        self.depth
    }

    /// The next entry to read.
    #[inline(always)]
    pub const fn head(&self) -> Index {
        self.head
    }

    /// Entries read since the head was published.
    #[inline(always)]
    pub const fn unpublished(&self) -> u32 {
        self.head.since(self.published)
    }

    /// The head that was published last.
    #[inline(always)]
    pub const fn published(&self) -> Published<K> {
        Published {
            ring: self.ring,
            head: self.published,
            kind: PhantomData,
        }
    }

    /// The index until which a destroyed queue's slots wait, if the device reported `until`: at most
    /// the entries of the ring past the head. Others wait behind these slots, so an index that no
    /// entry has soon would hold back all of them.
    #[inline]
    pub fn until(&self, until: Index) -> Index {
        if self.head.reaches(until) {
            return until;
        }
        let entries = until.since(self.head).min(self.depth.entries());
        self.head.plus(entries)
    }

    /// Whether an entry is waiting.
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        is_there::<N, S>(&self.storage, self.depth, self.head)
    }

    /// Reads the next entry; `None` if the device has not written it.
    #[inline(always)]
    pub fn take(&mut self) -> Option<Entry<K, N>> {
        let at = (self.depth.position(self.head) as usize).wrapping_mul(N);
        let there = |last: u64| self.depth.is_valid(last & OWNER != 0, self.head);
        let words = read(&self.storage, at, there)?;
        self.head = self.head.plus(1);
        let seen = self.seen();
        Some(Entry { words, seen })
    }

    /// Shows the entries that were not read to `look`, with the index past each; none is taken.
    pub fn visit(&self, look: impl FnMut(&[u64; N], Index)) {
        visit(&self.storage, self.depth, self.head, look);
    }

    /// Takes entries in a row, through the `view` of the ring's memory; returns how many. `takes`
    /// gets each entry and a place in `into`. The row ends when `into` is full or the ring's memory
    /// ends, at an invalid entry, at one in whose last word the bits `mask` are not `bits` (one
    /// comparison checks this and the owner bit), or where `takes` returns false. The entry at
    /// which the row ends is not taken; the next [`take`](Self::take) reads it.
    #[inline(always)]
    pub fn take_while<'a, V: Storage, T>(
        &'a mut self,
        view: impl FnOnce(&'a S) -> V,
        into: &mut [T],
        (mask, bits): (u64, u64),
        takes: impl FnMut(&mut T, &[u64; N]) -> bool,
    ) -> (usize, Seen<K>) {
        let storage = view(&self.storage);
        let position = self.depth.position(self.head);
        let to_end = self.depth.entries().wrapping_sub(position) as usize;
        let owner = if self.depth.owner(self.head) {
            OWNER
        } else {
            0
        };
        let (mask, bits) = (mask | OWNER, bits | owner);
        let count = into.len().min(to_end);
        let taken = storage.load_row(
            (position as usize).wrapping_mul(N),
            into.get_mut(..count).unwrap_or_default(),
            |last| last & mask == bits,
            takes,
        );
        self.head = self.head.plus(taken);
        (taken as usize, self.seen())
    }

    /// Evidence that every entry before the head was read.
    #[inline(always)]
    pub(super) const fn seen(&self) -> Seen<K> {
        Seen {
            ring: self.ring,
            past: self.head,
            kind: PhantomData,
        }
    }

    /// Publishes the head: `doorbell` writes it to the device, with or without an arm.
    #[inline(always)]
    pub fn publish(&mut self, doorbell: impl FnOnce(Index)) -> Published<K> {
        self.storage.before_head();
        doorbell(self.head);
        self.published = self.head;
        self.published()
    }
}

impl<S: Storage> CqConsumer<S> {
    /// Asks for an event of the next completion: `doorbell` writes a notify to the device. It
    /// carries no index and publishes nothing.
    ///
    /// Completions that are there already may cause no event. So the caller then reads until the CQ
    /// is empty, and only then waits; a completion that it has not read by then causes an event.
    #[inline]
    pub fn notify(&self, doorbell: impl FnOnce()) {
        doorbell();
        self.storage.after_notify();
    }
}

/// Shows the entries from `from` on to `look`, with the index past each. Does not need the consumer,
/// which may be in an earlier ring.
pub fn visit<const N: usize, S: Storage>(
    storage: &S,
    depth: Depth,
    from: Index,
    mut look: impl FnMut(&[u64; N], Index),
) {
    for ahead in 0..depth.entries() {
        let index = from.plus(ahead);
        let at = (depth.position(index) as usize).wrapping_mul(N);
        let there = |last: u64| depth.is_valid(last & OWNER != 0, index);
        match read(storage, at, there) {
            Some(words) => look(&words, index.plus(1)),
            None => return,
        }
    }
}

/// Reads the entry whose words begin at `at`, if `there` accepts its last word.
#[inline(always)]
fn read<V: Storage, const N: usize>(
    storage: &V,
    at: usize,
    there: impl FnOnce(u64) -> bool,
) -> Option<[u64; N]> {
    storage.load_entry(at, there)
}
