// SPDX-License-Identifier: GPL-2.0
//! Protection domains of a context.

use std::sync::Arc;

use nix::errno::Errno;

use super::args::Kind;
use super::context::Context;

pub(crate) struct Pd {
    pub(super) ctx: Arc<Context>,
    pub(crate) handle: u32,
}

impl Pd {
    pub(crate) fn new(ctx: &Arc<Context>) -> Result<Self, Errno> {
        Ok(Self {
            ctx: ctx.clone(),
            handle: ctx.alloc_pd()?,
        })
    }

    pub(crate) fn destroy(&self) -> Result<(), Errno> {
        self.ctx.destroy(Kind::Pd, self.handle)
    }
}
