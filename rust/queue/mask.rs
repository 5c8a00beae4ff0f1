// SPDX-License-Identifier: GPL-2.0
//! The device's side of an EQ: when it interrupts, and how asynchronous events wait.
//!
//! **Interrupt.** It is raised when the EQ is not masked and not empty, and
//! **raising masks it**. Of the two head doorbells one unmasks as well, the other
//! leaves the mask as it is. Since the condition is looked at again at each unmask, nothing that came
//! while masked is lost, and since raising masks, at most one interrupt is under way.
//! Moderation delays raising until enough events wait or the oldest has waited long enough, and does nothing else: there is always a time,
//! never a count alone.
//!
//! **Asynchronous events** are made by faults, and nobody pays a slot for each. So they wait in
//! the device, one for each object and kind, with a count of repeats, and at most a fixed number of
//! them is in EQ 0: the software keeps that many slots for them. The next is
//! written when the EQ's head passes one.

use super::channel::Violation;
use super::index::Depth;
use super::index::Index;
use super::index::Place;
use super::index::Window;
use super::mutant::mutant;

/// How long raising may be delayed.
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
    /// Looks again at this time.
    At(u64),
}

/// An EQ, as the device keeps it.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "explore", derive(PartialEq, Eq, Hash))]
pub struct EventQueue {
    window: Window,
    masked: bool,
    moderation: Moderation,
    /// When the oldest event came that nobody was told of.
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

    /// What of the ring is in use.
    #[inline]
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// Moves it as a whole; see [`Poller::rotate`](super::poll::Poller::rotate).
    #[cfg(feature = "explore")]
    pub fn rotate(&mut self, by: u32) {
        self.window.rotate(by);
    }

    /// Whether its interrupt is masked.
    #[inline]
    pub const fn is_masked(&self) -> bool {
        self.masked
    }

    /// Changes moderation; [`line`](Self::line) must be asked afterwards.
    #[inline]
    pub fn moderate(&mut self, moderation: Moderation) {
        self.moderation = moderation;
    }

    /// An event: the index that it is to be written at. `None` if the EQ is full, which software that
    /// pays for its arms never sees. [`line`](Self::line) must be asked after the entry is in memory.
    #[inline]
    #[must_use]
    pub fn push(&mut self, now: u64) -> Option<Index> {
        let index = self.window.push()?;
        self.since.get_or_insert(now);
        Some(index)
    }

    /// A head doorbell: the entries from the first index up to the second have been
    /// passed. [`line`](Self::line) must be asked afterwards.
    #[inline]
    pub fn head(&mut self, head: Index, unmask: bool) -> Result<(Index, Index), Violation> {
        let before = self.window.head();
        if let Place::Beyond = self.window.advance_head(head) {
            return Err(Violation);
        }
        if self.window.is_empty() {
            self.since = None;
        }
        if unmask || mutant!(KeepMaskedUnmasks) {
            self.masked = mutant!(UnmaskNotChecked) && !self.window.is_empty();
        }
        Ok((before, self.window.head()))
    }

    /// Whether to raise now. Raising masks.
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
            if mutant!(CountOnly) {
                return Line::Quiet;
            }
            if now < due {
                return Line::At(due);
            }
        }
        self.masked = !mutant!(RaiseWithoutMask);
        Line::Raise
    }
}

/// An asynchronous event of one object and kind, as the device keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Notice {
    /// How often it happened since it was last written.
    count: u32,
    in_eq: bool,
}

impl Notice {
    /// Whether it waits to be written.
    #[inline]
    pub const fn is_waiting(&self) -> bool {
        self.count != 0 && !self.in_eq
    }

    /// Whether it is in the EQ, and the head has not passed it.
    #[inline]
    pub const fn in_eq(&self) -> bool {
        self.in_eq
    }

    /// It happened: whether it has to be put at the end of the line of those that wait. If not,
    /// it stands there already, or will be put there when the head has passed the one in the EQ.
    #[inline]
    #[must_use]
    pub fn happened(&mut self) -> bool {
        if self.in_eq && mutant!(AsyncRepeatLost) {
            return false;
        }
        let first = self.count == 0;
        self.count = self.count.saturating_add(1);
        first && !self.in_eq
    }

    /// The object is destroyed, or was asked: what waits is dropped. (It has to be taken out of the line.)
    #[inline]
    pub fn cancel(&mut self) {
        self.count = 0;
    }
}

/// How many asynchronous events are in EQ 0.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "explore", derive(PartialEq, Eq, Hash))]
pub struct Gate {
    limit: u32,
    in_eq: u32,
}

impl Gate {
    /// At most `limit` at a time, which must be at least 1.
    pub const fn new(limit: u32) -> Self {
        Self { limit, in_eq: 0 }
    }

    /// How many are there.
    #[inline]
    pub const fn in_eq(&self) -> u32 {
        self.in_eq
    }

    /// Whether the first of those that wait may be written.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.in_eq < self.limit || mutant!(AsyncUnbounded)
    }

    /// The first of those that wait is written now: the count that it carries. `None` if it may not, or has nothing to tell.
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

    /// The EQ's head has passed one; `notice` is `None` if its object is gone. Whether it has to
    /// be put at the end of the line again. After that, as long as the gate is open, the first of the line is written.
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
