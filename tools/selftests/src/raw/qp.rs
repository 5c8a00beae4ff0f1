// SPDX-License-Identifier: GPL-2.0
//! Queue pairs of a context.

use std::sync::Arc;

use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::doorbell;
use qpair_abi::entry::Sge;
use qpair_abi::entry::BLOCK_BYTES;
use qpair_abi::entry::BLOCK_WORDS;
use qpair_abi::uverbs::qpair_ureq_create_qp;
use qpair_abi::uverbs::qpair_uresp_modify_qp;
use qpair_uverbs::abi::*;

use super::args::change;
use super::args::change_uc;
use super::args::change_ud;
use super::args::Kind;
use super::args::QpArg;
use super::context::Context;
use super::cq::Cq;
use super::memory::page_size;
use super::memory::Buffer;
use super::mr::REMOTE_RIGHTS;
use super::pd::Pd;
use super::shown;
use super::shown::QueuesNow;
use super::srq::Srq;
use super::wqe::store_recv;
use super::wqe::Wqe;

impl QpArg {
    /// One of RC with these rings; the address of the SQ is also its handle in events.
    pub(crate) fn new(pd: &Pd, cqs: (&Cq, &Cq), driver: qpair_ureq_create_qp) -> Self {
        Self {
            core: ib_uverbs_create_qp {
                user_handle: driver.sq_buffer,
                pd_handle: pd.handle,
                send_cq_handle: cqs.0.handle,
                recv_cq_handle: cqs.1.handle,
                max_send_wr: 1,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                qp_type: IB_UVERBS_QPT_RC,
                ..Default::default()
            },
            driver,
        }
    }
}

/// The first LID of groups. The device does not use it.
pub(crate) const MULTICAST_LID: u16 = 0xc000;

/// How large the queues of a queue pair are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpShape {
    /// 64-byte blocks of the SQ.
    pub(crate) sq_blocks: u32,
    pub(crate) rq_depth: u32,
    /// `64 << rq_stride` bytes for each.
    pub(crate) rq_stride: u32,
}

impl Default for QpShape {
    fn default() -> Self {
        Self {
            sq_blocks: 64,
            rq_depth: 64,
            rq_stride: 0,
        }
    }
}

pub(crate) struct Qp {
    ctx: Arc<Context>,
    sq: Buffer,
    rq: Buffer,
    /// Its handle, for commands.
    pub(crate) handle: u32,
    /// Its number, for doorbells, entries and peers.
    pub(crate) number: u32,
    /// Its actual sizes.
    pub(crate) shape: QpShape,
    /// Producer index of the SQ, in blocks.
    pub(crate) sq_tail: u32,
    /// Producer index of the RQ.
    pub(crate) rq_tail: u32,
}

impl Qp {
    /// Creates one; it is in RESET.
    pub(crate) fn new(pd: &Pd, send_cq: &Cq, recv_cq: &Cq, shape: QpShape) -> Result<Self> {
        let sq = Buffer::new(shape.sq_blocks.next_power_of_two() as usize * BLOCK_BYTES)?;
        let rq = Buffer::new(
            shape.rq_depth.next_power_of_two() as usize * (BLOCK_BYTES << shape.rq_stride),
        )?;
        Self::in_buffers(pd, send_cq, recv_cq, shape, sq, rq).context("CREATE_QP")
    }

    /// Creates one of a service, `IB_UVERBS_QPT_*`, with both queues on one CQ; it is in RESET.
    pub(crate) fn of_service(qp_type: u8, pd: &Pd, cq: &Cq, shape: QpShape) -> Result<Self> {
        let sq = Buffer::new(shape.sq_blocks as usize * BLOCK_BYTES)?;
        let rq = Buffer::new(shape.rq_depth as usize * (BLOCK_BYTES << shape.rq_stride))?;
        let made = Self::of_type(qp_type, pd, (cq, cq), shape, (sq, rq));
        made.with_context(|| format!("CREATE_QP of type {qp_type}"))
    }

