// SPDX-License-Identifier: GPL-2.0
//! A state of the event path, and its possible actions.
//!
//! The poll is the driver's own code, and runs step by step: between any two of its effects the
//! device, the processes and the control path (which waits for a running poll) may take any action.
//! There is no limit on the number of actions: queue pairs post forever, and a run of any length is
//! a path in a graph that is finite because each ring is moved back to its first index
//! ([`Poller::rotate`]). States that differ only in the numbers of CQs and queue pairs are merged
//! as well ([`World::rename`]).
//!
//! Actions with more than one write, and why they hide no state:
//! - *a doorbell and its immediate effect*, except of a notify: PCI keeps the order of a CPU's
//!   doorbells, and between a doorbell and its effect software reads nothing that the effect could
//!   have changed. After a notify it polls;
//! - *a CQE, its EQE and the interrupt*: they are written in this order, and the poll reads the CQE
//!   only after the EQE, and the EQE only after the interrupt, or without a cause, which is covered
//!   by another action;
//! - *up to k completions of a turn*: completions that the device adds between two of them might as
//!   well have been added before all.

use super::memory::meets;
use super::memory::Written;
use super::queues::Body;
use super::queues::Outcome;
use super::queues::Request;
use super::world::event;
use super::world::World;
use super::world::Wrong;
use super::world::FIRST;
use ahash::AHasher;
use qpair_abi::entry::Eqe;
use qpair_model::rules::channel::Fire;
use qpair_model::rules::channel::Wants;
use qpair_model::rules::eq_irq::EventQueue;
use qpair_model::rules::eq_irq::Moderation;
use qpair_queue::consumer::EqConsumer;
use qpair_queue::credit::RingId;
use qpair_queue::eq_slots::EventSlots;
use qpair_queue::eq_slots::SlotShares;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::poll::Poller;
use qpair_queue::poll::Run;
use qpair_queue::poll::Tuning;
use std::hash::Hash;
use std::hash::Hasher;

/// Entries of the EQ's memory.
const DEPTH: u32 = 8;

/// How often an asynchronous event repeats before it is reported.
const REPEATS: u8 = 2;

/// Notifies of a process that the device has not acted on.
const BELLS: usize = 2;

