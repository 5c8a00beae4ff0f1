// SPDX-License-Identifier: GPL-2.0
//! A completion queue and the queue pairs on it: the device's part, and the owner's.
//!
//! Two sources determine when an event is due: the device's [`Channel`], and the definition of the
//! manual, from a list of all completions that the head has not passed ([`Body::asked`]). If they
//! differ, an event is unwanted or missing ([`Body::unlike_the_manual`]).

use super::memory::Blocks;
use super::memory::Written;
use super::world::FIRST;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::MAX_BLOCKS;
use qpair_abi::Number;
use qpair_model::rules::channel::Channel;
use qpair_model::rules::channel::Fire;
use qpair_model::rules::channel::Violation;
use qpair_model::rules::channel::Wants;
use qpair_model::rules::window::Window;
use qpair_queue::consumer::CqConsumer;
use qpair_queue::credit::Cq;
use qpair_queue::credit::Pool;
use qpair_queue::credit::RingId;
use qpair_queue::credit::Slots;
use qpair_queue::deferred::DeferredFree;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::poll::Consumed;
use qpair_queue::poll::Node;
use qpair_queue::producer::SqProducer;
use std::fmt;

/// Maximum number of entries of a CQ's memory.
pub const MOST: usize = 8;

/// Maximum number of places for queue pairs of a CQ.
const PLACES: usize = 8;

/// The name of all send queues.
const SENDS: u32 = 1000;

/// A work request to post.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    pub blocks: u32,
    pub signaled: bool,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let silent = if self.signaled { "" } else { " silent" };
        write!(f, "{}{silent}", self.blocks)
    }
}

impl Request {
    /// One block, signaled.
    pub const SIGNALED: Self = Self {
        blocks: 1,
        signaled: true,
    };
}

/// How the device completes a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Without a completion: it is not signaled, and did not fail.
    Silent,
    /// With a completion: it is signaled, or failed.
    Plain,
    /// With one that is solicited.
    Solicited,
}

/// A completion that is written and not passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Completion {
    qp: Number,
    /// The index up to which it covers work requests.
    index: Index,
    solicited: bool,
}

/// A notify that was written, and that the device has not acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Bell {
    wants: Wants,
    sample: Index,
    /// A completion that it waits for was written since.
    came: bool,
}

/// A queue pair: its SQ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    pub sq: SqProducer<Blocks>,
    /// CQ slots for all that it can have in flight.
    slots: Slots<Cq>,
    /// Posted and not executed: blocks, and work requests.
    given: Window,
    todo: Vec<Request>,
    /// Blocks that it has executed since its last completion.
    silent: u32,
}

impl Pair {
    /// Work requests that the device must still execute.
    pub fn todo(&self) -> &[Request] {
        &self.todo
    }

    /// Whether the newest executed work requests were not signaled.
    pub fn is_silent(&self) -> bool {
        self.todo.is_empty() && self.silent != 0
    }

    /// Whether every slot is free but those not completed yet, which always leave room for the
    /// largest work request. Completed slots wait for the CQ head, if that is `late`.
    fn is_idle(&self, late: bool) -> bool {
        let (free, completed) = (self.sq.free(), self.sq.completed());
        let largest = self.sq.capacity().min(MAX_BLOCKS as u32);
        self.todo.is_empty()
            && (late || completed == 0)
            && self.sq.in_flight() == self.silent
            && free + completed >= largest
    }
}

/// A place for a queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub number: Number,
    pub pair: Option<Pair>,
    /// The CQ must be read up to here before the device reuses the number.
    until: Option<Index>,
}

/// An existing CQ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Body {
    pub node: Node,
    pub channel: Channel,
    pub consumer: CqConsumer<Written<{ 4 * MOST }>>,
    pool: Pool<Cq>,
    pub deferred: DeferredFree<Cq>,
    pub places: Vec<Place>,
    cqes: Vec<Completion>,
    bells: Vec<Bell>,
    /// The selection of the arms and notifies so far, and whether such a completion was written, as
    /// defined in the manual.
    asked: Option<(Wants, bool)>,
    /// Its process is hostile: it reads nothing, rings with any index, and its queue pairs complete
    /// at any time.
    pub hostile: bool,
    /// The CQ was overrun: the device writes no more entries.
    overrun: bool,
    /// An event was unwanted, or is missing.
    pub unlike_the_manual: bool,
}

/// The other generation: when a number is reused, nothing is left of the one before the last.
pub fn next(number: Number) -> Number {
    Number::new(number.index() as u16, 3 - number.generation())
}

