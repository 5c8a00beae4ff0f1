// SPDX-License-Identifier: GPL-2.0
//! What checks look at; for the checker, as in `tries.rs`.

use super::*;

impl<const N: usize> Sender<N> {
    /// Packets that were sent and not acknowledged.
    pub const fn in_flight(&self) -> u32 {
        self.sent.since(self.acked).unsigned_abs()
    }

    /// Whether what is in flight was sent again since the last progress.
    pub const fn repeats(&self) -> bool {
        self.repeats
    }

    /// The deadline is now.
    pub fn forget_time(&mut self) {
        self.tries.forget_time();
    }
}
