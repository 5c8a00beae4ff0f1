// SPDX-License-Identifier: GPL-2.0
//! For the checker, as in `poll.rs`.

use super::*;

impl<K: Kind> DeferredFree<K> {
    /// Moves the indices with their ring; see [`Poller::rotate`](super::poll::Poller::rotate).
    pub fn rotate(&mut self, by: u32) {
        let moved = |slots: &Slots<K>, until: Index| match slots.is_empty() {
            true => Index::ZERO,
            false => until.plus(by),
        };
        self.first_until = moved(&self.first, self.first_until);
        self.later_until = moved(&self.later, self.later_until);
    }
}
