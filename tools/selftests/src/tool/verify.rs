// SPDX-License-Identifier: GPL-2.0
//! The tool's own checks: each command detects data that changed in transit, and a stalled device.
//!
//! Data is changed through `/proc/PID/mem`, in the memory that the tool has registered. A stalled
//! core is the device's own property.

use std::fs::File;
use std::io::Read;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::Child;
use std::process::ExitStatus;
use std::process::Stdio;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::sys::signal::kill;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::command;
use super::COPY;
use crate::host::Host;
use crate::ktap::Setup;
use crate::pair::works;
use crate::wait;
use crate::world;

const PAGE: usize = 4096;

/// A run of the tool, ended when it is dropped.
struct Tool(Child);

impl Tool {
    fn start(words: &[&str]) -> Result<Self> {
        let mut command = command(words)?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Ok(Self(command.spawn().context("the tool")?))
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        let input = self.0.stdin.as_mut().context("its input")?;
        input.write_all(bytes).context("writing to the tool")
    }

    fn proc(&self, file: &str) -> String {
        format!("/proc/{}/{file}", self.0.id())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(self.0.id() as i32), signal)?)
    }

    /// Stops it, and returns when it has stopped.
    fn stop(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)?;
        wait::until("the tool to stop", || {
            Ok(world::text(self.proc("stat"))?.contains(") T "))
        })
    }

    /// Its registered memory: mappings that a child does not inherit, as address and bytes.
    fn registered(&self) -> Result<Vec<(u64, Vec<u8>)>> {
        let (smaps, memory) = (world::text(self.proc("smaps"))?, self.memory()?);
        let mut range = (0, 0);
        let mut found = Vec::new();
        for line in smaps.lines() {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or_default();
            if first == "VmFlags:" {
                if words.any(|flag| flag == "dc") {
                    let mut bytes = vec![0; (range.1 - range.0) as usize];
                    // The doorbell page is not the tool's memory, and cannot be read this way.
                    if memory.read_exact_at(&mut bytes, range.0).is_ok() {
                        found.push((range.0, bytes));
                    }
                }
            } else if let Some((begin, end)) = first.split_once('-') {
                let number = |text| u64::from_str_radix(text, 16);
                if let (Ok(begin), Ok(end)) = (number(begin), number(end)) {
                    range = (begin, end);
                }
            }
        }
        Ok(found)
    }

    fn memory(&self) -> Result<File> {
        let path = self.proc("mem");
        File::options()
            .read(true)
            .write(true)
            .open(&path)
            .context(path)
    }

    /// Flips a bit after `mark` in each page of its registered memory that begins with it; returns
    /// the number of pages.
    fn flip(&self, mark: &[u8]) -> Result<usize> {
        let memory = self.memory()?;
        let mut flipped = 0;
        for (begin, bytes) in self.registered()? {
            for (page, content) in (begin..).step_by(PAGE).zip(bytes.chunks(PAGE)) {
                if let Some(rest) = content.strip_prefix(mark) {
                    memory.write_all_at(&[rest[0] ^ 1], page + mark.len() as u64)?;
                    flipped += 1;
                }
            }
        }
        Ok(flipped)
    }

    /// Waits for its end; returns its status and its output.
    fn end(mut self) -> Result<(ExitStatus, String)> {
        drop(self.0.stdin.take());
        let status = wait::for_some("the tool's end", || Ok(self.0.try_wait()?))?;
        let mut said = String::new();
        let mut errors = self.0.stderr.take().context("its messages")?;
        errors.read_to_string(&mut said)?;
        Ok((status, said))
    }

    /// Checks that it fails with the message `reason`.
    fn fails(self, reason: &str) -> Result<()> {
        let (status, said) = self.end()?;
        ensure!(
            status.code() == Some(1) && said.contains(reason),
            "{status}, and it said {said:?} instead of {reason:?}"
        );
        Ok(())
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A byte of a block changes between the device's write and the tool's check.
pub(super) fn a_changed_byte_in_a_copy(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let mut chunk = vec![0; PAGE];
    setup.rng().fill(&mut chunk);
    let mark = &chunk[..64];
    for (op, counter) in [
        ("send", "send-bytes"),
        ("write", "write-bytes"),
        ("read", "read-bytes"),
    ] {
        let mut tool = Tool::start(&["copy", "-", COPY, "--op", op])?;
        // When the first bytes have arrived all objects exist, and no more commands follow.
        tool.feed(b"first")?;
        wait::until("the first bytes", || {
            Ok(std::fs::metadata(COPY).is_ok_and(|copy| copy.len() == 5))
        })?;
        host.set(0, "stall", true)?;
        let rung = host.get(0, "sq-doorbells")?;
        tool.feed(&chunk)?;
        wait::until("the doorbell", || Ok(host.get(0, "sq-doorbells")? > rung))?;
        tool.stop()?;
        let moved = host.get(0, counter)?;
        host.set(0, "stall", false)?;
        wait::until("the block", || {
            Ok(host.get(0, counter)? >= moved + chunk.len() as u64)
        })?;
        let flipped = tool.flip(mark)?;
        ensure!(
            flipped == 2,
            "{op}: {flipped} blocks of the tool have the data"
        );
        tool.signal(Signal::SIGCONT)?;
        tool.fails("the copy differs").context(op)?;
        ensure!(
            !std::path::Path::new(COPY).exists(),
            "{op}: a copy that differs was left"
        );
    }
    works(0, &mut setup.rng())
}

/// Messages change in transit: `ping` checks each, `bench` the last.
pub(super) fn a_changed_byte_in_a_message(setup: &Setup) -> Result<()> {
    const SIZE: usize = 1 << 20;
    let ping = Tool::start(&["ping", "--size", "1M", "--count", "1G"])?;
    // Four messages, in the last mapping that it creates, which is the lowest.
    let ends = wait::for_some("the memory of ping", || {
        let lowest = ping
            .registered()?
            .into_iter()
            .min_by_key(|(begin, _)| *begin);
        let large = lowest.filter(|(_, bytes)| bytes.len() >= 4 * SIZE);
        Ok(large.map(|(begin, _)| [begin + SIZE as u64, begin + 3 * SIZE as u64]))
    })?;
    let memory = ping.memory()?;
    // Repeatedly, since each message is compared as soon as it arrives; until the memory is gone.
    wait::until("ping to notice", || {
        let written = ends.map(|end| memory.write_all_at(&[0xff; 8], end));
        Ok(written.iter().any(Result::is_err))
    })?;
    ping.fails("what arrived is not what was sent")?;

    let pattern: Vec<u8> = (0..64).map(|i| (i * 7) as u8).collect();
    let mut host = Host::call()?;
    for (op, counter) in [("write", "write-bytes"), ("read", "read-bytes")] {
        let bench = Tool::start(&["bench", "--op", op, "--size", "64k", "--count", "20k"])?;
        wait::until("the pattern of bench", || Ok(bench.flip(&pattern)? > 0))?;
        // From here on the tool sends changed data.
        let moved = host.get(0, counter)?;
        wait::until("another message", || Ok(host.get(0, counter)? > moved))?;
        bench
            .fails("what arrived is not what was sent")
            .context(op)?;
    }
    works(0, &mut setup.rng())
}

/// The core stalls during each command, which gives up and reports the reason.
pub(super) fn a_stalled_core(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    for words in [
        &["copy", "/dev/zero", "/dev/null"][..],
        &["copy", "/dev/zero", "/dev/null", "--events", "--op", "read"],
        &["ping", "--count", "1G"],
        &["ping", "--count", "1G", "--events"],
        &["bench", "--count", "1G"],
        &["bench", "--count", "1G", "--events"],
    ] {
        let wqes = host.get(0, "send-wqes")?;
        let tool = Tool::start(&[words, &["--stall-limit", "1"]].concat())?;
        // More than the commands alone: the load is running.
        wait::until("the load", || Ok(host.get(0, "send-wqes")? > wqes + 100))?;
        host.set(0, "stall", true)?;
        // The tool gives up, and starts to destroy its objects: it is in an ioctl.
        let path = tool.proc("syscall");
        wait::until("the tool to give up", || {
            Ok(world::text(&path)?.starts_with("16 "))
        })?;
        host.set(0, "stall", false)?;
        tool.fails("no completion for 1 seconds")
            .with_context(|| words.join(" "))?;
    }
    works(0, &mut setup.rng())
}
