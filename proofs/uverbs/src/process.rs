// SPDX-License-Identifier: GPL-2.0
//! A process that runs the calls of an input.

mod calls;
mod objects;
mod queues;

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::slice;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::mman::{mmap, MapFlags, ProtFlags};
use nix::sys::signal::{raise, Signal};
use nix::unistd::{fork, ForkResult};
use qpair_abi::uverbs::qpair_uresp_alloc_ucontext;
use qpair_abi::{doorbell, Number};
use qpair_uverbs::abi::*;
use qpair_uverbs::Command;

use crate::call::{usual, Call, End, Pick, Twist};
use crate::memory::{Memory, DOORBELLS, PAGE};

/// The only port of a device.
const PORT: u8 = 1;
/// Files that a process has open.
const FILES: usize = 3;
/// Objects of a kind that it remembers.
const KEPT: usize = 16;
/// Bytes of the largest request or answer that is sent.
const MOST: usize = 256;
/// Commands of `rdma/ib_user_verbs.h` that the library has no use for.
const RESIZE_CQ: u32 = 19;
const COMP_CHANNEL: u32 = 17;
const EXTENDED: u32 = 1 << 31;
/// Of `rdma/ib_user_ioctl_verbs.h`.
const RDMA_DRIVER_UNKNOWN: u32 = 0;
const RDMA_DRIVER_RXE: u32 = 14;
/// Commands of the former header, and some more.
const COMMANDS: u8 = 64;

/// The device that is fuzzed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Device {
    pub(crate) path: PathBuf,
    /// Not of this project: the driver's parts of requests are left out, and answers are long enough
    /// for those of soft-RoCE.
    pub(crate) foreign: bool,
    /// The address of a port of RoCE.
    pub(crate) address: Option<Address>,
}

/// A GID that is an IPv4 address, and its index in the port's table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) index: u8,
    pub(crate) gid: [u8; 16],
}

