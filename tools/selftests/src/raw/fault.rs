// SPDX-License-Identifier: GPL-2.0
//! Memory whose first access blocks until it is released: a userfaultfd region.

use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;

use super::memory::Buffer;
use crate::wait;

/// `struct uffdio_api`.
#[repr(C)]
#[derive(Default)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register`, and the beginning of `struct uffdio_zeropage`; it begins with `struct
/// uffdio_range`.
#[repr(C)]
#[derive(Default)]
struct Range {
    start: u64,
    bytes: u64,
    mode: u64,
    result: u64,
}

const UFFD_API: u64 = 0xaa;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_ZEROPAGE: u64 = 0xc020_aa04;
const UFFDIO_WAKE: u64 = 0x8010_aa02;
const MODE_MISSING: u64 = 1;

/// Memory whose every first access blocks.
pub(crate) struct Endless {
    uffd: OwnedFd,
    pub(crate) memory: Buffer,
}

impl Endless {
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        let memory = Buffer::new(bytes)?;
        // SAFETY: no pointers.
        let fd =
            unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
        let fd = Errno::result(fd).context("userfaultfd")?;
        // SAFETY: the kernel has just made it for us.
        let uffd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let it = Self { uffd, memory };
        it.call(
            UFFDIO_API,
            &mut Api {
                api: UFFD_API,
                ..Default::default()
            },
        )
        .context("UFFDIO_API")?;
        let mut range = it.range();
        range.mode = MODE_MISSING;
        it.call(UFFDIO_REGISTER, &mut range)
            .context("UFFDIO_REGISTER")?;
        Ok(it)
    }

    fn range(&self) -> Range {
        Range {
            start: self.memory.addr(),
            bytes: self.memory.bytes() as u64,
            ..Default::default()
        }
    }

    fn call<T>(&self, request: u64, arg: &mut T) -> Result<(), Errno> {
        // SAFETY: `arg` is of the type of the request.
        let result =
            unsafe { libc::ioctl(self.uffd.as_raw_fd(), request, std::ptr::from_mut(arg)) };
        Errno::result(result).map(drop)
    }

    /// Waits until a thread blocks in it.
    pub(crate) fn caught(&self) -> Result<()> {
        wait::readable(self.uffd.as_fd(), "a page fault that hangs").map(drop)
    }

    /// Resumes all threads, with zeros.
    pub(crate) fn release(&self) -> Result<()> {
        self.fill(self.memory.bytes())
    }

    /// Accesses to the first bytes do not block: zeros, unless they have been written.
    pub(crate) fn fill(&self, bytes: usize) -> Result<()> {
        let mut range = self.range();
        range.bytes = bytes as u64;
        self.call(UFFDIO_ZEROPAGE, &mut range)
            .context("UFFDIO_ZEROPAGE")
    }

    /// Resumes all threads, whose accesses fail.
    pub(crate) fn refuse(&self) -> Result<()> {
        self.memory.punch(0, self.memory.bytes())?;
        self.call(UFFDIO_WAKE, &mut self.range())
            .context("UFFDIO_WAKE")
    }
}
