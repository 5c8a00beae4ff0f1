// SPDX-License-Identifier: GPL-2.0
//! Memory regions: from a key and an address to guest memory, or to an error.
//!
//! A region keeps a run mapped that is used twice in a row. At most [`KEPT`] regions do; then the
//! one that was mapped first drops its mapping. A mapping ends with its region, that of an FRMR with
//! its registration. A run that cannot be mapped is tried again after the system has taken addresses
//! of it away.

use crate::bus::Bus;
use crate::frmr::Frmrs;
use crate::host::DmaFault;
use crate::host::Host;
use crate::host::Mapping;
use crate::region::Range;
use crate::region::Region;
use crate::segment::Segment;
use crate::table::Table;
use core::ops::Range as Part;
use qpair_abi::command::access;
use qpair_abi::counters::Counter;
use qpair_abi::entry::frmr_key;
use qpair_abi::entry::frmr_of;
use qpair_abi::status::Detail;
use qpair_abi::Number;
use std::collections::VecDeque;

/// Regions that keep a run mapped.
const KEPT: usize = 256;

/// A protection domain.
pub(crate) struct Domain {
    /// Queue pairs, SRQs, regions, windows and FRMRs in it.
    pub(crate) users: u32,
}

/// Where a range begins that has been checked. It is valid until its request ends: only a command,
/// in a turn of its own, destroys a region, and only another request, or this one after its bytes,
/// ends a registration.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    key: Number,
    /// The byte of the region.
    at: u64,
}

/// All regions, and the FRMRs.
pub(crate) struct Regions<M> {
    table: Table<Region<M>>,
    pub(crate) frmrs: Frmrs<M>,
    /// Regions that may have a run mapped, in the order in which they tried to map one.
    kept: VecDeque<Number>,
}

impl<M> core::ops::Deref for Regions<M> {
    type Target = Table<Region<M>>;
    fn deref(&self) -> &Table<Region<M>> {
        &self.table
    }
}

impl<M> core::ops::DerefMut for Regions<M> {
    fn deref_mut(&mut self) -> &mut Table<Region<M>> {
        &mut self.table
    }
}

impl<M: Mapping> Regions<M> {
    /// For at most so many regions and FRMRs, whose keys follow from `seed`.
    pub(crate) fn new(regions: u32, frmrs: u32, seed: u64) -> Self {
        Self {
            table: Table::with_secret(regions, seed, Number::MR_GENERATIONS),
            // Orders of their own: a key tells nothing of a region's.
            frmrs: Frmrs::new(frmrs, seed ^ 1),
            kept: VecDeque::new(),
        }
    }

    /// Checks that a range is in a region or FRMR of this domain that has this right; 0 is no right.
    #[inline]
    pub(crate) fn find(&self, pd: Number, right: u8, range: Range) -> Result<Place, Detail> {
        let at = match self.table.get(range.key) {
            Some(region) => region.at(pd, right, range)?,
            None => self.frmrs.at(pd, right, range)?,
        };
        Ok(Place { key: range.key, at })
    }

    /// The region, or that of the registered FRMR, with this key.
    #[inline]
    fn region_mut(&mut self, key: Number) -> Option<&mut Region<M>> {
        if frmr_of(key.raw()).is_some() {
            return self.frmrs.region_mut(key.raw());
        }
        self.table.get_mut(key)
    }

    /// [`find`](Self::find), and how many bytes of the range lie in one piece, at least one. The
    /// caller uses the piece.
    pub(crate) fn resolve<H: Host<Map = M>>(
        &mut self,
        bus: &mut Bus<H>,
        pd: Number,
        right: u8,
        range: Range,
    ) -> Result<(Place, u64), Detail> {
        let place = self.find(pd, right, range)?;
        let region = self.region_mut(range.key).ok_or(Detail::Key)?;
        let writable = access::writes(region.access);
        let run = region.list.run(bus, place.at);
        let run = run.map_err(|_| Detail::Dma)?;
        let left = run.left(place.at);
        if run.used(bus, writable) {
            self.keep(range.key);
        }
        Ok((place, left.min(range.bytes)))
    }

