// SPDX-License-Identifier: GPL-2.0
//! Invalid doorbells: they change nothing, and are counted.

use std::sync::Arc;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::entry::opcode;

use crate::children::Child;
use crate::ktap::Setup;
use crate::pair::Bystander;
use crate::pair::Pair;
use crate::raw::Context;
use crate::raw::Wqe;

/// Rings, and expects a violation and nothing else.
fn violates(ctx: &Arc<Context>, what: &str, ring: impl FnOnce()) -> Result<()> {
    let before = ctx.counter(Counter::Violations)?;
    ring();
    let counted = ctx.counter(Counter::Violations)? - before;
    ensure!(counted == 1, "{what}: {counted} violations counted");
    Ok(())
}

/// Every doorbell of a process, and the queue of a pair to ring.
fn targets(pair: &Pair) -> [(&'static str, u64, u32); 7] {
    [
        ("SQ", doorbell::SQ, pair.a.qp.number),
        ("RQ", doorbell::RQ, pair.a.qp.number),
        ("CQ head", doorbell::CQ_HEAD, pair.a.cq.number),
        ("CQ arm next", doorbell::CQ_ARM_NEXT, pair.a.cq.number),
        (
            "CQ arm solicited",
            doorbell::CQ_ARM_SOLICITED,
            pair.a.cq.number,
        ),
        ("CQ notify", doorbell::CQ_NOTIFY, pair.a.cq.handle),
        (
            "CQ notify solicited",
            doorbell::CQ_NOTIFY_SOLICITED,
            pair.a.cq.handle,
        ),
    ]
}

/// An index that is valid for this doorbell: a notify has only 0.
fn valid(at: u64, index: u32) -> u32 {
    match at {
        doorbell::CQ_NOTIFY | doorbell::CQ_NOTIFY_SOLICITED => 0,
        _ => index,
    }
}

pub(super) fn of_others(setup: &Setup) -> Result<()> {
    let mut rng = setup.rng();
    let mut theirs = Pair::open(0)?;
    theirs.exchange(&mut rng)?;
    let ours = Context::open(0)?;
    for (what, at, number) in targets(&theirs) {
        let before = (theirs.a.qp.queues()?, theirs.a.cq.query()?);
        violates(&ours, what, || {
            let index = valid(at, theirs.a.qp.sq_tail + 1);
            ours.page.ring(at, number, index)
        })?;
        let after = (theirs.a.qp.queues()?, theirs.a.cq.query()?);
        ensure!(
            format!("{before:?}") == format!("{after:?}"),
            "{what} of another's: {before:?} became {after:?}"
        );
    }
    // The kernel's own queues.
    for (what, at) in [
        ("SQ", doorbell::SQ),
        ("RQ", doorbell::RQ),
        ("CQ head", doorbell::CQ_HEAD),
    ] {
        violates(&ours, &format!("{what} of the kernel"), || {
            ours.page.ring(at, 0, 1)
        })?;
    }
    for (what, at) in [
        ("EQ head", doorbell::EQ_HEAD),
        ("EQ head, masked", doorbell::EQ_HEAD_MASKED),
    ] {
        violates(&ours, what, || ours.page.ring(at, 0, 1))?;
    }
    theirs.exchange(&mut rng)?;
    ensure!(
        theirs.a.ctx.async_event()?.is_none(),
        "the other one was told"
    );
    Bystander::new(0, rng)?.unharmed()
}

pub(super) fn bad_numbers(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let mut pair = Pair::open(0)?;
    let ctx = pair.a.ctx.clone();
    for (what, at, number) in targets(&pair) {
        for (how, wrong) in [
            ("the next generation", number.wrapping_add(1 << 16)),
            ("the generation before", number.wrapping_sub(1 << 16)),
            ("no generation", number & 0xffff),
            ("an index without an object", number & 0xffff_0000 | 0xfff0),
            ("all ones", u32::MAX),
        ] {
            violates(&ctx, &format!("{what} with {how}"), || {
                ctx.page.ring(at, wrong, 0)
            })?;
        }
    }
    pair.exchange(&mut setup.rng())
        .context("with the right numbers")?;
    // Numbers that were valid until now.
    let gone = targets(&pair);
    pair.destroy()?;
    for (what, at, number) in gone {
        violates(&ctx, &format!("{what} of one that is gone"), || {
            ctx.page.ring(at, number, valid(at, 1))
        })?;
    }
    others.unharmed()
}

pub(super) fn bad_indices(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let mut pair = Pair::open(0)?;
    let ctx = pair.a.ctx.clone();
    pair.exchange(&mut setup.rng())?;
    let (qp, cq) = (pair.a.qp.queues()?, pair.a.cq.query()?);
    let shape = pair.a.qp.shape;
    for (what, at, number, good, room) in [
        (
            "SQ",
            doorbell::SQ,
            pair.a.qp.number,
            qp.sq_consumer,
            shape.sq_blocks,
        ),
        (
            "RQ",
            doorbell::RQ,
            pair.a.qp.number,
            qp.rq_consumer,
            shape.rq_depth,
        ),
        (
            "CQ head",
            doorbell::CQ_HEAD,
            pair.a.cq.number,
            cq.producer,
            0,
        ),
        (
            "CQ arm next",
            doorbell::CQ_ARM_NEXT,
            pair.a.cq.number,
            cq.producer,
            0,
        ),
        (
            "CQ arm solicited",
            doorbell::CQ_ARM_SOLICITED,
            pair.a.cq.number,
            cq.producer,
            0,
        ),
        // Every index but 0 is past the end.
        ("CQ notify", doorbell::CQ_NOTIFY, pair.a.cq.handle, 0, 0),
        (
            "CQ notify solicited",
            doorbell::CQ_NOTIFY_SOLICITED,
            pair.a.cq.handle,
            0,
            0,
        ),
    ] {
        for past in [1, 2, 1000, 1 << 30] {
            let index = good.wrapping_add(room).wrapping_add(past);
            violates(&ctx, &format!("{what} {past} past the end"), || {
                ctx.page.ring(at, number, index)
            })?;
        }
    }
    let (qp_now, cq_now) = (pair.a.qp.queues()?, pair.a.cq.query()?);
    ensure!(
        format!("{qp:?}{cq:?}") == format!("{qp_now:?}{cq_now:?}"),
        "something moved: {qp_now:?} {cq_now:?}"
    );
    pair.exchange(&mut setup.rng())
        .context("after all were refused")?;
    others.unharmed()
}

/// Stores of another width and to other offsets are ignored and counted.
pub(super) fn bad_places(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let mut pair = Pair::open(0)?;
    let ctx = pair.a.ctx.clone();
    pair.a.qp.put(&Wqe::new(opcode::NOP, 1));
    let (number, tail) = (pair.a.qp.number, pair.a.qp.sq_tail);
    violates(&ctx, "half a doorbell", || {
        ctx.page.store_half(doorbell::SQ, number)
    })?;
    violates(&ctx, "the other half", || {
        ctx.page.store_half(doorbell::SQ + 4, tail)
    })?;
    violates(&ctx, "an SRQ, of which there is none", || {
        ctx.page.ring(doorbell::SRQ, number, tail)
    })?;
    violates(&ctx, "after the last doorbell", || {
        ctx.page
            .ring(doorbell::CQ_NOTIFY_SOLICITED + 8, number, tail)
    })?;
    violates(&ctx, "the end of the page", || {
        ctx.page.ring(doorbell::PAGE_BYTES - 8, number, tail)
    })?;
    pair.a
        .idle()
        .context("one of them was taken for a doorbell")?;
    pair.a.qp.ring_sq();
    pair.a.done(1)?;
    others.unharmed()
}

/// A process exits after violations: the next owner of its page inherits nothing, nor a violation
/// that is not reported.
pub(super) fn the_next_owner(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    for round in 0..20 {
        let mut child = Child::start(|link| {
            let ctx = Context::open(0)?;
            for _ in 0..=round {
                ctx.page.ring(0, u32::MAX, 0);
            }
            link.tell(u64::from(ctx.info.limits.page))
        })?;
        let page = child.link().hear()?;
        child.done()?;
        let ctx = Context::open(0)?;
        ensure!(
            u64::from(ctx.info.limits.page) == page,
            "page {}, that of before was {page}",
            ctx.info.limits.page
        );
        violates(&ctx, "as the next owner", || ctx.page.ring(0, u32::MAX, 0))?;
        ensure!(ctx.async_event()?.is_none(), "an event of a doorbell");
    }
    others.unharmed()
}

/// A storm of bad doorbells is no storm of interrupts.
pub(super) fn a_storm(setup: &Setup) -> Result<()> {
    const STORM: u32 = 50_000;
    let mut others = Bystander::new(0, setup.rng())?;
    let ctx = Context::open(0)?;
    let before = ctx.counters()?;
    let mut rng = setup.rng();
    for _ in 0..STORM {
        // No index has the top bits, so no doorbell matches an object.
        ctx.page
            .ring(rng.u64(0..10) * 8, rng.u32(..) | 0xc000, rng.u32(..));
    }
    let after = ctx.counters()?;
    let rise = |which: Counter| after[which as usize] - before[which as usize];
    ensure!(
        rise(Counter::Violations) == u64::from(STORM),
        "{} violations",
        rise(Counter::Violations)
    );
    for (what, rise) in [
        ("EQEs", rise(Counter::Eqes)),
        ("interrupts", rise(Counter::Interrupts)),
    ] {
        ensure!(rise <= 20, "{rise} {what} for a storm");
    }
    // Afterwards violations are counted as before.
    violates(&ctx, "one more", || ctx.page.ring(0, u32::MAX, 0))?;
    others.unharmed()
}
