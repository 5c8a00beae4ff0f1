// SPDX-License-Identifier: GPL-2.0
//! Runs inputs, each in processes of its own without rights, and sees what comes of it.

use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::net::Ipv6Addr;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _, Result};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::prctl;
use nix::sys::signal::{killpg, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::{
    fork, pipe2, setgroups, setresgid, setresuid, setsid, ForkResult, Gid, Pid, Uid,
};

use qpair_abi::uverbs::qpair_uresp_alloc_ucontext;

use crate::call::{calls, Call, RECORD, RECORDS};
use crate::process::{Address, Device, Process};

/// Counters of the module, of a build with them.
const COUNTERS: &str = "/sys/kernel/debug/qpair_coverage/live";
/// Beginnings of what the kernel reports; scripts/qp/console.py has all.
const REPORTS: [&str; 9] = [
    "WARNING:",
    "BUG:",
    "KASAN:",
    "UBSAN:",
    "ODEBUG:",
    "refcount_t:",
    "INFO: task",
    "INFO: possible",
    "panicked at",
];
/// The last inputs that are kept.
const LAST: u64 = 16;
/// Bytes of counters, at most.
const MOST: usize = 1 << 20;
const NOBODY: u32 = 65534;
/// Limits of a process.
const SECONDS: u64 = 4;
/// Parts of the time, of which changes of the device take one.
const ACTING: u32 = 8;
/// A network device is up: `IFF_UP`.
const UP: u32 = 1;
/// How long a process that was killed may take, and a device to appear: more is a failure.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Guest {
    name: String,
    foreign: bool,
    /// The PCI function, of a device of this project.
    function: Option<String>,
    /// After a reset it has another file, and its address another index.
    device: Device,
    /// The network device of a port of RoCE, and its MTU.
    netdev: Option<(String, String)>,
    log: File,
    /// Where the last inputs are written, for the host.
    last: File,
    pub(crate) ran: u64,
    began: Instant,
    /// Changes of the device take at most one of [`ACTING`] parts of the time.
    pub(crate) bounded: bool,
    /// Changes of the device, and how long the inputs took from there on.
    pub(crate) acted: (u64, Duration),
    counters: Option<File>,
    /// The counters before and after an input.
    both: [Vec<u8>; 2],
    /// How often each counter has changed since the last input, at most 255 times.
    pub(crate) changed: Vec<u8>,
    prints: bool,
}

/// The file of a network device's MTU.
fn mtu_of(netdev: &str) -> String {
    format!("/sys/class/net/{netdev}/mtu")
}

fn open_log() -> Result<File> {
    let mut log = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open("/dev/kmsg")
        .context("/dev/kmsg")?;
    // What the boot has printed is the host's to judge.
    while !matches!(next_line(&mut log), Ok(None)) {}
    Ok(log)
}

