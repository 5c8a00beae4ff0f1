// SPDX-License-Identifier: GPL-2.0
//! For the checker, as in `poll.rs`.

use super::*;

impl<S: Storage> Chain<S> {
    /// Moves the chain by whole passes; see [`Poller::rotate`](super::poll::Poller::rotate).
    pub fn rotate(&mut self) {
        self.descriptors.rotate();
    }
}
