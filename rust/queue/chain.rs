// SPDX-License-Identifier: GPL-2.0
//! The software side of a chain: descriptors that are linked, a tail that is an address.
//!
//! A descriptor is in one of three states, and each state is a bundle of slots:
//!
//! ```text
//!         fill              hand_over                poll
//!   free -----> filled -----------------> in flight -----> free
//!         words           TAILDESC is               its status is
//!         written         the last of them          complete
//! ```
//!
//! - The channel owns the descriptors from the current one to the tail, **both included**. So a
//!   chain of `depth` descriptors has `depth` slots: with all of them in flight the tail is the
//!   descriptor before the current one, which differs from an empty chain.
//! - The channel sets [`status::COMPLETE`] and never looks at it again but to halt where it finds
//!   it set. Software clears it: [`Room::fill`] writes the status as 0, with the control word, while
//!   the descriptor is its own.
//! - Only a descriptor in flight is polled. The status of a free one is that of its last use.
//!
//! Descriptors complete in order, so one index is enough to find the oldest in flight.

use super::credit::Chained;
use super::credit::Imbalance;
use super::credit::RingId;
use super::descriptors::Descriptors;
use super::index::Depth;
use super::index::Index;
use super::storage::BadRing;
use super::storage::Storage;
use crate::abi::stream::chain::control;
use crate::abi::stream::chain::status;
use crate::abi::stream::chain::ChainDescriptor;
use crate::abi::stream::chain::ALIGN;
use core::ops::Deref;

/// Words of a descriptor.
const WORDS: usize = ChainDescriptor::WORDS;
/// The word with the control and the status.
const STATE: usize = 3;
/// The status in that word.
const STATUS_SHIFT: u32 = 32;
/// How often [`acknowledge`] clears at most.
const CLEARS: u32 = 4;

/// Acknowledges the message of a chain, before the descriptors are polled. `clear` writes all causes
/// as 1, and `is_set` reads whether one is set.
///
/// A cause that becomes set while another one is sends no message. A register write is posted: until
/// the read after it returns, the causes may still be set. So a cause is left only to a read that
/// finds none. A descriptor that completes after that read sends another message; one that completed
/// before it is in memory when the read returns.
///
/// Returns whether none is set. Otherwise the channel sets causes as fast as they are cleared, and
/// the caller polls again.
#[inline]
pub fn acknowledge(mut clear: impl FnMut(), mut is_set: impl FnMut() -> bool) -> bool {
    for _ in 0..CLEARS {
        clear();
        if !is_set() {
            return true;
        }
    }
    false
}

/// A buffer for a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// The DMA address of the buffer.
    pub addr: u64,
    /// Its bytes, at most [`control::LENGTH`].
    pub bytes: u32,
    /// Transmit: a frame starts with it.
    pub start: bool,
    /// Transmit: the frame ends with it.
    pub end: bool,
    /// Transmit: the user words of the frame; those of its first buffer count.
    pub user: [u32; 5],
}

/// A descriptor that the channel completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Its place in the chain, as [`Room::fill`] returned it.
    pub place: u32,
    /// Bytes that were moved, **as the device says**: a receiver compares them with its buffer.
    pub bytes: u32,
    /// Receive: a frame starts with it.
    pub start: bool,
    /// Receive: the frame ends with it.
    pub end: bool,
    /// Receive: the user words of the frame, where it ends.
    pub user: [u32; 5],
}

/// The software side of a chain.
#[derive(Debug)]
pub struct Chain<S: Storage> {
    descriptors: Descriptors<S, Chained>,
    /// DMA address of the first descriptor.
    base: u64,
}

impl<S: Storage> Deref for Chain<S> {
    type Target = Descriptors<S, Chained>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.descriptors
    }
}

impl<S: Storage> Chain<S> {
    /// Creates a chain of `depth` descriptors in `storage`, whose DMA address is `base`, and links
    /// them.
    pub fn new(ring: RingId, storage: S, base: u64, depth: Depth) -> Result<Self, BadRing> {
        Self::starting_at(ring, storage, base, depth, depth.entries(), Index::ZERO)
    }

