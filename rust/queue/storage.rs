// SPDX-License-Identifier: GPL-2.0
//! The memory of a ring, one whole word at a time.
//!
//! The device may read and write a ring at any moment, so nothing here is a reference to an entry:
//! words are loaded and stored whole, each once, and the loaded words are a snapshot. The memory
//! differs (coherent memory in the kernel, a mapping in a process, atomics in a test), the order
//! does not. Its four points are methods:
//!
//! | point | between | kernel | process |
//! |---|---|---|---|
//! | [`after_owner`](Storage::after_owner) | the owner word of an entry, and the rest of it | `dma_rmb` | acquire fence |
//! | [`before_head`](Storage::before_head) | reading entries, and the doorbell that gives them back | `dma_mb` | release fence |
//! | [`before_tail`](Storage::before_tail) | writing entries, and the doorbell that hands them over | `dma_wmb` | release fence |
//! | [`after_notify`](Storage::after_notify) | the doorbell that asks for an event, and reading entries | `mb` | full fence |

use core::sync::atomic::fence;
use core::sync::atomic::Ordering;

/// The storage is too small for the depth, or the capacity is zero or exceeds the depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRing;

/// Words shared with hardware.
///
/// Words are little-endian in memory and are converted here. `at` is always less than
/// [`words`](Self::words): the rings check that once, when they are created. Past the end an
/// implementation loads zero and stores nothing, or wraps.
pub trait Storage {
    /// The number of words.
    fn words(&self) -> usize;

    /// Loads a word, once and whole (`READ_ONCE`, a volatile or a relaxed atomic load).
    fn load(&self, at: usize) -> u64;

    /// Stores a word, once and whole.
    fn store(&self, at: usize, word: u64);

    /// Loads before it come before loads after it.
    fn after_owner(&self);

    /// Loads before it come before stores after it, those to the device included.
    fn before_head(&self);

    /// Stores before it come before stores after it, those to the device included.
    fn before_tail(&self);

    /// Stores before it, those to the device included, come before loads after it.
    #[inline]
    fn after_notify(&self) {
        fence(Ordering::SeqCst);
    }

    /// Loads the last of the `N` words from `at` on, which has the owner bit; if `there` accepts
    /// it, then, after [`after_owner`](Self::after_owner), the others. For implementations that can
    /// check bounds once: they keep this order and load no word twice.
    #[inline(always)]
    fn load_entry<const N: usize>(
        &self,
        at: usize,
        there: impl FnOnce(u64) -> bool,
    ) -> Option<[u64; N]>
    where
        Self: Sized,
    {
        let last = N.wrapping_sub(1);
        let owner = self.load(at.wrapping_add(last));
        if !there(owner) {
            return None;
        }
        self.after_owner();
        let mut words = [0; N];
        for (i, word) in words.iter_mut().enumerate() {
            *word = if i == last {
                owner
            } else {
                self.load(at.wrapping_add(i))
            };
        }
        Some(words)
    }

    /// Loads entries in a row, as [`load_entry`](Self::load_entry) does, the first from `at` on;
    /// returns how many. `takes` gets each entry and a place in `into`. The row ends when `into` is
    /// full, at an invalid entry, or where `takes` returns false. For implementations that can
    /// check bounds once.
    #[inline(always)]
    fn load_row<const N: usize, T>(
        &self,
        mut at: usize,
        into: &mut [T],
        there: impl Fn(u64) -> bool,
        mut takes: impl FnMut(&mut T, &[u64; N]) -> bool,
    ) -> u32
    where
        Self: Sized,
    {
        let mut taken = 0u32;
        for place in into {
            match self.load_entry(at, &there) {
                Some(words) if takes(place, &words) => {}
                _ => break,
            }
            at = at.wrapping_add(N);
            taken = taken.wrapping_add(1);
        }
        taken
    }

    /// Stores words from `at` on. For implementations that can check bounds once.
    #[inline(always)]
    fn store_all<const N: usize>(&self, at: usize, words: &[u64; N]) {
        for (i, word) in words.iter().enumerate() {
            self.store(at.wrapping_add(i), *word);
        }
    }
}
