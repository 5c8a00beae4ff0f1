// SPDX-License-Identifier: GPL-2.0
//! Runs the suite under each wrong variant, and fails unless each is caught.
//!
//! A name as argument runs only that variant, under every check.

#![allow(dead_code, unreachable_pub)]

extern crate proofs_queue as qpair;
extern crate proofs_queue as qpair_model;
extern crate proofs_queue as qpair_queue;

mod checks;

qpair_testkit::run_variants!(qpair_queue::mutant, checks::all());
