// SPDX-License-Identifier: GPL-2.0
//! Every interleaving of small instances, by the model checker stateright, on the code of this crate.
//!
//! - [`state`], [`world`]: the event path. Device and driver, CQs of the kernel and of processes, their queue pairs.
//! - [`flow`]: two senders and the wire between them.
//!
//! Each instance is explored to its end: there is no bound on states, depth or time. Wrong variants of the rules have to
//! be found out, each by what it breaks.

#![allow(unreachable_pub)]

mod flow;
mod memory;
mod model;
mod state;
mod world;

use flow::Pact;
use model::explore;
use model::EVENTS;
use model::FAIRNESS;
use model::PROGRESS;
use model::PROMISES;
use model::SCENES;
use model::WAKE_UPS;
use qpair_queue::flow::Credits;
use qpair_queue::index::Index;
use qpair_queue::mutant::Mutant;
use qpair_queue::poll::Policy;
use qpair_queue::poll::Tuning;
use state::Instance;
use state::State;
use std::time::Instant;

const fn tuning(events: u32, completions: u32, budget: u32) -> Tuning {
    Tuning {
        events,
        completions,
        budget,
        policy: Policy::Coalesce,
    }
}

const fn reopen(tuning: Tuning) -> Tuning {
    Tuning {
        policy: Policy::Reopen,
        ..tuning
    }
}

/// n up to 3, k up to 2, and a budget of 1, of 2, and of more than can be spent. A budget bounds n and k as well, so these are all.
const TUNINGS: &[Tuning] = &[
    tuning(1, 1, 1),
    tuning(1, 1, 2),
    tuning(2, 1, 2),
    tuning(1, 2, 2),
    tuning(2, 2, 2),
    tuning(1, 1, 8),
    tuning(2, 1, 8),
    tuning(3, 1, 8),
    tuning(1, 2, 8),
    tuning(2, 2, 8),
    tuning(3, 2, 8),
];

/// The same, in the source's own loop.
const REOPEN: &[Tuning] = &[
    reopen(TUNINGS[0]),
    reopen(TUNINGS[1]),
    reopen(TUNINGS[2]),
    reopen(TUNINGS[3]),
    reopen(TUNINGS[4]),
    reopen(TUNINGS[5]),
    reopen(TUNINGS[6]),
    reopen(TUNINGS[7]),
    reopen(TUNINGS[8]),
    reopen(TUNINGS[9]),
    reopen(TUNINGS[10]),
];

const TIGHT: &[Tuning] = &[tuning(1, 1, 1)];
const SOME: &[Tuning] = &[tuning(1, 1, 1), tuning(1, 1, 2)];
const LOOSE: &[Tuning] = &[tuning(3, 2, 8)];

/// One kernel CQ with one queue pair of one block, and as many EQ slots as CQs.
const ONE: Instance = Instance {
    kernel: 1,
    process: 0,
    unborn: 0,
    pairs: 1,
    places: 1,
    blocks: 1,
    sources: 0,
    cqs_go: 0,
    pairs_go: 0,
    rearm: false,
    reserve: 0,
    spare: 0,
    tunings: TIGHT,
    hog: None,
};

const TWO: Instance = Instance {
    kernel: 2,
    hog: Some(0),
    ..ONE
};

/// A CQ that never drains, and one of a process that arms more often than it should.
const PROCESS: Instance = Instance {
    process: 1,
    rearm: true,
    hog: Some(0),
    ..ONE
};

/// CQs of both kinds are destroyed and made again, at the same number or at a free one.
const CQS_GO: Instance = Instance {
    unborn: 1,
    cqs_go: 0b111,
    tunings: SOME,
    hog: None,
    ..PROCESS
};

/// Two queue pairs that fill their CQ, and a place for a third.
const PAIRS_GO: Instance = Instance {
    pairs: 2,
    places: 3,
    pairs_go: 1,
    ..ONE
};

