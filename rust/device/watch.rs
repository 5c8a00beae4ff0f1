// SPDX-License-Identifier: GPL-2.0

//! Once a second: is anything stuck, is each interrupt on its CPU, is the device still there?

use super::{
    Device,
    Lost, //
};
use crate::{
    function::Health,
    sys::{
        self,
        watchdog::Check, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    },
    time::Msecs, //
};

impl Device {
    /// Spreads the interrupts anew when CPUs have come or gone: of one that goes they are moved
    /// anywhere, and nobody moves them back when it returns.
    fn follow_cpus(&self) {
        let changes = sys::hotplug::changes();
        if self.cpus.xchg(changes, Full) == changes {
            return;
        }
        for eq in &self.eqs {
            let index = eq.handler().index();
            if let Err(error) = eq.spread(index) {
                dev_dbg!(
                    self.function.device(),
                    "EQ {index} stays on its CPU: {error:?}\n"
                );
            }
        }
    }
}

/// The watchdog's view of the device.
pub(crate) struct Watch {
    device: Arc<Device>,
    /// Looks at a fatal device since the last attempt to reset it.
    waited: Atomic<u32>,
}

impl Watch {
    pub(crate) fn new(device: Arc<Device>) -> Self {
        Self {
            device,
            waited: Atomic::new(0),
        }
    }
}

/// How often it looks, in milliseconds.
pub(crate) const WATCH: Msecs = 1000;

/// Base-two logarithm of the most looks between two attempts to reset a device.
const LOG_PAUSE: u32 = 6;

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
        for eq in &device.eqs {
            if eq.handler().is_overdue() {
                let (_, lost) = eq.handler().interrupts();
                // So that one which always gets lost does not fill the log.
                if lost.is_power_of_two() {
                    let index = eq.handler().index();
                    dev_warn!(function.device(), "EQ {index}: lost interrupt ({lost})\n");
                }
                eq.schedule();
            }
        }
        device.follow_cpus();
        if function.health() == Health::Up {
            if let Ok(pass) = function.gate().enter() {
                let _: Result = function.look(pass.dev());
            }
        }
        let epoch = {
            let mut told = device.told.lock();
            // Under the lock: a reset from elsewhere may just have mended it.
            let health = function.health();
            let lost = match health {
                Health::Fatal => Lost::Reset,
                Health::Gone => Lost::Gone,
                _ => return,
            };
            device.admin.abandon();
            if *told != health {
                device.tell_tenants(lost);
                if lost == Lost::Reset && function.attempts() == 0 {
                    dev_info!(function.device(), "resetting the device\n");
                }
            }
            *told = health;
            if lost == Lost::Gone {
                return;
            }
            function.epoch()
        };
        let waited = self.waited.load(Relaxed);
        if waited < pause(function.attempts()) {
            self.waited.store(waited + 1, Relaxed);
            return;
        }
        self.waited.store(0, Relaxed);
        // A reset from elsewhere may have ended the epoch that failed.
        let is_failed = || function.epoch() == epoch && function.health() == Health::Fatal;
        match sys::pci::try_reset(function.device(), is_failed) {
            Ok(()) => {}
            // Tried again at the next look.
            Err(EAGAIN) => self.waited.store(waited, Relaxed),
            // What was reset all the same has counted its attempt itself.
            Err(error) if is_failed() => {
                if function.attempts() == 0 {
                    dev_err!(
                        function.device(),
                        "the device cannot be reset: {error:?}; will try again\n"
                    );
                }
                function.count_attempt();
            }
            Err(_) => {}
        }
    }
}

/// Looks to let pass before the next attempt to reset a device, after so many that failed.
fn pause(attempts: u32) -> u32 {
    match attempts {
        0 => 0,
        _ => 1 << (attempts - 1).min(LOG_PAUSE),
    }
}
