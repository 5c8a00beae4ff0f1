// SPDX-License-Identifier: GPL-2.0
//! The driver's files: a folder of debugfs for each function.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::session;

/// Where the driver's folders are, one for each function.
const DEBUGFS: &str = "/sys/kernel/debug/qpair";

/// The folder of the given device, or of the first; it must contain `file`.
pub(crate) fn folder(device: Option<&str>, file: &str) -> anyhow::Result<PathBuf> {
    let device = session::device(device)?;
    // The folder has the function's name.
    let function = fs::canonicalize(device.function())
        .with_context(|| format!("{} is no device with a function", device.name()))?;
    let name = function.file_name().context("a function without a name")?;
    let folder = Path::new(DEBUGFS).join(name);
    fs::metadata(folder.join(file)).with_context(|| {
        format!(
            "{} is not there: this needs root, and debugfs (mount -t debugfs none /sys/kernel/debug)",
            folder.join(file).display()
        )
    })?;
    Ok(folder)
}