/// A record of the log, if there is one.
fn next_line(log: &mut File) -> std::io::Result<Option<String>> {
    let mut line = [0; 8192];
    match log.read(&mut line) {
        Ok(count) => Ok(Some(String::from_utf8_lossy(&line[..count]).into_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
        // Records were overwritten before they were read.
        Err(error) if error.raw_os_error() == Some(libc::EPIPE) => Ok(Some(String::new())),
        Err(error) => Err(error),
    }
}

impl Guest {
    /// The last inputs are written to `last`.
    pub(crate) fn new(name: &str, last: &Path, prints: bool) -> Result<Self> {
        prctl::set_child_subreaper(true)?;
        let parent = fs::canonicalize(format!("/sys/class/infiniband/{name}/device"));
        let function = parent
            .ok()
            .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        let last = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .open(last);
        let mut this = Self {
            name: name.into(),
            foreign: !name.starts_with("qpair"),
            function,
            device: Device::default(),
            netdev: None,
            log: open_log()?,
            last: last.context("the file of the last inputs")?,
            ran: 0,
            began: Instant::now(),
            bounded: false,
            counters: File::open(COUNTERS).ok(),
            both: [vec![0; MOST], vec![0; MOST]],
            acted: (0, Duration::ZERO),
            changed: Vec::new(),
            prints,
        };
        this.appeared()?;
        if let Some(address) = this.device.address {
            let path = this.port(&format!("gid_attrs/ndevs/{}", address.index));
            let netdev = fs::read_to_string(path)?.trim().to_owned();
            let mtu = fs::read_to_string(mtu_of(&netdev))?;
            this.netdev = Some((netdev, mtu));
        }
        this.look()?;
        Ok(this)
    }

    /// A file of the device's port.
    fn port(&self, name: &str) -> PathBuf {
        let devices = Path::new("/sys/class/infiniband");
        devices.join(&self.name).join("ports/1").join(name)
    }

    fn find_address(&self) -> Option<Address> {
        fs::read_dir(self.port("gids")).ok()?.find_map(|entry| {
            let path = entry.ok()?.path();
            let gid: Ipv6Addr = fs::read_to_string(&path).ok()?.trim().parse().ok()?;
            gid.to_ipv4_mapped()?;
            Some(Address {
                index: path.file_name()?.to_str()?.parse().ok()?,
                gid: gid.octets(),
            })
        })
    }

    /// The path of the device's file.
    fn path(&self) -> Result<PathBuf> {
        for entry in fs::read_dir("/sys/class/infiniband_verbs")? {
            let entry = entry?;
            let found = fs::read_to_string(entry.path().join("ibdev")).unwrap_or_default();
            if found.trim() == self.name {
                return Ok(Path::new("/dev/infiniband").join(entry.file_name()));
            }
        }
        bail!("{} is not there", self.name)
    }

    /// Waits until the device can be used, and has its address.
    fn appeared(&mut self) -> Result<()> {
        let began = Instant::now();
        loop {
            match self.works() {
                Ok(()) => return Ok(()),
                Err(error) if began.elapsed() > PATIENCE => {
                    return Err(error.context("the device does not work any more"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn works(&mut self) -> Result<()> {
        let device = Device {
            path: self.path()?,
            foreign: self.foreign,
            address: self.find_address(),
        };
        if self.netdev.is_some() && device.address.is_none() {
            bail!("it has no address");
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&device.path)?;
        let (mut vectors, mut limits) = (0, Default::default());
        let command = qpair_uverbs::Command::get_context(&mut vectors).driver(device.driver());
        let command = if self.foreign {
            command
        } else {
            command.driver_answer::<qpair_uresp_alloc_ucontext>(&mut limits)
        };
        // SAFETY: It names no memory besides its parts.
        let ran = unsafe { command.run(file.as_fd()) };
        ran.map_err(|errno| Errno::from_raw(errno.raw_os_error()))?;
        self.device = device;
        Ok(())
    }

    /// Runs an input.
    ///
    /// # Errors
    ///
    /// What the kernel has reported, or that a process or the device hangs.
    pub(crate) fn run(&mut self, input: &[u8]) -> Result<()> {
        self.note(input)?;
        let calls = calls(input);
        // The low byte of the first call's number does not matter for the call: 0, nothing is
        // prepared; above 5, more.
        let begins = input.first().map_or(0, |byte| byte % 8);
        let (asks, beside) = pipe2(OFlag::O_CLOEXEC)?;
        // SAFETY: This process has one thread.
        let child = match unsafe { fork() }.context("fork")? {
            ForkResult::Child => {
                drop(asks);
                run_child(
                    self.device.clone(),
                    beside.into(),
                    begins,
                    &calls,
                    self.prints,
                )
            }
            ForkResult::Parent { child } => child,
        };
        drop(beside);
        let acted = self.attend(child, File::from(asks))?;
        end_all(child)?;
        if let Some(since) = acted {
            if let Some((netdev, mtu)) = &self.netdev {
                // The path MTU of later inputs must not depend on this one.
                fs::write(mtu_of(netdev), mtu)?;
            }
            self.appeared()?;
            self.acted.0 += 1;
            self.acted.1 += since.elapsed();
        }
        self.look()?;
        self.check()
    }

    /// Writes an input for the host, which needs it if the kernel ends.
    fn note(&mut self, input: &[u8]) -> Result<()> {
        const WIDTH: usize = 10 + 2 * RECORD * RECORDS + 1;
        let digits: String = input
            .iter()
            .take(RECORD * RECORDS)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let line = format!(
            "{:<width$}\n",
            format!("{:09} {digits}", self.ran),
            width = WIDTH - 1
        );
        self.last
            .write_all_at(line.as_bytes(), self.ran % LAST * WIDTH as u64)?;
        self.ran += 1;
        Ok(())
    }

    /// Does what the processes of an input ask for until the first ends; returns when that
    /// was.
    fn attend(&self, child: Pid, mut asks: File) -> Result<Option<Instant>> {
        let (began, limit) = (Instant::now(), Duration::from_secs(SECONDS));
        let process = rustix::process::Pid::from_raw(child.as_raw()).context("a process")?;
        let process = rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty())?;
        let mut acted = None;
        loop {
            let left = limit.saturating_sub(began.elapsed()).as_millis() as u16;
            let mut ready = [
                PollFd::new(process.as_fd(), PollFlags::POLLIN),
                PollFd::new(asks.as_fd(), PollFlags::POLLIN),
            ];
            let _ = poll(&mut ready, PollTimeout::from(left));
            let [ended, asked] = ready.map(|it| it.revents().unwrap_or(PollFlags::empty()));
            let mut what = [0];
            if asked.contains(PollFlags::POLLIN) && asks.read(&mut what)? == 1 {
                if acted.is_none() && self.may_act() {
                    acted = Some(Instant::now());
                    self.act(what[0]);
                }
            } else if left == 0 || !ended.is_empty() || !asked.is_empty() {
                // It has ended, or no process of the input is left, or there is no time.
                return Ok(acted);
            }
        }
    }

    fn may_act(&self) -> bool {
        !self.bounded || self.acted.1 * ACTING <= self.began.elapsed()
    }

    /// Resets the function, unbinds and binds its driver, or changes its network device.
    fn act(&self, what: u8) {
        let put = |path: String, text: &str| drop(fs::write(path, text));
        match (&self.function, &self.netdev) {
            (_, Some((netdev, _))) if what % 4 == 3 => {
                let path = format!("/sys/class/net/{netdev}/flags");
                let flags = fs::read_to_string(&path).unwrap_or_default();
                let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16);
                let flags = flags.unwrap_or(0) & !UP;
                put(path.clone(), &format!("{flags:#x}"));
                put(path, &format!("{:#x}", flags | UP));
            }
            (_, Some((netdev, _))) if what % 4 == 2 => {
                let mtu = if what < 128 { "1500" } else { "9000" };
                put(mtu_of(netdev), mtu);
            }
            (Some(function), _) if what % 2 == 0 => {
                put(format!("/sys/bus/pci/devices/{function}/reset"), "1");
            }
            (Some(function), _) => {
                put("/sys/bus/pci/drivers/qpair/unbind".into(), function);
                put("/sys/bus/pci/drivers/qpair/bind".into(), function);
            }
            (None, _) => {}
        }
    }

    /// Looks at the counters.
    fn look(&mut self) -> Result<()> {
        let Some(file) = &self.counters else {
            return Ok(());
        };
        self.both.swap(0, 1);
        let [before, now] = &mut self.both;
        let mut have = 0;
        while let count @ 1.. = file.read_at(&mut now[have..], have as u64)? {
            have += count;
        }
        let of = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        let both = before.chunks_exact(8).zip(now[..have].chunks_exact(8));
        let more = |(before, now)| of(now).wrapping_sub(of(before)).min(255) as u8;
        self.changed.clear();
        self.changed.extend(both.map(more));
        Ok(())
    }

    /// Fails if the kernel has reported something.
    fn check(&mut self) -> Result<()> {
        while let Some(line) = next_line(&mut self.log)? {
            if REPORTS.iter().any(|report| line.contains(report)) {
                bail!(
                    "the kernel reported: {}",
                    line.lines().next().unwrap_or_default()
                );
            }
        }
        Ok(())
    }
}

/// Becomes a process without rights, and runs the calls.
fn run_child(device: Device, beside: File, begins: u8, calls: &[Call], prints: bool) -> ! {
    let unprivileged = || -> Result<Process> {
        setsid()?;
        setgroups(&[])?;
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        setresgid(group, group, group)?;
        setresuid(user, user, user)?;
        Process::new(device, beside, prints)
    };
    match unprivileged() {
        Ok(mut process) => {
            if begins > 0 {
                process.prepare(begins > 5);
            }
            let how = process.run(calls);
            process.end(how)
        }
        Err(error) => {
            eprintln!("{error:#}");
            std::process::exit(1)
        }
    }
}

/// Kills the processes of a session, and waits for them.
fn end_all(child: Pid) -> Result<()> {
    let began = Instant::now();
    loop {
        let _ = killpg(child, Signal::SIGKILL);
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(Errno::ECHILD) => return Ok(()),
            Ok(WaitStatus::StillAlive) if began.elapsed() > PATIENCE => {
                bail!("a process cannot be killed")
            }
            Ok(WaitStatus::StillAlive) => std::thread::sleep(Duration::from_micros(300)),
            _ => {}
        }
    }
}
