// SPDX-License-Identifier: GPL-2.0
//! The device's side of an SRQ: which receive is next, and when few are left; see
//! [`shared`](qpair_queue::shared).

use super::window::Window;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;

/// Where the next receive is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It was given back; the last one that was.
    Back,
    /// In the ring.
    Ring(Index),
}

/// Whether the event of the limit is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the limit is disarmed"]
pub enum Low {
    /// No.
    No,
    /// Now.
    Now,
}

/// The receives of an SRQ that no queue pair has.
#[derive(Clone, Debug)]
pub struct Supply {
    window: Window,
    /// Receives that were given back.
    back: u32,
    /// 0: the event is not armed.
    limit: u32,
}

impl Supply {
    /// Of an empty ring that starts at `first`.
    pub const fn new(depth: Depth, first: Index) -> Self {
        Self {
            window: Window::new(depth, first),
            back: 0,
            limit: 0,
        }
    }

    /// The part of the ring that is posted and not taken.
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// The limit; 0 if it is not armed.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Receives that are left.
    pub const fn left(&self) -> u32 {
        // No overflow: there are no more queue pairs that gave one back.
        self.window.used().wrapping_add(self.back)
    }

    /// Software has posted the receives before `tail`; returns how many came. `None`, and nothing
    /// changes, if the ring has no room for them or `tail` is behind the last tail.
    pub fn post(&mut self, tail: Index) -> Option<u32> {
        self.window.advance_tail(tail)
    }

    /// Where the next receive is; `None` if there is none. [`take`](Self::take) follows.
    pub const fn next(&self) -> Option<Next> {
        if self.back != 0 {
            return Some(Next::Back);
        }
        if self.window.is_empty() {
            return None;
        }
        Some(Next::Ring(self.window.head()))
    }

    /// A queue pair takes the next receive.
    pub fn take(&mut self) -> Low {
        if self.back != 0 {
            self.back = self.back.wrapping_sub(1);
        } else {
            let _ = self.window.advance_head(self.window.head().plus(1));
        }
        self.look()
    }

    /// A queue pair that had a receive is gone, or does not want it.
    pub fn give_back(&mut self) {
        self.back = self.back.wrapping_add(1);
    }

    /// Arms the event; with 0, disarms it. It is due at once if fewer receives are left already.
    pub fn arm(&mut self, limit: u32) -> Low {
        self.limit = limit;
        self.look()
    }

    /// The next receives are read from a ring of `depth`. False, and nothing changes, if it has
    /// fewer places than receives are posted and not taken.
    #[must_use]
    pub fn resize(&mut self, depth: Depth) -> bool {
        self.window.resize(depth)
    }

    fn look(&mut self) -> Low {
        if self.left() >= self.limit {
            return Low::No;
        }
        self.limit = 0;
        Low::Now
    }
}
