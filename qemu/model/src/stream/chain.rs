// SPDX-License-Identifier: GPL-2.0
//! A chain: its registers, its descriptors, its interrupt.

use crate::host::Host;
use crate::stream::bus::Bus;
use crate::stream::descriptor::Descriptor;
use crate::stream::descriptor::Effect;
use crate::stream::descriptor::Moved;
use crate::stream::descriptor::Note;
use qpair_abi::stream::chain::control;
use qpair_abi::stream::chain::offset;
use qpair_abi::stream::chain::status;
use qpair_abi::stream::chain::ChainDescriptor;
use qpair_abi::stream::chain::ALIGN;
use qpair_abi::stream::chain::DELAY_NS;
use qpair_abi::stream::Cause;
use qpair_abi::stream::Side;

const RUN: u32 = 1 << 0;
const RESET: u32 = 1 << 2;
/// Causes in `SR`, and what enables them in `CR`.
const DONE: u32 = 1 << 12;
const DELAY: u32 = 1 << 13;
const ERROR: u32 = 1 << 14;
const CAUSES: u32 = DONE | DELAY | ERROR;
/// The fields of `CR` that are kept.
const KEPT: u32 = 0xffff_0000 | CAUSES;
/// Bytes of a descriptor before its status, and before its user words.
const STATUS_AT: u64 = 24;
const USER_AT: u64 = 32;

/// A chain.
#[derive(Debug)]
pub(crate) struct Chain {
    control: u32,
    /// The descriptor that is read next.
    current: u64,
    /// The last that the channel owns.
    tail: u64,
    /// The tail is not met.
    active: bool,
    causes: u32,
    /// A cause is set and enabled.
    line: bool,
    /// Completions until `DONE`.
    left: u32,
    /// When the first completion came that is not counted out; `u64::MAX` if there is none.
    since: u64,
}

fn low(word: u64, value: u32) -> u64 {
    word & !u64::from(u32::MAX) | u64::from(value)
}

fn high(word: u64, value: u32) -> u64 {
    word & u64::from(u32::MAX) | u64::from(value) << 32
}

impl Chain {
    pub(crate) fn new() -> Self {
        Self {
            control: 0,
            current: 0,
            tail: 0,
            active: false,
            causes: 0,
            line: false,
            left: 1,
            since: u64::MAX,
        }
    }

    fn threshold(&self) -> u32 {
        (self.control >> 16 & 0xff).max(1)
    }

    pub(crate) fn read(&self, at: u64, running: bool, cause: Cause) -> u32 {
        let bit = |on: bool, shift: u32| u32::from(on) << shift;
        match at {
            offset::CR => self.control | bit(running, 0),
            offset::SR => {
                let state = bit(!running, 0) | bit(running && !self.active, 1);
                self.left << 16 | self.causes | u32::from(cause.code()) << 4 | state
            }
            offset::CURDESC => self.current as u32,
            offset::CURDESC_MSB => (self.current >> 32) as u32,
            offset::TAILDESC => self.tail as u32,
            offset::TAILDESC_MSB => (self.tail >> 32) as u32,
            _ => 0,
        }
    }

    pub(crate) fn write(&mut self, at: u64, value: u32, running: bool) -> Effect {
        match at {
            offset::CR if value & RESET != 0 => return Effect::Reset,
            offset::CR => {
                let before = self.threshold();
                self.control = value & KEPT;
                if before != self.threshold() {
                    self.left = self.threshold();
                }
                match (running, value & RUN != 0) {
                    (false, true) => return Effect::Start,
                    (true, false) => return Effect::Stop,
                    _ => {}
                }
            }
            offset::SR => self.causes &= !(value & CAUSES),
            offset::CURDESC | offset::CURDESC_MSB if running => {
                return Effect::Halt(Cause::Running);
            }
            offset::CURDESC => self.current = low(self.current, value),
            offset::CURDESC_MSB => self.current = high(self.current, value),
            offset::TAILDESC_MSB => self.tail = high(self.tail, value),
            offset::TAILDESC if running => {
                self.tail = low(self.tail, value);
                if self.tail % ALIGN != 0 {
                    return Effect::Halt(Cause::Tail);
                }
                self.active = true;
                return Effect::More;
            }
            _ => return Effect::None,
        }
        Effect::Interrupt
    }

    pub(crate) fn start(&mut self) {
        self.active = false;
        self.left = self.threshold();
        self.since = u64::MAX;
    }

    pub(crate) fn stop(&mut self) {
        self.active = false;
    }

    pub(crate) fn has_descriptor(&self) -> bool {
        self.active
    }

    /// Reads the next descriptor; `open` if it does not begin a frame.
    pub(crate) fn fetch<H: Host>(
        &self,
        bus: &mut Bus<H>,
        side: Side,
        open: bool,
    ) -> Result<Descriptor, Cause> {
        if self.current % ALIGN != 0 {
            return Err(Cause::Next);
        }
        let words = bus.load(self.current).map_err(|_| Cause::Descriptor)?;
        let found = ChainDescriptor::decode(&words);
        if found.status & status::COMPLETE != 0 {
            return Err(Cause::Complete);
        }
        let starts = found.control & control::SOF != 0;
        if side == Side::Transmit && starts == open {
            return Err(if open { Cause::NoEnd } else { Cause::NoStart });
        }
        let user = [found.app0, found.app1, found.app2, found.app3, found.app4];
        Ok(Descriptor {
            addr: found.addr,
            bytes: found.control & control::LENGTH,
            end: found.control & control::EOF != 0,
            user: Some(user),
            word: u64::from(found.control),
            next: found.next,
        })
    }

    /// Writes its status, and goes on to the next.
    pub(crate) fn complete<H: Host>(
        &mut self,
        bus: &mut Bus<H>,
        found: &Descriptor,
        moved: &Moved,
    ) -> Result<bool, Cause> {
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        let state = status::COMPLETE
            | flag(moved.start, status::SOF)
            | flag(moved.end, status::EOF)
            | moved.bytes & status::LENGTH;
        let word = found.word | u64::from(state) << 32;
        if let Some([a, b, c, d, e]) = moved.user {
            let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
            let words = [pair(a, b), pair(c, d), pair(e, 0)];
            let at = self.current.wrapping_add(USER_AT);
            bus.store(at, words).map_err(|_| Cause::Status)?;
        }
        let at = self.current.wrapping_add(STATUS_AT);
        bus.store(at, [word]).map_err(|_| Cause::Status)?;
        if self.current == self.tail {
            self.active = false;
        }
        self.current = found.next;
        Ok(true)
    }

    /// Whether the interrupt message is to be sent.
    pub(crate) fn note(&mut self, what: Note, now: u64) -> bool {
        match what {
            Note::Completed => {
                self.left = self.left.saturating_sub(1);
                self.since = self.since.min(now);
            }
            Note::Halted => self.causes |= ERROR,
            Note::Look => {}
        }
        let late = now >= self.deadline();
        if self.left == 0 || late {
            self.causes |= if self.left == 0 { DONE } else { DELAY };
            self.left = self.threshold();
            self.since = u64::MAX;
        }
        let line = self.causes & self.control & CAUSES != 0;
        let rises = line && !self.line;
        self.line = line;
        rises
    }

    /// When to look again.
    pub(crate) fn deadline(&self) -> u64 {
        match u64::from(self.control >> 24) {
            _ if self.since == u64::MAX => u64::MAX,
            0 => u64::MAX,
            delay => self.since.saturating_add(delay * DELAY_NS),
        }
    }
}
