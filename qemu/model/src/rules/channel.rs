// SPDX-License-Identifier: GPL-2.0
//! The device's side of a CQ: when it writes an event.
//!
//! Between a CQ and its EQ is a channel. An arm opens it, and carries the consumer index up to
//! which the software has read; **writing an event closes it**. An event is written when the
//! channel is open and the CQ holds a completion past that index:
//!
//! | opened by | at the arm | later |
//! |---|---|---|
//! | next | a completion past the index is there | any completion |
//! | solicited | a solicited or failed one past the index is there | a solicited or failed one |
//!
//! So each arm causes at most one event, and a completion between the last read and the arm causes
//! it at once. An arm whose index is behind the head (another thread has published a later one)
//! fires at once. A later arm replaces an earlier one, but *next* is never weakened by *solicited*.
//!
//! A *notify* opens the channel too, without an index: it asks for a completion that is written
//! after its doorbell. The device may act on the doorbell later, and a completion that is written in
//! between counts. So the write of the doorbell samples the producer index that the device has
//! published, and the rule compares with the sample:
//!
//! | opened by | when the device acts on it | later |
//! |---|---|---|
//! | notify | a completion at or past the sample is there | any completion |
//! | notify solicited | a solicited or failed one at or past the sample is there | a solicited or failed one |
//!
//! The device publishes the producer index once the completion is in memory, so what is not in
//! memory at the doorbell is at or past the sample. Software notifies, reads until the CQ is empty,
//! and waits. A notify adds to what the channel is open for, and takes nothing back. If the head has
//! passed its sample (another thread has published), it fires at once, as an arm does.
//!
//! The driver bounds the events of a kernel CQ: it reserves an EQ slot for each arm or notify. User space
//! arms the CQ of a process and is not trusted, so at most one event of such a CQ is in the EQ at a
//! time. An arm or notify that comes meanwhile opens the channel as usual, but the event waits until
//! the EQ's head has passed the one before.
//!
//! The device does not keep the index of an arm: if it is behind the head the arm fires at once,
//! and what comes after the arm is past the index.
//!
//! A CQ may go on in another ring: [`resize`](qpair_queue::resize). An arm or a notify whose index or
//! sample is of the ring before fires at once.

use super::window::Place;
use super::window::Window;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::resize::Switch;

/// What an arm waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wants {
    /// Any completion.
    Next,
    /// A solicited or failed one.
    Solicited,
}

/// Whether the device writes an event of this CQ now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an event that is not written is lost: its channel is closed already"]
pub enum Fire {
    /// No.
    No,
    /// Yes, after the completion is in memory.
    Now,
}

/// The doorbell's index is past the producer: a violation; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation;

/// The ring that a CQ had before, of which entries are unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Before {
    /// The head that was published last.
    head: Index,
    /// Past its last entry.
    end: Index,
}

/// Why a CQ keeps its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// More entries are unread than the new ring has.
    Unread,
    /// The published head is too far behind, through many resizes without one.
    Behind,
}

/// The farthest that the published head may be behind: indices are compared by signed distance.
const FARTHEST: u32 = 1 << 30;

/// A CQ, as the device keeps it.
#[derive(Clone, Debug)]
pub struct Channel {
    window: Window,
    /// It belongs to a process.
    user: bool,
    /// Open, and for what.
    open: Option<Wants>,
    /// Open, and the completion that it waits for is in the CQ.
    due: bool,
    /// An event of this process's CQ is in the EQ.
    in_eq: bool,
    /// Past the newest solicited completion that the head has not passed.
    solicited: Option<Index>,
    before: Option<Before>,
}

impl Channel {
    /// A new CQ: empty, closed.
    pub const fn new(depth: Depth, user: bool) -> Self {
        Self::starting_at(depth, user, Index::ZERO)
    }

    /// [`new`](Self::new) for tests of the wrap.
    pub const fn starting_at(depth: Depth, user: bool, first: Index) -> Self {
        Self {
            window: Window::new(depth, first),
            user,
            open: None,
            due: false,
            in_eq: false,
            solicited: None,
            before: None,
        }
    }

