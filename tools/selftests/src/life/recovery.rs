// SPDX-License-Identifier: GPL-2.0
//! Errors of the link, and devices that do not recover at once.

use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use qpair_abi::entry::opcode;
use serde_json::json;

use super::load::ended_by_a_reset;
use super::load::is_dead;
use super::load::told_of_the_end;
use super::load::works_anew;
use crate::devices;
use crate::devices::forget_failures;
use crate::host::Host;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Pair;
use crate::pair::Peer;
use crate::raw::Context;
use crate::raw::Wqe;
use crate::wait;
use crate::world;
use crate::world::Baseline;
use crate::world::Log;

/// Reports an error of the device or of its port to the guest. The names are QEMU's.
pub(super) fn inject(host: &mut Host, source: &str, error: &str) -> Result<()> {
    let command = format!("pcie_aer_inject_error {source} {error}");
    let said = host.qmp("human-monitor-command", json!({ "command-line": command }))?;
    let said = said.as_str().unwrap_or_default();
    ensure!(said.starts_with("OK"), "{command}: {said}");
    Ok(())
}

/// Waits until the kernel logs the end of recovery: "successful" or "failed".
pub(super) fn recovery_is(end: &str, log: &mut Log) -> Result<()> {
    let wanted = format!("device recovery {end}");
    let mut seen = Vec::new();
    wait::until("the end of recovery", || {
        seen.extend(log.lines()?.into_iter().map(|(_, line)| line));
        Ok(seen.iter().any(|line| line.contains(&wanted)))
    })
    .with_context(|| format!("the log has {seen:?}"))
}

pub(super) fn recovered(log: &mut Log) -> Result<()> {
    recovery_is("successful", log)
}

/// A transaction was lost, but the link works: no context ends.
pub(super) fn non_fatal_error(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let mut pair = Pair::open(0)?;
    for source in SOURCES {
        let mut log = Log::mark()?;
        pair.exchange(&mut setup.rng())?;
        inject(&mut host, source, "COMP_TIME")?;
        recovered(&mut log).context(source)?;
        pair.exchange(&mut setup.rng()).context(source)?;
    }
    let epoch = pair.a.ctx.info.limits.epoch;
    works_anew(0, &mut setup.rng(), epoch..=epoch)
}

/// The link is reset, and the device with it.
pub(super) fn fatal_error(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    for source in SOURCES {
        let mut log = Log::mark()?;
        let mut pair = Pair::open(0)?;
        pair.exchange(&mut setup.rng())?;
        let epoch = pair.a.ctx.info.limits.epoch;
        inject(&mut host, source, "DLP")?;
        ended_by_a_reset(&pair.a.ctx).context(source)?;
        recovered(&mut log).context(source)?;
        works_anew(0, &mut setup.rng(), epoch + 1..=epoch + 1).context(source)?;
        is_dead(&pair.a.ctx).context(source)?;
    }
    Ok(())
}

/// A failed link reads as ones until the slot is reset and the device responds: contexts die before
/// that.
pub(super) fn frozen_link(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let mut log = Log::mark()?;
    let ctx = Context::open(0)?;
    let epoch = ctx.info.limits.epoch;
    host.set(0, "vanish", true)?;
    let told = inject(&mut host, "port0", "DLP").and_then(|()| told_of_the_end(&ctx));
    host.set(0, "vanish", false)?;
    told?;
    recovered(&mut log)?;
    works_anew(0, &mut setup.rng(), epoch + 1..=epoch + 1)?;
    is_dead(&ctx)
}

/// Recovery of a link fails permanently if a function below the port has no driver. The device is
/// shut down as at unbind, and all memory is freed.
pub(super) fn permanent_failure(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let before = Baseline::take()?;
    let [address, sibling] = [world::function(0)?, world::function(1)?];
    ensure!(
        address.strip_suffix('0') == sibling.strip_suffix('1'),
        "{address} and {sibling} are not of one slot"
    );
    devices::unbind(&sibling)?;
    let mut pair = Pair::open(0)?;
    pair.exchange(&mut setup.rng())?;
    let mut log = Log::mark()?;
    inject(&mut host, "port0", "DLP")?;
    recovery_is("failed", &mut log)?;
    is_dead(&pair.a.ctx)?;
    drop(pair);
    let charged = world::charged_kib()?;
    ensure!(charged == 0, "{charged} KiB stay pinned");
    let mut log = Log::mark()?;
    for function in [&sibling, &address] {
        devices::remove(function)?;
    }
    let lines = log.lines()?;
    ensure!(
        !lines.iter().any(|(_, line)| line.contains("leaked")),
        "{lines:?}"
    );
    devices::rescan(&address)?;
    devices::appeared(&sibling)?;
    works(0, &mut setup.rng())?;
    before.settled()
}

