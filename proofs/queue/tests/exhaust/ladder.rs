// SPDX-License-Identifier: GPL-2.0
//! A channel and software: every interleaving of their steps, and every order in which stores
//! become visible.

#[path = "../ladder/world.rs"]
mod world;

use qpair_queue::index::Index;
use qpair_queue::mutant::activate;
use qpair_queue::mutant::Mutant;
use stateright::Checker;
use stateright::HasDiscoveries;
use stateright::Model;
use stateright::Property;
use std::time::Instant;
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
struct Instance {
    rung: Rung,
    entries: u32,
    capacity: u32,
    mutant: Option<Mutant>,
}

/// Each violation is a property of its own, so that a wrong variant has to be found by the one that
/// it violates.
const WRONG: [&str; 5] = [OVERWRITTEN, NOT_WHOLE, COMPLETE, NOT_DONE, ORDER];

fn without(name: &'static str) -> Property<Instance> {
    let holds: fn(&Instance, &World) -> bool = match name {
        OVERWRITTEN => |_, world| world.wrong != Some(OVERWRITTEN),
        NOT_WHOLE => |_, world| world.wrong != Some(NOT_WHOLE),
        COMPLETE => |_, world| world.wrong != Some(COMPLETE),
        NOT_DONE => |_, world| world.wrong != Some(NOT_DONE),
        ORDER => |_, world| world.wrong != Some(ORDER),
        _ => unreachable!("not a violation"),
    };
    Property::always(name, holds)
}

impl Model for Instance {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        activate(self.mutant);
        vec![World::new(
            self.rung,
            self.entries,
            self.capacity,
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
        let mut all: Vec<_> = WRONG.into_iter().map(without).collect();
        all.push(Property::always(STUCK, |model: &Self, world: &World| {
            activate(model.mutant);
            !world.is_stuck()
        }));
        all.push(Property::always(LOST, |_, world: &World| world.is_whole()));
        all
    }
}

/// Explores all states: returns their number, or the violations.
fn explore(instance: Instance) -> Result<usize, Vec<(&'static str, usize)>> {
    let finish = match instance.mutant {
        Some(_) => HasDiscoveries::All,
        None => HasDiscoveries::Any,
    };
    let checker = instance
        .checker()
        .threads(2)
        .finish_when(finish)
        .spawn_bfs()
        .join();
    let found = checker.discoveries().into_iter();
    let found: Vec<_> = found
        .map(|(name, path)| (name, path.into_actions().len()))
        .collect();
    match found.is_empty() {
        true => Ok(checker.unique_state_count()),
        false => Err(found),
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
            let began = Instant::now();
            let instance = Instance {
                rung,
                entries,
                capacity,
                mutant: None,
            };
            match explore(instance) {
                Ok(states) => println!(
                    "states: {rung:?}, {capacity} of {entries} descriptors: {states} states, \
                     nothing wrong ({:.1} s)",
                    began.elapsed().as_secs_f32()
                ),
                Err(found) => panic!("{instance:?}: {found:?}"),
            }
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
        let instance = Instance {
            rung,
            entries: 2,
            capacity: World::most(rung, 2),
            mutant: Some(mutant),
        };
        let found = match explore(instance) {
            Ok(states) => panic!("{mutant:?} is not found in {states} states"),
            Err(found) => found,
        };
        for wanted in violations {
            let steps = found.iter().find(|(name, _)| name == wanted);
            let (_, steps) = steps.unwrap_or_else(|| panic!("{mutant:?}: only {found:?}"));
            println!(
                "{}: caught by interleavings ({wanted}, {steps} steps)",
                mutant.what()
            );
        }
    }
}
