// SPDX-License-Identifier: GPL-2.0
//! What stands around the poll: the device, the driver's table of CQs, their queue pairs, the processes.
//!
//! All that decides anything is of `queue/`: here are only who calls whom, and the ghosts that notice when a promise is broken
//! ([`World::fault`]).

use super::memory::Blocks;
use super::memory::Written;
use super::state::Instance;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::Eqe;
use qpair_abi::status::Event;
use qpair_abi::Number;
use qpair_queue::channel::Channel;
use qpair_queue::channel::Fire;
use qpair_queue::channel::Wants;
use qpair_queue::consumer::CqConsumer;
use qpair_queue::credit::Cq;
use qpair_queue::credit::Limbo;
use qpair_queue::credit::Pool;
use qpair_queue::credit::RingId;
use qpair_queue::credit::Slots;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::index::Window;
use qpair_queue::mask::EventQueue;
use qpair_queue::mask::Gate;
use qpair_queue::mask::Line;
use qpair_queue::mask::Notice;
use qpair_queue::poll::Consumed;
use qpair_queue::poll::Effects;
use qpair_queue::poll::Node;
use qpair_queue::producer::SqProducer;

/// Where rings stand: their next entry but one or two begins a pass, and all indices wrap.
pub const FIRST: Index = Index::new(u32::MAX);
/// Entries of a CQ's memory, at most.
pub const MOST: usize = 2;
/// Numbers of asynchronous sources begin here.
const SOURCES: u16 = 100;

/// A queue pair: its SQ, all of whose work requests are signalled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    pub sq: SqProducer<Blocks>,
    /// Of its CQ, for all that it can have in flight.
    slots: Slots<Cq>,
    /// What the device was given, and has not executed.
    pub given: Window,
}

/// Where a queue pair is or was.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub number: Number,
    pub pair: Option<Pair>,
    /// The CQ must be read up to here before the device gives the number out again.
    pub until: Option<Index>,
}

/// A CQ that is there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Body {
    pub node: Option<Node>,
    pub channel: Channel,
    pub consumer: CqConsumer<Written<{ 4 * MOST }>>,
    pool: Pool<Cq>,
    pub limbo: Limbo<Cq>,
    pub places: Vec<Place>,
    /// What is written and not passed: of whom, and what it covers.
    cqes: Vec<(Number, Index)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SoftCq {
    pub number: Number,
    pub user: bool,
    /// Its process looks at it by itself.
    pub awake: bool,
    pub body: Option<Body>,
}

/// Somebody whom asynchronous events are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    pub notice: Notice,
    /// How often it happened, less how often that was told.
    pub owed: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub cqs: Vec<SoftCq>,
    pub eq: EventQueue,
    /// What is in the EQ and not passed.
    pub events: Vec<(Number, u32)>,
    pub capacity: u32,
    gate: Gate,
    pub sources: Vec<Source>,
    /// Those that wait to be written.
    pub line: Vec<u8>,
    pub interrupt: bool,
    masked: bool,
    /// The first promise that was broken.
    pub fault: Option<&'static str>,
}

/// The other generation: when a number is given out again, nothing is left of the one before the last.
fn next(number: Number) -> Number {
    Number::new(number.index() as u16, 3 - number.generation())
}

pub fn event(&(number, count): &(Number, u32)) -> Eqe {
    let is_source = number.index() >= usize::from(SOURCES);
    let kind = match is_source {
        true => Event::QpFatal,
        false => Event::Completion,
    };
    Eqe {
        number,
        count,
        kind: kind.code(),
        code: 0,
    }
}

impl Body {
    fn new(number: Number, user: bool, depth: Depth, places: usize, node: Node) -> Self {
        let ring = RingId::new(number.raw(), 0);
        let (consumer, pool) =
            CqConsumer::starting_at(ring, Written::new(), depth, depth.entries(), FIRST)
                .expect("a good ring");
        let place = |i| Place {
            number: Number::new((8 * number.index() + i) as u16, 1),
            pair: None,
            until: None,
        };
        Self {
            node: Some(node),
            channel: Channel::starting_at(depth, user, FIRST),
            consumer,
            pool,
            limbo: Limbo::new(ring),
            places: (0..places).map(place).collect(),
            cqes: Vec::new(),
        }
    }

