// SPDX-License-Identifier: GPL-2.0
//! Rings: wrapping, full, shared, and with unread entries when their queue pair is destroyed.

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::entry::cqe_flags;
use qpair_abi::entry::opcode;
use qpair_abi::status::Status;
use qpair_uverbs::abi::*;

use crate::ktap::Setup;
use crate::pair::Pair;
use crate::pair::Peer;
use crate::raw::change;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Pd;
use crate::raw::Qp;
use crate::raw::QpShape;
use crate::raw::Wqe;
use crate::wait;
use crate::world;

/// A completion also completes all unsignaled requests before it.
pub(super) fn unsignaled(_: &Setup) -> Result<()> {
    let mut pair = Pair::open(0)?;
    let a = &mut pair.a;
    for number in 0..30 {
        a.qp.put(&Wqe::new(opcode::NOP, number).unsignaled());
    }
    a.qp.put(&Wqe::new(opcode::NOP, 30));
    a.qp.ring_sq();
    let cqe = a.done(30)?;
    ensure!(cqe.index == 31, "{cqe:?}");
    a.idle()?;
    // A failed one is reported although it is unsignaled, and those behind it are flushed.
    a.qp.put(&Wqe::new(opcode::NOP, 40).unsignaled());
    a.qp.put(&Wqe::new(0x7f, 41).unsignaled());
    a.qp.put(&Wqe::new(opcode::NOP, 42).unsignaled());
    a.qp.ring_sq();
    ensure!(a.ends(41, Status::LocalQpOperation)?.index == 33);
    ensure!(a.ends(42, Status::Flush)?.index == 34);
    Ok(())
}

/// Wraps every ring many times, with requests of all lengths.
pub(super) fn wraps(setup: &Setup) -> Result<()> {
    let mut rng = setup.rng();
    let ctx = Context::open(0)?;
    let shape = QpShape {
        sq_blocks: 8,
        rq_depth: 4,
        rq_stride: 1,
    };
    let a = Peer::shaped(&ctx, Buffer::new(8192)?, shape)?;
    let b = Peer::shaped(&ctx, Buffer::new(8192)?, shape)?;
    let Pair { mut a, mut b } = Pair::of(a, b)?;
    for round in 0..2000u64 {
        // One to four blocks: the ring wraps in the middle of a request.
        let data: Vec<u8> = (0..rng.usize(0..=200)).map(|_| rng.u8(..)).collect();
        b.receive(round, 0, 256);
        a.qp.post(&Wqe::send(round).inline(&data));
        let cqe = b.done(round)?;
        ensure!(
            cqe.index == round as u32 + 1 && cqe.bytes as usize == data.len(),
            "{cqe:?}"
        );
        ensure!(a.done(round)?.index == a.qp.sq_tail, "round {round}");
        ensure!(b.memory.read(0, data.len()) == data, "round {round}");
    }
    Ok(())
}

/// All slots in use at once, again and again.
pub(super) fn full_queues(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let shape = QpShape {
        sq_blocks: 16,
        rq_depth: 16,
        rq_stride: 0,
    };
    let a = Peer::shaped(&ctx, Buffer::new(64 << 10)?, shape)?;
    let b = Peer::shaped(&ctx, Buffer::new(64 << 10)?, shape)?;
    let Pair { mut a, mut b } = Pair::of(a, b)?;
    let mut rng = setup.rng();
    for round in 0..50u64 {
        for slot in 0..16u64 {
            b.qp.put_recv(slot, &[b.sge(slot as usize * 64, 64)]);
        }
        b.qp.ring_rq();
        let stamp = rng.u64(..);
        for slot in 0..16u64 {
            a.memory.store(slot as usize * 64, stamp ^ slot);
            a.qp.put(&a.with(Wqe::send(slot), slot as usize * 64, 64));
        }
        a.qp.ring_sq();
        for slot in 0..16u64 {
            b.done(slot).with_context(|| format!("round {round}"))?;
            a.done(slot).with_context(|| format!("round {round}"))?;
            ensure!(
                b.memory.load(slot as usize * 64) == stamp ^ slot,
                "round {round}, slot {slot}"
            );
        }
    }
    Ok(())
}

pub(super) fn strides(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    for rq_stride in 0..=2 {
        let shape = QpShape {
            rq_depth: 8,
            rq_stride,
            ..Default::default()
        };
        let a = Peer::shaped(&ctx, Buffer::new(64 << 10)?, shape)?;
        let b = Peer::shaped(&ctx, Buffer::new(64 << 10)?, shape)?;
        let mut pair = Pair::of(a, b)?;
        for _ in 0..20 {
            pair.exchange(&mut setup.rng())
                .with_context(|| format!("stride {rq_stride}"))?;
        }
        pair.destroy()?;
    }
    Ok(())
}

