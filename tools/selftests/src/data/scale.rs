// SPDX-License-Identifier: GPL-2.0
//! Many queue pairs or processes at once.

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::sys::resource::setrlimit;
use nix::sys::resource::Resource;

use crate::children::Child;
use crate::ktap::skip;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Pair;
use crate::pair::Peer;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::QpShape;
use crate::raw::Wqe;

/// 256 queue pairs that all have work at the same time.
pub(super) fn queue_pairs(setup: &Setup) -> Result<()> {
    // The guest `everything` has 256 queue pairs, the admin queue pair among them.
    const PAIRS: usize = 120;
    const BYTES: usize = 16 << 10;
    const EACH: u64 = 8;
    let mut rng = setup.rng();
    let mut contexts = vec![Context::open(0)?];
    let mut pairs: Vec<Pair> = Vec::new();
    for number in 0..PAIRS {
        let each = (contexts[0]
            .info
            .device
            .max_qp
            .min(contexts[0].info.device.max_cq)
            / 2) as usize;
        if number / each >= contexts.len() {
            contexts.push(Context::open(0)?);
        }
        let ctx = &contexts[number / each];
        let shape = QpShape {
            sq_blocks: 64,
            rq_depth: 16,
            rq_stride: 0,
        };
        let new = || Peer::shaped(ctx, Buffer::new(2 * BYTES)?, shape);
        pairs.push(Pair::of(new()?, new()?).with_context(|| format!("pair {number}"))?);
    }
    for round in 0..4 {
        for pair in &mut pairs {
            let mut data = vec![0; BYTES];
            rng.fill(&mut data);
            pair.a.memory.write(0, &data);
            pair.b.memory.clear();
            for number in 0..EACH {
                let at = number as usize * BYTES / EACH as usize;
                pair.b.receive(number, at, BYTES / EACH as usize);
                pair.a
                    .qp
                    .put(&pair.a.with(Wqe::send(number), at, BYTES / EACH as usize));
            }
            let remote = pair.b.memory.addr() + BYTES as u64;
            let write = pair
                .a
                .with(Wqe::write(EACH, remote, pair.b.mr.keys.rkey), 0, BYTES);
            pair.a.qp.put(&write);
        }
        // None has started; now all do.
        for pair in &pairs {
            pair.a.qp.ring_sq();
        }
        for (number, pair) in pairs.iter_mut().enumerate() {
            let place = || format!("pair {number} in round {round}");
            for message in 0..EACH {
                pair.b.done(message).with_context(place)?;
            }
            for request in 0..=EACH {
                pair.a.done(request).with_context(place)?;
            }
            let data = pair.a.memory.read(0, BYTES);
            ensure!(
                pair.b.memory.read(0, BYTES) == data,
                "SENDs of pair {number} in round {round}"
            );
            ensure!(
                pair.b.memory.read(BYTES, BYTES) == data,
                "WRITE of pair {number} in round {round}"
            );
        }
    }
    Ok(())
}

/// 2000 queue pairs of one process, each with a CQ, a domain and a region of its own; each sends a
/// message, and gets one.
pub(super) fn thousands(setup: &Setup) -> Result<()> {
    const PAIRS: usize = 1000;
    const BYTES: usize = 64;
    const SHAPE: QpShape = QpShape {
        sq_blocks: 4,
        rq_depth: 1,
        rq_stride: 0,
    };
    // Each CQ has an eventfd.
    setrlimit(Resource::RLIMIT_NOFILE, 8 * PAIRS as u64, 8 * PAIRS as u64)?;
    let mut rng = setup.rng();
    let ctx = Context::open(0)?;
    let mut pairs = Vec::new();
    for number in 0..PAIRS {
        let new = || Peer::shaped(&ctx, Buffer::new(2 * BYTES)?, SHAPE);
        pairs.push(Pair::of(new()?, new()?).with_context(|| format!("pair {number}"))?);
    }
    for back in [false, true] {
        let mut sent = Vec::new();
        for pair in &mut pairs {
            let (from, to) = match back {
                false => (&mut pair.a, &mut pair.b),
                true => (&mut pair.b, &mut pair.a),
            };
            let mut data = vec![0; BYTES];
            rng.fill(&mut data);
            from.memory.write(BYTES, &data);
            sent.push(data);
            to.receive(1, 0, BYTES);
            from.qp.put(&from.with(Wqe::send(2), BYTES, BYTES));
            from.qp.ring_sq();
        }
        for (number, (pair, data)) in pairs.iter_mut().zip(sent).enumerate() {
            let (from, to) = match back {
                false => (&mut pair.a, &mut pair.b),
                true => (&mut pair.b, &mut pair.a),
            };
            let place = || format!("pair {number}, back: {back}");
            to.done(1).with_context(place)?;
            from.done(2).with_context(place)?;
            ensure!(to.memory.read(0, BYTES) == data, "{}", place());
        }
    }
    works(0, &mut setup.rng())
}

/// Eight processes, each with a pair of its own; every second one ends earlier and starts again.
pub(super) fn processes(setup: &Setup) -> Result<()> {
    let mut children = Vec::new();
    for number in 0..8u64 {
        let mut rng = fastrand::Rng::with_seed(setup.seed ^ number);
        children.push(Child::start(move |_| {
            let lives = if number % 2 == 0 { 1 } else { 4 };
            for life in 0..lives {
                let mut pair = Pair::open(0)?;
                for round in 0..100 / lives {
                    let place = || format!("process {number}, start {life}, round {round}");
                    pair.exchange(&mut rng).with_context(place)?;
                }
            }
            Ok(())
        })?);
    }
    for child in &mut children {
        child.done()?;
    }
    works(0, &mut setup.rng())
}

/// Two functions are independent of each other.
pub(super) fn two_devices(setup: &Setup) -> Result<()> {
    if Context::path(1).is_err() {
        return Err(skip("needs two devices"));
    }
    let mut rng = setup.rng();
    let (mut one, mut two) = (Pair::open(0)?, Pair::open(1)?);
    for _ in 0..20 {
        one.exchange(&mut rng)?;
        two.exchange(&mut rng)?;
    }
    // One context is closed, the other goes on.
    drop(one);
    two.exchange(&mut rng)?;
    works(0, &mut rng)?;
    works(1, &mut rng)
}
