// SPDX-License-Identifier: GPL-2.0
//! Memory regions and memory windows of a context.

use std::sync::Arc;

use nix::errno::Errno;
use qpair_uverbs::abi::*;

use super::args::Kind;
use super::context::Context;
use super::memory::Buffer;
use super::pd::Pd;
use super::shown;
use super::shown::MrNow;

/// A memory region.
pub struct Mr {
    ctx: Arc<Context>,
    /// Its handle and keys.
    pub keys: ib_uverbs_reg_mr_resp,
}

/// Every right of a peer.
pub const REMOTE_RIGHTS: u32 =
    IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_READ | IB_UVERBS_ACCESS_REMOTE_ATOMIC;

/// Every right, and that windows may be bound.
pub const BINDABLE: u32 = EVERY_RIGHT | IB_UVERBS_ACCESS_MW_BIND;

/// Every right.
pub const EVERY_RIGHT: u32 = IB_UVERBS_ACCESS_LOCAL_WRITE | REMOTE_RIGHTS;

/// The request for a part of a buffer, at its own address.
pub fn region(pd: &Pd, addr: u64, bytes: u64, access: u32) -> ib_uverbs_reg_mr {
    ib_uverbs_reg_mr {
        start: addr,
        length: bytes,
        hca_va: addr,
        pd_handle: pd.handle,
        access_flags: access,
        ..Default::default()
    }
}

impl Mr {
    /// Registers a part of a buffer.
    pub fn of(pd: &Pd, addr: u64, bytes: u64, access: u32) -> Result<Self, Errno> {
        Ok(Self {
            ctx: pd.ctx.clone(),
            keys: pd.ctx.reg_mr(&region(pd, addr, bytes, access))?,
        })
    }

    /// Registers a whole buffer with every right.
    pub fn all(pd: &Pd, buffer: &Buffer) -> Result<Self, Errno> {
        Self::of(pd, buffer.addr(), buffer.bytes() as u64, EVERY_RIGHT)
    }

    /// How it is now.
    pub fn query(&self) -> Result<MrNow, Errno> {
        shown::mr(&self.ctx, self.keys.lkey)
    }

    /// Destroys it.
    pub fn destroy(&self) -> Result<(), Errno> {
        self.ctx.destroy(Kind::Mr, self.keys.mr_handle)
    }
}

impl Mr {
    /// Changes it, by what `flags` select; its keys stay.
    pub fn change(&self, arg: ib_uverbs_rereg_mr) -> Result<(), Errno> {
        let keys = self.ctx.rereg_mr(&ib_uverbs_rereg_mr {
            mr_handle: self.keys.mr_handle,
            ..arg
        })?;
        match (keys.lkey, keys.rkey) == (self.keys.lkey, self.keys.rkey) {
            true => Ok(()),
            false => Err(Errno::EPROTO),
        }
    }
}

/// A memory window.
pub struct Mw {
    ctx: Arc<Context>,
    handle: u32,
    /// Its first key.
    pub key: u32,
}

impl Mw {
    /// Allocates one of type 1 or 2.
    pub fn new(pd: &Pd, mw_type: u8) -> Result<Self, Errno> {
        let made = pd.ctx.alloc_mw(&ib_uverbs_alloc_mw {
            pd_handle: pd.handle,
            mw_type,
            ..Default::default()
        })?;
        Ok(Self {
            ctx: pd.ctx.clone(),
            handle: made.mw_handle,
            key: made.rkey,
        })
    }

    /// Destroys it.
    pub fn destroy(&self) -> Result<(), Errno> {
        self.ctx.destroy(Kind::Mw, self.handle)
    }
}
