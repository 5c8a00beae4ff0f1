// SPDX-License-Identifier: GPL-2.0

//! The KUnit suite of the module: a rule of its rings, as that of the module `qpair` has those of
//! queue pairs. It neither allocates nor panics.

use crate::{
    abi::stream::chain::status,
    queue::{
        chain::{
            self,
            Chain, //
        },
        credit::RingId,
        index::Depth,
        storage::Storage, //
    },
};
use core::cell::Cell;
use kernel::prelude::*;

/// What did not hold.
type Outcome = Result<(), &'static str>;

fn holds(condition: bool, what: &'static str) -> Outcome {
    if condition {
        Ok(())
    } else {
        Err(what)
    }
}

/// The memory of two descriptors of a chain.
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

// The macro writes the C side of the suite.
#[allow(unsafe_code)]
#[kunit_tests(qpair_stream_rules)]
mod rules {
    use super::*;

    /// A chain whose tail is inclusive, and whose statuses are cleared.
    #[test]
    fn chains() -> Outcome {
        let depth = Depth::from_log2(1).ok_or("a valid depth is refused")?;
        let chain = Chain::new(RingId::new(1, 0), Words::default(), 0x1000, depth);
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
}
