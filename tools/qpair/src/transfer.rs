// SPDX-License-Identifier: GPL-2.0
//! A file between two processes.
//!
//! ```text
//!   receiver --> {"have": BYTES, "sha256": S}     what it has of the file, from an earlier transfer
//!   sender   --> {"bytes": ALL, "from": N}        N is BYTES if its own begin with S, else 0
//!   sender   --> ALL - N bytes, in messages
//!   sender   --> {"sha256": S}                    of the whole file
//!   receiver --> {"done": true}                   once it has the name
//! ```
//!
//! Either may send `{"error": TEXT}` instead, and the transfer ends. The first byte of each message
//! is its kind: 0 before bytes of the file, 1 before text. While the bytes come, the receiver appends
//! to `.NAME.part`; the digest of what is there is taken again before it goes on.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _};
use indicatif::ProgressBar;
use qpair::Endpoint;
use rustix::fs::{flock, FlockOperation, OFlags};
use serde_json::{json, Value};
use sha2::{Digest as _, Sha256};

/// The first byte of a message with bytes of the file.
const DATA: u8 = 0;
/// The first byte of a message with text.
const TEXT: u8 = 1;

/// An endpoint, and the buffer of what comes.
#[derive(Debug)]
pub(crate) struct Line {
    endpoint: Endpoint,
    buffer: Vec<u8>,
    timeout: Duration,
}

/// The result of a transfer.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) bytes: u64,
    pub(crate) from: u64,
    pub(crate) digest: String,
}

impl std::fmt::Display for Moved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            bytes,
            from,
            digest,
        } = self;
        write!(f, "{bytes} bytes")?;
        if *from > 0 {
            write!(f, ", {from} of them before")?;
        }
        write!(f, ", SHA-256 {digest}")
    }
}

impl Line {
    pub(crate) fn new(endpoint: Endpoint, timeout: Duration) -> Self {
        Self {
            buffer: vec![0; endpoint.max_recv()],
            endpoint,
            timeout,
        }
    }

    /// Says something to the other end.
    pub(crate) fn say(&mut self, value: &Value) -> anyhow::Result<()> {
        let mut message = vec![TEXT];
        message.extend(value.to_string().into_bytes());
        self.endpoint.send(&message)?;
        Ok(())
    }

    /// Reports a failure to the other end, as far as it listens.
    pub(crate) fn fail(&mut self, error: &anyhow::Error) {
        let mut text = format!("{error:#}");
        let room = self.endpoint.max_send() / 2;
        while text.len() > room {
            text.pop();
        }
        let _: anyhow::Result<()> = self.say(&json!({ "error": text }));
    }

    /// What the other end says next.
    pub(crate) fn hear(&mut self) -> anyhow::Result<Value> {
        let bytes = self.next()?;
        said(&self.buffer[..bytes])
    }

    /// The next message, in time.
    fn next(&mut self) -> anyhow::Result<usize> {
        match self.endpoint.recv_for(&mut self.buffer, self.timeout)? {
            Some(bytes) => Ok(bytes),
            None => bail!(
                "the peer said nothing for {} seconds: see that it runs, or allow more (--timeout)",
                self.timeout.as_secs()
            ),
        }
    }

    /// Delivers what was said, and ends.
    pub(crate) fn close(self) -> anyhow::Result<()> {
        Ok(self.endpoint.close()?)
    }

    /// Sends a message of the file, with its kind; listens meanwhile, since the receiver may fail.
    fn send(&mut self, message: &[u8]) -> anyhow::Result<()> {
        let mut deadline = None;
        loop {
            if let Some(bytes) = self.endpoint.try_recv(&mut self.buffer)? {
                let value = said(&self.buffer[..bytes])?;
                let value = shown(&value.to_string());
                bail!("the peer said {value} while the file was sent");
            }
            if self.endpoint.try_send(message)?.is_some() {
                return Ok(());
            }
            let now = Instant::now();
            let left = deadline
                .get_or_insert(now + self.timeout)
                .saturating_duration_since(now);
            ensure!(
                !left.is_zero(),
                "the peer took nothing for {} seconds: see that it runs, or allow more (--timeout)",
                self.timeout.as_secs()
            );
            self.endpoint.pause(left)?;
        }
    }

