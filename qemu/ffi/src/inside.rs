// SPDX-License-Identifier: GPL-2.0
//! The thread that is inside the function.
//!
//! One thread at a time, by a lock. The threads are:
//!
//! ```text
//!   with the BQL    registers, properties, reset, a change of the view of memory, frames:
//!                   enter(), waits for the thread that is inside
//!                   the core by the machine's clock, or while the function is bound:
//!                   run(), the same
//!   without it      the core in the main loop or its IOThread: run_apart(), waits as
//!                   well, and lets waiting threads go first, every few turns
//!                   doorbells of CPUs: post(), never waits
//! ```
//!
//! **Lock order: the BQL, then this lock.** So a thread that entered without the BQL must not take
//! it inside. Two operations would need it: an access to memory that is not RAM (refused without
//! the BQL, see [`QpairHost`](crate::QpairHost)), and translation by an IOMMU, whose model is
//! protected by the BQL and may send an interrupt for a fault. While an IOMMU translates, the
//! function is *bound* to the BQL: then only a thread that holds the BQL works in it.
//!
//! **A doorbell is queued.** A CPU puts it into a lock-free queue. Then the CPU processes all
//! doorbells of the queue, if no thread is inside. A thread that is inside processes them every few
//! turns, and once more after leaving. There is a full fence between leaving and that check, and
//! another between a CPU's write to the queue and its check for a thread inside. So at least one of
//! the two sees the other, and no doorbell stays in the queue. A thread that enters processes all
//! doorbells first, so the doorbells of a CPU take effect in order, and before its later register
//! accesses. A notify counts completions from its write on, so the CPU samples the CQ's producer
//! index before it queues the doorbell.
//!
//! **A CPU does small work itself.** If the core is idle, the CPU may execute the turn in
//! [`Function::execute`], which is shorter than the wait for another thread. It processes doorbells
//! of other CPUs as well, so the limit is that of a call, not of a doorbell. Then it gives the lock
//! to a thread that waits, before it takes it again. The other threads that process doorbells leave
//! the work to the core: a register access stays short.
//!
//! **No thread is inside twice.** A callback may re-enter under the BQL: the message of an IOMMU
//! fault may be addressed to the function's own registers. If a holder of the BQL finds a thread
//! with the BQL inside, it is the same thread: accesses do nothing; the end, a reset and the
//! removal of mappings are executed as soon as it has left. Mappings hold references of their own,
//! so this is not too late.

use core::sync::atomic::{
    fence, AtomicBool,
    Ordering::{
        Relaxed,
        SeqCst, //
    },
};

use crossbeam_queue::ArrayQueue;
use parking_lot::{
    Mutex,
    MutexGuard, //
};
use qpair_model::{
    Budget,
    Doorbell,
    Function,
    Host,
    Producers,
    Run, //
};

use crate::host::Qemu;
use crate::QpairRun;

/// Maximum number of queued doorbells. Further ones wait for the BQL.
const WAITING: usize = 1024;
/// Turns of a run with the BQL, after which queued doorbells are processed.
const TURNS: u32 = 64;
/// Such runs in one iteration of the main loop. An iteration costs as much as several runs, since a
/// run ends after the bytes of one turn.
const RUNS: u32 = 16;
/// Nanoseconds of the host after which the core returns to its event loop. [`RUNS`] runs with large
/// messages take about this time.
const SLICE_NS: u64 = 200_000;
/// Turns of a run without the BQL, after which waiting threads go first as well.
const TURNS_APART: u32 = 8;
/// Such runs in one iteration of the event loop, if [`SLICE_NS`] does not end it before.
const RUNS_APART: u32 = 64;
/// How often a thread that leaves processes doorbells that arrived meanwhile.
const ROUNDS: u32 = 4;

/// Ends the function: nothing is mapped, and registers read as ones.
fn end(function: &mut Function<Qemu>) {
    function.set_vanish(true);
    function.reset();
}

/// The function, and the state that controls access to it.
pub(crate) struct Inside {
    function: Mutex<Function<Qemu>>,
    doorbells: ArrayQueue<Doorbell>,
    producers: Producers,
    /// The work that a CPU may do in one call.
    spare: Budget,
    /// A thread with the BQL is inside. Protected by the BQL.
    busy: AtomicBool,
    /// Only holders of the BQL may work. Changes only inside, so a thread inside knows the state.
    bound: AtomicBool,
    reset_later: AtomicBool,
    unmap_later: AtomicBool,
    end_later: AtomicBool,
}

impl Inside {
    pub(crate) fn new(function: Function<Qemu>) -> Self {
        Self {
            doorbells: ArrayQueue::new(WAITING),
            producers: function.producers(),
            spare: function.spare(),
            function: Mutex::new(function),
            busy: AtomicBool::new(false),
            bound: AtomicBool::new(false),
            reset_later: AtomicBool::new(false),
            unmap_later: AtomicBool::new(false),
            end_later: AtomicBool::new(false),
        }
    }

    /// With the BQL: calls `act` with the function, unless this thread is inside already.
    pub(crate) fn enter<R>(&self, act: impl FnOnce(&mut Function<Qemu>) -> R) -> Option<R> {
        if self.busy.load(Relaxed) {
            return None;
        }
        let result = self.work(self.function.lock(), act);
        for round in 0..ROUNDS {
            let Some(function) = self
                .has_doorbells()
                .then(|| self.function.try_lock())
                .flatten()
            else {
                break;
            };
            self.work(function, |f| self.leave_rest(f, round));
        }
        Some(result)
    }