const SOURCE: Instance = Instance {
    sources: 1,
    reserve: 1,
    ..ONE
};

fn sound(name: &str, instances: impl IntoIterator<Item = Instance>) {
    let (began, mut number, mut sum) = (Instant::now(), 0, 0);
    for instance in instances {
        match explore(None, instance, model::ALL, false) {
            Ok(states) => (number, sum) = (number + 1, sum + states),
            Err(said) => panic!("{name}: {instance:?}: {said}"),
        }
    }
    let took = began.elapsed().as_secs_f32();
    println!("states: {name}: {sum} states of {number} instances, nothing wrong ({took:.1} s)");
}

fn with_each(tunings: &'static [Tuning], instance: Instance) -> impl Iterator<Item = Instance> {
    tunings.chunks(1).map(move |tunings| Instance {
        tunings,
        ..instance
    })
}

#[test]
fn three_cqs_at_each_tuning() {
    let three = Instance { kernel: 3, ..ONE };
    sound("three CQs, each tuning", with_each(TUNINGS, three));
    sound(
        "three CQs, each tuning, the source's loop",
        with_each(REOPEN, three),
    );
}

#[test]
fn cqs_of_two_slots_at_each_tuning() {
    let deep = Instance { blocks: 2, ..TWO };
    sound(
        "two CQs of two slots, each tuning",
        with_each(TUNINGS, deep),
    );
    sound(
        "two CQs of two slots, each tuning, the source's loop",
        with_each(REOPEN, deep),
    );
}

#[test]
fn tunings_change_while_running() {
    let changing = Instance {
        tunings: TUNINGS,
        ..TWO
    };
    sound("two CQs, any tuning at any poll", [changing]);
}

#[test]
fn processes_and_asynchronous_events() {
    let three = Instance {
        kernel: 2,
        sources: 1,
        reserve: 1,
        hog: None,
        ..PROCESS
    };
    sound("two CQs, a process's, an asynchronous source", [three]);
    let flood = Instance {
        hog: Some(1),
        ..PROCESS
    };
    sound("a process whose CQ never drains", [flood]);
    let sources = Instance {
        sources: 2,
        tunings: LOOSE,
        ..SOURCE
    };
    sound("two asynchronous sources on one slot", [sources]);
}

#[test]
fn cqs_come_and_go() {
    sound("CQs come and go, numbers are used again", [CQS_GO]);
}

#[test]
fn queue_pairs_come_and_go() {
    sound("queue pairs go with CQEs unread", [PAIRS_GO]);
    let process = Instance {
        kernel: 0,
        process: 1,
        ..PAIRS_GO
    };
    sound("those of a process", [process]);
}

/// A CQ that never drains and whose queue pair comes and goes with CQEs unread; a process's with its remembered arm, that is destroyed and
/// made again at its number; an asynchronous source.
#[test]
fn all_of_it_at_once() {
    let all = Instance {
        sources: 1,
        reserve: 1,
        cqs_go: 0b10,
        pairs_go: 1,
        places: 2,
        ..PROCESS
    };
    match explore(None, all, model::ALL, true) {
        Ok(states) => println!(
            "states: all of it at once: {states} states, nothing wrong, and {} scenes",
            SCENES.len()
        ),
        Err(said) => panic!("{said}"),
    }
}

