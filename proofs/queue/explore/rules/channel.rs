// SPDX-License-Identifier: GPL-2.0
//! For the checker, as in `poll.rs`.

use super::*;

impl Channel {
    /// Moves the whole CQ; see [`Poller::rotate`](qpair_queue::poll::Poller::rotate).
    pub fn rotate(&mut self, by: u32) {
        self.window.rotate(by);
        self.solicited = self.solicited.map(|past| past.plus(by));
        self.before = self.before.map(|before| Before {
            head: before.head.plus(by),
            end: before.end.plus(by),
        });
    }
}
