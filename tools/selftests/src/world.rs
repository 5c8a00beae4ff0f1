// SPDX-License-Identifier: GPL-2.0
//! What the kernel tells about itself, and what has to be as it was.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;

use crate::wait;

/// The driver's folder in debugfs.
pub const DEBUGFS: &str = "/sys/kernel/debug/qpair";
/// The driver's folder in sysfs.
pub const DRIVER: &str = "/sys/bus/pci/drivers/qpair";

/// Tables of objects in debugfs, one for each device and kind.
pub const TABLES: [&str; 6] = ["contexts", "pds", "mrs", "cqs", "qps", "eqs"];

/// Reads a small file.
pub fn text(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// Writes a small file, such as sysfs has.
pub fn put(path: impl AsRef<Path>, text: &str) -> Result<()> {
    let path = path.as_ref();
    fs::write(path, text).with_context(|| format!("writing {text:?} to {}", path.display()))
}

/// A number from a file of `name value` or `name: value` lines.
pub fn field(path: &str, name: &str) -> Result<i64> {
    let text = text(path)?;
    text.lines()
        .filter_map(|line| line.split_once([':', ' ', '\t']))
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| value.split_whitespace().next()?.parse().ok())
        .with_context(|| format!("{path} has no {name}"))
}

/// Pages that are pinned for long in the whole system. Counters lag on each CPU until asked.
pub fn pinned_pages() -> Result<i64> {
    text("/proc/sys/vm/stat_refresh")?;
    Ok(field("/proc/vmstat", "nr_foll_pin_acquired")?
        - field("/proc/vmstat", "nr_foll_pin_released")?)
}

/// KiB of this process's memory that are charged as pinned.
pub fn charged_kib() -> Result<i64> {
    field("/proc/self/status", "VmPin")
}

/// KiB of memory that could be had.
pub fn available_kib() -> Result<i64> {
    put("/proc/sys/vm/drop_caches", "3")?;
    field("/proc/meminfo", "MemAvailable")
}

/// PCI addresses of the functions that the driver has, in the order of their device files.
pub fn functions() -> Result<Vec<String>> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(DRIVER) else {
        return Ok(found);
    };
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.contains(':') {
            found.push(name);
        }
    }
    found.sort();
    Ok(found)
}

/// The PCI address of `/dev/qpairN`.
pub fn function(device: usize) -> Result<String> {
    let link = fs::canonicalize(format!("/sys/class/misc/qpair{device}/device"))
        .with_context(|| format!("the parent of qpair{device} in sysfs"))?;
    let name = link.file_name().context("a folder without a name")?;
    Ok(name.to_string_lossy().into_owned())
}

/// The folder of `/dev/qpairN` in debugfs.
pub fn debugfs(device: usize) -> Result<PathBuf> {
    Ok(Path::new(DEBUGFS).join(function(device)?))
}

/// Rows of each of the driver's tables, by path.
pub fn objects() -> Result<BTreeMap<PathBuf, usize>> {
    let mut rows = BTreeMap::new();
    let Ok(devices) = fs::read_dir(DEBUGFS) else {
        return Ok(rows);
    };
    for device in devices {
        let folder = device?.path();
        for table in TABLES {
            let path = folder.join(table);
            // It may go while we look: devices do.
            if let Ok(text) = fs::read_to_string(&path) {
                rows.insert(path, text.lines().count());
            }
        }
    }
    Ok(rows)
}

/// Bits of `/proc/sys/kernel/tainted`: a warning, an oops and whatever else went wrong.
pub fn taint() -> Result<u64> {
    text("/proc/sys/kernel/tainted")?
        .trim()
        .parse()
        .context("tainted")
}

/// What has to be the same after a case as before it.
#[derive(Debug, PartialEq, Eq)]
pub struct Baseline {
    pinned: i64,
    objects: BTreeMap<PathBuf, usize>,
    taint: u64,
}

impl Baseline {
    /// As it is now.
    pub fn take() -> Result<Self> {
        Ok(Self {
            pinned: pinned_pages()?,
            objects: objects()?,
            taint: taint()?,
        })
    }

    /// Waits until everything is as it was, and says what is not.
    pub fn settled(&self) -> Result<()> {
        let mut differs = String::new();
        let waited = wait::until("return to the state before", || {
            let now = Self::take()?;
            differs = self.difference(&now);
            Ok(differs.is_empty())
        });
        ensure!(waited.is_ok(), "not as before:{differs}");
        Ok(())
    }

    fn difference(&self, now: &Self) -> String {
        let mut text = String::new();
        if now.pinned != self.pinned {
            text += &format!(" {} pages more are pinned;", now.pinned - self.pinned);
        }
        if now.taint != self.taint {
            text += &format!(
                " the kernel is tainted {:#x}, was {:#x};",
                now.taint, self.taint
            );
        }
        for (path, rows) in &self.objects {
            // A table that is gone went with its device, which some cases take away.
            match now.objects.get(path) {
                Some(now) if now != rows => {
                    text += &format!(" {} has {now} lines, had {rows};", path.display())
                }
                _ => (),
            }
        }
        text
    }
}

/// Watches that memory does not shrink while something is repeated.
pub struct MemoryTrend {
    before: i64,
}

impl MemoryTrend {
    /// After the repetitions that warm up caches.
    pub fn start() -> Result<Self> {
        Ok(Self {
            before: available_kib()?,
        })
    }

    /// After the others: no more than `kib` may be gone.
    pub fn check(&self, kib: i64) -> Result<()> {
        // Memory comes back through RCU and work queues, so give it time before it counts as lost.
        let mut gone = 0;
        let waited = wait::until("return of the memory", || {
            gone = self.before - available_kib()?;
            Ok(gone <= kib)
        });
        if waited.is_err() {
            bail!("{gone} KiB of memory are gone, {kib} may be");
        }
        Ok(())
    }
}

/// The kernel's log, from now on.
pub struct Log(fs::File);

impl Log {
    /// From now on.
    pub fn mark() -> Result<Self> {
        use std::io::Seek;
        use std::os::unix::fs::OpenOptionsExt;
        let mut file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg")
            .context("/dev/kmsg")?;
        file.seek(std::io::SeekFrom::End(0))
            .context("seeking in /dev/kmsg")?;
        Ok(Self(file))
    }

    /// Lines since then, with their level, `6` for information.
    pub fn lines(&mut self) -> Result<Vec<(u8, String)>> {
        use std::io::Read;
        let mut lines = Vec::new();
        let mut record = vec![0; 8192];
        loop {
            match self.0.read(&mut record) {
                Ok(bytes) => {
                    let text = String::from_utf8_lossy(&record[..bytes]).into_owned();
                    let (head, message) = text.split_once(';').unwrap_or(("6", &text));
                    let facility: u32 = head
                        .split(',')
                        .next()
                        .and_then(|it| it.parse().ok())
                        .unwrap_or(6);
                    lines.push((
                        facility as u8 & 7,
                        message.lines().next().unwrap_or_default().to_string(),
                    ));
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(lines),
                // Overwritten before it was read: go on with what is there.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => (),
                Err(error) => return Err(error).context("/dev/kmsg"),
            }
        }
    }
}
