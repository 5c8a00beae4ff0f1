// SPDX-License-Identifier: GPL-2.0
//! The target `device` for the engine.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| proofs_fuzz::device::run(bytes));
