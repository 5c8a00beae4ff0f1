// SPDX-License-Identifier: GPL-2.0
//! The life of a device: every order of resets, suspends, errors of the link, failures and looks of
//! the watchdog, step by step, through three epochs.

#[path = "../lifecycle/world.rs"]
mod world;

use super::search::explore;
use qpair_queue::mutant::activate;
use qpair_queue::mutant::Mutant;
use stateright::Model;
use stateright::Property;
use std::time::Instant;
use world::*;

const HANGS: &str = "a device that has failed is never reset";

#[derive(Clone, Copy, Debug)]
struct Instance(Option<Mutant>);

/// Each violation is a property of its own, so that a wrong variant has to be found by the one that
/// it violates.
macro_rules! without {
    ($($wrong:ident)*) => {
        [$(Property::always($wrong, |_: &Instance, world: &World| world.wrong != Some($wrong))),*]
    };
}

const ALL: [&str; 18] = [
    ACCESSED, FREED, FLUSHED, RELEASED, WAITS, UNCUT, EARLY, TWICE, UNTOLD, SLEPT, STUCK, EPOCH,
    BLAMED, FORGOTTEN, LEAKED, OVERLAP, UNENDED, HANGS,
];

impl Model for Instance {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        activate(self.0);
        vec![World::new()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        activate(self.0);
        actions.extend(world.actions());
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        activate(self.0);
        let mut next = world.clone();
        next.act(action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = Vec::from(without!(
            ACCESSED FREED FLUSHED RELEASED WAITS UNCUT EARLY TWICE UNTOLD SLEPT STUCK EPOCH BLAMED
            FORGOTTEN LEAKED OVERLAP UNENDED
        ));
        all.push(Property::always(HANGS, |model: &Self, world: &World| {
            activate(model.0);
            world.recovers()
        }));
        all
    }
}

#[test]
fn every_order_of_events_is_right() {
    let began = Instant::now();
    match explore(Instance(None), &ALL) {
        Ok(states) => println!(
            "states: the life of a device: {states} states, nothing wrong ({:.1} s)",
            began.elapsed().as_secs_f32()
        ),
        Err(found) => panic!("{found:?}"),
    }
}

#[test]
fn wrong_lives_are_found() {
    for (mutant, wanted) in [
        (Mutant::FreedUnquiet, FREED),
        (Mutant::FlushedUnquiet, FLUSHED),
        (Mutant::FlushedUncut, UNCUT),
        (Mutant::ToldUnquiet, EARLY),
        (Mutant::ToldTwice, TWICE),
        (Mutant::AccessedAsleep, ACCESSED),
        (Mutant::SleptUnquiet, SLEPT),
        (Mutant::UpThoughFailed, FORGOTTEN),
        (Mutant::OldFailure, BLAMED),
        (Mutant::EpochKept, EPOCH),
        (Mutant::KeptForgotten, LEAKED),
        (Mutant::ClosedOverCommands, STUCK),
        (Mutant::TwoTasks, OVERLAP),
        (Mutant::WaitersForgotten, WAITS),
        (Mutant::QuietTooEarly, RELEASED),
        (Mutant::SilentLoss, UNTOLD),
        (Mutant::FatalForEver, HANGS),
    ] {
        match explore(Instance(Some(mutant)), &[wanted]) {
            Ok(states) => panic!("{mutant:?} is not found in {states} states"),
            Err(found) => println!(
                "{}: caught by interleavings ({wanted}, {} steps)",
                mutant.what(),
                found.iter().map(|(_, way)| way.len()).max().unwrap_or(0)
            ),
        }
    }
}