    /// Creates one in buffers, which it keeps.
    pub(crate) fn in_buffers(
        pd: &Pd,
        send_cq: &Cq,
        recv_cq: &Cq,
        shape: QpShape,
        sq: Buffer,
        rq: Buffer,
    ) -> Result<Self, Errno> {
        Self::of_type(IB_UVERBS_QPT_RC, pd, (send_cq, recv_cq), shape, (sq, rq))
    }

    fn of_type(
        qp_type: u8,
        pd: &Pd,
        (send_cq, recv_cq): (&Cq, &Cq),
        shape: QpShape,
        (sq, rq): (Buffer, Buffer),
    ) -> Result<Self, Errno> {
        let mut arg = QpArg::new(
            pd,
            (send_cq, recv_cq),
            qpair_ureq_create_qp {
                sq_buffer: sq.addr(),
                sq_buffer_bytes: sq.bytes() as u64,
                rq_buffer: rq.addr(),
                rq_buffer_bytes: rq.bytes() as u64,
                sq_blocks: shape.sq_blocks,
                rq_depth: shape.rq_depth,
                rq_stride: shape.rq_stride,
                reserved: 0,
            },
        );
        arg.core.qp_type = qp_type;
        Self::made(pd, &arg, shape, (sq, rq))
    }

    /// Creates one of RC that takes its receives from `srq`; it is in RESET. Its RQ is memory that
    /// the driver is not given.
    pub(crate) fn sharing(pd: &Pd, cq: &Cq, srq: &Srq, shape: QpShape) -> Result<Self> {
        let sq = Buffer::new(shape.sq_blocks as usize * BLOCK_BYTES)?;
        let mut arg = QpArg::new(
            pd,
            (cq, cq),
            qpair_ureq_create_qp {
                sq_buffer: sq.addr(),
                sq_buffer_bytes: sq.bytes() as u64,
                sq_blocks: shape.sq_blocks,
                ..Default::default()
            },
        );
        (arg.core.is_srq, arg.core.srq_handle) = (1, srq.handle);
        let rq = Buffer::new(page_size())?;
        Self::made(pd, &arg, shape, (sq, rq)).context("CREATE_QP on an SRQ")
    }

    fn made(
        pd: &Pd,
        arg: &QpArg,
        shape: QpShape,
        (sq, rq): (Buffer, Buffer),
    ) -> Result<Self, Errno> {
        let made = pd.ctx.create_qp(arg)?;
        Ok(Self {
            ctx: pd.ctx.clone(),
            sq,
            rq,
            handle: made.core.qp_handle,
            number: made.driver.number,
            shape: QpShape {
                sq_blocks: made.driver.sq_blocks,
                rq_depth: made.driver.rq_depth,
                ..shape
            },
            sq_tail: 0,
            rq_tail: 0,
        })
    }

    /// Its handle in events.
    pub(crate) fn element(&self) -> u64 {
        self.sq.addr()
    }

    pub(crate) fn modify(
        &self,
        mut arg: ib_uverbs_modify_qp,
    ) -> Result<qpair_uresp_modify_qp, Errno> {
        arg.qp_handle = self.handle;
        self.ctx.modify_qp(&arg)
    }

    /// Changes its state. It is its own peer then, and grants no right.
    pub(crate) fn to(&self, state: u8) -> Result<(), Errno> {
        let mut arg = change(self.state()?, state);
        arg.dest_qp_num = self.number;
        self.modify(arg).map(drop)
    }

    /// From RESET to RTS, with a peer that has every right.
    pub(crate) fn connect(&self, peer: u32) -> Result<(), Errno> {
        self.connect_with(peer, REMOTE_RIGHTS)
    }

    /// From RESET to RTS, with a peer that has the rights `access`; no retries.
    pub(crate) fn connect_with(&self, peer: u32, access: u32) -> Result<(), Errno> {
        self.connect_as(peer, access, (0, 0))
    }

    /// The same, with retries: of a request without an answer, and of one without a receive.
    pub(crate) fn connect_as(
        &self,
        peer: u32,
        access: u32,
        retries: (u8, u8),
    ) -> Result<(), Errno> {
        self.modify(ib_uverbs_modify_qp {
            qp_access_flags: access,
            ..change(qp_state::RESET, qp_state::INIT)
        })?;
        self.modify(ib_uverbs_modify_qp {
            dest_qp_num: peer,
            ..change(qp_state::INIT, qp_state::RTR)
        })?;
        self.modify(ib_uverbs_modify_qp {
            retry_cnt: retries.0,
            rnr_retry: retries.1,
            ..change(qp_state::RTR, qp_state::RTS)
        })?;
        Ok(())
    }

