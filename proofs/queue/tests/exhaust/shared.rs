// SPDX-License-Identifier: GPL-2.0
//! Queue pairs that share receives: every interleaving of software, device and queue pairs that
//! complete their receives in any order, and are reset or destroyed at any time; and an SRQ that is
//! resized at any time.

#[path = "../shared/world.rs"]
mod world;

use super::search::explore;
use qpair_queue::index::Index;
use qpair_queue::mutant::activate;
use qpair_queue::mutant::Mutant;
use stateright::Model;
use stateright::Property;
use std::time::Instant;
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
struct Instance {
    capacity: u32,
    most: u32,
    pairs: usize,
    mutant: Option<Mutant>,
}

impl Model for Instance {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        activate(self.mutant);
        vec![World::new(
            self.capacity,
            self.most,
            self.pairs,
            Index::ZERO,
        )]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        activate(self.mutant);
        actions.extend(world.actions());
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        activate(self.mutant);
        let mut next = world.clone();
        next.act(action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        // Each violation is a property of its own, so that a wrong variant has to be found by the
        // one that it violates.
        let without: [(_, fn(&Instance, &World) -> bool); 6] = [
            (OVERWRITTEN, |_, world| world.wrong != Some(OVERWRITTEN)),
            (OVERRUN, |_, world| world.wrong != Some(OVERRUN)),
            (LOST, |_, world| world.wrong != Some(LOST)),
            (EVENT_LOST, |_, world| world.wrong != Some(EVENT_LOST)),
            (EVENT_TWICE, |_, world| world.wrong != Some(EVENT_TWICE)),
            (IMBALANCE, |_, world| world.wrong != Some(IMBALANCE)),
        ];
        let all = without.into_iter();
        all.map(|(name, holds)| Property::always(name, holds))
            .collect()
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
        let began = Instant::now();
        let instance = Instance {
            capacity,
            most,
            pairs,
            mutant: None,
        };
        match explore(instance, &ALL) {
            Ok(states) => println!(
                "states: SRQ of {capacity} to {most}, {pairs} queue pairs: {states} states, nothing \
                 wrong ({:.1} s)",
                began.elapsed().as_secs_f32()
            ),
            Err(found) => panic!("{instance:?}: {found:?}"),
        }
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
        let instance = Instance {
            capacity: 2,
            most,
            pairs: 2,
            mutant: Some(mutant),
        };
        match explore(instance, &[wanted]) {
            Ok(states) => panic!("{mutant:?} is not found in {states} states"),
            Err(found) => {
                let steps = found.iter().map(|(_, way)| way.len()).max();
                println!(
                    "{}: caught by interleavings ({wanted}, {} steps)",
                    mutant.what(),
                    steps.unwrap_or(0)
                );
            }
        }
    }
}
