// SPDX-License-Identifier: GPL-2.0
//! A copy of `qemu/roce` with the wrong variants of `wrong.toml`, and with states that a checker can
//! compare. While a thread has activated no variant, it runs the transport as it is.

// The sources have lints of their own.
#![allow(warnings, clippy::correctness)]

include!(concat!(env!("OUT_DIR"), "/lib.rs"));
