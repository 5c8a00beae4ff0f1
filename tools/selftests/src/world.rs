// SPDX-License-Identifier: GPL-2.0
//! The kernel's state, in files, and the part of it that every case must restore.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;

use crate::wait;

/// The driver's directory in debugfs.
pub(crate) const DEBUGFS: &str = "/sys/kernel/debug/qpair";
/// The driver's directory in sysfs.
pub(crate) const DRIVER: &str = "/sys/bus/pci/drivers/qpair";

/// Reads a small file.
pub(crate) fn text(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// Writes a small file, such as sysfs has.
pub(crate) fn put(path: impl AsRef<Path>, text: &str) -> Result<()> {
    let path = path.as_ref();
    fs::write(path, text).with_context(|| format!("writing {text:?} to {}", path.display()))
}

/// A number from a file of `name value` or `name: value` lines.
pub(crate) fn field(path: &str, name: &str) -> Result<i64> {
    let text = text(path)?;
    text.lines()
        .filter_map(|line| line.split_once([':', ' ', '\t']))
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| value.split_whitespace().next()?.parse().ok())
        .with_context(|| format!("{path} has no {name}"))
}

/// Long-term pinned pages of the whole system. The per-CPU counters lag until they are refreshed.
pub(crate) fn pinned_pages() -> Result<i64> {
    text("/proc/sys/vm/stat_refresh")?;
    Ok(field("/proc/vmstat", "nr_foll_pin_acquired")?
        - field("/proc/vmstat", "nr_foll_pin_released")?)
}

/// KiB of this process's memory that are charged as pinned.
pub(crate) fn charged_kib() -> Result<i64> {
    field("/proc/self/status", "VmPin")
}

/// PCI addresses of the driver's functions, in order.
pub(crate) fn functions() -> Result<Vec<String>> {
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

/// The PCI address of the RDMA device `qpairN`.
pub(crate) fn function(device: usize) -> Result<String> {
    let link = fs::canonicalize(format!("/sys/class/infiniband/qpair{device}/device"))
        .with_context(|| format!("the parent of qpair{device} in sysfs"))?;
    let name = link.file_name().context("a folder without a name")?;
    Ok(name.to_string_lossy().into_owned())
}

/// What sysfs has of a PCI function in base 16: `vendor`, `device` or `revision`.
pub(crate) fn pci_id(address: &str, name: &str) -> Result<u32> {
    let text = text(format!("/sys/bus/pci/devices/{address}/{name}"))?;
    let digits = text.trim().trim_start_matches("0x");
    u32::from_str_radix(digits, 16).with_context(|| format!("{name} of {address}: {text:?}"))
}

/// Whether a PCI function may do DMA: bus mastering is on.
pub(crate) fn is_master(address: &str) -> Result<bool> {
    const COMMAND: usize = 4;
    const MASTER: u8 = 1 << 2;
    let config = fs::read(format!("/sys/bus/pci/devices/{address}/config"))?;
    Ok(config.get(COMMAND).context("a short configuration space")? & MASTER != 0)
}

/// The directory of the RDMA device `qpairN` in debugfs.
pub(crate) fn debugfs(device: usize) -> Result<PathBuf> {
    Ok(Path::new(DEBUGFS).join(function(device)?))
}

/// A number of the context with this doorbell page, of its line in debugfs.
pub(crate) fn of_context(device: usize, page: u32, name: &str) -> Result<i64> {
    let text = text(debugfs(device)?.join("clients"))?;
    let begin = format!("page {page} ");
    let line = text.lines().find(|line| line.starts_with(&begin));
    let mut words = line
        .with_context(|| format!("no context with page {page} in\n{text}"))?
        .split_whitespace();
    words.find(|word| *word == name);
    let value = words.next().and_then(|word| word.parse().ok());
    value.with_context(|| format!("no {name} in\n{text}"))
}

/// What the driver has of a device: lines of `clients`, EQs, the queues on these, allocations and
/// mappings for DMA.
pub(crate) fn objects(folder: &Path) -> Result<BTreeMap<&'static str, i64>> {
    let mut counts = BTreeMap::new();
    let clients = text(folder.join("clients"))?;
    counts.insert("clients", clients.lines().count() as i64);
    let eqs = text(folder.join("eqs"))?;
    let mut lines = eqs.lines().map(|line| line.split_whitespace());
    let headings: Vec<&str> = lines.next().context("no headings")?.collect();
    for line in lines {
        *counts.entry("eqs").or_default() += 1;
        for (name, value) in headings.iter().zip(line) {
            if let Some(name) = ["cqs", "qps", "srqs"].into_iter().find(|it| it == name) {
                *counts.entry(name).or_default() += value.parse::<i64>()?;
            }
        }
    }
    let device = folder.join("device");
    counts.insert("dma-held", field(&device.to_string_lossy(), "dma-held")?);
    Ok(counts)
}

/// The same of each device. One may disappear meanwhile.
fn all_objects() -> BTreeMap<PathBuf, BTreeMap<&'static str, i64>> {
    let devices = fs::read_dir(DEBUGFS).into_iter().flatten();
    let folders = devices.filter_map(|device| Some(device.ok()?.path()));
    folders
        .filter_map(|folder| objects(&folder).ok().map(|counts| (folder, counts)))
        .collect()
}

/// Bits of `/proc/sys/kernel/tainted`: a warning, an oops and whatever else went wrong.
pub(crate) fn taint() -> Result<u64> {
    text("/proc/sys/kernel/tainted")?
        .trim()
        .parse()
        .context("tainted")
}

