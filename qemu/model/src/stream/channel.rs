// SPDX-License-Identifier: GPL-2.0
//! A channel: the ring of either kind, and a frame on its way.

use crate::host::Host;
use crate::stream::bus::Bus;
use crate::stream::chain::Chain;
use crate::stream::descriptor::Descriptor;
use crate::stream::descriptor::Effect;
use crate::stream::descriptor::Moved;
use crate::stream::descriptor::Note;
use crate::stream::headtail::Headtail;
use crate::stream::LIMIT_FRAME;
use qpair_abi::stream::chain::offset;
use qpair_abi::stream::counters::Counter;
use qpair_abi::stream::Cause;
use qpair_abi::stream::Kind;
use qpair_abi::stream::Side;

pub(crate) enum Ring {
    Chain(Chain),
    Headtail(Headtail),
}

impl Ring {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Chain => Self::Chain(Chain::new()),
            Kind::Headtail => Self::Headtail(Headtail::default()),
        }
    }

    pub(crate) fn has_descriptor(&self) -> bool {
        match self {
            Self::Chain(chain) => chain.has_descriptor(),
            Self::Headtail(ring) => ring.has_descriptor(),
        }
    }

    /// Receive: whether a frame of this many bytes is dropped rather than waiting for buffers.
    pub(crate) fn drops(&self, bytes: usize) -> bool {
        match self {
            Self::Chain(_) => false,
            Self::Headtail(ring) => ring.drops(bytes),
        }
    }

    /// Whether the interrupt message is to be sent.
    pub(crate) fn note(&mut self, what: Note, now: u64) -> bool {
        match self {
            Self::Chain(chain) => chain.note(what, now),
            Self::Headtail(ring) => ring.note(what, now),
        }
    }

    /// When to look again.
    pub(crate) fn deadline(&self) -> u64 {
        match self {
            Self::Chain(chain) => chain.deadline(),
            Self::Headtail(ring) => ring.deadline(),
        }
    }

    /// Reads the next descriptor; `open` if it does not begin a frame.
    fn fetch<H: Host>(
        &self,
        bus: &mut Bus<H>,
        side: Side,
        open: bool,
    ) -> Result<Descriptor, Cause> {
        bus.count(Counter::Descriptors);
        let found = match self {
            Self::Chain(chain) => chain.fetch(bus, side, open)?,
            Self::Headtail(ring) => ring.fetch(bus, side)?,
        };
        if found.bytes == 0 || found.bytes > LIMIT_FRAME {
            return Err(Cause::Length);
        }
        Ok(found)
    }

    /// Completes it; whether that was reported.
    fn complete<H: Host>(
        &mut self,
        bus: &mut Bus<H>,
        side: Side,
        found: &Descriptor,
        moved: &Moved,
    ) -> Result<bool, Cause> {
        let reported = match self {
            Self::Chain(chain) => chain.complete(bus, found, moved)?,
            Self::Headtail(ring) => ring.complete(bus, side, found, moved)?,
        };
        bus.add(Counter::Completions, reported.into());
        Ok(reported)
    }
}

/// A frame between memory and memory.
#[derive(Default)]
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    /// All of its bytes were read.
    pub(crate) whole: bool,
    /// Bytes that were written.
    written: usize,
    user: Option<[u32; 5]>,
}

impl Frame {
    fn clear(&mut self) {
        self.bytes.clear();
        self.whole = false;
        self.written = 0;
        self.user = None;
    }
}

/// A channel.
pub(crate) struct Channel {
    side: Side,
    pub(crate) ring: Ring,
    pub(crate) running: bool,
    cause: Cause,
    pub(crate) drops: u32,
    /// The pair that receives, or its own.
    pub(crate) peer: u32,
    pub(crate) frame: Frame,
    /// Receive: the pair that the last frame came from.
    pub(crate) served: u32,
}

impl Channel {
    pub(crate) fn new(kind: Kind, side: Side, pair: u32) -> Self {
        Self {
            side,
            ring: Ring::new(kind),
            running: false,
            cause: Cause::None,
            drops: 0,
            peer: pair,
            frame: Frame::default(),
            served: pair,
        }
    }

