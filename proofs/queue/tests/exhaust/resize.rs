// SPDX-License-Identifier: GPL-2.0
//! A CQ that is resized: every interleaving of completions, polls, heads, arms and notifies with
//! resizes, up and down.

#[path = "../resize/world.rs"]
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
use world::ASLEEP;
use world::INVENTED;
use world::LOST;
use world::PASSED;
use world::SMALL;

const ALL: [&str; 5] = [LOST, INVENTED, ASLEEP, PASSED, SMALL];

#[derive(Clone, Copy, Debug)]
struct Instance {
    /// log2 of the first ring's entries, and of the largest ring's.
    first: u8,
    most: u8,
    mutant: Option<Mutant>,
}

impl Model for Instance {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        activate(self.mutant);
        vec![World::new(self.first, self.most, Index::ZERO)]
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
        let without: [(_, fn(&Instance, &World) -> bool); 5] = [
            (LOST, |_, world| world.wrong != Some(LOST)),
            (INVENTED, |_, world| world.wrong != Some(INVENTED)),
            (ASLEEP, |_, world| world.wrong != Some(ASLEEP)),
            (PASSED, |_, world| world.wrong != Some(PASSED)),
            (SMALL, |_, world| world.wrong != Some(SMALL)),
        ];
        let all = without.into_iter();
        all.map(|(name, holds)| Property::always(name, holds))
            .collect()
    }
}

#[test]
fn a_resize_loses_and_doubles_nothing() {
    for (first, most) in [(0, 0), (0, 1), (1, 1)] {
        let began = Instant::now();
        let instance = Instance {
            first,
            most,
            mutant: None,
        };
        match explore(instance, &ALL) {
            Ok(states) => println!(
                "states: a CQ of {}, resized to at most {}: {states} states, nothing wrong ({:.1} s)",
                1 << first,
                1 << most,
                began.elapsed().as_secs_f32()
            ),
            Err(found) => panic!("{instance:?}: {found:?}"),
        }
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
        let instance = Instance {
            first: 1,
            most: 1,
            mutant: Some(mutant),
        };
        match explore(instance, &[wanted]) {
            Ok(states) => panic!("{mutant:?} is not found in {states} states"),
            Err(found) => println!(
                "{}: caught by interleavings ({wanted}, {} steps)",
                mutant.what(),
                found.iter().map(|(_, way)| way.len()).max().unwrap_or(0)
            ),
        }
    }
}
