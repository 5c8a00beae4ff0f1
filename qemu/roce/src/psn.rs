// SPDX-License-Identifier: GPL-2.0
//! Packet sequence numbers.

/// A packet sequence number: 24 bits, which wrap.
///
/// Two numbers have an order if they are less than half of all numbers apart. A sender keeps what
/// it has in flight below that ([`Psn::SPAN`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// The bits of a number.
    pub const MASK: u32 = (1 << 24) - 1;
    /// The greatest distance that has a direction.
    pub const SPAN: u32 = (1 << 23) - 1;

    /// The low 24 bits of `raw`.
    #[inline]
    pub const fn new(raw: u32) -> Self {
        Self(raw & Self::MASK)
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number `count` packets later.
    #[inline]
    pub const fn plus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// The number before this one.
    #[inline]
    pub const fn previous(self) -> Self {
        self.plus(Self::MASK)
    }

    /// How many packets this one is after `base`; negative if it is before `base`.
    #[inline]
    pub const fn since(self, base: Self) -> i32 {
        ((self.0.wrapping_sub(base.0) << 8) as i32) >> 8
    }

    /// Whether this one is before `other`.
    #[inline]
    pub const fn is_before(self, other: Self) -> bool {
        self.since(other) < 0
    }
}
