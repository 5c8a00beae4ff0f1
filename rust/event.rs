// SPDX-License-Identifier: GPL-2.0

//! Event queues: from the interrupt to the process that waits.
//!
//! There is an EQ for each vector. Everything on its event path is owned by its poll: the EQ's
//! consumer, its slots, the pending list, the CQs of the kernel that report to it with all that is
//! on them, and the table in which a CQ is found from its number. The poll runs in BH, is never
//! run twice at the same time, and takes no lock. Other code that needs this state runs in process
//! context and pauses the poll ([`sys::poller`](crate::sys::poller)).
//!
//! The loop itself is [`queue::poll`](crate::queue::poll): pure logic, checked on the host. What
//! it does to the world is here:
//!
//! | step of the loop | here |
//! |---|---|
//! | consume, publish a kernel CQ | [`KernelCq`](crate::cq::KernelCq) |
//! | signal a process's CQ | its [`Owner`](crate::cq::Owner) |
//! | an asynchronous event (EQ 0) | its owner, or the log |
//! | head of the EQ | doorbell |
//!
//! The watchdog finds lost interrupts: it reads the next owner word once a second. An event that
//! was there at two looks without a poll in between has lost its interrupt, or the poll its relay.

mod knobs;
mod view;

pub(crate) use self::{
    knobs::Knobs,
    view::View, //
};

use crate::{
    abi::{
        command::EqContext,
        doorbell,
        entry::Eqe,
        status::Event,
        Number, //
    },
    cq::{
        AsyncEvent,
        Batch,
        Body,
        Entry,
        KernelCq,
        Owner,
        Queues,
        Table, //
    },
    function::{
        Bells,
        Failure,
        Function,
        Limits, //
    },
    queue::{
        arm::{
            EventSlots,
            Shares, //
        },
        consumer::{
            is_there,
            EqConsumer, //
        },
        credit::RingId,
        index::{
            Depth,
            Index, //
        },
        moderation::Setting,
        poll::{
            Consumed,
            Effects,
            Node,
            Poller,
            Verdict, //
        },
        share::{
            Share,
            Time, //
        }, //
    },
    ring::Ring,
    sys::{
        gate::Pass,
        poller::{
            self,
            Handler,
            Next, //
        },
        trace, //
    },
};
use kernel::{
    device::{
        Bound,
        Device, //
    },
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    },
};

/// Where polls run. The other is for comparison: `make modules POLL=thread`.
#[cfg(not(poll_thread))]
pub(crate) type Place = poller::Bh;
/// Where polls run.
#[cfg(poll_thread)]
pub(crate) type Place = poller::Thread;

/// The poll of an EQ, and what schedules it.
pub(crate) type EqPoller = poller::Poller<Eq, Place>;

/// Entries of an EQ, as a base-two logarithm, where the device allows so many.
const LOG_DEPTH: u8 = 12;

/// What the check for lost interrupts looks at.
struct Watched {
    ring: Ring,
    depth: Depth,
    /// An event was there the last time, after this many polls.
    seen: Option<u32>,
}

/// An EQ, as all see it.
#[pin_data]
pub(crate) struct Eq {
    function: Arc<Function>,
    knobs: Arc<Knobs>,
    /// Which one; also its vector.
    index: u32,
    /// Its number in this epoch.
    number: Atomic<u32>,
    /// The poll's next entry.
    head: Atomic<u32>,
    polls: Atomic<u32>,
    interrupts: Atomic<u64>,
    lost: Atomic<u64>,
    /// Completions that were consumed, and events of CQs of processes.
    done: Atomic<u64>,
    /// Its moderation, as the device was told last: count, and microseconds above it.
    moderation: Atomic<u32>,
    watched: Arc<Watch>,
}

/// The lock around [`Watched`]; taken by the watchdog and by bring-up.
#[pin_data]
struct Watch {
    #[pin]
    watched: Mutex<Option<Watched>>,
}

/// The poll's own; `None` while the device is down.
pub(crate) struct State(Option<KBox<Live>>);

