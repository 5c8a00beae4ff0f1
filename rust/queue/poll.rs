// SPDX-License-Identifier: GPL-2.0
//! The poll of an EQ.
//!
//! An interrupt (which has masked itself) schedules the poll, and the poll works in rounds:
//!
//! ```text
//!   Event ----> take up to n events, then publish the EQ head, keep masked
//!     |           polled CQ     -> Consume: up to k completions
//!     |                              drained -> Arm, takes an EQ slot (if none, publish the EQ
//!     |                                         head first), publishes the CQ head
//!     |                              not yet -> Defer: publish the CQ head, put onto the pending
//!     |                                         list, unarmed
//!     |           process's CQ  -> signal it
//!     |           else          -> its event handler
//!   Pending --> each CQ that waits for its turn, once: Consume
//!     |
//!   EndRound -> nothing left: publish the EQ head, *unmask*, done
//!                             (the device raises again if an event came meanwhile)
//!               budget spent: stay masked, come again
//! ```
//!
//! - A pending CQ needs no event and no interrupt, so under load the interrupts cease.
//! - n (events for each EQ head update), k (completions of a CQ in its turn) and the budget
//!   (completions and other events of one poll) affect speed and fairness, not correctness: any
//!   value from 1 works.
//! - No poll ends with events read and the head unpublished: a process's CQ that was armed again
//!   needs that head update for its next event.
//! - Small budgets do not starve a CQ: the next poll begins with the phase that this one did not
//!   reach. Between two turns of a pending CQ, another pending CQ has at most two.
//! - The work for each event is O(1). The pending list is linked through the driver's table of CQs;
//!   nothing is allocated.
//!
//! The other [`Policy`] is the loop of the source model: it arms a CQ again after k completions,
//! drained or not, and each head update unmasks.
//!
//! The poll decides, and its caller acts: [`Poller::step`] returns the next effect, at most one. The
//! device may act between any two effects, so the checker must be able to stop there.

use super::consumer::EqConsumer;
use super::credit::Imbalance;
use super::credit::Slots;
use super::eq_slots::Arming;
use super::eq_slots::EventSlots;
use super::eq_slots::Meaning;
use super::eq_slots::NoSlot;
use super::index::Index;
use super::storage::Storage;
use crate::abi::entry::Eqe;
use crate::abi::status::Event;
use crate::abi::Number;

/// When a CQ is armed again, and what a head update does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// When the CQ is drained; a head update keeps the mask until nothing is left.
    #[default]
    Coalesce,
    /// After k completions, drained or not; every head update unmasks.
    Reopen,
}

/// Parameters that may change at run time. Zero counts as 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuning {
    /// n: events for each EQ head update.
    pub events: u32,
    /// k: completions of a CQ in its turn.
    pub completions: u32,
    /// Completions and other events of one poll.
    pub budget: u32,
    /// When a CQ is armed again.
    pub policy: Policy,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            events: 32,
            completions: 64,
            budget: 256,
            policy: Policy::Coalesce,
        }
    }
}

/// The next effect of a poll. Its caller keeps the CQ that it looked up last: *the CQ*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an effect that is left out is a lost completion or a lost interrupt"]
pub enum Step {
    /// The event of a CQ was read: look up the CQ.
    Event(Eqe),
    /// A pending CQ has its turn: look it up.
    Turn(Number),
    /// Read up to this many completions of the CQ, then call [`Poller::consumed`].
    Consume(u32),
    /// Publish the head of the CQ, with *arm next* if true; then free slots; then complete the
    /// requests that were consumed.
    Publish(bool),
    /// Signal the process of the CQ.
    Signal,
    /// Pass an event that is not a completion to its handler. It must not be lost.
    Async(Eqe),
    /// Publish the EQ head: call [`Poller::publish`].
    EqHead,
    /// Nothing is left: publish the EQ head, which unmasks now, and end the poll.
    Done,
    /// The budget is spent: end the poll, still masked, and schedule it again.
    Again,
}

/// The result of a CQ's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumed {
    /// Completions that were read.
    pub count: u32,
    /// Whether the CQ was seen empty.
    pub drained: bool,
}

