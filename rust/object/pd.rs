// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use super::prelude::*;
use crate::kernel::{
    gate::Pass,
    rdma::pd, //
};

/// A protection domain of a process or of a kernel ULP.
pub(crate) struct Pd {
    pub(super) owner: Owner<(), ()>,
    pub(super) number: Number,
}

impl pd::Operations<Verbs> for Pd {
    fn alloc(caller: Caller<'_, Verbs>) -> Result<Self> {
        let create = command::Create::<command::Pd>(());
        match caller {
            Caller::Process(process, udata) => {
                let reply = udata.without_request()?;
                let number =
                    process.charged(Kind::Pd, |pass| process.device.admin.execute(pass, create))?;
                let owner = Owner::Process(process.clone(), ());
                answered(
                    Self { owner, number },
                    reply.write(&()),
                    pd::Operations::dealloc,
                )
            }
            Caller::Ulp(registered) => {
                let owner = Owner::Ulp(registered.clone(), ());
                let number = owner.execute(create)?;
                Ok(Self { owner, number })
            }
        }
    }

    fn dealloc(self) {
        let admin = &self.owner.device().admin;
        let destroy = |pass: &Pass<'_>| admin.destroy::<command::Pd>(pass, self.number);
        match &self.owner {
            Owner::Process(process, ()) => {
                process.end_abandoned(self.number);
                process.end(Kind::Pd, None, destroy);
            }
            Owner::Ulp(..) => {
                // It has no memory: the device may keep it until a reset.
                let _: Result = self.owner.enter().and_then(|pass| destroy(&pass));
            }
        }
    }
}
