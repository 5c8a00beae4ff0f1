// SPDX-License-Identifier: GPL-2.0
//! Targets for a fuzzer: functions of any bytes that panic when a guarantee is broken.
//!
//! `scripts/fuzz` runs one by libFuzzer, with the coverage of the code. `tests/corpus.rs` replays the
//! kept inputs, and random ones.

pub mod device;
pub mod frames;
mod keys;
pub mod parse;

// The targets use a part of it.
#[allow(unused_imports)]
#[path = "../../../qemu/model/tests/harness/mod.rs"]
mod harness;

/// A target: its name, and the function.
pub type Target = (&'static str, fn(&[u8]));

/// The targets.
pub const TARGETS: &[Target] = &[
    ("parse", parse::run),
    ("frames", frames::run),
    ("device", device::run),
];