/// No rule looks at more of an index than its distance from others of its ring, its place and its pass: what happens does not
/// depend on where the rings stand. So states that differ in that alone are one ([`Poller::rotate`](qpair_queue::poll::Poller::rotate)).
#[test]
fn where_a_ring_stands_makes_no_difference() {
    let all = Instance {
        kernel: 2,
        pairs_go: 0b111,
        places: 3,
        pairs: 2,
        sources: 1,
        reserve: 1,
        tunings: TUNINGS,
        ..CQS_GO
    };
    let (mut seed, mut actions) = (1u64, Vec::new());
    let mut below = |bound: usize| {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 33) as usize % bound
    };
    let stands = [
        0,
        1,
        7,
        8,
        u32::MAX,
        u32::MAX - 1,
        u32::MAX - 7,
        1 << 31,
        (1 << 31) - 1,
    ];
    for _ in 0..300 {
        let mut here = State::new(&all);
        let mut there = here.clone();
        for _ in 0..200 {
            here.actions(&all, &mut actions);
            let action = actions.swap_remove(below(actions.len()));
            actions.clear();
            here = here.next(&all, action);
            there.settle(Index::new(stands[below(stands.len())]));
            there.act(&all, action);
            let mut moved = there.clone();
            moved.settle(world::FIRST);
            assert!(here == moved, "{action:?}: {here:?} is not {moved:?}");
        }
    }
}

/// Demands that the checker finds it.
fn found(mutant: Mutant, instance: Instance, properties: &'static [&'static str], what: &str) {
    match explore(Some(mutant), instance, properties, false) {
        Ok(states) => panic!("{mutant:?} is not found in {states} states"),
        Err(said) => {
            assert!(said.contains(what), "{mutant:?}: {said}");
            println!("{}: caught by interleavings ({said})", mutant.what());
        }
    }
}

/// It counts no slots: it reopens n channels, then publishes the head once.
#[test]
fn the_source_loop_needs_cqs_plus_n_slots() {
    for (tunings, n) in [(5, 1), (6, 2), (7, 3)].map(|(at, n)| (&REOPEN[at..=at], n)) {
        let with = |spare| Instance {
            kernel: 3,
            spare,
            tunings,
            ..ONE
        };
        let uncounted = Mutant::ArmWithoutSlot;
        let states = explore(Some(uncounted), with(n), &[PROMISES], false).expect("N + n suffices");
        println!(
            "states: the source's loop, N = 3, n = {n}, N + n slots: {states} states, no overflow"
        );
        found(uncounted, with(n - 1), &[PROMISES], "EQ overflow");
        // The same loop, when slots are counted, needs no more than one for each CQ: see `three_cqs_at_each_tuning`.
    }
}

#[test]
fn freeing_sq_slots_before_the_head_is_published_overruns_a_cq() {
    found(Mutant::FreeBeforePublish, ONE, &[PROMISES], "CQ overflow");
}

#[test]
fn arming_without_the_index_check_loses_a_completion() {
    found(Mutant::ArmWithoutCheck, ONE, &[WAKE_UPS], WAKE_UPS);
}

#[test]
fn slots_of_what_is_destroyed_that_come_back_too_early_overflow() {
    let cqs = Instance {
        kernel: 2,
        unborn: 1,
        cqs_go: 0b111,
        tunings: SOME,
        ..ONE
    };
    found(Mutant::LimboTooEarly, cqs, &[PROMISES], "EQ overflow");
    found(Mutant::LimboTooEarly, PAIRS_GO, &[PROMISES], "CQ overflow");
}

