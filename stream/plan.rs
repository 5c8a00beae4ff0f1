// SPDX-License-Identifier: GPL-2.0

//! The parameters of a run: `kind=chain pair=0 size=64 batch=1 count=1000 depth=64 verify=1
//! threshold=1 delay=250 interval=20 fault=none`.

use crate::{
    abi::stream::Kind,
    frames::Frame,
    kernel::dma_stream::{
        Cpu,
        Mapped, //
    },
    queue::index::Depth,
};
use kernel::{
    fmt,
    prelude::*, //
};

/// The most descriptors of a ring, which each have a buffer.
const MAX_DEPTH: u32 = 1024;
/// The most bytes of the buffers of a side.
const MAX_BYTES: u64 = 1 << 22;

/// Why a plan is refused, for people.
pub(crate) type Refused = &'static str;

/// How descriptors are given to the channels: the rungs of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rung {
    /// One descriptor, no interrupt.
    Polled,
    /// Rung 2: descriptors that are linked.
    Chain,
    /// A ring with a head and a tail.
    Headtail,
}

impl Rung {
    const NAMES: [(&'static str, Self); 3] = [
        ("polled", Self::Polled),
        ("chain", Self::Chain),
        ("headtail", Self::Headtail),
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Polled => "polled",
            Self::Chain => "chain",
            Self::Headtail => "headtail",
        }
    }

    /// The kind of the channels that it drives.
    pub(crate) fn channels(self) -> Kind {
        match self {
            Self::Polled | Self::Chain => Kind::Chain,
            Self::Headtail => Kind::Headtail,
        }
    }
}

/// A descriptor that is wrong on purpose, for tests of what the device halts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No field of a descriptor is spoiled.
    None,
    /// It has no bytes.
    Length,
    /// Its address is [`Self::NOWHERE`].
    Address,
    /// It does not start its frame.
    Start,
}

impl Fault {
    /// An address without memory.
    pub(crate) const NOWHERE: u64 = 1 << 62;
    const NAMES: [(&'static str, Self); 4] = [
        ("none", Self::None),
        ("length", Self::Length),
        ("address", Self::Address),
        ("start", Self::Start),
    ];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Length => "length",
            Self::Address => "address",
            Self::Start => "start",
        }
    }
}

fn named<T: Copy>(names: &[(&str, T)], value: &str, refused: Refused) -> Result<T, Refused> {
    let found = names.iter().find(|(name, _)| *name == value);
    found.map(|(_, it)| *it).ok_or(refused)
}

/// When a channel interrupts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coalescing {
    /// Descriptors that complete between two interrupts.
    pub(crate) threshold: u8,
    /// The age of the first completion, in units of 8 microseconds.
    pub(crate) delay: u8,
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) rung: Rung,
    pub(crate) pair: u32,
    /// Bytes of a frame.
    pub(crate) size: u32,
    /// Frames that are handed over together.
    pub(crate) batch: u32,
    /// Frames that the run moves.
    pub(crate) count: u64,
    /// Descriptors of each ring.
    pub(crate) depth: Depth,
    pub(crate) verify: bool,
    /// When a chain interrupts.
    pub(crate) coalescing: Coalescing,
    /// Microseconds between two messages of a ring.
    pub(crate) interval: u16,
    /// What is wrong with the frame in the middle.
    pub(crate) fault: Fault,
}

impl Plan {
    /// Parses `key=value` words. All keys are optional.
    pub(crate) fn parse(text: &str, kinds: &[Kind], largest: u32) -> Result<Self, Refused> {
        let (mut rung, mut fault) = (Rung::Chain, Fault::None);
        let (mut pair, mut size, mut batch, mut count) = (None, 64, 1, 1000);
        let (mut depth, mut verify, mut interval) = (64, 1, 20);
        let (mut threshold, mut delay) = (None, 250);
        for word in text.split_ascii_whitespace() {
            let (key, value) = word.split_once('=').ok_or("a word is not key=value")?;
            match key {
                "kind" => {
                    rung = named(&Rung::NAMES, value, "kind is polled, chain or headtail")?;
                    continue;
                }
                "fault" => {
                    let refused = "fault is none, length, address or start";
                    fault = named(&Fault::NAMES, value, refused)?;
                    continue;
                }
                _ => {}
            }
            let number: u64 = value.parse().map_err(|_| "a value is not a number")?;
            let small = u32::try_from(number).map_err(|_| "a value is too large");
            match key {
                "pair" => pair = Some(small?),
                "size" => size = small?,
                "batch" => batch = small?,
                "count" => count = number,
                "depth" => depth = small?,
                "verify" => verify = small?,
                "threshold" => threshold = Some(small?),
                "delay" => delay = small?,
                "interval" => interval = small?,
                _ => return Err("a key is unknown"),
            }
        }
        let at = |it: u32| kinds.get(it as usize) == Some(&rung.channels());
        let pair = match pair {
            Some(pair) if at(pair) => pair,
            Some(_) => return Err("the pair does not exist, or is of another kind"),
            None => (0..MAX_DEPTH)
                .find(|it| at(*it))
                .ok_or("the function has no pair of this kind")?,
        };
        let byte = |value: u32, refused| u8::try_from(value).map_err(|_| refused);
        let plan = Self {
            rung,
            pair,
            size,
            batch,
            count,
            depth: Depth::at_least(depth.max(1)).ok_or("depth is too large")?,
            verify: verify != 0,
            coalescing: Coalescing {
                threshold: byte(threshold.unwrap_or(batch.min(255)), "threshold is 0 to 255")?,
                delay: byte(delay, "delay is 0 to 255, in units of 8 microseconds")?,
            },
            interval: u16::try_from(interval).map_err(|_| "interval is 0 to 65535 microseconds")?,
            fault,
        };
        plan.check(largest)?;
        Ok(plan)
    }

