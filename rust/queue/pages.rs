// SPDX-License-Identifier: GPL-2.0
//! The pages of a fast registration.
//!
//! The pages that a kernel ULP maps have one size and any addresses. Those that follow one another are
//! a block, for which the device reads no table. Others are a table of addresses, which the caller
//! writes.

use super::buflist::page_mask;
use crate::abi::command::BufferList;

/// The list has as many pages as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A list of pages.
#[derive(Clone, Copy, Debug)]
pub struct PageList {
    most: u32,
    count: u32,
    shift: u8,
    first: u64,
    is_block: bool,
}

impl PageList {
    /// An empty list of at most `most` pages.
    pub const fn new(most: u32) -> Self {
        Self {
            most,
            count: 0,
            shift: 0,
            first: 0,
            is_block: true,
        }
    }

    /// Empties it. The next pages have `1 << shift` bytes; `shift` is below 32.
    pub fn begin(&mut self, shift: u8) {
        *self = Self::new(self.most);
        self.shift = shift & 31;
    }

    /// The bytes of all pages.
    fn bytes(&self) -> u64 {
        u64::from(self.count) << self.shift
    }

    /// Adds a page by its DMA address. Returns its index in the table.
    ///
    /// # Errors
    ///
    /// [`Full`]: it is not added.
    pub fn push(&mut self, page: u64) -> Result<usize, Full> {
        if self.count >= self.most {
            return Err(Full);
        }
        if self.count == 0 {
            self.first = page;
        }
        self.is_block &= self.first.checked_add(self.bytes()) == Some(page);
        let index = self.count as usize;
        self.count = self.count.wrapping_add(1);
        Ok(index)
    }

    /// The buffer list of `bytes` bytes, of which the first is in the first page, as far in it as
    /// `addr` is in its page. `table` is the DMA address of the table. `None`: the pages do not hold
    /// that.
    pub fn list(&self, table: u64, addr: u64, bytes: u64) -> Option<BufferList> {
        let offset = addr & page_mask(self.shift);
        if bytes == 0 || offset.checked_add(bytes)? > self.bytes() {
            return None;
        }
        let block = BufferList {
            root: self.first.checked_add(offset)?,
            bytes,
            ..BufferList::default()
        };
        Some(match self.is_block {
            true => block,
            false => BufferList {
                root: table,
                bytes,
                // CAST: Less than a page, which is below 1 << 32.
                offset: offset as u32,
                page_shift: self.shift,
                levels: 1,
            },
        })
    }
}
