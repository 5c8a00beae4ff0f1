// SPDX-License-Identifier: GPL-2.0
//! Every interleaving of a small instance of the event path.
//!
//! Two kernel CQs and the CQ of a process on one EQ, whose capacity is the least that the rules allow; the device may do
//! anything between any two steps of the poll, and the poll is the driver's own, step by step. In
//! every state that can be reached nothing may be broken, and from every state rest must be
//! reachable: all completions consumed, all events told, nobody asleep who has something to do.

#![allow(unreachable_pub)]

mod world;

use qpair_queue::mutant::activate;
use qpair_queue::mutant::Mutant;
use qpair_queue::poll::Policy;
use qpair_queue::poll::Tuning;
use std::collections::HashMap;
use std::panic::catch_unwind;
use std::panic::AssertUnwindSafe;
use world::Action;
use world::Instance;
use world::State;

/// States, and what is wrong with the first that is not as it should be, and how it came to be.
fn explore(instance: Instance, most: usize) -> Result<usize, String> {
    let mut seen: HashMap<State, u32> = HashMap::new();
    let mut states = vec![State::new(instance)];
    let mut from: Vec<(u32, Option<Action>)> = vec![(0, None)];
    let mut edges: Vec<(u32, u32)> = Vec::new();
    seen.insert(states[0].clone(), 0);
    let path = |from: &[(u32, Option<Action>)], mut at: u32| {
        let mut actions = Vec::new();
        while let (before, Some(action)) = from[at as usize] {
            actions.push(format!("{action:?}"));
            at = before;
        }
        actions.reverse();
        actions.join(" ")
    };
    let mut at = 0;
    while at < states.len() {
        assert!(states.len() <= most, "more than {most} states");
        for action in states[at].actions() {
            let next = catch_unwind(AssertUnwindSafe(|| states[at].next(instance, action)));
            let next = match next {
                Ok(next) => next,
                Err(panic) => {
                    let said = panic.downcast_ref::<String>().cloned();
                    let said = said.or(panic.downcast_ref::<&str>().map(|s| s.to_string()));
                    let said = said.unwrap_or_default();
                    return Err(format!(
                        "{said} after {} {action:?}",
                        path(&from, at as u32)
                    ));
                }
            };
            let new = states.len() as u32;
            let to = *seen.entry(next).or_insert_with_key(|next| {
                states.push(next.clone());
                from.push((at as u32, Some(action)));
                new
            });
            edges.push((to, at as u32));
        }
        at += 1;
    }
    // Back from rest.
    edges.sort_unstable();
    let mut reaches: Vec<bool> = states.iter().map(State::is_rest).collect();
    let mut front: Vec<u32> = (0..states.len() as u32)
        .filter(|i| reaches[*i as usize])
        .collect();
    if front.is_empty() {
        return Err("rest is nowhere".into());
    }
    while let Some(to) = front.pop() {
        let first = edges.partition_point(|edge| edge.0 < to);
        for edge in edges[first..].iter().take_while(|edge| edge.0 == to) {
            if !std::mem::replace(&mut reaches[edge.1 as usize], true) {
                front.push(edge.1);
            }
        }
    }
    match reaches.iter().position(|reaches| !reaches) {
        Some(stuck) => Err(format!("no rest after {}", path(&from, stuck as u32))),
        None => Ok(states.len()),
    }
}

const TUNING: Tuning = Tuning {
    events: 1,
    completions: 1,
    budget: 1,
    policy: Policy::Coalesce,
};

/// A kernel CQ, a process's CQ that is armed once more than it should, an asynchronous event.
const SMALL: Instance = Instance {
    kernel: 1,
    process: 1,
    unborn: 0,
    work: 1,
    asyncs: 1,
    destroys: 0,
    rearms: 1,
    spare: 0,
    reserve: 1,
    tuning: TUNING,
};

/// Kernel CQs only.
const KERNEL: Instance = Instance {
    kernel: 2,
    process: 0,
    work: 2,
    asyncs: 0,
    reserve: 0,
    ..SMALL
};

