// SPDX-License-Identifier: GPL-2.0

//! The owner of an object.

use super::{
    file::Process,
    registered::Registered, //
};
use crate::{
    abi::Number,
    hw::command::{
        Command,
        Object, //
    },
    kernel::gate::Pass,
    life::device::Device, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Whose an object is: a process's, with `P` of it in the file, or a kernel ULP's, with `U` of it.
pub(super) enum Owner<P, U> {
    Process(Arc<Process>, P),
    Ulp(Registered, U),
}

impl<P, U> Owner<P, U> {
    /// The device that has the object.
    pub(super) fn device(&self) -> &Arc<Device> {
        match self {
            Self::Process(process, _) => &process.device,
            Self::Ulp(registered, _) => &registered.device,
        }
    }

    /// The way to the device.
    ///
    /// # Errors
    ///
    /// For a process `EIO`: the device was reset, or fails; `ENODEV`: it is gone. For a ULP
    /// `ENETDOWN`, as of [`Registered::enter`].
    pub(super) fn enter(&self) -> Result<Pass<'_>> {
        match self {
            Self::Process(process, _) => process.enter(),
            Self::Ulp(registered, _) => registered.enter(),
        }
    }

    /// Executes a command. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of [`Self::enter`] and of the command.
    pub(super) fn execute<C: Command>(&self, command: C) -> Result<C::Reply> {
        let pass = self.enter()?;
        self.device().admin.execute(&pass, command)
    }

    /// Queries an object of it. Sleeps.
    ///
    /// # Errors
    ///
    /// As of [`Self::execute`].
    pub(super) fn query<O: Object>(&self, number: Number) -> Result<O::Context> {
        self.device().admin.query::<O>(&self.enter()?, number)
    }

    /// Gives `show` an object of a process, queried, for `rdma resource`. That of a kernel ULP has no
    /// details. Sleeps.
    ///
    /// # Errors
    ///
    /// As of [`Self::execute`]; those of `show`.
    pub(super) fn details<O: Object>(
        &self,
        number: Number,
        show: impl FnOnce(O::Context) -> Result,
    ) -> Result {
        match self {
            Self::Process(..) => show(self.query::<O>(number)?),
            Self::Ulp(..) => Ok(()),
        }
    }

    /// What the file of a process has of it.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: it is a kernel ULP's.
    pub(super) fn process(&self) -> Result<(&Arc<Process>, &P)> {
        match self {
            Self::Process(process, part) => Ok((process, part)),
            Self::Ulp(..) => Err(EOPNOTSUPP),
        }
    }

    /// What a kernel ULP has of it.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: it is a process's.
    #[inline]
    pub(super) fn ulp(&self) -> Result<(&Registered, &U)> {
        match self {
            Self::Ulp(registered, part) => Ok((registered, part)),
            Self::Process(..) => Err(EOPNOTSUPP),
        }
    }
}
