// SPDX-License-Identifier: GPL-2.0
//! How much of a CPU a poll may take before it has to ask the scheduler.
//!
//! A poll that runs in the time of an interrupt takes it from whoever the scheduler had given it
//! to. It is cheap, and it is the right thing for a few events; but completions that come as fast as
//! they are consumed would take all of a CPU, whether each poll has more to do at its end or finds
//! another interrupt at once. So what a poll takes this way is a *debt*: it grows with the time that
//! polls run, and is paid back by the time that they leave to others. Who owes more than the
//! [loan](LOAN) waits until the scheduler gives time to the poll itself, and that costs nothing.
//!
//! Beside a process that always wants the CPU, the polls of an EQ take at most a seventh of what it
//! gets unasked ([`PAYBACK`]), and as much as it gets by the scheduler: it keeps 7/15 of the CPU. Each
//! EQ has its own account, so several on one CPU take more. The time of an idle CPU is nobody's, and
//! who takes it owes nothing, until somebody wants it: a task that is woken, or, after two milliseconds of softirqs in a
//! row, their own thread.
//!
//! The clock also goes on while a host has taken the CPU away from its guest, and a poll that had
//! nothing of it would owe for ever; so there is a most that is [owed](MOST).

use super::mutant::mutant;

/// Unasked, a poll may run for this long: half as long as softirqs do before they wake their
/// thread. Nanoseconds.
pub const LOAN: u64 = 1_000_000;

/// So many nanoseconds left to others pay for one.
pub const PAYBACK: u64 = 7;

/// The most that is owed, in nanoseconds to be left to others: that of a long poll with a large
/// budget, and no more.
pub const MOST: u64 = 16 * PAYBACK * LOAN;

/// Polls in a row in time that was given, if each has more to do.
pub const ROW: u32 = 8;

/// Whose time a poll runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// That of whoever has the CPU.
    Taken,
    /// Nobody's: the CPU is idle.
    Idle,
    /// Its own, given by the scheduler, for this poll and those that follow it at once.
    Given,
}

/// The account of one EQ's polls. Times are nanoseconds of a clock that hardly goes backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// What others are to be left, for what polls took.
    owed: u64,
    /// When a poll ended last.
    left: u64,
    /// Polls that may follow in time that was given.
    row: u32,
    /// The poll that runs takes from nobody.
    free: bool,
}

impl Share {
    /// Whether a poll may begin now; if not, it has to ask for time that is [given](Time::Given).
    #[inline]
    pub fn begin(&mut self, now: u64, time: Time) -> bool {
        if !mutant!(DebtForEver) {
            self.owed = self.owed.saturating_sub(now.saturating_sub(self.left));
        }
        self.left = now;
        if time == Time::Given {
            self.row = ROW;
        }
        let idle = time == Time::Idle && !mutant!(IdleOwed);
        if idle || !mutant!(IdleForEver) {
            self.free = idle;
        }
        self.free || self.row != 0 || self.owed <= PAYBACK * LOAN
    }

    /// A poll that began when [`Self::begin`] said so has ended now, with `more` to do or not. `wanted`: the CPU is not idle,
    /// or not any more. Who was woken by a poll that leaves nothing behind was not kept waiting.
    #[inline]
    pub fn end(&mut self, now: u64, more: bool, wanted: bool) {
        let free = self.free && !(more && wanted && !mutant!(IdleToItsEnd));
        if self.row != 0 {
            self.row -= 1;
        } else if !free && (more || !mutant!(ShortPollsFree)) {
            let took = now.saturating_sub(self.left);
            let owed = self.owed.saturating_add(took.saturating_mul(PAYBACK));
            self.owed = owed.min(MOST);
        }
        if !more {
            self.row = 0;
        }
        self.left = now;
    }

    /// Whether [`Self::end`] would change nothing, so that its caller need not read the clock: the CPU
    /// was idle, no work is left, the turn was not given, and no time is owed.
    #[inline]
    pub fn is_even(&self, more: bool) -> bool {
        let free = self.free || mutant!(TakenIsEven);
        free && !more && self.row == 0 && self.owed == 0
    }
}