#[test]
fn other_faults_are_found() {
    let eager = Instance {
        tunings: LOOSE,
        ..TWO
    };
    let sources = Instance {
        sources: 2,
        ..SOURCE
    };
    const PROMISED: &[&str] = &[PROMISES];
    for (mutant, instance, properties, what) in [
        (Mutant::ArmWithoutSlot, eager, PROMISED, "EQ overflow"),
        (Mutant::SlotFreeAtEvent, eager, PROMISED, "EQ overflow"),
        (Mutant::SecondUserEvent, PROCESS, PROMISED, "second event"),
        (Mutant::AsyncUnbounded, sources, PROMISED, "EQ overflow"),
        (Mutant::StaysOpen, ONE, PROMISED, "EQ overflow"),
        (
            Mutant::RaiseWithoutMask,
            TWO,
            PROMISED,
            "raised while masked",
        ),
        (
            Mutant::KeepMaskedUnmasks,
            TWO,
            PROMISED,
            "raised while masked",
        ),
        (Mutant::RoundEndNotPublished, TWO, PROMISED, "unpublished"),
        (Mutant::CapacityPlusOne, ONE, PROMISED, "used twice"),
        (Mutant::SlotSplitTwice, ONE, PROMISED, "do not add up"),
        (Mutant::AsyncRepeatLost, SOURCE, &[EVENTS], EVENTS),
        (Mutant::LeaveMasked, SOURCE, &[EVENTS], EVENTS),
        (Mutant::UnmaskNotChecked, TWO, &[EVENTS], EVENTS),
        (Mutant::PendingForgotten, TWO, &[WAKE_UPS], WAKE_UPS),
        (Mutant::ForgottenArm, PROCESS, &[WAKE_UPS], WAKE_UPS),
        (
            Mutant::EventsFirst,
            Instance {
                hog: Some(1),
                ..PROCESS
            },
            &[FAIRNESS],
            FAIRNESS,
        ),
        (Mutant::PendingForgotten, TWO, &[PROGRESS], PROGRESS),
    ] {
        found(mutant, instance, properties, what);
    }
}

/// Credits up to 4, of both sides, in any combination but those that only swap the sides.
fn credits() -> impl Iterator<Item = [Credits; 2]> {
    let all = (1..=4).flat_map(|data| (2..=4).map(move |acks| Credits { data, acks }));
    let all: Vec<_> = all.collect();
    let pairs = (0..all.len()).flat_map(|i| (0..=i).map(move |j| (i, j)));
    let pairs: Vec<_> = pairs.map(|(i, j)| [all[i], all[j]]).collect();
    pairs.into_iter()
}

fn talks(name: &str, pacts: impl Iterator<Item = Pact>) {
    let (began, mut number, mut sum) = (Instant::now(), 0, 0);
    for pact in pacts {
        match flow::explore(None, pact, flow::ALL) {
            Ok(states) => (number, sum) = (number + 1, sum + states),
            Err(said) => panic!("{pact:?}: {said}"),
        }
    }
    let took = began.elapsed().as_secs_f32();
    println!("states: {name}: {sum} states of {number} instances, nothing wrong ({took:.1} s)");
}

const fn each(count: u32) -> [Credits; 2] {
    [Credits {
        data: count,
        acks: count,
    }; 2]
}

#[test]
fn senders_never_wait_for_ever() {
    let prompt = credits().map(|receives| Pact {
        prompt: true,
        sends: each(4),
        receives,
    });
    talks("flow, sends complete at once", prompt);
    let alike = |receives: &[Credits; 2]| receives[0] == receives[1];
    let tight = credits().filter(alike);
    let tight = tight.map(|receives| Pact {
        prompt: false,
        sends: each(1),
        receives,
    });
    talks("flow, one send under way that completes at any time", tight);
    let few = credits().filter(|[a, b]| a.data <= 2 && a.acks == 2 && b.data <= 2 && b.acks == 2);
    let few = few.map(|receives| Pact {
        prompt: false,
        sends: each(2),
        receives,
    });
    talks("flow, two sends under way that complete at any time", few);
}

#[test]
fn acknowledging_otherwise_is_a_deadlock_or_has_no_end() {
    for (mutant, acks, property) in [
        (Mutant::AckAtHalf, 2, flow::TALK),
        (Mutant::AckAtHalf, 2, flow::END),
        (Mutant::AckOfAck, 2, flow::END),
        (Mutant::OneAckCredit, 1, flow::TALK),
    ] {
        let receives = [Credits { data: 2, acks }; 2];
        let pact = Pact {
            prompt: true,
            sends: each(4),
            receives,
        };
        match flow::explore(Some(mutant), pact, &[property]) {
            Ok(states) => panic!("{mutant:?} is not found in {states} states"),
            Err(said) => println!("{}: caught by interleavings ({said})", mutant.what()),
        }
    }
}
