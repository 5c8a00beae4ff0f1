// SPDX-License-Identifier: GPL-2.0
//! The kernel's trace of qpair, in an instance of its own, so that other traces are not disturbed.
//! The drop removes the instance (after `kill -9`, `rmdir` removes it).

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, Context as _};

/// Where tracefs is, or may be.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A trace instance of the kernel, which records until it is stopped.
pub(crate) struct Tracer {
    folder: PathBuf,
}

impl Tracer {
    /// Starts it, with `buffer` KiB for each CPU.
    pub(crate) fn start(buffer: u32) -> anyhow::Result<Self> {
        let root = PLACES.iter().map(Path::new).find(|place| {
            // Reading the folder checks the permissions.
            fs::read_dir(place.join("instances")).is_ok()
        });
        let root = root.context(
            "no trace: this needs root, and tracefs (mount -t tracefs none /sys/kernel/tracing)",
        )?;
        Self::at(root, buffer)
    }

    fn at(root: &Path, buffer: u32) -> anyhow::Result<Self> {
        let folder = root.join(format!("instances/qpair-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        // From here on the drop removes it.
        let this = Self { folder };
        let events = this.folder.join("events/qpair/enable");
        this.set("tracing_on", "0")?;
        this.set("buffer_size_kb", &buffer.to_string())
            .context("no memory for the buffer: use a smaller --buffer")?;
        // One clock for all CPUs keeps the order. Machines without a TSC have no better one.
        this.set("trace_clock", "global")?;
        fs::write(&events, "1").map_err(|error| match error.kind() {
            ErrorKind::NotFound => anyhow!("the driver has no trace points: load it (modprobe qpair), on a kernel with event tracing"),
            _ => anyhow::Error::from(error).context(format!("cannot write {}", events.display())),
        })?;
        this.set("tracing_on", "1")?;
        Ok(this)
    }

    fn set(&self, file: &str, value: &str) -> anyhow::Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, value).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Stops it; returns the text and the number of lost events.
    pub(crate) fn stop(self) -> anyhow::Result<(String, u64)> {
        self.set("tracing_on", "0")?;
        let lost = self.lost()?;
        let path = self.folder.join("trace");
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // A task's name may be any bytes.
        Ok((String::from_utf8_lossy(&text).into_owned(), lost))
    }

    fn lost(&self) -> anyhow::Result<u64> {
        let mut lost = 0;
        let folder = self.folder.join("per_cpu");
        for cpu in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            lost += lost_in(&fs::read_to_string(cpu?.path().join("stats"))?);
        }
        Ok(lost)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // An error is ignored: removing the instance disables the events too.
        let _ = fs::write(self.folder.join("events/qpair/enable"), "0");
        if let Err(error) = fs::remove_dir(&self.folder) {
            eprintln!("qpair: {} stays: {error}", self.folder.display());
        }
    }
}

/// The lost events in a CPU's `stats`.
fn lost_in(stats: &str) -> u64 {
    stats
        .lines()
        .filter_map(|line| line.split_once(": "))
        .filter(|(name, _)| ["overrun", "commit overrun", "dropped events"].contains(name))
        .filter_map(|(_, value)| value.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_events_are_counted() {
        let stats = "entries: 47307\noverrun: 538887\ncommit overrun: 1\nbytes: 1444132\n\
                     oldest event ts:    19.243683\nnow ts:    25.881906\ndropped events: 2\nread events: 0\n";
        assert_eq!(lost_in(stats), 538_890);
    }

    #[test]
    fn a_trace_that_cannot_start_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("instances")).unwrap();
        // An instance without the driver's events. (rmdir of tracefs does not mind files.)
        let error = Tracer::at(root.path(), 64).err().unwrap();
        assert!(format!("{error:#}").contains("load it"), "{error:#}");
    }
}
