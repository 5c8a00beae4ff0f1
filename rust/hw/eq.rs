// SPDX-License-Identifier: GPL-2.0

//! Event queues: from the interrupt to the process that waits.
//!
//! There is an EQ for each vector. Its poll owns all state of the event path: the EQ's consumer,
//! its slots, the pending list, its polled CQs with their queue pairs, and the table of CQs by
//! number. The poll runs in BH, never concurrently with itself, and takes no lock. Process context
//! pauses the poll ([`kernel::poller`](crate::kernel::poller)) to access this state.
//!
//! [`queue::poll`](crate::queue::poll) decides what the poll does next; [`Eq::run`] does it.

use super::{
    batch::DoneBatch,
    cq::{
        Body,
        Entry,
        PolledCq,
        Queues, //
    },
    function::{
        Function,
        Limits, //
    },
    handlers::{
        AsyncEvent,
        Handlers, //
    },
    knobs::Knobs,
    prelude::*,
    ring::Ring,
    table::{
        Reservation,
        Table, //
    }, //
};
use crate::{
    abi::{
        command::EqContext,
        entry::Eqe, //
    },
    kernel::{
        poller::{
            self,
            Handler,
            Next, //
        },
        rdma::{
            Events,
            PortEvent, //
        }, //
    },
    policy::{
        moderation::Setting,
        share::{
            Share,
            Time, //
        }, //
    },
    queue::{
        consumer::{
            is_there,
            EqConsumer, //
        },
        credit::RingId,
        eq_slots::{
            EventSlots,
            NoSlot,
            SlotShares, //
        },
        poll::{
            Consumed,
            Node,
            Poller,
            Step,
            Tuning, //
        }, //
    }, //
};
use kernel::{
    device::Device,
    sync::atomic::{
        Acquire,
        Atomic,
        Relaxed,
        Release, //
    }, //
};

/// Takes the slots of a CQ from the poll of an EQ.
pub(crate) type Bind = fn(&mut Poller<Ring>) -> Result<Node, NoSlot>;

/// The poll of an EQ, and what schedules it.
pub(crate) type EqPoller = poller::BhPoller<Eq>;

/// Base-two logarithm of the entries of an EQ, unless the device allows fewer.
const LOG_DEPTH: u8 = 12;

/// The shared state of an EQ.
pub(crate) struct Eq {
    function: Arc<Function>,
    knobs: Arc<Knobs>,
    /// The index; also the vector.
    pub(crate) index: u32,
    /// Its number in this epoch.
    number: Atomic<u32>,
    /// Index of the entry that the poll reads next.
    head: Atomic<u32>,
    polls: Atomic<u32>,
    waits: Atomic<bool>,
    interrupts: Atomic<u64>,
    lost: Atomic<u64>,
    /// Completions that were consumed, and events of CQs of processes.
    done: Atomic<u64>,
    /// The moderation last set in the device: count in the low half, microseconds in the high half.
    moderation: Atomic<u32>,
}

/// The poll's state; `None` while the device is down.
pub(crate) struct State {
    /// A value taken from here is [retired](Live::retire) once the poll is no longer paused.
    pub(crate) live: Option<KBox<Live>>,
}

/// An EQ that is up.
pub(crate) struct Live {
    number: Number,
    epoch: u32,
    pub(super) poll: Poller<Ring>,
    /// Its share of its CPU.
    share: Share,
    pub(super) cqs: Table<Entry>,
    pub(super) handlers: Handlers,
    batch: DoneBatch,
}

/// The memory of an EQ.
#[derive(Clone)]
pub(crate) struct EqRing {
    ring: Ring,
    depth: Depth,
}

/// Entries of an EQ of a device with these limits: twice the reserve for asynchronous events, if
/// that is more than the default.
fn depth(limits: &Limits) -> Option<Depth> {
    // CAST: At most 33.
    let reserve = (33 - limits.asynchronous.leading_zeros()) as u8;
    Depth::from_log2(LOG_DEPTH.max(reserve).min(limits.log_eq))
}

/// The division of the slots of the EQ of vector `index`.
fn shares(limits: &Limits, index: u32, depth: Depth) -> SlotShares {
    let reserve = match index {
        0 => limits.asynchronous,
        _ => 0,
    };
    SlotShares::of(depth, reserve)
}

