// SPDX-License-Identifier: GPL-2.0
//! The poll of an EQ.
//!
//! An interrupt (which has masked itself) schedules the poll, and the poll works in rounds:
//!
//! ```text
//!   Event ----> take up to n events, then publish the EQ head, keep masked
//!     |           kernel CQ     -> Consume: up to k completions
//!     |                              drained -> Arm, takes an EQ slot (if none, publish the EQ
//!     |                                         head first), publishes the CQ head
//!     |                              not yet -> Defer: publish the CQ head, append to the pending
//!     |                                         list, unarmed
//!     |           process's CQ  -> signal it
//!     |           else          -> its event handler
//!   Pending --> each CQ that was on the list when the round began, once: Consume
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
//!   reach, and the pending list is a queue.
//! - The work for each event is O(1). The list is linked through the driver's table of CQs; nothing
//!   is allocated.
//!
//! The other [`Policy`] is the loop of the source model: it arms a CQ again after k completions,
//! drained or not, and each head update unmasks.
//!
//! The poll is a state machine; each step has one effect. The device may act between any two
//! effects, so the checker must be able to stop there. [`Poller::poll`] runs all steps.

use super::consumer::EqConsumer;
use super::credit::Imbalance;
use super::credit::Slots;
use super::eq_slots::Arming;
use super::eq_slots::EventSlots;
use super::eq_slots::Meaning;
use super::eq_slots::NoSlot;
use super::index::Index;
use super::mutant::mutant;
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
    /// Which loop.
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

/// How a poll ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a poll that must come again and does not is a lost interrupt"]
pub enum Verdict {
    /// Nothing left, unmasked.
    Drained,
    /// The budget is spent, still masked: schedule it again.
    Again,
}

/// The result of a CQ's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumed {
    /// Completions consumed.
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
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub struct Node {
    arming: Arming,
    /// Neighbours on the pending list, while on it.
    before: Option<Number>,
    after: Option<Number>,
    listed: bool,
}

impl Node {
    /// The EQ slot reserved for the CQ's event.
    #[inline]
    pub const fn arming(&self) -> &Arming {
        &self.arming
    }

    /// EQ slots that the CQ holds, for the audit.
    #[inline]
    pub const fn held(&self) -> u32 {
        match &self.arming {
            Arming::Armed(slot) | Arming::Process(slot) => slot.count(),
            Arming::Idle | Arming::Pending => 0,
        }
    }

    /// Renumbers CQs; see [`Poller::rename`].
    #[cfg(feature = "explore")]
    pub fn rename(&mut self, name: impl Fn(Number) -> Number) {
        self.before = self.before.map(&name);
        self.after = self.after.map(name);
    }

    const fn new(arming: Arming) -> Self {
        Self {
            arming,
            before: None,
            after: None,
            listed: false,
        }
    }
}

/// The poll's effects outside its own state. Every call is O(1).
pub trait Effects {
    /// A CQ of this EQ, from [`cq`](Self::cq).
    type Cq<'a>: CqEffects
    where
        Self: 'a;

    /// An event was read at `index`; for tracing only.
    #[inline(always)]
    fn event(&mut self, index: Index, event: &Eqe) {
        let _ = (index, event);
    }

    /// Looks up a CQ of this EQ; `None` if it does not exist, or not any more.
    fn cq(&mut self, cq: Number) -> Option<Self::Cq<'_>>;

    /// The node of a CQ of this EQ, for the pending list; `None` as above.
    fn node(&mut self, cq: Number) -> Option<&mut Node>;

    /// Passes an event that is not a completion to its handler. It must not be lost.
    fn asynchronous(&mut self, event: Eqe);

    /// Rings the EQ head doorbell, the one that unmasks or the one that does not.
    fn doorbell(&mut self, head: Index, unmask: bool);
}

/// The poll's effects on a CQ. Every call is O(1), but [`consume`](Self::consume) is
/// O(completions).
pub trait CqEffects {
    /// Its node.
    fn node(&mut self) -> &mut Node;

    /// Reads up to `max` completions of a kernel CQ and reports them to their queues.
    fn consume(&mut self, max: u32) -> Consumed;

    /// Publishes the head of a kernel CQ, with *arm next* if `arm`; then frees slots; then
    /// completes the requests that were consumed.
    fn publish(&mut self, arm: bool);

    /// Signals the process of a process's CQ.
    fn signal(&mut self);
}

/// The poll's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counts {
    /// Polls that ran.
    pub polls: u64,
    /// Polls that ended with the budget spent.
    pub again: u64,
    /// Events read.
    pub events: u64,
    /// Completions consumed.
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

