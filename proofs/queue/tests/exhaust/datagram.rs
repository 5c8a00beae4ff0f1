// SPDX-License-Identifier: GPL-2.0
//! Datagrams: senders, a receiver that may have no receive, and one CQ for all of them. Every
//! interleaving of posts, deliveries, drops, polls, heads, and of the receiver's end.
//!
//! A send queue does not wait for the receiver. So each send completes, whatever becomes of its
//! datagram, and a drop leaves the receives as they are.

use super::memory::Blocks;
use super::memory::Written;
use super::search::holds;
use super::search::is_found;
use super::search::Instance;
use qpair_queue::consumer::CqConsumer;
use qpair_queue::credit::Kind;
use qpair_queue::credit::RingId;
use qpair_queue::credit::Rq;
use qpair_queue::credit::Sq;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::mutant::activate;
use qpair_queue::mutant::Mutant;
use qpair_queue::producer::Producer;
use std::collections::VecDeque;

const OVERRUN: &str = "the CQ is overrun";
const OVERWRITTEN: &str = "a request is overwritten before the device has read it";
const LOST: &str = "a receive or a send is lost";
const WRONG: &str = "a completion is not that of the oldest request";
const IMBALANCE: &str = "slots do not add up";
const STUCK: &str = "a queue can never be posted to again";
const ALL: [&str; 6] = [OVERRUN, OVERWRITTEN, LOST, WRONG, IMBALANCE, STUCK];

/// Words of the memory of the CQ: of at most 8 entries.
const WORDS: usize = 8 * 4;

/// What the device does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    /// A datagram that is too long takes the receive.
    DropTakes,
    /// A send whose datagram is dropped has no completion.
    DropSilent,
    /// A receiver that ends keeps its receives.
    EndKeeps,
}

#[derive(Clone, Copy, Debug)]
struct Datagrams {
    senders: usize,
    sends: u32,
    receives: u32,
    mutant: Option<Mutant>,
    wrong: Option<Wrong>,
}

/// A request that the device has not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Request {
    signaled: bool,
    /// A datagram that fits into no receive.
    long: bool,
}

/// A completion that software has not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Completion {
    /// The sender, or the number of senders for the receiver.
    queue: usize,
    index: Index,
}

fn before(index: Index, count: u32) -> Index {
    index.plus(0u32.wrapping_sub(count))
}

/// A work queue: software's side, and the requests that the device has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Queue<K: Kind> {
    producer: Producer<Blocks, K>,
    todo: VecDeque<Request>,
    /// Executed since its last completion.
    silent: u32,
    /// Completions that software has not read.
    unread: u32,
}

impl<K: Kind> Queue<K> {
    fn new(ring: RingId, cq: RingId, capacity: u32) -> Self {
        let depth = Depth::at_least(capacity).expect("a depth");
        let blocks = Blocks::new(depth);
        let made = Producer::starting_at(ring, cq, blocks, depth, 0, capacity, Index::ZERO);
        Self {
            producer: made.expect("a good ring"),
            todo: VecDeque::new(),
            silent: 0,
            unread: 0,
        }
    }

    /// Posts a request and hands it over; whether there was room.
    fn post(&mut self, request: Request) -> bool {
        let Ok(mut room) = self.producer.room(1, request.signaled) else {
            return false;
        };
        let signaled = room.signaled();
        room.write(0, &[0; 8]);
        room.post();
        self.producer.ring(|_| ());
        self.todo.push_back(Request {
            signaled,
            ..request
        });
        true
    }

    /// The device executes the oldest request: the index past it.
    fn execute(&mut self) -> Option<(Request, Index)> {
        let first = before(self.producer.tail(), self.todo.len() as u32);
        let request = self.todo.pop_front()?;
        Some((request, first.plus(1)))
    }

    /// Lays out the memory that the device may read, and keeps the indices small: by how much they
    /// are moved, those of the CQ by `cq`.
    fn settle(&mut self, cq: u32) -> u32 {
        let depth = self.producer.depth().entries();
        let done = before(self.producer.tail(), self.producer.in_flight());
        let by = 0u32.wrapping_sub(done.get() / depth * depth);
        self.producer.rotate(by, cq);
        let count = self.todo.len() as u32;
        let first = before(self.producer.tail(), count);
        self.producer.storage().lay_out(first, count);
        by
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    senders: Vec<Queue<Sq>>,
    receiver: Queue<Rq>,
    /// It takes no datagram, and its receives are flushed.
    ended: bool,
    cq: CqConsumer<Written<WORDS>>,
    capacity: u32,
    unread: VecDeque<Completion>,
    wrong: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Send(usize, Request),
    Receive,
    /// The device executes a send.
    Execute(usize),
    End,
    /// The receiver is ready again, once it has nothing posted.
    Begin,
    Read,
    Publish,
    /// Software looks for slots that it may use again.
    Reclaim,
}

impl World {
    fn new(instance: &Datagrams) -> Self {
        let capacity = instance.senders as u32 * instance.sends + instance.receives;
        let depth = Depth::at_least(capacity).expect("a depth");
        let cq = RingId::new(1, 0);
        let made = CqConsumer::new(cq, Written::new(), depth, capacity);
        let (consumer, _) = made.expect("a good ring");
        let ring = |nth: usize| RingId::new(10 + nth as u32, 0);
        let sender = |nth| Queue::new(ring(nth), cq, instance.sends);
        Self {
            senders: (0..instance.senders).map(sender).collect(),
            receiver: Queue::new(ring(instance.senders), cq, instance.receives),
            ended: false,
            cq: consumer,
            capacity,
            unread: VecDeque::new(),
            wrong: None,
        }
    }