impl EqRing {
    /// Allocates it, as deep as the device of `function` allows. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(pass: &Pass<'_>, function: &Function) -> Result<Self> {
        let depth = depth(&function.limits).ok_or(EINVAL)?;
        Ok(Self {
            ring: Ring::new(pass, depth.entries() as usize * Eqe::BYTES)?,
            depth,
        })
    }

    /// DMA address and log2 of the depth, for registers.
    pub(crate) fn place(&self) -> (u64, u8) {
        (self.ring.address(), self.depth.log2())
    }

    /// The context that creates an EQ in this memory, for `vector`.
    pub(crate) fn context(&self, vector: u16) -> EqContext {
        EqContext {
            vector,
            log_depth: self.depth.log2(),
            buffer: self.ring.list(),
            ..EqContext::default()
        }
    }

    /// Whether there is an event at `head`. Any context, also while a poll runs.
    pub(crate) fn is_there(&self, head: Index) -> bool {
        is_there::<{ Eqe::WORDS }, _>(&self.ring, self.depth, head)
    }
}

impl Eq {
    /// The EQ of vector `index`, down.
    pub(crate) fn new(
        dev: &Device<Bound>,
        function: Arc<Function>,
        knobs: Arc<Knobs>,
        index: u32,
    ) -> Result<Arc<EqPoller>> {
        let eq = Self {
            function,
            knobs,
            index,
            number: Atomic::new(0),
            head: Atomic::new(0),
            polls: Atomic::new(0),
            waits: Atomic::new(false),
            interrupts: Atomic::new(0),
            lost: Atomic::new(0),
            done: Atomic::new(0),
            moderation: Atomic::new(0),
        };
        EqPoller::new(dev, eq, State { live: None })
    }

    /// CQs of processes that the EQ of vector `index` has slots for.
    pub(crate) fn process_cqs(limits: &Limits, index: u32) -> u32 {
        let Some(depth) = depth(limits) else { return 0 };
        let shares = shares(limits, index, depth);
        [shares.reserve, shares.spare, shares.kernel]
            .into_iter()
            .fold(depth.entries(), u32::saturating_sub)
    }

    /// Its number in this epoch.
    pub(crate) fn number(&self) -> Number {
        Number::from_raw(self.number.load(Acquire))
    }

    /// Interrupts received, and interrupts found to be lost.
    pub(crate) fn interrupts(&self) -> (u64, u64) {
        (self.interrupts.load(Relaxed), self.lost.load(Relaxed))
    }

    /// The moderation last set in the device.
    pub(crate) fn moderation(&self) -> Setting {
        let both = self.moderation.load(Relaxed);
        Setting {
            // CAST: The halves.
            count: both as u16,
            usecs: (both >> 16) as u16,
        }
    }

    /// Records the moderation set in the device.
    pub(crate) fn set_moderation(&self, Setting { count, usecs }: Setting) {
        let both = u32::from(count) | u32::from(usecs) << 16;
        self.moderation.store(both, Relaxed);
    }

    /// Totals of completions and interrupts.
    pub(crate) fn traffic(&self) -> (u64, u64) {
        (self.done.load(Relaxed), self.interrupts.load(Relaxed))
    }

    /// The poll's next entry, then the number of polls: a poll that takes the entry in between
    /// changes the number.
    pub(crate) fn progress(&self) -> (Index, u32) {
        let head = Index::new(self.head.load(Acquire));
        (head, self.polls.load(Acquire))
    }

    /// Whether a poll waits for the relay's thread to get the CPU.
    pub(crate) fn waits(&self) -> bool {
        self.waits.load(Relaxed)
    }

    /// The watchdog has found that an interrupt was lost.
    pub(crate) fn count_lost(&self) {
        self.lost.fetch_add(1, Relaxed);
    }

    /// Starts it as `number`: head 0, no moderation.
    pub(crate) fn begin(&self, number: Number) {
        self.set_moderation(Setting::OFF);
        self.number.store(number.raw(), Release);
        self.head.store(0, Release);
    }

    /// Makes the poll's state, for EQ `number` in `ring` in `epoch`. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the ring does not hold its depth, `ENOSPC` if it has too few slots, `ENOMEM`.
    pub(crate) fn live(&self, number: Number, epoch: u32, ring: EqRing) -> Result<KBox<Live>> {
        let id = RingId::new(number.raw(), epoch);
        let (consumer, pool) =
            EqConsumer::new(id, ring.ring, ring.depth, ring.depth.entries()).map_err(|_| EINVAL)?;
        let limits = &self.function.limits;
        let shares = shares(limits, self.index, ring.depth);
        let slots = EventSlots::new(pool, shares).map_err(|_| ENOSPC)?;
        let live = Live {
            number,
            epoch,
            poll: Poller::new(consumer, slots),
            share: Share::default(),
            cqs: Table::new(limits.cq)?,
            handlers: Handlers::new(self.index, limits)?,
            batch: DoneBatch::new()?,
        };
        Ok(KBox::new(live, GFP_KERNEL)?)
    }
}

