// SPDX-License-Identifier: GPL-2.0
//! A state of the event path, and what can happen in it.
//!
//! The poll is the driver's own, and goes on step by step: between any two of its effects the device, the processes and
//! the control path (but that waits for a poll that runs) may do anything. Nothing counts how often: queue pairs post for ever, and a run
//! of any length is a path in a graph that is finite because each ring is moved back to where it began ([`Poller::rotate`]).
//!
//! What is one action though it is more than one write, and why that hides nothing:
//! - *a doorbell and what the device does at once*: PCI keeps the order of a CPU's doorbells, and between one and its effect software reads nothing
//!   that the effect could have changed;
//! - *a CQE, its EQE and the interrupt*: in memory in this order, and the poll looks for the first only after it has read the second, and for
//!   that only after the third, or because it looks anyway, which is another action's place;
//! - *up to k completions of a turn*: what the device adds between two of them might as well have been added before all.

use super::memory::Written;
use super::world::event;
use super::world::World;
use super::world::FIRST;
use ahash::AHasher;
use qpair_abi::entry::Eqe;
use qpair_queue::arm::EventSlots;
use qpair_queue::channel::Fire;
use qpair_queue::consumer::EqConsumer;
use qpair_queue::credit::RingId;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::mask::EventQueue;
use qpair_queue::mask::Moderation;
use qpair_queue::poll::Node;
use qpair_queue::poll::Poller;
use qpair_queue::poll::Run;
use qpair_queue::poll::Tuning;
use qpair_queue::poll::Verdict;
use std::hash::Hash;
use std::hash::Hasher;

/// Entries of the EQ's memory.
const DEPTH: u32 = 8;

/// How often an asynchronous event repeats before it is told.
const REPEATS: u8 = 2;

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub struct Instance {
    /// CQs that are there at first, of the kernel and of processes; and numbers that are free, of the kernel's.
    pub kernel: usize,
    pub process: usize,
    pub unborn: usize,
    /// Queue pairs of each CQ, places for them, and blocks of each.
    pub pairs: usize,
    pub places: usize,
    pub blocks: u32,
    /// Sources of asynchronous events.
    pub sources: usize,
    /// CQs that are destroyed and made again, as bits; and those whose queue pairs are. Unread entries or not.
    pub cqs_go: u8,
    pub pairs_go: u8,
    /// A process may arm though it is awake, and has armed.
    pub rearm: bool,
    /// EQ slots beyond one for each CQ: for asynchronous events, and to arm with.
    pub reserve: u32,
    pub spare: u32,
    /// Any of them at the beginning of any poll.
    pub tunings: &'static [Tuning],
    /// It is also shown that the others come to rest while this CQ never drains.
    pub hog: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub poller: Poller<Written<{ 2 * DEPTH as usize }>>,
    pub run: Option<Run>,
    pub scheduled: bool,
    pub world: World,
    /// The hash of all that, which is asked for more often than it changes.
    pub print: u64,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.print);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The device executes a work request of this CQ's queue pair.
    Complete(usize, usize),
    /// An asynchronous event.
    Happen(usize),
    Interrupt,
    /// A poll begins, with one of the tunings; goes on.
    Begin(usize),
    Step,
    Post(usize, usize),
    /// A process reads a completion; publishes the head; arms and sleeps; arms and does not.
    Read(usize),
    Head(usize),
    Sleep(usize),
    Rearm(usize),
    DestroyPair(usize, usize),
    CreatePair(usize, usize),
    Destroy(usize),
    Create(usize),
}

impl State {
    pub fn new(instance: &Instance) -> Self {
        let depth = Depth::new(DEPTH).expect("a depth");
        let born = instance.kernel + instance.process;
        let capacity = born as u32 + instance.spare + instance.reserve;
        let ring = RingId::new(0, 0);
        let (eq, pool) =
            EqConsumer::starting_at(ring, Written::new(), depth, capacity, FIRST).expect("a ring");
        let slots = EventSlots::new(pool, instance.reserve, instance.spare).expect("slots");
        let device = EventQueue::starting_at(depth, Moderation::default(), FIRST);
        let mut state = Self {
            poller: Poller::new(eq, slots),
            run: None,
            scheduled: true,
            world: World::new(instance, device, capacity),
            print: 0,
        };
        for i in 0..born {
            state.create(i, instance);
        }
        state.settle(FIRST);
        state
    }

