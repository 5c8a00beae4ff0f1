// SPDX-License-Identifier: GPL-2.0
//! Software, a device, and queue pairs that share receives, each with a CQ of its own.
//!
//! The rules decide; this file keeps apart from them what is true: which receive is where. Each
//! receive has a tag, in the second word of its WQE.

use qpair_abi::entry::BLOCK_WORDS;
use qpair_queue::credit::RingId;
use qpair_queue::credit::Slots;
use qpair_queue::credit::Srq;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::shared::Low;
use qpair_queue::shared::Next;
use qpair_queue::shared::Shared;
use qpair_queue::shared::Supply;
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

    fn get(&self, slot: usize) -> u64 {
        self.0.lock().expect("no panic in here")[slot]
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
    fn load(&self, _at: usize) -> u64 {
        0
    }
    fn store(&self, at: usize, word: u64) {
        if at % BLOCK_WORDS == 1 {
            self.0.lock().expect("no panic in here")[at / BLOCK_WORDS] = word;
        }
    }
    fn after_owner(&self) {}
    fn before_head(&self) {}
    fn before_tail(&self) {}
}

/// A queue pair and its CQ, which has room for as many entries as the SRQ has slots.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
struct Pair {
    /// The receive that it is filling.
    has: Option<u64>,
    /// Completions that were not read.
    unread: VecDeque<u64>,
    /// Slots of completions that were read, and are not published.
    read: Slots<Srq>,
}

#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub struct World {
    depth: Depth,
    capacity: u32,
    shared: Shared<Tags>,
    /// Receives that were posted and not handed over.
    posted: Vec<u64>,
    supply: Supply,
    /// Receives in the ring, in order.
    ring: VecDeque<u64>,
    /// Receives that were given back.
    back: Vec<u64>,
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
}

impl World {
    /// With `pairs` queue pairs on an SRQ of `capacity` slots, whose ring begins at `first`.
    pub fn new(capacity: u32, pairs: usize, first: Index) -> Self {
        let depth = Depth::at_least(capacity).expect("a depth");
        let id = RingId::new(9, 0);
        let shared = Shared::starting_at(id, Tags::new(depth), depth, 0, capacity, first);
        let pair = || Pair {
            has: None,
            unread: VecDeque::new(),
            read: Slots::none(id),
        };
        Self {
            depth,
            capacity,
            shared: shared.expect("a good ring"),
            posted: Vec::new(),
            supply: Supply::new(depth, first),
            ring: VecDeque::new(),
            back: Vec::new(),
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
            } else if self.supply.next().is_some() {
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
        all
    }

    /// The least tag that no receive has.
    fn new_tag(&self) -> u64 {
        let queues = self.posted.iter().chain(&self.ring).chain(&self.back);
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
                self.check(used <= self.capacity, OVERRUN);
            }
            Action::Die(i) => {
                let tag = self.pairs[i].has.take();
                self.back.extend(tag);
                self.supply.give_back();
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
                let low = self.supply.arm(limit);
                self.event(low);
            }
            Action::Event => self.events -= 1,
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
        let came = tail.and_then(|tail| self.supply.post(tail));
        self.check(came == Some(self.posted.len() as u32), OVERWRITTEN);
        self.ring.extend(self.posted.drain(..));
    }

    fn take(&mut self, i: usize) {
        let tag = match self.supply.next() {
            Some(Next::Back) => self.back.pop(),
            Some(Next::Ring(index)) => {
                let slot = self.depth.position(index) as usize;
                let read = self.shared.storage().get(slot);
                let tag = self.ring.pop_front();
                self.check(tag == Some(read), OVERWRITTEN);
                tag
            }
            None => None,
        };
        self.check(tag.is_some(), LOST);
        self.pairs[i].has = tag;
        let low = self.supply.take();
        self.event(low);
    }

    /// What holds between any two actions.
    fn look(&mut self) {
        let left = (self.ring.len() + self.back.len()) as u32;
        self.check(self.supply.left() == left, LOST);
        self.check(self.armed == 0 || left >= self.armed, EVENT_LOST);
        self.check(self.events <= 1, EVENT_TWICE);
        let held = self.pairs.iter().map(|pair| pair.read.count()).sum();
        self.check(self.shared.audit(held).is_ok(), IMBALANCE);
    }

    /// Keeps the indices small, which makes states that differ in passes alone the same.
    #[cfg(feature = "explore")]
    fn turn_back(&mut self) {
        let entries = self.depth.entries();
        if self.supply.window().head().get() == entries {
            let by = 0u32.wrapping_sub(entries);
            self.supply.rotate(by);
            self.shared.rotate(by);
        }
    }

    #[cfg(not(feature = "explore"))]
    fn turn_back(&mut self) {}
}
