// SPDX-License-Identifier: GPL-2.0
//! The part of a ring that is in use.
//!
//! A ring that is full at the largest depth, 2^31, is the one place where the signed distance of
//! indices alone is not enough: its tail is as far ahead of its head as behind it. So a [`Window`],
//! which measures from the head, decides whether an index is *in* a ring.

use qpair_queue::index::Depth;
use qpair_queue::index::Index;

/// Where an index is, relative to a [`Window`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before the head.
    Behind,
    /// This many past the head, and not past the tail.
    Within(u32),
    /// Past the tail.
    Beyond,
}

/// The part of a ring that is in use, as the device keeps it: [head, tail).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    depth: Depth,
    head: Index,
    tail: Index,
}

impl Window {
    /// An empty one that starts at `first`; only tests pass anything but [`Index::ZERO`].
    #[inline]
    pub const fn new(depth: Depth, first: Index) -> Self {
        Self {
            depth,
            head: first,
            tail: first,
        }
    }

    /// Places in the ring.
    #[inline(always)]
    pub const fn depth(&self) -> Depth {
        self.depth
    }

    /// The oldest entry in use.
    #[inline(always)]
    pub const fn head(&self) -> Index {
        self.head
    }

    /// Past the newest entry in use.
    #[inline(always)]
    pub const fn tail(&self) -> Index {
        self.tail
    }

    /// Entries in use.
    #[inline(always)]
    pub const fn used(&self) -> u32 {
        self.tail.since(self.head)
    }

    /// Whether nothing is in use.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.used() == 0
    }

    /// Whether there is no place left.
    #[inline(always)]
    pub const fn is_full(&self) -> bool {
        self.used() >= self.depth.entries()
    }

    /// Where `index` lies.
    #[inline(always)]
    pub const fn place(&self, index: Index) -> Place {
        let distance = index.since(self.head);
        if distance <= self.used() {
            Place::Within(distance)
        } else if (distance as i32) < 0 {
            Place::Behind
        } else {
            Place::Beyond
        }
    }

    /// Goes on in a ring of `depth`. False, and nothing changes, if it has fewer places than are in
    /// use.
    #[must_use]
    pub fn resize(&mut self, depth: Depth) -> bool {
        let fits = self.used() <= depth.entries();
        if fits {
            self.depth = depth;
        }
        fits
    }

    /// Takes the next place; `None` if the ring is full.
    #[inline]
    #[must_use]
    pub fn push(&mut self) -> Option<Index> {
        if self.is_full() {
            return None;
        }
        let index = self.tail;
        self.tail = index.plus(1);
        Some(index)
    }

    /// The other side is done with everything before `head`. An index behind the head is legal and
    /// changes nothing; one beyond the tail changes nothing and is a violation.
    #[inline]
    pub fn advance_head(&mut self, head: Index) -> Place {
        let place = self.place(head);
        if let Place::Within(_) = place {
            self.head = head;
        }
        place
    }

    /// The other side has filled everything before `tail`; returns the number of new entries.
    /// `None`, and nothing changes, if the ring has no room for them or `tail` is behind the last
    /// tail.
    #[inline]
    pub fn advance_tail(&mut self, tail: Index) -> Option<u32> {
        let used = tail.since(self.head);
        if used > self.depth.entries() || used < self.used() {
            return None;
        }
        let came = tail.since(self.tail);
        self.tail = tail;
        Some(came)
    }
}
