// SPDX-License-Identifier: GPL-2.0
//! Buffer lists: a planned list resolves to the same bytes, and no larger page size was possible.

use super::checks;
use super::prop::holds;
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::sample::select;
use proptest::strategy::Strategy;
use qpair_abi::command::BufferList;
use qpair_model::rules::shape::BadShape;
use qpair_model::rules::shape::Shape;
use qpair_model::rules::shape::Spot;
use qpair_queue::buflist::PageLimits;
use qpair_queue::buflist::Plan;
use qpair_queue::buflist::Segment;
use qpair_queue::buflist::Unfit;

checks![
    every_byte_is_found_again,
    the_page_is_the_best,
    known_buffers,
    bad_descriptors_are_refused,
    any_descriptor_is_safe_to_walk,
];

const LIMITS: PageLimits = PageLimits {
    min_shift: 12,
    max_shift: 30,
};
/// The address of the root table, and of the first leaf.
const ROOT: u64 = 0x7000_0000_0000;
const LEAF: u64 = 0x7100_0000_0000;

fn dma(segments: &[Segment], mut at: u64) -> u64 {
    for segment in segments {
        if at < segment.bytes {
            return segment.addr + at;
        }
        at -= segment.bytes;
    }
    panic!("past the end");
}

/// Pieces of an aligned size, the first and the last cut, some neighbours, some scattered.
fn buffers() -> impl Strategy<Value = Vec<Segment>> {
    let piece = (1..5u64, any::<bool>(), 1..1u64 << 20);
    let shape = (
        select(vec![12u8, 13, 16, 21]),
        vec(piece, 1..7),
        any::<(u16, u16)>(),
    );
    shape.prop_map(|(shift, pieces, cut)| {
        let page = 1u64 << shift;
        let mut end = 0;
        let mut segments: Vec<Segment> = Vec::new();
        for (pages, neighbour, at) in pieces {
            let addr = if neighbour && end != 0 {
                end
            } else {
                at << shift
            };
            segments.push(Segment {
                addr,
                bytes: pages * page,
            });
            end = addr + pages * page;
        }
        let skip = u64::from(cut.0) % page;
        segments[0].addr += skip;
        segments[0].bytes -= skip;
        let last = segments.last_mut().unwrap();
        last.bytes -= u64::from(cut.1) % page % last.bytes;
        segments
    })
}

fn total(segments: &[Segment]) -> u64 {
    segments.iter().map(|s| s.bytes).sum()
}

fn every_byte_is_found_again() {
    let flat = select(vec![1u64, 4, 512, 1 << 30]);
    let max = select(vec![12u8, 14, 21, 30]);
    let strategy = (buffers(), flat, max, vec(any::<u64>(), 12));
    holds(3000, strategy, |(segments, flat, max_shift, places)| {
        let limits = PageLimits {
            max_shift,
            ..LIMITS
        };
        let plan = Plan::new(segments.iter().copied(), limits, flat).unwrap();
        let entries: Vec<u64> = plan.entries(segments.iter().copied()).collect();
        assert_eq!(entries.len() as u64, plan.pages());
        let shape = Shape::check(&plan.describe(ROOT), limits, 1).unwrap();
        assert_eq!(
            (shape.pages(), shape.levels()),
            (plan.pages(), plan.levels())
        );
        assert_eq!(shape.root_entries(), plan.root_entries());
        assert_eq!(
            plan.leaves(),
            if plan.levels() == 2 {
                plan.pages().div_ceil(512)
            } else {
                0
            }
        );
        assert!(plan.levels() == 0 || (plan.pages() <= flat) == (plan.levels() == 1));
        let bytes = total(&segments);
        assert_eq!(shape.bytes(), bytes);
        assert_eq!(shape.locate(bytes), None);
        assert_eq!(shape.locate(u64::MAX), None);
        let ends = [0, 1, bytes - 1, bytes / 2]
            .into_iter()
            .filter(|at| *at < bytes);
        for at in places.iter().map(|at| at % bytes).chain(ends) {
            let (addr, left) = match shape.locate(at).unwrap() {
                Spot::Block { addr, left } => (addr, left),
                Spot::Page {
                    entry,
                    inside,
                    left,
                } => {
                    let page = entries[((entry - ROOT) / 8) as usize];
                    (shape.page(page).expect("aligned") + inside, left)
                }
                Spot::Leaf {
                    entry,
                    leaf_offset,
                    inside,
                    left,
                } => {
                    let leaf = (entry - ROOT) / 8;
                    assert!(leaf < plan.leaves() && leaf_offset < 4096);
                    assert!(shape.leaf(LEAF + leaf * 4096).is_some());
                    let page = entries[(leaf * 512 + leaf_offset / 8) as usize];
                    (shape.page(page).expect("aligned") + inside, left)
                }
            };
            assert_eq!(addr, dma(&segments, at));
            assert!(left >= 1 && left <= bytes - at);
            assert_eq!(
                addr + left - 1,
                dma(&segments, at + left - 1),
                "in one piece"
            );
        }
    });
}

