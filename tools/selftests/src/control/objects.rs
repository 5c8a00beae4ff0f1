// SPDX-License-Identifier: GPL-2.0
//! Each kind of object: create, query, modify, destroy.

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::Number;
use qpair_uverbs::abi::*;

use super::fails;
use crate::ktap::Setup;
use crate::pair::state_name;
use crate::pair::works;
use crate::pair::Pair;
use crate::raw::change;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Mr;
use crate::raw::Pd;
use crate::raw::Qp;
use crate::raw::QpShape;
use crate::raw::EVERY_RIGHT;
use crate::raw::REMOTE_RIGHTS;
use crate::world;

pub(super) fn protection_domain(_: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let one = Pd::new(&ctx)?;
    let two = Pd::new(&ctx)?;
    ensure!(one.handle != two.handle, "{:#x} twice", one.handle);
    one.destroy()?;
    two.destroy()?;
    Ok(())
}

pub(super) fn completion_queue(_: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    for vector in 0..ctx.info.vectors {
        let cq = Cq::on(&ctx, 256, vector)?;
        let told = cq.query()?;
        ensure!(
            (told.depth, told.producer, told.consumer) == (256, 0, 0),
            "{told:?}"
        );
        cq.destroy()?;
        fails("querying it afterwards", Errno::ENOENT, cq.query())?;
    }
    let silent =
        Cq::in_buffer(&ctx, 64, 0, Buffer::new(4096)?, None).context("without an eventfd")?;
    silent.destroy()?;
    Ok(())
}

pub(super) fn queue_pair(_: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let (send_cq, recv_cq) = (Cq::new(&ctx, 64)?, Cq::new(&ctx, 64)?);
    for rq_stride in 0..=2 {
        let qp = Qp::new(
            &pd,
            &send_cq,
            &recv_cq,
            QpShape {
                sq_blocks: 64,
                rq_depth: 32,
                rq_stride,
            },
        )?;
        ensure!(qp.state()? == qp_state::RESET, "{:?}", qp.query()?);
        let told = qp.queues()?;
        ensure!(
            [
                told.sq_producer,
                told.sq_consumer,
                told.rq_producer,
                told.rq_consumer
            ] == [0; 4],
            "{told:?}"
        );
        let reset = qp.modify(change(qp_state::RESET, qp_state::RESET))?;
        ensure!(
            (reset.send_cq_index, reset.recv_cq_index) == (0, 0),
            "entries in CQs that were not written: {reset:?}"
        );
        qp.destroy()?;
        fails("querying it afterwards", Errno::ENOENT, qp.queues())?;
    }
    Ok(())
}

pub(super) fn memory_region(_: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let buffer = Buffer::new(64 << 10)?;
    let writes = IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_ATOMIC;
    for access in (0..16).filter(|it| it & writes == 0 || it & IB_UVERBS_ACCESS_LOCAL_WRITE != 0) {
        // Any address and length.
        let (addr, bytes) = (buffer.addr() + 4093, 8200);
        let mr =
            Mr::of(&pd, addr, bytes, access).with_context(|| format!("with access {access}"))?;
        let told = mr.query()?;
        ensure!(told.bytes >= bytes, "{told:?}");
        ensure!(mr.keys.lkey != 0, "{:?}", mr.keys);
        mr.destroy()?;
    }
    // The same memory may be registered several times.
    let twice = [Mr::all(&pd, &buffer)?, Mr::all(&pd, &buffer)?];
    ensure!(
        twice[0].keys.lkey != twice[1].keys.lkey,
        "two regions with one key"
    );
    twice[0].destroy()?;
    ensure!(twice[1].query()?.bytes >= 64 << 10, "the other one stays");
    Ok(())
}

pub(super) fn depths_are_rounded_up(_: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    for (asked, rounded) in [(1, 1), (3, 4), (33, 64), (64, 64), (65, 128), (1000, 1024)] {
        let cq = Cq::new(&ctx, asked)?;
        let had = cq.depth;
        ensure!(had == rounded, "a CQ of {asked} has {had}");
        ensure!(cq.query()?.depth == had, "{:?}", cq.query()?);
        let qp = Qp::new(
            &pd,
            &cq,
            &cq,
            QpShape {
                sq_blocks: asked,
                rq_depth: asked,
                rq_stride: 0,
            },
        )?;
        for had in [qp.shape.sq_blocks, qp.shape.rq_depth] {
            ensure!(had == rounded, "a queue of {asked} has {had}");
        }
        qp.destroy()?;
        cq.destroy()?;
    }
    // The largest that is permitted.
    let cq = Cq::new(&ctx, ctx.info.limits.max_cq_depth)?;
    let shape = QpShape {
        sq_blocks: ctx.info.limits.max_sq_blocks,
        rq_depth: ctx.info.limits.max_rq_depth,
        rq_stride: 2,
    };
    let qp = Qp::new(&pd, &cq, &cq, shape)?;
    ensure!(
        qp.shape.sq_blocks == ctx.info.limits.max_sq_blocks
            && cq.depth == ctx.info.limits.max_cq_depth
    );
    Ok(())
}

