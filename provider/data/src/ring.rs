// SPDX-License-Identifier: GPL-2.0
//! The memory of rings, and the page of doorbells: mapped in C, used here.
//!
//! A doorbell is a store to uncached memory. On x86-64 a load is not reordered with later loads or
//! stores, nor a store with later stores, to ordinary or uncached memory alike; so the fences only
//! restrain the compiler.

use std::ptr::NonNull;
use std::sync::atomic::{fence, AtomicU64, Ordering};

use qpair_abi::doorbell;
use qpair_abi::Number;
use qpair_queue::index::Index;
use qpair_queue::storage::Storage;

/// Bytes of a page; rings begin at one.
const PAGE: usize = 4096;
/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// The words of a ring. Indices wrap at its end, so none is outside.
///
/// # Invariants
///
/// `words` is the start of `mask + 1` words, a power of two, in mapped memory of at least a page
/// that is accessed as whole words only.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    words: NonNull<AtomicU64>,
    mask: usize,
}

// SAFETY: It accesses its memory by atomics only.
unsafe impl Send for Ring {}
// SAFETY: As above.
unsafe impl Sync for Ring {}

impl Ring {
    /// A ring of `entries` entries of `entry_bytes`. `None` if the address is not that of a page,
    /// or the number of words is no power of two.
    ///
    /// # Safety
    ///
    /// The memory is mapped, whole pages of it, and initialised, as long as any copy of the result
    /// exists. It is accessed by this process through rings only, and by the device as whole words.
    pub unsafe fn new(start: *mut u8, entries: u32, entry_bytes: usize) -> Option<Self> {
        let words = (entries as usize).checked_mul(entry_bytes)? / WORD;
        let start = NonNull::new(start).filter(|start| start.as_ptr() as usize % PAGE == 0)?;
        // INVARIANT: Checked here, or by the caller's promise.
        words.is_power_of_two().then_some(Self {
            words: start.cast(),
            mask: words - 1,
        })
    }

    /// The `N` words around `at`, a multiple of `N`.
    #[inline(always)]
    fn at<const N: usize>(&self, at: usize) -> &[AtomicU64; N] {
        const { assert!(N.is_power_of_two() && N * WORD <= PAGE) }
        // The mask is for memory safety only; a correct caller wraps at the end of the ring itself.
        debug_assert!(at <= self.mask && at & (N - 1) == 0);
        let at = at & self.mask & !(N - 1);
        // SAFETY: By the type's invariant. The mask is a power of two minus one; so either all `N`
        // words are inside, or `at` is 0 and they are in the first page, which always exists.
        unsafe { self.words.add(at).cast().as_ref() }
    }

    /// The `N` words around `at`, and all after them, `N` at a time.
    #[inline(always)]
    fn from<const N: usize>(&self, at: usize) -> &[[AtomicU64; N]] {
        let at = at & self.mask & !(N - 1);
        let count = (self.words() - at) / N;
        // SAFETY: As in `at`, and nothing past the last word: `at` is inside, and `count` rounds
        // down.
        unsafe { std::slice::from_raw_parts(self.words.add(at).cast().as_ptr(), count) }
    }
}

#[inline(always)]
fn load(word: &AtomicU64) -> u64 {
    u64::from_le(word.load(Ordering::Relaxed))
}

/// The words of an entry, the last first.
#[inline(always)]
fn entry<const N: usize>(
    from: &[AtomicU64; N],
    there: impl FnOnce(u64) -> bool,
) -> Option<[u64; N]> {
    let owner = load(&from[N - 1]);
    if !there(owner) {
        return None;
    }
    fence(Ordering::Acquire);
    // All but the last word, which was loaded first.
    Some(std::array::from_fn(|i| match i {
        last if last == N - 1 => owner,
        other => load(&from[other]),
    }))
}

impl Storage for Ring {
    #[inline(always)]
    fn words(&self) -> usize {
        self.mask + 1
    }

    #[inline(always)]
    fn load(&self, at: usize) -> u64 {
        let [word] = self.at(at);
        load(word)
    }

    #[inline(always)]
    fn store(&self, at: usize, value: u64) {
        let [word] = self.at(at);
        word.store(value.to_le(), Ordering::Relaxed);
    }

    #[inline(always)]
    fn after_owner(&self) {
        fence(Ordering::Acquire);
    }

    #[inline(always)]
    fn before_head(&self) {
        fence(Ordering::Release);
    }

    #[inline(always)]
    fn before_tail(&self) {
        fence(Ordering::Release);
    }

    #[inline(always)]
    fn load_entry<const N: usize>(
        &self,
        at: usize,
        there: impl FnOnce(u64) -> bool,
    ) -> Option<[u64; N]> {
        entry(self.at(at), there)
    }

    #[inline(always)]
    fn load_row<const N: usize, T>(
        &self,
        at: usize,
        into: &mut [T],
        there: impl Fn(u64) -> bool,
        mut takes: impl FnMut(&mut T, &[u64; N]) -> bool,
    ) -> u32 {
        let mut taken = 0;
        for (place, from) in into.iter_mut().zip(self.from(at)) {
            match entry(from, &there) {
                Some(words) if takes(place, &words) => taken += 1,
                _ => break,
            }
        }
        taken
    }

    #[inline(always)]
    fn store_all<const N: usize>(&self, at: usize, words: &[u64; N]) {
        let into: &[AtomicU64; N] = self.at(at);
        for (into, word) in into.iter().zip(words) {
            into.store(word.to_le(), Ordering::Relaxed);
        }
    }
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
        // SAFETY: By the type's invariant; places are constants below the end of the page.
        unsafe {
            self.0
                .add(place as usize / WORD % (PAGE / WORD))
                .write_volatile(value);
        }
    }
}
