// SPDX-License-Identifier: GPL-2.0
//! Arming, events, vectors: no completion is missed, and there is no event without an arm.
//!
//! The absence of an event is shown without waiting: events of one EQ are in order, so when a later
//! event of another CQ on the same vector has arrived, an earlier one would have arrived before it
//! ([`Fence`]).

use std::os::fd::AsFd;
use std::sync::Arc;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::sys::epoll::Epoll;
use nix::sys::epoll::EpollCreateFlags;
use nix::sys::epoll::EpollEvent;
use nix::sys::epoll::EpollFlags;
use nix::sys::epoll::EpollTimeout;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::status::Status;
use qpair_uverbs::abi::qp_state;

use super::errors::is_fatal;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Bystander;
use crate::pair::Pair;
use crate::pair::Peer;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Pd;
use crate::raw::Qp;
use crate::raw::QpShape;
use crate::raw::Wqe;
use crate::wait;
use crate::world;

/// A CQ on vector 0. When its event has arrived, all earlier ones have.
struct Fence(Peer);

impl Fence {
    fn new(ctx: &Arc<Context>) -> Result<Self> {
        let peer = Peer::new(ctx, 4096)?;
        peer.qp.connect(peer.qp.number)?;
        Ok(Self(peer))
    }

    /// Waits until all earlier events have been reported.
    fn pass(&mut self) -> Result<()> {
        self.0.qp.post(&Wqe::new(opcode::NOP, 0xfe));
        self.0.cq.wait_event().context("the fence")?;
        self.0.done(0xfe).map(drop)
    }
}

fn alone() -> Result<(Peer, Fence)> {
    let ctx = Context::open(0)?;
    let peer = Peer::new(&ctx, 4096)?;
    peer.qp.connect(peer.qp.number)?;
    Ok((peer, Fence::new(&ctx)?))
}

fn nops(peer: &mut Peer, count: u64) -> Result<()> {
    for number in 0..count {
        peer.qp.put(&Wqe::new(opcode::NOP, number));
    }
    peer.qp.ring_sq();
    // They are in the CQ and have not been polled.
    let end = peer.cq.head.wrapping_add(count as u32);
    wait::until("completions", || Ok(peer.cq.query()?.producer == end))
}

pub(super) fn an_event_for_an_arm(_: &Setup) -> Result<()> {
    let (mut peer, mut fence) = alone()?;
    for round in 0..20 {
        peer.cq.arm();
        ensure!(peer.cq.events()? == 0, "an event before anything was done");
        nops(&mut peer, 10)?;
        fence.pass()?;
        let events = peer.cq.events()?;
        ensure!(
            events == 1,
            "{events} events for one arm and ten completions in round {round}"
        );
        for number in 0..10 {
            peer.done(number)?;
        }
    }
    Ok(())
}

pub(super) fn an_arm_that_is_late(_: &Setup) -> Result<()> {
    let (mut peer, mut fence) = alone()?;
    nops(&mut peer, 3)?;
    // They are in the CQ already, so the arm fires at once; reading one of them leaves others.
    for left in (1..=3u64).rev() {
        peer.cq
            .wait_event()
            .with_context(|| format!("an arm with {left} completions there"))?;
        peer.done(3 - left)?;
    }
    // All have been read: no event.
    peer.cq.arm();
    fence.pass()?;
    ensure!(peer.cq.events()? == 0, "an event for nothing new");
    Ok(())
}

pub(super) fn no_event_without_an_arm(_: &Setup) -> Result<()> {
    let (mut peer, mut fence) = alone()?;
    nops(&mut peer, 5)?;
    fence.pass()?;
    ensure!(peer.cq.events()? == 0, "an event without an arm");
    for number in 0..5 {
        peer.done(number)?;
    }
    // One arm causes one event.
    peer.cq.arm();
    nops(&mut peer, 1)?;
    wait::readable(peer.cq.eventfd().context("eventfd")?, "the event")?;
    ensure!(peer.cq.events()? == 1);
    peer.done(0)?;
    nops(&mut peer, 1)?;
    fence.pass()?;
    ensure!(peer.cq.events()? == 0, "a second event for one arm");
    Ok(())
}

