// SPDX-License-Identifier: GPL-2.0
//! Receives of SRQs, as a CQ completes them.
//!
//! A receive of an SRQ may complete in each CQ of its queue pairs. A CQ reserves slots for all of
//! them, and a receive that has completed keeps its slot of the SRQ until the head past its entry is
//! published: so the CQ has at most as many unread or unpublished entries as the SRQ has slots.
//!
//! When a queue pair is reset or destroyed, the device gives back the receives that have no entry
//! yet. The slots of those that have one, and it is unread, are free when the entry was read as a
//! stale one, and the head past it is published.

use std::mem;
use std::sync::{Arc, Mutex};

use qpair_abi::Number;
use qpair_queue::credit::{RingId, Slots, Srq};
use qpair_queue::shared::Shared;

use crate::lock::lock;
use crate::memory::SharedRing;

/// The receives of an SRQ, as its posts and the CQs of its queue pairs share them.
pub(crate) type SharedQueue = Mutex<Shared<SharedRing>>;

/// Where a CQ has an SRQ.
pub(crate) type Place = u16;

/// An SRQ whose receives complete in a CQ.
#[derive(Debug)]
struct Source {
    queue: Arc<SharedQueue>,
    /// Slots of receives whose entries were read, and the head past them is not published.
    held: Slots<Srq>,
    /// Queue pairs that were reset or destroyed, each with its unread entries.
    unread: Vec<(Number, u32)>,
    /// Whether queue pairs on it complete here.
    in_use: bool,
}

impl Source {
    /// One receive has completed.
    fn complete(&mut self) -> bool {
        let Some(slots) = lock(&self.queue).complete() else {
            return false;
        };
        // Of this ring: the queue has just returned them.
        let _: Result<(), Slots<Srq>> = self.held.merge(slots);
        true
    }

    fn release(&mut self) {
        if !self.held.is_empty() {
            // Of this ring, as above.
            let _: Result<(), Slots<Srq>> = lock(&self.queue).free_slots(self.held.take());
        }
    }

    fn is_idle(&self) -> bool {
        !self.in_use && self.held.is_empty() && self.unread.is_empty()
    }
}

/// The SRQs whose receives complete in a CQ.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    places: Vec<Option<Source>>,
    /// Whether there are slots to free when the head is published, or an SRQ to forget.
    due: bool,
}

impl Sources {
    /// Adds an SRQ that queue pairs begin to complete here; `None` if there are too many.
    pub(crate) fn add(&mut self, queue: &Arc<SharedQueue>, id: RingId) -> Option<Place> {
        let is_it = |source: &Source| Arc::ptr_eq(&source.queue, queue);
        let known = |place: &Option<Source>| place.as_ref().is_some_and(is_it);
        let at = self.places.iter().position(known);
        let at = at.or_else(|| self.places.iter().position(Option::is_none));
        let at = at.unwrap_or(self.places.len());
        let place = Place::try_from(at).ok()?;
        if at == self.places.len() {
            self.places.push(None);
        }
        let source = self.places[at].get_or_insert_with(|| Source {
            queue: queue.clone(),
            held: Slots::none(id),
            unread: Vec::new(),
            in_use: true,
        });
        source.in_use = true;
        Some(place)
    }

    /// No queue pair on the SRQ completes here any more.
    pub(crate) fn end(&mut self, place: Place) {
        if let Some(source) = self.get(place) {
            source.in_use = false;
        }
        self.due = true;
        self.forget();
    }

    /// The entry of a receive was read; returns whether one was in flight.
    pub(crate) fn complete(&mut self, place: Place) -> bool {
        self.due = true;
        self.get(place).is_some_and(Source::complete)
    }

    /// A queue pair was reset or destroyed, and so many entries of its receives are unread.
    pub(crate) fn left(&mut self, place: Place, number: Number, unread: u32) {
        if let Some(source) = self.get(place).filter(|_| unread != 0) {
            source.unread.push((number, unread));
        }
    }

    /// A stale entry of a receive was read.
    pub(crate) fn stale(&mut self, number: Number) {
        for source in self.places.iter_mut().flatten() {
            let mut unread = source.unread.iter_mut();
            let Some((_, count)) = unread.find(|(of, _)| *of == number) else {
                continue;
            };
            *count -= 1;
            source.unread.retain(|(_, count)| *count != 0);
            source.complete();
            self.due = true;
            return;
        }
    }

    /// The head past all that was read is published.
    #[inline(always)]
    pub(crate) fn release(&mut self) {
        if self.due {
            self.release_all();
        }
    }

    #[cold]
    fn release_all(&mut self) {
        self.due = false;
        for source in self.places.iter_mut().flatten() {
            source.release();
        }
        self.forget();
    }

    /// Forgets the SRQs that have nothing here.
    fn forget(&mut self) {
        for place in &mut self.places {
            if place.as_ref().is_some_and(Source::is_idle) {
                *place = None;
            }
        }
    }

    /// The CQ is destroyed: nothing is left of its entries.
    pub(crate) fn close(&mut self) {
        for mut source in mem::take(&mut self.places).into_iter().flatten() {
            for (_, count) in mem::take(&mut source.unread) {
                for _ in 0..count {
                    source.complete();
                }
            }
            source.release();
        }
    }

    fn get(&mut self, place: Place) -> Option<&mut Source> {
        self.places.get_mut(usize::from(place))?.as_mut()
    }
}
