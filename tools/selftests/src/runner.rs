// SPDX-License-Identifier: GPL-2.0
//! Runs cases, with KTAP version 1 on standard output.
//!
//! Each case runs in a process group of its own. So a case that crashes or hangs is one failure and
//! the others continue; and when its process has ended, all its resources must be free: pinned
//! pages, objects, contexts. This is checked after every case (`world::Baseline`), and that the RDMA
//! core and the driver have the same queues.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::time::Instant;

use anyhow::anyhow;
use anyhow::Result;

use crate::children::Child;
use crate::children::End;
use crate::devices;
use crate::ktap::say;
use crate::ktap::Case;
use crate::ktap::Group;
use crate::ktap::Setup;
use crate::ktap::SKIPPED;
use crate::raw;
use crate::raw::Context;
use crate::wait;
use crate::world;
use crate::world::Baseline;

/// The result of a run.
#[derive(Default)]
struct Totals {
    pass: u32,
    fail: u32,
    skip: u32,
}

/// Runs cases, in a number of rounds with a seed each, from `seed` on; prints their results and
/// returns the exit status.
pub fn run(cases: &[(&Group, &Case)], seed: u64, rounds: usize) -> i32 {
    println!("KTAP version 1");
    println!("1..{}", cases.len() * rounds);
    let mut totals = Totals::default();
    let seeds = (0..rounds).map(|round| seed.wrapping_add(round as u64));
    let runs = seeds.flat_map(|seed| cases.iter().map(move |case| (seed, case)));
    for (number, (seed, (group, case))) in runs.enumerate() {
        let number = number + 1;
        let name = format!("{}/{}", group.name, case.name);
        let mut hasher = DefaultHasher::new();
        (seed, &name).hash(&mut hasher);
        let setup = Setup {
            seed: hasher.finish(),
        };
        let start = Instant::now();
        match one(case, &setup) {
            Ok(None) => {
                totals.pass += 1;
                println!(
                    "ok {number} {name} # {:.1} s, seed {seed}",
                    start.elapsed().as_secs_f32()
                );
            }
            Ok(Some(reason)) => {
                totals.skip += 1;
                println!("ok {number} {name} # SKIP {reason}");
            }
            Err(error) => {
                totals.fail += 1;
                say(&format!(
                    "{error:#}\nagain: qpair-selftest --seed {seed} {name}"
                ));
                println!("not ok {number} {name}");
            }
        }
    }
    println!(
        "# Totals: pass:{} fail:{} xfail:0 xpass:0 skip:{} error:0",
        totals.pass, totals.fail, totals.skip
    );
    match totals {
        Totals { fail: 1.., .. } => 1,
        Totals { skip: 1.., .. } => SKIPPED,
        _ => 0,
    }
}

/// Runs one case in a process of its own; returns the reason if it was skipped.
fn one(case: &Case, setup: &Setup) -> Result<Option<String>> {
    devices::restore()?;
    let before = Baseline::take()?;
    let mut child = Child::group(|_| (case.run)(setup))?;
    let end = child.end(wait::patience() * case.patience);
    child.clear_group()?;
    match end? {
        End::Exit(0) => {
            before.settled()?;
            // A platform may give the device copies of memory, and a case may leave it failed.
            let devices = 0..world::functions()?.len();
            let mut usable = devices.filter(|device| Context::open_file(*device).is_ok());
            usable.try_for_each(raw::agree)?;
            Ok(None)
        }
        End::Exit(SKIPPED) => Ok(Some(child.last_words().unwrap_or_default())),
        end => Err(anyhow!("the case ended with {end}")),
    }
}
