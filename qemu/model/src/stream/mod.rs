// SPDX-License-Identifier: GPL-2.0
//! The function `qpair-stream`: pairs of channels that move frames from memory to memory.
//!
//! A transmit channel reads the buffers of a frame into its store, and passes the whole frame to
//! the receive channel of its peer, whose store holds one frame too. The receive channel writes it
//! to the buffers of its own descriptors. So each channel works for itself, and a channel that
//! stops takes none of another's bytes with it.
//!
//! ```text
//!   registers ---> channel <--- descriptors             rules: qpair_queue::headtail
//!                     |
//!   buffers --turn--> store --> store --turn--> buffers, status --> interrupt
//!                  transmit     receive
//! ```
//!
//! A receive channel that has no descriptor keeps its frame, and the transmit channels behind it
//! keep theirs. One with a head and a tail drops the frame instead, if software has asked for that.
//! The channels share the core: a turn has a bounded number of descriptors and at most one frame,
//! and several transmit channels that wait for one receive channel take turns too.
//!
//! The files, in order: a file imports only files above it.
//!
//! | file | has |
//! |---|---|
//! | `bus` | guest memory, counters |
//! | `descriptor` | what both kinds of channels have |
//! | `chain` | a chain: registers, descriptors, interrupt |
//! | `headtail` | a ring with a head and a tail: the same |
//! | `channel` | a channel of either kind, and its store |
//! | `function` | registers, turns, interrupts, reset |

mod bus;
mod chain;
mod channel;
mod descriptor;
mod function;
mod headtail;

pub use self::function::Stream;
use crate::config::BadConfig;
use qpair_abi::stream::Kind;
use qpair_abi::stream::MAX_PAIRS;

/// Bytes of the largest frame.
const LIMIT_FRAME: u32 = 16384;
/// Descriptors of the largest ring with a head and a tail.
const LIMIT_RING: u32 = 4096;

/// The kinds of the pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinds {
    /// All are of this kind.
    All(Kind),
    /// Even pairs are chains, odd ones rings with a head and a tail.
    Mixed,
}

impl Kinds {
    /// The kind of a pair.
    pub fn of(self, pair: u32) -> Kind {
        match self {
            Self::All(kind) => kind,
            Self::Mixed if pair % 2 == 0 => Kind::Chain,
            Self::Mixed => Kind::Headtail,
        }
    }
}

/// The properties of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Pairs of channels.
    pub pairs: u32,
    /// Their kinds.
    pub kinds: Kinds,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            pairs: 2,
            kinds: Kinds::Mixed,
        }
    }
}

impl Config {
    /// Checks that all properties are in range.
    pub fn check(&self) -> Result<(), BadConfig> {
        if self.pairs == 0 || self.pairs > MAX_PAIRS {
            return Err(BadConfig {
                property: "channels",
                least: 1,
                most: MAX_PAIRS.into(),
            });
        }
        Ok(())
    }
}
