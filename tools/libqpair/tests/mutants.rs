// SPDX-License-Identifier: GPL-2.0
//! The random schedules notice when the library's rings go by a wrong rule.
//!
//! Each wrong variant of a rule that a process's rings stand on is switched on once everything is made, and some
//! schedule has to fail. Device and process run on one thread here, so variants that are wrong in the same way on both sides,
//! or only between threads, are caught by the suites of the rules. So is a tail that is not wrapped: the memory of a ring goes
//! round by itself here.

mod support;

use std::panic;

use qpair_queue::mutant::{activate, Mutant};
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

#[test]
fn every_wrong_variant_is_caught() {
    for seed in 0..TRIES {
        schedule(seed, || ());
    }
    // What follows fails on purpose.
    panic::set_hook(Box::new(|_| {}));
    let survivors: Vec<_> = [
        Mutant::SlotSplitTwice,
        Mutant::FreeBeforePublish,
        Mutant::NeverSignal,
        Mutant::CapacityPlusOne,
        Mutant::TailNotWrapped,
    ]
    .into_iter()
    .filter(|&mutant| {
        let survives = |seed| {
            let run = || schedule(seed, || Active::new(mutant));
            panic::catch_unwind(run).is_ok()
        };
        (0..TRIES).all(survives)
    })
    .collect();
    let _ = panic::take_hook();
    assert!(survivors.is_empty(), "not caught: {survivors:?}");
}
