// SPDX-License-Identifier: GPL-2.0
//! Memory regions: from a key and an address to guest memory, or to the reason why not.

use crate::bus::Bus;
use crate::host::Host;
use crate::list::List;
use crate::list::Piece;
use crate::mutant::mutant;
use crate::table::Table;
use qpair_abi::command::BufferList;
use qpair_abi::status::Detail;
use qpair_abi::Number;

/// A memory region.
pub(crate) struct Region {
    pub(crate) pd: Number,
    pub(crate) access: u8,
    /// Its first byte in its own address space.
    pub(crate) addr: u64,
    pub(crate) list: List,
    pub(crate) described: BufferList,
}

/// A protection domain.
pub(crate) struct Domain {
    /// Queue pairs and regions in it.
    pub(crate) users: u32,
}

/// A range of some region, as software names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) key: Number,
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
}

/// Says whether a range is in a region of this domain, with this right; 0 asks for none.
/// The region, and where in it the range begins.
pub(crate) fn find(
    regions: &mut Table<Region>,
    pd: Number,
    right: u8,
    range: Range,
) -> Result<(&mut Region, u64), Detail> {
    let region = regions.get_mut(range.key).ok_or(Detail::Key)?;
    if region.pd != pd && !mutant!(DomainNotChecked) {
        return Err(Detail::Domain);
    }
    if region.access & right != right && !mutant!(RightsNotChecked) {
        return Err(Detail::Rights);
    }
    let at = range.addr.checked_sub(region.addr).ok_or(Detail::Range)?;
    let bytes = if mutant!(RangeNotChecked) {
        1
    } else {
        range.bytes
    };
    let end = at.checked_add(bytes).ok_or(Detail::Range)?;
    if end > region.list.shape().bytes() {
        return Err(Detail::Range);
    }
    Ok((region, at))
}

/// Where a range begins in guest memory, and how much of it lies there in one piece.
pub(crate) fn resolve<H: Host>(
    regions: &mut Table<Region>,
    bus: &mut Bus<H>,
    pd: Number,
    right: u8,
    range: Range,
) -> Result<Piece, Detail> {
    let (region, at) = find(regions, pd, right, range)?;
    region
        .list
        .resolve(bus, at, range.bytes)
        .map_err(|_| Detail::Dma)
}
