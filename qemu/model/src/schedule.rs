// SPDX-License-Identifier: GPL-2.0
//! Whose turn it is.
//!
//! Queue pairs that have something to do stand in the [run queue](crate::run_queue). The first has a
//! turn, of a bounded number of work requests and bytes, and steps in again if it is not
//! through. The admin queue pair goes first, doorbell pages share the core, and a run of the
//! core ends once it has moved the bytes of a turn.
//!
//! When the core works depends on its times. With none, it works as soon as the machine
//! calls, or on a deterministic machine inside the doorbell. Else an idle core begins
//! `core_delay_ns` after the doorbell and takes `wqe_ns` for each work request, all by the
//! machine's clock.

use crate::eq::Source;
use crate::host::Host;
use crate::host::Trace;
use crate::mutant::mutant;
use crate::run_queue::Budget;
use crate::Function;
use crate::State;
use qpair_abi::command::qp_state;
use qpair_abi::counters::Counter;
use qpair_abi::entry::BLOCK_BYTES;
use qpair_abi::entry::BLOCK_WORDS;
use qpair_abi::Number;
use std::collections::VecDeque;

/// Blocks that are fetched at once.
pub(crate) const FETCH_BLOCKS: u32 = 32;
/// Words that are fetched at once.
pub(crate) const FETCH_WORDS: usize = FETCH_BLOCKS as usize * BLOCK_WORDS;
/// Turns inside a doorbell, where the core works there; the rest follows by the clock.
const DOORBELL_TURNS: u32 = 256;
/// When the rest follows.
const DOORBELL_PAUSE: u64 = 1000;

/// What is left after [`Function::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// Queue pairs are in line: call again.
    More,
    /// Nothing, or nothing before the time that was asked for.
    Idle,
}

/// What happens later.
pub(crate) struct Timers {
    /// What the machine was asked for.
    asked: u64,
    /// The core begins, or goes on.
    core: u64,
    /// The first moderated interrupt is due.
    pub(crate) moderation: u64,
    /// Interrupts that a test delays.
    pub(crate) delayed: VecDeque<(u64, Number, u16)>,
}

impl Timers {
    pub(crate) fn new() -> Self {
        Self {
            asked: u64::MAX,
            core: 0,
            moderation: u64::MAX,
            delayed: VecDeque::new(),
        }
    }
}

impl<H: Host> Function<H> {
    /// Works: timers that are due, then at most `turns` turns, and none after those that have
    /// moved the bytes of a page's turn. So the caller gets the thread back, and doorbells
    /// are taken, after two such turns at most, however large the messages are.
    pub fn run(&mut self, turns: u32) -> Run {
        if self.is_dead() {
            return Run::Idle;
        }
        let now = self.bus.host.now();
        // The machine's timer has fired, or will for nothing.
        self.timers.asked = u64::MAX;
        if self.timers.moderation <= now {
            self.moderation_due(now);
        }
        while let Some(&(due, eq, vector)) = self.timers.delayed.front() {
            if due > now {
                break;
            }
            self.timers.delayed.pop_front();
            self.raise_now(eq, vector);
        }
        self.retries_due(now);
        let inside = self.works_in_doorbells();
        let most = if inside || mutant!(RunWithoutEnd) {
            u64::MAX
        } else {
            u64::from(self.config.turn_bytes)
        };
        let run = self.work(turns, most);
        if run == Run::More && self.works_in_doorbells() {
            self.timers.core = now.saturating_add(DOORBELL_PAUSE);
        }
        self.set_timer();
        if run == Run::More && (self.works_in_doorbells() || self.works_by_clock()) {
            return Run::Idle;
        }
        run
    }

    /// Whether the core has times of its own.
    fn works_by_clock(&self) -> bool {
        self.knobs.core_delay_ns != 0 || self.knobs.wqe_ns != 0
    }

    fn works_in_doorbells(&self) -> bool {
        self.config.inline && !self.works_by_clock()
    }

    /// Puts a queue pair in line, and sees to it that the core works.
    pub(crate) fn step_in(&mut self, index: usize, page: u16) {
        if self.state != State::Ready {
            return;
        }
        let idle = self.run_queue.is_empty();
        self.run_queue.push(index, page);
        if !idle {
            return;
        }
        if self.works_by_clock() {
            let begin = self.bus.host.now().saturating_add(self.knobs.core_delay_ns);
            self.timers.core = self.timers.core.max(begin);
            self.set_timer();
        } else if !self.config.inline {
            self.bus.host.wake();
        }
    }

    /// A doorbell has been acted on: works here and now if that is the way.
    pub(crate) fn after_doorbell(&mut self) {
        if !self.works_in_doorbells() || self.run_queue.is_empty() {
            return;
        }
        let now = self.bus.host.now();
        // Longer work than one doorbell may do goes on by the clock; so does all that joins it.
        if now >= self.timers.core && self.work(DOORBELL_TURNS, u64::MAX) == Run::More {
            self.timers.core = now.saturating_add(DOORBELL_PAUSE);
        }
        self.set_timer();
    }

