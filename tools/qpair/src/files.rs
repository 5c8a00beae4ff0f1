// SPDX-License-Identifier: GPL-2.0
//! The two ends of a copy: files, pipes, devices.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{bail, Context as _};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// The source of a copy.
#[derive(Debug)]
pub(crate) struct Source {
    file: File,
    name: String,
    /// Its size, if known.
    pub(crate) bytes: Option<u64>,
    /// Whether a read may block.
    waits: bool,
}

/// Opens - as a file of its own, past the buffers of the standard library.
fn standard(fd: BorrowedFd<'_>) -> anyhow::Result<File> {
    let owned: OwnedFd = fd
        .try_clone_to_owned()
        .context("cannot use the standard files")?;
    Ok(owned.into())
}

impl Source {
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let (file, name) = if path == Path::new("-") {
            (standard(std::io::stdin().as_fd())?, "standard input".into())
        } else {
            let name = path.display().to_string();
            let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
            (file, name)
        };
        let about = file
            .metadata()
            .with_context(|| format!("cannot look at {name}"))?;
        if about.is_dir() {
            bail!("{name} is a directory: copy an archive of it (tar c {name} | qpair copy - DST)");
        }
        let kind = about.file_type();
        Ok(Self {
            // Files of /proc are regular files of size 0.
            bytes: (about.is_file() && about.len() > 0).then_some(about.len()),
            waits: kind.is_fifo() || kind.is_socket() || kind.is_char_device(),
            file,
            name,
        })
    }

    /// Whether a read would return data or the end. Waits for at most that long.
    pub(crate) fn is_ready(&self, time: Duration) -> anyhow::Result<bool> {
        if !self.waits {
            return Ok(true);
        }
        let time = Timespec::try_from(time).context("an interval without end")?;
        match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&time)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno).with_context(|| format!("cannot wait for {}", self.name)),
        }
    }

    /// Reads some; 0 is the end.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> anyhow::Result<usize> {
        loop {
            match self.file.read(into) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                other => return other.with_context(|| format!("cannot read {}", self.name)),
            }
        }
    }
}

/// The destination. Unless it was [finished](Self::finish), the drop removes it, or reports that it
/// is incomplete.
#[derive(Debug)]
pub(crate) struct Destination {
    file: File,
    name: String,
    /// The path to remove if the copy fails: of a regular file that was opened by name.
    path: Option<PathBuf>,
    written: u64,
    finished: bool,
}

impl Destination {
    pub(crate) fn open(path: &Path, source: &Source) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self {
                file: standard(std::io::stdout().as_fd())?,
                name: "standard output".into(),
                path: None,
                written: 0,
                finished: false,
            });
        }
        let name = path.display().to_string();
        // Checked before it is truncated.
        if let (Ok(to), Ok(from)) = (fs::metadata(path), source.file.metadata()) {
            if to.is_file() && (to.dev(), to.ino()) == (from.dev(), from.ino()) {
                bail!("{name} is also the source: name another destination");
            }
            if to.is_dir() {
                bail!("{name} is a directory: name a file in it");
            }
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .with_context(|| format!("cannot write {name}"))?;
        let about = file
            .metadata()
            .with_context(|| format!("cannot look at {name}"))?;
        let path = about.is_file().then(|| path.to_owned());
        Ok(Self {
            path,
            file,
            name,
            written: 0,
            finished: false,
        })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.file
            .write_all(bytes)
            .with_context(|| format!("cannot write {}", self.name))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Marks it as complete.
    pub(crate) fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        match &self.path {
            Some(path) => match fs::remove_file(path) {
                Ok(()) => eprintln!("qpair: {} was not whole, and is removed", self.name),
                Err(error) => eprintln!(
                    "qpair: {} is not whole, and cannot be removed: {error}",
                    self.name
                ),
            },
            None => eprintln!(
                "qpair: {} is not whole: {} bytes were written",
                self.name, self.written
            ),
        }
    }
}
