// SPDX-License-Identifier: GPL-2.0
//! Paths: where the peer of a queue pair is.

use qpair_abi::Number;

/// A GID, as two words of memory. 0 is none.
pub(crate) type Gid = [u64; 2];

/// The bytes of a GID.
pub(crate) fn bytes_of([low, high]: Gid) -> [u8; 16] {
    (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
}

/// Whether a GID is an IPv4 address that is mapped to one of IPv6.
pub(crate) fn is_ipv4([low, high]: Gid) -> bool {
    low == 0 && high as u32 == 0xffff_0000
}

/// The GID of these bytes.
pub(crate) fn gid_of(bytes: [u8; 16]) -> Gid {
    let whole = u128::from_le_bytes(bytes);
    [whole as u64, (whole >> 64) as u64]
}

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
