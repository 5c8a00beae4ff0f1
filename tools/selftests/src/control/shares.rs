// SPDX-License-Identifier: GPL-2.0
//! The shares of users, of root and of the kernel, and the cost of an open file.

use std::os::fd::AsFd;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use nix::sys::epoll::Epoll;
use nix::sys::epoll::EpollCreateFlags;
use nix::sys::epoll::EpollEvent;
use nix::sys::epoll::EpollFlags;
use qpair_abi::entry::opcode;

use super::fails;
use super::limits::errno;
use super::limits::unprivileged;
use super::limits::NOBODY;
use crate::children::Child;
use crate::host::Host;
use crate::ktap::say;
use crate::ktap::Setup;
use crate::pair::works;
use crate::raw::address;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Pd;
use crate::raw::Qp;
use crate::raw::QpShape;
use crate::raw::Wqe;
use crate::wait;
use crate::world;

/// Another user than [`NOBODY`].
const OTHER: u32 = 65533;
/// Bytes that a user may lock.
const LOCKED: u64 = 8 << 20;

/// Root and the kernel's own client get their resources.
fn root_goes_on(setup: &Setup, when: &str) -> Result<()> {
    works(0, &mut setup.rng()).with_context(|| format!("root {when}"))?;
    let loopback = world::debugfs(0)?.join("loopback");
    world::put(loopback, "qps=8 depth=4 count=10 op=send verify=1")
        .with_context(|| format!("the kernel {when}"))
}

/// A destroyed queue pair whose completion was read, but whose CQ head was not published, keeps its
/// index. It counts against the quotas until the head is published.
pub(super) fn destroyed_queue_pairs(setup: &Setup) -> Result<()> {
    const SHAPE: QpShape = QpShape {
        sq_blocks: 1,
        rq_depth: 1,
        rq_stride: 0,
    };
    let mut child = Child::start(|link| {
        unprivileged(NOBODY, LOCKED)?;
        let (ctx, other) = (Context::open(0)?, Context::open(0)?);
        let (pd, other_pd) = (Pd::new(&ctx)?, Pd::new(&other)?);
        let quota = ctx.info.device.max_qp;
        let (mut cq, other_cq) = (Cq::new(&ctx, quota)?, Cq::new(&other, 2)?);
        for number in 0..quota {
            let mut qp =
                Qp::new(&pd, &cq, &cq, SHAPE).with_context(|| format!("QP {number} of {quota}"))?;
            qp.connect(qp.number)?;
            qp.post(&Wqe::new(opcode::NOP, number.into()));
            wait::for_some("a completion", || Ok(cq.poll()))?;
            qp.destroy()?;
        }
        let more = || errno(Qp::new(&pd, &cq, &cq, SHAPE));
        let elsewhere = || errno(Qp::new(&other_pd, &other_cq, &other_cq, SHAPE));
        fails("one more", Errno::EDQUOT, more())?;
        fails("one in another file", Errno::EDQUOT, elsewhere())?;
        link.tell(ctx.info.limits.page.into())?;
        link.tell(quota.into())?;
        link.hear()?;
        cq.publish();
        // The other file first: the driver must find out that the first file's indices are free.
        elsewhere().context("in the other file, with the head published")?;
        more().context("with the head published")?;
        link.tell(0)?;
        link.hear().map(drop)
    })?;
    let page = child.link().hear()? as u32;
    let quota = child.link().hear()? as i64;
    let shown = |name: &str, expected: i64| {
        let found = world::of_context(0, page, name)?;
        ensure!(found == expected, "{name} is {found}, expected {expected}");
        Ok(())
    };
    shown("qps", 0)?;
    shown("qps-held", quota)?;
    let contexts = world::text(world::debugfs(0)?.join("clients"))?;
    let row = format!(" qps-held {quota} srqs-held 0 uid {NOBODY}");
    ensure!(contexts.contains(&row), "no{row} in\n{contexts}");
    root_goes_on(setup, "beside a user's destroyed queue pairs")?;
    child.link().tell(0)?;
    child.link().hear()?;
    shown("qps", 1)?;
    shown("qps-held", 0)?;
    child.link().tell(0)?;
    child.done()?;
    works(0, &mut setup.rng())
}

/// Commands of a create that is refused, at most: it may query the device of eight files.
const COMMANDS: u64 = 8;

