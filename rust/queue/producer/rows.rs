// SPDX-License-Identifier: GPL-2.0
//! Entries in a row, of rings that the driver does not have; and rings by reference.

use super::super::storage::Storage;

/// Memory of which entries in a row are stored.
pub trait Rows: Storage {
    /// Loads the words from `at` on. For implementations that can check bounds once.
    #[inline(always)]
    fn load_all<const N: usize>(&self, at: usize) -> [u64; N] {
        let mut words = [0; N];
        for (i, word) in words.iter_mut().enumerate() {
            *word = self.load(at.wrapping_add(i));
        }
        words
    }

    /// Stores the words that `next` gives, one after the other from `at` on, until it gives none,
    /// at most `count` times; returns how often. For implementations that can check bounds once.
    #[inline(always)]
    fn store_row<const N: usize>(
        &self,
        mut at: usize,
        count: u32,
        mut next: impl FnMut() -> Option<[u64; N]>,
    ) -> u32
    where
        Self: Sized,
    {
        for stored in 0..count {
            let Some(words) = next() else {
                return stored;
            };
            self.store_all(at, &words);
            at = at.wrapping_add(N);
        }
        count
    }
}

impl<S: Rows> Rows for &S {}

impl<S: Storage> Storage for &S {
    #[inline(always)]
    fn words(&self) -> usize {
        (**self).words()
    }
    #[inline(always)]
    fn load(&self, at: usize) -> u64 {
        (**self).load(at)
    }
    #[inline(always)]
    fn store(&self, at: usize, word: u64) {
        (**self).store(at, word);
    }
    #[inline(always)]
    fn after_owner(&self) {
        (**self).after_owner();
    }
    #[inline(always)]
    fn before_head(&self) {
        (**self).before_head();
    }
    #[inline(always)]
    fn before_tail(&self) {
        (**self).before_tail();
    }
    #[inline(always)]
    fn after_notify(&self) {
        (**self).after_notify();
    }
    #[inline(always)]
    fn load_entry<const N: usize>(
        &self,
        at: usize,
        there: impl FnOnce(u64) -> bool,
    ) -> Option<[u64; N]> {
        (**self).load_entry(at, there)
    }
    #[inline(always)]
    fn store_all<const N: usize>(&self, at: usize, words: &[u64; N]) {
        (**self).store_all(at, words);
    }
}