impl Body {
    pub fn new(
        number: Number,
        user: bool,
        hostile: bool,
        depth: Depth,
        places: usize,
        node: Node,
    ) -> Self {
        // By its index: nothing is left of the CQ that had it before.
        let ring = RingId::new(number.index() as u32, 0);
        let (consumer, pool) =
            CqConsumer::starting_at(ring, Written::new(), depth, depth.entries(), FIRST)
                .expect("a good ring");
        let place = |i| Place {
            number: Number::new((PLACES * number.index() + i) as u16, 1),
            pair: None,
            until: None,
        };
        Self {
            node,
            channel: Channel::starting_at(depth, user, FIRST),
            consumer,
            pool,
            deferred: DeferredFree::new(ring),
            places: (0..places).map(place).collect(),
            cqes: Vec::new(),
            bells: Vec::new(),
            asked: None,
            hostile,
            overrun: false,
            unlike_the_manual: false,
        }
    }

    /// Unread completions.
    pub fn unread(&self) -> u32 {
        self.channel.window().tail().since(self.consumer.head())
    }

    /// Whether one of them must wake a process that waits for `wants`.
    pub fn has_unread(&self, wants: Wants) -> bool {
        let mut unread = self.cqes.iter().rev().take(self.unread() as usize);
        unread.any(|cqe| wants == Wants::Next || cqe.solicited)
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
        self.unread() != 0 && self.cqes.iter().any(|cqe| !lives.contains(&cqe.qp))
    }

    /// Whether its process may go on sleeping, and no other work is pending.
    pub fn is_at_rest(&self, wants: Wants) -> bool {
        let mut pairs = self.places.iter().filter_map(|place| place.pair.as_ref());
        if self.unread() != 0 {
            // The process waits for none of them, so they stay unread, and keep the slots that they
            // cover.
            return !self.has_unread(wants) && pairs.all(|pair| pair.todo.is_empty());
        }
        // A process may sleep with an old index, and publish its head when it polls again.
        let late = self.consumer.unpublished() != 0;
        (late || self.deferred.count() == 0) && pairs.all(|pair| pair.is_idle(late))
    }

