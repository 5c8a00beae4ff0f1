// SPDX-License-Identifier: GPL-2.0

//! Address handles.
//!
//! An address handle is not an object of the device: a send work request has the address itself.
//! So a create only returns the address, and counts the handle, which takes memory of the kernel.

use super::{
    guid,
    process::Process,
    Registered, //
};
use crate::{
    abi::{
        command::GidContext,
        uverbs::qpair_uresp_create_ah, //
    },
    control::{
        command::SetGid,
        device::Device, //
    },
    sys::rdma::{
        Address,
        Gid, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// Address handles of a file, at most.
pub(super) const MOST: u32 = 4096;

/// The address handles of a file.
pub(super) struct Handles(Atomic<u32>);

impl Handles {
    /// None.
    pub(super) fn new() -> Self {
        Self(Atomic::new(0))
    }
}

/// An address handle.
pub(crate) struct Ah(Arc<Process>);

impl Ah {
    /// Counts one.
    ///
    /// # Errors
    ///
    /// `EDQUOT`: the file has as many as it may.
    pub(super) fn new(process: &Arc<Process>) -> Result<Self> {
        // The drop takes back what exceeds the limit, too.
        let count = process.handles.0.fetch_add(1, Relaxed);
        let this = Self(process.clone());
        if count < MOST {
            Ok(this)
        } else {
            Err(EDQUOT)
        }
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        self.0.handles.0.fetch_sub(1, Relaxed);
    }
}

/// The GID that a queue pair of UD has of its own, as the words of contexts have it: none on a port
/// of RoCE, whose table has them.
pub(super) fn own(device: &Device) -> (u64, u64) {
    match device.limits().mac {
        Some(_) => (0, 0),
        None => words(Gid::of_port(guid(device))),
    }
}

/// A GID as commands have it.
pub(super) fn context(Gid(raw): Gid) -> GidContext {
    GidContext::from_bytes(raw)
}

/// The words of a GID.
pub(super) fn words(gid: Gid) -> (u64, u64) {
    let GidContext { gid, gid_high } = context(gid);
    (gid, gid_high)
}

/// Sets an entry of the port's table of GIDs.
///
/// # Errors
///
/// Those of the command.
pub(super) fn set_gid(registered: &Registered, index: u16, gid: Gid) -> Result {
    let gid = context(gid);
    let pass = registered.enter()?;
    registered
        .device
        .admin()
        .execute(&pass, SetGid { index, gid })
}

/// The address of a port, for work requests. That of a port which this one cannot reach is no
/// GID, so that messages to it are dropped.
pub(super) fn resolve(device: &Device, address: Address) -> qpair_uresp_create_ah {
    let (Gid(gid), source) = match address {
        Address::Global(gid, source) => (gid, source),
        Address::Own => (Gid::of_port(guid(device)), 0),
        Address::Foreign => (Gid([0; 16]), 0),
    };
    qpair_uresp_create_ah {
        gid,
        source: source.into(),
    }
}