/// A refused create costs a bounded number of commands, however many files of the user have
/// destroyed queue pairs. Those that are free in the end are found by a later create.
pub(super) fn refused_creates(setup: &Setup) -> Result<()> {
    const SHAPE: QpShape = QpShape {
        sq_blocks: 1,
        rq_depth: 1,
        rq_stride: 0,
    };
    const FILES: u32 = 24;
    let mut host = Host::call()?;
    let mut child = Child::start(|link| {
        unprivileged(NOBODY, LOCKED)?;
        let mut files = Vec::new();
        for _ in 0..FILES {
            let ctx = Context::open(0)?;
            let (pd, mut cq) = (Pd::new(&ctx)?, Cq::new(&ctx, 2)?);
            let mut qp = Qp::new(&pd, &cq, &cq, SHAPE)?;
            qp.connect(qp.number)?;
            qp.post(&Wqe::new(opcode::NOP, 0));
            wait::for_some("a completion", || Ok(cq.poll()))?;
            qp.destroy()?;
            files.push((pd, cq));
        }
        let ctx = Context::open(0)?;
        let (pd, cq) = (Pd::new(&ctx)?, Cq::new(&ctx, 2)?);
        let more = || errno(Qp::new(&pd, &cq, &cq, SHAPE));
        let mut qps = Vec::new();
        for _ in FILES..ctx.info.device.max_qp {
            qps.push(more()?);
        }
        fails("one more than the user may have", Errno::EDQUOT, more())?;
        link.tell(0)?;
        link.hear()?;
        fails("another", Errno::EDQUOT, more())?;
        link.tell(0)?;
        link.hear()?;
        let Some((_, last)) = files.last_mut() else {
            anyhow::bail!("no files")
        };
        last.publish();
        let found = (0..FILES).find_map(|_| more().ok());
        ensure!(found.is_some(), "an index that is free is never found");
        Ok(())
    })?;
    child.link().hear()?;
    let before = host.get(0, "commands")?;
    child.link().tell(0)?;
    child.link().hear()?;
    let commands = host.get(0, "commands")? - before;
    ensure!(
        (1..=COMMANDS).contains(&commands),
        "{commands} commands of a refused create"
    );
    child.link().tell(0)?;
    child.done()?;
    works(0, &mut setup.rng())
}

/// After a failed create the driver need not query the device for held indices.
pub(super) fn failed_creates(_setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let ctx = Context::open(0)?;
    let (pd, cq) = (Pd::new(&ctx)?, Cq::new(&ctx, 2)?);
    let gone = Pd::new(&ctx)?;
    gone.destroy()?;
    let page = ctx.info.limits.page;
    let queries = |host: &mut Host, what: &str| -> Result<u64> {
        let before = host.get(0, "commands")?;
        for name in ["qps-held", "cqs-held", "srqs-held"] {
            let held = world::of_context(0, page, name)?;
            ensure!(held == 0, "{name} after {what}: {held}");
        }
        Ok(host.get(0, "commands")? - before)
    };
    let nothing_held = |host: &mut Host, what: &str| -> Result<()> {
        let queries = queries(host, what)?;
        ensure!(queries == 0, "{queries} queries of the device after {what}");
        Ok(())
    };
    nothing_held(&mut host, "nothing")?;
    let made = Qp::new(&gone, &cq, &cq, QpShape::default());
    ensure!(made.is_err(), "a QP without a protection domain");
    nothing_held(&mut host, "CREATE_QP that the driver refused")?;
    host.set(0, "fail-command", 1)?;
    let made = Qp::new(&pd, &cq, &cq, QpShape::default());
    ensure!(made.is_err(), "a QP of a command that failed");
    nothing_held(&mut host, "CREATE_QP that the device refused")?;
    host.set(0, "fail-command", 1)?;
    ensure!(Cq::new(&ctx, 2).is_err(), "a CQ of a command that failed");
    nothing_held(&mut host, "CREATE_CQ that the device refused")?;
    // The index of a destroyed object may be held: then the driver queries the device.
    Cq::new(&ctx, 2)?.destroy()?;
    let queries = queries(&mut host, "a destroyed CQ")?;
    ensure!(queries > 0, "no query of the device after a destroyed CQ");
    Ok(())
}

/// Creates PDs in files of one user until the driver refuses one; how many, and the errno.
fn take_pds(uid: u32) -> Result<(Vec<Pd>, Errno)> {
    unprivileged(uid, LOCKED)?;
    let mut pds = Vec::new();
    for _ in 0..4 {
        let ctx = Context::open(0)?;
        for _ in 0..ctx.info.device.max_pd {
            match Pd::new(&ctx) {
                Ok(pd) => pds.push(pd),
                Err(refused) => return Ok((pds, refused)),
            }
        }
    }
    anyhow::bail!("four files have {} PDs", pds.len())
}

