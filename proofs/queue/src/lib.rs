// SPDX-License-Identifier: GPL-2.0
//! A copy of the rules with the wrong variants of `wrong.toml`, and with states that a checker can
//! compare: those of `rust/queue`, with the device's rules and the library's flow control as
//! modules. While a thread has activated no variant, it runs the rules as they are.

// The sources have lints of their own.
#![allow(warnings, clippy::correctness)]

extern crate self as qpair_queue;

include!(concat!(env!("OUT_DIR"), "/mod.rs"));