impl Handler for Eq {
    type State = State;

    fn interrupt(&self, _dev: &Device<Bound>) {
        self.interrupts.fetch_add(1, Relaxed);
        trace::irq(self.function.index, self.number().raw());
    }

    fn poll(&self, dev: &Device<Bound>, state: &mut State, given: bool) -> Next {
        let Some(live) = state.live.as_mut() else {
            return Next::Done;
        };
        let time = if given {
            Time::Given
        } else if poller::is_idle() {
            Time::Idle
        } else {
            Time::Taken
        };
        if !live.share.begin(poller::clock(), time) {
            self.waits.store(true, Relaxed);
            return Next::Wait;
        }
        self.waits.store(false, Relaxed);
        let tuning = self.knobs.tuning();
        let before = *live.poll.counts();
        let (dev_index, number) = (self.function.index, live.number.raw());
        trace::poll_start(dev_index, number, tuning.budget);
        let next = self.run(dev, live, tuning);
        self.head.store(live.poll.eq().head().get(), Release);
        self.polls.fetch_add(1, Release);
        let again = next == Next::Again;
        let counts = live.poll.counts();
        let done = counts.completions.wrapping_sub(before.completions);
        let events = counts.events.wrapping_sub(before.events);
        self.done.fetch_add(done.max(events), Relaxed);
        // CAST: Bounded by the budget.
        trace::poll_end(dev_index, number, done as u32, again);
        if !live.share.is_even(again) {
            live.share.end(poller::clock(), again, !poller::is_idle());
        }
        next
    }
}

impl Eq {
    /// Runs all steps of a poll.
    fn run(&self, dev: &Device<Bound>, live: &mut Live, tuning: Tuning) -> Next {
        let Live {
            number: eq,
            epoch,
            poll,
            cqs,
            handlers,
            batch,
            ..
        } = live;
        let eq = *eq;
        let doorbells = self.function.doorbells(dev);
        let head = |head: Index, unmask: bool| {
            let place = if unmask {
                doorbell::EQ_HEAD
            } else {
                doorbell::EQ_HEAD_MASKED
            };
            trace::head(true, eq.raw(), head.get(), !unmask);
            doorbells.ring(place, eq, head.get());
        };
        let mut run = poll.begin(tuning);
        let mut cq: Option<&mut Entry> = None;
        loop {
            let Some(step) = poll.step(&mut run, cq.as_mut().map(|cq| &mut cq.node)) else {
                continue;
            };
            if let Step::Event(event) | Step::Async(event) = &step {
                let at = poll.eq().head().get().wrapping_sub(1);
                trace::eqe(eq.raw(), at, u32::from(event.kind), event.number.raw());
            }
            match (step, cq.as_mut().map(|cq| &mut cq.body)) {
                (Step::Event(Eqe { number, .. }) | Step::Turn(number), _) => {
                    cq = cqs.get_mut(number)
                }
                (Step::Consume(max), Some(Body::Polled(polled))) => {
                    poll.consumed(&mut run, polled.consume(max, batch));
                }
                (Step::Consume(_), _) => poll.consumed(&mut run, Consumed::NOTHING),
                (Step::Publish(arm), Some(Body::Polled(polled))) => {
                    polled.publish(arm, batch, &doorbells);
                }
                (Step::Signal, Some(Body::Handled(handler))) => handler.completion(),
                // The poll does not have it.
                (Step::Publish(_) | Step::Signal, _) => {}
                (Step::Async(event), _) => handlers.report(&self.function, *epoch, &event),
                (Step::EqHead, _) => poll.publish(&run, head),
                (Step::Done, _) => {
                    poll.publish(&run, head);
                    return Next::Done;
                }
                (Step::Again, _) => return Next::Again,
            }
        }
    }
}

impl Live {
    /// Checks that all slots are back. The device is quiet, and the poll does not run.
    pub(crate) fn retire(self) {
        let Self { poll, mut cqs, .. } = self;
        let mut held = 0;
        cqs.drain(|_, entry| {
            held += entry.node.held();
            if let Body::Polled(polled) = entry.body {
                KBox::into_inner(polled).retire();
            }
        });
        kernel::warn_on!(poll.audit(held).is_err());
    }
}

impl State {
    /// The EQ, if it is up.
    fn up(&mut self) -> Result<&mut Live> {
        // The EQ is down; the caller's check of the device's health gives the reason.
        self.live.as_deref_mut().ok_or(EIO)
    }

    /// The queue pairs of the admin CQ; the admin queue pair is at place 0.
    pub(crate) fn admin_queues(&mut self) -> Option<&mut Queues> {
        let live = self.live.as_mut()?;
        match &mut live.cqs.get_mut(Number::ADMIN)?.body {
            Body::Polled(polled) => Some(&mut polled.queues),
            _ => None,
        }
    }