/// An instance to explore.
#[derive(Clone, Copy, Debug)]
pub struct Instance {
    /// CQs that exist at first, of the kernel and of processes; and free numbers for the kernel's.
    pub kernel: usize,
    pub process: usize,
    pub unborn: usize,
    /// Queue pairs of each CQ, places for them, and blocks of each.
    pub pairs: usize,
    /// Additional ones of the first CQ.
    pub more: usize,
    pub places: usize,
    pub blocks: u32,
    /// Sources of asynchronous events.
    pub sources: usize,
    /// CQs that are destroyed and created again, as bits; and those whose queue pairs are. With
    /// unread entries or without.
    pub cqs_go: u8,
    pub pairs_go: u8,
    /// The work requests of a queue pair.
    pub requests: &'static [Request],
    /// The selections of an arm, by the kernel or a process. If solicited is one: the device may
    /// write solicited completions.
    pub wants: &'static [Wants],
    /// A process may arm though it is awake, and has armed. If it notifies: it may notify and arm at
    /// any time, also while it sleeps (from another thread).
    pub rearm: bool,
    /// Processes notify, poll, and sleep; else they poll, and sleep with an arm.
    pub notifies: bool,
    /// The device may publish a producer index late.
    pub lags: bool,
    /// It may ring with an old index, also while it sleeps (from another thread), with one past the
    /// producer, with the number of a destroyed CQ, and with that of a CQ that is not its own.
    pub stale: bool,
    /// It is hostile, and has no guarantees.
    pub hostile: bool,
    /// The driver removes a CQ of the kernel from its table before it is destroyed.
    pub takes: bool,
    /// A step that no other actor can observe has no state of its own; see [`State::hasten`].
    pub coarse: bool,
    /// A fault of the device or of the driver.
    pub wrong: Option<Wrong>,
    /// EQ slots beyond one for each CQ: for asynchronous events, and to arm with.
    pub reserve: u32,
    pub spare: u32,
    /// Any of them at the beginning of any poll.
    pub tunings: &'static [Tuning],
    /// Also check that other work completes while this CQ never drains.
    pub hog: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub poller: Poller<Written<{ 2 * DEPTH as usize }>>,
    pub run: Option<Run>,
    pub scheduled: bool,
    pub world: World,
    /// The cached hash of the state.
    pub print: u64,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.print);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The device executes a work request of this CQ's queue pair; writes a completion for a
    /// hostile process.
    Complete(usize, usize, Outcome),
    /// The same for one that is posted just before.
    Execute(usize, usize, Request, Outcome),
    Garbage(usize, bool),
    /// An asynchronous event.
    Happen(usize),
    Interrupt,
    /// A poll begins, with one of the tunings; continues.
    Begin(usize),
    Step,
    Post(usize, usize, Request),
    /// The selection of the kernel's next arm.
    Want(usize, Wants),
    /// A process reads a completion; publishes a head; arms and sleeps; arms, and continues. (The
    /// indices are those of `Body::at`.)
    Read(usize),
    Head(usize, u32),
    Sleep(usize, Wants, u32),
    Arm(usize, Wants, u32),
    /// It notifies, perhaps before the device has published the newest completion; sleeps, after it
    /// has notified and polled. The device acts on a notify.
    Notify(usize, Wants, bool),
    Wait(usize),
    Hear(usize, usize),
    /// It arms a CQ that it does not have, or no longer has; see `World::forge`.
    Forge(usize, bool, u32),
    DestroyPair(usize, usize),
    CreatePair(usize, usize),
    /// The driver removes a CQ of the kernel from its table; it reads the remaining entries.
    Take(usize),
    Drain(usize),
    /// The device destroys a CQ; the driver frees it.
    Destroy(usize),
    Unbind(usize),
    Create(usize),
}

