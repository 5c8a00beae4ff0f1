// SPDX-License-Identifier: GPL-2.0
//! Software, a device, and queue pairs that share receives, each with a CQ of its own.
//!
//! The rules decide; this file keeps apart from them what is true: which receive is where. Each
//! receive has a tag, in the second word of its WQE.

use super::super::EXPLORES;
use qpair_abi::entry::BLOCK_WORDS;
use qpair_model::rules::supply::Low;
use qpair_model::rules::supply::Next;
use qpair_model::rules::supply::Supply;
use qpair_queue::credit::RingId;
use qpair_queue::credit::Slots;
use qpair_queue::credit::Srq;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::resize::Stays;
use qpair_queue::shared::Shared;
use qpair_queue::storage::Storage;
use std::collections::VecDeque;
use std::hash::Hash;
use std::hash::Hasher;
use std::sync::Mutex;

pub const OVERWRITTEN: &str = "a receive is overwritten before the device has read it";
pub const OVERRUN: &str = "a CQ is overrun";
pub const LOST: &str = "a receive is lost";
pub const EVENT_LOST: &str = "the event of a limit is lost";
pub const EVENT_TWICE: &str = "a limit has a second event";
pub const IMBALANCE: &str = "slots do not add up";

/// The second word of each slot: the rest is not looked at.
#[derive(Debug)]
pub struct Tags(Mutex<Vec<u64>>);

impl Tags {
    fn new(depth: Depth) -> Self {
        Self(Mutex::new(vec![0; depth.entries() as usize]))
    }

    /// 0 past the end.
    fn get(&self, slot: usize) -> u64 {
        let tags = self.0.lock().expect("no panic in here");
        tags.get(slot).copied().unwrap_or(0)
    }

    fn all(&self) -> Vec<u64> {
        self.0.lock().expect("no panic in here").clone()
    }
}

impl Clone for Tags {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.all()))
    }
}

impl PartialEq for Tags {
    fn eq(&self, other: &Self) -> bool {
        self.all() == other.all()
    }
}

impl Eq for Tags {}

impl Hash for Tags {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.all().hash(state);
    }
}

impl Storage for Tags {
    fn words(&self) -> usize {
        self.0.lock().expect("no panic in here").len() * BLOCK_WORDS
    }
    fn load(&self, at: usize) -> u64 {
        match at % BLOCK_WORDS {
            1 => self.get(at / BLOCK_WORDS),
            _ => 0,
        }
    }
    fn store(&self, at: usize, word: u64) {
        let mut tags = self.0.lock().expect("no panic in here");
        if let (1, Some(tag)) = (at % BLOCK_WORDS, tags.get_mut(at / BLOCK_WORDS)) {
            *tag = word;
        }
    }
    fn after_owner(&self) {}
    fn before_head(&self) {}
    fn before_tail(&self) {}
}

/// The receives that no queue pair has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Device {
    supply: Supply,
    /// Those in the ring, in order.
    ring: VecDeque<u64>,
    /// Those that were given back.
    back: Vec<u64>,
}

impl Device {
    /// Takes the next receive, whose WQE is in `tags`: what it is, and whether the WQE is its own.
    fn take(&mut self, tags: &Tags) -> (Option<u64>, bool, Low) {
        let (tag, is_own) = match self.supply.next() {
            Some(Next::Back) => (self.back.pop(), true),
            Some(Next::Ring(index)) => {
                let slot = self.supply.window().depth().position(index) as usize;
                let tag = self.ring.pop_front();
                (tag, tag == Some(tags.get(slot)))
            }
            None => (None, true),
        };
        (tag, is_own, self.supply.take())
    }
}

