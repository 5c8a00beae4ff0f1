// SPDX-License-Identifier: GPL-2.0
//! How deep rings are for what a program asks.

use qpair_abi::entry::{inline_bytes, recv_stride, Cqe, Sge, BLOCK_BYTES, MAX_BLOCKS};

use crate::datagram::ADDRESS_BYTES;
use crate::request::most_blocks;

/// The size of a ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Slots, a power of two.
    pub entries: u32,
    /// Slots that the program may fill; the others are slack.
    pub usable: u32,
    /// log2 of the blocks of a slot.
    pub stride: u32,
    /// Inline bytes that a request has room for, of sends.
    pub inline_bytes: u32,
    /// Bytes of all slots.
    pub bytes: usize,
}

/// A ring with slack for `usable` slots of `bytes`, at most `most` slots; `None` if these are too
/// few. Only the deepest rings have no slack.
fn ring(usable: u32, most: u32, bytes: usize) -> Option<Shape> {
    let least = usable.max(1).checked_next_power_of_two()?;
    // At least half of `usable`, so that it is rarely used up.
    let spare = usable.div_ceil(2).max(1);
    let roomy = usable.saturating_add(spare).checked_next_power_of_two();
    let entries = roomy.unwrap_or(most).min(most);
    (least <= most).then_some(Shape {
        entries,
        usable,
        stride: 0,
        inline_bytes: 0,
        bytes: entries as usize * bytes,
    })
}

/// The ring of a CQ of at least `entries` entries.
pub fn cq(entries: u32, most: u32) -> Option<Shape> {
    let shape = ring(entries, most, Cqe::BYTES).filter(|_| entries != 0)?;
    // A quarter of slack is enough; the rest is the program's.
    let slack = (shape.entries - entries).min((shape.entries / 4).max(1));
    Some(Shape {
        usable: shape.entries - slack,
        ..shape
    })
}

/// The ring of sends: `requests` of at most `sges` SGEs or `inline` bytes. Smaller requests take
/// fewer blocks, so that more of them fit.
pub fn sq(requests: u32, sges: u32, inline: u32, most: u32) -> Option<Shape> {
    const LARGEST: u32 = MAX_BLOCKS as u32;
    let each = most_blocks(sges, inline);
    let usable = requests.checked_mul(each)?;
    // After all requests but the last were posted unsignaled, the ring must still have room for
    // the largest one: else that is what it requires to be signaled.
    let least = usable.checked_add(LARGEST.checked_sub(each)?)?;
    Some(Shape {
        usable,
        // CAST: Of few blocks.
        inline_bytes: inline_bytes(each as usize) as u32,
        ..ring(least.max(LARGEST), most, BLOCK_BYTES)?
    })
}

/// The ring of sends of UD, as [`sq`].
pub fn ud_sq(requests: u32, sges: u32, inline: u32, most: u32) -> Option<Shape> {
    // The address takes the room of SGEs.
    const ADDRESS: u32 = (ADDRESS_BYTES / Sge::BYTES) as u32;
    const { assert!(ADDRESS_BYTES % Sge::BYTES == 0) };
    let inline = inline.checked_add(ADDRESS_BYTES as u32)?;
    let shape = sq(requests, sges.checked_add(ADDRESS)?, inline, most)?;
    Some(Shape {
        inline_bytes: shape.inline_bytes - ADDRESS_BYTES as u32,
        ..shape
    })
}

/// The ring of receives: `requests` of at most `sges` SGEs.
pub fn rq(requests: u32, sges: u32, most: u32) -> Option<Shape> {
    let stride = recv_stride(sges as usize)?;
    let shape = ring(requests, most, BLOCK_BYTES << stride)?;
    Some(Shape {
        stride: stride.into(),
        ..shape
    })
}

