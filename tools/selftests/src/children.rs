// SPDX-License-Identifier: GPL-2.0
//! Other processes: start, communication, kill, and wait with a deadline.

use std::io::Read;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::panic::catch_unwind;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use anyhow::anyhow;
use anyhow::bail;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::socket::ControlMessage;
use nix::sys::socket::ControlMessageOwned;
use nix::sys::socket::MsgFlags;
use nix::sys::wait::WaitPidFlag;
use nix::sys::wait::WaitStatus;
use nix::unistd::ForkResult;
use nix::unistd::Pid;

use crate::ktap;
use crate::wait;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By exiting, with this status.
    Exit(i32),
    Signal(Signal),
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exit(status) => write!(f, "status {status}"),
            Self::Signal(signal) => write!(f, "{signal}"),
        }
    }
}

/// A channel between a process and its parent, for words, text and open files.
pub(crate) struct Link(UnixStream);

impl Link {
    pub(crate) fn tell(&self, word: u64) -> Result<()> {
        (&self.0)
            .write_all(&word.to_le_bytes())
            .context("writing to the other process")
    }

    /// Receives a word; waits for it.
    pub(crate) fn hear(&self) -> Result<u64> {
        let mut bytes = [0; 8];
        self.0.set_read_timeout(Some(wait::patience() * 4))?;
        (&self.0)
            .read_exact(&mut bytes)
            .context("reading from the other process")?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Sends an open file.
    pub(crate) fn pass(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let fds = [fd.as_raw_fd()];
        let data = [std::io::IoSlice::new(b"fd")];
        let with = [ControlMessage::ScmRights(&fds)];
        nix::sys::socket::sendmsg::<()>(self.0.as_raw_fd(), &data, &with, MsgFlags::empty(), None)?;
        Ok(())
    }

    /// Receives an open file.
    pub(crate) fn take(&self) -> Result<OwnedFd> {
        let mut bytes = [0; 2];
        let mut data = [std::io::IoSliceMut::new(&mut bytes)];
        let mut space = nix::cmsg_space!([RawFd; 1]);
        let message = nix::sys::socket::recvmsg::<()>(
            self.0.as_raw_fd(),
            &mut data,
            Some(&mut space),
            MsgFlags::empty(),
        )?;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(fds) = control {
                let fd = *fds.first().ok_or_else(|| anyhow!("an empty message"))?;
                // SAFETY: the kernel has just made it for us.
                return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
        bail!("no open file was received")
    }
}

pub(crate) struct Child {
    pid: Pid,
    pidfd: OwnedFd,
    link: Link,
    ended: Option<End>,
    words: Option<String>,
}

impl Child {
    /// Starts a process that runs `work` and exits: with 0, with 1 and its error printed, or with
    /// [`ktap::SKIPPED`].
    pub(crate) fn start(work: impl FnOnce(&Link) -> Result<()>) -> Result<Self> {
        let (ours, theirs) = UnixStream::pair().context("socketpair")?;
        // SAFETY: no other thread holds a lock that the child needs: threads of tests use only
        // their own memory, system calls and the device.
        match unsafe { nix::unistd::fork() }.context("fork")? {
            ForkResult::Child => {
                drop(ours);
                let status = live(&Link(theirs), work);
                // SAFETY: no destructor of the parent may run in the child.
                unsafe { libc::_exit(status) }
            }
            ForkResult::Parent { child } => {
                drop(theirs);
                Ok(Self {
                    pid: child,
                    pidfd: pidfd_open(child)?,
                    link: Link(ours),
                    ended: None,
                    words: None,
                })
            }
        }
    }

    /// As [`Child::start`]; the process leads a new process group.
    pub(crate) fn group(work: impl FnOnce(&Link) -> Result<()>) -> Result<Self> {
        Self::start(|link| {
            nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0)).context("setpgid")?;
            work(link)
        })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        nix::sys::signal::kill(self.pid, signal).context("kill")
    }

