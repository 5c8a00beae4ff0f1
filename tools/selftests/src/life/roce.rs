// SPDX-License-Identifier: GPL-2.0
//! A device with a port of RoCE, which has kernel ULPs: `ib_mad` posts receives to queue
//! pair 1.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;

use super::fault::hang;
use super::fault::Place;
use super::load::told_of_the_end;
use super::recovery::inject;
use super::recovery::recovery_is;
use crate::children::Child;
use crate::devices;
use crate::host::Host;
use crate::ktap::Setup;
use crate::raw::Context;
use crate::wait;
use crate::world;
use crate::world::Baseline;
use crate::world::Log;

/// Receives that kernel ULPs have posted, of the clients of a device.
fn posted(clients: &Path) -> Result<u64> {
    let mut sum = 0;
    for line in world::text(clients)?.lines() {
        if let (true, Some((_, recvs))) = (line.starts_with("qp "), line.split_once(" recvs ")) {
            sum += recvs.trim().parse::<u64>()?;
        }
    }
    Ok(sum)
}

/// Behind a failed link that reads as ones, the device may do DMA again at any time: what users in
/// the kernel have posted is flushed after the reset of the slot, and not before.
pub(super) fn flushed_when_quiet(_setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let address = world::function(0)?;
    // On a busy host the watchdog is often the first.
    for _ in 0..20 {
        if kept_until_the_reset(&mut host)? {
            return Ok(());
        }
        devices::remove(&address)?;
        devices::rescan(&address)?;
    }
    anyhow::bail!("the watchdog always looks before the error is reported")
}

/// False if the watchdog was quicker than the report of the error: without that, a device that
/// reads as ones is gone.
fn kept_until_the_reset(host: &mut Host) -> Result<bool> {
    let (mut log, mut recovery) = (Log::mark()?, Log::mark()?);
    let clients = world::debugfs(0)?.join("clients");
    let before = wait::for_some("receives of ib_mad", || {
        Ok(Some(posted(&clients)?).filter(|posted| *posted > 0))
    })?;
    let ctx = Context::open(0)?;
    host.set(0, "vanish", true)?;
    let frozen = inject(host, "port0", "DLP")
        .and_then(|()| told_of_the_end(&ctx))
        .and_then(|()| {
            // Nothing may happen: a worker of the core has a second for it. A busy host may hide the
            // bug, and fails no correct driver.
            std::thread::sleep(Duration::from_secs(1));
            posted(&clients)
        });
    host.set(0, "vanish", false)?;
    drop(ctx);
    let lines = log.lines()?;
    // The tables of such a device may not be read.
    if lines.iter().any(|(_, line)| line.contains("is gone")) {
        recovery_is("", &mut recovery)?;
        return Ok(false);
    }
    let frozen = frozen?;
    ensure!(frozen == before, "{frozen} of {before} receives are kept");
    recovery_is("successful", &mut recovery)?;
    // The old device has none any more, the new one has its own.
    wait::until("the receives of a new device", || {
        Ok(posted(&clients)? == before)
    })
    .context("after the reset")?;
    open_again()?;
    Ok(true)
}

/// Opens the device that takes the place of one that was lost. The old one may still be there.
fn open_again() -> Result<()> {
    wait::until("a new device", || {
        Ok((0..2).any(|name| Context::open(name).is_ok()))
    })
}

/// Whether the driver has a CQ of a kernel ULP, by the clients of a device.
fn has_queues(clients: &Path) -> Result<bool> {
    let text = world::text(clients)?;
    Ok(text.lines().any(|line| line.starts_with("cq ")))
}

/// A device fails while it is being registered, and neither loses bus mastering nor resets: `ib_mad`
/// gets its memory back, and may free it, only when it does no more DMA. Meanwhile probe ends, and
/// the device recovers as soon as it can be stopped.
pub(super) fn lost_while_registered(_setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let before = Baseline::take()?;
    let address = world::function(0)?;
    let methods = format!("/sys/bus/pci/devices/{address}/reset_method");
    let clients = world::debugfs(0)?.join("clients");
    devices::unbind(&address)?;
    world::put(&methods, "\n")?;
    // It must be seen between two commands of `ib_mad`.
    host.set(0, "wqe-ns", 500_000_000)?;
    let bind = {
        let address = address.clone();
        std::thread::spawn(move || world::put(format!("{}/bind", world::DRIVER), &address))
    };
    let failed = wait::until("a CQ of ib_mad", || {
        Ok(clients.exists() && has_queues(&clients)?)
    })
    .and_then(|()| host.set(0, "ignore-stops", u32::MAX))
    .and_then(|()| host.set(0, "fatal", true))
    .and_then(|()| wait::until("the end of probe", || Ok(bind.is_finished())))
    .and_then(|()| {
        ensure!(world::is_master(&address)?, "it does no DMA");
        ensure!(has_queues(&clients)?, "a CQ is gone while it may do DMA");
        Ok(())
    });
    host.set(0, "wqe-ns", 0)?;
    host.set(0, "ignore-stops", 0)?;
    let released = wait::until("the end of ib_mad's CQ", || Ok(!has_queues(&clients)?));
    let is_master = world::is_master(&address);
    world::put(&methods, "default")?;
    // Before any failure is reported: the next case must not find a probe under way.
    let bound = bind.join().expect("a thread that does not panic");
    failed.and(bound)?;
    released?;
    ensure!(!is_master?, "released, and it may do DMA");
    open_again()?;
    before.settled()
}

/// While a call of a process hangs, the core does not remove `ib_mad`, whose buffers are mapped. Unbind
/// waits for that, and ends when the call does.
pub(super) fn unbound_when_unmapped(_setup: &Setup) -> Result<()> {
    let address = world::function(0)?;
    let mut child = Child::start(|link| hang(Place::Request, 0, link))?;
    child.link().hear()?;
    let unbinder = {
        let address = address.clone();
        std::thread::spawn(move || devices::unbind(&address))
    };
    // A shutdown waits five seconds for the call. A busy host may hide that unbind waits no longer, and
    // fails no correct driver.
    std::thread::sleep(Duration::from_secs(8));
    let early = unbinder.is_finished();
    child.link().tell(1)?;
    child.done()?;
    unbinder.join().expect("a thread that does not panic")?;
    devices::bind(&address)?;
    open_again()?;
    ensure!(!early, "unbind has left the buffers of ib_mad mapped");
    Ok(())
}