    fn check(&self, largest: u32) -> Result<(), Refused> {
        let depth = self.depth.entries();
        let capacity = match self.rung {
            Rung::Polled => 1,
            Rung::Chain => depth,
            // One descriptor is never handed over.
            Rung::Headtail => depth - 1,
        };
        if self.count == 0 || self.batch == 0 {
            return Err("count and batch begin at 1");
        }
        if self.size == 0 || self.size > largest {
            return Err("size is 1 to the largest frame of the function");
        }
        // The bytes of a ring are a multiple of 128.
        if depth > MAX_DEPTH || self.rung == Rung::Headtail && depth < 8 {
            return Err("depth is at most 1024, and at least 8 for headtail");
        }
        if self.batch > capacity {
            return Err(match self.rung {
                Rung::Polled => "polled has one descriptor: batch is 1",
                Rung::Chain => "batch is at most depth",
                Rung::Headtail => "batch is less than depth: one descriptor is never handed over",
            });
        }
        if u64::from(self.size).next_power_of_two() * u64::from(depth) > MAX_BYTES {
            return Err("the buffers of a side have at most 4 MiB");
        }
        if self.rung == Rung::Headtail && self.fault == Fault::Start {
            return Err("a ring has no start that could be missing");
        }
        Ok(())
    }

    /// The frame with this number.
    pub(crate) fn frame(&self, number: u64) -> Frame {
        Frame {
            number,
            bytes: self.size,
        }
    }

    /// Writes a frame to a buffer, unless nothing is verified.
    pub(crate) fn fill(&self, frame: Frame, buffer: &mut Mapped<Cpu>) {
        if self.verify {
            frame.fill(buffer);
        }
    }

    /// Whether the frame is in a buffer, unless nothing is verified.
    pub(crate) fn verifies(&self, frame: Frame, buffer: &Mapped<Cpu>) -> bool {
        !self.verify || frame.is_in(buffer)
    }

    /// What is wrong with a frame on purpose: the one in the middle of the run.
    pub(crate) fn fault_of(&self, number: u64) -> Fault {
        if number == self.count / 2 {
            self.fault
        } else {
            Fault::None
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "kind={} pair={} size={} batch={} count={} depth={} verify={} threshold={} delay={} \
             interval={} fault={}",
            self.rung.name(),
            self.pair,
            self.size,
            self.batch,
            self.count,
            self.depth.entries(),
            u32::from(self.verify),
            self.coalescing.threshold,
            self.coalescing.delay,
            self.interval,
            self.fault.name(),
        )
    }
}

#[kernel::macros::kunit_tests(qpair_stream)]
mod tests {
    use super::*;

    const KINDS: [Kind; 2] = [Kind::Chain, Kind::Headtail];

    fn parse(text: &str) -> Result<Plan, Refused> {
        Plan::parse(text, &KINDS, 16384)
    }

    #[test]
    fn what_is_left_out_has_a_value() {
        assert!(parse("\n").is_ok_and(|it| it.rung == Rung::Chain && it.pair == 0 && it.verify));
        assert!(parse("kind=headtail").is_ok_and(|it| it.pair == 1));
    }

    #[test]
    fn capacity_is_that_of_the_rung() {
        assert!(parse("kind=chain depth=8 batch=8").is_ok());
        assert!(parse("kind=chain depth=8 batch=9").is_err());
        assert!(parse("kind=headtail depth=8 batch=7").is_ok());
        assert!(parse("kind=headtail depth=8 batch=8").is_err());
        assert!(parse("kind=polled batch=1").is_ok());
        assert!(parse("kind=polled batch=2").is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "kind=pair",
            "kind",
            "pair=1",
            "pair=2",
            "size=0",
            "size=16385",
            "count=0",
            "batch=0",
            "depth=2048",
            "delay=256",
            "interval=65536",
            "fault=what",
            "what=1",
            "size=-1",
            "kind=headtail fault=start",
            "size=16384 depth=1024",
        ] {
            assert!(parse(text).is_err());
        }
    }
}
