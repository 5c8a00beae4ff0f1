// SPDX-License-Identifier: GPL-2.0
//! Both sides against each other on random schedules.
//!
//! A driver with kernel CQs that several queue pairs share, processes with a CQ of their own,
//! asynchronous events, creates and destroys with entries unread, and the device, which goes on
//! between any two effects of the poll. Forbidden states are asserted where they would occur
//! (`device.rs`, `world.rs`). At the end of each schedule posting stops. Then everything must
//! become idle by itself, with every request completed in order, every event read, every sleeper
//! awake and every slot free.

mod device;
mod world;

use super::checks;
use qpair_queue::poll::Policy;
use qpair_testkit::with_seeds;
use std::cell::RefCell;
use world::Options;
use world::World;

checks![
    schedules_come_to_rest,
    schedules_of_the_reopening_loop_come_to_rest,
    tight_rings_come_to_rest,
];

/// Runs `seeds` schedules; every situation except `unseen` must have occurred.
fn run(name: &'static str, seeds: u64, options: Options, unseen: &[usize]) {
    let totals = RefCell::new([("", 0); 8]);
    let all = with_seeds(name, seeds, |rng| {
        let mut world = World::new(rng.clone(), options);
        for _ in 0..600 {
            world.step();
        }
        let seen = world.come_to_rest();
        for (total, (what, count)) in totals.borrow_mut().iter_mut().zip(seen.0) {
            *total = (what, total.1 + count);
        }
    });
    for (i, (what, count)) in totals.into_inner().into_iter().enumerate() {
        assert!(!all || count > 0 || unseen.contains(&i), "no {what}");
    }
}

fn schedules_come_to_rest() {
    run("schedules_come_to_rest", 400, Options::default(), &[]);
}

fn schedules_of_the_reopening_loop_come_to_rest() {
    let options = Options {
        policy: Policy::Reopen,
        ..Options::default()
    };
    run(
        "schedules_of_the_reopening_loop_come_to_rest",
        60,
        options,
        &[3],
    );
}

/// The EQ has only one slot for each CQ, and all CQs are armed.
fn tight_rings_come_to_rest() {
    let options = Options {
        spare: Some(0),
        moderated: false,
        kernel_only: true,
        ..Options::default()
    };
    run("tight_rings_come_to_rest", 200, options, &[5]);
}