    /// Notes that a region has tried to map a run. An FRMR is noted once, whatever the tag of its key.
    fn keep(&mut self, key: Number) {
        let frmr = frmr_of(key.raw());
        let key = frmr.map_or(key, |(frmr, _)| Number::from_raw(frmr_key(frmr, 0)));
        if self.kept.contains(&key) {
            return;
        }
        if self.kept.len() == KEPT {
            let first = self.kept.pop_front();
            if let Some(region) = first.and_then(|first| self.region_mut(first)) {
                region.list.unmap(0, u64::MAX);
            }
        }
        self.kept.push_back(key);
    }

    /// Drops the mappings of a range of addresses that the system takes away.
    pub(crate) fn unmap(&mut self, first: u64, last: u64) {
        let kept = core::mem::take(&mut self.kept);
        for key in &kept {
            if let Some(region) = self.region_mut(*key) {
                region.list.unmap(first, last);
            }
        }
        self.kept = kept;
    }

    /// The mapping of the bytes at a place of a region, and where in it they begin. `None` if they are
    /// not mapped as one piece.
    #[inline(always)]
    fn mapped(&self, place: Place, bytes: u64) -> Option<(&M, usize)> {
        let run = self.table.get(place.key)?.list.last_run();
        run.mapped(place.at, bytes)
    }

    /// Copies bytes from one place to another, both of regions. `None` if they are not mapped as one
    /// piece at both: nothing is copied.
    #[inline(always)]
    pub(crate) fn copy<H: Host<Map = M>>(
        &self,
        bus: &mut Bus<H>,
        from: Place,
        to: Place,
        bytes: u64,
    ) -> Option<()> {
        let (source, from) = self.mapped(from, bytes)?;
        let (target, to) = self.mapped(to, bytes)?;
        bus.count(Counter::DmaReads);
        bus.count(Counter::DmaWrites);
        target.copy(to, source, from, bytes as usize);
        Some(())
    }

    /// Calls `go` for each run of the bytes at a place: with the run, the byte of the region at
    /// which its part begins, and the part. The other end of a message may be in the same region,
    /// which keeps one run.
    #[cold]
    fn by_runs<H: Host<Map = M>>(
        &mut self,
        bus: &mut Bus<H>,
        place: Place,
        bytes: usize,
        mut go: impl FnMut(&Segment<M>, &mut Bus<H>, u64, Part<usize>) -> Result<(), DmaFault>,
    ) -> Result<(), DmaFault> {
        let region = self.region_mut(place.key).ok_or(DmaFault)?;
        let mut done = 0;
        while done < bytes {
            let at = place.at.wrapping_add(done as u64);
            let run = region.list.run(bus, at)?;
            let count = run.left(at).min(bytes.saturating_sub(done) as u64) as usize;
            if count == 0 {
                return Err(DmaFault);
            }
            let end = done.saturating_add(count);
            go(run, bus, at, done..end)?;
            done = end;
        }
        Ok(())
    }

    /// Reads the bytes at a place.
    pub(crate) fn read<H: Host<Map = M>>(
        &mut self,
        bus: &mut Bus<H>,
        place: Place,
        bytes: &mut [u8],
    ) -> Result<(), DmaFault> {
        if let Some((map, at)) = self.mapped(place, bytes.len() as u64) {
            bus.count(Counter::DmaReads);
            map.read(at, bytes);
            return Ok(());
        }
        self.by_runs(bus, place, bytes.len(), |run, bus, at, part| {
            run.read(bus, at, bytes.get_mut(part).ok_or(DmaFault)?)
        })
    }

    /// Writes the bytes at a place.
    pub(crate) fn write<H: Host<Map = M>>(
        &mut self,
        bus: &mut Bus<H>,
        place: Place,
        bytes: &[u8],
    ) -> Result<(), DmaFault> {
        if let Some((map, at)) = self.mapped(place, bytes.len() as u64) {
            bus.count(Counter::DmaWrites);
            map.write(at, bytes);
            return Ok(());
        }
        self.by_runs(bus, place, bytes.len(), |run, bus, at, part| {
            run.write(bus, at, bytes.get(part).ok_or(DmaFault)?)
        })
    }
}
