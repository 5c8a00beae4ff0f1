// SPDX-License-Identifier: GPL-2.0
//! Buffer lists as a device reads them, from an untrusted descriptor.

use qpair_abi::command::BufferList;
use qpair_queue::buflist::page_count;
use qpair_queue::buflist::page_mask;
use qpair_queue::buflist::PageLimits;
use qpair_queue::buflist::LEAF_BYTES;
use qpair_queue::buflist::LEAF_ENTRIES;

const ENTRY_BYTES: u64 = 8;

/// Why a descriptor is refused.
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
    /// In the block, without a table.
    Block {
        /// The DMA address of the byte.
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

    /// Levels of tables, 0 to 2.
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
