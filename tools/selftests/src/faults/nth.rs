// SPDX-License-Identifier: GPL-2.0
//! Fault injection by `/proc/self/fail-nth`: the Nth point that the calling task passes fails once.
//!
//! A point is an allocation or a user copy. Only those with a function of the module on the stack
//! count, so that neither the test's own system calls nor the rest of the kernel are affected.
//! Three kinds are excluded: those with a function of kmemleak, whose records are not part of the
//! driver; entries of `/proc`, since the kernel continues without an interrupt's files there, and
//! warns when it removes them; and nodes of trees, without which dma-debug disables itself.
//!
//! An operation runs once with a number that is never reached, to count its points. Then it runs
//! once for each point, which fails. After each run the state must be as before: pinned pages, the
//! driver's tables, its DMA memory and mappings, the device's own objects. kmemleak checks for
//! leaks when the guest ends.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;

use crate::host::Host;
use crate::ktap::say;
use crate::ktap::skip;
use crate::ktap::Setup;
use crate::wait;
use crate::world;
use crate::world::Baseline;

const DEBUG: &str = "/sys/kernel/debug";
const CACHES: &str = "/sys/kernel/slab";
/// Entries of `/proc`, and nodes of trees: dma-debug disables itself without them.
const SPARED: [&str; 2] = ["proc_dir_entry", "radix_tree_node"];
const KINDS: [&str; 3] = ["failslab", "fail_page_alloc", "fail_usercopy"];
/// More points than any operation has.
const NEVER: u32 = 1 << 24;
/// The most points of an operation in a brief run.
const BRIEF: u32 = 16;

/// Whether `try_some` fails all points.
static EVERY: AtomicBool = AtomicBool::new(false);

/// Fails every point of every operation, however many there are.
pub fn fail_every_point() {
    EVERY.store(true, Ordering::Relaxed);
}

/// The state that an operation must restore.
#[derive(Debug, PartialEq, Eq)]
struct Level {
    /// Objects of the device, if the host reports them.
    objects: Option<u64>,
    /// DMA mappings and coherent memory of the driver; none if it is not bound.
    held: i64,
}

/// How the failures of an operation ended.
#[derive(Default)]
pub(super) struct Tally {
    enomem: u32,
    efault: u32,
    done: u32,
    /// Whether some points did not fail.
    sampled: bool,
}

impl Tally {
    /// Failures that reached the caller.
    pub(super) fn refused(&self) -> u32 {
        self.enomem + self.efault
    }
}

/// The mechanism, and the state that every operation must restore.
pub(super) struct Faults {
    nth: File,
    host: Option<Host>,
    rng: fastrand::Rng,
    before: Baseline,
    level: Level,
}

impl Faults {
    /// Enables injection for the points of the module, and records the present state.
    pub(super) fn new(setup: &Setup) -> Result<Self> {
        Self::as_deep_as(setup, 32)
    }

    /// As [`Self::new`], for points that the module calls directly or through a few frames. Points
    /// deep in the kernel's own code are excluded.
    pub(super) fn near(setup: &Setup) -> Result<Self> {
        Self::as_deep_as(setup, 10)
    }

    fn as_deep_as(setup: &Setup, frames: u32) -> Result<Self> {
        let nth = Path::new("/proc/self/fail-nth");
        if !nth.exists() {
            return Err(skip("needs a kernel with fault injection"));
        }
        let nth = File::options().read(true).write(true).open(nth)?;
        let (start, end) = text_of_the_module()?;
        let (from, to) = text_of_kmemleak()?;
        for kind in KINDS {
            for (name, value) in [
                ("verbose", "0".to_string()),
                ("stacktrace-depth", frames.to_string()),
                ("require-start", format!("{start:#x}")),
                ("require-end", format!("{end:#x}")),
                ("reject-start", format!("{from:#x}")),
                ("reject-end", format!("{to:#x}")),
            ] {
                world::put(format!("{DEBUG}/{kind}/{name}"), &value)?;
            }
        }
        for cache in std::fs::read_dir(CACHES)? {
            let cache = cache?;
            let fails = !SPARED.iter().any(|name| cache.file_name() == *name);
            let file = cache.path().join("failslab");
            world::put(file, if fails { "1" } else { "0" })?;
        }
        for (name, value) in [
            ("failslab/cache-filter", "Y"),
            ("failslab/ignore-gfp-wait", "N"),
            ("fail_page_alloc/ignore-gfp-wait", "N"),
            ("fail_page_alloc/ignore-gfp-highmem", "N"),
            ("fail_page_alloc/min-order", "0"),
        ] {
            world::put(format!("{DEBUG}/{name}"), value)?;
        }
        let mut host = Some(Host::call()?);
        Ok(Self {
            nth,
            level: Level::take(&mut host)?,
            host,
            rng: setup.rng(),
            before: Baseline::take()?,
        })
    }

