// SPDX-License-Identifier: GPL-2.0
//! Connected queue pairs: most cases start with a pair, and use one at their end to show that
//! everything else still works.

use std::sync::Arc;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use qpair_abi::entry::cqe_flags;
use qpair_abi::entry::opcode;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::Sge;
use qpair_abi::status::Status;
use qpair_uverbs::abi::*;

use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Mr;
use crate::raw::Pd;
use crate::raw::Qp;
use crate::raw::QpShape;
use crate::raw::Wqe;

/// A queue pair with its objects: a domain, a completion queue, memory with every right.
pub(crate) struct Peer {
    pub(crate) ctx: Arc<Context>,
    pub(crate) pd: Pd,
    /// The completion queue of both its queues.
    pub(crate) cq: Cq,
    pub(crate) qp: Qp,
    pub(crate) memory: Buffer,
    /// The region of all of `memory`, with every right.
    pub(crate) mr: Mr,
}

impl Peer {
    /// A peer with queues of the default size.
    pub(crate) fn new(ctx: &Arc<Context>, bytes: usize) -> Result<Self> {
        Self::shaped(ctx, Buffer::new(bytes)?, QpShape::default())
    }

    /// A peer with this memory and queues of this size; its CQ has entries for both.
    pub(crate) fn shaped(ctx: &Arc<Context>, memory: Buffer, shape: QpShape) -> Result<Self> {
        let pd = Pd::new(ctx).context("ALLOC_PD")?;
        let cq = Cq::new(ctx, shape.sq_blocks + shape.rq_depth)?;
        let qp = Qp::new(&pd, &cq, &cq, shape)?;
        Self::with_queue_pair(ctx, memory, (pd, cq, qp))
    }

    /// A peer with a queue pair of this service, `IB_UVERBS_QPT_*`.
    pub(crate) fn of_service(ctx: &Arc<Context>, qp_type: u8, bytes: usize) -> Result<Self> {
        let shape = QpShape::default();
        let pd = Pd::new(ctx).context("ALLOC_PD")?;
        let cq = Cq::new(ctx, shape.sq_blocks + shape.rq_depth)?;
        let qp = Qp::of_service(qp_type, &pd, &cq, shape)?;
        Self::with_queue_pair(ctx, Buffer::new(bytes)?, (pd, cq, qp))
    }

    fn with_queue_pair(
        ctx: &Arc<Context>,
        memory: Buffer,
        (pd, cq, qp): (Pd, Cq, Qp),
    ) -> Result<Self> {
        let mr = Mr::all(&pd, &memory).context("REG_MR")?;
        Ok(Self {
            ctx: ctx.clone(),
            pd,
            cq,
            qp,
            memory,
            mr,
        })
    }

    /// A piece of its memory.
    pub(crate) fn sge(&self, at: usize, bytes: usize) -> Sge {
        Sge {
            addr: self.memory.addr() + at as u64,
            bytes: bytes as u32,
            lkey: self.mr.keys.lkey,
        }
    }

    /// Adds a piece of its memory to a work request.
    pub(crate) fn with(&self, wqe: Wqe, at: usize, bytes: usize) -> Wqe {
        wqe.sge(
            self.memory.addr() + at as u64,
            bytes as u32,
            self.mr.keys.lkey,
        )
    }

    /// Posts a receive into a piece of its memory.
    pub(crate) fn receive(&mut self, wr_id: u64, at: usize, bytes: usize) {
        let sge = self.sge(at, bytes);
        self.qp.post_recv(wr_id, &[sge]);
    }

    /// Waits for the completion of this work request, which must be the next one.
    pub(crate) fn done(&mut self, wr_id: u64) -> Result<Cqe> {
        self.ends(wr_id, Status::Success)
    }

    /// Waits for this work request to end with this status.
    pub(crate) fn ends(&mut self, wr_id: u64, status: Status) -> Result<Cqe> {
        let cqe = self
            .cq
            .take()
            .with_context(|| format!("waiting for work request {wr_id:#x} to end"))?;
        ensure!(
            cqe.wr_id == wr_id && cqe.status == status.code() && cqe.qp.raw() == self.qp.number,
            "expected {wr_id:#x} of QP {:#x} with status {}, got {cqe:?}",
            self.qp.number,
            status.code(),
        );
        Ok(cqe)
    }

    /// Checks that there is no completion.
    pub(crate) fn idle(&mut self) -> Result<()> {
        match self.cq.poll() {
            None => Ok(()),
            Some(cqe) => anyhow::bail!("an unexpected completion: {cqe:?}"),
        }
    }

    pub(crate) fn destroy(&self) -> Result<()> {
        self.qp.destroy().context("DESTROY_QP")?;
        self.mr.destroy().context("DEREG_MR")?;
        self.cq.destroy().context("DESTROY_CQ")?;
        self.pd.destroy().context("DEALLOC_PD")
    }
}

/// Two connected peers.
pub(crate) struct Pair {
    pub(crate) a: Peer,
    pub(crate) b: Peer,
}

