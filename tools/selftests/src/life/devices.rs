// SPDX-License-Identifier: GPL-2.0
//! Taking a driver from its device, a device from its bus, a module from the kernel; and putting
//! them back.

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

/// Takes the driver from the function.
pub(crate) fn unbind(address: &str) -> Result<()> {
    world::put(format!("{}/unbind", world::DRIVER), address)
}

/// Gives it back, and waits for its file; gives the number of that.
pub(crate) fn bind(address: &str) -> Result<usize> {
    world::put(format!("{}/bind", world::DRIVER), address)?;
    appeared(address)
}

/// Takes the function from its bus.
pub(super) fn remove(address: &str) -> Result<()> {
    world::put(format!("/sys/bus/pci/devices/{address}/remove"), "1")
}

/// Looks for it again, and waits for its file.
pub(super) fn rescan(address: &str) -> Result<usize> {
    world::put("/sys/bus/pci/rescan", "1")?;
    appeared(address)
}

/// Resets device 0, which works. So its next failure is the first one for the driver, which mends
/// it without a pause.
pub(super) fn forget_failures() -> Result<()> {
    let address = world::function(0)?;
    world::put(format!("/sys/bus/pci/devices/{address}/reset"), "1")
}

/// Waits until the function has a driver and a file; gives the number of that.
pub(crate) fn appeared(address: &str) -> Result<usize> {
    wait::for_some(&format!("a device file for {address}"), || {
        for entry in std::fs::read_dir("/sys/class/misc")? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let Some(Ok(number)) = name.strip_prefix("qpair").map(str::parse::<usize>) else {
                continue;
            };
            // It may go while we look at it.
            if world::function(number).is_ok_and(|it| it == address)
                && Path::new("/dev").join(&name).exists()
            {
                return Ok(Some(number));
            }
        }
        Ok(None)
    })
}

/// Waits until the function is no more on its bus.
pub(super) fn disappeared(address: &str) -> Result<()> {
    let path = format!("/sys/bus/pci/devices/{address}");
    wait::until(&format!("the end of {address}"), || {
        Ok(!Path::new(&path).exists())
    })
}

/// Removes the module; `EAGAIN` while something has it.
pub(super) fn remove_module() -> Result<(), Errno> {
    nix::kmod::delete_module(c"qpair", DeleteModuleFlags::O_NONBLOCK)
}

/// Loads it again, and waits for the device.
pub(super) fn load_module(address: &str) -> Result<usize> {
    let file = File::open(MODULE).context(MODULE)?;
    nix::kmod::finit_module(&file, c"", ModuleInitFlags::empty()).context("loading the module")?;
    appeared(address)
}

/// PCI addresses of all functions that the driver is for, with a driver or without.
fn functions() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/sys/bus/pci/devices")? {
        let path = entry?.path();
        let id = |name: &str| world::text(path.join(name)).unwrap_or_default();
        if id("vendor").trim() == "0x1234" && id("device").trim() == "0x5150" {
            let name = path.file_name().context("a device without a name")?;
            found.push(name.to_string_lossy().into_owned());
        }
    }
    found.sort();
    Ok(found)
}

/// Brings the driver back to its devices, should a case have left it without: so that one
/// that failed does not take all others with it.
pub(crate) fn restore() -> Result<()> {
    let all = functions()?;
    let files = |count: usize| (0..count).all(|it| Path::new(&Context::path(it)).exists());
    if !all.is_empty() && files(all.len()) {
        return usable(all.len());
    }
    ktap::say("bringing the driver back to its devices");
    if !Path::new("/sys/module/qpair").exists() {
        let file = File::open(MODULE).context(MODULE)?;
        nix::kmod::finit_module(&file, c"", ModuleInitFlags::empty())
            .context("loading the module")?;
    }
    if all.is_empty() {
        world::put("/sys/bus/pci/rescan", "1")?;
    }
    // From the first on, so that they get the first numbers.
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

/// Waits until they can be opened, or never can: they may be in the middle of a reset.
fn usable(count: usize) -> Result<()> {
    for device in 0..count {
        let what = format!("a usable {}", Context::path(device));
        wait::until(&what, || {
            Ok(match Context::open_file(device) {
                Ok(_) => true,
                Err(error) => error.raw_os_error() == Some(libc::EOPNOTSUPP),
            })
        })?;
    }
    Ok(())
}
