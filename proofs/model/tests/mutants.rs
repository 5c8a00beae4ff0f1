// SPDX-License-Identifier: GPL-2.0
//! Runs the suite under each wrong variant, and fails unless each is caught.
//!
//! A name as argument runs only that variant, under every check.

#![allow(dead_code, unreachable_pub)]

extern crate proofs_model as qpair_model;

#[path = "../../../qemu/model/tests/checks/mod.rs"]
mod checks;
#[path = "../../../qemu/model/tests/harness/mod.rs"]
mod harness;

qpair_testkit::run_variants!(qpair_model::mutant, checks::all());