    /// Sends a file, from where the receiver's part of it ends.
    pub(crate) fn send_file(
        &mut self,
        file: &mut File,
        progress: &ProgressBar,
    ) -> anyhow::Result<Moved> {
        let have = self.hear()?;
        let (held, theirs) = (number(&have, "have")?, text(&have, "sha256")?);
        let all = file.metadata()?.len();
        let mut digest = Sha256::new();
        let mut from = 0;
        let has_so_many = held > 0 && held <= all && hash(file, &mut digest, held)?;
        if has_so_many && format!("{:x}", digest.clone().finalize()) == theirs {
            from = held;
        }
        if from == 0 {
            digest = Sha256::new();
            file.seek(SeekFrom::Start(0))?;
        }
        self.say(&json!({ "bytes": all, "from": from }))?;
        progress.set_position(from);
        let mut block = vec![DATA; self.endpoint.max_send()];
        let mut left = all - from;
        while left > 0 {
            let most = (block.len() - 1).min(usize::try_from(left).unwrap_or(usize::MAX));
            let count = file.read(&mut block[1..=most])?;
            ensure!(count > 0, "the file became shorter while it was sent");
            digest.update(&block[1..=count]);
            self.send(&block[..=count])?;
            left -= count as u64;
            progress.inc(count as u64);
        }
        let digest = format!("{:x}", digest.finalize());
        self.say(&json!({ "sha256": digest }))?;
        let done = self.hear()?;
        ensure!(
            done["done"] == true,
            "the peer said {}, and not that it is done",
            shown(&done.to_string())
        );
        Ok(Moved {
            bytes: all,
            from,
            digest,
        })
    }

    /// Receives a file into a folder.
    pub(crate) fn receive_file(
        &mut self,
        folder: &Path,
        name: &str,
        progress: &ProgressBar,
    ) -> anyhow::Result<Moved> {
        let mut part = Part::open(folder, name)?;
        let mut digest = Sha256::new();
        let held = part.file.metadata()?.len();
        hash(&mut part.file, &mut digest, held)?;
        let had = format!("{:x}", digest.clone().finalize());
        self.say(&json!({ "have": held, "sha256": had }))?;
        let begin = self.hear()?;
        let (all, from) = (number(&begin, "bytes")?, number(&begin, "from")?);
        ensure!(
            from <= all && (from == 0 || from == held),
            "the peer goes on at {from} of {all} bytes, and {held} are here"
        );
        if from == 0 {
            digest = Sha256::new();
            part.file.set_len(0)?;
        }
        part.file.seek(SeekFrom::Start(from))?;
        progress.set_length(all);
        progress.set_position(from);
        let mut left = all - from;
        while left > 0 {
            let count = self.next()?;
            let Some((&DATA, bytes)) = self.buffer[..count].split_first() else {
                let value = shown(&said(&self.buffer[..count])?.to_string());
                bail!("the peer said {value} while {left} bytes of the file were missing");
            };
            let count = bytes.len();
            ensure!(
                (1..=left).contains(&(count as u64)),
                "the peer sent {count} bytes of the file, and {left} were missing: use programs of one release"
            );
            digest.update(bytes);
            part.file
                .write_all(bytes)
                .with_context(|| format!("cannot write {}", part.path.display()))?;
            left -= count as u64;
            progress.inc(count as u64);
        }
        let theirs = self.hear()?;
        let theirs = text(&theirs, "sha256")?;
        let digest = format!("{:x}", digest.finalize());
        if digest != theirs {
            fs::remove_file(&part.path)?;
            let theirs = shown(theirs);
            bail!("the file differs: SHA-256 {theirs} was sent, {digest} came; it is removed, try again");
        }
        part.whole(&folder.join(name))?;
        self.say(&json!({ "done": true }))?;
        Ok(Moved {
            bytes: all,
            from,
            digest,
        })
    }
}

/// A file that is coming. Only one process at a time has it open.
#[derive(Debug)]
struct Part {
    file: File,
    path: PathBuf,
    is_whole: bool,
}

impl Part {
    fn open(folder: &Path, name: &str) -> anyhow::Result<Self> {
        check(name)?;
        let path = folder.join(format!(".{name}.part"));
        let shown = path.display().to_string();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
            .open(&path)
            .with_context(|| format!("cannot write {shown}: remove it if it is no regular file"))?;
        ensure!(
            file.metadata()?.is_file(),
            "cannot write {shown}: remove it, it is no regular file"
        );
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .with_context(|| format!("{name} is being received already: wait until that transfer ends (it has {shown} locked)"))?;
        // A process that was faster may have given this file its name meanwhile.
        let (here, there) = (file.metadata()?, fs::symlink_metadata(&path).ok());
        ensure!(
            there.is_some_and(|there| (there.dev(), there.ino()) == (here.dev(), here.ino())),
            "{name} was received meanwhile"
        );
        Ok(Self {
            file,
            path,
            is_whole: false,
        })
    }

    /// Gives it its name.
    fn whole(mut self, to: &Path) -> anyhow::Result<()> {
        let shown = to.display();
        fs::rename(&self.path, to).with_context(|| format!("cannot write {shown}"))?;
        self.is_whole = true;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Nothing to go on with.
        if !self.is_whole && self.file.metadata().is_ok_and(|about| about.len() == 0) {
            let _: io::Result<()> = fs::remove_file(&self.path);
        }
    }
}

