// SPDX-License-Identifier: GPL-2.0
//! Operations of the whole device: its debug files, loopback runs, reset, sleep, probe, unbind.

use std::path::Path;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;

use super::nth::errno_of;
use super::nth::Faults;
use crate::devices;
use crate::ktap::Setup;
use crate::life::sleep::Sleep;
use crate::pair::works;
use crate::pair::Peer;
use crate::raw::Context;
use crate::wait;
use crate::world;
use crate::world::Log;

pub(super) fn debug_files(setup: &Setup) -> Result<()> {
    let peer = Peer::new(&Context::open(0)?, 4096)?;
    let folder = world::debugfs(0)?;
    let mut faults = Faults::new(setup)?;
    for (name, least) in [("live", 1), ("eqs", 0), ("clients", 0), ("device", 0)] {
        faults.try_all(
            &format!("reading {name}"),
            least,
            || Ok(()),
            |()| world::text(folder.join(name)).map(drop),
            |(), _| Ok(()),
        )?;
    }
    for (name, value) in [("moderation", "fixed 8 100"), ("budget", "64")] {
        let before = world::text(folder.join(name))?;
        faults.try_all(
            &format!("writing {name}"),
            1,
            || Ok(()),
            |()| world::put(folder.join(name), value),
            |(), _| world::put(folder.join(name), before.trim()),
        )?;
    }
    drop(peer);
    Ok(())
}

/// Runs with several CQs, with queue pairs that are connected in pairs, or each with itself.
pub(super) fn loopback(setup: &Setup) -> Result<()> {
    let mut faults = Faults::new(setup)?;
    let file = world::debugfs(0)?.join("loopback");
    for plan in [
        "qps=4 group=2 depth=4 count=8 op=send",
        "qps=2 group=1 depth=4 count=8 op=read",
    ] {
        let tally = faults.try_some(
            &format!("loopback {plan}"),
            30,
            40,
            || Ok(()),
            |()| world::put(&file, plan),
            |(), _| Ok(()),
        )?;
        ensure!(tally.refused() > 0, "no failure reached its caller");
    }
    Ok(())
}

/// An operation that takes the device down and brings it up. If it stays down, the test resets it,
/// unless the watchdog has. The first time that only the RDMA device is missing, the watchdog has to.
/// Returns whether the device stayed down, and whether the watchdog has registered it.
fn down_and_up(
    mut faults: Faults,
    setup: &Setup,
    name: &str,
    least: u32,
    most: u32,
    mut call: impl FnMut() -> Result<()>,
) -> Result<(bool, bool)> {
    let file = format!("/sys/bus/pci/devices/{}/reset", world::function(0)?);
    let is_up = || match Context::open_file(0) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(false),
        // There was no memory for the RDMA device.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).context("open of a device that is down"),
    };
    let (mut failed, mut came_back) = (false, false);
    let mut log = Log::mark()?;
    faults.try_some(
        name,
        least,
        most,
        || Peer::new(&Context::open(0)?, 4096),
        |_| call(),
        |_, _| {
            // The lines of this point alone: without memory for its name, the file of a device that
            // is up is missing, too, and the watchdog has nothing to do.
            let lines = log.lines()?;
            let says = |what| lines.iter().any(|(_, line)| line.contains(what));
            failed |= says("bring-up failed");
            let is_missing = says("no RDMA device");
            if is_up()? {
                came_back |= is_missing;
                return Ok(());
            }
            if is_missing && !came_back {
                came_back = true;
                return wait::until("the RDMA device, registered by the watchdog", is_up);
            }
            world::put(&file, "1")?;
            ensure!(is_up()?, "a reset did not bring it up");
            Ok(())
        },
    )?;
    works(0, &mut setup.rng())?;
    Ok((failed, came_back))
}

