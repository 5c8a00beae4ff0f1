// SPDX-License-Identifier: GPL-2.0

//! Up to which epoch the device is known to be quiet.
//!
//! The memory that a kernel ULP has posted is its own: the driver cannot keep it, as it
//! keeps rings and memory of processes. So a destroy of such an object that the device does not
//! confirm waits until the device is quiet.

use kernel::{
    new_condvar,
    new_mutex,
    prelude::*,
    sync::{
        CondVar,
        Mutex, //
    }, //
};

/// The epochs whose memory the device does not access any more.
#[pin_data]
pub(super) struct QuietEpochs {
    /// The first epoch that is not one of them.
    #[pin]
    first: Mutex<u32>,
    #[pin]
    changed: CondVar,
}

impl QuietEpochs {
    /// None.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            first <- new_mutex!(0, "QuietEpochs::first"),
            changed <- new_condvar!("QuietEpochs::changed"),
        })
    }

    /// The device is quiet, and all epochs before `epoch` are over. Sleeps.
    pub(super) fn before(&self, epoch: u32) {
        let mut first = self.first.lock();
        *first = (*first).max(epoch);
        drop(first);
        self.changed.notify_all();
    }

    /// Waits until the device is quiet and `epoch` is over. Ignores signals.
    pub(super) fn wait(&self, epoch: u32) {
        let mut first = self.first.lock();
        while *first <= epoch {
            self.changed.wait(&mut first);
        }
    }
}
