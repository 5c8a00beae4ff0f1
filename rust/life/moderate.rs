// SPDX-License-Identifier: GPL-2.0

//! Interrupt moderation: off, fixed, or adaptive.
//!
//! The device delays an EQ's interrupt until a number of events wait or the oldest has waited for
//! some time. An admin command sets both limits, from process context and only when they change. In
//! [`Mode::Adaptive`] a [`Sampler`](super::watch::Sampler) reads each EQ's counters, which the
//! interrupt and the poll keep in atomics, and asks the EQ's
//! [`Controller`](crate::policy::moderation::Controller). The poll is not involved.
//!
//! Each EQ remembers its last setting in the device. A setting that was refused is sent again at
//! the next sample, and all are sent again after a reset.

use crate::{
    abi::command::EqContext,
    hw::{
        command::{
            Eq as EqObject,
            Modify, //
        },
        device::Hardware,
        eq::EqPoller, //
    },
    kernel::gate::Pass,
    policy::moderation::{
        Controller,
        Pace,
        Sample,
        Setting,
        TARGET, //
    }, //
};
use core::{
    fmt,
    str::FromStr, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::Mutex,
    time::{
        Instant,
        Monotonic,
        Msecs, //
    }, //
};

/// Between two samples while there is traffic and for a second after it, in milliseconds.
pub(crate) const SAMPLE: Msecs = 10;
/// Between two samples otherwise, in milliseconds.
pub(super) const SAMPLE_SLOW: Msecs = 250;

/// The mode of moderation, of all EQs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The same for all EQs; [`Setting::OFF`] among them.
    Fixed(Setting),
    /// By load. The parameter is the rate of interrupts a second up to which an EQ is not
    /// moderated.
    Adaptive(u32),
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(Setting::OFF) => write!(f, "off"),
            Self::Fixed(Setting { count, usecs }) => write!(f, "fixed {count} {usecs}"),
            Self::Adaptive(target) => write!(f, "adaptive {target}"),
        }
    }
}

impl FromStr for Mode {
    type Err = Error;

    /// `off`, `fixed 16 50` or only `16 50`, `adaptive 10000` or only `adaptive`.
    fn from_str(text: &str) -> Result<Self> {
        fn number<T: FromStr>(word: &str) -> Result<T> {
            word.parse().map_err(|_| EINVAL)
        }
        let fixed = |count, usecs| -> Result<Self> {
            let (count, usecs): (u16, u16) = (number(count)?, number(usecs)?);
            if (count == 0) != (usecs == 0) {
                return Err(EINVAL);
            }
            Ok(Self::Fixed(Setting { count, usecs }))
        };
        let mut words = text.split_ascii_whitespace();
        let mut next = || words.next();
        let four = [next(), next(), next(), next()];
        match four {
            [Some("off"), None, ..] => Ok(Self::Fixed(Setting::OFF)),
            [Some("fixed"), Some(count), Some(usecs), None] => fixed(count, usecs),
            [Some("adaptive"), None, ..] => Ok(Self::Adaptive(TARGET)),
            [Some("adaptive"), Some(target), None, _] => match number(target)? {
                0 => Err(EINVAL),
                target => Ok(Self::Adaptive(target)),
            },
            [Some(count), Some(usecs), None, _] => fixed(count, usecs),
            _ => Err(EINVAL),
        }
    }
}

/// The load of an EQ.
struct Track {
    controller: Controller,
    /// Completions and interrupts at the last sample.
    last: (u64, u64),
    at: Instant<Monotonic>,
}

impl Track {
    fn new(eq: &EqPoller, target: u32) -> Self {
        Self {
            controller: Controller::new(target),
            last: eq.handler().traffic(),
            at: Instant::now(),
        }
    }

    fn sample(&mut self, eq: &EqPoller) {
        let now = eq.handler().traffic();
        let nanos = self.at.elapsed().as_nanos();
        let last = core::mem::replace(&mut self.last, now);
        self.at = Instant::now();
        self.controller.sample(Sample {
            completions: now.0.wrapping_sub(last.0),
            interrupts: now.1.wrapping_sub(last.1),
            nanos: u64::try_from(nanos).unwrap_or(0),
        });
    }
}

/// The mode, and the load of the EQs.
struct Choice {
    mode: Mode,
    /// One for each EQ, where the mode is adaptive.
    tracks: KVec<Track>,
    pace: Pace,
}

impl Choice {
    /// The wanted setting of EQ `index`.
    fn wanted(&self, index: usize) -> Setting {
        match self.mode {
            Mode::Fixed(setting) => setting,
            Mode::Adaptive(_) => self
                .tracks
                .get(index)
                .map_or(Setting::OFF, |track| track.controller.setting()),
        }
    }

    /// Sends the device the settings that differ from its own. Returns the first error, after all
    /// EQs.
    fn apply(&self, pass: &Pass<'_>, hw: &Hardware) -> Result {
        let mut result = Ok(());
        for (index, eq) in hw.eqs.polls().iter().enumerate() {
            let setting = self.wanted(index);
            if setting == eq.handler().moderation() {
                continue;
            }
            let modify = Modify::<EqObject> {
                number: eq.handler().number(),
                mask: 0,
                context: EqContext {
                    moderation_count: setting.count,
                    moderation_usecs: setting.usecs,
                    ..EqContext::default()
                },
            };
            match hw.admin.execute(pass, modify) {
                Ok(()) => eq.handler().set_moderation(setting),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }
}

/// How the interrupts of a device are moderated.
#[pin_data]
pub(super) struct Moderation {
    #[pin]
    choice: Mutex<Choice>,
}

impl Moderation {
    /// Adaptive, with the default target.
    pub(super) fn new() -> impl PinInit<Self> {
        let choice = Choice {
            mode: Mode::Adaptive(TARGET),
            tracks: KVec::new(),
            pace: Pace::default(),
        };
        pin_init!(Self { choice <- new_mutex!(choice, "Device::moderation") })
    }

    /// How interrupts are moderated. Sleeps.
    pub(super) fn mode(&self) -> Mode {
        self.choice.lock().mode
    }

    /// Configures the device, for another mode if one is given. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the commands. The new mode stays set, and the sampler retries.
    pub(super) fn set(&self, pass: &Pass<'_>, hw: &Hardware, mode: Option<Mode>) -> Result {
        let mut choice = self.choice.lock();
        choice.mode = mode.unwrap_or(choice.mode);
        choice.tracks.clear();
        choice.apply(pass, hw)
    }

    /// Samples the load of each EQ and updates the device. Returns the time until the next sample.
    /// Sleeps.
    pub(super) fn sample(&self, pass: &Pass<'_>, hw: &Hardware) -> Msecs {
        let eqs = hw.eqs.polls();
        let mut choice = self.choice.lock();
        let mut busy = false;
        if let Mode::Adaptive(target) = choice.mode {
            if choice.tracks.is_empty() {
                for eq in eqs {
                    // Without memory the remaining EQs are not moderated.
                    let track = Track::new(eq, target);
                    if choice.tracks.push(track, GFP_KERNEL).is_err() {
                        break;
                    }
                }
            }
            for (track, eq) in choice.tracks.iter_mut().zip(eqs) {
                let before = track.last;
                track.sample(eq);
                busy |= track.last != before || !track.controller.is_off();
            }
        }
        // A refused setting is sent again at the next sample.
        if let Err(error) = choice.apply(pass, hw) {
            dev_dbg!(pass.dev(), "moderation is not changed: {error:?}\n");
        }
        if choice.pace.slows(busy) {
            SAMPLE_SLOW
        } else {
            SAMPLE
        }
    }
}
