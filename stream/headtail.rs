// SPDX-License-Identifier: GPL-2.0

//! Rung 3: rings with a head and a tail, and an interrupt that masks itself.
//!
//! ```text
//!          HEAD                       TAIL
//!           v                          v
//!   [ done ][ the channel's ][ ... ]  [ free ][ free ]
//! ```
//!
//! - The tail is an index, and past the last descriptor that the channel owns. An equal head is an
//!   empty ring: so one descriptor of a ring is never handed over.
//! - A transmitted descriptor is written back only where that was asked for: at the last one of each
//!   hand-over. A received one always is.
//! - The message masks the interrupt. No register says why it came: the descriptors do, in memory.
//!   The end of a poll unmasks it, and what was written back meanwhile gives a message at once.
//!
//! The receive channel alone interrupts: a frame that was received was transmitted too. The
//! [watchdog](crate::client::Watch) finds a transmit channel that halts.

use crate::{
    abi::stream::{
        headtail::{
            RingDescriptor,
            BUFFER_UNIT, //
        },
        vector,
        Side, //
    },
    frames::Buffers,
    function::{
        At,
        Block,
        Halt,
        Polled,
        Status, //
    },
    kernel::gate::Pass,
    plan::{
        Fault,
        Plan, //
    },
    queue::{
        credit::RingId,
        headtail::{
            Buffer,
            Completed,
            Headtail, //
        }, //
    },
    ring::Ring, //
};
use core::ops::Range;
use kernel::{
    dma::DataDirection,
    io::Io,
    prelude::*, //
};

mod regs {
    crate::abi::stream::headtail::registers!(kernel::io::register);
}

/// Starts a disabled channel with an empty ring at `base`.
fn run(block: Block<'_>, base: u64, bytes: u32) {
    // CAST: The two halves of an address.
    block.write_reg(regs::BAL::zeroed().with_value(base as u32));
    block.write_reg(regs::BAH::zeroed().with_value((base >> 32) as u32));
    block.write_reg(regs::LEN::zeroed().with_bytes(bytes));
    block.write_reg(regs::HEAD::zeroed());
    block.write_reg(regs::TAIL::zeroed());
    block.write_reg(regs::DCTL::zeroed().with_const_enable::<1>());
}

/// Gives everything that was filled to the channel: the tail is the index past the last of it.
fn hand_over(block: Block<'_>, ring: &mut Headtail<Ring>) {
    ring.hand_over(|tail| block.write_reg(regs::TAIL::zeroed().with_index(tail)));
}

impl From<regs::SR> for Status {
    fn from(status: regs::SR) -> Self {
        Self {
            raw: status.into_raw(),
            halted: status.halted().get() != 0,
            cause: status.cause().into(),
        }
    }
}

/// What a channel of the pair halted on.
pub(crate) fn status(at: &At<'_>) -> Option<Halt> {
    at.halt(|block| block.read(regs::SR).into())
}

/// Stops both channels. Returns whether they access no memory any more.
pub(crate) fn stop(at: &At<'_>) -> bool {
    at.stop(
        |block| block.write_reg(regs::DCTL::zeroed().with_const_flush::<1>()),
        |block| block.read(regs::SR).into(),
    )
}

/// A ring for each side, and a buffer for each descriptor.
pub(crate) struct Rings {
    transmit: Headtail<Ring>,
    receive: Headtail<Ring>,
    sources: Buffers,
    targets: Buffers,
    plan: Plan,
    /// The number of the next frame to be received.
    next: u64,
}

impl Rings {
    /// Allocates them. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EIO`.
    pub(crate) fn new(pass: &Pass<'_>, plan: &Plan) -> Result<Self> {
        let depth = plan.depth;
        let ring = |side| {
            let ring = Ring::new(pass, depth.entries() as usize * RingDescriptor::BYTES)?;
            let id = RingId::new(vector(plan.pair, side), 0);
            Headtail::new(id, ring, side, depth).map_err(|_| EINVAL)
        };
        let buffers = |bytes, direction| Buffers::new(pass, depth.entries(), bytes, direction);
        // All receive buffers of a ring are of one size, in units.
        let target = plan.size.next_multiple_of(BUFFER_UNIT);
        Ok(Self {
            transmit: ring(Side::Transmit)?,
            receive: ring(Side::Receive)?,
            sources: buffers(plan.size, DataDirection::ToDevice)?,
            targets: buffers(target, DataDirection::FromDevice)?,
            plan: *plan,
            next: 0,
        })
    }

