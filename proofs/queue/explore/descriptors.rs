// SPDX-License-Identifier: GPL-2.0
//! For the checker, as in `poll.rs`.

use super::*;

impl<S: Storage, K: Kind> Descriptors<S, K> {
    /// Moves the ring by whole passes; see [`Poller::rotate`](super::poll::Poller::rotate).
    pub fn rotate(&mut self) {
        let passes = self.done.get() & !self.depth.entries().wrapping_sub(1);
        self.done = Index::new(self.done.get().wrapping_sub(passes));
        self.tail = Index::new(self.tail.get().wrapping_sub(passes));
    }
}