/// However many files a user opens, other users keep their share; and however many users there are,
/// root and the kernel keep theirs.
pub(super) fn files_of_a_user(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let (limit, quota) = (
        Host::call()?.get(0, "max-pds")? as usize,
        ctx.info.device.max_pd as usize,
    );
    let user = |uid: u32, count: usize, expected: Errno| {
        let child = Child::start(move |link| {
            let (pds, refused) = take_pds(uid)?;
            ensure!(
                pds.len() == count && refused == expected,
                "user {uid}: {} of {limit} PDs, then {refused}; expected {count}, then {expected}",
                pds.len()
            );
            link.tell(0)?;
            link.hear()?;
            Ok(())
        })?;
        child.link().hear()?;
        Ok::<_, anyhow::Error>(child)
    };
    let mut one = user(NOBODY, quota, Errno::EDQUOT)?;
    let left = limit - limit / 8 - 1 - quota;
    let mut two = user(OTHER, left, Errno::ENOSPC)?;
    root_goes_on(setup, "beside two users' PDs")?;
    let mut pds = Vec::new();
    for number in 0..limit / 8 {
        pds.push(Pd::new(&ctx).with_context(|| format!("PD {number} of root"))?);
    }
    for child in [&mut one, &mut two] {
        child.link().tell(0)?;
        child.done()?;
    }
    drop((pds, ctx));

    let mut files = Child::start(|link| {
        unprivileged(NOBODY, LOCKED)?;
        let mut files = Vec::new();
        let refused = loop {
            match Context::open_file(0) {
                Ok(file) => files.push(file),
                Err(error) => break error,
            }
        };
        ensure!(
            refused.raw_os_error() == Some(libc::EDQUOT),
            "{refused} after {} files",
            files.len()
        );
        link.tell(files.len() as u64)?;
        link.hear()?;
        drop(files.pop());
        Context::open_file(0).context("one more after one less")?;
        Ok(())
    })?;
    let count = files.link().hear()?;
    say(&format!("a user may open {count} files"));
    let mut other = Child::start(|_| {
        unprivileged(OTHER, LOCKED)?;
        Context::open_file(0).context("another user")?;
        Ok(())
    })?;
    other.done()?;
    root_goes_on(setup, "beside a user's open files")?;
    files.link().tell(0)?;
    files.done()
}

/// However many files a user opens, it has as many address handles as one file may have: they take
/// memory of the kernel that no cgroup counts.
pub(super) fn address_handles(setup: &Setup) -> Result<()> {
    let mut child = Child::start(|_| {
        unprivileged(NOBODY, LOCKED)?;
        let most = Context::open(0)?.info.device.max_ah;
        let mut files = Vec::new();
        let mut made = 0;
        let refused = 'made: loop {
            let ctx = Context::open(0)?;
            let pd = Pd::new(&ctx)?;
            // A quarter, so that no file has as many as it may.
            for _ in 0..most / 4 {
                match ctx.create_ah(&address(&pd, None, ctx.info.port.lid)) {
                    Ok(_) => made += 1,
                    Err(errno) => break 'made errno,
                }
                ensure!(made <= most, "{made} address handles of a user");
            }
            files.push((ctx, pd));
        };
        ensure!(
            refused == Errno::EDQUOT && made == most,
            "{refused} after {made} address handles of {most}"
        );
        files.pop();
        let ctx = Context::open(0)?;
        let pd = Pd::new(&ctx)?;
        ctx.create_ah(&address(&pd, None, ctx.info.port.lid))
            .context("one more after a file less")?;
        Ok(())
    })?;
    child.done()?;
    works(0, &mut setup.rng())
}

/// The number of times that this thread has slept.
fn sleeps() -> Result<i64> {
    world::field("/proc/thread-self/status", "voluntary_ctxt_switches")
}

/// Opening and closing a file takes no command, and waits neither for the device nor for an RCU
/// grace period. So a process with a thousand files ends quickly.
pub(super) fn an_empty_file(_: &Setup) -> Result<()> {
    const FILES: i64 = 200;
    let device = world::debugfs(0)?.join("device");
    let device = device.to_str().context("a path")?;
    let epoll = Epoll::new(EpollCreateFlags::empty())?;
    let commands = || world::field(device, "admin-commands");
    let (before, slept, began) = (commands()?, sleeps()?, Instant::now());
    for _ in 0..FILES {
        let file = Context::open_file(0)?;
        let events = qpair_uverbs::open_events(file.as_fd())?;
        epoll.add(&events, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
    }
    let (slept, took) = (sleeps()? - slept, began.elapsed());
    let commands = commands()? - before;
    say(&format!(
        "{FILES} files: {commands} commands, {slept} sleeps, {:.2} ms each",
        took.as_secs_f64() * 1e3 / FILES as f64
    ));
    // Reading the count is a command. A lock of the device may be contended briefly.
    ensure!(commands < FILES / 10, "{commands} commands");
    ensure!(slept < FILES / 10, "{slept} sleeps");
    Ok(())
}
