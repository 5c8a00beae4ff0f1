// SPDX-License-Identifier: GPL-2.0
//! Memory windows: keys for a part of a region, which work requests bind and invalidate.
//!
//! A window has a region only while it is bound. A region with bound windows cannot be changed or
//! destroyed. A window of type 2 belongs to the queue pair that bound it: only the requests that
//! this queue pair gets may use it, and only it, or its peer by a message to it, may invalidate it.

use crate::host::Mapping;
use crate::mr::Regions;
use crate::region::Range;
use crate::table::Table;
use core::ops::Deref;
use core::ops::DerefMut;
use qpair_abi::command::access;
use qpair_abi::command::mw_type;
use qpair_abi::command::MwContext;
use qpair_abi::entry::window_of;
use qpair_abi::entry::BindWqe;
use qpair_abi::status::Detail;
use qpair_abi::Number;

/// The access rights of a window.
pub(crate) const RIGHTS: u8 = access::REMOTE | access::ZERO_BASED;
/// Those that write.
const WRITES: u8 = access::REMOTE_WRITE | access::REMOTE_ATOMIC;

/// What a window is bound to.
#[derive(Clone, Copy)]
struct Bound {
    region: Number,
    /// The queue pair that bound it.
    qp: Number,
    access: u8,
    /// Its first byte, an address of the region.
    addr: u64,
    bytes: u64,
}

/// A memory window.
pub(crate) struct Window {
    number: Number,
    pub(crate) pd: Number,
    kind: u8,
    tag: u8,
    bound: Option<Bound>,
}

impl Window {
    pub(crate) fn new(number: Number, context: &MwContext) -> Self {
        Self {
            number,
            pd: context.pd,
            kind: context.kind,
            tag: 0,
            bound: None,
        }
    }

    /// The queue pair that it belongs to.
    fn owner(&self) -> Option<Number> {
        let bound = self.bound.filter(|_| self.kind == mw_type::TWO)?;
        Some(bound.qp)
    }

    /// The context for QUERY.
    pub(crate) fn context(&self) -> MwContext {
        let unbound = MwContext {
            pd: self.pd,
            kind: self.kind,
            tag: self.tag,
            ..MwContext::default()
        };
        self.bound.map_or(unbound, |bound| MwContext {
            access: bound.access,
            region: bound.region,
            qp: self.owner().unwrap_or_default(),
            addr: bound.addr,
            bytes: bound.bytes,
            ..unbound
        })
    }
}

/// All windows.
pub(crate) struct Windows(Table<Window>);

impl Deref for Windows {
    type Target = Table<Window>;
    fn deref(&self) -> &Table<Window> {
        &self.0
    }
}

impl DerefMut for Windows {
    fn deref_mut(&mut self) -> &mut Table<Window> {
        &mut self.0
    }
}

impl Windows {
    /// For at most `limit` windows, whose keys follow from `seed`.
    pub(crate) fn new(limit: u32, seed: u64) -> Self {
        Self(Table::with_secret(limit, seed, Number::MW_GENERATIONS))
    }

    /// The window with this key.
    fn by_key(&self, key: u32) -> Result<&Window, Detail> {
        let (number, tag) = window_of(key).ok_or(Detail::Key)?;
        let found = self.0.get(number).ok_or(Detail::Key)?;
        if found.tag != tag {
            return Err(Detail::Key);
        }
        Ok(found)
    }

    /// The range of a region that a range of a window is, for a request with this right to a queue
    /// pair of this domain.
    #[cold]
    pub(crate) fn find(
        &self,
        qp: Number,
        pd: Number,
        right: u8,
        range: Range,
    ) -> Result<Range, Detail> {
        let window = self.by_key(range.key.raw())?;
        if window.pd != pd {
            return Err(Detail::Domain);
        }
        let bound = window.bound.ok_or(Detail::Key)?;
        if window.owner().is_some_and(|owner| owner != qp) {
            return Err(Detail::Domain);
        }
        if bound.access & right != right {
            return Err(Detail::Rights);
        }
        let first = match bound.access & access::ZERO_BASED {
            0 => bound.addr,
            _ => 0,
        };
        let at = range.addr.checked_sub(first).ok_or(Detail::Range)?;
        let end = at.checked_add(range.bytes).ok_or(Detail::Range)?;
        if end > bound.bytes {
            return Err(Detail::Range);
        }
        Ok(Range {
            key: bound.region,
            addr: bound.addr.wrapping_add(at),
            bytes: range.bytes,
        })
    }

