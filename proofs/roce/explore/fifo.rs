// SPDX-License-Identifier: GPL-2.0
//! For the checker: queues of the same elements are the same, wherever they begin.

use super::*;
use core::hash::Hash;
use core::hash::Hasher;

impl<T: Copy + PartialEq, const N: usize> PartialEq for Fifo<T, N> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Copy + Eq, const N: usize> Eq for Fifo<T, N> {}

impl<T: Copy + Hash, const N: usize> Hash for Fifo<T, N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len().hash(state);
        self.iter().for_each(|element| element.hash(state));
    }
}
