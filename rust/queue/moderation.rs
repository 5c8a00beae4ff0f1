// SPDX-License-Identifier: GPL-2.0
//! Adaptive moderation: how many interrupts an EQ is worth.
//!
//! An interrupt costs its CPU a fixed amount, a delayed one costs whoever waits. So below a *target* of interrupts a second nothing is
//! delayed at all, and above it events are collected, just as many as bring the interrupts down to the target. The count is a
//! power of two, the [level](Controller::level) its logarithm, and level 0 is no moderation. The
//! time is what twice that many events take at the rate just measured: a count that is never reached, because the rate has fallen or was overestimated, costs no more than that.
//!
//! ```text
//!   sample: completions, interrupts, time
//!     idle for a while            --> off
//!     interrupts > target         --> up, at once to the level that the rate asks for   (a trial)
//!     after a trial: slower than before, or the count is not reached
//!                                 --> down to what is reached, which is tried in turn, or back; more is refused for a
//!                                     while, each time for twice as long
//!     twice in a row: the count is not half reached, or the rate asks for two levels less
//!                                 --> down
//!     interrupts > 4 * target, and collecting does not help
//!                                 --> capped: an interrupt every 1 / (4 * target) and no sooner
//! ```
//!
//! Why this does not oscillate:
//!
//! - *Independent arrivals* have a rate that moderation does not change. Up is at the level's own threshold, down at a quarter
//!   of it, so a rate that wavers by less than that moves nothing.
//! - *A closed loop*, whose next request waits for the last completion, gets slower by being delayed, and then would ask for less moderation, get
//!   faster, and ask for more. There the trial fails, and is not repeated until the refusal is over or the rate is another one altogether.
//! - *The cap* holds a loop that turns in less than 1 / (4 * target): held, it still makes more than 2 * target interrupts, and a slower one makes less. Below that the cap is lifted.
//!
//! Linux's `lib/dim` walks through fixed profiles in search of a better ratio instead, for ever
//! and without a rate at which it leaves well alone; what is taken from it is that throughput is judged first and the ratio second.
//!
//! The first sample after a change still has the old setting in it, and is not looked at.

use super::mutant::mutant;

/// What the device is told. Both are 0, which is no moderation, or neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Setting {
    /// Raise when so many events wait ...
    pub count: u16,
    /// ... or the oldest has waited for so many microseconds.
    pub usecs: u16,
}

impl Setting {
    /// No moderation.
    pub const OFF: Self = Self { count: 0, usecs: 0 };
}

/// What happened since the last sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sample {
    /// Completions, and events of CQs whose completions are not seen.
    pub completions: u64,
    /// Interrupts.
    pub interrupts: u64,
    /// Time.
    pub nanos: u64,
}

impl Sample {
    /// So many a second.
    const fn rate(&self, count: u64) -> u64 {
        match self.nanos {
            0 => 0,
            nanos => count.saturating_mul(1_000_000_000) / nanos,
        }
    }

    /// Completions for each interrupt.
    const fn ratio(&self) -> u64 {
        match self.interrupts {
            0 => self.completions,
            interrupts => self.completions / interrupts,
        }
    }
}

/// Interrupts a second that are nothing to worry about: with its poll one is about 8000 instructions, so these
/// are a few percent of a CPU.
pub const TARGET: u32 = 10_000;
/// The highest level.
pub const TOP: u32 = 8;
/// Interrupts a second that are too many even if each of them is needed, in targets.
pub const CAP: u64 = 4;
/// Idle samples until moderation is switched off.
const IDLE: u32 = 4;
/// Samples for which a level is refused, at first and at most.
const REFUSED: u32 = 64;
const REFUSED_MOST: u32 = 1 << 14;

/// A level that is being tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trial {
    /// The level and the completions a second before it.
    level: u32,
    rate: u64,
    /// It began with a higher one.
    failed: bool,
}

/// Levels that were tried and did not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal {
    /// The highest that may still be taken.
    most: u32,
    /// At this rate,
    rate: u64,
    /// for so many samples more.
    left: u32,
}

/// Chooses the moderation of an EQ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    target: u64,
    level: u32,
    capped: bool,
    setting: Setting,
    /// The last change was just now.
    settling: bool,
    trial: Option<Trial>,
    refusal: Option<Refusal>,
    /// How long the next refusal is.
    patience: u32,
    idle: u32,
    /// Samples in a row that ask for less.
    less: u32,
}

impl Controller {
    /// Not moderating yet. `target`: interrupts a second that are fine.
    pub const fn new(target: u32) -> Self {
        Self {
            target: if target == 0 { 1 } else { target as u64 },
            level: 0,
            capped: false,
            setting: Setting::OFF,
            settling: false,
            trial: None,
            refusal: None,
            patience: REFUSED,
            idle: 0,
            less: 0,
        }
    }

    /// What the device is to be told.
    #[inline]
    pub const fn setting(&self) -> Setting {
        self.setting
    }

    /// Base-two logarithm of the events that an interrupt should tell of.
    #[inline]
    pub const fn level(&self) -> u32 {
        self.level
    }

    /// Whether it has anything to undo when nothing happens any more.
    #[inline]
    pub const fn is_off(&self) -> bool {
        self.level == 0 && !self.capped
    }

