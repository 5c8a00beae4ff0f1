// SPDX-License-Identifier: GPL-2.0
//! Free-running indices, and the owner bit.
//!
//! An [`Index`] counts the entries of a ring since the ring began. It has 32 bits
//! and wraps; the ring's [`Depth`] is a power of two, so the low bits are the
//! entry's position, the bits above them count the passes, and both stay right
//! across the wrap. Two indices are compared by their signed distance.
//!
//! A ring that is full at the largest depth, 2^31, is the one place where signed distance alone is
//! not enough: its tail is as far ahead of its head as behind it. So a [`Window`], which measures
//! from the head, decides whether an index is *in* a ring.
//!
//! Each entry of a ring that hardware writes has an owner bit. Hardware writes it as 1 in the first
//! pass, 0 in the second, and so on: an entry is new exactly if its owner bit differs from the
//! lowest bit of the pass number. Neither side ever has to clear it.

/// A free-running count of a ring's entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Index(u32);

impl Index {
    /// Where every ring begins.
    pub const ZERO: Self = Self(0);

    /// From its form in doorbells and entries.
    #[inline(always)]
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }

    /// Its form in doorbells and entries.
    #[inline(always)]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The index `count` entries on.
    #[inline(always)]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// How many entries lie between `earlier` and this.
    #[inline(always)]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Whether it is `other` or comes after it.
    #[inline(always)]
    pub const fn reaches(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0) as i32 >= 0
    }
}

/// The number of places in a ring: a power of two from 1 to 2^31. Stored as the mask that every
/// access needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Depth {
    mask: u32,
}

impl Depth {
    /// The largest.
    pub const MAX: Self = Self {
        mask: u32::MAX >> 1,
    };

    /// From its base-two logarithm.
    #[inline]
    pub const fn from_log2(log2: u8) -> Option<Self> {
        if log2 > 31 {
            return None;
        }
        Self::new(1 << log2)
    }

    /// From the number of entries, which must be a power of two.
    #[inline]
    pub const fn new(entries: u32) -> Option<Self> {
        if !entries.is_power_of_two() {
            return None;
        }
        Some(Self {
            mask: entries.wrapping_sub(1),
        })
    }

    /// The smallest that holds `entries`.
    #[inline]
    pub const fn at_least(entries: u32) -> Option<Self> {
        match entries.checked_next_power_of_two() {
            Some(entries) => Self::new(entries),
            None => None,
        }
    }

    /// Its base-two logarithm.
    #[inline]
    pub const fn log2(self) -> u8 {
        self.mask.count_ones() as u8
    }

    /// How many entries.
    #[inline(always)]
    pub const fn entries(self) -> u32 {
        self.mask.wrapping_add(1)
    }

    /// Where in the ring the entry lies.
    #[inline(always)]
    pub const fn position(self, index: Index) -> u32 {
        index.0 & self.mask
    }

    /// The first index from `index` on at which a zeroed ring may begin: that of the first entry of
    /// an even pass.
    #[inline]
    pub const fn begin(self, index: Index) -> Index {
        let both_passes = self.mask << 1 | 1;
        Index(index.0.wrapping_add(both_passes) & !both_passes)
    }

    /// The owner bit that hardware gives the entry.
    #[inline(always)]
    pub fn owner(self, index: Index) -> bool {
        // The lowest bit of the pass.
        let odd = index.0 & self.entries() != 0;
        !odd
    }

    /// Whether an entry whose owner bit is `owner` has been written in the pass of `index`.
    #[inline(always)]
    pub fn is_valid(self, owner: bool, index: Index) -> bool {
        owner == self.owner(index)
    }
}

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
