// SPDX-License-Identifier: GPL-2.0
//! The poll of an EQ: the heart of the event path.
//!
//! An interrupt (which has masked itself) schedules the poll, and the poll works in rounds:
//!
//! ```text
//!   Event ----> take up to n events, then publish the EQ head, keep masked
//!     |           kernel CQ     -> Consume: up to k completions
//!     |                              drained -> Arm (publishes the CQ head): an EQ slot; none? publish the EQ head, then
//!     |                              not yet -> Defer: publish the CQ head, to the end of the pending list, unarmed
//!     |           process's CQ  -> signal it
//!     |           else          -> to whom it concerns
//!   Pending --> each CQ that was on the list when the round began, once: Consume
//!     |
//!   EndRound -> nothing left: publish the EQ head, *unmask*, done     (the device raises again if anything came meanwhile)
//!               budget spent: stay masked, come again
//! ```
//!
//! - A CQ that is pending costs no event and no interrupt, so under load the interrupts cease.
//! - n (events for each EQ head update), k (completions of a CQ in its turn) and the budget (completions and other events of one
//!   poll) are speed and fairness, never safety: any value from 1 is right.
//! - No poll ends with events read and the head unpublished: the arm that a process's CQ remembers waits for the head.
//! - Small budgets starve nobody: the next poll begins with the phase that this one did not get to, and the pending list is a queue.
//! - All is O(1) for each event. The list is a ring of links through the driver's own table of CQs; nothing is allocated.
//!
//! The other [`Policy`] is the source model's own loop: a channel is opened again
//! after k completions, drained or not, and each head update unmasks.
//!
//! It is written as a machine of small steps, each with one effect, because between any two effects the device
//! may do anything, and a checker has to be able to stop there. [`Poller::poll`] runs
//! it to the end.

use super::arm::Arming;
use super::arm::EventSlots;
use super::arm::Meaning;
use super::arm::NoSlot;
use super::consumer::EqConsumer;
use super::credit::Imbalance;
use super::credit::Slots;
use super::index::Index;
use super::mutant::mutant;
use super::storage::Storage;
use crate::abi::entry::Eqe;
use crate::abi::status::Event;
use crate::abi::Number;

/// When a CQ's channel is opened again, and what a head update does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// When the CQ is drained; a head update keeps the mask until nothing is left.
    #[default]
    Coalesce,
    /// After k completions, drained or not; every head update unmasks.
    Reopen,
}

/// What may be changed while running. Zero counts as 1.
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

/// What a turn of a CQ came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumed {
    /// Completions consumed.
    pub count: u32,
    /// Whether the CQ was seen empty.
    pub drained: bool,
}

impl Consumed {
    /// Of a CQ that does not exist, or has none to give.
    pub const NOTHING: Self = Self {
        count: 0,
        drained: true,
    };
}

/// What the poll keeps with each CQ, in the driver's table.
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
    /// What pays for the CQ's events.
    #[inline]
    pub const fn arming(&self) -> &Arming {
        &self.arming
    }

    /// EQ slots that it holds, for the audit.
    #[inline]
    pub const fn held(&self) -> u32 {
        match &self.arming {
            Arming::Armed(slot) | Arming::Process(slot) => slot.count(),
            Arming::Idle | Arming::Pending => 0,
        }
    }

    /// Calls CQs otherwise; see [`Poller::rename`].
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

/// What the poll does to the world. Every call is O(1).
pub trait Effects {
    /// A CQ of this EQ that was looked up.
    type Cq<'a>: CqEffects
    where
        Self: 'a;

    /// An event was read at `index`. To be told of it, nothing else.
    #[inline(always)]
    fn event(&mut self, index: Index, event: &Eqe) {
        let _ = (index, event);
    }

    /// Looks up a CQ of this EQ; `None` if there is no such CQ (any more).
    fn cq(&mut self, cq: Number) -> Option<Self::Cq<'_>>;

    /// The node of a CQ of this EQ, for the pending list; `None` as above.
    fn node(&mut self, cq: Number) -> Option<&mut Node>;

    /// Hands an event that is not a completion to its owner. It must not be lost.
    fn asynchronous(&mut self, event: Eqe);

    /// Rings the EQ head doorbell, the one that unmasks or the one that does not.
    fn doorbell(&mut self, head: Index, unmask: bool);
}

/// What the poll does to a CQ. Every call is O(1), [`consume`](Self::consume) but for its
/// completions.
pub trait CqEffects {
    /// Its node.
    fn node(&mut self) -> &mut Node;

    /// Reads up to `max` completions of a kernel CQ, and tells their queues what they cover.
    fn consume(&mut self, max: u32) -> Consumed;

    /// Publishes the head of a kernel CQ, with *arm next* if `arm`, else plainly; then
    /// gives slots back; then completes the requests that were consumed.
    fn publish(&mut self, arm: bool);

