// SPDX-License-Identifier: GPL-2.0
//! The memory of a ring.
//!
//! The buffer list of a ring is read once, when its object is created, and its contiguous pieces
//! are kept. Each is mapped at its first use and stays mapped, so that access to an entry is a few
//! loads or stores. A mapping is dropped when the system takes its addresses away (an IOMMU
//! invalidation, bus mastering switched off), and made again at the next use. A piece that cannot
//! be mapped is read and written by its address.

use crate::bus::Bus;
use crate::host::DmaFault;
use crate::host::Host;
use crate::host::Mapping;
use crate::list::List;
use crate::mutant::mutant;
use crate::segment::Piece;
use crate::segment::Segment;
use qpair_abi::command::BufferList;
use qpair_abi::counters::Counter;
use qpair_queue::buflist::PageLimits;

/// The alignment of rings.
pub(crate) const ALIGN: u64 = 64;

/// The memory of a ring.
pub(crate) struct Ring<M> {
    writable: bool,
    segments: Vec<Segment<M>>,
    /// Its lowest and highest address: most of the invalidations are of other addresses.
    span: (u64, u64),
    /// Of a ring in pages: bytes before it in its first page, the page shift, and the segment of
    /// each page.
    offset: u64,
    shift: u32,
    pages: Vec<u32>,
    /// The buffer list as software described it.
    described: BufferList,
}

impl<M: Mapping> Ring<M> {
    /// A contiguous ring whose address was given by register.
    pub(crate) fn contiguous(addr: u64, bytes: u64, writable: bool) -> Self {
        let piece = Piece { addr, bytes };
        Self {
            writable,
            segments: vec![Segment::new(0, piece)],
            span: (addr, addr.saturating_add(bytes)),
            offset: 0,
            shift: 0,
            pages: Vec::new(),
            described: BufferList {
                root: addr,
                bytes,
                ..BufferList::default()
            },
        }
    }

    /// A ring of `bytes` bytes at the addresses of a list. `None` if the list is invalid, cannot be
    /// read, or is too short.
    pub(crate) fn new<H: Host<Map = M>>(
        bus: &mut Bus<H>,
        described: &BufferList,
        bytes: u64,
        writable: bool,
        limits: PageLimits,
    ) -> Option<Self> {
        // The list may be longer than the ring; the rest is not read.
        let used = BufferList {
            bytes,
            ..*described
        };
        if described.bytes < bytes || u64::from(described.offset) % ALIGN != 0 {
            return None;
        }
        let mut list = List::new(&used, limits, ALIGN)?;
        let mut ring = Self {
            writable,
            segments: Vec::new(),
            span: (u64::MAX, 0),
            offset: u64::from(described.offset),
            shift: u32::from(list.shape().page_shift()),
            pages: Vec::new(),
            described: *described,
        };
        let mut at = 0u64;
        while at < bytes {
            let piece = list.resolve(bus, at, bytes.wrapping_sub(at)).ok()?;
            ring.append(at, piece);
            at = at.checked_add(piece.bytes)?;
        }
        if list.shape().levels() != 0 {
            ring.index(list.shape().pages())?;
        }
        Some(ring)
    }

    fn append(&mut self, at: u64, piece: Piece) {
        let (lowest, highest) = self.span;
        let end = piece.addr.saturating_add(piece.bytes);
        self.span = (lowest.min(piece.addr), highest.max(end));
        if let Some(last) = self.segments.last_mut() {
            if last.piece.addr.wrapping_add(last.piece.bytes) == piece.addr {
                last.piece.bytes = last.piece.bytes.wrapping_add(piece.bytes);
                return;
            }
        }
        self.segments.push(Segment::new(at, piece));
    }

    /// Notes the segment of each page.
    fn index(&mut self, pages: u64) -> Option<()> {
        self.pages.reserve_exact(usize::try_from(pages).ok()?);
        let mut segment = 0u32;
        for page in 0..pages {
            let first = (page << self.shift).saturating_sub(self.offset);
            while self
                .segments
                .get(segment as usize + 1)
                .is_some_and(|next| next.from <= first)
            {
                segment += 1;
            }
            self.pages.push(segment);
        }
        Some(())
    }

    /// The buffer list as software described it.
    pub(crate) fn described(&self) -> &BufferList {
        &self.described
    }

    /// The segment of byte `at`, the number of its bytes before that byte, and from that byte on.
    #[inline]
    fn segment(&mut self, at: u64) -> Option<(&mut Segment<M>, u64, u64)> {
        let which = if self.pages.is_empty() {
            0
        } else {
            let page = self.offset.wrapping_add(at) >> self.shift;
            *self.pages.get(usize::try_from(page).ok()?)? as usize
        };
        let segment = self.segments.get_mut(which)?;
        let before = at.checked_sub(segment.from)?;
        let left = segment.piece.bytes.checked_sub(before)?;
        (left != 0).then_some((segment, before, left))
    }

    /// Loads words; one DMA read for each contiguous piece.
    #[inline]
    pub(crate) fn load<H: Host<Map = M>>(
        &mut self,
        bus: &mut Bus<H>,
        at: u64,
        words: &mut [u64],
    ) -> Result<(), DmaFault> {
        let writable = self.writable;
        let mut at = at;
        let mut rest = words;
        while !rest.is_empty() {
            let (segment, before, left) = self.segment(at).ok_or(DmaFault)?;
            let count = rest.len().min((left / 8) as usize);
            if count == 0 {
                return Err(DmaFault);
            }
            let (part, others) = rest.split_at_mut(count);
            match segment.mapping(bus, writable) {
                Some(map) => {
                    bus.count(Counter::DmaReads);
                    map.load(before as usize, part);
                }
                None => bus.load(segment.piece.addr.wrapping_add(before), part)?,
            }
            at = at.wrapping_add(count as u64 * 8);
            rest = others;
        }
        Ok(())
    }

    /// Stores an entry, which never crosses a page; one DMA write, its last word last.
    #[inline(always)]
    pub(crate) fn store<H: Host<Map = M>, const N: usize>(
        &mut self,
        bus: &mut Bus<H>,
        at: u64,
        words: [u64; N],
    ) -> Result<(), DmaFault> {
        let (segment, before, left) = self.segment(at).ok_or(DmaFault)?;
        if left < N as u64 * 8 {
            return Err(DmaFault);
        }
        let Some(map) = segment.mapping(bus, true) else {
            return store_by_address(bus, segment.piece.addr.wrapping_add(before), words);
        };
        bus.count(Counter::DmaWrites);
        map.store(before as usize, &words);
        Ok(())
    }

    /// Drops the mappings of a range of addresses that the system takes away.
    pub(crate) fn unmap(&mut self, first: u64, last: u64) {
        let (lowest, highest) = self.span;
        if first > highest || last < lowest || mutant!(UnmapIgnored) {
            return;
        }
        for segment in &mut self.segments {
            segment.unmap(first, last);
        }
    }
}

/// Stores an entry that is not mapped.
#[cold]
fn store_by_address<H: Host, const N: usize>(
    bus: &mut Bus<H>,
    addr: u64,
    words: [u64; N],
) -> Result<(), DmaFault> {
    bus.store(addr, &words)
}
