// SPDX-License-Identifier: GPL-2.0
//! Stopped queue pairs: flushes, receivers that are not ready, garbage, a CQ overrun.

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::entry::opcode;
use qpair_abi::entry::Sge;
use qpair_abi::status::Status;
use qpair_uverbs::abi::*;

use super::errors::is_fatal;
use crate::ktap::Setup;
use crate::pair::state_name;
use crate::pair::Bystander;
use crate::pair::Pair;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Pd;
use crate::raw::Qp;
use crate::raw::QpShape;
use crate::raw::Wqe;
use crate::wait;
use crate::world;

/// MODIFY to the error state: all posted requests are flushed in order, and so are those that are
/// posted afterwards.
pub(super) fn flushed(setup: &Setup) -> Result<()> {
    let mut pair = Pair::open(0)?;
    for number in 0..20 {
        pair.a.receive(number, 0, 64);
    }
    pair.a.qp.to(qp_state::SQD)?;
    for number in 100..120 {
        pair.a.qp.put(&Wqe::new(opcode::NOP, number).unsignaled());
    }
    pair.a.qp.ring_sq();
    pair.a.qp.to(qp_state::ERR)?;
    let (mut next_recv, mut next_send) = (0, 100);
    for _ in 0..40 {
        let cqe = pair.a.cq.take()?;
        ensure!(cqe.status == Status::Flush.code(), "{cqe:?}");
        let next = if cqe.wr_id < 100 {
            &mut next_recv
        } else {
            &mut next_send
        };
        ensure!(cqe.wr_id == *next, "{cqe:?}, expected {next}");
        *next += 1;
    }
    pair.a.receive(200, 0, 64);
    pair.a.ends(200, Status::Flush)?;
    pair.a.qp.post(&Wqe::new(opcode::NOP, 201));
    pair.a.ends(201, Status::Flush)?;
    // The peer gets an error when it sends.
    pair.b.qp.post(&Wqe::send(1).inline(b"anybody there?"));
    pair.b.ends(1, Status::RetryExceeded)?;
    pair.renew()?;
    pair.exchange(&mut setup.rng())
}

pub(super) fn no_receive_posted(setup: &Setup) -> Result<()> {
    let mut pair = Pair::open(0)?;
    // RNR retry is 0: fails at once.
    pair.a.qp.post(&Wqe::send(1).inline(b"too early"));
    pair.a.ends(1, Status::RnrRetryExceeded)?;
    is_fatal(&pair.a, "no receive")?;
    ensure!(
        pair.b.qp.state()? == qp_state::RTS,
        "the receiver has done nothing wrong"
    );
    pair.renew()?;
    let remote = pair.b.memory.addr();
    pair.a.qp.post(
        &Wqe::write(2, remote, pair.b.mr.keys.rkey)
            .inline(b"x")
            .imm(1),
    );
    pair.a.ends(2, Status::RnrRetryExceeded)?;
    pair.renew()?;
    // A WRITE without immediate needs no receive.
    pair.a
        .qp
        .post(&Wqe::write(3, remote, pair.b.mr.keys.rkey).inline(b"x"));
    pair.a.done(3)?;
    pair.exchange(&mut setup.rng())
}

/// A random number below `1 << bits`; small ones are as likely as large ones.
fn small(rng: &mut fastrand::Rng, bits: u32) -> u64 {
    let bits = rng.u32(1..bits);
    rng.u64(0..1 << bits)
}