/// The state that a case must restore.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Baseline {
    pinned: i64,
    objects: BTreeMap<PathBuf, BTreeMap<&'static str, i64>>,
    taint: u64,
}

impl Baseline {
    pub(crate) fn take() -> Result<Self> {
        Ok(Self {
            pinned: pinned_pages()?,
            objects: all_objects(),
            taint: taint()?,
        })
    }

    /// Waits until the recorded state is restored; the error lists the differences.
    pub(crate) fn settled(&self) -> Result<()> {
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
        for (folder, counts) in &self.objects {
            // A missing folder was removed with its device, which some cases do.
            match now.objects.get(folder) {
                Some(now) if now != counts => {
                    text += &format!(" {} has {now:?}, had {counts:?};", folder.display())
                }
                _ => (),
            }
        }
        text
    }
}

/// Free KiB in the per-CPU lists, which `MemFree` does not count.
fn free_on_cpus() -> Result<i64> {
    let text = text("/proc/zoneinfo")?;
    let counts = text.lines().filter_map(|line| {
        let count: i64 = line.trim().strip_prefix("count:")?.trim().parse().ok()?;
        Some(count)
    });
    Ok(counts.sum::<i64>() * 4)
}

/// Watches that memory does not shrink while something is repeated.
///
/// The pages in the per-CPU lists, megabytes of them, count as free. Other memory still fluctuates,
/// so a single sample is not enough: this takes many samples, and the median of the slopes between
/// any two of them, which no single jump changes.
#[derive(Default)]
pub(crate) struct MemoryTrend {
    looks: Vec<(u32, i64, i64)>,
}

impl MemoryTrend {
    /// Repetitions before the first sample, which fill caches.
    pub(crate) const WARM_UP: u32 = 20;
    /// Repetitions that are enough for a check.
    pub(crate) const LEAST: u32 = Self::WARM_UP + 8 * 5;

    /// To be called after each repetition; samples every fifth.
    pub(crate) fn after(&mut self, round: u32) -> Result<()> {
        if !detectors_watch() && round >= Self::WARM_UP && round % 5 == 0 {
            put("/proc/sys/vm/drop_caches", "3")?;
            let kib = |name| field("/proc/meminfo", name);
            let free = kib("MemFree")? + free_on_cpus()? + kib("Cached")? + kib("SReclaimable")?;
            self.looks.push((round, -free, kib("SUnreclaim")?));
        }
        Ok(())
    }

    fn slope(&self, value: impl Fn(&(u32, i64, i64)) -> i64) -> f64 {
        let mut slopes = Vec::new();
        for (index, early) in self.looks.iter().enumerate() {
            for late in &self.looks[index + 1..] {
                slopes.push((value(late) - value(early)) as f64 / f64::from(late.0 - early.0));
            }
        }
        slopes.sort_by(f64::total_cmp);
        slopes.get(slopes.len() / 2).copied().unwrap_or(0.0)
    }

    /// No more than 16 KiB may be lost in a repetition, and no more than 8 KiB of the kernel's
    /// objects.
    ///
    /// Not checked under detectors: KASAN keeps freed memory for a while, kmemleak allocates its
    /// own records, and it detects leaks more precisely; it runs after each guest's tests.
    pub(crate) fn check(&self) -> Result<()> {
        if detectors_watch() {
            return Ok(());
        }
        ensure!(
            self.looks.len() >= 8,
            "{} samples of the memory are too few",
            self.looks.len()
        );
        let (pages, slab) = (self.slope(|it| it.1), self.slope(|it| it.2));
        crate::ktap::say(&format!(
            "KiB lost in a repetition: {pages:.2}, of the kernel's objects {slab:.2}"
        ));
        ensure!(
            pages < 16.0 && slab < 8.0,
            "memory is lost: {:?}",
            self.looks
        );
        Ok(())
    }
}

/// Whether the kernel is the debug kernel, whose detectors find more than a test does and make
/// everything many times slower.
pub fn detectors_watch() -> bool {
    Path::new("/sys/kernel/debug/kmemleak").exists()
}

/// The number of rounds of a race: `plain`, or `watched` under the detectors.
///
/// Each race has many rounds on one kind of kernel, where a round finds most for its time, and on
/// the others only as many as needed to hit the race at all.
pub(crate) fn rounds(plain: u32, watched: u32) -> u32 {
    match (detectors_watch(), is_brief()) {
        (false, _) => plain,
        (true, false) => watched,
        (true, true) => watched.div_ceil(12).max(2).min(watched),
    }
}

/// Whether to run few rounds.
static BRIEF: AtomicBool = AtomicBool::new(false);

/// Runs few rounds of what is repeated most, and few of many fault points under the detectors.
pub fn set_brief() {
    BRIEF.store(true, Ordering::Relaxed);
}

/// Whether [`set_brief`] was called.
pub(crate) fn is_brief() -> bool {
    BRIEF.load(Ordering::Relaxed)
}

/// The kernel's log, from a given time on.
pub(crate) struct Log(fs::File);

impl Log {
    /// Starts at the present end of the log.
    pub(crate) fn mark() -> Result<Self> {
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
    pub(crate) fn lines(&mut self) -> Result<Vec<(u8, String)>> {
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
                // Overwritten before it was read: continue with the next line.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => (),
                Err(error) => return Err(error).context("/dev/kmsg"),
            }
        }
    }
}