    fn create(&mut self, i: usize, instance: &Instance) {
        let user = self.world.cqs[i].user;
        let node = match user {
            true => self.poller.bind_process(),
            false => self.poller.bind_kernel(),
        };
        // Full until the head has passed what was destroyed.
        let Ok(node) = node else { return };
        let number = self.world.insert(i, node, instance);
        if !user {
            self.poller.start(&mut self.world, number);
            self.scheduled = true;
        }
    }

    fn destroy(&mut self, i: usize) {
        let number = self.world.cqs[i].number;
        let until = self.world.eq.window().tail();
        self.poller.unbind(&mut self.world, number, until);
        self.world.cqs[i].body = None;
        self.world.cqs[i].awake = true;
    }

    pub fn actions(&self, instance: &Instance, actions: &mut Vec<Action>) {
        let world = &self.world;
        if world.fault.is_some() {
            return;
        }
        if self.run.is_some() {
            actions.push(Action::Step);
        } else if self.scheduled {
            actions.extend((0..instance.tunings.len()).map(Action::Begin));
        }
        if world.interrupt {
            actions.push(Action::Interrupt);
        }
        for (i, source) in world.sources.iter().enumerate() {
            if source.owed < REPEATS {
                actions.push(Action::Happen(i));
            }
        }
        for (i, cq) in world.cqs.iter().enumerate() {
            // The control path waits for a poll that runs.
            let control = self.run.is_none();
            let goes = control && instance.cqs_go >> i & 1 != 0;
            let pairs_go = control && instance.pairs_go >> i & 1 != 0;
            let Some(body) = &cq.body else {
                if goes && !world.is_named(i) && self.poller.slots().unbound() != 0 {
                    actions.push(Action::Create(i));
                }
                continue;
            };
            for (at, place) in body.places.iter().enumerate() {
                if let Some(pair) = &place.pair {
                    if !pair.given.is_empty() {
                        actions.push(Action::Complete(i, at));
                    }
                    // It is refused if the SQ is full.
                    actions.push(Action::Post(i, at));
                    if pairs_go {
                        actions.push(Action::DestroyPair(i, at));
                    }
                } else if pairs_go && body.may_create(at, instance.blocks) {
                    actions.push(Action::CreatePair(i, at));
                }
            }
            if cq.user && cq.awake {
                actions.push(match body.unread() {
                    0 => Action::Sleep(i),
                    _ => Action::Read(i),
                });
                if body.consumer.unpublished() != 0 {
                    actions.push(Action::Head(i));
                }
                if instance.rearm {
                    actions.push(Action::Rearm(i));
                }
            }
            if goes {
                actions.push(Action::Destroy(i));
            }
        }
    }

    pub fn act(&mut self, instance: &Instance, action: Action) {
        let world = &mut self.world;
        let number = |world: &World, i: usize| world.cqs[i].number;
        match action {
            Action::Complete(i, at) => world.act(number(world, i), |body| body.complete(at)),
            Action::Happen(i) => world.happen(i),
            Action::Interrupt => {
                world.interrupt = false;
                self.scheduled = true;
            }
            Action::Begin(i) => {
                // What comes while it runs schedules it once more.
                self.scheduled = false;
                self.run = Some(self.poller.begin(instance.tunings[i]));
            }
            Action::Step => {
                let Some(run) = &mut self.run else { return };
                if let Some(verdict) = self.poller.step(run, world) {
                    self.scheduled |= verdict == Verdict::Again;
                    self.run = None;
                    if self.poller.eq().unpublished() != 0 {
                        world.broken("a poll ends with events unpublished");
                    }
                }
            }
            Action::Post(i, at) => {
                world.act(number(world, i), |body| body.post(at).map(|()| Fire::No));
            }
            Action::Read(i) => world.act(number(world, i), |body| {
                body.consume(1);
                Ok(Fire::No)
            }),
            Action::Head(i) => world.act(number(world, i), |body| body.publish(false)),
            Action::Sleep(i) | Action::Rearm(i) => {
                world.cqs[i].awake = action == Action::Rearm(i);
                world.act(number(world, i), |body| body.publish(true));
            }
            Action::DestroyPair(i, at) => {
                world.act(number(world, i), |body| {
                    body.destroy_pair(at).map(|()| Fire::No)
                });
            }
            Action::CreatePair(i, at) => world.act(number(world, i), |body| {
                body.create_pair(at, instance.blocks);
                Ok(Fire::No)
            }),
            Action::Destroy(i) => self.destroy(i),
            Action::Create(i) => self.create(i, instance),
        }
    }