    /// Goes on in a zeroed ring of this depth; see [`resize`](qpair_queue::resize).
    pub fn resize(&mut self, depth: Depth) -> Result<Switch, Kept> {
        let end = self.window.tail();
        let begin = depth.begin(end);
        if self.window.used() > depth.entries() {
            return Err(Kept::Unread);
        }
        let head = self.published();
        if begin.since(head) > FARTHEST {
            return Err(Kept::Behind);
        }
        self.before = (head != end).then_some(Before { head, end });
        self.window = Window::new(depth, begin);
        Ok(Switch { end, begin })
    }

    /// The head that was published last, in the ring before if entries of that are unread.
    #[inline]
    pub const fn published(&self) -> Index {
        match self.before {
            Some(before) => before.head,
            None => self.window.head(),
        }
    }

    /// The part of the ring that is in use.
    #[inline]
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// Whether it is open, and for what.
    #[inline]
    pub const fn open(&self) -> Option<Wants> {
        self.open
    }

    /// Whether an event of this process's CQ is in the EQ.
    #[inline]
    pub const fn in_eq(&self) -> bool {
        self.in_eq
    }

    /// Takes the index at which a completion is to be written, and whether an event follows it.
    /// `None` if the CQ is overrun.
    #[inline]
    #[must_use]
    pub fn push(&mut self, solicited: bool) -> Option<(Index, Fire)> {
        let index = self.window.push()?;
        if solicited {
            self.solicited = Some(index.plus(1));
        }
        match self.open {
            Some(Wants::Next) => self.due = true,
            Some(Wants::Solicited) => self.due |= solicited,
            None => {}
        }
        Some((index, self.fire()))
    }

    /// A head doorbell.
    #[inline]
    pub fn head(&mut self, head: Index) -> Result<(), Violation> {
        match self.window.advance_head(head) {
            Place::Beyond => return Err(Violation),
            Place::Behind => {
                if self.before.is_some() {
                    self.head_before(head);
                }
            }
            Place::Within(_) => {
                self.before = None;
                self.pass(head);
            }
        }
        Ok(())
    }

    /// The head is past a solicited completion.
    #[inline]
    fn pass(&mut self, head: Index) {
        if self.solicited.is_some_and(|past| head.reaches(past)) {
            self.solicited = None;
        }
    }

    /// A head of the ring before.
    #[cold]
    fn head_before(&mut self, head: Index) {
        let Some(before) = &mut self.before else {
            return;
        };
        if !head.reaches(before.head) {
            return;
        }
        before.head = head;
        if head.reaches(before.end) {
            self.before = None;
        }
        self.pass(head);
    }

    /// An arm doorbell. It publishes the head as well.
    #[inline]
    pub fn arm(&mut self, wants: Wants, index: Index) -> Result<Fire, Violation> {
        let place = self.window.place(index);
        self.head(index)?;
        self.opens(wants);
        self.due = match place {
            Place::Behind => true,
            _ if self.open == Some(Wants::Next) => index != self.window.tail(),
            // The head equals the index now, so entries that the head has not passed are past the
            // index.
            _ => self.solicited.is_some(),
        };
        Ok(self.fire())
    }

    /// A notify doorbell. `sample` is the producer index that was published when it was written.
    #[inline]
    pub fn notify(&mut self, wants: Wants, sample: Index) -> Fire {
        self.opens(wants);
        self.due |= self.came(wants, sample);
        self.fire()
    }

    /// Whether a completion came after the sample that is `wanted`.
    fn came(&self, wanted: Wants, sample: Index) -> bool {
        match self.window.place(sample) {
            // The number was not this CQ's yet, or the head has passed the sample.
            Place::Beyond | Place::Behind => true,
            Place::Within(_) if wanted == Wants::Next => sample != self.window.tail(),
            Place::Within(_) => self
                .solicited
                .is_some_and(|past| past.reaches(sample.plus(1))),
        }
    }

    fn opens(&mut self, wants: Wants) {
        if self.open != Some(Wants::Next) {
            self.open = Some(wants);
        }
    }

    /// The EQ's head has passed an event of this CQ.
    #[inline]
    pub fn passed(&mut self) -> Fire {
        self.in_eq = false;
        self.fire()
    }

    fn fire(&mut self) -> Fire {
        if self.open.is_none() || !self.due || self.in_eq {
            return Fire::No;
        }
        self.open = None;
        self.due = false;
        self.in_eq = self.user;
        Fire::Now
    }
}
