// SPDX-License-Identifier: GPL-2.0
//! How often a sender has tried a request again, and until when it waits.
//!
//! The two steps that are retried have a budget each. A wait keeps its end: a change of the peer
//! makes the sender try early, and if it is refused again it waits for the rest. So neither a peer
//! nor another user of an SRQ makes a wait longer.

use qpair_abi::counters::Counter;

/// `rnr_retry` without a limit.
pub(crate) const NO_LIMIT: u8 = 7;

/// A step of a request that is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The peer answers.
    Answer,
    /// The peer has a receive.
    Receive,
}

impl Step {
    /// The counter of its waits.
    pub(crate) fn counter(self) -> Counter {
        match self {
            Self::Answer => Counter::Retries,
            Self::Receive => Counter::RnrRetries,
        }
    }
}

/// The waits for one step.
#[derive(Clone, Copy, Default)]
struct Waits {
    begun: u8,
    /// When the last one ends. `u64::MAX` is not before the peer changes.
    due: u64,
}

/// The waits of the request at the head of an SQ.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tries {
    /// That request has ended: the next one begins with none.
    ended: bool,
    answer: Waits,
    receive: Waits,
}

impl Tries {
    /// The request has ended, or has moved bytes. One store, since each request that completes
    /// comes here.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    fn of(&mut self, step: Step) -> &mut Waits {
        if self.ended {
            *self = Self::default();
        }
        match step {
            Step::Receive => &mut self.receive,
            Step::Answer => &mut self.answer,
        }
    }

    /// How many waits for `step` are left of `limit`.
    pub(crate) fn left(&mut self, step: Step, limit: u8) -> u8 {
        limit.saturating_sub(self.of(step).begun)
    }

    /// Counts waits for `step` that a fault has caused.
    pub(crate) fn spend(&mut self, step: Step, count: u8) {
        let waits = self.of(step);
        waits.begun = waits.begun.saturating_add(count);
    }

    /// When the present wait for `step` ends, if it has not ended by `now`.
    pub(crate) fn rest(&mut self, step: Step, now: u64) -> Option<u64> {
        let due = self.of(step).due;
        (now < due).then_some(due)
    }

    /// Begins a wait for `step` until `due`, one of `limit`. Returns false if none is left.
    pub(crate) fn begin(&mut self, step: Step, limit: u8, due: u64) -> bool {
        let waits = self.of(step);
        let another = waits.begun < limit;
        if another {
            *waits = Waits {
                begun: waits.begun.saturating_add(1),
                due,
            };
        }
        another
    }

    /// Forgets a wait that has not ended by `now`: it begins again, by other times and limits.
    pub(crate) fn begin_again(&mut self, now: u64) {
        for waits in [&mut self.answer, &mut self.receive] {
            if now < waits.due {
                waits.begun = waits.begun.saturating_sub(1);
                waits.due = 0;
            }
        }
    }
}