pub(super) fn solicited(_: &Setup) -> Result<()> {
    let mut pair = Pair::open(0)?;
    let mut fence = Fence::new(&pair.a.ctx)?;
    for number in 0..8 {
        pair.b.receive(number, 0, 64);
    }
    pair.b.cq.arm_solicited();
    for number in 0..3 {
        pair.a.qp.post(&Wqe::send(number).inline(b"not asked for"));
        pair.a.done(number)?;
    }
    fence.pass()?;
    ensure!(
        pair.b.cq.events()? == 0,
        "an event for what was not solicited"
    );
    pair.a
        .qp
        .post(&Wqe::send(3).inline(b"asked for").solicited());
    wait::readable(
        pair.b.cq.eventfd().context("eventfd")?,
        "the solicited event",
    )?;
    ensure!(pair.b.cq.events()? == 1);
    for number in 0..4 {
        pair.b.done(number)?;
    }
    // Failures always count as solicited.
    pair.b.cq.arm_solicited();
    pair.b.qp.to(qp_state::ERR)?;
    wait::readable(
        pair.b.cq.eventfd().context("eventfd")?,
        "the event of what was flushed",
    )?;
    for number in 4..8 {
        pair.b.ends(number, Status::Flush)?;
    }
    Ok(())
}

pub(super) fn next_is_not_weakened(_: &Setup) -> Result<()> {
    let (mut peer, mut fence) = alone()?;
    peer.cq.arm();
    peer.cq.arm_solicited();
    nops(&mut peer, 1)?;
    fence.pass()?;
    ensure!(
        peer.cq.events()? == 1,
        "a later arm for solicited took the earlier one back"
    );
    peer.done(0)?;
    // The other way round the arm is strengthened.
    peer.cq.arm_solicited();
    peer.cq.arm();
    nops(&mut peer, 1)?;
    fence.pass()?;
    ensure!(
        peer.cq.events()? == 1,
        "a later arm for the next did not replace the earlier one"
    );
    Ok(())
}

/// Two threads may publish out of order: an index behind the head has no effect, and an arm with
/// such an index fires at once.
pub(super) fn an_arm_behind_the_head(_: &Setup) -> Result<()> {
    let (mut peer, _fence) = alone()?;
    nops(&mut peer, 4)?;
    for number in 0..4 {
        peer.done(number)?;
    }
    let head = peer.cq.head;
    peer.cq.head = head.wrapping_sub(2);
    peer.cq.publish();
    ensure!(peer.cq.query()?.consumer == head, "the head went back");
    peer.cq.wait_event().context("an arm behind the head")?;
    peer.cq.head = head;
    ensure!(peer.ctx.async_event()?.is_none(), "it is no violation");
    Ok(())
}

pub(super) fn a_notify_waits_for_the_next(_: &Setup) -> Result<()> {
    let (mut peer, mut fence) = alone()?;
    for solicited in [false, true] {
        nops(&mut peer, 2)?;
        let head = peer.cq.query()?.consumer;
        peer.cq.notify(solicited);
        fence.pass()?;
        ensure!(peer.cq.events()? == 0, "an event for what was there");
        let after = peer.cq.query()?.consumer;
        ensure!(after == head, "a notify published a head");
        for number in 0..2 {
            peer.done(number)?;
        }
        nops(&mut peer, 2)?;
        fence.pass()?;
        let events = peer.cq.events()?;
        ensure!(
            events == u64::from(!solicited),
            "{events} events, solicited: {solicited}"
        );
        for number in 0..2 {
            peer.done(number)?;
        }
    }
    // A failed one is solicited, and the notify still stands.
    peer.qp.post(&Wqe::new(99, 5));
    wait::readable(peer.cq.eventfd().context("eventfd")?, "the event")?;
    ensure!(peer.cq.events()? == 1);
    is_fatal(&peer, "an unknown opcode")
}

