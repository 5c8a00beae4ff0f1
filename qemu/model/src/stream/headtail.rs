// SPDX-License-Identifier: GPL-2.0
//! A ring with a head and a tail: its registers, its descriptors, its interrupt.

use crate::host::Host;
use crate::stream::bus::Bus;
use crate::stream::descriptor::Descriptor;
use crate::stream::descriptor::Effect;
use crate::stream::descriptor::Moved;
use crate::stream::descriptor::Note;
use crate::stream::LIMIT_RING;
use qpair_abi::stream::headtail::cmd;
use qpair_abi::stream::headtail::offset;
use qpair_abi::stream::headtail::sta;
use qpair_abi::stream::headtail::RingDescriptor;
use qpair_abi::stream::headtail::ALIGN;
use qpair_abi::stream::headtail::BUFFER_DEFAULT;
use qpair_abi::stream::headtail::BUFFER_MAX;
use qpair_abi::stream::headtail::BUFFER_UNIT;
use qpair_abi::stream::headtail::INTERVAL_NS;
use qpair_abi::stream::Cause;
use qpair_abi::stream::Side;
use qpair_queue::headtail::owned;

const ENABLE: u32 = 1 << 25;
const FLUSH: u32 = 1 << 26;
const DROP: u32 = 1 << 28;
const BUFFER: u32 = 0x1f;
/// Causes in `ICR`.
const DONE: u32 = 1 << 0;
const ERROR: u32 = 1 << 1;

const BYTES: u32 = RingDescriptor::BYTES as u32;

/// A ring.
#[derive(Debug, Default)]
pub(crate) struct Headtail {
    base: u64,
    bytes: u32,
    head: u32,
    tail: u32,
    srrctl: u32,
    interval: u32,
    causes: u32,
    enabled: bool,
    /// The next message is sent not before this time.
    earliest: u64,
}

impl Headtail {
    fn count(&self) -> u32 {
        self.bytes / BYTES
    }

    fn owned(&self) -> u32 {
        owned(self.count(), self.head, self.tail)
    }

    pub(crate) fn read(&self, at: u64, running: bool, cause: Cause) -> u32 {
        let bit = |on: bool, shift: u32| u32::from(on) << shift;
        match at {
            offset::BAL => self.base as u32,
            offset::BAH => (self.base >> 32) as u32,
            offset::LEN => self.bytes,
            offset::SR => {
                let state = bit(!running, 0) | bit(running && self.owned() == 0, 1);
                u32::from(cause.code()) << 4 | state
            }
            offset::HEAD => self.head,
            offset::SRRCTL => self.srrctl,
            offset::TAIL => self.tail,
            offset::ITR => self.interval,
            offset::ICR => self.causes,
            offset::IMS => bit(self.enabled, 0),
            offset::DCTL => bit(running, 25),
            _ => 0,
        }
    }

    pub(crate) fn write(&mut self, at: u64, value: u32, running: bool) -> Effect {
        match at {
            offset::BAL | offset::BAH | offset::LEN | offset::HEAD if running => {
                return Effect::Halt(Cause::Running);
            }
            offset::BAL => self.base = self.base >> 32 << 32 | u64::from(value),
            offset::BAH => self.base = self.base & u64::from(u32::MAX) | u64::from(value) << 32,
            offset::LEN => self.bytes = value,
            offset::HEAD => self.head = value,
            offset::SRRCTL => self.srrctl = value & (DROP | BUFFER),
            offset::TAIL => {
                self.tail = value;
                return match running {
                    true if value >= self.count() => Effect::Halt(Cause::Tail),
                    true => Effect::More,
                    false => Effect::None,
                };
            }
            offset::ITR => self.interval = value & 0xffff,
            offset::ICR => self.causes &= !value,
            offset::IMS => self.enabled |= value & 1 != 0,
            offset::IMC => self.enabled &= value & 1 == 0,
            offset::DCTL if value & FLUSH != 0 => return Effect::Reset,
            offset::DCTL => match (running, value & ENABLE != 0) {
                (false, true) => {
                    let bad = self.check();
                    return bad.map_or_else(Effect::Halt, |()| Effect::Start);
                }
                (true, false) => return Effect::Stop,
                _ => {}
            },
            _ => return Effect::None,
        }
        Effect::Interrupt
    }

