// SPDX-License-Identifier: GPL-2.0
//! The function: registers, turns of channels, interrupts, reset.

use crate::config::BadConfig;
use crate::host::Host;
use crate::host::Trace;
use crate::stream::bus::Bus;
use crate::stream::channel::Channel;
use crate::stream::descriptor::Effect;
use crate::stream::descriptor::Note;
use crate::stream::Config;
use crate::stream::LIMIT_FRAME;
use crate::stream::LIMIT_RING;
use crate::turn::Run;
use qpair_abi::stream::counters::Counter;
use qpair_abi::stream::regs;
use qpair_abi::stream::regs::offset;
use qpair_abi::stream::vector;
use qpair_abi::stream::Cause;
use qpair_abi::stream::Side;
use qpair_abi::stream::BLOCKS;
use qpair_abi::stream::BLOCK_BYTES;

const RESET: u32 = 1 << 1;
/// Descriptors of a channel's turn.
const TURN: u32 = 16;

/// A PCI function of channels.
pub struct Stream<H: Host> {
    bus: Bus<H>,
    config: Config,
    /// Transmit and receive channel of each pair.
    channels: Vec<Channel>,
    /// Channels that have a turn to come, as bits.
    ready: u128,
    /// The channel that had the last turn.
    last: u32,
    /// Channels that have a deadline, as bits.
    timed: u128,
    asked: u64,
    stalled: bool,
    vanished: bool,
    /// Interrupts that a test loses.
    lost: u32,
}

const fn bit(channel: u32) -> u128 {
    match 1u128.checked_shl(channel) {
        Some(bit) => bit,
        None => 0,
    }
}

const fn side(channel: u32) -> Side {
    match channel % 2 {
        0 => Side::Transmit,
        _ => Side::Receive,
    }
}

impl<H: Host> Stream<H> {
    /// Powers a function on.
    pub fn new(host: H, config: Config) -> Result<Self, BadConfig> {
        config.check()?;
        let mut stream = Self {
            bus: Bus::new(host),
            config,
            channels: Vec::new(),
            ready: 0,
            last: 0,
            timed: 0,
            asked: u64::MAX,
            stalled: false,
            vanished: false,
            lost: 0,
        };
        stream.power_on();
        Ok(stream)
    }

    /// Returns everything to power-on. Afterwards no call of [`run`](Self::run) is asked for.
    pub fn reset(&mut self) {
        self.bus.host.trace(Trace::Reset);
        self.power_on();
        self.bus.counts = [0; Counter::COUNT];
    }

    fn power_on(&mut self) {
        let new = |channel| {
            let pair = channel / 2;
            Channel::new(self.config.kinds.of(pair), side(channel), pair)
        };
        self.channels = (0..self.vectors()).map(new).collect();
        (self.ready, self.timed, self.asked) = (0, 0, u64::MAX);
        self.bus.host.wake_at(u64::MAX);
    }

    /// The machine.
    pub fn host(&self) -> &H {
        &self.bus.host
    }

    /// The machine.
    pub fn host_mut(&mut self) -> &mut H {
        &mut self.bus.host
    }

    /// The properties of the function.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// MSI-X vectors: one for each channel.
    pub fn vectors(&self) -> u32 {
        vector(self.config.pairs, Side::Transmit)
    }

    /// All counters, in the order of [`Counter::ALL`].
    pub fn counters(&self) -> &[u64; Counter::COUNT] {
        &self.bus.counts
    }

    /// A counter.
    pub fn counter(&self, counter: Counter) -> u64 {
        let count = self.bus.counts.get(counter as usize);
        count.copied().unwrap_or(0)
    }

    /// Whether channels get no turns; for tests.
    pub fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// Gives channels turns or not.
    pub fn set_stall(&mut self, stalled: bool) {
        self.stalled = stalled;
        self.wake();
    }

    /// Whether the function is gone; for tests.
    pub fn is_vanished(&self) -> bool {
        self.vanished
    }

    /// Makes the function vanish: all reads are ones, writes do nothing.
    pub fn set_vanish(&mut self, vanished: bool) {
        self.vanished = vanished;
        self.wake();
    }

    /// The number of interrupts that get lost; for tests.
    pub fn lost_interrupts(&self) -> u32 {
        self.lost
    }