    /// Asks for a call when the next thing is due.
    pub(crate) fn set_timer(&mut self) {
        let mut next = self.timers.moderation;
        if let Some((due, ..)) = self.timers.delayed.front() {
            next = next.min(*due);
        }
        let first = self.retries.first().and_then(|index| self.qps.at(index));
        if let Some(first) = first.and_then(|qp| self.qps.get(qp)) {
            next = next.min(first.retry_at);
        }
        let clocked = || self.works_by_clock() || self.works_in_doorbells();
        if !self.run_queue.is_empty() && !self.knobs.stalled && clocked() {
            next = next.min(self.timers.core);
        }
        if next != self.timers.asked {
            self.timers.asked = next;
            self.bus.host.wake_at(next);
        }
    }

    /// Makes a queue pair try again later. All wait equally long, so the line is in the order of time.
    pub(crate) fn retry_later(&mut self, qp: Number) {
        if self.state != State::Ready {
            return;
        }
        let when = self.bus.host.now().saturating_add(self.config.retry_ns);
        if let Some(found) = self.qps.get_mut(qp) {
            found.waiting = true;
            found.retry_at = when;
            self.retries.push(qp.index());
            self.set_timer();
        }
    }

    fn retries_due(&mut self, now: u64) {
        while let Some(index) = self.retries.first() {
            let qp = self.qps.at(index);
            if let Some(found) = qp.and_then(|qp| self.qps.get_mut(qp)) {
                if found.retry_at > now {
                    return;
                }
                found.tries = found.tries.saturating_add(1);
                let qp = found.number;
                self.wake(qp);
            }
            self.retries.remove(index);
        }
    }

    /// Gives at most `turns` turns, and none once `most` bytes have been moved.
    fn work(&mut self, turns: u32, most: u64) -> Run {
        let mut moved = 0;
        for _ in 0..turns {
            if self.knobs.stalled || self.state != State::Ready {
                return Run::Idle;
            }
            if self.works_by_clock() && self.bus.host.now() < self.timers.core {
                break;
            }
            if moved >= most {
                break;
            }
            let Some(mut next) = self.run_queue.next() else {
                return Run::Idle;
            };
            let whole = next.budget.bytes;
            if let Some(qp) = self.qps.at(next.index) {
                self.bus.count(Counter::Turns);
                self.turn(qp, &mut next.budget);
            }
            moved = moved.saturating_add(whole.saturating_sub(next.budget.bytes));
            self.run_queue.done(&next);
            if self.run_queue.is_empty() {
                return Run::Idle;
            }
        }
        if self.run_queue.is_empty() {
            Run::Idle
        } else {
            Run::More
        }
    }

    /// A turn of a queue pair. Takes what it uses from `budget`.
    fn turn(&mut self, qp: Number, budget: &mut Budget) {
        if self.knobs.wqe_ns != 0 {
            let now = self.bus.host.now().max(self.timers.core);
            self.timers.core = now.saturating_add(self.knobs.wqe_ns);
            budget.wqes = 1;
        } else if mutant!(TurnWithoutEnd) {
            budget.wqes = u32::MAX;
            budget.bytes = u64::MAX;
        }
        match self.qps.get(qp).map(|found| found.state) {
            Some(qp_state::ERROR) => self.flush(qp, &mut budget.wqes),
            Some(_) if qp == Number::ADMIN => self.commands(budget.wqes),
            Some(qp_state::RTS | qp_state::SQD) => {
                self.send(qp, &mut budget.wqes, &mut budget.bytes);
            }
            _ => {}
        }
        if self.knobs.wqe_ns != 0 {
            // A request at a time, and each time of another page.
            budget.wqes = 0;
        }
    }

    /// Fetches the next blocks of an SQ, at most `most`, into `blocks`: how many came. `None` if they cannot be read.
    pub(crate) fn fetch(&mut self, qp: Number, most: u32, blocks: &mut [u64]) -> Option<u32> {
        let found = self.qps.get_mut(qp)?;
        let head = found.sq.window.head();
        let count = found.sq.window.used().min(FETCH_BLOCKS).min(most);
        let words = blocks.get_mut(..count as usize * BLOCK_WORDS)?;
        // Where the ring ends, the run goes on at its beginning.
        let position = found.sq.window.depth().position(head);
        let until_end = found.sq.window.depth().entries().wrapping_sub(position);
        let first = count.min(until_end) as usize * BLOCK_WORDS;
        let (before, after) = words.split_at_mut_checked(first)?;
        let at = u64::from(position) * BLOCK_BYTES as u64;
        found.sq.ring.load(&mut self.bus, at, before).ok()?;
        if !after.is_empty() {
            found.sq.ring.load(&mut self.bus, 0, after).ok()?;
        }
        self.bus.host.trace(Trace::Fetch {
            qp,
            index: head.get(),
            blocks: count,
        });
        Some(count)
    }

    /// An entry that a test puts into an EQ.
    pub(crate) fn put_foreign_event(&mut self, eq: Number, words: [u64; 2]) {
        match self.put_event(eq, Source::Nobody, words) {
            Ok(()) => self.look_at_line(eq),
            Err(cause) => self.fatal(cause),
        }
    }
}
