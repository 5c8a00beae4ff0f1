// SPDX-License-Identifier: GPL-2.0
//! The port: which GIDs are of this function, and which of its queue pairs is queue pair 1.
//!
//! A peer is a GID and a number. A GID of the port is of this function. Frames to another GID would
//! go out where [`Way`] is [`Elsewhere`](Way::Elsewhere); the device sends none.
//!
//! A queue pair of UD has a GID of its own, or sends from one of the port's table, and then reaches
//! all in the table.

use qpair_abi::command::GIDS;
use qpair_abi::entry::UdWqe;
use qpair_abi::Number;

/// A GID, as two words of memory. 0 is none.
pub(crate) type Gid = [u64; 2];

const NONE: Gid = [0; 2];

/// Where a GID leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To this function.
    Here,
    /// To another port.
    Elsewhere,
}

/// The port.
pub(crate) struct Port {
    pub(crate) gids: [Gid; GIDS as usize],
    /// Its queue pair 1.
    pub(crate) qp: Option<Number>,
}

impl Default for Port {
    fn default() -> Self {
        Self {
            gids: [NONE; GIDS as usize],
            qp: None,
        }
    }
}

impl Port {
    fn has(&self, gid: Gid) -> bool {
        gid != NONE && self.gids.contains(&gid)
    }

    /// The way of a datagram of a queue pair that has this GID of its own.
    pub(crate) fn way(&self, own: Gid, wqe: &UdWqe) -> Way {
        let to = [wqe.gid, wqe.gid_high];
        let here = match own {
            NONE => self.source(own, wqe) != NONE && self.has(to),
            own => own == to,
        };
        if here {
            Way::Here
        } else {
            Way::Elsewhere
        }
    }

    /// The way to a peer, by the GID of its port.
    pub(crate) fn way_to_peer(&self, gid: Gid) -> Way {
        if gid == NONE || self.has(gid) {
            Way::Here
        } else {
            Way::Elsewhere
        }
    }

    /// The GID that a datagram is sent from.
    pub(crate) fn source(&self, own: Gid, wqe: &UdWqe) -> Gid {
        match own {
            NONE => {
                let entry = self.gids.get(usize::from(wqe.source));
                entry.copied().unwrap_or(NONE)
            }
            own => own,
        }
    }

    /// The queue pair that a destination names.
    pub(crate) fn named(&self, dest: Number) -> Number {
        match self.qp {
            Some(qp) if dest == Number::PORT_QP => qp,
            _ => dest,
        }
    }

    /// How a queue pair is named at its peers.
    pub(crate) fn name(&self, qp: Number) -> Number {
        if self.qp == Some(qp) {
            Number::PORT_QP
        } else {
            qp
        }
    }

    /// A queue pair was destroyed.
    pub(crate) fn forget(&mut self, qp: Number) {
        if self.qp == Some(qp) {
            self.qp = None;
        }
    }
}
