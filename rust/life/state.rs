// SPDX-License-Identifier: GPL-2.0

//! The owner of a device's [`Lifecycle`]: its lock, the tasks that wait for a change, and a snapshot
//! that is read without the lock. Only this folder changes it.

use crate::{
    abi::status::EnableError,
    hw::function::Supervisor,
    kernel::{
        gate::Gate,
        trace, //
    },
    policy::lifecycle::{
        Failure,
        Health,
        Lifecycle,
        Task, //
    }, //
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
        Arc,
        CondVar,
        SpinLockIrq, //
    }, //
};

/// Epoch and health at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Now {
    /// How often the function was reset.
    pub(super) epoch: u32,
    /// What may be done with it.
    pub(super) health: Health,
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

/// The life of a device.
#[pin_data]
pub(crate) struct Life {
    gate: Arc<Gate>,
    #[pin]
    state: SpinLockIrq<Lifecycle>,
    #[pin]
    changed: CondVar,
    /// A [`Now`], for a look without the lock.
    now: Atomic<u64>,
}

impl Life {
    /// That of a device which is down.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(gate: Arc<Gate>) -> Result<Arc<Self>> {
        let state = Lifecycle::new();
        let now = Now::of(&state);
        Arc::pin_init(
            pin_init!(Self {
                gate,
                state <- new_spinlock_irq!(state, "Life::state"),
                changed <- new_condvar!("Life::changed"),
                now: Atomic::new(now),
            }),
            GFP_KERNEL,
        )
    }

    /// Epoch and health. Any context.
    #[inline]
    pub(super) fn now(&self) -> Now {
        Now::from_word(self.now.load(Acquire))
    }

    /// Changes it, by one of its transitions. Any context.
    pub(super) fn change<R>(&self, f: impl FnOnce(&mut Lifecycle) -> R) -> R {
        let mut state = self.state.lock();
        let result = f(&mut state);
        self.now.store(Now::of(&state), Release);
        drop(state);
        self.changed.notify_all();
        result
    }

    /// Waits until no task is under way, and begins one. Sleeps.
    pub(super) fn begin(&self, f: impl FnOnce(&mut Lifecycle) -> Option<Task>) -> Option<Task> {
        let mut state = self.state.lock();
        while state.is_busy() {
            self.changed.wait(&mut state);
        }
        f(&mut state)
    }

    /// See [`Lifecycle::attempts`]. Any context.
    pub(super) fn attempts(&self) -> u32 {
        self.state.lock().attempts()
    }

    /// See [`Lifecycle::is_free`]. Any context.
    pub(super) fn is_free(&self) -> bool {
        self.state.lock().is_free()
    }

    /// Waits until the device accesses no memory of `epoch` any more. Ignores signals; not in a
    /// pass. Sleeps.
    pub(super) fn wait_until_quiet(&self, epoch: u32) {
        let mut state = self.state.lock();
        while !state.is_quiet(epoch) {
            self.changed.wait(&mut state);
        }
    }
}

impl Supervisor for Life {
    fn epoch(&self) -> u32 {
        self.now().epoch
    }

    fn error(&self) -> Error {
        match self.now().health {
            Health::Gone | Health::Unbound => ENODEV,
            Health::Down | Health::Up | Health::Fatal | Health::Asleep => EIO,
        }
    }

    /// The watchdog recovers it. Only the first failure of an epoch is logged, and none once a reset
    /// has begun.
    fn fail_in(&self, epoch: u32, why: Failure) {
        let Some(was) = self.change(|life| life.fail(epoch, why)) else {
            return;
        };
        let cause = match why {
            Failure::Stopped(cause) => cause.into(),
            _ => 0,
        };
        trace::wrong(trace::Wrong::Fatal, 0, cause);
        // Do not log repeated failures of bring-up.
        if self.attempts() != 0 && was != Health::Up && why != Failure::Gone {
            return;
        }
        let dev = self.gate.device();
        match why {
            Failure::Stopped(cause) => match EnableError::from_code(cause) {
                Some(cause) => dev_err!(dev, "device fatal: {}\n", cause.text()),
                None => dev_err!(dev, "device fatal: cause {cause}\n"),
            },
            Failure::NotReady => dev_err!(dev, "device fatal: it is not ready any more\n"),
            Failure::Timeout => dev_err!(dev, "device fatal: an admin command got no answer\n"),
            Failure::Destroy => dev_err!(dev, "device fatal: an object cannot be destroyed\n"),
            Failure::BringUp => {}
            Failure::Link => dev_err!(dev, "device fatal: the link to it failed\n"),
            Failure::Gone => dev_err!(dev, "the device is gone\n"),
        }
    }
}