impl Device {
    /// The ID of its driver.
    pub(crate) fn driver(&self) -> u32 {
        if self.foreign {
            RDMA_DRIVER_RXE
        } else {
            RDMA_DRIVER_UNKNOWN
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Cq {
    handle: u32,
    number: u32,
    ring: u64,
    depth: u32,
    head: u32,
}

#[derive(Clone, Copy, Default)]
struct Queue {
    handle: u32,
    number: u32,
    sq: u64,
    blocks: u32,
    tail: u32,
    rq: u64,
    depth: u32,
    stride: u32,
    posted: u32,
    sort: u8,
}

#[derive(Clone, Copy, Default)]
struct Mr {
    handle: u32,
    lkey: u32,
    rkey: u32,
    addr: u64,
}

/// Where a process tells what is to happen beside it.
pub(crate) type Beside = File;

pub(crate) struct Process {
    device: Device,
    beside: Beside,
    memory: Memory,
    files: Vec<OwnedFd>,
    others: Vec<OwnedFd>,
    has_page: bool,
    pds: Vec<u32>,
    cqs: Vec<Cq>,
    srqs: Vec<Queue>,
    qps: Vec<Queue>,
    mrs: Vec<Mr>,
    mws: Vec<Mr>,
    ahs: Vec<u32>,
    channels: Vec<i32>,
    gone: Vec<u32>,
    /// Offsets that soft-RoCE has given to map.
    offsets: Vec<u64>,
    prints: bool,
}

fn bytes_of<T: Plain>(value: &T) -> Vec<u8> {
    // SAFETY: `T` is bytes without padding.
    unsafe { slice::from_raw_parts((&raw const *value).cast(), size_of::<T>()) }.to_vec()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(4 * at..4 * at + 4);
    four.map_or(0, |four| {
        u32::from_ne_bytes([four[0], four[1], four[2], four[3]])
    })
}

/// An object of a list.
fn picked<T: Copy + Default>(list: &[T], pick: Pick) -> T {
    let at = usize::from(pick.0) % list.len().max(1);
    list.get(at).copied().unwrap_or_default()
}

fn keep<T>(list: &mut Vec<T>, one: T) {
    if list.len() == KEPT {
        list.remove(0);
    }
    list.push(one);
}

/// The names of the answer: of the core, and of the driver.
type Answer = Result<(Vec<u8>, Vec<u8>), Errno>;

impl Process {
    pub(crate) fn new(device: Device, beside: Beside, prints: bool) -> anyhow::Result<Self> {
        Ok(Self {
            device,
            beside,
            memory: Memory::new()?,
            files: Vec::new(),
            others: Vec::new(),
            has_page: false,
            pds: Vec::new(),
            cqs: Vec::new(),
            srqs: Vec::new(),
            qps: Vec::new(),
            mrs: Vec::new(),
            mws: Vec::new(),
            ahs: Vec::new(),
            channels: Vec::new(),
            gone: Vec::new(),
            offsets: Vec::new(),
            prints,
        })
    }

    /// A handle: of this object, or a wrong one.
    fn handle(&self, right: u32, pick: Pick) -> u32 {
        match pick.0 {
            0..=223 => right,
            224..=231 => picked(&self.gone, pick),
            at @ 232..=247 => u32::from(at - 232),
            at @ 248..=254 => right.wrapping_add(u32::from(at) - 251),
            255 => u32::MAX,
        }
    }

    fn pd(&self, pick: Pick) -> u32 {
        self.handle(picked(&self.pds, pick), pick)
    }

    /// Runs a command of `write()`, with so many bytes for the answers of the core and the driver.
    fn invoke(
        &self,
        number: u32,
        (core, driver): (Vec<u8>, Vec<u8>),
        (answer, made): (usize, usize),
        twist: Twist,
    ) -> Answer {
        let (mut core, mut driver) = (core, driver);
        let (mut answer, mut made) = (answer, made);
        if self.device.foreign {
            (driver, made) = (Vec::new(), 32);
        }
        let (at, with) = (usize::from(twist.at), twist.with);
        let mut number = number;
        let mut places = [0_u64; 2];
        let changed = |bytes: &mut Vec<u8>| {
            if let Some(byte) = bytes.get_mut(at % 128) {
                *byte ^= with | 1;
            }
        };
        match twist.how {
            0..=199 => {}
            200..=211 => changed(&mut core),
            212..=223 => changed(&mut driver),
            224..=226 => core.truncate(at % 64),
            227..=229 => driver.truncate(at % 64),
            230..=231 => core.resize(core.len() + at % 64, with),
            232..=234 => driver.resize(driver.len() + at % 64, with),
            235..=236 => answer = at % 64,
            237..=238 => made = at % 64,
            239 => places[0] = u64::from(with) * 8,
            240 => places[1] = u64::from(with) * 8,
            241 => places = [u64::MAX - 8, 1 << 47],
            242 => number |= EXTENDED,
            243..=255 => return self.write(number, core, driver, answer, made),
        }
        core.truncate(MOST);
        driver.truncate(MOST);
        let mut room = [[0_u64; MOST / 8]; 2];
        let place = |room: &mut [u64], wrong: u64| match wrong {
            0 => room.as_mut_ptr() as u64,
            wrong => wrong,
        };
        let into = [
            place(&mut room[0], places[0]),
            place(&mut room[1], places[1]),
        ];
        let part = |bytes: &[u8]| {
            let mut value = [0; 8];
            if bytes.len() > value.len() {
                return bytes.as_ptr() as u64;
            }
            value[..bytes.len()].copy_from_slice(bytes);
            u64::from_ne_bytes(value)
        };
        let mut command =
            Command::new(number).part(UVERBS_ATTR_CORE_IN, core.len() as u16, part(&core));
        if answer != 0 {
            command = command.part(UVERBS_ATTR_CORE_OUT, answer.min(MOST) as u16, into[0]);
        }
        if !driver.is_empty() {
            command = command.part(UVERBS_ATTR_UHW_IN, driver.len() as u16, part(&driver));
        }
        if made != 0 {
            command = command.part(UVERBS_ATTR_UHW_OUT, made.min(MOST) as u16, into[1]);
        }
        let file = self.file().ok_or(Errno::EBADF)?;
        // SAFETY: The answers have their room, or are at an address that is not mapped: below the
        // first page, or none of a process. What the request names is in areas of no Rust object.
        let ran = unsafe { command.driver(self.device.driver()).run(file) };
        ran.map_err(|errno| Errno::from_raw(errno.raw_os_error()))?;
        let [core, driver] =
            room.map(|room| room.iter().flat_map(|word| word.to_ne_bytes()).collect());
        Ok((core, driver))
    }

    /// The same by `write()`.
    fn write(
        &self,
        number: u32,
        mut core: Vec<u8>,
        driver: Vec<u8>,
        answer: usize,
        made: usize,
    ) -> Answer {
        let mut room = [0_u64; MOST / 4];
        if answer != 0 && core.len() >= 8 {
            // The place of the answer is the first field.
            core[..8].copy_from_slice(&(room.as_mut_ptr() as u64).to_ne_bytes());
        }
        let words = |bytes: usize| (bytes.min(MOST) / 4) as u16;
        let out = if answer == 0 {
            0
        } else {
            words(answer) + words(made)
        };
        let total = 8 + core.len() + driver.len();
        let mut request = number.to_ne_bytes().to_vec();
        request.extend(words(total).to_ne_bytes());
        request.extend(out.to_ne_bytes());
        request.extend(core);
        request.extend(driver);
        let file = self.file().ok_or(Errno::EBADF)?;
        nix::unistd::write(file, &request)?;
        let all: Vec<u8> = room.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let (core, driver) = all.split_at(answer.min(MOST));
        Ok((core.to_vec(), driver.to_vec()))
    }

    /// The file that commands go to: the newest.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.files.last().map(AsFd::as_fd)
    }

    /// A command without a part of the driver.
    fn plain<T: Plain>(&self, number: u32, core: &T, answer: usize, twist: Twist) -> Answer {
        self.invoke(number, (bytes_of(core), Vec::new()), (answer, 0), twist)
    }

    /// Opens the device, and maps its doorbells.
    fn open(&mut self, legacy: bool, events: bool) -> Result<(), Errno> {
        if self.files.len() == FILES {
            self.files.remove(0);
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&self.device.path);
        let file = file.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
        self.files.push(file.into());
        if legacy {
            let (core, _) = self.write(0, vec![0; 8], Vec::new(), 8, 64)?;
            // SAFETY: The kernel has just opened it for this process.
            self.others
                .push(unsafe { OwnedFd::from_raw_fd(word(&core, 0) as i32) });
        } else {
            let (mut vectors, mut limits) = (0, qpair_uresp_alloc_ucontext::default());
            let command = Command::get_context(&mut vectors).driver_answer(&mut limits);
            let file = self.file().ok_or(Errno::EBADF)?;
            // SAFETY: It names no memory besides its parts.
            let ran = unsafe { command.driver(self.device.driver()).run(file) };
            ran.map_err(|errno| Errno::from_raw(errno.raw_os_error()))?;
            if events {
                let opened = qpair_uverbs::open_events(file);
                self.others.extend(opened);
            }
        }
        self.map(0, 1, 3, false)
    }

    /// Maps the doorbells, or tries another offset, length or protection.
    fn map(&mut self, offset: u8, pages: u8, protection: u8, private: bool) -> Result<(), Errno> {
        let flags = if private {
            MapFlags::MAP_PRIVATE
        } else {
            MapFlags::MAP_SHARED
        };
        let place = std::num::NonZeroUsize::new(DOORBELLS as usize).ok_or(Errno::EINVAL)?;
        let bytes = usize::from(pages) * PAGE as usize;
        let bytes = std::num::NonZeroUsize::new(bytes).ok_or(Errno::EINVAL)?;
        let offset = match (offset, self.offsets.last()) {
            (0..=199, Some(offset)) => *offset as i64,
            (offset, _) => i64::from(offset % 8) * PAGE as i64,
        };
        let protection = ProtFlags::from_bits_truncate(i32::from(protection % 8));
        // One that fails may have removed what was there.
        self.has_page = false;
        let file = self.file().ok_or(Errno::EBADF)?;
        // SAFETY: The address is of no Rust object.
        unsafe {
            mmap(
                Some(place),
                bytes,
                protection,
                flags | MapFlags::MAP_FIXED,
                file,
                offset,
            )?
        };
        self.has_page = protection.contains(ProtFlags::PROT_WRITE);
        Ok(())
    }

    fn ring(&self, place: u64, number: u32, index: u32) {
        if self.has_page {
            let at: *mut u64 = std::ptr::without_provenance_mut((DOORBELLS + place) as usize);
            // SAFETY: The page is mapped, and of no Rust object.
            unsafe { at.write_volatile(doorbell::value(Number::from_raw(number), index)) };
        }
    }

    /// Makes what most inputs begin with, as far as the device lets it.
    pub(crate) fn prepare(&mut self, more: bool) {
        for call in usual(more) {
            let _ = self.call(call);
        }
    }

    /// Runs the calls; returns when the process is to end, and how.
    pub(crate) fn run(&mut self, calls: &[Call]) -> End {
        let mut at = 0;
        while let Some(call) = calls.get(at) {
            at += 1;
            if let Call::Fork {
                calls: count,
                beside,
                end,
            } = *call
            {
                let rest = &calls[at..];
                let theirs = &rest[..rest.len().min(usize::from(count % 8))];
                let ours = if beside { 0 } else { theirs.len() };
                // SAFETY: This process has one thread.
                match unsafe { fork() } {
                    Ok(ForkResult::Child) => {
                        self.run(theirs);
                        self.end(end);
                    }
                    Ok(ForkResult::Parent { .. }) => at += ours,
                    Err(_) => {}
                }
            } else if let Call::Die {
                kill,
                rarely: 0..=31,
            } = *call
            {
                return if kill { End::Kill } else { End::Exit };
            } else {
                let result = self.call(*call);
                if self.prints {
                    println!("{call:?}: {result:?}");
                }
            }
        }
        End::Close
    }

    /// Ends the process.
    pub(crate) fn end(&mut self, how: End) -> ! {
        match how {
            End::Close => {
                self.files.clear();
                self.others.clear();
            }
            End::Exit => {}
            End::Kill => {
                let _ = raise(Signal::SIGKILL);
            }
            End::Stay => std::thread::sleep(Duration::from_secs(60)),
        }
        // SAFETY: It ends the process, and nothing of it is needed.
        unsafe { libc::_exit(0) }
    }
}