    /// Of UC, from RESET to RTS, with a peer that has every right.
    pub(crate) fn start_uc(&self, peer: u32) -> Result<(), Errno> {
        for from in [qp_state::RESET, qp_state::INIT, qp_state::RTR] {
            self.modify(change_uc(from, peer, REMOTE_RIGHTS))?;
        }
        Ok(())
    }

    /// Of UD, from RESET to RTS.
    pub(crate) fn start_ud(&self, q_key: u32) -> Result<(), Errno> {
        for from in [qp_state::RESET, qp_state::INIT, qp_state::RTR] {
            self.modify(change_ud(from, q_key))?;
        }
        Ok(())
    }

    /// Makes it, of UD, a member of a group.
    pub(crate) fn attach(&self, gid: [u8; 16]) -> Result<(), Errno> {
        self.ctx.attach_mcast(&ib_uverbs_attach_mcast {
            gid,
            qp_handle: self.handle,
            mlid: MULTICAST_LID,
            reserved: 0,
        })
    }

    pub(crate) fn detach(&self, gid: [u8; 16]) -> Result<(), Errno> {
        self.ctx.detach_mcast(&ib_uverbs_detach_mcast {
            gid,
            qp_handle: self.handle,
            mlid: MULTICAST_LID,
            reserved: 0,
        })
    }

    /// Resets it: its rings are zeroed and its indices start again.
    pub(crate) fn reset(&mut self) -> Result<(), Errno> {
        self.modify(change(qp_state::RTS, qp_state::RESET))?;
        self.sq.clear();
        self.rq.clear();
        (self.sq_tail, self.rq_tail) = (0, 0);
        Ok(())
    }

    /// Writes a work request at the tail, without a doorbell.
    pub(crate) fn put(&mut self, wqe: &Wqe) {
        for block in wqe.words().chunks(BLOCK_WORDS) {
            let at = (self.sq_tail & (self.shape.sq_blocks - 1)) as usize * BLOCK_BYTES;
            for (i, word) in block.iter().enumerate() {
                self.sq.store(at + i * 8, *word);
            }
            self.sq_tail = self.sq_tail.wrapping_add(1);
        }
    }

    pub(crate) fn ring_sq(&self) {
        self.ctx.page.ring(doorbell::SQ, self.number, self.sq_tail);
    }

    /// Writes one work request and rings the doorbell.
    pub(crate) fn post(&mut self, wqe: &Wqe) {
        self.put(wqe);
        self.ring_sq();
    }

    /// Writes a receive at the tail, without a doorbell.
    pub(crate) fn put_recv(&mut self, wr_id: u64, sges: &[Sge]) {
        let slot = self.rq_tail & (self.shape.rq_depth - 1);
        store_recv(
            &self.rq,
            slot,
            BLOCK_BYTES << self.shape.rq_stride,
            wr_id,
            sges,
        );
        self.rq_tail = self.rq_tail.wrapping_add(1);
    }

    pub(crate) fn ring_rq(&self) {
        self.ctx.page.ring(doorbell::RQ, self.number, self.rq_tail);
    }

    /// Writes one receive and rings the doorbell.
    pub(crate) fn post_recv(&mut self, wr_id: u64, sges: &[Sge]) {
        self.put_recv(wr_id, sges);
        self.ring_rq();
    }

    pub(crate) fn query(&self) -> Result<ib_uverbs_query_qp_resp, Errno> {
        self.ctx.query_qp(self.handle)
    }

    pub(crate) fn queues(&self) -> Result<QueuesNow, Errno> {
        shown::queues(&self.ctx, self.number)
    }

    pub(crate) fn state(&self) -> Result<u8, Errno> {
        self.query().map(|it| it.qp_state)
    }

    pub(crate) fn destroy(&self) -> Result<(), Errno> {
        self.ctx.destroy(Kind::Qp, self.handle)
    }
}
