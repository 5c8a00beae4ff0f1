// SPDX-License-Identifier: GPL-2.0
//! Adaptive interrupt moderation of an EQ.
//!
//! Each interrupt costs CPU time; delaying it adds latency. So below a *target* rate of interrupts
//! nothing is delayed, and above it just enough events are collected to bring the interrupts down
//! to the target. The count is a power of two, the [level](Controller::level) is its logarithm, and
//! level 0 is no moderation. The time limit is what twice that many events take at the rate just
//! measured: it bounds the delay if the count is never reached, because the rate fell or was
//! overestimated.
//!
//! ```text
//!   sample: completions, interrupts, time
//!     idle for a while            --> off
//!     interrupts > target         --> up, at once to the level that the rate asks for   (a trial)
//!     after a trial: slower than before, or the count is not reached
//!                                 --> down to what is reached, which is tried in turn, or back;
//!                                     higher levels are refused for a while, each time twice
//!                                     as long
//!     twice in a row: the count is not half reached, or the rate asks for two levels less
//!                                 --> down
//!     interrupts > 4 * target, and collecting does not help
//!                                 --> capped: an interrupt every 1 / (4 * target) and no sooner
//! ```
//!
//! Why this does not oscillate:
//!
//! - *Independent arrivals* have a rate that moderation does not change. The level rises at its own
//!   threshold and falls at a quarter of it, so a rate that varies by less changes nothing.
//! - *A closed loop*, whose next request waits for the last completion, is slowed by the delay. It
//!   would then need less moderation, get faster, and need more again. Here the trial fails, and is
//!   not repeated until the refusal expires or the rate changes by a factor of two.
//! - *The cap* holds a loop that turns in less than 1 / (4 * target): while capped it still makes
//!   more than 2 * target interrupts, and a slower loop makes fewer. Below that rate the cap is
//!   lifted.
//!
//! Linux's `lib/dim` instead searches fixed profiles for a better ratio, without end and at any
//! rate. As in `lib/dim`, throughput is judged first and the ratio second.
//!
//! The first sample after a change still contains the old setting and is ignored.

/// The moderation of the device's EQ. Either both are 0, which is no moderation, or neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Setting {
    /// Raise when this many events are in the EQ ...
    pub count: u16,
    /// ... or the oldest has waited this many microseconds.
    pub usecs: u16,
}

impl Setting {
    /// An interrupt for each event.
    pub const OFF: Self = Self { count: 0, usecs: 0 };
}

/// What happened since the last sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sample {
    /// Completions, and events of CQs whose completions are not seen.
    pub completions: u64,
    /// Interrupts of the EQ.
    pub interrupts: u64,
    /// The time of the sample, in nanoseconds.
    pub nanos: u64,
}

impl Sample {
    /// `count` as a rate per second of the sample.
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

/// Interrupts a second that need no moderation: one with its poll is about 8000 instructions, so
/// this rate is a few percent of a CPU.
pub const TARGET: u32 = 10_000;
/// The highest level, of the longest delay.
pub const TOP: u32 = 8;
/// Interrupts a second above which the cap applies, in targets.
pub const CAP: u64 = 4;
/// Idle samples until moderation is switched off.
const IDLE: u32 = 4;
/// Samples for which a level is refused, at first and at most.
const REFUSED: u32 = 64;
const REFUSED_MOST: u32 = 1 << 14;

/// Idle samples until the sampler slows down.
const SLOW_AFTER: u32 = 100;

/// When a sampler looks next: soon while there is traffic and for 100 samples after it, so
/// that a load of bursts is moderated in each burst.
#[derive(Clone, Debug)]
pub struct Pace {
    idle: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { idle: SLOW_AFTER }
    }
}

impl Pace {
    /// Whether the sampler slows down after this sample. `busy`: an EQ had traffic, or is moderated.
    pub fn slows(&mut self, busy: bool) -> bool {
        self.idle = if busy { 0 } else { self.idle.saturating_add(1) };
        self.idle >= SLOW_AFTER
    }
}

/// A level that is being tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trial {
    /// The level and the completions a second before the trial.
    level: u32,
    rate: u64,
    /// It follows a failed trial of a higher level.
    failed: bool,
}

/// Levels that were tried and did not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal {
    /// The highest level that is still allowed,
    most: u32,
    /// at this rate,
    rate: u64,
    /// for this many more samples.
    left: u32,
}

/// Chooses the moderation of an EQ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    target: u64,
    level: u32,
    capped: bool,
    setting: Setting,
    /// The next sample still contains the old setting.
    settling: bool,
    trial: Option<Trial>,
    refusal: Option<Refusal>,
    /// Samples that the next refusal lasts.
    patience: u32,
    idle: u32,
    /// Samples in a row that ask for less.
    less: u32,
}

impl Controller {
    /// Starts without moderation. `target`: interrupts a second that need none.
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

    /// The setting for the device.
    #[inline]
    pub const fn setting(&self) -> Setting {
        self.setting
    }

    /// Base-two logarithm of the events to collect for an interrupt.
    #[inline]
    pub const fn level(&self) -> u32 {
        self.level
    }

    /// Whether there is no moderation to switch off when the EQ becomes idle.
    #[inline]
    pub const fn is_off(&self) -> bool {
        self.level == 0 && !self.capped
    }

    /// Takes a sample; [`setting`](Self::setting) may change.
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

    /// A sample without completions or interrupts.
    fn rest(&mut self) {
        self.idle = self.idle.saturating_add(1);
        if self.idle >= IDLE {
            *self = Self {
                // Keep the refusal: an intermittent load is not tried again at each start.
                refusal: self.refusal,
                patience: self.patience,
                ..Self::new(u32::try_from(self.target).unwrap_or(u32::MAX))
            };
        }
    }

    /// Lifts the cap once interrupts fall below half of it.
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
            if slower || missed {
                self.refuse(trial, ratio);
                return;
            }
            if !trial.failed {
                self.patience = REFUSED;
            }
        }
        let want = self.wanted(rate);
        let most = match self.refusal {
            Some(refusal) => want.min(refusal.most),
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
        if interrupts > self.target.saturating_mul(CAP) {
            self.capped = true;
            self.set(0, 0);
            return;
        }
        let missed = ratio < count / 2;
        if self.low(self.level != 0 && (missed || want.saturating_add(2) <= self.level)) {
            let reached = if missed { ratio.max(1).ilog2() } else { want };
            self.set(want.min(reached), rate);
        }
    }

    /// The level that brings interrupts at this event rate down to the target.
    fn wanted(&self, rate: u64) -> u32 {
        let each = rate.div_ceil(self.target).max(1);
        each.checked_next_power_of_two()
            .map_or(TOP, u64::ilog2)
            .min(TOP)
    }

    /// Whether `less` was true twice in a row.
    fn low(&mut self, less: bool) -> bool {
        self.less = if less { self.less.saturating_add(1) } else { 0 };
        if self.less < 2 {
            return false;
        }
        self.less = 0;
        true
    }

    /// A trial failed; `ratio` completions for each interrupt were reached.
    fn refuse(&mut self, trial: Trial, ratio: u64) {
        // A level that is not lower would be tried again and again.
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
            Setting {
                count: 1 << level,
                usecs: most(usecs),
            }
        };
    }
}

/// Clamps to 1 and to the largest value of the device's field.
fn most(usecs: u64) -> u16 {
    u16::try_from(usecs.max(1)).unwrap_or(u16::MAX)
}
