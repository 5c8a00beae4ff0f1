// SPDX-License-Identifier: GPL-2.0

//! Memberships of queue pairs in groups.
//!
//! Each is charged to its process until it is detached. The device ends those of a queue pair that
//! goes to RESET, which the core does not expect: the driver attaches it again before it leaves RESET.

use super::{
    address::context,
    ops::Qp,
    ulp::KernelQp, //
};
use crate::{
    abi::Number,
    control::{
        command::{
            Attach,
            Detach, //
        },
        device::Device, //
    },
    kernel::{
        gate::Pass,
        rdma::Gid, //
    }, //
    queue::quota::Kind,
};
use kernel::prelude::*;

/// Makes a queue pair a member. One that the device already has is no error: an earlier detach was
/// refused, or a change to INIT was.
fn attach(device: &Device, pass: &Pass<'_>, number: Number, group: Gid) -> Result {
    let gid = context(group);
    match device.admin().execute(pass, Attach { number, gid }) {
        Err(error) if error == EBUSY => Ok(()),
        done => done,
    }
}

/// Ends a membership. One that has ended is no error.
fn detach(device: &Device, pass: &Pass<'_>, number: Number, group: Gid) -> Result {
    let gid = context(group);
    match device.admin().execute(pass, Detach { number, gid }) {
        Err(error) if error == ENOENT => Ok(()),
        done => done,
    }
}

impl Qp {
    /// Makes it a member of a group.
    ///
    /// # Errors
    ///
    /// `EDQUOT`, `ENOSPC`: there are too many, of the process or of the group. Those of the command.
    pub(super) fn attach(&self, group: Gid) -> Result {
        let process = &self.process;
        let pass = process.enter()?;
        let charge = process.device.charge(&pass, process.page(), Kind::Member)?;
        attach(&process.device, &pass, self.number, group)?;
        charge.keep();
        Ok(())
    }

    /// The same before a change from RESET to INIT. It is charged already.
    pub(super) fn attach_again(&self, group: Gid) -> Result {
        let pass = self.process.enter()?;
        attach(&self.process.device, &pass, self.number, group)
    }

    /// Ends the membership. If the device refuses, that ends with the queue pair; the charge stays for
    /// the life of the process's file.
    pub(super) fn detach(&self, group: Gid) {
        let process = &self.process;
        let _: Result = process.attempt(Kind::Member, |pass| {
            detach(&process.device, pass, self.number, group)
        });
    }
}

impl KernelQp {
    /// As [`Qp::attach`], without a charge.
    pub(super) fn attach(&self, group: Gid) -> Result {
        self.command(|device, pass, number| attach(device, pass, number, group))
    }

    /// As [`Qp::attach_again`]. A lost device has no memberships, and its queue pairs go to RESET.
    pub(super) fn attach_again(&self, group: Gid) -> Result {
        match self.attach(group) {
            Err(_) if self.is_lost() => Ok(()),
            done => done,
        }
    }

    /// As [`Qp::detach`].
    pub(super) fn detach(&self, group: Gid) {
        // Without the device there is no membership; a refused one ends with the queue pair.
        let _: Result = self.command(|device, pass, number| detach(device, pass, number, group));
    }
}
