// SPDX-License-Identifier: GPL-2.0
//! Objects of a context: the kernel's object, and its memory.
//!
//! Nothing is destroyed on drop: a test destroys objects explicitly, and the kernel must clean up
//! the rest.

use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::sync::atomic::fence;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use anyhow::bail;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::doorbell;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::RecvWqe;
use qpair_abi::entry::Sge;
use qpair_abi::entry::BLOCK_BYTES;
use qpair_abi::entry::BLOCK_WORDS;
use qpair_abi::entry::OWNER;
use qpair_abi::uapi;

use super::context::eventfd;
use super::Buffer;
use super::Context;
use super::Wqe;
use crate::wait;

/// Calls a destroy ioctl; returns the producer indices of the CQs.
pub fn destroy(ctx: &Context, nr: u8, handle: u32) -> Result<(u32, u32), Errno> {
    let mut arg = uapi::qpair_destroy {
        handle,
        ..Default::default()
    };
    ctx.call(nr, &mut arg)?;
    Ok((arg.send_cq_index, arg.recv_cq_index))
}

/// A protection domain.
pub struct Pd {
    ctx: Arc<Context>,
    /// Its handle.
    pub handle: u32,
}

impl Pd {
    /// Creates one.
    pub fn new(ctx: &Arc<Context>) -> Result<Self, Errno> {
        let mut arg = uapi::qpair_alloc_pd::default();
        ctx.call(uapi::QPAIR_NR_ALLOC_PD, &mut arg)?;
        Ok(Self {
            ctx: ctx.clone(),
            handle: arg.handle,
        })
    }

    /// Destroys it.
    pub fn destroy(&self) -> Result<(), Errno> {
        destroy(&self.ctx, uapi::QPAIR_NR_DEALLOC_PD, self.handle).map(drop)
    }
}

/// A memory region.
pub struct Mr {
    ctx: Arc<Context>,
    /// The argument of REG_MR, with the returned handle and keys.
    pub arg: uapi::qpair_reg_mr,
}

impl Mr {
    /// Registers a part of a buffer.
    pub fn of(pd: &Pd, addr: u64, bytes: u64, access: u32) -> Result<Self, Errno> {
        let mut arg = uapi::qpair_reg_mr {
            addr,
            bytes,
            pd: pd.handle,
            access,
            ..Default::default()
        };
        pd.ctx.call(uapi::QPAIR_NR_REG_MR, &mut arg)?;
        Ok(Self {
            ctx: pd.ctx.clone(),
            arg,
        })
    }

    /// Registers a whole buffer with every right.
    pub fn all(pd: &Pd, buffer: &Buffer) -> Result<Self, Errno> {
        let access = uapi::QPAIR_ACCESS_LOCAL_WRITE
            | uapi::QPAIR_ACCESS_REMOTE_WRITE
            | uapi::QPAIR_ACCESS_REMOTE_READ;
        Self::of(pd, buffer.addr(), buffer.bytes() as u64, access)
    }

    /// Queries the kernel.
    pub fn query(&self) -> Result<uapi::qpair_query_mr, Errno> {
        let mut arg = uapi::qpair_query_mr {
            handle: self.arg.handle,
            ..Default::default()
        };
        self.ctx.call(uapi::QPAIR_NR_QUERY_MR, &mut arg)?;
        Ok(arg)
    }

    /// Destroys it.
    pub fn destroy(&self) -> Result<(), Errno> {
        destroy(&self.ctx, uapi::QPAIR_NR_DEREG_MR, self.arg.handle).map(drop)
    }
}

/// A completion queue.
pub struct Cq {
    ctx: Arc<Context>,
    ring: Buffer,
    eventfd: Option<OwnedFd>,
    /// Its handle.
    pub handle: u32,
    /// Its entries.
    pub depth: u32,
    /// Index of the next entry to read.
    pub head: u32,
}

impl Cq {
    /// Creates one on vector 0, with an eventfd.
    pub fn new(ctx: &Arc<Context>, depth: u32) -> Result<Self> {
        Self::on(ctx, depth, 0)
    }

