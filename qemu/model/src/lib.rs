// SPDX-License-Identifier: GPL-2.0
//! The qpair device: everything that it does, and nothing of QEMU.
//!
//! A [`Function`] is handed a [`Host`] (guest memory, interrupt messages, a clock) and is then
//! told what software does to it: register accesses, doorbells. It answers by
//! reading and writing memory and by raising interrupts, at once or in [`Function::run`],
//! for which it asks. It has no thread and no clock of its own, so the same calls
//! give the same results.
//!
//! ```text
//!   registers ---> bring-up, reset
//!   doorbells ---> CQ and EQ heads, arms          rules: qpair_queue
//!        |                                              |
//!        v                                              v
//!   run queue --turn--> WQEs --> bytes --> CQE --> EQE --> interrupt
//! ```
//!
//! **Nobody is trusted.** Registers, doorbells and memory hold whatever a driver or a process put there.
//! Memory is read once into a snapshot, which is checked and then used. Numbers are
//! looked up with their generation. Nothing here can panic: there is no unchecked index and no
//! unchecked sum of foreign numbers. And nothing lasts: a turn of a queue
//! pair has a bounded number of WQEs and bytes, a long message takes many turns, and a doorbell
//! page has no more of the core than another.
//!
//! **Per work request nothing is allocated and nothing is searched.** Tables are indexed, lines are
//! linked, rings are mapped once.
//!
//! | file | does |
//! |---|---|
//! | [`host`], [`config`] | what the device needs, what it is built with |
//! | `registers`, `doorbell` | what software does to it |
//! | `admin`, `create`, `change` | admin commands |
//! | `eq`, `cq`, `qp`, `mr` | the objects |
//! | `schedule`, `run_queue` | whose turn it is; timers |
//! | `execute`, `transfer` | work requests |
//! | `table`, `fifo`, `list`, `ring`, `segment`, `bus` | what the others stand on |
//! | `knobs` | what tests can break |

#![forbid(unsafe_code)]

pub mod config;
pub mod host;
pub mod mutant;

mod admin;
mod bus;
mod change;
mod cq;
mod create;
mod doorbell;
mod eq;
mod execute;
mod fifo;
mod knobs;

mod list;
mod mr;
mod qp;
mod registers;
mod ring;
mod run_queue;
mod schedule;
mod segment;
mod table;
mod transfer;

pub use crate::config::BadConfig;
pub use crate::config::Config;
pub use crate::host::DmaFault;
pub use crate::host::Host;
pub use crate::host::Mapping;
pub use crate::host::Trace;
pub use crate::knobs::Knobs;
pub use crate::schedule::Run;

use crate::bus::Bus;
use crate::doorbell::Page;
use crate::eq::Subject;
use crate::fifo::Fifo;
use crate::mr::Domain;
use crate::mr::Regions;
use crate::registers::Registers;
use crate::run_queue::RunQueue;
use crate::schedule::Timers;
use crate::table::Table;
use crate::table::Until;
use qpair_abi::counters::Counter;
use qpair_abi::status::EnableError;
use qpair_queue::buflist::PageLimits;
use qpair_queue::mask::Gate;
use std::collections::VecDeque;

/// How the function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing but registers.
    Off,
    Ready,
    /// It stopped by itself.
    Fatal,
}

/// Asynchronous events that wait, in order.
pub(crate) struct Asyncs {
    pub(crate) line: VecDeque<Subject>,
    pub(crate) gate: Gate,
}

impl Asyncs {
    fn new(config: &Config) -> Self {
        Self {
            line: VecDeque::new(),
            // The last place is for the event that the function stopped.
            gate: Gate::new(config.async_events.saturating_sub(1).max(1)),
        }
    }
}

/// A PCI function.
pub struct Function<H: Host> {
    pub(crate) bus: Bus<H>,
    pub(crate) config: Config,
    pub(crate) state: State,
    pub(crate) cause: EnableError,
    pub(crate) registers: Registers,
    pub(crate) knobs: Knobs,
    pub(crate) eqs: Table<eq::Eq<H::Map>>,
    pub(crate) cqs: Table<cq::Cq<H::Map>>,
    pub(crate) qps: Table<qp::Qp<H::Map>>,
    pub(crate) regions: Regions<H::Map>,
    pub(crate) domains: Table<Domain>,
    pub(crate) pages: Vec<Page>,
    pub(crate) asyncs: Asyncs,
    /// Queue pairs that have something to do.
    pub(crate) run_queue: RunQueue,
    /// Queue pairs that try again later.
    pub(crate) retries: Fifo,
    pub(crate) timers: Timers,
    /// Blocks of the SQ whose turn it is.
    pub(crate) blocks: Vec<u64>,
    /// Bytes on their way.
    pub(crate) bounce: Vec<u8>,
}

