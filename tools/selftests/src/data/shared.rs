// SPDX-License-Identifier: GPL-2.0
//! Queue pairs that share the receives of one queue.

use std::sync::Arc;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::doorbell;
use qpair_abi::entry::Sge;
use qpair_abi::status::Status;
use qpair_uverbs::abi::*;

use crate::children::Child;
use crate::ktap::Setup;
use crate::pair::Bystander;
use crate::pair::Pair;
use crate::pair::Peer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Qp;
use crate::raw::QpShape;
use crate::raw::Srq;
use crate::raw::Wqe;
use crate::wait;
use crate::world;
use crate::world::Baseline;

const DEPTH: u32 = 16;
/// Bytes of a receive.
const PART: usize = 256;
const PAIRS: usize = 3;

/// Queue pairs of one domain that share receives; each has a sender and a CQ of its own.
struct Crowd {
    ctx: Arc<Context>,
    /// The domain, and the memory of the receives.
    home: Peer,
    srq: Srq,
    pairs: Vec<Pair>,
}

impl Crowd {
    fn new() -> Result<Self> {
        let ctx = Context::open(0)?;
        let home = Peer::new(&ctx, DEPTH as usize * PART)?;
        let srq = Srq::new(&home.pd, DEPTH)?;
        let mut pairs = Vec::new();
        for _ in 0..PAIRS {
            let mut b = Peer::new(&ctx, 4096)?;
            b.qp.destroy()?;
            b.cq.destroy()?;
            b.cq = Cq::new(&ctx, 64 + DEPTH)?;
            b.qp = Qp::sharing(&home.pd, &b.cq, &srq, QpShape::default())?;
            pairs.push(Pair::of(Peer::new(&ctx, 4096)?, b)?);
        }
        Ok(Self {
            ctx,
            home,
            srq,
            pairs,
        })
    }

    /// Posts receive `wr_id`, into its part of the memory.
    fn receive(&mut self, wr_id: u64) {
        let sge = self.home.sge(wr_id as usize * PART, PART);
        self.srq.post_recv(wr_id, &[sge]);
    }

    /// Sends a few bytes to queue pair `at`, and waits until they are in receive `wr_id`.
    fn send(&mut self, at: usize, wr_id: u64, rng: &mut fastrand::Rng) -> Result<()> {
        let data: Vec<u8> = (0..rng.usize(1..64)).map(|_| rng.u8(..)).collect();
        let Pair { a, b } = &mut self.pairs[at];
        a.qp.post(&Wqe::send(!wr_id).inline(&data));
        a.done(!wr_id).context("the SEND")?;
        let cqe = b.done(wr_id).context("the receive")?;
        ensure!(cqe.bytes as usize == data.len(), "{cqe:?}");
        let found = self.home.memory.read(wr_id as usize * PART, data.len());
        ensure!(found == data, "other bytes in receive {wr_id}");
        Ok(())
    }

    /// Waits for an event, which must be this one.
    fn event(&self, kind: u32, element: u64) -> Result<()> {
        let found = wait::for_some("an event", || Ok(self.ctx.async_event()?))?;
        ensure!(
            (found.kind, found.element) == (kind, element),
            "{found:?}, expected {kind} of {element:#x}"
        );
        Ok(())
    }

    fn no_event(&self) -> Result<()> {
        let found = self.ctx.async_event()?;
        ensure!(found.is_none(), "{found:?}");
        Ok(())
    }

    fn destroy(&self) -> Result<()> {
        for pair in &self.pairs {
            pair.destroy()?;
        }
        self.srq.destroy().context("DESTROY_SRQ")?;
        self.home.destroy()
    }
}