/// A process notifies while the completion is on its way, polls, and sleeps if it found nothing:
/// one lost event stops it. The device has other work before the completion, so it may execute the
/// notify only after that.
pub(super) fn a_notify_against_its_completion(setup: &Setup) -> Result<()> {
    const WORK: u64 = 15;
    let mut rng = setup.rng();
    let (mut peer, mut fence) = alone()?;
    let (addr, key) = (peer.memory.addr(), peer.mr.keys.rkey);
    for round in 0..u64::from(world::rounds(1000, 200)) {
        for number in 0..WORK {
            let write = Wqe::write(number, addr, key).unsignaled();
            let write = peer.with(write, 0, 4096);
            peer.qp.put(&write);
        }
        peer.qp.post(&Wqe::new(opcode::NOP, round));
        for _ in 0..rng.u32(0..100) {
            std::hint::spin_loop();
        }
        let cqe = loop {
            // After each event again: it may be for nothing.
            peer.cq.notify(false);
            if let Some(cqe) = peer.cq.poll() {
                break cqe;
            }
            let fd = peer.cq.eventfd().context("eventfd")?;
            wait::readable(fd, "an event").with_context(|| format!("round {round}"))?;
            peer.cq.events()?;
        };
        ensure!(cqe.status == 0 && cqe.wr_id == round, "{cqe:?}");
        peer.cq.publish();
        // An arm behind the head fires at once: no notify remains that would hide a lost one. Its
        // event may be deferred behind that of a notify.
        peer.cq.head = peer.cq.head.wrapping_sub(1);
        peer.cq.arm();
        peer.cq.head = peer.cq.head.wrapping_add(1);
        for _ in 0..2 {
            fence.pass()?;
        }
        ensure!(peer.cq.events()? != 0, "no event of an arm behind the head");
    }
    ensure!(peer.ctx.async_event()?.is_none(), "a violation");
    Ok(())
}

/// Each vector delivers its events, and an epoll of all eventfds reports which.
pub(super) fn every_vector(_: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let mut all = Vec::new();
    for vector in 0..ctx.info.vectors {
        let cq = Cq::on(&ctx, 64, vector)?;
        let qp = Qp::new(&pd, &cq, &cq, QpShape::default())?;
        qp.connect(qp.number)?;
        let fd = cq.eventfd().context("eventfd")?;
        epoll.add(
            fd.as_fd(),
            EpollEvent::new(EpollFlags::EPOLLIN, u64::from(vector)),
        )?;
        all.push((cq, qp));
    }
    for round in 0..10 {
        for (vector, (cq, qp)) in all.iter_mut().enumerate() {
            cq.arm();
            qp.post(&Wqe::new(opcode::NOP, round));
            let mut events = [EpollEvent::empty(); 2];
            let count = epoll.wait(&mut events, EpollTimeout::try_from(wait::patience())?)?;
            ensure!(
                count == 1 && events[0].data() == vector as u64,
                "{count} events, {events:?}"
            );
            ensure!(
                cq.events()? == 1 && cq.take()?.wr_id == round,
                "vector {vector}"
            );
        }
    }
    Ok(())
}

