// SPDX-License-Identifier: GPL-2.0
//! Event queues.
//!
//! The rules (`rules::eq_irq`) decide when the interrupt is raised. The entry is in memory before
//! that. Both wait while the machine is stopped. An EQ keeps the source of each entry, which may go on when the head passes the entry.

use crate::faults::Written;
use crate::host::Host;
use crate::host::Mapping;
use crate::host::Trace;
use crate::ring::Ring;
use crate::rules::channel::Violation;
use crate::rules::eq_irq::EventQueue as Rules;
use crate::rules::eq_irq::Line as Interrupt;
use crate::rules::eq_irq::Moderation;
use crate::schedule::Core;
use crate::subject::Source;
use crate::table::Until;
use qpair_abi::command::EqContext;
use qpair_abi::counters::Counter;
use qpair_abi::entry::Eqe;
use qpair_abi::entry::OWNER;
use qpair_abi::status::EnableError;
use qpair_abi::Number;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;

/// An event queue.
pub(crate) struct EventQueue<M> {
    number: Number,
    vector: u16,
    log_depth: u8,
    moderation_count: u16,
    moderation_usecs: u16,
    pub(crate) ring: Ring<M>,
    rules: Rules,
    /// CQs that report here.
    pub(crate) users: u32,
    /// Entries passed since the beginning.
    passed: u64,
    /// The source of each entry.
    sources: Vec<Source>,
    /// Entries to write when the machine continues: at most as many as the ring has.
    unwritten: Vec<(Index, [u64; Eqe::WORDS])>,
    /// When a moderated interrupt is due.
    due: u64,
}

impl<M: Mapping> EventQueue<M> {
    pub(crate) fn new(
        number: Number,
        context: &EqContext,
        depth: Depth,
        ring: Ring<M>,
        first: Index,
    ) -> Self {
        let mut eq = Self {
            number,
            vector: context.vector,
            log_depth: context.log_depth,
            moderation_count: 0,
            moderation_usecs: 0,
            ring,
            rules: Rules::starting_at(depth, Moderation::default(), first),
            users: 0,
            passed: 0,
            sources: vec![Source::Untracked; depth.entries() as usize],
            unwritten: Vec::new(),
            due: u64::MAX,
        };
        eq.moderate(context);
        eq
    }

    /// The context for QUERY.
    pub(crate) fn context(&self) -> EqContext {
        EqContext {
            vector: self.vector,
            log_depth: self.log_depth,
            moderation_count: self.moderation_count,
            moderation_usecs: self.moderation_usecs,
            producer: self.rules.window().tail().get(),
            consumer: self.rules.window().head().get(),
            buffer: *self.ring.described(),
        }
    }

    /// Sets moderation. [`look_at_interrupt`](Self::look_at_interrupt) follows.
    pub(crate) fn moderate(&mut self, context: &EqContext) {
        self.moderation_count = context.moderation_count;
        self.moderation_usecs = context.moderation_usecs;
        self.rules.moderate(Moderation {
            count: u32::from(context.moderation_count),
            nanos: u64::from(context.moderation_usecs).saturating_mul(1000),
        });
    }

    /// Entries passed since the beginning; does not wrap.
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }

    /// The entries written so far, and the index past them.
    pub(crate) fn written(&self) -> (Until, Index) {
        let window = self.rules.window();
        let written = self.passed.wrapping_add(u64::from(window.used()));
        (Until::Eq(self.number, written), window.tail())
    }

    /// Writes an entry. [`look_at_interrupt`](Self::look_at_interrupt) follows.
    pub(crate) fn put<H: Host<Map = M>>(
        &mut self,
        core: &mut Core<H>,
        source: Source,
        words: [u64; Eqe::WORDS],
    ) -> Result<(), EnableError> {
        let now = core.bus.host.now();
        let index = self.rules.push(now).ok_or(EnableError::EqOverrun)?;
        let position = self.rules.window().depth().position(index) as usize;
        if let Some(place) = self.sources.get_mut(position) {
            *place = source;
        }
        if core.halted {
            self.unwritten.push((index, words));
            return Ok(());
        }
        self.store(core, index, words)
    }

    /// The machine continues: writes what has waited, and raises the interrupt if it is due.
    pub(crate) fn resume<H: Host<Map = M>>(
        &mut self,
        core: &mut Core<H>,
    ) -> Result<(), EnableError> {
        for (index, words) in core::mem::take(&mut self.unwritten) {
            self.store(core, index, words)?;
        }
        self.look_at_interrupt(core);
        Ok(())
    }

    fn store<H: Host<Map = M>>(
        &mut self,
        core: &mut Core<H>,
        index: Index,
        mut words: [u64; Eqe::WORDS],
    ) -> Result<(), EnableError> {
        let depth = self.rules.window().depth();
        let [_, last] = &mut words;
        *last = (*last & !OWNER) | if depth.owner(index) { OWNER } else { 0 };
        core.garble(Written::Eqe, Eqe::decode(&words).number, &mut words);
        let bus = &mut core.bus;
        let at = u64::from(depth.position(index)) * Eqe::BYTES as u64;
        let stored = self.ring.store(bus, at, words);
        stored.map_err(|_| EnableError::Dma)?;
        bus.count(Counter::Eqes);
        let eqe = Eqe::decode(&words);
        bus.host.trace(Trace::Event {
            eq: self.number,
            index: index.get(),
            kind: eqe.kind,
            number: eqe.number,
        });
        Ok(())
    }

    /// Raises the interrupt if it is due, and the machine is not stopped.
    pub(crate) fn look_at_interrupt<H: Host<Map = M>>(&mut self, core: &mut Core<H>) {
        if core.halted {
            return;
        }
        let interrupt = self.rules.line(core.bus.host.now());
        self.due = match interrupt {
            Interrupt::At(when) => when,
            Interrupt::Raise | Interrupt::Quiet => u64::MAX,
        };
        match interrupt {
            Interrupt::Quiet => {}
            Interrupt::Raise => self.raise(core),
            Interrupt::At(when) => {
                core.timers.moderation = core.timers.moderation.min(when);
                core.set_timer();
            }
        }
    }

    /// Raises the interrupt, whatever the rules say.
    pub(crate) fn raise<H: Host>(&self, core: &mut Core<H>) {
        core.raise(self.number, self.vector);
    }

    /// Looks at the interrupt if moderation ends now; else notes when it does.
    pub(crate) fn moderation_due<H: Host<Map = M>>(&mut self, core: &mut Core<H>, now: u64) {
        if self.due <= now {
            self.look_at_interrupt(core);
        } else {
            core.timers.moderation = core.timers.moderation.min(self.due);
        }
    }

    /// Publishes a head: the first entry that was passed, and how many were.
    pub(crate) fn head(&mut self, head: Index, unmask: bool) -> Result<(Index, u32), Violation> {
        let (from, to) = self.rules.head(head, unmask)?;
        let passed = to.since(from);
        self.passed = self.passed.wrapping_add(u64::from(passed));
        Ok((from, passed))
    }

    /// Takes the source of an entry that was passed.
    pub(crate) fn take_source(&mut self, index: Index) -> Source {
        let position = self.rules.window().depth().position(index) as usize;
        let source = self.sources.get_mut(position);
        source.map_or(Source::Untracked, |source| {
            core::mem::replace(source, Source::Untracked)
        })
    }
}
