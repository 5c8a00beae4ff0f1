// SPDX-License-Identifier: GPL-2.0
//! The port: which GIDs are of this function, and which of its queue pairs is queue pair 1.
//!
//! A peer is a GID and a number. A GID of the port is of this function, any other is of another port.
//!
//! A queue pair of UD has a GID of its own, or sends from one of the port's table, and then reaches
//! all in the table.

use crate::path::is_ipv4;
use crate::path::AddressVector;
use crate::path::Gid;
use crate::path::Path;
use crate::path::RemoteQp;
use qpair_abi::command::QpContext;
use qpair_abi::command::GIDS;
use qpair_abi::entry::UdWqe;
use qpair_abi::Number;

const NONE: Gid = [0; 2];

/// The port.
pub(crate) struct Port {
    pub(crate) gids: [Gid; GIDS as usize],
    /// Past the last entry that is not empty. Each frame is looked up, and few entries are in use.
    used: usize,
    /// Its queue pair 1.
    pub(crate) qp: Option<Number>,
}

impl Default for Port {
    fn default() -> Self {
        Self {
            gids: [NONE; GIDS as usize],
            used: 0,
            qp: None,
        }
    }
}

impl Port {
    /// Whether a GID is of this function.
    pub(crate) fn has(&self, gid: Gid) -> bool {
        let used = self.gids.get(..self.used).unwrap_or(&[]);
        gid != NONE && used.contains(&gid)
    }

    /// Sets an entry of the table.
    pub(crate) fn set(&mut self, index: usize, gid: Gid) {
        if let Some(entry) = self.gids.get_mut(index) {
            *entry = gid;
        }
        let last = self.gids.iter().rposition(|gid| *gid != NONE);
        self.used = last.map_or(0, |last| last + 1);
    }

    /// Whether a datagram of a queue pair that has this GID of its own is for this function.
    pub(crate) fn keeps(&self, own: Gid, wqe: &UdWqe) -> bool {
        let to = [wqe.gid, wqe.gid_high];
        match own {
            NONE => self.source(own, wqe) != NONE && self.has(to),
            own => own == to,
        }
    }

    /// The path to a peer, by the GID of its port. The admin queue pair is none.
    pub(crate) fn path(&self, gid: Gid, qp: Number) -> Path {
        let is_here = gid == NONE || self.has(gid);
        match (is_here, qp) {
            (false, _) => Path::There(RemoteQp { gid, qp }),
            (true, Number::ADMIN) => Path::None,
            (true, _) => Path::Here(qp),
        }
    }

    /// The address vector of a context of PATH, to a peer with this GID. `None` if a field is out of range. Both
    /// GIDs are of IPv4, or neither is.
    pub(crate) fn address_vector(&self, gid: Gid, context: &QpContext) -> Option<AddressVector> {
        let av = AddressVector::of(context)?;
        let from = *self.gids.get(usize::from(av.source))?;
        let fits = gid == NONE || is_ipv4(from) == is_ipv4(gid);
        (from != NONE && fits).then_some(av)
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

    /// The GID that a datagram leaves the function from: one of the table.
    pub(crate) fn sends_from(&self, own: Gid, wqe: &UdWqe) -> Option<Gid> {
        let from = self.source(own, wqe);
        (own == NONE && from != NONE).then_some(from)
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