    fn actions(&self, actions: &mut Vec<Action>) {
        if self.wrong.is_some() {
            return;
        }
        for (nth, sender) in self.senders.iter().enumerate() {
            if sender.producer.free() != 0 {
                let kinds = [(true, false), (false, false), (true, true)];
                let requests = kinds.map(|(signaled, long)| Request { signaled, long });
                actions.extend(requests.map(|request| Action::Send(nth, request)));
            }
            if !sender.todo.is_empty() {
                actions.push(Action::Execute(nth));
            }
        }
        if self.receiver.producer.free() != 0 {
            actions.push(Action::Receive);
        }
        let idle = self.receiver.todo.is_empty() && self.receiver.unread == 0;
        match self.ended {
            false => actions.push(Action::End),
            true if idle => actions.push(Action::Begin),
            true => {}
        }
        if !self.unread.is_empty() {
            actions.push(Action::Read);
        }
        if self.cq.unpublished() != 0 {
            actions.extend([Action::Publish, Action::Reclaim]);
        }
    }

    fn check(&mut self, holds: bool, what: &'static str) {
        if !holds && self.wrong.is_none() {
            self.wrong = Some(what);
        }
    }

    fn act(&mut self, action: Action, wrong: Option<Wrong>) {
        match action {
            Action::Send(nth, request) => {
                let posted = self.senders[nth].post(request);
                self.check(posted, IMBALANCE);
            }
            Action::Receive => {
                let posted = self.receiver.post(Request {
                    signaled: true,
                    long: false,
                });
                self.check(posted, IMBALANCE);
                self.flush(wrong);
            }
            Action::Execute(nth) => self.execute(nth, wrong),
            Action::End => {
                self.ended = true;
                self.flush(wrong);
            }
            Action::Begin => self.ended = false,
            Action::Read => self.read(),
            Action::Publish => {
                self.cq.publish(|_| ());
                self.reclaim();
            }
            Action::Reclaim => self.reclaim(),
        }
        self.look();
        self.settle();
    }

    fn reclaim(&mut self) {
        let published = self.cq.published();
        for sender in &mut self.senders {
            sender.producer.reclaim(published);
        }
        self.receiver.producer.reclaim(published);
    }

    /// The receives of a receiver that has ended complete.
    fn flush(&mut self, wrong: Option<Wrong>) {
        while self.ended && wrong != Some(Wrong::EndKeeps) {
            let Some((_, index)) = self.receiver.execute() else {
                return;
            };
            self.complete_receive(index);
        }
    }

    fn complete_receive(&mut self, index: Index) {
        self.receiver.unread += 1;
        let queue = self.senders.len();
        self.unread.push_back(Completion { queue, index });
    }

    /// Delivers a datagram or drops it; the send completes.
    fn execute(&mut self, nth: usize, wrong: Option<Wrong>) {
        let Some((request, index)) = self.senders[nth].execute() else {
            return;
        };
        let mut dropped = true;
        if !self.ended && !request.long {
            if let Some((_, index)) = self.receiver.execute() {
                self.complete_receive(index);
                dropped = false;
            }
        } else if request.long && wrong == Some(Wrong::DropTakes) {
            self.receiver.execute();
        }
        let silent = dropped && wrong == Some(Wrong::DropSilent);
        let sender = &mut self.senders[nth];
        if request.signaled && !silent {
            sender.silent = 0;
            sender.unread += 1;
            let queue = nth;
            self.unread.push_back(Completion { queue, index });
        } else {
            sender.silent += 1;
        }
    }

