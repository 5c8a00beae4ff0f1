// SPDX-License-Identifier: GPL-2.0
//! For the checker, as in `poll.rs`.

use super::*;

impl<S: Storage, K: Kind> Producer<S, K> {
    /// Moves the whole queue, whose CQ is moved by `cq`; see
    /// [`Poller::rotate`](super::poll::Poller::rotate).
    pub fn rotate(&mut self, by: u32, cq: u32) {
        self.posting.tail = self.posting.tail.plus(by);
        self.handed = self.handed.plus(by);
        let completing = &mut self.completing;
        completing.done = completing.done.plus(by);
        completing.completed_at = if completing.completed.is_empty() {
            Index::ZERO
        } else {
            completing.completed_at.plus(cq)
        };
    }
}