    /// Wakes the owner of a process's CQ.
    fn signal(&mut self);
}

/// What the poll has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counts {
    /// Polls that ran.
    pub polls: u64,
    /// Of these, those that ended with the budget spent.
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
    /// Of all head updates, those for want of a slot to arm with.
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

/// Where in a round.
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

/// The poll's own state: the EQ's consumer, its slots, and the CQs that wait for another turn. Who holds it needs no
/// lock for any of that.
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
    /// Of an EQ and its slots.
    pub fn new(eq: EqConsumer<S>, slots: EventSlots) -> Self {
        Self {
            eq,
            slots,
            pending: Pending::default(),
            turn: Phase::Events,
            counts: Counts::default(),
        }
    }

    /// The consumer, to look at.
    #[inline]
    pub const fn eq(&self) -> &EqConsumer<S> {
        &self.eq
    }

    /// The slots, to look at.
    #[inline]
    pub const fn slots(&self) -> &EventSlots {
        &self.slots
    }

    /// What was counted.
    #[inline]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Moves the EQ `by` entries on, as if it had begun there, and forgets what was counted.
    ///
    /// For a checker. Indices run free, so a ring never comes back to a state in which it was; but no rule looks at more of
    /// an index than its distance from others of its ring, and its place and pass. So the checker, which lays out the
    /// entries in memory, moves each ring to where it began, and what differs in nothing else is one state. What no rule
    /// will look at before it is written anew is set to one value.
    #[cfg(feature = "explore")]
    pub fn rotate(&mut self, by: u32) {
        self.eq.rotate(by);
        self.slots.rotate(by);
        self.counts = Counts::default();
    }

    /// Calls CQs otherwise.
    ///
    /// For a checker. No rule looks at more of a number than whether it is another one, so states in which CQs only have
    /// other numbers are one state. [`Node`]s and a [`Run`] have numbers too.
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

    /// Binds a kernel CQ: the node for the driver's table. It is neither armed nor pending until [`start`](Self::start).
    pub fn bind_kernel(&mut self) -> Result<Node, NoSlot> {
        Ok(Node::new(self.slots.bind_kernel()?))
    }

    /// Binds the CQ of a process: the node for the driver's table.
    pub fn bind_process(&mut self) -> Result<Node, NoSlot> {
        Ok(Node::new(self.slots.bind_process()?))
    }

    /// Puts a kernel CQ onto the pending list; the poll, which must be scheduled, consumes and arms it. Does nothing to one that
    /// is armed.
    pub fn start(&mut self, fx: &mut impl Effects, cq: Number) {
        self.defer(fx, cq);
    }

    /// A CQ was destroyed, and the destroy reported `until` as the EQ's producer index. Its node
    /// may go from the table afterwards, and not before. For a CQ whose create failed, `until` is
    /// the EQ's head.
    pub fn unbind(&mut self, fx: &mut impl Effects, cq: Number, until: Index) {
        self.pending.remove(fx, cq);
        if let Some(node) = fx.node(cq) {
            let arming = core::mem::replace(&mut node.arming, Arming::Idle);
            self.unbound(arming, until);
        }
    }

    /// [`unbind`](Self::unbind) of a node that is in no table (yet).
    pub fn unbind_node(&mut self, node: Node, until: Index) {
        self.unbound(node.arming, until);
    }

    fn unbound(&mut self, arming: Arming, until: Index) {
        // What is refused is not of this EQ; it shows in the audit of the one that it is of.
        let _: Result<(), Slots<_>> = self.slots.unbind(arming, until);
        self.slots.published(self.eq.published());
    }

    /// Whether every slot is accounted for, with the `held` of all nodes.
    pub fn audit(&self, held: u32) -> Result<(), Imbalance> {
        self.slots.audit(held)
    }

    /// The EQ was destroyed, after its CQs: gives its memory back.
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

    /// Goes one step on.
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
            // Its completions are charged, so that it gets at least one of them.
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
            // Nobody can have taken the slot that this CQ brought; were it so, it would wait its turn.
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
    /// Calls CQs otherwise; see [`Poller::rename`].
    #[cfg(feature = "explore")]
    pub fn rename(&mut self, name: impl Fn(Number) -> Number) {
        match &mut self.at {
            At::Consume(cq) | At::Arm(cq) | At::Defer(cq) => *cq = name(*cq),
            At::Event | At::EndEvents | At::Pending | At::EndRound => {}
        }
    }

    /// Sets to one value what no rule will look at before it is written anew.
    #[cfg(feature = "explore")]
    pub fn forget(&mut self) {
        match self.phase {
            Phase::Events => self.visits = 0,
            Phase::Pending => self.taken = 0,
        }
    }

    /// Back to the phase that a CQ's turn came out of.
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
