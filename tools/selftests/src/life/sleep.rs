// SPDX-License-Identifier: GPL-2.0
//! Suspend and hibernation: the device loses its state, contexts end as on a reset, new ones work.

use std::path::Path;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use qpair_uverbs::abi::event;

use super::load::ended_by_a_reset;
use super::load::is_dead;
use super::load::works_anew;
use crate::children::Child;
use crate::devices::forget_failures;
use crate::host::Host;
use crate::ktap::skip;
use crate::ktap::Setup;
use crate::pair::Pair;
use crate::raw::Context;
use crate::wait;
use crate::world;
use crate::world::Baseline;
use crate::world::Log;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sleep {
    /// Suspend to RAM. The machine resets the device; `scripts/guest` wakes the machine.
    Ram,
    /// Suspend of the devices only, for this many seconds.
    Devices(u32),
    /// Hibernation of the devices only: freeze and thaw.
    Frozen,
    /// Hibernation, with an image that is written and restored at once: freeze, thaw, freeze,
    /// restore.
    Image,
}

impl Sleep {
    /// Sleeps, and returns when the machine is awake.
    pub(crate) fn sleep(self) -> Result<()> {
        let (test, seconds, state) = match self {
            Self::Ram => ("none", 0, "mem"),
            Self::Devices(seconds) => ("devices", seconds, "mem"),
            Self::Frozen => ("devices", 0, "disk"),
            Self::Image => ("none", 0, "disk"),
        };
        world::put("/sys/power/pm_test", test)?;
        for module in ["suspend", "hibernate"] {
            let delay = format!("/sys/module/{module}/parameters/pm_test_delay");
            world::put(delay, &seconds.to_string())?;
        }
        if matches!(self, Self::Ram) {
            world::put("/sys/power/mem_sleep", "deep")?;
        }
        if matches!(self, Self::Image) {
            world::put("/sys/power/disk", "test_resume")?;
        }
        let slept = world::put("/sys/power/state", state);
        world::put("/sys/power/pm_test", "none")?;
        slept
    }
}

/// A process that sleeps in a blocking `read`, which reports the end of the context as one event.
fn reader() -> Result<Child> {
    Child::start(|link| {
        let ctx = Context::open(0)?;
        ctx.blocks()?;
        link.tell(1)?;
        let event = ctx.async_event()?.context("no event")?;
        ensure!(event.kind == event::DEVICE_FATAL, "{event:?}");
        is_dead(&ctx)
    })
}

/// A process that rings doorbells until its context is dead.
fn ringer() -> Result<Child> {
    Child::start(|link| {
        let pair = Pair::open(0)?;
        link.tell(1)?;
        while pair.a.ctx.async_event()?.is_none() {
            pair.a.cq.publish();
        }
        is_dead(&pair.a.ctx)
    })
}

fn slept(setup: &Setup, how: Sleep) -> Result<()> {
    let before = Baseline::take()?;
    let mut pair = Pair::open(0)?;
    pair.exchange(&mut setup.rng())?;
    let epoch = pair.a.ctx.info.limits.epoch;
    let mut reader = reader()?;
    let mut ringer = ringer()?;
    reader.link().hear()?;
    ringer.link().hear()?;
    how.sleep()?;
    ended_by_a_reset(&pair.a.ctx)?;
    reader.done().context("asleep in read")?;
    ringer.done().context("ringing a doorbell")?;
    works_anew(0, &mut setup.rng(), epoch + 1..=epoch + 1)?;
    is_dead(&pair.a.ctx).context("awake")?;
    drop(pair);
    before.settled()
}

/// Processes that sleep and ring, the device idle.
pub(super) fn suspended(setup: &Setup) -> Result<()> {
    slept(setup, Sleep::Ram)
}

/// The device does not stop when it is to sleep. So the system stays awake, and the device is up
/// again. The log says so once. The host is asked before, for its port does not work after a suspend.
pub(super) fn refused(setup: &Setup) -> Result<()> {
    let before = Baseline::take()?;
    forget_failures()?;
    let mut log = Log::mark()?;
    let mut pair = Pair::open(0)?;
    pair.exchange(&mut setup.rng())?;
    let epoch = pair.a.ctx.info.limits.epoch;
    // A reset, and bus mastering switched off. The reset by which the device comes up works.
    Host::call()?.set(0, "ignore-stops", 2)?;
    let slept = Sleep::Devices(0).sleep();
    ensure!(slept.is_err(), "slept beside a device that may do DMA");
    ended_by_a_reset(&pair.a.ctx)?;
    works_anew(0, &mut setup.rng(), epoch + 1..=epoch + 1)?;
    let lines = log.lines()?;
    for message in ["the device does not reset", "bus mastering stays enabled"] {
        let count = lines.iter().filter(|it| it.1.contains(message)).count();
        ensure!(count == 1, "'{message}' {count} times: {lines:?}");
    }
    drop(pair);
    before.settled()
}

