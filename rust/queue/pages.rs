// SPDX-License-Identifier: GPL-2.0
//! The pages of a fast registration.
//!
//! The pages that a kernel ULP maps have one size and any addresses. Those that follow one another are
//! a block, for which the device reads no table. Others are a table of addresses, which the caller
//! writes.
//!
//! A ULP maps pages while the device may still use the ones before: it posts the end of one registration
//! together with the next. So the table has two halves, and pages go to the half that the device was
//! not given last. A ULP maps once more only when that next registration has been executed, by which
//! time the one before has ended.

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
    /// Whether its pages are in the second half of the table, and whether the device was given it.
    second: bool,
    given: bool,
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
            second: false,
            given: false,
        }
    }

    /// The bytes of a table for lists of at most `most` pages.
    pub const fn table_bytes(most: u32) -> usize {
        most as usize * 2 * 8
    }

    /// Empties it. The next pages have `1 << shift` bytes; `shift` is below 32.
    pub fn begin(&mut self, shift: u8) {
        let second = self.second != self.given;
        *self = Self::new(self.most);
        self.shift = shift & 31;
        self.second = second;
    }

    /// The index of the first page in the table.
    fn base(&self) -> u32 {
        if self.second {
            self.most
        } else {
            0
        }
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
        let index = self.base().wrapping_add(self.count);
        self.count = self.count.wrapping_add(1);
        Ok(index as usize)
    }

    /// The buffer list of `bytes` bytes, of which the first is in the first page, as far in it as
    /// `addr` is in its page. `table` is the DMA address of the table. `None`: the pages do not hold
    /// that, or need a table that is gone.
    pub fn list(&self, table: Option<u64>, addr: u64, bytes: u64) -> Option<BufferList> {
        let offset = addr & page_mask(self.shift);
        if bytes == 0 || offset.checked_add(bytes)? > self.bytes() {
            return None;
        }
        if self.is_block {
            return Some(BufferList {
                root: self.first.checked_add(offset)?,
                bytes,
                ..BufferList::default()
            });
        }
        let root = table?.checked_add(u64::from(self.base()) * 8)?;
        Some(BufferList {
            root,
            bytes,
            // CAST: Less than a page, which is below 1 << 32.
            offset: offset as u32,
            page_shift: self.shift,
            levels: 1,
        })
    }

    /// The device was given the list. If that is a table, the next pages go to the other half.
    pub fn give(&mut self) {
        self.given = !self.is_block;
    }
}