    fn read(&mut self) {
        let (Some(entry), Some(wanted)) = (self.cq.take(), self.unread.pop_front()) else {
            return self.check(false, LOST);
        };
        let [queue, index, ..] = entry.words;
        let same = (queue as usize, index as u32) == (wanted.queue, wanted.index.get());
        self.check(same, WRONG);
        let completed = match self.senders.get_mut(wanted.queue) {
            Some(sender) => {
                sender.unread -= 1;
                sender.producer.complete(wanted.index, entry.seen)
            }
            None => {
                self.receiver.unread -= 1;
                self.receiver.producer.complete(wanted.index, entry.seen)
            }
        };
        self.check(completed.is_ok_and(|count| count != 0), WRONG);
    }

    /// What holds between any two actions.
    fn look(&mut self) {
        let written = self.unread.len() as u32 + self.cq.unpublished();
        self.check(written <= self.capacity, OVERRUN);
        let sends = self.senders.iter().all(is_sound);
        let sound = sends && is_sound(&self.receiver);
        self.check(sound, IMBALANCE);
        let twice = |blocks: &Blocks| blocks.twice();
        let any = self.senders.iter().any(|it| twice(it.producer.storage()));
        let any = any || twice(self.receiver.producer.storage());
        self.check(!any, OVERWRITTEN);
        // Each receive is at the device, or has a completion.
        let receiver = &self.receiver;
        let known = receiver.todo.len() as u32 + receiver.unread;
        let kept = receiver.producer.in_flight() == known;
        self.check(kept && (!self.ended || known == self.receiver.unread), LOST);
        // A queue of which nothing is to come can be posted to.
        let rests = self.unread.is_empty() && self.cq.unpublished() == 0;
        let full = |queue: &Queue<Sq>| queue.todo.is_empty() && queue.producer.free() == 0;
        let stuck = rests && self.senders.iter().any(full);
        let receiver = &self.receiver;
        let stuck = stuck || rests && receiver.todo.is_empty() && receiver.producer.free() == 0;
        self.check(!stuck, STUCK);
    }

    /// Lays out the memory, and keeps the indices small.
    fn settle(&mut self) {
        let depth = self.cq.depth();
        let span = 2 * depth.entries();
        let by = 0u32.wrapping_sub(self.cq.published().head().get() / span * span);
        self.cq.rotate(by);
        let mut moved: Vec<u32> = self.senders.iter_mut().map(|it| it.settle(by)).collect();
        moved.push(self.receiver.settle(by));
        for completion in &mut self.unread {
            completion.index = completion.index.plus(moved[completion.queue]);
        }
        let entries = self.unread.iter();
        let entries = entries.map(|it| [it.queue as u64, it.index.get().into(), 0, 0]);
        self.cq.storage().lay_out(depth, self.cq.head(), entries);
    }
}

fn is_sound<K: Kind>(queue: &Queue<K>) -> bool {
    queue.producer.audit().is_ok()
}

impl Instance for Datagrams {
    type World = World;
    type Action = Action;

    fn activate(&self) {
        activate(self.mutant);
    }

    fn first(&self) -> World {
        World::new(self)
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        world.actions(actions);
    }

    fn act(&self, world: &mut World, action: Action) -> bool {
        world.act(action, self.wrong);
        true
    }

    fn violates(&self, world: &World, rule: &'static str) -> bool {
        world.wrong == Some(rule)
    }
}

/// One sender and two receives.
const ONE: Datagrams = Datagrams {
    senders: 1,
    sends: 2,
    receives: 2,
    mutant: None,
    wrong: None,
};

#[test]
fn datagrams_complete_and_drops_take_nothing() {
    for (senders, sends, receives) in [(1, 1, 1), (1, 2, 2), (1, 5, 1), (2, 1, 2), (2, 2, 1)] {
        let name = format!("datagrams, {senders} senders of {sends}, {receives} receives");
        let instance = Datagrams {
            senders,
            sends,
            receives,
            ..ONE
        };
        holds(name, instance, &ALL);
    }
}

#[test]
fn wrong_datagrams_are_found() {
    let rule = |mutant| Datagrams {
        mutant: Some(mutant),
        ..ONE
    };
    // With fewer slots each send is signaled.
    let silent = |mutant| Datagrams {
        sends: 5,
        receives: 1,
        ..rule(mutant)
    };
    let device = |wrong| Datagrams {
        wrong: Some(wrong),
        ..ONE
    };
    for (instance, wanted) in [
        (rule(Mutant::FreeBeforePublish), OVERRUN),
        (rule(Mutant::CompletesAll), OVERWRITTEN),
        (silent(Mutant::CompletesOne), STUCK),
        (silent(Mutant::NeverSignal), STUCK),
        (rule(Mutant::SlotSplitTwice), IMBALANCE),
        (device(Wrong::DropTakes), LOST),
        (device(Wrong::DropSilent), STUCK),
        (device(Wrong::EndKeeps), LOST),
    ] {
        let name = instance.mutant.map_or("a wrong device", Mutant::what);
        is_found(name, instance, wanted);
    }
}
