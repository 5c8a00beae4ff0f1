// SPDX-License-Identifier: GPL-2.0

//! Periodic checks of the device. Once a second: lost interrupts, health. More often:
//! the load, for interrupt moderation.

use super::{
    device::Device,
    moderate::SAMPLE_SLOW, //
};
use crate::{
    kernel::watchdog::Check,
    policy::lifecycle::{
        Health,
        Lifecycle, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::Msecs, //
};

/// The watchdog's view of the device.
pub(crate) struct Watch(pub(crate) Arc<Device>);

/// Interval of the check, in milliseconds.
pub(crate) const WATCH: Msecs = 1000;

impl Check for Watch {
    fn check(&self) -> Msecs {
        self.look();
        WATCH
    }
}

impl Watch {
    fn look(&self) {
        let device = &*self.0;
        let function = &device.function;
        for eq in device.eqs.polls() {
            if device.eqs.is_overdue(eq.handler()) {
                let (_, lost) = eq.handler().interrupts();
                // Rate limit: an EQ may lose every interrupt.
                if lost.is_power_of_two() {
                    let index = eq.handler().index;
                    dev_warn!(function.device(), "EQ {index}: lost interrupt ({lost})\n");
                }
                eq.schedule();
            }
        }
        if device.health() == Health::Up {
            if let Ok(pass) = function.gate.enter() {
                let _: Result = device.look(pass.dev());
            }
        }
        let Some(failed) = device.life.change(Lifecycle::look) else {
            return;
        };
        if let Some(task) = failed.announce {
            device.execute(task, None);
        }
        let Some(epoch) = failed.reset else {
            return;
        };
        let mut now = None;
        let result = crate::kernel::pci::try_reset(
            function.device(),
            || {
                // Another reset may have ended the epoch that failed.
                let needs_reset = device.life.change(|life| life.needs_reset(epoch));
                if needs_reset && device.attempts() == 0 {
                    dev_info!(function.device(), "resetting the device\n");
                }
                needs_reset
            },
            || now = Some(device.epoch()),
        );
        let Some(now) = now else {
            // Recovered, or another task holds the device lock: the next check tries again.
            return;
        };
        if let Err(error) = result {
            // If the epoch changed, the device was reset in spite of the error.
            if now == epoch && device.attempts() == 0 {
                dev_err!(
                    function.device(),
                    "the device cannot be reset: {error:?}; will try again\n"
                );
            }
        }
        device.life.change(|life| life.tried(now));
    }
}

/// Samples the load and adjusts interrupt moderation.
pub(crate) struct Sampler(pub(crate) Arc<Device>);

impl Check for Sampler {
    fn check(&self) -> Msecs {
        let device = &*self.0;
        if device.health() != Health::Up {
            return SAMPLE_SLOW;
        }
        let Ok(pass) = device.enter(device.epoch()) else {
            return SAMPLE_SLOW;
        };
        device.moderation.sample(&pass, device)
    }
}