    /// Creates one on a vector, with an eventfd.
    pub fn on(ctx: &Arc<Context>, depth: u32, vector: u32) -> Result<Self> {
        let ring = Buffer::new(depth.next_power_of_two() as usize * Cqe::BYTES)?;
        Self::in_buffer(ctx, depth, vector, ring, Some(eventfd()?)).context("CREATE_CQ")
    }

    /// Creates one in a buffer, which it keeps.
    pub fn in_buffer(
        ctx: &Arc<Context>,
        depth: u32,
        vector: u32,
        ring: Buffer,
        eventfd: Option<OwnedFd>,
    ) -> Result<Self, Errno> {
        let mut arg = uapi::qpair_create_cq {
            buffer: ring.addr(),
            buffer_bytes: ring.bytes() as u64,
            depth,
            vector,
            eventfd: eventfd
                .as_ref()
                .map_or(uapi::QPAIR_NO_EVENTFD, AsRawFd::as_raw_fd),
            ..Default::default()
        };
        ctx.call(uapi::QPAIR_NR_CREATE_CQ, &mut arg)?;
        Ok(Self {
            ctx: ctx.clone(),
            ring,
            eventfd,
            handle: arg.handle,
            depth: arg.depth,
            head: 0,
        })
    }

    /// Takes the next entry: owner word, barrier, body.
    pub fn poll(&mut self) -> Option<Cqe> {
        let at = (self.head & (self.depth - 1)) as usize * Cqe::BYTES;
        let last = self.ring.load(at + 24);
        let pass = self.head & self.depth != 0;
        if (last & OWNER != 0) == pass {
            return None;
        }
        fence(Ordering::Acquire);
        let words = [
            self.ring.load(at),
            self.ring.load(at + 8),
            self.ring.load(at + 16),
            last & !OWNER,
        ];
        self.head = self.head.wrapping_add(1);
        Some(Cqe::decode(&words))
    }

    /// Waits for the next entry by polling, and publishes the head past it.
    pub fn take(&mut self) -> Result<Cqe> {
        let entry = wait::for_some("a completion", || Ok(self.poll()))?;
        self.publish();
        Ok(entry)
    }

    /// Frees the slots before the head.
    pub fn publish(&self) {
        self.ctx
            .page
            .ring(doorbell::CQ_HEAD, self.handle, self.head);
    }

    /// Arms for any completion past the head.
    pub fn arm(&self) {
        self.ctx
            .page
            .ring(doorbell::CQ_ARM_NEXT, self.handle, self.head);
    }

    /// Arms for a solicited or failed completion past the head.
    pub fn arm_solicited(&self) {
        self.ctx
            .page
            .ring(doorbell::CQ_ARM_SOLICITED, self.handle, self.head);
    }

    /// Notifies for any completion, or for a solicited or failed one, that is written from now on.
    pub fn notify(&self, solicited: bool) {
        let place = match solicited {
            true => doorbell::CQ_NOTIFY_SOLICITED,
            false => doorbell::CQ_NOTIFY,
        };
        self.ctx.page.ring(place, self.handle, 0);
        fence(Ordering::SeqCst);
    }

    /// Reads the number of signalled events; 0 if there was none.
    pub fn events(&self) -> Result<u64> {
        let Some(fd) = &self.eventfd else {
            bail!("no eventfd")
        };
        let mut count = [0; 8];
        match nix::unistd::read(fd, &mut count) {
            Ok(8) => Ok(u64::from_ne_bytes(count)),
            Ok(n) => bail!("an eventfd gave {n} bytes"),
            Err(Errno::EAGAIN) => Ok(0),
            Err(error) => Err(error).context("read of an eventfd"),
        }
    }