/// The ring of shared receives: `requests` of at most `sges` SGEs. It has no slack, as a slot
/// is free when its completion is read.
pub fn srq(requests: u32, sges: u32, most: u32) -> Option<Shape> {
    let shape = rq(requests, sges, most).filter(|_| requests != 0)?;
    let entries = requests.checked_next_power_of_two()?;
    Some(Shape {
        entries,
        usable: entries,
        bytes: entries as usize * (BLOCK_BYTES << shape.stride),
        ..shape
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u32 = 1 << 12;

    #[test]
    fn every_ring_holds_what_was_asked() {
        for asked in 1..=MOST {
            for (shape, bytes) in [
                (cq(asked, MOST), Cqe::BYTES),
                (rq(asked, 1, MOST), BLOCK_BYTES),
                (rq(asked, 15, MOST), 4 * BLOCK_BYTES),
                (sq(asked, 1, 0, MOST), BLOCK_BYTES),
            ] {
                let Some(shape) = shape else { continue };
                assert_eq!(shape.bytes, shape.entries as usize * bytes);
                assert!(shape.entries.is_power_of_two() && shape.entries <= MOST);
                assert!(shape.usable >= asked && shape.usable <= shape.entries);
                // Slack, unless the limit leaves none.
                let slack = shape.entries - shape.usable;
                assert!(
                    slack * 4 >= asked || shape.entries == MOST,
                    "{asked}: {shape:?}"
                );
            }
            assert!(cq(asked, MOST).is_some() && rq(asked, 1, MOST).is_some());
        }
    }

    #[test]
    fn a_quarter_of_a_cq_is_slack_at_most() {
        for (asked, usable) in [(1, 1), (9, 12), (16, 24), (MOST, MOST)] {
            assert_eq!(cq(asked, MOST).unwrap().usable, usable, "{asked}");
        }
    }

    #[test]
    fn what_fits_besides_is_for_inline_data() {
        let inline = |shape: Option<Shape>| shape.unwrap().inline_bytes;
        assert_eq!(inline(sq(8, 1, 0, MOST)), 32);
        assert_eq!(inline(sq(8, 3, 0, MOST)), 96);
        assert_eq!(inline(sq(8, 1, 33, MOST)), 96);
        assert_eq!(inline(sq(8, 14, 224, MOST)), 224);
        assert_eq!(inline(ud_sq(8, 0, 0, MOST)), 0);
        assert_eq!(inline(ud_sq(8, 1, 0, MOST)), 64);
        assert_eq!(inline(ud_sq(8, 1, 65, MOST)), 128);
        assert_eq!(inline(ud_sq(8, 12, 192, MOST)), 192);
    }

    #[test]
    fn more_than_the_limit_is_refused() {
        assert_eq!(cq(MOST + 1, MOST), None);
        assert_eq!(cq(0, MOST), None);
        assert_eq!(cq(u32::MAX, MOST), None);
        assert_eq!(rq(MOST + 1, 1, MOST), None);
        assert_eq!(rq(1, 16, MOST), None);
        assert_eq!(sq(MOST / 4 + 1, 14, 0, MOST), None);
        assert_eq!(sq(1, 15, 0, MOST), None);
        assert_eq!(sq(1, 0, 225, MOST), None);
        assert_eq!(sq(u32::MAX, 14, 0, MOST), None);
        assert_eq!(ud_sq(1, 13, 0, MOST), None);
        assert_eq!(ud_sq(1, 0, 193, MOST), None);
        assert_eq!(ud_sq(1, u32::MAX, u32::MAX, MOST), None);
    }

    #[test]
    fn the_largest_that_a_device_promises_exists() {
        // `max_qp_wr` is a quarter of the blocks.
        assert_eq!(sq(MOST / 4, 14, 224, MOST).unwrap().entries, MOST);
        assert_eq!(ud_sq(MOST / 4, 12, 192, MOST).unwrap().entries, MOST);
        assert_eq!(rq(MOST, 15, MOST).unwrap().stride, 2);
        assert_eq!(rq(0, 0, MOST).unwrap().usable, 0);
        assert_eq!(srq(MOST, 15, MOST).unwrap().entries, MOST);
        let shared = srq(5, 4, MOST).unwrap();
        assert_eq!((shared.usable, shared.bytes), (8, 8 * 128));
        // Without slack.
        let full = srq(8, 1, MOST).unwrap();
        assert_eq!((full.entries, full.bytes), (8, 8 * 64));
        assert_eq!((srq(0, 1, MOST), srq(MOST + 1, 1, MOST)), (None, None));
    }
}
