// SPDX-License-Identifier: GPL-2.0
//! Turns of the core.
//!
//! Queue pairs that have work are in the [run queue](crate::run_queue). The first has a turn, of
//! a bounded number of work requests and bytes, and is queued again if it has more. The admin
//! queue pair runs first, doorbell pages share the core, and a run of the core ends once it has
//! moved the bytes of a turn.
//!
//! A short turn costs less than calling the core. So the thread of a doorbell gives that turn
//! itself if the core was idle, one queue pair alone has work, and no more of it than the thread
//! may do. Only this thread waits for such a turn, and threads that wait for the lock of the model.

use crate::function::Function;
use crate::host::Host;
use crate::run_queue::Budget;
use qpair_abi::command::qp_state;
use qpair_abi::counters::Counter;
use qpair_abi::Number;

/// Turns inside a doorbell, where the core works there; the rest follows by the clock.
const DOORBELL_TURNS: u32 = 256;
/// When the rest follows.
const DOORBELL_PAUSE: u64 = 1000;
/// Turns between two looks at the time of the caller.
const TURNS_UNTIMED: u32 = 8;

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
    /// have moved the bytes of a page's turn. So the call ends, and doorbells are taken, after two
    /// such turns at most, however large the messages are. It ends earlier when the time of the
    /// caller is up.
    pub fn run(&mut self, turns: u32) -> Run {
        let data = &mut self.data;
        if data.core.is_dead() || data.core.halted {
            return Run::Idle;
        }
        let now = data.core.bus.host.now();
        // The machine's timer has fired, or is not needed.
        data.core.timers.asked = u64::MAX;
        data.events.moderation_due(&mut data.core, now);
        data.core.delayed_due(now);
        data.qps.retries_due(&mut data.core, now);
        data.holds_due(now);
        data.wake_senders();
        if data.core.timers.frames <= now {
            data.frames_due(now);
        }
        let inside = data.core.works_in_doorbells();
        let most = if inside {
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

    /// Ends a doorbell. Works inside it if the core does; else a core that was idle is called for
    /// what the thread of the doorbell leaves.
    pub(crate) fn after_doorbell(&mut self, was_idle: bool, spare: &mut Budget) {
        if self.data.core.works_in_doorbells() {
            self.work_inside();
            return;
        }
        if was_idle && self.is_little(*spare) {
            if let Some(used) = self.next_turn(Some(*spare)) {
                *spare = spare.less(used);
            }
        }
        let core = &mut self.data.core;
        if was_idle && !core.run_queue.is_empty() {
            core.call();
        }
    }

    /// Whether one queue pair alone has work, with no more blocks posted than `spare` has work
    /// requests, and the core would begin at once.
    fn is_little(&self, spare: Budget) -> bool {
        let core = &self.data.core;
        let waits = core.knobs.stalled || core.halted || core.knobs.has_pace();
        if spare.is_spent() || waits || !core.is_ready() {
            return false;
        }
        let only = core.run_queue.only();
        let found = only.and_then(|index| self.data.qps.get(self.data.qps.at(index)?));
        found.is_some_and(|qp| qp.sq.window.used() <= spare.wqes)
    }

    /// Works inside the doorbell.
    fn work_inside(&mut self) {
        let core = &self.data.core;
        if core.halted || core.run_queue.is_empty() {
            return;
        }
        let now = core.bus.host.now();
        // Work beyond DOORBELL_TURNS goes on by the clock, and so does all that joins it.
        if now >= core.timers.core && self.work(DOORBELL_TURNS, u64::MAX) == Run::More {
            self.data.core.timers.core = now.saturating_add(DOORBELL_PAUSE);
        }
        self.data.core.set_timer();
    }

    /// Gives at most `turns` turns, and none once `most` bytes have been moved or the time of the
    /// caller is up.
    fn work(&mut self, turns: u32, most: u64) -> Run {
        let mut moved = 0;
        for turn in 0..turns {
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
            let Some(used) = self.next_turn(None) else {
                return Run::Idle;
            };
            moved = moved.saturating_add(used.bytes);
            if self.data.core.run_queue.is_empty() {
                return Run::Idle;
            }
            if turn % TURNS_UNTIMED == TURNS_UNTIMED - 1 && self.time_is_up() {
                break;
            }
        }
        if self.data.core.run_queue.is_empty() {
            Run::Idle
        } else {
            Run::More
        }
    }

    /// Gives the next queue pair a turn, of what is left of its page's turn or of the budget that a
    /// caller has for a queue pair alone. Returns what the turn used, at least one work request.
    fn next_turn(&mut self, of_caller: Option<Budget>) -> Option<Budget> {
        let mut next = self.data.core.run_queue.next()?;
        let whole = of_caller.unwrap_or(next.budget);
        let mut left = whole;
        if let Some(qp) = self.data.qps.at(next.index) {
            self.data.core.bus.count(Counter::Turns);
            self.data.core.busy = true;
            self.turn(qp, &mut left);
            self.data.core.busy = false;
        }
        let mut used = whole.less(left);
        used.wqes = used.wqes.max(1);
        next.budget = next.budget.less(used);
        self.data.core.run_queue.done(&next);
        Some(used)
    }

    /// Whether the time of the caller is up. Where the core works by the clock of the machine,
    /// the time of a thread decides nothing.
    fn time_is_up(&self) -> bool {
        let core = &self.data.core;
        let by_clock = core.knobs.has_pace() || core.works_in_doorbells();
        !by_clock && core.bus.host.time_is_up()
    }

    /// A turn of a queue pair. Subtracts what it uses from `budget`.
    fn turn(&mut self, qp: Number, budget: &mut Budget) {
        let core = &mut self.data.core;
        let wqe_ns = core.knobs.wqe_ns;
        if wqe_ns != 0 {
            let now = core.bus.host.now().max(core.timers.core);
            core.timers.core = now.saturating_add(wqe_ns);
            budget.wqes = 1;
        }
        let data = &mut self.data;
        let found = data.qps.get(qp);
        let found = found.map(|found| (found.state, found.fed_by, found.is_by_frames()));
        let Some((state, fed_by, is_by_frames)) = found else {
            return;
        };
        match state {
            _ if is_by_frames => self.turn_by_frames(qp, budget),
            qp_state::ERROR => data.flush(qp, &mut budget.wqes),
            _ if qp == Number::ADMIN => self.commands(budget),
            qp_state::RTS | qp_state::SQD => {
                data.send(qp, &mut budget.wqes, &mut budget.bytes);
            }
            _ => {}
        }
        if fed_by != Number::default() {
            self.data.fed(qp);
        }
        if self.data.core.knobs.wqe_ns != 0 {
            // One request, and then another page's turn.
            budget.wqes = 0;
        }
    }

    /// A turn of a queue pair for which frames wait, or whose peer is at another port.
    #[cold]
    fn turn_by_frames(&mut self, qp: Number, budget: &mut Budget) {
        let data = &mut self.data;
        data.receive_frames(qp, budget);
        let found = data.qps.get(qp);
        let Some((state, is_linked)) = found.map(|found| (found.state, found.is_linked())) else {
            return;
        };
        match state {
            qp_state::ERROR => {
                data.last_answers(qp, &mut budget.bytes);
                data.flush(qp, &mut budget.wqes);
            }
            qp_state::RTR | qp_state::RTS | qp_state::SQD if is_linked => {
                data.send_by_frames(qp, &mut budget.wqes, &mut budget.bytes);
            }
            qp_state::RTS | qp_state::SQD => data.send(qp, &mut budget.wqes, &mut budget.bytes),
            _ => {}
        }
        data.qps.enqueue(&mut data.core, qp);
    }
}