/// An EQ that is up.
struct Live {
    poll: Poller<Ring>,
    world: World,
    /// What this EQ owes to its CPU.
    share: Share,
}

/// What the poll acts on.
struct World {
    number: Number,
    epoch: u32,
    cqs: Table<Entry>,
    /// Of EQ 0: the handlers of asynchronous events.
    owners: Owners,
    batch: Batch,
    /// Asynchronous events of objects that nobody owns (any more), and of kinds that nobody knows.
    unclaimed: u64,
}

/// Whom asynchronous events concern.
struct Owners {
    cqs: Table<Arc<dyn Owner>>,
    qps: Table<Arc<dyn Owner>>,
    pages: Table<Arc<dyn Owner>>,
}

/// What a number in [`Owners`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owned {
    /// A CQ.
    Cq,
    /// A queue pair.
    Qp,
    /// A doorbell page; its number is its index.
    Page,
}

impl Owners {
    fn of(&mut self, what: Owned) -> &mut Table<Arc<dyn Owner>> {
        match what {
            Owned::Cq => &mut self.cqs,
            Owned::Qp => &mut self.qps,
            Owned::Page => &mut self.pages,
        }
    }
}

/// The memory of an EQ.
#[derive(Clone)]
pub(crate) struct EqRing {
    ring: Ring,
    depth: Depth,
}

/// Entries of an EQ of a device with these limits.
fn depth(limits: &Limits) -> Option<Depth> {
    Depth::from_log2(LOG_DEPTH.min(limits.log_eq))
}

/// How the EQ of vector `index` divides its slots.
fn shares(limits: &Limits, index: u32, depth: Depth) -> Shares {
    let reserve = match index {
        0 => limits.asynchronous,
        _ => 0,
    };
    Shares::of(depth, reserve)
}

