// SPDX-License-Identifier: GPL-2.0
//! Waiting: always for a condition with a deadline, never for a fixed time.

use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context as _;
use anyhow::Result;
use nix::poll::PollFd;
use nix::poll::PollFlags;
use nix::poll::PollTimeout;

/// Seconds that a condition may take: the debug kernel on an emulated CPU needs more.
static PATIENCE: AtomicU64 = AtomicU64::new(20);

/// Sets how long conditions may take.
pub fn set_patience(seconds: u64) {
    PATIENCE.store(seconds, Ordering::Relaxed);
}

/// How long a condition may take.
pub(crate) fn patience() -> Duration {
    Duration::from_secs(PATIENCE.load(Ordering::Relaxed))
}

/// Waits until `look` finds something.
///
/// Calls `look` without pause for a while, since most conditions soon hold, then every millisecond,
/// so that the awaited tasks get the CPUs of a small guest.
pub(crate) fn for_some<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    let mut looks = 0u32;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if start.elapsed() > patience() {
            bail!("{what} did not come within {:?}", patience());
        }
        looks += 1;
        if looks < 200 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Waits until `look` is true.
pub(crate) fn until(what: &str, mut look: impl FnMut() -> Result<bool>) -> Result<()> {
    for_some(what, || Ok(look()?.then_some(())))
}

/// Waits until a file is readable, or has failed.
pub(crate) fn readable(fd: BorrowedFd<'_>, what: &str) -> Result<PollFlags> {
    match poll(fd, patience())? {
        flags if flags.is_empty() => bail!("{what} did not come within {:?}", patience()),
        flags => Ok(flags),
    }
}

/// The result of `poll` for a file; empty on a timeout.
pub(crate) fn poll(fd: BorrowedFd<'_>, time: Duration) -> Result<PollFlags> {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(time).context("time-out")?;
    nix::poll::poll(&mut fds, timeout).context("poll")?;
    fds[0].revents().context("flags of poll")
}
