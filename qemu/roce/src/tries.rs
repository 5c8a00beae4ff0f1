// SPDX-License-Identifier: GPL-2.0
//! How often a sender tries, and when again.
//!
//! There are two budgets. Answers that do not come, or that say that packets are missing, use up
//! `retry`; answers that say that the receiver is not ready use up `rnr_retry`. Progress gives both
//! back. An answer of the second kind gives the first back, as the peer is there.

/// The limits of a queue pair, as MODIFY sets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Ticks until an answer is missed; `None` is without end.
    pub timeout: Option<u64>,
    /// How often packets are sent again without progress.
    pub retry: u8,
    /// How often a request is sent again to a receiver that is not ready; `None` is without end.
    pub rnr_retry: Option<u8>,
    /// READs, atomics and others with an answer of their own in flight; at least 1.
    pub reads: u8,
    /// Packets in flight.
    pub window: u32,
}

/// What a sender waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wait {
    /// Nothing is in flight.
    Nothing,
    /// An answer.
    Answer { until: u64 },
    /// The receiver of the peer.
    Receiver { until: u64 },
}

/// Whether a sender may try again.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It does.
    Again,
    /// The budget is used up.
    Exhausted,
}

/// What became of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expired {
    /// It has not come.
    Not,
    /// No answer came.
    Answer,
    /// The receiver may be ready.
    Receiver,
}

/// The two budgets, and the deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tries {
    answers: u8,
    receives: u8,
    wait: Wait,
}

/// An interval is at most so many times the attribute.
const LONGEST: u8 = 4;

impl Tries {
    /// Nothing was tried.
    pub const NEW: Self = Self {
        answers: 0,
        receives: 0,
        wait: Wait::Nothing,
    };

    /// When [`expire`](Self::expire) is due.
    pub const fn deadline(&self) -> Option<u64> {
        match self.wait {
            Wait::Answer { until: u64::MAX } | Wait::Nothing => None,
            Wait::Answer { until } | Wait::Receiver { until } => Some(until),
        }
    }

    /// How often packets were sent again without progress.
    pub const fn repeats(&self) -> u8 {
        self.answers
    }

    /// Whether an answer is awaited.
    pub const fn waits_for_answer(&self) -> bool {
        matches!(self.wait, Wait::Answer { .. })
    }

    /// Whether the receiver of the peer is awaited.
    pub const fn waits_for_receiver(&self) -> bool {
        matches!(self.wait, Wait::Receiver { .. })
    }

    fn await_answer(&mut self, now: u64, limits: &Limits) {
        let times = u64::from(self.answers.saturating_add(1).min(LONGEST));
        let timeout = limits.timeout.unwrap_or(u64::MAX);
        self.wait = Wait::Answer {
            until: now.saturating_add(timeout.saturating_mul(times)),
        };
    }

    /// The limits have changed: the wait for an answer begins anew.
    pub fn restart(&mut self, now: u64, limits: &Limits) {
        if matches!(self.wait, Wait::Answer { .. }) {
            self.await_answer(now, limits);
        }
    }

    /// A packet was sent.
    pub fn sent(&mut self, now: u64, limits: &Limits) {
        if self.wait == Wait::Nothing {
            self.await_answer(now, limits);
        }
    }

    /// Packets were acknowledged; `rest` says whether others are in flight.
    pub fn progress(&mut self, now: u64, limits: &Limits, rest: bool) {
        self.answers = 0;
        self.receives = 0;
        match (self.waits_for_receiver(), rest) {
            (true, _) => {}
            (false, true) => self.await_answer(now, limits),
            (false, false) => self.wait = Wait::Nothing,
        }
    }

    /// An answer is missing, and what is in flight is to be sent again.
    pub fn missing(&mut self, now: u64, limits: &Limits) -> Verdict {
        if self.answers >= limits.retry {
            return Verdict::Exhausted;
        }
        self.answers = self.answers.saturating_add(1);
        self.await_answer(now, limits);
        Verdict::Again
    }

    /// The receiver was not ready, and is to be given `wait`.
    pub fn not_ready(&mut self, now: u64, limits: &Limits, wait: u64) -> Verdict {
        if limits.rnr_retry.is_some_and(|most| self.receives >= most) {
            return Verdict::Exhausted;
        }
        self.answers = 0;
        // Without an end there is nothing to count.
        let counts = limits.rnr_retry.is_some();
        self.receives = self.receives.saturating_add(counts.into());
        self.wait = Wait::Receiver {
            until: now.saturating_add(wait),
        };
        Verdict::Again
    }

    /// Whether the deadline has come. After that of a receiver nothing is awaited.
    pub fn expire(&mut self, now: u64) -> Expired {
        match self.wait {
            Wait::Answer { until } if until != u64::MAX && now >= until => Expired::Answer,
            Wait::Receiver { until } if now >= until => {
                self.wait = Wait::Nothing;
                Expired::Receiver
            }
            _ => Expired::Not,
        }
    }

    /// Nothing is awaited any more.
    pub fn stop(&mut self) {
        self.wait = Wait::Nothing;
    }
}
