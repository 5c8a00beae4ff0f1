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
pub(crate) struct Watch(pub(crate) Arc<Device>);

/// How often it looks, in milliseconds.
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
        {
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
                if lost == Lost::Reset {
                    dev_info!(function.device(), "resetting the device\n");
                }
            }
            *told = health;
            if lost == Lost::Gone {
                return;
            }
        }
        if device.hopeless.load(Relaxed) == 0 {
            match sys::pci::try_reset(function.device()) {
                Ok(()) | Err(EAGAIN) => {}
                Err(error) => {
                    device.hopeless.store(1, Relaxed);
                    dev_err!(function.device(), "the device cannot be reset: {error:?}\n");
                }
            }
        }
    }
}
