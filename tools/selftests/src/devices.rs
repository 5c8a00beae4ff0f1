// SPDX-License-Identifier: GPL-2.0
//! Unbinds and binds the driver, removes and rescans the device, unloads and loads the module.

use std::fs::File;
use std::path::Path;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use nix::kmod::DeleteModuleFlags;
use nix::kmod::ModuleInitFlags;

use crate::ktap;
use crate::raw::Context;
use crate::wait;
use crate::world;

const MODULE: &str = "/qpair/qpair.ko";

/// Unbinds the driver from the function.
pub(crate) fn unbind(address: &str) -> Result<()> {
    world::put(format!("{}/unbind", world::DRIVER), address)
}

/// Binds the driver, and waits for the device file; returns its number.
pub(crate) fn bind(address: &str) -> Result<usize> {
    world::put(format!("{}/bind", world::DRIVER), address)?;
    appeared(address)
}

/// Removes the function from its bus.
pub(crate) fn remove(address: &str) -> Result<()> {
    world::put(format!("/sys/bus/pci/devices/{address}/remove"), "1")
}

/// Rescans the bus, and waits for the device file.
pub(crate) fn rescan(address: &str) -> Result<usize> {
    world::put("/sys/bus/pci/rescan", "1")?;
    appeared(address)
}

/// Resets a function, which may have no RDMA device.
pub(crate) fn reset(address: &str) -> Result<()> {
    world::put(format!("/sys/bus/pci/devices/{address}/reset"), "1")
}

/// Resets device 0, which works. So the driver counts its next failure as the first, and recovers
/// without a pause.
pub(crate) fn forget_failures() -> Result<()> {
    reset(&world::function(0)?)
}

/// Waits until the function has a driver and a device file; returns the file's number.
pub(crate) fn appeared(address: &str) -> Result<usize> {
    wait::for_some(&format!("a device file for {address}"), || {
        for entry in std::fs::read_dir("/sys/class/infiniband")? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let Some(Ok(number)) = name.strip_prefix("qpair").map(str::parse::<usize>) else {
                continue;
            };
            // It may disappear meanwhile.
            if world::function(number).is_ok_and(|it| it == address)
                && Context::path(number).is_ok_and(|path| path.exists())
            {
                return Ok(Some(number));
            }
        }
        Ok(None)
    })
}

/// Waits until the function is no longer on its bus.
pub(crate) fn disappeared(address: &str) -> Result<()> {
    let path = format!("/sys/bus/pci/devices/{address}");
    wait::until(&format!("the end of {address}"), || {
        Ok(!Path::new(&path).exists())
    })
}

/// Removes the module; `EAGAIN` while it is in use.
pub(crate) fn remove_module() -> Result<(), Errno> {
    nix::kmod::delete_module(c"qpair", DeleteModuleFlags::O_NONBLOCK)
}

/// Loads the module, and waits for the device.
pub(crate) fn load_module(address: &str) -> Result<usize> {
    let file = File::open(MODULE).context(MODULE)?;
    nix::kmod::finit_module(&file, c"", ModuleInitFlags::empty()).context("loading the module")?;
    appeared(address)
}

/// PCI addresses of all functions with the device's IDs, with a driver or without.
fn functions() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/sys/bus/pci/devices")? {
        let address = entry?.file_name().to_string_lossy().into_owned();
        let id = |name| world::pci_id(&address, name).ok();
        if (id("vendor"), id("device")) == (Some(0x1234), Some(0x5150)) {
            found.push(address);
        }
    }
    found.sort();
    Ok(found)
}

/// Binds the driver to its devices again if a case has left it unbound, so that one failure does
/// not fail all later cases.
pub(crate) fn restore() -> Result<()> {
    let all = functions()?;
    let files =
        |count: usize| (0..count).all(|it| Context::path(it).is_ok_and(|path| path.exists()));
    if !all.is_empty() && files(all.len()) {
        return usable(all.len());
    }
    ktap::say("binding the driver to its devices again");
    if !Path::new("/sys/module/qpair").exists() {
        let file = File::open(MODULE).context(MODULE)?;
        nix::kmod::finit_module(&file, c"", ModuleInitFlags::empty())
            .context("loading the module")?;
    }
    if all.is_empty() {
        world::put("/sys/bus/pci/rescan", "1")?;
    }
    // In order, so that they get the first numbers.
    let all = functions()?;
    for address in &all {
        let _ = unbind(address);
    }
    for address in &all {
        bind(address)?;
    }
    ensure!(files(all.len()), "devices without their files: {all:?}");
    usable(all.len())
}

/// Waits until they can be opened, or are dead: they may be in the middle of a reset.
fn usable(count: usize) -> Result<()> {
    for device in 0..count {
        let what = format!("a usable device {device}");
        wait::until(&what, || {
            Ok(match Context::open_file(device) {
                Ok(_) => true,
                Err(error) => error.raw_os_error() == Some(libc::EOPNOTSUPP),
            })
        })?;
    }
    Ok(())
}
