// SPDX-License-Identifier: GPL-2.0
//! The function of channels on a machine, and a driver that writes registers and descriptors one
//! by one.

use super::Done;
use super::Grant;
use super::Memory;
use super::TestHost;
use qpair_abi::stream::block;
use qpair_abi::stream::chain;
use qpair_abi::stream::chain::ChainDescriptor;
use qpair_abi::stream::counters::Counter;
use qpair_abi::stream::headtail;
use qpair_abi::stream::headtail::RingDescriptor;
use qpair_abi::stream::Cause;
use qpair_abi::stream::Kind;
use qpair_abi::stream::Side;
use qpair_model::stream::Config;
use qpair_model::stream::Kinds;
use qpair_model::stream::Stream;
use qpair_model::Run;
use std::cell::RefCell;
use std::rc::Rc;

pub const RUN: u32 = 1 << 0;
pub const CHAIN_RESET: u32 = 1 << 2;
pub const CH_DONE: u32 = 1 << 12;
pub const CH_DELAY: u32 = 1 << 13;
pub const CH_ERROR: u32 = 1 << 14;
pub const ENABLE: u32 = 1 << 25;
pub const FLUSH: u32 = 1 << 26;
pub const DROP: u32 = 1 << 28;

/// A channel: pair and side.
pub type At = (u32, Side);
pub const TX: At = (0, Side::Transmit);
pub const RX: At = (0, Side::Receive);

pub struct Wire {
    pub memory: Memory,
    pub s: Stream<TestHost>,
}

impl Wire {
    pub fn new(pairs: u32, kinds: Kinds) -> Self {
        let memory = Memory::new();
        let host = TestHost::new(memory.clone());
        let s = Stream::new(host, Config { pairs, kinds }).expect("a good configuration");
        Self { memory, s }
    }

    pub fn chains() -> Self {
        Self::new(1, Kinds::All(Kind::Chain))
    }

    pub fn rings() -> Self {
        Self::new(1, Kinds::All(Kind::Headtail))
    }

    pub fn get(&mut self, (pair, side): At, register: u64) -> u32 {
        self.s.reg_read(block(pair, side) + register)
    }

    pub fn set(&mut self, (pair, side): At, register: u64, value: u32) {
        self.s.reg_write(block(pair, side) + register, value);
    }

    pub fn run(&mut self) {
        for _ in 0..10_000 {
            if self.s.run(8) == Run::Idle {
                return;
            }
        }
        panic!("it never ends");
    }

    pub fn raised(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.s.host_mut().raised)
    }

    pub fn pass_time(&mut self, nanos: u64) {
        self.s.host_mut().now += nanos;
        self.run();
    }

    /// A buffer with these bytes.
    pub fn buffer(&self, bytes: &[u8]) -> u64 {
        let addr = self.memory.alloc(bytes.len() as u64, 64, Grant::Read);
        self.memory.set_bytes(addr, bytes);
        addr
    }

    pub fn room(&self, bytes: u64) -> u64 {
        self.memory.alloc(bytes, 64, Grant::Write)
    }

    /// A chain of `entries` descriptors, each with the next; the last with the first.
    pub fn chain(&self, entries: u64) -> u64 {
        let base = self.memory.alloc(entries * 64, 64, Grant::Write);
        for i in 0..entries {
            let next = base + (i + 1) % entries * 64;
            self.memory.set_word(base + i * 64, next);
        }
        base
    }

    /// Writes a descriptor of a chain, but for its next.
    pub fn link(&self, base: u64, at: u64, addr: u64, control: u32, user: u32) {
        let descriptor = ChainDescriptor {
            next: self.memory.word(base + at * 64),
            addr,
            control,
            app0: user,
            app4: user,
            ..ChainDescriptor::default()
        };
        self.memory.set_words(base + at * 64, &descriptor.encode());
    }

    pub fn linked(&self, base: u64, at: u64) -> ChainDescriptor {
        ChainDescriptor::decode(&self.memory.words(base + at * 64))
    }

    pub fn start_chain(&mut self, at: At, base: u64, control: u32) {
        self.set(at, chain::offset::CURDESC, base as u32);
        self.set(at, chain::offset::CURDESC_MSB, (base >> 32) as u32);
        self.set(at, chain::offset::CR, RUN | control);
    }

    pub fn tail(&mut self, at: At, addr: u64) {
        self.set(at, chain::offset::TAILDESC_MSB, (addr >> 32) as u32);
        self.set(at, chain::offset::TAILDESC, addr as u32);
    }

    /// A ring of `entries` descriptors, a multiple of 8, and its channel, which is started.
    pub fn ring(&mut self, at: At, entries: u64) -> u64 {
        let base = self.memory.alloc(entries * 16, 128, Grant::Write);
        self.start_ring(at, base, entries);
        base
    }

    pub fn start_ring(&mut self, at: At, base: u64, entries: u64) {
        self.set(at, headtail::offset::BAL, base as u32);
        self.set(at, headtail::offset::BAH, (base >> 32) as u32);
        self.set(at, headtail::offset::LEN, entries as u32 * 16);
        self.set(at, headtail::offset::HEAD, 0);
        self.set(at, headtail::offset::TAIL, 0);
        self.set(at, headtail::offset::DCTL, ENABLE);
    }

    pub fn put(&self, base: u64, at: u64, addr: u64, length: u16, cmd: u8) {
        let descriptor = RingDescriptor {
            addr,
            length,
            cmd,
            sta: 0,
        };
        self.memory.set_words(base + at * 16, &descriptor.encode());
    }

    pub fn found(&self, base: u64, at: u64) -> RingDescriptor {
        RingDescriptor::decode(&self.memory.words(base + at * 16))
    }

    pub fn status(&mut self, at: At) -> u32 {
        let sr = match self.get(at, chain::offset::KIND) {
            1 => chain::offset::SR,
            _ => headtail::offset::SR,
        };
        self.get(at, sr)
    }

    pub fn halted(&mut self, at: At) -> bool {
        self.status(at) & 1 != 0
    }

    pub fn idle(&mut self, at: At) -> bool {
        self.status(at) & 2 != 0
    }

    pub fn cause(&mut self, at: At) -> Cause {
        let code = self.status(at) >> 4 & 0xff;
        Cause::from_code(code as u8).expect("a cause")
    }

    pub fn counter(&self, counter: Counter) -> u64 {
        self.s.counter(counter)
    }

    /// What the device does from here on: writes by address, and interrupts.
    pub fn log(&self) -> Rc<RefCell<Vec<Done>>> {
        let log = Rc::new(RefCell::new(Vec::new()));
        let into = log.clone();
        self.memory
            .at_each(move |done| into.borrow_mut().push(done));
        log
    }
}
