// SPDX-License-Identifier: GPL-2.0

//! Rung 2: rings of linked descriptors, and an interrupt for several of them.
//!
//! ```text
//!            CURDESC                    TAILDESC
//!               v                          v
//!   [ done ][ the channel's ][ ... ][ the channel's ][ free ]--.
//!      ^                                                       |
//!      `---------------------- next ---------------------------'
//! ```
//!
//! - The channel owns both ends: the descriptor at the tail too. So all of a ring can be in flight.
//! - It sets the status of a descriptor, and software clears it before it hands the descriptor over
//!   again: the cache line goes back and forth, and a status that is not cleared halts the channel.
//! - The message says that something happened, and the status register what. Until software has
//!   cleared it there is no other message: the register is the mask.
//!
//! The receive channel alone interrupts: a frame that was received was transmitted too. The
//! [watchdog](crate::client::Watch) finds a transmit channel that halts.

use crate::{
    abi::stream::{
        chain::ChainDescriptor,
        vector,
        Side, //
    },
    frames::{
        Buffers,
        Frame, //
    },
    function::{
        At,
        Block,
        Halt,
        Polled,
        Status, //
    },
    kernel::gate::Pass,
    plan::{
        Coalescing,
        Fault,
        Plan, //
    },
    queue::{
        chain::{
            acknowledge,
            Buffer,
            Chain,
            Completed, //
        },
        credit::RingId,
        index::Depth, //
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
    crate::abi::stream::chain::registers!(kernel::io::register);
}

/// Allocates the ring of a channel. Sleeps.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn ring(pass: &Pass<'_>, pair: u32, side: Side, depth: Depth) -> Result<Chain<Ring>> {
    let ring = Ring::new(pass, depth.entries() as usize * ChainDescriptor::BYTES)?;
    let base = ring.address();
    Chain::new(RingId::new(vector(pair, side), 0), ring, base, depth).map_err(|_| EINVAL)
}

/// Starts a halted channel at `current`. It owns nothing. Without `coalescing` it does not
/// interrupt.
pub(crate) fn run(block: Block<'_>, current: u64, coalescing: Option<Coalescing>) {
    // CAST: The two halves of an address.
    block.write_reg(regs::CURDESC_MSB::zeroed().with_value((current >> 32) as u32));
    block.write_reg(regs::CURDESC::zeroed().with_value(current as u32));
    let control = regs::CR::zeroed().with_const_run::<1>();
    block.write_reg(match coalescing {
        None => control,
        Some(when) => control
            .with_threshold(when.threshold)
            .with_delay(when.delay)
            .with_const_done_enable::<1>()
            .with_const_delay_enable::<1>()
            .with_const_error_enable::<1>(),
    });
}

/// Gives everything that was filled to the channel: the tail is the address of the last of it.
pub(crate) fn hand_over(block: Block<'_>, chain: &mut Chain<Ring>) {
    chain.hand_over(|last| {
        // CAST: The two halves of an address. The low one has the effect.
        block.write_reg(regs::TAILDESC_MSB::zeroed().with_value((last >> 32) as u32));
        block.write_reg(regs::TAILDESC::zeroed().with_value(last as u32));
    });
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
        |block| block.write_reg(regs::CR::zeroed().with_const_reset::<1>()),
        |block| block.read(regs::SR).into(),
    )
}

/// A ring for each side, and a buffer for each descriptor.
pub(crate) struct Chains {
    transmit: Chain<Ring>,
    receive: Chain<Ring>,
    sources: Buffers,
    targets: Buffers,
    plan: Plan,
    /// The number of the next frame to be received.
    next: u64,
}

impl Chains {
    /// Allocates them. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EIO`.
    pub(crate) fn new(pass: &Pass<'_>, plan: &Plan) -> Result<Self> {
        let depth = plan.depth;
        let buffers = |direction| Buffers::new(pass, depth.entries(), plan.size, direction);
        Ok(Self {
            transmit: ring(pass, plan.pair, Side::Transmit, depth)?,
            receive: ring(pass, plan.pair, Side::Receive, depth)?,
            sources: buffers(DataDirection::ToDevice)?,
            targets: buffers(DataDirection::FromDevice)?,
            plan: *plan,
            next: 0,
        })
    }

    /// Starts both channels, and hands all receive buffers over.
    pub(crate) fn start(&mut self, at: &At<'_>) {
        run(
            at.receive,
            self.receive.current(),
            Some(self.plan.coalescing),
        );
        run(at.transmit, self.transmit.current(), None);
        self.refill(at);
    }

    /// Hands over every receive buffer that is free.
    fn refill(&mut self, at: &At<'_>) {
        while let Some(room) = self.receive.room() {
            let Some(addr) = self.targets.lend(at.dev, room.place(), |_| {}) else {
                break;
            };
            room.fill(&Buffer {
                addr,
                bytes: self.plan.size,
                ..Buffer::default()
            });
        }
        hand_over(at.receive, &mut self.receive);
    }

    /// Fills and hands over frames: one write of the tail for all.
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
                bytes: frame.bytes,
                start: true,
                end: true,
                // CAST: The low half says enough.
                user: [number as u32, 0, 0, 0, 0],
            };
            room.fill(&self.plan.fault_of(number).chain(buffer));
            sent += 1;
        }
        hand_over(at.transmit, &mut self.transmit);
        sent
    }

    /// Takes at most `budget` frames. Context: BH.
    pub(crate) fn poll(&mut self, at: &At<'_>, budget: u32) -> Polled {
        let mut polled = Polled::default();
        // First: what completes after that sends another message.
        let causes = regs::SR::zeroed()
            .with_const_error::<1>()
            .with_const_delay::<1>()
            .with_const_done::<1>();
        let mut halt = None;
        let is_clear = acknowledge(
            || at.receive.write_reg(causes),
            || {
                let status = at.receive.read(regs::SR);
                halt = Status::from(status).halt(Side::Receive);
                halt != Some(Halt::Gone) && status.into_raw() & causes.into_raw() != 0
            },
        );
        polled.halt = halt;
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
        polled.again = polled.frames == budget || !is_clear;
        polled
    }

    /// Whether the next frame arrived as it was sent.
    fn received(&mut self, at: &At<'_>, done: &Completed) -> bool {
        let frame: Frame = self.plan.frame(self.next);
        self.next += 1;
        let whole = done.start && done.end && done.bytes == frame.bytes;
        // CAST: As in `send`.
        let named = done.user == [frame.number as u32, 0, 0, 0, 0];
        let buffer = self.targets.take_back(at.dev, done.place);
        whole && named && buffer.is_some_and(|buffer| self.plan.verifies(frame, buffer))
    }
}

impl Fault {
    /// Spoils a descriptor of a chain.
    pub(crate) fn chain(self, buffer: Buffer) -> Buffer {
        match self {
            Self::None => buffer,
            Self::Length => Buffer { bytes: 0, ..buffer },
            Self::Address => Buffer {
                addr: Self::NOWHERE,
                ..buffer
            },
            Self::Start => Buffer {
                start: false,
                ..buffer
            },
        }
    }
}
