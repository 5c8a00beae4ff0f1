// SPDX-License-Identifier: GPL-2.0
//! The life of a device: every order of resets, suspends, errors of the link, failures and looks of
//! the watchdog, step by step, through three epochs.

#[path = "../lifecycle/world.rs"]
mod world;

use super::search::holds;
use super::search::is_found;
use super::search::Instance;
use qpair_queue::mutant::Mutant;
use world::*;

const HANGS: &str = "a device that has failed is never reset";

#[derive(Clone, Copy, Debug)]
struct Life {
    mutant: Option<Mutant>,
}

const ALL: [&str; 19] = [
    ACCESSED, FREED, FLUSHED, RELEASED, WAITS, UNCUT, EARLY, TWICE, UNTOLD, SLEPT, STUCK, EPOCH,
    BLAMED, FORGOTTEN, LEAKED, OVERLAP, UNENDED, MISTAKEN, HANGS,
];

impl Instance for Life {
    world_acts!();

    fn first(&self) -> World {
        World::new()
    }

    fn violates(&self, world: &World, rule: &'static str) -> bool {
        match rule {
            HANGS => !world.recovers(),
            _ => world.wrong == Some(rule),
        }
    }
}

#[test]
fn every_order_of_events_is_right() {
    holds("the life of a device", Life { mutant: None }, &ALL);
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
        (Mutant::KeptIsFree, MISTAKEN),
        (Mutant::SilentLoss, UNTOLD),
        (Mutant::FatalForEver, HANGS),
    ] {
        let life = Life {
            mutant: Some(mutant),
        };
        is_found(mutant.what(), life, wanted);
    }
}