/// An image of the system is created, and the system continues.
pub(super) fn frozen_and_thawed(setup: &Setup) -> Result<()> {
    slept(setup, Sleep::Frozen)
}

/// An image of the system is created, written to swap, and restored.
pub(super) fn restored_from_an_image(setup: &Setup) -> Result<()> {
    let disk = "/dev/vda";
    if !Path::new(disk).exists() {
        return Err(skip("needs a disk to write the image to"));
    }
    let mkswap = std::process::Command::new("mkswap").arg(disk).output()?;
    ensure!(mkswap.status.success(), "mkswap: {mkswap:?}");
    let swapon = std::process::Command::new("swapon").arg(disk).output()?;
    ensure!(swapon.status.success(), "swapon: {swapon:?}");
    let number = world::text("/sys/class/block/vda/dev")?;
    let slept = world::put("/sys/power/resume", number.trim())
        .and_then(|()| self::slept(setup, Sleep::Image));
    let swapoff = std::process::Command::new("swapoff").arg(disk).output()?;
    ensure!(swapoff.status.success(), "swapoff: {swapoff:?}");
    slept
}

/// Neither watchdog nor sampler runs while the device is suspended, and both run before and after.
/// A poll may run, and finds no EQ.
pub(super) fn asleep_the_driver_rests(setup: &Setup) -> Result<()> {
    const TRACING: &str = "/sys/kernel/tracing";
    const EVENTS: [&str; 3] = [
        "power/device_pm_callback_start",
        "power/device_pm_callback_end",
        "workqueue/workqueue_execute_start",
    ];
    /// Parts of the functions' names, besides the module's.
    const WORKS: [&str; 2] = ["5WatchE3run", "7SamplerE3run"];
    if !Path::new(TRACING).join("events/power").exists() {
        return Err(skip("needs the trace points of power management"));
    }
    let switch = |on: &str| -> Result<()> {
        for event in EVENTS {
            world::put(format!("{TRACING}/events/{event}/enable"), on)?;
        }
        Ok(())
    };
    let trace = || world::text(format!("{TRACING}/trace"));
    let runs = |line: &str, work: &str| line.contains(work) && line.contains("[qpair]");
    let seen = |lines: &[&str]| WORKS.map(|work| lines.iter().any(|line| runs(line, work)));
    let address = world::function(0)?;
    let of_ours = |line: &str, what: &str| line.contains(what) && line.contains(&address);
    let resumed =
        |line: &str| of_ours(line, "device_pm_callback_start") && line.contains("[resume]");
    // The positions of the device's suspend and resume.
    let sleep = |lines: &[&str]| -> Result<(usize, usize)> {
        let awake = lines.iter().position(|line| resumed(line));
        let awake = awake.context("the device was not resumed")?;
        let slept = lines[..awake]
            .iter()
            .rposition(|line| of_ours(line, "device_pm_callback_end"))
            .context("the device was not suspended")?;
        Ok((slept, awake))
    };

    world::put(format!("{TRACING}/trace"), "")?;
    switch("1")?;
    let ran = wait::until("watchdog and sampler", || {
        let trace = trace()?;
        Ok(seen(&trace.lines().collect::<Vec<_>>()) == [true; 2])
    });
    // Three times the watchdog's interval.
    let slept = ran.and_then(|()| Sleep::Devices(3).sleep());
    let run_again = slept.and_then(|()| {
        wait::until("watchdog and sampler after the sleep", || {
            let trace = trace()?;
            let lines: Vec<&str> = trace.lines().collect();
            let (_, awake) = sleep(&lines)?;
            Ok(seen(&lines[awake..]) == [true; 2])
        })
    });
    switch("0")?;
    run_again?;
    let trace = trace()?;
    let lines: Vec<&str> = trace.lines().collect();
    let (slept, awake) = sleep(&lines)?;
    let ours: Vec<&&str> = lines[slept..awake]
        .iter()
        .filter(|line| WORKS.iter().any(|work| runs(line, work)))
        .collect();
    ensure!(ours.is_empty(), "ran while the device slept: {ours:?}");
    works_anew(0, &mut setup.rng(), 0..=u32::MAX)
}
