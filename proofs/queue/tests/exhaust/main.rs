// SPDX-License-Identifier: GPL-2.0
//! Every interleaving of small instances, by the model checker stateright, on the code of the rules.
//!
//! - [`state`], [`world`], [`queues`]: the event path. Device and driver, CQs of the kernel and of
//!   processes, their queue pairs.
//! - [`notify`]: the same with processes that notify instead of arming.
//! - [`flow`]: two senders and the wire between them.
//! - [`shared`]: queue pairs that share receives.
//! - [`datagram`]: senders whose datagrams are delivered or dropped.
//! - [`resize`]: a CQ that is resized.
//! - [`lifecycle`]: a device that is reset, suspended, unbound, and fails.
//! - [`ladder`]: a channel of descriptors, and the order of stores.
//!
//! Each instance is explored completely: there is no bound on states, depth or time. Wrong variants
//! of the rules must be detected, each by the property that it violates.

#![allow(unreachable_pub)]

extern crate proofs_queue as qpair;
extern crate proofs_queue as qpair_model;
extern crate proofs_queue as qpair_queue;

#[macro_use]
mod search;

mod datagram;
mod flow;
mod ladder;
mod lifecycle;
mod memory;
mod model;
mod notify;
mod queues;
mod resize;
mod shared;
mod state;
mod whole;
mod world;

use model::explore;
use model::Scene;
use model::ASKED;
use model::EVENTS;
use model::FAIRNESS;
use model::PROGRESS;
use model::PROMISES;
use model::WAKE_UPS;
use qpair_model::rules::channel::Wants;
use qpair_queue::index::Index;
use qpair_queue::mutant::Mutant;
use qpair_queue::poll::Policy;
use qpair_queue::poll::Tuning;
use queues::Request;
use state::Instance;
use state::State;
use std::time::Instant;
use world::Wrong;

/// Indices are kept small, so that states that differ in passes alone are the same.
const EXPLORES: bool = true;

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

/// n up to 3, k up to 2, and a budget of 1, of 2, and of more than can be spent. A budget limits n
/// and k as well, so these are all combinations.
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
const FEW: &[Tuning] = &[tuning(1, 1, 1), tuning(1, 1, 2), tuning(3, 2, 8)];
const LOOSE: &[Tuning] = &[tuning(3, 2, 8)];

