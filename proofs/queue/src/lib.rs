// SPDX-License-Identifier: GPL-2.0
//! A copy of `rust/queue` with the wrong variants of `wrong.toml`, and with states that a checker
//! can compare. While a thread has activated no variant, it runs the rules as they are.

// The sources have lints of their own.
#![allow(warnings)]

include!(concat!(env!("OUT_DIR"), "/mod.rs"));