impl Consumed {
    /// For a CQ that does not exist or has no completions.
    pub const NOTHING: Self = Self {
        count: 0,
        drained: true,
    };
}

/// The poll's state of a CQ, in the driver's table.
#[derive(Debug)]
pub struct Node {
    arming: Arming,
    /// The CQ after this one on the pending list.
    next: Option<Number>,
}

impl Node {
    /// That of a CQ that is not pending.
    pub const fn new(arming: Arming) -> Self {
        Self { arming, next: None }
    }

    /// EQ slots that the CQ holds, for the audit.
    #[inline]
    pub const fn held(&self) -> u32 {
        match &self.arming {
            Arming::Armed(slot) | Arming::Process(slot) => slot.count(),
            Arming::Idle | Arming::Pending => 0,
        }
    }
}

/// What polls have done since the EQ is up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counts {
    /// Polls that began.
    pub polls: u64,
    /// Polls that ended with the budget spent.
    pub again: u64,
    /// Events that were taken from the EQ.
    pub events: u64,
    /// Completions of polled CQs that were read.
    pub completions: u64,
    /// Times that a CQ was armed.
    pub arms: u64,
    /// Times that a CQ went onto the pending list.
    pub deferred: u64,
    /// EQ head updates that kept the mask.
    pub heads: u64,
    /// EQ head updates that unmasked.
    pub unmasks: u64,
    /// EQ head updates because no slot was left to arm with.
    pub short: u64,
    /// Events of CQs that do not exist.
    pub stale: u64,
}

/// The next decision of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Event,
    EndEvents,
    Pending,
    EndRound,
    /// The CQ of an event was looked up.
    Found(Number),
    /// A pending CQ was looked up.
    Turn(Number),
    Consume(Number),
    Arm(Number),
    Defer(Number),
    Done,
}

/// The half of a round that a poll is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Events,
    Pending,
}

/// A poll that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    tuning: Tuning,
    budget: u32,
    at: At,
    phase: Phase,
    /// Events taken in this round.
    taken: u32,
    /// The EQ was seen empty in this round.
    empty: bool,
}

/// The poll's own state: the EQ's consumer, its slots, and the CQs that wait for another turn.
/// Exclusive access to it replaces locks for all of these.
#[derive(Debug)]
pub struct Poller<S: Storage> {
    eq: EqConsumer<S>,
    slots: EventSlots,
    /// The pending CQs that have a turn in this round.
    waiting: Option<Number>,
    /// Those that were deferred meanwhile, the last one first.
    deferred: Option<Number>,
    /// CQs that are polled without an event.
    pending: u32,
    /// What the next poll begins with.
    turn: Phase,
    counts: Counts,
}

impl<S: Storage> Poller<S> {
    /// For an EQ and its slots.
    pub fn new(eq: EqConsumer<S>, slots: EventSlots) -> Self {
        Self {
            eq,
            slots,
            waiting: None,
            deferred: None,
            pending: 0,
            turn: Phase::Events,
            counts: Counts::default(),
        }
    }

    /// The consumer, for checks and debugfs.
    #[inline]
    pub const fn eq(&self) -> &EqConsumer<S> {
        &self.eq
    }

    /// The slots, for checks and debugfs.
    #[inline]
    pub const fn slots(&self) -> &EventSlots {
        &self.slots
    }

    /// What polls have done so far.
    #[inline]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// CQs that wait for another turn.
    #[inline]
    pub const fn pending(&self) -> u32 {
        self.pending
    }

    /// Binds a polled CQ; returns the node for the driver's table. The CQ is neither armed nor
    /// pending until [`start`](Self::start).
    pub fn bind_kernel(&mut self) -> Result<Node, NoSlot> {
        Ok(Node::new(self.slots.bind_kernel()?))
    }

    /// Binds the CQ of a process; returns the node for the driver's table.
    pub fn bind_process(&mut self) -> Result<Node, NoSlot> {
        Ok(Node::new(self.slots.bind_process()?))
    }

    /// As [`bind_process`](Self::bind_process), of a kernel ULP that arms it itself.
    pub fn bind_ulp(&mut self) -> Result<Node, NoSlot> {
        Ok(Node::new(self.slots.bind_ulp()?))
    }

