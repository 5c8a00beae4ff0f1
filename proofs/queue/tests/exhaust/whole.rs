// SPDX-License-Identifier: GPL-2.0
//! All actions at once, which [`State::hasten`] makes small enough; the proof that this hides
//! nothing; and the removal of a CQ by the driver.

use super::found;
use super::found_as;
use super::model::EVENTS;
use super::model::PROMISES;
use super::model::SCENES;
use super::model::TAKEN;
use super::model::WAKE_UPS;
use super::shown;
use super::state::Instance;
use super::state::State;
use super::tuning;
use super::with_each;
use super::world::Wrong;
use super::CQS_GO;
use super::ONE;
use super::PAIRS_GO;
use super::PROCESS;
use super::REOPEN;
use super::SOME;
use super::TWO;
use qpair_queue::mutant::activate;
use qpair_queue::mutant::Mutant;
use qpair_queue::poll::Tuning;
use std::collections::HashSet;

/// A CQ that never drains and whose queue pair is destroyed with CQEs unread and created again; a
/// process's CQ with a deferred arm, destroyed and created again with its number; an asynchronous
/// source.
const TWO_CQS: Instance = Instance {
    sources: 1,
    reserve: 1,
    cqs_go: 0b10,
    pairs_go: 1,
    places: 2,
    ..PROCESS
};

/// The same, and another CQ of the kernel.
const THREE_CQS: Instance = Instance {
    kernel: 2,
    cqs_go: 0b100,
    coarse: true,
    ..TWO_CQS
};

/// The CQ that never drains has two slots, so that a turn of two takes two.
const DEEP: Instance = Instance {
    more: 1,
    tunings: &[tuning(1, 2, 3)],
    ..THREE_CQS
};

/// n up to 3, k up to 2, with a budget that does not limit them.
const MOST: &[Tuning] = &[tuning(1, 1, 1), tuning(2, 1, 2), tuning(3, 2, 4)];

/// The driver removes CQs from its table, destroys their queue pairs, reads the remaining entries,
/// and destroys the CQs; they are created again, with their number or a third.
const TAKES: Instance = Instance {
    kernel: 2,
    process: 0,
    takes: true,
    coarse: true,
    ..CQS_GO
};

#[test]
fn all_of_it_at_once() {
    shown("all of it at once, two CQs", SCENES, [TWO_CQS]);
    shown(
        "all of it at once, three CQs, n 1 to 3, k 1 to 2",
        SCENES,
        with_each(MOST, THREE_CQS),
    );
    shown("the same, one of two slots", SCENES, [DEEP]);
}

/// A wrong variant that a small instance detects is also detected by the full one.
#[test]
fn faults_are_found_among_all_of_it() {
    for (mutant, property, what) in [
        (Mutant::FreeBeforePublish, PROMISES, "CQ overflow"),
        (Mutant::SecondUserEvent, PROMISES, "second event"),
        (Mutant::RoundEndNotPublished, PROMISES, "unpublished"),
        (Mutant::AsyncRepeatLost, EVENTS, EVENTS),
        (Mutant::ForgottenArm, WAKE_UPS, WAKE_UPS),
        (Mutant::ArmWithoutCheck, WAKE_UPS, WAKE_UPS),
    ] {
        found(mutant, THREE_CQS, property, what);
    }
}

#[test]
fn cqs_are_taken_out_before_they_are_destroyed() {
    let process = Instance {
        kernel: 1,
        process: 1,
        ..TAKES
    };
    shown("CQs are taken out, then destroyed", TAKEN, [TAKES]);
    shown("the same beside a process's", TAKEN, [process]);
    let wrong = Instance {
        wrong: Some(Wrong::Taken),
        ..TAKES
    };
    let name = "the slot of a CQ is free when it is taken out";
    found_as(name, None, wrong, PROMISES, "EQ overflow");
    found(Mutant::FreedTooEarly, TAKES, PROMISES, "EQ overflow");
}

/// Every reachable state.
fn reached(instance: &Instance) -> Vec<State> {
    let first = State::new(instance);
    let (mut known, mut states) = (HashSet::from([first.print]), vec![first]);
    let (mut at, mut actions) = (0, Vec::new());
    while at < states.len() {
        states[at].actions(instance, &mut actions);
        for action in actions.drain(..) {
            let next = states[at].next(instance, action);
            if known.insert(next.print) {
                states.push(next);
            }
        }
        at += 1;
    }
    states
}

/// The states with coarse steps are exactly those states in which all posted work is executed and
/// the poll's next step can be observed.
#[test]
fn a_coarse_step_hides_nothing() {
    const TWO_EACH: &[Tuning] = &[tuning(2, 2, 3)];
    activate(None);
    let quiet = Instance {
        sources: 0,
        reserve: 0,
        ..TWO_CQS
    };
    let (process, source) = (
        Instance {
            tunings: TWO_EACH,
            ..PROCESS
        },
        Instance {
            sources: 1,
            reserve: 1,
            tunings: TWO_EACH,
            ..ONE
        },
    );
    let deep = Instance {
        blocks: 2,
        tunings: &REOPEN[2..3],
        ..TWO
    };
    let takes = Instance {
        unborn: 0,
        tunings: SOME,
        coarse: false,
        ..TAKES
    };
    for instance in [quiet, process, source, deep, takes, PAIRS_GO] {
        let all = reached(&instance);
        let rests = |state: &&State| {
            let bodies = state.world.cqs.iter().filter_map(|cq| cq.body.as_ref());
            let places = bodies.flat_map(|body| &body.places);
            let mut pairs = places.filter_map(|place| place.pair.as_ref());
            pairs.all(|pair| pair.todo().is_empty()) && state.unnoticed(&instance).is_none()
        };
        let prints = |states: &mut dyn Iterator<Item = &State>| -> HashSet<u64> {
            states.map(|state| state.print).collect()
        };
        let fine = prints(&mut all.iter().filter(rests));
        let coarse = Instance {
            coarse: true,
            ..instance
        };
        let coarse = prints(&mut reached(&coarse).iter());
        let (count, fewer) = (all.len(), coarse.len());
        assert!(fine == coarse, "{instance:?}: {} {fewer}", fine.len());
        println!("states: {count} are {fewer} when steps are coarse, and none is missing");
    }
}
