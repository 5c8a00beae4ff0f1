// SPDX-License-Identifier: GPL-2.0
//! The instance: its state, and what can happen in it.

use qpair_abi::entry::Eqe;
use qpair_abi::status::Event;
use qpair_abi::Number;
use qpair_queue::arm::EventSlots;
use qpair_queue::channel::Channel;
use qpair_queue::channel::Fire;
use qpair_queue::channel::Wants;
use qpair_queue::consumer::EqConsumer;
use qpair_queue::credit::RingId;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::mask::EventQueue;
use qpair_queue::mask::Gate;
use qpair_queue::mask::Line;
use qpair_queue::mask::Moderation;
use qpair_queue::mask::Notice;
use qpair_queue::poll::Consumed;
use qpair_queue::poll::Effects;
use qpair_queue::poll::Node;
use qpair_queue::poll::Poller;
use qpair_queue::poll::Run;
use qpair_queue::poll::Tuning;
use qpair_queue::poll::Verdict;
use qpair_queue::storage::Storage;
use std::cell::RefCell;

const DEPTH: u32 = 8;
const FIRST: u32 = u32::MAX - 2;
const OWNER: u64 = 1 << 63;

std::thread_local! {
    /// The EQ's memory, of the state that is being worked on.
    static MEMORY: RefCell<[u64; 2 * DEPTH as usize]> = const { RefCell::new([0; 2 * DEPTH as usize]) };
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Here;

impl Storage for Here {
    fn words(&self) -> usize {
        2 * DEPTH as usize
    }
    fn load(&self, at: usize) -> u64 {
        MEMORY.with_borrow(|memory| memory[at])
    }
    fn store(&self, _at: usize, _word: u64) {
        panic!("software never writes an event");
    }
    fn after_owner(&self) {}
    fn before_head(&self) {}
    fn before_tail(&self) {}
}

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub struct Instance {
    pub kernel: usize,
    pub process: usize,
    /// Numbers that are free: CQs of the kernel that nobody has paid for yet.
    pub unborn: usize,
    /// Completions of each CQ, and asynchronous events.
    pub work: u8,
    pub asyncs: u8,
    /// Kernel CQs may be destroyed, and made again at the same index.
    pub destroys: u8,
    /// Arms of processes that have not even looked.
    pub rearms: u8,
    /// EQ slots beyond one for each CQ: to arm with, and for asynchronous events.
    pub spare: u32,
    pub reserve: u32,
    pub tuning: Tuning,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SoftCq {
    number: Number,
    node: Option<Node>,
    channel: Channel,
    head: Index,
    /// Completions still to come.
    work: u8,
    user: bool,
    awake: bool,
    alive: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    cqs: Vec<SoftCq>,
    eq: EventQueue,
    /// Whose each entry is; `None` is the asynchronous source.
    shadow: Vec<Option<Number>>,
    capacity: u32,
    gate: Gate,
    notice: Notice,
    waiting: bool,
    asyncs: u8,
    happened: u8,
    told: u8,
    destroys: u8,
    rearms: u8,
    interrupt: bool,
    masked: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    memory: [u64; 2 * DEPTH as usize],
    poller: Poller<Here>,
    run: Option<Run>,
    scheduled: bool,
    world: World,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Complete(usize),
    Happen,
    Interrupt,
    Step,
    /// A process reads one completion; arms and sleeps; arms again though it is awake.
    Read(usize),
    Sleep(usize),
    Rearm(usize),
    Destroy(usize),
    Create(usize),
}

impl World {
    fn cq(&mut self, number: Number) -> Option<&mut SoftCq> {
        let cq = self.cqs.get_mut(number.index())?;
        (cq.alive && cq.number == number).then_some(cq)
    }

    fn write(&mut self, origin: Option<Number>, event: Eqe) {
        assert!(self.eq.window().used() < self.capacity, "EQ overflow");
        let index = self.eq.push(0).expect("EQ overflow");
        let depth = self.eq.window().depth();
        let mut words = event.encode();
        words[1] |= if depth.owner(index) { OWNER } else { 0 };
        let at = 2 * depth.position(index) as usize;
        MEMORY.with_borrow_mut(|memory| memory[at..at + 2].copy_from_slice(&words));
        if let Some(number) = origin {
            let user = self.cqs[number.index()].user;
            let there = self.shadow.contains(&origin);
            assert!(!user || !there, "second event of a process's CQ");
        }
        self.shadow.push(origin);
        self.line();
    }

    fn line(&mut self) {
        if self.eq.line(0) == Line::Raise {
            assert!(!self.masked, "raised while masked");
            (self.masked, self.interrupt) = (true, true);
        }
    }

    fn fire(&mut self, number: Number, fire: Fire) {
        if fire == Fire::Now {
            let kind = Event::Completion.code();
            self.write(
                Some(number),
                Eqe {
                    number,
                    count: 1,
                    kind,
                    code: 0,
                },
            );
        }
    }

    fn arm(&mut self, number: Number) {
        let cq = self.cq(number).expect("a CQ that is there");
        let fire = cq.channel.arm(Wants::Next, cq.head).expect("a legal arm");
        self.fire(number, fire);
    }

    fn pump(&mut self) {
        if !self.waiting {
            return;
        }
        if let Some(count) = self.gate.write(&mut self.notice) {
            self.waiting = false;
            let kind = Event::QpFatal.code();
            self.write(
                None,
                Eqe {
                    number: Number::ADMIN,
                    count,
                    kind,
                    code: 0,
                },
            );
        }
    }
}

impl Effects for World {
    fn node(&mut self, number: Number) -> Option<&mut Node> {
        self.cq(number)?.node.as_mut()
    }
    fn consume(&mut self, number: Number, max: u32) -> Consumed {
        let cq = self.cq(number).expect("a CQ that is there");
        let waiting = cq.channel.window().tail().since(cq.head);
        let count = max.min(waiting);
        cq.head = cq.head.plus(count);
        Consumed {
            count,
            drained: count == waiting,
        }
    }
    fn publish(&mut self, number: Number, arm: bool) {
        if arm {
            self.arm(number);
        } else {
            let cq = self.cq(number).expect("a CQ that is there");
            cq.channel.head(cq.head).expect("a legal head");
        }
    }
    fn signal(&mut self, number: Number) {
        if let Some(cq) = self.cq(number) {
            cq.awake = true;
        }
    }
    fn asynchronous(&mut self, event: Eqe) {
        self.told += event.count as u8;
    }
    fn doorbell(&mut self, head: Index, unmask: bool) {
        let (from, to) = self.eq.head(head, unmask).expect("a legal head");
        if unmask {
            self.masked = false;
        }
        let passed: Vec<_> = self.shadow.drain(..to.since(from) as usize).collect();
        for origin in passed {
            match origin {
                Some(number) => {
                    let cq = self.cq(number).filter(|cq| cq.user);
                    if let Some(fire) = cq.map(|cq| cq.channel.passed()) {
                        self.fire(number, fire);
                    }
                }
                None => self.waiting |= self.gate.passed(Some(&mut self.notice)),
            }
        }
        self.pump();
        self.line();
    }
}

impl State {
    pub fn new(instance: Instance) -> Self {
        let depth = Depth::new(DEPTH).unwrap();
        let first = Index::new(FIRST);
        let mut memory = [0; 2 * DEPTH as usize];
        for i in 0..DEPTH {
            let index = first.plus(i);
            if !depth.owner(index) {
                memory[2 * depth.position(index) as usize + 1] = OWNER;
            }
        }
        let cqs = instance.kernel + instance.process;
        let capacity = cqs as u32 + instance.spare + instance.reserve;
        let ring = RingId::new(0, 0);
        let (eq, pool) = EqConsumer::starting_at(ring, Here, depth, capacity, first).unwrap();
        let slots = EventSlots::new(pool, instance.reserve, instance.spare).unwrap();
        let mut state = Self {
            memory,
            poller: Poller::new(eq, slots),
            run: None,
            scheduled: true,
            world: World {
                cqs: Vec::new(),
                eq: EventQueue::starting_at(depth, Moderation::default(), first),
                shadow: Vec::new(),
                capacity,
                gate: Gate::new(1),
                notice: Notice::default(),
                waiting: false,
                asyncs: instance.asyncs,
                happened: 0,
                told: 0,
                destroys: instance.destroys,
                rearms: instance.rearms,
                interrupt: false,
                masked: false,
            },
        };
        for i in 0..cqs + instance.unborn {
            let user = (instance.kernel..cqs).contains(&i);
            let number = Number::new(i as u16, 1);
            state.world.cqs.push(SoftCq {
                number,
                node: None,
                channel: Channel::new(Depth::new(4).unwrap(), user),
                head: Index::ZERO,
                work: instance.work,
                user,
                awake: true,
                alive: false,
            });
            if i < cqs {
                state.create(i, number);
            }
        }
        state
    }

    fn create(&mut self, i: usize, number: Number) {
        let user = self.world.cqs[i].user;
        let node = match user {
            true => self.poller.bind_process(),
            false => self.poller.bind_kernel(),
        };
        // Full until the head has passed what was destroyed.
        let Ok(node) = node else { return };
        let cq = &mut self.world.cqs[i];
        cq.number = number;
        cq.node = Some(node);
        cq.channel = Channel::new(Depth::new(4).unwrap(), user);
        (cq.head, cq.alive, cq.awake) = (Index::ZERO, true, true);
        if !user {
            self.poller.start(&mut self.world, number);
            self.scheduled = true;
        }
    }

    pub fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.run.is_some() || self.scheduled {
            actions.push(Action::Step);
        }
        if self.world.interrupt {
            actions.push(Action::Interrupt);
        }
        if self.world.asyncs > 0 {
            actions.push(Action::Happen);
        }
        for (i, cq) in self.world.cqs.iter().enumerate() {
            if cq.alive && cq.work > 0 && !cq.channel.window().is_full() {
                actions.push(Action::Complete(i));
            }
            if cq.alive && cq.user && cq.awake {
                let waiting = cq.head != cq.channel.window().tail();
                actions.push(if waiting {
                    Action::Read(i)
                } else {
                    Action::Sleep(i)
                });
                if cq.channel.open().is_none() && self.world.rearms > 0 {
                    actions.push(Action::Rearm(i));
                }
            }
            // The control path waits for a poll that runs.
            if self.run.is_none() && self.world.destroys > 0 && cq.alive {
                actions.push(Action::Destroy(i));
            }
            let named = |origin: &Option<Number>| origin.is_some_and(|n| n.index() == i);
            if self.run.is_none() && !cq.alive && !self.world.shadow.iter().any(named) {
                actions.push(Action::Create(i));
            }
        }
        actions
    }

    fn act(&mut self, instance: Instance, action: Action) {
        match action {
            Action::Complete(i) => {
                let cq = &mut self.world.cqs[i];
                cq.work -= 1;
                let number = cq.number;
                let (_, fire) = cq.channel.push(false).expect("room");
                self.world.fire(number, fire);
            }
            Action::Happen => {
                self.world.asyncs -= 1;
                self.world.happened += 1;
                self.world.waiting |= self.world.notice.happened();
                self.world.pump();
            }
            Action::Interrupt => {
                self.world.interrupt = false;
                self.scheduled = true;
            }
            Action::Step => {
                let run = match &mut self.run {
                    Some(run) => run,
                    None => {
                        // What comes while it runs schedules it once more.
                        self.scheduled = false;
                        self.run.insert(self.poller.begin(instance.tuning))
                    }
                };
                if let Some(verdict) = self.poller.step(run, &mut self.world) {
                    self.scheduled |= verdict == Verdict::Again;
                    self.run = None;
                    assert_eq!(self.poller.eq().unpublished(), 0, "events unpublished");
                }
            }
            Action::Read(i) => {
                let cq = &mut self.world.cqs[i];
                cq.head = cq.head.plus(1);
            }
            Action::Sleep(i) => {
                self.world.cqs[i].awake = false;
                let number = self.world.cqs[i].number;
                self.world.arm(number);
            }
            Action::Rearm(i) => {
                self.world.rearms -= 1;
                let number = self.world.cqs[i].number;
                self.world.arm(number);
            }
            Action::Destroy(i) => {
                self.world.destroys -= 1;
                let number = self.world.cqs[i].number;
                let until = self.world.eq.window().tail();
                self.poller.unbind(&mut self.world, number, until);
                let cq = &mut self.world.cqs[i];
                (cq.alive, cq.node) = (false, None);
                // In one form, for what is no more.
                cq.channel = Channel::new(Depth::new(4).unwrap(), cq.user);
                (cq.head, cq.awake) = (Index::ZERO, true);
            }
            Action::Create(i) => self.create(i, self.world.cqs[i].number.next()),
        }
        let held = self.world.cqs.iter().filter_map(|cq| cq.node.as_ref());
        let held = held.map(Node::held).sum();
        self.poller.audit(held).expect("EQ slots");
        self.poller.forget_counts();
    }

    pub fn next(&self, instance: Instance, action: Action) -> Self {
        MEMORY.set(self.memory);
        let mut next = self.clone();
        next.act(instance, action);
        next.memory = MEMORY.with_borrow(|memory| *memory);
        next
    }

    pub fn is_rest(&self) -> bool {
        let cqs = &self.world.cqs;
        let empty = |cq: &SoftCq| cq.head == cq.channel.window().tail() && cq.work == 0;
        self.run.is_none()
            && !self.scheduled
            && !self.world.interrupt
            && self.world.asyncs == 0
            && self.world.told == self.world.happened
            && cqs.iter().all(|cq| !cq.alive || empty(cq))
    }
}