/// What is wrong with `instance` under `mutant`.
fn fault(mutant: Option<Mutant>, instance: Instance) -> Option<String> {
    activate(mutant);
    let result = explore(instance, 600_000);
    activate(None);
    let said = match &result {
        Ok(states) => format!("{states} states, nothing wrong"),
        Err(said) => said.clone(),
    };
    println!("{mutant:?} {instance:?}: {said}");
    result.err()
}

fn sound(instance: Instance) {
    assert_eq!(fault(None, instance), None);
}

#[test]
fn nothing_breaks_at_any_tuning() {
    for policy in [Policy::Coalesce, Policy::Reopen] {
        for events in 1..=3 {
            for completions in 1..=2 {
                for budget in [1, 2] {
                    sound(Instance {
                        tuning: Tuning {
                            events,
                            completions,
                            budget,
                            policy,
                        },
                        ..SMALL
                    });
                }
            }
        }
    }
}

#[test]
fn nothing_breaks_with_more_work() {
    sound(Instance { work: 2, ..SMALL });
    sound(Instance { asyncs: 2, ..SMALL });
}

#[test]
fn nothing_breaks_with_three_cqs() {
    let three = Instance { kernel: 2, ..SMALL };
    let events = 3;
    sound(three);
    sound(Instance {
        tuning: Tuning {
            events,
            budget: 3,
            ..TUNING
        },
        ..three
    });
}

#[test]
fn nothing_breaks_when_numbers_are_used_again() {
    for (kernel, process, unborn) in [(1, 1, 0), (2, 0, 1), (0, 1, 1)] {
        sound(Instance {
            kernel,
            process,
            unborn,
            destroys: 1,
            ..KERNEL
        });
    }
}

/// The source's own loop counts no slots: it reopens n channels, then publishes the head once.
#[test]
fn the_source_loop_needs_cqs_plus_n_slots() {
    for events in 1..=3 {
        let tuning = Tuning {
            events,
            budget: 8,
            policy: Policy::Reopen,
            ..TUNING
        };
        let cqs = if events == 3 { 3 } else { 2 };
        let work = if events == 3 { 2 } else { 3 };
        let instance = |spare| Instance {
            kernel: cqs,
            work,
            spare,
            tuning,
            ..KERNEL
        };
        let uncounted = Some(Mutant::ArmWithoutSlot);
        assert_eq!(fault(uncounted, instance(events)), None, "N + n suffices");
        let said = fault(uncounted, instance(events - 1)).expect("N + n - 1 does not");
        assert!(said.contains("EQ overflow"), "{said}");
        // The same loop, with slots that are counted, needs no more than one for each CQ.
        sound(instance(0));
    }
}

#[test]
fn faults_are_found() {
    let destroy = Instance {
        destroys: 1,
        unborn: 1,
        ..KERNEL
    };
    let process = Instance {
        work: 2,
        asyncs: 0,
        ..SMALL
    };
    let asynchronous = Instance { asyncs: 2, ..SMALL };
    let eager = Instance {
        tuning: Tuning {
            events: 3,
            budget: 8,
            ..TUNING
        },
        ..KERNEL
    };
    for (mutant, instance, what) in [
        (Mutant::LimboTooEarly, destroy, "EQ overflow"),
        (Mutant::ArmWithoutSlot, eager, "EQ overflow"),
        (Mutant::SlotFreeAtEvent, eager, "EQ overflow"),
        (Mutant::ArmWithoutCheck, KERNEL, "no rest"),
        (Mutant::PendingForgotten, KERNEL, "no rest"),
        (Mutant::LeaveMasked, KERNEL, "no rest"),
        (Mutant::UnmaskNotChecked, KERNEL, "no rest"),
        (Mutant::RaiseWithoutMask, KERNEL, "raised while masked"),
        (Mutant::RoundEndNotPublished, KERNEL, "unpublished"),
        (Mutant::SecondUserEvent, process, "second event"),
        (Mutant::ForgottenArm, process, "no rest"),
        (Mutant::AsyncRepeatLost, asynchronous, "no rest"),
    ] {
        let said = fault(Some(mutant), instance).unwrap_or_else(|| panic!("{mutant:?} missed"));
        assert!(said.contains(what), "{mutant:?}: {said}");
    }
}
