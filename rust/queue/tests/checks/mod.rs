// SPDX-License-Identifier: GPL-2.0
//! The suite: plain functions that panic when a rule is broken.
//!
//! `tests/rules.rs` runs each as a test; `tests/mutants.rs` runs all of them under each wrong variant.

pub mod memory;
pub mod ring;

/// A check, by name.
pub type Check = (&'static str, fn());

/// Lists functions as checks.
macro_rules! checks {
    ($($name:ident),* $(,)?) => {
        pub const CHECKS: &[crate::checks::Check] = &[$((stringify!($name), $name as fn()),)*];
    };
}
pub(crate) use checks;

/// Every check there is.
pub fn all() -> impl Iterator<Item = Check> {
    [ring::CHECKS].into_iter().flatten().copied()
}