/// Opens a file of a folder, which a peer names. A link is not followed, and a FIFO is not waited for.
pub(crate) fn open(folder: &Path, name: &str) -> anyhow::Result<File> {
    check(name)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
        .open(folder.join(name))
        .with_context(|| {
            format!("cannot open {name} of the folder that is served: name a regular file there")
        })?;
    ensure!(
        file.metadata()?.is_file(),
        "cannot open {name} of the folder that is served: it is no regular file"
    );
    Ok(file)
}

/// Text of a peer, for a terminal: what is not printable is escaped.
fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\'' | '\\' => shown.push(character),
            _ => shown.extend(character.escape_debug()),
        }
    }
    shown
}

/// Whether this may be the name of a file that a peer names: in the folder itself, not hidden, and
/// without control characters.
pub(crate) fn check(name: &str) -> anyhow::Result<()> {
    let mut parts = Path::new(name).components();
    let is_plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(only)), None) if only == name);
    let is_printed = !name.contains(char::is_control);
    ensure!(
        is_plain && is_printed && !name.starts_with('.') && name.len() <= 200,
        "{name:?} is no name of a file that can be moved: use one of at most 200 bytes, without a slash, a control character or a dot at its begin"
    );
    Ok(())
}

/// Reads and hashes the first `count` bytes; whether there are so many.
fn hash(file: &mut File, digest: &mut Sha256, count: u64) -> anyhow::Result<bool> {
    file.seek(SeekFrom::Start(0))?;
    let mut block = vec![0; 1 << 16];
    let mut left = count;
    while left > 0 {
        let most = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let count = file.read(&mut block[..most])?;
        if count == 0 {
            return Ok(false);
        }
        digest.update(&block[..count]);
        left -= count as u64;
    }
    Ok(true)
}

/// What a message says, unless that is an error.
fn said(message: &[u8]) -> anyhow::Result<Value> {
    let text = message.strip_prefix(&[TEXT]);
    let value: Option<Value> = text.and_then(|text| serde_json::from_slice(text).ok());
    let value = value.with_context(|| {
        format!(
            "the peer sent {} bytes that say nothing: use programs of one release",
            message.len()
        )
    })?;
    if let Some(error) = value["error"].as_str() {
        bail!("the peer failed: {}", shown(error));
    }
    Ok(value)
}

pub(crate) fn number(value: &Value, field: &str) -> anyhow::Result<u64> {
    let found = value[field].as_u64();
    found.with_context(|| {
        let value = shown(&value.to_string());
        format!("the peer said {value}, without {field}: use programs of one release")
    })
}

pub(crate) fn text<'v>(value: &'v Value, field: &str) -> anyhow::Result<&'v str> {
    let found = value[field].as_str();
    found.with_context(|| {
        let value = shown(&value.to_string());
        format!("the peer said {value}, without {field}: use programs of one release")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_names_files_of_the_folder_only() {
        for good in ["a", "a b", "vmlinuz-6.12", "ä"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in [
            "", ".", "..", "a/b", "/a", "../a", ".a", "a/", "./a", "a\n", "\u{9b}",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
        assert!(check(&"a".repeat(201)).is_err());
    }

    #[test]
    fn a_file_is_received_once_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let part = Part::open(folder.path(), "a").unwrap();
        let refused = Part::open(folder.path(), "a").unwrap_err();
        assert!(refused.to_string().contains("being received already"));
        part.whole(&folder.path().join("a")).unwrap();
        assert!(folder.path().join("a").exists());
        let part = Part::open(folder.path(), "a").unwrap();
        drop(part);
        assert!(!folder.path().join(".a.part").exists(), "empty");
    }

    #[test]
    fn an_error_that_is_said_is_one_here() {
        assert!(said(b"\x01{\"done\":true}").is_ok());
        let error = said(b"\x01{\"error\":\"disk full\"}").unwrap_err();
        assert_eq!(error.to_string(), "the peer failed: disk full");
        for bad in [&b"\x01"[..], b"\0\0", b"", b"{\"done\":true}", b"\0{}"] {
            let error = said(bad).unwrap_err().to_string();
            assert!(error.contains("say nothing"), "{error}");
        }
    }

    #[test]
    fn text_of_a_peer_does_not_control_the_terminal() {
        let text = json!({ "error": "\u{1b}[2J \u{9b}K \"it's\" \\ ä\n" }).to_string();
        let error = said(&[&[TEXT], text.as_bytes()].concat()).unwrap_err();
        let expected = r#"the peer failed: \u{1b}[2J \u{9b}K "it's" \ ä\n"#;
        assert_eq!(error.to_string(), expected);
        let value = json!({ "a": "\u{9b}" });
        let error = super::text(&value, "get").unwrap_err().to_string();
        assert!(!error.contains(char::is_control), "{error:?}");
    }
}
