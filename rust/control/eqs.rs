// SPDX-License-Identifier: GPL-2.0

//! EQs as bring-up and shutdown see them, and the check for lost interrupts.
//!
//! An event that is there for a whole second in which no poll ran has lost its interrupt, or its
//! poll owes time to others and the relay got none for so long. The check reads the owner word of
//! the EQ's next entry: memory, no register.

use super::device::Device;
use crate::{
    abi::Number,
    data::eq::{
        Eq,
        EqPoller,
        EqRing, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::Mutex, //
};

/// What the check for lost interrupts looks at: the memory of an EQ that is up.
pub(super) struct Watched {
    ring: EqRing,
    /// An event was there the last time, after this many polls.
    seen: Option<u32>,
}

impl Watched {
    /// The lock around those of `eqs` EQs, by vector; taken by the watchdog and by bring-up.
    pub(super) fn locked(eqs: usize) -> Result<impl PinInit<Mutex<KVec<Option<Self>>>>> {
        let mut watched = KVec::with_capacity(eqs, GFP_KERNEL)?;
        for _ in 0..eqs {
            watched.push(None, GFP_KERNEL)?;
        }
        Ok(new_mutex!(watched, "Device::watched"))
    }

    fn is_overdue(&mut self, eq: &Eq) -> bool {
        // Before the look: a poll in between is counted, and nothing is overdue.
        let (head, polls) = eq.progress();
        if !self.ring.is_there(head) {
            self.seen = None;
            return false;
        }
        self.seen.replace(polls) == Some(polls)
    }
}

impl Device {
    /// `eq` is up as `number`, in `ring`. Its poll may be scheduled from now on. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or `ENOSPC` if the ring has too few slots.
    pub(super) fn set_up_eq(&self, eq: &EqPoller, number: Number, ring: EqRing) -> Result {
        let live = eq.handler().live(number, self.epoch(), ring.clone())?;
        eq.handler().begin(number);
        self.watch(eq, Some(Watched { ring, seen: None }));
        eq.paused(|_, state| state.put(live));
        Ok(())
    }

    /// The device is quiet: everything on the EQ goes, with its memory. Sleeps.
    pub(super) fn tear_down_eq(&self, eq: &EqPoller) {
        self.watch(eq, None);
        if let Some(live) = eq.paused(|_, state| state.take()) {
            KBox::into_inner(live).retire();
        }
    }

    fn watch(&self, eq: &EqPoller, new: Option<Watched>) {
        let mut watched = self.watched.lock();
        let old = watched
            .get_mut(eq.handler().index() as usize)
            .and_then(|place| core::mem::replace(place, new));
        drop(watched);
        drop(old);
    }

    /// Whether an event of `eq` has been waiting since the last look, a second ago, and no poll has
    /// run: then its interrupt was lost. Sleeps.
    pub(super) fn is_overdue(&self, eq: &Eq) -> bool {
        let mut watched = self.watched.lock();
        let watched = watched.get_mut(eq.index() as usize);
        let overdue = watched
            .and_then(Option::as_mut)
            .is_some_and(|watched| watched.is_overdue(eq));
        if overdue {
            eq.count_lost();
        }
        overdue
    }
}
