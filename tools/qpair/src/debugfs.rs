// SPDX-License-Identifier: GPL-2.0
//! The driver's files: a folder of debugfs for each function.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::session;

/// Where the folders of the two drivers are, one for each function.
const DEBUGFS: &str = "/sys/kernel/debug/qpair";
const STREAM_DEBUGFS: &str = "/sys/kernel/debug/qpair-stream";

/// The driver of functions of channels.
const STREAM: &str = "/sys/bus/pci/drivers/qpair-stream";

/// The folder of the first function of channels.
pub(crate) fn stream() -> anyhow::Result<PathBuf> {
    let mut names: Vec<_> = fs::read_dir(STREAM)
        .context("the driver is not there: load the module qpair-stream")?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.contains(':'))
        .collect();
    names.sort();
    let name = names.first().context(
        "there is no function of channels: start QEMU with -device qpair-stream \
         (scripts/guest --stream)",
    )?;
    let folder = Path::new(STREAM_DEBUGFS).join(name);
    look_at(&folder)?;
    Ok(folder)
}

/// The folder of the given device, or of the first; it must contain `file`.
pub(crate) fn folder(device: Option<&str>, file: &str) -> anyhow::Result<PathBuf> {
    let device = session::device(device)?;
    // The folder has the function's name.
    let function = fs::canonicalize(device.function())
        .with_context(|| format!("{} is no device with a function", device.name()))?;
    let name = function.file_name().context("a function without a name")?;
    let folder = Path::new(DEBUGFS).join(name);
    look_at(&folder.join(file))?;
    Ok(folder)
}

/// Fails, with the remedy, if a file of debugfs is not there.
fn look_at(path: &Path) -> anyhow::Result<()> {
    fs::metadata(path).map(drop).with_context(|| {
        format!(
            "{} is not there: this needs root, and debugfs (mount -t debugfs none /sys/kernel/debug)",
            path.display()
        )
    })
}
