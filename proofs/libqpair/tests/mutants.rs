// SPDX-License-Identifier: GPL-2.0
//! The library's tests notice when its rings go by a wrong rule.
//!
//! Each wrong variant of a rule that a process's rings stand on is switched on once everything is
//! made, and some random schedule has to fail. Device and process run on one thread here, so
//! variants that are wrong in the same way on both sides, or only between threads, are caught by
//! the suites of the rules. So is a tail that is not wrapped: the memory of a ring goes round by
//! itself here. No schedule has garbage, so what a row of completions is taken by is shown with
//! garbage in a row.

extern crate proofs_libqpair as qpair;

#[path = "../../../tools/libqpair/tests/support/mod.rs"]
mod support;

use std::panic;

use qpair::mutant::{self, Mutant as Own};
use qpair_queue::mutant::{activate, Mutant};
use support::datagrams::{every_form_arrives, lengths_have_limits};
use support::receives::{
    each_cq_reserves_room_once, receives_of_an_ended_queue_pair_come_back, shared_schedule,
};
use support::row::garbage_in_a_row;
use support::schedule::schedule;

/// Schedules that a wrong variant may get through.
const TRIES: u64 = 20;

/// On until it is dropped.
struct Active;

impl Active {
    fn new(mutant: Mutant) -> Self {
        activate(Some(mutant));
        Self
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        activate(None);
    }
}

/// Whether it does not fail.
fn survives(run: impl FnOnce()) -> bool {
    panic::catch_unwind(panic::AssertUnwindSafe(run)).is_ok()
}

/// The tests of datagrams.
fn datagrams() {
    every_form_arrives();
    lengths_have_limits();
}

/// The tests of shared receives.
fn shared_receives() {
    each_cq_reserves_room_once();
    receives_of_an_ended_queue_pair_come_back();
    for seed in 0..TRIES {
        shared_schedule(seed, || ());
    }
}

#[test]
fn every_wrong_variant_is_caught() {
    for seed in 0..TRIES {
        schedule(seed, || ());
    }
    garbage_in_a_row();
    datagrams();
    shared_receives();
    // What follows fails on purpose.
    panic::set_hook(Box::new(|_| {}));
    let by_schedules = [
        Mutant::SlotSplitTwice,
        Mutant::FreeBeforePublish,
        Mutant::NeverSignal,
        Mutant::CapacityPlusOne,
        Mutant::TailNotWrapped,
    ]
    .into_iter()
    .filter(|&mutant| (0..TRIES).all(|seed| survives(|| schedule(seed, || Active::new(mutant)))))
    .map(|mutant| format!("{mutant:?}"));
    let by_own = Own::ALL
        .iter()
        .filter(|&&mutant| {
            mutant::activate(Some(mutant));
            let survived = [garbage_in_a_row, datagrams, shared_receives]
                .into_iter()
                .all(survives);
            mutant::activate(None);
            survived
        })
        .map(|mutant| format!("{mutant:?}"));
    let stale = survives(|| {
        let _active = Active::new(Mutant::StaleIndex);
        garbage_in_a_row();
    })
    .then(|| "StaleIndex".into());
    let by_shared = [Mutant::SlotSplitTwice, Mutant::SharedFreesAll]
        .into_iter()
        .filter(|&mutant| {
            (0..TRIES).all(|seed| survives(|| shared_schedule(seed, || Active::new(mutant))))
        })
        .map(|mutant| format!("{mutant:?} of shared receives"));
    let left: Vec<String> = by_schedules
        .chain(by_own)
        .chain(by_shared)
        .chain(stale)
        .collect();
    let _ = panic::take_hook();
    assert!(left.is_empty(), "not caught: {left:?}");
}