    /// Does without the host: its port does not work after a suspend.
    pub(super) fn without_host(mut self) -> Self {
        self.host = None;
        self.level.objects = None;
        self
    }

    /// Records the present state as the one that every operation must restore.
    pub(super) fn settle_here(&mut self) -> Result<()> {
        self.level = Level::take(&mut self.host)?;
        self.before = Baseline::take()?;
        Ok(())
    }

    /// Fails each point of an operation with at least `least` points; see the module.
    ///
    /// Points are counted in `call`. `tear_down` gets its result, if it succeeded, and must restore
    /// the state before `set_up`.
    pub(super) fn try_all<T, R>(
        &mut self,
        name: &str,
        least: u32,
        set_up: impl FnMut() -> Result<T>,
        call: impl FnMut(&mut T) -> Result<R>,
        tear_down: impl FnMut(T, Option<R>) -> Result<()>,
    ) -> Result<()> {
        let tally = self.try_some(name, least, u32::MAX, set_up, call, tear_down)?;
        // A single point, and those of a sample, may be points that the kernel can do without.
        ensure!(
            least < 2 || tally.sampled || tally.refused() > 0,
            "no failure of {name} reached its caller"
        );
        Ok(())
    }

    /// As [`Self::try_all`], for an operation with many points: at most `most`, at equal distances
    /// from a start given by the seed; all of them with `--every-point`.
    pub(super) fn try_some<T, R>(
        &mut self,
        name: &str,
        least: u32,
        most: u32,
        mut set_up: impl FnMut() -> Result<T>,
        mut call: impl FnMut(&mut T) -> Result<R>,
        mut tear_down: impl FnMut(T, Option<R>) -> Result<()>,
    ) -> Result<Tally> {
        let mut once = |faults: &mut Self, nth: u32| -> Result<(u32, Option<Errno>)> {
            let mut thing = set_up().context("set-up")?;
            faults.arm(nth)?;
            let result = call(&mut thing);
            let left = faults.disarm()?;
            let (made, errno) = match result {
                Ok(made) => (Some(made), None),
                Err(error) => (None, Some(errno_of(&error).context("no errno")?)),
            };
            tear_down(thing, made).with_context(|| format!("tear-down after {errno:?}"))?;
            faults.settled()?;
            Ok((left, errno))
        };
        // The first run makes allocations that remain, such as tables that only grow. The others
        // count the points: a run has more of them where caches of the CPU need pages.
        let mut points = NEVER;
        for nth in [0, NEVER, NEVER] {
            let (left, errno) = once(self, nth).with_context(|| format!("{name}, no failure"))?;
            ensure!(errno.is_none(), "{name} gave {errno:?} without a failure");
            if nth != 0 {
                points = points.min(NEVER - left);
            }
        }
        ensure!(
            points >= least,
            "{name} has {points} points, expected {least} or more: nothing is injected"
        );
        let most = if world::is_brief() {
            (most / 3).min(BRIEF)
        } else {
            most
        };
        let every = EVERY.load(Ordering::Relaxed) || points <= most;
        let step = if every { 1 } else { points.div_ceil(most) };
        let mut nth = if every { 1 } else { self.rng.u32(1..=step) };
        let mut tally = Tally {
            sampled: !every,
            ..Tally::default()
        };
        loop {
            let (left, errno) =
                once(self, nth).with_context(|| format!("{name}, point {nth} failed"))?;
            if left != 0 {
                ensure!(errno.is_none(), "{name} failed after all points: {errno:?}");
                break;
            }
            match errno {
                None => tally.done += 1,
                Some(Errno::ENOMEM) => tally.enomem += 1,
                Some(Errno::EFAULT) => tally.efault += 1,
                Some(errno) => bail!("{name}: {errno} where point {nth} failed"),
            }
            // The number of points varies by a few. A sample ends with the last counted point.
            if !every && nth + step > points {
                break;
            }
            nth += step;
        }
        // Each stands for `step` of them. The count varies: only what is there in every run must
        // have failed.
        let failed = tally.refused() + tally.done;
        ensure!(
            failed * step >= least / 2,
            "{failed} of {points} points of {name} failed, of which {least} are always there"
        );
        say(&format!(
            "{name}: {points} points, {failed} failed: {} ENOMEM, {} EFAULT, {} succeeded",
            tally.enomem, tally.efault, tally.done
        ));
        Ok(tally)
    }

