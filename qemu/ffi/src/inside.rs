// SPDX-License-Identifier: GPL-2.0
//! Which thread is inside of the function.
//!
//! One thread at a time, by a lock. The threads are:
//!
//! ```text
//!   with the BQL    registers, properties, reset, a change of the view of memory:
//!                   enter(), waits for the thread that is inside
//!   without it      the core in its IOThread: run(), waits as well, and lets the
//!                   threads that wait go first, every few turns
//!                   doorbells of CPUs: post(), never waits
//! ```
//!
//! **Lock order: the BQL, then this lock.** So a thread that came without the BQL must not want it inside. What
//! would want it there is an access to memory that is no RAM (refused without the BQL, see
//! [`QpairHost`](crate::QpairHost)) and the translation by an IOMMU, whose model belongs to the BQL and
//! may send an interrupt for a fault. Where an IOMMU translates, the function is *bound* to the BQL:
//! then only a thread that has the BQL works in it.
//!
//! **A doorbell is queued.** A CPU puts it into a queue without locks. Then the CPU takes in all
//! doorbells of the queue, if no thread is inside. A thread that is inside takes them in every few
//! turns, and once more when it has left. Between leaving and that look is a full fence, and so is
//! one between a CPU's write to the queue and its look whether a thread is inside. So at least one
//! of the two sees the other, and no doorbell stays in the queue. A thread that enters takes in all
//! doorbells first, so what a CPU wrote is acted on in its order, and before what the CPU reads
//! or writes later in a register.
//!
//! **No thread is inside twice.** A callback may come back in under the BQL: an IOMMU's fault may aim at our
//! registers. Only a holder of the BQL can find that a thread with the BQL is inside, and that is the same
//! thread: accesses do nothing; the end, a reset and the loss of mappings are done as soon as it has left.
//! Mappings hold references of their own, so late is not too late.

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
    Function,
    Host,
    Run, //
};

use crate::host::Qemu;
use crate::QpairRun;

/// Doorbells that wait. Where they are more, the BQL's queue is the longer one.
const WAITING: usize = 1024;
/// Turns between two looks at who waits.
const TURNS: u32 = 8;
/// How often the core looks before its thread goes round again.
const LOOKS: u32 = 8;
/// How often a thread that leaves takes in what has come meanwhile.
const ROUNDS: u32 = 4;

/// A doorbell: where, what, and how many bytes of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doorbell {
    pub(crate) offset: u64,
    pub(crate) value: u64,
    pub(crate) bytes: u32,
}

/// Nothing is mapped, and registers read as ones.
fn end(function: &mut Function<Qemu>) {
    function.set_vanish(true);
    function.reset();
}

/// The function, and the ways to it.
pub(crate) struct Inside {
    function: Mutex<Function<Qemu>>,
    doorbells: ArrayQueue<Doorbell>,
    /// Somebody with the BQL is inside. Belongs to the BQL.
    busy: AtomicBool,
    /// Only holders of the BQL work. Changes inside, so who is inside knows.
    bound: AtomicBool,
    reset_later: AtomicBool,
    unmap_later: AtomicBool,
    end_later: AtomicBool,
}

impl Inside {
    pub(crate) fn new(function: Function<Qemu>) -> Self {
        Self {
            function: Mutex::new(function),
            doorbells: ArrayQueue::new(WAITING),
            busy: AtomicBool::new(false),
            bound: AtomicBool::new(false),
            reset_later: AtomicBool::new(false),
            unmap_later: AtomicBool::new(false),
            end_later: AtomicBool::new(false),
        }
    }

    /// With the BQL: calls `act` with the function, unless that is where we come from.
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
        self.take_in(&mut function);
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

    /// With the BQL: ends the function; it is not seen again.
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

    /// With the BQL: from when this returns on, only its holders work, or others too.
    pub(crate) fn bind(&self, bound: bool) {
        if self.enter(|_| self.bound.store(bound, Relaxed)).is_none() {
            // Inside already, if further out.
            self.bound.store(bound, Relaxed);
        }
    }

    /// Without the BQL: lets the core work for a while.
    pub(crate) fn run(&self) -> QpairRun {
        if self.bound.load(Relaxed) {
            // Not even waited for: who is inside may be about to wait for this thread.
            return QpairRun::Bound;
        }
        let mut function = self.function.lock();
        // What was raised before this run has been sent, or is sent by the thread that raised it.
        function.host_mut().take_raised();
        let mut run = QpairRun::More;
        for _ in 0..LOOKS {
            if self.bound.load(Relaxed) {
                return QpairRun::Bound;
            }
            self.take_in(&mut function);
            if function.run(TURNS) == Run::Idle {
                run = QpairRun::Idle;
                break;
            }
            if function.host_mut().take_raised() {
                // The thread sends it before the core goes on.
                break;
            }
            MutexGuard::bump(&mut function);
        }
        drop(function);
        self.take_in_rest();
        run
    }

    /// Without the BQL: hands in a doorbell. False if it was not taken: then it wants the BQL.
    pub(crate) fn post(&self, doorbell: Doorbell) -> bool {
        if self.bound.load(Relaxed) || self.doorbells.push(doorbell).is_err() {
            return false;
        }
        self.take_in_rest();
        true
    }

    /// Without the BQL, after leaving or posting: takes in doorbells if no thread is inside.
    fn take_in_rest(&self) {
        for round in 0..ROUNDS {
            let Some(mut function) = self
                .has_doorbells()
                .then(|| self.function.try_lock())
                .flatten()
            else {
                return;
            };
            if self.bound.load(Relaxed) {
                // Posted before it was known: the core finds out that it is bound, and goes to the BQL.
                call(&mut function);
                return;
            }
            self.take_in(&mut function);
            self.leave_rest(&mut function, round);
        }
    }

    /// Inside, in the last round: other CPUs ring and ring, so the core takes it from here.
    fn leave_rest(&self, function: &mut Function<Qemu>, round: u32) {
        if round + 1 == ROUNDS {
            call(function);
        }
    }

    /// After what we did before, and before we look who is inside.
    fn has_doorbells(&self) -> bool {
        fence(SeqCst);
        !self.doorbells.is_empty()
    }

    /// Inside.
    fn take_in(&self, function: &mut Function<Qemu>) {
        // No more than fit: CPUs that ring all the time keep nobody in here.
        for _ in 0..WAITING {
            let Some(doorbell) = self.doorbells.pop() else {
                return;
            };
            function.doorbell(doorbell.offset, doorbell.value, doorbell.bytes);
        }
    }
}

/// Calls the core for doorbells that are left. A function that is gone has no core, and takes none in.
fn call(function: &mut Function<Qemu>) {
    if !function.is_vanished() {
        function.host_mut().wake();
    }
}
