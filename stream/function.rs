// SPDX-License-Identifier: GPL-2.0

//! The function of channels: its registers, its gate, and how it is made quiet.

use crate::{
    abi::stream::{
        self,
        regs as model,
        Cause,
        Kind,
        Side, //
    },
    kernel::{
        gate::{
            Gate,
            Pass, //
        },
        mmio::{
            is_gone,
            Bar, //
        },
        mmio_block::block,
        pci::{
            self as bus,
            Mastering, //
        },
    }, //
};
use kernel::{
    device::{
        Bound,
        Device, //
    },
    fmt,
    io::{
        Io,
        Mmio,
        Region, //
    },
    pci,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc, //
    }, //
};

mod regs {
    crate::abi::stream::regs::registers!(kernel::io::register);
}

/// Bytes of a channel's registers.
const BLOCK: usize = stream::BLOCK_BYTES as usize;

/// The registers of a channel.
pub(crate) type Block<'a> = Mmio<'a, Region<BLOCK>>;

/// The registers of a pair of channels of a bound device.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) dev: &'a Device<Bound>,
    pub(crate) transmit: Block<'a>,
    pub(crate) receive: Block<'a>,
}

impl At<'_> {
    /// What a channel of the pair halted on; `read` reads the status of one.
    pub(crate) fn halt(&self, read: impl Fn(Block<'_>) -> Status) -> Option<Halt> {
        let of_receive = || read(self.receive).halt(Side::Receive);
        read(self.transmit).halt(Side::Transmit).or_else(of_receive)
    }

    /// Stops both channels by `reset`. Returns whether they access no memory any more. One that is
    /// gone does not, but behind a frozen link it may again once the link is back.
    pub(crate) fn stop(
        &self,
        reset: impl Fn(Block<'_>),
        read: impl Fn(Block<'_>) -> Status,
    ) -> bool {
        let blocks = [self.transmit, self.receive];
        for block in blocks {
            reset(block);
        }
        // The reads wait for the writes.
        let stopped = blocks.map(|block| {
            let status = read(block);
            match is_gone(status.raw) {
                true => !matches!(bus::channel(self.dev), Ok(bus::Channel::Frozen)),
                false => status.halted,
            }
        });
        stopped == [true; 2]
    }
}

/// The status of a channel, whatever its kind.
pub(crate) struct Status {
    /// The register as it was read.
    pub(crate) raw: u32,
    pub(crate) halted: bool,
    pub(crate) cause: u8,
}

impl Status {
    /// Why the channel does not run.
    pub(crate) fn halt(self, side: Side) -> Option<Halt> {
        if is_gone(self.raw) {
            return Some(Halt::Gone);
        }
        self.halted.then_some(Halt::Cause(side, self.cause))
    }
}

/// Why a channel does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// It halted by itself.
    Cause(Side, u8),
    /// All registers read as ones.
    Gone,
    /// It did nothing for [`polled::PATIENCE`](crate::polled::PATIENCE).
    Silent,
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the function is gone"),
            Self::Silent => f.write_str("the channel does nothing"),
            Self::Cause(side, cause) => {
                let side = match side {
                    Side::Transmit => "transmit",
                    Side::Receive => "receive",
                };
                let text = Cause::from_code(*cause).map_or("unknown cause", Cause::text);
                write!(f, "the {side} channel halted: {text} (cause {cause})")
            }
        }
    }
}

/// The outcome of a rung's poll.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Polled {
    /// Frames that were received.
    pub(crate) frames: u32,
    /// Those that differ from what was sent.
    pub(crate) mismatches: u32,
    /// There may be more.
    pub(crate) again: bool,
    /// Why a channel halted, if one did.
    pub(crate) halt: Option<Halt>,
}

/// A PCI function of channels, bound or not.
pub(crate) struct Function {
    gate: Arc<Gate>,
    registers: Bar<{ model::BYTES }>,
    kinds: KVec<Kind>,
    largest: u32,
    epoch: Atomic<u32>,
}

