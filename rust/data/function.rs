// SPDX-License-Identifier: GPL-2.0

//! The function as registers and doorbells see it, and whether it can be relied on.
//!
//! A [`Function`] outlives the binding: open files refer to it. What it says of itself is one
//! word, [`Health`], which anybody may make worse from any context and only bring-up makes good:
//!
//! ```text
//!            bring-up                fail()                    reset           (the next epoch)
//!   Down --------------> Up -------------------> Fatal ----------------> Down
//!     |                   `--------------------> Gone -----------------> Down
//!     `-------- fails -------------------------> Fatal: the watchdog tries again
//!   any ---------------------------------------> Unbound: for ever
//! ```
//!
//! A task that needs the device goes through [`Function::enter`], which takes the epoch that
//! the caller began in: what was made before a reset names nothing after it.

use crate::{
    abi::{
        doorbell,
        regs as model,
        status::EnableError,
        Number, //
    },
    sys::{
        dma,
        door::Frame,
        gate::{
            Gate,
            Pass, //
        },
        mmio::{
            is_gone,
            Bar, //
        },
        pci::{
            channel,
            Channel, //
        },
        trace, //
    },
};
use kernel::{
    device::{
        Bound,
        Device, //
    },
    io::Io,
    pci,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    },
};

mod regs {
    crate::abi::regs::registers!(kernel::io::register);
}

/// Bytes of the doorbell BAR that every function has: page 0.
const BELLS: usize = doorbell::PAGE_BYTES as usize;

/// What the function can hold, read once from its registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Version of the programming model, major in the high 16 bits.
    pub(crate) version: u32,
    /// Queue pairs, the admin one included.
    pub(crate) qp: u32,
    /// Completion queues, the admin one included.
    pub(crate) cq: u32,
    /// Event queues.
    pub(crate) eq: u32,
    /// Memory regions.
    pub(crate) mr: u32,
    /// Protection domains.
    pub(crate) pd: u32,
    /// Doorbell pages, page 0 included.
    pub(crate) pages: u32,
    /// Base-two logarithm of the most blocks of an SQ.
    pub(crate) log_sq: u8,
    /// Base-two logarithm of the most receives of an RQ.
    pub(crate) log_rq: u8,
    /// Base-two logarithm of the most entries of a CQ.
    pub(crate) log_cq: u8,
    /// Base-two logarithm of the most entries of an EQ.
    pub(crate) log_eq: u8,
    /// SGEs of a send work request.
    pub(crate) send_sges: u32,
    /// SGEs of a receive.
    pub(crate) recv_sges: u32,
    /// Bytes of inline data.
    pub(crate) inline_bytes: u32,
    /// Bytes of a message.
    pub(crate) message: u32,
    /// Base-two logarithm of the most bytes of a region.
    pub(crate) region_log_bytes: u8,
    /// Base-two logarithm of the smallest page of a buffer list.
    pub(crate) min_page_shift: u8,
    /// Base-two logarithm of the largest page of a buffer list.
    pub(crate) max_page_shift: u8,
    /// Asynchronous events that are in EQ 0 at a time.
    pub(crate) asynchronous: u32,
}

impl Limits {
    /// Reads them, and refuses a device that is not there or speaks another language.
    fn read(dev: &Device<Bound>, bar: &pci::Bar<'_, { model::BYTES }>) -> Result<Self> {
        let magic = bar.read(regs::MAGIC).value().get();
        if is_gone(magic) {
            return Err(ENODEV);
        }
        let version = bar.read(regs::VERSION);
        let major = u32::from(version.major());
        if magic != model::MAGIC_VALUE || major != model::MAJOR {
            dev_err!(
                dev,
                "not a device of model {}: {magic:#x}, {major}\n",
                model::MAJOR
            );
            return Err(ENODEV);
        }
        let ring = bar.read(regs::LIMIT_RING);
        let wqe = bar.read(regs::LIMIT_WQE);
        let region = bar.read(regs::LIMIT_REGION);
        let limits = Self {
            version: major << 16 | u32::from(version.minor()),
            qp: bar.read(regs::LIMIT_QP).count().get(),
            cq: bar.read(regs::LIMIT_CQ).count().get(),
            eq: bar.read(regs::LIMIT_EQ).count().get(),
            mr: bar.read(regs::LIMIT_MR).count().get(),
            pd: bar.read(regs::LIMIT_PD).count().get(),
            pages: bar.read(regs::LIMIT_PAGE).count().get(),
            log_sq: ring.log_sq().into(),
            log_rq: ring.log_rq().into(),
            log_cq: ring.log_cq().into(),
            log_eq: ring.log_eq().into(),
            send_sges: wqe.send_sges().into(),
            recv_sges: wqe.recv_sges().into(),
            inline_bytes: wqe.inline_bytes().into(),
            message: bar.read(regs::LIMIT_MESSAGE).bytes().get(),
            region_log_bytes: region.log_bytes().into(),
            min_page_shift: region.min_page_shift().into(),
            max_page_shift: region.max_page_shift().into(),
            asynchronous: bar.read(regs::LIMIT_ASYNC).count().get(),
        };
        if limits.qp == 0 || limits.cq == 0 || limits.eq == 0 || limits.pages == 0 {
            dev_err!(dev, "the device has no room for an admin queue\n");
            return Err(EIO);
        }
        Ok(limits)
    }
}

