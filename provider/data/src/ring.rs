// SPDX-License-Identifier: GPL-2.0
//! The memory of rings, and the page of doorbells: mapped in C, used here.

use std::ptr::NonNull;

use qpair_abi::doorbell;
use qpair_abi::Number;
use qpair_queue::index::Index;
use qpair_ring::{Words, PAGE, WORD};

/// The words of a ring, mapped for as long as its queue exists.
pub type Ring = Words<'static>;

/// A ring of `entries` entries of `entry_bytes`. `None` if the address is not that of a page, or the
/// number of words is no power of two.
///
/// # Safety
///
/// The memory is mapped, whole pages of it, and initialised, as long as any copy of the result
/// exists. It is accessed by this process through rings only, and by the device as whole words.
pub unsafe fn mapped(start: *mut u8, entries: u32, entry_bytes: usize) -> Option<Ring> {
    let words = (entries as usize).checked_mul(entry_bytes)? / WORD;
    let start = NonNull::new(start).filter(|start| start.as_ptr() as usize % PAGE == 0)?;
    // SAFETY: Checked here, or by the caller's promise.
    words
        .is_power_of_two()
        .then(|| unsafe { Words::new(start, words) })
}

/// The page of doorbells of a process.
///
/// # Invariants
///
/// A mapped page.
#[derive(Clone, Copy, Debug)]
pub struct Doorbells(NonNull<u64>);

// SAFETY: Only whole words are stored, and the order of doorbells of several threads is that of
// their locks.
unsafe impl Send for Doorbells {}
// SAFETY: As above.
unsafe impl Sync for Doorbells {}

impl Doorbells {
    /// The page at `start`; `None` if that is not the address of a page.
    ///
    /// # Safety
    ///
    /// It is mapped, writable, as long as any copy of the result exists.
    pub unsafe fn new(start: *mut u8) -> Option<Self> {
        // INVARIANT: By the caller's promise.
        NonNull::new(start)
            .filter(|start| start.as_ptr() as usize % PAGE == 0)
            .map(|start| Self(start.cast()))
    }

    /// Writes the index of a queue to the doorbell at `place`.
    #[inline(always)]
    pub(crate) fn ring(self, place: u64, number: Number, index: Index) {
        const {
            assert!(doorbell::CQ_NOTIFY_SOLICITED < doorbell::PAGE_BYTES);
        }
        debug_assert!(place < doorbell::PAGE_BYTES);
        let value = doorbell::value(number, index.get()).to_le();
        // SAFETY: By the type's invariant; the remainder is in the page.
        unsafe {
            self.0
                .add(place as usize % PAGE / WORD)
                .write_volatile(value);
        }
    }
}