    /// The eventfd, to wait on.
    pub fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        self.eventfd.as_ref().map(AsFd::as_fd)
    }

    /// Arms and waits for the event; the entries are still there afterwards.
    pub fn wait_event(&self) -> Result<()> {
        let Some(fd) = self.eventfd() else {
            bail!("no eventfd")
        };
        self.arm();
        wait::readable(fd, "a completion event")?;
        self.events().map(drop)
    }

    /// Queries the kernel.
    pub fn query(&self) -> Result<uapi::qpair_query_cq, Errno> {
        let mut arg = uapi::qpair_query_cq {
            handle: self.handle,
            ..Default::default()
        };
        self.ctx.call(uapi::QPAIR_NR_QUERY_CQ, &mut arg)?;
        Ok(arg)
    }

    /// Destroys it.
    pub fn destroy(&self) -> Result<(), Errno> {
        destroy(&self.ctx, uapi::QPAIR_NR_DESTROY_CQ, self.handle).map(drop)
    }
}

/// How large the queues of a queue pair are.
#[derive(Clone, Copy, Debug)]
pub struct QpShape {
    /// 64-byte blocks of the SQ.
    pub sq_blocks: u32,
    /// Entries of the RQ.
    pub rq_depth: u32,
    /// `64 << rq_stride` bytes for each.
    pub rq_stride: u32,
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

/// A queue pair.
pub struct Qp {
    ctx: Arc<Context>,
    sq: Buffer,
    rq: Buffer,
    /// Its handle, which is its number.
    pub handle: u32,
    /// Its actual sizes.
    pub shape: QpShape,
    /// Producer index of the SQ, in blocks.
    pub sq_tail: u32,
    /// Producer index of the RQ.
    pub rq_tail: u32,
}

impl Qp {
    /// Creates one; it is in RESET.
    pub fn new(pd: &Pd, send_cq: &Cq, recv_cq: &Cq, shape: QpShape) -> Result<Self> {
        let sq = Buffer::new(shape.sq_blocks.next_power_of_two() as usize * BLOCK_BYTES)?;
        let rq = Buffer::new(
            shape.rq_depth.next_power_of_two() as usize * (BLOCK_BYTES << shape.rq_stride),
        )?;
        Self::in_buffers(pd, send_cq, recv_cq, shape, sq, rq).context("CREATE_QP")
    }

    /// Creates one in buffers, which it keeps.
    pub fn in_buffers(
        pd: &Pd,
        send_cq: &Cq,
        recv_cq: &Cq,
        shape: QpShape,
        sq: Buffer,
        rq: Buffer,
    ) -> Result<Self, Errno> {
        let mut arg = uapi::qpair_create_qp {
            sq_buffer: sq.addr(),
            sq_buffer_bytes: sq.bytes() as u64,
            rq_buffer: rq.addr(),
            rq_buffer_bytes: rq.bytes() as u64,
            sq_blocks: shape.sq_blocks,
            rq_depth: shape.rq_depth,
            rq_stride: shape.rq_stride,
            pd: pd.handle,
            send_cq: send_cq.handle,
            recv_cq: recv_cq.handle,
            ..Default::default()
        };
        pd.ctx.call(uapi::QPAIR_NR_CREATE_QP, &mut arg)?;
        Ok(Self {
            ctx: pd.ctx.clone(),
            sq,
            rq,
            handle: arg.handle,
            shape: QpShape {
                sq_blocks: arg.sq_blocks,
                rq_depth: arg.rq_depth,
                ..shape
            },
            sq_tail: 0,
            rq_tail: 0,
        })
    }

    /// Modifies it; `change` fills in the argument, including the mask.
    pub fn modify(
        &self,
        change: impl FnOnce(&mut uapi::qpair_modify_qp),
    ) -> Result<uapi::qpair_modify_qp, Errno> {
        let mut arg = uapi::qpair_modify_qp {
            handle: self.handle,
            ..Default::default()
        };
        change(&mut arg);
        self.ctx.call(uapi::QPAIR_NR_MODIFY_QP, &mut arg)?;
        Ok(arg)
    }

    /// Changes its state and nothing else.
    pub fn to(&self, state: u32) -> Result<(), Errno> {
        self.modify(|arg| (arg.mask, arg.state) = (uapi::QPAIR_QP_STATE, state))
            .map(drop)
    }

