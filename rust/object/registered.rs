// SPDX-License-Identifier: GPL-2.0

//! The function as it was registered with the RDMA core.

use super::{
    quota::Quotas,
    registrations::Ongoing, //
};
use crate::{
    hw::command::Command,
    kernel::gate::Pass,
    life::device::Device, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The driver of the RDMA core.
pub(crate) struct Verbs;

/// The function, in the reset epoch in which it was registered. The core may still call its driver
/// when the function is already registered again: an old registration reaches no object of the new.
#[derive(Clone)]
pub(crate) struct Registered {
    pub(super) device: Arc<Device>,
    pub(super) quotas: Arc<Quotas>,
    pub(super) epoch: u32,
    pub(super) _ongoing: Arc<Ongoing>,
}

impl Registered {
    /// The way to the device.
    ///
    /// # Errors
    ///
    /// `ENETDOWN`: the device was reset, fails, or is gone. RPC tries to connect again after this
    /// error, and gives any other to the application.
    pub(super) fn enter(&self) -> Result<Pass<'_>> {
        self.device.enter(self.epoch).map_err(|_| ENETDOWN)
    }

    /// Executes a command. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of [`Self::enter`] and of the command.
    pub(super) fn execute<C: Command>(&self, command: C) -> Result<C::Reply> {
        self.device.admin.execute(&self.enter()?, command)
    }
}
