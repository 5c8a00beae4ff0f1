// SPDX-License-Identifier: GPL-2.0
//! Reading buffer lists: from a place in a ring or region to a DMA address.
//!
//! What a list is, and what is wrong with one, is said by the rules
//! (`queue::buflist`). Here its tables are read, through a small cache: one leaf table's
//! address, one line of page addresses, and the contiguous run that was used last. Software may not change
//! a list while its object lives, so nothing in the cache grows old; and were it changed, the addresses
//! would still be the software's own.

use crate::bus::Bus;
use crate::host::DmaFault;
use crate::host::Host;
use crate::host::Mapping;
use crate::mutant::mutant;
use crate::segment::Piece;
use crate::segment::Segment;
use qpair_abi::command::BufferList;
use qpair_queue::buflist::PageLimits;
use qpair_queue::buflist::Shape;
use qpair_queue::buflist::Spot;
use qpair_queue::buflist::LEAF_BYTES;

/// Entries of a table that are read at once.
const LINE: usize = 16;

/// A buffer list that has been checked, and what was read of it last.
pub(crate) struct List<M> {
    shape: Shape,
    /// The run that was used last.
    run: Segment<M>,
    /// Address of the root entry that was read last, and the leaf table there.
    leaf: Option<(u64, u64)>,
    /// Address of the first entry in the line.
    line_at: u64,
    line_entries: usize,
    line: [u64; LINE],
}

impl<M: Mapping> List<M> {
    /// Checks a descriptor. A block must be aligned to `align`.
    pub(crate) fn new(list: &BufferList, limits: PageLimits, align: u64) -> Option<Self> {
        Some(Self {
            shape: Shape::check(list, limits, align).ok()?,
            run: Segment::found(0, Piece { addr: 0, bytes: 0 }),
            leaf: None,
            line_at: 0,
            line_entries: 0,
            line: [0; LINE],
        })
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

    /// The system takes a range of addresses away.
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

    /// Where byte `at` lies, and how many of the `want` bytes from it on lie there in one piece; at least one.
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

    /// Finds the run that byte `at` lies in: from the beginning of its page on, if the buffer has that.
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

    /// Where byte `at` lies with what follows it in one piece, and how far it is inside of its page or block.
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
                inside,
                left,
                ..
            } if mutant!(LeafIgnored) => (entry, entry.wrapping_add(8), inside, left),
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

    /// From the page whose address is at `entry` of a table that ends at `end`, and those
    /// after it as long as they are contiguous. A table may end with the address space: then
    /// `end` is 0.
    fn pages<H: Host>(
        &mut self,
        bus: &mut Bus<H>,
        entry: u64,
        end: u64,
        inside: u64,
        left: u64,
        want: u64,
    ) -> Result<Piece, DmaFault> {
        let mut next = (entry.wrapping_sub(self.line_at) / 8) as usize;
        if entry < self.line_at || next >= self.line_entries {
            let entries = (end.wrapping_sub(entry) / 8).min(LINE as u64) as usize;
            let line = self.line.get_mut(..entries).ok_or(DmaFault)?;
            self.line_entries = 0;
            bus.load(entry, line)?;
            self.line_at = entry;
            self.line_entries = entries;
            next = 0;
        }
        let line = self.line.get(..self.line_entries).unwrap_or(&[]);
        let page = self.shape.page(*line.get(next).ok_or(DmaFault)?);
        let page = page.ok_or(DmaFault)?;
        let addr = page.checked_add(inside).ok_or(DmaFault)?;
        let size = 1u64 << (self.shape.page_shift() & 63);
        let mut bytes = left;
        let mut after = page.checked_add(size);
        // Only whole pages lead on to the next: `left` is less at the buffer's end.
        let mut whole = left == size.wrapping_sub(inside);
        while bytes < want && whole {
            next = next.wrapping_add(1);
            let Some(page) = line.get(next) else { break };
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
