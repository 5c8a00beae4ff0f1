// SPDX-License-Identifier: GPL-2.0

//! Memory windows.

use super::{
    pd::Pd,
    prelude::*, //
};
use crate::{
    abi::{
        command::{
            mw_type,
            MwContext, //
        },
        entry::window_key, //
    },
    kernel::rdma::{
        mw,
        MwType, //
    }, //
};

/// A memory window of a process, bound or not.
pub(crate) struct Mw {
    process: Arc<Process>,
    number: Number,
}

impl mw::Operations<Verbs> for Mw {
    fn alloc(
        pd: &Pd,
        kind: MwType,
        process: &Arc<Process>,
        udata: Udata<'_>,
    ) -> Result<(Self, u32)> {
        let reply = udata.without_request()?;
        let create = command::Create::<command::Mw>(MwContext {
            pd: pd.number,
            kind: match kind {
                MwType::One => mw_type::ONE,
                MwType::Two => mw_type::TWO,
            },
            ..MwContext::default()
        });
        let number =
            process.charged(Kind::Mw, |pass| process.device.admin.execute(pass, create))?;
        let mw = Self {
            process: process.clone(),
            number,
        };
        let mw = answered(mw, reply.write(&()), mw::Operations::dealloc)?;
        Ok((mw, window_key(number, 0)))
    }

    fn dealloc(self) {
        let admin = &self.process.device.admin;
        self.process.end(Kind::Mw, None, |pass| {
            admin.destroy::<command::Mw>(pass, self.number)
        });
    }
}
