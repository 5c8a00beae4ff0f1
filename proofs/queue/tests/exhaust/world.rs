// SPDX-License-Identifier: GPL-2.0
//! The environment of the poll: the device, the driver's table of CQs, their queue pairs, the
//! processes.
//!
//! All decisions are in `queue/`. This file has only the calls, and the ghost state that detects a
//! broken rule ([`World::fault`]).

use super::memory::met;
use super::queues::next;
use super::queues::Body;
use super::state::Instance;
use qpair_abi::entry::Eqe;
use qpair_abi::status::Event;
use qpair_abi::Number;
use qpair_model::rules::channel::Fire;
use qpair_model::rules::channel::Wants;
use qpair_model::rules::eq_irq::EventQueue;
use qpair_model::rules::eq_irq::Gate;
use qpair_model::rules::eq_irq::Line;
use qpair_model::rules::eq_irq::Notice;
use qpair_queue::eq_slots::Arming;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::poll::Consumed;
use qpair_queue::poll::Node;
use qpair_queue::poll::Poller;
use qpair_queue::poll::Run;
use qpair_queue::poll::Step;
use qpair_queue::storage::Storage;

/// The first index of rings: a pass begins after one or two entries, and all indices wrap.
pub const FIRST: Index = Index::new(u32::MAX);
/// Numbers of asynchronous sources begin here.
const SOURCES: u16 = 100;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SoftCq {
    pub number: Number,
    pub user: bool,
    /// The completions that its sleeping process waits for; `None` if the process is awake.
    pub sleeps: Option<Wants>,
    /// The completions that its process has notified for since it last slept, and whether an event
    /// was signaled since then.
    pub asked: Option<Wants>,
    pub signaled: bool,
    /// The selection of the kernel's next arm.
    pub wants: Wants,
    pub body: Option<Body>,
    /// The driver has removed it from its table, to destroy it: the poll's turns for it have no
    /// effect.
    pub taken: bool,
    /// The device has destroyed it, but the driver still has its node: the node, and the index that
    /// the destroy reported.
    pub ended: Option<(Node, Index)>,
}

/// Wrong variants outside of the rules: of the device's look-up of the CQ of a doorbell (which is
/// not a rule of `queue/`; the model in `qemu/model` has the same wrong variants), of the driver's
/// destruction of a CQ, or of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wrong {
    /// It compares only the index of the number.
    Generation,
    /// It accepts doorbells on any page.
    Page,
    /// A destroyed CQ still fires.
    Gone,
    /// The driver frees a CQ's slot when it removes the CQ from its table, not when the CQ is
    /// destroyed.
    Taken,
    /// A process notifies and sleeps, and polled before.
    PollsFirst,
}

