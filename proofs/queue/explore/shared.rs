// SPDX-License-Identifier: GPL-2.0
//! For the checker, as in `poll.rs`.

use super::*;

impl<S: Storage> Shared<S> {
    /// Moves the whole queue; see [`Poller::rotate`](super::poll::Poller::rotate).
    pub fn rotate(&mut self, by: u32) {
        self.producer.rotate(by, 0);
    }
}
