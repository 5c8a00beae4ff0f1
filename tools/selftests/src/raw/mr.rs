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

pub(crate) struct Mr {
    ctx: Arc<Context>,
    pub(crate) keys: ib_uverbs_reg_mr_resp,
}

/// Every right of a peer.
pub(crate) const REMOTE_RIGHTS: u32 =
    IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_READ | IB_UVERBS_ACCESS_REMOTE_ATOMIC;

/// Every right, and that windows may be bound.
pub(crate) const BINDABLE: u32 = EVERY_RIGHT | IB_UVERBS_ACCESS_MW_BIND;

pub(crate) const EVERY_RIGHT: u32 = IB_UVERBS_ACCESS_LOCAL_WRITE | REMOTE_RIGHTS;

/// The request for a part of a buffer, at its own address.
pub(crate) fn region(pd: &Pd, addr: u64, bytes: u64, access: u32) -> ib_uverbs_reg_mr {
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
    pub(crate) fn of(pd: &Pd, addr: u64, bytes: u64, access: u32) -> Result<Self, Errno> {
        Ok(Self {
            ctx: pd.ctx.clone(),
            keys: pd.ctx.reg_mr(&region(pd, addr, bytes, access))?,
        })
    }

    /// Registers a whole buffer with every right.
    pub(crate) fn all(pd: &Pd, buffer: &Buffer) -> Result<Self, Errno> {
        Self::of(pd, buffer.addr(), buffer.bytes() as u64, EVERY_RIGHT)
    }

    pub(crate) fn query(&self) -> Result<MrNow, Errno> {
        shown::mr(&self.ctx, self.keys.lkey)
    }

    pub(crate) fn destroy(&self) -> Result<(), Errno> {
        self.ctx.destroy(Kind::Mr, self.keys.mr_handle)
    }
}

impl Mr {
    /// Changes it, by what `flags` select; its keys stay.
    pub(crate) fn change(&self, arg: ib_uverbs_rereg_mr) -> Result<(), Errno> {
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

pub(crate) struct Mw {
    ctx: Arc<Context>,
    handle: u32,
    /// Its first key.
    pub(crate) key: u32,
}

impl Mw {
    /// Allocates one of type 1 or 2.
    pub(crate) fn new(pd: &Pd, mw_type: u8) -> Result<Self, Errno> {
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

    pub(crate) fn destroy(&self) -> Result<(), Errno> {
        self.ctx.destroy(Kind::Mw, self.handle)
    }
}
