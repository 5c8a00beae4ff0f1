// SPDX-License-Identifier: GPL-2.0
//! The core: the state of the function, its run queue and its timers.
//!
//! The time at which the core works depends on the [`Knobs`]. Without a pace it works as soon as
//! the machine calls, or on a deterministic machine inside the doorbell. With one, an idle core
//! begins `core_delay_ns` after the doorbell and takes `wqe_ns` for each work request, by the
//! machine's clock.

use crate::bus::Bus;
use crate::config::Config;
use crate::faults::Faults;
use crate::host::Host;
use crate::host::Trace;
use crate::knobs::Knobs;
use crate::ring::RingPages;
use crate::run_queue::RunQueue;
use qpair_abi::counters::Counter;
use qpair_abi::status::EnableError;
use qpair_abi::Number;
use qpair_queue::index::Index;
use std::collections::BTreeSet;
use std::collections::VecDeque;

/// The state of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Only registers work.
    Off,
    Ready,
    /// It stopped by itself.
    Fatal,
}

/// When things are due; `u64::MAX` is never.
pub(crate) struct Timers {
    /// The time of the requested call.
    pub(crate) asked: u64,
    /// The core begins, or goes on.
    pub(crate) core: u64,
    /// The first moderated interrupt.
    pub(crate) moderation: u64,
    /// Interrupts that a test delays: when, of which EQ, with which vector.
    pub(crate) delayed: VecDeque<(u64, Number, u16)>,
    /// The first frame that a fault holds.
    pub(crate) frames: u64,
    /// Requests that a fault holds: until when, and the index of the queue pair.
    held: BTreeSet<(u64, usize)>,
}

impl Timers {
    fn new() -> Self {
        Self {
            asked: u64::MAX,
            core: 0,
            moderation: u64::MAX,
            delayed: VecDeque::new(),
            frames: u64::MAX,
            held: BTreeSet::new(),
        }
    }
}

/// Queue pairs that try again later.
pub(crate) struct Retries {
    order: BTreeSet<(u64, usize)>,
    /// By index; `u64::MAX` is none.
    due: Vec<u64>,
}

impl Retries {
    fn new(qps: u32) -> Self {
        Self {
            order: BTreeSet::new(),
            due: vec![u64::MAX; qps as usize],
        }
    }

    fn push(&mut self, index: usize, when: u64) {
        self.remove(index);
        if let Some(due) = self.due.get_mut(index) {
            *due = when;
            self.order.insert((when, index));
        }
    }

    /// The queue pair that is due first, and when.
    pub(crate) fn first(&self) -> Option<(usize, u64)> {
        self.order.first().map(|&(due, index)| (index, due))
    }

    pub(crate) fn remove(&mut self, index: usize) {
        if let Some(due) = self.due.get_mut(index).filter(|due| **due != u64::MAX) {
            self.order.remove(&(*due, index));
            *due = u64::MAX;
        }
    }
}

/// The core, and what it works with.
pub(crate) struct Core<H: Host> {
    pub(crate) bus: Bus<H>,
    pub(crate) config: Config,
    pub(crate) knobs: Knobs,
    pub(crate) faults: Faults,
    pub(crate) state: State,
    pub(crate) cause: EnableError,
    /// The machine is stopped.
    pub(crate) halted: bool,
    /// A queue pair has its turn, or a doorbell is executed. Then the thread that is inside looks
    /// at the run queue afterwards, and what is queued needs no call.
    pub(crate) busy: bool,
    pub(crate) run_queue: RunQueue,
    pub(crate) retries: Retries,
    pub(crate) timers: Timers,
    pub(crate) ring_pages: RingPages,
}

impl<H: Host> Core<H> {
    pub(crate) fn new(host: H, config: Config) -> Self {
        Self {
            bus: Bus::new(host),
            knobs: Knobs {
                core_delay_ns: config.core_delay_ns,
                wqe_ns: config.wqe_ns,
                key_seed: config.key_seed,
                ..Knobs::default()
            },
            faults: Faults::default(),
            state: State::Off,
            cause: EnableError::None,
            halted: false,
            busy: false,
            run_queue: RunQueue::new(&config),
            retries: Retries::new(config.qps),
            timers: Timers::new(),
            ring_pages: RingPages::new(config.ring_pages),
            config,
        }
    }

    /// Returns to power-on. Knobs, faults and counters stay.
    pub(crate) fn power_on(&mut self) {
        self.state = State::Off;
        self.cause = EnableError::None;
        self.clear_work();
        self.timers = Timers::new();
        self.bus.host.wake_at(u64::MAX);
    }

    fn clear_work(&mut self) {
        self.run_queue = RunQueue::new(&self.config);
        self.retries = Retries::new(self.config.qps);
    }

