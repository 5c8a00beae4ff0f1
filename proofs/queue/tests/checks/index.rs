// SPDX-License-Identifier: GPL-2.0
//! Indices, compared with 64-bit ones, which do not wrap.

use super::checks;
use super::prop::holds;
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::prop_oneof;
use proptest::strategy::Strategy;
use qpair_model::rules::window::Place;
use qpair_model::rules::window::Window;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;

checks![
    depths_are_powers_of_two,
    owner_bit_flips_each_pass,
    the_first_pass_owns_with_one,
    places_are_those_of_unwrapped_indices,
    windows_move_as_unwrapped_ones_do,
];

const LAP: u64 = 1 << 32;

/// Indices at every boundary of 32 bits, and random ones.
fn somewhere() -> impl Strategy<Value = u64> {
    let near = |at: u64| (at.saturating_sub(40)..at + 40).boxed();
    prop_oneof![
        0..100u64,
        near(1 << 31),
        near(LAP),
        near(LAP + (1 << 31)),
        near(2 * LAP),
        0..4 * LAP
    ]
}

fn depth() -> impl Strategy<Value = Depth> {
    prop_oneof![0..6u8, 0..32u8].prop_map(|log2| Depth::from_log2(log2).unwrap())
}

fn narrow(index: u64) -> Index {
    Index::new(index as u32)
}

fn depths_are_powers_of_two() {
    assert!(Depth::from_log2(32).is_none() && Depth::new(0).is_none());
    assert_eq!(Depth::from_log2(31), Some(Depth::MAX));
    assert!(Depth::at_least((1 << 31) + 1).is_none());
    for log2 in 0..32u8 {
        let depth = Depth::from_log2(log2).unwrap();
        assert_eq!(depth.entries(), 1 << log2);
        assert_eq!(Depth::new(1 << log2), Some(depth));
        assert_eq!(Depth::at_least(1 << log2), Some(depth));
        if log2 > 1 {
            assert!(Depth::new((1 << log2) - 1).is_none());
            assert_eq!(Depth::at_least((1 << log2) - 1), Some(depth));
        }
    }
    assert_eq!(Depth::at_least(0).map(Depth::entries), Some(1));
}

fn owner_bit_flips_each_pass() {
    holds(2000, (depth(), somewhere()), |(depth, at)| {
        let entries = u64::from(depth.entries());
        let index = narrow(at);
        let owner = (at / entries) % 2 == 0;
        assert_eq!(depth.owner(index), owner);
        assert!(depth.is_valid(owner, index) && !depth.is_valid(!owner, index));
        assert_eq!(u64::from(depth.position(index)), at % entries);
        assert_ne!(depth.owner(narrow(at + entries)), owner);
    });
}

fn the_first_pass_owns_with_one() {
    for log2 in 0..32 {
        let depth = Depth::from_log2(log2).unwrap();
        assert!(depth.owner(Index::ZERO), "zeroed memory holds no entry");
        assert!(depth.owner(Index::new(depth.entries() - 1)));
        assert!(!depth.owner(Index::new(depth.entries())));
    }
}

/// A window: head, used, depth.
fn window() -> impl Strategy<Value = (Depth, u64, u64)> {
    (depth(), somewhere(), any::<u64>()).prop_map(|(depth, head, used)| {
        let entries = u64::from(depth.entries());
        // Often full or empty.
        let used = match used % 4 {
            0 => 0,
            1 => entries,
            _ => used % (entries + 1),
        };
        (depth, head + LAP, used)
    })
}

fn filled(depth: Depth, head: u64, used: u64) -> Window {
    let mut window = Window::new(depth, narrow(head));
    let came = window.advance_tail(narrow(head + used));
    assert_eq!(came, Some(used as u32));
    window
}

fn places_are_those_of_unwrapped_indices() {
    let far = prop_oneof![-3..3i64, -(1i64 << 31)..(1i64 << 31)];
    holds(
        4000,
        (window(), any::<bool>(), far),
        |((depth, head, used), end, delta)| {
            let at = (if end { head + used } else { head })
                .checked_add_signed(delta)
                .unwrap();
            let place = filled(depth, head, used).place(narrow(at));
            if (head..=head + used).contains(&at) {
                assert_eq!(place, Place::Within((at - head) as u32));
            } else if at < head && head - at < 1 << 31 {
                // A distance of exactly 2^31 is ambiguous when the ring is that deep.
                assert_eq!(place, Place::Behind);
            } else if at > head + used && at - head < 1 << 31 {
                assert_eq!(place, Place::Beyond);
            }
        },
    );
}

fn windows_move_as_unwrapped_ones_do() {
    let moves = vec((0..3u8, -4..6i64), 1..60);
    let shallow = (0..4u8).prop_map(|log2| Depth::from_log2(log2).unwrap());
    holds(
        1500,
        (shallow, somewhere(), moves),
        |(depth, start, moves)| {
            let (mut head, mut tail) = (start + LAP, start + LAP);
            let mut window = Window::new(depth, narrow(head));
            let entries = u64::from(depth.entries());
            for (kind, delta) in moves {
                match kind {
                    0 => {
                        let pushed = window.push();
                        assert_eq!(pushed, (tail - head < entries).then_some(narrow(tail)));
                        tail += u64::from(pushed.is_some());
                    }
                    1 => {
                        let to = tail.checked_add_signed(delta).unwrap();
                        let legal = to >= tail && to - head <= entries;
                        let came = window.advance_tail(narrow(to));
                        assert_eq!(came, legal.then(|| (to - tail) as u32));
                        tail = if legal { to } else { tail };
                    }
                    _ => {
                        let to = head.checked_add_signed(delta).unwrap();
                        let place = window.advance_head(narrow(to));
                        assert_eq!(place == Place::Behind, to < head);
                        assert_eq!(place == Place::Beyond, to > tail);
                        head = if (head..=tail).contains(&to) {
                            to
                        } else {
                            head
                        };
                    }
                }
                assert_eq!((window.head(), window.tail()), (narrow(head), narrow(tail)));
                assert_eq!(u64::from(window.used()), tail - head);
                assert_eq!(window.is_full(), tail - head == entries);
                assert_eq!(window.is_empty(), tail == head);
            }
        },
    );
}
