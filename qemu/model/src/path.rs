// SPDX-License-Identifier: GPL-2.0
//! Paths: where the peer of a queue pair is.

use qpair_abi::Number;

/// A GID, as two words of memory. 0 is none.
pub(crate) type Gid = [u64; 2];

/// The address of a queue pair at another port.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub(crate) gid: Gid,
    pub(crate) qp: Number,
}

/// The path of a queue pair to its peer.
#[derive(Clone, Copy, Default)]
pub(crate) enum Path {
    /// It has no peer.
    #[default]
    None,
    /// The peer is this queue pair of this function.
    Here(Number),
    /// The peer is at another port. The device sends no frames, so it does not answer.
    There(Route),
}

impl Path {
    /// The peer, if it is of this function.
    #[inline]
    pub(crate) fn here(&self) -> Option<Number> {
        match *self {
            Self::Here(peer) => Some(peer),
            Self::None | Self::There(_) => None,
        }
    }

    /// Whether it leads to this queue pair of this function.
    #[inline]
    pub(crate) fn leads_to(&self, qp: Number) -> bool {
        self.here() == Some(qp)
    }
}
