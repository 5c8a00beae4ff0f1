// SPDX-License-Identifier: GPL-2.0

//! The EQs of a device: bring-up, shutdown, and the check for lost interrupts.
//!
//! The watchdog finds lost interrupts. Once a second it reads the next owner word of each EQ, from
//! memory. If an event was there at two checks without a poll in between, its interrupt or the
//! wakeup of the poll was lost.

use super::{
    eq::{
        Eq,
        EqPoller,
        EqRing, //
    },
    prelude::*, //
};
use kernel::{
    new_mutex,
    sync::Mutex, //
};

/// State of the check for lost interrupts of an EQ that is up.
struct Watched {
    ring: EqRing,
    /// The number of polls at the last check, if an event was there.
    seen: Option<u32>,
}

impl Watched {
    fn is_overdue(&mut self, eq: &Eq) -> bool {
        // Read before the ring: a poll in between then changes the count, and nothing is overdue.
        let (head, polls) = eq.progress();
        if !self.ring.is_there(head) || eq.waits() {
            self.seen = None;
            return false;
        }
        self.seen.replace(polls) == Some(polls)
    }
}

/// The EQs of a device, by vector.
#[pin_data]
pub(crate) struct Eqs {
    polls: KVec<Arc<EqPoller>>,
    /// By vector. Locked by the watchdog and by bring-up.
    #[pin]
    watched: Mutex<KVec<Option<Watched>>>,
}

impl Eqs {
    /// All of them, down.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(polls: KVec<Arc<EqPoller>>) -> Result<impl PinInit<Self>> {
        let mut watched = KVec::with_capacity(polls.len(), GFP_KERNEL)?;
        for _ in 0..polls.len() {
            watched.push(None, GFP_KERNEL)?;
        }
        Ok(pin_init!(Self {
            polls,
            watched <- new_mutex!(watched, "Eqs::watched"),
        }))
    }

    /// All of them, up or down.
    pub(crate) fn polls(&self) -> &[Arc<EqPoller>] {
        &self.polls
    }

    /// EQ 0, up or down.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are no EQs.
    pub(crate) fn eq0(&self) -> Result<&Arc<EqPoller>> {
        self.polls.first().ok_or(EINVAL)
    }

    /// The EQ of a vector.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such vector.
    pub(crate) fn of(&self, vector: u32) -> Result<&Arc<EqPoller>> {
        self.polls.get(vector as usize).ok_or(EINVAL)
    }

    /// Starts `eq` as `number`, in `ring`, in `epoch`. Its poll may be scheduled from now on.
    /// Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or `ENOSPC` if the ring has too few slots.
    pub(crate) fn begin(&self, eq: &EqPoller, number: Number, epoch: u32, ring: EqRing) -> Result {
        let live = eq.handler().live(number, epoch, ring.clone())?;
        eq.handler().begin(number);
        self.watch(eq, Some(Watched { ring, seen: None }));
        eq.paused(|_, state| state.live = Some(live));
        Ok(())
    }

    /// The device is quiet: retires everything on the EQs and frees its memory. Sleeps.
    pub(crate) fn end(&self) {
        for eq in self.polls.iter().rev() {
            self.watch(eq, None);
            if let Some(live) = eq.paused(|_, state| state.live.take()) {
                KBox::into_inner(live).retire();
            }
        }
    }

    fn watch(&self, eq: &EqPoller, new: Option<Watched>) {
        let mut watched = self.watched.lock();
        let old = watched
            .get_mut(eq.handler().index as usize)
            .and_then(|place| core::mem::replace(place, new));
        drop(watched);
        drop(old);
    }

    /// Whether `eq` lost an interrupt: an event has been waiting since the last check, a second
    /// ago, and no poll has run. Sleeps.
    pub(crate) fn is_overdue(&self, eq: &Eq) -> bool {
        let mut watched = self.watched.lock();
        let watched = watched.get_mut(eq.index as usize);
        let overdue = watched
            .and_then(Option::as_mut)
            .is_some_and(|watched| watched.is_overdue(eq));
        if overdue {
            eq.count_lost();
        }
        overdue
    }
}
