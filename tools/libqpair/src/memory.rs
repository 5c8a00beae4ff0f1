// SPDX-License-Identifier: GPL-2.0
//! Memory that is shared with the device.
//!
//! [`Memory`] is a private anonymous mapping: page-aligned, zeroed, and not inherited by a child
//! (`MADV_DONTFORK`), since the device would not use the child's copy. The device may read and
//! write it at any time, so only [`Memory::bytes`], which is unsafe, gives a reference to its
//! bytes; everything else copies, or accesses single words.

use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use qpair_queue::producer::Rows;
use qpair_queue::storage::Storage;
use qpair_ring::{Words, PAGE, WORD};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::error::Error;

/// The page size of memory. Fewer pages make shorter tables for the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// Ordinary pages, unless the system makes all memory transparent huge pages.
    #[default]
    Normal,
    /// Asks for transparent huge pages; ordinary pages are used where there are none.
    Large,
    /// 2 MiB pages of the hugetlb pool (`vm.nr_hugepages`), or an error.
    Huge,
}

/// Bytes of a hugetlb page.
const HUGE: usize = 2 << 20;

/// Page-aligned memory of this process's own.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    /// Bytes mapped: whole pages.
    mapped: usize,
}

// SAFETY: `self` owns the address range, and only its methods access it.
unsafe impl Send for Memory {}
// SAFETY: Safe methods access it by atomics only.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `bytes` zeroed bytes, at least 1.
    pub fn new(bytes: usize) -> Result<Self, Error> {
        Self::with_pages(bytes, Pages::Normal)
    }

    /// [`new`](Self::new) with a choice of pages.
    pub fn with_pages(bytes: usize, pages: Pages) -> Result<Self, Error> {
        let page = if pages == Pages::Huge { HUGE } else { PAGE };
        let range = Error::Range {
            what: "the size of memory",
            value: bytes as u64,
            allowed: "at least 1, and less than the address space",
        };
        let Some(mapped) = bytes.checked_next_multiple_of(page).filter(|&all| all > 0) else {
            return Err(range);
        };
        let mut flags = MapFlags::PRIVATE;
        if pages == Pages::Huge {
            flags |= MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        }
        let refused = Error::kernel(match pages {
            Pages::Huge => "map huge pages (reserve some: sysctl vm.nr_hugepages)",
            _ => "map memory",
        });
        // SAFETY: A new mapping, at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        };
        let start = start.map_err(&refused)?.cast();
        let memory = Self {
            start: NonNull::new(start).ok_or_else(|| refused(Errno::NOMEM))?,
            bytes,
            mapped,
        };
        // SAFETY: `self` owns it, and neither advice changes its contents.
        unsafe {
            rustix::mm::madvise(start.cast(), mapped, Advice::LinuxDontFork).map_err(&refused)?;
            if pages == Pages::Large {
                // A kernel without huge pages refuses; that is not an error.
                let _: Result<(), Errno> =
                    rustix::mm::madvise(start.cast(), mapped, Advice::LinuxHugepage);
            }
        }
        Ok(memory)
    }

    /// Its address, in this process and for the device.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Bytes that were asked for; the mapping is of whole pages.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Always false: there is at least one byte.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes of the whole pages that back it.
    pub(crate) fn mapped(&self) -> u64 {
        self.mapped as u64
    }

    /// Copies bytes out, from `offset` on.
    ///
    /// # Panics
    ///
    /// If the range is not inside.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        // SAFETY: Inside the mapping, checked; `into` does not overlap it. If the device writes it
        // meanwhile the bytes are old or new ones.
        unsafe { ptr::copy_nonoverlapping(self.at(offset), into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes in, from `offset` on.
    ///
    /// # Panics
    ///
    /// If the range is not inside.
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        // SAFETY: Inside the mapping, checked; `from` does not overlap it. If the device reads it
        // meanwhile it gets old or new bytes.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.at(offset), from.len()) }
    }

    /// The bytes themselves, to use without a copy.
    ///
    /// # Safety
    ///
    /// As long as the slice lives, there is no other access to this part: no other slice or copy,
    /// and no work request or peer that makes the device read or write it.
    ///
    /// # Panics
    ///
    /// If the range is not inside.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn bytes(&self, offset: usize, len: usize) -> &mut [u8] {
        self.check(offset, len);
        // SAFETY: Inside the mapping, checked; the caller guarantees exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.at(offset), len) }
    }

    fn check(&self, offset: usize, len: usize) {
        assert!(
            offset <= self.bytes && len <= self.bytes - offset,
            "{offset}+{len} is outside of {} bytes",
            self.bytes
        );
    }

    fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: Callers have checked that it is inside.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: It was mapped by `with_pages`, and references to it do not outlive `self`. A
        // registration, if any, has ended before; and pinned pages outlive a mapping.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.mapped) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

/// A ring in [`Memory`], as `queue` requires it: words, and three ordering points.
///
/// A doorbell is a store to uncached memory. On x86-64 a load is not reordered with later loads or
/// stores, nor a store with later stores, to ordinary or uncached memory alike; so the fences only
/// restrain the compiler.
#[derive(Debug)]
pub struct Ring {
    memory: Memory,
    /// The number of words, a power of two.
    words: usize,
}

