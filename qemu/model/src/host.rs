// SPDX-License-Identifier: GPL-2.0
//! The device's interface to the machine.
//!
//! The model is given a [`Host`], one by QEMU and another by the tests. All accesses to guest
//! memory go through it, to addresses that software gave for this purpose.

use qpair_abi::Number;

/// The system refused a DMA: no memory there, or not for this device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaFault;

/// Guest memory that stays mapped for as long as this value lives.
///
/// `at` counts bytes. For entries it is a multiple of 8, and so is the address of the mapping. The
/// model stays inside the range that it mapped. Outside of it an implementation reads zeros and
/// ignores writes.
pub trait Mapping {
    /// Loads words, each once and whole, the first with acquire.
    fn load(&self, at: usize, words: &mut [u64]);

    /// Stores words, each once and whole, **the last with release**: it carries the owner bit.
    fn store(&self, at: usize, words: &[u64]);

    /// Reads bytes of payload, in any order; here `at` is any byte.
    fn read(&self, at: usize, bytes: &mut [u8]);

    /// Writes bytes of payload, in any order; here `at` is any byte.
    fn write(&self, at: usize, bytes: &[u8]);

    /// Copies bytes of payload, in any order, from byte `from_at` of another mapping or of this
    /// one. They may overlap.
    fn copy(&self, at: usize, from: &Self, from_at: usize, bytes: usize);
}

/// The machine.
pub trait Host {
    /// Its mappings.
    type Map: Mapping;

    /// Reads guest memory.
    fn read(&mut self, addr: u64, bytes: &mut [u8]) -> Result<(), DmaFault>;

    /// Writes guest memory.
    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), DmaFault>;

    /// Maps guest memory, whole or not at all. `None` is no error: the model reads and writes by
    /// address instead.
    fn map(&mut self, addr: u64, bytes: u64, writable: bool) -> Option<Self::Map>;

    /// Sends an interrupt message.
    fn raise(&mut self, vector: u16);

    /// The time in nanoseconds; monotonic.
    fn now(&self) -> u64;

    /// Whether the present call of [`Function::run`](crate::Function::run) has taken long enough:
    /// then it ends after a few turns more. Not asked where the clock of the machine decides when
    /// the core works.
    fn time_is_up(&self) -> bool {
        false
    }

    /// Asks for a call of [`Function::run`](crate::Function::run) soon, but not from in here.
    fn wake(&mut self);

    /// Asks for a call of [`Function::run`](crate::Function::run) at this time. It replaces an
    /// earlier request; `u64::MAX` means never.
    fn wake_at(&mut self, nanos: u64);

    /// How many frames [`transmit`](Self::transmit) takes now. After 0, a call of
    /// [`Function::run`](crate::Function::run) follows when there is room.
    fn room(&mut self) -> usize {
        usize::MAX
    }

    /// Sends a frame to the network.
    fn transmit(&mut self, frame: &[u8]) {
        let _ = frame;
    }

    /// A number that software cannot predict. The keys of memory regions are derived from it.
    fn random(&mut self) -> u64;

    /// Whether the function may be bus master.
    fn bus_master(&self) -> bool {
        true
    }

    /// Traces an action of the device.
    fn trace(&mut self, what: Trace) {
        let _ = what;
    }
}

/// An action of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// A doorbell was written.
    Doorbell {
        /// The page.
        page: u32,
        /// Where in the page.
        place: u32,
        /// The value written.
        value: u64,
    },
    /// A doorbell was invalid.
    Violation {
        /// The page.
        page: u32,
        /// The value written.
        value: u64,
    },
    /// A run of SQ blocks was fetched.
    Fetch {
        /// The queue pair.
        qp: Number,
        /// The first block.
        index: u32,
        /// How many.
        blocks: u32,
    },
    /// A receive was fetched.
    FetchReceive {
        /// The queue pair.
        qp: Number,
        /// Its index.
        index: u32,
    },
    /// An admin command was done.
    Command {
        /// Its opcode.
        opcode: u8,
        /// The object that it names, or created.
        number: Number,
        /// 0, or the admin error.
        error: u8,
    },
    /// A CQE was written.
    Completion {
        /// The CQ.
        cq: Number,
        /// At which index.
        index: u32,
        /// The queue pair.
        qp: Number,
        /// The operation.
        opcode: u8,
        /// The status.
        status: u8,
        /// The detail.
        vendor: u8,
    },
    /// An EQE was written.
    Event {
        /// The EQ.
        eq: Number,
        /// At which index.
        index: u32,
        /// The event type.
        kind: u8,
        /// The object.
        number: Number,
    },
    /// An interrupt was raised.
    Interrupt {
        /// The EQ.
        eq: Number,
        /// Its vector.
        vector: u16,
    },
    /// A queue pair changed its state.
    State {
        /// The queue pair.
        qp: Number,
        /// The state before.
        from: u8,
        /// The state now.
        to: u8,
    },
    /// The function stopped.
    Fatal {
        /// The cause.
        cause: u8,
    },
    /// The function was reset.
    Reset,
    /// A rule injected a fault.
    Fault {
        /// The rule, from 1 on.
        rule: u32,
        /// The queue pair that sends.
        qp: Number,
        /// The operation.
        opcode: u8,
        /// The index past the request.
        past: u32,
    },
    /// A rule made a word wrong that the device writes.
    Garbage {
        /// The rule, from 1 on.
        rule: u32,
        /// The object that the entry or the context is about; [`Number::ADMIN`] of a register.
        number: Number,
        /// The word.
        word: u32,
    },
    /// A frame went from a transmit channel to a receive channel.
    Frame {
        /// The transmit channel.
        from: u32,
        /// The receive channel.
        to: u32,
        /// The bytes of the frame.
        bytes: u32,
        /// The receive channel dropped it.
        dropped: bool,
    },
    /// A channel halted by itself.
    Halt {
        /// The channel.
        channel: u32,
        /// The cause.
        cause: u8,
    },
}
