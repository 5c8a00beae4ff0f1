// SPDX-License-Identifier: GPL-2.0
//! Load: processes that keep a device busy in every way, until they are killed or the device is
//! removed.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

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
use qpair_abi::uapi;

use crate::children::Child;
use crate::children::End;
use crate::children::Link;
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

    /// Starts a process that does this forever, and returns when it is running.
    pub(super) fn start(self, device: usize, seed: u64) -> Result<Child> {
        self.start_until(device, seed, Errno::ENODEV)
    }

    /// As [`Work::start`]; the process succeeds when its context is dead and every call reports
    /// this errno.
    pub(super) fn start_until(self, device: usize, seed: u64, death: Errno) -> Result<Child> {
        let child = Child::start(|link| {
            let ctx = Context::open(device)?;
            let Err(error) = self.go_on(&ctx, seed, link) else {
                return Err(anyhow!("{self:?} ended by itself"));
            };
            let errno = error.root_cause().downcast_ref::<Errno>();
            ensure!(errno == Some(&death), "{self:?}: {error:#}");
            is_dead(&ctx, death)
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
                        pair.a.qp.to(uapi::QPAIR_QPS_ERROR)?;
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
            0 => Wqe::write(number, remote, pair.b.mr.arg.rkey),
            1 => Wqe::read(number, remote, pair.b.mr.arg.rkey),
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
    loop {
        for pair in &mut pairs {
            let mut done = 0;
            while let Some(cqe) = pair.a.cq.poll() {
                ensure!(cqe.status == 0, "{cqe:?}");
                done += 1;
            }
            // Also without completions: the doorbell shows whether the device is gone.
            pair.a.cq.publish();
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
        PollFd::new(pair.a.ctx.fd(), PollFlags::POLLIN),
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

/// Processes that keep device 0 busy until a reset, which ends their contexts.
pub(super) struct Load {
    children: Vec<Child>,
    loopback: Child,
}

impl Load {
    /// Starts a process for each of `works`, and the kernel's own client. Returns at a random point
    /// of their work.
    pub(super) fn start(rng: &mut fastrand::Rng, works: &[Work]) -> Result<Self> {
        let start = |work: &Work| work.start_until(0, rng.u64(..), Errno::EIO);
        let children = works.iter().map(start).collect::<Result<_>>()?;
        let loopback = loopback_until_the_end()?;
        loopback.link().hear()?;
        // A random delay, not a wait.
        std::thread::sleep(Duration::from_micros(rng.u64(0..20_000)));
        Ok(Self { children, loopback })
    }

    /// Waits until all have ended with their contexts, as required.
    pub(super) fn ended(mut self) -> Result<()> {
        for child in &mut self.children {
            ended_with_its_context(child)?;
        }
        self.loopback.done()
    }
}

/// A process that runs the kernel's own client until it is interrupted.
fn loopback_until_the_end() -> Result<Child> {
    let path = world::debugfs(0)?.join("loopback");
    Child::start(|link| {
        let file = std::fs::File::options().write(true).open(path)?;
        link.tell(1)?;
        loop {
            // By the removal of the device, or by the freezer, which interrupts the wait.
            match nix::unistd::write(&file, b"qps=4 count=1000000 verify=1") {
                Ok(_) => (),
                Err(Errno::EIO | Errno::EINTR) => return Ok(()),
                Err(errno) => bail!("a run was interrupted with {errno}"),
            }
        }
    })
}

/// Waits, asleep in `poll`, until the context is dead.
pub(super) fn told_of_the_end(ctx: &Context) -> Result<()> {
    let flags = wait::readable(ctx.fd().as_fd(), "the event of the context's end")?;
    ensure!(
        flags.contains(PollFlags::POLLERR | PollFlags::POLLHUP),
        "poll woke with {flags:?}"
    );
    Ok(())
}

/// Every call reports that the context is dead.
pub(super) fn is_dead(ctx: &Context, errno: Errno) -> Result<()> {
    // Calls may fail before sleepers wake, which happens when the shutdown is complete.
    told_of_the_end(ctx)?;
    let calls: [(&str, Result<(), Errno>); 4] = [
        (
            "QUERY_DEVICE",
            ctx.call(
                uapi::QPAIR_NR_QUERY_DEVICE,
                &mut uapi::qpair_query_device::default(),
            ),
        ),
        (
            "ALLOC_PD",
            ctx.call(
                uapi::QPAIR_NR_ALLOC_PD,
                &mut uapi::qpair_alloc_pd::default(),
            ),
        ),
        (
            "QUERY_COUNTERS",
            ctx.call(
                uapi::QPAIR_NR_QUERY_COUNTERS,
                &mut uapi::qpair_query_counters::default(),
            ),
        ),
        (
            "DESTROY_QP",
            ctx.call(
                uapi::QPAIR_NR_DESTROY_QP,
                &mut uapi::qpair_destroy::default(),
            ),
        ),
    ];
    for (what, result) in calls {
        ensure!(
            result == Err(errno),
            "{what} of a dead context gave {result:?}, expected {errno}"
        );
    }
    // Earlier events may still be read; then there are none.
    for _ in 0..100 {
        match ctx.async_event() {
            Ok(Some(_)) => (),
            Ok(None) => return Err(anyhow!("read of a dead context waits for events")),
            Err(error) => {
                let got = error.raw_os_error().map(Errno::from_raw);
                ensure!(
                    got == Some(errno),
                    "read of a dead context gave {error}, expected {errno}"
                );
                return Ok(());
            }
        }
    }
    Err(anyhow!("a dead context has events without end"))
}

/// Waits for a process of the load, which may end by an error of its calls, or by a doorbell's
/// SIGBUS.
pub(super) fn ended_with_its_context(child: &mut Child) -> Result<()> {
    match child.end(wait::patience() * 2)? {
        End::Exit(0) | End::Signal(Signal::SIGBUS) => Ok(()),
        end => Err(anyhow!("a process whose device is gone ended with {end}")),
    }
}
