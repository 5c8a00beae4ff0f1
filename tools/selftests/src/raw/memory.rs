// SPDX-License-Identifier: GPL-2.0
//! Memory for the device, of every kind that matters for pinning.

use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use anyhow::bail;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;

pub(crate) fn page_size() -> usize {
    4096
}

/// Memory of its own mapping. The device may read and write it at any time, so it is
/// never borrowed: bytes are copied in and out.
pub(crate) struct Buffer {
    addr: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is an address range; the device's accesses do not depend on the thread.
unsafe impl Send for Buffer {}
// SAFETY: accesses are copies, and races only corrupt the bytes of the test.
unsafe impl Sync for Buffer {}

impl Buffer {
    fn map(bytes: usize, prot: i32, flags: i32, fd: i32) -> Result<Self, Errno> {
        let bytes = bytes.next_multiple_of(page_size());
        // SAFETY: a new mapping at an address of the kernel's choice.
        let addr = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, fd, 0) };
        if addr == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let addr = NonNull::new(addr.cast()).ok_or(Errno::EFAULT)?;
        Ok(Self { addr, bytes })
    }

    /// Zeroed memory, writable.
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        Self::map(bytes.max(1), libc::PROT_READ | libc::PROT_WRITE, flags, -1)
            .with_context(|| format!("mmap of {bytes} bytes"))
    }

    /// Memory in huge pages of 2 MiB, or an error if there is none.
    pub(crate) fn huge(bytes: usize) -> Result<Self, Errno> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
        Self::map(
            bytes.next_multiple_of(2 << 20),
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
        )
    }

    /// Memory whose adjacent pages are not physically adjacent: pages of 4 KiB, populated in random
    /// order, with another page allocated after each.
    pub(crate) fn scattered(bytes: usize, rng: &mut fastrand::Rng) -> Result<(Self, Self)> {
        let buffer = Self::new(bytes)?;
        let between = Self::new(bytes)?;
        buffer.advise(libc::MADV_NOHUGEPAGE)?;
        between.advise(libc::MADV_NOHUGEPAGE)?;
        let mut order: Vec<usize> = (0..buffer.bytes / page_size()).collect();
        rng.shuffle(&mut order);
        for page in order {
            buffer.write(page * page_size(), &[0]);
            between.write(page * page_size(), &[1]);
        }
        Ok((buffer, between))
    }

    /// A mapping of a file, shared.
    pub(crate) fn of_file(fd: BorrowedFd<'_>, bytes: usize, writable: bool) -> Result<Self, Errno> {
        let prot = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        Self::map(bytes, prot, libc::MAP_SHARED, fd.as_raw_fd())
    }

    pub(crate) fn advise(&self, advice: i32) -> Result<()> {
        // SAFETY: our own mapping.
        let result = unsafe { libc::madvise(self.addr.as_ptr().cast(), self.bytes, advice) };
        Errno::result(result).map(drop).context("madvise")
    }

    /// Makes it readable only, or writable again.
    pub(crate) fn protect(&self, writable: bool) -> Result<()> {
        let prot = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: our own mapping, and nothing borrows it.
        let result = unsafe { libc::mprotect(self.addr.as_ptr().cast(), self.bytes, prot) };
        Errno::result(result).map(drop).context("mprotect")
    }

    /// Makes a part of it inaccessible: a hole that no later mapping fills.
    pub(crate) fn punch(&self, at: usize, bytes: usize) -> Result<()> {
        if at + bytes > self.bytes {
            bail!("punching outside the buffer");
        }
        // SAFETY: a part of our own mapping, which the caller does not touch again.
        let result =
            unsafe { libc::mprotect(self.addr.as_ptr().add(at).cast(), bytes, libc::PROT_NONE) };
        Errno::result(result).map(drop).context("mprotect")
    }

    pub(crate) fn addr(&self) -> u64 {
        self.addr.as_ptr() as u64
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn write(&self, at: usize, from: &[u8]) {
        assert!(at + from.len() <= self.bytes);
        // SAFETY: inside the mapping; `from` is borrowed and the mapping never is.
        unsafe {
            self.addr
                .as_ptr()
                .add(at)
                .copy_from(from.as_ptr(), from.len())
        }
    }

    pub(crate) fn read(&self, at: usize, bytes: usize) -> Vec<u8> {
        assert!(at + bytes <= self.bytes);
        let mut into = vec![0; bytes];
        // SAFETY: inside the mapping; `into` is our own.
        unsafe { self.addr.as_ptr().add(at).copy_to(into.as_mut_ptr(), bytes) }
        into
    }

    /// Loads a word at once.
    pub(crate) fn load(&self, at: usize) -> u64 {
        assert!(at + 8 <= self.bytes && at % 8 == 0);
        // SAFETY: inside the mapping and aligned.
        unsafe { self.addr.as_ptr().add(at).cast::<u64>().read_volatile() }
    }

    /// Loads half a word at once, as registers are read.
    pub(crate) fn load_half(&self, at: usize) -> u32 {
        assert!(at + 4 <= self.bytes && at % 4 == 0);
        // SAFETY: as in `load`.
        unsafe { self.addr.as_ptr().add(at).cast::<u32>().read_volatile() }
    }

    /// Stores half a word at once.
    pub(crate) fn store_half(&self, at: usize, value: u32) {
        assert!(at + 4 <= self.bytes && at % 4 == 0);
        // SAFETY: as in `store`.
        unsafe {
            self.addr
                .as_ptr()
                .add(at)
                .cast::<u32>()
                .write_volatile(value)
        }
    }

    /// Stores a word at once.
    pub(crate) fn store(&self, at: usize, value: u64) {
        assert!(at + 8 <= self.bytes && at % 8 == 0);
        // SAFETY: inside the mapping and aligned.
        unsafe {
            self.addr
                .as_ptr()
                .add(at)
                .cast::<u64>()
                .write_volatile(value)
        }
    }

    pub(crate) fn clear(&self) {
        // SAFETY: our own mapping, whole.
        unsafe { self.addr.as_ptr().write_bytes(0, self.bytes) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: our own mapping. The kernel holds its own references to pinned pages.
        unsafe { libc::munmap(self.addr.as_ptr().cast(), self.bytes) };
    }
}