    /// From RESET to RTS, with a peer that has every right.
    pub fn connect(&self, peer: u32) -> Result<(), Errno> {
        self.connect_with(
            peer,
            uapi::QPAIR_ACCESS_REMOTE_WRITE | uapi::QPAIR_ACCESS_REMOTE_READ,
        )
    }

    /// From RESET to RTS, with a peer that has the rights `access`; no RNR retries.
    pub fn connect_with(&self, peer: u32, access: u32) -> Result<(), Errno> {
        self.modify(|arg| {
            arg.mask = uapi::QPAIR_QP_STATE | uapi::QPAIR_QP_ACCESS | uapi::QPAIR_QP_RETRY;
            (arg.state, arg.access) = (uapi::QPAIR_QPS_INIT, access);
        })?;
        self.modify(|arg| {
            arg.mask = uapi::QPAIR_QP_STATE | uapi::QPAIR_QP_PEER;
            (arg.state, arg.peer) = (uapi::QPAIR_QPS_RTR, peer);
        })?;
        self.to(uapi::QPAIR_QPS_RTS)
    }

    /// Resets it: its rings are zeroed and its indices start again.
    pub fn reset(&mut self) -> Result<(), Errno> {
        self.to(uapi::QPAIR_QPS_RESET)?;
        self.sq.clear();
        self.rq.clear();
        (self.sq_tail, self.rq_tail) = (0, 0);
        Ok(())
    }

    /// Writes a work request at the tail, without a doorbell.
    pub fn put(&mut self, wqe: &Wqe) {
        for block in wqe.words().chunks(BLOCK_WORDS) {
            let at = (self.sq_tail & (self.shape.sq_blocks - 1)) as usize * BLOCK_BYTES;
            for (i, word) in block.iter().enumerate() {
                self.sq.store(at + i * 8, *word);
            }
            self.sq_tail = self.sq_tail.wrapping_add(1);
        }
    }

    /// Rings the SQ doorbell.
    pub fn ring_sq(&self) {
        self.ctx.page.ring(doorbell::SQ, self.handle, self.sq_tail);
    }

    /// Writes one work request and rings the doorbell.
    pub fn post(&mut self, wqe: &Wqe) {
        self.put(wqe);
        self.ring_sq();
    }

    /// Writes a receive at the tail, without a doorbell.
    pub fn put_recv(&mut self, wr_id: u64, sges: &[Sge]) {
        let bytes = BLOCK_BYTES << self.shape.rq_stride;
        let at = (self.rq_tail & (self.shape.rq_depth - 1)) as usize * bytes;
        let mut words = RecvWqe {
            sges: sges.len() as u8,
            wr_id,
        }
        .encode()
        .to_vec();
        for sge in sges {
            words.extend(sge.encode());
        }
        words.resize(bytes / 8, 0);
        for (i, word) in words[..bytes / 8].iter().enumerate() {
            self.rq.store(at + i * 8, *word);
        }
        self.rq_tail = self.rq_tail.wrapping_add(1);
    }

    /// Rings the RQ doorbell.
    pub fn ring_rq(&self) {
        self.ctx.page.ring(doorbell::RQ, self.handle, self.rq_tail);
    }

    /// Writes one receive and rings the doorbell.
    pub fn post_recv(&mut self, wr_id: u64, sges: &[Sge]) {
        self.put_recv(wr_id, sges);
        self.ring_rq();
    }

    /// Queries the kernel.
    pub fn query(&self) -> Result<uapi::qpair_query_qp, Errno> {
        let mut arg = uapi::qpair_query_qp {
            handle: self.handle,
            ..Default::default()
        };
        self.ctx.call(uapi::QPAIR_NR_QUERY_QP, &mut arg)?;
        Ok(arg)
    }

    /// Its state.
    pub fn state(&self) -> Result<u32, Errno> {
        self.query().map(|it| it.state)
    }

    /// Destroys it; returns the producer indices of its send CQ and its receive CQ.
    pub fn destroy(&self) -> Result<(u32, u32), Errno> {
        destroy(&self.ctx, uapi::QPAIR_NR_DESTROY_QP, self.handle)
    }
}