    /// Completions that nobody has read.
    pub fn unread(&self) -> u32 {
        self.channel.window().tail().since(self.consumer.head())
    }

    /// The first of its queue pairs that is like this.
    pub fn position(&self, like: impl Fn(&Pair) -> bool) -> Option<usize> {
        let like = |place: &Place| place.pair.as_ref().is_some_and(&like);
        self.places.iter().position(like)
    }

    /// Whether a CQE lies unread whose queue pair is gone.
    pub fn is_orphaned(&self) -> bool {
        let lives = |place: &Place| place.pair.as_ref().map(|_| place.number);
        let lives: Vec<_> = self.places.iter().filter_map(lives).collect();
        self.unread() != 0 && self.cqes.iter().any(|(qp, _)| !lives.contains(qp))
    }

    /// Whether a queue pair can be made at `at`.
    pub fn may_create(&self, at: usize, blocks: u32) -> bool {
        let place = &self.places[at];
        place.pair.is_none() && place.until.is_none() && self.pool.free() >= blocks
    }

    pub fn create_pair(&mut self, at: usize, blocks: u32) {
        let Some(slots) = self.pool.take(blocks) else {
            return;
        };
        let place = &mut self.places[at];
        place.number = next(place.number);
        let depth = Depth::at_least(blocks).expect("a depth");
        let (ring, cq) = (RingId::new(place.number.raw(), 0), self.consumer.ring());
        let sq = SqProducer::starting_at(ring, cq, Blocks::new(depth), depth, 0, blocks, FIRST);
        place.pair = Some(Pair {
            sq: sq.expect("a good ring"),
            slots,
            given: Window::new(depth, FIRST),
        });
    }

    /// Destroys a queue pair, as the driver and the library do; its CQEs may lie unread.
    pub fn destroy_pair(&mut self, at: usize) -> Result<(), &'static str> {
        let place = &mut self.places[at];
        let Some(pair) = place.pair.take() else {
            return Ok(());
        };
        pair.sq.retire().map_err(|_| "SQ slots do not add up")?;
        let until = self.channel.window().tail();
        place.until = Some(until);
        let refused = "a CQ's slot of another ring";
        self.limbo.admit(pair.slots, until).map_err(|_| refused)?;
        self.release();
        Ok(())
    }

    fn release(&mut self) {
        let freed = self.limbo.release(self.consumer.published());
        // Of this ring, or there were none.
        let _: Result<(), Slots<Cq>> = self.pool.give(freed);
    }

    /// Reads up to `max` completions; each tells its queue pair what it covers.
    pub fn consume(&mut self, max: u32) -> Consumed {
        for count in 0..max {
            let Some(entry) = self.consumer.take() else {
                return Consumed {
                    count,
                    drained: true,
                };
            };
            let cqe = Cqe::decode(&entry.words);
            let published = self.consumer.published();
            for place in &mut self.places {
                let Some(pair) = &mut place.pair else {
                    continue;
                };
                if place.number == cqe.qp {
                    // What covers nothing is nobody's.
                    let _ = pair.sq.complete(Index::new(cqe.index), entry.seen);
                }
                // Too early: the head is not past it. It has to be refused.
                pair.sq.reclaim(published);
            }
        }
        Consumed {
            count: max,
            drained: false,
        }
    }

    /// Publishes the head, with an arm if `arm`; then frees slots. Whether an event is due.
    pub fn publish(&mut self, arm: bool) -> Result<Fire, &'static str> {
        let mut fire = Ok(Fire::No);
        let channel = &mut self.channel;
        let before = channel.window().head();
        let published = self.consumer.publish(|head| {
            fire = match arm {
                true => channel.arm(Wants::Next, head),
                false => channel.head(head).map(|()| Fire::No),
            };
        });
        let passed = self.channel.window().head().since(before) as usize;
        self.cqes.drain(..passed.min(self.cqes.len()));
        self.release();
        for pair in self
            .places
            .iter_mut()
            .filter_map(|place| place.pair.as_mut())
        {
            pair.sq.reclaim(published);
        }
        fire.map_err(|_| "a CQ doorbell is refused")
    }

    /// Posts one work request and rings.
    pub fn post(&mut self, at: usize) -> Result<(), &'static str> {
        let Some(pair) = &mut self.places[at].pair else {
            return Ok(());
        };
        let Ok(mut room) = pair.sq.room(1, true) else {
            return Ok(());
        };
        room.write(0, &[1; 8]);
        room.post();
        let mut taken = None;
        let given = &mut pair.given;
        pair.sq.ring(|tail| taken = given.advance_tail(tail));
        match (taken, pair.sq.storage().twice()) {
            (Some(_), false) => Ok(()),
            _ => Err("an SQ slot is used twice"),
        }
    }

    /// The device executes the next work request of the queue pair. Whether an event is due.
    pub fn complete(&mut self, at: usize) -> Result<Fire, &'static str> {
        let place = &mut self.places[at];
        let Some(pair) = &mut place.pair else {
            return Ok(Fire::No);
        };
        let past = pair.given.head().plus(1);
        let _ = pair.given.advance_head(past);
        self.cqes.push((place.number, past));
        let pushed = self.channel.push(false);
        pushed.map(|(_, fire)| fire).ok_or("CQ overflow")
    }

    /// Moves everything to where its rings stand at `first`, and lays the memory out.
    fn settle(&mut self, first: Index) -> Result<(), &'static str> {
        let head = self.channel.window().head();
        let by = first.since(head);
        self.channel.rotate(by);
        self.consumer.rotate(by);
        self.limbo.rotate(by);
        let mut held = self.limbo.count();
        for place in &mut self.places {
            place.until = place.until.filter(|until| !head.reaches(*until));
            place.until = place.until.map(|until| until.plus(by));
            let mut moved = None;
            if let Some(pair) = &mut place.pair {
                held += pair.slots.count();
                let sq = first.since(pair.given.head());
                pair.given.rotate(sq);
                pair.sq.rotate(sq, by);
                pair.sq.storage().lay_out(first, pair.given.used());
                pair.sq.audit().map_err(|_| "SQ slots do not add up")?;
                moved = Some(sq);
            }
            for cqe in self.cqes.iter_mut().filter(|cqe| cqe.0 == place.number) {
                cqe.1 = moved.map_or(Index::ZERO, |by| cqe.1.plus(by));
            }
        }
        let entries = self.cqes.iter().map(|&(qp, index)| {
            let index = index.get();
            Cqe {
                qp,
                index,
                ..Cqe::default()
            }
            .encode()
        });
        let depth = self.consumer.depth();
        self.consumer.storage().lay_out(depth, first, entries);
        self.pool.audit(held).map_err(|_| "CQ slots do not add up")
    }
}

