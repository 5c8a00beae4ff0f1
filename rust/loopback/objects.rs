// SPDX-License-Identifier: GPL-2.0

//! The objects of the client, by command: queue pairs, memory regions in coherent memory, and their
//! protection domain.
//!
//! A region's addresses begin at 0: the device is given no kernel virtual addresses.

use crate::{
    abi::{
        command::{
            access,
            qp_mask,
            qp_state,
            MrContext,
            QpContext, //
        },
        Number, //
    },
    hw::{
        admin::Admin,
        command::{
            Create,
            Modify,
            Mr,
            Qp, //
        },
        qp::{
            QpRings,
            Sizes, //
        },
        ring::Ring, //
    },
    kernel::gate::Pass, //
};
use kernel::prelude::*;

/// A region and its memory.
pub(super) struct Region {
    pub(super) key: Number,
    pub(super) memory: Ring,
}

impl Region {
    /// Registers `bytes` bytes of new, zeroed memory. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; those of the command.
    pub(super) fn new(admin: &Admin, pass: &Pass<'_>, pd: Number, bytes: usize) -> Result<Self> {
        let memory = Ring::new(pass, bytes)?;
        let context = MrContext {
            pd,
            access: access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_READ,
            addr: 0,
            buffer: memory.list(),
            ..MrContext::default()
        };
        let (key, memory) = admin.create(pass, Create::<Mr>(context), memory)?;
        Ok(Self { key, memory })
    }
}

/// A queue pair in the device. It is posted to once it is connected and on its CQ.
pub(super) struct Pair {
    pub(super) number: Number,
    pub(super) rings: QpRings,
}

impl Pair {
    /// Creates one that receives may be posted to, with `cq` for both queues. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; those of the commands.
    pub(super) fn new(
        admin: &Admin,
        pass: &Pass<'_>,
        pd: Number,
        cq: Number,
        sizes: Sizes,
    ) -> Result<Self> {
        let rings = QpRings::new(pass, sizes)?;
        let create = Create::<Qp>(rings.context(QpContext {
            pd,
            send_cq: cq,
            recv_cq: cq,
            ..QpContext::default()
        }));
        let (number, rings) = admin.create(pass, create, rings)?;
        let made = Self { number, rings };
        let init = QpContext {
            state: qp_state::INIT,
            access: access::REMOTE_WRITE | access::REMOTE_READ,
            ..QpContext::default()
        };
        match made.modify(admin, pass, qp_mask::STATE | qp_mask::ACCESS, init) {
            Ok(()) => Ok(made),
            Err(error) => {
                made.destroy(admin, pass);
                Err(error)
            }
        }
    }

    /// Connects it to `peer`, which must be connected to it as well. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the commands.
    pub(super) fn connect(&self, admin: &Admin, pass: &Pass<'_>, peer: Number) -> Result {
        let receive = QpContext {
            state: qp_state::RTR,
            peer,
            ..QpContext::default()
        };
        let send = QpContext {
            state: qp_state::RTS,
            ..QpContext::default()
        };
        self.modify(admin, pass, qp_mask::STATE | qp_mask::PEER, receive)?;
        self.modify(admin, pass, qp_mask::STATE | qp_mask::RETRY, send)
    }

    /// Destroys it; nothing was posted to it. If that fails the device is fatal, and the memory
    /// stays until a reset. Sleeps.
    pub(super) fn destroy(self, admin: &Admin, pass: &Pass<'_>) {
        if admin.destroy::<Qp>(pass, self.number).is_err() {
            admin.leak(self.rings);
        }
    }

    fn modify(&self, admin: &Admin, pass: &Pass<'_>, mask: u32, context: QpContext) -> Result {
        let number = self.number;
        let modify = Modify::<Qp> {
            number,
            mask,
            context,
        };
        admin.execute(pass, modify).map(drop)
    }
}
