// SPDX-License-Identifier: GPL-2.0

//! The device. It lives as long as a file or the driver refers to it.

use super::{
    client::Clients,
    moderate::{
        Mode,
        Moderation, //
    },
    state::{
        Life,
        Now, //
    }, //
};
use crate::{
    hw::{
        device::Hardware,
        function::{
            Function,
            Supervisor, //
        }, //
    },
    kernel::gate::Pass,
    policy::lifecycle::{
        Failure,
        Health,
        Lifecycle, //
    }, //
};
use core::ops::Deref;
use kernel::{
    device::{
        Bound,
        Device as Dev, //
    },
    prelude::*,
    sync::Arc, //
};

/// The device, for as long as it is referred to: its hardware, its life, and its clients.
#[pin_data]
pub(crate) struct Device {
    #[pin]
    hw: Hardware,
    pub(super) life: Arc<Life>,
    /// What a shutdown takes the device from.
    #[pin]
    pub(crate) clients: Clients,
    #[pin]
    pub(super) moderation: Moderation,
}

impl Deref for Device {
    type Target = Hardware;

    fn deref(&self) -> &Hardware {
        &self.hw
    }
}

impl Device {
    /// The device of `function`, down, with `vectors` vectors.
    pub(crate) fn new(
        dev: &Dev<Bound>,
        function: Arc<Function>,
        life: Arc<Life>,
        vectors: u32,
    ) -> Result<Arc<Self>> {
        let hw = Hardware::new(dev, function, vectors)?;
        Arc::pin_init(
            try_pin_init!(Self {
                hw <- hw,
                life,
                clients <- Clients::new(),
                moderation <- Moderation::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// The epoch: how often the device was reset.
    pub(crate) fn epoch(&self) -> u32 {
        self.life.now().epoch
    }

    /// What may be done with the device now. Any context.
    pub(crate) fn health(&self) -> Health {
        self.life.now().health
    }

    /// See [`Lifecycle::attempts`].
    pub(crate) fn attempts(&self) -> u32 {
        self.life.attempts()
    }

    /// The error of a caller that cannot enter.
    pub(crate) fn error(&self) -> Error {
        self.life.error()
    }

    /// Marks it failed; the watchdog recovers it. Any context.
    pub(crate) fn fail(&self, why: Failure) {
        self.life.fail(why);
    }

    /// Enters the gate of the device, for a caller that began in `epoch`: a reset ends all objects
    /// of earlier epochs.
    ///
    /// # Errors
    ///
    /// `ENODEV` if it is unbound or gone, `EIO` if it was reset since, or is about to be.
    pub(crate) fn enter(&self, epoch: u32) -> Result<Pass<'_>> {
        let pass = self.function.gate.enter().map_err(|_| self.error())?;
        let up = Now {
            epoch,
            health: Health::Up,
        };
        if self.life.now() != up {
            return Err(self.error());
        }
        Ok(pass)
    }

    /// Fails it if its status register says so.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `dev` is another device.
    pub(crate) fn look(&self, dev: &Dev<Bound>) -> Result {
        // Before the read: not ready is a failure only if the device was up then, in this epoch.
        let Now { epoch, health } = self.life.now();
        if let Some(why) = self.function.failure(dev, health == Health::Up)? {
            self.life.fail_in(epoch, why);
        }
        Ok(())
    }

    /// Undoes [`Self::fall_asleep`]; [`Self::bring_up_again`] follows.
    pub(crate) fn wake(&self) {
        self.life.change(Lifecycle::wake);
    }

    /// Waits until the device accesses no memory of `epoch` any more. The driver cannot keep what ULPs
    /// have posted, as it keeps rings and memory of processes: so a destroy that the device does not
    /// confirm waits. Ignores signals; not in a pass. Sleeps.
    pub(crate) fn wait_until_quiet(&self, epoch: u32) {
        self.life.wait_until_quiet(epoch);
    }

    /// See [`Lifecycle::is_free`]. Any context.
    pub(crate) fn is_free(&self) -> bool {
        self.life.is_free()
    }

    /// How interrupts are moderated. Sleeps.
    pub(crate) fn mode(&self) -> Mode {
        self.moderation.mode()
    }

    /// Changes how interrupts are moderated. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the commands. The new mode stays set, and the sampler retries.
    pub(crate) fn moderate(&self, pass: &Pass<'_>, mode: Mode) -> Result {
        self.moderation.set(pass, self, Some(mode))
    }
}