impl Ring {
    /// A zeroed ring of `entries` of `entry_bytes`. The total is a power of two, and at least a
    /// word.
    pub fn new(entries: u32, entry_bytes: usize, pages: Pages) -> Result<Self, Error> {
        let bytes = (entries as usize).checked_mul(entry_bytes);
        let Some(bytes) = bytes.filter(|bytes| bytes.is_power_of_two() && *bytes >= WORD) else {
            return Err(Error::Range {
                what: "the size of a ring",
                value: bytes.unwrap_or(usize::MAX) as u64,
                allowed: "a power of two, at least 8",
            });
        };
        Ok(Self {
            memory: Memory::with_pages(bytes, pages)?,
            words: bytes / WORD,
        })
    }

    /// The address, in this process and for the device.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Bytes that the kernel may use.
    pub fn bytes(&self) -> u64 {
        self.memory.mapped()
    }

    /// Zeroes it; the device must not use it.
    pub(crate) fn clear(&self) {
        for at in 0..self.words() {
            self.store(at, 0);
        }
    }

    /// Its words, for loops over many of them.
    #[inline(always)]
    pub(crate) fn view(&self) -> Words<'_> {
        // SAFETY: Mapped by whole pages and initialised as long as the ring lives, and only accessed
        // as these words. `new` has checked their number.
        unsafe { Words::new(self.memory.start, self.words) }
    }
}

/// A [`Ring`] that outlives its queue: a reset creates a new queue in it.
#[derive(Clone, Debug)]
pub(crate) struct SharedRing(Arc<Ring>);

impl SharedRing {
    pub(crate) fn new(ring: Ring) -> Self {
        Self(Arc::new(ring))
    }
}

impl Deref for SharedRing {
    type Target = Ring;

    #[inline(always)]
    fn deref(&self) -> &Ring {
        &self.0
    }
}

/// Both use the view.
macro_rules! as_its_view {
    ($($name:ty),*) => { $(
        impl Storage for $name {
            #[inline(always)]
            fn words(&self) -> usize {
                self.view().words()
            }
            #[inline(always)]
            fn load(&self, at: usize) -> u64 {
                self.view().load(at)
            }
            #[inline(always)]
            fn store(&self, at: usize, word: u64) {
                self.view().store(at, word);
            }
            #[inline(always)]
            fn after_owner(&self) {
                self.view().after_owner();
            }
            #[inline(always)]
            fn before_head(&self) {
                self.view().before_head();
            }
            #[inline(always)]
            fn before_tail(&self) {
                self.view().before_tail();
            }
            #[inline(always)]
            fn load_entry<const N: usize>(
                &self,
                at: usize,
                there: impl FnOnce(u64) -> bool,
            ) -> Option<[u64; N]> {
                self.view().load_entry(at, there)
            }
            #[inline(always)]
            fn store_all<const N: usize>(&self, at: usize, words: &[u64; N]) {
                self.view().store_all(at, words);
            }
        }

        impl Rows for $name {}
    )* };
}

as_its_view!(Ring, SharedRing);

#[cfg(test)]
mod tests {
    use std::panic::{catch_unwind, UnwindSafe};

    use super::*;

    fn panics(access: impl FnOnce() + UnwindSafe) -> bool {
        catch_unwind(access).is_err()
    }

    #[test]
    fn memory_that_is_dropped_is_unmapped() {
        // Other threads do not map so much, so some of the range stays free.
        const BYTES: usize = 1 << 28;
        let memory = Memory::new(BYTES).unwrap();
        let start = memory.start.as_ptr().cast();
        // SAFETY: The advice is the default one, which changes nothing.
        let is_mapped = || unsafe { rustix::mm::madvise(start, BYTES, Advice::Normal) }.is_ok();
        assert!(is_mapped());
        drop(memory);
        assert!(!is_mapped());
    }

    #[test]
    fn an_access_outside_panics() {
        let memory = &Memory::new(100).unwrap();
        assert_eq!((memory.len(), memory.is_empty()), (100, false));
        assert_eq!(memory.mapped(), PAGE as u64);
        for (offset, len) in [(0, 0), (0, 100), (99, 1), (100, 0)] {
            memory.read(offset, &mut vec![0; len]);
            memory.write(offset, &vec![0; len]);
            // SAFETY: There is no other access.
            assert_eq!(unsafe { memory.bytes(offset, len) }.len(), len);
        }
        // The mapping goes on to the end of the page, so only the check refuses these.
        for (offset, len) in [(0, 101), (100, 1), (101, 0), (usize::MAX, 2)] {
            assert!(panics(|| memory.read(offset, &mut vec![0; len])));
            assert!(panics(|| memory.write(offset, &vec![0; len])));
            // SAFETY: There is no other access.
            assert!(panics(|| unsafe {
                memory.bytes(offset, len);
            }));
        }
    }
}
