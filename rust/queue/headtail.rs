// SPDX-License-Identifier: GPL-2.0
//! The software side of a ring with a head and a tail, which are indices in registers.
//!
//! A descriptor is in one of three states, and each state is a bundle of slots:
//!
//! ```text
//!         fill              hand_over                poll
//!   free -----> filled -----------------> in flight -----> free
//!         words           TAIL is past              it is written back,
//!         written         the last of them          or a later one is
//! ```
//!
//! - The channel owns the descriptors from the head to the tail, the tail **excluded**
//!   ([`owned`]). With all of them in flight the tail would be equal to the head, which is an
//!   empty ring. So a ring of `depth` descriptors has `depth - 1` slots.
//! - The channel writes a transmitted descriptor back only where that was asked for. A write-back
//!   completes all descriptors before it too. The last descriptor of each hand-over asks for it:
//!   so each batch costs one write-back, and no descriptor waits for a later one.
//! - The channel writes each received descriptor back.
//! - [`Room::fill`] writes the done bit as 0, so that of the pass before is never taken for that of
//!   this pass.
//!
//! Software does not read the head from the device: a read of a register costs more than a look at
//! memory, and the head is moved before the write-backs are in memory.

use super::consumer::BadRing;
use super::credit::Imbalance;
use super::credit::Pool;
use super::credit::RingId;
use super::credit::Ringed;
use super::credit::Slots;
use super::index::Depth;
use super::index::Index;
use super::mutant::mutant;
use super::storage::Storage;
use crate::abi::stream::headtail::cmd;
use crate::abi::stream::headtail::sta;
use crate::abi::stream::headtail::RingDescriptor;
use crate::abi::stream::Side;

/// Words of a descriptor.
const WORDS: usize = RingDescriptor::WORDS;
/// The word that is written back.
const STATE: usize = 1;

/// How many of `count` descriptors the channel owns, by its registers.
#[inline]
pub fn owned(count: u32, head: u32, tail: u32) -> u32 {
    if head == tail && mutant!(EmptyIsFull) {
        return count;
    }
    if tail >= head {
        tail.wrapping_sub(head)
    } else {
        count.wrapping_sub(head).wrapping_add(tail)
    }
}

/// A buffer for a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// Its DMA address.
    pub addr: u64,
    /// Transmit: its bytes. All receive buffers of a ring have as many as `SRRCTL` says.
    pub bytes: u16,
    /// Transmit: the frame ends with it.
    pub end: bool,
}

/// A descriptor that the channel is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Its place in the ring, as [`Room::fill`] returned it.
    pub place: u32,
    /// Receive: bytes of the frame in the buffer, **as the device says**: a receiver compares them
    /// with its buffer.
    pub bytes: u16,
    /// Receive: the frame ends with it.
    pub end: bool,
}

/// The software side of a ring with a head and a tail.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub struct Headtail<S: Storage> {
    storage: S,
    depth: Depth,
    /// The channel writes each descriptor back.
    receives: bool,
    pool: Pool<Ringed>,
    filled: Slots<Ringed>,
    flight: Slots<Ringed>,
    /// The descriptor that is filled next.
    tail: Index,
    /// The oldest in flight.
    done: Index,
    /// The second word of the descriptor before the tail.
    last: u64,
    /// Descriptors from the oldest on that a write-back has completed.
    known: u32,
}

impl<S: Storage> Headtail<S> {
    /// Creates a ring of `depth` descriptors, at least 2, in `storage`.
    pub fn new(ring: RingId, storage: S, side: Side, depth: Depth) -> Result<Self, BadRing> {
        let capacity = depth.entries().wrapping_sub(1);
        Self::starting_at(ring, storage, side, depth, capacity, Index::ZERO)
    }

    /// Creates one that uses `capacity` descriptors at a time, for tests; the ring starts at
    /// `first`.
    pub fn starting_at(
        ring: RingId,
        storage: S,
        side: Side,
        depth: Depth,
        capacity: u32,
        first: Index,
    ) -> Result<Self, BadRing> {
        let entries = depth.entries();
        let words = (entries as usize).checked_mul(WORDS).ok_or(BadRing)?;
        if words > storage.words() || capacity == 0 || capacity >= entries {
            return Err(BadRing);
        }
        let minted = if mutant!(RingOneMore) {
            capacity.wrapping_add(1)
        } else {
            capacity
        };
        Ok(Self {
            storage,
            depth,
            receives: side == Side::Receive,
            pool: Pool::mint(ring, minted),
            filled: Slots::none(ring),
            flight: Slots::none(ring),
            tail: first,
            done: first,
            last: 0,
            known: 0,
        })
    }

    /// The first word of a descriptor in the storage.
    #[inline(always)]
    fn word(&self, index: Index) -> usize {
        (self.depth.position(index) as usize).wrapping_mul(WORDS)
    }

    /// The second word of a descriptor in the storage.
    #[inline(always)]
    fn state(&self, index: Index) -> usize {
        self.word(index).wrapping_add(STATE)
    }

    /// Places in the ring.
    #[inline(always)]
    pub const fn depth(&self) -> Depth {
        self.depth
    }

    /// Descriptors that may be filled now.
    #[inline(always)]
    pub const fn free(&self) -> u32 {
        self.pool.free()
    }

    /// Descriptors that are filled and not handed over.
    #[inline(always)]
    pub const fn filled(&self) -> u32 {
        self.filled.count()
    }

    /// Descriptors that the channel owns, or has completed unseen.
    #[inline(always)]
    pub const fn in_flight(&self) -> u32 {
        self.flight.count()
    }