    /// Loses the next interrupts.
    pub fn drop_interrupts(&mut self, count: u32) {
        self.lost = count;
    }

    /// The channel whose block has this offset, and the offset in it.
    fn block(&self, at: u64) -> Option<(u32, u64)> {
        let at = at.checked_sub(BLOCKS)?;
        let channel = u32::try_from(at / BLOCK_BYTES).ok()?;
        (channel < self.vectors()).then_some((channel, at % BLOCK_BYTES))
    }

    fn channel(&mut self, channel: u32) -> Option<&mut Channel> {
        self.channels.get_mut(channel as usize)
    }

    /// Reads a register.
    pub fn reg_read(&mut self, at: u64) -> u32 {
        if self.vanished {
            return u32::MAX;
        }
        self.bus.count(Counter::RegReads);
        if let Some((channel, at)) = self.block(at) {
            return self.channel(channel).map_or(0, |channel| channel.read(at));
        }
        match at {
            offset::MAGIC => regs::MAGIC_VALUE,
            offset::VERSION => regs::MAJOR << 16 | regs::MINOR,
            offset::PAIRS => self.config.pairs,
            offset::LIMIT_FRAME => LIMIT_FRAME,
            offset::LIMIT_RING => LIMIT_RING,
            _ => 0,
        }
    }

    /// Writes a register.
    pub fn reg_write(&mut self, at: u64, value: u32) {
        if self.vanished {
            return;
        }
        self.bus.count(Counter::RegWrites);
        if at == offset::CTRL && value & RESET != 0 {
            self.reset();
        } else if let Some((number, at)) = self.block(at) {
            let Some(channel) = self.channel(number) else {
                return;
            };
            let before = channel.peer;
            let effect = channel.write(at, value);
            self.apply(number, effect);
            // Others may have waited behind a frame that goes to another peer now.
            self.offer(before);
            self.set_timer();
            self.wake();
        }
    }

    fn apply(&mut self, number: u32, effect: Effect) {
        match effect {
            Effect::None => return,
            Effect::Start => {
                if let Some(channel) = self.channel(number) {
                    channel.start();
                }
                self.offer(number / 2);
            }
            Effect::Stop => self.stop(number, Cause::None),
            Effect::Reset => {
                self.stop(number, Cause::None);
                let kind = self.config.kinds.of(number / 2);
                if let Some(channel) = self.channel(number) {
                    *channel = Channel::new(kind, side(number), number / 2);
                }
                self.ready &= !bit(number);
            }
            Effect::Halt(cause) => self.halt(number, cause),
            Effect::More => self.ready |= bit(number),
            Effect::Interrupt => {}
        }
        self.note(number, Note::Look);
    }

    /// The channel halts by itself.
    fn halt(&mut self, number: u32, cause: Cause) {
        self.bus.count(Counter::Halts);
        self.bus.host.trace(Trace::Halt {
            channel: number,
            cause: cause.code(),
        });
        self.stop(number, cause);
        self.note(number, Note::Halted);
    }

    fn stop(&mut self, number: u32, cause: Cause) {
        let Some(channel) = self.channel(number) else {
            return;
        };
        let peer = channel.peer;
        if channel.stop(cause) {
            self.bus.count(Counter::Drops);
        }
        // Another transmitter may have waited behind its frame.
        self.offer(peer);
    }

    /// Sends the channel's interrupt message, if there is a reason.
    fn note(&mut self, number: u32, what: Note) {
        let now = self.bus.host.now();
        let Some(channel) = self.channels.get_mut(number as usize) else {
            return;
        };
        let raise = channel.ring.note(what, now);
        match channel.ring.deadline() {
            u64::MAX => self.timed &= !bit(number),
            _ => self.timed |= bit(number),
        }
        if !raise {
            return;
        }
        if self.lost != 0 {
            self.lost -= 1;
            return;
        }
        self.bus.count(Counter::Interrupts);
        self.bus.host.raise(number as u16);
    }

    /// Asks for a run if there is something to do.
    fn wake(&mut self) {
        if self.ready != 0 && !self.stalled && !self.vanished {
            self.bus.host.wake();
        }
    }

    /// Asks for a run at the first deadline.
    fn set_timer(&mut self) {
        let channels = (0u32..).zip(&self.channels);
        let timed = channels.filter(|(number, _)| self.timed & bit(*number) != 0);
        let first = timed.map(|(_, channel)| channel.ring.deadline()).min();
        let first = first.unwrap_or(u64::MAX);
        if self.asked != first {
            self.asked = first;
            self.bus.host.wake_at(first);
        }
    }

