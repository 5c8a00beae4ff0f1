// SPDX-License-Identifier: GPL-2.0
//! Software and a channel that share a chain, or a ring with a head and a tail.
//!
//! The ring code is that of the rules. Its stores become visible to the channel in any order, until
//! a barrier. The channel reads a descriptor in one step and completes it in another. Each
//! descriptor that is filled has a number, so that the channel knows one that is not whole, and one
//! that it has had before.

use super::super::EXPLORES;
use qpair_abi::stream::chain::control;
use qpair_abi::stream::chain::status;
use qpair_abi::stream::chain::ChainDescriptor;
use qpair_abi::stream::chain::ALIGN;
use qpair_abi::stream::headtail::cmd;
use qpair_abi::stream::headtail::sta;
use qpair_abi::stream::headtail::RingDescriptor;
use qpair_abi::stream::Side;
use qpair_queue::chain;
use qpair_queue::chain::Chain;
use qpair_queue::credit::RingId;
use qpair_queue::headtail;
use qpair_queue::headtail::owned;
use qpair_queue::headtail::Headtail;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::storage::Storage;
use std::hash::Hash;
use std::hash::Hasher;
use std::sync::Mutex;

/// The DMA address of the memory.
const BASE: u64 = 0x1000;

pub const OVERWRITTEN: &str = "a descriptor in use is overwritten";
pub const NOT_WHOLE: &str = "the channel reads a descriptor that is not whole";
pub const COMPLETE: &str = "the channel reads a descriptor that is complete already";
pub const NOT_DONE: &str = "software takes a descriptor that the channel has not done";
pub const ORDER: &str = "descriptors come back in another order";

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Words {
    /// What the channel sees.
    visible: Vec<u64>,
    /// Stores that it does not see yet, oldest first.
    pending: Vec<(usize, u64)>,
}

/// The memory of a ring.
#[derive(Debug, Default)]
pub struct Shared(Mutex<Words>);

impl Shared {
    fn new(words: usize) -> Self {
        Self(Mutex::new(Words {
            visible: vec![0; words],
            pending: Vec::new(),
        }))
    }

    fn with<R>(&self, act: impl FnOnce(&mut Words) -> R) -> R {
        act(&mut self.0.lock().expect("no panic in here"))
    }

    /// Places of stores that may become visible now: the oldest of each word.
    fn drainable(&self) -> Vec<usize> {
        self.with(|words| {
            let first = |&i: &usize| {
                let (at, _) = words.pending[i];
                !words.pending[..i].iter().any(|(other, _)| *other == at)
            };
            (0..words.pending.len()).filter(first).collect()
        })
    }

    fn drain(&self, i: usize) {
        self.with(|words| {
            let (at, word) = words.pending.remove(i);
            words.visible[at] = word;
        });
    }

    fn visible<const N: usize>(&self, at: usize) -> [u64; N] {
        self.with(|words| std::array::from_fn(|i| words.visible[at + i]))
    }

    /// The channel writes a word.
    fn write(&self, at: usize, word: u64) {
        self.with(|words| words.visible[at] = word);
    }
}

impl Clone for Shared {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.with(|words| words.clone())))
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        let other = other.with(|words| words.clone());
        self.with(|words| *words == other)
    }
}

impl Eq for Shared {}

impl Hash for Shared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.with(|words| words.hash(state));
    }
}

impl Storage for Shared {
    fn words(&self) -> usize {
        self.with(|words| words.visible.len())
    }

    fn load(&self, at: usize) -> u64 {
        self.with(|words| {
            let mine = words.pending.iter().rev().find(|(other, _)| *other == at);
            mine.map_or(words.visible[at], |(_, word)| *word)
        })
    }

    fn store(&self, at: usize, word: u64) {
        // A store of what is there already makes no difference, whenever it becomes visible.
        if self.load(at) != word {
            self.with(|words| words.pending.push((at, word)));
        }
    }

    fn after_owner(&self) {}

    fn before_head(&self) {}

    fn before_tail(&self) {
        while let Some(&i) = self.drainable().first() {
            self.drain(i);
        }
    }
}

/// What is shared, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rung {
    Chain,
    Transmit,
    Receive,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Ring {
    Chain(Chain<Shared>),
    Headtail(Headtail<Shared>),
}

