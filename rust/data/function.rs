// SPDX-License-Identifier: GPL-2.0

//! The function: its doorbells, its limits and its health.
//!
//! A [`Function`] outlives the binding: open files refer to it. Its state is one word, [`Health`].
//! Any context may worsen it; only bring-up sets it to `Up`:
//!
//! ```text
//!            bring-up                fail()                    reset           (the next epoch)
//!   Down --------------> Up -------------------> Fatal ----------------> Down
//!     |                   `--------------------> Gone -----------------> Down
//!     `-------- fails -------------------------> Fatal: the watchdog tries again
//!   any ---------------------------------------> Unbound: for ever
//! ```

use crate::{
    abi::{
        doorbell,
        regs as model,
        status::EnableError,
        Number, //
    },
    kernel::{
        gate::Gate,
        mmio::{
            Bar,
            Frame, //
        },
        trace, //
    },
    queue::recovery::Recovery,
};
use kernel::{
    device::{
        Bound,
        Device, //
    },
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

/// Bytes of the doorbell BAR that every function has: page 0.
pub(crate) const DOORBELLS: usize = doorbell::PAGE_BYTES as usize;

/// The limits of the function, read once from its registers.
#[derive(Clone, Copy, Debug, Default)]
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
    /// Shared receive queues.
    pub(crate) srq: u32,
    /// Memory windows.
    pub(crate) mw: u32,
    /// Groups that have members.
    pub(crate) groups: u32,
    /// Members of a group.
    pub(crate) group_members: u32,
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
    /// Address of the network device that the port belongs to.
    pub(crate) mac: Option<[u8; 6]>,
}

/// The state of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// Not brought up, or being reset.
    Down,
    /// Working.
    Up,
    /// It stopped or failed a command that must succeed, and needs a reset.
    Fatal,
    /// It reads as all ones: unplugged, or broken beyond a reset.
    Gone,
    /// Not bound to the driver any more.
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
    /// The device reports it: the cause.
    Stopped(u8),
    /// It is in its power-on state although it was up: all its objects are lost.
    NotReady,
    /// An admin command got no answer.
    Timeout,
    /// An object could not be destroyed.
    Destroy,
    /// Bring-up failed, or the registration of the RDMA device. The caller logs the reason.
    BringUp,
    /// It reads as all ones while the PCI core recovers the link.
    Link,
    /// It reads as all ones.
    Gone,
}

/// The function.
pub(crate) struct Function {
    gate: Arc<Gate>,
    registers: Bar<{ model::BYTES }>,
    doorbells: Bar<DOORBELLS>,
    limits: Limits,
    in_place: bool,
    health: Atomic<u32>,
    epoch: Atomic<u32>,
    /// The watchdog's [`Recovery`], as a word.
    recovery: Atomic<u64>,
    index: Atomic<u32>,
}

impl Function {
    /// A function that is down, with its mapped BARs.
    pub(crate) fn new(
        gate: Arc<Gate>,
        registers: Bar<{ model::BYTES }>,
        doorbells: Bar<DOORBELLS>,
        limits: Limits,
        in_place: bool,
    ) -> Self {
        Self {
            gate,
            registers,
            doorbells,
            limits,
            in_place,
            health: Atomic::new(Health::Down as u32),
            epoch: Atomic::new(0),
            recovery: Atomic::new(Recovery::new().to_word()),
            index: Atomic::new(0),
        }
    }