/// A queue pair and its CQ, which has room for as many entries as the SRQ has slots.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pair {
    /// The receive that it is filling.
    has: Option<u64>,
    /// Completions that were not read.
    unread: VecDeque<u64>,
    /// Slots of completions that were read, and are not published.
    read: Slots<Srq>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    capacity: u32,
    /// The most slots that the SRQ ever has, and the entries of each CQ.
    most: u32,
    resizes: bool,
    shared: Shared<Tags>,
    /// Receives that were posted and not handed over.
    posted: Vec<u64>,
    device: Device,
    pairs: Vec<Pair>,
    /// The limit that software has armed, until its event.
    armed: u32,
    /// Events that software has not read.
    events: u32,
    /// What went wrong first.
    pub wrong: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Post,
    Ring,
    Take(usize),
    Complete(usize),
    /// The queue pair is reset, or destroyed and made anew.
    Die(usize),
    Read(usize),
    Publish(usize),
    Arm(u32),
    Event,
    /// The SRQ gets so many slots. This queue pair takes a receive between the copy and the
    /// device's switch.
    Resize(u32, Option<usize>),
}

impl World {
    /// With `pairs` queue pairs on an SRQ of `capacity` slots, whose ring begins at `first`. It is
    /// resized to any number up to `most`, unless that is `capacity`.
    pub fn new(capacity: u32, most: u32, pairs: usize, first: Index) -> Self {
        let depth = Depth::at_least(capacity).expect("a depth");
        let id = RingId::new(9, 0);
        let shared = Shared::starting_at(id, Tags::new(depth), depth, 0, capacity, first);
        let pair = || Pair {
            has: None,
            unread: VecDeque::new(),
            read: Slots::none(id),
        };
        Self {
            capacity,
            most,
            resizes: most != capacity,
            shared: shared.expect("a good ring"),
            posted: Vec::new(),
            device: Device {
                supply: Supply::new(depth, first),
                ring: VecDeque::new(),
                back: Vec::new(),
            },
            pairs: (0..pairs).map(|_| pair()).collect(),
            armed: 0,
            events: 0,
            wrong: None,
        }
    }

    pub fn actions(&self) -> Vec<Action> {
        let mut all = Vec::new();
        if self.wrong.is_some() {
            return all;
        }
        if self.shared.free() != 0 {
            all.push(Action::Post);
        }
        if !self.posted.is_empty() {
            all.push(Action::Ring);
        }
        for (i, pair) in self.pairs.iter().enumerate() {
            if pair.has.is_some() {
                all.extend([Action::Complete(i), Action::Die(i)]);
            } else if self.device.supply.next().is_some() {
                all.push(Action::Take(i));
            }
            if !pair.unread.is_empty() {
                all.push(Action::Read(i));
            }
            if !pair.read.is_empty() {
                all.push(Action::Publish(i));
            }
        }
        if self.armed == 0 && self.events == 0 {
            all.extend((1..=self.capacity).map(Action::Arm));
        }
        if self.events != 0 {
            all.push(Action::Event);
        }
        if self.resizes {
            let takers = self.pairs.iter().enumerate();
            let idle = takers.filter(|(_, pair)| pair.has.is_none());
            let takers: Vec<_> = idle.map(|(i, _)| Some(i)).chain([None]).collect();
            for capacity in (1..=self.most).filter(|&to| to != self.capacity && to >= self.armed) {
                all.extend(takers.iter().map(|&taker| Action::Resize(capacity, taker)));
            }
        }
        all
    }

    /// The least tag that no receive has.
    fn new_tag(&self) -> u64 {
        let queues = self
            .posted
            .iter()
            .chain(&self.device.ring)
            .chain(&self.device.back);
        let pairs = self.pairs.iter();
        let at_pairs = pairs.flat_map(|pair| pair.has.iter().chain(&pair.unread));
        let used: Vec<_> = queues.chain(at_pairs).collect();
        (1..).find(|tag| !used.contains(&tag)).expect("a tag")
    }

    fn check(&mut self, holds: bool, what: &'static str) {
        if !holds && self.wrong.is_none() {
            self.wrong = Some(what);
        }
    }

    fn event(&mut self, low: Low) {
        if low == Low::Now {
            self.check(self.armed != 0, EVENT_TWICE);
            self.armed = 0;
            self.events += 1;
        }
    }

