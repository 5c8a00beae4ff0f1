// SPDX-License-Identifier: GPL-2.0
//! A copy of the device model with the wrong variants of `wrong.toml`. While a thread has activated
//! none, it runs the device as it is.

// The sources have lints of their own.
#![allow(warnings, clippy::correctness)]

include!(concat!(env!("OUT_DIR"), "/lib.rs"));