/// A step of one of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Fill,
    HandOver,
    Poll,
    /// A store becomes visible.
    Drain(usize),
    /// The channel reads its next descriptor.
    Fetch,
    /// The channel completes it.
    Complete,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    rung: Rung,
    ring: Ring,
    entries: u32,
    /// The channel's registers: the next place, and the place of its tail.
    head: u32,
    tail: u32,
    /// A chain that has not met its tail.
    active: bool,
    /// The descriptor that it has read and not completed.
    fetched: Option<[u64; 2]>,
    /// Numbers, of the next descriptor that is filled, fetched, taken back.
    fills: u32,
    fetches: u32,
    takes: u32,
    /// Descriptors that are filled, and those that are completed, and not taken back.
    out: u32,
    completed: u32,
    pub wrong: Option<&'static str>,
}

impl World {
    /// `entries` descriptors, of which `capacity` are used at a time.
    pub fn new(rung: Rung, entries: u32, capacity: u32, first: Index) -> Self {
        let depth = Depth::new(entries).expect("a power of two");
        let id = RingId::new(7, 1);
        let ring = match rung {
            Rung::Chain => {
                let memory = Shared::new(entries as usize * ChainDescriptor::WORDS);
                let chain = Chain::starting_at(id, memory, BASE, depth, capacity, first);
                let chain = chain.expect("a good chain");
                chain.storage().before_tail();
                Ring::Chain(chain)
            }
            Rung::Transmit | Rung::Receive => {
                let side = match rung {
                    Rung::Receive => Side::Receive,
                    _ => Side::Transmit,
                };
                let memory = Shared::new(entries as usize * RingDescriptor::WORDS);
                let ring = Headtail::starting_at(id, memory, side, depth, capacity, first);
                Ring::Headtail(ring.expect("a good ring"))
            }
        };
        let place = depth.position(first);
        Self {
            rung,
            ring,
            entries,
            head: place,
            tail: place,
            active: false,
            fetched: None,
            fills: 0,
            fetches: 0,
            takes: 0,
            out: 0,
            completed: 0,
            wrong: None,
        }
    }

    /// The most that may be used at a time.
    pub fn most(rung: Rung, entries: u32) -> u32 {
        match rung {
            Rung::Chain => entries,
            Rung::Transmit | Rung::Receive => entries - 1,
        }
    }

    fn memory(&self) -> &Shared {
        match &self.ring {
            Ring::Chain(chain) => chain.storage(),
            Ring::Headtail(ring) => ring.storage(),
        }
    }

    fn free(&self) -> u32 {
        match &self.ring {
            Ring::Chain(chain) => chain.free(),
            Ring::Headtail(ring) => ring.free(),
        }
    }

    fn filled(&self) -> u32 {
        match &self.ring {
            Ring::Chain(chain) => chain.filled(),
            Ring::Headtail(ring) => ring.filled(),
        }
    }

    fn in_flight(&self) -> u32 {
        match &self.ring {
            Ring::Chain(chain) => chain.in_flight(),
            Ring::Headtail(ring) => ring.in_flight(),
        }
    }

    /// Whether the channel owns its next descriptor.
    fn owns(&self) -> bool {
        match self.rung {
            Rung::Chain => self.active,
            _ => owned(self.entries, self.head, self.tail) != 0,
        }
    }

    /// Numbers wrap, so that there are finitely many states; no two of a ring are the same.
    fn after(&self, number: u32) -> u32 {
        (number + 1) % (2 * self.entries)
    }

