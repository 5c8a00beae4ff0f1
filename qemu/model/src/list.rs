// SPDX-License-Identifier: GPL-2.0
//! Buffer lists: from an offset in a ring or region to a DMA address.
//!
//! The rules (`rules::shape`) check a list. Here its tables are read, through a
//! small cache: the address of one leaf table, some page addresses, and the contiguous run that was
//! used last. Software may not change a list while its object exists, so the cache stays valid. If
//! software does change it, the addresses are still its own.

use crate::bus::Bus;
use crate::host::DmaFault;
use crate::host::Host;
use crate::host::Mapping;
use crate::rules::shape::Shape;
use crate::rules::shape::Spot;
use crate::segment::Piece;
use crate::segment::Segment;
use qpair_abi::command::BufferList;
use qpair_queue::buflist::PageLimits;
use qpair_queue::buflist::LEAF_BYTES;

/// Entries of a table that are read at once.
const CACHED: usize = 16;

/// A buffer list that has been checked, and what was read of it last.
pub(crate) struct List<M> {
    shape: Shape,
    /// The run that was used last.
    run: Segment<M>,
    /// Address of the root entry that was read last, and the leaf table there.
    leaf: Option<(u64, u64)>,
    /// Address of the first entry in the cache.
    cached_at: u64,
    cached_entries: usize,
    cached: [u64; CACHED],
}

impl<M: Mapping> List<M> {
    /// Checks a descriptor. A block must be aligned to `align`.
    pub(crate) fn new(list: &BufferList, limits: PageLimits, align: u64) -> Option<Self> {
        Some(Self {
            shape: Shape::check(list, limits, align).ok()?,
            run: Segment::found(0, Piece { addr: 0, bytes: 0 }),
            leaf: None,
            cached_at: 0,
            cached_entries: 0,
            cached: [0; CACHED],
        })
    }

    /// All memory, from address 0 on. Its pieces are not mapped: most of them are no memory.
    pub(crate) fn of_all(limits: PageLimits) -> Option<Self> {
        let bytes = u64::MAX;
        let all = BufferList {
            bytes,
            ..BufferList::default()
        };
        let mut list = Self::new(&all, limits, 1)?;
        list.run = Segment::unmapped(Piece { addr: 0, bytes });
        Some(list)
    }

    #[inline]
    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The run that was used last.
    #[inline]
    pub(crate) fn last_run(&self) -> &Segment<M> {
        &self.run
    }

    /// Drops the mapping of the last run if the system takes its addresses away.
    pub(crate) fn unmap(&mut self, first: u64, last: u64) {
        self.run.unmap(first, last);
    }

    /// The run that byte `at` lies in.
    #[inline]
    pub(crate) fn run<H: Host<Map = M>>(
        &mut self,
        bus: &mut Bus<H>,
        at: u64,
    ) -> Result<&mut Segment<M>, DmaFault> {
        if self.run.left(at) == 0 {
            self.look_up(bus, at)?;
        }
        Ok(&mut self.run)
    }

    /// The piece that byte `at` and those after it lie in, at most `want` bytes.
    pub(crate) fn resolve<H: Host<Map = M>>(
        &mut self,
        bus: &mut Bus<H>,
        at: u64,
        want: u64,
    ) -> Result<Piece, DmaFault> {
        let run = self.run(bus, at)?;
        Ok(Piece {
            addr: run.piece.addr.wrapping_add(at.wrapping_sub(run.from)),
            bytes: run.left(at).min(want),
        })
    }

    /// Finds the run that byte `at` lies in: from the beginning of its page on, if that is in the
    /// buffer.
    #[cold]
    fn look_up<H: Host>(&mut self, bus: &mut Bus<H>, at: u64) -> Result<(), DmaFault> {
        let (inside, piece) = self.locate(bus, at)?;
        let before = inside.min(at);
        let piece = Piece {
            addr: piece.addr.wrapping_sub(before),
            bytes: piece.bytes.saturating_add(before),
        };
        self.run = Segment::found(at.wrapping_sub(before), piece);
        Ok(())
    }

    /// How far byte `at` is inside its page or block, and the piece that begins at
    /// that byte.
    fn locate<H: Host>(&mut self, bus: &mut Bus<H>, at: u64) -> Result<(u64, Piece), DmaFault> {
        let (entry, end, inside, left) = match self.shape.locate(at).ok_or(DmaFault)? {
            Spot::Block { addr, left } => return Ok((at, Piece { addr, bytes: left })),
            Spot::Page {
                entry,
                inside,
                left,
            } => {
                let table = self.shape.root_entries().saturating_mul(8);
                (entry, self.shape.root().wrapping_add(table), inside, left)
            }
            Spot::Leaf {
                entry,
                leaf_offset,
                inside,
                left,
            } => {
                let leaf = self.leaf(bus, entry)?;
                let end = leaf.wrapping_add(LEAF_BYTES);
                let entry = leaf.checked_add(leaf_offset).ok_or(DmaFault)?;
                (entry, end, inside, left)
            }
        };
        let rest = self.shape.bytes().saturating_sub(at);
        let piece = self.pages(bus, entry, end, inside, left, rest)?;
        Ok((inside, piece))
    }

    fn leaf<H: Host>(&mut self, bus: &mut Bus<H>, entry: u64) -> Result<u64, DmaFault> {
        if let Some((at, leaf)) = self.leaf {
            if at == entry {
                return Ok(leaf);
            }
        }
        let mut word = [0];
        bus.load(entry, &mut word)?;
        let leaf = self.shape.leaf(word[0]).ok_or(DmaFault)?;
        self.leaf = Some((entry, leaf));
        Ok(leaf)
    }

    /// The piece from the page whose address is at `entry` on, with the contiguous pages after it.
    /// Its table ends at `end`, which is 0 if the table ends with the address space.
    fn pages<H: Host>(
        &mut self,
        bus: &mut Bus<H>,
        entry: u64,
        end: u64,
        inside: u64,
        left: u64,
        want: u64,
    ) -> Result<Piece, DmaFault> {
        let mut next = (entry.wrapping_sub(self.cached_at) / 8) as usize;
        if entry < self.cached_at || next >= self.cached_entries {
            let entries = (end.wrapping_sub(entry) / 8).min(CACHED as u64) as usize;
            let cached = self.cached.get_mut(..entries).ok_or(DmaFault)?;
            self.cached_entries = 0;
            bus.load(entry, cached)?;
            self.cached_at = entry;
            self.cached_entries = entries;
            next = 0;
        }
        let cached = self.cached.get(..self.cached_entries).unwrap_or(&[]);
        let page = self.shape.page(*cached.get(next).ok_or(DmaFault)?);
        let page = page.ok_or(DmaFault)?;
        let addr = page.checked_add(inside).ok_or(DmaFault)?;
        let size = 1u64 << (self.shape.page_shift() & 63);
        let mut bytes = left;
        let mut after = page.checked_add(size);
        // Only whole pages lead on to the next: `left` is less at the buffer's end.
        let mut whole = left == size.wrapping_sub(inside);
        while bytes < want && whole {
            next = next.wrapping_add(1);
            let Some(page) = cached.get(next) else { break };
            if after != Some(*page) {
                break;
            }
            after = page.checked_add(size);
            bytes = bytes.saturating_add(size);
            whole = after.is_some();
        }
        Ok(Piece {
            addr,
            bytes: bytes.min(want),
        })
    }
}