    /// Descriptors in all: one less than the depth.
    #[inline(always)]
    pub const fn capacity(&self) -> u32 {
        self.pool.minted()
    }

    /// The ring's memory.
    #[inline(always)]
    pub const fn storage(&self) -> &S {
        &self.storage
    }

    /// A descriptor to fill; `None` if software has none. Takes it only when it is filled.
    #[inline(always)]
    pub fn room(&mut self) -> Option<Room<'_, S>> {
        (self.free() != 0).then_some(Room { ring: self })
    }

    /// Hands over everything filled since the last call: `write` writes the index to `TAIL`. Does
    /// nothing and returns false if nothing was filled.
    #[inline(always)]
    pub fn hand_over(&mut self, write: impl FnOnce(u32)) -> bool {
        if self.filled.is_empty() {
            return false;
        }
        if !self.receives && !mutant!(ReportForgotten) {
            let last = Index::new(self.tail.get().wrapping_sub(1));
            let report = RingDescriptor {
                cmd: cmd::REPORT,
                ..RingDescriptor::default()
            };
            let [_, report] = report.encode();
            self.storage.store(self.state(last), self.last | report);
        }
        if !mutant!(RingTailEarly) {
            self.storage.before_tail();
        }
        write(self.depth.position(self.tail));
        let filled = self.filled.take();
        self.flight.absorb(filled);
        true
    }

    /// Takes the oldest descriptor back, if the channel is done with it.
    #[inline(always)]
    pub fn poll(&mut self) -> Option<Completed> {
        if self.known == 0 {
            self.known = self.look()?;
            self.storage.after_owner();
        }
        let slot = self.flight.split(1)?;
        let mut found = RingDescriptor::default();
        if self.receives {
            found = RingDescriptor::decode(&[0, self.storage.load(self.state(self.done))]);
        }
        let completed = Completed {
            place: self.depth.position(self.done),
            bytes: found.length,
            end: found.sta & sta::END != 0,
        };
        self.pool.reclaim(slot);
        self.known = self.known.wrapping_sub(1);
        self.done = self.done.plus(1);
        Some(completed)
    }

    /// Looks for the next write-back; returns how many descriptors it completes.
    #[inline(always)]
    fn look(&self) -> Option<u32> {
        for i in 0..self.flight.count() {
            let found = self.storage.load(self.state(self.done.plus(i)));
            let found = RingDescriptor::decode(&[0, found]);
            if found.sta & sta::DONE != 0 {
                return Some(i.wrapping_add(1));
            }
            if self.receives || found.cmd & cmd::REPORT != 0 {
                break;
            }
        }
        None
    }

    /// The channel was reset: all descriptors are free, and `HEAD` and `TAIL` have to be
    /// [`oldest`](Self::oldest). Returns how many were filled or in flight: their buffers are the
    /// caller's again, from the oldest one on.
    pub fn reset(&mut self) -> u32 {
        let lost = self.flight.take();
        let count = lost.count().wrapping_add(self.filled.count());
        self.pool.reclaim(lost);
        self.pool.reclaim(self.filled.take());
        self.tail = self.done;
        self.known = 0;
        count
    }

    /// The place of the oldest descriptor that is not free.
    #[inline]
    pub const fn oldest(&self) -> u32 {
        self.depth.position(self.done)
    }

    /// Moves the ring by whole passes; see [`Poller::rotate`](super::poll::Poller::rotate).
    #[cfg(feature = "explore")]
    pub fn rotate(&mut self) {
        let passes = self.done.get() & !self.depth.entries().wrapping_sub(1);
        self.done = Index::new(self.done.get().wrapping_sub(passes));
        self.tail = Index::new(self.tail.get().wrapping_sub(passes));
    }

    /// Whether every descriptor is free, filled or in flight.
    #[inline]
    pub const fn audit(&self) -> Result<(), Imbalance> {
        let out = self.filled.count().wrapping_add(self.flight.count());
        self.pool.audit(out)
    }

    /// The channel ended: checks that every descriptor is accounted for, and returns the memory.
    pub fn retire(mut self) -> Result<S, (S, Imbalance)> {
        let mut rest = self.filled.take();
        rest.absorb(self.flight.take());
        match self.pool.retire(rest) {
            Ok(()) => Ok(self.storage),
            Err(imbalance) => Err((self.storage, imbalance)),
        }
    }
}

/// A descriptor that software has.
#[must_use = "it is filled, or stays free"]
#[derive(Debug)]
pub struct Room<'a, S: Storage> {
    ring: &'a mut Headtail<S>,
}

impl<S: Storage> Room<'_, S> {
    /// Its place in the ring.
    #[inline(always)]
    pub const fn place(&self) -> u32 {
        self.ring.depth.position(self.ring.tail)
    }

    /// Fills it, and returns its place. Only memory is written, until the hand-over.
    #[inline(always)]
    pub fn fill(self, buffer: &Buffer) -> u32 {
        let place = self.place();
        let ring = self.ring;
        let at = ring.word(ring.tail);
        let sta = if mutant!(RingDoneBefore) {
            RingDescriptor::decode(&ring.storage.load_all(at)).sta
        } else {
            0
        };
        let words = RingDescriptor {
            addr: buffer.addr,
            length: buffer.bytes,
            cmd: if buffer.end { cmd::END } else { 0 },
            sta,
        };
        let words = words.encode();
        ring.storage.store_all(at, &words);
        let [_, last] = words;
        ring.last = last;
        let slot = ring.pool.take_up_to(1);
        ring.filled.absorb(slot);
        ring.tail = ring.tail.plus(1);
        place
    }
}
