// SPDX-License-Identifier: GPL-2.0
//! The memory of a ring.
//!
//! The buffer list of a ring is read once, when its object is created, and its contiguous pieces
//! are kept. Each is mapped at its first use and stays mapped, so that access to an entry is a few
//! loads or stores. A mapping is dropped when the system takes its addresses away (an IOMMU
//! invalidation, bus mastering switched off), and made again at the next use. A piece that cannot
//! be mapped is read and written by its address.
//!
//! A ring needs memory of the host for each page of its list, while software may describe many rings
//! by one page. So all rings together have a limited number of pages.

use crate::bus::Bus;
use crate::host::DmaFault;
use crate::host::Host;
use crate::host::Mapping;
use crate::list::List;
use crate::segment::Piece;
use crate::segment::Segment;
use qpair_abi::command::BufferList;
use qpair_abi::counters::Counter;
use qpair_abi::status::AdminError;
use qpair_queue::buflist::PageLimits;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// The alignment of rings.
pub(crate) const ALIGN: u64 = 64;

/// The pages of rings that lists describe.
pub(crate) struct RingPages {
    left: Arc<AtomicU64>,
    /// Entries of lists that were read since the last look.
    read: u64,
}

impl RingPages {
    pub(crate) fn new(most: u32) -> Self {
        Self {
            left: Arc::new(AtomicU64::new(most.into())),
            read: 0,
        }
    }

    /// Takes pages for a ring, whose list is read next. `None` if there are fewer.
    fn take(&mut self, count: u64) -> Option<Share> {
        let take = |left: u64| left.checked_sub(count);
        self.left.fetch_update(Relaxed, Relaxed, take).ok()?;
        self.read = self.read.saturating_add(count);
        Some(Share {
            left: Arc::clone(&self.left),
            count,
        })
    }

    /// How many entries of lists were read since the last call.
    pub(crate) fn take_read(&mut self) -> u64 {
        core::mem::take(&mut self.read)
    }
}

/// The pages of one ring. They go back when it is dropped.
struct Share {
    left: Arc<AtomicU64>,
    count: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.left.fetch_add(self.count, Relaxed);
    }
}

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
    /// Their share of all pages; none of a contiguous ring.
    _share: Option<Share>,
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
            _share: None,
            described: BufferList {
                root: addr,
                bytes,
                ..BufferList::default()
            },
        }
    }

    /// A ring of `bytes` bytes at the addresses of a list.
    ///
    /// # Errors
    ///
    /// [`AdminError::Buffer`] if the list is invalid, cannot be read, or is too short;
    /// [`AdminError::Full`] if too few pages are left.
    pub(crate) fn new<H: Host<Map = M>>(
        bus: &mut Bus<H>,
        pages: &mut RingPages,
        described: &BufferList,
        bytes: u64,
        writable: bool,
        limits: PageLimits,
    ) -> Result<Self, AdminError> {
        // The list may be longer than the ring; the rest is not read.
        let used = BufferList {
            bytes,
            ..*described
        };
        if described.bytes < bytes || u64::from(described.offset) % ALIGN != 0 {
            return Err(AdminError::Buffer);
        }
        let mut list = List::new(&used, limits, ALIGN).ok_or(AdminError::Buffer)?;
        let share = match list.shape().levels() {
            0 => None,
            _ => {
                let share = pages.take(list.shape().pages());
                Some(share.ok_or(AdminError::Full)?)
            }
        };
        let mut ring = Self {
            writable,
            segments: Vec::new(),
            span: (u64::MAX, 0),
            offset: u64::from(described.offset),
            shift: u32::from(list.shape().page_shift()),
            pages: Vec::new(),
            _share: share,
            described: *described,
        };
        ring.fill(bus, &mut list, bytes).ok_or(AdminError::Buffer)?;
        Ok(ring)
    }

    /// Reads the list.
    fn fill<H: Host<Map = M>>(
        &mut self,
        bus: &mut Bus<H>,
        list: &mut List<M>,
        bytes: u64,
    ) -> Option<()> {
        let mut at = 0u64;
        while at < bytes {
            let piece = list.resolve(bus, at, bytes.wrapping_sub(at)).ok()?;
            self.append(at, piece);
            at = at.checked_add(piece.bytes)?;
        }
        self.segments.shrink_to_fit();
        match list.shape().levels() {
            0 => Some(()),
            _ => self.index(list.shape().pages()),
        }
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

    /// Loads words that cross no page; one DMA read.
    // Apart, so that the one above stays in line where it is.
    #[cold]
    pub(crate) fn load_once<H: Host<Map = M>>(
        &mut self,
        bus: &mut Bus<H>,
        at: u64,
        words: &mut [u64],
    ) -> Result<(), DmaFault> {
        let writable = self.writable;
        let (segment, before, left) = self.segment(at).ok_or(DmaFault)?;
        if left / 8 < words.len() as u64 {
            return Err(DmaFault);
        }
        let Some(map) = segment.mapping(bus, writable) else {
            return bus.load(segment.piece.addr.wrapping_add(before), words);
        };
        bus.count(Counter::DmaReads);
        map.load(before as usize, words);
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
        if first > highest || last < lowest {
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
