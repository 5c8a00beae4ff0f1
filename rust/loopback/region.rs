// SPDX-License-Identifier: GPL-2.0

//! Memory regions of the client, in coherent memory, and their protection domain.
//!
//! A region's addresses begin at 0: the device is given no kernel virtual addresses.

use crate::{
    abi::{
        command::MrContext,
        Number, //
    },
    hw::{
        admin::Admin,
        command::{
            Create,
            Destroy,
            Mr,
            Pd, //
        },
        ring::Ring, //
    },
    kernel::gate::Pass, //
};
use kernel::prelude::*;

/// A region and its memory.
pub(super) struct Region {
    key: Number,
    memory: Ring,
}

impl Region {
    /// Registers `bytes` bytes of new, zeroed memory. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; those of the command.
    pub(super) fn new(
        admin: &Admin,
        pass: &Pass<'_>,
        pd: Number,
        bytes: usize,
        access: u8,
    ) -> Result<Self> {
        let memory = Ring::new(pass, bytes)?;
        let context = MrContext {
            pd,
            access,
            addr: 0,
            buffer: memory.list(),
            ..MrContext::default()
        };
        let (key, memory) = admin.create(pass, Create::<Mr>(context), memory)?;
        Ok(Self { key, memory })
    }

    /// Its key.
    pub(super) fn key(&self) -> Number {
        self.key
    }

    /// Its memory.
    pub(super) fn memory(&self) -> &Ring {
        &self.memory
    }

    /// Destroys region `key`. On return the device no longer accesses its memory. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the command. The device is then fatal, and the memory must stay until a reset.
    pub(super) fn destroy(admin: &Admin, pass: &Pass<'_>, key: Number) -> Result {
        admin.execute(pass, Destroy::<Mr>::new(key))?;
        Ok(())
    }
}

/// Makes a protection domain. Sleeps.
///
/// # Errors
///
/// Those of the command.
pub(super) fn alloc_pd(admin: &Admin, pass: &Pass<'_>) -> Result<Number> {
    admin.execute(pass, Create::<Pd>(()))
}

/// Destroys a protection domain. Sleeps.
///
/// # Errors
///
/// Those of the command; `EBUSY` if something belongs to it.
pub(super) fn dealloc_pd(admin: &Admin, pass: &Pass<'_>, pd: Number) -> Result {
    admin.execute(pass, Destroy::<Pd>::new(pd))?;
    Ok(())
}