    /// Creates one that uses `capacity` descriptors at a time, for tests; the chain starts at
    /// `first`.
    pub fn starting_at(
        ring: RingId,
        storage: S,
        base: u64,
        depth: Depth,
        capacity: u32,
        first: Index,
    ) -> Result<Self, BadRing> {
        let entries = depth.entries();
        let bytes = u64::from(entries).wrapping_mul(ALIGN);
        let fits = base % ALIGN == 0 && base.checked_add(bytes).is_some();
        if !fits || capacity == 0 || capacity > entries {
            return Err(BadRing);
        }
        let descriptors = Descriptors::new(ring, storage, depth, WORDS, capacity, first)?;
        let chain = Self { descriptors, base };
        for place in 0..entries {
            let index = Index::new(place);
            let next = chain.address(index.plus(1));
            let mut words = [0; WORDS];
            if let Some(word) = words.first_mut() {
                *word = next;
            }
            chain.storage().store_all(chain.word(index), &words);
        }
        Ok(chain)
    }

    /// The DMA address of a descriptor.
    #[inline(always)]
    fn address(&self, index: Index) -> u64 {
        let at = u64::from(self.depth().position(index)).wrapping_mul(ALIGN);
        self.base.wrapping_add(at)
    }

    /// The first word of a descriptor in the storage.
    #[inline(always)]
    fn word(&self, index: Index) -> usize {
        (self.depth().position(index) as usize).wrapping_mul(WORDS)
    }

    /// The status of a descriptor, given its first word.
    #[inline(always)]
    fn status(&self, at: usize) -> u32 {
        (self.storage().load(at.wrapping_add(STATE)) >> STATUS_SHIFT) as u32
    }

    /// The DMA address of the oldest descriptor in flight, or of the first to be handed over: what
    /// `CURDESC` has to be when the channel starts.
    #[inline]
    pub fn current(&self) -> u64 {
        self.address(self.done())
    }

    /// A descriptor to fill; `None` if software has none. Takes it only when it is filled.
    #[inline(always)]
    pub fn room(&mut self) -> Option<Room<'_, S>> {
        (self.free() != 0).then_some(Room { chain: self })
    }

    /// Hands over everything filled since the last call: `write` writes the address to `TAILDESC`.
    /// Does nothing and returns false if nothing was filled.
    #[inline(always)]
    pub fn hand_over(&mut self, write: impl FnOnce(u64)) -> bool {
        if self.filled() == 0 {
            return false;
        }
        let last = self.last();
        self.storage().before_tail();
        write(self.address(last));
        self.descriptors.hand_over();
        true
    }

    /// Takes the oldest descriptor back, if the channel has completed it.
    #[inline(always)]
    pub fn poll(&mut self) -> Option<Completed> {
        if self.in_flight() == 0 {
            return None;
        }
        let at = self.word(self.done());
        let state = self.status(at);
        if state & status::COMPLETE == 0 {
            return None;
        }
        self.storage().after_owner();
        let mut user = [0; 5];
        if state & status::EOF != 0 {
            let words: [u64; WORDS] =
                core::array::from_fn(|i| self.storage().load(at.wrapping_add(i)));
            let all = ChainDescriptor::decode(&words);
            user = [all.app0, all.app1, all.app2, all.app3, all.app4];
        }
        let completed = Completed {
            place: self.oldest(),
            bytes: state & status::LENGTH,
            start: state & status::SOF != 0,
            end: state & status::EOF != 0,
            user,
        };
        self.descriptors.complete()?;
        Some(completed)
    }

    /// The channel was reset: all descriptors are free, and it starts at [`current`](Self::current).
    /// Returns how many were filled or in flight: their buffers are the caller's again, from the
    /// oldest one on.
    pub fn reset(&mut self) -> u32 {
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
    chain: &'a mut Chain<S>,
}

impl<S: Storage> Room<'_, S> {
    /// Its place in the chain.
    #[inline(always)]
    pub const fn place(&self) -> u32 {
        self.chain.descriptors.place()
    }

    /// Fills it, and returns its place. Only memory is written, until the hand-over.
    #[inline(always)]
    pub fn fill(self, buffer: &Buffer) -> u32 {
        let place = self.place();
        let chain = self.chain;
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        let control = buffer.bytes & control::LENGTH
            | flag(buffer.start, control::SOF)
            | flag(buffer.end, control::EOF);
        let at = chain.word(chain.tail());
        let [app0, app1, app2, app3, app4] = buffer.user;
        let next = chain.address(chain.tail().plus(1));
        let words = ChainDescriptor {
            next,
            addr: buffer.addr,
            control,
            status: 0,
            app0,
            app1,
            app2,
            app3,
            app4,
        };
        chain.storage().store_all(at, &words.encode());
        chain.descriptors.fill();
        place
    }
}
