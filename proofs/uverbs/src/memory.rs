// SPDX-License-Identifier: GPL-2.0
//! The memory of a process, at the same addresses in each.

use std::ffi::c_void;
use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use anyhow::{Context as _, Result};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::mman::{madvise, mmap, mmap_anonymous, mprotect, munmap};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags};
use nix::sys::uio::{process_vm_readv, process_vm_writev, RemoteIoVec};
use nix::unistd::getpid;

use crate::call::At;

pub(crate) const PAGE: u64 = 4096;

/// Where the areas begin, and their pages.
const PLAIN: (u64, u64) = (0x10_0000_0000, 512);
const READ_ONLY: (u64, u64) = (0x10_1000_0000, 16);
const FILE: (u64, u64) = (0x10_2000_0000, 64);
const HOLE: (u64, u64) = (0x10_3000_0000, 16);
const HUGE: (u64, u64) = (0x10_4000_0000, 1024);
/// Where the doorbells are mapped.
pub(crate) const DOORBELLS: u64 = 0x10_5000_0000;
const KERNEL: u64 = 0xffff_8880_0000_0000;

pub(crate) struct Memory {
    file: OwnedFd,
    /// Pages of [`PLAIN`] that have been given out.
    given: u64,
}

/// A mapping at an address, in place of what is there.
fn map(
    (at, pages): (u64, u64),
    protection: ProtFlags,
    flags: MapFlags,
    fd: Option<&OwnedFd>,
) -> nix::Result<()> {
    let bytes = NonZeroUsize::new((pages * PAGE) as usize).ok_or(nix::errno::Errno::EINVAL)?;
    let at = NonZeroUsize::new(at as usize);
    let flags = flags | MapFlags::MAP_FIXED;
    // SAFETY: These addresses are of no Rust object: far below what the kernel chooses.
    unsafe {
        match fd {
            Some(fd) => mmap(at, bytes, protection, flags, fd, 0),
            None => mmap_anonymous(at, bytes, protection, flags),
        }
    }
    .map(drop)
}

/// The address as a pointer; the areas are no Rust objects.
fn pointer(addr: u64) -> Option<NonNull<c_void>> {
    NonNull::new(std::ptr::without_provenance_mut(addr as usize))
}

/// Whether all of it is in the areas of [`Memory`], or the page of the doorbells.
fn is_ours(addr: u64, bytes: u64) -> bool {
    addr >= PLAIN.0
        && addr
            .checked_add(bytes)
            .is_some_and(|end| end <= DOORBELLS + PAGE)
}

impl Memory {
    pub(crate) fn new() -> Result<Self> {
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let private = MapFlags::MAP_PRIVATE;
        map(PLAIN, both, private, None).context("memory")?;
        map(READ_ONLY, ProtFlags::PROT_READ, private, None)?;
        map(HOLE, ProtFlags::PROT_NONE, private, None)?;
        map(HUGE, both, private, None)?;
        let file = memfd_create(c"fuzz", MFdFlags::MFD_CLOEXEC).context("memfd")?;
        nix::unistd::ftruncate(&file, (FILE.1 * PAGE) as i64)?;
        map(FILE, both, MapFlags::MAP_SHARED, Some(&file))?;
        let this = Self { file, given: 0 };
        // A kernel may have no huge pages.
        let _ = this.advise(HUGE.0, HUGE.1, MmapAdvise::MADV_HUGEPAGE);
        Ok(this)
    }

    /// An address for so many bytes: mostly pages that no other call has.
    pub(crate) fn at(&mut self, at: At, bytes: u64) -> u64 {
        let pages = bytes.div_ceil(PAGE).max(1);
        match at.0 {
            0..=159 => {
                if self.given + pages > PLAIN.1 {
                    self.given = 0;
                }
                let addr = PLAIN.0 + self.given * PAGE;
                self.given += pages.min(PLAIN.1);
                addr
            }
            at @ 160..=207 => PLAIN.0 + u64::from(at - 160) * PAGE,
            at @ 208..=223 => FILE.0 + u64::from(at - 208) * PAGE,
            at @ 224..=231 => HUGE.0 + u64::from(at - 224) * (1 << 18),
            at @ 232..=239 => PLAIN.0 + u64::from(at - 232) * 8 + 1,
            at @ 240..=243 => READ_ONLY.0 + u64::from(at - 240) * PAGE,
            at @ 244..=245 => HOLE.0 - u64::from(at - 244) * PAGE,
            246 => PLAIN.0 + (PLAIN.1 - 1) * PAGE,
            247 => READ_ONLY.0 - PAGE,
            248..=249 => DOORBELLS,
            250 => 0,
            251 => u64::MAX - PAGE + 1,
            252 => u64::MAX,
            253 => KERNEL,
            254 => 1 << 47,
            255 => PLAIN.0 + 64,
        }
    }

    /// Stores words, wherever that is possible.
    pub(crate) fn store(&self, addr: u64, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        if !is_ours(addr, bytes.len() as u64) {
            return;
        }
        let (base, len) = (addr as usize, bytes.len());
        // It fails where memory is not writable.
        let _ = process_vm_writev(
            getpid(),
            &[IoSlice::new(&bytes)],
            &[RemoteIoVec { base, len }],
        );
    }

    pub(crate) fn load(&self, addr: u64) -> Option<u64> {
        let mut word = [0; 8];
        let remote = RemoteIoVec {
            base: addr as usize,
            len: word.len(),
        };
        process_vm_readv(getpid(), &mut [IoSliceMut::new(&mut word)], &[remote]).ok()?;
        Some(u64::from_ne_bytes(word))
    }

    pub(crate) fn advise(&self, addr: u64, pages: u64, advice: MmapAdvise) -> nix::Result<()> {
        let (Some(at), true) = (pointer(addr), is_ours(addr, pages * PAGE)) else {
            return Ok(());
        };
        // SAFETY: It is of no Rust object.
        unsafe { madvise(at, (pages * PAGE) as usize, advice) }
    }

    pub(crate) fn protect(&self, addr: u64, pages: u64, protection: u8) {
        let (Some(at), true) = (pointer(addr), is_ours(addr, pages * PAGE)) else {
            return;
        };
        let protection = ProtFlags::from_bits_truncate(i32::from(protection % 8));
        // SAFETY: It is of no Rust object.
        let _ = unsafe { mprotect(at, (pages * PAGE) as usize, protection) };
    }

    pub(crate) fn unmap(&self, addr: u64, pages: u64) {
        let (Some(at), true) = (pointer(addr), is_ours(addr, pages * PAGE)) else {
            return;
        };
        // SAFETY: It is of no Rust object.
        let _ = unsafe { munmap(at, (pages * PAGE) as usize) };
    }

    /// Makes the file shorter, below what the device may have, or longer.
    pub(crate) fn truncate(&self, pages: u8) {
        let _ = nix::unistd::ftruncate(&self.file, i64::from(pages) * PAGE as i64);
    }
}
