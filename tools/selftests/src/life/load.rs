// SPDX-License-Identifier: GPL-2.0
//! Load: processes that keep a device busy in every way, until they are killed or the device is
//! removed.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::anyhow;
use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use nix::poll::PollFd;
use nix::poll::PollFlags;
use nix::sys::signal::Signal;
use qpair_abi::entry::opcode;
use qpair_uverbs::abi::*;

use crate::children::Child;
use crate::children::End;
use crate::children::Link;
use crate::pair::works;
use crate::pair::Pair;
use crate::pair::Peer;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Mr;
use crate::raw::Pd;
use crate::raw::Wqe;
use crate::wait;
use crate::world;

/// The work of a process of the load.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// Keeps queues full, polls, makes no system call.
    Traffic,
    /// The same, and sleeps for events.
    Events,
    /// Creates and destroys objects.
    Objects,
    /// Pins and unpins megabytes.
    Regions,
    /// Changes the states of queue pairs with posted work.
    States,
}

impl Work {
    pub(super) const ALL: [Self; 5] = [
        Self::Traffic,
        Self::Events,
        Self::Objects,
        Self::Regions,
        Self::States,
    ];

    pub(super) fn any(rng: &mut fastrand::Rng) -> Self {
        Self::ALL[rng.usize(0..Self::ALL.len())]
    }

    /// Starts a process that does this until its context is dead, and then succeeds. Returns when it
    /// is running.
    pub(super) fn start(self, device: usize, seed: u64) -> Result<Child> {
        let child = Child::start(|link| {
            let ctx = Context::open(device)?;
            let Err(error) = self.go_on(&ctx, seed, link) else {
                return Err(anyhow!("{self:?} ended by itself"));
            };
            let errno = error.root_cause().downcast_ref::<Errno>();
            // The driver may refuse a call before the core does.
            ensure!(
                matches!(errno, Some(Errno::EIO | Errno::ENODEV)),
                "{self:?}: {error:#}"
            );
            is_dead(&ctx)
        })?;
        child
            .link()
            .hear()
            .with_context(|| format!("starting {self:?}"))?;
        Ok(child)
    }

    /// Forever, or until a system call fails.
    fn go_on(self, ctx: &Arc<Context>, seed: u64, link: &Link) -> Result<()> {
        let mut rng = fastrand::Rng::with_seed(seed);
        match self {
            Self::Traffic => traffic(ctx, link, false),
            Self::Events => traffic(ctx, link, true),
            Self::Objects => {
                let mut all = VecDeque::new();
                link.tell(0)?;
                loop {
                    all.push_back(Peer::new(ctx, 4096)?);
                    if all.len() > rng.usize(0..16) {
                        all.pop_front()
                            .map_or(Ok(()), |peer: Peer| peer.destroy())?;
                    }
                }
            }
            Self::Regions => {
                let pd = Pd::new(ctx)?;
                link.tell(0)?;
                loop {
                    let buffer = Buffer::new(rng.usize(1..2 << 20))?;
                    let one = Mr::all(&pd, &buffer)?;
                    let two = Mr::all(&pd, &buffer)?;
                    drop(buffer);
                    one.destroy()?;
                    two.destroy()?;
                }
            }
            Self::States => {
                let mut pair = Pair::new(ctx)?;
                link.tell(0)?;
                loop {
                    for number in 0..16 {
                        pair.b.receive(number, 0, 4096);
                        pair.a.qp.put(&pair.a.with(Wqe::send(number), 0, 4096));
                    }
                    pair.a.qp.ring_sq();
                    if rng.bool() {
                        pair.a.qp.to(qp_state::ERR)?;
                    }
                    pair.renew()?;
                }
            }
        }
    }
}

/// Two pairs whose SQs are always full.
fn traffic(ctx: &Arc<Context>, link: &Link, events: bool) -> Result<()> {
    let mut pairs = [Pair::new(ctx)?, Pair::new(ctx)?];
    let post = |pair: &mut Pair, number: u64| {
        let remote = pair.b.memory.addr() + 4096;
        let wqe = match number % 3 {
            0 => Wqe::write(number, remote, pair.b.mr.keys.rkey),
            1 => Wqe::read(number, remote, pair.b.mr.keys.rkey),
            _ => Wqe::new(opcode::NOP, number),
        };
        let wqe = if number % 3 == 2 {
            wqe
        } else {
            pair.a.with(wqe, 0, 32 << 10)
        };
        pair.a.qp.put(&wqe);
    };
    for pair in &mut pairs {
        for number in 0..60 {
            post(pair, number);
        }
        pair.a.qp.ring_sq();
    }
    link.tell(0)?;
    let mut next = 60;
    let mut last = Instant::now();
    loop {
        for pair in &mut pairs {
            let mut done = 0;
            while let Some(cqe) = pair.a.cq.poll() {
                ensure!(cqe.status == 0, "{cqe:?}");
                done += 1;
            }
            pair.a.cq.publish();
            // Without completions a call shows whether the device is gone.
            if done != 0 {
                last = Instant::now();
            } else if last.elapsed() > Duration::from_millis(50) {
                pair.a.qp.query()?;
                last = Instant::now();
            }
            for _ in 0..done {
                post(pair, next);
                next += 1;
            }
            pair.a.qp.ring_sq();
            if events && done == 0 {
                sleep(pair)?;
            }
        }
    }
}

