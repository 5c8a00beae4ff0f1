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

use super::credit::Imbalance;
use super::credit::RingId;
use super::credit::Ringed;
use super::descriptors::Descriptors;
use super::index::Depth;
use super::index::Index;
use super::storage::BadRing;
use super::storage::Storage;
use crate::abi::stream::headtail::cmd;
use crate::abi::stream::headtail::sta;
use crate::abi::stream::headtail::RingDescriptor;
use crate::abi::stream::Side;
use core::ops::Deref;

/// Words of a descriptor.
const WORDS: usize = RingDescriptor::WORDS;
/// The word that is written back.
const STATE: usize = 1;

/// How many of `count` descriptors the channel owns, by its registers.
#[inline]
pub fn owned(count: u32, head: u32, tail: u32) -> u32 {
    if tail >= head {
        tail.wrapping_sub(head)
    } else {
        count.wrapping_sub(head).wrapping_add(tail)
    }
}

/// A buffer for a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// The DMA address of the buffer.
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
pub struct Headtail<S: Storage> {
    descriptors: Descriptors<S, Ringed>,
    /// The channel writes each descriptor back.
    receives: bool,
    /// The second word of the descriptor before the tail.
    last: u64,
    /// Descriptors from the oldest on that a write-back has completed.
    known: u32,
}

impl<S: Storage> Deref for Headtail<S> {
    type Target = Descriptors<S, Ringed>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.descriptors
    }
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
        if capacity == 0 || capacity >= entries {
            return Err(BadRing);
        }
        Ok(Self {
            descriptors: Descriptors::new(ring, storage, depth, WORDS, capacity, first)?,
            receives: side == Side::Receive,
            last: 0,
            known: 0,
        })
    }

    /// The first word of a descriptor in the storage.
    #[inline(always)]
    fn word(&self, index: Index) -> usize {
        (self.depth().position(index) as usize).wrapping_mul(WORDS)
    }

    /// The second word of a descriptor in the storage.
    #[inline(always)]
    fn state(&self, index: Index) -> usize {
        self.word(index).wrapping_add(STATE)
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
        if self.filled() == 0 {
            return false;
        }
        if !self.receives {
            let report = RingDescriptor {
                cmd: cmd::RS,
                ..RingDescriptor::default()
            };
            let [_, report] = report.encode();
            let last = self.state(self.descriptors.last());
            self.storage().store(last, self.last | report);
        }
        self.storage().before_tail();
        write(self.place());
        self.descriptors.hand_over();
        true
    }

    /// Takes the oldest descriptor back, if the channel is done with it.
    #[inline(always)]
    pub fn poll(&mut self) -> Option<Completed> {
        if self.known == 0 {
            self.known = self.look()?;
            self.storage().after_owner();
        }
        let mut found = RingDescriptor::default();
        if self.receives {
            found = RingDescriptor::decode(&[0, self.storage().load(self.state(self.done()))]);
        }
        let completed = Completed {
            place: self.oldest(),
            bytes: found.length,
            end: found.sta & sta::EOP != 0,
        };
        self.descriptors.complete()?;
        self.known = self.known.wrapping_sub(1);
        Some(completed)
    }

    /// Looks for the next write-back; returns how many descriptors it completes.
    #[inline(always)]
    fn look(&self) -> Option<u32> {
        for i in 0..self.in_flight() {
            let found = self.storage().load(self.state(self.done().plus(i)));
            let found = RingDescriptor::decode(&[0, found]);
            if found.sta & sta::DD != 0 {
                return Some(i.wrapping_add(1));
            }
            if self.receives || found.cmd & cmd::RS != 0 {
                break;
            }
        }
        None
    }

    /// The channel was reset: all descriptors are free, and `HEAD` and `TAIL` have to be
    /// [`oldest`](Descriptors::oldest). Returns how many were filled or in flight: their buffers are the
    /// caller's again, from the oldest one on.
    pub fn reset(&mut self) -> u32 {
        self.known = 0;
        self.descriptors.reset()
    }

    /// The channel ended: checks that every descriptor is accounted for, and returns the memory.
    pub fn retire(self) -> Result<S, (S, Imbalance)> {
        self.descriptors.retire()
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
        self.ring.descriptors.place()
    }

    /// Fills it, and returns its place. Only memory is written, until the hand-over.
    #[inline(always)]
    pub fn fill(self, buffer: &Buffer) -> u32 {
        let place = self.place();
        let ring = self.ring;
        let at = ring.word(ring.tail());
        let words = RingDescriptor {
            addr: buffer.addr,
            length: buffer.bytes,
            cmd: if buffer.end { cmd::EOP } else { 0 },
            sta: 0,
        };
        let words = words.encode();
        ring.storage().store_all(at, &words);
        let [_, last] = words;
        ring.last = last;
        ring.descriptors.fill();
        place
    }
}