    /// Its registers.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `dev` is not the function's device.
    pub(crate) fn registers<'a>(
        &'a self,
        dev: &'a Device<Bound>,
    ) -> Result<&'a pci::Bar<'a, { model::BYTES }>> {
        self.registers.access(dev)
    }

    /// Its limits.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether the device can access memory of processes without bounce buffers: see
    /// [`dma::is_in_place`].
    pub(crate) fn is_in_place(&self) -> bool {
        self.in_place
    }

    /// The gate to the bound device.
    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// The device, bound or not, for messages.
    pub(crate) fn device(&self) -> &Device {
        self.gate.device()
    }

    /// Sets the index of the device.
    pub(crate) fn set_index(&self, index: u32) {
        self.index.store(index, Relaxed);
    }

    /// The index of the device, for trace points.
    #[inline]
    pub(crate) fn index(&self) -> u32 {
        self.index.load(Relaxed)
    }

    /// The epoch: how often it was reset.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Acquire)
    }

    /// Its state.
    pub(crate) fn health(&self) -> Health {
        Health::from_code(self.health.load(Acquire))
    }

    /// The error of a caller that cannot enter.
    pub(crate) fn error(&self) -> Error {
        match self.health() {
            Health::Gone | Health::Unbound => ENODEV,
            Health::Down | Health::Up | Health::Fatal => EIO,
        }
    }

    /// Marks it up. Called only by bring-up.
    pub(crate) fn set_up(&self) -> Result {
        self.swap(&[Health::Down], Health::Up).ok_or(ENODEV)?;
        Ok(())
    }

    /// The number of consecutive recoveries that failed or did not last. Each failure of a device
    /// that was up is logged; of repeated bring-up failures only the first.
    pub(crate) fn attempts(&self) -> u32 {
        Recovery::from_word(self.recovery.load(Relaxed)).attempts()
    }

    /// Changes the [`Recovery`]. Called only by the watchdog.
    pub(crate) fn learn<R>(&self, change: impl FnOnce(&mut Recovery) -> R) -> R {
        let mut recovery = Recovery::from_word(self.recovery.load(Relaxed));
        let result = change(&mut recovery);
        self.recovery.store(recovery.to_word(), Relaxed);
        result
    }

    /// Marks it failed; the watchdog recovers it. Only the first failure of an epoch is logged. Any
    /// context.
    pub(crate) fn fail(&self, why: Failure) {
        let (from, to): (&[_], _) = match why {
            Failure::Gone => (&[Health::Down, Health::Up, Health::Fatal], Health::Gone),
            // Not from `Down`: during a reset it is not ready.
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
        // Do not log repeated failures of bring-up.
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

    /// As [`Self::fail`], for a failure seen in `epoch`: does nothing once a reset has begun. Any
    /// context.
    pub(crate) fn fail_in(&self, epoch: u32, why: Failure) {
        if self.epoch() != epoch {
            return;
        }
        self.fail(why);
        // A reset began in between, and `begin_reset` did not see the failure: undo it.
        if self.epoch() != epoch {
            self.swap(&[Health::Fatal], Health::Down);
        }
    }

    /// Begins a new epoch: all objects of earlier epochs are invalid.
    pub(crate) fn begin_reset(&self) {
        // In this order: see `fail_in`.
        self.epoch.fetch_add(1, Full);
        self.swap(&[Health::Up, Health::Fatal, Health::Gone], Health::Down);
    }

    /// Marks it unbound.
    pub(crate) fn set_unbound(&self) {
        self.health.store(Health::Unbound as u32, Release);
    }

    /// Changes the state from one of `from` to `to`. Returns the old state on success.
    fn swap(&self, from: &[Health], to: Health) -> Option<Health> {
        let change = |from: &Health| self.health.cmpxchg(*from as u32, to as u32, Full);
        from.iter().copied().find(|from| change(from).is_ok())
    }

    /// The doorbells of page 0. `dev` proves that the device is bound.
    pub(crate) fn doorbells<'a>(&'a self, dev: &'a Device<Bound>) -> Doorbells<'a> {
        Doorbells {
            doorbells: &self.doorbells,
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
        self.doorbells.frame(u64::from(page) * doorbell::PAGE_BYTES)
    }
}

/// The driver's doorbells.
#[derive(Clone, Copy)]
pub(crate) struct Doorbells<'a> {
    doorbells: &'a Bar<DOORBELLS>,
    dev: &'a Device<Bound>,
    /// The index of the device, for trace points.
    index: u32,
}

impl Doorbells<'_> {
    /// Writes `index` of `number` to the doorbell at offset `place`. Any context.
    #[inline]
    pub(crate) fn ring(&self, place: u64, number: Number, index: u32) {
        // CAST: An offset in a page.
        trace::doorbell(self.index, place as u32, number.raw(), index);
        // Fails only for the `dev` of another device, or outside of the page.
        let _: Result =
            self.doorbells
                .doorbell(self.dev, place as usize, doorbell::value(number, index));
    }
}
