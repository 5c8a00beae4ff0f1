// SPDX-License-Identifier: GPL-2.0
//! Every behaviour of small programs on a link of small depth that loses, duplicates and swaps
//! frames, by the model checker stateright, on the code of the transport.
//!
//! A deadline comes at any time, also while its answer is on the way: so every length of every delay
//! is covered. From each state the link is taken to have no faults any more, and the program must
//! then end: so no state is a dead end, and finitely many faults cost finitely many frames.
//!
//! Each instance is explored completely. Wrong variants must be detected, each by the rule that it
//! violates.

#![allow(unreachable_pub)]

extern crate proofs_roce as qpair_roce;

#[path = "../link/mod.rs"]
mod link;
#[path = "../../../queue/tests/exhaust/search.rs"]
mod search;

use link::action::Action;
use link::plan::Plan;
use link::plan::Wanted;
use link::plan::What;
use link::rules::*;
use link::world::World;
use qpair_roce::mutant::activate;
use qpair_roce::mutant::Mutant;
use qpair_roce::tries::Limits;
use search::holds;
use search::is_found;
use search::Instance;

#[derive(Clone, Copy, Debug)]
struct Connection {
    plan: Plan,
    mutant: Option<Mutant>,
}

impl Instance for Connection {
    type World = World;
    type Action = Action;

    fn activate(&self) {
        activate(self.mutant);
    }

    fn first(&self) -> World {
        World::new(&self.plan)
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        world.actions(&self.plan, actions);
    }

    fn act(&self, world: &mut World, action: Action) -> bool {
        world.act(&self.plan, action)
    }

    fn violates(&self, world: &World, rule: &'static str) -> bool {
        match rule {
            STUCK => world.settled(&self.plan) == Some(STUCK),
            _ => world.wrong == Some(rule),
        }
    }
}

const LIMITS: Limits = Limits {
    timeout: Some(1),
    retry: 1,
    rnr_retry: None,
    reads: 2,
    window: 2,
};

const fn plan(program: &'static [Wanted]) -> Plan {
    Plan {
        program,
        limits: LIMITS,
        depth: 3,
        faults: None,
        receives: 9,
        refused: None,
    }
}

const fn wants(what: What, packets: u32) -> Wanted {
    Wanted::new(what, packets)
}

const MESSAGES: Plan = plan(&[wants(What::Send, 2), wants(What::Write, 1)]);
const READS: Plan = plan(&[wants(What::Read, 2), wants(What::Send, 1)]);
const ATOMICS: Plan = plan(&[wants(What::Atomic, 1), wants(What::Atomic, 1)]);
const MIXED: Plan = Plan {
    faults: FEW_FAULTS,
    ..plan(&[
        wants(What::Send, 1),
        wants(What::Read, 2),
        wants(What::Atomic, 1),
    ])
};
const FENCED: Plan = plan(&[
    wants(What::Flush, 1),
    wants(What::Local, 1),
    wants(What::Write, 1).fenced(),
]);
const ONE_READ: Plan = Plan {
    limits: Limits { reads: 1, ..LIMITS },
    ..plan(&[wants(What::Read, 1), wants(What::Atomic, 1)])
};
const NO_RECEIVE: Plan = Plan {
    receives: 0,
    ..plan(&[wants(What::Send, 1), wants(What::Send, 1)])
};
const FEW_RECEIVES: Plan = Plan {
    limits: Limits {
        rnr_retry: Some(1),
        ..LIMITS
    },
    ..NO_RECEIVE
};
const REFUSED: Plan = Plan {
    refused: Some(1),
    ..plan(&[
        wants(What::Read, 1),
        wants(What::Write, 1),
        wants(What::Send, 1),
    ])
};

/// Few faults: without end they have too many states to be explored at once.
const FEW_FAULTS: Option<u8> = Some(3);

const INSTANCES: [(&str, Plan); 8] = [
    ("a SEND of two packets, a WRITE of one", MESSAGES),
    ("a READ of two packets, a SEND", READS),
    ("two atomics", ATOMICS),
    ("a SEND, a READ of two packets, an atomic", MIXED),
    ("a FLUSH, a local request, a WRITE with a fence", FENCED),
    ("a READ and an atomic, one at a time", ONE_READ),
    ("a READ, a WRITE that is refused, a SEND", REFUSED),
    (
        "two SENDs, receives at any time, few faults",
        Plan {
            faults: Some(1),
            ..FEW_RECEIVES
        },
    ),
];

/// These take a minute each.
const LARGE: [(&str, Plan); 2] = [
    ("two SENDs, receives at any time", NO_RECEIVE),
    ("the same, tried twice", FEW_RECEIVES),
];

#[test]
fn the_rules_hold() {
    let all = std::env::var_os("QPAIR_ALL_INSTANCES").is_some();
    let large = LARGE.into_iter().filter(|_| all);
    for (name, plan) in INSTANCES.into_iter().chain(large) {
        let mutant = None;
        holds(name, Connection { plan, mutant }, &ALL);
    }
}

#[test]
fn wrong_transports_are_found() {
    use Mutant::*;
    for (mutant, plan, wanted) in [
        (OldIsExecuted, MESSAGES, ORDER),
        (EarlyIsExecuted, ATOMICS, ORDER),
        (ReadTakesOne, READS, ORDER),
        (NotReadyIsReceived, NO_RECEIVE, EARLY),
        (AcknowledgesExpected, MESSAGES, EARLY),
        (LocalBeforeItsTurn, FENCED, EARLY),
        (DoneWhenSent, MESSAGES, EARLY),
        (FlushedAsDone, REFUSED, EARLY),
        (AckPassesRead, READS, EARLY),
        (NakAcknowledges, MESSAGES, EARLY),
        (OldValueForgotten, ATOMICS, DATA),
        (GapIsData, READS, DATA),
        (RetryTooFew, ATOMICS, REASON),
        (RnrTooFew, FEW_RECEIVES, REASON),
        (RnrFromRetry, NO_RECEIVE, REASON),
        (ProgressKeepsTries, MESSAGES, REASON),
        (RoomIgnored, MESSAGES, WINDOW),
        (ReadsIgnored, ONE_READ, WINDOW),
        (FenceIgnored, FENCED, FENCE),
        (ReplyEvicted, ATOMICS, STUCK),
        (ReadAgainWhole, READS, STUCK),
        (GoesBackTooLittle, ATOMICS, STUCK),
        (TimerForgotten, MESSAGES, STUCK),
        (NeverReady, NO_RECEIVE, STUCK),
    ] {
        let instance = Connection {
            plan,
            mutant: Some(mutant),
        };
        is_found(mutant.what(), instance, wanted);
    }
}