/// One kernel CQ with one queue pair of one block, and as many EQ slots as CQs.
const ONE: Instance = Instance {
    kernel: 1,
    process: 0,
    unborn: 0,
    pairs: 1,
    more: 0,
    places: 1,
    blocks: 1,
    sources: 0,
    cqs_go: 0,
    pairs_go: 0,
    requests: &[Request::SIGNALED],
    wants: &[Wants::Next],
    rearm: false,
    notifies: false,
    lags: false,
    stale: false,
    hostile: false,
    takes: false,
    coarse: false,
    wrong: None,
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

/// CQs of both kinds are destroyed and created again, with the same number or a free one.
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

/// Any arm may be for solicited completions only, and any completion may be solicited.
const SOLICITED: Instance = Instance {
    wants: &[Wants::Next, Wants::Solicited],
    hog: None,
    ..PROCESS
};

/// The same without a process.
const SOLICITED_KERNEL: Instance = Instance {
    kernel: 2,
    process: 0,
    ..SOLICITED
};

/// A process arms with old and invalid indices, also for CQs that are destroyed or not its own; its
/// CQ is destroyed and created again.
const STALE: Instance = Instance {
    stale: true,
    cqs_go: 0b10,
    ..SOLICITED
};

/// A hostile process.
const HOSTILE: Instance = Instance {
    hostile: true,
    blocks: 2,
    hog: Some(1),
    ..SOLICITED
};

const SILENT_REQUEST: Request = Request {
    signaled: false,
    ..Request::SIGNALED
};

/// Work requests are signaled or not. With fewer blocks each must be signaled: the largest has
/// four, and must fit beside unsignaled ones.
const SILENT: Instance = Instance {
    blocks: 5,
    requests: &[Request::SIGNALED, SILENT_REQUEST],
    ..ONE
};

/// They have one block or two; and their queue pair is destroyed, so that the last ones may have no
/// completion.
const SILENT_GO: Instance = Instance {
    requests: &[
        Request::SIGNALED,
        SILENT_REQUEST,
        Request {
            blocks: 2,
            ..SILENT_REQUEST
        },
    ],
    pairs_go: 1,
    places: 2,
    ..SILENT
};

fn sound(name: &str, instances: impl IntoIterator<Item = Instance>) {
    shown(name, &[], instances);
}

/// Requires that all properties hold, and that the scenes happen in each instance.
fn shown(name: &str, scenes: &'static [Scene], instances: impl IntoIterator<Item = Instance>) {
    let (began, mut number, mut sum) = (Instant::now(), 0, 0);
    for instance in instances {
        match explore(None, instance, model::ALL, scenes) {
            Ok(states) => (number, sum) = (number + 1, sum + states),
            Err(said) => panic!("{name}: {instance:?}: {said}"),
        }
    }
    let took = began.elapsed().as_secs_f32();
    let also = match scenes.len() {
        0 => String::new(),
        count => format!(", and {count} scenes"),
    };
    println!(
        "states: {name}: {sum} states of {number} instances, nothing wrong{also} ({took:.1} s)"
    );
}

fn with_each(tunings: &'static [Tuning], instance: Instance) -> impl Iterator<Item = Instance> {
    tunings.chunks(1).map(move |tunings| Instance {
        tunings,
        ..instance
    })
}

#[test]
fn three_cqs_at_each_tuning() {
    let three = Instance {
        kernel: 3,
        coarse: true,
        ..ONE
    };
    sound("three CQs, each tuning", with_each(TUNINGS, three));
    sound(
        "three CQs, each tuning, the source's loop",
        with_each(REOPEN, three),
    );
}

#[test]
fn cqs_of_two_slots_at_each_tuning() {
    let deep = Instance {
        blocks: 2,
        coarse: true,
        ..TWO
    };
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

#[test]
fn arms_for_solicited_completions() {
    shown(
        "arms of the kernel, some for solicited",
        model::SOLICITED_BY_KERNEL,
        with_each(FEW, SOLICITED_KERNEL),
    );
    shown(
        "arms of a process, some for solicited",
        model::SOLICITED_BY_PROCESS,
        [SOLICITED],
    );
}

#[test]
fn arms_that_come_late() {
    shown("stale arms of a process", model::STALE_ARMS, [STALE]);
    shown(
        "a process that does what it likes",
        model::HOSTILITY,
        [HOSTILE],
    );
}

#[test]
fn work_requests_without_completions() {
    shown("not all signaled", model::SILENCE, with_each(FEW, SILENT));
    shown(
        "not all signaled, and the queue pair goes",
        model::SILENCE,
        [SILENT_GO],
    );
    let process = Instance {
        kernel: 0,
        process: 1,
        ..SILENT_GO
    };
    shown("those of a process", model::SILENCE, [process]);
}

/// Rules use only an index's distance from others of its ring, its position and its pass, and
/// compare CQ numbers only for equality: the behaviour does not depend on the rings' indices and
/// the CQs' numbers. So states that differ only in these are merged
/// ([`Poller::rotate`](qpair_queue::poll::Poller::rotate), [`State::rename`]).
#[test]
fn where_a_ring_stands_and_numbers_make_no_difference() {
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
    let more = Instance {
        pairs: 1,
        places: 2,
        blocks: 5,
        requests: SILENT_GO.requests,
        wants: SOLICITED.wants,
        stale: true,
        ..all
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
    let notifies = Instance {
        notifies: true,
        rearm: true,
        lags: true,
        ..more
    };
    for round in 0..900 {
        let all = [all, more, notifies][round % 3];
        let mut here = State::new(&all);
        let mut there = here.clone();
        for _ in 0..200 {
            here.actions(&all, &mut actions);
            let action = actions.swap_remove(below(actions.len()));
            actions.clear();
            here = here.next(&all, action);
            there.settle(Index::new(stands[below(stands.len())]));
            there.rename(below(16) as u32);
            there.act(&all, action);
            let mut moved = there.clone();
            moved.settle(world::FIRST);
            assert!(here == moved, "{action:?}: {here:?} is not {moved:?}");
        }
    }
}

/// Requires that the checker finds the mutant.
fn found(mutant: Mutant, instance: Instance, property: &'static str, what: &str) {
    found_as(mutant.what(), Some(mutant), instance, property, what);
}

fn found_as(
    name: &str,
    mutant: Option<Mutant>,
    instance: Instance,
    property: &'static str,
    what: &str,
) {
    match explore(mutant, instance, &[property], &[]) {
        Ok(states) => panic!("not found in {states} states: {name}"),
        Err(said) => {
            assert!(said.contains(what), "{name}: {said}");
            println!("{name}: caught by interleavings ({said})");
        }
    }
}

/// The loop counts no slots: it reopens n channels, then publishes the head once.
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
        let states = explore(Some(uncounted), with(n), &[PROMISES], &[]).expect("N + n suffices");
        println!(
            "states: the source's loop, N = 3, n = {n}, N + n slots: {states} states, no overflow"
        );
        found(uncounted, with(n - 1), PROMISES, "EQ overflow");
        // With counted slots the same loop needs only one for each CQ: see
        // `three_cqs_at_each_tuning`.
    }
}

#[test]
fn freeing_sq_slots_before_the_head_is_published_overruns_a_cq() {
    found(Mutant::FreeBeforePublish, ONE, PROMISES, "CQ overflow");
}

#[test]
fn arming_without_the_index_check_loses_a_completion() {
    found(Mutant::ArmWithoutCheck, ONE, WAKE_UPS, WAKE_UPS);
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
    found(Mutant::FreedTooEarly, cqs, PROMISES, "EQ overflow");
    found(Mutant::FreedTooEarly, PAIRS_GO, PROMISES, "CQ overflow");
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
    for (mutant, instance, property, what) in [
        (Mutant::ArmWithoutSlot, eager, PROMISES, "EQ overflow"),
        (Mutant::SlotFreeAtEvent, eager, PROMISES, "EQ overflow"),
        (Mutant::SecondUserEvent, PROCESS, PROMISES, "second event"),
        (Mutant::AsyncUnbounded, sources, PROMISES, "EQ overflow"),
        (Mutant::StaysOpen, ONE, PROMISES, "EQ overflow"),
        (
            Mutant::RaiseWithoutMask,
            TWO,
            PROMISES,
            "raised while masked",
        ),
        (
            Mutant::KeepMaskedUnmasks,
            TWO,
            PROMISES,
            "raised while masked",
        ),
        (Mutant::RoundEndNotPublished, TWO, PROMISES, "unpublished"),
        (Mutant::CapacityPlusOne, ONE, PROMISES, "used twice"),
        (Mutant::SlotSplitTwice, ONE, PROMISES, "do not add up"),
        (Mutant::AsyncRepeatLost, SOURCE, EVENTS, EVENTS),
        (Mutant::LeaveMasked, SOURCE, EVENTS, EVENTS),
        (Mutant::UnmaskNotChecked, TWO, EVENTS, EVENTS),
        (Mutant::PendingForgotten, TWO, WAKE_UPS, WAKE_UPS),
        (Mutant::ForgottenArm, PROCESS, WAKE_UPS, WAKE_UPS),
        (
            Mutant::EventsFirst,
            Instance {
                hog: Some(1),
                ..PROCESS
            },
            FAIRNESS,
            FAIRNESS,
        ),
        (Mutant::PendingForgotten, TWO, PROGRESS, PROGRESS),
    ] {
        found(mutant, instance, property, what);
    }
}

#[test]
fn faults_of_arms_are_found() {
    for (mutant, instance, property, what) in [
        (Mutant::SolicitedIsNext, SOLICITED_KERNEL, ASKED, ASKED),
        (Mutant::SolicitedIsNext, SOLICITED, ASKED, ASKED),
        (Mutant::SolicitedKept, SOLICITED_KERNEL, ASKED, ASKED),
        (Mutant::SolicitedKept, SOLICITED, ASKED, ASKED),
        (Mutant::SolicitedNever, SOLICITED_KERNEL, WAKE_UPS, WAKE_UPS),
        (Mutant::SolicitedNever, SOLICITED, WAKE_UPS, WAKE_UPS),
        (Mutant::ArmWithoutCheck, SOLICITED, WAKE_UPS, WAKE_UPS),
        (Mutant::OldArmWaits, STALE, WAKE_UPS, WAKE_UPS),
        (Mutant::BehindIsBeyond, STALE, PROMISES, "refused"),
        (Mutant::NextWeakened, STALE, WAKE_UPS, WAKE_UPS),
        (Mutant::BeyondArms, STALE, ASKED, ASKED),
        (Mutant::BeyondArms, HOSTILE, ASKED, ASKED),
        (Mutant::SecondUserEvent, HOSTILE, PROMISES, "second event"),
        (Mutant::EventsFirst, HOSTILE, FAIRNESS, FAIRNESS),
    ] {
        found(mutant, instance, property, what);
    }
    // One slot, which the destroyed CQ has freed, and a CQ of the kernel has now.
    let gone = Instance {
        kernel: 0,
        unborn: 1,
        cqs_go: 0b11,
        ..STALE
    };
    for (wrong, name, instance, property, what) in [
        (
            Wrong::Generation,
            "an arm of a CQ that is gone is taken for the next one of its index",
            STALE,
            PROGRESS,
            PROGRESS,
        ),
        (
            Wrong::Page,
            "a process arms a CQ of the kernel",
            STALE,
            PROMISES,
            "EQ overflow",
        ),
        (
            Wrong::Gone,
            "a CQ that is gone is armed, and fires",
            gone,
            PROMISES,
            "EQ overflow",
        ),
    ] {
        let instance = Instance {
            wrong: Some(wrong),
            ..instance
        };
        found_as(name, None, instance, property, what);
    }
}

#[test]
fn faults_with_silent_work_requests_are_found() {
    for (mutant, instance, property, what) in [
        (Mutant::CompletesOne, SILENT, PROGRESS, PROGRESS),
        (Mutant::CompletesAll, SILENT, PROMISES, "used twice"),
        (Mutant::NeverSignal, SILENT, PROGRESS, PROGRESS),
        (
            Mutant::FlightForgotten,
            SILENT_GO,
            PROMISES,
            "do not add up",
        ),
        (Mutant::FreedTooLate, SILENT_GO, PROGRESS, PROGRESS),
    ] {
        found(mutant, instance, property, what);
    }
}
