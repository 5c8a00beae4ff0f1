// SPDX-License-Identifier: GPL-2.0
//! Devices that do not come back at once.

use std::time::Duration;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::entry::opcode;

use super::load::is_dead;
use super::load::told_of_the_end;
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

/// New files, and the kernel's own client, work, in one of these epochs.
pub(super) fn works_anew(setup: &Setup, epochs: std::ops::RangeInclusive<u32>) -> Result<()> {
    let ctx = wait::for_some("a device that can be opened", || Ok(Context::open(0).ok()))?;
    let epoch = ctx.info.epoch;
    ensure!(epochs.contains(&epoch), "epoch {epoch}, not of {epochs:?}");
    Pair::new(&ctx)?.exchange(&mut setup.rng())?;
    let loopback = world::debugfs(0)?.join("loopback");
    world::put(&loopback, "qps=4 count=50 verify=1")?;
    let report = world::text(&loopback)?;
    ensure!(report.starts_with("result=ok"), "loopback: {report}");
    works(0, &mut setup.rng())
}

/// The device comes up at the third attempt; the log has the first failure alone.
pub(super) fn comes_up_late(setup: &Setup) -> Result<()> {
    const FAILURES: u32 = 2;
    let mut host = Host::call()?;
    let before = Baseline::take()?;
    let mut log = Log::mark()?;
    let pair = Pair::open(0)?;
    let epoch = pair.a.ctx.info.epoch;
    // Before the device stops, or it might be up again by then. It is idle: no command comes.
    host.set(0, "fail-command", 1)?;
    host.set(0, "fatal", true)?;
    told_of_the_end(&pair.a.ctx)?;
    for failure in 0..FAILURES {
        wait::until("an attempt to bring the device up", || {
            Ok(host.get(0, "fail-command")? == 0)
        })
        .with_context(|| format!("attempt {failure}"))?;
        let late = Context::open(0).map(drop);
        ensure!(late.is_err(), "a device that did not come up was opened");
        if failure + 1 < FAILURES {
            host.set(0, "fail-command", 1)?;
        }
    }
    is_dead(&pair.a.ctx, Errno::EIO)?;
    // An attempt takes an epoch when it begins, and another when it fails.
    works_anew(setup, epoch + 2 * FAILURES + 1..=epoch + 2 * FAILURES + 1)?;
    let address = world::function(0)?;
    let mut errors = log.lines()?;
    errors.retain(|(level, line)| *level <= 3 && line.contains(&address));
    // That it stopped, and that it did not come up.
    ensure!(errors.len() == 2, "{FAILURES} failures: {errors:?}");
    drop(pair);
    before.settled()
}

/// There is no way to reset the device for a while: it is reset as soon as there is one.
pub(super) fn reset_late(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let before = Baseline::take()?;
    let mut log = Log::mark()?;
    let methods = format!("/sys/bus/pci/devices/{}/reset_method", world::function(0)?);
    let pair = Pair::open(0)?;
    let epoch = pair.a.ctx.info.epoch;
    world::put(&methods, "\n")?;
    let failed = host
        .set(0, "fatal", true)
        .and_then(|()| told_of_the_end(&pair.a.ctx))
        .and_then(|()| {
            wait::until("an attempt to reset the device", || {
                let lines = log.lines()?;
                Ok(lines.iter().any(|it| it.1.contains("cannot be reset")))
            })
        });
    world::put(&methods, "default")?;
    failed?;
    is_dead(&pair.a.ctx, Errno::EIO)?;
    works_anew(setup, epoch + 1..=epoch + 1)?;
    drop(pair);
    before.settled()
}

/// A reset from outside mends a device that the watchdog is about to reset: a context of after
/// that reset outlives the watchdog's next looks.
pub(super) fn reset_once(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let mut rng = setup.rng();
    let reset = format!("/sys/bus/pci/devices/{}/reset", world::function(0)?);
    for round in 0..world::rounds(4, 2) {
        let place = || format!("round {round}");
        host.set(0, "fatal", true)?;
        // About the watchdog's next look: the last one ended the round before.
        std::thread::sleep(Duration::from_millis(rng.u64(900..1200)));
        world::put(&reset, "1").with_context(place)?;
        let mut peer = Peer::new(&Context::open(0).with_context(place)?, 4096)?;
        peer.qp.connect(peer.qp.handle)?;
        // Only a look of the watchdog finds an event whose interrupt is lost.
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