/// Tries every page size: the largest one that fits all seams needs no fewer pages than the chosen
/// one.
fn the_page_is_the_best() {
    holds(
        3000,
        (buffers(), select(vec![12u8, 16, 30])),
        |(segments, max_shift)| {
            let limits = PageLimits {
                max_shift,
                ..LIMITS
            };
            let plan = Plan::new(segments.iter().copied(), limits, 1 << 40).unwrap();
            let bytes = total(&segments);
            if plan.levels() == 0 {
                assert_eq!(dma(&segments, bytes - 1) - segments[0].addr, bytes - 1);
                assert!(bytes <= 1 << max_shift);
                return;
            }
            let fits = |shift: u8| {
                let inside = |addr: u64| addr & ((1 << shift) - 1) != 0;
                segments.windows(2).all(|pair| {
                    let end = pair[0].addr + pair[0].bytes;
                    end == pair[1].addr || !(inside(end) || inside(pair[1].addr))
                })
            };
            let count = |shift: u8| {
                let offset = segments[0].addr & ((1 << shift) - 1);
                (offset + bytes).div_ceil(1 << shift)
            };
            let best = (12..=max_shift).filter(|shift| fits(*shift));
            let best = best.min_by_key(|shift| (count(*shift), *shift)).unwrap();
            assert_eq!((plan.page_shift(), plan.pages()), (best, count(best)));
        },
    );
}

fn plan(segments: &[(u64, u64)], flat: u64) -> Result<Plan, Unfit> {
    let segments = segments
        .iter()
        .map(|&(addr, bytes)| Segment { addr, bytes });
    Plan::new(segments, LIMITS, flat)
}

fn known_buffers() {
    let block = plan(&[(0x5000, 0x1000), (0x6000, 0), (0x6000, 0x3000)], 512).unwrap();
    let list = block.describe(ROOT);
    assert_eq!(
        (list.levels, list.root, list.bytes, list.offset),
        (0, 0x5000, 0x4000, 0)
    );
    // Huge pages, but the buffer begins inside the first and ends inside the last.
    let huge = plan(&[(0x4000_1000, 0x1f_f000), (0x20_0000, 0x1000)], 512).unwrap();
    assert_eq!((huge.page_shift(), huge.pages(), huge.levels()), (21, 2, 1));
    assert_eq!(huge.describe(ROOT).offset, 0x1000);
    // The address bits agree at the seam, and still it is inside a page of more than 4 KiB.
    let agree = plan(&[(0x10000, 0x3000), (0x53000, 0x3000)], 512).unwrap();
    assert_eq!((agree.page_shift(), agree.pages()), (12, 6));
    // 64 GiB of scattered 4 KiB pages.
    let many = (0..1u64 << 24).map(|i| Segment {
        addr: (i ^ 1) << 12,
        bytes: 4096,
    });
    let many = Plan::new(many, LIMITS, 512).unwrap();
    assert_eq!(
        (many.levels(), many.pages(), many.leaves()),
        (2, 1 << 24, 1 << 15)
    );
    let odd = (0..513u64).map(|i| Segment {
        addr: (i * 2) << 12,
        bytes: 4096,
    });
    assert_eq!(Plan::new(odd, LIMITS, 512).unwrap().leaves(), 2);
    assert_eq!(plan(&[(0x1000, 0)], 1), Err(Unfit::Empty));
    assert_eq!(plan(&[], 1), Err(Unfit::Empty));
    assert_eq!(
        plan(&[(0x1000, 0x800), (0x9000, 0x1000)], 1),
        Err(Unfit::Seam)
    );
    assert_eq!(
        plan(&[(0x1000, 0x1000), (0x9800, 0x1000)], 1),
        Err(Unfit::Seam)
    );
    assert_eq!(plan(&[(u64::MAX - 4095, 4096)], 1), Err(Unfit::Overflow));
}