/// Each side sleeps until the other's message arrives: one lost event stops the exchange.
pub(super) fn ping_pong(_: &Setup) -> Result<()> {
    const ROUNDS: u64 = 2000;
    let ctx = Context::open(0)?;
    let interrupts = ctx.counter(Counter::Interrupts)?;
    // The queues hold all receives, so that neither side can find an empty RQ.
    let shape = QpShape {
        rq_depth: ROUNDS as u32,
        ..Default::default()
    };
    let new = || Peer::shaped(&ctx, Buffer::new(4096)?, shape);
    let Pair { mut a, mut b } = Pair::of(new()?, new()?)?;
    for peer in [&mut a, &mut b] {
        for round in 0..ROUNDS {
            let sge = peer.sge(0, 64);
            peer.qp.put_recv(round, &[sge]);
        }
        peer.qp.ring_rq();
    }
    let side = |mut peer: Peer, starts: bool| -> Result<()> {
        for round in 0..ROUNDS {
            let mut left = 2;
            if starts {
                peer.qp.post(&Wqe::send(round).inline(&round.to_le_bytes()));
            }
            while left > 0 {
                let Some(cqe) = peer.cq.poll() else {
                    peer.cq
                        .wait_event()
                        .with_context(|| format!("round {round}"))?;
                    continue;
                };
                ensure!(
                    cqe.status == 0 && cqe.wr_id == round,
                    "{cqe:?} in round {round}"
                );
                if cqe.opcode == opcode::RECV && !starts {
                    peer.qp.post(&Wqe::send(round).inline(&round.to_le_bytes()));
                }
                left -= 1;
            }
            peer.cq.publish();
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| side(b, false));
        let one = side(a, true);
        one.and(
            other
                .join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked"))),
        )
    })?;
    ensure!(
        ctx.counter(Counter::Interrupts)? > interrupts,
        "not one interrupt"
    );
    Ok(())
}

/// A process creates a CQ, arms it, completes to it and destroys it, as fast as it can, to fill the
/// EQ with unread events.
pub(super) fn overflowing_the_event_queue(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let mut rng = setup.rng();
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let mut events = 0;
    for round in 0..world::rounds(1000, 1000) {
        let cq = Cq::on(&ctx, 64, rng.u32(0..ctx.info.vectors))?;
        let mut qp = Qp::new(
            &pd,
            &cq,
            &cq,
            QpShape {
                sq_blocks: 16,
                rq_depth: 1,
                rq_stride: 0,
            },
        )?;
        qp.connect(qp.number)?;
        for number in 0..rng.u64(1..8) {
            if rng.bool() {
                cq.arm();
            }
            qp.post(&Wqe::new(opcode::NOP, number));
            if rng.bool() {
                cq.arm();
            }
        }
        events += cq.events()?;
        qp.destroy().with_context(|| format!("round {round}"))?;
        cq.destroy().with_context(|| format!("round {round}"))?;
    }
    ensure!(
        ctx.async_event()?.is_none(),
        "it was told of something: {:?}",
        ctx.async_event()?
    );
    crate::ktap::say(&format!("{events} events came before their CQ was ended"));
    others.unharmed()
}

/// Many CQs with a pending event each, armed repeatedly, more than once for each event; then all
/// are destroyed at once, and new CQs at their indices get only their own events.
pub(super) fn queues_that_come_and_go_armed(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let count = (world::rounds(200, 200) as usize)
        .min(ctx.info.device.max_cq as usize - 8)
        .min(ctx.info.device.max_qp as usize - 8);
    let pd = Pd::new(&ctx)?;
    for round in 0..world::rounds(4, 4) {
        let mut all = Vec::new();
        for _ in 0..count {
            let cq = Cq::on(&ctx, 64, round % ctx.info.vectors)?;
            let qp = Qp::new(
                &pd,
                &cq,
                &cq,
                QpShape {
                    sq_blocks: 16,
                    rq_depth: 1,
                    rq_stride: 0,
                },
            )?;
            qp.connect(qp.number)?;
            all.push((cq, qp));
        }
        for _ in 0..5 {
            for (cq, qp) in &mut all {
                cq.arm();
                qp.post(&Wqe::new(opcode::NOP, 1));
                cq.arm();
            }
        }
        for (cq, qp) in &mut all {
            // The CQ has unread entries: an arm fires at once.
            cq.wait_event()?;
            for _ in 0..5 {
                ensure!(cq.take()?.status == 0);
            }
            qp.destroy()?;
            cq.destroy()?;
            cq.events()?;
        }
    }
    works(0, &mut setup.rng())
}
