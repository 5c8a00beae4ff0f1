// SPDX-License-Identifier: GPL-2.0
//! Buffer lists: the memory of a ring or a region.
//!
//! A buffer is `bytes` bytes. The device sees it as
//!
//! | levels | root |
//! |---|---|
//! | 0 | the block itself, contiguous |
//! | 1 | a contiguous table of page addresses, of any length |
//! | 2 | a contiguous table of addresses of leaf tables, each 4 KiB with 512 page addresses |
//!
//! and its first byte is `offset` bytes into the first page. All pages have one size, and larger
//! pages need fewer table entries. The *seams* limit the size: places where the next byte of the
//! buffer is not the next DMA address. A seam must be a page boundary on both sides, so the low
//! bits that are zero in the addresses at all seams give the page size. (`ib_umem_find_best_pgsz()`
//! does the same relative to a given address; here the first DMA address determines the offset.) Of
//! the sizes that need equally few pages, the smallest is used.
//!
//! [`Plan`] writes lists, from the segments of a DMA mapping. The device reads them, from an untrusted
//! descriptor (`qemu/model/src/rules/shape.rs`).

use crate::abi::command::BufferList;

/// Entries of a leaf table.
pub const LEAF_ENTRIES: u64 = 512;
/// Bytes of a leaf table, and what it is aligned to.
pub const LEAF_BYTES: u64 = 4096;

/// A piece of DMA address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The DMA address of its first byte.
    pub addr: u64,
    /// Its length in bytes; 0 is skipped.
    pub bytes: u64,
}

/// The page sizes that a device supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimits {
    /// Base-two logarithm of the smallest.
    pub min_shift: u8,
    /// Base-two logarithm of the largest, at most 31.
    pub max_shift: u8,
}

impl PageLimits {
    /// `max_shift`, at most 31.
    pub const fn max(self) -> u8 {
        if self.max_shift > 31 {
            31
        } else {
            self.max_shift
        }
    }
}

/// Why segments cannot be described by a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The segments have no bytes.
    Empty,
    /// The end of a segment, or the total length, exceeds 64 bits.
    Overflow,
    /// A seam is inside a page of the smallest size.
    Seam,
}

/// The bytes of a page but its first, as a mask.
pub const fn page_mask(shift: u8) -> u64 {
    (1u64 << (shift & 63)).wrapping_sub(1)
}

/// Pages of `1 << shift` bytes that `bytes` bytes from `offset` on touch; saturates.
pub const fn page_count(offset: u64, bytes: u64, shift: u8) -> u64 {
    let last = offset.saturating_add(bytes).saturating_sub(1);
    if bytes == 0 {
        return 0;
    }
    (last >> (shift & 63)).saturating_add(1)
}

/// A list to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    levels: u8,
    page_shift: u8,
    offset: u64,
    first: u64,
    bytes: u64,
    pages: u64,
}

impl Plan {
    /// Plans a list for these segments, in order; empty ones are skipped. A root of page addresses
    /// has at most `flat` entries, else there are leaf tables. A contiguous buffer is a block,
    /// unless it is larger than the largest page.
    pub fn new(
        segments: impl Iterator<Item = Segment>,
        limits: PageLimits,
        flat: u64,
    ) -> Result<Self, Unfit> {
        let mut first = None;
        let mut end = 0u64;
        let mut bytes = 0u64;
        let mut seams = 0u64;
        let mut contiguous = true;
        for segment in segments {
            if segment.bytes == 0 {
                continue;
            }
            if first.is_none() {
                first = Some(segment.addr);
            } else if segment.addr != end {
                contiguous = false;
                seams |= segment.addr | end;
            }
            // The last byte of the address space is never part of a buffer.
            end = segment
                .addr
                .checked_add(segment.bytes)
                .ok_or(Unfit::Overflow)?;
            bytes = bytes.checked_add(segment.bytes).ok_or(Unfit::Overflow)?;
        }
        let first = first.ok_or(Unfit::Empty)?;
        let max = limits.max();
        if contiguous && bytes <= page_mask(max).wrapping_add(1) {
            return Ok(Self {
                levels: 0,
                page_shift: 0,
                offset: 0,
                first,
                bytes,
                pages: 0,
            });
        }
        let mut shift = (seams.trailing_zeros() as u8).min(max);
        if shift < limits.min_shift {
            return Err(Unfit::Seam);
        }
        let count = |shift: u8| page_count(first & page_mask(shift), bytes, shift);
        let pages = count(shift);
        while shift > limits.min_shift && count(shift.wrapping_sub(1)) == pages {
            shift = shift.wrapping_sub(1);
        }
        Ok(Self {
            levels: if pages <= flat { 1 } else { 2 },
            page_shift: shift,
            offset: first & page_mask(shift),
            first,
            bytes,
            pages,
        })
    }

    /// Levels of tables, 0 to 2.
    pub const fn levels(&self) -> u8 {
        self.levels
    }

    /// Base-two logarithm of the page size; 0 for a block.
    pub const fn page_shift(&self) -> u8 {
        self.page_shift
    }

    /// Page addresses to write; 0 for a block.
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// Leaf tables to allocate; page `i` is entry `i % 512` of leaf `i / 512`.
    pub fn leaves(&self) -> u64 {
        if self.levels < 2 {
            return 0;
        }
        self.pages.div_ceil(LEAF_ENTRIES)
    }

    /// Entries of the root table; 0 for a block.
    pub fn root_entries(&self) -> u64 {
        match self.levels {
            0 => 0,
            1 => self.pages,
            _ => self.leaves(),
        }
    }

    /// The page addresses, from the segments that the plan was made from.
    pub fn entries<I: Iterator<Item = Segment>>(&self, segments: I) -> Pages<I> {
        Pages {
            segments,
            run: Segment { addr: 0, bytes: 0 },
            skip: 0,
            next_skip: (page_mask(self.page_shift).wrapping_add(1)).wrapping_sub(self.offset),
            page: page_mask(self.page_shift).wrapping_add(1),
            left: self.pages,
        }
    }

    /// The descriptor for the device, with the tables at `root` (ignored for a block).
    pub const fn describe(&self, root: u64) -> BufferList {
        BufferList {
            root: if self.levels == 0 { self.first } else { root },
            bytes: self.bytes,
            offset: self.offset as u32,
            page_shift: self.page_shift,
            levels: self.levels,
        }
    }
}

/// The page addresses of a list.
#[derive(Clone, Debug)]
pub struct Pages<I> {
    segments: I,
    /// What is left of the current segment.
    run: Segment,
    /// Bytes from the beginning of `run` to the next page.
    skip: u64,
    /// Bytes from there to the page after it.
    next_skip: u64,
    page: u64,
    left: u64,
}

impl<I: Iterator<Item = Segment>> Iterator for Pages<I> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.left == 0 {
            return None;
        }
        while self.skip >= self.run.bytes {
            self.skip = self.skip.wrapping_sub(self.run.bytes);
            self.run = self.segments.next()?;
        }
        self.run.addr = self.run.addr.wrapping_add(self.skip);
        self.run.bytes = self.run.bytes.wrapping_sub(self.skip);
        self.skip = self.next_skip;
        self.next_skip = self.page;
        self.left = self.left.wrapping_sub(1);
        // Only the first page begins before the buffer does.
        Some(self.run.addr & !self.page.wrapping_sub(1))
    }
}
