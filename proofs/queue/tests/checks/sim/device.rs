// SPDX-License-Identifier: GPL-2.0
//! The device's half of the simulation: the rules of `channel` and `eq_irq`, and nothing else that
//! could hide a fault.
//!
//! Forbidden states are asserted here, by separate counts.

use crate::checks::memory::Memory;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::Eqe;
use qpair_abi::status::Event;
use qpair_abi::Number;
use qpair_model::rules::channel::Channel;
use qpair_model::rules::channel::Fire;
use qpair_model::rules::channel::Wants;
use qpair_model::rules::eq_irq::EventQueue;
use qpair_model::rules::eq_irq::Gate;
use qpair_model::rules::eq_irq::Line;
use qpair_model::rules::eq_irq::Moderation;
use qpair_model::rules::eq_irq::Notice;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use std::collections::VecDeque;

/// Objects that can have an asynchronous event.
pub const SOURCES: usize = 5;
/// The number that asynchronous events of source `i` carry.
pub fn source(i: usize) -> Number {
    Number::new(i as u16, 999)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Origin {
    Cq(Number),
    Source(usize),
}

#[derive(Debug)]
pub struct DeviceCq {
    pub number: Number,
    pub channel: Channel,
    pub memory: Memory,
    /// Past the last solicited completion.
    pub solicited: Index,
    user: bool,
}

#[derive(Debug)]
pub struct Device {
    pub eq: EventQueue,
    eq_memory: Memory,
    /// The origin of each entry of the EQ.
    shadow: VecDeque<Origin>,
    pub cqs: Vec<Option<DeviceCq>>,
    next_number: Vec<Number>,
    /// The number of slots of software; the ring may be deeper.
    capacity: u32,
    reserve: u32,
    gate: Gate,
    notices: [Notice; SOURCES],
    waiting: VecDeque<usize>,
    /// Notifies that it has not acted on, with the producer index when each was written.
    notifies: VecDeque<(Number, Wants, Index)>,
    pub now: u64,
    timer: Option<u64>,
    /// The interrupt was raised, and is not handled yet.
    pub interrupt: bool,
    /// It may not be raised again before it is unmasked.
    masked: bool,
    pub raised: u64,
}

impl Device {
    pub fn new(
        depth: Depth,
        first: Index,
        eq_memory: Memory,
        cqs: usize,
        capacity: u32,
        reserve: u32,
        moderation: Moderation,
    ) -> Self {
        Self {
            eq: EventQueue::starting_at(depth, moderation, first),
            eq_memory,
            shadow: VecDeque::new(),
            cqs: (0..cqs).map(|_| None).collect(),
            next_number: (0..cqs).map(|i| Number::new(i as u16, 1)).collect(),
            capacity,
            reserve,
            gate: Gate::new(reserve),
            notices: [Notice::default(); SOURCES],
            waiting: VecDeque::new(),
            notifies: VecDeque::new(),
            now: 0,
            timer: None,
            interrupt: false,
            masked: false,
            raised: 0,
        }
    }

    pub fn cq(&mut self, number: Number) -> Option<&mut DeviceCq> {
        self.cqs
            .get_mut(number.index())?
            .as_mut()
            .filter(|cq| cq.number == number)
    }

    /// Uses a free index that has no entry in the EQ any more.
    pub fn create_cq(&mut self, depth: Depth, first: Index, user: bool) -> Option<Number> {
        let in_eq = |i: usize| {
            self.shadow
                .iter()
                .any(|o| matches!(o, Origin::Cq(n) if n.index() == i))
        };
        let index = (0..self.cqs.len()).find(|&i| self.cqs[i].is_none() && !in_eq(i))?;
        let number = self.next_number[index];
        self.next_number[index] = number.next();
        self.cqs[index] = Some(DeviceCq {
            number,
            channel: Channel::starting_at(depth, user, first),
            memory: Memory::aged::<4>(depth, first),
            solicited: first,
            user,
        });
        Some(number)
    }

    /// Returns the EQ's producer.
    pub fn destroy_cq(&mut self, number: Number) -> Index {
        self.cqs[number.index()] = None;
        self.eq.window().tail()
    }

    pub fn complete(&mut self, number: Number, cqe: Cqe, solicited: bool) {
        let depth = self.cq(number).unwrap().channel.window().depth();
        let cq = self.cq(number).unwrap();
        let (index, fire) = cq.channel.push(solicited).expect("CQ overrun");
        cq.memory.write(depth, index, cqe.encode());
        if solicited {
            cq.solicited = index.plus(1);
        }
        self.fire(number, fire);
    }

    pub fn cq_head(&mut self, number: Number, head: Index) {
        let cq = self.cq(number).unwrap();
        cq.channel.head(head).expect("a head that is legal");
    }

    pub fn cq_arm(&mut self, number: Number, wants: Wants, index: Index) {
        let cq = self.cq(number).unwrap();
        let fire = cq.channel.arm(wants, index).expect("an arm that is legal");
        self.fire(number, fire);
    }

    /// A notify is written.
    pub fn cq_notify(&mut self, number: Number, wants: Wants) {
        let sample = self.cq(number).unwrap().channel.window().tail();
        self.notifies.push_back((number, wants, sample));
    }

    /// Acts on the next notify; its CQ may be gone.
    pub fn hear(&mut self) {
        let Some((number, wants, sample)) = self.notifies.pop_front() else {
            return;
        };
        if let Some(cq) = self.cq(number) {
            let fire = cq.channel.notify(wants, sample);
            self.fire(number, fire);
        }
    }

    fn fire(&mut self, number: Number, fire: Fire) {
        if fire == Fire::No {
            return;
        }
        let user = self.cq(number).unwrap().user;
        let there = self.shadow.iter().filter(|o| **o == Origin::Cq(number));
        assert!(
            !user || there.count() == 0,
            "second event of a process's CQ"
        );
        let event = Eqe {
            number,
            count: 1,
            kind: Event::Completion.code(),
            code: 0,
        };
        self.write(Origin::Cq(number), event);
    }

    fn write(&mut self, origin: Origin, event: Eqe) {
        assert!(self.eq.window().used() < self.capacity, "EQ overflow");
        let index = self.eq.push(self.now).expect("EQ overflow");
        self.eq_memory
            .write(self.eq.window().depth(), index, event.encode());
        self.shadow.push_back(origin);
        self.line();
    }

    pub fn eq_head(&mut self, head: Index, unmask: bool) {
        let (from, to) = self.eq.head(head, unmask).expect("a head that is legal");
        if unmask {
            self.masked = false;
        }
        let passed: Vec<Origin> = self.shadow.drain(..to.since(from) as usize).collect();
        for origin in passed {
            match origin {
                Origin::Cq(number) => {
                    if let Some(cq) = self.cq(number) {
                        if cq.user {
                            let fire = cq.channel.passed();
                            self.fire(number, fire);
                        }
                    }
                }
                Origin::Source(i) => {
                    if self.gate.passed(Some(&mut self.notices[i])) {
                        self.waiting.push_back(i);
                    }
                }
            }
        }
        self.pump();
        self.line();
    }

    /// An event of source `i`.
    pub fn happens(&mut self, i: usize) {
        if self.notices[i].happened() {
            self.waiting.push_back(i);
        }
        self.pump();
    }

    fn pump(&mut self) {
        while let Some(&i) = self.waiting.front() {
            let Some(count) = self.gate.write(&mut self.notices[i]) else {
                return;
            };
            self.waiting.pop_front();
            let event = Eqe {
                number: source(i),
                count,
                kind: Event::QpFatal.code(),
                code: 0,
            };
            self.write(Origin::Source(i), event);
            let there = self.shadow.iter();
            let there = there.filter(|o| matches!(o, Origin::Source(_))).count();
            assert!(
                there as u32 <= self.reserve,
                "asynchronous events fill the EQ"
            );
        }
    }

    /// Advances the time.
    pub fn tick(&mut self, nanos: u64) {
        self.now += nanos;
        if self.timer.is_some_and(|at| at <= self.now) {
            self.timer = None;
            self.line();
        }
    }

    /// The time of the next timer.
    pub fn timer(&self) -> Option<u64> {
        self.timer
    }

    fn line(&mut self) {
        match self.eq.line(self.now) {
            Line::Quiet => {}
            Line::At(at) => self.timer = Some(at),
            Line::Raise => {
                assert!(!self.masked, "raised while masked");
                assert!(!self.eq.window().is_empty(), "raised for nothing");
                self.masked = true;
                self.interrupt = true;
                self.raised += 1;
            }
        }
    }
}
