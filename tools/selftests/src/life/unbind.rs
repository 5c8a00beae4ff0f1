// SPDX-License-Identifier: GPL-2.0
//! The driver is unbound, or the device removed, with files open.

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use nix::poll::PollFlags;
use qpair_uverbs::abi::event;

use super::load::is_dead;
use super::load::told_of_the_end;
use crate::children::Child;
use crate::devices;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Pair;
use crate::raw::Context;
use crate::wait;
use crate::world;
use crate::world::MemoryTrend;

/// Open files return EIO, and stay dead when the driver is bound again.
pub(super) fn with_files_open(setup: &Setup) -> Result<()> {
    let address = world::function(0)?;
    let pinned = world::pinned_pages()?;
    let mut pair = Pair::open(0)?;
    pair.exchange(&mut setup.rng())?;
    let idle = Context::open(0)?;
    devices::unbind(&address)?;
    for ctx in [&pair.a.ctx, &idle] {
        is_dead(ctx)?;
    }
    let late = Context::open_file(0)
        .map(drop)
        .map_err(|error| error.kind());
    ensure!(late.is_err(), "a device without a driver could be opened");
    let device = devices::bind(&address)?;
    works(device, &mut setup.rng()).context("with the driver back")?;
    is_dead(&pair.a.ctx).context("with the driver back")?;
    drop((pair, idle));
    wait::until("return of all pages", || {
        Ok(world::pinned_pages()? == pinned)
    })?;
    works(device, &mut setup.rng())
}

/// Sleepers wake, and a write to a doorbell does nothing.
pub(super) fn everybody_is_told(setup: &Setup) -> Result<()> {
    let address = world::function(0)?;
    let mut in_poll = Child::start(|link| {
        let ctx = Context::open(0)?;
        link.tell(1)?;
        let flags = wait::poll(ctx.events(), wait::patience())?;
        ensure!(
            flags.contains(PollFlags::POLLIN),
            "poll woke with {flags:?}"
        );
        is_dead(&ctx)
    })?;
    let mut in_read = Child::start(|link| {
        // Blocking: it waits for an event that never arrives.
        let ctx = Context::open(0)?;
        ctx.blocks()?;
        link.tell(1)?;
        let event = ctx.async_event()?.context("no event")?;
        ensure!(event.kind == event::DEVICE_FATAL, "{event:?}");
        is_dead(&ctx)
    })?;
    let mut at_doorbells = Child::start(|link| {
        let pair = Pair::open(0)?;
        link.tell(1)?;
        while pair.a.ctx.async_event()?.is_none() {
            pair.a.cq.publish();
        }
        is_dead(&pair.a.ctx)
    })?;
    let mut before_unbind = Child::start(|link| {
        // Mapped and never touched: there was no page to take away.
        let ctx = Context::open(0)?;
        link.tell(1)?;
        link.hear()?;
        ctx.page.load(0);
        ctx.page.ring(0, u32::MAX, 0);
        Ok(())
    })?;
    for child in [&in_poll, &in_read, &at_doorbells, &before_unbind] {
        child.link().hear()?;
    }
    // Wait until they sleep, most likely in these calls.
    for child in [&in_poll, &in_read] {
        let path = format!("/proc/{}/stat", child.pid());
        wait::until("sleep of a child", || {
            Ok(world::text(&path)?.contains(") S "))
        })?;
    }
    devices::unbind(&address)?;
    in_poll.done().context("asleep in poll")?;
    in_read.done().context("asleep in read")?;
    at_doorbells.done().context("ringing a doorbell")?;
    before_unbind.link().tell(1)?;
    before_unbind
        .done()
        .context("a doorbell that was mapped before")?;
    let device = devices::bind(&address)?;
    works(device, &mut setup.rng())
}

/// The module is removed while a file is open: the core takes the device away from the file.
pub(super) fn module_goes_under_files(setup: &Setup) -> Result<()> {
    let address = world::function(0)?;
    let mut pair = Pair::open(0)?;
    pair.exchange(&mut setup.rng())?;
    devices::remove_module().context("rmmod with a file open")?;
    ensure!(!std::path::Path::new("/sys/module/qpair").exists());
    is_dead(&pair.a.ctx).context("without the module")?;
    pair.a.ctx.page.ring(0, u32::MAX, 0);
    let device = devices::load_module(&address)?;
    works(device, &mut setup.rng())?;
    is_dead(&pair.a.ctx).context("with the module back")
}

/// The module is loaded and removed repeatedly, and used in between. All rounds are equal; their
/// number serves to detect memory leaks, which are not checked under detectors.
pub(super) fn module_comes_back(setup: &Setup) -> Result<()> {
    let address = world::function(0)?;
    let mut trend = MemoryTrend::default();
    for round in 0..world::rounds(60, 12) {
        let place = || format!("round {round}");
        wait::until("end of the module", || match devices::remove_module() {
            Ok(()) => Ok(true),
            Err(Errno::EAGAIN | Errno::EBUSY) => Ok(false),
            Err(errno) => Err(errno).with_context(place),
        })?;
        let device = devices::load_module(&address).with_context(place)?;
        works(device, &mut setup.rng()).with_context(place)?;
        trend.after(round).with_context(place)?;
    }
    trend.check()
}

/// The function is removed from its bus and found again.
pub(super) fn remove_and_rescan(setup: &Setup) -> Result<()> {
    let address = world::function(0)?;
    let mut pair = Pair::open(0)?;
    pair.exchange(&mut setup.rng())?;
    devices::remove(&address)?;
    is_dead(&pair.a.ctx)?;
    let device = devices::rescan(&address)?;
    works(device, &mut setup.rng())?;
    is_dead(&pair.a.ctx)
}

/// A function level reset through sysfs: old contexts are dead, new ones work.
pub(super) fn reset_by_sysfs(setup: &Setup) -> Result<()> {
    let address = world::function(0)?;
    let mut pair = Pair::open(0)?;
    pair.exchange(&mut setup.rng())?;
    let epoch = pair.a.ctx.info.limits.epoch;
    devices::reset(&address)?;
    told_of_the_end(&pair.a.ctx)?;
    is_dead(&pair.a.ctx)?;
    let after = Context::open(0)?.info.limits.epoch;
    ensure!(after == epoch + 1, "epoch {epoch} became {after}");
    works(0, &mut setup.rng())
}