/// Receives complete in the order in which they were posted, on whichever queue pair a message
/// comes to.
pub(super) fn shared_receives(setup: &Setup) -> Result<()> {
    let mut rng = setup.rng();
    let mut crowd = Crowd::new()?;
    for wr_id in 0..DEPTH.into() {
        crowd.receive(wr_id);
    }
    for round in 0..u64::from(DEPTH) * 8 {
        let wr_id = round % u64::from(DEPTH);
        let at = rng.usize(..PAIRS);
        crowd
            .send(at, wr_id, &mut rng)
            .with_context(|| format!("round {round}"))?;
        crowd.receive(wr_id);
    }
    for pair in &mut crowd.pairs {
        pair.b.idle()?;
    }
    crowd.no_event()?;
    crowd.destroy()
}

/// The queue gets larger and smaller between any two messages: no receive is lost or doubled. The
/// device refuses fewer entries than are left.
pub(super) fn shared_resize(setup: &Setup) -> Result<()> {
    let mut rng = setup.rng();
    let mut crowd = Crowd::new()?;
    let mut others = Bystander::new(0, setup.rng())?;
    let before = Baseline::take()?;
    for wr_id in 0..8 {
        crowd.receive(wr_id);
    }
    let rounds = world::rounds(400, 80);
    for round in 0..rounds {
        let wr_id = u64::from(round) % 8;
        if rng.bool() {
            let depth = rng.u32(5..3000);
            let resized = crowd.srq.resize(depth);
            resized.with_context(|| format!("round {round}, to {depth}"))?;
            let holds = depth.next_power_of_two();
            ensure!(crowd.srq.query()?.max_wr == holds, "another size");
        }
        crowd
            .send(rng.usize(..PAIRS), wr_id, &mut rng)
            .with_context(|| format!("round {round}"))?;
        crowd.receive(wr_id);
    }
    let small = crowd.srq.resize(4);
    let errno = small.err().and_then(|error| error.downcast().ok());
    ensure!(errno == Some(Errno::EINVAL), "8 are left: {errno:?}");
    crowd.srq.resize(DEPTH)?;
    before.settled()?;
    for round in rounds..rounds + 8 {
        crowd.send(0, u64::from(round) % 8, &mut rng)?;
    }
    crowd.srq.resize(1)?;
    crowd.receive(0);
    crowd.send(1, 0, &mut rng)?;
    // The limit counts in the queue as it is.
    ensure!(crowd.srq.arm(2) == Err(Errno::EINVAL), "above the depth");
    crowd.srq.arm(1)?;
    crowd.event(event::SRQ_LIMIT_REACHED, crowd.srq.element())?;
    crowd.no_event()?;
    others.unharmed()?;
    crowd.destroy()
}

/// The limit has its event once, when fewer receives are left, and is disarmed by it. As long as the
/// event is unread it is not queued again.
pub(super) fn shared_limit(setup: &Setup) -> Result<()> {
    let mut rng = setup.rng();
    let mut crowd = Crowd::new()?;
    for wr_id in 0..4 {
        crowd.receive(wr_id);
    }
    for armed in [false, true] {
        if armed {
            crowd.srq.arm(3)?;
        }
        crowd.send(0, 0, &mut rng)?;
        // Three are left.
        ensure!(crowd.srq.limit()? == if armed { 3 } else { 0 }, "a limit");
        crowd.send(1, 1, &mut rng)?;
        if armed {
            crowd.event(event::SRQ_LIMIT_REACHED, crowd.srq.element())?;
        }
        ensure!(crowd.srq.limit()? == 0, "it is still armed");
        crowd.send(2, 2, &mut rng)?;
        crowd.send(0, 3, &mut rng)?;
        for wr_id in 0..4 {
            crowd.receive(wr_id);
        }
    }
    // With fewer than that many the event comes at once.
    crowd.srq.arm(5)?;
    crowd.event(event::SRQ_LIMIT_REACHED, crowd.srq.element())?;
    crowd.no_event()?;
    for wr_id in 0..8 {
        crowd.srq.arm(5)?;
        // Its event is before that of a completion, and so with the core when this has come.
        crowd.pairs[0].a.cq.arm();
        crowd.send(0, wr_id % 4, &mut rng)?;
        let cq = &crowd.pairs[0].a.cq;
        wait::readable(
            cq.eventfd().context("no eventfd")?,
            "the completion's event",
        )?;
        cq.events()?;
        crowd.receive(wr_id % 4);
    }
    // A repeat may come after the first was read.
    let mut unread = 0;
    while crowd.ctx.async_event()?.is_some() {
        unread += 1;
    }
    ensure!((1..=2).contains(&unread), "{unread} events are unread");
    crowd.srq.arm(5)?;
    crowd.event(event::SRQ_LIMIT_REACHED, crowd.srq.element())?;
    crowd.destroy()
}

