// SPDX-License-Identifier: GPL-2.0
//! A device, software, and a CQ that is resized between any two completions.
//!
//! The rules decide; this file keeps apart from them what is true: which completion is where. Each
//! has a tag, in the first word of its entry.

use super::super::EXPLORES;
use qpair_model::rules::channel::Channel;
use qpair_model::rules::channel::Fire;
use qpair_model::rules::channel::Wants;
use qpair_queue::consumer::CqConsumer;
use qpair_queue::credit::RingId;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::resize::Stays;
use qpair_queue::resize::Switch;
use qpair_queue::storage::Storage;
use std::collections::VecDeque;
use std::hash::Hash;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::Mutex;

pub const LOST: &str = "a completion is lost, or out of order";
pub const INVENTED: &str = "a completion is read that was not written, or twice";
pub const ASLEEP: &str = "software sleeps though a completion is unread";
pub const PASSED: &str = "an unread completion counts as read";
pub const SMALL: &str = "a ring has fewer entries than are unread";

/// Resizes that software has not followed yet.
const AHEAD: usize = 2;
const WORDS: usize = 4;
const OWNER: u64 = 1 << 63;

/// The words of a ring; a handle.
#[derive(Clone, Debug)]
pub struct Words(Arc<Mutex<Vec<u64>>>);

impl Words {
    fn new(depth: Depth) -> Self {
        let words = depth.entries() as usize * WORDS;
        Self(Arc::new(Mutex::new(vec![0; words])))
    }

    fn all(&self) -> Vec<u64> {
        self.0.lock().expect("no panic in here").clone()
    }

    /// The device writes an entry.
    fn write(&self, depth: Depth, index: Index, tag: u64) {
        let at = depth.position(index) as usize * WORDS;
        let mut words = self.0.lock().expect("no panic in here");
        words[at] = tag;
        words[at + WORDS - 1] = if depth.owner(index) { OWNER } else { 0 };
    }

    /// Forgets the tag of an entry that was read, so that states differ by unread ones alone.
    fn forget(&self, depth: Depth, index: Index) {
        let at = depth.position(index) as usize * WORDS;
        self.0.lock().expect("no panic in here")[at] = 0;
    }
}

impl PartialEq for Words {
    fn eq(&self, other: &Self) -> bool {
        self.all() == other.all()
    }
}

impl Eq for Words {}

impl Hash for Words {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.all().hash(state);
    }
}

impl Storage for Words {
    fn words(&self) -> usize {
        self.0.lock().expect("no panic in here").len()
    }
    fn load(&self, at: usize) -> u64 {
        self.0.lock().expect("no panic in here")[at]
    }
    fn store(&self, _at: usize, _word: u64) {
        panic!("software writes no entry");
    }
    fn after_owner(&self) {}
    fn before_head(&self) {}
    fn before_tail(&self) {}
}

/// A ring that software has not gone on in yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Next {
    switch: Switch,
    ring: Words,
    depth: Depth,
}

/// What a notify is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sleep {
    Awake,
    /// The notify was written, with this sample; the device has not executed it.
    Written(Index),
    /// The device has executed it.
    Asked,
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct World {
    channel: Channel,
    /// log2 of the entries of the largest new ring.
    most: u8,
    /// The same of any ring, the first one included.
    largest: u8,
    /// The largest tag: more than can be unread.
    tags: u64,
    /// The ring that the device writes to.
    ring: Words,
    consumer: CqConsumer<Words>,
    next: VecDeque<Next>,
    /// Completions that were written and not read.
    unread: VecDeque<u64>,
    /// The indices of completions that no published head has passed, and how many were read.
    held: VecDeque<Index>,
    read: usize,
    sleep: Sleep,
    /// Software has found the CQ empty since the notify.
    empty: bool,
    /// An event that software has not taken.
    event: bool,
    /// What went wrong first.
    pub wrong: Option<&'static str>,
}