    /// Puts a polled CQ onto the pending list; the caller schedules the poll, which consumes and
    /// arms it. Does nothing if the CQ is pending, armed, or a process's.
    pub fn start(&mut self, cq: Number, node: &mut Node) {
        if let Arming::Idle = node.arming {
            self.defer(cq, node);
        }
    }

    /// Takes a CQ, whose `node` is not in the table any more, off the pending list. `find` looks up
    /// another one's node in `cqs`. O(n).
    pub fn remove<T>(
        &mut self,
        cq: Number,
        node: &Node,
        cqs: &mut T,
        find: impl Fn(&mut T, Number) -> Option<&mut Node>,
    ) {
        if let Arming::Pending = node.arming {
            self.pending = self.pending.wrapping_sub(1);
            for first in [&mut self.waiting, &mut self.deferred] {
                if *first == Some(cq) {
                    *first = node.next;
                }
                let mut at = *first;
                while let Some(other) = at.and_then(|at| find(cqs, at)) {
                    if other.next == Some(cq) {
                        other.next = node.next;
                    }
                    at = other.next;
                }
            }
        }
    }

    /// A CQ that is not pending was destroyed, and the destroy reported `until` as the EQ's producer
    /// index. For a CQ whose create failed, `until` is the EQ's head.
    pub fn unbind(&mut self, node: Node, until: Index) {
        // A slot of another EQ is rejected; the audit of that EQ reports it.
        let _: Result<(), Slots<_>> = self.slots.unbind(node.arming, self.eq.until(until));
        self.slots.published(self.eq.published());
    }

    /// Whether every slot is accounted for, with the `held` of all nodes.
    pub fn audit(&self, held: u32) -> Result<(), Imbalance> {
        self.slots.audit(held)
    }

    /// Begins a poll, with a budget.
    pub fn begin(&mut self, tuning: Tuning) -> Run {
        self.counts.polls = self.counts.polls.wrapping_add(1);
        let mut run = Run {
            tuning: Tuning {
                events: tuning.events.max(1),
                completions: tuning.completions.max(1),
                ..tuning
            },
            budget: tuning.budget.max(1),
            at: At::Event,
            phase: self.turn,
            taken: 0,
            empty: false,
        };
        run.resume();
        run
    }

    /// Decides once; returns the effect, if it has one. `cq` is the node of *the CQ*; `None` if it
    /// does not exist, or not any more.
    #[inline]
    pub fn step(&mut self, run: &mut Run, cq: Option<&mut Node>) -> Option<Step> {
        match run.at {
            At::Event => self.event(run),
            At::Found(number) => self.found(run, number, cq),
            At::EndEvents => {
                if run.empty && self.pending == 0 {
                    return self.done(run);
                }
                if self.waiting.is_none() {
                    self.waiting = self.deferred.take();
                }
                self.turn = Phase::Pending;
                run.phase = Phase::Pending;
                run.at = At::Pending;
                (self.eq.unpublished() != 0).then_some(Step::EqHead)
            }
            At::Pending => {
                run.at = At::EndRound;
                if run.budget == 0 {
                    return None;
                }
                self.turn = Phase::Events;
                let number = self.waiting?;
                run.at = At::Turn(number);
                Some(Step::Turn(number))
            }
            At::Turn(number) => {
                self.waiting = cq.and_then(|cq| cq.next.take());
                self.pending = self.pending.wrapping_sub(1);
                run.at = At::Consume(number);
                None
            }
            At::EndRound => {
                if run.empty && self.pending == 0 {
                    return self.done(run);
                }
                if run.budget == 0 {
                    self.counts.again = self.counts.again.wrapping_add(1);
                    return Some(Step::Again);
                }
                run.taken = 0;
                run.empty = false;
                run.phase = Phase::Events;
                run.at = At::Event;
                None
            }
            At::Consume(_) => Some(Step::Consume(run.tuning.completions.min(run.budget))),
            At::Arm(number) => self.arm(run, number, cq),
            At::Defer(number) => {
                run.resume();
                self.defer(number, cq?);
                Some(Step::Publish(false))
            }
            At::Done => Some(Step::Done),
        }
    }

