// SPDX-License-Identifier: GPL-2.0
//! What both kinds of channels have: a descriptor, a register write, a reason to interrupt.

use qpair_abi::stream::Cause;

/// A snapshot of a descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Descriptor {
    /// The buffer.
    pub(crate) addr: u64,
    pub(crate) bytes: u32,
    /// Transmit: the frame ends with it.
    pub(crate) end: bool,
    /// Transmit: the user words, of a chain.
    pub(crate) user: Option<[u32; 5]>,
    /// The word that has the status, and the address of the next descriptor in a chain.
    pub(crate) word: u64,
    pub(crate) next: u64,
}

/// What the channel did with it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    pub(crate) bytes: u32,
    /// Receive: the frame starts or ends with it.
    pub(crate) start: bool,
    pub(crate) end: bool,
    /// Receive: the user words, at the end of a frame from a chain.
    pub(crate) user: Option<[u32; 5]>,
}

/// What a write of a register asks of its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    Start,
    Stop,
    Reset,
    /// Descriptors were handed over.
    More,
    /// Interrupts may be due.
    Interrupt,
    Halt(Cause),
}

/// What may be a reason to interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    Completed,
    Halted,
    /// A register was written, or time has passed.
    Look,
}