    /// Binds a window by a work request of a queue pair.
    pub(crate) fn bind<M: Mapping>(
        &mut self,
        regions: &mut Regions<M>,
        (qp, pd): (Number, Number),
        wqe: &BindWqe,
    ) -> Result<(), Detail> {
        let (number, _) = window_of(wqe.window).ok_or(Detail::Key)?;
        let window = self.0.get(number).ok_or(Detail::Key)?;
        if window.pd != pd {
            return Err(Detail::Domain);
        }
        let (named, tag) = window_of(wqe.new_key).ok_or(Detail::Key)?;
        if named != number {
            return Err(Detail::Key);
        }
        let two = window.kind == mw_type::TWO;
        if two && window.bound.is_some() {
            return Err(Detail::State);
        }
        // CAST: Checked with the work request.
        let access = wqe.access as u8;
        if !two && access & access::ZERO_BASED != 0 {
            return Err(Detail::Rights);
        }
        let bound = match wqe.bytes {
            0 if two => return Err(Detail::Range),
            0 => None,
            bytes => Some(Bound {
                region: Number::from_raw(wqe.region),
                qp,
                access,
                addr: wqe.addr,
                bytes,
            }),
        };
        if let Some(bound) = &bound {
            may_be_bound(regions, pd, bound)?;
        }
        self.set(regions, number, bound);
        if let Some(window) = self.0.get_mut(number) {
            window.tag = tag;
        }
        Ok(())
    }

    /// Invalidates a window by a work request of a queue pair, or of its peer.
    pub(crate) fn invalidate<M: Mapping>(
        &mut self,
        regions: &mut Regions<M>,
        (qp, pd): (Number, Number),
        key: u32,
    ) -> Result<(), Detail> {
        let window = self.by_key(key)?;
        if window.pd != pd {
            return Err(Detail::Domain);
        }
        match window.owner() {
            None => return Err(Detail::State),
            Some(owner) if owner != qp => return Err(Detail::Domain),
            Some(_) => {}
        }
        let number = window.number;
        self.set(regions, number, None);
        Ok(())
    }

    /// Changes what a window is bound to.
    fn set<M: Mapping>(&mut self, regions: &mut Regions<M>, number: Number, bound: Option<Bound>) {
        let Some(window) = self.0.get_mut(number) else {
            return;
        };
        let before = core::mem::replace(&mut window.bound, bound);
        let mut count = |bound: Option<Bound>, change| {
            let region = bound.and_then(|bound| regions.get_mut(bound.region));
            if let Some(region) = region {
                region.windows = region.windows.saturating_add_signed(change);
            }
        };
        count(bound, 1);
        count(before, -1);
    }

    /// Removes a window, bound or not.
    pub(crate) fn destroy<M: Mapping>(
        &mut self,
        regions: &mut Regions<M>,
        number: Number,
    ) -> Option<Window> {
        self.set(regions, number, None);
        self.0.remove(number)
    }

    /// Invalidates the windows of a queue pair that is reset or destroyed. This is a search.
    pub(crate) fn leave<M: Mapping>(&mut self, regions: &mut Regions<M>, qp: Number) {
        for index in 0..self.0.indices() {
            let of_qp = |found: &&Window| found.owner() == Some(qp);
            let found = self.0.at(index).and_then(|window| self.0.get(window));
            if let Some(number) = found.filter(of_qp).map(|found| found.number) {
                self.set(regions, number, None);
            }
        }
    }
}

/// Checks that a region of this domain may have this window.
fn may_be_bound<M: Mapping>(regions: &Regions<M>, pd: Number, bound: &Bound) -> Result<(), Detail> {
    let region = regions.get(bound.region).ok_or(Detail::Key)?;
    if region.pd != pd {
        return Err(Detail::Domain);
    }
    let needs = match bound.access & WRITES {
        0 => access::BIND,
        _ => access::BIND | access::LOCAL_WRITE,
    };
    if region.access & needs != needs {
        return Err(Detail::Rights);
    }
    let at = bound.addr.checked_sub(region.addr).ok_or(Detail::Range)?;
    let end = at.checked_add(bound.bytes).ok_or(Detail::Range)?;
    if end > region.list.shape().bytes() {
        return Err(Detail::Range);
    }
    Ok(())
}
