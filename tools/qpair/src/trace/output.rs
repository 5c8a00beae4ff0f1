// SPDX-License-Identifier: GPL-2.0
//! A file for a timeline. It is opened before the command runs, so that a path that cannot be
//! written is reported at once, and not after the work.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// An open file. Until [`write`](Self::write) it keeps the contents that it had. If it is empty, and
/// was created here, the drop removes it.
pub(crate) struct Output {
    file: File,
    path: PathBuf,
    created: bool,
}

impl Output {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(crate) fn open(path: PathBuf) -> anyhow::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true);
        let (file, created) = match options.clone().create_new(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // It may be a link to a file that does not exist.
                (options.create(true).truncate(false).open(&path), false)
            }
            result => (result, true),
        };
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self {
            file,
            path,
            created,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the contents of the file.
    pub(crate) fn write(&mut self, text: &str) -> anyhow::Result<()> {
        self.replace(text)
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn replace(&mut self, text: &str) -> io::Result<()> {
        // A pipe or a device has nothing to cut off.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(text.as_bytes())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.created && self.file.metadata().is_ok_and(|about| about.len() == 0) {
            // The earlier failure is reported.
            let _: io::Result<()> = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_stays_only_if_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("timeline.json");
        let mut output = Output::open(path.clone()).unwrap();
        assert!(path.exists());
        drop(output);
        assert!(!path.exists());
        output = Output::open(path.clone()).unwrap();
        output.write("{}").unwrap();
        drop(output);
        assert_eq!(fs::read_to_string(&path).unwrap(), "{}");
    }

    #[test]
    fn an_earlier_file_stays_until_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        for before in ["", "of an earlier run"] {
            let path = folder.path().join("timeline.json");
            fs::write(&path, before).unwrap();
            let mut output = Output::open(path.clone()).unwrap();
            drop(output);
            assert_eq!(fs::read_to_string(&path).unwrap(), before);
            output = Output::open(path.clone()).unwrap();
            output.write("{}").unwrap();
            drop(output);
            assert_eq!(
                fs::read_to_string(&path).unwrap(),
                "{}",
                "the rest is cut off"
            );
        }
    }

    #[test]
    fn a_device_is_written_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("timeline.json");
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        let mut output = Output::open(path.clone()).unwrap();
        output.write("{}").unwrap();
        drop(output);
        assert!(path.is_symlink() && Path::new("/dev/null").exists());
    }
}
