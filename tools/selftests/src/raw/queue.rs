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
use qpair_abi::uverbs::qpair_ureq_create_qp;
use qpair_abi::uverbs::qpair_uresp_modify_qp;
use qpair_uverbs::abi::*;

use super::args::change;
use super::args::change_uc;
use super::args::change_ud;
use super::args::CqArg;
use super::args::Kind;
use super::args::QpArg;
use super::context::eventfd;
use super::page_size;
use super::shown;
use super::shown::CqNow;
use super::shown::MrNow;
use super::shown::QueuesNow;
use super::srq::Srq;
use super::Buffer;
use super::Context;
use super::Wqe;
use crate::wait;

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

/// The first LID of groups. The device does not use it.
pub const MULTICAST_LID: u16 = 0xc000;

/// A completion queue.
pub struct Cq {
    ctx: Arc<Context>,
    ring: Buffer,
    eventfd: Option<OwnedFd>,
    /// Its handle, for commands.
    pub handle: u32,
    /// Its number, for doorbells.
    pub number: u32,
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
        let mut arg = CqArg::new(ring.addr(), ring.bytes() as u64, depth);
        arg.core.comp_vector = vector;
        if let Some(eventfd) = &eventfd {
            arg.driver.eventfd = eventfd.as_raw_fd();
        }
        let made = ctx.create_cq(&arg)?;
        Ok(Self {
            ctx: ctx.clone(),
            ring,
            eventfd,
            handle: made.core.cq_handle,
            number: made.driver.number,
            depth: made.driver.depth,
            head: 0,
        })
    }

    /// Its context.
    pub fn context(&self) -> &Arc<Context> {
        &self.ctx
    }

    /// Its handle in events.
    pub fn element(&self) -> u64 {
        self.ring.addr()
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
            .ring(doorbell::CQ_HEAD, self.number, self.head);
    }

    /// Arms for any completion past the head.
    pub fn arm(&self) {
        self.ctx
            .page
            .ring(doorbell::CQ_ARM_NEXT, self.number, self.head);
    }

    /// Arms for a solicited or failed completion past the head.
    pub fn arm_solicited(&self) {
        self.ctx
            .page
            .ring(doorbell::CQ_ARM_SOLICITED, self.number, self.head);
    }

    /// Notifies for any completion, or for a solicited or failed one, that is written from now on.
    pub fn notify(&self, solicited: bool) {
        let place = match solicited {
            true => doorbell::CQ_NOTIFY_SOLICITED,
            false => doorbell::CQ_NOTIFY,
        };
        self.ctx.page.ring(place, self.number, 0);
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

    /// How it is now.
    pub fn query(&self) -> Result<CqNow, Errno> {
        shown::cq(&self.ctx, self.number)
    }

    /// Destroys it.
    pub fn destroy(&self) -> Result<(), Errno> {
        self.ctx.destroy(Kind::Cq, self.handle)
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
    /// Its handle, for commands.
    pub handle: u32,
    /// Its number, for doorbells, entries and peers.
    pub number: u32,
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

    /// Creates one of a service, `IB_UVERBS_QPT_*`, with both queues on one CQ; it is in RESET.
    pub fn of_service(qp_type: u8, pd: &Pd, cq: &Cq, shape: QpShape) -> Result<Self> {
        let sq = Buffer::new(shape.sq_blocks as usize * BLOCK_BYTES)?;
        let rq = Buffer::new(shape.rq_depth as usize * (BLOCK_BYTES << shape.rq_stride))?;
        let made = Self::of_type(qp_type, pd, (cq, cq), shape, (sq, rq));
        made.with_context(|| format!("CREATE_QP of type {qp_type}"))
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
    pub fn sharing(pd: &Pd, cq: &Cq, srq: &Srq, shape: QpShape) -> Result<Self> {
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
    pub fn element(&self) -> u64 {
        self.sq.addr()
    }

    /// Modifies it.
    pub fn modify(&self, mut arg: ib_uverbs_modify_qp) -> Result<qpair_uresp_modify_qp, Errno> {
        arg.qp_handle = self.handle;
        self.ctx.modify_qp(&arg)
    }

    /// Changes its state. It is its own peer then, and grants no right.
    pub fn to(&self, state: u8) -> Result<(), Errno> {
        let mut arg = change(self.state()?, state);
        arg.dest_qp_num = self.number;
        self.modify(arg).map(drop)
    }

    /// From RESET to RTS, with a peer that has every right.
    pub fn connect(&self, peer: u32) -> Result<(), Errno> {
        self.connect_with(peer, REMOTE_RIGHTS)
    }

    /// From RESET to RTS, with a peer that has the rights `access`; no retries.
    pub fn connect_with(&self, peer: u32, access: u32) -> Result<(), Errno> {
        self.connect_as(peer, access, (0, 0))
    }

    /// The same, with retries: of a request without an answer, and of one without a receive.
    pub fn connect_as(&self, peer: u32, access: u32, retries: (u8, u8)) -> Result<(), Errno> {
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
    pub fn start_uc(&self, peer: u32) -> Result<(), Errno> {
        for from in [qp_state::RESET, qp_state::INIT, qp_state::RTR] {
            self.modify(change_uc(from, peer, REMOTE_RIGHTS))?;
        }
        Ok(())
    }

    /// Of UD, from RESET to RTS.
    pub fn start_ud(&self, q_key: u32) -> Result<(), Errno> {
        for from in [qp_state::RESET, qp_state::INIT, qp_state::RTR] {
            self.modify(change_ud(from, q_key))?;
        }
        Ok(())
    }

    /// Makes it, of UD, a member of a group.
    pub fn attach(&self, gid: [u8; 16]) -> Result<(), Errno> {
        self.ctx.attach_mcast(&ib_uverbs_attach_mcast {
            gid,
            qp_handle: self.handle,
            mlid: MULTICAST_LID,
            reserved: 0,
        })
    }

    /// Ends that.
    pub fn detach(&self, gid: [u8; 16]) -> Result<(), Errno> {
        self.ctx.detach_mcast(&ib_uverbs_detach_mcast {
            gid,
            qp_handle: self.handle,
            mlid: MULTICAST_LID,
            reserved: 0,
        })
    }

    /// Resets it: its rings are zeroed and its indices start again.
    pub fn reset(&mut self) -> Result<(), Errno> {
        self.modify(change(qp_state::RTS, qp_state::RESET))?;
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
        self.ctx.page.ring(doorbell::SQ, self.number, self.sq_tail);
    }

    /// Writes one work request and rings the doorbell.
    pub fn post(&mut self, wqe: &Wqe) {
        self.put(wqe);
        self.ring_sq();
    }

    /// Writes a receive at the tail, without a doorbell.
    pub fn put_recv(&mut self, wr_id: u64, sges: &[Sge]) {
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

    /// Rings the RQ doorbell.
    pub fn ring_rq(&self) {
        self.ctx.page.ring(doorbell::RQ, self.number, self.rq_tail);
    }

    /// Writes one receive and rings the doorbell.
    pub fn post_recv(&mut self, wr_id: u64, sges: &[Sge]) {
        self.put_recv(wr_id, sges);
        self.ring_rq();
    }

    /// Its attributes.
    pub fn query(&self) -> Result<ib_uverbs_query_qp_resp, Errno> {
        self.ctx.query_qp(self.handle)
    }

    /// How its queues are now.
    pub fn queues(&self) -> Result<QueuesNow, Errno> {
        shown::queues(&self.ctx, self.number)
    }

    /// Its state.
    pub fn state(&self) -> Result<u8, Errno> {
        self.query().map(|it| it.qp_state)
    }

    /// Destroys it.
    pub fn destroy(&self) -> Result<(), Errno> {
        self.ctx.destroy(Kind::Qp, self.handle)
    }
}

/// Writes a receive into slot `slot` of a ring of slots of `bytes` bytes.
pub(super) fn store_recv(ring: &Buffer, slot: u32, bytes: usize, wr_id: u64, sges: &[Sge]) {
    let head = RecvWqe {
        sges: sges.len() as u8,
        wr_id,
    };
    let mut words = head.encode().to_vec();
    for sge in sges {
        words.extend(sge.encode());
    }
    words.resize(bytes / 8, 0);
    for (i, word) in words[..bytes / 8].iter().enumerate() {
        ring.store(slot as usize * bytes + i * 8, *word);
    }
}
