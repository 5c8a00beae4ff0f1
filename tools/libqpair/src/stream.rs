// SPDX-License-Identifier: GPL-2.0
//! The byte stream beside the queue pairs of two endpoints.
//!
//! It carries the handshake, the end, and nothing else. Its end shows the end of a process: the
//! kernel closes it with the process.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;

use crate::channel::timespec;

const CENTURY: Duration = Duration::from_secs(100 * 365 * 86400);

/// A byte stream: a Unix socket, a TCP connection, a [`Duplex`] of two pipes. The descriptor is the
/// one that is read from.
pub trait Stream: Read + Write + AsFd + Send + Sync + fmt::Debug {}

impl<S: Read + Write + AsFd + Send + Sync + fmt::Debug> Stream for S {}

/// One stream from two: a pipe for each direction.
#[derive(Debug)]
pub struct Duplex<R, W> {
    /// Bytes from the peer.
    pub reader: R,
    /// Bytes to the peer.
    pub writer: W,
}

impl<R: Read, W> Read for Duplex<R, W> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.reader.read(into)
    }
}

impl<R, W: Write> Write for Duplex<R, W> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.writer.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl<R: AsFd, W> AsFd for Duplex<R, W> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

/// Why nothing was read.
#[derive(Debug)]
pub(crate) enum NoBytes {
    /// The other end is closed.
    Ended,
    /// The time is over.
    Late,
    /// A read failed with an error other than these.
    Failed(io::Error),
}

/// The error of a stream whose other end is closed.
pub(crate) fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    )
}

/// Fills `into`, until `deadline` at the latest.
pub(crate) fn read_until(
    stream: &mut dyn Stream,
    into: &mut [u8],
    deadline: Instant,
) -> Result<(), NoBytes> {
    let mut filled = 0;
    while filled < into.len() {
        wait(stream.as_fd(), deadline)?;
        match stream.read(&mut into[filled..]) {
            Ok(0) => return Err(NoBytes::Ended),
            Ok(count) => filled += count,
            Err(error) if is_transient(&error) => {}
            Err(error) if is_end(&error) => return Err(NoBytes::Ended),
            Err(error) => return Err(NoBytes::Failed(error)),
        }
    }
    Ok(())
}

/// Writes all of `from`, a few bytes, which fit into the buffer of any stream.
pub(crate) fn write(stream: &mut dyn Stream, from: &[u8]) -> Result<(), NoBytes> {
    match stream.write_all(from).and_then(|()| stream.flush()) {
        Ok(()) => Ok(()),
        Err(error) if is_end(&error) => Err(NoBytes::Ended),
        Err(error) => Err(NoBytes::Failed(error)),
    }
}

pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut
    )
}

/// Waits until there are bytes, or the end of the stream.
fn wait(fd: BorrowedFd<'_>, deadline: Instant) -> Result<(), NoBytes> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match poll(
            &mut [PollFd::new(&fd, PollFlags::IN)],
            Some(&timespec(left)),
        ) {
            Ok(0) => return Err(NoBytes::Late),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(NoBytes::Failed(errno.into())),
        }
    }
}

/// When `time` is over. A time that the clock cannot add is a century.
pub(crate) fn deadline(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or_else(|| now + CENTURY)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A file that is only read, and one that is only written.
    fn files() -> (File, File) {
        let named = tempfile::NamedTempFile::new().unwrap();
        let written = fs::OpenOptions::new().append(true).open(named.path());
        (File::open(named.path()).unwrap(), written.unwrap())
    }

    #[test]
    fn a_closed_end_is_no_failure() {
        let (mut near, far) = UnixStream::pair().unwrap();
        drop(far);
        let wrote = write(&mut near, b"x");
        assert!(matches!(wrote, Err(NoBytes::Ended)), "{wrote:?}");
        let read = read_until(&mut near, &mut [0], deadline(Duration::MAX));
        assert!(matches!(read, Err(NoBytes::Ended)), "{read:?}");
        // An end that leaves bytes unread resets the stream.
        let (mut near, far) = UnixStream::pair().unwrap();
        write(&mut near, b"x").unwrap();
        drop(far);
        let read = read_until(&mut near, &mut [0], deadline(Duration::MAX));
        assert!(matches!(read, Err(NoBytes::Ended)), "{read:?}");
        let (mut only_read, mut only_written) = files();
        let wrote = write(&mut only_read, b"x");
        assert!(matches!(wrote, Err(NoBytes::Failed(_))), "{wrote:?}");
        let read = read_until(&mut only_written, &mut [0], deadline(Duration::MAX));
        assert!(matches!(read, Err(NoBytes::Failed(_))), "{read:?}");
    }

    #[test]
    fn a_read_ends_in_time() {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let mut into = [0; 2];
        write(&mut far, b"a").unwrap();
        let read = read_until(&mut near, &mut into, deadline(Duration::ZERO));
        assert!(matches!(read, Err(NoBytes::Late)), "{read:?}");
        write(&mut far, b"bc").unwrap();
        read_until(&mut near, &mut into, deadline(Duration::ZERO)).unwrap();
        assert_eq!(&into, b"bc");
    }

    #[test]
    fn an_endless_time_is_a_century() {
        let left = deadline(Duration::MAX) - Instant::now();
        assert!(left > Duration::from_secs(99 * 365 * 86400));
    }
}