    /// Whether a queue pair can be created at `at`.
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
        // One name for all of a CQ: their slots are never mixed.
        let (ring, cq) = (RingId::new(SENDS, 0), self.consumer.ring());
        let sq = SqProducer::starting_at(ring, cq, Blocks::new(depth), depth, 0, blocks, FIRST);
        place.pair = Some(Pair {
            sq: sq.expect("a good ring"),
            slots,
            given: Window::new(depth, FIRST),
            todo: Vec::new(),
            silent: 0,
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
        self.deferred
            .admit(pair.slots, until)
            .map_err(|_| refused)?;
        self.release();
        Ok(())
    }

    fn release(&mut self) {
        let freed = self.deferred.release(self.consumer.published());
        // Of this ring, or there were none.
        let _: Result<(), Slots<Cq>> = self.pool.give(freed);
    }

    /// Reads up to `max` completions; each completes work requests of its queue pair.
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
                    // A completion that completes nothing is stale.
                    let _ = pair.sq.complete(Index::new(cqe.index), entry.seen);
                }
                // Too early: the head is not past it. This must be refused.
                pair.sq.reclaim(published);
            }
        }
        Consumed {
            count: max,
            drained: false,
        }
    }

    /// Publishes the head, with an arm if `arm`; then frees slots. Returns whether an event is due.
    pub fn publish(&mut self, arm: Option<Wants>) -> Result<Fire, &'static str> {
        let mut head = FIRST;
        let published = self.consumer.publish(|past| head = past);
        let fire = self.doorbell(arm, head);
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

    /// Index `at` as a process may ring with it: 0 is one behind the device's head, 1 the head, and
    /// so on.
    pub fn at(&self, at: u32) -> Index {
        self.channel.window().head().plus(at.wrapping_sub(1))
    }

    /// The argument of [`Self::at`] for the index after the last read entry.
    pub fn read(&self) -> u32 {
        let head = self.channel.window().head();
        self.consumer.head().since(head).wrapping_add(1)
    }

    /// The argument of [`Self::at`] for one past the producer index.
    pub fn beyond(&self) -> u32 {
        self.channel.window().used().wrapping_add(2)
    }

    /// A process rings, with the index after the last read entry or with another one, which frees
    /// no slots. Returns whether an event is due.
    pub fn ring(&mut self, arm: Option<Wants>, at: u32) -> Result<Fire, &'static str> {
        if at == self.read() && !self.hostile {
            return self.publish(arm);
        }
        match self.doorbell(arm, self.at(at)) {
            Ok(fire) => Ok(fire),
            Err(_) if at >= self.beyond() => Ok(Fire::No),
            Err(_) => Err("a CQ doorbell is refused"),
        }
    }

    /// A doorbell with this index, with an arm or without. Returns whether an event is due.
    pub fn doorbell(&mut self, arm: Option<Wants>, index: Index) -> Result<Fire, Violation> {
        let (head, tail) = (self.channel.window().head(), self.channel.window().tail());
        let fire = match arm {
            Some(wants) => self.channel.arm(wants, index),
            None => self.channel.head(index).map(|()| Fire::No),
        };
        if !tail.reaches(index) {
            // It is invalid, so it changes nothing.
            self.unlike_the_manual |= fire == Ok(Fire::Now);
            return fire;
        }
        let behind = !index.reaches(head);
        let past = if behind { 0 } else { index.since(head) };
        self.cqes.drain(..self.cqes.len().min(past as usize));
        if let Some(wants) = arm {
            let wants = match self.asked {
                Some((Wants::Next, _)) => Wants::Next,
                _ => wants,
            };
            let mut cqes = self.cqes.iter();
            let came = cqes.any(|cqe| wants == Wants::Next || cqe.solicited);
            self.asked = Some((wants, behind || came));
        }
        if let Ok(fire) = fire {
            self.judge(fire);
        }
        fire
    }

    /// Its process writes a notify; the newest completion is not published yet if `lags`.
    pub fn notify(&mut self, wants: Wants, lags: bool) {
        let (bells, tail) = (&mut self.bells, self.channel.window().tail());
        let newest = self.cqes.last().filter(|_| lags);
        let bell = Bell {
            wants,
            sample: tail.plus(if lags { u32::MAX } else { 0 }),
            // That one counts as written after the doorbell.
            came: newest.is_some_and(|cqe| wants == Wants::Next || cqe.solicited),
        };
        self.consumer.notify(|| bells.push(bell));
    }

    /// Whether there is a completion that the head has not passed.
    pub fn has_written(&self) -> bool {
        !self.cqes.is_empty()
    }

    /// Notifies that the device has not acted on.
    pub fn bells(&self) -> usize {
        self.bells.len()
    }

    /// Whether the head has passed the sample of one of them.
    pub fn is_overtaken(&self) -> bool {
        let head = self.channel.window().head();
        self.bells.iter().any(|bell| !bell.sample.reaches(head))
    }

    /// The device acts on a notify. Returns whether an event is due.
    pub fn hear(&mut self, at: usize) -> Fire {
        let bell = self.bells.remove(at);
        let behind = !bell.sample.reaches(self.channel.window().head());
        let fire = self.channel.notify(bell.wants, bell.sample);
        let (wants, came) = self.asked.unwrap_or((bell.wants, false));
        let wants = match bell.wants {
            Wants::Next => Wants::Next,
            Wants::Solicited => wants,
        };
        self.asked = Some((wants, came || behind || bell.came));
        self.judge(fire);
        fire
    }

    /// The EQ's head has passed the event of a process's CQ. Returns whether another one is due.
    pub fn passed(&mut self) -> Fire {
        let fire = self.channel.passed();
        self.judge(fire);
        fire
    }

    /// Compares the channel's result with the manual.
    fn judge(&mut self, fire: Fire) {
        let due = self.asked.is_some_and(|(_, came)| came);
        match fire {
            Fire::Now => {
                self.unlike_the_manual |= !due;
                self.asked = None;
            }
            // One event is in the EQ, so the next is deferred.
            Fire::No => self.unlike_the_manual |= due && !self.channel.in_eq(),
        }
    }

    /// Posts one work request and rings.
    pub fn post(&mut self, at: usize, request: Request) -> Result<(), &'static str> {
        let Some(pair) = &mut self.places[at].pair else {
            return Ok(());
        };
        let Ok(mut room) = pair.sq.room(request.blocks, request.signaled) else {
            return Ok(());
        };
        pair.todo.push(Request {
            signaled: room.signaled(),
            ..request
        });
        for block in 0..request.blocks {
            room.write(block, &[1; 8]);
        }
        room.post();
        let mut taken = None;
        let given = &mut pair.given;
        pair.sq.ring(|tail| taken = given.advance_tail(tail));
        match (taken, pair.sq.storage().twice()) {
            (Some(_), false) => Ok(()),
            _ => Err("an SQ slot is used twice"),
        }
    }

    /// The device executes the next work request of the queue pair. Returns whether an event is
    /// due.
    pub fn complete(&mut self, at: usize, outcome: Outcome) -> Result<Fire, &'static str> {
        let place = &mut self.places[at];
        let Some(pair) = place.pair.as_mut().filter(|pair| !pair.todo.is_empty()) else {
            return Ok(Fire::No);
        };
        let request = pair.todo.remove(0);
        let index = pair.given.head().plus(request.blocks);
        let _ = pair.given.advance_head(index);
        if outcome == Outcome::Silent {
            pair.silent += request.blocks;
            return Ok(Fire::No);
        }
        pair.silent = 0;
        let qp = place.number;
        let solicited = outcome == Outcome::Solicited;
        self.cqes.push(Completion {
            qp,
            index,
            solicited,
        });
        self.push(solicited).ok_or("CQ overflow")
    }

    /// The device writes a completion to the CQ of a hostile process. Returns whether an event is
    /// due.
    pub fn garbage(&mut self, solicited: bool) -> Fire {
        if self.overrun {
            return Fire::No;
        }
        let (qp, index) = (self.places[0].number, Index::ZERO);
        match self.push(solicited) {
            Some(fire) => {
                self.cqes.push(Completion {
                    qp,
                    index,
                    solicited,
                });
                fire
            }
            None => {
                self.overrun = true;
                Fire::No
            }
        }
    }

    pub fn is_overrun(&self) -> bool {
        self.overrun
    }

    /// The device writes a completion: returns whether an event is due. `None` if the CQ is full.
    fn push(&mut self, solicited: bool) -> Option<Fire> {
        let (_, fire) = self.channel.push(solicited)?;
        if let Some((wants, came)) = &mut self.asked {
            *came |= *wants == Wants::Next || solicited;
        }
        for bell in &mut self.bells {
            bell.came |= bell.wants == Wants::Next || solicited;
        }
        self.judge(fire);
        Some(fire)
    }

    /// Sorts the places by their contents, and numbers their queue pairs in this order.
    ///
    /// Queue pair numbers are only compared for equality, and all places permit the same actions.
    /// So states that differ only in them are merged.
    fn rename(&mut self) {
        let old: Vec<_> = self.places.iter().map(|place| place.number).collect();
        if old.len() == 1 && old[0].generation() == 2 {
            return;
        }
        let head = self.channel.window().head();
        let cqes = &self.cqes;
        let mut order: Vec<_> = (0..old.len()).collect();
        // It must not depend on the rings' indices.
        order.sort_by_cached_key(|&at| {
            let place = &self.places[at];
            let is_its = |cqe: &Completion| cqe.qp == place.number;
            let pair = place.pair.as_ref();
            (
                pair.map(|it| (it.sq.free(), it.sq.completed(), it.todo.len(), it.silent)),
                place.until.map(|until| until.since(head)),
                cqes.iter().map(is_its).collect::<Vec<_>>(),
            )
        });
        let first = old[0].index() / PLACES * PLACES;
        let new = |number: Number| {
            let mut order = order.iter();
            let at = order.position(|&at| old[at].index() == number.index());
            let at = at.unwrap_or(0);
            // The newer one of a place is called 2.
            let generation = if old.contains(&number) { 2 } else { 1 };
            Number::new((first + at) as u16, generation)
        };
        for cqe in &mut self.cqes {
            cqe.qp = new(cqe.qp);
        }
        let mut places: Vec<_> = self.places.drain(..).map(Some).collect();
        self.places = order.iter().filter_map(|&at| places[at].take()).collect();
        for place in &mut self.places {
            place.number = new(place.number);
        }
    }

    /// Moves all rings back to the index `first`, and lays out the memory.
    pub fn settle(&mut self, first: Index) -> Result<(), &'static str> {
        let head = self.channel.window().head();
        let by = first.since(head);
        self.channel.rotate(by);
        if !self.hostile {
            self.consumer.rotate(by);
        }
        for bell in &mut self.bells {
            if !bell.sample.reaches(head) {
                // How far, and what came, makes no difference.
                (bell.sample, bell.came) = (head.plus(u32::MAX), true);
            }
            bell.sample = bell.sample.plus(by);
        }
        // The device acts on them in any order. Theirs must not depend on the rings' indices.
        self.bells.sort_by_key(|bell| {
            (
                bell.wants == Wants::Next,
                bell.sample.since(first),
                bell.came,
            )
        });
        self.deferred.rotate(by);
        let mut held = self.deferred.count();
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
            for cqe in self.cqes.iter_mut().filter(|cqe| cqe.qp == place.number) {
                cqe.index = match moved {
                    Some(by) if !self.hostile => cqe.index.plus(by),
                    _ => Index::ZERO,
                };
            }
        }
        self.rename();
        let entries = self.cqes.iter().map(|cqe| {
            Cqe {
                qp: cqe.qp,
                index: cqe.index.get(),
                ..Cqe::default()
            }
            .encode()
        });
        let depth = self.consumer.depth();
        self.consumer.storage().lay_out(depth, first, entries);
        self.pool.audit(held).map_err(|_| "CQ slots do not add up")
    }
}