impl<H: Host> Function<H> {
    /// Powers a function on.
    pub fn new(host: H, config: Config) -> Result<Self, BadConfig> {
        config.check()?;
        let mut function = Self {
            bus: Bus::new(host),
            state: State::Off,
            cause: EnableError::None,
            registers: Registers::default(),
            knobs: Knobs {
                core_delay_ns: config.core_delay_ns,
                wqe_ns: config.wqe_ns,
                key_seed: config.key_seed,
                ..Knobs::default()
            },
            eqs: Table::new(config.eqs),
            cqs: Table::new(config.cqs),
            qps: Table::new(config.qps),
            regions: Regions::new(config.mrs, 0),
            domains: Table::new(config.pds),
            pages: Vec::new(),
            asyncs: Asyncs::new(&config),
            run_queue: RunQueue::new(&config),
            retries: Fifo::new(config.qps),
            timers: Timers::new(),
            blocks: vec![0; schedule::FETCH_WORDS],
            bounce: vec![0; transfer::BOUNCE_BYTES],
            config,
        };
        function.power_on();
        Ok(function)
    }

    /// Returns everything to power-on. Afterwards no memory is mapped and no call is asked for.
    pub fn reset(&mut self) {
        self.bus.host.trace(Trace::Reset);
        self.power_on();
        self.bus.clear();
    }

    fn power_on(&mut self) {
        self.state = State::Off;
        self.cause = EnableError::None;
        self.registers = Registers::default();
        if mutant::mutant!(ResetKeepsMaps) {
            let qps = core::mem::replace(&mut self.qps, Table::new(0));
            core::mem::forget(qps);
        }
        self.eqs = Table::new(self.config.eqs);
        self.cqs = Table::new(self.config.cqs);
        self.qps = Table::new(self.config.qps);
        let seed = match self.knobs.key_seed {
            0 => self.bus.host.random(),
            seed => seed,
        };
        self.regions = Regions::new(self.config.mrs, seed);
        self.domains = Table::new(self.config.pds);
        self.pages = vec![Page::default(); self.config.pages as usize];
        self.asyncs = Asyncs::new(&self.config);
        self.run_queue = RunQueue::new(&self.config);
        self.retries = Fifo::new(self.config.qps);
        self.timers = Timers::new();
        self.bus.host.wake_at(u64::MAX);
    }

    /// The function stops by itself, and wants a reset.
    pub(crate) fn fatal(&mut self, cause: EnableError) {
        if self.state != State::Ready {
            return;
        }
        // Without bus mastering any DMA fails, and that is why.
        let cause = match cause {
            EnableError::Dma | EnableError::AdminCqOverrun if !self.bus.host.bus_master() => {
                EnableError::BusMaster
            }
            cause => cause,
        };
        self.state = State::Fatal;
        self.cause = cause;
        // The core has nothing to do any more.
        self.run_queue = RunQueue::new(&self.config);
        self.retries = Fifo::new(self.config.qps);
        self.bus.host.trace(Trace::Fatal {
            cause: cause.code(),
        });
        self.write_fatal_event(cause);
    }

    /// The machine.
    pub fn host(&self) -> &H {
        &self.bus.host
    }

    /// The machine.
    pub fn host_mut(&mut self) -> &mut H {
        &mut self.bus.host
    }

    /// What it is built with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// A counter.
    pub fn counter(&self, counter: Counter) -> u64 {
        let count = self.counters().get(counter as usize);
        count.copied().unwrap_or(0)
    }

    /// All counters, in the order of [`Counter::ALL`].
    pub fn counters(&self) -> &[u64; Counter::COUNT] {
        self.bus.counts()
    }

    /// How many objects of all kinds there are. The admin queue pair, its CQ and EQ 0 count.
    pub fn objects(&self) -> u64 {
        let queues = self.eqs.count() + self.cqs.count() + self.qps.count();
        (queues + self.regions.count() + self.domains.count()) as u64
    }

    /// The system takes a range of DMA addresses away: mappings in it are dropped before this returns.
    pub fn unmap(&mut self, addr: u64, bytes: u64) {
        let Some(more) = bytes.checked_sub(1) else {
            return;
        };
        let last = addr.saturating_add(more);
        for eq in self.eqs.iter_mut() {
            eq.ring.unmap(addr, last);
        }
        for cq in self.cqs.iter_mut() {
            cq.ring.unmap(addr, last);
        }
        for qp in self.qps.iter_mut() {
            qp.sq.ring.unmap(addr, last);
            qp.rq.ring.unmap(addr, last);
        }
        self.regions.unmap(addr, last);
    }

    /// The system takes all DMA addresses away: bus mastering was switched off, or the function is unplugged.
    pub fn unmap_all(&mut self) {
        self.unmap(0, u64::MAX);
    }

    /// Whether nothing more can happen: not enabled, or gone.
    pub(crate) fn is_dead(&self) -> bool {
        self.state == State::Off || self.knobs.vanished
    }

    pub(crate) fn page_limits(&self) -> PageLimits {
        PageLimits {
            min_shift: self.config.min_page_shift,
            max_shift: self.config.max_page_shift,
        }
    }

    /// Whether a ring has been read as far as a destroyed object asks for.
    pub(crate) fn has_passed(&self, until: Until) -> bool {
        match until {
            Until::Now => true,
            Until::Cq(cq, index) => self.cqs.get(cq).is_none_or(|cq| cq.passed() >= index),
            Until::Eq(eq, index) => self.eqs.get(eq).is_none_or(|eq| eq.passed() >= index),
        }
    }
}
