// SPDX-License-Identifier: GPL-2.0
//! Searches the states of a small instance, breadth-first.

use stateright::Checker;
use stateright::HasDiscoveries;
use stateright::Model;
use stateright::Property;
use std::fmt::Debug;
use std::fmt::Display;
use std::hash::Hash;
use std::time::Instant;

/// A small instance: its first world, and the actions in each.
pub trait Instance: Clone + Debug + Send + Sync + 'static {
    type World: Clone + Debug + PartialEq + Hash + Send + Sync + 'static;
    type Action: Clone + Debug + PartialEq + Send + Sync + 'static;

    /// Makes this thread run the wrong variant of the instance, or the right one.
    fn activate(&self);

    fn first(&self) -> Self::World;

    fn actions(&self, world: &Self::World, actions: &mut Vec<Self::Action>);

    /// Performs an action; whether anything happened.
    fn act(&self, world: &mut Self::World, action: Self::Action) -> bool;

    fn violates(&self, world: &Self::World, rule: &'static str) -> bool;
}

/// What the instances share whose worlds know their actions: `mutant` is the wrong variant.
macro_rules! world_acts {
    () => {
        type World = World;
        type Action = Action;

        fn activate(&self) {
            qpair_queue::mutant::activate(self.mutant);
        }

        fn actions(&self, world: &World, actions: &mut Vec<Action>) {
            actions.extend(world.actions());
        }

        fn act(&self, world: &mut World, action: Action) -> bool {
            world.act(action);
            true
        }
    };
}

/// An instance, and the rules that each of its worlds has to keep.
struct Search<I> {
    instance: I,
    rules: Vec<&'static str>,
}

impl<I: Instance> Search<I> {
    /// The first of the rules that a world violates.
    fn violated(&self, world: &I::World) -> Option<&'static str> {
        self.instance.activate();
        let mut rules = self.rules.iter().copied();
        rules.find(|rule| self.instance.violates(world, rule))
    }
}

impl<I: Instance> Model for Search<I> {
    type State = I::World;
    type Action = I::Action;

    fn init_states(&self) -> Vec<I::World> {
        self.instance.activate();
        vec![self.instance.first()]
    }

    fn actions(&self, world: &I::World, actions: &mut Vec<I::Action>) {
        self.instance.activate();
        self.instance.actions(world, actions);
    }

    fn next_state(&self, world: &I::World, action: I::Action) -> Option<I::World> {
        self.instance.activate();
        let mut next = world.clone();
        self.instance.act(&mut next, action).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(
            "the rules hold",
            |search: &Self, world| search.violated(world).is_none(),
        )]
    }
}

/// Explores all states, or as far as the first violation of a rule: returns the number of states, or
/// the rule and the actions that lead there.
fn explore<I: Instance>(
    instance: I,
    rules: &[&'static str],
) -> Result<usize, (Option<&'static str>, Vec<I::Action>)> {
    let search = Search {
        instance,
        rules: rules.to_vec(),
    };
    let checker = search
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    match checker.discoveries().into_values().next() {
        None => Ok(checker.unique_state_count()),
        Some(path) => Err((
            checker.model().violated(path.last_state()),
            path.into_actions(),
        )),
    }
}

/// Requires that no state of the instance violates a rule.
pub fn holds<I: Instance>(name: impl Display, instance: I, rules: &[&'static str]) {
    let began = Instant::now();
    match explore(instance.clone(), rules) {
        Ok(states) => println!(
            "states: {name}: {states} states, nothing wrong ({:.1} s)",
            began.elapsed().as_secs_f32()
        ),
        Err(found) => panic!("{name}: {instance:?}: {found:?}"),
    }
}

/// Requires that a state of a wrong instance violates this rule. A state that violates another one
/// does not count: each variant is to be found by the rule that it breaks.
pub fn is_found<I: Instance>(name: &str, instance: I, rule: &'static str) {
    match explore(instance.clone(), &[rule]) {
        Ok(states) => panic!("{name}: {instance:?}: not found in {states} states"),
        Err((_, actions)) => println!(
            "{name}: caught by interleavings ({rule}, {} steps)",
            actions.len()
        ),
    }
}
