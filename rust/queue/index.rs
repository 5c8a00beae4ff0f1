// SPDX-License-Identifier: GPL-2.0
//! Free-running indices, and the owner bit.
//!
//! An [`Index`] counts the entries of a ring since the ring began. It has 32 bits
//! and wraps; the ring's [`Depth`] is a power of two, so the low bits are the
//! entry's position, the bits above them count the passes, and both stay right
//! across the wrap. Two indices are compared by their signed distance.
//!
//! Each entry of a ring that hardware writes has an owner bit. Hardware writes it as 1 in the first
//! pass, 0 in the second, and so on: an entry is new exactly if its owner bit differs from the
//! lowest bit of the pass number. Neither side ever has to clear it.

/// A free-running count of a ring's entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Index(u32);

impl Index {
    /// The first index of every ring.
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
    /// The largest, 2^31.
    pub const MAX: Self = Self {
        mask: u32::MAX >> 1,
    };

    /// From its base-two logarithm; `None` above 31.
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

    /// The base-two logarithm of the entries.
    #[inline]
    pub const fn log2(self) -> u8 {
        self.mask.count_ones() as u8
    }

    /// Entries, a power of two.
    #[inline(always)]
    pub const fn entries(self) -> u32 {
        self.mask.wrapping_add(1)
    }

    /// The position of the entry in the ring.
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
