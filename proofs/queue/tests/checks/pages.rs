// SPDX-License-Identifier: GPL-2.0
//! The pages of a fast registration: the list resolves to the bytes that were mapped.

use super::checks;
use super::prop::holds;
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::sample::select;
use proptest::strategy::Strategy;
use qpair_model::rules::shape::Shape;
use qpair_model::rules::shape::Spot;
use qpair_queue::buflist::PageLimits;
use qpair_queue::pages::Full;
use qpair_queue::pages::PageList;

checks![
    a_mapped_byte_is_found,
    pages_in_a_row_need_no_table,
    no_more_is_registered_than_was_mapped,
    a_list_holds_as_many_pages_as_it_may,
    a_list_begins_anew,
    a_table_that_the_device_has_is_not_written,
    pages_whose_table_is_gone,
];

const LIMITS: PageLimits = PageLimits {
    min_shift: 12,
    max_shift: 30,
};
const TABLE: u64 = 0x7000_0000_0000;
const MOST: u32 = 16;

/// The size of pages, their addresses, some neighbours, some scattered.
fn pages() -> impl Strategy<Value = (u8, Vec<u64>)> {
    let piece = (any::<bool>(), 1..1u64 << 20);
    let shape = (
        select(vec![12u8, 13, 16, 21]),
        vec(piece, 1..=MOST as usize),
    );
    shape.prop_map(|(shift, pieces)| {
        let mut pages: Vec<u64> = Vec::new();
        for (neighbour, at) in pieces {
            let next = pages.last().map(|page| page + (1 << shift));
            pages.push(next.filter(|_| neighbour).unwrap_or(at << shift));
        }
        (shift, pages)
    })
}

fn filled(shift: u8, pages: &[u64]) -> PageList {
    let mut list = PageList::new(MOST);
    list.begin(shift);
    for (index, page) in pages.iter().enumerate() {
        assert_eq!(list.push(*page), Ok(index));
    }
    list
}

/// The address may be any: only how far it is in its page counts.
fn a_mapped_byte_is_found() {
    let strategy = (pages(), any::<u64>(), any::<u64>(), vec(any::<u64>(), 8));
    holds(2000, strategy, |((shift, pages), addr, bytes, places)| {
        let offset = addr & ((1 << shift) - 1);
        let mapped = ((pages.len() as u64) << shift) - offset;
        let bytes = 1 + bytes % mapped;
        let list = filled(shift, &pages)
            .list(Some(TABLE), addr, bytes)
            .unwrap();
        let shape = Shape::check(&list, LIMITS, 1).unwrap();
        assert_eq!(shape.bytes(), bytes);
        for at in places
            .into_iter()
            .map(|at| at % bytes)
            .chain([0, bytes - 1])
        {
            let place = offset + at;
            let page = pages[(place >> shift) as usize];
            let expected = page + (place & ((1 << shift) - 1));
            let found = match shape.locate(at).unwrap() {
                Spot::Block { addr, .. } => addr,
                Spot::Page { entry, inside, .. } => pages[((entry - TABLE) / 8) as usize] + inside,
                Spot::Leaf { .. } => panic!("two levels"),
            };
            assert_eq!(found, expected);
        }
    });
}

fn pages_in_a_row_need_no_table() {
    holds(2000, pages(), |(shift, pages)| {
        let in_a_row = pages.windows(2).all(|two| two[1] == two[0] + (1 << shift));
        let list = filled(shift, &pages).list(Some(TABLE), 0, 1).unwrap();
        assert_eq!(list.levels == 0, in_a_row);
    });
}

fn no_more_is_registered_than_was_mapped() {
    holds(2000, (pages(), any::<u64>()), |((shift, pages), addr)| {
        let offset = addr & ((1 << shift) - 1);
        let mapped = ((pages.len() as u64) << shift) - offset;
        let list = filled(shift, &pages);
        assert!(list.list(Some(TABLE), addr, mapped).is_some());
        for bytes in [0, mapped + 1, u64::MAX] {
            assert_eq!(
                list.list(Some(TABLE), addr, bytes),
                None,
                "{bytes:#x} bytes"
            );
        }
    });
    assert_eq!(PageList::new(MOST).list(Some(TABLE), 0, 1), None);
}

fn a_list_holds_as_many_pages_as_it_may() {
    let pages: Vec<u64> = (0..u64::from(MOST)).map(|page| page << 12).collect();
    let mut list = filled(12, &pages);
    assert_eq!(list.push(1 << 30), Err(Full));
    // What is refused is not part of it.
    let block = list.list(Some(TABLE), 0, u64::from(MOST) << 12).unwrap();
    assert_eq!((block.levels, block.root), (0, 0));
}

fn a_list_begins_anew() {
    let mut list = filled(12, &[0x5000, 0x9000]);
    list.begin(16);
    assert_eq!(list.list(Some(TABLE), 0, 1), None);
    assert_eq!(list.push(0x30000), Ok(0));
    let block = list.list(Some(TABLE), 0x1234, 8).unwrap();
    assert_eq!((block.levels, block.root, block.bytes), (0, 0x31234, 8));
}

/// The addresses of an earlier list stay in the table until the device was given another one.
fn a_table_that_the_device_has_is_not_written() {
    let mut list = PageList::new(MOST);
    let mut last = None;
    for round in 0..5 {
        // Neither a list that is not posted counts, nor one whose post fails.
        for (is_listed, is_given) in [(false, false), (true, false), (true, true)] {
            list.begin(12);
            let indices = [0x5000, 0x9000].map(|page| list.push(page).unwrap() as u64);
            assert!(indices.iter().all(|&index| index < u64::from(2 * MOST)));
            assert!(Some(indices) != last, "round {round}");
            if is_listed {
                let listed = list.list(Some(TABLE), 0, 0x2000).unwrap();
                assert_eq!((listed.levels, listed.root), (1, TABLE + indices[0] * 8));
            }
            if is_given {
                list.give();
                last = Some(indices);
            }
        }
        // A block is not in the table.
        if round % 2 == 0 {
            list.begin(12);
            assert!(list.push(0x5000).is_ok());
            list.give();
        }
    }
    assert_eq!(PageList::table_bytes(MOST), 2 * MOST as usize * 8);
}

fn pages_whose_table_is_gone() {
    let scattered = filled(12, &[0x5000, 0x9000]);
    assert_eq!(scattered.list(None, 0, 1), None);
    assert!(filled(12, &[0x5000, 0x6000]).list(None, 0, 1).is_some());
}
