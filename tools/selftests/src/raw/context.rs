// SPDX-License-Identifier: GPL-2.0
//! One open file of the device, and its doorbell page.

use std::fs::File;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::ptr::NonNull;
use std::sync::atomic::fence;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::uapi;
use qpair_abi::Number;

use super::Buffer;

/// An ioctl's argument.
///
/// # Safety
///
/// Only integers, no padding, and the size in the ioctl number.
pub unsafe trait Arg: Copy {}

macro_rules! args {
    ($($name:ident),* $(,)?) => { $(
        // SAFETY: `repr(C)`, integers only, and laid out without padding.
        unsafe impl Arg for uapi::$name {}
    )* };
}

args!(
    qpair_query_device,
    qpair_query_counters,
    qpair_alloc_pd,
    qpair_create_cq,
    qpair_query_cq,
    qpair_create_qp,
    qpair_modify_qp,
    qpair_query_qp,
    qpair_reg_mr,
    qpair_query_mr,
    qpair_destroy,
);

/// An open file of `/dev/qpairN` and its doorbell page.
pub struct Context {
    file: File,
    /// The doorbell page.
    pub page: Page,
    /// The device's properties and limits.
    pub info: uapi::qpair_query_device,
}

impl Context {
    /// The path of the function's file.
    pub fn path(device: usize) -> String {
        format!("/dev/qpair{device}")
    }

    /// Opens the file, non-blocking, and nothing else.
    pub fn open_file(device: usize) -> std::io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(Self::path(device))
    }

    /// Opens the function's file, maps its doorbell page and queries its limits.
    pub fn open(device: usize) -> Result<Arc<Self>> {
        let file = Self::open_file(device).with_context(|| Self::path(device))?;
        Self::of(file)
    }

    /// Takes an open file, perhaps one that another process opened.
    pub fn of(file: File) -> Result<Arc<Self>> {
        let page = Page::map(file.as_fd()).context("mmap of the doorbell page")?;
        let mut info = uapi::qpair_query_device::default();
        call(file.as_fd(), uapi::QPAIR_NR_QUERY_DEVICE, &mut info).context("QUERY_DEVICE")?;
        Ok(Arc::new(Self { file, page, info }))
    }

    /// The same context with a mapping of its own, for a child that has not inherited one.
    pub fn again(&self) -> Result<Arc<Self>> {
        Self::of(self.file.try_clone().context("dup")?)
    }

    /// The file.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Calls the ioctl `nr` with an argument of its own type.
    pub fn call<T: Arg>(&self, nr: u8, arg: &mut T) -> Result<(), Errno> {
        call(self.fd(), nr, arg)
    }

    /// Calls an ioctl with any number and any address.
    pub fn call_at(&self, request: u32, addr: usize) -> Result<(), Errno> {
        call_at(self.fd(), request, addr)
    }

    /// Calls the ioctl `nr` with the first `bytes.len()` bytes of an argument of any size.
    pub fn call_bytes(&self, nr: u8, bytes: &mut [u8]) -> Result<(), Errno> {
        let request = sized_request(nr, bytes.len());
        call_at(self.fd(), request, bytes.as_mut_ptr() as usize)
    }

    /// Calls the ioctl `nr` with an argument in a read-only page.
    pub fn call_read_only<T: Arg>(&self, nr: u8, arg: &T) -> Result<Result<(), Errno>> {
        let page = Buffer::new(size_of::<T>())?;
        // SAFETY: by the contract of `Arg` all of its bytes are initialized.
        let bytes = unsafe {
            std::slice::from_raw_parts(std::ptr::from_ref(arg).cast::<u8>(), size_of::<T>())
        };
        page.write(0, bytes);
        page.protect(false)?;
        Ok(self.call_at(uapi::request::<T>(nr), page.addr() as usize))
    }

    /// The device's counters, by number.
    pub fn counters(&self) -> Result<Vec<u64>> {
        let mut values = vec![0u64; Counter::COUNT];
        let mut arg = uapi::qpair_query_counters {
            counters: values.as_mut_ptr() as u64,
            count: values.len() as u32,
            ..Default::default()
        };
        self.call(uapi::QPAIR_NR_QUERY_COUNTERS, &mut arg)
            .context("QUERY_COUNTERS")?;
        values.truncate(arg.count as usize);
        Ok(values)
    }

    /// One of the device's counters.
    pub fn counter(&self, which: Counter) -> Result<u64> {
        Ok(self.counters()?.get(which as usize).copied().unwrap_or(0))
    }

    /// The next asynchronous event, if any.
    pub fn async_event(&self) -> std::io::Result<Option<uapi::qpair_async_event>> {
        let mut bytes = [0u8; size_of::<uapi::qpair_async_event>()];
        match (&self.file).read(&mut bytes) {
            Ok(n) if n == bytes.len() => {
                let word = |i: usize| {
                    u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]])
                };
                Ok(Some(uapi::qpair_async_event {
                    kind: word(0),
                    handle: word(4),
                    code: word(8),
                    count: word(12),
                }))
            }
            Ok(n) => Err(std::io::Error::other(format!("read gave {n} bytes"))),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads into a buffer of any size.
    pub fn read(&self, bytes: &mut [u8]) -> std::io::Result<usize> {
        (&self.file).read(bytes)
    }
}

