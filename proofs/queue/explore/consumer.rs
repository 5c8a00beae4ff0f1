// SPDX-License-Identifier: GPL-2.0
//! For the checker, as in `poll.rs`.

use super::*;

impl<S: Storage, K: Kind, const N: usize> Consumer<S, K, N> {
    /// Moves the whole ring; see [`Poller::rotate`](super::poll::Poller::rotate).
    pub fn rotate(&mut self, by: u32) {
        self.head = self.head.plus(by);
        self.published = self.published.plus(by);
    }

    /// Replaces the ring's memory by a copy of it.
    pub fn replace_storage(&mut self, storage: S) {
        self.storage = storage;
    }
}
