// SPDX-License-Identifier: GPL-2.0
//! For the checker, as in `poll.rs`.

use super::*;

impl EventQueue {
    /// Moves the whole EQ; see [`Poller::rotate`](qpair_queue::poll::Poller::rotate).
    pub fn rotate(&mut self, by: u32) {
        self.window.rotate(by);
    }
}