    #[inline]
    fn event(&mut self, run: &mut Run) -> Option<Step> {
        if run.budget == 0 || run.taken >= run.tuning.events {
            run.at = At::EndEvents;
            return None;
        }
        let Some(entry) = self.eq.take() else {
            run.empty = true;
            run.at = At::EndEvents;
            return None;
        };
        run.taken = run.taken.wrapping_add(1);
        self.counts.events = self.counts.events.wrapping_add(1);
        let event = Eqe::decode(&entry.words);
        if event.kind != Event::Completion as u8 {
            run.spend(1);
            return Some(Step::Async(event));
        }
        run.at = At::Found(event.number);
        Some(Step::Event(event))
    }

    #[inline]
    fn found(&mut self, run: &mut Run, number: Number, cq: Option<&mut Node>) -> Option<Step> {
        let seen = self.eq.seen();
        let meaning = cq.map(|cq| self.slots.event(&mut cq.arming, seen));
        if meaning == Some(Meaning::Consume) {
            // Charges its completions, not the event, so that it can consume at least one.
            run.at = At::Consume(number);
            return None;
        }
        run.spend(1);
        run.at = At::Event;
        match meaning {
            Some(Meaning::Signal) => return Some(Step::Signal),
            Some(_) => {}
            None => self.counts.stale = self.counts.stale.wrapping_add(1),
        }
        None
    }

    /// A CQ was consumed, as [`Step::Consume`] asked.
    #[inline]
    pub fn consumed(&mut self, run: &mut Run, consumed: Consumed) {
        let At::Consume(cq) = run.at else { return };
        let count = u64::from(consumed.count);
        self.counts.completions = self.counts.completions.wrapping_add(count);
        run.spend(consumed.count.max(1));
        let open = consumed.drained || run.tuning.policy == Policy::Reopen;
        run.at = if open { At::Arm(cq) } else { At::Defer(cq) };
    }

    #[inline]
    fn arm(&mut self, run: &mut Run, number: Number, cq: Option<&mut Node>) -> Option<Step> {
        let Some(cq) = cq else {
            run.resume();
            return None;
        };
        match self.slots.arm(&mut cq.arming) {
            Ok(arm) => {
                self.counts.arms = self.counts.arms.wrapping_add(arm.into());
                run.resume();
                Some(Step::Publish(arm))
            }
            Err(NoSlot) if self.slots.read() != 0 => {
                self.counts.short = self.counts.short.wrapping_add(1);
                Some(Step::EqHead)
            }
            // Cannot happen: each bound CQ has a slot. If it did, the CQ would wait for its next
            // turn.
            Err(NoSlot) => {
                run.at = At::Defer(number);
                None
            }
        }
    }

    fn done(&mut self, run: &mut Run) -> Option<Step> {
        self.turn = Phase::Events;
        run.at = At::Done;
        Some(Step::Done)
    }

    fn defer(&mut self, number: Number, cq: &mut Node) {
        if let Arming::Idle | Arming::Pending = cq.arming {
            cq.arming = Arming::Pending;
            self.counts.deferred = self.counts.deferred.wrapping_add(1);
            self.push(number, cq);
        }
    }

    fn push(&mut self, number: Number, cq: &mut Node) {
        cq.next = self.deferred.replace(number);
        self.pending = self.pending.wrapping_add(1);
    }

    /// The effect of [`Step::EqHead`] and [`Step::Done`]: `doorbell` writes the head, and unmasks if
    /// true.
    #[inline]
    pub fn publish(&mut self, run: &Run, doorbell: impl FnOnce(Index, bool)) {
        let unmask = run.at == At::Done || run.tuning.policy == Policy::Reopen;
        let published = self.eq.publish(|head| doorbell(head, unmask));
        self.slots.published(published);
        let count = if unmask {
            &mut self.counts.unmasks
        } else {
            &mut self.counts.heads
        };
        *count = count.wrapping_add(1);
    }
}

impl Run {
    /// Returns to the phase of the CQ's turn.
    #[inline(always)]
    fn resume(&mut self) {
        self.at = match self.phase {
            Phase::Events => At::Event,
            Phase::Pending => At::Pending,
        };
    }

    #[inline(always)]
    fn spend(&mut self, count: u32) {
        self.budget = self.budget.saturating_sub(count);
    }
}
