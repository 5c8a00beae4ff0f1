// SPDX-License-Identifier: GPL-2.0
//! One open file of the device: its commands, its events and its doorbell page.

use std::fs::File;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::fence;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::uverbs::qpair_ureq_modify_srq;
use qpair_abi::uverbs::qpair_uresp_alloc_ucontext;
use qpair_abi::uverbs::qpair_uresp_create_ah;
use qpair_abi::uverbs::qpair_uresp_modify_qp;
use qpair_abi::Number;
use qpair_uverbs::abi::*;
use qpair_uverbs::Command;

use super::args::CqArg;
use super::args::CqMade;
use super::args::Kind;
use super::args::QpArg;
use super::args::QpMade;
use super::args::SrqArg;
use super::args::SrqMade;
use super::args::PORT;
use crate::world;

/// The class of uverbs files in sysfs.
const CLASS: &str = "/sys/class/infiniband_verbs";

/// What a context was told about the device: limits, and what a process may have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Info {
    pub(crate) limits: qpair_uresp_alloc_ucontext,
    pub(crate) device: ib_uverbs_query_device_resp,
    pub(crate) port: ib_uverbs_query_port_resp,
    pub(crate) vectors: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// One of [`qpair_uverbs::abi::event`].
    pub(crate) kind: u32,
    /// The `user_handle` of its object.
    pub(crate) element: u64,
}

/// An open uverbs file of the device, its events and its doorbell page.
pub(crate) struct Context {
    file: File,
    events: File,
    device: usize,
    pub(crate) page: Page,
    /// The device's properties and limits.
    pub(crate) info: Info,
}

fn io(errno: rustix::io::Errno) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno.raw_os_error())
}

/// The name of a device's RDMA device.
fn ibdev(device: usize) -> String {
    format!("qpair{device}")
}

impl Context {
    /// The path of the function's file.
    pub(crate) fn path(device: usize) -> std::io::Result<PathBuf> {
        let name = ibdev(device);
        for entry in std::fs::read_dir(CLASS)? {
            let entry = entry?;
            let found = std::fs::read_to_string(entry.path().join("ibdev"));
            if found.is_ok_and(|found| found.trim() == name) {
                return Ok(Path::new("/dev/infiniband").join(entry.file_name()));
            }
        }
        Err(std::io::Error::new(
            std::io::ErrorKind::NotFound,
            format!("no uverbs file of {name}"),
        ))
    }

