// SPDX-License-Identifier: GPL-2.0
//! A channel and software: every interleaving of their steps, and every order in which stores
//! become visible.

#[path = "../ladder/world.rs"]
mod world;

use super::search::holds;
use super::search::is_found;
use super::search::Instance;
use qpair_queue::index::Index;
use qpair_queue::mutant::Mutant;
use world::Action;
use world::Rung;
use world::World;
use world::COMPLETE;
use world::NOT_DONE;
use world::NOT_WHOLE;
use world::ORDER;
use world::OVERWRITTEN;

const STUCK: &str = "no descriptor comes back";
const LOST: &str = "a descriptor is lost";

#[derive(Clone, Copy, Debug)]
struct Ladder {
    rung: Rung,
    entries: u32,
    capacity: u32,
    mutant: Option<Mutant>,
}

const ALL: [&str; 7] = [
    OVERWRITTEN,
    NOT_WHOLE,
    COMPLETE,
    NOT_DONE,
    ORDER,
    STUCK,
    LOST,
];

impl Instance for Ladder {
    world_acts!();

    fn first(&self) -> World {
        World::new(self.rung, self.entries, self.capacity, Index::ZERO)
    }

    fn violates(&self, world: &World, rule: &'static str) -> bool {
        match rule {
            STUCK => world.is_stuck(),
            LOST => !world.is_whole(),
            _ => world.wrong == Some(rule),
        }
    }
}

#[test]
fn rings_of_descriptors_neither_overflow_nor_stop() {
    for (rung, entries) in [
        (Rung::Chain, 1),
        (Rung::Chain, 2),
        (Rung::Chain, 4),
        (Rung::Transmit, 2),
        (Rung::Transmit, 4),
        (Rung::Receive, 2),
        (Rung::Receive, 4),
    ] {
        for capacity in 1..=World::most(rung, entries) {
            let name = format!("{rung:?}, {capacity} of {entries} descriptors");
            let instance = Ladder {
                rung,
                entries,
                capacity,
                mutant: None,
            };
            holds(name, instance, &ALL);
        }
    }
}

#[test]
fn wrong_rings_of_descriptors_are_found() {
    use Rung::Chain;
    use Rung::Receive;
    use Rung::Transmit;
    for (mutant, rung, violations) in [
        (Mutant::ChainOneMore, Chain, &[OVERWRITTEN] as &[_]),
        (Mutant::ChainTailEarly, Chain, &[NOT_WHOLE]),
        (Mutant::StatusClearedLate, Chain, &[COMPLETE]),
        (Mutant::StatusKept, Chain, &[COMPLETE, NOT_DONE]),
        (Mutant::RingOneMore, Transmit, &[STUCK]),
        (Mutant::RingOneMore, Receive, &[STUCK]),
        (Mutant::RingTailEarly, Transmit, &[NOT_WHOLE]),
        (Mutant::RingTailEarly, Receive, &[NOT_WHOLE]),
        (Mutant::RingDoneBefore, Receive, &[NOT_DONE]),
        (Mutant::RingDoneBefore, Transmit, &[NOT_DONE]),
        (Mutant::EmptyIsFull, Transmit, &[NOT_WHOLE]),
        (Mutant::EmptyIsFull, Receive, &[NOT_WHOLE]),
        (Mutant::ReportForgotten, Transmit, &[STUCK]),
    ] {
        let instance = Ladder {
            rung,
            entries: 2,
            capacity: World::most(rung, 2),
            mutant: Some(mutant),
        };
        for wanted in violations {
            is_found(mutant.what(), instance, wanted);
        }
    }
}
