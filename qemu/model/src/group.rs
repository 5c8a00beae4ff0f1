// SPDX-License-Identifier: GPL-2.0
//! Groups: GIDs whose datagrams are copied to each member.
//!
//! A group exists while it has members, which are queue pairs of UD. A datagram to it takes a receive
//! of each, in the order of their numbers. A member that does not take its copy drops it, without
//! effect on the others. Each copy is charged to the turn. If the turn ends first, the datagram
//! continues in the sender's next turn with the member after the last one served, so a member that
//! joins or leaves meanwhile never gets two copies.

use crate::config::Config;
use crate::path::Gid;
use core::ops::Bound;
use qpair_abi::command::GidContext;
use qpair_abi::entry::UdWqe;
use qpair_abi::status::AdminError;
use qpair_abi::Number;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// All groups, none of them empty.
#[derive(Default)]
pub(crate) struct Groups(BTreeMap<Gid, BTreeSet<Number>>);

impl Groups {
    /// Adds a member.
    pub(crate) fn attach(
        &mut self,
        config: &Config,
        gid: Gid,
        qp: Number,
    ) -> Result<(), AdminError> {
        let most = match self.0.get(&gid) {
            Some(members) if members.contains(&qp) => return Err(AdminError::Busy),
            Some(members) => (members.len(), config.group_members),
            None => (self.0.len(), config.groups),
        };
        if most.0 >= most.1 as usize || config.group_members == 0 {
            return Err(AdminError::Full);
        }
        self.0.entry(gid).or_default().insert(qp);
        Ok(())
    }

    /// Removes a member.
    pub(crate) fn detach(&mut self, gid: Gid, qp: Number) -> Result<(), AdminError> {
        let members = self.0.get_mut(&gid).ok_or(AdminError::Number)?;
        if !members.remove(&qp) {
            return Err(AdminError::Number);
        }
        if members.is_empty() {
            self.0.remove(&gid);
        }
        Ok(())
    }

    /// Removes a queue pair that is reset or destroyed. This is a search.
    pub(crate) fn leave(&mut self, qp: Number) {
        self.0.retain(|_, members| {
            members.remove(&qp);
            !members.is_empty()
        });
    }

    /// The member that follows this number.
    pub(crate) fn next(&self, gid: Gid, after: Number) -> Option<Number> {
        let members = self.0.get(&gid)?;
        let mut rest = members.range((Bound::Excluded(after), Bound::Unbounded));
        rest.next().copied()
    }

    /// How many members follow this number.
    pub(crate) fn members_after(&self, gid: Gid, after: Number) -> usize {
        let members = self.0.get(&gid);
        let rest = (Bound::Excluded(after), Bound::Unbounded);
        members.map_or(0, |members| members.range(rest).count())
    }

    /// How many members all groups have.
    pub(crate) fn members(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }
}

/// Bytes of a turn that a copy is charged with: as many as it has, and at least a work request's part,
/// so that a turn has no more copies than work requests.
pub(crate) fn charge(config: &Config, bytes: u32) -> u64 {
    let part = config.turn_bytes / config.turn_wqes.max(1);
    u64::from(bytes.max(part).max(1))
}

/// Whether a datagram is for the members of a group.
pub(crate) fn is_for_group(wqe: &UdWqe) -> bool {
    let (gid, gid_high) = (wqe.gid, wqe.gid_high);
    let is_group = GidContext { gid, gid_high }.is_group();
    is_group && wqe.dest == Number::GROUP
}
