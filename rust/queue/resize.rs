// SPDX-License-Identifier: GPL-2.0
//! A CQ goes on in another ring.
//!
//! The device writes its next entry to a new ring. Those that it has written before stay in the old
//! one, which it does not access any more; software reads them there, and goes on in the new ring:
//!
//! ```text
//!   old ring   ... head ........ end          entries that are there already
//!   new ring                          begin ........     all later ones
//! ```
//!
//! - The indices from `end` to `begin` belong to no entry. `begin` is a multiple of twice the new
//!   depth: the first pass of the new ring is an even one, so that no entry in zeroed memory is
//!   valid.
//! - An index counts the ring's entries as before, and its order stays the same: what was compared
//!   with an index before the resize may be compared with one after it.
//! - The old entries take no room in the new ring: only the new ones can overrun it.
//! - An entry of the old ring is unread until a head is published that is past it. A resize does
//!   not move the head past it, so the number of a destroyed queue pair that is in it stays unused.
//! - At most as many entries as the new ring has may be unread in the old one.

use super::index::Index;

/// From where on the entries are in the new ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Switch {
    /// Past the last entry in the old ring.
    pub end: Index,
    /// That of the first entry in the new ring.
    pub begin: Index,
}

/// Why software stays in its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// Entries of a CQ before the end are unread, or an SRQ has more receives that are not free
    /// than the new ring has slots.
    Unread,
    /// The storage is too small for the depth, or the depth for the slots.
    BadRing,
}