    /// Gives interrupts that are due, then at most `turns` turns of a bounded number of descriptors
    /// and bytes.
    pub fn run(&mut self, turns: u32) -> Run {
        if self.vanished {
            return Run::Idle;
        }
        // The machine's timer has fired, or is not needed.
        self.asked = u64::MAX;
        for number in 0..self.vectors() {
            if self.timed & bit(number) != 0 {
                self.note(number, Note::Look);
            }
        }
        for _ in 0..turns {
            if self.ready == 0 || self.stalled {
                break;
            }
            let past = self.last.wrapping_add(1) % u128::BITS;
            let next = self.ready.rotate_right(past).trailing_zeros();
            self.last = next.wrapping_add(past) % u128::BITS;
            self.ready &= !bit(self.last);
            self.bus.count(Counter::Turns);
            self.turn(self.last);
        }
        self.set_timer();
        match self.ready != 0 && !self.stalled {
            true => Run::More,
            false => Run::Idle,
        }
    }

    /// A turn of a channel: some descriptors, and the end of at most one frame.
    fn turn(&mut self, number: u32) {
        for _ in 0..TURN {
            let Some(channel) = self.channels.get_mut(number as usize) else {
                return;
            };
            if !channel.can_work() {
                break;
            }
            match channel.step(&mut self.bus) {
                Ok(true) => self.note(number, Note::Completed),
                Ok(false) => {}
                Err(cause) => return self.halt(number, cause),
            }
        }
        match side(number) {
            Side::Transmit => self.pass(number),
            Side::Receive => self.offer(number / 2),
        }
        if self.channel(number).is_some_and(|it| it.can_work()) {
            self.ready |= bit(number);
        }
    }

    /// The transmit channel whose frame the receive channel of a pair takes next: the first that
    /// waits after the one that it served last.
    fn chosen(&self, pair: u32) -> Option<u32> {
        let receiver = self.channels.get(vector(pair, Side::Receive) as usize)?;
        if !receiver.running || !receiver.frame.bytes.is_empty() {
            return None;
        }
        let pairs = self.config.pairs;
        let waits = |sender: &u32| {
            let sender = self.channels.get(vector(*sender, Side::Transmit) as usize);
            sender.is_some_and(|it| it.running && it.peer == pair && it.frame.whole)
        };
        let first = receiver.served.wrapping_add(1);
        let mut after = (0..pairs).map(|i| first.wrapping_add(i) % pairs);
        after.find(waits).map(|it| vector(it, Side::Transmit))
    }

    /// The receive channel of a pair may take a frame, or go on with one.
    fn offer(&mut self, pair: u32) {
        if let Some(sender) = self.chosen(pair) {
            self.ready |= bit(sender);
        }
    }

    /// Passes a whole frame on, or drops it, or lets it wait.
    fn pass(&mut self, number: u32) {
        let Some(sender) = self.channels.get(number as usize) else {
            return;
        };
        let pair = sender.peer;
        if !sender.running || !sender.frame.whole {
            return;
        }
        if pair >= self.config.pairs {
            return self.halt(number, Cause::Peer);
        }
        if self.chosen(pair) != Some(number) {
            return self.offer(pair);
        }
        let Some(sender) = self.channels.get_mut(number as usize) else {
            return;
        };
        let mut frame = std::mem::take(&mut sender.frame);
        let receiver = vector(pair, Side::Receive);
        let Some(channel) = self.channels.get_mut(receiver as usize) else {
            return;
        };
        channel.served = number / 2;
        let bytes = frame.bytes.len();
        let drops = channel.ring.drops(bytes);
        std::mem::swap(&mut channel.frame, &mut frame);
        if drops && channel.drop_frame() {
            self.bus.count(Counter::Drops);
        }
        self.bus.host.trace(Trace::Frame {
            from: number,
            to: receiver,
            bytes: bytes as u32,
            dropped: drops,
        });
        // The receiver's empty buffer is the sender's next.
        if let Some(sender) = self.channel(number) {
            sender.frame = frame;
        }
        self.ready |= bit(receiver);
        self.offer(pair);
    }
}
