// SPDX-License-Identifier: GPL-2.0

//! The owner of a function's [`Lifecycle`]: its lock, those that wait for it to change, and a
//! snapshot for those that take no lock.

use crate::policy::lifecycle::{
    Health,
    Lifecycle,
    Task, //
};
use kernel::{
    new_condvar,
    new_spinlock_irq,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        CondVar,
        SpinLockIrq, //
    }, //
};

/// Epoch and health at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Now {
    /// How often the function was reset.
    pub(crate) epoch: u32,
    /// What may be done with it.
    pub(crate) health: Health,
}

impl Now {
    const HEALTH: [Health; 6] = [
        Health::Down,
        Health::Up,
        Health::Fatal,
        Health::Gone,
        Health::Asleep,
        Health::Unbound,
    ];

    fn of(life: &Lifecycle) -> u64 {
        u64::from(life.epoch()) << 32 | life.health() as u64
    }

    fn from_word(word: u64) -> Self {
        // CAST: Each half by itself.
        let health = Self::HEALTH.get(word as u32 as usize);
        Self {
            epoch: (word >> 32) as u32,
            health: health.copied().unwrap_or(Health::Gone),
        }
    }
}

/// The life of a function.
#[pin_data]
pub(crate) struct Life {
    #[pin]
    state: SpinLockIrq<Lifecycle>,
    #[pin]
    changed: CondVar,
    /// A [`Now`], for a look without the lock.
    now: Atomic<u64>,
}

impl Life {
    /// That of a function which is down.
    pub(super) fn new() -> impl PinInit<Self> {
        let state = Lifecycle::new();
        let now = Now::of(&state);
        pin_init!(Self {
            state <- new_spinlock_irq!(state, "Life::state"),
            changed <- new_condvar!("Life::changed"),
            now: Atomic::new(now),
        })
    }

    /// Epoch and health. Any context.
    #[inline]
    pub(crate) fn now(&self) -> Now {
        Now::from_word(self.now.load(Acquire))
    }

    /// Changes it, by one of its transitions. Any context.
    pub(crate) fn change<R>(&self, f: impl FnOnce(&mut Lifecycle) -> R) -> R {
        let mut state = self.state.lock();
        let result = f(&mut state);
        self.now.store(Now::of(&state), Release);
        drop(state);
        self.changed.notify_all();
        result
    }

    /// Waits until no task is under way, and begins one. Sleeps.
    pub(crate) fn begin(&self, f: impl FnOnce(&mut Lifecycle) -> Option<Task>) -> Option<Task> {
        let mut state = self.state.lock();
        while state.is_busy() {
            self.changed.wait(&mut state);
        }
        f(&mut state)
    }

    /// See [`Lifecycle::attempts`]. Any context.
    pub(crate) fn attempts(&self) -> u32 {
        self.state.lock().attempts()
    }

    /// Waits until the device accesses no memory of `epoch` any more. Ignores signals; not in a
    /// pass. Sleeps.
    pub(crate) fn wait_until_quiet(&self, epoch: u32) {
        let mut state = self.state.lock();
        while !state.is_quiet(epoch) {
            self.changed.wait(&mut state);
        }
    }
}