/// CQs that were not drained, the longest waiting first.
#[derive(Debug, Default)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
struct Pending {
    first: Option<Number>,
    last: Option<Number>,
    len: u32,
}

impl Pending {
    fn push(&mut self, fx: &mut impl Effects, cq: Number) {
        let before = self.last;
        let Some(node) = fx.node(cq) else { return };
        if node.listed {
            return;
        }
        node.listed = true;
        node.before = before;
        node.after = None;
        match before.and_then(|before| fx.node(before)) {
            Some(node) => node.after = Some(cq),
            None => self.first = Some(cq),
        }
        self.last = Some(cq);
        self.len = self.len.wrapping_add(1);
    }

    fn remove(&mut self, fx: &mut impl Effects, cq: Number) {
        let Some(node) = fx.node(cq) else { return };
        if !node.listed {
            return;
        }
        node.listed = false;
        let before = node.before.take();
        let after = node.after.take();
        match before.and_then(|before| fx.node(before)) {
            Some(node) => node.after = after,
            None => self.first = after,
        }
        match after.and_then(|after| fx.node(after)) {
            Some(node) => node.before = before,
            None => self.last = before,
        }
        self.len = self.len.wrapping_sub(1);
    }

    fn pop(&mut self, fx: &mut impl Effects) -> Option<Number> {
        let cq = self.first?;
        self.remove(fx, cq);
        Some(cq)
    }
}

/// The next step of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Event,
    EndEvents,
    Pending,
    EndRound,
    Consume(Number),
    Arm(Number),
    Defer(Number),
}

/// Which half of a round.
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
    /// CQs of the pending list still to be visited in this round.
    visits: u32,
    /// The EQ was seen empty in this round.
    empty: bool,
}