fn call<T: Arg>(fd: BorrowedFd<'_>, nr: u8, arg: &mut T) -> Result<(), Errno> {
    call_at(fd, uapi::request::<T>(nr), std::ptr::from_mut(arg) as usize)
}

/// The number of an ioctl whose argument has this many bytes.
pub(crate) fn sized_request(nr: u8, bytes: usize) -> u32 {
    uapi::request::<()>(nr) | (bytes as u32 & 0x3fff) << 16
}

fn call_at(fd: BorrowedFd<'_>, request: u32, addr: usize) -> Result<(), Errno> {
    // SAFETY: the kernel checks the number and the address. It writes back as many bytes as the
    // number says, which is the size of the caller's variable if the address is that of one.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::c_ulong::from(request), addr) };
    Errno::result(result).map(drop)
}

/// The doorbell page of a context.
pub struct Page(NonNull<u8>);

// SAFETY: it is an address; a doorbell is one store, from whatever thread.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// Maps the page of an open file.
    pub fn map(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        Self::map_as(fd, doorbell::PAGE_BYTES as usize, prot, libc::MAP_SHARED, 0).map(Self)
    }

    /// Tries a mapping that may be invalid; a successful mapping is not removed.
    pub fn map_as(
        fd: BorrowedFd<'_>,
        bytes: usize,
        prot: i32,
        flags: i32,
        offset: i64,
    ) -> Result<NonNull<u8>, Errno> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let addr = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                prot,
                flags,
                fd.as_raw_fd(),
                offset,
            )
        };
        if addr == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        NonNull::new(addr.cast()).ok_or(Errno::EFAULT)
    }

    /// Where it is mapped.
    pub fn addr(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// Rings a doorbell; earlier writes are in memory before it.
    pub fn ring(&self, at: u64, number: u32, index: u32) {
        self.store(at, doorbell::value(Number::from_raw(number), index));
    }

    /// Stores 64 bits in the page.
    pub fn store(&self, at: u64, value: u64) {
        assert!(at + 8 <= doorbell::PAGE_BYTES && at % 8 == 0);
        fence(Ordering::SeqCst);
        // SAFETY: inside the page and aligned. Where the page is gone the process gets SIGBUS.
        unsafe {
            self.0
                .as_ptr()
                .add(at as usize)
                .cast::<u64>()
                .write_volatile(value)
        }
    }

    /// Stores 32 bits in the page, which is not a valid doorbell.
    pub fn store_half(&self, at: u64, value: u32) {
        assert!(at + 4 <= doorbell::PAGE_BYTES && at % 4 == 0);
        // SAFETY: as in `store`.
        unsafe {
            self.0
                .as_ptr()
                .add(at as usize)
                .cast::<u32>()
                .write_volatile(value)
        }
    }

    /// Loads 64 bits from the page.
    pub fn load(&self, at: u64) -> u64 {
        assert!(at + 8 <= doorbell::PAGE_BYTES && at % 8 == 0);
        // SAFETY: as in `store`.
        unsafe {
            self.0
                .as_ptr()
                .add(at as usize)
                .cast::<u64>()
                .read_volatile()
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: our own mapping, whose address is not used any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), doorbell::PAGE_BYTES as usize) };
    }
}

/// A new eventfd, non-blocking.
pub(crate) fn eventfd() -> Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    Errno::result(fd).context("eventfd")?;
    // SAFETY: just created, and not owned elsewhere.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
