// SPDX-License-Identifier: GPL-2.0
//! Runs the suite under each wrong variant, and fails unless each is caught.
//!
//! A name as argument runs only that variant, under every check.

#![allow(dead_code, unreachable_pub)]

extern crate proofs_roce as qpair_roce;

mod checks;
mod link;

use qpair_roce::mutant::activate;
use qpair_roce::mutant::Mutant;
use qpair_testkit::Suite;
use std::process::ExitCode;

fn main() -> ExitCode {
    let suite = Suite {
        variants: Mutant::ALL,
        what: Mutant::what,
        by: Mutant::by,
        activate,
        checks: checks::all().collect(),
    };
    suite.run()
}