    /// Opens the function's file, which is no context yet.
    pub(crate) fn open_bare(device: usize) -> std::io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(Self::path(device)?)
    }

    /// Makes an open file a context.
    pub(crate) fn begin(file: &File) -> std::io::Result<(qpair_uresp_alloc_ucontext, u32)> {
        let mut limits = qpair_uresp_alloc_ucontext::default();
        let mut vectors = 0;
        let command = Command::get_context(&mut vectors).driver_answer(&mut limits);
        // SAFETY: it names no memory besides its answers.
        unsafe { command.run(file.as_fd()) }.map_err(io)?;
        Ok((limits, vectors))
    }

    /// Opens the file and makes it a context, and nothing else.
    pub(crate) fn open_file(device: usize) -> std::io::Result<File> {
        let file = Self::open_bare(device)?;
        Self::begin(&file)?;
        Ok(file)
    }

    /// Opens the function's file, maps its doorbell page and queries its limits.
    pub(crate) fn open(device: usize) -> Result<Arc<Self>> {
        let file = Self::open_bare(device).with_context(|| ibdev(device))?;
        let (limits, vectors) = Self::begin(&file).with_context(|| ibdev(device))?;
        let mut info = Info {
            limits,
            vectors,
            ..Info::default()
        };
        query_device(file.as_fd(), &mut info.device).context("QUERY_DEVICE")?;
        query_port(file.as_fd(), &mut info.port).context("QUERY_PORT")?;
        Self::of(file, device, info)
    }

    /// Takes an open file that is a context, perhaps one that another process opened.
    pub(crate) fn of(file: File, device: usize, info: Info) -> Result<Arc<Self>> {
        let events = qpair_uverbs::open_events(file.as_fd()).map_err(io);
        let events = File::from(events.context("the asynchronous events")?);
        Self::with(file, events, device, info)
    }

    fn with(file: File, events: File, device: usize, info: Info) -> Result<Arc<Self>> {
        // SAFETY: no pointers.
        Errno::result(unsafe { libc::fcntl(events.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })
            .context("O_NONBLOCK")?;
        let page = Page::map(file.as_fd()).context("mmap of the doorbell page")?;
        Ok(Arc::new(Self {
            file,
            events,
            device,
            page,
            info,
        }))
    }

    /// The same context with a mapping of its own, for a child that has not inherited one.
    pub(crate) fn again(&self) -> Result<Arc<Self>> {
        Self::with(
            self.file.try_clone().context("dup")?,
            self.events.try_clone().context("dup")?,
            self.device,
            self.info,
        )
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The file of the events.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// The number of the device.
    pub(crate) fn device(&self) -> usize {
        self.device
    }

    pub(crate) fn run(&self, command: Command<'_>) -> Result<(), Errno> {
        run(self.fd(), command)
    }

    pub(crate) fn query_device(&self) -> Result<ib_uverbs_query_device_resp, Errno> {
        let mut answer = ib_uverbs_query_device_resp::default();
        query_device(self.fd(), &mut answer)?;
        Ok(answer)
    }

    pub(crate) fn query_port(&self) -> Result<ib_uverbs_query_port_resp, Errno> {
        let mut answer = ib_uverbs_query_port_resp::default();
        query_port(self.fd(), &mut answer)?;
        Ok(answer)
    }

    /// ALLOC_PD: its handle.
    pub(crate) fn alloc_pd(&self) -> Result<u32, Errno> {
        let request = ib_uverbs_alloc_pd::default();
        let mut answer = ib_uverbs_alloc_pd_resp::default();
        let command = Command::new(IB_USER_VERBS_CMD_ALLOC_PD);
        self.run(command.request(&request).answer(&mut answer))?;
        Ok(answer.pd_handle)
    }

    pub(crate) fn create_cq(&self, arg: &CqArg) -> Result<CqMade, Errno> {
        let mut made = CqMade::default();
        let requests = (&arg.core, &arg.driver);
        let answers = (&mut made.core, &mut made.driver);
        let command = Command::create(IB_USER_VERBS_CMD_CREATE_CQ, requests, answers);
        self.run(command)?;
        Ok(made)
    }

    pub(crate) fn create_qp(&self, arg: &QpArg) -> Result<QpMade, Errno> {
        let mut made = QpMade::default();
        let requests = (&arg.core, &arg.driver);
        let answers = (&mut made.core, &mut made.driver);
        let command = Command::create(IB_USER_VERBS_CMD_CREATE_QP, requests, answers);
        self.run(command)?;
        Ok(made)
    }

    pub(crate) fn modify_qp(
        &self,
        arg: &ib_uverbs_modify_qp,
    ) -> Result<qpair_uresp_modify_qp, Errno> {
        let mut answer = qpair_uresp_modify_qp::default();
        let command = Command::new(IB_USER_VERBS_CMD_MODIFY_QP);
        self.run(command.request(arg).driver_answer(&mut answer))?;
        Ok(answer)
    }

    pub(crate) fn query_qp(&self, handle: u32) -> Result<ib_uverbs_query_qp_resp, Errno> {
        let request = ib_uverbs_query_qp {
            qp_handle: handle,
            attr_mask: qp_mask::STATE,
            ..Default::default()
        };
        let mut answer = ib_uverbs_query_qp_resp::default();
        let command = Command::new(IB_USER_VERBS_CMD_QUERY_QP);
        self.run(command.request(&request).answer(&mut answer))?;
        Ok(answer)
    }

    pub(crate) fn create_srq(&self, arg: &SrqArg) -> Result<SrqMade, Errno> {
        let mut made = SrqMade::default();
        let requests = (&arg.core, &arg.driver);
        let answers = (&mut made.core, &mut made.driver);
        let command = Command::create(IB_USER_VERBS_CMD_CREATE_SRQ, requests, answers);
        self.run(command)?;
        Ok(made)
    }

    pub(crate) fn modify_srq(&self, arg: &ib_uverbs_modify_srq) -> Result<(), Errno> {
        self.run(Command::new(IB_USER_VERBS_CMD_MODIFY_SRQ).request(arg))
    }

    /// MODIFY_SRQ of the size.
    pub(crate) fn resize_srq(
        &self,
        arg: &ib_uverbs_modify_srq,
        driver: &qpair_ureq_modify_srq,
    ) -> Result<(), Errno> {
        let command = Command::new(IB_USER_VERBS_CMD_MODIFY_SRQ).request(arg);
        self.run(command.driver_request(driver))
    }

    pub(crate) fn query_srq(&self, handle: u32) -> Result<ib_uverbs_query_srq_resp, Errno> {
        let request = ib_uverbs_query_srq {
            srq_handle: handle,
            ..Default::default()
        };
        let mut answer = ib_uverbs_query_srq_resp::default();
        let command = Command::new(IB_USER_VERBS_CMD_QUERY_SRQ);
        self.run(command.request(&request).answer(&mut answer))?;
        Ok(answer)
    }

    /// CREATE_AH: its handle, and the address for work requests.
    pub(crate) fn create_ah(&self, arg: &ib_uverbs_create_ah) -> Result<(u32, [u8; 16]), Errno> {
        let mut answer = ib_uverbs_create_ah_resp::default();
        let mut address = qpair_uresp_create_ah::default();
        let command = Command::new(IB_USER_VERBS_CMD_CREATE_AH).request(arg);
        self.run(command.answer(&mut answer).driver_answer(&mut address))?;
        Ok((answer.ah_handle, address.gid))
    }

    pub(crate) fn destroy_ah(&self, handle: u32) -> Result<(), Errno> {
        let request = ib_uverbs_destroy_ah { ah_handle: handle };
        self.run(Command::new(IB_USER_VERBS_CMD_DESTROY_AH).request(&request))
    }

    pub(crate) fn attach_mcast(&self, arg: &ib_uverbs_attach_mcast) -> Result<(), Errno> {
        self.run(Command::new(IB_USER_VERBS_CMD_ATTACH_MCAST).request(arg))
    }

    pub(crate) fn detach_mcast(&self, arg: &ib_uverbs_detach_mcast) -> Result<(), Errno> {
        self.run(Command::new(IB_USER_VERBS_CMD_DETACH_MCAST).request(arg))
    }

    pub(crate) fn reg_mr(&self, arg: &ib_uverbs_reg_mr) -> Result<ib_uverbs_reg_mr_resp, Errno> {
        let mut answer = ib_uverbs_reg_mr_resp::default();
        let command = Command::new(IB_USER_VERBS_CMD_REG_MR);
        self.run(command.request(arg).answer(&mut answer))?;
        Ok(answer)
    }

    pub(crate) fn rereg_mr(
        &self,
        arg: &ib_uverbs_rereg_mr,
    ) -> Result<ib_uverbs_rereg_mr_resp, Errno> {
        let mut answer = ib_uverbs_rereg_mr_resp::default();
        let command = Command::new(IB_USER_VERBS_CMD_REREG_MR);
        self.run(command.request(arg).answer(&mut answer))?;
        Ok(answer)
    }

    pub(crate) fn alloc_mw(
        &self,
        arg: &ib_uverbs_alloc_mw,
    ) -> Result<ib_uverbs_alloc_mw_resp, Errno> {
        let mut answer = ib_uverbs_alloc_mw_resp::default();
        let command = Command::new(IB_USER_VERBS_CMD_ALLOC_MW);
        self.run(command.request(arg).answer(&mut answer))?;
        Ok(answer)
    }

    pub(crate) fn destroy(&self, kind: Kind, handle: u32) -> Result<(), Errno> {
        self.destroy_counting(kind, handle).map(drop)
    }

    /// Destroys an object. Returns how many of its asynchronous events were read.
    pub(crate) fn destroy_counting(&self, kind: Kind, handle: u32) -> Result<u32, Errno> {
        match kind {
            Kind::Pd => {
                let request = ib_uverbs_dealloc_pd { pd_handle: handle };
                self.run(Command::new(IB_USER_VERBS_CMD_DEALLOC_PD).request(&request))?;
                Ok(0)
            }
            Kind::Mr => {
                let request = ib_uverbs_dereg_mr { mr_handle: handle };
                self.run(Command::new(IB_USER_VERBS_CMD_DEREG_MR).request(&request))?;
                Ok(0)
            }
            Kind::Mw => {
                let request = ib_uverbs_dealloc_mw { mw_handle: handle };
                self.run(Command::new(IB_USER_VERBS_CMD_DEALLOC_MW).request(&request))?;
                Ok(0)
            }
            Kind::Cq => {
                let request = ib_uverbs_destroy_cq {
                    cq_handle: handle,
                    ..Default::default()
                };
                let mut answer = ib_uverbs_destroy_cq_resp::default();
                let command = Command::new(IB_USER_VERBS_CMD_DESTROY_CQ);
                self.run(command.request(&request).answer(&mut answer))?;
                Ok(answer.async_events_reported)
            }
            Kind::Qp => {
                let request = ib_uverbs_destroy_qp {
                    qp_handle: handle,
                    ..Default::default()
                };
                let mut answer = ib_uverbs_destroy_qp_resp::default();
                let command = Command::new(IB_USER_VERBS_CMD_DESTROY_QP);
                self.run(command.request(&request).answer(&mut answer))?;
                Ok(answer.events_reported)
            }
            Kind::Srq => {
                let request = ib_uverbs_destroy_srq {
                    srq_handle: handle,
                    ..Default::default()
                };
                let mut answer = ib_uverbs_destroy_srq_resp::default();
                let command = Command::new(IB_USER_VERBS_CMD_DESTROY_SRQ);
                self.run(command.request(&request).answer(&mut answer))?;
                Ok(answer.events_reported)
            }
        }
    }

    /// The device's counters, by number, of one command; those of sysfs may take several.
    pub(crate) fn counters(&self) -> Result<Vec<u64>> {
        let function = world::function(self.device)?;
        let text = world::text(format!("/sys/kernel/debug/qpair/{function}/device"))?;
        let number = |name: &str| -> Result<u64> {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            let found = lines.find(|(found, _)| *found == name);
            let (_, value) = found.with_context(|| format!("debugfs has no {name}"))?;
            value.parse().with_context(|| format!("{name} {value}"))
        };
        Counter::ALL.iter().map(|it| number(it.name())).collect()
    }

    /// From now on [`Self::async_event`] waits for an event.
    pub(crate) fn blocks(&self) -> Result<()> {
        // SAFETY: no pointers.
        Errno::result(unsafe { libc::fcntl(self.events.as_raw_fd(), libc::F_SETFL, 0) })
            .context("without O_NONBLOCK")?;
        Ok(())
    }

    /// One of the device's counters.
    pub(crate) fn counter(&self, which: Counter) -> Result<u64> {
        Ok(self.counters()?.get(which as usize).copied().unwrap_or(0))
    }

    /// The next asynchronous event, if any.
    pub(crate) fn async_event(&self) -> std::io::Result<Option<Event>> {
        let mut bytes = [0u8; size_of::<ib_uverbs_async_event_desc>()];
        match self.read(&mut bytes) {
            Ok(n) if n == bytes.len() => {
                let word = |i: usize| {
                    u64::from(u32::from_le_bytes([
                        bytes[i],
                        bytes[i + 1],
                        bytes[i + 2],
                        bytes[i + 3],
                    ]))
                };
                Ok(Some(Event {
                    kind: word(8) as u32,
                    element: word(4) << 32 | word(0),
                }))
            }
            Ok(n) => Err(std::io::Error::other(format!("read gave {n} bytes"))),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads events into a buffer of any size.
    pub(crate) fn read(&self, bytes: &mut [u8]) -> std::io::Result<usize> {
        (&self.events).read(bytes)
    }
}

fn run(fd: BorrowedFd<'_>, command: Command<'_>) -> Result<(), Errno> {
    // SAFETY: the kernel checks all addresses. What a test lets it write to is the test's, and a
    // buffer is unmapped only by its owner.
    unsafe { command.run(fd) }.map_err(|errno| Errno::from_raw(errno.raw_os_error()))
}

fn query_device(fd: BorrowedFd<'_>, answer: &mut ib_uverbs_query_device_resp) -> Result<(), Errno> {
    let request = ib_uverbs_query_device::default();
    let command = Command::new(IB_USER_VERBS_CMD_QUERY_DEVICE);
    run(fd, command.request(&request).answer(answer))
}

fn query_port(fd: BorrowedFd<'_>, answer: &mut ib_uverbs_query_port_resp) -> Result<(), Errno> {
    let request = ib_uverbs_query_port {
        port_num: PORT,
        ..Default::default()
    };
    let command = Command::new(IB_USER_VERBS_CMD_QUERY_PORT);
    run(fd, command.request(&request).answer(answer))
}

/// The doorbell page of a context.
pub(crate) struct Page(NonNull<u8>);

// SAFETY: it is an address; a doorbell is one store, from whatever thread.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// Maps the page of an open file.
    pub(crate) fn map(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        Self::map_as(fd, doorbell::PAGE_BYTES as usize, prot, libc::MAP_SHARED, 0).map(Self)
    }

    /// Tries a mapping that may be invalid; a successful mapping is not removed.
    pub(crate) fn map_as(
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

    pub(crate) fn addr(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// Rings a doorbell; earlier writes are in memory before it.
    pub(crate) fn ring(&self, at: u64, number: u32, index: u32) {
        self.store(at, doorbell::value(Number::from_raw(number), index));
    }

    /// Stores 64 bits in the page.
    pub(crate) fn store(&self, at: u64, value: u64) {
        assert!(at + 8 <= doorbell::PAGE_BYTES && at % 8 == 0);
        fence(Ordering::SeqCst);
        // SAFETY: inside the page and aligned. Where the page is gone the core has put another.
        unsafe {
            self.0
                .as_ptr()
                .add(at as usize)
                .cast::<u64>()
                .write_volatile(value)
        }
    }

    /// Stores 32 bits in the page, which is not a valid doorbell.
    pub(crate) fn store_half(&self, at: u64, value: u32) {
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
    pub(crate) fn load(&self, at: u64) -> u64 {
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
