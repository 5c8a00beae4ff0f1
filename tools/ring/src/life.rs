// SPDX-License-Identifier: GPL-2.0
//! Which entries of a CQ belong to a queue pair.

use qpair_queue::index::Index;

/// Which entries belong to a queue pair since its creation or last reset. Earlier ones are from
/// before that reset, or of an earlier queue pair with this number.
#[derive(Clone, Copy, Debug)]
pub enum Life {
    /// Those from this index on.
    Since(Index),
    /// All: the head has passed the first. The comparison with its index would be wrong 2^31
    /// entries later.
    Always,
}

impl Life {
    /// Whether it includes the entry before `past`.
    #[inline(always)]
    pub fn includes(self, past: Index) -> bool {
        match self {
            Self::Since(first) => past.reaches(first.plus(1)),
            Self::Always => true,
        }
    }

    /// The life after this head has been published.
    #[must_use]
    pub fn seen_from(self, head: Index) -> Self {
        match self {
            Self::Since(first) if !head.reaches(first) => self,
            Self::Since(_) | Self::Always => Self::Always,
        }
    }
}
