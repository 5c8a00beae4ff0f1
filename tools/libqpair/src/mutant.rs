// SPDX-License-Identifier: GPL-2.0
//! The wrong variants of the library's own rules, as `qpair_queue` has them of the common ones.
//!
//! `mutant!(Name)` at a rule selects a wrong variant of it. It is the constant `false` unless a
//! host test is built with the feature `mutants` and activates one on its thread;
//! `tests/mutants.rs` checks that each makes a test fail.

/// Whether the wrong variant of this name is to be used here.
#[cfg(not(feature = "mutants"))]
macro_rules! mutant {
    ($name:ident) => {
        false
    };
}

/// Whether the wrong variant of this name is to be used here.
#[cfg(feature = "mutants")]
macro_rules! mutant {
    ($name:ident) => {
        crate::mutant::is_active(crate::mutant::Mutant::$name)
    };
}

pub(crate) use mutant;

#[cfg(feature = "mutants")]
pub use self::active::*;

#[cfg(feature = "mutants")]
mod active {
    use std::cell::Cell;

    /// A rule, broken.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Mutant {
        /// A row goes on with an entry of another queue pair.
        RowOfAnyPair,
        /// A row goes on with an entry of the queue pair's other queue.
        RowOfBothQueues,
        /// A row goes on with an entry that completes nothing.
        RowOfAnyIndex,
        /// A datagram has the first half of its address.
        HalfAnAddress,
        /// A datagram may be longer than the device delivers.
        LongDatagram,
        /// A slot of an SRQ is free when the entry of its receive is read, before the head is
        /// published.
        SharedFreedWhenRead,
        /// A CQ reserves nothing for an SRQ.
        SharedNotReserved,
        /// Receives whose entries are unread when their queue pair is reset are lost to the SRQ.
        UnreadForgotten,
    }

    impl Mutant {
        /// All of them.
        pub const ALL: &'static [Self] = &[
            Self::RowOfAnyPair,
            Self::RowOfBothQueues,
            Self::RowOfAnyIndex,
            Self::HalfAnAddress,
            Self::LongDatagram,
            Self::SharedFreedWhenRead,
            Self::SharedNotReserved,
            Self::UnreadForgotten,
        ];
    }

    thread_local! {
        static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Whether this thread runs `mutant`.
    pub fn is_active(mutant: Mutant) -> bool {
        ACTIVE.with(|active| active.get() == Some(mutant))
    }

    /// Makes this thread run `mutant`, or the rules as they are.
    pub fn activate(mutant: Option<Mutant>) {
        ACTIVE.with(|active| active.set(mutant));
    }
}