pub(super) fn reset(setup: &Setup) -> Result<()> {
    let file = format!("/sys/bus/pci/devices/{}/reset", world::function(0)?);
    let (failed, came_back) = down_and_up(Faults::new(setup)?, setup, "reset", 30, 30, || {
        world::put(&file, "1")
    })?;
    // A few points of a thousand may all be harmless.
    ensure!(
        world::is_brief() || failed && came_back,
        "the device came up every time, or was registered every time"
    );
    Ok(())
}

/// Unbinds the driver of virtio's console, which `init` binds again after a suspend. On the debug
/// kernel it takes a minute to suspend and to resume.
fn without_console() -> Result<()> {
    let driver = Path::new("/sys/bus/virtio/drivers/virtio_console");
    for entry in std::fs::read_dir(driver)? {
        let name = entry?.file_name();
        let name = name.to_str().context("a name")?;
        if name.starts_with("virtio") {
            world::put(driver.join("unbind"), name)?;
        }
    }
    Ok(())
}

/// Suspend and resume, as far as the devices. Failures are the calling task's own, and so the
/// callbacks of this device have to run in it: not asynchronously, as the other devices' do. The
/// last case, since the host cannot be asked afterwards.
pub(super) fn sleep(setup: &Setup) -> Result<()> {
    let file = format!("/sys/bus/pci/devices/{}/power/async", world::function(0)?);
    world::put(&file, "disabled")?;
    let faults = Faults::new(setup)?.without_host();
    without_console()?;
    let slept = down_and_up(faults, setup, "suspend and resume", 30, 12, || {
        Sleep::Devices(0).sleep()
    });
    world::put(&file, "enabled")?;
    slept.map(drop)
}

/// Checks that a function has no remains of a driver.
fn is_bare(address: &str) -> Result<()> {
    for path in [
        format!("/sys/bus/pci/devices/{address}/driver"),
        format!("{}/{address}", world::DEBUGFS),
        "/sys/class/infiniband/qpair0".to_string(),
    ] {
        ensure!(!Path::new(&path).exists(), "{path} is still there");
    }
    let interrupts = world::text("/proc/interrupts")?;
    ensure!(!interrupts.contains("qpair0-eq"), "{interrupts}");
    Ok(())
}

/// The errors of the PCI core without memory for the record of a BAR, for the domain of the
/// interrupts, or for their descriptors. If one of them had another cause, the last probe, without
/// a failure, would return it as well.
const OF_THE_CORE: [Errno; 3] = [Errno::EBUSY, Errno::ENODEV, Errno::ENOSPC];

pub(super) fn probe(setup: &Setup) -> Result<()> {
    let address = world::function(0)?;
    let bind = format!("{}/bind", world::DRIVER);
    devices::unbind(&address)?;
    let mut faults = Faults::near(setup)?;
    let tally = faults.try_some(
        "probe",
        50,
        30,
        || is_bare(&address),
        |()| match world::put(&bind, &address) {
            Err(error) if errno_of(&error).is_some_and(|errno| OF_THE_CORE.contains(&errno)) => {
                Err(Errno::ENOMEM.into())
            }
            other => other,
        },
        |(), bound| {
            if bound.is_some() {
                // The core ignores that its part for processes had no memory: then the RDMA device
                // has no file. Without an RDMA device, the watchdog registers it.
                if world::function(0).is_err() || Context::open_file(0).is_ok() {
                    ensure!(devices::appeared(&address)? == 0, "another number");
                    Context::open(0)?;
                }
                devices::unbind(&address)?;
            }
            is_bare(&address)
        },
    )?;
    ensure!(tally.refused() > 0, "no failure reached its caller");
    // Unbind never fails.
    faults.try_some(
        "unbind",
        0,
        8,
        || {
            devices::bind(&address)?;
            Peer::new(&Context::open(0)?, 4096)
        },
        |_| devices::unbind(&address),
        |_, done| done.context("unbind failed"),
    )?;
    devices::bind(&address)?;
    works(0, &mut setup.rng())
}
