// SPDX-License-Identifier: GPL-2.0
//! Protection domains of a context.

use std::sync::Arc;

use nix::errno::Errno;

use super::args::Kind;
use super::context::Context;

/// A protection domain.
pub struct Pd {
    pub(super) ctx: Arc<Context>,
    /// Its handle.
    pub handle: u32,
}

impl Pd {
    /// Creates one.
    pub fn new(ctx: &Arc<Context>) -> Result<Self, Errno> {
        Ok(Self {
            ctx: ctx.clone(),
            handle: ctx.alloc_pd()?,
        })
    }

    /// Destroys it.
    pub fn destroy(&self) -> Result<(), Errno> {
        self.ctx.destroy(Kind::Pd, self.handle)
    }
}
