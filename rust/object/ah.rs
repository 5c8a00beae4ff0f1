// SPDX-License-Identifier: GPL-2.0

//! Address handles.
//!
//! An address handle is not an object of the device: a send work request has the address itself.
//! So a create only returns the address, and charges the handle: it takes memory of the core, which
//! no cgroup counts.

use super::prelude::*;
use crate::{
    abi::{
        command::GidContext,
        uverbs::qpair_uresp_create_ah, //
    },
    kernel::rdma::{
        ah,
        Gid,
        UdAddress, //
    },
    life::device::Device, //
};

/// GUID of the device: a locally administered EUI-64.
pub(super) fn guid(device: &Device) -> u64 {
    0x0200_51ff_fe50_0000 | u64::from(device.index())
}

/// An address handle of a process.
pub(crate) struct Ah(Arc<Process>);

impl ah::Operations<Verbs> for Ah {
    fn create(process: &Arc<Process>, address: UdAddress, udata: Udata<'_>) -> Result<Self> {
        let reply = udata.without_request()?;
        process.charged(Kind::Ah, |_pass| Ok(()))?;
        let answer = qpair_uresp_create_ah {
            gid: address.gid.0,
            source: address.source.into(),
            mac: address.mac,
            reserved: 0,
        };
        answered(
            Self(process.clone()),
            reply.write(&answer),
            ah::Operations::destroy,
        )
    }

    fn destroy(self) {
        let Self(process) = self;
        process.discharge(Kind::Ah);
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