/// An object of asynchronous events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    pub notice: Notice,
    /// How often it happened, minus how often that was reported.
    pub owed: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub cqs: Vec<SoftCq>,
    pub eq: EventQueue,
    /// The entries of the EQ that the head has not passed.
    pub events: Vec<(Number, u32)>,
    pub capacity: u32,
    gate: Gate,
    pub sources: Vec<Source>,
    /// Sources with pending events.
    pub line: Vec<u8>,
    pub interrupt: bool,
    masked: bool,
    wrong: Option<Wrong>,
    /// Processes notify, poll, and sleep; else they poll, and sleep with an arm.
    pub notifies: bool,
    /// The first broken rule.
    pub fault: Option<&'static str>,
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
            sleeps: None,
            asked: None,
            signaled: false,
            wants: Wants::Next,
            body: None,
            taken: false,
            ended: None,
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
            wrong: instance.wrong,
            notifies: instance.notifies,
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

    /// Inserts the CQ of `node` at place `i`, with its first queue pairs; returns its number, and
    /// the node.
    pub fn insert(&mut self, i: usize, node: Node, instance: &Instance) -> (Number, &mut Node) {
        let cq = &mut self.cqs[i];
        cq.number = next(cq.number);
        cq.taken = false;
        let pairs = instance.pairs + if i == 0 { instance.more } else { 0 };
        let depth = Depth::at_least(instance.blocks * pairs as u32).expect("a depth");
        let hostile = instance.hostile && cq.user;
        let mut body = Body::new(cq.number, cq.user, hostile, depth, instance.places, node);
        for at in 0..pairs {
            body.create_pair(at, instance.blocks);
        }
        (cq.number, &mut cq.body.insert(body).node)
    }

    /// Whether an event of CQ `i` is in the EQ: its number is not reused until the head has passed
    /// it.
    pub fn is_named(&self, i: usize) -> bool {
        self.events.iter().any(|(number, _)| number.index() == i)
    }

    /// EQ slots that CQs hold.
    pub fn held(&self) -> u32 {
        let ended = self.cqs.iter().filter_map(|cq| cq.ended.as_ref());
        let bodies = self.cqs.iter().filter_map(|cq| cq.body.as_ref());
        let nodes = ended.map(|(node, _)| node);
        nodes
            .chain(bodies.map(|body| &body.node))
            .map(Node::held)
            .sum()
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

    /// Applies `act` to a CQ, if it exists, and writes the resulting event.
    pub fn act(
        &mut self,
        number: Number,
        act: impl FnOnce(&mut Body) -> Result<Fire, &'static str>,
    ) {
        if let Some(fire) = self.body(number).map(act) {
            self.fire(number, fire);
        }
    }

    /// A process rings for CQ `i`: by its number, or by the previous number of the place. A CQ that
    /// is not its own ignores the doorbell (the violation is counted; its report is an asynchronous
    /// event like others).
    pub fn forge(&mut self, i: usize, before: bool, wants: Wants, at: u32) {
        let cq = &mut self.cqs[i];
        let number = if before { next(cq.number) } else { cq.number };
        let Some(body) = &mut cq.body else {
            let fires = cq.user && !self.is_named(i);
            if fires && self.wrong == Some(Wrong::Gone) {
                self.write((number, 1));
            }
            return;
        };
        let known = !before || self.wrong == Some(Wrong::Generation);
        let its_own = cq.user || self.wrong == Some(Wrong::Page);
        if known && its_own {
            let number = cq.number;
            let fire = body.doorbell(Some(wants), body.at(at));
            self.fire(number, Ok(fire.unwrap_or(Fire::No)));
        }
    }

    /// Reads CQ `i`, which the driver has removed from its table.
    pub fn drain(&mut self, i: usize) {
        let number = self.cqs[i].number;
        self.act(number, |body| {
            body.consume(u32::MAX);
            body.publish(None)
        });
    }

    /// The places whose present or last CQ has the first of its two numbers, as bits.
    pub fn odd(&self) -> u32 {
        let cqs = self.cqs.iter().enumerate();
        let odd = cqs.filter(|(_, cq)| cq.number.generation() == 1);
        odd.fold(0, |bits, (i, _)| bits | 1 << i)
    }

    /// Swaps the two numbers of the places that are bits of `which`, everywhere. Rules compare
    /// numbers only for equality, so the behaviour does not depend on them.
    pub fn rename(&mut self, which: u32, poller: &mut Poller<impl Storage>, run: &mut Option<Run>) {
        if which == 0 {
            return;
        }
        let name = |number: Number| match which.checked_shr(number.index() as u32) {
            Some(bits) if bits & 1 != 0 => next(number),
            _ => number,
        };
        for cq in &mut self.cqs {
            cq.number = name(cq.number);
            let ended = cq.ended.as_mut().map(|(node, _)| node);
            let node = cq.body.as_mut().map(|body| &mut body.node);
            for node in ended.into_iter().chain(node) {
                node.rename(name);
            }
        }
        for (number, _) in &mut self.events {
            *number = name(*number);
        }
        poller.rename(name);
        if let Some(run) = run {
            run.rename(name);
        }
    }

    /// Destroys CQ `i`, as far as the device is concerned.
    pub fn end(&mut self, i: usize) {
        let until = self.eq.window().tail();
        let cq = &mut self.cqs[i];
        cq.ended = cq.body.take().map(|body| (body.node, until));
        (cq.sleeps, cq.asked, cq.signaled) = (None, None, false);
    }

    /// The driver frees CQ `i`, which the device has destroyed.
    pub fn unbind(&mut self, i: usize, poller: &mut Poller<impl Storage>) {
        let cq = &mut self.cqs[i];
        if let (number, Some((node, until))) = (cq.number, cq.ended.take()) {
            poller.remove(number, &node, self, Self::node);
            poller.unbind(node, until);
        }
    }

    /// The driver removes CQ `i` from its table.
    pub fn take(&mut self, i: usize, poller: &mut Poller<impl Storage>) {
        self.cqs[i].taken = true;
        let (number, until) = (self.cqs[i].number, self.eq.window().tail());
        let wrong = self.wrong == Some(Wrong::Taken);
        if let Some(node) = self.node(number).filter(|_| wrong) {
            let node = std::mem::replace(node, Node::new(Arming::Idle));
            poller.remove(number, &node, self, Self::node);
            poller.unbind(node, until);
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

    /// Moves the EQ's device side and every CQ back to `first`.
    pub fn settle(&mut self, first: Index) {
        let head = self.eq.window().head();
        let by = first.since(head);
        self.eq.rotate(by);
        for i in 0..self.cqs.len() {
            if let Some((_, until)) = &mut self.cqs[i].ended {
                // The distance of the head past it makes no difference.
                *until = if head.reaches(*until) {
                    first
                } else {
                    until.plus(by)
                };
            }
            if let Some(settled) = self.cqs[i].body.as_mut().map(|body| body.settle(first)) {
                self.check(settled);
            }
        }
    }
}

/// The poll's effects.
impl World {
    /// Executes a step of the poll. Returns whether the poll must come again, once it ends. To look
    /// a CQ up is no step of its own: it has no effect.
    pub fn step(&mut self, poller: &mut Poller<impl Storage>, run: &mut Run) -> Option<bool> {
        let mut cq = run.cq().unwrap_or_else(|| Number::new(u16::MAX, 0));
        let step = loop {
            match poller.step(run, self.node(cq)) {
                Some(Step::Event(event)) => cq = event.number,
                Some(Step::Turn(number)) => cq = number,
                step => break step?,
            }
        };
        match step {
            Step::Event(_) | Step::Turn(_) => {}
            Step::Consume(max) => poller.consumed(run, self.consume(cq, max)),
            Step::Publish(arm) => self.publish(cq, arm),
            Step::Signal => self.signal(cq),
            Step::Async(event) => self.asynchronous(event),
            Step::EqHead => poller.publish(run, |head, unmask| self.ring(head, unmask)),
            Step::Done => {
                poller.publish(run, |head, unmask| self.ring(head, unmask));
                return Some(false);
            }
            Step::Again => return Some(true),
        }
        None
    }

    pub fn node(&mut self, number: Number) -> Option<&mut Node> {
        let cq = self.cqs.get_mut(number.index())?;
        if cq.number != number {
            return None;
        }
        let ended = cq.ended.as_mut().map(|(node, _)| node);
        ended.or(cq.body.as_mut().map(|body| &mut body.node))
    }

    fn asynchronous(&mut self, event: Eqe) {
        let at = event.number.index().checked_sub(SOURCES.into());
        match at.and_then(|at| self.sources.get_mut(at)) {
            Some(source) if u32::from(source.owed) >= event.count => {
                source.owed -= event.count as u8;
            }
            _ => self.broken("an asynchronous event without an object"),
        }
    }

    fn ring(&mut self, head: Index, unmask: bool) {
        met();
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
                    if let Some(fire) = body.map(Body::passed) {
                        self.fire(number, Ok(fire));
                    }
                }
            }
        }
        self.pump();
        self.look();
    }

    fn consume(&mut self, number: Number, max: u32) -> Consumed {
        let Some(cq) = self.cqs.get_mut(number.index()) else {
            return Consumed::NOTHING;
        };
        let its = cq.number == number && !cq.taken;
        match cq.body.as_mut().filter(|_| its) {
            Some(body) => body.consume(max),
            None => Consumed::NOTHING,
        }
    }

    fn publish(&mut self, number: Number, arm: bool) {
        let cq = &self.cqs[number.index()];
        if !cq.taken {
            met();
            let wants = arm.then_some(cq.wants);
            self.act(number, |body| body.publish(wants));
        }
    }

    fn signal(&mut self, number: Number) {
        if self.body(number).is_some() {
            let cq = &mut self.cqs[number.index()];
            if cq.sleeps.is_none() {
                // It may be about to sleep.
                met();
                cq.signaled = cq.asked.is_some();
            }
            cq.sleeps = None;
        }
    }
}
