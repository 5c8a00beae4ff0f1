// SPDX-License-Identifier: GPL-2.0

//! What the driver has of a kernel ULP's object, behind a spinlock.

use crate::kernel::gate::Lease;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        LockClassKey,
        Mutex,
        SpinLockIrq,
        SpinLockIrqGuard, //
    }, //
};

/// The memory of an object, its lease of the device, and the rest of its state.
pub(super) struct Inner<M, S> {
    /// `None` once the device does not use it any more.
    pub(super) memory: Option<M>,
    /// `None` once the device is lost; of a region always.
    pub(super) lease: Option<Lease>,
    pub(super) state: S,
}

impl<M, S> Inner<M, S> {
    /// All of it; `None` once the device is lost.
    pub(super) fn live(&mut self) -> Option<(&mut M, &Lease, &mut S)> {
        Some((self.memory.as_mut()?, self.lease.as_ref()?, &mut self.state))
    }
}

/// An [`Inner`] that is used in any context, and taken from the device in process context.
#[pin_data]
pub(super) struct Held<M, S> {
    #[pin]
    inner: SpinLockIrq<Inner<M, S>>,
    /// Held while the memory is taken: a shutdown frees what is kept after it has unmapped.
    #[pin]
    taking: Mutex<()>,
}

impl<M: Unpin, S: Unpin> Held<M, S> {
    /// The locks of different objects nest: each has a `name` and a class.
    pub(super) fn new(
        memory: M,
        lease: Option<Lease>,
        state: S,
        (name, class): (&'static CStr, Pin<&'static LockClassKey>),
    ) -> impl PinInit<Self> {
        let inner = Inner {
            memory: Some(memory),
            lease,
            state,
        };
        pin_init!(Self {
            inner <- SpinLockIrq::new(inner, name, class),
            taking <- new_mutex!((), "Held::taking"),
        })
    }

    pub(super) fn lock(&self) -> SpinLockIrqGuard<'_, Inner<M, S>> {
        self.inner.lock()
    }

    /// The device is lost: ends the lease, with the lock released. Sleeps.
    pub(super) fn cut(&self) {
        let lease = self.lock().lease.take();
        drop(lease);
    }

    /// Gives `f` the memory, which it frees, or uses anew, with the lock released. Sleeps.
    pub(super) fn take<R>(&self, f: impl FnOnce(Option<M>) -> R) -> R {
        let _taking = self.taking.lock();
        let memory = self.lock().memory.take();
        f(memory)
    }
}
