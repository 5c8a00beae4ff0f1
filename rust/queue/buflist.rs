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
//! [`Plan`] writes lists, from the segments of a DMA mapping. [`Shape`] reads them, from an
//! untrusted descriptor.

use crate::abi::command::BufferList;

/// Entries of a leaf table.
pub const LEAF_ENTRIES: u64 = 512;
/// Bytes of a leaf table, and what it is aligned to.
pub const LEAF_BYTES: u64 = 4096;
const ENTRY_BYTES: u64 = 8;

/// A piece of DMA address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First byte.
    pub addr: u64,
    /// Bytes.
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
    const fn max(self) -> u8 {
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
    /// No bytes.
    Empty,
    /// The end of a segment, or the total length, exceeds 64 bits.
    Overflow,
    /// A seam is inside a page of the smallest size.
    Seam,
}

const fn page_mask(shift: u8) -> u64 {
    (1u64 << (shift & 63)).wrapping_sub(1)
}

/// Pages of `1 << shift` bytes that `bytes` bytes from `offset` on touch; saturates.
const fn page_count(offset: u64, bytes: u64, shift: u8) -> u64 {
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

    /// Levels of tables.
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

/// What is wrong with a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadShape {
    /// More than two levels.
    Levels,
    /// An unsupported page size; for a block, any.
    PageShift,
    /// Not inside the first page; for a block, any but 0.
    Offset,
    /// No bytes of pages, or more than 64 bits can address.
    Length,
    /// The root is not aligned, or the table or block ends past the address space.
    Root,
}

/// A descriptor that has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    root: u64,
    bytes: u64,
    offset: u64,
    page_shift: u8,
    levels: u8,
}

/// Where a byte is, and how many contiguous bytes follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot {
    /// At this address.
    Block {
        /// The byte's address.
        addr: u64,
        /// Bytes from it to the end of the buffer.
        left: u64,
    },
    /// In the page whose address is at `entry`.
    Page {
        /// Address of the page's entry in the root table.
        entry: u64,
        /// The byte's offset in the page.
        inside: u64,
        /// Bytes from it to the end of the page or of the buffer.
        left: u64,
    },
    /// In the page whose address is in the leaf table whose address is at `entry`.
    Leaf {
        /// Address of the leaf's entry in the root table.
        entry: u64,
        /// Offset in bytes of the page's entry in the leaf table.
        leaf_offset: u64,
        /// The byte's offset in the page.
        inside: u64,
        /// Bytes from it to the end of the page or of the buffer.
        left: u64,
    },
}

impl Shape {
    /// Checks a descriptor; the root of a block must be aligned to `align`, a power of two. Only a
    /// block may be of no bytes.
    pub fn check(list: &BufferList, limits: PageLimits, align: u64) -> Result<Self, BadShape> {
        let offset = u64::from(list.offset);
        if list.bytes == 0 && list.levels != 0 {
            return Err(BadShape::Length);
        }
        let shape = Self {
            root: list.root,
            bytes: list.bytes,
            offset,
            page_shift: list.page_shift,
            levels: list.levels,
        };
        let (bytes, align) = match list.levels {
            0 => {
                if list.page_shift != 0 {
                    return Err(BadShape::PageShift);
                }
                if offset != 0 {
                    return Err(BadShape::Offset);
                }
                (list.bytes, align)
            }
            1 | 2 => {
                if list.page_shift < limits.min_shift || list.page_shift > limits.max() {
                    return Err(BadShape::PageShift);
                }
                if offset > page_mask(list.page_shift) {
                    return Err(BadShape::Offset);
                }
                if offset.checked_add(list.bytes).is_none() {
                    return Err(BadShape::Length);
                }
                let bytes = shape.root_entries().checked_mul(ENTRY_BYTES);
                (bytes.ok_or(BadShape::Length)?, ENTRY_BYTES)
            }
            _ => return Err(BadShape::Levels),
        };
        // The last byte may be the last of the address space.
        let last = bytes.saturating_sub(1);
        if list.root & align.wrapping_sub(1) != 0 || list.root.checked_add(last).is_none() {
            return Err(BadShape::Root);
        }
        Ok(shape)
    }

    /// Bytes of the buffer.
    #[inline]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Levels of tables.
    #[inline]
    pub const fn levels(&self) -> u8 {
        self.levels
    }

    /// Base-two logarithm of the page size; 0 for a block.
    #[inline]
    pub const fn page_shift(&self) -> u8 {
        self.page_shift
    }

    /// Address of the block, or of the root table.
    #[inline]
    pub const fn root(&self) -> u64 {
        self.root
    }

    /// Pages of the buffer; 0 for a block.
    pub fn pages(&self) -> u64 {
        if self.levels == 0 {
            return 0;
        }
        page_count(self.offset, self.bytes, self.page_shift)
    }

    /// Entries of the root table; 0 for a block.
    pub fn root_entries(&self) -> u64 {
        match self.levels {
            0 => 0,
            1 => self.pages(),
            _ => self.pages().div_ceil(LEAF_ENTRIES),
        }
    }

    /// Where byte `at` of the buffer is; `None` past the end.
    #[inline]
    pub fn locate(&self, at: u64) -> Option<Spot> {
        let left = self.bytes.checked_sub(at)?;
        if left == 0 {
            return None;
        }
        // No sum overflows: `check` has checked root, offset and length.
        if self.levels == 0 {
            let addr = self.root.wrapping_add(at);
            return Some(Spot::Block { addr, left });
        }
        let at = self.offset.wrapping_add(at);
        let mask = page_mask(self.page_shift);
        let page = at >> (self.page_shift & 63);
        let inside = at & mask;
        let left = left.min(mask.wrapping_add(1).wrapping_sub(inside));
        Some(if self.levels == 1 {
            Spot::Page {
                entry: self.root.wrapping_add(page.wrapping_mul(ENTRY_BYTES)),
                inside,
                left,
            }
        } else {
            let leaf = page / LEAF_ENTRIES;
            Spot::Leaf {
                entry: self.root.wrapping_add(leaf.wrapping_mul(ENTRY_BYTES)),
                leaf_offset: page % LEAF_ENTRIES * ENTRY_BYTES,
                inside,
                left,
            }
        })
    }

    /// The page that an entry names; `None` if it is not aligned to the page size.
    #[inline]
    pub const fn page(&self, entry: u64) -> Option<u64> {
        if entry & page_mask(self.page_shift) != 0 {
            return None;
        }
        Some(entry)
    }

    /// The leaf table that an entry of the root names; `None` if it is not aligned.
    #[inline]
    pub const fn leaf(&self, entry: u64) -> Option<u64> {
        if entry & (LEAF_BYTES - 1) != 0 {
            return None;
        }
        Some(entry)
    }
}
