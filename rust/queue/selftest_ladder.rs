// SPDX-License-Identifier: GPL-2.0
//! The table of tests for the rules of [`chain`](super::chain) and [`headtail`](super::headtail), as
//! that in [`selftest`](super::selftest) for the others.

use super::chain;
use super::chain::Chain;
use super::credit::RingId;
use super::headtail;
use super::headtail::owned;
use super::headtail::Headtail;
use super::outcome::depth;
use super::outcome::holds;
use super::outcome::Outcome;
use super::outcome::SelfTest;
use super::storage::Storage;
use crate::abi::stream::chain::status;
use crate::abi::stream::headtail::cmd;
use crate::abi::stream::headtail::sta;
use crate::abi::stream::Side;
use core::cell::Cell;

/// All of them.
pub const ALL: &[SelfTest] = &[("chains", chains), ("rings", rings)];

/// The memory of two descriptors of a chain, or of eight of a ring.
#[derive(Default)]
struct Words([Cell<u64>; 16]);

impl Storage for Words {
    fn words(&self) -> usize {
        self.0.len()
    }
    fn load(&self, at: usize) -> u64 {
        self.0.get(at).map_or(0, Cell::get)
    }
    fn store(&self, at: usize, word: u64) {
        if let Some(place) = self.0.get(at) {
            place.set(word);
        }
    }
    fn after_owner(&self) {}
    fn before_head(&self) {}
    fn before_tail(&self) {}
}

/// A chain whose tail is inclusive, and whose statuses are cleared.
pub fn chains() -> Outcome {
    let chain = Chain::new(RingId::new(1, 0), Words::default(), 0x1000, depth(1)?);
    let mut chain = chain.or(Err("a good chain is refused"))?;
    holds(chain.storage().load(8) == 0x1000, "the last has the first")?;
    for round in 0..3 {
        while let Some(room) = chain.room() {
            room.fill(&chain::Buffer::default());
        }
        let mut tail = 0;
        holds(chain.hand_over(|addr| tail = addr), "nothing to hand over")?;
        holds(tail == 0x1040, "not all descriptors are handed over")?;
        holds(chain.in_flight() == 2, "in flight")?;
        for place in 0..2u32 {
            holds(chain.poll().is_none(), "a status of before is taken")?;
            let at = (place as usize).wrapping_mul(8).wrapping_add(3);
            let word = u64::from(status::COMPLETE | round) << 32;
            chain.storage().store(at, word);
            let got = chain.poll().ok_or("a complete descriptor is kept")?;
            holds((got.place, got.bytes) == (place, round), "another one")?;
        }
        holds(chain.free() == 2, "free")?;
    }
    holds(chain.retire().is_ok(), "a descriptor is lost")
}

/// A ring whose tail is exclusive, with one write-back for all of a hand-over.
pub fn rings() -> Outcome {
    holds(owned(8, 3, 3) == 0, "an empty ring")?;
    holds(owned(8, 6, 1) == 3, "a ring that wraps")?;
    let ring = RingId::new(1, 0);
    let made = Headtail::new(ring, Words::default(), Side::Transmit, depth(3)?);
    let mut ring = made.or(Err("a good ring is refused"))?;
    holds(ring.capacity() == 7, "a descriptor is kept back")?;
    for _ in 0..3 {
        let mut last = 0;
        while let Some(room) = ring.room() {
            last = room.fill(&headtail::Buffer::default());
        }
        ring.hand_over(|_| {});
        holds(ring.poll().is_none(), "a done bit of before is taken")?;
        let at = (last as usize).wrapping_mul(2).wrapping_add(1);
        let word = ring.storage().load(at);
        holds(word >> 24 & u64::from(cmd::REPORT) != 0, "no write-back")?;
        ring.storage().store(at, word | u64::from(sta::DONE) << 32);
        for _ in 0..7 {
            ring.poll().ok_or("a write-back completes all before it")?;
        }
        holds(ring.poll().is_none(), "one too many")?;
    }
    holds(ring.retire().is_ok(), "a descriptor is lost")
}
