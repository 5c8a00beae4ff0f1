// SPDX-License-Identifier: GPL-2.0
//! When a device that failed is reset, and when its failures are forgotten.
//!
//! A watchdog looks at the device at equal times. The first failure is followed by a reset at once.
//! A device that does not come up by it, or fails again soon, gets growing pauses: of 1 look, 2, 4,
//! and so on up to [`LONGEST`]. Its failures are forgotten only after it worked at [`LONGEST`]
//! looks in a row, so a device that fails soon after each reset is not reset every second for ever.
//!
//! A reset that the watchdog did not make begins a new epoch that the watchdog does not expect.
//! What failed before that reset does not count after it.

/// Base-two logarithm of [`LONGEST`].
const LOG_LONGEST: u32 = 6;

/// The longest pause between two resets, in looks.
pub const LONGEST: u32 = 1 << LOG_LONGEST;

/// What the watchdog knows of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Recovery {
    /// The epoch of the failures that are known.
    epoch: u32,
    /// Resets in a row by which the device did not come up, or not for long.
    attempts: u16,
    /// Looks at a device that failed, since the last reset.
    waited: u8,
    /// Looks in a row at a device that works.
    worked: u8,
}

impl Recovery {
    /// Of a device that was never reset.
    pub const fn new() -> Self {
        Self {
            epoch: 0,
            attempts: 0,
            waited: 0,
            worked: 0,
        }
    }

    /// Resets in a row by which the device did not come up, or not for long.
    pub const fn attempts(&self) -> u32 {
        // CAST: To a wider type.
        self.attempts as u32
    }

    /// A look at a device that works.
    pub fn works(&mut self, epoch: u32) {
        self.look(epoch);
        self.waited = 0;
        self.worked = self.worked.saturating_add(1);
        if u32::from(self.worked) >= LONGEST {
            self.attempts = 0;
        }
    }

    /// A look at a device that has failed; returns whether to reset it now. The caller calls
    /// [`Self::tried`] after the reset; without a reset, the next look returns true again.
    #[must_use]
    pub fn failed(&mut self, epoch: u32) -> bool {
        self.look(epoch);
        self.worked = 0;
        if u32::from(self.waited) >= self.pause() {
            return true;
        }
        self.waited = self.waited.saturating_add(1);
        false
    }

    /// The device was reset, or could not be. It is in `epoch` now.
    pub fn tried(&mut self, epoch: u32) {
        *self = Self {
            epoch,
            attempts: self.attempts.saturating_add(1),
            waited: 0,
            worked: 0,
        };
    }

    fn look(&mut self, epoch: u32) {
        if epoch != self.epoch {
            *self = Self {
                epoch,
                ..Self::new()
            };
        }
    }

    /// Looks at a device that failed before it is reset.
    const fn pause(&self) -> u32 {
        match self.attempts() {
            0 => 0,
            attempts @ 1..=LOG_LONGEST => 1 << (attempts - 1),
            _ => LONGEST,
        }
    }
}
