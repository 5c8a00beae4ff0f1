// SPDX-License-Identifier: GPL-2.0
//! Queue pairs that share receives: every interleaving of software, device and queue pairs that
//! complete their receives in any order, and are reset or destroyed at any time; and an SRQ that is
//! resized at any time.

#[path = "../shared/world.rs"]
mod world;

use super::search::holds;
use super::search::is_found;
use super::search::Instance;
use qpair_queue::index::Index;
use qpair_queue::mutant::Mutant;
use world::Action;
use world::World;
use world::EVENT_LOST;
use world::EVENT_TWICE;
use world::IMBALANCE;
use world::LOST;
use world::OVERRUN;
use world::OVERWRITTEN;

const ALL: [&str; 6] = [
    OVERWRITTEN,
    OVERRUN,
    LOST,
    EVENT_LOST,
    EVENT_TWICE,
    IMBALANCE,
];

#[derive(Clone, Copy, Debug)]
struct Shared {
    capacity: u32,
    most: u32,
    pairs: usize,
    mutant: Option<Mutant>,
}

impl Instance for Shared {
    world_acts!();

    fn first(&self) -> World {
        World::new(self.capacity, self.most, self.pairs, Index::ZERO)
    }

    fn violates(&self, world: &World, rule: &'static str) -> bool {
        world.wrong == Some(rule)
    }
}

#[test]
fn shared_receives_are_neither_lost_nor_overwritten() {
    for (capacity, most, pairs) in [
        (1, 1, 1),
        (1, 1, 2),
        (2, 2, 1),
        (2, 2, 2),
        (3, 3, 2),
        (2, 2, 3),
        (4, 4, 1),
        (1, 3, 1),
        (2, 3, 2),
    ] {
        let name = format!("SRQ of {capacity} to {most}, {pairs} queue pairs");
        let instance = Shared {
            capacity,
            most,
            pairs,
            mutant: None,
        };
        holds(name, instance, &ALL);
    }
}

#[test]
fn wrong_shared_receives_are_found() {
    for (mutant, most, wanted) in [
        (Mutant::SharedFreesAll, 2, OVERRUN),
        (Mutant::NotGivenBack, 2, LOST),
        (Mutant::LimitAtTakeOnly, 2, EVENT_LOST),
        (Mutant::LimitStaysArmed, 2, EVENT_TWICE),
        (Mutant::ResizeBelowFlight, 3, IMBALANCE),
        (Mutant::ResizeCopiesNothing, 3, OVERWRITTEN),
        (Mutant::ResizeKeepsPlaces, 3, OVERWRITTEN),
    ] {
        let instance = Shared {
            capacity: 2,
            most,
            pairs: 2,
            mutant: Some(mutant),
        };
        is_found(mutant.what(), instance, wanted);
    }
}
