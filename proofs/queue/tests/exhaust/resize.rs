// SPDX-License-Identifier: GPL-2.0
//! A CQ that is resized: every interleaving of completions, polls, heads, arms and notifies with
//! resizes, up and down.

#[path = "../resize/world.rs"]
mod world;

use super::search::holds;
use super::search::is_found;
use super::search::Instance;
use qpair_queue::index::Index;
use qpair_queue::mutant::Mutant;
use world::Action;
use world::World;
use world::ASLEEP;
use world::INVENTED;
use world::LOST;
use world::PASSED;
use world::SMALL;

const ALL: [&str; 5] = [LOST, INVENTED, ASLEEP, PASSED, SMALL];

#[derive(Clone, Copy, Debug)]
struct Resized {
    /// log2 of the first ring's entries, and of the largest ring's.
    first: u8,
    most: u8,
    mutant: Option<Mutant>,
}

impl Instance for Resized {
    world_acts!();

    fn first(&self) -> World {
        World::new(self.first, self.most, Index::ZERO)
    }

    fn violates(&self, world: &World, rule: &'static str) -> bool {
        world.wrong == Some(rule)
    }
}

#[test]
fn a_resize_loses_and_doubles_nothing() {
    for (first, most) in [(0, 0), (0, 1), (1, 1)] {
        let name = format!("a CQ of {}, resized to at most {}", 1 << first, 1 << most);
        let instance = Resized {
            first,
            most,
            mutant: None,
        };
        holds(name, instance, &ALL);
    }
}

#[test]
fn wrong_resizes_are_found() {
    for (mutant, wanted) in [
        (Mutant::ResizeKeepsIndex, INVENTED),
        (Mutant::ResizeBelowUnread, SMALL),
        (Mutant::ResizeReadsAll, PASSED),
        (Mutant::SwitchEarly, LOST),
        (Mutant::OldNotifyWaits, ASLEEP),
    ] {
        let instance = Resized {
            first: 1,
            most: 1,
            mutant: Some(mutant),
        };
        is_found(mutant.what(), instance, wanted);
    }
}
