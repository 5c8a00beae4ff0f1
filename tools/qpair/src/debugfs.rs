// SPDX-License-Identifier: GPL-2.0
//! The driver's files: a folder of debugfs for each function.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use qpair::Device;

/// Where the driver's folders are, one for each function.
const DEBUGFS: &str = "/sys/kernel/debug/qpair";

/// The folder of the given device, or of the first; it must contain `file`.
pub(crate) fn folder(device: Option<&Path>, file: &str) -> anyhow::Result<PathBuf> {
    let path = match device {
        Some(path) => path.to_owned(),
        None => Device::first()?.path().to_owned(),
    };
    let about = fs::metadata(&path).with_context(|| {
        format!(
            "cannot look at {}: load the driver (modprobe qpair), or name another device",
            path.display()
        )
    })?;
    let (major, minor) = (
        rustix::fs::major(about.rdev()),
        rustix::fs::minor(about.rdev()),
    );
    // The sysfs node of the device links to its function; the folder has the function's name.
    let function = fs::canonicalize(format!("/sys/dev/char/{major}:{minor}/device"))
        .with_context(|| format!("{} is no device with a function", path.display()))?;
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