/// The memory is not shared with the world that it is a copy of.
impl Clone for World {
    fn clone(&self) -> Self {
        let copy = |words: &Words| Words(Arc::new(Mutex::new(words.all())));
        let mut consumer = self.consumer.clone();
        let mut next = self.next.clone();
        // The last of these rings is that of the device.
        let mut ring = copy(consumer.storage());
        consumer.replace_storage(ring.clone());
        for next in &mut next {
            ring = copy(&next.ring);
            next.ring = ring.clone();
        }
        Self {
            channel: self.channel.clone(),
            most: self.most,
            largest: self.largest,
            tags: self.tags,
            ring,
            consumer,
            next,
            unread: self.unread.clone(),
            held: self.held.clone(),
            read: self.read,
            sleep: self.sleep,
            empty: self.empty,
            event: self.event,
            wrong: self.wrong,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Write,
    Resize(u8),
    Poll,
    Publish,
    Arm,
    Notify,
    Execute,
    Event,
}

impl World {
    /// With a ring of `1 << log` entries, which begins at `first`, and new rings of at most
    /// `1 << most` entries.
    pub fn new(log: u8, most: u8, first: Index) -> Self {
        let depth = Depth::from_log2(log).expect("a depth");
        let first = depth.begin(first);
        let ring = Words::new(depth);
        let id = RingId::new(3, 0);
        let made = CqConsumer::starting_at(id, ring.clone(), depth, depth.entries(), first);
        let (consumer, _) = made.expect("a good ring");
        Self {
            channel: Channel::starting_at(depth, true, first),
            most,
            largest: log.max(most),
            tags: (AHEAD as u64 + 1) << log.max(most) | 1,
            ring,
            consumer,
            next: VecDeque::new(),
            unread: VecDeque::new(),
            held: VecDeque::new(),
            read: 0,
            sleep: Sleep::Awake,
            empty: false,
            event: false,
            wrong: None,
        }
    }

    pub fn actions(&self) -> Vec<Action> {
        let mut all = Vec::new();
        if self.wrong.is_some() {
            return all;
        }
        if !self.channel.window().is_full() {
            all.push(Action::Write);
        }
        // Software publishes now and then.
        let tail = self.channel.window().tail();
        let behind = tail.since(self.consumer.published().head());
        if self.next.len() < AHEAD && behind < 4 << self.most {
            all.extend((0..=self.most).map(Action::Resize));
        }
        let waits = self.sleep != Sleep::Awake;
        if !waits || !self.empty {
            all.push(Action::Poll);
        }
        if self.consumer.unpublished() != 0 {
            all.push(Action::Publish);
        }
        if !waits && !self.event {
            all.extend([Action::Arm, Action::Notify]);
        }
        if let Sleep::Written(_) = self.sleep {
            all.push(Action::Execute);
        }
        if self.event {
            all.push(Action::Event);
        }
        all
    }

    fn check(&mut self, holds: bool, what: &'static str) {
        if !holds && self.wrong.is_none() {
            self.wrong = Some(what);
        }
    }

    fn fire(&mut self, fire: Fire) {
        self.event |= fire == Fire::Now;
    }

    pub fn act(&mut self, action: Action) {
        match action {
            Action::Write => self.write(),
            Action::Resize(log) => self.resize(log),
            Action::Poll => self.poll(),
            Action::Publish => self.publish(),
            Action::Arm => {
                let mut at = Index::ZERO;
                self.consumer.publish(|head| at = head);
                self.let_go();
                match self.channel.arm(Wants::Next, at) {
                    Ok(fire) => self.fire(fire),
                    Err(_) => self.check(false, PASSED),
                }
                (self.sleep, self.empty) = (Sleep::Asked, true);
            }
            Action::Notify => {
                let sample = self.channel.window().tail();
                (self.sleep, self.empty) = (Sleep::Written(sample), false);
            }
            Action::Execute => {
                if let Sleep::Written(sample) = self.sleep {
                    self.sleep = Sleep::Asked;
                    let fire = self.channel.notify(Wants::Next, sample);
                    self.fire(fire);
                }
            }
            Action::Event => {
                self.event = false;
                (self.sleep, self.empty) = (Sleep::Awake, false);
                let fire = self.channel.passed();
                self.fire(fire);
            }
        }
        self.look();
        self.turn_back();
    }

    fn write(&mut self) {
        let tag = self.unread.back().map_or(1, |last| last % self.tags + 1);
        let Some((index, fire)) = self.channel.push(false) else {
            return;
        };
        self.ring.write(self.channel.window().depth(), index, tag);
        self.unread.push_back(tag);
        self.held.push_back(index);
        self.fire(fire);
    }

    fn resize(&mut self, log: u8) {
        let depth = Depth::from_log2(log).expect("a depth");
        let used = self.channel.window().used();
        let Ok(switch) = self.channel.resize(depth) else {
            return;
        };
        self.check(used <= depth.entries(), SMALL);
        self.ring = Words::new(depth);
        let ring = self.ring.clone();
        self.next.push_back(Next {
            switch,
            ring,
            depth,
        });
    }

    /// Reads one completion; at the end of a ring it goes on in the next one.
    fn poll(&mut self) {
        loop {
            // At any time; only at the end of its ring the consumer goes on in the next one.
            if let Some(next) = self.next.pop_front() {
                let Next { switch, depth, .. } = next;
                match self.consumer.switch(switch, next.ring, depth) {
                    Ok(_) => continue,
                    Err((ring, Stays::Unread)) => self.next.push_front(Next {
                        switch,
                        ring,
                        depth,
                    }),
                    Err((_, Stays::BadRing)) => self.check(false, LOST),
                }
            }
            let index = self.consumer.head();
            let Some(entry) = self.consumer.take() else {
                break;
            };
            let ring = self.consumer.storage();
            ring.forget(self.consumer.depth(), index);
            let [tag, ..] = entry.words;
            match self.unread.pop_front() {
                Some(wanted) => self.check(tag == wanted, LOST),
                None => self.check(false, INVENTED),
            }
            self.read += 1;
            return;
        }
        self.empty = true;
        self.check(self.unread.is_empty(), LOST);
    }

    fn publish(&mut self) {
        let mut at = Index::ZERO;
        self.consumer.publish(|head| at = head);
        self.let_go();
        let published = self.channel.head(at).is_ok();
        self.check(published, PASSED);
    }

    /// What was read is published.
    fn let_go(&mut self) {
        self.held.drain(..self.read.min(self.held.len()));
        self.read = 0;
    }

    /// What holds between any two actions.
    fn look(&mut self) {
        let waits = self.sleep == Sleep::Asked && self.empty && !self.event;
        self.check(!waits || self.unread.is_empty(), ASLEEP);
        let published = self.channel.published();
        let oldest = self.held.front().copied();
        let early = oldest.is_some_and(|oldest| !oldest.reaches(published));
        self.check(!early, PASSED);
    }

    /// Keeps the indices small, which makes states that differ in passes alone the same.
    fn turn_back(&mut self) {
        if !EXPLORES {
            return;
        }
        // A sample that the head has passed is as good as the newest such one.
        let head = self.channel.window().head();
        if let Sleep::Written(sample) = &mut self.sleep {
            if !sample.reaches(head) {
                *sample = head.plus(u32::MAX);
            }
        }
        // Whole pairs of passes of the largest ring.
        let span = 2 << self.largest;
        let published = self.channel.published().get();
        let least = published.min(self.consumer.published().head().get());
        let by = 0u32.wrapping_sub(least / span * span);
        self.channel.rotate(by);
        self.consumer.rotate(by);
        for next in &mut self.next {
            next.switch.end = next.switch.end.plus(by);
            next.switch.begin = next.switch.begin.plus(by);
        }
        for index in &mut self.held {
            *index = index.plus(by);
        }
        if let Sleep::Written(sample) = &mut self.sleep {
            *sample = sample.plus(by);
        }
    }
}