    /// Waits for its end; kills it on a timeout.
    pub(crate) fn end(&mut self, time: Duration) -> Result<End> {
        if let Some(end) = self.ended {
            return Ok(end);
        }
        if wait::poll(self.pidfd.as_fd(), time)?.is_empty() {
            self.tell_where();
            let _ = self.signal(Signal::SIGKILL);
            if wait::poll(self.pidfd.as_fd(), wait::patience())?.is_empty() {
                bail!(
                    "process {} took more than {time:?}, and SIGKILL does not end it",
                    self.pid
                );
            }
            self.reap()?;
            bail!("process {} took more than {time:?}", self.pid);
        }
        self.reap()
    }

    /// Prints the kernel stack of each of its threads. The kernel logs all tasks in uninterruptible
    /// sleep.
    fn tell_where(&self) {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid));
        for thread in threads.into_iter().flatten().flatten() {
            let stack = std::fs::read_to_string(thread.path().join("stack")).unwrap_or_default();
            let thread = thread.file_name();
            ktap::say(&format!(
                "process {} hangs, thread {}:\n{stack}",
                self.pid,
                thread.to_string_lossy()
            ));
        }
        let _ = std::fs::write("/proc/sysrq-trigger", "w");
    }

    /// Leaves it running.
    pub(crate) fn leave(mut self) {
        self.ended = Some(End::Exit(0));
    }

    /// Waits for its end, which must be a success.
    pub(crate) fn done(&mut self) -> Result<()> {
        match self.end(wait::patience() * 4)? {
            End::Exit(0) => Ok(()),
            end => bail!("process {} ended with {end}", self.pid),
        }
    }

    /// Kills it, and waits for its end.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.signal(Signal::SIGKILL)?;
        match self.end(wait::patience())? {
            End::Signal(Signal::SIGKILL) => Ok(()),
            end => bail!("a killed process ended with {end}"),
        }
    }

    /// Why it was skipped.
    pub(crate) fn last_words(&mut self) -> Option<String> {
        self.words.take().or_else(|| {
            let mut text = String::new();
            self.link.0.read_to_string(&mut text).ok()?;
            Some(text)
        })
    }

    /// Kills the remaining processes of its group, and waits for their end.
    pub(crate) fn clear_group(&self) -> Result<()> {
        wait::until("end of the case's processes", || {
            match nix::sys::signal::killpg(self.pid, Signal::SIGKILL) {
                Err(Errno::ESRCH) => return Ok(true),
                Err(error) => return Err(error).context("killpg"),
                Ok(()) => (),
            }
            // Children of the case are reparented to this process (see `adopt`).
            let _ = nix::sys::wait::waitpid(
                Pid::from_raw(-self.pid.as_raw()),
                Some(WaitPidFlag::WNOHANG),
            );
            Ok(false)
        })
    }

    fn reap(&mut self) -> Result<End> {
        let end = match nix::sys::wait::waitpid(self.pid, None).context("waitpid")? {
            WaitStatus::Exited(_, status) => End::Exit(status),
            WaitStatus::Signaled(_, signal, _) => End::Signal(signal),
            other => bail!("waitpid gave {other:?}"),
        };
        self.ended = Some(end);
        Ok(end)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _ = self.signal(Signal::SIGKILL);
            let _ = nix::sys::wait::waitpid(self.pid, None);
        }
    }
}

/// Makes this process the parent of its children's orphans.
pub fn adopt() -> Result<()> {
    // SAFETY: no pointers.
    let result = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    Errno::result(result).map(drop).context("prctl")
}

/// Runs the child; returns its exit status.
fn live(link: &Link, work: impl FnOnce(&Link) -> Result<()>) -> i32 {
    match catch_unwind(AssertUnwindSafe(|| work(link))) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => match ktap::skipped(&error) {
            Some(reason) => {
                let _ = (&link.0).write_all(reason.as_bytes());
                ktap::SKIPPED
            }
            None => {
                ktap::say(&format!("{error:#}"));
                1
            }
        },
        // The hook has printed it.
        Err(_) => 1,
    }
}

fn pidfd_open(pid: Pid) -> Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    let fd = Errno::result(fd).context("pidfd_open")?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}
