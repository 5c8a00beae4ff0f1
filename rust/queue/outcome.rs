// SPDX-License-Identifier: GPL-2.0
//! The outcome of a test in a table of tests.

use super::index::Depth;

/// What did not hold.
pub type Outcome = Result<(), &'static str>;

/// A test, by name.
pub type SelfTest = (&'static str, fn() -> Outcome);

/// `what` does not hold unless `condition` is true.
///
/// # Errors
///
/// `what`.
pub fn holds(condition: bool, what: &'static str) -> Outcome {
    if condition {
        Ok(())
    } else {
        Err(what)
    }
}

/// A depth of `1 << log2`.
///
/// # Errors
///
/// There is none.
pub fn depth(log2: u8) -> Result<Depth, &'static str> {
    Depth::from_log2(log2).ok_or("a valid depth is refused")
}
