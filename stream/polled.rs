// SPDX-License-Identifier: GPL-2.0

//! Rung 1: one descriptor for each side, and no interrupt.
//!
//! So a boot loader drives such a device. Each channel is a chain of one descriptor, which is its
//! own next. A frame is a `TAILDESC` for each side, and looks at the status until it is complete.
//!
//! ```text
//!             CURDESC, run        TAILDESC               the status is complete
//!   halted --------------> idle ------------> the channel's --------------------> idle
//!                                                 (a look at memory, again and again)
//! ```

use crate::{
    abi::stream::Side,
    chain::{
        hand_over,
        ring,
        run,
        status, //
    },
    frames::Buffers,
    function::{
        At,
        Halt, //
    },
    kernel::gate::Pass,
    plan::Plan,
    queue::{
        chain::{
            Buffer,
            Chain,
            Completed, //
        },
        index::Depth, //
    },
    ring::Ring, //
};
use kernel::{
    dma::DataDirection,
    prelude::*,
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    }, //
};

/// How long a frame may take.
pub(crate) const PATIENCE: Delta = Delta::from_millis(1000);
/// How long the processor only looks.
const SPIN: Delta = Delta::from_millis(1);
/// The pause between two looks after that.
const PAUSE: Delta = Delta::from_micros(100);

/// A descriptor and a buffer for each side.
pub(crate) struct Polled {
    transmit: Chain<Ring>,
    receive: Chain<Ring>,
    source: Buffers,
    target: Buffers,
}

impl Polled {
    /// Allocates them. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EIO`.
    pub(crate) fn new(pass: &Pass<'_>, pair: u32, size: u32) -> Result<Self> {
        let one = Depth::new(1).ok_or(EINVAL)?;
        Ok(Self {
            transmit: ring(pass, pair, Side::Transmit, one)?,
            receive: ring(pass, pair, Side::Receive, one)?,
            source: Buffers::new(pass, 1, size, DataDirection::ToDevice)?,
            target: Buffers::new(pass, 1, size, DataDirection::FromDevice)?,
        })
    }

    /// Starts both channels. They own nothing.
    pub(crate) fn start(&self, at: &At<'_>) {
        run(at.receive, self.receive.current(), None);
        run(at.transmit, self.transmit.current(), None);
    }

    /// Moves a frame. Returns whether it arrived as it was sent. The channels own nothing after it.
    ///
    /// # Errors
    ///
    /// What the channels halted on. They may still own their descriptor then.
    pub(crate) fn frame(&mut self, at: &At<'_>, plan: &Plan, number: u64) -> Result<bool, Halt> {
        let frame = plan.frame(number);
        let room = self.receive.room().ok_or(Halt::Silent)?;
        let addr = self.target.lend(at.dev, room.place(), |_| {});
        room.fill(&Buffer {
            addr: addr.ok_or(Halt::Silent)?,
            bytes: frame.bytes,
            ..Buffer::default()
        });
        hand_over(at.receive, &mut self.receive);

        let room = self.transmit.room().ok_or(Halt::Silent)?;
        let addr = self
            .source
            .lend(at.dev, room.place(), |it| plan.fill(frame, it));
        room.fill(&plan.fault_of(number).chain(Buffer {
            addr: addr.ok_or(Halt::Silent)?,
            bytes: frame.bytes,
            start: true,
            end: true,
            ..Buffer::default()
        }));
        hand_over(at.transmit, &mut self.transmit);

        let sent = Self::wait(at, &mut self.transmit)?;
        self.source.take_back(at.dev, sent.place);
        let done = Self::wait(at, &mut self.receive)?;
        let whole = done.start && done.end && done.bytes == frame.bytes;
        let buffer = self.target.take_back(at.dev, done.place);
        Ok(whole && buffer.is_some_and(|buffer| plan.verifies(frame, buffer)))
    }

    /// Looks at the descriptor until it is complete. Sleeps if that takes long.
    fn wait(at: &At<'_>, chain: &mut Chain<Ring>) -> Result<Completed, Halt> {
        let began = Instant::<Monotonic>::now();
        loop {
            // Before the look: a task that was preempted for long looks once more.
            let waited = began.elapsed();
            if let Some(done) = chain.poll() {
                return Ok(done);
            }
            if waited > PATIENCE {
                return Err(Halt::Silent);
            }
            if waited > SPIN {
                // A channel that halted does not complete it.
                if let Some(halt) = status(at) {
                    return Err(halt);
                }
                fsleep(PAUSE);
            }
        }
    }
}