impl EqRing {
    /// Allocates it, as deep as the device of `function` allows. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(pass: &Pass<'_>, function: &Function) -> Result<Self> {
        let depth = depth(function.limits()).ok_or(EINVAL)?;
        Ok(Self {
            ring: Ring::new(pass, depth.entries() as usize * Eqe::BYTES)?,
            depth,
        })
    }

    /// Where it is and how deep, for registers.
    pub(crate) fn place(&self) -> (u64, u8) {
        (self.ring.address(), self.depth.log2())
    }

    /// What creates an EQ in it for `vector`.
    pub(crate) fn context(&self, vector: u16) -> EqContext {
        EqContext {
            vector,
            log_depth: self.depth.log2(),
            buffer: self.ring.list(),
            ..EqContext::default()
        }
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
        let watched = Arc::pin_init(
            pin_init!(Watch { watched <- new_mutex!(None, "Eq::watched") }),
            GFP_KERNEL,
        )?;
        let eq = Self {
            function,
            knobs,
            index,
            number: Atomic::new(0),
            head: Atomic::new(0),
            polls: Atomic::new(0),
            interrupts: Atomic::new(0),
            lost: Atomic::new(0),
            done: Atomic::new(0),
            moderation: Atomic::new(0),
            watched,
        };
        EqPoller::new(dev, eq, State(None))
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

    /// Which one.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Interrupts that came, and those that were found to be lost.
    pub(crate) fn interrupts(&self) -> (u64, u64) {
        (self.interrupts.load(Relaxed), self.lost.load(Relaxed))
    }

    /// What the device was told of moderation.
    pub(crate) fn moderation(&self) -> Setting {
        let both = self.moderation.load(Relaxed);
        Setting {
            // CAST: The halves.
            count: both as u16,
            usecs: (both >> 16) as u16,
        }
    }

    /// The device was told this.
    pub(crate) fn set_moderation(&self, Setting { count, usecs }: Setting) {
        let both = u32::from(count) | u32::from(usecs) << 16;
        self.moderation.store(both, Relaxed);
    }

    /// What has come since the beginning: completions, and interrupts.
    pub(crate) fn traffic(&self) -> (u64, u64) {
        (self.done.load(Relaxed), self.interrupts.load(Relaxed))
    }

    /// Whether an event has been waiting since the last look, a second ago, and no poll has run:
    /// then its interrupt was lost. Process context.
    pub(crate) fn is_overdue(&self) -> bool {
        let mut watched = self.watched.watched.lock();
        let Some(watched) = &mut *watched else {
            return false;
        };
        // In this order: a poll in between is counted, and nothing is overdue.
        let head = Index::new(self.head.load(Acquire));
        let polls = self.polls.load(Acquire);
        if !is_there::<{ Eqe::WORDS }, _>(&watched.ring, watched.depth, head) {
            watched.seen = None;
            return false;
        }
        if watched.seen.replace(polls) != Some(polls) {
            return false;
        }
        self.lost.fetch_add(1, Relaxed);
        true
    }

    /// The EQ is up as `number`, in `ring`. Its poll may be scheduled from now on.
    pub(crate) fn set_up(poller: &EqPoller, number: Number, epoch: u32, ring: EqRing) -> Result {
        let eq = poller.handler();
        let id = RingId::new(number.raw(), epoch);
        let storage = ring.ring.clone();
        let (consumer, pool) =
            EqConsumer::new(id, ring.ring, ring.depth, ring.depth.entries()).map_err(|_| EINVAL)?;
        let shares = shares(eq.function.limits(), eq.index, ring.depth);
        let slots = EventSlots::new(pool, shares).map_err(|_| ENOSPC)?;
        let live = KBox::new(
            Live {
                poll: Poller::new(consumer, slots),
                world: World {
                    number,
                    epoch,
                    cqs: Table::new(),
                    owners: Owners {
                        cqs: Table::new(),
                        qps: Table::new(),
                        pages: Table::new(),
                    },
                    batch: Batch::new()?,
                    unclaimed: 0,
                },
                share: Share::default(),
            },
            GFP_KERNEL,
        )?;
        eq.set_moderation(Setting::OFF);
        eq.number.store(number.raw(), Release);
        eq.head.store(0, Release);
        *eq.watched.watched.lock() = Some(Watched {
            ring: storage,
            depth: ring.depth,
            seen: None,
        });
        poller.paused(|_, state| state.0 = Some(live));
        Ok(())
    }

    /// The device is quiet: everything on the EQ goes, with its memory. Process context.
    pub(crate) fn tear_down(poller: &EqPoller) {
        let watched = poller.handler().watched.watched.lock().take();
        drop(watched);
        if let Some(live) = poller.paused(|_, state| state.0.take()) {
            KBox::into_inner(live).retire();
        }
    }
}

impl Handler for Eq {
    type State = State;

    fn interrupt(&self, _dev: &Device<Bound>) {
        self.interrupts.fetch_add(1, Relaxed);
        trace::irq(self.function.index(), self.number().raw());
    }

    fn poll(&self, dev: &Device<Bound>, state: &mut State, given: bool) -> Next {
        let Some(live) = state.0.as_mut() else {
            return Next::Done;
        };
        let Live { poll, world, share } = &mut **live;
        let time = if given {
            Time::Given
        } else if poller::is_idle() {
            Time::Idle
        } else {
            Time::Taken
        };
        if !share.begin(poller::clock(), time) {
            return Next::Wait;
        }
        let tuning = self.knobs.tuning();
        let before = *poll.counts();
        let (dev_index, number) = (self.function.index(), world.number.raw());
        trace::poll_start(dev_index, number, tuning.budget);
        let mut act = Act {
            world,
            eq: self,
            bells: self.function.bells(dev),
        };
        let verdict = poll.poll(tuning, &mut act);
        self.head.store(poll.eq().head().get(), Release);
        self.polls.fetch_add(1, Release);
        let again = verdict == Verdict::Again;
        let done = poll.counts().completions.wrapping_sub(before.completions);
        let events = poll.counts().events.wrapping_sub(before.events);
        self.done.fetch_add(done.max(events), Relaxed);
        // CAST: Bounded by the budget.
        trace::poll_end(dev_index, number, done as u32, again);
        if !share.is_even(again) {
            share.end(poller::clock(), again, !poller::is_idle());
        }
        if again {
            Next::Again
        } else {
            Next::Done
        }
    }
}

