// SPDX-License-Identifier: GPL-2.0

//! Tunables of polls, which may be changed while they run.

use crate::queue::poll::{
    Policy,
    Tuning, //
};
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// Tunables of all polls of a device. May be changed at any time.
pub(crate) struct Knobs {
    /// Events for each EQ head update.
    pub(crate) events: Atomic<u32>,
    /// Completions of a CQ in its turn.
    pub(crate) completions: Atomic<u32>,
    /// Completions and other events of one poll.
    pub(crate) budget: Atomic<u32>,
    /// 0: the loop described in [`queue::poll`](crate::queue::poll); 1: the source model's own.
    pub(crate) policy: Atomic<u32>,
}

impl Knobs {
    /// The defaults of [`Tuning`](crate::queue::poll::Tuning).
    pub(crate) fn new() -> Self {
        let tuning = Tuning::default();
        Self {
            events: Atomic::new(tuning.events),
            completions: Atomic::new(tuning.completions),
            budget: Atomic::new(tuning.budget),
            policy: Atomic::new(0),
        }
    }

    /// A snapshot for one poll.
    #[inline]
    pub(super) fn tuning(&self) -> Tuning {
        Tuning {
            events: self.events.load(Relaxed),
            completions: self.completions.load(Relaxed),
            budget: self.budget.load(Relaxed),
            policy: match self.policy.load(Relaxed) {
                0 => Policy::Coalesce,
                _ => Policy::Reopen,
            },
        }
    }
}