    /// Whether the registers describe a ring.
    fn check(&self) -> Result<(), Cause> {
        let bytes = u64::from(self.bytes);
        let aligned = self.base % ALIGN == 0 && bytes % ALIGN == 0;
        let fits = bytes != 0 && self.base.checked_add(bytes - 1).is_some();
        if !aligned || !fits || self.count() > LIMIT_RING || self.head >= self.count() {
            return Err(Cause::Ring);
        }
        if self.tail >= self.count() {
            return Err(Cause::Tail);
        }
        Ok(())
    }

    pub(crate) fn has_descriptor(&self) -> bool {
        self.owned() != 0
    }

    /// Bytes of each receive buffer.
    fn buffer(&self) -> u32 {
        match self.srrctl & BUFFER {
            0 => BUFFER_DEFAULT,
            units => units.saturating_mul(BUFFER_UNIT).min(BUFFER_MAX),
        }
    }

    /// Whether a frame of this many bytes is dropped rather than waiting for buffers.
    pub(crate) fn drops(&self, bytes: usize) -> bool {
        let room = u64::from(self.owned()) * u64::from(self.buffer());
        self.srrctl & DROP != 0 && room < bytes as u64
    }

    /// The address of the descriptor at the head.
    fn address(&self) -> u64 {
        let at = u64::from(self.head) * u64::from(BYTES);
        self.base.wrapping_add(at)
    }

    /// Reads the next descriptor.
    pub(crate) fn fetch<H: Host>(&self, bus: &mut Bus<H>, side: Side) -> Result<Descriptor, Cause> {
        let words: [u64; 2] = bus.load(self.address()).map_err(|_| Cause::Descriptor)?;
        let found = RingDescriptor::decode(&words);
        let [_, word] = words;
        Ok(Descriptor {
            addr: found.addr,
            bytes: match side {
                Side::Transmit => found.length.into(),
                Side::Receive => self.buffer(),
            },
            end: found.cmd & cmd::EOP != 0,
            word,
            ..Descriptor::default()
        })
    }

    /// Writes it back, where asked for, and moves the head past it. Returns whether it was written.
    pub(crate) fn complete<H: Host>(
        &mut self,
        bus: &mut Bus<H>,
        side: Side,
        found: &Descriptor,
        moved: &Moved,
    ) -> Result<bool, Cause> {
        let mut back = RingDescriptor::decode(&[0, found.word]);
        let mut asked = back.cmd & cmd::RS != 0;
        back.sta = sta::DD;
        if side == Side::Receive {
            asked = true;
            back.cmd = 0;
            back.length = moved.bytes as u16;
            back.sta |= if moved.end { sta::EOP } else { 0 };
        }
        if asked {
            let [_, word] = back.encode();
            let at = self.address().wrapping_add(8);
            bus.store(at, [word]).map_err(|_| Cause::Status)?;
        }
        self.head = match self.head.wrapping_add(1) {
            past if past >= self.count() => 0,
            next => next,
        };
        Ok(asked)
    }

    /// Whether the interrupt message is to be sent.
    pub(crate) fn note(&mut self, what: Note, now: u64) -> bool {
        match what {
            Note::Completed => self.causes |= DONE,
            Note::Halted => self.causes |= ERROR,
            Note::Look => {}
        }
        if now < self.deadline() {
            return false;
        }
        self.causes = 0;
        self.enabled = false;
        let interval = u64::from(self.interval).saturating_mul(INTERVAL_NS);
        self.earliest = now.saturating_add(interval);
        true
    }

    /// When a message is due.
    pub(crate) fn deadline(&self) -> u64 {
        match self.causes != 0 && self.enabled {
            true => self.earliest,
            false => u64::MAX,
        }
    }
}