/// The device comes up at the third attempt, or at the second if that is quicker than this test;
/// the log has only the first failure.
pub(super) fn comes_up_late(setup: &Setup) -> Result<()> {
    const FAILURES: u32 = 2;
    let mut host = Host::call()?;
    let before = Baseline::take()?;
    let mut log = Log::mark()?;
    let pair = Pair::open(0)?;
    let epoch = pair.a.ctx.info.limits.epoch;
    // Before the device stops, or it might already be up again. The device is idle: there are no
    // other commands.
    host.set(0, "fail-command", 1)?;
    host.set(0, "fatal", true)?;
    told_of_the_end(&pair.a.ctx)?;
    for failure in 0..FAILURES {
        wait::until("an attempt to bring the device up", || {
            Ok(host.get(0, "fail-command")? == 0)
        })
        .with_context(|| format!("attempt {failure}"))?;
        if failure + 1 < FAILURES {
            host.set(0, "fail-command", 1)?;
        }
        // An attempt uses one epoch when it starts, and another when it fails.
        let failed = epoch + 2 * (failure + 1);
        if let Ok(ctx) = Context::open(0) {
            let opened = ctx.info.limits.epoch;
            ensure!(
                opened > failed,
                "opened in epoch {opened}, down in {failed}"
            );
            host.set(0, "fail-command", 0)?;
            break;
        }
    }
    is_dead(&pair.a.ctx)?;
    works_anew(0, &mut setup.rng(), epoch + 3..=epoch + 2 * FAILURES + 1)?;
    let address = world::function(0)?;
    let mut errors = log.lines()?;
    errors.retain(|(level, line)| *level <= 3 && line.contains(&address));
    // One for the stop, and one for the failed bring-up.
    ensure!(errors.len() == 2, "{FAILURES} failures: {errors:?}");
    drop(pair);
    before.settled()
}

/// If a device stops each time after it has come up, the pauses grow. The log has each stop.
pub(super) fn stops_again(setup: &Setup) -> Result<()> {
    const STOPS: u32 = 4;
    let mut host = Host::call()?;
    let address = world::function(0)?;
    forget_failures()?;
    let mut log = Log::mark()?;
    let mut took = Vec::new();
    for stop in 0..STOPS {
        let ctx = Context::open(0)?;
        let begin = Instant::now();
        host.set(0, "fatal", true)?;
        told_of_the_end(&ctx)?;
        let epoch = ctx.info.limits.epoch + 1;
        works_anew(0, &mut setup.rng(), epoch..=epoch).with_context(|| format!("stop {stop}"))?;
        took.push(begin.elapsed());
    }
    // After the third stop the watchdog runs four times without a reset, and so waits at least
    // three pauses.
    let last = took.last().context("a stop")?;
    ensure!(*last >= Duration::from_secs(3), "up again after {took:?}");
    let mut errors = log.lines()?;
    errors.retain(|(level, line)| *level <= 3 && line.contains(&address));
    ensure!(errors.len() == STOPS as usize, "{STOPS} stops: {errors:?}");
    let device = world::debugfs(0)?.join("device");
    let attempts = || world::field(&device.to_string_lossy(), "attempts");
    ensure!(attempts()? == i64::from(STOPS), "{} attempts", attempts()?);
    // A reset by another cause ends the pauses at the watchdog's next run.
    forget_failures()?;
    wait::until("a device without failures", || Ok(attempts()? == 0))
}

/// The device cannot be reset for a while: the driver resets it as soon as it can. Meanwhile its
/// users are told of the end, and get their memory back: it may access none. The driver stops its DMA
/// at the second attempt.
pub(super) fn reset_late(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let before = Baseline::take()?;
    let mut log = Log::mark()?;
    let address = world::function(0)?;
    let methods = format!("/sys/bus/pci/devices/{address}/reset_method");
    let pair = Pair::open(0)?;
    let epoch = pair.a.ctx.info.limits.epoch;
    world::put(&methods, "\n")?;
    // Bus mastering switched off, and a reset by the register.
    let failed = host
        .set(0, "ignore-stops", 2)
        .and_then(|()| host.set(0, "fatal", true))
        .and_then(|()| told_of_the_end(&pair.a.ctx))
        .and_then(|()| {
            ensure!(!world::is_master(&address)?, "told, and it may do DMA");
            wait::until("an attempt to reset the device", || {
                let lines = log.lines()?;
                Ok(lines.iter().any(|it| it.1.contains("cannot be reset")))
            })
        });
    world::put(&methods, "default")?;
    failed?;
    is_dead(&pair.a.ctx)?;
    works_anew(0, &mut setup.rng(), epoch + 1..=epoch + 1)?;
    drop(pair);
    before.settled()
}

/// A reset by another cause recovers a device that the watchdog is about to reset: a context opened
/// after that reset survives the watchdog's next runs.
pub(super) fn reset_once(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let mut rng = setup.rng();
    let reset = format!("/sys/bus/pci/devices/{}/reset", world::function(0)?);
    for round in 0..world::rounds(4, 2) {
        let place = || format!("round {round}");
        host.set(0, "fatal", true)?;
        // About the time of the watchdog's next run: the last one ended the round before.
        std::thread::sleep(Duration::from_millis(rng.u64(900..1200)));
        world::put(&reset, "1").with_context(place)?;
        let mut peer = Peer::new(&Context::open(0).with_context(place)?, 4096)?;
        peer.qp.connect(peer.qp.number)?;
        // Only the watchdog finds an event whose interrupt is lost.
        host.set(0, "drop-interrupts", 1)?;
        peer.cq.arm();
        peer.qp.post(&Wqe::new(opcode::NOP, 1));
        wait::readable(peer.cq.eventfd().context("eventfd")?, "a look").with_context(place)?;
        host.set(0, "drop-interrupts", 0)?;
        peer.done(1).with_context(place)?;
        peer.ctx.counters().with_context(place)?;
    }
    works(0, &mut setup.rng())
}

/// The sources of errors: the device's port, and the device.
pub(super) const SOURCES: [&str; 2] = ["port0", "qpair0"];
