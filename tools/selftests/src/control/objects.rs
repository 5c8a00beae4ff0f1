// SPDX-License-Identifier: GPL-2.0
//! Each kind of object: create, query, modify, destroy.

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::uapi;
use qpair_abi::Number;

use super::fails;
use crate::ktap::Setup;
use crate::pair::state_name;
use crate::pair::works;
use crate::pair::Pair;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Mr;
use crate::raw::Pd;
use crate::raw::Qp;
use crate::raw::QpShape;
use crate::world;

pub(super) fn protection_domain(_: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let one = Pd::new(&ctx)?;
    let two = Pd::new(&ctx)?;
    ensure!(
        one.handle != two.handle && one.handle != 0,
        "{:#x}, {:#x}",
        one.handle,
        two.handle
    );
    one.destroy()?;
    fails("destroying it again", Errno::ENOENT, one.destroy())?;
    two.destroy()?;
    Ok(())
}

pub(super) fn completion_queue(_: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    for vector in 0..ctx.info.vectors {
        let cq = Cq::on(&ctx, 256, vector)?;
        let told = cq.query()?;
        ensure!(
            (
                told.depth,
                told.vector,
                told.producer,
                told.consumer,
                told.flags
            ) == (256, vector, 0, 0, 0),
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
        let told = qp.query()?;
        ensure!(
            told.state == uapi::QPAIR_QPS_RESET && told.peer == 0,
            "{told:?}"
        );
        ensure!(
            [
                told.sq_producer,
                told.sq_consumer,
                told.rq_producer,
                told.rq_consumer
            ] == [0; 4],
            "{told:?}"
        );
        ensure!(
            qp.destroy()? == (0, 0),
            "entries in CQs that were not written"
        );
        fails("querying it afterwards", Errno::ENOENT, qp.query())?;
    }
    Ok(())
}

pub(super) fn memory_region(_: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let buffer = Buffer::new(64 << 10)?;
    for access in 0..8 {
        // Any address and length.
        let (addr, bytes) = (buffer.addr() + 4093, 8200);
        let mr =
            Mr::of(&pd, addr, bytes, access).with_context(|| format!("with access {access}"))?;
        let told = mr.query()?;
        ensure!(
            (told.addr, told.bytes, told.access) == (addr, bytes, access),
            "{told:?}"
        );
        ensure!(mr.arg.lkey != 0, "{:?}", mr.arg);
        mr.destroy()?;
    }
    // The same memory may be registered several times.
    let twice = [Mr::all(&pd, &buffer)?, Mr::all(&pd, &buffer)?];
    ensure!(
        twice[0].arg.lkey != twice[1].arg.lkey,
        "two regions with one key"
    );
    twice[0].destroy()?;
    ensure!(twice[1].query()?.bytes == 64 << 10, "the other one stays");
    Ok(())
}

pub(super) fn depths_are_rounded_up(_: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    for (asked, least) in [(1, 1), (3, 4), (33, 64), (64, 64), (65, 128), (1000, 1024)] {
        let cq = Cq::new(&ctx, asked)?;
        let had = cq.depth;
        ensure!(
            had.is_power_of_two() && had >= least,
            "a CQ of {asked} has {had}"
        );
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
            ensure!(
                had.is_power_of_two() && had >= least,
                "a queue of {asked} has {had}"
            );
        }
        qp.destroy()?;
        cq.destroy()?;
    }
    // The largest that is permitted.
    let cq = Cq::new(&ctx, ctx.info.max_cq_depth)?;
    let shape = QpShape {
        sq_blocks: ctx.info.max_sq_blocks,
        rq_depth: ctx.info.max_rq_depth,
        rq_stride: 2,
    };
    let qp = Qp::new(&pd, &cq, &cq, shape)?;
    ensure!(qp.shape.sq_blocks == ctx.info.max_sq_blocks && cq.depth == ctx.info.max_cq_depth);
    Ok(())
}