/// How the function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// Not brought up, or being reset.
    Down,
    /// Works.
    Up,
    /// It stopped, or does not do what it must, and wants a reset.
    Fatal,
    /// It answers with all ones: unplugged, or broken beyond a reset.
    Gone,
    /// The driver no longer has it.
    Unbound,
}

impl Health {
    const ALL: [Self; 5] = [Self::Down, Self::Up, Self::Fatal, Self::Gone, Self::Unbound];

    fn from_code(code: u32) -> Self {
        Self::ALL.get(code as usize).copied().unwrap_or(Self::Gone)
    }
}

/// Why the function is not [`Health::Up`] any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It said so: the cause.
    Stopped(u8),
    /// It is at power-on although it was up: the epoch of its state is over.
    NotReady,
    /// An admin command got no answer.
    Timeout,
    /// An object could not be destroyed.
    Destroy,
    /// It did not come up again. The caller logs why.
    BringUp,
    /// All ones, while the PCI core recovers the link.
    Link,
    /// All ones.
    Gone,
}

/// What is left of the function's access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Quiet {
    /// It was reset: no DMA is under way, none will come.
    Reset,
    /// It does not answer.
    Gone,
    /// It answers, and was not reset.
    No,
}

/// Where the rings that registers bring up lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdminRings {
    /// EQ 0's ring and depth.
    pub(crate) eq: (u64, u8),
    /// The admin SQ's.
    pub(crate) sq: (u64, u8),
    /// The admin CQ's.
    pub(crate) cq: (u64, u8),
}

/// The function.
pub(crate) struct Function {
    gate: Arc<Gate>,
    registers: Bar<{ model::BYTES }>,
    bells: Bar<BELLS>,
    limits: Limits,
    in_place: bool,
    health: Atomic<u32>,
    epoch: Atomic<u32>,
    /// Attempts in a row to bring it up again that failed, or did not last. The log has each failure
    /// of a device that was up, and the first of one that was not.
    attempts: Atomic<u32>,
    index: Atomic<u32>,
}

impl Function {
    /// Maps the BARs of `pdev` and reads what it is. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENODEV` if it is not there or not one of ours; those of mapping a BAR.
    pub(crate) fn new(pdev: &pci::Device<Bound>, gate: Arc<Gate>) -> Result<Arc<Self>> {
        let registers = Bar::new(pdev, &gate, doorbell::BAR_REGS, c"qpair")?;
        let bells = Bar::new(pdev, &gate, doorbell::BAR_DOORBELLS, c"qpair")?;
        let limits = Limits::read(pdev.as_ref(), registers.access(pdev.as_ref())?)?;
        let in_place = dma::is_in_place(&gate.enter()?)?;
        if !in_place {
            dev_warn!(
                pdev,
                "the platform gives devices copies of memory, so processes cannot use this one; \
                 remedy: an IOMMU, or boot without swiotlb=force\n"
            );
        }
        let function = Self {
            gate,
            registers,
            bells,
            limits,
            in_place,
            health: Atomic::new(Health::Down as u32),
            epoch: Atomic::new(0),
            attempts: Atomic::new(0),
            index: Atomic::new(0),
        };
        Ok(Arc::new(function, GFP_KERNEL)?)
    }

    /// What it can hold.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether the device can use memory of processes where it is: see [`dma::is_in_place`].
    pub(crate) fn is_in_place(&self) -> bool {
        self.in_place
    }

    /// The way to the bound device.
    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// The device, bound or not, for messages.
    pub(crate) fn device(&self) -> &Device {
        self.gate.device()
    }

    /// It is `/dev/qpair<index>`.
    pub(crate) fn set_index(&self, index: u32) {
        self.index.store(index, Relaxed);
    }

    /// N of `/dev/qpairN`, for trace points.
    #[inline]
    pub(crate) fn index(&self) -> u32 {
        self.index.load(Relaxed)
    }