    /// Starts both channels, and hands all receive buffers over but the one that stays free.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the frames are too large for a buffer.
    pub(crate) fn start(&mut self, at: &At<'_>) -> Result {
        let units = self.plan.size.div_ceil(BUFFER_UNIT);
        let bytes = self.plan.depth.entries() * RingDescriptor::BYTES as u32;
        at.receive
            .write_reg(regs::SRRCTL::zeroed().try_with_buffer(units)?);
        at.receive
            .write_reg(regs::ITR::zeroed().with_interval(self.plan.interval));
        run(at.receive, self.receive.storage().address(), bytes);
        run(at.transmit, self.transmit.storage().address(), bytes);
        self.refill(at);
        at.receive
            .write_reg(regs::IMS::zeroed().with_const_enable::<1>());
        Ok(())
    }

    /// Hands over every receive buffer that is free.
    fn refill(&mut self, at: &At<'_>) {
        while let Some(room) = self.receive.room() {
            let Some(addr) = self.targets.lend(at.dev, room.place(), |_| {}) else {
                break;
            };
            room.fill(&Buffer {
                addr,
                ..Buffer::default()
            });
        }
        hand_over(at.receive, &mut self.receive);
    }

    /// Fills and hands over frames: one write of the tail, and one write-back, for all.
    ///
    /// Returns the number of frames. It may be smaller: a transmit descriptor is free only when its
    /// own status is there, which may be later than that of the received frame.
    pub(crate) fn send(&mut self, at: &At<'_>, numbers: Range<u64>) -> u64 {
        let mut sent = 0;
        for number in numbers {
            let frame = self.plan.frame(number);
            let Some(room) = self.transmit.room() else {
                break;
            };
            let fill = |buffer: &mut _| self.plan.fill(frame, buffer);
            let Some(addr) = self.sources.lend(at.dev, room.place(), fill) else {
                break;
            };
            let buffer = Buffer {
                addr,
                // CAST: A frame has at most 16384 bytes.
                bytes: frame.bytes as u16,
                end: true,
            };
            room.fill(&self.plan.fault_of(number).ring(buffer));
            sent += 1;
        }
        hand_over(at.transmit, &mut self.transmit);
        sent
    }

    /// Takes at most `budget` frames. Context: BH.
    pub(crate) fn poll(&mut self, at: &At<'_>, budget: u32) -> Polled {
        let mut polled = Polled::default();
        while polled.frames < budget {
            let Some(done) = self.receive.poll() else {
                break;
            };
            polled.frames += 1;
            if !self.received(at, &done) {
                polled.mismatches += 1;
            }
        }
        while let Some(done) = self.transmit.poll() {
            self.sources.take_back(at.dev, done.place);
        }
        self.refill(at);
        polled.again = polled.frames == budget;
        if polled.frames == 0 {
            // A message without a frame: a register says why.
            polled.halt = status(at);
        }
        if !polled.again {
            at.receive
                .write_reg(regs::IMS::zeroed().with_const_enable::<1>());
        }
        polled
    }

    /// Whether the next frame arrived as it was sent.
    fn received(&mut self, at: &At<'_>, done: &Completed) -> bool {
        let frame = self.plan.frame(self.next);
        self.next += 1;
        let whole = done.end && u32::from(done.bytes) == frame.bytes;
        let buffer = self.targets.take_back(at.dev, done.place);
        whole && buffer.is_some_and(|buffer| self.plan.verifies(frame, buffer))
    }
}

impl Fault {
    /// Spoils a descriptor of a ring, which has no start that could be missing.
    fn ring(self, buffer: Buffer) -> Buffer {
        match self {
            Self::None | Self::Start => buffer,
            Self::Length => Buffer { bytes: 0, ..buffer },
            Self::Address => Buffer {
                addr: Self::NOWHERE,
                ..buffer
            },
        }
    }
}
