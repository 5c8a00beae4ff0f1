// SPDX-License-Identifier: GPL-2.0
//! For the checker, as in `poll.rs`.

use super::*;

impl EventSlots {
    /// Moves the indices with their ring; see [`Poller::rotate`](super::poll::Poller::rotate).
    pub fn rotate(&mut self, by: u32) {
        self.read_until = if self.read.is_empty() {
            Index::ZERO
        } else {
            self.read_until.plus(by)
        };
        self.deferred.rotate(by);
        self.spurious = 0;
    }
}