pub(super) fn states_of_a_queue_pair(setup: &Setup) -> Result<()> {
    let mut pair = Pair::open(0)?;
    let told = pair.a.qp.query()?;
    ensure!(
        told.qp_state == qp_state::RTS && told.dest_qp_num == pair.b.qp.number,
        "{told:?}"
    );
    ensure!(told.qp_access_flags == REMOTE_RIGHTS, "{told:?}");
    for state in [qp_state::SQD, qp_state::RTS] {
        pair.a
            .qp
            .to(state)
            .with_context(|| format!("to {}", state_name(state)))?;
        ensure!(
            pair.a.qp.state()? == state,
            "is {}",
            state_name(pair.a.qp.state()?)
        );
    }
    pair.exchange(&mut setup.rng())
        .context("after SQD and back")?;
    pair.a.qp.to(qp_state::ERR)?;
    ensure!(pair.a.qp.state()? == qp_state::ERR);
    pair.renew()?;
    pair.exchange(&mut setup.rng())
        .context("after ERROR and RESET")?;
    let told = pair.a.qp.modify(ib_uverbs_modify_qp {
        attr_mask: qp_mask::ACCESS_FLAGS,
        qp_access_flags: IB_UVERBS_ACCESS_REMOTE_READ,
        ..Default::default()
    });
    ensure!(told.is_ok(), "an attribute alone: {told:?}");
    let told = pair.a.qp.query()?;
    ensure!(
        told.qp_access_flags == IB_UVERBS_ACCESS_REMOTE_READ,
        "{told:?}"
    );
    pair.a.qp.reset()?;
    let peer = pair.b.qp.number;
    pair.a.qp.connect_as(peer, EVERY_RIGHT, (7, 6))?;
    let told = pair.a.qp.query()?;
    ensure!((told.retry_cnt, told.rnr_retry) == (7, 6), "{told:?}");
    Ok(())
}

/// From every state to every state: transitions that IB does not define fail and change nothing.
pub(super) fn transitions_that_do_not_exist(_: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let cq = Cq::new(&ctx, 64)?;
    let states = [
        qp_state::RESET,
        qp_state::INIT,
        qp_state::RTR,
        qp_state::RTS,
        qp_state::SQD,
        qp_state::ERR,
    ];
    let way = |to: u8| match to {
        qp_state::ERR => vec![qp_state::INIT, qp_state::ERR],
        _ => (qp_state::INIT..=to).collect(),
    };
    let exists = |from: u8, to: u8| {
        to == qp_state::RESET
            || (to == qp_state::ERR && from != qp_state::RESET)
            || (to == from + 1 && to <= qp_state::RTS)
            || (from, to) == (qp_state::RTS, qp_state::SQD)
            || (from, to) == (qp_state::SQD, qp_state::RTS)
    };
    for from in states {
        for to in states {
            let qp = Qp::new(&pd, &cq, &cq, QpShape::default())?;
            for state in way(from) {
                qp.to(state)
                    .with_context(|| format!("on the way to {}", state_name(from)))?;
            }
            let (what, now) = (
                format!("{} to {}", state_name(from), state_name(to)),
                qp.to(to),
            );
            // A self transition is not reported.
            if exists(from, to) {
                now.with_context(|| what.clone())?;
            } else if from != to {
                fails(&what, Errno::EINVAL, now)?;
                ensure!(
                    qp.state()? == from,
                    "{what} changed it to {}",
                    state_name(qp.state()?)
                );
            }
            qp.destroy()?;
        }
    }
    Ok(())
}

pub(super) fn a_number_changes_every_time(_: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let mut seen = std::collections::HashSet::new();
    for round in 0..world::rounds(64, 64) {
        let pair = Pair::new(&ctx)?;
        for peer in [&pair.a, &pair.b] {
            for (kind, number) in [
                (0, peer.qp.number),
                (1, peer.cq.number),
                (2, peer.mr.keys.lkey),
            ] {
                ensure!(
                    Number::from_raw(number).generation() != 0,
                    "{number:#x} has no generation"
                );
                ensure!(
                    seen.insert((kind, number)),
                    "{number:#x} came again in round {round}"
                );
            }
        }
        pair.destroy()?;
    }
    Ok(())
}

pub(super) fn in_use(setup: &Setup) -> Result<()> {
    let mut pair = Pair::open(0)?;
    let peer = &pair.a;
    fails(
        "the domain of a QP and an MR",
        Errno::EBUSY,
        peer.pd.destroy(),
    )?;
    fails("the CQ of a QP", Errno::EBUSY, peer.cq.destroy())?;
    pair.exchange(&mut setup.rng())
        .context("after both were refused")?;
    let peer = &pair.a;
    peer.qp.destroy()?;
    fails("the domain of an MR", Errno::EBUSY, peer.pd.destroy())?;
    peer.cq.destroy().context("the CQ, now unused")?;
    peer.mr.destroy()?;
    peer.pd.destroy().context("the domain, now empty")?;
    works(0, &mut setup.rng())
}
