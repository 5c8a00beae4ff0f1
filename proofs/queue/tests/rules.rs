// SPDX-License-Identifier: GPL-2.0
//! Runs the suite: each check is a test.

#![allow(dead_code, unreachable_pub)]

extern crate proofs_queue as qpair;
extern crate proofs_queue as qpair_model;
extern crate proofs_queue as qpair_queue;

mod checks;
