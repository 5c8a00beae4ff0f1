// SPDX-License-Identifier: GPL-2.0
//! The facts of the second function, `qpair-stream`: pairs of channels that move frames.
//!
//! A pair has a transmit and a receive channel. What the transmit channel of a pair reads from
//! memory, the receive channel of its peer writes to memory; the peer is the pair itself, unless a
//! register names another. There are no commands and no queues of events: registers program it all.
//!
//! | file | fixes |
//! |---|---|
//! | [`regs`] | the registers of the whole function |
//! | [`chain`] | channels of linked descriptors: registers, descriptor |
//! | [`headtail`] | channels with a head and a tail: registers, descriptor |
//! | `counters` | the function's counters |
//!
//! Each channel has a block of [`BLOCK_BYTES`] in BAR 0, which begins at [`block`], and the MSI-X
//! vector [`vector`]. The last register of a block, and the one before it, are the same for both
//! kinds.

pub mod chain;
#[cfg(not(MODULE))]
pub mod counters;
pub mod headtail;
pub mod regs;

use super::layout;

/// PCI vendor of the function, as of the other one.
pub const PCI_VENDOR: u32 = 0x1234;
/// PCI device of the function.
pub const PCI_DEVICE: u32 = 0x5151;
/// PCI revision of the function.
pub const PCI_REVISION: u8 = 1;

/// BAR of the registers.
pub const BAR_REGS: u32 = 0;
/// BAR of the MSI-X table and its pending bits.
pub const BAR_MSIX: u32 = 4;

/// Where the blocks of channels begin in BAR 0.
pub const BLOCKS: u64 = 0x1000;
/// Bytes of a channel's block.
pub const BLOCK_BYTES: u64 = 64;
/// Most pairs of channels of a function.
pub const MAX_PAIRS: u32 = 64;

/// The side of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Side {
    /// Reads frames from memory.
    Transmit = 0,
    /// Writes frames to memory.
    Receive = 1,
}

/// The offset in BAR 0 of a channel's block.
#[inline]
pub const fn block(pair: u32, side: Side) -> u64 {
    BLOCKS.wrapping_add((vector(pair, side) as u64).wrapping_mul(BLOCK_BYTES))
}

/// The MSI-X vector of a channel.
#[inline]
pub const fn vector(pair: u32, side: Side) -> u32 {
    pair.wrapping_mul(2).wrapping_add(side as u32)
}

codes! {
    /// The kind of a channel, in its register `KIND`.
    pub enum Kind {
        /// Descriptors that are linked; the tail is an address, and inclusive.
        Chain = 1, "chain";
        /// A ring with a head and a tail; the tail is an index, and exclusive.
        Headtail = 2, "headtail";
    }
}

codes! {
    /// Why a channel halted, in its register `SR`.
    pub enum Cause {
        /// It did not, or software stopped it.
        None = 0, "no error";
        /// The ring makes no sense: its address is not a multiple of 128, its bytes are none or
        /// not a multiple of 128, it has too many descriptors, or `HEAD` is outside of it.
        Ring = 1, "bad ring";
        /// `TAIL` is outside of the ring, or `TAILDESC` is not a multiple of 64.
        Tail = 2, "bad tail";
        /// The address of a descriptor, from `CURDESC` or from the descriptor before it, is not a
        /// multiple of 64.
        Next = 3, "misaligned descriptor";
        /// The system refused to read a descriptor.
        Descriptor = 4, "descriptor cannot be read";
        /// The system refused to write to a descriptor.
        Status = 5, "descriptor cannot be written";
        /// The system refused to read or write the bytes of a frame.
        Data = 6, "data cannot be accessed";
        /// The descriptor is complete already: software did not clear its status, or the chain has
        /// a loop that does not meet the tail.
        Complete = 7, "descriptor is complete already";
        /// The length of a descriptor is 0, or more than a frame may have.
        Length = 8, "bad length";
        /// The descriptors of a frame have more bytes than a frame may have.
        Frame = 9, "frame is too long";
        /// The first descriptor of a frame does not start it.
        NoStart = 10, "frame without start";
        /// A descriptor starts a frame before the one before it has ended.
        NoEnd = 11, "frame without end";
        /// A register that describes the ring was written while the channel was running.
        Running = 12, "register changed while running";
        /// `PEER` names no pair.
        Peer = 13, "no such peer";
    }
}