/// The poll's hands.
struct Act<'a> {
    world: &'a mut World,
    eq: &'a Eq,
    bells: Bells<'a>,
}

impl Effects for Act<'_> {
    #[inline]
    fn event(&mut self, index: Index, event: &Eqe) {
        trace::eqe(
            self.world.number.raw(),
            index.get(),
            u32::from(event.kind),
            event.number.raw(),
        );
    }

    #[inline]
    fn node(&mut self, cq: Number) -> Option<&mut Node> {
        Some(&mut self.world.cqs.get_mut(cq)?.node)
    }

    #[inline]
    fn consume(&mut self, cq: Number, max: u32) -> Consumed {
        let World { cqs, batch, .. } = &mut *self.world;
        match cqs.get_mut(cq).map(|entry| &mut entry.body) {
            Some(Body::Kernel(kernel)) => kernel.consume(max, batch),
            _ => Consumed {
                count: 0,
                drained: true,
            },
        }
    }

    #[inline]
    fn publish(&mut self, cq: Number, arm: bool) {
        let World { cqs, batch, .. } = &mut *self.world;
        if let Some(Body::Kernel(kernel)) = cqs.get_mut(cq).map(|entry| &mut entry.body) {
            kernel.publish(arm, batch, &self.bells);
        }
    }

    #[inline]
    fn signal(&mut self, cq: Number) {
        if let Some(Body::Process(owner)) = self.world.cqs.get_mut(cq).map(|entry| &entry.body) {
            owner.completion(cq);
        }
    }

    fn asynchronous(&mut self, eqe: Eqe) {
        let (number, code) = (eqe.number.raw(), u32::from(eqe.code));
        trace::wrong(trace::Wrong::Asynchronous, number, code);
        let what = match Event::from_code(eqe.kind) {
            Some(Event::CqOverrun) => Owned::Cq,
            Some(Event::QpFatal) => Owned::Qp,
            Some(Event::DoorbellViolation) => Owned::Page,
            Some(Event::DeviceFatal) => {
                let failure = Failure::Stopped(eqe.code);
                return self.eq.function.fail_in(self.world.epoch, failure);
            }
            _ => {
                self.world.unclaimed += 1;
                return;
            }
        };
        match self.world.owners.of(what).get_mut(eqe.number) {
            Some(owner) => owner.event(&AsyncEvent {
                count: eqe.count,
                code: eqe.code,
            }),
            None => self.world.unclaimed += 1,
        }
    }

    #[inline]
    fn doorbell(&mut self, head: Index, unmask: bool) {
        let place = if unmask {
            doorbell::EQ_HEAD
        } else {
            doorbell::EQ_HEAD_MASKED
        };
        trace::head(true, self.world.number.raw(), head.get(), !unmask);
        self.bells.ring(place, self.world.number, head.get());
    }
}

impl Live {
    /// The device is quiet, and so is the poll.
    fn retire(self) {
        let Self {
            poll, mut world, ..
        } = self;
        let mut held = 0;
        world.cqs.drain(|_, entry| {
            held += entry.node.held();
            if let Body::Kernel(kernel) = entry.body {
                KBox::into_inner(kernel).retire();
            }
        });
        kernel::warn_on!(poll.audit(held).is_err());
    }
}

impl State {
    fn live(&mut self) -> Result<&mut Live> {
        // Down: the caller's own look at the device's health says why.
        self.0.as_deref_mut().ok_or(EIO)
    }

    /// What the admin queue pair is on, at place 0.
    pub(crate) fn admin_queues(&mut self) -> Option<&mut Queues> {
        let live = self.0.as_mut()?;
        match &mut live.world.cqs.get_mut(Number::ADMIN)?.body {
            Body::Kernel(kernel) => Some(kernel.queues()),
            _ => None,
        }
    }

