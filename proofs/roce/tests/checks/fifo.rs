// SPDX-License-Identifier: GPL-2.0
//! A `Fifo` has the elements of a `VecDeque` after the same operations.

use super::checks;
use super::prop::holds;
use proptest::collection::vec;
use proptest::prelude::any;
use qpair_roce::fifo::Fifo;
use std::collections::VecDeque;

checks![elements_are_those_of_a_deque];

/// Changes both.
fn set(both: [Option<&mut u8>; 2], element: u8) {
    both.into_iter().flatten().for_each(|it| *it = element);
}

fn elements_are_those_of_a_deque() {
    const ROOM: usize = 3;
    holds(300, vec(any::<(u8, u8)>(), 0..40), |steps| {
        let (mut fifo, mut deque) = (Fifo::<u8, ROOM>::new(), VecDeque::new());
        for (step, element) in steps {
            match step % 16 {
                0..8 => {
                    let room = deque.len() < ROOM;
                    assert_eq!(fifo.push(element), room);
                    deque.extend(room.then_some(element));
                }
                8..11 => assert_eq!(fifo.pop(), deque.pop_front()),
                11 => {
                    fifo.clear();
                    deque.clear();
                }
                12 => {
                    fifo.retain(|it| it % 2 == 0);
                    deque.retain(|it| it % 2 == 0);
                }
                13 => set([fifo.newest_mut(), deque.back_mut()], element),
                _ => set([fifo.get_mut(1), deque.get_mut(1)], element),
            }
            assert!(fifo.iter().eq(&deque));
            assert_eq!(
                (fifo.len(), fifo.is_empty()),
                (deque.len(), deque.is_empty())
            );
            assert_eq!(fifo.is_full(), deque.len() == ROOM);
            for nth in 0..2 * ROOM {
                assert_eq!(fifo.get(nth), deque.get(nth));
                assert_eq!(fifo.get_mut(nth), deque.get_mut(nth));
            }
        }
    });
}