    /// Moves each ring to where it stands at `first`, so that what differs in nothing else is one state.
    pub fn settle(&mut self, first: Index) {
        let by = first.since(self.world.eq.window().head());
        self.poller.rotate(by);
        self.world.settle(first);
        let eq = self.poller.eq();
        let events = self.world.events.iter();
        let words = events.map(|written| Eqe::encode(&event(written)));
        eq.storage().lay_out(eq.depth(), first, words);
        let bodies = self.world.cqs.iter().filter_map(|cq| cq.body.as_ref());
        let nodes = bodies.filter_map(|body| body.node.as_ref());
        let held = nodes.map(Node::held).sum();
        if self.poller.audit(held).is_err() {
            self.world.broken("EQ slots do not add up");
        }
        let mut hasher = AHasher::default();
        let all = (&self.poller, &self.run, self.scheduled, &self.world);
        all.hash(&mut hasher);
        self.print = hasher.finish();
    }

    pub fn next(&self, instance: &Instance, action: Action) -> Self {
        let mut next = self.clone();
        next.act(instance, action);
        next.settle(FIRST);
        next
    }

    /// The driver has nothing to do, as far as it knows.
    pub fn is_asleep(&self) -> bool {
        self.run.is_none() && !self.scheduled && !self.world.interrupt
    }

    /// CQ `i` waits for completions that the device has still to make, and for nothing else; or is not there.
    pub fn is_served(&self, i: usize) -> bool {
        let cq = &self.world.cqs[i];
        let Some(body) = &cq.body else { return true };
        let pairs = body.places.iter().filter_map(|place| place.pair.as_ref());
        let mut pairs = pairs.map(|pair| pair.given.is_empty() && pair.sq.covered() == 0);
        let waits = match cq.user {
            true => !cq.awake,
            false => body.channel.open().is_some(),
        };
        waits && body.unread() == 0 && body.limbo.count() == 0 && pairs.all(|idle| idle)
    }

    /// Nothing is under way.
    pub fn is_rest(&self) -> bool {
        let world = &self.world;
        self.is_asleep()
            && self.poller.slots().limbo() == 0
            && world.sources.iter().all(|source| source.owed == 0)
            && (0..world.cqs.len()).all(|i| self.is_served(i))
    }

    /// Nothing is under way but of this CQ.
    pub fn is_rest_beside(&self, hog: usize) -> bool {
        let world = &self.world;
        world.sources.iter().all(|source| source.owed == 0)
            && (0..world.cqs.len()).all(|i| i == hog || self.is_served(i))
    }

    /// What happens if everybody ends what is begun, and nobody begins anything.
    pub fn ending(&self) -> Option<Action> {
        for (i, cq) in self.world.cqs.iter().enumerate() {
            let Some(body) = &cq.body else { continue };
            if let Some(at) = body.position(|pair| !pair.given.is_empty()) {
                return Some(Action::Complete(i, at));
            }
            if cq.user && cq.awake {
                return Some(match body.unread() {
                    0 => Action::Sleep(i),
                    _ => Action::Read(i),
                });
            }
        }
        if self.run.is_some() {
            Some(Action::Step)
        } else if self.scheduled {
            Some(Action::Begin(0))
        } else {
            self.world.interrupt.then_some(Action::Interrupt)
        }
    }

    /// The same, but that this CQ is kept as full as can be.
    pub fn ending_beside(&self, hog: usize) -> Option<Action> {
        let body = self.world.cqs[hog].body.as_ref();
        match body.and_then(|body| body.position(|pair| pair.sq.free() != 0)) {
            Some(at) => Some(Action::Post(hog, at)),
            None => self.ending(),
        }
    }
}