    /// How often it was reset.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Acquire)
    }

    /// How it is.
    pub(crate) fn health(&self) -> Health {
        Health::from_code(self.health.load(Acquire))
    }

    /// Goes in to the device, for a caller that began in `epoch`. Sleeps, not for long.
    ///
    /// # Errors
    ///
    /// `ENODEV` if it is unbound or gone, `EIO` if it was reset since, or is about to be.
    pub(crate) fn enter(&self, epoch: u32) -> Result<Pass<'_>> {
        let pass = self.gate.enter().map_err(|_| self.error())?;
        if self.health() != Health::Up || self.epoch() != epoch {
            return Err(self.error());
        }
        Ok(pass)
    }

    /// The error of a caller that cannot go in.
    pub(crate) fn error(&self) -> Error {
        match self.health() {
            Health::Gone | Health::Unbound => ENODEV,
            Health::Down | Health::Up | Health::Fatal => EIO,
        }
    }

    /// It works from now on. By bring-up alone.
    pub(crate) fn set_up(&self) -> Result {
        self.swap(&[Health::Down], Health::Up).ok_or(ENODEV)?;
        Ok(())
    }

    /// How many attempts in a row to bring it up again have failed, or did not last.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts.load(Relaxed)
    }

    /// What [`Self::attempts`] is from now on. By the watchdog alone.
    pub(crate) fn set_attempts(&self, attempts: u32) {
        self.attempts.store(attempts, Relaxed);
    }

    /// It stopped working. Any context. The watchdog sees to the rest; only the first call of an
    /// epoch says so in the log.
    pub(crate) fn fail(&self, why: Failure) {
        let (from, to): (&[_], _) = match why {
            Failure::Gone => (&[Health::Down, Health::Up, Health::Fatal], Health::Gone),
            // A reset that has just begun wants it not to be ready.
            Failure::NotReady => (&[Health::Up], Health::Fatal),
            _ => (&[Health::Down, Health::Up], Health::Fatal),
        };
        let Some(was) = self.swap(from, to) else {
            return;
        };
        let cause = match why {
            Failure::Stopped(cause) => cause.into(),
            _ => 0,
        };
        trace::wrong(trace::Wrong::Fatal, 0, cause);
        // A device that has come up again and fails is worth a line, one that does not come up is not.
        if self.attempts() != 0 && was != Health::Up && why != Failure::Gone {
            return;
        }
        let dev = self.device();
        match why {
            Failure::Stopped(cause) => match EnableError::from_code(cause) {
                Some(cause) => dev_err!(dev, "device fatal: {}\n", cause.text()),
                None => dev_err!(dev, "device fatal: cause {cause}\n"),
            },
            Failure::NotReady => dev_err!(dev, "device fatal: it is not ready any more\n"),
            Failure::Timeout => dev_err!(dev, "device fatal: an admin command got no answer\n"),
            Failure::Destroy => dev_err!(dev, "device fatal: an object cannot be destroyed\n"),
            Failure::BringUp => {}
            Failure::Link => dev_err!(dev, "device fatal: the link to it failed\n"),
            Failure::Gone => dev_err!(dev, "the device is gone\n"),
        }
    }

    /// As [`Self::fail`], of what was read in `epoch`: once a reset has begun it says nothing. Any
    /// context.
    pub(crate) fn fail_in(&self, epoch: u32, why: Failure) {
        if self.epoch() != epoch {
            return;
        }
        self.fail(why);
        // A reset that began in between has found nothing to end.
        if self.epoch() != epoch {
            self.swap(&[Health::Fatal], Health::Down);
        }
    }

    /// A new epoch begins, in which nothing of before has a meaning.
    pub(crate) fn begin_reset(&self) {
        // In this order: see `fail_in`.
        self.epoch.fetch_add(1, Full);
        self.swap(&[Health::Up, Health::Fatal, Health::Gone], Health::Down);
    }

    /// The driver lets go of it.
    pub(crate) fn set_unbound(&self) {
        self.health.store(Health::Unbound as u32, Release);
    }

    /// From one of `from` to `to`; which of them it was, if any.
    fn swap(&self, from: &[Health], to: Health) -> Option<Health> {
        let change = |from: &Health| self.health.cmpxchg(*from as u32, to as u32, Full);
        from.iter().copied().find(|from| change(from).is_ok())
    }

    /// Reads the function's status and fails the function if it stopped, lost its state or is
    /// gone. A register read.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `dev` is not the function's device.
    pub(crate) fn look(&self, dev: &Device<Bound>) -> Result {
        // Before the read: what is not ready then was ready in this epoch, or a reset came between.
        let (epoch, was_up) = (self.epoch(), self.health() == Health::Up);
        let status = self.registers.access(dev)?.read(regs::STATUS);
        if is_gone(status.into_raw()) {
            // Behind a link that is being recovered everything reads as ones.
            self.fail(match channel(dev)? {
                Channel::Frozen => Failure::Link,
                Channel::Normal | Channel::Failed => Failure::Gone,
            });
        } else if status.fatal().get() != 0 {
            self.fail(Failure::Stopped(status.cause().into()));
        } else if status.ready().get() == 0 && was_up && self.epoch() == epoch {
            self.fail(Failure::NotReady);
        }
        Ok(())
    }

    /// Whether the link is up. A register read.
    pub(crate) fn link_up(&self, dev: &Device<Bound>) -> Result<bool> {
        let status = self.registers.access(dev)?.read(regs::STATUS);
        Ok(!is_gone(status.into_raw()) && status.link_up().get() != 0)
    }

    /// Brings up EQ 0 and the admin queue pair.
    ///
    /// # Errors
    ///
    /// `EIO` if it cannot, with a message at the first attempt; `ENODEV` if it is gone.
    pub(crate) fn enable(&self, dev: &Device<Bound>, rings: &AdminRings) -> Result {
        let bar = self.registers.access(dev)?;
        // CAST: The two halves of an address.
        bar.write_reg(regs::EQ0_BASE_LO::zeroed().with_value(rings.eq.0 as u32));
        bar.write_reg(regs::EQ0_BASE_HI::zeroed().with_value((rings.eq.0 >> 32) as u32));
        bar.write_reg(regs::ASQ_BASE_LO::zeroed().with_value(rings.sq.0 as u32));
        bar.write_reg(regs::ASQ_BASE_HI::zeroed().with_value((rings.sq.0 >> 32) as u32));
        bar.write_reg(regs::ACQ_BASE_LO::zeroed().with_value(rings.cq.0 as u32));
        bar.write_reg(regs::ACQ_BASE_HI::zeroed().with_value((rings.cq.0 >> 32) as u32));
        bar.write_reg(
            regs::ADMIN_DEPTH::zeroed()
                .try_with_log_eq(u32::from(rings.eq.1))?
                .try_with_log_sq(u32::from(rings.sq.1))?
                .try_with_log_cq(u32::from(rings.cq.1))?,
        );
        bar.write_reg(regs::CTRL::zeroed().with_const_enable::<1>());
        let status = bar.read(regs::STATUS);
        if is_gone(status.into_raw()) {
            return Err(ENODEV);
        }
        if status.ready().get() == 0 {
            let cause = u8::from(status.cause());
            match EnableError::from_code(cause) {
                _ if self.attempts() != 0 => {}
                Some(cause) => dev_err!(dev, "the device cannot be enabled: {}\n", cause.text()),
                None => dev_err!(dev, "the device cannot be enabled: cause {cause}\n"),
            }
            return Err(EIO);
        }
        Ok(())
    }

    /// Returns the function to power-on.
    pub(crate) fn reset(&self, dev: &Device<Bound>) -> Quiet {
        let Ok(bar) = self.registers.access(dev) else {
            return Quiet::No;
        };
        bar.write_reg(regs::CTRL::zeroed().with_const_reset::<1>());
        let status = bar.read(regs::STATUS);
        if is_gone(status.into_raw()) {
            Quiet::Gone
        } else if status.ready().get() != 0 || status.fatal().get() != 0 {
            Quiet::No
        } else {
            Quiet::Reset
        }
    }

    /// The doorbells of page 0, for a caller that has the bound device.
    pub(crate) fn bells<'a>(&'a self, dev: &'a Device<Bound>) -> Bells<'a> {
        Bells {
            bells: &self.bells,
            dev,
            index: self.index(),
        }
    }

    /// The page frame of doorbell page `page`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the BAR has no such page.
    pub(crate) fn page_frame(&self, page: u16) -> Result<Frame> {
        self.bells.frame(u64::from(page) * doorbell::PAGE_BYTES)
    }
}

/// The driver's doorbells.
#[derive(Clone, Copy)]
pub(crate) struct Bells<'a> {
    bells: &'a Bar<BELLS>,
    dev: &'a Device<Bound>,
    /// Which device it is, for the trace.
    index: u32,
}

impl Bells<'_> {
    /// Writes `index` of `number` to the doorbell at `place`. Any context.
    #[inline]
    pub(crate) fn ring(&self, place: u64, number: Number, index: u32) {
        // CAST: A place in a page.
        trace::doorbell(self.index, place as u32, number.raw(), index);
        // Refused only for another device's `dev`, or outside of the page.
        let _: Result =
            self.bells
                .doorbell(self.dev, place as usize, doorbell::value(number, index));
    }
}