/// The poll's own state: the EQ's consumer, its slots, and the CQs that wait for another turn.
/// Exclusive access to it replaces locks for all of these.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub struct Poller<S: Storage> {
    eq: EqConsumer<S>,
    slots: EventSlots,
    pending: Pending,
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
            pending: Pending::default(),
            turn: Phase::Events,
            counts: Counts::default(),
        }
    }

    /// The consumer, to inspect.
    #[inline]
    pub const fn eq(&self) -> &EqConsumer<S> {
        &self.eq
    }

    /// The slots, to inspect.
    #[inline]
    pub const fn slots(&self) -> &EventSlots {
        &self.slots
    }

    /// The counters.
    #[inline]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Moves the EQ `by` entries on, as if it had begun there, and forgets what was counted.
    ///
    /// For the checker. Indices run free, so a ring never returns to an earlier state. But the
    /// rules use only the distance of an index from others of its ring, its position and its pass.
    /// So the checker, which lays out the entries in memory, moves each ring back to its beginning,
    /// and states that differ in nothing else become one. Fields that are written before their next
    /// use are set to one value.
    #[cfg(feature = "explore")]
    pub fn rotate(&mut self, by: u32) {
        self.eq.rotate(by);
        self.slots.rotate(by);
        self.counts = Counts::default();
    }

    /// Renumbers CQs.
    ///
    /// For the checker. The rules only compare numbers for equality, so states that differ only in
    /// the numbers of CQs are one state. [`Node`]s and a [`Run`] contain numbers too.
    #[cfg(feature = "explore")]
    pub fn rename(&mut self, name: impl Fn(Number) -> Number) {
        self.pending.first = self.pending.first.map(&name);
        self.pending.last = self.pending.last.map(name);
    }

    /// CQs that wait for another turn.
    #[inline]
    pub const fn pending(&self) -> u32 {
        self.pending.len
    }

    /// Binds a kernel CQ; returns the node for the driver's table. The CQ is neither armed nor
    /// pending until [`start`](Self::start).
    pub fn bind_kernel(&mut self) -> Result<Node, NoSlot> {
        Ok(Node::new(self.slots.bind_kernel()?))
    }

    /// Binds the CQ of a process; returns the node for the driver's table.
    pub fn bind_process(&mut self) -> Result<Node, NoSlot> {
        Ok(Node::new(self.slots.bind_process()?))
    }

    /// As [`bind_process`](Self::bind_process), of a user in the kernel that arms it itself.
    pub fn bind_ulp(&mut self) -> Result<Node, NoSlot> {
        Ok(Node::new(self.slots.bind_ulp()?))
    }

    /// Puts a kernel CQ onto the pending list; the caller schedules the poll, which consumes and
    /// arms it. Does nothing if the CQ is armed.
    pub fn start(&mut self, fx: &mut impl Effects, cq: Number) {
        self.defer(fx, cq);
    }

    /// A CQ was destroyed, and the destroy reported `until` as the EQ's producer index. The caller
    /// removes the node from the table afterwards, not before. For a CQ whose create failed,
    /// `until` is the EQ's head.
    pub fn unbind(&mut self, fx: &mut impl Effects, cq: Number, until: Index) {
        self.pending.remove(fx, cq);
        if let Some(node) = fx.node(cq) {
            let arming = core::mem::replace(&mut node.arming, Arming::Idle);
            self.unbound(arming, until);
        }
    }

    /// [`unbind`](Self::unbind) of a node that is not in the table.
    pub fn unbind_node(&mut self, node: Node, until: Index) {
        self.unbound(node.arming, until);
    }

    fn unbound(&mut self, arming: Arming, until: Index) {
        // A slot of another EQ is rejected; the audit of that EQ reports it.
        let _: Result<(), Slots<_>> = self.slots.unbind(arming, self.eq.until(until));
        self.slots.published(self.eq.published());
    }

    /// Whether every slot is accounted for, with the `held` of all nodes.
    pub fn audit(&self, held: u32) -> Result<(), Imbalance> {
        self.slots.audit(held)
    }

    /// The EQ was destroyed, after its CQs; returns its memory.
    pub fn retire(self) -> (S, Result<(), Imbalance>) {
        (self.eq.into_storage(), self.slots.retire())
    }

    /// Polls until nothing is left or the budget is spent.
    pub fn poll(&mut self, tuning: Tuning, fx: &mut impl Effects) -> Verdict {
        let mut run = self.begin(tuning);
        loop {
            if let Some(verdict) = self.step(&mut run, fx) {
                return verdict;
            }
        }
    }

    /// Begins a poll.
    pub fn begin(&mut self, tuning: Tuning) -> Run {
        self.counts.polls = self.counts.polls.wrapping_add(1);
        let phase = if mutant!(EventsFirst) {
            Phase::Events
        } else {
            self.turn
        };
        Run {
            tuning: Tuning {
                events: tuning.events.max(1),
                completions: tuning.completions.max(1),
                ..tuning
            },
            budget: tuning.budget.max(1),
            at: match phase {
                Phase::Events => At::Event,
                Phase::Pending => At::Pending,
            },
            phase,
            taken: 0,
            visits: self.pending.len,
            empty: false,
        }
    }

    /// Runs one step.
    #[inline]
    pub fn step(&mut self, run: &mut Run, fx: &mut impl Effects) -> Option<Verdict> {
        match run.at {
            At::Event => self.event(run, fx),
            At::Consume(cq) => self.consume(run, fx, cq),
            At::Arm(cq) => self.arm(run, fx, cq),
            At::Defer(cq) => {
                if let Some(mut cq) = fx.cq(cq) {
                    cq.publish(false);
                }
                if !mutant!(PendingForgotten) {
                    self.defer(fx, cq);
                }
                run.resume();
            }
            At::EndEvents => {
                if run.empty && self.pending.len == 0 {
                    return Some(self.leave(run, fx));
                }
                if self.eq.unpublished() != 0 && !mutant!(RoundEndNotPublished) {
                    self.publish(run, fx, false);
                }
                run.visits = self.pending.len;
                run.phase = Phase::Pending;
                run.at = At::Pending;
                self.turn = Phase::Pending;
            }
            At::Pending => {
                if run.budget == 0 {
                    run.at = At::EndRound;
                } else if run.visits == 0 {
                    self.turn = Phase::Events;
                    run.at = At::EndRound;
                } else {
                    self.turn = Phase::Events;
                    run.visits = run.visits.wrapping_sub(1);
                    match self.pending.pop(fx) {
                        Some(cq) => run.at = At::Consume(cq),
                        None => run.visits = 0,
                    }
                }
            }
            At::EndRound => {
                if run.empty && self.pending.len == 0 {
                    return Some(self.leave(run, fx));
                }
                if self.eq.unpublished() != 0 && !mutant!(RoundEndNotPublished) {
                    self.publish(run, fx, false);
                }
                if run.budget == 0 {
                    self.counts.again = self.counts.again.wrapping_add(1);
                    return Some(Verdict::Again);
                }
                run.taken = 0;
                run.empty = false;
                run.phase = Phase::Events;
                run.at = At::Event;
            }
        }
        None
    }

    #[inline]
    fn event(&mut self, run: &mut Run, fx: &mut impl Effects) {
        if run.budget == 0 || run.taken >= run.tuning.events {
            run.at = At::EndEvents;
            return;
        }
        let Some(entry) = self.eq.take() else {
            run.empty = true;
            run.at = At::EndEvents;
            return;
        };
        run.taken = run.taken.wrapping_add(1);
        self.counts.events = self.counts.events.wrapping_add(1);
        let event = Eqe::decode(&entry.words);
        fx.event(entry.seen.past().plus(u32::MAX), &event);
        if event.kind != Event::Completion as u8 {
            run.spend(1);
            fx.asynchronous(event);
            return;
        }
        let Some(mut cq) = fx.cq(event.number) else {
            run.spend(1);
            self.counts.stale = self.counts.stale.wrapping_add(1);
            return;
        };
        match self.slots.event(&mut cq.node().arming, entry.seen) {
            // Charges its completions, not the event, so that it can consume at least one.
            Meaning::Consume => run.at = At::Consume(event.number),
            Meaning::Signal => {
                run.spend(1);
                cq.signal();
            }
            Meaning::Spurious => run.spend(1),
        }
    }

    #[inline]
    fn consume(&mut self, run: &mut Run, fx: &mut impl Effects, cq: Number) {
        let mut max = run.tuning.completions.min(run.budget);
        if mutant!(BudgetIgnored) {
            max = u32::MAX;
        }
        let consumed = fx
            .cq(cq)
            .map_or(Consumed::NOTHING, |mut cq| cq.consume(max));
        let count = u64::from(consumed.count);
        self.counts.completions = self.counts.completions.wrapping_add(count);
        run.spend(consumed.count.max(1));
        let open = consumed.drained || run.tuning.policy == Policy::Reopen;
        run.at = if open || mutant!(PendingArmed) {
            At::Arm(cq)
        } else {
            At::Defer(cq)
        };
    }

    #[inline]
    fn arm(&mut self, run: &mut Run, fx: &mut impl Effects, cq: Number) {
        let armed = fx.cq(cq).map(|mut cq| {
            let ring = self.slots.arm(&mut cq.node().arming)?;
            cq.publish(ring);
            Ok(ring)
        });
        match armed {
            None => run.resume(),
            Some(Ok(ring)) => {
                if ring {
                    self.counts.arms = self.counts.arms.wrapping_add(1);
                }
                if mutant!(PendingArmed) {
                    self.pending.push(fx, cq);
                }
                run.resume();
            }
            Some(Err(NoSlot)) if self.slots.read() != 0 && !mutant!(OutOfSlotsNotPublished) => {
                self.counts.short = self.counts.short.wrapping_add(1);
                self.publish(run, fx, false);
            }
            // Cannot happen: each bound CQ has a slot. If it did, the CQ would wait for its next
            // turn.
            Some(Err(NoSlot)) => run.at = At::Defer(cq),
        }
    }

    fn defer(&mut self, fx: &mut impl Effects, cq: Number) {
        let Some(node) = fx.node(cq) else { return };
        if let Arming::Idle | Arming::Pending = node.arming {
            node.arming = Arming::Pending;
            self.counts.deferred = self.counts.deferred.wrapping_add(1);
            self.pending.push(fx, cq);
        }
    }

    fn publish(&mut self, run: &Run, fx: &mut impl Effects, unmask: bool) {
        let unmask = unmask || run.tuning.policy == Policy::Reopen;
        let published = self.eq.publish(|head| fx.doorbell(head, unmask));
        self.slots.published(published);
        let count = if unmask {
            &mut self.counts.unmasks
        } else {
            &mut self.counts.heads
        };
        *count = count.wrapping_add(1);
    }

    fn leave(&mut self, run: &Run, fx: &mut impl Effects) -> Verdict {
        self.turn = Phase::Events;
        self.publish(run, fx, !mutant!(LeaveMasked));
        Verdict::Drained
    }
}

impl Run {
    /// Renumbers CQs; see [`Poller::rename`].
    #[cfg(feature = "explore")]
    pub fn rename(&mut self, name: impl Fn(Number) -> Number) {
        match &mut self.at {
            At::Consume(cq) | At::Arm(cq) | At::Defer(cq) => *cq = name(*cq),
            At::Event | At::EndEvents | At::Pending | At::EndRound => {}
        }
    }

    /// Sets fields that are written before their next use to one value.
    #[cfg(feature = "explore")]
    pub fn forget(&mut self) {
        match self.phase {
            Phase::Events => self.visits = 0,
            Phase::Pending => self.taken = 0,
        }
    }

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