    pub fn act(&mut self, action: Action) {
        match action {
            Action::Post => self.post(),
            Action::Ring => self.ring(),
            Action::Take(i) => self.take(i),
            Action::Complete(i) => {
                let pair = &mut self.pairs[i];
                let tag = pair.has.take();
                pair.unread.extend(tag);
                let used = pair.unread.len() as u32 + pair.read.count();
                self.check(used <= self.most, OVERRUN);
            }
            Action::Die(i) => {
                let tag = self.pairs[i].has.take();
                self.device.back.extend(tag);
                self.device.supply.give_back();
            }
            Action::Read(i) => {
                let pair = &mut self.pairs[i];
                pair.unread.pop_front();
                let merged = match self.shared.complete() {
                    Some(slots) => pair.read.merge(slots).is_ok(),
                    None => false,
                };
                self.check(merged, IMBALANCE);
            }
            Action::Publish(i) => {
                let slots = self.pairs[i].read.take();
                let given = self.shared.free_slots(slots).is_ok();
                self.check(given, IMBALANCE);
            }
            Action::Arm(limit) => {
                self.armed = limit;
                let low = self.device.supply.arm(limit);
                self.event(low);
            }
            Action::Event => self.events -= 1,
            Action::Resize(capacity, taker) => self.resize(capacity, taker),
        }
        self.look();
        self.turn_back();
    }

    fn post(&mut self) {
        let tag = self.new_tag();
        let mut batch = self.shared.batch(|tags| tags);
        let posted = batch.room(1, true).map(|mut room| {
            room.write(0, &[0, tag, 0, 0, 0, 0, 0, 0]);
            room.post();
        });
        drop(batch);
        self.check(posted.is_ok(), IMBALANCE);
        self.posted.push(tag);
    }

    fn ring(&mut self) {
        let mut tail = None;
        self.shared.ring(|index| tail = Some(index));
        let came = tail.and_then(|tail| self.device.supply.post(tail));
        self.check(came == Some(self.posted.len() as u32), OVERWRITTEN);
        self.device.ring.extend(self.posted.drain(..));
    }

    fn take(&mut self, i: usize) {
        let taken = self.device.take(self.shared.storage());
        self.taken(i, taken);
    }

    fn taken(&mut self, i: usize, (tag, is_own, low): (Option<u64>, bool, Low)) {
        self.check(is_own, OVERWRITTEN);
        self.check(tag.is_some(), LOST);
        self.pairs[i].has = tag;
        self.event(low);
    }

    fn resize(&mut self, capacity: u32, taker: Option<usize>) {
        let depth = Depth::at_least(capacity).expect("a depth");
        let out = self.capacity - self.shared.free();
        let resize = match self.shared.resize(Tags::new(depth), depth, capacity) {
            Ok(resize) => resize,
            Err(stays) => {
                self.check(stays == Stays::Unread && out > capacity, IMBALANCE);
                return;
            }
        };
        let taker = taker.filter(|_| self.device.supply.next().is_some());
        let taken = taker.map(|i| (i, self.device.take(resize.storage())));
        let fits = self.device.supply.resize(depth);
        resize.end();
        self.capacity = capacity;
        self.check(fits, OVERWRITTEN);
        if let Some((i, taken)) = taken {
            self.taken(i, taken);
        }
    }

    /// What holds between any two actions.
    fn look(&mut self) {
        let left = (self.device.ring.len() + self.device.back.len()) as u32;
        self.check(self.device.supply.left() == left, LOST);
        self.check(self.armed == 0 || left >= self.armed, EVENT_LOST);
        self.check(self.events <= 1, EVENT_TWICE);
        let held = self.pairs.iter().map(|pair| pair.read.count()).sum();
        self.check(self.shared.audit(held).is_ok(), IMBALANCE);
    }

    /// Keeps the indices small, which makes states that differ in passes alone the same.
    fn turn_back(&mut self) {
        if !EXPLORES {
            return;
        }
        let supply = &mut self.device.supply;
        let entries = supply.window().depth().entries();
        let past = supply.window().head().get() / entries;
        let by = 0u32.wrapping_sub(past * entries);
        supply.rotate(by);
        self.shared.rotate(by);
    }
}
