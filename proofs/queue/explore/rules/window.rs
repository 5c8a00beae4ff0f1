// SPDX-License-Identifier: GPL-2.0
//! For the checker, as in `poll.rs`.

use super::*;

impl Window {
    /// Moves both indices; see [`Poller::rotate`](qpair_queue::poll::Poller::rotate).
    pub fn rotate(&mut self, by: u32) {
        self.head = self.head.plus(by);
        self.tail = self.tail.plus(by);
    }
}