    /// Pays for a CQ of the kernel.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the EQ has no more slots, `EIO` if it is down.
    pub(crate) fn bind_kernel(&mut self) -> Result<Node> {
        self.live()?.poll.bind_kernel().map_err(|_| ENOSPC)
    }

    /// Pays for a CQ of a process, and leaves the kernel its share.
    ///
    /// # Errors
    ///
    /// As [`Self::bind_kernel`].
    pub(crate) fn bind_process(&mut self) -> Result<Node> {
        self.live()?.poll.bind_process().map_err(|_| ENOSPC)
    }

    /// A CQ that was paid for is not in the table: it never came to be, or was destroyed, and the
    /// destroy reported `until`.
    pub(crate) fn unbind_node(&mut self, node: Node, until: Option<Index>) {
        // A reset in between has taken the EQ, and the slot with it.
        if let Some(live) = self.0.as_mut() {
            let head = live.poll.eq().head();
            live.poll.unbind_node(node, until.unwrap_or(head));
        }
    }

    /// Puts a CQ into the table. One of the kernel's is polled and armed from now on.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EIO` if the EQ is down; and the entry.
    pub(crate) fn attach(
        &mut self,
        eq: &Eq,
        dev: &Device<Bound>,
        cq: Number,
        entry: Entry,
    ) -> Result<(), (Error, Entry)> {
        let Some(live) = self.0.as_mut() else {
            return Err((EIO, entry));
        };
        live.world.cqs.insert(cq, entry)?;
        let Live { poll, world, .. } = &mut **live;
        let is_kernel = matches!(
            world.cqs.get_mut(cq).map(|entry| &entry.body),
            Some(Body::Kernel(_))
        );
        if is_kernel {
            let mut act = Act {
                world,
                eq,
                bells: eq.function.bells(dev),
            };
            poll.start(&mut act, cq);
        }
        Ok(())
    }

    /// Takes a CQ of the kernel out, to be ended; its events are ignored from now on.
    pub(crate) fn take_kernel(&mut self, cq: Number) -> Option<KBox<KernelCq>> {
        let entry = self.0.as_mut()?.world.cqs.get_mut(cq)?;
        match core::mem::replace(&mut entry.body, Body::Ending) {
            Body::Kernel(kernel) => Some(kernel),
            other => {
                entry.body = other;
                None
            }
        }
    }

    /// A CQ was destroyed, and the destroy reported `until`. Its entry is for the caller to drop,
    /// when the poll is no longer paused.
    pub(crate) fn detach(
        &mut self,
        eq: &Eq,
        dev: &Device<Bound>,
        cq: Number,
        until: Index,
    ) -> Option<Entry> {
        let Live { poll, world, .. } = &mut **self.0.as_mut()?;
        let mut act = Act {
            world,
            eq,
            bells: eq.function.bells(dev),
        };
        poll.unbind(&mut act, cq, until);
        world.cqs.remove(cq)
    }

    /// Makes `owner` be told of what happens to an object.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EIO` if the EQ is down; and the owner, which is not to be dropped here.
    pub(crate) fn own(
        &mut self,
        what: Owned,
        number: Number,
        owner: Arc<dyn Owner>,
    ) -> Result<(), (Error, Arc<dyn Owner>)> {
        match self.0.as_mut() {
            Some(live) => live.world.owners.of(what).insert(number, owner),
            None => Err((EIO, owner)),
        }
    }

    /// Undoes [`Self::own`]; the owner is for the caller to drop, when the poll is no longer
    /// paused.
    pub(crate) fn disown(&mut self, what: Owned, number: Number) -> Option<Arc<dyn Owner>> {
        self.0.as_mut()?.world.owners.of(what).remove(number)
    }

    /// Shows the EQ and the kernel's CQs to `f`.
    pub(crate) fn look<R>(&self, f: impl FnOnce(&View<'_>) -> R) -> Option<R> {
        let live = self.0.as_ref()?;
        Some(f(&View { live }))
    }
}
