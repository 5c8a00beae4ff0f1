// SPDX-License-Identifier: GPL-2.0
//! Numbers, by which doorbells, entries and contexts name objects.

use super::layout::Field;

/// The name of an object: an index into the device's table of its kind (low 16
/// bits), and a generation that changes each time the index is given out (high
/// 16 bits).
///
/// Doorbells, entries and contexts carry whole numbers, so one that outlived its object matches
/// nothing. Generations start at 1; 0 names only the three objects that registers bring up: EQ 0,
/// CQ 0 and QP 0, and others end at 65535, except four:
///
/// - Those of a queue pair end at [`QP_GENERATIONS`](Self::QP_GENERATIONS). So its number has 24 bits,
///   as the QPN of verbs, and is never 0, 1 or [`GROUP`](Self::GROUP).
/// - Those of a memory region end at [`MR_GENERATIONS`](Self::MR_GENERATIONS). So the two top bits of
///   its key are 0.
/// - Those of a memory window end at [`MW_GENERATIONS`](Self::MW_GENERATIONS), and those of an FRMR at
///   [`FRMR_GENERATIONS`](Self::FRMR_GENERATIONS). So they fit into its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Number(u32);

impl Number {
    /// Event queue 0, completion queue 0 and queue pair 0 (the admin queue).
    pub const ADMIN: Self = Self(0);
    /// Queue pair 1 of a port, as the destination and the source of a datagram.
    pub const PORT_QP: Self = Self(1);
    /// All members of a group, as the destination of a datagram.
    pub const GROUP: Self = Self(0xff_ffff);
    /// The last generation of a queue pair's index; 1 follows it.
    pub const QP_GENERATIONS: u16 = 0xfe;
    /// The last generation of a memory region's index.
    pub const MR_GENERATIONS: u16 = 0x3fff;
    /// The last generation of a memory window's index.
    pub const MW_GENERATIONS: u16 = 0x7ff;
    /// The last generation of an FRMR's index.
    pub const FRMR_GENERATIONS: u16 = 0x3f;

    /// The number of this index and generation.
    #[inline]
    pub const fn new(index: u16, generation: u16) -> Self {
        Self((generation as u32) << 16 | index as u32)
    }

    /// From its form in doorbells and entries.
    #[inline]
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// Its form in doorbells and entries.
    #[inline]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// The place in the device's table of this kind.
    #[inline]
    pub const fn index(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    /// The generation: counts the objects that had this place.
    #[inline]
    pub const fn generation(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The number of the next object at this place; never generation 0.
    #[inline]
    pub const fn next(self) -> Self {
        self.next_of(u16::MAX)
    }

    /// The same where generations end at `last`.
    #[inline]
    pub const fn next_of(self, last: u16) -> Self {
        if self.generation() >= last {
            return Self::new(self.0 as u16, 1);
        }
        Self::new(self.0 as u16, self.generation().wrapping_add(1))
    }
}

impl Field for Number {
    const BITS: u32 = u32::BITS;
    #[inline(always)]
    fn from_bits(bits: u64) -> Self {
        Self::from_raw(bits as u32)
    }
    #[inline(always)]
    fn to_bits(self) -> u64 {
        u64::from(self.raw())
    }
}

impl core::fmt::Display for Number {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}", self.index(), self.generation())
    }
}
