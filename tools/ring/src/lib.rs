// SPDX-License-Identifier: GPL-2.0
//! What the library and the provider have in common: the words of a ring in the memory of a process,
//! and which entries of a CQ belong to a queue pair ([`served`]).
//!
//! On x86-64 a load is not reordered with later loads or stores, nor a store with later stores, to
//! ordinary or uncached memory alike; so the fences only restrain the compiler.

pub mod served;
pub mod table;

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{fence, AtomicU64, Ordering};

use qpair_queue::producer::Rows;
use qpair_queue::storage::Storage;

/// Bytes of a page; rings begin at one.
pub const PAGE: usize = 4096;
/// Bytes of a word.
pub const WORD: usize = size_of::<u64>();

/// The words of a ring. Indices wrap at its end, so none is outside.
///
/// # Invariants
///
/// `words` is the start of `mask + 1` words, a power of two, in memory of at least a page that is
/// mapped for `'a` and accessed as whole words only.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    words: NonNull<AtomicU64>,
    mask: usize,
    memory: PhantomData<&'a [AtomicU64]>,
}

// SAFETY: It accesses its memory by atomics only.
unsafe impl Send for Words<'_> {}
// SAFETY: As above.
unsafe impl Sync for Words<'_> {}

impl Words<'_> {
    /// The `words` words from `start` on.
    ///
    /// # Safety
    ///
    /// `start` is the address of a page, and `words` a power of two. Whole pages are mapped and
    /// initialised for the lifetime. This process accesses them as whole words only, and so does
    /// the device.
    #[inline(always)]
    pub unsafe fn new(start: NonNull<u8>, words: usize) -> Self {
        // INVARIANT: By the caller's promise.
        Self {
            words: start.cast(),
            mask: words - 1,
            memory: PhantomData,
        }
    }

    /// The `N` words from `at` on, a multiple of `N` rounded up to a power of two.
    #[inline(always)]
    fn at<const N: usize>(&self, at: usize) -> &[AtomicU64; N] {
        const { assert!(N.next_power_of_two() * WORD <= PAGE) }
        let within = const { N.next_power_of_two() - 1 };
        // The mask is for memory safety only; a correct caller wraps at the end of the ring itself.
        debug_assert!(at <= self.mask && at & within == 0);
        let at = at & self.mask & !within;
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

    #[inline(always)]
    fn word(&self, at: usize) -> &AtomicU64 {
        let [word] = self.at(at);
        word
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

impl Storage for Words<'_> {
    #[inline(always)]
    fn words(&self) -> usize {
        self.mask + 1
    }

    #[inline(always)]
    fn load(&self, at: usize) -> u64 {
        load(self.word(at))
    }

    #[inline(always)]
    fn store(&self, at: usize, value: u64) {
        self.word(at).store(value.to_le(), Ordering::Relaxed);
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

impl Rows for Words<'_> {
    #[inline(always)]
    fn load_all<const N: usize>(&self, at: usize) -> [u64; N] {
        let from: &[AtomicU64; N] = self.at(at);
        std::array::from_fn(|i| load(&from[i]))
    }

    #[inline(always)]
    fn store_row<const N: usize>(
        &self,
        at: usize,
        count: u32,
        mut next: impl FnMut() -> Option<[u64; N]>,
    ) -> u32 {
        let row = self.from::<N>(at);
        let row = row.get(..count as usize).unwrap_or(row);
        let mut left = row;
        while let [into, others @ ..] = left {
            let Some(words) = next() else { break };
            for (into, word) in into.iter().zip(&words) {
                into.store(word.to_le(), Ordering::Relaxed);
            }
            left = others;
        }
        (row.len() - left.len()) as u32
    }
}
