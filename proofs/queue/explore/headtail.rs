// SPDX-License-Identifier: GPL-2.0
//! For the checker, as in `poll.rs`.

use super::*;

impl<S: Storage> Headtail<S> {
    /// Moves the ring by whole passes; see [`Poller::rotate`](super::poll::Poller::rotate).
    pub fn rotate(&mut self) {
        self.descriptors.rotate();
    }
}