    /// Reserves the slots of a CQ, as `bind` does: [`Poller::bind_kernel`],
    /// [`Poller::bind_process`], [`Poller::bind_ulp`].
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the EQ has no more slots, `EIO` if it is down.
    pub(crate) fn bind(&mut self, bind: Bind) -> Result<Node> {
        bind(&mut self.up()?.poll).map_err(|_| ENOSPC)
    }

    /// Releases the slots of a CQ that is not in the table: it was never created, or was destroyed
    /// and DESTROY reported `until`.
    pub(crate) fn unbind_node(&mut self, node: Node, until: Option<Index>) {
        // After a reset the EQ is gone, and its slots with it.
        if let Some(live) = self.live.as_mut() {
            let head = live.poll.eq().head();
            live.poll.unbind(node, until.unwrap_or(head));
        }
    }

    /// Inserts a CQ into the table.
    ///
    /// # Errors
    ///
    /// `EIO` if the EQ is down, those of [`Table::insert`](super::table::Table::insert); with the entry.
    pub(crate) fn attach(
        &mut self,
        cq: Number,
        entry: Entry,
        room: Reservation<Entry>,
    ) -> Result<(), (Error, Entry)> {
        match self.live.as_mut() {
            Some(live) => live.cqs.insert(cq, entry, room),
            None => Err((EIO, entry)),
        }
    }

    /// Gives a polled CQ of the table to the poll, which polls and arms it from now on.
    ///
    /// # Errors
    ///
    /// `EIO` if the EQ is down; with the CQ.
    pub(crate) fn give_polled(
        &mut self,
        polled: KBox<PolledCq>,
    ) -> Result<(), (Error, KBox<PolledCq>)> {
        let number = polled.number;
        let Some(Live { poll, cqs, .. }) = self.live.as_deref_mut() else {
            return Err((EIO, polled));
        };
        let Some(Entry {
            node,
            body: body @ Body::Away,
        }) = cqs.get_mut(number)
        else {
            return Err((EIO, polled));
        };
        *body = Body::Polled(polled);
        poll.start(number, node);
        Ok(())
    }

    /// Takes a polled CQ from the poll, to be destroyed. Its events are ignored from now on.
    pub(crate) fn take_polled(&mut self, cq: Number) -> Option<KBox<PolledCq>> {
        let entry = self.live.as_mut()?.cqs.get_mut(cq)?;
        match core::mem::replace(&mut entry.body, Body::Away) {
            Body::Polled(polled) => Some(polled),
            other => {
                entry.body = other;
                None
            }
        }
    }

    /// Removes a CQ that was destroyed; DESTROY reported `until`. The caller must drop the body when
    /// the poll is no longer paused.
    pub(crate) fn detach(&mut self, cq: Number, until: Index) -> Option<Body> {
        let Live { poll, cqs, .. } = &mut **self.live.as_mut()?;
        let Entry { node, body } = cqs.remove(cq)?;
        poll.remove(cq, &node, cqs, |cqs, number| {
            Some(&mut cqs.get_mut(number)?.node)
        });
        poll.unbind(node, until);
        Some(body)
    }

    /// Raises the asynchronous events of an object at `events` from now on.
    ///
    /// # Errors
    ///
    /// `EIO` if the EQ is down, those of [`Table::insert`](super::table::Table::insert); with
    /// `events`, which must not be dropped while the poll is paused.
    pub(crate) fn add_handler<E: AsyncEvent>(
        &mut self,
        number: Number,
        events: Events<E>,
        room: Reservation<Events<E>>,
    ) -> Result<(), (Error, Events<E>)> {
        match self.live.as_mut() {
            Some(live) => E::table(&mut live.handlers).insert(number, events, room),
            None => Err((EIO, events)),
        }
    }

    /// Raises the link's events at `events` from now on. The caller must drop the earlier ones, or
    /// `events` if the EQ is down, when the poll is no longer paused.
    pub(crate) fn watch_link(
        &mut self,
        events: Events<PortEvent>,
    ) -> Result<Option<Events<PortEvent>>, Events<PortEvent>> {
        match self.live.as_mut() {
            Some(live) => Ok(live.handlers.link.replace(events)),
            None => Err(events),
        }
    }

    /// Undoes [`Self::add_handler`]. The caller must drop the result when the poll is no longer
    /// paused.
    pub(crate) fn remove_handler<E: AsyncEvent>(&mut self, number: Number) -> Option<Events<E>> {
        E::table(&mut self.live.as_mut()?.handlers).remove(number)
    }
}