/// A queue pair in ERROR says that it takes no more receives; the others go on with those.
pub(super) fn last_receive(setup: &Setup) -> Result<()> {
    let mut rng = setup.rng();
    let mut crowd = Crowd::new()?;
    for wr_id in 0..3 {
        crowd.receive(wr_id);
    }
    crowd.send(0, 0, &mut rng)?;
    crowd.pairs[0].b.qp.to(qp_state::ERR)?;
    let element = crowd.pairs[0].b.qp.element();
    crowd.event(event::QP_LAST_WQE_REACHED, element)?;
    crowd.pairs[0]
        .b
        .idle()
        .context("a receive of a queue pair without one")?;
    crowd.pairs[0].a.qp.post(&Wqe::send(9).inline(b"to nobody"));
    crowd.pairs[0].a.ends(9, Status::RetryExceeded)?;
    crowd.send(1, 1, &mut rng)?;
    crowd.send(2, 2, &mut rng)?;
    crowd.no_event()?;
    crowd.destroy()
}

/// Receives and doorbells of random content: the queue and its queue pairs fail, nothing else does.
pub(super) fn garbage_in_a_shared_ring(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let mut rng = setup.rng();
    for round in 0..world::rounds(30, 10) {
        let mut crowd = Crowd::new()?;
        let key = crowd.home.mr.keys.lkey;
        for _ in 0..rng.u32(1..30) {
            let sges: Vec<Sge> = (0..rng.usize(0..4))
                .map(|_| Sge {
                    addr: crowd.home.memory.addr() + rng.u64(..PART as u64),
                    bytes: rng.u32(..) >> rng.u32(..32),
                    lkey: if rng.bool() { key } else { rng.u32(..) },
                })
                .collect();
            crowd.srq.post_recv(rng.u64(..), &sges);
            let at = rng.usize(..PAIRS);
            crowd.pairs[at].a.qp.post(&Wqe::send(1).inline(&[1; 40]));
            if rng.u8(..16) == 0 {
                let page = &crowd.ctx.page;
                page.ring(doorbell::SRQ, crowd.srq.number, rng.u32(..));
            }
        }
        others
            .unharmed()
            .with_context(|| format!("round {round}"))?;
        crowd.destroy().with_context(|| format!("round {round}"))?;
    }
    others.unharmed()
}

/// A process that exits leaves nothing of a queue with receives and completions.
pub(super) fn shared_receives_of_a_process_that_exits(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let before = Baseline::take()?;
    let mut rng = setup.rng();
    for _ in 0..3 {
        let seed = rng.u64(..);
        let mut child = Child::start(|_| {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut crowd = Crowd::new()?;
            for wr_id in 0..DEPTH.into() {
                crowd.receive(wr_id);
            }
            for wr_id in 0..rng.u64(1..8) {
                crowd.send(rng.usize(..PAIRS), wr_id, &mut rng)?;
            }
            crowd.srq.arm(1)?;
            crowd.pairs[0].a.qp.post(&Wqe::send(1).inline(&[1; 40]));
            Ok(())
        })?;
        child.done()?;
        before.settled()?;
        others.unharmed()?;
    }
    Ok(())
}