impl Pair {
    /// In one context, with 64 KiB each.
    pub(crate) fn new(ctx: &Arc<Context>) -> Result<Self> {
        Self::of(Peer::new(ctx, 64 << 10)?, Peer::new(ctx, 64 << 10)?)
    }

    /// In a context of its own.
    pub(crate) fn open(device: usize) -> Result<Self> {
        Self::new(&Context::open(device)?)
    }

    /// Connects two peers that are in RESET.
    pub(crate) fn of(a: Peer, b: Peer) -> Result<Self> {
        a.qp.connect(b.qp.number).context("connecting a")?;
        b.qp.connect(a.qp.number).context("connecting b")?;
        Ok(Self { a, b })
    }

    /// Resets both from any state, and connects them again.
    pub(crate) fn renew(&mut self) -> Result<()> {
        for peer in [&mut self.a, &mut self.b] {
            peer.qp.reset().context("to RESET")?;
            // Remaining completions.
            while peer.cq.poll().is_some() {}
            peer.cq.publish();
        }
        self.a
            .qp
            .connect(self.b.qp.number)
            .context("connecting a again")?;
        self.b
            .qp
            .connect(self.a.qp.number)
            .context("connecting b again")
    }

    /// Moves random bytes by SEND, WRITE and READ from `a` to `b`, and compares them.
    pub(crate) fn exchange(&mut self, rng: &mut fastrand::Rng) -> Result<()> {
        let bytes = rng.usize(1..=self.a.memory.bytes().min(self.b.memory.bytes()) / 2);
        let Self { a, b } = self;
        for round in 0..3u64 {
            let (from, to) = (rng.usize(0..bytes), rng.usize(0..bytes));
            let data: Vec<u8> = (0..bytes).map(|_| rng.u8(..)).collect();
            let wr_id = rng.u64(..);
            a.memory.write(from, &data);
            b.memory.write(to, &vec![0; bytes]);
            match round {
                0 => {
                    b.receive(!wr_id, to, bytes);
                    a.qp.post(&a.with(Wqe::send(wr_id), from, bytes));
                    let cqe = b.done(!wr_id).context("the receive")?;
                    ensure!(
                        cqe.bytes as usize == bytes,
                        "received {} of {bytes} bytes",
                        cqe.bytes
                    );
                    ensure!(
                        cqe.opcode == opcode::RECV && cqe.flags & cqe_flags::RECV != 0,
                        "{cqe:?}"
                    );
                    a.done(wr_id).context("the SEND")?;
                }
                1 => {
                    let remote = b.memory.addr() + to as u64;
                    a.qp.post(&a.with(Wqe::write(wr_id, remote, b.mr.keys.rkey), from, bytes));
                    a.done(wr_id).context("the WRITE")?;
                }
                _ => {
                    let remote = a.memory.addr() + from as u64;
                    b.qp.post(&b.with(Wqe::read(wr_id, remote, a.mr.keys.rkey), to, bytes));
                    b.done(wr_id).context("the READ")?;
                }
            }
            ensure!(
                b.memory.read(to, bytes) == data,
                "round {round}: {bytes} bytes differ"
            );
        }
        Ok(())
    }

    pub(crate) fn destroy(&self) -> Result<()> {
        self.a.destroy()?;
        self.b.destroy()
    }
}

/// Checks that a new context works.
pub(crate) fn works(device: usize, rng: &mut fastrand::Rng) -> Result<()> {
    let mut pair = Pair::open(device).context("in a new context")?;
    pair.exchange(rng).context("in a new context")?;
    pair.destroy().context("in a new context")
}

/// A bystander that must not be affected: a pair in a context of its own, created before.
pub(crate) struct Bystander {
    pair: Pair,
    rng: fastrand::Rng,
    device: usize,
}

impl Bystander {
    /// Creates the bystander, before the test disturbs the device.
    pub(crate) fn new(device: usize, mut rng: fastrand::Rng) -> Result<Self> {
        let mut pair = Pair::open(device)?;
        pair.exchange(&mut rng)
            .context("before anything was wrong")?;
        Ok(Self { pair, rng, device })
    }

    /// Checks that it works as before and got no event, and that new contexts work.
    pub(crate) fn unharmed(&mut self) -> Result<()> {
        self.pair.exchange(&mut self.rng).context("the bystander")?;
        let event = self
            .pair
            .a
            .ctx
            .async_event()
            .context("the bystander's events")?;
        ensure!(event.is_none(), "the bystander got {event:?}");
        works(self.device, &mut self.rng)
    }
}

/// Names of the states, for messages.
pub(crate) fn state_name(state: u8) -> &'static str {
    match state {
        qp_state::RESET => "RESET",
        qp_state::INIT => "INIT",
        qp_state::RTR => "RTR",
        qp_state::RTS => "RTS",
        qp_state::SQD => "SQD",
        qp_state::ERR => "ERROR",
        _ => "unknown",
    }
}
