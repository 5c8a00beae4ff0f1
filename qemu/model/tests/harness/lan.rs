// SPDX-License-Identifier: GPL-2.0
//! Machines on a network that may lose, repeat, delay, reorder and corrupt frames, by a seed.

use super::driver::*;
use qpair_abi::command::*;
use qpair_abi::Number;
use qpair_model::Config;
use qpair_testkit::Rng;
use std::collections::BTreeMap;

/// The entry of the table of GIDs that a machine has its address in.
pub const SOURCE: u16 = 1;
/// How long a frame takes.
pub const FLIGHT_NS: u64 = 10_000;
/// The most that a frame is late by.
const LATE_NS: u64 = 400_000;
/// How long a line has faults in each period. The longest wait of a sender is four timeouts, 16.8 ms, and
/// the line is without faults for longer than that, so one of its tries arrives. Otherwise they run out
/// by chance.
const BAD_NS: u64 = 20_000_000;
/// The time from one begin of the faults to the next.
const PERIOD_NS: u64 = 40_000_000;

/// The GID of the machine with this place: an IPv4 address.
pub fn gid_at(place: usize) -> [u64; 2] {
    let last = place as u64 + 1;
    [0, 0x0000_000a_ffff_0000 | last << 56]
}

/// Bytes 0 to 3 of the address of its network device, and bytes 4 and 5.
pub fn mac_at(place: usize) -> (u32, u16) {
    let last = place as u8 + 1;
    (
        u32::from_le_bytes([0x52, 0x54, 0, 0]),
        u16::from_le_bytes([0, last]),
    )
}

/// How many of a thousand frames have a fault, while the line has faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line {
    pub lost: u64,
    pub repeated: u64,
    pub late: u64,
    pub corrupt: u64,
}

pub struct Lan {
    pub machines: Vec<Machine>,
    pub line: Line,
    rng: Rng,
    /// By time and order: for which machine.
    flight: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    order: u64,
    /// Frames that were sent.
    pub frames: u64,
    /// Each of them, with the place of its sender, if they are kept.
    pub sent: Option<Vec<(usize, Vec<u8>)>>,
}

impl Machine {
    /// A device on a network that is up, and has a GID there.
    pub fn on_network(place: usize) -> Self {
        Self::on_network_with(place, Config::default())
    }

    pub fn on_network_with(place: usize, config: Config) -> Self {
        let mut machine = Self::off(Config {
            wired: true,
            ..config
        });
        let mac = format!("52:54:00:00:00:{:02x}", place + 1);
        machine.f.set_mac(&mac).unwrap();
        machine.bring_up(6, 4, 5);
        machine.set_gid(SOURCE.into(), gid_at(place)).unwrap();
        machine
    }

    pub fn set_gid(&mut self, index: u32, [gid, gid_high]: [u64; 2]) -> Outcome {
        let context = GidContext { gid, gid_high };
        let index = Number::from_raw(index);
        self.with_context(kind::GID, verb::MODIFY, index, 0, &context.encode())
    }
}

impl Lan {
    pub fn new(machines: usize) -> Self {
        Self::with(machines, Rng::new(0), Line::default())
    }

    pub fn with(machines: usize, rng: Rng, line: Line) -> Self {
        Self {
            machines: (0..machines).map(Machine::on_network).collect(),
            line,
            rng,
            flight: BTreeMap::new(),
            order: 0,
            frames: 0,
            sent: None,
        }
    }

    pub fn now(&self) -> u64 {
        self.machines[0].f.host().now
    }

    /// Takes the frames of the machines to the network, to which machine one goes is in its address.
    fn collect(&mut self) {
        for from in 0..self.machines.len() {
            loop {
                self.machines[from].settle();
                let host = self.machines[from].f.host_mut();
                let frames = std::mem::take(&mut host.frames);
                if frames.is_empty() {
                    break;
                }
                // There is room again.
                host.woken = true;
                for frame in frames {
                    self.send(from, frame);
                }
            }
        }
    }

    fn hits(&mut self, of_1000: u64) -> bool {
        // One that has a fault in all frames has it all the time.
        let bad = of_1000 == 1000 || self.now() % PERIOD_NS < BAD_NS;
        self.rng.below(1000) < of_1000 && bad
    }

    fn send(&mut self, from: usize, frame: Vec<u8>) {
        self.frames += 1;
        if let Some(sent) = &mut self.sent {
            sent.push((from, frame.clone()));
        }
        if self.hits(self.line.lost) {
            return;
        }
        let copies = 1 + usize::from(self.hits(self.line.repeated));
        for _ in 0..copies {
            let mut copy = frame.clone();
            let mut due = self.now() + FLIGHT_NS;
            if self.hits(self.line.late) {
                due += self.rng.below(LATE_NS);
            }
            if self.hits(self.line.corrupt) {
                let bit = self.rng.below(copy.len() as u64 * 8) as usize;
                copy[bit / 8] ^= 1 << (bit % 8);
            }
            for to in (0..self.machines.len()).filter(|to| *to != from) {
                self.order += 1;
                self.flight.insert((due, self.order), (to, copy.clone()));
            }
        }
    }

    /// Delivers a frame at once.
    pub fn deliver(&mut self, to: usize, frame: &[u8]) -> bool {
        let is_its_own = self.machines[to].f.frame(frame);
        self.machines[to].settle();
        is_its_own
    }

    /// Goes on to the next frame or timer before `until`; false if there is none.
    fn step(&mut self, until: u64) -> bool {
        self.collect();
        let timers = self.machines.iter().map(|m| m.f.host().wake_at);
        let frame = self.flight.keys().next().map_or(u64::MAX, |key| key.0);
        let next = timers.fold(frame, u64::min).max(self.now());
        if next > until {
            return false;
        }
        for machine in &mut self.machines {
            machine.f.host_mut().now = next;
        }
        while let Some(entry) = self
            .flight
            .first_entry()
            .filter(|entry| entry.key().0 <= next)
        {
            let (to, frame) = entry.remove();
            self.machines[to].f.frame(&frame);
        }
        true
    }

    /// Goes on for this time.
    pub fn pass(&mut self, nanos: u64) {
        let until = self.now() + nanos;
        while self.step(until) {}
        for machine in &mut self.machines {
            machine.f.host_mut().now = until;
        }
        self.collect();
    }

    /// Goes on until no frame is in flight, and no timer is set.
    pub fn settle(&mut self) {
        for _ in 0..10_000_000 {
            if !self.step(u64::MAX - 1) {
                return;
            }
        }
        panic!("the machines never become idle");
    }
}
