// SPDX-License-Identifier: GPL-2.0
//! The calls to the kernel.
//!
//! [`Kernel`] abstracts all of them: the calls, the doorbell page, the asynchronous events. A
//! program uses [`File`], which is `/dev/qpairN`; a test uses the device model instead, and runs
//! the library's data path in one process.
//!
//! A doorbell is a store to uncached memory; compared with that, the call through a trait object
//! costs nothing.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::{self, NonNull};

use qpair_abi::doorbell;
use qpair_abi::uapi::*;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{ioctl, Opcode, Updater};
use rustix::mm::{MapFlags, ProtFlags};

macro_rules! calls {
    ($($(#[$attr:meta])* $name:ident($argument:ident) = $nr:ident, $what:literal;)*) => {
        /// A call, with its argument, which also receives the results.
        #[derive(Debug)]
        pub enum Call<'a> {
            $( $(#[$attr])* $name(&'a mut $argument), )*
        }

        impl Call<'_> {
            /// What the call does, to follow "cannot".
            pub fn what(&self) -> &'static str {
                match self { $( Self::$name(_) => $what, )* }
            }

            /// Makes the call on an open `/dev/qpairN`.
            fn run(self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
                match self { $( Self::$name(argument) => {
                    const OPCODE: Opcode = request::<$argument>($nr) as Opcode;
                    // SAFETY: The number encodes that the kernel reads and writes one structure of
                    // this size. The caller keeps the memory that the structure names: rings and
                    // regions are pinned, and outlive the object in `Drop`; counters are written
                    // during the call.
                    unsafe { ioctl(fd, Updater::<OPCODE, $argument>::new(argument)) }
                } )* }
            }
        }
    };
}

calls! {
    /// Limits and versions.
    QueryDevice(qpair_query_device) = QPAIR_NR_QUERY_DEVICE, "query the device";
    /// Counters.
    QueryCounters(qpair_query_counters) = QPAIR_NR_QUERY_COUNTERS, "read the device's counters";
    /// A protection domain.
    AllocPd(qpair_alloc_pd) = QPAIR_NR_ALLOC_PD, "make a protection domain";
    /// Its end.
    DeallocPd(qpair_destroy) = QPAIR_NR_DEALLOC_PD, "end a protection domain";
    /// A completion queue.
    CreateCq(qpair_create_cq) = QPAIR_NR_CREATE_CQ, "make a completion queue";
    /// How it is.
    QueryCq(qpair_query_cq) = QPAIR_NR_QUERY_CQ, "query a completion queue";
    /// Its end.
    DestroyCq(qpair_destroy) = QPAIR_NR_DESTROY_CQ, "destroy a completion queue";
    /// A queue pair.
    CreateQp(qpair_create_qp) = QPAIR_NR_CREATE_QP, "make a queue pair";
    /// Its state and attributes.
    ModifyQp(qpair_modify_qp) = QPAIR_NR_MODIFY_QP, "change a queue pair";
    /// How it is.
    QueryQp(qpair_query_qp) = QPAIR_NR_QUERY_QP, "query a queue pair";
    /// Its end.
    DestroyQp(qpair_destroy) = QPAIR_NR_DESTROY_QP, "destroy a queue pair";
    /// A memory region.
    RegMr(qpair_reg_mr) = QPAIR_NR_REG_MR, "register memory";
    /// How it is.
    QueryMr(qpair_query_mr) = QPAIR_NR_QUERY_MR, "query a memory region";
    /// Its end.
    DeregMr(qpair_destroy) = QPAIR_NR_DEREG_MR, "end a memory region";
}

/// The kernel, or a model of it.
pub trait Kernel: Send + Sync + fmt::Debug {
    /// Makes a call.
    fn call(&self, call: Call<'_>) -> Result<(), Errno>;

    /// Writes a doorbell: `value` at `offset` of the context's page. The caller has ordered it
    /// after the entries that it hands over.
    fn doorbell(&self, offset: u64, value: u64);

    /// Takes asynchronous events, without waiting; returns how many were written to `into`.
    fn events(&self, into: &mut [qpair_async_event]) -> Result<usize, Errno>;

    /// The descriptor to wait on for asynchronous events.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// An open `/dev/qpairN`, and its doorbell page.
#[derive(Debug)]
pub struct File {
    fd: OwnedFd,
    page: NonNull<u64>,
}

// SAFETY: The page is only ever written, by whole stores that the device takes in any order.
unsafe impl Send for File {}
// SAFETY: As above.
unsafe impl Sync for File {}

impl File {
    /// Opens it, and maps its doorbells.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        // SAFETY: A new mapping, at an address of the kernel's choice.
        let page = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                doorbell::PAGE_BYTES as usize,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &fd,
                0,
            )?
        };
        Ok(Self {
            fd,
            page: NonNull::new(page.cast()).ok_or(Errno::NOMEM)?,
        })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: It was mapped by `open`, and the address is private to `self`.
        let unmapped =
            unsafe { rustix::mm::munmap(self.page.as_ptr().cast(), doorbell::PAGE_BYTES as usize) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

impl Kernel for File {
    fn call(&self, call: Call<'_>) -> Result<(), Errno> {
        call.run(self.fd.as_fd())
    }

    #[inline]
    fn doorbell(&self, offset: u64, value: u64) {
        let at = offset as usize / size_of::<u64>();
        if at < doorbell::PAGE_BYTES as usize / size_of::<u64>() {
            // SAFETY: Inside the page, which is mapped as long as `self` lives. Volatile, since the
            // device sees every store. Once the device is gone this raises SIGBUS.
            unsafe { self.page.as_ptr().add(at).write_volatile(value) };
        }
    }

    fn events(&self, into: &mut [qpair_async_event]) -> Result<usize, Errno> {
        const BYTES: usize = size_of::<qpair_async_event>();
        let mut buffer = [0_u8; 16 * BYTES];
        let room = into.len().min(16) * BYTES;
        let read = match rustix::io::read(&self.fd, &mut buffer[..room]) {
            Ok(read) => read,
            Err(Errno::AGAIN) => 0,
            Err(errno) => return Err(errno),
        };
        let field = |event: &[u8], at: usize| {
            u32::from_ne_bytes([event[at], event[at + 1], event[at + 2], event[at + 3]])
        };
        for (event, into) in buffer[..read].chunks_exact(BYTES).zip(into) {
            *into = qpair_async_event {
                kind: field(event, 0),
                handle: field(event, 4),
                code: field(event, 8),
                count: field(event, 12),
            };
        }
        Ok(read / BYTES)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}
