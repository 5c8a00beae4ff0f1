// SPDX-License-Identifier: GPL-2.0
//! Shared receive queues of a context.

use std::sync::Arc;

use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::doorbell;
use qpair_abi::entry::Sge;
use qpair_abi::entry::BLOCK_BYTES;
use qpair_abi::uverbs::qpair_ureq_create_srq;
use qpair_abi::uverbs::qpair_ureq_modify_srq;
use qpair_uverbs::abi::*;

use super::args::Kind;
use super::args::SrqArg;
use super::context::Context;
use super::memory::Buffer;
use super::pd::Pd;
use super::wqe::store_recv;

impl SrqArg {
    /// `depth` receives of a block in a ring, whose address is also its handle in events.
    pub(crate) fn new(pd: &Pd, addr: u64, bytes: u64, depth: u32) -> Self {
        Self {
            core: ib_uverbs_create_srq {
                user_handle: addr,
                pd_handle: pd.handle,
                max_wr: depth,
                max_sge: 1,
                ..Default::default()
            },
            driver: qpair_ureq_create_srq {
                buffer: addr,
                buffer_bytes: bytes,
                depth,
                stride: 0,
            },
        }
    }
}

/// A shared receive queue, of receives of one block.
pub(crate) struct Srq {
    ctx: Arc<Context>,
    ring: Buffer,
    depth: u32,
    element: u64,
    /// Its handle, for commands.
    pub(crate) handle: u32,
    /// Its number, for doorbells.
    pub(crate) number: u32,
    /// Its producer index.
    pub(crate) tail: u32,
}

impl Srq {
    pub(crate) fn new(pd: &Pd, depth: u32) -> Result<Self> {
        let ring = Buffer::new(depth.next_power_of_two() as usize * BLOCK_BYTES)?;
        let arg = SrqArg::new(pd, ring.addr(), ring.bytes() as u64, depth);
        let made = pd.ctx.create_srq(&arg).context("CREATE_SRQ")?;
        Ok(Self {
            ctx: pd.ctx.clone(),
            element: ring.addr(),
            ring,
            depth: made.driver.depth,
            handle: made.core.srq_handle,
            number: made.driver.number,
            tail: 0,
        })
    }

    /// Its handle in events.
    pub(crate) fn element(&self) -> u64 {
        self.element
    }

    /// Writes one receive and rings the doorbell.
    pub(crate) fn post_recv(&mut self, wr_id: u64, sges: &[Sge]) {
        let slot = self.tail & (self.depth - 1);
        store_recv(&self.ring, slot, BLOCK_BYTES, wr_id, sges);
        self.tail = self.tail.wrapping_add(1);
        self.ctx.page.ring(doorbell::SRQ, self.number, self.tail);
    }

    /// Arms the event of the limit.
    pub(crate) fn arm(&self, limit: u32) -> Result<(), Errno> {
        self.ctx.modify_srq(&ib_uverbs_modify_srq {
            srq_handle: self.handle,
            attr_mask: srq_mask::LIMIT,
            srq_limit: limit,
            ..Default::default()
        })
    }

    /// What a change to `depth` receives is asked with, in this memory.
    pub(crate) fn change(
        &self,
        depth: u32,
        ring: &Buffer,
    ) -> (ib_uverbs_modify_srq, qpair_ureq_modify_srq) {
        let core = ib_uverbs_modify_srq {
            srq_handle: self.handle,
            attr_mask: srq_mask::MAX_WR,
            max_wr: depth,
            ..Default::default()
        };
        let driver = qpair_ureq_modify_srq {
            buffer: ring.addr(),
            buffer_bytes: ring.bytes() as u64,
            depth: depth.next_power_of_two(),
            reserved: 0,
        };
        (core, driver)
    }

    /// Makes it go on in another ring, with the last receives that were posted.
    pub(crate) fn resize(&mut self, depth: u32) -> Result<()> {
        let next = depth.next_power_of_two();
        let ring = Buffer::new(next as usize * BLOCK_BYTES)?;
        for back in 1..=next.min(self.depth) {
            let index = self.tail.wrapping_sub(back);
            let from = (index & (self.depth - 1)) as usize * BLOCK_BYTES;
            let to = (index & (next - 1)) as usize * BLOCK_BYTES;
            for word in (0..BLOCK_BYTES).step_by(8) {
                ring.store(to + word, self.ring.load(from + word));
            }
        }
        let (core, driver) = self.change(depth, &ring);
        self.ctx.resize_srq(&core, &driver)?;
        (self.ring, self.depth) = (ring, next);
        Ok(())
    }

    /// What it was asked to be.
    pub(crate) fn query(&self) -> Result<ib_uverbs_query_srq_resp, Errno> {
        self.ctx.query_srq(self.handle)
    }

    /// The limit; 0 if it is not armed.
    pub(crate) fn limit(&self) -> Result<u32, Errno> {
        self.query().map(|now| now.srq_limit)
    }

    pub(crate) fn destroy(&self) -> Result<(), Errno> {
        self.ctx.destroy(Kind::Srq, self.handle)
    }
}