/// Sleeps until an event of the pair, or of the device.
fn sleep(pair: &Pair) -> Result<()> {
    let fd = pair.a.cq.eventfd().context("eventfd")?;
    pair.a.cq.arm();
    let mut fds = [
        PollFd::new(fd, PollFlags::POLLIN),
        PollFd::new(pair.a.ctx.events(), PollFlags::POLLIN),
    ];
    let count = nix::poll::poll(
        &mut fds,
        nix::poll::PollTimeout::try_from(wait::patience())?,
    )?;
    ensure!(count > 0, "neither a completion event nor a device event");
    if fds[1].any() == Some(true) {
        // This call returns the reason.
        pair.a.qp.query()?;
    }
    pair.a.cq.events().map(drop)
}

/// Processes that keep a device busy until a reset, which ends their contexts.
pub(super) struct Load(Vec<Child>);

impl Load {
    /// Starts a process for each of `works`, and, if asked to, the kernel's own client. Returns at a
    /// random point of their work.
    pub(super) fn start(
        rng: &mut fastrand::Rng,
        device: usize,
        works: &[Work],
        with_kernel: bool,
    ) -> Result<Self> {
        let start = |work: &Work| work.start(device, rng.u64(..));
        let mut children: Vec<Child> = works.iter().map(start).collect::<Result<_>>()?;
        if with_kernel {
            let loopback = loopback_until_the_end(device)?;
            loopback.link().hear()?;
            children.push(loopback);
        }
        // A random delay, not a wait.
        std::thread::sleep(Duration::from_micros(rng.u64(0..20_000)));
        Ok(Self(children))
    }

    /// Waits until all have ended with their contexts, as required.
    pub(super) fn ended(mut self) -> Result<()> {
        self.0.iter_mut().try_for_each(ended_with_its_context)
    }

    /// Kills all, whatever became of them: each ends.
    pub(super) fn abandoned(mut self) -> Result<()> {
        for child in &mut self.0 {
            // It may have ended by itself.
            let _ = child.signal(Signal::SIGKILL);
            child.end(wait::patience())?;
        }
        Ok(())
    }

    /// Kills all, which must be at work.
    pub(super) fn killed(mut self) -> Result<()> {
        self.0.iter_mut().try_for_each(Child::kill)
    }
}

/// A process that runs the kernel's own client until it is interrupted.
fn loopback_until_the_end(device: usize) -> Result<Child> {
    let path = world::debugfs(device)?.join("loopback");
    Child::start(|link| {
        let file = std::fs::File::options().write(true).open(path)?;
        link.tell(1)?;
        loop {
            // By a reset or the removal of the device, or by the freezer, which interrupts the wait.
            match nix::unistd::write(&file, b"qps=4 count=1000000 verify=1") {
                Ok(_) => (),
                Err(Errno::EIO | Errno::ENODEV | Errno::EINTR) => return Ok(()),
                Err(errno) => bail!("a run was interrupted with {errno}"),
            }
        }
    })
}

/// Waits, asleep in `poll`, for the event that the context is dead, and takes it.
pub(super) fn told_of_the_end(ctx: &Context) -> Result<()> {
    wait::for_some("the event of the context's end", || {
        wait::readable(ctx.events(), "the event of the context's end")?;
        let event = ctx.async_event()?.context("readable without an event")?;
        Ok((event.kind == event::DEVICE_FATAL).then_some(()))
    })
}

/// Every call is refused.
pub(super) fn is_refused(ctx: &Context) -> Result<()> {
    let calls: [(&str, Result<(), Errno>); 3] = [
        ("QUERY_DEVICE", ctx.query_device().map(drop)),
        ("QUERY_PORT", ctx.query_port().map(drop)),
        ("ALLOC_PD", ctx.alloc_pd().map(drop)),
    ];
    for (what, result) in calls {
        ensure!(
            result == Err(Errno::EIO),
            "{what} of a dead context gave {result:?}, expected EIO"
        );
    }
    Ok(())
}

/// Every call is refused. Waits until the core has destroyed the objects: a call that does not need
/// the device may succeed before.
pub(super) fn is_dead(ctx: &Context) -> Result<()> {
    wait::until("the end of the context", || {
        Ok(ctx.query_device() == Err(Errno::EIO))
    })?;
    is_refused(ctx)
}

/// The context ended as on a reset: one event, then EIO.
pub(super) fn ended_by_a_reset(ctx: &Context) -> Result<()> {
    told_of_the_end(ctx)?;
    is_dead(ctx)
}

/// New files, and the kernel's own client, work, in one of these epochs.
pub(super) fn works_anew(
    device: usize,
    rng: &mut fastrand::Rng,
    epochs: RangeInclusive<u32>,
) -> Result<()> {
    let ctx = wait::for_some("a device that can be opened", || {
        Ok(Context::open(device).ok())
    })?;
    let epoch = ctx.info.limits.epoch;
    ensure!(epochs.contains(&epoch), "epoch {epoch}, not of {epochs:?}");
    Pair::new(&ctx)?.exchange(rng)?;
    let loopback = world::debugfs(device)?.join("loopback");
    world::put(&loopback, "qps=4 count=50 verify=1")?;
    let report = world::text(&loopback)?;
    ensure!(report.starts_with("result=ok"), "loopback: {report}");
    works(device, rng)
}

/// Waits for a process of the load, which ends by an error of its calls.
pub(super) fn ended_with_its_context(child: &mut Child) -> Result<()> {
    match child.end(wait::patience() * 2)? {
        End::Exit(0) => Ok(()),
        end => Err(anyhow!("a process whose device is gone ended with {end}")),
    }
}