impl World {
    pub fn new(instance: &Instance, eq: EventQueue, capacity: u32) -> Self {
        let source = Source {
            notice: Notice::default(),
            owed: 0,
        };
        let born = instance.kernel + instance.process;
        let cq = |i: usize| SoftCq {
            number: Number::new(i as u16, 1),
            user: (instance.kernel..born).contains(&i),
            awake: true,
            body: None,
        };
        Self {
            cqs: (0..born + instance.unborn).map(cq).collect(),
            eq,
            events: Vec::new(),
            capacity,
            gate: Gate::new(instance.reserve.max(1)),
            sources: vec![source; instance.sources],
            line: Vec::new(),
            interrupt: false,
            masked: false,
            fault: None,
        }
    }

    pub fn broken(&mut self, what: &'static str) {
        self.fault.get_or_insert(what);
    }

    fn check<T>(&mut self, result: Result<T, &'static str>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(what) => {
                self.broken(what);
                None
            }
        }
    }

    fn body(&mut self, number: Number) -> Option<&mut Body> {
        let cq = self.cqs.get_mut(number.index())?;
        if cq.number != number {
            return None;
        }
        cq.body.as_mut()
    }

    /// Puts the CQ of `node` at place `i`, with its first queue pairs: its number.
    pub fn insert(&mut self, i: usize, node: Node, instance: &Instance) -> Number {
        let cq = &mut self.cqs[i];
        cq.number = next(cq.number);
        cq.awake = true;
        let depth = Depth::at_least(instance.blocks * instance.pairs as u32).expect("a depth");
        let mut body = Body::new(cq.number, cq.user, depth, instance.places, node);
        for at in 0..instance.pairs {
            body.create_pair(at, instance.blocks);
        }
        cq.body = Some(body);
        cq.number
    }

    /// Whether an event of CQ `i` is in the EQ: its number is not given out again until the head has passed it.
    pub fn is_named(&self, i: usize) -> bool {
        self.events.iter().any(|(number, _)| number.index() == i)
    }

    fn write(&mut self, event: (Number, u32)) {
        if self.eq.window().used() >= self.capacity || self.eq.push(0).is_none() {
            return self.broken("EQ overflow");
        }
        let user = self.cqs.get(event.0.index()).is_some_and(|cq| cq.user);
        if user && self.events.iter().any(|(number, _)| *number == event.0) {
            self.broken("a second event of a process's CQ");
        }
        self.events.push(event);
        self.look();
    }

    /// Whether the EQ interrupts now.
    fn look(&mut self) {
        if self.eq.line(0) == Line::Raise {
            if self.masked {
                self.broken("raised while masked");
            }
            (self.masked, self.interrupt) = (true, true);
        }
    }

    fn fire(&mut self, number: Number, fire: Result<Fire, &'static str>) {
        if self.check(fire) == Some(Fire::Now) {
            self.write((number, 1));
        }
    }

    /// Does `act` to a CQ, if it is there, and writes the event that comes of it.
    pub fn act(
        &mut self,
        number: Number,
        act: impl FnOnce(&mut Body) -> Result<Fire, &'static str>,
    ) {
        if let Some(fire) = self.body(number).map(act) {
            self.fire(number, fire);
        }
    }

    /// An asynchronous event happens.
    pub fn happen(&mut self, i: usize) {
        let source = &mut self.sources[i];
        source.owed += 1;
        if source.notice.happened() {
            self.line.push(i as u8);
        }
        self.pump();
    }

    fn pump(&mut self) {
        while let Some(&first) = self.line.first() {
            let notice = &mut self.sources[usize::from(first)].notice;
            let Some(count) = self.gate.write(notice) else {
                return;
            };
            self.line.remove(0);
            self.write((Number::new(SOURCES + u16::from(first), 1), count));
        }
    }

    /// Moves the EQ's device side and every CQ to where they stand at `first`.
    pub fn settle(&mut self, first: Index) {
        self.eq.rotate(first.since(self.eq.window().head()));
        for i in 0..self.cqs.len() {
            if let Some(settled) = self.cqs[i].body.as_mut().map(|body| body.settle(first)) {
                self.check(settled);
            }
        }
    }
}

