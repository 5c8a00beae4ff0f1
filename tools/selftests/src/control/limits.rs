// SPDX-License-Identifier: GPL-2.0
//! Limits of a process: quotas of objects, locked memory.

use std::sync::Arc;
use std::thread;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use nix::sys::resource::setrlimit;
use nix::sys::resource::Resource;

use super::fails;
use crate::children::Child;
use crate::children::Link;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Bystander;
use crate::raw::page_size;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Kind;
use crate::raw::Mr;
use crate::raw::Pd;
use crate::raw::Qp;
use crate::raw::QpShape;
use crate::raw::Srq;
use crate::wait;
use crate::world;

/// Creates objects until the quota is reached; after a destroy, one more can be created.
fn fill<T>(
    what: &str,
    quota: u32,
    mut make: impl FnMut() -> Result<T, Errno>,
    end: impl Fn(&T) -> Result<(), Errno>,
) -> Result<Vec<T>> {
    let mut all = Vec::new();
    for number in 0..quota {
        all.push(make().with_context(|| format!("{what} {number} of {quota}"))?);
    }
    fails(
        &format!("{what} {quota} of {quota}"),
        Errno::EDQUOT,
        make().map(drop),
    )?;
    fails("one more", Errno::EDQUOT, make().map(drop))?;
    let Some(last) = all.pop() else {
        bail!("{what}: a quota of 0")
    };
    end(&last).context("ending one")?;
    all.push(make().with_context(|| format!("{what}: one more after one less"))?);
    fails("and one more", Errno::EDQUOT, make().map(drop))?;
    Ok(all)
}

/// The errno of an error of `raw` that has a context message.
pub(super) fn errno<T>(result: Result<T>) -> Result<T, Errno> {
    result.map_err(|error| {
        error
            .root_cause()
            .downcast_ref::<Errno>()
            .copied()
            .unwrap_or(Errno::UnknownErrno)
    })
}

pub(super) fn quotas(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let ctx = Context::open(0)?;
    let info = ctx.info;
    let buffer = Buffer::new(4096)?;
    let shape = QpShape {
        sq_blocks: 1,
        rq_depth: 1,
        rq_stride: 0,
    };

    let pds = fill("PD", info.device.max_pd, || Pd::new(&ctx), Pd::destroy)?;
    let pd = &pds[0];
    let mrs = fill(
        "MR",
        info.device.max_mr,
        || Mr::all(pd, &buffer),
        Mr::destroy,
    )?;
    // Without eventfds: the limit of open files is lower.
    let ring = || Buffer::new(4096).map_err(|_| Errno::ENOMEM);
    let make = || Cq::in_buffer(&ctx, 1, 0, ring()?, None);
    let cqs = fill("CQ", info.device.max_cq, make, Cq::destroy)?;
    let cq = &cqs[0];
    let make = || errno(Qp::new(pd, cq, cq, shape));
    let qps = fill("QP", info.device.max_qp, make, Qp::destroy)?;
    let make = || errno(Srq::new(pd, 1));
    let srqs = fill("SRQ", info.device.max_srq, make, Srq::destroy)?;
    others
        .unharmed()
        .context("while this one is at its quota")?;

    // Nothing leaks when all are destroyed at once.
    drop((pds, mrs, cqs, qps, srqs, ctx));
    let again = Context::open(0)?;
    fill(
        "PD, again",
        again.info.device.max_pd,
        || Pd::new(&again),
        Pd::destroy,
    )?;
    others.unharmed()
}

/// The user `nobody`.
pub(super) const NOBODY: u32 = 65534;

/// Becomes user `uid` without capabilities, whose processes may lock this many bytes.
pub(super) fn unprivileged(uid: u32, bytes: u64) -> Result<()> {
    setrlimit(Resource::RLIMIT_MEMLOCK, bytes, bytes).context("setrlimit")?;
    let uid = nix::unistd::Uid::from_raw(uid);
    nix::unistd::setresuid(uid, uid, uid).context("setresuid")
}