pub(super) fn states_of_a_queue_pair(setup: &Setup) -> Result<()> {
    let mut pair = Pair::open(0)?;
    let told = pair.a.qp.query()?;
    ensure!(
        told.state == uapi::QPAIR_QPS_RTS && told.peer == pair.b.qp.handle,
        "{told:?}"
    );
    ensure!(
        told.access == uapi::QPAIR_ACCESS_REMOTE_WRITE | uapi::QPAIR_ACCESS_REMOTE_READ,
        "{told:?}"
    );
    for state in [uapi::QPAIR_QPS_SQD, uapi::QPAIR_QPS_RTS] {
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
    pair.a.qp.to(uapi::QPAIR_QPS_ERROR)?;
    ensure!(pair.a.qp.state()? == uapi::QPAIR_QPS_ERROR);
    pair.renew()?;
    pair.exchange(&mut setup.rng())
        .context("after ERROR and RESET")?;
    let told = pair.a.qp.modify(|arg| {
        arg.mask = uapi::QPAIR_QP_RETRY | uapi::QPAIR_QP_ACCESS;
        (arg.retry, arg.rnr_retry, arg.access) = (7, 6, uapi::QPAIR_ACCESS_REMOTE_READ);
    });
    ensure!(told.is_ok(), "attributes alone: {told:?}");
    let told = pair.a.qp.query()?;
    ensure!(
        (told.retry, told.rnr_retry, told.access) == (7, 6, uapi::QPAIR_ACCESS_REMOTE_READ),
        "{told:?}"
    );
    Ok(())
}

/// From every state to every state: transitions that IB does not define fail and change nothing.
pub(super) fn transitions_that_do_not_exist(_: &Setup) -> Result<()> {
    use uapi::*;
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let cq = Cq::new(&ctx, 64)?;
    let ways: [(u32, &[u32]); 6] = [
        (QPAIR_QPS_RESET, &[]),
        (QPAIR_QPS_INIT, &[QPAIR_QPS_INIT]),
        (QPAIR_QPS_RTR, &[QPAIR_QPS_INIT, QPAIR_QPS_RTR]),
        (
            QPAIR_QPS_RTS,
            &[QPAIR_QPS_INIT, QPAIR_QPS_RTR, QPAIR_QPS_RTS],
        ),
        (
            QPAIR_QPS_SQD,
            &[QPAIR_QPS_INIT, QPAIR_QPS_RTR, QPAIR_QPS_RTS, QPAIR_QPS_SQD],
        ),
        (QPAIR_QPS_ERROR, &[QPAIR_QPS_ERROR]),
    ];
    let exists = |from: u32, to: u32| {
        to == QPAIR_QPS_RESET
            || to == QPAIR_QPS_ERROR
            || (to == from + 1 && to <= QPAIR_QPS_RTS)
            || (from, to) == (QPAIR_QPS_RTS, QPAIR_QPS_SQD)
            || (from, to) == (QPAIR_QPS_SQD, QPAIR_QPS_RTS)
    };
    for (from, way) in ways {
        for to in QPAIR_QPS_RESET..=QPAIR_QPS_ERROR {
            let qp = Qp::new(&pd, &cq, &cq, QpShape::default())?;
            for state in way {
                // A queue pair may be its own peer.
                qp.modify(|arg| {
                    (arg.mask, arg.state) = (QPAIR_QP_STATE, *state);
                    if *state == QPAIR_QPS_RTR {
                        (arg.mask, arg.peer) = (QPAIR_QP_STATE | QPAIR_QP_PEER, qp.handle);
                    }
                })
                .with_context(|| format!("on the way to {}", state_name(from)))?;
            }
            let (what, now) = (
                format!("{} to {}", state_name(from), state_name(to)),
                qp.to(to),
            );
            // RTR names the peer or has one; a self transition is not reported.
            if exists(from, to) {
                if to != QPAIR_QPS_RTR {
                    now.with_context(|| what.clone())?;
                }
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
            for (kind, handle) in [
                (0, peer.qp.handle),
                (1, peer.cq.handle),
                (2, peer.mr.arg.handle),
            ] {
                ensure!(
                    Number::from_raw(handle).generation() != 0,
                    "{handle:#x} has no generation"
                );
                ensure!(
                    seen.insert((kind, handle)),
                    "{handle:#x} came again in round {round}"
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
