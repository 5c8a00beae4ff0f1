// SPDX-License-Identifier: GPL-2.0
//! Runs the suite: each check is a test.

#![allow(dead_code, unreachable_pub)]

extern crate proofs_roce as qpair_roce;

mod checks;
mod link;