    /// Makes the `nth` point from now on fail; 0 is none.
    fn arm(&self, nth: u32) -> Result<()> {
        self.nth
            .write_at(nth.to_string().as_bytes(), 0)
            .map(drop)
            .context("writing fail-nth")
    }

    /// The number of points left; 0 if one has failed.
    fn disarm(&self) -> Result<u32> {
        let mut bytes = [0; 16];
        let count = self
            .nth
            .read_at(&mut bytes, 0)
            .context("reading fail-nth")?;
        self.arm(0)?;
        let text = std::str::from_utf8(&bytes[..count])?;
        text.trim().parse().context("fail-nth")
    }

    /// Waits until the recorded state is restored.
    fn settled(&mut self) -> Result<()> {
        self.before.settled()?;
        let mut now = None;
        let waited = wait::until("return of all that the device had", || {
            let level = Level::take(&mut self.host)?;
            let same = level == self.level;
            now = Some(level);
            Ok(same)
        });
        ensure!(waited.is_ok(), "{now:?} instead of {:?}", self.level);
        Ok(())
    }
}

impl Level {
    fn take(host: &mut Option<Host>) -> Result<Self> {
        // A device without a driver has no such file.
        let held = match world::debugfs(0) {
            Ok(folder) => world::field(&folder.join("device").to_string_lossy(), "dma-held")?,
            Err(_) => 0,
        };
        Ok(Self {
            objects: host
                .as_mut()
                .map(|host| host.get(0, "objects"))
                .transpose()?,
            held,
        })
    }
}

/// The errno at the root of an error.
pub(super) fn errno_of(error: &anyhow::Error) -> Option<Errno> {
    let root = error.root_cause();
    let by_io = || {
        let error: &std::io::Error = root.downcast_ref()?;
        error.raw_os_error().map(Errno::from_raw)
    };
    root.downcast_ref().copied().or_else(by_io)
}

/// The address range of the module's code: first address, and the one past the end.
fn text_of_the_module() -> Result<(u64, u64)> {
    let modules = world::text("/proc/modules")?;
    let words = modules
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|words| words.first() == Some(&"qpair"))
        .context("no module")?;
    let (Some(bytes), Some(start)) = (words.get(1), words.get(5)) else {
        bail!("/proc/modules: {words:?}");
    };
    let start = u64::from_str_radix(start.trim_start_matches("0x"), 16)?;
    ensure!(start != 0, "/proc/modules hides addresses");
    Ok((start, start + bytes.parse::<u64>()?))
}

/// The address range of the kmemleak functions that the allocators call: they are adjacent, and
/// kmemleak allocates only in them.
fn text_of_kmemleak() -> Result<(u64, u64)> {
    let symbols = world::text("/proc/kallsyms")?;
    let address = |wanted: &str| {
        let line = symbols
            .lines()
            .find(|line| line.split_whitespace().nth(2) == Some(wanted))?;
        u64::from_str_radix(line.split_whitespace().next()?, 16).ok()
    };
    match (address("kmemleak_alloc"), address("kmemleak_no_scan")) {
        (Some(first), Some(end)) if (first..first + (64 << 10)).contains(&end) => Ok((first, end)),
        found => bail!("kmemleak's functions are not where they are expected: {found:x?}"),
    }
}