    /// All that may happen next.
    pub fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.wrong.is_some() {
            return actions;
        }
        let mut may = |may: bool, action| {
            if may {
                actions.push(action);
            }
        };
        may(self.free() != 0, Action::Fill);
        may(self.filled() != 0, Action::HandOver);
        may(self.in_flight() != 0, Action::Poll);
        may(self.owns() && self.fetched.is_none(), Action::Fetch);
        may(self.fetched.is_some(), Action::Complete);
        actions.extend(self.memory().drainable().into_iter().map(Action::Drain));
        actions
    }

    /// Whether each descriptor is accounted for.
    pub fn is_whole(&self) -> bool {
        match &self.ring {
            Ring::Chain(chain) => chain.audit().is_ok(),
            Ring::Headtail(ring) => ring.audit().is_ok(),
        }
    }

    /// Whether all descriptors are software's.
    pub fn is_over(&self) -> bool {
        self.filled() == 0 && self.in_flight() == 0
    }

    /// Whether descriptors are in flight, and none comes back unless more are handed over.
    pub fn is_stuck(&self) -> bool {
        let rests = self.memory().drainable().is_empty() && self.filled() == 0;
        let rests = rests && self.wrong.is_none() && !self.owns() && self.fetched.is_none();
        rests && !self.is_over() && {
            let mut next = self.clone();
            next.act(Action::Poll);
            next.takes == self.takes
        }
    }

    pub fn act(&mut self, action: Action) {
        match action {
            Action::Fill => self.fill(),
            Action::HandOver => match &mut self.ring {
                Ring::Chain(chain) => {
                    let mut tail = None;
                    chain.hand_over(|addr| tail = Some(addr));
                    let addr = tail.expect("some are filled");
                    assert!(addr >= BASE && (addr - BASE) % ALIGN == 0);
                    self.tail = ((addr - BASE) / ALIGN) as u32;
                    self.active = true;
                }
                Ring::Headtail(ring) => {
                    ring.hand_over(|tail| self.tail = tail);
                    assert!(self.tail < self.entries);
                }
            },
            Action::Poll => self.poll(),
            Action::Drain(i) => self.memory().drain(i),
            Action::Fetch => self.fetch(),
            Action::Complete => self.complete(),
        }
        if EXPLORES {
            match &mut self.ring {
                Ring::Chain(chain) => chain.rotate(),
                Ring::Headtail(ring) => ring.rotate(),
            }
        }
    }

    fn fill(&mut self) {
        if self.out >= self.entries {
            self.wrong = Some(OVERWRITTEN);
            return;
        }
        let addr = u64::from(self.fills) + 1;
        match &mut self.ring {
            Ring::Chain(chain) => {
                let buffer = chain::Buffer {
                    addr,
                    bytes: 64,
                    ..chain::Buffer::default()
                };
                chain.room().expect("one is free").fill(&buffer);
            }
            Ring::Headtail(ring) => {
                let buffer = headtail::Buffer {
                    addr,
                    bytes: 64,
                    end: true,
                };
                ring.room().expect("one is free").fill(&buffer);
            }
        }
        self.fills = self.after(self.fills);
        self.out += 1;
    }

    fn poll(&mut self) {
        let place = match &mut self.ring {
            Ring::Chain(chain) => chain.poll().map(|completed| completed.place),
            Ring::Headtail(ring) => ring.poll().map(|completed| completed.place),
        };
        let Some(place) = place else { return };
        let Some(left) = self.completed.checked_sub(1) else {
            self.wrong = Some(NOT_DONE);
            return;
        };
        // The channel has passed all that are completed and not taken back.
        let passed = (self.head + self.entries - self.completed % self.entries) % self.entries;
        if place != passed {
            self.wrong = Some(ORDER);
        }
        self.completed = left;
        self.out -= 1;
        self.takes = self.after(self.takes);
    }

    fn fetch(&mut self) {
        let head = self.head as usize;
        let (addr, bytes, words, done) = match self.rung {
            Rung::Chain => {
                let words = self.memory().visible(head * ChainDescriptor::WORDS);
                let found = ChainDescriptor::decode(&words);
                let done = found.status & status::COMPLETE != 0;
                let bytes = found.control & control::LENGTH;
                (found.addr, bytes, [words[0], words[3]], done)
            }
            _ => {
                let words = self.memory().visible(head * RingDescriptor::WORDS);
                let found = RingDescriptor::decode(&words);
                (found.addr, found.length.into(), words, false)
            }
        };
        if addr != u64::from(self.fetches) + 1 || bytes != 64 {
            self.wrong = Some(NOT_WHOLE);
        } else if done {
            self.wrong = Some(COMPLETE);
        }
        self.fetches = self.after(self.fetches);
        self.fetched = Some(words);
    }

    fn complete(&mut self) {
        let [next, state] = self.fetched.take().expect("one was fetched");
        let head = self.head as usize;
        match self.rung {
            Rung::Chain => {
                let state = state | u64::from(status::COMPLETE) << 32;
                let at = head * ChainDescriptor::WORDS + 3;
                self.memory().write(at, state);
                if self.head == self.tail {
                    self.active = false;
                }
                self.head = ((next - BASE) / ALIGN) as u32;
            }
            rung => {
                let found = RingDescriptor::decode(&[next, state]);
                if rung == Rung::Receive || found.cmd & cmd::RS != 0 {
                    let back = RingDescriptor {
                        sta: sta::DD,
                        ..found
                    };
                    let [_, word] = back.encode();
                    self.memory().write(head * RingDescriptor::WORDS + 1, word);
                }
                self.head = (self.head + 1) % self.entries;
            }
        }
        self.completed += 1;
    }
}
