// SPDX-License-Identifier: GPL-2.0
//! For the checker, as in `tries.rs`.

use super::*;

impl<const N: usize> Sender<N> {
    /// The deadline is now.
    pub fn forget_time(&mut self) {
        self.tries.forget_time();
    }
}
