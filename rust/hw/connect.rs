// SPDX-License-Identifier: GPL-2.0

//! The commands that create, connect and destroy a queue pair of the kernel.
//!
//! Each moves a [`QueuePair`] to the state it has in the device. On failure the queue pair is
//! returned.

use super::{
    admin::Admin,
    command::{
        Create,
        Destroy,
        Ended,
        Modify,
        Qp, //
    },
    qp::{
        Init,
        QpRings,
        QueuePair,
        Ready,
        Reset,
        Site,
        Sizes, //
    }, //
};
use crate::{
    abi::{
        command::{
            qp_mask,
            qp_state,
            QpContext, //
        },
        Number, //
    },
    kernel::gate::Pass,
    queue::credit::{
        Cq,
        Slots, //
    }, //
};
use kernel::prelude::*;

impl QueuePair<Reset> {
    /// Creates a queue pair. `slots` are [`Sizes::completions`] slots of its CQ. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the command, `ENOMEM`; with the slots, which go back to the CQ's pool.
    pub(crate) fn create(
        admin: &Admin,
        pass: &Pass<'_>,
        epoch: u32,
        site: &Site,
        sizes: Sizes,
        slots: Slots<Cq>,
    ) -> Result<Self, (Error, Slots<Cq>)> {
        let made = QpRings::new(pass, sizes).and_then(|rings| {
            let create = Create::<Qp>(rings.context(site));
            admin.create(pass, create, rings)
        });
        match made {
            // Cannot fail: the rings were allocated for their depths.
            Ok((number, rings)) => Self::new(number, epoch, site, rings, slots),
            Err(error) => Err((error, slots)),
        }
    }

    /// Allows receives to be posted, and sets the access rights of the peer. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the command, with the queue pair, which still exists.
    pub(crate) fn init(
        self,
        admin: &Admin,
        pass: &Pass<'_>,
        access: u8,
    ) -> Result<QueuePair<Init>, (Error, Self)> {
        let context = QpContext {
            state: qp_state::INIT,
            access,
            ..QpContext::default()
        };
        let mask = qp_mask::STATE | qp_mask::ACCESS;
        match modify(admin, pass, self.number(), mask, context) {
            Ok(()) => Ok(self.into_init()),
            Err(error) => Err((error, self)),
        }
    }
}

impl QueuePair<Init> {
    /// Connects it to `peer`, which must be connected to it as well. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the commands, with the queue pair, which still exists.
    pub(crate) fn connect(
        self,
        admin: &Admin,
        pass: &Pass<'_>,
        peer: Number,
    ) -> Result<QueuePair<Ready>, (Error, Self)> {
        let receive = QpContext {
            state: qp_state::RTR,
            peer,
            ..QpContext::default()
        };
        let send = QpContext {
            state: qp_state::RTS,
            ..QpContext::default()
        };
        let change = |mask, context| modify(admin, pass, self.number(), mask, context);
        let done = change(qp_mask::STATE | qp_mask::PEER, receive)
            .and_then(|()| change(qp_mask::STATE | qp_mask::RETRY, send));
        match done {
            Ok(()) => Ok(self.into_ready()),
            Err(error) => Err((error, self)),
        }
    }
}

impl<S> QueuePair<S> {
    /// Destroys it. On return none of its requests is in flight. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the command. The device is then fatal, and the memory must stay until a reset.
    pub(crate) fn destroy(&self, admin: &Admin, pass: &Pass<'_>) -> Result<Ended> {
        admin.execute(pass, Destroy::<Qp>::new(self.number()))
    }
}

fn modify(admin: &Admin, pass: &Pass<'_>, number: Number, mask: u32, context: QpContext) -> Result {
    admin.execute(
        pass,
        Modify::<Qp> {
            number,
            mask,
            context,
        },
    )?;
    Ok(())
}