fn bad_descriptors_are_refused() {
    let good = BufferList {
        root: ROOT,
        bytes: 0x10000,
        offset: 0x10,
        page_shift: 12,
        levels: 1,
    };
    let check = |list: BufferList| Shape::check(&list, LIMITS, 64).map(|shape| shape.pages());
    assert_eq!(check(good), Ok(17));
    let block = BufferList {
        offset: 0,
        page_shift: 0,
        levels: 0,
        ..good
    };
    assert_eq!(check(block), Ok(0));
    // A list may end with the address space.
    let end = |bytes: u64| 0u64.wrapping_sub(bytes);
    let root = end(17 * 8);
    assert_eq!(check(BufferList { root, ..good }), Ok(17));
    let root = end(block.bytes);
    assert_eq!(check(BufferList { root, ..block }), Ok(0));
    for (list, why) in [
        (BufferList { levels: 3, ..good }, BadShape::Levels),
        (
            BufferList {
                page_shift: 11,
                ..good
            },
            BadShape::PageShift,
        ),
        (
            BufferList {
                page_shift: 31,
                ..good
            },
            BadShape::PageShift,
        ),
        (
            BufferList {
                page_shift: 255,
                ..good
            },
            BadShape::PageShift,
        ),
        (
            BufferList {
                offset: 4096,
                ..good
            },
            BadShape::Offset,
        ),
        (BufferList { bytes: 0, ..good }, BadShape::Length),
        (
            BufferList {
                bytes: u64::MAX,
                ..good
            },
            BadShape::Length,
        ),
        (
            BufferList {
                root: ROOT + 4,
                ..good
            },
            BadShape::Root,
        ),
        (
            BufferList {
                root: end(16 * 8),
                ..good
            },
            BadShape::Root,
        ),
        (
            BufferList {
                page_shift: 12,
                ..block
            },
            BadShape::PageShift,
        ),
        (BufferList { offset: 1, ..block }, BadShape::Offset),
        (
            BufferList {
                root: ROOT + 8,
                ..block
            },
            BadShape::Root,
        ),
        (
            BufferList {
                root: end(block.bytes) + 64,
                ..block
            },
            BadShape::Root,
        ),
    ] {
        assert_eq!(check(list), Err(why), "{list:?}");
    }
    let shape = Shape::check(&good, LIMITS, 64).unwrap();
    assert_eq!((shape.page(0x1008), shape.leaf(0x1ff8)), (None, None));
}

fn any_descriptor_is_safe_to_walk() {
    let places = vec(any::<u64>(), 4);
    let list = (any::<(u64, u64, u32)>(), 0..64u8, 0..4u8, 0..65u32);
    holds(
        5000,
        (list, places),
        |(((root, bytes, offset), page_shift, levels, small), places)| {
            let bytes = bytes >> small.min(63);
            let list = BufferList {
                root,
                bytes,
                offset,
                page_shift,
                levels,
            };
            let Ok(shape) = Shape::check(&list, LIMITS, 1) else {
                return;
            };
            for at in places.iter().flat_map(|at| [*at, at % bytes, bytes - 1]) {
                let Some(spot) = shape.locate(at) else {
                    assert!(at >= bytes);
                    continue;
                };
                let table = root..root + 8 * shape.root_entries();
                match spot {
                    Spot::Block { addr, left } => {
                        assert!(addr >= root && addr + left == root + bytes)
                    }
                    Spot::Page {
                        entry,
                        inside,
                        left,
                    } => {
                        assert!(table.contains(&entry) && inside + left <= 1 << page_shift);
                    }
                    Spot::Leaf {
                        entry,
                        leaf_offset,
                        inside,
                        left,
                    } => {
                        assert!(table.contains(&entry) && inside + left <= 1 << page_shift);
                        assert!(leaf_offset <= 4088 && leaf_offset % 8 == 0);
                    }
                }
            }
        },
    );
}