impl State {
    pub fn new(instance: &Instance) -> Self {
        let kernel = (1 << instance.kernel) - 1;
        let goes_in_a_turn = instance.cqs_go & kernel != 0 && !instance.takes;
        assert!(!instance.coarse || !goes_in_a_turn, "see `State::hasten`");
        let depth = Depth::new(DEPTH).expect("a depth");
        let born = instance.kernel + instance.process;
        let capacity = born as u32 + instance.spare + instance.reserve;
        let ring = RingId::new(0, 0);
        let (eq, pool) =
            EqConsumer::starting_at(ring, Written::new(), depth, capacity, FIRST).expect("a ring");
        let shares = SlotShares {
            reserve: instance.reserve,
            spare: instance.spare,
            kernel: 0,
        };
        let slots = EventSlots::new(pool, shares).expect("slots");
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
        // Full until the head has passed the events of destroyed CQs.
        let Ok(node) = node else { return };
        let (number, node) = self.world.insert(i, node, instance);
        if !user {
            self.poller.start(number, node);
            self.scheduled = true;
        }
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
            // The control path waits for a running poll.
            let control = self.run.is_none();
            let goes = instance.cqs_go >> i & 1 != 0;
            let pairs_go = control && instance.pairs_go >> i & 1 != 0;
            if instance.stale {
                let at = cq.body.as_ref().map_or(0, Body::beyond);
                let alien = cq.body.is_none() || !cq.user;
                let forged = [(true, at.saturating_sub(1)), (false, 0)];
                let forged = forged.into_iter().filter(|(before, _)| *before || alien);
                actions.extend(forged.map(|(before, at)| Action::Forge(i, before, at)));
            }
            let Some(body) = &cq.body else {
                if control && cq.ended.is_some() {
                    actions.push(Action::Unbind(i));
                } else if control
                    && goes
                    && !world.is_named(i)
                    && self.poller.slots().unbound() != 0
                {
                    actions.push(Action::Create(i));
                }
                continue;
            };
            if cq.taken {
                actions.extend(self.to_end(i));
            } else if goes && instance.takes && !cq.user {
                if control {
                    actions.push(Action::Take(i));
                }
            } else if goes {
                actions.push(Action::Destroy(i));
            }
            if body.hostile {
                self.hostile_actions(instance, i, actions);
                continue;
            }
            for (at, place) in body.places.iter().enumerate() {
                if let Some(pair) = &place.pair {
                    if let Some(request) = pair.todo().first() {
                        actions.extend(
                            instance
                                .outcomes(request)
                                .map(|it| Action::Complete(i, at, it)),
                        );
                    }
                    for &it in instance.requests {
                        if !instance.coarse {
                            // It is refused if the SQ is full. There are no posts to a CQ's pair
                            // after the CQ's removal; executed requests were posted before.
                            actions.extend((!cq.taken).then_some(Action::Post(i, at, it)));
                        } else if it.blocks <= pair.sq.free() {
                            let outcomes = instance.outcomes(&it);
                            actions.extend(outcomes.map(|how| Action::Execute(i, at, it, how)));
                        }
                    }
                    if pairs_go && !cq.taken {
                        actions.push(Action::DestroyPair(i, at));
                    }
                } else if pairs_go && !cq.taken && body.may_create(at, instance.blocks) {
                    actions.push(Action::CreatePair(i, at));
                }
            }
            if cq.user {
                self.process_actions(instance, i, actions);
            } else if !cq.taken {
                let wants = instance.wants.iter().filter(|&&it| it != cq.wants);
                actions.extend(wants.map(|&it| Action::Want(i, it)));
            }
        }
    }

    /// The driver's next action for a CQ that it has removed: its queue pairs, its remaining
    /// entries, and the CQ itself.
    fn to_end(&self, i: usize) -> Option<Action> {
        let body = self.world.cqs[i].body.as_ref()?;
        let pair = body.position(|_| true);
        Some(match pair {
            Some(at) => Action::DestroyPair(i, at),
            None if body.unread() + body.consumer.unpublished() != 0 => Action::Drain(i),
            None => Action::Destroy(i),
        })
    }

    fn process_actions(&self, instance: &Instance, i: usize, actions: &mut Vec<Action>) {
        let cq = &self.world.cqs[i];
        let Some(body) = &cq.body else { return };
        if instance.notifies {
            return self.notifier_actions(instance, i, body, actions);
        }
        let read = body.read();
        let old = if instance.stale { 0..read } else { 0..0 };
        let (awake, wants) = (cq.sleeps.is_none(), instance.wants);
        if awake {
            if body.unread() != 0 {
                actions.push(Action::Read(i));
            }
            if body.consumer.unpublished() != 0 {
                actions.push(Action::Head(i, read));
            }
            // It has polled before, so there may be new entries by now.
            let arms = wants.iter().map(|&it| Action::Sleep(i, it, read));
            actions.extend(arms);
        }
        if awake && instance.rearm || instance.stale {
            actions.extend(wants.iter().map(|&it| Action::Arm(i, it, read)));
        }
        for at in old.chain(instance.stale.then_some(body.beyond())) {
            actions.push(Action::Head(i, at));
            for &it in wants {
                actions.push(Action::Arm(i, it, at));
                if awake && at < read {
                    actions.push(Action::Sleep(i, it, at));
                }
            }
        }
    }

    /// Those of a process that notifies.
    fn notifier_actions(
        &self,
        instance: &Instance,
        i: usize,
        body: &Body,
        actions: &mut Vec<Action>,
    ) {
        let cq = &self.world.cqs[i];
        actions.extend((0..body.bells()).map(|at| Action::Hear(i, at)));
        let awake = cq.sleeps.is_none();
        if instance.rearm || awake && cq.asked.is_none() {
            let room = body.bells() < BELLS;
            let wants = instance.wants.iter().filter(|_| room);
            for &it in wants {
                actions.push(Action::Notify(i, it, false));
                if instance.lags && body.has_written() {
                    actions.push(Action::Notify(i, it, true));
                }
            }
        }
        if instance.rearm {
            let read = body.read();
            actions.extend(instance.wants.iter().map(|&it| Action::Arm(i, it, read)));
        }
        if !awake {
            return;
        }
        if body.unread() != 0 {
            actions.push(Action::Read(i));
        }
        if body.consumer.unpublished() != 0 {
            actions.push(Action::Head(i, body.read()));
        }
        let polled = body.unread() == 0 || instance.wrong == Some(Wrong::PollsFirst);
        if polled && cq.asked.is_some() {
            actions.push(Action::Wait(i));
        }
    }

    fn hostile_actions(&self, instance: &Instance, i: usize, actions: &mut Vec<Action>) {
        let Some(body) = &self.world.cqs[i].body else {
            return;
        };
        for at in 0..=body.beyond() {
            actions.push(Action::Head(i, at));
            actions.extend(instance.wants.iter().map(|&it| Action::Arm(i, it, at)));
        }
        if instance.notifies && body.bells() == 0 {
            actions.extend(
                instance
                    .wants
                    .iter()
                    .map(|&it| Action::Notify(i, it, false)),
            );
        }
        actions.extend((0..body.bells()).map(|at| Action::Hear(i, at)));
        if !body.is_overrun() {
            actions.push(Action::Garbage(i, false));
            actions.push(Action::Garbage(i, true));
        }
    }

    pub fn act(&mut self, instance: &Instance, action: Action) {
        let world = &mut self.world;
        let number = |world: &World, i: usize| world.cqs[i].number;
        match action {
            Action::Complete(i, at, outcome) => {
                world.act(number(world, i), |body| body.complete(at, outcome));
            }
            Action::Execute(i, at, request, outcome) => world.act(number(world, i), |body| {
                body.post(at, request)?;
                body.complete(at, outcome)
            }),
            Action::Garbage(i, solicited) => {
                world.act(number(world, i), |body| Ok(body.garbage(solicited)));
            }
            Action::Happen(i) => world.happen(i),
            Action::Interrupt => {
                world.interrupt = false;
                self.scheduled = true;
            }
            Action::Begin(i) => {
                // An interrupt while it runs schedules it once more.
                self.scheduled = false;
                self.run = Some(self.poller.begin(instance.tunings[i]));
            }
            Action::Step => {
                let Some(run) = &mut self.run else { return };
                if let Some(again) = world.step(&mut self.poller, run) {
                    self.scheduled |= again;
                    self.run = None;
                    if self.poller.eq().unpublished() != 0 {
                        world.broken("a poll ends with events unpublished");
                    }
                }
            }
            Action::Post(i, at, request) => world.act(number(world, i), |body| {
                body.post(at, request).map(|()| Fire::No)
            }),
            Action::Want(i, wants) => world.cqs[i].wants = wants,
            Action::Read(i) => world.act(number(world, i), |body| {
                body.consume(1);
                Ok(Fire::No)
            }),
            Action::Head(i, at) => world.act(number(world, i), |body| body.ring(None, at)),
            Action::Arm(i, wants, at) => {
                world.act(number(world, i), |body| body.ring(Some(wants), at));
            }
            Action::Sleep(i, wants, at) => {
                world.cqs[i].sleeps = Some(wants);
                world.act(number(world, i), |body| body.ring(Some(wants), at));
            }
            Action::Notify(i, wants, lags) => {
                let cq = &mut world.cqs[i];
                if cq.sleeps.is_none() && cq.asked != Some(Wants::Next) {
                    cq.asked = Some(wants);
                }
                world.act(number(world, i), |body| {
                    body.notify(wants, lags);
                    Ok(Fire::No)
                });
            }
            Action::Wait(i) => {
                let cq = &mut world.cqs[i];
                let asked = cq.asked.take();
                if !std::mem::take(&mut cq.signaled) {
                    cq.sleeps = asked;
                }
            }
            Action::Hear(i, at) => world.act(number(world, i), |body| Ok(body.hear(at))),
            Action::Forge(i, before, at) => world.forge(i, before, Wants::Next, at),
            Action::DestroyPair(i, at) => {
                world.act(number(world, i), |body| {
                    body.destroy_pair(at).map(|()| Fire::No)
                });
            }
            Action::CreatePair(i, at) => world.act(number(world, i), |body| {
                body.create_pair(at, instance.blocks);
                Ok(Fire::No)
            }),
            Action::Take(i) => world.take(i, &mut self.poller),
            Action::Drain(i) => world.drain(i),
            Action::Destroy(i) => world.end(i),
            Action::Unbind(i) => world.unbind(i, &mut self.poller),
            Action::Create(i) => self.create(i, instance),
        }
    }

    /// Moves each ring back to `first`, so that states that differ only in that are merged.
    pub fn settle(&mut self, first: Index) {
        let by = first.since(self.world.eq.window().head());
        self.poller.rotate(by);
        self.world.settle(first);
        if let Some(run) = &mut self.run {
            run.forget();
        }
        self.rename(self.world.odd());
        let held = self.world.held();
        if self.poller.audit(held).is_err() {
            self.world.broken("EQ slots do not add up");
        }
        let mut hasher = AHasher::default();
        let all = (&self.poller, &self.run, self.scheduled, &self.world);
        all.hash(&mut hasher);
        self.print = hasher.finish();
    }

    /// Swaps numbers of CQs ([`World::rename`]), and lays the EQ's memory out.
    pub fn rename(&mut self, which: u32) {
        self.world.rename(which, &mut self.poller, &mut self.run);
        let eq = self.poller.eq();
        let events = self.world.events.iter();
        let words = events.map(|written| Eqe::encode(&event(written)));
        let first = self.world.eq.window().head();
        eq.storage().lay_out(eq.depth(), first, words);
    }

    pub fn next(&self, instance: &Instance, action: Action) -> Self {
        let mut next = self.clone();
        next.act(instance, action);
        next.settle(FIRST);
        if instance.coarse {
            next.hasten(instance);
        }
        next
    }

    /// Takes the steps of the poll that no other actor can observe or influence.
    ///
    /// A step that reads a valid entry commutes with any action of the device, the processes or the
    /// control path: an entry does not change until a head has passed it, and only the poll's own
    /// doorbells publish that head. So for each interleaving with another actor in between there is
    /// one without, and both reach the same state. No property depends on the states between, since
    /// the driver does not sleep there. Excluded are steps that find no entry, ring a doorbell,
    /// wake a process that is awake (it may be about to sleep), or end the poll; and a CQ of the
    /// kernel is not destroyed during its turn.
    ///
    /// Likewise a work request is posted just before it is executed ([`Action::Execute`]): between
    /// the two no actor reads it, free slots stay free, and if its queue pair is destroyed first it
    /// leaves nothing behind.
    ///
    /// `a_coarse_step_hides_nothing` compares both, to show that this hides nothing.
    pub fn hasten(&mut self, instance: &Instance) {
        let mut moved = false;
        while let Some(ahead) = self.unnoticed(instance) {
            (*self, moved) = (ahead, true);
        }
        if moved {
            self.settle(FIRST);
        }
    }

    /// The state after the poll's next step, if no other actor can observe that step.
    pub fn unnoticed(&self, instance: &Instance) -> Option<Self> {
        self.run.as_ref()?;
        let mut ahead = self.clone();
        let met = meets(|| ahead.act(instance, Action::Step));
        (!met && ahead.run.is_some()).then_some(ahead)
    }

    /// The driver has no work, as far as it knows.
    pub fn is_asleep(&self) -> bool {
        self.run.is_none() && !self.scheduled && !self.world.interrupt
    }

    /// CQ `i` waits only for completions that its arm selects, or does not exist, or is not
    /// checked.
    pub fn is_served(&self, i: usize) -> bool {
        let cq = &self.world.cqs[i];
        let Some(body) = &cq.body else {
            return cq.ended.is_none();
        };
        let waits = match cq.user {
            true => cq.sleeps,
            false => body.channel.open(),
        };
        let heard = body.bells() == 0;
        body.hostile || heard && !cq.taken && waits.is_some_and(|wants| body.is_at_rest(wants))
    }

    /// No work is pending.
    pub fn is_rest(&self) -> bool {
        let world = &self.world;
        self.is_asleep()
            && self.poller.slots().deferred() == 0
            && world.sources.iter().all(|source| source.owed == 0)
            && (0..world.cqs.len()).all(|i| self.is_served(i))
    }

    /// No work is pending except that of this CQ.
    pub fn is_rest_beside(&self, hog: usize) -> bool {
        let world = &self.world;
        world.sources.iter().all(|source| source.owed == 0)
            && (0..world.cqs.len()).all(|i| i == hog || self.is_served(i))
    }

    /// The next step if every actor finishes its work, and none starts new work.
    pub fn ending(&self) -> Option<Action> {
        for (i, cq) in self.world.cqs.iter().enumerate() {
            let Some(body) = cq.body.as_ref().filter(|body| !body.hostile) else {
                continue;
            };
            if cq.taken {
                return self.to_end(i);
            }
            if let Some(at) = body.position(|pair| !pair.todo().is_empty()) {
                let pair = body.places[at].pair.as_ref()?;
                let outcome = match pair.todo().first()?.signaled {
                    true => Outcome::Plain,
                    false => Outcome::Silent,
                };
                return Some(Action::Complete(i, at, outcome));
            }
            if body.bells() != 0 {
                return Some(Action::Hear(i, 0));
            }
            if cq.user && cq.sleeps.is_none() {
                return Some(match body.unread() {
                    0 if cq.asked.is_some() => Action::Wait(i),
                    0 if self.world.notifies => Action::Notify(i, Wants::Next, false),
                    0 => Action::Sleep(i, Wants::Next, body.read()),
                    _ => Action::Read(i),
                });
            }
        }
        if self.run.is_some() {
            return Some(Action::Step);
        }
        if let Some(i) = self.world.cqs.iter().position(|cq| cq.ended.is_some()) {
            return Some(Action::Unbind(i));
        }
        if self.scheduled {
            Some(Action::Begin(0))
        } else {
            self.world.interrupt.then_some(Action::Interrupt)
        }
    }

    /// The same, but this CQ is kept as full as possible or, if its process is hostile, armed
    /// repeatedly.
    pub fn ending_beside(&self, hog: usize, coarse: bool) -> Option<Action> {
        let Some(body) = &self.world.cqs[hog].body else {
            return self.ending();
        };
        if body.hostile {
            let closed = body.channel.open().is_none();
            return match closed && !body.channel.in_eq() {
                true => Some(Action::Arm(hog, Wants::Next, 0)),
                false => self.ending(),
            };
        }
        match body.position(|pair| pair.sq.free() != 0) {
            Some(at) if coarse => {
                let (request, outcome) = (Request::SIGNALED, Outcome::Plain);
                Some(Action::Execute(hog, at, request, outcome))
            }
            Some(at) => Some(Action::Post(hog, at, Request::SIGNALED)),
            None => self.ending(),
        }
    }
}

impl Instance {
    /// How the device may complete this one. A failed one has a completion in any case.
    fn outcomes(&self, request: &Request) -> impl Iterator<Item = Outcome> {
        let solicited = self.wants.contains(&Wants::Solicited);
        let all = [
            (Outcome::Silent, !request.signaled),
            (Outcome::Plain, true),
            (Outcome::Solicited, solicited),
        ];
        all.into_iter()
            .filter_map(|(outcome, may)| may.then_some(outcome))
    }
}