/// Starts `work` with a context that was opened before the process became unprivileged.
fn as_nobody(bytes: u64, work: impl FnOnce(&Arc<Context>, &Link) -> Result<()>) -> Result<Child> {
    let ctx = Context::open(0)?;
    Child::start(|link| {
        unprivileged(NOBODY, bytes)?;
        work(&ctx, link)
    })
}

fn charged(expected: usize, when: &str) -> Result<()> {
    let kib = world::charged_kib()?;
    ensure!(
        kib as usize == expected >> 10,
        "{when}: VmPin is {kib} KiB, expected {}",
        expected >> 10
    );
    Ok(())
}

pub(super) fn locked_memory(setup: &Setup) -> Result<()> {
    const LIMIT: usize = 1 << 20;
    let before = world::pinned_pages()?;
    let mut child = as_nobody(LIMIT as u64, |ctx, link| {
        let pd = Pd::new(ctx)?;
        let buffer = Buffer::new(2 * LIMIT)?;
        charged(0, "before")?;
        let half = Mr::of(&pd, buffer.addr(), LIMIT as u64 / 2, 1)?;
        charged(LIMIT / 2, "half of it")?;
        let rest = Mr::of(&pd, buffer.addr() + LIMIT as u64, LIMIT as u64 / 2, 1)?;
        charged(LIMIT, "all of it")?;
        // Only root may read the count of the system.
        link.tell(0)?;
        link.hear()?;
        fails(
            "a byte more",
            Errno::ENOMEM,
            Mr::of(&pd, buffer.addr(), 1, 1).map(drop),
        )?;
        charged(LIMIT, "after it was refused")?;
        rest.destroy()?;
        charged(LIMIT / 2, "half given back")?;
        // A failure after the charge reverts it, too.
        let hole = Buffer::new(LIMIT / 2)?;
        hole.punch(LIMIT / 4, page_size())?;
        fails(
            "a hole",
            Errno::EFAULT,
            Mr::of(&pd, hole.addr(), LIMIT as u64 / 2, 1).map(drop),
        )?;
        charged(LIMIT / 2, "after a failure")?;
        // Pages count, not bytes.
        half.destroy()?;
        let across = Mr::of(&pd, buffer.addr() + 4095, 2, 1)?;
        charged(2 * page_size(), "two bytes in two pages")?;
        across.destroy()?;
        charged(0, "all given back")
    })?;
    child.link().hear()?;
    let pinned = world::pinned_pages()? - before;
    ensure!(
        pinned >= (LIMIT / page_size()) as i64,
        "{pinned} pages are pinned"
    );
    child.link().tell(0)?;
    child.done()?;
    works(0, &mut setup.rng())
}

pub(super) fn locked_memory_of_queues(setup: &Setup) -> Result<()> {
    let mut child = as_nobody(64 << 10, |ctx, _| {
        let pd = Pd::new(ctx)?;
        let cq = Cq::new(ctx, 128)?;
        charged(4096, "a CQ of a page")?;
        let qp = Qp::new(
            &pd,
            &cq,
            &cq,
            QpShape {
                sq_blocks: 64,
                rq_depth: 128,
                rq_stride: 0,
            },
        )?;
        charged(4096 * 4, "with an SQ of a page and an RQ of two")?;
        let large = QpShape {
            sq_blocks: 512,
            rq_depth: 512,
            rq_stride: 0,
        };
        fails(
            "a QP of 64 KiB",
            Errno::ENOMEM,
            errno(Qp::new(&pd, &cq, &cq, large)).map(drop),
        )?;
        fails(
            "a CQ of 64 KiB",
            Errno::ENOMEM,
            errno(Cq::new(ctx, 2048)).map(drop),
        )?;
        charged(4096 * 4, "after both were refused")?;
        // An SQ within the limit and an RQ beyond it: nothing stays charged.
        let uneven = QpShape {
            sq_blocks: 64,
            rq_depth: 1024,
            rq_stride: 0,
        };
        fails(
            "an RQ of 64 KiB",
            Errno::ENOMEM,
            errno(Qp::new(&pd, &cq, &cq, uneven)).map(drop),
        )?;
        charged(4096 * 4, "after half of it was made")?;
        qp.destroy()?;
        cq.destroy()?;
        charged(0, "all given back")
    })?;
    child.done()?;
    works(0, &mut setup.rng())
}

