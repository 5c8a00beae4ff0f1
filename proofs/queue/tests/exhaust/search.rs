// SPDX-License-Identifier: GPL-2.0
//! Searches the states of a small instance, breadth-first.

use stateright::Checker;
use stateright::HasDiscoveries;
use stateright::Model;
use std::hash::Hash;

/// The properties that are violated, and a way to each.
pub type Ways<A> = Vec<(&'static str, Vec<A>)>;

/// Explores all states, or as far as the first violation of those that are `wanted`: returns the
/// number of states, or the violations and the paths to them.
pub fn explore<M>(instance: M, wanted: &[&'static str]) -> Result<usize, Ways<M::Action>>
where
    M: Model + Send + Sync + 'static,
    M::State: Hash + Send + Sync + 'static,
{
    let finish = HasDiscoveries::AnyOf(wanted.iter().copied().collect());
    let checker = instance
        .checker()
        .threads(2)
        .finish_when(finish)
        .spawn_bfs()
        .join();
    let found = checker.discoveries().into_iter();
    let found: Ways<M::Action> = found
        .filter(|(name, _)| wanted.contains(name))
        .map(|(name, path)| (name, path.into_actions()))
        .collect();
    match found.is_empty() {
        true => Ok(checker.unique_state_count()),
        false => Err(found),
    }
}