/// Queues of many queue pairs on one CQ: each in its own order, and the CQE names it.
pub(super) fn one_cq_for_many(_: &Setup) -> Result<()> {
    const QPS: usize = 16;
    const EACH: u64 = 32;
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let mut cq = Cq::new(&ctx, 1024)?;
    let mut qps = Vec::new();
    for _ in 0..QPS {
        let qp = Qp::new(&pd, &cq, &cq, QpShape::default())?;
        qp.connect(qp.number)?;
        qps.push(qp);
    }
    for number in 0..EACH {
        for qp in &mut qps {
            qp.post(&Wqe::new(opcode::NOP, u64::from(qp.number) << 32 | number));
        }
    }
    let mut next = [0; QPS];
    for _ in 0..QPS as u64 * EACH {
        let cqe = cq.take()?;
        ensure!(
            cqe.status == 0 && cqe.wr_id >> 32 == u64::from(cqe.qp.raw()),
            "{cqe:?}"
        );
        let which = qps
            .iter()
            .position(|qp| qp.number == cqe.qp.raw())
            .context("an unknown queue pair")?;
        ensure!(
            cqe.wr_id & 0xffff_ffff == next[which],
            "{cqe:?}, expected {}",
            next[which]
        );
        next[which] += 1;
    }
    Ok(())
}

/// Posted requests wait until the state permits their execution.
pub(super) fn states_and_posts(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let (mut a, mut b) = (Peer::new(&ctx, 4096)?, Peer::new(&ctx, 4096)?);
    let full = IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_READ;
    for qp in [&a.qp, &b.qp] {
        qp.modify(ib_uverbs_modify_qp {
            qp_access_flags: full,
            ..change(qp_state::RESET, qp_state::INIT)
        })?;
    }
    // A receive may be posted in INIT.
    b.receive(1, 0, 64);
    for (qp, peer) in [(&a.qp, b.qp.number), (&b.qp, a.qp.number)] {
        qp.modify(ib_uverbs_modify_qp {
            dest_qp_num: peer,
            ..change(qp_state::INIT, qp_state::RTR)
        })?;
    }
    a.qp.to(qp_state::RTS)?;
    a.qp.post(&Wqe::send(2).inline(b"hello"));
    b.done(1)?;
    a.done(2)?;
    // In SQD nothing new starts; in RTS execution continues.
    a.qp.to(qp_state::SQD)?;
    a.qp.post(&Wqe::new(opcode::NOP, 3));
    let mut other = Pair::new(&ctx)?;
    other.exchange(&mut setup.rng())?;
    a.idle().context("a drained queue pair started something")?;
    a.qp.to(qp_state::RTS)?;
    a.done(3)?;
    Ok(())
}

/// A queue pair is destroyed with completions unread: they can be read, no further ones follow, and
/// its number and its CQ can be used again.
pub(super) fn unread_completions(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let mut cq = Cq::new(&ctx, 256)?;
    let mut rng = setup.rng();
    let mut produced = 0u32;
    for round in 0..u64::from(world::rounds(200, 120)) {
        let mut qp =
            Qp::new(&pd, &cq, &cq, QpShape::default()).with_context(|| format!("round {round}"))?;
        qp.connect(qp.number)?;
        let count = rng.u32(1..60);
        for number in 0..count {
            qp.put(&Wqe::new(opcode::NOP, round << 32 | u64::from(number)));
        }
        qp.ring_sq();
        // At a random time, from before the first to after the last.
        let wanted = rng.u32(0..=count);
        wait::until("completions", || {
            Ok(cq.query()?.producer.wrapping_sub(produced) >= wanted)
        })?;
        let told = qp.modify(change(qp_state::RTS, qp_state::RESET))?;
        let (end, same) = (told.send_cq_index, told.recv_cq_index);
        qp.destroy()?;
        ensure!(end == same, "one CQ with two ends, {end} and {same}");
        let written = end.wrapping_sub(produced);
        ensure!(
            written >= wanted && written <= count,
            "{written} completions of {count}"
        );
        let read_now = rng.bool();
        produced = end;
        if read_now {
            while cq.head != end {
                let cqe = cq
                    .poll()
                    .context("a completion before the end that was told is missing")?;
                ensure!(
                    cqe.wr_id >> 32 <= round && cqe.status == 0,
                    "{cqe:?} in round {round}"
                );
            }
            cq.publish();
            ensure!(cq.poll().is_none(), "a completion after the end");
        }
        ensure!(
            cq.query()?.producer == end,
            "the CQ went on after its queue pair"
        );
        if end.wrapping_sub(cq.head) > 180 {
            cq.head = end;
            cq.publish();
        }
    }
    // The same with RESET, and for both queues.
    let mut pair = Pair::new(&ctx)?;
    pair.a.receive(1, 0, 64);
    pair.a.receive(2, 0, 64);
    pair.b.qp.post(&Wqe::send(3).inline(b"x"));
    pair.b.done(3)?;
    let arg = pair.a.qp.modify(change(qp_state::RTS, qp_state::RESET))?;
    ensure!(arg.send_cq_index == 1 && arg.recv_cq_index == 1, "{arg:?}");
    let cqe = pair.a.done(1)?;
    ensure!(cqe.flags & cqe_flags::RECV != 0, "{cqe:?}");
    pair.a.idle()?;
    match pair.a.qp.to(qp_state::RTR) {
        Err(Errno::EINVAL) => (),
        other => anyhow::bail!("RTR from RESET gave {other:?}"),
    }
    pair.renew()?;
    pair.exchange(&mut rng)
}
