// SPDX-License-Identifier: GPL-2.0

//! Periodic checks of the device. Once a second: lost interrupts, health. More often:
//! the load, for interrupt moderation.

use super::{
    client::Lost,
    device::Device,
    moderate::REST, //
};
use crate::{
    data::function::Health,
    kernel::{
        watchdog::Check, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::Msecs, //
};

/// The watchdog's view of the device.
pub(crate) struct Watch {
    device: Arc<Device>,
}

impl Watch {
    pub(crate) fn new(device: Arc<Device>) -> Self {
        Self { device }
    }
}

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
        let device = &*self.device;
        let function = &device.function;
        for eq in device.eqs() {
            if device.eqs.is_overdue(eq.handler()) {
                let (_, lost) = eq.handler().interrupts();
                // Rate limit: an EQ may lose every interrupt.
                if lost.is_power_of_two() {
                    let index = eq.handler().index();
                    dev_warn!(function.device(), "EQ {index}: lost interrupt ({lost})\n");
                }
                eq.schedule();
            }
        }
        if function.health() == Health::Up {
            if let Ok(pass) = function.gate().enter() {
                let _: Result = function.look(pass.dev());
            }
        }
        let (epoch, is_due) = {
            let mut told = device.told.lock();
            // Under the lock: another reset may just have recovered the device.
            let (health, epoch) = (function.health(), function.epoch());
            let is_due = function.learn(|recovery| match health {
                Health::Up => {
                    recovery.works(epoch);
                    false
                }
                Health::Fatal => recovery.failed(epoch),
                _ => false,
            });
            let lost = match health {
                Health::Fatal => Lost::Reset,
                Health::Gone => Lost::Gone,
                Health::Down | Health::Up | Health::Unbound => return,
            };
            device.admin.abandon();
            // Its users get back what it must not access any more. If that is not certain, the next
            // check tries again: no reset need follow, if a task that holds the device lock waits for
            // just this.
            if *told != health && device.cut_off() {
                device.tell(lost, Some(function.epoch()));
                *told = health;
            }
            (epoch, is_due)
        };
        if !is_due {
            return;
        }
        let mut now = None;
        let result = crate::kernel::pci::try_reset(
            function.device(),
            || {
                // Another reset may have ended the epoch that failed.
                let has_failed = function.epoch() == epoch && function.health() == Health::Fatal;
                if has_failed && function.attempts() == 0 {
                    dev_info!(function.device(), "resetting the device\n");
                }
                has_failed
            },
            || now = Some(function.epoch()),
        );
        let Some(now) = now else {
            // Recovered, or another task holds the device lock: the next check tries again.
            return;
        };
        if let Err(error) = result {
            // If the epoch changed, the device was reset in spite of the error.
            if now == epoch && function.attempts() == 0 {
                dev_err!(
                    function.device(),
                    "the device cannot be reset: {error:?}; will try again\n"
                );
            }
        }
        function.learn(|recovery| recovery.tried(now));
    }
}

/// Samples the load and adjusts interrupt moderation.
pub(crate) struct Sampler(pub(crate) Arc<Device>);

impl Check for Sampler {
    fn check(&self) -> Msecs {
        let device = &*self.0;
        if device.function.health() != Health::Up {
            return REST;
        }
        let Ok(pass) = device.enter(device.epoch()) else {
            return REST;
        };
        device.moderation.sample(&pass, &device.admin, device.eqs())
    }
}