impl Effects for World {
    fn node(&mut self, number: Number) -> Option<&mut Node> {
        self.body(number)?.node.as_mut()
    }

    fn consume(&mut self, number: Number, max: u32) -> Consumed {
        match self.body(number) {
            Some(body) => body.consume(max),
            None => Consumed {
                count: 0,
                drained: true,
            },
        }
    }

    fn publish(&mut self, number: Number, arm: bool) {
        self.act(number, |body| body.publish(arm));
    }

    fn signal(&mut self, number: Number) {
        if self.body(number).is_some() {
            self.cqs[number.index()].awake = true;
        }
    }

    fn asynchronous(&mut self, event: Eqe) {
        let at = event.number.index().checked_sub(SOURCES.into());
        match at.and_then(|at| self.sources.get_mut(at)) {
            Some(source) if u32::from(source.owed) >= event.count => {
                source.owed -= event.count as u8;
            }
            _ => self.broken("an asynchronous event of nobody"),
        }
    }

    fn doorbell(&mut self, head: Index, unmask: bool) {
        let Ok((from, to)) = self.eq.head(head, unmask) else {
            return self.broken("an EQ doorbell is refused");
        };
        if unmask {
            self.masked = false;
        }
        let passed: Vec<_> = self.events.drain(..to.since(from) as usize).collect();
        for (number, _) in passed {
            match number.index().checked_sub(SOURCES.into()) {
                Some(at) => {
                    if self.gate.passed(Some(&mut self.sources[at].notice)) {
                        self.line.push(at as u8);
                    }
                }
                None => {
                    let is_user = self.cqs[number.index()].user;
                    let body = self.body(number).filter(|_| is_user);
                    if let Some(fire) = body.map(|body| body.channel.passed()) {
                        self.fire(number, Ok(fire));
                    }
                }
            }
        }
        self.pump();
        self.look();
    }
}