/// Random bits in the rings and in the doorbells of a process: whatever they cause, other processes
/// are not affected, and the process can end.
pub(super) fn garbage_in_the_rings(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let mut rng = setup.rng();
    let ctx = Context::open(0)?;
    for round in 0..world::rounds(100, 100) {
        let mut pair = Pair::new(&ctx)?;
        let keys = [pair.a.mr.keys.lkey, pair.b.mr.keys.rkey, rng.u32(..)];
        for _ in 0..rng.u32(1..40) {
            // Mostly an almost valid request, with one or two wrong fields.
            let mut wqe = Wqe::new(rng.u8(0..6), rng.u64(..));
            wqe.head.remote_addr = pair.b.memory.addr().wrapping_add(small(&mut rng, 20));
            wqe.head.rkey = keys[rng.usize(0..3)];
            for _ in 0..rng.u32(0..4) {
                let addr = pair.a.memory.addr().wrapping_add(small(&mut rng, 20));
                wqe = wqe.sge(addr, small(&mut rng, 31) as u32, keys[rng.usize(0..3)]);
            }
            if rng.u8(0..4) == 0 {
                wqe.head.flags = rng.u8(..);
                wqe.head.blocks = rng.u8(..);
                wqe.head.sges = rng.u8(..);
                wqe.head.inline_bytes = rng.u32(..);
            }
            pair.a.qp.put(&wqe);
            let words: Vec<Sge> = (0..rng.usize(0..3))
                .map(|_| Sge {
                    addr: rng.u64(..),
                    bytes: rng.u32(..),
                    lkey: keys[rng.usize(0..3)],
                })
                .collect();
            pair.b.qp.post_recv(rng.u64(..), &words);
            pair.a.qp.ring_sq();
            if rng.u8(0..8) == 0 {
                ctx.page.ring(
                    rng.u64(0..8) * 8,
                    [pair.a.qp.number, pair.a.cq.number][rng.usize(0..2)],
                    rng.u32(..),
                );
            }
        }
        while pair.a.cq.poll().is_some() {}
        while ctx.async_event()?.is_some() {}
        if round % 2 == 0 {
            pair.renew()?;
            pair.exchange(&mut rng)
                .with_context(|| format!("made new in round {round}"))?;
        }
        pair.destroy().with_context(|| format!("round {round}"))?;
    }
    others.unharmed()
}

/// A CQ that is too small for the posted requests: its queue pairs stop, their process gets the
/// event, and no other process is affected.
pub(super) fn completion_queue_overrun(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let mut cq = Cq::in_buffer(&ctx, 4, 0, Buffer::new(4096)?, None)?;
    ensure!(cq.depth <= 64, "a CQ of 4 has {}", cq.depth);
    let mut qps = Vec::new();
    for _ in 0..3 {
        let qp = Qp::new(
            &pd,
            &cq,
            &cq,
            QpShape {
                sq_blocks: 256,
                ..Default::default()
            },
        )?;
        qp.connect(qp.number)?;
        qps.push(qp);
    }
    for number in 0..=u64::from(cq.depth) {
        qps[0].put(&Wqe::new(opcode::NOP, number));
    }
    qps[0].ring_sq();
    let event = wait::for_some("a CQ overrun", || {
        let event = ctx.async_event()?;
        Ok(event.filter(|it| it.kind == event::CQ_ERR))
    })?;
    ensure!(event.element == cq.element(), "{event:?}");
    for qp in &qps {
        ensure!(
            qp.state()? == qp_state::ERR,
            "a queue pair on it is in {}",
            state_name(qp.state()?)
        );
    }
    // The entries that were written are complete.
    for number in 0..u64::from(cq.depth) {
        let cqe = cq.poll().context("a completion is missing")?;
        ensure!(cqe.wr_id == number && cqe.status == 0, "{cqe:?}");
    }
    // The CQ is dead: no queue pair can be used on it again.
    for qp in &mut qps {
        qp.reset()?;
        let revived = qp.connect(qp.number);
        ensure!(revived == Err(Errno::EPIPE), "{revived:?}");
    }
    let another = Qp::new(&pd, &cq, &cq, QpShape::default()).err();
    let errno = another.as_ref().and_then(|error| error.downcast_ref());
    ensure!(errno == Some(&Errno::EPIPE), "{another:?}");
    for qp in &qps {
        qp.destroy()?;
    }
    cq.destroy()?;
    while ctx.async_event()?.is_some() {}
    let mut pair = Pair::new(&ctx)?;
    pair.exchange(&mut setup.rng())
        .context("the same context afterwards")?;
    others.unharmed()
}
