// SPDX-License-Identifier: GPL-2.0
//! How much CPU time a poll may take before it has to wait for the scheduler.
//!
//! A poll in softirq context takes its time from the task that the interrupt preempts. That is
//! cheap and right for a few events. But completions that come as fast as they are consumed would
//! take all of a CPU, whether each poll ends with work left or finds another interrupt at once. So
//! this time is a *debt*: it grows while polls run, and shrinks while they do not. A poll that owes
//! more than the [loan](LOAN) waits until the scheduler runs it in process context; that time adds
//! no debt.
//!
//! Beside a process that always wants the CPU, the polls of an EQ take at most a seventh of the
//! process's time as debt ([`PAYBACK`]), and as much as the process by the scheduler: the process
//! keeps 7/15 of the CPU. Each EQ has its own account, so several on one CPU take more. Time of an
//! idle CPU adds no debt, until a task is woken there, or ksoftirqd after two milliseconds of
//! softirqs in a row.
//!
//! The clock also runs while a host does not schedule the vCPU, and a poll would owe that time too;
//! so the debt has an [upper bound](MOST).

/// Polling time that may be owed when a poll begins in softirq context: half of the time that
/// softirqs run before they wake ksoftirqd. Nanoseconds.
pub const LOAN: u64 = 1_000_000;

/// Nanoseconds without a poll that pay for one nanosecond of polling.
pub const PAYBACK: u64 = 7;

/// The upper bound of the debt, in nanoseconds without a poll: that of a long poll with a large
/// budget.
pub const MOST: u64 = 16 * PAYBACK * LOAN;

/// Polls in a row in process context, if each has more to do.
pub const ROW: u32 = 8;

/// The owner of the time that a poll runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// That of the task on the CPU.
    Taken,
    /// That of the idle task, which no other task wants.
    Idle,
    /// That of a thread that the scheduler chose to run, for this poll and those that follow it at
    /// once.
    Given,
}

/// The account of one EQ's polls. Times are nanoseconds of a clock that may go backwards slightly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Time without a poll that is still to pass.
    owed: u64,
    /// When the last poll began or ended.
    left: u64,
    /// Polls that may still run in process context.
    row: u32,
    /// The current poll runs on an idle CPU.
    free: bool,
}

impl Share {
    /// Whether a poll may begin now; if not, the caller schedules it in [process
    /// context](Time::Given).
    #[inline]
    pub fn begin(&mut self, now: u64, time: Time) -> bool {
        self.owed = self.owed.saturating_sub(now.saturating_sub(self.left));
        self.left = now;
        if time == Time::Given {
            self.row = ROW;
        }
        self.free = time == Time::Idle;
        self.free || self.row != 0 || self.owed <= PAYBACK * LOAN
    }

    /// A poll that [`Self::begin`] allowed has ended now; `more`: with work left. `wanted`: the CPU
    /// is not idle, or not any more. A task that was woken by a poll without work left did not
    /// wait.
    #[inline]
    pub fn end(&mut self, now: u64, more: bool, wanted: bool) {
        let free = self.free && !(more && wanted);
        if self.row != 0 {
            self.row -= 1;
        } else if !free {
            let took = now.saturating_sub(self.left);
            let owed = self.owed.saturating_add(took.saturating_mul(PAYBACK));
            self.owed = owed.min(MOST);
        }
        if !more {
            self.row = 0;
        }
        self.left = now;
    }

    /// Whether [`Self::end`] would change nothing, so that its caller need not read the clock: the
    /// CPU was idle, no work is left, the poll is not in process context, and there is no debt.
    #[inline]
    pub fn is_even(&self, more: bool) -> bool {
        self.free && !more && self.row == 0 && self.owed == 0
    }
}
