// SPDX-License-Identifier: GPL-2.0
//! Turns of the core.
//!
//! Queue pairs that have work are in the [run queue](crate::run_queue). The first has a turn, of
//! a bounded number of work requests and bytes, and is queued again if it has more. The admin
//! queue pair runs first, doorbell pages share the core, and a run of the core ends once it has
//! moved the bytes of a turn.

use crate::function::Function;
use crate::host::Host;
use crate::mutant::mutant;
use crate::run_queue::Budget;
use qpair_abi::command::qp_state;
use qpair_abi::counters::Counter;
use qpair_abi::Number;

/// Turns inside a doorbell, where the core works there; the rest follows by the clock.
const DOORBELL_TURNS: u32 = 256;
/// When the rest follows.
const DOORBELL_PAUSE: u64 = 1000;

/// The remaining work after [`Function::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// Queue pairs are queued: call again.
    More,
    /// Nothing, or nothing before the requested time.
    Idle,
}

impl<H: Host> Function<H> {
    /// Handles timers that are due, then gives at most `turns` turns, and none after those that
    /// have moved the bytes of a page's turn. So the caller gets the thread back, and doorbells
    /// are taken, after two such turns at most, however large the messages are.
    pub fn run(&mut self, turns: u32) -> Run {
        let data = &mut self.data;
        if data.core.is_dead() {
            return Run::Idle;
        }
        let now = data.core.bus.host.now();
        // The machine's timer has fired, or is not needed.
        data.core.timers.asked = u64::MAX;
        data.events.moderation_due(&mut data.core, now);
        data.core.delayed_due(now);
        data.qps.retries_due(&mut data.core, now);
        data.holds_due(now);
        let inside = data.core.works_in_doorbells();
        let most = if inside || mutant!(RunWithoutEnd) {
            u64::MAX
        } else {
            u64::from(data.core.config.turn_bytes)
        };
        let run = self.work(turns, most);
        let core = &mut self.data.core;
        if run == Run::More && core.works_in_doorbells() {
            core.timers.core = now.saturating_add(DOORBELL_PAUSE);
        } else if run == Run::More && core.knobs.has_pace() {
            // Later than now, because QEMU does nothing else while one of its timers is due.
            core.timers.core = core.timers.core.max(now.saturating_add(1));
        }
        core.set_timer();
        if run == Run::More && (core.works_in_doorbells() || core.knobs.has_pace()) {
            return Run::Idle;
        }
        run
    }

    /// Works inside the doorbell, if the core does.
    pub(crate) fn after_doorbell(&mut self) {
        let core = &self.data.core;
        if !core.works_in_doorbells() || core.run_queue.is_empty() {
            return;
        }
        let now = core.bus.host.now();
        // Work beyond DOORBELL_TURNS goes on by the clock, and so does all that joins it.
        if now >= core.timers.core && self.work(DOORBELL_TURNS, u64::MAX) == Run::More {
            self.data.core.timers.core = now.saturating_add(DOORBELL_PAUSE);
        }
        self.data.core.set_timer();
    }

    /// Gives at most `turns` turns, and none once `most` bytes have been moved.
    fn work(&mut self, turns: u32, most: u64) -> Run {
        let mut moved = 0;
        for _ in 0..turns {
            let core = &mut self.data.core;
            if core.knobs.stalled || !core.is_ready() {
                return Run::Idle;
            }
            if core.knobs.has_pace() && core.bus.host.now() < core.timers.core {
                break;
            }
            if moved >= most {
                break;
            }
            let Some(mut next) = core.run_queue.next() else {
                return Run::Idle;
            };
            let whole = next.budget.bytes;
            if let Some(qp) = self.data.qps.at(next.index) {
                self.data.core.bus.count(Counter::Turns);
                self.data.core.working = true;
                self.turn(qp, &mut next.budget);
                self.data.core.working = false;
            }
            moved = moved.saturating_add(whole.saturating_sub(next.budget.bytes));
            let run_queue = &mut self.data.core.run_queue;
            run_queue.done(&next);
            if run_queue.is_empty() {
                return Run::Idle;
            }
        }
        if self.data.core.run_queue.is_empty() {
            Run::Idle
        } else {
            Run::More
        }
    }

    /// A turn of a queue pair. Subtracts what it uses from `budget`.
    fn turn(&mut self, qp: Number, budget: &mut Budget) {
        let core = &mut self.data.core;
        let wqe_ns = core.knobs.wqe_ns;
        if wqe_ns != 0 {
            let now = core.bus.host.now().max(core.timers.core);
            core.timers.core = now.saturating_add(wqe_ns);
            budget.wqes = 1;
        } else if mutant!(TurnWithoutEnd) {
            budget.wqes = u32::MAX;
            budget.bytes = u64::MAX;
        }
        let data = &mut self.data;
        match data.qps.get(qp).map(|found| found.state) {
            Some(qp_state::ERROR) => data.flush(qp, &mut budget.wqes),
            Some(_) if qp == Number::ADMIN => self.commands(budget.wqes),
            Some(qp_state::RTS | qp_state::SQD) => {
                data.send(qp, &mut budget.wqes, &mut budget.bytes);
            }
            _ => {}
        }
        if self.data.core.knobs.wqe_ns != 0 {
            // One request, and then another page's turn.
            budget.wqes = 0;
        }
    }
}