impl Function {
    /// Maps the registers of `pdev`, resets it, and reads its limits. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENODEV` if it is gone or not a function of this model; those of mapping a BAR.
    pub(crate) fn map(pdev: &pci::Device<Bound>, gate: Arc<Gate>) -> Result<Arc<Self>> {
        let registers = Bar::new(pdev, &gate, stream::BAR_REGS, c"qpair-stream")?;
        let mut this = Self {
            gate,
            registers,
            kinds: KVec::new(),
            largest: 0,
            epoch: Atomic::new(0),
        };
        let dev = pdev.as_ref();
        this.check(dev)?;
        let bar = this.registers.access(dev)?;
        bar.write_reg(regs::CTRL::zeroed().with_const_reset::<1>());
        let pairs = bar.read(regs::PAIRS).count().get();
        let largest = bar.read(regs::LIMIT_FRAME).bytes().get();
        if pairs == 0 || pairs > stream::MAX_PAIRS {
            dev_err!(dev, "the function has {pairs} pairs of channels\n");
            return Err(EIO);
        }
        for pair in 0..pairs {
            let block = this.block(dev, pair, Side::Transmit)?;
            // The last register of both kinds of channel.
            let kind = block.read32(crate::abi::stream::chain::offset::KIND as usize);
            let Some(kind) = u8::try_from(kind).ok().and_then(Kind::from_code) else {
                dev_err!(dev, "pair {pair} is of an unknown kind: {kind}\n");
                return Err(EIO);
            };
            this.kinds.push(kind, GFP_KERNEL)?;
        }
        this.largest = largest;
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Refuses a function that is gone or of another model.
    ///
    /// # Errors
    ///
    /// `ENODEV`.
    fn check(&self, dev: &Device<Bound>) -> Result {
        let bar = self.registers.access(dev)?;
        let magic = bar.read(regs::MAGIC).value().get();
        let major = u32::from(bar.read(regs::VERSION).major());
        if is_gone(magic) {
            dev_err!(dev, "the function is gone\n");
            return Err(ENODEV);
        }
        if magic != model::MAGIC_VALUE || major != model::MAJOR {
            dev_err!(
                dev,
                "not a function of model {}: magic {magic:#x}, model {major}\n",
                model::MAJOR
            );
            return Err(ENODEV);
        }
        Ok(())
    }

    /// The kind of each pair.
    pub(crate) fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// Bytes of the largest frame.
    pub(crate) fn largest(&self) -> u32 {
        self.largest
    }

    /// The gate to the bound device.
    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// How often it was shut down.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Acquire)
    }

    /// Enters the gate, for a caller that began in `epoch`. Sleeps only briefly.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the function is unbound or being reset, `EIO` if it was reset since.
    pub(crate) fn enter(&self, epoch: u32) -> Result<Pass<'_>> {
        let pass = self.gate.enter()?;
        if self.epoch() != epoch {
            return Err(EIO);
        }
        Ok(pass)
    }

    fn block<'a>(&'a self, dev: &'a Device<Bound>, pair: u32, side: Side) -> Result<Block<'a>> {
        // CAST: An offset in a BAR.
        let offset = stream::block(pair, side) as usize;
        block(&self.registers, dev, offset)
    }

    /// The registers of a pair.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `dev` is not the function's device, or there is no such pair.
    pub(crate) fn at<'a>(&'a self, dev: &'a Device<Bound>, pair: u32) -> Result<At<'a>> {
        Ok(At {
            dev,
            transmit: self.block(dev, pair, Side::Transmit)?,
            receive: self.block(dev, pair, Side::Receive)?,
        })
    }

    /// Refuses all new passes, and waits for those that are inside. A new epoch begins. Sleeps.
    pub(crate) fn close(&self) {
        self.epoch.fetch_add(1, Full);
        self.gate.close();
    }

    /// Returns the function to power-on. Returns whether it is certain that it accesses no memory.
    /// Process context; after [`Self::close`].
    pub(crate) fn quiesce(&self, pdev: &pci::Device<Bound>) -> bool {
        match bus::channel(pdev.as_ref()) {
            // It may do DMA again once the link is back. The PCI core resets it.
            Ok(bus::Channel::Frozen) => return false,
            Ok(bus::Channel::Failed) => return true,
            _ => {}
        }
        let reset = |dev| -> Result<u32> {
            let bar = self.registers.access(dev)?;
            bar.write_reg(regs::CTRL::zeroed().with_const_reset::<1>());
            // The read waits for the write, after which no DMA is under way.
            Ok(bar.read(regs::CTRL).into_raw())
        };
        match reset(pdev.as_ref()) {
            Ok(0) => true,
            _ => match bus::clear_master(pdev) {
                Mastering::Off | Mastering::Gone => true,
                Mastering::On => {
                    dev_err!(
                        pdev,
                        "the function does not reset, and bus mastering stays enabled: \
                         memory is not freed\n"
                    );
                    false
                }
            },
        }
    }

    /// Lets passes in again after [`Self::close`]. Under the device lock; sleeps.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the function is gone, or the binding is ending.
    pub(crate) fn open(&self, pdev: &pci::Device<Bound>) -> Result {
        self.check(pdev.as_ref())?;
        bus::set_master(pdev);
        self.gate.reopen(pdev)
    }
}