    pub(crate) fn read(&self, at: u64) -> u32 {
        match at {
            offset::DROPS => self.drops,
            offset::PEER => self.peer,
            offset::KIND => match self.ring {
                Ring::Chain(_) => Kind::Chain.code().into(),
                Ring::Headtail(_) => Kind::Headtail.code().into(),
            },
            _ => match &self.ring {
                Ring::Chain(chain) => chain.read(at, self.running, self.cause),
                Ring::Headtail(ring) => ring.read(at, self.running, self.cause),
            },
        }
    }

    pub(crate) fn write(&mut self, at: u64, value: u32) -> Effect {
        match at {
            offset::PEER if self.side == Side::Transmit => {
                self.peer = value;
                Effect::More
            }
            offset::DROPS | offset::PEER | offset::KIND => Effect::None,
            _ => match &mut self.ring {
                Ring::Chain(chain) => chain.write(at, value, self.running),
                Ring::Headtail(ring) => ring.write(at, value, self.running),
            },
        }
    }

    pub(crate) fn start(&mut self) {
        self.running = true;
        self.cause = Cause::None;
        if let Ring::Chain(chain) = &mut self.ring {
            chain.start();
        }
    }

    /// Stops it, with a cause if it halts by itself. Returns whether a frame is lost.
    pub(crate) fn stop(&mut self, cause: Cause) -> bool {
        self.running = false;
        self.cause = cause;
        if let Ring::Chain(chain) = &mut self.ring {
            chain.stop();
        }
        self.drop_frame()
    }

    /// Drops the frame on its way; whether there was one.
    pub(crate) fn drop_frame(&mut self) -> bool {
        let lost = !self.frame.bytes.is_empty();
        self.drops = self.drops.wrapping_add(lost.into());
        self.frame.clear();
        lost
    }

    /// Whether it has something to do without others: bytes to read, or to write.
    pub(crate) fn can_work(&self) -> bool {
        let wants = self.frame.whole == (self.side == Side::Receive);
        self.running && wants && self.ring.has_descriptor()
    }

    /// Moves the bytes of one descriptor. Returns whether its completion was reported.
    pub(crate) fn step<H: Host>(&mut self, bus: &mut Bus<H>) -> Result<bool, Cause> {
        match self.side {
            Side::Transmit => self.gather(bus),
            Side::Receive => self.scatter(bus),
        }
    }

    fn gather<H: Host>(&mut self, bus: &mut Bus<H>) -> Result<bool, Cause> {
        let frame = &mut self.frame;
        let from = frame.bytes.len();
        let found = self.ring.fetch(bus, self.side, from != 0)?;
        let past = from.saturating_add(found.bytes as usize);
        if past > LIMIT_FRAME as usize {
            return Err(Cause::Frame);
        }
        frame.bytes.resize(past, 0);
        let into = frame.bytes.get_mut(from..).unwrap_or_default();
        bus.read(found.addr, into).map_err(|_| Cause::Data)?;
        if from == 0 {
            frame.user = found.user;
        }
        frame.whole = found.end;
        let moved = Moved {
            bytes: found.bytes,
            ..Moved::default()
        };
        self.ring.complete(bus, self.side, &found, &moved)
    }

    fn scatter<H: Host>(&mut self, bus: &mut Bus<H>) -> Result<bool, Cause> {
        let frame = &mut self.frame;
        let found = self.ring.fetch(bus, self.side, false)?;
        let rest = frame.bytes.get(frame.written..).unwrap_or_default();
        let count = rest.len().min(found.bytes as usize);
        let part = rest.get(..count).unwrap_or_default();
        let end = count == rest.len();
        let moved = Moved {
            bytes: count as u32,
            start: frame.written == 0,
            end,
            user: frame.user.filter(|_| end),
        };
        bus.write(found.addr, part).map_err(|_| Cause::Data)?;
        let reported = self.ring.complete(bus, self.side, &found, &moved)?;
        frame.written = frame.written.saturating_add(count);
        if end {
            bus.count(Counter::Frames);
            bus.add(Counter::FrameBytes, frame.bytes.len() as u64);
            frame.clear();
        }
        Ok(reported)
    }
}