pub(super) fn locked_memory_with_the_capability(setup: &Setup) -> Result<()> {
    let mut child = Child::start(|_| {
        setrlimit(Resource::RLIMIT_MEMLOCK, 4096, 4096)?;
        let ctx = Context::open(0)?;
        let pd = Pd::new(&ctx)?;
        let mr = Mr::all(&pd, &Buffer::new(1 << 20)?)
            .context("1 MiB with CAP_IPC_LOCK and a limit of 4 KiB")?;
        charged(1 << 20, "it is counted all the same")?;
        mr.destroy()?;
        charged(0, "all given back")
    })?;
    child.done()?;
    works(0, &mut setup.rng())
}

/// A round of one thread: objects of its own, and guessed handles of the other threads. Returns
/// whether it got all its objects: another thread may have destroyed the CQ before the QP.
fn race(ctx: &Arc<Context>, pd: &Pd, buffer: &Buffer, rng: &mut fastrand::Rng) -> Result<bool> {
    // By a destroy of another thread, done or in progress.
    let known = [Errno::ENOENT, Errno::EBUSY, Errno::EINVAL];
    let destroyed = |what: &str, result: Result<(), Errno>| match result {
        Err(errno) if !known.contains(&errno) => bail!("destroying {what} failed with {errno}"),
        _ => Ok(()),
    };
    let (cq, mr) = (Cq::new(ctx, 64)?, Mr::all(pd, buffer)?);
    let qp = match errno(Qp::new(pd, &cq, &cq, QpShape::default())) {
        Ok(qp) => Some(qp),
        Err(errno) if known.contains(&errno) => None,
        Err(errno) => bail!("a QP on a CQ that may be gone failed with {errno}"),
    };
    for _ in 0..8 {
        let step = rng.u32(0..4);
        let (kind, handle) = [
            (Kind::Qp, qp.as_ref().map_or(cq.handle, |qp| qp.handle)),
            (Kind::Cq, cq.handle),
            (Kind::Mr, mr.keys.mr_handle),
        ][rng.usize(0..3)];
        let handle = handle.wrapping_add(step);
        destroyed("a guessed handle", ctx.destroy(kind, handle))?;
    }
    if let Some(qp) = &qp {
        destroyed("its QP", qp.destroy())?;
    }
    destroyed("its MR", mr.destroy())?;
    // The QP may be going, by another thread's destroy.
    wait::until("end of its CQ", || match cq.destroy() {
        Err(Errno::EBUSY) => Ok(false),
        result => destroyed("its CQ", result).map(|()| true),
    })?;
    Ok(qp.is_some())
}

/// Threads of one process that create, query and destroy the same objects at the same time.
pub(super) fn races(setup: &Setup) -> Result<()> {
    const THREADS: u64 = 4;
    let rounds = world::rounds(50, 50);
    let mut others = Bystander::new(0, setup.rng())?;
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (ctx, pd, mut rng) = (&ctx, &pd, fastrand::Rng::with_seed(setup.seed ^ number));
                scope.spawn(move || -> Result<()> {
                    let buffer = Buffer::new(8192)?;
                    let mut whole = 0;
                    for round in 0..rounds {
                        let raced = race(ctx, pd, &buffer, &mut rng);
                        whole += u32::from(raced.with_context(|| format!("round {round}"))?);
                    }
                    ensure!(whole > 0, "no round of {rounds} got its QP");
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|it| {
            it.join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked")))
        })
    })?;
    drop((pd, ctx));
    others.unharmed()
}