    /// Takes a sample; [`setting`](Self::setting) may be another one afterwards.
    pub fn sample(&mut self, sample: Sample) {
        if sample.nanos == 0 {
            return;
        }
        if sample.completions == 0 && sample.interrupts == 0 {
            self.rest();
            return;
        }
        self.idle = 0;
        if core::mem::take(&mut self.settling) {
            return;
        }
        if let Some(refusal) = &mut self.refusal {
            refusal.left = refusal.left.saturating_sub(1);
            let rate = sample.rate(sample.completions);
            let another = rate / 2 >= refusal.rate || rate <= refusal.rate / 2;
            if refusal.left == 0 || another && self.trial.is_none() && !self.capped {
                self.refusal = None;
            }
        }
        if self.capped {
            self.hold(&sample);
        } else {
            self.choose(&sample);
        }
    }

    /// Nothing has happened.
    fn rest(&mut self) {
        self.idle = self.idle.saturating_add(1);
        if self.idle >= IDLE && !mutant!(ModeratedForEver) {
            *self = Self {
                // A load that comes and goes is not tried each time that it comes.
                refusal: self.refusal,
                patience: self.patience,
                ..Self::new(u32::try_from(self.target).unwrap_or(u32::MAX))
            };
        }
    }

    /// Capped: until a loop that slow would not be.
    fn hold(&mut self, sample: &Sample) {
        let few = sample.rate(sample.interrupts) < self.target.saturating_mul(CAP / 2);
        if self.low(few) {
            self.capped = false;
            self.set(0, 0);
        }
    }

    fn choose(&mut self, sample: &Sample) {
        let rate = sample.rate(sample.completions);
        let interrupts = sample.rate(sample.interrupts);
        let ratio = sample.ratio();
        let count = 1u64 << self.level;
        if let Some(trial) = self.trial.take() {
            let slower = rate.saturating_mul(8) < trial.rate.saturating_mul(7);
            let missed = ratio.saturating_mul(4) < count.saturating_mul(3);
            if (slower || missed) && !mutant!(TrialNotJudged) {
                self.refuse(trial, ratio);
                return;
            }
            if !trial.failed {
                self.patience = REFUSED;
            }
        }
        let want = self.wanted(rate);
        let most = match self.refusal {
            Some(refusal) if !mutant!(RefusalForgotten) => want.min(refusal.most),
            _ => want,
        };
        if interrupts > self.target && most > self.level {
            self.trial = Some(Trial {
                level: self.level,
                rate,
                failed: false,
            });
            self.less = 0;
            self.set(most, rate);
            return;
        }
        if interrupts > self.target.saturating_mul(CAP) && !mutant!(Uncapped) {
            self.capped = true;
            self.set(0, 0);
            return;
        }
        let slack = if mutant!(NoHysteresis) { 1 } else { 2 };
        let missed = ratio < count / 2;
        if self.low(self.level != 0 && (missed || want.saturating_add(slack) <= self.level)) {
            let reached = if missed { ratio.max(1).ilog2() } else { want };
            self.set(want.min(reached), rate);
        }
    }

    /// The level that brings this rate down to the target.
    fn wanted(&self, rate: u64) -> u32 {
        let each = rate.div_ceil(self.target).max(1);
        each.checked_next_power_of_two()
            .map_or(TOP, u64::ilog2)
            .min(TOP)
    }

    /// Whether less was asked for twice in a row.
    fn low(&mut self, less: bool) -> bool {
        self.less = if less { self.less.saturating_add(1) } else { 0 };
        if self.less < 2 || mutant!(ModeratedForEver) {
            return false;
        }
        self.less = 0;
        true
    }

    /// A trial has failed; so many completions for each interrupt are all that can be had.
    fn refuse(&mut self, trial: Trial, ratio: u64) {
        // One that is no lower would be tried again and again.
        let lower = self.level.saturating_sub(1).max(trial.level);
        let most = ratio.max(1).ilog2().clamp(trial.level, lower);
        self.refusal = Some(Refusal {
            most,
            rate: trial.rate,
            left: self.patience,
        });
        if !trial.failed {
            self.patience = self.patience.saturating_mul(2).min(REFUSED_MOST);
        }
        if most > trial.level {
            self.trial = Some(Trial {
                failed: true,
                ..trial
            });
        }
        self.set(most, trial.rate);
    }

    /// Sets a level for a rate.
    fn set(&mut self, level: u32, rate: u64) {
        self.level = level;
        self.settling = true;
        self.setting = if self.capped {
            let usecs = 1_000_000 / self.target.saturating_mul(CAP).max(1);
            Setting {
                count: 1 << TOP,
                usecs: most(usecs),
            }
        } else if level == 0 {
            Setting::OFF
        } else {
            let usecs = (2_000_000u64 << level) / rate.max(1);
            let usecs = if mutant!(CountWithoutTime) {
                0
            } else {
                most(usecs)
            };
            Setting {
                count: 1 << level,
                usecs,
            }
        };
    }
}

/// As many microseconds as the device can be told, and 1 at the least.
fn most(usecs: u64) -> u16 {
    u16::try_from(usecs.max(1)).unwrap_or(u16::MAX)
}
