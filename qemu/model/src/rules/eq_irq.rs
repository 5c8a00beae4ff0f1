// SPDX-License-Identifier: GPL-2.0
//! The device's side of an EQ: when it interrupts, and how asynchronous events are queued.
//!
//! **Interrupt.** The device raises it when the EQ is neither masked nor empty, and **raising masks
//! it**. One of the two head doorbells unmasks, the other leaves the mask as it is. Each unmask
//! checks the condition again, so no event that came while masked is lost; and since raising masks,
//! at most one interrupt is under way. Moderation only delays raising, until enough events are in
//! the EQ or the oldest has waited long enough. There is always a time limit, never a count alone.
//!
//! **Asynchronous events** come from faults, so software reserves no slot for each. The device
//! queues one for each object and kind, with a count of repeats, and writes at most a fixed number
//! of them into EQ 0: software reserves that many slots. The device writes the next one when the
//! EQ's head passes one.

use super::channel::Violation;
use super::window::Place;
use super::window::Window;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;

/// How long the interrupt may be delayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Moderation {
    /// Until this many events are in the EQ; 0 and 1 do not delay.
    pub count: u32,
    /// Or until the oldest has waited this long, in nanoseconds.
    pub nanos: u64,
}

/// What the device does with the EQ's interrupt now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an interrupt that is not raised is lost: the EQ is masked already"]
pub enum Line {
    /// Nothing.
    Quiet,
    /// Raises it.
    Raise,
    /// Checks again at this time.
    At(u64),
}

/// An EQ, as the device keeps it.
#[derive(Clone, Debug)]
pub struct EventQueue {
    window: Window,
    masked: bool,
    moderation: Moderation,
    /// When the EQ last became non-empty.
    since: Option<u64>,
}

impl EventQueue {
    /// A new EQ: empty, unmasked.
    pub const fn new(depth: Depth, moderation: Moderation) -> Self {
        Self::starting_at(depth, moderation, Index::ZERO)
    }

    /// [`new`](Self::new) for tests of the wrap.
    pub const fn starting_at(depth: Depth, moderation: Moderation, first: Index) -> Self {
        Self {
            window: Window::new(depth, first),
            masked: false,
            moderation,
            since: None,
        }
    }

    /// The part of the ring that is in use.
    #[inline]
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// Whether its interrupt is masked.
    #[inline]
    pub const fn is_masked(&self) -> bool {
        self.masked
    }

    /// Changes moderation. The caller calls [`line`](Self::line) afterwards.
    #[inline]
    pub fn moderate(&mut self, moderation: Moderation) {
        self.moderation = moderation;
    }

    /// Takes the index at which an event is to be written. `None` if the EQ is full; software that
    /// reserves a slot for each arm never causes that. The caller calls [`line`](Self::line) once
    /// the entry is in memory.
    #[inline]
    #[must_use]
    pub fn push(&mut self, now: u64) -> Option<Index> {
        let index = self.window.push()?;
        self.since.get_or_insert(now);
        Some(index)
    }

    /// A head doorbell. Returns the old and the new head. The caller calls [`line`](Self::line)
    /// afterwards.
    #[inline]
    pub fn head(&mut self, head: Index, unmask: bool) -> Result<(Index, Index), Violation> {
        let before = self.window.head();
        if let Place::Beyond = self.window.advance_head(head) {
            return Err(Violation);
        }
        if self.window.is_empty() {
            self.since = None;
        }
        if unmask {
            self.masked = false;
        }
        Ok((before, self.window.head()))
    }

    /// Whether to raise the interrupt now. Raising masks it.
    #[inline]
    pub fn line(&mut self, now: u64) -> Line {
        if self.masked || self.window.is_empty() {
            return Line::Quiet;
        }
        if self.window.used() < self.moderation.count {
            let due = self
                .since
                .unwrap_or(now)
                .saturating_add(self.moderation.nanos);
            if now < due {
                return Line::At(due);
            }
        }
        self.masked = true;
        Line::Raise
    }
}

/// The device's state of one asynchronous event: one object, one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Notice {
    /// How often it happened since it was last written.
    count: u32,
    in_eq: bool,
}

impl Notice {
    /// Whether it is to be written.
    #[inline]
    pub const fn is_waiting(&self) -> bool {
        self.count != 0 && !self.in_eq
    }

    /// Whether it is in the EQ and the head has not passed it.
    #[inline]
    pub const fn in_eq(&self) -> bool {
        self.in_eq
    }

    /// Counts one occurrence. On `true` the caller appends it to the queue of waiting events.
    /// Otherwise it is queued already, or is queued when the head passes the one in the EQ.
    #[inline]
    #[must_use]
    pub fn happened(&mut self) -> bool {
        let first = self.count == 0;
        self.count = self.count.saturating_add(1);
        first && !self.in_eq
    }

    /// The object is destroyed or was queried: drops what waits. The caller removes it from the
    /// queue.
    #[inline]
    pub fn cancel(&mut self) {
        self.count = 0;
    }
}

/// Limits the asynchronous events in EQ 0.
#[derive(Clone, Debug)]
pub struct Gate {
    limit: u32,
    in_eq: u32,
}

impl Gate {
    /// At most `limit` at a time; `limit` must be at least 1.
    pub const fn new(limit: u32) -> Self {
        Self { limit, in_eq: 0 }
    }

    /// How many are in the EQ.
    #[inline]
    pub const fn in_eq(&self) -> u32 {
        self.in_eq
    }

    /// Whether the next one may be written.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.in_eq < self.limit
    }

    /// Takes the repeat count that the first waiting event is written with. `None` if the limit is
    /// reached, or if the event does not wait.
    #[inline]
    #[must_use]
    pub fn write(&mut self, notice: &mut Notice) -> Option<u32> {
        if !self.is_open() || !notice.is_waiting() {
            return None;
        }
        self.in_eq = self.in_eq.wrapping_add(1);
        notice.in_eq = true;
        Some(core::mem::replace(&mut notice.count, 0))
    }

    /// The EQ's head has passed one; `notice` is `None` if its object is gone. On `true` the caller
    /// appends it to the queue again. Then it writes events from the front of the queue while the
    /// gate is open.
    #[inline]
    #[must_use]
    pub fn passed(&mut self, notice: Option<&mut Notice>) -> bool {
        self.in_eq = self.in_eq.saturating_sub(1);
        match notice {
            Some(notice) => {
                notice.in_eq = false;
                notice.is_waiting()
            }
            None => false,
        }
    }
}