    /// With the BQL, inside.
    fn work<R>(
        &self,
        mut function: MutexGuard<'_, Function<Qemu>>,
        act: impl FnOnce(&mut Function<Qemu>) -> R,
    ) -> R {
        self.busy.store(true, Relaxed);
        self.take_in(&mut function, &mut Budget::none());
        let result = act(&mut function);
        loop {
            if self.end_later.swap(false, Relaxed) {
                end(&mut function);
            } else if self.reset_later.swap(false, Relaxed) {
                function.reset();
            } else if self.unmap_later.swap(false, Relaxed) {
                function.unmap_all();
            } else {
                break;
            }
        }
        self.busy.store(false, Relaxed);
        result
    }

    /// With the BQL: returns the function to power-on.
    pub(crate) fn reset(&self) {
        if self.enter(Function::reset).is_none() {
            self.reset_later.store(true, Relaxed);
        }
    }

    /// With the BQL: ends the function for good.
    pub(crate) fn end(&self) {
        if self.enter(end).is_none() {
            self.end_later.store(true, Relaxed);
        }
    }

    /// With the BQL: drops all mappings.
    pub(crate) fn unmap_all(&self) {
        if self.enter(Function::unmap_all).is_none() {
            self.unmap_later.store(true, Relaxed);
        }
    }

    /// With the BQL: when this returns, only holders of the BQL work, or other threads may too.
    pub(crate) fn bind(&self, bound: bool) {
        if self.enter(|_| self.bound.store(bound, Relaxed)).is_none() {
            // Also effective if this thread is inside already.
            self.bound.store(bound, Relaxed);
        }
    }

    /// With the BQL: runs the core for a while; true if there is more work.
    pub(crate) fn run(&self) -> bool {
        let run = |function: &mut Function<Qemu>| {
            self.take_in(function, &mut Budget::none());
            function.run(TURNS) == Run::More
        };
        let runs = |function: &mut Function<Qemu>| {
            function.host_mut().limit_runs(SLICE_NS);
            for _ in 0..RUNS {
                if !run(function) {
                    return false;
                }
                if function.host().time_is_up() {
                    break;
                }
            }
            true
        };
        self.enter(runs).unwrap_or(false)
    }

    /// The same without the BQL.
    pub(crate) fn run_apart(&self) -> QpairRun {
        if self.bound.load(Relaxed) {
            // Do not wait for the lock: the thread inside may be about to wait for this thread.
            return QpairRun::Bound;
        }
        let mut function = self.function.lock();
        // Earlier interrupts have been sent, or are sent by the thread that raised them.
        function.host_mut().take_raised();
        function.host_mut().limit_runs(SLICE_NS);
        let mut run = QpairRun::More;
        for _ in 0..RUNS_APART {
            if self.bound.load(Relaxed) {
                return QpairRun::Bound;
            }
            self.take_in(&mut function, &mut Budget::none());
            if function.run(TURNS_APART) == Run::Idle {
                run = QpairRun::Idle;
                break;
            }
            if function.host_mut().take_raised() {
                // The thread sends it before the core continues.
                break;
            }
            if function.host().time_is_up() {
                break;
            }
            MutexGuard::bump(&mut function);
        }
        drop(function);
        self.take_in_rest(Budget::none());
        run
    }

    /// Without the BQL: queues a doorbell. False if it was not accepted: then the caller must take
    /// the BQL. A notify counts from here, whenever it is executed.
    pub(crate) fn post(&self, offset: u64, value: u64, bytes: u32) -> bool {
        let doorbell = self.producers.doorbell(offset, value, bytes);
        if self.bound.load(Relaxed) || self.doorbells.push(doorbell).is_err() {
            return false;
        }
        self.take_in_rest(self.spare);
        true
    }

    /// Without the BQL, after leaving or posting: processes doorbells if no thread is inside, and
    /// does a little of their work. A CPU executes the doorbells of others as well, so `spare` is
    /// for all of them.
    fn take_in_rest(&self, mut spare: Budget) {
        for round in 0..ROUNDS {
            let Some(mut function) = self
                .has_doorbells()
                .then(|| self.function.try_lock())
                .flatten()
            else {
                return;
            };
            if self.bound.load(Relaxed) {
                // Posted before the function was bound: the core finds that out, and moves to the
                // BQL.
                call(&mut function);
                MutexGuard::unlock_fair(function);
                return;
            }
            self.take_in(&mut function, &mut spare);
            self.leave_rest(&mut function, round);
            // A thread that waits goes first, though other CPUs ring again at once.
            MutexGuard::unlock_fair(function);
        }
    }

    /// Inside, in the last round: other CPUs keep ringing, so leave the rest to the core.
    fn leave_rest(&self, function: &mut Function<Qemu>, round: u32) {
        if round + 1 == ROUNDS {
            call(function);
        }
    }

    /// Ordered after earlier writes, and before the check for a thread inside.
    fn has_doorbells(&self) -> bool {
        fence(SeqCst);
        !self.doorbells.is_empty()
    }

    /// Inside.
    fn take_in(&self, function: &mut Function<Qemu>, spare: &mut Budget) {
        // At most a full queue: CPUs that ring all the time must not keep a thread in here.
        for _ in 0..WAITING {
            let Some(doorbell) = self.doorbells.pop() else {
                return;
            };
            function.execute(doorbell, spare);
        }
    }
}

/// Schedules the core for the remaining doorbells. A function that has ended has no core, and
/// ignores them.
fn call(function: &mut Function<Qemu>) {
    if !function.is_vanished() {
        function.host_mut().wake();
    }
}