    /// Enters the fatal state: the cause as software sees it. `None` if the function is not ready.
    pub(crate) fn enter_fatal(&mut self, cause: EnableError) -> Option<EnableError> {
        if !self.is_ready() {
            return None;
        }
        // Without bus mastering any DMA fails, so that is the cause.
        let cause = match cause {
            EnableError::Dma | EnableError::AdminCqOverrun if !self.bus.host.bus_master() => {
                EnableError::BusMaster
            }
            cause => cause,
        };
        self.state = State::Fatal;
        self.cause = cause;
        self.clear_work();
        self.bus.host.trace(Trace::Fatal {
            cause: cause.code(),
        });
        Some(cause)
    }

    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Whether nothing more can happen: not enabled, or gone.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.state == State::Off || self.knobs.vanished
    }

    /// Whether the core works inside the doorbell.
    #[inline]
    pub(crate) fn works_in_doorbells(&self) -> bool {
        self.config.inline && !self.knobs.has_pace()
    }

    /// Queues a queue pair, and calls an idle core.
    pub(crate) fn enqueue(&mut self, index: usize, page: u16) {
        if !self.is_ready() {
            return;
        }
        let idle = !self.busy && self.run_queue.is_empty();
        self.run_queue.push(index, page);
        if idle {
            self.call();
        }
    }

    /// Has an idle core begin with the queue pairs that are queued.
    pub(crate) fn call(&mut self) {
        if self.knobs.has_pace() {
            let begin = self.bus.host.now().saturating_add(self.knobs.core_delay_ns);
            self.timers.core = self.timers.core.max(begin);
            self.set_timer();
        } else if !self.config.inline {
            self.bus.host.wake();
        }
    }

    /// Makes the queue pair at `index` try again at this time; `u64::MAX` is never.
    pub(crate) fn retry_at(&mut self, index: usize, due: u64) {
        if due != u64::MAX {
            self.retries.push(index, due);
            self.set_timer();
        }
    }

    /// Makes the queue pair at `index` go on at this time. One that is frozen has none.
    pub(crate) fn hold_until(&mut self, index: usize, due: u64) {
        if due != u64::MAX {
            self.timers.held.insert((due, index));
            self.set_timer();
        }
    }

    /// The queue pair at `index` goes on for another reason than this time.
    pub(crate) fn release(&mut self, index: usize, due: u64) {
        self.timers.held.remove(&(due, index));
    }

    /// Takes the index of a queue pair that may go on by now.
    pub(crate) fn hold_due(&mut self, now: u64) -> Option<usize> {
        let (due, index) = self.timers.held.first().copied()?;
        if due > now {
            return None;
        }
        self.timers.held.pop_first();
        Some(index)
    }

    /// Asks the machine for a call when the next thing is due.
    pub(crate) fn set_timer(&mut self) {
        let mut next = self.timers.moderation.min(self.timers.frames);
        if let Some((due, ..)) = self.timers.delayed.front() {
            next = next.min(*due);
        }
        if let Some((_, due)) = self.retries.first() {
            next = next.min(due);
        }
        if let Some((due, _)) = self.timers.held.first() {
            next = next.min(*due);
        }
        let clocked = || self.knobs.has_pace() || self.works_in_doorbells();
        if !self.run_queue.is_empty() && !self.knobs.stalled && clocked() {
            next = next.min(self.timers.core);
        }
        if next != self.timers.asked {
            self.timers.asked = next;
            self.bus.host.wake_at(next);
        }
    }

    /// Raises the interrupt of an EQ, unless a test loses or delays it.
    pub(crate) fn raise(&mut self, eq: Number, vector: u16) {
        if self.knobs.drop_interrupts != 0 {
            self.knobs.drop_interrupts -= 1;
            return;
        }
        if self.knobs.delay_interrupts != 0 {
            let now = self.bus.host.now();
            let due = now.saturating_add(self.knobs.delay_interrupts);
            self.timers.delayed.push_back((due, eq, vector));
            self.set_timer();
            return;
        }
        self.raise_now(eq, vector);
    }

    fn raise_now(&mut self, eq: Number, vector: u16) {
        self.bus.count(Counter::Interrupts);
        self.bus.host.trace(Trace::Interrupt { eq, vector });
        self.bus.host.raise(vector);
    }

    /// Raises delayed interrupts that are due.
    pub(crate) fn delayed_due(&mut self, now: u64) {
        while let Some(&(due, eq, vector)) = self.timers.delayed.front() {
            if due > now {
                break;
            }
            self.timers.delayed.pop_front();
            self.raise_now(eq, vector);
        }
    }

    /// Where the indices of a new ring begin.
    pub(crate) fn first_index(&self) -> Index {
        Index::new(self.knobs.first_index)
    }
}
